// SPDX-License-Identifier: Apache-2.0
// Ranks of a pipeline, each with a program of its own: whatever the order of their actions, the
// gradients are those of one rank, to the bit (all numbers are whole). Values that wait between
// actions share places, and a place is poisoned when it is left.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "comm/launch.h" /* gw_launch_threads */
#include "ir/flow.h"     /* gw_flow_of */
#include "staged.h"

typedef struct job {
    const staged *p;
    void (*check)(const struct job *j, gw_exec *x, gw_comm *c, gw_diags *dg);
    const double *pace[3];
    int bad_stage; /* whose weight is no number; < 0: none */
    int feeds;     /* calls of feed that are expected */
} job;

static bool holds(const staged *p, int at, int s) { return p->rank_of[s] == at; }

static void check_results(const staged *p, gw_exec *x, int step) {
    staged_want *want = malloc(sizeof *want);
    staged_compute(p, step, want);
    for (int s = 0; s < p->stages; s++) {
        char name[16];
        snprintf(name, sizeof name, "dw%d", s);
        if (!holds(p, staged_place_of(x), s)) continue;
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, name));
        CHECK_EQ(t.elems, staged_in(s) * staged_out(s));
        for (int64_t i = 0; i < t.elems; i++)
            CHECK_MSG((double)((float *)t.data)[i] == want->dw[s][i],
                      "gradient %lld of stage %d: %g, not %g", (long long)i, s,
                      (double)((float *)t.data)[i], want->dw[s][i]);
    }
    float norm = 0;
    CHECK(gw_exec_read(x, "norm", &norm, sizeof norm));
    double sum = staged_place_of(x) == 0 ? 2 * want->norm : want->norm;
    CHECK_NEAR((double)norm, sum, 1e-5 * sum);
    free(want);
}

static void step(const staged *p, gw_exec *x, int number, staged_feeding *f, gw_diags *dg) {
    *f = staged_feeding_of(p, x, number);
    gw_exec_loop l = {.feed = staged_feed, .user = f};
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    CHECK_OK(gw_exec_run_all(x, p->micro, &l, dg), dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
}

static void check_steps(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    (void)c;
    for (int i = 0; i < 2; i++) {
        staged_feeding f;
        step(j->p, x, i, &f, dg);
        check_results(j->p, x, i);
    }
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = gw_coll_machine_local(1)};
    if (c) f.comm = *gw_comm_machine(c);
    gw_graph g;
    gw_exec *x = NULL;
    int rank = c ? gw_comm_rank(c) : 0;
    staged_make(j->p, rank / j->p->dp, &f, &g, dg);
    if (c) gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts o = {.machine = f.machine, .comm = c, .rank = rank, .poison = true};
    for (int i = 0; i < 3; i++) o.stage_seconds[i] = j->pace[i];
    GW_TRY(gw_exec_new(&x, &g, &o, dg));
    CHECK_EQ(gw_exec_arena_bytes(x), g.arena_bytes[GW_MEM_DEVICE]);
    staged_write_weights(j->p, x);
    j->check(j, x, c, dg);
    gw_exec_free(x);
    gw_graph_release(&g);
    return GW_OK;
}

static void run_job(job j) {
    gw_diags dg;
    gw_diags_init(&dg);
    int n = j.p->ranks * j.p->dp;
    if (n > 1)
        CHECK_OK(gw_launch_threads(n, 20, body, &j, &dg), &dg);
    else
        CHECK_OK(body(NULL, &j, &dg), &dg);
    gw_diags_release(&dg);
}

static staged *chain(int ranks, int micro, int places) {
    staged *p = calloc(1, sizeof *p);
    p->ranks = p->stages = ranks;
    p->micro = micro;
    p->places = places;
    p->dp = 1;
    for (int i = 0; i < ranks; i++) p->rank_of[i] = i;
    return p;
}

TEST(one_stage_a_rank_computes_what_one_rank_computes) {
    static const int micro[] = {1, 2, 3, 8};
    for (int ranks = 2; ranks <= 3; ranks++)
        for (size_t m = 0; m < GW_COUNT(micro); m++)
            for (int k = 0; k < 4; k++) {
                staged *p = chain(ranks, micro[m], k < 2 ? 1 : micro[m]);
                if (k == 0) staged_1f1b(p);
                if (k == 1) staged_gpipe(p);
                if (k > 1) staged_random(p, (uint64_t)k * 77 + (uint64_t)m, k == 3);
                run_job((job){.p = p, .check = check_steps, .bad_stage = -1});
                free(p);
            }
}

/* Several stages a rank: what goes between them stays there, and a micro-batch's inputs are asked
 * for when its turn has come. */
static staged *folded(int ranks, int stages, int micro) {
    staged *p = chain(ranks, micro, micro);
    p->stages = stages;
    for (int s = 0; s < stages; s++) { /* in a V */
        int at = s % (2 * ranks);
        p->rank_of[s] = at < ranks ? at : 2 * ranks - 1 - at;
    }
    return p;
}

TEST(several_stages_a_rank_in_orders_at_random) {
    static const int shapes[][2] = {{1, 2}, {1, 3}, {2, 4}, {3, 6}, {2, 3}};
    for (size_t k = 0; k < GW_COUNT(shapes); k++)
        for (int seed = 0; seed < 6; seed++) {
            staged *p = folded(shapes[k][0], shapes[k][1], 1 + seed * 2);
            staged_random(p, (uint64_t)seed + 10 * k, seed % 2);
            run_job((job){.p = p, .check = check_steps, .bad_stage = -1});
            free(p);
        }
}

static void check_feeds(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    staged_feeding f;
    (void)c;
    step(j->p, x, 0, &f, dg);
    CHECK_EQ(f.calls, j->feeds);
    check_results(j->p, x, 0);
}

TEST(inputs_of_first_and_last_stage_are_asked_for_in_turn) {
    staged *p = folded(1, 2, 4);
    staged_gpipe(p);
    run_job((job){.p = p, .check = check_feeds, .bad_stage = -1, .feeds = 8}); /* x, then seed */
    free(p);
}

/* Ranks of a pipeline that are cut on another axis too: each sends its rows, and R adds up. */
TEST(rows_cut_over_another_axis_are_sent_by_those_who_hold_them) {
    for (int kind = 0; kind < 2; kind++) {
        staged *p = chain(2, 4, 2);
        p->dp = 2;
        if (kind == 0) staged_1f1b(p);
        if (kind == 1) staged_gpipe(p);
        run_job((job){.p = p, .check = check_steps, .bad_stage = -1});
        free(p);
    }
}

/* ---- what is planned ---- */

/* Places of activations are those of the micro-batches under way: min(m, p - i) of them in 1F1B. */
static void check_sizes(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    const gw_graph *g = gw_exec_graph(x);
    gw_arena mem = {0};
    gw_flow f;
    gw_flow_of(&f, g, &mem);
    int at = staged_place_of(x), most = 0;
    for (int i = 1; i <= f.nclasses; i++) most = GW_MAX(most, f.places[i]);
    CHECK_EQ(most, GW_MIN(j->p->micro, j->p->stages - at));
    gw_arena_release(&mem);
    int64_t mine = gw_exec_arena_bytes(x), all[STAGED_MAX];
    CHECK_OK(gw_comm_all_gather(c, &mine, sizeof mine, all, "sizes", dg), dg);
    CHECK(all[0] != all[1]);

    gw_comm_counts_reset(c);
    staged_feeding fd;
    step(j->p, x, 0, &fd, dg);
    gw_coll_traffic t = gw_exec_sends_traffic(g, gw_exec_rank(x));
    gw_comm_counts n = gw_channels_counted(c);
    int last = j->p->stages - 1;
    int64_t forward = at < last ? STAGED_ROWS * staged_out(at) : 0;
    int64_t back = at > 0 ? STAGED_ROWS * staged_in(at) : 0, norms = at > 0 ? 1 : last;
    CHECK_EQ(t.payload, 4 * (j->p->micro * (forward + back) + norms));
    CHECK_EQ(t.moved, t.payload);
    CHECK_EQ(n.payload, t.payload);
    CHECK_EQ(n.moved, t.moved);
    gw_coll_traffic each[GW_COLL_KIND_COUNT];
    gw_exec_traffic(g, gw_exec_rank(x), gw_comm_machine(c), each);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) CHECK_EQ(each[k].moved, 0);
}

TEST(arenas_and_messages_are_as_planned_on_each_rank) {
    staged *p = chain(3, 6, 2);
    staged_1f1b(p);
    run_job((job){.p = p, .check = check_sizes, .bad_stage = -1});
    free(p);
}

TEST(a_stage_alone_is_refused) {
    staged *p = chain(2, 2, 1);
    gw_diags dg;
    gw_diags_init(&dg);
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = gw_coll_machine_local(1)};
    gw_graph g;
    gw_exec *x = NULL;
    staged_1f1b(p);
    staged_make(p, 0, &f, &g, &dg);
    gw_exec_opts o = {.machine = f.machine};
    CHECK_EQ(gw_exec_new(&x, &g, &o, &dg), GW_ERR_UNSUPPORTED);
    CHECK_STR(dg.first->id, "exec-ranks");
    gw_graph_release(&g);
    gw_diags_release(&dg);
    free(p);
}

/* ---- looking at it ---- */

typedef struct outputs {
    staged_feeding f;
    staged_want want;
    int seen, reduced;
} outputs;

/* The last stage's result, where the micro-batch has it. */
static void ran(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end) {
    outputs *o = user;
    const gw_graph *g = gw_exec_graph(x);
    const gw_op *op = &g->ops.items[first];
    CHECK(end > first);
    o->reduced += micro < 0;
    if (micro < 0 || op->part != GW_PART_F || op->stage != o->f.p->stages - 1) return;
    gw_tensor t = gw_exec_tensor(x, gw_op_out(g, op, 0));
    for (int64_t i = 0; i < t.elems; i++)
        CHECK_NEAR((double)((float *)t.data)[i], o->want.y[micro][i], 0);
    o->seen++;
}

static gw_status feed_outputs(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    return staged_feed(&((outputs *)user)->f, x, micro, dg);
}

static void check_outputs_seen(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    outputs *o = calloc(1, sizeof *o);
    (void)c;
    o->f = staged_feeding_of(j->p, x, 0);
    staged_compute(j->p, 0, &o->want);
    gw_exec_loop l = {.feed = feed_outputs, .ran = ran, .user = o};
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    CHECK_OK(gw_exec_run_all(x, j->p->micro, &l, dg), dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
    CHECK_EQ(o->seen, holds(j->p, staged_place_of(x), j->p->stages - 1) ? j->p->micro : 0);
    CHECK(o->reduced > 0);
    free(o);
}

TEST(what_a_piece_made_can_be_looked_at) {
    staged *p = folded(2, 4, 5);
    staged_random(p, 4711, true);
    run_job((job){.p = p, .check = check_outputs_seen, .bad_stage = -1});
    free(p);
}

/* A weight that is no number: its stage names the product, the others what they were sent. */
static void check_bad(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    gw_oid bad = GW_NONE;
    int64_t micro = 0;
    char name[16];
    (void)c;
    snprintf(name, sizeof name, "w%d", j->bad_stage);
    bool mine = holds(j->p, staged_place_of(x), j->bad_stage);
    if (mine) ((float *)gw_exec_ptr(x, gw_exec_find(x, name)))[3] = NAN;
    staged_feeding f = staged_feeding_of(j->p, x, 0);
    gw_exec_loop l = {.feed = staged_feed, .user = &f};
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_PRE, &bad, dg), dg);
    if (!mine) CHECK_EQ(bad, GW_NONE); /* zeros reads a shape */
    CHECK_OK(gw_exec_run_all_checked(x, j->p->micro, &l, &bad, &micro, dg), dg);
    CHECK(bad != GW_NONE);
    const gw_op *o = &gw_exec_graph(x)->ops.items[bad];
    CHECK_STR(gw_op_def(gw_exec_graph(x), o)->name, mine ? "matmul" : "recv");
    CHECK_EQ(micro, 0);
    CHECK_EQ(o->part, mine                                ? GW_PART_F
                      : staged_place_of(x) > j->bad_stage ? GW_PART_RECV_F
                                                          : GW_PART_RECV_B);
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_POST, &bad, dg), dg);
}

TEST(a_checked_run_names_where_a_nan_began) {
    staged *p = chain(3, 4, 1);
    staged_1f1b(p);
    run_job((job){.p = p, .check = check_bad, .bad_stage = 1});
    free(p);
}

/* ---- artificially slow stages ---- */

/* GPipe with equal stages: the step is (m + p - 1) (F + B), and each action lasts as long as told.
 */
static void check_pace(const job *j, gw_exec *x, gw_comm *c, gw_diags *dg) {
    staged_feeding f;
    for (int i = 0; i < 2; i++) step(j->p, x, i, &f, dg);
    const gw_graph *g = gw_exec_graph(x);
    int64_t first = INT64_MAX, last = 0, span[2], all[2 * STAGED_MAX];
    double least[GW_ACT_COUNT] = {
        [GW_ACT_F] = j->pace[0][0], [GW_ACT_B] = j->pace[1][0] + j->pace[2][0]};
    for (int64_t i = 0; i < g->actions.count; i++) {
        int64_t begin, end, before, at;
        gw_exec_action_ns(x, i, &begin, &end);
        CHECK(begin >= 0 && end >= begin);
        CHECK(1e-9 * (double)(end - begin) >= least[g->actions.items[i].act] - 1e-6);
        if (i > 0) gw_exec_action_ns(x, i - 1, &at, &before);
        if (i > 0) CHECK(begin >= before);
        first = GW_MIN(first, begin);
        last = GW_MAX(last, end);
    }
    span[0] = first + gw_exec_epoch_ns(x);
    span[1] = last + gw_exec_epoch_ns(x);
    CHECK_OK(gw_comm_all_gather(c, span, sizeof span, all, "spans", dg), dg);
    for (int r = 0; r < j->p->ranks; r++) {
        span[0] = GW_MIN(span[0], all[2 * r]);
        span[1] = GW_MAX(span[1], all[2 * r + 1]);
    }
    double took = 1e-9 * (double)(span[1] - span[0]);
    double want = (double)(j->p->micro + j->p->ranks - 1) * (least[GW_ACT_F] + least[GW_ACT_B]);
    test_note("%.1f ms, by the formula %.1f", 1e3 * took, 1e3 * want);
    CHECK(took >= want - 1e-4);
    CHECK(took < 2 * want); /* a busy machine may be late */
}

TEST(stages_can_be_made_to_last) {
    static const double forward[] = {0.010, 0.010, 0.010}, input[] = {0.012, 0.012, 0.012},
                        weight[] = {0.008, 0.008, 0.008};
    staged *p = chain(3, 4, 2);
    staged_gpipe(p);
    run_job((job){.p = p, .check = check_pace, .pace = {forward, input, weight}, .bad_stage = -1});
    free(p);
}
