// SPDX-License-Identifier: Apache-2.0
// Elements of one float taken for another: what a load does where a run goes on in other numbers
// than those its checkpoint holds.
#ifndef GW_CKPT_PRECISION_H
#define GW_CKPT_PRECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h" /* gw_dtype */

/* What a conversion did to values that the narrower type does not have. */
typedef struct gw_ckpt_rounding {
    int64_t overflowed; /* finite elements that became infinite */
    int64_t vanished;   /* elements other than 0 that became 0 */
} gw_ckpt_rounding;

/* Are both f32, bf16 or f16, and not the same? */
bool gw_ckpt_converts(gw_dtype from, gw_dtype to);
/* Is every value of `from` one of `to`? (Of the three above.) */
bool gw_ckpt_widens(gw_dtype from, gw_dtype to);
/* n elements, rounded to the nearest value of `to`, ties to the even one; exact where it widens.
 * NaNs stay NaNs. dst and src do not overlap. Adds to *r. */
void gw_ckpt_convert(gw_dtype from, const void *src, gw_dtype to, void *dst, int64_t n,
                     gw_ckpt_rounding *r);

#endif
