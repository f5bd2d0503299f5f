// SPDX-License-Identifier: Apache-2.0
// oneDNN as the kernels use it: one strided matrix product, with the primitive made beforehand.
//
// Threads: oneDNN takes the number of the calling thread's OpenMP setting, both when a product is
// made and when it runs; every function here sets it to `threads` first. That setting is per
// thread, not global.
#ifndef GW_KERNEL_CPU_DNNL_H
#define GW_KERNEL_CPU_DNNL_H

#include <dnnl_types.h> /* dnnl_engine_t, dnnl_primitive_t, dnnl_exec_arg_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "ir/dtype.h"  /* gw_dtype */

/* A matrix where it lies: element (i, j) is data[i * row_stride + j * col_stride], strides in
 * elements. */
typedef struct gw_dnnl_mat {
    void *data;
    gw_dtype dtype;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} gw_dnnl_mat;

/* c = a b, + bias[cols of c] unless `bias` is NULL, + c where `add`. Sums are float32 inside. */
typedef struct gw_dnnl_spec {
    gw_dnnl_mat a, b, c;
    void *bias;
    gw_dtype bias_dtype;
    bool has_bias; /* a spec made to ask about workspace has no pointers yet */
    bool add;
    int threads;
} gw_dnnl_spec;

typedef struct gw_dnnl_product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t mem[5];
    dnnl_exec_arg_t args[5];
    void *data[5]; /* of each argument, as last set */
    int nargs;
    int threads;
} gw_dnnl_product;

/* Scratch bytes of this product, or -1 where oneDNN has no implementation of it on this machine. */
int64_t gw_dnnl_product_scratch(const gw_dnnl_spec *spec);
/* Makes the primitive on the spec's pointers. `scratch` holds at least
 * gw_dnnl_product_scratch(spec) bytes, aligned to 64, and stays. On an error *p is released. */
GW_WARN_UNUSED gw_status gw_dnnl_product_make(gw_dnnl_product *p, const gw_dnnl_spec *spec,
                                              void *scratch, gw_diags *dg);
/* From here on its matrices (bias: NULL without one) lie there. Costs nothing for those that have
 * not moved, and a few stores for others. */
GW_WARN_UNUSED gw_status gw_dnnl_product_move(gw_dnnl_product *p, void *a, void *b, void *c,
                                              void *bias, gw_diags *dg);
/* Runs it, and returns when it is done. */
GW_WARN_UNUSED gw_status gw_dnnl_product_run(const gw_dnnl_product *p, gw_diags *dg);
/* Safe on a zeroed product. */
void gw_dnnl_product_release(gw_dnnl_product *p);

/* Row-major C[m n] = op(A) op(B) + beta C in float32. `ta`: A is stored [k m]; `tb`: B is stored [n
 * k]. */
GW_WARN_UNUSED gw_status gw_dnnl_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                                       const float *a, int64_t lda, const float *b, int64_t ldb,
                                       float beta, float *c, int64_t ldc, int threads,
                                       gw_diags *dg);

/* Memory `m` lies at `data` from here on; *last is where it lay. Nothing is called where the two
 * are equal. */
GW_WARN_UNUSED dnnl_status_t gw_dnnl_memory_move(dnnl_memory_t m, void **last, void *data);

/* Sets the calling thread's OpenMP thread count if it differs. */
void gw_dnnl_threads(int threads);

#endif
