// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation of the forward graph.
//
// The ops are walked backwards. An op whose outputs carry gradients calls its own vjp, which
// appends ops that give gradients of its inputs; input gradients (phase B) and weight gradients
// (phase W) are separate ops from birth, so that a pipeline schedule may delay the latter. Several
// gradients of one activation are added as they come. Gradients of one parameter are not added
// here: each is left as a value of role `grad` that bears the parameter's name, and the step pass
// chains them through one accumulator.
//
// The walk starts at the losses: ops of the kind LOSS whose result has a name ("loss", and the
// auxiliary ones of experts). The vjp of each knows the seed of backward (an input of the op: loss
// scale over the number of labels, or of units, known before the step), so it may fuse forward and
// backward; the value it offers in place of the loss takes over the name, and the forward op dies.
//
// Only values that depend on a parameter get gradients; ops of the kind NODIFF stop the walk.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef struct ad {
    gw_graph *g;
    gw_builder b;
    int64_t nforward_values; /* values that stood before the walk */
    bool *need;              /* [nforward_values]: depends on a parameter */
    gw_vid *grad;            /* [nforward_values]: gradient so far */
    const gw_compile_opts *opts;
} ad;

static void find_needs(ad *a) {
    const gw_graph *g = a->g;
    for (int64_t v = 0; v < g->values.count; v++)
        a->need[v] = g->values.items[v].role == GW_ROLE_PARAM && g->values.items[v].def == GW_NONE;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_def(g, o)->traits & GW_OP_NODIFF) continue;
        bool any = false;
        for (int k = 0; k < (int)o->nin; k++)
            any |= gw_op_in(g, o, k) != GW_NONE && a->need[gw_op_in(g, o, k)];
        for (int k = 0; any && k < (int)o->nout; k++) a->need[gw_op_out(g, o, k)] = true;
    }
}

/* Takes a gradient of forward value v. */
static void add_grad(ad *a, gw_vid v, gw_vid d) {
    gw_value *x = &a->g->values.items[v];
    if (x->role == GW_ROLE_PARAM && x->def == GW_NONE) {
        gw_sid name = x->name;
        gw_value *dv = &a->g->values.items[d];
        if (dv->role == GW_ROLE_GRAD) gw_panic("one value is the gradient of two parameters");
        dv->role = GW_ROLE_GRAD;
        dv->cause = GW_CAUSE_GRADIENTS;
        dv->name = name;
        return;
    }
    if (a->grad[v] == GW_NONE) {
        a->grad[v] = d;
        return;
    }
    a->b.phase = GW_PHASE_B;
    a->grad[v] = gw_build1(&a->b, "add", a->grad[v], d);
}

static void replace_outputs(ad *a, const gw_vid *out, const gw_vid *replace, int nout) {
    for (int k = 0; k < nout; k++) {
        if (replace[k] == GW_NONE) continue;
        gw_value *old = &a->g->values.items[out[k]];
        a->g->values.items[replace[k]].name = old->name;
        old->name = 0;
    }
}

static gw_status differentiate(ad *a, gw_oid o, gw_diags *dg) {
    gw_graph *g = a->g;
    gw_op op = g->ops.items[o];
    const gw_opdef *def = gw_op_def(g, &op);
    bool is_loss = (def->traits & GW_OP_LOSS) && g->values.items[gw_op_out(g, &op, 0)].name != 0;
    gw_vid *in = gw_mem_alloc(sizeof(gw_vid) * ((size_t)op.nin + 1));
    gw_vid *din = gw_mem_alloc(sizeof(gw_vid) * ((size_t)op.nin + 1));
    bool *want = gw_mem_zalloc((size_t)op.nin + 1);
    gw_vid out[GW_MAX_OUT], dout[GW_MAX_OUT], replace[GW_MAX_OUT];
    gw_attr attrs[GW_MAX_ATTRS];
    bool any_want = false, any_dout = is_loss;
    for (int k = 0; k < (int)op.nin; k++) {
        in[k] = gw_op_in(g, &op, k);
        din[k] = GW_NONE;
        want[k] = in[k] != GW_NONE && a->need[in[k]];
        any_want |= want[k];
    }
    for (int k = 0; k < (int)op.nout; k++) {
        out[k] = gw_op_out(g, &op, k);
        dout[k] = a->grad[out[k]];
        replace[k] = GW_NONE;
        any_dout |= dout[k] != GW_NONE;
    }
    for (int k = 0; k < def->nattrs; k++) attrs[k] = gw_op_attr(g, &op, k);
    if (any_want && any_dout) {
        snprintf(a->b.scope, sizeof a->b.scope, "%s", gw_graph_str(g, op.scope));
        a->b.phase = GW_PHASE_B;
        a->b.rate = (gw_rate)op.rate;
        gw_vjp v = {.b = &a->b,
                    .g = g,
                    .op = o,
                    .in = in,
                    .out = out,
                    .nin = op.nin,
                    .nout = op.nout,
                    .attrs = attrs,
                    .dout = dout,
                    .want = want,
                    .din = din,
                    .replace = replace,
                    .grad_dtype = a->opts->gradients};
        def->vjp(&v);
        for (int k = 0; k < (int)op.nin && a->b.status == GW_OK; k++)
            if (want[k] && din[k] != GW_NONE) add_grad(a, in[k], din[k]);
        replace_outputs(a, out, replace, op.nout);
    }
    gw_mem_free(in);
    gw_mem_free(din);
    gw_mem_free(want);
    if (a->b.status != GW_OK) gw_diag_frame(dg, "differentiating %s", def->name);
    return a->b.status;
}

static gw_status check_all_have_grads(const gw_graph *g, gw_diags *dg) {
    gw_smap have = {0};
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].role == GW_ROLE_GRAD)
            gw_smap_put_c(&have, gw_graph_str(g, g->values.items[v].name), 1);
    gw_status st = GW_OK;
    for (int64_t v = 0; v < g->values.count && st == GW_OK; v++) {
        const gw_value *x = &g->values.items[v];
        uint32_t one;
        if (x->role != GW_ROLE_PARAM || x->def != GW_NONE) continue;
        if (!gw_smap_find_c(&have, gw_graph_str(g, x->name), &one))
            st = GW_FAIL(dg, GW_ERR_CONFIG, "no-gradient",
                         "parameter '%s' does not influence the loss", gw_graph_str(g, x->name));
    }
    gw_smap_release(&have);
    return st;
}

gw_status gw_pass_autodiff(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                           gw_compile_report *report, gw_diags *dg) {
    (void)report;
    if (!opts->train) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_graph work;
    gw_graph_dup(&work, src);
    gw_arena mem = {0};
    ad a = {.g = &work, .nforward_values = work.values.count, .opts = opts};
    a.need = gw_arena_new(&mem, bool, a.nforward_values);
    a.grad = gw_arena_new(&mem, gw_vid, a.nforward_values);
    for (int64_t v = 0; v < a.nforward_values; v++) a.grad[v] = GW_NONE;
    gw_builder_init(&a.b, &work, dg);
    find_needs(&a);
    gw_status st = GW_OK;
    for (gw_oid o = (gw_oid)src->ops.count; o-- > 0 && st == GW_OK;) st = differentiate(&a, o, dg);
    if (st == GW_OK) gw_graph_prune(dst, &work, NULL, NULL);
    gw_arena_release(&mem);
    gw_graph_release(&work);
    if (st != GW_OK) return st;
    st = check_all_have_grads(dst, dg);
    if (st != GW_OK) gw_graph_release(dst);
    return st;
}
