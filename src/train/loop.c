// SPDX-License-Identifier: Apache-2.0
// A whole training run.
//
// After each step, in this order: its line of metrics, a validation if due, a checkpoint if due,
// the live line; then the stop flag is read. A checkpoint so always stands behind the metrics of
// its step, and a resumed run removes the lines of steps it takes again. The last step validates
// and saves whatever the intervals say, and a run that is stopped saves before it returns, so
// nothing that was computed is lost.
//
// The run directory is refused when it holds another run's files and `resume` was not asked for, or
// while another process writes into it: two runs in one would mix two histories. A directory that
// does not exist is made only when everything that the run needs has been found. config.yaml, with
// paths that hold from any working directory, and plan.json are written before the
// first step, the rest at the end, also of a run that was stopped; a run that dies in between
// leaves metrics.jsonl, events and checkpoints.
//
// With several ranks all go through the same steps, validations and saves; rank 0 alone holds the
// directory and writes into it, but for each rank's trace. Where rank 0 may fail on its own, the
// others are told before they go on.
//
// Of a pipeline whose steps wait for nobody the results of a step come with the next; whatever
// needs them, or parameters, waits for them first.
//
// In the loop itself our own code allocates nothing: lines are formatted on the stack, and
// everything that a step needs was reserved when the session was opened. Saving and validating are
// not part of a step.
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"        /* gw_clock_ns */
#include "base/io.h"           /* gw_dir_make */
#include "base/log.h"          /* gw_log_info */
#include "base/str.h"          /* gw_str */
#include "base/term.h"         /* gw_progress */
#include "comm/mpi.h"          /* gw_mpi_launched */
#include "data/ledger.h"       /* gw_ledger */
#include "file/json.h"         /* gw_json_write_file */
#include "file/store.h"        /* gw_store_is_url */
#include "train/dataset.h"     /* gw_dataset_announce */
#include "train/metrics.h"     /* gw_metrics */
#include "train/moe_metrics.h" /* gw_moe_metrics */
#include "train/pipeline.h"    /* gw_pipeline_measure */
#include "train/ranks.h"       /* gw_ranks_me */
#include "train/report.h"      /* gw_report_facts */
#include "train/session.h"     /* gw_session */

enum { PLAIN_SECONDS = 10, PLANNING_LIMIT_S = 1800 };

typedef struct run {
    gw_runfile *rf;
    const gw_train_opts *opts;
    gw_arena mem;
    gw_session s;
    gw_metrics *metrics;
    gw_ledger *ledger;   /* NULL: not of this rank, or of images */
    gw_moe_metrics *moe; /* NULL: no layer of experts */
    gw_progress progress;
    gw_diags *dg;
    double flops_per_token, peak_flops;
    int64_t valid_step; /* of the latest validation; -1: none */
    int64_t skipped;    /* batches since the last line of metrics */
    int64_t first_step, begun_ns;
    double smooth_step_s; /* for the time left */
    int64_t stepping_ns;  /* in steps so far */
    int nsaves;           /* begun */
    int lock;             /* of the run directory; -1: not held */
    int64_t beat_ns;      /* of it */
    gw_run_hold hold;     /* of where checkpoints go, if that is elsewhere */
    int64_t commits;      /* one and the newest commit there at the beginning; 0: not looked for */
    gw_pipeline pipeline;
    bool staged; /* there is one */
    bool opened;
} run;

static const char *in_dir(run *r, const char *name) {
    return gw_path_join(&r->mem, r->opts->out_dir, name);
}

/* The step this call of the program ends at. */
static int64_t last_step(const run *r) {
    int64_t n = r->rf->train.steps;
    return r->opts->until > 0 && r->opts->until < n ? r->opts->until : n;
}

/* Does this rank speak, and write into the run directory? */
static bool leads(const run *r) { return gw_ranks_me(r->opts->comm) == 0; }

static gw_status agree(const run *r, gw_status st, const char *what) {
    return gw_exec_agree(r->opts->comm, st, NULL, what, r->dg);
}

/* ---- before ---- */

static gw_status check_name(const run *r) {
    const char *dir = r->opts->out_dir;
    if (!*dir)
        return GW_FAIL(r->dg, GW_ERR_USAGE, "usage",
                       "the run directory has an empty name: give one with --out");
    if (!gw_path_exists(dir) || gw_path_is_dir(dir)) return GW_OK;
    return gw_fail_at(r->dg, GW_ERR_USAGE, "usage", (gw_where){.file = dir},
                      "this is a file; --out takes a directory, which is made if needed");
}

static const char *checkpoints(const run *r) {
    return gw_session_checkpoints(r->rf, r->opts->out_dir);
}

/* A path that holds from any working directory. */
static const char *absolute(run *r, const char *path, const char *here) {
    if (!path || !*path || *path == '/' || !here) return path;
    return gw_path_join(&r->mem, here, path);
}

/* Of data, URLs stay as they are. */
static const char *absolute_data(run *r, const char *path, const char *here) {
    return path && gw_store_is_url(path) ? path : absolute(r, path, here);
}

/* Where data are finished and only manifests are missing, somebody has lost a run. */
static gw_status refuse_bare(run *r, int bare, const char *one) {
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-none", (gw_where){0},
                             "'%s' has no checkpoint to go on from: of %d folder%s with complete "
                             "data, such as %s, the manifest is missing",
                             checkpoints(r), bare, bare > 1 ? "s" : "", one);
    gw_diag_hint(r->dg, d,
                 "bring the manifests back; --fresh, or removing the folders, begins at step 1");
    return GW_ERR_FORMAT;
}

/* A name that two ways to the same folder share. */
static const char *real_name(run *r, const char *path) {
    if (gw_store_is_url(path)) return path;
    char *real = realpath(path, NULL);
    const char *name = gw_arena_strdup(&r->mem, real ? real : path);
    free(real);
    return name;
}

/* The run saved elsewhere, as its config.yaml says. */
static gw_status check_home(run *r) {
    if (!gw_path_exists(in_dir(r, "config.yaml"))) return GW_OK;
    const char *was = gw_session_checkpoints_of(r->opts->out_dir, &r->mem);
    char *here = getcwd(NULL, 0);
    const char *is = absolute_data(r, checkpoints(r), here);
    bool same = gw_str_eq(real_name(r, absolute_data(r, was, here)), real_name(r, is));
    free(here);
    if (same) return GW_OK;
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "checkpoint-none",
                             (gw_where){.file = in_dir(r, "config.yaml")},
                             "the run's checkpoints are in '%s'; there is none in '%s', where this "
                             "would continue it from",
                             was, checkpoints(r));
    gw_diag_hint(r->dg, d,
                 "checkpoint.dir says where (`--set checkpoint.dir=%s`); --fresh begins at step 1",
                 was);
    return GW_ERR_CONFIG;
}

/* Did a run that left these metrics commit for certain? Before the first interval was over, or
 * while the folder of the first save is unfinished, it may not have. */
static bool has_saved(run *r, int64_t last, int64_t torn) {
    int64_t every = r->rf->checkpoint.every;
    gw_runfile was;
    gw_diags faults;
    const char *config = in_dir(r, "config.yaml");
    gw_diags_init(&faults);
    if (gw_path_exists(config)) {
        if (gw_runfile_load(&was, config, NULL, 0, &faults) == GW_OK) every = was.checkpoint.every;
        gw_runfile_release(&was);
    }
    gw_diags_release(&faults);
    if (gw_path_exists(in_dir(r, "summary.json"))) return true; /* written behind a save */
    if (every <= 0 || last < every) return false;
    return torn != every || last > 2 * every;
}

/* Steps were taken and saved, and what was saved is not there. */
static gw_status check_steps(run *r, int64_t torn) {
    gw_history h = {0};
    const char *metrics = in_dir(r, "metrics.jsonl");
    if (!gw_path_exists(metrics)) return GW_OK;
    GW_TRY(gw_metrics_read(metrics, &r->mem, &h, r->dg));
    int64_t last = h.nsteps > 0 ? h.steps[h.nsteps - 1].step : 0;
    if (last == 0 || !has_saved(r, last, torn)) return GW_OK;
    gw_diag *d =
        gw_diag_add(r->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-none", (gw_where){.file = metrics},
                    "the run took %" PRId64 " steps, and '%s' has no checkpoint to go on "
                    "from",
                    last, gw_checkpoint_home(checkpoints(r), &r->mem));
    gw_diag_hint(r->dg, d,
                 "bring the checkpoints back, or say with checkpoint.dir where they are; --fresh "
                 "begins at step 1 and its metrics replace these");
    return GW_ERR_FORMAT;
}

/* A run that goes on where there is no checkpoint begins anew. That is refused where it would cost
 * somebody the run that was there: a save that did not finish costs nothing. */
static gw_status check_left(run *r) {
    gw_ckpt_list list;
    int bare = 0;
    int64_t torn = -1;
    const char *one = NULL;
    if (r->opts->fresh || r->opts->restarted) return GW_OK;
    GW_TRY(gw_checkpoint_list(checkpoints(r), &r->mem, &list, r->dg));
    for (int i = 0; i < list.n; i++) {
        const gw_ckpt_found *f = &list.items[i];
        if (f->state != GW_CKPT_TORN) return GW_OK; /* for the session to judge */
        bare += f->bare;
        if (f->bare && !one) one = f->path;
        torn = f->step; /* the lowest is the last */
    }
    GW_TRY(check_home(r));
    /* The first save of all, killed between its data and its manifest, costs nothing. */
    bool first = bare == 1 && torn == r->rf->checkpoint.every;
    return bare > 0 && !first ? refuse_bare(r, bare, one) : check_steps(r, torn);
}

static gw_status check_empty(run *r) {
    gw_ckpt_list list = {0};
    bool metrics = gw_path_exists(in_dir(r, "metrics.jsonl"));
    const char *holds = metrics ? r->opts->out_dir : checkpoints(r);
    if (!r->opts->resume) GW_TRY(gw_checkpoint_list(checkpoints(r), &r->mem, &list, r->dg));
    if (list.n == 0 && !metrics) return GW_OK;
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_USAGE, "run-exists", (gw_where){0},
                             "'%s' already holds a run (%s)", holds,
                             list.n > 0 ? "it has checkpoints" : "it has metrics.jsonl");
    gw_diag_hint(r->dg, d, "add --resume to continue it, or choose another directory with --out");
    return GW_ERR_USAGE;
}

static void make_absolute(run *r, const char *here) {
    gw_rf_data *d = &r->rf->data;
    gw_rf_mixture_item *items =
        gw_arena_dup(&r->mem, d->train.items, d->train.count * (int64_t)sizeof *items);
    for (int64_t i = 0; i < d->train.count; i++)
        items[i].path = absolute_data(r, items[i].path, here);
    d->train.items = items;
    d->valid = absolute_data(r, d->valid, here);
    d->cache = absolute(r, d->cache, here);
}

/* The run file with its paths made absolute; the one in use keeps what was given. */
static void print_config(run *r, gw_str *yaml) {
    char *here = getcwd(NULL, 0);
    json_t *text = here ? json_string(here) : NULL;
    const char *dir = text ? here : NULL; /* what is not UTF-8 has no place in YAML */
    gw_rf_data data = r->rf->data;
    const char *model = r->rf->model.path, *schedule = r->rf->layout.schedule;
    const char *where = r->rf->checkpoint.dir;
    const char *file = gw_runfile_schedule_file(r->rf);
    if (file) r->rf->layout.schedule = gw_arena_printf(&r->mem, "file:%s", absolute(r, file, dir));
    r->rf->model.path = absolute(r, model, dir);
    make_absolute(r, dir);
    r->rf->checkpoint.dir = absolute_data(r, where, dir);
    if (!gw_str_eq(data.tokenizer, "bytes"))
        r->rf->data.tokenizer = absolute(r, data.tokenizer, dir);
    gw_runfile_yaml(r->rf, true, yaml);
    r->rf->data = data;
    r->rf->model.path = model;
    r->rf->layout.schedule = schedule;
    r->rf->checkpoint.dir = where;
    json_decref(text);
    free(here);
}

static gw_status write_config(run *r) {
    gw_str yaml = {0};
    print_config(r, &yaml);
    gw_status st =
        gw_file_write_atomic(in_dir(r, "config.yaml"), gw_str_c(&yaml), (int64_t)yaml.len, r->dg);
    gw_str_release(&yaml);
    return st;
}

static gw_status write_plan(run *r) {
    gw_history none = {0};
    gw_report_facts f = gw_report_facts_of(&r->s, &none, r->opts->out_dir, &r->mem);
    r->peak_flops = f.peak_flops;
    bool staged = r->opts->comm && r->s.setup.schedule;
    if (staged) gw_comm_busy(r->opts->comm, "planning all stages", PLANNING_LIMIT_S);
    gw_status st = gw_report_plan(&r->s, in_dir(r, "plan.json"), r->dg);
    if (staged) gw_comm_busy(r->opts->comm, NULL, 0);
    return st;
}

static void announce_ranks(const run *r) {
    static const char *const sharded[] = {"nothing", "optimizer states",
                                          "optimizer states and gradients",
                                          "parameters, gradients and optimizer states"};
    const gw_rf_layout *l = &r->rf->layout;
    char each[64] = "";
    gw_str cuts = {0};
    gw_runfile_describe_cuts(r->rf, &cuts);
    if (l->zero > 0 && l->dp_replicate > 1)
        snprintf(each, sizeof each, ", in %" PRId64 " replicas", l->dp_replicate);
    gw_log_info("%" PRId64 " ranks%s, zero %" PRId64 ": %s sharded%s", gw_runfile_ranks(r->rf),
                gw_str_c(&cuts), l->zero, sharded[l->zero], each);
    gw_str_release(&cuts);
}

/* Has the launcher of local ranks spoken of the cgroup's limit already? */
static bool limit_is_known(const run *r) {
    const gw_core_count *c = &r->s.cores;
    return r->opts->comm && gw_mpi_launched() == 0 &&
           (double)gw_comm_size(r->opts->comm) > c->quota + 1e-9;
}

static void announce(run *r) {
    char params[32], arena[32], step[80];
    const gw_session *s = &r->s;
    gw_log_info("%s, %sparameters, %s, %s; %s a step (micro_batch %" PRId64 " x accumulate %" PRId64
                " x dp %" PRId64 ")",
                gw_report_model_name(s), gw_fmt_si(params, (double)gw_model_count(&s->setup.model)),
                gw_runfile_word(r->rf, "optimizer.name"),
                gw_runfile_word(r->rf, "precision.compute"), gw_report_step_text(s->rf, step),
                r->rf->train.micro_batch, r->rf->train.accumulate, r->rf->layout.dp);
    if (gw_runfile_ranks(r->rf) > 1) announce_ranks(r);
    gw_runfile_note_idle(r->rf);
    if (!limit_is_known(r)) gw_cores_note(&s->cores);
    if (gw_session_has_images(s)) gw_session_announce_norms(s);
    if (s->data) gw_dataset_announce(s->data, r->rf);
    gw_log_info("arena %s, %d threads on %s; writing to %s",
                gw_fmt_bytes(arena, gw_session_planned_bytes(s)), s->setup.machine.threads,
                gw_isa_name(s->setup.machine.isa), r->opts->out_dir);
    if (s->resumed >= 0 && s->step < last_step(r))
        gw_log_info("continuing after step %" PRId64 " of %" PRId64, s->resumed,
                    r->rf->train.steps);
    else if (s->resumed < 0 && r->opts->resume)
        gw_log_info("no checkpoint to continue from: beginning at step 1");
    if (s->step < last_step(r)) return;
    bool until = last_step(r) < r->rf->train.steps;
    gw_log_info("nothing to train: the run is at step %" PRId64 " already, and %s is %" PRId64,
                s->step, until ? "--until" : "train.steps", last_step(r));
}

/* A validation that stands in the metrics already is not taken again. */
static gw_status take_history(run *r) {
    gw_history h;
    r->valid_step = -1;
    if (r->s.resumed < 0) return GW_OK;
    GW_TRY(gw_metrics_read(in_dir(r, "metrics.jsonl"), &r->mem, &h, r->dg));
    if (h.nvalid > 0) r->valid_step = h.valid[h.nvalid - 1].step;
    return GW_OK;
}

/* Holds what is there of the place of checkpoints, and takes note of what was committed before. */
static gw_status hold_place(run *r) {
    gw_ckpt_list list;
    GW_TRY(gw_run_hold_checkpoints(&r->hold, r->opts->out_dir, checkpoints(r), r->dg));
    if (r->commits > 0) return GW_OK;
    GW_TRY(gw_checkpoint_list(checkpoints(r), &r->mem, &list, r->dg));
    r->commits = 1;
    for (int i = 0; i < list.n; i++) r->commits = GW_MAX(r->commits, list.items[i].number + 1);
    return GW_OK;
}

/* Holds the directory. One that is not there yet is made, and looked at again: another run may have
 * come first. Checkpoints that stand elsewhere are no sign of that for a run that continues them.
 */
static gw_status take_dir(run *r) {
    if (r->lock >= 0) return GW_OK;
    GW_TRY(gw_dir_make(r->opts->out_dir, r->dg));
    GW_TRY(gw_run_lock(r->opts->out_dir, &r->lock, r->dg));
    return check_empty(r);
}

static gw_status claim(run *r) {
    if (!leads(r)) return GW_OK;
    GW_TRY(check_name(r));
    bool there = gw_path_is_dir(r->opts->out_dir);
    if (there) GW_TRY(gw_run_lock(r->opts->out_dir, &r->lock, r->dg));
    GW_TRY(hold_place(r));
    if (!there) return r->opts->resume ? check_left(r) : GW_OK;
    return r->opts->resume ? check_left(r) : check_empty(r);
}

/* The directory, and what is written into it before the first step. */
static gw_status furnish(run *r) {
    if (!leads(r)) return GW_OK;
    GW_TRY(take_dir(r));
    if (!gw_store_is_url(checkpoints(r))) GW_TRY(gw_dir_make(checkpoints(r), r->dg));
    GW_TRY(hold_place(r));
    gw_run_clean(r->opts->out_dir);
    GW_TRY(write_config(r));
    GW_TRY(gw_session_keep_copies(r->rf, r->opts->out_dir, r->dg));
    GW_TRY(write_plan(r));
    int64_t keep = r->opts->resume ? GW_MAX(r->s.resumed, (int64_t)0) : -1;
    GW_TRY(gw_metrics_open(r->opts->out_dir, keep, &r->metrics, r->dg));
    if (r->s.data)
        GW_TRY(gw_ledger_open(r->opts->out_dir, r->opts->resume ? r->s.next_sample : -1, &r->ledger,
                              r->dg));
    return take_history(r);
}

static gw_status begin(run *r) {
    GW_TRY(agree(r, claim(r), "claiming the run directory"));
    GW_TRY(gw_session_open_or_begin(&r->s, r->rf, r->opts->resume ? r->opts->out_dir : NULL,
                                    r->opts->fresh, r->opts->comm, r->dg));
    r->opened = true;
    r->s.commits = r->commits;
    GW_TRY(gw_session_go_ahead(&r->s, r->dg));
    r->moe =
        gw_moe_metrics_new(r->s.x, r->opts->comm, &r->s.table, gw_setup_aux_units(&r->s.setup));
    GW_TRY(agree(r, furnish(r), "furnishing the run directory"));
    if (r->opts->comm) /* rank 0 knows the metrics */
        GW_TRY(gw_comm_broadcast(r->opts->comm, &r->valid_step, sizeof r->valid_step,
                                 "the latest validation", r->dg));
    r->first_step = r->s.step;
    r->flops_per_token = gw_model_flops_per_token(&r->s.setup.model, r->rf->train.seq_len, false);
    if (leads(r)) announce(r);
    return GW_OK;
}

/* ---- what people see ---- */

/* A loss, or a dash where no label counted. */
static const char *loss_text(char buf[32], double loss) {
    snprintf(buf, 32, isfinite(loss) ? "%.4f" : "-", loss);
    return buf;
}

static void show(run *r, const gw_session_step_result *t, double rate, double mfu, bool force) {
    if (!r->opts->progress) return;
    char speed[32], left[32];
    double seconds = r->smooth_step_s * (double)(r->rf->train.steps - t->step);
    char loss[32];
    gw_progress_show(
        &r->progress, force, "step %" PRId64 "/%" PRId64 "  loss %s  %s%s/s  MFU %.1f %%  %s left",
        t->step, r->rf->train.steps, loss_text(loss, t->loss), gw_fmt_si(speed, rate),
        gw_session_has_images(&r->s) ? "img" : "tok", mfu * 100, gw_fmt_seconds(left, seconds));
}

static void say_valid(run *r, const gw_session_valid_result *v) {
    if (!r->opts->progress) return;
    gw_progress_end(&r->progress);
    char seconds[32], loss[32];
    fprintf(r->opts->progress, "validation after step %" PRId64 ": loss %s", r->s.step,
            loss_text(loss, v->loss));
    if (!isnan(v->bpb)) fprintf(r->opts->progress, ", %.4f bits per byte", v->bpb);
    if (!isnan(v->accuracy)) fprintf(r->opts->progress, ", %.2f %% right", 100 * v->accuracy);
    fprintf(r->opts->progress, " (%" PRId64 " %s in %s)\n", v->labels,
            gw_session_has_images(&r->s) ? "images" : "tokens",
            gw_fmt_seconds(seconds, v->seconds));
}

/* ---- after a step ---- */

static bool logs(const run *r, int64_t n) {
    int64_t every = r->rf->train.log_every;
    return n % every == 0 || n >= r->rf->train.steps || n == r->first_step + 1;
}

/* A line of the ledger for every batch, whatever is logged of its step. */
static gw_status record(run *r, const gw_session_step_result *t) {
    if (!r->ledger || t->stopped) return GW_OK;
    gw_ledger_line line = {.batch = t->batch,
                           .step = t->step,
                           .first = t->first_sample,
                           .next = t->next_sample,
                           .labels = t->labels,
                           .tokens = t->tokens,
                           .quarantined = t->quarantined,
                           .digest = t->digest};
    return gw_ledger_add(r->ledger, &line, r->dg);
}

static gw_status log_step(run *r, const gw_session_step_result *t) {
    const char *experts = NULL; /* all ranks have a part in it */
    if (!t->skipped && logs(r, t->step)) GW_TRY(gw_moe_metrics_take(r->moe, &experts, r->dg));
    if (!leads(r)) return GW_OK;
    GW_TRY(record(r, t));
    if (t->skipped) {
        r->skipped++;
        return GW_OK;
    }
    double rate = t->step_s > 0 ? (double)t->tokens / t->step_s : 0;
    double mfu = r->flops_per_token * rate / r->peak_flops;
    double old = r->smooth_step_s;
    r->smooth_step_s = old > 0 ? 0.9 * old + 0.1 * t->step_s : t->step_s;
    show(r, t, rate, mfu, t->step >= r->rf->train.steps);
    if (!logs(r, t->step)) return GW_OK;
    gw_metrics_step m = {.step = t->step,
                         .loss = t->loss,
                         .lr = t->lr,
                         .grad_norm = t->norm,
                         .images = gw_session_has_images(&r->s),
                         .tokens = t->tokens_so_far,
                         .tokens_per_s = rate,
                         .step_s = t->step_s,
                         .mfu = mfu,
                         .data_wait_s = t->data_wait_s,
                         .data_parts = r->s.data != NULL,
                         .data_source_s = t->data_parts_s[GW_LOAD_SOURCE],
                         .data_decompress_s = t->data_parts_s[GW_LOAD_DECOMPRESS],
                         .data_decode_s = t->data_parts_s[GW_LOAD_DECODE],
                         .data_queue_s = t->data_parts_s[GW_LOAD_QUEUE],
                         .quarantined = t->quarantined,
                         .comm_s = r->opts->comm ? t->comm_s : -1,
                         .comm_exposed_s = t->comm_exposed_s,
                         .comm_wait_s = t->comm_wait_s,
                         .stages = r->s.table.stages > 1,
                         .bubble = t->bubble,
                         .pp_wait_s = t->pp_wait_s,
                         .loss_scale = r->s.scaler.active ? t->loss_scale : 0,
                         .skipped = r->skipped,
                         .more = experts};
    r->skipped = 0;
    return gw_metrics_add(r->metrics, &m, r->dg);
}

static gw_status validate(run *r) {
    gw_session_valid_result v;
    if (!r->s.valid.x || r->valid_step == r->s.step) return GW_OK;
    GW_TRY(gw_session_validate(&r->s, &v, r->dg));
    r->valid_step = r->s.step;
    if (!leads(r)) return GW_OK;
    say_valid(r, &v);
    return gw_metrics_valid(r->metrics, r->s.step, v.loss, v.bpb, v.accuracy, r->dg);
}

/* Whoever watches is told what the save of this step will have made safe. */
static void note_save(run *r) {
    gw_train_saves *k = r->opts->saves;
    if (!k || !leads(r)) return;
    int i = r->nsaves++ % 2;
    atomic_store(&k->of[i].step, -1);
    atomic_store(&k->of[i].ns, r->stepping_ns);
    atomic_store(&k->of[i].step, r->s.step);
}

/* The state as it is, on disk when this returns. */
static gw_status save(run *r) {
    GW_TRY(gw_run_hold_check(&r->hold, r->dg));
    GW_TRY(gw_session_save_poll(&r->s, true, r->dg));
    if (r->s.saved == r->s.step) return GW_OK;
    note_save(r);
    return gw_session_save(&r->s, r->opts->out_dir, r->dg);
}

/* Between steps: written while the next ones run, unless the run file says otherwise. */
static gw_status save_beside(run *r) {
    const gw_rf_checkpoint *c = &r->rf->checkpoint;
    if (!c->async) return save(r);
    if (r->s.step >= last_step(r)) return save(r); /* the run ends with it */
    if (r->s.saving && c->when_busy == GW_RF_BUSY_SKIP) {
        if (leads(r))
            gw_log_warn("no checkpoint at step %" PRId64 ": that of step %" PRId64
                        " is still being written (checkpoint.when_busy is skip)",
                        r->s.step, gw_checkpoint_step(r->s.saving));
        return GW_OK;
    }
    GW_TRY(gw_session_save_begin(&r->s, r->opts->out_dir, r->dg));
    note_save(r);
    return GW_OK;
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

static bool stopped(const run *r) {
    return r->opts->stop && __atomic_load_n(r->opts->stop, __ATOMIC_RELAXED) != 0;
}

static gw_status interrupted(run *r) {
    GW_TRY(save(r));
    if (!leads(r)) return GW_ERR_INTERRUPTED;
    char ranks[32] = "";
    if (r->opts->comm) snprintf(ranks, sizeof ranks, " --ranks %d", gw_comm_size(r->opts->comm));
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_INTERRUPTED, "interrupted", (gw_where){0},
                             "stopped after step %" PRId64 " of %" PRId64 ", as asked", r->s.step,
                             r->rf->train.steps);
    gw_diag_hint(r->dg, d,
                 "the run is saved; `gradwright train %s --out %s --resume%s` continues it",
                 in_dir(r, "config.yaml"), r->opts->out_dir, ranks);
    return GW_ERR_INTERRUPTED;
}

/* Does anything read parameters or counters after this step, or values of it that the next one
 * overwrites (the loads of experts)? */
static bool rests(const run *r) {
    int64_t n = r->s.step;
    return n >= last_step(r) || due(n, r->rf->train.valid_every) ||
           due(n, r->rf->checkpoint.every) || (r->moe && logs(r, n));
}

/* Then its results must be there. *stands: it need not be taken another time. */
static gw_status settle(run *r, bool *stands) {
    gw_session_step_result t;
    int64_t from = gw_clock_ns();
    GW_TRY(gw_session_settle(&r->s, &t, r->dg));
    r->stepping_ns += gw_clock_ns() - from;
    *stands = !t.skipped && !t.stopped;
    return t.known ? log_step(r, &t) : GW_OK;
}

static gw_status steps(run *r) {
    while (r->s.step < last_step(r)) {
        gw_session_step_result t;
        r->s.wants_stop = stopped(r);
        gw_run_beat(r->lock, &r->beat_ns);
        gw_run_hold_beat(&r->hold);
        GW_TRY(gw_run_hold_check(&r->hold, r->dg)); /* rank 0's; the others learn it from its end */
        int64_t from = gw_clock_ns();
        GW_TRY(gw_session_step(&r->s, &t, r->dg));
        r->stepping_ns += gw_clock_ns() - from;
        GW_TRY(gw_session_save_poll(&r->s, false, r->dg));
        bool stands = !t.skipped;
        if (t.known) GW_TRY(log_step(r, &t));
        if (t.stopped) return interrupted(r);
        if (stands && rests(r)) GW_TRY(settle(r, &stands));
        if (!stands) continue;
        if (due(r->s.step, r->rf->train.valid_every)) GW_TRY(validate(r));
        if (due(r->s.step, r->rf->checkpoint.every)) GW_TRY(save_beside(r));
    }
    if (r->first_step < last_step(r) || r->valid_step < 0) GW_TRY(validate(r));
    return save(r);
}

/* ---- after the run ---- */

/* No step was taken, and what the run had to report stands there: figures of nothing would replace
 * it. */
static bool told_already(run *r, const char *name) {
    return r->s.step == r->first_step && gw_path_exists(in_dir(r, name));
}

/* trace.json, or trace-rank-K.json of several. */
static gw_status write_trace(run *r) {
    const char *name = "trace.json";
    if (r->opts->comm)
        name = gw_arena_printf(&r->mem, "trace-rank-%d.json", gw_comm_rank(r->opts->comm));
    if (told_already(r, name)) return GW_OK;
    return gw_report_trace(&r->s, in_dir(r, name), r->dg);
}

/* The latest step of all stages, as data and as a trace. */
static gw_status write_timeline(run *r) {
    if (!r->staged || r->pipeline.timeline.n == 0) return GW_OK;
    GW_TRY(gw_timeline_write(&r->pipeline.timeline, in_dir(r, GW_TIMELINE_FILE), r->dg));
    return gw_report_trace_pipeline(&r->pipeline, in_dir(r, "trace.json"), r->dg);
}

static gw_status write_reports(run *r, json_t **summary) {
    gw_history h;
    if (!leads(r)) return GW_OK;
    if (told_already(r, "summary.json")) {
        *summary = json_load_file(in_dir(r, "summary.json"), 0, NULL);
        return GW_OK;
    }
    GW_TRY(gw_metrics_read(in_dir(r, "metrics.jsonl"), &r->mem, &h, r->dg));
    gw_report_facts f = gw_report_facts_of(&r->s, &h, r->opts->out_dir, &r->mem);
    f.seconds = (double)(gw_clock_ns() - r->begun_ns) * 1e-9;
    f.pipeline = r->staged ? &r->pipeline : NULL;
    GW_TRY(write_timeline(r));
    *summary = gw_report_summary_json(&f);
    GW_TRY(gw_json_write_file(in_dir(r, "summary.json"), *summary, 2, r->dg));
    GW_TRY(gw_report_html(&r->s, &f, &h, in_dir(r, "report.html"), r->dg));
    if (r->opts->progress) {
        fputc('\n', r->opts->progress);
        gw_report_table(&f, r->opts->progress);
    }
    return GW_OK;
}

static gw_status close_metrics(run *r) {
    gw_status st = gw_metrics_close(r->metrics, r->dg);
    gw_status ledger = gw_ledger_close(r->ledger, r->dg);
    r->metrics = NULL;
    r->ledger = NULL;
    return st == GW_OK ? ledger : st;
}

static gw_status whole(run *r, json_t **summary) {
    GW_TRY(begin(r));
    r->begun_ns = gw_clock_ns();
    gw_status st = steps(r);
    if (r->opts->progress) gw_progress_end(&r->progress);
    if (st != GW_OK && st != GW_ERR_INTERRUPTED) return st;
    GW_TRY(agree(r, close_metrics(r), "closing the metrics"));
    GW_TRY(gw_session_meet(&r->s, r->dg));
    r->staged = gw_pipeline_plan(&r->pipeline, &r->s, &r->mem);
    if (r->staged) GW_TRY(gw_pipeline_measure(&r->pipeline, &r->s, &r->mem, r->dg));
    GW_TRY(agree(r, write_trace(r), "writing the trace"));
    GW_TRY(agree(r, write_reports(r, summary), "writing the reports"));
    return st;
}

/* What every rank called last, beside the one line that says who was missing: written by the rank
 * that found the fault. */
static void keep_flight(run *r) {
    if (!r->opts->comm || r->dg->nerrors == 0) return;
    const char *path = in_dir(r, "flight.txt");
    FILE *f = fopen(path, "we");
    if (!f) return;
    gw_comm_print_flight(r->opts->comm, f);
    if (fclose(f) == 0) gw_log_warn("the last collectives of each rank are in %s", path);
}

gw_status gw_train_run(gw_runfile *rf, const gw_train_opts *opts, json_t **summary, gw_diags *dg) {
    run *r = gw_mem_zalloc(sizeof *r);
    r->rf = rf;
    r->opts = opts;
    r->dg = dg;
    r->lock = -1;
    *summary = NULL;
    if (opts->progress) gw_progress_init(&r->progress, opts->progress, PLAIN_SECONDS);
    gw_status st = whole(r, summary);
    if (st == GW_ERR_PEER) keep_flight(r);
    if (st != GW_OK && st != GW_ERR_INTERRUPTED) {
        json_decref(*summary);
        *summary = NULL;
    }
    (void)!gw_metrics_close(r->metrics, NULL);
    (void)!gw_ledger_close(r->ledger, NULL);
    gw_moe_metrics_free(r->moe);
    if (r->opened) gw_session_close(&r->s);
    gw_run_release(&r->hold);
    if (r->lock >= 0) gw_run_unlock(opts->out_dir, r->lock);
    gw_arena_release(&r->mem);
    gw_mem_free(r);
    return st;
}
