// SPDX-License-Identifier: Apache-2.0
// Faults of checkpoints that users of other systems met, as laws of ours.
//
//   reported as
//       held by
//
//   vllm speculators#739, allennlp#2129
//       train: torn_and_damaged_checkpoints_are_passed_over; test_crash.c
//   marin#5386
//       keep_last_counts_complete_ones_and_removes_only_ours
//   Megatron-Bridge#5117
//       an_abandoned_save_never_becomes_the_next
//   pytorch#144657
//       a_save_is_of_the_instant_it_began
//   nvidia-resiliency-ext#376
//       a_save_is_of_the_instant_it_began
//   orbax#394, #710
//       a_copied_run_is_a_run; replaced_folders_go_with_their_step
//   accelerate#3938, KempnerForge#57, Automodel#533
//       train: a_run_of_changing_ranks_is_the_run_that_never_changed
//   Megatron-LM#6858, #6920
//       train: test_reshard.c; resume_is_bitwise_muon
//   DeepSpeed#6691, #5430
//       train: any_layout_goes_on_from_any_other
//   Megatron-LM#6024
//       uneven_parts_stand_where_they_belong
//   pytorch#125740
//       a_rank_of_the_same_layout_reads_one_file
//   pytorch#147758, Megatron-LM#5553
//       a_million_chunks_are_planned_in_time_near_linear
//   tunix#2137, orbax#648
//       a_load_reads_the_blocks_it_needs
//   pytorch#126952, safetensors#220
//       a_flipped_byte_is_named_with_file_and_tensor
//   pytorch#120356
//       test_replicas.c; train: test_astray.c
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"     /* gw_file_read */
#include "base/log.h"    /* gw_log_set_level */
#include "base/rng.h"    /* gw_rng_u64 */
#include "ckpt/plan.h"   /* gw_ckpt_held */
#include "ckpt/save.h"   /* gw_checkpoint_begin */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"

enum { ELEMS = 3 << 20, BLOCK = 4 << 20 };

static gw_ckpt_meta meta_at(int64_t step) {
    return (gw_ckpt_meta){.step = step, .batch = step, .next_sample = step * 8, .loss_scale = 1};
}

static gw_ckpt_tensor vector(float *data, int64_t n) {
    int64_t dims[1] = {n};
    gw_ckpt_tensor t = {.name = "w",
                        .dtype = GW_F32,
                        .ndim = 1,
                        .dims = {n},
                        .box = gw_box_whole(1, dims),
                        .data = data};
    return t;
}

static void fill(float *w, int64_t n, float first) {
    for (int64_t i = 0; i < n; i++) w[i] = first + (float)(i % 4096);
}

static const char *folder(const char *dir, int64_t step) {
    char name[300];
    snprintf(name, sizeof name, "%s/checkpoints/step-%08d", dir, (int)step);
    return test_tmp_path(name);
}

static float *load(const char *dir, int64_t step, int64_t n, gw_ckpt_meta *meta, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    float *w = gw_mem_zalloc((size_t)n * sizeof *w);
    gw_ckpt_tensor t = vector(w, n);
    CHECK_OK(gw_checkpoint_read(folder(dir, step), &mem, &m, dg), dg);
    CHECK_OK(gw_checkpoint_load(m, &t, 1, NULL, dg), dg);
    if (meta) {
        *meta = m->meta;
        meta->model = NULL;
    }
    gw_arena_release(&mem);
    return w;
}

/* The step after a save's beginning changes weights and counters at once; what is saved is what
 * was, whether the buffer has room for all or the copy waits for the writer. */
TEST(a_save_is_of_the_instant_it_began) {
    gw_diags dg;
    gw_diags_init(&dg);
    float *w = gw_mem_zalloc(ELEMS * sizeof *w);
    const int64_t buffers[] = {0, 2 * BLOCK};
    for (int64_t step = 1; step <= 2; step++) {
        gw_ckpt_save *s = NULL;
        gw_ckpt_tensor t = vector(w, ELEMS);
        gw_ckpt_options o = {.run_dir = test_tmp_path("run"), .buffer_bytes = buffers[step - 1]};
        gw_ckpt_meta m = meta_at(step), got;
        fill(w, ELEMS, (float)step);
        CHECK_OK(gw_checkpoint_begin(&s, &o, &m, &t, 1, &dg), &dg);
        fill(w, ELEMS, 1e6f);
        m.next_sample = 99;
        m.batch = 77;
        CHECK_OK(gw_checkpoint_end(s, NULL, &dg), &dg);
        float *is = load("run", step, ELEMS, &got, &dg);
        fill(w, ELEMS, (float)step);
        CHECK(memcmp(is, w, ELEMS * sizeof *w) == 0);
        CHECK_EQ(got.next_sample, step * 8);
        CHECK_EQ(got.batch, step);
        gw_mem_free(is);
    }
    gw_mem_free(w);
    gw_diags_release(&dg);
}

/* A save that is given up commits nothing, then or later: the next save's commit is its own. */
TEST(an_abandoned_save_never_becomes_the_next) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    float w[4096];
    gw_ckpt_tensor t = vector(w, 4096);
    gw_ckpt_options o = {.run_dir = test_tmp_path("run")};
    for (int64_t step = 3; step <= 4; step++) {
        gw_ckpt_save *s = NULL;
        gw_ckpt_meta m = meta_at(step);
        fill(w, 4096, (float)step);
        CHECK_OK(gw_checkpoint_begin(&s, &o, &m, &t, 1, &dg), &dg);
        if (step == 3) {
            gw_checkpoint_drop(s);
            continue;
        }
        CHECK_OK(gw_checkpoint_end(s, NULL, &dg), &dg);
    }
    gw_arena mem = {0};
    gw_ckpt_list list;
    CHECK_OK(gw_checkpoint_list(o.run_dir, &mem, &list, &dg), &dg);
    for (int i = 0; i < list.n; i++)
        CHECK((list.items[i].state == GW_CKPT_COMPLETE) == (list.items[i].step == 4));
    float *is = load("run", 4, 4096, NULL, &dg);
    CHECK(memcmp(is, w, sizeof w) == 0);
    gw_mem_free(is);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

static void copy_file(const char *from, const char *to) {
    gw_str bytes = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(from, 0, &bytes, &dg), &dg);
    FILE *f = fopen(to, "w");
    CHECK(f && fwrite(bytes.data, 1, bytes.len, f) == bytes.len && fclose(f) == 0);
    gw_str_release(&bytes);
    gw_diags_release(&dg);
}

/* Copied elsewhere by tools that keep neither times nor modes, a checkpoint is complete, and stays.
 */
TEST(a_copied_run_is_a_run) {
    gw_diags dg;
    gw_diags_init(&dg);
    float w[64];
    gw_ckpt_tensor t = vector(w, 64);
    fill(w, 64, 5);
    for (int64_t step = 1; step <= 2; step++) {
        gw_ckpt_meta m = meta_at(step);
        CHECK_OK(gw_checkpoint_save(test_tmp_path("from"), &m, &t, 1, &dg), &dg);
        char from[600], to[600];
        snprintf(to, sizeof to, "%s", folder("to", step));
        CHECK_OK(gw_dir_make(to, &dg), &dg);
        snprintf(from, sizeof from, "%s", folder("from", step));
        static const char *const files[] = {"rank-00000.safetensors", "manifest.json"};
        for (int i = 0; i < 2; i++) {
            char a[700], b[700];
            snprintf(a, sizeof a, "%s/%s", from, files[i]);
            snprintf(b, sizeof b, "%s/%s", to, files[i]);
            copy_file(a, b);
        }
    }
    CHECK_OK(gw_checkpoint_prune(test_tmp_path("to"), 2, 0, -1, &dg), &dg);
    for (int64_t step = 1; step <= 2; step++) {
        float *is = load("to", step, 64, NULL, &dg);
        CHECK(memcmp(is, w, sizeof w) == 0);
        gw_mem_free(is);
    }
    gw_diags_release(&dg);
}

/* ---- several ranks ---- */

typedef struct job {
    gw_mesh mesh;
    gw_type type;
    int64_t elems;
    const char *dir;
    bool files_are_counted;
} job;

/* This rank's part of element i = i + 0.5, in the order of its buffer. */
static int64_t hold(const job *j, int64_t rank, float **out) {
    gw_arena mem = {0};
    gw_piece *p;
    int n = gw_ckpt_held(&j->type, &j->mesh, rank, &mem, &p);
    int64_t total = 0, at = 0;
    for (int i = 0; i < n; i++) total += p[i].count;
    *out = gw_mem_zalloc((size_t)(total + 1) * sizeof **out);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < p[i].count; k++)
            (*out)[at++] = (float)(p[i].box.start[0] + p[i].first + k) + 0.5f;
    gw_arena_release(&mem);
    return total;
}

static gw_status save_and_load(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_arena mem = {0};
    int64_t rank = c ? gw_comm_rank(c) : 0;
    float *mine, *got;
    gw_ckpt_save *s = NULL;
    gw_ckpt_manifest *m = NULL;
    gw_ckpt_loaded loaded;
    gw_ckpt_options o = {.run_dir = j->dir, .comm = c};
    gw_ckpt_meta meta = meta_at(1);
    int64_t n = hold(j, rank, &mine);
    gw_ckpt_tensor t = vector(mine, j->elems);
    t.type = &j->type;
    t.mesh = &j->mesh;
    t.rank = rank;
    GW_TRY(gw_checkpoint_begin(&s, &o, &meta, &t, 1, dg));
    GW_TRY(gw_checkpoint_end(s, NULL, dg));
    GW_TRY(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-00000001", j->dir), &mem,
                              &m, dg));
    got = gw_mem_zalloc((size_t)(n + 1) * sizeof *got);
    t.data = got;
    GW_TRY(gw_checkpoint_load(m, &t, 1, &loaded, dg));
    CHECK(memcmp(mine, got, (size_t)n * sizeof *got) == 0);
    CHECK_EQ(loaded.bytes_taken, n * 4);
    if (j->files_are_counted) CHECK_EQ(loaded.files, n > 0 ? 1 : 0);
    gw_mem_free(mine);
    gw_mem_free(got);
    gw_arena_release(&mem);
    return GW_OK;
}

static void on_four(int64_t elems, const char *dir, bool counted) {
    gw_diags dg;
    gw_diags_init(&dg);
    job j = {.elems = elems, .dir = dir, .files_are_counted = counted};
    char dims[32];
    uint32_t dp = gw_mesh_add(&j.mesh, "dp", 4);
    snprintf(dims, sizeof dims, "d%d", (int)elems);
    j.type = gw_type_make(GW_F32, dims);
    j.type.flat = 1;
    j.type.flat_axes = dp;
    CHECK_OK(gw_launch_threads(4, 20, save_and_load, &j, &dg), &dg);
    gw_diags_release(&dg);
}

/* Who loads what it saved has it all in the file it wrote. */
TEST(a_rank_of_the_same_layout_reads_one_file) { on_four(1 << 20, test_tmp_path("run"), true); }

/* Shards of a flattened tensor that divide by nothing, and fewer elements than ranks. */
TEST(uneven_parts_stand_where_they_belong) {
    static const int sizes[] = {1, 2, 3, 5, 7, 1025, 4099};
    char name[16], dir[300];
    for (size_t i = 0; i < GW_COUNT(sizes); i++) {
        snprintf(name, sizeof name, "run-%d", sizes[i]);
        snprintf(dir, sizeof dir, "%s", test_tmp_path(name));
        on_four(sizes[i], dir, true);
    }
}

/* A corner of a tensor of many blocks costs the blocks it lies in. */
TEST(a_load_reads_the_blocks_it_needs) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    float *w = gw_mem_zalloc(4 * ELEMS * sizeof *w), few[1000];
    gw_ckpt_tensor t = vector(w, 4 * ELEMS);
    gw_ckpt_meta meta = meta_at(1);
    gw_ckpt_manifest *m = NULL;
    gw_ckpt_loaded loaded;
    fill(w, 4 * ELEMS, 1);
    CHECK_OK(gw_checkpoint_save(test_tmp_path("run"), &meta, &t, 1, &dg), &dg);
    CHECK_OK(gw_checkpoint_read(folder("run", 1), &mem, &m, &dg), &dg);
    t.data = few;
    t.box.start[0] = 3 * ELEMS + 17;
    t.box.size[0] = 1000;
    CHECK_OK(gw_checkpoint_load(m, &t, 1, &loaded, &dg), &dg);
    CHECK(memcmp(few, w + 3 * ELEMS + 17, sizeof few) == 0);
    CHECK_EQ(loaded.bytes_taken, 4000);
    CHECK(loaded.bytes_read <= 2 * BLOCK); /* it may lie across an edge */
    gw_mem_free(w);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

static gw_status save_as(const char *dir, int64_t step, int64_t commits, float first,
                         gw_diags *dg) {
    float w[4096];
    gw_ckpt_save *s = NULL;
    gw_ckpt_stats stats;
    gw_ckpt_tensor t = vector(w, 4096);
    gw_ckpt_meta m = meta_at(step);
    gw_ckpt_options o = {.run_dir = test_tmp_path(dir), .commits = commits, .direct = true};
    fill(w, 4096, first);
    GW_TRY(gw_checkpoint_begin(&s, &o, &m, &t, 1, dg));
    GW_TRY(gw_checkpoint_end(s, &stats, dg));
    CHECK_EQ(stats.number, commits);
    return GW_OK;
}

/* Two runs in one place, which nothing locks: what one has committed since the other looked is not
 * moved aside, whatever its step; nor when both save the same step at one time. */
TEST(a_commit_of_another_run_is_not_touched) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    float w[4096];
    gw_ckpt_save *late = NULL;
    gw_ckpt_tensor t = vector(w, 4096);
    gw_ckpt_meta m = meta_at(8), got;
    gw_ckpt_options o = {.run_dir = test_tmp_path("run"), .commits = 3};
    CHECK_OK(save_as("run", 2, 1, 100, &dg), &dg);
    for (int64_t step = 2; step <= 3; step++) {
        gw_diags_clear(&dg);
        CHECK_FAILS(save_as("run", step, 1, 900, &dg), &dg, "is a commit of another run");
    }
    gw_diags_clear(&dg);
    CHECK(!gw_path_exists(test_tmp_path("run/checkpoints/step-00000002.replaced-1")));
    CHECK(!gw_path_exists(folder("run", 3)));
    float *is = load("run", 2, 4096, &got, &dg);
    CHECK(is[0] == 100.0f);
    gw_mem_free(is);
    CHECK_OK(save_as("run", 2, 2, 200, &dg), &dg); /* its own, or one that it knew of, goes aside */
    CHECK(gw_path_exists(test_tmp_path("run/checkpoints/step-00000002.replaced-1")));
    fill(w, 4096, 800);
    CHECK_OK(gw_checkpoint_begin(&late, &o, &m, &t, 1, &dg), &dg);
    while (!gw_checkpoint_poll(late)) usleep(1000);
    pid_t p = fork(); /* files that are being written are named after the process */
    if (p == 0) _exit(save_as("run", 8, 3, 700, NULL) == GW_OK ? 0 : 1);
    int ended = 1;
    CHECK(waitpid(p, &ended, 0) == p && ended == 0);
    CHECK_FAILS(gw_checkpoint_end(late, NULL, &dg), &dg, "is a commit of another run");
    gw_diags_clear(&dg);
    is = load("run", 8, 4096, NULL, &dg);
    CHECK(is[0] == 700.0f);
    gw_mem_free(is);
    gw_diags_release(&dg);
}
