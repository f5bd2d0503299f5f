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

/* The problem, bound. Arrays are [b s h k] (q, o and their gradients) or [b s g k] (k, v and
 * theirs), all of one dtype (f32, bf16, f16). */
typedef struct gw_attn {
    int64_t b, s, h, g, k;
    gw_dtype dtype;
    const void *q, *key, *v, *out_grad, *o_in;
    void *o, *dq, *dk, *dv;
    float *lse;          /* [b s h], natural logarithm */
    const int32_t *docs; /* [b s] or NULL */
    bool causal;
    int64_t window; /* 0 = none */
    float scale;
    /* Query i of row b sees no key outside [lo[b*s+i], hi[b*s+i]). Where `exact[b]` is set it sees
     * all inside; otherwise document ids must be compared too. */
    int32_t *lo, *hi;
    uint8_t *exact;
} gw_attn;

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
int64_t gw_attn_forward_floats(int64_t k);
int64_t gw_attn_backward_floats(int64_t s, int64_t k);

#endif
