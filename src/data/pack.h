// SPDX-License-Identifier: Apache-2.0
// Packing: how the documents of a block fall into rows of seq_len inputs.
//
//   contiguous  documents stand end to end, and the stream of T tokens is cut into windows that
//               overlap by one: row r has inputs [r*s, r*s + s), and labels one further on; max(1,
//               ceil((T - 1) / s)) rows, the last one padded
//   best fit    a document of n tokens has n - 1 pairs of input and label; it is cut into pieces of
//               s pairs, the last shorter, and each piece goes, longest first, into the row that it
//               fills best (Ding et al., "Fewer truncations improve language modeling", 2024)
//   document    one document a row, cut at s inputs or padded
//
// In all of them each document of a row has a number of its own: nothing attends across.
#ifndef GW_DATA_PACK_H
#define GW_DATA_PACK_H

#include <stdint.h>

typedef enum gw_packing { GW_PACK_CONTIGUOUS, GW_PACK_BEST_FIT, GW_PACK_DOCUMENT } gw_packing;

/* A stretch of one document in a row: inputs [at, at + n) of the block's tokens. Its last label is
 * token at + n if `goes_on` (the same document has it), else none. */
typedef struct gw_stretch {
    int64_t at;
    int32_t n;
    int32_t goes_on;
} gw_stretch;

/* Rows of a block whose pieces cannot be computed from the row's number alone. */
typedef struct gw_pack {
    gw_packing how;
    int64_t seq_len;
    int64_t docs;
    const int64_t *ends; /* [docs] running sum of lengths; borrowed */
    int64_t rows;
    int64_t *first; /* best fit: [rows + 1] into pieces; document: [rows] index of the document */
    gw_stretch *pieces; /* best fit */
} gw_pack;

/* Rows of a block of `tokens` tokens, contiguous: without its lengths. 0 without tokens. */
int64_t gw_pack_rows_contiguous(int64_t tokens, int64_t seq_len);
/* Rows of any packing. O(docs log seq_len). */
int64_t gw_pack_rows(gw_packing how, int64_t seq_len, const int64_t *ends, int64_t docs);
/* Empty documents have no row. `ends` must outlive it. Best fit allocates 24 bytes a piece. */
void gw_pack_init(gw_pack *p, gw_packing how, int64_t seq_len, const int64_t *ends, int64_t docs);
void gw_pack_release(gw_pack *p);

/* The pieces of row r in order, one at a time: begin with *i = 0; false past the last. */
typedef struct gw_pack_cursor {
    const gw_pack *pack;
    int64_t row, at, end, doc, next;
} gw_pack_cursor;
gw_pack_cursor gw_pack_row(const gw_pack *p, int64_t row);
int gw_pack_next(gw_pack_cursor *c, gw_stretch *out);

/* Labels of a row that count, with each document's first label left out; and its inputs. */
int64_t gw_pack_valid(const gw_pack *p, int64_t row);
int64_t gw_pack_inputs(const gw_pack *p, int64_t row);
/* Contiguous: does the token that follows row r's last input belong to the block (so that it is a
 * label where first labels count too)? */
int gw_pack_follows(const gw_pack *p, int64_t row, int64_t *at);

#endif
