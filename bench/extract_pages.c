// SPDX-License-Identifier: Apache-2.0
// The C side of bench/extract: extracts pages whose paths stand on standard input, one a line.
//
//   extract_pages MODE [balanced|precision|recall] < LIST
//
// MODE text writes each text behind a line with its bytes; `time` extracts everything ROUNDS times
// and prints bytes of HTML and the least CPU seconds of a round; `parse` times our parser alone,
// and libxml2's, gumbo's and MyHTML's where the program finds them (they are opened at run time, so
// that the build needs none of them).
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/map.h"
#include "data/text/extract.h"
#include "data/text/html.h"

enum { ROUNDS = 5 };

typedef struct page {
    char *bytes;
    int64_t n;
} page;
typedef GW_VEC(page) page_list;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t read_pages(page_list *pages) {
    char line[4096];
    int64_t total = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        gw_str s = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        if (gw_file_read(line, 0, &s, &dg) != GW_OK) {
            gw_diags_print(&dg, stderr, false);
            exit(1);
        }
        gw_diags_release(&dg);
        gw_str_reserve(&s, 1);
        page p = {s.data, (int64_t)s.len};
        gw_vec_push(pages, p);
        total += p.n;
    }
    return total;
}

/* One pass over all pages. */
typedef void pass(void *state, const page *p);

static void run(const char *name, pass *f, void *state, const page_list *pages, int64_t total) {
    double least = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        double from = cpu_seconds();
        for (int64_t i = 0; i < pages->count; i++) f(state, &pages->items[i]);
        least = GW_MIN(least, cpu_seconds() - from);
    }
    printf("%s %lld %.6f\n", name, (long long)total, least);
}

typedef struct ours {
    gw_extract *e;
    gw_extract_options o;
    gw_html html;
    gw_str text;
} ours;

static void pass_extract(void *state, const page *p) {
    ours *s = state;
    gw_extract_text(s->e, (const uint8_t *)p->bytes, p->n, "", &s->o, &s->text, NULL);
}

static void pass_parse(void *state, const page *p) {
    ours *s = state;
    gw_html_parse(&s->html, (const uint8_t *)p->bytes, p->n, 2000000, 256);
}

/* The peers' functions, by their public prototypes. */
static void *library(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
static void *symbol(void *lib, const char *name, void *to) {
    void *s = dlsym(lib, name);
    memcpy(to, &s, sizeof s);
    return s;
}

static void pass_libxml(void *lib, const page *p) {
    void *(*read)(const char *, int, const char *, const char *, int);
    void (*release)(void *);
    symbol(lib, "htmlReadMemory", &read);
    symbol(lib, "xmlFreeDoc", &release);
    /* RECOVER | NOERROR | NOWARNING | NONET | COMPACT */
    void *doc = read(p->bytes, (int)p->n, NULL, "UTF-8", 1 | 32 | 64 | 2048 | 65536);
    if (doc) release(doc);
}

static void pass_gumbo(void *lib, const page *p) {
    void *(*parse)(const void *, const char *, size_t);
    void (*destroy)(const void *, void *);
    void *options = dlsym(lib, "kGumboDefaultOptions");
    symbol(lib, "gumbo_parse_with_options", &parse);
    symbol(lib, "gumbo_destroy_output", &destroy);
    void *out = parse(options, p->bytes, (size_t)p->n);
    if (out) destroy(options, out);
}

static void pass_myhtml(void *lib, const page *p) {
    void *(*create)(void), *(*tree_create)(void), *(*destroy)(void *), *(*tree_destroy)(void *);
    unsigned (*init)(void *, int, size_t, size_t), (*tree_init)(void *, void *);
    unsigned (*parse)(void *, int, const char *, size_t);
    symbol(lib, "myhtml_create", &create);
    symbol(lib, "myhtml_init", &init);
    symbol(lib, "myhtml_tree_create", &tree_create);
    symbol(lib, "myhtml_tree_init", &tree_init);
    symbol(lib, "myhtml_parse", &parse);
    symbol(lib, "myhtml_tree_destroy", &tree_destroy);
    symbol(lib, "myhtml_destroy", &destroy);
    static void *parser; /* kept, as its manual asks for many pages */
    if (!parser) {
        parser = create();
        init(parser, 1 /* one thread */, 1, 0);
    }
    void *tree = tree_create();
    tree_init(tree, parser);
    parse(tree, 0 /* UTF-8 */, p->bytes, (size_t)p->n);
    tree_destroy(tree);
}

static void run_peer(const char *name, const char *file, pass *f, const page_list *pages,
                     int64_t total) {
    void *lib = library(file);
    if (lib)
        run(name, f, lib, pages, total);
    else
        printf("%s absent\n", name);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "text", *favour = argc > 2 ? argv[2] : "balanced";
    page_list pages = {0};
    int64_t total = read_pages(&pages);
    ours s = {.e = gw_extract_new(), .o = gw_extract_options_default()};
    if (!strcmp(favour, "precision")) s.o.favour = GW_FAVOUR_PRECISION;
    if (!strcmp(favour, "recall")) s.o.favour = GW_FAVOUR_RECALL;
    if (!strcmp(mode, "text")) {
        for (int64_t i = 0; i < pages.count; i++) {
            pass_extract(&s, &pages.items[i]);
            printf("%zu\n", s.text.len);
            fwrite(gw_str_c(&s.text), 1, s.text.len, stdout);
        }
    } else if (!strcmp(mode, "time")) {
        run("gradwright", pass_extract, &s, &pages, total);
    } else {
        run("gradwright", pass_parse, &s, &pages, total);
        run_peer("MyHTML", "libmodest.so.0", pass_myhtml, &pages, total);
        run_peer("libxml2", "libxml2.so.2", pass_libxml, &pages, total);
        run_peer("gumbo", "libgumbo.so.1", pass_gumbo, &pages, total);
    }
    for (int64_t i = 0; i < pages.count; i++) gw_mem_free(pages.items[i].bytes);
    gw_vec_release(&pages);
    gw_html_release(&s.html);
    gw_str_release(&s.text);
    gw_extract_free(s.e);
    return 0;
}
