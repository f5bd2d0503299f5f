// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a data set lie: documents in blocks.
//
// A set is a Megatron pair of files, a directory of MDS shards, either of these in an object store
// or behind HTTP, or an array in memory. Whatever it is, it is a list of blocks of documents: an
// MDS shard is a block, and a Megatron file is cut into blocks of whole documents. A block is taken
// in (mapped, fetched, checked, decompressed), read, and dropped; all of a set need never be here.
#ifndef GW_DATA_SHARDS_H
#define GW_DATA_SHARDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/hash.h"  /* gw_hash128 */

typedef struct gw_shards gw_shards;

/* What a loader's time goes to. */
typedef enum gw_load_cause {
    GW_LOAD_QUEUE,      /* nothing: it has prepared all it may, or nobody waits for it */
    GW_LOAD_SOURCE,     /* bytes on their way from disk or network, checking their hashes */
    GW_LOAD_DECOMPRESS, /* zstd */
    GW_LOAD_DECODE,     /* laying out documents, filling rows */
    GW_LOAD_CAUSES
} gw_load_cause;

/* A stopwatch with a hand for each cause; one thread changes the cause, any may read. */
typedef struct gw_load_clock {
    _Atomic int64_t ns[GW_LOAD_CAUSES], since;
    atomic_int cause;
} gw_load_clock;
void gw_load_clock_init(gw_load_clock *c);
/* Returns the cause before. NULL is no clock. */
gw_load_cause gw_load_clock_enter(gw_load_clock *c, gw_load_cause cause);
void gw_load_clock_read(gw_load_clock *c, int64_t ns[GW_LOAD_CAUSES]);

/* Zero in any field means the default. */
typedef struct gw_shards_options {
    int64_t block_tokens; /* of a block of a Megatron file or of memory, about; 4 Mi */
    int32_t vocab_size;   /* an id outside [0, vocab_size) is an error; 0: no check */
    const char *column; /* of MDS: NULL is tokens, input_ids, or the only array of whole numbers */
    bool no_verify;     /* do not check hashes of shards as they are taken in, nor sums of a .bin */
    const char *cache_dir; /* local copies of what comes over the network; NULL: none */
    int64_t cache_bytes;   /* limit of that directory; 0: no limit */
    int64_t held;          /* blocks that are in at the same time, at most; 32 */
} gw_shards_options;

/* A path or URL: a directory (or prefix of keys) with index.json is MDS, anything else the prefix
 * of a Megatron pair, with or without .bin or .idx. *out is closed with gw_shards_close. */
GW_WARN_UNUSED gw_status gw_shards_open(const char *path, const gw_shards_options *o,
                                        gw_shards **out, gw_diags *dg);
/* `tokens` are borrowed; document d is [ends[d-1], ends[d]). */
gw_shards *gw_shards_open_memory(const int32_t *tokens, const int64_t *ends, int64_t documents,
                                 const gw_shards_options *o);
void gw_shards_close(gw_shards *s);
void gw_shards_set_clock(gw_shards *s, gw_load_clock *clock); /* NULL: none */

const char *gw_shards_name(const gw_shards *s);
const char *gw_shards_format(const gw_shards *s); /* "megatron", "mds", "memory" */
int64_t gw_shards_documents(const gw_shards *s);  /* with empty ones */
int64_t gw_shards_blocks(const gw_shards *s);
int64_t gw_shards_bytes(const gw_shards *s); /* host memory of tables */
/* Identifies the data. Of Megatron files and memory: the length of every document, and tokens at
 * 4,096 places spread evenly from the first to the last (all of them in a set of at most 65,536);
 * over the network the lengths alone. Of MDS: what the index says of each shard (samples, bytes,
 * hashes). A change that leaves all that as it was is not seen. */
gw_hash128 gw_shards_hash(gw_shards *s);
/* GW_ERR_IO when a mapped file has become shorter since it was opened: reading beyond its end would
 * end the process. Allocates nothing unless it fails. */
GW_WARN_UNUSED gw_status gw_shards_check(const gw_shards *s, gw_diags *dg);

/* ---- documents, where all of them can be reached at any time ---- */

bool gw_shards_has_documents(const gw_shards *s); /* Megatron files on this machine; memory */
int64_t gw_shards_doc_tokens(const gw_shards *s, int64_t d);
GW_WARN_UNUSED gw_status gw_shards_doc_read(const gw_shards *s, int64_t d, int64_t first, int64_t n,
                                            int32_t *out, gw_diags *dg);

/* Are the bytes of document d as they were written, as far as sums beside them tell? Each MiB is
 * hashed once. GW_ERR_FORMAT (data-checksum) names file and offset. What gw_shards_doc_read gives
 * is not checked by itself; blocks are when they are taken in. */
GW_WARN_UNUSED gw_status gw_shards_doc_check(const gw_shards *s, int64_t d, gw_diags *dg);
int64_t gw_shards_damages(const gw_shards *s); /* MiBs of a Megatron file found damaged so far */

/* ---- blocks ---- */

/* Tokens of block b: from what the index says, or by reading as little as can be (of an MDS shard
 * without a count of tokens its table of offsets; all of it where it is compressed). */
GW_WARN_UNUSED gw_status gw_shards_measure(gw_shards *s, int64_t b, int64_t *tokens, gw_diags *dg);
/* Samples of the block, empty ones included. */
int64_t gw_shards_block_docs(const gw_shards *s, int64_t b);
/* Begins to bring block b; never waits. */
GW_WARN_UNUSED gw_status gw_shards_want(gw_shards *s, int64_t b, gw_diags *dg);
/* Has block b in: *ends is the running sum of its documents' lengths, valid until it is dropped.
 * GW_ERR_FORMAT: its bytes are damaged, at the source too. */
GW_WARN_UNUSED gw_status gw_shards_take(gw_shards *s, int64_t b, const int64_t **ends,
                                        int64_t *docs, gw_diags *dg);
/* The same for lengths alone: what is not needed for them is not fetched. To be dropped before the
 * block is taken. */
GW_WARN_UNUSED gw_status gw_shards_lengths(gw_shards *s, int64_t b, const int64_t **ends,
                                           int64_t *docs, gw_diags *dg);
bool gw_shards_ready(const gw_shards *s, int64_t b); /* would taking it wait for no network? */
void gw_shards_drop(gw_shards *s, int64_t b);
/* Tokens [at, at + n) of a block that is in, its documents end to end. An id outside the
 * vocabulary is an error. */
GW_WARN_UNUSED gw_status gw_shards_read(gw_shards *s, int64_t b, int64_t at, int64_t n,
                                        int32_t *out, gw_diags *dg);

#endif
