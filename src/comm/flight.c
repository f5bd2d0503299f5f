// SPDX-License-Identifier: Apache-2.0
// The flight recorder: what a rank did last, for the moment when the ranks no longer agree.
//
// A hang is explained by comparing what each rank was doing: which collective, of what size, over
// which group, since when. So every collective (and, in a recorder of their own, as they are many,
// every message of a channel) leaves an entry in a ring of the last 64, written
// before it starts and completed when it ends. The ring of a local rank lies in memory that its
// peers and its parent see, and it outlives the rank: what a killed process did last is still
// there.
//
// Readers never stop the writer. An entry is a sequence lock: its version is odd while it is
// written, and names the collective it holds, so that a reader who looks one up by number knows
// whether it got that one, whole. Every word is an atomic: releases on the writer's side keep the
// words behind the odd version, acquires on the reader's keep the second look at the version behind
// the words. (Fences would do the same; thread sanitizers do not follow them.)
#include "comm/flight.h"

#include <string.h>

_Static_assert(sizeof(gw_flight_mark) == 8 * GW_FLIGHT_WORDS, "a mark fills its words");

enum { WORD_END = 4 }; /* the word that holds end_ns */

void gw_words_store(_Atomic uint64_t *to, int words, const char *text) {
    size_t n = strlen(text), at = 0;
    for (int i = 0; i < words; i++, at += 8) {
        uint64_t word = 0;
        size_t left = at < n ? n - at : 0;
        if (i == words - 1 && left > 7) left = 7;
        memcpy(&word, text + (left ? at : 0), left < 8 ? left : 8);
        atomic_store_explicit(&to[i], word, memory_order_relaxed);
    }
}

void gw_words_load(const _Atomic uint64_t *from, int words, char *text) {
    for (int i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy(text + (size_t)i * 8, &word, 8);
    }
    text[(size_t)words * 8 - 1] = 0;
}

void gw_flight_begin(gw_flight *f, const gw_coll_mark *m, uint64_t group, int64_t now_ns) {
    uint64_t number = atomic_load_explicit(&f->count, memory_order_relaxed) + 1;
    gw_flight_mark mark = {
        .seq = m->seq, .signature = m->signature, .group = group, .start_ns = now_ns, .end_ns = 0};
    memcpy(mark.text, m->text, sizeof mark.text);
    mark.text[sizeof mark.text - 1] = 0;
    uint64_t words[GW_FLIGHT_WORDS];
    memcpy(words, &mark, sizeof words);
    int i = (int)(number % GW_FLIGHT_ENTRIES);
    atomic_store_explicit(&f->entries[i].version, 2 * number - 1, memory_order_relaxed);
    for (int w = 0; w < GW_FLIGHT_WORDS; w++)
        atomic_store_explicit(&f->entries[i].words[w], words[w], memory_order_release);
    atomic_store_explicit(&f->entries[i].version, 2 * number, memory_order_release);
    atomic_store_explicit(&f->count, number, memory_order_release);
}

void gw_flight_end(gw_flight *f, int64_t now_ns) {
    uint64_t number = atomic_load_explicit(&f->count, memory_order_relaxed);
    if (number == 0) return;
    atomic_store_explicit(&f->entries[number % GW_FLIGHT_ENTRIES].words[WORD_END], (uint64_t)now_ns,
                          memory_order_release);
}

uint64_t gw_flight_count(const gw_flight *f) {
    return atomic_load_explicit(&f->count, memory_order_acquire);
}

bool gw_flight_read(const gw_flight *f, uint64_t number, gw_flight_mark *out) {
    if (number == 0) return false;
    int i = (int)(number % GW_FLIGHT_ENTRIES);
    if (atomic_load_explicit(&f->entries[i].version, memory_order_acquire) != 2 * number)
        return false;
    uint64_t words[GW_FLIGHT_WORDS];
    for (int w = 0; w < GW_FLIGHT_WORDS; w++)
        words[w] = atomic_load_explicit(&f->entries[i].words[w], memory_order_acquire);
    if (atomic_load_explicit(&f->entries[i].version, memory_order_relaxed) != 2 * number)
        return false;
    memcpy(out, words, sizeof words);
    return true;
}

/* The oldest that is kept from number *n on; false when there is none. */
static bool next_kept(const gw_flight *f, uint64_t *n, gw_flight_mark *m) {
    uint64_t last = f ? gw_flight_count(f) : 0;
    if (last > GW_FLIGHT_ENTRIES && *n <= last - GW_FLIGHT_ENTRIES)
        *n = last - GW_FLIGHT_ENTRIES + 1;
    for (; *n <= last; ++*n)
        if (gw_flight_read(f, *n, m)) return true;
    return false;
}

static void print_mark(const gw_flight_mark *m, int64_t now_ns, FILE *out) {
    char took[32] = "not ended";
    if (m->end_ns) snprintf(took, sizeof took, "%.3f", 1e-6 * (double)(m->end_ns - m->start_ns));
    fprintf(out, "  %8llu %12.6f %12s  %s\n", (unsigned long long)m->seq,
            1e-9 * (double)(now_ns - m->start_ns), took, m->text);
}

void gw_flight_print(const gw_flight *f, const gw_flight *messages, int rank, int64_t now_ns,
                     FILE *out) {
    uint64_t calls = gw_flight_count(f), sent = messages ? gw_flight_count(messages) : 0;
    fprintf(out, "rank %d: %llu collectives", rank, (unsigned long long)calls);
    if (sent) fprintf(out, ", %llu messages", (unsigned long long)sent);
    fprintf(out, "\n");
    if (calls + sent)
        fprintf(out, "  %8s %12s %12s  %s\n", "seq", "s ago", "took ms",
                sent ? "collective or message" : "collective");
    gw_flight_mark m[2];
    uint64_t next[2] = {1, 1};
    bool have[2] = {next_kept(f, &next[0], &m[0]), next_kept(messages, &next[1], &m[1])};
    while (have[0] || have[1]) { /* merged by time */
        int i = !have[0] || (have[1] && m[1].start_ns < m[0].start_ns);
        print_mark(&m[i], now_ns, out);
        next[i]++;
        have[i] = next_kept(i ? messages : f, &next[i], &m[i]);
    }
}
