// SPDX-License-Identifier: Apache-2.0
// Cutting a text into words fast, with what rules ask of each word.
//
// A span is what stands between white space, and every way of cutting but Unicode's cuts a span by
// its own bytes alone. Texts repeat their spans: nine of ten are among the tens of thousands that
// came last. So the result of a span (how many tokens, their lengths, their characters and flags)
// is remembered under its bytes, those of a longer one under its hash, and the rules are asked
// about new spans only. A span is found and loaded at once: 16 bytes are compared with ' ', and the
// first that is not above it as a signed number (white space, a control, or a part of a longer
// character) ends what can be taken without looking further. The table is larger than the second
// cache, so the places of some spans ahead are fetched before the first of them is looked up.
//
// The hash of a word is of its bytes, filled up with zeros to 16, and its length; equal words have
// equal hashes whichever way they came. What must hold: the words are those that
// gw_words_split would find span by span with nothing remembered (tests/data/test_words_cache.c
// compares them), and no byte outside the text is read.
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/arena.h"           /* gw_mem_realloc */
#include "base/compiler.h"        /* GW_LIKELY, GW_PREFETCH */
#include "base/map.h"             /* gw_vec_push */
#include "data/text/words_impl.h" /* gw_words_inner, words_hash16 */

enum { SPAN = 16, LONG_SPAN = 64, MOST = 6, NEXT = 4, CACHE_BITS = 16 };

struct words_cached {
    uint64_t low, high; /* the span's key: its bytes, zeros behind; all zero: empty */
    uint8_t bytes[MOST], chars[MOST], flags[MOST];
    uint8_t ntokens;
    uint8_t starts;     /* bit k: token k may begin a pattern */
    uint8_t next[NEXT]; /* where one may: if the next token begins with one of these; 0: any */
};
#define CACHE_BYTES (sizeof(struct words_cached) << CACHE_BITS)

/* ------------------------------------------------------------------------------ facts */

gw_word_facts gw_word_look(const char *p, int64_t n) {
    uint32_t any = 0, all = ~0u, chars = 0;
    const char *at = p, *end = p + n;
    for (int len; at < end; at += len, chars++) {
        uint32_t c = words_class_at(at, end, &len);
        any |= c;
        all &= c;
    }
    uint32_t flags = (any & GW_CH_LETTER ? GW_WORD_LETTER : 0u) |
                     (all & GW_CH_TROVEPUNCT ? GW_WORD_TROVEPUNCT : 0u) |
                     (all & GW_CH_PUNCT ? GW_WORD_PUNCT : 0u) |
                     (chars == 1 && all & GW_CH_STOP ? GW_WORD_STOP : 0u);
    return (gw_word_facts){words_hash(p, n), chars, flags};
}

static void reserve_facts(gw_words_inner *w) {
    if (w->facts_cap >= w->cap) return;
    w->facts_cap = w->cap;
    w->facts = gw_mem_realloc(w->facts, (size_t)w->facts_cap * sizeof *w->facts);
}

/* Facts of token i, the slow way. */
static gw_word_facts look_at(const gw_words_inner *w, const char *text, int64_t i) {
    gw_word t = w->items[i];
    gw_word_facts f = gw_word_look(text + t.offset, t.bytes);
    bool first = i == 0 || w->items[i - 1].offset + w->items[i - 1].bytes != t.offset;
    f.flags |= first ? GW_WORD_FIRST : 0u;
    return f;
}

/* Those of tokens [from, count). */
static void look_from(gw_words_inner *w, const char *text, int64_t from) {
    reserve_facts(w);
    for (int64_t i = from; i < w->count; i++) w->facts[i] = look_at(w, text, i);
}

/* After some of the tokens spare[0, was) were joined and cut anew: most are as they were. */
static void look_again(gw_words_inner *w, const char *text, int64_t was) {
    if (w->old_facts_cap < was) {
        w->old_facts_cap = w->cap;
        w->old_facts = gw_mem_realloc(w->old_facts, (size_t)w->cap * sizeof *w->old_facts);
    }
    memcpy(w->old_facts, w->facts, (size_t)was * sizeof *w->facts);
    reserve_facts(w);
    int64_t old = 0;
    for (int64_t i = 0; i < w->count; i++) {
        gw_word t = w->items[i];
        while (old < was && w->spare[old].offset < t.offset) old++;
        bool same = old < was && w->spare[old].offset == t.offset && w->spare[old].bytes == t.bytes;
        w->facts[i] = same ? w->old_facts[old] : look_at(w, text, i);
    }
}

/* ------------------------------------------------------------------------------ a span */

/* How the spans of a text are cut. rules NULL: not at all. */
typedef struct cutter {
    gw_words_inner *w;
    const words_rules *rules;
    const char *text;
    int64_t n;
} cutter;

static void cut_by_rules(const cutter *c, int64_t from, int64_t to) {
    gw_words_inner *w = c->w;
    int64_t before = w->count;
    if (!c->rules) {
        words_push(w, from, to);
        return;
    }
    words_spacy(w, c->rules, c->text + from, to - from, true);
    for (int64_t i = before; i < w->count; i++) w->items[i].offset += (uint32_t)from;
}

/* The bytes that may begin the token behind one that may begin a pattern, if they are few. */
static void note_next(const cutter *c, struct words_cached *slot, gw_word token) {
    const words_entry *e = words_rules_find(c->rules, c->text + token.offset, token.bytes);
    int n = 0;
    memset(slot->next, 0, sizeof slot->next);
    if (!e || e->alone) return;
    for (unsigned k = 0; k < GW_COUNT(e->second); k++) n += __builtin_popcountll(e->second[k]);
    if (n > NEXT) return;
    n = 0;
    for (unsigned k = 0; k < GW_COUNT(e->second); k++)
        for (uint64_t left = e->second[k]; left; left &= left - 1)
            slot->next[n++] = (uint8_t)(64 * k + (unsigned)__builtin_ctzll(left));
}

static void remember(const cutter *c, struct words_cached *slot, uint64_t low, uint64_t high,
                     int64_t before, int64_t starts_before) {
    gw_words_inner *w = c->w;
    int64_t n = w->count - before;
    if (n > MOST || n < 1) return;
    slot->low = low;
    slot->high = high;
    slot->ntokens = (uint8_t)n;
    slot->starts = 0;
    for (int64_t k = 0; k < n; k++) {
        const gw_word_facts *f = &w->facts[before + k];
        slot->bytes[k] = (uint8_t)w->items[before + k].bytes;
        slot->chars[k] = (uint8_t)f->chars;
        slot->flags[k] = (uint8_t)f->flags;
    }
    memset(slot->next, 0, sizeof slot->next);
    int64_t starts = w->starts.count - starts_before;
    if (starts == 1) note_next(c, slot, w->items[w->starts.items[starts_before]]);
    for (int64_t s = starts_before; s < w->starts.count; s++)
        slot->starts |= (uint8_t)(1u << (w->starts.items[s] - before));
}

/* Whether the token behind text[0, at), one space aside, may be the second of a pattern. */
static bool may_follow(const cutter *c, const struct words_cached *slot, int64_t at) {
    if (!slot->next[0]) return true;
    if (at < c->n && c->text[at] == ' ') at++;
    uint8_t b = at < c->n ? (uint8_t)c->text[at] : 0;
    return b && memchr(slot->next, b, NEXT);
}

/* Notes the tokens of a remembered span, the first of which is w->items[at], that may begin
 * patterns. */
static void note_starts(const cutter *c, const struct words_cached *slot, int64_t from,
                        int64_t at) {
    for (int k = 0; k < slot->ntokens; k++) {
        from += slot->bytes[k];
        if (slot->starts >> k & 1 && may_follow(c, slot, from)) gw_vec_push(&c->w->starts, at + k);
    }
}

/* Room for what is remembered of one span. */
static GW_ALWAYS_INLINE void make_room(gw_words_inner *w) {
    if (GW_UNLIKELY(w->count + MOST > w->cap)) words_grow(w);
    reserve_facts(w);
}

/* Tokens of a remembered span at `from`; `hash` is that of the whole span as a word. */
static GW_ALWAYS_INLINE void recall(const cutter *c, const struct words_cached *slot, uint64_t hash,
                                    int64_t from) {
    gw_words_inner *w = c->w;
    make_room(w);
    int64_t at = w->count;
    if (GW_UNLIKELY(slot->starts)) note_starts(c, slot, from, at);
    if (GW_LIKELY(slot->ntokens == 1)) {
        w->items[at] = (gw_word){(uint32_t)from, slot->bytes[0]};
        w->facts[at] = (gw_word_facts){hash, slot->chars[0], slot->flags[0]};
        w->count++;
        return;
    }
    for (int k = 0; k < slot->ntokens; k++, at++) {
        w->items[at] = (gw_word){(uint32_t)from, slot->bytes[k]};
        w->facts[at] = (gw_word_facts){words_hash(c->text + from, slot->bytes[k]), slot->chars[k],
                                       slot->flags[k]};
        from += slot->bytes[k];
    }
    w->count = at;
}

/* A span that is not remembered takes the place of `slot`. */
static void learn(const cutter *c, struct words_cached *slot, uint64_t low, uint64_t high,
                  int64_t from, int64_t to) {
    int64_t before = c->w->count, starts = c->w->starts.count;
    cut_by_rules(c, from, to);
    look_from(c->w, c->text, before);
    remember(c, slot, low, high, before, starts);
}

/* The two places of a key, next to each other. */
static GW_ALWAYS_INLINE struct words_cached *places_of(const gw_words_inner *w, uint64_t low,
                                                       uint64_t high) {
    uint64_t h = (low ^ high * 0xc2b2ae3d27d4eb4fu) * 0x9e3779b97f4a7c15u;
    return &w->cache[h >> (65 - CACHE_BITS) << 1];
}

/* A span whose places are on their way into the first cache. */
typedef struct waiting {
    uint64_t low, high, hash; /* its key; its hash as a word */
    struct words_cached *places;
    int64_t from, to;
} waiting;
enum { QUEUE = 32 };
typedef struct queue {
    waiting spans[QUEUE];
    int count;
} queue;

static GW_ALWAYS_INLINE void cut_known(const cutter *c, const waiting *s) {
    struct words_cached *set = s->places;
    if (GW_LIKELY(set[0].low == s->low && set[0].high == s->high)) {
        recall(c, &set[0], s->hash, s->from);
        return;
    }
    struct words_cached second = set[1];
    set[1] = set[0]; /* the one met last comes first */
    set[0] = second;
    if (second.low == s->low && second.high == s->high)
        recall(c, &second, s->hash, s->from);
    else
        learn(c, &set[0], s->low, s->high, s->from, s->to);
}

static void cut_queue(const cutter *c, queue *q) {
    for (int i = 0; i < q->count; i++) cut_known(c, &q->spans[i]);
    q->count = 0;
}

static GW_ALWAYS_INLINE void put(const cutter *c, queue *q, uint64_t low, uint64_t high,
                                 uint64_t hash, int64_t from, int64_t to) {
    struct words_cached *places = places_of(c->w, low, high);
    GW_PREFETCH(places);
    GW_PREFETCH((const char *)(places + 2) - 1);
    q->spans[q->count++] = (waiting){low, high, hash, places, from, to};
    if (GW_UNLIKELY(q->count == QUEUE)) cut_queue(c, q);
}

/* A span of any size. The key of one with more than 16 bytes, or with a control character, ends in
 * a byte that UTF-8 does not have. */
static void put_any(const cutter *c, queue *q, int64_t from, int64_t to, bool control) {
    int64_t n = to - from;
    const char *p = c->text + from;
    if (n > LONG_SPAN) {
        cut_queue(c, q);
        int64_t before = c->w->count;
        cut_by_rules(c, from, to);
        look_from(c->w, c->text, before);
    } else if (n > SPAN || control) {
        uint64_t hash = words_hash(p, n);
        put(c, q, hash, UINT64_C(0xff) << 56 | (uint64_t)n, hash, from, to);
    } else {
        uint64_t key[2] = {0, 0};
        memcpy(key, p, (size_t)n);
        put(c, q, key[0], key[1], words_hash16(key[0], key[1], n), from, to);
    }
}

/* The first byte at or behind p that is not above ' ' as a signed number. */
static const char *plain_end(const char *p, const char *end) {
#if defined(__SSE2__)
    for (; end - p >= SPAN; p += SPAN) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned stop = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(x, _mm_set1_epi8('!')));
        if (stop) return p + __builtin_ctz(stop);
    }
#endif
    while (p < end && (signed char)*p > ' ') p++;
    return p;
}

/* White space that is not of ASCII, or a span that is long or holds other characters. Returns what
 * is behind it. */
static int64_t put_other(const cutter *c, queue *q, int64_t from) {
    const char *end = c->text + c->n, *p = c->text + from;
    int len;
    if (words_class_at(p, end, &len) & GW_CH_SPACE) return from + len;
    bool control = false;
    while (p < end) {
        p = plain_end(p, end);
        if (p == end || words_class_at(p, end, &len) & GW_CH_SPACE) break;
        control |= (uint8_t)*p < ' ';
        p += len;
    }
    int64_t to = p - c->text;
    put_any(c, q, from, to, control);
    return to;
}

/* ------------------------------------------------------------------------------ a text */

static inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The bytes at p before the first that is not above ' ' as a signed number, at most 16 of them, in
 * *low and *high with zeros behind. 16 bytes can be read. */
static GW_ALWAYS_INLINE int load_span(const char *p, uint64_t *low, uint64_t *high) {
#if defined(__SSE2__)
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    unsigned stop = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(x, _mm_set1_epi8('!')));
    int n = __builtin_ctz(stop | 0x10000u);
#else
    int n = 0;
    while (n < SPAN && (signed char)p[n] > ' ') n++;
#endif
    memcpy(low, p, 8);
    memcpy(high, p + 8, 8);
    if (n < 8) {
        *low &= (UINT64_C(1) << 8 * n) - 1;
        *high = 0;
    } else if (n < 16) {
        *high &= (UINT64_C(1) << 8 * (n - 8)) - 1;
    }
    return n;
}

/* Cuts the spans that begin in [from, until); `bytes` are those of the text from `from` on, with 16
 * behind `until`. Returns where it stopped, at or behind `until`. */
static int64_t cut_range(const cutter *c, const char *bytes, int64_t from, int64_t until) {
    int64_t i = from;
    queue q;
    q.count = 0;
    while (i < until) {
        uint64_t low, high;
        int n = load_span(bytes + (i - from), &low, &high);
        if (n == 0) {
            i = is_blank(bytes[i - from]) ? i + 1 : put_other(c, &q, i);
        } else if (n < SPAN && is_blank(bytes[i - from + n])) {
            put(c, &q, low, high, words_hash16(low, high, n), i, i + n);
            i += n + 1;
        } else {
            i = put_other(c, &q, i);
        }
    }
    cut_queue(c, &q);
    return i;
}

static void cut_text(const cutter *c) {
    int64_t at = 0;
    if (c->n > SPAN) at = cut_range(c, c->text, 0, c->n - SPAN);
    if (at >= c->n) return;
    char tail[2 * SPAN]; /* the rest, then white space */
    memset(tail, ' ', sizeof tail);
    memcpy(tail, c->text + at, (size_t)(c->n - at));
    cut_range(c, tail, at, c->n);
}

void words_cut(gw_words_inner *w, const words_rules *r, const char *text, int64_t n) {
    if (!w->cache)
        w->cache = gw_mem_zalloc_table(CACHE_BYTES, &w->cache_memory);
    else if (w->cache_rules != r)
        memset(w->cache, 0, CACHE_BYTES);
    w->cache_rules = r;
    w->starts.count = 0;
    cut_text(&(cutter){w, r, text, n});
    if (!w->starts.count) return;
    int64_t was = w->count;
    words_rejoin(w, r, text);
    if (w->matches.count) look_again(w, text, was);
}

void words_look_all(gw_words_inner *w, const char *text) { look_from(w, text, 0); }
