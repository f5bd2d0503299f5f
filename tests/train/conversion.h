// SPDX-License-Identifier: Apache-2.0
// A configuration of another trainer, converted for a test.
#ifndef GW_TESTS_TRAIN_CONVERSION_H
#define GW_TESTS_TRAIN_CONVERSION_H

#include "train/convert.h" /* gw_conversion */
#include "train/runfile.h" /* gw_runfile */

typedef struct conversion {
    gw_conversion v;
    gw_status st;
    gw_diags dg;
    gw_runfile rf; /* of conversion_load */
    gw_arena a;
} conversion;

void conversion_make(conversion *c, const gw_cv_request *q);
/* The laws of every conversion: it succeeds, nothing is open, everything has its reason, lines
 * rise, counts sum; what is written is a run file that compiles to a set-up. Loads it. */
void conversion_load(conversion *c, int64_t ranks);
/* NULL where no key is so called. */
const gw_cv_key *conversion_key(const conversion *c, const char *name);
void conversion_release(conversion *c);

#endif
