// SPDX-License-Identifier: Apache-2.0
// From text files to a token data set.
//
// A file is mapped, cut into documents by the chosen rule, and each document is encoded and
// streamed to the writer, so memory stays at one document. Text that spells a special token is text
// unless the caller says otherwise: pages on the web quote "<|endoftext|>", and a control token
// must come only from us.
#include <string.h>
#include <unistd.h> /* unlink */

#include "base/io.h"           /* gw_map_open */
#include "base/map.h"          /* gw_vec_push */
#include "data/build/sums.h"   /* GW_SUMS_END */
#include "data/tokens.h"       /* gw_tokens_build */
#include "file/json.h"         /* gw_json_parse */
#include "file/megatron_idx.h" /* gw_midx_writer */

typedef struct build {
    const gw_tokenizer *t;
    gw_tok_scratch *scratch;
    gw_midx_writer *writer;
    const gw_tokens_build_options *opt;
    gw_ids ids;
    gw_tokens_build_report report;
    const char *path;
    int64_t line;
    gw_diags *dg;
} build;

static gw_status add_document(build *b, const void *text, size_t n) {
    unsigned flags = b->opt->parse_specials ? GW_ENCODE_SPECIALS : 0;
    b->ids.count = 0;
    GW_TRY(gw_tokenizer_encode(b->t, b->scratch, text, n, flags, &b->ids, b->dg));
    if (b->opt->append_eos) gw_vec_push(&b->ids, gw_tokenizer_eos(b->t));
    b->report.documents++;
    b->report.tokens += b->ids.count;
    b->report.text_bytes += (int64_t)n;
    return gw_midx_writer_doc(b->writer, (const uint32_t *)b->ids.items, b->ids.count, b->dg);
}

static bool is_break(char c) { return c == '\n' || c == '\r'; }

/* The end of the document that begins at i: where a run of line ends with three newlines begins, or
 * the line ends that end the text. */
static size_t end_of_block(const char *p, size_t n, size_t i) {
    while (i < n) {
        const char *nl = memchr(p + i, '\n', n - i);
        size_t a = nl ? (size_t)(nl - p) : n, b, newlines = 0;
        while (a > i && p[a - 1] == '\r') a--;
        for (b = a; b < n && is_break(p[b]); b++) newlines += p[b] == '\n';
        if (newlines >= 3 || b == n) return a;
        i = b;
    }
    return n;
}

static gw_status split_blank(build *b, const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        while (i < n && is_break(p[i])) i++;
        size_t e = end_of_block(p, n, i);
        if (e > i) GW_TRY(add_document(b, p + i, e - i));
        i = e;
    }
    return GW_OK;
}

static gw_status add_json_line(build *b, const char *p, size_t n) {
    const char *key = b->opt->json_key ? b->opt->json_key : "text";
    json_t *v;
    gw_status st = gw_json_parse(p, n, b->path, &v, b->dg);
    if (st == GW_OK) {
        const json_t *text = json_object_get(v, key);
        if (json_is_string(text))
            st = add_document(b, json_string_value(text), json_string_length(text));
        else
            st = gw_fail_at(b->dg, GW_ERR_FORMAT, "data-json-text", (gw_where){.file = b->path},
                            "no string '%s' in the object", key);
        json_decref(v);
    }
    if (st != GW_OK) gw_diag_frame(b->dg, "reading line %lld of %s", (long long)b->line, b->path);
    return st;
}

static gw_status split_lines(build *b, const char *p, size_t n) {
    b->line = 0;
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(p + i, '\n', n - i);
        size_t e = nl ? (size_t)(nl - p) : n, end = e;
        b->line++;
        if (end > i && p[end - 1] == '\r') end--;
        bool blank = true;
        for (size_t k = i; k < end && blank; k++) blank = p[k] == ' ' || p[k] == '\t';
        if (!blank)
            GW_TRY(b->opt->rule == GW_DOC_JSONL ? add_json_line(b, p + i, end - i)
                                                : add_document(b, p + i, end - i));
        i = e + 1;
    }
    return GW_OK;
}

static gw_status add_file(build *b, const char *path) {
    gw_mapping m;
    GW_TRY(gw_map_open(&m, path, b->dg));
    const char *p = (const char *)m.data;
    size_t n = (size_t)m.bytes;
    gw_status st = GW_OK;
    b->path = path;
    b->report.files++;
    switch (b->opt->rule) {
    case GW_DOC_BLANK: st = split_blank(b, p, n); break;
    case GW_DOC_FILE: st = n ? add_document(b, p, n) : GW_OK; break;
    case GW_DOC_LINE:
    case GW_DOC_JSONL: st = split_lines(b, p, n); break;
    }
    if (st != GW_OK) gw_diag_frame(b->dg, "tokenizing '%s'", path);
    gw_map_release(&m);
    return st;
}

/* Sums of an earlier pair under this name are of other tokens. */
static void remove_sums(const char *prefix) {
    static const char *const ends[] = {".bin" GW_SUMS_END, ".idx" GW_SUMS_END};
    gw_arena a = {0};
    for (size_t i = 0; i < GW_COUNT(ends); i++)
        unlink(gw_arena_printf(&a, "%s%s", prefix, ends[i]));
    gw_arena_release(&a);
}

gw_status gw_tokens_build(const char *const *paths, int npaths, const gw_tokenizer *t,
                          const gw_tokens_build_options *options, const char *prefix,
                          gw_tokens_build_report *report, gw_diags *dg) {
    if (options->append_eos && gw_tokenizer_eos(t) < 0) {
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "data-no-eos", (gw_where){0},
                                 "the tokenizer has no end-of-text token to put after documents");
        gw_diag_hint(dg, g, "name one (eos_token in tokenizer_config.json), or append none");
        return GW_ERR_CONFIG;
    }
    build b = {.t = t, .opt = options, .dg = dg};
    GW_TRY(gw_midx_writer_new(prefix, gw_tokenizer_vocab_size(t), &b.writer, dg));
    b.scratch = gw_tok_scratch_new();
    gw_status st = GW_OK;
    for (int i = 0; i < npaths && st == GW_OK; i++) st = add_file(&b, paths[i]);
    if (st == GW_OK) remove_sums(prefix);
    if (st == GW_OK) st = gw_midx_writer_finish(b.writer, dg);
    gw_midx_writer_free(b.writer);
    gw_tok_scratch_free(b.scratch);
    gw_ids_release(&b.ids);
    if (report) *report = b.report;
    return st;
}
