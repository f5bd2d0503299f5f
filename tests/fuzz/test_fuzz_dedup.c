// SPDX-License-Identifier: Apache-2.0
// Files of deduplication, and texts to be signed and cut, fed with damaged inputs.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"           /* gw_mem_free */
#include "base/hash.h"            /* gw_hasher */
#include "base/io.h"              /* gw_file_read */
#include "data/dedup/bloom.h"     /* gw_bloom_load */
#include "data/dedup/minhash.h"   /* gw_minhash_sign */
#include "data/dedup/records.h"   /* gw_recs_open */
#include "data/dedup/sigfile.h"   /* gw_sigfile_read */
#include "data/dedup/simplify.h"  /* gw_simplify_text */
#include "data/dedup/spans.h"     /* gw_spans_cut */
#include "data/dedup/substring.h" /* gw_substring_snap */
#include "data/unicode.h"         /* gw_utf8_valid_prefix */
#include "fuzz.h"
#include "harness.h"

static const char *put(const void *bytes, size_t n) {
    const char *path = test_tmp_path("input");
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    return path;
}

// ------------------------------------------------------------------ files of records

/* The header's hash is made to belong to it, so that damage reaches what stands behind the check.
 */
static void mend(uint8_t *bytes, size_t n) {
    uint64_t sections;
    if (n < 128) return;
    memcpy(&sections, bytes + 16, 8);
    if (sections > (n - 128) / 32) return;
    gw_hasher *h = gw_hasher_new();
    gw_hasher_add(h, bytes, 104);
    gw_hasher_add(h, bytes + 128, (size_t)sections * 32);
    gw_hash128 hash = gw_hasher_get(h);
    gw_hasher_free(h);
    memcpy(bytes + 104, &hash, 16);
}

static gw_status read_records(const void *bytes, size_t n, gw_diags *dg) {
    gw_recs f;
    uint64_t *records = NULL;
    int64_t cap = 0, total = 0;
    gw_str copy = {0};
    gw_str_add_n(&copy, bytes, n);
    mend((uint8_t *)copy.data, n);
    gw_status s = gw_recs_open(put(copy.data, n), 3, &f, dg);
    gw_str_release(&copy);
    if (s != GW_OK) return s;
    for (int64_t i = 0; i < f.nsections && s == GW_OK; i++) {
        s = gw_recs_read(&f, i, &records, &cap, dg);
        total += f.sections[i].count;
        gw_run run = gw_recs_run(&f, i);
        gw_merge *m;
        const uint64_t *r;
        if (s == GW_OK && gw_merge_open(&run, 1, 3, 1 << 16, test_tmpdir(), &m, dg) == GW_OK) {
            do s = gw_merge_next(m, &r, dg);
            while (s == GW_OK && r);
            gw_merge_free(m);
        }
    }
    if (s == GW_OK) CHECK_EQ(total, f.records);
    gw_mem_free(records);
    gw_recs_close(&f);
    return s;
}

static void fuzz_records(int64_t rounds) {
    fuzz f = {.name = "dedup_records", .target = read_records, .hot = 256};
    gw_recs_writer *w;
    uint64_t records[30] = {1, 2, 3, 4, 5, 6};
    gw_str bytes = {0};
    const char *path = test_tmp_path("seed");
    CHECK_OK(gw_recs_create(path, 3, 3, 7, &w, NULL), NULL);
    CHECK_OK(gw_recs_add(w, 1, records, 10, NULL), NULL);
    CHECK_OK(gw_recs_finish(w, NULL, NULL), NULL);
    CHECK_OK(gw_file_read(path, 0, &bytes, NULL), NULL);
    fuzz_seed(&f, bytes.data, bytes.len);
    gw_str_release(&bytes);
    fuzz_run(&f, rounds);
}

TEST(fuzz_dedup_records) { fuzz_records(600); }
TEST_LONG(fuzz_dedup_records_long) { fuzz_records(30000); }

// ------------------------------------------------------------------ signature files

static gw_status read_signatures(const void *bytes, size_t n, gw_diags *dg) {
    gw_minhash_recipe r = *gw_minhash_recipe_find("fineweb");
    gw_sigfile_row *rows;
    int64_t count;
    r.rows = 1;
    GW_TRY(gw_sigfile_read(put(bytes, n), &r, &rows, &count, dg));
    CHECK_EQ(count, (int64_t)n / 12);
    gw_mem_free(rows);
    return GW_OK;
}

static void fuzz_signatures(int64_t rounds) {
    fuzz f = {.name = "dedup_signatures", .target = read_signatures};
    uint8_t rows[12 * 20];
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t value = i * 1000000007;
        uint32_t document = (uint32_t)i;
        memcpy(rows + 12 * i, &value, 8);
        memcpy(rows + 12 * i + 8, &document, 4);
    }
    fuzz_seed(&f, rows, sizeof rows);
    fuzz_seed(&f, rows, 0);
    fuzz_run(&f, rounds);
}

TEST(fuzz_dedup_signatures) { fuzz_signatures(600); }
TEST_LONG(fuzz_dedup_signatures_long) { fuzz_signatures(30000); }

// ------------------------------------------------------------------ Bloom filters

static gw_status read_bloom(const void *bytes, size_t n, gw_diags *dg) {
    gw_bloom *b;
    GW_TRY(gw_bloom_load(put(bytes, n), 1 << 20, NULL, &b, dg));
    gw_hash128 key = {1, 2};
    gw_bloom_add(b, key);
    CHECK(gw_bloom_has(b, key));
    CHECK(gw_bloom_rate(b, gw_bloom_count(b)) <= 1);
    gw_bloom_free(b);
    return GW_OK;
}

static void fuzz_bloom(int64_t rounds) {
    fuzz f = {.name = "dedup_bloom", .target = read_bloom, .hot = 300};
    gw_bloom *b;
    gw_str bytes = {0};
    const char *path = test_tmp_path("seed");
    CHECK_OK(gw_bloom_new(100, 0.01, 0, &b, NULL), NULL);
    gw_bloom_add(b, (gw_hash128){5, 6});
    CHECK_OK(gw_bloom_save(b, path, NULL, NULL), NULL);
    CHECK_OK(gw_file_read(path, 0, &bytes, NULL), NULL);
    fuzz_seed(&f, bytes.data, bytes.len);
    gw_str_release(&bytes);
    gw_bloom_free(b);
    fuzz_run(&f, rounds);
}

TEST(fuzz_dedup_bloom) { fuzz_bloom(600); }
TEST_LONG(fuzz_dedup_bloom_long) { fuzz_bloom(30000); }

// ------------------------------------------------------------------ texts

static void check_spans(gw_span_kind kind, const char *text, int64_t n) {
    gw_span_options o = gw_span_options_default(kind);
    o.min_bytes = 1;
    gw_spans *s = gw_spans_new(&o);
    int64_t count;
    const gw_span *is = gw_spans_cut(s, text, n, &count);
    for (int64_t i = 0; i < count; i++) {
        CHECK(is[i].begin < is[i].end && is[i].end <= n);
        CHECK(i == 0 || is[i].begin >= is[i - 1].begin);
        gw_dedup_range r = {0, is[i].begin, is[i].end - 1};
        if (r.begin < r.end && gw_substring_snap(text, n, true, &r, 1) == 1) {
            CHECK(r.begin < r.end && r.end <= n && r.begin >= is[i].begin);
            CHECK(gw_utf8_valid_prefix((const uint8_t *)text + r.begin, r.end - r.begin) ==
                  r.end - r.begin);
        }
    }
    gw_spans_free(s);
}

/* Texts that are not UTF-8 are refused by whoever reads them; what is UTF-8 stays UTF-8. */
static gw_status read_text(const void *bytes, size_t n, gw_diags *dg) {
    if (gw_utf8_valid_prefix(bytes, n) != n)
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file", "no UTF-8");
    static gw_simplify *simplify;
    static gw_minhash *minhash;
    uint64_t signature[112];
    gw_str out = {0};
    if (!simplify) simplify = gw_simplify_new();
    if (!minhash) CHECK_OK(gw_minhash_open(gw_minhash_recipe_find("fineweb"), &minhash, dg), dg);
    gw_simplify_text(simplify, bytes, (int64_t)n, &out);
    CHECK(gw_utf8_valid_prefix((const uint8_t *)gw_str_c(&out), out.len) == out.len);
    CHECK(out.len <= 3 * n);
    if (gw_minhash_sign(minhash, bytes, (int64_t)n, signature))
        for (int i = 0; i < 112; i++) CHECK(signature[i] < (UINT64_C(1) << 61) - 1);
    for (int k = GW_SPAN_LINES; k <= GW_SPAN_SENTENCES; k++)
        check_spans((gw_span_kind)k, bytes, (int64_t)n);
    gw_str_release(&out);
    return GW_OK;
}

static void fuzz_texts(int64_t rounds) {
    static const char *const words[] = {"Σ",  "İ",    "\u0301", "\u302e", "1.5",    "１",
                                        " ",  "\n\n", "ﬁ",      "日",     "한",     "\u1d165",
                                        "ا٫", "'",    "-",      "Ω΄",     "\u2028", NULL};
    fuzz f = {.name = "dedup_texts", .target = read_text, .words = words};
    static const char *const seeds[] = {
        "A first sentence, of 3.14 words. A second one! Is it a third?\n\nΟΔΥΣΣΕΥΣ ΣΑΣ.\n- 한국어 "
        "문장\n",
        "Déjà vu — naïve «façade» １２３ 日本語の文章。ไทย ١٢٣٫٤ क़लम\n"};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_dedup_texts) { fuzz_texts(1200); }
TEST_LONG(fuzz_dedup_texts_long) { fuzz_texts(60000); }
