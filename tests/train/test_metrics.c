// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what is written reads back, and a resumed run has each step once.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"  /* gw_file_read */
#include "base/str.h" /* gw_str */
#include "harness.h"
#include "train/metrics.h"

static void add(gw_metrics *m, int64_t step, double loss) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_metrics_step s = {.step = step,
                         .loss = loss,
                         .lr = 1e-3,
                         .grad_norm = 2,
                         .tokens = step * 10,
                         .tokens_per_s = 100,
                         .step_s = 0.1,
                         .mfu = 0.5};
    CHECK_OK(gw_metrics_add(m, &s, &dg), &dg);
    gw_diags_release(&dg);
}

static void append(const char *path, const char *text) {
    FILE *f = fopen(path, "a");
    CHECK(f);
    fputs(text, f);
    fclose(f);
}

TEST(lines_after_the_resumed_step_are_removed) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_metrics *m = NULL;
    const char *dir = test_tmpdir();
    CHECK_OK(gw_metrics_open(dir, -1, &m, &dg), &dg);
    for (int64_t s = 1; s <= 6; s++) {
        add(m, s, 5.0 / (double)s);
        if (s % 2 == 0)
            CHECK_OK(gw_metrics_valid(m, s, 4, s == 4 ? 1.25 : (double)NAN, (double)NAN, &dg), &dg);
    }
    CHECK_OK(gw_metrics_close(m, &dg), &dg);
    append(test_tmp_path("metrics.jsonl"), "{\"step\": 7, \"lo"); /* a crash */
    CHECK_OK(gw_metrics_open(dir, 4, &m, &dg), &dg);
    add(m, 5, 9);
    CHECK_OK(gw_metrics_close(m, &dg), &dg);
    gw_history h;
    CHECK_OK(gw_metrics_read(test_tmp_path("metrics.jsonl"), &mem, &h, &dg), &dg);
    CHECK_EQ(h.nsteps, 5);
    CHECK_EQ(h.nvalid, 2);
    for (int64_t i = 0; i < 5; i++) CHECK_EQ(h.steps[i].step, i + 1);
    CHECK_NEAR(h.steps[2].loss, 5.0 / 3, 1e-8); /* nine digits are kept */
    CHECK_NEAR(h.steps[4].loss, 9, 0);
    CHECK(isnan(h.valid[0].bpb));
    CHECK_NEAR(h.valid[1].bpb, 1.25, 0);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(numbers_that_are_not_finite_are_null) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_str text = {0};
    gw_metrics *m = NULL;
    CHECK_OK(gw_metrics_open(test_tmpdir(), -1, &m, &dg), &dg);
    add(m, 1, (double)NAN);
    CHECK_OK(gw_metrics_close(m, &dg), &dg);
    CHECK_OK(gw_file_read(test_tmp_path("metrics.jsonl"), 0, &text, &dg), &dg);
    CHECK(strstr(gw_str_c(&text), "\"loss\": null"));
    CHECK(!strstr(gw_str_c(&text), "nan"));
    gw_str_release(&text);
    gw_diags_release(&dg);
}
