// SPDX-License-Identifier: Apache-2.0
// Sets of shingles on disk, for comparing candidates by their true similarity.
//
// A unit has two files: unit-NNNNN.shingles, the hashes of all its documents one after the other,
// sorted and without repeats within each; and unit-NNNNN.sets, which says of each document where
// its own begin, how many they are, and a hash of them. Candidates come from all units in the order
// of their keys, which is to say in none, so sets are read one by one where they lie, and the lists
// of the last units used stay in memory.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/io.h"               /* gw_fd_pread_all */
#include "data/dedup/dedup_impl.h" /* gw_sets */

enum { ENTRY_WORDS = 4, OPEN_UNITS = 16 };

static char *sets_path(const gw_dedup_options *o, int64_t unit, const char *end, gw_arena *a) {
    return gw_arena_printf(a, "%s/unit-%05lld.%s", o->dir, (long long)unit, end);
}

// ------------------------------------------------------------------------------ writing

struct gw_sets_writer {
    gw_recs_writer *shingles, *entries;
    uint64_t *sorted;
    int64_t cap, next; /* next: shingles written */
    int64_t last;      /* index, or -1 */
};

gw_status gw_sets_create(const gw_dedup_options *o, int64_t unit, gw_sets_writer **out,
                         gw_diags *dg) {
    gw_arena a = {0};
    gw_sets_writer *w = gw_mem_zalloc(sizeof *w);
    w->last = -1;
    gw_status s =
        gw_recs_create(sets_path(o, unit, "shingles", &a), 1, 1, o->tag, &w->shingles, dg);
    if (s == GW_OK)
        s = gw_recs_create(sets_path(o, unit, "sets", &a), ENTRY_WORDS, 1, o->tag, &w->entries, dg);
    gw_arena_release(&a);
    *out = w;
    if (s == GW_OK) return GW_OK;
    gw_sets_abandon(w);
    *out = NULL;
    return s;
}

gw_status gw_sets_add(gw_sets_writer *w, uint32_t index, const uint64_t *shingles, int64_t count,
                      gw_diags *dg) {
    if ((int64_t)index <= w->last)
        return GW_FAIL(dg, GW_ERR_USAGE, "dedup-option",
                       "shingles of document %u after those of document %lld", index,
                       (long long)w->last);
    w->last = index;
    if (w->cap < count) {
        w->cap = count + count / 2;
        w->sorted = gw_mem_realloc(w->sorted, (size_t)w->cap * 8);
    }
    if (count) memcpy(w->sorted, shingles, (size_t)count * 8);
    gw_recs_sort(w->sorted, count, 1);
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || w->sorted[i] != w->sorted[n - 1]) w->sorted[n++] = w->sorted[i];
    uint64_t entry[ENTRY_WORDS] = {index, (uint64_t)w->next, (uint64_t)n,
                                   gw_hash64(w->sorted, (size_t)n * 8, 0)};
    w->next += n;
    GW_TRY(gw_recs_add(w->shingles, 0, w->sorted, n, dg));
    return gw_recs_add(w->entries, 0, entry, 1, dg);
}

void gw_sets_abandon(gw_sets_writer *w) {
    if (!w) return;
    gw_recs_abandon(w->shingles);
    gw_recs_abandon(w->entries);
    gw_mem_free(w->sorted);
    gw_mem_free(w);
}

gw_status gw_sets_finish(gw_sets_writer *w, gw_diags *dg) {
    gw_status s = gw_recs_finish(w->shingles, NULL, dg);
    w->shingles = NULL;
    if (s == GW_OK) {
        s = gw_recs_finish(w->entries, NULL, dg);
        w->entries = NULL;
    }
    gw_sets_abandon(w);
    return s;
}

// ------------------------------------------------------------------------------ reading

typedef struct open_unit {
    int64_t unit, used; /* used: when, by a counter; 0: nothing here */
    gw_recs shingles;
    uint64_t *entries;
    int64_t count, cap;
} open_unit;

struct gw_sets {
    const gw_dedup_options *o;
    open_unit units[OPEN_UNITS];
    int64_t clock;
};

gw_sets *gw_sets_new(const gw_dedup_options *o) {
    gw_sets *s = gw_mem_zalloc(sizeof *s);
    s->o = o;
    return s;
}

static void unit_close(open_unit *u) {
    gw_recs_close(&u->shingles);
    u->used = u->count = 0;
}

void gw_sets_free(gw_sets *s) {
    if (!s) return;
    for (int i = 0; i < OPEN_UNITS; i++) {
        unit_close(&s->units[i]);
        gw_mem_free(s->units[i].entries);
    }
    gw_mem_free(s);
}

static gw_status unit_read(const gw_dedup_options *o, int64_t unit, open_unit *u, gw_diags *dg) {
    gw_arena a = {0};
    gw_recs f = {.fd = -1};
    char *path = sets_path(o, unit, "sets", &a);
    gw_status s = gw_recs_open(path, ENTRY_WORDS, &f, dg);
    if (s == GW_OK && (f.tag != o->tag || f.nsections != 1))
        s = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                    "'%s' was made with other options than those of this run", path);
    if (s == GW_OK) s = gw_recs_read(&f, 0, &u->entries, &u->cap, dg);
    if (s == GW_OK) {
        u->count = f.records;
        s = gw_recs_open(sets_path(o, unit, "shingles", &a), 1, &u->shingles, dg);
    }
    gw_recs_close(&f);
    gw_arena_release(&a);
    u->unit = unit;
    return s;
}

static gw_status unit_find(gw_sets *s, int64_t unit, open_unit **out, gw_diags *dg) {
    open_unit *oldest = &s->units[0];
    s->clock++;
    for (int i = 0; i < OPEN_UNITS; i++) {
        open_unit *u = &s->units[i];
        if (u->used && u->unit == unit) {
            u->used = s->clock;
            *out = u;
            return GW_OK;
        }
        if (u->used < oldest->used) oldest = u;
    }
    unit_close(oldest);
    GW_TRY(unit_read(s->o, unit, oldest, dg));
    oldest->used = s->clock;
    *out = oldest;
    return GW_OK;
}

static const uint64_t *entry_find(const open_unit *u, uint64_t index) {
    int64_t low = 0, high = u->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (u->entries[middle * ENTRY_WORDS] < index)
            low = middle + 1;
        else
            high = middle;
    }
    const uint64_t *e = u->entries + low * ENTRY_WORDS;
    return low < u->count && e[0] == index ? e : NULL;
}

gw_status gw_sets_read(gw_sets *s, uint64_t node, gw_set *set, gw_diags *dg) {
    gw_doc_id id = gw_node_id(node);
    open_unit *u;
    GW_TRY(unit_find(s, id.unit, &u, dg));
    const uint64_t *e = entry_find(u, id.index);
    if (!e || e[1] > (uint64_t)u->shingles.records || e[2] > (uint64_t)u->shingles.records - e[1])
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file", "'%s' lacks the shingles of document %u",
                       u->shingles.path, id.index);
    set->node = node;
    set->count = (int64_t)e[2];
    if (set->cap < set->count) {
        set->cap = set->count + set->count / 2;
        set->items = gw_mem_realloc(set->items, (size_t)set->cap * 8);
    }
    if (set->count == 0) return GW_OK;
    gw_run run = gw_recs_run(&u->shingles, 0);
    GW_TRY(gw_fd_pread_all(u->shingles.fd, set->items, set->count * 8,
                           run.offset + (int64_t)e[1] * 8, u->shingles.path, dg));
    if (gw_hash64(set->items, (size_t)set->count * 8, 0) != e[3])
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                       "'%s' is not as it was written: the hash of document %u differs",
                       u->shingles.path, id.index);
    return GW_OK;
}

double gw_set_jaccard(const gw_set *a, const gw_set *b) {
    int64_t both = 0;
    for (int64_t i = 0, j = 0; i < a->count && j < b->count;) {
        uint64_t x = a->items[i], y = b->items[j];
        both += x == y;
        i += x <= y;
        j += y <= x;
    }
    int64_t either = a->count + b->count - both;
    return either ? (double)both / (double)either : 1;
}
