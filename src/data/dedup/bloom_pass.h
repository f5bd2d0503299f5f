// SPDX-License-Identifier: Apache-2.0
// Dedup by a Bloom filter, the same for any number of workers: units bring their keys in any order,
// one process then asks the filter about all of them in the order of their ids.
#ifndef GW_DATA_DEDUP_BLOOM_PASS_H
#define GW_DATA_DEDUP_BLOOM_PASS_H

#include "data/dedup/bloom.h" /* gw_bloom */
#include "data/dedup/dedup.h" /* gw_dedup_result */

typedef struct gw_bloom_pass_options {
    const char *dir;      /* of this pass's files; made where it is missing */
    bool spans;           /* keys are of parts of documents, and parts go */
    int64_t units;        /* all of them have a file before the pass */
    int64_t expected;     /* different keys */
    double rate;          /* of false alarms with so many */
    int64_t memory_bytes; /* at most, of the filter: a larger one is refused */
    const char *in;       /* NULL, or a filter to begin with, whose size and rate hold then */
    const char *out;      /* NULL, or where the filter goes at the end */
    const char *what;     /* of which keys are: `in` must be of the same. NULL: not asked */
    uint64_t tag;         /* of what made the keys and of the options */
} gw_bloom_pass_options;

/* GW_ERR_CONFIG (dedup-bloom) for sizes that cannot be or do not fit. */
GW_WARN_UNUSED gw_status gw_bloom_pass_check(const gw_bloom_pass_options *o, gw_diags *dg);

/* ---- the keys of a unit: DIR/unit-NNNNN.seen, by rename ---- */

typedef struct gw_bloom_unit gw_bloom_unit;
bool gw_bloom_unit_done(const gw_bloom_pass_options *o, uint32_t unit);
GW_WARN_UNUSED gw_status gw_bloom_unit_open(const gw_bloom_pass_options *o, uint32_t unit,
                                            gw_bloom_unit **out, gw_diags *dg);
/* In the order in which they stand. Of documents begin and end are 0. */
GW_WARN_UNUSED gw_status gw_bloom_unit_add(gw_bloom_unit *u, uint32_t index, uint32_t begin,
                                           uint32_t end, gw_hash128 key, gw_diags *dg);
/* Both free u in every case. */
GW_WARN_UNUSED gw_status gw_bloom_unit_close(gw_bloom_unit *u, gw_diags *dg);
void gw_bloom_unit_abandon(gw_bloom_unit *u);

/* ---- the pass: one process; DIR/seen.recs ---- */

bool gw_bloom_pass_done(const gw_bloom_pass_options *o);
/* Writes o->out first and the result last: where the result stands, the filter stands. */
GW_WARN_UNUSED gw_status gw_bloom_pass_run(const gw_bloom_pass_options *o, gw_diags *dg);
/* What goes: documents (why SEEN), or ranges. */
GW_WARN_UNUSED gw_status gw_bloom_pass_result(const gw_bloom_pass_options *o, gw_dedup_result **out,
                                              gw_diags *dg);

/* What the filter was like at the end. */
typedef struct gw_bloom_pass_totals {
    int64_t asked;    /* keys */
    int64_t new_keys; /* that it had not seen */
    int64_t held;     /* in it at the end, what it began with included (estimated there) */
    int64_t expected; /* that it was made for; of one that it began with, the most that can be */
    int64_t bits;
    int hashes;
    double rate; /* of false alarms, at the end */
} gw_bloom_pass_totals;
gw_bloom_pass_totals gw_bloom_pass_of(const gw_bloom_pass_options *o, const gw_dedup_result *r);

#endif
