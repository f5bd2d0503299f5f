// SPDX-License-Identifier: Apache-2.0
// Saving a run: what its checkpoints say besides tensors, and when they are committed.
//
// A save takes the state at the end of a step: tensors through the buffer of ckpt/save.c, counters
// and digests at the same instant. On a rank with a core to spare tensors are copied while the next
// step computes, until its first op that changes one of them (gw_exec_guard). It is committed
// between two later steps, once every rank's file is complete. A save that the run waits for anyway
// (the last one, one before it stops, all of them with checkpoint.async false) copies nothing: the
// writer reads the tensors where they lie.
//
// After a commit old ones go. A run that began anew beside commits that it could not read removes
// none of those: what they are is for whoever asked for it to judge. Before its first save it
// writes down what stands there (ckpt/kept.c), so that nothing that comes later removes them
// either.
//
// What the ranks keep from one save to the next, the buffer and the hashes of the newest commit,
// lives as long as the session.
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"      /* gw_log_debug */
#include "base/str.h"      /* gw_str */
#include "kernel/kernel.h" /* gw_machine_this */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

enum { SAVING_LIMIT_S = 1800 };

static void take_meta(const gw_session *s, const char *tokenizer, const char *config, gw_arena *mem,
                      gw_ckpt_meta *m) {
    *m = (gw_ckpt_meta){.step = s->step,
                        .batch = s->batch,
                        .next_sample = s->next_sample,
                        .tokens = s->tokens,
                        .loss_scale = s->scaler.scale,
                        .good_steps = s->scaler.good_steps,
                        .bad_steps = s->scaler.bad_steps,
                        .seed = s->rf->train.seed,
                        .tokenizer = tokenizer,
                        .data = s->data_hash,
                        .valid = s->valid_hash,
                        .model = gw_session_model_words(s, mem),
                        .threads = s->setup.machine.threads,
                        .isa = gw_isa_name(s->setup.machine.isa),
                        .config = config};
}

static gw_status commit(gw_session *s, gw_diags *dg) {
    gw_ckpt_stats stats;
    gw_ckpt_save *done = s->saving;
    int64_t step = gw_checkpoint_step(done);
    s->saving = NULL;
    gw_exec_guard(s->x, NULL, NULL);
    GW_TRY(gw_checkpoint_end(done, &stats, dg));
    s->saved = step;
    if (s->commits > 0) s->commits = stats.number + 1;
    gw_log_debug(
        "saved the checkpoint of step %" PRId64 ": it held up the run for %.3f s (and %.3f s "
        "for its probe), was written in %.3f s (%.3f s of a processor) and committed in "
        "%.3f s; %" PRId64 " bytes are written, %" PRId64 " are those of older ones, %" PRId64
        " of others were compared in %.3f s",
        step, stats.begin_s + stats.take_s, s->probe_s, stats.write_s, stats.cpu_s, stats.commit_s,
        stats.bytes, stats.referred_bytes, stats.compared_bytes, stats.compare_s);
    if (gw_ranks_me(s->comm) != 0) return GW_OK;
    return gw_checkpoint_prune(s->save_dir, s->rf->checkpoint.keep_last,
                               s->rf->checkpoint.keep_every, -1, dg);
}

gw_status gw_session_save_poll(gw_session *s, bool wait, gw_diags *dg) {
    if (!s->saving) return GW_OK;
    if (!wait) {
        int64_t unfinished = !gw_checkpoint_poll(s->saving);
        if (s->comm)
            GW_TRY(gw_comm_max_i64(s->comm, &unfinished, 1, "is the checkpoint written?", dg));
        if (unfinished) return GW_OK;
    }
    if (s->comm) gw_comm_busy(s->comm, "saving a checkpoint", SAVING_LIMIT_S);
    gw_status st = commit(s, dg);
    if (s->comm && st == GW_OK) gw_comm_busy(s->comm, NULL, 0);
    return st;
}

static gw_ckpt_replicas replicas_of(const gw_rf_checkpoint *c) {
    switch (c->replicas) {
    case GW_RF_TRUST: return GW_CKPT_REPLICAS_TRUST;
    case GW_RF_CHECK: return GW_CKPT_REPLICAS_CHECK;
    case GW_RF_CHECK_ALL: return GW_CKPT_REPLICAS_ALL;
    }
    return GW_CKPT_REPLICAS_TRUST;
}

/* Of a run that began anew: before its first save. */
static gw_status keep_older(gw_session *s, gw_diags *dg) {
    if (!s->fresh) return GW_OK;
    gw_status st = gw_ranks_me(s->comm) == 0 ? gw_checkpoint_keep_all(s->save_dir, dg) : GW_OK;
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "writing down which checkpoints stay", dg));
    s->fresh = false;
    return GW_OK;
}

/* In the middle of a step, where others may wait for this rank. */
static void take(void *session) {
    gw_session *s = session;
    if (s->comm) gw_comm_busy(s->comm, "saving a checkpoint", SAVING_LIMIT_S);
    gw_checkpoint_take(s->saving);
    if (s->comm) gw_comm_busy(s->comm, NULL, 0);
}

static gw_status begin(gw_session *s, const char *run_dir, bool waits, gw_diags *dg) {
    gw_arena mem = {0};
    gw_str config = {0};
    char tokenizer[33] = "";
    gw_ckpt_meta m;
    const gw_rf_checkpoint *c = &s->rf->checkpoint;
    int spare = gw_machine_this(0).threads - s->setup.machine.threads;
    snprintf(s->save_dir, sizeof s->save_dir, "%s", gw_session_checkpoints(s->rf, run_dir));
    if (!s->keep) s->keep = gw_ckpt_keep_new();
    gw_ckpt_options o = {.run_dir = s->save_dir,
                         .commits = s->commits,
                         .comm = s->comm,
                         .keep = s->keep,
                         .direct = waits,
                         .late = !waits && spare > 0,
                         .references = c->references,
                         .replicas = replicas_of(c),
                         .buffer_bytes = c->buffer,
                         .bytes_per_s = waits ? 0 : c->write_rate};
    if (s->setup.tokenizer) gw_hash128_hex(tokenizer, gw_tokenizer_hash(s->setup.tokenizer));
    gw_runfile_yaml(s->rf, false, &config);
    take_meta(s, tokenizer, gw_str_c(&config), &mem, &m);
    if (s->comm) gw_comm_busy(s->comm, "saving a checkpoint", SAVING_LIMIT_S);
    gw_status st = keep_older(s, dg);
    if (st == GW_OK) st = gw_session_probe_take(s, &m.probe, dg);
    if (st == GW_OK) st = gw_checkpoint_begin(&s->saving, &o, &m, s->tensors, s->ntensors, dg);
    if (st == GW_OK && o.late) gw_exec_guard(s->x, take, s);
    if (s->comm && st == GW_OK) gw_comm_busy(s->comm, NULL, 0);
    gw_str_release(&config);
    gw_arena_release(&mem);
    return st;
}

gw_status gw_session_save_begin(gw_session *s, const char *run_dir, gw_diags *dg) {
    GW_TRY(gw_session_save_poll(s, true, dg));
    return begin(s, run_dir, false, dg);
}

gw_status gw_session_save(gw_session *s, const char *run_dir, gw_diags *dg) {
    GW_TRY(gw_session_save_poll(s, true, dg));
    GW_TRY(begin(s, run_dir, true, dg));
    return gw_session_save_poll(s, true, dg);
}
