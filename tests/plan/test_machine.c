// SPDX-License-Identifier: Apache-2.0
// Machines: every built-in file, what is refused, and laws of the cost model.
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"        /* gw_arena */
#include "ir/opdef.h"          /* gw_mesh */
#include "plan/machine_impl.h" /* gw_machine_spec, gw_chip_model */
#include "planned.h"

typedef struct lab {
    gw_arena a;
    gw_diags dg;
} lab;

static void lab_init(lab *l) {
    *l = (lab){0};
    gw_diags_init(&l->dg);
}

static void lab_release(lab *l) {
    gw_diags_release(&l->dg);
    gw_arena_release(&l->a);
}

static gw_machine_spec read(lab *l, const char *text) {
    gw_machine_spec m;
    CHECK_OK(gw_machine_read(text, &l->a, &m, &l->dg), &l->dg);
    return m;
}

static double coll(const gw_machine_spec *m, gw_coll_kind kind, const gw_mesh *mesh, uint32_t axes,
                   int64_t bytes) {
    gw_coll_part part = {.elems = bytes / 2};
    gw_coll c = {.kind = kind,
                 .dtype = GW_BF16,
                 .axes = axes,
                 .size = gw_mesh_size(mesh, axes),
                 .nparts = 1,
                 .parts = &part};
    return gw_machine_coll_seconds(m, &c, mesh);
}

/* ---- files ---- */

TEST(every_machine_reads_and_each_fact_has_a_source) {
    static const char *const names[] = {"v100",    "a100-40g", "a100-80g", "h100-sxm", "h100-pcie",
                                        "h800",    "h200",     "b200",     "gb200",    "b300",
                                        "gb300",   "mi250x",   "mi300x",   "tpu-v4",   "tpu-v5e",
                                        "tpu-v5p", "tpu-v6e"};
    lab l;
    lab_init(&l);
    int n = 0;
    while (gw_machine_name(n)) n++;
    CHECK_EQ(n, GW_COUNT(names));
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        gw_machine_spec m = read(&l, names[i]);
        CHECK_STR(m.name, names[i]);
        CHECK(gw_machine_flops(&m, GW_BF16) > 1e14 && gw_machine_flops(&m, GW_BF16) < 1e16);
        CHECK(m.memory_bytes >= 16e9 && m.memory_bytes_per_s >= 8e11);
        CHECK(m.ntiers > 0 && gw_machine_overlap(&m) >= 1);
        CHECK(strstr(m.sources, "memory.bytes ") != NULL);
        for (const char *p = m.sources; *p; p = strchr(p, '\n') + 1) {
            const char *colon = strstr(p, ": ");
            CHECK(colon && colon < strchr(p, '\n') && colon[2] != '\n');
        }
        for (int t = 0; t < m.ntiers; t++) {
            char fact[64];
            snprintf(fact, sizeof fact, "links.%s.bytes_per_s ", m.tiers[t].name);
            CHECK(strstr(m.sources, fact) != NULL);
        }
    }
    lab_release(&l);
}

TEST(a_machine_is_stated_by_name_by_keys_or_both) {
    lab l;
    lab_init(&l);
    gw_machine_spec m = read(&l, "h100");
    CHECK_STR(m.name, "h100-sxm");
    CHECK_STR(m.asked, "h100");
    CHECK_NEAR(gw_machine_flops(&m, GW_BF16), 989e12, 1);
    CHECK_NEAR(gw_machine_flops(&m, GW_F8E5M2), 1979e12, 1);
    CHECK_NEAR(gw_machine_link(&m, 8), 450e9, 1);
    CHECK_NEAR(gw_machine_link(&m, 9), 50e9, 1);
    m = read(&l, "h100,mfu=0.4,beyond=25GB/s");
    CHECK_NEAR(gw_machine_flops(&m, GW_BF16), 0.4 * 989e12, 1);
    CHECK_NEAR(gw_machine_link(&m, 9), 25e9, 1);
    m = read(&l, "flops=312TFLOP/s,memory=2T,link=300e9");
    CHECK_NEAR(gw_machine_flops(&m, GW_BF16), 312e12, 1);
    CHECK_NEAR(m.memory_bytes_per_s, 2e12, 1);
    CHECK_NEAR(gw_machine_link(&m, 4096), 300e9, 1);
    CHECK_EQ(gw_machine_reach(&m), 0);
    m = read(&l, "h100-pcie");
    CHECK_EQ(gw_machine_reach(&m), 8);
    CHECK_NEAR(gw_machine_link(&m, 16), 0, 0);
    gw_str text = {0};
    m = read(&l, "a100");
    gw_machine_describe(&m, &text);
    CHECK(strstr(gw_str_c(&text), "a100-80g (a100): ") != NULL);
    gw_str_release(&text);
    /* 500 of 700 W: the clock of the cube root, memory as it is; more than it may draw is no gain.
     */
    m = read(&l, "h100,power=500W,memory=2.4TB/s");
    CHECK_NEAR(gw_machine_flops(&m, GW_BF16) / 989e12, 0.8939, 1e-4);
    CHECK_NEAR(m.memory_bytes_per_s, 2.4e12, 1);
    m = read(&l, "h100,power=1000");
    CHECK_NEAR(gw_machine_flops(&m, GW_BF16), 989e12, 1);
    static const char *const bad[][2] = {{"h101", "h101"},
                                         {"gb200,power=500W", "may draw"},
                                         {"flops=1e15,power=500W", "may draw"},
                                         {"h100,power=500GB/s", "above 0"},
                                         {"h100,link=fast", "link=fast"},
                                         {"h100,memory=80GB", "bytes a second"},
                                         {"flops=-1", "above 0"},
                                         {"mfu=1.5", "at most 1"},
                                         {"reach=2.5", "ranks"},
                                         {"", "no machine"},
                                         {"h100,speed=2", "no such key"}};
    for (size_t i = 0; i < GW_COUNT(bad); i++)
        CHECK_FAILS(gw_machine_read(bad[i][0], &l.a, &m, &l.dg), &l.dg, bad[i][1]);
    lab_release(&l);
}

/* A file of which one line is replaced. */
#define FILE_OF(peak, model)                                                                       \
    "name: x\nsources:\n  s: here\n" peak "\nmemory:\n  bytes: {is: 1e9, from: s}\n"               \
    "  bytes_per_s: {is: 1e11, from: s}\nmodel: " model "\n"
#define GOOD_PEAK "peak: {bf16: {is: 1e14, from: s}}"

TEST(wrong_files_are_refused_with_line_and_column) {
    static const struct {
        const char *text, *says;
        int line, column;
    } cases[] = {
        {FILE_OF("peak: {bf16: {is: 1e14}}", "{inherits: h100-sxm}"), "{is: VALUE, from: SOURCE}",
         4, 14},
        {FILE_OF("peak: {bf16: {is: 1e14, from: t}}", "{inherits: h100-sxm}"), "no line of", 4, 31},
        {FILE_OF("peak: {bf16: 1e14}", "{inherits: h100-sxm}"), "section of keys", 4, 14},
        {FILE_OF("peak: {bf16: {is: fast, from: s}}", "{inherits: h100-sxm}"), "is a number", 4,
         19},
        {FILE_OF("peak: {bf16: {is: -1, from: s}}", "{inherits: h100-sxm}"), "not between", 4, 19},
        {FILE_OF("peek: {}", "{inherits: h100-sxm}"), "no key of", 4, 1},
        {FILE_OF(GOOD_PEAK, "{inherits: h101}"), "no built-in machine", 8, 19},
        {FILE_OF(GOOD_PEAK, "{inherits: h100-sxm, overlap: 0.5}"), "not between", 8, 38},
        {FILE_OF(GOOD_PEAK, "{overlap: 1}"), "inherits gives it", 8, 8},
        {FILE_OF(GOOD_PEAK, "{inherits: h100-sxm, speed: 1}"), "no parameter", 8, 29},
        {FILE_OF("peak: [", "{}"), "", 0, 0},
    };
    lab l;
    gw_machine_spec m;
    lab_init(&l);
    const char *good = FILE_OF(GOOD_PEAK, "{inherits: h100-sxm}");
    CHECK_OK(gw_machine_parse("x.yaml", good, (int64_t)strlen(good), &l.a, &m, &l.dg), &l.dg);
    CHECK_EQ(m.ntiers, 0);
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_diags dg;
        gw_diags_init(&dg);
        const char *text = cases[i].text;
        CHECK_EQ(gw_machine_parse("x.yaml", text, (int64_t)strlen(text), &l.a, &m, &dg),
                 GW_ERR_CONFIG);
        bool found = false;
        for (const gw_diag *d = dg.first; d; d = d->next)
            found |= strstr(d->message, cases[i].says) != NULL && d->where.line > 0 &&
                     (cases[i].line == 0 ||
                      (d->where.line == cases[i].line && d->where.column == cases[i].column));
        if (!found) gw_diags_print(&dg, stderr, false);
        CHECK(found);
        gw_diags_release(&dg);
    }
    lab_release(&l);
}

/* ---- products ---- */

TEST(a_large_product_comes_near_the_peak_and_a_tiny_one_is_its_launch) {
    lab l;
    lab_init(&l);
    gw_machine_spec m = read(&l, "h100");
    double n = 8192, best = 2 * n * n * n / 989e12;
    double s = gw_machine_product_seconds(&m, GW_BF16, n, n, n, 1);
    CHECK(best / s > 0.5 && best / s < 0.9);
    /* A tile more than whole waves takes another wave; eight bits are faster; short k is slower. */
    double whole = gw_machine_product_seconds(&m, GW_BF16, 128 * 132, 256, n, 1);
    double more = gw_machine_product_seconds(&m, GW_BF16, 128 * 132 + 1, 256, n, 1);
    CHECK(more > whole);
    CHECK(gw_machine_product_seconds(&m, GW_F8E4M3, n, n, n, 1) < s);
    CHECK(gw_machine_product_seconds(&m, GW_BF16, n, n, 512, 1) > s / 16);
    /* 16 x 16 x 16 takes far longer than its FLOPs. */
    CHECK(gw_machine_product_seconds(&m, GW_BF16, 16, 16, 16, 1) > 100 * 2 * 16 * 16 * 16 / 989e12);
    lab_release(&l);
}

/* What more of anything may do. */
TEST(faster_machines_are_never_slower) {
    lab l;
    lab_init(&l);
    gw_mesh mesh = {0};
    uint32_t dp = gw_mesh_add(&mesh, "dp", 16), tp = gw_mesh_add(&mesh, "tp", 4);
    for (int i = 0; gw_machine_name(i); i++) {
        gw_machine_spec m = read(&l, gw_machine_name(i)), fast = m;
        for (int t = 0; t < m.ntiers; t++) {
            fast.tiers[t].bytes_per_s *= 1.5;
            fast.tiers[t].pair_bytes_per_s *= 1.5;
        }
        for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
            for (int64_t bytes = 64; bytes <= 1 << 30; bytes *= 8)
                for (int g = 0; g < 3; g++) {
                    uint32_t axes = g == 0 ? tp : g == 1 ? dp : dp | tp;
                    double s = coll(&m, (gw_coll_kind)k, &mesh, axes, bytes);
                    CHECK(coll(&fast, (gw_coll_kind)k, &mesh, axes, bytes) <= s);
                    CHECK(coll(&m, (gw_coll_kind)k, &mesh, axes, bytes / 2) <= s);
                }
        fast = m;
        for (int t = 0; t < GW_DTYPE_COUNT; t++) fast.peak[t] *= 1.5;
        fast.memory_bytes_per_s *= 1.5;
        for (double n = 16; n < 20000; n *= 1.7)
            CHECK(gw_machine_product_seconds(&fast, GW_BF16, n, n, n, 1) <=
                  gw_machine_product_seconds(&m, GW_BF16, n, n, n, 1));
    }
    lab_release(&l);
}

/* ---- collectives ---- */

TEST(collectives_move_what_theory_says) {
    lab l;
    lab_init(&l);
    gw_mesh one = {0}, many = {0};
    uint32_t tp = gw_mesh_add(&one, "tp", 8);
    uint32_t dp = gw_mesh_add(&many, "dp", 16), node = gw_mesh_add(&many, "tp", 8);
    int64_t bytes = 1000000000;
    gw_machine_spec m = read(&l, "a100-80g");
    double ideal = 2.0 * 7 / 8 * (double)bytes / 300e9;
    double s = coll(&m, GW_COLL_ALL_REDUCE, &one, tp, bytes);
    CHECK(s >= ideal && s < 1.4 * ideal);
    /* Half of an all-reduce is a reduce-scatter, the other half an all-gather. */
    CHECK_NEAR(coll(&m, GW_COLL_REDUCE_SCATTER, &one, tp, bytes) / s, 0.5, 0.02);
    CHECK_NEAR(coll(&m, GW_COLL_ALL_GATHER, &one, tp, bytes) / s, 0.5, 0.02);
    /* Measured all-reduce bus bandwidth of an A100 node: about 235 GB/s (ml-engineering). */
    CHECK_NEAR(2.0 * 7 / 8 * (double)bytes / s, 235e9, 0.05 * 235e9);
    /* Of a DGX H100 switches reduce: past what a ring reaches. */
    gw_machine_spec h = read(&l, "h100");
    CHECK(2.0 * 7 / 8 * (double)bytes / coll(&h, GW_COLL_ALL_REDUCE, &one, tp, bytes) > 400e9);
    /* A group of one rank a node has one adapter; one of whole nodes has eight. */
    double narrow = coll(&h, GW_COLL_ALL_GATHER, &many, dp, bytes);
    double wide = coll(&h, GW_COLL_ALL_GATHER, &many, dp | node, bytes);
    CHECK(narrow > 0.9 * 15 / 16 * (double)bytes / 50e9);
    CHECK(wide < narrow / 4);
    CHECK_EQ(gw_machine_tier(&h, &many, node), 0);
    CHECK_EQ(gw_machine_tier(&h, &many, dp), 1);
    /* Small ones are latency: a thousandth of the bytes, hardly less time. */
    double small = coll(&h, GW_COLL_ALL_REDUCE, &one, tp, 1024);
    CHECK(small > 5e-6 && small < 50e-6);
    CHECK(coll(&h, GW_COLL_ALL_REDUCE, &one, tp, 8192) < 1.3 * small);
    lab_release(&l);
}

/* ---- experts ---- */

static const gw_op *find_op(const gw_graph *g, const char *name) {
    for (int64_t i = 0; i < g->ops.count; i++)
        if (gw_op_is(g, &g->ops.items[i], name)) return &g->ops.items[i];
    CHECK_MSG(false, "no op %s", name);
    return NULL;
}

/* Seconds that the rows of a layer of 16 experts, cut over 16 ranks, are on the way; less what no
 * rows at all would take. */
static double rows_seconds(const gw_machine_spec *m, int top, int groups, int limit) {
    planned p;
    gw_machine_spec instant = *m;
    for (int t = 0; t < instant.ntiers; t++) instant.tiers[t].bytes_per_s = 1e30;
    PLAN(&p,
         "model: {family: deepseek, layers: 2, hidden: 256, heads: 4, ffn: 512, vocab: 512,\n"
         "  moe: {experts: 16, top: %d, ffn: 256, groups: %d, group_limit: %d}}\n"
         "train: {seq_len: 512, micro_batch: 4}\nprecision: {compute: bf16}\n"
         "layout: {dp: 16, ep: 16}\n",
         top, groups, limit);
    const gw_op *o = find_op(&p.step, "experts_ep"), *back = find_op(&p.step, "experts_ep_grad");
    uint32_t dp = gw_mesh_group(&p.step.mesh, "dp");
    double s = gw_machine_rows_seconds(m, &p.step, o, dp, 16);
    CHECK_NEAR(gw_machine_rows_seconds(m, &p.step, back, dp, 16), s, 1e-12);
    s -= gw_machine_rows_seconds(&instant, &p.step, o, dp, 16);
    planned_release(&p);
    return s;
}

/* 2,048 tokens of 512 bytes on each of 16 ranks, 8 in a node. */
TEST(a_token_travels_once_to_each_node_and_rank_that_it_needs) {
    lab l;
    lab_init(&l);
    gw_machine_spec m = read(&l, "h100");
    double bytes = 2048 * 512, across = m.model->far_efficiency * 50e9;
    double within = m.model->near_efficiency * 450e9;
    /* One choice: half of the tokens leave the node, seven eighths of them their rank. */
    CHECK_NEAR(rows_seconds(&m, 1, 1, 1) * across / (bytes / 2), 1, 1e-6);
    /* All experts: each token goes to both nodes once, to each of 16 ranks once. */
    CHECK_NEAR(rows_seconds(&m, 16, 1, 1) * within / (bytes * 16 * 7 / 8), 1, 1e-6);
    /* Two of 16: both in the other node or none there, by counting pairs. */
    double other = 1 - (8.0 * 7) / (16 * 15);
    CHECK_NEAR(rows_seconds(&m, 2, 1, 1) * across / (bytes * other), 1, 1e-6);
    /* Of one group of two, both stand in one node, as in the case of one choice. */
    CHECK_NEAR(rows_seconds(&m, 2, 2, 1) * across / (bytes / 2), 1, 1e-6);
    /* Two of four groups, two of these in each node: one node alone in two of six draws. */
    double both = rows_seconds(&m, 2, 4, 2) * across / bytes;
    CHECK(both > 0.5 && both < other);
    lab_release(&l);
}

TEST(the_order_of_ranks_decides_which_links_are_used) {
    lab l;
    lab_init(&l);
    gw_machine_spec m = read(&l, "h100");
    gw_mesh inside = {0}, outside = {0};
    (void)gw_mesh_add(&inside, "dp", 8);
    uint32_t in = gw_mesh_add(&inside, "pp", 8), out = gw_mesh_add(&outside, "pp", 8);
    (void)gw_mesh_add(&outside, "tp", 8);
    CHECK(gw_machine_send_seconds(&m, &inside, 1 << 24) * 4 <
          gw_machine_send_seconds(&m, &outside, 1 << 24));
    CHECK_EQ(gw_machine_tier(&m, &inside, in), 0);
    CHECK_EQ(gw_machine_tier(&m, &outside, out), 1);
    lab_release(&l);
}
