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

#include <stdio.h>
#include <sys/prctl.h>

#include "base/str.h"      /* gw_str_eq */
#include "base/log.h"      /* gw_log_set_level */
#include "comm/launch.h"   /* gw_launch */
#include "run/exec_comm.h" /* gw_exec_agree */
#include "run/memory.h"    /* gw_memory_check_processes */

const char *gw_cli_ranks_option(const gw_cli *cli) {
    for (int i = 0; i < cli->command->noptions; i++)
        if (gw_str_eq(cli->command->options[i].name, "world") && gw_cli_given(cli, "world"))
            return "world";
    return "ranks";
}

gw_status gw_cli_ranks(gw_cli *cli, int *ranks) {
    const char *option = gw_cli_ranks_option(cli);
    int64_t n = gw_cli_int(cli, option, 0);
    *ranks = 0;
    if (!gw_cli_given(cli, option)) return GW_OK;
    if (n < 1 || n > GW_CLI_MOST_RANKS)
        return gw_cli_usage_error(cli, "--%s takes a number from 1 to %d", option,
                                  GW_CLI_MOST_RANKS);
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

/* What ps and top show: fifteen characters. */
static void name_rank(int rank) {
    char name[24];
    snprintf(name, sizeof name, "gradwright:%d", rank);
    prctl(PR_SET_NAME, name);
}

static gw_status rank_part(gw_cli *cli, gw_comm *comm, gw_status before,
                           gw_status (*body)(gw_cli *cli, gw_comm *comm, void *user), void *user,
                           volatile sig_atomic_t *stop) {
    name_rank(gw_comm_rank(comm));
    lower_voice(cli, comm);
    gw_status st = before;
    if (st == GW_OK && stop) st = gw_launch_listen(comm, stop, cli->diags);
    st = gw_exec_agree(comm, st, NULL, "starting", cli->diags);
    if (st == GW_OK) st = body(cli, comm, user);
    settle_diags(cli, comm, st);
    bool ok = st == GW_OK || st == GW_ERR_INTERRUPTED;
    gw_launch_leave(comm, ok, ok ? "" : gw_diags_first_error(cli->diags));
    return st;
}

gw_status gw_cli_on_ranks_until(gw_cli *cli, int ranks, double timeout_s, gw_status before,
                                gw_status (*body)(gw_cli *cli, gw_comm *comm, void *user),
                                void *user, volatile sig_atomic_t *stop) {
    gw_launch_opts o = {.ranks = ranks, .timeout_s = timeout_s, .listens = stop != NULL};
    gw_launch_role role = GW_LAUNCH_ALONE;
    gw_comm *comm = NULL;
    int code = 0;
    if (before != GW_OK && ranks > 0) return before;
    if (ranks > 1) GW_TRY(gw_memory_check_processes(ranks, stop != NULL, cli->diags));
    gw_status st = gw_launch(&o, &role, &comm, &code, cli->diags);
    if (st != GW_OK) return st;
    if (role == GW_LAUNCH_PARENT) return status_of_code(cli, code);
    if (role == GW_LAUNCH_RANK) return rank_part(cli, comm, before, body, user, stop);
    GW_TRY(before);
    if (stop) GW_TRY(gw_launch_listen(NULL, stop, cli->diags));
    return body(cli, NULL, user);
}

gw_status gw_cli_on_ranks(gw_cli *cli, int ranks, double timeout_s, gw_status before,
                          gw_status (*body)(gw_cli *cli, gw_comm *comm, void *user), void *user) {
    return gw_cli_on_ranks_until(cli, ranks, timeout_s, before, body, user, NULL);
}
