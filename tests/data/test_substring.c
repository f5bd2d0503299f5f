// SPDX-License-Identifier: Apache-2.0
// Repeated parts of texts: substrings against brute force, edges, spans, and the Bloom filter.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ckpt/disk.h"         /* disk_watch */
#include "base/arena.h"           /* gw_mem_free */
#include "base/io.h"              /* gw_file_read */
#include "base/rng.h"             /* gw_rng_u64 */
#include "data/dedup/bloom.h"     /* what is tested */
#include "data/dedup/spans.h"     /* what is tested */
#include "data/dedup/substring.h" /* what is tested */
#include "harness.h"

static uint64_t rnd(gw_rng_key k, int64_t i) { return gw_rng_u64(k, (uint64_t)i); }

// ------------------------------------------------------------------ against brute force

enum { DOCS = 30, MOST = 300 };

typedef struct corpus {
    char text[DOCS][MOST + 1];
    int64_t n[DOCS];
    uint8_t gone[DOCS][MOST];
} corpus;

/* Random texts over few letters, with pieces copied from one to another, and runs of one letter. */
static void make(corpus *c, uint64_t seed) {
    gw_rng_key k = gw_rng_key_named(seed, "texts");
    int64_t at = 0;
    for (int d = 0; d < DOCS; d++) {
        c->n[d] = (int64_t)(rnd(k, at++) % MOST);
        for (int64_t i = 0; i < c->n[d]; i++) c->text[d][i] = (char)('a' + rnd(k, at++) % 20);
        for (int copies = 0; copies < 3 && d > 0; copies++) {
            int from = (int)(rnd(k, at++) % (uint64_t)(d + 1));
            int64_t length = 5 + (int64_t)(rnd(k, at++) % 60);
            if (c->n[from] <= length || c->n[d] <= length) continue;
            int64_t source = (int64_t)(rnd(k, at++) % (uint64_t)(c->n[from] - length));
            int64_t target = (int64_t)(rnd(k, at++) % (uint64_t)(c->n[d] - length));
            memmove(c->text[d] + target, c->text[from] + source, (size_t)length);
        }
        if (d % 5 == 0 && c->n[d] > 100) memset(c->text[d] + 20, 'z', 60);
        c->text[d][c->n[d]] = 0;
    }
}

/* Marks what goes: every window of `length` that equals an earlier one (keep_first; where it
 * overlaps the first of its kind in the same document, only the rest), or any other one. */
static void brute(corpus *c, int length, bool keep_first) {
    memset(c->gone, 0, sizeof c->gone);
    for (int d = 0; d < DOCS; d++)
        for (int64_t i = 0; i + length <= c->n[d]; i++) {
            int first_doc = -1, others = 0;
            int64_t first = 0;
            for (int e = 0; e < DOCS; e++)
                for (int64_t j = 0; j + length <= c->n[e]; j++) {
                    if (memcmp(c->text[d] + i, c->text[e] + j, (size_t)length) != 0) continue;
                    if (first_doc < 0) {
                        first_doc = e;
                        first = j;
                    }
                    others += e != d || j != i;
                }
            if (!others) continue;
            int64_t begin = i;
            if (keep_first) {
                if (first_doc == d && first == i) continue;
                if (first_doc == d) begin = GW_MAX(begin, first + length);
            }
            for (int64_t x = begin; x < i + length; x++) c->gone[d][x] = 1;
        }
}

/* One part's two passes over all documents. */
static void look(corpus *c, const gw_substring_options *o, bool tokens) {
    gw_diags dg = {0};
    gw_substring *s;
    CHECK(!gw_substring_done(o));
    CHECK_OK(gw_substring_open(o, &s, &dg), &dg);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t d = 0; d < DOCS; d++) { /* a token is two bytes of a text then */
            uint32_t ids[MOST], starts[MOST + 1];
            gw_doc_id id = {d, 0};
            for (int64_t i = 0; i < c->n[d]; i++) {
                ids[i] = (uint32_t)c->text[d][i] + 100000;
                starts[i] = (uint32_t)i * 2;
            }
            starts[c->n[d]] = (uint32_t)c->n[d] * 2;
            CHECK_OK(tokens ? gw_substring_tokens(s, id, ids, starts, c->n[d], &dg)
                            : gw_substring_text(s, id, c->text[d], c->n[d], &dg),
                     &dg);
        }
        if (pass == 0) CHECK_OK(gw_substring_again(s, &dg), &dg);
    }
    CHECK_OK(gw_substring_finish(s, &dg), &dg);
    CHECK(gw_substring_done(o));
}

/* In `parts` processes, whatever their number. */
static void check_corpus(corpus *c, int length, bool keep_first, bool tokens, int parts) {
    gw_diags dg = {0};
    gw_substring_options o = {.dir = test_tmpdir(),
                              .length = length,
                              .keep_first = keep_first,
                              .memory_bytes = GW_DEDUP_MEMORY_MIN,
                              .units = DOCS,
                              .tag = 3 + tokens + 2 * (uint64_t)parts,
                              .parts = parts};
    for (; o.part < parts; o.part++) look(c, &o, tokens);
    CHECK_OK(gw_substring_join(&o, &dg), &dg);
    o.parts = 1;
    gw_dedup_result *r;
    CHECK_OK(gw_substring_result(&o, &r, &dg), &dg);
    for (uint32_t d = 0; d < DOCS; d++) {
        const gw_dedup_range *list;
        int64_t count, scale = tokens ? 2 : 1;
        static uint8_t is[MOST];
        memset(is, 0, sizeof is);
        CHECK_OK(gw_dedup_result_ranges(r, d, &list, &count, &dg), &dg);
        for (int64_t i = 0; i < count; i++)
            for (int64_t x = list[i].begin; x < list[i].end; x += scale) is[x / scale] = 1;
        for (int64_t x = 0; x < c->n[d]; x++)
            CHECK_MSG(is[x] == c->gone[d][x], "document %u at %lld of '%s'", d, (long long)x,
                      c->text[d]);
    }
    gw_dedup_result_free(r);
}

TEST(substring_finds_what_brute_force_finds) {
    static corpus c;
    for (uint64_t seed = 0; seed < 6; seed++) {
        int length = 8 + (int)seed * 5;
        bool keep = seed % 2 == 0;
        make(&c, seed);
        brute(&c, length, keep);
        check_corpus(&c, length, keep, false, 1);
        check_corpus(&c, length, keep, true, 1);
        check_corpus(&c, length, keep, seed % 2, 2 + (int)seed);
    }
}

TEST(substring_options_and_passes_are_checked) {
    gw_diags dg = {0};
    gw_substring *s;
    gw_substring_options o = {
        .dir = test_tmpdir(), .length = 4, .memory_bytes = GW_DEDUP_MEMORY_MIN, .units = 2};
    CHECK_FAILS(gw_substring_open(&o, &s, &dg), &dg, "8 to 1048576");
    o.length = 50;
    CHECK_OK(gw_substring_open(&o, &s, &dg), &dg);
    CHECK_OK(gw_substring_text(s, (gw_doc_id){0, 0}, "a text", 6, &dg), &dg);
    CHECK_FAILS(gw_substring_text(s, (gw_doc_id){2, 0}, "a text", 6, &dg), &dg, "unit 2");
    CHECK_OK(gw_substring_again(s, &dg), &dg);
    CHECK_OK(gw_substring_text(s, (gw_doc_id){0, 0}, "a tex", 5, &dg), &dg);
    CHECK_FAILS(gw_substring_finish(s, &dg), &dg, "did not see the documents");
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ edges

/* Ranges by bytes on text of three-byte characters: snapped inward to whole characters (the fault
 * of byte offsets used on characters destroys such texts). */
TEST(substring_snaps_to_characters) {
    const char *text = "日日日日日";
    gw_dedup_range r[] = {{0, 1, 14}, {0, 4, 5}, {0, 0, 15}, {0, 3, 6}};
    CHECK_EQ(gw_substring_snap(text, 15, true, r, 4), 3);
    CHECK(r[0].begin == 3 && r[0].end == 12);
    CHECK(r[1].begin == 0 && r[1].end == 15);
    CHECK(r[2].begin == 3 && r[2].end == 6);
}

TEST(substring_snaps_to_words) {
    const char *text = "some words, naïve ones; and ภาษาไทย here";
    int64_t n = (int64_t)strlen(text);
    gw_dedup_range r[] = {
        {0, 2, 8},   /* "me wor": no whole word, and the space between has to stay */
        {0, 4, 14},  /* " words, na": without its first space, which keeps two words apart */
        {0, 12, 17}, /* within "naive": vanishes */
        {0, 0, (uint32_t)n},
    };
    CHECK_EQ(gw_substring_snap(text, n, true, r, 4), 2);
    CHECK(r[0].begin == 5 && r[0].end == 12);
    CHECK(r[1].begin == 0 && r[1].end == n);
    gw_dedup_range thai[] = {{0, 32, 41}}; /* three characters of the Thai word stay a range */
    CHECK_EQ(gw_substring_snap(text, n, true, thai, 1), 1);
    CHECK(thai[0].begin == 32 && thai[0].end == 41);
}

// ------------------------------------------------------------------ spans

static int64_t cut(const gw_span_options *o, const char *text, gw_span *out) {
    int64_t count;
    gw_spans *s = gw_spans_new(o);
    const gw_span *is = gw_spans_cut(s, text, (int64_t)strlen(text), &count);
    for (int64_t i = 0; i < count && i < 16; i++) out[i] = is[i];
    gw_spans_free(s);
    return count;
}

static bool same_key(gw_span a, gw_span b) { return a.key.lo == b.key.lo && a.key.hi == b.key.hi; }

TEST(spans_of_lines) {
    gw_span s[16];
    gw_span_options o = gw_span_options_default(GW_SPAN_LINES);
    o.min_bytes = 3;
    CHECK_EQ(cut(&o, "one line\n\n---\nab\n  one line \nthe last", s), 3);
    CHECK(s[0].begin == 0 && s[0].end == 9 && s[1].begin == 17 && s[1].end == 29);
    CHECK(s[2].begin == 29 && s[2].end == 37);
    CHECK(same_key(s[0], s[1]) && !same_key(s[0], s[2]));
    CHECK_EQ(cut(&o, "", s), 0);
    o.normalise = true;
    CHECK_EQ(cut(&o, "One, LINE!\none line\n", s), 2);
    CHECK(same_key(s[0], s[1]));
}

TEST(spans_of_paragraphs) {
    gw_span s[16];
    gw_span_options o = gw_span_options_default(GW_SPAN_PARAGRAPHS);
    o.min_bytes = 1;
    CHECK_EQ(cut(&o, "a b\nc\n\n \nd e\n\na b\nc", s), 3);
    CHECK(s[0].begin == 0 && s[0].end == 9 && s[1].begin == 9 && s[1].end == 14);
    CHECK(s[2].begin == 14 && s[2].end == 19);
    CHECK(same_key(s[0], s[2]) && !same_key(s[0], s[1]));
}

TEST(spans_of_sentences) {
    gw_span s[16], t[16];
    gw_span_options o = gw_span_options_default(GW_SPAN_SENTENCES);
    const char *text = "This is one. Here is two! And is this three? Four ends it.";
    CHECK_EQ(cut(&o, text, s), 2);
    CHECK(s[0].begin == 0 && s[1].end == strlen(text) && s[1].begin < s[0].end);
    CHECK_EQ(cut(&o, "Before all that. Here is TWO! And is this, three? Four ends it.", t), 2);
    CHECK(same_key(s[1], t[1]) && !same_key(s[0], t[0]));
    CHECK_EQ(cut(&o, "Only one. And two.", s), 0);
}

// ------------------------------------------------------------------ the Bloom filter

/* No key is forgotten, and false alarms come at the stated rate within 20 % (5 standard deviations
 * of 200,000 trials at 1 % are 11 %). */
static gw_bloom *filter_of(uint64_t first, uint64_t n) {
    gw_bloom *b;
    CHECK_OK(gw_bloom_new(1000, 0.001, 0, &b, NULL), NULL);
    for (uint64_t i = first; i < first + n; i++) gw_bloom_add(b, gw_hash128_of(&i, 8));
    return b;
}

/* Which of two filters stands at `path`, with what its keys are of: 0 or 1; -1: none. */
static int which(const char *path, gw_bloom *const f[2], const char *const whats[2]) {
    gw_diags dg;
    gw_bloom *b = NULL;
    int found = -1;
    if (!gw_path_exists(path)) return -1;
    gw_diags_init(&dg);
    for (int i = 0; i < 2; i++) {
        if (gw_bloom_load(path, 0, whats[i], &b, &dg) != GW_OK) continue;
        if (gw_bloom_count(b) == gw_bloom_count(f[i])) found = i;
        gw_bloom_free(b);
    }
    CHECK_MSG(found >= 0, "%s", gw_diags_first_error(&dg));
    gw_diags_release(&dg);
    return found;
}

/* One filter replaces another, the process killed before or after each call that changes the disk:
 * the old one is there or the new one, and each is refused for the keys of the other. What goes on
 * afterwards ends as if nothing had been. */
TEST(bloom_replaced_is_the_old_or_the_new_one) {
    static const char *const whats[2] = {"lines of old", "documents"};
    gw_bloom *f[2] = {filter_of(0, 300), filter_of(5000, 700)}, *loaded[2];
    const char *root = test_tmp_path("disk");
    char path[600];
    snprintf(path, sizeof path, "%s/f.bloom", root);
    CHECK_OK(gw_dir_make(root, NULL), NULL);
    for (int i = 0; i < 2; i++) { /* counts as a reader estimates them */
        CHECK_OK(gw_bloom_save(f[i], path, whats[i], NULL), NULL);
        CHECK_OK(gw_bloom_load(path, 0, whats[i], &loaded[i], NULL), NULL);
    }
    disk_watch(root, -1, false);
    CHECK_OK(gw_bloom_save(f[1], path, whats[1], NULL), NULL);
    int64_t calls = disk_unwatch();
    CHECK(calls > 5);
    int seen[2] = {0};
    for (int64_t k = 0; k < 2 * calls; k++) {
        CHECK_OK(gw_bloom_save(f[0], path, whats[0], NULL), NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            disk_watch(root, k / 2, k & 1);
            (void)!gw_bloom_save(f[1], path, whats[1], NULL);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        int is = which(path, loaded, whats);
        CHECK_MSG(is >= 0, "call %lld", (long long)k);
        seen[is]++;
        CHECK(gw_bloom_load(path, 0, whats[!is], &(gw_bloom *){0}, NULL) == GW_ERR_CONFIG);
        CHECK_OK(gw_bloom_save(f[1], path, whats[1], NULL), NULL);
        CHECK(which(path, loaded, whats) == 1);
    }
    CHECK(seen[0] > 0 && seen[1] > 0);
    gw_str beside = {0}; /* at rest: two lines */
    snprintf(path, sizeof path, "%s/f.bloom.xxh128", root);
    CHECK_OK(gw_file_read(path, 0, &beside, NULL), NULL);
    CHECK_EQ(beside.len, 33 + strlen(whats[1]) + 1);
    gw_str_release(&beside);
    for (int i = 0; i < 2; i++) {
        gw_bloom_free(f[i]);
        gw_bloom_free(loaded[i]);
    }
}

TEST(bloom_keeps_its_rate) {
    gw_diags dg = {0};
    gw_bloom *b, *c;
    enum { N = 100000, TRIALS = 200000 };
    CHECK_OK(gw_bloom_new(N, 0.01, 0, &b, &dg), &dg);
    CHECK_EQ(gw_bloom_hashes(b), 7); /* ceil(9.585 ln 2) */
    CHECK_NEAR((double)gw_bloom_bits(b) / N, 9.585, 0.01);
    for (uint64_t i = 0; i < N; i++) gw_bloom_add(b, gw_hash128_of(&i, 8));
    for (uint64_t i = 0; i < N; i++) {
        CHECK(gw_bloom_has(b, gw_hash128_of(&i, 8)));
        if (i % 100 == 0) CHECK(gw_bloom_add(b, gw_hash128_of(&i, 8)));
    }
    int64_t alarms = 0;
    for (uint64_t i = N; i < N + TRIALS; i++) alarms += gw_bloom_has(b, gw_hash128_of(&i, 8));
    CHECK_NEAR(gw_bloom_rate(b, N), 0.01, 0.0005);
    CHECK_NEAR((double)alarms / TRIALS, gw_bloom_rate(b, N), 0.002);

    const char *path = test_tmp_path("seen.bloom");
    CHECK_OK(gw_bloom_save(b, path, "lines", &dg), &dg);
    CHECK_OK(gw_bloom_load(path, 0, "lines", &c, &dg), &dg);
    CHECK_EQ(gw_bloom_bits(c), gw_bloom_bits(b));
    for (uint64_t i = 0; i < N + 1000; i++)
        CHECK(gw_bloom_has(b, gw_hash128_of(&i, 8)) == gw_bloom_has(c, gw_hash128_of(&i, 8)));
    CHECK_NEAR((double)gw_bloom_count(c), N, N / 100);
    gw_bloom_free(c);
    CHECK_FAILS(gw_bloom_load(path, 0, "documents", &c, &dg), &dg, "has seen lines");
    CHECK_FAILS(gw_bloom_load(path, 1000, NULL, &c, &dg), &dg, "1000 fit");

    gw_str bytes = {0};
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    uint32_t magic;
    memcpy(&magic, bytes.data, 4);
    CHECK_EQ(magic, 0x81f0f117u);
    bytes.data[bytes.len / 2] ^= 1;
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len, &dg), &dg);
    CHECK_FAILS(gw_bloom_load(path, 0, NULL, &c, &dg), &dg, "its hash");
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len - 1, &dg), &dg);
    CHECK_FAILS(gw_bloom_load(path, 0, NULL, &c, &dg), &dg, "its length");
    gw_str_release(&bytes);
    gw_bloom_free(b);
    CHECK_FAILS(gw_bloom_new(0, 0.01, 0, &b, &dg), &dg, "Bloom filter");
    gw_diags_release(&dg);
}
