// SPDX-License-Identifier: Apache-2.0
// The rule by signature: what an op's factors say of its inputs' cuts, and of its outputs'.
//
// Each factor of the op gets one cut, and each input is converted to have it:
//   - a weight's cut stands; a gradient's output is cut as its home is;
//   - otherwise a cut operand decides over a whole one, which is sliced;
//   - a factor that must be whole is gathered;
//   - where one sub-axis would cut two factors, the weight's stays, and of others tokens (s) yield:
//     so a column-parallel product gathers the sequence, and its gradients do so again.
// A cut factor that is in an output cuts it there; one that is in none makes the outputs partial.
//
// Partial inputs. Sums of partial values with one mask stay partial. In a scalar sum the whole ones
// join by standing on one rank; in a larger one the partial ones are reduced to the placement of
// the rest. In backward a partial sum travels through an op that is linear in that input. Anything
// else reduces it first: to a cut of s where sequence parallelism wants one, to the whole
// otherwise.
//
// What is added into an accumulator that has its placement is what that is. A tied embedding cut
// along d: the head makes its gradient whole, so the lookup's, of cut tokens, must not be partial.
#include <stdio.h>
#include <string.h>

#include "base/hash.h"    /* gw_hash64 */
#include "base/panic.h"   /* GW_ASSERT */
#include "pass/convert.h" /* gw_convert */
#include "pass/shard.h"

gw_status gw_shard_refuse(const gw_sharder *s, const char *what, gw_diags *dg) {
    const gw_op *o = s->op.op;
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "shard-unsupported", "%s of %s: %s",
                   gw_op_def(s->src, o)->name, gw_graph_str(s->src, o->scope), what);
}

/* ---- conversions ---- */

static bool same_placement(const gw_type *a, const gw_type *b) {
    return a->psum == b->psum && a->pmax == b->pmax && gw_type_same_cuts(a, b);
}

static int time_of(const gw_sharder *s) {
    if (s->b.rate == GW_RATE_STEP) return GW_SHARD_FRAME;
    if (s->b.phase == GW_PHASE_F || s->opts->layout.keep_gathered) return GW_SHARD_FORWARD;
    return GW_SHARD_BACKWARD;
}

static uint64_t key_of(gw_vid v, int time, const gw_type *to) {
    uint64_t h = gw_hash64(&v, sizeof v, (uint64_t)time);
    h = gw_hash64(&to->psum, sizeof to->psum, h);
    for (int i = 0; i < to->ndim; i++) h = gw_hash64(to->dims[i].axes, to->dims[i].naxes, h);
    return h;
}

/* `to` may have been written for another value: only cuts are taken, of dimensions by name. */
static gw_type target_of(const gw_sharder *s, gw_vid v, const gw_type *to) {
    gw_type t = *gw_type_of(s->dst, v);
    t.psum = to->psum;
    t.pmax = to->pmax;
    for (int i = 0; i < t.ndim; i++) {
        int j = gw_type_find(to, t.dims[i].name);
        if (j >= 0) gw_dim_set_cut(&t.dims[i], &to->dims[j]);
    }
    return t;
}

/* A sum that was reduced once is not a partial one any more for whoever reads it later, backward
 * included. */
static void keep_reduced(gw_sharder *s, gw_vid v, gw_vid y) {
    const gw_type *from = gw_type_of(s->dst, v), *to = gw_type_of(s->dst, y);
    if (!from->psum || to->psum) return;
    for (int k = 0; k < s->op.nin; k++)
        if (gw_op_in(s->src, s->op.op, k) != GW_NONE && s->map[gw_op_in(s->src, s->op.op, k)] == v)
            s->map[gw_op_in(s->src, s->op.op, k)] = y;
}

gw_vid gw_shard_convert(gw_sharding *op, gw_vid v, const gw_type *to) {
    gw_sharder *s = (gw_sharder *)(void *)op;
    if (v == GW_NONE || s->b.status != GW_OK) return v;
    gw_type t = target_of(s, v, to);
    if (same_placement(gw_type_of(s->dst, v), &t)) return v;
    int time = time_of(s);
    uint64_t key = key_of(v, time, &t);
    uint32_t first = GW_NONE;
    bool known = gw_imap_find(&s->index, key, &first);
    for (uint32_t i = first; known && i != GW_NONE; i = s->converted.items[i].next) {
        const gw_converted *c = &s->converted.items[i];
        if (c->from == v && c->time == time && same_placement(gw_type_of(s->dst, c->to), &t))
            return c->to;
    }
    gw_vid y = gw_convert(&s->b, v, &t);
    if (s->b.status != GW_OK) return y;
    keep_reduced(s, v, y);
    gw_imap_put(&s->index, key, (uint32_t)s->converted.count);
    gw_vec_push(
        &s->converted,
        ((gw_converted){.from = v, .to = y, .time = time, .next = known ? first : GW_NONE}));
    return y;
}

/* ---- cuts of factors ---- */

enum { BY_TOKENS, BY_OPERAND, BY_WEIGHT }; /* who decides; the least yields */

typedef struct plan {
    gw_signature sig;
    gw_dim cut[GW_MAX_FACTORS];
    int by[GW_MAX_FACTORS];
    uint32_t travels; /* partial axes that pass through to the outputs */
    int through;      /* the input that they come in by, -1: all or none */
} plan;

static bool reads(const gw_sharder *s, int k) {
    return s->op.in[k] != GW_NONE && !gw_op_accumulates(s->src, s->op.op, k);
}

static void decide(const gw_sharder *s, plan *p, int f) {
    const gw_factor *x = &p->sig.factors[f];
    gw_dim *cut = &p->cut[f];
    memset(cut, 0, sizeof *cut);
    p->by[f] = BY_TOKENS;
    if (x->kind == GW_FACTOR_WHOLE) return;
    int most = -1;
    for (int k = 0; k < s->op.nin && k < GW_MAX_IN; k++) {
        if (!reads(s, k) || x->in_dim[k] < 0) continue;
        const gw_dim *d = &gw_type_of(s->dst, s->op.in[k])->dims[x->in_dim[k]];
        int by = s->weight[gw_op_in(s->src, s->op.op, k)] ? BY_WEIGHT
                 : strcmp(x->name, "s") == 0              ? BY_TOKENS
                                                          : BY_OPERAND;
        if (d->naxes == 0) continue;
        if (by < most || (by == most && d->naxes <= cut->naxes)) continue;
        *cut = *d;
        p->by[f] = most = by;
    }
    for (int k = 0; k < s->op.nout; k++) {
        const gw_type *want = s->op.want[k];
        if (!want || x->out_dim[k] < 0 || want->flat) continue;
        const gw_dim *d = &want->dims[x->out_dim[k]];
        *cut = *d;
        p->by[f] = BY_WEIGHT;
    }
}

/* Where an operand holds one element for a block of the factor's (scales), a cut must not go
 * through a block: the factor is whole then. */
static void keep_blocks(const gw_sharder *s, plan *p, int f) {
    const gw_factor *x = &p->sig.factors[f];
    bool blocked = false;
    for (int k = 0; k < s->op.nin && k < GW_MAX_IN; k++)
        blocked = blocked || (reads(s, k) && x->in_dim[k] >= 0 &&
                              gw_type_of(s->dst, s->op.in[k])->dims[x->in_dim[k]].size != x->size);
    int64_t parts = gw_mesh_size(&s->src->mesh, gw_dim_axes(&p->cut[f]));
    if (!x->block || !blocked || parts == 1) return;
    if (x->size % (parts * x->block) == 0) return;
    memset(&p->cut[f], 0, sizeof p->cut[f]);
    p->by[f] = BY_WEIGHT;
}

static void settle_conflicts(plan *p) {
    for (int f = 0; f < p->sig.nfactors; f++)
        for (int h = 0; h < f; h++) {
            if (gw_factor_partners(&p->sig.factors[f], &p->sig.factors[h])) continue;
            uint32_t both = gw_dim_axes(&p->cut[f]) & gw_dim_axes(&p->cut[h]);
            if (!both) continue;
            int loser = p->by[f] < p->by[h] ? f : h;
            gw_dim_uncut(&p->cut[loser], both);
        }
}

static uint32_t axes_of(const plan *p) {
    uint32_t mask = 0;
    for (int f = 0; f < p->sig.nfactors; f++) mask |= gw_dim_axes(&p->cut[f]);
    return mask;
}

/* ---- partial inputs ---- */

static uint32_t psum_of(const gw_sharder *s, int k) {
    return reads(s, k) ? gw_type_of(s->dst, s->op.in[k])->psum : 0;
}

/* Do all inputs of a linear op have one mask? Then it travels; a scalar sum takes the union. */
static bool linear_travels(const gw_sharder *s, plan *p) {
    uint32_t all = 0;
    bool same = true, first = true;
    uint32_t mask = 0;
    for (int k = 0; k < s->op.nin; k++) {
        if (!reads(s, k)) continue;
        uint32_t m = psum_of(s, k);
        same = same && (first || m == mask);
        mask = m;
        first = false;
        all |= m;
    }
    bool scalar = gw_type_of(s->src, gw_op_out(s->src, s->op.op, 0))->ndim == 0;
    if (!same && !scalar) return false;
    p->travels = all;
    return true;
}

/* The placement that output k must have because what it is added into has one, or NULL. */
static const gw_type *settled_of(const gw_sharder *s, int k) {
    int in = gw_op_accumulator(s->src, s->op.op, k);
    gw_vid acc = in < 0 ? GW_NONE : s->op.in[in];
    if (acc == GW_NONE || ((int64_t)acc < s->settled.count && !s->settled.items[acc])) return NULL;
    return gw_type_of(s->dst, acc);
}

/* Sub-axes over which some output may not be a partial sum. */
static uint32_t must_not_sum(const gw_sharder *s) {
    uint32_t mask = 0;
    for (int k = 0; k < s->op.nout; k++) {
        const gw_type *acc = settled_of(s, k);
        if (acc) mask |= ~acc->psum;
    }
    return mask;
}

/* The one partial input of an op that is linear in it, in backward; axes that cut weights do not
 * let it pass, others' cuts give way. */
static void one_travels(const gw_sharder *s, plan *p) {
    const gw_opdef *def = gw_op_def(s->src, s->op.op);
    int who = -1;
    for (int k = 0; k < s->op.nin; k++) {
        if (!psum_of(s, k)) continue;
        if (who >= 0) return;
        who = k;
    }
    if (who < 0 || s->b.phase == GW_PHASE_F || s->b.rate == GW_RATE_STEP) return;
    if (who >= GW_MAX_IN || !((uint32_t)def->linear_in >> who & 1u)) return;
    uint32_t mask = psum_of(s, who);
    if (mask & must_not_sum(s)) return;
    for (int f = 0; f < p->sig.nfactors; f++)
        if ((gw_dim_axes(&p->cut[f]) & mask) && p->by[f] == BY_WEIGHT) return;
    for (int f = 0; f < p->sig.nfactors; f++) gw_dim_uncut(&p->cut[f], mask);
    p->travels = mask;
    p->through = who;
}

/* What is reduced under sequence parallelism is left cut along s, if it can be. */
static void scatter_tokens(const gw_sharder *s, plan *p) {
    uint32_t tp = s->axes.tp;
    if (!s->axes.sequence_parallel || s->b.rate == GW_RATE_STEP || (axes_of(p) & tp)) return;
    for (int f = 0; f < p->sig.nfactors; f++) {
        const gw_factor *x = &p->sig.factors[f];
        if (strcmp(x->name, "s") != 0 || x->kind == GW_FACTOR_WHOLE) continue;
        for (int k = 0; k < s->op.nin && k < GW_MAX_IN; k++)
            if (x->in_dim[k] >= 0 && (psum_of(s, k) & tp) == tp && tp) {
                gw_dim_cut(&p->cut[f], tp, &s->src->mesh);
                return;
            }
    }
}

/* Is factor f in an output, by itself or with a partner? Else the op sums over it. */
static bool is_kept(const plan *p, int f) {
    bool kept = p->sig.factors[f].out_dim[0] >= 0;
    for (int h = 0; h < p->sig.nfactors; h++)
        kept = kept || (p->sig.factors[h].out_dim[0] >= 0 &&
                        gw_factor_partners(&p->sig.factors[f], &p->sig.factors[h]));
    return kept;
}

/* Sub-axes over which the op itself sums: of cut factors that are in no output. */
static uint32_t summed(const plan *p) {
    uint32_t mask = 0;
    for (int f = 0; f < p->sig.nfactors; f++)
        if (!is_kept(p, f)) mask |= gw_dim_axes(&p->cut[f]);
    return mask;
}

/* Operands are whole where a sum over their parts could not be added to what is there. */
static void keep_whole(const gw_sharder *s, plan *p) {
    uint32_t axes = must_not_sum(s);
    for (int f = 0; axes && f < p->sig.nfactors; f++)
        if (!is_kept(p, f)) gw_dim_uncut(&p->cut[f], axes);
}

static void plan_op(gw_sharder *s, plan *p) {
    const gw_opdef *def = gw_op_def(s->src, s->op.op);
    p->travels = 0;
    p->through = -1;
    def->sign(s->src, s->op.op, &p->sig);
    for (int f = 0; f < p->sig.nfactors; f++) {
        decide(s, p, f);
        keep_blocks(s, p, f);
    }
    settle_conflicts(p);
    bool all = (def->traits & GW_OP_LINEAR) && linear_travels(s, p);
    if (!all) one_travels(s, p);
    if (p->travels == 0) scatter_tokens(s, p);
    keep_whole(s, p);
}

/* ---- inputs and outputs ---- */

static gw_vid input_for(gw_sharder *s, const plan *p, int k) {
    gw_vid v = s->op.in[k];
    gw_type t = *gw_type_of(s->dst, v);
    for (int f = 0; f < p->sig.nfactors; f++) {
        int i = k < GW_MAX_IN ? p->sig.factors[f].in_dim[k] : -1;
        if (i >= 0) gw_dim_set_cut(&t.dims[i], &p->cut[f]);
    }
    bool travels = p->travels && (p->through < 0 || p->through == k);
    uint32_t joining = gw_op_def(s->src, s->op.op)->joins_in;
    bool joins = k < GW_MAX_IN && (joining >> k & 1u);
    t.psum = travels ? p->travels : joins ? summed(p) : 0;
    t.pmax = 0;
    return gw_shard_convert(&s->op, v, &t);
}

/* The dimension of output k that is cut together with factor f, which is not in it: of a factor
 * that groups f (statistics of groups of samples), or that f groups; NULL if there is none. */
static gw_dim *partner_of(gw_type *t, const gw_signature *sig, const gw_factor *f, int k) {
    for (int i = 0; i < sig->nfactors; i++) {
        const gw_factor *p = &sig->factors[i];
        if (gw_factor_partners(p, f) && p->out_dim[k] >= 0) return &t->dims[p->out_dim[k]];
    }
    return NULL;
}

static void place_output(gw_type *t, const plan *p, int k) {
    for (int f = 0; f < p->sig.nfactors; f++) {
        const gw_factor *x = &p->sig.factors[f];
        if (p->cut[f].naxes == 0) continue;
        gw_dim *d = x->out_dim[k] >= 0 ? &t->dims[x->out_dim[k]] : partner_of(t, &p->sig, x, k);
        if (d)
            gw_dim_set_cut(d, &p->cut[f]);
        else
            t->psum |= gw_dim_axes(&p->cut[f]);
    }
    t->psum |= p->travels;
}

/* ---- flat parts ---- */

/* Through an op that is indifferent to shape: outputs of the same size are flat too, a scalar is a
 * sum over what is cut. */
static gw_status flat_outputs(gw_sharder *s, const gw_op *o, const gw_type *flat, gw_diags *dg) {
    gw_graph *g = s->dst;
    uint32_t travels = 0; /* partial sums through a linear op */
    bool linear = gw_op_def(g, o)->traits & GW_OP_LINEAR;
    for (int k = 0; linear && k < (int)o->nin; k++)
        if (reads(s, k)) travels |= gw_type_of(g, gw_op_in(g, o, k))->psum;
    for (int k = 0; k < (int)o->nin; k++) {
        const gw_type *t = gw_op_in(g, o, k) == GW_NONE ? NULL : gw_type_of(g, gw_op_in(g, o, k));
        if (t && t->ndim > 0 && t->flat_axes != flat->flat_axes &&
            !gw_op_is(s->src, s->op.op, "zeros"))
            return gw_shard_refuse(s, "some operands are flat parts and some are not", dg);
    }
    for (int k = 0; k < (int)o->nout; k++) {
        gw_type *t = &g->values.items[gw_op_out(g, o, k)].type;
        if (t->ndim > 0) {
            for (int i = 0; i < t->ndim; i++) gw_dim_set_cut(&t->dims[i], &flat->dims[i]);
            t->flat = 1;
            t->flat_axes = flat->flat_axes;
            t->psum |= travels;
        } else {
            t->psum |= flat->flat_axes | gw_type_cut_axes(flat);
        }
    }
    return GW_OK;
}

static const gw_type *flat_input(const gw_sharder *s) {
    for (int k = 0; k < s->op.nin; k++)
        if (s->op.in[k] != GW_NONE && gw_type_of(s->dst, s->op.in[k])->flat)
            return gw_type_of(s->dst, s->op.in[k]);
    return NULL;
}

/* ---- the rule ---- */

/* Copies the op with inputs op.in, whatever the map says of them. */
static gw_oid emit(gw_sharder *s) {
    const gw_op *o = s->op.op;
    gw_vid *kept = gw_mem_alloc(sizeof *kept * ((size_t)o->nin + 1));
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(s->src, o, k);
        if (v == GW_NONE) continue;
        kept[k] = s->map[v];
        s->map[v] = s->op.in[k];
    }
    gw_oid id = gw_graph_copy_op(s->dst, s->src, (gw_oid)(o - s->src->ops.items), s->map);
    for (int k = (int)o->nin; k-- > 0;) /* backwards: an input may stand twice */
        if (gw_op_in(s->src, o, k) != GW_NONE) s->map[gw_op_in(s->src, o, k)] = kept[k];
    gw_mem_free(kept);
    for (int k = 0; k < (int)o->nout; k++)
        s->op.out[k] = gw_op_out(s->dst, &s->dst->ops.items[id], k);
    return id;
}

gw_status gw_shard_by_signature(gw_sharding *op, gw_diags *dg) {
    gw_sharder *s = (gw_sharder *)(void *)op;
    if (gw_op_is(s->src, op->op, "zeros")) { /* looks at the type alone; readers settle it */
        (void)emit(s);
        return GW_OK;
    }
    const gw_type *flat = flat_input(s);
    if (flat) {
        gw_type of = *flat;
        gw_oid id = emit(s);
        const gw_op made = s->dst->ops.items[id];
        return flat_outputs(s, &made, &of, dg);
    }
    plan p;
    plan_op(s, &p);
    for (int k = 0; k < op->nin; k++)
        if (reads(s, k)) op->in[k] = input_for(s, &p, k);
    if (s->b.status != GW_OK) return s->b.status;
    (void)emit(s);
    for (int k = 0; k < op->nout; k++) place_output(&s->dst->values.items[op->out[k]].type, &p, k);
    return GW_OK;
}
