// SPDX-License-Identifier: Apache-2.0
// Sets behind HTTP and S3: the rows are those of the same files here, through a server that is
// slow, breaks off, or gives wrong bytes; what is damaged at its source is quarantined.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"             /* gw_file_read */
#include "base/rng.h"            /* gw_rng_u32 */
#include "data/build/sums.h"     /* gw_sums_write */
#include "data/loader.h"         /* gw_loader */
#include "data/tokens.h"         /* gw_tokens */
#include "file/mds.h"            /* gw_mds_writer */
#include "file/megatron_idx.h"   /* gw_midx_writer */
#include "harness.h"             /* TEST, CHECK */
#include "store_server/server.h" /* store_server_start */

enum { SEQ = 32, DOCS = 400 };

static void upload(store_server *s, const char *dir, const char *name, const char *key) {
    gw_diags dg;
    gw_diags_init(&dg);
    char path[600];
    gw_str bytes = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    snprintf(path, sizeof path, "/bucket/%s/%s", key, name);
    store_server_set(s, path, bytes.data, (int64_t)bytes.len);
    gw_str_release(&bytes);
    gw_diags_release(&dg);
}

/* The same documents as DIR/set.bin, .idx and as shards, here and on the server. */
static void write_sets(store_server *s, const char *dir) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_midx_writer *m;
    gw_mds_writer *w;
    char prefix[600];
    gw_str value = {0};
    gw_rng_key key = gw_rng_key_named(1, "far");
    static const char *const hashes[] = {"sha1", "xxh64"};
    gw_mds_writer_options o = {.dir = dir,
                               .names = (const char *const[]){"tokens"},
                               .encodings = (const char *const[]){"ndarray:uint16"},
                               .ncolumns = 1,
                               .hashes = hashes,
                               .nhashes = 2,
                               .size_limit = 6000};
    snprintf(prefix, sizeof prefix, "%s/set", dir);
    CHECK_OK(gw_mds_writer_new(&o, &w, &dg), &dg);
    CHECK_OK(gw_midx_writer_new(prefix, 60000, &m, &dg), &dg);
    for (uint32_t d = 0, at = 0; d < DOCS; d++) {
        uint32_t ids[80], n = 1 + gw_rng_u32(key, d) % 80;
        uint16_t small[80];
        for (uint32_t i = 0; i < n; i++) small[i] = (uint16_t)(ids[i] = at++ % 60000);
        gw_str_clear(&value);
        gw_mds_array_write(gw_mds_writer_column(w, 0), GW_MDS_U16, small, n, &value);
        gw_mds_value v = {value.data, (int64_t)value.len};
        CHECK_OK(gw_mds_writer_add(w, &v, n, &dg), &dg);
        CHECK_OK(gw_midx_writer_doc(m, ids, n, &dg), &dg);
    }
    CHECK_OK(gw_mds_writer_finish(w, &dg), &dg);
    CHECK_OK(gw_midx_writer_finish(m, &dg), &dg);
    upload(s, dir, "set.bin", "far");
    upload(s, dir, "set.idx", "far");
    upload(s, dir, "index.json", "far/mds");
    for (int64_t k = 0; k < gw_mds_writer_shards(w); k++) {
        char name[40];
        snprintf(name, sizeof name, "shard.%05lld.mds", (long long)k);
        upload(s, dir, name, "far/mds");
    }
    gw_mds_writer_free(w);
    gw_midx_writer_free(m);
    gw_str_release(&value);
    gw_diags_release(&dg);
}

static gw_tokens_options options(bool far_blocks) {
    gw_tokens_options o = gw_tokens_options_default(SEQ, 4);
    o.window = 2;
    o.block_tokens = 1500;
    if (far_blocks) o.order = GW_ORDER_BLOCKS;
    return o;
}

static void same_rows(const char *near, const char *far, const char *cache) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens_options o = options(true);
    gw_tokens *a, *b;
    CHECK_OK(gw_tokens_open(near, &o, &a, &dg), &dg);
    o.cache_dir = cache;
    CHECK_OK(gw_tokens_open(far, &o, &b, &dg), &dg);
    CHECK_EQ(gw_tokens_samples(a), gw_tokens_samples(b));
    CHECK_EQ(gw_tokens_count(a), gw_tokens_count(b));
    gw_loader *l[2];
    gw_loader_options lo = {4, 2, 1, 0, 0, 2};
    CHECK_OK(gw_loader_open(a, &lo, &l[0], &dg), &dg);
    CHECK_OK(gw_loader_open(b, &lo, &l[1], &dg), &dg);
    for (int64_t step = 0; step < 2 * gw_tokens_samples(a) / 8; step++) {
        const gw_step_batch *x, *y;
        CHECK_OK(gw_loader_next(l[0], &x, &dg), &dg);
        CHECK_OK(gw_loader_next(l[1], &y, &dg), &dg);
        CHECK_EQ(x->step_labels, y->step_labels);
        for (int k = 0; k < 2; k++) {
            CHECK(!memcmp(x->micro[k].tokens, y->micro[k].tokens, 4 * SEQ * sizeof(int32_t)));
            CHECK(!memcmp(x->micro[k].labels, y->micro[k].labels, 4 * SEQ * sizeof(int32_t)));
        }
    }
    CHECK_EQ(gw_tokens_quarantined(b), 0);
    for (int i = 0; i < 2; i++) gw_loader_close(l[i]);
    gw_tokens_close(a);
    gw_tokens_close(b);
    gw_diags_release(&dg);
}

static store_server *start(const char *dir, char url[2][128]) {
    store_server_options o = {.first_byte_s = 0.001};
    store_server *s = store_server_start(&o);
    setenv("AWS_ENDPOINT_URL", store_server_url(s), 1);
    setenv("AWS_ACCESS_KEY_ID", "k", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    write_sets(s, dir);
    snprintf(url[0], 128, "%s/bucket/far", store_server_url(s));
    snprintf(url[1], 128, "s3://bucket/far");
    return s;
}

TEST(rows_over_a_network_are_the_same) {
    char dir[512], near[600], far[700], url[2][128];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("near"));
    snprintf(near, sizeof near, "%s/set", dir);
    store_server *s = start(dir, url);
    for (int k = 0; k < 2; k++) {
        snprintf(far, sizeof far, "%s/set", url[k]);
        same_rows(near, far, NULL);
        snprintf(far, sizeof far, "%s/mds", url[k]);
        same_rows(dir, far, NULL);
        for (int again = 0; again < 2; again++) same_rows(dir, far, test_tmp_path("cache"));
    }
    store_server_stop(s);
}

TEST(faults_of_a_network_do_not_show_in_rows) {
    char dir[512], far[700], url[2][128];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("near"));
    store_server *s = start(dir, url);
    snprintf(far, sizeof far, "%s/mds", url[1]);
    store_server_fault(s, &(store_fault){.kind = FAULT_STATUS,
                                         .method = "GET",
                                         .path = "shard.00001",
                                         .count = 2,
                                         .status = 503,
                                         .text = "SlowDown"});
    store_server_fault(
        s,
        &(store_fault){
            .kind = FAULT_RESET, .method = "GET", .path = "shard.00002", .count = 1, .at = 1000});
    store_server_fault(
        s, &(store_fault){
               .kind = FAULT_FLIP, .method = "GET", .path = "shard.00003", .count = 1, .at = 2000});
    store_server_fault(
        s, &(store_fault){
               .kind = FAULT_CLOSE, .method = "GET", .path = "shard.00004", .count = 1, .at = 500});
    same_rows(dir, far, NULL);
    store_server_stop(s);
}

/* Wrong every time it is asked for: left out, and the run goes on. */
TEST(damage_at_the_source_is_quarantined) {
    gw_diags dg;
    gw_diags_init(&dg);
    char dir[512], far[700], url[2][128];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("near"));
    store_server *s = start(dir, url);
    snprintf(far, sizeof far, "%s/mds", url[1]);
    store_server_fault(
        s, &(store_fault){.kind = FAULT_FLIP, .method = "GET", .path = "shard.00003", .at = 2000});
    gw_tokens_options o = options(true);
    gw_tokens *ds;
    int32_t ints[4][SEQ];
    CHECK_OK(gw_tokens_open(far, &o, &ds, &dg), &dg);
    for (int64_t n = 0; n < gw_tokens_samples(ds); n++) {
        gw_sample row = {ints[0], ints[1], ints[2], ints[3], 0, 0, 0};
        CHECK_OK(gw_tokens_sample(ds, n, &row, &dg), &dg);
    }
    CHECK_EQ(gw_tokens_quarantined(ds), 1);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
    store_server_stop(s);
}

/* A Megatron pair of three MiBs with the sums of its .bin, here and on the server. */
static void write_summed(store_server *s, const char *dir) {
    enum { N = 1300 };
    gw_diags dg;
    gw_diags_init(&dg);
    gw_midx_writer *m;
    char prefix[600], bin[620];
    static uint32_t ids[N];
    snprintf(prefix, sizeof prefix, "%s/sum", dir);
    snprintf(bin, sizeof bin, "%s.bin", prefix);
    CHECK_OK(gw_midx_writer_new(prefix, 60000, &m, &dg), &dg);
    for (uint32_t d = 0; d < 1000; d++) {
        for (uint32_t i = 0; i < N; i++) ids[i] = (d * N + i) % 60000;
        CHECK_OK(gw_midx_writer_doc(m, ids, N, &dg), &dg);
    }
    CHECK_OK(gw_midx_writer_finish(m, &dg), &dg);
    gw_midx_writer_free(m);
    CHECK_OK(gw_sums_write(bin, NULL, &dg), &dg);
    upload(s, dir, "sum.bin", "far");
    upload(s, dir, "sum.bin" GW_SUMS_END, "far");
    upload(s, dir, "sum.idx", "far");
    gw_diags_release(&dg);
}

/* Rows that are not those of the files here. */
static int64_t differing(const char *near, const char *far, const char *cache,
                         int64_t *quarantined) {
    enum { LONG = 1024 };
    static int32_t ints[2][4][LONG];
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens_options o = gw_tokens_options_default(LONG, 4);
    o.window = 1;
    o.block_tokens = 800000; /* 1.6 MB: two blocks */
    o.order = GW_ORDER_BLOCKS;
    gw_tokens *t[2];
    int64_t differ = 0;
    CHECK_OK(gw_tokens_open(near, &o, &t[0], &dg), &dg);
    o.cache_dir = cache;
    CHECK_OK(gw_tokens_open(far, &o, &t[1], &dg), &dg);
    for (int64_t n = 0; n < gw_tokens_samples(t[0]); n++) {
        for (int k = 0; k < 2; k++) {
            gw_sample row = {ints[k][0], ints[k][1], ints[k][2], ints[k][3], 0, 0, 0};
            CHECK_OK(gw_tokens_sample(t[k], n, &row, &dg), &dg);
        }
        differ += memcmp(ints[0][0], ints[1][0], sizeof ints[0][0]) != 0;
    }
    *quarantined = gw_tokens_quarantined(t[1]);
    for (int k = 0; k < 2; k++) gw_tokens_close(t[k]);
    gw_diags_release(&dg);
    return differ;
}

/* Wrong once: fetched again, and the cache has the right bytes. Wrong each time: quarantined. */
TEST(a_far_bin_is_checked_by_its_sums) {
    char dir[512], near[600], far[700], url[2][128];
    int64_t q;
    snprintf(dir, sizeof dir, "%s", test_tmp_path("near"));
    snprintf(near, sizeof near, "%s/sum", dir);
    store_server *s = start(dir, url);
    write_summed(s, dir);
    snprintf(far, sizeof far, "%s/sum", url[1]);
    store_fault flip = {.kind = FAULT_FLIP,
                        .method = "GET",
                        .path = "sum.bin",
                        .skip = 1, /* the sums */
                        .count = 1,
                        .at = 2000};
    store_server_fault(s, &flip);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(differing(near, far, test_tmp_path("cache"), &q), 0);
        CHECK_EQ(q, 0);
    }
    store_server_no_faults(s);
    flip.count = 0;
    store_server_fault(s, &flip);
    CHECK(differing(near, far, NULL, &q) > 0);
    CHECK_EQ(q, 1);
    store_server_stop(s);
}

TEST(what_is_not_there_is_named) {
    gw_diags dg;
    gw_diags_init(&dg);
    char dir[512], far[700], url[2][128];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("near"));
    store_server *s = start(dir, url);
    gw_tokens_options o = options(false);
    gw_tokens *ds;
    snprintf(far, sizeof far, "%s/absent", url[1]);
    CHECK_FAILS(gw_tokens_open(far, &o, &ds, &dg), &dg, "absent");
    gw_diags_release(&dg);
    store_server_stop(s);
}
