// SPDX-License-Identifier: Apache-2.0
// Whole models against what transformers and PyTorch gave: logits, loss, every gradient, ten steps
// of AdamW. The golden values are float64 results; 1e-5 is the bound (their own
// float32 run is 4e-7 to 1e-6 away).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "golden.h"

#define BOUND 1e-5

static double norm2(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void check_logits(golden *g) {
    gw_exec *x = golden_exec(g, GW_BUILD_LOGITS, false, 1);
    (void)golden_inputs(g, x, 0, g->batch);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &g->dg), &g->dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &g->dg), &g->dg);
    int64_t n = 0;
    float *want = golden_floats(g, "logits", &n);
    double r = relative(exec_floats(g, x, gw_exec_find(x, "logits")), want, n, 0);
    CHECK_MSG(r < BOUND, "logits differ by %.3g", r);
    gw_exec_free(x);
}

static double run_loss(golden *g, gw_exec *x, int accumulate) {
    float seed = 1.0f / (float)golden_valid(g), one = 1, loss = 0;
    int64_t rows = g->batch / accumulate;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &g->dg), &g->dg);
    for (int k = 0; k < accumulate; k++) {
        (void)golden_inputs(g, x, k * rows, rows);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &g->dg), &g->dg);
    }
    CHECK(gw_exec_read(x, "loss", &loss, sizeof loss));
    return (double)loss * (double)seed;
}

static void check_gradients(golden *g, gw_exec *x) {
    for (int i = 0; i < g->nparams; i++) {
        float *want = golden_param(g, "grad", &g->params[i]);
        CHECK_MSG(want != NULL, "no golden gradient of %s", g->params[i].name);
        int64_t n = gw_type_elems(&g->params[i].type);
        double floor = 1e-3 * g->rms_grad;
        double r = relative(exec_floats(g, x, gradient_value(x, i)), want, n, floor);
        /* A gradient that is zero in exact arithmetic (key biases) is the round-off of a sum of
         * some dozen terms of the size of the rms gradient: one float32 epsilon of it is 1e-4 of
         * the floor, and ten are allowed. */
        bool zero = norm2(want, n) < 1e-2 * floor * sqrt((double)n);
        CHECK_MSG(r < (zero ? 1e-3 : BOUND), "gradient of %s differs by %.3g", g->params[i].name,
                  r);
    }
}

/* Parameters after several steps, where the gradient is above the noise floor. */
static void check_params(golden *g, gw_exec *x, const char *prefix, double bound) {
    for (int i = 0; i < g->nparams; i++) {
        float *want = golden_param(g, prefix, &g->params[i]);
        float *grad = golden_param(g, "grad", &g->params[i]);
        CHECK(want != NULL);
        int64_t n = gw_type_elems(&g->params[i].type);
        /* Adam divides by the size of the gradient: where that is at the noise floor, so is the
         * step. */
        if (grad && norm2(grad, n) < 5e-2 * g->rms_grad * sqrt((double)n)) continue;
        double r = relative(exec_floats(g, x, gw_exec_find(x, g->params[i].name)), want, n, 0);
        CHECK_MSG(r < bound, "%s.%s differs by %.3g", prefix, g->params[i].name, r);
    }
}

static void check_moments(golden *g, gw_exec *x, const char *prefix, const char *suffix) {
    for (int i = 0; i < g->nparams; i++) {
        float *want = golden_param(g, prefix, &g->params[i]);
        if (!want) return;
        char name[160];
        snprintf(name, sizeof name, "%s.%s", g->params[i].name, suffix);
        double floor = suffix[0] == 'm' ? 1e-3 * g->rms_grad : 1e-6 * g->rms_grad * g->rms_grad;
        double r = relative(exec_floats(g, x, gw_exec_find(x, name)), want,
                            gw_type_elems(&g->params[i].type), floor);
        CHECK_MSG(r < 2e-5, "%s of %s differs by %.3g", suffix, g->params[i].name, r);
    }
}

static void run_steps(golden *g, gw_exec *x, int accumulate, int steps, float lr,
                      const char *losses, const char *norms) {
    int64_t n = 0;
    float *want = golden_floats(g, losses, &n),
          *want_norm = norms ? golden_floats(g, norms, NULL) : NULL;
    CHECK_EQ(n, steps);
    for (int64_t s = 1; s <= steps; s++) {
        gw_exec_write(x, "lr", &lr, sizeof lr);
        gw_exec_write(x, "step", &s, sizeof s);
        double loss = run_loss(g, x, accumulate);
        CHECK_MSG(fabs(loss - (double)want[s - 1]) < BOUND * loss,
                  "loss of step %lld is %.8g, not %.8g", (long long)s, loss, (double)want[s - 1]);
        if (s == 1 && g->rms_grad > 0) check_gradients(g, x);
        CHECK_OK(gw_exec_run(x, GW_SEG_POST, &g->dg), &g->dg);
        float norm = 0;
        CHECK(gw_exec_read(x, "norm", &norm, sizeof norm));
        if (want_norm)
            CHECK_MSG(fabsf(norm - want_norm[s - 1]) < 2e-5f * norm,
                      "norm of step %lld is %.8g, not %.8g", (long long)s, (double)norm,
                      (double)want_norm[s - 1]);
    }
}

static void check_case(const char *name, bool reference) {
    golden g;
    golden_open(&g, name, NULL, reference);
    check_logits(&g);
    if (gw_st_find(g.want, "losses10")) {
        gw_exec *x = golden_exec(&g, GW_BUILD_LOSS, true, 1);
        run_steps(&g, x, 1, 10, 1e-3f, "losses10", "grad_norms10");
        check_params(&g, x, "param10",
                     10 * BOUND); /* elements with a gradient at the noise floor move by lr */
        check_moments(&g, x, "exp_avg10", "m");
        check_moments(&g, x, "exp_avg_sq10", "v");
        gw_exec_free(x);
    }
    golden_close(&g);
}

#define CASE(name)                                                                                 \
    TEST(golden_##name) { check_case(#name, false); }                                              \
    TEST(golden_##name##_reference) { check_case(#name, true); }

CASE(gpt2)
CASE(gpt2_noprefix)
CASE(llama)
CASE(llama_sharded)
CASE(llama_tied)
CASE(llama31_rope)
CASE(llama31_rope_v5)
CASE(llama_bias)
CASE(qwen2)
CASE(qwen3)
CASE(mistral)
CASE(smollm2)
CASE(packed_llama)
CASE(packed_mistral)
CASE(mixtral)
CASE(qwen3_moe)
CASE(deepseek_v3)
CASE(deepseek_v2)
CASE(deepseek_v2_lite)

TEST(golden_sgd_momentum) {
    golden g;
    golden_open(&g, "llama_sgd", "llama", false);
    golden inputs;
    golden_open(&inputs, "llama", NULL, false);
    gw_st_set *want = g.want;
    inputs.opts.optim = (gw_optim_opts){.kind = GW_OPTIM_SGD, .momentum = 0.9};
    gw_exec *x = golden_exec(&inputs, GW_BUILD_LOSS, true, 1);
    gw_st_set *own = inputs.want;
    float lr = 0.1f;
    float *losses = golden_floats(&g, "losses5", NULL);
    for (int64_t s = 1; s <= 5; s++) {
        gw_exec_write(x, "lr", &lr, sizeof lr);
        gw_exec_write(x, "step", &s, sizeof s);
        double loss = run_loss(&inputs, x, 1);
        CHECK_MSG(fabs(loss - (double)losses[s - 1]) < BOUND * loss, "step %lld", (long long)s);
        CHECK_OK(gw_exec_run(x, GW_SEG_POST, &inputs.dg), &inputs.dg);
    }
    inputs.want = want;
    check_params(&inputs, x, "param5", BOUND);
    check_moments(&inputs, x, "momentum5", "m");
    inputs.want = own;
    gw_exec_free(x);
    golden_close(&inputs);
    golden_close(&g);
}

TEST(golden_muon) {
    golden g, inputs;
    golden_open(&g, "llama_muon", "llama", false);
    golden_open(&inputs, "llama", NULL, false);
    inputs.opts.optim = (gw_optim_opts){.kind = GW_OPTIM_MUON,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .decay = 0.1,
                                        .muon_momentum = 0.95,
                                        .muon_lr_ratio = 1,
                                        .muon_ns_steps = 5};
    gw_exec *x = golden_exec(&inputs, GW_BUILD_LOSS, true, 1);
    float *losses = golden_floats(&g, "losses3", NULL), lr = 1e-3f, muon_lr = 2e-3f;
    for (int64_t s = 1; s <= 3; s++) {
        gw_exec_write(x, "lr", &lr, sizeof lr);
        gw_exec_write(x, "muon_lr", &muon_lr, sizeof muon_lr);
        gw_exec_write(x, "step", &s, sizeof s);
        double loss = run_loss(&inputs, x, 1);
        CHECK_MSG(fabs(loss - (double)losses[s - 1]) < BOUND * loss, "step %lld: %.8g not %.8g",
                  (long long)s, loss, (double)losses[s - 1]);
        CHECK_OK(gw_exec_run(x, GW_SEG_POST, &inputs.dg), &inputs.dg);
    }
    gw_st_set *own = inputs.want;
    inputs.want = g.want;
    check_params(&inputs, x, "param3", BOUND);
    inputs.want = own;
    gw_exec_free(x);
    golden_close(&inputs);
    golden_close(&g);
}
