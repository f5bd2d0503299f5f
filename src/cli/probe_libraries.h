// SPDX-License-Identifier: Apache-2.0
// Libraries: those linked, asked for their version; those optional, looked for by dlopen.
#ifndef GW_CLI_PROBE_LIBRARIES_H
#define GW_CLI_PROBE_LIBRARIES_H

#include "cli/probe.h" /* gw_probe */

/* Fills libraries, onednn_isa and gpus. */
void gw_probe_libraries(gw_probe *p, gw_arena *a);

#endif
