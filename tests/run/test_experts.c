// SPDX-License-Identifier: Apache-2.0
// Experts over ranks against experts on one rank: the same bits where one round suffices, for every
// fold of the group over cuts of samples and of the sequence; the same numbers up to the order of
// sums where rounds, partial groups or cuts of f change it. Empty experts, empty ranks, skew, junk.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/num.h"         /* gw_bf16 */
#include "base/rng.h"         /* gw_rng_normal */
#include "comm/launch.h"      /* gw_launch_threads */
#include "ir/shard.h"         /* GW_SHARD_ZIGZAG */
#include "ops/experts.h"      /* GW_EX_X */
#include "ops/ops.h"          /* gw_ops_table */
#include "pass/pass.h"        /* gw_pass_place */
#include "run/exec.h"         /* gw_exec */
#include "run/exec_experts.h" /* gw_experts_ep_seen */

enum { LEAVES = 7, OUTS = 6, MOST = 4096, RANKS = 8 };
enum { L_X, L_IDS, L_GATES, L_GATE, L_UP, L_DOWN, L_DY };
static const char *const leaf_names[LEAVES] = {"x", "ids", "gates", "gate", "up", "down", "dy"};
static const char *const out_names[OUTS] = {"y", "dx", "dgates", "dgate", "dup", "ddown"};
/* Which leaf an output is shaped like. */
static const int like[OUTS] = {L_X, L_X, L_GATES, L_GATE, L_UP, L_DOWN};

/* A layout: sizes of the groups, and what is cut on what. */
typedef struct layout {
    const char *name;
    int dp0, dp, cp, tp;
    bool e_dp0, e_dp, e_cp; /* experts are cut on these */
    int64_t b, s, d, f, experts, top;
    int64_t used; /* ids are below this */
    double buffer;
    gw_dtype dtype;
    bool exact; /* one rank's bits are expected */
    bool hot;   /* every token's first choice is expert 0 */
    bool accumulates;
} layout;

typedef struct run {
    const layout *l;
    int ranks;
    double leaf[LEAVES][MOST];
    double want[OUTS][MOST];
    double got[OUTS][MOST];  /* sums over ranks of what is partial, else what a rank holds */
    int holders[OUTS][MOST]; /* how many ranks gave a part of it */
    bool plain;              /* reference loops instead of kernels */
    gw_experts_seen seen[RANKS];
    gw_comm_counts counted[RANKS];
} run;

/* ---- data ---- */

static double rounded(gw_dtype t, double x) {
    return t == GW_BF16 ? (double)gw_bf16_to_f32(gw_bf16_from_f32((float)x)) : (double)(float)x;
}

static void fill_leaves(run *r) {
    const layout *l = r->l;
    int64_t tokens = l->b * l->s, n[LEAVES] = {tokens * l->d,
                                               tokens * l->top,
                                               tokens * l->top,
                                               l->experts * l->f * l->d,
                                               l->experts * l->f * l->d,
                                               l->experts * l->f * l->d,
                                               tokens * l->d};
    for (int k = 0; k < LEAVES; k++) {
        CHECK(n[k] <= MOST);
        gw_rng_key key = gw_rng_key_named(5, leaf_names[k]);
        for (int64_t i = 0; i < n[k]; i++) {
            double u = (double)gw_rng_uniform(key, (uint64_t)i);
            r->leaf[k][i] = k == L_GATES ? 0.1 + 0.8 * (double)(float)u
                                         : rounded(l->dtype, 0.5 * gw_rng_normal(key, (uint64_t)i));
            if (k == L_GATES) r->leaf[k][i] = (double)(float)r->leaf[k][i];
        }
    }
    for (int64_t i = 0; i < tokens; i++) /* distinct experts; every fifth token is padding */
        for (int64_t j = 0; j < l->top; j++) {
            gw_rng_key key = gw_rng_key_named(5, "ids");
            int64_t first = (int64_t)((double)gw_rng_uniform(key, (uint64_t)i) * (double)l->used);
            if (l->hot) first = 0;
            r->leaf[L_IDS][i * l->top + j] = i % 5 == 4 ? -1 : (double)((first + j) % l->used);
        }
}

/* ---- programs ---- */

static uint32_t axes(const gw_mesh *m, const char *group) { return gw_mesh_group(m, group); }

static void cut_tokens(const layout *l, const gw_mesh *m, gw_type *t) {
    gw_dim_cut(&t->dims[0], axes(m, "dpo") | axes(m, "dp"), m);
    if (l->cp == 1) return;
    gw_dim_cut(&t->dims[1], axes(m, "cp"), m);
    t->dims[1].shard = GW_SHARD_ZIGZAG;
    t->dims[1].outer = t->dims[1].naxes;
}

static void cut_weights(const layout *l, const gw_mesh *m, gw_type *t, int f) {
    uint32_t e = (l->e_dp0 ? axes(m, "dpo") : 0) | (l->e_dp ? axes(m, "dp") : 0) |
                 (l->e_cp ? axes(m, "cp") : 0);
    gw_dim_cut(&t->dims[0], e, m);
    gw_dim_cut(&t->dims[f], axes(m, "tp"), m);
}

static void build(const layout *l, bool cut, gw_graph *g, gw_diags *dg) {
    gw_graph_init(g, gw_ops_table());
    if (cut) {
        (void)gw_mesh_add(&g->mesh, "dpo", l->dp0);
        (void)gw_mesh_add(&g->mesh, "dp", l->dp);
        (void)gw_mesh_add(&g->mesh, "cp", l->cp);
        (void)gw_mesh_add(&g->mesh, "tp", l->tp);
    }
    gw_vid v[LEAVES];
    for (int k = 0; k < LEAVES; k++) {
        char dims[64];
        if (k == L_X || k == L_DY)
            snprintf(dims, sizeof dims, "b%d s%d d%d", (int)l->b, (int)l->s, (int)l->d);
        else if (k == L_IDS || k == L_GATES)
            snprintf(dims, sizeof dims, "b%d s%d t%d", (int)l->b, (int)l->s, (int)l->top);
        else if (k == L_DOWN)
            snprintf(dims, sizeof dims, "e%d d%d f%d", (int)l->experts, (int)l->d, (int)l->f);
        else
            snprintf(dims, sizeof dims, "e%d f%d d%d", (int)l->experts, (int)l->f, (int)l->d);
        gw_type t = gw_type_make(k == L_IDS ? GW_I32 : k == L_GATES ? GW_F32 : l->dtype, dims);
        bool weights = k >= L_GATE && k <= L_DOWN;
        if (cut && weights) cut_weights(l, &g->mesh, &t, k == L_DOWN ? 2 : 1);
        if (cut && !weights) cut_tokens(l, &g->mesh, &t);
        v[k] = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, t, leaf_names[k]);
    }
    gw_builder b;
    gw_builder_init(&b, g, dg);
    b.rate = GW_RATE_STEP;
    gw_builder_enter(&b, "layer 0/moe");
    bool ep = cut && gw_type_cut_axes(gw_type_of(g, v[L_GATE])) & ~axes(&g->mesh, "tp");
    gw_attr fa[1] = {{.f = l->buffer}}, ba[2] = {{.i = GW_F32}, {.f = l->buffer}};
    gw_vid in[10] = {v[L_DY], v[L_X],    v[L_IDS], v[L_GATES], v[L_GATE],
                     v[L_UP], v[L_DOWN], GW_NONE,  GW_NONE,    GW_NONE};
    gw_vid out[OUTS];
    out[0] = gw_build(&b, ep ? "experts_ep" : "experts", in + 1, 6, fa, NULL);
    out[1] = gw_build(&b, ep ? "experts_ep_grad" : "experts_grad", in, 10, ba, out + 2);
    CHECK_OK(b.status, dg);
    for (int k = 0; k < OUTS; k++) {
        gw_value *x = &g->values.items[out[k]];
        gw_dtype dtype = (gw_dtype)x->type.dtype;
        x->type = *gw_type_of(g, v[like[k]]);
        x->type.dtype = (uint8_t)dtype;
        x->name = gw_graph_intern(g, out_names[k]);
    }
}

/* ---- a rank ---- */

static void write_leaf(gw_exec *x, int k, const double *from) {
    gw_vid v = gw_exec_find(x, leaf_names[k]);
    const gw_graph *g = gw_exec_graph(x);
    gw_held w;
    int64_t global, local, count;
    void *to = gw_exec_ptr(x, v);
    gw_held_begin(&w, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    while (gw_held_next(&w, &global, &local, &count))
        for (int64_t i = 0; i < count; i++) {
            float f = (float)from[global + i];
            switch (gw_type_of(g, v)->dtype) {
            case GW_I32: ((int32_t *)to)[local + i] = (int32_t)f; break;
            case GW_BF16: ((gw_bf16 *)to)[local + i] = gw_bf16_from_f32(f); break;
            default: ((float *)to)[local + i] = f;
            }
        }
}

static double element(const gw_tensor *t, int64_t i) {
    return t->dtype == GW_BF16 ? (double)gw_bf16_to_f32(((gw_bf16 *)t->data)[i])
                               : (double)((float *)t->data)[i];
}

/* Adds what this rank holds of output k to `to`. */
static void read_out(gw_exec *x, int k, double *to, int *holders) {
    gw_vid v = gw_exec_find(x, out_names[k]);
    const gw_graph *g = gw_exec_graph(x);
    gw_tensor t = gw_exec_tensor(x, v);
    gw_held w;
    int64_t global, local, count;
    gw_held_begin(&w, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    while (gw_held_next(&w, &global, &local, &count))
        for (int64_t i = 0; i < count; i++) {
            to[global + i] += element(&t, local + i);
            holders[global + i]++;
        }
}

static gw_exec *run_program(const run *r, bool cut, gw_comm *c, gw_diags *dg) {
    gw_exec_facts f = {.machine = gw_machine_this(1)};
    f.machine.reference_only = r->plain;
    if (c) f.comm = *gw_comm_machine(c);
    gw_compile_opts o = {
        .train = true, .micro_batches = 1, .workspace = gw_exec_workspace, .workspace_user = &f};
    gw_compile_report report = {0};
    gw_graph g, placed;
    build(r->l, cut, &g, dg);
    CHECK_OK(gw_pass_place(&placed, &g, &o, &report, dg), dg);
    if (c) gw_comm_set_mesh(c, &placed.mesh);
    gw_exec *x = NULL;
    gw_exec_opts eo = {.machine = f.machine, .comm = c, .poison = true};
    if (c) eo.rank = gw_comm_rank(c);
    CHECK_OK(gw_exec_new(&x, &placed, &eo, dg), dg);
    for (int k = 0; k < LEAVES; k++) write_leaf(x, k, r->leaf[k]);
    if (c) gw_comm_counts_reset(c);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    gw_graph_release(&g);
    gw_graph_release(&placed);
    return x;
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_exec *x = run_program(r, true, c, dg);
    int me = gw_comm_rank(c);
    r->counted[me] = gw_comm_counted(c, GW_COLL_ALL_TO_ALL);
    const gw_graph *g = gw_exec_graph(x);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++)
        if (gw_op_is(g, &g->ops.items[i], "experts_ep"))
            r->seen[me] = gw_experts_ep_seen(gw_exec_op_state(x, i));
    for (int turn = 0; turn < r->ranks; turn++) { /* one rank after another adds its part */
        if (turn == me)
            for (int k = 0; k < OUTS; k++) read_out(x, k, r->got[k], r->holders[k]);
        GW_TRY(gw_comm_barrier(c, "turn", dg));
    }
    gw_exec_free(x);
    return GW_OK;
}

static void run_alone(run *r) {
    gw_diags dg;
    gw_diags_init(&dg);
    int *holders = calloc(MOST, sizeof *holders);
    gw_exec *x = run_program(r, false, NULL, &dg);
    for (int k = 0; k < OUTS; k++) read_out(x, k, r->want[k], holders);
    gw_exec_free(x);
    free(holders);
    gw_diags_release(&dg);
}

static int64_t elems(const layout *l, int k) {
    if (like[k] == L_X) return l->b * l->s * l->d;
    return like[k] == L_GATES ? l->b * l->s * l->top : l->experts * l->f * l->d;
}

static void compare(const run *r) {
    const layout *l = r->l;
    for (int k = 0; k < OUTS; k++) {
        double squares = 0, off = 0;
        int64_t n = elems(l, k);
        for (int64_t i = 0; i < n; i++) {
            CHECK_MSG(r->holders[k][i] > 0, "%s: nobody holds %s[%d]", l->name, out_names[k],
                      (int)i);
            squares += r->want[k][i] * r->want[k][i];
            off = fmax(off, fabs(r->got[k][i] - r->want[k][i]));
            if (l->exact)
                CHECK_MSG(r->got[k][i] == r->want[k][i], "%s: %s[%d] is %.9g, on one rank %.9g",
                          l->name, out_names[k], (int)i, r->got[k][i], r->want[k][i]);
        }
        double rms = sqrt(squares / (double)n), tol = l->dtype == GW_BF16 ? 0x1p-7 : 1e-5;
        CHECK_MSG(rms > 0 && off <= tol * rms, "%s: %s is off by %.3g of rms %.3g", l->name,
                  out_names[k], off, rms);
    }
}

static void run_layout_as(const layout *l, bool plain, run *r) {
    memset(r, 0, sizeof *r);
    r->l = l;
    r->plain = plain;
    r->ranks = l->dp0 * l->dp * l->cp * l->tp;
    CHECK(r->ranks <= RANKS);
    fill_leaves(r);
    run_alone(r);
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(r->ranks, 20, body, r, &dg), &dg);
    gw_diags_release(&dg);
    compare(r);
}

static void run_layout(const layout *l, run *r) { run_layout_as(l, false, r); }

/* Weights that several ranks hold are added up: gradients are partial on axes that cut the tokens
 * and not the experts, y, dx and dgates on those that cut f. */
static const layout layouts[] = {
    {"samples", 1,  2, 1, 1, false, true,   false, 4,     5,
     8,         12, 4, 2, 4, 2,     GW_F32, true,  false, false},
    {"three ranks", 1,    3,     1,    1, false, true, false, 3, 7, 8, 5, 4, 3, 4, 2,
     GW_F32,        true, false, false},
    {"samples and sequence, an empty rank",
     1,
     2,
     2,
     1,
     false,
     true,
     true,
     2,
     8,
     8,
     6,
     6,
     2,
     6,
     2,
     GW_F32,
     true,
     false,
     false},
    {"sequence alone", 1,     2,     2,    1, false, false, true, 2, 8, 8, 6, 6, 2, 6, 3,
     GW_F32,           false, false, false},
    {"one expert a rank, bf16",
     1,
     4,
     1,
     1,
     false,
     true,
     false,
     4,
     5,
     8,
     12,
     4,
     2,
     4,
     4,
     GW_BF16,
     true,
     false,
     false},
    {"outer samples", 2,     2,     1,    1, false, true, false, 4, 5, 8, 12, 4, 2, 4, 2,
     GW_F32,          false, false, false},
    {"f cut too", 1,  2, 1, 2, false, true,   false, 4,     5,
     8,           11, 4, 2, 4, 2,     GW_F32, false, false, false},
    {"empty experts", 1,    2,     1,    1, false, true, false, 4, 5, 8, 8, 8, 2, 3, 8,
     GW_F32,          true, false, false},
    {"hot, many rounds",
     1,
     4,
     1,
     1,
     false,
     true,
     false,
     4,
     10,
     8,
     12,
     4,
     2,
     4,
     0.3,
     GW_F32,
     false,
     true,
     false},
    {"eight ranks", 2,    2,     2,    1, true, true, true, 4, 8, 8, 3, 16, 2, 16, 8,
     GW_F32,        true, false, false},
};

static run the_run;

TEST(experts_over_ranks_are_experts) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) run_layout(&layouts[i], &the_run);
}

/* On one rank the op's meaning in float64, over ranks plain loops. */
TEST(experts_over_ranks_are_what_the_op_means) {
    for (int i = 0; i < 3; i++) {
        layout l = layouts[i];
        l.exact = false;
        run_layout_as(&l, true, &the_run);
    }
}

/* Nothing is dropped and nothing is sent twice; rounds are what the fullest rank needs. */
TEST(every_row_arrives_once_in_as_many_rounds_as_needed) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        run_layout(l, &the_run);
        int64_t rows = 0, choices = 0, most = 0;
        for (int64_t k = 0; k < l->b * l->s * l->top; k++) choices += the_run.leaf[L_IDS][k] >= 0;
        for (int k = 0; k < the_run.ranks; k++) {
            rows += the_run.seen[k].rows;
            most = GW_MAX(most, the_run.seen[k].rows);
            CHECK_EQ(the_run.seen[k].rounds, the_run.seen[0].rounds);
            CHECK_EQ(the_run.counted[k].moved, the_run.counted[k].payload);
        }
        CHECK_EQ(rows, choices * l->tp);
        int64_t slots = l->b / (l->dp0 * l->dp) * (l->s / l->cp) * l->top;
        int64_t room = (int64_t)ceil(l->buffer * (double)slots);
        if (l->dp0 * l->tp == 1 || l->e_dp0)
            CHECK_EQ(the_run.seen[0].rounds, (most + room - 1) / room);
        if (l->hot) CHECK(the_run.seen[0].rounds >= 4);
    }
}

/* MSLK PR 158, torchtitan#1237: an expert without tokens, memory full of NaN beforehand. */
TEST(an_expert_without_tokens_has_gradient_zero_to_the_bit) {
    const layout *l = &layouts[7];
    run_layout(l, &the_run);
    for (int k = 3; k < OUTS; k++)
        for (int64_t i = l->used * l->f * l->d; i < elems(l, k); i++)
            CHECK(the_run.got[k][i] == 0 && the_run.want[k][i] == 0);
    for (int64_t i = 0; i < l->b * l->s; i++) /* and padding has y, dx, dgates zero */
        for (int64_t c = 0; i % 5 == 4 && c < l->d; c++)
            CHECK(the_run.got[0][i * l->d + c] == 0 && the_run.got[1][i * l->d + c] == 0);
}

/* DeepSpeed#5618: expert gradients ep times too large or small. Their norm does not know ep. */
TEST(norms_of_expert_gradients_do_not_depend_on_ep) {
    static const int dps[] = {2, 4};
    for (int i = 0; i < 2; i++) {
        layout l = layouts[0];
        l.dp = dps[i];
        l.buffer = 4;
        run_layout(&l, &the_run);
        for (int k = 3; k < OUTS; k++) {
            double a = 0, b = 0;
            for (int64_t j = 0; j < elems(&l, k); j++) {
                a += the_run.got[k][j] * the_run.got[k][j];
                b += the_run.want[k][j] * the_run.want[k][j];
            }
            CHECK(a == b && a > 0);
        }
    }
}
