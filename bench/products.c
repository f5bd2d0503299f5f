// SPDX-License-Identifier: Apache-2.0
// How long oneDNN alone needs for the matrix products of a training step: what no program that
// calls it for them can go below.
//
//   build/release/bench/products PRESET BATCH SEQ [f32|bf16 [threads [repetitions]]]
//
// A step multiplies three times for each weight [n, k] and the m = BATCH x SEQ tokens: y[m n] = x
// w^T, dx[m k] = dy w, dw[n k] = dy^T x. The weights are the linear layers of every block and the
// head; a lookup table multiplies nothing. Each product of one shape is timed as often as asked and
// counted as often as the step has it, so the sum is that of the whole list without running every
// layer.
//
// Two ways are timed: a matmul primitive made beforehand on operands as they lie (inputs and
// weights in the asked dtype, dw always float32), and in float32 also dnnl_sgemm, which packs for
// itself. The sum takes, per product, the faster. What favours oneDNN here and not the step:
// operands are as warm in the caches as a repeated product leaves them, biases are left out, and
// the head's logits stand whole in memory.
//
// Output: one line a product, tab-separated, with a header line; then a line "total". A script may
// read it. Times are medians in seconds; "-" is a way that does not exist for this dtype.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "base/num.h"        /* gw_bf16_from_f32 */
#include "base/str.h"        /* gw_parse_i64 */
#include "kernel/cpu/dnnl.h" /* gw_dnnl_product, gw_dnnl_sgemm */
#include "kernel/kernel.h"   /* gw_machine_this */
#include "model/model.h"     /* gw_model_preset */

enum { MOST = 100, WEIGHTS = 8 };

typedef struct weight {
    const char *name;
    int64_t n, k, count;
} weight;

/* One product a b = c; a is [m k] or, stored transposed, [k m]; b is [k n] or [n k]. */
typedef struct product {
    int64_t m, n, k;
    bool ta, tb;
    gw_dtype in, out;
} product;

typedef struct bench {
    gw_dtype dtype;
    int threads, repetitions;
    char *a, *b, *c;
    gw_diags dg;
} bench;

static void die(bench *x, const char *what) {
    gw_diags_print(&x->dg, stderr, false);
    fprintf(stderr, "products: %s\n", what);
    exit(1);
}

static void *memory(int64_t bytes) {
    void *p = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    if (!p) {
        fprintf(stderr, "products: no memory for %lld bytes\n", (long long)bytes);
        exit(1);
    }
    return p;
}

/* Small numbers of both signs: zeros or denormals would say nothing about speed. */
static char *filled(int64_t elems, gw_dtype t) {
    char *p = memory(elems * 4);
    for (int64_t i = 0; i < elems; i++) {
        float v = (float)((i * 7919 + 13) % 1009 - 504) / 1009.0f;
        if (t == GW_BF16)
            ((gw_bf16 *)(void *)p)[i] = gw_bf16_from_f32(v);
        else
            ((float *)(void *)p)[i] = v;
    }
    return p;
}

/* ---- the list ---- */

static int list_weights(const gw_model *m, weight *w) {
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    int n = 0;
    w[n++] = (weight){"q", q, m->hidden, m->layers};
    w[n++] = (weight){"k and v", kv, m->hidden, 2 * m->layers};
    w[n++] = (weight){"o", m->hidden, q, m->layers};
    if (m->family != GW_FAMILY_GPT2) w[n++] = (weight){"gate", m->ffn, m->hidden, m->layers};
    w[n++] = (weight){"up", m->ffn, m->hidden, m->layers};
    w[n++] = (weight){"down", m->hidden, m->ffn, m->layers};
    w[n++] = (weight){"head", m->vocab, m->hidden, 1};
    return n;
}

static product product_of(const weight *w, int64_t tokens, int which, gw_dtype t) {
    switch (which) {
    case 0: return (product){tokens, w->n, w->k, false, true, t, t};
    case 1: return (product){tokens, w->k, w->n, false, false, t, t};
    default: return (product){w->n, w->k, tokens, true, false, t, GW_F32};
    }
}

/* ---- timing ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, by_value);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

static double by_primitive(bench *x, const product *p) {
    gw_dnnl_spec s = {.threads = x->threads};
    s.a = (gw_dnnl_mat){x->a, p->in, p->m, p->k, p->ta ? 1 : p->k, p->ta ? p->m : 1};
    s.b = (gw_dnnl_mat){x->b, p->in, p->k, p->n, p->tb ? 1 : p->n, p->tb ? p->k : 1};
    s.c = (gw_dnnl_mat){x->c, p->out, p->m, p->n, p->n, 1};
    int64_t bytes = gw_dnnl_product_scratch(&s);
    if (bytes < 0) return (double)NAN;
    void *scratch = memory(bytes);
    gw_dnnl_product made;
    if (gw_dnnl_product_make(&made, &s, scratch, &x->dg) != GW_OK) die(x, "no primitive");
    double t[MOST];
    for (int i = -1; i < x->repetitions; i++) {
        int64_t from = gw_clock_ns();
        if (gw_dnnl_product_run(&made, &x->dg) != GW_OK) die(x, "a product failed");
        if (i >= 0) t[i] = (double)(gw_clock_ns() - from) * 1e-9;
    }
    gw_dnnl_product_release(&made);
    free(scratch);
    return median(t, x->repetitions);
}

static double by_sgemm(bench *x, const product *p) {
    if (p->in != GW_F32) return (double)NAN;
    double t[MOST];
    for (int i = -1; i < x->repetitions; i++) {
        int64_t from = gw_clock_ns();
        gw_status st =
            gw_dnnl_sgemm(p->ta, p->tb, p->m, p->n, p->k, (const float *)(void *)x->a,
                          p->ta ? p->m : p->k, (const float *)(void *)x->b, p->tb ? p->k : p->n,
                          0.0f, (float *)(void *)x->c, p->n, x->threads, &x->dg);
        if (st != GW_OK) die(x, "a product failed");
        if (i >= 0) t[i] = (double)(gw_clock_ns() - from) * 1e-9;
    }
    return median(t, x->repetitions);
}

static void put_seconds(double s) {
    if (isfinite(s))
        printf("\t%.6f", s);
    else
        printf("\t-");
}

/* Prints the product's line; returns its seconds in the whole step. */
static double run_product(bench *x, const weight *w, int64_t tokens, int which) {
    static const char *const names[] = {"y", "dx", "dw"};
    product p = product_of(w, tokens, which, x->dtype);
    double primitive = by_primitive(x, &p), sgemm = by_sgemm(x, &p);
    double best = fmin(primitive, sgemm);
    if (!isfinite(best)) die(x, "oneDNN has no such product on this processor");
    double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    printf("%s %s\t%lld\t%lld\t%lld\t%lld", w->name, names[which], (long long)w->count,
           (long long)p.m, (long long)p.n, (long long)p.k);
    put_seconds(primitive);
    put_seconds(sgemm);
    printf("\t%.1f\n", flops / best * 1e-9);
    fflush(stdout);
    return best * (double)w->count;
}

static int64_t largest(const weight *w, int n, int64_t tokens) {
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        most = GW_MAX(most, tokens * GW_MAX(w[i].n, w[i].k));
        most = GW_MAX(most, w[i].n * w[i].k);
    }
    return most;
}

static void run_all(bench *x, const weight *w, int n, int64_t tokens) {
    int64_t elems = largest(w, n, tokens);
    x->a = filled(elems, x->dtype);
    x->b = filled(elems, x->dtype);
    x->c = filled(elems, GW_F32);
    printf("product\tcount\tm\tn\tk\tprimitive_s\tsgemm_s\tgflops\n");
    double seconds = 0, flops = 0;
    for (int i = 0; i < n; i++)
        for (int which = 0; which < 3; which++) {
            seconds += run_product(x, &w[i], tokens, which);
            flops += 2.0 * (double)w[i].n * (double)w[i].k * (double)tokens * (double)w[i].count;
        }
    printf("total\t\t\t\t\t%.6f\t\t%.1f\n", seconds, flops / seconds * 1e-9);
    free(x->a);
    free(x->b);
    free(x->c);
}

static bool number(int argc, char **argv, int i, int64_t most, int64_t *out) {
    return i >= argc || (gw_parse_i64(argv[i], out) && *out >= 0 && *out <= most);
}

int main(int argc, char **argv) {
    static gw_model m;
    bench x = {.dtype = GW_F32};
    int64_t batch = 0, seq = 0, threads = 0, repetitions = 5;
    bool ok = argc >= 4 && number(argc, argv, 2, 1 << 20, &batch) &&
              number(argc, argv, 3, 1 << 20, &seq) && number(argc, argv, 5, 1024, &threads) &&
              number(argc, argv, 6, MOST, &repetitions) && batch > 0 && seq > 0 && repetitions > 0;
    if (ok && argc > 4 && strcmp(argv[4], "bf16") == 0)
        x.dtype = GW_BF16;
    else if (ok && argc > 4)
        ok = strcmp(argv[4], "f32") == 0;
    if (!ok) {
        fputs("usage: products PRESET BATCH SEQ [f32|bf16 [threads [repetitions]]]\n", stderr);
        return 2;
    }
    if (!gw_model_preset(argv[1], &m)) {
        fprintf(stderr, "products: no preset is called '%s'\n", argv[1]);
        return 2;
    }
    gw_diags_init(&x.dg);
    x.threads = gw_machine_this((int)threads).threads;
    x.repetitions = (int)repetitions;
    weight w[WEIGHTS];
    int n = list_weights(&m, w);
    run_all(&x, w, n, batch * seq);
    gw_diags_release(&x.dg);
    return 0;
}
