// SPDX-License-Identifier: Apache-2.0
// Builds through the library: dedup of whole documents and of parts, inputs behind s3://, damage.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"            /* gw_file_read, gw_path_exists */
#include "data/build/build.h"   /* gw_data_build */
#include "data/build/columns.h" /* gw_columns */
#include "file/json.h"          /* gw_json_read_file */
#include "file/megatron_idx.h"  /* gw_midx_open */
#include "harness.h"
#include "store_server/server.h" /* store_server_start */

/* Prose of `words` words that differs by `seed`. */
static void add_prose(gw_str *out, int seed, int words) {
    static const char *const list[] = {
        "river",  "stone",  "letter", "window", "garden",  "machine", "winter", "paper",
        "market", "signal", "copper", "branch", "harbour", "lantern", "meadow", "thread"};
    unsigned x = (unsigned)seed * 2654435761u + 12345u;
    for (int i = 0; i < words; i++) {
        x = x * 1664525u + 1013904223u;
        gw_str_printf(out, "%s%s", i ? " " : "", list[x >> 28]);
        if (i % 9 == 8) gw_str_add(out, " and the");
    }
}

static void add_line(gw_str *out, const char *text) {
    json_t *o = json_pack("{s:s}", "text", text);
    char *line = json_dumps(o, JSON_COMPACT);
    gw_str_printf(out, "%s\n", line);
    free(line);
    json_decref(o);
}

static void write_lines(const char *name, const gw_str *s) {
    FILE *f = fopen(test_tmp_path(name), "wb");
    CHECK(f);
    CHECK_EQ(fwrite(gw_str_c(s), 1, s->len, f), s->len);
    CHECK_EQ(fclose(f), 0);
}

static json_t *build(const char *input, const char *out, const char *more, gw_diags *dg) {
    gw_pipeline p;
    gw_build_options o = {.workers = 1};
    json_t *report = NULL;
    gw_str text = {0};
    gw_str_printf(&text,
                  "input: {paths: ['%s'], unit_bytes: 1}\noutput: {dir: '%s', format: both}\n"
                  "tokenizer: {path: bytes}\n%s",
                  input, test_tmp_path(out), more);
    CHECK_OK(gw_pipeline_parse(&p, "p.yaml", gw_str_c(&text), (int64_t)text.len, NULL, 0, dg), dg);
    CHECK_OK(gw_data_build(&p, &o, &report, dg), dg);
    gw_pipeline_release(&p);
    gw_str_release(&text);
    return report;
}

static int64_t of(const json_t *report, const char *group, const char *key) {
    return json_integer_value(json_object_get(json_object_get(report, group), key));
}

/* The text of all documents of a build, from its Megatron pair of bytes. */
static void read_text(const char *out, gw_str *text, gw_diags *dg) {
    char prefix[600];
    gw_midx *m;
    uint32_t ids[8192];
    snprintf(prefix, sizeof prefix, "%s/megatron/tokens-00000", test_tmp_path(out));
    CHECK_OK(gw_midx_open(prefix, &m, dg), dg);
    for (int64_t d = 0; d < gw_midx_ndocs(m); d++) {
        int64_t n = gw_midx_seq_tokens(m, d);
        CHECK(n <= (int64_t)GW_COUNT(ids));
        CHECK_OK(gw_midx_read(m, d, 0, n, ids, dg), dg);
        CHECK_EQ(ids[n - 1], 256);
        for (int64_t i = 0; i + 1 < n; i++) gw_str_add_char(text, (char)ids[i]);
        gw_str_add_char(text, '|');
    }
    gw_midx_free(m);
}

/* Of equal and of nearly equal documents the first stays, across files. */
TEST(build_keeps_the_first_of_equal_and_near_documents) {
    gw_diags dg;
    gw_str a = {0}, b = {0}, doc = {0}, near = {0}, got = {0}, want = {0};
    gw_diags_init(&dg);
    CHECK_EQ(mkdir(test_tmp_path("in"), 0777), 0);
    for (int i = 0; i < 6; i++) {
        gw_str_clear(&doc);
        add_prose(&doc, i, 300);
        add_line(i < 4 ? &a : &b, gw_str_c(&doc));
        gw_str_printf(&want, "%s|", gw_str_c(&doc));
        if (i == 2) { /* its copy, and all of it with one more word, stand in the second file */
            add_line(&b, gw_str_c(&doc));
            gw_str_printf(&near, "%s zebra", gw_str_c(&doc));
            add_line(&b, gw_str_c(&near));
        }
    }
    write_lines("in/a.jsonl", &a);
    write_lines("in/b.jsonl", &b);
    char in[600];
    snprintf(in, sizeof in, "%s", test_tmp_path("in"));
    json_t *r = build(in, "out", "", &dg);
    CHECK_EQ(of(r, "dedup", "removed"), 2);
    read_text("out", &got, &dg);
    CHECK_STR(gw_str_c(&got), gw_str_c(&want));
    json_decref(r);
    r = build(in, "none", "dedup: {exact: false, near: none}\n", &dg);
    CHECK_EQ(of(r, "dedup", "removed"), 0);
    json_decref(r);
    gw_str_release(&a);
    gw_str_release(&b);
    gw_str_release(&doc);
    gw_str_release(&near);
    gw_str_release(&got);
    gw_str_release(&want);
    gw_diags_release(&dg);
}

/* A line that stands in several documents stays in the first. */
TEST(build_cuts_repeated_lines) {
    gw_diags dg;
    gw_str a = {0}, one = {0}, two = {0}, doc = {0}, got = {0}, want = {0};
    gw_diags_init(&dg);
    add_prose(&one, 1, 40);
    add_prose(&two, 2, 40);
    gw_str_printf(&doc, "%s\nThis line of the site is the same everywhere, and long enough.\n",
                  gw_str_c(&one));
    add_line(&a, gw_str_c(&doc));
    gw_str_printf(&want, "%s|%s\n|", gw_str_c(&doc), gw_str_c(&two));
    gw_str_clear(&doc);
    gw_str_printf(&doc, "%s\nThis line of the site is the same everywhere, and long enough.\n",
                  gw_str_c(&two));
    add_line(&a, gw_str_c(&doc));
    write_lines("a.jsonl", &a);
    char in[600];
    snprintf(in, sizeof in, "%s", test_tmp_path("a.jsonl"));
    json_t *r = build(in, "out", "dedup: {near: none, spans: lines, span_bytes: 20}\n", &dg);
    CHECK_EQ(of(r, "dedup", "cut_bytes"), 63);
    read_text("out", &got, &dg);
    CHECK_STR(gw_str_c(&got), gw_str_c(&want));
    json_decref(r);
    gw_str_release(&a);
    gw_str_release(&one);
    gw_str_release(&two);
    gw_str_release(&doc);
    gw_str_release(&got);
    gw_str_release(&want);
    gw_diags_release(&dg);
}

/* What is personal is replaced before tokens are made; the document's other bytes stay. */
TEST(build_replaces_what_is_personal) {
    gw_diags dg;
    gw_str a = {0}, got = {0};
    gw_diags_init(&dg);
    add_line(&a, "Write to jane.doe@corp-mail.org about it.");
    write_lines("a.jsonl", &a);
    char in[600];
    snprintf(in, sizeof in, "%s", test_tmp_path("a.jsonl"));
    json_t *r = build(in, "out", "pii: {email: mark}\ndedup: {near: none}\n", &dg);
    CHECK_EQ(of(r, "pii", "email"), 1);
    read_text("out", &got, &dg);
    CHECK_STR(gw_str_c(&got), "Write to <EMAIL> about it.|");
    json_decref(r);
    gw_str_release(&a);
    gw_str_release(&got);
    gw_diags_release(&dg);
}

/* Objects of a bucket give the shards that the same files on disk give. */
TEST(build_reads_inputs_from_s3) {
    gw_diags dg;
    gw_str a = {0}, b = {0}, doc = {0}, near = {0}, far = {0};
    store_server_options so = {0};
    gw_diags_init(&dg);
    CHECK_EQ(mkdir(test_tmp_path("in"), 0777), 0);
    for (int i = 0; i < 8; i++) {
        gw_str_clear(&doc);
        add_prose(&doc, 50 + i, 120);
        add_line(i < 4 ? &a : &b, gw_str_c(&doc));
    }
    write_lines("in/a.jsonl", &a);
    write_lines("in/b.jsonl", &b);
    store_server *server = store_server_start(&so);
    store_server_set(server, "/bucket/in/a.jsonl", gw_str_c(&a), (int64_t)a.len);
    store_server_set(server, "/bucket/in/b.jsonl", gw_str_c(&b), (int64_t)b.len);
    store_server_set(server, "/bucket/in/note.pdf", "x", 1);
    char list[1200];
    snprintf(list, sizeof list,
             "<ListBucketResult><Name>bucket</Name><Prefix>in/</Prefix><KeyCount>3</KeyCount>"
             "<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
             "<Contents><Key>in/a.jsonl</Key><Size>%zu</Size><ETag>\"a\"</ETag></Contents>"
             "<Contents><Key>in/b.jsonl</Key><Size>%zu</Size><ETag>\"b\"</ETag></Contents>"
             "<Contents><Key>in/note.pdf</Key><Size>1</Size><ETag>\"c\"</ETag></Contents>"
             "</ListBucketResult>",
             a.len, b.len);
    store_fault lists = {
        .kind = FAULT_ANSWER, .method = "GET", .path = "list-type=2", .status = 200, .text = list};
    store_server_fault(server, &lists);
    setenv("AWS_ENDPOINT_URL", store_server_url(server), 1);
    setenv("AWS_ACCESS_KEY_ID", "test", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "test", 1);
    char in[600];
    snprintf(in, sizeof in, "%s", test_tmp_path("in"));
    json_decref(build(in, "near", "", &dg));
    json_decref(build("s3://bucket/in/", "far", "", &dg));
    read_text("near", &near, &dg);
    read_text("far", &far, &dg);
    CHECK(near.len > 1000);
    CHECK_STR(gw_str_c(&near), gw_str_c(&far));
    snprintf(in, sizeof in, "%s/work/fetch-00000", test_tmp_path("far"));
    CHECK(!gw_path_exists(in)); /* the copies are gone */
    store_server_stop(server);
    gw_str_release(&a);
    gw_str_release(&b);
    gw_str_release(&doc);
    gw_str_release(&near);
    gw_str_release(&far);
    gw_diags_release(&dg);
}
