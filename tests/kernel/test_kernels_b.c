// SPDX-License-Identifier: Apache-2.0
// The memory-bound kernels on sizes that cross their blocks: against the reference, with equal bits
// for any number of threads, in place, into accumulators; and facts about single functions.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_key_named, gw_rng_normal */
#include "harness.h"
#include "ops/ops.h" /* gw_ops_table */
#include "ops/ref.h" /* gw_ref_get, gw_ref_set */
#include "run.h"

/* One op in one case, and its kernel. */
typedef struct rig {
    gw_diags dg;
    gw_cases cs;
    gw_case *c;
    const gw_kernel *k;
    gw_attr attrs[GW_MAX_ATTRS];
    values v;
    gw_oid op;
} rig;

static void rig_begin(rig *r, const char *op, gw_dtype t) {
    char kernel[64];
    snprintf(kernel, sizeof kernel, "cpu-%s", op);
    *r = (rig){.k = kernel_named(kernel)};
    gw_diags_init(&r->dg);
    own_cases(&r->cs, op, t, &r->dg);
    r->c = gw_case_begin(&r->cs, gw_dtype_name(t));
    gw_attrs_default(gw_ops_table(), op, r->attrs);
}

static void rig_set(rig *r, const char *name, gw_attr value) {
    gw_attrs_set(gw_ops_table(), r->k->op, r->attrs, name, value);
}

static gw_vid normal(rig *r, const char *dims, double size) {
    return gw_case_value(r->c, dims, false, GW_FILL_NORMAL, size, 0);
}

static gw_vid fixed(rig *r, gw_dtype t, const char *dims, double size) {
    return gw_case_fixed(r->c, t, dims, GW_FILL_NORMAL, size, 0);
}

/* Builds the op and runs its reference. */
static void rig_build(rig *r, const gw_vid *in, int nin) {
    gw_build(&r->c->b, r->k->op, in, nin, r->attrs, NULL);
    CHECK_OK(r->c->b.status, &r->dg);
    r->op = (gw_oid)(r->c->g.ops.count - 1);
    values_init(&r->v, r->c);
    gw_machine m = gw_machine_this(2);
    CHECK_MSG(r->k->supports(&r->c->g, &r->c->g.ops.items[r->op], &m), "%s refuses the case",
              r->k->name);
}

static void rig_end(rig *r) {
    values_release(&r->v);
    gw_cases_release(&r->cs);
    gw_diags_release(&r->dg);
}

/* Bits of every output on 1, 2, 3 and 7 threads. */
static void check_threads(rig *r) {
    const gw_op *o = &r->c->g.ops.items[r->op];
    void *one[GW_MAX_OUT], *many[GW_MAX_OUT];
    run_kernel(&r->v, r->op, r->k, 1, RUN_APART, one);
    for (int t = 2; t <= 7; t = t == 3 ? 7 : t + 1) {
        run_kernel(&r->v, r->op, r->k, t, RUN_APART, many);
        for (int i = 0; i < o->nout; i++)
            CHECK_MSG(memcmp(one[i], many[i],
                             (size_t)value_bytes(&r->c->g, gw_op_out(&r->c->g, o, i))) == 0,
                      "output %d of %s in %s has other bits on %d threads", i, r->k->name,
                      gw_dtype_name(r->cs.dtype), t);
        outputs_free(&r->v, r->op, many);
    }
    outputs_free(&r->v, r->op, one);
}

/* Builds, compares with the reference (in place too where the op allows it), and checks threads. */
static void rig_check(rig *r, const gw_vid *in, int nin) {
    rig_build(r, in, nin);
    values_reference(&r->v, r->op);
    check_kernel(&r->v, r->op, r->k, 3);
    check_threads(r);
    rig_end(r);
}

#define IN(...)                                                                                    \
    (const gw_vid[]){__VA_ARGS__}, (int)(sizeof((gw_vid[]){__VA_ARGS__}) / sizeof(gw_vid))

static const gw_dtype floats[3] = {GW_F32, GW_BF16, GW_F16};
#define EACH_FLOAT(t)                                                                              \
    for (int t##_ = 0; t##_ < 3; t##_++)                                                           \
        for (gw_dtype t = floats[t##_], *once_ = &t; once_; once_ = NULL)

/* ---- norms ---- */

/* Row lengths around vectors and quarters, rows around blocks; gains in another dtype than x. */
static const char *const norm_dims[][3] = {
    {"s5 d3", "s5", "d3"},
    {"s131 d769", "s131", "d769"},
    {"b3 s700 d33", "b3 s700", "d33"},
    {"b2 s9 h7 k64", "b2 s9 h7", "k64"},
    {"s2 d9001", "s2", "d9001"},
    {"s1 d1", "s1", "d1"},
};

TEST(norms_at_odd_sizes) {
    EACH_FLOAT(t) {
        for (size_t i = 0; i < GW_COUNT(norm_dims); i++) {
            rig r;
            rig_begin(&r, "rmsnorm", t);
            gw_vid x = normal(&r, norm_dims[i][0], 1.5);
            rig_check(&r, IN(x, fixed(&r, i % 2 ? GW_F32 : t, norm_dims[i][2], 1)));
            rig_begin(&r, "layernorm", t);
            x = gw_case_value(r.c, norm_dims[i][0], false, GW_FILL_UNIFORM, -1, 5);
            gw_vid g = fixed(&r, i % 2 ? GW_F32 : t, norm_dims[i][2], 1);
            rig_check(&r, IN(x, g, normal(&r, norm_dims[i][2], 1)));
        }
    }
}

TEST(norm_gradients_at_odd_sizes) {
    EACH_FLOAT(t) {
        for (size_t i = 0; i < GW_COUNT(norm_dims); i++) {
            const char *xd = norm_dims[i][0], *rows = norm_dims[i][1], *gd = norm_dims[i][2];
            gw_dtype weight = i % 3 == 1 ? t : GW_F32; /* of gain and its gradient */
            rig r;
            rig_begin(&r, "rmsnorm_grad", t);
            rig_set(&r, "dtype", (gw_attr){.i = weight});
            gw_vid dy = normal(&r, xd, 1), x = normal(&r, xd, 1.5), g = fixed(&r, weight, gd, 1);
            gw_vid rstd = gw_case_fixed(r.c, GW_F32, rows, GW_FILL_UNIFORM, 0.5, 0.9);
            gw_vid acc = i % 2 ? fixed(&r, weight, gd, 3) : GW_NONE;
            rig_check(&r, IN(dy, x, g, rstd, acc));
            rig_begin(&r, "layernorm_grad", t);
            rig_set(&r, "dtype", (gw_attr){.i = weight});
            dy = normal(&r, xd, 1), x = normal(&r, xd, 1.5), g = fixed(&r, weight, gd, 1);
            gw_vid mean = fixed(&r, GW_F32, rows, 0.1);
            rstd = gw_case_fixed(r.c, GW_F32, rows, GW_FILL_UNIFORM, 0.5, 0.9);
            acc = i % 2 ? fixed(&r, weight, gd, 3) : GW_NONE;
            gw_vid accb = i % 3 ? fixed(&r, weight, gd, 3) : GW_NONE;
            rig_check(&r, IN(dy, x, g, mean, rstd, acc, accb));
        }
    }
}

/* ---- rope ---- */

TEST(rope_at_odd_sizes) {
    EACH_FLOAT(t) {
        for (int i = 0; i < 2; i++) {
            rig r;
            rig_begin(&r, "rope", t);
            rig_set(&r, "inverse", (gw_attr){.i = i});
            gw_vid x = normal(&r, i ? "b2 s77 h3 k66" : "b1 s130 g5 k128", 1);
            const char *td = i ? "b2 s77 r33" : "b1 s130 r64";
            gw_dtype table = i ? t : GW_F32;
            rig_check(&r, IN(x, fixed(&r, table, td, 0.7), fixed(&r, table, td, 0.7)));
        }
    }
}

/* Angles up to 2^20 radians: the reference takes cosine and sine of the same float32 angle in
 * float64. */
TEST(rope_table_is_exact_at_long_positions) {
    for (int64_t scaling = 0; scaling <= 2; scaling++) {
        rig r;
        rig_begin(&r, "rope_table", GW_F32);
        rig_set(&r, "head", (gw_attr){.i = 126});
        rig_set(&r, "theta", (gw_attr){.f = 500000});
        rig_set(&r, "scaling", (gw_attr){.i = scaling});
        rig_set(&r, "factor", (gw_attr){.f = 8});
        gw_vid pos = gw_case_fixed(r.c, GW_I32, "b2 s301", GW_FILL_INTS, 0, 1048576);
        rig_build(&r, &pos, 1);
        values_reference(&r.v, r.op);
        void *out[GW_MAX_OUT];
        run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
        for (int i = 0; i < 2; i++) {
            const float *want = r.v.data[gw_op_out(&r.c->g, &r.c->g.ops.items[r.op], i)];
            for (int64_t e = 0; e < 602 * 63; e++)
                CHECK_NEAR(((const float *)out[i])[e], want[e], 6.1e-8);
        }
        outputs_free(&r.v, r.op, out);
        check_threads(&r);
        rig_end(&r);
    }
}

/* ---- elementwise ---- */

TEST(glu_at_odd_sizes) {
    EACH_FLOAT(t) {
        rig r;
        rig_begin(&r, "swiglu", t);
        gw_vid z = normal(&r, "b3 s5 f2205", 3), u = normal(&r, "b3 s5 f2205", 1);
        rig_check(&r, IN(z, u));
        rig_begin(&r, "swiglu_grad", t);
        gw_vid dy = normal(&r, "b3 s5 f2205", 1);
        z = normal(&r, "b3 s5 f2205", 3), u = normal(&r, "b3 s5 f2205", 1);
        rig_check(&r, IN(dy, z, u));
        for (int by_tanh = 0; by_tanh < 2; by_tanh++) {
            rig_begin(&r, "gelu", t);
            rig_set(&r, "tanh", (gw_attr){.i = by_tanh});
            rig_check(&r, IN(normal(&r, "f33007", 3)));
            rig_begin(&r, "gelu_grad", t);
            rig_set(&r, "tanh", (gw_attr){.i = by_tanh});
            dy = normal(&r, "f33007", 1);
            rig_check(&r, IN(dy, normal(&r, "f33007", 3)));
        }
    }
}

/* In the left tail y is x Phi(x), many powers of ten below x: a difference of near-equal numbers
 * would show there. Phi by the C library's erfc. 1e-5: an exponent of -a^2/2 up to 40 is rounded to
 * 2^-24 of itself. */
TEST(gelu_is_accurate_in_its_tails) {
    rig r;
    rig_begin(&r, "gelu", GW_F32);
    rig_set(&r, "tanh", (gw_attr){.i = 0});
    gw_vid x = gw_case_value(r.c, "f4000", false, GW_FILL_UNIFORM, -9, 9);
    rig_build(&r, &x, 1);
    void *out[GW_MAX_OUT];
    run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
    for (int i = 0; i < 4000; i++) {
        double v = (double)((const float *)r.v.data[x])[i];
        double y = v * 0.5 * erfc(-v * 0.70710678118654752440);
        CHECK_NEAR(((const float *)out[0])[i], y, 1e-5 * fabs(y));
    }
    outputs_free(&r.v, r.op, out);
    rig_end(&r);
}

/* Infinite and NaN inputs give what the formulas give. */
TEST(glu_at_the_ends_of_the_line) {
    static const float x[] = {-INFINITY, -1e30f, -200, -90, 0, 90, 200, 1e30f};
    rig r;
    rig_begin(&r, "swiglu", GW_F32);
    gw_vid z = normal(&r, "f8", 1), u = gw_case_value(r.c, "f8", false, GW_FILL_CONST, 1, 0);
    rig_build(&r, (gw_vid[]){z, u}, 2);
    memcpy(r.v.data[z], x, sizeof x);
    ((float *)r.v.data[z])[0] = NAN;
    void *out[GW_MAX_OUT];
    run_kernel(&r.v, r.op, r.k, 1, RUN_APART, out);
    const float *y = out[0];
    CHECK(isnan(y[0]));
    for (int i = 1; i < 4; i++) CHECK(fabsf(y[i]) < 1e-36f);
    CHECK_NEAR(y[4], 0, 0);
    for (int i = 5; i < 8; i++) CHECK_NEAR(y[i], x[i], 1e-6 * (double)x[i]);
    outputs_free(&r.v, r.op, out);
    rig_end(&r);
}

TEST(sums_at_odd_sizes) {
    EACH_FLOAT(t) {
        rig r;
        rig_begin(&r, "add", t);
        gw_vid a = normal(&r, "s7 d7001", 1), b = normal(&r, "s7 d7001", 1), c;
        rig_check(&r, IN(a, b));
        rig_begin(&r, "addn", t);
        a = normal(&r, "s7 d7001", 1), b = normal(&r, "s7 d7001", 1), c = normal(&r, "s7 d7001", 1);
        rig_check(&r, IN(a, b, c, a));
        rig_begin(&r, "bias_grad", t);
        rig_set(&r, "keep", (gw_attr){.i = 2});
        gw_vid dy = normal(&r, "b3 s501 h5 k7", 1);
        rig_check(&r, IN(dy, fixed(&r, GW_F32, "h5 k7", 2)));
        rig_begin(&r, "bias_grad", t);
        rig_set(&r, "dtype", (gw_attr){.i = t});
        rig_check(&r, IN(normal(&r, "s37 d1025", 1)));
        rig_begin(&r, "sqnorm", t);
        rig_check(&r, IN(normal(&r, "v91 d1031", 2)));
        for (int to = 0; to < 3; to++) {
            rig_begin(&r, "cast", t);
            rig_set(&r, "dtype", (gw_attr){.i = floats[to]});
            rig_check(&r, IN(normal(&r, "s5 d9001", 100)));
        }
    }
}

/* A square of 1e-23 is zero in float32; a thousand of them make a number that float32 has. */
TEST(square_sums_do_not_leave_float64) {
    rig r;
    rig_begin(&r, "sqnorm", GW_F32);
    gw_vid x = gw_case_value(r.c, "d1000", false, GW_FILL_CONST, 1e-23, 0);
    rig_build(&r, &x, 1);
    void *out[GW_MAX_OUT];
    run_kernel(&r.v, r.op, r.k, 1, RUN_APART, out);
    CHECK_NEAR(*(const float *)out[0], 1e-43, 2e-45);
    outputs_free(&r.v, r.op, out);
    rig_end(&r);
}

/* ---- dropout ---- */

/* The mask is the reference's, bit for bit, on samples longer than a block and of a length that is
 * no multiple of four. */
TEST(dropout_draws_the_mask_of_the_reference) {
    static const double ps[] = {0, 0.1, 0.5, 0.999, 1};
    EACH_FLOAT(t) {
        for (size_t i = 0; i < GW_COUNT(ps); i++) {
            rig r;
            rig_begin(&r, "dropout", t);
            rig_set(&r, "p", (gw_attr){.f = ps[i]});
            rig_set(&r, "seed", (gw_attr){.i = 7});
            rig_set(&r, "key", (gw_attr){.s = gw_graph_intern(&r.c->g, "layer 3/attn")});
            gw_vid x = gw_case_value(r.c, "b3 s3 d1031", false, GW_FILL_UNIFORM, 1, 2);
            gw_vid sample = gw_case_fixed(r.c, GW_I64, "b3", GW_FILL_INTS, 0, 1e6);
            gw_vid batch = gw_case_fixed(r.c, GW_I64, "", GW_FILL_CONST, 17, 0);
            rig_build(&r, (gw_vid[]){x, sample, batch}, 3);
            values_reference(&r.v, r.op);
            void *out[GW_MAX_OUT];
            run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
            gw_vid y = gw_op_out(&r.c->g, &r.c->g.ops.items[r.op], 0);
            gw_tensor want = {.data = r.v.data[y], .dtype = t}, got = {.data = out[0], .dtype = t};
            for (int64_t e = 0; e < 3 * 3 * 1031; e++)
                CHECK((gw_ref_get(&want, e) == 0) == (gw_ref_get(&got, e) == 0));
            outputs_free(&r.v, r.op, out);
            check_kernel(&r.v, r.op, r.k, 3);
            check_threads(&r);
            rig_end(&r);
        }
    }
}

/* ---- embed ---- */

TEST(embeddings_at_odd_sizes) {
    EACH_FLOAT(t) {
        for (int i = 0; i < 3; i++) {
            rig r;
            rig_begin(&r, "embed", t);
            gw_vid ids = gw_case_fixed(r.c, GW_I32, "b3 s50", GW_FILL_INTS, -5, 210);
            rig_check(&r, IN(ids, normal(&r, "v200 d133", 1)));
            /* Many positions for few rows; with and without an accumulator; narrow dw. */
            rig_begin(&r, "embed_grad", t);
            gw_dtype weight = i == 2 ? t : GW_F32;
            rig_set(&r, "rows", (gw_attr){.i = 100});
            rig_set(&r, "dtype", (gw_attr){.i = weight});
            ids = gw_case_fixed(r.c, i ? GW_I32 : GW_I64, "b3 s150", GW_FILL_INTS, -5, i ? 9 : 210);
            gw_vid dy = normal(&r, "b3 s150 d1029", 1);
            rig_check(&r, IN(ids, dy, i ? fixed(&r, weight, "v100 d1029", 1) : GW_NONE));
        }
    }
}

/* ---- attention over a cache ---- */

TEST(attention_cache_at_odd_sizes) {
    static const struct {
        const char *q, *kv, *rows;
        double lo, hi;
        int64_t window;
    } c[] = {
        {"b1 s1 h4 k64", "b1 t777 g2 k64", "b1 s1", 776, 777, 0},  /* few tasks: split */
        {"b3 s1 h8 k33", "b3 t400 g1 k33", "b3 s1", -2, 400, 0},   /* one kv head for eight */
        {"b2 s5 h3 k128", "b2 t130 g3 k128", "b2 s5", 0, 500, 37}, /* positions past the cache */
        {"b2 s70 h2 k16", "b2 t71 g1 k16", "b2 s70", -5, 71, 0},   /* a prompt */
        {"b1 s1 h1 k256", "b1 t33 g1 k256", "b1 s1", 32, 33, 1},
    };
    EACH_FLOAT(t) {
        for (size_t i = 0; i < GW_COUNT(c); i++) {
            rig r;
            rig_begin(&r, "attention_cache", t);
            rig_set(&r, "window", (gw_attr){.i = c[i].window});
            gw_vid q = normal(&r, c[i].q, 2), kc = normal(&r, c[i].kv, 1),
                   vc = normal(&r, c[i].kv, 1);
            gw_vid pos = gw_case_fixed(r.c, GW_I32, c[i].rows, GW_FILL_INTS, c[i].lo, c[i].hi);
            rig_check(&r, IN(q, kc, vc, pos));
        }
    }
}

/* Rows beyond a position are not read: NaN there (fresh memory of a cache) stays out of the result.
 */
TEST(attention_cache_reads_only_what_it_sees) {
    rig r;
    rig_begin(&r, "attention_cache", GW_F32);
    gw_vid q = normal(&r, "b1 s1 h2 k8", 1), kc = normal(&r, "b1 t90 g1 k8", 1);
    gw_vid vc = normal(&r, "b1 t90 g1 k8", 1);
    gw_vid pos = gw_case_fixed(r.c, GW_I32, "b1 s1", GW_FILL_CONST, 41, 0);
    rig_build(&r, (gw_vid[]){q, kc, vc, pos}, 4);
    for (int64_t i = 42 * 8; i < 90 * 8; i++)
        ((float *)r.v.data[kc])[i] = ((float *)r.v.data[vc])[i] = NAN;
    values_reference(&r.v, r.op);
    check_kernel(&r.v, r.op, r.k, 2);
    void *out[GW_MAX_OUT];
    run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
    for (int i = 0; i < 16; i++) CHECK(isfinite(((const float *)out[0])[i]));
    outputs_free(&r.v, r.op, out);
    rig_end(&r);
}

/* ---- optimizers ---- */

enum { ELEMS = 3 * 1031 };

/* p, g, states, factor, ok, lr, step of 3 x 1031 elements. */
static int optimizer_inputs(rig *r, gw_vid *in, gw_dtype state, int nstates, bool with_step) {
    int n = 0;
    in[n++] = gw_case_value(r->c, "f3 d1031", true, GW_FILL_NORMAL, 1, 0);
    in[n++] = fixed(r, state, "f3 d1031", 0.5);
    if (nstates > 0) in[n++] = fixed(r, state, "f3 d1031", 0.3);
    if (nstates > 1) in[n++] = gw_case_fixed(r->c, state, "f3 d1031", GW_FILL_UNIFORM, 0, 0.2);
    in[n++] = gw_case_fixed(r->c, GW_F32, "", GW_FILL_CONST, 0.7, 0);
    in[n++] = gw_case_fixed(r->c, GW_F32, "", GW_FILL_CONST, 1, 0);
    in[n++] = gw_case_fixed(r->c, GW_F32, "", GW_FILL_CONST, 0.01, 0);
    if (with_step) in[n++] = gw_case_fixed(r->c, GW_I64, "", GW_FILL_CONST, 1, 0);
    return n;
}

/* `steps` steps, gradients drawn anew, every one with the reference's bits. */
static void check_steps(rig *r, const gw_vid *in, int nin, int nstates, int steps) {
    const gw_graph *g = &r->c->g;
    const gw_op *o = &g->ops.items[r->op];
    gw_rng_key key = gw_rng_key_named(11, "gradients");
    gw_tensor grad = {.data = r->v.data[in[1]], .dtype = (gw_dtype)gw_type_of(g, in[1])->dtype};
    for (int step = 1; step <= steps; step++) {
        for (int64_t i = 0; i < ELEMS; i++)
            gw_ref_set(&grad, i, gw_rng_normal(key, (uint64_t)(step * ELEMS + i)));
        if (nin > 5 + nstates) *(int64_t *)r->v.data[in[5 + nstates]] = step;
        void *want[GW_MAX_OUT], *got[GW_MAX_OUT];
        run_kernel(&r->v, r->op, &gw_kernel_reference, 1, RUN_APART, want);
        run_kernel(&r->v, r->op, r->k, 1 + step % 3, RUN_APART, got);
        for (int i = 0; i < o->nout; i++) {
            gw_vid own = in[i ? i + 1 : 0];
            size_t bytes = (size_t)value_bytes(g, own);
            CHECK_MSG(memcmp(want[i], got[i], bytes) == 0, "output %d at step %d of %s in %s", i,
                      step, r->k->name, gw_dtype_name(r->cs.dtype));
            CHECK(memcmp(r->v.data[own], got[i], bytes) != 0);
            memcpy(r->v.data[own], got[i], bytes);
        }
        outputs_free(&r->v, r->op, want);
        outputs_free(&r->v, r->op, got);
    }
}

TEST(adamw_has_the_bits_of_the_reference_for_100_steps) {
    static const struct {
        gw_dtype p, state;
        bool stochastic;
    } c[] = {{GW_F32, GW_F32, false},
             {GW_BF16, GW_F32, true},
             {GW_BF16, GW_BF16, false},
             {GW_F16, GW_F32, false}};
    for (size_t i = 0; i < GW_COUNT(c); i++) {
        rig r;
        rig_begin(&r, "adamw", c[i].p);
        rig_set(&r, "decay", (gw_attr){.f = 0.1});
        rig_set(&r, "stochastic", (gw_attr){.i = c[i].stochastic});
        rig_set(&r, "seed", (gw_attr){.i = 5});
        rig_set(&r, "key", (gw_attr){.s = gw_graph_intern(&r.c->g, "layers.0.wq")});
        gw_vid in[9];
        int nin = optimizer_inputs(&r, in, c[i].state, 2, true);
        rig_build(&r, in, nin);
        check_steps(&r, in, nin, 2, i ? 20 : 100);
        rig_end(&r);
    }
}

TEST(sgd_has_the_bits_of_the_reference) {
    EACH_FLOAT(t) {
        rig r;
        gw_vid in[9];
        rig_begin(&r, "sgd", t);
        rig_set(&r, "decay", (gw_attr){.f = 0.1});
        int nin = optimizer_inputs(&r, in, t, 0, false);
        rig_build(&r, in, nin);
        check_steps(&r, in, nin, 0, 5);
        rig_end(&r);
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            rig_begin(&r, "sgdm", t);
            rig_set(&r, "decay", (gw_attr){.f = 0.1});
            rig_set(&r, "nesterov", (gw_attr){.i = nesterov});
            nin = optimizer_inputs(&r, in, GW_F32, 1, true);
            rig_build(&r, in, nin);
            check_steps(&r, in, nin, 1, 5);
            rig_end(&r);
        }
    }
}

/* ok == 0: not a byte changes, NaN gradients or not. */
TEST(optimizers_skip_a_step_that_is_not_ok) {
    static const struct {
        const char *op;
        int nstates;
        bool with_step;
    } c[] = {{"adamw", 2, true}, {"sgd", 0, false}, {"sgdm", 1, true}, {"muon", 1, false}};
    for (size_t i = 0; i < GW_COUNT(c); i++) {
        rig r;
        gw_vid in[9];
        rig_begin(&r, c[i].op, GW_F32);
        int nin = optimizer_inputs(&r, in, GW_F32, c[i].nstates, c[i].with_step);
        rig_build(&r, in, nin);
        ((float *)r.v.data[in[1]])[0] = NAN;
        *(float *)r.v.data[in[3 + c[i].nstates]] = 0;
        void *out[GW_MAX_OUT];
        run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
        for (int j = 0; j <= c[i].nstates; j++)
            CHECK(memcmp(out[j], r.v.data[in[j ? j + 1 : 0]], ELEMS * sizeof(float)) == 0);
        outputs_free(&r.v, r.op, out);
        rig_end(&r);
    }
}

/* After the iteration the singular values lie near 1, so the rows of the step (wide matrix, lr = 1,
 * p = 0, no decay) are nearly orthonormal times 0.2 sqrt(max side): |X|_F^2 is close to the rank.
 * Jordan gives 0.7 .. 1.2 as the range of a singular value. */
TEST(muon_steps_are_nearly_orthogonal) {
    static const char *const dims[] = {"f24 d100", "f100 d24", "f64 d64"};
    for (int i = 0; i < 3; i++) {
        rig r;
        rig_begin(&r, "muon", GW_F32);
        rig_set(&r, "decay", (gw_attr){.f = 0});
        gw_vid in[6] = {gw_case_value(r.c, dims[i], true, GW_FILL_CONST, 0, 0)};
        in[1] = fixed(&r, GW_F32, dims[i], 0.01);
        in[2] = gw_case_fixed(r.c, GW_F32, dims[i], GW_FILL_CONST, 0, 0);
        for (int j = 3; j < 6; j++) in[j] = gw_case_fixed(r.c, GW_F32, "", GW_FILL_CONST, 1, 0);
        rig_build(&r, in, 6);
        void *out[GW_MAX_OUT];
        run_kernel(&r.v, r.op, r.k, 2, RUN_APART, out);
        double squares = 0, rank = i < 2 ? 24 : 64, side = i < 2 ? 100 : 64;
        for (int64_t e = 0; e < (i < 2 ? 2400 : 4096); e++)
            squares += pow((double)((const float *)out[0])[e], 2);
        double mean = squares / (0.04 * side) / rank;
        CHECK_MSG(mean > 0.45 && mean < 1.5, "mean squared singular value %g", mean);
        outputs_free(&r.v, r.op, out);
        rig_end(&r);
    }
}

TEST(muon_at_odd_sizes) {
    static const char *const dims[] = {"f37 d61", "h3 k21 d40"};
    EACH_FLOAT(t) {
        for (int i = 0; i < 2; i++) {
            rig r;
            rig_begin(&r, "muon", t);
            rig_set(&r, "rows", (gw_attr){.i = 1 + i});
            gw_vid p = gw_case_value(r.c, dims[i], true, GW_FILL_NORMAL, 1, 0);
            gw_vid g = fixed(&r, GW_F32, dims[i], 0.5), m = fixed(&r, GW_F32, dims[i], 0.3);
            gw_vid s[3] = {0};
            for (int j = 0; j < 3; j++)
                s[j] = gw_case_fixed(r.c, GW_F32, "", GW_FILL_CONST, 0.5, 0);
            rig_build(&r, (gw_vid[]){p, g, m, s[0], s[1], s[2]}, 6);
            values_reference(&r.v, r.op);
            check_kernel(&r.v, r.op, r.k, 2);
            rig_end(&r);
        }
    }
}
