// SPDX-License-Identifier: Apache-2.0
// Merging of long pieces by windows that overlap, each of which fits the first cache.
//
// That the parts of a text can be joined rests on one fact. Take a row of tokens of which each two
// neighbours, merged anew from their units, give those two tokens again. Then the row is what
// merging all of its units gives. For suppose that, on the way, some merge crossed an edge between
// two of the tokens, and take the first that does. Until then each token grew by itself; of the
// merges of the two tokens beside that edge the rule took, one after the other, those it takes when
// it sees these two alone: the lowest of many, if it is one of theirs, is the lowest of theirs. So
// alone they would come to the crossing too, and would not give the two tokens again. Ranks may be
// in any order for that, and equal.
//
// A window's tokens are such a row. Two windows that overlap and have one token in common, of the
// same units, therefore join there: the first one's tokens up to it, the second one's from it on.
// The last few tokens of a window are what its edge made of them; so the next window begins some
// units before the edge, at the start of a token, and nearly always has that very token first.
// Where no token is in common it begins earlier; after three tries the piece is not of this kind
// (it has tokens as long as a window, or a row whose tokens depend on its far end), and is left to
// bpe_queue.c. Tries are counted, so that no piece costs more than a fixed number of windows a
// unit.
#include "data/bpe_impl.h" /* gw_bpe_merge_windows */

#include <string.h>

#include "base/compiler.h" /* GW_COUNT, GW_MIN */
#include "base/map.h"      /* gw_vec_push */

void gw_bpe_window_fill(const gw_bpe *m, gw_bpe_window *w, const int32_t *units,
                        const uint8_t *bytes, int n) {
    memcpy(w->id, units, (size_t)n * sizeof *units);
    w->n = n;
    w->alive = gw_bpe_low_bits(n);
    for (int i = 0; i + 1 < n; i++) {
        gw_bpe_merge x =
            bytes ? m->bytes[bytes[i] << 8 | bytes[i + 1]] : gw_bpe_find(m, units[i], units[i + 1]);
        w->rank[i] = x.rank;
        w->to[i] = x.id;
    }
    w->rank[n - 1] = GW_BPE_NO_RANK;
}

static int lowest_or(uint64_t mask, int otherwise) {
    return mask ? __builtin_ctzll(mask) : otherwise;
}

/* The first token that both windows have, as its place in b, which begins at place `shift` of a; -1
 * if there is none. */
static int meet(const gw_bpe_window *a, const gw_bpe_window *b, int shift) {
    int both = a->n - shift;
    uint64_t starts = a->alive >> shift;
    for (uint64_t s = starts & b->alive & gw_bpe_low_bits(both); s; s &= s - 1) {
        int i = __builtin_ctzll(s);
        uint64_t later = ~gw_bpe_low_bits(i + 1);
        if (a->id[shift + i] == b->id[i] &&
            lowest_or(starts & later, both) == lowest_or(b->alive & later, b->n))
            return i;
    }
    return -1;
}

static void append(const gw_bpe_window *w, int from, int to, gw_ids *out) {
    for (uint64_t s = w->alive & gw_bpe_low_bits(to) & ~gw_bpe_low_bits(from); s; s &= s - 1)
        gw_vec_push(out, w->id[__builtin_ctzll(s)]);
}

bool gw_bpe_merge_windows(const gw_bpe *m, gw_bpe_merge_window *merge, const int32_t *units,
                          const uint8_t *bytes, int64_t n, gw_ids *out, int64_t *ops) {
    static const int BACK[] = {8, 24, 44}; /* units that overlap, at least */
    gw_bpe_window windows[2], *a = &windows[0], *b = &windows[1];
    int64_t at = 0, tries = 0;
    int from = 0; /* the place in a from which on its tokens are wanted */
    gw_bpe_window_fill(m, a, units, bytes, (int)GW_MIN(n, (int64_t)GW_BPE_WINDOW));
    *ops += merge(m, a);
    while (at + a->n < n) {
        int met = -1, shift = 0;
        for (size_t k = 0; k < GW_COUNT(BACK) && met < 0; k++) {
            uint64_t starts = a->alive & gw_bpe_low_bits(a->n - BACK[k]);
            shift = 63 - __builtin_clzll(starts); /* place 0 begins a token */
            if (shift == 0 || shift < from || ++tries > 8 + n / 8) return false;
            int64_t next = at + shift;
            gw_bpe_window_fill(m, b, units + next, bytes ? bytes + next : NULL,
                               (int)GW_MIN(n - next, (int64_t)GW_BPE_WINDOW));
            *ops += merge(m, b);
            met = meet(a, b, shift);
        }
        if (met < 0) return false;
        append(a, from, shift + met, out);
        at += shift;
        from = met;
        gw_bpe_window *t = a;
        a = b;
        b = t;
    }
    append(a, from, a->n, out);
    return true;
}
