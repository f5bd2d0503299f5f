// SPDX-License-Identifier: Apache-2.0
// Training of byte-level BPE vocabularies.
#ifndef GW_DATA_BPE_TRAIN_H
#define GW_DATA_BPE_TRAIN_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

typedef struct gw_bpe_train_options {
    int32_t vocab_size;  /* in all: 256 bytes + merges + specials; >= 257 */
    const char *pattern; /* "llama3" (NULL) or "gpt2", "qwen2" */
    const char *const
        *specials;     /* NULL-terminated; NULL: {"<|endoftext|>"}. Ids 0.. in this order */
    int64_t min_count; /* a pair rarer than this is not merged; 0: 2 */
    int64_t memory;    /* bytes that counting words may take (word_counts.h); 0: 4 GB */
    int threads;       /* that count words; 0: one a core */
} gw_bpe_train_options;

typedef struct gw_bpe_train_report {
    int64_t text_bytes, words, distinct_words;
    int64_t rarest_word; /* words that occur less often were left out for want of memory; 1: none */
    int64_t spilled_bytes;
    int32_t vocab_size, merges;
} gw_bpe_train_report;

/* Learns merges from the texts of `paths` (whole files) and appends a tokenizer.json to `json`.
 * Deterministic, for any number of threads: the next merge is the pair with the highest count,
 * among equals the one with the smaller left id, then the smaller right id. Fewer merges than asked
 * are not an error (small texts); the report tells. `report` may be NULL. */
GW_WARN_UNUSED gw_status gw_bpe_train(const char *const *paths, int npaths,
                                      const gw_bpe_train_options *options, gw_str *json,
                                      gw_bpe_train_report *report, gw_diags *dg);
/* The same from one text in memory. */
GW_WARN_UNUSED gw_status gw_bpe_train_text(const void *text, size_t n,
                                           const gw_bpe_train_options *options, gw_str *json,
                                           gw_bpe_train_report *report, gw_diags *dg);

#endif
