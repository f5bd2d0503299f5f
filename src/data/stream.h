// SPDX-License-Identifier: Apache-2.0
// The rows of one source, epoch after epoch: documents, packing and order put together.
//
// Two orders. `documents` shuffles all documents of the set in every epoch and packs them end to
// end into one stream; it needs to reach any document at any time. `blocks` packs each block by
// itself, once for all epochs, and shuffles blocks and rows (data/order.h): what is needed at a
// time is a window of blocks, so this one works over a network, on compressed shards and on any
// size.
#ifndef GW_DATA_STREAM_H
#define GW_DATA_STREAM_H

#include "base/diag.h"   /* gw_status, gw_diags */
#include "data/pack.h"   /* gw_packing */
#include "data/shards.h" /* gw_shards */
#include "data/tokens.h" /* gw_sample, gw_data_order */

typedef struct gw_stream gw_stream;

typedef struct gw_stream_options {
    int64_t seq_len;
    uint64_t seed;
    bool shuffle;
    gw_data_order order; /* AUTO: documents where all can be reached and rows are not best fit */
    gw_packing packing;
    bool mask_first;
    int32_t pad_token;
    int64_t window; /* blocks, >= 1 */
} gw_stream_options;

/* Takes over `s` (also on an error). Every block's size is looked at, and with best fit every
 * document's. */
GW_WARN_UNUSED gw_status gw_stream_open(gw_shards *s, const gw_stream_options *o, gw_stream **out,
                                        gw_diags *dg);
void gw_stream_close(gw_stream *t);

int64_t gw_stream_rows(const gw_stream *t);      /* of an epoch */
int64_t gw_stream_tokens(const gw_stream *t);    /* of an epoch */
int64_t gw_stream_documents(const gw_stream *t); /* with at least one token; blocks: all */
int64_t gw_stream_bytes(const gw_stream *t);
gw_data_order gw_stream_order(const gw_stream *t); /* DOCUMENTS or BLOCKS */
gw_shards *gw_stream_shards(const gw_stream *t);   /* borrowed */
/* Blocks that are damaged at their source: their rows are those of others. In the order of
 * documents MiBs of the .bin, whose documents are others. */
int64_t gw_stream_quarantined(const gw_stream *t);

/* Row j >= 0 of all epochs; fills everything but the id. One thread at a time. */
GW_WARN_UNUSED gw_status gw_stream_row(gw_stream *t, int64_t j, gw_sample *out, gw_diags *dg);
/* How many labels of row j count, and how many of its places are inputs: no token is read, but the
 * lengths of the block's documents are. */
GW_WARN_UNUSED gw_status gw_stream_count(gw_stream *t, int64_t j, int64_t *valid, int64_t *inputs,
                                         gw_diags *dg);
/* Rows before j are not asked for again: blocks that only they needed are dropped. */
void gw_stream_pass(gw_stream *t, int64_t j);

#endif
