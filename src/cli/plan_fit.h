// SPDX-License-Identifier: Apache-2.0
// Does a plan fit into so much memory, and if not, which is the smallest change of the run that
// would?
#ifndef GW_CLI_PLAN_FIT_H
#define GW_CLI_PLAN_FIT_H

#include "plan/ledger.h" /* gw_ledger */
#include "train/setup.h" /* gw_setup */

enum { GW_FIT_TRIES = 48 };

/* One change of the run, really compiled (total_bytes), or known to be too large without
 * (at_least). */
typedef struct gw_fit_try {
    char change[240]; /* "recompute.policy=full train.micro_batch=1": each word is what --set takes
                       */
    int64_t total_bytes;
    bool at_least; /* total_bytes is only what parameters, optimizer states and the step's batch
                      take */
    bool fits;
} gw_fit_try;

typedef struct gw_fit {
    int64_t available_bytes;
    int64_t short_bytes; /* 0: it fits as it is */
    gw_fit_try tries[GW_FIT_TRIES];
    int ntries; /* in the order of growing cost; the last one fits if any does */
} gw_fit;

/* `l` is the ledger of `s`. Changes are tried only when it does not fit. */
GW_WARN_UNUSED gw_status gw_fit_find(gw_fit *f, const gw_setup *s, const gw_ledger *l,
                                     int64_t available_bytes, gw_diags *dg);

#endif
