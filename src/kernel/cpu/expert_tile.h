// SPDX-License-Identifier: Apache-2.0
// A few rows through one expert: what the kernels of experts and the expert-parallel executor
// share, so that they agree to the bit.
#ifndef GW_KERNEL_CPU_EXPERT_TILE_H
#define GW_KERNEL_CPU_EXPERT_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "ir/dtype.h"  /* gw_dtype */

/* Sizes that all calls of one op share. */
typedef struct gw_expert_shape {
    int64_t d, f;      /* f: of this rank */
    int64_t rows;      /* of a tile, at most */
    int64_t block;     /* columns of f that are held at a time */
    gw_dtype weights;  /* f32, bf16, f16 */
    gw_dtype gradient; /* of weight gradients */
    bool backward;
    bool plain; /* products by plain loops with float64 sums instead of oneDNN */
    int threads;
} gw_expert_shape;

/* d, f, dtypes; `rows` the most rows that one expert can have. */
gw_expert_shape gw_expert_shape_of(int64_t d, int64_t f, int64_t rows, gw_dtype weights,
                                   gw_dtype gradient, bool backward, int threads);

/* Memory of a tile, all float32 and of the caller's workspace. Row r of x, y, dy at r * d. */
typedef struct gw_expert_tile {
    float *x;     /* in: rows */
    float *y;     /* out: forward the result, backward dx */
    float *dy;    /* in, backward: the gradient of the result, not yet times its gate */
    float *gate;  /* in, backward: [rows] */
    float *dgate; /* out, backward: [rows] */
    float *g, *u, *h, *p;
    float *wide[3]; /* weights below float32: a block of each, widened */
    float *sum;     /* gradients below float32: a block */
} gw_expert_tile;

int64_t gw_expert_tile_bytes(const gw_expert_shape *s);
/* `work`: gw_expert_tile_bytes, aligned to 64. */
void gw_expert_tile_bind(gw_expert_tile *t, const gw_expert_shape *s, void *work);

/* One expert's matrices gate[f d], up[f d], down[d f], and their gradients. */
typedef struct gw_expert {
    const void *gate, *up, *down;
    void *dgate, *dup, *ddown;
} gw_expert;
/* Expert e of stacks that begin at these addresses (dgate ... may be NULL together). */
gw_expert gw_expert_at(const gw_expert_shape *s, const gw_expert *stack, int64_t e);

/* t->y = the expert's net of rows t->x[0..m). */
GW_WARN_UNUSED gw_status gw_expert_forward(const gw_expert_shape *s, const gw_expert_tile *t,
                                           const gw_expert *e, int64_t m, gw_diags *dg);
/* t->y = dx, t->dgate, from t->x, t->dy, t->gate; weight gradients are added to the expert's. */
GW_WARN_UNUSED gw_status gw_expert_backward(const gw_expert_shape *s, const gw_expert_tile *t,
                                            const gw_expert *e, int64_t m, gw_diags *dg);

/* ---- rows ---- */

/* An array of rows of d elements. */
typedef struct gw_expert_rows {
    void *data;
    gw_dtype dtype; /* f32, bf16, f16 */
    int64_t d;
    int threads;
} gw_expert_rows;

/* to[i] = row order[i] / top, as float; i < m. */
void gw_expert_gather(const gw_expert_rows *from, float *to, const int32_t *order, int64_t top,
                      int64_t m);
/* Row order[i] = from[i], rounded; no row twice. */
void gw_expert_scatter(const gw_expert_rows *to, const float *from, const int32_t *order,
                       int64_t m);
/* Row i of `to` = row order[i] / top of `from`, which has its dtype. */
void gw_expert_pack(const gw_expert_rows *to, const void *from, const int32_t *order, int64_t top,
                    int64_t m);
/* to[token] = the sum over its choices c, in the order of their slots, of gates[c] (NULL: 1) times
 * row slot_of[c] (negative: none); `to` has the dtype of rows. top <= 64. */
void gw_expert_sum(const gw_expert_rows *from, void *to, int64_t tokens, int64_t top,
                   const int32_t *slot_of, const float *gates);
/* sums[order[i] / top] += gates[order[i]] (NULL: 1) times rows[i], which is rounded to `dtype`
 * first; sums are float32 rows of d. */
void gw_expert_add(float *sums, const float *rows, gw_dtype dtype, int64_t d, const int32_t *order,
                   int64_t top, int64_t m, const float *gates, int threads);

#endif
