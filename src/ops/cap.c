// SPDX-License-Identifier: Apache-2.0
// cap: room for so many tokens of a sequence in each expert; what does not fit is dropped.
//
//   ids i32[b s t], gates[b s t] -> kept i32[b s t]      kept = ids, or -1 where dropped
//   room = ceil(capacity * t * tokens of the sequence / experts)
// GShard's and Switch's capacity factor: 1 is exactly the mean load. Padding (ids -1) is no token
// and takes no room. Who is dropped: those that come last in the sequence, or, by_score, those of
// the least gate (Megatron's `position` and `probs`); of equal gates the later one. Since the
// decision needs the whole sequence, s is whole on a rank, and so no layout and no number of ranks
// changes it. Gates of dropped choices are left alone: nothing reads them.
//
// drops counts: ids, kept, acc? -> f32[], the choices that were there and are not.
#include <math.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_* */
#include "ops/ops.h"    /* gw_opdef_cap */
#include "ops/ref.h"    /* gw_ref_get */

enum { EXPERTS, CAPACITY, BY_SCORE };
static const gw_attr_def attrs[] = {
    {"experts", GW_ATTR_INT, 1, 0},
    {"capacity", GW_ATTR_FLOAT, 0, 1},
    {"by_score", GW_ATTR_BOOL, 0, 0},
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 3, 3));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    if (f->attrs[EXPERTS].i < 1 || !(f->attrs[CAPACITY].f > 0))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "cap: experts %lld and capacity %g must be above 0",
                       (long long)f->attrs[EXPERTS].i, f->attrs[CAPACITY].f);
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), GW_I32);
    return GW_OK;
}

static int64_t room_of(const gw_kargs *k, int64_t first, int64_t count) {
    int64_t t = gw_ref_last(&k->in[0]), tokens = 0;
    for (int64_t i = first; i < first + count; i += t) {
        bool any = false;
        for (int64_t j = 0; j < t; j++) any |= gw_ref_int(&k->in[0], i + j) >= 0;
        tokens += any;
    }
    double mean = (double)(t * tokens) / (double)gw_ref_attr(k, EXPERTS).i;
    return (int64_t)ceil(gw_ref_attr(k, CAPACITY).f * mean - 1e-9); /* 1.1 * 10 is 11, not 12 */
}

/* Choices of the expert of `at` with a larger gate, or the same and an earlier place. */
static int64_t ahead(const gw_kargs *k, int64_t first, int64_t count, int64_t at) {
    const gw_tensor *ids = &k->in[0];
    int64_t e = gw_ref_int(ids, at), n = 0;
    double mine = gw_ref_get(&k->in[1], at);
    for (int64_t i = first; i < first + count; i++) {
        if (i == at || gw_ref_int(ids, i) != e) continue;
        double g = gw_ref_get(&k->in[1], i);
        n += g != mine ? g > mine : i < at;
    }
    return n;
}

static void reference(const gw_kargs *k) {
    bool by_score = gw_ref_attr(k, BY_SCORE).i != 0;
    int32_t *kept = k->out[0].data;
    int64_t inner = gw_ref_inner(&k->in[0], 1), experts = gw_ref_attr(k, EXPERTS).i;
    int64_t *taken = gw_mem_alloc(sizeof *taken * (size_t)experts);
    for (int64_t first = 0; first < k->in[0].elems; first += inner) {
        int64_t room = room_of(k, first, inner);
        memset(taken, 0, sizeof *taken * (size_t)experts);
        for (int64_t i = first; i < first + inner; i++) {
            int64_t e = gw_ref_int(&k->in[0], i);
            bool in = e >= 0 && (by_score ? ahead(k, first, inner, i) : taken[e]++) < room;
            kept[i] = in ? (int32_t)e : -1;
        }
    }
    gw_mem_free(taken);
}

static void cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "by score" : "by order");
        gw_vid in[2] = {gw_case_fixed(c, GW_I32, "b3 s11 t2", GW_FILL_INTS, -1, 5)};
        in[1] = gw_case_value(c, "b3 s11 t2", false, GW_FILL_UNIFORM, 0, 1);
        gw_build(&c->b, "cap", in, 2, (gw_attr[]){{.i = 5}, {.f = 0.75}, {.i = i}}, NULL);
    }
}

const gw_opdef gw_opdef_cap = {
    .name = "cap",
    .doc = "drops the choices that find no room in their expert",
    .signature = "b!s!t,b!s!t->b!s!t",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

/* ---- drops: ids, kept, acc? -> dropped ---- */

static gw_status drops_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    f->out[0] = gw_type_scalar(GW_F32);
    return gw_infer_want_acc(f, 2, &f->out[0]);
}

static void drops_reference(const gw_kargs *k) {
    int64_t n = 0;
    for (int64_t i = 0; i < k->in[0].elems; i++)
        n += gw_ref_int(&k->in[0], i) >= 0 && gw_ref_int(&k->in[1], i) < 0;
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 2, 0) + (double)n);
}

static void drops_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "accumulates");
    gw_build1(&c->b, "drops", gw_case_fixed(c, GW_I32, "b2 s5 t2", GW_FILL_INTS, -1, 5),
              gw_case_fixed(c, GW_I32, "b2 s5 t2", GW_FILL_INTS, -1, 1),
              gw_case_fixed(c, GW_F32, "", GW_FILL_CONST, 3, 0));
}

const gw_opdef gw_opdef_drops = {
    .name = "drops",
    .doc = "how many choices were dropped",
    .signature = "bst,bst,?->",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 3,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = drops_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = drops_reference,
    .cases = drops_cases,
};
