// SPDX-License-Identifier: Apache-2.0
// A layer of experts in a whole training step: every layout makes the same losses, loads, drops,
// gradients and bias as one rank, with everything on at once. The one-rank step in turn is checked
// against arithmetic done here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h"      /* gw_rng_normal */
#include "comm/launch.h"   /* gw_launch_threads */
#include "model/moe.h"     /* gw_moe_build */
#include "ops/ops.h"       /* gw_ops_table */
#include "ops/route.h"     /* gw_route_token */
#include "pass/pass.h"     /* gw_compile */
#include "run/exec.h"      /* gw_exec */
#include "run/exec_comm.h" /* gw_exec_facts */

enum { B = 4, S = 12, D = 8, F = 6, V = 11, N = 8, T = 2, MICRO = 2 };
enum { EMB, HEAD, ROUTER, GATE, UP, DOWN, PARAMS };
static const char *const names[PARAMS] = {"emb", "head", "router", "gate", "up", "down"};
static const char *const dims[PARAMS] = {"v11 d8",   "v11 d8",   "n8 d8",
                                         "e8 f6 d8", "e8 f6 d8", "e8 d8 f6"};
static const gw_param_info infos[PARAMS] = {
    {"emb", true, false, 1, ""},   {"head", true, false, 1, ""}, {"router", true, false, 1, ""},
    {"gate", true, false, 2, "f"}, {"up", true, false, 2, "f"},  {"down", true, false, 2, "f"}};
static const char *const results[] = {"loss", "moe.aux.0", "moe.z.0", "moe.dropped.0"};
enum { RESULTS = 4, MOST = 1024 };

typedef struct layout {
    const char *name;
    int dp, cp, tp;
    gw_layout_opts l;
    gw_recompute_kind recompute;
} layout;

typedef struct seen {
    double result[RESULTS], load[N], bias[N];
    double grad[PARAMS][MOST];
    int holders[PARAMS][MOST];
} seen;

typedef struct run {
    const layout *l;
    gw_moe m;
    seen got;
    int ranks;
} run;

static gw_moe moe_of(gw_moe_balance balance) {
    return (gw_moe){.experts = N,
                    .top = T,
                    .ffn = F,
                    .score = balance == GW_MOE_BALANCE_BIAS ? GW_MOE_SIGMOID : GW_MOE_SOFTMAX,
                    .normalize = true,
                    .scale = 1.5,
                    .groups = 4,
                    .group_limit = 2,
                    .choice_bias = balance == GW_MOE_BALANCE_BIAS,
                    .balance = balance,
                    .balance_weight = 0.3,
                    .z_weight = 0.05,
                    .bias_rate = 0.01,
                    .capacity = 1.25};
}

static void build(gw_graph *g, const gw_moe *m, gw_diags *dg) {
    gw_builder b;
    gw_vid p[PARAMS];
    char bs[32];
    snprintf(bs, sizeof bs, "b%d s%d", B, S);
    gw_vid tokens = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                                  gw_type_make(GW_I32, bs), "tokens");
    gw_vid labels = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                                  gw_type_make(GW_I32, bs), "labels");
    gw_vid seed = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP,
                                gw_type_scalar(GW_F32), "seed");
    gw_vid aux = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP,
                               gw_type_scalar(GW_F32), "aux_seed");
    for (int i = 0; i < PARAMS; i++)
        p[i] = gw_graph_leaf(g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP,
                             gw_type_make(GW_F32, dims[i]), names[i]);
    gw_vid bias = GW_NONE;
    if (m->choice_bias)
        bias = gw_graph_leaf(g, GW_ROLE_STATE, GW_CAUSE_WEIGHTS, GW_RATE_STEP,
                             gw_type_make(GW_F32, "n8"), "bias");
    gw_builder_init(&b, g, dg);
    b.rate = GW_RATE_MB;
    gw_vid x = gw_build1(&b, "embed", tokens, p[EMB]);
    gw_moe_in in = {x, tokens, p[ROUTER], bias, p[GATE], p[UP], p[DOWN], aux, GW_NONE, true};
    gw_builder_enter(&b, "layer 0");
    gw_vid y = gw_moe_build(&b, m, &in, 0);
    gw_builder_leave(&b);
    gw_vid loss = gw_build1(&b, "head", gw_build1(&b, "add", x, y), p[HEAD], labels, seed);
    CHECK_OK(b.status, dg);
    g->values.items[loss].name = gw_graph_intern(g, "loss");
}

/* ---- running it ---- */

static int32_t token_of(int mb, int64_t i) { /* every seventh is padding */
    int64_t k = i + mb * B * S;
    return k % 7 == 6 ? -1 : (int32_t)((k * k + 3 * k) % V);
}

/* One weight that is moved. */
static int moved_param = -1;
static int64_t moved_index;
static double moved_by;

static float weight_of(int p, int64_t i) {
    double x = gw_rng_normal(gw_rng_key_named(9, names[p]), (uint64_t)i);
    double by = p == moved_param && i == moved_index ? moved_by : 0;
    return (float)((p == ROUTER ? 0.9 : p == EMB ? 1 : 0.4) * x + by);
}

/* Calls put(local, global) for all that this rank holds. */
static void write_value(gw_exec *x, const char *name, int kind, int mb) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE || !gw_exec_ptr(x, v)) return;
    const gw_graph *g = gw_exec_graph(x);
    gw_held w;
    int64_t global, local, count;
    gw_held_begin(&w, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    while (gw_held_next(&w, &global, &local, &count))
        for (int64_t i = 0; i < count; i++) {
            if (kind < PARAMS)
                ((float *)gw_exec_ptr(x, v))[local + i] = weight_of(kind, global + i);
            else if (kind == PARAMS) /* tokens, and labels one on */
                ((int32_t *)gw_exec_ptr(x, v))[local + i] = token_of(mb, global + i);
            else
                ((float *)gw_exec_ptr(x, v))[local + i] = 0;
        }
}

static void scalar(gw_exec *x, const char *name, float value) {
    (void)gw_exec_write(x, name, &value, sizeof value);
}

static void step(gw_exec *x, gw_diags *dg) {
    int64_t number = 1;
    for (int p = 0; p < PARAMS; p++) write_value(x, names[p], p, 0);
    write_value(x, "bias", PARAMS + 1, 0);
    scalar(x, "lr", 0.1f);
    scalar(x, "inv_scale", 1);
    scalar(x, "seed", 1.0f / 64);
    scalar(x, "aux_seed", 1.0f / (B * MICRO));
    (void)gw_exec_write(x, "step", &number, sizeof number);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    for (int mb = 0; mb < MICRO; mb++) {
        write_value(x, "tokens", PARAMS, mb);
        write_value(x, "labels", PARAMS, mb);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, dg), dg);
    }
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
}

static void read_values(gw_exec *x, const char *name, double *to, int *holders) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return;
    const gw_graph *g = gw_exec_graph(x);
    gw_held w;
    int64_t global, local, count;
    gw_held_begin(&w, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    CHECK_EQ(gw_type_of(g, v)->psum, 0);
    while (gw_held_next(&w, &global, &local, &count))
        for (int64_t i = 0; i < count; i++) {
            to[global + i] = (double)((const float *)gw_exec_ptr(x, v))[local + i];
            if (holders) holders[global + i]++;
        }
}

static gw_exec *make(const run *r, gw_comm *c, gw_diags *dg) {
    gw_exec_facts f = {.machine = gw_machine_this(1)};
    if (c) f.comm = *gw_comm_machine(c);
    gw_compile_opts o = {.train = true,
                         .micro_batches = MICRO,
                         .params = infos,
                         .nparams = PARAMS,
                         .optim = {.kind = GW_OPTIM_SGD},
                         .recompute = {.kind = r->l->recompute},
                         .layout = r->l->l,
                         .keep_gradients = true,
                         .verify = true,
                         .workspace = gw_exec_workspace,
                         .workspace_user = &f};
    gw_graph g;
    gw_compile_report report = {0};
    gw_graph_init(&g, gw_ops_table());
    if (c) {
        (void)gw_mesh_add(&g.mesh, "dp", r->l->dp);
        (void)gw_mesh_add(&g.mesh, "cp", r->l->cp);
        (void)gw_mesh_add(&g.mesh, "tp", r->l->tp);
    }
    build(&g, &r->m, dg);
    if (gw_compile(&g, &o, NULL, &report, dg) != GW_OK)
        CHECK_MSG(false, "%s: %s", r->l->name, gw_diags_first_error(dg));
    if (c) gw_comm_set_mesh(c, &g.mesh);
    gw_exec *x = NULL;
    gw_exec_opts eo = {.machine = f.machine, .comm = c, .poison = true};
    if (c) eo.rank = gw_comm_rank(c);
    CHECK_OK(gw_exec_new(&x, &g, &eo, dg), dg);
    gw_graph_release(&g);
    return x;
}

static void read_all(gw_exec *x, seen *to) {
    for (int k = 0; k < RESULTS; k++) read_values(x, results[k], &to->result[k], NULL);
    read_values(x, "moe.load.0", to->load, NULL);
    read_values(x, "bias", to->bias, NULL);
    for (int p = 0; p < PARAMS; p++) {
        char name[32];
        snprintf(name, sizeof name, "grad:%s", names[p]);
        read_values(x, name, to->grad[p], to->holders[p]);
    }
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_exec *x = make(r, c, dg);
    step(x, dg);
    for (int turn = 0; turn < r->ranks; turn++) {
        if (turn == gw_comm_rank(c)) read_all(x, &r->got);
        GW_TRY(gw_comm_barrier(c, "turn", dg));
    }
    gw_exec_free(x);
    return GW_OK;
}

static void run_ranks(run *r, const layout *l) {
    gw_diags dg;
    gw_diags_init(&dg);
    memset(&r->got, 0, sizeof r->got);
    r->l = l;
    r->ranks = l->dp * l->cp * l->tp;
    if (r->ranks == 1) {
        gw_exec *x = make(r, NULL, &dg);
        step(x, &dg);
        read_all(x, &r->got);
        gw_exec_free(x);
    } else {
        CHECK_OK(gw_launch_threads(r->ranks, 30, body, r, &dg), &dg);
    }
    gw_diags_release(&dg);
}

/* ---- laws ---- */

static void same(const layout *l, const char *what, const double *a, const double *b, int64_t n,
                 double tol) {
    double squares = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += b[i] * b[i];
        off = fmax(off, fabs(a[i] - b[i]));
        CHECK(isfinite(a[i]));
    }
    double rms = sqrt(squares / (double)n);
    CHECK_MSG(off <= tol * fmax(rms, 1e-6), "%s: %s is off by %.3g of rms %.3g (%.6g for %.6g)",
              l->name, what, off, rms, a[0], b[0]);
}

static int64_t elems(int p) {
    gw_type t = gw_type_make(GW_F32, dims[p]);
    return gw_type_elems(&t);
}

static void compare(const layout *l, const seen *a, const seen *b) {
    for (int k = 0; k < RESULTS; k++) same(l, results[k], &a->result[k], &b->result[k], 1, 1e-5);
    for (int e = 0; e < N; e++) CHECK_EQ((int64_t)a->load[e], (int64_t)b->load[e]);
    same(l, "bias", a->bias, b->bias, N, 1e-6);
    for (int p = 0; p < PARAMS; p++) {
        for (int64_t i = 0; i < elems(p); i++) CHECK(a->holders[p][i] > 0);
        same(l, names[p], a->grad[p], b->grad[p], elems(p), 2e-5);
    }
}

static const layout alone = {"alone", 1, 1, 1, {0}, GW_RECOMPUTE_NONE};
static const layout layouts[] = {
    {"alone, recomputed", 1, 1, 1, {0}, GW_RECOMPUTE_FULL},
    {"dp 2", 2, 1, 1, {.zero = 0}, GW_RECOMPUTE_NONE},
    {"dp 2 ep 2", 2, 1, 1, {.ep = 2}, GW_RECOMPUTE_NONE},
    {"dp 4 ep 2", 4, 1, 1, {.ep = 2}, GW_RECOMPUTE_NONE},
    {"dp 4 ep 4, a short buffer, recomputed",
     4,
     1,
     1,
     {.ep = 4, .moe_buffer = 0.5},
     GW_RECOMPUTE_FULL},
    {"dp 2 zero 1 ep 2", 2, 1, 1, {.ep = 2, .zero = 1}, GW_RECOMPUTE_NONE},
    {"dp 2 zero 3", 2, 1, 1, {.zero = 3}, GW_RECOMPUTE_NONE},
    {"dp 4 zero 3 ep 2", 4, 1, 1, {.ep = 2, .zero = 3}, GW_RECOMPUTE_NONE},
    {"cp 2 ep 2", 1, 2, 1, {.ep = 2}, GW_RECOMPUTE_NONE},
    {"dp 2 cp 2 ep 4", 2, 2, 1, {.ep = 4}, GW_RECOMPUTE_NONE},
    {"tp 2", 1, 1, 2, {0}, GW_RECOMPUTE_NONE},
    {"dp 2 tp 2 ep 2", 2, 1, 2, {.ep = 2}, GW_RECOMPUTE_NONE},
    {"dp 2 tp 2 sequence parallel ep 2",
     2,
     1,
     2,
     {.ep = 2, .sequence_parallel = true},
     GW_RECOMPUTE_NONE},
    {"dp 2 tp 2 sequence parallel ep 4",
     2,
     1,
     2,
     {.ep = 4, .sequence_parallel = true},
     GW_RECOMPUTE_NONE},
};

static run the_run;

static void all_layouts(gw_moe_balance balance) {
    seen *want = calloc(1, sizeof *want);
    the_run.m = moe_of(balance);
    run_ranks(&the_run, &alone);
    *want = the_run.got;
    CHECK(want->result[3] > 0 && want->result[2] > 0); /* some are dropped; z is there */
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        run_ranks(&the_run, &layouts[i]);
        compare(&layouts[i], &the_run.got, want);
    }
    free(want);
}

TEST_WITHIN(every_layout_trains_experts_alike_with_a_loss_by_sequence, 120) {
    all_layouts(GW_MOE_BALANCE_SEQUENCE);
}
TEST_WITHIN(every_layout_trains_experts_alike_with_a_loss_by_batch, 120) {
    all_layouts(GW_MOE_BALANCE_BATCH);
}
TEST_WITHIN(every_layout_trains_experts_alike_with_a_bias, 120) {
    all_layouts(GW_MOE_BALANCE_BIAS);
}

/* Wang et al. 2024, algorithm 1, with the load that the step itself reports. */
TEST(the_bias_moves_against_the_load_once_a_step) {
    the_run.m = moe_of(GW_MOE_BALANCE_BIAS);
    run_ranks(&the_run, &alone);
    double mean = 0;
    int moved = 0;
    for (int e = 0; e < N; e++) mean += the_run.got.load[e] / N;
    for (int e = 0; e < N; e++) {
        double sign = (mean > the_run.got.load[e]) - (mean < the_run.got.load[e]);
        CHECK(fabs(the_run.got.bias[e] - 0.01 * sign) < 1e-9);
        moved += sign != 0;
    }
    CHECK(moved > 0);
}

/* Padding is in no load: the sum of loads is top times the tokens that are none. */
TEST(padding_is_in_no_load) {
    the_run.m = moe_of(GW_MOE_BALANCE_SEQUENCE);
    run_ranks(&the_run, &alone);
    int64_t tokens = 0;
    double sum = 0;
    for (int mb = 0; mb < MICRO; mb++)
        for (int64_t i = 0; i < B * S; i++) tokens += token_of(mb, i) >= 0;
    for (int e = 0; e < N; e++) sum += the_run.got.load[e];
    CHECK_EQ((int64_t)sum, tokens * T);
}

/* ---- one rank against arithmetic ---- */

/* Sums of one unit. */
typedef struct unit {
    double tokens, load[N], p[N], z;
} unit;

static void add_token(unit *u, const gw_route *r, int32_t token) {
    double logits[N] = {0}, gates[T], probs[N], sum = 0;
    int32_t ids[T];
    for (int e = 0; e < N; e++)
        for (int d = 0; d < D; d++)
            logits[e] +=
                (double)weight_of(ROUTER, e * D + d) * (double)weight_of(EMB, token * D + d);
    CHECK(gw_route_token(r, logits, NULL, NULL, ids, gates, probs));
    for (int k = 0; k < T; k++) u->load[ids[k]]++;
    for (int e = 0; e < N; e++) sum += exp(logits[e]);
    for (int e = 0; e < N; e++) u->p[e] += exp(logits[e]) / sum;
    u->z += pow(log(sum), 2);
    u->tokens++;
}

static void add_losses(const unit *u, double *aux, double *z) {
    for (int e = 0; e < N; e++) *aux += N * (u->load[e] / (u->tokens * T)) * (u->p[e] / u->tokens);
    *z += u->z / u->tokens;
}

/* Fedus et al. 2021, equation 4, and Zoph et al. 2022, equation 5, token by token. */
static void check_losses(gw_moe_balance balance) {
    the_run.m = moe_of(balance);
    run_ranks(&the_run, &alone);
    gw_route r = {.n = N,
                  .top = T,
                  .groups = 4,
                  .group_limit = 2,
                  .group_max = true,
                  .normalize = true,
                  .scale = 1.5};
    double aux = 0, z = 0;
    for (int mb = 0; mb < MICRO; mb++) {
        unit all = {0};
        for (int b = 0; b < B; b++) {
            unit one = {0};
            for (int64_t i = b * S; i < (b + 1) * S; i++) {
                if (token_of(mb, i) < 0) continue;
                add_token(&one, &r, token_of(mb, i));
                add_token(&all, &r, token_of(mb, i));
            }
            if (balance == GW_MOE_BALANCE_SEQUENCE) add_losses(&one, &aux, &z);
        }
        if (balance == GW_MOE_BALANCE_BATCH) add_losses(&all, &aux, &z);
    }
    CHECK_MSG(fabs(the_run.got.result[1] - aux) < 1e-5 * aux, "aux %.7g, not %.7g",
              the_run.got.result[1], aux);
    CHECK_MSG(fabs(the_run.got.result[2] - z) < 1e-5 * z, "z %.7g, not %.7g", the_run.got.result[2],
              z);
}

TEST(losses_of_sequences_are_those_of_the_papers) { check_losses(GW_MOE_BALANCE_SEQUENCE); }
TEST(losses_of_batches_are_those_of_the_papers) { check_losses(GW_MOE_BALANCE_BATCH); }

/* What backward descends: the loss times its seed and the auxiliary ones times weight and seed. */
static double objective(int p, int64_t i, double by, double load[N]) {
    moved_param = p;
    moved_index = i;
    moved_by = by;
    run_ranks(&the_run, &alone);
    moved_param = -1;
    memcpy(load, the_run.got.load, sizeof the_run.got.load);
    const double *r = the_run.got.result;
    return r[0] / 64 + (the_run.m.balance_weight * r[1] + the_run.m.z_weight * r[2]) / (B * MICRO);
}

/* Every loss has its part in the gradient, with its own seed. The step is float32: differences over
 * h = 2e-3 are good to about 1e-3 of the largest gradient. */
TEST(gradients_are_those_of_all_losses_together) {
    the_run.m = moe_of(GW_MOE_BALANCE_SEQUENCE);
    the_run.m.balance_weight = 3; /* so that each would be missed */
    the_run.m.z_weight = 0.5;
    the_run.m.capacity = 0;
    run_ranks(&the_run, &alone);
    seen *base = calloc(1, sizeof *base);
    *base = the_run.got;
    int checked = 0;
    for (int p = 0; p < PARAMS; p++) {
        double most = 0, h = 2e-3, load[2][N];
        for (int64_t i = 0; i < elems(p); i++) most = fmax(most, fabs(base->grad[p][i]));
        for (int64_t i = 3; i < elems(p); i += elems(p) / 5) {
            double up = objective(p, i, h, load[0]), down = objective(p, i, -h, load[1]);
            if (memcmp(load[0], load[1], sizeof load[0]) != 0) continue; /* a choice has moved */
            CHECK_MSG(fabs((up - down) / (2 * h) - base->grad[p][i]) < 4e-3 * most,
                      "%s[%d]: %.6g, by differences %.6g", names[p], (int)i, base->grad[p][i],
                      (up - down) / (2 * h));
            checked++;
        }
    }
    CHECK(checked > 20);
    free(base);
}
