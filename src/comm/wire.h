// SPDX-License-Identifier: Apache-2.0
// Wire formats: how float32 values travel when they travel smaller.
//
// BF16 rounds to nearest even. INT8 and INT4 (ZeRO++, "qwZ" and "qgZ") cut a sequence into blocks
// of GW_WIRE_BLOCK values; a block is one float32 scale and then its codes:
//   INT8   one byte each, two's complement, -127 .. 127; scale = (largest magnitude) / 127
//   INT4   two to a byte, the first in the low half, -7 .. 7 plus 8; scale = (largest magnitude) /
//   7
// The last block is as short as the sequence; nothing is padded but an odd half byte.
//
// What one hop may do to a value x in a block whose largest magnitude is m: it changes by at most
// half a step, m / 254 (INT8) or m / 14 (INT4), and 4 units in the last place of m for the float32
// arithmetic; a block of zeros stays zeros. A block that holds a NaN or an infinity arrives as all
// NaN, so that overflow is seen behind the wire as well as before it. Blocks whose m is below
// 127 * 2^-126 (INT8), 7 * 2^-126 (INT4) arrive as zeros.
#ifndef GW_COMM_WIRE_H
#define GW_COMM_WIRE_H

#include <stdint.h>

#include "comm/comm.h" /* gw_wire */

#define GW_WIRE_BLOCK 256

/* Bytes of n values of dtype t on the wire: scales included. SAME is the size of t. */
int64_t gw_wire_bytes(gw_wire w, gw_dtype t, int64_t n);
/* float32 to wire and back; `w` is not SAME. */
void gw_wire_encode(gw_wire w, void *out, const float *in, int64_t n);
void gw_wire_decode(gw_wire w, float *out, const void *in, int64_t n);

#endif
