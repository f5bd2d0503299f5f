// SPDX-License-Identifier: Apache-2.0
// muon where ranks hold parts of a matrix: its three steps as ops, of which only one sees it whole.
//
//   muon_momentum   g, m, factor -> u        g times factor joins the momentum; u is the direction
//                                            before orthogonalization (elementwise)
//   muon_direction  u -> x                   Newton and Schulz's iteration
//   muon_apply      p, g, m, factor, ok, lr, x -> p', m'   (elementwise; tied)
//
// With p, g and m cut alike, u of a part is the part of u: it is gathered, every rank iterates on
// the whole matrix, and each steps its own part along its part of x. That is the exact update of
// one rank, bit for bit, as the distributed Muon of Liu et al., 2025 ("Muon is scalable for LLM
// training", algorithm 1) makes it: moments stay cut, and one gather of u (float32) a matrix and
// step is the price, beside an iteration that ranks repeat. Orthogonalizing each part alone would
// be another optimizer.
//
// The scale of a step is that of the whole matrix. muon_apply makes the new momentum again, for an
// addition or two an element, so that p, g and m stand in one op as in every optimizer. ok == 0
// leaves all bytes of it as they are. The arithmetic is shared with muon.c.
#include "base/compiler.h" /* GW_MAX */
#include "ops/hooks.h"     /* gw_cost_set */
#include "ops/muon.h"      /* gw_muon_ahead */
#include "ops/ops.h"       /* gw_opdef_muon_momentum */
#include "ops/optim.h"     /* gw_optim_infer, gw_optim_read */
#include "ops/ref.h"       /* gw_ref_get */

/* ---- muon_momentum ---- */

enum { MOMENTUM, NESTEROV };
static const gw_attr_def momentum_attrs[] = {
    {"momentum", GW_ATTR_FLOAT, 0, 0.95},
    {"nesterov", GW_ATTR_BOOL, 1, 0},
};

static gw_status momentum_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    GW_TRY(gw_infer_want_scalar(f, 2));
    const gw_type *g = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(g, gw_dtype_stat((gw_dtype)g->dtype));
    return GW_OK;
}

static void momentum_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 6 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void momentum_reference(const gw_kargs *k) {
    const gw_tensor *u = &k->out[0];
    bool f64 = u->dtype == GW_F64, nesterov = gw_ref_attr(k, NESTEROV).i != 0;
    double factor = gw_ref_get(&k->in[2], 0), momentum = gw_ref_attr(k, MOMENTUM).f;
    for (int64_t i = 0; i < u->elems; i++) {
        double g = gw_ref_get(&k->in[0], i) * factor, m = gw_ref_get(&k->in[1], i);
        gw_ref_set(u, i, gw_muon_ahead(f64, f64 ? g : (double)(float)g, &m, momentum, nesterov));
    }
}

static void momentum_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "nesterov" : "plain momentum");
        gw_vid in[3] = {
            gw_case_value(c, "h3 k5 d7", false, GW_FILL_NORMAL, 1, 0),
            gw_case_fixed(c, gw_dtype_stat(cs->dtype), "h3 k5 d7", GW_FILL_NORMAL, 1, 0),
            gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 0.5, 0)};
        gw_build(&c->b, "muon_momentum", in, 3, (gw_attr[]){{.f = 0.95}, {.i = i}}, NULL);
    }
}

const gw_opdef gw_opdef_muon_momentum = {
    .name = "muon_momentum",
    .doc = "direction of a step of Muon before it is orthogonalized",
    .signature = "*,*,->*",
    .traits = GW_OP_NODIFF | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = momentum_attrs,
    .infer = momentum_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = momentum_cost,
    .vjp = gw_vjp_none,
    .reference = momentum_reference,
    .cases = momentum_cases,
};

/* ---- muon_direction ---- */

enum { DIRECTION_ROWS, DIRECTION_STEPS };
static const gw_attr_def direction_attrs[] = {
    {"rows", GW_ATTR_INT, 1, 0},
    {"ns_steps", GW_ATTR_INT, 5, 0},
};

static gw_status direction_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_muon_matrix(f, f->attrs[DIRECTION_ROWS].i));
    GW_TRY(gw_muon_steps(f, f->attrs[DIRECTION_STEPS].i));
    const gw_type *u = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(u, (gw_dtype)u->dtype);
    return GW_OK;
}

static void direction_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    int64_t rows, cols;
    gw_muon_sizes(g, gw_op_in(g, o, 0), gw_op_attr(g, o, DIRECTION_ROWS).i, &rows, &cols);
    gw_cost_set(g, o, gw_muon_flops(rows, cols, gw_op_attr(g, o, DIRECTION_STEPS).i), c);
}

static void direction_reference(const gw_kargs *k) {
    const gw_tensor *u = &k->in[0];
    if (u->elems == 0) return;
    int64_t cols = gw_ref_inner(u, (int)gw_ref_attr(k, DIRECTION_ROWS).i);
    gw_arena a = {0};
    double *x = gw_arena_new(&a, double, u->elems);
    for (int64_t i = 0; i < u->elems; i++) x[i] = gw_ref_get(u, i);
    gw_muon_orthogonalize(u->dtype == GW_F64, x, u->elems / cols, cols,
                          gw_ref_attr(k, DIRECTION_STEPS).i, &a);
    for (int64_t i = 0; i < u->elems; i++) gw_ref_set(&k->out[0], i, x[i]);
    gw_arena_release(&a);
}

static void direction_cases(gw_cases *cs) {
    static const char *const dims[] = {"f5 d9", "h9 d4"};
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, dims[i]);
        gw_vid u = gw_case_fixed(c, gw_dtype_stat(cs->dtype), dims[i], GW_FILL_NORMAL, 1, 0);
        gw_build(&c->b, "muon_direction", &u, 1, (gw_attr[]){{.i = 1}, {.i = 5}}, NULL);
    }
}

const gw_opdef gw_opdef_muon_direction = {
    .name = "muon_direction",
    .doc = "a matrix with its singular values driven to 1, by Newton and Schulz's iteration",
    .signature = "*->*",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = direction_attrs,
    .infer = direction_infer,
    .verify = gw_verify_default,
    .sign = gw_muon_sign_whole,
    .shard = gw_shard_default,
    .cost = direction_cost,
    .vjp = gw_vjp_none,
    .reference = direction_reference,
    .cases = direction_cases,
};

/* ---- muon_apply ---- */

enum { APPLY_ROWS, APPLY_MOMENTUM, APPLY_DECAY };
static const gw_attr_def apply_attrs[] = {
    {"rows", GW_ATTR_INT, 1, 0},
    {"momentum", GW_ATTR_FLOAT, 0, 0.95},
    {"decay", GW_ATTR_FLOAT, 0, 0.1},
};

static gw_status apply_infer(gw_infer *f) {
    GW_TRY(gw_optim_infer(f, 1, false));
    GW_TRY(gw_infer_want_float(f, 6));
    GW_TRY(gw_infer_want_same_dims(f, 6, 0));
    return gw_muon_matrix(f, f->attrs[APPLY_ROWS].i);
}

static void apply_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 7 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void apply_reference(const gw_kargs *k) {
    gw_optim_scalars s = gw_optim_read(k, 1);
    if (!s.ok) return;
    const gw_tensor *p = &k->out[0];
    bool f64 = p->dtype == GW_F64;
    double momentum = gw_ref_attr(k, APPLY_MOMENTUM).f, decay = gw_ref_attr(k, APPLY_DECAY).f;
    int64_t rows, cols;
    gw_muon_sizes(k->g, gw_op_in(k->g, k->op, 0), gw_ref_attr(k, APPLY_ROWS).i, &rows, &cols);
    for (int64_t i = 0; i < p->elems; i++) {
        double g = gw_ref_get(&k->in[1], i) * s.factor, m = gw_ref_get(&k->in[2], i);
        (void)gw_muon_ahead(f64, f64 ? g : (double)(float)g, &m, momentum, false);
        gw_ref_set(&k->out[1], i, m);
        gw_ref_set(p, i,
                   gw_muon_stepped(f64, gw_ref_get(&k->in[0], i), gw_ref_get(&k->in[6], i), s.lr,
                                   decay, rows, cols));
    }
}

static void apply_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_optim_case o = {.name = i ? "not ok" : "plain",
                           .dims = "f5 d9",
                           .nstates = 1,
                           .float_states = true,
                           .ok = !i,
                           .factor = 0.5,
                           .lr = 0.02};
        gw_vid in[9];
        int nin = 0;
        gw_case *c = gw_optim_case_begin(cs, &o, in, &nin);
        in[nin++] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "f5 d9", GW_FILL_NORMAL, 0.4, 0);
        gw_build(&c->b, "muon_apply", in, nin, (gw_attr[]){{.i = 1}, {.f = 0.95}, {.f = 0.1}},
                 NULL);
    }
}

const gw_opdef gw_opdef_muon_apply = {
    .name = "muon_apply",
    .doc = "a step of Muon along a direction that is given, in place",
    .signature = "*,*,*,,,,*->*,*",
    .traits = GW_OP_NODIFF | GW_OP_OPTIMIZER | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 7,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, 2, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = apply_attrs,
    .infer = apply_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = apply_cost,
    .vjp = gw_vjp_none,
    .reference = apply_reference,
    .cases = apply_cases,
};

/* ---- the rule ---- */

/* Input i, cut as the parameter is, no partial sum. */
static gw_vid cut_as(gw_sharding *s, gw_vid v, const gw_type *p) {
    gw_type t = *gw_type_of(s->b->g, v);
    for (int i = 0; i < t.ndim; i++) t.dims[i] = p->dims[i];
    t.psum = t.pmax = 0;
    return gw_sharding_convert(s, v, &t);
}

static gw_vid whole(gw_sharding *s, gw_vid v) {
    gw_type t = *gw_type_of(s->b->g, v);
    for (int i = 0; i < t.ndim; i++) gw_dim_uncut(&t.dims[i], gw_dim_axes(&t.dims[i]));
    t.psum = t.pmax = 0;
    return gw_sharding_convert(s, v, &t);
}

gw_status gw_muon_shard(gw_sharding *s, gw_diags *dg) {
    const gw_type p = *gw_type_of(s->b->g, s->in[0]);
    if (!gw_type_cut_axes(&p)) return s->by_signature(s, dg);
    const gw_attr *a = s->attrs;
    gw_vid g = cut_as(s, s->in[1], &p), m = cut_as(s, s->in[2], &p), more;
    gw_vid u = gw_build(s->b, "muon_momentum", (gw_vid[]){g, m, s->in[3]}, 3,
                        (gw_attr[]){a[GW_MUON_MOMENTUM], a[GW_MUON_NESTEROV]}, NULL);
    gw_sharding_place(s, u, &p);
    u = whole(s, u);
    gw_vid x = gw_build(s->b, "muon_direction", &u, 1,
                        (gw_attr[]){a[GW_MUON_ROWS], a[GW_MUON_NS_STEPS]}, NULL);
    x = cut_as(s, x, &p);
    gw_vid in[7] = {s->in[0], g, m, s->in[3], s->in[4], s->in[5], x};
    s->out[0] =
        gw_build(s->b, "muon_apply", in, 7,
                 (gw_attr[]){a[GW_MUON_ROWS], a[GW_MUON_MOMENTUM], a[GW_MUON_DECAY]}, &more);
    s->out[1] = more;
    gw_sharding_place(s, s->out[0], &p);
    gw_sharding_place(s, s->out[1], &p);
    return s->b->status;
}
