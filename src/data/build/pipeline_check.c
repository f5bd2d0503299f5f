// SPDX-License-Identifier: Apache-2.0
// What a pipeline file asks for that cannot be, or would have no effect.
//
// A key that another one switches off is a misunderstanding, and a build of days that left it
// out without a word would show it only at its end. So each such key is refused at its own place
// unless it has its default value, which a file of all keys (`data keys`) may well spell out.
// What needs the file system is checked where it is opened.
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"            /* GW_COUNT */
#include "data/build/pipeline_impl.h" /* this module's contract */
#include "data/dedup/minhash.h"       /* gw_minhash_recipe_find */
#include "data/text/pii.h"            /* GW_PII_OFF */

typedef struct checker {
    const gw_pipeline *p, *plain;
    gw_status status;
    gw_diags *dg;
} checker;

static gw_where where_of(const checker *c, const char *key) { return c->p->marks[gw_pl_find(key)]; }

static void missing(checker *c, const char *key, const char *why) {
    gw_diag *g = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "config-missing",
                             (gw_where){.file = c->p->file}, "'%s' is missing", key);
    gw_diag_hint(c->dg, g, "%s", why);
    c->status = GW_ERR_CONFIG;
}

static void conflict(checker *c, const char *key, const char *text) {
    c->status = GW_ERR_CONFIG;
    (void)!gw_fail_at(c->dg, GW_ERR_CONFIG, "config-value", where_of(c, key), "%s", text);
}

/* Has a key another value than its default? */
static bool differs(const checker *c, const char *key) {
    const gw_pl_key *k = &gw_pl_keys[gw_pl_find(key)];
    gw_str a = {0}, b = {0};
    gw_pl_value(c->p, k, &a);
    gw_pl_value(c->plain, k, &b);
    bool is = !gw_str_eq(gw_str_c(&a), gw_str_c(&b));
    gw_str_release(&a);
    gw_str_release(&b);
    return is;
}

/* Each of `keys` (separated by spaces) says more about something that is not asked for. */
static void idle(checker *c, const char *keys, const char *needs) {
    char key[64], text[200];
    for (const char *at = keys; *at;) {
        size_t n = strcspn(at, " ");
        snprintf(key, sizeof key, "dedup.%.*s", (int)n, at);
        at += n + (at[n] == ' ');
        if (!differs(c, key)) continue;
        snprintf(text, sizeof text, "%s has no effect without %s", key, needs);
        conflict(c, key, text);
    }
}

static bool good_compression(const char *c) {
    int64_t level;
    if (gw_str_eq(c, "none")) return true;
    return gw_str_starts(c, "zstd:") && gw_parse_i64(c + 5, &level) && level >= 1 && level <= 22;
}

static void check_output(checker *c) {
    const gw_pipeline *p = c->p;
    bool mds = p->output.format & GW_FORMAT_MDS;
    if (!p->output.dir) missing(c, "output.dir", "name a folder for the shards");
    if (p->output.format != GW_FORMAT_NONE && !p->tokenizer.path)
        missing(c, "tokenizer.path", "name a tokenizer.json, or set output.format: none");
    if (!good_compression(p->output.compression))
        conflict(c, "output.compression", "output.compression is none or zstd:1 to zstd:22");
    if ((p->output.text || p->output.url) && !mds)
        conflict(c, p->output.text ? "output.text" : "output.url",
                 "only MDS shards have columns beside the tokens: set output.format: mds");
}

static bool same(const char *a, const char *b) { return a && b && gw_str_eq(a, b); }

static void check_index(checker *c, bool near) {
    const gw_pipeline *p = c->p;
    bool compared = near || p->dedup.exact || p->dedup.spans;
    if (p->dedup.index && !compared)
        conflict(c, "dedup.index",
                 "nothing is compared with the index: dedup.near, exact and spans are all off");
    if (p->dedup.index_out && !compared)
        conflict(c, "dedup.index_out",
                 "there is nothing to index: dedup.near, exact and spans are all off");
    if (same(p->dedup.index, p->dedup.index_out))
        conflict(c, "dedup.index_out",
                 "dedup.index_out is dedup.index: a build that is killed and goes on would find "
                 "its own documents in it; name another folder");
    if (!p->dedup.index) idle(c, "index_only", "dedup.index");
}

static void check_bloom(checker *c) {
    const gw_pipeline *p = c->p;
    if (p->dedup.bloom == GW_BLOOM_NONE)
        idle(c, "bloom_keys bloom_rate bloom_in bloom_out",
             "dedup.bloom: documents, paragraphs or lines");
    if (same(p->dedup.bloom_in, p->dedup.bloom_out))
        conflict(c, "dedup.bloom_out",
                 "dedup.bloom_out is dedup.bloom_in: a build that is killed and goes on would "
                 "find its own documents in it; name another file");
    if (p->dedup.bloom_in && (differs(c, "dedup.bloom_keys") || differs(c, "dedup.bloom_rate")))
        conflict(c, differs(c, "dedup.bloom_keys") ? "dedup.bloom_keys" : "dedup.bloom_rate",
                 "a filter that dedup.bloom_in names has its size already");
}

static void check_substring(checker *c) {
    const gw_pipeline *p = c->p;
    int64_t n = p->dedup.substring;
    if (n == 0) idle(c, "substring_of substring_keep substring_edges", "dedup.substring");
    if (n > 0 && n < 8)
        conflict(c, "dedup.substring",
                 "dedup.substring is 0 or at least 8: shorter runs repeat "
                 "in all texts");
    if (n > 0 && p->dedup.substring_of == GW_SUBSTRING_TOKENS && !p->tokenizer.path)
        conflict(c, "dedup.substring",
                 "dedup.substring counts tokens, and there is no tokenizer.path: name one, or set "
                 "dedup.substring_of: bytes");
}

static void check_dedup(checker *c) {
    const gw_pipeline *p = c->p;
    bool near = !gw_str_eq(p->dedup.near, "none");
    if (near && !gw_minhash_recipe_find(p->dedup.near))
        conflict(c, "dedup.near",
                 "dedup.near is none, or the name of a recipe: fineweb, "
                 "redpajama-v2, nemo, refinedweb, text-dedup (docs/dedup.md)");
    if (!near) idle(c, "jaccard signatures", "a recipe in dedup.near");
    if (!p->dedup.spans && p->dedup.bloom != GW_BLOOM_LINES &&
        p->dedup.bloom != GW_BLOOM_PARAGRAPHS)
        idle(c, "span_bytes span_simplified", "dedup.spans");
    check_substring(c);
    check_index(c, near);
    check_bloom(c);
}

static void check_pii(checker *c) {
    if (c->p->pii.all_ips && c->p->pii.ip == GW_PII_OFF)
        conflict(c, "pii.all_ips", "pii.all_ips has no effect where pii.ip is off");
}

gw_status gw_pl_check(const gw_pipeline *p, const gw_pipeline *plain, gw_diags *dg) {
    checker c = {p, plain, GW_OK, dg};
    if (p->input.paths.count == 0) missing(&c, "input.paths", "name files, folders or globs");
    check_output(&c);
    check_dedup(&c);
    check_pii(&c);
    return c.status;
}
