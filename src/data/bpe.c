// SPDX-License-Identifier: Apache-2.0
// From the bytes of a piece to ids, by merging.
//
// A piece starts as one id per unit (a byte, or a character); as long as some adjacent pair has a
// merge, the one of lowest rank is applied, leftmost first. Up to 64 units are done in a window
// (bpe_merge.h). Of longer pieces, a few runs of one unit are done by runs, others by windows that
// overlap (bpe_windows.c), and what is left by a queue (bpe_queue.c), so that a megabyte without a
// space costs n log n and not n squared. Operations on pairs are counted, which is how the tests
// hold the growth law without a clock.
//
// What a pair becomes stands in a table with open addressing; before it, a filter says of most
// pairs that have no merge that they are not in it. Pairs of single bytes have tables of their own.
//
// Units without an id follow the file's rules: fall back to <0xNN> tokens, then to unk (one per
// unit, or fused), else they vanish; gw_tokenizer_open warns where that can happen to bytes.
//
// bpe_words.c remembers the ids of words and asks here for those that it does not know.
#include "data/bpe.h" /* gw_bpe */

#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_MAX */
#include "base/str.h"      /* gw_str */
#include "data/bpe_impl.h" /* gw_bpe_work */
#include "data/scanner.h"  /* gw_scan_has */
#include "data/unicode.h"  /* gw_utf8_decode */

#define FREE UINT64_MAX

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
    while (m->pairs[i].key != key && m->pairs[i].key != FREE) i = (i + 1) & (m->pairs_cap - 1);
    return i;
}

static void grow_pairs(gw_bpe *m) {
    gw_bpe_pair *old = m->pairs;
    uint32_t n = m->pairs_cap;
    m->pairs_cap = n ? 2 * n : 1024;
    m->pairs = gw_mem_alloc(m->pairs_cap * sizeof *m->pairs);
    for (uint32_t i = 0; i < m->pairs_cap; i++) m->pairs[i].key = FREE;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].key != FREE) m->pairs[pair_slot(m, old[i].key)] = old[i];
    gw_mem_free(old);
}

void gw_bpe_add_merge(gw_bpe *m, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    if (2 * (m->pairs_count + 1) > m->pairs_cap) grow_pairs(m);
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = pair_slot(m, key);
    if (m->pairs[i].key == FREE) m->pairs_count++;
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
        if (m->pairs[i].key != FREE) {
            uint64_t h = gw_bpe_pair_hash(m->pairs[i].key) >> (64 - m->maybe_bits);
            m->maybe[h >> 6] |= UINT64_C(1) << (h & 63);
        }
}

void gw_bpe_seal(gw_bpe *m) {
    build_filter(m);
    m->plain = m->byte_level && !*m->prefix && !*m->suffix;
    m->all_bytes = m->plain;
    for (int b = 0; b < 256; b++) m->all_bytes &= m->byte_id[b] >= 0;
    m->stranded = m->ignore_merges;
    if (!m->byte_level) return;
    gw_mem_free(m->bytes);
    m->bytes = gw_mem_alloc(65536 * sizeof *m->bytes);
    memset(m->byte_pairs, 0, sizeof m->byte_pairs);
    for (uint32_t i = 0; i < 65536; i++) {
        int32_t a = m->byte_id[i >> 8], b = m->byte_id[i & 255];
        m->bytes[i] = a < 0 || b < 0 ? (gw_bpe_merge){GW_BPE_NO_RANK, -1} : gw_bpe_find(m, a, b);
        m->byte_pairs[i >> 6] |= (uint64_t)(m->bytes[i].rank != GW_BPE_NO_RANK) << (i & 63);
    }
}

gw_bpe_merge_window *gw_bpe_merge_window_best(void) {
    return gw_scan_has(GW_SCAN_AVX2) ? gw_bpe_merge_window_avx2 : gw_bpe_merge_window_plain;
}

void gw_bpe_work_init(gw_bpe_work *w) {
    *w = (gw_bpe_work){.queue = gw_bpe_queue_new(), .merge = gw_bpe_merge_window_best()};
}

void gw_bpe_work_release(gw_bpe_work *w) {
    gw_bpe_queue_free(w->queue);
    gw_vec_release(&w->units);
    gw_vec_release(&w->joined);
    gw_str_release(&w->unit);
}

int64_t gw_bpe_work_bytes(const gw_bpe_work *w) {
    return gw_bpe_queue_bytes(w->queue) + (w->units.cap + w->joined.cap) * 4 + (int64_t)w->unit.cap;
}

/* ---- units --------------------------------------------------------------------------------------
 */

static bool unit_id(const gw_bpe *m, gw_bpe_work *w, const uint8_t *p, size_t n, bool first,
                    bool last, int32_t *id) {
    uint32_t v;
    bool dressed = (!first && *m->prefix) || (last && *m->suffix);
    if (m->byte_level && !dressed) {
        *id = m->byte_id[p[0]];
        if (*id >= 0) return true;
    }
    gw_str_clear(&w->unit);
    if (!first) gw_str_add(&w->unit, m->prefix);
    gw_str_add_n(&w->unit, p, n);
    if (last) gw_str_add(&w->unit, m->suffix);
    if (m->byte_level && !dressed) return false;
    if (!gw_smap_find(&m->lookup, gw_str_c(&w->unit), w->unit.len, &v)) return false;
    *id = (int32_t)v;
    return true;
}

/* The <0xNN> ids of the unit (as it stands in w->unit); false unless all exist. */
static bool fall_back(const gw_bpe *m, gw_bpe_work *w) {
    for (size_t i = 0; i < w->unit.len; i++)
        if (m->fallback_id[(uint8_t)w->unit.data[i]] < 0) return false;
    for (size_t i = 0; i < w->unit.len; i++)
        gw_vec_push(&w->units, m->fallback_id[(uint8_t)w->unit.data[i]]);
    return true;
}

/* w->units has room for n. */
static void collect_units(const gw_bpe *m, gw_bpe_work *w, const uint8_t *p, size_t n) {
    bool unk_waits = false;
    w->units.count = 0;
    if (m->all_bytes) {
        for (size_t i = 0; i < n; i++) w->units.items[i] = m->byte_id[p[i]];
        w->units.count = (int64_t)n;
        return;
    }
    for (size_t i = 0; i < n;) {
        int len = 1;
        if (!m->byte_level) gw_utf8_decode(p + i, p + n, &len);
        size_t e = i + (size_t)len;
        int32_t id;
        if (unit_id(m, w, p + i, (size_t)len, i == 0, e == n, &id)) {
            if (unk_waits) gw_vec_push(&w->units, m->unk);
            unk_waits = false;
            gw_vec_push(&w->units, id);
        } else if (!(m->byte_fallback && fall_back(m, w)) && m->unk >= 0) {
            if (unk_waits && !m->fuse_unk) gw_vec_push(&w->units, m->unk);
            unk_waits = true;
        }
        i = e;
    }
    if (unk_waits) gw_vec_push(&w->units, m->unk);
}

/* ---- merging ------------------------------------------------------------------------------------
 */

static void take_window(const gw_bpe *m, gw_bpe_work *w, gw_bpe_window *v) {
    w->ops += w->merge(m, v);
    w->units.count = 0;
    for (uint64_t s = v->alive; s; s &= s - 1)
        w->units.items[w->units.count++] = v->id[__builtin_ctzll(s)];
}

/* A short piece of plain bytes; false if one has no id. */
static bool merge_bytes(const gw_bpe *m, gw_bpe_work *w, const uint8_t *p, int n) {
    gw_bpe_window v;
    int32_t all = 0;
    v.n = n;
    v.alive = gw_bpe_low_bits(n);
    for (int i = 0; i < n; i++) all |= v.id[i] = m->byte_id[p[i]];
    if (all < 0) return false;
    for (int i = 0; i + 1 < n; i++) {
        gw_bpe_merge x = m->bytes[p[i] << 8 | p[i + 1]];
        v.rank[i] = x.rank;
        v.to[i] = x.id;
    }
    v.rank[n - 1] = GW_BPE_NO_RANK;
    take_window(m, w, &v);
    return true;
}

static void merge_units(const gw_bpe *m, gw_bpe_work *w, const uint8_t *bytes) {
    int64_t n = w->units.count, left;
    if (n < 2) return;
    if (n <= GW_BPE_WINDOW) {
        gw_bpe_window v;
        gw_bpe_window_fill(m, &v, w->units.items, bytes, (int)n);
        take_window(m, w, &v);
        return;
    }
    if ((left = gw_bpe_merge_runs(m, w->units.items, n, &w->ops)) >= 0) {
        w->units.count = left;
        return;
    }
    w->joined.count = 0;
    if (gw_bpe_merge_windows(m, w->merge, w->units.items, bytes, n, &w->joined, &w->ops)) {
        gw_ids units = w->units;
        w->units = w->joined;
        w->joined = units;
        return;
    }
    w->units.count = gw_bpe_queue_merge(m, w->queue, w->units.items, n, &w->ops);
}

void gw_bpe_merge_piece(const gw_bpe *m, gw_bpe_work *w, const uint8_t *piece, size_t n) {
    uint32_t v;
    w->units.count = 0;
    while (w->units.cap < (int64_t)GW_MAX(n, (size_t)GW_BPE_WINDOW))
        w->units.items = gw_vec_grow_(w->units.items, &w->units.cap, sizeof *w->units.items);
    w->ops++;
    if (m->ignore_merges && gw_smap_find(&m->lookup, (const char *)piece, n, &v)) {
        w->units.items[w->units.count++] = (int32_t)v;
        return;
    }
    if (m->plain && n <= GW_BPE_WINDOW && merge_bytes(m, w, piece, (int)n)) return;
    collect_units(m, w, piece, n);
    merge_units(m, w, m->all_bytes ? piece : NULL);
}
