// SPDX-License-Identifier: Apache-2.0
// Checkpoints: DIR/checkpoints/step-00000100/{rank-00000.safetensors, manifest.json}.
//
// The manifest maps every chunk (a box of a tensor, a file, a byte range, a hash) to its tensor and
// carries everything else that a run is made of, and a hash of itself. Its arrival is the commit:
// it is written last, to a temporary name, synced, renamed. A folder without one is torn: the
// leftover of a save that did not finish. "Latest" is found by reading, never stored; a folder is
// believed only when its name, its manifest and its data tell the same step.
#ifndef GW_TRAIN_CHECKPOINT_H
#define GW_TRAIN_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/hash.h"  /* gw_hash128 */
#include "ir/dtype.h"   /* gw_dtype */
#include "ir/graph.h"   /* GW_MAX_DIMS */

enum { GW_CHECKPOINT_VERSION = 2 };

/* A range of indices in each dimension: start, and size >= 0. */
typedef struct gw_box {
    int ndim;
    int64_t start[GW_MAX_DIMS], size[GW_MAX_DIMS];
} gw_box;

/* A tensor, or this rank's part of one, dense and row-major at `data`: a box, or what a placement
 * leaves a rank. */
typedef struct gw_ckpt_tensor {
    const char *name;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS]; /* of the whole tensor */
    gw_box box;                /* what stands at `data`; of one in parts, the whole */
    void *data;
    const gw_type *parts; /* NULL, or the type by which the ranks of `mesh` have parts */
    const gw_mesh *mesh;
    int64_t rank;
    /* Of a pipeline: the lowest of its ranks that has it, and whether it is elsewhere alone, with
     * nothing at `data`. */
    int home;
    bool away;
} gw_ckpt_tensor;

/* Where a save takes the elements of a tensor from that is in parts, or whose home is not 0: all of
 * them, row-major, valid until the next call. Called once for each such tensor, in order. */
typedef struct gw_ckpt_source {
    gw_status (*whole)(void *user, int tensor, const void **elements, gw_diags *dg);
    void *user;
} gw_ckpt_source;

/* Everything but tensors. Strings are borrowed on save, in the arena after a read. */
typedef struct gw_ckpt_meta {
    int64_t step;        /* updates done */
    int64_t batch;       /* batches used, skipped ones included */
    int64_t next_sample; /* global sample number at which the next batch begins */
    int64_t tokens;      /* trained on */
    double loss_scale;   /* 1 without scaling */
    int64_t good_steps, bad_steps;
    int64_t seed;
    const char *tokenizer; /* hash in hex, or "" */
    const char *data;      /* hash of the training data, or "" */
    const char *valid;     /* hash of the validation data, or "" */
    const char *model;     /* what the weights are, as text that two equal models share */
    int64_t threads;       /* what bits hang on besides */
    const char *isa;
    const char *config; /* the resolved run file, YAML */
    int64_t number;     /* of this commit in its run, from 1; 0 on save: one more than the newest */
    const char *time;   /* of the commit, ISO 8601 */
} gw_ckpt_meta;

typedef struct gw_ckpt_chunk {
    gw_box box;
    int file; /* index into gw_ckpt_manifest.files */
    int64_t offset, bytes;
    gw_hash128 hash; /* XXH3-128 of the bytes */
} gw_ckpt_chunk;

typedef struct gw_ckpt_entry_tensor {
    const char *name;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS];
    gw_ckpt_chunk *chunks;
    int nchunks;
} gw_ckpt_entry_tensor;

typedef struct gw_ckpt_manifest {
    const char *path; /* of the folder */
    gw_ckpt_meta meta;
    const char **files; /* plain names */
    int nfiles;
    gw_ckpt_entry_tensor *tensors;
    int ntensors;
} gw_ckpt_manifest;

typedef enum gw_ckpt_state {
    GW_CKPT_COMPLETE, /* has a manifest that reads as one of ours */
    GW_CKPT_TORN,     /* has none */
    GW_CKPT_DAMAGED,  /* has one that does not read */
} gw_ckpt_state;

typedef struct gw_ckpt_found {
    int64_t step;
    const char *path;
    gw_ckpt_state state;
    const char *why; /* of a damaged one */
} gw_ckpt_found;

typedef struct gw_ckpt_list {
    gw_ckpt_found *items; /* newest first */
    int n;
} gw_ckpt_list;

/* Saves into RUN_DIR/checkpoints. On an error the folder of this step has no manifest (what was
 * written into it is removed) and all others are as they were. A folder of the same step that has
 * one is moved aside to NAME.replaced-N, never overwritten. Holds no copy of the tensors. */
GW_WARN_UNUSED gw_status gw_checkpoint_save(const char *run_dir, const gw_ckpt_meta *meta,
                                            const gw_ckpt_tensor *tensors, int n, gw_diags *dg);
/* The same where some tensors are in parts or elsewhere; `source` may be NULL where none is. What
 * is written is the same file as one rank's. */
GW_WARN_UNUSED gw_status gw_checkpoint_save_from(const char *run_dir, const gw_ckpt_meta *meta,
                                                 const gw_ckpt_tensor *tensors, int n,
                                                 const gw_ckpt_source *source, gw_diags *dg);
/* Removes the oldest complete checkpoints beyond the newest `keep` (0: all stay), with them those
 * that were moved aside as NAME.replaced-N, and torn folders older than the newest complete one
 * that hold nothing but files a save writes. Damaged and foreign folders, and files we did not
 * write, are left alone. No other process may save into run_dir at the same time. */
GW_WARN_UNUSED gw_status gw_checkpoint_prune(const char *run_dir, int64_t keep, gw_diags *dg);

/* What is in RUN_DIR/checkpoints; an absent folder is an empty list. */
GW_WARN_UNUSED gw_status gw_checkpoint_list(const char *run_dir, gw_arena *a, gw_ckpt_list *out,
                                            gw_diags *dg);
/* Reads and validates a manifest: any bytes are safe. `path` is the checkpoint's folder.
 * GW_ERR_UNSUPPORTED: of another format version; GW_ERR_FORMAT: damaged. */
GW_WARN_UNUSED gw_status gw_checkpoint_read(const char *path, gw_arena *a, gw_ckpt_manifest **out,
                                            gw_diags *dg);
/* Fills `tensors` by name from the chunks whose boxes meet theirs; each chunk's hash is checked as
 * it is read. Tensors that are away, and those the checkpoint has besides, are passed over. On an
 * error (GW_ERR_FORMAT: file, tensor and offset are named) the tensors' bytes are undefined. */
GW_WARN_UNUSED gw_status gw_checkpoint_load(const gw_ckpt_manifest *m,
                                            const gw_ckpt_tensor *tensors, int n, gw_diags *dg);

/* XXH3-128 of a manifest without its member "manifest_xxh128": of its compact form, keys sorted. */
gw_hash128 gw_checkpoint_manifest_hash(const json_t *manifest);

/* "step-00000100"; -1 for any other name. */
int64_t gw_checkpoint_step_of_name(const char *name);

/* ---- boxes (checkpoint_box.c) ---- */
/* The whole of a tensor. */
gw_box gw_box_whole(int ndim, const int64_t *dims);
int64_t gw_box_elems(const gw_box *b);
bool gw_box_equal(const gw_box *a, const gw_box *b);
/* False when they do not meet. Both have the same ndim. */
bool gw_box_meet(const gw_box *a, const gw_box *b, gw_box *out);
/* Copies the elements [first, first + count) of the flattened tensor that `from` holds, to where
 * they belong in `dst`, which holds that run. Returns how many. */
int64_t gw_box_copy_run(void *dst, int64_t first, int64_t count, const int64_t *dims,
                        const void *src, const gw_box *from, int64_t elem_bytes);
/* Copies the elements of `part` (inside both) from a dense array of box `from` to one of box `to`.
 */
void gw_box_copy(void *dst, const gw_box *to, const void *src, const gw_box *from,
                 const gw_box *part, int64_t elem_bytes);

#endif
