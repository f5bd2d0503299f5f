// SPDX-License-Identifier: Apache-2.0
// Words, lines and repeated pieces of a text, counted once for all filters that ask.
//
// Filters of different projects ask for the same few things: words (cut their way), what is in
// them, lines, how often something repeats. Each is made at the first question and kept until the
// text changes. Equal means equal 64-bit hashes: in a document of a million words two different
// ones agree with a probability of about one in 30 million.
//
// Lengths are in code points, since all these projects count in Python strings; lines and white
// space are Python's too (str.splitlines also breaks at form feeds and at U+2028, str.strip also
// takes U+00A0).
#include "data/filter/measure.h" /* gw_measure */

#include <string.h>

#include "base/arena.h"            /* gw_mem_realloc */
#include "base/hash.h"             /* gw_hash64 */
#include "data/filter/scan_text.h" /* text_find_break */
#include "data/text/plain.h"       /* gw_plain_text */
#include "data/text/words_impl.h"  /* words_class_at */

void gw_tally_reset(gw_tally *t, int64_t n) {
    int64_t need = 64;
    while (need < 2 * n) need *= 2;
    if (need > t->cap) {
        gw_mem_free(t->slots);
        t->slots = gw_mem_alloc((size_t)need * sizeof *t->slots);
        t->cap = need;
    }
    t->mask = (uint64_t)need - 1;
    memset(t->slots, 0, (size_t)need * sizeof *t->slots);
}

void gw_measure_begin(gw_measure *m, const gw_filter_facts *facts, gw_str *text) {
    m->facts = facts;
    m->text = text;
    gw_str_reserve(text, 0);
    gw_measure_changed(m);
}

void gw_measure_release(gw_measure *m) {
    for (int k = 0; k < GW_SPLITTER_KINDS; k++) gw_words_free(m->words[k]);
    gw_mem_free(m->tally.slots);
    gw_mem_free(m->gram_places);
    gw_mem_free(m->gram_sum);
    gw_mem_free(m->gram_bits);
    gw_plain_free(m->plain);
    gw_str_release(&m->plain_text);
    gw_words_free(m->plain_words);
    gw_str_release(&m->spare);
    gw_words_free(m->scratch);
}

void gw_measure_changed(gw_measure *m) {
    memset(m->known, 0, sizeof m->known);
    memset(m->grams_known, 0, sizeof m->grams_known);
    m->plain_known = false;
}

void gw_measure_replace(gw_measure *m) {
    gw_str was = *m->text;
    *m->text = m->spare;
    m->spare = was;
    gw_measure_changed(m);
}

void gw_measure_know_words(gw_measure *m, gw_splitter kind, int64_t n) {
    m->words[kind]->count = n;
    m->known[kind] = true;
}

const gw_words *gw_measure_words(gw_measure *m, gw_splitter kind, const gw_word_facts **facts) {
    if (!m->known[kind]) {
        if (!m->words[kind]) m->words[kind] = gw_words_new();
        gw_words_measure(m->words[kind], kind, gw_str_c(m->text), (int64_t)m->text->len);
        m->known[kind] = true;
    }
    if (facts) *facts = m->words[kind]->facts;
    return m->words[kind];
}

const gw_words *gw_measure_plain_words(gw_measure *m) {
    if (m->plain_known) return m->plain_words;
    if (!m->plain) {
        m->plain = gw_plain_new();
        m->plain_words = gw_words_new();
    }
    gw_plain_text(m->plain, gw_str_c(m->text), (int64_t)m->text->len, &m->plain_text);
    gw_words_measure(m->plain_words, GW_SPLIT_WHITESPACE, gw_str_c(&m->plain_text),
                     (int64_t)m->plain_text.len);
    m->plain_known = true;
    return m->plain_words;
}

const gw_gram_stats *gw_measure_grams(gw_measure *m, gw_splitter kind, gw_gram_needs needs) {
    if (m->grams_known[kind] < needs) {
        const gw_word_facts *facts;
        const gw_words *w = gw_measure_words(m, kind, &facts);
        gw_gram_count(m, facts, w->count, needs, m->grams[kind]);
        m->grams_known[kind] = needs;
    }
    return m->grams[kind];
}

gw_lines gw_lines_of(const char *text, int64_t n, gw_line_end kind) {
    return (gw_lines){text, text + n, kind, kind == GW_LINES_PYTHON && n == 0};
}

/* Where the line at l->p ends, and where the next begins: NULL if it is the last. */
static const char *python_end(const char *p, const char *end, const char **next) {
    *next = NULL;
    for (;;) {
        p = text_find_break(p, end);
        if (p >= end) return end;
        int len;
        if (words_class_at(p, end, &len) & GW_CH_LINEBREAK) {
            *next = p + (*p == '\r' && end - p > 1 && p[1] == '\n' ? 2 : len);
            return p;
        }
        p += len;
    }
}

static const char *newline_end(const char *p, const char *end, int least, bool all,
                               const char **next) {
    *next = NULL;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl) return end;
        const char *q = nl + 1;
        while (all && q < end && *q == '\n') q++;
        if (q - nl >= least) {
            *next = q;
            return nl;
        }
        p = q;
    }
    return end;
}

bool gw_lines_next(gw_lines *l, gw_line *out) {
    if (l->done) return false;
    const char *next = NULL, *stop = NULL;
    switch (l->kind) {
    case GW_LINES_NEWLINE: stop = newline_end(l->p, l->end, 1, false, &next); break;
    case GW_LINES_PYTHON: stop = python_end(l->p, l->end, &next); break;
    case GW_LINES_NEWLINES: stop = newline_end(l->p, l->end, 1, true, &next); break;
    case GW_LINES_BLANK: stop = newline_end(l->p, l->end, 2, true, &next); break;
    }
    *out = (gw_line){l->p, stop - l->p};
    l->p = next;
    /* splitlines() has no empty line behind a last line break; the others do. */
    l->done = !next || (l->kind == GW_LINES_PYTHON && next == l->end);
    return true;
}

gw_line gw_line_lstrip(gw_line l) {
    const char *end = l.text + l.bytes;
    int len;
    while (l.text < end && words_class_at(l.text, end, &len) & GW_CH_SPACE) l.text += len;
    l.bytes = end - l.text;
    return l;
}

gw_line gw_line_rstrip(gw_line l) {
    while (l.bytes > 0) {
        int64_t from = l.bytes - 1;
        while (from > 0 && l.bytes - from < 4 && ((uint8_t)l.text[from] & 0xc0) == 0x80) from--;
        int len;
        uint32_t c = words_class_at(l.text + from, l.text + l.bytes, &len);
        if (!(c & GW_CH_SPACE) || from + len != l.bytes) break;
        l.bytes = from;
    }
    return l;
}

gw_line gw_line_strip(gw_line l) { return gw_line_rstrip(gw_line_lstrip(l)); }

bool gw_line_ends(gw_line l, const char *suffix) {
    int64_t n = (int64_t)strlen(suffix);
    return l.bytes >= n && !memcmp(l.text + l.bytes - n, suffix, (size_t)n);
}
bool gw_line_begins(gw_line l, const char *prefix) {
    int64_t n = (int64_t)strlen(prefix);
    return l.bytes >= n && !memcmp(l.text, prefix, (size_t)n);
}

void gw_pieces_begin(gw_measure *m, gw_pieces *p, int64_t most) {
    *p = (gw_pieces){.tally = &m->tally};
    gw_tally_reset(&m->tally, most);
}

int64_t gw_pieces_add(gw_pieces *p, gw_line piece) {
    int64_t chars = gw_text_chars(piece.text, piece.bytes);
    gw_tally_slot *s = gw_tally_add(p->tally, gw_hash64(piece.text, (size_t)piece.bytes, 0), 0);
    p->s.pieces++;
    p->s.chars += chars;
    if (s->count == 1) return chars;
    p->s.later++;
    p->s.later_chars += chars;
    int64_t more = s->count == 2 ? 2 : 1; /* the first occurrence counts with the second */
    p->s.repeat += more;
    p->s.repeat_chars += more * chars;
    return chars;
}
