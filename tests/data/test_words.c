// SPDX-License-Identifier: Apache-2.0
// Words and sentences against the libraries that define them, and laws of the cut.
//
// ../golden/words.txt holds texts and how spaCy (as datatrove uses it), Python's str.split and the
// regex module's Unicode boundaries cut them; make_words.py writes it.
#include "data/text/words.h" /* gw_words */

#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_count */
#include "base/rng.h"   /* gw_rng */
#include "base/str.h"   /* gw_str */
#include "escaped.h"    /* read_golden, unescape */
#include "harness.h"    /* TEST, CHECK */

/* Our words in the file's form. */
static void show(const gw_words *w, const char *text, gw_str *out) {
    gw_str_clear(out);
    for (int64_t i = 0; i < w->count; i++) {
        if (i) gw_str_add_char(out, '\x1f');
        gw_str_add_n(out, text + w->items[i].offset, w->items[i].bytes);
    }
}

static void join(char *line, gw_str *out) {
    gw_str word = {0};
    gw_str_clear(out);
    while (*line) {
        char *sep = strchr(line, '\x1f');
        int64_t n = sep ? sep - line : (int64_t)strlen(line);
        if (out->len) gw_str_add_char(out, '\x1f');
        unescape(line, n, &word);
        gw_str_add_n(out, word.data, word.len);
        line += n + (sep ? 1 : 0);
    }
    gw_str_release(&word);
}

static void printable(gw_str *s) {
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] == '\x1f') s->data[i] = '|';
}

TEST(words_are_those_of_the_libraries) {
    gw_str all = read_golden("words.txt"), text = {0}, want = {0}, got = {0};
    gw_words *w = gw_words_new();
    char *p = all.data;
    take_line(&p);
    int texts = 0, wrong = 0;
    while (*p) {
        char *line = take_line(&p);
        unescape(line, (int64_t)strlen(line), &text);
        for (int kind = 0; kind < GW_SPLITTERS; kind++) {
            join(take_line(&p), &want);
            gw_words_split(w, (gw_splitter)kind, gw_str_c(&text), (int64_t)text.len);
            show(w, gw_str_c(&text), &got);
            if (want.len == got.len && !memcmp(gw_str_c(&want), gw_str_c(&got), want.len)) continue;
            printable(&want);
            printable(&got);
            if (wrong++ < 20)
                test_note("%s of '%s':\n  theirs %s\n  ours   %s",
                          gw_splitter_name((gw_splitter)kind), line, gw_str_c(&want),
                          gw_str_c(&got));
        }
        long sentences = strtol(take_line(&p), NULL, 10);
        int64_t ours = gw_words_sentences(w, GW_SPLIT_SPACY_EN, gw_str_c(&text), (int64_t)text.len);
        if (ours != sentences && wrong++ < 20)
            test_note("sentences of '%s': theirs %ld, ours %d", line, sentences, (int)ours);
        texts++;
    }
    CHECK_MSG(wrong == 0, "%d cuts differ, of %d texts", wrong, texts);
    CHECK(texts >= 500);
    gw_str_release(&all);
    gw_str_release(&text);
    gw_str_release(&want);
    gw_str_release(&got);
    gw_words_free(w);
}
