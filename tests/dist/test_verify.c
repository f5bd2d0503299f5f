// SPDX-License-Identifier: Apache-2.0
// verify itself: faults put into one layout are found, and called by their name.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"    /* gw_str */
#include "data/loader.h" /* gw_step_batch */
#include "harness.h"
#include "ir/opdef.h" /* gw_op_def */
#include "verify_rig.h"

#define TARGET "layers.0.attn.q.weight"

static void check_why(const rig *r, gw_verify_kind kind, const char *name, const char *text) {
    const gw_verify_tensor *t = rig_wrong(r, kind, name);
    if (!t) gw_verify_print(&r->out, 0, stdout);
    CHECK_MSG(t != NULL, "%s agrees", name ? name : "everything");
    CHECK_MSG(strstr(t->why, text) != NULL, "'%s' is explained by '%s', not by '%s'", t->name,
              t->why, text);
}

static int64_t wrong(const rig *r, gw_verify_kind kind) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->out.pass[0].ntensors; i++)
        n += r->out.pass[0].tensors[i].kind == kind && !r->out.pass[0].tensors[i].agrees;
    return n;
}

/* ---- a reduction that does not happen ---- */

static void drop_target(gw_graph *g, int64_t rank, void *user) {
    (void)rank;
    (void)user;
    rig_drop_reduction(g, "grad:" TARGET);
}

static rig one_by_one(int ranks, int zero, const gw_verify_hooks *hooks) {
    rig r = rig_make("llama", ranks);
    rig_set(&r, "layout.zero=%d", zero);
    rig_set(&r, "layout.first_bucket=0");
    rig_set(&r, "layout.bucket=0");
    rig_set(&r, "optimizer.clip_norm=0"); /* what else would bend a factor in the moments */
    rig_set(&r, "optimizer.weight_decay=0");
    r.opts.hooks = hooks;
    return r;
}

TEST(a_missing_all_reduce_is_named) {
    gw_verify_hooks h = {.mutate = drop_target};
    rig r = one_by_one(3, 0, &h);
    rig_verify(&r);
    CHECK(!r.out.ok);
    check_why(&r, GW_VERIFY_GRADIENT, TARGET, "missing reduction: only rank 0's contribution");
    const gw_verify_check *c = rig_check(&r, "replicas");
    CHECK(!c->ok && strstr(c->text, TARGET) && strstr(c->text, "ranks 0 and 1"));
    CHECK(rig_check(&r, "initial weights")->ok && rig_check(&r, "all-ones")->ok);
    rig_release(&r);
    r = one_by_one(2, 0, &h);
    rig_verify(&r);
    check_why(&r, GW_VERIFY_GRADIENT, TARGET, "missing reduction: equals rank 0's own");
    rig_release(&r);
}

TEST(a_missing_reduce_scatter_is_named) {
    for (int zero = 1; zero <= 3; zero++) {
        gw_verify_hooks h = {.mutate = drop_target};
        rig r = one_by_one(2, zero, &h);
        rig_verify(&r);
        CHECK(!r.out.ok);
        check_why(&r, GW_VERIFY_GRADIENT, TARGET, "the part on each rank is its own contribution");
        rig_release(&r);
    }
}

/* ---- wires that round ---- */

static const gw_verify_tensor *of_pass(const rig *r, int pass, gw_verify_kind kind,
                                       const char *name) {
    for (int64_t i = 0; i < r->out.pass[pass].ntensors; i++) {
        const gw_verify_tensor *t = &r->out.pass[pass].tensors[i];
        if (t->kind == kind && strcmp(t->name, name) == 0) return t;
    }
    return NULL;
}

/* A tensor of zeros differs by 1: no bound that calls a tensor right may be near that. */
TEST(a_tensor_that_is_judged_could_not_be_zero) {
    static const char *const wires[] = {"bf16", "int8", "int4"};
    for (int w = 0; w < 3; w++) {
        int64_t coarse = 0;
        rig r = rig_make("llama", 2);
        rig_set(&r, "layout.zero=2");
        rig_set(&r, "layout.gradient_wire=%s", wires[w]);
        rig_passes(&r);
        const gw_verify_pass *p = &r.out.pass[1];
        for (int64_t i = 0; i < p->ntensors; i++) {
            const gw_verify_tensor *t = &p->tensors[i];
            coarse += t->coarse;
            CHECK_MSG(t->coarse || t->bound < 0.5, "%s: %s %g", wires[w], t->name, t->bound);
            CHECK_MSG(!t->coarse || t->bound >= 0.5, "%s: %s %g", wires[w], t->name, t->bound);
        }
        CHECK_EQ(coarse, p->coarse);
        CHECK_MSG(w == 2 || coarse == 0, "%s: %lld not judged", wires[w], (long long)coarse);
        CHECK_MSG(p->coarse < p->ntensors, "%s: nothing is judged", wires[w]);
        rig_release(&r);
    }
}

TEST(a_missing_reduction_shows_over_int8_too) {
    gw_verify_hooks h = {.mutate = drop_target};
    rig r = one_by_one(2, 1, &h);
    rig_set(&r, "layout.gradient_wire=int8");
    rig_verify(&r);
    CHECK_EQ(r.out.npasses, 2);
    const gw_verify_tensor *t = of_pass(&r, 1, GW_VERIFY_GRADIENT, TARGET);
    CHECK(t && !t->agrees && !t->coarse);
    static const char name[] = "initial weights, fp32, gradients as int8"; /* not cut short */
    CHECK_STR(rig_check(&r, name)->name, name);
    rig_release(&r);
}

/* ---- wrong constants ---- */

static void reduce_twice(gw_graph *g, int64_t rank, void *user) {
    (void)rank;
    (void)user;
    rig_reduce_twice(g, "grad:" TARGET);
}

TEST(a_reduction_done_twice_is_a_factor_of_dp) {
    gw_verify_hooks h = {.mutate = reduce_twice};
    rig r = one_by_one(3, 0, &h);
    rig_verify(&r);
    check_why(&r, GW_VERIFY_GRADIENT, TARGET, "x dp (3)");
    CHECK_NEAR(rig_wrong(&r, GW_VERIFY_GRADIENT, TARGET)->factor, 3, 1e-4);
    CHECK_EQ(rig_wrong(&r, GW_VERIFY_GRADIENT, TARGET)->step, 1);
    check_why(&r, GW_VERIFY_MOMENT, TARGET ".m", "x dp (3)");
    CHECK(rig_check(&r, "replicas")->ok);
    rig_release(&r);
}

/* Divisors: what the seed of backward is multiplied with. */
static double times(double seed, const void *batch, int64_t rank, void *user) {
    (void)batch;
    (void)rank;
    return seed * *(const double *)user;
}

static void factor_is_named(double factor, int accumulate, const char *text) {
    gw_verify_hooks h = {.seed = times, .user = &factor};
    rig r = rig_make("qwen2", 2);
    rig_set(&r, "train.accumulate=%d", accumulate);
    rig_set(&r, "optimizer.clip_norm=0");
    rig_set(&r, "optimizer.weight_decay=0");
    r.opts.hooks = &h;
    r.opts.steps = 1;
    rig_verify(&r);
    CHECK(!r.out.ok);
    check_why(&r, GW_VERIFY_NORM, "norm", text);
    for (int64_t i = 0; i < r.out.pass[0].ntensors; i++) {
        const gw_verify_tensor *t = &r.out.pass[0].tensors[i];
        if (t->kind == GW_VERIFY_LOSS || t->agrees) continue;
        CHECK_MSG(strstr(t->why, text), "%s: '%s'", t->name, t->why);
        if (t->kind == GW_VERIFY_GRADIENT) CHECK_NEAR(t->factor, factor, 1e-3 * factor);
    }
    CHECK(wrong(&r, GW_VERIFY_GRADIENT) > 20 && wrong(&r, GW_VERIFY_PARAMETER) > 20);
    rig_release(&r);
}

TEST(wrong_divisors_are_named) {
    factor_is_named(2, 3, "x dp (2)");
    factor_is_named(0.5, 3, "/ dp (2)");
    factor_is_named(3, 3, "x micro-batches (3)");
    factor_is_named(1.0 / 3, 3, "/ micro-batches (3)");
    factor_is_named(6, 3, "x dp x micro-batches (6)");
    factor_is_named(2, 2, "x dp (2) or x micro-batches (2)");
    factor_is_named(0, 2, "zero");
}

/* ---- ranks that do something else ---- */

static double silent_rank(double seed, const void *batch, int64_t rank, void *user) {
    (void)batch;
    return rank == *(const int64_t *)user ? 0 : seed;
}

TEST(a_rank_that_sits_out_is_named) {
    int64_t who = 1;
    for (int zero = 0; zero <= 2; zero += 2) {
        gw_verify_hooks h = {.seed = silent_rank, .user = &who};
        rig r = rig_make("llama", 3);
        rig_set(&r, "layout.zero=%d", zero);
        r.opts.hooks = &h;
        r.opts.steps = 1;
        rig_verify(&r);
        check_why(&r, GW_VERIFY_GRADIENT, TARGET, "rank 1's contribution is missing");
        CHECK(rig_check(&r, "replicas")->ok);
        rig_release(&r);
    }
}

/* Each rank divides by its own labels, and the mean is taken over ranks. */
static double mean_of_means(double seed, const void *batch, int64_t rank, void *user) {
    const gw_step_batch *b = batch;
    int64_t mine = 0;
    (void)seed;
    (void)rank;
    for (int64_t k = 0; k < b->count; k++) mine += b->micro[k].valid;
    return mine > 0 ? 1.0 / (double)mine / *(const double *)user : 0;
}

/* torchtitan#1842: rank 0 has 1 valid label, rank 1 has 3. A mean of means gives the first a weight
 * of 4 / 2, the other 4 / 6. */
TEST(a_mean_of_means_is_named) {
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
    static const int64_t ends[] = {2, 6};
    gw_verify_data data = {tokens, ends, 2, false};
    double ranks = 2;
    gw_verify_hooks h = {.seed = mean_of_means, .user = &ranks};
    rig r = rig_make("llama", 2);
    rig_set(&r, "data.pack=false");
    r.opts.data = &data;
    r.opts.hooks = &h;
    rig_verify(&r);
    CHECK(!r.out.ok);
    check_why(&r, GW_VERIFY_GRADIENT, "layers.0.mlp.up.weight",
              "contributions by rank: x 2, x 0.667");
    r.opts.hooks = NULL; /* and without the fault */
    rig_passes(&r);
    rig_release(&r);
}

/* ---- one rank's weights ---- */

static void skip_update(gw_graph *g, int64_t rank, void *user) {
    (void)user;
    if (rank != 1) return;
    for (int64_t i = 0; i < g->ops.count; i++) {
        gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_OPTIMIZER)) continue;
        if (strcmp(gw_graph_str(g, g->values.items[gw_op_in(g, o, 0)].name), TARGET) == 0)
            o->code = (uint16_t)gw_optable_find(g->table, "slice"); /* a view: nothing is run */
    }
}

/* The first step's gradients are right, rank 0's weights too; only the copies differ. */
TEST(a_copy_that_drifts_is_found) {
    gw_verify_hooks h = {.mutate = skip_update};
    rig r = rig_make("llama", 2);
    r.opts.hooks = &h;
    r.opts.steps = 1;
    rig_verify(&r);
    CHECK(r.out.pass[0].ok && !r.out.ok);
    const gw_verify_check *c = rig_check(&r, "replicas");
    CHECK(!c->ok);
    CHECK_MSG(strstr(c->text, TARGET) && strstr(c->text, "after step 1"), "%s", c->text);
    rig_release(&r);
}

/* ---- what is told ---- */

TEST(json_has_what_is_promised) {
    gw_verify_hooks h = {.mutate = drop_target};
    rig r = one_by_one(2, 0, &h);
    rig_set(&r, "precision.compute=bf16");
    rig_verify(&r);
    json_t *j = gw_verify_json(&r.out);
    CHECK(json_is_false(json_object_get(j, "pass")));
    CHECK(json_real_value(json_object_get(j, "max_relative_difference")) > 0.1);
    json_t *t = json_array_get(json_object_get(j, "tensors"), 0); /* worst first */
    CHECK(json_is_false(json_object_get(t, "agrees")));
    CHECK(json_is_string(json_object_get(t, "name")) && json_is_string(json_object_get(t, "kind")));
    CHECK(json_is_real(json_object_get(t, "relative_difference")));
    CHECK_EQ(json_array_size(json_object_get(j, "passes")), 2);
    CHECK(json_array_size(json_object_get(j, "checks")) >= 5);
    json_decref(j);
    rig_release(&r);
}

/* The run file comes back as it was. */
TEST(the_run_file_is_left_as_it_was) {
    gw_runfile rf;
    gw_str before = {0}, after = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    rig r = rig_make("llama", 1);
    rig_set(&r, "precision.compute=bf16");
    rig_runfile(&r, &rf);
    CHECK_OK(gw_runfile_set_ranks(&rf, 1, &dg), &dg);
    gw_runfile_yaml(&rf, false, &before);
    gw_verify_opts o = {.steps = 1};
    CHECK_OK(gw_verify_run(&rf, &o, NULL, &r.out, &dg), &dg);
    gw_runfile_yaml(&rf, false, &after);
    CHECK_STR(gw_str_c(&after), gw_str_c(&before));
    gw_str_release(&before);
    gw_str_release(&after);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
    rig_release(&r);
}
