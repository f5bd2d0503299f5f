// SPDX-License-Identifier: Apache-2.0
// Counting that filters share: words with what is known of each, lines, repeats, n-grams.
#ifndef GW_DATA_FILTER_MEASURE_H
#define GW_DATA_FILTER_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"           /* gw_str */
#include "data/filter/filter.h" /* gw_filter_facts */
#include "data/text/words.h"    /* gw_words, gw_word_facts, gw_splitter */

/* Counts repeats of hashes: open addressing in a table as large as the text asks for, so that small
 * texts stay in the cache. */
typedef struct gw_tally_slot {
    uint64_t hash;
    uint32_t first; /* index of the first */
    uint32_t count; /* how many; 0: empty. The highest bit, GW_TALLY_MARK, is the caller's */
} gw_tally_slot;
#define GW_TALLY_MARK 0x80000000u
typedef struct gw_tally {
    gw_tally_slot *slots;
    int64_t cap;
    uint64_t mask; /* of the part in use */
} gw_tally;
/* Empties it and makes room for n different hashes. */
void gw_tally_reset(gw_tally *t, int64_t n);
/* Where a hash is looked for first. */
static inline gw_tally_slot *gw_tally_home(const gw_tally *t, uint64_t hash) {
    return &t->slots[(hash ^ hash >> 32) & t->mask];
}
/* Counts one more; the slot stays where it is until the next reset. */
static inline gw_tally_slot *gw_tally_add(gw_tally *t, uint64_t hash, int64_t index) {
    gw_tally_slot *s = gw_tally_home(t, hash);
    for (; s->count != 0; s = s == t->slots + t->mask ? t->slots : s + 1)
        if (s->hash == hash) {
            s->count++;
            return s;
        }
    *s = (gw_tally_slot){hash, (uint32_t)index, 1};
    return s;
}

/* Repeats of word n-grams, by every project's way of counting. Characters are of words alone. */
typedef struct gw_gram_stats {
    int64_t grams;          /* how many there are: max(0, words - n + 1) */
    int64_t top_count;      /* occurrences of the most frequent */
    int64_t top_at;         /* the word at which the first of those that occur so often begins */
    int64_t top_chars;      /* characters of the first of those that occur so often */
    int64_t top_longest;    /* characters of the longest of those */
    int64_t greedy_chars;   /* datatrove: of repeats met while stepping over them */
    int64_t covered_chars;  /* DCLM, RedPajama: of words within any n-gram that repeats */
    int64_t repeated_chars; /* Dolma: of all occurrences of n-grams that repeat, added up */
    int64_t all_chars;      /* Dolma: of all n-grams, added up */
    int64_t later_chars;    /* NeMo: of occurrences but the first, spaces and no word twice */
} gw_gram_stats;
enum { GW_GRAM_MAX = 10, GW_GRAM_GREEDY = 5 };
/* What a rule asks of n-grams: grams and top_ of fewer than GW_GRAM_GREEDY words and greedy_chars
 * of the others, as datatrove's does, or all of it. */
typedef enum gw_gram_needs { GW_GRAMS_NONE, GW_GRAMS_GREEDY, GW_GRAMS_ALL } gw_gram_needs;

/* Repeats among pieces (lines, paragraphs). */
typedef struct gw_piece_stats {
    int64_t pieces, chars;
    int64_t later, later_chars;   /* pieces that stood before already */
    int64_t repeat, repeat_chars; /* all occurrences of pieces that stand more than once */
} gw_piece_stats;

typedef struct gw_measure {
    const gw_filter_facts *facts;
    gw_str *text;
    gw_words *words[GW_SPLITTER_KINDS]; /* made when first asked for */
    bool known[GW_SPLITTER_KINDS];      /* and of the text as it stands */
    gw_gram_needs grams_known[GW_SPLITTER_KINDS];
    gw_gram_stats grams[GW_SPLITTER_KINDS][GW_GRAM_MAX + 1];
    gw_tally tally;
    struct gw_gram_place *gram_places;
    uint32_t *gram_sum; /* characters before each word */
    uint64_t *gram_bits;
    int64_t gram_cap, gram_words;
    struct gw_plain *plain; /* RedPajama-V2's plain text and its words, made when first asked for */
    gw_str plain_text;
    gw_words *plain_words;
    bool plain_known;
    gw_str spare; /* for a new text */
    gw_words *scratch;
} gw_measure;

/* Begins a text. */
void gw_measure_begin(gw_measure *m, const gw_filter_facts *facts, gw_str *text);
void gw_measure_release(gw_measure *m);
/* The text is now that of m->spare (which takes the old one's place); what was counted is void. */
void gw_measure_replace(gw_measure *m);
/* The text was changed in place. */
void gw_measure_changed(gw_measure *m);
/* After one of the two: the words of the new text are the first n that gw_measure_words(kind) gave,
 * their items and facts as the caller has rewritten them. */
void gw_measure_know_words(gw_measure *m, gw_splitter kind, int64_t n);

/* Words of the text and their facts; the second is indexed as the first's items. */
const gw_words *gw_measure_words(gw_measure *m, gw_splitter kind, const gw_word_facts **facts);
/* Those of RedPajama-V2's plain text (text/plain.h) at white space, with their facts. */
const gw_words *gw_measure_plain_words(gw_measure *m);
/* n-gram statistics [2..GW_GRAM_MAX] over those words. */
const gw_gram_stats *gw_measure_grams(gw_measure *m, gw_splitter kind, gw_gram_needs needs);
/* The same over any words. */
void gw_gram_count(gw_measure *m, const gw_word_facts *words, int64_t n, gw_gram_needs needs,
                   gw_gram_stats *out);

/* Code points of valid UTF-8. */
int64_t gw_text_chars(const char *p, int64_t n);

/* Lines one after another. */
typedef enum gw_line_end {
    GW_LINES_NEWLINE,  /* text.split("\n"): always at least one */
    GW_LINES_PYTHON,   /* text.splitlines() */
    GW_LINES_NEWLINES, /* re.split("\n+", text) */
    GW_LINES_BLANK,    /* re.split("\n{2,}", text) */
} gw_line_end;
typedef struct gw_line {
    const char *text;
    int64_t bytes;
} gw_line;
typedef struct gw_lines {
    const char *p, *end;
    gw_line_end kind;
    bool done;
} gw_lines;
gw_lines gw_lines_of(const char *text, int64_t n, gw_line_end kind);
bool gw_lines_next(gw_lines *l, gw_line *out);
/* str.strip(), lstrip(), rstrip(). */
gw_line gw_line_strip(gw_line l);
gw_line gw_line_lstrip(gw_line l);
gw_line gw_line_rstrip(gw_line l);
bool gw_line_ends(gw_line l, const char *suffix);
bool gw_line_begins(gw_line l, const char *prefix);
/* How often `what` stands in a text, without overlap. */
int64_t gw_text_count(const char *p, int64_t n, const char *what);
/* Whether `what`, small ASCII letters and spaces, stands in a text with letters of either case. */
bool gw_text_has_nocase(const char *p, int64_t n, const char *what);

typedef struct gw_pieces {
    gw_piece_stats s;
    gw_tally *tally;
} gw_pieces;
/* Counts pieces: begin with the most there can be, add each, end. */
void gw_pieces_begin(gw_measure *m, gw_pieces *p, int64_t most);
int64_t gw_pieces_add(gw_pieces *p, gw_line piece); /* its characters */

#endif
