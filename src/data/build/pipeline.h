// SPDX-License-Identifier: Apache-2.0
// A pipeline file: what is built from what, and how.
#ifndef GW_DATA_BUILD_PIPELINE_H
#define GW_DATA_BUILD_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags, gw_where */
#include "base/str.h"   /* gw_str */
#include "base/yaml.h"  /* gw_yaml_node */

enum { GW_FORMAT_NONE = 0, GW_FORMAT_MDS = 1, GW_FORMAT_MEGATRON = 2, GW_FORMAT_BOTH = 3 };

enum { GW_SUBSTRING_TOKENS, GW_SUBSTRING_BYTES };     /* dedup.substring_of */
enum { GW_SUBSTRING_FIRST, GW_SUBSTRING_NONE };       /* dedup.substring_keep */
enum { GW_SUBSTRING_WORDS, GW_SUBSTRING_CHARACTERS }; /* dedup.substring_edges */
/* dedup.bloom: what a filter is asked about. */
typedef enum gw_bloom_of {
    GW_BLOOM_NONE,
    GW_BLOOM_DOCUMENTS,
    GW_BLOOM_PARAGRAPHS,
    GW_BLOOM_LINES
} gw_bloom_of;

typedef struct gw_pl_list {
    const char *const *items;
    int64_t count;
} gw_pl_list;

/* As resolved: every key has a value. Strings live in the arena; a TEXT that is not given and has
 * no default, or is given as "", is NULL. */
typedef struct gw_pipeline {
    gw_arena arena;
    const char *file; /* for errors */
    struct {
        gw_pl_list paths;
        int kind; /* gw_source_kind */
        const char *text_key, *url_key, *date_key;
        bool html, check_digests, strict;
        int64_t max_record_bytes, unit_bytes;
    } input;
    struct {
        int favour; /* gw_favour */
        bool main_text, comments, tables, list_marks;
    } extract;
    struct {
        const char *model; /* "none": no language id */
    } language;
    const gw_yaml_node *filters; /* a list, or NULL */
    struct {
        bool exact;
        const char *near;       /* "none": no MinHash */
        double jaccard;         /* 0: not looked at */
        const char *signatures; /* NULL: none */
        int spans;              /* 1 << gw_span_kind each; 0: none */
        int64_t span_bytes;
        bool span_simplified;
        int64_t substring; /* tokens or bytes; 0: none */
        int substring_of, substring_keep, substring_edges;
        const char *index, *index_out; /* NULL: none */
        bool index_only;
        int bloom; /* gw_bloom_of */
        int64_t bloom_keys;
        double bloom_rate;
        const char *bloom_in, *bloom_out; /* NULL: none */
    } dedup;
    struct {
        int email, ip, phone, card, secret; /* gw_pii_how */
        bool all_ips;
    } pii;
    struct {
        const char *path, *pattern;
        int64_t unicode;
        bool append_eos, parse_specials;
    } tokenizer;
    struct {
        const char *dir;
        int format;
        int64_t shard_bytes, megatron_shard_bytes;
        const char *compression;
        bool text, url;
    } output;
    struct {
        int64_t workers, memory;
    } run;
    bool keep_removed, measure_removed;
    int64_t samples, seed;
    struct {
        double tokens, core_hour_price;
    } report;
    gw_where *marks; /* where each key was given, in the order of the table; line 0: not */
} gw_pipeline;

/* Reads a file and applies "KEY=VALUE" overrides in their order. All faults are reported at once
 * with file, line and column; unknown keys with the nearest that exists. *p is to be released in
 * both cases. */
GW_WARN_UNUSED gw_status gw_pipeline_load(gw_pipeline *p, const char *path, const char *const *sets,
                                          int nsets, gw_diags *dg);
/* The same from text; `name` stands for the file. */
GW_WARN_UNUSED gw_status gw_pipeline_parse(gw_pipeline *p, const char *name, const char *text,
                                           int64_t n, const char *const *sets, int nsets,
                                           gw_diags *dg);
void gw_pipeline_release(gw_pipeline *p);

/* Appends "key: value" lines of all keys that begin with one of the prefixes (separated by spaces;
 * "" all; one that ends in ':' is a whole key): what a phase depends on, as text that is hashed,
 * and what `data keys` prints. */
void gw_pipeline_text(const gw_pipeline *p, const char *prefixes, gw_str *out);
/* The whole table as a commented pipeline file, defaults filled in. */
void gw_pipeline_keys(gw_str *out);
/* A JSON Schema of such files, for editors: docs/pipeline.schema.json. */
void gw_pipeline_schema(gw_str *out);
/* Where a key was given, else the file alone. */
gw_where gw_pipeline_where(const gw_pipeline *p, const char *key);

#endif
