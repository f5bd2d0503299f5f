// SPDX-License-Identifier: Apache-2.0
// Chains of conversions that can be told by hand: which ops, over which group, on which stream, and
// the bytes of the theory. That chains of any kind give the right numbers is a law of
// tests/run/test_conversions.c.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "base/str.h"      /* gw_str */
#include "ir/text.h"       /* gw_graph_parse, gw_type_print */
#include "ir/verify.h"     /* gw_graph_verify */
#include "ops/ops.h"       /* gw_ops_table */
#include "pass/convert.h"  /* gw_convert */
#include "run/exec_comm.h" /* gw_exec_traffic */

static const char mesh[] = "mesh dp_replicate.0=2 dp.0=2 cp.0=2 cp.1=2 tp.0=2 tp.1=2\n";

/* A graph of two inputs: `a` in one placement, `b` of the other. */
static void parse(gw_graph *g, const char *from, const char *to, gw_diags *dg) {
    char text[800];
    snprintf(text, sizeof text,
             "program mb 1 values 2\n%slet %%0 : %s input activations step \"a\"\n"
             "let %%1 : %s input activations step \"b\"\n",
             mesh, from, to);
    CHECK_OK(gw_graph_parse(g, gw_ops_table(), text, (int64_t)strlen(text), "test", dg), dg);
}

/* "all_gather tp, slice compute": ops and their streams. */
static void chain_text(const gw_graph *g, gw_str *out) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        gw_str_printf(out, "%s%s %s", i ? ", " : "", gw_op_def(g, o)->name,
                      gw_stream_name((gw_stream)o->stream));
    }
}

/* What rank 0 sends, by theory. */
static int64_t sent(const gw_graph *g) {
    gw_coll_machine m = gw_coll_machine_local(1);
    gw_coll_traffic t[GW_COLL_KIND_COUNT];
    int64_t sum = 0;
    gw_exec_traffic(g, 0, &m, t);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) sum += t[k].payload;
    return sum;
}

static void expect(const char *from, const char *to, const char *want, int64_t bytes) {
    gw_diags dg;
    gw_graph g;
    gw_builder b;
    gw_str text = {0};
    gw_diags_init(&dg);
    parse(&g, from, to, &dg);
    const gw_type aim = *gw_type_of(&g, 1);
    gw_builder_init(&b, &g, &dg);
    b.rate = GW_RATE_STEP;
    gw_vid y = gw_convert(&b, 0, &aim);
    CHECK_OK(b.status, &dg);
    CHECK_OK(gw_graph_verify(&g, &dg), &dg);
    chain_text(&g, &text);
    CHECK_EQ(sent(&g), bytes);
    CHECK_STR(gw_str_c(&text), want);
    for (int i = 0; i < aim.ndim; i++)
        CHECK(gw_dim_same_cut(&gw_type_of(&g, y)->dims[i], &aim.dims[i]));
    CHECK_EQ(gw_type_of(&g, y)->psum, aim.psum);
    CHECK_EQ(gw_type_of(&g, y)->pmax, aim.pmax);
    CHECK_EQ(gw_type_of(&g, y)->flat_axes, aim.flat_axes);
    int64_t ops = g.ops.count;
    CHECK(gw_convert(&b, y, &aim) == y); /* there already */
    CHECK_EQ(g.ops.count, ops);
    gw_str_release(&text);
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

/* Bytes of a float32 [b4 s16 d8], 2048, over 4 ranks. */
enum { WHOLE = 4 * 16 * 8 * 4 };

TEST(each_pair_of_placements_has_its_collective) {
    expect("f32[b4 s16 d8]+P(sum){tp}", "f32[b4 s16 d8]", "all_reduce tp", WHOLE / 4 * 3 * 2);
    expect("f32[b4 s16 d8]+P(max){tp}", "f32[b4 s16 d8]", "all_reduce tp", WHOLE / 4 * 3 * 2);
    expect("f32[b4 s16 d8]+P(sum){tp}", "f32[b4 s{tp}16 d8]", "reduce_scatter tp", WHOLE / 4 * 3);
    expect("f32[b4 s{tp}16 d8]", "f32[b4 s16 d8]", "all_gather tp", WHOLE / 4 * 3);
    expect("f32[b4 s{cp}16 d8]", "f32[b4 s16 d{cp}8]", "all_to_all cp", WHOLE / 16 * 3);
    expect("f32[b4 s16 d8]", "f32[b4 s{tp}16 d8]", "slice compute", 0);
    expect("f32[b4 s16 d8]", "f32[b4 s16 d8]+P(sum){tp}", "keep_one compute", 0);
    expect("f32[b4 s{tp}16 d8]", "f32[b4 s16 d8]+P(sum){tp}", "place compute", 0);
    expect("f32[b4 s16 d8]", "f32[b4 s16 d8]", "", 0);
}

/* 10 over 4 ranks is 3 3 3 1. */
TEST(what_is_uneven_is_reduced_or_placed) {
    int64_t all = 4 * 16 * 10 * 4;
    expect("f32[b4 s16 v10]+P(sum){tp}", "f32[b4 s16 v{tp}10]", "all_reduce tp, slice compute",
           all / 4 * 3 * 2);
    expect("f32[b4 s16 v{tp}10]", "f32[b4 s16 v10]", "place compute, all_reduce tp",
           all / 4 * 3 * 2);
    expect("f32[b4 s{tp}16 v10]", "f32[b4 s16 v{tp}10]", "all_gather tp, slice compute",
           all / 4 * 3);
}

/* Sequence parallelism beside context parallelism: the last sub-axes come and go alone. */
TEST(the_last_sub_axes_convert_by_themselves) {
    int64_t part = WHOLE / 4;
    expect("f32[b4 s{cp/tp:zigzag}32 d8]", "f32[b4 s{cp/:zigzag}32 d8]", "all_gather tp",
           2 * part / 4 * 3);
    expect("f32[b4 s{cp/:zigzag}32 d8]+P(sum){tp}", "f32[b4 s{cp/tp:zigzag}32 d8]",
           "reduce_scatter tp", 2 * part / 4 * 3);
    expect("f32[b4 s{cp/:zigzag}32 d8]", "f32[b4 s32 d8]", "all_gather cp", 2 * WHOLE / 4 * 3);
    expect("f32[b4 s{cp.0/cp.1:zigzag}32 h8]", "f32[b4 s{cp.0/:zigzag}32 h{cp.1}8]",
           "all_to_all cp", 2 * WHOLE / 4 / 2);
    /* a zigzag's chunks are no rows once they are cut again: two gathers */
    expect("f32[b4 s{cp/tp:zigzag}32 d8]", "f32[b4 s32 d8]", "all_gather tp, all_gather cp",
           2 * part / 4 * 3 + 2 * WHOLE / 4 * 3);
}

TEST(what_is_not_last_is_gathered_down_to_what_stays) {
    expect("f32[b4 s{cp.0,tp.0}16 d8]", "f32[b4 s{tp.0}16 d8]", "all_gather ep, slice compute",
           WHOLE / 4 * 3);
    expect("f32[b4 s{tp.0,cp.0}16 d8]", "f32[b4 s{tp.0}16 d8]", "all_gather cp", WHOLE / 4);
    /* not in the order of the mesh: one sub-axis at a time */
    expect("f32[b4 s{tp.0,cp.0}16 d8]", "f32[b4 s16 d8]", "all_gather cp, all_gather tp",
           WHOLE / 4 + WHOLE / 2);
}

TEST(a_ring_turns_step_by_step) {
    expect("f32[b4 s{cp/:zigzag}32 d8]", "f32[b4 s{cp/:zigzag+1}32 d8]", "shift cp", WHOLE / 2);
    expect("f32[b4 s{cp/:zigzag+3}32 d8]", "f32[b4 s{cp/:zigzag+1}32 d8]", "shift cp, shift cp",
           WHOLE);
}

/* A tensor is made small before it travels. */
TEST(parts_are_taken_before_sums) {
    expect("f32[b4 s16 d8]+P(sum){tp}", "f32[b{dp}4 s16 d8]", "slice compute, all_reduce tp",
           WHOLE / 2 / 4 * 3 * 2);
    expect("f32[b4 s{cp}16 d8]+P(sum){tp}", "f32[b4 s16 d8]", "all_reduce tp, all_gather cp",
           WHOLE / 4 / 4 * 3 * 2 + WHOLE / 4 * 3);
}

/* Homes: the flat cut of what the dimensions' cuts leave. */
TEST(the_flat_cut_is_of_the_local_tensor) {
    expect("f32[d16 f{tp}32]+P(sum){dp}", "f32[d16 f{tp}32]+flat{dp}", "reduce_scatter dp",
           16 * 8 * 4 / 2);
    expect("f32[d16 f{tp}32]+flat{dp}", "f32[d16 f{tp}32]", "all_gather dp", 16 * 8 * 4 / 2);
    expect("f32[d16 f{tp}32]", "f32[d16 f{tp}32]+flat{dp}", "slice compute", 0);
    expect("f32[d16 f{tp}32]+P(sum){dp_replicate, dp}", "f32[d16 f{tp}32]+flat{dp}",
           "reduce_scatter dp, all_reduce dp", 16 * 8 * 4 / 2 * 2);
}

TEST(streams_follow_groups) {
    gw_diags dg;
    gw_graph g;
    gw_diags_init(&dg);
    parse(&g, "f32[b4]", "f32[b4]", &dg);
    const gw_mesh *m = &g.mesh;
    uint32_t dp = gw_mesh_group(m, "dp"), cp = gw_mesh_group(m, "cp"), tp = gw_mesh_group(m, "tp");
    CHECK_EQ(gw_stream_of_axes(m, dp), GW_STREAM_DP);
    CHECK_EQ(gw_stream_of_axes(m, dp | gw_mesh_group(m, "dp_replicate")), GW_STREAM_DP);
    CHECK_EQ(gw_stream_of_axes(m, dp | cp), GW_STREAM_DP);
    CHECK_EQ(gw_stream_of_axes(m, cp), GW_STREAM_CP);
    CHECK_EQ(gw_stream_of_axes(m, tp & (0u - tp)), GW_STREAM_TP);
    CHECK_EQ(gw_stream_of_axes(m, dp | tp), GW_STREAM_EP);
    CHECK_EQ(gw_stream_of_axes(m, 0), GW_STREAM_COMPUTE);
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

static void refuse(const char *from, const char *to, const char *why) {
    gw_diags dg;
    gw_graph g;
    gw_builder b;
    gw_diags_init(&dg);
    parse(&g, from, to, &dg);
    const gw_type aim = *gw_type_of(&g, 1);
    gw_builder_init(&b, &g, &dg);
    b.rate = GW_RATE_STEP;
    (void)gw_convert(&b, 0, &aim);
    CHECK_FAILS(b.status, &dg, why);
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

TEST(what_no_chain_can_do_is_refused) {
    refuse("f32[b4 s16]", "f32[b4 s16]+P(max){tp}", "partial maximum");
    refuse("i32[b4 s{tp}10]", "i32[b4 s10]", "integers");
    refuse("f32[b4 s16]", "f32[b4 d16]", "other dimensions");
}
