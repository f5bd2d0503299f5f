// SPDX-License-Identifier: Apache-2.0
// Repeated substrings, exactly, in two streaming passes and one sort.
//
// A suffix array finds them by holding the whole corpus and nine times its size in memory, or by
// merging arrays of parts with random reads of the text (Lee et al. 2022). But the question is
// narrower than what a suffix array answers: which windows of L units occur more than once? So
// every window gets a rolling hash, and
//   pass 1  notes in a filter which hashes came once and which came again (a Bloom filter of two
//           layers, both in one cache line, so one miss a window);
//   pass 2  takes each window whose hash came again (all true repeats, and some false alarms), and
//           gives it its exact 128-bit key;
//   then    the candidates are sorted by key: equal keys are repeats, false alarms stand alone.
// Memory is the filter and a sorter, whatever the corpus; a filter that is too small for it only
// makes more candidates, never another answer. A corpus with 10 % of repeats sorts 48 bytes for
// each byte of these, on disk.
//
// The filter's misses are what takes the time, so a corpus is divided by windows, not by documents:
// each process walks all documents and looks at the windows whose hash is its own. Equal windows
// meet in one process, and the ranges of all are merged.
//
// A window never crosses documents, so no separator is needed. Ranges are bytes of the text from
// the start; for tokens they are where the tokens begin and end. Of equal windows the first stays
// (keep_first): a copy that overlaps it in the same document loses only what lies outside, so a
// text of one repeated character keeps L of them.
#include "data/dedup/substring.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/io.h"               /* gw_dir_make */
#include "base/rng.h"              /* gw_rng_u64 */
#include "data/dedup/dedup_impl.h" /* gw_dedup_write_ranges */
#include "data/text/words.h"       /* gw_ch_class */
#include "data/unicode.h"          /* gw_utf8_decode */

enum { LINE_WORDS = 8, BATCH = 64 };

struct gw_substring {
    gw_substring_options o;
    char *dir;
    int pass;
    uint64_t *filter; /* [lines * 8]: a line is 256 bits of "came", 256 of "came again" */
    uint64_t lines;
    uint64_t bytes[256], power; /* values of bytes; base^(L - 1) */
    uint64_t seen[2];           /* of each pass, a hash of what came */
    gw_sorter *windows;         /* (key, node, range) */
    uint64_t *values;           /* of a document's units */
    int64_t cap;
};

#define BASE 0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static uint64_t tag_of(const gw_substring_options *o) {
    uint64_t v[] = {o->tag, (uint64_t)o->length, o->keep_first};
    return gw_hash64(v, sizeof v, 0x73756273);
}

static bool is_part(const gw_substring_options *o) { return o->parts > 1; }

static char *result_path(const gw_substring_options *o, gw_arena *a) {
    if (!is_part(o)) return gw_path_join(a, o->dir, "substrings.recs");
    return gw_arena_printf(a, "%s/part-%04d-%04d.recs", o->dir, o->part, o->parts);
}

bool gw_substring_done(const gw_substring_options *o) {
    gw_arena a = {0};
    bool done = gw_recs_done(result_path(o, &a), GW_REMOVED_WORDS, o->units, tag_of(o));
    gw_arena_release(&a);
    return done;
}

// ------------------------------------------------------------------------------ opening

gw_status gw_substring_open(const gw_substring_options *o, gw_substring **out, gw_diags *dg) {
    *out = NULL;
    if (o->length < 8 || o->length > 1 << 20)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "substrings of %d bytes or tokens; 8 to 1048576 are possible", o->length);
    if (o->memory_bytes < GW_DEDUP_MEMORY_MIN)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "dedup within %lld bytes of memory; it takes at least %d",
                       (long long)o->memory_bytes, (int)GW_DEDUP_MEMORY_MIN);
    GW_TRY(gw_dir_make(o->dir, dg));
    gw_substring *s = gw_mem_zalloc(sizeof *s);
    s->o = *o;
    size_t n = strlen(o->dir) + 1;
    s->dir = gw_mem_alloc(n);
    memcpy(s->dir, o->dir, n);
    s->o.dir = s->dir;
    s->lines = (uint64_t)o->memory_bytes / 2 / (LINE_WORDS * 8);
    s->filter = aligned_alloc(64, (size_t)s->lines * LINE_WORDS * 8);
    if (!s->filter) {
        gw_substring_abandon(s);
        return GW_FAIL(dg, GW_ERR_MEMORY, "dedup-option", "no memory for a filter of %lld bytes",
                       (long long)o->memory_bytes / 2);
    }
    memset(s->filter, 0, (size_t)s->lines * LINE_WORDS * 8);
    gw_rng_key key = gw_rng_key_named(0, "substrings");
    for (int i = 0; i < 256; i++) s->bytes[i] = gw_rng_u64(key, (uint64_t)i);
    s->power = 1;
    for (int i = 1; i < o->length; i++) s->power *= BASE;
    s->windows = gw_sorter_new(s->dir, GW_SPANS_WORDS, o->memory_bytes / 4);
    *out = s;
    return GW_OK;
}

void gw_substring_abandon(gw_substring *s) {
    if (!s) return;
    free(s->filter);
    gw_sorter_free(s->windows);
    gw_mem_free(s->values);
    gw_mem_free(s->dir);
    gw_mem_free(s);
}

// ------------------------------------------------------------------------------ the filter

static uint64_t *line_of(const gw_substring *s, uint64_t h) {
    uint64_t high = h >> 32; /* scaled to [0, lines); lines < 2^32 */
    return s->filter + (high * s->lines >> 32) * LINE_WORDS;
}

/* Is the window of this hash one of this process's? */
static bool is_mine(const gw_substring *s, uint64_t h) {
    if (!is_part(&s->o)) return true;
    uint64_t high = (h * 0x9e3779b97f4a7c15ull) >> 32;
    return (int)(high * (uint64_t)s->o.parts >> 32) == s->o.part;
}

/* Three of 256 bits: word and bit of each. */
static void came(uint64_t *line, uint64_t h) {
    uint64_t again = 1;
    uint64_t bits[3], word[3];
    for (int i = 0; i < 3; i++) {
        word[i] = h >> (8 * i + 6) & 3;
        bits[i] = UINT64_C(1) << (h >> (8 * i) & 63);
        again &= (line[word[i]] & bits[i]) != 0;
    }
    for (int i = 0; i < 3; i++) line[word[i] + (again ? 4 : 0)] |= bits[i];
}

static bool came_again(const uint64_t *line, uint64_t h) {
    for (int i = 0; i < 3; i++)
        if (!(line[4 + (h >> (8 * i + 6) & 3)] >> (h >> (8 * i) & 63) & 1)) return false;
    return true;
}

// ------------------------------------------------------------------------------ a document

/* A document as its units: values to hash, and the bytes of its windows. */
typedef struct units {
    gw_doc_id id;
    const uint64_t *values; /* [n] */
    const void *raw;        /* what a key is made of: bytes, or u32 tokens */
    int raw_bytes;          /* of a unit */
    const uint32_t *starts; /* NULL: a unit is a byte */
    int64_t n;
} units;

static gw_status candidate(gw_substring *s, const units *u, int64_t at, gw_diags *dg) {
    int64_t length = s->o.length;
    gw_hash128 key =
        gw_hash128_of((const uint8_t *)u->raw + at * u->raw_bytes, (size_t)(length * u->raw_bytes));
    uint64_t begin = u->starts ? u->starts[at] : (uint64_t)at;
    uint64_t end = u->starts ? u->starts[at + length] : (uint64_t)(at + length);
    uint64_t r[GW_SPANS_WORDS] = {key.hi, key.lo, gw_node_of(u->id.unit, u->id.index),
                                  begin << 32 | end};
    return begin < end ? gw_sorter_add(s->windows, r, dg) : GW_OK;
}

/* All windows, in batches whose lines of the filter are fetched ahead. */
static gw_status all_windows(gw_substring *s, const units *u, gw_diags *dg) {
    int64_t length = s->o.length, windows = u->n - length + 1;
    uint64_t h = 0, hashes[BATCH];
    for (int64_t i = 0; i < length - 1; i++) h = h * BASE + u->values[i];
    for (int64_t first = 0; first < windows; first += BATCH) {
        int64_t n = GW_MIN(windows - first, BATCH);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = first + i;
            h = h * BASE + u->values[at + length - 1];
            hashes[i] = mix(h);
            if (is_mine(s, hashes[i])) GW_PREFETCH(line_of(s, hashes[i]));
            h -= u->values[at] * s->power; /* what leaves the window */
        }
        for (int64_t i = 0; i < n; i++) {
            if (!is_mine(s, hashes[i])) continue;
            uint64_t *line = line_of(s, hashes[i]);
            if (s->pass == 0)
                came(line, hashes[i]);
            else if (came_again(line, hashes[i]))
                GW_TRY(candidate(s, u, first + i, dg));
        }
    }
    return GW_OK;
}

static gw_status document(gw_substring *s, const units *u, gw_diags *dg) {
    uint64_t what[3] = {s->seen[s->pass], gw_node_of(u->id.unit, u->id.index), (uint64_t)u->n};
    s->seen[s->pass] = gw_hash64(what, sizeof what, 0);
    if (u->id.unit >= (uint64_t)s->o.units)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option", "unit %u of %lld units", u->id.unit,
                       (long long)s->o.units);
    return u->n < s->o.length ? GW_OK : all_windows(s, u, dg);
}

static uint64_t *values_for(gw_substring *s, int64_t n) {
    if (s->cap < n) {
        s->cap = n + n / 2;
        s->values = gw_mem_realloc(s->values, (size_t)s->cap * 8);
    }
    return s->values;
}

gw_status gw_substring_text(gw_substring *s, gw_doc_id id, const char *text, int64_t n,
                            gw_diags *dg) {
    uint64_t *v = values_for(s, n);
    for (int64_t i = 0; i < n; i++) v[i] = s->bytes[(uint8_t)text[i]];
    units u = {.id = id, .values = v, .raw = text, .raw_bytes = 1, .n = n};
    return document(s, &u, dg);
}

gw_status gw_substring_tokens(gw_substring *s, gw_doc_id id, const uint32_t *tokens,
                              const uint32_t *starts, int64_t n, gw_diags *dg) {
    uint64_t *v = values_for(s, n);
    for (int64_t i = 0; i < n; i++) v[i] = mix(tokens[i] + 1);
    units u = {.id = id, .values = v, .raw = tokens, .raw_bytes = 4, .starts = starts, .n = n};
    return document(s, &u, dg);
}

gw_status gw_substring_again(gw_substring *s, gw_diags *dg) {
    if (s->pass != 0)
        return GW_FAIL(dg, GW_ERR_USAGE, "dedup-option", "a third pass over substrings");
    s->pass = 1;
    return GW_OK;
}

// ------------------------------------------------------------------------------ the repeats

/* One window of a group whose first is (node, range); `later`: it is not that one. */
static gw_status put_range(const gw_substring *s, gw_sorter *ranges, const uint64_t first[2],
                           uint64_t node, uint64_t range, bool later, gw_diags *dg) {
    uint64_t r[2] = {node, range};
    if (s->o.keep_first) {
        if (!later) return GW_OK;
        if (node == first[0] && range >> 32 < (uint32_t)first[1])
            r[1] = first[1] << 32 | (uint32_t)range;
        if (r[1] >> 32 >= (uint32_t)r[1]) return GW_OK;
    }
    return gw_sorter_add(ranges, r, dg);
}

static gw_status groups(gw_substring *s, gw_sorter *ranges, uint64_t *meta, gw_diags *dg) {
    const uint64_t *r;
    uint64_t key[2] = {0}, first[2] = {0};
    bool any = false, alone = true;
    GW_TRY(gw_sorter_sort(s->windows, dg));
    for (;;) {
        GW_TRY(gw_sorter_next(s->windows, &r, dg));
        if (!r) return GW_OK;
        if (!any || r[0] != key[0] || r[1] != key[1]) {
            memcpy(key, r, 16);
            memcpy(first, r + 2, 16);
            any = alone = true;
            continue;
        }
        meta[GW_META_PAIRS]++;
        if (alone) GW_TRY(put_range(s, ranges, first, first[0], first[1], false, dg));
        alone = false;
        GW_TRY(put_range(s, ranges, first, r[2], r[3], true, dg));
    }
}

static gw_status write_result(gw_substring *s, gw_sorter *ranges, gw_diags *dg) {
    gw_arena a = {0};
    gw_recs_writer *w = NULL;
    uint64_t meta[GW_RECS_META] = {0};
    gw_status st = groups(s, ranges, meta, dg);
    if (st == GW_OK)
        st = gw_recs_create(result_path(&s->o, &a), GW_REMOVED_WORDS, s->o.units, tag_of(&s->o), &w,
                            dg);
    if (st == GW_OK) st = gw_dedup_write_ranges(ranges, w, meta, dg);
    if (st == GW_OK)
        st = gw_recs_finish(w, meta, dg);
    else
        gw_recs_abandon(w);
    gw_arena_release(&a);
    return st;
}

gw_status gw_substring_finish(gw_substring *s, gw_diags *dg) {
    gw_status st = GW_OK;
    if (s->pass != 1 || s->seen[0] != s->seen[1])
        st = GW_FAIL(dg, GW_ERR_USAGE, "dedup-option",
                     "the second pass over substrings did not see the documents of the first");
    free(s->filter);
    s->filter = NULL;
    if (st == GW_OK) {
        gw_sorter *ranges = gw_sorter_new(s->dir, 2, s->o.memory_bytes / 4);
        st = write_result(s, ranges, dg);
        gw_sorter_free(ranges);
    }
    gw_substring_abandon(s);
    return st;
}

// ------------------------------------------------------------------------------ parts together

static gw_status add_part(const gw_substring_options *o, gw_sorter *ranges, uint64_t *meta,
                          gw_diags *dg) {
    gw_arena a = {0};
    gw_recs f;
    uint64_t *records = NULL;
    int64_t cap = 0;
    char *path = result_path(o, &a);
    gw_status st = gw_recs_open(path, GW_REMOVED_WORDS, &f, dg);
    if (st == GW_OK && (f.tag != tag_of(o) || f.nsections != o->units))
        st = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                     "'%s' was made with other options than those of this run", path);
    for (int64_t u = 0; st == GW_OK && u < f.nsections; u++) {
        st = gw_recs_read(&f, u, &records, &cap, dg);
        for (int64_t i = 0; st == GW_OK && i < f.sections[u].count; i++)
            st = gw_sorter_add(ranges, records + i * GW_REMOVED_WORDS, dg);
    }
    if (st == GW_OK) meta[GW_META_PAIRS] += f.meta[GW_META_PAIRS];
    gw_recs_close(&f);
    gw_mem_free(records);
    gw_arena_release(&a);
    return st;
}

gw_status gw_substring_join(const gw_substring_options *o, gw_diags *dg) {
    gw_substring_options whole = *o, part = *o;
    gw_arena a = {0};
    gw_recs_writer *w = NULL;
    uint64_t meta[GW_RECS_META] = {0};
    whole.parts = 1;
    if (!is_part(o) || gw_substring_done(&whole)) return GW_OK;
    gw_sorter *ranges = gw_sorter_new(o->dir, 2, o->memory_bytes / 4);
    gw_status st = GW_OK;
    for (part.part = 0; part.part < o->parts && st == GW_OK; part.part++)
        st = add_part(&part, ranges, meta, dg);
    if (st == GW_OK)
        st = gw_recs_create(result_path(&whole, &a), GW_REMOVED_WORDS, o->units, tag_of(&whole), &w,
                            dg);
    if (st == GW_OK) st = gw_dedup_write_ranges(ranges, w, meta, dg);
    if (st == GW_OK)
        st = gw_recs_finish(w, meta, dg);
    else
        gw_recs_abandon(w);
    gw_sorter_free(ranges);
    gw_arena_release(&a);
    return st;
}

gw_status gw_substring_result(const gw_substring_options *o, gw_dedup_result **out, gw_diags *dg) {
    gw_arena a = {0};
    gw_status s = gw_dedup_result_read(result_path(o, &a), o->units, tag_of(o), out, dg);
    gw_arena_release(&a);
    return s;
}

// ------------------------------------------------------------------------------ edges

/* A letter or digit of a script that puts spaces between words. */
static bool is_spaced(uint32_t c) {
    if (c < 0x80) return gw_ch_ascii[c] & GW_CH_WORD;
    if (c == GW_CP_INVALID || !(gw_ch_class(c) & (GW_CH_WORD | GW_CH_MARK))) return false;
    bool without = (c >= 0xe00 && c <= 0xfff) ||   /* Thai, Lao, Tibetan */
                   (c >= 0x1000 && c <= 0x109f) || /* Myanmar */
                   (c >= 0x1780 && c <= 0x17ff) || /* Khmer */
                   (c >= 0x2e80 && c <= 0xa4cf) || /* Han, Kana, Bopomofo, Yi */
                   (c >= 0xf900 && c <= 0xfaff) || (c >= 0xff66 && c <= 0xff9f) || c >= 0x20000;
    return !without;
}

static bool is_inside(uint8_t c) { return (c & 0xc0) == 0x80; }

static uint32_t before(const uint8_t *t, uint32_t at, const uint8_t *end) {
    int len;
    do at--;
    while (at > 0 && is_inside(t[at]));
    return gw_utf8_decode(t + at, end, &len);
}

static bool splits_word(const uint8_t *t, uint32_t at, uint32_t n) {
    int len;
    if (at == 0 || at >= n) return false;
    return is_spaced(before(t, at, t + n)) && is_spaced(gw_utf8_decode(t + at, t + n, &len));
}

static void snap(const uint8_t *t, uint32_t n, bool word_edges, gw_dedup_range *r) {
    r->end = GW_MIN(r->end, n);
    while (r->begin < r->end && is_inside(t[r->begin])) r->begin++;
    while (r->end > r->begin && r->end < n && is_inside(t[r->end])) r->end--;
    if (!word_edges) return;
    while (r->begin < r->end && splits_word(t, r->begin, n)) {
        int len;
        gw_utf8_decode(t + r->begin, t + n, &len);
        r->begin += (uint32_t)len;
    }
    while (r->end > r->begin && splits_word(t, r->end, n)) {
        do r->end--;
        while (r->end > r->begin && is_inside(t[r->end]));
    }
}

/* Would what stands before a range and what stands behind it become one word? */
static bool joins_words(const uint8_t *t, uint32_t n, const gw_dedup_range *r) {
    int len;
    if (r->begin == 0 || r->end >= n || r->begin >= r->end) return false;
    return is_spaced(before(t, r->begin, t + n)) &&
           is_spaced(gw_utf8_decode(t + r->end, t + n, &len));
}

int64_t gw_substring_snap(const char *text, int64_t n, bool word_edges, gw_dedup_range *ranges,
                          int64_t count) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
        gw_dedup_range r = ranges[i];
        snap((const uint8_t *)text, (uint32_t)n, word_edges, &r);
        if (word_edges && joins_words((const uint8_t *)text, (uint32_t)n, &r)) {
            int len; /* of the space, or whatever it is, that stays between them */
            gw_utf8_decode((const uint8_t *)text + r.begin, (const uint8_t *)text + n, &len);
            r.begin += (uint32_t)len;
        }
        if (r.begin < r.end) ranges[left++] = r;
    }
    return left;
}
