// SPDX-License-Identifier: Apache-2.0
// WARC records by the rules of ISO 28500, by the quirks that archives in the wild have, and after
// damage. Digests are those that sha1sum and base32 print.
#include <string.h>

#include "archive_maker.h"
#include "damage.h"
#include "file/warc.h"
#include "harness.h"

typedef struct seen {
    int records, damages;
    int64_t first_damage;
    const char *why;
    char uris[4096]; /* of the records, each followed by a space */
} seen;

static seen read_bytes(const void *p, size_t n) {
    gw_warc_options o = {.check_digests = true};
    gw_warc *w = gw_warc_open_bytes(&o, p, (int64_t)n);
    seen s = {.why = ""};
    for (;;) {
        gw_warc_record rec;
        gw_warc_damage d;
        gw_warc_step step = gw_warc_next(w, &rec, &d);
        if (step == GW_WARC_END) break;
        if (step == GW_WARC_DAMAGE) {
            if (s.damages++ == 0) s.first_damage = d.offset, s.why = d.why;
            continue;
        }
        s.records++;
        size_t len = strlen(s.uris), left = sizeof s.uris - len;
        snprintf(s.uris + len, left, "%s ", rec.uri);
        for (int64_t i = 0; i < rec.block_bytes; i++) s.first_damage += rec.block[i] * 0;
    }
    gw_warc_free(w);
    return s;
}

static seen read_str(const gw_str *s) { return read_bytes(s->data, s->len); }

TEST(warc_reads_records) {
    gw_str a = {0};
    make_record(&a, "warcinfo", "", "WARC-Record-ID: <urn:uuid:1>\r\n", "software: x\r\n", 13);
    make_response(&a, "http://a.example/", "Content-Type: text/html", "<p>hello");
    gw_warc *w = gw_warc_open_bytes(NULL, (uint8_t *)a.data, (int64_t)a.len);
    gw_warc_record r;
    gw_warc_damage d;
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
    CHECK_EQ(r.type, GW_WARC_WARCINFO);
    CHECK_EQ(r.offset, 0);
    CHECK_STR(r.id, "<urn:uuid:1>");
    CHECK_STR(r.uri, "");
    CHECK_EQ(r.block_bytes, 13);
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
    CHECK_EQ(r.type, GW_WARC_RESPONSE);
    CHECK_STR(r.uri, "http://a.example/");
    CHECK_STR(r.date, "2024-03-01T00:00:00Z");
    CHECK_STR(r.content_type, "application/http; msgtype=response");
    CHECK(r.offset > 0 && memcmp(a.data + r.offset, "WARC/1.0", 8) == 0);
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_END);
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_END);
    gw_warc_free(w);
    gw_str_release(&a);
}

/* What is met in the wild: LF alone, folded and lower-case headers, <> around the URI, blank lines
 * between records, none at the end, version 1.1, a warcinfo without a length. */
TEST(warc_accepts_quirks) {
    static const char text[] =
        "WARC/1.1\nwarc-type: warcinfo\n\nsoftware: y\nformat: z\n\n"
        "WARC/1.0\nWARC-Type: response\nWARC-Target-URI: <http://b/>\n"
        "X-Folded: one\n two\ncontent-length: 5\n\nhello\n\n\n\n\n"
        "\r\nWARC/0.18\r\nWARC-Type: resource\r\nWARC-Target-URI: http://c/\r\n"
        "Content-Length: 2\r\n\r\nhi";
    seen s = read_bytes(text, sizeof text - 1);
    CHECK_STR(s.uris, " http://b/ http://c/ ");
    CHECK_EQ(s.damages, 0);
}

TEST(warc_gzip_offsets) {
    gw_str one = {0}, packed = {0};
    int64_t at[10];
    for (int i = 0; i < 10; i++) {
        gw_str_clear(&one);
        make_response(&one, "http://x/", "Content-Type: text/html", "<p>text");
        at[i] = (int64_t)packed.len;
        make_gzip(&packed, one.data, one.len);
    }
    gw_warc *w = gw_warc_open_bytes(NULL, (uint8_t *)packed.data, (int64_t)packed.len);
    gw_warc_record r;
    gw_warc_damage d;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
        CHECK_EQ(r.offset, at[i]);
    }
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_END);
    gw_warc_free(w);
    gw_str_release(&one);
    gw_str_release(&packed);
}

/* The kernel of warcio's and libarchive's reports: a file cut by 5 bytes, and one with a byte
 * changed in the middle. Records around come whole; the place is told. */
TEST(warc_gzip_damage) {
    gw_str one = {0}, packed = {0};
    int64_t at[6];
    for (int i = 0; i < 5; i++) {
        char uri[32];
        snprintf(uri, sizeof uri, "u%d", i);
        gw_str_clear(&one);
        make_response(&one, uri, "Content-Type: text/html",
                      "<p>some text that is long enough to be compressed by a little, and more");
        at[i] = (int64_t)packed.len;
        make_gzip(&packed, one.data, one.len);
    }
    at[5] = (int64_t)packed.len;
    seen s = read_bytes(packed.data, packed.len - 5);
    CHECK_EQ(s.damages, 1);
    CHECK_EQ(s.first_damage, at[4]);
    CHECK(gw_str_starts(s.uris, "u0 u1 u2 u3 "));
    for (int64_t k = at[2] + 20; k < at[3] - 9; k++) {
        packed.data[k] = (char)(packed.data[k] ^ 0x20);
        s = read_str(&packed);
        packed.data[k] = (char)(packed.data[k] ^ 0x20);
        test_note("byte %lld of the member: %s at %lld", (long long)(k - at[2]), s.why,
                  (long long)s.first_damage);
        CHECK_STR(s.uris, "u0 u1 u3 u4 ");
        CHECK_EQ(s.damages, 1);
        CHECK_EQ(s.first_damage, at[2]);
    }
    gw_str_release(&one);
    gw_str_release(&packed);
}

/* A length that is too long would swallow the records behind it. */
TEST(warc_lying_length) {
    for (int gz = 0; gz < 2; gz++) {
        gw_str a = {0}, file = {0};
        make_record(&a, "resource", "u0", "", "aaaa", 4);
        gw_str_printf(&a, "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: bad\r\n"
                          "Content-Length: 170\r\n\r\nshort\r\n\r\n");
        size_t cut = a.len;
        for (int i = 1; i < 4; i++) {
            char uri[32];
            snprintf(uri, sizeof uri, "u%d", i);
            make_record(&a, "resource", uri, "", "aaaa", 4);
        }
        if (gz) {
            make_gzip(&file, a.data, cut);
            make_gzip(&file, a.data + cut, a.len - cut);
        } else {
            gw_str_add_n(&file, a.data, a.len);
        }
        seen s = read_str(&file);
        CHECK_STR(s.uris, "u0 u1 u2 u3 ");
        CHECK_EQ(s.damages, 1);
        gw_str_release(&a);
        gw_str_release(&file);
    }
}

TEST(warc_junk_between) {
    gw_str a = {0};
    make_record(&a, "resource", "u0", "", "aaaa", 4);
    int64_t junk = (int64_t)a.len;
    gw_str_add(&a, "this is no record\nWARC/x\n\n");
    make_record(&a, "resource", "u1", "", "bbbb", 4);
    seen s = read_str(&a);
    CHECK_STR(s.uris, "u0 u1 ");
    CHECK_EQ(s.damages, 1);
    CHECK_EQ(s.first_damage, junk);
    gw_str_release(&a);
}

/* Cut anywhere: what is delivered is a beginning of the records, and only a cut between records
 * goes unnoticed. */
TEST(warc_cut_anywhere) {
    gw_str a = {0};
    size_t ends[4];
    for (int i = 0; i < 4; i++) {
        char uri[32];
        snprintf(uri, sizeof uri, "u%d", i);
        make_record(&a, "resource", uri, "", "some block", 10);
        ends[i] = a.len;
    }
    for (size_t n = 0; n <= a.len; n++) {
        seen s = read_bytes(a.data, n);
        int whole = 0;
        bool clean = n == 0;
        for (int i = 0; i < 4; i++) {
            whole += n >= ends[i] - 4;
            clean |= n >= ends[i] - 4 && n <= ends[i];
            if (i < 3) clean |= n >= ends[i] && n < ends[i] + 0;
        }
        CHECK_EQ(s.records, whole);
        CHECK_MSG((s.damages == 0) == clean, "cut at %zu", n);
    }
    gw_str_release(&a);
}

TEST(warc_digests) {
    static const struct {
        const char *headers;
        gw_digest_state state;
    } cases[] = {
        {"WARC-Block-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N\r\n", GW_DIGEST_GOOD},
        {"WARC-Block-Digest: sha1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d\r\n", GW_DIGEST_GOOD},
        {"WARC-Block-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2A\r\n", GW_DIGEST_BAD},
        {"WARC-Block-Digest: md5:5d41402abc4b2a76b9719d911017c592\r\n", GW_DIGEST_GOOD},
        {"WARC-Block-Digest: sha256:"
         "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\r\n",
         GW_DIGEST_GOOD},
        {"WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N\r\n", GW_DIGEST_GOOD},
        {"WARC-Block-Digest: crc32:12345678\r\n", GW_DIGEST_NONE},
        {"", GW_DIGEST_NONE}};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_str a = {0};
        gw_warc_options o = {.check_digests = true};
        gw_warc_record r;
        gw_warc_damage d;
        make_record(&a, "resource", "u", cases[i].headers, "hello", 5);
        gw_warc *w = gw_warc_open_bytes(&o, (uint8_t *)a.data, (int64_t)a.len);
        CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
        CHECK_EQ(r.digest, cases[i].state);
        gw_warc_free(w);
        gw_str_release(&a);
    }
}

TEST(warc_too_long_is_stepped_over) {
    gw_str a = {0}, big = {0};
    for (int i = 0; i < 3000; i++) gw_str_add(&big, "0123456789");
    make_record(&a, "resource", "big", "", big.data, big.len);
    make_record(&a, "resource", "small", "", "x", 1);
    gw_warc_options o = {.max_record_bytes = 20000};
    gw_warc *w = gw_warc_open_bytes(&o, (uint8_t *)a.data, (int64_t)a.len);
    gw_warc_record r;
    gw_warc_damage d;
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
    CHECK(r.block == NULL && r.block_bytes == 30000);
    CHECK_EQ(gw_warc_next(w, &r, &d), GW_WARC_RECORD);
    CHECK_STR(r.uri, "small");
    gw_warc_free(w);
    gw_str_release(&a);
    gw_str_release(&big);
}

/* --- HTTP ------------------------------------------------------------------------------------- */

static void check_http(const char *message, size_t n, const char *body, bool undecoded) {
    gw_http_scratch s = {0};
    gw_http h;
    gw_http_read((const uint8_t *)message, (int64_t)n, 1 << 20, &s, &h);
    CHECK_EQ(h.undecoded, undecoded);
    CHECK_EQ(h.body_bytes, (int64_t)strlen(body));
    CHECK(memcmp(h.body, body, strlen(body)) == 0);
    gw_http_scratch_release(&s);
}

static void check_text(const char *message, const char *body, bool undecoded) {
    check_http(message, strlen(message), body, undecoded);
}

TEST(http_heads) {
    gw_http_scratch s = {0};
    gw_http h;
    static const char m[] =
        "HTTP/1.1 404 Not Found\r\nContent-type:  Text/HTML; Charset=\"UTF-8\"\r\n"
        "Content-Length: 2\r\n\r\nlonger than it says";
    gw_http_read((const uint8_t *)m, sizeof m - 1, 1 << 20, &s, &h);
    CHECK_EQ(h.status, 404);
    CHECK_STR(h.content_type, "text/html");
    CHECK_STR(h.charset, "utf-8");
    CHECK_EQ(h.body_bytes, 19);
    gw_http_read((const uint8_t *)"<html>bare", 10, 1 << 20, &s, &h);
    CHECK_EQ(h.status, 0);
    CHECK_EQ(h.body_bytes, 10);
    gw_http_scratch_release(&s);
    check_text("HTTP/1.0 200 OK\n\nbody", "body", false);
    check_text("HTTP/1.0 200 OK\n<html>no blank line", "<html>no blank line", false);
}

TEST(http_chunks) {
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    check_text(CHUNKED "5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n", "hello world", false);
    check_text(CHUNKED "5\r\nhello\r\nFF\r\n wor", "hello wor", true);
    check_text(CHUNKED "<p>stored without its chunks", "<p>stored without its chunks", false);
    check_text(CHUNKED "FFFFFFFFFFFFFFFFFF\r\nx", "FFFFFFFFFFFFFFFFFF\r\nx", false);
}

TEST(http_codings) {
    gw_str m = {0};
    gw_str_add(&m, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n");
    make_gzip(&m, "the page", 8);
    check_http(m.data, m.len, "the page", false);
    gw_str_clear(&m);
    gw_str_add(&m, "HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n");
    make_deflate(&m, "the page", 8);
    check_http(m.data, m.len, "the page", false);
    check_text("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n<p>decoded before",
               "<p>decoded before", false);
    gw_str_release(&m);
}
