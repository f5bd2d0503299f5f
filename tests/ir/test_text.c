// SPDX-License-Identifier: Apache-2.0
// The text form: what is printed parses back to an equal graph, and any bytes are safe to parse.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_u32 */
#include "harness.h"
#include "ir/shard.h"  /* gw_shard_kind */
#include "ir/text.h"   /* gw_graph_print, gw_graph_parse */
#include "ir/verify.h" /* gw_graph_verify */
#include "table.h"     /* test_table */

static gw_status parse(gw_graph *g, const char *text, size_t n, gw_diags *dg) {
    return gw_graph_parse(g, test_table(), text, (int64_t)n, "test", dg);
}

/* print, parse, compare, print again. */
static void check_round_trip(const gw_graph *g, bool derived) {
    gw_str text = {0}, again = {0};
    gw_graph h;
    gw_diags dg;
    char why[200] = "";
    gw_diags_init(&dg);
    gw_graph_print(g, &text, derived);
    gw_status s = parse(&h, gw_str_c(&text), text.len, &dg);
    if (s != GW_OK) test_note("%s", gw_str_c(&text));
    CHECK_OK(s, &dg);
    CHECK_MSG(gw_graph_equal(g, &h, why, sizeof why), "%s\n%s", why, gw_str_c(&text));
    gw_graph_print(&h, &again, derived);
    CHECK_STR(gw_str_c(&again), gw_str_c(&text));
    gw_graph_release(&h);
    gw_str_release(&text);
    gw_str_release(&again);
    gw_diags_release(&dg);
}

/* Everything that a graph can hold, by hand. Not a sound program: the text form does not need one.
 */
static gw_graph everything(void) {
    gw_graph g;
    gw_graph_init(&g, test_table());
    g.micro_batches = 4;
    gw_mesh_add(&g.mesh, "dp", 6);
    gw_mesh_add(&g.mesh, "tp", 4);
    g.arena_bytes[GW_MEM_DEVICE] = 123456789012;
    g.arena_bytes[GW_MEM_DISK] = 7;
    gw_type t = gw_type_make(GW_BF16, "b4 s512 d768");
    t.dims[1].naxes = 2; /* the whole of tp */
    t.dims[1].axes[0] = 2;
    t.dims[1].axes[1] = 3;
    t.dims[2].naxes = 2; /* sub-axes out of order: no group */
    t.dims[2].axes[0] = 1;
    t.dims[2].axes[1] = 0;
    t.dims[2].shard = GW_SHARD_ZIGZAG;
    gw_vid x =
        gw_graph_leaf(&g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, t, "in \"quotes\"\n\x01");
    gw_type flat = gw_type_make(GW_F32, "v7 d5");
    flat.flat = 1;
    flat.flat_axes = 3;
    gw_vid p = gw_graph_leaf(&g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP, flat, "w");
    g.values.items[p].mem = GW_MEM_HOST;
    g.values.items[p].offset = 4096;
    gw_vid q = gw_graph_leaf(&g, GW_ROLE_STATE, GW_CAUSE_OPTIMIZER, GW_RATE_STEP,
                             gw_type_scalar(GW_I64), "");
    gw_type partial = gw_type_make(GW_F32, "d8");
    partial.psum = 1 << 2;
    partial.pmax = 3;
    gw_sid scope = gw_graph_intern(&g, "layer 0/attn");
    gw_attr a[5] = {{.i = -9}, {.i = 1}, {.f = 0.1}, {0}, {.i = GW_BF16}};
    a[3].s = gw_graph_intern(&g, "a\\b");
    gw_oid o = gw_graph_op(&g, OP_MIX, (gw_vid[]){x, GW_NONE}, 2, a, &partial, 1, GW_PHASE_BW,
                           GW_RATE_MB, scope);
    gw_vid y = gw_op_out(&g, &g.ops.items[o], 0);
    g.values.items[y].role = GW_ROLE_SAVED;
    g.values.items[y].cause = GW_CAUSE_COMMUNICATION;
    g.values.items[y].rate = GW_RATE_STEP;
    g.values.items[y].name = gw_graph_intern(&g, "named result");
    g.values.items[y].mem = GW_MEM_DISK;
    g.ops.items[o].stream = GW_STREAM_EP;
    g.ops.items[o].flags = GW_OP_RECOMPUTED | 8;
    g.ops.items[o].stage = 3;
    gw_oid sig = gw_graph_op(&g, OP_SIGNAL, &y, 1, NULL, NULL, 0, GW_PHASE_F, GW_RATE_MB, 0);
    gw_type two[2] = {gw_type_scalar(GW_U8), gw_type_make(GW_F64, "k0")};
    gw_oid s = gw_graph_op(&g, OP_SPLIT, &q, 1, NULL, two, 2, GW_PHASE_W, GW_RATE_STEP, scope);
    gw_op *op = &g.ops.items[s];
    g.values.items[gw_op_out(&g, op, 1)].offset = 0;
    g.values.items[gw_op_out(&g, op, 0)].tie = q;
    gw_vec_push(&g.edges, sig);
    gw_vec_push(&g.edges, o);
    op->after = (uint32_t)g.edges.count - 2;
    op->nafter = 2;
    gw_vid w = gw_graph_leaf(&g, GW_ROLE_WORK, GW_CAUSE_WORKSPACE, GW_RATE_STEP,
                             gw_type_make(GW_U8, "x100"), "");
    g.values.items[w].def = s;
    g.values.items[w].offset = 64;
    op->work = w;
    gw_oid u = gw_graph_op(&g, OP_UPDATE, (gw_vid[]){p, p}, 2, NULL, &flat, 1, GW_PHASE_O,
                           GW_RATE_STEP, 0);
    gw_vid shared = gw_graph_leaf(&g, GW_ROLE_WORK, GW_CAUSE_STAGING, GW_RATE_STEP,
                                  gw_type_make(GW_U8, "x1"), "shared");
    g.ops.items[u].work = shared; /* declared by a let */
    gw_graph_add_state(&g, p, gw_op_out(&g, &g.ops.items[u], 0));
    gw_graph_add_state(&g, q, q);
    return g;
}

TEST(text_holds_everything) {
    gw_graph g = everything();
    check_round_trip(&g, false);
    check_round_trip(&g, true);
    gw_graph_release(&g);
}

TEST(text_of_an_empty_graph) {
    gw_graph g;
    gw_graph_init(&g, test_table());
    check_round_trip(&g, true);
    gw_str s = {0};
    gw_graph_print(&g, &s, false);
    CHECK_STR(gw_str_c(&s), "program mb 1 values 0\n");
    gw_str_release(&s);
    gw_graph_release(&g);
}

static const char *const sound =
    "program mb 4 values 11\n"
    "mesh dp.0=2 tp.0=2 tp.1=2\n"
    "arena device 1048576\n"
    "let %0 : f32[v512 d64] param weights step \"embed\" @0\n"
    "let %1 : f32[b4 d64] input data mb \"x\" @262144\n"
    "let %2 : f32[v512 d64] state optimizer_states step \"m\" in host\n"
    "%3 = move %2 : f32[v512 d64] gradients O step on copy @131072\n"
    "%4 = gemm %1, %0 : f32[b4 v512] F mb \"layer 0/q\" on compute @270336\n"
    "%5, %6 = split %4 : f32[b4 v512], f32[b4 v512] saved F mb on compute after %4 recompute"
    " stage 1 @300000, 320000 work %7 u8[x128] @400000\n"
    "%8 = accum %0, %3 : f32[v512 d64]=%3 gradients W mb \"layer 0/q\" on compute @131072\n"
    "signal %8 : O step on compute\n"
    "%9 = update %0, %8 : f32[v512 d64]=%0 param weights O step on compute after %8, op4 @0\n"
    "%10 = mix %9, _ {n=4 flag=true scale=0.1 label=\"a\" to=bf16} : f32[v512 d64] \"norm\" O step"
    " on compute @500000\n"
    "state %0 %9\n";

TEST(text_canonical_form_prints_as_it_was_read) {
    gw_graph g = test_graph(sound);
    gw_str s = {0};
    gw_graph_print(&g, &s, false);
    CHECK_STR(gw_str_c(&s), sound);
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_graph_verify(&g, &dg), &dg);
    check_round_trip(&g, true);
    gw_str_release(&s);
    gw_diags_release(&dg);
    gw_graph_release(&g);
}

TEST(text_figures_stand_behind_the_hash) {
    gw_graph g = test_graph(sound);
    gw_str s = {0};
    gw_graph_print(&g, &s, true);
    /* 2 * 4 * 512 * 64 flops; 512 * 64 * 4 bytes. */
    test_note("%s", gw_str_c(&s));
    CHECK(strstr(gw_str_c(&s), "@270336   # 262 kF\n") != NULL);
    CHECK(strstr(gw_str_c(&s), "\"embed\" @0   # 131.1 kB\n") != NULL);
    gw_str_release(&s);
    gw_graph_release(&g);
}

TEST(text_reads_loose_layout) {
    gw_graph g =
        test_graph("# a comment\n\n  program  mb 2 values 2 # why\r\n"
                   "let %1:f32[ b2  d3 ] input data mb\n"
                   "\t%0=mix %1 , _ { flag scale=2 } : f32[b2 d3] F mb \"#not a comment\"");
    CHECK_EQ(g.ops.count, 1);
    const gw_op *o = &g.ops.items[0];
    CHECK_EQ(gw_op_attr(&g, o, 1).i, 1);
    CHECK(gw_op_attr(&g, o, 2).f == 2);
    CHECK_EQ(gw_op_in(&g, o, 1), GW_NONE);
    CHECK_STR(gw_graph_str(&g, o->scope), "#not a comment");
    CHECK_EQ(g.values.items[1].type.dims[1].size, 3);
    gw_graph_release(&g);
}

TEST(text_types) {
    gw_mesh m = {0};
    gw_mesh_add(&m, "dp", 4);
    gw_mesh_add(&m, "tp", 2);
    gw_type t = gw_type_make(GW_BF16, "h12 k64");
    t.dims[0].naxes = 2;
    t.dims[0].axes[0] = 2;
    t.dims[0].axes[1] = 1;
    t.psum = 1;
    gw_str s = {0};
    gw_type_print(&t, &m, &s);
    CHECK_STR(gw_str_c(&s), "bf16[h{tp,dp.1}12 k64]+P(sum){dp.0}");
    gw_str_clear(&s);
    t = gw_type_make(GW_F32, "d7");
    t.flat = 1;
    t.flat_axes = 3;
    gw_type_print(&t, &m, &s);
    CHECK_STR(gw_str_c(&s), "f32[d7]+flat{dp}");
    gw_str_clear(&s);
    gw_type scalar = gw_type_scalar(GW_I64);
    gw_type_print(&scalar, NULL, &s);
    CHECK_STR(gw_str_c(&s), "i64[]");
    gw_str_release(&s);
}

/* One op whose scale is x; reads it back bit by bit. */
static void check_float(double x) {
    gw_graph g, h;
    gw_diags dg;
    gw_str s = {0};
    gw_diags_init(&dg);
    gw_graph_init(&g, test_table());
    gw_type t = gw_type_scalar(GW_F32);
    gw_vid v = gw_graph_leaf(&g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, t, "");
    gw_attr a[5] = {{.i = 3}, {0}, {.f = x}, {0}, {.i = GW_F32}};
    gw_graph_op(&g, OP_MIX, (gw_vid[]){v, GW_NONE}, 2, a, &t, 1, GW_PHASE_F, GW_RATE_STEP, 0);
    gw_graph_print(&g, &s, false);
    CHECK_OK(parse(&h, gw_str_c(&s), s.len, &dg), &dg);
    double back = gw_op_attr(&h, &h.ops.items[0], 2).f;
    CHECK_MSG(memcmp(&back, &x, sizeof x) == 0 || (isnan(x) && isnan(back)), "%a became %a", x,
              back);
    gw_graph_release(&g);
    gw_graph_release(&h);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(text_floats_read_back_to_the_bit) {
    const double some[] = {0,
                           -0.0,
                           1e-6,
                           0.1,
                           1.0 / 3,
                           5e-324,
                           1.7976931348623157e308,
                           123456789,
                           (double)INFINITY,
                           -(double)INFINITY,
                           (double)NAN,
                           1.5};
    for (size_t i = 0; i < GW_COUNT(some); i++) check_float(some[i]);
    gw_rng_key key = gw_rng_key_named(1, "floats");
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t bits = gw_rng_u64(key, i);
        double x;
        memcpy(&x, &bits, sizeof x);
        check_float(x);
    }
}

typedef struct bad_text {
    const char *text, *message;
    int line, column;
} bad_text;

#define HEAD "program mb 1 values 2\nlet %0 : f32[b2] input data mb\n"

static const bad_text bad_texts[] = {
    {"", "begins with the word 'program'", 1, 1},
    {"\n  prog", "begins with the word 'program'", 2, 3},
    {"program mb 1 values 99999999", "more values than the text can declare", 0, 0},
    {"program mb x", "whole number", 1, 12},
    {HEAD, "%1 is declared nowhere", 0, 0},
    {HEAD "let %0 : f32[] input data mb", "%0 is declared twice", 3, 7},
    {HEAD "let %7 : f32[]", "%7 is not below the number of values", 3, 7},
    {HEAD "let %1 : f33[]", "'f33' is no element type", 0, 0},
    {HEAD "let %1 : f32[d99999999999999999999]", "whole number", 0, 0},
    {HEAD "let %1 : f32[d9999999999 e9999999999]", "size overflows", 0, 0},
    {HEAD "let %1 : f32[abcdefgh1]", "name is too long", 0, 0},
    {HEAD "let %1 : f32[a1 b1 c1 d1 e1 f1 g1]", "more than 6 dimensions", 0, 0},
    {HEAD "let %1 : f32[d{tp}8]", "'tp' is no axis", 0, 0},
    {HEAD "let %1 : f32[d{:spiral}8]", "'spiral' is no kind of shard", 0, 0},
    {HEAD "let %1 : f32[]+P(min){}", "sum or max", 0, 0},
    {HEAD "let %1 : f32[] input data", "a rate", 0, 0},
    {HEAD "let %1 : f32[] input data mb \"x", "no end", 0, 0},
    {HEAD "let %1 : f32[] input data mb \"\\q\"", "escape", 0, 0},
    {HEAD "let %1 : f32[] input data mb \"\\x00\"", "NUL", 0, 0},
    {HEAD "let %1 : f32[] in attic mb", "'attic' is no memory kind", 0, 0},
    {HEAD "let %1 : f32[] input data mb @-5", "whole number", 0, 0},
    {HEAD "%1 = nope %0 : f32[] F mb", "there is no op 'nope'", 3, 10},
    {HEAD "%1 = move %0 {n=1} : f32[] F mb", "move has no attribute 'n'", 0, 0},
    {HEAD "%1 = mix %0, _ {to=f99} : f32[] F mb", "'f99' is no element type", 0, 0},
    {HEAD "%1 = mix %0, _ {scale=big} : f32[] F mb", "a number is missing", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] Q mb", "a phase", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] F day", "a rate", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] F mb on river", "'river' is no stream", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] F mb after %0", "%0 is no op's result", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] F mb @1, 2", "cannot stand here", 0, 0},
    {HEAD "%1 = move %0 : f32[b2] F mb !", "'!' cannot stand here", 3, 29},
    {HEAD "mesh dp.0=2 dp.0=2", "stands there twice", 0, 0},
    {HEAD "mesh a=2000000000 b=2000000000", "too many ranks", 0, 0},
    {HEAD "mesh averylongnameofanaxis=2", "axis name", 0, 0},
    {HEAD "state %0", "'%' is missing", 0, 0},
    {HEAD "arena shelf 5", "'shelf' is no memory kind", 0, 0},
};

TEST(text_errors_say_what_and_where) {
    for (size_t i = 0; i < GW_COUNT(bad_texts); i++) {
        const bad_text *b = &bad_texts[i];
        gw_graph g;
        gw_diags dg;
        gw_diags_init(&dg);
        test_note("%s", b->text);
        CHECK_FAILS(parse(&g, b->text, strlen(b->text), &dg), &dg, b->message);
        CHECK_EQ(dg.nerrors, 1);
        CHECK_STR(dg.first->where.file, "test");
        if (b->line) CHECK_EQ(dg.first->where.line, b->line);
        if (b->column) CHECK_EQ(dg.first->where.column, b->column);
        gw_diags_release(&dg);
    }
}

/* Parses bytes from a buffer of exactly their size. What parses must print and parse back, and the
 * verifier must survive it. Returns whether it parsed. */
static bool feed(const char *bytes, size_t n) {
    char *exact = malloc(n ? n : 1);
    memcpy(exact, bytes, n);
    gw_graph g;
    bool ok = parse(&g, exact, n, NULL) == GW_OK;
    free(exact);
    if (ok) {
        check_round_trip(&g, true);
        gw_status s = gw_graph_verify(&g, NULL);
        (void)s;
        gw_graph_release(&g);
    }
    return ok;
}

static void fuzz_truncations(const char *text, size_t n) {
    for (size_t i = 0; i <= n; i++) feed(text, i);
}

/* One to four edits: a flipped bit, a byte from the text's own alphabet, a deletion, a doubled
 * slice. */
static void fuzz_edits(const char *text, size_t n, uint64_t seed, int rounds) {
    gw_rng_key key = gw_rng_key_named(seed, "fuzz");
    uint64_t at = 0;
    int parsed = 0;
    for (int r = 0; r < rounds; r++) {
        gw_str s = {0};
        gw_str_add_n(&s, text, n);
        uint32_t edits = gw_rng_u32(key, at++) % 4 + 1;
        for (uint32_t e = 0; e < edits && s.len > 1; e++) {
            uint32_t pos = gw_rng_u32(key, at++) % (uint32_t)s.len, x = gw_rng_u32(key, at++);
            uint32_t other = x % (uint32_t)s.len;
            switch (gw_rng_u32(key, at++) % 5) {
            case 0: s.data[pos] = (char)(s.data[pos] ^ 1 << x % 8); break;
            case 1: s.data[pos] = s.data[other]; break;
            case 2: memmove(s.data + pos, s.data + pos + 1, s.len-- - pos - 1); break;
            case 3: s.data[pos] = "0123456789%_@={}[]\"\n"[x % 20]; break;
            default: {
                size_t m = GW_MIN(s.len - other, x / 7 % 40);
                char slice[40];
                memcpy(slice, s.data + other, m);
                gw_str_add_n(&s, slice, m);
                break;
            }
            }
        }
        parsed += feed(s.data, s.len);
        gw_str_release(&s);
    }
    CHECK(parsed > 0 && parsed < rounds); /* else the edits test nothing */
}

TEST(text_survives_truncation) {
    gw_graph g = everything();
    gw_str s = {0};
    gw_graph_print(&g, &s, false);
    fuzz_truncations(s.data, s.len);
    fuzz_truncations(sound, strlen(sound));
    gw_str_release(&s);
    gw_graph_release(&g);
}

TEST_WITHIN(text_survives_edits, 120) {
    gw_graph g = everything();
    gw_str s = {0};
    gw_graph_print(&g, &s, false);
    fuzz_edits(s.data, s.len, 1, 3000);
    fuzz_edits(sound, strlen(sound), 2, 3000);
    gw_str_release(&s);
    gw_graph_release(&g);
}

TEST(text_describes_broken_ops) {
    gw_graph g = test_graph(sound);
    gw_str s = {0};
    g.ops.items[0].code = 999;
    g.ops.items[1].in = UINT32_MAX;
    g.ops.items[2].scope = 12345;
    g.values.items[5].type.dtype = 77;
    g.values.items[5].role = 200;
    for (gw_oid o = 0; o < 9; o++) gw_op_print(&g, o, &s);
    CHECK(strchr(gw_str_c(&s), '?') != NULL);
    gw_str_release(&s);
    gw_graph_release(&g);
}
