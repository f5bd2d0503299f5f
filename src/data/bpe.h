// SPDX-License-Identifier: Apache-2.0
// The BPE model: from one piece of text to ids, by merges in order of rank.
#ifndef GW_DATA_BPE_H
#define GW_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"       /* gw_smap */
#include "data/tokenizer.h" /* gw_ids */

enum { GW_BPE_MAX_ID = 1 << 24 }; /* ids are below: a cached word keeps its count above them */

typedef struct gw_bpe_pair {
    uint64_t key; /* left id << 32 | right id; UINT64_MAX = free */
    uint32_t rank;
    int32_t id; /* what the pair becomes */
} gw_bpe_pair;

/* What a pair becomes, and when. */
#define GW_BPE_NO_RANK UINT32_MAX
typedef struct gw_bpe_merge {
    uint32_t rank; /* GW_BPE_NO_RANK: it is not merged */
    int32_t id;
} gw_bpe_merge;

/* Filled by the readers of files, sealed, then constant. */
typedef struct gw_bpe {
    gw_bpe_pair *pairs; /* open addressing; capacity a power of two */
    uint32_t pairs_cap, pairs_count;
    uint32_t nranks; /* one past the largest rank */
    gw_smap
        lookup; /* unit or whole piece -> id; keys are raw bytes if byte_level, else file text */
    uint64_t *maybe; /* a filter of pairs: a clear bit says that there is none */
    int maybe_bits;
    gw_bpe_merge *bytes;       /* byte_level: [256 * 256], of two single bytes */
    uint64_t byte_pairs[1024]; /* byte_level: a bit for each pair of bytes that has a merge */
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
    bool plain;     /* byte_level, and a byte has one id wherever it stands */
    bool all_bytes; /* plain, and each byte has an id */
    /* With ignore_merges: some token's text has two bytes or more of which no two neighbours merge,
     * so that only the whole gives it. True until the owner of the tokens knows better. */
    bool stranded;
    int32_t byte_id[256];        /* byte_level: the id of a byte; -1 = none */
    int32_t fallback_id[256];    /* byte_fallback: the id of <0xNN>; -1 = none */
    int32_t unk;                 /* -1 = none */
    const char *prefix, *suffix; /* of a unit not first, not last; "" if none. Borrowed */
} gw_bpe;

void gw_bpe_init(gw_bpe *m);
void gw_bpe_release(gw_bpe *m);
/* A later merge of the same pair replaces the earlier one. id < GW_BPE_MAX_ID. */
void gw_bpe_add_merge(gw_bpe *m, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* After the last merge: derives what encoding reads. May be called again after more merges. */
void gw_bpe_seal(gw_bpe *m);

/* byte_level: true if no two neighbours of the piece have a merge, so that its ids are those of its
 * bytes (but see `stranded`). */
static inline bool gw_bpe_unmerged(const gw_bpe *m, const uint8_t *piece, size_t n) {
    uint64_t any = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        unsigned pair = (unsigned)piece[i] << 8 | piece[i + 1];
        any |= m->byte_pairs[pair >> 6] >> (pair & 63);
    }
    return !(any & 1);
}

static inline uint64_t gw_bpe_pair_hash(uint64_t key) { return key * 0x9e3779b97f4a7c15u; }

static inline uint32_t gw_bpe_pair_home(const gw_bpe *m, uint64_t key) {
    return (uint32_t)(gw_bpe_pair_hash(key) >> 32) & (m->pairs_cap - 1);
}

/* The merge of a pair; most have none, which the filter knows without the table. */
static inline gw_bpe_merge gw_bpe_find(const gw_bpe *m, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t h = gw_bpe_pair_hash(key) >> (64 - m->maybe_bits);
    if (!(m->maybe[h >> 6] >> (h & 63) & 1)) return (gw_bpe_merge){GW_BPE_NO_RANK, -1};
    for (uint32_t i = gw_bpe_pair_home(m, key);; i = (i + 1) & (m->pairs_cap - 1)) {
        if (m->pairs[i].key == key) return (gw_bpe_merge){m->pairs[i].rank, m->pairs[i].id};
        if (m->pairs[i].key == UINT64_MAX) return (gw_bpe_merge){GW_BPE_NO_RANK, -1};
    }
}

typedef struct gw_bpe_scratch gw_bpe_scratch;
gw_bpe_scratch *gw_bpe_scratch_new(void);
void gw_bpe_scratch_free(gw_bpe_scratch *s);
/* Forgets cached words; called when the scratch meets another tokenizer. */
void gw_bpe_scratch_flush(gw_bpe_scratch *s);
int64_t gw_bpe_scratch_ops(const gw_bpe_scratch *s);
int64_t gw_bpe_scratch_bytes(const gw_bpe_scratch *s);

/* Appends the ids of one piece. O(n log n), n < 2^31. */
void gw_bpe_encode(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n, gw_ids *out);
/* Appends the ids of `count` pieces, base[bounds[k] .. bounds[k + 1]). base is readable for 16
 * bytes past the last bound. */
void gw_bpe_encode_pieces(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                          const uint32_t *bounds, int64_t count, gw_ids *out);

/* bpe_queue.c: merging of long pieces. */
typedef struct gw_bpe_queue gw_bpe_queue;
gw_bpe_queue *gw_bpe_queue_new(void);
void gw_bpe_queue_free(gw_bpe_queue *q);
int64_t gw_bpe_queue_bytes(const gw_bpe_queue *q);
/* Merges units[0..n), n < 2^31; returns how many ids are left in them. Adds to *ops. O(n log n). */
int64_t gw_bpe_queue_merge(const gw_bpe *m, gw_bpe_queue *q, int32_t *units, int64_t n,
                           int64_t *ops);
/* The same for units that are a few runs of one each; else -1, and the units are as they were. */
int64_t gw_bpe_merge_runs(const gw_bpe *m, int32_t *units, int64_t n, int64_t *ops);

#endif
