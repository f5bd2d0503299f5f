// SPDX-License-Identifier: Apache-2.0
// The order of blocks: rows of one source from a window of blocks at a time.
//
// When the set is opened the rows of every block are counted: of contiguous rows from its tokens,
// otherwise from the lengths of its documents. After that a block is packed when it comes in, the
// same way each time.
//
// Blocks are wanted a window ahead. As soon as a row of one window is asked for, all blocks of the
// next are on their way, and in the course of the window they are taken in one after another, each
// when its share of the window's rows has been read: so checking and decompressing them is spread
// evenly instead of stopping the loader at each window's beginning. At most three windows of blocks
// are in; of more the longest unused goes.
//
// A block that is damaged at its source is quarantined: from then on its rows are rows of the next
// block that is whole, in the order of the set, row r that block's row r modulo its number. So what
// a run reads in its place does not depend on ranks or on time, and the run goes on; a line in the
// log and a count tell of it. A source that cannot be reached is no damage, but an error.
#include <string.h>

#include "base/arena.h"       /* gw_mem_alloc */
#include "base/compiler.h"    /* GW_MIN */
#include "base/log.h"         /* gw_log_warn */
#include "data/stream_impl.h" /* gw_stream */

enum { WINDOWS_HELD = 3 };

/* ---- opening ---- */

static gw_status rows_by_lengths(gw_stream *t, int64_t b, int64_t *rows, gw_diags *dg) {
    const int64_t *ends;
    int64_t docs;
    GW_TRY(gw_shards_lengths(t->s, b, &ends, &docs, dg));
    *rows = gw_pack_rows(t->opt.packing, t->opt.seq_len, ends, docs);
    t->ntokens += docs ? ends[docs - 1] : 0;
    gw_shards_drop(t->s, b);
    return GW_OK;
}

static gw_status count_rows(gw_stream *t, int64_t b, int64_t *rows, gw_diags *dg) {
    int64_t tokens;
    bool mds = strcmp(gw_shards_format(t->s), "mds") == 0;
    if (t->opt.packing == GW_PACK_DOCUMENT && mds) { /* a sample a row, as the index counts them */
        *rows = gw_shards_block_docs(t->s, b);
        return GW_OK;
    }
    if (t->opt.packing != GW_PACK_CONTIGUOUS) return rows_by_lengths(t, b, rows, dg);
    GW_TRY(gw_shards_measure(t->s, b, &tokens, dg));
    t->ntokens += tokens;
    *rows = gw_pack_rows_contiguous(tokens, t->opt.seq_len);
    return GW_OK;
}

gw_status gw_stream_open_blocks(gw_stream *t, gw_diags *dg) {
    int64_t n = gw_shards_blocks(t->s), w = GW_MIN(t->opt.window, GW_MAX(n, INT64_C(1)));
    t->ndocs = gw_shards_documents(t->s);
    t->rows_of = gw_mem_zalloc((size_t)(n + 1) * sizeof *t->rows_of);
    for (int64_t b = 0; b < n; b++) {
        GW_TRY(count_rows(t, b, &t->rows_of[b], dg));
        t->nrows += t->rows_of[b];
    }
    if (t->nrows == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "data-empty", (gw_where){.file = gw_shards_name(t->s)},
                          t->opt.packing == GW_PACK_BEST_FIT
                              ? "no document of the set has two tokens"
                              : "the data set has no tokens");
    t->blocks = gw_mem_zalloc((size_t)n * sizeof *t->blocks);
    for (int64_t b = 0; b < n; b++) t->blocks[b] = (gw_row_block){.window = -1, .stands_in = b};
    t->room = WINDOWS_HELD * w;
    t->in = gw_mem_alloc((size_t)(t->room + 1) * sizeof *t->in);
    t->ahead = gw_mem_alloc((size_t)w * sizeof *t->ahead);
    t->ahead_window = -1;
    t->order = gw_order_new(t->rows_of, n, t->opt.seed, w, t->opt.shuffle);
    return GW_OK;
}

/* ---- what is in ---- */

static void put_out(gw_stream *t, int64_t i) {
    int64_t b = t->in[i];
    gw_pack_release(&t->blocks[b].pack);
    t->blocks[b].window = -1;
    gw_shards_drop(t->s, b);
    t->in[i] = t->in[--t->nin];
}

static void put_oldest_out(gw_stream *t, int64_t but) {
    int64_t oldest = -1;
    for (int64_t i = 0; i < t->nin; i++)
        if (t->in[i] != but &&
            (oldest < 0 || t->blocks[t->in[i]].window < t->blocks[t->in[oldest]].window))
            oldest = i;
    if (oldest >= 0) put_out(t, oldest);
}

static gw_status bring_in(gw_stream *t, int64_t b, int64_t window, gw_diags *dg) {
    gw_row_block *k = &t->blocks[b];
    const int64_t *ends;
    int64_t docs;
    if (k->window < 0) {
        if (t->nin == t->room) put_oldest_out(t, b);
        GW_TRY(gw_shards_take(t->s, b, &ends, &docs, dg));
        gw_pack_init(&k->pack, t->opt.packing, t->opt.seq_len, ends, docs);
        if (k->pack.rows != t->rows_of[b]) {
            int64_t rows = k->pack.rows;
            gw_pack_release(&k->pack);
            gw_shards_drop(t->s, b);
            return gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged",
                              (gw_where){.file = gw_shards_name(t->s)},
                              "block %lld has %lld rows; %lld were counted when it was opened",
                              (long long)b, (long long)rows, (long long)t->rows_of[b]);
        }
        t->in[t->nin++] = b;
    }
    k->window = GW_MAX(k->window, window);
    return GW_OK;
}

/* The next block with rows whose turn it is to stand in; b itself where there is no other. */
static int64_t next_block(const gw_stream *t, int64_t b) {
    int64_t n = gw_shards_blocks(t->s), k = b;
    do k = (k + 1) % n;
    while (k != b && t->rows_of[k] == 0);
    return k;
}

/* What stands in for block k as far as is known. */
static int64_t stand_in(const gw_stream *t, int64_t k) {
    while (t->blocks[k].stands_in != k) k = t->blocks[k].stands_in;
    return k;
}

/* Block b, or what stands in for it, is in: *is. */
static gw_status have(gw_stream *t, int64_t b, int64_t window, int64_t *is, gw_diags *dg) {
    for (int64_t k = stand_in(t, b);;) {
        gw_diags faults;
        gw_diags_init(&faults);
        gw_status st = bring_in(t, k, window, &faults);
        int64_t other = stand_in(t, next_block(t, k));
        bool damaged = st == GW_ERR_FORMAT && other != k;
        *is = k;
        if (damaged) {
            gw_log_warn("%s: block %lld is damaged at its source (%s); it is quarantined, and rows "
                        "of block %lld are read in its place",
                        gw_shards_name(t->s), (long long)k, gw_diags_first_error(&faults),
                        (long long)other);
            t->blocks[k].stands_in = other;
            t->quarantined++;
            k = other;
        } else {
            gw_diags_take(dg, &faults);
        }
        gw_diags_release(&faults);
        if (!damaged) return st;
    }
}

/* ---- ahead ---- */

/* All blocks of a window are on their way: t->ahead[0 .. return). */
static int64_t want_window(gw_stream *t, int64_t epoch, int64_t window) {
    int64_t n = gw_order_blocks(t->order, epoch, window, t->ahead);
    for (int64_t i = 0; i < n; i++)
        if (t->blocks[t->ahead[i]].window < 0) (void)!gw_shards_want(t->s, t->ahead[i], NULL);
    return n;
}

static void look_ahead(gw_stream *t, const gw_order_place *p, int64_t window) {
    if (t->ahead_window <= window || t->ahead_window > window + 2) {
        (void)want_window(t, p->epoch, p->window);
        t->ahead_count = 0;
        if (gw_order_windows(t->order) > 1)
            t->ahead_count = want_window(t, p->epoch, p->window + 1);
        t->ahead_window = window + 1;
        t->ahead_done = 0;
    }
    if (t->ahead_window != window + 1) return;
    while (t->ahead_done < t->ahead_count &&
           p->done * (double)t->ahead_count >= (double)t->ahead_done + 0.5) {
        int64_t b = t->ahead[t->ahead_done];
        if (!gw_shards_ready(t->s, b)) return;
        /* What fails now is found again, and told, when it is needed. */
        (void)!bring_in(t, b, window + 1, NULL);
        t->ahead_done++;
    }
}

void gw_stream_pass(gw_stream *t, int64_t j) {
    if (t->by_documents) return;
    gw_order_place p = gw_order_at(t->order, j);
    int64_t window = p.epoch * gw_order_windows(t->order) + p.window;
    for (int64_t i = t->nin; i-- > 0;)
        if (t->blocks[t->in[i]].window < window) put_out(t, i);
}

/* The block that holds row j is in; *row of it. */
static gw_status reach(gw_stream *t, int64_t j, int64_t *block, int64_t *row, gw_diags *dg) {
    gw_order_place p = gw_order_at(t->order, j);
    int64_t window = p.epoch * gw_order_windows(t->order) + p.window;
    look_ahead(t, &p, window);
    GW_TRY(have(t, p.block, window, block, dg));
    *row = *block == p.block ? p.row : p.row % t->rows_of[*block];
    return GW_OK;
}

/* ---- rows ---- */

/* Is there a label after a piece? In its document, or the first of the next where those count. */
static bool has_next(const gw_stream *t, const gw_pack *p, const gw_stretch *e) {
    if (e->goes_on) return true;
    bool joins = p->how == GW_PACK_CONTIGUOUS && !t->opt.mask_first;
    return joins && e->at + e->n < p->ends[p->docs - 1];
}

gw_status gw_stream_row_blocks(gw_stream *t, int64_t j, gw_sample *out, gw_diags *dg) {
    int64_t b, row;
    gw_row_fill f;
    gw_stretch e;
    GW_TRY(reach(t, j, &b, &row, dg));
    const gw_pack *p = &t->blocks[b].pack;
    bool at_once = p->how == GW_PACK_CONTIGUOUS; /* one stretch of the block */
    gw_row_begin(&f, t, out);
    if (at_once)
        GW_TRY(gw_shards_read(t->s, b, row * p->seq_len, gw_pack_inputs(p, row), out->tokens, dg));
    for (gw_pack_cursor c = gw_pack_row(p, row); gw_pack_next(&c, &e);) {
        int32_t next = -1;
        if (!at_once) GW_TRY(gw_shards_read(t->s, b, e.at, e.n, out->tokens + f.n, dg));
        if (has_next(t, p, &e)) GW_TRY(gw_shards_read(t->s, b, e.at + e.n, 1, &next, dg));
        gw_row_add(&f, e.n, next);
    }
    gw_row_end(&f);
    return GW_OK;
}

gw_status gw_stream_count_blocks(gw_stream *t, int64_t j, int64_t *valid, int64_t *inputs,
                                 gw_diags *dg) {
    int64_t b, row, at;
    GW_TRY(reach(t, j, &b, &row, dg));
    const gw_pack *p = &t->blocks[b].pack;
    *inputs = gw_pack_inputs(p, row);
    if (t->opt.mask_first || p->how != GW_PACK_CONTIGUOUS)
        *valid = gw_pack_valid(p, row);
    else
        *valid = *inputs - !gw_pack_follows(p, row, &at);
    return GW_OK;
}
