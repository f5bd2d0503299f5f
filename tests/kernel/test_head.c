// SPDX-License-Identifier: Apache-2.0
// The head over several row tiles and column tiles, with masked rows, with and without
// accumulators.
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "run.h"

typedef struct setting {
    const char *x, *w, *labels;
    int vocabulary;
    bool accumulate;
    gw_dtype dw;
} setting;

static gw_case *build(gw_cases *cs, const setting *t) {
    gw_case *c = gw_case_begin(cs, t->w);
    gw_vid in[6] = {gw_case_value(c, t->x, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, t->w, true, GW_FILL_NORMAL, 0.5, 0),
                    gw_case_fixed(c, GW_I32, t->labels, GW_FILL_LABELS, 0, t->vocabulary),
                    gw_case_fixed(c, GW_F32, "", GW_FILL_CONST, 0.25, 0),
                    GW_NONE,
                    GW_NONE};
    if (t->accumulate) {
        in[4] = gw_case_fixed(c, t->dw, t->w, GW_FILL_NORMAL, 1, 0);
        in[5] = gw_case_fixed(c, GW_F32, "", GW_FILL_CONST, 3.5, 0);
    }
    gw_build(&c->b, "head_grad", in, 6, (gw_attr[]){{.i = t->dw}}, NULL);
    gw_build(&c->b, "head", (gw_vid[]){in[0], in[1], in[2], in[3], in[5]}, 5, NULL, NULL);
    CHECK_OK(c->b.status, cs->dg);
    return c;
}

/* Both ops by every head kernel that this processor has for the dtype. */
static void run_setting(const setting *t, gw_dtype dtype, bool all_masked) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "head_grad", dtype, &dg);
    gw_case *c = build(&cs, t);
    gw_machine m = gw_machine_this(2);
    values v;
    values_init(&v, c);
    int64_t rows = gw_type_elems(gw_type_of(&c->g, c->leaves[2].v));
    int32_t *labels = v.data[c->leaves[2].v];
    for (int64_t i = 0; all_masked && i < rows; i++) labels[i] = -100;
    values_reference(&v, 0);
    values_reference(&v, 1);
    int ran = 0;
    for (int i = 0; gw_kernel_at(i); i++)
        for (gw_oid o = 0; o < 2; o++) {
            const gw_kernel *k = gw_kernel_at(i);
            const gw_op *op = &c->g.ops.items[o];
            if (strcmp(gw_op_def(&c->g, op)->name, k->op) != 0) continue;
            if (!k->supports(&c->g, op, &m)) continue;
            check_kernel(&v, o, k, 2);
            ran++;
        }
    CHECK(ran >= 2);
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

static const setting plain = {"b2 s60 d24", "v517 d24", "b2 s60", 517, false, GW_F32};
static const setting adds = {"b2 s60 d24", "v517 d24", "b2 s60", 517, true, GW_F32};
static const setting wide = {"s40 d8", "v5003 d8", "s40", 5003, true, GW_F32};
static const setting narrow = {"b1 s50 d16", "v320 d16", "b1 s50", 320, true, GW_BF16};

TEST(head_f32) {
    run_setting(&plain, GW_F32, false);
    run_setting(&adds, GW_F32, false);
    run_setting(&wide, GW_F32, false);
}
TEST(head_bf16) {
    run_setting(&plain, GW_BF16, false);
    run_setting(&wide, GW_BF16, false);
    run_setting(&narrow, GW_BF16, false);
}
TEST(head_f16) { run_setting(&adds, GW_F16, false); }
TEST(head_with_no_label) {
    run_setting(&plain, GW_F32, true);
    run_setting(&adds, GW_F32, true);
    run_setting(&plain, GW_BF16, true);
}

/* Several row tiles: the vocabulary is so wide that a tile is 128 rows. The loss of w = 0 is log v
 * a row, and its gradient is known: e = seed (1/v - onehot), dw[c] = sum over rows of e[r, c] x[r],
 * dx = 0. */
TEST(head_over_row_tiles_has_the_loss_of_a_uniform_guess) {
    static const setting t = {"s300 d2", "v140000 d2", "s300", 140000, false, GW_F32};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "head_grad", GW_F32, &dg);
    gw_case *c = build(&cs, &t);
    values v;
    values_init(&v, c);
    const float *x = v.data[c->leaves[0].v];
    const int32_t *labels = v.data[c->leaves[2].v];
    memset(v.data[c->leaves[1].v], 0, 140000 * 2 * sizeof(float));
    void *out[GW_MAX_OUT];
    run_kernel(&v, 0, kernel_named("onednn-head-grad"), 2, RUN_APART, out);
    int valid = 0;
    double sum[2] = {0, 0}, first[2] = {0, 0};
    int32_t class = -1;
    for (int r = 0; r < 300; r++) {
        if (labels[r] < 0) continue;
        if (class < 0) class = labels[r];
        valid++;
        for (int j = 0; j < 2; j++) {
            sum[j] += (double)x[r * 2 + j];
            if (labels[r] == class) first[j] += (double)x[r * 2 + j];
        }
    }
    CHECK(valid > 150 && valid < 300);
    CHECK_NEAR(*(float *)out[2] / (float)(valid * log(140000.0)), 1, 1e-6);
    for (int j = 0; j < 2; j++) {
        double want = 0.25 * (sum[j] / 140000 - first[j]);
        CHECK_NEAR(((float *)out[1])[class * 2 + j], want, 1e-6);
        for (int r = 0; r < 300; r++) CHECK_NEAR(((float *)out[0])[r * 2 + j], 0, 1e-7);
    }
    outputs_free(&v, 0, out);
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}
