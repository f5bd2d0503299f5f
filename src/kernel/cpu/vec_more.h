// SPDX-License-Identifier: Apache-2.0
// What the memory-bound kernels share: elements of any storage float inside a vector loop, one loop
// made for each dtype, fixed blocks of work, and the hooks of kernels that need nothing.
//
// A loop is written once, as a GW_ALWAYS_INLINE function with a gw_dtype parameter that reads and
// writes through gw_vec_get and gw_vec_put, and made three times by GW_VEC_EACH, each time a
// GW_CLONES function in which the dtype is a constant. Where an output may share its bytes with an
// input (element i is read before it is written) the loop is marked `omp simd` instead of taking
// restrict pointers.
//
// Bits do not depend on threads: work is cut into blocks whose borders follow from shapes alone,
// each block is computed by one thread, and what is summed over blocks is summed in the order of
// blocks.
#ifndef GW_KERNEL_CPU_VEC_MORE_H
#define GW_KERNEL_CPU_VEC_MORE_H

#include "base/compiler.h"  /* GW_ALWAYS_INLINE, GW_CLONES, GW_MIN */
#include "base/rng.h"       /* gw_rng_key */
#include "kernel/cpu/vec.h" /* gw_vec_f16_to_f32, gw_vec_load */
#include "kernel/kernel.h"  /* gw_kargs, gw_machine */

/* Elements of an elementwise task: small enough to share out, large enough to hide the call. */
#define GW_VEC_TASK 16384

/* Element i of an array of f32, bf16 or f16, as float. */
static GW_ALWAYS_INLINE float gw_vec_get(const void *p, gw_dtype t, int64_t i) {
    if (t == GW_F32) return ((const float *)p)[i];
    uint32_t h = ((const uint16_t *)p)[i];
    return t == GW_BF16 ? gw_f32_from_bits(h << 16) : gw_vec_f16_to_f32((uint16_t)h);
}

/* As gw_vec_bf16_from_f32, with the comparison of floats that vector units have (NaN alone differs
 * from itself). */
static GW_ALWAYS_INLINE uint16_t gw_vec_narrow(float x) {
    uint32_t u = gw_f32_bits(x), nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(x != x ? (u >> 16) | 0x40u : nearest);
}

/* The reverse, rounded to nearest even. */
static GW_ALWAYS_INLINE void gw_vec_put(void *p, gw_dtype t, int64_t i, float x) {
    if (t == GW_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = t == GW_BF16 ? gw_vec_narrow(x) : gw_vec_f16_from_f32(x);
}

/* GW_VEC_EACH(M) expands M(suffix, dtype) for each storage float; GW_VEC_PICK(name, t) is the
 * function name_suffix of dtype t, from a table name_of[] that GW_VEC_TABLE(type, name) makes. */
#define GW_VEC_EACH(M) M(f32, GW_F32) M(bf16, GW_BF16) M(f16, GW_F16)
#define GW_VEC_TABLE(type, name)                                                                   \
    static type *const name##_of[3] = {                                                            \
        [GW_F32] = name##_f32, [GW_BF16] = name##_bf16, [GW_F16] = name##_f16};

static inline bool gw_vec_is_float(gw_dtype t) {
    return t == GW_F32 || t == GW_BF16 || t == GW_F16;
}
/* Bytes of a storage float; address of element i of an array of them. */
static inline int64_t gw_vec_size(gw_dtype t) { return t == GW_F32 ? 4 : 2; }
static inline const void *gw_vec_at(const void *p, gw_dtype t, int64_t i) {
    return (const char *)p + i * gw_vec_size(t);
}
static inline void *gw_vec_out(void *p, gw_dtype t, int64_t i) {
    return (char *)p + i * gw_vec_size(t);
}

/* The arguments of an op with local shapes of rank 0 and no data: what supports and workspace look
 * at. */
typedef struct gw_vec_shape {
    gw_kargs k;
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
} gw_vec_shape;
void gw_vec_shape_of(gw_vec_shape *s, const gw_graph *g, const gw_op *o);
/* Input i is given. */
bool gw_vec_given(const gw_graph *g, const gw_op *o, int i);
/* Every given input in the bit mask, and every output, has a storage float. */
bool gw_vec_floats(const gw_graph *g, const gw_op *o, uint32_t inputs);
static inline gw_dtype gw_vec_in_type(const gw_graph *g, const gw_op *o, int i) {
    return (gw_dtype)gw_type_of(g, gw_op_in(g, o, i))->dtype;
}
static inline gw_dtype gw_vec_out_type(const gw_graph *g, const gw_op *o, int i) {
    return (gw_dtype)gw_type_of(g, gw_op_out(g, o, i))->dtype;
}
/* Element i of an i32 or i64 tensor. */
static inline int64_t gw_vec_int(const gw_tensor *t, int64_t i) {
    return t->dtype == GW_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}
/* Length of the last dimension, and elements divided by it. */
static inline int64_t gw_vec_last(const gw_tensor *t) { return t->ndim ? t->dims[t->ndim - 1] : 1; }
static inline int64_t gw_vec_rows(const gw_tensor *t) {
    int64_t d = gw_vec_last(t);
    return d ? t->elems / d : 0;
}

/* ---- sums over rows ---- */

/* `rows` rows in at most GW_VEC_PARTS blocks of equal length (the last may be shorter). */
#define GW_VEC_PARTS 128
typedef struct gw_vec_blocks {
    int64_t count, length;
} gw_vec_blocks;
gw_vec_blocks gw_vec_blocks_of(int64_t rows);
/* out[j] = acc[j] + sum over blocks p, in order and in float64, of parts[p * stride + j], for j <
 * n. acc may be NULL; it has the dtype of out and may be out. */
void gw_vec_sum_parts(const gw_tensor *out, const gw_tensor *acc, const float *parts, int64_t count,
                      int64_t stride, int64_t n, int threads);

/* ---- random words ---- */
/* out[i] = gw_rng_u32(key, first + i) for i < n, and up to three words more: out has room for n
 * rounded up to a multiple of 4. first is a multiple of 4. */
void gw_vec_random(uint32_t *out, gw_rng_key key, uint64_t first, int64_t n);
/* out[j] = gw_rng_u32(key, index in the whole tensor of local element i + j) for j < n; out has
 * room for n + 3. `held` is as gw_held_begin left it. */
void gw_vec_random_held(uint32_t *out, gw_rng_key key, const gw_held *held, int64_t i, int64_t n);

/* ---- hooks ---- */
int64_t gw_vec_no_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m);
gw_status gw_vec_no_state(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg);
void gw_vec_no_release(void *state);

/* A kernel without state: a name, a note and two or three functions. */
#define GW_VEC_KERNEL(ident, op_, note_, supports_, workspace_, launch_)                           \
    const gw_kernel gw_kernel_cpu_##ident = {                                                      \
        .name = "cpu-" op_,                                                                        \
        .op = op_,                                                                                 \
        .note = note_,                                                                             \
        .supports = supports_,                                                                     \
        .workspace = workspace_,                                                                   \
        .prepare = gw_vec_no_state,                                                                \
        .launch = launch_,                                                                         \
        .release = gw_vec_no_release,                                                              \
    }

#endif
