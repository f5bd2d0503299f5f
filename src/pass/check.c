// SPDX-License-Identifier: Apache-2.0
// The last pass: is the placed program sound? It changes nothing.
//
// The verifier (ir/verify.h) proves definitions, types, ties, rates and that no two values alive at
// once share bytes. What only holds of a finished program is checked here: every value that an op
// touches has bytes (or belongs to another program), inside the arena; each state ends in the bytes
// it began in.
#include "ir/verify.h" /* gw_graph_verify */
#include "pass/pass.h"

static gw_status check_value(const gw_graph *g, gw_vid v, bool train, gw_diags *dg) {
    const gw_value *x = &g->values.items[v];
    const gw_value *root = &g->values.items[gw_value_root(g, v)];
    if (!train && root->role == GW_ROLE_PARAM) return GW_OK;
    int64_t bytes = gw_type_local_bytes(&x->type, &g->mesh, 0);
    if (x->offset < 0 || x->offset > g->arena_bytes[x->mem] - bytes)
        return GW_FAIL(dg, GW_ERR_FORMAT, "check-arena", "%%%u has no bytes inside the %s arena", v,
                       gw_mem_name((gw_mem)x->mem));
    return GW_OK;
}

gw_status gw_pass_check(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)report;
    GW_TRY(gw_graph_verify(src, dg));
    GW_TRY(gw_graph_verify_placement(src, dg));
    for (int64_t i = 0; i < src->ops.count; i++) {
        const gw_op *o = &src->ops.items[i];
        for (int k = 0; k < (int)o->nin; k++)
            if (gw_op_in(src, o, k) != GW_NONE)
                GW_TRY(check_value(src, gw_op_in(src, o, k), opts->train, dg));
        for (int k = 0; k < (int)o->nout; k++)
            GW_TRY(check_value(src, gw_op_out(src, o, k), opts->train, dg));
        if (o->work != GW_NONE) GW_TRY(check_value(src, o->work, opts->train, dg));
    }
    for (int64_t i = 0; i < src->states.count; i++) {
        const gw_state *s = &src->states.items[i];
        if (src->values.items[s->start].offset != src->values.items[s->end].offset)
            return GW_FAIL(dg, GW_ERR_FORMAT, "check-state", "state %%%u ends in other bytes",
                           s->start);
    }
    gw_graph_dup(dst, src);
    return GW_OK;
}
