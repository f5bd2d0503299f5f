// SPDX-License-Identifier: Apache-2.0
// The secondary shard of ZeRO++ (hpZ, Wang et al. 2023, section 4.2): backward gathers within a
// group of `s` ranks and moves nothing outside it. Its part of each weight is 1/s, its traffic
// (s-1)/s of the weights, and the function is that of plain ZeRO-3.
#include <string.h>

#include "../harness.h"
#include "programs.h"

static void lay_out(program *p, int dp, int replicate, int secondary) {
    gw_mesh *m = &p->mesh;
    memset(m, 0, sizeof *m);
    gw_mesh_add(m, "dp_replicate", replicate);
    gw_mesh_add(m, "dp", dp / replicate);
    p->build.batch *= dp;
    p->opts.layout.zero = 3;
    p->opts.layout.secondary = secondary;
    p->opts.layout.bucket_bytes = 1 << 14;
    p->opts.layout.first_bucket_bytes = 1 << 10;
    p->opts.verify = true;
}

static bool is_backward(const gw_op *o) {
    return o->phase == GW_PHASE_B || o->phase == GW_PHASE_W || o->phase == GW_PHASE_BW;
}

/* The slice that gather o gathers again, or NULL. */
static const gw_op *part_behind(const gw_graph *g, const gw_op *o) {
    gw_oid d = g->values.items[gw_op_in(g, o, 0)].def;
    return d != GW_NONE && is_op(g, &g->ops.items[d], "slice") ? &g->ops.items[d] : NULL;
}

static uint32_t last_axes(const gw_mesh *m, int n) {
    uint32_t mask = 0;
    for (int a = m->naxes - n; a < m->naxes; a++) mask |= 1u << a;
    return mask;
}

typedef struct sums {
    int64_t outer, inner; /* bytes x (n-1) of gathers over all and over the inner sub-axes */
    int64_t kept;         /* of secondary parts */
    int64_t second;       /* gathers in backward of a secondary part */
} sums;

static sums look_at(const gw_graph *g, int all, int secondary, uint32_t inner) {
    sums r = {0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (is_op(g, o, "slice") && o->rate == GW_RATE_MB)
            r.kept += local_bytes(g, gw_op_out(g, o, 0));
        if (!is_op(g, o, "all_gather")) continue;
        const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0));
        int64_t bytes = gw_type_elems(x) * gw_dtype_bits((gw_dtype)x->dtype) / 8;
        if (!part_behind(g, o)) {
            r.outer += bytes * (all - 1);
            continue;
        }
        CHECK(is_backward(o));
        CHECK_EQ(x->flat_axes, inner);
        r.inner += bytes * (secondary - 1);
        r.second++;
    }
    return r;
}

/* Weights that both forward and backward read: all but the embedding, whose look-up backward reads
 * no weight, and the head, one op of both. Biases and the position table are not read by backward.
 */
static int64_t twice_bytes(const program *p, int secondary, int64_t *part_bytes) {
    int64_t sum = 0;
    *part_bytes = 0;
    for (int i = 0; i < p->nparams; i++) {
        if (strstr(p->params[i].name, "embed") || strstr(p->params[i].name, "head")) continue;
        int64_t e = gw_type_elems(&p->params[i].type);
        sum += 4 * e;
        *part_bytes += 4 * ((e + secondary - 1) / secondary);
    }
    return sum;
}

TEST(backward_gathers_within_the_group_alone) {
    const struct {
        int dp, replicate, secondary, naxes;
    } layouts[] = {{4, 1, 2, 1}, {8, 1, 2, 1}, {8, 1, 4, 2}, {12, 1, 4, 2}, {8, 2, 2, 1}};
    for (size_t l = 0; l < GW_COUNT(layouts); l++)
        for (int prefetch = 0; prefetch <= 3; prefetch++) {
            gw_model m = tiny_model(GW_FAMILY_LLAMA, 3);
            m.tie = false;
            program p, plain;
            program_init(&p, &m, 1, 12);
            program_init(&plain, &m, 1, 12);
            lay_out(&p, layouts[l].dp, layouts[l].replicate, layouts[l].secondary);
            lay_out(&plain, layouts[l].dp, layouts[l].replicate, 0);
            p.opts.layout.prefetch = plain.opts.layout.prefetch = prefetch;
            gw_graph g, h;
            program_make(&p, NULL, &g, NULL);
            program_make(&plain, NULL, &h, NULL);
            int n = layouts[l].dp / layouts[l].replicate, s = layouts[l].secondary;
            sums have = look_at(&g, n, s, last_axes(&p.mesh, layouts[l].naxes));
            sums before = look_at(&h, n, 1, 0);
            int64_t parts = 0, twice = twice_bytes(&p, s, &parts);
            CHECK_EQ(have.inner, twice * (s - 1));
            CHECK_EQ(before.outer - have.outer, twice * (n - 1));
            CHECK_EQ(before.second, 0);
            CHECK_EQ(have.kept, parts); /* 1 / secondary of them, and of nothing else */
            gw_graph_release(&g);
            gw_graph_release(&h);
            program_release(&p);
            program_release(&plain);
        }
}

/* Recomputed ops read what forward read: weights that backward itself never reads (biases) are
 * gathered from the secondary part too, and nothing that forward gathered is read. */
TEST(recomputed_ops_gather_within_the_group_too) {
    const gw_family families[] = {GW_FAMILY_GPT2, GW_FAMILY_QWEN3};
    for (size_t f = 0; f < GW_COUNT(families); f++)
        for (int mixed = 0; mixed <= 1; mixed++) {
            gw_model m = tiny_model(families[f], 3);
            program p;
            program_init(&p, &m, 1, 12);
            lay_out(&p, 8, 1, 2);
            p.opts.micro_batches = 2;
            p.opts.recompute.kind = GW_RECOMPUTE_FULL;
            if (mixed) p.opts.compute = GW_BF16;
            gw_graph g;
            program_make(&p, NULL, &g, NULL);
            int biases = 0;
            for (int64_t i = 0; i < g.ops.count; i++) {
                const gw_op *o = &g.ops.items[i];
                if (!is_backward(o)) continue;
                for (int k = 0; k < (int)o->nin; k++) {
                    gw_vid v = gw_op_in(&g, o, k);
                    gw_oid d = v == GW_NONE ? GW_NONE : g.values.items[v].def;
                    if (d == GW_NONE || !is_op(&g, &g.ops.items[d], "all_gather")) continue;
                    const gw_op *from = &g.ops.items[d];
                    CHECK(is_backward(from));
                    if (gw_scope_layer(gw_graph_str(&g, o->scope)) == 0) continue;
                    CHECK_MSG(part_behind(&g, from), "%s of %s crosses the outer axes",
                              op_name(&g, o), gw_graph_str(&g, o->scope));
                    biases += (o->flags & GW_OP_RECOMPUTED) && k == 2 && is_op(&g, o, "matmul");
                }
            }
            CHECK(families[f] != GW_FAMILY_GPT2 || biases > 0);
            gw_graph_release(&g);
            program_release(&p);
        }
}

/* The part holds the dtype that was gathered, from forward to backward; no backward gather stands
 * before the last op of forward, however far gathers are fetched ahead. */
TEST(parts_live_from_forward_to_backward) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 4);
    program p;
    program_init(&p, &m, 1, 12);
    lay_out(&p, 4, 1, 2);
    p.opts.compute = GW_BF16;
    p.opts.layout.prefetch = 50;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    int64_t last_forward = 0, first_gather = g.ops.count;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (o->phase == GW_PHASE_F && !is_op(&g, o, "rope_table")) last_forward = i;
        if (is_op(&g, o, "all_gather") && is_backward(o)) first_gather = GW_MIN(first_gather, i);
        if (!is_op(&g, o, "slice")) continue;
        CHECK_EQ(gw_type_of(&g, gw_op_out(&g, o, 0))->dtype, GW_BF16);
        CHECK_EQ(g.values.items[gw_op_out(&g, o, 0)].tie, GW_NONE);
    }
    CHECK_MSG(first_gather > last_forward, "a gather of backward at %lld, forward ends at %lld",
              (long long)first_gather, (long long)last_forward);
    gw_graph_release(&g);
    program_release(&p);
}

/* Over all ranks the secondary part is the primary one: nothing is added. */
TEST(a_secondary_shard_of_all_ranks_is_plain_zero_3) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    gw_graph g[2];
    for (int k = 0; k < 2; k++) {
        program p;
        program_init(&p, &m, 1, 12);
        lay_out(&p, 4, 1, k ? 4 : 0);
        program_make(&p, NULL, &g[k], NULL);
        program_release(&p);
    }
    char why[200] = "";
    CHECK_MSG(gw_graph_equal(&g[0], &g[1], why, sizeof why), "%s", why);
    gw_graph_release(&g[0]);
    gw_graph_release(&g[1]);
}

static void refused(int zero, int dp, int secondary, bool keep, const char *text) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
    program p;
    program_init(&p, &m, 1, 12);
    lay_out(&p, dp, 1, secondary);
    p.opts.layout.zero = zero;
    p.opts.layout.keep_gathered = keep;
    gw_graph g;
    CHECK_FAILS(program_try(&p, NULL, &g, NULL), &p.dg, text);
    program_release(&p);
}

TEST(groups_that_are_not_there_are_refused) {
    refused(3, 8, 3, false, "possible: 2, 4, 8");
    refused(3, 6, 3, false, "possible: 2, 6"); /* a node's ranks are the minor ones: 3 x 2 */
    refused(3, 8, 1, false, "possible: 2, 4, 8");
    refused(3, 4, 8, false, "possible: 2, 4");
    refused(3, 1, 2, false, "none on one rank");
    refused(2, 8, 2, false, "layout.zero");
    refused(3, 8, 2, true, "reshard_after_forward");
}
