// SPDX-License-Identifier: Apache-2.0
// Time: monotonic for measuring, wall for records.
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <stdint.h>

int64_t gw_clock_ns(void);  /* monotonic */
double gw_clock_wall(void); /* seconds since 1970 */
/* "2026-11-29T17:20:42Z" of a wall time. Returns buf. */
char *gw_clock_iso(char buf[32], double wall);

#endif
