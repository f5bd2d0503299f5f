// SPDX-License-Identifier: Apache-2.0
// Element types. The list is the only place that names one.
#ifndef GW_IR_DTYPE_H
#define GW_IR_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* X(enum suffix, text form, bits an element) */
#define GW_DTYPES(X)                                                                               \
    X(F32, "f32", 32)                                                                              \
    X(BF16, "bf16", 16)                                                                            \
    X(F16, "f16", 16)                                                                              \
    X(F64, "f64", 64)                                                                              \
    X(I32, "i32", 32)                                                                              \
    X(I64, "i64", 64)                                                                              \
    X(U8, "u8", 8)                                                                                 \
    X(F8E4M3, "f8e4m3", 8)                                                                         \
    X(F8E5M2, "f8e5m2", 8)

typedef enum gw_dtype {
#define X(id, text, bits) GW_##id,
    GW_DTYPES(X)
#undef X
        GW_DTYPE_COUNT
} gw_dtype;

const char *gw_dtype_name(gw_dtype t);
/* Bits of one element. */
int gw_dtype_bits(gw_dtype t);
/* Takes part in arithmetic as a float. Eight-bit floats do not: they are storage, which means
 * something together with its scales only (ops/fp8.h). */
bool gw_dtype_is_float(gw_dtype t);
/* Finds by text form; false if there is none. */
bool gw_dtype_parse(const char *text, gw_dtype *out);

#endif
