// SPDX-License-Identifier: Apache-2.0
// Runs words, language id, filters and PII over a file of documents: for bench/filters, which
// compares with other programs and prints what this measures.
//
//   filters_run verdicts DOCS OUT FILTERS.yaml   verdict and text of each document to OUT
//   filters_run words SPLITTER|LANGUAGE DOCS OUT words of each document to OUT
//   filters_run pii DOCS OUT                     texts with e-mail and public IP replaced to OUT
//   filters_run spans DOCS OUT                   lines of what PII finds: KIND OFFSET BYTES
//   filters_run langid SPEC DOCS OUT             language and score of each document to OUT
//   filters_run speed DOCS [MODEL]               MB/s of each part, by CPU time
//
// DOCS is a row of documents, each four bytes of length, least significant first, and its UTF-8.
// OUT has the same form; a verdict and a text are two records.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"          /* gw_diags */
#include "base/io.h"            /* gw_file_read */
#include "base/str.h"           /* gw_str */
#include "base/yaml.h"          /* gw_yaml_parse */
#include "data/filter/filter.h" /* gw_filters */
#include "data/text/langid.h"   /* gw_langid */
#include "data/text/pii.h"      /* gw_pii */
#include "data/text/words.h"    /* gw_words */

static gw_diags dg;

static void check(gw_status s) {
    if (s == GW_OK) return;
    gw_diags_print(&dg, stderr, false);
    exit(1);
}

typedef struct docs {
    gw_str all;
    size_t at;
} docs;

static docs open_docs(const char *path) {
    docs d = {0};
    check(gw_file_read(path, 0, &d.all, &dg));
    return d;
}
static bool next(docs *d, const char **p, int64_t *n) {
    if (d->at + 4 > d->all.len) return false;
    const uint8_t *b = (const uint8_t *)d->all.data + d->at;
    uint32_t size = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    if (size > d->all.len - d->at - 4) return false;
    *p = d->all.data + d->at + 4;
    *n = size;
    d->at += 4 + size;
    return true;
}
static void put(FILE *f, const char *p, size_t n) {
    uint8_t b[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    fwrite(b, 1, 4, f);
    fwrite(p, 1, n, f);
}
static FILE *create(const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

static gw_filters *filters_of(gw_arena *a, const char *yaml, const char *name) {
    gw_yaml_node *root;
    check(gw_yaml_parse(a, name, yaml, (int64_t)strlen(yaml), true, &root, &dg));
    gw_filters *f;
    check(gw_filters_new(root, name, &f, &dg));
    return f;
}

static void verdicts(const char *in, const char *out, const char *yaml) {
    gw_arena a = {0};
    gw_str text = {0};
    check(gw_file_read(yaml, 0, &text, &dg));
    gw_filters *f = filters_of(&a, gw_str_c(&text), yaml);
    double *columns = gw_arena_new(&a, double, gw_filters_columns(f) + 1);
    docs d = open_docs(in);
    FILE *o = create(out);
    const char *p;
    int64_t n;
    gw_str doc = {0};
    while (next(&d, &p, &n)) {
        gw_str_clear(&doc);
        gw_str_add_n(&doc, p, (size_t)n);
        gw_filter_facts facts = {"", "", 0};
        gw_verdict v = gw_filters_run(f, &facts, &doc, columns);
        char buf[200];
        gw_filters_verdict_text(f, v, buf, sizeof buf);
        put(o, buf, strlen(buf));
        put(o, gw_str_c(&doc), doc.len);
    }
    fclose(o);
    gw_str_release(&doc);
    gw_str_release(&d.all);
    gw_str_release(&text);
    gw_filters_free(f);
    gw_arena_release(&a);
}

static void words(const char *kind, const char *in, const char *out) {
    gw_splitter s;
    check(gw_splitter_for_language(kind, &s, &dg));
    gw_words *w = gw_words_new();
    docs d = open_docs(in);
    FILE *o = create(out);
    const char *p;
    int64_t n;
    gw_str line = {0};
    while (next(&d, &p, &n)) {
        gw_str_clear(&line);
        gw_words_split(w, s, p, n);
        for (int64_t i = 0; i < w->count; i++) {
            if (i) gw_str_add_char(&line, '\x1f');
            gw_str_add_n(&line, p + w->items[i].offset, w->items[i].bytes);
        }
        put(o, gw_str_c(&line), line.len);
    }
    fclose(o);
    gw_str_release(&line);
    gw_str_release(&d.all);
    gw_words_free(w);
}

static void pii(const char *in, const char *out) {
    gw_pii *x = gw_pii_new();
    gw_pii_options opt = gw_pii_defaults();
    gw_pii_counts counts = {0};
    docs d = open_docs(in);
    FILE *o = create(out);
    const char *p;
    int64_t n;
    gw_str doc = {0};
    while (next(&d, &p, &n)) {
        gw_str_clear(&doc);
        gw_str_add_n(&doc, p, (size_t)n);
        gw_pii_mark(x, &opt, &doc, &counts);
        put(o, gw_str_c(&doc), doc.len);
    }
    fclose(o);
    gw_str_release(&doc);
    gw_str_release(&d.all);
    gw_pii_free(x);
}

static void spans(const char *in, const char *out) {
    gw_pii *x = gw_pii_new();
    gw_pii_options opt = gw_pii_defaults();
    for (int k = 0; k < GW_PII_KINDS; k++) opt.how[k] = GW_PII_MARK;
    docs d = open_docs(in);
    FILE *o = create(out);
    const char *p;
    int64_t n;
    gw_str line = {0};
    gw_pii_span found[256];
    while (next(&d, &p, &n)) {
        gw_str_clear(&line);
        int64_t count = gw_pii_find(x, &opt, p, n, found, 256);
        for (int64_t i = 0; i < count && i < 256; i++)
            gw_str_printf(&line, "%s %lld %lld\n", gw_pii_kind_name(found[i].kind),
                          (long long)found[i].offset, (long long)found[i].bytes);
        put(o, gw_str_c(&line), line.len);
    }
    fclose(o);
    gw_str_release(&line);
    gw_str_release(&d.all);
    gw_pii_free(x);
}

static void langid(const char *spec, const char *in, const char *out) {
    gw_langid *l;
    check(gw_langid_open(spec, &l, &dg));
    docs d = open_docs(in);
    FILE *o = create(out);
    const char *p;
    int64_t n;
    while (next(&d, &p, &n)) {
        char lang[8], line[40];
        float score;
        gw_langid_detect(l, p, n, lang, &score);
        int len = snprintf(line, sizeof line, "%s %.6f", lang, (double)score);
        put(o, line, (size_t)len);
    }
    fclose(o);
    gw_str_release(&d.all);
    gw_langid_free(l);
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double less(double a, double b) { return a < b ? a : b; }

static void print_speed(const char *what, int64_t bytes, double seconds) {
    printf("%-32s %8.1f MB/s\n", what, seconds > 0 ? (double)bytes / seconds / 1e6 : 0.0);
}

/* Runs filters over all documents once; returns CPU seconds. */
static double run_filters(docs *d, const char *yaml, int64_t *bytes) {
    gw_arena a = {0};
    gw_filters *f = filters_of(&a, yaml, "speed");
    double *columns = gw_arena_new(&a, double, gw_filters_columns(f) + 1);
    gw_str doc = {0};
    const char *p;
    int64_t n;
    d->at = 0;
    *bytes = 0;
    double t = cpu();
    while (next(d, &p, &n)) {
        gw_str_clear(&doc);
        gw_str_add_n(&doc, p, (size_t)n);
        gw_filter_facts facts = {"http://example.com/a", "en", 1};
        gw_filters_run(f, &facts, &doc, columns);
        *bytes += n;
    }
    t = cpu() - t;
    gw_str_release(&doc);
    gw_filters_free(f);
    gw_arena_release(&a);
    return t;
}

static void speed_of_filters(docs *d) {
    int count;
    const gw_filter_desc *const *list = gw_filter_list(&count);
    for (int i = 0; i < count; i++) {
        char yaml[200];
        const char *extra =
            !strcmp(list[i]->name, "words/dclm") ? ": {words: [lorem ipsum, casino]}" : "";
        if (!strcmp(list[i]->name, "c4_badwords/datatrove")) continue;
        snprintf(yaml, sizeof yaml, "- %s%s\n", list[i]->name, extra);
        double best = 1e30;
        int64_t bytes = 0;
        for (int k = 0; k < 3; k++) best = less(best, run_filters(d, yaml, &bytes));
        print_speed(list[i]->name, bytes, best);
    }
    double best = 1e30;
    int64_t bytes = 0;
    for (int k = 0; k < 3; k++)
        best = less(best, run_filters(d,
                                      "- gopher_repetition/datatrove\n- gopher_quality/datatrove\n"
                                      "- c4/datatrove\n- fineweb_quality/datatrove\n",
                                      &bytes));
    print_speed("the four of FineWeb together", bytes, best);
}

static void speed(const char *in, const char *model) {
    docs d = open_docs(in);
    const char *p;
    int64_t n, bytes = 0;
    while (next(&d, &p, &n)) bytes += n;
    gw_words *w = gw_words_new();
    for (int s = 0; s < GW_SPLITTERS; s++) {
        double best = 1e30;
        for (int k = 0; k < 3; k++) {
            double t = cpu();
            for (d.at = 0; next(&d, &p, &n);) gw_words_split(w, (gw_splitter)s, p, n);
            best = less(best, cpu() - t);
        }
        char name[64];
        snprintf(name, sizeof name, "words %s", gw_splitter_name((gw_splitter)s));
        print_speed(name, bytes, best);
    }
    gw_words_free(w);
    speed_of_filters(&d);
    for (int all = 0; all < 2; all++) {
        gw_pii *x = gw_pii_new();
        gw_pii_options opt = gw_pii_defaults();
        for (int k = 0; all && k < GW_PII_KINDS; k++) opt.how[k] = GW_PII_MARK;
        double best = 1e30;
        for (int k = 0; k < 3; k++) {
            double t = cpu();
            for (d.at = 0; next(&d, &p, &n);) gw_pii_find(x, &opt, p, n, NULL, 0);
            best = less(best, cpu() - t);
        }
        print_speed(all ? "pii, all kinds" : "pii, e-mail and IP", bytes, best);
        gw_pii_free(x);
    }
    const char *specs[] = {"builtin", model};
    for (int s = 0; s < 2 && specs[s]; s++) {
        gw_langid *l;
        check(gw_langid_open(specs[s], &l, &dg));
        double t = cpu();
        char lang[8];
        float score;
        for (d.at = 0; next(&d, &p, &n);) gw_langid_detect(l, p, n, lang, &score);
        print_speed(s ? "language id, model file" : "language id", bytes, cpu() - t);
        gw_langid_free(l);
    }
    gw_str_release(&d.all);
}

int main(int argc, char **argv) {
    gw_diags_init(&dg);
    if (argc == 5 && !strcmp(argv[1], "verdicts"))
        verdicts(argv[2], argv[3], argv[4]);
    else if (argc == 5 && !strcmp(argv[1], "words"))
        words(argv[2], argv[3], argv[4]);
    else if (argc == 4 && !strcmp(argv[1], "pii"))
        pii(argv[2], argv[3]);
    else if (argc == 4 && !strcmp(argv[1], "spans"))
        spans(argv[2], argv[3]);
    else if (argc == 5 && !strcmp(argv[1], "langid"))
        langid(argv[2], argv[3], argv[4]);
    else if (argc >= 3 && !strcmp(argv[1], "speed"))
        speed(argv[2], argc > 3 ? argv[3] : NULL);
    else {
        fprintf(stderr, "usage: filters_run verdicts|words|pii|spans|langid|speed ...\n");
        return 2;
    }
    gw_diags_release(&dg);
    return 0;
}
