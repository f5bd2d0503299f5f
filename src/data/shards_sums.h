// SPDX-License-Identifier: Apache-2.0
// The checksums of a Megatron .bin (data/build/sums.h), as its bytes are read.
#ifndef GW_DATA_SHARDS_SUMS_H
#define GW_DATA_SHARDS_SUMS_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* One thread at a time, but gw_shard_sums_bad is any thread's. NULL is a file without sums:
 * everything holds. */
typedef struct gw_shard_sums gw_shard_sums;

/* Of a file on this machine, which is mapped; *out NULL where no sums stand beside it. Sums of a
 * file of another length, or what are none, are GW_ERR_FORMAT (data-checksum). */
GW_WARN_UNUSED gw_status gw_shard_sums_open_near(const char *bin, gw_shard_sums **out,
                                                 gw_diags *dg);
/* From the text of the file of sums, of a `bin` of `bytes` bytes that is elsewhere. */
GW_WARN_UNUSED gw_status gw_shard_sums_open(const char *bin, const char *text, int64_t n,
                                            int64_t bytes, gw_shard_sums **out, gw_diags *dg);
void gw_shard_sums_free(gw_shard_sums *s);

/* Are all MiBs that bytes [from, to) touch as they were written? Each is hashed once.
 * GW_ERR_FORMAT names file and offset of the first that is not. Files on this machine. */
GW_WARN_UNUSED gw_status gw_shard_sums_check(gw_shard_sums *s, int64_t from, int64_t to,
                                             gw_diags *dg);
/* The same of bytes [from, to) that were fetched, for the MiBs that lie within them whole. */
GW_WARN_UNUSED gw_status gw_shard_sums_check_range(gw_shard_sums *s, const uint8_t *bytes,
                                                   int64_t from, int64_t to, gw_diags *dg);
int64_t gw_shard_sums_bad(const gw_shard_sums *s);   /* MiBs found damaged so far */
int64_t gw_shard_sums_bytes(const gw_shard_sums *s); /* host memory */

#endif
