// SPDX-License-Identifier: Apache-2.0
// Words whose ids are known.
//
// Text repeats its words, so nearly all of the time goes into finding a word that was met before.
// Words of up to 15 bytes are kept as two 64-bit numbers, zero behind the word and its length on
// top, with up to four ids; two words share a cache line. A look-up loads 16 bytes at the word,
// whatever its length, masks them, multiplies, compares with both words of a line, and stores four
// ids, of which the count says how many stay: no branch but "known and short", which is nearly
// always true. Lines are asked for some words ahead, as most of them are in a far cache. A word of
// 5 to 11 ids has a line of its own. Longer words, and words of more ids, have slots in another
// table. A word whose line is full may stand in the line beside; those found there move, at times,
// to where they are looked for first, so that frequent ones end up there.
//
// Both tables have a largest size and forget; memory does not grow with the number of texts. Words
// past ASCII of three bytes or more, of which no two neighbours merge, are not kept: their ids,
// those of the bytes, are faster made than remembered, and binary data, which is made of them,
// would push out all else.
#include <string.h>

#include "base/arena.h"     /* gw_mem_alloc */
#include "base/compiler.h"  /* GW_LIKELY */
#include "base/hash.h"      /* gw_hash64 */
#include "data/bpe_words.h" /* gw_word_line */
#include "data/scanner.h"   /* gw_scan_has */

enum {
    WIDE_IDS = 11,   /* most ids of a word that has a line of its own */
    FIRST_BITS = 14, /* of the number of lines: 1 MB, which grows to 64 MB */
    MOST_BITS = 20,
    FIRST_SLOT_BITS = 10, /* of the number of slots: 130 kB, which grows to 17 MB */
    MOST_SLOT_BITS = 17,
    MOVES = 4, /* of so many words found beside their line, one is moved to it */
};

typedef gw_word_line line;
typedef gw_word_slot slot;

gw_bpe_scratch *gw_bpe_scratch_new(void) {
    gw_bpe_scratch *s = gw_mem_zalloc(sizeof *s);
    s->bits = FIRST_BITS;
    s->lines = gw_mem_zalloc_table(sizeof *s->lines << s->bits, &s->memory);
    s->slot_bits = FIRST_SLOT_BITS;
    s->slots = gw_mem_zalloc_table(sizeof *s->slots << s->slot_bits, &s->slot_memory);
    gw_bpe_work_init(&s->work);
    gw_bpe_scratch_use(s, gw_scan_has(GW_SCAN_AVX2) ? gw_bpe_pieces_avx2 : gw_bpe_pieces_plain);
    return s;
}

void gw_bpe_scratch_use(gw_bpe_scratch *s, gw_bpe_pieces *pieces) { s->pieces = pieces; }

void gw_bpe_scratch_free(gw_bpe_scratch *s) {
    if (!s) return;
    gw_mem_free(s->memory);
    gw_mem_free(s->slot_memory);
    gw_bpe_work_release(&s->work);
    gw_mem_free(s);
}

void gw_bpe_scratch_flush(gw_bpe_scratch *s) {
    memset(s->lines, 0, sizeof *s->lines << s->bits);
    memset(s->slots, 0, sizeof *s->slots << s->slot_bits);
}

int64_t gw_bpe_scratch_ops(const gw_bpe_scratch *s) { return s->work.ops; }

int64_t gw_bpe_scratch_bytes(const gw_bpe_scratch *s) {
    return (int64_t)(sizeof *s + (sizeof(line) << s->bits) + 2 * (int64_t)GW_HUGE_PAGE +
                     (sizeof(slot) << s->slot_bits)) +
           gw_bpe_work_bytes(&s->work);
}

static void append(gw_ids *out, const void *ids, int64_t n) {
    gw_ids_reserve(out, n);
    memcpy(out->items + out->count, ids, (size_t)n * sizeof *out->items);
    out->count += n;
}

/* ---- lines --------------------------------------------------------------------------------------
 */

static const uint64_t MASKS[GW_WORD_BYTES + 1][2] = {
#define M(n) ((UINT64_C(1) << (n)*8) - 1)
#define ALL  (~UINT64_C(0))
    {0, 0},      {M(1), 0},   {M(2), 0},   {M(3), 0},   {M(4), 0},   {M(5), 0},
    {M(6), 0},   {M(7), 0},   {ALL, 0},    {ALL, M(1)}, {ALL, M(2)}, {ALL, M(3)},
    {ALL, M(4)}, {ALL, M(5)}, {ALL, M(6)}, {ALL, M(7)},
#undef M
#undef ALL
};

static inline uint64_t load64(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static line *line_of(gw_bpe_scratch *s, uint64_t low, uint64_t high) {
    return &s->lines[gw_word_hash(low, high) >> (64 - s->bits)];
}

/* Stores the ids of a word at `o`, which has room for four. Returns how many; 0 if the line does
 * not have it, or is wide. */
static inline uint32_t find_word(const line *l, uint64_t low, uint64_t high, int32_t *o) {
    uint64_t x0 = (l->key[0][0] ^ low) | (l->key[0][1] ^ high);
    uint64_t x1 = (l->key[1][0] ^ low) | (l->key[1][1] ^ high);
    if (GW_UNLIKELY((x0 != 0) & (x1 != 0))) return 0;
    const uint32_t *ids = l->ids[x0 != 0];
    uint32_t first = ids[0];
    memcpy(o, ids, 16);
    o[0] = (int32_t)(first & 0xffffff);
    return first >> 24;
}

#define WIDE_MARK (UINT64_C(0x80) << 56)

static bool is_wide(const line *l) { return l->key[1][1] >> 56 == GW_WORD_WIDE; }

/* Appends the ids of a word if its line is wide: eight of `ids`, three of key[1] from the lowest
 * half on, whose fourth holds their number below the mark. */
static bool find_wide(const line *l, uint64_t low, uint64_t high, gw_ids *out) {
    if (!is_wide(l) || l->key[0][0] != low || l->key[0][1] != (high | WIDE_MARK)) return false;
    int32_t ids[WIDE_IDS + 1];
    memcpy(ids, l->ids, sizeof l->ids);
    for (int k = 0; k < 4; k++) ids[8 + k] = (int32_t)(uint32_t)(l->key[1][k / 2] >> k % 2 * 32);
    append(out, ids, ids[WIDE_IDS] & 0xff);
    return true;
}

static void put_wide(line *l, uint64_t low, uint64_t high, const gw_ids *found) {
    uint32_t ids[WIDE_IDS + 1] = {0};
    for (int64_t i = 0; i < found->count; i++) ids[i] = (uint32_t)found->items[i];
    ids[WIDE_IDS] = (uint32_t)GW_WORD_WIDE << 24 | (uint32_t)found->count;
    memcpy(l->ids, ids, sizeof l->ids);
    l->key[0][0] = low;
    l->key[0][1] = high | WIDE_MARK;
    l->key[1][0] = ids[8] | (uint64_t)ids[9] << 32;
    l->key[1][1] = ids[10] | (uint64_t)ids[11] << 32;
}

/* Puts a word first, the first second, and forgets the second. */
static void put_word(line *l, uint64_t low, uint64_t high, const uint32_t ids[4]) {
    if (is_wide(l)) memset(l->key[0], 0, sizeof l->key[0]);
    memcpy(l->key[1], l->key[0], sizeof l->key[0]);
    memcpy(l->ids[1], l->ids[0], sizeof l->ids[0]);
    l->key[0][0] = low;
    l->key[0][1] = high;
    memcpy(l->ids[0], ids, sizeof l->ids[0]);
}

/* A word whose line is full may be in the next one. */
static line *line_beside(gw_bpe_scratch *s, const line *l) { return &s->lines[(l - s->lines) ^ 1]; }

static bool is_full(const line *l) { return l->key[1][1] != 0; }
static bool is_empty(const line *l) { return l->key[0][1] == 0; }

static line *place_for(gw_bpe_scratch *s, uint64_t low, uint64_t high, bool wide) {
    line *l = line_of(s, low, high), *beside = line_beside(s, l);
    bool go = wide ? !is_empty(l) && is_empty(beside) : is_full(l) && !is_full(beside);
    return go ? beside : l;
}

static void put_line_again(gw_bpe_scratch *s, const line *old) {
    uint64_t low = old->key[0][0], high = old->key[0][1];
    if (is_wide(old)) {
        *place_for(s, low, high & ~WIDE_MARK, true) = *old;
        return;
    }
    for (int k = 1; k >= 0; k--) {
        low = old->key[k][0];
        high = old->key[k][1];
        if (high) put_word(place_for(s, low, high, false), low, high, old->ids[k]);
    }
}

/* Where a quarter of the places are taken: twice the lines, with the words of the old ones. Most
 * lines then have room for what comes to them, and few words are not where they are looked for. */
static void grow_lines(gw_bpe_scratch *s) {
    if (s->bits == MOST_BITS || s->added < (int64_t)1 << (s->bits - 1)) return;
    line *old = s->lines;
    void *memory = s->memory;
    size_t n = (size_t)1 << s->bits++;
    s->lines = gw_mem_zalloc_table(sizeof *s->lines << s->bits, &s->memory);
    s->added = 0;
    for (size_t i = 0; i < n; i++) put_line_again(s, &old[i]);
    gw_mem_free(memory);
}

/* ---- slots --------------------------------------------------------------------------------------
 */

static slot *slot_of(const gw_bpe_scratch *s, const uint8_t *piece, size_t n, uint64_t *hash) {
    if (n > sizeof s->slots->body - sizeof(int32_t)) return NULL;
    *hash = gw_hash64(piece, n, 0) | 1;
    return &s->slots[*hash >> (64 - s->slot_bits)];
}

static bool slot_has(const slot *t, const uint8_t *piece, size_t n, uint64_t hash) {
    return t && t->hash == hash && t->len == n && !memcmp(t->body, piece, n);
}

static void fill_slot(gw_bpe_scratch *s, slot *t, const uint8_t *piece, size_t n, uint64_t hash,
                      const gw_ids *ids) {
    if (!t || n + (size_t)ids->count * sizeof *ids->items > sizeof t->body) return;
    s->slots_added++;
    t->hash = hash;
    t->len = (uint8_t)n;
    t->count = (uint8_t)ids->count;
    memcpy(t->body, piece, n);
    if (ids->count) memcpy(t->body + n, ids->items, (size_t)ids->count * sizeof *ids->items);
}

static void grow_slots(gw_bpe_scratch *s) {
    if (s->slot_bits == MOST_SLOT_BITS || s->slots_added < (int64_t)1 << (s->slot_bits - 1)) return;
    slot *old = s->slots;
    void *memory = s->slot_memory;
    size_t n = (size_t)1 << s->slot_bits++;
    s->slots = gw_mem_zalloc_table(sizeof *s->slots << s->slot_bits, &s->slot_memory);
    s->slots_added = 0;
    for (size_t i = 0; i < n; i++)
        if (old[i].hash) s->slots[old[i].hash >> (64 - s->slot_bits)] = old[i];
    gw_mem_free(memory);
}

/* ---- words --------------------------------------------------------------------------------------
 */

void gw_bpe_want_long(const gw_bpe_scratch *s, const uint8_t *base, const uint32_t *bounds,
                      int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        size_t len = bounds[k + 1] - bounds[k];
        uint64_t hash;
        if (len <= GW_WORD_BYTES) continue;
        const slot *t = slot_of(s, base + bounds[k], len, &hash);
        if (!t) continue;
        GW_PREFETCH(t);
        GW_PREFETCH((const char *)t + 64);
    }
}

/* False if the word is longer, or has more ids, than a line takes. */
static bool remember(gw_bpe_scratch *s, size_t n, uint64_t low, uint64_t high,
                     const gw_ids *found) {
    if (n > GW_WORD_BYTES || found->count > WIDE_IDS) return false;
    if (found->count == 0) return true;
    s->added++;
    bool wide = found->count > 4;
    line *l = place_for(s, low, high, wide);
    if (wide) {
        s->added++;
        put_wide(l, low, high, found);
        return true;
    }
    uint32_t ids[4] = {0};
    for (int64_t i = 0; i < found->count; i++) ids[i] = (uint32_t)found->items[i];
    ids[0] |= (uint32_t)found->count << 24;
    put_word(l, low, high, ids);
    return true;
}

/* A word that no line holds: one with a slot, if it has more than WIDE_IDS bytes, or a new one. */
static void encode_rare(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                        uint64_t low, uint64_t high, gw_ids *out) {
    uint64_t hash = 0;
    slot *t = NULL;
    if (n > WIDE_IDS) {
        grow_slots(s);
        t = slot_of(s, piece, n, &hash);
        if (slot_has(t, piece, n, hash)) {
            append(out, t->body + n, t->count);
            return;
        }
    }
    gw_bpe_merge_piece(m, &s->work, piece, n);
    append(out, s->work.units.items, s->work.units.count);
    if (!remember(s, n, low, high, &s->work.units)) fill_slot(s, t, piece, n, hash, &s->work.units);
}

/* Bytes past ASCII, of which nothing merges: ids are those of the bytes. */
static bool encode_binary(const gw_bpe *m, const uint8_t *piece, size_t n, uint64_t low,
                          uint64_t high, gw_ids *out) {
    bool past = ((low | (high & ~(UINT64_C(0xff) << 56))) & UINT64_C(0x8080808080808080)) != 0;
    if (n < 3 || !past || !m->all_bytes || m->stranded || !gw_bpe_unmerged(m, piece, n))
        return false;
    gw_ids_reserve(out, (int64_t)n);
    for (size_t i = 0; i < n; i++) out->items[out->count++] = m->byte_id[piece[i]];
    return true;
}

/* A word of the line beside its own: from now on it is in its own, and the older word of that in
 * the other's place. */
static void move_home(line *home, line *beside, uint64_t low, uint64_t high) {
    int k = beside->key[0][0] == low && beside->key[0][1] == high ? 0 : 1;
    line old = *home;
    if (is_wide(home) || !is_full(home)) return;
    put_word(home, low, high, beside->ids[k]);
    memcpy(beside->key[k], old.key[1], sizeof old.key[1]);
    memcpy(beside->ids[k], old.ids[1], sizeof old.ids[1]);
}

void gw_bpe_encode_new(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                       uint64_t low, uint64_t high, gw_ids *out) {
    if (n <= GW_WORD_BYTES) {
        line *home = line_of(s, low, high), *beside = line_beside(s, home);
        if (find_wide(home, low, high, out) || encode_binary(m, piece, n, low, high, out)) return;
        gw_ids_reserve(out, 4);
        uint32_t found = find_word(beside, low, high, out->items + out->count);
        out->count += found;
        if (found && ++s->turn % MOVES == 0) move_home(home, beside, low, high);
        if (found || find_wide(beside, low, high, out)) return;
    }
    encode_rare(m, s, piece, n, low, high, out);
}

/* ---- pieces -------------------------------------------------------------------------------------
 */

/* A word on its way. */
typedef struct wanted {
    uint64_t low, high;
    line *at;
} wanted;

/* Asks memory for the lines of pieces that come later. True if some are too long for a line. */
static inline bool want(line *lines, int shift, const uint8_t *base, const uint32_t *bounds,
                        int64_t n, wanted *w) {
    bool any_long = false;
    uint32_t start = bounds[0];
    for (int64_t k = 0; k < n; k++) {
        uint32_t end = bounds[k + 1], len = end - start;
        const uint8_t *p = base + start;
        bool is_long = len > GW_WORD_BYTES;
        any_long |= is_long;
        const uint64_t *mask = MASKS[is_long ? 0 : len];
        uint64_t low = load64(p) & mask[0];
        uint64_t high = (load64(p + 8) & mask[1]) | (is_long ? GW_WORD_LONG : len) << 56;
        line *l = lines + (gw_word_hash(low, high) >> shift);
        GW_PREFETCH(l);
        w[k].low = low;
        w[k].high = high;
        w[k].at = l;
        start = end;
    }
    return any_long;
}

void gw_bpe_pieces_plain(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                         const uint32_t *bounds, int64_t count, gw_ids *out) {
    wanted w[GW_WORDS_AHEAD];
    int32_t *o = out->items + out->count;
    for (int64_t from = 0; from < count; from += GW_WORDS_AHEAD) {
        int64_t n = GW_MIN((int64_t)GW_WORDS_AHEAD, count - from);
        if (want(s->lines, 64 - s->bits, base, bounds + from, n, w))
            gw_bpe_want_long(s, base, bounds + from, n);
        for (int64_t k = 0; k < n; k++) {
            uint32_t found = find_word(w[k].at, w[k].low, w[k].high, o);
            o += found;
            if (GW_LIKELY(found)) continue;
            uint32_t start = bounds[from + k], len = bounds[from + k + 1] - start;
            out->count = o - out->items;
            gw_bpe_encode_new(m, s, base + start, len, w[k].low, w[k].high, out);
            gw_ids_reserve(out, 4 * (count - from - k) + 4);
            o = out->items + out->count;
        }
    }
    out->count = o - out->items;
}

void gw_bpe_encode_pieces(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                          const uint32_t *bounds, int64_t count, gw_ids *out) {
    grow_lines(s);
    gw_ids_reserve(out, 4 * count + 4);
    s->work.ops += count;
    s->pieces(m, s, base, bounds, count, out);
}

void gw_bpe_encode(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                   gw_ids *out) {
    if (n == 0) return;
    s->work.ops++;
    grow_lines(s);
    gw_ids_reserve(out, 4);
    uint64_t low = 0, high = 0;
    if (n <= GW_WORD_BYTES) {
        uint8_t text[16] = {0};
        memcpy(text, piece, n);
        low = load64(text);
        high = load64(text + 8) | (uint64_t)n << 56;
        uint32_t found = find_word(line_of(s, low, high), low, high, out->items + out->count);
        out->count += found;
        if (found) return;
    }
    gw_bpe_encode_new(m, s, piece, n, low, high, out);
}
