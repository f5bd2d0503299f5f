// SPDX-License-Identifier: Apache-2.0
// Faults that users of other systems met in gradients and reductions (the reference stands above
// each), as small runs with the right outcome.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "data/loader.h" /* gw_loader */
#include "harness.h"
#include "train/verify_side.h" /* gw_verify_side, gw_verify_ones */
#include "verify_rig.h"

/* Documents of the given lengths, one a row: a row of n tokens has n - 1 labels. */
typedef struct rows {
    int32_t tokens[64];
    int64_t ends[8];
    gw_verify_data data;
} rows;

static void rows_init(rows *d, const int64_t *lengths, int n) {
    int64_t at = 0;
    memset(d, 0, sizeof *d);
    for (int i = 0; i < 64; i++) d->tokens[i] = (i * 11 + 3) % 53;
    for (int i = 0; i < n; i++) d->ends[i] = at += lengths[i];
    d->data = (gw_verify_data){d->tokens, d->ends, n, false};
}

static rig unpacked(const char *family, int ranks, int accumulate, const rows *d) {
    rig r = rig_make(family, ranks);
    rig_set(&r, "data.pack=false");
    rig_set(&r, "train.accumulate=%d", accumulate);
    r.opts.data = &d->data;
    return r;
}

/* ---- labels that are not spread evenly ---- */

/* torchtitan#1842, PR 2206: rank 0 has 1 valid label, rank 1 has 3; a mean of means is wrong, the
 * sum over 4 is right. transformers#34242: 2 ranks, one with few tokens, one with many. */
TEST(one_label_here_and_three_there) {
    rows d;
    rows_init(&d, (const int64_t[]){2, 4}, 2);
    for (int zero = 0; zero <= 3; zero++) {
        rig r = unpacked("llama", 2, 1, &d);
        rig_set(&r, "layout.zero=%d", zero);
        rig_passes(&r);
        rig_release(&r);
    }
}

/* Gradients of the first step on one rank, as one array; of one parameter where `only` is not NULL.
 */
static float *gradients(rig *r, const char *only, int64_t *n, double *loss) {
    gw_runfile rf;
    gw_setup s;
    gw_verify_side v;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    rig_runfile(r, &rf);
    CHECK_OK(gw_runfile_set_ranks(&rf, 1, &dg), &dg);
    CHECK_OK(gw_setup_init(&s, &rf, false, &dg), &dg);
    s.train.keep_gradients = true;
    CHECK_OK(gw_verify_side_reference(&v, &s, &r->opts, &dg), &dg);
    CHECK_OK(gw_verify_side_step(&v, &dg), &dg);
    *loss = v.loss_sum;
    *n = 0;
    float *all = gw_mem_zalloc(sizeof *all * 100000);
    for (int i = 0; i < s.nparams; i++) {
        char name[200];
        if (only && strcmp(s.params[i].name, only) != 0) continue;
        snprintf(name, sizeof name, "grad:%s", s.params[i].name);
        const gw_ranks_entry *x = gw_ranks_find(&v.table, name);
        CHECK(x && *n + gw_type_elems(&s.params[i].type) <= 100000);
        CHECK_OK(gw_verify_side_read(&v, x, all + *n, &dg), &dg);
        *n += gw_type_elems(&s.params[i].type);
    }
    gw_verify_side_close(&v);
    gw_setup_release(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
    return all;
}

/* torchtune PR 1875, mlx-lm PR 1413, transformers#35203: two micro-batches of 1 and 7 valid labels
 * are one batch of 8. And with a micro-batch between them in which every label is ignored. */
TEST(micro_batches_of_one_and_seven_labels_are_a_batch_of_eight) {
    static const int64_t two[] = {2, 8}, three[] = {2, 1, 8};
    for (int ignored = 0; ignored <= 1; ignored++) {
        rows d;
        int n = ignored ? 3 : 2;
        rows_init(&d, ignored ? three : two, n);
        rig apart = unpacked("llama", 1, n, &d), together = unpacked("llama", 1, 1, &d);
        rig_set(&together, "train.micro_batch=%d", n);
        int64_t na = 0, nb = 0;
        double la = 0, lb = 0;
        float *a = gradients(&apart, NULL, &na, &la), *b = gradients(&together, NULL, &nb, &lb);
        CHECK_EQ(na, nb);
        CHECK(gw_verify_norm(b, nb) > 0.1);
        CHECK(gw_verify_difference(a, b, na, 0) < 1e-6);
        CHECK_NEAR(la, lb, 1e-6 * fabs(lb));
        gw_mem_free(a);
        gw_mem_free(b);
        rig_release(&apart);
        rig_release(&together);
    }
}

/* The same over ranks: a micro-batch of which every label is ignored, and a rank that has none. */
TEST(ignored_micro_batches_and_idle_ranks_agree) {
    rows d;
    rows_init(&d, (const int64_t[]){1, 1, 1, 8, 2, 1}, 6); /* dp 2, three micro-batches */
    for (int zero = 0; zero <= 3; zero++)
        for (int bf16 = 0; bf16 <= 1; bf16++) {
            rig r = unpacked(zero % 2 ? "gpt2" : "qwen3", 2, 3, &d);
            rig_set(&r, "layout.zero=%d", zero);
            if (bf16) rig_set(&r, "precision.compute=bf16");
            rig_passes(&r);
            rig_release(&r);
        }
}

/* A whole step without a label has the gradient zero, and nothing is divided by zero. */
TEST(a_step_without_any_label_has_gradient_zero) {
    rows d;
    rows_init(&d, (const int64_t[]){1, 1}, 2);
    rig r = unpacked("llama", 2, 1, &d);
    rig_set(&r, "layout.zero=2");
    rig_passes(&r);
    rig_release(&r);
}

/* ---- degenerate sizes ---- */

/* pytorch#144045: a group of one rank and a parameter of one element; its gradient was 0. Here also
 * with more ranks than elements. */
TEST(a_parameter_of_one_element_gets_its_gradient) {
    for (int ranks = 1; ranks <= 4; ranks += 3)
        for (int zero = 0; zero <= 3; zero++) {
            rig r = rig_make("gpt2", ranks);
            rig_set(&r, "layout.zero=%d", zero);
            rig_set(&r, "model.ffn=1"); /* mlp.up.bias: [1] */
            rig_passes(&r);
            rig_release(&r);
        }
    rig one = rig_make("gpt2", 1);
    rig_set(&one, "model.ffn=1");
    int64_t n = 0;
    double loss = 0;
    float *g = gradients(&one, "layers.1.mlp.up.bias", &n, &loss);
    CHECK_EQ(n, 1);
    CHECK(fabs((double)g[0]) > 1e-7);
    gw_mem_free(g);
    rig_release(&one);
}

/* DeepSpeed#966, #1488, #5188: a tied weight, accumulation 2, stages 0 to 3 from one seed: losses
 * differed. */
TEST(tied_weights_agree_on_every_stage) {
    for (int zero = 0; zero <= 3; zero++) {
        rig r = rig_make("llama", 2); /* ties embedding and head */
        rig_set(&r, "layout.zero=%d", zero);
        rig_set(&r, "train.accumulate=2");
        r.opts.steps = 4;
        rig_passes(&r);
        rig_release(&r);
    }
}

/* FunASR PR 3472: accumulation 2; reduced after the first micro-batch instead of the last, the
 * ranks' gradients came apart. */
TEST(accumulated_gradients_are_equal_on_both_ranks) {
    static const char *const when[] = {"last", "each"};
    for (int w = 0; w < 2; w++) {
        rig r = rig_make("llama", 2);
        rig_set(&r, "train.accumulate=2");
        rig_set(&r, "layout.reduce=%s", when[w]);
        rig_passes(&r);
        CHECK(rig_check(&r, "replicas")->ok);
        rig_release(&r);
    }
}

/* DeepSpeed#7837, PR 7839: stage 0 with bf16 divided by a loss scale that was never multiplied in,
 * and never zeroed its gradients: by the second step both show. */
TEST(stage_zero_in_bf16_is_stage_one) {
    for (int zero = 0; zero <= 1; zero++) {
        rig r = rig_make("qwen2", 2);
        rig_set(&r, "layout.zero=%d", zero);
        rig_set(&r, "precision.compute=bf16");
        rig_set(&r, "train.accumulate=2");
        rig_passes(&r);
        rig_release(&r);
    }
}

/* ---- norms ---- */

typedef struct norm_job {
    rig *r;
    double target; /* <= 0: every gradient is 1 */
    double norm;
    int64_t params;
} norm_job;

static gw_status measure_norm(gw_comm *c, void *user, gw_diags *dg) {
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
    float value = (float)(j->target / sqrt((double)params));
    if (j->target > 0) GW_TRY(gw_verify_ones(&s, c, value, &norm, &params, dg));
    if (!c || gw_comm_rank(c) == 0) {
        j->norm = norm;
        j->params = params;
    }
    gw_setup_release(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void norm_is(const char *family, int zero, int ranks, int replicate, double target) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    rig r = rig_make(family, ranks);
    rig_set(&r, "layout.zero=%d", zero);
    if (zero > 0) rig_set(&r, "layout.dp_replicate=%d", replicate);
    norm_job j = {.r = &r, .target = target};
    CHECK_OK(gw_launch_threads(ranks, 30, measure_norm, &j, &dg), &dg);
    double want = target > 0 ? target : sqrt((double)j.params);
    CHECK(j.params > 5000);
    CHECK_NEAR(j.norm, want, 1e-6 * want);
    rig_release(&r);
    gw_diags_release(&dg);
}

/* twinkle PR 290: plain data parallelism, norm 0.8 on each of 2 ranks; 1.131 was reported, and
 * clipped.
 */
TEST(a_norm_of_0_8_on_two_ranks_stays_0_8) {
    for (int zero = 0; zero <= 3; zero++) norm_is("llama", zero, 2, 1, 0.8);
}

/* Megatron PR 5916, PR 6080: every gradient set to 1: the norm is the square root of the number of
 * parameters. */
TEST(all_ones_give_the_square_root_of_the_parameters) {
    for (int zero = 0; zero <= 3; zero++) {
        norm_is("gpt2", zero, 3, 1, 0);
        norm_is("qwen3", zero, 4, 2, 0);
    }
}

/* ---- beginnings ---- */

/* torchtitan#1750, #1720, #514: one seed, other layouts, other initial losses. */
TEST(one_seed_has_one_initial_loss) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int zero = 0; zero <= 3; zero += 3) {
            rig r = rig_make("mistral", ranks);
            rig_set(&r, "layout.zero=%d", zero);
            rig_set(&r, "train.global_batch=%d", 12);
            r.opts.steps = 1;
            rig_passes(&r);
            CHECK(rig_check(&r, "initial weights")->ok);
            CHECK_EQ(r.out.pass[0].tensors[0].kind, GW_VERIFY_LOSS);
            CHECK(r.out.pass[0].tensors[0].difference < 1e-6);
            rig_release(&r);
        }
}

/* ---- data ---- */

static void take_ids(gw_tokens *ds, int64_t dp, int64_t first, int steps, int64_t *seen) {
    gw_diags dg;
    gw_diags_init(&dg);
    for (int64_t rank = 0; rank < dp; rank++) {
        gw_loader_options o = {.micro_batch = 1,
                               .accumulate = 4 / dp,
                               .dp_size = dp,
                               .dp_rank = rank,
                               .first_sample = first};
        gw_loader *l = NULL;
        CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
        CHECK_EQ(gw_loader_global_batch(l), 4);
        for (int s = 0; s < steps; s++) {
            const gw_step_batch *b = NULL;
            CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
            for (int64_t k = 0; k < b->count; k++) seen[b->micro[k].sample_ids[0]]++;
        }
        gw_loader_close(l);
    }
    gw_diags_release(&dg);
}

/* torchtitan#811, PR 816: from 4 ranks to 2 two loaders' state was dropped. gpt-neox PR 308: with
 * accumulation the data was rewound. Here the state is one sample number. */
TEST(from_four_ranks_to_two_no_sample_is_lost_or_seen_twice) {
    int32_t tokens[400];
    int64_t ends[] = {150, 400}, seen[64] = {0};
    for (int i = 0; i < 400; i++) tokens[i] = i % 53;
    gw_tokens *ds = NULL;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens_options o = gw_tokens_options_default(10, 1);
    CHECK_OK(gw_tokens_open_memory(tokens, ends, 2, &o, &ds, &dg), &dg);
    take_ids(ds, 4, 0, 3, seen);
    take_ids(ds, 2, 12, 4, seen);
    take_ids(ds, 1, 28, 2, seen);
    for (int i = 0; i < 36; i++) CHECK_EQ(seen[i], 1);
    CHECK_EQ(seen[36], 0);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}
