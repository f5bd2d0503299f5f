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

#include "base/arena.h"           /* gw_mem_realloc */
#include "base/hash.h"            /* gw_hash64 */
#include "data/text/words_impl.h" /* words_class_at */

void gw_tally_reset(gw_tally *t, int64_t n) {
    int64_t need = 64;
    while (need < 2 * n) need *= 2;
    if (need > t->cap) {
        gw_mem_free(t->slots);
        t->slots = gw_mem_zalloc((size_t)need * sizeof *t->slots);
        t->cap = need;
        t->stamp = 0;
    }
    t->mask = (uint64_t)need - 1;
    if (++t->stamp == 0) {
        memset(t->slots, 0, (size_t)t->cap * sizeof *t->slots);
        t->stamp = 1;
    }
}

gw_tally_slot *gw_tally_add(gw_tally *t, uint64_t hash, int64_t index) {
    for (uint64_t i = hash ^ hash >> 32;; i++) {
        gw_tally_slot *s = &t->slots[i & t->mask];
        if (s->stamp != t->stamp) {
            *s = (gw_tally_slot){hash, t->stamp, 1, (uint32_t)index, false};
            return s;
        }
        if (s->hash == hash) {
            s->count++;
            return s;
        }
    }
}

int64_t gw_text_chars(const char *p, int64_t n) {
    int64_t inner = 0, i = 0; /* bytes that do not begin a character */
    for (; i + 8 <= n; i += 8) {
        uint64_t x;
        memcpy(&x, p + i, 8);
        x = x >> 7 & ~(x >> 6) & 0x0101010101010101u;
        inner += (int64_t)(x * 0x0101010101010101u >> 56);
    }
    for (; i < n; i++) inner += ((uint8_t)p[i] & 0xc0) == 0x80;
    return n - inner;
}

gw_word_facts gw_word_look(const char *p, int64_t n) {
    gw_word_facts f = {words_hash(p, n), 0, 0, ~0u};
    const char *end = p + n;
    while (p < end) {
        uint32_t c;
        int len = 1;
        if ((uint8_t)*p < 128)
            c = gw_ch_ascii[(uint8_t)*p];
        else
            c = words_class_at(p, end, &len);
        f.any |= c;
        f.all &= c;
        f.chars++;
        p += len;
    }
    return f;
}

void gw_measure_begin(gw_measure *m, const gw_filter_facts *facts, gw_str *text) {
    m->facts = facts;
    m->text = text;
    gw_str_reserve(text, 0);
    memset(m->known, 0, sizeof m->known);
    memset(m->grams_known, 0, sizeof m->grams_known);
}

void gw_measure_release(gw_measure *m) {
    for (int k = 0; k < GW_SPLITTERS; k++) {
        gw_words_free(m->words[k]);
        gw_mem_free(m->word_facts[k]);
    }
    gw_mem_free(m->tally.slots);
    gw_mem_free(m->gram_hash);
    gw_mem_free(m->gram_sum);
    gw_mem_free(m->gram_at);
    gw_mem_free(m->gram_slot);
    gw_str_release(&m->spare);
    gw_words_free(m->scratch);
}

void gw_measure_changed(gw_measure *m) {
    memset(m->known, 0, sizeof m->known);
    memset(m->grams_known, 0, sizeof m->grams_known);
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
        gw_words *w = m->words[kind];
        const char *text = gw_str_c(m->text);
        gw_words_split(w, kind, text, (int64_t)m->text->len);
        if (w->count > m->facts_cap[kind]) {
            m->facts_cap[kind] = w->count + w->count / 2;
            m->word_facts[kind] = gw_mem_realloc(
                m->word_facts[kind], (size_t)m->facts_cap[kind] * sizeof *m->word_facts[kind]);
        }
        for (int64_t i = 0; i < w->count; i++)
            m->word_facts[kind][i] = gw_word_look(text + w->items[i].offset, w->items[i].bytes);
        m->known[kind] = true;
    }
    if (facts) *facts = m->word_facts[kind];
    return m->words[kind];
}

const gw_gram_stats *gw_measure_grams(gw_measure *m, gw_splitter kind) {
    if (!m->grams_known[kind]) {
        const gw_word_facts *facts;
        const gw_words *w = gw_measure_words(m, kind, &facts);
        gw_gram_count(m, facts, w->count, m->grams[kind]);
        m->grams_known[kind] = true;
    }
    return m->grams[kind];
}

gw_lines gw_lines_of(const char *text, int64_t n, gw_line_end kind) {
    return (gw_lines){text, text + n, kind, kind == GW_LINES_PYTHON && n == 0};
}

/* Bytes that break lines, or begin a character that may: U+0085, U+2028, U+2029. */
static const uint8_t may_break[256] = {
    ['\n'] = 1, ['\v'] = 1, ['\f'] = 1, ['\r'] = 1, [0x1c] = 1,
    [0x1d] = 1, [0x1e] = 1, [0xc2] = 1, [0xe2] = 1,
};

/* Where the line at l->p ends, and where the next begins: NULL if it is the last. */
static const char *python_end(const char *p, const char *end, const char **next) {
    *next = NULL;
    for (;;) {
        while (p < end && !may_break[(uint8_t)*p]) p++;
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

int64_t gw_text_count(const char *p, int64_t n, const char *what) {
    int64_t count = 0, size = (int64_t)strlen(what);
    const char *end = p + n - size + 1;
    while (p < end && (p = memchr(p, what[0], (size_t)(end - p)))) {
        bool same = !memcmp(p, what, (size_t)size);
        count += same;
        p += same ? size : 1;
    }
    return count;
}

static bool same_nocase(const char *p, const char *what, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        char c = p[k];
        if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
        if (c != what[k]) return false;
    }
    return true;
}

/* Looks for the rarest letter of `what`, in either case, and compares around it. */
bool gw_text_has_nocase(const char *p, int64_t n, const char *what) {
    /* By how rare a letter is in English text; others count as common. */
    static const uint8_t rank[128] = {
        ['e'] = 1,  ['t'] = 2,  ['a'] = 3,  ['o'] = 4,  ['i'] = 5,  ['n'] = 6,  ['s'] = 7,
        ['r'] = 8,  ['h'] = 9,  ['l'] = 10, ['d'] = 11, ['c'] = 12, ['u'] = 13, ['m'] = 14,
        ['f'] = 15, ['p'] = 16, ['g'] = 17, ['w'] = 18, ['y'] = 19, ['b'] = 20, ['v'] = 21,
        ['k'] = 22, ['x'] = 23, ['j'] = 24, ['q'] = 25, ['z'] = 26,
    };
    int64_t size = (int64_t)strlen(what), rare = 0;
    for (int64_t k = 1; k < size; k++)
        if (rank[what[k] & 127] > rank[what[rare] & 127]) rare = k;
    for (int upper = 0; upper < 2; upper++) {
        char c = (char)(what[rare] - (upper ? 32 : 0));
        const char *at = p + rare, *end = p + n - (size - 1 - rare);
        while (at < end && (at = memchr(at, c, (size_t)(end - at)))) {
            if (same_nocase(at - rare, what, size)) return true;
            at++;
        }
    }
    return false;
}

void gw_pieces_begin(gw_measure *m, gw_pieces *p, int64_t most) {
    *p = (gw_pieces){.tally = &m->tally};
    gw_tally_reset(&m->tally, most);
}

void gw_pieces_add(gw_pieces *p, gw_line piece) {
    int64_t chars = gw_text_chars(piece.text, piece.bytes);
    gw_tally_slot *s = gw_tally_add(p->tally, gw_hash64(piece.text, (size_t)piece.bytes, 0), 0);
    p->s.pieces++;
    p->s.chars += chars;
    if (s->count == 1) return;
    p->s.later++;
    p->s.later_chars += chars;
    int64_t more = s->count == 2 ? 2 : 1; /* the first occurrence counts with the second */
    p->s.repeat += more;
    p->s.repeat_chars += more * chars;
}
