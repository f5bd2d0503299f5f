// SPDX-License-Identifier: Apache-2.0
// What the phases of a build share. Not for use outside src/data/build.
//
// Phases, each a map over units of work whose results are files under output.dir/work:
//   map     unit-NNNNN.docs  a row for each document: text, where it is from, all signals
//           unit-NNNNN.keep  a row for each document: verdict, keys of equal and near texts
//   dedup   dedup/, spans/   which documents, and which ranges, go
//   emit    unit-NNNNN.toks  a row for each document that stays: tokens
//   shards  ../mds, ../megatron
// Each file says in its meta ("key") what it was made from; one with another key is made again.
#ifndef GW_DATA_BUILD_IMPL_H
#define GW_DATA_BUILD_IMPL_H

#include "base/hash.h"             /* gw_hash128 */
#include "base/io.h"               /* gw_path_join */
#include "data/build/build.h"      /* gw_build_options */
#include "data/build/columns.h"    /* gw_columns */
#include "data/build/stages.h"     /* gw_stages */
#include "data/build/units.h"      /* gw_units */
#include "data/dedup/bloom_pass.h" /* gw_bloom_pass_options */
#include "data/dedup/dedup.h"      /* gw_dedup_options */
#include "data/dedup/minhash.h"    /* gw_minhash */
#include "data/dedup/spans.h"      /* gw_spans */
#include "data/dedup/substring.h"  /* gw_substring_options */
#include "data/filter/filter.h"    /* gw_filters */
#include "data/source.h"           /* gw_source */
#include "data/text/extract.h"     /* gw_extract */
#include "data/text/langid.h"      /* gw_langid */
#include "data/text/pii.h"         /* gw_pii */
#include "data/tokenizer.h"        /* gw_tokenizer */

/* A verdict of a row: 0 stays, f + 1 removed by filter f, GW_VERDICT_EMPTY has no text. */
enum { GW_VERDICT_KEPT = 0, GW_VERDICT_EMPTY = 255 };

/* Lists of documents that go, in the order in which they are found: each later step looks only at
 * what the earlier ones have left. */
enum { GW_GONE_SEEN, GW_GONE_ALIKE, GW_GONE_LISTS };
/* Lists of ranges that are cut out of what is left; the first three by gw_span_kind. */
enum {
    GW_CUT_LINES = GW_SPAN_LINES,
    GW_CUT_PARAGRAPHS = GW_SPAN_PARAGRAPHS,
    GW_CUT_SENTENCES = GW_SPAN_SENTENCES,
    GW_SPAN_KINDS,
    GW_CUT_SUBSTRINGS = GW_SPAN_KINDS,
    GW_CUT_SEEN,
    GW_CUTS
};
extern const char *const gw_cut_names[GW_CUTS]; /* "lines" */

/* Everything is made before workers are, so that each has its own copy of the scratch. */
typedef struct gw_databuild {
    const gw_pipeline *p;
    const gw_build_options *o;
    gw_arena *arena;
    const char *work; /* output.dir/work */
    gw_units units;
    int workers;
    /* stages */
    gw_source_options source;
    gw_extract_options extract_options;
    gw_extract *extract;
    gw_langid *langid; /* NULL: none */
    gw_filters *filters;
    gw_minhash *minhash;            /* NULL: no near dedup */
    gw_spans *spans[GW_SPAN_KINDS]; /* NULL: not asked for */
    gw_spans *seen_spans;           /* of a Bloom filter's parts, or NULL */
    const gw_tokenizer *cutter;     /* substrings are counted in its tokens; NULL: in bytes */
    gw_tokenizer *own_cutter;       /* the same where nothing else needs a tokenizer */
    gw_pii *pii;
    gw_pii_options pii_options;
    bool pii_on;
    gw_tokenizer *tokenizer; /* NULL: output.format none */
    gw_tok_scratch *scratch;
    int nkeys;           /* of dedup, a document: bands, then the exact one */
    uint64_t *signature; /* scratch of a row */
    gw_hash128 *row_keys;
    double *signals;
    gw_hash128 map_options, keys_options, decide_options, emit_options;
    /* dedup: set by its phase */
    gw_dedup_options docs_dedup, spans_dedup[GW_SPAN_KINDS];
    gw_bloom_pass_options bloom;
    gw_substring_options substring;
    gw_span_kind kind;                                         /* of the spans that are cut now */
    gw_dedup_result *removed[GW_GONE_LISTS], *ranges[GW_CUTS]; /* opened by each worker; or NULL */
    void *progress;                                            /* of the phase that runs, or NULL */
} gw_databuild;

// ------------------------------------------------------------------ names and keys

typedef enum gw_unit_kind { GW_UNIT_DOCS, GW_UNIT_KEEP, GW_UNIT_TOKS } gw_unit_kind;
/* work/unit-00012.docs, in `a`. */
const char *gw_build_unit_path(const gw_databuild *b, gw_arena *a, gw_unit_kind kind, int64_t unit);
/* For errors: the first file of a unit. */
const char *gw_build_unit_name(void *build, int64_t unit);

/* A key: a hash of parts, in hex. */
typedef struct gw_build_key {
    char text[33];
} gw_build_key;
gw_build_key gw_build_key_of(const char *kind, const gw_hash128 *parts, int n);
gw_build_key gw_build_docs_key(const gw_databuild *b, int64_t unit);
gw_build_key gw_build_keep_key(const gw_databuild *b, gw_hash128 docs_content);

/* Opens a unit's file if it is there, whole in its footer and of that key; NULL otherwise. */
gw_columns *gw_build_open_if(const char *path, const gw_build_key *key);
bool gw_build_has_key(const gw_columns *c, const gw_build_key *key);
/* Opens one that must be there. */
GW_WARN_UNUSED gw_status gw_build_open_unit(const gw_databuild *b, gw_unit_kind kind, int64_t unit,
                                            gw_columns **out, gw_diags *dg);

// ------------------------------------------------------------------ phases, a unit each

/* Columns of .docs before the filters' signals. */
enum {
    GW_DOCS_FILE,
    GW_DOCS_RECORD,
    GW_DOCS_URL,
    GW_DOCS_DATE,
    GW_DOCS_MEDIA,
    GW_DOCS_RAW_BYTES,
    GW_DOCS_LANGUAGE,
    GW_DOCS_SCORE,
    GW_DOCS_TEXT,
    GW_DOCS_TEXT_BYTES,
    GW_DOCS_SIGNALS
};
enum { GW_KEEP_FILTER, GW_KEEP_REASON, GW_KEEP_KEYS };
enum {
    GW_TOKS_ROW,
    GW_TOKS_COUNT,
    GW_TOKS_TOKENS,
    GW_TOKS_BYTES,
    GW_TOKS_TEXT,
    GW_TOKS_URL,
    GW_TOKS_CUT
};

gw_status gw_build_map_unit(void *build, void *state, int64_t unit, gw_diags *dg);
gw_status gw_build_emit_unit(void *build, void *state, int64_t unit, gw_diags *dg);

/* A .keep file of a unit whose .docs file is there. *need_text: a document that is kept now has no
 * text any more, and nothing was written. */
GW_WARN_UNUSED gw_status gw_build_decide(gw_databuild *b, int64_t unit, const gw_columns *docs,
                                         bool *need_text, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_build_keep_open(const gw_databuild *b, int64_t unit,
                                            gw_columns_writer **out, gw_diags *dg);
/* One row; keys: [nkeys], NULL for what is removed. */
GW_WARN_UNUSED gw_status gw_build_keep_put(const gw_databuild *b, gw_columns_writer *w, int filter,
                                           int reason, const gw_hash128 *keys, gw_diags *dg);
/* The keys of a text, in b->row_keys. */
const gw_hash128 *gw_build_row_keys(gw_databuild *b, const char *text, int64_t n);

/* Counts of verdicts, for the meta of .keep. */
typedef struct gw_verdicts {
    int64_t kept, kept_bytes, empty;
    int64_t *removed; /* [filters][64 reasons] */
} gw_verdicts;
enum { GW_MOST_REASONS = 64 };
void gw_verdicts_init(gw_verdicts *v, const gw_databuild *b, gw_arena *a);
void gw_verdicts_add(gw_verdicts *v, int filter, int reason, int64_t bytes);
json_t *gw_verdicts_json(const gw_verdicts *v, const gw_databuild *b);
/* Ends a .keep file: counts, what it is made from. */
GW_WARN_UNUSED gw_status gw_build_keep_finish(const gw_databuild *b, gw_columns_writer *w,
                                              gw_hash128 docs_content, const gw_verdicts *v,
                                              const gw_stages *t, gw_diags *dg);

// ------------------------------------------------------------------ shards, manifest, report

/* Cuts the .toks of all units into shards by their sizes, writes those that are not there, and the
 * indexes last. */
GW_WARN_UNUSED gw_status gw_build_shards(gw_databuild *b, json_t **shards, gw_diags *dg);
/* manifest.json (inputs and options alone) and report.json, report.md (with times), if `write`.
 * `phases`: CPU seconds of each. *report: a new reference. */
GW_WARN_UNUSED gw_status gw_build_report(gw_databuild *b, json_t *shards, const double *phases,
                                         bool write, json_t **report, gw_diags *dg);
enum { GW_PHASE_MAP, GW_PHASE_DEDUP, GW_PHASE_EMIT, GW_PHASE_SHARDS, GW_PHASES };

#endif
