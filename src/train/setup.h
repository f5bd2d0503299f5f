// SPDX-License-Identifier: Apache-2.0
// From a run file to everything a command needs: model, tokenizer, compile options, programs.
#ifndef GW_TRAIN_SETUP_H
#define GW_TRAIN_SETUP_H

#include "comm/comm.h"       /* gw_comm */
#include "data/tokenizer.h"  /* gw_tokenizer */
#include "file/hf_config.h"  /* gw_hf_config */
#include "kernel/kernel.h"   /* gw_machine */
#include "model/model.h"     /* gw_model, gw_param */
#include "model/placement.h" /* gw_placement_rule */
#include "pass/pass.h"       /* gw_compile_opts */
#include "run/exec_comm.h"   /* gw_exec_facts */
#include "sched/sched.h"     /* gw_schedule */
#include "train/runfile.h"   /* gw_runfile */

typedef struct gw_setup {
    gw_arena mem;
    gw_runfile *rf;
    gw_model model;
    gw_param *params;
    int nparams;
    gw_param_info *infos;
    gw_tokenizer *tokenizer; /* NULL when the run file names none */
    gw_machine machine;
    gw_compile_opts train;   /* training step */
    gw_compile_opts forward; /* the same precision, forward only */
    gw_exec_facts facts;     /* machine, and what lies between the ranks */
    /* A pipeline, after gw_setup_ranks: what its ranks do, and of which of them programs are made
     * from here on (a plan writes each in turn). NULL and 0 without one. */
    const gw_schedule *schedule;
    int stage_rank;
    int *stage_layers; /* [stages]: layers of each in the training step; [0] is -1 until one is
                          made. The forward program's own costs might balance other stages. */
} gw_setup;

/* Opens the tokenizer (if one is named), settles the model and the options; the run file's `auto`
 * values are resolved in place. Nothing large is allocated. `need_tokenizer`: a missing one is an
 * error. */
GW_WARN_UNUSED gw_status gw_setup_init(gw_setup *s, gw_runfile *rf, bool need_tokenizer,
                                       gw_diags *dg);
void gw_setup_release(gw_setup *s);
/* For the ranks of the layout, before any program is made; what of it does not fit the model is
 * refused. With a comm all ranks settle on one machine (the
 * fewest threads, the least instruction set), synchronising; without one (the plan) the ranks are
 * taken to share this machine's cores. Of a pipeline the schedule is made here: for one that is
 * searched a step is compiled as far as its stages have costs. `s` stays where it is from here on.
 */
GW_WARN_UNUSED gw_status gw_setup_ranks(gw_setup *s, gw_comm *comm, gw_diags *dg);

/* Reads or makes the schedule of layout.schedule for these costs (NULL: those of stages alike). */
GW_WARN_UNUSED gw_status gw_setup_schedule(const gw_runfile *rf, const gw_sched_costs *costs,
                                           gw_arena *a, gw_schedule *out, gw_diags *dg);
/* What a step's stages cost, for the clock and for searches, in seconds of a rank that works at
 * `flops` a second: of n stages, in `a`. */
gw_sched_costs gw_setup_costs(const gw_stage_report *stages, int n, double flops, gw_arena *a);

/* Builds and compiles, up to pass `last` (NULL = all), of a pipeline for s->stage_rank. `g`
 * uninitialised; released by the caller on success. The training step, or a forward program with
 * loss (`train` false) of the micro-batch's shape: micro_batch x dp sequences of
 * gw_runfile_padded_seq tokens, over all ranks. Of a net for images the forward program has logits
 * instead. */
GW_WARN_UNUSED gw_status gw_setup_program(const gw_setup *s, bool train, const char *last,
                                          gw_graph *g, gw_compile_report *report, gw_diags *dg);
/* gw_setup_program in two parts, for whoever makes the programs of many ranks of a pipeline: what
 * is the same for all of them, once, and from it the program of s->stage_rank up to pass `last`,
 * one behind chunk (NULL = all). `whole` stays as it is; the caller releases both. */
GW_WARN_UNUSED gw_status gw_setup_shared(const gw_setup *s, bool train, gw_graph *whole,
                                         gw_diags *dg);
GW_WARN_UNUSED gw_status gw_setup_rank(const gw_setup *s, bool train, const gw_graph *whole,
                                       const char *last, gw_graph *g, gw_compile_report *report,
                                       gw_diags *dg);
/* The same training step for one rank alone: no mesh, nothing sharded, nothing padded. */
GW_WARN_UNUSED gw_status gw_setup_reference(const gw_setup *s, gw_graph *g, gw_diags *dg);
/* A forward program that yields logits: with a KV cache of `cache` rows (prefill or decode of `seq`
 * new tokens a row), or, cache 0, over whole sequences. */
GW_WARN_UNUSED gw_status gw_setup_logits_program(const gw_setup *s, int64_t batch, int64_t seq,
                                                 int64_t cache, gw_graph *g,
                                                 gw_compile_report *report, gw_diags *dg);
/* The model that a run file gives by family or preset, a vocabulary that is still `auto` taken
 * for 1. False where it is no model. */
bool gw_setup_model(const gw_runfile *rf, gw_model *m);
/* The exceptions of layout.shard, for as long as rf lives; none on one tensor-parallel rank. */
gw_placement_rule *gw_runfile_rules(const gw_runfile *rf, gw_arena *a, int *n);
/* The ranks of a layout, as programs have them: pp, dp_replicate, dp, cp, tp. `m` is empty. */
void gw_runfile_mesh(const gw_runfile *rf, gw_mesh *m);
/* What auxiliary losses of experts are means over, of a step: its sequences or, where they are of a
 * whole micro-batch, its global micro-batches. */
double gw_setup_aux_units(const gw_setup *s);
/* The dtype of values in products. */
gw_dtype gw_setup_compute(const gw_runfile *rf);

/* Does the vocabulary that the run file gives hold its tokenizer's? A tokenizer that is not there
 * is not asked; what is there must open. Nothing is changed. */
GW_WARN_UNUSED gw_status gw_setup_check_vocab(const gw_runfile *rf, gw_diags *dg);

/* config.json of a directory, or the metadata of a GGUF file. `c` is some kilobytes. */
GW_WARN_UNUSED gw_status gw_setup_read_config(const char *path, gw_hf_config *c, gw_diags *dg);
/* A model read from a public directory or file alone (config.json or GGUF metadata). */
GW_WARN_UNUSED gw_status gw_setup_read_model(const char *path, gw_model *m, gw_diags *dg);

#endif
