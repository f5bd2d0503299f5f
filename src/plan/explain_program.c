// SPDX-License-Identifier: Apache-2.0
// The same figures, read from compiled programs and schedules.
//
// What a line reads is a word (gw_explain_read), and the run is a text in which {n} stands for an
// input. Steps and blocks are compiled by whoever called, above in the house; schedules are made
// and timed here. That a layout cannot be compiled (18 ranks for 8 heads of keys) is no fault of
// the arithmetic: it is said where the figure would stand.
#include <string.h>

#include "base/str.h" /* gw_str */
#include "plan/explain.h"
#include "sched/sched.h" /* gw_schedule_make, gw_sched_time */

enum { SCALAR_BYTES = 64 };

static double var(gw_explain *e, const char *name, double otherwise) {
    const gw_explain_variable *v = gw_explain_variable_find(e, name, strlen(name));
    return v ? v->value : otherwise;
}

/* "layout.dp={n}" with numbers, and the dimensions that were changed. */
static const char *sets_of(gw_explain *e, const gw_explain_line *l) {
    static const char *const keys[][2] = {
        {"L", "model.layers"}, {"kv", "model.kv_heads"}, {"V", "model.vocab"}};
    gw_str s = {0};
    for (const char *p = l->sets ? l->sets : ""; *p;) {
        size_t n = *p == '{' ? strcspn(p, "}") : 0;
        const gw_explain_variable *v = n ? gw_explain_variable_find(e, p + 1, n - 1) : NULL;
        if (v)
            gw_str_printf(&s, "%.0f", v->value);
        else
            gw_str_add_char(&s, *p);
        p += v ? n + 1 : 1;
    }
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        const gw_explain_variable *v = gw_explain_variable_find(e, keys[i][0], strlen(keys[i][0]));
        bool fixed = l->sets && strstr(l->sets, keys[i][1]);
        if (v && v->of_model && strcmp(v->from, "stated") == 0 && !fixed)
            gw_str_printf(&s, "%s%s=%.0f", s.len ? " " : "", keys[i][1], v->value);
    }
    const char *text = gw_arena_strdup(&e->mem, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static const char *command_of(gw_explain *e, const char *sets) {
    gw_str s = {0};
    gw_str_printf(&s, "gradwright plan %s", e->preset);
    if (*sets) gw_str_add(&s, " --set ");
    for (const char *p = sets; *p; p++)
        if (*p == ' ')
            gw_str_add(&s, " --set ");
        else
            gw_str_add_char(&s, *p);
    const char *text = gw_arena_strdup(&e->mem, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static void none(gw_explain *e, gw_explain_result *r, const gw_diags *dg) {
    const char *why = gw_diags_first_error(dg);
    r->missing = gw_arena_strdup(&e->mem, *why ? why : "it does not compile");
}

/* ---- steps ---- */

static double wire_of_dp(const gw_ledger *l) {
    int64_t n = 0;
    for (int i = 0; i < l->nwire; i++)
        if (l->wire[i].largest_bytes > SCALAR_BYTES) n += l->wire[i].payload_bytes;
    return (double)n;
}

static double wire_of_experts(const gw_ledger *l) {
    int64_t n = 0;
    for (int i = 0; i < l->nwire; i++)
        if (l->wire[i].at_even_load) n += l->wire[i].payload_bytes;
    return (double)n;
}

static double of_ledger(const gw_ledger *l, gw_explain_read read) {
    double tokens = (double)(l->tokens_per_step / (l->dp > 0 ? l->dp : 1));
    if (read == GW_READ_PARAMS) return (double)l->params;
    if (read == GW_READ_STATIC) return (double)l->static_bytes;
    if (read == GW_READ_STATIC_EACH) return (double)l->static_bytes / (double)l->rank_params;
    if (read == GW_READ_WEIGHTS) return (double)l->static_weights;
    if (read == GW_READ_WIRE_DP) return wire_of_dp(l);
    if (read == GW_READ_N6) return l->flops.n6 / tokens;
    if (read == GW_READ_N6_CAUSAL) return l->flops.n6_causal / tokens;
    if (read == GW_READ_N6_FULL) return l->flops.n6_full / tokens;
    int64_t layers = l->model.layers - l->model.moe.dense_layers;
    return wire_of_experts(l) / (double)layers; /* GW_READ_EP */
}

static void read_step(gw_explain *e, gw_explain_result *r, const char *sets) {
    gw_ledger l;
    gw_diags dg;
    gw_diags_init(&dg);
    if (e->compiler.ledger(e->compiler.user, e->preset, sets, &l, &dg) == GW_OK) {
        r->program = of_ledger(&l, r->line->read);
        r->compiled = true;
        gw_ledger_release(&l);
    } else {
        none(e, r, &dg);
    }
    gw_diags_release(&dg);
}

/* ---- blocks ---- */

static const gw_block_product *product(const gw_block *b, const char *name) {
    for (int i = 0; i < b->nproducts; i++)
        if (strcmp(b->products[i].name, name) == 0) return &b->products[i];
    return NULL;
}

static double of_block(gw_explain *e, const gw_block *b, gw_explain_read read) {
    const gw_block_product *p = NULL;
    if (read == GW_READ_TP_TOKEN || read == GW_READ_SP_TOKEN)
        return (double)gw_block_over_tp(b).payload_bytes / (double)b->tokens * var(e, "L", 1);
    if (read == GW_READ_FFN_COLUMNS) p = product(b, "mlp/up");
    if (read == GW_READ_FFN_ROWS) p = product(b, "mlp/down");
    if (p) return (double)(read == GW_READ_FFN_ROWS ? p->k : p->n);
    if (read == GW_READ_KV_HEADS) return (double)b->kv_made;
    if (read == GW_READ_SAVED) return (double)b->saved_bytes;
    if (read == GW_READ_CP_FORWARD)
        return (double)b->cp[GW_BLOCK_FORWARD][GW_COLL_SHIFT].payload_bytes;
    double attention = b->attention_flops[GW_BLOCK_FORWARD]; /* GW_READ_ATTENTION */
    return attention / (b->flops[GW_BLOCK_FORWARD] - attention);
}

static gw_block_layout layout_of(gw_explain *e, gw_explain_read read) {
    bool ring = read == GW_READ_CP_FORWARD;
    bool whole = read == GW_READ_RECOMPUTE || read == GW_READ_ATTENTION;
    gw_block_layout l = {.tp = ring || whole ? 1 : (int64_t)var(e, "t", 1),
                         .cp = ring ? (int64_t)var(e, "C", 1) : 1,
                         .cp_mode = GW_CP_RING};
    l.sequence_parallel = l.tp > 1 && (read == GW_READ_SP_TOKEN || read == GW_READ_SAVED);
    return l;
}

static void read_block(gw_explain *e, gw_explain_result *r, const char *sets) {
    gw_block b, again;
    gw_diags dg;
    gw_block_layout l = layout_of(e, r->line->read);
    gw_diags_init(&dg);
    gw_status st = e->compiler.block(e->compiler.user, e->preset, sets, &l, &b, &dg);
    bool twice = r->line->read == GW_READ_RECOMPUTE;
    if (st == GW_OK && twice) {
        const char *full =
            gw_arena_printf(&e->mem, "%s%srecompute.policy=full", sets, *sets ? " " : "");
        st = e->compiler.block(e->compiler.user, e->preset, full, &l, &again, &dg);
    }
    if (st != GW_OK)
        none(e, r, &dg);
    else if (twice)
        r->program = (again.flops[0] + again.flops[1]) / (b.flops[0] + b.flops[1]);
    else
        r->program = of_block(e, &b, r->line->read);
    r->compiled = st == GW_OK;
    r->from = gw_arena_printf(&e->mem, "one block of %s, tp %lld%s, cp %lld%s%s", e->preset,
                              (long long)l.tp, l.sequence_parallel ? " with sequence_parallel" : "",
                              (long long)l.cp, *sets ? ", " : "", sets);
    gw_diags_release(&dg);
}

/* ---- schedules ---- */

static double of_times(const gw_sched_times *t, int ranks, gw_explain_read read) {
    if (read == GW_READ_BUBBLE) return t->bubble_compute;
    if (read == GW_READ_BUBBLE_STEP) return t->bubble_step;
    return (double)t->micro_held[read == GW_READ_HELD_LAST ? ranks - 1 : 0];
}

static void read_schedule(gw_explain *e, gw_explain_result *r) {
    bool bubble = r->line->read == GW_READ_BUBBLE || r->line->read == GW_READ_BUBBLE_STEP;
    double p = var(e, "p", 1), m = var(e, "m", 1), v = bubble ? var(e, "v", 1) : 1;
    const char *name = r->line->read == GW_READ_HELD_GPIPE ? "gpipe"
                       : v > 1                             ? "interleaved"
                                                           : "1f1b";
    gw_schedule s;
    gw_sched_times t;
    gw_diags dg;
    if (p > GW_SCHED_MAX_RANKS || v > GW_SCHED_MAX_STAGES || m > GW_SCHED_MAX_MICRO) {
        r->missing = "schedules are not made as large";
        return;
    }
    gw_diags_init(&dg);
    gw_sched_request q = {.ranks = (int)p, .virtual_stages = (int)v, .micro_batches = (int32_t)m};
    if (gw_schedule_make(name, &q, &e->mem, &s, &dg) == GW_OK) {
        double *one = gw_arena_new(&e->mem, double, s.stages);
        for (int i = 0; i < s.stages; i++) one[i] = 1;
        gw_sched_time(&s, &(gw_sched_costs){.forward = one, .input = one, .weight = one}, 1,
                      &e->mem, &t);
        r->program = of_times(&t, s.ranks, r->line->read);
        r->compiled = true;
        r->from = gw_arena_printf(&e->mem, "gradwright schedule %s -n %.0f -m %.0f%s", name, p, m,
                                  v > 1 ? gw_arena_printf(&e->mem, " -v %.0f", v) : "");
    } else {
        none(e, r, &dg);
    }
    gw_diags_release(&dg);
}

void gw_explain_read_program(gw_explain *e, gw_explain_result *r) {
    gw_explain_read read = r->line->read;
    if (read >= GW_READ_BUBBLE) {
        read_schedule(e, r);
        return;
    }
    if (!e->compiler.ledger || !e->compiler.block) {
        r->missing = "nothing compiles here";
        return;
    }
    const char *sets = sets_of(e, r->line);
    bool block = (read >= GW_READ_TP_TOKEN && read <= GW_READ_CP_FORWARD) ||
                 read == GW_READ_RECOMPUTE || read == GW_READ_ATTENTION;
    r->from = command_of(e, sets);
    if (block)
        read_block(e, r, sets);
    else
        read_step(e, r, sets);
}
