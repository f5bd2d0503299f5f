// SPDX-License-Identifier: Apache-2.0
// Runs of tokens, or of bytes, that stand elsewhere too, wherever they begin.
//
// Every window of so many tokens has to be compared with every other, which two passes over the
// whole corpus do (dedup/substring.c). Texts become tokens once, unit by unit, in files that all
// later passes read (unit-NNNNN.cut); then each worker passes over all of them and looks at its
// share of the windows; then what they found is put together. The number of workers divides the
// windows and shows in no result.
//
// A range of tokens becomes a range of bytes by the bytes that the tokens stand for, and these must
// be the text's: a tokenizer that changes text (lower case, normal forms) says nothing about where
// its tokens stand, and is refused with the document that shows it.
#include <inttypes.h>
#include <string.h>

#include "comm/comm.h"              /* gw_comm_size */
#include "data/build/dedup_impl.h"  /* this module's contract */
#include "data/build/dedup_phase.h" /* gw_build_close_results */

enum { CUT_ROW, CUT_TOKENS, CUT_STARTS };

// ------------------------------------------------------------------ texts to tokens

static const char *cut_path(const gw_databuild *b, gw_arena *a, int64_t unit) {
    return gw_arena_printf(a, "%s/unit-%05" PRId64 ".cut", b->substring.dir, unit);
}

/* The tag of substrings stands for all that the tokens depend on. */
static gw_build_key cut_key(const gw_databuild *b, int64_t unit) {
    gw_hash128 part = {.lo = b->substring.tag, .hi = (uint64_t)unit};
    return gw_build_key_of("cut 1", &part, 1);
}

typedef struct cutter {
    gw_databuild *b;
    gw_columns_writer *out;
    gw_ids ids;
    gw_str starts;
    int64_t unit;
} cutter;

/* Where each token begins, and where the last one ends. */
static gw_status find_starts(cutter *c, const gw_build_row *r, gw_diags *dg) {
    uint32_t at = 0;
    gw_str_clear(&c->starts);
    for (int64_t i = 0; i < c->ids.count; i++) {
        size_t n;
        const uint8_t *bytes = gw_tokenizer_token_bytes(c->b->cutter, c->ids.items[i], &n);
        gw_str_add_n(&c->starts, &at, sizeof at);
        bool here =
            bytes && (int64_t)at + (int64_t)n <= r->n && memcmp(bytes, r->text + at, n) == 0;
        if (!here) break;
        at += (uint32_t)n;
    }
    gw_str_add_n(&c->starts, &at, sizeof at);
    if (at == (uint32_t)r->n && (int64_t)c->starts.len == 4 * (c->ids.count + 1)) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "dedup-option",
                             gw_pipeline_where(c->b->p, "dedup.substring"),
                             "the tokenizer does not give text back as it was (unit %" PRId64
                             " row %u, byte %u), so a run of its tokens has no place in the text",
                             c->unit, r->row, at);
    gw_diag_hint(dg, g, "set dedup.substring_of: bytes");
    return GW_ERR_CONFIG;
}

static gw_status cut_row(void *user, const gw_build_row *r, gw_diags *dg) {
    cutter *c = user;
    c->ids.count = 0;
    if (r->n < c->b->substring.length) return GW_OK; /* a token has a byte at least */
    GW_TRY(gw_tokenizer_encode(c->b->cutter, c->b->scratch, r->text, (size_t)r->n, 0, &c->ids, dg));
    if (c->ids.count < c->b->substring.length) return GW_OK;
    GW_TRY(find_starts(c, r, dg));
    gw_columns_put(c->out, CUT_ROW, &r->row, 1);
    gw_columns_put(c->out, CUT_TOKENS, c->ids.items, 4 * c->ids.count);
    gw_columns_put(c->out, CUT_STARTS, gw_str_c(&c->starts), (int64_t)c->starts.len);
    return gw_columns_end_row(c->out, dg);
}

static gw_status cut_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    const gw_column columns[] = {
        {"row", GW_COLUMN_U32, 1}, {"tokens", GW_COLUMN_BYTES, 1}, {"starts", GW_COLUMN_BYTES, 1}};
    cutter c = {.b = build, .unit = unit};
    gw_arena a = {0};
    (void)state;
    gw_build_key key = cut_key(build, unit);
    const char *path = cut_path(build, &a, unit);
    gw_columns *there = gw_build_open_if(path, &key);
    gw_status st = GW_OK;
    if (!there) {
        st = gw_columns_writer_new(path, columns, GW_COUNT(columns), 0, &c.out, dg);
        if (st == GW_OK)
            st = gw_build_walk(build, unit, GW_WALK_TEXT, GW_GONE_LISTS, cut_row, &c, dg);
        json_t *meta = json_pack("{s:s}", "key", key.text);
        if (st == GW_OK) st = gw_columns_finish(c.out, meta, dg);
        json_decref(meta);
    }
    gw_columns_close(there);
    gw_columns_writer_free(c.out);
    gw_ids_release(&c.ids);
    gw_str_release(&c.starts);
    gw_arena_release(&a);
    return st;
}

// ------------------------------------------------------------------ looking for repeats

typedef struct looker {
    gw_substring *s;
    uint32_t unit;
} looker;

static gw_status look_at_text(void *user, const gw_build_row *r, gw_diags *dg) {
    looker *l = user;
    return gw_substring_text(l->s, (gw_doc_id){l->unit, r->row}, r->text, r->n, dg);
}

static gw_status look_at_block(const gw_columns *c, int64_t block, gw_column_data *row,
                               gw_column_data *tokens, gw_column_data *starts, looker *l,
                               gw_diags *dg) {
    GW_TRY(gw_columns_read(c, CUT_ROW, block, row, dg));
    GW_TRY(gw_columns_read(c, CUT_TOKENS, block, tokens, dg));
    GW_TRY(gw_columns_read(c, CUT_STARTS, block, starts, dg));
    for (int64_t i = 0; i < row->rows; i++) {
        uint32_t index;
        int64_t n, m;
        memcpy(&index, row->values + 4 * i, 4);
        const void *ids = gw_column_bytes(tokens, i, &n), *at = gw_column_bytes(starts, i, &m);
        GW_TRY(gw_substring_tokens(l->s, (gw_doc_id){l->unit, index}, ids, at, n / 4, dg));
    }
    return GW_OK;
}

static gw_status look_at_unit(gw_databuild *b, looker *l, gw_diags *dg) {
    gw_arena a = {0};
    gw_columns *c = NULL;
    gw_column_data row = {0}, tokens = {0}, starts = {0};
    if (!b->cutter)
        return gw_build_walk(b, l->unit, GW_WALK_TEXT, GW_GONE_LISTS, look_at_text, l, dg);
    gw_status st = gw_columns_open(cut_path(b, &a, l->unit), &c, dg);
    for (int64_t k = 0; st == GW_OK && k < gw_columns_blocks(c); k++)
        st = look_at_block(c, k, &row, &tokens, &starts, l, dg);
    gw_columns_close(c);
    gw_column_data_release(&row);
    gw_column_data_release(&tokens);
    gw_column_data_release(&starts);
    gw_arena_release(&a);
    return st;
}

static gw_status look_at_part(void *build, void *state, int64_t part, gw_diags *dg) {
    gw_databuild *b = build;
    gw_substring_options o = b->substring;
    looker l = {0};
    (void)state;
    o.part = (int)part;
    if (gw_substring_done(&o)) return GW_OK;
    gw_status st = gw_substring_open(&o, &l.s, dg);
    for (int pass = 0; pass < 2 && st == GW_OK; pass++) {
        if (pass) st = gw_substring_again(l.s, dg);
        for (int64_t u = 0; u < b->units.count && st == GW_OK; u++) {
            l.unit = (uint32_t)u;
            st = look_at_unit(b, &l, dg);
        }
    }
    if (st == GW_OK) return gw_substring_finish(l.s, dg);
    gw_substring_abandon(l.s);
    return st;
}

static gw_status join(gw_databuild *b, gw_diags *dg) {
    return gw_substring_join(&b->substring, dg);
}

static const char *part_name(void *user, int64_t task) {
    (void)task;
    return ((const gw_databuild *)user)->substring.dir;
}

gw_status gw_build_dedup_substrings(gw_databuild *b, gw_diags *dg) {
    gw_substring_options whole = b->substring;
    whole.parts = 1;
    if (gw_substring_done(&whole)) return GW_OK;
    GW_TRY(gw_dir_make(b->substring.dir, dg));
    if (b->cutter) GW_TRY(gw_build_each_unit(b, cut_unit, GW_GONE_LISTS, dg));
    gw_pool p = {.workers = b->workers,
                 .tasks = b->substring.parts,
                 .name = part_name,
                 .begin = gw_build_open_removed,
                 .end = gw_build_close_results,
                 .work = look_at_part,
                 .user = b,
                 .stop = b->o->stop,
                 .comm = b->o->comm};
    GW_TRY(gw_pool_run(&p, dg));
    return gw_build_by_leader(b, join, "repeated substrings", dg);
}
