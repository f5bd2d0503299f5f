// SPDX-License-Identifier: Apache-2.0
// Repeated word n-grams for n = 2 to 10, by all the ways of counting, in little more than one pass.
//
// An n-gram can stand twice only where both (n-1)-grams in it stand twice. So only places whose
// shorter n-gram repeats go on to the next n: in prose a quarter of the pairs, a tenth of the
// triples and hardly any of the longer ones, where counting each n by itself would look at all
// places nine times. The hash of an n-gram is that of the (n-1)-gram extended by one word. Pairs,
// of which there are as many as words, go through two bits each first: a pair whose bit nobody sets
// a second time stands once, and the table of counts, which is large and met at random, is spared
// it.
//
// datatrove joins the words of an n-gram without a space before it compares (find_all_duplicate),
// so "1 23" and "12 3" are the same there and not here; of real documents that moves none.
#include <string.h>

#include "base/arena.h"          /* gw_mem_realloc */
#include "base/compiler.h"       /* GW_PREFETCH */
#include "data/filter/measure.h" /* gw_gram_count */

typedef struct gw_gram_place {
    uint64_t hash;
    uint32_t at, slot; /* its first word; where it was tallied */
} place;

/* Numbers of 64 bits that hold two bits for each of 8 to 16 n hashes. */
static size_t bit_words(int64_t n) {
    size_t words = 16;
    while ((int64_t)words * 32 < 8 * n) words *= 2;
    return words;
}

static void reserve(gw_measure *m, int64_t n) {
    if (n <= m->gram_cap) return;
    m->gram_cap = n + n / 2;
    size_t cap = (size_t)m->gram_cap;
    m->gram_places = gw_mem_realloc(m->gram_places, cap * sizeof *m->gram_places);
    m->gram_sum = gw_mem_realloc(m->gram_sum, (cap + 1) * sizeof *m->gram_sum);
    m->gram_bits = gw_mem_realloc(m->gram_bits, bit_words(m->gram_cap) * sizeof *m->gram_bits);
}

/* Characters of n words, by running sums. */
static int64_t chars_of(const gw_measure *m, int64_t at, int64_t n) {
    return (int64_t)m->gram_sum[at + n] - (int64_t)m->gram_sum[at];
}

/* Added up over all n-grams: n times every word, less what the words at the two ends lack. */
static int64_t all_chars(const gw_measure *m, int64_t nwords, int n) {
    int64_t sum = 0;
    if (nwords - n + 1 < n) { /* every word is at an end */
        for (int64_t i = 0; i + n <= nwords; i++) sum += chars_of(m, i, n);
        return sum;
    }
    sum = n * chars_of(m, 0, nwords);
    for (int i = 0; i < n - 1; i++)
        sum -= (n - 1 - i) * (chars_of(m, i, 1) + chars_of(m, nwords - 1 - i, 1));
    return sum;
}

/* The hash of an n-gram, from that of its first n - 1 words and its last word. */
static uint64_t extended(uint64_t hash, uint64_t word, int n) {
    return hash * 0x9e3779b97f4a7c15u + (word ^ (uint64_t)n);
}

/* Places of the pairs that may repeat. Of the two bits of a hash, next to each other, the lower
 * says that it was met, the higher that it was met again. */
static int64_t first_places(gw_measure *m, const gw_word_facts *words, int64_t nwords) {
    size_t size = bit_words(nwords);
    uint64_t *bits = m->gram_bits;
    memset(bits, 0, size * sizeof *bits);
    for (int64_t i = 0; i + 1 < nwords; i++) {
        uint64_t h = extended(words[i].hash, words[i + 1].hash, 2);
        uint64_t *b = &bits[h >> 32 & (size - 1)];
        unsigned at = (unsigned)(h >> 27 & 31) * 2;
        *b |= (*b >> at & 1) << (at + 1) | UINT64_C(1) << at;
    }
    int64_t kept = 0;
    place *places = m->gram_places;
    for (int64_t i = 0; i + 1 < nwords; i++) { /* a hash is cheaper than a place to keep it */
        uint64_t h = extended(words[i].hash, words[i + 1].hash, 2);
        places[kept] = (place){h, (uint32_t)i, 0};
        kept += (int64_t)(bits[h >> 32 & (size - 1)] >> ((unsigned)(h >> 27 & 31) * 2 + 1) & 1);
    }
    return kept;
}

/* Slots this far ahead are on their way into the cache where the table is larger than it. */
enum { AHEAD = 12, NEAR = 1024 };

static uint32_t slot_of(gw_measure *m, const gw_tally_slot *s) {
    return (uint32_t)(s - m->tally.slots);
}

static void tally_pairs(gw_measure *m, int64_t count) {
    gw_tally_reset(&m->tally, count);
    for (int64_t i = 0; i < count; i++) {
        place *p = &m->gram_places[i];
        if (i + AHEAD < count) GW_PREFETCH(gw_tally_home(&m->tally, p[AHEAD].hash));
        p->slot = slot_of(m, gw_tally_add(&m->tally, p->hash, p->at));
    }
}

/* Places of (n-1)-grams that repeat to those of n-grams that may, tallied: the next place must be
 * one too. */
static int64_t tally_longer(gw_measure *m, const gw_word_facts *words, int n, int64_t count) {
    const gw_word_facts *last = words + n - 1;
    place *p = m->gram_places;
    int64_t kept = 0;
    if (count < 2) return 0;
    gw_tally_reset(&m->tally, count);
    for (int64_t i = 0; i + 1 < count; i++) {
        uint32_t at = p[i].at;
        if (count > NEAR && i + AHEAD + 1 < count) {
            place next = p[i + AHEAD];
            uint64_t h = next.at + (uint32_t)n <= m->gram_words ? last[next.at].hash : 0;
            GW_PREFETCH(gw_tally_home(&m->tally, extended(next.hash, h, n)));
        }
        if (p[i + 1].at != at + 1) continue;
        uint64_t h = extended(p[i].hash, last[at].hash, n);
        p[kept++] = (place){h, at, slot_of(m, gw_tally_add(&m->tally, h, at))};
    }
    return kept;
}

/* The first occurrence of an n-gram that stands `times` times: is it the most frequent? */
static void note_top(gw_gram_stats *s, uint32_t at, uint32_t times, int64_t chars) {
    if (times > s->top_count) {
        s->top_count = times;
        s->top_at = at;
        s->top_chars = s->top_longest = chars;
    } else if (times == s->top_count && chars > s->top_longest) {
        s->top_longest = chars;
    }
}

/* Goes through the places in order, keeps those whose n-gram repeats, and adds them up. */
static GW_ALWAYS_INLINE int64_t add_up(gw_measure *m, int n, int64_t count, bool top, bool greedy,
                                       bool rest, gw_gram_stats *s) {
    int64_t free_from = 0, covered_to = 0, later_to = 0, kept = 0;
    for (int64_t i = 0; i < count; i++) {
        place p = m->gram_places[i];
        gw_tally_slot *slot = &m->tally.slots[p.slot];
        if (count > NEAR && i + AHEAD < count)
            GW_PREFETCH(&m->tally.slots[m->gram_places[i + AHEAD].slot]);
        uint32_t times = slot->count & ~GW_TALLY_MARK;
        if (times < 2) continue;
        m->gram_places[kept++] = p;
        int64_t at = p.at;
        if (top && slot->first == p.at) note_top(s, p.at, times, chars_of(m, at, n));
        if (rest) {
            int64_t from = at > covered_to ? at : covered_to;
            s->repeated_chars += chars_of(m, at, n);
            s->covered_chars += chars_of(m, from, at + n - from);
            covered_to = at + n;
        }
        if (rest && slot->first != p.at) {
            int64_t from = at > later_to ? at : later_to;
            int64_t more = at + n - from; /* words that no earlier repeat has counted */
            s->later_chars += chars_of(m, from, more) + (more < n ? more : n - 1);
            later_to = at + n;
        }
        if (!greedy || at < free_from) continue;
        if (slot->count & GW_TALLY_MARK) {
            s->greedy_chars += chars_of(m, at, n);
            free_from = at + n;
        }
        slot->count |= GW_TALLY_MARK;
    }
    return kept;
}

static int64_t add_up_some(gw_measure *m, int n, int64_t count, gw_gram_needs needs,
                           gw_gram_stats *s) {
    s->top_count = 1;
    s->top_chars = s->top_longest = chars_of(m, 0, n);
    if (needs == GW_GRAMS_ALL) return add_up(m, n, count, true, true, true, s);
    return n < GW_GRAM_GREEDY ? add_up(m, n, count, true, false, false, s)
                              : add_up(m, n, count, false, true, false, s);
}

void gw_gram_count(gw_measure *m, const gw_word_facts *words, int64_t nwords, gw_gram_needs needs,
                   gw_gram_stats *out) {
    memset(out, 0, (GW_GRAM_MAX + 1) * sizeof *out);
    if (nwords < 2) return;
    reserve(m, nwords);
    m->gram_words = nwords;
    m->gram_sum[0] = 0;
    for (int64_t i = 0; i < nwords; i++) m->gram_sum[i + 1] = m->gram_sum[i] + words[i].chars;
    int64_t count = first_places(m, words, nwords); /* still of interest */
    tally_pairs(m, count);
    for (int n = 2; n <= GW_GRAM_MAX && n <= nwords; n++) {
        gw_gram_stats *s = &out[n];
        s->grams = nwords - n + 1;
        if (needs == GW_GRAMS_ALL) s->all_chars = all_chars(m, nwords, n);
        if (n > 2) count = tally_longer(m, words, n, count);
        count = add_up_some(m, n, count, needs, s);
    }
}
