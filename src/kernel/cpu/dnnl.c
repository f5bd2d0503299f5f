// SPDX-License-Identifier: Apache-2.0
// The only file that speaks to oneDNN about matrices.
//
// A product is a oneDNN matmul primitive with fully strided operands: weights stored [out in] are
// simply a matrix whose column stride is longer than its row stride, so no copy of ours is made,
// and the library packs as its kernel wants. The gradient of a weight adds into its accumulator by
// the `sum` post-op, in place. The scratchpad is the caller's, so that it stands in the memory
// plan. What oneDNN's assembly kernels allocate inside themselves for packing is the library's own
// and is freed before a call returns.
//
// matmul and not inner_product: both reach the same kernels (gemm:jit below AVX-512) and measured
// the same on every GPT-2 and SmolLM2 shape, and matmul takes any strides and bf16 inputs with a
// float32 result.
//
// Every product has its own engine and stream: on a CPU both are small records, and it leaves no
// global.
#include "kernel/cpu/dnnl.h"

#include <dnnl.h>
#include <omp.h>

#include "base/arena.h"    /* gw_mem_zalloc */
#include "base/panic.h"    /* GW_ASSERT */
#include "kernel/kernel.h" /* gw_machine */

static const char *status_text(dnnl_status_t s) {
    switch (s) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented on this processor";
    case dnnl_iterator_ends: return "no further implementation";
    case dnnl_runtime_error: return "runtime error";
    case dnnl_not_required: return "not required";
    }
    return "unknown status";
}

static gw_status failed(gw_diags *dg, const char *what, dnnl_status_t s) {
    gw_code code = s == dnnl_out_of_memory ? GW_ERR_MEMORY : GW_ERR_DEVICE;
    const dnnl_version_t *v = dnnl_version();
    return GW_FAIL(dg, code, "onednn-failed", "oneDNN %d.%d.%d: %s: %s", v->major, v->minor,
                   v->patch, what, status_text(s));
}

void gw_dnnl_threads(int threads) {
    GW_ASSERT(threads > 0);
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

/* The library's name of a float dtype; false for those it does not multiply. */
static bool dtype_of(gw_dtype t, dnnl_data_type_t *out) {
    if (t == GW_F32) return *out = dnnl_f32, true;
    if (t == GW_BF16) return *out = dnnl_bf16, true;
    if (t == GW_F16) return *out = dnnl_f16, true;
    return false;
}

/* The library's kernels for AVX-512 count elements of a row in 32 bits, and divide by what is left
 * of such a number: longer ones are not shown to it. */
#define MOST INT64_C(0x10000000)

/* The stride of a dimension of one element moves nothing, and the library's cache takes descriptors
 * that differ in it for the same; what it then answers, of scratch too, would depend on what was
 * asked before. So there is one such stride for each matrix. */
static bool desc_of(const gw_dnnl_mat *m, dnnl_memory_desc_t *out) {
    int64_t col = m->cols == 1 ? 1 : m->col_stride;
    int64_t row = m->rows == 1 ? m->cols * col : m->row_stride;
    dnnl_dims_t dims = {m->rows, m->cols};
    dnnl_dims_t strides = {row, col};
    dnnl_data_type_t t;
    return m->rows <= MOST && m->cols <= MOST && dtype_of(m->dtype, &t) &&
           dnnl_memory_desc_init_by_strides(out, 2, dims, t, strides) == dnnl_success;
}

typedef struct descs {
    dnnl_memory_desc_t a, b, c, bias;
} descs;

static bool make_descs(const gw_dnnl_spec *s, descs *d) {
    gw_dnnl_mat bias = {NULL, s->bias_dtype, 1, s->c.cols, s->c.cols, 1};
    return desc_of(&s->a, &d->a) && desc_of(&s->b, &d->b) && desc_of(&s->c, &d->c) &&
           (!s->has_bias || desc_of(&bias, &d->bias));
}

static dnnl_status_t make_attr(const gw_dnnl_spec *s, dnnl_primitive_attr_t *attr) {
    dnnl_status_t st = dnnl_primitive_attr_create(attr);
    if (st != dnnl_success) return st;
    st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (st != dnnl_success || !s->add) return st;
    dnnl_post_ops_t ops = NULL;
    st = dnnl_post_ops_create(&ops);
    if (st == dnnl_success) st = dnnl_post_ops_append_sum(ops, 1.0f);
    if (st == dnnl_success) st = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return st;
}

static dnnl_status_t make_pd(const gw_dnnl_spec *s, const descs *d, dnnl_engine_t engine,
                             dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_matmul_desc_t md;
    dnnl_status_t st =
        dnnl_matmul_desc_init(&md, &d->a, &d->b, s->has_bias ? &d->bias : NULL, &d->c);
    if (st == dnnl_success) st = make_attr(s, &attr);
    if (st == dnnl_success) st = dnnl_primitive_desc_create(pd, &md, attr, engine, NULL);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

int64_t gw_dnnl_product_scratch(const gw_dnnl_spec *s) {
    gw_dnnl_threads(s->threads);
    descs d;
    if (!make_descs(s, &d)) return -1;
    dnnl_engine_t engine = NULL;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return -1;
    dnnl_primitive_desc_t pd = NULL;
    int64_t bytes = -1;
    if (make_pd(s, &d, engine, &pd) == dnnl_success) {
        const dnnl_memory_desc_t *sp =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        bytes = sp ? (int64_t)dnnl_memory_desc_get_size(sp) : 0;
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_engine_destroy(engine);
    return bytes;
}

static dnnl_status_t add_arg(gw_dnnl_product *p, int arg, const dnnl_memory_desc_t *md,
                             void *data) {
    int i = p->nargs;
    dnnl_status_t st = dnnl_memory_create(&p->mem[i], md, p->engine, data);
    if (st != dnnl_success) return st;
    p->args[i] = (dnnl_exec_arg_t){arg, p->mem[i]};
    p->data[i] = data;
    p->nargs++;
    return st;
}

static dnnl_status_t add_args(gw_dnnl_product *p, const gw_dnnl_spec *s, const descs *d,
                              const_dnnl_primitive_desc_t pd, void *scratch) {
    dnnl_status_t st = add_arg(p, DNNL_ARG_SRC, &d->a, s->a.data);
    if (st == dnnl_success) st = add_arg(p, DNNL_ARG_WEIGHTS, &d->b, s->b.data);
    if (st == dnnl_success) st = add_arg(p, DNNL_ARG_DST, &d->c, s->c.data);
    if (st == dnnl_success && s->has_bias) st = add_arg(p, DNNL_ARG_BIAS, &d->bias, s->bias);
    const dnnl_memory_desc_t *sp = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (st == dnnl_success && sp && dnnl_memory_desc_get_size(sp) > 0)
        st = add_arg(p, DNNL_ARG_SCRATCHPAD, sp, scratch);
    return st;
}

gw_status gw_dnnl_product_make(gw_dnnl_product *p, const gw_dnnl_spec *s, void *scratch,
                               gw_diags *dg) {
    *p = (gw_dnnl_product){.threads = s->threads};
    gw_dnnl_threads(s->threads);
    descs d;
    if (!make_descs(s, &d)) return failed(dg, "describing a matrix", dnnl_invalid_arguments);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_engine_create(&p->engine, dnnl_cpu, 0);
    if (st == dnnl_success)
        st = dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags);
    if (st == dnnl_success) st = make_pd(s, &d, p->engine, &pd);
    if (st == dnnl_success) st = dnnl_primitive_create(&p->primitive, pd);
    if (st == dnnl_success) st = add_args(p, s, &d, pd, scratch);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (st == dnnl_success) return GW_OK;
    gw_dnnl_product_release(p);
    return failed(dg, "making a matrix product", st);
}

dnnl_status_t gw_dnnl_memory_move(dnnl_memory_t m, void **last, void *data) {
    if (*last == data) return dnnl_success;
    *last = data;
    return dnnl_memory_set_data_handle(m, data);
}

gw_status gw_dnnl_product_move(gw_dnnl_product *p, void *a, void *b, void *c, void *bias,
                               gw_diags *dg) {
    for (int i = 0; i < p->nargs; i++) {
        int arg = p->args[i].arg;
        void *data = arg == DNNL_ARG_SRC       ? a
                     : arg == DNNL_ARG_WEIGHTS ? b
                     : arg == DNNL_ARG_DST     ? c
                     : arg == DNNL_ARG_BIAS    ? bias
                                               : p->data[i]; /* scratch stays */
        dnnl_status_t st = gw_dnnl_memory_move(p->mem[i], &p->data[i], data);
        if (st != dnnl_success) return failed(dg, "moving a matrix", st);
    }
    return GW_OK;
}

gw_status gw_dnnl_product_run(const gw_dnnl_product *p, gw_diags *dg) {
    gw_dnnl_threads(p->threads);
    dnnl_status_t st = dnnl_primitive_execute(p->primitive, p->stream, p->nargs, p->args);
    if (st == dnnl_success) st = dnnl_stream_wait(p->stream);
    return st == dnnl_success ? GW_OK : failed(dg, "running a matrix product", st);
}

void gw_dnnl_product_release(gw_dnnl_product *p) {
    for (int i = 0; i < p->nargs; i++) dnnl_memory_destroy(p->mem[i]);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->stream) dnnl_stream_destroy(p->stream);
    if (p->engine) dnnl_engine_destroy(p->engine);
    *p = (gw_dnnl_product){0};
}

gw_status gw_dnnl_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc,
                        int threads, gw_diags *dg) {
    gw_dnnl_threads(threads);
    dnnl_status_t st =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    return st == dnnl_success ? GW_OK : failed(dg, "sgemm", st);
}

void gw_kernel_warm(const gw_machine *m) {
    /* One thread alone has as much to do as each of eight. */
    int64_t n = m->threads > 1 ? 1024 : 512;
    if (m->reference_only || m->count_only) return;
    float *a = gw_mem_zalloc(sizeof(float) * (size_t)(n * n * 3));
    omp_set_num_threads(m->threads);
    for (int i = 0; i < 3; i++) /* each way the products of a step are oriented */
        (void)dnnl_sgemm(i == 1 ? 'T' : 'N', i == 0 ? 'T' : 'N', n, n, n, 1.0f, a, n, a + n * n, n,
                         0.0f, a + 2 * n * n, n);
    gw_mem_free(a);
}
