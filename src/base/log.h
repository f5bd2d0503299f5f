// SPDX-License-Identifier: Apache-2.0
// The log: lines for people on stderr. Level from --quiet / --verbose.
#ifndef GW_BASE_LOG_H
#define GW_BASE_LOG_H

#include "base/compiler.h" /* GW_PRINTF */

typedef enum gw_log_level { GW_LOG_QUIET, GW_LOG_INFO, GW_LOG_DEBUG } gw_log_level;

void gw_log_set_level(gw_log_level level);
gw_log_level gw_log_get_level(void);
/* This process is one of several that share a terminal: from rank 1 on, lines begin with "rank K: "
 * and information is left to rank 0, unless the level is DEBUG. */
void gw_log_set_rank(int rank);
void gw_log_info(const char *fmt, ...) GW_PRINTF(1, 2);
void gw_log_debug(const char *fmt, ...) GW_PRINTF(1, 2);
void gw_log_warn(const char *fmt, ...) GW_PRINTF(1, 2); /* shown at every level but QUIET */

#endif
