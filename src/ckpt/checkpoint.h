// SPDX-License-Identifier: Apache-2.0
// Checkpoints: DIR/checkpoints/step-00000100/{rank-00000.safetensors, manifest.json}.
//
// Every rank writes its share of the state into a file of its own (ckpt/plan.h says which, ckpt/
// datafile.h how). The manifest maps every chunk (a piece of a tensor, a file) to its tensor and
// carries everything else that a run is made of, the hash of each file's index, and one of itself.
// Its arrival is the commit: it is written last, by rank 0, to a temporary name, synced, renamed.
// A folder without one is torn: the leftover of a save that did not finish. "Latest" is found by
// reading, never stored: of the complete ones that of the highest commit number. A folder is
// believed only when its name, its manifest and its data tell the same step.
//
// What did not change since the commit before is not written again: the manifest names the file of
// the older checkpoint that has it, with that file's index. So a checkpoint may need files of older
// folders; removing keeps them while a manifest that stays refers to them. ckpt/save.h writes
// checkpoints; all else is here.
//
// RUN_DIR is where a run's folder `checkpoints` stands; ckpt/place.h says what else than a
// directory that may be.
#ifndef GW_CKPT_CHECKPOINT_H
#define GW_CKPT_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/hash.h"  /* gw_hash128 */
#include "ckpt/box.h"   /* gw_box, gw_piece */
#include "ckpt/kept.h"  /* gw_ckpt_kept */
#include "ir/graph.h"   /* gw_type, gw_mesh */

/* Written; and the oldest that is read (version 3 has neither references nor a probe). */
enum { GW_CHECKPOINT_VERSION = 4, GW_CHECKPOINT_OLDEST = 3 };

/* What a load found where it took elements of another float (ckpt/precision.h). */
typedef struct gw_ckpt_conversion {
    bool done;                    /* the checkpoint has another dtype */
    gw_dtype from;                /* that one */
    int64_t overflowed, vanished; /* elements here: finite ones become infinite; become 0 */
    uint64_t digest;              /* gw_ckpt_digest of this rank's part as the checkpoint has it */
} gw_ckpt_conversion;

/* A tensor, or this rank's part of one, dense and row-major at `data`. */
typedef struct gw_ckpt_tensor {
    const char *name;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS]; /* of the whole tensor */
    gw_box box;                /* where `type` is NULL: what stands at `data` */
    void *data;
    const gw_type *type; /* NULL, or the placement by which the ranks of `mesh` hold it */
    const gw_mesh *mesh;
    int64_t rank;
    /* Of a pipeline: the lowest of its ranks that has it, and whether it is elsewhere alone, with
     * nothing at `data`. */
    int home;
    bool away;
    /* Nothing changes it: where a sample says so too, it is not hashed to be referred to. */
    bool frozen;
    /* Of a load. NULL: the checkpoint's dtype must be this one. Otherwise another float is taken
     * too, rounded to nearest even, and this says what came of it. */
    gw_ckpt_conversion *as;
} gw_ckpt_tensor;

/* Digests of a state, to be made again after a load. The sums are of logits on fixed tokens, each
 * of all logits of some ids, with signs (train/session_probe.c). */
enum { GW_CKPT_SUMS = 256 };
typedef struct gw_ckpt_probe {
    bool taken;
    uint64_t weights, states; /* gw_ckpt_digest of parameters; of all other tensors */
    int sums;                 /* GW_CKPT_SUMS, or 0: none were taken */
    double sum[GW_CKPT_SUMS];
    double spread;    /* how large such a sum of such logits is, at random signs */
    const char *bits; /* a hash of what the sums' bits hang on besides the state, or "" */
    int64_t tokens;   /* of each sequence that the logits are of */
    bool half;        /* products were in sixteen bits or fewer */
} gw_ckpt_probe;

/* Everything but tensors. Strings are borrowed on save (NULL is ""), in the arena after a read.
 */
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
    gw_ckpt_probe probe;
    int64_t number;   /* of this commit in its run, from 1; 0 on save: one more than the newest */
    const char *time; /* of the commit, ISO 8601 */
} gw_ckpt_meta;

/* A piece of a tensor in a file. Where it stands there, and its hashes, is in the file's index
 * (ckpt/datafile.h). */
typedef struct gw_ckpt_chunk {
    int file; /* index into gw_ckpt_manifest.files */
    gw_piece piece;
} gw_ckpt_chunk;

typedef struct gw_ckpt_chunks {
    gw_ckpt_chunk *items;
    int n;
} gw_ckpt_chunks;

typedef struct gw_ckpt_entry_tensor {
    const char *name;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS];
    const gw_ckpt_chunks *chunks; /* disjoint, and together the whole */
} gw_ckpt_entry_tensor;

typedef struct gw_ckpt_file {
    const char *name;   /* a plain one */
    const char *folder; /* NULL: the checkpoint's own; or that of an older one, a plain name */
    int64_t step;       /* of the state it holds */
    int64_t bytes;
    gw_hash128 index; /* of its header and its table of hashes */
} gw_ckpt_file;

typedef struct gw_ckpt_manifest {
    const char *path; /* of the folder */
    /* NULL, or the folder in which it really stands, where `path` alone does not tell (".", a
     * link): what it refers to is looked for there first. */
    const char *beside;
    gw_ckpt_meta meta;
    const char *plan; /* hash of who wrote what, in hex */
    gw_ckpt_file *files;
    int nfiles;
    gw_ckpt_entry_tensor *tensors;
    int ntensors;
} gw_ckpt_manifest;

typedef enum gw_ckpt_state {
    GW_CKPT_COMPLETE, /* has a manifest that reads as one of ours, and each file that it names, its
                       * own or an older one's, is there with its size */
    GW_CKPT_TORN,     /* has no manifest */
    GW_CKPT_DAMAGED,  /* has one that does not read, or has lost a file */
    GW_CKPT_HELD, /* has none, and files that complete ones refer to: it was removed but these */
} gw_ckpt_state;

typedef struct gw_ckpt_found {
    int64_t step;
    int64_t number; /* of the commit; 0 where no manifest reads */
    const char *path;
    gw_ckpt_state state;
    const char *why; /* of a damaged or held one */
    bool newer;      /* damaged: of a format version that is not read */
    bool bare;       /* torn: all its data files are finished; only the manifest is missing */
    bool stays;      /* kept.json says so (ckpt/kept.h): nothing removes it */
    const gw_ckpt_manifest *manifest; /* NULL where none reads */
} gw_ckpt_found;

/* Those whose manifest reads by the number of their commit, the newest first; the others each
 * before the first such one of a lower step. */
typedef struct gw_ckpt_list {
    gw_ckpt_found *items;
    int n;
    gw_ckpt_kept kept;      /* what stays whatever is saved */
    const char *kept_fault; /* NULL, or why that is not known */
} gw_ckpt_list;

/* Removes complete checkpoints but the `keep_last` newest by the number of their commit (0: all
 * stay) and those whose step `keep_every` divides (0: none); with them those that were moved aside
 * as NAME.replaced-N, and torn folders older than the newest complete one that hold nothing but
 * files a save writes. `busy`: a step that is being saved, whose folder is left alone; -1: none.
 * Files that a manifest that stays refers to stay with it, wherever they are. One that has lost a
 * file does not count among the newest. Damaged and foreign folders, and files we did not write,
 * are left alone, and so is what kept.json names, which takes nobody's place either; where a
 * manifest is of a version that is not read, or kept.json does not read, nothing is removed. No
 * other process may save into run_dir at the same time: the caller holds the run. */
GW_WARN_UNUSED gw_status gw_checkpoint_prune(const char *run_dir, int64_t keep_last,
                                             int64_t keep_every, int64_t busy, gw_diags *dg);

/* What is in RUN_DIR/checkpoints; an absent folder is an empty list. */
GW_WARN_UNUSED gw_status gw_checkpoint_list(const char *run_dir, gw_arena *a, gw_ckpt_list *out,
                                            gw_diags *dg);
/* The same of what was moved aside there as NAME.replaced-N, which no resume looks at; each by its
 * own commit. `kept` is the listing's. */
GW_WARN_UNUSED gw_status gw_checkpoint_list_replaced(const char *run_dir, gw_arena *a,
                                                     const gw_ckpt_kept *kept, gw_ckpt_list *out,
                                                     gw_diags *dg);
/* Reads and validates a manifest: any bytes are safe. `path` is the checkpoint's folder.
 * GW_ERR_UNSUPPORTED: of another format version; GW_ERR_FORMAT: damaged. */
GW_WARN_UNUSED gw_status gw_checkpoint_read(const char *path, gw_arena *a, gw_ckpt_manifest **out,
                                            gw_diags *dg);
/* What a load read. */
typedef struct gw_ckpt_loaded {
    int64_t bytes_read, bytes_taken; /* of blocks; of elements that the targets hold */
    int files;                       /* opened */
} gw_ckpt_loaded;
/* Fills `tensors` by name, whatever layout wrote them: of the chunks that meet theirs the blocks
 * that are needed are read (one aside at a time), each believed only with its hash; elements of
 * another float are converted where a tensor asks for it. Tensors that
 * are away, and those the checkpoint has besides, are passed over; all that are missing are named
 * in one error. `loaded` may be NULL. On an error (GW_ERR_FORMAT: file, tensor and offset are
 * named) the tensors' bytes are undefined. */
GW_WARN_UNUSED gw_status gw_checkpoint_load(const gw_ckpt_manifest *m,
                                            const gw_ckpt_tensor *tensors, int n,
                                            gw_ckpt_loaded *loaded, gw_diags *dg);
/* The same in several calls, between which files stay open. m is borrowed. */
typedef struct gw_ckpt_loader gw_ckpt_loader;
GW_WARN_UNUSED gw_status gw_ckpt_loader_open(gw_ckpt_loader **out, const gw_ckpt_manifest *m,
                                             gw_diags *dg);
GW_WARN_UNUSED gw_status gw_ckpt_loader_load(gw_ckpt_loader *l, const gw_ckpt_tensor *tensors,
                                             int n, gw_diags *dg);
void gw_ckpt_loader_close(gw_ckpt_loader *l); /* NULL is fine */
/* Reads every byte of a checkpoint and compares: *faults gets the number of damaged blocks and
 * missing files, each with its line in dg (GW_ERR_FORMAT when there are any). */
GW_WARN_UNUSED gw_status gw_checkpoint_verify(const gw_ckpt_manifest *m, int64_t *faults,
                                              gw_diags *dg);

/* Writes a manifest (with plan, files, tensors) as JSON and commits it under m->path. */
GW_WARN_UNUSED gw_status gw_checkpoint_commit(const gw_ckpt_manifest *m, gw_diags *dg);
/* What a read would refuse of the counters is refused here, before anything is written. */
GW_WARN_UNUSED gw_status gw_checkpoint_check(const gw_ckpt_meta *m, gw_diags *dg);

/* Where a file of m stands. One that is referred to stands beside the checkpoint's folder. */
const char *gw_checkpoint_file_path(const gw_ckpt_manifest *m, int file, gw_arena *a);
/* RUN_DIR/checkpoints */
const char *gw_checkpoint_home(const char *run_dir, gw_arena *a);
/* The part of a tensor's digest that this rank has to tell: the sum, modulo 2^64, over a sample of
 * the elements (every GW_CKPT_STRIDE-th of the whole tensor) of a mix of name, index and bits; 0
 * where another rank tells of the same elements. Sums over ranks and tensors are one number for
 * one state, whatever the layout. */
enum { GW_CKPT_STRIDE = 61 };
uint64_t gw_ckpt_digest(const gw_ckpt_tensor *t);
/* What n consecutive elements add to it, were they of `dtype`: those from the `at`-th of a piece of
 * t on. */
uint64_t gw_ckpt_digest_part(const gw_ckpt_tensor *t, const gw_piece *p, int64_t at, gw_dtype dtype,
                             const void *data, int64_t n);
/* Is this rank the one that tells of the elements that it holds? */
bool gw_ckpt_tells(const gw_ckpt_tensor *t);

/* XXH3-128 of a manifest without its member "manifest_xxh128": of its compact form, keys sorted. */
gw_hash128 gw_checkpoint_manifest_hash(const json_t *manifest);

/* "step-00000100": at least eight digits, and no more zeros than that takes; -1 for any other. */
int64_t gw_checkpoint_step_of_name(const char *name);

#endif
