// SPDX-License-Identifier: Apache-2.0
// file/safetensors: bytes by the format's description, refusals, round trips, shards.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/io.h" /* gw_path_exists, gw_dir_make */
#include "damage.h"
#include "file/json.h" /* gw_json_read_file */
#include "file/safetensors.h"
#include "harness.h"

static gw_diags dg;

/* A file from its header text and data, header padded to a multiple of 8. */
static const char *make(const char *name, const char *header, const void *data, size_t n) {
    const char *path = test_tmp_path(name);
    gw_str s = {0};
    uint64_t len = (strlen(header) + 7) / 8 * 8;
    gw_str_add_n(&s, &len, 8);
    gw_str_add(&s, header);
    while (s.len < 8 + len) gw_str_add_char(&s, ' ');
    gw_str_add_n(&s, data, n);
    put_file(path, s.data, s.len);
    gw_str_release(&s);
    return path;
}

static gw_st_set *open_ok(const char *path) {
    gw_st_set *s = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_st_open(path, &s, &dg), &dg);
    return s;
}

static void refuse(const char *header, size_t n, const char *expected) {
    static const uint8_t zeros[256];
    gw_st_set *s = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_st_open(make("bad.safetensors", header, zeros, n), &s, &dg), &dg, expected);
    CHECK(s == NULL);
    CHECK(strstr(dg.first->where.file, "bad.safetensors") != NULL);
    gw_diags_release(&dg);
}

static void close_all(gw_st_set *s) {
    gw_st_free(s);
    gw_diags_release(&dg);
}

TEST(st_reads_a_hand_made_file) {
    int32_t data[4] = {1, -2, 3, 4};
    const char *path = make("a.safetensors",
                            "{\"__metadata__\":{\"format\":\"pt\"},"
                            "\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
                            data, sizeof data);
    gw_st_set *s = open_ok(path);
    CHECK_EQ(gw_st_count(s), 1);
    const gw_st_tensor *t = gw_st_find(s, "test");
    CHECK(t != NULL && t == gw_st_get(s, 0));
    CHECK_EQ(t->dtype, GW_ST_I32);
    CHECK_EQ(t->ndim, 2);
    CHECK_EQ(t->dims[0] * 10 + t->dims[1], 22);
    CHECK_EQ(t->bytes, 16);
    CHECK(memcmp(t->data, data, 16) == 0);
    CHECK_STR(gw_st_metadata(s, "format"), "pt");
    CHECK(gw_st_metadata(s, "absent") == NULL);
    CHECK(gw_st_find(s, "absent") == NULL);
    CHECK_STR(gw_st_file_path(s, t->file), path);
    close_all(s);
}

/* The order of entries in the header says nothing; rank 0 and empty tensors are allowed. */
TEST(st_reads_any_order_scalars_and_empty_tensors) {
    float data[2] = {1.5f, 2.5f};
    gw_st_set *s =
        open_ok(make("b.safetensors",
                     "{\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
                     "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                     data, sizeof data));
    CHECK_EQ(gw_st_count(s), 3);
    CHECK_STR(gw_st_get(s, 0)->name, "a");
    CHECK_STR(gw_st_get(s, 1)->name, "none");
    CHECK_EQ(gw_st_find(s, "z")->ndim, 0);
    CHECK_EQ(gw_st_find(s, "z")->elems, 1);
    CHECK_EQ(gw_st_find(s, "none")->elems, 0);
    CHECK_EQ(gw_st_total_bytes(s), 8);
    close_all(s);
    s = open_ok(make("empty.safetensors", "{}", "", 0));
    CHECK_EQ(gw_st_count(s), 0);
    close_all(s);
}

TEST(st_sub_byte_types_fill_whole_bytes) {
    gw_st_set *s = open_ok(make("f4.safetensors",
                                "{\"x\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]}}",
                                "abc", 3));
    CHECK_EQ(gw_st_get(s, 0)->elems, 6);
    close_all(s);
    refuse("{\"x\":{\"dtype\":\"F4\",\"shape\":[5],\"data_offsets\":[0,3]}}", 3, "whole bytes");
    refuse("{\"x\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "match");
}

#define A "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"

TEST(st_refuses_what_the_format_forbids) {
    refuse(A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "twice");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "overlaps");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", 16, "hole");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 20,
           "after the last");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 12,
           "'b': its data ends");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,12]}}", 12,
           "do not match");
    refuse(A "\"b\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[8,12]}}", 12, "F99");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[8,12]}}", 12, "dimension");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[8,12]}}", 12, "dimension");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[8,12]}}", 12, "array");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,8]}}", 12, "backwards");
    refuse(A "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8]}}", 12, "pair");
    refuse(A "\"b\":3}", 8, "not an object");
    refuse("{\"__metadata__\":{\"n\":1}}", 0, "not a string");
    refuse("{\"__metadata__\":[]}", 0, "not an object");
    refuse("[]", 0, "begin with '{'");
    refuse(" {}", 0, "begin with '{'");
    refuse("{\"a\"", 0, "not valid JSON");
}

TEST(st_refuses_overflow) {
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
           0, "overflow");
    /* 2^61 elements of 64 bits: the element count fits, the bits do not. */
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
           "overflow");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
           "\"data_offsets\":[9223372036854775806,9223372036854775807]}}",
           1, "past the end");
}

TEST(st_refuses_absurd_header_lengths) {
    gw_st_set *s = NULL;
    uint64_t lengths[] = {100000001, UINT64_MAX, UINT64_MAX - 7, 1u << 20, 0};
    gw_diags_init(&dg);
    for (size_t i = 0; i < GW_COUNT(lengths); i++) {
        uint8_t bytes[16] = {0};
        memcpy(bytes, &lengths[i], 8);
        put_file(test_tmp_path("h.safetensors"), bytes, sizeof bytes);
        CHECK_FAILS(gw_st_open(test_tmp_path("h.safetensors"), &s, &dg), &dg, "header");
        gw_diags_clear(&dg);
    }
    gw_diags_release(&dg);
}

/* --- writing ------------------------------------------------------------------------------- */

/* What the reference writer makes of one F32 tensor [1, 2, 3] called attn.0: a header of exactly 64
 * bytes; and of attn0, padded with one space. (safetensors' own unit tests.) */
TEST(st_writes_the_reference_bytes) {
    static const char *const names[] = {"attn.0", "attn0"};
    static const char *const headers[] = {
        "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}",
        "{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}} "};
    float data[6] = {0, 1, 2, 3, 4, 5};
    for (int i = 0; i < 2; i++) {
        const char *path = test_tmp_path("w.safetensors");
        gw_st_writer *w = gw_st_writer_new(path);
        gw_diags_init(&dg);
        CHECK_OK(gw_st_writer_declare(w, names[i], GW_ST_F32, 3, (int64_t[]){1, 2, 3}, &dg), &dg);
        CHECK_OK(gw_st_writer_begin(w, &dg), &dg);
        CHECK(i > 0 || !gw_path_exists(path));
        CHECK_OK(gw_st_writer_put(w, names[i], data, sizeof data, &dg), &dg);
        CHECK_OK(gw_st_writer_finish(w, &dg), &dg);
        gw_st_writer_free(w);
        gw_str s = get_file(path);
        CHECK_EQ(s.len, 8 + 64 + 24);
        CHECK(memcmp(s.data, "\x40\0\0\0\0\0\0\0", 8) == 0);
        CHECK(memcmp(s.data + 8, headers[i], 64) == 0);
        CHECK(memcmp(s.data + 72, data, 24) == 0);
        gw_str_release(&s);
        gw_diags_release(&dg);
    }
}

static void write_mixed(const char *path) {
    gw_st_writer *w = gw_st_writer_new(path);
    int64_t big[] = {4, 3}, one[] = {5}, zero[] = {0, 9};
    uint16_t half[12];
    double wide[5];
    for (int i = 0; i < 12; i++) half[i] = (uint16_t)(1000 + i);
    for (int i = 0; i < 5; i++) wide[i] = i + 0.5;
    gw_diags_init(&dg);
    gw_st_writer_metadata(w, "who", "a \"quoted\" name \xc3\xa9");
    CHECK_OK(gw_st_writer_declare(w, "half", GW_ST_BF16, 2, big, &dg), &dg);
    CHECK_OK(gw_st_writer_declare(w, "bytes", GW_ST_U8, 1, one, &dg), &dg);
    CHECK_OK(gw_st_writer_declare(w, "wide", GW_ST_F64, 1, one, &dg), &dg);
    CHECK_OK(gw_st_writer_declare(w, "none", GW_ST_F32, 2, zero, &dg), &dg);
    CHECK_OK(gw_st_writer_declare(w, "scalar", GW_ST_I64, 0, NULL, &dg), &dg);
    CHECK_OK(gw_st_writer_begin(w, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "bytes", "xy", 2, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "half", half, 10, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "wide", wide, sizeof wide, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "bytes", "zzz", 3, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "half", half + 5, 14, &dg), &dg);
    CHECK_OK(gw_st_writer_put(w, "scalar", &(int64_t){-1}, 8, &dg), &dg);
    gw_hash128 got = gw_st_writer_hash(w, "half"), want = gw_hash128_of(half, sizeof half);
    CHECK(got.lo == want.lo && got.hi == want.hi);
    CHECK_OK(gw_st_writer_finish(w, &dg), &dg);
    gw_st_writer_free(w);
    gw_diags_release(&dg);
}

TEST(st_round_trip_in_pieces) {
    const char *path = test_tmp_path("m.safetensors");
    write_mixed(path);
    gw_st_set *s = open_ok(path);
    CHECK_EQ(gw_st_count(s), 5);
    /* Widest dtype first; every tensor aligned to its element. */
    CHECK_STR(gw_st_get(s, 0)->name, "scalar");
    CHECK_STR(gw_st_get(s, 4)->name, "bytes");
    for (int64_t i = 0; i < gw_st_count(s); i++) {
        const gw_st_tensor *t = gw_st_get(s, i);
        CHECK_EQ(t->offset % (gw_st_dtype_bits(t->dtype) / 8), 0);
    }
    CHECK(memcmp(gw_st_find(s, "bytes")->data, "xyzzz", 5) == 0);
    CHECK(((const uint16_t *)gw_st_find(s, "half")->data)[11] == 1011);
    CHECK_STR(gw_st_metadata(s, "who"), "a \"quoted\" name \xc3\xa9");
    close_all(s);
}

TEST(st_writer_refuses_misuse) {
    const char *path = test_tmp_path("x.safetensors");
    put_file(path, "old", 3);
    gw_st_writer *w = gw_st_writer_new(path);
    int64_t n = 4;
    gw_diags_init(&dg);
    CHECK_OK(gw_st_writer_declare(w, "a", GW_ST_U8, 1, &n, &dg), &dg);
    CHECK_FAILS(gw_st_writer_declare(w, "a", GW_ST_U8, 1, &n, &dg), &dg, "declared twice");
    CHECK_FAILS(gw_st_writer_declare(w, "__metadata__", GW_ST_U8, 1, &n, &dg), &dg, "reserved");
    CHECK_FAILS(gw_st_writer_declare(w, "b", GW_ST_U8, 1, (int64_t[]){-1}, &dg), &dg, "negative");
    CHECK_FAILS(gw_st_writer_declare(w, "c", GW_ST_F32, 2, (int64_t[]){INT64_MAX, 2}, &dg), &dg,
                "too large");
    CHECK_OK(gw_st_writer_begin(w, &dg), &dg);
    CHECK_FAILS(gw_st_writer_put(w, "a", "12345", 5, &dg), &dg, "more bytes");
    CHECK_FAILS(gw_st_writer_put(w, "q", "1", 1, &dg), &dg, "not declared");
    CHECK_OK(gw_st_writer_put(w, "a", "123", 3, &dg), &dg);
    CHECK_FAILS(gw_st_writer_finish(w, &dg), &dg, "not all written");
    gw_st_writer_free(w);
    gw_str s = get_file(path);
    CHECK_STR(s.data, "old"); /* an abandoned write leaves what was there, and nothing beside it */
    gw_str_release(&s);
    char command[1200];
    snprintf(command, sizeof command, "test $(ls '%s' | wc -l) = 1", test_tmpdir());
    CHECK_EQ(system(command), 0);
    gw_diags_release(&dg);
}

/* No room: begin reports it before any tensor is computed, and the old file stays. */
TEST(st_no_room_is_noticed_at_begin) {
    const char *path = test_tmp_path("full.safetensors");
    put_file(path, "old", 3);
    gw_st_writer *w = gw_st_writer_new(path);
    int64_t n = 1 << 20;
    gw_diags_init(&dg);
    CHECK_OK(gw_st_writer_declare(w, "a", GW_ST_U8, 1, &n, &dg), &dg);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY}) == 0);
    CHECK_FAILS(gw_st_writer_begin(w, &dg), &dg, "cannot reserve space");
    gw_st_writer_free(w);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    gw_str s = get_file(path);
    CHECK_STR(s.data, "old");
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(st_writer_refuses_names_that_are_not_utf8) {
    gw_st_writer *w = gw_st_writer_new(test_tmp_path("u.safetensors"));
    int64_t n = 1;
    gw_diags_init(&dg);
    CHECK_OK(gw_st_writer_declare(w, "a\xff", GW_ST_U8, 1, &n, &dg), &dg);
    CHECK_FAILS(gw_st_writer_begin(w, &dg), &dg, "UTF-8");
    gw_st_writer_free(w);
    gw_diags_release(&dg);
}

/* --- directories --------------------------------------------------------------------------- */

static void write_dir(const char *dir, int64_t max_shard) {
    gw_st_dir_writer *w = gw_st_dir_writer_new(dir, max_shard);
    gw_diags_init(&dg);
    gw_st_dir_writer_metadata(w, "format", "pt");
    int64_t n = 10;
    char name[16];
    float x[10];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "t%d", i);
        CHECK_OK(gw_st_dir_writer_declare(w, name, GW_ST_F32, 1, &n, &dg), &dg);
    }
    CHECK_OK(gw_st_dir_writer_begin(w, &dg), &dg);
    for (int i = 4; i >= 0; i--) {
        snprintf(name, sizeof name, "t%d", i);
        for (int k = 0; k < 10; k++) x[k] = (float)(10 * i + k);
        CHECK_OK(gw_st_dir_writer_put(w, name, x, sizeof x, &dg), &dg);
    }
    CHECK_OK(gw_st_dir_writer_finish(w, &dg), &dg);
    gw_st_dir_writer_free(w);
    gw_diags_release(&dg);
}

TEST(st_sharded_directory_round_trip) {
    const char *dir = test_tmp_path("model");
    write_dir(dir, 80); /* two tensors of 40 bytes a shard */
    CHECK(gw_path_exists(test_tmp_path("model/model-00003-of-00003.safetensors")));
    CHECK(!gw_path_exists(test_tmp_path("model/model.safetensors")));
    gw_st_set *s = open_ok(dir);
    CHECK_EQ(gw_st_nfiles(s), 3);
    CHECK_EQ(gw_st_count(s), 5);
    CHECK_STR(gw_st_metadata(s, "format"), "pt");
    CHECK_NEAR(((const float *)gw_st_find(s, "t3")->data)[7], 37, 0);
    close_all(s);
    json_t *index = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_read_file(test_tmp_path("model/model.safetensors.index.json"), 0, &index, &dg),
             &dg);
    CHECK_EQ(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
             200);
    CHECK_STR(json_string_value(json_object_get(json_object_get(index, "weight_map"), "t4")),
              "model-00003-of-00003.safetensors");
    json_decref(index);
    gw_diags_release(&dg);
}

TEST(st_one_shard_has_the_plain_name) {
    write_dir(test_tmp_path("model"), 0);
    CHECK(gw_path_exists(test_tmp_path("model/model.safetensors")));
    CHECK(!gw_path_exists(test_tmp_path("model/model.safetensors.index.json")));
    gw_st_set *s = open_ok(test_tmp_path("model"));
    CHECK_EQ(gw_st_count(s), 5);
    close_all(s);
    /* Shards beside it would leave readers with the stale single file. */
    gw_st_dir_writer *w = gw_st_dir_writer_new(test_tmp_path("model"), 1);
    int64_t n = 8;
    gw_diags_init(&dg);
    CHECK_OK(gw_st_dir_writer_declare(w, "a", GW_ST_U8, 1, &n, &dg), &dg);
    CHECK_OK(gw_st_dir_writer_declare(w, "b", GW_ST_U8, 1, &n, &dg), &dg);
    CHECK_FAILS(gw_st_dir_writer_begin(w, &dg), &dg, "model.safetensors");
    gw_st_dir_writer_free(w);
    gw_diags_release(&dg);
}

static void refuse_index(const char *text, const char *expected) {
    gw_st_set *s = NULL;
    put_file(test_tmp_path("model/model.safetensors.index.json"), text, strlen(text));
    gw_diags_init(&dg);
    CHECK_FAILS(gw_st_open(test_tmp_path("model"), &s, &dg), &dg, expected);
    gw_diags_release(&dg);
}

TEST(st_refuses_bad_indexes) {
    write_dir(test_tmp_path("model"), 80);
    refuse_index("{}", "no weight_map");
    refuse_index("{\"weight_map\": {\"t0\": \"../../etc/passwd\"}}", "beside the index");
    refuse_index("{\"weight_map\": {\"t0\": 3}}", "beside the index");
    refuse_index("{\"weight_map\": {\"t0\": \"absent.safetensors\"}}", "absent.safetensors");
    refuse_index("{\"weight_map\": {\"t0\": \"model-00002-of-00003.safetensors\"}}", "'t0'");
    refuse_index("{\"weight_map\": {\"t9\": \"model-00002-of-00003.safetensors\"}}", "'t9'");
    refuse_index("[]", "not a JSON object");
    /* The same tensor in two shards. */
    gw_str one = get_file(test_tmp_path("model/model-00001-of-00003.safetensors"));
    put_file(test_tmp_path("model/copy.safetensors"), one.data, one.len);
    gw_str_release(&one);
    refuse_index("{\"weight_map\": {\"t0\": \"model-00001-of-00003.safetensors\","
                 "\"t1\": \"copy.safetensors\"}}",
                 "is also in");
}

TEST(st_unlisted_tensor_is_a_warning) {
    write_dir(test_tmp_path("model"), 80);
    const char *text = "{\"weight_map\": {\"t0\": \"model-00001-of-00003.safetensors\"}}";
    put_file(test_tmp_path("model/model.safetensors.index.json"), text, strlen(text));
    gw_st_set *s = open_ok(test_tmp_path("model"));
    CHECK_EQ(dg.nwarnings, 1);
    CHECK_EQ(gw_st_count(s), 2);
    close_all(s);
}

/* Each listed tensor must be in the shard that the index names, wherever else it may be. */
TEST(st_an_index_that_swaps_shards_is_refused) {
    const char *const files[] = {"model-00001-of-00003.safetensors",
                                 "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors"};
    write_dir(test_tmp_path("model"), 80);
    for (int wrong = 0; wrong < 5; wrong++) {
        gw_str text = {0};
        char name[16];
        for (int i = 0; i < 5; i++)
            gw_str_printf(&text, "%s\"t%d\": \"%s\"", i ? ", " : "{\"weight_map\": {", i,
                          files[(i / 2 + (i == wrong)) % 3]);
        gw_str_add(&text, "}}");
        snprintf(name, sizeof name, "'t%d'", wrong);
        refuse_index(gw_str_c(&text), name);
        gw_str_release(&text);
    }
}

TEST(st_a_whole_file_beside_an_index_is_read_with_a_warning) {
    write_dir(test_tmp_path("whole"), 0);
    write_dir(test_tmp_path("model"), 80);
    gw_str one = get_file(test_tmp_path("whole/model.safetensors"));
    put_file(test_tmp_path("model/model.safetensors"), one.data, one.len);
    gw_str_release(&one);
    gw_st_set *s = open_ok(test_tmp_path("model"));
    CHECK_EQ(dg.nwarnings, 1);
    CHECK_EQ(gw_st_nfiles(s), 1);
    close_all(s);
}

TEST(st_directory_without_model) {
    gw_st_set *s = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_st_open(test_tmpdir(), &s, &dg), &dg, "neither");
    CHECK(gw_st_open(test_tmp_path("absent.safetensors"), &s, &dg) == GW_ERR_IO);
    gw_diags_release(&dg);
}

/* --- damage -------------------------------------------------------------------------------- */

static gw_status use(const char *path, gw_diags *d) {
    gw_st_set *s = NULL;
    GW_TRY(gw_st_open(path, &s, d));
    uint64_t sum = 0;
    for (int64_t i = 0; i < gw_st_count(s); i++) {
        const gw_st_tensor *t = gw_st_get(s, i);
        sum += gw_hash64(t->data, (size_t)t->bytes, 0);
        CHECK(gw_st_find(s, t->name) == t);
    }
    volatile uint64_t keep = sum;
    (void)keep;
    gw_st_free(s);
    return GW_OK;
}

TEST(st_every_truncation_is_refused) {
    write_mixed(test_tmp_path("m.safetensors"));
    damage_cut(test_tmp_path("m.safetensors"), use);
}

TEST(st_byte_flips_never_crash) {
    write_mixed(test_tmp_path("m.safetensors"));
    damage_flip(test_tmp_path("m.safetensors"), use, 3000);
}

/* --- files of other programs ----------------------------------------------------------------- */

/* Writing a reference file's tensors again gives the reference file, byte for byte. */
TEST(st_rewrites_golden_models_identically) {
    static const char *const models[] = {"gpt2",  "llama",   "qwen2",
                                         "qwen3", "mistral", "llama_tied"};
    int seen = 0;
    for (size_t m = 0; m < GW_COUNT(models); m++) {
        char below[128];
        snprintf(below, sizeof below, "golden/models/%s/model.safetensors", models[m]);
        const char *path = test_source_path(below), *key, *value;
        if (!gw_path_exists(path)) continue;
        seen++;
        gw_st_set *s = open_ok(path);
        gw_st_writer *w = gw_st_writer_new(test_tmp_path("copy.safetensors"));
        for (int64_t i = 0; gw_st_metadata_at(s, i, &key, &value); i++)
            gw_st_writer_metadata(w, key, value);
        for (int64_t i = gw_st_count(s) - 1; i >= 0; i--) {
            const gw_st_tensor *t = gw_st_get(s, i);
            CHECK_OK(gw_st_writer_declare(w, t->name, t->dtype, t->ndim, t->dims, &dg), &dg);
        }
        CHECK_OK(gw_st_writer_begin(w, &dg), &dg);
        for (int64_t i = 0; i < gw_st_count(s); i++)
            CHECK_OK(gw_st_writer_put(w, gw_st_get(s, i)->name, gw_st_get(s, i)->data,
                                      gw_st_get(s, i)->bytes, &dg),
                     &dg);
        CHECK_OK(gw_st_writer_finish(w, &dg), &dg);
        gw_st_writer_free(w);
        gw_str a = get_file(path), b = get_file(test_tmp_path("copy.safetensors"));
        CHECK_EQ(a.len, b.len);
        CHECK_MSG(memcmp(a.data, b.data, a.len) == 0, "%s differs", below);
        gw_str_release(&a);
        gw_str_release(&b);
        close_all(s);
    }
    if (seen == 0) SKIP("tests/golden/models is not there");
}

TEST(st_reads_a_golden_sharded_model) {
    const char *dir = test_source_path("golden/models/llama_sharded");
    const char *whole = test_source_path("golden/models/llama");
    if (!gw_path_exists(dir) || !gw_path_exists(whole)) SKIP("tests/golden/models is not there");
    gw_st_set *s = open_ok(dir), *one = NULL;
    CHECK_OK(gw_st_open(whole, &one, &dg), &dg);
    CHECK(gw_st_nfiles(s) > 1);
    CHECK_EQ(gw_st_count(s), gw_st_count(one));
    CHECK_EQ(gw_st_total_bytes(s), gw_st_total_bytes(one));
    for (int64_t i = 0; i < gw_st_count(one); i++) {
        const gw_st_tensor *a = gw_st_get(one, i), *b = gw_st_find(s, a->name);
        CHECK_MSG(b && b->bytes == a->bytes && b->ndim == a->ndim, "%s", a->name);
    }
    gw_st_free(one);
    close_all(s);
}
