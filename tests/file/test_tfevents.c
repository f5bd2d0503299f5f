// SPDX-License-Identifier: Apache-2.0
// file/tfevents: checksums and bytes as other writers make them, and a reader written here.
#include <math.h>
#include <string.h>

#include "damage.h"
#include "file/tfevents.h"
#include "harness.h"

static gw_diags dg;

/* The check value of CRC-32C and the 32 zero and 32 0xff bytes of RFC 3720, appendix B.4. */
TEST(tfevents_crc32c_check_values) {
    uint8_t bytes[32] = {0};
    CHECK_EQ(gw_crc32c("123456789", 9), 0xE3069283u);
    CHECK_EQ(gw_crc32c(bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xff, 32);
    CHECK_EQ(gw_crc32c(bytes, 32), 0x62A8AB43u);
    CHECK_EQ(gw_crc32c("", 0), 0);
}

typedef struct event {
    double wall;
    int64_t step;
    char version[32], tag[128];
    float value;
    bool has_value;
} event;

static uint64_t varint(const uint8_t **p, const uint8_t *end) {
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        CHECK(*p < end);
        uint8_t b = *(*p)++;
        x |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) return x;
    }
    test_fail(__FILE__, __LINE__, "a varint of more than ten bytes");
}

/* Walks a message; nested messages are walked by the same function, one level deeper. */
static void walk(const uint8_t *p, const uint8_t *end, int depth, event *e) {
    while (p < end) {
        uint64_t key = varint(&p, end), field = key >> 3, n = 0;
        switch (key & 7) {
        case 0: n = varint(&p, end); break;
        case 1: n = 8; break;
        case 2: n = varint(&p, end); break;
        case 5: n = 4; break;
        default: test_fail(__FILE__, __LINE__, "wire type %d", (int)(key & 7));
        }
        if ((key & 7) == 0) {
            if (depth == 0 && field == 2) e->step = (int64_t)n;
            continue;
        }
        CHECK(n <= (uint64_t)(end - p));
        if (depth == 0 && field == 1) memcpy(&e->wall, p, 8);
        if (depth == 0 && field == 3) memcpy(e->version, p, n < 31 ? n : 31);
        if ((depth == 0 && field == 5) || (depth == 1 && field == 1)) walk(p, p + n, depth + 1, e);
        if (depth == 2 && field == 1) memcpy(e->tag, p, n < 127 ? n : 127);
        if (depth == 2 && field == 2) {
            memcpy(&e->value, p, 4);
            e->has_value = true;
        }
        p += n;
    }
}

/* Reads the record at *at, checking both checksums. */
static event next_event(const gw_str *s, size_t *at) {
    uint64_t n;
    uint32_t crc;
    event e = {0};
    const uint8_t *p = (const uint8_t *)s->data + *at;
    CHECK(s->len - *at >= 16);
    memcpy(&n, p, 8);
    memcpy(&crc, p + 8, 4);
    CHECK_EQ(crc, gw_crc32c_masked(p, 8));
    CHECK(n <= s->len - *at - 16);
    memcpy(&crc, p + 12 + n, 4);
    CHECK_EQ(crc, gw_crc32c_masked(p + 12, n));
    walk(p + 12, p + 12 + n, 0, &e);
    *at += 16 + n;
    return e;
}

/* Every event file begins with a version record of 24 bytes, whose length's masked checksum is
 * 0x224B7FA3: the eight plus four bytes that open TensorBoard files everywhere. */
TEST(tfevents_begins_like_other_writers) {
    gw_tfevents *t = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_tfevents_open(test_tmp_path("tb"), 1700000000.25, &t, &dg), &dg);
    gw_str s = get_file(gw_tfevents_path(t));
    CHECK_EQ(s.len, 12 + 24 + 4);
    CHECK(memcmp(s.data, "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12) == 0);
    size_t at = 0;
    event e = next_event(&s, &at);
    CHECK_STR(e.version, "brain.Event:2");
    CHECK_NEAR(e.wall, 1700000000.25, 0);
    CHECK(strstr(gw_tfevents_path(t), "/events.out.tfevents.1700000000.") != NULL);
    gw_str_release(&s);
    CHECK_OK(gw_tfevents_close(t, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(tfevents_scalars_round_trip) {
    gw_tfevents *t = NULL, *u = NULL;
    static const double values[] = {2.5, -0.0, 1e30, (double)INFINITY, (double)NAN};
    gw_diags_init(&dg);
    CHECK_OK(gw_tfevents_open(test_tmp_path("tb"), 5, &t, &dg), &dg);
    CHECK_OK(gw_tfevents_open(test_tmp_path("tb"), 5, &u, &dg), &dg);
    CHECK(strcmp(gw_tfevents_path(t), gw_tfevents_path(u)) != 0); /* never another's file */
    CHECK_OK(gw_tfevents_close(u, &dg), &dg);
    char longest[120];
    memset(longest, 'x', 119);
    longest[119] = '\0';
    for (int i = 0; i < 5000; i++)
        CHECK_OK(gw_tfevents_scalar(t, i % 7 ? "loss/train" : longest, INT64_C(1) << (i % 60),
                                    values[i % 5], 6 + i, &dg),
                 &dg);
    CHECK_OK(gw_tfevents_flush(t, &dg), &dg);
    gw_str s = get_file(gw_tfevents_path(t));
    size_t at = 0;
    (void)next_event(&s, &at);
    for (int i = 0; i < 5000; i++) {
        event e = next_event(&s, &at);
        CHECK_STR(e.tag, i % 7 ? "loss/train" : longest);
        CHECK_EQ(e.step, INT64_C(1) << (i % 60));
        CHECK_NEAR(e.wall, 6 + i, 0);
        CHECK(e.has_value);
        float want = (float)values[i % 5];
        CHECK(memcmp(&e.value, &want, 4) == 0 || (isnan(e.value) && isnan(want)));
    }
    CHECK_EQ(at, s.len);
    gw_str_release(&s);
    CHECK_OK(gw_tfevents_close(t, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(tfevents_reports_an_impossible_folder) {
    gw_tfevents *t = NULL;
    put_file(test_tmp_path("plain"), "x", 1);
    gw_diags_init(&dg);
    CHECK_FAILS(gw_tfevents_open(test_tmp_path("plain/tb"), 5, &t, &dg), &dg, "plain");
    CHECK(t == NULL);
    gw_diags_release(&dg);
}
