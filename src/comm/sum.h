// SPDX-License-Identifier: Apache-2.0
// Arithmetic of collectives: sums, maxima, conversions and copies over plain arrays.
//
// bf16 and f16 are summed in float32, float32 in float32, float64 in float64; results are rounded
// to nearest even. A maximum is NaN if any operand is. One thread; callers share out ranges.
#ifndef GW_COMM_SUM_H
#define GW_COMM_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h" /* gw_dtype */

/* The type in which values of a dtype are added: F64 for F64, else F32. */
gw_dtype gw_sum_dtype(gw_dtype t);
/* dst = src, from one dtype to another; equal types copy bytes, others must be F32, BF16 or F16 on
 * both sides. dst == src only with equal types. */
void gw_sum_convert(void *dst, gw_dtype to, const void *src, gw_dtype from, int64_t n);
/* acc[i] = acc[i] + src[i], or their maximum; acc has gw_sum_dtype(t). */
void gw_sum_add(void *acc, const void *src, gw_dtype t, int64_t n, bool max);

/* Copies; `stream` writes past the caches, for data that nobody reads soon. A streamed store is
 * complete before the function returns. */
void gw_sum_copy(void *dst, const void *src, int64_t bytes, bool stream);
/* One read, many writes: dst[k] + at = src, for k < ndst; dst[k] + at == src is allowed. */
void gw_sum_fan(char *const *dst, int ndst, int64_t at, const void *src, int64_t bytes,
                bool stream);
/* dst[j][i] = round(src[0][i] + src[1][i] + ...) for all j: the sum in the order of src, written to
 * every dst. Offsets in elements: of src and of dst. Any dst may be equal to a src at the same
 * place. */
void gw_sum_many(char *const *dst, int ndst, int64_t dst_at, char *const *src, int nsrc,
                 int64_t src_at, gw_dtype t, int64_t n, bool max, bool stream);

#endif
