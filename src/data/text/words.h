// SPDX-License-Identifier: Apache-2.0
// Words and sentences of a text, cut exactly as the projects cut them whose rules count words.
#ifndef GW_DATA_TEXT_WORDS_H
#define GW_DATA_TEXT_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* How a text is cut. Every kind drops white space. */
typedef enum gw_splitter {
    GW_SPLIT_SPACY_EN,   /* spaCy's blank "en": what datatrove uses for English */
    GW_SPLIT_SPACY_XX,   /* spaCy's blank "xx": what datatrove uses where a language has no rules */
    GW_SPLIT_WHITESPACE, /* Python's str.split() */
    GW_SPLIT_UNICODE,  /* segments of UAX #29 that begin with a letter or a number, as DCLM does */
    GW_SPLIT_TROVE_XX, /* datatrove's WhitespaceTokenizer: words of "xx", sentences of its own */
    GW_SPLIT_LANGUAGE, /* this and the following: spaCy's rules of a language (words_lang.c) */
} gw_splitter;
#define GW_SPLITTERS 4 /* the first few, which are of no language or of English */
/* How many there are: room for, and in fact. */
#define GW_SPLITTER_KINDS 72
int gw_splitter_count(void);

typedef struct gw_word {
    uint32_t offset, bytes; /* of the text; bytes > 0 */
} gw_word;

/* What rules ask of a word. */
enum {
    GW_WORD_LETTER = 1 << 0,     /* one of its characters is a letter, as str.isalpha() has it */
    GW_WORD_TROVEPUNCT = 1 << 1, /* all are of datatrove's PUNCTUATION_SET */
    GW_WORD_PUNCT = 1 << 2,      /* all are of general category P */
    GW_WORD_STOP = 1 << 3,       /* it is one mark that ends sentences for spaCy's sentencizer */
    GW_WORD_FIRST = 1 << 4,      /* white space stands before it, or nothing */
};
typedef struct gw_word_facts {
    uint64_t hash;         /* of its bytes: equal words have equal ones */
    uint32_t chars, flags; /* code points; GW_WORD_ */
} gw_word_facts;
/* Those of one word, FIRST apart. */
gw_word_facts gw_word_look(const char *p, int64_t n);

/* Scratch of one thread. `items` holds the words of the last text, in order; they do not overlap.
 */
typedef struct gw_words {
    gw_word *items;
    gw_word_facts *facts; /* beside items, after gw_words_measure; NULL otherwise */
    int64_t count;
    struct gw_words_inner *inner;
} gw_words;

gw_words *gw_words_new(void);
void gw_words_free(gw_words *w);

/* Cuts text[0..n), valid UTF-8 (a byte that is not is taken as one unknown character), n < 2^32.
 * Nothing is allocated once the longest text has been seen. Linear time. */
void gw_words_split(gw_words *w, gw_splitter kind, const char *text, int64_t n);
/* The same, with the facts of each word. */
void gw_words_measure(gw_words *w, gw_splitter kind, const char *text, int64_t n);

/* The number of sentences that datatrove's split_into_sentences cuts: spaCy's sentencizer over the
 * tokens of `kind`, at least 1, as there; with TROVE_XX those of its expression, perhaps none. Of
 * no use for WHITESPACE and UNICODE. Leaves the words of the text in `w`. */
int64_t gw_words_sentences(gw_words *w, gw_splitter kind, const char *text, int64_t n);
/* The same for spaCy's kinds, with the start offset of each: starts[0..min(count, limit)). */
int64_t gw_words_sentence_starts(gw_words *w, gw_splitter kind, const char *text, int64_t n,
                                 uint32_t *starts, int64_t limit);

/* The number of sentences of text[from..to) by its tokens items[0..count) and their facts, which a
 * cut of the whole text gave: the same as for the piece alone if line breaks or the ends of the
 * text surround it. */
int64_t gw_words_range_sentences(const gw_word *items, const gw_word_facts *facts, int64_t count,
                                 const char *text, int64_t from, int64_t to);

/* "spacy_en", "spacy_xx", "whitespace", "unicode", "trove_xx", "spacy_de" and so on. */
const char *gw_splitter_name(gw_splitter kind);
bool gw_splitter_find(const char *name, gw_splitter *out);
/* What datatrove uses for a language (ISO 639-1 or -3, with or without a script as in "srp_Cyrl"),
 * or the splitter of that name. Languages that it cuts by a model or a dictionary are refused by
 * name with GW_ERR_UNSUPPORTED, never cut by another's rules. */
GW_WARN_UNUSED gw_status gw_splitter_for_language(const char *language, gw_splitter *out,
                                                  gw_diags *dg);

/* Classes of a character that the splitters and filters tell apart (of Python 3.11 and spaCy's
 * character classes; generated, see words_tables.c). */
enum {
    GW_CH_SPACE = 1u << 0,       /* str.isspace() */
    GW_CH_WORD = 1u << 1,        /* \w of Python's re */
    GW_CH_DIGIT = 1u << 2,       /* \d of Python's re: Nd */
    GW_CH_PREFIX = 1u << 3,      /* a prefix of one character, spaCy */
    GW_CH_SUFFIX = 1u << 4,      /* a suffix of one character, spaCy */
    GW_CH_ALPHA = 1u << 5,       /* ALPHA, spaCy */
    GW_CH_LOWER = 1u << 6,       /* ALPHA_LOWER, spaCy (caseless scripts too) */
    GW_CH_UPPER = 1u << 7,       /* ALPHA_UPPER, spaCy (caseless scripts too) */
    GW_CH_QUOTE = 1u << 8,       /* CONCAT_QUOTES, spaCy */
    GW_CH_INFIX = 1u << 9,       /* an infix wherever it stands, spaCy: icons and the ellipsis */
    GW_CH_DOTBEHIND = 1u << 10,  /* before a full stop that is a suffix, spaCy */
    GW_CH_LETTER = 1u << 11,     /* str.isalpha() */
    GW_CH_PUNCT = 1u << 12,      /* general category P */
    GW_CH_TROVEPUNCT = 1u << 13, /* PUNCTUATION_SET, datatrove */
    GW_CH_TERMINAL = 1u << 14,   /* TERMINAL_PUNCTUATION, datatrove */
    GW_CH_STOP = 1u << 15,       /* default_punct_chars of spaCy's sentencizer */
    GW_CH_LINEBREAK = 1u << 16,  /* str.splitlines() breaks here */
    GW_CH_MARK = 1u << 17,       /* general category M */
    GW_CH_UPPERCASE = 1u << 18,  /* str.isupper() of the one character */
};
extern const uint32_t gw_ch_ascii[128];
uint32_t gw_ch_class(uint32_t cp);

#endif
