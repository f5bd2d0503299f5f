// SPDX-License-Identifier: Apache-2.0
// A rank that went astray: one bit of a replica flips in memory between two steps. The save that
// follows is refused and names it; the checkpoint before stays, and the run goes on from there.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"

typedef struct job {
    const char *sets[6];
    const char *tensor, *run;
    int rank;
    bool flips, async;
    int64_t resumed;
    gw_status st;
    char said[300];
} job;

static gw_status save(gw_session *s, const job *j, gw_diags *dg) {
    if (!j->async) return gw_session_save(s, j->run, dg);
    GW_TRY(gw_session_save_begin(s, j->run, dg));
    return gw_session_save_poll(s, true, dg);
}

static void flip(const gw_session *s, const char *name) {
    int found = 0;
    for (int i = 0; i < s->ntensors; i++) {
        if (strcmp(s->tensors[i].name, name) != 0 || s->tensors[i].away) continue;
        ((unsigned char *)s->tensors[i].data)[6] ^= 1;
        found++;
    }
    CHECK_MSG(found == 1, "%s", name);
}

static gw_status on_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r;
    gw_diags mine;
    int rank = gw_ranks_me(c);
    gw_diags_init(&mine);
    tiny_runfile(&rf, false, j->sets);
    CHECK_OK(gw_runfile_set_ranks(&rf, gw_ranks_count(c), dg), dg);
    GW_TRY(gw_session_open(&s, &rf, j->flips ? NULL : j->run, c, dg));
    if (rank == 0) j->resumed = s.resumed;
    GW_TRY(gw_session_step(&s, &r, dg));
    if (j->flips) GW_TRY(save(&s, j, dg));
    GW_TRY(gw_session_step(&s, &r, dg));
    if (j->flips && rank == j->rank) flip(&s, j->tensor);
    gw_status st = save(&s, j, &mine);
    if (rank == 0) {
        j->st = st;
        snprintf(j->said, sizeof j->said, "%s", st == GW_OK ? "" : gw_diags_first_error(&mine));
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&mine);
    return GW_OK;
}

static void run(job *j, int ranks) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(chdir(test_tmp_path("")) == 0);
    CHECK_OK(gw_launch_threads(ranks, 30, on_rank, j, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(a_flipped_bit_of_a_replica_refuses_the_save) {
    static const struct {
        const char *tensor, *set;
        int rank;
    } cases[] = {
        {"layers.1.mlp.up.weight", "layout.zero=0", 1},
        {"norm.weight.m", "layout.zero=0", 0},
        {"layers.0.attn.o.weight.v", "layout.zero=0", 1},
        {"layers.0.attn.norm.weight", "layout.tp=2", 1}, /* replicas on tp */
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        char dir[32], rank[32];
        snprintf(dir, sizeof dir, "run-%d", (int)i);
        snprintf(rank, sizeof rank, "rank %d", cases[i].rank);
        job j = {.sets = {cases[i].set},
                 .tensor = cases[i].tensor,
                 .run = dir,
                 .rank = cases[i].rank,
                 .flips = true,
                 .async = i % 2 == 0};
        run(&j, 2);
        CHECK_EQ(j.st, GW_ERR_PEER);
        CHECK_MSG(strstr(j.said, cases[i].tensor) && strstr(j.said, rank), "%s", j.said);
        j.flips = false; /* goes on from the one before */
        run(&j, 2);
        CHECK_MSG(j.st == GW_OK && j.resumed == 1, "%s", j.said);
    }
}

TEST(trusted_replicas_are_not_compared) {
    job j = {.sets = {"layout.zero=0", "checkpoint.replicas=trust"},
             .tensor = "norm.weight",
             .run = "run",
             .rank = 1,
             .flips = true};
    run(&j, 2);
    CHECK_MSG(j.st == GW_OK, "%s", j.said);
}
