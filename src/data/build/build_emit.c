// SPDX-License-Identifier: Apache-2.0
// The emit phase: documents that stay, from text to tokens.
//
// Of each unit the kept rows that dedup has not removed are read in order; ranges that dedup cuts
// out go (all kinds of them together, those of substrings shrunk to whole words first), what is
// personal is replaced, and the text becomes ids. The result is a table with a row
// a document; shards are cut from these tables afterwards, by their sizes alone. Text that spells a
// special token is text: pages quote "<|endoftext|>", and only the builder itself ends documents.
//
// The key of a unit's result holds the lists of what goes from it, not the whole of dedup: a new
// input makes again only the units whose lists change.
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/map.h"               /* gw_vec_push */
#include "data/build/build_impl.h"  /* gw_databuild */
#include "data/build/token_width.h" /* gw_tokens_store */

typedef struct emitter {
    gw_databuild *b;
    int64_t unit;
    gw_arena arena;
    gw_columns *docs, *keep;
    gw_columns_writer *out;
    gw_column_data filter, text, url;
    gw_str body, stored;
    uint32_t cut; /* bytes of the document that went */
    gw_ids ids;
    const gw_dedup_removed *removed[GW_GONE_LISTS];
    const gw_dedup_range *ranges[GW_CUTS];
    int64_t nremoved[GW_GONE_LISTS], next_removed[GW_GONE_LISTS];
    int64_t nranges[GW_CUTS], next_range[GW_CUTS];
    GW_VEC(gw_dedup_range) cuts; /* of a document */
    int64_t block, first;        /* of docs */
    int64_t documents, text_bytes, tokens, cut_bytes, emptied;
    int64_t cut_by[GW_CUTS], cut_ranges[GW_CUTS]; /* bytes, ranges: those of two count in both */
    int64_t specials; /* texts of special tokens met: of the scratch, before this unit */
    gw_pii_counts found;
    gw_stages time;
    gw_diags *dg;
} emitter;

// ------------------------------------------------------------------ what it depends on

static gw_hash128 hash_of_lists(const emitter *e) {
    gw_hasher *h = gw_hasher_new();
    for (int l = 0; l < GW_GONE_LISTS; l++)
        for (int64_t i = 0; i < e->nremoved[l]; i++) {
            uint32_t r[2] = {e->removed[l][i].index, e->removed[l][i].why};
            gw_hasher_add(h, r, sizeof r);
        }
    for (int k = 0; k < GW_CUTS; k++) {
        gw_hasher_add(h, "ranges", 6);
        for (int64_t i = 0; i < e->nranges[k]; i++) {
            uint32_t r[3] = {e->ranges[k][i].index, e->ranges[k][i].begin, e->ranges[k][i].end};
            gw_hasher_add(h, r, sizeof r);
        }
    }
    int words = e->b->p->dedup.substring_edges;
    gw_hasher_add(h, &words, sizeof words);
    gw_hash128 hash = gw_hasher_get(h);
    gw_hasher_free(h);
    return hash;
}

static gw_build_key toks_key(const emitter *e) {
    gw_hash128 parts[4] = {gw_columns_content(e->docs), gw_columns_content(e->keep),
                           hash_of_lists(e), e->b->emit_options};
    return gw_build_key_of("toks 2", parts, 4);
}

static gw_status open_inputs(emitter *e) {
    gw_databuild *b = e->b;
    uint32_t unit = (uint32_t)e->unit;
    GW_TRY(gw_build_open_unit(b, GW_UNIT_DOCS, e->unit, &e->docs, e->dg));
    GW_TRY(gw_build_open_unit(b, GW_UNIT_KEEP, e->unit, &e->keep, e->dg));
    if (gw_columns_rows(e->docs) != gw_columns_rows(e->keep))
        return gw_fail_at(e->dg, GW_ERR_FORMAT, "data-table",
                          (gw_where){.file = gw_columns_path(e->keep)},
                          "the file has %lld rows, the documents beside it %lld",
                          (long long)gw_columns_rows(e->keep), (long long)gw_columns_rows(e->docs));
    for (int l = 0; l < GW_GONE_LISTS; l++)
        if (b->removed[l])
            GW_TRY(
                gw_dedup_result_unit(b->removed[l], unit, &e->removed[l], &e->nremoved[l], e->dg));
    for (int k = 0; k < GW_CUTS; k++)
        if (b->ranges[k])
            GW_TRY(
                gw_dedup_result_ranges(b->ranges[k], unit, &e->ranges[k], &e->nranges[k], e->dg));
    return GW_OK;
}

// ------------------------------------------------------------------ a document

static bool goes(emitter *e, uint32_t row) {
    bool is = false;
    for (int l = 0; l < GW_GONE_LISTS; l++) {
        int64_t *at = &e->next_removed[l];
        while (*at < e->nremoved[l] && e->removed[l][*at].index < row) ++*at;
        is = is || (*at < e->nremoved[l] && e->removed[l][*at].index == row);
    }
    return is;
}

/* The ranges of a document that a kind has found, behind those of the kinds before. */
static void gather(emitter *e, int kind, uint32_t row) {
    int64_t *at = &e->next_range[kind], first = e->cuts.count;
    while (*at < e->nranges[kind] && e->ranges[kind][*at].index < row) ++*at;
    for (; *at < e->nranges[kind] && e->ranges[kind][*at].index == row; ++*at)
        gw_vec_push(&e->cuts, e->ranges[kind][*at]);
    if (kind == GW_CUT_SUBSTRINGS && e->cuts.count > first)
        e->cuts.count = first + gw_substring_snap(gw_str_c(&e->body), (int64_t)e->body.len,
                                                  e->b->substring.word_edges, e->cuts.items + first,
                                                  e->cuts.count - first);
    e->cut_ranges[kind] += e->cuts.count - first;
    for (int64_t i = first; i < e->cuts.count; i++)
        e->cut_by[kind] += e->cuts.items[i].end - e->cuts.items[i].begin;
}

static int by_begin(const void *a, const void *b) {
    const gw_dedup_range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static void cut_ranges(emitter *e, uint32_t row) {
    int64_t n = 0;
    e->cuts.count = 0;
    for (int k = 0; k < GW_CUTS; k++) gather(e, k, row);
    if (e->cuts.count == 0) return;
    gw_dedup_range *c = e->cuts.items;
    qsort(c, (size_t)e->cuts.count, sizeof *c, by_begin);
    for (int64_t i = 1; i < e->cuts.count; i++) {
        if (c[i].begin <= c[n].end)
            c[n].end = GW_MAX(c[n].end, c[i].end);
        else
            c[++n] = c[i];
    }
    size_t before = e->body.len;
    gw_dedup_cut(&e->body, c, n + 1);
    e->cut = (uint32_t)(before - e->body.len);
    e->cut_bytes += e->cut;
}

static gw_status load_text(emitter *e, int64_t row) {
    bool turn = e->text.rows == 0;
    while (row >= e->first + gw_columns_block_rows(e->docs, e->block)) {
        e->first += gw_columns_block_rows(e->docs, e->block++);
        turn = true;
    }
    if (turn) {
        GW_TRY(gw_columns_read(e->docs, GW_DOCS_TEXT, e->block, &e->text, e->dg));
        GW_TRY(gw_columns_read(e->docs, GW_DOCS_URL, e->block, &e->url, e->dg));
    }
    int64_t n;
    const char *t = gw_column_bytes(&e->text, row - e->first, &n);
    gw_str_clear(&e->body);
    gw_str_add_n(&e->body, t, (size_t)n);
    return GW_OK;
}

static gw_status to_tokens(emitter *e) {
    const gw_databuild *b = e->b;
    e->ids.count = 0;
    gw_str_clear(&e->stored);
    if (!b->tokenizer) return GW_OK;
    unsigned flags = b->p->tokenizer.parse_specials ? GW_ENCODE_SPECIALS : 0;
    GW_TRY(gw_tokenizer_encode(b->tokenizer, b->scratch, gw_str_c(&e->body), e->body.len, flags,
                               &e->ids, e->dg));
    if (b->p->tokenizer.append_eos) gw_vec_push(&e->ids, gw_tokenizer_eos(b->tokenizer));
    int64_t vocab = gw_tokenizer_vocab_size(b->tokenizer);
    return gw_tokens_store(e->ids.items, e->ids.count, gw_token_width(vocab), vocab, &e->stored,
                           e->dg);
}

static gw_status put_row(emitter *e, uint32_t row) {
    const gw_databuild *b = e->b;
    uint32_t count = (uint32_t)e->ids.count, bytes = (uint32_t)e->body.len;
    int64_t n;
    const char *url = gw_column_bytes(&e->url, row - e->first, &n);
    gw_columns_put(e->out, GW_TOKS_ROW, &row, 1);
    gw_columns_put(e->out, GW_TOKS_COUNT, &count, 1);
    gw_columns_put(e->out, GW_TOKS_TOKENS, gw_str_c(&e->stored), (int64_t)e->stored.len);
    gw_columns_put(e->out, GW_TOKS_BYTES, &bytes, 1);
    gw_columns_put(e->out, GW_TOKS_TEXT, gw_str_c(&e->body),
                   b->p->output.text ? (int64_t)e->body.len : 0);
    gw_columns_put(e->out, GW_TOKS_URL, url, b->p->output.url ? n : 0);
    gw_columns_put(e->out, GW_TOKS_CUT, &e->cut, 1);
    e->documents++;
    e->text_bytes += bytes;
    e->tokens += count;
    return gw_columns_end_row(e->out, e->dg);
}

static gw_status emit_row(emitter *e, uint32_t row) {
    gw_databuild *b = e->b;
    GW_TRY(load_text(e, row));
    e->cut = 0;
    cut_ranges(e, row);
    gw_stages_mark(&e->time, GW_STAGE_LOAD);
    if (e->body.len == 0) {
        e->emptied++;
        return GW_OK;
    }
    if (b->pii_on) gw_pii_mark(b->pii, &b->pii_options, &e->body, &e->found);
    gw_stages_mark(&e->time, GW_STAGE_PII);
    GW_TRY(to_tokens(e));
    gw_stages_mark(&e->time, GW_STAGE_TOKENIZE);
    GW_TRY(put_row(e, row));
    gw_stages_mark(&e->time, GW_STAGE_STORE);
    return GW_OK;
}

// ------------------------------------------------------------------ a unit

static gw_status emit_rows(emitter *e) {
    uint32_t row = 0;
    for (int64_t k = 0; k < gw_columns_blocks(e->keep); k++) {
        GW_TRY(gw_columns_read(e->keep, GW_KEEP_FILTER, k, &e->filter, e->dg));
        for (int64_t i = 0; i < e->filter.rows; i++, row++)
            if (e->filter.values[i] == GW_VERDICT_KEPT && !goes(e, row)) GW_TRY(emit_row(e, row));
    }
    return GW_OK;
}

static int64_t specials_met(const emitter *e) {
    return e->b->scratch ? gw_tok_scratch_specials(e->b->scratch) : 0;
}

/* Documents that go, by why. */
static json_t *removed_json(const emitter *e) {
    int64_t n[GW_DEDUP_SEEN + 1] = {0};
    for (int l = 0; l < GW_GONE_LISTS; l++)
        for (int64_t i = 0; i < e->nremoved[l]; i++) n[e->removed[l][i].why]++;
    return json_pack("{s:I, s:I, s:I, s:I}", "near", (json_int_t)n[GW_DEDUP_NEAR], "exact",
                     (json_int_t)n[GW_DEDUP_EXACT], "index", (json_int_t)n[GW_DEDUP_INDEX], "seen",
                     (json_int_t)n[GW_DEDUP_SEEN]);
}

static json_t *cuts_json(const emitter *e) {
    json_t *o = json_object();
    for (int k = 0; k < GW_CUTS; k++)
        if (e->b->ranges[k])
            json_object_set_new(o, gw_cut_names[k],
                                json_pack("{s:I, s:I}", "ranges", (json_int_t)e->cut_ranges[k],
                                          "bytes", (json_int_t)e->cut_by[k]));
    return o;
}

static gw_status finish(emitter *e, const gw_build_key *key) {
    json_t *pii = json_object();
    for (int k = 0; k < GW_PII_KINDS; k++)
        json_object_set_new(pii, gw_pii_kind_name((gw_pii_kind)k), json_integer(e->found.found[k]));
    gw_stages_end(&e->time);
    json_t *meta = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:I, s:I, s:o, s:o}", "key", key->text, "unit",
        (json_int_t)e->unit, "documents", (json_int_t)e->documents, "text_bytes",
        (json_int_t)e->text_bytes, "tokens", (json_int_t)e->tokens, "removed", removed_json(e),
        "cut_bytes", (json_int_t)e->cut_bytes, "cut", cuts_json(e), "emptied",
        (json_int_t)e->emptied, "specials", (json_int_t)(specials_met(e) - e->specials), "pii", pii,
        "time", gw_stages_json(&e->time));
    gw_status st = gw_columns_finish(e->out, meta, e->dg);
    json_decref(meta);
    return st;
}

static gw_status emit(emitter *e, const char *path, const gw_build_key *key) {
    const gw_column c[] = {{"row", GW_COLUMN_U32, 1},      {"count", GW_COLUMN_U32, 1},
                           {"tokens", GW_COLUMN_BYTES, 1}, {"text_bytes", GW_COLUMN_U32, 1},
                           {"text", GW_COLUMN_BYTES, 1},   {"url", GW_COLUMN_BYTES, 1},
                           {"cut_bytes", GW_COLUMN_U32, 1}};
    GW_TRY(gw_columns_writer_new(path, c, GW_COUNT(c), 0, &e->out, e->dg));
    gw_stages_begin(&e->time);
    e->specials = specials_met(e);
    GW_TRY(emit_rows(e));
    return finish(e, key);
}

gw_status gw_build_emit_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    emitter e = {.b = build, .unit = unit, .dg = dg};
    (void)state;
    gw_arena_init(&e.arena);
    gw_status st = open_inputs(&e);
    if (st == GW_OK) {
        gw_build_key key = toks_key(&e);
        const char *path = gw_build_unit_path(build, &e.arena, GW_UNIT_TOKS, unit);
        gw_columns *there = gw_build_open_if(path, &key);
        if (!there) st = emit(&e, path, &key);
        gw_columns_close(there);
    }
    gw_columns_writer_free(e.out);
    gw_columns_close(e.docs);
    gw_columns_close(e.keep);
    gw_column_data_release(&e.filter);
    gw_column_data_release(&e.text);
    gw_column_data_release(&e.url);
    gw_str_release(&e.body);
    gw_str_release(&e.stored);
    gw_vec_release(&e.cuts);
    gw_ids_release(&e.ids);
    gw_arena_release(&e.arena);
    return st;
}
