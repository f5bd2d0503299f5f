// SPDX-License-Identifier: Apache-2.0
// Every kind of dedup of a pipeline file: what is planted goes, and nothing else; what an earlier
// build has seen goes too; the report counts it, as JSON and as a page.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"            /* gw_file_read, gw_path_exists */
#include "data/build/build.h"   /* gw_data_build */
#include "data/dedup/minhash.h" /* gw_minhash */
#include "data/dedup/sigfile.h" /* gw_sigfile_read */
#include "file/json.h"          /* gw_json_read_file */
#include "file/megatron_idx.h"  /* gw_midx_open */
#include "harness.h"

// ------------------------------------------------------------------ texts and builds

/* `n` words of which no text of another seed has the same five in a row; word k of it is `but`
 * where k is a multiple of `every`. */
static void add_words(gw_str *out, unsigned seed, int n, int every, const char *but) {
    unsigned x = seed * 2654435761u + 12345u;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        gw_str_add(out, i ? " " : "");
        if (every && i % every == 0)
            gw_str_printf(out, "%s%d", but, i);
        else
            gw_str_printf(out, "w%c%c%u", 'a' + (int)(x >> 20) % 26, 'a' + (int)(x >> 26) % 26,
                          x >> 12 & 255u);
    }
}

static void add_line(gw_str *out, const char *text) {
    json_t *o = json_pack("{s:s}", "text", text);
    char *line = json_dumps(o, JSON_COMPACT);
    gw_str_printf(out, "%s\n", line);
    free(line);
    json_decref(o);
}

static void add_doc(gw_str *out, unsigned seed, int n, int every, const char *but) {
    gw_str doc = {0};
    add_words(&doc, seed, n, every, but);
    add_line(out, gw_str_c(&doc));
    gw_str_release(&doc);
}

static const char *file_of(const char *name, gw_str *s) {
    static char path[8][600];
    static int at;
    char *p = path[at++ % 8];
    FILE *f = fopen(test_tmp_path(name), "wb");
    CHECK(f);
    CHECK_EQ(fwrite(gw_str_c(s), 1, s->len, f), s->len);
    CHECK_EQ(fclose(f), 0);
    snprintf(p, 600, "%s", test_tmp_path(name));
    gw_str_release(s);
    return p;
}

static gw_status try_build(const char *inputs, const char *out, const char *more, json_t **report,
                           gw_diags *dg) {
    gw_pipeline p;
    gw_build_options o = {.workers = 1};
    gw_str text = {0};
    *report = NULL;
    gw_str_printf(&text,
                  "input: {paths: [%s], unit_bytes: 1}\noutput: {dir: '%s', format: megatron}\n"
                  "tokenizer: {path: bytes}\n%s",
                  inputs, test_tmp_path(out), more);
    gw_status st = gw_pipeline_parse(&p, "p.yaml", gw_str_c(&text), (int64_t)text.len, NULL, 0, dg);
    if (st == GW_OK) st = gw_data_build(&p, &o, report, dg);
    gw_pipeline_release(&p);
    gw_str_release(&text);
    return st;
}

static json_t *build(const char *inputs, const char *out, const char *more) {
    gw_diags dg;
    json_t *report;
    gw_diags_init(&dg);
    CHECK_OK(try_build(inputs, out, more, &report, &dg), &dg);
    gw_diags_release(&dg);
    return report;
}

static int64_t at(const json_t *report, const char *path) {
    char key[64];
    const json_t *j = report;
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)strtoul(key, NULL, 10))
                             : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return json_integer_value(j);
}

/* The texts of a build, each followed by '|'. */
static const char *texts(const char *out, gw_str *text) {
    gw_diags dg;
    char prefix[600];
    gw_midx *m;
    static uint32_t ids[1 << 16];
    gw_diags_init(&dg);
    gw_str_clear(text);
    snprintf(prefix, sizeof prefix, "%s/megatron/tokens-00000", test_tmp_path(out));
    CHECK_OK(gw_midx_open(prefix, &m, &dg), &dg);
    for (int64_t d = 0; d < gw_midx_ndocs(m); d++) {
        int64_t n = gw_midx_seq_tokens(m, d);
        CHECK(n <= (int64_t)GW_COUNT(ids));
        CHECK_OK(gw_midx_read(m, d, 0, n, ids, &dg), &dg);
        for (int64_t i = 0; i + 1 < n; i++) gw_str_add_char(text, (char)ids[i]);
        gw_str_add_char(text, '|');
    }
    gw_midx_free(m);
    gw_diags_release(&dg);
    return gw_str_c(text);
}

// ------------------------------------------------------------------ true similarities

/* Twenty documents and one variant of each, with every 30th of 300 words another: 50 of some 296
 * shingles are others, a similarity of 246 / 346 = 0.71. Above it nothing goes; far below it what
 * goes is what goes unchecked. */
TEST(build_checks_true_similarities) {
    gw_str a = {0};
    for (unsigned d = 0; d < 20; d++) {
        add_doc(&a, d, 300, 0, "");
        add_doc(&a, d, 300, 30, "other");
    }
    const char *in = file_of("a.jsonl", &a);
    json_t *free_of = build(in, "r0", "dedup: {exact: false}\n");
    json_t *low = build(in, "r1", "dedup: {exact: false, jaccard: 0.4}\n");
    json_t *high = build(in, "r2", "dedup: {exact: false, jaccard: 0.9}\n");
    int64_t n = at(free_of, "dedup.removed");
    CHECK_MSG(n >= 4 && n <= 18, "%lld of 20 share a band", (long long)n); /* 0.6 of them */
    CHECK_EQ(at(low, "dedup.removed"), n);
    CHECK_EQ(at(high, "dedup.removed"), 0);
    json_decref(free_of);
    json_decref(low);
    json_decref(high);
}

// ------------------------------------------------------------------ an index

static const char *const INDEX = "dedup: {index: '%s/index'%s}\n";

static json_t *against(const char *in, const char *out, const char *index, const char *more) {
    char text[1300];
    snprintf(text, sizeof text, INDEX, index, more);
    return build(in, out, text);
}

/* What build A has seen goes from build B, and what B has seen with it from build C. */
TEST(build_removes_what_an_index_holds) {
    gw_str a = {0}, b = {0}, c = {0}, got = {0}, want = {0};
    for (unsigned d = 0; d < 6; d++) add_doc(&a, d, 200, 0, "");
    add_doc(&b, 3, 200, 0, "");     /* equal to one of A */
    add_doc(&b, 4, 200, 190, "or"); /* nearly equal to one of A: two words */
    add_doc(&b, 7, 200, 0, "");
    add_doc(&b, 8, 200, 0, "");
    add_doc(&b, 8, 200, 0, ""); /* twice in B */
    add_doc(&c, 7, 200, 0, ""); /* of B */
    add_doc(&c, 5, 200, 0, ""); /* of A */
    add_doc(&c, 9, 200, 0, "");
    add_words(&want, 9, 200, 0, "");
    gw_str_add_char(&want, '|');
    const char *fa = file_of("a.jsonl", &a), *fb = file_of("b.jsonl", &b);
    const char *fc = file_of("c.jsonl", &c);
    char text[900], root[300];
    snprintf(root, sizeof root, "%s", test_tmpdir());
    snprintf(text, sizeof text, "dedup: {index_out: '%s/index'}\n", root);
    json_decref(build(fa, "A", text));
    json_t *r = against(fb, "B", root, "");
    CHECK_EQ(at(r, "dedup.index"), 2);
    CHECK_EQ(at(r, "dedup.exact"), 1);
    CHECK_EQ(at(r, "dedup.removed"), 3);
    json_decref(r);
    r = against(fb, "Bonly", root, ", index_only: true");
    CHECK_EQ(at(r, "dedup.removed"), 2);
    json_decref(r);
    snprintf(text, sizeof text, ", index_out: '%s/both'", root);
    json_decref(against(fb, "Bout", root, text));
    snprintf(text, sizeof text, "dedup: {index: '%s/both'}\n", root);
    r = build(fc, "C", text);
    CHECK_EQ(at(r, "dedup.index"), 2);
    CHECK_STR(texts("C", &got), gw_str_c(&want));
    json_decref(r);
    gw_str_release(&got);
    gw_str_release(&want);
}

/* An index of another recipe, of another kind, or none, is refused where it is named. */
TEST(build_refuses_an_index_that_is_not_its_own) {
    gw_str a = {0};
    gw_diags dg;
    json_t *r;
    char text[900], root[500];
    gw_diags_init(&dg);
    for (unsigned d = 0; d < 3; d++) add_doc(&a, d, 100, 0, "");
    const char *in = file_of("a.jsonl", &a);
    snprintf(root, sizeof root, "%s", test_tmpdir());
    snprintf(text, sizeof text, "dedup: {index_out: '%s/index'}\n", root);
    json_decref(build(in, "A", text));
    static const char *const others[][2] = {{", near: nemo", "made in another way"},
                                            {", exact: false", "made in another way"},
                                            {", spans: lines", "no keys of that kind"}};
    for (size_t i = 0; i < GW_COUNT(others); i++) {
        snprintf(text, sizeof text, INDEX, root, others[i][0]);
        CHECK_FAILS(try_build(in, "B", text, &r, &dg), &dg, others[i][1]);
        CHECK_STR(dg.first->id, "dedup-index");
        CHECK_EQ(dg.first->where.line, 4);
        gw_diags_clear(&dg);
    }
    snprintf(text, sizeof text, "dedup: {index: '%s/nothing'}\n", root);
    CHECK_FAILS(try_build(in, "B", text, &r, &dg), &dg, "no keys of that kind");
    gw_diags_release(&dg);
}

static void flip(const char *path, int64_t at) {
    gw_str s = {0};
    CHECK_OK(gw_file_read(path, 0, &s, NULL), NULL);
    CHECK((int64_t)s.len > at);
    s.data[at] ^= 1;
    CHECK_OK(gw_file_write_atomic(path, s.data, (int64_t)s.len, NULL), NULL);
    gw_str_release(&s);
}

/* A damaged file of another build's index, or one that is missing, is named, and what is advised
 * mends it: it is the other build that has to run again, not this one. */
TEST(build_names_what_is_damaged_of_an_index) {
    gw_str a = {0}, b = {0};
    gw_diags dg;
    json_t *r;
    char wrote[900], reads[900], path[700], out[20]; /* a new folder: what is done stays */
    char root[500];
    snprintf(root, sizeof root, "%s", test_tmp_path("first"));
    gw_diags_init(&dg);
    for (unsigned d = 0; d < 12; d++) add_doc(&a, d, 60, 0, "");
    for (unsigned d = 10; d < 14; d++) add_doc(&b, d, 60, 0, "");
    const char *fa = file_of("a.jsonl", &a), *fb = file_of("b.jsonl", &b);
    snprintf(wrote, sizeof wrote, "dedup: {index_out: '%s-index'}\n", root);
    snprintf(reads, sizeof reads, "dedup: {index: '%s-index'}\n", root);
    json_decref(build(fa, "A", wrote));
    /* a band's header, its table, its keys */
    static const int64_t places[] = {40, 130, 170};
    for (size_t i = 0; i < GW_COUNT(places); i++) {
        snprintf(path, sizeof path, "%s-index/documents/band-003-00.index", root);
        snprintf(out, sizeof out, "B%zu", i);
        flip(path, places[i]);
        CHECK_FAILS(try_build(fb, out, reads, &r, &dg), &dg, "band-003-00.index");
        CHECK_STR(dg.first->id, "dedup-file");
        CHECK(strstr(dg.first->message, "is not as it was written"));
        CHECK(dg.first->hint && strstr(dg.first->hint, "the build that wrote it again"));
        gw_diags_clear(&dg);
        CHECK(remove(path) == 0);
        json_decref(build(fa, "A", wrote));
        r = build(fb, out, reads);
        CHECK_EQ(at(r, "dedup.index"), 2);
        json_decref(r);
    }
    int bands = 0;
    do snprintf(path, sizeof path, "%s-index/documents/band-%03d-00.index", root, bands++);
    while (gw_path_exists(path));
    bands--;
    const int gone[] = {0, 5, bands - 1};
    for (size_t i = 0; i < GW_COUNT(gone); i++) {
        snprintf(path, sizeof path, "%s-index/documents/band-%03d-00.index", root, gone[i]);
        snprintf(out, sizeof out, "C%zu", i);
        CHECK(remove(path) == 0);
        CHECK_FAILS(try_build(fb, out, reads, &r, &dg), &dg, "lacks its file");
        CHECK(strstr(dg.first->message, strrchr(path, '/') + 1));
        gw_diags_clear(&dg);
        json_decref(build(fa, "A", wrote));
        json_decref(build(fb, out, reads));
    }
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ parts of texts

/* Lines and paragraphs in one build: each kind is cut once, its first place stays. */
TEST(build_cuts_lines_and_paragraphs) {
    gw_str a = {0}, one = {0}, two = {0}, doc = {0}, got = {0}, want = {0};
    const char *line = "This line of the site is the same on all of its pages, and long enough.\n";
    const char *para =
        "A paragraph of two lines stands here,\nand it stands in another text too.\n\n";
    add_words(&one, 1, 40, 0, "");
    add_words(&two, 2, 40, 0, "");
    gw_str_printf(&doc, "%s\n\n%s%s", gw_str_c(&one), para, line);
    add_line(&a, gw_str_c(&doc));
    gw_str_printf(&want, "%s|", gw_str_c(&doc));
    gw_str_clear(&doc);
    gw_str_printf(&doc, "%s%s\n\n%s", line, gw_str_c(&two), para);
    add_line(&a, gw_str_c(&doc));
    gw_str_printf(&want, "%s\n\n|", gw_str_c(&two));
    json_t *r = build(file_of("a.jsonl", &a), "out",
                      "dedup: {near: none, spans: [lines, paragraphs], span_bytes: 60}\n");
    CHECK_STR(texts("out", &got), gw_str_c(&want));
    CHECK_EQ(at(r, "dedup.cut.lines.ranges"), 1);
    CHECK_EQ(at(r, "dedup.cut.lines.bytes"), (int64_t)strlen(line));
    CHECK_EQ(at(r, "dedup.cut.paragraphs.ranges"), 1);
    CHECK_EQ(at(r, "dedup.cut.paragraphs.bytes"), (int64_t)strlen(para));
    CHECK_EQ(at(r, "dedup.cut_bytes"), (int64_t)(strlen(line) + strlen(para)));
    json_decref(r);
    gw_str_release(&one);
    gw_str_release(&two);
    gw_str_release(&doc);
    gw_str_release(&got);
    gw_str_release(&want);
}

/* A run of 25 words in the middle of two texts: one place of it goes, to whole words, and the words
 * around it stay two. Of Lee et al. both places go. With too long a length nothing does. */
static void check_run(const char *options, bool first, bool second) {
    gw_str a = {0}, run = {0}, got = {0}, want = {0}, head = {0}, doc = {0};
    add_words(&run, 99, 25, 0, "");
    for (int d = 0; d < 2; d++) {
        bool goes = d == 0 ? first : second;
        gw_str_clear(&head);
        gw_str_clear(&doc);
        add_words(&head, 10 + (unsigned)d, 30, 0, "");
        gw_str_printf(&doc, "%s %cx%s%cy %s", gw_str_c(&head), 'p' + d, " ", 'r' + d, "");
        gw_str_clear(&doc);
        gw_str_printf(&doc, "%s left%d %s right%d end", gw_str_c(&head), d, gw_str_c(&run), d);
        add_line(&a, gw_str_c(&doc));
        gw_str_printf(&want, "%s left%d %s%sright%d end|", gw_str_c(&head), d,
                      goes ? "" : gw_str_c(&run), goes ? "" : " ", d);
    }
    json_t *r = build(file_of("a.jsonl", &a), "out", options);
    CHECK_STR(texts("out", &got), gw_str_c(&want));
    CHECK_EQ(at(r, "dedup.cut.substrings.ranges"), first + second);
    json_decref(r);
    gw_str_release(&run);
    gw_str_release(&got);
    gw_str_release(&want);
    gw_str_release(&head);
    gw_str_release(&doc);
}

TEST(build_cuts_repeated_substrings) {
    check_run("dedup: {near: none, substring: 50}\n", false, true);
    check_run("dedup: {near: none, substring: 50, substring_of: bytes}\n", false, true);
    check_run("dedup: {near: none, substring: 50, substring_keep: none}\n", true, true);
    check_run("dedup: {near: none, substring: 400}\n", false, false);
}

// ------------------------------------------------------------------ a Bloom filter

/* Equal documents go as they do by sorting, and what an earlier build's filter has seen goes too.
 */
TEST(build_asks_a_bloom_filter_about_documents) {
    gw_str a = {0}, b = {0}, sorted = {0}, asked = {0};
    char text[700], root[500];
    snprintf(root, sizeof root, "%s", test_tmpdir());
    for (unsigned d = 0; d < 30; d++) add_doc(&a, d % 20, 60, 0, "");
    for (unsigned d = 15; d < 25; d++) add_doc(&b, d, 60, 0, "");
    const char *fa = file_of("a.jsonl", &a), *fb = file_of("b.jsonl", &b);
    json_decref(build(fa, "sorted", "dedup: {near: none}\n"));
    snprintf(text, sizeof text,
             "dedup: {near: none, exact: false, bloom: documents, bloom_keys: 1000, "
             "bloom_out: '%s/a.bloom'}\n",
             root);
    json_t *r = build(fa, "asked", text);
    CHECK_EQ(at(r, "dedup.seen"), 10);
    CHECK_EQ(at(r, "dedup.bloom.asked"), 30);
    CHECK_EQ(at(r, "dedup.bloom.new"), 20);
    CHECK_STR(texts("asked", &asked), texts("sorted", &sorted));
    json_decref(r);
    snprintf(text, sizeof text,
             "dedup: {near: none, exact: false, bloom: documents, bloom_in: '%s/a.bloom'}\n", root);
    r = build(fb, "b", text);
    CHECK_EQ(at(r, "dedup.seen"), 5); /* 15 to 19 */
    json_decref(r);
    gw_str_release(&sorted);
    gw_str_release(&asked);
}

/* Twice as many keys as it was made for: (1 - e^(-2 k n / m))^k of what is new are false alarms,
 * which the log says once and the report has. */
TEST(build_says_that_a_bloom_filter_is_too_full) {
    gw_str a = {0};
    char text[700], err[400] = "";
    for (unsigned d = 0; d < 40; d++) add_doc(&a, d, 20, 0, "");
    const char *fa = file_of("a.jsonl", &a);
    const char *const step =
        "dedup: {near: none, exact: false, bloom: documents, %s, bloom_out: '%s.bloom'}\n";
    for (int full = 0; full < 2; full++) {
        snprintf(text, sizeof text, step, full ? "bloom_keys: 20" : "bloom_keys: 40",
                 test_tmp_path(full ? "full" : "fits"));
        FILE *f = tmpfile();
        int saved = dup(2);
        CHECK(f && saved >= 0 && dup2(fileno(f), 2) == 2);
        json_t *r = build(fa, full ? "full" : "fits", text);
        CHECK(dup2(saved, 2) == 2 && close(saved) == 0);
        rewind(f);
        size_t n = fread(err, 1, sizeof err - 1, f);
        err[n] = 0;
        fclose(f);
        const char *warning = strstr(err, "the Bloom filter is for 20 keys and holds ");
        CHECK_MSG(full == (warning != NULL), "%s", err);
        CHECK(!full || !strstr(warning + 1, "the Bloom filter is for"));
        json_t *bloom = json_object_get(json_object_get(r, "dedup"), "bloom");
        CHECK_EQ(json_is_true(json_object_get(bloom, "overfull")), full);
        CHECK_EQ(at(r, "dedup.bloom.expected"), full ? 20 : 40);
        double k = (double)at(r, "dedup.bloom.hashes"), m = (double)at(r, "dedup.bloom.bits"),
               held = (double)at(r, "dedup.bloom.held");
        CHECK_NEAR(json_real_value(json_object_get(bloom, "false_alarms")),
                   pow(1 - exp(-k * held / m), k), 1e-12);
        json_decref(r);
    }
}

TEST(build_asks_a_bloom_filter_about_parts) {
    gw_str a = {0}, got = {0}, one = {0}, two = {0}, want = {0}, doc = {0};
    const char *line = "A line that all pages of one site have, longer than its shortest part.\n";
    add_words(&one, 1, 40, 0, "");
    add_words(&two, 2, 40, 0, "");
    gw_str_printf(&doc, "%s\n%s", gw_str_c(&one), line);
    add_line(&a, gw_str_c(&doc));
    gw_str_printf(&want, "%s|%s\n|", gw_str_c(&doc), gw_str_c(&two));
    gw_str_clear(&doc);
    gw_str_printf(&doc, "%s%s\n", line, gw_str_c(&two));
    add_line(&a, gw_str_c(&doc));
    const char *in = file_of("a.jsonl", &a);
    json_t *r = build(in, "out", "dedup: {near: none, bloom: lines, span_bytes: 20}\n");
    CHECK_STR(texts("out", &got), gw_str_c(&want));
    CHECK_EQ(at(r, "dedup.cut.seen.bytes"), (int64_t)strlen(line));
    CHECK_EQ(at(r, "dedup.bloom.asked"), 4);
    json_decref(r);
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_FAILS(try_build(in, "no", "dedup: {bloom: lines, bloom_keys: 10000000000000}\n", &r, &dg),
                &dg, "takes");
    CHECK_STR(dg.first->id, "dedup-bloom");
    gw_diags_release(&dg);
    gw_str_release(&got);
    gw_str_release(&one);
    gw_str_release(&two);
    gw_str_release(&want);
    gw_str_release(&doc);
}

// ------------------------------------------------------------------ datatrove's files

/* Rows of a bucket are the signatures of its unit's documents, and the list names what went. */
TEST(build_writes_signature_files) {
    gw_str a = {0}, b = {0}, doc = {0}, list = {0};
    gw_diags dg;
    char inputs[1400], text[700], path[700], root[500];
    gw_diags_init(&dg);
    snprintf(root, sizeof root, "%s", test_tmpdir());
    for (unsigned d = 0; d < 4; d++) add_doc(&a, d, 100, 0, "");
    for (unsigned d = 3; d < 6; d++) add_doc(&b, d, 100, 0, "");
    snprintf(inputs, sizeof inputs, "%s, %s", file_of("a.jsonl", &a), file_of("b.jsonl", &b));
    snprintf(text, sizeof text, "dedup: {signatures: '%s/sig'}\n", root);
    json_decref(build(inputs, "out", text));
    gw_minhash *m;
    const gw_minhash_recipe *recipe = gw_minhash_recipe_find("fineweb");
    CHECK_OK(gw_minhash_open(recipe, &m, &dg), &dg);
    static uint64_t signature[GW_MINHASH_MAX];
    static gw_hash128 keys[64];
    for (int unit = 0; unit < 2; unit++)
        for (int band = 0; band < recipe->bands; band++) {
            gw_sigfile_row *rows;
            int64_t n;
            snprintf(path, sizeof path, "%s/sig/bucket_%03d/%05d.minhash.sig", root, band, unit);
            CHECK_OK(gw_sigfile_read(path, recipe, &rows, &n, &dg), &dg);
            CHECK_EQ(n, unit ? 3 : 4);
            for (int64_t i = 0; i < n; i++) {
                gw_str_clear(&doc);
                add_words(&doc, (unsigned)(3 * unit) + rows[i].document, 100, 0, "");
                CHECK(gw_minhash_sign(m, gw_str_c(&doc), (int64_t)doc.len, signature));
                gw_minhash_keys(m, signature, keys);
                CHECK(keys[band].lo == rows[i].key.lo && keys[band].hi == rows[i].key.hi);
            }
            gw_mem_free(rows);
        }
    gw_minhash_free(m);
    snprintf(path, sizeof path, "%s/sig/removed/000001.remove", root);
    CHECK_OK(gw_file_read(path, 0, &list, &dg), &dg);
    CHECK_EQ(list.len, 4);
    CHECK(memcmp(gw_str_c(&list), "\0\0\0\0", 4) == 0); /* its first row stands in the other file */
    gw_str_release(&doc);
    gw_str_release(&list);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ the page

static const json_t *walk(const json_t *j, const char *path, size_t n) {
    char key[160];
    for (const char *end = path + n; j && path < end;) {
        size_t k = 0;
        while (path + k < end && path[k] != '.') k++;
        snprintf(key, sizeof key, "%.*s", (int)k, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)strtoul(key, NULL, 10))
                             : json_object_get(j, key);
        path += k + 1;
    }
    return j;
}

/* Every figure of report.html is the one of report.json that it names; texts of documents are
 * escaped, and the page fetches nothing. */
TEST(report_page_says_what_the_report_says) {
    gw_str a = {0}, page = {0}, doc = {0};
    gw_diags dg;
    json_t *r = NULL;
    char path[700];
    gw_diags_init(&dg);
    for (unsigned d = 0; d < 6; d++) add_doc(&a, d % 4, 120, 0, "");
    add_line(&a, "<script>alert(1)</script> & short");
    json_decref(
        build(file_of("a.jsonl", &a), "out",
              "filters: [gopher_quality/datatrove: {min_avg_word_length: 1, "
              "min_stop_words: 0, max_non_alpha_words_ratio: 0}]\ndedup: {spans: lines}\n"));
    snprintf(path, sizeof path, "%s/report.json", test_tmp_path("out"));
    CHECK_OK(gw_json_read_file(path, 0, &r, &dg), &dg);
    snprintf(path, sizeof path, "%s/report.html", test_tmp_path("out"));
    CHECK_OK(gw_file_read(path, 0, &page, &dg), &dg);
    int figures = 0;
    for (const char *p = gw_str_c(&page); (p = strstr(p, "<data value=\"")) != NULL; p++) {
        double value = strtod(p + 13, NULL);
        const char *key = strstr(p, "data-key=\"") + 10;
        const json_t *is = walk(r, key, strcspn(key, "\""));
        CHECK_MSG(json_is_number(is), "no figure '%.60s'", key);
        CHECK_MSG(memcmp(&(double){json_number_value(is)}, &value, 8) == 0, "'%.60s' is %.17g", key,
                  value);
        figures++;
    }
    CHECK_MSG(figures > 40, "%d figures", figures);
    CHECK_EQ(at(r, "dedup.exact"), 2);
    CHECK_EQ(at(r, "clusters.sizes.0.clusters"), 2);
    CHECK_EQ(at(r, "filters.0.removed"), 1);
    CHECK(strstr(gw_str_c(&page), "&lt;script&gt;alert(1)"));
    CHECK(!strstr(gw_str_c(&page), "<script>alert"));
    CHECK(!strstr(gw_str_c(&page), "http://") && !strstr(gw_str_c(&page), "src="));
    json_decref(r);
    gw_str_release(&page);
    gw_str_release(&doc);
    gw_diags_release(&dg);
}

/* The address and the text that the report shows of a row are that row's, wherever it lies: here in
 * two units of two blocks (of 65,536 rows at most). */
TEST(report_shows_the_rows_that_it_names) {
    enum { ROWS = 100000 };
    char inputs[1300] = "";
    for (int u = 0; u < 2; u++) {
        gw_str s = {0};
        for (int i = 0; i < ROWS; i++) gw_str_printf(&s, "{\"text\": \"unit %d row %d\"}\n", u, i);
        const char *path = file_of(u ? "b.jsonl" : "a.jsonl", &s);
        snprintf(inputs + strlen(inputs), 640, "%s%s", u ? ", " : "", path);
    }
    json_t *r = build(inputs, "out", "filters: [gopher_quality/datatrove]\nsamples: 40\nseed: 3\n");
    const json_t *list =
        json_object_get(json_array_get(json_object_get(r, "filters"), 0), "samples");
    int seen[2][2] = {{0, 0}, {0, 0}};
    CHECK_EQ(json_array_size(list), 40);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        int64_t unit = at(o, "unit"), row = at(o, "row");
        char text[64];
        snprintf(text, sizeof text, "unit %d row %d", (int)unit, (int)row);
        CHECK_STR(json_string_value(json_object_get(o, "text")), text);
        seen[unit][row >= 65536]++;
    }
    for (int k = 0; k < 4; k++) CHECK_MSG(seen[k / 2][k % 2], "no row of place %d is shown", k);
    json_decref(r);
}
