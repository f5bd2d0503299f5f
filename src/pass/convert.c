// SPDX-License-Identifier: Apache-2.0
// Chains of conversions, found step by step.
//
// The chain is found on types alone: next_step looks at where a value is and where it shall be and
// names one op and the type behind it; building a chain and pricing it walk the same steps. A
// dimension's cut is an ordered list of sub-axes, so what is common to both lists at the front
// stays (as far as parts nest: ops/conversion.h), what follows in the old list must leave, from the
// end, and what follows in the new list must join, in order. In this order of preference, which
// makes a tensor small before it travels and large only at the end:
//
//   shift          an outer cut that differs in its turn alone
//   all_gather     of a flat cut that is not wanted as it is
//   slice          sub-axes that join and are free
//   reduce_scatter sub-axes that join and on which the value is a partial sum
//   all_to_all     sub-axes that leave one dimension and join another
//   all_reduce     partial sums, or maxima, that end and join nothing
//   all_gather     sub-axes that leave; `place` where partial sums are wanted on them
//   keep_one       partial sums that begin
//   flat           reduce_scatter where they are partial sums that end, else slice
//
// Parts that are not equal cannot be gathered where they lie: they are placed (zeros elsewhere) and
// added up, twice the bytes. Nor can sums be scattered into such parts: they are reduced and
// sliced. A step takes as many sub-axes as one group can have: a contiguous end of the list, in the
// order of the mesh.
#include "pass/convert.h"

#include <string.h>

#include "base/compiler.h"  /* GW_MIN */
#include "base/diag.h"      /* GW_FAIL */
#include "ops/conversion.h" /* gw_dim_nesting */

/* Where a value is on its way. */
typedef struct way {
    const gw_mesh *m;
    gw_type now, to;
    int keep[GW_MAX_DIMS]; /* by dimension: sub-axes that stay */
    bool settled;          /* no dimension has to change */
    uint32_t joins;        /* sub-axes that some dimension has yet to get */
} way;

typedef struct step {
    const char *op; /* NULL: arrived */
    gw_type type;
    uint32_t axes;   /* the group of a collective */
    const char *why; /* no op does it: a reason */
} step;

static uint32_t axis_mask(const gw_dim *d, int from, int to) {
    uint32_t mask = 0;
    for (int i = from; i < to; i++) mask |= 1u << d->axes[i];
    return mask;
}

static int leaving(const way *w, int i) { return w->now.dims[i].naxes - w->keep[i]; }
static int joining(const way *w, int i) { return w->to.dims[i].naxes - w->keep[i]; }

/* Sub-axes on which every rank has the same now. */
static uint32_t free_axes(const way *w) {
    return ~(gw_type_cut_axes(&w->now) | w->now.psum | w->now.pmax | w->now.flat_axes);
}

static int common(const way *w, int i) {
    const gw_dim *a = &w->now.dims[i], *b = &w->to.dims[i];
    for (int n = GW_MIN(a->naxes, b->naxes); n > 0; n--) {
        gw_dim x = gw_dim_first_axes(a, n), y = gw_dim_first_axes(b, n);
        if (gw_dim_same_part(&x, &y, w->m) && gw_dim_nesting(a, &x, w->m) != GW_NEST_NONE &&
            gw_dim_nesting(b, &x, w->m) != GW_NEST_NONE)
            return n;
    }
    return 0;
}

static void look(way *w) {
    w->settled = true;
    w->joins = 0;
    for (int i = 0; i < w->now.ndim; i++) {
        bool same = gw_dim_same_part(&w->now.dims[i], &w->to.dims[i], w->m);
        w->keep[i] = same ? w->now.dims[i].naxes : common(w, i);
        w->settled &= same;
        w->joins |= axis_mask(&w->to.dims[i], w->keep[i], w->to.dims[i].naxes);
    }
}

/* The first n sub-axes of dimension i of the aim, if what remains to be done can follow. */
static bool stage(const way *w, int i, int n, gw_nesting least, gw_dim *out) {
    const gw_dim *to = &w->to.dims[i];
    *out = n == to->naxes ? *to : gw_dim_first_axes(to, n);
    if (gw_dim_nesting(out, &w->now.dims[i], w->m) < least) return false;
    return n == to->naxes || gw_dim_nesting(to, out, w->m) != GW_NEST_NONE;
}

static bool take(step *s, const char *op, const gw_type *type, uint32_t axes) {
    s->op = op;
    s->type = *type;
    s->axes = axes;
    return true;
}

/* ---- one kind of step each: true if it is taken ---- */

static bool try_shift(const way *w, step *s) {
    for (int i = 0; i < w->now.ndim; i++) {
        const gw_dim *a = &w->now.dims[i], *b = &w->to.dims[i];
        uint32_t ring = axis_mask(a, 0, a->outer);
        int64_t n = gw_mesh_size(w->m, ring);
        if (a->outer == 0 || a->outer != b->outer || a->shard != b->shard) continue;
        if (memcmp(a->axes, b->axes, a->outer) != 0 || a->turn % n == b->turn % n) continue;
        bool ordered = true;
        for (int k = 1; k < a->outer; k++) ordered &= a->axes[k - 1] < a->axes[k];
        if (!ordered || w->now.flat || !gw_type_even(&w->now, i, w->m)) continue;
        gw_type t = w->now;
        t.dims[i].turn = (uint8_t)((a->turn + 1) % n);
        return take(s, "shift", &t, ring);
    }
    return false;
}

static bool try_gather_flat(const way *w, step *s) {
    if (!w->now.flat) return false;
    if (w->to.flat && w->to.flat_axes == w->now.flat_axes && w->settled) return false;
    gw_type t = w->now;
    t.flat = 0;
    t.flat_axes = 0;
    return take(s, "all_gather", &t, w->now.flat_axes);
}

static bool try_slice(const way *w, step *s) {
    gw_type t = w->now;
    bool any = false;
    for (int i = 0; i < w->now.ndim; i++) {
        if (leaving(w, i) || !joining(w, i)) continue;
        for (int n = w->to.dims[i].naxes; n > w->keep[i]; n--) {
            gw_dim d;
            if (axis_mask(&w->to.dims[i], w->keep[i], n) & ~free_axes(w)) continue;
            if (!stage(w, i, n, GW_NEST_HELD, &d)) continue;
            t.dims[i] = d;
            any = true;
            break;
        }
    }
    return any && take(s, "slice", &t, 0);
}

static bool try_reduce_scatter(const way *w, step *s) {
    for (int i = 0; i < w->now.ndim; i++) {
        if (leaving(w, i) || !joining(w, i)) continue;
        for (int n = w->to.dims[i].naxes; n > w->keep[i]; n--) {
            uint32_t axes = axis_mask(&w->to.dims[i], w->keep[i], n);
            gw_dim d;
            if ((axes & ~w->now.psum) || !stage(w, i, n, GW_NEST_ROWS, &d)) continue;
            gw_type t = w->now;
            t.dims[i] = d;
            t.psum &= ~axes;
            return take(s, "reduce_scatter", &t, axes);
        }
    }
    return false;
}

/* The last n sub-axes of dimension a join dimension b. */
static bool exchange(const way *w, int a, int b, int n, step *s) {
    const gw_dim *from = &w->now.dims[a], *to = &w->to.dims[b];
    uint32_t axes = axis_mask(from, from->naxes - n, from->naxes);
    if (memcmp(from->axes + from->naxes - n, to->axes + w->keep[b], (size_t)n) != 0) return false;
    gw_dim less = gw_dim_first_axes(from, from->naxes - n), more;
    if (gw_dim_nesting(from, &less, w->m) != GW_NEST_ROWS) return false;
    if (!stage(w, b, w->keep[b] + n, GW_NEST_ROWS, &more)) return false;
    if (gw_dim_nesting(&more, &w->now.dims[b], w->m) != GW_NEST_ROWS) return false;
    gw_type t = w->now;
    t.dims[a] = less;
    t.dims[b] = more;
    return take(s, "all_to_all", &t, axes);
}

static bool try_all_to_all(const way *w, step *s) {
    for (int a = 0; a < w->now.ndim; a++)
        for (int b = 0; b < w->now.ndim; b++) {
            if (a == b || leaving(w, b)) continue;
            for (int n = GW_MIN(leaving(w, a), joining(w, b)); n > 0; n--)
                if (exchange(w, a, b, n, s)) return true;
        }
    return false;
}

/* Partial sums that end as a flat part. */
static uint32_t flat_sums(const way *w) {
    uint32_t end = w->now.psum & ~w->to.psum;
    if (!w->to.flat || w->now.flat || (w->to.flat_axes & ~end)) return 0;
    return w->to.flat_axes;
}

static bool try_scatter_flat(const way *w, step *s) {
    uint32_t axes = flat_sums(w);
    if (!w->settled || !axes) return false;
    gw_type t = w->now;
    t.psum &= ~axes;
    t.flat = 1;
    t.flat_axes = axes;
    return take(s, "reduce_scatter", &t, axes);
}

/* Partial sums on `axes`, or else maxima, that end. */
static bool try_all_reduce(const way *w, uint32_t axes, step *s) {
    gw_type t = w->now;
    axes &= w->now.psum & ~w->to.psum;
    if (axes) {
        if (!gw_dtype_is_float((gw_dtype)t.dtype)) s->why = "integers are not added up";
        t.psum &= ~axes;
        return take(s, "all_reduce", &t, axes);
    }
    axes = w->now.pmax & ~w->to.pmax;
    t.pmax &= ~axes;
    return axes && take(s, "all_reduce", &t, axes);
}

static bool place_last(const way *w, int i, int n, step *s) {
    gw_type t = w->now;
    gw_dim less = gw_dim_first_axes(&w->now.dims[i], w->now.dims[i].naxes - n);
    if (gw_dim_nesting(&w->now.dims[i], &less, w->m) == GW_NEST_NONE) return false;
    uint32_t axes = axis_mask(&t.dims[i], less.naxes, t.dims[i].naxes);
    t.dims[i] = less;
    t.psum |= axes;
    return take(s, "place", &t, axes);
}

/* Some of the last sub-axes of dimension i leave. */
static bool leave(const way *w, int i, step *s) {
    const gw_dim *d = &w->now.dims[i];
    int all = leaving(w, i), run = 0;
    bool sums = w->to.psum >> d->axes[d->naxes - 1] & 1u;
    while (run < all && (w->to.psum >> d->axes[d->naxes - 1 - run] & 1u) == sums) run++;
    for (int n = run; n > 0 && !sums; n--) {
        gw_dim less = gw_dim_first_axes(d, d->naxes - n);
        if (gw_dim_nesting(d, &less, w->m) < GW_NEST_ROWS) continue;
        gw_type t = w->now;
        t.dims[i] = less;
        return take(s, "all_gather", &t, axis_mask(d, less.naxes, d->naxes));
    }
    return place_last(w, i, run, s) || place_last(w, i, all, s);
}

static bool try_leave(const way *w, step *s) {
    for (int wanted = 0; wanted < 2; wanted++) /* first those that no dimension waits for */
        for (int i = 0; i < w->now.ndim; i++) {
            const gw_dim *d = &w->now.dims[i];
            uint32_t axes = axis_mask(d, w->keep[i], d->naxes);
            if (axes && ((axes & w->joins) != 0) == wanted && leave(w, i, s)) return true;
        }
    return false;
}

static bool try_keep_one(const way *w, step *s) {
    gw_type t = w->now;
    uint32_t axes = w->to.psum & ~w->now.psum;
    if (!axes || (axes & ~free_axes(w))) return false;
    if (!gw_dtype_is_float((gw_dtype)t.dtype)) s->why = "integers are not added up";
    t.psum |= axes;
    return take(s, "keep_one", &t, 0);
}

static bool try_slice_flat(const way *w, step *s) {
    if (!w->settled || !w->to.flat || w->now.flat || (w->to.flat_axes & ~free_axes(w)))
        return false;
    gw_type t = w->now;
    t.flat = 1;
    t.flat_axes = w->to.flat_axes;
    return take(s, "slice", &t, 0);
}

static bool arrived(const way *w) {
    return w->settled && w->now.psum == w->to.psum && w->now.pmax == w->to.pmax &&
           w->now.flat == w->to.flat && w->now.flat_axes == w->to.flat_axes;
}

/* False when there is none: *s says whether that is good. */
static bool next_step(way *w, step *s) {
    *s = (step){0};
    look(w);
    if (arrived(w)) return false;
    bool found = try_shift(w, s) || try_gather_flat(w, s) || try_slice(w, s) ||
                 try_reduce_scatter(w, s) || try_all_to_all(w, s) || try_scatter_flat(w, s) ||
                 try_all_reduce(w, ~(w->joins | flat_sums(w)), s) || try_leave(w, s) ||
                 try_all_reduce(w, ~flat_sums(w), s) || try_keep_one(w, s) || try_slice_flat(w, s);
    if (!found)
        s->why = w->to.pmax & ~w->now.pmax ? "no op makes a partial maximum"
                                           : "the placement asked for is no proper one";
    if (s->why) return false;
    w->now = s->type;
    return true;
}

/* More steps than any chain has; a ring may have to be walked around. */
enum { MOST_STEPS = 512 };

/* False where `to` has other dimensions than v. */
static bool begin(way *w, const gw_graph *g, gw_vid v, const gw_type *to) {
    *w = (way){.m = &g->mesh, .now = *gw_type_of(g, v)};
    if (to->ndim != w->now.ndim) return false;
    w->to = w->now;
    w->to.flat = to->flat;
    w->to.flat_axes = to->flat_axes;
    w->to.psum = to->psum;
    w->to.pmax = to->pmax;
    for (int i = 0; i < w->now.ndim; i++) {
        int k = gw_type_find(to, w->now.dims[i].name);
        if (k < 0 || to->dims[k].size != w->now.dims[i].size) return false;
        w->to.dims[i] = to->dims[k];
    }
    return true;
}

/* ---- building ---- */

gw_stream gw_stream_of_axes(const gw_mesh *m, uint32_t axes) {
    uint32_t dp = gw_mesh_group(m, "dp") | gw_mesh_group(m, "dp_replicate");
    uint32_t cp = gw_mesh_group(m, "cp");
    axes &= m->naxes >= 32 ? UINT32_MAX : (1u << m->naxes) - 1u;
    if (axes == 0) return GW_STREAM_COMPUTE;
    if (!(axes & ~cp)) return GW_STREAM_CP;
    if (!(axes & ~(dp | cp))) return GW_STREAM_DP;
    if (!(axes & ~gw_mesh_group(m, "tp"))) return GW_STREAM_TP;
    if (!(axes & ~gw_mesh_group(m, "pp"))) return GW_STREAM_PP;
    return GW_STREAM_EP;
}

static gw_vid refuse(gw_builder *b, gw_vid v, const char *why) {
    gw_oid def = b->g->values.items[v].def;
    const char *op = def == GW_NONE ? "a leaf" : gw_op_def(b->g, &b->g->ops.items[def])->name;
    if (b->status == GW_OK)
        b->status = GW_FAIL(b->dg, GW_ERR_CONFIG, "convert-impossible",
                            "the result of %s (%s) cannot be brought to the placement that its use "
                            "needs: %s",
                            op, b->scope[0] ? b->scope : "no scope", why);
    return v;
}

static bool is_kept(const gw_value *x) {
    return x->cause == GW_CAUSE_WEIGHTS || x->cause == GW_CAUSE_OPTIMIZER;
}

static gw_vid append(gw_builder *b, gw_vid v, const step *s) {
    gw_vid y = gw_build(b, s->op, &v, 1, NULL, NULL);
    if (b->status != GW_OK) return v;
    gw_value *out = &b->g->values.items[y];
    const gw_value *in = &b->g->values.items[v];
    gw_op *made = &b->g->ops.items[out->def];
    out->type = s->type;
    out->role = GW_ROLE_TEMP;
    out->cause = is_kept(in) ? (uint8_t)GW_CAUSE_COMMUNICATION : in->cause;
    if (gw_op_def(b->g, made)->traits & GW_OP_COLLECTIVE)
        made->stream = (uint8_t)gw_stream_of_axes(&b->g->mesh, s->axes);
    return y;
}

gw_vid gw_convert(gw_builder *b, gw_vid v, const gw_type *to) {
    way w;
    step s;
    if (b->status != GW_OK || v == GW_NONE) return v;
    if (!begin(&w, b->g, v, to)) return refuse(b, v, "it has other dimensions");
    int steps = 0;
    while (next_step(&w, &s)) {
        if (++steps > MOST_STEPS) return refuse(b, v, "there is no end to the conversions");
        v = append(b, v, &s);
        if (b->status != GW_OK) return v;
        w.m = &b->g->mesh;
    }
    return s.why ? refuse(b, v, s.why) : v;
}
