// SPDX-License-Identifier: Apache-2.0
// MDS: bytes as the format has them, what is written reads back, and damage has a name.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"  /* gw_file_read */
#include "base/rng.h" /* gw_rng_u32 */
#include "file/mds.h" /* gw_mds */
#include "harness.h"  /* TEST, CHECK */

static const char *const NAMES[] = {"tokens", "id", "text", "pair"};
static const char *const ENCODINGS[] = {"ndarray:uint16", "int", "str", "ndarray:int32:2"};

typedef struct sample {
    uint16_t tokens[64];
    int64_t id;
    char text[32];
    int32_t pair[2];
    int n;
} sample;

static sample make(int64_t i) {
    sample s = {.id = i * 1000003, .n = 1 + (int)(i * 7 % 60), .pair = {(int32_t)i, -(int32_t)i}};
    for (int k = 0; k < s.n; k++) s.tokens[k] = (uint16_t)(i * 31 + k);
    snprintf(s.text, sizeof s.text, "%.*s-%lld", (int)(i % 9), "documents", (long long)i);
    return s;
}

static void write_set(const char *dir, int64_t samples, const char *compression, int64_t limit) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mds_writer *w;
    gw_str value = {0};
    static const char *const hashes[] = {"xxh64", "sha1"};
    gw_mds_writer_options o = {.dir = dir,
                               .names = NAMES,
                               .encodings = ENCODINGS,
                               .ncolumns = 4,
                               .compression = compression,
                               .hashes = hashes,
                               .nhashes = 2,
                               .size_limit = limit};
    CHECK_OK(gw_mds_writer_new(&o, &w, &dg), &dg);
    for (int64_t i = 0; i < samples; i++) {
        sample s = make(i);
        gw_str_clear(&value);
        gw_mds_array_write(gw_mds_writer_column(w, 0), GW_MDS_U16, s.tokens, s.n, &value);
        gw_mds_value v[] = {{value.data, (int64_t)value.len},
                            {&s.id, 8},
                            {s.text, (int64_t)strlen(s.text)},
                            {s.pair, 8}};
        CHECK_OK(gw_mds_writer_add(w, v, s.n, &dg), &dg);
    }
    CHECK_OK(gw_mds_writer_finish(w, &dg), &dg);
    gw_mds_writer_free(w);
    gw_str_release(&value);
    gw_diags_release(&dg);
}

static void check_set(const char *dir, int64_t samples) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mds *m;
    CHECK_OK(gw_mds_open(dir, true, &m, &dg), &dg);
    const gw_mds_index *x = gw_mds_get_index(m);
    CHECK_EQ(x->samples, samples);
    int64_t tokens = 0;
    for (int64_t i = 0; i < samples; i++) {
        const gw_mds_view *v;
        const uint8_t *p;
        int64_t at, n;
        gw_mds_array a;
        sample s = make(i);
        CHECK_OK(gw_mds_get(m, i, &v, &at, &dg), &dg);
        int c = gw_mds_column_find(v->shard, "tokens");
        CHECK_OK(gw_mds_view_value(v, at, c, &p, &n, &dg), &dg);
        CHECK(gw_mds_array_read(&v->shard->columns[c], p, n, &a));
        CHECK(a.count == s.n && a.element == GW_MDS_U16 &&
              !memcmp(a.data, s.tokens, 2 * (size_t)s.n));
        CHECK_OK(gw_mds_view_value(v, at, gw_mds_column_find(v->shard, "id"), &p, &n, &dg), &dg);
        CHECK(n == 8 && !memcmp(p, &s.id, 8));
        CHECK_OK(gw_mds_view_value(v, at, gw_mds_column_find(v->shard, "text"), &p, &n, &dg), &dg);
        CHECK(n == (int64_t)strlen(s.text) && !memcmp(p, s.text, (size_t)n));
        CHECK_OK(gw_mds_view_value(v, at, gw_mds_column_find(v->shard, "pair"), &p, &n, &dg), &dg);
        CHECK(n == 8 && !memcmp(p, s.pair, 8));
        tokens += s.n;
    }
    CHECK_EQ(x->tokens, tokens);
    gw_mds_close(m);
    gw_diags_release(&dg);
}

TEST(what_is_written_reads_back) {
    static const char *const zip[] = {NULL, "zstd:7", "zstd"};
    char dir[512];
    for (int z = 0; z < 3; z++)
        for (int64_t n = 1; n <= 300; n = 5 * n + 1)
            for (int64_t limit = 600; limit <= 600000; limit *= 1000) {
                snprintf(dir, sizeof dir, "%s-%d-%lld-%lld", test_tmp_path("set"), z, (long long)n,
                         (long long)limit);
                write_set(dir, n, zip[z], limit);
                check_set(dir, n);
            }
}

/* One sample by hand, from the format's description: u32 1, offsets, config, then the sizes of the
 * two columns that vary (text, tokens in the order of names), id 8 bytes, pair 8, text, tokens. */
TEST(bytes_of_a_shard) {
    gw_diags dg;
    gw_diags_init(&dg);
    char dir[512], path[600];
    gw_str raw = {0};
    snprintf(dir, sizeof dir, "%s", test_tmp_path("one"));
    snprintf(path, sizeof path, "%s/shard.00000.mds", dir);
    write_set(dir, 1, NULL, 0);
    CHECK_OK(gw_file_read(path, 0, &raw, &dg), &dg);
    static const char CONFIG[] =
        "{\"column_encodings\": [\"int\", \"ndarray:int32:2\", \"str\", \"ndarray:uint16\"], "
        "\"column_names\": [\"id\", \"pair\", \"text\", \"tokens\"], "
        "\"column_sizes\": [8, 8, null, null], \"compression\": null, \"format\": \"mds\", "
        "\"hashes\": [\"sha1\", \"xxh64\"], \"size_limit\": 67108864, \"version\": 2}";
    size_t c = sizeof CONFIG - 1, begin = 12 + c;
    CHECK(raw.len == begin + 8 + 8 + 8 + 2 + 4 && !memcmp(raw.data + 12, CONFIG, c));
    static const unsigned char SIZES[8] = {2, 0, 0, 0, 4, 0, 0, 0};
    CHECK(!memcmp(raw.data, "\1\0\0\0", 4));
    CHECK_EQ((unsigned char)raw.data[4] | (unsigned char)raw.data[5] << 8, begin);
    CHECK(!memcmp(raw.data + begin, SIZES, 8));
    CHECK(!memcmp(raw.data + begin + 24, "-0", 2));
    CHECK(!memcmp(raw.data + begin + 26, "\x04\x01\0\0", 4)); /* ndim 1 << 2 | u8, 1, one u16 0 */
    gw_str_release(&raw);
    gw_diags_release(&dg);
}

/* Digests of "abc" and of nothing, as published with each algorithm. */
TEST(hashes_by_name) {
    static const char *const known[][2] = {
        {"sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"md5", "900150983cd24fb0d6963f7d28e17f72"},
        {"sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"sha3_256", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"},
        {"xxh32", "32d153ff"},
        {"xxh64", "44bc2cf5ad770999"},
        {"xxh3_64", "78af5f94892f3950"},
        {"xxh128", "06b05ab6733a618578af5f94892f3950"}};
    gw_str hex = {0};
    for (size_t i = 0; i < GW_COUNT(known); i++) {
        CHECK(gw_mds_hash_hex(known[i][0], "abc", 3, &hex));
        CHECK_STR(gw_str_c(&hex), known[i][1]);
    }
    CHECK(!gw_mds_hash_hex("crc9", "abc", 3, &hex));
    CHECK(!gw_mds_hash_hex("shake_128", "abc", 3, &hex));
    gw_str_release(&hex);
}

TEST(encodings) {
    gw_diags dg;
    gw_arena mem = {0};
    gw_mds_column c;
    gw_diags_init(&dg);
    static const struct {
        const char *name;
        gw_mds_kind kind;
        int64_t bytes;
    } good[] = {{"bytes", GW_MDS_BYTES, 0},
                {"str", GW_MDS_STR, 0},
                {"int", GW_MDS_INT, 8},
                {"uint16", GW_MDS_SCALAR, 2},
                {"float64", GW_MDS_SCALAR, 8},
                {"ndarray", GW_MDS_NDARRAY, 0},
                {"ndarray:int32", GW_MDS_NDARRAY, 0},
                {"ndarray:int32:3,224", GW_MDS_NDARRAY, 2688},
                {"str_decimal", GW_MDS_STR, 0},
                {"json", GW_MDS_JSON, 0},
                {"jpeg:75", GW_MDS_IMAGE, 0},
                {"list[png]", GW_MDS_LIST, 0}};
    for (size_t i = 0; i < GW_COUNT(good); i++) {
        CHECK_OK(gw_mds_column_parse(&mem, "x", good[i].name, "f", &c, &dg), &dg);
        CHECK(c.kind == good[i].kind && c.bytes == good[i].bytes);
    }
    static const char *const bad[] = {"",
                                      "ndarray:",
                                      "ndarray:int32:",
                                      "ndarray:int32:0",
                                      "uint24",
                                      "ndarray::3",
                                      "ndarray:int32:3,",
                                      "int:3",
                                      "str:utf8",
                                      "ndarray:int64:4294967296,4294967296"};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        gw_diags_clear(&dg);
        CHECK_FAILS(gw_mds_column_parse(&mem, "x", bad[i], "f", &c, &dg), &dg,
                    "none of the format");
    }
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_mds_column_parse(&mem, "x", "pkl", "f", &c, &dg), &dg, "pickles");
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

static void index_fails(const char *text, const char *why) {
    gw_diags dg;
    gw_arena mem = {0};
    gw_mds_index x;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_mds_index_parse(&mem, text, (int64_t)strlen(text), "index.json", &x, &dg), &dg,
                why);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

#define SHARD(name, columns)                                                                       \
    "{\"version\": 2, \"shards\": [{\"version\": 2, \"format\": \"mds\", \"compression\": null, "  \
    "\"hashes\": [], \"size_limit\": 1, \"samples\": 3, \"zip_data\": null, " columns              \
    ", \"raw_data\": {\"basename\": \"" name "\", \"bytes\": 10, \"hashes\": {}}}]}"
#define COLUMNS(encoding, size)                                                                    \
    "\"column_names\": [\"x\"], \"column_encodings\": [\"" encoding                                \
    "\"], \"column_sizes\": [" size "]"

TEST(indexes_that_cannot_be) {
    gw_diags dg;
    gw_arena mem = {0};
    gw_mds_index x;
    gw_diags_init(&dg);
    static const char GOOD[] = SHARD("a/shard.mds", COLUMNS("int", "8"));
    CHECK_OK(gw_mds_index_parse(&mem, GOOD, sizeof GOOD - 1, "f", &x, &dg), &dg);
    CHECK(x.nshards == 1 && x.samples == 3 && x.tokens == -1);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
    index_fails("{\"version\": 1, \"shards\": []}", "version 1");
    index_fails("[]", "not an object");
    index_fails(SHARD("../x", COLUMNS("int", "8")), "leads out");
    index_fails(SHARD("/etc/x", COLUMNS("int", "8")), "leads out");
    index_fails(SHARD("a/../../x", COLUMNS("int", "8")), "leads out");
    index_fails(SHARD("a", COLUMNS("int", "4")), "size 4");
    index_fails(SHARD("a", COLUMNS("pkl", "null")), "pickles");
    index_fails(SHARD("a", "\"column_names\": [], \"column_encodings\": [], \"column_sizes\": []"),
                "do not match");
}

/* Any byte of a shard changed, or its end cut off, is noticed. */
TEST(damage_is_named) {
    gw_diags dg;
    gw_diags_init(&dg);
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("damaged"));
    snprintf(path, sizeof path, "%s/shard.00000.mds", dir);
    write_set(dir, 20, NULL, 0);
    gw_str raw = {0};
    CHECK_OK(gw_file_read(path, 0, &raw, &dg), &dg);
    for (size_t i = 0; i < raw.len; i += 13) {
        gw_mds *m;
        const gw_mds_view *v;
        int64_t at;
        raw.data[i] ^= 16;
        CHECK_OK(gw_file_write_atomic(path, raw.data, (int64_t)raw.len, &dg), &dg);
        raw.data[i] ^= 16;
        CHECK_OK(gw_mds_open(dir, true, &m, &dg), &dg);
        CHECK_FAILS(gw_mds_get(m, 3, &v, &at, &dg), &dg, "the index says");
        gw_mds_close(m);
        gw_diags_clear(&dg);
    }
    gw_mds *m;
    const gw_mds_view *v;
    int64_t at;
    CHECK_OK(gw_file_write_atomic(path, raw.data, (int64_t)raw.len - 5, &dg), &dg);
    CHECK_OK(gw_mds_open(dir, false, &m, &dg), &dg);
    CHECK_FAILS(gw_mds_get(m, 3, &v, &at, &dg), &dg, "outside the file");
    gw_mds_close(m);
    gw_str_release(&raw);
    gw_diags_release(&dg);
}

TEST(what_no_shard_can_hold_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mds_writer *w;
    gw_mds_writer_options o = {.dir = test_tmp_path("refused"),
                               .names = NAMES,
                               .encodings = ENCODINGS,
                               .ncolumns = 4,
                               .compression = "gz:6"};
    CHECK_FAILS(gw_mds_writer_new(&o, &w, &dg), &dg, "gz:6");
    gw_diags_clear(&dg);
    o.compression = NULL;
    o.size_limit = INT64_C(1) << 32;
    CHECK_FAILS(gw_mds_writer_new(&o, &w, &dg), &dg, "32 bits");
    gw_diags_clear(&dg);
    o.size_limit = 0;
    CHECK_OK(gw_mds_writer_new(&o, &w, &dg), &dg);
    int64_t id = 1;
    gw_mds_value v[] = {{"\4\1\0\0", 4}, {&id, 4}, {"", 0}, {"12345678", 8}};
    CHECK_FAILS(gw_mds_writer_add(w, v, 0, &dg), &dg, "column 'id'");
    gw_mds_writer_free(w);
    gw_diags_release(&dg);
}
