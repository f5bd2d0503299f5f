// SPDX-License-Identifier: Apache-2.0
// The kernels of eight-bit floats beyond the suite: bit for bit where they promise it, within the
// bound of cpu/fp8_matmul.c where they do not, over several tiles and blocks, on any threads.
#include <stdlib.h>
#include <string.h>

#include "base/num.h" /* gw_f32_bits */
#include "base/rng.h" /* gw_rng_normal */
#include "harness.h"
#include "ops/fp8.h" /* gw_fp8_product_of */
#include "ops/ops.h"
#include "run.h"

typedef struct test_product {
    const char *op, *x, *w, *along, *x_across, *w_across, *extra;
    gw_dtype dtype;
    bool pow2;
} test_product;

static gw_vid quantise(gw_case *c, const char *dims, const char *along, const char *across,
                       bool pow2, gw_vid *scales) {
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_attr a[4] = {{.s = gw_graph_intern(&c->g, along)},
                    {.s = gw_graph_intern(&c->g, across)},
                    {.i = GW_F8E4M3},
                    {.i = pow2}};
    return gw_build(&c->b, "fp8_quant", &x, 1, a, scales);
}

static gw_case *make(gw_cases *cs, const test_product *t) {
    gw_case *c = gw_case_begin(cs, t->x);
    gw_vid in[5];
    in[0] = quantise(c, t->x, t->along, t->x_across, t->pow2, &in[1]);
    in[2] = quantise(c, t->w, t->along, t->w_across, t->pow2, &in[3]);
    in[4] = t->extra ? gw_case_fixed(c, t->dtype, t->extra, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build(&c->b, t->op, in, 5, (gw_attr[]){{.i = t->dtype}, {.i = 0}}, NULL);
    CHECK_OK(c->b.status, cs->dg);
    return c;
}

static void *data_of(void *user, gw_vid v) { return ((void **)user)[v]; }

/* sum over blocks of 2 c u |scale| sum |x||w|, as the kernel's page says; and, for the float32 sum
 * over blocks on different parts, 2 u of its running sums' size. */
static double bound_of(const gw_fp8_product *p, int64_t i, int64_t j) {
    double u = 0x1p-24, bound = 0;
    for (int64_t q = 0; q < p->blocks; q++) {
        int64_t first, count;
        gw_fp8_block_of(p, q, &first, &count);
        double mass = 0;
        for (int64_t k = first; k < first + count; k++) {
            int64_t a = p->a.leading ? k * p->m + i : i * p->k + k;
            int64_t b = p->b.leading ? k * p->n + j : j * p->k + k;
            mass += fabs((double)gw_fp8_decode(p->a.format, p->a.values[a])) *
                    fabs((double)gw_fp8_decode(p->b.format, p->b.values[b]));
        }
        mass *= (double)gw_fp8_scale_at(&p->a, p->blocks, i, q) *
                (double)gw_fp8_scale_at(&p->b, p->blocks, j, q);
        bound += 2 * (double)(count + p->blocks) * u * mass;
    }
    return bound;
}

static void check_product(const test_product *t, int threads) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, t->op, GW_F32, &dg);
    gw_case *c = make(&cs, t);
    const gw_kernel *k =
        kernel_named(strcmp(t->op, "fp8_matmul") == 0 ? "cpu-fp8-matmul" : "cpu-fp8-matmul-dw");
    values v;
    values_init(&v, c);
    for (gw_oid o = 0; o < 3; o++) values_reference(&v, o);
    const gw_op *o = &c->g.ops.items[2];
    void *out[GW_MAX_OUT];
    run_kernel(&v, 2, k, threads, RUN_APART, out);
    gw_tensor in[GW_MAX_IN], outs[GW_MAX_OUT];
    gw_kargs a = {0};
    gw_kargs_bind(&a, &c->g, o, in, outs, data_of, v.data, 0);
    gw_fp8_product p = gw_fp8_product_of(&a);
    const float *want = v.data[gw_op_out(&c->g, o, 0)], *got = out[0];
    double worst = 0;
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            double y = (double)want[i * p.n + j], d = fabs((double)got[i * p.n + j] - y);
            double bound = bound_of(&p, i, j) + 0x1p-23 * fabs(y);
            if (t->extra) bound += 0x1p-22 * 4; /* a normal number joins and is rounded */
            worst = fmax(worst, d / bound);
            CHECK_MSG(d <= bound, "%s: element %lld %lld is off by %g of %g", t->x, (long long)i,
                      (long long)j, d, bound);
        }
    test_note("%s %s: at most %.3g of the bound", t->op, t->x, worst);
    outputs_free(&v, 2, out);
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

TEST(fp8_products_are_within_their_bound) {
    static const test_product all[] = {
        {"fp8_matmul", "s300 d400", "f270 d400", "d", "", "f", NULL, GW_F32, false},
        {"fp8_matmul", "s300 d130", "f270 d130", "d", "", "f", "f270", GW_F32, true},
        {"fp8_matmul", "b2 s5 h3 k200", "d261 h3 k200", "k", "", "d", NULL, GW_F32, false},
        {"fp8_matmul", "s261 f257", "f257 d140", "f", "", "d", NULL, GW_F32, false},
        {"fp8_matmul", "f257 d261", "f257 s20", "f", "d", "", NULL, GW_F32, false},
        {"fp8_matmul_dw", "b2 s200 f261", "b2 s200 d20", "s", "", "", NULL, GW_F32, false},
        {"fp8_matmul_dw", "b2 s200 f20", "b2 s200 d261", "s", "", "", "f20 d261", GW_F32, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int threads = 1; threads <= 2; threads++) check_product(&all[i], threads);
}

/* ---- the vector loops equal the reference's bytes ---- */

static void check_bytes(const char *dims, const char *along, const char *across, gw_dtype dtype,
                        gw_dtype format, bool pow2) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "fp8_dequant", dtype, &dg);
    gw_case *c = gw_case_begin(&cs, dims);
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0), in[2];
    gw_attr a[4] = {{.s = gw_graph_intern(&c->g, along)},
                    {.s = gw_graph_intern(&c->g, across)},
                    {.i = format},
                    {.i = pow2}};
    in[0] = gw_build(&c->b, "fp8_quant", &x, 1, a, &in[1]);
    gw_build(&c->b, "fp8_dequant", in, 2, (gw_attr[]){{.i = dtype}}, NULL);
    CHECK_OK(c->b.status, &dg);
    values v;
    values_init(&v, c);
    int64_t n = gw_type_elems(gw_type_of(&c->g, x));
    if (dtype == GW_F32) { /* a spread of magnitudes, and what is not finite or hardly a number */
        gw_rng_key key = gw_rng_key_named(9, dims);
        float *f = v.data[x];
        for (int64_t i = 0; i < n; i++) f[i] *= exp2f(8 * (float)gw_rng_normal(key, (uint64_t)i));
        f[0] = INFINITY;
        f[n / 2] = -NAN;
        f[n - 1] = -0.0f;
        f[n / 3] = 1e-42f;
    }
    static const char *const names[2] = {"cpu-fp8_quant", "cpu-fp8_dequant"};
    for (gw_oid o = 0; o < 2; o++) {
        values_reference(&v, o);
        const gw_op *op = &c->g.ops.items[o];
        gw_machine m = gw_machine_this(2);
        const gw_kernel *k = kernel_named(names[o]);
        CHECK(gw_kernel_choose(&c->g, op, &m) == k);
        for (int threads = 1; threads <= 2; threads++) {
            void *out[GW_MAX_OUT];
            run_kernel(&v, o, k, threads, RUN_APART, out);
            for (int i = 0; i < op->nout; i++) {
                gw_vid y = gw_op_out(&c->g, op, i);
                const uint8_t *p = out[i], *q = v.data[y];
                for (int64_t b = 0; b < value_bytes(&c->g, y); b++)
                    CHECK_MSG(p[b] == q[b] || (o == 1 && isnan(((const float *)out[i])[b / 4])),
                              "%s of %s: output %d byte %lld", k->name, dims, i, (long long)b);
            }
            outputs_free(&v, o, out);
        }
    }
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

TEST(fp8_vector_loops_equal_the_reference) {
    for (int pow2 = 0; pow2 < 2; pow2++) {
        check_bytes("b3 s70 d400", "d", "", GW_F32, GW_F8E4M3, pow2);
        check_bytes("b3 s300 d70", "s", "", GW_F32, GW_F8E4M3, pow2);
        check_bytes("f300 d400", "d", "f", GW_F32, GW_F8E4M3, pow2);
        check_bytes("h3 k150 d300", "d", "k", GW_F32, GW_F8E4M3, pow2);
        check_bytes("d300 h3 k150", "k", "d", GW_F32, GW_F8E4M3, pow2);
        check_bytes("b2 s130 h3 k40", "s", "", GW_F32, GW_F8E5M2, pow2);
        check_bytes("s300", "s", "", GW_F32, GW_F8E4M3, pow2);
        check_bytes("s1 d300", "s", "", GW_F32, GW_F8E4M3, pow2);
        check_bytes("s300 d1", "s", "", GW_F32, GW_F8E4M3, pow2);
    }
}

/* A kernel of emulation says so wherever kernels are listed. */
TEST(fp8_kernels_say_that_they_emulate) {
    int n = 0;
    for (int i = 0; gw_kernel_at(i); i++) {
        if (strncmp(gw_kernel_at(i)->op, "fp8_", 4) != 0) continue;
        CHECK_MSG(strstr(gw_kernel_at(i)->note, "emulated"), "%s", gw_kernel_at(i)->name);
        n++;
    }
    CHECK_EQ(n, 4);
}
