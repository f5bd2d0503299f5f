// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files: scalars against steps.
#ifndef GW_FILE_TFEVENTS_H
#define GW_FILE_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef struct gw_tfevents gw_tfevents;

/* Creates dir (if needed) and in it a new file events.out.tfevents.<seconds>.<host>.<pid>.<n>,
 * which TensorBoard finds by its name, and writes the version record. wall = seconds since 1970. */
GW_WARN_UNUSED gw_status gw_tfevents_open(const char *dir, double wall, gw_tfevents **out,
                                          gw_diags *dg);
/* Adds one scalar. Records gather in memory and go out when 64 KiB are full or at flush. `value`
 * may be NaN or infinite. */
GW_WARN_UNUSED gw_status gw_tfevents_scalar(gw_tfevents *t, const char *tag, int64_t step,
                                            double value, double wall, gw_diags *dg);
/* Hands everything to the system, so that a running TensorBoard sees it. */
GW_WARN_UNUSED gw_status gw_tfevents_flush(gw_tfevents *t, gw_diags *dg);
const char *gw_tfevents_path(const gw_tfevents *t);
/* Flushes, closes, frees; NULL is allowed. */
GW_WARN_UNUSED gw_status gw_tfevents_close(gw_tfevents *t, gw_diags *dg);

/* CRC-32C (Castagnoli) of n bytes, and the rotated form that record framing stores. */
uint32_t gw_crc32c(const void *bytes, size_t n);
uint32_t gw_crc32c_masked(const void *bytes, size_t n);

#endif
