// SPDX-License-Identifier: Apache-2.0
// `gradwright train`: runs the loop, on one rank or several, and turns signals into an orderly
// stop.
//
// The first SIGINT, SIGTERM, SIGHUP (the terminal went away) or SIGUSR1 sets a flag that the loop
// reads between steps: it finishes the step, saves, and the program exits 3. A second one ends the
// process at once, with the status that shells expect of a signal; but not SIGHUP, which a closing
// terminal sends more than once. A signal that reaches only one rank stops all: they settle it
// before the next step. No handler runs: comm/launch_listen.c says why and how. SIGXFSZ is ignored,
// so that a file size limit shows as a failed write with its reason.
//
// The flag is the only mutable global here: the thread that sets it outlives every call.
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "base/log.h" /* gw_log_info */
#include "base/str.h" /* gw_str_eq */
#include "cli/command.h"
#include "file/store.h" /* gw_store_is_url */ /* gw_command */
#include "cli/ranks.h"                        /* gw_cli_on_ranks_until */
#include "cli/requeue.h"                      /* gw_requeue_ask */
#include "cli/runarg.h"                       /* gw_cli_source */
#include "cli/supervise.h"                    /* gw_supervise */
#include "comm/mpi.h"                         /* gw_mpi_launched */
#include "file/store.h"                       /* gw_store_is_url */
#include "run/exec_comm.h"                    /* gw_exec_agree */
#include "train/elastic.h"                    /* gw_elastic_load */
#include "train/loop.h"                       /* gw_train_run */

enum { REGROW_S = 600, MOST_REGROW_S = 100 * 86400 };

static volatile sig_atomic_t stop_signal;

/* runs/NAME for path/to/NAME.yaml. */
static const char *default_out(gw_cli *cli, const char *path) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (gw_str_eq(path, "-")) base = "stdin";
    size_t n = strlen(base);
    const char *dot = strrchr(base, '.');
    if (dot && dot > base) n = (size_t)(dot - base);
    return gw_arena_printf(cli->arena, "runs/%.*s", (int)n, base);
}

static const gw_option options[] = {
    {"out", 'o', "DIR", "the run directory (default: runs/NAME of the run file)", GW_OPT_STRING,
     NULL},
    GW_OPTION_RANKS,
    {"resume", 0, NULL, "continue from the newest checkpoint in it", GW_OPT_FLAG, NULL},
    {"fresh", 0, NULL, "with --resume: begin anew where no checkpoint is whole", GW_OPT_FLAG, NULL},
    {"until", 0, "N", "stop after step N, saved; --resume goes on", GW_OPT_INT, NULL},
    {"supervise", 0, NULL, "start it again when it fails, from its newest checkpoint", GW_OPT_FLAG,
     NULL},
    {"retries", 0, "N", "with --supervise: at most N times", GW_OPT_INT, NULL},
    {"regrow", 0, "S", "with --supervise: all ranks again after S seconds (600)", GW_OPT_INT, NULL},
    {"requeue", 0, NULL, "under Slurm: queue the job again when it was stopped", GW_OPT_FLAG, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

typedef struct job {
    gw_elastic_source source;
    const char *out_dir;
    gw_runfile rf;
    const char *note; /* how the batch is kept, or NULL */
    int64_t until;
    int ranks;       /* --ranks; 0: not given */
    bool has_ranks;  /* the run file knows their number */
    bool resume;     /* as asked for, or as the job was queued again */
    bool is_rank;    /* this process is one of several */
    bool leads;      /* it is rank 0 of all, or the only one */
    bool supervised; /* this process is part of an attempt */
    bool restarted;  /* not the first */
    gw_train_saves *saves;
} job;

/* One rank's part. */
static gw_status train(gw_cli *cli, gw_comm *comm, void *user) {
    job *j = user;
    int64_t ranks = comm ? gw_comm_size(comm) : 1;
    j->is_rank = comm != NULL;
    j->leads = !comm || gw_comm_rank(comm) == 0;
    if (!j->has_ranks) {
        gw_status st = gw_runfile_set_ranks(&j->rf, ranks, cli->diags);
        GW_TRY(gw_exec_agree(comm, st, NULL, "reading the layout", cli->diags));
    }
    signal(SIGXFSZ, SIG_IGN);
    if (j->note) gw_log_info("%s", j->note);
    gw_train_opts o = {.out_dir = j->out_dir,
                       .resume = j->resume,
                       .fresh = gw_cli_flag(cli, "fresh"),
                       .restarted = j->restarted,
                       .until = j->until,
                       .progress = cli->quiet ? NULL : stderr,
                       .stop = &stop_signal,
                       .comm = comm,
                       .saves = j->saves};
    json_t *summary = NULL;
    gw_status st = gw_train_run(&j->rf, &o, &summary, cli->diags);
    if (summary && gw_cli_flag(cli, "json") && !j->supervised) {
        json_dumpf(summary, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        fputc('\n', cli->out);
    }
    json_decref(summary);
    return st;
}

/* The run file for the ranks there are. A run that goes on keeps the batch of its checkpoint, for
 * which their number must be known: without --ranks and launcher there is one. */
static gw_status load(gw_cli *cli, job *j, gw_elastic_batch fallback) {
    gw_elastic_batch was = {0};
    int64_t ranks = j->ranks > 0 ? j->ranks : gw_mpi_launched();
    if (j->resume) {
        was = gw_elastic_look(j->out_dir, NULL);
        if (was.global == 0) was = fallback;
        ranks = GW_MAX(ranks, INT64_C(1));
    }
    gw_status st = gw_elastic_load(&j->source, ranks, was, &j->rf, &j->note, cli->diags);
    if (st == GW_OK && j->ranks > 0) st = gw_runfile_set_ranks(&j->rf, j->ranks, cli->diags);
    j->has_ranks = j->ranks > 0;
    return st;
}

/* Once, on all ranks. */
static gw_status train_once(gw_cli *cli, job *j, gw_elastic_batch fallback) {
    gw_status st = load(cli, j, fallback);
    st = gw_cli_on_ranks_until(cli, j->ranks, st == GW_OK ? j->rf.layout.timeout : 0, st, train, j,
                               &stop_signal);
    gw_runfile_release(&j->rf);
    return st;
}

static gw_status attempt(gw_cli *cli, const gw_supervise_attempt *a, void *user) {
    job *j = user;
    j->ranks = a->ranks;
    j->resume = a->resume;
    j->source.any_dp = a->any_dp;
    j->saves = a->saves;
    j->supervised = true;
    j->restarted = a->again;
    gw_status st = train_once(cli, j, a->batch);
    gw_supervise_report(a, st, cli->diags);
    return st;
}

/* Does this process speak for the run when all is over? The one that watched local ranks does, or
 * rank 0 of a launcher's. */
static bool speaks(const job *j) {
    if (j->supervised) return false;
    return j->is_rank ? j->leads && gw_mpi_launched() > 1 : true;
}

static gw_status check_options(gw_cli *cli, const job *j) {
    if (j->until < 1 && gw_cli_given(cli, "until"))
        return gw_cli_usage_error(cli, "--until takes a step from 1");
    if (gw_cli_flag(cli, "fresh") && !j->resume)
        return gw_cli_usage_error(cli, "--fresh says what --resume does where no checkpoint is "
                                       "whole");
    if (gw_cli_given(cli, "retries") && !gw_cli_flag(cli, "supervise"))
        return gw_cli_usage_error(cli, "--retries says how often --supervise starts a run again");
    if (gw_cli_int(cli, "retries", 0) < 0)
        return gw_cli_usage_error(cli, "--retries takes a number from 0");
    if (gw_cli_given(cli, "regrow") && !gw_cli_flag(cli, "supervise"))
        return gw_cli_usage_error(cli, "--regrow says when --supervise tries all ranks again");
    if (gw_cli_int(cli, "regrow", 0) < 0 || gw_cli_int(cli, "regrow", 0) > MOST_REGROW_S)
        return gw_cli_usage_error(cli, "--regrow takes seconds from 0 to %d", MOST_REGROW_S);
    if (gw_cli_flag(cli, "supervise") && gw_mpi_launched() > 1)
        return gw_cli_usage_error(cli, "--supervise starts local ranks (--ranks N), and these were "
                                       "started by mpirun or srun");
    if (gw_cli_flag(cli, "requeue") && !gw_requeue_job())
        return gw_cli_usage_error(cli, "--requeue asks Slurm, and this is no job of it "
                                       "(SLURM_JOB_ID is not set)");
    return GW_OK;
}

static gw_status train_any(gw_cli *cli, job *j) {
    gw_elastic_batch none = {0};
    if (!gw_cli_flag(cli, "supervise")) return train_once(cli, j, none);
    gw_supervise_opts o = {.source = &j->source,
                           .out_dir = j->out_dir,
                           .ranks = j->ranks,
                           .resume = j->resume,
                           .retries = gw_cli_int(cli, "retries", -1),
                           .regrow_s = gw_cli_int(cli, "regrow", REGROW_S)};
    bool in_attempt = false;
    return gw_supervise(cli, &o, &in_attempt, attempt, j);
}

static gw_status run(gw_cli *cli) {
    job j = {.until = gw_cli_int(cli, "until", 0),
             .out_dir = gw_cli_string(cli, "out", default_out(cli, cli->args[0])),
             .resume = gw_cli_flag(cli, "resume")};
    bool requeue = gw_cli_flag(cli, "requeue");
    if (gw_store_is_url(j.out_dir))
        return gw_cli_usage_error(cli,
                                  "--out '%s' is no directory: a run directory is on this "
                                  "machine, its checkpoints can be elsewhere (--set "
                                  "checkpoint.dir=s3://BUCKET/PREFIX)",
                                  j.out_dir);
    GW_TRY(check_options(cli, &j));
    GW_TRY(gw_cli_ranks(cli, &j.ranks));
    GW_TRY(gw_cli_source(cli, cli->args[0], &j.source));
    if (requeue && gw_requeue_again()) j.resume = true;
    gw_status st = train_any(cli, &j);
    if (requeue && st == GW_ERR_INTERRUPTED && speaks(&j) && stop_signal != SIGINT)
        gw_requeue_ask();
    return st;
}

const gw_command gw_cmd_train = {
    .name = "train",
    .summary = "train a model as a run file says",
    .usage = {"RUN.yaml [--out DIR] [--ranks N] [--resume] [--set KEY=VALUE]"},
    .description =
        "Trains, validates and saves as the run file says; DIR gets all that it leaves.\n"
        "SIGTERM (HUP, USR1, Ctrl-C) ends the step, saves, exits 3; twice: stops at once.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright train examples/quickstart.yaml --out runs/first",
    .run = run,
};
