// SPDX-License-Identifier: Apache-2.0
// Does each op of a placed graph compute on its rank a part of what it computes on the whole?
//
// From the factor signature alone, and apart from whatever placed the graph: inputs that share a
// factor are cut alike along it; an output that has the factor is cut so too; a factor that is cut
// and in no output makes the outputs partial sums on these sub-axes, no more and no less; a partial
// input is reduced first unless the op is linear in it; what must be whole (the components of a
// head, a row of a norm) is not cut. Ops of trait GW_OP_OWN_PLACEMENT answer for themselves in
// their verify hooks, conversions likewise: there input and output differ on purpose.
#include <stdio.h>
#include <string.h>

#include "ir/opdef.h"
#include "ir/verify.h"

typedef struct looker {
    const gw_graph *g;
    const gw_op *o;
    const gw_opdef *def;
    gw_signature sig;
    gw_diags *dg;
} looker;

static gw_status wrong(const looker *l, uint32_t axes, const char *what, const char *which) {
    const gw_mesh *m = &l->g->mesh;
    char names[96] = "";
    size_t at = 0;
    for (int a = 0; a < m->naxes && at < sizeof names - 24; a++)
        if (axes >> a & 1u)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   m->axes[a].name);
    return GW_FAIL(l->dg, GW_ERR_FORMAT, "verify-placement", "%s of %s: %s %s (%s)", l->def->name,
                   gw_graph_str(l->g, l->o->scope), which, what, names[0] ? names : "no sub-axis");
}

static bool counts(const looker *l, int k) {
    return gw_op_in(l->g, l->o, k) != GW_NONE && !gw_op_accumulates(l->g, l->o, k);
}

/* The cut of factor f that all inputs agree on; NULL: in no input. */
static gw_status cut_of(const looker *l, const gw_factor *f, const gw_dim **cut) {
    *cut = NULL;
    for (int k = 0; k < (int)l->o->nin && k < GW_MAX_IN; k++) {
        if (!counts(l, k) || f->in_dim[k] < 0) continue;
        const gw_dim *d = &gw_type_of(l->g, gw_op_in(l->g, l->o, k))->dims[f->in_dim[k]];
        if (*cut && !gw_dim_same_cut(*cut, d))
            return wrong(l, gw_dim_axes(d) ^ gw_dim_axes(*cut),
                         "is cut in one operand and not in another", f->name);
        *cut = d;
    }
    if (*cut && (*cut)->naxes && f->kind == GW_FACTOR_WHOLE)
        return wrong(l, gw_dim_axes(*cut), "must be whole on a rank and is cut", f->name);
    return GW_OK;
}

static bool has_partner(const looker *l, const gw_factor *f, int k) {
    for (int i = 0; i < l->sig.nfactors; i++) {
        const gw_factor *p = &l->sig.factors[i];
        if (gw_factor_partners(p, f) && p->out_dim[k] >= 0) return true;
    }
    return false;
}

/* Sub-axes over which the op itself sums. A partial input on these alone (a bias that one rank
 * holds) joins that sum. */
static gw_status summed(const looker *l, uint32_t *mask) {
    *mask = 0;
    for (int i = 0; i < l->sig.nfactors; i++) {
        const gw_factor *f = &l->sig.factors[i];
        const gw_dim *cut;
        GW_TRY(cut_of(l, f, &cut));
        if (cut && f->out_dim[0] < 0 && !has_partner(l, f, 0)) *mask |= gw_dim_axes(cut);
    }
    return GW_OK;
}

/* The partial axes that inputs bring along. */
static gw_status partial_in(const looker *l, uint32_t *travels) {
    bool linear = l->def->traits & GW_OP_LINEAR, first = true;
    uint32_t mask = 0, joins = 0;
    int partial = 0;
    GW_TRY(summed(l, &joins));
    for (int k = 0; k < (int)l->o->nin; k++) {
        if (!counts(l, k)) continue;
        const gw_type *t = gw_type_of(l->g, gw_op_in(l->g, l->o, k));
        if (t->pmax) return wrong(l, t->pmax, "is used as if whole", "a partial maximum");
        if (linear) {
            if (!first && t->psum != mask)
                return wrong(l, t->psum ^ mask, "is added to a value that is whole there",
                             "a partial sum");
            mask = t->psum;
            first = false;
            continue;
        }
        if (!(t->psum & ~joins)) continue;
        if (++partial > 1 || k >= GW_MAX_IN || !((uint32_t)l->def->linear_in >> k & 1u))
            return wrong(l, t->psum, "is used as if whole", "a partial sum");
        mask = t->psum;
    }
    *travels = mask;
    return GW_OK;
}

static gw_status look_at_output(const looker *l, int k, uint32_t travels) {
    const gw_type *t = gw_type_of(l->g, gw_op_out(l->g, l->o, k));
    uint32_t psum = travels;
    for (int i = 0; i < l->sig.nfactors; i++) {
        const gw_factor *f = &l->sig.factors[i];
        const gw_dim *cut;
        GW_TRY(cut_of(l, f, &cut));
        if (!cut) continue;
        if (f->out_dim[k] >= 0) {
            const gw_dim *d = &t->dims[f->out_dim[k]];
            if (!gw_dim_same_cut(cut, d))
                return wrong(l, gw_dim_axes(cut) ^ gw_dim_axes(d),
                             "is cut in the result and not in the operands, or the other way round",
                             f->name);
        } else if (!has_partner(l, f, k)) {
            psum |= gw_dim_axes(cut);
        }
    }
    if (psum & ~t->psum)
        return wrong(l, psum & ~t->psum, "is a partial sum and passes for a whole one",
                     "the result");
    if (t->psum & ~psum)
        return wrong(l, t->psum & ~psum, "is whole and passes for a partial sum", "the result");
    return GW_OK;
}

static bool any_flat(const gw_graph *g, const gw_op *o) {
    for (int k = 0; k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE && gw_type_of(g, gw_op_in(g, o, k))->flat) return true;
    return false;
}

gw_status gw_graph_verify_placement(const gw_graph *g, gw_diags *dg) {
    if (g->mesh.naxes == 0) return GW_OK;
    for (int64_t i = 0; i < g->ops.count; i++) {
        looker l = {.g = g, .o = &g->ops.items[i], .dg = dg};
        l.def = gw_op_def(g, l.o);
        if (l.def->traits & GW_OP_OWN_PLACEMENT) {
            gw_status st = l.def->verify(g, l.o, dg);
            if (st == GW_OK) continue;
            gw_diag_frame(dg, "looking at %s", gw_graph_str(g, l.o->scope));
            return st;
        }
        bool moves = l.def->traits & (GW_OP_COLLECTIVE | GW_OP_VIEW);
        if (moves || l.o->stream != GW_STREAM_COMPUTE || any_flat(g, l.o)) continue;
        l.def->sign(g, l.o, &l.sig);
        uint32_t travels = 0;
        GW_TRY(partial_in(&l, &travels));
        for (int k = 0; k < (int)l.o->nout; k++) GW_TRY(look_at_output(&l, k, travels));
    }
    return GW_OK;
}
