// SPDX-License-Identifier: Apache-2.0
// Inside of the BPE model: windows of units, and pieces that no cache knows; not for other folders.
#ifndef GW_DATA_BPE_IMPL_H
#define GW_DATA_BPE_IMPL_H

#include "base/str.h" /* gw_str */
#include "data/bpe.h" /* gw_bpe, gw_bpe_merge */

enum { GW_BPE_WINDOW = 64 };

/* A unit begins at place i while bit i of `alive` is set: its id, and the rank of what it makes
 * with the next unit, `to` (GW_BPE_NO_RANK: nothing). */
typedef struct gw_bpe_window {
    _Alignas(32) uint32_t rank[GW_BPE_WINDOW];
    int32_t id[GW_BPE_WINDOW], to[GW_BPE_WINDOW];
    uint64_t alive;
    int n; /* places */
} gw_bpe_window;

static inline uint64_t gw_bpe_low_bits(int n) {
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* Merges until no pair has a rank. The caller sets n in [1, 64], id, rank and to of all places, and
 * alive to n bits; rank[n - 1] is GW_BPE_NO_RANK. Returns the number of pairs looked up. All give
 * the same. */
typedef int64_t gw_bpe_merge_window(const gw_bpe *m, gw_bpe_window *w);
gw_bpe_merge_window gw_bpe_merge_window_plain, gw_bpe_merge_window_avx2;
/* The best this machine has. */
gw_bpe_merge_window *gw_bpe_merge_window_best(void);

/* bpe_windows.c. Sets the window to units [0, n), n in [1, 64]. `bytes`: those of the units if each
 * is one (all_bytes), else NULL. */
void gw_bpe_window_fill(const gw_bpe *m, gw_bpe_window *w, const int32_t *units,
                        const uint8_t *bytes, int n);
/* Appends the ids of a long piece. False where neighbouring windows do not agree: what was appended
 * is void then. O(n). Adds look-ups to *ops. */
bool gw_bpe_merge_windows(const gw_bpe *m, gw_bpe_merge_window *merge, const int32_t *units,
                          const uint8_t *bytes, int64_t n, gw_ids *out, int64_t *ops);

/* Working memory of merging. */
typedef struct gw_bpe_work {
    gw_ids units; /* of a piece: at first its units, then its ids */
    gw_ids joined;
    gw_str unit; /* a unit with its prefix and suffix */
    gw_bpe_queue *queue;
    gw_bpe_merge_window *merge;
    int64_t ops;
} gw_bpe_work;
void gw_bpe_work_init(gw_bpe_work *w);
void gw_bpe_work_release(gw_bpe_work *w);
int64_t gw_bpe_work_bytes(const gw_bpe_work *w);
/* The ids of a piece of n bytes, n in [1, 2^31), to w->units, by merging. O(n log n). */
void gw_bpe_merge_piece(const gw_bpe *m, gw_bpe_work *w, const uint8_t *piece, size_t n);

#endif
