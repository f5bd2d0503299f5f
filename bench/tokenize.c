// SPDX-License-Identifier: Apache-2.0
// One thread's rate of tokenizing: what bench/tokenize runs beside the public libraries.
//
//   build/release/bench/tokenize TOKENIZER FILE [SPLIT [PASSES [THREADS [IDS]]]]
//
// FILE is read, cut into documents at NUL bytes, and encoded PASSES times (the first warms the
// caches and is not counted); SPLIT is a splitting pattern, "-" for the file's own. THREADS above 1
// encode one batch of all documents. IDS names a file for the ids of the last pass (int32, little
// endian). Prints one line of JSON: bytes, tokens, documents, and the seconds of each pass, which
// for one thread are processor time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"     /* gw_clock_ns */
#include "base/io.h"        /* gw_file_read */
#include "base/map.h"       /* GW_VEC */
#include "base/str.h"       /* gw_parse_i64 */
#include "data/scanner.h"   /* gw_scan_with_name */
#include "data/tokenizer.h" /* gw_tokenizer */

typedef struct bench {
    gw_tokenizer *t;
    gw_tok_scratch *s;
    GW_VEC(gw_tok_text) docs;
    gw_ids ids;
    int64_t *ends;
    int threads;
    gw_diags dg;
} bench;

static void fail(const gw_diags *dg) {
    gw_diags_print(dg, stderr, false);
    exit(1);
}

static double now(int threads) {
    struct timespec t;
    if (threads > 1) return (double)gw_clock_ns() * 1e-9;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void cut(bench *b, const gw_str *text) {
    for (size_t i = 0; i < text->len;) {
        const char *nul = memchr(text->data + i, 0, text->len - i);
        size_t e = nul ? (size_t)(nul - text->data) : text->len;
        gw_tok_text d = {text->data + i, e - i};
        if (e > i) gw_vec_push(&b->docs, d);
        i = e + 1;
    }
    b->ends = calloc((size_t)b->docs.count + 1, sizeof *b->ends);
    if (!b->ends) abort();
}

static void pass(bench *b) {
    b->ids.count = 0;
    gw_status st = GW_OK;
    if (b->threads > 1)
        st = gw_tokenizer_encode_batch(b->t, b->docs.items, b->docs.count, 0, b->threads, &b->ids,
                                       b->ends, NULL, &b->dg);
    for (int64_t i = 0; b->threads <= 1 && i < b->docs.count && st == GW_OK; i++)
        st = gw_tokenizer_encode(b->t, b->s, b->docs.items[i].bytes, b->docs.items[i].n, 0, &b->ids,
                                 &b->dg);
    if (st != GW_OK) fail(&b->dg);
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise) {
    int64_t v = otherwise;
    if (argc > i && !gw_parse_i64(argv[i], &v)) {
        fprintf(stderr, "bench: '%s' is not a number\n", argv[i]);
        exit(2);
    }
    return v;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fputs("usage: tokenize TOKENIZER FILE [SPLIT [PASSES [THREADS [IDS]]]]\n", stderr);
        return 2;
    }
    bench b = {.threads = (int)number(argc, argv, 5, 1)};
    gw_diags_init(&b.dg);
    gw_tokenizer_options o = {.pattern = argc > 3 && strcmp(argv[3], "-") ? argv[3] : NULL};
    gw_str text = {0};
    if (gw_tokenizer_open(argv[1], &o, &b.t, &b.dg) != GW_OK) fail(&b.dg);
    if (gw_file_read(argv[2], 0, &text, &b.dg) != GW_OK) fail(&b.dg);
    int64_t passes = number(argc, argv, 4, 3);
    b.s = gw_tok_scratch_new();
    cut(&b, &text);
    printf("{\"bytes\": %zu, \"documents\": %lld, \"with\": \"%s\", \"seconds\": [", text.len,
           (long long)b.docs.count, gw_scan_with_name(gw_scan_best()));
    for (int64_t i = 0; i <= passes; i++) {
        double start = now(b.threads);
        pass(&b);
        if (i > 0) printf("%s%.6f", i > 1 ? ", " : "", now(b.threads) - start);
    }
    printf("], \"tokens\": %lld}\n", (long long)b.ids.count);
    if (argc > 6 && gw_file_write_atomic(argv[6], b.ids.items, b.ids.count * 4, &b.dg) != GW_OK)
        fail(&b.dg);
    gw_ids_release(&b.ids);
    gw_vec_release(&b.docs);
    free(b.ends);
    gw_tok_scratch_free(b.s);
    gw_tokenizer_free(b.t);
    gw_str_release(&text);
    gw_diags_release(&b.dg);
    return 0;
}
