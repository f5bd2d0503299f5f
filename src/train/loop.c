// SPDX-License-Identifier: Apache-2.0
// A whole training run.
//
// After each step, in this order: its line of metrics, a validation if due, a checkpoint if due,
// the live line; then the stop flag is read. A checkpoint so always stands behind the metrics of
// its step, and a resumed run removes the lines of steps it takes again. The last step validates
// and saves whatever the intervals say, and a run that is stopped saves before it returns, so
// nothing that was computed is lost.
//
// The run directory is refused when it holds another run's files and `resume` was not asked for: a
// second run into it would mix two histories. config.yaml and plan.json are written before the
// first step, the rest at the end, also of a run that was stopped; a run that dies in between
// leaves metrics.jsonl, events and checkpoints.
//
// In the loop itself our own code allocates nothing: lines are formatted on the stack, and
// everything that a step needs was reserved when the session was opened. Saving and validating are
// not part of a step.
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/io.h"       /* gw_dir_make */
#include "base/log.h"      /* gw_log_info */
#include "base/str.h"      /* gw_str */
#include "base/term.h"     /* gw_progress */
#include "file/json.h"     /* gw_json_write_file */
#include "train/metrics.h" /* gw_metrics */
#include "train/report.h"  /* gw_report_facts */
#include "train/session.h" /* gw_session */

enum { PLAIN_SECONDS = 10 };

typedef struct run {
    gw_runfile *rf;
    const gw_train_opts *opts;
    gw_arena mem;
    gw_session s;
    gw_metrics *metrics;
    gw_progress progress;
    gw_diags *dg;
    double flops_per_token, peak_flops;
    int64_t saved_step; /* of the newest checkpoint; -1: none */
    int64_t valid_step; /* of the latest validation; -1: none */
    int64_t skipped;    /* batches since the last line of metrics */
    int64_t first_step, begun_ns;
    double smooth_step_s; /* for the time left */
    bool opened;
} run;

static const char *in_dir(run *r, const char *name) {
    return gw_path_join(&r->mem, r->opts->out_dir, name);
}

/* ---- before ---- */

static gw_status check_dir(run *r) {
    if (r->opts->resume) return GW_OK;
    gw_ckpt_list list;
    GW_TRY(gw_checkpoint_list(r->opts->out_dir, &r->mem, &list, r->dg));
    if (list.n == 0 && !gw_path_exists(in_dir(r, "metrics.jsonl"))) return GW_OK;
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_USAGE, "run-exists", (gw_where){0},
                             "'%s' already holds a run (%s)", r->opts->out_dir,
                             list.n > 0 ? "it has checkpoints" : "it has metrics.jsonl");
    gw_diag_hint(r->dg, d, "add --resume to continue it, or choose another directory with --out");
    return GW_ERR_USAGE;
}

static gw_status write_config(run *r) {
    gw_str yaml = {0};
    gw_runfile_yaml(r->rf, true, &yaml);
    gw_status st =
        gw_file_write_atomic(in_dir(r, "config.yaml"), gw_str_c(&yaml), (int64_t)yaml.len, r->dg);
    gw_str_release(&yaml);
    return st;
}

static gw_status write_plan(run *r) {
    gw_history none = {0};
    gw_report_facts f = gw_report_facts_of(&r->s, &none, r->opts->out_dir, &r->mem);
    r->peak_flops = f.peak_flops;
    return gw_report_plan(&r->s, in_dir(r, "plan.json"), r->dg);
}

static void announce(run *r) {
    char params[32], arena[32];
    const gw_session *s = &r->s;
    gw_log_info("%s, %sparameters, %s, %s; %" PRId64 " sequences of %" PRId64
                " tokens a step (micro_batch %" PRId64 " x accumulate %" PRId64 ")",
                gw_family_name(s->setup.model.family),
                gw_fmt_si(params, (double)gw_model_count(&s->setup.model)),
                gw_runfile_word(r->rf, "optimizer.name"),
                gw_runfile_word(r->rf, "precision.compute"), r->rf->train.global_batch,
                r->rf->train.seq_len, r->rf->train.micro_batch, r->rf->train.accumulate);
    gw_log_info("arena %s, %d threads on %s; writing to %s",
                gw_fmt_bytes(arena, gw_session_planned_bytes(s)), s->setup.machine.threads,
                gw_isa_name(s->setup.machine.isa), r->opts->out_dir);
    if (s->resumed >= 0)
        gw_log_info("continuing after step %" PRId64 " of %" PRId64, s->resumed,
                    r->rf->train.steps);
    else if (r->opts->resume)
        gw_log_info("no checkpoint to continue from: beginning at step 1");
}

static gw_status begin(run *r) {
    GW_TRY(check_dir(r));
    GW_TRY(gw_session_open(&r->s, r->rf, r->opts->resume ? r->opts->out_dir : NULL, r->dg));
    r->opened = true;
    GW_TRY(gw_dir_make(r->opts->out_dir, r->dg));
    GW_TRY(write_config(r));
    GW_TRY(write_plan(r));
    int64_t keep = r->opts->resume ? GW_MAX(r->s.resumed, (int64_t)0) : -1;
    GW_TRY(gw_metrics_open(r->opts->out_dir, keep, &r->metrics, r->dg));
    r->saved_step = r->s.resumed;
    r->valid_step = -1;
    r->first_step = r->s.step;
    r->flops_per_token = gw_model_flops_per_token(&r->s.setup.model, r->rf->train.seq_len, false);
    announce(r);
    return GW_OK;
}

/* ---- what people see ---- */

static void show(run *r, const gw_session_step_result *t, double rate, double mfu, bool force) {
    if (!r->opts->progress) return;
    char speed[32], left[32];
    double seconds = r->smooth_step_s * (double)(r->rf->train.steps - r->s.step);
    gw_progress_show(&r->progress, force,
                     "step %" PRId64 "/%" PRId64 "  loss %.4f  %stok/s  MFU %.1f %%  %s left",
                     r->s.step, r->rf->train.steps, t->loss, gw_fmt_si(speed, rate), mfu * 100,
                     gw_fmt_seconds(left, seconds));
}

static void say_valid(run *r, const gw_session_valid_result *v) {
    if (!r->opts->progress) return;
    gw_progress_end(&r->progress);
    char seconds[32];
    fprintf(r->opts->progress, "validation after step %" PRId64 ": loss %.4f", r->s.step, v->loss);
    if (!isnan(v->bpb)) fprintf(r->opts->progress, ", %.4f bits per byte", v->bpb);
    fprintf(r->opts->progress, " (%" PRId64 " tokens in %s)\n", v->labels,
            gw_fmt_seconds(seconds, v->seconds));
}

/* ---- after a step ---- */

static gw_status log_step(run *r, const gw_session_step_result *t) {
    if (t->skipped) {
        r->skipped++;
        return GW_OK;
    }
    double rate = t->step_s > 0 ? (double)t->tokens / t->step_s : 0;
    double mfu = r->flops_per_token * rate / r->peak_flops;
    double old = r->smooth_step_s;
    r->smooth_step_s = old > 0 ? 0.9 * old + 0.1 * t->step_s : t->step_s;
    bool last = r->s.step >= r->rf->train.steps;
    show(r, t, rate, mfu, last);
    if (r->s.step % r->rf->train.log_every != 0 && !last && r->s.step != r->first_step + 1)
        return GW_OK;
    gw_metrics_step m = {.step = r->s.step,
                         .loss = t->loss,
                         .lr = t->lr,
                         .grad_norm = t->norm,
                         .tokens = r->s.tokens,
                         .tokens_per_s = rate,
                         .step_s = t->step_s,
                         .mfu = mfu,
                         .data_wait_s = t->data_wait_s,
                         .loss_scale = r->s.scaler.active ? t->loss_scale : 0,
                         .skipped = r->skipped};
    r->skipped = 0;
    return gw_metrics_add(r->metrics, &m, r->dg);
}

static gw_status validate(run *r) {
    gw_session_valid_result v;
    if (!r->s.valid.x || r->valid_step == r->s.step) return GW_OK;
    GW_TRY(gw_session_validate(&r->s, &v, r->dg));
    r->valid_step = r->s.step;
    say_valid(r, &v);
    return gw_metrics_valid(r->metrics, r->s.step, v.loss, v.bpb, r->dg);
}

static gw_status save(run *r) {
    if (r->saved_step == r->s.step) return GW_OK;
    GW_TRY(gw_session_save(&r->s, r->opts->out_dir, r->dg));
    r->saved_step = r->s.step;
    gw_log_debug("saved the checkpoint of step %" PRId64, r->s.step);
    return GW_OK;
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

static bool stopped(const run *r) { return r->opts->stop && *r->opts->stop != 0; }

static gw_status interrupted(run *r) {
    GW_TRY(save(r));
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_INTERRUPTED, "interrupted", (gw_where){0},
                             "stopped after step %" PRId64 " of %" PRId64 ", as asked", r->s.step,
                             r->rf->train.steps);
    gw_diag_hint(r->dg, d, "the run is saved; `gradwright train %s --out %s --resume` continues it",
                 r->rf->file ? r->rf->file : "RUN.yaml", r->opts->out_dir);
    return GW_ERR_INTERRUPTED;
}

/* The step this call of the program ends at. */
static int64_t last_step(const run *r) {
    int64_t n = r->rf->train.steps;
    return r->opts->until > 0 && r->opts->until < n ? r->opts->until : n;
}

static gw_status steps(run *r) {
    while (r->s.step < last_step(r)) {
        gw_session_step_result t;
        if (stopped(r)) return interrupted(r);
        GW_TRY(gw_session_step(&r->s, &t, r->dg));
        GW_TRY(log_step(r, &t));
        if (t.skipped) continue;
        if (due(r->s.step, r->rf->train.valid_every)) GW_TRY(validate(r));
        if (due(r->s.step, r->rf->checkpoint.every)) GW_TRY(save(r));
    }
    if (r->first_step < last_step(r) || r->valid_step < 0) GW_TRY(validate(r));
    return save(r);
}

/* ---- after the run ---- */

static gw_status write_reports(run *r, json_t **summary) {
    gw_history h;
    GW_TRY(gw_metrics_read(in_dir(r, "metrics.jsonl"), &r->mem, &h, r->dg));
    gw_report_facts f = gw_report_facts_of(&r->s, &h, r->opts->out_dir, &r->mem);
    f.seconds = (double)(gw_clock_ns() - r->begun_ns) * 1e-9;
    *summary = gw_report_summary_json(&f);
    GW_TRY(gw_json_write_file(in_dir(r, "summary.json"), *summary, 2, r->dg));
    GW_TRY(gw_report_trace(&r->s, in_dir(r, "trace.json"), r->dg));
    GW_TRY(gw_report_html(&r->s, &f, &h, in_dir(r, "report.html"), r->dg));
    if (r->opts->progress) {
        fputc('\n', r->opts->progress);
        gw_report_table(&f, r->opts->progress);
    }
    return GW_OK;
}

static gw_status whole(run *r, json_t **summary) {
    GW_TRY(begin(r));
    r->begun_ns = gw_clock_ns();
    gw_status st = steps(r);
    if (r->opts->progress) gw_progress_end(&r->progress);
    if (st != GW_OK && st != GW_ERR_INTERRUPTED) return st;
    gw_status closed = gw_metrics_close(r->metrics, r->dg);
    r->metrics = NULL;
    if (closed == GW_OK) closed = write_reports(r, summary);
    return closed != GW_OK ? closed : st;
}

gw_status gw_train_run(gw_runfile *rf, const gw_train_opts *opts, json_t **summary, gw_diags *dg) {
    run *r = gw_mem_zalloc(sizeof *r);
    r->rf = rf;
    r->opts = opts;
    r->dg = dg;
    *summary = NULL;
    if (opts->progress) gw_progress_init(&r->progress, opts->progress, PLAIN_SECONDS);
    gw_status st = whole(r, summary);
    if (st != GW_OK && st != GW_ERR_INTERRUPTED) {
        json_decref(*summary);
        *summary = NULL;
    }
    (void)!gw_metrics_close(r->metrics, NULL);
    if (r->opened) gw_session_close(&r->s);
    gw_arena_release(&r->mem);
    gw_mem_free(r);
    return st;
}
