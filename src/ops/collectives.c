// SPDX-License-Identifier: Apache-2.0
// Conversions of placements, as ops.
//
//   all_reduce      P -> R        every rank gets the sum (or maximum) of all ranks' partial ones
//   reduce_scatter  P -> S(d)     every rank gets its part of that sum
//   all_gather      S(d) -> R     every rank gets all parts
//   all_to_all      S(a) -> S(b)  parts along one dimension become parts along another
//   shift           S(d) turned   every rank gets the part of its left neighbour on the ring
//   slice           R -> S(d)     every rank keeps its part of what all have; no traffic
//   keep_one        R -> P        kept where all coordinates of the added sub-axes are 0, else zero
//   place           S(d) -> P     the own part in its place, zeros elsewhere
//
// As functions of logical tensors all of them are the identity: only the placement differs between
// input and output, and the two types say everything. The sub-axes that leave the psum mask, the
// flat set or the end of a dimension's list are the group, so no attribute repeats them. Inference
// gives the bare dims; whoever inserts a conversion sets the output's placement. One rank alone,
// the group is empty and the reference kernel copies.
//
// S is a cut along a dimension, or the flat cut: of the local tensor, as the dimensions' cuts leave
// it, so that the optimizer state of a weight which is cut over tensor-parallel ranks can be cut
// again over data-parallel ones. Along a dimension the parts must be equal and must follow one
// another in the group's order (ops/conversion.h), which makes each a run of memory in every row;
// what is uneven is gathered as place + all_reduce, and scattered as all_reduce + slice.
//
//   wire       what travels, a gw_wire of comm/comm.h: 0 is the dtype itself
//   bucket     neighbours with one number > 0 run as one collective
//   algorithm  "" leaves it open
//
// In place. An output may be tied to the input although their bytes differ (GW_OP_VIEW): a flat
// reduce_scatter that leaves its part where it lies inside the whole, a flat slice that is a view
// of it, an all_gather whose input is such a view. That is how optimizer state is sharded around
// weights that stay whole (ZeRO-1) without a byte of copies. An all_reduce and a keep_one may have
// the same bytes for both (GW_OP_INPLACE).
//
// A sum of bf16 is made in float32 and rounded once. None has a gradient: conversions are inserted
// after differentiation. They cost no FLOPs here; what they cost on the wire is comm/'s business.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/cases.h"      /* gw_case_begin */
#include "ops/conversion.h" /* gw_conversion, gw_parts */
#include "ops/hooks.h"      /* gw_type_plain */
#include "ops/ops.h"        /* gw_opdef_all_reduce */

static const gw_attr_def attrs[] = {
    {"wire", GW_ATTR_INT, 0, 0},
    {"bucket", GW_ATTR_INT, 0, 0},
    {"algorithm", GW_ATTR_STR, 0, 0},
};

static gw_status infer(gw_infer *f) {
    const gw_type *t = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(t, (gw_dtype)t->dtype);
    return GW_OK;
}

/* ---- reading types ---- */

/* An op under inspection. */
typedef struct look {
    const gw_graph *g;
    const gw_op *o;
    const gw_mesh *m;
    const gw_type *x, *y; /* of input and output */
    gw_diags *dg;
} look;

static gw_status wrong(const look *l, const char *fmt, ...) GW_PRINTF(2, 3);
static gw_status wrong(const look *l, const char *fmt, ...) {
    char text[240];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return GW_FAIL(l->dg, GW_ERR_FORMAT, "verify-placement", "%s: %s", gw_op_def(l->g, l->o)->name,
                   text);
}

/* "tp.0 tp.1" */
static const char *axes_text(const gw_mesh *m, uint32_t axes, char buf[80]) {
    int at = 0;
    snprintf(buf, 80, "no sub-axis");
    for (int a = 0; a < m->naxes && at < 56; a++)
        if (axes >> a & 1u)
            at += snprintf(buf + at, 80 - (size_t)at, at ? " %s" : "%s", m->axes[a].name);
    return buf;
}

/* The one mask that an op leaves alone. */
static gw_status same_mask(const look *l, const char *what, uint32_t x, uint32_t y) {
    char buf[80];
    if (x == y) return GW_OK;
    return wrong(l, "it leaves %s as it is, and %s is in the input's or the output's alone", what,
                 axes_text(l->m, x ^ y, buf));
}

static gw_status same_flat(const look *l) {
    GW_TRY(same_mask(l, "the flat cut", l->x->flat_axes, l->y->flat_axes));
    if (l->x->flat != l->y->flat) return wrong(l, "one of the two is flat and the other is not");
    return GW_OK;
}

/* No dimension is cut differently, but for those in the mask `but`. */
static gw_status same_cuts(const look *l, uint32_t but) {
    for (int i = 0; i < l->x->ndim; i++) {
        const gw_dim *a = &l->x->dims[i], *b = &l->y->dims[i];
        if ((but >> i & 1u) || gw_dim_same_part(a, b, l->m)) continue;
        char buf[80];
        uint32_t axes = gw_dim_axes(a) ^ gw_dim_axes(b);
        if (axes)
            return wrong(l,
                         "it leaves dimension %.8s as it is, which is cut over %s on one side only",
                         a->name, axes_text(l->m, axes, buf));
        return wrong(l, "it leaves dimension %.8s as it is, which is cut in another way behind it",
                     a->name);
    }
    return GW_OK;
}

/* Dimensions that are cut differently. */
static uint32_t changed_dims(const look *l) {
    uint32_t mask = 0;
    for (int i = 0; i < l->x->ndim; i++)
        if (!gw_dim_same_part(&l->x->dims[i], &l->y->dims[i], l->m)) mask |= 1u << i;
    return mask;
}

static uint32_t axes_beyond(const gw_dim *fine, const gw_dim *coarse) {
    return gw_dim_axes(fine) & ~gw_dim_axes(coarse);
}

/* Dimension i of `fine` must have the sub-axes of that of `coarse` and then more, with parts that
 * nest at least so well. */
static gw_status nests(const look *l, int i, const gw_type *fine, const gw_type *coarse,
                       gw_nesting least, gw_conversion *c) {
    const gw_dim *f = &fine->dims[i], *d = &coarse->dims[i];
    gw_nesting n = gw_dim_nesting(f, d, l->m);
    char buf[80], other[80];
    c->axes |= axes_beyond(f, d);
    if (c->nesting == GW_NEST_NONE || n < c->nesting) c->nesting = n;
    if (n >= least && f->naxes > d->naxes) return GW_OK;
    bool prefix = d->naxes < f->naxes && memcmp(f->axes, d->axes, d->naxes) == 0;
    if (!prefix)
        return wrong(l, "dimension %.8s, cut over %s, does not %s the last sub-axes of %s", f->name,
                     axes_text(l->m, gw_dim_axes(&l->x->dims[i]), buf),
                     fine == l->x ? "lose" : "gain",
                     axes_text(l->m, gw_dim_axes(f) | gw_dim_axes(d), other));
    return wrong(l, "the parts of dimension %.8s over %s are not equal pieces one behind another",
                 f->name, axes_text(l->m, axes_beyond(f, d), buf));
}

/* The flat cut comes (fine is the output) or goes. */
static gw_status read_flat(const look *l, const gw_type *fine, const gw_type *coarse,
                           gw_conversion *c) {
    GW_TRY(same_cuts(l, 0));
    if (coarse->flat) return wrong(l, "both are flat, over other sub-axes");
    c->flat = true;
    c->axes = fine->flat_axes;
    return GW_OK;
}

static bool flat_changes(const look *l) {
    return l->x->flat != l->y->flat || l->x->flat_axes != l->y->flat_axes;
}

static gw_status read_all_reduce(const look *l, gw_conversion *c) {
    char buf[80];
    GW_TRY(same_flat(l));
    GW_TRY(same_cuts(l, 0));
    uint32_t more = (l->y->psum & ~l->x->psum) | (l->y->pmax & ~l->x->pmax);
    if (more)
        return wrong(l, "the output is partial on %s, where the input is not",
                     axes_text(l->m, more, buf));
    uint32_t sums = l->x->psum & ~l->y->psum, maxima = l->x->pmax & ~l->y->pmax;
    if (sums && maxima) return wrong(l, "it takes sums or maxima, not both at once");
    c->axes = sums | maxima;
    c->max = maxima != 0;
    return GW_OK;
}

static gw_status read_reduce_scatter(const look *l, gw_conversion *c) {
    char buf[80];
    uint32_t sums = l->x->psum & ~l->y->psum, dims = changed_dims(l);
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    if (l->y->psum & ~l->x->psum)
        return wrong(l, "the output is partial on %s, where the input is not",
                     axes_text(l->m, l->y->psum & ~l->x->psum, buf));
    if (flat_changes(l)) {
        GW_TRY(read_flat(l, l->y, l->x, c));
    } else if (dims) {
        if (l->x->flat) return wrong(l, "a flat value is not cut along a dimension");
        c->to = __builtin_ctz(dims);
        GW_TRY(same_cuts(l, 1u << c->to));
        GW_TRY(nests(l, c->to, l->y, l->x, GW_NEST_ROWS, c));
    }
    if (c->axes == sums) return GW_OK;
    return wrong(l, "the output is cut over %s, which is not where the input's partial sum ends",
                 axes_text(l->m, c->axes ^ sums, buf));
}

static gw_status read_all_gather(const look *l, gw_conversion *c) {
    uint32_t dims = changed_dims(l);
    GW_TRY(same_mask(l, "partial sums", l->x->psum, l->y->psum));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    if (flat_changes(l)) return read_flat(l, l->x, l->y, c);
    if (!dims) return GW_OK;
    if (l->x->flat) return wrong(l, "a flat value is gathered whole first");
    c->from = __builtin_ctz(dims);
    GW_TRY(same_cuts(l, 1u << c->from));
    return nests(l, c->from, l->x, l->y, GW_NEST_ROWS, c);
}

static gw_status takes_no_zigzag(const look *l, int i) {
    return wrong(l, "the outer cut of dimension %.8s is a zigzag, which it cannot take apart",
                 l->x->dims[i].name);
}

static gw_status read_all_to_all(const look *l, gw_conversion *c) {
    uint32_t dims = changed_dims(l);
    char buf[80];
    GW_TRY(same_mask(l, "partial sums", l->x->psum, l->y->psum));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    GW_TRY(same_flat(l));
    if (!dims) return GW_OK;
    if (l->x->flat) return wrong(l, "a flat value is gathered whole first");
    for (int i = 0; i < l->x->ndim; i++) {
        bool loses = l->x->dims[i].naxes > l->y->dims[i].naxes;
        if (!(dims >> i & 1u)) continue;
        if (loses && c->from < 0) c->from = i;
        if (!loses && c->to < 0) c->to = i;
    }
    if (c->from < 0 || c->to < 0)
        return wrong(l, "one dimension has to lose the sub-axes that another gains");
    GW_TRY(same_cuts(l, 1u << c->from | 1u << c->to));
    GW_TRY(nests(l, c->from, l->x, l->y, GW_NEST_ROWS, c));
    if (c->nesting != GW_NEST_ROWS) return takes_no_zigzag(l, c->from);
    uint32_t lost = c->axes;
    c->nesting = GW_NEST_NONE;
    GW_TRY(nests(l, c->to, l->y, l->x, GW_NEST_ROWS, c));
    if (c->nesting != GW_NEST_ROWS) return takes_no_zigzag(l, c->to);
    uint32_t gained = axes_beyond(&l->y->dims[c->to], &l->x->dims[c->to]);
    if (lost != gained)
        return wrong(l, "dimension %.8s loses other sub-axes than %.8s gains: %s",
                     l->x->dims[c->from].name, l->x->dims[c->to].name,
                     axes_text(l->m, lost ^ gained, buf));
    return GW_OK;
}

/* The part that rank p had stands with rank p + 1. */
static bool turns(const gw_dim *a, const gw_dim *b, const gw_mesh *m) {
    gw_dim next = *a;
    int64_t n = 1;
    for (int i = 0; i < a->outer; i++) n *= m->axes[a->axes[i]].size;
    next.turn = (uint8_t)((a->turn + 1) % n);
    return a->outer > 0 && b->outer == a->outer && gw_dim_same_part(&next, b, m);
}

static gw_status read_shift(const look *l, gw_conversion *c) {
    uint32_t dims = changed_dims(l);
    GW_TRY(same_mask(l, "partial sums", l->x->psum, l->y->psum));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    GW_TRY(same_flat(l));
    if (!dims) return GW_OK;
    if (l->x->flat) return wrong(l, "a flat value has no outer parts");
    c->from = c->to = __builtin_ctz(dims);
    GW_TRY(same_cuts(l, 1u << c->from));
    const gw_dim *a = &l->x->dims[c->from], *b = &l->y->dims[c->from];
    if (!turns(a, b, l->m))
        return wrong(l, "the outer parts of dimension %.8s have not travelled one rank further",
                     a->name);
    for (int i = 0; i < a->outer; i++) c->axes |= 1u << a->axes[i];
    for (int i = 1; i < a->outer; i++)
        if (a->axes[i - 1] > a->axes[i])
            return wrong(l, "the ring of dimension %.8s is not in the order of the mesh", a->name);
    if (gw_type_even(l->x, c->from, l->m)) return GW_OK;
    return wrong(l, "dimension %.8s is cut in unequal parts, which do not go round a ring",
                 a->name);
}

static gw_status read_slice(const look *l, gw_conversion *c) {
    uint32_t dims = changed_dims(l);
    GW_TRY(same_mask(l, "partial sums", l->x->psum, l->y->psum));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    if (flat_changes(l)) return read_flat(l, l->y, l->x, c);
    if (dims && l->x->flat) return wrong(l, "a flat value is not cut along a dimension");
    for (int i = 0; i < l->x->ndim; i++) {
        if (!(dims >> i & 1u)) continue;
        if (c->to < 0) c->to = i;
        GW_TRY(nests(l, i, l->y, l->x, GW_NEST_HELD, c));
    }
    return GW_OK;
}

static gw_status read_keep_one(const look *l, gw_conversion *c) {
    char buf[80];
    GW_TRY(same_flat(l));
    GW_TRY(same_cuts(l, 0));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    if (l->x->psum & ~l->y->psum)
        return wrong(l, "the input's partial sum on %s does not end here",
                     axes_text(l->m, l->x->psum & ~l->y->psum, buf));
    c->axes = l->y->psum & ~l->x->psum;
    return GW_OK;
}

static gw_status read_place(const look *l, gw_conversion *c) {
    uint32_t dims = changed_dims(l);
    GW_TRY(same_flat(l));
    GW_TRY(same_mask(l, "maxima", l->x->pmax, l->y->pmax));
    if (dims && l->x->flat) return wrong(l, "a flat value is gathered whole first");
    for (int i = 0; i < l->x->ndim; i++) {
        if (!(dims >> i & 1u)) continue;
        if (c->from < 0) c->from = i;
        GW_TRY(nests(l, i, l->x, l->y, GW_NEST_HELD, c));
    }
    return same_mask(l, "what else is partial", l->x->psum | c->axes, l->y->psum);
}

/* ---- the table of readers ---- */

static const struct {
    const char *op;
    gw_status (*read)(const look *, gw_conversion *);
} readers[] = {{"all_reduce", read_all_reduce}, {"reduce_scatter", read_reduce_scatter},
               {"all_gather", read_all_gather}, {"all_to_all", read_all_to_all},
               {"shift", read_shift},           {"slice", read_slice},
               {"keep_one", read_keep_one},     {"place", read_place}};

gw_status gw_conversion_of(const gw_graph *g, const gw_op *o, gw_conversion *c, gw_diags *dg) {
    look l = {g, o, &g->mesh, gw_type_of(g, gw_op_in(g, o, 0)), gw_type_of(g, gw_op_out(g, o, 0)),
              dg};
    *c = (gw_conversion){.from = -1, .to = -1};
    for (size_t i = 0; i < GW_COUNT(readers); i++)
        if (strcmp(readers[i].op, gw_op_def(g, o)->name) == 0) return readers[i].read(&l, c);
    return wrong(&l, "it is no conversion");
}

static gw_status verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    gw_conversion c;
    GW_TRY(gw_verify_default(g, o, dg));
    return gw_conversion_of(g, o, &c, dg);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

/* ---- reference kernels ---- */

static const gw_type *type_in(const gw_kargs *k) {
    return gw_type_of(k->g, gw_op_in(k->g, k->op, 0));
}
static const gw_type *type_out(const gw_kargs *k) {
    return gw_type_of(k->g, gw_op_out(k->g, k->op, 0));
}

/* Of a collective: one rank alone. */
/* Elements are moved as they are, of any dtype. */
static void copy(const gw_tensor *y, int64_t to, const gw_tensor *x, int64_t from, int64_t n) {
    int64_t size = gw_dtype_bits(y->dtype) / 8;
    if (n == 0) return; /* an empty part has no bytes to point at */
    memmove((char *)y->data + to * size, (const char *)x->data + from * size, (size_t)(n * size));
}

static void clear(const gw_tensor *y) {
    if (y->elems == 0) return;
    memset(y->data, 0, (size_t)(y->elems * gw_dtype_bits(y->dtype) / 8));
}

static void reference_alone(const gw_kargs *k) {
    copy(&k->out[0], 0, &k->in[0], 0, k->out[0].elems);
}

static void reference_slice(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    int64_t fine, coarse, count;
    if (type_out(k)->flat) {
        bool whole = !type_in(k)->flat && y->data != x->data;
        int64_t shift = whole ? gw_type_flat_first(type_out(k), &k->g->mesh, k->rank) : 0;
        if (y->data != x->data) copy(y, 0, x, shift, y->elems);
        return;
    }
    gw_parts p;
    gw_parts_begin(&p, type_out(k), type_in(k), &k->g->mesh, k->rank);
    while (gw_parts_next(&p, &fine, &coarse, &count)) copy(y, fine, x, coarse, count);
}

static void reference_keep_one(const gw_kargs *k) {
    uint32_t axes = type_out(k)->psum & ~type_in(k)->psum;
    if (gw_rank_keeps(&k->g->mesh, axes, k->rank))
        reference_alone(k);
    else
        clear(&k->out[0]);
}

static void reference_place(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    int64_t fine, coarse, count;
    if (type_in(k)->flat) {
        reference_alone(k);
        return;
    }
    gw_parts p;
    clear(y);
    gw_parts_begin(&p, type_in(k), type_out(k), &k->g->mesh, k->rank);
    while (gw_parts_next(&p, &fine, &coarse, &count)) copy(y, coarse, x, fine, count);
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "alone");
    gw_build1(&c->b, cs->def->name, gw_case_value(c, "h3 d17", false, GW_FILL_NORMAL, 1, 0));
}

#define CONVERSION(id, text, extra_traits, nattributes, attributes, kernel)                        \
    const gw_opdef gw_opdef_##id = {                                                               \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .signature = "*->*",                                                                       \
        .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT | (extra_traits),                             \
        .linear_in = 0,                                                                            \
        .nin = 1,                                                                                  \
        .nout = 1,                                                                                 \
        .noptional = 0,                                                                            \
        .nacc = 0,                                                                                 \
        .ties = GW_NO_TIES,                                                                        \
        .reads_in = 0,                                                                             \
        .reads_out = 0,                                                                            \
        .nattrs = nattributes,                                                                     \
        .attrs = attributes,                                                                       \
        .infer = infer,                                                                            \
        .verify = verify,                                                                          \
        .sign = gw_sign_default,                                                                   \
        .shard = gw_shard_default,                                                                 \
        .cost = cost,                                                                              \
        .vjp = gw_vjp_none,                                                                        \
        .reference = kernel,                                                                       \
        .cases = cases,                                                                            \
    }

CONVERSION(all_reduce, "partial sums (or maxima) become their sum on every rank",
           GW_OP_COLLECTIVE | GW_OP_INPLACE, 3, attrs, reference_alone);
CONVERSION(reduce_scatter, "partial sums become each rank's part of their sum",
           GW_OP_COLLECTIVE | GW_OP_VIEW, 3, attrs, reference_alone);
CONVERSION(all_gather, "the parts of all ranks become the whole on every rank",
           GW_OP_COLLECTIVE | GW_OP_VIEW, 3, attrs, reference_alone);
CONVERSION(all_to_all, "parts along one dimension become parts along another", GW_OP_COLLECTIVE, 3,
           attrs, reference_alone);
CONVERSION(shift, "each rank's part goes to the next rank of the ring", GW_OP_COLLECTIVE, 3, attrs,
           reference_alone);
CONVERSION(slice, "each rank keeps its part of a whole; no traffic", GW_OP_VIEW, 0, NULL,
           reference_slice);
CONVERSION(keep_one, "a value that all ranks have becomes a partial sum, kept on one of them",
           GW_OP_INPLACE, 0, NULL, reference_keep_one);
CONVERSION(place, "each rank's part becomes a partial sum, zero where other parts are", 0, 0, NULL,
           reference_place);
