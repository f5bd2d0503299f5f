// SPDX-License-Identifier: Apache-2.0
// Reading ahead from a server that misbehaves: the right bytes, or a named error, in bounded time
// and memory.
#include <dirent.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"      /* gw_mem_alloc */
#include "base/clock.h"      /* gw_clock_ns */
#include "base/io.h"         /* gw_file_read */
#include "file/fetch.h"      /* what is tested */
#include "file/fetch_rate.h" /* gw_rate */
#include "harness.h"
#include "store_server/server.h" /* store_server_start */

typedef struct rig {
    store_server *server;
    gw_store *store;
    gw_fetch *fetch;
    gw_diags dg;
} rig;

static void open_fetch(rig *r, const gw_fetch_options *o) {
    CHECK_OK(gw_fetch_open(r->store, o, &r->fetch, &r->dg), &r->dg);
}

static rig set_up(const store_server_options *so, const gw_fetch_options *o) {
    rig r = {0};
    gw_store_options more = {.backoff_s = 0.002, .stall_s = 8, .stall_bytes = 100};
    gw_diags_init(&r.dg);
    r.server = store_server_start(so);
    more.endpoint = store_server_url(r.server);
    setenv("AWS_ACCESS_KEY_ID", "k", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    unsetenv("AWS_PROFILE");
    CHECK_OK(gw_store_open("s3://noise", &more, &r.store, &r.dg), &r.dg);
    open_fetch(&r, o);
    return r;
}

static void tear_down(rig *r) {
    gw_fetch_close(r->fetch);
    gw_store_free(r->store);
    store_server_stop(r->server);
    gw_diags_release(&r->dg);
}

static gw_fetch_ticket submit(rig *r, const char *key, int64_t offset, int64_t bytes) {
    gw_fetch_ticket t;
    gw_fetch_item item = {.key = key, .offset = offset, .bytes = bytes, .tag = (uint64_t)offset};
    CHECK_OK(gw_fetch_submit(r->fetch, &item, &t, &r->dg), &r->dg);
    return t;
}

/* Waits, compares with noise, releases. */
static void check_block(rig *r, gw_fetch_ticket t, uint64_t seed, int64_t offset, int64_t bytes) {
    gw_fetch_block b;
    CHECK_OK(gw_fetch_wait(r->fetch, t, &b, &r->dg), &r->dg);
    CHECK_EQ(b.bytes, bytes);
    CHECK_EQ(b.tag, (uint64_t)offset);
    for (int64_t i = 0; i < bytes; i++)
        if (b.data[i] != store_server_noise(seed, offset + i))
            test_fail(__FILE__, __LINE__, "byte %lld is wrong", (long long)i);
    gw_fetch_release(r->fetch, &b);
}

TEST(fetch_ranges_and_wholes) {
    rig r = set_up(NULL, &(gw_fetch_options){.piece_bytes = 100000});
    gw_fetch_ticket t[6];
    t[0] = submit(&r, "3/1000000", 0, 1000000);
    t[1] = submit(&r, "3/1000000", 999999, 1);
    t[2] = submit(&r, "3/1000000", 12345, 250000);
    t[3] = submit(&r, "3/1000000", 0, -1);
    t[4] = submit(&r, "3/1000000", 999000, -1);
    t[5] = submit(&r, "3/0", 0, -1);
    check_block(&r, t[5], 3, 0, 0);
    check_block(&r, t[2], 3, 12345, 250000);
    check_block(&r, t[0], 3, 0, 1000000);
    check_block(&r, t[1], 3, 999999, 1);
    check_block(&r, t[4], 3, 999000, 1000);
    check_block(&r, t[3], 3, 0, 1000000);
    gw_fetch_block b;
    CHECK_FAILS(gw_fetch_wait(r.fetch, t[0], &b, &r.dg), &r.dg, "ticket");
    tear_down(&r);
}

/* Single faults anywhere end in the right bytes. */
TEST(fetch_survives_faults) { /* stalls are told early: the server stalls for 5 s */
    static const store_fault faults[] = {
        {.kind = FAULT_STATUS, .status = 503, .text = "SlowDown", .skip = 1, .count = 4},
        {.kind = FAULT_STATUS, .status = 500, .text = "InternalError", .count = 3},
        {.kind = FAULT_RESET, .at = 0, .skip = 2, .count = 3},
        {.kind = FAULT_RESET, .at = 60000, .count = 3},
        {.kind = FAULT_CLOSE, .at = 1, .count = 3},
        {.kind = FAULT_STALL, .at = 5000, .seconds = 5, .skip = 1, .count = 2},
        {.kind = FAULT_STALL, .at = 0, .seconds = 5, .count = 1},
        {.kind = FAULT_DRIP, .at = 100, .seconds = 0.02, .count = 1},
        {.kind = FAULT_SHIFT_RANGE, .at = 7, .count = 2},
        {.kind = FAULT_NO_RANGE, .count = 3},
        {.kind = FAULT_GARBAGE, .count = 2},
    };
    rig r = set_up(NULL, &(gw_fetch_options){.piece_bytes = 100000, .stall_s = 0.3});
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        test_note("fault %zu", i);
        store_server_fault(r.server, &faults[i]);
        gw_fetch_ticket a = submit(&r, "7/1000000", 0, 700000),
                        b = submit(&r, "7/1000000", 700000, -1);
        check_block(&r, a, 7, 0, 700000);
        check_block(&r, b, 7, 700000, 300000);
        store_server_no_faults(r.server);
    }
    gw_fetch_stats s;
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_EQ(s.items, 2 * GW_COUNT(faults));
    CHECK_EQ(s.items_failed, 0);
    CHECK(s.retries >= 15);
    CHECK(s.throttled >= 1);
    CHECK(s.stalls >= 3);
    CHECK_EQ(s.buffered_bytes, 0);
    tear_down(&r);
}

TEST(fetch_gives_up_in_words) {
    static const struct {
        store_fault fault;
        const char *says;
    } cases[] = {
        {{.kind = FAULT_STATUS, .status = 503, .text = "SlowDown"}, "503 SlowDown"},
        {{.kind = FAULT_STATUS, .status = 403, .text = "AccessDenied"}, "store-denied"},
        {{.kind = FAULT_RESET, .at = 0}, "store-network"},
        {{.kind = FAULT_STALL, .at = 10, .seconds = 9}, "store-stalled"},
        {{.kind = FAULT_DRIP, .at = 0, .seconds = 0.02}, "store-stalled"},
        {{.kind = FAULT_SHIFT_RANGE, .at = 3}, "store-response"},
    };
    rig r = set_up(NULL, &(gw_fetch_options){.tries = 2, .piece_bytes = 5000, .stall_s = 0.3});
    gw_fetch_block b;
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        test_note("case %zu", i);
        store_server_fault(r.server, &cases[i].fault);
        int64_t begun = gw_clock_ns();
        gw_fetch_ticket t = submit(&r, "7/100000", 0, 20000);
        CHECK_FAILS(gw_fetch_wait(r.fetch, t, &b, &r.dg), &r.dg, cases[i].says);
        CHECK((double)(gw_clock_ns() - begun) * 1e-9 < 6);
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "nothing", 0, 10), &b, &r.dg), &r.dg,
                "store-missing");
    CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "nothing", 0, -1), &b, &r.dg), &r.dg,
                "store-missing");
    CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "7/100000", 99000, 2000), &b, &r.dg), &r.dg,
                "ends at byte 100000");
    CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "7/100000", 200000, 10), &b, &r.dg), &r.dg,
                "fetch-short");
    gw_fetch_close(r.fetch);
    open_fetch(&r, NULL);
    check_block(&r, submit(&r, "7/100000", 0, 20000), 7, 0, 20000);
    tear_down(&r);
}

/* The object changes between two pieces, or between two tries of one: an error, never a mix. */
TEST(fetch_never_mixes_versions) {
    rig r = set_up(NULL, &(gw_fetch_options){.piece_bytes = 10000, .fixed_in_flight = 1});
    uint8_t *bytes = store_server_noise_bytes(50000, 1);
    gw_fetch_block b;
    for (int i = 0; i < 2; i++) {
        store_server_set(r.server, "/noise/changing", bytes, 50000);
        if (i == 1)
            store_server_fault(r.server,
                               &(store_fault){.kind = FAULT_CLOSE, .at = 500, .count = 1});
        store_server_fault(r.server,
                           &(store_fault){.kind = FAULT_CHANGE, .skip = 1 - i, .count = 1});
        CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "changing", 0, 50000), &b, &r.dg), &r.dg,
                    "store-changed");
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    gw_mem_free(bytes);
    tear_down(&r);
}

static gw_fetch_item damaged_item(const uint8_t *bytes, int64_t n) {
    gw_fetch_item item = {.key = "shard", .bytes = n, .check = GW_FETCH_CHECK_SHA256};
    SHA256(bytes, (size_t)n, item.digest);
    return item;
}

/* A damaged object is fetched once more; should it be damaged then, the caller is told. */
TEST(fetch_checks_hashes) {
    rig r = set_up(NULL, NULL);
    uint8_t *bytes = store_server_noise_bytes(50000, 1);
    gw_fetch_item item = damaged_item(bytes, 50000);
    gw_fetch_block b;
    gw_fetch_ticket t;
    gw_fetch_stats s;
    store_server_set(r.server, "/noise/shard", bytes, 50000);
    store_server_fault(r.server, &(store_fault){.kind = FAULT_FLIP, .at = 30000, .count = 1});
    CHECK_OK(gw_fetch_submit(r.fetch, &item, &t, &r.dg), &r.dg);
    CHECK_OK(gw_fetch_wait(r.fetch, t, &b, &r.dg), &r.dg);
    CHECK(memcmp(b.data, bytes, 50000) == 0);
    gw_fetch_release(r.fetch, &b);
    store_server_no_faults(r.server);
    store_server_fault(r.server, &(store_fault){.kind = FAULT_FLIP, .at = 30000});
    CHECK_OK(gw_fetch_submit(r.fetch, &item, &t, &r.dg), &r.dg);
    CHECK_FAILS(gw_fetch_wait(r.fetch, t, &b, &r.dg), &r.dg, "fetch-damaged");
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_EQ(s.damaged, 3);
    CHECK_EQ(s.items_failed, 1);
    gw_mem_free(bytes);
    tear_down(&r);
}

/* Memory stays under the cap whatever is queued, and everything comes. */
TEST(fetch_caps_buffers) {
    rig r = set_up(NULL, &(gw_fetch_options){.buffer_bytes = 1 << 20, .piece_bytes = 50000});
    gw_fetch_ticket t[64];
    gw_fetch_stats s;
    gw_fetch_block b;
    for (int i = 0; i < 64; i++) t[i] = submit(&r, "5/100000000", i * INT64_C(300000), 300000);
    for (int i = 0; i < 64; i++) check_block(&r, t[i], 5, i * INT64_C(300000), 300000);
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_MSG(s.buffered_peak_bytes <= 1 << 20, "%lld", (long long)s.buffered_peak_bytes);
    CHECK(s.buffered_peak_bytes >= 600000);
    CHECK_EQ(s.bytes, 64 * 300000);
    CHECK_FAILS(
        gw_fetch_submit(r.fetch, &(gw_fetch_item){.key = "x", .bytes = 2 << 20}, &t[0], &r.dg),
        &r.dg, "fetch-too-large");
    CHECK_FAILS(gw_fetch_wait(r.fetch, submit(&r, "5/3000000", 0, -1), &b, &r.dg), &r.dg,
                "fetch-too-large");
    tear_down(&r);
}

/* Blocks that are kept while more is waited for than fits: told, not hung. */
TEST(fetch_says_when_blocks_are_kept) {
    rig r = set_up(NULL, &(gw_fetch_options){.buffer_bytes = 100000, .stall_s = 0.3});
    gw_fetch_block a, b;
    gw_fetch_ticket t = submit(&r, "5/1000000", 0, 80000),
                    u = submit(&r, "5/1000000", 80000, 80000);
    CHECK_OK(gw_fetch_wait(r.fetch, t, &a, &r.dg), &r.dg);
    CHECK_FAILS(gw_fetch_wait(r.fetch, u, &b, &r.dg), &r.dg, "not released");
    gw_fetch_release(r.fetch, &a);
    check_block(&r, u, 5, 80000, 80000);
    tear_down(&r);
}

/* Cancel and close in every state, many times; the sanitizers look for what is left. */
TEST(fetch_cancel_and_close) {
    rig r = set_up(&(store_server_options){.first_byte_s = 0.002}, NULL);
    gw_fetch_close(r.fetch);
    for (int round = 0; round < 40; round++) {
        gw_fetch_ticket t[20];
        gw_fetch_block kept;
        open_fetch(&r, &(gw_fetch_options){.piece_bytes = 10000, .buffer_bytes = 200000});
        for (int i = 0; i < 20; i++) t[i] = submit(&r, "5/1000000", i * 20000, i % 5 ? 20000 : -1);
        usleep((useconds_t)(round * 300));
        for (int i = 1; i < 20; i += 3) gw_fetch_cancel(r.fetch, t[i]);
        if (round % 2) CHECK(gw_fetch_wait(r.fetch, t[2], &kept, &r.dg) == GW_OK);
        gw_fetch_close(r.fetch);
    }
    open_fetch(&r, NULL);
    tear_down(&r);
}

/* Six requests of three hundred are late by eight seconds: second ones beside them bring the bytes.
 */
TEST(fetch_hedges_late_requests) {
    static const char *const late[] = {"/noise/60/",  "/noise/100/", "/noise/140/",
                                       "/noise/180/", "/noise/220/", "/noise/260/"};
    enum { N = 300 };
    rig r = set_up(&(store_server_options){.first_byte_s = 0.005},
                   &(gw_fetch_options){.fixed_in_flight = 8});
    gw_fetch_stats s;
    gw_fetch_ticket t[N];
    char key[32];
    for (size_t i = 0; i < GW_COUNT(late); i++)
        store_server_fault(
            r.server,
            &(store_fault){.kind = FAULT_DELAY, .seconds = 8, .path = late[i], .count = 1});
    int64_t begun = gw_clock_ns();
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "%d/1000", i);
        t[i] = submit(&r, key, 0, 1000);
    }
    for (int i = 0; i < N; i++) check_block(&r, t[i], (uint64_t)i, 0, 1000);
    double took = (double)(gw_clock_ns() - begun) * 1e-9;
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_MSG(s.hedges_won >= 6 && took < 7, "%lld of %lld hedges won, %.2f s",
              (long long)s.hedges_won, (long long)s.hedges, took);
    CHECK(s.hedges <= s.requests / 10);
    tear_down(&r);
}

/* 1,000 objects of 100 kB behind 20 ms: one after another that is 20 s (awslabs s3-connector#215).
 */
TEST(fetch_many_small_objects) {
    rig r = set_up(&(store_server_options){.first_byte_s = 0.02}, NULL);
    enum { N = 1000 };
    gw_fetch_ticket *t = gw_mem_alloc(sizeof *t * N);
    char key[40];
    int64_t begun = gw_clock_ns();
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "%d/100000", i);
        t[i] = submit(&r, key, 0, 100000);
    }
    for (int i = 0; i < N; i++) {
        gw_fetch_block b;
        CHECK_OK(gw_fetch_wait(r.fetch, t[i], &b, &r.dg), &r.dg);
        CHECK(b.data[99999] == store_server_noise((uint64_t)i, 99999));
        gw_fetch_release(r.fetch, &b);
    }
    double took = (double)(gw_clock_ns() - begun) * 1e-9;
    CHECK_MSG(took < 10, "%.2f s", took);
    gw_mem_free(t);
    tear_down(&r);
}

/* --- the cache -------------------------------------------------------------------------------- */

static int64_t bytes_in(const char *dir, int *files) {
    gw_arena a = {0};
    int64_t sum = 0;
    *files = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (!strstr(e->d_name, ".gwcache")) continue;
        if (stat(gw_path_join(&a, dir, e->d_name), &st) == 0) sum += st.st_size, ++*files;
    }
    if (d) closedir(d);
    gw_arena_release(&a);
    return sum;
}

/* Changes one byte of each cached file, or cuts each. */
static void hurt_cache(const char *dir, bool cut) {
    gw_arena a = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        const char *path = gw_path_join(&a, dir, e->d_name);
        if (!strstr(e->d_name, ".gwcache")) continue;
        if (cut) {
            CHECK(truncate(path, 1234) == 0);
            continue;
        }
        FILE *f = fopen(path, "r+");
        CHECK(f && fseek(f, 777, SEEK_SET) == 0);
        int c = fgetc(f);
        CHECK(fseek(f, 777, SEEK_SET) == 0 && fputc(c ^ 1, f) != EOF && fclose(f) == 0);
    }
    if (d) closedir(d);
    gw_arena_release(&a);
}

TEST(fetch_cache_keeps_and_checks) {
    const char *dir = test_tmp_path("cache");
    rig r = set_up(NULL, &(gw_fetch_options){.cache_dir = dir});
    gw_fetch_stats s;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 4; i++)
            check_block(&r, submit(&r, "8/400000", i * 100000, 100000), 8, i * 100000, 100000);
        gw_fetch_get_stats(r.fetch, &s);
        static const int64_t hits[] = {0, 4, 4, 8, 8}, damaged[] = {0, 0, 4, 4, 4};
        CHECK_EQ(s.cache_hits, hits[round]);
        CHECK_EQ(s.cache_damaged, damaged[round]);
        if (round == 1) hurt_cache(dir, false); /* found by the hash, fetched anew */
        if (round == 3) hurt_cache(dir, true);  /* found by the length */
    }
    check_block(&r, submit(&r, "8/400000", 0, -1), 8, 0, 400000);
    check_block(&r, submit(&r, "8/400000", 0, -1), 8, 0, 400000);
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_EQ(s.cache_hits, 9);
    gw_fetch_forget(r.fetch, &(gw_fetch_item){.key = "8/400000", .bytes = -1});
    check_block(&r, submit(&r, "8/400000", 0, -1), 8, 0, 400000);
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_EQ(s.cache_hits, 9);
    tear_down(&r);
}

/* The limit holds, and what was used last stays. */
TEST(fetch_cache_forgets_the_oldest) {
    const char *dir = test_tmp_path("cache");
    rig r = set_up(NULL, &(gw_fetch_options){.cache_dir = dir, .cache_bytes = 1000000});
    gw_fetch_stats s;
    int files;
    for (int i = 0; i < 30; i++) {
        check_block(&r, submit(&r, "8/9000000", i * 100000, 100000), 8, i * 100000, 100000);
        check_block(&r, submit(&r, "8/9000000", 0, 100000), 8, 0, 100000);
        usleep(2000); /* files' times must differ */
        CHECK(bytes_in(dir, &files) <= 1000000);
    }
    gw_fetch_get_stats(r.fetch, &s);
    CHECK_EQ(s.cache_hits, 30);
    CHECK(s.cache_evicted >= 20);
    CHECK(files >= 7);
    tear_down(&r);
}

typedef struct sharer {
    pthread_t thread;
    gw_store *store;
    const char *dir;
    bool ok;
} sharer;

static void *share(void *user) {
    sharer *u = user;
    gw_fetch *f;
    gw_diags dg;
    gw_diags_init(&dg);
    u->ok =
        gw_fetch_open(u->store, &(gw_fetch_options){.cache_dir = u->dir, .cache_bytes = 3000000},
                      &f, &dg) == GW_OK;
    for (int i = 0; u->ok && i < 60; i++) {
        gw_fetch_ticket t;
        gw_fetch_block b;
        int64_t at = (i % 20) * INT64_C(200000);
        gw_fetch_item item = {.key = "6/9000000", .offset = at, .bytes = 200000};
        u->ok =
            gw_fetch_submit(f, &item, &t, &dg) == GW_OK && gw_fetch_wait(f, t, &b, &dg) == GW_OK;
        for (int64_t k = 0; u->ok && k < 200000; k++)
            u->ok = b.data[k] == store_server_noise(6, at + k);
        if (u->ok) gw_fetch_release(f, &b);
    }
    gw_fetch_close(f);
    gw_diags_release(&dg);
    return NULL;
}

/* Several users of one cache, which is smaller than what they read: nobody sees a half-written file
 * (mosaicml/streaming#345), whoever writes, reads or removes at the time. */
TEST(fetch_cache_is_shared) {
    rig r = set_up(NULL, NULL);
    sharer u[4];
    for (int i = 0; i < 4; i++) {
        u[i] = (sharer){.store = r.store, .dir = test_tmp_path("shared")};
        CHECK(pthread_create(&u[i].thread, NULL, share, &u[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(u[i].thread, NULL);
        CHECK(u[i].ok);
    }
    tear_down(&r);
}

/* --- a directory, and how much is in flight --------------------------------------------------- */

TEST(fetch_from_a_directory) {
    gw_diags dg;
    gw_store *s;
    gw_fetch *f;
    gw_fetch_block b;
    gw_fetch_ticket t[4];
    gw_diags_init(&dg);
    CHECK_OK(gw_store_open(test_tmp_path("d"), NULL, &s, &dg), &dg);
    CHECK_OK(gw_store_put(s, "x/y", "0123456789", 10, &dg), &dg);
    CHECK_OK(gw_store_put(s, "empty", "", 0, &dg), &dg);
    CHECK_OK(gw_fetch_open(s, NULL, &f, &dg), &dg);
    const gw_fetch_item items[] = {{.key = "x/y", .bytes = -1},
                                   {.key = "x/y", .offset = 3, .bytes = 4},
                                   {.key = "empty", .bytes = -1},
                                   {.key = "none", .bytes = -1}};
    for (int i = 0; i < 4; i++) CHECK_OK(gw_fetch_submit(f, &items[i], &t[i], &dg), &dg);
    CHECK_OK(gw_fetch_wait(f, t[0], &b, &dg), &dg);
    CHECK(b.bytes == 10 && memcmp(b.data, "0123456789", 10) == 0);
    CHECK_OK(gw_fetch_wait(f, t[1], &b, &dg), &dg);
    CHECK(b.bytes == 4 && memcmp(b.data, "3456", 4) == 0);
    CHECK_OK(gw_fetch_wait(f, t[2], &b, &dg), &dg);
    CHECK_EQ(b.bytes, 0);
    CHECK_FAILS(gw_fetch_wait(f, t[3], &b, &dg), &dg, "store-missing");
    gw_fetch_close(f);
    gw_store_free(s);
    gw_diags_release(&dg);
}

/* A link of B bytes a second, answers after L, simulated: requests go out whenever the limit
 * allows, each comes in L later at the speed of the link. Returns the share of the link that was
 * used. */
static double simulate(double bandwidth, double latency, int64_t piece, double seconds,
                       int64_t *limit) {
    enum { TICK_NS = 1000000, MAX = 4096 };
    gw_rate r;
    struct {
        int64_t ready_ns, left;
        bool answered;
    } q[MAX];
    int n = 0;
    int64_t owed = 0, counted = 0;
    gw_rate_init(&r, piece);
    for (int64_t now = TICK_NS; (double)now * 1e-9 < seconds; now += TICK_NS) {
        while (n < MAX && (n == 0 || owed < r.outstanding_limit)) {
            q[n].ready_ns = now + (int64_t)(latency * 1e9);
            q[n].left = piece;
            q[n++].answered = false;
            owed += piece;
            gw_rate_sent(&r, piece);
        }
        int64_t tick = (int64_t)(bandwidth * TICK_NS * 1e-9);
        for (int i = 0; i < n && tick > 0; i++) {
            if (q[i].ready_ns > now) continue;
            if (!q[i].answered) gw_rate_first_byte(&r, latency);
            q[i].answered = true;
            int64_t k = GW_MIN(tick, q[i].left);
            q[i].left -= k;
            tick -= k;
            owed -= k;
            if ((double)now * 1e-9 > seconds / 2) counted += k;
            gw_rate_received(&r, now, k);
            if (q[i].left == 0) q[i--] = q[--n];
        }
    }
    *limit = r.outstanding_limit;
    return (double)counted / (bandwidth * seconds / 2);
}

/* Bandwidth × latency is found from either side: on thin and fat links, with small and large
 * pieces, at least 97 % of the link is used, and never more than a few times what fills it. */
TEST(fetch_rate_finds_the_link) {
    static const double bandwidths[] = {5e6, 100e6, 2e9}, latencies[] = {0.002, 0.05, 0.2};
    static const int64_t pieces[] = {100000, 1 << 20, 8 << 20};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 3; k++) {
                int64_t limit;
                double needs = bandwidths[i] * latencies[j];
                if (needs / (double)pieces[k] > 2000) continue; /* more than the simulation holds */
                double used = simulate(bandwidths[i], latencies[j], pieces[k], 10, &limit);
                double most = 4 * needs + 8 * (double)pieces[k] + bandwidths[i] * 0.1;
                CHECK_MSG(used > 0.97 && (double)limit < most,
                          "%.0f MB/s, %.0f ms, pieces of %lld: %.3f of the link, limit %.1f MB, "
                          "link holds %.1f MB",
                          bandwidths[i] * 1e-6, latencies[j] * 1e3, (long long)pieces[k], used,
                          (double)limit * 1e-6, needs * 1e-6);
            }
}
