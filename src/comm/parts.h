// SPDX-License-Identifier: Apache-2.0
// The parts of a fused collective as one sequence of elements.
//
// A collective carries many tensors, each cut flat in n. Share i is the union of the i-th cuts of
// all parts, part by part. An algorithm sees shares, or runs of shares, as plain sequences of
// elements that it reads and writes by position; where the elements lie is looked up here.
#ifndef GW_COMM_PARTS_H
#define GW_COMM_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h" /* gw_coll */

typedef struct gw_cut {
    int64_t first, length;
} gw_cut;
/* The flat balanced cut (ir/shard.h): part i of n of `elems`. */
gw_cut gw_cut_flat(int64_t elems, int64_t n, int64_t i);
/* Share i of part p of a collective, cut in n: the flat cut, from the other end where the part is
 * reversed and n is the group. */
gw_cut gw_part_cut(const gw_coll *c, int p, int64_t n, int64_t i);

/* Bytes of an element. */
int64_t gw_dtype_size(gw_dtype t);

/* Elements of share i when every part is cut in n; the largest is that of share 0. */
int64_t gw_share_elems(const gw_coll *c, int64_t n, int64_t i);
/* The same of shares [lo, hi). */
int64_t gw_shares_elems(const gw_coll *c, int64_t n, int64_t lo, int64_t hi);

/* Shares [lo, hi) of a cut in n, one after another. {c, 1, 0, 1} is the whole, part after part. */
typedef struct gw_seq {
    const gw_coll *c;
    int64_t n, lo, hi;
} gw_seq;
int64_t gw_seq_elems(const gw_seq *s);

/* A maximal contiguous run of a sequence. */
typedef struct gw_piece {
    int part;
    int64_t first;  /* element of the whole tensor */
    int64_t within; /* the same, counted from the first of its share */
    int64_t count;  /* > 0 */
} gw_piece;

typedef struct gw_walk {
    gw_seq s;
    int64_t share, skip, left;
    int part;
} gw_walk;
/* Elements [from, from + count) of the sequence, cut off at its end. */
void gw_walk_begin(gw_walk *w, const gw_seq *s, int64_t from, int64_t count);
bool gw_walk_next(gw_walk *w, gw_piece *p);

/* Where elements lie. src of an all-gather and dst of a reduce-scatter hold the own share only. */
char *gw_piece_src(const gw_coll *c, const gw_piece *p);
char *gw_piece_dst(const gw_coll *c, const gw_piece *p);

/* out[0 .. count) = elements [from, from + count) of src, converted to dtype `to`. */
void gw_seq_load(const gw_seq *s, int64_t from, int64_t count, void *out, gw_dtype to);
/* The same of dst. */
void gw_seq_fetch(const gw_seq *s, int64_t from, int64_t count, void *out, gw_dtype to);
/* acc[i] += (or max=) elements of src; acc has dtype gw_sum_dtype(c->dtype). */
void gw_seq_add(const gw_seq *s, int64_t from, int64_t count, void *acc);
/* dst = in[0 .. count), converted from dtype `t`. */
void gw_seq_store(const gw_seq *s, int64_t from, int64_t count, const void *in, gw_dtype t);
/* Copies elements of src to dst of this rank (nothing where they are the same place). */
void gw_seq_keep(const gw_seq *s, int64_t from, int64_t count);

/* A group of one: dst becomes src. */
void gw_coll_alone(const gw_coll *c);

#endif
