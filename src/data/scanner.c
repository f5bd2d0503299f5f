// SPDX-License-Identifier: Apache-2.0
// A text's pieces in batches.
//
// A text is looked at in blocks of 64 characters (scan_rules.h), about 8 kB a batch, so that text
// and positions are in the first cache when the pieces are used. Vectors and readers of a word load
// past the end of what they want. Therefore the end of a text, which is most often the whole of it,
// is copied to a buffer with zero bytes behind: from the last start on, where a piece is known to
// begin. Zero bytes are symbols, which change nothing before them but how a run of white space at
// the end is cut; so the pieces from that run's word on are found by gw_scan_next.
#include "data/scanner.h" /* gw_scanner */

#include <string.h>

#include "base/arena.h"       /* gw_mem_alloc */
#include "base/map.h"         /* GW_VEC */
#include "data/scan_blocks.h" /* gw_scan_job */

enum { BATCH = 8192, MARGIN = 256, STARTS = BATCH + MARGIN + 256 };

struct gw_scanner {
    gw_scan_job job;
    gw_scan_blocks *blocks;
    gw_uni_table *table;
    gw_scan_starts starts;
    uint64_t places[256];
    uint8_t *tail; /* the end of the text, zero bytes behind */
    size_t tail_cap;
    bool done;
};

static void find_places(uint64_t places[256]) {
    for (unsigned byte = 0; byte < 256; byte++)
        for (unsigned bits = byte, k = 0; bits; bits &= bits - 1, k++)
            places[byte] |= (uint64_t)(unsigned)__builtin_ctz(bits) << 8 * k;
}

bool gw_scan_has(gw_scan_with with) {
#if defined(__x86_64__) && defined(__GNUC__)
    bool bmi = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    switch (with) {
    case GW_SCAN_PLAIN: return true;
    case GW_SCAN_AVX2: return bmi && __builtin_cpu_supports("avx2");
    case GW_SCAN_AVX512:
        return bmi && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    }
#endif
    return with == GW_SCAN_PLAIN;
}

gw_scan_with gw_scan_best(void) {
    return gw_scan_has(GW_SCAN_AVX512) ? GW_SCAN_AVX512
           : gw_scan_has(GW_SCAN_AVX2) ? GW_SCAN_AVX2
                                       : GW_SCAN_PLAIN;
}

const char *gw_scan_with_name(gw_scan_with with) {
    static const char *const NAMES[] = {"plain C", "AVX2", "AVX-512"};
    return NAMES[with];
}

void gw_scanner_use(gw_scanner *s, gw_scan_with with) {
    static gw_scan_blocks *const BLOCKS[] = {gw_scan_blocks_plain, gw_scan_blocks_avx2,
                                             gw_scan_blocks_avx512};
    s->blocks = BLOCKS[with];
}

gw_scanner *gw_scanner_new(void) {
    gw_scanner *s = gw_mem_zalloc(sizeof *s);
    s->starts.cap = STARTS;
    s->starts.items = gw_mem_alloc(STARTS * sizeof *s->starts.items);
    s->tail_cap = BATCH + MARGIN + 1024;
    s->tail = gw_mem_alloc(s->tail_cap);
    find_places(s->places);
    gw_scanner_use(s, gw_scan_best());
    return s;
}

void gw_scanner_free(gw_scanner *s) {
    if (!s) return;
    gw_uni_table_free(s->table);
    gw_mem_free(s->starts.items);
    gw_mem_free(s->tail);
    gw_mem_free(s);
}

int64_t gw_scanner_bytes(const gw_scanner *s) {
    int64_t table = s->table ? (int64_t)sizeof *s->table + 256 * (int64_t)s->table->npages : 0;
    return (int64_t)(sizeof *s + s->tail_cap) + 4 * s->starts.cap + table;
}

void gw_scanner_begin(gw_scanner *s, gw_scan kind, int unicode_version, const uint8_t *text,
                      size_t n) {
    s->starts.count = 0;
    s->done = n == 0;
    s->job = (gw_scan_job){.kind = kind,
                           .version = unicode_version,
                           .made = &s->table,
                           .text = text,
                           .n = n,
                           .known = 1,
                           .starts = &s->starts,
                           .places = s->places};
    if (s->table && s->table->version == unicode_version) s->job.classes = s->table;
}

static void push(gw_scanner *s, size_t at) {
    if (s->starts.count == s->starts.cap)
        s->starts.items = gw_vec_grow_(s->starts.items, &s->starts.cap, sizeof *s->starts.items);
    s->starts.items[s->starts.count++] = (uint32_t)at;
}

/* The start of the white space that ends text[0..n); n if there is none. */
static size_t trailing_space(const uint8_t *text, size_t n) {
    while (n > 0) {
        size_t k = n - 1;
        while (k > 0 && n - k < 3 && (text[k] & 0xc0) == 0x80) k--;
        int len;
        uint32_t cp = gw_utf8_decode(text + k, text + n, &len);
        if (cp == GW_CP_INVALID || k + (size_t)len != n || !gw_uni_is_space(cp)) break;
        n = k;
    }
    return n;
}

/* Copies the text from its last start on, so that the job goes on in the copy. */
static void move_to_tail(gw_scanner *s) {
    gw_scan_job *j = &s->job;
    size_t n = j->n - j->last;
    if (n + MARGIN > s->tail_cap) {
        gw_mem_free(s->tail);
        s->tail_cap = n + n / 2 + MARGIN;
        s->tail = gw_mem_alloc(s->tail_cap);
    }
    memcpy(s->tail, j->text + j->last, n);
    memset(s->tail + n, 0, MARGIN);
    j->text = s->tail;
    j->n = n;
    j->at = j->last = 0;
    j->carry = (gw_carry){0};
    j->known = 1;
}

/* Looks at blocks up to `stop`; the starts are those from the last one on. */
static void look(gw_scanner *s, size_t stop) {
    s->starts.count = 0;
    push(s, s->job.last);
    s->blocks(&s->job, stop);
}

static void finish(gw_scanner *s) {
    gw_scan_job *j = &s->job;
    move_to_tail(s);
    size_t sure = trailing_space(j->text, j->n);
    look(s, sure);
    int64_t k = 1;
    while (k < s->starts.count && s->starts.items[k] < sure) k++;
    s->starts.count = k;
    size_t pos = s->starts.items[k - 1];
    if (sure == j->n) push(s, j->n);
    while (sure < j->n && pos < j->n) {
        pos = j->classes ? gw_scan_next_by(j->kind, j->classes, j->text, j->n, pos)
                         : gw_scan_next(j->kind, j->version, j->text, j->n, pos);
        push(s, pos);
    }
    s->done = true;
}

int64_t gw_scanner_next(gw_scanner *s, const uint8_t **base, const uint32_t **bounds) {
    gw_scan_job *j = &s->job;
    while (!s->done) {
        if (j->n - j->at <= BATCH + MARGIN)
            finish(s);
        else
            look(s, j->at + BATCH);
        if (s->starts.count < 2) continue;
        *base = j->text;
        *bounds = s->starts.items;
        return s->starts.count - 1;
    }
    return 0;
}
