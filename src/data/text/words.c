// SPDX-License-Identifier: Apache-2.0
// Words and sentences: the entry points, and the cut at white space.
//
// The rules of a project that counts words hold only for words cut as that project cuts them, so
// each way of cutting is copied exactly: spaCy's rule tokenizer (words_spacy.c and what it uses),
// Python's str.split, and the segments of Unicode's annex 29 (words_uax29.c). Nothing is built per
// word: a word is a pair of offsets into the text.
//
// Sentences are those of spaCy's sentencizer: one ends at a token that is a mark such as ".", and
// the next begins at the first token that is neither a mark nor punctuation. White space is a token
// there, though never one of our words: it can begin a sentence, and what follows the last word can
// be a sentence of its own.
#include "data/text/words.h" /* gw_words, gw_splitter */

#include <string.h>

#include "base/arena.h"           /* gw_mem_zalloc */
#include "base/compiler.h"        /* GW_COUNT */
#include "base/str.h"             /* gw_str_eq */
#include "data/text/words_impl.h" /* gw_words_inner */

gw_words *gw_words_new(void) {
    gw_words *w = gw_mem_zalloc(sizeof *w);
    gw_words_inner *in = gw_mem_zalloc(sizeof *in);
    w->inner = in;
    words_rules_init(in, &in->rules[GW_SPLIT_SPACY_EN], true);
    words_rules_init(in, &in->rules[GW_SPLIT_SPACY_XX], false);
    return w;
}

void gw_words_free(gw_words *w) {
    if (!w) return;
    gw_words_inner *in = w->inner;
    for (size_t i = 0; i < GW_COUNT(in->language); i++)
        if (in->language[i]) words_lang_close(in->language[i]->lang);
    gw_arena_release(&in->arena);
    gw_mem_free(in->items);
    gw_mem_free(in->spare);
    gw_mem_free(in->facts);
    gw_mem_free(in->old_facts);
    gw_mem_free(in->cache_memory);
    gw_mem_free(in->cls);
    gw_mem_free(in->at);
    gw_mem_free(in->symbols);
    gw_mem_free(in->suffixes);
    gw_mem_free(in->starts.items);
    gw_mem_free(in->matches.items);
    gw_mem_free(in->seen);
    gw_mem_free(in);
    gw_mem_free(w);
}

void words_grow(gw_words_inner *w) {
    w->cap = w->cap ? w->cap * 2 : 1024;
    w->items = gw_mem_realloc(w->items, (size_t)w->cap * sizeof *w->items);
    w->spare = gw_mem_realloc(w->spare, (size_t)w->cap * sizeof *w->spare);
}

/* The rules of a kind that is one of spaCy's. */
static const words_rules *rules_of(gw_words_inner *in, gw_splitter kind) {
    if (kind == GW_SPLIT_TROVE_XX) kind = GW_SPLIT_SPACY_XX;
    if (kind < GW_SPLIT_LANGUAGE) return &in->rules[kind];
    int i = (int)kind - GW_SPLIT_LANGUAGE;
    if (!in->language[i]) {
        in->language[i] = gw_arena_new(&in->arena, words_rules, 1);
        words_rules_init_language(in, in->language[i], words_lang_at(i));
    }
    return in->language[i];
}

void gw_words_split(gw_words *w, gw_splitter kind, const char *text, int64_t n) {
    gw_words_inner *in = w->inner;
    in->count = 0;
    switch (kind < GW_SPLIT_LANGUAGE ? kind : GW_SPLIT_LANGUAGE) {
    case GW_SPLIT_SPACY_EN:
    case GW_SPLIT_SPACY_XX:
    case GW_SPLIT_TROVE_XX:
    case GW_SPLIT_LANGUAGE: {
        const words_rules *r = rules_of(in, kind);
        in->count = 0; /* making rules cuts some words */
        words_cut(in, r, text, n);
        break;
    }
    case GW_SPLIT_WHITESPACE: words_cut(in, NULL, text, n); break;
    case GW_SPLIT_UNICODE: words_unicode(in, text, n); break;
    }
    w->items = in->items;
    w->facts = NULL;
    w->count = in->count;
}

void gw_words_measure(gw_words *w, gw_splitter kind, const char *text, int64_t n) {
    gw_words_split(w, kind, text, n);
    if (kind == GW_SPLIT_UNICODE) words_look_all(w->inner, text);
    w->facts = w->inner->facts;
}

/* Whether a token is a mark that ends sentences, and whether it is all punctuation. */
static void judge(const char *p, int64_t n, bool *stop, bool *punct) {
    const char *end = p + n;
    int len;
    uint32_t c = words_class_at(p, end, &len);
    *stop = len == n && c & GW_CH_STOP;
    *punct = true;
    for (; *punct && p < end; p += len) *punct = words_class_at(p, end, &len) & GW_CH_PUNCT;
}

/* Sentences of the piece text[from..to), and where they begin. facts: NULL where not known. */
static int64_t sentences(const gw_word *items, const gw_word_facts *facts, int64_t n,
                         const char *text, int64_t from, int64_t to, uint32_t *starts,
                         int64_t limit) {
    int64_t count = 1, before = from;
    if (limit > 0) starts[0] = (uint32_t)from;
    bool stopped = false;
    for (int64_t i = 0; i < n; i++) {
        gw_word word = items[i];
        bool stop = facts && facts[i].flags & GW_WORD_STOP;
        bool punct = facts && facts[i].flags & GW_WORD_PUNCT;
        if (!facts) judge(text + word.offset, word.bytes, &stop, &punct);
        /* A token of white space between the two begins the sentence already. */
        int64_t gap = (int64_t)word.offset - before;
        bool space_token = gap > 1 || (gap == 1 && text[before] != ' ');
        if (stopped && (space_token || (!punct && !stop))) {
            if (count < limit) starts[count] = (uint32_t)before;
            count++;
            stopped = false;
        }
        stopped |= stop;
        before = (int64_t)word.offset + word.bytes;
    }
    /* What follows the last word is a token unless it is nothing, or one space. */
    int64_t rest = to - before;
    if (stopped && (rest > 1 || (rest == 1 && text[before] != ' '))) {
        if (count < limit) starts[count] = (uint32_t)before;
        count++;
    }
    return count;
}

int64_t gw_words_sentence_starts(gw_words *w, gw_splitter kind, const char *text, int64_t n,
                                 uint32_t *starts, int64_t limit) {
    gw_words_split(w, kind, text, n);
    return sentences(w->items, NULL, w->count, text, 0, n, starts, limit);
}

int64_t gw_words_sentences(gw_words *w, gw_splitter kind, const char *text, int64_t n) {
    if (kind == GW_SPLIT_TROVE_XX) {
        gw_words_split(w, kind, text, n);
        return words_trove_sentences(text, n);
    }
    return gw_words_sentence_starts(w, kind, text, n, NULL, 0);
}

int64_t gw_words_range_sentences(const gw_word *items, const gw_word_facts *facts, int64_t count,
                                 const char *text, int64_t from, int64_t to) {
    return sentences(items, facts, count, text, from, to, NULL, 0);
}

static const char *const names[] = {"spacy_en", "spacy_xx", "whitespace", "unicode", "trove_xx"};

const char *gw_splitter_name(gw_splitter kind) {
    return kind < GW_SPLIT_LANGUAGE ? names[kind]
                                    : words_lang_at((int)kind - GW_SPLIT_LANGUAGE)->name;
}

bool gw_splitter_find(const char *name, gw_splitter *out) {
    for (int i = 0; i < gw_splitter_count(); i++)
        if (gw_str_eq(name, gw_splitter_name((gw_splitter)i))) {
            *out = (gw_splitter)i;
            return true;
        }
    return false;
}
