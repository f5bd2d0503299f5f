// SPDX-License-Identifier: Apache-2.0
// HTML and main text: the tokenizer and tree against libxml2 on real pages and against the HTML
// Standard's own examples, references against Python's table, extraction on pages whose main text
// is known (golden/extract, made by golden/make_extract.py), and hostile pages.
#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <libxml/HTMLparser.h>

#include "base/io.h"
#include "data/text/encoding.h"
#include "data/text/extract.h"
#include "data/text/html.h"
#include "data/unicode.h"
#include "harness.h"

static gw_str extract(const char *html, size_t n, const gw_extract_options *o) {
    gw_extract *e = gw_extract_new();
    gw_str text = {0};
    gw_extract_text(e, (const uint8_t *)html, (int64_t)n, "utf-8", o, &text, NULL);
    CHECK(gw_utf8_is_valid((const uint8_t *)gw_str_c(&text), text.len));
    gw_extract_free(e);
    return text;
}

static gw_extract_options everything(void) {
    gw_extract_options o = gw_extract_options_default();
    o.main_text = false;
    return o;
}

static void check_shown(const char *html, const char *want) {
    gw_extract_options o = everything();
    gw_str text = extract(html, strlen(html), &o);
    CHECK_STR(gw_str_c(&text), want);
    gw_str_release(&text);
}

TEST(extract_white_space) {
    check_shown("<p> a \n b<br>c <b> d</b></p>e", "a b\nc d\ne\n");
    check_shown("<span>a</span><span>b</span> <i>c</i>", "ab c\n");
    check_shown("<div><div></div></div><p></p>x<p>&nbsp;</p>", "x\n");
    check_shown("<pre>\n a\n\n  b </pre>c", " a\n\n  b\nc\n");
    check_shown("a&nbsp;b\xc2\xa0 c", "a b c\n");
    check_shown("<ul><li>a<li>b<ul><li>c</ul></ul>", "a\nb\nc\n");
    check_shown("<table><tr><th>a<th>b<tr><td>1</td><td colspan=9007199254740991>2</td></table>",
                "a | b\n1 | 2\n");
    check_shown("", "");
}

/* The HTML Standard, 13.2: what ends what. */
TEST(extract_tokens) {
    check_shown("a<!-- x > -- y -->b<!-->c<!--->d<!-- x --!>e", "abcde\n");
    check_shown("1 < 2 & 3 <4 </ x>y<?php a ?>b<!DOCTYPE x>c", "1 < 2 & 3 <4 ybc\n");
    check_shown("a<script>var s = '<p>no</p>'; <!-- <script> </script> no --></script>b", "ab\n");
    check_shown("a<script><!-- never closed </script>b", "ab\n");
    check_shown("a<style>p > b { }</style>b<STYLE></style >c", "abc\n");
    check_shown("<a title='>' href=\">\" x=a>b</a>c<a href=x", "bc\n");
    check_shown("<title>a &amp; <b></title>x<textarea><p>no</textarea>y<xmp><b></xmp>",
                "xy\n<b>\n");
    check_shown("a<svg><title>no</title><![CDATA[ no ]]></svg>b<math><mi>x</mi></math>", "abx\n");
    check_shown("<p>a<p>b<div>c</p>d</div>e<h1>f<h2>g</h1>h", "a\nb\nc\nd\ne\nf\ng\nh\n");
    check_shown("<p>a</br>b<select><option>no<div>c</select>d", "a\nb\ncd\n");
}

TEST(extract_references) {
    check_shown("&lt;&#60;&#x3C;&LT;&amp;amp;&copy&copycat;&notit;&notin;",
                "<<<<&amp;\u00a9\u00a9cat;\u00acit;\u2209\n");
    check_shown("&#0;&#xD800;&#x110000;&#128;&#x9f;&bogus;&;&#;&#x;",
                "\ufffd\ufffd\ufffd\u20ac\u0178&bogus;&;&#;&#x;\n");
    check_shown("&NotEqualTilde;&CounterClockwiseContourIntegral;", "\u2242\u0338\u2233\n");
    uint32_t cp[2];
    int n;
    const uint8_t *attr = (const uint8_t *)"&copy=1";
    CHECK_EQ(gw_html_reference(attr, attr + 7, true, cp, &n), 0);
    CHECK_EQ(gw_html_reference(attr, attr + 7, false, cp, &n), 5);
}

TEST(extract_metadata) {
    static const char page[] =
        "<html lang='pt-BR'><head><title>\n A &lt; B \t C</title><meta property="
        "\"article:published_time\" content=\"2024-03-01T10:00:00Z\"></head><p>x</html>";
    gw_extract *e = gw_extract_new();
    gw_extract_info info;
    gw_str text = {0};
    gw_extract_text(e, (const uint8_t *)page, sizeof page - 1, "", NULL, &text, &info);
    CHECK_STR(info.title, "A < B C");
    CHECK_STR(info.language, "pt-BR");
    CHECK_STR(info.date, "2024-03-01T10:00:00Z");
    CHECK_STR(info.encoding, "utf-8");
    gw_extract_text(e, (const uint8_t *)"\xcf\xf0\xe8", 3, "windows-1251", NULL, &text, &info);
    CHECK_STR(text.data, "\u041f\u0440\u0438\n");
    CHECK_STR(info.title, "");
    gw_extract_plain(e, (const uint8_t *)"a\r\nb\rc\xff", 7, "utf-8", &text, &info);
    CHECK_EQ(info.bad_bytes, 1);
    CHECK_STR(text.data, "a\nb\nc\ufffd");
    gw_str_release(&text);
    gw_extract_free(e);
}

/* --- pages whose main text is known ----------------------------------------------------------- */

/* How many words of `a` (split at what is no letter or digit of ASCII or beyond) stand in b too, as
 * multisets, over the words of a. */
typedef struct bag {
    char *words[20000];
    int n;
} bag;

static int by_word(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void fill_bag(bag *b, gw_str *text) {
    b->n = 0;
    char *p = text->data, *end = p ? p + text->len : p;
    while (p < end) {
        char *from = p;
        while (p < end && ((uint8_t)*p >= 0x80 || (*p >= '0' && *p <= '9') ||
                           ((*p | 32) >= 'a' && (*p | 32) <= 'z')))
            p++;
        if (p > from && b->n < 20000) b->words[b->n++] = from;
        if (p < end) *p++ = 0;
    }
    qsort(b->words, (size_t)b->n, sizeof *b->words, by_word);
}

static double f1(gw_str *truth, gw_str *text) {
    static bag a, b;
    fill_bag(&a, truth);
    fill_bag(&b, text);
    int both = 0;
    for (int i = 0, k = 0; i < a.n && k < b.n;) {
        int order = strcmp(a.words[i], b.words[k]);
        both += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return a.n + b.n ? 2.0 * both / (a.n + b.n) : 1;
}

static gw_str read_file(const char *path) {
    gw_str s = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    gw_diags_release(&dg);
    return s;
}

/* The least F1 is that of the best of trafilatura and resiliparse on the same page, less 0.05 (one
 * page is not 500; the mean over all is held to 0.01), as the script measured it. */
TEST(extract_golden_pages) {
    gw_str list = read_file(test_source_path("golden/extract/list.txt"));
    double ours = 0, theirs = 0;
    int n = 0;
    for (char *save, *line = strtok_r(list.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[128], path[256];
        double best;
        if (line[0] == '#') continue;
        CHECK_EQ(sscanf(line, "%127s %lf", name, &best), 2);
        snprintf(path, sizeof path, "golden/extract/%s.html", name);
        gw_str html = read_file(test_source_path(path));
        snprintf(path, sizeof path, "golden/extract/%s.txt", name);
        gw_str truth = read_file(test_source_path(path));
        gw_str text = extract(html.data, html.len, NULL);
        double f = f1(&truth, &text);
        CHECK_MSG(f >= best - 0.05, "%s: F1 %.3f, the peers' best %.3f", name, f, best);
        ours += f;
        theirs += best;
        n++;
        gw_str_release(&html);
        gw_str_release(&truth);
        gw_str_release(&text);
    }
    CHECK(n >= 12);
    CHECK_MSG(ours >= theirs - 0.01 * n, "mean F1 %.4f, the peers' best %.4f", ours / n,
              theirs / n);
    gw_str_release(&list);
}

TEST(extract_options) {
    static const char page[] = "<body><nav><a href=1>menu</a> <a href=2>more</a></nav><main><p>The "
                               "text of the page, which is long "
                               "enough to be one, and says something of worth to its "
                               "readers.</p><p>A second paragraph, so that "
                               "there is a text and not only a line; it goes on a "
                               "little.</p><table><tr><td>cell</td><td>two</td>"
                               "</tr></table><ul><li>item</li></ul><div class=comments><p>a "
                               "reader's comment</p></div></main>";
    gw_extract_options o = gw_extract_options_default();
    gw_str t = extract(page, sizeof page - 1, &o);
    CHECK(!strstr(t.data, "menu") && strstr(t.data, "cell | two") && !strstr(t.data, "comment"));
    gw_str_release(&t);
    o.comments = o.list_marks = true;
    o.tables = false;
    t = extract(page, sizeof page - 1, &o);
    CHECK(strstr(t.data, "a reader's comment") && !strstr(t.data, "cell") &&
          strstr(t.data, "\n- item\n"));
    gw_str_release(&t);
}

/* --- beside libxml2 --------------------------------------------------------------------------- */

/* Letters and digits of all text outside script and style, in order. */
static void letters(const char *p, size_t n, gw_str *out) {
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            gw_str_add_char(out, (char)c);
    }
}

static void libxml_letters(const xmlNode *node, gw_str *out) {
    for (; node; node = node->next) {
        if (node->type == XML_TEXT_NODE || node->type == XML_CDATA_SECTION_NODE)
            letters((const char *)node->content, strlen((const char *)node->content), out);
        const char *name = (const char *)node->name;
        if (node->type == XML_ELEMENT_NODE && strcmp(name, "script") && strcmp(name, "style"))
            libxml_letters(node->children, out);
    }
}

static void tree_letters(const gw_html *h, gw_str *out) {
    gw_str decoded = {0};
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->nodes[i].tag != GW_TAG_TEXT) continue;
        gw_str_clear(&decoded);
        gw_html_decode(h->source + h->nodes[i].start, h->nodes[i].bytes, false, &decoded);
        letters(decoded.data, decoded.len, out);
    }
    gw_str_release(&decoded);
}

/* The same text as the packaged parser's on the Debian handbook, 26 languages of it. */
TEST(extract_text_is_libxml2s) {
    static const char root[] = "/usr/share/doc/debian-handbook/html";
    static const char *const languages[] = {"en-US", "ar-MA", "ja-JP", "ru-RU", "zh-CN",
                                            "de-DE", "el-GR", "fa-IR", "vi-VN"};
    if (!gw_path_is_dir(root)) SKIP("debian-handbook is not installed");
    gw_html h = {0};
    int pages = 0;
    for (size_t l = 0; l < GW_COUNT(languages); l++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/%s", root, languages[l]);
        DIR *d = opendir(dir);
        int taken = 0;
        CHECK(d != NULL);
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            if (!gw_str_ends(e->d_name, ".html") || taken == 100) continue;
            char path[512];
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            gw_str html = read_file(path), a = {0}, b = {0};
            if (html.len > 200000) {
                gw_str_release(&html);
                continue;
            }
            xmlDoc *doc =
                htmlReadMemory(html.data, (int)html.len, NULL, "UTF-8", 1 | 32 | 64 | 2048);
            CHECK(doc != NULL);
            libxml_letters(xmlDocGetRootElement(doc), &b);
            xmlFreeDoc(doc);
            gw_html_parse(&h, (uint8_t *)html.data, (int64_t)html.len, 2000000, 256);
            tree_letters(&h, &a);
            CHECK_MSG(a.len == b.len && memcmp(gw_str_c(&a), gw_str_c(&b), a.len) == 0,
                      "%s: texts differ", path);
            gw_str_release(&html);
            gw_str_release(&a);
            gw_str_release(&b);
            taken++;
        }
        pages += taken;
        closedir(d);
    }
    CHECK(pages > 800);
    gw_html_release(&h);
}

/* --- hostile pages ---------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Pieces repeated: a page of n bytes and one of 4n; more than 10 times the time is not linear. */
TEST(extract_time_is_linear) {
    static const char *const pieces[] = {"<div>",
                                         "<p>x",
                                         "<a href=x>",
                                         "<b><i>",
                                         "<table><tr><td>",
                                         "<li>x",
                                         "</div>",
                                         "<!--",
                                         "<!-- -",
                                         "<script><!--<script>",
                                         "&amp",
                                         "&#",
                                         "<",
                                         "<a ",
                                         "<a b='",
                                         "<nav>x",
                                         "<ul><li><a href=x>y</a>",
                                         "<h1>",
                                         "<select><option>",
                                         "<svg><a>",
                                         "<div class='a b c d e'>x",
                                         "<table>",
                                         "<dd><div>",
                                         "<form><header>x",
                                         "<article><p>text, text</p>",
                                         "</p>",
                                         "<template>"};
    gw_extract *e = gw_extract_new();
    gw_str page = {0}, text = {0};
    for (size_t i = 0; i < GW_COUNT(pieces); i++) {
        double t[2];
        for (int size = 0; size < 2; size++) {
            gw_str_clear(&page);
            while (page.len < (size ? 400000u : 100000u)) gw_str_add(&page, pieces[i]);
            double least = 1e9;
            for (int r = 0; r < 3; r++) {
                double from = seconds();
                gw_extract_text(e, (uint8_t *)page.data, (int64_t)page.len, "", NULL, &text, NULL);
                least = GW_MIN(least, seconds() - from);
            }
            t[size] = least;
        }
        CHECK_MSG(t[1] < 10 * t[0] + 0.02, "'%s': %.4f s, then %.4f s", pieces[i], t[0], t[1]);
        CHECK_MSG(t[1] < 2.0, "'%s': %.3f s for 400 kB", pieces[i], t[1]);
    }
    gw_str_release(&page);
    gw_str_release(&text);
    gw_extract_free(e);
}

TEST(extract_budget_cuts) {
    gw_extract *e = gw_extract_new();
    gw_extract_options o = everything();
    gw_extract_info info;
    gw_str page = {0}, text = {0};
    for (int i = 0; i < 1000; i++) gw_str_add(&page, "<p>x");
    o.max_nodes = 100;
    gw_extract_text(e, (uint8_t *)page.data, (int64_t)page.len, "", &o, &text, &info);
    CHECK(info.cut);
    CHECK_EQ(info.nodes, 100);
    gw_str_release(&page);
    gw_str_release(&text);
    gw_extract_free(e);
}

/* trafilatura#925: ten threads, each with its own scratch. */
static void *one_thread(void *arg) {
    gw_str *page = arg;
    gw_str text = {0}, first = {0};
    gw_extract *e = gw_extract_new();
    for (int i = 0; i < 50; i++) {
        gw_extract_text(e, (uint8_t *)page->data, (int64_t)page->len, "", NULL, &text, NULL);
        if (i == 0) gw_str_add_n(&first, text.data, text.len);
        CHECK(text.len == first.len && memcmp(text.data, first.data, text.len) == 0);
    }
    gw_extract_free(e);
    gw_str_release(&first);
    gw_str_release(&text);
    return NULL;
}

TEST(extract_threads) {
    gw_str page = read_file(test_source_path("golden/extract/wordpress.html"));
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) CHECK_EQ(pthread_create(&threads[i], NULL, one_thread, &page), 0);
    for (int i = 0; i < 10; i++) pthread_join(threads[i], NULL);
    gw_str_release(&page);
}
