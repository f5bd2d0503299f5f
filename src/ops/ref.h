// SPDX-License-Identifier: Apache-2.0
// Element access for reference kernels: one loop for every float dtype.
//
// A reference kernel is the meaning of its op. It reads each element as a double (exact for every
// dtype), does all arithmetic of one output element in double, and rounds once when it writes (to
// nearest even; bf16 and f16 by way of float32). So its error is half a unit in the last place of
// the output plus what double leaves, in every dtype, and f64 graphs serve for finite differences.
// Outputs may share bytes with an input only where the op says so; then element i is read before it
// is written.
#ifndef GW_OPS_REF_H
#define GW_OPS_REF_H

#include "base/num.h" /* gw_bf16, gw_fp16 */
#include "ir/opdef.h" /* gw_tensor, gw_kargs */

/* Element i of the flattened tensor. */
double gw_ref_get(const gw_tensor *t, int64_t i);
void gw_ref_set(const gw_tensor *t, int64_t i, double x);
/* Element i of an integer tensor. */
int64_t gw_ref_int(const gw_tensor *t, int64_t i);

/* Input i is present. */
bool gw_ref_has(const gw_kargs *k, int i);
/* Element e of the accumulator at input i, or 0 when there is none. */
double gw_ref_acc(const gw_kargs *k, int i, int64_t e);
gw_attr gw_ref_attr(const gw_kargs *k, int i);

/* Length of the last dimension, and number of rows before it. */
int64_t gw_ref_last(const gw_tensor *t);
int64_t gw_ref_rows(const gw_tensor *t);
/* Product of dims first .. ndim. */
int64_t gw_ref_inner(const gw_tensor *t, int first);
/* sum over i < n of a[ia + i*sa] * b[ib + i*sb]. */
double gw_ref_dot(const gw_tensor *a, int64_t ia, int64_t sa, const gw_tensor *b, int64_t ib,
                  int64_t sb, int64_t n);

#endif
