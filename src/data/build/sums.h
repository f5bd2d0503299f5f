// SPDX-License-Identifier: Apache-2.0
// Checksums of a file, one for each MiB, in a text file beside it.
#ifndef GW_DATA_BUILD_SUMS_H
#define GW_DATA_BUILD_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */

enum { GW_SUMS_BLOCK = 1 << 20 };
#define GW_SUMS_END ".xxh3"

/* Reads `path` and writes PATH.xxh3: a line "xxh3-64 1048576 BYTES", then 16 hexadecimal digits a
 * line, XXH3-64 of each MiB in order (the last may be short). *whole (may be NULL) gets a hash of
 * these hashes. */
GW_WARN_UNUSED gw_status gw_sums_write(const char *path, gw_hash128 *whole, gw_diags *dg);
/* Compares `path` with PATH.xxh3. GW_ERR_FORMAT (data-checksum) names the first byte of each MiB
 * that differs (the first eight), or says that the length does; *bad (may be NULL) counts them. */
GW_WARN_UNUSED gw_status gw_sums_verify(const char *path, int64_t *bad, gw_diags *dg);
/* Parses the text of such a file; false if it is none. `sums` has room for `most`; *count of them.
 */
bool gw_sums_parse(const char *text, int64_t n, int64_t *file_bytes, uint64_t *sums, int64_t most,
                   int64_t *count);

#endif
