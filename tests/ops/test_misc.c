// SPDX-License-Identifier: Apache-2.0
// Dropout, the key and value cache, and the small ops of frames and of generation, against laws and
// arithmetic by hand.
#include <string.h>

#include "base/rng.h" /* gw_rng_normal */
#include "bench.h"    /* bench */
#include "harness.h"  /* TEST, CHECK */
#include "ops/ops.h"  /* gw_ops_table */

static double get(bench *t, gw_vid v, int64_t i) { return eval_get(&t->e, v, i); }

/* ---- dropout ---- */

#define INNER 2000

/* Dropout of ones with samples s0, s1 into y[2][INNER]. */
static void dropped(double p, const char *key, int64_t s0, int64_t s1, int64_t batch, double *y) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_F64, "b2 s20 d100"), sample = bench_leaf(&t, GW_I64, "b2");
    gw_vid counter = bench_leaf(&t, GW_I64, "");
    for (int64_t i = 0; i < 2 * INNER; i++) eval_set(&t.e, x, i, 1);
    eval_set(&t.e, sample, 0, (double)s0);
    eval_set(&t.e, sample, 1, (double)s1);
    eval_set(&t.e, counter, 0, (double)batch);
    gw_attr a[3] = {{.f = p}, {0}, {.i = 7}};
    a[1].s = gw_graph_intern(&t.g, key);
    gw_vid out = gw_build(&t.b, "dropout", (gw_vid[]){x, sample, counter}, 3, a, NULL);
    bench_run(&t);
    for (int64_t i = 0; i < 2 * INNER; i++) y[i] = get(&t, out, i);
    bench_release(&t);
}

/* Of 4000 draws the kept fraction deviates by sqrt(p (1-p) / 4000) <= 0.008; five of them. */
TEST(dropout_keeps_and_scales) {
    static double y[2 * INNER];
    static const double ps[] = {0.1, 0.5, 0.9};
    for (size_t k = 0; k < GW_COUNT(ps); k++) {
        dropped(ps[k], "a", 11, 12, 0, y);
        int kept = 0;
        for (int i = 0; i < 2 * INNER; i++) {
            CHECK(y[i] == 0 || fabs(y[i] - 1 / (1 - ps[k])) < 1e-12);
            kept += y[i] != 0;
        }
        CHECK_NEAR((double)kept / (2 * INNER), 1 - ps[k], 0.04);
    }
    dropped(0, "a", 11, 12, 0, y);
    for (int i = 0; i < 2 * INNER; i++) CHECK(y[i] == 1);
    dropped(1, "a", 11, 12, 0, y);
    for (int i = 0; i < 2 * INNER; i++) CHECK(y[i] == 0);
}

/* The mask belongs to the sample, wherever it stands, and changes with key, batch and sample. */
TEST(dropout_masks_follow_the_sample) {
    static double a[2 * INNER], b[2 * INNER];
    const size_t row = INNER * sizeof *a;
    dropped(0.5, "a", 11, 12, 3, a);
    dropped(0.5, "a", 12, 11, 3, b);
    CHECK(memcmp(a, b + INNER, row) == 0 && memcmp(a + INNER, b, row) == 0);
    CHECK(memcmp(a, a + INNER, row) != 0);
    dropped(0.5, "b", 11, 12, 3, b);
    CHECK(memcmp(a, b, row) != 0);
    dropped(0.5, "a", 11, 12, 4, b);
    CHECK(memcmp(a, b, row) != 0);
}

/* ---- the cache ---- */

/* Putting a sequence into an empty cache and attending by position is causal attention, whole, in
 * two pieces, or with its rows in another order; padding queries give zeros and padding keys are
 * not written. */
static void check_cached(int window, const int *pos, int n) {
    bench t;
    bench_init(&t);
    gw_vid q = bench_normal(&t, GW_F64, "b1 s6 h4 k3", "q"),
           k = bench_normal(&t, GW_F64, "b1 s6 g2 k3", "k");
    gw_vid v = bench_normal(&t, GW_F64, "b1 s6 g2 k3", "v"), lse;
    gw_vid o = gw_build(&t.b, "attention", (gw_vid[]){q, k, v}, 3,
                        (gw_attr[]){{.i = 1}, {.i = window}, {.f = 0}}, &lse);
    char dims[3][32], rows[32];
    snprintf(dims[0], 32, "b1 s%d h4 k3", n);
    snprintf(dims[1], 32, "b1 s%d g2 k3", n);
    snprintf(rows, 32, "b1 s%d", n);
    gw_vid qn = bench_leaf(&t, GW_F64, dims[0]), kn = bench_leaf(&t, GW_F64, dims[1]);
    gw_vid vn = bench_leaf(&t, GW_F64, dims[1]), at = bench_leaf(&t, GW_I32, rows);
    gw_vid kc = bench_leaf(&t, GW_F64, "b1 t9 g2 k3"), vc = bench_leaf(&t, GW_F64, "b1 t9 g2 k3");
    for (int64_t i = 0; i < bench_elems(&t, kc); i++) { /* rows not yet written hold anything */
        eval_set(&t.e, kc, i, 1e3);
        eval_set(&t.e, vc, i, -1e3);
    }
    for (int r = 0; r < n; r++) {
        int p = pos[r];
        eval_set(&t.e, at, r, p);
        for (int i = 0; i < 12; i++)
            eval_set(&t.e, qn, r * 12 + i, p < 0 ? 99 : get(&t, q, p * 12 + i));
        for (int i = 0; i < 6; i++) {
            eval_set(&t.e, kn, r * 6 + i, p < 0 ? 99 : get(&t, k, p * 6 + i));
            eval_set(&t.e, vn, r * 6 + i, p < 0 ? 99 : get(&t, v, p * 6 + i));
        }
    }
    gw_vid k2 = gw_build1(&t.b, "cache_put", kc, kn, at),
           v2 = gw_build1(&t.b, "cache_put", vc, vn, at);
    gw_vid y = gw_build(&t.b, "attention_cache", (gw_vid[]){qn, k2, v2, at}, 4,
                        (gw_attr[]){{.i = window}, {.f = 0}}, NULL);
    bench_run(&t);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 12; i++)
            CHECK_NEAR(get(&t, y, r * 12 + i), pos[r] < 0 ? 0 : get(&t, o, pos[r] * 12 + i), 1e-12);
    bench_release(&t);
}

TEST(cache_attention_is_causal_attention) {
    static const int in_order[] = {0, 1, 2, 3, 4, 5}, shuffled[] = {-1, 3, 0, 5, 2, 1, 4, -7};
    for (int window = 0; window < 4; window++) {
        check_cached(window, in_order, 6);
        check_cached(window, shuffled, 8);
    }
}

TEST(cache_put_skips_and_the_later_row_stands) {
    bench t;
    bench_init(&t);
    gw_vid cache = bench_leaf(&t, GW_BF16, "b2 t3 g1 k1"),
           x = bench_leaf(&t, GW_F32, "b2 s4 g1 k1");
    gw_vid pos = bench_leaf(&t, GW_I32, "b2 s4");
    eval_fill(&t.e, cache, (double[]){-1, -2, -3, -4, -5, -6}, 6);
    eval_fill(&t.e, x, (double[]){10, 11, 12, 13, 14, 15, 16, 17}, 8);
    eval_fill(&t.e, pos, (double[]){1, -1, 3, 1, 0, 2, -2147483648.0, 2147483647.0}, 8);
    gw_vid y = gw_build1(&t.b, "cache_put", cache, x, pos);
    CHECK_EQ(t.g.values.items[y].tie, cache);
    bench_run(&t);
    static const double want[6] = {-1, 13, -3, 14, -5, 15};
    for (int i = 0; i < 6; i++) CHECK_NEAR(get(&t, y, i), want[i], 0);
    bench_release(&t);
}

TEST(cache_attention_refuses_heads_that_do_not_group) {
    bench t;
    bench_init(&t);
    gw_vid kc = bench_leaf(&t, GW_F32, "b1 t5 g4 k2");
    gw_vid in[4] = {bench_leaf(&t, GW_F32, "b1 s1 h6 k2"), kc, kc, bench_leaf(&t, GW_I32, "b1 s1")};
    gw_build(&t.b, "attention_cache", in, 4, NULL, NULL);
    CHECK_FAILS(t.b.status, &t.dg, "no multiple");
    bench_release(&t);
}

static const gw_factor *factor(const gw_signature *s, const char *name) {
    for (int i = 0; i < s->nfactors; i++)
        if (strcmp(s->factors[i].name, name) == 0) return &s->factors[i];
    test_fail(__FILE__, __LINE__, "no factor %s", name);
}

TEST(cache_attention_cuts_kv_heads_with_heads) {
    bench t;
    gw_signature s;
    bench_init(&t);
    gw_vid kc = bench_leaf(&t, GW_F32, "b1 t5 g2 k2");
    gw_vid in[4] = {bench_leaf(&t, GW_F32, "b1 s1 h6 k2"), kc, kc, bench_leaf(&t, GW_I32, "b1 s1")};
    gw_build(&t.b, "attention_cache", in, 4, NULL, NULL);
    CHECK_OK(t.b.status, &t.dg);
    gw_op_def(&t.g, &t.g.ops.items[0])->sign(&t.g, &t.g.ops.items[0], &s);
    CHECK_EQ(factor(&s, "h")->kind, GW_FACTOR_PASS);
    CHECK_EQ(factor(&s, "g")->kind, GW_FACTOR_PASS);
    CHECK_STR(factor(&s, "g")->with, "h");
    CHECK_EQ(factor(&s, "t")->kind, GW_FACTOR_WHOLE);
    CHECK_EQ(factor(&s, "k")->kind, GW_FACTOR_WHOLE);
    bench_release(&t);
}

/* ---- small ones ---- */

TEST(pick_takes_rows_and_zeros_outside) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_F32, "b4 s3 d2"), at = bench_leaf(&t, GW_I32, "b4");
    for (int i = 0; i < 24; i++) eval_set(&t.e, x, i, 1 + i);
    eval_fill(&t.e, at, (double[]){2, 0, -1, 3}, 4);
    gw_vid y = gw_build1(&t.b, "pick", x, at);
    bench_run(&t);
    static const double want[8] = {5, 6, 7, 8, 0, 0, 0, 0};
    for (int i = 0; i < 8; i++) CHECK_NEAR(get(&t, y, i), want[i], 0);
    bench_release(&t);
}

TEST(addn_rounds_once) {
    bench t;
    bench_init(&t);
    gw_vid in[3];
    static const double x[3] = {1, 0x1p-8, 0x1p-8}; /* a chain in bf16 stays at 1 */
    for (int i = 0; i < 3; i++) eval_set(&t.e, in[i] = bench_leaf(&t, GW_BF16, "d1"), 0, x[i]);
    gw_vid y = gw_build(&t.b, "addn", in, 3, NULL, NULL);
    gw_build(&t.b, "addn", (gw_vid[]){in[0], bench_leaf(&t, GW_F32, "d1")}, 2, NULL, NULL);
    CHECK_FAILS(t.b.status, &t.dg, "one dtype");
    eval_run(&t.e, 0, 1);
    CHECK_NEAR(get(&t, y, 0), 1 + 0x1p-7, 0);
    bench_release(&t);
}

TEST(zeros_does_not_read) {
    bench t;
    bench_init(&t);
    gw_vid x = bench_leaf(&t, GW_I32, "b2 d3");
    gw_vid y = gw_build(&t.b, "zeros", &x, 1, (gw_attr[]){{.i = GW_BF16}}, NULL);
    bench_run(&t);
    gw_cost c;
    gw_op_def(&t.g, &t.g.ops.items[0])->cost(&t.g, &t.g.ops.items[0], &c);
    CHECK(c.bytes_read == 0 && c.bytes_written == 12);
    for (int i = 0; i < 6; i++) CHECK_NEAR(get(&t, y, i), 0, 0);
    bench_release(&t);
}
