// SPDX-License-Identifier: Apache-2.0
// Repeated word n-grams for n = 2 to 10, by all the ways of counting, in little more than one pass.
//
// An n-gram can stand twice only where both (n-1)-grams in it stand twice. So only places whose
// shorter n-gram repeats go on to the next n: in prose a quarter of the pairs, a tenth of the
// triples and hardly any of the longer ones, where counting each n by itself would look at all
// places nine times. The hash of an n-gram is that of the (n-1)-gram extended by one word.
//
// datatrove joins the words of an n-gram without a space before it compares (find_all_duplicate),
// so "1 23" and "12 3" are the same there and not here; of real documents that moves none.
#include <string.h>

#include "base/arena.h"          /* gw_mem_realloc */
#include "data/filter/measure.h" /* gw_gram_count */

static void reserve(gw_measure *m, int64_t n) {
    if (n <= m->gram_cap) return;
    m->gram_cap = n + n / 2;
    size_t cap = (size_t)m->gram_cap;
    m->gram_hash = gw_mem_realloc(m->gram_hash, cap * sizeof *m->gram_hash);
    m->gram_at = gw_mem_realloc(m->gram_at, cap * sizeof *m->gram_at);
    m->gram_slot = gw_mem_realloc(m->gram_slot, cap * sizeof *m->gram_slot);
    m->gram_sum = gw_mem_realloc(m->gram_sum, (cap + 1) * sizeof *m->gram_sum);
}

/* Characters of n words, by running sums. */
static int64_t chars_of(const gw_measure *m, int64_t at, int64_t n) {
    return m->gram_sum[at + n] - m->gram_sum[at];
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

/* The most frequent n-gram among `count` places that were tallied. */
static void find_top(const gw_measure *m, int n, int64_t count, gw_gram_stats *s) {
    s->top_count = 1;
    s->top_chars = s->top_longest = chars_of(m, 0, n);
    for (int64_t i = 0; i < count; i++) {
        const gw_tally_slot *slot = &m->tally.slots[m->gram_slot[i]];
        if (slot->first != m->gram_at[i] || slot->count < s->top_count || slot->count < 2) continue;
        int64_t chars = chars_of(m, m->gram_at[i], n);
        if (slot->count > s->top_count) {
            s->top_count = slot->count;
            s->top_at = m->gram_at[i];
            s->top_chars = s->top_longest = chars;
        } else if (chars > s->top_longest) {
            s->top_longest = chars;
        }
    }
}

/* Sums over the places whose n-gram repeats: gram_at[0..count) after thinning, in order. */
static void add_up(gw_measure *m, int n, int64_t count, gw_gram_stats *s) {
    int64_t free_from = 0, covered_to = 0, later_to = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = m->gram_at[i], chars = chars_of(m, at, n);
        gw_tally_slot *slot = &m->tally.slots[m->gram_slot[i]];
        s->repeated_chars += chars;
        int64_t from = at > covered_to ? at : covered_to;
        s->covered_chars += chars_of(m, from, at + n - from);
        covered_to = at + n;
        if (slot->first != at) {
            from = at > later_to ? at : later_to;
            int64_t more = at + n - from; /* words that no earlier repeat has counted */
            s->later_chars += chars_of(m, from, more) + (more < n ? more : n - 1);
            later_to = at + n;
        }
        if (at < free_from) continue;
        if (slot->taken) {
            s->greedy_chars += chars;
            free_from = at + n;
        }
        slot->taken = true;
    }
}

void gw_gram_count(gw_measure *m, const gw_word_facts *words, int64_t nwords, gw_gram_stats *out) {
    memset(out, 0, (GW_GRAM_MAX + 1) * sizeof *out);
    if (nwords < 2) return;
    reserve(m, nwords);
    int64_t count = nwords; /* places still of interest, gram_at[0..count) */
    m->gram_sum[0] = 0;
    for (int64_t i = 0; i < nwords; i++) {
        m->gram_at[i] = (uint32_t)i;
        m->gram_hash[i] = words[i].hash;
        m->gram_sum[i + 1] = m->gram_sum[i] + words[i].chars;
    }
    for (int n = 2; n <= GW_GRAM_MAX; n++) {
        gw_gram_stats *s = &out[n];
        s->grams = nwords - n + 1 > 0 ? nwords - n + 1 : 0;
        if (!s->grams) break;
        s->all_chars = all_chars(m, nwords, n);
        /* A place goes on if the next place is of interest too. */
        int64_t kept = 0;
        for (int64_t i = 0; i + 1 < count; i++) {
            if (m->gram_at[i + 1] != m->gram_at[i] + 1) continue;
            m->gram_at[kept] = m->gram_at[i];
            m->gram_hash[kept++] = m->gram_hash[i] * 0x9e3779b97f4a7c15u +
                                   (words[m->gram_at[i] + (uint32_t)n - 1].hash ^ (uint64_t)n);
        }
        count = kept;
        gw_tally_reset(&m->tally, count);
        for (int64_t i = 0; i < count; i++)
            m->gram_slot[i] = (uint32_t)(gw_tally_add(&m->tally, m->gram_hash[i], m->gram_at[i]) -
                                         m->tally.slots);
        find_top(m, n, count, s);
        kept = 0;
        for (int64_t i = 0; i < count; i++) {
            if (m->tally.slots[m->gram_slot[i]].count < 2) continue;
            m->gram_at[kept] = m->gram_at[i];
            m->gram_hash[kept] = m->gram_hash[i];
            m->gram_slot[kept++] = m->gram_slot[i];
        }
        count = kept;
        add_up(m, n, count, s);
    }
}
