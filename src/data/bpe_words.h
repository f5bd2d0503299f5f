// SPDX-License-Identifier: Apache-2.0
// Inside of the cache of words (bpe_words.c, bpe_words_avx2.c); not for other files.
#ifndef GW_DATA_BPE_WORDS_H
#define GW_DATA_BPE_WORDS_H

#include <string.h>

#include "base/compiler.h" /* GW_ALWAYS_INLINE, GW_MIN */
#include "data/bpe.h"      /* gw_bpe */
#include "data/bpe_impl.h" /* gw_bpe_work */

enum {
    GW_WORD_BYTES = 15, /* longest word of a line */
    GW_WORDS_AHEAD = 32 /* words whose lines are asked for before the first is looked at */
};

/* A word of n bytes is two numbers: its bytes from the lowest on, zero behind them, and n as the
 * top byte of the second. A longer one has GW_WORD_LONG there and nothing else; no line holds it.
 */
#define GW_WORD_LONG UINT64_C(0xfe)

/* Two words, the newer first. A free place has length 0. If the second's length is GW_WORD_WIDE,
 * the line holds one word of 5 to 11 ids, which the first's length marks by its highest bit, so
 * that it looks like a word that is not known: see find_wide. */
typedef struct gw_word_line {
    uint64_t key[2][2];
    uint32_t ids[2][4]; /* ids[.][0] holds the number of ids in its top byte */
} gw_word_line;
#define GW_WORD_WIDE UINT64_C(0xff)

/* A longer word, or one of more ids: two cache lines. */
typedef struct gw_word_slot {
    uint64_t hash; /* 0 = free */
    uint8_t len, count;
    uint8_t body[118]; /* its bytes, then its ids */
} gw_word_slot;

typedef void gw_bpe_pieces(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                           const uint32_t *bounds, int64_t count, gw_ids *out);
gw_bpe_pieces gw_bpe_pieces_plain, gw_bpe_pieces_avx2;

struct gw_bpe_scratch {
    void *memory, *slot_memory; /* of lines, of slots */
    gw_word_line *lines;
    int bits;      /* 1 << bits lines */
    int64_t added; /* words since the lines grew */
    gw_word_slot *slots;
    int slot_bits;
    int64_t slots_added; /* since the slots grew */
    unsigned turn;       /* words found beside their line */
    gw_bpe_pieces *pieces;
    gw_bpe_work work;
};

/* For tests: by vectors or in C. */
void gw_bpe_scratch_use(gw_bpe_scratch *s, gw_bpe_pieces *pieces);

static inline uint64_t gw_word_hash(uint64_t low, uint64_t high) {
    return low * 0x9e3779b97f4a7c15u + high * 0xc2b2ae3d27d4eb4fu;
}

static inline void gw_ids_reserve(gw_ids *ids, int64_t extra) {
    while (ids->cap - ids->count < extra)
        ids->items = gw_vec_grow_(ids->items, &ids->cap, sizeof *ids->items);
}

/* Asks memory for the slots of those of n pieces that are too long for a line. */
void gw_bpe_want_long(const gw_bpe_scratch *s, const uint8_t *base, const uint32_t *bounds,
                      int64_t n);
/* Appends the ids of a word that its line does not hold for all to see. */
void gw_bpe_encode_new(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                       uint64_t low, uint64_t high, gw_ids *out);

#endif
