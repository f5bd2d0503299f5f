// SPDX-License-Identifier: Apache-2.0
// What dedup took, as people want to see it: how large clusters are, the largest ones, and pairs of
// a document that went and the one that stayed.
//
// A threshold that is too low shows in pairs that nobody would call alike, boilerplate that
// swallows documents in one enormous cluster. Sizes are counted by sorting the survivors of all
// documents that went, on disk where they are many.
#include <stdlib.h> /* qsort */
#include <string.h>

#include "data/build/report_impl.h" /* this module's contract */
#include "data/dedup/records.h"     /* gw_sorter */
#include "file/json.h"              /* gw_json_text_n */

enum { SHOWN_BYTES = 300, LARGEST = 8, SIZES = 40, SORT_BYTES = 32 << 20 };

// ------------------------------------------------------------------ a row

/* The end of the last whole character within `most` bytes. */
static int64_t whole_characters(const char *t, int64_t n, int64_t most) {
    if (n <= most) return n;
    while (most > 0 && ((unsigned char)t[most] & 0xc0u) == 0x80u) most--;
    return most;
}

void gw_build_show_row(gw_row_view *v, int64_t unit, int64_t row, json_t *o) {
    json_object_set_new(o, "unit", json_integer(unit));
    json_object_set_new(o, "row", json_integer(row));
    json_object_set_new(o, "url", json_null()); /* their places, for the order of keys */
    json_object_set_new(o, "text", json_null());
    gw_vec_push(&v->rows, ((gw_shown_row){unit, row, o}));
}

static int by_place(const void *a, const void *b) {
    const gw_shown_row *x = a, *y = b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Fills the rows of one unit, which are in order. */
static gw_status read_unit(const gw_databuild *b, gw_column_data *url, gw_column_data *text,
                           const gw_shown_row *rows, int64_t count, gw_diags *dg) {
    gw_columns *docs;
    int64_t block = 0, first = 0, held = -1;
    GW_TRY(gw_build_open_unit(b, GW_UNIT_DOCS, rows->unit, &docs, dg));
    gw_status st = GW_OK;
    for (int64_t i = 0; st == GW_OK && i < count; i++) {
        int64_t row = rows[i].row, n;
        while (row >= first + gw_columns_block_rows(docs, block))
            first += gw_columns_block_rows(docs, block++);
        if (held != block) st = gw_columns_read(docs, GW_DOCS_URL, block, url, dg);
        if (st == GW_OK && held != block) st = gw_columns_read(docs, GW_DOCS_TEXT, block, text, dg);
        if (st != GW_OK) break;
        held = block;
        const char *p = gw_column_bytes(url, row - first, &n);
        json_object_set_new(rows[i].o, "url", gw_json_text_n(p, (size_t)n));
        p = gw_column_bytes(text, row - first, &n);
        n = whole_characters(p, n, SHOWN_BYTES);
        json_object_set_new(rows[i].o, "text", gw_json_text_n(p, (size_t)n));
    }
    gw_columns_close(docs);
    return st;
}

gw_status gw_row_view_read(gw_row_view *v, gw_diags *dg) {
    gw_shown_row *r = v->rows.items;
    gw_column_data url = {0}, text = {0};
    gw_status st = GW_OK;
    if (v->rows.count) qsort(r, (size_t)v->rows.count, sizeof *r, by_place);
    for (int64_t from = 0, to; st == GW_OK && from < v->rows.count; from = to) {
        for (to = from + 1; to < v->rows.count && r[to].unit == r[from].unit;) to++;
        st = read_unit(v->b, &url, &text, r + from, to - from, dg);
    }
    gw_column_data_release(&url);
    gw_column_data_release(&text);
    return st;
}

void gw_row_view_release(gw_row_view *v) { gw_vec_release(&v->rows); }

// ------------------------------------------------------------------ sizes

typedef struct cluster {
    gw_doc_id survivor;
    int64_t size; /* the survivor included */
} cluster;

typedef struct pair {
    uint64_t rank;
    gw_doc_id gone;
    const char *why;
    gw_doc_id survivor;
} pair;

typedef struct clusters {
    gw_databuild *b;
    gw_row_view *view;
    gw_sorter *survivors;                   /* (unit << 32 | index) */
    int64_t count[SIZES], documents[SIZES]; /* by the binary logarithm of the size */
    cluster largest[LARGEST];
    int nlargest;
    pair *pairs;
    int64_t npairs, most;
} clusters;

static void add_cluster(clusters *c, uint64_t survivor, int64_t size) {
    int k = 63 - __builtin_clzll((uint64_t)size);
    c->count[k]++;
    c->documents[k] += size;
    int at = c->nlargest < LARGEST ? c->nlargest++ : LARGEST;
    cluster x = {{(uint32_t)(survivor >> 32), (uint32_t)survivor}, size};
    while (at > 0 && c->largest[at - 1].size < size) {
        if (at < LARGEST) c->largest[at] = c->largest[at - 1];
        at--;
    }
    if (at < LARGEST) c->largest[at] = x;
}

/* Keeps the pairs of smallest rank, in order. */
static void offer(clusters *c, pair p) {
    if (c->most == 0 || (c->npairs == c->most && p.rank >= c->pairs[c->npairs - 1].rank)) return;
    int64_t at = c->npairs < c->most ? c->npairs++ : c->npairs - 1;
    for (; at > 0 && c->pairs[at - 1].rank > p.rank; at--) c->pairs[at] = c->pairs[at - 1];
    c->pairs[at] = p;
}

static gw_status take(clusters *c, int64_t unit, const gw_dedup_removed *r, gw_diags *dg) {
    int64_t id[4] = {c->b->p->seed, unit, r->index, 1};
    uint64_t survivor[2] = {(uint64_t)r->survivor.unit << 32 | r->survivor.index, 0};
    if (r->why != GW_DEDUP_NEAR && r->why != GW_DEDUP_EXACT) return GW_OK;
    offer(c, (pair){gw_hash64(id, sizeof id, 0),
                    {(uint32_t)unit, r->index},
                    r->why == GW_DEDUP_NEAR ? "nearly equal" : "equal",
                    r->survivor});
    return gw_sorter_add(c->survivors, survivor, dg);
}

static gw_status read_all(clusters *c, gw_diags *dg) {
    gw_dedup_result *r = NULL;
    GW_TRY(gw_dedup_result_open(&c->b->docs_dedup, &r, dg));
    gw_status st = GW_OK;
    for (int64_t u = 0; st == GW_OK && u < c->b->units.count; u++) {
        const gw_dedup_removed *list;
        int64_t n = 0;
        st = gw_dedup_result_unit(r, (uint32_t)u, &list, &n, dg);
        for (int64_t i = 0; st == GW_OK && i < n; i++) st = take(c, u, &list[i], dg);
    }
    gw_dedup_result_free(r);
    return st;
}

static gw_status count_sizes(clusters *c, gw_diags *dg) {
    const uint64_t *r;
    uint64_t last = 0;
    int64_t size = 0;
    GW_TRY(gw_sorter_sort(c->survivors, dg));
    for (;;) {
        GW_TRY(gw_sorter_next(c->survivors, &r, dg));
        if (size && (!r || r[0] != last)) {
            add_cluster(c, last, size + 1);
            size = 0;
        }
        if (!r) return GW_OK;
        last = r[0];
        size++;
    }
}

// ------------------------------------------------------------------ as JSON

static void largest_json(const clusters *c, json_t *list) {
    for (int i = 0; i < c->nlargest; i++) {
        json_t *o = json_pack("{s:I}", "documents", (json_int_t)c->largest[i].size);
        json_array_append_new(list, o);
        gw_build_show_row(c->view, c->largest[i].survivor.unit, c->largest[i].survivor.index, o);
    }
}

static void pairs_json(const clusters *c, json_t *list) {
    for (int64_t i = 0; i < c->npairs; i++) {
        const pair *p = &c->pairs[i];
        json_t *gone = json_object(), *stays = json_object();
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:o}", "why", p->why, "gone", gone, "stays", stays));
        gw_build_show_row(c->view, p->gone.unit, p->gone.index, gone);
        gw_build_show_row(c->view, p->survivor.unit, p->survivor.index, stays);
    }
}

static json_t *sizes_json(const clusters *c) {
    json_t *list = json_array();
    for (int k = 0; k < SIZES; k++)
        if (c->count[k])
            json_array_append_new(
                list, json_pack("{s:I, s:I, s:I, s:I}", "from", (json_int_t)1 << k, "to",
                                ((json_int_t)2 << k) - 1, "clusters", (json_int_t)c->count[k],
                                "documents", (json_int_t)c->documents[k]));
    return list;
}

gw_status gw_build_clusters(gw_databuild *b, gw_row_view *v, json_t **out, gw_diags *dg) {
    clusters c = {.b = b, .view = v, .most = b->p->samples};
    *out = NULL;
    if (b->nkeys == 0) return GW_OK;
    c.pairs = gw_arena_new(b->arena, pair, c.most + 1);
    c.survivors = gw_sorter_new(b->docs_dedup.dir, 2, SORT_BYTES);
    gw_status st = read_all(&c, dg);
    if (st == GW_OK) st = count_sizes(&c, dg);
    gw_sorter_free(c.survivors);
    GW_TRY(st);
    json_t *largest = json_array(), *pairs = json_array();
    largest_json(&c, largest);
    pairs_json(&c, pairs);
    *out =
        json_pack("{s:o, s:o, s:o}", "sizes", sizes_json(&c), "largest", largest, "pairs", pairs);
    return GW_OK;
}
