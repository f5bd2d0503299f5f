// SPDX-License-Identifier: Apache-2.0
// Eight-bit floats in bulk: what the kernels of fp8_quant, fp8_dequant and fp8_matmul share.
#ifndef GW_KERNEL_CPU_FP8_H
#define GW_KERNEL_CPU_FP8_H

#include <stdint.h>

#include "ir/dtype.h" /* gw_dtype */

/* dst[0..n) = src[0..n) as float, without scales. No overlap. */
void gw_fp8_load(float *dst, const uint8_t *src, gw_dtype format, int64_t n);

#endif
