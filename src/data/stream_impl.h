// SPDX-License-Identifier: Apache-2.0
// The inside of data/stream.h, for stream*.c alone.
#ifndef GW_DATA_STREAM_IMPL_H
#define GW_DATA_STREAM_IMPL_H

#include "data/order.h"  /* gw_order */
#include "data/stream.h" /* gw_stream_options */

/* Documents in the order of an epoch, and where each ends in the stream. */
typedef struct gw_doc_order {
    int64_t epoch; /* -1 = none */
    int64_t *ends; /* [ndocs] running sum of lengths in the epoch's order */
    gw_rng_key key;
} gw_doc_order;

/* A block of which rows are being read. */
typedef struct gw_row_block {
    gw_pack pack;
    int64_t window;    /* the latest that used it, counted over all epochs; -1: it is not in */
    int64_t stands_in; /* the block whose rows are taken instead: itself, but where it is damaged */
} gw_row_block;

struct gw_stream {
    gw_stream_options opt;
    gw_shards *s;
    bool by_documents;
    int64_t ndocs, ntokens, nrows;
    /* documents */
    int64_t *present; /* indices of documents with tokens; NULL if all have */
    gw_doc_order orders[2];
    int64_t told;                     /* damaged MiBs that the log knows of */
    int64_t damaged_from, damaged_to; /* places of documents that the one at `to` stands in for */
    /* blocks */
    gw_order *order;
    gw_row_block *blocks; /* [nblocks] */
    int64_t *rows_of;     /* [nblocks] as the order counts them */
    int64_t *in;          /* [.] the blocks that are in */
    int64_t nin, room;
    int64_t *ahead; /* [window] of the window that comes next */
    int64_t ahead_window, ahead_count, ahead_done;
    _Atomic int64_t quarantined; /* by the loader's thread; others ask */
};

/* A row that is being filled. */
typedef struct gw_row_fill {
    const gw_stream *t;
    gw_sample *out;
    int64_t n; /* inputs so far */
    int32_t doc;
} gw_row_fill;
void gw_row_begin(gw_row_fill *f, const gw_stream *t, gw_sample *out);
/* `count` inputs are in out->tokens + n: a document of its own. `next` is what follows its last
 * input: a label, or < 0: none. */
void gw_row_add(gw_row_fill *f, int64_t count, int32_t next);
void gw_row_end(gw_row_fill *f); /* the rest is padding */

GW_WARN_UNUSED gw_status gw_stream_open_documents(gw_stream *t, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_stream_row_documents(gw_stream *t, int64_t j, gw_sample *out,
                                                 gw_diags *dg);
void gw_stream_count_documents(gw_stream *t, int64_t j, int64_t *valid, int64_t *inputs);
GW_WARN_UNUSED gw_status gw_stream_open_blocks(gw_stream *t, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_stream_row_blocks(gw_stream *t, int64_t j, gw_sample *out,
                                              gw_diags *dg);
GW_WARN_UNUSED gw_status gw_stream_count_blocks(gw_stream *t, int64_t j, int64_t *valid,
                                                int64_t *inputs, gw_diags *dg);

#endif
