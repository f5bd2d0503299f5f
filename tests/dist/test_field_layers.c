// SPDX-License-Identifier: Apache-2.0
// Faults that users of other systems met where a layer is cut: tensor, sequence, context and expert
// parallelism. The reference stands above each, with what came out wrong.
//
// Most compare what ranks have of one step directly: gradients gathered from their parts, the norm
// that the clip is made of, weights bit for bit. The optimizer is SGD, which hides no factor. Rows
// of a batch have unequal numbers of labels throughout.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "train/ranks.h"       /* gw_ranks_me */
#include "train/verify_side.h" /* gw_verify_side, gw_verify_ones */
#include "verify_rig.h"

enum { MOST = 200000 };

/* What a layout has after a step. */
typedef struct measured {
    const char *only;              /* in the names of gradients and weights; NULL: all */
    float *weights, *gradients;    /* [n] rank 0's: initial weights; gradients before clipping */
    int64_t n;                     /* elements of both */
    double norm, loss;             /* of all ranks */
    int64_t most_held;             /* elements of `only` that a rank holds, at most */
    int64_t copies, copies_differ; /* ranks that hold the weights whole after the step; of them,
                                      those whose bits are not rank 0's */
    bool moved;                    /* rank 0's differ from the initial ones */
    void *after;                   /* rank 0's bits after the step */
} measured;

typedef struct job {
    rig *r;
    measured *m;
} job;

static bool is_meant(const measured *m, const char *name) {
    return !m->only || strstr(name, m->only) != NULL;
}

/* Weights (gradients NULL) or gradients of the parameters that are meant, gathered on rank 0. */
static gw_status read_all(const gw_verify_side *v, const measured *m, const char *prefix,
                          float *out, int64_t *n, gw_diags *dg) {
    const gw_setup *s = v->setup;
    bool root = gw_ranks_me(v->comm) == 0;
    *n = 0;
    for (int i = 0; i < s->nparams; i++) {
        char name[200];
        if (!is_meant(m, s->params[i].name)) continue;
        snprintf(name, sizeof name, "%s%s", prefix, s->params[i].name);
        const gw_ranks_entry *x = gw_ranks_find(&v->table, name);
        int64_t elems = gw_type_elems(&s->params[i].type);
        CHECK(x && *n + elems <= MOST);
        GW_TRY(gw_verify_side_read(v, x, root ? out + *n : NULL, dg));
        *n += elems;
    }
    return GW_OK;
}

/* The bits of one weight on every rank, after the step. Ranks take turns. */
static gw_status look_at_copies(const gw_verify_side *v, measured *m, gw_diags *dg) {
    const gw_setup *s = v->setup;
    for (int turn = 0; turn < (v->comm ? gw_comm_size(v->comm) : 1); turn++) {
        if (turn == gw_ranks_me(v->comm)) {
            int64_t at = 0;
            for (int i = 0; i < s->nparams; i++) {
                if (!is_meant(m, s->params[i].name)) continue;
                gw_tensor t = gw_exec_tensor(v->x, gw_exec_find(v->x, s->params[i].name));
                m->most_held = GW_MAX(m->most_held, t.elems);
                bool whole = t.elems == gw_type_elems(&s->params[i].type);
                size_t bytes = sizeof(float) * (size_t)t.elems;
                char *first = (char *)m->after + at;
                if (turn == 0) memcpy(first, t.data, bytes);
                m->copies += whole;
                m->copies_differ += whole && memcmp(first, t.data, bytes) != 0;
                at += (int64_t)sizeof(float) * gw_type_elems(&s->params[i].type);
            }
        }
        if (v->comm) GW_TRY(gw_comm_barrier(v->comm, "turn", dg));
    }
    return GW_OK;
}

static gw_status measure_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    gw_runfile rf;
    gw_setup s;
    gw_verify_side v;
    int64_t n = 0;
    bool root = gw_ranks_me(c) == 0;
    rig_runfile(j->r, &rf);
    GW_TRY(gw_runfile_set_ranks(&rf, j->r->ranks, dg));
    rf.optimizer.name = GW_RF_SGD;
    GW_TRY(gw_setup_init(&s, &rf, false, dg));
    GW_TRY(gw_setup_ranks(&s, c, dg));
    s.train.keep_gradients = true;
    GW_TRY(gw_verify_side_layout(&v, &s, c, &j->r->opts, dg));
    GW_TRY(read_all(&v, j->m, "", j->m->weights, &n, dg));
    GW_TRY(gw_verify_side_step(&v, dg));
    GW_TRY(read_all(&v, j->m, "grad:", j->m->gradients, &n, dg));
    GW_TRY(look_at_copies(&v, j->m, dg));
    if (root) {
        j->m->n = n;
        j->m->norm = v.norm;
        j->m->loss = v.loss_sum / (double)v.labels_seen;
        j->m->moved = memcmp(j->m->after, j->m->weights, sizeof(float) * (size_t)n) != 0;
    }
    gw_verify_side_close(&v);
    gw_setup_release(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

/* Release with drop. */
static measured measure(rig *r, const char *only) {
    measured m = {.only = only};
    job j = {r, &m};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    m.weights = gw_mem_zalloc(sizeof(float) * MOST);
    m.gradients = gw_mem_zalloc(sizeof(float) * MOST);
    m.after = gw_mem_zalloc(sizeof(float) * MOST);
    if (r->ranks == 1)
        CHECK_OK(measure_rank(NULL, &j, &dg), &dg);
    else
        CHECK_OK(gw_launch_threads(r->ranks, 30, measure_rank, &j, &dg), &dg);
    gw_diags_release(&dg);
    CHECK(m.n > 0 && gw_verify_norm(m.gradients, m.n) > 0);
    return m;
}

static void drop(measured *m) {
    gw_mem_free(m->weights);
    gw_mem_free(m->gradients);
    gw_mem_free(m->after);
}

/* A run of `ranks` ranks with these --sets; one step has `batch` samples, one in a micro-batch. */
static rig run_of(const char *family, int ranks, int batch, const char *const *sets) {
    rig r = rig_make(family, ranks);
    for (int i = 0; sets && sets[i]; i++) rig_set(&r, "%s", sets[i]);
    rig_set(&r, "train.global_batch=%d", batch);
    return r;
}

#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

static measured measure_run(const char *family, int ranks, int batch, const char *const *sets,
                            const char *only) {
    rig r = run_of(family, ranks, batch, sets);
    measured m = measure(&r, only);
    rig_release(&r);
    return m;
}

/* The same gradients, norm and loss; sums in another order are what float32 may do. */
static void same(const measured *a, const measured *b) {
    CHECK_EQ(a->n, b->n);
    double apart = gw_verify_difference(a->gradients, b->gradients, a->n, 0);
    CHECK_MSG(apart < 1e-5, "gradients are %.3g apart", apart);
    CHECK_NEAR(a->norm, b->norm, 1e-5 * b->norm);
    CHECK_NEAR(a->loss, b->loss, 1e-6 * fabs(b->loss));
}

/* ---- context parallelism ---- */

/* Megatron#906, #673: dp 2 x cp 4 against dp 8, the same global batch: gradients differed by the
 * context-parallel degree. */
TEST_WITHIN(dp_2_cp_4_has_the_gradients_of_dp_8, 120) {
    static const char *const modes[] = {"layout.cp_mode=ring", "layout.cp_mode=allgather",
                                        "layout.cp_mode=ulysses"};
    const char *heads = "model.heads=4", *hidden = "model.hidden=40";
    measured eight = measure_run("llama", 8, 8, SETS(heads, hidden), NULL);
    for (int i = 0; i < 3; i++) {
        measured m = measure_run("llama", 8, 8, SETS(heads, hidden, "layout.cp=4", modes[i]), NULL);
        same(&m, &eight);
        drop(&m);
    }
    drop(&eight);
}

/* ---- routers ---- */

/* Megatron#3672, PR 3768, 5047: the router's gradient from the auxiliary and the z loss grew with
 * the tensor- or context-parallel degree. Both weigh much here, so that theirs is most of it. */
TEST_WITHIN(a_router_s_gradient_does_not_know_tp_or_cp, 180) {
    static const char *const balances[] = {"model.moe.balance=sequence", "model.moe.balance=batch"};
    for (int i = 0; i < 2; i++) {
        const char *aux = "model.moe.balance_weight=3", *z = "model.moe.z_weight=2";
        const char *on = balances[i];
        measured one = measure_run("mixtral", 1, 4, SETS(on, aux, z), "router");
        measured bare =
            measure_run("mixtral", 1, 4,
                        SETS(on, "model.moe.balance_weight=0", "model.moe.z_weight=0"), "router");
        CHECK(gw_verify_norm(one.gradients, one.n) > 3 * gw_verify_norm(bare.gradients, bare.n));
        drop(&bare);
        const char *const *const cuts[] = {
            SETS(on, aux, z, "layout.tp=2"),
            SETS(on, aux, z, "layout.tp=2", "layout.sequence_parallel=false"),
            SETS(on, aux, z, "layout.cp=2"),
            SETS(on, aux, z, "layout.tp=2", "layout.ep=2"),
            SETS(on, aux, z, "layout.cp=2", "layout.ep=2"),
        };
        for (size_t k = 0; k < GW_COUNT(cuts); k++) {
            measured m = measure_run("mixtral", 2, 4, cuts[k], "router");
            same(&m, &one);
            drop(&m);
        }
        drop(&one);
    }
}

/* Megatron PR 619 (issue 599), torchtitan#2387, PR 2416: a router's weight lies on every rank, the
 * tokens are split over them: after one step the copies were not equal. */
TEST_WITHIN(copies_of_a_router_are_equal_after_a_step, 120) {
    static const char *const families[] = {"mixtral", "qwen3_moe", "deepseek"};
    for (size_t f = 0; f < GW_COUNT(families); f++) {
        const char *const *const cuts[] = {SETS("layout.tp=2"), SETS("layout.tp=2", "layout.ep=2"),
                                           SETS("layout.tp=2", "layout.sequence_parallel=false"),
                                           SETS("layout.cp=2")};
        for (size_t k = 0; k < GW_COUNT(cuts); k++) {
            measured m = measure_run(families[f], 4, 4, cuts[k], "router.weight");
            CHECK(m.moved);
            CHECK_EQ(m.copies, strcmp(families[f], "deepseek") == 0 ? 4 : 8); /* x layers */
            CHECK_EQ(m.copies_differ, 0);
            drop(&m);
        }
    }
}

static void drop_router_sum(gw_graph *g, int64_t rank, void *user) {
    (void)rank;
    (void)user;
    rig_drop_reduction(g, "grad:layers.0.moe.router.weight");
}

/* With that fault put in, the copies do come apart. */
TEST(copies_of_a_router_come_apart_without_the_sum) {
    gw_verify_hooks hooks = {.mutate = drop_router_sum};
    rig r =
        run_of("mixtral", 2, 2, SETS("layout.tp=2", "layout.bucket=0", "layout.first_bucket=0"));
    r.opts.hooks = &hooks;
    measured m = measure(&r, "layers.0.moe.router.weight");
    CHECK_EQ(m.copies, 2);
    CHECK_EQ(m.copies_differ, 1);
    drop(&m);
    rig_release(&r);
}

/* ---- norms ---- */

typedef struct norm_job {
    rig *r;
    double norm;
    int64_t params;
} norm_job;

static gw_status measure_ones(gw_comm *c, void *user, gw_diags *dg) {
    norm_job *j = user;
    gw_runfile rf;
    gw_setup s;
    double norm = 0;
    int64_t params = 0;
    rig_runfile(j->r, &rf);
    GW_TRY(gw_runfile_set_ranks(&rf, j->r->ranks, dg));
    GW_TRY(gw_setup_init(&s, &rf, false, dg));
    GW_TRY(gw_setup_ranks(&s, c, dg));
    s.train.keep_gradients = true;
    GW_TRY(gw_verify_ones(&s, c, 1, &norm, &params, dg));
    if (gw_ranks_me(c) == 0) {
        j->norm = norm;
        j->params = params;
    }
    gw_setup_release(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

/* Megatron PR 5916, PR 6080: every gradient set to 1 under expert x tensor parallelism: the norm
 * was not the square root of the number of parameters. Which is that of one rank. */
TEST_WITHIN(all_ones_give_the_square_root_under_ep_x_tp, 180) {
    static const char *const families[] = {"mixtral", "qwen3_moe", "deepseek"};
    for (size_t f = 0; f < GW_COUNT(families); f++) {
        const char *const *const cuts[] = {
            NULL,
            SETS("layout.tp=2", "layout.ep=2"),
            SETS("layout.tp=2", "layout.ep=2", "layout.sequence_parallel=false"),
            SETS("layout.tp=2", "layout.ep=2", "layout.zero=2"),
            SETS("layout.tp=2", "layout.cp=2", "layout.ep=2", "layout.zero=3"),
            SETS("layout.tp=4", "layout.ep=6", "model.heads=3"),
            SETS("layout.cp=2", "layout.ep=2", "layout.zero=1", "layout.dp_replicate=2"),
        };
        static const int ranks[] = {1, 4, 4, 8, 8, 12, 8};
        int64_t params = 0;
        for (size_t k = 0; k < GW_COUNT(cuts); k++) {
            gw_diags dg;
            gw_diags_init(&dg);
            gw_log_set_level(GW_LOG_QUIET);
            rig r = run_of(families[f], ranks[k], 24, cuts[k]);
            norm_job j = {.r = &r};
            if (ranks[k] == 1)
                CHECK_OK(measure_ones(NULL, &j, &dg), &dg);
            else
                CHECK_OK(gw_launch_threads(ranks[k], 30, measure_ones, &j, &dg), &dg);
            if (k == 0) params = j.params;
            CHECK_EQ(j.params, params);
            CHECK_NEAR(j.norm, sqrt((double)params), 1e-6 * sqrt((double)params));
            rig_release(&r);
            gw_diags_release(&dg);
        }
    }
}

/* Megatron#7452, PR 7530: one number a head, cut over the tensor-parallel ranks (an attention
 * sink; here biases of queries): the norm that is clipped by saw one rank's heads. */
TEST_WITHIN(what_belongs_to_heads_counts_in_the_norm_on_all_ranks, 120) {
    static const char *const name = "attn.q.bias";
    const char *std = "model.init_std=0.3"; /* so that biases of queries have a part in the norm */
    measured one = measure_run("gpt2", 1, 4, SETS(std), name);
    double bias = gw_verify_norm(one.gradients, one.n);
    for (int tp = 2; tp <= 4; tp++)
        for (int zero = 0; zero <= 1; zero++) {
            char degree[32];
            snprintf(degree, sizeof degree, "layout.tp=%d", tp);
            const char *const *sets = SETS(std, degree, zero ? "layout.zero=1" : "layout.zero=0");
            measured all = measure_run("gpt2", tp * (1 + zero), 4, sets, NULL);
            measured m = measure_run("gpt2", tp * (1 + zero), 4, sets, name);
            CHECK(m.most_held < one.n / 2); /* of two layers: no rank has all heads */
            CHECK_NEAR(gw_verify_norm(m.gradients, m.n), bias, 1e-5 * bias);
            double whole = gw_verify_norm(all.gradients, all.n);
            CHECK_NEAR(all.norm, whole, 1e-6 * whole);
            CHECK_NEAR(all.norm, one.norm, 1e-5 * one.norm);
            /* one rank's heads would be missed in it */
            CHECK(whole - sqrt(whole * whole - bias * bias / 2) > 2e-6 * whole);
            drop(&all);
            drop(&m);
        }
    drop(&one);
}

/* DeepSpeed#8475: ranks own different experts, and their own norms were averaged: the clip changed
 * when an expert moved to another rank. Here experts lie on 1, 2, 3 and 6 ranks in turn, and the
 * batch is so that a few of them have most of the gradient. */
TEST_WITHIN(the_clip_does_not_know_where_experts_lie, 120) {
    static const char *const degrees[] = {"layout.ep=1", "layout.ep=2", "layout.ep=3",
                                          "layout.ep=6"};
    for (int zero = 0; zero <= 2; zero++) {
        char stage[32];
        snprintf(stage, sizeof stage, "layout.zero=%d", zero);
        measured one =
            measure_run("qwen3_moe", 1, 6, SETS("model.moe.top=1", "train.micro_batch=6"), NULL);
        for (size_t i = 0; i < GW_COUNT(degrees); i++) {
            measured m =
                measure_run("qwen3_moe", 6, 6, SETS(stage, degrees[i], "model.moe.top=1"), NULL);
            same(&m, &one);
            drop(&m);
        }
        drop(&one);
    }
}

/* ---- ranks that differ ---- */

/* transformers#30277: parameters sharded, experts, ranks whose tokens go to different experts (or
 * which have no tokens at all): collectives that do not match, or a hang. Each rank's row repeats a
 * token of its own; the last rank's has a single token, and so no label. */
TEST_WITHIN(ranks_that_visit_different_experts_gather_alike, 120) {
    int32_t tokens[40];
    int64_t ends[8], at = 0;
    for (int row = 0; row < 8; row++) {
        int n = row % 4 == 3 ? 1 : 7 - row % 3;
        for (int i = 0; i < n; i++) tokens[at + i] = (row * 13 + 5) % 53;
        ends[row] = at += n;
    }
    gw_verify_data data = {tokens, ends, 8, false};
    static const char *const families[] = {"mixtral", "deepseek"};
    for (int i = 0; i < 4; i++) {
        rig r = rig_make(families[i % 2], 4);
        rig_set(&r, "layout.zero=3");
        rig_set(&r, "data.pack=false");
        rig_set(&r, "layout.ep=%d", 1 + i / 2);
        r.opts.data = &data;
        rig_passes(&r);
        rig_release(&r);
    }
}

/* ---- beginnings ---- */

/* torchtitan#1750, #1720, #514: one seed, tp 1, 2, 4, other initial losses; a checkpoint of the
 * seed was the answer. NeMo-Aligner#227: log-probabilities of one model at step 0 differed under
 * tp 4. Here weights are equal to the bit, and the loss to what the order of sums does. */
TEST_WITHIN(one_seed_is_one_model_on_tp_1_2_4, 180) {
    static const char *const families[] = {"gpt2", "qwen3", "deepseek"};
    for (size_t f = 0; f < GW_COUNT(families); f++) {
        const char *const *const cuts[] = {SETS("layout.tp=2"), SETS("layout.tp=4"),
                                           SETS("layout.cp=2"),
                                           SETS("layout.tp=2", "layout.cp=2", "layout.zero=3")};
        static const int ranks[] = {2, 4, 2, 8};
        measured one = measure_run(families[f], 1, 4, NULL, NULL);
        for (size_t k = 0; k < GW_COUNT(cuts); k++) {
            measured m = measure_run(families[f], ranks[k], 4, cuts[k], NULL);
            CHECK_EQ(m.n, one.n);
            CHECK(memcmp(m.weights, one.weights, sizeof(float) * (size_t)one.n) == 0);
            CHECK_NEAR(m.loss, one.loss, 1e-6 * one.loss);
            drop(&m);
        }
        drop(&one);
    }
}

/* ---- dropout ---- */

/* tt-metal#55947: masks on dp 2 x tp 2, all four equal. Both data-parallel ranks have the same row:
 * without dropout, or if their masks were equal, the step's gradient is that of one row alone. What
 * is replicated in a tensor-parallel pair is the same to the bit, and all is what one rank has. */
TEST_WITHIN(masks_are_one_in_a_tensor_parallel_group_and_two_over_dp, 120) {
    int32_t tokens[14];
    int64_t ends[] = {7, 14};
    for (int i = 0; i < 14; i++) tokens[i] = (i % 7 * 11 + 3) % 53;
    gw_verify_data both = {tokens, ends, 2, false}, alone = {tokens, ends, 1, false};
    for (int dropped = 0; dropped <= 1; dropped++)
        for (int sequence = 0; sequence <= 1; sequence++) {
            const char *const *sets = SETS(
                dropped ? "model.dropout=0.5" : "model.dropout=0", "data.pack=false", "layout.tp=2",
                sequence ? "layout.sequence_parallel=true" : "layout.sequence_parallel=false");
            rig r = run_of("gpt2", 4, 2, sets), half = run_of("gpt2", 2, 1, sets);
            r.opts.data = &both;
            half.opts.data = &alone;
            measured m = measure(&r, NULL), h = measure(&half, NULL);
            double apart = gw_verify_difference(m.gradients, h.gradients, m.n, 0);
            CHECK_MSG(dropped ? apart > 0.1 : apart < 1e-5, "%.3g apart", apart);
            drop(&m);
            drop(&h);
            m = measure(&r, "norm.weight");
            CHECK_EQ(m.copies, 4 * 5);
            CHECK_EQ(m.copies_differ, 0);
            drop(&m);
            rig_passes(&r);
            rig_release(&r);
            rig_release(&half);
        }
}
