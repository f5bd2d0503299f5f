// SPDX-License-Identifier: Apache-2.0
// Products larger than a tile, of odd sizes, checked at elements: corners, both sides of each tile
// border, and others.
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/rng.h"   /* gw_rng_u64 */
#include "harness.h"
#include "kernel/cpu/dnnl.h" /* gw_dnnl_product_scratch */
#include "ops/contract.h"    /* gw_contract_local */
#include "ops/ref.h"         /* gw_ref_dot */
#include "run.h"

static void *data_of(void *user, gw_vid v) { return ((void **)user)[v]; }

static int64_t probe(gw_rng_key key, int i, int64_t n) {
    const int64_t corners[] = {0, 1023, 1024, n - 1};
    if (i < 4) return GW_MIN(corners[i], n - 1);
    return (int64_t)(gw_rng_u64(key, (uint64_t)i) % (uint64_t)n);
}

/* Checks c against float64 sums at 16 x 16 elements. */
static void check_product(const values *v, gw_oid o, void *result, bool bias, bool acc) {
    const gw_op *op = &v->c->g.ops.items[o];
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    gw_kargs k = {0};
    gw_kargs_bind(&k, &v->c->g, op, in, out, data_of, v->data, 0);
    gw_contract_sizes s = gw_contract_local(&k);
    out[0].data = result;
    gw_rng_key key = gw_rng_key_named(7, v->c->name);
    double unit = out[0].dtype == GW_BF16 ? 0x1p-8 : out[0].dtype == GW_F16 ? 0x1p-11 : 0;
    for (int a = 0; a < 16; a++)
        for (int b = 0; b < 16; b++) {
            int64_t i = probe(key, a, s.m), j = probe(gw_rng_key_fold(key, 1), b, s.n);
            double want = gw_ref_dot(&in[0], i * s.a_m, s.a_k, &in[1], j * s.b_n, s.b_k, s.k);
            if (bias) want += gw_ref_acc(&k, 2, j);
            if (acc) want += gw_ref_acc(&k, 2, i * s.n + j);
            double got = gw_ref_get(&out[0], i * s.n + j);
            /* Terms are of size 1: float32 sums of k of them are off by about sqrt(k) steps of
             * 2^-24 sqrt(k). */
            double tol = 2 * unit * fabs(want) + 4 * (double)s.k * 0x1p-24 + 1e-6;
            CHECK_MSG(fabs(got - want) <= tol, "%s [%lld, %lld]: %.9g, exact %.9g", v->c->name,
                      (long long)i, (long long)j, got, want);
        }
}

typedef struct shape {
    const char *a, *b, *extra; /* extra NULL: none */
} shape;

static void run_shapes(const char *op, const char *kernel, gw_dtype dtype, const shape *shapes,
                       int n, gw_dtype out) {
    bool dw = strcmp(op, "matmul_dw") == 0;
    gw_machine m = gw_machine_this(2);
    for (int i = 0; i < n; i++) {
        gw_diags dg;
        gw_diags_init(&dg);
        gw_cases cs;
        own_cases(&cs, op, dtype, &dg);
        gw_case *c = gw_case_begin(&cs, shapes[i].a);
        gw_vid in[3] = {gw_case_value(c, shapes[i].a, false, GW_FILL_NORMAL, 1, 0),
                        gw_case_value(c, shapes[i].b, false, GW_FILL_NORMAL, 1, 0), GW_NONE};
        if (shapes[i].extra)
            in[2] = gw_case_fixed(c, dw ? out : dtype, shapes[i].extra, GW_FILL_NORMAL, 1, 0);
        gw_build(&c->b, op, in, 3, (gw_attr[]){{.i = out}}, NULL);
        CHECK_OK(c->b.status, &dg);
        const gw_kernel *k = kernel_named(kernel);
        const gw_op *o = &c->g.ops.items[0];
        if (!k->supports(&c->g, o, &m)) SKIP("%s does not run on this processor", kernel);
        values v;
        values_init(&v, c);
        for (int threads = 1; threads <= 3; threads++) {
            void *result[GW_MAX_OUT];
            run_kernel(&v, 0, k, threads, RUN_APART, result);
            check_product(&v, 0, result[0], shapes[i].extra && !dw, shapes[i].extra && dw);
            outputs_free(&v, 0, result);
        }
        values_release(&v);
        gw_cases_release(&cs);
        gw_diags_release(&dg);
    }
}

static const shape linear[] = {
    {"b3 s43 d129", "f257 d129", NULL},   {"b3 s43 d129", "h3 k65 d129", "h3 k65"},
    {"s1 d1031", "f1027 d1031", "f1027"}, {"b2 s515 h3 k33", "d71 h3 k33", "d71"},
    {"s130 f1100", "f1100 d1030", NULL},  {"d1100 s70", "d1100 f1030", "f1030"},
    {"s1030 d64", "f1 d64", NULL},
};
static const shape gradients[] = {
    {"b3 s43 f257", "b3 s43 d129", NULL},
    {"b3 s43 f257", "b3 s43 d129", "f257 d129"},
    {"b2 s520 h2 k64", "b2 s520 d1030", "h2 k64 d1030"},
    {"f1026 s40", "d1030 s40", "f1026 d1030"},
    {"b1 s1 f300", "b1 s1 d200", "f300 d200"},
};
#define N(shapes) (int)GW_COUNT(shapes)

TEST(linear_f32) { run_shapes("matmul", "onednn-matmul", GW_F32, linear, N(linear), GW_F32); }
TEST(linear_bf16) { run_shapes("matmul", "onednn-matmul", GW_BF16, linear, N(linear), GW_BF16); }
TEST(linear_tiles_f32) {
    run_shapes("matmul", "onednn-matmul-f32tiles", GW_F32, linear, N(linear), GW_F32);
}
TEST(linear_tiles_bf16) {
    run_shapes("matmul", "onednn-matmul-f32tiles", GW_BF16, linear, N(linear), GW_BF16);
}
TEST(linear_tiles_bf16_to_f32) {
    run_shapes("matmul", "onednn-matmul-f32tiles", GW_BF16, linear, N(linear), GW_F32);
}
TEST(linear_tiles_f16) {
    run_shapes("matmul", "onednn-matmul-f32tiles", GW_F16, linear, N(linear), GW_F16);
}
TEST(weight_gradient_f32) {
    run_shapes("matmul_dw", "onednn-matmul-dw", GW_F32, gradients, N(gradients), GW_F32);
}
TEST(weight_gradient_bf16) {
    run_shapes("matmul_dw", "onednn-matmul-dw", GW_BF16, gradients, N(gradients), GW_F32);
}
TEST(weight_gradient_tiles_bf16_into_f32) {
    run_shapes("matmul_dw", "onednn-matmul-dw-f32tiles", GW_BF16, gradients, N(gradients), GW_F32);
}
TEST(weight_gradient_tiles_bf16_into_bf16) {
    run_shapes("matmul_dw", "onednn-matmul-dw-f32tiles", GW_BF16, gradients, N(gradients), GW_BF16);
}
TEST(weight_gradient_tiles_f16_into_f32) {
    run_shapes("matmul_dw", "onednn-matmul-dw-f32tiles", GW_F16, gradients, N(gradients), GW_F32);
}

/* a [m k] times b [k n], each stored one way or the other. */
static gw_dnnl_spec product_of(int64_t m, int64_t n, int64_t k, int ways) {
    gw_dnnl_spec s = {.threads = 1};
    s.a = (gw_dnnl_mat){NULL, GW_F32, m, k, ways & 1 ? 1 : k, ways & 1 ? m : 1};
    s.b = (gw_dnnl_mat){NULL, GW_F32, k, n, ways & 2 ? 1 : n, ways & 2 ? k : 1};
    s.c = (gw_dnnl_mat){NULL, GW_F32, m, n, n, 1};
    return s;
}

/* The library keeps what it made; where a dimension has one element it took a product for another
 * that is stored the other way, and asked for that one's scratch. */
TEST(scratch_of_a_product_is_the_same_after_any_others) {
    static const int64_t sizes[] = {1, 2, 8, 30};
    enum { SIZES = GW_COUNT(sizes), ALL = SIZES * SIZES * SIZES * 4 };
    int64_t first[ALL];
    float *data = gw_mem_zalloc(1 << 20);
    gw_diags dg;
    gw_diags_init(&dg);
    for (int turn = 0; turn < 3; turn++)
        for (int x = 0; x < ALL; x++) {
            int i = turn == 1 ? ALL - 1 - x : x;
            gw_dnnl_spec s = product_of(sizes[i / 4 % SIZES], sizes[i / 4 / SIZES % SIZES],
                                        sizes[i / 4 / SIZES / SIZES], i % 4);
            int64_t scratch = gw_dnnl_product_scratch(&s);
            if (turn == 0) first[i] = scratch; /* nothing is made yet */
            CHECK_EQ(scratch, first[i]);
            if (turn == 0) continue;
            gw_dnnl_product p = {0};
            s.a.data = s.b.data = data;
            s.c.data = data + 1024;
            CHECK_OK(gw_dnnl_product_make(&p, &s, data + 2048, &dg), &dg);
            CHECK_EQ(gw_dnnl_product_scratch(&s), first[i]);
            gw_dnnl_product_release(&p);
        }
    gw_mem_free(data);
    gw_diags_release(&dg);
}

/* Lengths that the library cannot count are not shown to it. */
TEST(a_product_longer_than_the_library_counts_is_refused) {
    gw_dnnl_spec s = product_of(32, 64, INT64_C(1) << 33, 2);
    CHECK_EQ(gw_dnnl_product_scratch(&s), -1);
}
