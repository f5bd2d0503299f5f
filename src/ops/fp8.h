// SPDX-License-Identifier: Apache-2.0
// Blocks of eight-bit floats: how a tensor of values and a tensor of scales belong together.
//
// Scales have the dims of the values, by name and order, but for the blocked ones: where values
// have n elements along a dimension, scales have ceil(n / 128). Element i along it belongs to block
// i / 128; the last block may be short. So a block lies within one run of its dimension: it never
// spans two heads, two samples or two experts.
#ifndef GW_OPS_FP8_H
#define GW_OPS_FP8_H

#include "ir/opdef.h"     /* gw_type, gw_kargs */
#include "ops/contract.h" /* gw_contract */

#define GW_FP8_BLOCK 128

static inline int64_t gw_fp8_blocks(int64_t n) { return (n + GW_FP8_BLOCK - 1) / GW_FP8_BLOCK; }
static inline bool gw_dtype_is_fp8(gw_dtype t) { return t == GW_F8E4M3 || t == GW_F8E5M2; }
/* 448 or 57344. */
float gw_fp8_max(gw_dtype format);
/* One element. */
float gw_fp8_decode(gw_dtype format, uint8_t bits);
uint8_t gw_fp8_encode(gw_dtype format, float x);

/* The scale of a block whose largest finite magnitude is amax: amax / max in float32, no less than
 * 2^-126; 1 for a block of zeros. pow2: the next power of two that is not less (UE8M0), no more
 * than 2^127. */
float gw_fp8_scale(float amax, gw_dtype format, bool pow2);
/* x in units of the block's scale, by a float32 division; what is not finite becomes NaN. */
uint8_t gw_fp8_quant(float x, float scale, gw_dtype format);

/* Elements along each dimension of the values that share a scale, 1 or 128, from the two types;
 * false where they do not belong together. A dimension of one element counts as 1. */
bool gw_fp8_steps(const gw_type *values, const gw_type *scales, int64_t step[GW_MAX_DIMS]);

/* Factors by name, as by default, each of which scales hold in blocks. */
void gw_fp8_sign(const gw_graph *g, const gw_op *o, gw_signature *s);

/* Do all ranks hold whole blocks along dimension i of the values x, and the same ones of scales
 * that are cut alike? */
bool gw_fp8_blocks_are_whole(const gw_type *x, int i, const gw_mesh *m);

/* Dims of the operands of a product that its blocks lie along. `along`: the innermost of those that
 * are contracted; `across`: the innermost of the others. */
typedef struct gw_fp8_side {
    int along, across;
} gw_fp8_side;
gw_fp8_side gw_fp8_side_of(const gw_contract *c, bool second);

/* One operand of a product as a kernel sees it: a matrix of `free` rows (or columns, where
 * `leading`) of `k` contracted elements, k = outer * inner, of which every 128 of `inner` share a
 * scale: blocks = outer * ceil(inner / 128). Row i has row i / step of scales within its run of
 * `run` rows. */
typedef struct gw_fp8_operand {
    const uint8_t *values;
    const float *scales;
    gw_dtype format;
    bool leading; /* values [k free], scales [blocks rows]; else [free k], [rows blocks] */
    int64_t free, run, step, rows;
} gw_fp8_operand;

typedef struct gw_fp8_product {
    int64_t m, n, k;
    int64_t outer, inner, blocks; /* of k */
    gw_fp8_operand a, b;
} gw_fp8_product;

/* Of fp8_matmul and fp8_matmul_dw, local sizes. */
gw_fp8_product gw_fp8_product_of(const gw_kargs *k);
static inline int64_t gw_fp8_scale_row(const gw_fp8_operand *o, int64_t i) {
    return i / o->run * ((o->run + o->step - 1) / o->step) + i % o->run / o->step;
}
/* Scale of row i in block q. */
static inline float gw_fp8_scale_at(const gw_fp8_operand *o, int64_t blocks, int64_t i, int64_t q) {
    int64_t r = gw_fp8_scale_row(o, i);
    return o->scales[o->leading ? q * o->rows + r : r * blocks + q];
}
/* The contracted elements of block q: from `first`, `count` of them. */
static inline void gw_fp8_block_of(const gw_fp8_product *p, int64_t q, int64_t *first,
                                   int64_t *count) {
    int64_t each = gw_fp8_blocks(p->inner), at = q % each * GW_FP8_BLOCK;
    *first = q / each * p->inner + at;
    *count = p->inner - at < GW_FP8_BLOCK ? p->inner - at : GW_FP8_BLOCK;
}

#endif
