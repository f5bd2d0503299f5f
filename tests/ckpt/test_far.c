// SPDX-License-Identifier: Apache-2.0
// Checkpoints in a store that is far and misbehaves: many ranges are under way, no more than are
// needed, each byte is compared, and what stands there is named when it is wrong.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"  /* gw_log_set_level */
#include "base/rng.h"  /* gw_rng_u32 */
#include "ckpt/diff.h" /* gw_checkpoint_diff */
#include "ckpt/place_ahead.h"
#include "ckpt/save.h" /* gw_checkpoint_save */
#include "harness.h"
#include "store_server/server.h" /* store_server_start */

enum { BLOCK = 4 << 20, BLOCKS = 6, ELEMS = BLOCKS * (BLOCK / 4) - 1000, SMALLS = 20 };

static const char HOME[] = "s3://bucket/far";
static const char STEP[] = "s3://bucket/far/checkpoints/step-00000001";

static store_server *begin(double first_byte_s) {
    store_server_options o = {.first_byte_s = first_byte_s};
    store_server *s = store_server_start(&o);
    store_server_use(s);
    gw_log_set_level(GW_LOG_QUIET);
    return s;
}

typedef struct state {
    uint32_t *big;
    uint32_t small[SMALLS][64];
    gw_ckpt_tensor t[1 + SMALLS];
    char names[SMALLS][24];
} state;

static gw_ckpt_tensor tensor(const char *name, void *data, int64_t n) {
    int64_t dims[1] = {n};
    return (gw_ckpt_tensor){.name = name,
                            .dtype = GW_F32,
                            .ndim = 1,
                            .dims = {n},
                            .box = gw_box_whole(1, dims),
                            .data = data};
}

static void fill(state *s, uint64_t seed) {
    gw_rng_key key = gw_rng_key_named(seed, "far");
    s->big = gw_mem_alloc(sizeof *s->big * ELEMS);
    for (int64_t i = 0; i < ELEMS; i++) s->big[i] = (uint32_t)gw_rng_u32(key, (uint64_t)i);
    s->t[0] = tensor("big", s->big, ELEMS);
    for (int k = 0; k < SMALLS; k++) {
        snprintf(s->names[k], sizeof s->names[k], "small.%d", k);
        for (int i = 0; i < 64; i++) s->small[k][i] = (uint32_t)(seed * 1000 + (uint64_t)(k + i));
        s->t[1 + k] = tensor(s->names[k], s->small[k], 64);
    }
}

static bool same(const state *a, const state *b) {
    return memcmp(a->big, b->big, sizeof *a->big * ELEMS) == 0 &&
           memcmp(a->small, b->small, sizeof a->small) == 0;
}

static void save_at(int64_t step, const state *s) {
    gw_diags dg;
    gw_ckpt_meta m = {.step = step, .batch = step, .loss_scale = 1};
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_save(HOME, &m, s->t, 1 + SMALLS, &dg), &dg);
    gw_diags_release(&dg);
}

static gw_status load_into(const char *path, gw_ckpt_tensor *t, int n, gw_ckpt_loaded *sums,
                           gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    gw_status st = gw_checkpoint_read(path, &mem, &m, dg);
    if (st == GW_OK) st = gw_checkpoint_load(m, t, n, sums, dg);
    gw_arena_release(&mem);
    return st;
}

/* One after another would be one at a time. */
TEST(a_load_from_a_store_has_ranges_under_way) {
    gw_diags dg;
    state was = {0}, is = {0};
    store_server_stats before, after;
    gw_ckpt_loaded sums;
    gw_diags_init(&dg);
    store_server *s = begin(0.05);
    fill(&was, 1);
    fill(&is, 2);
    save_at(1, &was);
    store_server_get_stats(s, &before);
    CHECK_OK(load_into(STEP, is.t, 1 + SMALLS, &sums, &dg), &dg);
    store_server_get_stats(s, &after);
    CHECK(same(&was, &is));
    CHECK_EQ(sums.files, 1);
    CHECK_EQ(sums.bytes_taken, ELEMS * 4 + SMALLS * 64 * 4);
    /* The manifest; both ends of the file; a request a block, and a few that were late twice. */
    CHECK_MSG(after.requests - before.requests <= 3 + 2 + BLOCKS + SMALLS + 4, "%lld requests",
              (long long)(after.requests - before.requests));
    CHECK_MSG(after.most_at_once >= 4, "%d at once", after.most_at_once);
    gw_mem_free(was.big);
    gw_mem_free(is.big);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* Files are opened once, whatever number of tensors is compared. */
TEST(a_diff_of_two_in_a_store_opens_each_once) {
    gw_arena mem = {0};
    gw_diags dg;
    state one = {0}, two = {0};
    gw_ckpt_manifest *a = NULL, *b = NULL;
    gw_ckpt_difference *d;
    store_server_stats before, after;
    int n, differing = 0;
    gw_diags_init(&dg);
    store_server *s = begin(0);
    fill(&one, 1);
    fill(&two, 1);
    two.small[3][7] ^= 1;
    two.big[ELEMS - 5] ^= 1;
    save_at(1, &one);
    save_at(2, &two);
    CHECK_OK(gw_checkpoint_read(STEP, &mem, &a, &dg), &dg);
    CHECK_OK(gw_checkpoint_read("s3://bucket/far/checkpoints/step-00000002", &mem, &b, &dg), &dg);
    store_server_get_stats(s, &before);
    CHECK_OK(gw_checkpoint_diff(a, b, &mem, &d, &n, &dg), &dg);
    store_server_get_stats(s, &after);
    for (int i = 0; i < n; i++) differing += d[i].how != GW_CKPT_SAME;
    CHECK_EQ(n, 1 + SMALLS);
    CHECK_EQ(differing, 2);
    /* Of each the ends, a block a request (some on the edge of two slices twice), the small ones.
     */
    CHECK_MSG(after.requests - before.requests <= 2 * (2 + 3 * BLOCKS + SMALLS) + 8,
              "%lld requests", (long long)(after.requests - before.requests));
    gw_mem_free(one.big);
    gw_mem_free(two.big);
    gw_arena_release(&mem);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* Only what a rank holds is fetched. */
TEST(a_part_takes_the_blocks_that_it_meets) {
    gw_diags dg;
    state was = {0};
    store_server_stats before, after;
    gw_diags_init(&dg);
    store_server *s = begin(0);
    fill(&was, 3);
    save_at(1, &was);
    int64_t from = 2 * (BLOCK / 4) + 10, n = BLOCK / 4;
    uint32_t *part = gw_mem_zalloc((size_t)n * 4);
    gw_ckpt_tensor t = tensor("big", part, ELEMS);
    t.box.start[0] = from;
    t.box.size[0] = n;
    store_server_get_stats(s, &before);
    CHECK_OK(load_into(STEP, &t, 1, NULL, &dg), &dg);
    store_server_get_stats(s, &after);
    CHECK(memcmp(part, was.big + from, (size_t)n * 4) == 0);
    CHECK(after.bytes_sent - before.bytes_sent < 2 * BLOCK + (1 << 20));
    gw_mem_free(part);
    gw_mem_free(was.big);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* 503, a body that is cut, one that is reset, one that stops and ends: all bytes come. */
TEST(what_breaks_on_the_way_is_fetched_again) {
    static const store_fault faults[] = {
        {.kind = FAULT_STATUS,
         .method = "GET",
         .path = "rank-",
         .count = 3,
         .status = 503,
         .text = "SlowDown"},
        {.kind = FAULT_CLOSE, .method = "GET", .path = "rank-", .skip = 1, .count = 3, .at = 70000},
        {.kind = FAULT_RESET, .method = "GET", .path = "rank-", .skip = 2, .count = 3, .at = 90000},
        {.kind = FAULT_STALL,
         .method = "GET",
         .path = "rank-",
         .skip = 3,
         .count = 2,
         .at = 5000,
         .seconds = 0.2},
    };
    gw_diags dg;
    state was = {0}, is = {0};
    gw_diags_init(&dg);
    store_server *s = begin(0);
    fill(&was, 4);
    fill(&is, 5);
    save_at(1, &was);
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        memset(is.big, 0, sizeof *is.big * ELEMS);
        memset(is.small, 0, sizeof is.small);
        store_server_no_faults(s);
        store_server_fault(s, &faults[i]);
        CHECK_OK(load_into(STEP, is.t, 1 + SMALLS, NULL, &dg), &dg);
        CHECK_MSG(same(&was, &is), "after fault %zu", i);
    }
    gw_mem_free(was.big);
    gw_mem_free(is.big);
    store_server_stop(s);
    gw_diags_release(&dg);
}

static void change(store_server *s, const char *path, int64_t at, int64_t cut) {
    int64_t n;
    uint8_t *bytes = store_server_get(s, path, &n);
    CHECK(bytes && at < n && cut < n);
    bytes[at] ^= 1;
    store_server_set(s, path, bytes, n - cut);
    free(bytes);
}

TEST(damage_in_a_store_is_named_and_nothing_else_is_waited_for) {
    static const char file[] = "/bucket/far/checkpoints/step-00000001/rank-00000.safetensors";
    gw_arena mem = {0};
    gw_diags dg;
    state was = {0}, is = {0};
    gw_ckpt_manifest *m = NULL;
    int64_t faults, n;
    gw_diags_init(&dg);
    store_server *s = begin(0);
    fill(&was, 6);
    fill(&is, 7);
    save_at(1, &was);
    uint8_t *good = store_server_get(s, file, &n);
    change(s, file, 3 * BLOCK + 77, 0);
    CHECK_FAILS(load_into(STEP, is.t, 1 + SMALLS, NULL, &dg), &dg, "rank-00000.safetensors");
    CHECK(strstr(gw_diags_first_error(&dg), "'big'"));
    gw_diags_clear(&dg);
    CHECK_OK(gw_checkpoint_read(STEP, &mem, &m, &dg), &dg);
    CHECK(gw_checkpoint_verify(m, &faults, &dg) == GW_ERR_FORMAT);
    CHECK_EQ(faults, 1);
    gw_diags_clear(&dg);
    store_server_set(s, file, good, n - 9); /* cut */
    CHECK_FAILS(load_into(STEP, is.t, 1 + SMALLS, NULL, &dg), &dg, "it was saved with");
    gw_diags_clear(&dg);
    store_server_set(s, file, good, n);
    change(s, file, 20, 0); /* its header */
    CHECK_FAILS(load_into(STEP, is.t, 1 + SMALLS, NULL, &dg), &dg, "safetensors-format");
    gw_diags_clear(&dg);
    store_server_set(s, file, good, n);
    CHECK_OK(gw_checkpoint_verify(m, &faults, &dg), &dg);
    CHECK_EQ(faults, 0);
    free(good);
    gw_mem_free(was.big);
    gw_mem_free(is.big);
    gw_arena_release(&mem);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* Ranges come in the order in which they were told; one that is left out is given up. */
TEST(ranges_are_taken_in_their_order) {
    enum { N = 300, EACH = 1 << 20 };
    gw_diags dg;
    gw_store *store;
    gw_ahead_object is;
    bool told;
    gw_diags_init(&dg);
    store_server *s = begin(0);
    uint8_t *bytes = gw_mem_alloc(N * 1000), *got = gw_mem_alloc(EACH);
    for (int i = 0; i < N * 1000; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
    store_server_set(s, "/bucket/a", bytes, N * 1000);
    CHECK_OK(gw_store_open("s3://bucket", NULL, &store, &dg), &dg);
    gw_ahead *a = gw_ahead_new(store);
    for (int i = 0; i < N; i++) gw_ahead_tell(a, "a", i * 1000, 1000);
    for (int i = 0; i < N; i += 1 + i % 3) {
        CHECK_OK(gw_ahead_take(a, "a", i * 1000, 1000, got, &is, &told, &dg), &dg);
        CHECK(told && memcmp(got, bytes + i * 1000, 1000) == 0);
        CHECK_EQ(is.bytes, N * 1000);
        CHECK(*is.etag);
        CHECK_OK(gw_ahead_take(a, "a", i * 1000, 1000, got, NULL, &told, &dg), &dg);
        CHECK(!told); /* it was taken */
    }
    gw_ahead_free(a);
    /* More than fits is told; what is taken makes room. */
    a = gw_ahead_new(store);
    char key[40];
    for (int i = 0; i < 2 * (GW_AHEAD_BYTES / EACH); i++) {
        snprintf(key, sizeof key, "k%d", i);
        if (i % 64 == 0) {
            char path[60];
            uint8_t *one = store_server_noise_bytes(EACH, (uint64_t)i);
            snprintf(path, sizeof path, "/bucket/k%d", i);
            store_server_set(s, path, one, EACH);
            gw_mem_free(one);
        }
        gw_ahead_tell(a, key, 0, EACH);
    }
    for (int i = 0; i < 2 * (GW_AHEAD_BYTES / EACH); i += 64) {
        snprintf(key, sizeof key, "k%d", i);
        uint8_t *one = store_server_noise_bytes(EACH, (uint64_t)i);
        CHECK_OK(gw_ahead_take(a, key, 0, EACH, got, NULL, &told, &dg), &dg);
        CHECK(told && memcmp(got, one, EACH) == 0);
        gw_mem_free(one);
    }
    gw_ahead_free(a);
    gw_store_free(store);
    gw_mem_free(bytes);
    gw_mem_free(got);
    store_server_stop(s);
    gw_diags_release(&dg);
}
