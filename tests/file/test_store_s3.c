// SPDX-License-Identifier: Apache-2.0
// The store against a real S3 server. tests/file/test_store_s3.sh starts one and names it in
// GW_TEST_S3; without it these tests are skipped. Each test has a prefix of its own.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_arena, gw_mem_alloc */
#include "base/rng.h"   /* gw_rng_u64 */
#include "file/store.h" /* what is tested */
#include "harness.h"

/* A store below the test bucket, with keys of its own. */
static gw_store *open_below(const char *prefix, const gw_store_options *more) {
    const char *endpoint = getenv("GW_TEST_S3");
    if (!endpoint || !*endpoint) SKIP("GW_TEST_S3 names no server; test_store_s3.sh starts one");
    gw_store_options o = more ? *more : (gw_store_options){0};
    char url[200];
    gw_diags dg;
    gw_store *s;
    gw_diags_init(&dg);
    o.endpoint = endpoint;
    snprintf(url, sizeof url, "s3://gradwright-test/%s", prefix);
    setenv("AWS_ACCESS_KEY_ID", "test-key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
    CHECK_OK(gw_store_open(url, &o, &s, &dg), &dg);
    gw_diags_release(&dg);
    return s;
}

static uint8_t *noise(int64_t n, uint64_t seed) {
    uint8_t *p = gw_mem_alloc((size_t)n + 8);
    gw_rng_key key = gw_rng_key_named(seed, "noise");
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t x = gw_rng_u64(key, (uint64_t)i);
        memcpy(p + i, &x, 8);
    }
    return p;
}

TEST(s3_put_get_stat_delete) {
    gw_diags dg;
    gw_arena a = {0};
    gw_str text = {0};
    gw_store_entry e;
    bool found;
    char part[5] = {0};
    gw_diags_init(&dg);
    gw_store *s = open_below("basic", NULL);
    CHECK_OK(gw_store_put(s, "greeting.txt", "hello, store", 12, &dg), &dg);
    CHECK_OK(gw_store_read(s, "greeting.txt", 0, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), "hello, store");
    CHECK_OK(gw_store_get(s, "greeting.txt", NULL, 7, 4, part, &dg), &dg);
    CHECK_STR(part, "stor");
    CHECK_OK(gw_store_stat(s, "greeting.txt", &a, &e, &found, &dg), &dg);
    CHECK(found);
    CHECK_EQ(e.bytes, 12);
    CHECK(e.modified > 1.6e9);
    CHECK_OK(gw_store_get(s, "greeting.txt", e.etag, 0, 4, part, &dg), &dg);
    CHECK_FAILS(gw_store_read(s, "greeting.txt", 11, &text, &dg), &dg, "larger than the 11");
    CHECK_FAILS(gw_store_get(s, "greeting.txt", NULL, 10, 4, part, &dg), &dg, "ends at byte 12");
    CHECK_OK(gw_store_put(s, "greeting.txt", "HELLO, STORE", 12, &dg), &dg);
    CHECK_FAILS(gw_store_get(s, "greeting.txt", e.etag, 0, 4, part, &dg), &dg, "store-changed");
    CHECK_OK(gw_store_copy(s, "greeting.txt", "other.txt", &dg), &dg);
    CHECK_OK(gw_store_get(s, "other.txt", NULL, 0, 4, part, &dg), &dg);
    CHECK_STR(part, "HELL");
    CHECK_OK(gw_store_delete(s, "greeting.txt", &dg), &dg);
    CHECK_OK(gw_store_delete(s, "greeting.txt", &dg), &dg);
    CHECK_OK(gw_store_stat(s, "greeting.txt", &a, &e, &found, &dg), &dg);
    CHECK(!found);
    CHECK_FAILS(gw_store_read(s, "greeting.txt", 0, &text, &dg), &dg, "store-missing");
    CHECK_FAILS(gw_store_copy(s, "greeting.txt", "x", &dg), &dg, "basic/greeting.txt");
    CHECK_FAILS(gw_store_rename(s, "other.txt", "x", &dg), &dg, "store-no-rename");
    CHECK_OK(gw_store_put(s, "empty", "", 0, &dg), &dg);
    gw_str_clear(&text);
    CHECK_OK(gw_store_read(s, "empty", 0, &text, &dg), &dg);
    CHECK_EQ(text.len, 0);
    gw_str_release(&text);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

/* Keys that curl's own signing fails for (curl#13754, curl#11794), and worse. The listing must give
 * them back byte for byte, and each must read back. */
TEST(s3_odd_keys) {
    static const char *const keys[] = {
        "a=b/c",         "plus+plus",   "space here",     "tilde~",   "percent%41",
        "amp&er=s?and#", "quote'\"",    "semi;colon:at@", "(paren)!", "star*",
        "schön/日本語",  "back\\slash", "curly{}[]|^`<>", "a/b/c/d",  "comma,dollar$",
        "trailing.",     "%2F-escaped", "..dots",         "x//y",
    };
    gw_diags dg;
    gw_arena a = {0};
    gw_store_list list;
    gw_diags_init(&dg);
    gw_store *s = open_below("odd=keys/with space+", NULL);
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        CHECK_OK(gw_store_put(s, keys[i], keys[i], (int64_t)strlen(keys[i]), &dg), &dg);
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        gw_str text = {0};
        CHECK_OK(gw_store_read(s, keys[i], 0, &text, &dg), &dg);
        CHECK_STR(gw_str_c(&text), keys[i]);
        gw_str_release(&text);
    }
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, GW_COUNT(keys));
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        bool found = false;
        for (int64_t j = 0; j < list.count; j++) found |= !strcmp(list.entries[j].key, keys[i]);
        CHECK_MSG(found, "'%s' is not listed", keys[i]);
    }
    CHECK_OK(gw_store_list_all(s, "a=", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 1);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

TEST(s3_lists_pages_and_folders) {
    gw_diags dg;
    gw_arena a = {0};
    gw_store_list list;
    gw_diags_init(&dg);
    gw_store *s = open_below("many", &(gw_store_options){.page_keys = 40});
    char key[64];
    for (int i = 0; i < 123; i++) { /* four pages */
        snprintf(key, sizeof key, "step-%04d/m", i);
        CHECK_OK(gw_store_put(s, key, key, 3, &dg), &dg);
    }
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 123);
    for (int i = 0; i < 123; i++) {
        snprintf(key, sizeof key, "step-%04d/m", i);
        CHECK_STR(list.entries[i].key, key);
        CHECK_EQ(list.entries[i].bytes, 3);
    }
    CHECK_OK(gw_store_list_all(s, "step-00", true, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 100);
    CHECK(list.entries[7].is_folder);
    CHECK_STR(list.entries[7].key, "step-0007/");
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

TEST(s3_put_new_has_one_winner) {
    gw_diags dg;
    gw_str text = {0};
    bool won;
    gw_diags_init(&dg);
    gw_store *s = open_below("commit", NULL);
    CHECK_OK(gw_store_put_new(s, "manifest", "first", 5, &won, &dg), &dg);
    CHECK(won);
    CHECK_OK(gw_store_put_new(s, "manifest", "second", 6, &won, &dg), &dg);
    CHECK(!won);
    CHECK_OK(gw_store_read(s, "manifest", 0, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), "first");
    gw_str_release(&text);
    gw_diags_release(&dg);
    gw_store_free(s);
}

static void check_stream(gw_store *s, const char *key, int64_t n, int64_t piece, int64_t expected) {
    gw_diags dg;
    gw_str back = {0};
    gw_store_writer *w;
    uint8_t *bytes = noise(n, (uint64_t)n);
    gw_diags_init(&dg);
    CHECK_OK(gw_store_write_open(s, key, expected, &w, &dg), &dg);
    for (int64_t at = 0; at < n; at += piece)
        CHECK_OK(gw_store_write(w, bytes + at, GW_MIN(piece, n - at), &dg), &dg);
    CHECK_OK(gw_store_write_finish(w, &dg), &dg);
    CHECK_OK(gw_store_read(s, key, 0, &back, &dg), &dg);
    CHECK_EQ(back.len, n);
    CHECK(n == 0 || memcmp(back.data, bytes, (size_t)n) == 0);
    gw_str_release(&back);
    gw_mem_free(bytes);
    gw_diags_release(&dg);
}

TEST(s3_streams) {
    gw_store *s = open_below("streams", &(gw_store_options){.part_bytes = 5 << 20});
    int64_t part = 5 << 20;
    check_stream(s, "none", 0, 1, 0);
    check_stream(s, "small", 1000, 7, 0);
    check_stream(s, "one part", part, 1 << 20, part);
    check_stream(s, "one and a byte", part + 1, 1 << 20, 0);
    check_stream(s, "seven parts", 7 * part - 3, 1234567, 7 * part - 3);
    gw_store_free(s);
}

/* Nothing of an aborted stream remains, and a killed one is found by sweep. */
TEST(s3_abort_and_sweep) {
    gw_store *s = open_below("aborted", &(gw_store_options){.part_bytes = 5 << 20, .tries = 2});
    gw_diags dg;
    gw_arena a = {0};
    gw_store_list list;
    gw_store_writer *w, *killed;
    int64_t n = 12 << 20, removed;
    uint8_t *bytes = noise(n, 3);
    gw_diags_init(&dg);
    CHECK_OK(gw_store_write_open(s, "gone", 0, &w, &dg), &dg);
    CHECK_OK(gw_store_write(w, bytes, n, &dg), &dg);
    gw_store_write_abort(w);
    CHECK_OK(gw_store_sweep(s, "", -60, &removed, &dg), &dg);
    CHECK_EQ(removed, 0);
    CHECK_OK(gw_store_write_open(s, "killed", 0, &killed, &dg), &dg);
    CHECK_OK(gw_store_write(killed, bytes, n, &dg), &dg);
    CHECK_OK(gw_store_sweep(s, "other", -60, &removed, &dg), &dg);
    CHECK_EQ(removed, 0);
    CHECK_OK(gw_store_sweep(s, "", -60, &removed, &dg), &dg);
    CHECK_EQ(removed, 1);
    CHECK_FAILS(gw_store_write_finish(killed, &dg), &dg, "aborted/killed");
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 0);
    gw_mem_free(bytes);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

/* What boto3 wrote before (test_store_s3.sh). */
TEST(s3_boto_wrote_this) {
    gw_diags dg;
    gw_arena a = {0};
    gw_store_list list;
    gw_diags_init(&dg);
    gw_store *s = open_below("from boto", NULL);
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    if (list.count == 0) SKIP("boto3 wrote nothing; test_store_s3.sh makes it");
    CHECK_EQ(list.count, 3);
    for (int64_t i = 0; i < list.count; i++) {
        gw_str text = {0};
        CHECK_OK(gw_store_read(s, list.entries[i].key, 0, &text, &dg), &dg);
        CHECK_STR(gw_str_c(&text), gw_arena_printf(&a, "from boto/%s", list.entries[i].key));
        gw_str_release(&text);
    }
    CHECK_STR(list.entries[1].key, "a=b+c d.txt");
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

TEST(s3_names_what_is_wrong) {
    const char *endpoint = getenv("GW_TEST_S3");
    if (!endpoint || !*endpoint) SKIP("GW_TEST_S3 names no server; test_store_s3.sh starts one");
    gw_diags dg;
    gw_arena a = {0};
    gw_store *s;
    gw_store_list list;
    gw_diags_init(&dg);
    setenv("AWS_ACCESS_KEY_ID", "test-key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
    CHECK_OK(gw_store_open("s3://no-such-bucket-here", &(gw_store_options){.endpoint = endpoint},
                           &s, &dg),
             &dg);
    CHECK_FAILS(gw_store_list_all(s, "", false, &a, &list, &dg), &dg, "NoSuchBucket");
    CHECK_FAILS(gw_store_put(s, "x", "y", 1, &dg), &dg, "no-such-bucket-here/x");
    gw_store_free(s);
    gw_arena_release(&a);
    gw_diags_release(&dg);
}
