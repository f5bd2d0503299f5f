// SPDX-License-Identifier: Apache-2.0
// The ledger: what data a run has consumed, batch by batch, in a form that can be compared.
//
// Each row that is fed to a step is hashed (its tokens, labels and where documents begin), and the
// hashes are summed modulo 2^128. A sum does not know in which order, on which rank or in which
// micro-batch a row was fed, so it is the same for every layout; equal sums mean the same rows,
// each as often. A line stands for one batch, and lines add up: runs with other batch sizes, or
// resumed ones, can be compared wherever both stand at the same sample.
#ifndef GW_DATA_LEDGER_H
#define GW_DATA_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/hash.h"  /* gw_hash128 */
#include "base/str.h"   /* gw_str */

/* ---- digests ---- */

/* A number modulo 2^128. {0} is the digest of nothing. */
typedef gw_hash128 gw_digest;

/* Of one row of `s` places; padding counts like all else. */
gw_hash128 gw_digest_row(const int32_t *tokens, const int32_t *labels, const int32_t *docs,
                         int64_t s);
void gw_digest_add(gw_digest *d, gw_digest x);
bool gw_digest_same(gw_digest a, gw_digest b);

/* For adding up over ranks in sums of doubles: four parts below 2^32; sums of up to 2^21 ranks are
 * exact. */
enum { GW_DIGEST_PARTS = 4 };
void gw_digest_parts(gw_digest d, double parts[GW_DIGEST_PARTS]);
gw_digest gw_digest_of_sums(const double sums[GW_DIGEST_PARTS]);

/* ---- the file ---- */

/* A batch that was consumed: a line of RUN/data.ledger. */
typedef struct gw_ledger_line {
    int64_t batch;       /* from 0 */
    int64_t step;        /* the update it was used for; that of the latest, where it was skipped */
    int64_t first, next; /* samples [first, next) */
    int64_t labels, tokens;
    int64_t quarantined; /* damaged blocks met up to here; their rows were others */
    gw_digest digest;
} gw_ledger_line;

typedef struct gw_ledger gw_ledger;

/* Opens DIR/data.ledger for appending. `next_sample` >= 0: lines of batches from there on, which
 * the run takes again, are removed first; -1: the file begins anew. */
GW_WARN_UNUSED gw_status gw_ledger_open(const char *dir, int64_t next_sample, gw_ledger **out,
                                        gw_diags *dg);
/* One write(2); allocates nothing. */
GW_WARN_UNUSED gw_status gw_ledger_add(gw_ledger *l, const gw_ledger_line *line, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_ledger_close(gw_ledger *l, gw_diags *dg); /* NULL is nothing */

typedef struct gw_ledger_history {
    const gw_ledger_line *lines; /* in the arena */
    int64_t n;
    bool cut; /* the last line was not whole, and is left out */
} gw_ledger_history;

/* Reads text; a line that is damaged is an error with its number. */
GW_WARN_UNUSED gw_status gw_ledger_parse(const char *text, int64_t len, const char *name,
                                         gw_arena *a, gw_ledger_history *out, gw_diags *dg);
/* RUN may be the run directory or the file. */
GW_WARN_UNUSED gw_status gw_ledger_read(const char *run, gw_arena *a, gw_ledger_history *out,
                                        gw_diags *dg);

/* ---- what it proves ---- */

/* The first line that does not begin where the one before ended, or -1: every sample from the first
 * line's on was consumed exactly once. */
int64_t gw_ledger_gap(const gw_ledger_history *h);

typedef struct gw_ledger_verdict {
    bool same;           /* over samples [first, next), the range that both hold */
    int64_t first, next; /* where !same: the first stretch that differs */
    int64_t line[2];     /* of each, the line that ends with it */
    int64_t batches[2];  /* of each, in the range that is the same */
    gw_digest digest[2]; /* of the stretch; where same, of the whole range */
    bool comparable;     /* false: they have no two boundaries in common */
} gw_ledger_verdict;

/* Compares two ledgers without gaps on what both hold. */
gw_ledger_verdict gw_ledger_compare(const gw_ledger_history *a, const gw_ledger_history *b);

#endif
