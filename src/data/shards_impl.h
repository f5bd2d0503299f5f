// SPDX-License-Identifier: Apache-2.0
// The inside of data/shards.h, for shards*.c alone: what each kind of set does.
#ifndef GW_DATA_SHARDS_IMPL_H
#define GW_DATA_SHARDS_IMPL_H

#include "base/io.h"           /* gw_mapping */
#include "data/shards.h"       /* gw_shards_options */
#include "data/shards_sums.h"  /* gw_shard_sums */
#include "file/fetch.h"        /* gw_fetch, gw_store */
#include "file/mds.h"          /* gw_mds_index */
#include "file/megatron_idx.h" /* gw_midx */

typedef struct gw_block {
    int64_t first_doc, docs, tokens; /* tokens -1: not known yet */
    int64_t *ends;                   /* [docs] while it is in; NULL otherwise */
    int64_t *at;                     /* [docs] MDS: byte of each document's first token */
    const uint8_t *bytes;            /* of the block; Megatron over the network: from byte `base` */
    int64_t base;
    gw_mds_element element; /* MDS */
    gw_mapping map;         /* one of these three holds the bytes, or none */
    uint8_t *raw;
    gw_fetch_block fetched;
    gw_fetch_ticket ticket; /* 0: not wanted */
} gw_block;

/* What a kind of set knows how to do; no slot is NULL. */
typedef struct gw_shards_kind {
    const char *format;
    bool documents; /* any document at any time */
    gw_status (*measure)(gw_shards *s, int64_t b, gw_diags *dg);
    gw_status (*want)(gw_shards *s, int64_t b, gw_diags *dg);
    gw_status (*take)(gw_shards *s, int64_t b, gw_diags *dg);    /* fills ends */
    gw_status (*lengths)(gw_shards *s, int64_t b, gw_diags *dg); /* that alone, if it can */
    gw_status (*read)(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out, gw_diags *dg);
    int64_t (*doc_tokens)(const gw_shards *s, int64_t d);
    void (*add_hash)(gw_shards *s, gw_hasher *h);
} gw_shards_kind;

struct gw_shards {
    const gw_shards_kind *kind;
    gw_shards_options opt;
    gw_arena mem;
    const char *name;
    gw_load_clock *clock;
    int64_t documents, nblocks;
    gw_block *blocks;
    struct {
        int fd; /* -1 = none */
        int64_t bytes;
    } watched[2]; /* .bin and .idx */
    /* Megatron */
    gw_midx *midx;
    gw_str idx;          /* the index, where it came over the network */
    gw_shard_sums *sums; /* of the .bin, or NULL */
    /* memory */
    const int32_t *memory;
    const int64_t *memory_ends;
    /* MDS */
    gw_mds_index index;
    int column;
    /* over the network */
    gw_store *store;
    gw_fetch *fetch;
    const char *key; /* of a Megatron .bin, or NULL */
};

extern const gw_shards_kind gw_shards_mds, gw_shards_megatron, gw_shards_megatron_far,
    gw_shards_memory;

GW_WARN_UNUSED gw_status gw_shards_open_mds(gw_shards *s, const char *path, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_shards_open_megatron(gw_shards *s, const char *path, gw_diags *dg);
/* Opens s->store at `url`, and the fetch with room for the blocks that are held. */
GW_WARN_UNUSED gw_status gw_shards_open_store(gw_shards *s, const char *url, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_shards_open_fetch(gw_shards *s, int64_t largest, gw_diags *dg);
/* The first id outside the vocabulary is an error; `doc` and `first` name its place. */
GW_WARN_UNUSED gw_status gw_shards_check_ids(const gw_shards *s, const int32_t *ids, int64_t n,
                                             int64_t doc, int64_t first, gw_diags *dg);
/* Of sets whose lengths are all known: blocks of whole documents, about block_tokens each; the
 * table's functions that have nothing to fetch; the hash by lengths and probes. */
void gw_shards_cut(gw_shards *s);
gw_status gw_shards_sum_ends(gw_shards *s, int64_t b, gw_diags *dg);
gw_status gw_shards_want_nothing(gw_shards *s, int64_t b, gw_diags *dg);
gw_status gw_shards_measured(gw_shards *s, int64_t b, gw_diags *dg);
void gw_shards_add_documents(gw_shards *s, gw_hasher *h);
/* The document of block b that holds token `at`. */
int64_t gw_block_doc_at(const gw_block *k, int64_t at);

#endif
