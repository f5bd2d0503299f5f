// SPDX-License-Identifier: Apache-2.0
// The documents of a unit that are left, in their order.
//
// Verdicts and keys stand in the .keep file, texts in the .docs file, whose blocks end at other
// rows; lists of what dedup has removed come sorted by row. Reading all of these side by side is
// the same for every step of dedup, so it stands here once.
#include <string.h>

#include "data/build/dedup_impl.h" /* this module's contract */

typedef struct walk {
    gw_databuild *b;
    unsigned what;
    int lists;
    gw_columns *docs, *keep;
    gw_column_data filter, keys, text;
    int64_t block, first; /* of docs, in `text` */
    const gw_dedup_removed *gone[GW_GONE_LISTS];
    int64_t ngone[GW_GONE_LISTS], next[GW_GONE_LISTS];
    gw_diags *dg;
} walk;

static gw_status open_all(walk *w, int64_t unit) {
    GW_TRY(gw_build_open_unit(w->b, GW_UNIT_KEEP, unit, &w->keep, w->dg));
    if (w->what & GW_WALK_TEXT)
        GW_TRY(gw_build_open_unit(w->b, GW_UNIT_DOCS, unit, &w->docs, w->dg));
    for (int i = 0; i < w->lists; i++)
        if (w->b->removed[i])
            GW_TRY(gw_dedup_result_unit(w->b->removed[i], (uint32_t)unit, &w->gone[i], &w->ngone[i],
                                        w->dg));
    return GW_OK;
}

static bool goes(walk *w, uint32_t row) {
    bool is = false;
    for (int i = 0; i < w->lists; i++) {
        while (w->next[i] < w->ngone[i] && w->gone[i][w->next[i]].index < row) w->next[i]++;
        is = is || (w->next[i] < w->ngone[i] && w->gone[i][w->next[i]].index == row);
    }
    return is;
}

static gw_status read_text(walk *w, gw_build_row *r) {
    bool turn = w->text.rows == 0;
    while (r->row >= w->first + gw_columns_block_rows(w->docs, w->block)) {
        w->first += gw_columns_block_rows(w->docs, w->block++);
        turn = true;
    }
    if (turn) GW_TRY(gw_columns_read(w->docs, GW_DOCS_TEXT, w->block, &w->text, w->dg));
    r->text = gw_column_bytes(&w->text, r->row - w->first, &r->n);
    return GW_OK;
}

static gw_status visit_rows(walk *w, gw_build_visit *visit, void *user) {
    uint32_t row = 0;
    size_t bytes = (size_t)w->b->nkeys * sizeof *w->b->row_keys;
    for (int64_t k = 0; k < gw_columns_blocks(w->keep); k++) {
        GW_TRY(gw_columns_read(w->keep, GW_KEEP_FILTER, k, &w->filter, w->dg));
        if (w->what & GW_WALK_KEYS)
            GW_TRY(gw_columns_read(w->keep, GW_KEEP_KEYS, k, &w->keys, w->dg));
        for (int64_t i = 0; i < w->filter.rows; i++, row++) {
            gw_build_row r = {.row = row};
            if (w->filter.values[i] != GW_VERDICT_KEPT || goes(w, row)) continue;
            if (w->what & GW_WALK_KEYS) {
                memcpy(w->b->row_keys, w->keys.values + (size_t)i * bytes, bytes);
                r.keys = w->b->row_keys;
            }
            if (w->what & GW_WALK_TEXT) GW_TRY(read_text(w, &r));
            GW_TRY(visit(user, &r, w->dg));
        }
    }
    return GW_OK;
}

gw_status gw_build_walk(gw_databuild *b, int64_t unit, unsigned what, int lists,
                        gw_build_visit *visit, void *user, gw_diags *dg) {
    walk w = {.b = b, .what = what, .lists = lists, .dg = dg};
    gw_status st = open_all(&w, unit);
    if (st == GW_OK) st = visit_rows(&w, visit, user);
    gw_columns_close(w.docs);
    gw_columns_close(w.keep);
    gw_column_data_release(&w.filter);
    gw_column_data_release(&w.keys);
    gw_column_data_release(&w.text);
    return st;
}
