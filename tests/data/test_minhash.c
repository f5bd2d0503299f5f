// SPDX-License-Identifier: Apache-2.0
// MinHash: values equal to datatrove's (golden/minhash.txt), the law of matching, and all loops
// alike.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "base/io.h"             /* gw_file_read */
#include "base/rng.h"            /* gw_rng_u64 */
#include "base/str.h"            /* gw_str */
#include "data/dedup/minhash.h"  /* what is tested */
#include "data/dedup/shingle.h"  /* gw_fold_at */
#include "data/dedup/sigfile.h"  /* gw_sigfile_new */
#include "data/dedup/simplify.h" /* gw_simplify_text */
#include "escaped.h"             /* read_golden, unhex */
#include "harness.h"

// ------------------------------------------------------------------ golden/minhash.txt

typedef struct golden {
    char *kind, *fields[3];
    int nfields;
} golden;

static char *next_field(char **p) {
    char *field = *p, *tab = strchr(field, '\t');
    if (tab) *tab = 0;
    *p = tab ? tab + 1 : NULL;
    return field;
}

/* Calls body with each case of a kind; returns how many. */
static int each(const char *kind, void (*body)(golden *g)) {
    gw_str file = read_golden("minhash.txt");
    int count = 0;
    for (char *at = file.data; *at;) {
        char *p = take_line(&at);
        golden g = {.kind = next_field(&p)};
        while (p && g.nfields < 3) g.fields[g.nfields++] = next_field(&p);
        if (gw_str_eq(g.kind, kind)) {
            body(&g);
            count++;
        }
    }
    gw_str_release(&file);
    return count;
}

static uint64_t number_at(const char *bytes, int64_t i) {
    uint64_t x;
    memcpy(&x, bytes + 8 * i, 8);
    return x;
}

static void check_parameters(golden *g) {
    int64_t seed, n;
    CHECK(gw_parse_i64(g->fields[0], &seed) && gw_parse_i64(g->fields[1], &n));
    size_t bytes = unhex(g->fields[2]);
    uint64_t *a = malloc((size_t)n * 16), *b = a + n;
    CHECK(a != NULL);
    gw_minhash_parameters((uint32_t)seed, false, n, a, b);
    if (bytes == 16) { /* the last ones only */
        CHECK(a[n - 1] == number_at(g->fields[2], 0) && b[n - 1] == number_at(g->fields[2], 1));
    } else {
        CHECK_EQ(bytes, n * 16);
        for (int64_t i = 0; i < n; i++)
            CHECK(a[i] == number_at(g->fields[2], i) && b[i] == number_at(g->fields[2], n + i));
    }
    free(a);
}

TEST(minhash_parameters_are_numpys) { CHECK_EQ(each("parameters", check_parameters), 3); }

static void check_simplify(golden *g) {
    gw_str out = {0};
    gw_simplify *s = gw_simplify_new();
    size_t n = unhex(g->fields[0]);
    unhex(g->fields[1]);
    gw_simplify_text(s, g->fields[0], (int64_t)n, &out);
    CHECK_STR(gw_str_c(&out), g->fields[1]);
    gw_simplify_free(s);
    gw_str_release(&out);
}

TEST(minhash_simplify_is_datatroves) { CHECK(each("simplify", check_simplify) >= 25); }

static gw_minhash_recipe config_of(const char *name) {
    const gw_minhash_recipe *r = gw_minhash_recipe_find(name);
    if (r) return *r;
    gw_minhash_recipe own = *gw_minhash_recipe_find("fineweb");
    bool sha = gw_str_eq(name, "sha1-32");
    CHECK(sha || gw_str_eq(name, "xxh-32"));
    own.hash = sha ? GW_SHINGLE_SHA1 : GW_SHINGLE_XXH;
    own.bits = 32;
    own.bands = sha ? 3 : 2;
    own.rows = sha ? 5 : 9;
    own.shingle = sha ? 2 : 3;
    own.seed = sha ? 1 : 42;
    return own;
}

static void check_sign(golden *g) {
    gw_diags dg = {0};
    gw_minhash *m;
    gw_minhash_recipe r = config_of(g->fields[0]);
    CHECK_OK(gw_minhash_open(&r, &m, &dg), &dg);
    size_t n = unhex(g->fields[1]), want = unhex(g->fields[2]);
    uint64_t *signature = malloc((size_t)gw_minhash_values(m) * 8);
    for (int k = 0; gw_fold_at(k); k++) {
        CHECK(signature && gw_minhash_use_kernel(m, gw_fold_at(k)->name));
        bool any = gw_minhash_sign(m, g->fields[1], (int64_t)n, signature);
        CHECK_MSG(any == (want > 0), "%s of '%s'", g->fields[0], g->fields[1]);
        for (size_t i = 0; i < want / 8; i++)
            CHECK_MSG(signature[i] == number_at(g->fields[2], (int64_t)i),
                      "%s by %s, value %zu of '%s'", g->fields[0], gw_minhash_kernel(m), i,
                      g->fields[1]);
    }
    free(signature);
    gw_minhash_free(m);
}

/* What is remembered of words changes nothing: signing a text equals signing its words as they are
 * cut at once. */
static void check_remembered(golden *g) {
    static gw_simplify *simplify;
    static gw_words *words;
    gw_str simple = {0};
    gw_diags dg = {0};
    gw_minhash *m;
    uint64_t x[112], y[112];
    if (!simplify) simplify = gw_simplify_new();
    if (!words) words = gw_words_new();
    CHECK_OK(gw_minhash_open(gw_minhash_recipe_find("fineweb-xxh"), &m, &dg), &dg);
    size_t n = unhex(g->fields[0]);
    gw_simplify_text(simplify, g->fields[0], (int64_t)n, &simple);
    gw_words_split(words, GW_SPLIT_SPACY_EN, gw_str_c(&simple), (int64_t)simple.len);
    bool whole = gw_minhash_sign_words(m, gw_str_c(&simple), words->items, words->count, x);
    for (int again = 0; again < 2; again++) {
        CHECK(gw_minhash_sign(m, g->fields[0], (int64_t)n, y) == whole);
        CHECK(!whole || memcmp(x, y, sizeof x) == 0);
    }
    gw_minhash_free(m);
    gw_str_release(&simple);
}

TEST(minhash_remembers_words_rightly) { CHECK(each("simplify", check_remembered) >= 25); }

TEST(minhash_signatures_are_datatroves) { CHECK(each("sign", check_sign) >= 100); }

/* The texts of the "fineweb" cases, signed and written as datatrove's first rank. */
static gw_sigfile *written;
static gw_minhash *signer;
static uint32_t next_document;

static void add_to_file(golden *g) {
    uint64_t signature[112];
    if (!gw_str_eq(g->fields[0], "fineweb")) return;
    size_t n = unhex(g->fields[1]);
    if (gw_minhash_sign(signer, g->fields[1], (int64_t)n, signature))
        gw_sigfile_add(written, next_document, signature);
    next_document++;
}

static void check_bucket(golden *g) {
    gw_str is = {0};
    size_t n = unhex(g->fields[1]);
    CHECK_OK(gw_file_read(test_tmp_path("bucket_000/00000.minhash.sig"), 0, &is, NULL), NULL);
    CHECK_EQ(is.len, n);
    CHECK(memcmp(is.data, g->fields[1], n) == 0);
    gw_str_release(&is);
}

TEST(minhash_files_are_datatroves) {
    gw_diags dg = {0};
    const gw_minhash_recipe *r = gw_minhash_recipe_find("fineweb");
    CHECK_OK(gw_minhash_open(r, &signer, &dg), &dg);
    CHECK_OK(gw_sigfile_new(test_tmpdir(), r, 0, &written, &dg), &dg);
    each("sign", add_to_file);
    CHECK_OK(gw_sigfile_close(written, &dg), &dg);
    CHECK_EQ(each("bucket", check_bucket), 1);

    /* And back: each row is a key of the band. */
    gw_sigfile_row *rows;
    int64_t count;
    const char *path = test_tmp_path("bucket_000/00000.minhash.sig");
    CHECK_OK(gw_sigfile_read(path, r, &rows, &count, &dg), &dg);
    CHECK(count > 10);
    gw_mem_free(rows);

    /* A file that was cut, and one that is out of order, are refused with the place. */
    gw_str bytes = {0};
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len - 3, &dg), &dg);
    CHECK_FAILS(gw_sigfile_read(path, r, &rows, &count, &dg), &dg, "ends within a row");
    char row[68];
    memcpy(row, bytes.data, 68);
    memmove(bytes.data, bytes.data + 68, 68);
    memcpy(bytes.data + 68, row, 68);
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len, &dg), &dg);
    CHECK_FAILS(gw_sigfile_read(path, r, &rows, &count, &dg), &dg, "not sorted at byte 68");
    gw_str_release(&bytes);
    gw_minhash_free(signer);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ the loops

/* As it is written, without any of the shortcuts. */
static uint64_t value_by_hand(uint64_t h, uint64_t a, uint64_t b, int bits) {
    uint64_t v = (h * a + b) % GW_MERSENNE;
    return bits == 32 ? v & UINT32_MAX : v;
}

/* Hashes that make x = h a + b land within 8 of multiples of 2^61, where the fast loops must
 * notice: h = (x - b) / a modulo 2^64 for an odd a. */
static uint64_t inverse(uint64_t a) {
    uint64_t x = a;
    for (int i = 0; i < 6; i++) x *= 2 - a * x;
    return x;
}

TEST(minhash_loops_agree_at_the_edges) {
    gw_rng_key key = gw_rng_key_named(1, "edges");
    for (int bits = 32; bits <= 64; bits += 32) {
        _Alignas(64) uint64_t a[32], high[32], b[32], b1[32];
        uint64_t h[64], least[32];
        gw_minhash_parameters(5, false, 32, a, b);
        for (int i = 0; i < 32; i++) {
            a[i] |= 1;
            high[i] = a[i] >> 32;
            b1[i] = b[i] + 1;
        }
        gw_permutations p = {.n = 32, .a = a, .a_high = high, .b = b, .b1 = b1, .bits = bits};
        for (int round = 0; round < 2000; round++) {
            int64_t n = 1 + (int64_t)(gw_rng_u64(key, (uint64_t)round) % 64);
            for (int64_t i = 0; i < n; i++) {
                uint64_t x = gw_rng_u64(key, 1000000 + (uint64_t)(round * 64 + i));
                uint64_t lane = x >> 8 & 31, near = (x >> 32 & 7) << 61;
                if ((x & 3) == 0) x = (near + (x >> 40 & 31) - 16 - b[lane]) * inverse(a[lane]);
                h[i] = x;
            }
            for (int k = 0; gw_fold_at(k); k++) {
                gw_fold_at(k)->run(&p, h, n, least);
                for (int j = 0; j < 32; j++) {
                    uint64_t want = UINT64_MAX;
                    for (int64_t i = 0; i < n; i++)
                        want = GW_MIN(want, value_by_hand(h[i], a[j], b[j], bits));
                    CHECK_MSG(least[j] == want, "%s, %d bits, round %d", gw_fold_at(k)->name, bits,
                              round);
                }
            }
        }
    }
}

/* FIPS 180-4 examples and one of two blocks: SHA-1 of "abc" is a9993e36 4706816a..., of the 56
 * letters 84983e44 1c3bd26e.... */
TEST(minhash_sha1_is_sha1) {
    const char *text = "abcabcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    uint32_t begin[3] = {0, 3, 0}, end[3] = {3, 59, 3};
    uint64_t out[3];
    gw_shingle_hashes(GW_SHINGLE_SHA1, 64, (const uint8_t *)text, begin, end, 3, out);
    CHECK(out[0] == 0x6a810647363e99a9u && out[2] == out[0]);
    CHECK(out[1] == 0x6ed23b1c443e9884u);
    gw_shingle_hashes(GW_SHINGLE_SHA1, 32, (const uint8_t *)text, begin, end, 1, out);
    CHECK(out[0] == 0x363e99a9u);
}

// ------------------------------------------------------------------ laws

/* P(match) = 1 - (1 - s^rows)^bands over pairs of sets with Jaccard similarity s exactly, within
 * four standard deviations of the binomial (1 in 16,000 a case by chance; the draws are fixed). */
TEST(minhash_matches_by_its_law) {
    static const struct {
        const char *recipe;
        int both, each; /* s = both / (both + 2 each) */
    } cases[] = {{"fineweb", 70, 15},    {"fineweb", 80, 10},
                 {"fineweb", 60, 20},    {"redpajama-v2", 80, 10},
                 {"nemo", 80, 10},       {"text-dedup", 70, 15},
                 {"refinedweb", 70, 15}, {"redpajama-v2-0.7", 60, 20}};
    gw_diags dg = {0};
    for (size_t c = 0; c < GW_COUNT(cases); c++) {
        gw_minhash_recipe r = *gw_minhash_recipe_find(cases[c].recipe);
        int both = cases[c].both, own = cases[c].each, n = both + own, hits = 0;
        int trials = r.bands * r.rows > 1000 ? 60 : 600;
        double s = both / (double)(both + 2 * own), p = gw_minhash_match(&r, s);
        gw_rng_key key = gw_rng_key_named(c, "pairs");
        gw_minhash *m;
        CHECK_OK(gw_minhash_open(&r, &m, &dg), &dg);
        uint64_t *set = malloc((size_t)n * 16), *x = malloc((size_t)gw_minhash_values(m) * 8);
        uint64_t *y = malloc((size_t)gw_minhash_values(m) * 8);
        gw_hash128 *kx = malloc((size_t)r.bands * sizeof *kx),
                   *ky = malloc((size_t)r.bands * sizeof *ky);
        CHECK(set && x && y && kx && ky);
        for (int t = 0; t < trials; t++) {
            for (int i = 0; i < n + own; i++) {
                uint64_t v = gw_rng_u64(key, (uint64_t)(t * 1000 + i));
                set[i] = r.bits == 32 ? v & UINT32_MAX : v;
            }
            gw_minhash_of_shingles(m, set, n, x);       /* own, both */
            gw_minhash_of_shingles(m, set + own, n, y); /* both, the other's own */
            gw_minhash_keys(m, x, kx);
            gw_minhash_keys(m, y, ky);
            bool hit = false;
            for (int b = 0; b < r.bands; b++)
                hit = hit || (kx[b].lo == ky[b].lo && kx[b].hi == ky[b].hi);
            hits += hit;
        }
        double sd = sqrt(trials * p * (1 - p));
        CHECK_MSG(fabs(hits - trials * p) <= 4 * sd + 1, "%s at %.2f: %d of %d, expected %.1f",
                  r.name, s, hits, trials, trials * p);
        free(set);
        free(x);
        free(y);
        free(kx);
        free(ky);
        gw_minhash_free(m);
    }
}

/* The chances that the recipes' authors give: FineWeb's report says 92 % at 0.8 and 56 % at 0.7. */
TEST(minhash_law_has_the_published_values) {
    CHECK_NEAR(gw_minhash_match(gw_minhash_recipe_find("fineweb"), 0.8), 0.92, 0.005);
    CHECK_NEAR(gw_minhash_match(gw_minhash_recipe_find("fineweb"), 0.7), 0.56, 0.01);
    CHECK_NEAR(gw_minhash_match(gw_minhash_recipe_find("refinedweb"), 0.8), 0.99, 0.01);
    CHECK_NEAR(gw_minhash_match(gw_minhash_recipe_find("nemo"), 0.8), 0.68, 0.01);
}

TEST(minhash_jaccard_by_hand) {
    uint64_t a[] = {5, 1, 2, 2, 3}, b[] = {3, 9, 2, 9};
    CHECK_NEAR(gw_jaccard(a, 5, b, 4), 2.0 / 5.0, 1e-15); /* {1,2,3,5} and {2,3,9} */
    CHECK_NEAR(gw_jaccard(a, 0, b, 0), 1, 0);
}

TEST(minhash_recipes_are_checked) {
    gw_diags dg = {0};
    gw_minhash *m;
    gw_minhash_recipe r = *gw_minhash_recipe_find("fineweb");
    for (int i = 0; gw_minhash_recipe_at(i); i++)
        CHECK_OK(gw_minhash_recipe_check(gw_minhash_recipe_at(i), &dg), &dg);
    r.bands = 0;
    CHECK_FAILS(gw_minhash_open(&r, &m, &dg), &dg, "at least 1");
    r = *gw_minhash_recipe_find("fineweb");
    r.bands = 70000;
    CHECK_FAILS(gw_minhash_open(&r, &m, &dg), &dg, "more than 65536");
    r.bands = 14;
    r.bits = 16;
    CHECK_FAILS(gw_minhash_open(&r, &m, &dg), &dg, "32 or 64");
    CHECK(gw_minhash_recipe_find("none") == NULL);
    gw_diags_release(&dg);
}

/* A word that a text's cutting does not leave one space apart is joined with one space all the
 * same: signing words equals signing the joined text. */
TEST(minhash_words_are_joined_by_one_space) {
    gw_diags dg = {0};
    gw_minhash_recipe r = *gw_minhash_recipe_find("fineweb");
    gw_minhash *m;
    uint64_t x[112], y[112];
    const char *text = "alpha  beta,gamma delta\nepsilon zeta";
    gw_word words[] = {{0, 5}, {7, 4}, {12, 5}, {18, 5}, {24, 7}, {32, 4}};
    CHECK_OK(gw_minhash_open(&r, &m, &dg), &dg);
    CHECK(gw_minhash_sign_words(m, text, words, 6, x));
    const char *joined = "alpha beta gamma delta epsilon zeta";
    CHECK(gw_minhash_sign(m, joined, (int64_t)strlen(joined), y));
    CHECK(memcmp(x, y, sizeof x) == 0);
    CHECK(!gw_minhash_sign_words(m, text, words, 4, x));
    gw_minhash_free(m);
}
