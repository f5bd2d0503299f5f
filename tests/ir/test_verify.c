// SPDX-License-Identifier: Apache-2.0
// The verifier: sound graphs pass, and each kind of fault is caught and named.
//
// Faults that text can express are texts; the others are changes to a graph in memory.
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/rng.h"   /* gw_rng_u32 */
#include "harness.h"
#include "ir/text.h"   /* gw_graph_parse */
#include "ir/verify.h" /* gw_graph_verify */
#include "table.h"     /* test_table, test_graph */

/* A training step in small: step ops, the loop with an accumulation, step ops. */
static const char *const sound = "program mb 2 values 9\n"
                                 "let %0 : f32[v8 d4] param weights step \"w\"\n"
                                 "let %1 : f32[b2 d4] input data mb \"x\"\n"
                                 "%2 = move %0 : f32[v8 d4] O step\n"
                                 "%3 = gemm %1, %0 : f32[b2 v8] F mb\n"
                                 "%4 = move %3 : f32[b2 v8]=%3 F mb work %5 u8[x64]\n"
                                 "%6 = accum %0, %2 : f32[v8 d4]=%2 W mb\n"
                                 "%7 = move %6 : f32[v8 d4]=%6 O step\n"
                                 "%8 = update %0, %7 : f32[v8 d4]=%0 param weights O step\n"
                                 "state %0 %8\n";

static void check_verifies(const char *text) {
    gw_graph g = test_graph(text);
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status s = gw_graph_verify(&g, &dg);
    if (s != GW_OK) test_note("%s", text);
    CHECK_OK(s, &dg);
    gw_diags_release(&dg);
    gw_graph_release(&g);
}

static void check_fault(gw_graph *g, const char *message) {
    gw_diags dg;
    gw_diags_init(&dg);
    test_note("wanted: %s", message);
    CHECK_FAILS(gw_graph_verify(g, &dg), &dg, message);
    CHECK_EQ(gw_graph_verify(g, NULL), GW_ERR_FORMAT);
    gw_diags_release(&dg);
    gw_graph_release(g);
}

TEST(verify_accepts_a_training_step) { check_verifies(sound); }

/* With one micro-batch the loop runs once, and step ops may read what it leaves. */
TEST(verify_lets_a_single_iteration_be_read) {
    check_verifies("program mb 1 values 3\nlet %0 : f32[d4] input data mb\n"
                   "%1 = move %0 : f32[d4] F mb\n%2 = move %1 : f32[d4] O step\n");
    check_verifies("program mb 1 values 4\narena device 32\nlet %0 : f32[d4] input data step\n"
                   "%1 = move %0 : f32[d4] O step @0\n%2 = move %1 : f32[d4] F mb @16\n"
                   "%3 = move %2 : f32[d4] F mb @0\n");
}

TEST(verify_accepts_an_empty_graph) { check_verifies("program mb 1 values 0"); }

/* ---- faults that text can express ---- */

#define W "let %0 : f32[v8 d4] param weights step\n"
#define X "let %1 : f32[b2 d4] input data mb\n"

typedef struct fault {
    const char *text, *message;
} fault;

static const fault faults[] = {
    /* definitions and order */
    {"program mb 1 values 3\n" W
     "%1 = move %2 : f32[v8 d4] F step\n%2 = move %0 : f32[v8 d4] F step",
     "reads %2 before its definition"},
    {"program mb 1 values 2\n" W "%1 = move %1 : f32[v8 d4] F step",
     "reads %1 before its definition"},
    {"program mb 1 values 3\n" W "%1 = move %0 : f32[v8 d4] F step after op1\n"
     "%2 = move %0 : f32[v8 d4] F step",
     "waits for op 1, which is not before it"},
    {"program mb 1 values 3\n" W "%1 = move %0 : f32[v8 d4] F step work %2 u8[x8]\n"
     "signal %2 : F step",
     "reads %2, a workspace"},
    {"program mb 1 values 4\n" W
     "%1 = move %0 : f32[v8 d4] F mb\n%2 = move %0 : f32[v8 d4] F step\n"
     "%3 = move %2 : f32[v8 d4] F mb",
     "reads %2, which is made in the last iteration only"},
    /* operands and attributes */
    {"program mb 1 values 2\n" W "%1 = gemm %0 : f32[v8 d4] F step",
     "1 inputs, where gemm takes 2"},
    {"program mb 1 values 2\n" W "%1 = join : f32[v8 d4] F step", "takes at least 1"},
    {"program mb 1 values 2\n" W "%1 = gemm _, %0 : f32[v8 d4] F step", "input 0 is missing"},
    {"program mb 1 values 2\n" W "%1 = split %0 : f32[v8 d4] F step", "has 1 outputs"},
    {"program mb 1 values 2\n" W "%1 = mix %0, _ {flag=2} : f32[v8 d4] F step",
     "attribute flag has no such value"},
    {"program mb 1 values 2\n" W "%1 = mix %0, _ {to=55} : f32[v8 d4] F step",
     "attribute to has no such value"},
    {"program mb 1 values 3\n" W
     "%1 = move %0 : f32[v8 d4] F step flags 2\nlet %2 : f32[] temp data step",
     "an unknown flag"},
    {"program mb 1 values 2\n" W "%1 = move %0 : f32[v8 d4] F step stage -1", "a negative stage"},
    {"program mb 1 values 3\n" W "%1 = move %0 : f32[v8 d4] F step work %2 f32[x8]",
     "its workspace is not bytes"},
    /* types */
    {"program mb 1 values 2\n" W "%1 = move %0 : f32[v8 d5] F step", "another type"},
    {"program mb 1 values 2\n" W "%1 = move %0 : bf16[v8 d4] F step", "another type"},
    {"program mb 1 values 3\n" W "let %1 : f32[b2 d5] input data step\n"
     "%2 = gemm %1, %0 : f32[b2 v8] F step",
     "d"},
    {"program mb 1 values 1\nlet %0 : f32[d4 d4] param weights step", "two dimensions are named d"},
    /* placements */
    {"program mb 1 values 1\nmesh tp.0=2\nlet %0 : f32[v{tp}8 d{tp}4] param weights step",
     "axis tp.0 is used twice"},
    {"program mb 1 values 1\nmesh tp.0=2\nlet %0 : f32[v{tp}8]+P(sum){tp} param weights step",
     "axis tp.0 is used twice"},
    {"program mb 1 values 1\nmesh tp.0=2\nlet %0 : f32[v8]+P(sum){tp}+P(max){tp} grad weights step",
     "axis tp.0 is used twice"},
    {"program mb 1 values 1\nmesh tp.0=2 dp.0=2\nlet %0 : f32[v{tp}8]+flat{tp} param weights step",
     "axis tp.0 is used twice"},
    {"program mb 1 values 1\nmesh tp.0=2\nlet %0 : f32[v{tp:ragged}8] param weights step",
     "ragged"},
    {"program mb 1 values 0\nmesh tp.0=4", "not a prime"},
    /* rates */
    {"program mb 2 values 4\n" W X
     "%2 = move %1 : f32[b2 d4] F mb\n%3 = move %2 : f32[b2 d4] F step",
     "a step op reads the micro-batch value %2"},
    {"program mb 2 values 3\n" W X "%2 = move %1 : f32[b2 d4] F step",
     "a step op reads the micro-batch value %1"},
    {"program mb 1 values 2\n" W "%1 = move %0 : f32[v8 d4] mb F step", "another rate than its op"},
    {"program mb 1 values 3\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = move %1 : f32[v8 d4]=%1 F mb",
     "bytes of another rate without accumulating"},
    {"program mb 1 values 4\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = join %1, %0 : f32[v8 d4] F mb\n"
     "%3 = accum %0, %1 : f32[v8 d4]=%1 W mb",
     "which op 2 carries around it"},
    /* ties */
    {"program mb 1 values 3\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = move %0 : f32[v8 d4]=%1 F step",
     "is tied to %1, no input"},
    {"program mb 1 values 4\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = move %1 : f32[v8 d4]=%1 F step\n"
     "%3 = move %1 : f32[v8 d4] F step",
     "whose bytes op 1 has taken over"},
    {"program mb 1 values 4\n" W "%1 = move %0 : f32[v8 d4] F step\n"
     "%2, %3 = split %1 : f32[v8 d4]=%1, f32[v8 d4]=%1 F step",
     "is taken over twice"},
    {"program mb 1 values 3\n" W "let %1 : f32[b2 d4] input data step\n"
     "%2 = gemm %1, %0 : f32[b2 v8]=%1 F step",
     "which has other bytes"},
    {"program mb 1 values 3\n" W "%1 = move %0 : f32[v8 d4] F step\n"
     "%2 = move %1 : f32[v8 d4]=%1 in host F step",
     "which has other bytes"},
    {"program mb 1 values 3\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = update %0, %1 : f32[v8 d4] F step",
     "output 0 must be tied to input 0"},
    {"program mb 1 values 3\n" W
     "%1 = move %0 : f32[v8 d4] F step\n%2 = accum %0, %1 : f32[v8 d4] F mb",
     "output 0 must be tied to input 1"},
    /* states */
    {"program mb 1 values 2\n" W "%1 = move %0 : f32[v8 d4] F step\nstate %1 %1",
     "but an op defines it"},
    {"program mb 1 values 2\n" W "%1 = move %0 : f32[v8 d4] F step\nstate %0 %1",
     "has not the bytes of %0"},
    {"program mb 1 values 1\n" W "state %0 %0\nstate %0 %0", "it is a state twice"},
    {"program mb 1 values 2\n" W "%1 = update %0, %0 : f32[v8 d4]=%0 F step\nstate %0 %0",
     "but %1 takes over its bytes"},
    /* memory: 128 bytes a value */
    {"program mb 1 values 1\narena device 256\nlet %0 : f32[v8 d4] param weights step @200",
     "ends outside the device arena"},
    {"program mb 1 values 2\narena device 256\nlet %0 : f32[v8 d4] param weights step @0\n"
     "%1 = move %0 : f32[v8 d4] F step @64",
     "values alive at once overlap in the device arena"},
    {"program mb 1 values 2\narena device 256\nlet %0 : f32[v8 d4] param weights step @0\n"
     "%1 = update %0, %0 : f32[v8 d4]=%0 F step @128",
     "but placed elsewhere"},
};

TEST(verify_names_each_fault) {
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        test_note("%s", faults[i].text);
        gw_graph g = test_graph(faults[i].text);
        check_fault(&g, faults[i].message);
    }
}

/* ---- faults that only memory can hold ---- */

static void string_pool(gw_graph *g) { g->chars.items[g->chars.count - 1] = 'x'; }
static void op_code(gw_graph *g) { g->ops.items[1].code = 500; }
static void op_edges(gw_graph *g) { g->ops.items[1].in = 1u << 30; }
static void op_attrs(gw_graph *g) {
    g->ops.items[1].code = OP_MIX;
    g->ops.items[1].attr = 1u << 30;
}
static void op_phase(gw_graph *g) { g->ops.items[1].phase = 99; }
static void op_scope(gw_graph *g) { g->ops.items[1].scope = 99; }
static void input_id(gw_graph *g) { g->edges.items[g->ops.items[1].in] = 9999; }
static void output_id(gw_graph *g) { g->edges.items[g->ops.items[1].out] = 9999; }
static void output_elsewhere(gw_graph *g) {
    g->edges.items[g->ops.items[1].out] = gw_op_out(g, &g->ops.items[0], 0);
}
static void orphan(gw_graph *g) { g->ops.items[2].work = GW_NONE; }
static void work_of_another(gw_graph *g) { g->ops.items[3].work = g->ops.items[2].work; }
static void work_is_output(gw_graph *g) {
    g->ops.items[1].work = gw_op_out(g, &g->ops.items[1], 0);
}
static void no_dtype(gw_graph *g) { g->values.items[0].type.dtype = 50; }
static void too_many_dims(gw_graph *g) { g->values.items[0].type.ndim = 7; }
static void nameless_dim(gw_graph *g) { g->values.items[0].type.dims[0].name[0] = 0; }
static void unterminated_dim(gw_graph *g) { memset(g->values.items[0].type.dims[0].name, 'a', 8); }
static void negative_dim(gw_graph *g) { g->values.items[0].type.dims[1].size = -4; }
static void axis_outside(gw_graph *g) {
    g->values.items[0].type.dims[1].naxes = 1;
    g->values.items[0].type.dims[1].axes[0] = 3;
}
static void mask_outside(gw_graph *g) { g->values.items[0].type.psum = 1; }
static void overflowing(gw_graph *g) { g->values.items[0].type.dims[1].size = INT64_MAX / 8; }
static void no_role(gw_graph *g) { g->values.items[0].role = 77; }
static void leaf_is_tied(gw_graph *g) { g->values.items[1].tie = 0; }
static void tie_outside(gw_graph *g) { g->values.items[3].tie = 12345; }
static void def_outside(gw_graph *g) { g->values.items[3].def = 12345; }
static void name_outside(gw_graph *g) { g->values.items[3].name = 12345; }
static void state_outside(gw_graph *g) { g->states.items[0].end = 12345; }
static void mesh_count(gw_graph *g) { g->mesh.naxes = 40; }
static void negative_offset(gw_graph *g) { g->values.items[0].offset = -7; }

static const struct {
    void (*damage)(gw_graph *);
    const char *message;
} damages[] = {
    {string_pool, "string pool"},
    {op_code, "no such op code"},
    {op_edges, "operands lie outside"},
    {op_attrs, "attributes lie outside"},
    {op_phase, "phase, rate or stream"},
    {op_scope, "scope is no string"},
    {input_id, "input 0 is a value that is not there"},
    {output_id, "output 0 is a value that is not there"},
    {output_elsewhere, "is defined elsewhere"},
    {orphan, "its op does not define it"},
    {work_of_another, "its workspace is another op's"},
    {work_is_output, "its workspace is an output"},
    {no_dtype, "no element type"},
    {too_many_dims, "more than 6 dimensions"},
    {nameless_dim, "is not letters"},
    {unterminated_dim, "is not letters"},
    {negative_dim, "negative size"},
    {axis_outside, "outside the mesh"},
    {mask_outside, "outside the mesh"},
    {overflowing, "size overflows"},
    {no_role, "role, cause, memory or rate"},
    {leaf_is_tied, "yet it is tied"},
    {tie_outside, "tied to a value that is not there"},
    {def_outside, "defined by an op that is not there"},
    {name_outside, "its name is no string"},
    {state_outside, "a state names a value that is not there"},
    {mesh_count, "too many sub-axes"},
    {negative_offset, "a negative offset"},
};

TEST(verify_survives_damage_in_memory) {
    for (size_t i = 0; i < GW_COUNT(damages); i++) {
        gw_graph g = test_graph(sound);
        damages[i].damage(&g);
        check_fault(&g, damages[i].message);
    }
}

/* ---- memory ---- */

/* A chain a -> b -> c -> d: a and c may share, b and d may share, neighbours may not. */
TEST(verify_memory_lets_the_dead_be_reused) {
    check_verifies("program mb 1 values 5\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] F step @0\n%2 = move %1 : f32[v8 d4] F step @128\n"
                   "%3 = move %2 : f32[v8 d4] F step @0\n%4 = move %3 : f32[v8 d4] F step @128\n");
    gw_graph g =
        test_graph("program mb 1 values 4\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] F step @0\n%2 = move %1 : f32[v8 d4] F step @128\n"
                   "%3 = join %2, %1 : f32[v8 d4] F step @127\n");
    check_fault(&g, "%1 [0, 128) during ops 0 to 2");
}

/* A step-rate value read early in the loop is read again by the next iteration. */
TEST(verify_memory_knows_the_loop) {
    gw_graph g =
        test_graph("program mb 2 values 4\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] O step @0\n%2 = move %1 : f32[v8 d4] F mb @128\n"
                   "%3 = move %2 : f32[v8 d4] F mb @0\n");
    check_fault(&g, "overlap");
    /* The same shape at rate mb is sound: one iteration's value is dead. */
    check_verifies("program mb 2 values 4\narena device 256\nlet %0 : f32[v8 d4] input data mb\n"
                   "%1 = move %0 : f32[v8 d4] F mb @0\n%2 = move %1 : f32[v8 d4] F mb @128\n"
                   "%3 = move %2 : f32[v8 d4] F mb @0\n");
    /* A micro-batch input is written before each iteration, so its bytes are free after its last
     * reader, but a step input's are free for good. */
    check_verifies("program mb 2 values 4\narena device 256\nlet %0 : f32[v8 d4] input data mb @0\n"
                   "%1 = move %0 : f32[v8 d4] F mb @128\n%2 = move %1 : f32[v8 d4] F mb @0\n"
                   "%3 = move %2 : f32[v8 d4] F mb @128\n");
    /* An accumulator lives through the loop although its op stands at the end. */
    g = test_graph("program mb 2 values 4\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] O step @0\n%2 = move %0 : f32[v8 d4] F mb @64\n"
                   "%3 = accum %2, %1 : f32[v8 d4]=%1 W mb @0\n");
    check_fault(&g, "overlap");
}

TEST(verify_memory_keeps_states_and_named_results) {
    gw_graph g = test_graph("program mb 1 values 3\narena device 256\n"
                            "let %0 : f32[v8 d4] state optimizer_states step @0\n"
                            "%1 = move %0 : f32[v8 d4] F step @128\n"
                            "%2 = move %1 : f32[v8 d4] F step @0\nstate %0 %0\n");
    check_fault(&g, "overlap");
    /* A gradient's name is for people; a loss is read after the step. */
    check_verifies("program mb 1 values 4\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] grad \"dw\" F step @0\n"
                   "%2 = move %0 : f32[v8 d4] F step @128\n%3 = move %2 : f32[v8 d4] F step @0\n");
    g = test_graph("program mb 1 values 4\narena device 256\nlet %0 : f32[v8 d4] input data step\n"
                   "%1 = move %0 : f32[v8 d4] \"loss\" F step @0\n"
                   "%2 = move %0 : f32[v8 d4] F step @128\n%3 = move %2 : f32[v8 d4] F step @0\n");
    check_fault(&g, "%1 \"loss\" [0, 128)");
}

TEST(verify_memory_counts_workspace) {
    gw_graph g = test_graph("program mb 1 values 3\narena device 512\n"
                            "let %0 : f32[v8 d4] input data step @0\n"
                            "%1 = move %0 : f32[v8 d4] F step @128 work %2 u8[x100] @100\n");
    check_fault(&g, "overlap");
    check_verifies(
        "program mb 1 values 5\narena device 512\nlet %0 : f32[v8 d4] input data step @0\n"
        "%1 = move %0 : f32[v8 d4] F step @128 work %2 u8[x128] @256\n"
        "%3 = move %1 : f32[v8 d4] F step @256 work %4 u8[x128] @384\n");
}

TEST(verify_memory_arenas_are_apart) {
    check_verifies("program mb 1 values 2\narena device 128\narena host 128\n"
                   "let %0 : f32[v8 d4] param weights step in host @0\n"
                   "%1 = move %0 : f32[v8 d4] F step @0\n");
}

/* A chain of n values, each alive for two ops, packed tightly by turns into three places, or, with
 * a fault, one of them moved by a byte. Compares with the direct test of all pairs and bounds the
 * time. */
static gw_graph long_chain(int n) {
    gw_graph g;
    gw_graph_init(&g, test_table());
    gw_type t = gw_type_make(GW_U8, "d64");
    gw_vid v = gw_graph_leaf(&g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, t, "");
    for (int i = 0; i < n; i++) {
        gw_oid o = gw_graph_op(&g, OP_MOVE, &v, 1, NULL, &t, 1, GW_PHASE_F, GW_RATE_STEP, 0);
        v = gw_op_out(&g, &g.ops.items[o], 0);
        g.values.items[v].offset = (int64_t)(i % 3) * 64;
    }
    g.arena_bytes[GW_MEM_DEVICE] = 192;
    return g;
}

TEST(verify_memory_is_quick_on_long_programs) {
    gw_graph g = long_chain(100000);
    gw_diags dg;
    gw_diags_init(&dg);
    int64_t t0 = gw_clock_ns();
    CHECK_OK(gw_graph_verify(&g, &dg), &dg);
    int64_t t1 = gw_clock_ns();
    CHECK_MSG(t1 - t0 < INT64_C(10000000000), "%lld ms", (long long)(t1 - t0) / 1000000);
    test_note("100,000 ops verified in %lld ms", (long long)(t1 - t0) / 1000000);
    g.values.items[70001].offset += 1;
    g.arena_bytes[GW_MEM_DEVICE] = 193;
    check_fault(&g, "overlap");
    gw_diags_release(&dg);
}

/* Random lifetimes at random places: the sweep finds an overlap exactly when some pair has one. */
typedef struct span {
    int64_t start, end, offset;
} span;

static bool any_pair_overlaps(const span *s, int n, int64_t bytes) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (s[i].start <= s[j].end && s[j].start <= s[i].end &&
                s[i].offset < s[j].offset + bytes && s[j].offset < s[i].offset + bytes)
                return true;
    return false;
}

TEST(verify_memory_agrees_with_all_pairs) {
    enum { N = 12, BYTES = 4, ROUNDS = 400 };
    int overlapping = 0;
    for (int round = 0; round < ROUNDS; round++) {
        gw_rng_key key = gw_rng_key_named((uint64_t)round, "spans");
        uint64_t at = 0;
        gw_graph g;
        span s[N];
        gw_vid v[N];
        gw_graph_init(&g, test_table());
        gw_type t = gw_type_make(GW_U8, "d4");
        gw_vid x = gw_graph_leaf(&g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, t, "");
        for (int i = 0; i < N;
             i++) { /* op 2i defines, op 2i+1 is the last reader of a chosen one */
            gw_oid o = gw_graph_op(&g, OP_MOVE, &x, 1, NULL, &t, 1, GW_PHASE_F, GW_RATE_STEP, 0);
            v[i] = gw_op_out(&g, &g.ops.items[o], 0);
            s[i] = (span){o, o, gw_rng_u32(key, at++) % (20 + 10 * (uint32_t)(round % 30))};
            g.values.items[v[i]].offset = s[i].offset;
            int k = (int)(gw_rng_u32(key, at++) % (uint32_t)(i + 1));
            s[k].end =
                gw_graph_op(&g, OP_SIGNAL, &v[k], 1, NULL, NULL, 0, GW_PHASE_F, GW_RATE_STEP, 0);
        }
        g.arena_bytes[GW_MEM_DEVICE] = 1000;
        bool bad = any_pair_overlaps(s, N, BYTES);
        CHECK_EQ(gw_graph_verify(&g, NULL) != GW_OK, bad);
        overlapping += bad;
        gw_graph_release(&g);
    }
    CHECK(overlapping > ROUNDS / 10 && overlapping < ROUNDS * 9 / 10);
}
