// SPDX-License-Identifier: Apache-2.0
// MinHash signatures.
//
// A document is the set of hashes of its shingles (runs of n words, or of n characters); value j of
// its signature is the least of a random function j over the set, so two documents agree in a value
// with the probability of their Jaccard similarity. Values are grouped in bands of rows; documents
// that agree in a whole band are candidates (Broder 1997; Leskovec et al., Mining of Massive
// Datasets, 3.4).
//
// The steps are those of datatrove, so that signatures can be exchanged: simplify the text
// (simplify.c), cut it into words (text/words.c), join each run of words with single spaces, hash
// it, and apply (a h + b mod 2^64) mod M. That is not a product modulo M, since the product wraps
// before the modulo; it is what has been published and run. a and b come from numpy's RandomState:
// MT19937, two outputs a number, high half first, masked to 61 bits and drawn again when out of
// range.
//
// Most words of a simplified text are left whole by spaCy's rules; these are remembered, so that
// the rules are asked about new and odd ones only. Words that stand one space apart, which after
// simplifying is nearly all of them, are hashed where they lie; otherwise the text is joined anew.
#include "data/dedup/minhash.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "data/dedup/shingle.h"  /* gw_shingle_hashes, gw_fold */
#include "data/dedup/simplify.h" /* gw_simplify_text */
#include "data/text/plain.h"     /* gw_plain_text */
#include "data/unicode.h"        /* gw_utf8_decode */

/* Words of up to 16 bytes that spaCy's rules leave whole, by their bytes. */
typedef struct plain_word {
    uint64_t low, high;
} plain_word;

enum { PLAIN_BITS = 13, PLAIN_WORDS = 1 << PLAIN_BITS };

struct gw_minhash {
    gw_minhash_recipe recipe;
    int values;
    gw_permutations p;
    const gw_fold *fold;
    gw_simplify *simplify;
    gw_plain *plain_text;
    gw_words *words;
    gw_str text, joined;
    uint32_t *begin, *end; /* [cap] of words, or of characters */
    uint64_t *hashes;      /* [cap] */
    int64_t cap;
    uint64_t *least;         /* [p.n] */
    plain_word *plain_words; /* [PLAIN_WORDS]; spaCy's rules over simplified text only */
    gw_word *cut;
    int64_t ncut, cut_cap;
};

// ------------------------------------------------------------------------------ recipes

#define R(name_, b, r, n, chars_, bits_, hash_, text_, split, trove, about_)                       \
    {                                                                                              \
        .name = name_, .bands = b, .rows = r, .shingle = n, .chars = chars_, .bits = bits_,        \
        .hash = GW_SHINGLE_##hash_, .text = GW_MINHASH_TEXT_##text_, .splitter = GW_SPLIT_##split, \
        .seed = 1, .equal_to = trove ? "datatrove" : NULL, .about = about_                         \
    }
/* RedPajama-V2's: 13 of the words that its signals count, permutations of seed 42. */
#define REDPAJAMA(name_, b, r, about_)                                                             \
    {                                                                                              \
        .name = name_, .bands = b, .rows = r, .shingle = 13, .bits = 32, .hash = GW_SHINGLE_SHA1,  \
        .text = GW_MINHASH_TEXT_REDPAJAMA, .splitter = GW_SPLIT_WHITESPACE, .seed = 42,            \
        .pairs = true, .equal_to = "RedPajama-V2", .about = about_                                 \
    }

static const gw_minhash_recipe RECIPES[] = {
    R("fineweb", 14, 8, 5, false, 64, SHA1, DATATROVE, SPACY_EN, true,
      "FineWeb: datatrove with SHA-1"),
    R("fineweb-xxh", 14, 8, 5, false, 64, XXH, DATATROVE, SPACY_EN, true,
      "datatrove's defaults: as FineWeb, hashed by XXH64"),
    REDPAJAMA("redpajama-v2", 9, 13, "RedPajama-v2 at similarity 0.8"),
    REDPAJAMA("redpajama-v2-0.7", 14, 9, "at 0.7"),
    REDPAJAMA("redpajama-v2-0.8", 9, 13, "at 0.8"),
    REDPAJAMA("redpajama-v2-0.9", 5, 25, "at 0.9"),
    REDPAJAMA("redpajama-v2-1.0", 1, 128, "at 1.0"),
    R("nemo", 20, 13, 24, true, 32, XXH, NONE, WHITESPACE, false,
      "NeMo Curator: 24 characters, 260 values of 32 bits"),
    R("refinedweb", 450, 20, 5, false, 64, XXH, DATATROVE, SPACY_EN, false,
      "RefinedWeb: 9000 values"),
    {.name = "text-dedup",
     .bands = 24,
     .rows = 10,
     .shingle = 5,
     .bits = 32,
     .hash = GW_SHINGLE_SHA1,
     .text = GW_MINHASH_TEXT_LOWER,
     .splitter = GW_SPLIT_WHITESPACE,
     .fields = true,
     .seed = 42,
     .equal_to = "text-dedup",
     .about = "text-dedup: 240 permutations at 0.7"},
};
#undef REDPAJAMA
#undef R

const gw_minhash_recipe *gw_minhash_recipe_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(RECIPES) ? &RECIPES[i] : NULL;
}

const gw_minhash_recipe *gw_minhash_recipe_find(const char *name) {
    for (size_t i = 0; i < GW_COUNT(RECIPES); i++)
        if (gw_str_eq(RECIPES[i].name, name)) return &RECIPES[i];
    return NULL;
}

gw_status gw_minhash_recipe_check(const gw_minhash_recipe *r, gw_diags *dg) {
    const char *name = r->name ? r->name : "given";
    if (r->bands < 1 || r->rows < 1 || r->shingle < 1 || r->shingle > 10000)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-recipe",
                       "MinHash recipe '%s': %d bands of %d rows over shingles of %d; each must be "
                       "at least 1, a shingle at most 10000",
                       name, r->bands, r->rows, r->shingle);
    if ((int64_t)r->bands * r->rows > GW_MINHASH_MAX)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-recipe",
                       "MinHash recipe '%s': %d bands of %d rows are more than %d values", name,
                       r->bands, r->rows, GW_MINHASH_MAX);
    if (r->bits != 32 && r->bits != 64)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-recipe",
                       "MinHash recipe '%s': values of %d bits; 32 or 64 are possible", name,
                       r->bits);
    return GW_OK;
}

static double power(double x, int n) {
    double y = 1;
    for (; n > 0; n /= 2, x *= x)
        if (n & 1) y *= x;
    return y;
}

double gw_minhash_match(const gw_minhash_recipe *r, double s) {
    return 1 - power(1 - power(s, r->rows), r->bands);
}

uint64_t gw_minhash_recipe_tag(const gw_minhash_recipe *r) {
    uint64_t v[] = {(uint64_t)r->bands,
                    (uint64_t)r->rows,
                    (uint64_t)r->shingle,
                    r->chars,
                    (uint64_t)r->bits,
                    r->hash,
                    r->text,
                    r->splitter,
                    r->seed | (uint64_t)r->pairs << 32 | (uint64_t)r->fields << 33};
    return gw_hash64(v, sizeof v, 0x6d696e68);
}

// ------------------------------------------------------------------------------ permutations

typedef struct mt19937 {
    uint32_t state[624];
    int at;
} mt19937;

static void mt_seed(mt19937 *m, uint32_t seed) {
    for (uint32_t i = 0; i < 624; i++) {
        m->state[i] = seed;
        seed = 1812433253u * (seed ^ seed >> 30) + i + 1;
    }
    m->at = 624;
}

static uint32_t mt_next(mt19937 *m) {
    if (m->at == 624) {
        for (int i = 0; i < 624; i++) {
            uint32_t y = (m->state[i] & 0x80000000u) | (m->state[(i + 1) % 624] & 0x7fffffffu);
            m->state[i] = m->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->at = 0;
    }
    uint32_t y = m->state[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* randint(low, M): masked rejection of the range M - 1 - low. */
static uint64_t mt_below(mt19937 *m, uint64_t low) {
    uint64_t range = GW_MERSENNE - 1 - low, x;
    do {
        x = (uint64_t)mt_next(m) << 32;
        x |= mt_next(m);
        x &= GW_MERSENNE;
    } while (x > range);
    return low + x;
}

void gw_minhash_parameters(uint32_t seed, bool pairs, int64_t n, uint64_t *a, uint64_t *b) {
    mt19937 m;
    mt_seed(&m, seed);
    for (int64_t i = 0; i < n; i++) {
        a[i] = mt_below(&m, 1);
        if (pairs) b[i] = mt_below(&m, 0);
    }
    for (int64_t i = 0; i < n && !pairs; i++) b[i] = mt_below(&m, 0);
}

static void permutations_init(gw_permutations *p, const gw_minhash_recipe *r) {
    int64_t n = (int64_t)r->bands * r->rows;
    p->n = (n + GW_FOLD_BLOCK - 1) / GW_FOLD_BLOCK * GW_FOLD_BLOCK;
    p->bits = r->bits;
    uint64_t *all = aligned_alloc(64, (size_t)p->n * 4 * 8);
    if (!all) return;
    p->a = all;
    p->b = all + p->n;
    p->a_high = all + 2 * p->n;
    p->b1 = all + 3 * p->n;
    gw_minhash_parameters(r->seed, r->pairs, n, p->a, p->b);
    for (int64_t i = 0; i < p->n;
         i++) { /* the last block is filled up with the first permutation */
        if (i >= n) p->a[i] = p->a[0], p->b[i] = p->b[0];
        p->a_high[i] = p->a[i] >> 32;
        p->b1[i] = p->b[i] + 1;
    }
}

// ------------------------------------------------------------------------------ opening

gw_status gw_minhash_open(const gw_minhash_recipe *r, gw_minhash **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(gw_minhash_recipe_check(r, dg));
    gw_minhash *m = gw_mem_zalloc(sizeof *m);
    m->recipe = *r;
    m->values = r->bands * r->rows;
    m->fold = gw_fold_at(0);
    permutations_init(&m->p, r);
    if (!m->p.a) {
        gw_minhash_free(m);
        return GW_FAIL(dg, GW_ERR_MEMORY, "dedup-recipe", "no memory for %d permutations",
                       r->bands * r->rows);
    }
    m->least = gw_mem_alloc((size_t)m->p.n * 8);
    m->words = gw_words_new();
    if (r->text == GW_MINHASH_TEXT_DATATROVE) m->simplify = gw_simplify_new();
    if (r->text == GW_MINHASH_TEXT_REDPAJAMA) m->plain_text = gw_plain_new();
    if (r->text == GW_MINHASH_TEXT_DATATROVE && r->splitter == GW_SPLIT_SPACY_EN && !r->chars)
        m->plain_words = gw_mem_zalloc(PLAIN_WORDS * sizeof *m->plain_words);
    *out = m;
    return GW_OK;
}

void gw_minhash_free(gw_minhash *m) {
    if (!m) return;
    free(m->p.a);
    gw_mem_free(m->least);
    gw_mem_free(m->begin);
    gw_mem_free(m->end);
    gw_mem_free(m->hashes);
    gw_mem_free(m->plain_words);
    gw_mem_free(m->cut);
    gw_str_release(&m->text);
    gw_str_release(&m->joined);
    if (m->words) gw_words_free(m->words);
    if (m->simplify) gw_simplify_free(m->simplify);
    gw_plain_free(m->plain_text);
    gw_mem_free(m);
}

const gw_minhash_recipe *gw_minhash_recipe_of(const gw_minhash *m) { return &m->recipe; }
int gw_minhash_values(const gw_minhash *m) { return m->values; }
const char *gw_minhash_kernel(const gw_minhash *m) { return m->fold->name; }

bool gw_minhash_use_kernel(gw_minhash *m, const char *name) {
    const gw_fold *f;
    for (int i = 0; (f = gw_fold_at(i)); i++) {
        if (!gw_str_eq(f->name, name)) continue;
        m->fold = f;
        return true;
    }
    return false;
}

// ------------------------------------------------------------------------------ shingles

static void reserve(gw_minhash *m, int64_t n) {
    if (n <= m->cap) return;
    m->cap = n + n / 2 + 64;
    m->begin = gw_mem_realloc(m->begin, (size_t)m->cap * 4);
    m->end = gw_mem_realloc(m->end, (size_t)m->cap * 4);
    m->hashes = gw_mem_realloc(m->hashes, (size_t)m->cap * 8);
}

/* Fills begin and end, and returns the text they are offsets of, with one space between words. */
static const char *lay_words(gw_minhash *m, const char *text, const gw_word *words, int64_t n) {
    bool apart = true;
    reserve(m, n);
    for (int64_t i = 0; i < n; i++) {
        m->begin[i] = words[i].offset;
        m->end[i] = words[i].offset + words[i].bytes;
        apart =
            apart && (i == 0 || (m->begin[i] == m->end[i - 1] + 1 && text[m->end[i - 1]] == ' '));
    }
    if (apart) return text;
    gw_str_clear(&m->joined);
    for (int64_t i = 0; i < n; i++) {
        if (i) gw_str_add_char(&m->joined, ' ');
        m->begin[i] = (uint32_t)m->joined.len;
        gw_str_add_n(&m->joined, text + words[i].offset, words[i].bytes);
        m->end[i] = (uint32_t)m->joined.len;
    }
    return gw_str_c(&m->joined);
}

static int64_t lay_chars(gw_minhash *m, const char *text, int64_t n) {
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    int64_t count = 0;
    reserve(m, n);
    for (int len; p < end; p += len, count++) {
        if (*p < 0x80)
            len = 1;
        else
            gw_utf8_decode(p, end, &len);
        m->begin[count] = (uint32_t)(p - (const uint8_t *)text);
        m->end[count] = m->begin[count] + (uint32_t)len;
    }
    return count;
}

/* Hashes the runs of `shingle` of the n pieces that begin and end hold. Returns their number. */
static int64_t hash_runs(gw_minhash *m, const char *text, int64_t n) {
    int64_t k = m->recipe.shingle, count = n - k + 1;
    if (count < 1) return 0;
    gw_shingle_hashes(m->recipe.hash, m->recipe.bits, (const uint8_t *)text, m->begin,
                      m->end + k - 1, count, m->hashes);
    return count;
}

static int64_t shingles_of_words(gw_minhash *m, const char *text, const gw_word *words, int64_t n) {
    if (n < m->recipe.shingle) return 0;
    return hash_runs(m, lay_words(m, text, words, n), n);
}

static void put_word(gw_minhash *m, uint32_t offset, uint32_t bytes) {
    if (m->ncut == m->cut_cap) {
        m->cut_cap = m->cut_cap ? 2 * m->cut_cap : 1024;
        m->cut = gw_mem_realloc(m->cut, (size_t)m->cut_cap * sizeof *m->cut);
    }
    m->cut[m->ncut++] = (gw_word){offset, bytes};
}

/* A piece between spaces that is not known to be one word; `slot`: where to remember that it is. */
static void cut_piece(gw_minhash *m, const char *text, uint32_t at, uint32_t n, plain_word *slot,
                      plain_word key) {
    gw_words_split(m->words, m->recipe.splitter, text + at, n);
    for (int64_t i = 0; i < m->words->count; i++)
        put_word(m, at + m->words->items[i].offset, m->words->items[i].bytes);
    if (slot && m->words->count == 1 && m->words->items[0].bytes == n) *slot = key;
}

/* Bytes of x, from the lowest, before the first space; 8 where there is none. */
static GW_ALWAYS_INLINE uint32_t before_space(uint64_t x) {
    uint64_t v = x ^ 0x2020202020202020u;
    uint64_t zero = (v - 0x0101010101010101u) & ~v & 0x8080808080808080u;
    return zero ? (uint32_t)__builtin_ctzll(zero) / 8 : 8;
}

static uint64_t keep_low(uint64_t x, uint32_t bytes) {
    return bytes >= 8 ? x : x & ((UINT64_C(1) << 8 * bytes) - 1);
}

/* spaCy's rules see one piece between spaces at a time, and leave most pieces of simplified text
 * whole. Those are remembered by their bytes (which hold no NUL, so zeros fill them up to 16), and
 * the rules asked about the others. `text` has 16 bytes behind its end. */
static void cut_words(gw_minhash *m, const char *text, int64_t n) {
    m->ncut = 0;
    for (int64_t at = 0; at < n;) {
        if (text[at] == ' ') {
            at++;
            continue;
        }
        uint64_t low, high;
        memcpy(&low, text + at, 8);
        memcpy(&high, text + at + 8, 8);
        uint32_t k = before_space(low);
        if (k == 8) k += before_space(high);
        if (k > n - at) k = (uint32_t)(n - at);
        if (k == 16 && at + k < n && text[at + k] != ' ') {
            const char *end = memchr(text + at, ' ', (size_t)(n - at));
            k = (uint32_t)((end ? end : text + n) - (text + at));
            cut_piece(m, text, (uint32_t)at, k, NULL, (plain_word){0});
            at += k;
            continue;
        }
        plain_word key = {keep_low(low, k), k > 8 ? keep_low(high, k - 8) : 0};
        uint64_t h = (key.low ^ key.high * 0xc2b2ae3d27d4eb4fu) * 0x9e3779b97f4a7c15u;
        plain_word *slot = &m->plain_words[h >> (64 - PLAIN_BITS)];
        if (slot->low == key.low && slot->high == key.high)
            put_word(m, (uint32_t)at, k);
        else
            cut_piece(m, text, (uint32_t)at, k, slot, key);
        at += k;
    }
}

/* re.split(r"\W", text): what stands between characters that belong to no word. */
static void cut_fields(gw_minhash *m, const char *text, int64_t n) {
    const uint8_t *start = (const uint8_t *)text, *p = start, *end = p + n, *from = p;
    m->ncut = 0;
    for (int len; p < end; p += len) {
        uint32_t cp = gw_utf8_decode(p, end, &len);
        if (gw_plain_is_word(cp)) continue;
        put_word(m, (uint32_t)(from - start), (uint32_t)(p - from));
        from = p + len;
    }
    put_word(m, (uint32_t)(from - start), (uint32_t)(end - from));
}

const uint64_t *gw_minhash_shingles(gw_minhash *m, const char *text, int64_t n, int64_t *count) {
    switch (m->recipe.text) {
    case GW_MINHASH_TEXT_DATATROVE: gw_simplify_text(m->simplify, text, n, &m->text); break;
    case GW_MINHASH_TEXT_LOWER: gw_simplify_lower(text, n, &m->text); break;
    case GW_MINHASH_TEXT_REDPAJAMA: gw_plain_text(m->plain_text, text, n, &m->text); break;
    case GW_MINHASH_TEXT_NONE: break;
    }
    if (m->recipe.text != GW_MINHASH_TEXT_NONE) {
        text = gw_str_c(&m->text);
        n = (int64_t)m->text.len;
    }
    if (m->recipe.chars) {
        *count = hash_runs(m, text, lay_chars(m, text, n));
    } else if (m->recipe.fields) {
        cut_fields(m, text, n);
        *count = shingles_of_words(m, text, m->cut, m->ncut);
    } else if (m->plain_words) {
        cut_words(m, text, n);
        *count = shingles_of_words(m, text, m->cut, m->ncut);
    } else {
        gw_words_split(m->words, m->recipe.splitter, text, n);
        *count = shingles_of_words(m, text, m->words->items, m->words->count);
    }
    return m->hashes;
}

// ------------------------------------------------------------------------------ signatures

void gw_minhash_of_shingles(const gw_minhash *m, const uint64_t *shingles, int64_t count,
                            uint64_t *signature) {
    m->fold->run(&m->p, shingles, count, m->least);
    memcpy(signature, m->least, (size_t)m->values * 8);
}

bool gw_minhash_sign(gw_minhash *m, const char *text, int64_t n, uint64_t *signature) {
    int64_t count;
    const uint64_t *h = gw_minhash_shingles(m, text, n, &count);
    if (count == 0) return false;
    gw_minhash_of_shingles(m, h, count, signature);
    return true;
}

bool gw_minhash_sign_words(gw_minhash *m, const char *text, const gw_word *words, int64_t nwords,
                           uint64_t *signature) {
    int64_t count = shingles_of_words(m, text, words, nwords);
    if (count == 0) return false;
    gw_minhash_of_shingles(m, m->hashes, count, signature);
    return true;
}

void gw_minhash_keys(const gw_minhash *m, const uint64_t *signature, gw_hash128 *keys) {
    for (int b = 0; b < m->recipe.bands; b++) {
        keys[b] =
            gw_hash128_of(signature + (int64_t)b * m->recipe.rows, (size_t)m->recipe.rows * 8);
        if (!keys[b].lo && !keys[b].hi) keys[b].lo = 1; /* {0, 0} stands for no key */
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

static int64_t sorted_set(uint64_t *a, int64_t n) {
    qsort(a, (size_t)n, 8, by_value);
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || a[i] != a[k - 1]) a[k++] = a[i];
    return k;
}

double gw_jaccard(uint64_t *a, int64_t na, uint64_t *b, int64_t nb) {
    na = sorted_set(a, na);
    nb = sorted_set(b, nb);
    int64_t both = 0;
    for (int64_t i = 0, j = 0; i < na && j < nb;) {
        if (a[i] == b[j]) both++;
        bool left = a[i] <= b[j], right = b[j] <= a[i];
        i += left;
        j += right;
    }
    int64_t either = na + nb - both;
    return either ? (double)both / (double)either : 1;
}
