// SPDX-License-Identifier: Apache-2.0
// The merging of a window. Included by one file for each way to search 64 ranks, which defines
// lowest() and equal_to() before; not for other files.
//
// The rule is: the pair of lowest rank first, of equal ranks the leftmost. All places of the lowest
// rank are found at once, as a mask, and merged from the left: the rule would take them one after
// the other too, as long as no pair that comes of it has as low a rank. Where one has, which takes
// a vocabulary in which a token ranks below its parts, the search begins anew.
//
// Nothing is moved: a unit that is merged away loses its bit, and neighbours are found by counting
// zero bits.
#ifndef GW_DATA_BPE_MERGE_H
#define GW_DATA_BPE_MERGE_H

#include "data/bpe_impl.h" /* gw_bpe_window */

/* Sets what unit i makes with the unit at `next`. Returns the rank. */
static inline uint32_t look_up(const gw_bpe *m, gw_bpe_window *w, int i, int next) {
    gw_bpe_merge x = gw_bpe_find(m, w->id[i], w->id[next]);
    w->rank[i] = x.rank;
    w->to[i] = x.id;
    return x.rank;
}

/* Merges unit i with the next. Returns the lowest rank that its new pairs have. */
static inline uint32_t merge_at(const gw_bpe *m, gw_bpe_window *w, int i) {
    uint64_t after = w->alive & ~gw_bpe_low_bits(i + 1), before = w->alive & gw_bpe_low_bits(i);
    int gone = __builtin_ctzll(after);
    after &= after - 1;
    w->alive ^= (uint64_t)1 << gone;
    w->id[i] = w->to[i];
    w->rank[gone] = w->rank[i] = GW_BPE_NO_RANK;
    uint32_t made = GW_BPE_NO_RANK;
    if (after) made = look_up(m, w, i, __builtin_ctzll(after));
    if (before) {
        uint32_t rank = look_up(m, w, 63 - __builtin_clzll(before), i);
        if (rank < made) made = rank;
    }
    return made;
}

static inline int64_t merge_window(const gw_bpe *m, gw_bpe_window *w) {
    int eights = (w->n + 7) / 8;
    int64_t looked = w->n;
    for (int i = w->n; i < 8 * eights; i++) w->rank[i] = GW_BPE_NO_RANK;
    for (;;) {
        uint32_t low = lowest(w->rank, eights);
        if (low == GW_BPE_NO_RANK) return looked;
        uint64_t at = equal_to(w->rank, eights, low);
        while (at) {
            int i = __builtin_ctzll(at);
            at &= at - 1;
            if (w->rank[i] != low) continue; /* its pair is gone */
            looked += 2;
            if (merge_at(m, w, i) <= low) break;
        }
    }
}

#endif
