// SPDX-License-Identifier: Apache-2.0
// A Bloom filter over a corpus that many processes read.
//
// What a filter keeps depends on the order in which it is asked. So the keys of a unit go to a file
// in the order of its text, written by any process, and one process reads the files in the order of
// units and asks: an answer is then a function of the inputs. Asking is a few memory accesses a key
// and no sort, so one core does some millions of keys a second, and the rest (reading texts,
// cutting them, hashing the parts) is spread.
//
// A filter is no set: of what is new a stated share is taken for seen and goes too. How large the
// share was at the end, with the keys that really came, is part of the result.
//
// The result has the form that sorting has (dedup_result.c), so whoever reads it need not know by
// which of the two it was found.
#include "data/dedup/bloom_pass.h" /* this module's contract */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/io.h"               /* gw_dir_make */
#include "data/dedup/dedup_impl.h" /* gw_node_of, gw_dedup_write_ranges */

/* Meta of the result, in those of dedup_impl.h's places that a pass does not fill. */
enum { META_ASKED = GW_META_KEYS, META_NEW = GW_META_PAIRS, META_HELD = GW_META_CLUSTERS };
enum { META_BITS = GW_META_EXACT, META_HASHES = GW_META_RUN };

enum { SORTER_BYTES = 8 << 20 };

static char *unit_path(const gw_bloom_pass_options *o, gw_arena *a, int64_t unit) {
    return gw_arena_printf(a, "%s/unit-%05" PRId64 ".seen", o->dir, unit);
}

static char *result_path(const gw_bloom_pass_options *o, gw_arena *a) {
    return gw_path_join(a, o->dir, "seen.recs");
}

gw_status gw_bloom_pass_check(const gw_bloom_pass_options *o, gw_diags *dg) {
    double ln2 = log(2), bytes = -(double)o->expected * log(o->rate) / (ln2 * ln2) / 8;
    if (o->in || bytes <= (double)o->memory_bytes) return GW_OK;
    return GW_FAIL(dg, GW_ERR_CONFIG, "dedup-bloom",
                   "a filter for %" PRId64 " keys at a rate of %g takes %.3g bytes, and dedup may "
                   "hold %.3g",
                   o->expected, o->rate, bytes, (double)o->memory_bytes);
}

// ------------------------------------------------------------------------------ keys

struct gw_bloom_unit {
    gw_recs_writer *w;
    uint32_t unit;
};

bool gw_bloom_unit_done(const gw_bloom_pass_options *o, uint32_t unit) {
    gw_arena a = {0};
    bool done = gw_recs_done(unit_path(o, &a, unit), GW_SPANS_WORDS, 1, o->tag);
    gw_arena_release(&a);
    return done;
}

gw_status gw_bloom_unit_open(const gw_bloom_pass_options *o, uint32_t unit, gw_bloom_unit **out,
                             gw_diags *dg) {
    gw_arena a = {0};
    gw_recs_writer *w = NULL;
    *out = NULL;
    gw_status st = gw_dir_make(o->dir, dg);
    if (st == GW_OK) st = gw_recs_create(unit_path(o, &a, unit), GW_SPANS_WORDS, 1, o->tag, &w, dg);
    gw_arena_release(&a);
    if (st != GW_OK) return st;
    *out = gw_mem_zalloc(sizeof **out);
    (*out)->w = w;
    (*out)->unit = unit;
    return GW_OK;
}

gw_status gw_bloom_unit_add(gw_bloom_unit *u, uint32_t index, uint32_t begin, uint32_t end,
                            gw_hash128 key, gw_diags *dg) {
    uint64_t r[GW_SPANS_WORDS] = {key.hi, key.lo, gw_node_of(u->unit, index),
                                  (uint64_t)begin << 32 | end};
    return gw_recs_add(u->w, 0, r, 1, dg);
}

gw_status gw_bloom_unit_close(gw_bloom_unit *u, gw_diags *dg) {
    gw_recs_writer *w = u->w;
    gw_mem_free(u);
    return gw_recs_finish(w, NULL, dg);
}

void gw_bloom_unit_abandon(gw_bloom_unit *u) {
    if (!u) return;
    gw_recs_abandon(u->w);
    gw_mem_free(u);
}

// ------------------------------------------------------------------------------ the pass

typedef struct pass {
    const gw_bloom_pass_options *o;
    gw_bloom *filter;
    gw_recs_writer *out;
    gw_sorter *ranges; /* (node, range) */
    uint64_t *records;
    int64_t cap;
    uint64_t meta[GW_RECS_META];
} pass;

bool gw_bloom_pass_done(const gw_bloom_pass_options *o) {
    gw_arena a = {0};
    bool done = gw_recs_done(result_path(o, &a), GW_REMOVED_WORDS, o->units, o->tag);
    gw_arena_release(&a);
    return done && (!o->out || gw_path_exists(o->out));
}

static gw_status take(pass *p, int64_t unit, const uint64_t *r, gw_diags *dg) {
    uint64_t range[2] = {r[2], r[3]}, gone[GW_REMOVED_WORDS] = {r[2], GW_NODE_INDEX, GW_DEDUP_SEEN};
    p->meta[META_ASKED]++;
    if (!gw_bloom_add(p->filter, (gw_hash128){.hi = r[0], .lo = r[1]})) {
        p->meta[META_NEW]++;
        return GW_OK;
    }
    if (p->o->spans) return gw_sorter_add(p->ranges, range, dg);
    p->meta[GW_META_REMOVED]++;
    return gw_recs_add(p->out, unit, gone, 1, dg);
}

static gw_status take_unit(pass *p, int64_t unit, gw_diags *dg) {
    gw_arena a = {0};
    gw_recs f;
    char *path = unit_path(p->o, &a, unit);
    gw_status st = gw_recs_open(path, GW_SPANS_WORDS, &f, dg);
    if (st == GW_OK) {
        if (f.tag != p->o->tag || f.nsections != 1)
            st = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                         "'%s' was made with other options than those of this run", path);
        else
            st = gw_recs_read(&f, 0, &p->records, &p->cap, dg);
        for (int64_t i = 0; st == GW_OK && i < f.records; i++)
            st = take(p, unit, p->records + i * GW_SPANS_WORDS, dg);
        gw_recs_close(&f);
    }
    gw_arena_release(&a);
    return st;
}

static gw_status finish(pass *p, gw_diags *dg) {
    const gw_bloom_pass_options *o = p->o;
    if (o->spans) GW_TRY(gw_dedup_write_ranges(p->ranges, p->out, p->meta, dg));
    if (o->out) GW_TRY(gw_bloom_save(p->filter, o->out, o->what, dg));
    p->meta[META_HELD] = (uint64_t)gw_bloom_count(p->filter);
    p->meta[META_BITS] = (uint64_t)gw_bloom_bits(p->filter);
    p->meta[META_HASHES] = (uint64_t)gw_bloom_hashes(p->filter);
    gw_recs_writer *w = p->out;
    p->out = NULL;
    return gw_recs_finish(w, p->meta, dg);
}

static gw_status open_filter(pass *p, gw_diags *dg) {
    const gw_bloom_pass_options *o = p->o;
    if (o->in) return gw_bloom_load(o->in, o->memory_bytes, o->what, &p->filter, dg);
    return gw_bloom_new(o->expected, o->rate, 0, &p->filter, dg);
}

gw_status gw_bloom_pass_run(const gw_bloom_pass_options *o, gw_diags *dg) {
    if (gw_bloom_pass_done(o)) return GW_OK;
    gw_arena a = {0};
    pass p = {.o = o};
    gw_status st = gw_bloom_pass_check(o, dg);
    if (st == GW_OK) st = gw_dir_make(o->dir, dg);
    if (st == GW_OK) st = open_filter(&p, dg);
    if (st == GW_OK)
        st = gw_recs_create(result_path(o, &a), GW_REMOVED_WORDS, o->units, o->tag, &p.out, dg);
    p.ranges = gw_sorter_new(o->dir, 2, GW_MAX((int64_t)SORTER_BYTES, o->memory_bytes / 4));
    for (int64_t u = 0; u < o->units && st == GW_OK; u++) st = take_unit(&p, u, dg);
    if (st == GW_OK) st = finish(&p, dg);
    gw_recs_abandon(p.out);
    gw_sorter_free(p.ranges);
    gw_bloom_free(p.filter);
    gw_mem_free(p.records);
    gw_arena_release(&a);
    return st;
}

gw_status gw_bloom_pass_result(const gw_bloom_pass_options *o, gw_dedup_result **out,
                               gw_diags *dg) {
    gw_arena a = {0};
    gw_status st = gw_dedup_result_read(result_path(o, &a), o->units, o->tag, out, dg);
    gw_arena_release(&a);
    return st;
}

gw_bloom_pass_totals gw_bloom_pass_of(const gw_bloom_pass_options *o, const gw_dedup_result *r) {
    const uint64_t *m = gw_dedup_result_meta(r);
    gw_bloom_pass_totals t = {.asked = (int64_t)m[META_ASKED],
                              .new_keys = (int64_t)m[META_NEW],
                              .held = (int64_t)m[META_HELD],
                              .bits = (int64_t)m[META_BITS],
                              .hashes = (int)m[META_HASHES]};
    t.expected = o->in ? gw_bloom_room(t.bits, t.hashes) : o->expected;
    if (t.bits > 0) t.rate = gw_bloom_rate_of(t.bits, t.hashes, t.held);
    return t;
}
