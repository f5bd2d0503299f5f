// SPDX-License-Identifier: Apache-2.0
// The dedup phase of a build, and what later phases read of it.
#ifndef GW_DATA_BUILD_DEDUP_PHASE_H
#define GW_DATA_BUILD_DEDUP_PHASE_H

#include "base/diag.h"             /* gw_status, gw_diags */
#include "data/build/build_impl.h" /* gw_databuild */

/* Before anything is done: are the index and the filter that are named there, and of this kind? */
GW_WARN_UNUSED gw_status gw_build_check_dedup(gw_databuild *b, gw_diags *dg);
/* After the map phase of all units. Sets the options of all steps in b. */
GW_WARN_UNUSED gw_status gw_build_dedup(gw_databuild *b, gw_diags *dg);
/* For gw_pool: b->removed and b->ranges of this process, of what is asked for. */
gw_status gw_build_open_results(void *build, void **state, gw_diags *dg);
void gw_build_close_results(void *build, void *state);

#endif
