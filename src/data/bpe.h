// SPDX-License-Identifier: Apache-2.0
// The BPE model: from one piece of text to ids, by merges in order of rank.
#ifndef GW_DATA_BPE_H
#define GW_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"       /* gw_smap */
#include "data/tokenizer.h" /* gw_ids */

typedef struct gw_bpe_pair {
    uint64_t key; /* left id << 32 | right id; UINT64_MAX = free */
    uint32_t rank;
    int32_t id; /* what the pair becomes */
} gw_bpe_pair;

/* Filled by the readers of files, then constant. */
typedef struct gw_bpe {
    gw_bpe_pair *pairs; /* open addressing; capacity a power of two */
    uint32_t pairs_cap, pairs_count;
    gw_smap
        lookup; /* unit or whole piece -> id; keys are raw bytes if byte_level, else file text */
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
    int32_t byte_id[256];        /* byte_level: the id of a byte; -1 = none */
    int32_t fallback_id[256];    /* byte_fallback: the id of <0xNN>; -1 = none */
    int32_t unk;                 /* -1 = none */
    const char *prefix, *suffix; /* of a unit not first, not last; "" if none. Borrowed */
} gw_bpe;

void gw_bpe_init(gw_bpe *m);
void gw_bpe_release(gw_bpe *m);
/* A later merge of the same pair replaces the earlier one. */
void gw_bpe_add_merge(gw_bpe *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

typedef struct gw_bpe_scratch gw_bpe_scratch;
gw_bpe_scratch *gw_bpe_scratch_new(void);
void gw_bpe_scratch_free(gw_bpe_scratch *s);
/* Forgets cached words; called when the scratch meets another tokenizer. */
void gw_bpe_scratch_flush(gw_bpe_scratch *s);
int64_t gw_bpe_scratch_ops(const gw_bpe_scratch *s);
int64_t gw_bpe_scratch_bytes(const gw_bpe_scratch *s);

/* Appends the ids of one piece. O(n log n), n < 2^31. */
void gw_bpe_encode(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n, gw_ids *out);

#endif
