// SPDX-License-Identifier: Apache-2.0
// Who writes what: laws of the plan over random placements, and its cost at large sizes.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/rng.h"   /* gw_rng_u64 */
#include "ckpt/plan.h"
#include "harness.h"
#include "ir/mesh.h" /* gw_mesh_add */

static int64_t below(gw_rng_key key, uint64_t *at, int64_t n) {
    return (int64_t)(gw_rng_u64(key, (*at)++) % (uint64_t)n);
}

static void cut(gw_type *t, int dim, const gw_mesh *m, const char *group) {
    uint32_t axes = gw_mesh_group(m, group);
    for (int i = 0; i < m->naxes; i++)
        if (axes >> i & 1u) t->dims[dim].axes[t->dims[dim].naxes++] = (uint8_t)i;
}

/* A tensor of 2 dimensions cut over tp on one of them, flat over dp or not. */
static gw_type random_type(gw_rng_key key, uint64_t *at, const gw_mesh *m, int64_t most) {
    gw_type t = gw_type_scalar(below(key, at, 2) ? GW_F32 : GW_BF16);
    gw_type_add(&t, "f", 1 + below(key, at, most));
    gw_type_add(&t, "d", 1 + below(key, at, most));
    int64_t how = below(key, at, 3);
    if (how < 2) cut(&t, (int)how, m, "tp");
    if (below(key, at, 2)) {
        t.flat = 1;
        t.flat_axes = gw_mesh_group(m, "dp");
    }
    return t;
}

static gw_mesh mesh_of(int32_t pp, int32_t dp, int32_t tp) {
    gw_mesh m = {0};
    (void)gw_mesh_add(&m, "pp", pp);
    (void)gw_mesh_add(&m, "dp", dp);
    (void)gw_mesh_add(&m, "tp", tp);
    return m;
}

/* The global index of element `i` of a piece. */
static int64_t global_of(const gw_piece *p, int64_t i, const gw_type *t) {
    int64_t in = p->first + i, index[GW_MAX_DIMS], g = 0;
    for (int d = p->box.ndim; d-- > 0;) {
        index[d] = in % p->box.size[d] + p->box.start[d];
        in /= p->box.size[d];
    }
    for (int d = 0; d < p->box.ndim; d++) g = g * t->dims[d].size + index[d];
    return g;
}

/* Does `rank` hold element `global` at `local` of its buffer? */
static bool holds(const gw_type *t, const gw_mesh *m, int64_t rank, int64_t global, int64_t local) {
    gw_held w;
    int64_t g, l, n;
    gw_held_begin(&w, t, m, rank);
    while (gw_held_next(&w, &g, &l, &n))
        if (global >= g && global < g + n) return l + (global - g) == local;
    return false;
}

TEST(every_element_is_written_once_by_a_rank_that_holds_it) {
    gw_rng_key key = gw_rng_key_named(5, "plans");
    uint64_t at = 0;
    for (int round = 0; round < 300; round++) {
        static const int32_t sizes[] = {1, 2, 3, 4};
        gw_mesh m = mesh_of(sizes[below(key, &at, 2)], sizes[below(key, &at, 4)],
                            sizes[below(key, &at, 4)]);
        int64_t stages = gw_mesh_size(&m, gw_mesh_group(&m, "pp"));
        gw_type t[6];
        gw_ckpt_item items[6];
        for (int i = 0; i < 6; i++) {
            t[i] = random_type(key, &at, &m, 12);
            items[i] = (gw_ckpt_item){.type = &t[i], .home = (int)below(key, &at, stages)};
        }
        gw_ckpt_plan *p = gw_ckpt_plan_new(items, 6, &m);
        for (int i = 0; i < 6; i++) {
            int seen[144] = {0};
            const gw_ckpt_shares *s = gw_ckpt_plan_of(p, i);
            for (int k = 0; k < s->n; k++)
                for (int64_t e = 0; e < s->items[k].piece.count; e++) {
                    int64_t g = global_of(&s->items[k].piece, e, &t[i]);
                    seen[g]++;
                    CHECK(holds(&t[i], &m, s->items[k].rank, g, s->items[k].local + e));
                }
            for (int64_t e = 0; e < gw_type_elems(&t[i]); e++) CHECK_EQ(seen[e], 1);
        }
        gw_ckpt_plan_free(p);
    }
}

/* Of what all of dp hold each writes its share, within a share of the mean. */
TEST(replicas_share_the_work) {
    gw_mesh m = mesh_of(1, 8, 2);
    gw_type t[40];
    gw_ckpt_item items[40];
    for (int i = 0; i < 40; i++) {
        t[i] = gw_type_scalar(GW_F32);
        gw_type_add(&t[i], "f", i % 4 ? 4096 : 256); /* large ones and norms */
        gw_type_add(&t[i], "d", i % 4 ? 1024 : 64);
        cut(&t[i], 0, &m, "tp");
        items[i] = (gw_ckpt_item){.type = &t[i]};
    }
    gw_arena mem = {0};
    gw_ckpt_plan *p = gw_ckpt_plan_new(items, 40, &m);
    gw_ckpt_size z = gw_ckpt_plan_size(p, &mem);
    CHECK_EQ(z.files, 16);
    CHECK_EQ(z.bytes, 30 * INT64_C(4096) * 1024 * 4 + 10 * 256 * 64 * 4);
    CHECK(z.largest - z.smallest <= GW_CKPT_SHARE);
    gw_ckpt_plan_free(p);
    gw_arena_release(&mem);
}

/* Every fourth of the small ones is large: by number all of these would go to one rank. */
TEST(small_tensors_take_turns_by_bytes) {
    gw_mesh m = mesh_of(1, 4, 1);
    gw_type t[32];
    gw_ckpt_item items[32];
    for (int i = 0; i < 32; i++) {
        t[i] = gw_type_scalar(GW_F32);
        gw_type_add(&t[i], "f", i % 4 ? 100 + i : 200000 + i);
        items[i] = (gw_ckpt_item){.type = &t[i]};
    }
    gw_arena mem = {0};
    gw_ckpt_plan *p = gw_ckpt_plan_new(items, 32, &m);
    gw_ckpt_size z = gw_ckpt_plan_size(p, &mem);
    CHECK_EQ(z.files, 4);
    CHECK_MSG(z.largest - z.smallest < 10000, "%lld and %lld bytes", (long long)z.largest,
              (long long)z.smallest);
    gw_ckpt_plan_free(p);
    gw_arena_release(&mem);
}

/* 1,000 tensors, each in 1,024 pieces of its own size: no two lists are alike. */
TEST(a_million_chunks_are_planned_in_time_near_linear) {
    enum { TENSORS = 1000 };
    gw_mesh m = mesh_of(1, 128, 8);
    gw_type *t = calloc(TENSORS, sizeof *t);
    gw_ckpt_item *items = calloc(TENSORS, sizeof *items);
    for (int i = 0; i < TENSORS; i++) {
        t[i] = gw_type_scalar(GW_F32);
        gw_type_add(&t[i], "f", 4096);
        gw_type_add(&t[i], "d", 1024 + i);
        cut(&t[i], 0, &m, "tp");
        t[i].flat = 1;
        t[i].flat_axes = gw_mesh_group(&m, "dp");
        items[i] = (gw_ckpt_item){.type = &t[i]};
    }
    gw_arena mem = {0};
    double seconds[2];
    for (int half = 0; half < 2; half++) {
        gw_ckpt_plan *p = gw_ckpt_plan_new(items, half ? TENSORS : TENSORS / 2, &m);
        int64_t before = gw_clock_ns();
        gw_ckpt_size z = gw_ckpt_plan_size(p, &mem);
        seconds[half] = (double)(gw_clock_ns() - before) * 1e-9;
        CHECK_EQ(z.chunks, (half ? TENSORS : TENSORS / 2) * INT64_C(1024));
        gw_ckpt_plan_free(p);
    }
    test_note("half %.3f s, all %.3f s", seconds[0], seconds[1]);
    gw_arena_release(&mem);
    free(t);
    free(items);
}
