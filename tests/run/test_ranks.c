// SPDX-License-Identifier: Apache-2.0
// Several ranks: views, buckets, and step ops inside the loop, on programs written by hand. Each
// rank's data is a function of (rank, element), so every sum is known without running anything.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "comm/launch.h" /* gw_launch_threads */
#include "ir/shard.h"    /* gw_shard */
#include "ir/text.h"     /* gw_graph_parse */
#include "ops/ops.h"     /* gw_ops_table */
#include "pass/pass.h"   /* gw_pass_place */
#include "run/exec.h"    /* gw_exec */

typedef struct job {
    const char *text; /* of the program */
    int ranks;
    int64_t n, m; /* elements of the tensors */
    void (*check)(const struct job *j, gw_exec *x, int rank, gw_diags *dg);
} job;

static float given(int rank, int64_t i) { return (float)(1 + rank * 100 + i % 13); }

/* Sum over the ranks of given(rank, i): whole numbers, exact in float32. */
static float summed(int ranks, int64_t i) {
    float s = 0;
    for (int r = 0; r < ranks; r++) s += given(r, i);
    return s;
}

static void make(const job *j, gw_graph *out, gw_exec_facts *f, gw_diags *dg) {
    gw_graph g;
    gw_compile_report report = {0};
    gw_compile_opts o = {
        .train = true, .micro_batches = 1, .workspace = gw_exec_workspace, .workspace_user = f};
    CHECK_OK(gw_graph_parse(&g, gw_ops_table(), j->text, (int64_t)strlen(j->text), "test", dg), dg);
    CHECK_OK(gw_pass_place(out, &g, &o, &report, dg), dg);
    gw_graph_release(&g);
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = *gw_comm_machine(c)};
    gw_graph g;
    gw_exec *x = NULL;
    make(j, &g, &f, dg);
    gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts o = {.machine = f.machine, .comm = c, .rank = gw_comm_rank(c), .poison = true};
    GW_TRY(gw_exec_new(&x, &g, &o, dg));
    CHECK_EQ(gw_exec_arena_bytes(x), g.arena_bytes[GW_MEM_DEVICE]);
    j->check(j, x, gw_comm_rank(c), dg);
    gw_exec_free(x);
    gw_graph_release(&g);
    return GW_OK;
}

static void run_job(job *j) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(j->ranks, 20, body, j, &dg), &dg);
    gw_diags_release(&dg);
}

static void fill(gw_exec *x, const char *name, int rank, int64_t n) {
    float *p = gw_exec_ptr(x, gw_exec_find(x, name));
    for (int64_t i = 0; i < n; i++) p[i] = given(rank, i);
}

/* ---- views ---- */

/* A partial sum is scattered in place, doubled where it lies, and gathered in place. */
static const char in_place[] =
    "program mb 1 values 4\n"
    "mesh dp.0=%d\n"
    "let %%0 : f32[d%d]+P(sum){dp} input gradients step \"x\"\n"
    "%%1 = reduce_scatter %%0 : f32[d%d]+flat{dp}=%%0 gradients O step \"a\" on dp\n"
    "%%2 = add %%1, %%1 : f32[d%d]+flat{dp}=%%1 gradients O step \"a\" on compute\n"
    "%%3 = all_gather %%2 : f32[d%d]=%%2 gradients \"y\" O step \"a\" on dp\n";

static void check_in_place(const job *j, gw_exec *x, int rank, gw_diags *dg) {
    gw_vid whole = gw_exec_find(x, "x");
    fill(x, "x", rank, j->n);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    gw_shard s = {.kind = GW_SHARD_FLAT, .size = j->n, .parts = j->ranks, .part = rank};
    int64_t length = gw_shard_length(&s), first = length ? gw_shard_global(&s, 0) : 0;
    const gw_graph *g = gw_exec_graph(x);
    gw_vid part = gw_op_out(g, &g->ops.items[0], 0), back = gw_op_out(g, &g->ops.items[2], 0);
    gw_tensor t = gw_exec_tensor(x, part);
    CHECK_EQ(t.elems, length);
    CHECK_EQ(t.ndim, 1);
    CHECK_EQ(t.first, first);
    float *base = gw_exec_ptr(x, whole);
    CHECK(t.data == (void *)(base + first));
    CHECK(gw_exec_ptr(x, back) == (void *)base);
    for (int64_t i = 0; i < j->n; i++) CHECK_NEAR(base[i], 2 * summed(j->ranks, i), 0);
}

TEST(parts_lie_where_they_are_in_the_whole) {
    static const int sizes[] = {1, 2, 7, 64, 1031};
    for (int ranks = 2; ranks <= 3; ranks++)
        for (size_t k = 0; k < GW_COUNT(sizes); k++) {
            char text[800];
            int n = sizes[k];
            snprintf(text, sizeof text, in_place, ranks, n, n, n, n);
            run_job(&(job){text, ranks, n, 0, check_in_place});
        }
}

/* slice is the view itself: nothing is copied. */
static const char sliced[] = "program mb 1 values 3\n"
                             "mesh dp.0=%d\n"
                             "let %%0 : f32[d%d] input gradients step \"x\"\n"
                             "%%1 = slice %%0 : f32[d%d]+flat{dp}=%%0 gradients O step \"a\" on "
                             "compute\n"
                             "%%2 = all_gather %%1 : f32[d%d]=%%1 gradients \"y\" O step \"a\" on "
                             "dp\n";

static void check_sliced(const job *j, gw_exec *x, int rank, gw_diags *dg) {
    fill(x, "x", rank, j->n);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    const float *y = gw_exec_ptr(x, gw_exec_find(x, "y"));
    gw_shard s = {.kind = GW_SHARD_FLAT, .size = j->n, .parts = j->ranks};
    for (int64_t i = 0; i < j->n; i++)
        CHECK_NEAR(y[i], given((int)gw_shard_owner(&s, i, NULL), i), 0); /* each its owner's */
}

TEST(a_slice_in_place_is_a_view) {
    char text[700];
    snprintf(text, sizeof text, sliced, 3, 11, 11, 11);
    run_job(&(job){text, 3, 11, 0, check_sliced});
}

/* ---- buckets ---- */

static const char bucket[] =
    "program mb 1 values 4\n"
    "mesh dp.0=%d\n"
    "let %%0 : f32[d%d]+P(sum){dp} input gradients step \"x\"\n"
    "let %%1 : f32[k%d]+P(sum){dp} input gradients step \"z\"\n"
    "%%2 = all_reduce %%0 {bucket=1} : f32[d%d]=%%0 gradients \"sx\" O step \"a\" on dp\n"
    "%%3 = all_reduce %%1 {bucket=1} : f32[k%d]=%%1 gradients \"sz\" O step \"b\" on dp\n";

static void check_bucket(const job *j, gw_exec *x, int rank, gw_diags *dg) {
    const gw_buckets *b = gw_exec_buckets(x);
    CHECK_EQ(b->n, 1);
    CHECK_EQ(b->items[0].coll.nparts, 2);
    CHECK_EQ(b->items[0].launch, 1);
    CHECK_STR(b->items[0].coll.scope, "a and 1 more");
    fill(x, "x", rank, j->n);
    fill(x, "z", rank, j->m);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    const float *y[2] = {gw_exec_ptr(x, gw_exec_find(x, "sx")),
                         gw_exec_ptr(x, gw_exec_find(x, "sz"))};
    for (int64_t i = 0; i < j->n; i++) CHECK_NEAR(y[0][i], summed(j->ranks, i), 0);
    for (int64_t i = 0; i < j->m; i++) CHECK_NEAR(y[1][i], summed(j->ranks, i), 0);
}

TEST(a_bucket_is_one_collective) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        char text[800];
        snprintf(text, sizeof text, bucket, ranks, 33, 5, 33, 5);
        run_job(&(job){text, ranks, 33, 5, check_bucket});
    }
}

/* ---- rates ---- */

/* An accumulation over three micro-batches, reduced by a step op inside the loop. */
static const char looped[] =
    "program mb 3 values 6\n"
    "mesh dp.0=2\n"
    "let %0 : f32[d6]+P(sum){dp} input gradients mb \"x\"\n"
    "let %1 : f32[d6] input gradients step \"like\"\n"
    "%2 = zeros %1 : f32[d6]+P(sum){dp} gradients O step \"a\" on compute\n"
    "%3 = accumulate %0, %2 : f32[d6]+P(sum){dp}=%2 gradients W mb \"a\" on compute\n"
    "%4 = all_reduce %3 : f32[d6]=%3 gradients \"sum\" O step \"a\" on dp\n"
    "%5 = add %0, %0 : f32[d6]+P(sum){dp} \"late\" B mb \"b\" on compute\n";

static void check_looped(const job *j, gw_exec *x, int rank, gw_diags *dg) {
    for (int step = 0; step < 2; step++) {
        fill(x, "like", rank, j->n);
        CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
        for (int k = 0; k < 3; k++) {
            fill(x, "x", rank, j->n);
            if (step == 0) /* counted by the executor, or told */
                CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, dg), dg);
            else
                CHECK_OK(gw_exec_run_loop(x, k == 2, dg), dg);
        }
        CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
        const float *y = gw_exec_ptr(x, gw_exec_find(x, "sum"));
        for (int64_t i = 0; i < j->n; i++) CHECK_NEAR(y[i], 3 * summed(2, i), 0);
    }
}

TEST(a_step_op_in_the_loop_runs_in_the_last_micro_batch) {
    run_job(&(job){looped, 2, 6, 0, check_looped});
}

/* ---- what is planned is what is sent ---- */

static void check_traffic(const job *j, gw_exec *x, int rank, gw_diags *dg) {
    (void)dg;
    gw_coll_machine m = gw_coll_machine_local(1);
    gw_coll_traffic t[GW_COLL_KIND_COUNT];
    gw_exec_traffic(gw_exec_graph(x), rank, &m, t);
    int64_t whole = 4 * j->n; /* (n-1)/n of it, for each of the two: n divides */
    CHECK_EQ(t[GW_COLL_REDUCE_SCATTER].payload, whole / j->ranks * (j->ranks - 1));
    CHECK_EQ(t[GW_COLL_ALL_GATHER].payload, whole / j->ranks * (j->ranks - 1));
    CHECK(t[GW_COLL_ALL_GATHER].moved >= t[GW_COLL_ALL_GATHER].payload);
}

TEST(payload_is_the_theory) {
    char text[800];
    snprintf(text, sizeof text, in_place, 3, 333, 333, 333, 333);
    run_job(&(job){text, 3, 333, 0, check_traffic});
}

/* Groups of a mesh of two axes on hosts of two ranks: dp is inside a host, its replicas are not. */
TEST(a_group_knows_which_hosts_it_spans) {
    gw_mesh mesh = {0};
    uint32_t replicas = gw_mesh_add(&mesh, "dp_replicate", 3), dp = gw_mesh_add(&mesh, "dp", 2);
    gw_coll_machine m = gw_coll_machine_local(1);
    m.per_host = 2;
    gw_coll_machine inside = gw_exec_group_machine(&m, &mesh, dp);
    CHECK(inside.shared);
    CHECK_EQ(inside.per_host, 2);
    gw_coll_machine across = gw_exec_group_machine(&m, &mesh, replicas);
    CHECK(!across.shared);
    CHECK_EQ(across.per_host, 1);
    CHECK_EQ(gw_exec_group_rank(&mesh, dp, 5), 1);
    CHECK_EQ(gw_exec_group_rank(&mesh, replicas, 5), 2);
}

/* ---- one error ---- */

typedef struct opinion {
    int bad; /* rank */
} opinion;

static gw_status disagree(gw_comm *c, void *user, gw_diags *dg) {
    const opinion *o = user;
    gw_status st = GW_OK;
    int64_t most = gw_comm_rank(c);
    if (gw_comm_rank(c) >= o->bad) st = GW_FAIL(dg, GW_ERR_IO, "test", "rank %d", gw_comm_rank(c));
    gw_status all = gw_exec_agree(c, st, &most, "a test", dg);
    CHECK_EQ(all, o->bad < gw_comm_size(c) ? GW_ERR_IO : GW_OK);
    CHECK_EQ(most, gw_comm_size(c) - 1);
    CHECK_EQ(dg->nerrors, gw_comm_rank(c) == o->bad);
    gw_diags_clear(dg);
    return GW_OK;
}

TEST(of_all_that_fail_the_lowest_rank_speaks) {
    for (int bad = 0; bad <= 3; bad++) {
        gw_diags dg;
        gw_diags_init(&dg);
        CHECK_OK(gw_launch_threads(3, 20, disagree, &(opinion){bad}, &dg), &dg);
        gw_diags_release(&dg);
    }
}
