// SPDX-License-Identifier: Apache-2.0
// What a killed build leaves behind.
#ifndef GW_DATA_BUILD_SWEEP_H
#define GW_DATA_BUILD_SWEEP_H

#include "data/build/pipeline.h" /* gw_pipeline */

/* Removes temporary files of builds in output.dir and dedup.signatures and beside dedup.bloom_out:
 * names of our own files followed by ".tmp", and copies of fetched objects. To be called by who
 * holds the lock of output.dir. */
void gw_build_sweep(const gw_pipeline *p);

#endif
