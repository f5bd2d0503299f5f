// SPDX-License-Identifier: Apache-2.0
// What does not change is referred to, not written again; and what is referred to is never lost.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"  /* gw_path_exists */
#include "base/log.h" /* gw_log_set_level */
#include "base/rng.h" /* gw_rng_uniform */
#include "ckpt/save.h"
#include "file/json.h" /* gw_json_read_file */
#include "harness.h"

enum { BASE = 2 << 20, ADAPTER = 40000, SMALL = 100 }; /* elements: two blocks; 160 kB; 400 B */

typedef struct state {
    float *x[3];
    gw_ckpt_tensor t[3];
    gw_ckpt_keep *keep;
    gw_ckpt_stats stats;
    bool references;
} state;

static const int64_t lengths[3] = {BASE, ADAPTER, SMALL};

static void fill(float *x, int64_t n, uint64_t seed) {
    gw_rng_key key = gw_rng_key_named(seed, "x");
    for (int64_t i = 0; i < n; i++) x[i] = gw_rng_uniform(key, (uint64_t)i);
}

static void make(state *s) {
    static const char *const names[3] = {"base", "adapter", "small"};
    *s = (state){.keep = gw_ckpt_keep_new(), .references = true};
    for (int i = 0; i < 3; i++) {
        s->x[i] = malloc(sizeof(float) * (size_t)lengths[i]);
        CHECK(s->x[i]);
        fill(s->x[i], lengths[i], (uint64_t)i);
        s->t[i] = (gw_ckpt_tensor){.name = names[i], .dtype = GW_F32, .ndim = 1, .data = s->x[i]};
        s->t[i].dims[0] = lengths[i];
        s->t[i].box = gw_box_whole(1, s->t[i].dims);
    }
}

static void drop(state *s) {
    for (int i = 0; i < 3; i++) free(s->x[i]);
    gw_ckpt_keep_free(s->keep);
}

static gw_status save(state *s, int64_t step, gw_diags *dg) {
    gw_ckpt_meta m = {.step = step, .batch = step, .loss_scale = 1};
    gw_ckpt_options o = {.run_dir = test_tmpdir(), .keep = s->keep, .references = s->references};
    gw_ckpt_save *save;
    GW_TRY(gw_checkpoint_begin(&save, &o, &m, s->t, 3, dg));
    return gw_checkpoint_end(save, &s->stats, dg);
}

/* Saves with another adapter. */
static void save_next(state *s, int64_t step) {
    gw_diags dg;
    gw_diags_init(&dg);
    fill(s->x[1], ADAPTER, (uint64_t)(100 + step));
    fill(s->x[2], SMALL, (uint64_t)(200 + step));
    CHECK_OK(save(s, step, &dg), &dg);
    gw_diags_release(&dg);
}

static const char *folder(int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64, step);
    return test_tmp_path(name);
}

static const char *data(int64_t step) {
    char name[96];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64 "/rank-00000.safetensors", step);
    return test_tmp_path(name);
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* Loads and compares with the state as it is, where `bits`. */
static gw_status look(const state *s, int64_t step, bool bits, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    gw_ckpt_tensor t[3];
    gw_status st = gw_checkpoint_read(folder(step), &mem, &m, dg);
    for (int i = 0; i < 3; i++) {
        t[i] = s->t[i];
        t[i].data = gw_arena_alloc(&mem, lengths[i] * 4);
    }
    if (st == GW_OK) st = gw_checkpoint_load(m, t, 3, NULL, dg);
    for (int i = 0; i < 3 && st == GW_OK && bits; i++)
        CHECK_MSG(memcmp(t[i].data, s->x[i], (size_t)lengths[i] * 4) == 0, "step %" PRId64 ": %s",
                  step, t[i].name);
    gw_arena_release(&mem);
    return st;
}

static gw_ckpt_state state_of(int64_t step, gw_status *verified) {
    gw_arena mem = {0};
    gw_ckpt_list l;
    gw_ckpt_state found = GW_CKPT_DAMAGED;
    int64_t faults;
    CHECK(gw_checkpoint_list(test_tmpdir(), &mem, &l, NULL) == GW_OK);
    for (int i = 0; i < l.n; i++) {
        if (l.items[i].step != step) continue;
        found = l.items[i].state;
        if (verified) *verified = gw_checkpoint_verify(l.items[i].manifest, &faults, NULL);
    }
    gw_arena_release(&mem);
    return found;
}

static void prune(int64_t keep_last) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), keep_last, 0, -1, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(what_does_not_change_is_written_once) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    save_next(&s, 1);
    CHECK_EQ(s.stats.referred_bytes, 0);
    for (int64_t step = 2; step <= 4; step++) {
        save_next(&s, step);
        CHECK_EQ(s.stats.referred_bytes, INT64_C(4) * BASE);
        CHECK(size_of(data(step)) < INT64_C(4) * (ADAPTER + SMALL) + 4096);
        CHECK_OK(look(&s, step, true, &dg), &dg);
    }
    drop(&s);
    gw_diags_release(&dg);
}

/* The sample of a block is its beginning: what changes behind it must be seen all the same. */
TEST(one_changed_element_anywhere_is_seen) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    save_next(&s, 1);
    for (int64_t step = 2; step <= 4; step++) {
        static const int64_t at[] = {BASE - 1, 5000, BASE / 2 + 77777};
        s.x[0][at[step - 2]] += 1;
        save_next(&s, step);
        CHECK_EQ(s.stats.referred_bytes, 0);
        CHECK_OK(look(&s, step, true, &dg), &dg);
    }
    save_next(&s, 5);
    CHECK_EQ(s.stats.referred_bytes, INT64_C(4) * BASE);
    drop(&s);
    gw_diags_release(&dg);
}

TEST(a_file_stays_as_long_as_it_is_referred_to) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    gw_status whole = GW_ERR_FORMAT;
    state s;
    make(&s);
    for (int64_t step = 1; step <= 3; step++) save_next(&s, step);
    prune(1);
    CHECK_EQ(state_of(1, NULL), GW_CKPT_HELD);
    CHECK(!gw_path_exists(folder(2))); /* nothing of it is needed: references do not chain */
    CHECK_EQ(state_of(3, &whole), GW_CKPT_COMPLETE);
    CHECK_EQ(whole, GW_OK);
    CHECK_OK(look(&s, 3, true, &dg), &dg);
    prune(1); /* and again */
    CHECK(gw_path_exists(data(1)));
    save_next(&s, 4); /* from the same file, whose checkpoint is gone */
    CHECK_EQ(s.stats.referred_bytes, INT64_C(4) * BASE);
    CHECK_OK(look(&s, 4, true, &dg), &dg);
    s.x[0][3] = 7;
    save_next(&s, 5);
    prune(2);
    CHECK_EQ(state_of(1, NULL), GW_CKPT_HELD);
    prune(1);
    CHECK(!gw_path_exists(folder(1)));
    CHECK_OK(look(&s, 5, true, &dg), &dg);
    drop(&s);
    gw_diags_release(&dg);
}

TEST(a_missing_file_is_named_with_both_manifests) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status whole = GW_OK;
    state s;
    make(&s);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    CHECK(rename(data(1), test_tmp_path("elsewhere")) == 0);
    CHECK_FAILS(look(&s, 2, false, &dg), &dg, "step-00000002/manifest.json refers to '");
    CHECK(strstr(gw_diags_first_error(&dg), "step-00000001/rank-00000.safetensors'"));
    CHECK(strstr(gw_diags_first_error(&dg), "step-00000001/manifest.json"));
    (void)state_of(2, &whole);
    CHECK_EQ(whole, GW_ERR_FORMAT);
    /* The next save sees that it is gone, and writes everything. */
    save_next(&s, 3);
    CHECK_EQ(s.stats.referred_bytes, 0);
    gw_diags_clear(&dg);
    CHECK_OK(look(&s, 3, true, &dg), &dg);
    drop(&s);
    gw_diags_release(&dg);
}

TEST(a_flipped_byte_of_an_older_file_is_found) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status whole = GW_OK;
    state s;
    char c;
    make(&s);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    int fd = open(data(1), O_RDWR);
    off_t at = INT64_C(4) * (ADAPTER + BASE / 2);
    CHECK(fd >= 0 && pread(fd, &c, 1, at) == 1);
    c ^= 1;
    CHECK(pwrite(fd, &c, 1, at) == 1 && close(fd) == 0);
    CHECK_FAILS(look(&s, 2, false, &dg), &dg, "tensor 'base'");
    (void)state_of(2, &whole);
    CHECK_EQ(whole, GW_ERR_FORMAT);
    drop(&s);
    gw_diags_release(&dg);
}

/* A step that is saved again moves the folder that others refer to aside. */
TEST(a_folder_moved_aside_is_found) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    state s, other;
    make(&s);
    make(&other);
    fill(other.x[0], BASE, 99);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    CHECK_OK(save(&other, 1, &dg), &dg);
    CHECK_OK(look(&s, 2, true, &dg), &dg);
    CHECK_OK(look(&other, 1, true, &dg), &dg);
    save_next(&s, 3); /* its origin has another file now */
    CHECK_OK(look(&s, 3, true, &dg), &dg);
    save_next(&s, 4);
    prune(2);
    CHECK(gw_path_exists(test_tmp_path("checkpoints/step-00000001.replaced-1")));
    CHECK_OK(look(&s, 4, true, &dg), &dg);
    drop(&s);
    drop(&other);
    gw_diags_release(&dg);
}

TEST(held_files_are_not_overwritten) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    state s, other;
    make(&s);
    make(&other);
    fill(other.x[0], BASE, 99);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    prune(1);
    CHECK_EQ(state_of(1, NULL), GW_CKPT_HELD);
    CHECK_OK(save(&other, 1, &dg), &dg); /* the run fell back and comes to step 1 again */
    CHECK_OK(look(&s, 2, true, &dg), &dg);
    CHECK_OK(look(&other, 1, true, &dg), &dg);
    drop(&s);
    drop(&other);
    gw_diags_release(&dg);
}

TEST(a_small_rest_of_a_large_file_is_written_anew) {
    gw_diags dg;
    gw_diags_init(&dg);
    state s;
    make(&s);
    save_next(&s, 1);
    fill(s.x[0], BASE, 5); /* all but the adapter and `small` */
    CHECK_OK(save(&s, 2, &dg), &dg);
    CHECK_EQ(s.stats.referred_bytes, 0);
    CHECK_OK(look(&s, 2, true, &dg), &dg);
    s.references = false;
    CHECK_OK(save(&s, 3, &dg), &dg);
    CHECK_EQ(s.stats.referred_bytes, 0);
    CHECK_EQ(size_of(data(3)), size_of(data(2)));
    drop(&s);
    gw_diags_release(&dg);
}

/* What a manifest of a later program refers to is not known. */
TEST(beside_a_newer_format_nothing_is_removed) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    char path[400];
    json_t *o = NULL;
    state s;
    make(&s);
    for (int64_t step = 1; step <= 3; step++) save_next(&s, step);
    snprintf(path, sizeof path, "%s/manifest.json", folder(3));
    CHECK_OK(gw_json_read_file(path, 0, &o, &dg), &dg);
    json_object_set_new(o, "version", json_integer(GW_CHECKPOINT_VERSION + 1));
    CHECK_OK(gw_json_write_file(path, o, 0, &dg), &dg);
    json_decref(o);
    prune(1);
    for (int64_t step = 1; step <= 3; step++) CHECK(gw_path_exists(data(step)));
    drop(&s);
    gw_diags_release(&dg);
}

TEST(a_version_3_manifest_is_read) {
    gw_diags dg;
    gw_diags_init(&dg);
    char path[400], hash[33];
    json_t *o = NULL;
    state s;
    make(&s);
    save_next(&s, 1);
    snprintf(path, sizeof path, "%s/manifest.json", folder(1));
    CHECK_OK(gw_json_read_file(path, 0, &o, &dg), &dg);
    json_object_set_new(o, "version", json_integer(3));
    json_object_set_new(o, "manifest_xxh128",
                        json_string(gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o))));
    CHECK_OK(gw_json_write_file(path, o, 0, &dg), &dg);
    json_decref(o);
    CHECK_OK(look(&s, 1, true, &dg), &dg);
    drop(&s);
    gw_diags_release(&dg);
}

/* What has lost a file is not complete: it takes no whole one's place when old ones go. */
TEST(one_that_lost_a_file_removes_nobody) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    state s;
    make(&s);
    s.references = false;
    for (int64_t step = 1; step <= 4; step++) save_next(&s, step);
    CHECK(unlink(data(4)) == 0 && truncate(data(3), 1000) == 0);
    prune(1);
    CHECK_EQ(state_of(4, NULL), GW_CKPT_DAMAGED);
    CHECK_EQ(state_of(3, NULL), GW_CKPT_DAMAGED);
    CHECK_EQ(state_of(2, NULL), GW_CKPT_COMPLETE);
    CHECK(!gw_path_exists(folder(1)));
    drop(&s);
    gw_diags_release(&dg);
}

TEST(one_that_lost_what_it_refers_to_removes_nobody) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    state s;
    make(&s);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    s.x[0][3] = 7; /* written anew with step 3, and referred to by step 4 */
    for (int64_t step = 3; step <= 4; step++) save_next(&s, step);
    CHECK(rename(data(3), test_tmp_path("elsewhere")) == 0);
    prune(1);
    CHECK_EQ(state_of(4, NULL), GW_CKPT_DAMAGED);
    CHECK_EQ(state_of(3, NULL), GW_CKPT_DAMAGED);
    CHECK_EQ(state_of(2, NULL), GW_CKPT_COMPLETE);
    CHECK(gw_path_exists(data(1)));
    CHECK(rename(test_tmp_path("elsewhere"), data(3)) == 0); /* it is found again */
    CHECK_EQ(state_of(4, NULL), GW_CKPT_COMPLETE);
    CHECK_OK(look(&s, 4, true, &dg), &dg);
    drop(&s);
    gw_diags_release(&dg);
}

static gw_status verify_at(const char *path, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    int64_t faults;
    gw_status st = gw_checkpoint_read(path, &mem, &m, dg);
    if (st == GW_OK) st = gw_checkpoint_verify(m, &faults, dg);
    gw_arena_release(&mem);
    return st;
}

/* What is referred to stands beside the real folder, whatever name led there; a folder that was
 * moved away and linked back has it beside the link. */
TEST(references_are_found_from_any_name) {
    gw_diags dg;
    gw_diags_init(&dg);
    char here[400];
    state s;
    make(&s);
    for (int64_t step = 1; step <= 2; step++) save_next(&s, step);
    CHECK(symlink(folder(2), test_tmp_path("link")) == 0);
    CHECK(symlink(folder(2), test_tmp_path("step-00000002")) == 0);
    CHECK_OK(verify_at(test_tmp_path("link"), &dg), &dg);
    CHECK_OK(verify_at(test_tmp_path("step-00000002"), &dg), &dg);
    CHECK(getcwd(here, sizeof here) && chdir(folder(2)) == 0);
    CHECK_OK(verify_at(".", &dg), &dg);
    CHECK_OK(verify_at("../step-00000002/.", &dg), &dg);
    CHECK(chdir(here) == 0);
    CHECK(rename(folder(2), test_tmp_path("moved")) == 0);
    CHECK(symlink(test_tmp_path("moved"), folder(2)) == 0);
    CHECK_OK(verify_at(folder(2), &dg), &dg);
    drop(&s);
    gw_diags_release(&dg);
}
