// SPDX-License-Identifier: Apache-2.0
// Faults of placement, each planted in a copy of a model's builder that cuts its block by hand, and
// each named before anything runs. The block is Megatron's: a column-parallel product into heads,
// attention, a row-parallel product out of them, and the weight gradients of a step.
#include <string.h>

#include "../harness.h"
#include "ir/opdef.h"
#include "ir/verify.h"
#include "ops/ops.h"

typedef enum fault {
    SOUND,
    PARTIAL_PASSES_FOR_WHOLE,    /* the row-parallel product is not reduced */
    PARTIAL_USED_AS_WHOLE,       /* its partial sum goes straight into a norm */
    REPLICATED_WEIGHT,           /* a norm's gain, of cut tokens: its gradient is not reduced */
    SHARD_WISE_OP_ON_REPLICATED, /* a product of whole operands, said to be partial */
    CUT_HEAD,                    /* the components of a head over ranks */
    CUT_ON_ONE_SIDE,             /* weights cut where activations are whole */
    WHOLE_ADDED_TO_PARTIAL,      /* a bias on every rank added to partial sums */
} fault;

typedef struct block {
    gw_graph g;
    gw_builder b;
    gw_diags dg;
    uint32_t tp;
} block;

static gw_vid leaf(block *k, gw_role role, const char *dims, const char *cut, const char *name) {
    gw_type t = gw_type_make(GW_F32, dims);
    if (cut) gw_dim_cut(&t.dims[gw_type_find(&t, cut)], k->tp, &k->g.mesh);
    return gw_graph_leaf(&k->g, role, GW_CAUSE_ACTIVATIONS, GW_RATE_MB, t, name);
}

static void place(block *k, gw_vid v, const char *cut, bool partial) {
    gw_type *t = &k->g.values.items[v].type;
    if (cut) gw_dim_cut(&t->dims[gw_type_find(t, cut)], k->tp, &k->g.mesh);
    t->psum = partial ? k->tp : 0;
}

static gw_vid reduced(block *k, gw_vid v) {
    gw_vid y = gw_build1(&k->b, "all_reduce", v);
    k->g.ops.items[k->g.values.items[y].def].stream = GW_STREAM_TP;
    return y;
}

static void attention(block *k, fault f, gw_vid x) {
    gw_vid wq = leaf(k, GW_ROLE_PARAM, "h4 k8 d16", f == CUT_HEAD ? "k" : "h", "q");
    gw_vid wo = leaf(k, GW_ROLE_PARAM, "d16 h4 k8", f == CUT_HEAD ? NULL : "h", "o");
    snprintf(k->b.scope, sizeof k->b.scope, "layer 0/attn");
    gw_vid q = gw_build1(&k->b, "matmul", x, wq), more[1];
    place(k, q, f == CUT_HEAD ? "k" : f == CUT_ON_ONE_SIDE ? NULL : "h", false);
    gw_vid o = gw_build(&k->b, "attention", (gw_vid[]){q, q, q}, 3, NULL, more);
    place(k, o, f == CUT_HEAD ? "k" : "h", false);
    place(k, more[0], f == CUT_HEAD ? NULL : "h", false);
    gw_vid z = gw_build1(&k->b, "matmul", o, wo);
    place(k, z, NULL, f != PARTIAL_PASSES_FOR_WHOLE);
    if (f == WHOLE_ADDED_TO_PARTIAL) {
        z = gw_build1(&k->b, "add", z, x);
        place(k, z, NULL, true);
    }
    gw_vid gain = leaf(k, GW_ROLE_PARAM, "d16", NULL, "norm");
    if (f != PARTIAL_USED_AS_WHOLE && f != PARTIAL_PASSES_FOR_WHOLE) z = reduced(k, z);
    (void)gw_build1(&k->b, "rmsnorm", z, gain);
}

static void gradients(block *k, fault f) {
    gw_vid dy = leaf(k, GW_ROLE_INPUT, "b2 s8 d16", "s", "dy"), more[1];
    gw_vid x = leaf(k, GW_ROLE_INPUT, "b2 s8 d16", "s", "x of the norm");
    gw_vid gain = leaf(k, GW_ROLE_PARAM, "d16", NULL, "gain");
    gw_vid rstd = leaf(k, GW_ROLE_INPUT, "b2 s8", "s", "rstd");
    snprintf(k->b.scope, sizeof k->b.scope, "layer 0/norm");
    gw_vid dx = gw_build(&k->b, "rmsnorm_grad", (gw_vid[]){dy, x, gain, rstd}, 4, NULL, more);
    place(k, dx, "s", false);
    place(k, more[0], NULL, f != REPLICATED_WEIGHT);
    gw_vid whole = leaf(k, GW_ROLE_INPUT, "b2 s8 d16", NULL, "whole");
    gw_vid w = leaf(k, GW_ROLE_PARAM, "f12 d16", NULL, "w");
    snprintf(k->b.scope, sizeof k->b.scope, "layer 0/mlp");
    gw_vid u = gw_build1(&k->b, "matmul", whole, w);
    place(k, u, NULL, f == SHARD_WISE_OP_ON_REPLICATED);
}

static gw_status judge(fault f, char why[256]) {
    block k = {0};
    gw_diags_init(&k.dg);
    gw_graph_init(&k.g, gw_ops_table());
    k.tp = gw_mesh_add(&k.g.mesh, "tp", 2);
    gw_builder_init(&k.b, &k.g, &k.dg);
    k.b.rate = GW_RATE_MB;
    attention(&k, f, leaf(&k, GW_ROLE_INPUT, "b2 s8 d16", NULL, "x"));
    gradients(&k, f);
    CHECK_OK(k.b.status, &k.dg);
    gw_status st = gw_graph_verify_placement(&k.g, &k.dg);
    snprintf(why, 256, "%s", st == GW_OK ? "" : k.dg.first->message);
    gw_graph_release(&k.g);
    gw_diags_release(&k.dg);
    return st;
}

TEST(each_planted_fault_of_placement_is_named) {
    static const struct {
        fault f;
        const char *op, *what;
    } faults[] = {
        {PARTIAL_PASSES_FOR_WHOLE, "matmul of layer 0/attn",
         "a partial sum and passes for a whole"},
        {PARTIAL_USED_AS_WHOLE, "rmsnorm of layer 0/attn", "used as if whole"},
        {REPLICATED_WEIGHT, "rmsnorm_grad of layer 0/norm", "a partial sum and passes for a whole"},
        {SHARD_WISE_OP_ON_REPLICATED, "matmul of layer 0/mlp",
         "whole and passes for a partial sum"},
        {CUT_HEAD, "attention", "a head is cut"},
        {CUT_ON_ONE_SIDE, "matmul of layer 0/attn", "h is cut in the result and not"},
        {WHOLE_ADDED_TO_PARTIAL, "add of layer 0/attn", "added to a value that is whole"},
    };
    char why[256];
    CHECK_EQ(judge(SOUND, why), GW_OK);
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        CHECK_EQ(judge(faults[i].f, why), GW_ERR_FORMAT);
        CHECK_MSG(strstr(why, faults[i].op) && strstr(why, faults[i].what), "fault %zu: %s", i,
                  why);
        CHECK_MSG(faults[i].f == CUT_HEAD || strstr(why, "tp.0"), "fault %zu names no sub-axis: %s",
                  i, why);
    }
}
