// SPDX-License-Identifier: Apache-2.0
// Token data: training sequences by one global sample number.
//
// A run reads rows of seq_len inputs from one source or a mixture of several. Sample number n, for
// any n >= 0, is row `index` of source k where (k, index) is the mixture's place n (data/mix.h),
// and row j of a source is row j mod E of its epoch j / E, in the order and packing that the
// options say (data/stream.h). So order is a function of (data, options), never of ranks, batch
// size, how far ahead is read, or where a run was resumed; the whole state is n.
#ifndef GW_DATA_TOKENS_H
#define GW_DATA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"      /* gw_status, gw_diags */
#include "base/hash.h"      /* gw_hash128 */
#include "data/mix.h"       /* gw_mix_rule */
#include "data/pack.h"      /* gw_packing */
#include "data/shards.h"    /* gw_load_clock */
#include "data/tokenizer.h" /* gw_tokenizer */

typedef struct gw_tokens gw_tokens;

#define GW_LABEL_MASKED (-100)

/* How rows are shuffled: data/stream.h. AUTO is documents for Megatron files on this machine whose
 * rows are not best fit, and blocks for all else. */
typedef enum gw_data_order { GW_ORDER_AUTO, GW_ORDER_DOCUMENTS, GW_ORDER_BLOCKS } gw_data_order;

/* Set with gw_tokens_options_default, then change. */
typedef struct gw_tokens_options {
    int64_t seq_len; /* s >= 1 */
    uint64_t seed;   /* of the shuffle; train.seed */
    bool shuffle;    /* default true; false for validation sets */
    bool pack; /* default true; false: one document a row, cut at seq_len + 1 tokens or padded */
    bool mask_first; /* default true: a label whose target is the first token of another document is
                      * masked */
    int32_t pad_token;     /* the input id at padded places; default 0 */
    int32_t vocab_size;    /* an id outside [0, vocab_size) in the data is an error; 0: no check */
    bool best_fit;         /* with pack: rows by best fit instead of end to end */
    gw_data_order order;   /* default AUTO */
    int64_t window;        /* blocks shuffled together; default 16 */
    int64_t block_tokens;  /* of a block of a Megatron file; default 4 Mi */
    gw_mix_rule mixing;    /* default EXACT */
    const char *column;    /* of MDS; NULL: tokens, input_ids, or the only array of whole numbers */
    bool no_verify;        /* do not check the hashes of shards */
    const char *cache_dir; /* for what comes over the network; NULL: none */
    int64_t cache_bytes;   /* limit of it; 0: no limit */
} gw_tokens_options;
gw_tokens_options gw_tokens_options_default(int64_t seq_len, uint64_t seed);

/* One of the sources of a mixture. */
typedef struct gw_tokens_source {
    const char *path; /* or URL: gw_shards_open */
    double weight;    /* >= 0; its share of rows, relative to the others */
    int64_t epochs;   /* how often it may be read; 0: as often as it takes */
} gw_tokens_source;

/* A stage of a curriculum: weights for so many tokens (rows x seq_len; the last: no end). */
typedef struct gw_tokens_stage {
    int64_t tokens;
    const double *weights; /* [sources]; they stand in place of the sources' own */
} gw_tokens_stage;

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

/* Opens one source. A set without any token is refused. */
GW_WARN_UNUSED gw_status gw_tokens_open(const char *path, const gw_tokens_options *options,
                                        gw_tokens **out, gw_diags *dg);
/* Opens a mixture of n >= 1 sources, in nstages >= 0 stages (0: one, with the sources' weights). */
GW_WARN_UNUSED gw_status gw_tokens_open_mix(const gw_tokens_source *sources, int n,
                                            const gw_tokens_stage *stages, int nstages,
                                            const gw_tokens_options *options, gw_tokens **out,
                                            gw_diags *dg);
/* From memory: `tokens` are borrowed, document d is [ends[d-1], ends[d]). For tests and small uses.
 */
GW_WARN_UNUSED gw_status gw_tokens_open_memory(const int32_t *tokens, const int64_t *ends,
                                               int64_t documents, const gw_tokens_options *options,
                                               gw_tokens **out, gw_diags *dg);
void gw_tokens_close(gw_tokens *ds);
/* What the reading thread's time goes to from here on; NULL: not measured. */
void gw_tokens_set_clock(gw_tokens *ds, gw_load_clock *clock);

/* Sums over the sources. */
int64_t gw_tokens_count(const gw_tokens *ds);     /* tokens of one epoch; 0 of a source whose
                                                     tokens nobody has counted */
int64_t gw_tokens_documents(const gw_tokens *ds); /* documents with at least one token */
int64_t gw_tokens_samples(const gw_tokens *ds);   /* samples of one epoch, E */
int64_t gw_tokens_seq_len(const gw_tokens *ds);
int64_t gw_tokens_bytes(const gw_tokens *ds); /* host memory held (tables; mapped files excluded) */
int64_t gw_tokens_quarantined(const gw_tokens *ds); /* damaged blocks met so far */

/* Of each source. */
int gw_tokens_sources(const gw_tokens *ds);
typedef struct gw_tokens_source_info {
    const char *name, *format;
    gw_data_order order;             /* DOCUMENTS or BLOCKS */
    int64_t tokens, documents, rows; /* of an epoch */
    int64_t epochs;                  /* that it may be read; 0: any number */
} gw_tokens_source_info;
gw_tokens_source_info gw_tokens_source_at(const gw_tokens *ds, int k);
/* Rows of each source among the samples before n, into counts[sources]. */
void gw_tokens_counts(gw_tokens *ds, int64_t n, int64_t *counts);
/* Refuses (GW_ERR_CONFIG) a run of n samples that would read a source more often than it may be. */
GW_WARN_UNUSED gw_status gw_tokens_check_epochs(gw_tokens *ds, int64_t n, gw_diags *dg);

/* Identifies the data and their order but for the seed: of one source in the order of documents,
 * without best fit, gw_shards_hash of it; else sources, weights, stages and the options that the
 * order hangs on. */
gw_hash128 gw_tokens_hash(gw_tokens *ds);
/* GW_ERR_IO when a file of the set has become shorter since it was opened: reading the mapping
 * beyond its end would end the process. gw_tokens_sample looks by itself; what reads lengths alone
 * does not. Nothing of ours is allocated unless it fails. */
GW_WARN_UNUSED gw_status gw_tokens_check(const gw_tokens *ds, gw_diags *dg);

/* Fills `out` with sample `number` >= 0. In the order of documents O(log documents + s), a new
 * epoch O(documents) once, with no allocation; in that of blocks O(log blocks + s), and what it
 * takes to bring a block in, once a window. One thread at a time per data set. */
GW_WARN_UNUSED gw_status gw_tokens_sample(gw_tokens *ds, int64_t number, gw_sample *out,
                                          gw_diags *dg);
/* The number of valid labels of a sample and of its places that are not padding, without reading a
 * token (but lengths of documents, which may have to be brought in). */
GW_WARN_UNUSED gw_status gw_tokens_measure(gw_tokens *ds, int64_t number, int64_t *valid,
                                           int64_t *inputs, gw_diags *dg);
/* The same one by one; 0 where it fails (gw_tokens_sample then says why). */
int64_t gw_tokens_valid(gw_tokens *ds, int64_t number);
int64_t gw_tokens_inputs(gw_tokens *ds, int64_t number);
/* Samples before `number` are not asked for again: what only they needed is let go. */
void gw_tokens_pass(gw_tokens *ds, int64_t number);

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
