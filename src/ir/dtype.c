// SPDX-License-Identifier: Apache-2.0
// Element types: what the list in ir/dtype.h says, as functions.
//
// Names and sizes are columns of GW_DTYPES, so a new type is a line there; whether it is a float is
// a switch without default, so that the compiler asks for the answer. Sizes are in bits, because
// storage types below a byte exist.
#include "ir/dtype.h"

#include <string.h>

#include "base/panic.h" /* GW_ASSERT */

static const char *const names[] = {
#define X(id, text, bits) text,
    GW_DTYPES(X)
#undef X
};

static const int bits_of[] = {
#define X(id, text, bits) bits,
    GW_DTYPES(X)
#undef X
};

const char *gw_dtype_name(gw_dtype t) { return (unsigned)t < GW_DTYPE_COUNT ? names[t] : "?"; }

int gw_dtype_bits(gw_dtype t) {
    GW_ASSERT((unsigned)t < GW_DTYPE_COUNT);
    return bits_of[t];
}

bool gw_dtype_is_float(gw_dtype t) {
    switch (t) {
    case GW_F32:
    case GW_BF16:
    case GW_F16:
    case GW_F64: return true;
    case GW_I32:
    case GW_I64:
    case GW_U8:
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
    return false;
}

bool gw_dtype_parse(const char *text, gw_dtype *out) {
    for (int i = 0; i < GW_DTYPE_COUNT; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (gw_dtype)i;
            return true;
        }
    return false;
}
