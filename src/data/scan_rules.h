// SPDX-License-Identifier: Apache-2.0
// Where pieces begin in a block of 64 characters. Included by one file for each way to tell
// characters apart, which defines classify(), scatter() and emit() before; not for other files.
//
// The rules of scan.c, said for all characters of a block at once. A class is a mask with one bit a
// character; "the character before" is a shift by one, with the carry of the block before in the
// lowest bit. What a look-ahead decides (the last space of a run belongs to the word after it) is a
// shift the other way, with the class of the character after the block. Runs are followed by
// addition: a carry runs through a run of ones and comes out behind it.
//
// Starts of pieces, with W white space, H white space but no newline, O neither space, letter nor
// number:
//   gpt2    a change of class, except after a blank, which belongs to what follows; each last W of
//           a run that something follows
//   llama3  O not after O or a blank; each first, fourth, seventh ... number of a run; a letter
//           after newline, number or an O that begins no piece; of white space: the first of a run
//           after the newlines that end a piece of O, the first H after the last newline, the last
//           H before something else
//   o200k   the same, and a capital after a small letter
// Contractions are rare, and looked at one by one: they move starts, perhaps into the next block.
//
// Three things are left to scan.c (by_hand): in o200k a capital after a letter without case, a mark
// after a symbol, a slash after the newlines of a symbol. It goes on from the last start, and where
// it stops a piece begins, so that nothing need be carried over.
#ifndef GW_DATA_SCAN_RULES_H
#define GW_DATA_SCAN_RULES_H

#include "base/compiler.h"    /* GW_ALWAYS_INLINE */
#include "base/map.h"         /* gw_vec_grow_ */
#include "data/scan_blocks.h" /* gw_scan_job, gw_block, gw_carry */

#define BEFORE(mask, carry) ((mask) << 1 | (carry))

static inline uint64_t low_bits(int n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }
static inline int lowest(uint64_t m) { return __builtin_ctzll(m); }
static inline int highest(uint64_t m) { return 63 - __builtin_clzll(m); }

static inline const gw_uni_table *classes_of(gw_scan_job *j) {
    if (!j->classes) {
        if (!*j->made || (*j->made)->version != j->version) {
            gw_uni_table_free(*j->made);
            *j->made = gw_uni_table_new(j->version);
        }
        j->classes = *j->made;
    }
    return j->classes;
}

/* Four bytes are readable at p; past the end of a text they are zero, which ends no character. */
static inline uint32_t decode(const uint8_t *p, int *len) {
    uint32_t a = p[0];
    if (a >= 0xc2 && a < 0xe0 && (p[1] & 0xc0) == 0x80) {
        *len = 2;
        return (a & 0x1f) << 6 | (p[1] & 0x3fu);
    }
    if (a > 0xe0 && a < 0xed && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80) {
        *len = 3;
        return (a & 0x0f) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    return gw_utf8_decode(p, p + 4, len);
}

static inline unsigned class_of(gw_scan_job *j, const uint8_t *p, int *len) {
    *len = 1;
    if (*p < 0x80) return gw_uni_ascii[*p];
    uint32_t cp = decode(p, len);
    return gw_uni_table_class(classes_of(j), cp);
}

/* Adds a character of class c as bit i. */
static inline void add_class(gw_block *b, unsigned c, int i, bool cased) {
    uint64_t upper = c >> 4 & 1, lower = c >> 5 & 1, letter = c & GW_CLASS_LETTER;
    b->number |= (uint64_t)(c >> 1 & 1) << i;
    b->space |= (uint64_t)(c >> 2 & 1) << i;
    if (!cased) {
        b->letter |= letter << i;
        return;
    }
    b->mark |= (upper & lower & ~letter) << i;
    b->letter |= (letter | (upper & lower)) << i;
    b->both |= (upper & lower) << i;
    b->upper |= (upper & ~lower) << i;
}

/* Characters of the contraction whose quote is at p; 0 = none. */
static inline int contraction_at(const uint8_t *p, bool any_case) {
    if (any_case && p[1] == 0xc5 && p[2] == 0xbf) return 2;
    uint8_t fold = any_case ? 0x20 : 0, a = p[1] | fold, c = p[2] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && c == 'e') || (a == 'l' && c == 'l') ? 3 : 0;
}

static inline void set_at(uint64_t *here, uint64_t *next, int at, int n) {
    if (at < n)
        *here |= (uint64_t)1 << at;
    else
        *next |= (uint64_t)1 << (at - n);
}

/* `quotes` may begin a contraction (o200k: end a word with one). */
static uint64_t contract(gw_scan_job *j, const gw_block *b, gw_carry *c, uint64_t starts,
                         uint64_t quotes, gw_scan kind) {
    int ended = -1;
    for (; quotes; quotes &= quotes - 1) {
        int i = lowest(quotes);
        if (kind == GW_SCAN_O200K && i == ended) continue;
        int byte = b->chars == b->bytes ? i : lowest(scatter((uint64_t)1 << i, b->heads));
        int len = contraction_at(j->text + j->at + byte, kind != GW_SCAN_GPT2);
        if (!len) continue;
        uint64_t clear = 0, set = 0;
        for (int k = kind == GW_SCAN_O200K ? 0 : 1; k < len; k++)
            set_at(&clear, &c->clear, i + k, b->chars);
        ended = i + len;
        set_at(&set, &c->set, ended, b->chars);
        starts = (starts & ~clear) | set;
    }
    return starts;
}

/* Starts within runs of numbers: each third. `first`: those that begin a run here. */
static inline uint64_t by_threes(uint64_t number, uint64_t first, gw_carry *c, int n) {
    uint64_t full = number & number >> 1 & number >> 2, all = first;
    if (c->digits && (number & 1)) {
        int k = 3 - c->digits;
        if ((number & low_bits(k + 1)) == low_bits(k + 1)) all |= (uint64_t)1 << k;
    }
    for (uint64_t t = (all & full) << 3 & number; t; t = (t & full) << 3 & number) all |= t;
    if (!(number >> (n - 1) & 1))
        c->digits = 0;
    else if (all && (number >> highest(all)) == low_bits(n - highest(all)))
        c->digits = n - highest(all);
    else
        c->digits += n;
    return all;
}

/* Whether the white space from byte `at` on comes to a newline before anything else. */
static bool newline_follows(gw_scan_job *j, size_t at) {
    int len;
    unsigned c = 0;
    while (at < j->n && ((c = class_of(j, j->text + at, &len)) & GW_CLASS_SPACE) &&
           !(c & GW_CLASS_CRLF))
        at += (size_t)len;
    return at < j->n && (c & GW_CLASS_CRLF);
}

/* Takes from `starts`, first H after a newline, those whose run comes to another newline. */
static uint64_t settle(gw_scan_job *j, const gw_block *b, uint64_t starts, uint64_t h) {
    uint64_t bad = b->newline & h << 1;
    for (; bad; bad &= bad - 1) {
        uint64_t below = ~h & low_bits(lowest(bad));
        starts &= ~((uint64_t)1 << (below ? highest(below) + 1 : 0));
    }
    if (h >> (b->chars - 1) & 1) {
        uint64_t below = ~h & low_bits(b->chars);
        uint64_t first = (uint64_t)1 << (below ? highest(below) + 1 : 0);
        if ((starts & first) && newline_follows(j, j->at + (size_t)b->bytes)) starts &= ~first;
    }
    return starts;
}

static GW_ALWAYS_INLINE uint64_t starts_gpt2(gw_scan_job *j, const gw_block *b, gw_carry *c,
                                             uint64_t next_space) {
    int end = b->chars - 1;
    uint64_t valid = low_bits(b->chars), other = valid & ~(b->letter | b->number | b->space);
    uint64_t same = (b->letter & BEFORE(b->letter, c->letter)) |
                    (b->number & BEFORE(b->number, c->number)) | (other & BEFORE(other, c->other));
    uint64_t starts = (b->space & ~BEFORE(b->space, c->space)) | (b->space & ~next_space) |
                      (valid & ~b->space & ~same & ~BEFORE(b->blank, c->blank));
    starts = (starts & ~c->clear) | c->set;
    c->clear = c->set = 0;
    uint64_t quotes = b->quote & starts;
    if (GW_UNLIKELY(quotes)) starts = contract(j, b, c, starts, quotes, GW_SCAN_GPT2);
    c->letter = b->letter >> end & 1;
    c->number = b->number >> end & 1;
    c->space = b->space >> end & 1;
    c->blank = b->blank >> end & 1;
    c->other = other >> end & 1;
    return starts;
}

/* True if a newline of `tail` is followed by a slash. */
static bool slash_follows(const gw_scan_job *j, const gw_block *b, uint64_t after) {
    for (; after; after &= after - 1) {
        int i = lowest(after);
        int byte = b->chars == b->bytes ? i : lowest(scatter((uint64_t)1 << i, b->heads));
        if (j->text[j->at + (size_t)byte] == '/') return true;
    }
    return false;
}

/* llama3, qwen2, cl100k and o200k. */
static GW_ALWAYS_INLINE uint64_t starts_words(gw_scan_job *j, const gw_block *b, gw_carry *c,
                                              uint64_t next_space, gw_scan kind, bool *odd) {
    int end = b->chars - 1;
    bool cased = kind == GW_SCAN_O200K;
    uint64_t valid = low_bits(b->chars), other = valid & ~(b->letter | b->number | b->space);
    uint64_t after_other = BEFORE(other, c->other), after_letter = BEFORE(b->letter, c->letter);
    /* Newlines that end a piece of symbols. */
    uint64_t seed = b->newline & (after_other | c->tail);
    uint64_t tail = b->newline & ~(b->newline + seed);
    uint64_t space = b->space & ~tail, h = b->space & ~b->newline;
    uint64_t after_space = BEFORE(space, c->space), after_newline = BEFORE(b->newline, c->newline);
    uint64_t carry_h = c->space & ~c->newline, after_h = BEFORE(h, carry_h);
    uint64_t spaces = space & ~after_space;
    uint64_t indents = h & ~after_h & after_newline & after_space;
    if (indents && ((b->newline & after_h) | h >> end)) indents = settle(j, b, indents, h);
    uint64_t first_other = other & ~after_other & ~BEFORE(b->blank, c->blank);
    uint64_t words = b->letter & ~after_letter & ~after_h & ~BEFORE(first_other, c->start_other);
    uint64_t numbers = b->number;
    if (kind != GW_SCAN_QWEN2)
        numbers = by_threes(b->number, b->number & ~BEFORE(b->number, c->number), c, b->chars);
    if (cased) {
        uint64_t lower = b->letter & ~b->upper & ~b->both;
        words |= b->upper & BEFORE(lower, c->lower);
        uint64_t slashes = other & BEFORE(tail, c->tail);
        *odd = ((b->upper & BEFORE(b->both, c->both)) | (b->mark & after_other)) != 0 ||
               (slashes && slash_follows(j, b, slashes));
        c->lower = lower >> end & 1;
        c->both = b->both >> end & 1;
    }
    uint64_t starts = spaces | indents | (h & ~next_space) | first_other | words | numbers;
    uint64_t set = c->set;
    starts = (starts & ~c->clear) | set;
    c->clear = c->set = 0;
    uint64_t quotes = b->quote & (cased ? after_letter & ~set : starts);
    if (GW_UNLIKELY(quotes)) starts = contract(j, b, c, starts, quotes, kind);
    c->letter = b->letter >> end & 1;
    c->number = b->number >> end & 1;
    c->space = space >> end & 1;
    c->blank = b->blank >> end & 1;
    c->newline = b->newline >> end & 1;
    c->other = other >> end & 1;
    c->tail = tail >> end & 1;
    c->start_other = first_other >> end & 1;
    return starts;
}

static void add_start(gw_scan_job *j, size_t at) {
    if (j->starts->count == j->starts->cap)
        j->starts->items =
            gw_vec_grow_(j->starts->items, &j->starts->cap, sizeof *j->starts->items);
    j->starts->items[j->starts->count++] = (uint32_t)at;
}

/* The block's pieces, and the rest of its last one, from the last start, as scan.c says. */
static void by_hand(gw_scan_job *j, gw_scan kind, const gw_block *b) {
    size_t end = j->at + (size_t)b->bytes, pos = j->last;
    do {
        pos = gw_scan_next_by(kind, classes_of(j), j->text, j->n, pos);
        add_start(j, pos);
    } while (pos < end && pos < j->n);
    j->last = j->at = pos;
    j->carry = (gw_carry){0};
    j->known = 1;
}

static GW_ALWAYS_INLINE void run_blocks(gw_scan_job *j, size_t stop, gw_scan kind) {
    while (j->at < stop) {
        gw_block b;
        int len;
        bool odd = false;
        classify(j, &b, kind);
        const uint8_t *after = j->text + j->at + b.bytes;
        uint64_t next = class_of(j, after, &len) >> 2 & 1;
        uint64_t next_space = b.space >> 1 | next << (b.chars - 1);
        uint64_t starts = kind == GW_SCAN_GPT2
                              ? starts_gpt2(j, &b, &j->carry, next_space)
                              : starts_words(j, &b, &j->carry, next_space, kind, &odd);
        if (GW_UNLIKELY(odd)) {
            by_hand(j, kind, &b);
            continue;
        }
        starts &= ~j->known;
        j->known = 0;
        if (b.chars != b.bytes) starts = scatter(starts, b.heads);
        while (GW_UNLIKELY(j->starts->cap - j->starts->count < 64 + 8))
            j->starts->items =
                gw_vec_grow_(j->starts->items, &j->starts->cap, sizeof *j->starts->items);
        if (starts) {
            uint32_t *to = j->starts->items + j->starts->count;
            j->starts->count += emit(j->places, to, (uint32_t)j->at, starts) - to;
            j->last = j->at + (size_t)highest(starts);
        }
        j->at += (size_t)b.bytes;
    }
}

static inline void run_kind(gw_scan_job *j, size_t stop) {
    switch (j->kind) {
    case GW_SCAN_GPT2: run_blocks(j, stop, GW_SCAN_GPT2); break;
    case GW_SCAN_LLAMA3:
    case GW_SCAN_CL100K: run_blocks(j, stop, GW_SCAN_LLAMA3); break;
    case GW_SCAN_QWEN2: run_blocks(j, stop, GW_SCAN_QWEN2); break;
    case GW_SCAN_O200K: run_blocks(j, stop, GW_SCAN_O200K); break;
    }
}

#endif
