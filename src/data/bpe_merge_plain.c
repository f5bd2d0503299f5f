// SPDX-License-Identifier: Apache-2.0
// Searching the ranks of a window in C, for machines without the vector instructions of
// bpe_merge_avx2.c, which is compared with this.
#include "data/bpe_impl.h" /* gw_bpe_window */

static inline uint32_t lowest(const uint32_t *rank, int eights) {
    uint32_t low = rank[0];
    for (int i = 1; i < 8 * eights; i++) low = rank[i] < low ? rank[i] : low;
    return low;
}

static inline uint64_t equal_to(const uint32_t *rank, int eights, uint32_t low) {
    uint64_t mask = 0;
    for (int i = 0; i < 8 * eights; i++) mask |= (uint64_t)(rank[i] == low) << i;
    return mask;
}

#include "data/bpe_merge.h" /* merge_window */

int64_t gw_bpe_merge_window_plain(const gw_bpe *m, gw_bpe_window *w) { return merge_window(m, w); }
