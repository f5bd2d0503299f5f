// SPDX-License-Identifier: Apache-2.0
// `gradwright verify`: does the configured layout compute what one rank computes?
//
// Ranks are started as for `train`; where neither --ranks nor mpirun nor srun says how many, the
// run file's layout does. Rank 0 prints, and alone fails when something disagrees: another that
// left with an error before it would be taken for one that broke down.
#include <jansson.h>

#include "cli/command.h"   /* gw_command */
#include "cli/ranks.h"     /* gw_cli_on_ranks */
#include "cli/runarg.h"    /* gw_cli_runfile */
#include "comm/mpi.h"      /* gw_mpi_launched */
#include "run/exec_comm.h" /* gw_exec_agree */
#include "train/verify.h"  /* gw_verify_run */

enum { STEPS = 3, MOST_STEPS = 1000, LINES = 20 };

static const gw_option options[] = {
    GW_OPTION_RANKS,
    {"steps", 0, "N", "steps to compare (default 3)", GW_OPT_INT, NULL},
    {"optimizer", 0, "WHICH", "sgd, which hides no factor (default), or the run's own",
     GW_OPT_STRING, "sgd run"},
    {"all", 'a', NULL, "list every tensor that disagrees", GW_OPT_FLAG, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

typedef struct job {
    gw_runfile rf;
    gw_verify_opts opts;
} job;

static void print(gw_cli *cli, const gw_verify_result *r) {
    if (!gw_cli_flag(cli, "json")) {
        gw_verify_print(r, gw_cli_flag(cli, "all") ? 0 : LINES, cli->out);
        return;
    }
    json_t *j = gw_verify_json(r);
    json_dumpf(j, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', cli->out);
    json_decref(j);
}

static gw_status disagrees(gw_cli *cli) {
    gw_diag *d = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_NUMERIC, "verify-disagrees",
                             (gw_where){0}, "the layout does not compute what one rank computes");
    gw_diag_hint(cli->diags, d, "please report this run file with the output of --json");
    return GW_ERR_NUMERIC;
}

static gw_status verify(gw_cli *cli, gw_comm *comm, void *user) {
    job *j = user;
    gw_verify_result r = {0};
    gw_status st = gw_runfile_set_ranks(&j->rf, comm ? gw_comm_size(comm) : 1, cli->diags);
    GW_TRY(gw_exec_agree(comm, st, NULL, "reading the layout", cli->diags));
    st = gw_verify_run(&j->rf, &j->opts, comm, &r, cli->diags);
    bool root = !comm || gw_comm_rank(comm) == 0;
    if (st == GW_OK && root) print(cli, &r);
    if (st == GW_OK && root && !r.ok) st = disagrees(cli);
    gw_verify_result_release(&r);
    return st;
}

static gw_status run(gw_cli *cli) {
    job j = {.opts = {.steps = gw_cli_int(cli, "steps", STEPS)}};
    int ranks = 0;
    if (j.opts.steps < 1 || j.opts.steps > MOST_STEPS)
        return gw_cli_usage_error(cli, "--steps takes a number from 1 to %d", (int)MOST_STEPS);
    GW_TRY(gw_cli_ranks(cli, &ranks));
    j.opts.run_optimizer = gw_cli_string(cli, "optimizer", "sgd")[0] == 'r';
    gw_status st = gw_cli_runfile(cli, cli->args[0], &j.rf);
    if (st == GW_OK && ranks > 0) st = gw_runfile_set_ranks(&j.rf, ranks, cli->diags);
    bool cut = st == GW_OK && j.rf.layout.tp * j.rf.layout.cp > 1;
    if (st == GW_OK && ranks == 0 && (cut || !j.rf.dp_auto) && gw_mpi_launched() == 0)
        ranks = (int)gw_runfile_ranks(&j.rf);
    st = gw_cli_on_ranks(cli, ranks, st == GW_OK ? j.rf.layout.timeout : 0, st, verify, &j);
    gw_runfile_release(&j.rf);
    return st;
}

const gw_command gw_cmd_verify = {
    .name = "verify",
    .summary = "compare a layout with one rank, tensor by tensor",
    .usage = {"RUN.yaml [--ranks N] [--steps N] [--set KEY=VALUE]"},
    .description =
        "Trains the layout and one rank on the same batches for a few steps, and compares\n"
        "loss, norm, gradients, moments and parameters: in float32 with wires that lose\n"
        "nothing, then as the run file says. Exits 1 on a difference, and says which\n"
        "factor or which missing part would explain it.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright verify examples/quickstart.yaml --ranks 2 --set layout.zero=2",
    .run = run,
};
