// SPDX-License-Identifier: Apache-2.0
// From pieces to ids.
//
// A piece starts as one id per unit (a byte, or a character); as long as some adjacent pair has a
// merge, the one of lowest rank is applied, leftmost first. Short pieces are done by scanning an
// array of ranks, longer ones by bpe_queue.c, so that a megabyte without a space costs n log n and
// not n squared. Operations on pairs are counted, which is how the tests hold the growth law
// without a clock.
//
// Text repeats its words, so nearly all of the time goes into finding a word whose ids are known.
// Words of up to 15 bytes are kept as two 64-bit numbers, zero behind the word and its length on
// top, with up to four ids; two words share a cache line. A look-up loads 16 bytes at the word,
// whatever its length, masks them, multiplies, compares with both words of a line, and stores four
// ids, of which the count says how many stay: no branch but "known and short", which is nearly
// always true. Lines are asked for some words ahead, as most of them are in a far cache. Longer
// words, and those of more ids, have slots of their own. Both tables have a largest size and
// forget; memory does not grow with the number of texts.
//
// Units without an id follow the file's rules: fall back to <0xNN> tokens, then to unk (one per
// unit, or fused), else they vanish; gw_tokenizer_open warns where that can happen to bytes.
#include "data/bpe.h" /* gw_bpe */

#include <string.h>
#include <sys/mman.h> /* madvise */

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_LIKELY */
#include "base/hash.h"     /* gw_hash64 */
#include "base/str.h"      /* gw_str */
#include "data/unicode.h"  /* gw_utf8_decode */

enum {
    SHORT = 48,      /* units that an array of ranks is scanned for */
    WORD_BYTES = 15, /* longest word of a line */
    FIRST_BITS = 14, /* of the number of lines: 1 MB, which grows to 32 MB */
    MOST_BITS = 19,
    FIRST_SLOT_BITS = 10, /* of the number of slots: 260 kB, which grows to 17 MB */
    MOST_SLOT_BITS = 16,
    SLOT_BYTES = 102,
    SLOT_IDS = 36,
    GROUP = 32,      /* words looked up ahead */
    ALIGN = 2 << 20, /* a huge page, where the system gives one */
};
#define FREE_PAIR UINT64_MAX

/* Two words: the newer first. A free place has length 0. */
typedef struct line {
    uint64_t key[2][2];
    uint32_t ids[2][4]; /* ids[.][0] holds the number of ids in its top byte */
} line;

typedef struct slot { /* 256 bytes */
    uint64_t hash;    /* 0 = free */
    uint8_t len, count;
    uint8_t text[SLOT_BYTES];
    int32_t ids[SLOT_IDS];
} slot;

struct gw_bpe_scratch {
    void *memory; /* of lines */
    line *lines;
    int bits;      /* 1 << bits lines */
    int64_t added; /* words since the lines grew */
    slot *slots;
    int slot_bits;
    int64_t slots_added; /* since the slots grew */
    gw_bpe_queue *queue;
    gw_ids units;
    gw_str unit; /* a unit with its prefix and suffix */
    int64_t ops;
};

void gw_bpe_init(gw_bpe *m) {
    *m = (gw_bpe){.unk = -1, .prefix = "", .suffix = ""};
    for (int i = 0; i < 256; i++) m->byte_id[i] = m->fallback_id[i] = -1;
}

void gw_bpe_release(gw_bpe *m) {
    gw_mem_free(m->pairs);
    gw_mem_free(m->bytes);
    gw_mem_free(m->maybe);
    gw_smap_release(&m->lookup);
}

static uint32_t pair_slot(const gw_bpe *m, uint64_t key) {
    uint32_t i = gw_bpe_pair_home(m, key);
    while (m->pairs[i].key != key && m->pairs[i].key != FREE_PAIR) i = (i + 1) & (m->pairs_cap - 1);
    return i;
}

static void grow_pairs(gw_bpe *m) {
    gw_bpe_pair *old = m->pairs;
    uint32_t n = m->pairs_cap;
    m->pairs_cap = n ? 2 * n : 1024;
    m->pairs = gw_mem_alloc(m->pairs_cap * sizeof *m->pairs);
    for (uint32_t i = 0; i < m->pairs_cap; i++) m->pairs[i].key = FREE_PAIR;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].key != FREE_PAIR) m->pairs[pair_slot(m, old[i].key)] = old[i];
    gw_mem_free(old);
}

void gw_bpe_add_merge(gw_bpe *m, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    if (2 * (m->pairs_count + 1) > m->pairs_cap) grow_pairs(m);
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = pair_slot(m, key);
    if (m->pairs[i].key == FREE_PAIR) m->pairs_count++;
    m->pairs[i] = (gw_bpe_pair){key, rank, id};
    if (rank >= m->nranks) m->nranks = rank + 1;
}

/* About sixteen bits a pair. */
static void build_filter(gw_bpe *m) {
    gw_mem_free(m->maybe);
    m->maybe_bits = 10;
    while ((UINT64_C(1) << m->maybe_bits) < 16 * (uint64_t)m->pairs_count) m->maybe_bits++;
    m->maybe = gw_mem_zalloc((size_t)1 << (m->maybe_bits - 3));
    for (uint32_t i = 0; i < m->pairs_cap; i++)
        if (m->pairs[i].key != FREE_PAIR) {
            uint64_t h = gw_bpe_pair_hash(m->pairs[i].key) >> (64 - m->maybe_bits);
            m->maybe[h >> 6] |= UINT64_C(1) << (h & 63);
        }
}

void gw_bpe_seal(gw_bpe *m) {
    build_filter(m);
    if (!m->byte_level) return;
    gw_mem_free(m->bytes);
    m->bytes = gw_mem_alloc(65536 * sizeof *m->bytes);
    for (int i = 0; i < 65536; i++) {
        int32_t a = m->byte_id[i >> 8], b = m->byte_id[i & 255];
        m->bytes[i] = a < 0 || b < 0 ? (gw_bpe_merge){GW_BPE_NO_RANK, -1} : gw_bpe_find(m, a, b);
    }
}

/* Lines of zero bytes, at the start of a page of their own kind. */
static line *new_lines(int bits, void **memory) {
    size_t bytes = sizeof(line) << bits;
    *memory = gw_mem_zalloc(bytes + ALIGN);
    line *l = (line *)(((uintptr_t)*memory + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    (void)madvise(l, bytes, MADV_HUGEPAGE); /* a wish */
    return l;
}

gw_bpe_scratch *gw_bpe_scratch_new(void) {
    gw_bpe_scratch *s = gw_mem_zalloc(sizeof *s);
    s->bits = FIRST_BITS;
    s->lines = new_lines(s->bits, &s->memory);
    s->slot_bits = FIRST_SLOT_BITS;
    s->slots = gw_mem_zalloc(sizeof *s->slots << s->slot_bits);
    s->queue = gw_bpe_queue_new();
    return s;
}

void gw_bpe_scratch_free(gw_bpe_scratch *s) {
    if (!s) return;
    gw_mem_free(s->memory);
    gw_mem_free(s->slots);
    gw_bpe_queue_free(s->queue);
    gw_vec_release(&s->units);
    gw_str_release(&s->unit);
    gw_mem_free(s);
}

void gw_bpe_scratch_flush(gw_bpe_scratch *s) {
    memset(s->lines, 0, sizeof *s->lines << s->bits);
    memset(s->slots, 0, sizeof *s->slots << s->slot_bits);
}
int64_t gw_bpe_scratch_ops(const gw_bpe_scratch *s) { return s->ops; }

int64_t gw_bpe_scratch_bytes(const gw_bpe_scratch *s) {
    return (int64_t)(sizeof *s + (sizeof(line) << s->bits) + ALIGN +
                     (sizeof(slot) << s->slot_bits)) +
           gw_bpe_queue_bytes(s->queue) + s->units.cap * 4 + (int64_t)s->unit.cap;
}

/* ---- units --------------------------------------------------------------------------------------
 */

static bool unit_id(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *p, size_t n, bool first,
                    bool last, int32_t *id) {
    uint32_t v;
    bool dressed = (!first && *m->prefix) || (last && *m->suffix);
    if (m->byte_level && !dressed) {
        *id = m->byte_id[p[0]];
        if (*id >= 0) return true;
    }
    gw_str_clear(&s->unit);
    if (!first) gw_str_add(&s->unit, m->prefix);
    gw_str_add_n(&s->unit, p, n);
    if (last) gw_str_add(&s->unit, m->suffix);
    if (m->byte_level && !dressed) return false;
    if (!gw_smap_find(&m->lookup, gw_str_c(&s->unit), s->unit.len, &v)) return false;
    *id = (int32_t)v;
    return true;
}

/* The <0xNN> ids of the unit (as it stands in s->unit); false unless all exist. */
static bool fall_back(const gw_bpe *m, gw_bpe_scratch *s) {
    for (size_t i = 0; i < s->unit.len; i++)
        if (m->fallback_id[(uint8_t)s->unit.data[i]] < 0) return false;
    for (size_t i = 0; i < s->unit.len; i++)
        gw_vec_push(&s->units, m->fallback_id[(uint8_t)s->unit.data[i]]);
    return true;
}

static void collect_units(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *p, size_t n) {
    bool unk_waits = false;
    s->units.count = 0;
    for (size_t i = 0; i < n;) {
        int len = 1;
        if (!m->byte_level) gw_utf8_decode(p + i, p + n, &len);
        size_t e = i + (size_t)len;
        int32_t id;
        if (unit_id(m, s, p + i, (size_t)len, i == 0, e == n, &id)) {
            if (unk_waits) gw_vec_push(&s->units, m->unk);
            unk_waits = false;
            gw_vec_push(&s->units, id);
        } else if (!(m->byte_fallback && fall_back(m, s)) && m->unk >= 0) {
            if (unk_waits && !m->fuse_unk) gw_vec_push(&s->units, m->unk);
            unk_waits = true;
        }
        i = e;
    }
    if (unk_waits) gw_vec_push(&s->units, m->unk);
}

/* ---- merging ------------------------------------------------------------------------------------
 */

/* ids[0..n) with the merges of their pairs, n <= SHORT. */
static int merge_short(const gw_bpe *m, gw_bpe_scratch *s, int32_t *ids, gw_bpe_merge *pair,
                       int n) {
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (pair[i].rank < pair[best].rank) best = i;
        if (pair[best].rank == GW_BPE_NO_RANK) break;
        ids[best] = pair[best].id;
        n--;
        for (int i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            pair[i] = pair[i + 1];
        }
        if (best > 0) pair[best - 1] = gw_bpe_find(m, ids[best - 1], ids[best]);
        if (best + 1 < n) pair[best] = gw_bpe_find(m, ids[best], ids[best + 1]);
        s->ops += 2;
    }
    return n;
}

/* A short piece of single bytes, all of which have ids. */
static bool merge_bytes(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *p, int n) {
    gw_bpe_merge pair[SHORT];
    int32_t *ids = s->units.items;
    for (int i = 0; i < n; i++)
        if ((ids[i] = m->byte_id[p[i]]) < 0) return false;
    for (int i = 0; i + 1 < n; i++) pair[i] = m->bytes[p[i] << 8 | p[i + 1]];
    s->ops += n;
    s->units.count = merge_short(m, s, ids, pair, n);
    return true;
}

static void merge_units(const gw_bpe *m, gw_bpe_scratch *s) {
    int64_t n = s->units.count;
    if (n < 2) return;
    if (n > SHORT) {
        s->units.count = gw_bpe_queue_merge(m, s->queue, s->units.items, n, &s->ops);
        return;
    }
    gw_bpe_merge pair[SHORT];
    for (int64_t i = 0; i + 1 < n; i++)
        pair[i] = gw_bpe_find(m, s->units.items[i], s->units.items[i + 1]);
    s->ops += n;
    s->units.count = merge_short(m, s, s->units.items, pair, (int)n);
}

/* ---- one piece ----------------------------------------------------------------------------------
 */

static void reserve(gw_ids *ids, int64_t extra) {
    while (ids->cap - ids->count < extra)
        ids->items = gw_vec_grow_(ids->items, &ids->cap, sizeof *ids->items);
}

/* The ids of a piece that is not known, to s->units. */
static void encode_units(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *p, size_t n) {
    uint32_t v;
    s->units.count = 0;
    reserve(&s->units, (int64_t)GW_MAX(n, (size_t)SHORT));
    s->ops++;
    if (m->ignore_merges && gw_smap_find(&m->lookup, (const char *)p, n, &v)) {
        s->units.items[s->units.count++] = (int32_t)v;
        return;
    }
    if (m->byte_level && n <= SHORT && !*m->prefix && !*m->suffix && merge_bytes(m, s, p, (int)n))
        return;
    collect_units(m, s, p, n);
    merge_units(m, s);
}

static void append(gw_ids *out, const int32_t *ids, int64_t n) {
    reserve(out, n);
    memcpy(out->items + out->count, ids, (size_t)n * sizeof *ids);
    out->count += n;
}

static slot *slot_of(gw_bpe_scratch *s, const uint8_t *piece, size_t n, uint64_t *hash) {
    if (n > SLOT_BYTES) return NULL;
    *hash = gw_hash64(piece, n, 0) | 1;
    return &s->slots[*hash >> (64 - s->slot_bits)];
}

static bool slot_has(const slot *t, const uint8_t *piece, size_t n, uint64_t hash) {
    return t && t->hash == hash && t->len == n && !memcmp(t->text, piece, n);
}

static void fill_slot(gw_bpe_scratch *s, slot *t, const uint8_t *piece, size_t n, uint64_t hash,
                      const gw_ids *ids) {
    if (!t || ids->count > SLOT_IDS) return;
    s->slots_added++;
    t->hash = hash;
    t->len = (uint8_t)n;
    t->count = (uint8_t)ids->count;
    memcpy(t->text, piece, n);
    if (ids->count) memcpy(t->ids, ids->items, (size_t)ids->count * sizeof *ids->items);
}

/* ---- words --------------------------------------------------------------------------------------
 */

static const uint64_t MASKS[WORD_BYTES + 1][2] = {
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

static inline uint64_t hash_of(uint64_t low, uint64_t high) {
    return low * 0x9e3779b97f4a7c15u + high * 0xc2b2ae3d27d4eb4fu;
}

static inline line *line_of(gw_bpe_scratch *s, uint64_t low, uint64_t high) {
    return &s->lines[hash_of(low, high) >> (64 - s->bits)];
}

/* A word of up to 15 bytes on its way: at NULL = it is longer. */
typedef struct wanted {
    uint64_t low, high;
    line *at;
} wanted;

/* Stores the ids of a word at `o`, which has room for four. Returns how many; 0 if they are not
 * known. */
static inline uint32_t find_word(const wanted *w, int32_t *o) {
    const line *l = w->at;
    uint64_t x0 = (l->key[0][0] ^ w->low) | (l->key[0][1] ^ w->high);
    uint64_t x1 = (l->key[1][0] ^ w->low) | (l->key[1][1] ^ w->high);
    if (GW_UNLIKELY((x0 != 0) & (x1 != 0))) return 0;
    const uint32_t *ids = l->ids[x0 != 0];
    uint32_t first = ids[0];
    memcpy(o, ids, 16);
    o[0] = (int32_t)(first & 0xffffff);
    return first >> 24;
}

/* Puts a word first, the first second, and forgets the second. */
static void put_word(line *l, uint64_t low, uint64_t high, const uint32_t ids[4]) {
    memcpy(l->key[1], l->key[0], sizeof l->key[0]);
    memcpy(l->ids[1], l->ids[0], sizeof l->ids[0]);
    l->key[0][0] = low;
    l->key[0][1] = high;
    memcpy(l->ids[0], ids, sizeof l->ids[0]);
}

/* A word whose line is full may be in the next one. */
static line *line_beside(gw_bpe_scratch *s, const line *l) { return &s->lines[(l - s->lines) ^ 1]; }

static bool is_full(const line *l) { return l->key[1][1] != 0; }

static line *place_for(gw_bpe_scratch *s, uint64_t low, uint64_t high) {
    line *l = line_of(s, low, high), *beside = line_beside(s, l);
    return is_full(l) && !is_full(beside) ? beside : l;
}

/* Where half of the places are taken: twice the lines, with the words of the old ones. */
static void grow_lines(gw_bpe_scratch *s) {
    if (s->bits == MOST_BITS || s->added < (int64_t)1 << s->bits) return;
    line *old = s->lines;
    void *memory = s->memory;
    size_t n = (size_t)1 << s->bits++;
    s->lines = new_lines(s->bits, &s->memory);
    s->added = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 1; k >= 0; k--)
            if (old[i].key[k][1])
                put_word(place_for(s, old[i].key[k][0], old[i].key[k][1]), old[i].key[k][0],
                         old[i].key[k][1], old[i].ids[k]);
    gw_mem_free(memory);
}

static void grow_slots(gw_bpe_scratch *s) {
    if (s->slot_bits == MOST_SLOT_BITS || s->slots_added < (int64_t)1 << (s->slot_bits - 1)) return;
    slot *old = s->slots;
    size_t n = (size_t)1 << s->slot_bits++;
    s->slots = gw_mem_zalloc(sizeof *s->slots << s->slot_bits);
    s->slots_added = 0;
    for (size_t i = 0; i < n; i++)
        if (old[i].hash) s->slots[old[i].hash >> (64 - s->slot_bits)] = old[i];
    gw_mem_free(old);
}

/* A word that no line holds, for its line unless it is a long one. */
static void encode_new(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                       const wanted *w, gw_ids *out) {
    uint64_t hash = 0;
    line *to = w->at;
    if (to) {
        wanted beside = {w->low, w->high, line_beside(s, to)};
        reserve(out, 4);
        uint32_t found = find_word(&beside, out->items + out->count);
        out->count += found;
        if (found) return;
        to = place_for(s, w->low, w->high);
    }
    grow_slots(s);
    /* Up to four bytes have up to four ids, which a line holds. */
    slot *t = n <= 4 && m->byte_level ? NULL : slot_of(s, piece, n, &hash);
    if (slot_has(t, piece, n, hash)) {
        append(out, t->ids, t->count);
        return;
    }
    encode_units(m, s, piece, n);
    append(out, s->units.items, s->units.count);
    if (!to || s->units.count > 4 || s->units.count == 0) {
        fill_slot(s, t, piece, n, hash, &s->units);
        return;
    }
    uint32_t ids[4] = {0};
    for (int64_t i = 0; i < s->units.count; i++) ids[i] = (uint32_t)s->units.items[i];
    ids[0] |= (uint32_t)s->units.count << 24;
    put_word(to, w->low, w->high, ids);
    s->added++;
}

/* Asks memory for the lines of pieces that come later. */
static inline void want(line *lines, int shift, const uint8_t *base, const uint32_t *bounds,
                        int64_t n, wanted *w) {
    uint32_t start = bounds[0];
    for (int64_t k = 0; k < n; k++) {
        uint32_t end = bounds[k + 1], len = end - start;
        const uint8_t *p = base + start;
        bool is_long = len > WORD_BYTES;
        const uint64_t *mask = MASKS[is_long ? 0 : len];
        uint64_t low = load64(p) & mask[0];
        uint64_t high = (load64(p + 8) & mask[1]) | (uint64_t)len << 56;
        line *l = lines + (hash_of(low, high) >> shift);
        GW_PREFETCH(l);
        w[k].low = low;
        w[k].high = high;
        w[k].at = is_long ? NULL : l;
        start = end;
    }
}

void gw_bpe_encode_pieces(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                          const uint32_t *bounds, int64_t count, gw_ids *out) {
    wanted w[GROUP];
    grow_lines(s);
    reserve(out, 4 * count + 4);
    int32_t *o = out->items + out->count;
    s->ops += count;
    for (int64_t from = 0; from < count; from += GROUP) {
        int64_t n = GW_MIN((int64_t)GROUP, count - from);
        want(s->lines, 64 - s->bits, base, bounds + from, n, w);
        for (int64_t k = 0; k < n; k++) {
            if (GW_LIKELY(w[k].at != NULL)) {
                uint32_t found = find_word(&w[k], o);
                o += found;
                if (GW_LIKELY(found)) continue;
            }
            uint32_t start = bounds[from + k], len = bounds[from + k + 1] - start;
            out->count = o - out->items;
            encode_new(m, s, base + start, len, &w[k], out);
            reserve(out, 4 * (count - from - k) + 4);
            o = out->items + out->count;
        }
    }
    out->count = o - out->items;
}

void gw_bpe_encode(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                   gw_ids *out) {
    if (n == 0) return;
    s->ops++;
    grow_lines(s);
    wanted w = {0};
    reserve(out, 4);
    if (n <= WORD_BYTES) {
        uint8_t text[16] = {0};
        memcpy(text, piece, n);
        w.low = load64(text);
        w.high = load64(text + 8) | (uint64_t)n << 56;
        w.at = line_of(s, w.low, w.high);
        uint32_t found = find_word(&w, out->items + out->count);
        out->count += found;
        if (found) return;
    }
    encode_new(m, s, piece, n, &w, out);
}
