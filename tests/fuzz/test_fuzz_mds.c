// SPDX-License-Identifier: Apache-2.0
// MDS indexes and shards, and ledgers of consumed data, fed with damaged inputs: what is accepted
// can be read to its end.
#include <stdio.h>
#include <string.h>

#include "base/io.h"     /* gw_file_read */
#include "data/ledger.h" /* gw_ledger_parse */
#include "file/mds.h"    /* gw_mds_index_parse */
#include "fuzz.h"
#include "harness.h"

static const char *const names[] = {"tokens", "text"};
static const char *const encodings[] = {"ndarray", "str"};

static void write_set(const char *dir) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mds_writer *w;
    gw_str value = {0};
    static const char *const hashes[] = {"xxh64"};
    gw_mds_writer_options o = {.dir = dir,
                               .names = names,
                               .encodings = encodings,
                               .ncolumns = 2,
                               .hashes = hashes,
                               .nhashes = 1};
    CHECK_OK(gw_mds_writer_new(&o, &w, &dg), &dg);
    for (int i = 1; i <= 12; i++) {
        uint16_t tokens[40] = {0};
        gw_str_clear(&value);
        gw_mds_array_write(gw_mds_writer_column(w, 0), GW_MDS_U16, tokens, 3 * i, &value);
        gw_mds_value v[] = {{value.data, (int64_t)value.len}, {"some text", i % 9}};
        CHECK_OK(gw_mds_writer_add(w, v, 3 * i, &dg), &dg);
    }
    CHECK_OK(gw_mds_writer_finish(w, &dg), &dg);
    gw_mds_writer_free(w);
    gw_str_release(&value);
    gw_diags_release(&dg);
}

static void seed_from(fuzz *f, const char *dir, const char *name) {
    gw_diags dg;
    gw_diags_init(&dg);
    char path[600];
    gw_str text = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(gw_file_read(path, 0, &text, &dg), &dg);
    fuzz_seed(f, text.data, text.len);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

/* ---- the index ---- */

static gw_status read_index(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena mem = {0};
    gw_mds_index x;
    gw_status st = gw_mds_index_parse(&mem, bytes, (int64_t)n, "index.json", &x, dg);
    int64_t samples = 0;
    for (int64_t i = 0; st == GW_OK && i < x.nshards; i++) {
        const gw_mds_shard *s = &x.shards[i];
        samples += s->samples;
        CHECK(s->ncolumns > 0 && s->raw.name[0] != '/' && !strstr(s->raw.name, "../"));
        for (int c = 0; c < s->ncolumns; c++) CHECK(gw_mds_column_find(s, s->columns[c].name) <= c);
    }
    if (st == GW_OK) CHECK_EQ(samples, x.samples);
    gw_arena_release(&mem);
    return st;
}

static const char *const words[] = {"\"shards\"",
                                    "\"version\"",
                                    "2",
                                    "\"format\"",
                                    "\"mds\"",
                                    "\"column_sizes\"",
                                    "null",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    "\"ndarray:int32:3\"",
                                    "\"ndarray:uint16\"",
                                    "\"pkl\"",
                                    "\"int\"",
                                    "8",
                                    "\"../x\"",
                                    "\"a/b\"",
                                    "-1",
                                    "4294967296",
                                    "\"samples\"",
                                    "\"raw_data\"",
                                    "\"zip_data\"",
                                    "\"bytes\"",
                                    "\"gradwright\"",
                                    "\"tokens\"",
                                    NULL};

/* ---- a shard ---- */

static gw_status read_shard(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena mem = {0};
    gw_mds_column columns[2];
    for (int c = 0; c < 2; c++) /* sorted by name */
        CHECK_OK(gw_mds_column_parse(&mem, names[1 - c], encodings[1 - c], "x", &columns[c], dg),
                 dg);
    gw_mds_shard s = {.raw = {.name = "x", .bytes = (int64_t)n},
                      .samples = 12,
                      .columns = columns,
                      .ncolumns = 2,
                      .tokens = -1};
    gw_mds_view v;
    gw_status st = gw_mds_view_open(&v, &s, bytes, (int64_t)n, "x", dg);
    volatile uint8_t last = 0;
    for (int64_t i = 0; st == GW_OK && i < s.samples; i++)
        for (int c = 0; st == GW_OK && c < 2; c++) {
            const uint8_t *p;
            int64_t size;
            gw_mds_array a;
            st = gw_mds_view_value(&v, i, c, &p, &size, dg);
            if (st != GW_OK) break;
            CHECK(p >= (const uint8_t *)bytes && p + size <= (const uint8_t *)bytes + n);
            if (size > 0) last = p[size - 1];
            if (gw_mds_array_read(&columns[1], p, size, &a) && a.count > 0)
                last = a.data[a.count * gw_mds_element_bytes(a.element) - 1];
        }
    (void)last;
    gw_arena_release(&mem);
    return st;
}

/* ---- a ledger ---- */

static gw_status read_ledger(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ledger_history h;
    gw_status st = gw_ledger_parse(bytes, (int64_t)n, "data.ledger", &mem, &h, dg);
    if (st == GW_OK) {
        (void)gw_ledger_gap(&h);
        gw_ledger_verdict v = gw_ledger_compare(&h, &h);
        CHECK(v.same || gw_ledger_gap(&h) >= 0);
    }
    gw_arena_release(&mem);
    return st;
}

TEST(fuzz_mds_index) {
    fuzz f = {.name = "mds_index", .target = read_index, .words = words};
    write_set(test_tmp_path("set"));
    seed_from(&f, test_tmp_path("set"), "index.json");
    fuzz_run(&f, 3000);
}

TEST(fuzz_mds_shard) {
    fuzz f = {.name = "mds_shard", .target = read_shard};
    write_set(test_tmp_path("set"));
    seed_from(&f, test_tmp_path("set"), "shard.00000.mds");
    fuzz_run(&f, 10000);
}

TEST(fuzz_ledger) {
    static const char *const of_ledger[] = {
        "\"batch\"", "\"first\"",           "\"next\"",   "0", "8", "-1", "}\n",
        "{",         "9223372036854775807", "\"digest\"", NULL};
    static const char seed[] =
        "{\"batch\": 0, \"step\": 1, \"first\": 0, \"next\": 8, \"labels\": 7, \"tokens\": 8, "
        "\"quarantined\": 0, \"digest\": \"000102030405060708090a0b0c0d0e0f\"}\n"
        "{\"batch\": 1, \"step\": 2, \"first\": 8, \"next\": 16, \"labels\": 7, \"tokens\": 8, "
        "\"quarantined\": 0, \"digest\": \"f00102030405060708090a0b0c0d0e0f\"}\n";
    fuzz f = {.name = "ledger", .target = read_ledger, .words = of_ledger};
    fuzz_seed(&f, seed, sizeof seed - 1);
    fuzz_run(&f, 5000);
}
