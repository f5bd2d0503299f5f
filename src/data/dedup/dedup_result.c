// SPDX-License-Identifier: Apache-2.0
// Reading what goes, unit by unit. Everything in the file is checked before it is believed: a list
// that names a document twice, or out of order, or of another unit, would take away the wrong text.
#include <string.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "data/dedup/dedup_impl.h" /* gw_dedup_removed_path */

struct gw_dedup_result {
    gw_recs file;
    uint64_t *records;
    int64_t cap, room;
    void *items; /* of the last unit: gw_dedup_removed or gw_dedup_range */
};

gw_status gw_dedup_result_read(const char *path, int64_t units, uint64_t tag, gw_dedup_result **out,
                               gw_diags *dg) {
    *out = NULL;
    gw_dedup_result *r = gw_mem_zalloc(sizeof *r);
    gw_status s = gw_recs_open(path, GW_REMOVED_WORDS, &r->file, dg);
    if (s == GW_OK && (r->file.tag != tag || r->file.nsections != units))
        s = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                    "'%s' was made with other options than those of this run", path);
    if (s == GW_OK)
        *out = r;
    else
        gw_dedup_result_free(r);
    return s;
}

gw_status gw_dedup_result_open(const gw_dedup_options *o, gw_dedup_result **out, gw_diags *dg) {
    gw_arena a = {0};
    gw_status s = gw_dedup_result_read(gw_dedup_removed_path(o, &a), o->units, o->tag, out, dg);
    gw_arena_release(&a);
    return s;
}

void gw_dedup_result_free(gw_dedup_result *r) {
    if (!r) return;
    gw_recs_close(&r->file);
    gw_mem_free(r->records);
    gw_mem_free(r->items);
    gw_mem_free(r);
}

const uint64_t *gw_dedup_result_meta(const gw_dedup_result *r) { return r->file.meta; }

gw_dedup_totals gw_dedup_result_totals(const gw_dedup_result *r) {
    const uint64_t *m = r->file.meta;
    return (gw_dedup_totals){
        .keys = (int64_t)m[GW_META_KEYS],
        .removed = (int64_t)m[GW_META_REMOVED],
        .exact = (int64_t)m[GW_META_EXACT],
        .near = (int64_t)(m[GW_META_REMOVED] - m[GW_META_EXACT] - m[GW_META_INDEX]),
        .in_index = (int64_t)m[GW_META_INDEX],
        .clusters = (int64_t)m[GW_META_CLUSTERS],
        .pairs = (int64_t)m[GW_META_PAIRS],
        .bytes = (int64_t)m[GW_META_BYTES]};
}

static gw_status bad(const gw_dedup_result *r, uint32_t unit, const char *what, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file", "'%s' lists %s of unit %u", r->file.path, what,
                   unit);
}

/* The records of a unit, in r->records, and room for as many items of `bytes`. */
static gw_status read_unit(gw_dedup_result *r, uint32_t unit, size_t bytes, int64_t *count,
                           gw_diags *dg) {
    *count = 0;
    if (unit >= (uint64_t)r->file.nsections)
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                       "'%s' holds %lld units; there is no unit %u", r->file.path,
                       (long long)r->file.nsections, unit);
    GW_TRY(gw_recs_read(&r->file, unit, &r->records, &r->cap, dg));
    *count = r->file.sections[unit].count;
    if (r->room < *count) {
        r->room = *count;
        r->items = gw_mem_realloc(r->items, (size_t)r->room * bytes);
    }
    uint64_t first = gw_node_of(unit, 0);
    for (int64_t i = 0; i < *count; i++) {
        const uint64_t *x = r->records + i * GW_REMOVED_WORDS;
        if (x[0] - first > UINT32_MAX) return bad(r, unit, "documents", dg);
        if (i && (x[0] < x[-GW_REMOVED_WORDS])) return bad(r, unit, "documents out of order", dg);
    }
    return GW_OK;
}

gw_status gw_dedup_result_unit(gw_dedup_result *r, uint32_t unit, const gw_dedup_removed **out,
                               int64_t *count, gw_diags *dg) {
    GW_TRY(read_unit(r, unit, sizeof **out, count, dg));
    gw_dedup_removed *items = r->items;
    for (int64_t i = 0; i < *count; i++) {
        const uint64_t *x = r->records + i * GW_REMOVED_WORDS;
        if (x[1] >= x[0] || x[2] > GW_DEDUP_SEEN || (i && x[0] == x[-GW_REMOVED_WORDS]))
            return bad(r, unit, "a document that cannot go", dg);
        items[i] = (gw_dedup_removed){.index = gw_node_id(x[0]).index, .why = (gw_dedup_why)x[2]};
        if (x[1] != GW_NODE_INDEX) items[i].survivor = gw_node_id(x[1]);
    }
    *out = items;
    return GW_OK;
}

gw_status gw_dedup_result_ranges(gw_dedup_result *r, uint32_t unit, const gw_dedup_range **out,
                                 int64_t *count, gw_diags *dg) {
    GW_TRY(read_unit(r, unit, sizeof **out, count, dg));
    gw_dedup_range *items = r->items;
    for (int64_t i = 0; i < *count; i++) {
        const uint64_t *x = r->records + i * GW_REMOVED_WORDS;
        items[i] = (gw_dedup_range){gw_node_id(x[0]).index, (uint32_t)(x[1] >> 32), (uint32_t)x[1]};
        if (items[i].begin >= items[i].end ||
            (i && items[i].index == items[i - 1].index && items[i].begin < items[i - 1].end))
            return bad(r, unit, "a range that cannot be", dg);
    }
    *out = items;
    return GW_OK;
}
