// SPDX-License-Identifier: Apache-2.0
// The list of schedules, what their makers share, and the way from a request to a checked schedule.
//
// A kind of schedule is a descriptor (sched.h) in a file of its own and a line in schedules.def. It
// says which requests it admits and writes, for each rank, the computing actions in their order: F,
// and B or I and W. Everything else follows from those and is added here once for all kinds
// (complete.c): messages, the reduction of gradients, the step. What comes out is checked like a
// schedule that a user wrote; one of ours that fails is a fault of ours, and ends the program.
//
// Stages are dealt to ranks in one of two ways:
//
//   loops   stage s on rank s mod p                 p = 3, v = 2:  0 1 2 0 1 2
//   V       forth, then back, then forth again      p = 3, v = 2:  0 1 2 2 1 0
//
// In loops each rank passes to the next, and the last to the first. In a V the turning ranks hold
// two neighbouring stages and send nothing there, and the first rank holds the last stage too.
#include "sched/sched.h"

#include <stdio.h> /* snprintf */
#include <string.h>

#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "sched/impl.h" /* gw_sched_kind_* */

static const gw_sched_kind *const kinds[] = {
#define X(id) &gw_sched_kind_##id,
#include "sched/schedules.def"
#undef X
};

const gw_sched_kind *gw_sched_kind_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(kinds) ? kinds[i] : NULL;
}

const gw_sched_kind *gw_sched_kind_find(const char *name) {
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        if (gw_str_eq(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

/* ---- requests ---- */

gw_sched_request gw_sched_filled(const gw_sched_kind *k, const gw_sched_request *r) {
    gw_sched_request f = *r;
    if (f.virtual_stages == 0) f.virtual_stages = k->made_for;
    return f;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

/* Beyond what any schedule may have? Then why, and in *near the largest or least that may be. */
static const char *beyond_limits(const gw_sched_request *r, gw_arena *a, gw_sched_request *near) {
    if (r->ranks < 1 || r->ranks > GW_SCHED_MAX_RANKS) {
        near->ranks = (int)clamp(r->ranks, 1, GW_SCHED_MAX_RANKS);
        return gw_arena_printf(a, "pipelines have 1 to %d ranks, not %d", GW_SCHED_MAX_RANKS,
                               r->ranks);
    }
    int most_v = GW_SCHED_MAX_STAGES / r->ranks;
    if (r->virtual_stages < 1 || r->virtual_stages > most_v) {
        near->virtual_stages = (int)clamp(r->virtual_stages, 1, most_v);
        return gw_arena_printf(a, "%d ranks have 1 to %d stages each, not %d", r->ranks, most_v,
                               r->virtual_stages);
    }
    int64_t most_m = GW_SCHED_MAX_PAIRS / ((int64_t)r->ranks * r->virtual_stages);
    if (most_m > GW_SCHED_MAX_MICRO) most_m = GW_SCHED_MAX_MICRO;
    if (r->micro_batches < 1 || r->micro_batches > most_m) {
        near->micro_batches = (int32_t)clamp(r->micro_batches, 1, most_m);
        return gw_arena_printf(a, "%d stages take 1 to %lld micro-batches a step, not %d",
                               r->ranks * r->virtual_stages, (long long)most_m, r->micro_batches);
    }
    return NULL;
}

bool gw_sched_admits(const gw_sched_kind *k, const gw_sched_request *r, gw_arena *a,
                     const char **why, gw_sched_request *near) {
    gw_sched_request filled = gw_sched_filled(k, r), inside = filled;
    const char *bad = beyond_limits(&filled, a, &inside);
    if (!bad) {
        *near = filled;
        return k->admits(&filled, a, why, near);
    }
    for (gw_sched_request r2 = inside; beyond_limits(&r2, a, &inside); r2 = inside) {}
    const char *ignored = NULL;
    *near = inside;
    if (k->admits(&inside, a, &ignored, near)) *near = inside;
    *why = bad;
    return false;
}

static gw_status unknown(const char *name, gw_diags *dg) {
    gw_str all = {0};
    const char *meant = NULL;
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        gw_str_printf(&all, "%s%s", i ? ", " : "", kinds[i]->name);
        if (gw_str_distance(name, kinds[i]->name) <= 2) meant = kinds[i]->name;
    }
    gw_diag *g = gw_diag_add(
        dg, GW_ERROR, GW_ERR_CONFIG, "schedule", (gw_where){0}, "there is no schedule '%s'%s%s%s",
        name, meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
    gw_diag_hint(dg, g, "schedules: %s, or file:PATH", gw_str_c(&all));
    gw_str_release(&all);
    return GW_ERR_CONFIG;
}

static gw_status refused(const gw_sched_kind *k, const char *why, const gw_sched_request *near,
                         gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "schedule", (gw_where){0},
                             "schedule %s: %s", k->name, why);
    char memory[48] = "";
    if (near->memory > 0) snprintf(memory, sizeof memory, ", memory of %g", near->memory);
    gw_diag_hint(dg, g, "the nearest that fits: %d rank%s, %d stage%s a rank, %d micro-batch%s%s",
                 near->ranks, near->ranks == 1 ? "" : "s", near->virtual_stages,
                 near->virtual_stages == 1 ? "" : "s", near->micro_batches,
                 near->micro_batches == 1 ? "" : "es", memory);
    return GW_ERR_CONFIG;
}

gw_status gw_schedule_make(const char *name, const gw_sched_request *r, gw_arena *a,
                           gw_schedule *out, gw_diags *dg) {
    const gw_sched_kind *k = gw_sched_kind_find(name);
    if (!k) return unknown(name, dg);
    const char *why = NULL;
    gw_sched_request near;
    if (!gw_sched_admits(k, r, a, &why, &near)) return refused(k, why, &near, dg);
    gw_sched_request filled = gw_sched_filled(k, r);
    k->make(&filled, a, out);
    gw_schedule_complete(out, a);
    gw_diags own;
    gw_diags_init(&own);
    if (gw_schedule_check(out, &(gw_sched_checks){.places = 1}, &own) != GW_OK)
        gw_panic("schedule %s for %d ranks, %d stages a rank, %d micro-batches is wrong: %s", name,
                 filled.ranks, filled.virtual_stages, filled.micro_batches,
                 gw_diags_first_error(&own));
    gw_diags_release(&own);
    return GW_OK;
}

/* ---- tools for makers ---- */

bool gw_sched_one_stage(const gw_sched_request *r, gw_arena *a, const char **why,
                        gw_sched_request *near) {
    *near = *r;
    near->virtual_stages = 1;
    if (r->virtual_stages == 1) return true;
    *why = gw_arena_printf(a, "it has one stage a rank, not %d", r->virtual_stages);
    return false;
}

void gw_sched_begin(gw_sched_builder *b, gw_arena *a, gw_schedule *s, const char *name, int ranks,
                    int virtual_stages, bool v_shape, int32_t micro_batches) {
    int stages = ranks * virtual_stages;
    int16_t *rank_of = gw_arena_new(a, int16_t, stages);
    for (int i = 0; i < stages; i++) {
        int lap = i / ranks, at = i % ranks;
        rank_of[i] = (int16_t)(v_shape && lap % 2 ? ranks - 1 - at : at);
    }
    gw_actions *lists = gw_arena_new(a, gw_actions, ranks);
    *s = (gw_schedule){.name = name,
                       .ranks = ranks,
                       .stages = stages,
                       .micro_batches = micro_batches,
                       .rank_of = rank_of,
                       .lists = lists};
    *b =
        (gw_sched_builder){.a = a, .s = s, .lists = lists, .room = gw_arena_new(a, int64_t, ranks)};
}

void gw_sched_add(gw_sched_builder *b, int rank, gw_act act, int stage, int32_t micro) {
    GW_ASSERT(rank >= 0 && rank < b->s->ranks);
    gw_actions *l = &b->lists[rank];
    if (l->n == b->room[rank]) {
        int64_t room = l->n ? 2 * l->n : 64;
        gw_action *items = gw_arena_new(b->a, gw_action, room);
        if (l->n) memcpy(items, l->items, (size_t)l->n * sizeof *items);
        l->items = items;
        b->room[rank] = room;
    }
    l->items[l->n++] = (gw_action){.act = (uint8_t)act, .stage = (int16_t)stage, .micro = micro};
}
