// SPDX-License-Identifier: Apache-2.0
// Packing documents into rows.
//
// Contiguous rows are arithmetic and a binary search in the running sum of lengths; rows of single
// documents need the list of those that are not empty; best fit needs the whole plan of a block.
//
// Best fit, decreasing. Pieces of a full row are rows of their own. The others are taken from the
// longest to the shortest, equal ones in the order of the documents (a counting sort), and each
// goes into the open row with the least room that still holds it. Rows are kept in stacks by their
// room; a tree of bits over 0 .. s finds the least room that is at least so much in a few steps of
// 64. A plan so costs about a dozen operations a piece whatever the sizes, and is the same on every
// machine.
#include "data/pack.h" /* this module's contract */

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_MIN */

int64_t gw_pack_rows_contiguous(int64_t tokens, int64_t s) {
    int64_t n = tokens - 1;
    if (tokens <= 0) return 0;
    return GW_MAX(INT64_C(1), n / s + (n % s != 0));
}

static int64_t begin_of(const int64_t *ends, int64_t d) { return d > 0 ? ends[d - 1] : 0; }

/* Documents whose end is at or before `at`: the index of the one that holds it. */
static int64_t doc_at(const int64_t *ends, int64_t docs, int64_t at) {
    int64_t lo = 0, hi = docs;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (ends[mid] <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- best fit ---- */

/* Which rooms have an open row: bits in levels, each bit of a level standing for 64 of the one
 * below. */
enum { LEVELS = 6 };
typedef struct bits {
    uint64_t *level[LEVELS];
    int64_t words[LEVELS];
    int levels;
} bits;

static void bits_init(bits *b, int64_t n) {
    b->levels = 0;
    for (int64_t words = n / 64 + 1;; words = (words - 1) / 64 + 1) {
        b->words[b->levels] = words;
        b->level[b->levels++] = gw_mem_zalloc((size_t)words * sizeof(uint64_t));
        if (words == 1 || b->levels == LEVELS) return;
    }
}

static void bits_release(bits *b) {
    for (int i = 0; i < b->levels; i++) gw_mem_free(b->level[i]);
}

static void bits_set(bits *b, int64_t i) {
    for (int k = 0; k < b->levels; k++, i /= 64) b->level[k][i / 64] |= UINT64_C(1) << (i % 64);
}

static void bits_clear(bits *b, int64_t i) {
    for (int k = 0; k < b->levels; k++, i /= 64) {
        b->level[k][i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (b->level[k][i / 64]) return;
    }
}

/* The least set bit at or above i, or -1. */
static int64_t bits_from(const bits *b, int64_t i) {
    for (int k = 0; k < b->levels && i / 64 < b->words[k]; k++, i = i / 64 + 1) {
        uint64_t w = b->level[k][i / 64] & (~UINT64_C(0) << (i % 64));
        if (!w) continue;
        i = i / 64 * 64 + __builtin_ctzll(w);
        while (k-- > 0) i = i * 64 + __builtin_ctzll(b->level[k][i]);
        return i;
    }
    return -1;
}

typedef struct plan {
    int64_t s, rows, npieces;
    bits open;
    int64_t *head;    /* [s + 1] the latest open row with that room; -1 */
    int64_t *next;    /* [rows] the one before it */
    int64_t *row_of;  /* [pieces] */
    int64_t *size_at; /* [s + 1] counting sort */
} plan;

static void open_row(plan *p, int64_t row, int64_t room) {
    if (room == 0) return;
    p->next[row] = p->head[room];
    p->head[room] = row;
    if (p->next[row] < 0) bits_set(&p->open, room);
}

static int64_t take_row(plan *p, int64_t room) {
    int64_t row = p->head[room];
    p->head[room] = p->next[row];
    if (p->head[room] < 0) bits_clear(&p->open, room);
    return row;
}

static int64_t pairs_of(const int64_t *ends, int64_t d) {
    int64_t n = ends[d] - begin_of(ends, d);
    return n > 1 ? n - 1 : 0;
}

static int64_t count_pieces(const int64_t *ends, int64_t docs, int64_t s) {
    int64_t n = 0;
    for (int64_t d = 0; d < docs; d++) {
        int64_t pairs = pairs_of(ends, d);
        n += pairs / s + (pairs % s != 0);
    }
    return n;
}

/* Pieces from the longest to the shortest. */
static gw_stretch *sorted_pieces(const int64_t *ends, int64_t docs, int64_t s, int64_t n,
                                 int64_t *size_at) {
    gw_stretch *out = gw_mem_alloc((size_t)(n + 1) * sizeof *out);
    memset(size_at, 0, (size_t)(s + 1) * sizeof *size_at);
    for (int64_t d = 0; d < docs; d++) {
        int64_t pairs = pairs_of(ends, d);
        size_at[s] += pairs / s;
        if (pairs % s) size_at[pairs % s]++;
    }
    int64_t at = 0;
    for (int64_t k = s; k > 0; k--) {
        int64_t count = size_at[k];
        size_at[k] = at;
        at += count;
    }
    for (int64_t d = 0; d < docs; d++) {
        int64_t begin = begin_of(ends, d), pairs = pairs_of(ends, d);
        for (int64_t done = 0; done < pairs;) {
            int64_t k = GW_MIN(pairs - done, s);
            out[size_at[k]++] = (gw_stretch){begin + done, (int32_t)k, 1};
            done += k;
        }
    }
    return out;
}

static gw_stretch *make_plan(plan *p, int64_t s, const int64_t *ends, int64_t docs) {
    int64_t n = p->npieces = count_pieces(ends, docs, s);
    p->s = s;
    p->rows = 0;
    p->head = gw_mem_alloc((size_t)(s + 1) * sizeof(int64_t));
    p->size_at = gw_mem_alloc((size_t)(s + 1) * sizeof(int64_t));
    p->next = gw_mem_alloc((size_t)(n + 1) * sizeof(int64_t));
    p->row_of = gw_mem_alloc((size_t)(n + 1) * sizeof(int64_t));
    memset(p->head, 0xff, (size_t)(s + 1) * sizeof(int64_t));
    bits_init(&p->open, s);
    gw_stretch *pieces = sorted_pieces(ends, docs, s, n, p->size_at);
    for (int64_t i = 0; i < n; i++) {
        int64_t room = bits_from(&p->open, pieces[i].n);
        int64_t row = room < 0 ? p->rows++ : take_row(p, room);
        p->row_of[i] = row;
        open_row(p, row, (room < 0 ? s : room) - pieces[i].n);
    }
    return pieces;
}

static void drop_plan(plan *p) {
    bits_release(&p->open);
    gw_mem_free(p->head);
    gw_mem_free(p->next);
    gw_mem_free(p->row_of);
    gw_mem_free(p->size_at);
}

static void init_best_fit(gw_pack *p) {
    plan made;
    gw_stretch *sorted = make_plan(&made, p->seq_len, p->ends, p->docs);
    int64_t n = made.npieces;
    p->rows = made.rows;
    p->first = gw_mem_zalloc((size_t)(p->rows + 2) * sizeof *p->first);
    p->pieces = gw_mem_alloc((size_t)(n + 1) * sizeof *p->pieces);
    for (int64_t i = 0; i < n; i++) p->first[made.row_of[i] + 2]++;
    for (int64_t r = 0; r < p->rows; r++) p->first[r + 2] += p->first[r + 1];
    for (int64_t i = 0; i < n; i++) p->pieces[p->first[made.row_of[i] + 1]++] = sorted[i];
    gw_mem_free(sorted);
    drop_plan(&made);
}

/* ---- all three ---- */

static int64_t count_present(const int64_t *ends, int64_t docs) {
    int64_t n = 0;
    for (int64_t d = 0; d < docs; d++) n += ends[d] > begin_of(ends, d);
    return n;
}

int64_t gw_pack_rows(gw_packing how, int64_t s, const int64_t *ends, int64_t docs) {
    plan p;
    switch (how) {
    case GW_PACK_CONTIGUOUS: return gw_pack_rows_contiguous(docs ? ends[docs - 1] : 0, s);
    case GW_PACK_DOCUMENT: return count_present(ends, docs);
    case GW_PACK_BEST_FIT:
        gw_mem_free(make_plan(&p, s, ends, docs));
        drop_plan(&p);
        return p.rows;
    }
    return 0;
}

void gw_pack_init(gw_pack *p, gw_packing how, int64_t s, const int64_t *ends, int64_t docs) {
    *p = (gw_pack){.how = how, .seq_len = s, .docs = docs, .ends = ends};
    switch (how) {
    case GW_PACK_CONTIGUOUS:
        p->rows = gw_pack_rows_contiguous(docs ? ends[docs - 1] : 0, s);
        return;
    case GW_PACK_BEST_FIT: init_best_fit(p); return;
    case GW_PACK_DOCUMENT:
        p->first = gw_mem_alloc((size_t)(docs + 1) * sizeof *p->first);
        for (int64_t d = 0; d < docs; d++)
            if (ends[d] > begin_of(ends, d)) p->first[p->rows++] = d;
        return;
    }
}

void gw_pack_release(gw_pack *p) {
    gw_mem_free(p->first);
    gw_mem_free(p->pieces);
    *p = (gw_pack){0};
}

gw_pack_cursor gw_pack_row(const gw_pack *p, int64_t row) {
    gw_pack_cursor c = {.pack = p, .row = row};
    switch (p->how) {
    case GW_PACK_CONTIGUOUS:
        c.at = row * p->seq_len;
        c.end = GW_MIN(c.at + p->seq_len, p->ends[p->docs - 1]);
        c.doc = doc_at(p->ends, p->docs, c.at);
        break;
    case GW_PACK_BEST_FIT:
        c.next = p->first[row];
        c.end = p->first[row + 1];
        break;
    case GW_PACK_DOCUMENT:
        c.doc = p->first[row];
        c.at = begin_of(p->ends, c.doc);
        c.end = GW_MIN(c.at + p->seq_len, p->ends[c.doc]);
        break;
    }
    return c;
}

int gw_pack_next(gw_pack_cursor *c, gw_stretch *out) {
    const gw_pack *p = c->pack;
    if (p->how == GW_PACK_BEST_FIT) {
        if (c->next >= c->end) return 0;
        *out = p->pieces[c->next++];
        return 1;
    }
    if (c->at >= c->end) return 0;
    while (p->ends[c->doc] <= c->at) c->doc++;
    int64_t stop = GW_MIN(p->ends[c->doc], c->end);
    *out = (gw_stretch){c->at, (int32_t)(stop - c->at), stop < p->ends[c->doc]};
    c->at = stop;
    return 1;
}

int64_t gw_pack_inputs(const gw_pack *p, int64_t row) {
    gw_pack_cursor c = gw_pack_row(p, row);
    int64_t n = 0;
    if (p->how != GW_PACK_BEST_FIT) return c.end - c.at;
    for (gw_stretch e; gw_pack_next(&c, &e);) n += e.n;
    return n;
}

/* Every piece has a label for each input but, where its document ends with it, the last. */
int64_t gw_pack_valid(const gw_pack *p, int64_t row) {
    gw_pack_cursor c = gw_pack_row(p, row);
    int64_t n = 0;
    for (gw_stretch e; gw_pack_next(&c, &e);) n += e.n - (e.goes_on ? 0 : 1);
    return n;
}

int gw_pack_follows(const gw_pack *p, int64_t row, int64_t *at) {
    if (p->how != GW_PACK_CONTIGUOUS) return 0;
    *at = GW_MIN((row + 1) * p->seq_len, p->ends[p->docs - 1]);
    return *at < p->ends[p->docs - 1];
}
