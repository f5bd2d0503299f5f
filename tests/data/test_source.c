// SPDX-License-Identifier: Apache-2.0
// Documents of archives, JSON lines and folders: what is a page, in what order, with what number,
// and what is said of the rest.
#include <string.h>

#include "base/io.h"
#include "data/source.h"
#include "harness.h"

typedef struct all {
    int n;
    uint32_t index[16];
    gw_str urls, texts; /* each followed by '|' */
    gw_source_report report;
    gw_status status;
} all;

static void drain(gw_source *s, all *a, gw_diags *dg) {
    gw_doc doc = {0};
    bool more = true;
    *a = (all){0};
    while ((a->status = gw_source_next(s, &doc, &more, dg)) == GW_OK && more) {
        CHECK(a->n < 16);
        a->index[a->n++] = doc.id.index;
        gw_str_printf(&a->urls, "%s|", doc.url);
        gw_str_printf(&a->texts, "%c:", doc.media == GW_MEDIA_HTML ? 'h' : 't');
        gw_str_add_n(&a->texts, doc.raw, (size_t)doc.raw_bytes);
        gw_str_add_char(&a->texts, '|');
    }
    a->report = gw_source_get_report(s);
    CHECK_EQ(a->report.documents, a->n);
    gw_str_release(&doc.text);
}

static void done(gw_source *s, all *a, gw_diags *dg) {
    gw_str_release(&a->urls);
    gw_str_release(&a->texts);
    gw_source_free(s);
    gw_diags_release(dg);
}

static const char archive[] =
    "WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 2\r\n\r\nhi\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a/\r\nContent-Length: 71\r\n\r\n"
    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=koi8-r\r\n\r\n<p>the page\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://b/\r\nContent-Length: 28\r\n\r\n"
    "HTTP/1.1 404 Gone\r\n\r\n<p>gone\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://c/\r\nContent-Length: 23\r\n\r\n"
    "<html>bare, no HTTP</h>\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://d/\r\nContent-Length: 48\r\n\r\n"
    "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 3\r\n\r\nGET\r\n\r\n"
    "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://e/\r\nContent-Type: "
    "text/plain\r\n"
    "Content-Length: 9\r\n\r\nwet text.\r\n\r\n";

TEST(source_warc) {
    gw_diags dg;
    gw_source *s;
    all a;
    gw_diags_init(&dg);
    gw_source_options o = gw_source_options_default();
    o.unit = 7;
    CHECK_OK(gw_source_open_bytes(&o, archive, sizeof archive - 1, "x", &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_OK(a.status, &dg);
    CHECK_STR(a.urls.data, "http://a/|http://c/|http://e/|");
    CHECK_STR(a.texts.data, "h:<p>the page|h:<html>bare, no HTTP</h>|t:wet text.|");
    CHECK(a.index[0] == 1 && a.index[1] == 3 && a.index[2] == 6);
    CHECK_EQ(a.report.records, 7);
    CHECK_EQ(a.report.not_page, 3);
    CHECK_EQ(a.report.other_type, 1);
    done(s, &a, &dg);
}

TEST(source_damaged_archive_is_an_error_at_its_end) {
    gw_diags dg;
    gw_source *s;
    all a;
    gw_diags_init(&dg);
    CHECK_OK(gw_source_open_bytes(NULL, archive, sizeof archive - 8, "cut.warc", &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_EQ(a.n, 2);
    CHECK_FAILS(a.status, &dg, "ends inside this record");
    CHECK_EQ(a.report.damages, 1);
    CHECK(memcmp(archive + a.report.damaged[0].offset, "WARC/1.0", 8) == 0);
    gw_doc doc = {0};
    bool more = true;
    CHECK_OK(gw_source_next(s, &doc, &more, &dg), &dg); /* said once */
    CHECK(!more);
    done(s, &a, &dg);
}

TEST(source_jsonl) {
    static const char lines[] =
        "{\"body\":{\"t\":\"one\"},\"url\":\"u1\"}\n{\"url\":\"no text\"}\nnot json\n"
        "{\"body\":{\"t\":\"four\"},\"date\":\"2024\"}\n";
    gw_source_options o = gw_source_options_default();
    gw_diags dg;
    gw_source *s;
    all a;
    o.text_key = "body.t";
    gw_diags_init(&dg);
    CHECK_OK(gw_source_open_bytes(&o, lines, sizeof lines - 1, "x.jsonl", &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_STR(a.texts.data, "t:one|t:four|");
    CHECK(a.index[0] == 0 && a.index[1] == 3);
    CHECK_FAILS(a.status, &dg, "body.t");
    CHECK_EQ(a.report.damages, 2);
    CHECK_EQ(a.report.damaged[0].line, 2);
    CHECK_EQ(a.report.damaged[1].line, 3);
    done(s, &a, &dg);
    gw_diags_init(&dg);
    o.strict = true;
    CHECK_OK(gw_source_open_bytes(&o, lines, sizeof lines - 1, "x.jsonl", &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_EQ(a.n, 1);
    CHECK(a.status != GW_OK);
    done(s, &a, &dg);
}

static void put(const char *name, const char *text) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path(name), text, (int64_t)strlen(text), &dg), &dg);
    gw_diags_release(&dg);
}

TEST(source_folder_is_sorted) {
    gw_diags dg;
    gw_source *s;
    all a;
    gw_diags_init(&dg);
    CHECK_OK(gw_dir_make(test_tmp_path("site/b"), &dg), &dg);
    put("site/z.html", "<p>z");
    put("site/b/x.txt", "x");
    put("site/B.htm", "<p>B");
    put("site/b/y.md", "<!doctype html><p>y");
    put("site/picture.png", "no");
    put("site/.hidden.html", "no");
    CHECK_OK(gw_source_open(NULL, test_tmp_path("site"), &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_OK(a.status, &dg);
    CHECK_STR(a.urls.data, "B.htm|b/x.txt|b/y.md|z.html|");
    CHECK_STR(a.texts.data, "h:<p>B|t:x|h:<!doctype html><p>y|h:<p>z|");
    done(s, &a, &dg);
    gw_diags_init(&dg);
    CHECK_OK(gw_source_open(NULL, test_tmp_path("site/z.html"), &s, &dg), &dg);
    drain(s, &a, &dg);
    CHECK_STR(a.urls.data, "z.html|");
    done(s, &a, &dg);
}

TEST(source_kinds) {
    CHECK_EQ(gw_source_kind_of_name("CC-MAIN-1.warc.gz"), GW_SOURCE_WARC);
    CHECK_EQ(gw_source_kind_of_name("a/b.jsonl.zst"), GW_SOURCE_JSONL);
    CHECK_EQ(gw_source_kind_of_name("page.HTML"), GW_SOURCE_FILES);
    CHECK_EQ(gw_source_kind_of_name("data.parquet"), GW_SOURCE_AUTO);
    gw_diags dg;
    gw_source *s;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_source_open_bytes(NULL, "PAR1\0\1\2\3", 8, "data.parquet", &s, &dg), &dg,
                "neither");
    CHECK_FAILS(gw_source_open(NULL, test_tmp_path("absent.warc"), &s, &dg), &dg, "absent.warc");
    gw_diags_release(&dg);
}
