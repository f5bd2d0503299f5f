// SPDX-License-Identifier: Apache-2.0
// The sizes of a batch norm, as its ops and their kernels both read them off their operands.
#ifndef GW_OPS_BATCHNORM_H
#define GW_OPS_BATCHNORM_H

#include <stdint.h>

#include "ir/opdef.h" /* gw_kargs */

/* x[b .. c] seen as groups x rows x c: what stands here, and how many rows a group has on all ranks
 * together, which is what its sums are divided by. */
typedef struct gw_bn_shape {
    int64_t groups, rows, c;
    double count;
} gw_bn_shape;

/* x is input `x` (which is there); stat is a tensor [group c], input or output, that lies here as x
 * does. */
gw_bn_shape gw_bn_shape_of(const gw_kargs *k, int x, const gw_tensor *stat, int64_t global_groups);

/* How many groups a statistic [group c] or [c] is of, on all ranks together. */
int64_t gw_bn_groups(const gw_graph *g, gw_vid stat);

/* 1 / sqrt(var + eps). */
double gw_bn_rstd(double var, double eps);

#endif
