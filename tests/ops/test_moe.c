// SPDX-License-Identifier: Apache-2.0
// Facts about routing, capacity and balance that finite differences cannot see: choices against a
// brute force, ties, groups and bias by hand, the laws of capacity with the predicted share of
// drops, the laws of balance losses, and gradients that flow through the scores.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"  /* gw_rng_normal */
#include "bench.h"     /* bench */
#include "harness.h"   /* TEST, CHECK */
#include "ops/ops.h"   /* gw_ops_table */
#include "ops/route.h" /* gw_route_token */

/* Attributes by name: "top", 2.0, ..., NULL. */
static gw_vid build(bench *t, const char *op, const gw_vid *in, int nin, gw_vid *more,
                    const char *const *keys, const double *values) {
    gw_attr a[GW_MAX_ATTRS];
    const gw_opdef *def = gw_ops_table()->ops[gw_optable_find(gw_ops_table(), op)];
    gw_attrs_default(gw_ops_table(), op, a);
    for (int i = 0; keys && keys[i]; i++)
        for (int k = 0; k < def->nattrs; k++) {
            if (strcmp(def->attrs[k].name, keys[i]) != 0) continue;
            if (def->attrs[k].kind == GW_ATTR_FLOAT)
                a[k].f = values[i];
            else
                a[k].i = (int64_t)values[i];
        }
    return gw_build(&t->b, op, in, nin, a, more);
}

/* ---- routing ---- */

TEST(equal_scores_go_to_the_lower_index) {
    gw_route r = {.n = 5, .top = 3, .groups = 1, .group_limit = 1, .normalize = true, .scale = 1};
    double z[5] = {1, 2, 2, 1, 2}, gates[3], probs[5];
    int32_t ids[3];
    gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
    CHECK(ids[0] == 1 && ids[1] == 2 && ids[2] == 4);
    for (int i = 0; i < 3; i++) CHECK(fabs(gates[i] - 1.0 / 3) < 1e-15);
    for (int i = 0; i < 5; i++)
        z[i] = (double)NAN; /* whatever comes in, experts are named, once each */
    gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
    CHECK(ids[0] == 0 && ids[1] == 1 && ids[2] == 2);
}

/* Groups {0,1} {2,3} {4,5}: the best two of each are 0.9, 1.0, 0.95 together. */
TEST(groups_count_as_their_best_two_or_their_best_one) {
    gw_route r = {.n = 6, .top = 2, .groups = 3, .group_limit = 1, .sigmoid = true, .scale = 1};
    double score[6] = {0.85, 0.05, 0.5, 0.5, 0.6, 0.35}, z[6], gates[2], probs[6];
    int32_t ids[2];
    for (int i = 0; i < 6; i++) z[i] = log(score[i] / (1 - score[i]));
    gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
    CHECK(ids[0] / 2 == 1 && ids[1] / 2 == 1 && ids[0] != ids[1]);
    r.group_max = true;
    gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
    CHECK(ids[0] == 0 && ids[1] == 1);
}

TEST(a_bias_moves_the_choice_and_not_the_gate) {
    gw_route r = {.n = 4, .top = 1, .groups = 1, .group_limit = 1, .sigmoid = true, .scale = 2.5};
    double z[4] = {0, 1, 2, 3}, bias[4] = {0.9, 0, 0, 0}, gates[1], probs[4];
    int32_t ids[1];
    gw_route_token(&r, z, bias, NULL, ids, gates, probs);
    CHECK(ids[0] == 0 && fabs(gates[0] - 2.5 * 0.5) < 1e-15);
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += probs[i];
    CHECK(fabs(sum - 1) < 1e-12);
}

/* Mixtral: softmax over all, then the chosen over their sum, is softmax over the chosen. */
TEST(normalised_softmax_gates_are_a_softmax_of_the_chosen) {
    gw_route r = {.n = 8, .top = 2, .groups = 1, .group_limit = 1, .normalize = true, .scale = 1};
    for (int trial = 0; trial < 50; trial++) {
        double z[8], gates[2], probs[8];
        int32_t ids[2];
        for (int i = 0; i < 8; i++)
            z[i] = gw_rng_normal(gw_rng_key_named(1, "z"), (uint64_t)(trial * 8 + i));
        gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
        double a = exp(z[ids[0]]), b = exp(z[ids[1]]);
        CHECK(fabs(gates[0] - a / (a + b)) < 1e-14 && z[ids[0]] >= z[ids[1]]);
        int above = 0;
        for (int i = 0; i < 8; i++) above += z[i] > z[ids[1]];
        CHECK(above == 1);
    }
}

/* The scores' own path (balance losses), by differences of a weighted sum of probs. */
TEST(gradients_flow_through_probs) {
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        gw_route r = {.n = 6, .top = 2, .groups = 1, .group_limit = 1, .scale = 1};
        r.sigmoid = sigmoid;
        double z[6] = {0.3, -1, 0.7, 2, -0.2, 1.1}, w[6] = {1, -2, 0.5, 3, -1, 0.25}, dz[6];
        double gates[2], probs[6];
        int32_t ids[2];
        gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
        gw_route_token_grad(&r, z, ids, NULL, w, dz);
        for (int i = 0; i < 6; i++) {
            double f[2] = {0, 0}, h = 1e-5, keep = z[i];
            for (int side = 0; side < 2; side++) {
                z[i] = keep + (side ? h : -h);
                gw_route_token(&r, z, NULL, NULL, ids, gates, probs);
                for (int j = 0; j < 6; j++) f[side] += w[j] * probs[j];
            }
            z[i] = keep;
            CHECK(fabs((f[1] - f[0]) / (2 * h) - dz[i]) < 1e-8);
        }
    }
}

/* ---- choices made elsewhere ---- */

TEST(choices_that_are_given_are_taken) {
    gw_route r = {.n = 4, .top = 2, .groups = 1, .group_limit = 1, .normalize = true, .scale = 3};
    const double z[4] = {log(1), log(2), log(3), log(4)};
    const int32_t given[2] = {0, 2}, none[2] = {0, 4};
    double gates[2], probs[4];
    int32_t ids[2] = {7, 7};
    CHECK(gw_route_token(&r, z, NULL, given, ids, gates, probs));
    CHECK(ids[0] == 0 && ids[1] == 2);
    CHECK_NEAR(gates[0], 3 * 0.25, 1e-15); /* scores 0.1 and 0.3 of 0.4 */
    CHECK_NEAR(gates[1], 3 * 0.75, 1e-15);
    CHECK_NEAR(probs[3], 0.4, 1e-15);
    CHECK(!gw_route_token(&r, z, NULL, none, ids, gates, probs)); /* there is no expert 4 */
}

TEST(a_margin_is_what_another_choice_has_more) {
    gw_route r = {.n = 6, .top = 2, .groups = 1, .group_limit = 1, .scale = 1};
    const double pick[6] = {0.8, 0.1, 0.5, 0.45, 0.3, 0.75};
    static const int32_t own[2] = {5, 0}, second[2] = {0, 2}, both[2] = {3, 2}, bad[2] = {0, -1};
    int64_t differ = 9;
    CHECK(gw_route_margin(&r, pick, own, &differ) == 0 && differ == 0);
    CHECK_NEAR(gw_route_margin(&r, pick, second, &differ), 0.25, 1e-15);
    CHECK_EQ(differ, 1);
    CHECK_NEAR(gw_route_margin(&r, pick, both, &differ), 0.35, 1e-15);
    CHECK_EQ(differ, 2);
    CHECK(isinf(gw_route_margin(&r, pick, bad, &differ)));
    /* Groups {0,1} {2,3} {4,5}: 0.9, 0.95, 1.05 together, one of them open. */
    r.groups = 3;
    static const int32_t first[2] = {0, 1}, middle[2] = {2, 3}, two[2] = {0, 2};
    CHECK_NEAR(gw_route_margin(&r, pick, first, &differ), 0.075, 1e-15);
    CHECK_NEAR(gw_route_margin(&r, pick, middle, &differ), 0.05, 1e-15);
    CHECK(isinf(gw_route_margin(&r, pick, two, &differ)));
    /* Two of them open, judged by their best: 0.8, 0.5, 0.75. */
    r.group_limit = 2;
    r.group_max = true;
    CHECK_NEAR(gw_route_margin(&r, pick, two, &differ), 0.25, 1e-15);
}

/* What a choice is called a near-tie by: moving scores by d makes no margin above 2 d; and a margin
 * is needed: with scores moved by less than half of it no run makes that choice. */
TEST(scores_that_moved_by_d_have_margins_up_to_2_d) {
    gw_rng_key key = gw_rng_key_named(1, "margins");
    uint64_t at = 0;
    int64_t differing = 0;
    for (int round = 0; round < 4000; round++) {
        gw_route r = {.n = 12, .top = 1 + round % 4, .groups = round % 3 ? 4 : 1, .scale = 1};
        r.group_limit = r.groups == 1 ? 1 : 2 + round % 2;
        r.group_max = round % 5 == 0;
        r.sigmoid = true;
        double z[12], moved[12], a[12], b[12], gates[4], probs[12], d = 0;
        int32_t ids[4];
        int64_t differ = 0;
        for (int i = 0; i < 12; i++) {
            z[i] = (double)gw_rng_u32(key, at++) / 2e9 - 1;
            moved[i] = z[i] + 0.3 * ((double)gw_rng_u32(key, at++) / 4e9 - 0.5);
        }
        gw_route_picks(&r, z, NULL, a);
        gw_route_picks(&r, moved, NULL, b);
        for (int i = 0; i < 12; i++) d = fmax(d, fabs(a[i] - b[i]));
        CHECK(gw_route_token(&r, moved, NULL, NULL, ids, gates, probs));
        CHECK(gw_route_margin(&r, b, ids, &differ) == 0 && differ == 0);
        double margin = gw_route_margin(&r, a, ids, &differ);
        CHECK_MSG(margin <= 2 * d, "round %d: margin %g of scores that moved by %g", round, margin,
                  d);
        CHECK((margin > 0) == (differ > 0));
        differing += differ > 0;
    }
    CHECK(differing > 1000 && differing < 3500);
}

/* ---- capacity ---- */

/* Nine tenths of the choices of a sequence go evenly to `hot` of n experts, the rest evenly to the
 * others. Returns the counted drops; *most the largest load. */
static int64_t count_drops(int n, int hot, int64_t s, double factor, bool by_score, int64_t *most) {
    static const char *const keys[] = {"experts", "capacity", "by_score", NULL};
    bench t;
    bench_init(&t);
    char dims[32];
    snprintf(dims, sizeof dims, "b1 s%d t1", (int)s);
    gw_vid in[2] = {bench_leaf(&t, GW_I32, dims), bench_leaf(&t, GW_F32, dims)};
    for (int64_t k = 0; k < s; k++) {
        int64_t e = k < s / 10 * 9 ? k % hot : hot + k % (n - hot);
        ((int32_t *)eval_data(&t.e, in[0]))[k] = (int32_t)e;
        ((float *)eval_data(&t.e, in[1]))[k] =
            (float)gw_rng_uniform(gw_rng_key_named(1, "g"), (uint64_t)k);
    }
    gw_vid kept = build(&t, "cap", in, 2, NULL, keys, (double[]){n, factor, by_score});
    gw_vid count = gw_build1(&t.b, "drops", in[0], kept);
    gw_vid load = build(&t, "loads", in, 1, NULL, keys, (double[]){n});
    bench_run(&t);
    for (int e = 0; e < n; e++) *most = GW_MAX(*most, (int64_t)eval_get(&t.e, load, e));
    for (int64_t k = 0; by_score && k < s; k++) { /* no kept one has less than a dropped one */
        if (eval_get(&t.e, kept, k) >= 0) continue;
        for (int64_t j = 0; j < s; j++)
            if (eval_get(&t.e, kept, j) == eval_get(&t.e, in[0], k))
                CHECK(eval_get(&t.e, in[1], j) >= eval_get(&t.e, in[1], k));
    }
    int64_t dropped = (int64_t)eval_get(&t.e, count, 0);
    bench_release(&t);
    return dropped;
}

/* 90 % to 26 of 256: the hot have 8.86 times the mean load, and at capacity factors 1, 1.25 and 2
 * the share 0.9 - CF * 26/256 is dropped: 79.8, 77.3 and 69.7 %. With 26 * 2560 tokens all numbers
 * of the hot experts are whole. */
TEST(drops_of_a_skewed_router_are_the_predicted_ones) {
    static const double factors[3] = {1, 1.25, 2}, share[3] = {0.798, 0.773, 0.697};
    for (int i = 0; i < 3; i++) {
        int64_t s = 26 * 2560, most = 0;
        int64_t n = count_drops(256, 26, s, factors[i], false, &most);
        CHECK(fabs((double)most / ((double)s / 256) - 8.86) < 0.005);
        CHECK_EQ(n, (int64_t)round((0.9 - factors[i] * 26 / 256) * (double)s));
        CHECK(fabs((double)n / (double)s - share[i]) < 5e-4);
    }
}

TEST(as_many_are_dropped_by_score) {
    static const double factors[3] = {1, 1.25, 2};
    for (int i = 0; i < 3; i++) {
        int64_t most = 0, n = count_drops(32, 4, 1280, factors[i], true, &most);
        CHECK_EQ(n, (int64_t)round((0.9 - factors[i] * 4 / 32) * 1280));
    }
}

TEST(capacity_keeps_the_first_and_counts_no_padding) {
    static const char *const keys[] = {"experts", "capacity", NULL};
    bench t;
    bench_init(&t);
    gw_vid in[2] = {bench_leaf(&t, GW_I32, "b2 s6 t1"), bench_leaf(&t, GW_F32, "b2 s6 t1")};
    static const int32_t ids[12] = {0, 0, 0, 0, 1, 1, 0, 0, -1, -1, -1, -1};
    memcpy(eval_data(&t.e, in[0]), ids, sizeof ids);
    gw_vid kept = build(&t, "cap", in, 2, NULL, keys, (double[]){2, 1});
    bench_run(&t);
    /* 6 tokens over 2 experts: room 3; 2 tokens: room 1. */
    static const int32_t want[12] = {0, 0, 0, -1, 1, 1, 0, -1, -1, -1, -1, -1};
    CHECK(memcmp(eval_data(&t.e, kept), want, sizeof want) == 0);
    bench_release(&t);
}

/* ---- balance ---- */

typedef struct balanced {
    double loss, z;
    double load[8];
} balanced;

/* n 8, top 2, one sequence of 16 tokens and padding; logits favour experts by `tilt`. */
static balanced balance_of(double tilt, bool even, bool samples, int padding) {
    static const char *const route_keys[] = {"top", NULL}, *const load_keys[] = {"experts",
                                                                                 "samples", NULL};
    static const char *const sum_keys[] = {"samples", NULL}, *const loss_keys[] = {"top", NULL};
    bench t;
    bench_init(&t);
    char dims[32];
    int s = 16 + padding;
    snprintf(dims, sizeof dims, "b1 s%d", s);
    gw_vid tokens = bench_leaf(&t, GW_I32, dims);
    snprintf(dims, sizeof dims, "b1 s%d n8", s);
    gw_vid z = bench_leaf(&t, GW_F64, dims), seed = bench_leaf(&t, GW_F64, ""), more[2];
    eval_set(&t.e, seed, 0, 1);
    for (int i = 0; i < s; i++) {
        ((int32_t *)eval_data(&t.e, tokens))[i] = i < 16 ? i : -1;
        for (int j = 0; j < 8; j++)
            eval_set(&t.e, z, i * 8 + j,
                     even ? ((i + j) % 8 < 2 ? 1e-9 * (1 + (i + j) % 8) : 0) : tilt * (j < 2) - j);
    }
    (void)build(&t, "route", (gw_vid[]){z, tokens}, 2, more, route_keys, (double[]){2});
    gw_vid load = build(&t, "loads", more, 1, NULL, load_keys, (double[]){8, samples});
    gw_vid p =
        build(&t, "token_sum", (gw_vid[]){more[1], tokens}, 2, NULL, sum_keys, (double[]){samples});
    gw_vid zs = build(&t, "z_sum", (gw_vid[]){z, tokens}, 2, NULL, sum_keys, (double[]){samples});
    gw_vid loss =
        build(&t, "balance", (gw_vid[]){p, load, seed}, 3, NULL, loss_keys, (double[]){2});
    gw_vid zl = build(&t, "z_loss", (gw_vid[]){zs, load, seed}, 3, NULL, loss_keys, (double[]){2});
    bench_run(&t);
    balanced r = {eval_get(&t.e, loss, 0), eval_get(&t.e, zl, 0), {0}};
    for (int e = 0; e < 8; e++) r.load[e] = eval_get(&t.e, load, e);
    bench_release(&t);
    return r;
}

TEST(a_perfectly_even_load_has_loss_one) {
    for (int samples = 0; samples < 2; samples++) {
        balanced r = balance_of(0, true, samples, 0);
        for (int e = 0; e < 8; e++) CHECK(r.load[e] == 4); /* 16 tokens, 2 each, over 8 */
        CHECK(fabs(r.loss - 1) < 1e-7);
        CHECK(fabs(r.z - pow(log(8), 2)) < 1e-6);
    }
}

/* All tokens to two certain experts: f = 1/2 each, P = 1/2 each, n (1/4 + 1/4) = n / top. */
TEST(a_load_on_two_experts_has_loss_n_over_top) {
    balanced r = balance_of(60, false, false, 0);
    CHECK(r.load[0] == 16 && r.load[1] == 16 && fabs(r.loss - 4) < 1e-6);
}

TEST(padding_is_in_no_load_and_no_mean) {
    for (int samples = 0; samples < 2; samples++) {
        balanced a = balance_of(1.5, false, samples, 0), b = balance_of(1.5, false, samples, 9);
        CHECK(a.loss == b.loss && a.z == b.z && a.loss > 1);
        CHECK(memcmp(a.load, b.load, sizeof a.load) == 0);
    }
}

TEST(a_bias_steps_by_its_rate_against_the_load) {
    bench t;
    bench_init(&t);
    gw_vid in[2] = {bench_leaf(&t, GW_F32, "n4"), bench_leaf(&t, GW_F32, "n4")};
    static const float bias[4] = {0, 0.5f, -1, 2}, load[4] = {3, 1, 2, 2};
    memcpy(eval_data(&t.e, in[0]), bias, sizeof bias);
    memcpy(eval_data(&t.e, in[1]), load, sizeof load);
    static const char *const keys[] = {"rate", NULL};
    gw_vid to = build(&t, "balance_step", in, 2, NULL, keys, (double[]){0.25});
    bench_run(&t);
    static const double want[4] = {-0.25, 0.75, -1, 2}; /* the mean is 2 */
    for (int e = 0; e < 4; e++) CHECK(eval_get(&t.e, to, e) == want[e]);
    bench_release(&t);
}

TEST(routers_that_cannot_choose_are_refused) {
    static const char *const keys[] = {"top", "groups", "group_limit", NULL};
    static const struct {
        double v[3];
        const char *says;
    } bad[] = {{{9, 1, 1}, "top is 9"},
               {{2, 3, 1}, "groups is 3"},
               {{2, 4, 5}, "group_limit is 5"},
               {{3, 4, 1}, "top is 3"}};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        bench t;
        bench_init(&t);
        gw_vid in[2] = {bench_leaf(&t, GW_F32, "b1 s2 n8"), bench_leaf(&t, GW_I32, "b1 s2")};
        (void)build(&t, "route", in, 2, NULL, keys, bad[i].v);
        CHECK(t.b.status == GW_ERR_CONFIG);
        CHECK_MSG(strstr(gw_diags_first_error(&t.dg), bad[i].says), "%s",
                  gw_diags_first_error(&t.dg));
        bench_release(&t);
    }
}
