// SPDX-License-Identifier: Apache-2.0
// Merging.
//
// A piece starts as one id per unit (a byte, or a character); as long as some adjacent pair has a
// merge, the one of lowest rank is applied, leftmost first. Short pieces, nearly all, are done by
// scanning an array of ranks; longer ones by a linked list and a heap of (rank, position), so that
// a megabyte without a space costs n log n and not n squared. An entry of the heap may be stale:
// when it is popped, the pair at its position must still become the same id, as in Hugging Face
// tokenizers.
//
// A direct-mapped cache of short words keeps their ids: text repeats words, and its size is fixed,
// so that memory does not grow with the number of texts. Operations on pairs and on the heap are
// counted, which is how the tests hold the growth law without a clock.
//
// Units without an id follow the file's rules: fall back to <0xNN> tokens, then to unk (one per
// unit, or fused), else they vanish; gw_tokenizer_open warns where that can happen to bytes.
#include "data/bpe.h" /* gw_bpe */

#include <string.h>

#include "base/arena.h"   /* gw_mem_alloc */
#include "base/hash.h"    /* gw_hash64 */
#include "base/str.h"     /* gw_str */
#include "data/unicode.h" /* gw_utf8_decode */

enum { SHORT = 32, CACHE_SLOTS = 1 << 15, CACHE_BYTES = 24, CACHE_IDS = 7 };
#define FREE_PAIR UINT64_MAX
#define NO_RANK   UINT32_MAX

typedef struct symbol {
    int32_t id; /* -1 = merged away */
    int32_t prev, next;
} symbol;

typedef struct heap_entry {
    uint64_t key; /* rank << 32 | position */
    int32_t id;
} heap_entry;

typedef struct cache_slot { /* 64 bytes */
    uint64_t hash;          /* 0 = empty */
    uint8_t len, count;
    uint8_t text[CACHE_BYTES];
    int32_t ids[CACHE_IDS];
} cache_slot;

struct gw_bpe_scratch {
    cache_slot *cache;
    symbol *symbols;
    int64_t symbols_cap;
    heap_entry *heap;
    int64_t heap_count, heap_cap;
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
    gw_smap_release(&m->lookup);
}

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint32_t pair_slot(const gw_bpe *m, uint64_t key) {
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(h >> 32) & (m->pairs_cap - 1);
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
    uint64_t key = pair_key(left, right);
    uint32_t i = pair_slot(m, key);
    if (m->pairs[i].key == FREE_PAIR) m->pairs_count++;
    m->pairs[i] = (gw_bpe_pair){key, rank, id};
}

static const gw_bpe_pair *find_pair(const gw_bpe *m, gw_bpe_scratch *s, int32_t left,
                                    int32_t right) {
    s->ops++;
    if (!m->pairs_cap) return NULL;
    const gw_bpe_pair *p = &m->pairs[pair_slot(m, pair_key(left, right))];
    return p->key == FREE_PAIR ? NULL : p;
}

gw_bpe_scratch *gw_bpe_scratch_new(void) {
    gw_bpe_scratch *s = gw_mem_zalloc(sizeof *s);
    s->cache = gw_mem_zalloc(CACHE_SLOTS * sizeof *s->cache);
    return s;
}

void gw_bpe_scratch_free(gw_bpe_scratch *s) {
    if (!s) return;
    gw_mem_free(s->cache);
    gw_mem_free(s->symbols);
    gw_mem_free(s->heap);
    gw_vec_release(&s->units);
    gw_str_release(&s->unit);
    gw_mem_free(s);
}

void gw_bpe_scratch_flush(gw_bpe_scratch *s) {
    memset(s->cache, 0, CACHE_SLOTS * sizeof *s->cache);
}
int64_t gw_bpe_scratch_ops(const gw_bpe_scratch *s) { return s->ops; }

int64_t gw_bpe_scratch_bytes(const gw_bpe_scratch *s) {
    return (int64_t)(sizeof *s + CACHE_SLOTS * sizeof *s->cache) +
           s->symbols_cap * (int64_t)sizeof *s->symbols + s->heap_cap * (int64_t)sizeof *s->heap +
           s->units.cap * 4 + (int64_t)s->unit.cap;
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

/* ---- short pieces -------------------------------------------------------------------------------
 */

static int merge_short(const gw_bpe *m, gw_bpe_scratch *s, int32_t *ids, int n) {
    uint32_t rank[SHORT];
    int32_t made[SHORT];
    for (int i = 0; i + 1 < n; i++) {
        const gw_bpe_pair *p = find_pair(m, s, ids[i], ids[i + 1]);
        rank[i] = p ? p->rank : NO_RANK;
        made[i] = p ? p->id : -1;
    }
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = made[best];
        n--;
        for (int i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (int i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            made[i] = made[i + 1];
        }
        for (int i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const gw_bpe_pair *p = find_pair(m, s, ids[i], ids[i + 1]);
            rank[i] = p ? p->rank : NO_RANK;
            made[i] = p ? p->id : -1;
        }
    }
    return n;
}

/* ---- long pieces --------------------------------------------------------------------------------
 */

static void sift_down(gw_bpe_scratch *s, int64_t i) {
    heap_entry e = s->heap[i];
    for (int64_t c; (c = 2 * i + 1) < s->heap_count; i = c) {
        s->ops++;
        if (c + 1 < s->heap_count && s->heap[c + 1].key < s->heap[c].key) c++;
        if (s->heap[c].key >= e.key) break;
        s->heap[i] = s->heap[c];
    }
    s->heap[i] = e;
}

static void heap_append(gw_bpe_scratch *s, uint32_t rank, int32_t pos, int32_t id) {
    if (s->heap_count == s->heap_cap)
        s->heap = gw_vec_grow_(s->heap, &s->heap_cap, sizeof *s->heap);
    s->heap[s->heap_count++] = (heap_entry){(uint64_t)rank << 32 | (uint32_t)pos, id};
}

static void heap_push(gw_bpe_scratch *s, uint32_t rank, int32_t pos, int32_t id) {
    heap_append(s, rank, pos, id);
    heap_entry e = s->heap[s->heap_count - 1];
    int64_t i = s->heap_count - 1;
    for (; i > 0 && s->heap[(i - 1) / 2].key > e.key; i = (i - 1) / 2) {
        s->ops++;
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = e;
}

static heap_entry heap_pop(gw_bpe_scratch *s) {
    heap_entry top = s->heap[0];
    s->heap[0] = s->heap[--s->heap_count];
    if (s->heap_count > 0) sift_down(s, 0);
    return top;
}

static void list_units(gw_bpe_scratch *s, const gw_ids *ids) {
    if (ids->count > s->symbols_cap) {
        s->symbols_cap = ids->count + ids->count / 4;
        s->symbols = gw_mem_realloc(s->symbols, (size_t)s->symbols_cap * sizeof *s->symbols);
    }
    for (int64_t i = 0; i < ids->count; i++)
        s->symbols[i] =
            (symbol){ids->items[i], (int32_t)(i - 1), i + 1 < ids->count ? (int32_t)(i + 1) : -1};
}

static void try_push(const gw_bpe *m, gw_bpe_scratch *s, int32_t left) {
    int32_t right = left < 0 ? -1 : s->symbols[left].next;
    if (right < 0) return;
    const gw_bpe_pair *p = find_pair(m, s, s->symbols[left].id, s->symbols[right].id);
    if (p) heap_push(s, p->rank, left, p->id);
}

static void merge_long(const gw_bpe *m, gw_bpe_scratch *s) {
    list_units(s, &s->units);
    symbol *y = s->symbols;
    s->heap_count = 0;
    for (int32_t i = 0; i + 1 < s->units.count; i++) {
        const gw_bpe_pair *p = find_pair(m, s, y[i].id, y[i + 1].id);
        if (p) heap_append(s, p->rank, i, p->id);
    }
    for (int64_t i = s->heap_count / 2; i-- > 0;) sift_down(s, i);
    while (s->heap_count > 0) {
        heap_entry top = heap_pop(s);
        int32_t i = (int32_t)(uint32_t)top.key, j = y[i].next;
        if (y[i].id < 0 || j < 0) continue;
        const gw_bpe_pair *p = find_pair(m, s, y[i].id, y[j].id);
        if (!p || p->id != top.id) continue;
        y[i].id = top.id;
        y[i].next = y[j].next;
        y[j].id = -1;
        if (y[i].next >= 0) y[y[i].next].prev = i;
        try_push(m, s, y[i].prev);
        try_push(m, s, i);
    }
    s->units.count = 0;
    for (int32_t i = 0; i >= 0; i = y[i].next) s->units.items[s->units.count++] = y[i].id;
}

/* ---- one piece ----------------------------------------------------------------------------------
 */

static void encode_units(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *p, size_t n) {
    uint32_t v;
    if (m->ignore_merges && gw_smap_find(&m->lookup, (const char *)p, n, &v)) {
        s->units.count = 0;
        gw_vec_push(&s->units, (int32_t)v);
        return;
    }
    collect_units(m, s, p, n);
    if (s->units.count < 2) return;
    if (s->units.count <= SHORT)
        s->units.count = merge_short(m, s, s->units.items, (int)s->units.count);
    else
        merge_long(m, s);
}

static void append(gw_ids *out, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) gw_vec_push(out, ids[i]);
}

void gw_bpe_encode(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *piece, size_t n,
                   gw_ids *out) {
    if (n == 0) return;
    s->ops++;
    cache_slot *slot = NULL;
    uint64_t hash = 0;
    if (n <= CACHE_BYTES) {
        hash = gw_hash64(piece, n, 0) | 1;
        slot = &s->cache[(hash >> 8) & (CACHE_SLOTS - 1)];
        if (slot->hash == hash && slot->len == n && !memcmp(slot->text, piece, n)) {
            append(out, slot->ids, slot->count);
            return;
        }
    }
    encode_units(m, s, piece, n);
    append(out, s->units.items, s->units.count);
    if (slot && s->units.count <= CACHE_IDS) {
        slot->hash = hash;
        slot->len = (uint8_t)n;
        slot->count = (uint8_t)s->units.count;
        memcpy(slot->text, piece, n);
        for (int64_t i = 0; i < s->units.count; i++) slot->ids[i] = s->units.items[i];
    }
}
