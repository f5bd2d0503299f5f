// SPDX-License-Identifier: Apache-2.0
// The inside of a gw_words: rules of the two spaCy tokenizers, and scratch.
#ifndef GW_DATA_TEXT_WORDS_IMPL_H
#define GW_DATA_TEXT_WORDS_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"      /* gw_arena */
#include "base/hash.h"       /* gw_hash64 */
#include "data/text/words.h" /* gw_words, gw_word */

enum { WORDS_MAX_PARTS = 4, WORDS_SLOTS = 8192, WORDS_KEY_BYTES = 64 };

/* A text with a cutting of its own: "cannot" is can, not. */
typedef struct words_special {
    const char *text;
    uint8_t bytes, nparts, part[WORDS_MAX_PARTS]; /* length of each part */
} words_special;

/* A special case that the rules alone would cut: its tokens are joined again wherever they stand in
 * a row. Patterns with the same first token form a list. */
typedef struct words_pattern {
    const words_special *special;
    const uint8_t *token; /* [ntokens] lengths; the texts follow one another in special->text */
    uint8_t ntokens;
    int next; /* of the list, -1 at its end */
} words_pattern;

/* One key: a special case, the first token of patterns, or both. */
typedef struct words_entry {
    const char *text;
    uint8_t bytes;
    const words_special *special; /* or NULL */
    int patterns;                 /* first of the list, or -1 */
    uint64_t second[4];           /* first bytes that the second token of its patterns may have */
} words_entry;

typedef struct words_rules {
    bool hyphen_after_digit; /* English */
    words_special *specials;
    int nspecials;
    words_pattern *patterns;
    int npatterns;
    words_entry *entries;
    int nentries;
    uint16_t slots[WORDS_SLOTS]; /* index of an entry + 1 */
    uint64_t lengths[256];       /* by first byte: which lengths keys have (bit = length) */
    uint8_t unit_end[256];       /* last bytes of units and currencies */
    const char *const *units[2]; /* units, currencies */
    int nunits[2];
    int longest_unit_bytes;
} words_rules;

/* A special case found in a row of tokens [first, end). */
typedef struct words_match {
    int64_t first, end;
    const words_special *special;
    bool exact; /* no space within */
} words_match;

typedef struct gw_words_inner {
    gw_arena arena;
    words_rules rules[2]; /* by gw_splitter: English, xx */
    gw_word *items;       /* the array that gw_words.items shows */
    gw_word *spare;       /* of the same capacity: for rewriting */
    int64_t count, cap;
    /* The characters of one span between white space. */
    uint32_t *cls, *at; /* [nchars], [nchars + 1]: byte offsets in the text */
    int64_t char_cap;
    gw_word *suffixes;
    int64_t nsuffixes, suffix_cap;
    /* Tokens that may begin a pattern, and what was found. */
    struct {
        int64_t *items;
        int64_t count, cap;
    } starts;
    struct {
        words_match *items;
        int64_t count, cap;
    } matches;
    uint8_t *seen;
    int64_t seen_cap;
} gw_words_inner;

/* words_rules.c */
void words_rules_init(gw_words_inner *w, words_rules *r, bool english);
const words_entry *words_rules_find(const words_rules *r, const char *text, int64_t n);

/* words_spacy.c: appends tokens of text[0..n). `specials` false: by rules alone. */
void words_spacy(gw_words_inner *w, const words_rules *r, const char *text, int64_t n,
                 bool specials);
/* words_special.c: joins patterns again. */
void words_rejoin(gw_words_inner *w, const words_rules *r, const char *text);
/* words_url.c: what spaCy takes for an address. cls, at: as in gw_words_inner. */
bool words_is_url(const uint32_t *cls, const uint32_t *at, const char *text, int64_t from,
                  int64_t to);
/* words_uax29.c */
void words_unicode(gw_words_inner *w, const char *text, int64_t n);

void words_grow(gw_words_inner *w);
static inline void words_push(gw_words_inner *w, int64_t from, int64_t to) {
    if (w->count == w->cap) words_grow(w);
    w->items[w->count++] = (gw_word){(uint32_t)from, (uint32_t)(to - from)};
}
/* Word_Break class of a character, see words_uax29.c. */
static inline uint32_t words_break_class(uint32_t cls) { return cls >> 24 & 31u; }
#define WORDS_PICTOGRAPHIC (1u << 30)

/* The character at p < end: its class; *len its bytes. */
uint32_t words_class_wide(const char *p, const char *end, int *len);
static inline uint32_t words_class_at(const char *p, const char *end, int *len) {
    uint8_t c = (uint8_t)*p;
    if (c >= 128) return words_class_wide(p, end, len);
    *len = 1;
    return gw_ch_ascii[c];
}

/* A hash of a word: two loads and a wide product where it has up to 16 bytes. */
static inline uint64_t words_hash(const char *p, int64_t n) {
    uint64_t a = 0, b = 0;
    if (n > 16) return gw_hash64(p, (size_t)n, 0);
    if (n >= 8) {
        memcpy(&a, p, 8);
        memcpy(&b, p + n - 8, 8);
    } else if (n >= 4) {
        uint32_t x, y;
        memcpy(&x, p, 4);
        memcpy(&y, p + n - 4, 4);
        a = x;
        b = y;
    } else if (n > 0) {
        a = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n >> 1] << 8 | (uint8_t)p[n - 1];
    }
    a = (a ^ 0x2d358dccaa6c78a5u ^ (uint64_t)n) * 0x9e3779b97f4a7c15u;
    b = (b ^ 0x8bb84b93962eacc9u) * 0xd6e8feb86659fd93u;
    a ^= b >> 32 | b << 32;
    a = (a ^ a >> 29) * 0xbf58476d1ce4e5b9u;
    return a ^ a >> 32;
}

#endif
