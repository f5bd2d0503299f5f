// SPDX-License-Identifier: Apache-2.0
// Optimizers and clipping against closed forms and arithmetic by hand, from the formulas in the
// documentation of torch.optim.AdamW, SGD and Muon.
#include <string.h>

#include "base/num.h" /* gw_bf16 */
#include "base/rng.h" /* gw_rng_normal */
#include "eval.h"     /* eval */
#include "harness.h"  /* TEST, CHECK */
#include "ops/ops.h"  /* gw_ops_table */

/* ---- one optimizer op on tensors of one shape ---- */

typedef struct optim {
    gw_graph g;
    gw_builder b;
    gw_diags dg;
    eval e;
    gw_vid in[9]; /* p, g, states, factor, ok, lr, step */
    gw_vid out[3];
    int64_t n;
} optim;

typedef struct scalars {
    double factor, ok, lr;
    int64_t step; /* 0: the op takes none */
} scalars;

static void optim_init(optim *t) {
    memset(t, 0, sizeof *t);
    gw_graph_init(&t->g, gw_ops_table());
    t->g.micro_batches = 1;
    gw_diags_init(&t->dg);
    gw_builder_init(&t->b, &t->g, &t->dg);
    eval_init(&t->e, &t->g);
}

static void optim_release(optim *t) {
    eval_release(&t->e);
    gw_graph_release(&t->g);
    gw_diags_release(&t->dg);
}

static gw_vid leaf(optim *t, gw_dtype dtype, const char *dims) {
    return gw_graph_leaf(&t->g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, gw_type_make(dtype, dims),
                         "");
}

static gw_vid scalar(optim *t, double x) {
    gw_vid v = leaf(t, GW_F64, "");
    eval_set(&t->e, v, 0, x);
    return v;
}

/* Leaves p, g and `nstates` states (zero), scalars, and the op. p has dtype `dp`, the others `d`.
 */
static void optim_build(optim *t, const char *op, gw_dtype dp, gw_dtype d, const char *dims,
                        int nstates, scalars s, const gw_attr *attrs) {
    int n = 0;
    t->in[n++] = leaf(t, dp, dims);
    for (int i = 0; i <= nstates; i++) t->in[n++] = leaf(t, d, dims);
    t->in[n++] = scalar(t, s.factor);
    t->in[n++] = scalar(t, s.ok);
    t->in[n++] = scalar(t, s.lr);
    if (s.step) {
        gw_vid step = t->in[n++] = leaf(t, GW_I64, "");
        eval_set(&t->e, step, 0, (double)s.step);
    }
    t->n = gw_type_elems(gw_type_of(&t->g, t->in[0]));
    t->out[0] = gw_build(&t->b, op, t->in, n, attrs, t->out + 1);
}

static void run(optim *t) {
    CHECK_OK(t->b.status, &t->dg);
    eval_run(&t->e, 0, t->g.ops.count);
}

/* Normal numbers times a, from the stream `key`. */
static void fill(optim *t, gw_vid v, const char *key, double a) {
    for (int64_t i = 0; i < gw_type_elems(gw_type_of(&t->g, v)); i++)
        eval_set(&t->e, v, i, a * gw_rng_normal(gw_rng_key_named(5, key), (uint64_t)i));
}

static double get(optim *t, gw_vid v, int64_t i) { return eval_get(&t->e, v, i); }

/* ---- AdamW ---- */

static void adamw_attrs(gw_attr a[7], double decay) {
    a[0].f = 0.9;
    a[1].f = 0.95;
    a[2].f = 1e-8;
    a[3].f = decay;
    a[4].i = a[5].i = a[6].i = 0;
}

/* From zero moments the corrected moments are g and g^2, so the step is lr * sign(g), but for eps.
 */
TEST(adamw_first_step_is_the_sign) {
    optim t;
    gw_attr a[7];
    adamw_attrs(a, 0.1);
    optim_init(&t);
    optim_build(&t, "adamw", GW_F64, GW_F64, "d64", 2, (scalars){1, 1, 0.01, 1}, a);
    fill(&t, t.in[0], "p", 1);
    fill(&t, t.in[1], "g", 2);
    run(&t);
    for (int64_t i = 0; i < t.n; i++) {
        double p = get(&t, t.in[0], i), g = get(&t, t.in[1], i);
        CHECK_NEAR(get(&t, t.out[0], i), p * (1 - 0.01 * 0.1) - 0.01 * g / (fabs(g) + 1e-8), 1e-13);
        CHECK_NEAR(get(&t, t.out[1], i), 0.1 * g, 1e-14);
        CHECK_NEAR(get(&t, t.out[2], i), 0.05 * g * g, 1e-14);
    }
    optim_release(&t);
}

/* The documented recurrence with m_hat and v_hat, over ten steps with a changing gradient. */
TEST(adamw_follows_the_documented_recurrence) {
    double p = 0.7, m = 0, v = 0;
    double lr = 0.02, decay = 0.3;
    for (int64_t step = 1; step <= 10; step++) {
        optim t;
        gw_attr a[7];
        adamw_attrs(a, decay);
        optim_init(&t);
        optim_build(&t, "adamw", GW_F64, GW_F64, "d1", 2, (scalars){0.5, 1, lr, step}, a);
        double g = 2 * cos((double)step); /* times factor 0.5 */
        const double start[4] = {p, g, m, v};
        for (int i = 0; i < 4; i++) eval_set(&t.e, t.in[i], 0, start[i]);
        run(&t);
        g *= 0.5;
        p = p - lr * decay * p;
        m = 0.9 * m + 0.1 * g;
        v = 0.95 * v + 0.05 * g * g;
        double m_hat = m / (1 - pow(0.9, (double)step)), v_hat = v / (1 - pow(0.95, (double)step));
        p = p - lr * m_hat / (sqrt(v_hat) + 1e-8);
        CHECK_NEAR(get(&t, t.out[0], 0), p, 1e-14);
        CHECK_NEAR(get(&t, t.out[1], 0), m, 1e-15);
        CHECK_NEAR(get(&t, t.out[2], 0), v, 1e-15);
        optim_release(&t);
    }
}

/* float32 in and out: within a few roundings of float64 on the same numbers. */
TEST(adamw_in_float32_is_near_float64) {
    optim t, u;
    gw_attr a[7];
    adamw_attrs(a, 0.1);
    optim *both[2] = {&t, &u};
    for (int k = 0; k < 2; k++) {
        gw_dtype d = k ? GW_F64 : GW_F32;
        optim_init(both[k]);
        optim_build(both[k], "adamw", d, d, "d257", 2, (scalars){0.25, 1, 0.5, 7}, a);
        for (int j = 0; j < 4; j++)
            for (int64_t i = 0; i < 257; i++) {
                double x = gw_rng_normal(gw_rng_key_named(9, "x"), (uint64_t)(i * 4 + j));
                eval_set(&both[k]->e, both[k]->in[j], i, (double)(float)(j == 3 ? x * x : x));
            }
        run(both[k]);
    }
    for (int j = 0; j < 3; j++)
        for (int64_t i = 0; i < 257; i++) {
            double x = get(&t, t.out[j], i), y = get(&u, u.out[j], i);
            CHECK_NEAR(x, y, 8 * 0x1p-24 * (fabs(y) + 1));
        }
    optim_release(&t);
    optim_release(&u);
}

/* Moments are stored in their dtype; p is stepped with them as computed: bf16 moments and float32
 * ones, from the same start, give the same p after one step. */
TEST(adamw_moments_have_a_dtype_of_their_own) {
    optim t, u;
    gw_attr a[7];
    adamw_attrs(a, 0);
    optim *both[2] = {&t, &u};
    for (int k = 0; k < 2; k++) {
        optim_init(both[k]);
        optim_build(both[k], "adamw", GW_F32, k ? GW_BF16 : GW_F32, "d99", 2,
                    (scalars){1, 1, 0.1, 1}, a);
        for (int64_t i = 0; i < 99; i++) {
            eval_set(&both[k]->e, both[k]->in[0], i, 1);
            eval_set(&both[k]->e, both[k]->in[1], i, (double)(i - 50) / 64); /* exact in bf16 */
        }
        run(both[k]);
    }
    for (int64_t i = 0; i < 99; i++) {
        CHECK(get(&t, t.out[0], i) == get(&u, u.out[0], i));
        float m = (float)get(&t, t.out[1], i);
        CHECK(get(&u, u.out[1], i) == (double)gw_bf16_to_f32(gw_bf16_from_f32(m)));
    }
    optim_release(&t);
    optim_release(&u);
}

/* ---- stochastic rounding ---- */

/* p = 1 everywhere and a step of 0.3 units in the last place (2^-8 below 1): returns the fraction
 * of elements that went down, with the bits in down[0..n). */
static double stochastic_step(int64_t seed, const char *key, int64_t step, const char *dims,
                              uint8_t *down) {
    optim t;
    gw_attr a[7];
    adamw_attrs(a, 0);
    optim_init(&t);
    a[4].i = 1;
    a[5].i = seed;
    a[6].s = gw_graph_intern(&t.g, key);
    optim_build(&t, "adamw", GW_BF16, GW_F32, dims, 2, (scalars){1, 1, 0.3 * 0x1p-8, step}, a);
    for (int64_t i = 0; i < t.n; i++) {
        eval_set(&t.e, t.in[0], i, 1);
        eval_set(&t.e, t.in[1], i, 1);
        /* Moments such that the corrected ones are 1 at any step. */
        eval_set(&t.e, t.in[2], i, (1 - pow(0.9, (double)step) - 0.1) / 0.9);
        eval_set(&t.e, t.in[3], i, (1 - pow(0.95, (double)step) - 0.05) / 0.95);
    }
    run(&t);
    int64_t count = 0;
    for (int64_t i = 0; i < t.n; i++) {
        double p = get(&t, t.out[0], i);
        CHECK(p == 1 || p == 1 - 0x1p-8);
        down[i] = p < 1;
        count += down[i];
    }
    double fraction = (double)count / (double)t.n;
    optim_release(&t);
    return fraction;
}

/* Over n = 40000 draws the fraction's deviation is sqrt(0.3 * 0.7 / n) = 0.0023; five of them. */
TEST(adamw_stochastic_rounding_is_unbiased) {
    static uint8_t down[40000];
    CHECK_NEAR(stochastic_step(1, "w", 1, "d40000", down), 0.3, 0.0115);
    CHECK_NEAR(stochastic_step(2, "w", 9, "d40000", down), 0.3, 0.0115);
    double sum = 0; /* and over keys, for few elements each */
    for (int k = 0; k < 400; k++) {
        char key[16];
        snprintf(key, sizeof key, "w%d", k);
        sum += stochastic_step(1, key, 3, "d100", down);
    }
    CHECK_NEAR(sum / 400, 0.3, 0.0115);
}

TEST(adamw_stochastic_rounding_is_a_function_of_seed_key_step_and_index) {
    static uint8_t a[1000], b[1000];
    stochastic_step(1, "w", 4, "d1000", a);
    stochastic_step(1, "w", 4, "d1000", b);
    CHECK(memcmp(a, b, 1000) == 0);
    stochastic_step(1, "w", 4, "d10 f20", b); /* the first 200 of another shape */
    CHECK(memcmp(a, b, 200) == 0);
    stochastic_step(2, "w", 4, "d1000", b);
    CHECK(memcmp(a, b, 1000) != 0);
    stochastic_step(1, "x", 4, "d1000", b);
    CHECK(memcmp(a, b, 1000) != 0);
    stochastic_step(1, "w", 5, "d1000", b);
    CHECK(memcmp(a, b, 1000) != 0);
}

TEST(adamw_stochastic_rounding_is_for_bf16) {
    optim t;
    gw_attr a[7];
    adamw_attrs(a, 0);
    a[4].i = 1;
    optim_init(&t);
    optim_build(&t, "adamw", GW_F32, GW_F32, "d4", 2, (scalars){1, 1, 0.1, 1}, a);
    CHECK_FAILS(t.b.status, &t.dg, "stochastic rounding is for bf16");
    optim_release(&t);
}

/* ---- SGD ---- */

/* d = 0.5 * 2 + 0.1 * 1 = 1.1, p = 1 - 0.1 * 1.1. */
TEST(sgd_by_hand) {
    optim t;
    optim_init(&t);
    optim_build(&t, "sgd", GW_F64, GW_F64, "d1", 0, (scalars){0.5, 1, 0.1, 0},
                (gw_attr[]){{.f = 0.1}});
    eval_set(&t.e, t.in[0], 0, 1);
    eval_set(&t.e, t.in[1], 0, 2);
    run(&t);
    CHECK_NEAR(get(&t, t.out[0], 0), 0.89, 1e-15);
    optim_release(&t);
}

static void sgdm_step(double *p, double g, double *m, int64_t step, bool nesterov) {
    optim t;
    optim_init(&t);
    gw_attr a[3] = {{.f = 0.9}, {.i = nesterov}, {.f = 0.1}};
    optim_build(&t, "sgdm", GW_F64, GW_F64, "d1", 1, (scalars){1, 1, 0.1, step}, a);
    eval_set(&t.e, t.in[0], 0, *p);
    eval_set(&t.e, t.in[1], 0, g);
    eval_set(&t.e, t.in[2], 0, *m);
    run(&t);
    *p = get(&t, t.out[0], 0);
    *m = get(&t, t.out[1], 0);
    optim_release(&t);
}

/* Step 1: d = 2 + 0.1 = 2.1 = m, p = 0.79. Step 2: d = 1 + 0.079 = 1.079, m = 1.89 + 1.079 = 2.969,
 * p = 0.79 - 0.2969. With Nesterov the steps are 2.1 + 1.89 = 3.99 (p = 0.601), then d = 1.0601,
 * m = 1.89 + 1.0601 = 2.9501, step 1.0601 + 2.65509 = 3.71519. */
TEST(sgdm_by_hand) {
    double p = 1, m = 1e30; /* the first step does not read m */
    sgdm_step(&p, 2, &m, 1, false);
    CHECK_NEAR(m, 2.1, 1e-15);
    CHECK_NEAR(p, 0.79, 1e-15);
    sgdm_step(&p, 1, &m, 2, false);
    CHECK_NEAR(m, 2.969, 1e-15);
    CHECK_NEAR(p, 0.4931, 1e-15);
    p = 1;
    m = (double)NAN;
    sgdm_step(&p, 2, &m, 1, true);
    CHECK_NEAR(p, 0.601, 1e-15);
    sgdm_step(&p, 1, &m, 2, true);
    CHECK_NEAR(m, 2.9501, 1e-14);
    CHECK_NEAR(p, 0.601 - 0.371519, 1e-14);
}

/* ---- Muon ---- */

static void muon_build(optim *t, gw_dtype d, const char *dims, int64_t rows, bool nesterov) {
    optim_init(t);
    gw_attr a[5] = {{.i = rows}, {.f = 0.95}, {.i = nesterov}, {.i = 5}, {.f = 0.1}};
    optim_build(t, "muon", d, d, dims, 1, (scalars){1, 1, 0.02, 0}, a);
}

/* Five rounds of the quintic on one singular value. */
static double quintic(double s) {
    for (int i = 0; i < 5; i++) s = 3.4445 * s - 4.7750 * pow(s, 3) + 2.0315 * pow(s, 5);
    return s;
}

/* On a diagonal gradient the iteration acts on each entry by itself. */
TEST(muon_acts_on_singular_values) {
    static const double s[3] = {3, -0.5, 0.04};
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        optim t;
        muon_build(&t, GW_F64, "f3 d5", 1, nesterov);
        fill(&t, t.in[0], "p", 1);
        for (int i = 0; i < 3; i++) eval_set(&t.e, t.in[1], i * 5 + i, s[i]);
        run(&t);
        double norm = sqrt(9 + 0.25 + 0.0016);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 5; j++) {
                double x = i == j ? quintic(s[i] / norm) : 0;
                double p = get(&t, t.in[0], i * 5 + j);
                CHECK_NEAR(get(&t, t.out[0], i * 5 + j),
                           p * (1 - 0.02 * 0.1) - 0.02 * 0.2 * sqrt(5) * x, 1e-12);
                CHECK_NEAR(get(&t, t.out[1], i * 5 + j), i == j ? 0.05 * s[i] : 0, 1e-15);
            }
        optim_release(&t);
    }
}

/* m is a running mean and Nesterov's direction looks one step ahead: with g on one diagonal and m
 * on another entry, the two singular values are (1 - 0.95^2) g and 0.95^2 m. */
TEST(muon_momentum_and_nesterov) {
    optim t;
    muon_build(&t, GW_F64, "f2 d2", 1, true);
    eval_set(&t.e, t.in[1], 0, 2);
    eval_set(&t.e, t.in[2], 3, 1);
    run(&t);
    double a = 0.0975 * 2, b = 0.9025, norm = sqrt(a * a + b * b);
    CHECK_NEAR(get(&t, t.out[1], 0), 0.1, 1e-15);
    CHECK_NEAR(get(&t, t.out[1], 3), 0.95, 1e-15);
    CHECK_NEAR(get(&t, t.out[0], 0), -0.02 * 0.2 * sqrt(2) * quintic(a / norm), 1e-14);
    CHECK_NEAR(get(&t, t.out[0], 3), -0.02 * 0.2 * sqrt(2) * quintic(b / norm), 1e-14);
    optim_release(&t);
}

/* A tall matrix is the transpose of a wide one, and so is its step; rows may be several dims. */
TEST(muon_of_the_transpose_is_the_transpose) {
    optim t, u;
    muon_build(&t, GW_F64, "h3 k2 d4", 2, true);
    muon_build(&u, GW_F64, "d4 f6", 1, true);
    fill(&t, t.in[1], "g", 1);
    fill(&t, t.in[2], "m", 1);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 1; k < 3; k++)
                eval_set(&u.e, u.in[k], j * 6 + i, get(&t, t.in[k], i * 4 + j));
    run(&t);
    run(&u);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++)
            CHECK_NEAR(get(&t, t.out[0], i * 4 + j), get(&u, u.out[0], j * 6 + i), 1e-14);
    optim_release(&t);
    optim_release(&u);
}

/* The step's root mean square is near 0.2 lr for a square matrix (that of AdamW), whatever the size
 * of the gradient: singular values end between 0.6 and 1.3. */
TEST(muon_step_has_the_size_of_an_adamw_step) {
    for (double size = 1e-4; size < 1e5; size *= 1e4) {
        optim t;
        muon_build(&t, GW_F32, "f24 d24", 1, true);
        fill(&t, t.in[1], "g", size);
        run(&t);
        double sum = 0;
        for (int64_t i = 0; i < t.n; i++) sum += get(&t, t.out[0], i) * get(&t, t.out[0], i);
        double rms = sqrt(sum / (double)t.n) / 0.02;
        CHECK_MSG(rms > 0.2 * 0.6 && rms < 0.2 * 1.3, "rms %g", rms);
        optim_release(&t);
    }
}

TEST(muon_of_a_zero_gradient_only_decays) {
    optim t;
    muon_build(&t, GW_F32, "f3 d4", 1, true);
    fill(&t, t.in[0], "p", 1);
    run(&t);
    for (int64_t i = 0; i < t.n; i++)
        CHECK_NEAR(get(&t, t.out[0], i), get(&t, t.in[0], i) * 0.998, 1e-6);
    optim_release(&t);
}

TEST(muon_refuses_what_is_no_matrix) {
    static const struct {
        const char *dims, *says;
        int64_t rows;
    } bad[] = {
        {"d4", "2 to 6 dimensions", 1}, {"f3 d4", "rows is 2", 2}, {"f3 d4", "rows is 0", 0}};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        optim t;
        muon_build(&t, GW_F32, bad[i].dims, bad[i].rows, true);
        CHECK_FAILS(t.b.status, &t.dg, bad[i].says);
        optim_release(&t);
    }
}

/* ---- what all share ---- */

typedef struct kind {
    const char *op;
    int nstates;
    bool step;
} kind;
static const kind kinds[] = {
    {"adamw", 2, true}, {"sgd", 0, false}, {"sgdm", 1, true}, {"muon", 1, false}};

/* ok == 0, a gradient of NaN and infinities: every byte stays, in place, in every dtype. */
TEST(optimizers_leave_all_bytes_when_not_ok) {
    static const gw_dtype dtypes[] = {GW_F32, GW_BF16, GW_F16, GW_F64};
    for (size_t k = 0; k < GW_COUNT(kinds); k++)
        for (size_t d = 0; d < GW_COUNT(dtypes); d++) {
            optim t;
            optim_init(&t);
            optim_build(&t, kinds[k].op, dtypes[d], dtypes[d], "f3 d5", kinds[k].nstates,
                        (scalars){(double)NAN, 0, 0.1, kinds[k].step ? 3 : 0}, NULL);
            CHECK_OK(t.b.status, &t.dg);
            for (int i = 0; i < 2 + kinds[k].nstates; i++) fill(&t, t.in[i], "x", 1);
            for (int i = 0; i < 15; i++)
                eval_set(&t.e, t.in[1], i, i % 2 ? (double)NAN : (double)INFINITY);
            uint8_t before[3][15 * 8];
            int64_t bytes = 15 * gw_dtype_bits(dtypes[d]) / 8;
            for (int i = 0; i <= kinds[k].nstates; i++)
                memcpy(before[i], eval_data(&t.e, t.in[i ? i + 1 : 0]), (size_t)bytes);
            eval_in_place(&t.e, 0);
            for (int i = 0; i <= kinds[k].nstates; i++)
                CHECK_MSG(memcmp(before[i], eval_data(&t.e, t.in[i ? i + 1 : 0]), (size_t)bytes) ==
                              0,
                          "%s %s output %d", kinds[k].op, gw_dtype_name(dtypes[d]), i);
            optim_release(&t);
        }
}

/* g and factor, or g times factor and 1: the same step (a power of two, so exactly). */
TEST(optimizers_multiply_the_gradient_by_factor) {
    for (size_t k = 0; k < GW_COUNT(kinds); k++) {
        optim t, u;
        optim *both[2] = {&t, &u};
        for (int j = 0; j < 2; j++) {
            optim_init(both[j]);
            optim_build(both[j], kinds[k].op, GW_F32, GW_F32, "f4 d6", kinds[k].nstates,
                        (scalars){j ? 1 : 0.125, 1, 0.1, kinds[k].step ? 2 : 0}, NULL);
            for (int i = 0; i < 2 + kinds[k].nstates; i++)
                fill(both[j], both[j]->in[i], i == 1 ? "g" : "p", 1);
            for (int64_t i = 0; i < t.n; i++) { /* second moments are not negative */
                if (kinds[k].nstates == 2) eval_set(&both[j]->e, both[j]->in[3], i, 0.5);
                if (j) eval_set(&u.e, u.in[1], i, get(&u, u.in[1], i) * 0.125);
            }
            run(both[j]);
        }
        for (int o = 0; o <= kinds[k].nstates; o++)
            for (int64_t i = 0; i < t.n; i++)
                CHECK_MSG(get(&t, t.out[o], i) == get(&u, u.out[o], i), "%s", kinds[k].op);
        optim_release(&t);
        optim_release(&u);
    }
}

TEST(optimizers_take_tensors_without_elements) {
    for (size_t k = 0; k < GW_COUNT(kinds); k++) {
        optim t;
        optim_init(&t);
        optim_build(&t, kinds[k].op, GW_F32, GW_F32, "f0 d4", kinds[k].nstates,
                    (scalars){1, 1, 0.1, kinds[k].step ? 1 : 0}, NULL);
        run(&t);
        optim_release(&t);
    }
}

TEST(optimizers_refuse_operands_of_other_shapes) {
    for (size_t k = 0; k < GW_COUNT(kinds); k++) {
        optim t;
        gw_vid in[9];
        int n = 0;
        optim_init(&t);
        in[n++] = leaf(&t, GW_F32, "f3 d4");
        in[n++] = leaf(&t, GW_F32, "f3 d5");
        for (int i = 0; i < kinds[k].nstates; i++) in[n++] = leaf(&t, GW_F32, "f3 d4");
        for (int i = 0; i < 3; i++) in[n++] = scalar(&t, 1);
        if (kinds[k].step) in[n++] = leaf(&t, GW_I64, "");
        gw_build(&t.b, kinds[k].op, in, n, NULL, NULL);
        CHECK_FAILS(t.b.status, &t.dg, "dimension d is 5");
        optim_release(&t);
    }
}

/* ---- norm and clipping ---- */

typedef struct clipping {
    double sumsq, inv_scale, max, norm, factor, ok;
} clipping;

/* By the formula of torch.nn.utils.clip_grad_norm_: max / (norm + 1e-6), at most 1. */
static const clipping clippings[] = {
    {25, 1, 1, 5, 1 / 5.000001, 1},
    {25, 1, 10, 5, 1, 1},
    {25, 1, 0, 5, 1, 1},
    {25, 0.5, 1, 2.5, 0.5 / 2.500001, 1},
    {25, 0.5, 0, 2.5, 0.5, 1},
    {0, 1, 1, 0, 1, 1},
    {(double)INFINITY, 1, 1, (double)INFINITY, 0, 0},
};

TEST(clip_by_hand) {
    for (size_t i = 0; i < GW_COUNT(clippings); i++) {
        const clipping *c = &clippings[i];
        optim t;
        gw_vid more[2];
        optim_init(&t);
        gw_vid in[2] = {scalar(&t, c->sumsq), scalar(&t, c->inv_scale)};
        gw_vid norm = gw_build(&t.b, "clip", in, 2, (gw_attr[]){{.f = c->max}}, more);
        run(&t);
        CHECK_NEAR(get(&t, norm, 0), c->norm, 1e-15);
        CHECK_NEAR(get(&t, more[0], 0), c->factor, 1e-15);
        CHECK_NEAR(get(&t, more[1], 0), c->ok, 0);
        optim_release(&t);
    }
}

TEST(clip_of_nan_is_not_ok) {
    optim t;
    gw_vid more[2];
    optim_init(&t);
    gw_vid in[2] = {scalar(&t, (double)NAN), scalar(&t, 1)};
    gw_build(&t.b, "clip", in, 2, (gw_attr[]){{.f = 1}}, more);
    run(&t);
    CHECK(get(&t, more[0], 0) == 0 && get(&t, more[1], 0) == 0);
    optim_release(&t);
}

/* 4096^2 = 2^24, where a float32 sum would stop counting ones. */
TEST(sqnorm_sums_in_float64) {
    optim t;
    optim_init(&t);
    gw_vid x = leaf(&t, GW_F32, "d101"), none = leaf(&t, GW_BF16, "b0 d7");
    eval_set(&t.e, x, 0, 4096);
    for (int i = 1; i <= 100; i++) eval_set(&t.e, x, i, i % 2 ? 1 : -1);
    gw_vid s = gw_build1(&t.b, "sqnorm", x), zero = gw_build1(&t.b, "sqnorm", none);
    run(&t);
    CHECK_EQ(gw_type_of(&t.g, s)->dtype, GW_F32);
    CHECK_NEAR(get(&t, s, 0), 16777316, 0);
    CHECK_NEAR(get(&t, zero, 0), 0, 0);
    optim_release(&t);
}
