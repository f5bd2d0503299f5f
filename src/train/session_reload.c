// SPDX-License-Identifier: Apache-2.0
// Another state into a session that is open: back to a checkpoint without opening the run anew.
//
// Opening a run costs what its program costs: it is compiled, its memory reserved, its kernels are
// prepared. None of that hangs on the state. What does is little: parameters and states, the
// counters, the loss scale, the place in the data, and what the newest save remembers. So a run
// that is taken back (after a loss that went astray, or from state to state in a test) loads a
// checkpoint into the memory that it has and goes on from there, as if it had been opened on it.
//
// The checkpoint is judged as at the opening: it must fit the run file, each block has its hash,
// and where the run has a probe it is made again and compared. One that does not fit leaves the
// session as it was. One that is damaged may be found out when part of it stands in memory already:
// then there is no state, and the session is to be closed.
#include "base/log.h"      /* gw_log_debug */
#include "ckpt/keep.h"     /* gw_ckpt_keep_forget */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

enum { RELOADING_LIMIT_S = 1800 };

/* Steps that are under way end, a save that is being written is committed. */
static gw_status come_to_rest(gw_session *s, gw_diags *dg) {
    gw_session_step_result dropped;
    GW_TRY(gw_session_settle(s, &dropped, dg));
    return gw_session_save_poll(s, true, dg);
}

/* A run that begins anew where none is found is another wish than going back. */
static gw_status load(gw_session *s, const char *run_dir, gw_diags *dg) {
    bool found = false, fresh = s->fresh;
    s->fresh = false;
    gw_status st = gw_session_resume(s, run_dir, &found, dg);
    s->fresh = fresh;
    GW_TRY(st);
    if (found) return GW_OK;
    st = GW_FAIL(dg, GW_ERR_IO, "checkpoint-none", "'%s' has no checkpoint", run_dir);
    gw_diag_hint(dg, dg ? dg->last : NULL, "name a directory given to `gradwright train --out`");
    return st;
}

static gw_status reload(gw_session *s, const char *run_dir, gw_diags *dg) {
    GW_TRY(come_to_rest(s, dg));
    GW_TRY(load(s, run_dir, dg));
    /* What the newest save was of is no longer what stands here. */
    if (s->keep) gw_ckpt_keep_forget(s->keep);
    if (s->loader) gw_loader_seek(s->loader, s->next_sample);
    return gw_session_probe_check(s, dg);
}

gw_status gw_session_reload(gw_session *s, const char *run_dir, gw_diags *dg) {
    if (s->comm) gw_comm_busy(s->comm, "loading a checkpoint", RELOADING_LIMIT_S);
    gw_status st = reload(s, run_dir, dg);
    if (s->comm) gw_comm_busy(s->comm, NULL, 0);
    if (st == GW_OK && gw_ranks_me(s->comm) == 0)
        gw_log_debug("went back to the state of step %lld, from %s", (long long)s->step,
                     s->resumed_path);
    return st;
}
