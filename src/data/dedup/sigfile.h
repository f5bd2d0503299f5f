// SPDX-License-Identifier: Apache-2.0
// datatrove's files of MinHash deduplication, so that its steps and ours can stand in for each
// other.
#ifndef GW_DATA_DEDUP_SIGFILE_H
#define GW_DATA_DEDUP_SIGFILE_H

#include <stdint.h>

#include "base/diag.h"          /* gw_status, gw_diags */
#include "data/dedup/dedup.h"   /* gw_dedup_removed */
#include "data/dedup/minhash.h" /* gw_minhash_recipe */

/* Signatures of one of datatrove's ranks: FOLDER/bucket_BBB/RRRRR.minhash.sig, one file a band, of
 * rows (values, then the document's number as u32; values of 8 or 4 bytes by the recipe's bits),
 * sorted by values and then document, little-endian, without a header. */
typedef struct gw_sigfile gw_sigfile;
GW_WARN_UNUSED gw_status gw_sigfile_new(const char *folder, const gw_minhash_recipe *r,
                                        uint32_t rank, gw_sigfile **out, gw_diags *dg);
/* signature[bands * rows]; documents in any order. Held in memory. */
void gw_sigfile_add(gw_sigfile *s, uint32_t document, const uint64_t *signature);
/* Sorts and writes all bands, each through rename. Frees s in every case. */
GW_WARN_UNUSED gw_status gw_sigfile_close(gw_sigfile *s, gw_diags *dg);

/* Frees without writing. NULL is nothing. */
void gw_sigfile_abandon(gw_sigfile *s);

/* One row of a .minhash.sig. */
typedef struct gw_sigfile_row {
    gw_hash128 key; /* as gw_minhash_keys makes it of the band's values */
    uint32_t document;
} gw_sigfile_row;
/* Reads one file: rows in its order, gw_mem memory of the caller. GW_ERR_FORMAT, with the byte
 * offset, for a length that is no multiple of a row, and for rows that are out of order. */
GW_WARN_UNUSED gw_status gw_sigfile_read(const char *path, const gw_minhash_recipe *r,
                                         gw_sigfile_row **rows, int64_t *count, gw_diags *dg);

/* FOLDER/RRRRRR.remove, what MinhashDedupFilter reads: u32 numbers of documents, ascending. */
GW_WARN_UNUSED gw_status gw_sigfile_write_removed(const char *folder, uint32_t rank,
                                                  const gw_dedup_removed *removed, int64_t count,
                                                  gw_diags *dg);

#endif
