// SPDX-License-Identifier: Apache-2.0
// Archives, JSON lines, pages and encodings, fed with damaged inputs. Whatever the bytes: documents
// come in order, texts are valid UTF-8, reading twice gives the same, and memory stays bounded.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "data/source.h"
#include "data/text/encoding.h"
#include "data/text/extract.h"
#include "file/inflate.h"
#include "fuzz.h"
#include "harness.h"

static const char warc[] =
    "WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 2\r\n\r\nhi\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: <http://a/>\r\n"
    "WARC-Block-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N\r\nContent-Length: 104\r\n\r\n"
    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=koi8-r\r\nTransfer-Encoding: "
    "chunked\r\n\r\n"
    "6\r\n<p>one\r\n0\r\n\r\n\r\n\r\n"
    "WARC/1.1\nWARC-Type: conversion\nWARC-Target-URI: http://e/\nContent-Length: 9\n\nwet "
    "text.\n\n";

/* All documents of the bytes; a hash of what came. */
static uint64_t drain(const gw_source_options *o, const void *bytes, size_t n, const char *name,
                      gw_status *st, gw_diags *dg) {
    gw_source *s = NULL;
    uint64_t sum = 1;
    *st = gw_source_open_bytes(o, bytes, (int64_t)n, name, &s, dg);
    if (*st != GW_OK) return 0;
    gw_doc doc = {0};
    gw_extract *e = gw_extract_new();
    bool more = true, first = true;
    uint32_t last = 0;
    while ((*st = gw_source_next(s, &doc, &more, dg)) == GW_OK && more) {
        CHECK(first || doc.id.index > last);
        first = false;
        last = doc.id.index;
        CHECK(doc.raw_bytes <= o->max_record_bytes);
        gw_extract_info info;
        gw_extract_doc(e, NULL, &doc, &info);
        CHECK(gw_utf8_is_valid((const uint8_t *)gw_str_c(&doc.text), doc.text.len));
        for (size_t i = 0; i < doc.text.len; i++) sum = sum * 31 + (uint8_t)doc.text.data[i];
        sum = sum * 31 + strlen(doc.url);
    }
    gw_source_report r = gw_source_get_report(s);
    CHECK((r.damages > 0) == (*st != GW_OK));
    CHECK(r.bytes_in <= (int64_t)n);
    gw_str_release(&doc.text);
    gw_extract_free(e);
    gw_source_free(s);
    return sum;
}

static gw_status read_as(gw_source_kind kind, const void *bytes, size_t n, const char *name,
                         gw_diags *dg) {
    gw_source_options o = gw_source_options_default();
    o.kind = kind;
    o.max_record_bytes = 1 << 16;
    o.html = true;
    gw_status st, again;
    uint64_t a = drain(&o, bytes, n, name, &st, dg);
    uint64_t b = drain(&o, bytes, n, name, &again, NULL);
    CHECK(a == b && st == again);
    return st;
}

static gw_status read_warc(const void *p, size_t n, gw_diags *dg) {
    return read_as(GW_SOURCE_WARC, p, n, "x.warc", dg);
}
static gw_status read_jsonl(const void *p, size_t n, gw_diags *dg) {
    return read_as(GW_SOURCE_JSONL, p, n, "x.jsonl", dg);
}

static void seed_packed(fuzz *f, const void *p, size_t n) {
    static char out[8192];
    size_t got = ZSTD_compress(out, sizeof out, p, n, 3);
    CHECK(!ZSTD_isError(got));
    fuzz_seed(f, out, got);
    z_stream z = {0};
    CHECK_EQ(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = sizeof out;
    CHECK_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    fuzz_seed(f, out, z.total_out);
    deflateEnd(&z);
}

static const char *const warc_words[] = {"WARC/1.0\r\n",
                                         "Content-Length: ",
                                         "99999999999999999999",
                                         "\r\n\r\n",
                                         "\n",
                                         "WARC-Type: response",
                                         "HTTP/1.1 200 OK",
                                         "Content-Encoding: gzip",
                                         "chunked",
                                         "ffffffff",
                                         NULL};

static void run_warc(int64_t rounds) {
    fuzz f = {.name = "warc", .target = read_warc, .words = warc_words};
    fuzz_seed(&f, warc, sizeof warc - 1);
    fuzz_run(&f, rounds);
}

static void run_warc_packed(int64_t rounds) {
    fuzz f = {.name = "warc_packed", .target = read_warc};
    seed_packed(&f, warc, sizeof warc - 1);
    fuzz_run(&f, rounds);
}

static const char *const json_words[] = {
    "{\"text\":", "\"\\u0041\"", "\\ud83d\\ude00", "[[[[", "}", "\"",
    "\\",         "null",        "-1e9",           "\n",   ",", NULL};

static void run_jsonl(int64_t rounds) {
    static const char lines[] = "{\"text\":\"<p>one\\n\\u00e9\",\"url\":\"u\",\"meta\":{\"a\":[1,2."
                                "5e3,null,true]}}\n\n{\"text\":\"two\"}\n";
    fuzz f = {.name = "jsonl", .target = read_jsonl, .words = json_words};
    fuzz_seed(&f, lines, sizeof lines - 1);
    seed_packed(&f, lines, sizeof lines - 1);
    fuzz_run(&f, rounds);
}

/* The first byte chooses charset and options; a page that ends inside a tag is called refused, so
 * that the runner sees both outcomes. */
static gw_status read_page(const void *bytes, size_t n, gw_diags *dg) {
    static const char *const charsets[] = {"",     "utf-8",  "gb18030",  "shift_jis",  "euc-kr",
                                           "big5", "koi8-r", "utf-16le", "iso-2022-jp"};
    const uint8_t *p = bytes;
    if (n == 0) return GW_FAIL(dg, GW_ERR_FORMAT, "page", "empty");
    gw_extract_options o = gw_extract_options_default();
    o.favour = (gw_favour)(p[0] / 9 % 3);
    o.main_text = p[0] < 200;
    o.max_nodes = p[0] & 64 ? 50 : 100000;
    o.max_depth = p[0] & 32 ? 10 : 256;
    gw_str a = {0}, b = {0};
    gw_extract_info info;
    for (int round = 0; round < 2; round++) {
        gw_extract *e = gw_extract_new();
        gw_extract_text(e, p + 1, (int64_t)n - 1, charsets[p[0] % 9], &o, round ? &b : &a, &info);
        CHECK(info.nodes <= o.max_nodes);
        gw_extract_free(e);
    }
    CHECK(a.len == b.len && memcmp(gw_str_c(&a), gw_str_c(&b), a.len) == 0);
    CHECK(gw_utf8_is_valid((const uint8_t *)gw_str_c(&a), a.len));
    bool last = n > 1 && p[n - 1] == '>';
    gw_str_release(&a);
    gw_str_release(&b);
    return last ? GW_OK : GW_FAIL(dg, GW_ERR_FORMAT, "page", "ends outside a tag");
}

static const char *const html_words[] = {"<p>",
                                         "</p>",
                                         "<div class='nav main'>",
                                         "<a href=x>",
                                         "<table><tr><td>",
                                         "<script>",
                                         "</script>",
                                         "<!--",
                                         "-->",
                                         "<!-- <script",
                                         "&amp;",
                                         "&#x",
                                         "&notin;",
                                         "<title>",
                                         "<pre>\n",
                                         "<svg>",
                                         "<![CDATA[",
                                         "]]>",
                                         "<select><option>",
                                         "<h1>",
                                         "</h2>",
                                         "<li>",
                                         "\"",
                                         "'",
                                         "=",
                                         "\xff",
                                         "\xe3\x81",
                                         "<meta charset=",
                                         "<template>",
                                         "<article>",
                                         NULL};

static void run_page(int64_t rounds) {
    static const char page[] =
        "x<!DOCTYPE html><html lang=en><head><title>t</title><meta charset=utf-8><script>if (a<b) "
        "{}</script></head><body><nav class=menu>"
        "<a href=1>a</a><a href=2>b</a></nav><main><h1>T</h1><p>Text &amp; more &#8212; <b>of</b> "
        "it</p><pre>\n a\n b</pre><table><tr>"
        "<td>1<td>2</table><ul><li>x<li>y</ul></main><footer>f</footer></body></html>";
    fuzz f = {.name = "page", .target = read_page, .words = html_words};
    fuzz_seed(&f, page, sizeof page - 1);
    fuzz_run(&f, rounds);
}

TEST(fuzz_warc) { run_warc(3000); }
TEST(fuzz_warc_packed) { run_warc_packed(3000); }
TEST(fuzz_jsonl) { run_jsonl(3000); }
TEST(fuzz_page) { run_page(4000); }
TEST_LONG(fuzz_warc_long) { run_warc(150000); }
TEST_LONG(fuzz_warc_packed_long) { run_warc_packed(150000); }
TEST_LONG(fuzz_jsonl_long) { run_jsonl(150000); }
TEST_LONG(fuzz_page_long) { run_page(200000); }
