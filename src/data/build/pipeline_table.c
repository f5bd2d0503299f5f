// SPDX-License-Identifier: Apache-2.0
// The table of keys of a pipeline file, and what is printed from it: values as text, the commented
// file of `data keys`, the JSON Schema for editors.
//
// A value's text form is what is hashed to see whether a phase of an earlier run still holds, so it
// is made by one rule, and the schema's types and bounds are the rows that the reader checks by.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"            /* GW_COUNT */
#include "data/build/pipeline_impl.h" /* this module's contract */
#include "data/dedup/spans.h"         /* gw_span_kind */
#include "data/source.h"              /* gw_source_kind */
#include "data/text/extract.h"        /* gw_favour */
#include "data/text/pii.h"            /* gw_pii_how */

static const gw_pl_name gw_pl_kinds[] = {{"auto", GW_SOURCE_AUTO},
                                         {"warc", GW_SOURCE_WARC},
                                         {"jsonl", GW_SOURCE_JSONL},
                                         {"files", GW_SOURCE_FILES},
                                         {NULL, 0}};
static const gw_pl_name gw_pl_favours[] = {{"balanced", GW_FAVOUR_BALANCED},
                                           {"precision", GW_FAVOUR_PRECISION},
                                           {"recall", GW_FAVOUR_RECALL},
                                           {NULL, 0}};
static const gw_pl_name gw_pl_hows[] = {
    {"off", GW_PII_OFF}, {"replace", GW_PII_REPLACE}, {"mark", GW_PII_MARK}, {NULL, 0}};
static const gw_pl_name gw_pl_spans[] = {{"none", -1},
                                         {"lines", GW_SPAN_LINES},
                                         {"paragraphs", GW_SPAN_PARAGRAPHS},
                                         {"sentences", GW_SPAN_SENTENCES},
                                         {NULL, 0}};
static const gw_pl_name gw_pl_formats[] = {{"mds", GW_FORMAT_MDS},
                                           {"megatron", GW_FORMAT_MEGATRON},
                                           {"both", GW_FORMAT_BOTH},
                                           {"none", GW_FORMAT_NONE},
                                           {NULL, 0}};
static const gw_pl_name gw_pl_substring_of[] = {
    {"tokens", GW_SUBSTRING_TOKENS}, {"bytes", GW_SUBSTRING_BYTES}, {NULL, 0}};
static const gw_pl_name gw_pl_substring_keep[] = {
    {"first", GW_SUBSTRING_FIRST}, {"none", GW_SUBSTRING_NONE}, {NULL, 0}};
static const gw_pl_name gw_pl_substring_edges[] = {
    {"words", GW_SUBSTRING_WORDS}, {"characters", GW_SUBSTRING_CHARACTERS}, {NULL, 0}};
static const gw_pl_name gw_pl_blooms[] = {{"none", GW_BLOOM_NONE},
                                          {"documents", GW_BLOOM_DOCUMENTS},
                                          {"paragraphs", GW_BLOOM_PARAGRAPHS},
                                          {"lines", GW_BLOOM_LINES},
                                          {NULL, 0}};

#define GW_PL_GROUP(path, meaning)
#define GW_PL_KEY(field, type, fallback, lo, hi, names, meaning)                                   \
    {#field,       offsetof(gw_pipeline, field),                                                   \
     GW_PL_##type, fallback,                                                                       \
     (double)(lo), (double)(hi),                                                                   \
     names,        meaning},
const gw_pl_key gw_pl_keys[] = {
#include "data/build/pipeline.def"
};
#undef GW_PL_GROUP
#undef GW_PL_KEY
const int gw_pl_nkeys = (int)GW_COUNT(gw_pl_keys);

#define GW_PL_GROUP(path, meaning)                               {path, meaning},
#define GW_PL_KEY(field, type, fallback, lo, hi, names, meaning) {NULL, NULL},
const gw_pl_group gw_pl_rows[] = {
#include "data/build/pipeline.def"
};
#undef GW_PL_GROUP
#undef GW_PL_KEY
const int gw_pl_nrows = (int)GW_COUNT(gw_pl_rows);

int gw_pl_find(const char *path) {
    for (int i = 0; i < gw_pl_nkeys; i++)
        if (gw_str_eq(gw_pl_keys[i].path, path)) return i;
    return -1;
}

/* Last parts of names in datatrove, NeMo Curator, dolma, text-dedup and deduplicate-text-datasets.
 */
const char *gw_pl_other_name(const char *leaf) {
    static const struct {
        const char *theirs, *ours;
    } names[] = {
        {"similarity_threshold", "dedup.jaccard"},
        {"jaccard_threshold", "dedup.jaccard"},
        {"false_positive_check", "dedup.jaccard: 0.8 or another threshold"},
        {"minhash", "dedup.near, a recipe"},
        {"num_perm", "dedup.near, a recipe"},
        {"ngram_size", "dedup.near, a recipe"},
        {"n_grams", "dedup.near, a recipe"},
        {"char_ngrams", "dedup.near, a recipe"},
        {"num_bands", "dedup.near, a recipe"},
        {"num_buckets", "dedup.near, a recipe"},
        {"hashes_per_bucket", "dedup.near, a recipe"},
        {"minhashes_per_band", "dedup.near, a recipe"},
        {"index_folder", "dedup.index"},
        {"only_dedup_in_index", "dedup.index_only"},
        {"create_index_name", "dedup.index_out"},
        {"bloom_filter", "dedup.bloom, dedup.bloom_keys and dedup.bloom_rate"},
        {"estimated_doc_count", "dedup.bloom_keys"},
        {"expected_elements", "dedup.bloom_keys"},
        {"size_in_bytes", "dedup.bloom_keys and dedup.bloom_rate, from which the size follows"},
        {"desired_false_positive_rate", "dedup.bloom_rate"},
        {"duplication_threshold", "dedup.bloom_rate"},
        {"min_len_words", "dedup.substring"},
        {"length_threshold", "dedup.substring with dedup.substring_of: bytes"},
        {"min_length", "dedup.substring"},
        {"n_sentences", "dedup.spans: sentences"},
        {"paragraphs", "dedup.spans: paragraphs, or dedup.bloom: paragraphs"},
        {"documents", "dedup.exact, or dedup.bloom: documents"},
        {"processes", "run.workers"},
        {"num_proc", "run.workers"},
        {"tasks", "run.workers"},
    };
    for (size_t i = 0; i < GW_COUNT(names); i++)
        if (gw_str_eq(names[i].theirs, leaf)) return names[i].ours;
    return NULL;
}

const char *gw_pl_wanted(const gw_pl_key *k, gw_str *s) {
    static const char *const nouns[] = {[GW_PL_TEXT] = "text",
                                        [GW_PL_INT] = "an integer",
                                        [GW_PL_REAL] = "a number",
                                        [GW_PL_BOOL] = "true or false",
                                        [GW_PL_BYTES] = "a size such as 64MB",
                                        [GW_PL_ENUM] = "one of",
                                        [GW_PL_FLAGS] = "one or a list of",
                                        [GW_PL_LIST] = "a list",
                                        [GW_PL_NODE] = "a list"};
    gw_str_add(s, nouns[k->type]);
    for (const gw_pl_name *n = k->names; n && n->name; n++)
        gw_str_printf(s, "%s %s", n == k->names ? "" : ",", n->name);
    return gw_str_c(s);
}

// ------------------------------------------------------------------ text

static void add_node(const gw_yaml_node *n, gw_str *out) {
    const char *sep = "";
    if (n->kind == GW_YAML_SCALAR) {
        gw_str_add(out, n->text);
        return;
    }
    gw_str_add_char(out, n->kind == GW_YAML_LIST ? '[' : '{');
    for (const gw_yaml_child *c = n->first; c; c = c->next) {
        gw_str_add(out, sep);
        if (c->key) gw_str_printf(out, "%s: ", c->key);
        add_node(c->value, out);
        sep = ", ";
    }
    gw_str_add_char(out, n->kind == GW_YAML_LIST ? ']' : '}');
}

/* "none", "lines", "[lines, paragraphs]": in the order of the table. */
static void add_flags(const gw_pl_key *k, int set, gw_str *out) {
    bool several = set & (set - 1);
    const char *sep = several ? "[" : "";
    for (const gw_pl_name *n = k->names; n->name; n++) {
        if (n->value < 0 ? set != 0 : !(set >> n->value & 1)) continue;
        gw_str_printf(out, "%s%s", sep, n->name);
        sep = ", ";
    }
    if (several) gw_str_add_char(out, ']');
}

void gw_pl_value(const gw_pipeline *p, const gw_pl_key *k, gw_str *out) {
    const void *f = (const char *)p + k->offset;
    switch (k->type) {
    case GW_PL_TEXT:
        gw_str_add(out, *(const char *const *)f ? *(const char *const *)f : "");
        return;
    case GW_PL_BYTES:
    case GW_PL_INT: gw_str_printf(out, "%lld", (long long)*(const int64_t *)f); return;
    case GW_PL_REAL: gw_str_printf(out, "%.17g", *(const double *)f); return;
    case GW_PL_BOOL: gw_str_add(out, *(const bool *)f ? "true" : "false"); return;
    case GW_PL_ENUM:
        for (const gw_pl_name *n = k->names; n->name; n++)
            if (n->value == *(const int *)f) gw_str_add(out, n->name);
        return;
    case GW_PL_FLAGS: add_flags(k, *(const int *)f, out); return;
    case GW_PL_LIST: {
        const gw_pl_list *l = f;
        for (int64_t i = 0; i < l->count; i++)
            gw_str_printf(out, "%s%s", i ? ", " : "[", l->items[i]);
        gw_str_add(out, l->count ? "]" : "[]");
        return;
    }
    case GW_PL_NODE:
        if (*(const gw_yaml_node *const *)f) add_node(*(const gw_yaml_node *const *)f, out);
        return;
    }
}

static bool begins_with_one(const char *path, const char *prefixes) {
    if (!*prefixes) return true;
    for (const char *at = prefixes; *at;) {
        size_t n = strcspn(at, " "), whole = n && at[n - 1] == ':';
        if (strncmp(path, at, n - whole) == 0 && (!whole || !path[n - 1])) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

void gw_pipeline_text(const gw_pipeline *p, const char *prefixes, gw_str *out) {
    for (int i = 0; i < gw_pl_nkeys; i++) {
        if (!begins_with_one(gw_pl_keys[i].path, prefixes)) continue;
        gw_str_printf(out, "%s: ", gw_pl_keys[i].path);
        gw_pl_value(p, &gw_pl_keys[i], out);
        gw_str_add_char(out, '\n');
    }
}

void gw_pipeline_keys(gw_str *out) {
    int key = 0;
    const char *indent = "";
    for (size_t i = 0; i < (size_t)gw_pl_nrows; i++) {
        if (gw_pl_rows[i].path) {
            bool top = !*gw_pl_rows[i].path || gw_pl_find(gw_pl_rows[i].path) >= 0;
            gw_str_printf(out, "%s# %s\n", i ? "\n" : "", gw_pl_rows[i].meaning);
            if (!top) gw_str_printf(out, "%s:\n", gw_pl_rows[i].path);
            indent = top ? "" : "  ";
            continue;
        }
        const gw_pl_key *k = &gw_pl_keys[key++];
        const char *dot = strrchr(k->path, '.');
        gw_str line = {0}, want = {0};
        const char *value = *k->fallback ? k->fallback : k->type == GW_PL_TEXT ? "\"\"" : "[]";
        gw_str_printf(&line, "%s%s: %s", indent, dot ? dot + 1 : k->path, value);
        gw_str_printf(out, "%-36s # %s", gw_str_c(&line), k->meaning);
        if (k->names) gw_str_printf(out, " (%s)", gw_pl_wanted(k, &want));
        gw_str_add_char(out, '\n');
        gw_str_release(&line);
        gw_str_release(&want);
    }
}

// ------------------------------------------------------------------ schema

static void add_quoted(gw_str *out, const char *text) {
    gw_str_add_char(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') gw_str_add_char(out, '\\');
        gw_str_add_char(out, *text);
    }
    gw_str_add_char(out, '"');
}

static void add_enum(const gw_pl_key *k, bool empty, gw_str *out) {
    const char *sep = "";
    gw_str_add(out, "\"enum\": [");
    for (const gw_pl_name *n = k->names; n->name; n++) {
        if (!empty && n->value < 0) continue;
        gw_str_add(out, sep);
        add_quoted(out, n->name);
        sep = ", ";
    }
    gw_str_add_char(out, ']');
}

static void add_type(const gw_pl_key *k, gw_str *out) {
    switch (k->type) {
    case GW_PL_TEXT: gw_str_add(out, "\"type\": \"string\""); return;
    case GW_PL_BOOL: gw_str_add(out, "\"type\": \"boolean\""); return;
    case GW_PL_BYTES:
        gw_str_add(out, "\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]");
        return;
    case GW_PL_INT:
    case GW_PL_REAL:
        gw_str_printf(out, "\"type\": \"%s\", \"minimum\": %.17g, \"maximum\": %.17g",
                      k->type == GW_PL_INT ? "integer" : "number", k->lo, k->hi);
        return;
    case GW_PL_ENUM: add_enum(k, true, out); return;
    case GW_PL_FLAGS:
        gw_str_add(out, "\"anyOf\": [{");
        add_enum(k, true, out);
        gw_str_add(out, "}, {\"type\": \"array\", \"items\": {");
        add_enum(k, false, out);
        gw_str_add(out, "}}]");
        return;
    case GW_PL_LIST:
        gw_str_add(out, "\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"items\": "
                        "{\"type\": \"string\"}}]");
        return;
    case GW_PL_NODE:
        gw_str_add(out, "\"type\": \"array\", \"items\": {\"anyOf\": [{\"type\": \"string\"}, "
                        "{\"type\": \"object\"}]}");
        return;
    }
}

static void add_property(const gw_pl_key *k, int indent, gw_str *out) {
    const char *dot = strrchr(k->path, '.');
    gw_str_printf(out, "%*s\"%s\": {", indent, "", dot ? dot + 1 : k->path);
    add_type(k, out);
    bool word = k->type == GW_PL_TEXT || k->type == GW_PL_BYTES || k->names;
    if (*k->fallback) {
        gw_str_add(out, ", \"default\": ");
        if (word)
            add_quoted(out, k->fallback);
        else
            gw_str_add(out, k->fallback);
    }
    gw_str_add(out, ", \"description\": ");
    add_quoted(out, k->meaning);
    gw_str_add_char(out, '}');
}

void gw_pipeline_schema(gw_str *out) {
    int key = 0, open = 0; /* open: within a group's properties */
    const char *sep = "";
    gw_str_add(out, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                    "  \"title\": \"gradwright pipeline file\",\n"
                    "  \"$comment\": \"Generated by `gradwright docs pipeline-schema`.\",\n"
                    "  \"type\": \"object\",\n  \"additionalProperties\": false,\n"
                    "  \"properties\": {");
    for (int i = 0; i < gw_pl_nrows; i++) {
        const gw_pl_group *g = &gw_pl_rows[i];
        if (!g->path) {
            gw_str_printf(out, "%s\n", sep);
            add_property(&gw_pl_keys[key++], open ? 8 : 4, out);
            sep = ",";
            continue;
        }
        if (open) gw_str_add(out, "\n      }\n    }");
        if (open) sep = ",";
        open = *g->path && gw_pl_find(g->path) < 0;
        if (!open) continue;
        gw_str_printf(out, "%s\n    \"%s\": {\n      \"type\": \"object\",\n", sep, g->path);
        gw_str_add(out, "      \"description\": ");
        add_quoted(out, g->meaning);
        gw_str_add(out, ",\n      \"additionalProperties\": false,\n      \"properties\": {");
        sep = "";
    }
    if (open) gw_str_add(out, "\n      }\n    }");
    gw_str_add(out, "\n  }\n}\n");
}
