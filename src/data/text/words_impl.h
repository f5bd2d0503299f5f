// SPDX-License-Identifier: Apache-2.0
// The inside of a gw_words: rules of spaCy's tokenizers, and scratch.
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
    const uint8_t *token; /* [ntokens] lengths, then [ntokens] offsets in special->text */
    uint8_t ntokens;
    int next; /* of the list, -1 at its end */
} words_pattern;

/* One key: a special case, the first token of patterns, or both. */
typedef struct words_entry {
    const char *text;
    uint8_t bytes;
    const words_special *special; /* or NULL */
    int patterns;                 /* first of the list, or -1 */
    bool alone;                   /* one of them is of this token only */
    uint64_t second[4];           /* first bytes that the second token of its patterns may have */
} words_entry;

/* A language's rules over symbols: generated, see words_lang.c. */
enum { WORDS_PREFIX, WORDS_SUFFIX, WORDS_INFIX, WORDS_WHOLE, WORDS_PATTERNS };
enum { WORDS_PLAIN_ASCII = 1, WORDS_PLAIN_LETTERS = 2 };
typedef struct words_lang_range {
    uint32_t first, last;
    uint8_t symbol;
} words_lang_range;
typedef struct words_lang_map {
    const uint8_t *usual;        /* the symbol of most characters of a class */
    const words_lang_range *odd; /* [nodd] of the others, in order */
    int nodd;
} words_lang_map;
typedef struct words_lang_rules {
    const char *name;                           /* "spacy_de" */
    const char *const *pattern[WORDS_PATTERNS]; /* of PCRE2, over bytes: pieces, or NULL */
    const words_lang_map *map, *whole_map;      /* of three patterns; of WHOLE, or NULL */
    const char *const *specials; /* parts with \1 between them; or \2 and a word that stands in
                                    other writings too; NULL behind the last */
    int nspecials;               /* with all writings */
    bool with_xx;                /* and the special cases of "xx" */
    uint8_t plain; /* spans of letters (of ASCII: 1, any: 2) are met by special cases only */
} words_lang_rules;
typedef struct words_lang_codes {
    const char *name, *codes; /* a splitter, or what is missing; codes with a space after each */
} words_lang_codes;
typedef struct words_lang words_lang;

typedef struct words_rules {
    words_lang *lang;        /* NULL: the two of words_spacy.c */
    uint8_t plain;           /* of words_lang_rules */
    bool hyphen_after_digit; /* English */
    words_special *specials;
    int nspecials;
    words_pattern *patterns;
    int npatterns;
    words_entry *entries;
    int nentries;
    uint32_t *slots, slot_mask;  /* index of an entry + 1; a power of two of them */
    uint64_t lengths[256];       /* by first byte: which lengths keys have (bit = length) */
    uint64_t lasts[256];         /* the same by last byte */
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

struct words_cached; /* words_cache.c */

typedef struct gw_words_inner {
    gw_arena arena;
    words_rules rules[2];                                         /* by gw_splitter: English, xx */
    words_rules *language[GW_SPLITTER_KINDS - GW_SPLIT_LANGUAGE]; /* made when first asked for */
    gw_word *items; /* the array that gw_words.items shows */
    gw_word *spare; /* of the same capacity: for rewriting */
    int64_t count, cap;
    gw_word_facts *facts; /* beside items, where they were asked for */
    int64_t facts_cap;
    gw_word_facts *old_facts; /* scratch */
    int64_t old_facts_cap;
    struct words_cached *cache;     /* spans met before, cut by `cache_rules` */
    void *cache_memory;             /* the table lies in it */
    const words_rules *cache_rules; /* NULL: at white space */
    /* The characters of one span between white space. */
    uint32_t *cls, *at; /* [nchars], [nchars + 1]: byte offsets in the text */
    uint8_t *symbols;   /* [nchars] of a language's rules, then [nchars] of what stays whole */
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
void words_rules_init_language(gw_words_inner *w, words_rules *r, const words_lang_rules *l);
const words_entry *words_rules_find(const words_rules *r, const char *text, int64_t n);

/* words_spacy.c: appends tokens of text[0..n). `specials` false: by rules alone. */
void words_spacy(gw_words_inner *w, const words_rules *r, const char *text, int64_t n,
                 bool specials);
/* Whether a language's rules find a prefix, a suffix or an infix in a span, here text[0..n). */
bool words_has_affix(gw_words_inner *w, const words_rules *r, const char *text, int64_t n);

/* words_lang.c: the i-th language or NULL; its compiled form. Lengths are in characters. */
const words_lang_rules *words_lang_at(int i);
words_lang *words_lang_open(const words_lang_rules *rules);
void words_lang_close(words_lang *l);
/* Whether all its patterns were compiled. */
bool words_lang_is_sound(const words_lang *l);
/* out[n], and for what stays whole whole[n]. */
void words_lang_symbols(const words_lang *l, const char *text, const uint32_t *at, int64_t n,
                        uint8_t *out, uint8_t *whole);
int64_t words_lang_prefix(const words_lang *l, const uint8_t *s, int64_t n); /* or 0 */
int64_t words_lang_suffix(const words_lang *l, const uint8_t *s, int64_t n);
bool words_lang_whole(const words_lang *l, const uint8_t *s, int64_t n);
/* The next infix from `from` on; `empty`: not an empty one there. */
bool words_lang_infix(const words_lang *l, const uint8_t *s, int64_t n, int64_t from, bool empty,
                      int64_t *start, int64_t *end);
int64_t words_trove_sentences(const char *text, int64_t n);

/* words_special.c: joins patterns again. */
void words_rejoin(gw_words_inner *w, const words_rules *r, const char *text);
/* words_url.c: what spaCy takes for an address. cls, at: as in gw_words_inner. */
bool words_is_url(const uint32_t *cls, const uint32_t *at, const char *text, int64_t from,
                  int64_t to);
/* words_uax29.c */
void words_unicode(gw_words_inner *w, const char *text, int64_t n);
/* words_cache.c: cuts a text at white space and each span by the rules (NULL: not at all), and
 * fills w->facts. */
void words_cut(gw_words_inner *w, const words_rules *r, const char *text, int64_t n);
/* Facts of all words that are there. */
void words_look_all(gw_words_inner *w, const char *text);

/* words_tables.c: the number of a character's class. */
uint8_t words_class_index(uint32_t cp);

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

/* A hash of a word of up to 16 bytes, given as two numbers with zeros behind. */
static inline uint64_t words_hash16(uint64_t low, uint64_t high, int64_t n) {
    uint64_t a = (low ^ 0x2d358dccaa6c78a5u ^ (uint64_t)n) * 0x9e3779b97f4a7c15u;
    uint64_t b = (high ^ 0x8bb84b93962eacc9u) * 0xd6e8feb86659fd93u;
    a ^= b >> 32 | b << 32;
    a = (a ^ a >> 29) * 0xbf58476d1ce4e5b9u;
    return a ^ a >> 32;
}

/* A hash of a word. Nothing outside it is read. */
static inline uint64_t words_hash(const char *p, int64_t n) {
    uint64_t low = 0, high = 0;
    if (n > 16) return gw_hash64(p, (size_t)n, 0);
    if (n >= 8) {
        memcpy(&low, p, 8);
        memcpy(&high, p + n - 8, 8);
        high = n == 8 ? 0 : high >> 8 * (16 - n);
    } else if (n >= 4) {
        uint32_t x, y;
        memcpy(&x, p, 4);
        memcpy(&y, p + n - 4, 4);
        low = x | (uint64_t)y << 8 * (n - 4);
    } else if (n > 0) {
        low = (uint64_t)(uint8_t)p[0] | (uint64_t)(uint8_t)p[n >> 1] << 8 * (n >> 1) |
              (uint64_t)(uint8_t)p[n - 1] << 8 * (n - 1);
    }
    return words_hash16(low, high, n);
}

#endif
