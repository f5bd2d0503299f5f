// SPDX-License-Identifier: Apache-2.0
// Products in pieces (layout.tp_chunks). The laws: what is sent is the same bytes in N times as
// many messages; the gather of piece j + 1 stands before the products of piece j, and each scatter
// right behind its product; nothing waits for more than what it reads; memory grows by what the
// essay of pass/chunk.c allows; sizes that do not divide are refused with those that do.
#include <string.h>

#include "../harness.h"
#include "ir/verify.h"
#include "ops/conversion.h" /* gw_conversion_of */
#include "programs.h"

enum { LAYERS = 2, SEQ = 32 };

static void cut_params(program *p) {
    static const char *const dims[] = {"h", "g", "f", "v"};
    gw_param_info *infos = gw_arena_new(&p->mem, gw_param_info, p->nparams);
    for (int i = 0; i < p->nparams; i++) {
        infos[i] = p->opts.params[i];
        for (size_t d = GW_COUNT(dims); d-- > 0;)
            if (gw_type_find(&p->params[i].type, dims[d]) >= 0)
                snprintf(infos[i].cut, sizeof infos[i].cut, "%s", dims[d]);
    }
    p->opts.params = infos;
}

static void lay_out(program *p, gw_family f, int cp, int tp, int pieces) {
    gw_model m = tiny_model(f, LAYERS);
    program_init(p, &m, 2, SEQ);
    gw_mesh_add(&p->mesh, "cp", cp);
    gw_mesh_add(&p->mesh, "tp", tp);
    p->facts.comm = gw_coll_machine_local(cp * tp);
    p->opts.verify = true;
    p->opts.layout.sequence_parallel = true;
    p->opts.layout.tp_chunks = pieces;
    cut_params(p);
}

/* A collective of tokens over tp. */
static bool moves_tokens(const gw_graph *g, const gw_op *o) {
    gw_conversion c;
    if (!is_op(g, o, "all_gather") && !is_op(g, o, "reduce_scatter")) return false;
    CHECK(gw_conversion_of(g, o, &c, NULL) == GW_OK);
    int dim = GW_MAX(c.from, c.to);
    return dim >= 0 && o->stream == GW_STREAM_TP &&
           strcmp(gw_type_of(g, gw_op_in(g, o, 0))->dims[dim].name, "s") == 0;
}

typedef struct count {
    int gathers[2], scatters[2]; /* in forward, in backward, of layer 1 */
    int64_t bytes;               /* of whole tensors, all of them */
} count;

static count count_moves(const gw_graph *g) {
    count n = {0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!moves_tokens(g, o)) continue;
        bool gathers = is_op(g, o, "all_gather");
        n.bytes += local_bytes(g, gathers ? gw_op_out(g, o, 0) : gw_op_in(g, o, 0));
        if (strncmp(gw_graph_str(g, o->scope), "layer 1", 7) != 0) continue;
        (gathers ? n.gathers : n.scatters)[o->phase != GW_PHASE_F]++;
    }
    return n;
}

TEST(the_same_bytes_in_more_messages) {
    static const gw_family families[] = {GW_FAMILY_LLAMA, GW_FAMILY_GPT2};
    for (size_t f = 0; f < GW_COUNT(families); f++)
        for (int pieces = 2; pieces <= 8; pieces *= 2) {
            program a, b;
            gw_graph whole, cut;
            lay_out(&a, families[f], 1, 2, 1);
            lay_out(&b, families[f], 1, 2, pieces);
            program_make(&a, "chunk", &whole, NULL);
            program_make(&b, "chunk", &cut, NULL);
            count m = count_moves(&whole), n = count_moves(&cut);
            CHECK_EQ(m.gathers[0], 2); /* before q, k, v and before gate, up */
            CHECK_EQ(m.scatters[0], 2);
            CHECK_EQ(n.gathers[0], 2 * pieces);
            CHECK_EQ(n.scatters[0], 2 * pieces);
            CHECK_EQ(m.gathers[1], 4);              /* of two gradients, and again of two inputs */
            CHECK_EQ(n.gathers[1], 2 * pieces + 2); /* weight gradients take theirs whole */
            CHECK_EQ(m.scatters[1], 2);
            CHECK_EQ(n.scatters[1], 2 * pieces);
            CHECK_EQ(n.bytes, m.bytes);
            gw_graph_release(&whole);
            gw_graph_release(&cut);
            program_release(&a);
            program_release(&b);
        }
}

/* ---- order ---- */

static gw_oid def_of(const gw_graph *g, gw_vid v) { return g->values.items[v].def; }

/* The take that op i, a gather, gathers; GW_NONE if it gathers no piece. */
static gw_oid take_of(const gw_graph *g, gw_oid i) {
    gw_oid d = def_of(g, gw_op_in(g, &g->ops.items[i], 0));
    return d != GW_NONE && is_op(g, &g->ops.items[d], "take") ? d : GW_NONE;
}

static int64_t part_of(const gw_graph *g, gw_oid take) {
    return gw_op_attr_named(g, &g->ops.items[take], "part").i;
}

/* The gather of piece `part` of what the take `like` is of, nearest behind op `from`. */
static gw_oid gather_of(const gw_graph *g, gw_oid like, int64_t part, gw_oid from) {
    for (gw_oid i = from + 1; i < (gw_oid)g->ops.count; i++) {
        if (!is_op(g, &g->ops.items[i], "all_gather")) continue;
        gw_oid t = take_of(g, i);
        if (t != GW_NONE && part_of(g, t) == part &&
            gw_op_in(g, &g->ops.items[t], 0) == gw_op_in(g, &g->ops.items[like], 0))
            return i;
    }
    return GW_NONE;
}

static gw_oid first_product_of(const gw_graph *g, gw_vid v) {
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++)
        if (is_op(g, &g->ops.items[i], "matmul") && gw_op_in(g, &g->ops.items[i], 0) == v) return i;
    return GW_NONE;
}

static void check_order(const gw_graph *g, int pieces) {
    int gathers = 0, scatters = 0;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        CHECK_EQ(o->nafter, 0);
        if (!moves_tokens(g, o)) continue;
        if (is_op(g, o, "reduce_scatter")) {
            const gw_op *p = &g->ops.items[def_of(g, gw_op_in(g, o, 0))];
            bool product = is_op(g, p, "matmul") || is_op(g, p, "add");
            if (!product) continue; /* the embedding's, the head's */
            CHECK_EQ(def_of(g, gw_op_in(g, o, 0)), i - 1);
            scatters++;
            continue;
        }
        gw_oid t = take_of(g, i), product = first_product_of(g, gw_op_out(g, o, 0));
        if (t == GW_NONE) continue;
        CHECK(product != GW_NONE && product > i);
        gathers++;
        if (part_of(g, t) + 1 == pieces) continue;
        gw_oid next = gather_of(g, t, part_of(g, t) + 1, i);
        CHECK(next != GW_NONE && next < product);
    }
    CHECK_EQ(gathers, 4 * LAYERS * pieces);
    CHECK_EQ(scatters, 4 * LAYERS * pieces);
}

TEST(a_piece_travels_while_another_is_multiplied) {
    static const gw_family families[] = {GW_FAMILY_GPT2, GW_FAMILY_LLAMA, GW_FAMILY_QWEN3};
    for (size_t f = 0; f < GW_COUNT(families); f++)
        for (int pieces = 2; pieces <= 4; pieces += 2) {
            program p;
            gw_graph g;
            lay_out(&p, families[f], 1, 2, pieces);
            program_make(&p, "chunk", &g, NULL);
            check_order(&g, pieces);
            gw_graph_release(&g);
            program_release(&p);
        }
}

/* With weights gathered at their use the products still stand together, behind the gathers of
 * weights, and backward's products behind their own. */
TEST(weights_gathered_at_their_use_come_first) {
    program p;
    gw_graph g;
    lay_out(&p, GW_FAMILY_LLAMA, 1, 2, 2);
    memset(&p.mesh, 0, sizeof p.mesh);
    gw_mesh_add(&p.mesh, "dp", 2);
    gw_mesh_add(&p.mesh, "tp", 2);
    p.opts.layout.zero = 3;
    program_make(&p, "chunk", &g, NULL);
    check_order(&g, 2);
    gw_graph_release(&g);
    program_make(&p, NULL, &g, NULL); /* and the rest of the passes take it */
    gw_graph_release(&g);
    program_release(&p);
}

/* ---- memory ---- */

static int64_t largest_woven(const gw_graph *g) {
    int64_t most = 0;
    for (int64_t i = 0; i < g->ops.count; i++)
        if (is_op(g, &g->ops.items[i], "weave"))
            most = GW_MAX(most, local_bytes(g, gw_op_out(g, &g->ops.items[i], 0)));
    return most;
}

static int64_t largest_taken(const gw_graph *g) {
    int64_t most = 0;
    for (int64_t i = 0; i < g->ops.count; i++)
        if (is_op(g, &g->ops.items[i], "take"))
            most = GW_MAX(most, local_bytes(g, gw_op_out(g, &g->ops.items[i], 0)));
    return most;
}

TEST(memory_grows_by_what_is_woven_at_most) {
    static const gw_recompute_kind kinds[] = {GW_RECOMPUTE_NONE, GW_RECOMPUTE_SELECTIVE,
                                              GW_RECOMPUTE_FULL};
    for (size_t k = 0; k < GW_COUNT(kinds); k++)
        for (int pieces = 2; pieces <= 4; pieces += 2) {
            program a, b;
            gw_graph whole, cut;
            gw_compile_report ra, rb;
            lay_out(&a, GW_FAMILY_LLAMA, 1, 2, 1);
            lay_out(&b, GW_FAMILY_LLAMA, 1, 2, pieces);
            a.opts.recompute.kind = b.opts.recompute.kind = kinds[k];
            a.opts.workspace = b.opts.workspace = NULL; /* a product's own is the library's */
            program_make(&a, NULL, &whole, &ra);
            program_make(&b, NULL, &cut, &rb);
            int64_t more = largest_woven(&cut) + 2 * largest_taken(&cut);
            int64_t grows = rb.place.lower_bound_bytes - ra.place.lower_bound_bytes;
            test_note("recompute %d, %d pieces: %lld bytes more, %lld allowed", (int)kinds[k],
                      pieces, (long long)grows, (long long)more);
            CHECK(grows <= more);
            CHECK_EQ(count_recomputed(&cut, "weave") > 0, kinds[k] == GW_RECOMPUTE_FULL);
            gw_graph_release(&whole);
            gw_graph_release(&cut);
            program_release(&a);
            program_release(&b);
        }
}

/* ---- what is left alone, what is refused ---- */

TEST(without_pieces_nothing_changes) {
    for (int sp = 0; sp < 2; sp++) {
        program p;
        gw_graph before, after;
        char why[200];
        lay_out(&p, GW_FAMILY_LLAMA, 1, 2, sp ? 1 : 2);
        p.opts.layout.sequence_parallel = sp == 1;
        program_make(&p, "shard", &before, NULL);
        program_make(&p, "chunk", &after, NULL);
        CHECK_MSG(gw_graph_equal(&before, &after, why, sizeof why), "%s", why);
        gw_graph_release(&before);
        gw_graph_release(&after);
        program_release(&p);
    }
}

static void refused(int cp, int tp, int pieces, const char *words) {
    program p;
    gw_graph g;
    lay_out(&p, GW_FAMILY_LLAMA, cp, tp, pieces);
    CHECK_EQ(program_try(&p, "chunk", &g, NULL), GW_ERR_CONFIG);
    CHECK_FAILS(GW_ERR_CONFIG, &p.dg, words);
    program_release(&p);
}

TEST(pieces_must_divide) {
    refused(1, 2, 3, "layout.tp_chunks 3 does not divide the 16 tokens");
    refused(1, 4, 16, "layout.tp_chunks 16 does not divide the 8 tokens");
    refused(2, 2, 8, "sequences of 32 tokens are cut into 8 parts"); /* a zigzag: two runs each */
    program p;
    gw_graph g;
    lay_out(&p, GW_FAMILY_LLAMA, 2, 2, 4);
    program_make(&p, "chunk", &g, NULL);
    check_order(&g, 4);
    gw_graph_release(&g);
    program_release(&p);
}
