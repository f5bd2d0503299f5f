// SPDX-License-Identifier: Apache-2.0
// What a killed build leaves behind.
#ifndef GW_DATA_BUILD_SWEEP_H
#define GW_DATA_BUILD_SWEEP_H

/* Removes temporary files of builds in output.dir `out`: names of our own files followed by
 * ".tmp", and copies of fetched objects. To be called by who holds the folder's lock. */
void gw_build_sweep(const char *out);

#endif
