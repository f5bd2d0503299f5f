// SPDX-License-Identifier: Apache-2.0
// Words and sentences of languages against the libraries that define them.
//
// ../golden/languages.txt holds texts and how spaCy cuts each in forty languages, and
// datatrove where nobody has rules (make_languages.py). A line "*" is what all splitters give that
// no other line of the text names.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"           /* gw_mem_free */
#include "base/diag.h"            /* gw_diags */
#include "base/str.h"             /* gw_str */
#include "data/text/words.h"      /* gw_words */
#include "data/text/words_impl.h" /* words_lang_open */
#include "escaped.h"              /* read_golden, unescape */
#include "harness.h"              /* TEST, CHECK */

enum { MOST = 100 };

typedef struct cut {
    const char *names, *words; /* names with a space at each end; words unescaped, \x1f between */
    long sentences;
} cut;

typedef struct text {
    gw_str bytes;
    cut cuts[MOST];
    gw_str store[MOST];
    int ncuts;
} text;

static bool next_text(char **p, text *t) {
    if (!**p) return false;
    char *line = take_line(p);
    unescape(line, (int64_t)strlen(line), &t->bytes);
    for (t->ncuts = 0; *(line = take_line(p)); t->ncuts++) {
        CHECK(t->ncuts < MOST);
        char *count = strchr(line, '\t'), *words = count ? strchr(count + 1, '\t') : NULL;
        CHECK(words);
        *count = *words = 0;
        gw_str *s = &t->store[t->ncuts];
        gw_str word = {0};
        gw_str_clear(s);
        for (char *w = words + 1; *w;) {
            size_t n = strcspn(w, "\x1f");
            unescape(w, (int64_t)n, &word);
            if (s->len) gw_str_add_char(s, '\x1f');
            gw_str_add_n(s, gw_str_c(&word), word.len);
            w += n + (w[n] != 0);
        }
        gw_str_release(&word);
        t->cuts[t->ncuts] = (cut){line, gw_str_c(s), strtol(count + 1, NULL, 10)};
    }
    return true;
}

static bool names_it(const char *names, const char *name) {
    size_t n = strlen(name);
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if ((p == names || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

static const cut *cut_of(const text *t, const char *name) {
    const cut *rest = NULL;
    for (int i = 0; i < t->ncuts; i++) {
        if (names_it(t->cuts[i].names, name)) return &t->cuts[i];
        if (t->cuts[i].names[0] == '*') rest = &t->cuts[i];
    }
    return rest;
}

static void shown(gw_str *s) {
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] == '\x1f') s->data[i] = '|';
}

static int compare(gw_words *w, const text *t, int kind, int *wrong) {
    const char *name = gw_splitter_name((gw_splitter)kind), *p = gw_str_c(&t->bytes);
    const cut *want = cut_of(t, name);
    if (!want) return 0;
    gw_str got = {0};
    gw_words_split(w, (gw_splitter)kind, p, (int64_t)t->bytes.len);
    for (int64_t i = 0; i < w->count; i++) {
        if (i) gw_str_add_char(&got, '\x1f');
        gw_str_add_n(&got, p + w->items[i].offset, w->items[i].bytes);
    }
    int64_t sentences = gw_words_sentences(w, (gw_splitter)kind, p, (int64_t)t->bytes.len);
    bool same = gw_str_eq(gw_str_c(&got), want->words) && sentences == want->sentences;
    if (!same && (*wrong)++ < 20) {
        gw_str theirs = {0};
        gw_str_add(&theirs, want->words);
        shown(&got);
        shown(&theirs);
        test_note("%s of '%s':\n  theirs %ld %s\n  ours   %ld %s", name, p, want->sentences,
                  gw_str_c(&theirs), (long)sentences, gw_str_c(&got));
        gw_str_release(&theirs);
    }
    gw_str_release(&got);
    return 1;
}

TEST(words_of_languages_are_the_libraries) {
    gw_str all = read_golden("languages.txt");
    gw_words *w = gw_words_new();
    char *p = all.data;
    take_line(&p);
    static text t;
    int texts = 0, cuts = 0, wrong = 0;
    for (; next_text(&p, &t); texts++)
        for (int kind = GW_SPLIT_TROVE_XX; kind < gw_splitter_count(); kind++)
            cuts += compare(w, &t, kind, &wrong);
    CHECK_MSG(wrong == 0, "%d of %d cuts differ", wrong, cuts);
    CHECK(texts >= 500 && cuts >= 20000);
    for (int i = 0; i < MOST; i++) gw_str_release(&t.store[i]);
    gw_str_release(&t.bytes);
    gw_str_release(&all);
    gw_words_free(w);
}

TEST(words_of_languages_are_found_by_code) {
    static const struct {
        const char *code, *splitter;
    } codes[] = {{"en", "spacy_en"},          {"eng", "spacy_en"}, {"de", "spacy_de"},
                 {"deu", "spacy_de"},         {"fr", "spacy_fr"},  {"deu_Latn", "spacy_de"},
                 {"whitespace", "whitespace"}};
    gw_diags dg = {0};
    gw_splitter s;
    for (size_t i = 0; i < GW_COUNT(codes); i++) {
        CHECK_OK(gw_splitter_for_language(codes[i].code, &s, &dg), &dg);
        CHECK_STR(gw_splitter_name(s), codes[i].splitter);
    }
    /* What datatrove cuts by a model or a dictionary, and what is no language. */
    static const char *const refused[] = {"zh", "ja",    "th", "ko", "vi",
                                          "hi", "xyzzy", "",   " ",  "e"};
    for (size_t i = 0; i < GW_COUNT(refused); i++) {
        CHECK_MSG(gw_splitter_for_language(refused[i], &s, &dg) != GW_OK, "%s", refused[i]);
        gw_diags_clear(&dg);
    }
    for (int i = 0; i < gw_splitter_count(); i++) {
        CHECK(gw_splitter_find(gw_splitter_name((gw_splitter)i), &s));
        CHECK_EQ(s, i);
    }
}

TEST(words_of_languages_have_sound_patterns) {
    const words_lang_rules *r;
    for (int i = 0; (r = words_lang_at(i)); i++) {
        words_lang *l = words_lang_open(r);
        CHECK_MSG(words_lang_is_sound(l), "%s", r->name);
        words_lang_close(l);
    }
}

/* Long spans without white space are cut in bounded steps, and whole. */
TEST(words_of_languages_take_long_spans) {
    static const char *const pieces[] = {"!",  "a-", "<a", "\xc3\xa9'", "1.",
                                         "-a", "a/", "«",  "..",        "w9"};
    gw_words *w = gw_words_new();
    gw_str s = {0};
    for (size_t k = 0; k < GW_COUNT(pieces); k++) {
        gw_str_clear(&s);
        while (s.len < 6000) gw_str_add(&s, pieces[k]);
        for (int kind = 0; kind < gw_splitter_count(); kind++) {
            gw_words_split(w, (gw_splitter)kind, gw_str_c(&s), (int64_t)s.len);
            int64_t at = 0;
            for (int64_t i = 0; i < w->count; i++) {
                int64_t offset = w->items[i].offset;
                CHECK(kind == GW_SPLIT_UNICODE ? offset >= at : offset == at);
                CHECK(w->items[i].bytes > 0);
                at = offset + w->items[i].bytes;
            }
            CHECK(kind == GW_SPLIT_UNICODE ? at <= (int64_t)s.len : at == (int64_t)s.len);
        }
    }
    gw_str_release(&s);
    gw_words_free(w);
}
