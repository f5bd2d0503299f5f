// SPDX-License-Identifier: Apache-2.0
// Running a command's work on several ranks, with one voice.
//
// The process that --ranks makes the parent does nothing but wait; its exit code is that of the
// ranks. A rank that fails by itself tells the others why as it leaves, so that they stop at once
// and without a word of their own. What every rank finds out at the same time has been settled
// before (gw_exec_agree): one has diagnostics, the rest have none. So printing is left to the
// program as ever; only warnings that all share are dropped from rank 1 on, and an error found on
// one of those says on which.
#include "cli/ranks.h"

#include "base/log.h"      /* gw_log_set_level */
#include "comm/launch.h"   /* gw_launch */
#include "run/exec_comm.h" /* gw_exec_agree */

gw_status gw_cli_ranks(gw_cli *cli, int *ranks) {
    int64_t n = gw_cli_int(cli, "ranks", 0);
    *ranks = 0;
    if (!gw_cli_given(cli, "ranks")) return GW_OK;
    if (n < 1 || n > 1048576) return gw_cli_usage_error(cli, "--ranks takes a number from 1");
    *ranks = (int)n;
    return GW_OK;
}

/* A rank above 0 leaves what all would say to rank 0. */
static void lower_voice(gw_cli *cli, const gw_comm *comm) {
    if (gw_comm_rank(comm) == 0) return;
    cli->quiet = true;
    if (!cli->verbose) gw_log_set_level(GW_LOG_QUIET);
}

static void settle_diags(gw_cli *cli, const gw_comm *comm, gw_status st) {
    if (gw_comm_rank(comm) == 0) return;
    if (st == GW_OK || cli->diags->nerrors == 0)
        gw_diags_clear(cli->diags);
    else if (st != GW_ERR_PEER) /* such a message names the ranks itself */
        gw_diag_frame(cli->diags, "running rank %d", gw_comm_rank(comm));
}

/* The ranks have said why. */
static gw_status status_of_code(gw_cli *cli, int code) {
    cli->exit_code = code;
    return code == 0 ? GW_OK : code == 3 ? GW_ERR_INTERRUPTED : GW_ERR_PEER;
}

gw_status gw_cli_on_ranks(gw_cli *cli, int ranks, double timeout_s, gw_status before,
                          gw_status (*body)(gw_cli *cli, gw_comm *comm, void *user), void *user) {
    gw_launch_opts o = {.ranks = ranks, .timeout_s = timeout_s};
    gw_launch_role role = GW_LAUNCH_ALONE;
    gw_comm *comm = NULL;
    int code = 0;
    if (before != GW_OK && ranks > 0) return before;
    gw_status st = gw_launch(&o, &role, &comm, &code, cli->diags);
    if (st != GW_OK) return st;
    if (role == GW_LAUNCH_PARENT) return status_of_code(cli, code);
    if (role == GW_LAUNCH_ALONE) return before != GW_OK ? before : body(cli, NULL, user);
    lower_voice(cli, comm);
    st = gw_exec_agree(comm, before, NULL, "starting", cli->diags);
    if (st == GW_OK) st = body(cli, comm, user);
    settle_diags(cli, comm, st);
    bool ok = st == GW_OK || st == GW_ERR_INTERRUPTED;
    gw_launch_leave(comm, ok, ok ? "" : gw_diags_first_error(cli->diags));
    return st;
}
