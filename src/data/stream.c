// SPDX-License-Identifier: Apache-2.0
// The rows of one source: what both orders share, and the order of documents.
//
// The order of documents in an epoch is a keyed bijection, so it needs no table; what needs one is
// the position of each document in the packed stream: the running sum of lengths in that order,
// from which a binary search finds the document at any token. Two such tables are kept, for even
// and odd epochs, since a batch may end one epoch and begin the next; a table is rebuilt in place
// when its epoch changes. A set that is not shuffled has one table for all epochs.
//
// Documents without tokens are left out at open: they have no place in a stream. Rows know
// documents by the order in which they appear in the row, which is all that attention needs.
// Positions start at 0 at the row's start too: a row sees nothing of the document before it.
//
// A document whose bytes are not those that were written (data/shards_sums.h) is replaced by the
// next whole one, token i by that one's token i modulo its length: rows, labels and counts stay as
// they are planned, on any number of ranks.
//
// What must hold: a row depends only on (data, options, its number); every label of an epoch has a
// different target token; counts agree with the labels that rows mask.
#include <string.h>

#include "base/arena.h"       /* gw_mem_alloc */
#include "base/compiler.h"    /* GW_MIN */
#include "base/log.h"         /* gw_log_warn */
#include "data/stream_impl.h" /* gw_stream */

/* ---- filling a row ---- */

void gw_row_begin(gw_row_fill *f, const gw_stream *t, gw_sample *out) {
    *f = (gw_row_fill){.t = t, .out = out};
    out->valid = 0;
    out->padded = 0;
}

void gw_row_add(gw_row_fill *f, int64_t count, int32_t next) {
    gw_sample *o = f->out;
    int64_t from = f->n;
    if (count <= 0) return;
    memcpy(o->labels + from, o->tokens + from + 1, (size_t)(count - 1) * sizeof *o->labels);
    o->labels[from + count - 1] = next < 0 ? GW_LABEL_MASKED : next;
    for (int64_t i = 0; i < count; i++) o->positions[from + i] = (int32_t)i;
    for (int64_t i = 0; i < count; i++) o->docs[from + i] = f->doc;
    o->valid += count - (next < 0);
    f->n += count;
    f->doc++;
}

void gw_row_end(gw_row_fill *f) {
    gw_sample *o = f->out;
    int64_t s = f->t->opt.seq_len;
    for (int64_t i = f->n; i < s; i++) {
        o->tokens[i] = f->t->opt.pad_token;
        o->labels[i] = GW_LABEL_MASKED;
        o->positions[i] = (int32_t)(i - f->n);
        o->docs[i] = f->doc;
    }
    o->padded = s - f->n;
}

/* ---- opening ---- */

static gw_status refuse_order(const gw_stream *t, gw_diags *dg) {
    bool best = t->opt.packing == GW_PACK_BEST_FIT;
    gw_diag *g = gw_diag_add(
        dg, GW_ERROR, GW_ERR_CONFIG, "data-order", (gw_where){.file = gw_shards_name(t->s)},
        best ? "best-fit rows are made block by block, not of all documents shuffled"
             : "shuffling all documents needs to reach each at any time: this set is %s",
        best ? "" : "read a block at a time");
    gw_diag_hint(dg, g, "set data.shuffle to blocks");
    return GW_ERR_CONFIG;
}

static gw_status prepare(gw_stream *t, gw_diags *dg) {
    bool can = gw_shards_has_documents(t->s) && t->opt.packing != GW_PACK_BEST_FIT;
    t->by_documents = t->opt.order == GW_ORDER_DOCUMENTS || (t->opt.order == GW_ORDER_AUTO && can);
    if (t->by_documents && !can) return refuse_order(t, dg);
    GW_TRY(t->by_documents ? gw_stream_open_documents(t, dg) : gw_stream_open_blocks(t, dg));
    return GW_OK;
}

gw_status gw_stream_open(gw_shards *s, const gw_stream_options *o, gw_stream **out, gw_diags *dg) {
    gw_stream *t = gw_mem_zalloc(sizeof *t);
    t->opt = *o;
    t->s = s;
    gw_status st = prepare(t, dg);
    *out = st == GW_OK ? t : NULL;
    if (st != GW_OK) gw_stream_close(t);
    return st;
}

void gw_stream_close(gw_stream *t) {
    if (!t) return;
    for (int64_t b = 0; t->blocks && b < gw_shards_blocks(t->s); b++)
        gw_pack_release(&t->blocks[b].pack);
    for (int i = 0; i < 2; i++) gw_mem_free(t->orders[i].ends);
    gw_mem_free(t->present);
    gw_order_free(t->order);
    gw_mem_free(t->blocks);
    gw_mem_free(t->rows_of);
    gw_mem_free(t->in);
    gw_mem_free(t->ahead);
    gw_shards_close(t->s);
    gw_mem_free(t);
}

int64_t gw_stream_rows(const gw_stream *t) { return t->nrows; }
int64_t gw_stream_tokens(const gw_stream *t) { return t->ntokens; }
int64_t gw_stream_documents(const gw_stream *t) { return t->ndocs; }
gw_shards *gw_stream_shards(const gw_stream *t) { return t->s; }
int64_t gw_stream_quarantined(const gw_stream *t) {
    return t->quarantined + (t->by_documents ? gw_shards_damages(t->s) : 0);
}

gw_data_order gw_stream_order(const gw_stream *t) {
    return t->by_documents ? GW_ORDER_DOCUMENTS : GW_ORDER_BLOCKS;
}

int64_t gw_stream_bytes(const gw_stream *t) {
    int64_t tables = (t->orders[0].ends != NULL) + (t->orders[1].ends != NULL);
    int64_t bytes = (int64_t)sizeof *t + (tables + (t->present != NULL)) * 8 * t->ndocs;
    if (t->order) bytes += gw_shards_blocks(t->s) * (int64_t)(sizeof *t->blocks + 32);
    return bytes + gw_shards_bytes(t->s);
}

gw_status gw_stream_row(gw_stream *t, int64_t j, gw_sample *out, gw_diags *dg) {
    GW_TRY(gw_shards_check(t->s, dg));
    if (t->by_documents) return gw_stream_row_documents(t, j, out, dg);
    return gw_stream_row_blocks(t, j, out, dg);
}

gw_status gw_stream_count(gw_stream *t, int64_t j, int64_t *valid, int64_t *inputs, gw_diags *dg) {
    if (!t->by_documents) return gw_stream_count_blocks(t, j, valid, inputs, dg);
    gw_stream_count_documents(t, j, valid, inputs);
    return GW_OK;
}

/* ---- all documents shuffled ---- */

static int64_t doc_len(const gw_stream *t, int64_t d) {
    return gw_shards_doc_tokens(t->s, t->present ? t->present[d] : d);
}

static void tell(gw_stream *t, const gw_diags *faults) {
    if (gw_shards_damages(t->s) == t->told) return;
    t->told = gw_shards_damages(t->s);
    gw_log_warn("%s: damaged at its source (%s); of documents that lie there the next whole one is "
                "read in their place",
                gw_shards_name(t->s), gw_diags_first_error(faults));
}

/* Document d of those that are present, or, where it is damaged, the next that is whole. Which that
 * was is remembered: documents that lie together are damaged together. */
static gw_status whole_doc(gw_stream *t, int64_t d, int64_t *is, gw_diags *dg) {
    gw_diags faults;
    int64_t k = d;
    gw_diags_init(&faults);
    *is = t->present ? t->present[d] : d;
    gw_status st = gw_shards_doc_check(t->s, *is, &faults);
    if (st == GW_ERR_FORMAT) {
        tell(t, &faults);
        bool known = d >= t->damaged_from && d < t->damaged_to;
        for (k = known ? t->damaged_to : d + 1; k < d + t->ndocs; k++) {
            *is = t->present ? t->present[k % t->ndocs] : k % t->ndocs;
            if (gw_shards_doc_check(t->s, *is, NULL) == GW_OK) break;
        }
        if (k < d + t->ndocs) {
            t->damaged_from = d;
            t->damaged_to = k;
            st = GW_OK;
        }
    }
    if (st != GW_OK) gw_diags_take(dg, &faults);
    gw_diags_release(&faults);
    return st;
}

/* Tokens of another document, over and over as far as it takes. */
static gw_status read_other(const gw_stream *t, int64_t other, int64_t first, int64_t n,
                            int32_t *out, gw_diags *dg) {
    int64_t len = gw_shards_doc_tokens(t->s, other);
    for (int64_t done = 0, k; done < n; done += k) {
        int64_t at = (first + done) % len;
        k = GW_MIN(len - at, n - done);
        GW_TRY(gw_shards_doc_read(t->s, other, at, k, out + done, dg));
    }
    return GW_OK;
}

static gw_status read_doc(gw_stream *t, int64_t d, int64_t first, int64_t n, int32_t *out,
                          gw_diags *dg) {
    int64_t doc = t->present ? t->present[d] : d, is = doc;
    GW_TRY(whole_doc(t, d, &is, dg));
    if (is != doc) return read_other(t, is, first, n, out, dg);
    return gw_shards_doc_read(t->s, doc, first, n, out, dg);
}

static int64_t doc_at(const gw_stream *t, const gw_doc_order *o, int64_t place) {
    if (!t->opt.shuffle) return place;
    return (int64_t)gw_rng_permute(o->key, (uint64_t)t->ndocs, (uint64_t)place);
}

static bool packed(const gw_stream *t) { return t->opt.packing == GW_PACK_CONTIGUOUS; }

static void build_order(const gw_stream *t, gw_doc_order *o, int64_t epoch) {
    int64_t sum = 0;
    o->epoch = epoch;
    o->key = gw_rng_key_fold(gw_rng_key_named(t->opt.seed, "data.shuffle"), (uint64_t)epoch);
    for (int64_t i = 0; packed(t) && i < t->ndocs; i++)
        o->ends[i] = sum += doc_len(t, doc_at(t, o, i));
}

static const gw_doc_order *order_of(gw_stream *t, int64_t epoch) {
    if (!t->opt.shuffle) epoch = 0;
    gw_doc_order *o = &t->orders[epoch & 1];
    if (o->epoch != epoch) build_order(t, o, epoch);
    return o;
}

static void find_present(gw_stream *t) {
    int64_t empty = 0, documents = gw_shards_documents(t->s);
    for (int64_t d = 0; d < documents; d++) {
        int64_t n = gw_shards_doc_tokens(t->s, d);
        t->ntokens += n;
        empty += n == 0;
    }
    t->ndocs = documents - empty;
    if (!empty || !t->ndocs) return;
    t->present = gw_mem_alloc((size_t)t->ndocs * sizeof *t->present);
    for (int64_t d = 0, k = 0; d < documents; d++)
        if (gw_shards_doc_tokens(t->s, d) > 0) t->present[k++] = d;
}

gw_status gw_stream_open_documents(gw_stream *t, gw_diags *dg) {
    find_present(t);
    if (t->ntokens == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "data-empty", (gw_where){.file = gw_shards_name(t->s)},
                          "the data set has no tokens");
    t->nrows = packed(t) ? gw_pack_rows_contiguous(t->ntokens, t->opt.seq_len) : t->ndocs;
    int tables = t->opt.shuffle ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        t->orders[i].epoch = -1;
        if (packed(t) && i < tables)
            t->orders[i].ends = gw_mem_alloc((size_t)t->ndocs * sizeof(int64_t));
    }
    build_order(t, &t->orders[0], 0);
    return GW_OK;
}

/* The number of places whose running sum is <= at. */
static int64_t ends_upto(const gw_stream *t, const gw_doc_order *o, int64_t at) {
    int64_t lo = 0, hi = t->ndocs;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (o->ends[mid] <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* What follows input `at` - 1 of the stream: the next token of its document, the first of another
 * where those are labels too, or -1. */
static gw_status label_at(gw_stream *t, const gw_doc_order *o, int64_t place, int64_t at,
                          int32_t *out, gw_diags *dg) {
    int64_t begin = place ? o->ends[place - 1] : 0;
    *out = -1;
    if (at >= t->ntokens || (begin == at && t->opt.mask_first)) return GW_OK;
    return read_doc(t, doc_at(t, o, place), at - begin, 1, out, dg);
}

static gw_status packed_row(gw_stream *t, const gw_doc_order *o, int64_t start, gw_sample *out,
                            gw_diags *dg) {
    int64_t n = GW_MIN(t->opt.seq_len, t->ntokens - start), place = ends_upto(t, o, start);
    gw_row_fill f;
    gw_row_begin(&f, t, out);
    while (f.n < n) {
        int64_t at = start + f.n, begin = place ? o->ends[place - 1] : 0;
        int64_t k = GW_MIN(o->ends[place] - at, n - f.n);
        int32_t next;
        GW_TRY(read_doc(t, doc_at(t, o, place), at - begin, k, out->tokens + f.n, dg));
        place += at + k == o->ends[place];
        GW_TRY(label_at(t, o, place, at + k, &next, dg));
        gw_row_add(&f, k, next);
    }
    gw_row_end(&f);
    return GW_OK;
}

static gw_status document_row(gw_stream *t, int64_t d, gw_sample *out, gw_diags *dg) {
    int64_t len = doc_len(t, d), n = GW_MIN(len, t->opt.seq_len);
    int32_t next = -1;
    gw_row_fill f;
    GW_TRY(read_doc(t, d, 0, n, out->tokens, dg));
    if (len > n) GW_TRY(read_doc(t, d, n, 1, &next, dg));
    gw_row_begin(&f, t, out);
    gw_row_add(&f, n, next);
    gw_row_end(&f);
    return GW_OK;
}

gw_status gw_stream_row_documents(gw_stream *t, int64_t j, gw_sample *out, gw_diags *dg) {
    const gw_doc_order *o = order_of(t, j / t->nrows);
    j %= t->nrows;
    if (packed(t)) return packed_row(t, o, j * t->opt.seq_len, out, dg);
    return document_row(t, doc_at(t, o, j), out, dg);
}

void gw_stream_count_documents(gw_stream *t, int64_t j, int64_t *valid, int64_t *inputs) {
    int64_t s = t->opt.seq_len;
    const gw_doc_order *o = order_of(t, j / t->nrows);
    j %= t->nrows;
    if (!packed(t)) {
        int64_t len = doc_len(t, doc_at(t, o, j));
        *valid = GW_MIN(s, len - 1);
        *inputs = GW_MIN(s, len);
        return;
    }
    int64_t start = j * s, targets = GW_MIN(s, t->ntokens - 1 - start);
    *inputs = GW_MIN(s, t->ntokens - start);
    *valid = targets;
    /* Documents that begin at a target: ends in [start + 1, start + targets]. */
    if (t->opt.mask_first) *valid -= ends_upto(t, o, start + targets) - ends_upto(t, o, start);
}
