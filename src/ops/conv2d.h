// SPDX-License-Identifier: Apache-2.0
// The sizes of a convolution, as the ops and their kernels both read them off their operands.
#ifndef GW_OPS_CONV2D_H
#define GW_OPS_CONV2D_H

#include <stdint.h>

#include "ir/opdef.h" /* gw_kargs, gw_tensor */

/* Images b, input h x w x c, output oh x ow x o, filters kh x kw. All local. */
typedef struct gw_conv {
    int64_t b, h, w, c, oh, ow, o, kh, kw, stride, pad;
} gw_conv;

/* The three tensors of a convolution op, whichever it is: x[b y x c], w[o c i j], y[b y x o] (or
 * their gradients). */
typedef struct gw_conv_args {
    const gw_tensor *x, *w, *y;
    gw_conv s;
} gw_conv_args;

/* Of an op conv2d, conv2d_dx or conv2d_dw; panics for another. */
gw_conv_args gw_conv_args_of(const gw_kargs *k);

/* Length of a side after a window of `size` has gone over it: 0 or less if it does not fit. */
static inline int64_t gw_conv_out(int64_t n, int64_t size, int64_t stride, int64_t pad) {
    return n + 2 * pad < size ? 0 : (n + 2 * pad - size) / stride + 1;
}

#endif
