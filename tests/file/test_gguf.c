// SPDX-License-Identifier: Apache-2.0
// file/gguf: containers made here, block formats against the format's own Python package, damage.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h" /* gw_fp16_from_f32, gw_bf16_from_f32 */
#include "damage.h"
#include "file/gguf.h"
#include "gguf_maker.h"
#include "harness.h"

static gw_diags dg;

static gw_gguf *open_ok(const char *path) {
    gw_gguf *g = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_gguf_open(path, &g, &dg), &dg);
    return g;
}

static void refuse_file(const char *path, const char *expected) {
    gw_gguf *g = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_gguf_open(path, &g, &dg), &dg, expected);
    CHECK(g == NULL);
    gw_diags_release(&dg);
}

static void refuse(gguf_maker *m, const char *expected) {
    maker_finish(m, test_tmp_path("bad.gguf"));
    refuse_file(test_tmp_path("bad.gguf"), expected);
}

static void close_all(gw_gguf *g) {
    gw_gguf_free(g);
    gw_diags_release(&dg);
}

static void make_mixed(const char *path) {
    static const char *const tokens[] = {"a", "", "\xc4\xa0the"};
    gguf_maker m = {0};
    float x[6] = {1, 2, 3, 4, 5, 6};
    uint8_t q[2 * 34] = {0};
    maker_str(&m, "general.architecture", "llama");
    maker_u32(&m, "llama.block_count", 30);
    maker_f32(&m, "llama.eps", 1e-5f);
    maker_strs(&m, "tokenizer.ggml.tokens", tokens, 3);
    maker_raw(&m, "types", GW_GGUF_ARRAY, "\x05\0\0\0\x02\0\0\0\0\0\0\0\xff\xff\xff\xff\x07\0\0\0",
              20);
    maker_tensor(&m, "x", GW_GGML_F32, 2, (int64_t[]){2, 3}, x, sizeof x);
    for (int b = 0; b < 2; b++) { /* rows 0.5 * i and 0.5 * -i */
        gw_fp16 d = gw_fp16_from_f32(0.5f);
        memcpy(q + 34 * b, &d.bits, 2);
        for (int i = 0; i < 32; i++) q[34 * b + 2 + i] = (uint8_t)(b ? -i : i);
    }
    maker_tensor(&m, "q", GW_GGML_Q8_0, 2, (int64_t[]){2, 32}, q, sizeof q);
    maker_finish(&m, path);
}

TEST(gguf_reads_values_and_tensors) {
    make_mixed(test_tmp_path("a.gguf"));
    gw_gguf *g = open_ok(test_tmp_path("a.gguf"));
    int64_t n = -7;
    double x;
    bool b;
    const char *s;
    CHECK(gw_gguf_get_str(g, "general.architecture", &s));
    CHECK_STR(s, "llama");
    CHECK(gw_gguf_get_i64(g, "llama.block_count", &n) && n == 30);
    CHECK(gw_gguf_get_f64(g, "llama.block_count", &x) && x == 30);
    CHECK(gw_gguf_get_f64(g, "llama.eps", &x));
    CHECK_NEAR(x, 1e-5, 1e-12);
    n = 4;
    CHECK(!gw_gguf_get_i64(g, "llama.eps", &n) && !gw_gguf_get_i64(g, "absent", &n) && n == 4);
    CHECK(!gw_gguf_get_bool(g, "llama.block_count", &b));
    const gw_gguf_value *v = gw_gguf_find_value(g, "tokenizer.ggml.tokens");
    CHECK(v && v->kind == GW_GGUF_ARRAY && v->elem == GW_GGUF_STRING);
    CHECK_EQ(v->count, 3);
    CHECK_STR(v->strs[2].data, "\xc4\xa0the");
    CHECK_EQ(v->strs[1].len, 0);
    v = gw_gguf_find_value(g, "types");
    CHECK(gw_gguf_elem_i64(v, 0, &n) && n == -1);
    CHECK(gw_gguf_elem_i64(v, 1, &n) && n == 7);
    CHECK(!gw_gguf_elem_i64(v, 2, &n));
    const gw_gguf_tensor *t = gw_gguf_find_tensor(g, "x");
    CHECK(t && t->ndim == 2 && t->dims[0] == 2 && t->dims[1] == 3);
    float row[32];
    CHECK(gw_gguf_row_f32(t, 1, row));
    CHECK_NEAR(row[2], 6, 0);
    CHECK(!gw_gguf_row_f32(t, 2, row));
    CHECK(gw_gguf_row_f32(gw_gguf_find_tensor(g, "q"), 1, row));
    CHECK_NEAR(row[31], -15.5, 0);
    close_all(g);
}

TEST(gguf_scalar_kinds_have_their_ranges) {
    gguf_maker m = {0};
    maker_raw(&m, "u8", GW_GGUF_U8, "\xff", 1);
    maker_raw(&m, "i8", GW_GGUF_I8, "\xff", 1);
    maker_raw(&m, "u16", GW_GGUF_U16, "\xff\xff", 2);
    maker_raw(&m, "i16", GW_GGUF_I16, "\xff\xff", 2);
    maker_raw(&m, "u32", GW_GGUF_U32, "\xff\xff\xff\xff", 4);
    maker_raw(&m, "i32", GW_GGUF_I32, "\xff\xff\xff\xff", 4);
    maker_raw(&m, "bool", GW_GGUF_BOOL, "\x01", 1);
    maker_raw(&m, "u64", GW_GGUF_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    maker_raw(&m, "i64", GW_GGUF_I64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    maker_raw(&m, "f64", GW_GGUF_F64, "\0\0\0\0\0\0\xf8\x3f", 8);
    maker_finish(&m, test_tmp_path("k.gguf"));
    gw_gguf *g = open_ok(test_tmp_path("k.gguf"));
    static const struct {
        const char *key;
        int64_t want;
    } cases[] = {{"u8", 255},         {"i8", -1},  {"u16", 65535}, {"i16", -1},
                 {"u32", 4294967295}, {"i32", -1}, {"bool", 1},    {"i64", -1}};
    int64_t n;
    double x;
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        CHECK(gw_gguf_get_i64(g, cases[i].key, &n));
        CHECK_EQ(n, cases[i].want);
    }
    CHECK(!gw_gguf_get_i64(g, "u64", &n)); /* past the range of int64_t */
    CHECK(gw_gguf_get_f64(g, "f64", &x) && x == 1.5);
    close_all(g);
}

TEST(gguf_version_2_and_alignment) {
    gguf_maker m = {.version = 2, .align = 64};
    float x[3] = {7, 8, 9};
    maker_u32(&m, "general.alignment", 64);
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){1}, x, 4);
    maker_tensor(&m, "b", GW_GGML_F32, 1, (int64_t[]){2}, x + 1, 8);
    maker_finish(&m, test_tmp_path("v2.gguf"));
    gw_gguf *g = open_ok(test_tmp_path("v2.gguf"));
    const gw_gguf_tensor *b = gw_gguf_find_tensor(g, "b");
    CHECK_EQ(b->offset % 64, 0);
    CHECK_NEAR(((const float *)b->data)[1], 9, 0);
    close_all(g);
}

TEST(gguf_refuses_bad_headers) {
    gguf_maker m = {.version = 1};
    refuse(&m, "versions 2 and 3");
    m.version = 0x03000000;
    refuse(&m, "big-endian");
    put_file(test_tmp_path("no.gguf"), "GGML\3\0\0\0", 8);
    refuse_file(test_tmp_path("no.gguf"), "not a GGUF file");
    m.nvalues = UINT64_MAX / 2; /* counts that the file has no room for */
    refuse(&m, "key-values");
    m.ntensors = UINT64_MAX;
    refuse(&m, "tensors");
}

TEST(gguf_refuses_bad_values) {
    gguf_maker m = {0};
    maker_raw(&m, "k", GW_GGUF_STRING, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
    refuse(&m, "longer than the rest");
    maker_raw(&m, "k", GW_GGUF_ARRAY, "\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\x1f", 12);
    refuse(&m, "longer than the rest");
    maker_raw(&m, "k", GW_GGUF_ARRAY, "\x04\0\0\0\xff\xff\xff\xff\xff\xff\xff\x1f", 12);
    refuse(&m, "longer than the rest");
    maker_raw(&m, "k", GW_GGUF_ARRAY, "\x09\0\0\0\x01\0\0\0\0\0\0\0", 12);
    refuse(&m, "arrays of arrays");
    maker_raw(&m, "k", (gw_gguf_kind)13, "12345678", 8);
    refuse(&m, "not known");
    maker_u32(&m, "k", 1);
    maker_u32(&m, "k", 1);
    refuse(&m, "twice");
    maker_u32(&m, "general.alignment", 24);
    refuse(&m, "alignment");
    maker_u32(&m, "general.alignment", 0);
    refuse(&m, "alignment");
}

TEST(gguf_refuses_bad_tensors) {
    gguf_maker m = {0};
    float x[64] = {0};
    maker_tensor(&m, "a", (gw_ggml_type)99, 1, (int64_t[]){1}, x, 4);
    refuse(&m, "type 99");
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){2}, x, 4);
    refuse(&m, "past the end");
    maker_tensor(&m, "a", GW_GGML_F32, 2, (int64_t[]){INT64_MAX, 4}, x, 4);
    refuse(&m, "overflow");
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){INT64_MAX}, x, 4);
    refuse(&m, "overflow");
    maker_tensor(&m, "a", GW_GGML_Q8_0, 1, (int64_t[]){33}, x, 68);
    refuse(&m, "whole blocks");
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){1}, x, 4);
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){1}, x, 4);
    refuse(&m, "twice");
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){16}, x, 4);
    maker_tensor(&m, "b", GW_GGML_F32, 1, (int64_t[]){16}, x, 64);
    refuse(&m, "overlaps");
    m.align = 4;
    maker_tensor(&m, "a", GW_GGML_F32, 1, (int64_t[]){1}, x, 4);
    maker_tensor(&m, "b", GW_GGML_F32, 1, (int64_t[]){1}, x, 4);
    refuse(&m, "not aligned");
}

/* --- block formats --------------------------------------------------------------------------- */

/* Blocks of pseudo-random bytes (x -> 1664525 x + 1013904223, top byte, from 12345), the
 * half-precision scales set to 0.0123 and -0.071; eight elements and the sum of magnitudes as
 * gguf-py dequantises them. */
static const struct {
    gw_ggml_type type;
    int bytes, scales[2], at[8];
    double want[8], sum;
} blocks[] = {
    {GW_GGML_Q4_0,
     18,
     {0, -1},
     {0, 1, 15, 16, 17, 21, 30, 31},
     {0.036895752, -0.0737915039, -0.036895752, 0, 0.024597168, 0, -0.024597168, 0.0860900879},
     1.36514282227},
    {GW_GGML_Q4_1,
     20,
     {0, 2},
     {0, 1, 15, 16, 17, 21, 30, 31},
     {0.0274047852, 0.0765991211, -0.0340881348, 0.101196289, -0.0586853027, 0.0765991211,
      0.00280761719, 0.113494873},
     1.60122680664},
    {GW_GGML_Q5_0,
     22,
     {0, -1},
     {0, 1, 15, 16, 17, 21, 30, 31},
     {0.172180176, 0.147583008, 0.110687256, -0.110687256, -0.0983886719, 0.135284424, -0.012298584,
      -0.0737915039},
     3.09924316406},
    {GW_GGML_Q5_1,
     24,
     {0, 2},
     {0, 1, 15, 16, 17, 21, 30, 31},
     {0.0274047852, 0.0274047852, 0.113494873, 0.0397033691, 0.273376465, 0.138092041,
      0.00280761719, 0.211883545},
     4.27243041992},
    {GW_GGML_Q8_0,
     34,
     {0, -1},
     {0, 1, 15, 16, 17, 21, 30, 31},
     {-1.43893433, -1.15606689, -0.135284424, 1.26675415, -0.159881592, 1.56192017, 1.45123291,
      0.910095215},
     26.4419555664},
    {GW_GGML_Q4_K,
     144,
     {0, 2},
     {0, 1, 127, 128, 129, 197, 254, 255},
     {4.16333008, 4.16333008, 5.13891602, 6.71835327, 4.01266479, 0.780822754, 9.59408569,
      5.49865723},
     1370.91943359},
    {GW_GGML_Q6_K,
     210,
     {208, -1},
     {0, 1, 127, 128, 129, 197, 254, 255},
     {20.9198914, 19.9237061, -8.48602295, 23.2566223, 18.7553406, -18.2510986, -7.57592773,
      9.64208984},
     3163.15890503},
};

TEST(gguf_blocks_agree_with_the_reference) {
    for (size_t b = 0; b < GW_COUNT(blocks); b++) {
        uint8_t bytes[256];
        float out[256];
        uint32_t x = 12345;
        for (int i = 0; i < blocks[b].bytes; i++) {
            x = x * 1664525u + 1013904223u;
            bytes[i] = (uint8_t)(x >> 24);
        }
        for (int i = 0; i < 2 && blocks[b].scales[i] >= 0; i++) {
            gw_fp16 h = gw_fp16_from_f32(i == 0 ? 0.0123f : -0.071f);
            memcpy(bytes + blocks[b].scales[i], &h.bits, 2);
        }
        int64_t n = gw_ggml_block_elems(blocks[b].type);
        double sum = 0;
        CHECK_EQ(gw_ggml_block_bytes(blocks[b].type), blocks[b].bytes);
        CHECK(gw_ggml_dequantise(blocks[b].type, bytes, n, out));
        for (int i = 0; i < 8; i++) { /* printed with nine digits */
            double want = blocks[b].want[i];
            CHECK_NEAR(out[blocks[b].at[i]], want, 1e-8 * (1 + fabs(want)));
        }
        for (int64_t i = 0; i < n; i++) sum += fabs((double)out[i]);
        CHECK_NEAR(sum, blocks[b].sum, 1e-10 * blocks[b].sum);
    }
}

TEST(gguf_plain_types) {
    gw_fp16 h[2] = {gw_fp16_from_f32(-0.375f), gw_fp16_from_f32(65504)};
    gw_bf16 b[1] = {gw_bf16_from_f32(3.0e38f)};
    double d[1] = {1.0 / 3};
    float out[32];
    CHECK(gw_ggml_dequantise(GW_GGML_F16, h, 2, out) && out[0] == -0.375f && out[1] == 65504);
    CHECK(gw_ggml_dequantise(GW_GGML_BF16, b, 1, out) && out[0] == gw_bf16_to_f32(b[0]));
    CHECK(gw_ggml_dequantise(GW_GGML_F64, d, 1, out) && out[0] == (float)(1.0 / 3));
    CHECK(!gw_ggml_dequantise(GW_GGML_I32, d, 1, out));
    CHECK(!gw_ggml_dequantise(GW_GGML_Q8_0, h, 31, out));
}

/* --- damage ---------------------------------------------------------------------------------- */

static gw_status use(const char *path, gw_diags *d) {
    gw_gguf *g = NULL;
    GW_TRY(gw_gguf_open(path, &g, d));
    int64_t n;
    double x, total = 0;
    for (int64_t i = 0; i < gw_gguf_nvalues(g); i++) {
        const gw_gguf_value *v = gw_gguf_value_at(g, i);
        for (int64_t k = 0; k < v->count; k++) {
            if (gw_gguf_elem_i64(v, k, &n)) total += (double)n;
            if (gw_gguf_elem_f64(v, k, &x)) total += x;
            if (v->strs) CHECK_EQ(v->strs[k].data[v->strs[k].len], 0);
        }
    }
    for (int64_t i = 0; i < gw_gguf_ntensors(g); i++) {
        const gw_gguf_tensor *t = gw_gguf_tensor_at(g, i);
        int64_t width = t->dims[t->ndim - 1];
        float *row = malloc((size_t)(width + 1) * sizeof *row);
        for (int64_t r = 0; width > 0 && r < t->elems / width; r++)
            if (gw_gguf_row_f32(t, r, row)) total += (double)row[0];
        free(row);
    }
    volatile double keep = total;
    (void)keep;
    gw_gguf_free(g);
    return GW_OK;
}

TEST(gguf_every_truncation_is_refused) {
    make_mixed(test_tmp_path("a.gguf"));
    damage_cut(test_tmp_path("a.gguf"), use);
}

TEST(gguf_byte_flips_never_crash) {
    make_mixed(test_tmp_path("a.gguf"));
    damage_flip(test_tmp_path("a.gguf"), use, 3000);
}

/* --- a real model ------------------------------------------------------------------------------
 */

/* Row 100 of three tensors as gguf-py dequantises it: four elements and the sum of magnitudes. */
TEST(gguf_reads_smollm2) {
    const char *path = getenv("GW_SMOLLM2_GGUF");
    if (!path || !*path) SKIP("GW_SMOLLM2_GGUF does not name SmolLM2-135M-Instruct.Q4_1.gguf");
    static const struct {
        const char *name;
        gw_ggml_type type;
        int64_t rows, width;
        double first, second, at_300, last, sum;
    } cases[] = {
        {"token_embd.weight", GW_GGML_Q8_0, 49152, 576, 0.0190525055, -0.0843753815, -0.149669647,
         0.128303528, 49.8856105804},
        {"blk.3.attn_v.weight", GW_GGML_Q4_1, 192, 576, 0.323974609, -0.169677734, -0.0394897461,
         -0.239868164, 71.3121948242},
        {"blk.7.ffn_down.weight", GW_GGML_Q4_1, 576, 1536, -0.0349960327, 0.107902527, 0.0991363525,
         -0.00411987305, 88.9471206665},
    };
    gw_gguf *g = open_ok(path);
    float row[1536];
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        const gw_gguf_tensor *t = gw_gguf_find_tensor(g, cases[i].name);
        double sum = 0;
        CHECK(t && t->ndim == 2 && t->type == cases[i].type);
        CHECK_EQ(t->dims[0], cases[i].rows);
        CHECK_EQ(t->dims[1], cases[i].width);
        CHECK(gw_gguf_row_f32(t, 100, row));
        for (int64_t k = 0; k < t->dims[1]; k++) sum += fabs((double)row[k]);
        CHECK_NEAR(row[0], cases[i].first, 1e-9);
        CHECK_NEAR(row[1], cases[i].second, 1e-9);
        CHECK_NEAR(row[300], cases[i].at_300, 1e-9);
        CHECK_NEAR(row[t->dims[1] - 1], cases[i].last, 1e-9);
        CHECK_NEAR(sum, cases[i].sum, 1e-9);
    }
    CHECK_EQ(gw_gguf_find_value(g, "tokenizer.ggml.tokens")->count, 49152);
    close_all(g);
}
