// SPDX-License-Identifier: Apache-2.0
// Contraction over shared dimension names.
//
// A product of tensors is written here without index strings: matmul(x[b s h k], w[d h k]) sums
// over h and k because both have them, and gives [b s d]. For the product to be one matrix product
// on the bytes as they lie, the shared dims must be the leading or the trailing group of each
// operand, in one order; everything else is a transposed layout that nobody stores, and is refused.
// matmul and matmul_dw are this with two sets of defaults, and every kernel of theirs asks
// gw_contract_local for its m, n, k.
#include "ops/contract.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* gw_panic */
#include "ops/hooks.h"  /* gw_type_text */
#include "ops/ref.h"    /* gw_ref_inner */

static bool same_name(const gw_dim *a, const gw_dim *b) {
    return strncmp(a->name, b->name, sizeof a->name) == 0;
}

static bool has(const gw_type *t, const gw_dim *d) {
    for (int i = 0; i < t->ndim; i++)
        if (same_name(&t->dims[i], d)) return true;
    return false;
}

/* Where the dims of t that stand in `other` begin, and whether they are one group at an end. */
static bool group(const gw_type *t, const gw_type *other, int n, bool *leading) {
    int first = 0, count = 0;
    while (first < t->ndim && !has(other, &t->dims[first])) first++;
    while (first + count < t->ndim && has(other, &t->dims[first + count])) count++;
    *leading = first == 0 && n < t->ndim;
    return count == n && (first == 0 || first + count == t->ndim);
}

static int shared_count(const gw_type *a, const gw_type *b) {
    int n = 0;
    for (int i = 0; i < a->ndim; i++) n += has(b, &a->dims[i]);
    return n;
}

bool gw_contract_find(const gw_type *a, const gw_type *b, gw_contract *c, char why[400]) {
    char ta[128], tb[128];
    gw_type_text(a, ta);
    gw_type_text(b, tb);
    memset(c, 0, sizeof *c);
    int n = c->shared = shared_count(a, b);
    if (n == 0) {
        snprintf(why, 400, "%s and %s share no dimension to contract", ta, tb);
        return false;
    }
    if (!group(a, b, n, &c->a_leading) || !group(b, a, n, &c->b_leading)) {
        snprintf(
            why, 400,
            "the dimensions that %s and %s share must be the leading or the trailing ones of each",
            ta, tb);
        return false;
    }
    c->na_free = a->ndim - n;
    c->nb_free = b->ndim - n;
    c->a_free = c->a_leading ? n : 0;
    c->b_free = c->b_leading ? n : 0;
    int first_a = c->a_leading ? 0 : c->na_free, first_b = c->b_leading ? 0 : c->nb_free;
    for (int i = 0; i < n; i++) {
        const gw_dim *da = &a->dims[first_a + i], *db = &b->dims[first_b + i];
        if (!same_name(da, db)) {
            snprintf(why, 400, "%s and %s have their shared dimensions in different orders", ta,
                     tb);
            return false;
        }
        if (da->size != db->size) {
            snprintf(why, 400, "dimension %.8s is %lld in input 0, %s, but %lld in input 1, %s",
                     da->name, (long long)da->size, ta, (long long)db->size, tb);
            return false;
        }
    }
    return true;
}

gw_status gw_contract_infer(gw_infer *f, gw_dtype dtype, gw_contract *c, gw_type *out) {
    const gw_type *a = gw_infer_in(f, 0), *b = gw_infer_in(f, 1);
    char why[400], ta[128], tb[128];
    if (!gw_contract_find(a, b, c, why))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape", "%s: %s", f->def->name, why);
    if (c->na_free + c->nb_free > GW_MAX_DIMS)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                       "%s: the product of %s and %s would have more than %d dimensions",
                       f->def->name, gw_type_text(a, ta), gw_type_text(b, tb), GW_MAX_DIMS);
    gw_type r = gw_type_scalar(dtype);
    for (int i = 0; i < c->na_free; i++)
        gw_type_add(&r, a->dims[c->a_free + i].name, a->dims[c->a_free + i].size);
    for (int i = 0; i < c->nb_free; i++)
        gw_type_add(&r, b->dims[c->b_free + i].name, b->dims[c->b_free + i].size);
    *out = r;
    return GW_OK;
}

gw_contract_sizes gw_contract_local(const gw_kargs *k) {
    const gw_type *a = gw_type_of(k->g, gw_op_in(k->g, k->op, 0));
    const gw_type *b = gw_type_of(k->g, gw_op_in(k->g, k->op, 1));
    gw_contract c;
    char why[400];
    if (!gw_contract_find(a, b, &c, why)) gw_panic("a product passed inference, but %s", why);
    gw_contract_sizes s = {1, 1, 1, 0, 0, 0, 0};
    for (int i = 0; i < c.na_free; i++) s.m *= k->in[0].dims[c.a_free + i];
    for (int i = 0; i < c.nb_free; i++) s.n *= k->in[1].dims[c.b_free + i];
    int first = c.a_leading ? 0 : c.na_free;
    for (int i = 0; i < c.shared; i++) s.k *= k->in[0].dims[first + i];
    s.a_m = c.a_leading ? 1 : s.k;
    s.a_k = c.a_leading ? s.m : 1;
    s.b_n = c.b_leading ? 1 : s.k;
    s.b_k = c.b_leading ? s.n : 1;
    return s;
}
