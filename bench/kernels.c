// SPDX-License-Identifier: Apache-2.0
// Rates of the heavy CPU kernels, against what oneDNN's sgemm reaches on this machine at the same
// time.
//
//   build/release/bench/kernels [threads [repetitions [words of a line]]]
//
// Shapes are those of GPT-2 124M and SmolLM2-135M at batch 4 x 1024 and 16 x 64. Each line
// alternates the kernel with sgemm, so that a neighbour's load falls on both: for a product, sgemm
// of that very shape on the same memory layout; for attention and the head, 1024 x 1024 x 1024.
// Printed are medians in GFLOP/s, and their ratio. Causal attention counts the pairs it computes
// (half). `rounds` is the spread of sgemm, (p75 - p25) / median: where it is large, the machine was
// busy and the line says little. With one thread the clock is processor time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "base/num.h"        /* gw_bf16 */
#include "base/str.h"        /* gw_parse_i64 */
#include "kernel/cpu/dnnl.h" /* gw_dnnl_sgemm */
#include "kernel/kernel.h"   /* gw_kernel_choose */
#include "ops/ops.h"         /* gw_ops_table */

#define MOST 200

typedef struct line {
    const char *name, *op, *in[7]; /* dims of the inputs, "-" = absent, NULL = end */
    gw_dtype dtype;
    double flops;
    bool ta, tb; /* sgemm of the same shape; m = 0: 1024 cubed */
    int64_t m, n, k;
} line;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fail(const gw_diags *dg, const char *what) {
    gw_diags_print(dg, stderr, false);
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static void *data_of(void *user, gw_vid v) { return ((void **)user)[v]; }

static void *memory(int64_t bytes) {
    void *p = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    if (!p) abort();
    return p;
}

/* Small numbers of both signs; labels and ids are small whole numbers. */
static void fill(void *p, const gw_type *t) {
    int64_t n = gw_type_elems(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = (i * 7919 + 13) % 1009;
        float x = (float)(r - 504) / 1009.0f;
        if (t->dtype == GW_F32) ((float *)p)[i] = x;
        if (t->dtype == GW_BF16) ((gw_bf16 *)p)[i] = gw_bf16_from_f32(x);
        if (t->dtype == GW_I32) ((int32_t *)p)[i] = (int32_t)r;
    }
}

/* Operand i of the op: floats but for labels, and float32 scalars, statistics and accumulators. */
static gw_dtype dtype_of(const line *l, int i) {
    bool head = strncmp(l->op, "head", 4) == 0;
    if (head && i == 2) return GW_I32;
    if (head && i > 2) return GW_F32;
    if (strcmp(l->op, "attention_grad") == 0 && i == 5) return GW_F32;
    if (strcmp(l->op, "matmul_dw") == 0 && i == 2) return GW_F32;
    return l->dtype;
}

typedef struct job {
    gw_graph g;
    gw_kargs k;
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    const gw_kernel *kernel;
    void *state;
    gw_arena arena;
    void **data;
} job;

static void job_init(job *j, const line *l, int threads, gw_diags *dg) {
    memset(j, 0, sizeof *j);
    gw_graph_init(&j->g, gw_ops_table());
    gw_builder b;
    gw_builder_init(&b, &j->g, dg);
    gw_vid in[7];
    int n = 0;
    for (; n < 7 && l->in[n]; n++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", n);
        in[n] = strcmp(l->in[n], "-") == 0
                    ? GW_NONE
                    : gw_graph_leaf(&j->g, GW_ROLE_INPUT, GW_CAUSE_DATA, b.rate,
                                    gw_type_make(dtype_of(l, n), l->in[n]), name);
    }
    gw_build(&b, l->op, in, n, NULL, NULL);
    if (b.status != GW_OK) fail(dg, l->name);
    const gw_op *o = &j->g.ops.items[0];
    j->data = calloc((size_t)j->g.values.count, sizeof *j->data);
    for (int64_t v = 0; v < j->g.values.count; v++) {
        const gw_value *x = &j->g.values.items[v];
        if (x->tie != GW_NONE) {
            j->data[v] = j->data[x->tie];
            continue;
        }
        j->data[v] = memory(gw_type_elems(&x->type) * 8);
        fill(j->data[v], &x->type);
    }
    gw_machine m = gw_machine_this(threads);
    j->kernel = gw_kernel_choose(&j->g, o, &m);
    gw_kargs_bind(&j->k, &j->g, o, j->in, j->out, data_of, j->data, 0);
    j->k.threads = threads;
    j->k.work_bytes = j->kernel->workspace(&j->g, o, &m);
    j->k.work = memory(j->k.work_bytes);
    if (j->kernel->prepare(&j->k, &j->arena, &j->state, dg) != GW_OK) fail(dg, l->name);
}

static void job_release(job *j) {
    j->kernel->release(j->state);
    gw_arena_release(&j->arena);
    for (int64_t v = 0; v < j->g.values.count; v++)
        if (j->g.values.items[v].tie == GW_NONE) free(j->data[v]);
    free(j->data);
    free(j->k.work);
    gw_graph_release(&j->g);
}

static float *a_mem, *b_mem, *c_mem; /* sgemm's operands, the largest any line needs */

static void sgemm(const line *l, int threads, gw_diags *dg) {
    int64_t m = l->m ? l->m : 1024, n = l->m ? l->n : 1024, k = l->m ? l->k : 1024;
    gw_status s = gw_dnnl_sgemm(l->ta, l->tb, m, n, k, a_mem, l->ta ? m : k, b_mem, l->tb ? k : n,
                                0.0f, c_mem, n, threads, dg);
    if (s != GW_OK) fail(dg, "sgemm");
}

/* Wall time, but with one thread its processor time, which a neighbour's load does not stretch. */
static int64_t now(int threads) {
    struct timespec t;
    if (threads > 1) return gw_clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run_line(const line *l, int threads, int repetitions, gw_diags *dg) {
    double ours[MOST], theirs[MOST];
    job j;
    job_init(&j, l, threads, dg);
    for (int i = -1; i < repetitions; i++) {
        int64_t t0 = now(threads);
        sgemm(l, threads, dg);
        int64_t t1 = now(threads);
        if (j.kernel->launch(j.state, &j.k, dg) != GW_OK) fail(dg, l->name);
        int64_t t2 = now(threads);
        if (i < 0) continue;
        theirs[i] = (double)(t1 - t0) * 1e-9;
        ours[i] = (double)(t2 - t1) * 1e-9;
    }
    qsort(ours, (size_t)repetitions, sizeof ours[0], by_value);
    qsort(theirs, (size_t)repetitions, sizeof theirs[0], by_value);
    double flops = l->m ? 2.0 * (double)(l->m * l->n * l->k) : 2.0 * 1024 * 1024 * 1024;
    int mid = repetitions / 2;
    double rate = l->flops * 1e-9 / ours[mid], peak = flops * 1e-9 / theirs[mid];
    printf("%-34s %-24s %7.1f %7.1f %6.2f %6.2f\n", l->name, j.kernel->name, rate, peak,
           rate / peak, (theirs[repetitions * 3 / 4] - theirs[repetitions / 4]) / theirs[mid]);
    fflush(stdout);
    job_release(&j);
}

#define PRODUCT(rows, dims, d, f)                                                                  \
    {"forward " #rows " x " #d " -> " #f,                                                          \
     "matmul",                                                                                     \
     {dims " d" #d, "f" #f " d" #d, "f" #f},                                                       \
     GW_F32,                                                                                       \
     2.0 * rows * d * f,                                                                           \
     false,                                                                                        \
     true,                                                                                         \
     rows,                                                                                         \
     f,                                                                                            \
     d},                                                                                           \
        {"input grad " #rows " x " #d " <- " #f,                                                   \
         "matmul",                                                                                 \
         {dims " f" #f, "f" #f " d" #d},                                                           \
         GW_F32,                                                                                   \
         2.0 * rows * d * f,                                                                       \
         false,                                                                                    \
         false,                                                                                    \
         rows,                                                                                     \
         d,                                                                                        \
         f},                                                                                       \
    {                                                                                              \
        "weight grad " #rows " x " #d " -> " #f, "matmul_dw",                                      \
            {dims " f" #f, dims " d" #d, "f" #f " d" #d}, GW_F32, 2.0 * rows *d *f, true, false,   \
            f, d, rows                                                                             \
    }
#define ATTENTION(b, s, h, g, type, t)                                                             \
    {"attention " #b " x " #s " h" #h " g" #g " " t,                                               \
     "attention",                                                                                  \
     {"b" #b " s" #s " h" #h " k64", "b" #b " s" #s " g" #g " k64",                                \
      "b" #b " s" #s " g" #g " k64"},                                                              \
     type,                                                                                         \
     4.0 * b * h * 64 * s * (s + 1) / 2,                                                           \
     false,                                                                                        \
     false,                                                                                        \
     0,                                                                                            \
     0,                                                                                            \
     0},                                                                                           \
    {                                                                                              \
        "attention grad " #b " x " #s " h" #h " g" #g " " t, "attention_grad",                     \
            {"b" #b " s" #s " h" #h " k64", "b" #b " s" #s " h" #h " k64",                         \
             "b" #b " s" #s " g" #g " k64", "b" #b " s" #s " g" #g " k64",                         \
             "b" #b " s" #s " h" #h " k64", "b" #b " s" #s " h" #h},                               \
            type, 10.0 * b *h * 64 * s *(s + 1) / 2, false, false, 0, 0, 0                         \
    }
#define HEAD(rows, dims, d, v, type, t)                                                            \
    {                                                                                              \
        "head grad " #rows " x " #d " -> " #v " " t, "head_grad",                                  \
            {dims " d" #d, "v" #v " d" #d, dims, "", "v" #v " d" #d}, type, 6.0 * rows *d *v,      \
            false, false, 0, 0, 0                                                                  \
    }

static const line lines[] = {
    PRODUCT(4096, "b4 s1024", 768, 768),
    PRODUCT(4096, "b4 s1024", 768, 3072),
    PRODUCT(1024, "b16 s64", 768, 768),
    PRODUCT(1024, "b16 s64", 768, 3072),
    PRODUCT(1024, "b16 s64", 576, 576),
    PRODUCT(1024, "b16 s64", 576, 192),
    PRODUCT(1024, "b16 s64", 576, 1536),
    {"forward 4096 x 768 -> 3072 bf16",
     "matmul",
     {"b4 s1024 d768", "f3072 d768"},
     GW_BF16,
     2.0 * 4096 * 768 * 3072,
     false,
     true,
     4096,
     3072,
     768},
    {"weight grad 4096 x 768 -> 3072 bf16",
     "matmul_dw",
     {"b4 s1024 f3072", "b4 s1024 d768", "f3072 d768"},
     GW_BF16,
     2.0 * 4096 * 768 * 3072,
     true,
     false,
     3072,
     768,
     4096},
    ATTENTION(4, 1024, 12, 12, GW_F32, "f32"),
    ATTENTION(4, 1024, 9, 3, GW_F32, "f32"),
    ATTENTION(16, 64, 12, 12, GW_F32, "f32"),
    ATTENTION(4, 1024, 12, 12, GW_BF16, "bf16"),
    HEAD(1024, "b16 s64", 768, 50257, GW_F32, "f32"),
    HEAD(4096, "b4 s1024", 768, 50257, GW_F32, "f32"),
    HEAD(1024, "b16 s64", 576, 49152, GW_F32, "f32"),
    HEAD(1024, "b16 s64", 768, 50257, GW_BF16, "bf16"),
};

int main(int argc, char **argv) {
    int64_t threads = 0, times = 20;
    if (argc > 1 && (!gw_parse_i64(argv[1], &threads) || threads < 0 || threads > 1024)) return 2;
    if (argc > 2 && (!gw_parse_i64(argv[2], &times) || times < 4 || times > MOST)) return 2;
    gw_machine m = gw_machine_this((int)threads);
    int repetitions = (int)times;
    gw_diags dg;
    gw_diags_init(&dg);
    float **operands[] = {&a_mem, &b_mem, &c_mem};
    for (int i = 0; i < 3; i++) {
        *operands[i] = memory(4096LL * 3072 * 4);
        gw_type t = gw_type_make(GW_F32, "n4096 m3072");
        fill(*operands[i], &t);
    }
    printf("%s, %d threads, median of %d, GFLOP/s\n", gw_isa_name(m.isa), m.threads, repetitions);
    printf("%-34s %-24s %7s %7s %6s %6s\n", "", "kernel", "ours", "sgemm", "ratio", "rounds");
    for (size_t i = 0; i < GW_COUNT(lines); i++)
        if (argc <= 3 || strstr(lines[i].name, argv[3]))
            run_line(&lines[i], m.threads, repetitions, &dg);
    for (int i = 0; i < 3; i++) free(*operands[i]);
    gw_diags_release(&dg);
    return 0;
}
