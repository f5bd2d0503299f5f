// SPDX-License-Identifier: Apache-2.0
// Checkpoints: bits come back, damage is named, a failed save hurts nothing, only ours is removed.
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"   /* gw_file_read */
#include "base/log.h"  /* gw_log_set_level */
#include "base/rng.h"  /* gw_rng_u64 */
#include "base/str.h"  /* gw_str */
#include "ckpt/save.h" /* gw_checkpoint_save */
#include "file/json.h" /* gw_json_read_file */
#include "harness.h"

enum { ROWS = 40, COLS = 33, BIASES = 7 };

typedef struct state {
    float w[ROWS * COLS];
    uint16_t half[BIASES];
    gw_ckpt_tensor tensors[3];
    float scalar;
} state;

static void fill(state *s, uint64_t seed) {
    gw_rng_key key = gw_rng_key_named(seed, "state");
    for (int i = 0; i < ROWS * COLS; i++) s->w[i] = gw_rng_uniform(key, (uint64_t)i);
    for (int i = 0; i < BIASES; i++) s->half[i] = (uint16_t)gw_rng_u32(key, (uint64_t)i + 7777);
    s->scalar = gw_rng_uniform(key, 99999);
    memset(s->tensors, 0, sizeof s->tensors);
    s->tensors[0] = (gw_ckpt_tensor){
        .name = "w", .dtype = GW_F32, .ndim = 2, .dims = {ROWS, COLS}, .box = {0}, .data = s->w};
    s->tensors[1] = (gw_ckpt_tensor){
        .name = "b", .dtype = GW_BF16, .ndim = 1, .dims = {BIASES}, .box = {0}, .data = s->half};
    s->tensors[2] = (gw_ckpt_tensor){
        .name = "t", .dtype = GW_F32, .ndim = 0, .dims = {0}, .box = {0}, .data = &s->scalar};
    for (int i = 0; i < 3; i++)
        s->tensors[i].box = gw_box_whole(s->tensors[i].ndim, s->tensors[i].dims);
}

static bool same(const state *a, const state *b) {
    return memcmp(a->w, b->w, sizeof a->w) == 0 && memcmp(a->half, b->half, sizeof a->half) == 0 &&
           memcmp(&a->scalar, &b->scalar, sizeof a->scalar) == 0;
}

static gw_ckpt_meta meta_at(int64_t step) {
    return (gw_ckpt_meta){.step = step,
                          .batch = step + 2,
                          .next_sample = step * 8,
                          .tokens = 123,
                          .loss_scale = 4096.5,
                          .good_steps = 17,
                          .bad_steps = 1,
                          .seed = 42,
                          .tokenizer = "aa",
                          .data = "bb",
                          .model = "layers=2",
                          .threads = 3,
                          .isa = "avx2",
                          .config = "train: {steps: 3}\n"};
}

static gw_status save(const char *dir, int64_t step, uint64_t seed, gw_diags *dg) {
    state s;
    fill(&s, seed);
    gw_ckpt_meta m = meta_at(step);
    return gw_checkpoint_save(dir, &m, s.tensors, 3, dg);
}

static const char *folder(int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64, step);
    return test_tmp_path(name);
}

static const char *inside(int64_t step, const char *file) {
    char name[96];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64 "/%s", step, file);
    return test_tmp_path(name);
}

/* Loads step's checkpoint over another state; *out has what came. */
static gw_status load(int64_t step, state *out, gw_ckpt_meta *meta, gw_diags *dg) {
    static gw_arena mem; /* released at the next call; strings of *meta live until then */
    gw_arena_release(&mem);
    gw_ckpt_manifest *m = NULL;
    fill(out, 777);
    GW_TRY(gw_checkpoint_read(folder(step), &mem, &m, dg));
    if (meta) *meta = m->meta;
    return gw_checkpoint_load(m, out->tensors, 3, NULL, dg);
}

TEST(saved_bits_and_counters_come_back) {
    gw_diags dg;
    gw_diags_init(&dg);
    state was, is;
    gw_ckpt_meta m, w = meta_at(5);
    fill(&was, 1);
    CHECK_OK(save(test_tmpdir(), 5, 1, &dg), &dg);
    CHECK_OK(load(5, &is, &m, &dg), &dg);
    CHECK(same(&was, &is));
    CHECK(m.step == 5 && m.batch == 7 && m.next_sample == 40 && m.tokens == 123);
    CHECK(m.good_steps == 17 && m.bad_steps == 1 && m.seed == 42 && m.threads == 3);
    CHECK_NEAR(m.loss_scale, 4096.5, 0);
    CHECK_STR(m.config, w.config);
    CHECK_STR(m.model, w.model);
    CHECK_EQ(m.number, 1);
    CHECK_OK(save(test_tmpdir(), 9, 2, &dg), &dg);
    CHECK_OK(load(9, &is, &m, &dg), &dg);
    CHECK_EQ(m.number, 2);
    gw_diags_release(&dg);
}

TEST(any_box_is_filled_from_any_chunks) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    state was;
    fill(&was, 3);
    CHECK_OK(save(test_tmpdir(), 1, 3, &dg), &dg);
    gw_ckpt_manifest *m = NULL;
    CHECK_OK(gw_checkpoint_read(folder(1), &mem, &m, &dg), &dg);
    float corner[5 * 4];
    gw_ckpt_tensor t = {.name = "w",
                        .dtype = GW_F32,
                        .ndim = 2,
                        .dims = {ROWS, COLS},
                        .box = {2, {30, 29}, {5, 4}},
                        .data = corner};
    CHECK_OK(gw_checkpoint_load(m, &t, 1, NULL, &dg), &dg);
    for (int i = 0; i < 5; i++)
        CHECK(memcmp(corner + i * 4, was.w + (30 + i) * COLS + 29, 16) == 0);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(a_flipped_byte_is_named_with_file_and_tensor) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    CHECK_OK(save(test_tmpdir(), 1, 4, &dg), &dg);
    int fd = open(inside(1, "rank-00000.safetensors"), O_RDWR);
    char c;
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    off_t at = st.st_size - (off_t)sizeof s.half - 100; /* the widest dtype first: inside w */
    CHECK(pread(fd, &c, 1, at) == 1);
    c ^= 0x10;
    CHECK(pwrite(fd, &c, 1, at) == 1);
    close(fd);
    CHECK_FAILS(load(1, &s, NULL, &dg), &dg, "tensor 'w'");
    CHECK(strstr(gw_diags_first_error(&dg), "rank-00000.safetensors"));
    gw_diags_release(&dg);
}

/* Copies a file's first n bytes over it. */
static void cut(const char *path, int64_t n) { CHECK(truncate(path, (off_t)n) == 0); }

TEST(a_cut_file_is_an_error_at_every_length) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const char *const files[] = {"manifest.json", "rank-00000.safetensors"};
    for (int f = 0; f < 2; f++) {
        CHECK_OK(save(test_tmpdir(), 1, 5, &dg), &dg);
        gw_str whole = {0};
        state s;
        CHECK_OK(gw_file_read(inside(1, files[f]), 0, &whole, &dg), &dg);
        /* JSON ends with a brace and a newline: without the newline it is still whole. */
        int64_t most = (int64_t)whole.len - (f == 0 ? 2 : 1);
        for (int64_t n = most; n >= 0; n -= GW_MAX((int64_t)1, n / 23)) {
            cut(inside(1, files[f]), n);
            gw_diags_clear(&dg);
            gw_status st = load(1, &s, NULL, &dg);
            CHECK_MSG(st == GW_ERR_FORMAT || st == GW_ERR_IO, "%s cut at %" PRId64, files[f], n);
            CHECK(dg.nerrors > 0);
        }
        gw_diags_clear(&dg);
        unlink(inside(1, files[f]));
        CHECK(load(1, &s, NULL, &dg) != GW_OK);
        unlink(inside(1, "manifest.json"));
        gw_str_release(&whole);
        gw_diags_clear(&dg);
    }
    gw_diags_release(&dg);
}

TEST(noise_in_a_manifest_never_crashes) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(save(test_tmpdir(), 1, 6, &dg), &dg);
    gw_str whole = {0};
    CHECK_OK(gw_file_read(inside(1, "manifest.json"), 0, &whole, &dg), &dg);
    gw_rng_key key = gw_rng_key_named(1, "noise");
    int refused = 0;
    for (uint64_t round = 0; round < 400; round++) {
        gw_str bad = {0};
        gw_str_add_n(&bad, whole.data, whole.len);
        for (uint64_t k = 0; k < 3; k++) {
            uint64_t r = gw_rng_u64(key, round * 3 + k);
            static const char swap[] = "0123456789-\"[]{},.e:xz";
            bad.data[r % bad.len] = swap[(r >> 40) % (sizeof swap - 1)];
        }
        FILE *f = fopen(inside(1, "manifest.json"), "w");
        CHECK(f && fwrite(bad.data, 1, bad.len, f) == bad.len && fclose(f) == 0);
        gw_str_release(&bad);
        gw_diags_clear(&dg);
        state s;
        refused += load(1, &s, NULL, &dg) != GW_OK;
    }
    CHECK(refused > 100);
    gw_str_release(&whole);
    gw_diags_release(&dg);
}

static gw_ckpt_state state_of(int64_t step) {
    gw_arena mem = {0};
    gw_ckpt_list l;
    gw_ckpt_state s = GW_CKPT_DAMAGED;
    bool found = false;
    CHECK(gw_checkpoint_list(test_tmpdir(), &mem, &l, NULL) == GW_OK);
    for (int i = 0; i < l.n; i++) {
        if (i > 0) CHECK(l.items[i].step < l.items[i - 1].step);
        if (l.items[i].step == step) {
            s = l.items[i].state;
            found = true;
        }
    }
    gw_arena_release(&mem);
    CHECK_MSG(found, "step %" PRId64 " is not listed", step);
    return s;
}

TEST(keep_last_counts_complete_ones_and_removes_only_ours) {
    gw_diags dg;
    gw_diags_init(&dg);
    for (int64_t s = 1; s <= 5; s++) CHECK_OK(save(test_tmpdir(), s, 7, &dg), &dg);
    CHECK(unlink(inside(4, "manifest.json")) == 0); /* torn: does not count */
    FILE *f = fopen(inside(1, "notes.txt"), "w");   /* a person's */
    CHECK(f && fputs("keep me\n", f) >= 0 && fclose(f) == 0);
    CHECK_OK(gw_dir_make(test_tmp_path("checkpoints/step-mine"), &dg), &dg);
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 2, 0, -1, &dg), &dg);
    CHECK_EQ(state_of(5), GW_CKPT_COMPLETE);
    CHECK_EQ(state_of(3), GW_CKPT_COMPLETE);
    CHECK(!gw_path_exists(folder(2)));
    CHECK(gw_path_exists(inside(1, "notes.txt")));
    CHECK(!gw_path_exists(inside(1, "rank-00000.safetensors")));
    CHECK(gw_path_exists(test_tmp_path("checkpoints/step-mine")));
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 0, 0, -1, &dg), &dg);
    CHECK_EQ(state_of(3), GW_CKPT_COMPLETE);
    gw_diags_release(&dg);
}

/* One order, that of commits: a run that fell back goes on from what it saved last. */
TEST(the_newest_commit_comes_first) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_ckpt_list l;
    static const int64_t want[] = {9, 4, 3, 5, 2};
    CHECK_OK(save(test_tmpdir(), 5, 7, &dg), &dg);
    CHECK_OK(save(test_tmpdir(), 3, 8, &dg), &dg);
    CHECK_OK(gw_dir_make(folder(9), &dg), &dg);
    CHECK_OK(gw_dir_make(folder(4), &dg), &dg);
    CHECK_OK(gw_dir_make(folder(2), &dg), &dg);
    CHECK_OK(gw_checkpoint_list(test_tmpdir(), &mem, &l, &dg), &dg);
    CHECK_EQ(l.n, 5);
    for (int i = 0; i < 5; i++) CHECK_EQ(l.items[i].step, want[i]);
    CHECK(l.items[2].number == 2 && l.items[3].number == 1);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(a_name_that_no_save_gives_is_foreign) {
    CHECK_EQ(gw_checkpoint_step_of_name("step-00000002"), 2);
    CHECK_EQ(gw_checkpoint_step_of_name("step-123456789"), 123456789);
    static const char *const foreign[] = {
        "step-000000002", "step-0000002",   "step-0000000a", "step-",
        "Step-00000002",  "step-00000002 ", "step--0000002", "step-99999999999999999999"};
    for (size_t i = 0; i < GW_COUNT(foreign); i++)
        CHECK_EQ(gw_checkpoint_step_of_name(foreign[i]), -1);
}

/* What a read refuses no save commits: nothing is written. */
TEST(counters_that_no_read_takes_are_not_saved) {
    gw_diags dg;
    state s;
    gw_diags_init(&dg);
    fill(&s, 1);
    for (int i = 0; i < 6; i++) {
        gw_ckpt_meta m = meta_at(1);
        if (i == 0) m.loss_scale = 0;
        if (i == 1) m.loss_scale = (double)NAN;
        if (i == 2) m.batch = 0;
        if (i == 3) m.tokens = INT64_C(1) << 53;
        if (i == 4) m.seed = -1;
        if (i == 5) m.next_sample = -1;
        gw_diags_clear(&dg);
        CHECK_FAILS(gw_checkpoint_save(test_tmpdir(), &m, s.tensors, 3, &dg), &dg,
                    "a checkpoint cannot hold");
        CHECK(!gw_path_exists(folder(1)));
    }
    gw_diags_release(&dg);
}

static void put_file(const char *path) {
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("bytes\n", f) >= 0 && fclose(f) == 0);
}

/* What saves that were killed leave goes with the next commit; what else stands there stays. */
TEST(torn_folders_older_than_a_commit_are_removed_if_only_ours_stands_in_them) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    for (int64_t s = 1; s <= 3; s++) CHECK_OK(gw_dir_make(folder(s), &dg), &dg);
    put_file(inside(1, "rank-00000.safetensors.tmp.4711"));
    put_file(inside(2, "rank-00000.safetensors"));
    put_file(inside(2, "manifest.json.tmp-12-ab-0"));
    put_file(inside(3, "rank-00000.safetensors"));
    put_file(inside(3, "notes.txt"));
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 2, 0, -1, &dg), &dg);
    CHECK_EQ(state_of(1), GW_CKPT_TORN); /* nothing newer is complete yet */
    CHECK_OK(save(test_tmpdir(), 4, 7, &dg), &dg);
    CHECK_OK(gw_dir_make(folder(5), &dg), &dg);
    put_file(inside(5, "rank-00000.safetensors"));
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 2, 0, -1, &dg), &dg);
    CHECK(!gw_path_exists(folder(1)));
    CHECK(!gw_path_exists(folder(2)));
    CHECK(gw_path_exists(inside(3, "rank-00000.safetensors")));
    CHECK(gw_path_exists(inside(3, "notes.txt")));
    CHECK_EQ(state_of(4), GW_CKPT_COMPLETE);
    CHECK_EQ(state_of(5), GW_CKPT_TORN);
    gw_diags_release(&dg);
}

TEST(replaced_folders_go_with_their_step) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    const char *ours = test_tmp_path("checkpoints/step-00000001.replaced-1");
    const char *other = test_tmp_path("checkpoints/step-00000001.replaced-2");
    for (int i = 0; i < 2; i++) CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
    CHECK_OK(gw_dir_make(other, &dg), &dg); /* no checkpoint of ours in it */
    CHECK_OK(save(test_tmpdir(), 2, 7, &dg), &dg);
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 2, 0, -1, &dg), &dg);
    CHECK(gw_path_exists(ours));
    CHECK_OK(save(test_tmpdir(), 3, 7, &dg), &dg);
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 0, 0, -1, &dg), &dg);
    CHECK(gw_path_exists(ours));
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), 2, 0, -1, &dg), &dg);
    CHECK(!gw_path_exists(ours));
    CHECK(gw_path_exists(other));
    gw_diags_release(&dg);
}

/* ---- what a manifest says ---- */

TEST(a_checkpoint_is_that_of_its_folder_and_its_data) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
    CHECK_OK(save(test_tmpdir(), 2, 8, &dg), &dg);
    CHECK(rename(folder(1), folder(9)) == 0); /* a folder under another name */
    CHECK_EQ(state_of(9), GW_CKPT_DAMAGED);
    CHECK_EQ(state_of(2), GW_CKPT_COMPLETE);
    CHECK_FAILS(load(9, &s, NULL, &dg), &dg, "it is of step 1, its folder is named after step 9");
    /* The data of another step, its tensors all the same. */
    CHECK_OK(save(test_tmpdir(), 3, 8, &dg), &dg);
    CHECK(rename(inside(3, "rank-00000.safetensors"), inside(2, "rank-00000.safetensors")) == 0);
    gw_diags_clear(&dg);
    CHECK_FAILS(load(2, &s, NULL, &dg), &dg, "holds data of step 3");
    gw_diags_release(&dg);
}

/* Writes a value into step 1's manifest; `sealed`: with the hash that then belongs to it. */
static void edit(const char *key, json_t *value, bool sealed) {
    gw_diags dg;
    gw_diags_init(&dg);
    json_t *o = NULL;
    char hash[33];
    CHECK_OK(gw_json_read_file(inside(1, "manifest.json"), 0, &o, &dg), &dg);
    CHECK(json_object_set_new(o, key, value) == 0);
    if (sealed) {
        gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o));
        json_object_set_new(o, "manifest_xxh128", json_string(hash));
    }
    CHECK_OK(gw_json_write_file(inside(1, "manifest.json"), o, 1, &dg), &dg);
    json_decref(o);
    gw_diags_release(&dg);
}

TEST(an_edited_manifest_is_damaged) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
    edit("tokens", json_integer(123), false); /* what it was: written anew, still whole */
    CHECK_OK(load(1, &s, NULL, &dg), &dg);
    edit("next_sample", json_integer(9), false);
    CHECK_FAILS(load(1, &s, NULL, &dg), &dg, "its hash is another");
    CHECK_EQ(state_of(1), GW_CKPT_DAMAGED);
    gw_diags_clear(&dg);
    edit("manifest_xxh128", json_string("none"), false);
    CHECK_FAILS(load(1, &s, NULL, &dg), &dg, "manifest_xxh128");
    gw_diags_release(&dg);
}

TEST(counters_have_bounds) {
    static const char *const keys[] = {"step", "batch", "next_sample", "tokens"};
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
        edit(keys[i], json_integer(INT64_MAX), true);
        CHECK_FAILS(load(1, &s, NULL, &dg), &dg, "not from 0 to 2^53 - 1");
        edit(keys[i], json_integer(-1), true);
        CHECK(load(1, &s, NULL, &dg) == GW_ERR_FORMAT);
        unlink(inside(1, "manifest.json"));
        gw_diags_clear(&dg);
    }
    CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
    edit("batch", json_integer(0), true);
    CHECK_FAILS(load(1, &s, NULL, &dg), &dg, "'step' is more than 'batch'");
    gw_diags_release(&dg);
}

TEST(another_format_version_is_told_from_damage) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    CHECK_OK(save(test_tmpdir(), 1, 7, &dg), &dg);
    edit("version", json_integer(GW_CHECKPOINT_VERSION + 1), false);
    gw_status st = load(1, &s, NULL, &dg);
    CHECK_FAILS(st, &dg, "format version");
    CHECK_EQ(st, GW_ERR_UNSUPPORTED);
    gw_diags_release(&dg);
}

TEST(a_manifest_that_is_a_directory_is_damage_with_a_name) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_ckpt_list l;
    CHECK_OK(gw_dir_make(inside(1, "manifest.json"), &dg), &dg);
    CHECK_OK(gw_checkpoint_list(test_tmpdir(), &mem, &l, &dg), &dg);
    CHECK(l.n == 1 && l.items[0].state == GW_CKPT_DAMAGED);
    CHECK_MSG(strstr(l.items[0].why, "step-00000001/manifest.json"), "%s", l.items[0].why);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(a_torn_folder_is_written_again_and_a_whole_one_moved_aside) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s, want;
    gw_log_set_level(GW_LOG_QUIET);
    CHECK_OK(save(test_tmpdir(), 1, 8, &dg), &dg);
    CHECK(unlink(inside(1, "manifest.json")) == 0);
    CHECK_OK(save(test_tmpdir(), 1, 9, &dg), &dg);
    CHECK_OK(load(1, &s, NULL, &dg), &dg);
    fill(&want, 9);
    CHECK(same(&s, &want));
    CHECK_OK(save(test_tmpdir(), 1, 10, &dg), &dg);
    CHECK(gw_path_exists(test_tmp_path("checkpoints/step-00000001.replaced-1/manifest.json")));
    CHECK_OK(load(1, &s, NULL, &dg), &dg);
    fill(&want, 10);
    CHECK(same(&s, &want));
    gw_diags_release(&dg);
}

/* After a failed save of step 2: step 1 loads, step 2 is no checkpoint. */
static void step_one_is_intact(void) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s, want;
    CHECK_OK(load(1, &s, NULL, &dg), &dg);
    fill(&want, 11);
    CHECK(same(&s, &want));
    struct stat st;
    CHECK(stat(inside(2, "manifest.json"), &st) != 0 || !S_ISREG(st.st_mode));
    CHECK(!gw_path_exists(inside(2, "rank-00000.safetensors")));
    gw_diags_release(&dg);
}

TEST(a_rename_that_fails_leaves_the_checkpoint_before) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(save(test_tmpdir(), 1, 11, &dg), &dg);
    CHECK_OK(gw_dir_make(inside(2, "manifest.json/occupied"), &dg), &dg);
    CHECK_FAILS(save(test_tmpdir(), 2, 12, &dg), &dg, "manifest.json");
    step_one_is_intact();
    gw_diags_release(&dg);
}

TEST(a_file_size_limit_leaves_the_checkpoint_before) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(save(test_tmpdir(), 1, 11, &dg), &dg);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, small;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    for (rlim_t limit = 100; limit <= 1600; limit += 500) {
        small = old;
        small.rlim_cur = limit;
        CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
        gw_status st = save(test_tmpdir(), 2, 12, &dg);
        CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
        CHECK_EQ(st, GW_ERR_IO);
        step_one_is_intact();
        CHECK(!gw_path_exists(folder(2)));
    }
    gw_diags_release(&dg);
}

TEST(a_full_disk_leaves_the_checkpoint_before) {
    if (geteuid() != 0) SKIP("mounting a small file system needs root");
    const char *disk = test_tmpdir();
    gw_diags dg;
    gw_diags_init(&dg);
    if (mount("none", disk, "tmpfs", 0, "size=20k") != 0) SKIP("mount is not allowed here");
    gw_status first = save(disk, 1, 11, &dg), second = save(disk, 2, 12, &dg);
    bool told = strstr(gw_diags_first_error(&dg), "No space left") != NULL;
    state s, want;
    fill(&want, 11);
    gw_diags again;
    gw_diags_init(&again);
    gw_status loaded = load(1, &s, NULL, &again);
    bool intact = same(&s, &want), left = gw_path_exists(folder(2));
    umount2(disk, MNT_DETACH);
    CHECK_EQ(first, GW_OK);
    CHECK_EQ(second, GW_ERR_IO);
    CHECK(told);
    CHECK_EQ(loaded, GW_OK);
    CHECK(intact && !left);
    gw_diags_release(&again);
    gw_diags_release(&dg);
}
