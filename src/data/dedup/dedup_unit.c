// SPDX-License-Identifier: Apache-2.0
// Step 1: the keys of one unit, sorted by band and part, in one file.
//
// One file a unit, whatever the number of bands: a corpus of 10,000 units and 14 bands is 10,000
// files, each a few megabytes, in which the records of a band lie together. They are sorted here,
// where they are in memory anyway, so that the next step only merges.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/io.h"               /* gw_dir_make */
#include "data/dedup/dedup_impl.h" /* gw_node_of, paths */

typedef struct key_list {
    uint64_t *records;
    int64_t count, cap;
} key_list;

struct gw_dedup_unit {
    gw_dedup_options o;
    gw_arena arena;
    char *path;
    uint32_t unit;
    key_list *bands; /* [o.bands] */
    gw_sets_writer *sets;
};

// ------------------------------------------------------------------------------ names and options

char *gw_dedup_unit_path(const gw_dedup_options *o, gw_arena *a, int64_t unit) {
    return gw_arena_printf(a, "%s/unit-%05lld.keys", o->dir, (long long)unit);
}

char *gw_dedup_task_path(const gw_dedup_options *o, gw_arena *a, int64_t task) {
    return gw_arena_printf(a, "%s/band-%03lld-%02lld.recs", o->dir, (long long)(task / o->parts),
                           (long long)(task % o->parts));
}

char *gw_dedup_index_path(const char *folder, int64_t task, int parts, gw_arena *a) {
    return gw_arena_printf(a, "%s/band-%03lld-%02lld.index", folder, (long long)(task / parts),
                           (long long)(task % parts));
}

char *gw_dedup_removed_path(const gw_dedup_options *o, gw_arena *a) {
    return gw_path_join(a, o->dir, "removed.recs");
}

gw_status gw_dedup_check(const gw_dedup_options *o, gw_diags *dg) {
    if (o->bands < 1 || o->bands > 65535 || o->exact_bands < 0 || o->exact_bands > o->bands ||
        (o->spans && o->bands != 1))
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "dedup with %d bands, %d of them for equal texts%s", o->bands,
                       o->exact_bands, o->spans ? ", over spans, which have one" : "");
    if (o->parts < 1 || o->parts > 256 || (o->parts & (o->parts - 1)))
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "dedup in %d parts a band; a power of two up to 256 is possible", o->parts);
    if (o->units < 0 || o->units > UINT32_MAX)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option", "dedup over %lld units",
                       (long long)o->units);
    if (!(o->jaccard >= 0 && o->jaccard <= 1) || (o->spans && o->jaccard > 0))
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "dedup with a true similarity of %g; 0 to 1 is possible, of documents",
                       o->jaccard);
    if (o->memory_bytes < GW_DEDUP_MEMORY_MIN)
        return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-option",
                       "dedup within %lld bytes of memory; it takes at least %d",
                       (long long)o->memory_bytes, (int)GW_DEDUP_MEMORY_MIN);
    return GW_OK;
}

// ------------------------------------------------------------------------------ a unit

bool gw_dedup_unit_done(const gw_dedup_options *o, uint32_t unit) {
    gw_arena a = {0};
    bool done = gw_recs_done(gw_dedup_unit_path(o, &a, unit), gw_dedup_words(o),
                             gw_dedup_sections(o), o->tag);
    gw_arena_release(&a);
    return done;
}

gw_status gw_dedup_unit_open(const gw_dedup_options *o, uint32_t unit, gw_dedup_unit **out,
                             gw_diags *dg) {
    *out = NULL;
    GW_TRY(gw_dedup_check(o, dg));
    GW_TRY(gw_dir_make(o->dir, dg));
    gw_dedup_unit *u = gw_mem_zalloc(sizeof *u);
    u->o = *o;
    u->unit = unit;
    u->path = gw_dedup_unit_path(o, &u->arena, unit);
    u->bands = gw_mem_zalloc((size_t)o->bands * sizeof *u->bands);
    *out = u;
    return GW_OK;
}

static uint64_t *room(key_list *l, int words) {
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->records = gw_mem_realloc(l->records, (size_t)(l->cap * words) * 8);
    }
    return l->records + l->count++ * words;
}

void gw_dedup_unit_add(gw_dedup_unit *u, uint32_t index, const gw_hash128 *keys) {
    for (int b = 0; b < u->o.bands; b++) {
        if (!keys[b].hi && !keys[b].lo) continue;
        uint64_t *r = room(&u->bands[b], GW_KEYS_WORDS);
        r[0] = keys[b].hi;
        r[1] = keys[b].lo;
        r[2] = gw_node_of(u->unit, index);
    }
}

void gw_dedup_unit_span(gw_dedup_unit *u, uint32_t index, uint32_t begin, uint32_t end,
                        gw_hash128 key) {
    if (begin >= end) return;
    uint64_t *r = room(&u->bands[0], GW_SPANS_WORDS);
    r[0] = key.hi;
    r[1] = key.lo;
    r[2] = gw_node_of(u->unit, index);
    r[3] = (uint64_t)begin << 32 | end;
}

gw_status gw_dedup_unit_shingles(gw_dedup_unit *u, uint32_t index, const uint64_t *shingles,
                                 int64_t count, gw_diags *dg) {
    if (!u->sets) GW_TRY(gw_sets_create(&u->o, u->unit, &u->sets, dg));
    return gw_sets_add(u->sets, index, shingles, count, dg);
}

static int64_t part_of(const gw_dedup_options *o, uint64_t high) {
    return o->parts == 1 ? 0 : (int64_t)(high >> (64 - __builtin_ctz((unsigned)o->parts)));
}

static gw_status write_band(gw_dedup_unit *u, gw_recs_writer *w, int band, gw_diags *dg) {
    const key_list *l = &u->bands[band];
    int words = gw_dedup_words(&u->o);
    gw_recs_sort(l->records, l->count, words);
    for (int64_t i = 0; i < l->count;) {
        int64_t part = part_of(&u->o, l->records[i * words]), end = i + 1;
        while (end < l->count && part_of(&u->o, l->records[end * words]) == part) end++;
        GW_TRY(
            gw_recs_add(w, (int64_t)band * u->o.parts + part, l->records + i * words, end - i, dg));
        i = end;
    }
    return GW_OK;
}

void gw_dedup_unit_abandon(gw_dedup_unit *u) {
    if (!u) return;
    gw_sets_abandon(u->sets);
    for (int b = 0; b < u->o.bands; b++) gw_mem_free(u->bands[b].records);
    gw_mem_free(u->bands);
    gw_arena_release(&u->arena);
    gw_mem_free(u);
}

/* The sets first: where the keys stand, they stand too. */
static gw_status close_sets(gw_dedup_unit *u, gw_diags *dg) {
    if (u->o.jaccard > 0 && !u->sets) GW_TRY(gw_sets_create(&u->o, u->unit, &u->sets, dg));
    gw_sets_writer *w = u->sets;
    u->sets = NULL;
    return w ? gw_sets_finish(w, dg) : GW_OK;
}

static gw_status write_keys(gw_dedup_unit *u, gw_diags *dg) {
    gw_recs_writer *w;
    GW_TRY(
        gw_recs_create(u->path, gw_dedup_words(&u->o), gw_dedup_sections(&u->o), u->o.tag, &w, dg));
    gw_status s = GW_OK;
    for (int b = 0; b < u->o.bands && s == GW_OK; b++) s = write_band(u, w, b, dg);
    if (s == GW_OK) return gw_recs_finish(w, NULL, dg);
    gw_recs_abandon(w);
    return s;
}

gw_status gw_dedup_unit_close(gw_dedup_unit *u, gw_diags *dg) {
    gw_status s = close_sets(u, dg);
    if (s == GW_OK) s = write_keys(u, dg);
    gw_dedup_unit_abandon(u);
    return s;
}

// ------------------------------------------------------------------------------ texts

gw_hash128 gw_dedup_text_key(const char *text, int64_t n) {
    gw_hash128 h = gw_hash128_of(text, (size_t)n);
    if (!h.lo && !h.hi) h.lo = 1;
    return h;
}

void gw_dedup_cut(gw_str *text, const gw_dedup_range *ranges, int64_t count) {
    size_t to = 0, from = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t begin = GW_MIN(ranges[i].begin, text->len), end = GW_MIN(ranges[i].end, text->len);
        if (begin < from) begin = from;
        if (end <= begin) continue;
        memmove(text->data + to, text->data + from, begin - from);
        to += begin - from;
        from = end;
    }
    if (from == 0) return;
    memmove(text->data + to, text->data + from, text->len - from);
    text->len = to + text->len - from;
    text->data[text->len] = 0;
}
