// SPDX-License-Identifier: Apache-2.0
// A Bloom filter.
//
// A key sets k bits of m; a key all of whose bits are set was seen, or looks so with the
// probability (1 - e^(-kn/m))^k. The k places come from the two halves of the key by double hashing
// (Kirsch and Mitzenmacher 2006: the rate stays that of k independent hashes), with seeds of the
// filter mixed in.
//
// What it buys is a bounded memory over a stream; what it costs is that the answer for a text
// depends on what came before, so a run with it is deterministic only in one order, and that a
// false alarm takes a text away for nothing. Where a second pass is possible, sorted keys (dedup.h)
// are exact.
#include "data/dedup/bloom.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/io.h"    /* gw_file_write_atomic */
#include "base/rng.h"   /* gw_rng_u64 */
#include "base/str.h"   /* gw_str */

#define BLOOM_MAGIC 0x81f0f117u

enum { BLOOM_VERSION = 1, BLOOM_MAX_HASHES = 64 };

struct gw_bloom {
    int k;
    uint64_t seeds[BLOOM_MAX_HASHES][4];
    uint64_t words; /* of 32 bits */
    uint32_t *bits;
    int64_t count;
};

gw_status gw_bloom_new(int64_t expected, double fp, int64_t max_bytes, gw_bloom **out,
                       gw_diags *dg) {
    *out = NULL;
    if (expected < 1 || !(fp > 0 && fp < 1))
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-bloom",
                       "a Bloom filter for %lld keys at a false-positive rate of %g",
                       (long long)expected, fp);
    double ln2 = log(2), bits = -(double)expected * log(fp) / (ln2 * ln2);
    if (max_bytes > 0) bits = GW_MIN(bits, (double)max_bytes * 8);
    if (bits > 0x1p46)
        return GW_FAIL(dg, GW_ERR_MEMORY, "dedup-bloom",
                       "a Bloom filter for %lld keys at a rate of %g takes %.3g bytes",
                       (long long)expected, fp, bits / 8);
    gw_bloom *b = gw_mem_zalloc(sizeof *b);
    b->words = (uint64_t)ceil(GW_MAX(bits, 32.0) / 32);
    double k = ceil((double)b->words * 32 / (double)expected * ln2);
    b->k = (int)GW_MAX(1.0, GW_MIN(k, (double)BLOOM_MAX_HASHES));
    gw_rng_key key = gw_rng_key_named(0, "bloom");
    for (int i = 0; i < b->k; i++)
        for (int j = 0; j < 4; j++) b->seeds[i][j] = gw_rng_u64(key, (uint64_t)(i * 4 + j));
    b->bits = gw_mem_zalloc((size_t)b->words * 4);
    *out = b;
    return GW_OK;
}

void gw_bloom_free(gw_bloom *b) {
    if (!b) return;
    gw_mem_free(b->bits);
    gw_mem_free(b);
}

static uint64_t mix(uint64_t x) { /* the finisher of splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* The two numbers whose sums lo + i hi are the places, by the filter's first seeds. */
static void halves(const gw_bloom *b, gw_hash128 key, uint64_t *lo, uint64_t *hi) {
    *lo = mix(key.lo ^ b->seeds[0][0]) + b->seeds[0][1];
    *hi = mix(key.hi ^ b->seeds[0][2] ^ b->seeds[0][3]) | 1;
}

static uint64_t place(const gw_bloom *b, uint64_t x) { /* x scaled to [0, m) */
    uint64_t m = b->words * 32, high = x >> 32, low = x & UINT32_MAX;
    /* (x * m) >> 64 in two halves; m < 2^47 */
    uint64_t mh = m >> 32, ml = m & UINT32_MAX;
    uint64_t cross = high * ml + (low * ml >> 32);
    return high * mh + ((low * mh + cross) >> 32);
}

bool gw_bloom_has(const gw_bloom *b, gw_hash128 key) {
    uint64_t lo, hi;
    halves(b, key, &lo, &hi);
    for (int i = 0; i < b->k; i++, lo += hi) {
        uint64_t at = place(b, lo);
        if (!(b->bits[at / 32] >> at % 32 & 1)) return false;
    }
    return true;
}

bool gw_bloom_add(gw_bloom *b, gw_hash128 key) {
    uint64_t lo, hi;
    bool seen = true;
    halves(b, key, &lo, &hi);
    for (int i = 0; i < b->k; i++, lo += hi) {
        uint64_t at = place(b, lo);
        uint32_t bit = 1u << at % 32;
        seen = seen && (b->bits[at / 32] & bit);
        b->bits[at / 32] |= bit;
    }
    b->count += !seen;
    return seen;
}

double gw_bloom_rate_of(int64_t bits, int hashes, int64_t n) {
    return pow(1 - exp(-(double)hashes * (double)n / (double)bits), hashes);
}

double gw_bloom_rate(const gw_bloom *b, int64_t n) {
    return gw_bloom_rate_of(gw_bloom_bits(b), b->k, n);
}

int64_t gw_bloom_room(int64_t bits, int hashes) {
    /* k = ceil(m / n ln 2): n is below m ln 2 / (k - 1) */
    return hashes > 1 ? (int64_t)((double)bits * log(2) / (hashes - 1)) : bits;
}

int64_t gw_bloom_bits(const gw_bloom *b) { return (int64_t)b->words * 32; }
int gw_bloom_hashes(const gw_bloom *b) { return b->k; }
int64_t gw_bloom_count(const gw_bloom *b) { return b->count; }

// ------------------------------------------------------------------------------ files

// FILE.xxh128 holds two lines: the hash of the filter's bytes, and what its keys are of (the second
// may be missing). Two files cannot be renamed at once, so while a filter replaces another there
// are four, of the new one and the old one: written before the filter is, cut to two after.
// Whichever of these a kill leaves, the filter that stands is one of those it names.

enum { WHAT_BYTES = 100, BESIDE_BYTES = 512 };

typedef struct entry {
    char hash[33], what[WHAT_BYTES + 1]; /* "": not said */
} entry;

static bool take_line(const char **p, const char *end, char *to, size_t room) {
    if (*p == end) return false;
    const char *newline = memchr(*p, '\n', (size_t)(end - *p)), *stop = newline ? newline : end;
    size_t n = GW_MIN((size_t)(stop - *p), room - 1);
    memcpy(to, *p, n);
    to[n] = 0;
    *p = newline ? newline + 1 : end;
    return true;
}

/* What the file beside says of a filter whose bytes have this hash. False: it does not name it. */
static bool find_entry(const gw_str *beside, const char *hash, entry *out) {
    const char *p = beside->data, *end = p + beside->len;
    while (beside->len && take_line(&p, end, out->hash, sizeof out->hash)) {
        if (!take_line(&p, end, out->what, sizeof out->what)) out->what[0] = 0;
        if (strcmp(out->hash, hash) == 0) return true;
    }
    return false;
}

static void add_entry(gw_str *s, const char *hash, const char *what) {
    gw_str_printf(s, "%s\n", hash);
    if (what) gw_str_printf(s, "%.*s\n", WHAT_BYTES, what);
}

/* Adds the entry of the filter that stands at `path`; nothing if none does, or a damaged one. */
static void add_old_entry(const char *path, const char *beside, gw_str *s) {
    gw_mapping m;
    gw_str is = {0};
    entry old = {0};
    char hex[33];
    if (!gw_path_exists(path) || gw_map_open(&m, path, NULL) != GW_OK) return;
    gw_hash128_hex(hex, gw_hash128_of(m.data, (size_t)m.bytes));
    gw_map_release(&m);
    bool has = gw_path_exists(beside);
    bool read = has && gw_file_read(beside, BESIDE_BYTES, &is, NULL) == GW_OK;
    if (!has || (read && find_entry(&is, hex, &old))) add_entry(s, hex, old.what);
    gw_str_release(&is);
}

static gw_status replace(const char *path, const gw_str *filter, const char *what, gw_arena *a,
                         gw_diags *dg) {
    gw_str now = {0}, both = {0};
    char hex[33];
    const char *beside = gw_arena_printf(a, "%s.xxh128", path);
    gw_hash128_hex(hex, gw_hash128_of(filter->data, filter->len));
    add_entry(&now, hex, what);
    add_entry(&both, hex, what ? what : "");
    size_t one = both.len;
    add_old_entry(path, beside, &both);
    const gw_str *first = both.len > one ? &both : &now;
    gw_status st = gw_file_write_atomic(beside, first->data, (int64_t)first->len, dg);
    if (st == GW_OK) st = gw_file_write_atomic(path, filter->data, (int64_t)filter->len, dg);
    if (st == GW_OK && first != &now)
        st = gw_file_write_atomic(beside, now.data, (int64_t)now.len, dg);
    gw_str_release(&now);
    gw_str_release(&both);
    return st;
}

gw_status gw_bloom_save(const gw_bloom *b, const char *path, const char *what, gw_diags *dg) {
    gw_str s = {0};
    gw_arena a = {0};
    uint32_t head[3] = {BLOOM_MAGIC, BLOOM_VERSION, (uint32_t)b->k};
    gw_str_reserve(&s, (size_t)b->words * 4 + 4096);
    gw_str_add_n(&s, head, sizeof head);
    gw_str_add_n(&s, b->seeds, (size_t)b->k * sizeof b->seeds[0]);
    gw_str_add_n(&s, &b->words, 8);
    gw_str_add_n(&s, b->bits, (size_t)b->words * 4);
    gw_status st = replace(path, &s, what, &a, dg);
    gw_arena_release(&a);
    gw_str_release(&s);
    return st;
}

static gw_status damaged(const char *path, const char *what, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-bloom", "'%s' is no Bloom filter: %s", path, what);
}

static gw_status check_what(const char *path, const char *is, const char *what, gw_diags *dg) {
    if (!what || !is[0] || strcmp(is, what) == 0) return GW_OK;
    return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-bloom",
                   "'%s' has seen %s; here it would be asked for %s, which it cannot know", path,
                   is, what);
}

static gw_status check_beside(const char *path, const gw_mapping *m, const char *what,
                              gw_diags *dg) {
    gw_arena a = {0};
    gw_str is = {0};
    entry found;
    char hex[33];
    const char *beside = gw_arena_printf(&a, "%s.xxh128", path);
    gw_status s = GW_OK;
    if (gw_path_exists(beside)) {
        s = gw_file_read(beside, BESIDE_BYTES, &is, dg);
        gw_hash128_hex(hex, gw_hash128_of(m->data, (size_t)m->bytes));
        if (s == GW_OK)
            s = find_entry(&is, hex, &found)
                    ? check_what(path, found.what, what, dg)
                    : damaged(path, "its hash is not the one beside it", dg);
    }
    gw_str_release(&is);
    gw_arena_release(&a);
    return s;
}

static gw_status read_filter(const char *path, const gw_mapping *m, int64_t max_bytes,
                             const char *what, gw_bloom *b, gw_diags *dg) {
    uint32_t head[3];
    if (m->bytes < (int64_t)sizeof head) return damaged(path, "it ends within its header", dg);
    memcpy(head, m->data, sizeof head);
    if (head[0] != BLOOM_MAGIC) return damaged(path, "its first bytes are others", dg);
    if (head[1] != BLOOM_VERSION) return damaged(path, "its version is not 1", dg);
    if (head[2] < 1 || head[2] > BLOOM_MAX_HASHES)
        return damaged(path, "its number of hashes is out of range", dg);
    b->k = (int)head[2];
    int64_t seeds = b->k * (int64_t)sizeof b->seeds[0], at = (int64_t)sizeof head + seeds + 8;
    if (m->bytes < at) return damaged(path, "it ends within its seeds", dg);
    memcpy(b->seeds, m->data + sizeof head, (size_t)seeds);
    memcpy(&b->words, m->data + at - 8, 8);
    if (b->words < 1 || b->words != (uint64_t)(m->bytes - at) / 4 || (m->bytes - at) % 4)
        return damaged(path, "its length is not that of its bits", dg);
    if (max_bytes > 0 && m->bytes - at > max_bytes)
        return GW_FAIL(dg, GW_ERR_MEMORY, "dedup-bloom", "'%s' holds %lld bytes of bits; %lld fit",
                       path, (long long)(m->bytes - at), (long long)max_bytes);
    b->bits = gw_mem_alloc((size_t)b->words * 4);
    memcpy(b->bits, m->data + at, (size_t)b->words * 4);
    return check_beside(path, m, what, dg);
}

/* The number of keys is not stored: it is estimated from the share of bits that are set. */
static void estimate_count(gw_bloom *b) {
    int64_t set = 0;
    for (uint64_t i = 0; i < b->words; i++) set += __builtin_popcount(b->bits[i]);
    double m = (double)gw_bloom_bits(b), share = GW_MIN((double)set / m, 1 - 1 / m);
    b->count = (int64_t)(-m / b->k * log1p(-share) + 0.5);
}

gw_status gw_bloom_load(const char *path, int64_t max_bytes, const char *what, gw_bloom **out,
                        gw_diags *dg) {
    gw_mapping m;
    *out = NULL;
    GW_TRY(gw_map_open(&m, path, dg));
    gw_bloom *b = gw_mem_zalloc(sizeof *b);
    gw_status s = read_filter(path, &m, max_bytes, what, b, dg);
    gw_map_release(&m);
    if (s != GW_OK) {
        gw_bloom_free(b);
        return s;
    }
    estimate_count(b);
    *out = b;
    return GW_OK;
}
