// SPDX-License-Identifier: Apache-2.0
// `gradwright train`: runs the loop, on one rank or several, and turns signals into an orderly
// stop.
//
// The first SIGINT, SIGTERM or SIGHUP (the terminal went away) sets a flag that the loop reads
// between steps: it finishes the step, saves, and the program exits 3. A second one ends the
// process at once, with the status that shells expect of a signal; but not SIGHUP, which a closing
// terminal sends more than once. A signal that reaches only one rank stops all: they settle it
// before the next step. No handler runs: comm/launch_listen.c says why and how. SIGXFSZ is ignored,
// so that a file size limit shows as a failed write with its reason.
//
// The flag is the only mutable global here: the thread that sets it outlives every call.
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "base/str.h"      /* gw_str_eq */
#include "cli/command.h"   /* gw_command */
#include "cli/ranks.h"     /* gw_cli_on_ranks_until */
#include "cli/runarg.h"    /* gw_cli_runfile */
#include "run/exec_comm.h" /* gw_exec_agree */
#include "train/loop.h"    /* gw_train_run */

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
    {"until", 0, "N", "stop after step N, saved; --resume goes on", GW_OPT_INT, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

typedef struct job {
    gw_runfile rf;
    int64_t until;
    bool has_ranks; /* the run file knows their number */
} job;

/* One rank's part. */
static gw_status train(gw_cli *cli, gw_comm *comm, void *user) {
    job *j = user;
    int64_t ranks = comm ? gw_comm_size(comm) : 1;
    if (!j->has_ranks) {
        gw_status st = gw_runfile_set_ranks(&j->rf, ranks, cli->diags);
        GW_TRY(gw_exec_agree(comm, st, NULL, "reading the layout", cli->diags));
    }
    signal(SIGXFSZ, SIG_IGN);
    gw_train_opts o = {.out_dir = gw_cli_string(cli, "out", default_out(cli, cli->args[0])),
                       .resume = gw_cli_flag(cli, "resume"),
                       .until = j->until,
                       .progress = cli->quiet ? NULL : stderr,
                       .stop = &stop_signal,
                       .comm = comm};
    json_t *summary = NULL;
    gw_status st = gw_train_run(&j->rf, &o, &summary, cli->diags);
    if (summary && gw_cli_flag(cli, "json")) {
        json_dumpf(summary, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        fputc('\n', cli->out);
    }
    json_decref(summary);
    return st;
}

static gw_status run(gw_cli *cli) {
    job j = {.until = gw_cli_int(cli, "until", 0)};
    int ranks = 0;
    if (j.until < 1 && gw_cli_given(cli, "until"))
        return gw_cli_usage_error(cli, "--until takes a step from 1");
    GW_TRY(gw_cli_ranks(cli, &ranks));
    gw_status st = gw_cli_runfile(cli, cli->args[0], &j.rf);
    if (st == GW_OK && ranks > 0) st = gw_runfile_set_ranks(&j.rf, ranks, cli->diags);
    j.has_ranks = ranks > 0;
    st = gw_cli_on_ranks_until(cli, ranks, st == GW_OK ? j.rf.layout.timeout : 0, st, train, &j,
                               &stop_signal);
    gw_runfile_release(&j.rf);
    return st;
}

const gw_command gw_cmd_train = {
    .name = "train",
    .summary = "train a model as a run file says",
    .usage = {"RUN.yaml [--out DIR] [--ranks N] [--resume] [--set KEY=VALUE]",
              "(mpirun -n N or srun -n N before it: ranks on several hosts)"},
    .description =
        "Trains, validates and saves as the run file says. DIR gets config.yaml,\n"
        "plan.json, metrics.jsonl, summary.json, tb/, traces, report.html, checkpoints/,\n"
        "and copies of the model's config.json and the tokenizer.\n"
        "Ctrl-C, SIGTERM or SIGHUP finishes the step, saves and exits 3. A second\n"
        "Ctrl-C or SIGTERM stops at once, unsaved, with the shell's status (130 for\n"
        "Ctrl-C); SIGHUP again does not.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright train examples/quickstart.yaml --out runs/first",
    .run = run,
};
