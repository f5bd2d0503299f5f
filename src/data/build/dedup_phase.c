// SPDX-License-Identifier: Apache-2.0
// The dedup phase: keys of all units to lists of what goes.
//
// Two runs of dedup, the second only where parts of texts are compared: documents first, by the
// keys that .keep files hold; then lines, paragraphs or sentences of the documents that stayed. A
// run's tag is a hash of everything its keys come from, so it is done again when any unit's keys
// have changed and found done otherwise. Units write their keys by all workers, bands are sorted by
// all workers, and one process joins them.
#include "data/build/dedup_phase.h" /* this module's contract */

#include <stdio.h>
#include <string.h>

#include "data/build/pool.h" /* gw_pool */

// ------------------------------------------------------------------ keys of documents

gw_status gw_build_keys_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    gw_columns *keep = NULL;
    gw_dedup_unit *u = NULL;
    gw_column_data filter = {0}, keys = {0};
    uint32_t row = 0;
    (void)state;
    if (gw_dedup_unit_done(&b->docs_dedup, (uint32_t)unit)) return GW_OK;
    gw_status st = gw_build_open_unit(b, GW_UNIT_KEEP, unit, &keep, dg);
    if (st == GW_OK) st = gw_dedup_unit_open(&b->docs_dedup, (uint32_t)unit, &u, dg);
    for (int64_t k = 0; st == GW_OK && k < gw_columns_blocks(keep); k++) {
        st = gw_columns_read(keep, GW_KEEP_FILTER, k, &filter, dg);
        if (st == GW_OK) st = gw_columns_read(keep, GW_KEEP_KEYS, k, &keys, dg);
        for (int64_t i = 0; st == GW_OK && i < filter.rows; i++, row++) {
            size_t n = (size_t)b->nkeys * sizeof *b->row_keys;
            if (filter.values[i] != GW_VERDICT_KEPT) continue;
            memcpy(b->row_keys, keys.values + (size_t)i * n, n);
            gw_dedup_unit_add(u, row, b->row_keys);
        }
    }
    if (u && st == GW_OK)
        st = gw_dedup_unit_close(u, dg);
    else if (u)
        gw_dedup_unit_abandon(u);
    gw_column_data_release(&filter);
    gw_column_data_release(&keys);
    gw_columns_close(keep);
    return st;
}

// ------------------------------------------------------------------ spans of documents

typedef struct span_writer {
    gw_databuild *b;
    gw_dedup_unit *u;
    const gw_dedup_removed *removed;
    int64_t nremoved, next;
} span_writer;

static void add_spans(span_writer *w, uint32_t row, const char *text, int64_t n) {
    int64_t count;
    const gw_span *s = gw_spans_cut(w->b->spans, text, n, &count);
    for (int64_t i = 0; i < count; i++)
        gw_dedup_unit_span(w->u, row, s[i].begin, s[i].end, s[i].key);
}

/* Rows come in order, as the list of removed ones does. */
static bool goes(span_writer *w, uint32_t row) {
    while (w->next < w->nremoved && w->removed[w->next].index < row) w->next++;
    return w->next < w->nremoved && w->removed[w->next].index == row;
}

static gw_status span_blocks(span_writer *w, gw_columns *docs, gw_columns *keep, gw_diags *dg) {
    gw_column_data filter = {0}, text = {0};
    int64_t block = 0, first = 0, row = 0, n;
    gw_status st = GW_OK;
    for (int64_t k = 0; st == GW_OK && k < gw_columns_blocks(keep); k++) {
        st = gw_columns_read(keep, GW_KEEP_FILTER, k, &filter, dg);
        for (int64_t i = 0; st == GW_OK && i < filter.rows; i++, row++) {
            if (filter.values[i] != GW_VERDICT_KEPT || goes(w, (uint32_t)row)) continue;
            bool turn = text.rows == 0;
            while (row >= first + gw_columns_block_rows(docs, block)) {
                first += gw_columns_block_rows(docs, block++);
                turn = true;
            }
            if (turn) st = gw_columns_read(docs, GW_DOCS_TEXT, block, &text, dg);
            if (st != GW_OK) break;
            const char *t = gw_column_bytes(&text, row - first, &n);
            add_spans(w, (uint32_t)row, t, n);
        }
    }
    gw_column_data_release(&filter);
    gw_column_data_release(&text);
    return st;
}

gw_status gw_build_spans_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    span_writer w = {.b = b};
    gw_columns *keep = NULL, *docs = NULL;
    (void)state;
    if (gw_dedup_unit_done(&b->spans_dedup, (uint32_t)unit)) return GW_OK;
    gw_status st = gw_build_open_unit(b, GW_UNIT_KEEP, unit, &keep, dg);
    if (st == GW_OK) st = gw_build_open_unit(b, GW_UNIT_DOCS, unit, &docs, dg);
    if (st == GW_OK && b->removed)
        st = gw_dedup_result_unit(b->removed, (uint32_t)unit, &w.removed, &w.nremoved, dg);
    if (st == GW_OK) st = gw_dedup_unit_open(&b->spans_dedup, (uint32_t)unit, &w.u, dg);
    if (st == GW_OK) {
        st = span_blocks(&w, docs, keep, dg);
        if (st == GW_OK)
            st = gw_dedup_unit_close(w.u, dg);
        else
            gw_dedup_unit_abandon(w.u);
    }
    gw_columns_close(docs);
    gw_columns_close(keep);
    return st;
}

// ------------------------------------------------------------------ runs

static gw_status open_removed(void *build, void **state, gw_diags *dg) {
    gw_databuild *b = build;
    *state = NULL;
    if (b->nkeys) GW_TRY(gw_dedup_result_open(&b->docs_dedup, &b->removed, dg));
    return GW_OK;
}

gw_status gw_build_open_results(void *build, void **state, gw_diags *dg) {
    gw_databuild *b = build;
    GW_TRY(open_removed(build, state, dg));
    if (b->spans) GW_TRY(gw_dedup_result_open(&b->spans_dedup, &b->ranges, dg));
    return GW_OK;
}

void gw_build_close_results(void *build, void *state) {
    gw_databuild *b = build;
    (void)state;
    gw_dedup_result_free(b->removed);
    gw_dedup_result_free(b->ranges);
    b->removed = b->ranges = NULL;
}

static gw_status band_task(void *user, void *state, int64_t task, gw_diags *dg) {
    (void)state;
    return gw_dedup_task(user, task, dg);
}

static const char *band_name(void *user, int64_t task) {
    (void)task;
    return ((const gw_dedup_options *)user)->dir;
}

static gw_status run_dedup(gw_databuild *b, gw_dedup_options *o, gw_diags *dg) {
    if (gw_dedup_done(o)) return GW_OK;
    if (b->o->comm) return gw_dedup_run(o, b->o->comm, dg);
    gw_pool p = {.workers = b->workers,
                 .tasks = gw_dedup_tasks(o),
                 .name = band_name,
                 .work = band_task,
                 .user = o,
                 .stop = b->o->stop};
    GW_TRY(gw_pool_run(&p, dg));
    return gw_dedup_cluster(o, dg);
}

/* Contents of all .keep files, and the number of documents that are kept. */
static gw_status all_keeps(const gw_databuild *b, gw_hasher *h, int64_t *kept, gw_diags *dg) {
    *kept = 0;
    for (int64_t i = 0; i < b->units.count; i++) {
        gw_columns *c;
        GW_TRY(gw_build_open_unit(b, GW_UNIT_KEEP, i, &c, dg));
        gw_hash128 content = gw_columns_content(c);
        gw_hasher_add(h, &content, sizeof content);
        *kept += json_integer_value(
            json_object_get(json_object_get(gw_columns_meta(c), "verdicts"), "kept"));
        gw_columns_close(c);
    }
    return GW_OK;
}

static int64_t memory_each(const gw_databuild *b) {
    return GW_MAX((int64_t)GW_DEDUP_MEMORY_MIN, b->p->run.memory / b->workers);
}

/* Tasks that hold some ten million documents each, by the number of documents alone. */
static int parts_for(int64_t kept) {
    int parts = 1;
    while (parts < 256 && kept / parts > 20000000) parts *= 2;
    return parts;
}

static gw_status set_up(gw_databuild *b, gw_diags *dg) {
    gw_hasher *h = gw_hasher_new();
    int64_t kept = 0;
    gw_hasher_add(h, &b->keys_options, sizeof b->keys_options);
    gw_status st = all_keeps(b, h, &kept, dg);
    uint64_t tag = gw_hasher_get(h).lo;
    gw_hasher_free(h);
    int parts = parts_for(kept);
    char spans[64];
    snprintf(spans, sizeof spans, "%d %lld", b->p->dedup.spans, (long long)b->p->dedup.span_bytes);
    b->docs_dedup = (gw_dedup_options){.dir = gw_path_join(b->arena, b->work, "dedup"),
                                       .bands = GW_MAX(1, b->nkeys),
                                       .exact_bands = b->p->dedup.exact ? 1 : 0,
                                       .parts = parts,
                                       .units = b->units.count,
                                       .memory_bytes = memory_each(b),
                                       .tag = tag};
    b->spans_dedup = (gw_dedup_options){.dir = gw_path_join(b->arena, b->work, "spans"),
                                        .spans = true,
                                        .bands = 1,
                                        .parts = parts,
                                        .units = b->units.count,
                                        .memory_bytes = memory_each(b),
                                        .tag = gw_hash64(spans, strlen(spans), tag)};
    return st;
}

static gw_status over_units(gw_databuild *b, gw_pool_task *work, bool results, gw_diags *dg) {
    gw_pool p = {.workers = b->workers,
                 .tasks = b->units.count,
                 .name = gw_build_unit_name,
                 .begin = results ? open_removed : NULL,
                 .end = results ? gw_build_close_results : NULL,
                 .work = work,
                 .user = b,
                 .stop = b->o->stop,
                 .comm = b->o->comm};
    return gw_pool_run(&p, dg);
}

gw_status gw_build_dedup(gw_databuild *b, gw_diags *dg) {
    GW_TRY(set_up(b, dg));
    if (b->nkeys) {
        GW_TRY(gw_dedup_check(&b->docs_dedup, dg));
        if (!gw_dedup_done(&b->docs_dedup)) GW_TRY(over_units(b, gw_build_keys_unit, false, dg));
        GW_TRY(run_dedup(b, &b->docs_dedup, dg));
    }
    if (!b->spans) return GW_OK;
    GW_TRY(gw_dedup_check(&b->spans_dedup, dg));
    if (!gw_dedup_done(&b->spans_dedup)) GW_TRY(over_units(b, gw_build_spans_unit, true, dg));
    return run_dedup(b, &b->spans_dedup, dg);
}
