// SPDX-License-Identifier: Apache-2.0
// The store against a server that misbehaves: each fault ends in the right bytes or in an error
// that names it, in bounded time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/clock.h" /* gw_clock_ns */
#include "file/store.h" /* what is tested */
#include "harness.h"
#include "store_server/server.h" /* store_server_start */

typedef struct rig {
    store_server *server;
    gw_store *s3, *http;
    gw_diags dg;
} rig;

static rig set_up(const store_server_options *so, const gw_store_options *more) {
    rig r;
    char url[200];
    gw_store_options o = more ? *more : (gw_store_options){0};
    gw_diags_init(&r.dg);
    r.server = store_server_start(so);
    o.endpoint = store_server_url(r.server);
    if (o.backoff_s == 0) o.backoff_s = 0.002;
    if (o.stall_s == 0) o.stall_s = 10;
    setenv("AWS_ACCESS_KEY_ID", "k", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    unsetenv("AWS_PROFILE");
    CHECK_OK(gw_store_open("s3://bucket/run", &o, &r.s3, &r.dg), &r.dg);
    snprintf(url, sizeof url, "%s/bucket/run", store_server_url(r.server));
    CHECK_OK(gw_store_open(url, &o, &r.http, &r.dg), &r.dg);
    return r;
}

static void tear_down(rig *r) {
    gw_store_free(r->s3);
    gw_store_free(r->http);
    store_server_stop(r->server);
    gw_diags_release(&r->dg);
}

static void check_reads(gw_store *s, const char *key, int64_t n, uint64_t seed, gw_diags *dg) {
    uint8_t *want = store_server_noise_bytes(n, seed), *got = gw_mem_alloc((size_t)n);
    gw_str whole = {0};
    CHECK_OK(gw_store_read(s, key, 0, &whole, dg), dg);
    CHECK_EQ(whole.len, n);
    CHECK(memcmp(whole.data, want, (size_t)n) == 0);
    CHECK_OK(gw_store_get(s, key, NULL, 100, n - 150, got, dg), dg);
    CHECK(memcmp(got, want + 100, (size_t)n - 150) == 0);
    gw_str_release(&whole);
    gw_mem_free(want);
    gw_mem_free(got);
}

/* Whatever happens once or twice, the bytes are right. */
TEST(store_survives_single_faults) {
    static const store_fault faults[] = {
        {.kind = FAULT_STATUS, .status = 503, .text = "SlowDown", .count = 3},
        {.kind = FAULT_STATUS, .status = 500, .text = "InternalError", .count = 2},
        {.kind = FAULT_STATUS, .status = 429, .text = "TooManyRequests", .count = 1},
        {.kind = FAULT_STATUS, .status = 400, .text = "RequestTimeout", .count = 1},
        {.kind = FAULT_RESET, .at = 0, .count = 2},
        {.kind = FAULT_RESET, .at = 70000, .count = 2},
        {.kind = FAULT_CLOSE, .at = 1, .count = 2},
        {.kind = FAULT_CLOSE, .at = 199999, .count = 1},
        {.kind = FAULT_STALL, .at = 5000, .seconds = 3, .count = 1},
        {.kind = FAULT_STALL, .at = 0, .seconds = 3, .count = 1},
        {.kind = FAULT_DRIP, .at = 100, .seconds = 0.05, .count = 1},
        {.kind = FAULT_SHIFT_RANGE, .at = 7, .count = 1},
        {.kind = FAULT_NO_RANGE, .count = 1},
        {.kind = FAULT_GARBAGE, .count = 2},
        {.kind = FAULT_DELAY, .seconds = 0.1, .count = 1},
    };
    rig r = set_up(NULL, &(gw_store_options){.stall_s = 0.3});
    uint8_t *bytes = store_server_noise_bytes(200000, 5);
    store_server_set(r.server, "/bucket/run/a", bytes, 200000);
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        test_note("fault %zu over S3", i);
        store_server_fault(r.server, &faults[i]);
        check_reads(r.s3, "a", 200000, 5, &r.dg);
        store_server_no_faults(r.server);
        test_note("fault %zu over HTTP", i);
        store_server_fault(r.server, &faults[i]);
        check_reads(r.http, "a", 200000, 5, &r.dg);
        store_server_no_faults(r.server);
    }
    gw_mem_free(bytes);
    tear_down(&r);
}

/* A fault that stays is an error with the right name, in bounded time. */
TEST(store_gives_up_in_words) {
    static const struct {
        store_fault fault;
        const char *says;
    } cases[] = {
        {{.kind = FAULT_STATUS, .status = 503, .text = "SlowDown"}, "503 SlowDown"},
        {{.kind = FAULT_STATUS, .status = 403, .text = "AccessDenied"}, "store-denied"},
        {{.kind = FAULT_STATUS, .status = 403, .text = "RequestTimeTooSkewed"}, "clock"},
        {{.kind = FAULT_STATUS, .status = 403, .text = "SignatureDoesNotMatch"}, "secret key"},
        {{.kind = FAULT_STATUS, .status = 400, .text = "ExpiredToken"}, "run out"},
        {{.kind = FAULT_STATUS, .status = 400, .text = "InvalidArgument"}, "InvalidArgument"},
        {{.kind = FAULT_STATUS, .status = 404, .text = "NoSuchBucket"}, "store-missing"},
        {{.kind = FAULT_RESET, .at = 0}, "store-network"},
        {{.kind = FAULT_CLOSE, .at = 0}, "store-network"},
        {{.kind = FAULT_STALL, .at = 0, .seconds = 9}, "store-stalled"},
        {{.kind = FAULT_DRIP, .at = 0, .seconds = 0.02}, "store-stalled"},
        {{.kind = FAULT_SHIFT_RANGE, .at = 3}, "store-response"},
        {{.kind = FAULT_GARBAGE}, "store-network"},
    };
    rig r = set_up(NULL, &(gw_store_options){.tries = 2, .stall_s = 0.3});
    uint8_t *bytes = store_server_noise_bytes(10000, 5), got[5000];
    store_server_set(r.server, "/bucket/run/a", bytes, 10000);
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        test_note("case %zu, %s", i, cases[i].says);
        store_server_fault(r.server, &cases[i].fault);
        int64_t begun = gw_clock_ns();
        CHECK_FAILS(gw_store_get(r.s3, "a", NULL, 1000, 5000, got, &r.dg), &r.dg, cases[i].says);
        bool stalls = strstr(cases[i].says, "stalled") != NULL; /* one wait is enough */
        if (!stalls)
            CHECK_FAILS(gw_store_get(r.http, "a", NULL, 1000, 5000, got, &r.dg), &r.dg,
                        cases[i].says);
        CHECK((double)(gw_clock_ns() - begun) * 1e-9 < 12);
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    gw_mem_free(bytes);
    tear_down(&r);
}

/* No 4xx is tried twice, 503 as often as the options say. */
TEST(store_counts_tries) {
    rig r = set_up(NULL, &(gw_store_options){.tries = 5});
    store_server_stats before, after;
    char got[4];
    store_server_set(r.server, "/bucket/run/a", "abcd", 4);
    store_server_fault(r.server,
                       &(store_fault){.kind = FAULT_STATUS, .status = 403, .text = "AccessDenied"});
    store_server_get_stats(r.server, &before);
    CHECK_FAILS(gw_store_get(r.s3, "a", NULL, 0, 4, got, &r.dg), &r.dg, "bucket/run/a");
    store_server_get_stats(r.server, &after);
    CHECK_EQ(after.requests - before.requests, 1);
    store_server_no_faults(r.server);
    store_server_fault(r.server, &(store_fault){.kind = FAULT_STATUS, .status = 503});
    CHECK_FAILS(gw_store_get(r.s3, "a", NULL, 0, 4, got, &r.dg), &r.dg, "5 tries");
    store_server_get_stats(r.server, &before);
    CHECK_EQ(before.requests - after.requests, 5);
    tear_down(&r);
}

TEST(store_obeys_retry_after) {
    rig r = set_up(NULL, NULL);
    char got[5] = {0};
    store_server_set(r.server, "/bucket/run/a", "abcd", 4);
    store_server_fault(
        r.server, &(store_fault){.kind = FAULT_STATUS, .status = 503, .seconds = 1, .count = 1});
    int64_t begun = gw_clock_ns();
    CHECK_OK(gw_store_get(r.s3, "a", NULL, 0, 4, got, &r.dg), &r.dg);
    CHECK_STR(got, "abcd");
    CHECK((double)(gw_clock_ns() - begun) * 1e-9 >= 0.99);
    tear_down(&r);
}

/* A body is cut, and the object is another one when the rest is asked for. */
TEST(store_never_mixes_versions) {
    rig r = set_up(NULL, NULL);
    uint8_t *bytes = store_server_noise_bytes(100000, 9), *got = gw_mem_alloc(100000);
    gw_store *stores[] = {r.s3, r.http};
    for (int i = 0; i < 2; i++) {
        store_server_set(r.server, "/bucket/run/a", bytes, 100000);
        store_server_fault(r.server, &(store_fault){.kind = FAULT_CLOSE, .at = 50000, .count = 1});
        store_server_fault(r.server, &(store_fault){.kind = FAULT_CHANGE, .count = 1});
        CHECK_FAILS(gw_store_get(stores[i], "a", NULL, 0, 100000, got, &r.dg), &r.dg,
                    "store-changed");
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    gw_mem_free(bytes);
    gw_mem_free(got);
    tear_down(&r);
}

TEST(store_put_new_knows_who_won) {
    rig r = set_up(NULL, NULL);
    bool won;
    /* Our put came through, its answer was lost: we won. */
    store_server_fault(r.server, &(store_fault){.kind = FAULT_LOST, .method = "PUT", .count = 1});
    CHECK_OK(gw_store_put_new(r.s3, "m1", "mine", 4, &won, &r.dg), &r.dg);
    CHECK(won);
    /* It did not come through, and somebody else was faster. */
    store_server_fault(r.server, &(store_fault){.kind = FAULT_RESET, .method = "PUT", .count = 1});
    store_server_set(r.server, "/bucket/run/m2", "theirs", 6);
    CHECK_OK(gw_store_put_new(r.s3, "m2", "mine", 4, &won, &r.dg), &r.dg);
    CHECK(!won);
    int64_t n;
    uint8_t *is = store_server_get(r.server, "/bucket/run/m2", &n);
    CHECK(n == 6 && memcmp(is, "theirs", 6) == 0);
    free(is);
    /* A conflict of two at the same moment is tried again. */
    store_server_fault(r.server, &(store_fault){.kind = FAULT_STATUS,
                                                .status = 409,
                                                .text = "ConditionalRequestConflict",
                                                .method = "PUT",
                                                .count = 1});
    CHECK_OK(gw_store_put_new(r.s3, "m3", "mine", 4, &won, &r.dg), &r.dg);
    CHECK(won);
    tear_down(&r);
}

/* A put over a version that was seen: one wins, a lost answer tells truly, what is gone is not put.
 */
TEST(store_put_over_is_of_one_version) {
    rig r = set_up(NULL, NULL);
    bool won;
    char first[GW_STORE_ETAG], next[GW_STORE_ETAG], none[GW_STORE_ETAG];
    CHECK_OK(gw_store_put_over(r.s3, "v", "", "one", 3, &won, first, &r.dg), &r.dg);
    CHECK(won && *first);
    CHECK_OK(gw_store_put_over(r.s3, "v", "", "two", 3, &won, none, &r.dg), &r.dg);
    CHECK(!won && !*none);
    store_server_fault(r.server, &(store_fault){.kind = FAULT_LOST, .method = "PUT", .count = 1});
    CHECK_OK(gw_store_put_over(r.s3, "v", first, "two", 3, &won, next, &r.dg), &r.dg);
    CHECK(won && *next && strcmp(first, next) != 0);
    CHECK_OK(gw_store_put_over(r.s3, "v", first, "three", 5, &won, none, &r.dg), &r.dg);
    CHECK(!won);
    int64_t n;
    uint8_t *is = store_server_get(r.server, "/bucket/run/v", &n);
    CHECK(n == 3 && memcmp(is, "two", 3) == 0);
    free(is);
    CHECK_OK(gw_store_delete(r.s3, "v", &r.dg), &r.dg);
    CHECK_OK(gw_store_put_over(r.s3, "v", next, "four", 4, &won, none, &r.dg), &r.dg);
    CHECK(!won && store_server_get(r.server, "/bucket/run/v", &n) == NULL);
    /* A store that does not know the condition replaces what is there. */
    CHECK_OK(gw_store_put_over(r.s3, "v", "", "five", 4, &won, first, &r.dg), &r.dg);
    store_server_fault(r.server, &(store_fault){.kind = FAULT_STATUS,
                                                .status = 501,
                                                .text = "NotImplemented",
                                                .method = "PUT",
                                                .count = 1});
    CHECK_OK(gw_store_put_over(r.s3, "v", first, "six", 3, &won, next, &r.dg), &r.dg);
    CHECK(won && strcmp(first, next) != 0);
    /* Refusals are errors. */
    store_server_fault(r.server, &(store_fault){.kind = FAULT_STATUS,
                                                .status = 403,
                                                .text = "AccessDenied",
                                                .method = "PUT",
                                                .count = 1});
    CHECK_FAILS(gw_store_put_over(r.s3, "v", next, "seven", 5, &won, none, &r.dg), &r.dg,
                "AccessDenied");
    gw_diags_clear(&r.dg);
    tear_down(&r);
}

typedef struct racer {
    gw_store *store;
    int wins;
} racer;

static void *race(void *user) {
    racer *r = user;
    gw_diags dg;
    gw_diags_init(&dg);
    for (int i = 0; i < 20; i++) {
        char key[32];
        bool won = false;
        snprintf(key, sizeof key, "race-%d", i);
        if (gw_store_put_new(r->store, key, &r, sizeof r, &won, &dg) == GW_OK) r->wins += won;
    }
    gw_diags_release(&dg);
    return NULL;
}

static void check_race(gw_store *s) {
    racer racers[6];
    pthread_t threads[6];
    int wins = 0;
    for (int i = 0; i < 6; i++) {
        racers[i] = (racer){.store = s};
        CHECK(pthread_create(&threads[i], NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        wins += racers[i].wins;
    }
    CHECK_EQ(wins, 20);
}

/* Six writers, twenty names, answers that are lost: each name has exactly one winner. */
TEST(store_put_new_race) {
    rig r = set_up(NULL, NULL);
    for (int i = 0; i < 10; i++)
        store_server_fault(
            r.server, &(store_fault){.kind = FAULT_LOST, .method = "PUT", .skip = 3, .count = 1});
    check_race(r.s3);
    gw_store *dir;
    CHECK_OK(gw_store_open(test_tmp_path("race"), NULL, &dir, &r.dg), &r.dg);
    check_race(dir);
    gw_store_free(dir);
    tear_down(&r);
}

/* Multipart uploads: parts that fail are sent again, one by one (aioboto3#408); an error in the
 * body of a 200 is one; a lost answer of Complete is not the end. */
TEST(store_stream_survives) {
    static const store_fault faults[] = {
        {.kind = FAULT_STATUS, .status = 503, .method = "PUT", .path = "partNumber=2", .count = 3},
        {.kind = FAULT_RESET, .method = "PUT", .path = "partNumber=3", .count = 2},
        {.kind = FAULT_LOST, .method = "PUT", .path = "partNumber=1", .count = 1},
        {.kind = FAULT_STALL, .seconds = 9, .method = "PUT", .path = "partNumber=2", .count = 1},
        {.kind = FAULT_STATUS, .status = 500, .method = "POST", .path = "uploads", .count = 1},
        {.kind = FAULT_ANSWER,
         .status = 200,
         .text = "\n\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>",
         .method = "POST",
         .path = "uploadId",
         .count = 2},
        {.kind = FAULT_LOST, .method = "POST", .path = "uploadId", .count = 1},
    };
    rig r = set_up(NULL, &(gw_store_options){.part_bytes = 5 << 20, .stall_s = 1});
    int64_t n = (11 << 20) + 5, got_n;
    uint8_t *bytes = store_server_noise_bytes(n, 11);
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        gw_store_writer *w;
        store_server_stats before, after;
        test_note("fault %zu", i);
        store_server_fault(r.server, &faults[i]);
        store_server_get_stats(r.server, &before);
        CHECK_OK(gw_store_write_open(r.s3, "big", 0, &w, &r.dg), &r.dg);
        CHECK_OK(gw_store_write(w, bytes, n, &r.dg), &r.dg);
        CHECK_OK(gw_store_write_finish(w, &r.dg), &r.dg);
        store_server_get_stats(r.server, &after);
        /* create, three parts, complete, what was repeated, and a look at who won */
        CHECK(after.requests - before.requests <= 6 + 3 + 1 || after.puts - before.puts <= 3 + 3);
        uint8_t *got = store_server_get(r.server, "/bucket/run/big", &got_n);
        CHECK_EQ(got_n, n);
        CHECK(memcmp(got, bytes, (size_t)n) == 0);
        CHECK_EQ(store_server_uploads(r.server), 0);
        free(got);
        store_server_no_faults(r.server);
    }
    gw_mem_free(bytes);
    tear_down(&r);
}

/* An upload that cannot be finished leaves neither an object nor an upload. */
TEST(store_stream_aborts) {
    rig r = set_up(NULL, &(gw_store_options){.part_bytes = 5 << 20, .tries = 2});
    int64_t n = 12 << 20, got_n;
    uint8_t *bytes = store_server_noise_bytes(n, 11);
    static const store_fault faults[] = {
        {.kind = FAULT_STATUS, .status = 503, .text = "SlowDown", .path = "partNumber=2"},
        {.kind = FAULT_STATUS, .status = 403, .text = "AccessDenied", .path = "partNumber=3"},
        {.kind = FAULT_ANSWER,
         .status = 200,
         .text = "<Error><Code>InternalError</Code></Error>",
         .method = "POST",
         .path = "uploadId"},
    };
    static const char *const says[] = {"SlowDown", "AccessDenied", "InternalError"};
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        gw_store_writer *w;
        store_server_fault(r.server, &faults[i]);
        CHECK_OK(gw_store_write_open(r.s3, "big", 0, &w, &r.dg), &r.dg);
        gw_status st = gw_store_write(w, bytes, n, &r.dg);
        gw_status end = gw_store_write_finish(w, &r.dg);
        CHECK_FAILS(st != GW_OK ? st : end, &r.dg, says[i]);
        CHECK(end != GW_OK);
        CHECK(store_server_get(r.server, "/bucket/run/big", &got_n) == NULL);
        CHECK_EQ(store_server_uploads(r.server), 0);
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    gw_mem_free(bytes);
    tear_down(&r);
}

/* Lists that lie: an endless one, one that ends early, one that is no list. */
TEST(store_list_refuses_nonsense) {
    static const struct {
        const char *answer, *says;
    } cases[] = {
        {"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "more follows"},
        {"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
         "</NextContinuationToken></ListBucketResult>",
         "same page"},
        {"<ListBucketResult><Contents><Key>run/a</Key></Contents></ListBucketResult>", "no size"},
        {"<ListBucketResult><Contents><Key>elsewhere/a</Key><Size>1</Size></Contents>"
         "</ListBucketResult>",
         "outside"},
        {"<html><body>Sign in to the hotel's network</body></html>", "no ListBucketResult"},
        {"", "no ListBucketResult"},
        {"<!DOCTYPE x [<!ENTITY a 'b'>]><ListBucketResult>&a;</ListBucketResult>", "no List"},
    };
    rig r = set_up(NULL, NULL);
    gw_arena a = {0};
    gw_store_list list;
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        store_server_fault(r.server, &(store_fault){.kind = FAULT_ANSWER,
                                                    .status = 200,
                                                    .text = cases[i].answer,
                                                    .path = "list-type=2"});
        CHECK_FAILS(gw_store_list_all(r.s3, "", false, &a, &list, &r.dg), &r.dg, cases[i].says);
        store_server_no_faults(r.server);
        gw_diags_clear(&r.dg);
    }
    gw_arena_release(&a);
    tear_down(&r);
}

/* The bucket lives in another region than we think: the answer says where, and the request goes
 * there. */
TEST(store_learns_the_region) {
    rig r = set_up(NULL, NULL);
    char got[5] = {0};
    store_server_stats stats;
    store_server_set(r.server, "/bucket/run/a", "abcd", 4);
    store_server_fault(r.server,
                       &(store_fault){.kind = FAULT_ANSWER,
                                      .status = 400,
                                      .text = "<Error><Code>AuthorizationHeaderMalformed</Code>"
                                              "<Region>eu-south-2</Region></Error>",
                                      .count = 1});
    CHECK_OK(gw_store_get(r.s3, "a", NULL, 0, 4, got, &r.dg), &r.dg);
    CHECK_STR(got, "abcd");
    store_server_get_stats(r.server, &stats);
    CHECK_EQ(stats.requests, 2);
    tear_down(&r);
}

TEST(store_http_is_read_only) {
    rig r = set_up(NULL, NULL);
    gw_arena a = {0};
    gw_store_list list;
    gw_store_writer *w;
    bool won;
    CHECK_FAILS(gw_store_put(r.http, "a", "b", 1, &r.dg), &r.dg, "store-read-only");
    CHECK_FAILS(gw_store_put_new(r.http, "a", "b", 1, &won, &r.dg), &r.dg, "store-read-only");
    CHECK_FAILS(gw_store_write_open(r.http, "a", 0, &w, &r.dg), &r.dg, "store-read-only");
    CHECK_FAILS(gw_store_list_all(r.http, "", false, &a, &list, &r.dg), &r.dg, "store-read-only");
    CHECK_FAILS(gw_store_delete(r.http, "a", &r.dg), &r.dg, "store-read-only");
    gw_arena_release(&a);
    tear_down(&r);
}

/* Nobody listens. */
TEST(store_without_a_server) {
    rig r = set_up(NULL, &(gw_store_options){.tries = 3});
    char got[4];
    store_server_stop(r.server);
    CHECK_FAILS(gw_store_get(r.s3, "a", NULL, 0, 4, got, &r.dg), &r.dg, "store-network");
    CHECK_FAILS(gw_store_put(r.s3, "a", "b", 1, &r.dg), &r.dg, "3 tries");
    gw_store_free(r.s3);
    gw_store_free(r.http);
    gw_diags_release(&r.dg);
}
