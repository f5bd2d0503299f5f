// SPDX-License-Identifier: Apache-2.0
// Facts about single ops that finite differences cannot see: messages of refused shapes,
// signatures, work, and what the reference kernels compute, against arithmetic by hand and
// independent plain formulas.
#include <string.h>

#include "base/rng.h" /* gw_rng_normal */
#include "bench.h"    /* bench */
#include "harness.h"  /* TEST, CHECK */
#include "ops/ops.h"  /* gw_ops_table */

/* ---- a graph of one or a few ops, typed in ---- */

/* Builds op `name` on f32 leaves (or i32 where the text begins with #, absent where it is NULL). */
static gw_vid build(bench *t, const char *name, const char *const *dims, int n,
                    const gw_attr *attrs) {
    gw_vid in[GW_MAX_IN];
    for (int i = 0; i < n; i++)
        in[i] = !dims[i]            ? GW_NONE
                : dims[i][0] == '#' ? bench_leaf(t, GW_I32, dims[i] + 1)
                                    : bench_leaf(t, GW_F32, dims[i]);
    return gw_build(&t->b, name, in, n, attrs, NULL);
}

static const gw_op *last_op(const bench *t) { return &t->g.ops.items[t->g.ops.count - 1]; }

/* ---- inference ---- */

typedef struct refusal {
    const char *op;
    const char *dims[8];
    int n;
    gw_attr attrs[10];
    const char *says[3];
} refusal;

static const refusal refusals[] = {
    {"matmul",
     {"b4 s512 d768", "v1000 d512"},
     2,
     {{.i = -1}},
     {"dimension d is 768 in input 0, f32[b4 s512 d768]", "but 512 in input 1, f32[v1000 d512]",
      "matmul: "}},
    {"matmul",
     {"b4 d8", "f3 k8"},
     2,
     {{.i = -1}},
     {"share no dimension", "f32[b4 d8]", "f32[f3 k8]"}},
    {"matmul",
     {"b2 d4 s3", "f5 d4"},
     2,
     {{.i = -1}},
     {"the leading or the trailing", "f32[b2 d4 s3]", "f32[f5 d4]"}},
    {"matmul",
     {"s3 h2 k4", "d5 k4 h2"},
     2,
     {{.i = -1}},
     {"different orders", "f32[s3 h2 k4]", "f32[d5 k4 h2]"}},
    {"matmul",
     {"s3 d4", "f5 d4", "f6"},
     3,
     {{.i = -1}},
     {"dimension f is 6", "f32[f6]", "f32[f5 d4]"}},
    {"matmul",
     {"d4", "f5 d4"},
     2,
     {{.i = -1}},
     {"a dimension of their own", "f32[d4]", "f32[f5 d4]"}},
    {"matmul_dw",
     {"b2 s3 f4", "b2 s5 d6"},
     2,
     {{.i = GW_F32}},
     {"dimension s is 3", "f32[b2 s3 f4]", "f32[b2 s5 d6]"}},
    {"matmul_dw",
     {"s3 f4", "s3 d6", "f4 d7"},
     3,
     {{.i = GW_F32}},
     {"accumulator", "f32[f4 d7]", "f32[f4 d6]"}},
    {"bias_grad", {"s3 f4"}, 1, {{.i = 3}, {.i = GW_F32}}, {"keep is 3", "f32[s3 f4]", ""}},
    {"add", {"b2 d4", "b2 d5"}, 2, {{0}}, {"dimension d is 4", "f32[b2 d4]", "f32[b2 d5]"}},
    {"add", {"b2 d4", "d4"}, 2, {{0}}, {"the same dimensions", "f32[b2 d4]", "f32[d4]"}},
    {"add", {"b2 d4", "s2 d4"}, 2, {{0}}, {"dimension b of input 0", "f32[s2 d4], has s", ""}},
    {"embed", {"b2 s3", "v5 d4"}, 2, {{0}}, {"must be i32 or i64", "f32[b2 s3]", ""}},
    {"embed", {"#b2 s3", "d4"}, 2, {{0}}, {"must have 2 dimensions, not 1", "f32[d4]", ""}},
    {"embed_grad",
     {"#b2 s3", "b2 s4 d5"},
     2,
     {{.i = 5}, {.i = GW_F32}, {.s = 0}},
     {"dimension s is 3", "i32[b2 s3]", "f32[b2 s4 d5]"}},
    {"cast", {"#s3"}, 1, {{.i = GW_F32}}, {"float dtype", "i32[s3]", ""}},
    {"cast", {"s3"}, 1, {{.i = GW_I32}}, {"attribute dtype must be a float dtype", "", ""}},
    {"rmsnorm",
     {"b2 s3 d4", "d5"},
     2,
     {{.f = 1e-6}},
     {"dimension d is 5", "f32[b2 s3 d4]", "f32[d5]"}},
    {"rmsnorm", {"b2 s3 d4", "k4"}, 2, {{.f = 1e-6}}, {"dimension k of input 1", "has d", ""}},
    {"layernorm",
     {"s3 d4", "d4", "d3"},
     3,
     {{.f = 1e-5}},
     {"dimension d is 3", "input 2", "f32[s3 d4]"}},
    {"rope",
     {"b1 s2 h3 k8", "b1 s2 r3", "b1 s2 r3"},
     3,
     {{.i = 0}},
     {"half as long", "f32[b1 s2 r3]", "f32[b1 s2 h3 k8]"}},
    {"rope", {"b1 s2 h3 k8", "b1 s3 r4", "b1 s3 r4"}, 3, {{.i = 0}}, {"dimension s is 3", "", ""}},
    {"rope_table", {"#b1 s2"}, 1, {{.i = 5}}, {"even", "5", ""}},
    {"attention",
     {"b1 s4 h6 k2", "b1 s4 g4 k2", "b1 s4 g4 k2"},
     3,
     {{.i = 1}},
     {"multiple of the heads", "f32[b1 s4 h6 k2]", "f32[b1 s4 g4 k2]"}},
    {"attention",
     {"b1 s4 h4 k2", "b1 s5 g4 k2", "b1 s5 g4 k2"},
     3,
     {{.i = 1}},
     {"dimension s is 5", "f32[b1 s4 h4 k2]", ""}},
    {"attention",
     {"b1 s4 h4 k2", "b1 s4 g4 k2", "b1 s4 g2 k2"},
     3,
     {{.i = 1}},
     {"dimension g is 2", "but 4", ""}},
    {"attention",
     {"b1 s4 h4 k2", "b1 s4 g4 k2", "b1 s4 g4 k2", "#b1 s3"},
     4,
     {{.i = 1}},
     {"dimension s is 3", "i32[b1 s3]", ""}},
    {"attention",
     {"b1 s4 h4 k2", "b1 s4 g4 k2", "b1 s4 g4 k2"},
     3,
     {{.i = 1}, {.i = -1}},
     {"window is -1", "", ""}},
    {"head",
     {"b2 s3 d4", "v7 d5", "#b2 s3", ""},
     4,
     {{0}},
     {"dimension d is 5", "f32[v7 d5]", "f32[b2 s3 d4]"}},
    {"head",
     {"b2 s3 d4", "v7 d4", "#b2", ""},
     4,
     {{0}},
     {"must have 2 dimensions, not 1", "i32[b2]", ""}},
    {"head", {"b2 s3 d4", "v7 d4", "#b2 s3", "b2"}, 4, {{0}}, {"scalar", "f32[b2]", ""}},
    {"swiglu", {"s3 f4", "s3 f5"}, 2, {{0}}, {"dimension f is 5", "f32[s3 f4]", "f32[s3 f5]"}},
};

TEST(refused_shapes_are_named) {
    for (size_t i = 0; i < GW_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        bench t;
        bench_init(&t);
        gw_builder_enter(&t.b, "layer 3");
        build(&t, r->op, r->dims, r->n, r->attrs);
        for (int k = 0; k < 3; k++)
            if (r->says[k]) CHECK_FAILS(t.b.status, &t.dg, r->says[k]);
        CHECK_EQ(t.b.status, GW_ERR_CONFIG);
        bench_release(&t);
    }
}

static void check_type(bench *t, gw_vid v, gw_dtype dtype, const char *dims) {
    gw_type want = gw_type_make(dtype, dims);
    CHECK_OK(t->b.status, &t->dg);
    CHECK_MSG(gw_type_same_dims(gw_type_of(&t->g, v), &want), "not %s", dims);
    CHECK_EQ(gw_type_of(&t->g, v)->dtype, dtype);
}

TEST(shapes_follow_names) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_BF16, "b2 s3 d8"), wq = bench_leaf(&t, GW_BF16, "h4 k2 d8"), o[3];
    gw_vid q = gw_build1(&t.b, "matmul", x, wq);
    check_type(&t, q, GW_BF16, "b2 s3 h4 k2");
    check_type(&t, gw_build1(&t.b, "matmul", q, bench_leaf(&t, GW_BF16, "d8 h4 k2")), GW_BF16,
               "b2 s3 d8");
    check_type(&t, gw_build1(&t.b, "matmul", q, wq), GW_BF16, "b2 s3 d8");
    check_type(&t, gw_build1(&t.b, "matmul_dw", q, x), GW_F32, "h4 k2 d8");
    gw_build(&t.b, "rmsnorm", (gw_vid[]){q, bench_leaf(&t, GW_BF16, "k2")}, 2, NULL, o);
    check_type(&t, o[0], GW_F32, "b2 s3 h4");
    gw_attr rows[] = {{.i = 16}, {.i = GW_BF16}, {.s = gw_graph_intern(&t.g, "p")}};
    gw_vid ids = bench_leaf(&t, GW_I32, "b2 s3");
    check_type(&t, gw_build(&t.b, "embed_grad", (gw_vid[]){ids, x}, 2, rows, NULL), GW_BF16,
               "p16 d8");
    check_type(&t, gw_build1(&t.b, "embed_grad", ids, x), GW_F32, "v1 d8");
    gw_vid kv = bench_leaf(&t, GW_BF16, "b2 s3 g2 k2");
    gw_build(&t.b, "attention", (gw_vid[]){q, kv, kv}, 3, NULL, o);
    check_type(&t, o[0], GW_F32, "b2 s3 h4");
    bench_release(&t);
}

/* ---- signatures ---- */

static const gw_factor *factor(const gw_signature *s, const char *name) {
    for (int i = 0; i < s->nfactors; i++)
        if (strcmp(s->factors[i].name, name) == 0) return &s->factors[i];
    test_fail(__FILE__, __LINE__, "no factor %s", name);
}

/* kinds: one word a factor, "b=pass d=contract s=whole". */
static void check_signature(const char *op, const char *const *dims, int n, const gw_attr *attrs,
                            const char *kinds, gw_signature *s) {
    bench t;
    bench_init(&t);
    build(&t, op, dims, n, attrs);
    CHECK_OK(t.b.status, &t.dg);
    gw_op_def(&t.g, last_op(&t))->sign(&t.g, last_op(&t), s);
    static const char *const names[] = {"pass", "contract", "whole"};
    int count = 0;
    char text[128];
    snprintf(text, sizeof text, "%s", kinds);
    for (char *save = NULL, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        *eq = 0;
        CHECK_MSG(strcmp(names[factor(s, w)->kind], eq + 1) == 0, "%s: factor %s is %s", op, w,
                  names[factor(s, w)->kind]);
        count++;
    }
    CHECK_EQ(s->nfactors, count);
    bench_release(&t);
}

TEST(factors_pass_contract_or_stay_whole) {
    gw_signature s;
    const char *mm[] = {"b2 s3 d4", "f5 d4", "f5"};
    check_signature("matmul", mm, 3, NULL, "b=pass s=pass d=contract f=pass", &s);
    CHECK_EQ(factor(&s, "d")->in_dim[0], 2);
    CHECK_EQ(factor(&s, "d")->in_dim[1], 1);
    CHECK_EQ(factor(&s, "f")->in_dim[2], 0);
    CHECK_EQ(factor(&s, "f")->out_dim[0], 2);
    const char *dw[] = {"b2 s3 f5", "b2 s3 d4"};
    check_signature("matmul_dw", dw, 2, NULL, "b=contract s=contract f=pass d=pass", &s);
    const char *bias[] = {"b2 s3 f5"};
    check_signature("bias_grad", bias, 1, NULL, "b=contract s=contract f=pass", &s);
    const char *norm[] = {"b2 s3 d4", "d4"};
    check_signature("rmsnorm", norm, 2, NULL, "b=pass s=pass d=whole", &s);
    const char *norm_grad[] = {"b2 s3 d4", "b2 s3 d4", "d4", "b2 s3"};
    check_signature("rmsnorm_grad", norm_grad, 4, NULL, "b=pass s=pass d=whole", &s);
    CHECK_EQ(factor(&s, "s")->out_dim[1], -1); /* dg lacks it: a partial sum */
    const char *ln[] = {"s3 d4", "d4", "d4"};
    check_signature("layernorm", ln, 3, NULL, "s=pass d=whole", &s);
    const char *embed[] = {"#b2 s3", "v7 d4"};
    check_signature("embed", embed, 2, NULL, "b=pass s=pass v=contract d=pass", &s);
    const char *scatter[] = {"#b2 s3", "b2 s3 d4"};
    check_signature("embed_grad", scatter, 2, NULL, "b=contract s=contract d=pass v=pass", &s);
    const char *rope[] = {"b1 s2 h3 k8", "b1 s2 r4", "b1 s2 r4"};
    check_signature("rope", rope, 3, NULL, "b=pass s=pass h=pass k=whole r=whole", &s);
    const char *att[] = {"b1 s4 h4 k2", "b1 s4 g2 k2", "b1 s4 g2 k2", "#b1 s4"};
    check_signature("attention", att, 4, NULL, "b=pass s=whole h=pass k=whole g=pass", &s);
    CHECK_STR(factor(&s, "g")->with, "h");
    CHECK_STR(factor(&s, "h")->with, "");
    const char *head[] = {"b2 s3 d4", "v7 d4", "#b2 s3", ""};
    check_signature("head", head, 4, NULL, "b=contract s=contract d=whole v=whole", &s);
    check_signature("head_grad", head, 4, NULL, "b=pass s=pass d=whole v=whole", &s);
    CHECK_EQ(factor(&s, "s")->out_dim[1], -1);
    const char *stats[] = {"b2 s3 d4", "v7 d4", "#b2 s3"}; /* the parts that v is in go with it */
    check_signature("head_stats", stats, 3, NULL,
                    "b=pass s=pass d=whole v=contract part=pass stat=pass", &s);
    CHECK_STR(factor(&s, "part")->with, "v");
    const char *part[] = {"b2 s3 d4", "v7 d4", "#b2 s3", "b2 s3", "b2 s3 sum2", ""};
    check_signature("head_part_grad", part, 6, NULL, "b=pass s=pass d=whole v=pass sum=contract",
                    &s);
    CHECK_EQ(factor(&s, "v")->out_dim[0], -1);     /* dx is a partial sum over the vocabulary */
    const char *drop[] = {"b2 s3 d4", "#b2", "#"}; /* a mask is a function of places */
    check_signature("dropout", drop, 3, NULL, "b=pass s=pass d=pass", &s);
}

/* ---- work ---- */

static gw_cost cost_of(const char *op, const char *const *dims, int n, const gw_attr *attrs) {
    bench t;
    bench_init(&t);
    gw_cost c;
    build(&t, op, dims, n, attrs);
    CHECK_OK(t.b.status, &t.dg);
    gw_op_def(&t.g, last_op(&t))->cost(&t.g, last_op(&t), &c);
    bench_release(&t);
    return c;
}

TEST(products_cost_two_flops_a_multiply_add) {
    const char *mm[] = {"b4 s512 d768", "f3072 d768", "f3072"};
    gw_cost c = cost_of("matmul", mm, 3, NULL);
    CHECK_EQ(c.flops, INT64_C(2) * 2048 * 3072 * 768);
    CHECK_EQ(c.flops_full, c.flops);
    CHECK_EQ(c.bytes_read, INT64_C(4) * (2048 * 768 + 3072 * 768 + 3072));
    CHECK_EQ(c.bytes_written, INT64_C(4) * 2048 * 3072);
    const char *dw[] = {"b4 s512 h12 k64", "b4 s512 d768"};
    CHECK_EQ(cost_of("matmul_dw", dw, 2, NULL).flops, INT64_C(2) * 2048 * 768 * 768);
    const char *head[] = {"b4 s512 d768", "v50257 d768", "#b4 s512", ""};
    CHECK_EQ(cost_of("head", head, 4, NULL).flops, INT64_C(2) * 2048 * 50257 * 768);
    CHECK_EQ(cost_of("head_grad", head, 4, NULL).flops, INT64_C(6) * 2048 * 50257 * 768);
    const char *embed[] = {"#b4 s512", "v50257 d768"};
    c = cost_of("embed", embed, 2, NULL); /* a table is not read whole */
    CHECK_EQ(c.bytes_read, INT64_C(4) * 2048 + INT64_C(4) * 2048 * 768);
    CHECK_EQ(c.flops, 0);
}

static int64_t seen_pairs(int64_t s, bool causal, int64_t window) {
    int64_t n = 0;
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < s; j++) n += (!causal || j <= i) && (window == 0 || i - j < window);
    return n;
}

/* 2 products of 2k flops for each pair of a query and a key it sees, in each head; 5 products
 * backward. */
TEST(attention_costs_what_is_seen) {
    for (int64_t s = 1; s <= 9; s++)
        for (int causal = 0; causal < 2; causal++)
            for (int64_t window = 0; window <= 10; window++) {
                char q[64], kv[64], lse[64];
                snprintf(q, sizeof q, "b2 s%lld h4 k8", (long long)s);
                snprintf(kv, sizeof kv, "b2 s%lld g2 k8", (long long)s);
                snprintf(lse, sizeof lse, "b2 s%lld h4", (long long)s);
                const char *f[] = {q, kv, kv}, *b[] = {q, q, kv, kv, q, lse};
                gw_attr a[] = {{.i = causal}, {.i = window}, {.f = 0}};
                gw_cost fwd = cost_of("attention", f, 3, a),
                        bwd = cost_of("attention_grad", b, 6, a);
                CHECK_EQ(fwd.flops, 2 * 4 * 4 * 8 * seen_pairs(s, causal, window));
                CHECK_EQ(fwd.flops_full, 2 * 4 * 4 * 8 * s * s);
                CHECK_EQ(2 * bwd.flops, 5 * fwd.flops);
                CHECK_EQ(2 * bwd.flops_full, 5 * fwd.flops_full);
            }
}

/* ---- attention against a plain softmax ---- */

typedef struct mask {
    bool causal;
    int window;
    const int *docs;
} mask;

static bool allowed(const mask *m, int i, int j) {
    return (!m->causal || j <= i) && (!m->window || i - j < m->window) &&
           (!m->docs || m->docs[i] == m->docs[j]);
}

/* One batch row; q[s][H][K], k and v[s][G][K] as plain arrays; softmax as written in textbooks. */
#define S 9
#define H 4
#define G 2
#define K 3

static void check_softmax(bench *t, const mask *m, gw_vid q, gw_vid k, gw_vid v, gw_vid o,
                          gw_vid lse) {
    for (int i = 0; i < S; i++)
        for (int h = 0; h < H; h++) {
            double p[S], total = 0;
            int g = h / (H / G);
            for (int j = 0; j < S; j++) {
                double dot = 0;
                for (int c = 0; c < K; c++)
                    dot += eval_get(&t->e, q, (i * H + h) * K + c) *
                           eval_get(&t->e, k, (j * G + g) * K + c);
                p[j] = allowed(m, i, j) ? exp(dot / sqrt((double)K)) : 0;
                total += p[j];
            }
            CHECK_NEAR(eval_get(&t->e, lse, i * H + h), log(total), 1e-12);
            for (int c = 0; c < K; c++) {
                double sum = 0;
                for (int j = 0; j < S; j++)
                    sum += p[j] / total * eval_get(&t->e, v, (j * G + g) * K + c);
                CHECK_NEAR(eval_get(&t->e, o, (i * H + h) * K + c), sum, 1e-12);
            }
        }
}

TEST(attention_is_a_masked_softmax) {
    static const int docs[S] = {4, 4, 4, 7, 7, 4, 4, 9, 9}; /* an id that returns is seen again */
    static const mask masks[] = {{true, 0, NULL},  {true, 0, docs},  {true, 3, NULL},
                                 {true, 1, docs},  {false, 0, NULL}, {false, 0, docs},
                                 {false, 2, docs}, {true, 50, NULL}};
    for (size_t n = 0; n < GW_COUNT(masks); n++) {
        const mask *m = &masks[n];
        bench t;
        bench_init(&t);
        gw_vid q = bench_normal(&t, GW_F64, "b1 s9 h4 k3", "q"),
               k = bench_normal(&t, GW_F64, "b1 s9 g2 k3", "k");
        gw_vid v = bench_normal(&t, GW_F64, "b1 s9 g2 k3", "v"), d = GW_NONE, lse;
        if (m->docs) d = bench_leaf(&t, GW_I32, "b1 s9");
        for (int i = 0; m->docs && i < S; i++) eval_set(&t.e, d, i, m->docs[i]);
        gw_vid o = gw_build(&t.b, "attention", (gw_vid[]){q, k, v, d}, 4,
                            (gw_attr[]){{.i = m->causal}, {.i = m->window}, {.f = 0}}, &lse);
        bench_run(&t);
        check_softmax(&t, m, q, k, v, o, lse);
        bench_release(&t);
    }
}

/* No mask empties a row, since i sees i: with all values 1 every output is 1 and every lse is
 * finite, whatever the documents and however large the scores. */
TEST(attention_rows_are_never_empty) {
    for (int window = 0; window < 3; window++) {
        bench t;
        bench_init(&t);
        gw_vid q = bench_normal(&t, GW_F32, "b2 s6 h2 k4", "q"),
               k = bench_normal(&t, GW_F32, "b2 s6 g1 k4", "k");
        gw_vid v = bench_leaf(&t, GW_F32, "b2 s6 g1 k4"), d = bench_leaf(&t, GW_I32, "b2 s6"), lse;
        for (int64_t i = 0; i < bench_elems(&t, v); i++) eval_set(&t.e, v, i, 1);
        for (int64_t i = 0; i < bench_elems(&t, d); i++)
            eval_set(&t.e, d, i, (double)(i * 7 % 5) - 2); /* ids in disorder, some negative */
        gw_vid o = gw_build(&t.b, "attention", (gw_vid[]){q, k, v, d}, 4,
                            (gw_attr[]){{.i = 1}, {.i = window}, {.f = 1e4}}, &lse);
        bench_run(&t);
        for (int64_t i = 0; i < bench_elems(&t, o); i++) CHECK_NEAR(eval_get(&t.e, o, i), 1, 1e-6);
        for (int64_t i = 0; i < bench_elems(&t, lse); i++) CHECK(isfinite(eval_get(&t.e, lse, i)));
        bench_release(&t);
    }
}

/* ---- rope ---- */

static gw_vid table(bench *t, gw_vid pos, const gw_attr *a, gw_vid *sine) {
    return gw_build(&t->b, "rope_table", &pos, 1, a, sine);
}

/* Llama 3.1: head 128, theta 500000, factor 8, low 1, high 4, original 8192. The figures are the
 * formula of _compute_llama3_parameters (transformers, modeling_rope_utils), evaluated by
 * hand-written arithmetic elsewhere: inv = theta^(-2i/128), w = 2 pi / inv; w < 2048: inv; w >
 * 8192: inv/8; else with t = (8192/w - 1)/3: (1-t) inv/8 + t inv. Pair 28 has w = 1956 (kept), 29
 * to 34 lie between, 35 has w = 8219 (divided). */
TEST(rope_llama3_frequencies) {
    static const struct {
        int i;
        double f;
    } known[] = {{0, 1.0},
                 {1, 8.146172338565447e-01},
                 {10, 1.286873734326505e-01},
                 {28, 3.211445994752591e-03},
                 {29, 2.166570763503359e-03},
                 {31, 8.567514129196321e-04},
                 {34, 1.785078127679964e-04},
                 {35, 9.556212353964683e-05},
                 {63, 3.068925988914511e-07}};
    bench t;
    bench_init(&t);
    gw_vid pos = bench_leaf(&t, GW_I32, "b1 s2"), sine;
    eval_set(&t.e, pos, 0, 1);
    gw_attr a[] = {{.i = 128}, {.f = 500000}, {.i = 2},      {.f = 8}, {.f = 1},
                   {.f = 4},   {.f = 8192},   {.i = GW_F64}, {.f = 1}};
    gw_vid cosine = table(&t, pos, a, &sine);
    check_type(&t, cosine, GW_F64, "b1 s2 r64");
    bench_run(&t);
    for (size_t n = 0; n < GW_COUNT(known); n++) {
        double angle = atan2(eval_get(&t.e, sine, known[n].i), eval_get(&t.e, cosine, known[n].i));
        CHECK_NEAR(angle / known[n].f, 1, 1e-12);
        CHECK_NEAR(eval_get(&t.e, cosine, 64 + known[n].i), 1, 0); /* position 0 */
    }
    bench_release(&t);
}

/* Linear scaling by f at position p is no scaling at position p / f. */
TEST(rope_linear_scaling_divides_positions) {
    bench t;
    bench_init(&t);
    gw_vid p = bench_leaf(&t, GW_I32, "b1 s1"), p4 = bench_leaf(&t, GW_I32, "b1 s1");
    eval_set(&t.e, p, 0, 25);
    eval_set(&t.e, p4, 0, 100);
    gw_attr a[] = {{.i = 8}, {.f = 10000}, {.i = 0},      {.f = 1}, {.f = 1},
                   {.f = 4}, {.f = 1},     {.i = GW_F64}, {.f = 1}};
    gw_vid plain = table(&t, p, a, NULL);
    a[2].i = 1;
    a[3].f = 4;
    gw_vid scaled = table(&t, p4, a, NULL);
    bench_run(&t);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(eval_get(&t.e, plain, i), eval_get(&t.e, scaled, i), 1e-13);
    bench_release(&t);
}

/* The angle of pair 0 is the position itself, exact in float32 up to 2^24; that of pair 1 is
 * float32's product. */
TEST(rope_angles_are_float32_products) {
    bench t;
    bench_init(&t);
    gw_vid pos = bench_leaf(&t, GW_I32, "b1 s1");
    eval_set(&t.e, pos, 0, 123457);
    gw_attr a[] = {{.i = 4}, {.f = 10000}, {.i = 0},      {.f = 1}, {.f = 1},
                   {.f = 4}, {.f = 1},     {.i = GW_F32}, {.f = 1}};
    gw_vid c = table(&t, pos, a, NULL);
    bench_run(&t);
    CHECK_NEAR(eval_get(&t.e, c, 0), cos(123457.0), 1e-7);
    volatile float frequency = 0.01f, position = 123457; /* 10000^(-2/4) */
    float angle = position * frequency;
    CHECK_NEAR(eval_get(&t.e, c, 1), cos((double)angle), 1e-7);
    bench_release(&t);
}

/* The unit vector of component 0 turns towards component k/2; turning back undoes it; scores depend
 * on the distance of the positions alone. */
TEST(rope_turns_pairs_half_a_head_apart) {
    bench t;
    bench_init(&t);
    gw_vid pos = bench_leaf(&t, GW_I32, "b1 s4"), unit = bench_leaf(&t, GW_F64, "b1 s4 h1 k6"),
           sine;
    static const double at[4] = {0, 3, 10, 13};
    eval_fill(&t.e, pos, at, 4);
    for (int i = 0; i < 4; i++) eval_set(&t.e, unit, i * 6, 1);
    gw_attr a[] = {{.i = 6}, {.f = 10000}, {.i = 0},      {.f = 1}, {.f = 1},
                   {.f = 4}, {.f = 1},     {.i = GW_F64}, {.f = 1}};
    gw_vid cosine = table(&t, pos, a, &sine);
    gw_vid y = gw_build1(&t.b, "rope", unit, cosine, sine);
    gw_vid x = bench_leaf(&t, GW_F64, "b1 s4 h1 k6"); /* the same vector at each position */
    for (int i = 0; i < 24; i++) eval_set(&t.e, x, i, 1 + i % 6 * 0.3 - (i % 6 == 4));
    gw_vid z = gw_build1(&t.b, "rope", x, cosine, sine);
    gw_vid back = gw_build(&t.b, "rope", (gw_vid[]){z, cosine, sine}, 3,
                           (gw_attr[]){{.i = 1}, {.i = 0}}, NULL);
    bench_run(&t);
    for (int i = 0; i < 4; i++) {
        CHECK_NEAR(eval_get(&t.e, y, i * 6), cos(at[i]), 1e-15);
        CHECK_NEAR(eval_get(&t.e, y, i * 6 + 3), sin(at[i]), 1e-15);
    }
    double near = 0, far = 0;
    for (int c = 0; c < 6; c++) {
        near += eval_get(&t.e, z, c) * eval_get(&t.e, z, 6 + c);
        far += eval_get(&t.e, z, 12 + c) * eval_get(&t.e, z, 18 + c);
    }
    CHECK_NEAR(near, far, 1e-12);
    for (int i = 0; i < 24; i++) CHECK_NEAR(eval_get(&t.e, back, i), eval_get(&t.e, x, i), 1e-14);
    bench_release(&t);
}

/* ---- embed ---- */

TEST(embed_takes_zeros_outside_the_table) {
    bench t;
    bench_init(&t);
    static const double id[6] = {2, -1, 0, 3, INT32_MAX, 2};
    gw_vid ids = bench_leaf(&t, GW_I32, "b2 s3"), w = bench_leaf(&t, GW_F32, "v3 d2"),
           dy = bench_leaf(&t, GW_F32, "b2 s3 d2");
    eval_fill(&t.e, ids, id, 6);
    for (int i = 0; i < 6; i++) eval_set(&t.e, w, i, 10 + i);
    for (int i = 0; i < 12; i++) eval_set(&t.e, dy, i, i);
    gw_vid y = gw_build1(&t.b, "embed", ids, w);
    gw_vid dw = gw_build(&t.b, "embed_grad", (gw_vid[]){ids, dy}, 2,
                         (gw_attr[]){{.i = 3}, {.i = GW_F32}, {.s = 0}}, NULL);
    bench_run(&t);
    static const double rows[12] = {14, 15, 0, 0, 10, 11, 0, 0, 0, 0, 14, 15};
    static const double grads[6] = {4, 5,      0,
                                    0, 0 + 10, 1 + 11}; /* row 2 stands at positions 0 and 5 */
    for (int i = 0; i < 12; i++) CHECK_NEAR(eval_get(&t.e, y, i), rows[i], 0);
    for (int i = 0; i < 6; i++) CHECK_NEAR(eval_get(&t.e, dw, i), grads[i], 0);
    bench_release(&t);
}

/* ---- small facts ---- */

/* Ties go to the even neighbour: bf16 has 7 bits after the point, f16 has 10. */
TEST(cast_rounds_to_nearest_even) {
    static const double x[6] = {1 + 0x1p-8,    1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-20,
                                -(1 + 0x1p-8), 65520,      1 + 0x1p-11};
    static const double bf16[6] = {1, 1 + 0x1p-6, 1 + 0x1p-7, -1, 65536, 1};
    static const double f16[6] = {1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8, -(1 + 0x1p-8), HUGE_VAL, 1};
    bench t;
    bench_init(&t);
    gw_vid v = bench_leaf(&t, GW_F32, "d6");
    eval_fill(&t.e, v, x, 6);
    gw_vid b = gw_build(&t.b, "cast", &v, 1, (gw_attr[]){{.i = GW_BF16}}, NULL);
    gw_vid h = gw_build(&t.b, "cast", &v, 1, (gw_attr[]){{.i = GW_F16}}, NULL);
    bench_run(&t);
    for (int i = 0; i < 6; i++) {
        CHECK_MSG(eval_get(&t.e, b, i) == bf16[i], "bf16 of %a is %a", x[i], eval_get(&t.e, b, i));
        CHECK_MSG(eval_get(&t.e, h, i) == f16[i], "f16 of %a is %a", x[i], eval_get(&t.e, h, i));
    }
    bench_release(&t);
}

/* silu(1) = 1/(1 + 1/e); gelu(1) = Phi(1); its tanh form at 1 is (1 + tanh(0.8336...))/2 =
 * 0.841192, the figure in PyTorch's documentation of approximate="tanh" to 4 digits (0.8412). */
TEST(activations_at_one) {
    bench t;
    bench_init(&t);
    gw_vid one = bench_leaf(&t, GW_F64, "f1");
    eval_set(&t.e, one, 0, 1);
    gw_vid s = gw_build1(&t.b, "swiglu", one, one), g = gw_build1(&t.b, "gelu", one);
    gw_vid exact = gw_build(&t.b, "gelu", &one, 1, (gw_attr[]){{.i = 0}}, NULL);
    bench_run(&t);
    CHECK_NEAR(eval_get(&t.e, s, 0), 0.7310585786300049, 1e-15);
    CHECK_NEAR(eval_get(&t.e, exact, 0), 0.8413447460685429, 1e-15);
    CHECK_NEAR(eval_get(&t.e, g, 0), 0.8411919906082768, 1e-12);
    bench_release(&t);
}

/* 1 2 3 4: mean 2.5, variance 1.25, mean square 7.5. */
TEST(norms_of_one_to_four) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_F64, "s1 d4"), g = bench_leaf(&t, GW_F64, "d4"),
           b = bench_leaf(&t, GW_F64, "d4"), stat[2], rstd;
    for (int i = 0; i < 4; i++) {
        eval_set(&t.e, x, i, 1 + i);
        eval_set(&t.e, g, i, 2);
        eval_set(&t.e, b, i, i);
    }
    gw_vid y = gw_build(&t.b, "layernorm", (gw_vid[]){x, g, b}, 3, (gw_attr[]){{.f = 0.25}}, stat);
    gw_vid z = gw_build(&t.b, "rmsnorm", (gw_vid[]){x, g}, 2, (gw_attr[]){{.f = 1.5}}, &rstd);
    bench_run(&t);
    CHECK_NEAR(eval_get(&t.e, stat[0], 0), 2.5, 1e-15);
    CHECK_NEAR(eval_get(&t.e, stat[1], 0), 1 / sqrt(1.5), 1e-15);
    CHECK_NEAR(eval_get(&t.e, rstd, 0), 1.0 / 3, 1e-15);
    for (int i = 0; i < 4; i++) {
        CHECK_NEAR(eval_get(&t.e, y, i), (i - 1.5) / sqrt(1.5) * 2 + i, 1e-14);
        CHECK_NEAR(eval_get(&t.e, z, i), (1 + i) * 2.0 / 3, 1e-15);
    }
    bench_release(&t);
}

/* Equal logits: each valid row loses log v; a masked row loses nothing and has no gradient. The
 * seed scales the gradient, not the loss. */
TEST(head_of_equal_logits) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_normal(&t, GW_F64, "s4 d3", "x"), w = bench_leaf(&t, GW_F64, "v5 d3");
    gw_vid labels = bench_leaf(&t, GW_I32, "s4"), seed = bench_leaf(&t, GW_F64, ""), more[2];
    static const double label[4] = {0, -100, 4, -1};
    eval_fill(&t.e, labels, label, 4);
    eval_set(&t.e, seed, 0, 0.5);
    gw_vid loss = gw_build1(&t.b, "head", x, w, labels, seed);
    gw_vid dx = gw_build(&t.b, "head_grad", (gw_vid[]){x, w, labels, seed}, 4,
                         (gw_attr[]){{.i = GW_F64}}, more);
    bench_run(&t);
    CHECK_NEAR(eval_get(&t.e, loss, 0), 2 * log(5), 1e-14);
    CHECK_NEAR(eval_get(&t.e, more[1], 0), 2 * log(5), 1e-14);
    for (int i = 0; i < 12; i++) CHECK_NEAR(eval_get(&t.e, dx, i), 0, 1e-16); /* w is 0 */
    for (int c = 0; c < 5; c++)
        for (int j = 0; j < 3; j++) {
            double x0 = eval_get(&t.e, x, j), x2 = eval_get(&t.e, x, 6 + j);
            CHECK_NEAR(eval_get(&t.e, more[0], c * 3 + j),
                       0.5 * ((0.2 - (c == 0)) * x0 + (0.2 - (c == 4)) * x2), 1e-15);
        }
    bench_release(&t);
}

/* Logits of 1e5 overflow exp; with the largest taken out they do not. Rows without a label: nothing
 * at all. */
TEST(head_survives_large_logits_and_no_labels) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_F32, "s2 d1"), w = bench_leaf(&t, GW_F32, "v3 d1"),
           seed = bench_leaf(&t, GW_F32, "");
    gw_vid labels = bench_leaf(&t, GW_I32, "s2"), none = bench_leaf(&t, GW_I32, "s2"), more[2],
           empty[2];
    eval_fill(&t.e, x, (double[]){1e5, -1e5}, 2);
    eval_fill(&t.e, w, (double[]){-1, 0, 1}, 3);
    eval_fill(&t.e, labels, (double[]){2, 1}, 2);
    eval_fill(&t.e, none, (double[]){-100, -100}, 2);
    eval_set(&t.e, seed, 0, 1);
    gw_vid dx = gw_build(&t.b, "head_grad", (gw_vid[]){x, w, labels, seed}, 4, NULL, more);
    gw_vid dx0 = gw_build(&t.b, "head_grad", (gw_vid[]){x, w, none, seed}, 4, NULL, empty);
    bench_run(&t);
    CHECK_NEAR(eval_get(&t.e, more[1], 0), 1e5, 1e-2); /* 0 and 1e5 */
    CHECK_NEAR(eval_get(&t.e, dx, 0), 0, 1e-6);
    CHECK_NEAR(eval_get(&t.e, dx, 1), -1, 1e-6); /* all on class 0, whose w is -1 */
    CHECK_NEAR(eval_get(&t.e, empty[1], 0), 0, 0);
    for (int i = 0; i < 2; i++) CHECK_NEAR(eval_get(&t.e, dx0, i), 0, 0);
    bench_release(&t);
}
