// SPDX-License-Identifier: Apache-2.0
// A save that copies while the next step computes holds the state as it was when it began, whoever
// copied what, and whatever the buffer has room for.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/rng.h"   /* gw_rng_uniform */
#include "ckpt/save.h"
#include "harness.h"

enum { TENSORS = 3 };
static const int64_t lengths[TENSORS] = {9 << 20, 100000,
                                         3}; /* nine blocks; less than one; little */

typedef struct state {
    float *x[TENSORS];
    gw_ckpt_tensor t[TENSORS];
} state;

static void fill(state *s, uint64_t seed) {
    gw_rng_key key = gw_rng_key_named(seed, "x");
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < lengths[i]; k++) s->x[i][k] = gw_rng_uniform(key, (uint64_t)k);
}

static void make(state *s) {
    static const char *const names[TENSORS] = {"large", "middle", "little"};
    for (int i = 0; i < TENSORS; i++) {
        s->x[i] = malloc((size_t)lengths[i] * sizeof(float));
        CHECK(s->x[i]);
        s->t[i] = (gw_ckpt_tensor){.name = names[i], .dtype = GW_F32, .ndim = 1, .data = s->x[i]};
        s->t[i].dims[0] = lengths[i];
        s->t[i].box = gw_box_whole(1, s->t[i].dims);
    }
}

static void drop(state *s) {
    for (int i = 0; i < TENSORS; i++) free(s->x[i]);
}

static void check_saved(int64_t step, const state *was) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    state s;
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08d", (int)step);
    make(&s);
    CHECK_OK(gw_checkpoint_read(test_tmp_path(name), &mem, &m, &dg), &dg);
    CHECK_OK(gw_checkpoint_load(m, s.t, TENSORS, NULL, &dg), &dg);
    for (int i = 0; i < TENSORS; i++)
        CHECK_MSG(memcmp(s.x[i], was->x[i], (size_t)lengths[i] * sizeof(float)) == 0, "%s",
                  s.t[i].name);
    drop(&s);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

/* The forward pass. */
static void compute(int64_t ns) {
    struct timespec t = {.tv_nsec = (long)ns};
    if (ns > 0) nanosleep(&t, NULL);
}

TEST(a_late_save_is_of_the_instant_it_began) {
    static const int64_t buffers[] = {0, 8 << 20, 13 << 20}, waits[] = {0, 1000000, 200000000};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_ckpt_keep *keep = gw_ckpt_keep_new();
    state s, was;
    int64_t step = 0;
    make(&s);
    make(&was);
    for (size_t b = 0; b < GW_COUNT(buffers); b++)
        for (size_t w = 0; w < GW_COUNT(waits); w++) {
            gw_ckpt_options o = {
                .run_dir = test_tmpdir(), .keep = keep, .buffer_bytes = buffers[b], .late = true};
            step++;
            gw_ckpt_meta m = {.step = step, .batch = step, .loss_scale = 1};
            gw_ckpt_stats stats;
            gw_ckpt_save *save;
            fill(&s, (uint64_t)step);
            fill(&was, (uint64_t)step);
            CHECK_OK(gw_checkpoint_begin(&save, &o, &m, s.t, TENSORS, &dg), &dg);
            compute(waits[w]);
            gw_checkpoint_take(save);
            gw_checkpoint_take(save); /* again does nothing */
            fill(&s, 1000);           /* the optimizer */
            CHECK_OK(gw_checkpoint_end(save, &stats, &dg), &dg);
            CHECK(stats.copy_s > 0 && stats.take_s >= 0);
            check_saved(step, &was);
        }
    drop(&s);
    drop(&was);
    gw_ckpt_keep_free(keep);
    gw_diags_release(&dg);
}

/* end takes what nobody has taken; a drop in the middle of copying leaves nothing. */
TEST(a_late_save_ends_without_a_step_between) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    fill(&s, 7);
    for (int k = 1; k <= 6; k++) {
        gw_ckpt_options o = {.run_dir = test_tmpdir(), .late = true};
        gw_ckpt_meta m = {.step = k, .batch = k, .loss_scale = 1};
        gw_ckpt_save *save;
        CHECK_OK(gw_checkpoint_begin(&save, &o, &m, s.t, TENSORS, &dg), &dg);
        if (k % 2 == 0) {
            compute(k * 1000000);
            gw_checkpoint_drop(save);
            continue;
        }
        CHECK_OK(gw_checkpoint_end(save, NULL, &dg), &dg);
        check_saved(k, &s);
    }
    drop(&s);
    gw_diags_release(&dg);
}

/* What holds the caller up is said once, whoever calls take. */
TEST(begin_and_take_are_counted_apart) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    fill(&s, 7);
    for (int late = 0; late < 2; late++) {
        gw_ckpt_options o = {.run_dir = test_tmpdir(),
                             .late = late,
                             .buffer_bytes = 8 << 20,
                             .bytes_per_s = 100 << 20}; /* 28 MB beyond the buffer */
        gw_ckpt_meta m = {.step = 1 + late, .batch = 1 + late, .loss_scale = 1};
        gw_ckpt_stats stats;
        gw_ckpt_save *save;
        int64_t from = gw_clock_ns();
        CHECK_OK(gw_checkpoint_begin(&save, &o, &m, s.t, TENSORS, &dg), &dg);
        gw_checkpoint_take(save);
        double held = (double)(gw_clock_ns() - from) * 1e-9;
        CHECK_OK(gw_checkpoint_end(save, &stats, &dg), &dg);
        test_note("late %d: %.3f + %.3f of %.3f s", late, stats.begin_s, stats.take_s, held);
        CHECK(stats.take_s > 0.1 && stats.begin_s > 0 && stats.waited_s <= stats.take_s);
        CHECK(stats.begin_s + stats.take_s <= held);
    }
    drop(&s);
    gw_diags_release(&dg);
}

/* At a megabyte a second what is beyond the buffer would take half a minute. */
TEST(a_caller_that_only_waits_is_not_held_to_the_rate) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    fill(&s, 7);
    gw_ckpt_options o = {
        .run_dir = test_tmpdir(), .late = true, .buffer_bytes = 8 << 20, .bytes_per_s = 1 << 20};
    gw_ckpt_meta m = {.step = 1, .batch = 1, .loss_scale = 1};
    gw_ckpt_save *save;
    int64_t from = gw_clock_ns();
    CHECK_OK(gw_checkpoint_begin(&save, &o, &m, s.t, TENSORS, &dg), &dg);
    CHECK_OK(gw_checkpoint_end(save, NULL, &dg), &dg);
    double seconds = (double)(gw_clock_ns() - from) * 1e-9;
    CHECK_MSG(seconds < 14, "%.1f s", seconds);
    check_saved(1, &s);
    drop(&s);
    gw_diags_release(&dg);
}
