// SPDX-License-Identifier: Apache-2.0
// Place on random programs: lives are checked here by hand, pair by pair, besides the verifier's
// sweep.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h"  /* gw_rng_u32 */
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/ops.h"   /* gw_ops_table */
#include "pass/pass.h" /* gw_pass_place */

typedef struct maker {
    gw_rng_key key;
    uint64_t counter;
    gw_graph g;
    gw_builder b;
    GW_VEC(gw_vid) pool; /* values that may be read */
} maker;

static int64_t draw(maker *m, int64_t below) {
    return (int64_t)(gw_rng_u32(m->key, m->counter++) % (uint32_t)below);
}

/* Sizes over three orders of magnitude; one letter a size, so that only equal ones meet. */
static gw_type random_type(maker *m) {
    static const int64_t sizes[] = {1, 16, 17, 100, 1000, 4096, 20000};
    int64_t i = draw(m, GW_COUNT(sizes));
    gw_type t = gw_type_scalar(draw(m, 4) ? GW_F32 : GW_BF16);
    char name[2] = {(char)('a' + i), 0};
    gw_type_add(&t, name, sizes[i]);
    return t;
}

static gw_vid pick_like(maker *m, gw_vid x) {
    for (int tries = 0; tries < 20; tries++) {
        gw_vid y = m->pool.items[draw(m, m->pool.count)];
        const gw_type *a = gw_type_of(&m->g, x), *b = gw_type_of(&m->g, y);
        if (a->dtype == b->dtype && gw_type_same_dims(a, b)) return y;
    }
    return x;
}

static void random_op(maker *m) {
    /* Recent values are read more often, as in real programs. */
    int64_t n = m->pool.count, back = GW_MIN(n, 1 + draw(m, draw(m, 3) ? 6 : n));
    gw_vid x = m->pool.items[n - back];
    gw_vid y = GW_NONE;
    switch (draw(m, 4)) {
    case 0: y = gw_build1(&m->b, "add", x, pick_like(m, x)); break;
    case 1: y = gw_build1(&m->b, "gelu", x); break;
    case 2: y = gw_build1(&m->b, "swiglu", x, pick_like(m, x)); break;
    default: {
        gw_attr to = {.i = gw_type_of(&m->g, x)->dtype == GW_F32 ? GW_BF16 : GW_F32};
        y = gw_build(&m->b, "cast", &x, 1, &to, NULL);
    }
    }
    if (y != GW_NONE) gw_vec_push(&m->pool, y);
    if (y != GW_NONE && draw(m, 12) == 0) {
        char name[24];
        snprintf(name, sizeof name, "result %u", y);
        m->g.values.items[y].name = gw_graph_intern(&m->g, name);
    }
}

static void random_leaf(maker *m, gw_role role, gw_rate rate) {
    char name[24];
    snprintf(name, sizeof name, "leaf %lld", (long long)m->g.values.count);
    gw_cause cause = role == GW_ROLE_PARAM ? GW_CAUSE_WEIGHTS : GW_CAUSE_DATA;
    gw_vec_push(&m->pool, gw_graph_leaf(&m->g, role, cause, rate, random_type(m), name));
}

/* Step ops, loop ops, and (reading only what step ops made) step ops again. */
static void random_program(maker *m, int seed, gw_diags *dg) {
    memset(m, 0, sizeof *m);
    m->key = gw_rng_key_named((uint64_t)seed, "place");
    gw_graph_init(&m->g, gw_ops_table());
    gw_builder_init(&m->b, &m->g, dg);
    m->g.micro_batches = 1 + (int)draw(m, 3);
    for (int i = 0; i < 6; i++)
        random_leaf(m, draw(m, 2) ? GW_ROLE_PARAM : GW_ROLE_INPUT, GW_RATE_STEP);
    int64_t pre = draw(m, 30), loop = 1 + draw(m, 80), post = draw(m, 20);
    m->b.phase = GW_PHASE_O;
    m->b.rate = GW_RATE_STEP;
    for (int64_t i = 0; i < pre; i++) random_op(m);
    int64_t step_values = m->pool.count;
    m->b.phase = GW_PHASE_F;
    m->b.rate = GW_RATE_MB;
    for (int i = 0; i < 4; i++) random_leaf(m, GW_ROLE_INPUT, GW_RATE_MB);
    for (int64_t i = 0; i < loop; i++) random_op(m);
    m->pool.count = step_values;
    m->b.phase = GW_PHASE_O;
    m->b.rate = GW_RATE_STEP;
    for (int64_t i = 0; i < post; i++) random_op(m);
    CHECK_EQ(m->b.status, GW_OK);
}

static int64_t random_workspace(const gw_graph *g, const gw_op *o, const void *user) {
    (void)user;
    uint32_t n = gw_op_out(g, o, 0) * 2654435761u;
    return n % 3 ? 0 : (int64_t)(n >> 8) % 50000;
}

/* Bytes that stand at every op, by going through all values for each op: slow and plain. */
static void check_by_hand(const gw_graph *g, const gw_place_report *r) {
    gw_arena mem = {0};
    gw_lives l;
    gw_lives_of(&l, g, &mem);
    int64_t most = 0;
    for (int64_t i = 0; i <= g->ops.count; i++) {
        int64_t live = 0;
        for (int64_t v = 0; v < g->values.count; v++)
            if (l.bytes[v] && (l.persistent[v] || (l.first[v] <= i && i <= l.last[v])))
                live += l.bytes[v];
        most = GW_MAX(most, live);
    }
    CHECK_EQ(most, r->lower_bound_bytes);
    for (int64_t v = 0; v < g->values.count; v++) {
        int64_t at = g->values.items[v].offset;
        if (l.bytes[v] == 0) continue;
        CHECK(at >= 0 && at % 64 == 0);
        CHECK(at + l.bytes[v] <= r->arena_bytes[GW_MEM_DEVICE]);
        for (int64_t w = 0; w < v; w++) {
            int64_t to = g->values.items[w].offset;
            bool together = l.persistent[v] || l.persistent[w] ||
                            (l.first[v] <= l.last[w] && l.first[w] <= l.last[v]);
            bool meet = at < to + l.bytes[w] && to < at + l.bytes[v];
            CHECK_MSG(!l.bytes[w] || !together || !meet, "%%%lld and %%%lld share bytes",
                      (long long)v, (long long)w);
        }
    }
    gw_arena_release(&mem);
}

/* No op writes over what it or anything later still reads: an interpreter of ownership. Each byte
 * range belongs to the value last written there; a read must find its own value (or the one tied to
 * it). */
static void check_reads_find_their_value(const gw_graph *g) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int k = 0; k < (int)o->nin; k++) {
            gw_vid in = gw_op_in(g, o, k);
            if (in == GW_NONE) continue;
            int64_t at = g->values.items[in].offset;
            int64_t end = at + gw_type_local_bytes(gw_type_of(g, in), &g->mesh, 0);
            int64_t from =
                g->values.items[in].def == GW_NONE ? 0 : (int64_t)g->values.items[in].def + 1;
            for (int64_t j = from; j < i; j++) {
                const gw_op *w = &g->ops.items[j];
                if (g->values.items[in].def == GW_NONE && g->values.items[in].rate == GW_RATE_MB &&
                    w->rate == GW_RATE_STEP)
                    continue; /* written by the host after the step ops before the loop */
                for (int n = 0; n < (int)w->nout; n++) {
                    gw_vid out = gw_op_out(g, w, n);
                    int64_t a = g->values.items[out].offset;
                    int64_t b = a + gw_type_local_bytes(gw_type_of(g, out), &g->mesh, 0);
                    CHECK_MSG(b <= at || a >= end,
                              "op %lld reads %%%u, over which op %lld wrote %%%u", (long long)i, in,
                              (long long)j, out);
                }
            }
        }
    }
}

static double place_random(int seed, bool workspace) {
    gw_diags dg;
    gw_diags_init(&dg);
    maker m;
    random_program(&m, seed, &dg);
    gw_compile_opts opts = {.train = true, .micro_batches = m.g.micro_batches};
    if (workspace) opts.workspace = random_workspace;
    gw_compile_report r = {0};
    gw_graph placed;
    CHECK_OK(gw_graph_verify(&m.g, &dg), &dg);
    CHECK_OK(gw_pass_place(&placed, &m.g, &opts, &r, &dg), &dg);
    CHECK_OK(gw_graph_verify(&placed, &dg), &dg);
    CHECK(r.place.arena_bytes[GW_MEM_DEVICE] >= r.place.lower_bound_bytes);
    check_by_hand(&placed, &r.place);
    check_reads_find_their_value(&placed);
    double over =
        (double)r.place.arena_bytes[GW_MEM_DEVICE] / (double)GW_MAX(r.place.lower_bound_bytes, 1) -
        1;
    gw_graph_release(&placed);
    gw_graph_release(&m.g);
    gw_vec_release(&m.pool);
    gw_diags_release(&dg);
    return over;
}

static void place_many(int from, int to) {
    double sum = 0, most = 0;
    for (int seed = from; seed < to; seed++) {
        double over = place_random(seed, seed % 2);
        sum += over;
        most = fmax(most, over);
    }
    test_note("over the bound: mean %.2f %%, most %.2f %%", 100 * sum / (to - from), 100 * most);
    CHECK_MSG(sum / (to - from) < 0.05, "%.2f %%", 100 * sum / (to - from));
}

TEST(random_programs_do_not_overlap) { place_many(0, 300); }
TEST_LONG(many_random_programs_do_not_overlap) { place_many(1000, 20000); }
