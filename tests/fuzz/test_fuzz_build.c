// SPDX-License-Identifier: Apache-2.0
// What a build reads of people and of its own: pipeline files, tables, checksums.
#include <stdio.h>
#include <string.h>

#include "base/hash.h"           /* gw_hash64 */
#include "base/io.h"             /* gw_file_read */
#include "data/build/columns.h"  /* gw_columns */
#include "data/build/pipeline.h" /* gw_pipeline */
#include "data/build/sums.h"     /* gw_sums_parse */
#include "fuzz.h"
#include "harness.h"

// ------------------------------------------------------------------ pipeline files

static const char *const yaml_words[] = {
    "input:", "output:", "filters:", "dedup:", "pii:", "tokenizer:", "paths", "dir",
    "[",      "]",       "{",        "}",      "\n",   "  ",         ": ",    "- ",
    "true",   "none",    "64MiB",    "-1",     "1e30", "zstd:3",     "&a",    "*a",
    "bytes",  "fineweb", "both",     "null",   "'",    "\"",         "#",     NULL};

/* What is accepted has a text, and the text says every key. */
static gw_status read_pipeline(const void *bytes, size_t n, gw_diags *dg) {
    gw_pipeline p;
    gw_str text = {0};
    gw_status st = gw_pipeline_parse(&p, "p.yaml", bytes, (int64_t)n, NULL, 0, dg);
    if (st == GW_OK) {
        gw_pipeline_text(&p, "", &text);
        CHECK(strstr(gw_str_c(&text), "output.dir: "));
        CHECK(p.input.paths.count > 0);
        gw_str_release(&text);
    }
    gw_pipeline_release(&p);
    return st;
}

static void run_pipeline(int64_t rounds) {
    static const char *const seeds[] = {
        "input: [a, b]\noutput: {dir: out}\ntokenizer: {path: bytes}\n",
        "input:\n  paths:\n    - x.warc.gz\n  unit_bytes: 1MB\nextract: {favour: recall}\n"
        "filters:\n  - gopher_quality/datatrove: {min_doc_words: 3}\ndedup: {near: none}\n"
        "pii: {email: mark}\noutput: {dir: o, format: both, compression: zstd:3}\n"
        "tokenizer: {path: t.json, append_eos: false}\nrun: {workers: 2, memory: 1GB}\n"};
    fuzz f = {.name = "pipeline", .target = read_pipeline, .words = yaml_words};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_pipeline) { run_pipeline(2000); }
TEST_LONG(fuzz_pipeline_long) { run_pipeline(100000); }

// ------------------------------------------------------------------ tables

static const char *const table_words[] = {
    "\"rows\"",    "\"chunks\"", "\"blocks\"", "\"columns\"", "\"width\"",
    "\"type\"",    "\"bytes\"",  "\"u64\"",    "[",           "]",
    "{",           "}",          ",",          "0",           "1",
    "-1",          "65535",      "4294967296", "null",        "9223372036854775807",
    "\"version\"", NULL};

/* The footer's hash is made to fit, or nothing behind it would ever be reached. */
static void mend(gw_str *s) {
    uint64_t t[3];
    if (s->len < 40) return;
    memcpy(t, s->data + s->len - 32, sizeof t);
    uint64_t end = s->len - 32;
    if (t[0] < 8 || t[0] > end) return;
    t[1] = end - t[0];
    t[2] = gw_hash64(s->data + t[0], t[1], 0);
    memcpy(s->data + s->len - 32, t, sizeof t);
}

static gw_status read_table(const void *bytes, size_t n, gw_diags *dg) {
    gw_str s = {0};
    gw_columns *c;
    const char *path = test_tmp_path("table");
    gw_str_add_n(&s, bytes, n);
    mend(&s);
    FILE *out = fopen(path, "wb"); /* no sync: it would take all the time */
    CHECK(out && fwrite(gw_str_c(&s), 1, s.len, out) == s.len && fclose(out) == 0);
    gw_str_release(&s);
    gw_status st = gw_columns_open(path, &c, dg);
    if (st != GW_OK) return st;
    int64_t rows = 0;
    for (int64_t b = 0; b < gw_columns_blocks(c); b++) rows += gw_columns_block_rows(c, b);
    CHECK_EQ(rows, gw_columns_rows(c));
    st = gw_columns_verify(c, NULL, dg);
    gw_columns_close(c);
    return st;
}

static void run_table(int64_t rounds) {
    static const gw_column columns[] = {{"text", GW_COLUMN_BYTES, 1}, {"n", GW_COLUMN_U64, 2}};
    fuzz f = {.name = "table", .target = read_table, .words = table_words};
    gw_diags dg;
    gw_diags_init(&dg);
    for (int rows = 0; rows < 40; rows += 13) {
        gw_columns_writer *w;
        gw_str file = {0};
        CHECK_OK(gw_columns_writer_new(test_tmp_path("seed"), columns, 2, 300, &w, &dg), &dg);
        for (int i = 0; i < rows; i++) {
            uint64_t n[2] = {(uint64_t)i, 7};
            gw_columns_put(w, 0, "some text some text some text", 5 + i % 20);
            gw_columns_put(w, 1, n, 1);
            CHECK_OK(gw_columns_end_row(w, &dg), &dg);
        }
        CHECK_OK(gw_columns_finish(w, NULL, &dg), &dg);
        gw_columns_writer_free(w);
        CHECK_OK(gw_file_read(test_tmp_path("seed"), 0, &file, &dg), &dg);
        fuzz_seed(&f, file.data, file.len);
        gw_str_release(&file);
    }
    gw_diags_release(&dg);
    fuzz_run(&f, rounds);
}

TEST(fuzz_table) { run_table(1500); }
TEST_LONG(fuzz_table_long) { run_table(75000); }

// ------------------------------------------------------------------ checksums

static const char *const sum_words[] = {
    "xxh3-64", "1048576", "\n", " ", "0123456789abcdef\n", "-1", "9223372036854775807", NULL};

static gw_status read_sums(const void *bytes, size_t n, gw_diags *dg) {
    uint64_t sums[8];
    int64_t size = -1, count = 0;
    if (!gw_sums_parse(bytes, (int64_t)n, &size, sums, 8, &count))
        return GW_FAIL(dg, GW_ERR_FORMAT, "data-checksum", "no file of checksums");
    CHECK(size >= 0 && count == (size + GW_SUMS_BLOCK - 1) / GW_SUMS_BLOCK);
    CHECK((int64_t)n > 17 * count);
    return GW_OK;
}

static void run_sums(int64_t rounds) {
    static const char two[] = "xxh3-64 1048576 1048577\n0123456789abcdef\n"
                              "fedcba9876543210\n";
    static const char *const seeds[] = {"xxh3-64 1048576 0\n",
                                        "xxh3-64 1048576 5\n0123456789abcdef\n", two};
    fuzz f = {.name = "sums", .target = read_sums, .words = sum_words};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_sums) { run_sums(3000); }
TEST_LONG(fuzz_sums_long) { run_sums(150000); }
