// SPDX-License-Identifier: Apache-2.0
// Data parallelism and ZeRO as placements. State bytes a rank are the table of ZeRO (Rajbhandari et
// al. 2020, section 5): in mixed precision 2 + 2 + 12 a parameter, of which stage 1 divides the 12
// by the ranks, stage 2 also the gradients' 2, stage 3 all. Bytes on the wire are theirs too
// (section 7): 2 (n-1)/n of the gradients for stages 0 to 2, half as much again for stage 3.
#include <string.h>

#include "../harness.h"
#include "programs.h"

static void lay_out(program *p, int zero, int dp, int replicate) {
    gw_mesh *m = &p->mesh;
    memset(m, 0, sizeof *m);
    gw_mesh_add(m, "dp_replicate", replicate);
    gw_mesh_add(m, "dp", dp / replicate);
    p->build.batch *= dp;
    p->opts.layout.zero = zero;
    p->opts.layout.bucket_bytes = 1 << 14;
    p->opts.layout.first_bucket_bytes = 1 << 10;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The table, tensor by tensor: a part is the ceiling, of the rank that holds most. */
static state_bytes table(const program *p, int zero, int n, bool mixed) {
    state_bytes b = {0};
    int64_t w = mixed ? 2 : 4, g = mixed ? 2 : 4, o = mixed ? 12 : 8;
    for (int i = 0; i < p->nparams; i++) {
        int64_t e = gw_type_elems(&p->params[i].type), part = ceil_div(e, n);
        b.weights += w * (zero >= 3 ? part : e);
        b.gradients += g * (zero >= 2 ? part : e);
        b.optimizer += o * (zero >= 1 ? part : e);
    }
    return b;
}

TEST(state_bytes_are_those_of_the_zero_table) {
    for (int mixed = 0; mixed <= 1; mixed++)
        for (int zero = 0; zero <= 3; zero++)
            for (int n = 1; n <= 6; n++) {
                gw_model m = tiny_model(zero % 2 ? GW_FAMILY_GPT2 : GW_FAMILY_QWEN3, 2);
                program p;
                program_init(&p, &m, 2, 12);
                lay_out(&p, zero, n, 1);
                if (mixed) p.opts.compute = p.opts.gradients = GW_BF16;
                gw_graph g;
                program_make(&p, NULL, &g, NULL);
                state_bytes have = count_state_bytes(&g), want = table(&p, zero, n, mixed);
                CHECK_EQ(have.weights, want.weights);
                CHECK_EQ(have.gradients, want.gradients);
                CHECK_EQ(have.optimizer, want.optimizer);
                gw_graph_release(&g);
                program_release(&p);
            }
}

/* Theory's bytes of gradients and weights that a rank sends in a step, times the ranks. */
static int64_t payload_times_n(const gw_graph *g, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_COLLECTIVE)) continue;
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, 0));
        if (t->ndim == 0) continue; /* loss and norm */
        int64_t bytes = gw_type_elems(t) * gw_dtype_bits((gw_dtype)t->dtype) / 8;
        int64_t times = o->rate == GW_RATE_MB ? g->micro_batches : 1;
        sum += times * bytes * (n - 1) * (is_op(g, o, "all_reduce") ? 2 : 1);
    }
    return sum;
}

TEST(wire_bytes_are_those_of_theory) {
    enum { N = 4 };
    for (int each = 0; each <= 1; each++)
        for (int zero = 0; zero <= 3; zero++)
            for (int k = 1; k <= 3; k += 2) {
                gw_model m = tiny_model(GW_FAMILY_LLAMA, 3);
                program p;
                program_init(&p, &m, 2, 12);
                lay_out(&p, zero, N, 1);
                p.opts.micro_batches = k;
                p.opts.layout.reduce_each = each;
                gw_graph g;
                program_make(&p, NULL, &g, NULL);
                int64_t bytes = 4 * gw_model_count(&m), reduces = each ? k : 1;
                int64_t once = (N - 1) * bytes;
                int64_t want = 2 * once;
                if (zero == 0) want = 2 * once * reduces;
                if (zero == 1) want = each && k > 1 ? 2 * once * k + once : 2 * once;
                if (zero == 2) want = once * reduces + once;
                if (zero == 3) want = once * reduces + 2 * once * k;
                int64_t have = payload_times_n(&g, N);
                if (zero == 3) { /* the head is one op of forward and backward: gathered once */
                    int64_t head = 4 * (N - 1) * m.vocab * m.hidden * k;
                    int64_t embedding =
                        m.tie ? 0 : head; /* backward of a look-up reads no weight */
                    want -= head + embedding;
                }
                CHECK_EQ(have, want);
                gw_graph_release(&g);
                program_release(&p);
            }
}

TEST(hybrid_shards_within_and_copies_across) {
    for (int zero = 1; zero <= 3; zero++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
        program p;
        program_init(&p, &m, 2, 12);
        lay_out(&p, zero, 12, 3);
        gw_graph g;
        program_make(&p, NULL, &g, NULL);
        state_bytes have = count_state_bytes(&g), want = table(&p, zero, 4, false);
        CHECK_EQ(have.optimizer, want.optimizer);
        CHECK_EQ(have.weights, want.weights);
        CHECK_EQ(have.gradients, want.gradients);
        int copies = 0;
        for (int64_t i = 0; i < g.ops.count; i++) {
            const gw_op *o = &g.ops.items[i];
            if (!is_op(&g, o, "all_reduce")) continue;
            const gw_type *t = gw_type_of(&g, gw_op_in(&g, o, 0));
            if (t->ndim == 0) continue;
            CHECK_EQ(t->psum, gw_mesh_group(&g.mesh, "dp_replicate"));
            copies += t->flat;
        }
        CHECK_EQ(copies, p.nparams);
        gw_graph_release(&g);
        program_release(&p);
    }
}

TEST(reductions_stand_in_backward_and_run_once) {
    gw_model m = tiny_model(GW_FAMILY_GPT2, 3);
    program p;
    program_init(&p, &m, 1, 12);
    lay_out(&p, 0, 2, 1);
    p.opts.micro_batches = 3;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    gw_oid first, end;
    gw_graph_loop(&g, &first, &end);
    int inside = 0, all = 0;
    for (gw_oid i = 0; i < (gw_oid)g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (!is_op(&g, o, "all_reduce")) continue;
        CHECK_EQ(o->rate, GW_RATE_STEP);
        inside += i > first && i < end;
        all++;
    }
    CHECK(all == p.nparams + 1); /* and the loss */
    CHECK_MSG(inside > all / 2, "%d of %d reductions can overlap backward", inside, all);
    gw_graph_release(&g);
    program_release(&p);
}

TEST(buckets_fill_in_order_and_split_no_tensor) {
    for (int zero = 0; zero <= 2; zero++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 4);
        program p;
        program_init(&p, &m, 2, 12);
        lay_out(&p, zero, 2, 1);
        gw_graph g;
        program_make(&p, NULL, &g, NULL);
        int64_t nbuckets = 0, fused = 0;
        for (gw_oid i = 0; i < (gw_oid)g.ops.count; i++) {
            int64_t a, b, bytes = 0;
            gw_graph_bucket(&g, i, &a, &b);
            if (a != i || a == b) continue;
            nbuckets++;
            fused += b - a + 1;
            for (int64_t k = a; k < b; k++) /* without the last it is not full */
                bytes += gw_type_elems(gw_type_of(&g, gw_op_in(&g, &g.ops.items[k], 0))) * 4;
            CHECK_MSG(bytes < p.opts.layout.bucket_bytes,
                      "a bucket was full before its last tensor");
        }
        CHECK(nbuckets >= 3 && fused > 2 * nbuckets);
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* Whatever is recomputed: backward reads no whole weight that forward gathered. */
TEST(nothing_gathered_survives_from_forward_to_backward) {
    const gw_recompute_kind kinds[] = {GW_RECOMPUTE_NONE, GW_RECOMPUTE_SELECTIVE,
                                       GW_RECOMPUTE_FULL};
    for (size_t r = 0; r < GW_COUNT(kinds); r++)
        for (int prefetch = 0; prefetch <= 2; prefetch++) {
            gw_model m = tiny_model(GW_FAMILY_QWEN3, 3);
            program p;
            program_init(&p, &m, 2, 12);
            lay_out(&p, 3, 4, 1);
            p.opts.recompute.kind = kinds[r];
            p.opts.layout.prefetch = prefetch;
            gw_graph g;
            program_make(&p, NULL, &g, NULL);
            for (int64_t i = 0; i < g.ops.count; i++) {
                const gw_op *o = &g.ops.items[i];
                if (o->phase == GW_PHASE_F || o->phase == GW_PHASE_O) continue;
                for (int k = 0; k < (int)o->nin; k++) {
                    gw_vid v = gw_op_in(&g, o, k);
                    gw_oid d = v == GW_NONE ? GW_NONE : g.values.items[v].def;
                    if (d == GW_NONE || !is_op(&g, &g.ops.items[d], "all_gather")) continue;
                    CHECK(g.ops.items[d].phase != GW_PHASE_F);
                }
            }
            gw_graph_release(&g);
            program_release(&p);
        }
}

TEST(every_layout_compiles_forward_too) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (int zero = 0; zero <= 3; zero++)
            for (int mixed = 0; mixed <= 1; mixed++) {
                gw_model m = tiny_model((gw_family)f, 2);
                program p;
                program_init(&p, &m, 2, 12);
                lay_out(&p, zero, 4, 2);
                if (mixed) p.opts.compute = GW_BF16;
                p.opts.train = false;
                p.build.training = false;
                gw_graph g;
                program_make(&p, NULL, &g, NULL);
                for (int64_t v = 0; v < g.values.count; v++)
                    if (g.values.items[v].name && g.values.items[v].def != GW_NONE)
                        CHECK_EQ(gw_type_of(&g, (gw_vid)v)->psum, 0);
                gw_graph_release(&g);
                program_release(&p);
            }
}

TEST(what_cannot_be_laid_out_is_refused) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
    program p;
    program_init(&p, &m, 3, 12);
    gw_mesh_add(&p.mesh, "dp", 2);
    gw_graph g;
    CHECK_EQ(program_try(&p, NULL, &g, NULL), GW_ERR_CONFIG); /* 3 samples over 2 ranks */
    memset(&p.mesh, 0, sizeof p.mesh);
    gw_mesh_add(&p.mesh, "ep", 3);
    CHECK_EQ(program_try(&p, NULL, &g, NULL), GW_ERR_UNSUPPORTED);
    program_release(&p);
}
