// SPDX-License-Identifier: Apache-2.0
// A rank of a pipeline that is killed, stopped or asleep in one of its actions: the run ends soon,
// with one line that names the rank, and the action, stage and micro-batch it was at.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../comm/rig.h"
#include "../harness.h"
#include "staged.h"

typedef enum fault { KILLED, STOPPED, ASLEEP } fault;

typedef struct scene {
    const staged *p;
    gw_part part; /* of the victim, in micro-batch 2 of stage 1 */
    fault fault;
    staged_feeding f;
} scene;

enum { VICTIM = 1, MICRO = 2 };

static void ran(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end) {
    const scene *s = user;
    (void)end;
    if (micro != MICRO || staged_place_of(x) != VICTIM) return;
    if (gw_exec_graph(x)->ops.items[first].part != s->part) return;
    struct timespec t = {.tv_sec = 4};
    switch (s->fault) {
    case KILLED: raise(SIGKILL); break;
    case STOPPED: raise(SIGSTOP); break;
    case ASLEEP: nanosleep(&t, NULL); break;
    }
}

static gw_status feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    return staged_feed(&((scene *)user)->f, x, micro, dg);
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    scene *s = user;
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = *gw_comm_machine(c)};
    gw_graph g;
    gw_exec *x = NULL;
    staged_make(s->p, gw_comm_rank(c), &f, &g, dg);
    gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts o = {.machine = f.machine, .comm = c, .rank = gw_comm_rank(c)};
    GW_TRY(gw_exec_new(&x, &g, &o, dg));
    staged_write_weights(s->p, x);
    s->f = staged_feeding_of(s->p, x, 0);
    gw_exec_loop l = {.feed = feed, .ran = ran, .user = s};
    gw_status st = gw_exec_run(x, GW_SEG_PRE, dg);
    if (st == GW_OK) st = gw_exec_run_all(x, s->p->micro, &l, dg);
    if (st == GW_OK) st = gw_exec_run(x, GW_SEG_POST, dg);
    gw_exec_free(x);
    gw_graph_release(&g);
    return st;
}

static void play(const staged *p, gw_part part, fault f, const char *doing) {
    static rig_result r;
    scene s = {.p = p, .part = part, .fault = f};
    rig_forked(p->ranks, 0.5, body, &s, &r);
    test_note("%s", r.text);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 20.0, "%.2f s", r.seconds);
    const char *line = strstr(r.text, "[peer-");
    CHECK_MSG(line && !strstr(line + 1, "[peer-"), "not one line:\n%s", r.text);
    while (line > r.text && line[-1] != '\n') line--;
    char text[2048];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    CHECK_MSG(strstr(text, "rank 1"), "%s", text);
    CHECK_MSG(strstr(text, doing), "no '%s' in: %s", doing, text);
}

TEST(a_rank_that_fails_in_an_action_is_named_with_it) {
    staged *p = calloc(1, sizeof *p);
    *p = (staged){.ranks = 3, .stages = 3, .micro = 5, .dp = 1, .places = 2, .rank_of = {0, 1, 2}};
    staged_1f1b(p);
    play(p, GW_PART_F, KILLED, "forward of micro-batch 2 of stage 1 (F1.2, action");
    play(p, GW_PART_RECV_B, KILLED,
         "receive of gradients of micro-batch 2 of stage 1 (rB1.2, action");
    play(p, GW_PART_I, STOPPED, "backward of micro-batch 2 of stage 1 (B1.2, action");
    play(p, GW_PART_SEND_F, ASLEEP,
         "send of activations of micro-batch 2 of stage 1 (sF1.2, action");
    free(p);
}
