// SPDX-License-Identifier: Apache-2.0
// What a build stands on: pipeline files, tables on disk, checksums, units, workers.
#include <inttypes.h>
#include <jansson.h> /* json_loadb */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"                /* gw_file_write_atomic */
#include "base/rng.h"               /* gw_rng_u64 */
#include "data/build/columns.h"     /* gw_columns */
#include "data/build/pipeline.h"    /* gw_pipeline */
#include "data/build/pool.h"        /* gw_pool */
#include "data/build/sums.h"        /* gw_sums_write */
#include "data/build/token_width.h" /* gw_tokens_store */
#include "data/build/units.h"       /* gw_units_find */
#include "harness.h"

#define MINIMAL "input: [a]\noutput: {dir: out}\ntokenizer: {path: bytes}\n"

static gw_status parse(gw_pipeline *p, const char *text, const char *const *sets, int n,
                       gw_diags *dg) {
    return gw_pipeline_parse(p, "p.yaml", text, (int64_t)strlen(text), sets, n, dg);
}

// ------------------------------------------------------------------ pipeline files

TEST(pipeline_defaults_and_overrides) {
    gw_pipeline p;
    gw_diags dg;
    const char *const sets[] = {"output.shard_bytes=1MiB", "dedup.near=none",
                                "extract={favour: recall}"};
    gw_diags_init(&dg);
    CHECK_OK(parse(&p, MINIMAL, sets, 2, &dg), &dg);
    CHECK_EQ(p.input.paths.count, 1);
    CHECK_STR(p.input.paths.items[0], "a");
    CHECK_EQ(p.output.shard_bytes, 1 << 20);
    CHECK_STR(p.dedup.near, "none");
    CHECK(p.dedup.exact && p.keep_removed && p.tokenizer.append_eos);
    CHECK(!p.tokenizer.parse_specials);
    CHECK_EQ(p.output.format, GW_FORMAT_MDS);
    gw_pipeline_release(&p);
    CHECK_FAILS(parse(&p, MINIMAL, sets, 3, &dg), &dg, "extract");
    gw_pipeline_release(&p);
    gw_diags_release(&dg);
}

/* Every fault of the file at once, each with its line and column. */
TEST(pipeline_names_all_faults_with_their_places) {
    static const char text[] = "input:\n"
                               "  paths: [a]\n"
                               "  unit_byte: 3\n"
                               "output:\n"
                               "  dir: out\n"
                               "  shard_bytes: 12\n"
                               "  format: parquet\n"
                               "tokenizer: {path: bytes}\n"
                               "dedup: {exact: yes}\n"
                               "sed: 4\n";
    static const struct {
        const char *id;
        int line, column;
    } want[] = {{"config-unknown-key", 3, 3},
                {"config-range", 6, 16},
                {"config-type", 7, 11},
                {"config-type", 9, 16},
                {"config-unknown-key", 10, 1}};
    gw_pipeline p;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_EQ(parse(&p, text, NULL, 0, &dg), GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, (int)GW_COUNT(want));
    const gw_diag *g = dg.first;
    for (size_t i = 0; i < GW_COUNT(want); i++, g = g->next) {
        CHECK_STR(g->id, want[i].id);
        CHECK_STR(g->where.file, "p.yaml");
        CHECK_EQ(g->where.line, want[i].line);
        CHECK_EQ(g->where.column, want[i].column);
    }
    CHECK(strstr(dg.first->hint, "input.unit_bytes"));
    gw_pipeline_release(&p);
    gw_diags_release(&dg);
}

TEST(pipeline_refuses_what_is_missing_or_contradicts) {
    static const char *const texts[][2] = {
        {"output: {dir: o}\ntokenizer: {path: bytes}\n", "input.paths"},
        {"input: [a]\ntokenizer: {path: bytes}\n", "output.dir"},
        {"input: [a]\noutput: {dir: o}\n", "tokenizer.path"},
        {MINIMAL "dedup: {near: fineweeb}\n", "dedup.near"},
        {"input: [a]\noutput: {dir: o, format: megatron, text: true}\ntokenizer: {path: bytes}\n",
         "only MDS"},
        {"input: [a]\noutput: {dir: o, compression: gzip}\ntokenizer: {path: bytes}\n", "zstd"},
        {"[1, 2]", "map of keys"}};
    for (size_t i = 0; i < GW_COUNT(texts); i++) {
        gw_pipeline p;
        gw_diags dg;
        gw_diags_init(&dg);
        CHECK_FAILS(parse(&p, texts[i][0], NULL, 0, &dg), &dg, texts[i][1]);
        gw_pipeline_release(&p);
        gw_diags_release(&dg);
    }
}

/* What contradicts in dedup, or would have no effect, each at its own place. */
TEST(pipeline_refuses_dedup_that_cannot_be) {
    static const struct {
        const char *dedup, *says;
        int column;
    } cases[] = {{"dedup: {near: none, jaccard: 0.8}", "a recipe in dedup.near", 30},
                 {"dedup: {near: none, signatures: s}", "a recipe in dedup.near", 33},
                 {"dedup: {span_bytes: 20}", "without dedup.spans", 21},
                 {"dedup: {spans: words}", "one or a list of", 16},
                 {"dedup: {spans: [lines, none]}", "one or a list of", 16},
                 {"dedup: {substring: 5}", "at least 8", 20},
                 {"dedup: {substring_of: bytes}", "without dedup.substring", 23},
                 {"dedup: {substring_keep: none}", "without dedup.substring", 25},
                 {"dedup: {index_only: true}", "without dedup.index", 21},
                 {"dedup: {index: i, index_out: i}", "name another folder", 30},
                 {"dedup: {near: none, exact: false, index: i}", "nothing is compared", 42},
                 {"dedup: {bloom_out: f}", "without dedup.bloom", 20},
                 {"dedup: {bloom: lines, bloom_in: f, bloom_out: f}", "name another file", 47},
                 {"dedup: {bloom: lines, bloom_in: f, bloom_keys: 7}", "has its size already", 48},
                 {"dedup: {jaccard: 1.5}", "from 0 to 1", 18},
                 {"dedup: {similarity_threshold: 0.8}", "dedup.jaccard", 9},
                 {"dedup: {bloom_filter: {}}", "dedup.bloom", 9},
                 {"dedup: {min_len_words: 50}", "dedup.substring", 9}};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_pipeline p;
        gw_diags dg;
        char text[300];
        gw_diags_init(&dg);
        snprintf(text, sizeof text, "%s%s\n", MINIMAL, cases[i].dedup);
        CHECK_FAILS(parse(&p, text, NULL, 0, &dg), &dg, cases[i].says);
        CHECK_EQ(dg.nerrors, 1);
        CHECK_EQ(dg.first->where.line, 4);
        CHECK_MSG(dg.first->where.column == cases[i].column, "%s: column %d", cases[i].dedup,
                  dg.first->where.column);
        gw_pipeline_release(&p);
        gw_diags_release(&dg);
    }
}

TEST(pipeline_reads_one_name_or_a_list) {
    gw_pipeline p;
    gw_diags dg;
    gw_str text = {0};
    const char *const sets[] = {"dedup.spans=[sentences, lines]"};
    gw_diags_init(&dg);
    CHECK_OK(parse(&p, MINIMAL "dedup: {spans: paragraphs}\n", NULL, 0, &dg), &dg);
    CHECK_EQ(p.dedup.spans, 1 << 1);
    gw_pipeline_release(&p);
    CHECK_OK(parse(&p, MINIMAL, sets, 1, &dg), &dg);
    gw_pipeline_text(&p, "dedup.spans: dedup.exact", &text);
    CHECK_STR(gw_str_c(&text), "dedup.exact: true\ndedup.spans: [lines, sentences]\n");
    gw_pipeline_release(&p);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

/* The schema names the keys that `data keys` prints, group by group. */
TEST(pipeline_schema_has_every_key) {
    gw_str text = {0}, all = {0};
    gw_pipeline p;
    gw_diags dg;
    json_error_t e;
    const char *name, *inner;
    json_t *value, *deep;
    gw_diags_init(&dg);
    gw_pipeline_schema(&text);
    json_t *schema = json_loadb(gw_str_c(&text), text.len, JSON_REJECT_DUPLICATES, &e);
    CHECK_MSG(schema, "line %d: %s", e.line, e.text);
    CHECK_OK(parse(&p, MINIMAL, NULL, 0, &dg), &dg);
    gw_pipeline_text(&p, "", &all);
    int keys = 0;
    for (const char *c = gw_str_c(&all); *c; c++) keys += *c == '\n';
    json_object_foreach(json_object_get(schema, "properties"), name, value) {
        gw_str line = {0};
        json_t *of = json_object_get(value, "properties");
        if (!of) keys--;
        json_object_foreach(of, inner, deep) {
            gw_str_clear(&line);
            gw_str_printf(&line, "%s.%s: ", name, inner);
            CHECK_MSG(strstr(gw_str_c(&all), gw_str_c(&line)), "no key %s", gw_str_c(&line));
            CHECK(json_string_value(json_object_get(deep, "description")));
            keys--;
        }
        gw_str_release(&line);
    }
    CHECK_EQ(keys, 0);
    json_decref(schema);
    gw_pipeline_release(&p);
    gw_str_release(&text);
    gw_str_release(&all);
    gw_diags_release(&dg);
}

/* What `data keys` prints is a pipeline file with every key at its default. */
TEST(pipeline_keys_read_back_as_the_defaults) {
    gw_str keys = {0}, a = {0}, b = {0};
    const char *const sets[] = {"input.paths=[a]", "output.dir=out", "tokenizer.path=bytes"};
    gw_pipeline p, q;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_pipeline_keys(&keys);
    CHECK_OK(parse(&p, MINIMAL, NULL, 0, &dg), &dg);
    CHECK_OK(parse(&q, gw_str_c(&keys), sets, 3, &dg), &dg);
    gw_pipeline_text(&p, "input. extract. language. dedup. pii. output. run. keep_removed", &a);
    gw_pipeline_text(&q, "input. extract. language. dedup. pii. output. run. keep_removed", &b);
    CHECK_STR(gw_str_c(&a), gw_str_c(&b));
    gw_pipeline_release(&p);
    gw_pipeline_release(&q);
    gw_str_release(&keys);
    gw_str_release(&a);
    gw_str_release(&b);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ tables

static const gw_column COLUMNS[] = {{"text", GW_COLUMN_BYTES, 1},
                                    {"kind", GW_COLUMN_U8, 1},
                                    {"size", GW_COLUMN_U32, 1},
                                    {"keys", GW_COLUMN_U64, 3},
                                    {"signal", GW_COLUMN_F64, 1}};

static void row_of(int64_t i, gw_str *text, uint64_t *keys) {
    gw_rng_key key = gw_rng_key_named(7, "table");
    int64_t n = (int64_t)(gw_rng_u64(key, (uint64_t)(5 * i)) % 200);
    gw_str_clear(text);
    for (int64_t k = 0; k < n; k++) gw_str_printf(text, "%d ", (int)(i * k % 97));
    for (int k = 0; k < 3; k++) keys[k] = gw_rng_u64(key, (uint64_t)(5 * i + k + 1));
}

static void write_table(const char *path, int64_t rows, int64_t block_bytes, gw_diags *dg) {
    gw_columns_writer *w;
    gw_str text = {0};
    uint64_t keys[3];
    CHECK_OK(gw_columns_writer_new(path, COLUMNS, GW_COUNT(COLUMNS), block_bytes, &w, dg), dg);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t kind = (uint8_t)i;
        uint32_t size;
        double signal = (double)i / 3;
        row_of(i, &text, keys);
        size = (uint32_t)text.len;
        gw_columns_put(w, 0, gw_str_c(&text), (int64_t)text.len);
        gw_columns_put(w, 1, &kind, 1);
        gw_columns_put(w, 2, &size, 1);
        gw_columns_put(w, 3, keys, 1);
        gw_columns_put(w, 4, &signal, 1);
        CHECK_OK(gw_columns_end_row(w, dg), dg);
    }
    json_t *meta = json_pack("{s:s}", "key", "abc");
    CHECK_OK(gw_columns_finish(w, meta, dg), dg);
    json_decref(meta);
    gw_columns_writer_free(w);
    gw_str_release(&text);
}

static void read_back(const char *path, int64_t rows, gw_diags *dg) {
    gw_columns *c;
    gw_column_data text = {0}, size = {0}, keys = {0};
    gw_str want = {0};
    uint64_t k3[3];
    int64_t row = 0, n;
    CHECK_OK(gw_columns_open(path, &c, dg), dg);
    CHECK_EQ(gw_columns_rows(c), rows);
    CHECK_STR(json_string_value(json_object_get(gw_columns_meta(c), "key")), "abc");
    CHECK_EQ(gw_columns_find(c, "keys"), 3);
    CHECK_EQ(gw_columns_find(c, "none"), -1);
    for (int64_t b = 0; b < gw_columns_blocks(c); b++) {
        CHECK_OK(gw_columns_read(c, 0, b, &text, dg), dg);
        CHECK_OK(gw_columns_read(c, 2, b, &size, dg), dg);
        CHECK_OK(gw_columns_read(c, 3, b, &keys, dg), dg);
        for (int64_t i = 0; i < text.rows; i++, row++) {
            row_of(row, &want, k3);
            const char *t = gw_column_bytes(&text, i, &n);
            CHECK_EQ(n, (int64_t)want.len);
            CHECK(n == 0 || memcmp(t, want.data, (size_t)n) == 0);
            CHECK(memcmp(keys.values + 24 * i, k3, 24) == 0);
            uint32_t s;
            memcpy(&s, size.values + 4 * i, 4);
            CHECK_EQ(s, n);
        }
    }
    CHECK_EQ(row, rows);
    CHECK_OK(gw_columns_verify(c, NULL, dg), dg);
    gw_columns_close(c);
    gw_column_data_release(&text);
    gw_column_data_release(&size);
    gw_column_data_release(&keys);
    gw_str_release(&want);
}

TEST(table_gives_back_what_was_put) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const int64_t rows[] = {0, 1, 2, 1000};
    for (size_t i = 0; i < GW_COUNT(rows); i++)
        for (int64_t block = 100; block <= 100000; block *= 1000) {
            write_table(test_tmp_path("t.docs"), rows[i], block, &dg);
            read_back(test_tmp_path("t.docs"), rows[i], &dg);
        }
    gw_diags_release(&dg);
}

/* The content hash is that of rows and schema; meta and the cut into files do not change it. */
TEST(table_content_depends_on_rows_alone) {
    gw_diags dg;
    gw_columns *a, *b;
    gw_diags_init(&dg);
    write_table(test_tmp_path("a"), 50, 1000, &dg);
    write_table(test_tmp_path("b"), 51, 1000, &dg);
    CHECK_OK(gw_columns_open(test_tmp_path("a"), &a, &dg), &dg);
    CHECK_OK(gw_columns_open(test_tmp_path("b"), &b, &dg), &dg);
    gw_hash128 ha = gw_columns_content(a), hb = gw_columns_content(b);
    CHECK(ha.lo != hb.lo || ha.hi != hb.hi);
    gw_columns_close(b);
    write_table(test_tmp_path("b"), 50, 1000, &dg);
    CHECK_OK(gw_columns_open(test_tmp_path("b"), &b, &dg), &dg);
    hb = gw_columns_content(b);
    CHECK(ha.lo == hb.lo && ha.hi == hb.hi);
    gw_columns_close(a);
    gw_columns_close(b);
    gw_diags_release(&dg);
}

/* Without a sync, which a thousand times over takes seconds. */
static void put_bytes(const char *name, const char *bytes, int64_t n) {
    FILE *f = fopen(test_tmp_path(name), "wb");
    CHECK(f);
    CHECK_EQ((int64_t)fwrite(bytes, 1, (size_t)n, f), n);
    CHECK_EQ(fclose(f), 0);
}

static bool still_whole(const char *path) {
    gw_columns *c;
    if (gw_columns_open(path, &c, NULL) != GW_OK) return false;
    bool whole = gw_columns_verify(c, NULL, NULL) == GW_OK;
    gw_columns_close(c);
    return whole;
}

/* Any byte that changes and any cut is seen. The reference is arithmetic: every byte of the file is
 * under some checksum or is a mark. */
TEST(table_sees_every_changed_byte_and_every_cut) {
    gw_diags dg;
    gw_str file = {0};
    gw_diags_init(&dg);
    write_table(test_tmp_path("t"), 40, 2000, &dg);
    CHECK_OK(gw_file_read(test_tmp_path("t"), 0, &file, &dg), &dg);
    int64_t n = (int64_t)file.len, step = GW_MAX(1, n / 1500);
    for (int64_t i = 0; i < n; i += step) {
        file.data[i] ^= 0x10;
        put_bytes("d", file.data, n);
        CHECK_MSG(!still_whole(test_tmp_path("d")), "byte %lld of %lld", (long long)i,
                  (long long)n);
        file.data[i] ^= 0x10;
    }
    for (int64_t i = 0; i < n; i += 7 * step) {
        put_bytes("d", file.data, i);
        CHECK(!still_whole(test_tmp_path("d")));
    }
    gw_str_release(&file);
    gw_diags_release(&dg);
}

TEST(table_that_is_not_finished_leaves_nothing) {
    gw_diags dg;
    gw_columns_writer *w;
    gw_diags_init(&dg);
    CHECK_OK(gw_columns_writer_new(test_tmp_path("x"), COLUMNS, 1, 0, &w, &dg), &dg);
    gw_columns_put(w, 0, "abc", 3);
    CHECK_OK(gw_columns_end_row(w, &dg), &dg);
    gw_columns_writer_free(w);
    CHECK(!gw_path_exists(test_tmp_path("x")));
    CHECK_EQ(rmdir(test_tmpdir()), 0); /* the temporary name is gone too */
    CHECK_EQ(mkdir(test_tmpdir(), 0777), 0);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ tokens, sums

/* dolma#152, LLM-Shearing#65, datatrove#118: id 70,000 written as 16 bits became 4,464. */
TEST(token_that_does_not_fit_is_an_error) {
    const int32_t ids[] = {1, 70000, 65499}, negative[] = {-1};
    gw_str out = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_EQ(gw_token_width(50257), 2);
    CHECK_EQ(gw_token_width(65499), 2);
    CHECK_EQ(gw_token_width(65500), 4);
    CHECK_EQ(gw_token_width(128256), 4);
    CHECK_FAILS(gw_tokens_store(ids, 3, 2, 128256, &out, &dg), &dg, "70000");
    CHECK_EQ(out.len, 0);
    CHECK_FAILS(gw_tokens_store(ids, 3, 4, 65500, &out, &dg), &dg, "data-token-width");
    CHECK_FAILS(gw_tokens_store(negative, 1, 4, 65500, &out, &dg), &dg, "data-token-width");
    CHECK_OK(gw_tokens_store(ids, 3, 4, 128256, &out, &dg), &dg);
    CHECK_EQ(out.len, 12);
    for (int i = 0; i < 3; i++) CHECK_EQ(gw_token_at((const uint8_t *)out.data, 4, i), ids[i]);
    gw_str_clear(&out);
    CHECK_OK(gw_tokens_store(ids + 2, 1, 2, 65500, &out, &dg), &dg);
    CHECK_EQ(gw_token_at((const uint8_t *)out.data, 2, 0), 65499);
    gw_str_release(&out);
    gw_diags_release(&dg);
}

TEST(sums_name_the_mebibyte_that_changed) {
    int64_t n = 5 * GW_SUMS_BLOCK / 2, bad = 0;
    char *bytes = gw_mem_zalloc((size_t)n);
    gw_diags dg;
    gw_diags_init(&dg);
    for (int64_t i = 0; i < n; i++) bytes[i] = (char)(i * 31 >> 3);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), bytes, n, &dg), &dg);
    CHECK_OK(gw_sums_write(test_tmp_path("f"), NULL, &dg), &dg);
    CHECK_OK(gw_sums_verify(test_tmp_path("f"), &bad, &dg), &dg);
    CHECK_EQ(bad, 0);
    bytes[GW_SUMS_BLOCK + 17] ^= 1;
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), bytes, n, &dg), &dg);
    CHECK_FAILS(gw_sums_verify(test_tmp_path("f"), &bad, &dg), &dg, "offset 1048576 to 2097152");
    CHECK_EQ(bad, 1);
    gw_diags_clear(&dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), bytes, n - 1, &dg), &dg);
    CHECK_FAILS(gw_sums_verify(test_tmp_path("f"), &bad, &dg), &dg, "2621439 bytes");
    gw_mem_free(bytes);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ units

static void put_file(const char *name, int64_t bytes) {
    FILE *f = fopen(test_tmp_path(name), "w");
    CHECK(f);
    CHECK_EQ(ftruncate(fileno(f), bytes), 0);
    CHECK_EQ(fclose(f), 0);
}

static void units_of(const char *paths, const char *unit_bytes, gw_arena *a, gw_units *out) {
    gw_pipeline p;
    gw_diags dg;
    gw_diags_init(&dg);
    char set[2][600];
    snprintf(set[0], sizeof set[0], "input.paths=%s", paths);
    snprintf(set[1], sizeof set[1], "input.unit_bytes=%s", unit_bytes);
    const char *const sets[] = {set[0], set[1]};
    CHECK_OK(parse(&p, MINIMAL, sets, 2, &dg), &dg);
    CHECK_OK(gw_units_find(&p, a, out, &dg), &dg);
    gw_pipeline_release(&p);
    gw_diags_release(&dg);
}

/* Sorted by path, each file once, consecutive ones together while they fit. */
TEST(units_are_a_function_of_names_and_sizes) {
    gw_arena a;
    gw_units u, v;
    char list[600];
    gw_arena_init(&a);
    CHECK_EQ(mkdir(test_tmp_path("d"), 0777), 0);
    CHECK_EQ(mkdir(test_tmp_path("d/e"), 0777), 0);
    put_file("d/b.html", 600);
    put_file("d/a.html", 500);
    put_file("d/e/c.txt", 300);
    put_file("d/z.warc.gz", 5000);
    put_file("d/.hidden.html", 10);
    put_file("d/picture.png", 10);
    snprintf(list, sizeof list, "[%s]", test_tmp_path("d"));
    units_of(list, "1000", &a, &u);
    CHECK_EQ(u.nfiles, 4);
    CHECK_EQ(u.count, 3);
    CHECK_EQ(u.items[0].nfiles, 1);
    CHECK(strstr(u.items[0].files[0].path, "/a.html"));
    CHECK_EQ(u.items[1].nfiles, 2);
    CHECK(strstr(u.items[1].files[1].path, "/e/c.txt"));
    CHECK_EQ(u.items[2].bytes, 5000);
    snprintf(list, sizeof list, "[%s/*.gz, %s, %s/a.html]", test_tmp_path("d"), test_tmp_path("d"),
             test_tmp_path("d"));
    units_of(list, "1000", &a, &v);
    CHECK_EQ(v.nfiles, 4);
    for (int64_t i = 0; i < 3; i++) {
        gw_hash128 x = gw_unit_hash(&u.items[i]), y = gw_unit_hash(&v.items[i]);
        CHECK(x.lo == y.lo && x.hi == y.hi);
    }
    gw_arena_release(&a);
}

TEST(units_that_do_not_exist_are_named) {
    gw_pipeline p;
    gw_diags dg;
    gw_arena a;
    gw_units u;
    gw_arena_init(&a);
    gw_diags_init(&dg);
    CHECK_OK(parse(&p,
                   "input: [/nonexistent/x.warc, '/nonexistent/*.gz']\n"
                   "output: {dir: out}\ntokenizer: {path: bytes}\n",
                   NULL, 0, &dg),
             &dg);
    CHECK_FAILS(gw_units_find(&p, &a, &u, &dg), &dg, "/nonexistent/x.warc");
    CHECK_EQ(dg.nerrors, 2);
    CHECK_EQ(dg.first->where.line, 1);
    gw_pipeline_release(&p);
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ workers

typedef struct work {
    const char *dir;
    int64_t kill_once, kill_always, fail;
} work;

static const char *task_name(void *user, int64_t task) {
    static char name[32];
    (void)user;
    snprintf(name, sizeof name, "task-%lld", (long long)task);
    return name;
}

static gw_status do_task(void *user, void *state, int64_t task, gw_diags *dg) {
    const work *w = user;
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/tried-%lld", w->dir, (long long)task);
    bool before = gw_path_exists(path);
    FILE *f = fopen(path, "a");
    if (f) fclose(f);
    if (task == w->kill_always || (task == w->kill_once && !before)) raise(SIGKILL);
    if (task == w->fail || task == w->fail + 3)
        return GW_FAIL(dg, GW_ERR_FORMAT, "data-table", "task %lld is bad", (long long)task);
    snprintf(path, sizeof path, "%s/done-%lld", w->dir, (long long)task);
    f = fopen(path, "w");
    if (f) fclose(f);
    return GW_OK;
}

static gw_status run_pool(work *w, int workers, int64_t tasks, gw_diags *dg) {
    gw_pool p = {.workers = workers, .tasks = tasks, .name = task_name, .work = do_task, .user = w};
    return gw_pool_run(&p, dg);
}

static int64_t done_count(int64_t tasks) {
    int64_t n = 0;
    char name[32];
    for (int64_t i = 0; i < tasks; i++) {
        snprintf(name, sizeof name, "done-%lld", (long long)i);
        n += gw_path_exists(test_tmp_path(name));
    }
    return n;
}

TEST(pool_does_the_task_of_a_dead_worker_once_more) {
    gw_diags dg;
    gw_diags_init(&dg);
    work w = {test_tmpdir(), 5, -1, -10};
    CHECK_OK(run_pool(&w, 3, 20, &dg), &dg);
    CHECK_EQ(done_count(20), 20);
    gw_diags_release(&dg);
}

TEST(pool_names_the_task_that_kills_workers_and_does_the_others) {
    gw_diags dg;
    gw_diags_init(&dg);
    work w = {test_tmpdir(), -1, 7, -10};
    CHECK_FAILS(run_pool(&w, 3, 20, &dg), &dg, "signal 9");
    CHECK_EQ(dg.nerrors, 1);
    CHECK_STR(dg.first->id, "data-worker");
    CHECK_STR(dg.first->where.file, "task-7");
    CHECK_EQ(done_count(20), 19);
    gw_diags_release(&dg);
}

/* Errors come back whole, in the order of tasks, and stop nobody else, for any number of workers.
 */
TEST(pool_reports_all_errors_in_the_order_of_tasks) {
    static const int workers[] = {1, 2, 4};
    for (size_t i = 0; i < GW_COUNT(workers); i++) {
        gw_diags dg;
        gw_diags_init(&dg);
        work w = {test_tmpdir(), -1, -1, 4};
        CHECK_EQ(run_pool(&w, workers[i], 12, &dg), GW_ERR_FORMAT);
        CHECK_EQ(dg.nerrors, 2);
        CHECK_STR(dg.first->message, "task 4 is bad");
        CHECK_STR(dg.first->next->message, "task 7 is bad");
        CHECK_EQ(done_count(12), 10);
        gw_diags_release(&dg);
    }
}
