// SPDX-License-Identifier: Apache-2.0
// The ranks of world.h. A conversion is one op (slice stands for all of them) whose input and
// output types differ in placement; here it is done element by element: every element that a rank
// is to hold is the sum, over the sub-axes that leave the partial sum, of what those ranks hold of
// it that share its other coordinates. Where two ranks must agree, their bytes are compared.
#include "world.h"

#include <math.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_key_named, gw_rng_normal */
#include "harness.h"
#include "ops/ops.h" /* gw_ops_table */
#include "ops/ref.h" /* gw_ref_get, gw_ref_set */

void world_init(world *w, int dp, int cp, int tp, bool reference) {
    *w = (world){.reference = reference, .ranks = (int64_t)dp * cp * tp};
    gw_graph_init(&w->g, gw_ops_table());
    w->g.micro_batches = 1;
    gw_diags_init(&w->dg);
    gw_builder_init(&w->b, &w->g, &w->dg);
    w->b.phase = GW_PHASE_B; /* where partial sums travel */
    gw_mesh_add(&w->g.mesh, "dp", dp);
    gw_mesh_add(&w->g.mesh, "cp", cp);
    gw_mesh_add(&w->g.mesh, "tp", tp);
}

void world_release(world *w) {
    gw_graph_release(&w->g);
    gw_diags_release(&w->dg);
    gw_arena_release(&w->a);
}

uint32_t world_axes(const world *w, const char *group) { return gw_mesh_group(&w->g.mesh, group); }

gw_type world_type(const world *w, gw_dtype t, const char *dims, const char *dim,
                   const char *group) {
    gw_type r = gw_type_make(t, dims);
    if (dim) gw_dim_cut(&r.dims[gw_type_find(&r, dim)], world_axes(w, group), &w->g.mesh);
    return r;
}

static gw_tensor tensor_of(world *w, gw_vid v, int64_t rank) {
    if (w->g.values.count > w->capacity) {
        int64_t n = w->g.values.count * 2;
        void **more = gw_arena_new(&w->a, void *, n * w->ranks);
        if (w->data) memcpy(more, w->data, (size_t)(w->capacity * w->ranks) * sizeof *more);
        w->data = more;
        w->capacity = n;
    }
    gw_vid root = gw_value_root(&w->g, v);
    void **p = &w->data[(int64_t)root * w->ranks + rank];
    if (!*p) {
        int64_t bytes = gw_type_local_bytes(gw_type_of(&w->g, root), &w->g.mesh, rank);
        *p = gw_arena_alloc_aligned(&w->a, bytes + 64, 64);
        memset(*p, 0xff, (size_t)bytes); /* NaN */
    }
    return gw_tensor_of(&w->g, v, *p, rank);
}

static void put(const gw_tensor *t, int64_t i, double x) {
    if (t->dtype == GW_I32)
        ((int32_t *)t->data)[i] = (int32_t)x;
    else if (t->dtype == GW_I64)
        ((int64_t *)t->data)[i] = (int64_t)x;
    else
        gw_ref_set(t, i, x);
}

static double take(const gw_tensor *t, int64_t i) {
    return gw_dtype_is_float(t->dtype) ? gw_ref_get(t, i) : (double)gw_ref_int(t, i);
}

/* Is rank the first of those that differ from it on `axes` only? */
static bool is_first(const world *w, int64_t rank, uint32_t axes) {
    for (int a = 0; a < w->g.mesh.naxes; a++)
        if ((axes >> a & 1u) && gw_mesh_coord(&w->g.mesh, rank, a) != 0) return false;
    return true;
}

static bool differ_only_on(const world *w, int64_t p, int64_t q, uint32_t axes) {
    for (int a = 0; a < w->g.mesh.naxes; a++)
        if (!(axes >> a & 1u) && gw_mesh_coord(&w->g.mesh, p, a) != gw_mesh_coord(&w->g.mesh, q, a))
            return false;
    return true;
}

/* Writes what `rank` holds of x under v's type. */
static void write_part(world *w, gw_vid v, int64_t rank, const double *x, bool zero) {
    gw_held held;
    int64_t global, local, count;
    gw_tensor t = tensor_of(w, v, rank);
    gw_held_begin(&held, gw_type_of(&w->g, v), &w->g.mesh, rank);
    while (gw_held_next(&held, &global, &local, &count))
        for (int64_t i = 0; i < count; i++) put(&t, local + i, zero ? 0 : x[global + i]);
}

gw_vid world_leaf(world *w, gw_type t, const double *x) {
    char name[24];
    snprintf(name, sizeof name, "leaf %lld", (long long)w->g.values.count);
    gw_vid v = gw_graph_leaf(&w->g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, t, name);
    for (int64_t r = 0; r < w->ranks; r++) write_part(w, v, r, x, !is_first(w, r, t.psum));
    return v;
}

void world_normal(double *x, int64_t n, const char *key, double size) {
    for (int64_t i = 0; i < n; i++)
        x[i] = size * gw_rng_normal(gw_rng_key_named(1, key), (uint64_t)i);
}

/* ---- conversions ---- */

static uint32_t cut_axes(const gw_type *t) { return gw_type_cut_axes(t) | t->flat_axes; }

/* x = what rank's group holds of the whole of v, summed (or the largest) over `over`. */
static void gather(world *w, gw_vid v, int64_t rank, uint32_t over, double *x) {
    const gw_type *t = gw_type_of(&w->g, v);
    for (int64_t i = 0; i < gw_type_elems(t); i++) x[i] = t->pmax ? -HUGE_VAL : 0;
    for (int64_t q = 0; q < w->ranks; q++) {
        if (!differ_only_on(w, rank, q, over | cut_axes(t))) continue;
        gw_tensor part = tensor_of(w, v, q);
        gw_held held;
        int64_t global, local, count;
        gw_held_begin(&held, t, &w->g.mesh, q);
        while (gw_held_next(&held, &global, &local, &count))
            for (int64_t i = 0; i < count; i++) {
                double y = take(&part, local + i), *at = &x[global + i];
                *at = t->pmax ? GW_MAX(*at, y) : *at + y;
            }
    }
}

static void run_conversion(world *w, const gw_op *o) {
    gw_vid from = gw_op_in(&w->g, o, 0), to = gw_op_out(&w->g, o, 0);
    const gw_type *a = gw_type_of(&w->g, from), *b = gw_type_of(&w->g, to);
    CHECK(!(b->pmax & ~a->pmax) && !(a->psum && a->pmax));
    double *x = gw_arena_new(&w->a, double, gw_type_elems(a));
    for (int64_t r = 0; r < w->ranks; r++) {
        gather(w, from, r, (a->psum & ~b->psum) | (a->pmax & ~b->pmax), x);
        write_part(w, to, r, x, !is_first(w, r, b->psum & ~a->psum));
    }
}

gw_vid world_convert(world *w, gw_vid v, const gw_type *to) {
    const gw_type *t = gw_type_of(&w->g, v);
    bool same = t->psum == to->psum && t->pmax == to->pmax && t->flat_axes == to->flat_axes;
    for (int i = 0; i < t->ndim; i++) same = same && gw_dim_same_cut(&t->dims[i], &to->dims[i]);
    if (same) return v;
    gw_type own = *t;
    gw_vid y = gw_build(&w->b, "slice", &v, 1, NULL, NULL);
    CHECK_OK(w->b.status, &w->dg);
    own.psum = to->psum;
    own.pmax = to->pmax;
    own.flat = to->flat;
    own.flat_axes = to->flat_axes;
    for (int i = 0; i < own.ndim; i++) own.dims[i] = to->dims[i];
    w->g.values.items[y].type = own;
    return y;
}

/* ---- one op ---- */

typedef struct turn {
    gw_sharding s; /* first: the hooks get its address */
    world *w;
    const char *name;
} turn;

static gw_vid convert(gw_sharding *s, gw_vid v, const gw_type *to) {
    return world_convert(((turn *)s)->w, v, to);
}

/* Outputs placed as the factors say; a partial input only where the op is linear in it. */
static gw_status by_signature(gw_sharding *s, gw_diags *dg) {
    (void)dg;
    turn *t = (turn *)s;
    gw_graph *g = &t->w->g;
    const gw_opdef *def = g->table->ops[gw_optable_find(g->table, t->name)];
    uint32_t psum = 0;
    for (int i = 0; i < s->nin - def->nacc; i++) {
        if (s->in[i] == GW_NONE) continue;
        gw_type to = *gw_type_of(g, s->in[i]);
        if ((def->linear_in >> i & 1u) || (def->traits & GW_OP_LINEAR))
            psum |= to.psum;
        else
            to.psum = 0;
        s->in[i] = convert(s, s->in[i], &to);
    }
    s->out[0] = gw_build(s->b, t->name, s->in, s->nin, s->attrs, s->out + 1);
    CHECK_OK(s->b->status, &t->w->dg);
    const gw_op o = g->ops.items[g->ops.count - 1];
    gw_signature sig;
    def->sign(g, &o, &sig);
    for (int k = 0; k < s->nout; k++) g->values.items[s->out[k]].type.psum |= psum;
    for (int f = 0; f < sig.nfactors; f++) {
        const gw_factor *x = &sig.factors[f];
        gw_dim cut = {0};
        for (int i = 0; i < s->nin - def->nacc; i++)
            if (s->in[i] != GW_NONE && x->in_dim[i] >= 0)
                cut = gw_type_of(g, s->in[i])->dims[x->in_dim[i]];
        CHECK_MSG(!cut.naxes || x->kind != GW_FACTOR_WHOLE, "%s: %s is cut", t->name, x->name);
        for (int k = 0; k < s->nout; k++) {
            gw_type *y = &g->values.items[s->out[k]].type;
            if (x->out_dim[k] >= 0)
                y->dims[x->out_dim[k]] = cut.naxes ? cut : y->dims[x->out_dim[k]];
            else
                y->psum |= gw_dim_axes(&cut);
        }
    }
    for (int k = 0; k < s->nout; k++) { /* flat parts of elementwise ops */
        gw_type *y = &g->values.items[s->out[k]].type;
        const gw_type *first = gw_type_of(g, s->in[0]);
        if (y->ndim > 0) y->flat = first->flat, y->flat_axes = first->flat_axes;
        if (y->ndim == 0) y->psum |= first->flat_axes;
    }
    return GW_OK;
}

void world_op(world *w, const char *name, const gw_vid *in, int nin, const gw_attr *attrs,
              const gw_type *const *want, gw_vid *out) {
    gw_attr defaults[GW_MAX_ATTRS];
    gw_attrs_default(w->g.table, name, defaults);
    const gw_opdef *def = w->g.table->ops[gw_optable_find(w->g.table, name)];
    gw_vid all[GW_MAX_IN];
    for (int i = 0; i < def->nin; i++) all[i] = i < nin ? in[i] : GW_NONE;
    turn t = {.w = w, .name = name};
    t.s = (gw_sharding){.b = &w->b,
                        .nin = def->nin,
                        .nout = def->nout,
                        .in = all,
                        .out = out,
                        .attrs = attrs ? attrs : defaults,
                        .want = want,
                        .by_signature = by_signature,
                        .convert = convert};
    CHECK_OK(def->shard(&t.s, &w->dg), &w->dg);
    CHECK_OK(w->b.status, &w->dg);
}

typedef struct local {
    world *w;
    int64_t rank;
} local;

static void *data_of(void *user, gw_vid v) {
    local *l = user;
    return tensor_of(l->w, v, l->rank).data;
}

static void run_on(world *w, const gw_op *o, int64_t rank) {
    gw_machine m = gw_machine_this(2);
    m.reference_only = w->reference;
    const gw_kernel *k = gw_kernel_choose(&w->g, o, &m);
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    gw_kargs a = {.threads = 2, .work_bytes = k->workspace(&w->g, o, &m)};
    local l = {w, rank};
    gw_kargs_bind(&a, &w->g, o, in, out, data_of, &l, rank);
    a.work = gw_arena_alloc_aligned(&w->a, a.work_bytes + 64, 64);
    void *state = NULL;
    CHECK_OK(k->prepare(&a, &w->a, &state, &w->dg), &w->dg);
    CHECK_OK(k->launch(state, &a, &w->dg), &w->dg);
    k->release(state);
}

void world_run(world *w) {
    for (int64_t i = 0; i < w->g.ops.count; i++) {
        const gw_op *o = &w->g.ops.items[i];
        if (gw_op_is(&w->g, o, "slice"))
            run_conversion(w, o);
        else
            for (int64_t r = 0; r < w->ranks; r++) run_on(w, o, r);
    }
}

void world_get(world *w, gw_vid v, double *x) {
    const gw_type *t = gw_type_of(&w->g, v);
    gather(w, v, 0, t->psum | t->pmax, x);
    for (int64_t r = 1; r < w->ranks; r++) { /* copies */
        int64_t first = 0;
        while (!differ_only_on(w, r, first, ~(cut_axes(t) | t->psum | t->pmax))) first++;
        gw_tensor mine = tensor_of(w, v, r), theirs = tensor_of(w, v, first);
        CHECK_EQ(mine.elems, theirs.elems);
        CHECK_MSG(
            memcmp(mine.data, theirs.data, (size_t)gw_type_local_bytes(t, &w->g.mesh, r)) == 0,
            "ranks %lld and %lld hold other copies of value %u", (long long)first, (long long)r, v);
    }
}

int world_count(const world *w, const char *name) {
    int n = 0;
    for (int64_t i = 0; i < w->g.ops.count; i++) n += gw_op_is(&w->g, &w->g.ops.items[i], name);
    return n;
}

void world_near(const double *x, const double *y, int64_t n, double tol, const char *what) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += y[i] * y[i];
    double rms = n ? sqrt(squares / (double)n) : 0;
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(fabs(x[i] - y[i]) <= tol * (fabs(y[i]) + rms),
                  "%s, element %lld of %lld: %.9g, on one rank %.9g", what, (long long)i,
                  (long long)n, x[i], y[i]);
}
