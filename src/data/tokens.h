// SPDX-License-Identifier: Apache-2.0
// Token data sets: training sequences by one global sample number.
//
// A data set is a list of documents. In each epoch e the documents stand in the order that the
// bijection gw_rng_permute(key(seed, e), documents, .) gives (as stored when not shuffled), end to
// end, and the stream of T tokens is cut into windows of seq_len + 1 tokens that overlap by one:
// sample j of an epoch has inputs [j*s, j*s + s) and, shifted by one, labels. An epoch has max(1,
// ceil((T - 1) / s)) samples; the last is padded. So every token is the target of exactly one label
// per epoch, except the first of the stream. Sample number n is sample n mod E of epoch n / E, for
// any n >= 0: order is a function of (data, seed, seq_len), never of ranks, batch size or where a
// run was resumed.
#ifndef GW_DATA_TOKENS_H
#define GW_DATA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"      /* gw_status, gw_diags */
#include "base/hash.h"      /* gw_hash128 */
#include "data/tokenizer.h" /* gw_tokenizer */

typedef struct gw_tokens gw_tokens;

#define GW_LABEL_MASKED (-100)

/* Set with gw_tokens_options_default, then change. */
typedef struct gw_tokens_options {
    int64_t seq_len; /* s >= 1 */
    uint64_t seed;   /* of the shuffle; train.seed */
    bool shuffle;    /* default true; false for validation sets */
    bool pack; /* default true; false: one document a row, cut at seq_len + 1 tokens or padded */
    bool mask_first; /* default true: a label whose target is the first token of another document is
                      * masked */
    int32_t pad_token;  /* the input id at padded places; default 0 */
    int32_t vocab_size; /* an id outside [0, vocab_size) in the data is an error; 0: no check */
} gw_tokens_options;
gw_tokens_options gw_tokens_options_default(int64_t seq_len, uint64_t seed);

/* One row; the caller's arrays of seq_len elements each. */
typedef struct gw_sample {
    int32_t *tokens; /* [s] */
    int32_t *labels; /* [s] already shifted: labels[i] is what follows tokens[i]; -100 = masked */
    int32_t *positions; /* [s] from 0 at the start of the row and of each document */
    int32_t *docs;  /* [s] document of the row, nondecreasing from 0; padding has one of its own */
    int64_t id;     /* out: the global sample number */
    int64_t valid;  /* out: labels that are not masked */
    int64_t padded; /* out: places that are padding */
} gw_sample;

/* Opens PREFIX.bin and PREFIX.idx (Megatron). A prefix that ends in ".bin" or ".idx" is taken
 * without it. A data set without any token is refused. */
GW_WARN_UNUSED gw_status gw_tokens_open(const char *prefix, const gw_tokens_options *options,
                                        gw_tokens **out, gw_diags *dg);
/* From memory: `tokens` are borrowed, document d is [ends[d-1], ends[d]). For tests and small uses.
 */
GW_WARN_UNUSED gw_status gw_tokens_open_memory(const int32_t *tokens, const int64_t *ends,
                                               int64_t documents, const gw_tokens_options *options,
                                               gw_tokens **out, gw_diags *dg);
void gw_tokens_close(gw_tokens *ds);

int64_t gw_tokens_count(const gw_tokens *ds);     /* tokens of one epoch */
int64_t gw_tokens_documents(const gw_tokens *ds); /* documents with at least one token */
int64_t gw_tokens_samples(const gw_tokens *ds);   /* samples of one epoch, E */
int64_t gw_tokens_seq_len(const gw_tokens *ds);
int64_t gw_tokens_bytes(
    const gw_tokens *ds); /* host memory held (tables; the mapped file excluded) */
/* Identifies the data: the length of every document, and tokens at 4,096 places spread evenly from
 * the first to the last (all of them in a set of at most 65,536). A change that leaves every length
 * and every such place as it was is not seen. */
gw_hash128 gw_tokens_hash(const gw_tokens *ds);
/* GW_ERR_IO when a file of the set has become shorter since it was opened: reading the mapping
 * beyond its end would end the process. gw_tokens_sample looks by itself; what reads lengths alone
 * does not. Nothing of ours is allocated unless it fails. */
GW_WARN_UNUSED gw_status gw_tokens_check(const gw_tokens *ds, gw_diags *dg);

/* Fills `out` with sample `number` >= 0. O(log documents + s); the order of a new epoch costs
 * O(documents) once, with no allocation. One thread at a time per data set. */
GW_WARN_UNUSED gw_status gw_tokens_sample(gw_tokens *ds, int64_t number, gw_sample *out,
                                          gw_diags *dg);
/* The number of valid labels of a sample, without reading a token. */
int64_t gw_tokens_valid(gw_tokens *ds, int64_t number);
/* The number of its places that are not padding. */
int64_t gw_tokens_inputs(gw_tokens *ds, int64_t number);

/* How a text file falls into documents. */
typedef enum gw_doc_rule {
    GW_DOC_BLANK, /* at two or more blank lines in a row ("\n\n\n"); the breaks belong to no
                     document */
    GW_DOC_FILE,  /* each file is one document */
    GW_DOC_LINE,  /* each line that is not blank, without its newline */
    GW_DOC_JSONL, /* each line is a JSON object; its member "text" (or json_key) is the document */
} gw_doc_rule;

typedef struct gw_tokens_build_options {
    gw_doc_rule rule;
    const char *json_key; /* NULL: "text" */
    bool append_eos;      /* the tokenizer's eos after each document */
    bool parse_specials;  /* off: text that spells a special token stays text */
} gw_tokens_build_options;

typedef struct gw_tokens_build_report {
    int64_t files, documents, tokens, text_bytes;
} gw_tokens_build_report;

/* Tokenizes text files into PREFIX.bin and PREFIX.idx (u16 ids if the vocabulary is below 65,500,
 * else i32). Both appear only when complete. Refuses append_eos without an eos token. `report` may
 * be NULL. */
GW_WARN_UNUSED gw_status gw_tokens_build(const char *const *paths, int npaths,
                                         const gw_tokenizer *t,
                                         const gw_tokens_build_options *options, const char *prefix,
                                         gw_tokens_build_report *report, gw_diags *dg);

#endif
