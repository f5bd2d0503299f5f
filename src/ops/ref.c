// SPDX-License-Identifier: Apache-2.0
// Element access for reference kernels (ops/ref.h holds the contract). Speed is not the point here:
// a switch per element keeps each kernel one readable loop.
#include "ops/ref.h"

#include "base/fp8.h"   /* gw_f8e4m3_to_f32 */
#include "base/panic.h" /* gw_panic */

double gw_ref_get(const gw_tensor *t, int64_t i) {
    switch (t->dtype) {
    case GW_F32: return (double)((const float *)t->data)[i];
    case GW_BF16: return (double)gw_bf16_to_f32(((const gw_bf16 *)t->data)[i]);
    case GW_F16: return (double)gw_fp16_to_f32(((const gw_fp16 *)t->data)[i]);
    case GW_F64: return ((const double *)t->data)[i];
    case GW_F8E4M3: return (double)gw_f8e4m3_to_f32(((const gw_f8e4m3 *)t->data)[i]);
    case GW_F8E5M2: return (double)gw_f8e5m2_to_f32(((const gw_f8e5m2 *)t->data)[i]);
    case GW_I32:
    case GW_I64:
    case GW_U8:
    case GW_DTYPE_COUNT: break;
    }
    gw_panic("a reference kernel reads %s as a float", gw_dtype_name(t->dtype));
}

void gw_ref_set(const gw_tensor *t, int64_t i, double x) {
    switch (t->dtype) {
    case GW_F32: ((float *)t->data)[i] = (float)x; return;
    case GW_BF16: ((gw_bf16 *)t->data)[i] = gw_bf16_from_f32((float)x); return;
    case GW_F16: ((gw_fp16 *)t->data)[i] = gw_fp16_from_f32((float)x); return;
    case GW_F64: ((double *)t->data)[i] = x; return;
    case GW_F8E4M3: ((gw_f8e4m3 *)t->data)[i] = gw_f8e4m3_from_f32((float)x); return;
    case GW_F8E5M2: ((gw_f8e5m2 *)t->data)[i] = gw_f8e5m2_from_f32((float)x); return;
    case GW_I32:
    case GW_I64:
    case GW_U8:
    case GW_DTYPE_COUNT: break;
    }
    gw_panic("a reference kernel writes %s as a float", gw_dtype_name(t->dtype));
}

int64_t gw_ref_int(const gw_tensor *t, int64_t i) {
    if (t->dtype == GW_I32) return ((const int32_t *)t->data)[i];
    if (t->dtype == GW_I64) return ((const int64_t *)t->data)[i];
    gw_panic("a reference kernel reads %s as an integer", gw_dtype_name(t->dtype));
}

bool gw_ref_has(const gw_kargs *k, int i) { return i < k->nin && k->in[i].data; }

double gw_ref_acc(const gw_kargs *k, int i, int64_t e) {
    return gw_ref_has(k, i) ? gw_ref_get(&k->in[i], e) : 0;
}

gw_attr gw_ref_attr(const gw_kargs *k, int i) { return gw_op_attr(k->g, k->op, i); }

int64_t gw_ref_last(const gw_tensor *t) { return t->ndim ? t->dims[t->ndim - 1] : 1; }

int64_t gw_ref_rows(const gw_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i + 1 < t->ndim; i++) n *= t->dims[i];
    return n;
}

int64_t gw_ref_inner(const gw_tensor *t, int first) {
    int64_t n = 1;
    for (int i = first; i < t->ndim; i++) n *= t->dims[i];
    return n;
}

double gw_ref_dot(const gw_tensor *a, int64_t ia, int64_t sa, const gw_tensor *b, int64_t ib,
                  int64_t sb, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += gw_ref_get(a, ia + i * sa) * gw_ref_get(b, ib + i * sb);
    return sum;
}
