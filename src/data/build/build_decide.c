// SPDX-License-Identifier: Apache-2.0
// Verdicts from columns: a .keep file made from a .docs file, without extracting anything.
//
// Filters decide on signals, which are columns, so new thresholds need no text: a unit of a million
// documents is judged in the time it takes to read some numbers. A document that stays needs the
// keys of its text for dedup. Those of the earlier .keep file are taken over where it was made by
// the same recipe; only documents that stay now and did not before are read and signed. A document
// whose text was not kept when it was removed cannot come back: then the unit has to be extracted
// again, and the caller is told.
#include <string.h>

#include "base/io.h"               /* gw_path_exists */
#include "data/build/build_impl.h" /* gw_databuild */

typedef struct decider {
    gw_databuild *b;
    int64_t unit, block;
    const gw_columns *docs;
    gw_columns *old; /* an earlier .keep of the same texts and recipe, or NULL */
    gw_columns_writer *keep;
    gw_column_data media, bytes, url, language, score, text, old_filter, old_keys;
    gw_column_data *signals;
    bool text_read, old_read, need_text;
    int64_t first, old_block, old_first; /* row of the block's first row */
    gw_verdicts verdicts;
    gw_diags *dg;
} decider;

/* The earlier file, if its keys are those of these texts. */
static gw_columns *open_old(const gw_databuild *b, gw_arena *a, int64_t unit,
                            const gw_columns *docs) {
    char content[33], keys[33];
    const char *path = gw_build_unit_path(b, a, GW_UNIT_KEEP, unit);
    gw_columns *c = NULL;
    if (!gw_path_exists(path) || gw_columns_open(path, &c, NULL) != GW_OK) return NULL;
    const json_t *m = gw_columns_meta(c);
    gw_hash128_hex(content, gw_columns_content(docs));
    gw_hash128_hex(keys, b->keys_options);
    bool same = gw_str_eq(json_string_value(json_object_get(m, "docs")), content) &&
                gw_str_eq(json_string_value(json_object_get(m, "keys")), keys) &&
                gw_columns_rows(c) == gw_columns_rows(docs);
    if (same) return c;
    gw_columns_close(c);
    return NULL;
}

static gw_status read_block(decider *d) {
    const gw_columns *c = d->docs;
    int64_t b = d->block;
    d->text_read = false;
    GW_TRY(gw_columns_read(c, GW_DOCS_MEDIA, b, &d->media, d->dg));
    GW_TRY(gw_columns_read(c, GW_DOCS_TEXT_BYTES, b, &d->bytes, d->dg));
    GW_TRY(gw_columns_read(c, GW_DOCS_URL, b, &d->url, d->dg));
    GW_TRY(gw_columns_read(c, GW_DOCS_LANGUAGE, b, &d->language, d->dg));
    GW_TRY(gw_columns_read(c, GW_DOCS_SCORE, b, &d->score, d->dg));
    for (int i = 0; i < gw_filters_columns(d->b->filters); i++)
        GW_TRY(gw_columns_read(c, GW_DOCS_SIGNALS + i, b, &d->signals[i], d->dg));
    return GW_OK;
}

static void verdict(decider *d, int64_t i, const char *url, int *filter, int *reason) {
    gw_databuild *b = d->b;
    char language[8] = "";
    int64_t n;
    uint32_t bytes;
    const char *l = gw_column_bytes(&d->language, i, &n);
    memcpy(language, l, (size_t)GW_MIN(n, 7));
    gw_filter_facts facts = {url, language, 0};
    memcpy(&facts.language_score, d->score.values + 4 * i, 4);
    memcpy(&bytes, d->bytes.values + 4 * i, 4);
    *filter = GW_VERDICT_EMPTY;
    *reason = 0;
    if (d->media.values[i] & 0x80u) return;
    for (int k = 0; k < gw_filters_columns(b->filters); k++)
        memcpy(&b->signals[k], d->signals[k].values + 8 * i, 8);
    gw_verdict v = gw_filters_decide(b->filters, &facts, b->signals);
    if (v.filter >= 0) {
        *filter = v.filter + 1;
        *reason = v.reason;
    } else if (bytes) {
        *filter = GW_VERDICT_KEPT;
    }
}

/* The keys that the earlier file has of a row; *keys NULL: none. */
static gw_status old_keys(decider *d, int64_t row, const gw_hash128 **keys) {
    *keys = NULL;
    if (!d->old || d->b->nkeys == 0) return GW_OK;
    while (!d->old_read || row >= d->old_first + gw_columns_block_rows(d->old, d->old_block)) {
        if (d->old_read) d->old_first += gw_columns_block_rows(d->old, d->old_block++);
        GW_TRY(gw_columns_read(d->old, GW_KEEP_FILTER, d->old_block, &d->old_filter, d->dg));
        GW_TRY(gw_columns_read(d->old, GW_KEEP_KEYS, d->old_block, &d->old_keys, d->dg));
        d->old_read = true;
    }
    int64_t i = row - d->old_first, n = (int64_t)sizeof(gw_hash128) * d->b->nkeys;
    if (d->old_filter.values[i] != GW_VERDICT_KEPT) return GW_OK;
    memcpy(d->b->row_keys, d->old_keys.values + i * n, (size_t)n);
    *keys = d->b->row_keys;
    return GW_OK;
}

static gw_status find_keys(decider *d, int64_t i, uint32_t bytes, const gw_hash128 **keys) {
    GW_TRY(old_keys(d, d->first + i, keys));
    if (*keys || d->b->nkeys == 0) return GW_OK;
    if (!d->text_read) GW_TRY(gw_columns_read(d->docs, GW_DOCS_TEXT, d->block, &d->text, d->dg));
    d->text_read = true;
    int64_t n;
    const char *text = gw_column_bytes(&d->text, i, &n);
    if (n != bytes) d->need_text = true;
    *keys = gw_build_row_keys(d->b, text, n);
    return GW_OK;
}

/* Was the text of this kept document stored? Without dedup nothing else looks. */
static gw_status check_text(decider *d, int64_t i, uint32_t bytes) {
    int64_t n;
    if (d->b->p->keep_removed || d->b->nkeys) return GW_OK;
    if (!d->text_read) GW_TRY(gw_columns_read(d->docs, GW_DOCS_TEXT, d->block, &d->text, d->dg));
    d->text_read = true;
    gw_column_bytes(&d->text, i, &n);
    if (n != bytes) d->need_text = true;
    return GW_OK;
}

static gw_status decide_row(decider *d, int64_t i, gw_str *url) {
    int filter, reason;
    int64_t n;
    uint32_t bytes;
    const gw_hash128 *keys = NULL;
    const char *u = gw_column_bytes(&d->url, i, &n);
    gw_str_clear(url);
    gw_str_add_n(url, u, (size_t)n);
    memcpy(&bytes, d->bytes.values + 4 * i, 4);
    verdict(d, i, gw_str_c(url), &filter, &reason);
    if (filter == GW_VERDICT_KEPT) {
        GW_TRY(find_keys(d, i, bytes, &keys));
        GW_TRY(check_text(d, i, bytes));
    }
    gw_verdicts_add(&d->verdicts, filter, reason, bytes);
    return gw_build_keep_put(d->b, d->keep, filter, reason, keys, d->dg);
}

static gw_status decide_all(decider *d) {
    gw_str url = {0};
    gw_status st = GW_OK;
    for (d->block = 0; d->block < gw_columns_blocks(d->docs) && st == GW_OK; d->block++) {
        int64_t rows = gw_columns_block_rows(d->docs, d->block);
        st = read_block(d);
        for (int64_t i = 0; i < rows && st == GW_OK && !d->need_text; i++)
            st = decide_row(d, i, &url);
        d->first += rows;
    }
    gw_str_release(&url);
    return st;
}

static void release(decider *d, int nsignals) {
    gw_column_data *const all[] = {&d->media, &d->bytes, &d->url,        &d->language,
                                   &d->score, &d->text,  &d->old_filter, &d->old_keys};
    for (size_t i = 0; i < GW_COUNT(all); i++) gw_column_data_release(all[i]);
    for (int i = 0; i < nsignals; i++) gw_column_data_release(&d->signals[i]);
    gw_columns_writer_free(d->keep);
    gw_columns_close(d->old);
}

gw_status gw_build_decide(gw_databuild *b, int64_t unit, const gw_columns *docs, bool *need_text,
                          gw_diags *dg) {
    int nsignals = gw_filters_columns(b->filters);
    decider d = {.b = b, .unit = unit, .docs = docs, .dg = dg};
    gw_stages time;
    gw_arena a;
    gw_arena_init(&a);
    gw_stages_begin(&time);
    d.signals = gw_arena_new(&a, gw_column_data, nsignals + 1);
    gw_verdicts_init(&d.verdicts, b, &a);
    d.old = open_old(b, &a, unit, docs);
    gw_status st = gw_build_keep_open(b, unit, &d.keep, dg);
    if (st == GW_OK) st = decide_all(&d);
    gw_stages_mark(&time, GW_STAGE_FILTERS);
    gw_stages_end(&time);
    if (st == GW_OK && !d.need_text)
        st = gw_build_keep_finish(b, d.keep, gw_columns_content(docs), &d.verdicts, &time, dg);
    *need_text = d.need_text;
    release(&d, nsignals);
    gw_arena_release(&a);
    return st;
}
