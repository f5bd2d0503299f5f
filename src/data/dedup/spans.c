// SPDX-License-Identifier: Apache-2.0
// Cutting a text into the parts that are compared as wholes.
//
// A span's bytes run to the start of the next one, so that cutting it out leaves no empty line or
// double space behind; its key is made of what stands between white space at its ends, so that the
// last line of a text equals the same line in the middle of another. Spans without a letter, a
// number or a character beyond ASCII (rules, bullets, empty lines) have no key: they repeat in
// every text and mean nothing.
//
// Runs of sentences are C4's: all windows of three, compared by datatrove's simplified text of each
// sentence, joined by single spaces.
#include "data/dedup/spans.h"

#include <string.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "base/str.h"            /* gw_str */
#include "data/dedup/dedup.h"    /* gw_dedup_text_key */
#include "data/dedup/simplify.h" /* gw_simplify_text */

struct gw_spans {
    gw_span_options o;
    gw_simplify *simplify;
    gw_words *words;
    gw_span *spans;
    int64_t count, cap;
    uint32_t *starts; /* of sentences; of their simplified forms in `joined` */
    uint32_t *joined_at;
    int64_t starts_cap;
    gw_str simple, joined;
};

gw_span_options gw_span_options_default(gw_span_kind kind) {
    bool sentences = kind == GW_SPAN_SENTENCES;
    return (gw_span_options){.kind = kind,
                             .sentences = 3,
                             .splitter = GW_SPLIT_SPACY_EN,
                             .min_bytes = sentences ? 0 : 32,
                             .normalise = sentences};
}

gw_spans *gw_spans_new(const gw_span_options *o) {
    gw_spans *s = gw_mem_zalloc(sizeof *s);
    s->o = *o;
    if (s->o.sentences < 1) s->o.sentences = 1;
    if (o->normalise) s->simplify = gw_simplify_new();
    if (o->kind == GW_SPAN_SENTENCES) s->words = gw_words_new();
    return s;
}

void gw_spans_free(gw_spans *s) {
    if (!s) return;
    if (s->simplify) gw_simplify_free(s->simplify);
    if (s->words) gw_words_free(s->words);
    gw_mem_free(s->spans);
    gw_mem_free(s->starts);
    gw_mem_free(s->joined_at);
    gw_str_release(&s->simple);
    gw_str_release(&s->joined);
    gw_mem_free(s);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Is there anything that tells one span from another? */
static bool says_something(const char *p, const char *end) {
    for (; p < end; p++) {
        unsigned c = (unsigned char)*p;
        if (c >= 0x80 || c - '0' < 10 || (c | 32) - 'a' < 26) return true;
    }
    return false;
}

static void put(gw_spans *s, uint32_t begin, uint32_t end, gw_hash128 key) {
    if (s->count == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 256;
        s->spans = gw_mem_realloc(s->spans, (size_t)s->cap * sizeof *s->spans);
    }
    s->spans[s->count++] = (gw_span){begin, end, key};
}

/* A line or paragraph: text[begin, end), with what divides it from the next. */
static void put_part(gw_spans *s, const char *text, int64_t begin, int64_t end) {
    const char *p = text + begin, *q = text + end;
    while (p < q && is_blank(*p)) p++;
    while (q > p && is_blank(q[-1])) q--;
    if (q - p < s->o.min_bytes || !says_something(p, q)) return;
    gw_hash128 key;
    if (s->simplify) {
        gw_simplify_text(s->simplify, p, q - p, &s->simple);
        if (s->simple.len == 0) return;
        key = gw_dedup_text_key(gw_str_c(&s->simple), (int64_t)s->simple.len);
    } else {
        key = gw_dedup_text_key(p, q - p);
    }
    put(s, (uint32_t)begin, (uint32_t)end, key);
}

static int64_t line_end(const char *text, int64_t n, int64_t at) {
    const char *p = memchr(text + at, '\n', (size_t)(n - at));
    return p ? p - text + 1 : n;
}

static bool is_empty_line(const char *text, int64_t begin, int64_t end) {
    for (; begin < end; begin++)
        if (!is_blank(text[begin])) return false;
    return true;
}

static void cut_lines(gw_spans *s, const char *text, int64_t n) {
    for (int64_t at = 0, end; at < n; at = end) {
        end = line_end(text, n, at);
        put_part(s, text, at, end);
    }
}

static void cut_paragraphs(gw_spans *s, const char *text, int64_t n) {
    int64_t begin = 0;
    bool empty = false; /* the line before was, within this paragraph */
    for (int64_t at = 0, end; at < n; at = end) {
        end = line_end(text, n, at);
        bool now = is_empty_line(text, at, end);
        if (empty && !now) {
            put_part(s, text, begin, at);
            begin = at;
        }
        empty = now;
    }
    put_part(s, text, begin, n);
}

static int64_t find_sentences(gw_spans *s, const char *text, int64_t n) {
    int64_t count =
        gw_words_sentence_starts(s->words, s->o.splitter, text, n, s->starts, s->starts_cap);
    if (count <= s->starts_cap) return count;
    s->starts_cap = count + count / 2 + 64;
    s->starts = gw_mem_realloc(s->starts, (size_t)s->starts_cap * 4);
    s->joined_at = gw_mem_realloc(s->joined_at, (size_t)(s->starts_cap + 1) * 4);
    return gw_words_sentence_starts(s->words, s->o.splitter, text, n, s->starts, s->starts_cap);
}

/* Lays the simplified sentences, each with a space before it, one after the other. */
static void join_sentences(gw_spans *s, const char *text, int64_t n, int64_t count) {
    gw_str_clear(&s->joined);
    for (int64_t i = 0; i < count; i++) {
        uint32_t end = i + 1 < count ? s->starts[i + 1] : (uint32_t)n;
        s->joined_at[i] = (uint32_t)s->joined.len;
        gw_str_add_char(&s->joined, ' ');
        if (s->simplify)
            gw_simplify_text(s->simplify, text + s->starts[i], end - s->starts[i], &s->simple);
        gw_str_add_n(&s->joined, s->simplify ? gw_str_c(&s->simple) : text + s->starts[i],
                     s->simplify ? s->simple.len : end - s->starts[i]);
    }
    s->joined_at[count] = (uint32_t)s->joined.len;
}

static void cut_sentences(gw_spans *s, const char *text, int64_t n) {
    int64_t count = find_sentences(s, text, n), k = s->o.sentences;
    if (count < k || s->starts_cap == 0) return;
    join_sentences(s, text, n, count);
    for (int64_t i = 0; i + k <= count; i++) {
        uint32_t begin = s->starts[i], end = i + k < count ? s->starts[i + k] : (uint32_t)n;
        const char *p = s->joined.data + s->joined_at[i] + 1,
                   *q = s->joined.data + s->joined_at[i + k];
        if ((int64_t)end - begin < s->o.min_bytes || !says_something(p, q)) continue;
        put(s, begin, end, gw_dedup_text_key(p, q - p));
    }
}

const gw_span *gw_spans_cut(gw_spans *s, const char *text, int64_t n, int64_t *count) {
    s->count = 0;
    if (n > 0) switch (s->o.kind) {
        case GW_SPAN_LINES: cut_lines(s, text, n); break;
        case GW_SPAN_PARAGRAPHS: cut_paragraphs(s, text, n); break;
        case GW_SPAN_SENTENCES: cut_sentences(s, text, n); break;
        }
    *count = s->count;
    return s->spans;
}
