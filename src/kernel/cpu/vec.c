// SPDX-License-Identifier: Apache-2.0
// Conversion between float32 and the storage floats, in bulk.
//
// Every kernel that meets bf16 or f16 without library support works in float32 on small blocks and
// comes here at both ends, so there is one place to make fast. Results agree bit for bit with
// base/num.h.
#include "kernel/cpu/vec.h"

#include <string.h>

#include "base/compiler.h" /* GW_CLONES, GW_RESTRICT */
#include "base/panic.h"    /* gw_panic */

GW_CLONES static void from_bf16(float *GW_RESTRICT dst, const uint16_t *GW_RESTRICT src,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_f32_from_bits((uint32_t)src[i] << 16);
}

GW_CLONES static void from_f16(float *GW_RESTRICT dst, const uint16_t *GW_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_vec_f16_to_f32(src[i]);
}

GW_CLONES static void to_bf16(uint16_t *GW_RESTRICT dst, const float *GW_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_vec_bf16_from_f32(src[i]);
}

GW_CLONES static void to_f16(uint16_t *GW_RESTRICT dst, const float *GW_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_vec_f16_from_f32(src[i]);
}

void gw_vec_load(float *dst, const void *src, gw_dtype t, int64_t first, int64_t n) {
    if (t == GW_F32)
        memcpy(dst, (const float *)src + first, (size_t)n * sizeof(float));
    else if (t == GW_BF16)
        from_bf16(dst, (const uint16_t *)src + first, n);
    else if (t == GW_F16)
        from_f16(dst, (const uint16_t *)src + first, n);
    else
        gw_panic("gw_vec_load of %s", gw_dtype_name(t));
}

void gw_vec_store(void *dst, gw_dtype t, int64_t first, const float *src, int64_t n) {
    if (t == GW_F32)
        memcpy((float *)dst + first, src, (size_t)n * sizeof(float));
    else if (t == GW_BF16)
        to_bf16((uint16_t *)dst + first, src, n);
    else if (t == GW_F16)
        to_f16((uint16_t *)dst + first, src, n);
    else
        gw_panic("gw_vec_store of %s", gw_dtype_name(t));
}
