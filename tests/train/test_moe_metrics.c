// SPDX-License-Identifier: Apache-2.0
// The field "moe" of metrics.jsonl: shares, largest over mean, drops, and rows by rank of a router
// whose choices are known; and that a line with it is read back like any other.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../harness.h"
#include "comm/launch.h"   /* gw_launch_threads */
#include "file/json.h"     /* gw_json_parse */
#include "ops/ops.h"       /* gw_ops_table */
#include "pass/pass.h"     /* gw_pass_place */
#include "run/exec.h"      /* gw_exec */
#include "run/exec_comm.h" /* gw_exec_facts */
#include "train/metrics.h"
#include "train/moe_metrics.h"

/* 8 tokens of one choice among 4 experts: 6 go to expert 0, 1 to expert 1, 1 nowhere. */
static const int32_t choices[8] = {0, 0, 0, 1, 0, 0, -1, 0};

/* loads, drops (nothing kept of expert 1) and, with ranks, an exchange whose experts are cut. */
static void build(gw_graph *g, int ranks, gw_diags *dg) {
    gw_graph_init(g, gw_ops_table());
    uint32_t dp = ranks > 1 ? gw_mesh_add(&g->mesh, "dp", ranks) : 0;
    static const char *const names[] = {"ids", "kept", "x", "gates", "gate", "up", "down"};
    static const char *const dims[] = {"b2 s4 t1", "b2 s4 t1", "b2 s4 d4", "b2 s4 t1",
                                       "e4 f3 d4", "e4 f3 d4", "e4 d4 f3"};
    gw_vid v[7];
    for (int i = 0; i < 7; i++) {
        gw_type t = gw_type_make(i < 2 ? GW_I32 : GW_F32, dims[i]);
        gw_dim_cut(&t.dims[0], dp, &g->mesh);
        v[i] = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, t, names[i]);
    }
    gw_builder b;
    gw_builder_init(&b, g, dg);
    b.rate = GW_RATE_STEP;
    gw_vid load = gw_build(&b, "loads", v, 1, (gw_attr[]){{.i = 4}, {.i = 1}}, NULL);
    gw_vid dropped = gw_build1(&b, "drops", v[0], v[1]);
    gw_vid y = GW_NONE;
    if (ranks > 1) {
        gw_vid in[6] = {v[2], v[0], v[3], v[4], v[5], v[6]};
        y = gw_build(&b, "experts_ep", in, 6, (gw_attr[]){{.f = 0.5}}, NULL);
        gw_dim_cut(&g->values.items[y].type.dims[0], dp, &g->mesh);
    }
    CHECK_OK(b.status, dg);
    g->values.items[load].name = gw_graph_intern(g, "moe.load.3");
    g->values.items[dropped].name = gw_graph_intern(g, "moe.dropped.3");
    if (y != GW_NONE) g->values.items[y].name = gw_graph_intern(g, "y");
}

/* Before each step: an input lives until its last reader. */
static void write_inputs(gw_exec *x) {
    int64_t n = gw_exec_tensor(x, gw_exec_find(x, "ids")).elems, first = n * gw_exec_rank(x);
    for (int64_t i = 0; i < n; i++) {
        int32_t e = choices[first % 8 + i];
        ((int32_t *)gw_exec_ptr(x, gw_exec_find(x, "ids")))[i] = e;
        ((int32_t *)gw_exec_ptr(x, gw_exec_find(x, "kept")))[i] = e == 1 ? -1 : e;
    }
    static const char *const floats[] = {"x", "gates", "gate", "up", "down"};
    for (int k = 0; k < 5; k++) {
        gw_vid v = gw_exec_find(x, floats[k]);
        float *p = gw_exec_ptr(x, v);
        for (int64_t i = 0; p && i < gw_exec_tensor(x, v).elems; i++) p[i] = 0.5f;
    }
}

static gw_exec *make(int ranks, gw_comm *c, gw_diags *dg) {
    gw_exec_facts f = {.machine = gw_machine_this(1)};
    if (c) f.comm = *gw_comm_machine(c);
    gw_compile_opts o = {
        .train = true, .micro_batches = 1, .workspace = gw_exec_workspace, .workspace_user = &f};
    gw_compile_report report = {0};
    gw_graph g, placed;
    build(&g, ranks, dg);
    CHECK_OK(gw_pass_place(&placed, &g, &o, &report, dg), dg);
    if (c) gw_comm_set_mesh(c, &placed.mesh);
    gw_exec *x = NULL;
    gw_exec_opts eo = {.machine = f.machine, .comm = c, .rank = c ? gw_comm_rank(c) : 0};
    CHECK_OK(gw_exec_new(&x, &placed, &eo, dg), dg);
    write_inputs(x);
    gw_graph_release(&g);
    gw_graph_release(&placed);
    return x;
}

/* The object behind ", \"moe\": ". */
static json_t *parse(const char *more) {
    char *text = malloc(strlen(more) + 16);
    CHECK(text && strncmp(more, ", \"moe\": ", 9) == 0);
    snprintf(text, strlen(more) + 16, "{%s}", more + 2);
    gw_diags dg;
    gw_diags_init(&dg);
    json_t *o = NULL;
    CHECK_OK(gw_json_parse(text, strlen(text), "moe", &o, &dg), &dg);
    gw_diags_release(&dg);
    free(text);
    return o;
}

static double at(const json_t *array, size_t i) {
    return json_number_value(json_array_get(array, i));
}

TEST(shares_and_drops_of_a_step) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_exec *x = make(1, NULL, &dg);
    gw_moe_metrics *m = gw_moe_metrics_new(x, NULL, NULL, 2);
    const char *more = NULL;
    CHECK(m);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &dg), &dg);
    CHECK_OK(gw_moe_metrics_take(m, &more, &dg), &dg);
    json_t *o = parse(more), *moe = json_object_get(o, "moe");
    json_t *layer = json_array_get(json_object_get(moe, "layers"), 0);
    const json_t *share = json_object_get(layer, "share");
    CHECK_EQ(json_integer_value(json_object_get(layer, "layer")), 3);
    CHECK(at(share, 0) == 0.8571 && at(share, 1) == 0.1429 && at(share, 2) == 0);
    double ratio = json_number_value(json_object_get(layer, "max_over_mean"));
    CHECK(ratio > 3.42856 && ratio < 3.42858); /* 6 against 7/4 */
    CHECK(json_number_value(json_object_get(layer, "dropped")) == 1);
    CHECK(!json_object_get(moe, "rank_rows") && !json_object_get(layer, "aux"));
    json_decref(o);
    gw_moe_metrics_free(m);
    gw_exec_free(x);
    gw_diags_release(&dg);
}

/* Experts 0 and 1 on rank 0: all 7 rows, in rounds of ceil(0.5 * 4). */
static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    gw_exec *x = make(2, c, dg);
    gw_moe_metrics *m = gw_moe_metrics_new(x, c, NULL, 1);
    const char *more = NULL;
    for (int step = 0; step < 2; step++) { /* a step is not what came before it */
        write_inputs(x);
        GW_TRY(gw_exec_run(x, GW_SEG_PRE, dg));
        GW_TRY(gw_moe_metrics_take(m, &more, dg));
        json_t *o = parse(more), *moe = json_object_get(o, "moe");
        const json_t *rows = json_object_get(moe, "rank_rows");
        const json_t *rounds = json_object_get(moe, "rank_rounds");
        CHECK(at(rows, 0) == 7 && at(rows, 1) == 0 && json_array_size(rows) == 2);
        CHECK(at(rounds, 0) == 4 && at(rounds, 1) == 4);
        CHECK(json_number_value(json_object_get(moe, "hottest_rank_s")) > 0);
        json_decref(o);
    }
    gw_moe_metrics_free(m);
    gw_exec_free(x);
    return GW_OK;
}

TEST(rows_and_rounds_of_each_rank) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(2, 20, body, NULL, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(a_line_with_experts_is_read_back) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    char dir[] = "/tmp/gw-moe-XXXXXX", path[64];
    CHECK(mkdtemp(dir));
    gw_metrics *m = NULL;
    char *more = malloc(9000);
    snprintf(more, 9000, ", \"moe\": {\"layers\": [%8000d]}", 7); /* longer than a line's buffer */
    CHECK_OK(gw_metrics_open(dir, -1, &m, &dg), &dg);
    for (int i = 1; i <= 2; i++) {
        gw_metrics_step s = {.step = i, .loss = 2.5 * i, .comm_s = -1, .more = i == 1 ? more : ""};
        CHECK_OK(gw_metrics_add(m, &s, &dg), &dg);
    }
    CHECK_OK(gw_metrics_close(m, &dg), &dg);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    gw_history h;
    CHECK_OK(gw_metrics_read(path, &mem, &h, &dg), &dg);
    CHECK_EQ(h.nsteps, 2);
    CHECK(h.steps[0].loss == 2.5 && h.steps[1].loss == 5 && h.steps[1].step == 2);
    char rm[96];
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    CHECK(system(rm) == 0);
    free(more);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}
