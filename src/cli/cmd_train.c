// SPDX-License-Identifier: Apache-2.0
// `gradwright train`: runs the loop, and turns signals into an orderly stop.
//
// The first SIGINT, SIGTERM or SIGHUP (the terminal went away) sets a flag that the loop reads
// between steps: it finishes the step, saves, and the program exits 3. A second one ends the
// process at once, with the status that shells expect of a signal; but not SIGHUP, which a closing
// terminal sends more than once. SIGXFSZ is ignored, so that a file size limit shows as a failed
// write with its reason.
//
// The flag is the one mutable global here: a signal handler can reach nothing else.
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"    /* gw_log_get_level */
#include "base/str.h"    /* gw_str_eq */
#include "cli/command.h" /* gw_command */
#include "cli/runarg.h"  /* gw_cli_runfile */
#include "train/loop.h"  /* gw_train_run */

static volatile sig_atomic_t stop_signal;

static void on_signal(int signo) {
    if (stop_signal != 0 && signo == SIGHUP) return;
    if (stop_signal != 0) _exit(128 + signo);
    stop_signal = signo;
    static const char text[] =
        "\nfinishing this step, then saving; once more stops at once, without saving\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

static void catch_signals(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    struct sigaction hangup; /* nohup has it ignored: then it stays so */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

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
    {"resume", 0, NULL, "continue from the newest checkpoint in it", GW_OPT_FLAG, NULL},
    {"until", 0, "N", "stop after step N, saved; --resume goes on", GW_OPT_INT, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

static gw_status run(gw_cli *cli) {
    int64_t until = gw_cli_int(cli, "until", 0);
    if (until < 1 && gw_cli_given(cli, "until"))
        return gw_cli_usage_error(cli, "--until takes a step from 1");
    gw_runfile rf;
    gw_status st = gw_cli_runfile(cli, cli->args[0], &rf);
    if (st == GW_OK) {
        catch_signals();
        gw_train_opts o = {.out_dir = gw_cli_string(cli, "out", default_out(cli, cli->args[0])),
                           .resume = gw_cli_flag(cli, "resume"),
                           .until = until,
                           .progress = cli->quiet ? NULL : stderr,
                           .stop = &stop_signal};
        json_t *summary = NULL;
        st = gw_train_run(&rf, &o, &summary, cli->diags);
        if (summary && gw_cli_flag(cli, "json")) {
            json_dumpf(summary, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
            fputc('\n', cli->out);
        }
        json_decref(summary);
    }
    gw_runfile_release(&rf);
    return st;
}

const gw_command gw_cmd_train = {
    .name = "train",
    .summary = "train a model as a run file says",
    .usage = {"RUN.yaml [--out DIR] [--resume] [--until N] [--set KEY=VALUE]"},
    .description = "Trains, validates and saves as the run file says. DIR gets config.yaml,\n"
                   "plan.json, metrics.jsonl, summary.json, tb/, trace.json, report.html and\n"
                   "checkpoints/, and copies of the model's config.json and the tokenizer.\n"
                   "Ctrl-C, SIGTERM or SIGHUP finishes the step, saves and exits 3; a second\n"
                   "one stops at once, unsaved, with the shell's status (130 for Ctrl-C).",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright train examples/quickstart.yaml --out runs/first",
    .run = run,
};
