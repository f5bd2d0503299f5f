// SPDX-License-Identifier: Apache-2.0
// A shard is one function: local index -> global index, along one dimension cut in n parts.
//
// Everything that depends on position, and the RNG, goes through it. Kinds:
//   chunk   ceil-divided contiguous parts; the last ones short or empty
//   zigzag  2n chunks; part i holds chunks i and 2n-1-i (equal causal work per part)
//   flat    the flattened tensor in balanced contiguous parts (sizes differ by at most one)
//   ragged  contiguous parts of given sizes
//   layer   whole matrices of a stack, matrix j belongs to part j mod n
#ifndef GW_IR_SHARD_H
#define GW_IR_SHARD_H

#include <stdint.h>

typedef enum gw_shard_kind {
    GW_SHARD_CHUNK,
    GW_SHARD_ZIGZAG,
    GW_SHARD_FLAT,
    GW_SHARD_RAGGED,
    GW_SHARD_LAYER,
    GW_SHARD_KIND_COUNT
} gw_shard_kind;

typedef struct gw_shard {
    gw_shard_kind kind;
    int64_t size;          /* global length */
    int64_t parts, part;   /* this part of how many */
    const int64_t *counts; /* ragged only: `parts` lengths, summing to size */
} gw_shard;

/* Elements that this part holds. */
int64_t gw_shard_length(const gw_shard *s);
/* Global index of local element i (0 <= i < length). */
int64_t gw_shard_global(const gw_shard *s, int64_t i);
/* Which part holds global element g, and where; returns the part. */
int64_t gw_shard_owner(const gw_shard *s, int64_t g, int64_t *local);
/* The part as maximal contiguous runs of global indices: number of runs, and run r. */
int64_t gw_shard_runs(const gw_shard *s);
void gw_shard_run(const gw_shard *s, int64_t r, int64_t *global_first, int64_t *count);
const char *gw_shard_kind_name(gw_shard_kind k);

#endif
