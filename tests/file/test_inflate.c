// SPDX-License-Identifier: Apache-2.0
// The stream reader: members and frames in order with their places, breaks where bytes are damaged,
// bounds on bombs. Encoders are zlib's and zstd's own.
#include <string.h>

#include "archive_maker.h"
#include "base/io.h"
#include "base/rng.h"
#include "file/inflate.h"
#include "harness.h"

/* n bytes that compress to about half, a function of seed. */
static void add_noise(gw_str *s, size_t n, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        gw_str_add_char(s, (char)('a' + (x >> 60)));
    }
}

/* Reads all, in steps of `step`, over breaks. Returns the number of breaks; *first: the offset of
 * the first. */
static int read_all(gw_inflate *r, int64_t step, gw_str *out, int64_t *first) {
    int breaks = 0;
    for (;;) {
        const uint8_t *p;
        int64_t n = GW_MIN(gw_inflate_peek(r, step, &p), step), offset;
        gw_str_add_n(out, p, (size_t)n);
        CHECK_EQ(gw_inflate_skip(r, n), n);
        if (n > 0) continue;
        if (!gw_inflate_break(r, &offset)) return breaks;
        if (breaks++ == 0 && first) *first = offset;
        gw_inflate_resume(r);
    }
}

typedef void maker(gw_str *out, const void *p, size_t n);
static void one_frame(gw_str *out, const void *p, size_t n) { make_zstd(out, p, n, NULL, 0); }

static void round_trip(maker *make, gw_codec codec) {
    static const size_t sizes[] = {0, 1, 100, 70000, 300000, 9000000};
    gw_str plain = {0}, packed = {0}, got = {0};
    for (size_t i = 0; i < GW_COUNT(sizes); i++) {
        size_t at = plain.len;
        add_noise(&plain, sizes[i], i);
        make(&packed, plain.data + at, plain.len - at);
    }
    static const int64_t steps[] = {1000, 65537, 1 << 23};
    for (size_t i = 0; i < GW_COUNT(steps); i++) {
        gw_inflate *r = gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)packed.len, 0);
        CHECK_EQ(gw_inflate_codec(r), codec);
        gw_str_clear(&got);
        CHECK_EQ(read_all(r, steps[i], &got, NULL), 0);
        CHECK_EQ(got.len, plain.len);
        CHECK(memcmp(got.data, plain.data, plain.len) == 0);
        CHECK_EQ(gw_inflate_bytes_in(r), (int64_t)packed.len);
        CHECK_EQ(gw_inflate_bytes_out(r), (int64_t)plain.len);
        gw_inflate_free(r);
    }
    gw_str_release(&plain);
    gw_str_release(&packed);
    gw_str_release(&got);
}

TEST(inflate_gzip_members) { round_trip(make_gzip, GW_CODEC_GZIP); }
TEST(inflate_zstd_frames) { round_trip(one_frame, GW_CODEC_ZSTD); }

static void places(maker *make) {
    gw_str packed = {0};
    int64_t offsets[50];
    for (int i = 0; i < 50; i++) {
        gw_str text = {0};
        offsets[i] = (int64_t)packed.len;
        add_noise(&text, 10 + (size_t)i * 37, (uint64_t)i);
        make(&packed, text.data, text.len);
        gw_str_release(&text);
    }
    gw_inflate *r = gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)packed.len, 0);
    for (int i = 0; i < 50; i++) {
        const uint8_t *p;
        CHECK(gw_inflate_at_member(r));
        CHECK_EQ(gw_inflate_offset(r), offsets[i]);
        CHECK(gw_inflate_peek(r, 3000, &p) > 9); /* reads ahead over members */
        gw_inflate_skip(r, 5);
        CHECK(!gw_inflate_at_member(r));
        CHECK_EQ(gw_inflate_offset(r), offsets[i]);
        CHECK_EQ(gw_inflate_skip_member(r), i < 49);
    }
    gw_inflate_free(r);
    gw_str_release(&packed);
}

TEST(inflate_knows_members_gzip) { places(make_gzip); }
TEST(inflate_knows_members_zstd) { places(one_frame); }

/* The field's fault: the last bytes of a gzip file are missing and nobody says so. */
TEST(inflate_truncated_is_told) {
    gw_str text = {0}, packed = {0}, got = {0};
    add_noise(&text, 5000, 1);
    make_gzip(&packed, text.data, text.len);
    int64_t second = (int64_t)packed.len, first = -1;
    make_gzip(&packed, text.data, text.len);
    for (size_t cut = 1; packed.len - cut > (size_t)second; cut += 1 + cut / 8) {
        gw_inflate *r =
            gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)(packed.len - cut), 0);
        gw_str_clear(&got);
        CHECK_EQ(read_all(r, 4096, &got, &first), 1);
        CHECK_EQ(first, second);
        CHECK(got.len >= text.len && got.len <= 2 * text.len);
        CHECK(memcmp(got.data, text.data, text.len) == 0);
        gw_inflate_free(r);
    }
    gw_str_release(&text);
    gw_str_release(&packed);
    gw_str_release(&got);
}

/* Any byte of a middle member changed: the members before and after it come whole, and if a byte of
 * the middle one is wrong, that is told with its offset. */
static void damaged_middle(maker *make, int stride) {
    gw_str parts[3] = {{0}}, packed = {0}, got = {0};
    int64_t at[4] = {0};
    for (int i = 0; i < 3; i++) {
        add_noise(&parts[i], 3000, (uint64_t)i + 7);
        make(&packed, parts[i].data, parts[i].len);
        at[i + 1] = (int64_t)packed.len;
    }
    for (int64_t k = at[1]; k < at[2]; k += stride) {
        packed.data[k] = (char)(packed.data[k] ^ 0x55);
        gw_inflate *r = gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)packed.len, 0);
        int64_t first = -1;
        gw_str_clear(&got);
        int breaks = read_all(r, 1 << 20, &got, &first);
        gw_inflate_free(r);
        packed.data[k] = (char)(packed.data[k] ^ 0x55);
        CHECK(got.len >= 6000);
        CHECK(memcmp(got.data, parts[0].data, 3000) == 0);
        CHECK(memcmp(got.data + got.len - 3000, parts[2].data, 3000) == 0);
        bool whole = got.len == 9000 && memcmp(got.data + 3000, parts[1].data, 3000) == 0;
        CHECK_MSG(whole || breaks == 1, "byte %lld: %d breaks", (long long)k, breaks);
        if (breaks) CHECK_EQ(first, at[1]);
    }
    for (int i = 0; i < 3; i++) gw_str_release(&parts[i]);
    gw_str_release(&packed);
    gw_str_release(&got);
}

TEST(inflate_damaged_gzip_member) { damaged_middle(make_gzip, 7); }
TEST(inflate_damaged_zstd_frame) { damaged_middle(one_frame, 7); }

TEST(inflate_stops_bombs) {
    gw_str zeros = {0}, packed = {0}, got = {0};
    gw_str_reserve(&zeros, 64 << 20);
    zeros.len = 64 << 20;
    memset(zeros.data, 0, zeros.len);
    make_zstd(&packed, zeros.data, zeros.len, NULL, 0);
    CHECK(packed.len < 10000);
    int64_t end = (int64_t)packed.len, first = -1;
    make_zstd(&packed, "after", 5, NULL, 0);
    gw_inflate *r = gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)packed.len, 1000);
    CHECK_EQ(read_all(r, 1 << 20, &got, &first), 1);
    CHECK_EQ(first, 0);
    CHECK(got.len < (20 << 20));
    CHECK(end > 0 && memcmp(got.data + got.len - 5, "after", 5) == 0);
    gw_inflate_free(r);
    gw_str_release(&zeros);
    gw_str_release(&packed);
    gw_str_release(&got);
}

/* IIPC: a skippable frame 0x184D2A5D at the start holds the dictionary, plain or compressed. */
TEST(inflate_zstd_dictionary) {
    gw_str dictionary = {0}, frame = {0}, packed = {0}, got = {0};
    add_noise(&dictionary, 20000, 3);
    for (int compressed = 0; compressed < 2; compressed++) {
        gw_str_clear(&packed);
        gw_str_clear(&frame);
        gw_str_clear(&got);
        if (compressed)
            make_zstd(&frame, dictionary.data, dictionary.len, NULL, 0);
        else
            gw_str_add_n(&frame, dictionary.data, dictionary.len);
        uint32_t head[2] = {0x184d2a5d, (uint32_t)frame.len};
        gw_str_add_n(&packed, head, 8);
        gw_str_add_n(&packed, frame.data, frame.len);
        make_zstd(&packed, dictionary.data + 100, 9000, dictionary.data, dictionary.len);
        uint32_t skip[2] = {0x184d2a50, 4};
        gw_str_add_n(&packed, skip, 8);
        gw_str_add_n(&packed, "skip", 4);
        make_zstd(&packed, "end", 3, dictionary.data, dictionary.len);
        gw_inflate *r = gw_inflate_open_bytes((uint8_t *)packed.data, (int64_t)packed.len, 0);
        CHECK_EQ(read_all(r, 4096, &got, NULL), 0);
        CHECK_EQ(got.len, 9003);
        CHECK(memcmp(got.data, dictionary.data + 100, 9000) == 0);
        gw_inflate_free(r);
    }
    gw_str_release(&dictionary);
    gw_str_release(&frame);
    gw_str_release(&packed);
    gw_str_release(&got);
}

TEST(inflate_bodies) {
    static const char text[] = "the body of a page, the body of a page, the body of a page";
    /* By the brotli package, quality 11. */
    static const uint8_t brotli[] = {0xb,  0x11, 0x80, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x20, 0x68,
                                     0x65, 0x6c, 0x6c, 0x6f, 0x20, 0x68, 0x65, 0x6c, 0x6c, 0x6f,
                                     0x2c, 0x20, 0x69, 0x73, 0x20, 0x74, 0x68, 0x69, 0x73, 0x20,
                                     0x61, 0x20, 0x70, 0x61, 0x67, 0x65, 0x3f, 0xa,  0x3};
    gw_str packed = {0}, got = {0};
    make_gzip(&packed, text, sizeof text);
    CHECK(gw_inflate_body("gzip", (uint8_t *)packed.data, (int64_t)packed.len, 1000, &got));
    CHECK_STR(got.data, text);
    gw_str_clear(&got);
    CHECK(!gw_inflate_body("gzip", (uint8_t *)packed.data, (int64_t)packed.len, 10, &got));
    CHECK_EQ(got.len, 10);
    gw_str_clear(&packed);
    gw_str_clear(&got);
    make_deflate(&packed, text, sizeof text);
    CHECK(gw_inflate_body("deflate", (uint8_t *)packed.data, (int64_t)packed.len, 1000, &got));
    CHECK_STR(got.data, text);
    gw_str_clear(&packed);
    gw_str_clear(&got);
    make_zstd(&packed, text, sizeof text, NULL, 0);
    CHECK(gw_inflate_body("zstd", (uint8_t *)packed.data, (int64_t)packed.len, 1000, &got));
    CHECK_STR(got.data, text);
    gw_str_clear(&got);
    CHECK(gw_inflate_body("br", brotli, sizeof brotli, 1000, &got));
    CHECK_STR(got.data, "hello hello hello, is this a page?\n");
    gw_str_clear(&got);
    CHECK(!gw_inflate_body("br", brotli, sizeof brotli - 4, 1000, &got));
    gw_str_clear(&got);
    CHECK(!gw_inflate_body("compress", (const uint8_t *)"x", 1, 10, &got));
    gw_str_release(&packed);
    gw_str_release(&got);
}
