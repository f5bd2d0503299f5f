// SPDX-License-Identifier: Apache-2.0
// A run in memory: program, executor, data and counters, opened from a run file and perhaps a
// checkpoint. Training, generation and export all begin here.
//
// With several ranks each holds a session of the same run, and all call the same functions in the
// same order; what one finds wrong all return, and one of them says (gw_exec_agree).
#ifndef GW_TRAIN_SESSION_H
#define GW_TRAIN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "data/ledger.h"   /* gw_digest */
#include "data/loader.h"   /* gw_loader */
#include "data/tokens.h"   /* gw_tokens */
#include "run/exec.h"      /* gw_exec, gw_comm */
#include "ckpt/save.h"     /* gw_ckpt_save, gw_ckpt_tensor */
#include "train/cores.h"   /* gw_core_count */
#include "train/feed.h"    /* gw_feed */
#include "train/optimes.h" /* gw_optimes */
#include "train/ranks.h"   /* gw_ranks_table */
#include "train/scaler.h"  /* gw_scaler */
#include "train/lr.h"      /* gw_lr */
#include "train/setup.h"   /* gw_setup */
#include "train/slices.h"  /* gw_slices */

/* Held-out data and the forward program that measures it. */
typedef struct gw_session_valid {
    gw_exec *x; /* NULL: the run file has no data.valid */
    gw_tokens *data;
    int64_t samples, batches;                    /* of one validation */
    int32_t *tokens, *labels, *positions, *docs; /* [b s] */
    int64_t *ids;                                /* [b] */
    gw_slices slices;
    gw_ranks_table results;     /* of x */
    const gw_ranks_entry *loss; /* of these; NULL: x has logits */
    int32_t *token_bytes;       /* [vocab] bytes of text; NULL without a tokenizer */
    gw_feed feed; /* of a net for images, which has nothing of the above but x and counts */
} gw_session_valid;

typedef struct gw_session {
    gw_arena mem;
    gw_runfile *rf; /* borrowed; `auto` values are resolved in it */
    gw_setup setup;
    gw_core_count cores;            /* of all ranks; of a run that is opened for training */
    gw_compile_report report;       /* of the training program */
    gw_exec *x;                     /* the training program, or parameters alone */
    gw_ranks_table table;           /* what of the model lies where; of one stage all is here */
    gw_ckpt_tensor *tensors;        /* every parameter and state, those of other stages too */
    const gw_ranks_entry **entries; /* [ntensors]: which of the table */
    int ntensors;
    gw_comm *comm; /* borrowed; NULL on one rank */

    /* What follows is for training only. */
    gw_tokens *data;
    gw_feed feed;             /* of a net for images, instead of data and loader */
    gw_step_batch image_step; /* the latest, likewise */
    char data_hash[33];       /* hex; "" without data */
    char valid_hash[33];      /* likewise of data.valid */
    gw_loader *loader;
    gw_slices slices; /* of what it loads, this rank's part */
    bool counts_fed;  /* its rows are in the digest of a step: other ranks are fed the same */
    gw_digest fed;    /* of the rows that the present step's program has taken here */
    bool *fed_micro;  /* [train.accumulate]: which of its micro-batches these are */
    gw_session_valid valid;
    gw_lr lr;
    gw_scaler scaler;
    gw_optimes *times;
    const gw_ranks_entry *loss, *norm, *ok; /* results of a step; NULL: its program has none */
    int64_t step;                           /* updates done */
    int64_t batch;                          /* batches used */
    int64_t next_sample;                    /* at which the next batch begins */
    int64_t tokens;                         /* trained on */
    int64_t resumed;                        /* step of the checkpoint it began from; -1: none */
    int64_t saved;        /* step of the newest checkpoint, read or committed; -1: none */
    gw_ckpt_save *saving; /* one that is being written; NULL: none */
    gw_ckpt_keep *keep;   /* between saves; NULL before the first */
    char save_dir[4096];  /* where it goes: what gw_session_checkpoints says of the run */
    int64_t commits;      /* the newest commit it knows of, by number, and one; 0: not looked for */
    bool fresh;           /* where no checkpoint is whole the run begins anew; once resumed: it
                             did, beside others that its first save writes down to stay */
    /* Digests (session_probe.c): of the checkpoint it began from, and what makes new ones. */
    gw_ckpt_probe resumed_probe;
    bool spread_statistics;          /* running statistics are not those that were saved */
    gw_ckpt_conversion *conversions; /* [ntensors] of the latest load; NULL before the first */
    const char *resumed_path;
    struct gw_session_probe *probe; /* NULL: none is asked for, or there is no room for it */
    double probe_s;                 /* that the latest took */
    int64_t program_bytes;          /* Pss of the process before anything large was reserved */
    bool wants_stop;                /* this rank was asked to stop: the next step does not begin */
    bool dataless;                  /* opened to be saved, not to be trained */

    /* What this rank's steps have sent, and how often; counted by the transport. */
    gw_coll_traffic sent[GW_COLL_KIND_COUNT];
    gw_coll_traffic sent_rows; /* of the all-to-alls, rows of experts: as the load was */
    gw_coll_traffic sent_on;   /* to other stages */
    int64_t steps_run, comm_ns, comm_wait_ns;
    struct gw_session_rank *ranks;  /* [ranks], after gw_session_meet; NULL before */
    struct gw_session_ahead *ahead; /* of steps that wait for nobody; NULL: all do */
} gw_session;

/* One rank's figures, for the report. */
typedef struct gw_session_rank {
    int64_t planned_arena_bytes, arena_bytes, process_bytes, program_bytes;
    int64_t planned[2], sent[2];           /* payload and moved, of all steps */
    int64_t planned_rows[2], sent_rows[2]; /* of these, rows of experts: planned at even load */
    int64_t planned_on, sent_on;           /* to other stages, beside the above */
    int64_t comm_ns, comm_wait_ns, steps;
    /* Of a pipeline's rank: window, computing, waiting for and sending messages, of `acted` steps.
     */
    gw_optimes_span acted;
} gw_session_rank;

/* Opens a run for training. `run_dir` not NULL: continues from its newest checkpoint that is whole
 * and fits the run file; without any it begins anew. Changes of the run file that would make it
 * another function are refused by key (GW_ERR_CONFIG); others are said in the log. Memory is
 * reserved here. */
GW_WARN_UNUSED gw_status gw_session_open(gw_session *s, gw_runfile *rf, const char *run_dir,
                                         gw_comm *comm, gw_diags *dg);
/* The same; with `fresh` it begins anew, and says so, also where there are checkpoints and none of
 * them is whole. */
GW_WARN_UNUSED gw_status gw_session_open_or_begin(gw_session *s, gw_runfile *rf,
                                                  const char *run_dir, bool fresh, gw_comm *comm,
                                                  gw_diags *dg);
/* Opens the parameters alone, in the dtype in which the optimizer keeps them: from the newest whole
 * checkpoint of run_dir, or the one that run_dir names (RUN/checkpoints/step-00000040; an error
 * when there is none), or with NULL from model.path's weights or the seed. s->x holds them: for
 * gw_exec_opts.params_from and gw_weights_export. */
GW_WARN_UNUSED gw_status gw_session_open_params(gw_session *s, gw_runfile *rf, const char *run_dir,
                                                bool need_tokenizer, gw_diags *dg);
/* Opens everything that a checkpoint of the run file at step 0 holds, and no data: parameters from
 * model.path's weights or the seed, states as they begin. One rank. For gw_session_save. */
GW_WARN_UNUSED gw_status gw_session_open_state(gw_session *s, gw_runfile *rf, gw_diags *dg);
void gw_session_close(gw_session *s);

/* What one step did. */
typedef struct gw_session_step_result {
    bool stopped; /* a rank was asked to stop: no step was begun */
    bool skipped; /* float16: the gradient overflowed; state is as it was, `step` too */
    bool known;   /* the rest is there: of `step`, with which `tokens_so_far` were trained on */
    int64_t step, tokens_so_far;
    double loss; /* nats a label; NaN when no label was valid */
    double lr, norm, loss_scale;
    int64_t labels, tokens; /* of this step */
    double step_s, data_wait_s;
    double data_parts_s[GW_LOAD_CAUSES]; /* what the wait was for; zeros of images */
    /* The batch that it used: its number, samples [first, next), and the digest of the rows that
     * all ranks were fed (data/ledger.h; {0} of images). */
    int64_t batch, first_sample, next_sample, quarantined;
    gw_digest digest;
    /* This rank's time in collectives; the part during which it did nothing else; the part of that
     * in which it waited for others. */
    double comm_s, comm_exposed_s, comm_wait_s;
    /* Of a pipeline: the share of the step, from its first action to its last, in which a rank did
     * not compute, mean of all; rank 0's waiting for messages. NaN and 0 without one. */
    double bubble, pp_wait_s;
} gw_session_step_result;

/* One step, data included. Allocates nothing of ours. GW_ERR_NUMERIC when loss or gradient is not
 * finite and cannot be skipped: the step has then been run again with a check after each op, and
 * the error names the first op that produced it; state is that of the step before. */
GW_WARN_UNUSED gw_status gw_session_step(gw_session *s, gw_session_step_result *r, gw_diags *dg);

/* All ranks, once: from here on the steps of a pipeline with optimizer.norm deferred wait for
 * nobody. The results of one are then known (r->known) with the next call of gw_session_step, and a
 * request to stop is followed a step later. Of any other run this changes nothing. */
GW_WARN_UNUSED gw_status gw_session_go_ahead(gw_session *s, gw_diags *dg);
/* Waits for the results of the latest step, where they are not known yet: before whatever reads
 * parameters or counters. The step may have to be taken again, and may then be skipped or stopped,
 * as *r says. */
GW_WARN_UNUSED gw_status gw_session_settle(gw_session *s, gw_session_step_result *r, gw_diags *dg);
/* Ends it; part of gw_session_close. */
void gw_session_stay_behind(gw_session *s);

typedef struct gw_session_valid_result {
    double loss; /* nats a valid label; NaN when there is none */
    /* Bits a byte: the nats of all valid labels / ln 2 / the bytes of text of their tokens. A
     * special token (the end of a document) has no text: its nats count, its bytes do not. NaN
     * without a tokenizer. */
    double bpb;
    int64_t labels, bytes;
    double accuracy; /* of a net for images: the share whose likeliest class is right; else NaN */
    double seconds;
} gw_session_valid_result;

/* Measures the held-out set, or its first train.valid_batches micro-batches, in the order stored.
 * Works in the training program's temporaries; state is untouched. */
GW_WARN_UNUSED gw_status gw_session_validate(gw_session *s, gw_session_valid_result *r,
                                             gw_diags *dg);

/* Takes the state as it is for a checkpoint, which is written from then on while steps go on; one
 * that is still being written is waited for first. All ranks call it. */
GW_WARN_UNUSED gw_status gw_session_save_begin(gw_session *s, const char *run_dir, gw_diags *dg);
/* Commits what is being written once every rank's file is complete, and removes old checkpoints as
 * the run file says. `wait`: does not return before. All ranks call it; cheap where nothing is
 * being written. */
GW_WARN_UNUSED gw_status gw_session_save_poll(gw_session *s, bool wait, gw_diags *dg);
/* Both at once. */
GW_WARN_UNUSED gw_status gw_session_save(gw_session *s, const char *run_dir, gw_diags *dg);

/* Hash of all parameters, states and counters: equal for equal runs, whatever their layout. With
 * several ranks all call it; {0} where one fails. */
gw_hash128 gw_session_hash(const gw_session *s);
/* The whole of tensor i, row-major, into `out` on every rank where that is not NULL. All ranks call
 * it. */
GW_WARN_UNUSED gw_status gw_session_whole(const gw_session *s, int i, void *out, gw_diags *dg);

/* Every rank's figures to every rank: s->ranks. */
GW_WARN_UNUSED gw_status gw_session_meet(gw_session *s, gw_diags *dg);
/* Bytes that this rank is planned to send in one step, by kind. */
void gw_session_planned_traffic(const gw_session *s, gw_coll_traffic out[GW_COLL_KIND_COUNT]);

/* Bytes that were planned and are bound: the training arena, and that of validation where it does
 * not fit into the training temporaries. */
int64_t gw_session_planned_bytes(const gw_session *s);
int64_t gw_session_arena_bytes(const gw_session *s);

/* ---- resuming (session_resume.c) ---- */
/* Loads the newest whole checkpoint of run_dir into s->tensors and the counters. *found false:
 * there is none at all. */
GW_WARN_UNUSED gw_status gw_session_resume(gw_session *s, const char *run_dir, bool *found,
                                           gw_diags *dg);
/* Back to a checkpoint (the newest whole one of run_dir, or the one that run_dir names), in a
 * session that is open for training: from here on it is as one that was opened on it. What of a
 * step or of a save was under way is waited for, and the results of that step are lost. Judged as
 * at the opening; costs what reading costs. GW_ERR_CONFIG: it does not fit, and nothing was
 * changed; any other error: the state is undefined, close the session. All ranks call it.
 * (session_reload.c) */
GW_WARN_UNUSED gw_status gw_session_reload(gw_session *s, const char *run_dir, gw_diags *dg);
/* ---- a checkpoint's content (session_load.c) ---- */
/* Fills s->tensors from m, whatever wrote it and whatever floats it has; s->conversions says what
 * was of another one. GW_ERR_FORMAT: its bytes are not whole. */
GW_WARN_UNUSED gw_status gw_session_load_tensors(gw_session *s, const gw_ckpt_manifest *m,
                                                 gw_diags *dg);
/* GW_ERR_NUMERIC when an element has no number in the float that this run keeps it in. `path`: the
 * checkpoint's, to be named. Of this rank's elements. */
GW_WARN_UNUSED gw_status gw_session_judge_conversion(const gw_session *s, const char *path,
                                                     gw_diags *dg);
/* One line of what was converted, if anything was. All ranks call it. */
GW_WARN_UNUSED gw_status gw_session_tell_conversion(const gw_session *s, const gw_ckpt_manifest *m,
                                                    gw_diags *dg);
/* The scaler as the checkpoint has it where both runs scale, else as it begins. */
void gw_session_take_scale(gw_session *s, const gw_ckpt_meta *m);
/* ---- digests of the state (session_probe.c) ---- */
/* Makes what takes them, in the training temporaries, and compares those of the checkpoint that the
 * run began from: GW_ERR_FORMAT, what differs being named, when the state is not the one that was
 * saved. All ranks call each of these. */
GW_WARN_UNUSED gw_status gw_session_probe_open(gw_session *s, gw_diags *dg);
/* Compares them again, after another checkpoint was loaded. Nothing without a probe. */
GW_WARN_UNUSED gw_status gw_session_probe_check(gw_session *s, gw_diags *dg);
/* Of the state as it is; p->taken false where the run file asks for none. */
GW_WARN_UNUSED gw_status gw_session_probe_take(gw_session *s, gw_ckpt_probe *p, gw_diags *dg);
void gw_session_probe_close(gw_session *s);
/* ---- images (session_images.c) ---- */
/* Does the run train a net for images? */
bool gw_session_has_images(const gw_session *s);
GW_WARN_UNUSED gw_status gw_session_open_images(gw_session *s, gw_diags *dg);
/* The forward program has been made. */
void gw_session_plan_validation(gw_session *s);
/* The next step's samples, as the loader of tokens would describe them. */
const gw_step_batch *gw_session_next_images(gw_session *s);
/* This rank's part of micro-batch k of a step becomes the program's inputs. */
GW_WARN_UNUSED gw_status gw_session_write_images(gw_session *s, gw_exec *x, const gw_step_batch *b,
                                                 int64_t k, gw_diags *dg);
/* gw_session_validate of such a run. */
GW_WARN_UNUSED gw_status gw_session_judge_images(gw_session *s, gw_session_valid_result *r,
                                                 gw_diags *dg);
/* What its batch norms see, and what that means here; once, on rank 0. */
void gw_session_announce_norms(const gw_session *s);
/* ---- the run directory (session_dir.c) ---- */
/* Holds `dir`, which exists, for this process: GW_ERR_USAGE when another one does, which is named;
 * on another host too, where its latest gw_run_beat is not long ago. *lock is to be given to
 * gw_run_unlock (-1 on an error: nothing to do); the end of the process releases it too. */
GW_WARN_UNUSED gw_status gw_run_lock(const char *dir, int *lock, gw_diags *dg);
void gw_run_unlock(const char *dir, int lock);
/* Says that the holder lives, at most once in some seconds; *last_ns is its memory, 0 at first. */
void gw_run_beat(int lock, int64_t *last_ns);
/* The place of checkpoints, held besides the run directory where it is another: that of
 * checkpoint.dir, and the folder that a link named `checkpoints` leads to. {0}: nothing is held. */
enum { GW_RUN_PLACES = 2 };
typedef struct gw_run_hold {
    int n, lock[GW_RUN_PLACES];
    char *dir[GW_RUN_PLACES];
    int64_t beat_ns[GW_RUN_PLACES];
    struct gw_owner *owner; /* of an object store (train/owner.h), which renews itself */
} gw_run_hold;
/* run_dir is held by the caller. Takes what of `place` is there; called again, what has come since.
 * Errors as of gw_run_lock, with nothing more held than before. */
GW_WARN_UNUSED gw_status gw_run_hold_checkpoints(gw_run_hold *h, const char *run_dir,
                                                 const char *place, gw_diags *dg);
void gw_run_hold_beat(gw_run_hold *h);
/* GW_ERR_IO "checkpoint-taken" once another has taken over what was held. Cheap. */
GW_WARN_UNUSED gw_status gw_run_hold_check(const gw_run_hold *h, gw_diags *dg);
void gw_run_release(gw_run_hold *h);
/* Where checkpoints of a run are, as RUN_DIR of ckpt/checkpoint.h: checkpoint.dir, or run_dir. */
const char *gw_session_checkpoints(const gw_runfile *rf, const char *run_dir);
/* The same of a run directory whose run file is not at hand: as its config.yaml says. In `a`. */
const char *gw_session_checkpoints_of(const char *run_dir, gw_arena *a);
/* Removes temporary files of a run that was killed. For the holder of the lock. */
void gw_run_clean(const char *dir);
/* What a run directory keeps of what it began from, so that it can be read when that is gone: with
 * `always`, or where the run file's own path leads nowhere, model.path becomes RUN_DIR/model and
 * data.tokenizer RUN_DIR/tokenizer, if these exist. A path given by --set stays. */
void gw_session_use_copies(gw_runfile *rf, const char *run_dir, bool always);
/* Writes these copies, where they are not there or differ: config.json of the model that the run
 * begins from, and the files of its tokenizer. */
GW_WARN_UNUSED gw_status gw_session_keep_copies(const gw_runfile *rf, const char *run_dir,
                                                gw_diags *dg);
/* What the weights are, as words "key=value" for gw_ckpt_meta.model. */
const char *gw_session_model_words(const gw_session *s, gw_arena *a);

#endif
