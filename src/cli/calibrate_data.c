// SPDX-License-Identifier: Apache-2.0
// What a core of this machine does to data: bytes of text to tokens, bytes of HTML to tokens,
// tokens into rows.
//
// Pages are made here, since a machine need not have any: prose of words that are as frequent as
// words are (Zipf 1935), in paragraphs, within the navigation and the scripts that pages have
// around their text, each a gzip member of a WARC file. A vocabulary is trained on the prose. Then
// the pipeline that `data build` runs makes tokens of the archive with FineWeb's filters and
// MinHash, the loader reads them, and the tokenizer runs by itself. Each is the product's own code
// on one core and is counted in CPU time, so that what else the machine does shows little.
//
// Made prose is easier than real text in one way, it has no rare words, and harder in another, it
// says nothing twice; rates on a corpus of one's own stand in its report.md.
#include "cli/calibrate_data.h" /* this module's contract */

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/arena.h"       /* gw_arena_printf */
#include "base/io.h"          /* gw_file_write_atomic */
#include "base/rng.h"         /* gw_rng_uniform */
#include "base/str.h"         /* gw_str */
#include "data/bpe_train.h"   /* gw_bpe_train_text */
#include "data/build/build.h" /* gw_data_build */
#include "data/loader.h"      /* gw_loader */

enum { PAGES = 600, PARAGRAPHS = 14, WORDS = 90, LEXICON = 20000, VOCAB = 8192 };
enum { SEQ = 1024, ROWS = 8 };

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ------------------------------------------------------------------ text

typedef struct prose {
    gw_rng_key key;
    uint64_t at;
} prose;

static double uniform(prose *p) { return (double)gw_rng_uniform(p->key, p->at++); }

/* The word of a rank: the commonest are English ones, the others are syllables. */
static void add_word(gw_str *out, int rank) {
    static const char *const common[] = {"the",  "of", "and",  "to",  "a",    "in",   "is",
                                         "that", "it", "was",  "for", "with", "be",   "as",
                                         "have", "on", "this", "by",  "are",  "from", "which"};
    static const char *const syllables[] = {"ra",  "ten", "lo", "mi",  "ver", "son", "ca", "di",
                                            "pre", "al",  "ur", "est", "or",  "ni",  "be", "tra"};
    if (rank < (int)GW_COUNT(common)) {
        gw_str_add(out, common[rank]);
        return;
    }
    for (int x = rank; x > 0; x /= 16) gw_str_add(out, syllables[x % 16]);
}

/* A rank by Zipf's law: the inverse of the harmonic numbers, nearly. */
static int draw(prose *p) {
    double x = exp(uniform(p) * log(LEXICON + 1.0)) - 1;
    return x < LEXICON ? (int)x : LEXICON - 1;
}

static void add_paragraph(prose *p, gw_str *out) {
    int left = 0;
    for (int i = 0; i < WORDS; i++) {
        bool first = left == 0;
        if (first) left = 8 + (int)(uniform(p) * 14);
        size_t begin = out->len;
        add_word(out, draw(p));
        if (first) out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
        gw_str_add(out, --left == 0 || i + 1 == WORDS ? ". " : uniform(p) < 0.06 ? ", " : " ");
    }
}

/* A page around its text; `plain` gets the text alone. */
static void make_page(prose *p, int number, gw_str *html, gw_str *plain) {
    gw_str_clear(html);
    gw_str_printf(html,
                  "<!doctype html><html lang=\"en\"><head><title>Page %d</title><style>.nav"
                  "{margin:0}</style><script>var n=%d;</script></head><body><nav><ul>",
                  number, number);
    for (int i = 0; i < 20; i++)
        gw_str_printf(html, "<li><a href=\"/section/%d\" class=\"nav item-%d\">Section %d</a></li>",
                      i, i, i);
    gw_str_printf(html, "</ul></nav><main><article><h1>Page %d</h1>\n", number);
    for (int i = 0; i < PARAGRAPHS; i++) {
        size_t begin;
        gw_str_add(html, "<p>");
        begin = html->len;
        add_paragraph(p, html);
        gw_str_add_n(plain, html->data + begin, html->len - begin);
        gw_str_add_char(plain, '\n');
        gw_str_add(html, "</p>\n");
    }
    gw_str_add(html, "</article></main><footer><p>All rights reserved.</p><a href=\"/about\">About"
                     "</a></footer></body></html>\n");
}

/* Appends a gzip member. */
static gw_status add_member(gw_str *out, const gw_str *record, gw_diags *dg) {
    z_stream z = {0};
    if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return GW_FAIL(dg, GW_ERR_MEMORY, "host-memory", "no memory to compress a page");
    uLong most = deflateBound(&z, (uLong)record->len);
    gw_str_reserve(out, out->len + most);
    z.next_in = (Bytef *)record->data;
    z.avail_in = (uInt)record->len;
    z.next_out = (Bytef *)out->data + out->len;
    z.avail_out = (uInt)most;
    bool done = deflate(&z, Z_FINISH) == Z_STREAM_END;
    out->len += z.total_out;
    deflateEnd(&z);
    return done ? GW_OK : GW_FAIL(dg, GW_ERR_MEMORY, "host-memory", "a page was not compressed");
}

static gw_status make_archive(const char *path, gw_str *plain, gw_diags *dg) {
    prose p = {.key = gw_rng_key_named(3, "calibrate")};
    gw_str html = {0}, record = {0}, out = {0};
    gw_status st = GW_OK;
    for (int i = 0; i < PAGES && st == GW_OK; i++) {
        static const char head[] =
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n";
        make_page(&p, i, &html, plain);
        gw_str_clear(&record);
        gw_str_printf(&record,
                      "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: "
                      "https://calibrate.invalid/%d\r\nContent-Type: application/http; "
                      "msgtype=response\r\nContent-Length: %zu\r\n\r\n%s",
                      i, strlen(head) + html.len, head);
        gw_str_add_n(&record, html.data, html.len);
        gw_str_add(&record, "\r\n\r\n");
        st = add_member(&out, &record, dg);
    }
    if (st == GW_OK) st = gw_file_write_atomic(path, out.data, (int64_t)out.len, dg);
    gw_str_release(&html);
    gw_str_release(&record);
    gw_str_release(&out);
    return st;
}

// ------------------------------------------------------------------ what is measured

static gw_status train_vocabulary(const char *path, const gw_str *plain, gw_diags *dg) {
    gw_bpe_train_options o = {.vocab_size = VOCAB, .threads = 1};
    gw_str json = {0};
    gw_status st =
        gw_bpe_train_text(plain->data, GW_MIN(plain->len, (size_t)2 << 20), &o, &json, NULL, dg);
    if (st == GW_OK) st = gw_file_write_atomic(path, json.data, (int64_t)json.len, dg);
    gw_str_release(&json);
    return st;
}

/* Texts of a page's length, one after another; the second time counts. */
static gw_status time_tokenizer(const char *path, const gw_str *plain, double *rate, gw_diags *dg) {
    enum { PIECE = 8192 };
    gw_tokenizer *t;
    GW_TRY(gw_tokenizer_open(path, NULL, &t, dg));
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    gw_status st = GW_OK;
    for (int pass = 0; pass < 2 && st == GW_OK; pass++) {
        double begin = cpu_seconds();
        for (size_t at = 0; at < plain->len && st == GW_OK; at += PIECE) {
            ids.count = 0;
            st = gw_tokenizer_encode(t, s, plain->data + at, GW_MIN(plain->len - at, (size_t)PIECE),
                                     0, &ids, dg);
        }
        *rate = (double)plain->len / fmax(cpu_seconds() - begin, 1e-9);
    }
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    return st;
}

static gw_status time_pipeline(const char *dir, double *rate, gw_diags *dg) {
    gw_arena a = {0};
    gw_pipeline p;
    gw_build_options o = {.workers = 1};
    json_t *report = NULL;
    const char *text = gw_arena_printf(
        &a,
        "input: {paths: ['%s/pages.warc.gz']}\n"
        "filters: [language/datatrove: {languages: en, language_threshold: 0}, "
        "gopher_repetition/datatrove, gopher_quality/datatrove, c4/datatrove, "
        "fineweb_quality/datatrove]\n"
        "tokenizer: {path: '%s/tokenizer.json'}\n"
        "output: {dir: '%s/built', format: megatron}\nkeep_removed: false\nsamples: 0\n",
        dir, dir, dir);
    gw_status st = gw_pipeline_parse(&p, "calibrate", text, (int64_t)strlen(text), NULL, 0, dg);
    if (st == GW_OK) st = gw_data_build(&p, &o, &report, dg);
    *rate = 1e6 * json_number_value(json_object_get(report, "page_MB_per_core_s"));
    json_decref(report);
    gw_pipeline_release(&p);
    gw_arena_release(&a);
    return st;
}

/* Rows of whatever the filters have left, over and over. */
static gw_status time_loader(const char *dir, double *rate, gw_diags *dg) {
    enum { WARM = 20 };
    gw_arena a = {0};
    gw_tokens *data = NULL;
    gw_loader *l = NULL;
    const gw_step_batch *batch;
    gw_tokens_options o = gw_tokens_options_default(SEQ, 1);
    gw_loader_options lo = {.micro_batch = ROWS, .accumulate = 1, .dp_size = 1};
    double begin = 0, tokens = 0;
    gw_status st =
        gw_tokens_open(gw_arena_printf(&a, "%s/built/megatron/tokens-00000", dir), &o, &data, dg);
    if (st == GW_OK) st = gw_loader_open(data, &lo, &l, dg);
    for (int i = 0; st == GW_OK && (i < 2 * WARM || cpu_seconds() - begin < 0.3); i++) {
        if (i == WARM) begin = cpu_seconds();
        st = gw_loader_next(l, &batch, dg);
        if (i >= WARM) tokens += SEQ * ROWS;
    }
    *rate = tokens / fmax(cpu_seconds() - begin, 1e-9);
    gw_loader_close(l);
    gw_tokens_close(data);
    gw_arena_release(&a);
    return st;
}

// ------------------------------------------------------------------ all of it

/* Removes a folder that this file has filled: files, and folders of files, four deep. */
static void remove_all(const char *path, int deep) {
    DIR *d = opendir(path);
    const struct dirent *e;
    gw_arena a = {0};
    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        const char *inner = gw_path_join(&a, path, e->d_name);
        if (unlink(inner) != 0 && deep > 0) remove_all(inner, deep - 1);
    }
    if (d) closedir(d);
    rmdir(path);
    gw_arena_release(&a);
}

gw_status gw_calib_data_rates(const char *dir, gw_data_rates *out, gw_diags *dg) {
    gw_arena a = {0};
    gw_str plain = {0};
    const char *own = gw_path_join(&a, dir, "data");
    const char *vocabulary = gw_path_join(&a, own, "tokenizer.json");
    *out = (gw_data_rates){.source = "measured here"};
    gw_status st = gw_dir_make(own, dg);
    if (st == GW_OK) st = make_archive(gw_path_join(&a, own, "pages.warc.gz"), &plain, dg);
    if (st == GW_OK) st = train_vocabulary(vocabulary, &plain, dg);
    if (st == GW_OK) st = time_pipeline(own, &out->pipeline_bytes_per_s, dg);
    if (st == GW_OK) st = time_loader(own, &out->loader_tokens_per_s, dg);
    if (st == GW_OK) st = time_tokenizer(vocabulary, &plain, &out->tokenize_bytes_per_s, dg);
    remove_all(own, 4);
    gw_str_release(&plain);
    gw_arena_release(&a);
    return st;
}
