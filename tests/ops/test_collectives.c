// SPDX-License-Identifier: Apache-2.0
// Conversion ops: what a verifier says of types that differ in another way than the op stands for,
// and how the parts of nested cuts lie in each other.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "ir/shard.h"       /* GW_SHARD_ZIGZAG */
#include "ir/text.h"        /* gw_graph_parse */
#include "ir/verify.h"      /* gw_graph_verify */
#include "ops/conversion.h" /* gw_conversion_of, gw_parts */
#include "ops/ops.h"        /* gw_ops_table */

static void parse(gw_graph *g, const char *op, const char *from, const char *to, gw_diags *dg) {
    char text[800];
    snprintf(
        text, sizeof text,
        "program mb 1 values 2\nmesh dp.0=2 cp.0=2 cp.1=2 tp.0=2\n"
        "let %%0 : %s input activations step \"x\"\n%%1 = %s %%0 : %s F step \"a\" on compute\n",
        from, op, to);
    CHECK_OK(gw_graph_parse(g, gw_ops_table(), text, (int64_t)strlen(text), "test", dg), dg);
}

/* The op between these types is refused, in a message that has all the words. */
static void bad(const char *op, const char *from, const char *to, const char *words) {
    gw_diags dg;
    gw_graph g;
    char word[64];
    int n = 0;
    gw_diags_init(&dg);
    parse(&g, op, from, to, &dg);
    for (const char *p = words; sscanf(p, "%63s%n", word, &n) == 1; p += n) {
        gw_diags_clear(&dg);
        CHECK_FAILS(gw_graph_verify(&g, &dg), &dg, word);
    }
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

static void good(const char *op, const char *from, const char *to, const char *group) {
    gw_diags dg;
    gw_graph g;
    gw_conversion c;
    gw_diags_init(&dg);
    parse(&g, op, from, to, &dg);
    CHECK_OK(gw_graph_verify(&g, &dg), &dg);
    CHECK_OK(gw_conversion_of(&g, &g.ops.items[0], &c, &dg), &dg);
    CHECK_EQ(c.axes, gw_mesh_group(&g.mesh, group));
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

TEST(conversions_take_what_they_stand_for) {
    good("all_reduce", "f32[b4 s8]+P(sum){tp}", "f32[b4 s8]", "tp");
    good("all_reduce", "f32[b4 s8]+P(max){tp}", "f32[b4 s8]", "tp");
    good("reduce_scatter", "f32[b4 s8]+P(sum){tp}", "f32[b4 s{tp}8]", "tp");
    good("reduce_scatter", "f32[b4 s8]+P(sum){cp}", "f32[b4 s{cp/:zigzag}8]", "cp");
    good("reduce_scatter", "f32[d5 f{tp}8]+P(sum){dp}", "f32[d5 f{tp}8]+flat{dp}", "dp");
    good("all_gather", "f32[b4 s{cp/tp:zigzag}16]", "f32[b4 s{cp/:zigzag}16]", "tp");
    good("all_gather", "f32[b4 s{cp/:zigzag}16]", "f32[b4 s16]", "cp");
    good("all_to_all", "f32[b4 s{cp}8 h4]", "f32[b4 s8 h{cp}4]", "cp");
    good("shift", "f32[s{cp/:zigzag+3}8]", "f32[s{cp/:zigzag}8]", "cp");
    good("slice", "f32[b3 v10]", "f32[b3 v{cp}10]", "cp");
    good("keep_one", "f32[b4 s8]", "f32[b4 s8]+P(sum){tp}", "tp");
    good("place", "f32[v{tp}7]", "f32[v7]+P(sum){tp}", "tp");
}

TEST(a_message_names_sub_axis_and_dimension) {
    bad("all_reduce", "f32[b4 s8]+P(sum){tp}", "f32[b4 s{tp}8]", "all_reduce dimension s tp.0");
    bad("all_reduce", "f32[b4 s8]", "f32[b4 s8]+P(sum){tp}", "partial tp.0");
    bad("all_reduce", "f32[b4]+P(sum){tp}+P(max){dp}", "f32[b4]", "both");
    bad("reduce_scatter", "f32[b4 s8]+P(sum){dp}", "f32[b4 s{tp}8]", "dp.0 tp.0 partial");
    bad("reduce_scatter", "f32[b4 v7]+P(sum){tp}", "f32[b4 v{tp}7]", "dimension v tp.0 equal");
    bad("all_gather", "f32[b4 v{tp}7]", "f32[b4 v7]", "dimension v tp.0 equal");
    bad("all_gather", "f32[s{cp.0,tp}8]", "f32[s{tp}8]", "dimension s lose last cp.0");
    bad("all_gather", "f32[b{dp}4 s{tp}8]", "f32[b4 s8]", "dimension s tp.0");
    bad("all_gather", "f32[s{cp/tp:zigzag}16]", "f32[s16]", "dimension s equal");
    bad("all_gather", "f32[s{tp}8]+P(sum){dp}", "f32[s8]", "partial dp.0");
    bad("all_to_all", "f32[s{cp}8 h4]", "f32[s8 h4]", "gains");
    bad("all_to_all", "f32[s{cp}8 h{tp}4]", "f32[s8 h{tp,cp.0}4]", "cp.1");
    bad("all_to_all", "f32[s{cp/:zigzag}8 h4]", "f32[s8 h{cp}4]", "zigzag dimension s");
    bad("shift", "f32[s{cp/:zigzag}8]", "f32[s{cp/:zigzag+2}8]", "dimension s rank");
    bad("shift", "f32[s{cp/}10]", "f32[s{cp/+1}10]", "dimension s unequal");
    bad("slice", "f32[b4 s{tp}8]", "f32[b4 s8]", "dimension s tp.0");
    bad("slice", "f32[v{cp.0}10]", "f32[v{cp}10]", "dimension v cp.1");
    bad("keep_one", "f32[b4]+P(sum){tp}", "f32[b4]", "partial tp.0");
    bad("place", "f32[v{tp}7]", "f32[v7]", "tp.0");
    bad("slice", "f32[b4 s8]", "f32[b4 s8]+P(sum){tp}", "partial tp.0");
}

/* ---- parts within parts ---- */

/* Every element of the finer local tensor, once, and both ends of a run are one global element. */
static void check_parts(const char *fine, const char *coarse) {
    gw_diags dg;
    gw_graph g;
    gw_diags_init(&dg);
    parse(&g, "slice", coarse, fine, &dg);
    const gw_type *f = gw_type_of(&g, 1), *c = gw_type_of(&g, 0);
    for (int64_t r = 0; r < gw_mesh_ranks(&g.mesh); r++) {
        int64_t global[2][2000], at, local, count, from, to, seen = 0;
        const gw_type *types[2] = {f, c};
        for (int k = 0; k < 2; k++) {
            gw_held h;
            CHECK(gw_type_local_elems(types[k], &g.mesh, r) <= 2000);
            gw_held_begin(&h, types[k], &g.mesh, r);
            while (gw_held_next(&h, &at, &local, &count))
                for (int64_t i = 0; i < count; i++) global[k][local + i] = at + i;
        }
        gw_parts p;
        gw_parts_begin(&p, f, c, &g.mesh, r);
        while (gw_parts_next(&p, &from, &to, &count)) {
            CHECK_EQ(from, seen); /* in the order of the finer */
            for (int64_t i = 0; i < count; i++) CHECK_EQ(global[0][from + i], global[1][to + i]);
            seen += count;
        }
        CHECK_EQ(seen, gw_type_local_elems(f, &g.mesh, r));
    }
    gw_graph_release(&g);
    gw_diags_release(&dg);
}

TEST(parts_lie_in_coarser_parts) {
    check_parts("f32[b3 v{tp}7]", "f32[b3 v7]");
    check_parts("f32[b{dp}3 s{cp}9 h{tp}5]", "f32[b3 s9 h5]");
    check_parts("f32[b2 s{cp/tp:zigzag}32 h2]", "f32[b2 s{cp/:zigzag}32 h2]");
    check_parts("f32[b2 s{cp/tp:zigzag}32 h2]", "f32[b2 s32 h2]");
    check_parts("f32[b2 s{cp:zigzag}32 h{tp}3]", "f32[b2 s{cp.0:zigzag}32 h3]");
    check_parts("f32[s{cp/:zigzag+3}16 b2]", "f32[s16 b2]");
    check_parts("f32[e{cp}3 b2]", "f32[e3 b2]"); /* a rank without any */
    check_parts("f32[b0 s{tp}4]", "f32[b0 s4]");
}

TEST(nesting_tells_how) {
    gw_diags dg;
    gw_graph g;
    static const struct {
        const char *fine, *coarse;
        gw_nesting is;
    } facts[] = {{"f32[s{cp}8]", "f32[s8]", GW_NEST_ROWS},
                 {"f32[s{cp}10]", "f32[s10]", GW_NEST_HELD},
                 {"f32[s{cp}10]", "f32[s{cp.0}10]", GW_NEST_NONE},
                 {"f32[s{cp.0/cp.1}10]", "f32[s{cp.0}10]", GW_NEST_HELD},
                 {"f32[s{cp.0/cp.1}8]", "f32[s8]", GW_NEST_ROWS},
                 {"f32[s{cp:zigzag}8]", "f32[s8]", GW_NEST_HALVES},
                 {"f32[s{cp:zigzag}8]", "f32[s{cp.0:zigzag}8]", GW_NEST_HALVES},
                 {"f32[s{cp/tp:zigzag}16]", "f32[s{cp/:zigzag}16]", GW_NEST_ROWS},
                 {"f32[s{cp/tp:zigzag}16]", "f32[s16]", GW_NEST_HELD},
                 {"f32[s{cp/:zigzag+1}8]", "f32[s8]", GW_NEST_HELD},
                 {"f32[s{tp,cp}8]", "f32[s8]", GW_NEST_HELD},
                 {"f32[s{tp,cp}8]", "f32[s{tp}8]", GW_NEST_ROWS},
                 {"f32[s{tp,cp}8]", "f32[s{cp}8]", GW_NEST_NONE}};
    for (size_t i = 0; i < GW_COUNT(facts); i++) {
        gw_diags_init(&dg);
        parse(&g, "slice", facts[i].coarse, facts[i].fine, &dg);
        gw_nesting is =
            gw_dim_nesting(&gw_type_of(&g, 1)->dims[0], &gw_type_of(&g, 0)->dims[0], &g.mesh);
        CHECK_MSG(is == facts[i].is, "%s in %s: %d, not %d", facts[i].fine, facts[i].coarse,
                  (int)is, (int)facts[i].is);
        gw_graph_release(&g);
        gw_diags_release(&dg);
    }
}
