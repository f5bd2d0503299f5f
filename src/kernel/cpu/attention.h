// SPDX-License-Identifier: Apache-2.0
// Attention between its two halves: the hooks (attention.c) and the arithmetic (attention_core.c).
#ifndef GW_KERNEL_CPU_ATTENTION_H
#define GW_KERNEL_CPU_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h" /* gw_dtype */

/* Blocks. Queries lie in vector lanes, a panel of them at a time: at most GW_ATTN_LANES, two
 * registers of the widest instruction set. Head sizes are padded to whole panels inside workspace.
 */
#define GW_ATTN_LANES        32
#define GW_ATTN_KEYS         96  /* keys in a block, forward */
#define GW_ATTN_CHUNK        256 /* most queries in a forward task */
#define GW_ATTN_GRAD_KEYS    48  /* keys in a block, backward */
#define GW_ATTN_GRAD_QUERIES 64  /* queries in a block, backward */

/* The problem, bound: a rank's part of it. Arrays are [b sq h k] (q, dq), [b sq h u] (o, do), [b sk
 * g k] (k, dk) and [b sk g u] (v, dv); operands are of one dtype (f32, bf16, f16), results of
 * another.
 */
typedef struct gw_attn {
    int64_t b, sq, sk, h, g, k, u;
    int64_t per, h0, g0;     /* local head x reads local kv head (h0 + x) / per - g0 */
    gw_dtype dtype, results; /* of the operands; of o, or of dq, dk and dv */
    const void *q, *key, *v, *out_grad, *o_in;
    void *o, *dq, *dk, *dv;
    float *lse;  /* [b sq h], natural logarithm; minus infinity: saw nothing */
    bool merge;  /* forward: o and lse (f32) hold what earlier blocks of keys gave */
    bool add[3]; /* backward: dq, dk, dv (f32) are added to what is there */
    const int32_t *docs, *kdocs; /* [b sq], [b sk], or NULL */
    float scale;
    /* Query i of row b sees no key outside [lo[b*sq+i], hi[b*sq+i]); none at all: [sk, 0). Where
     * `exact[b]` is set it sees all inside; otherwise document ids must be compared too. */
    int32_t *lo, *hi;
    uint8_t *exact;
} gw_attn;

/* The local kv head of local head h; the local heads [*first, *end) that read local kv head g. */
static inline int64_t gw_attn_group(const gw_attn *a, int64_t h) {
    return (a->h0 + h) / a->per - a->g0;
}
static inline void gw_attn_heads(const gw_attn *a, int64_t g, int64_t *first, int64_t *end) {
    int64_t lo = (a->g0 + g) * a->per - a->h0, hi = lo + a->per;
    *first = lo > 0 ? lo : 0;
    *end = hi < a->h ? hi : a->h;
}

/* One instruction set's arithmetic. `work` is aligned to 64 bytes. */
typedef struct gw_attn_core {
    const char *name;
    /* Queries [q0, q1) of head h of row b; q0 is a multiple of GW_ATTN_LANES, q1 - q0 <=
     * GW_ATTN_CHUNK. */
    void (*forward)(const gw_attn *a, int64_t b, int64_t h, int64_t q0, int64_t q1, float *work);
    /* All of kv head g of row b: its dk and dv, and dq of the query heads that use it. */
    void (*backward)(const gw_attn *a, int64_t b, int64_t g, float *work);
} gw_attn_core;

/* The widest core that this processor runs. */
const gw_attn_core *gw_attn_core_get(void);
/* Core i, narrowest first; NULL past the end or where the processor lacks it. For tests. */
const gw_attn_core *gw_attn_core_at(int i);
/* Floats of `work` per thread, enough for every core. */
int64_t gw_attn_forward_floats(int64_t k, int64_t u);
int64_t gw_attn_backward_floats(int64_t sk, int64_t k, int64_t u);

#endif
