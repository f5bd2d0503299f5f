// SPDX-License-Identifier: Apache-2.0
// What stays between saves.
//
// The buffer. A save copies a rank's share of the state, and fresh memory costs more than the copy:
// the kernel clears each page before it is written. So the buffer stays mapped, in large pages
// where the system has them, and between saves its pages are offered back (MADV_FREE): a machine
// short of memory takes them, any other leaves them in place for the next save.
//
// What is unchanged. Of the newest commit the hashes of every block are remembered, a few bytes
// for each 4 MiB. An entry is first compared by a sample, the beginning of each block, which tells
// nearly every entry that has changed for nearly nothing; only one that passes is hashed whole, and
// only if every block's hash is the old one is it referred to. For a tensor that nothing in the
// program changes the sample will do.
//
// A reference holds a file in place that would otherwise be removed, so it must be worth it: what
// is taken of a file must be half of it or more, or all of it is written anew. And an entry below
// 64 KiB is not worth the name of a file.
//
// What is remembered is what the newest commit refers to or wrote itself, so that as long as the
// newest checkpoint is whole, which retention sees to, every origin is there. That its file still
// is, with its size, is looked at nonetheless: a person may have removed it.
#include "ckpt/keep.h"

#include <string.h>
#include <sys/mman.h>

#include "base/hash.h" /* gw_hash64 */

enum { SAMPLE = 4096 };

typedef struct kept {
    uint64_t sample;
    int origin; /* -1: too small to be referred to */
    const gw_ckpt_row *rows;
} kept;

struct gw_ckpt_keep {
    void *buffer;
    int64_t buffer_bytes;
    gw_arena mem; /* of all below */
    bool known;
    gw_hash128 plan;
    const char *home;
    kept *entries;
    int64_t n;
    gw_ckpt_origin origins[GW_CKPT_ORIGINS];
    int norigins;
};

gw_ckpt_keep *gw_ckpt_keep_new(void) { return gw_mem_zalloc(sizeof(gw_ckpt_keep)); }

void gw_ckpt_keep_free(gw_ckpt_keep *k) {
    if (!k) return;
    if (k->buffer) munmap(k->buffer, (size_t)k->buffer_bytes);
    gw_arena_release(&k->mem);
    gw_mem_free(k);
}

/* ---- the buffer ---- */

void *gw_ckpt_keep_buffer(gw_ckpt_keep *k, int64_t bytes) {
    if (k->buffer && k->buffer_bytes >= bytes) return k->buffer;
    if (k->buffer) munmap(k->buffer, (size_t)k->buffer_bytes);
    k->buffer = NULL;
    int64_t whole = (bytes + GW_CKPT_BLOCK - 1) / GW_CKPT_BLOCK * GW_CKPT_BLOCK + GW_CKPT_BLOCK;
    void *p = mmap(NULL, (size_t)whole, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    (void)madvise(p, (size_t)whole, MADV_HUGEPAGE);
    k->buffer = p;
    k->buffer_bytes = whole;
    return p;
}

void gw_ckpt_keep_rest(gw_ckpt_keep *k) {
    if (k->buffer) (void)madvise(k->buffer, (size_t)k->buffer_bytes, MADV_FREE);
}

/* ---- what is unchanged ---- */

void gw_ckpt_keep_forget(gw_ckpt_keep *k) {
    k->known = false;
    k->n = k->norigins = 0;
    gw_arena_release(&k->mem);
}

const gw_ckpt_origin *gw_ckpt_keep_origin(const gw_ckpt_keep *k, int origin) {
    return &k->origins[origin];
}

static uint64_t sample_of(const gw_ckpt_own *o) {
    uint64_t h = 0;
    if (o->bytes < GW_CKPT_REFERENCE_LEAST) return 0;
    for (int64_t at = 0; at < o->bytes; at += GW_CKPT_BLOCK)
        h = gw_hash64(o->data + at, (size_t)GW_MIN((int64_t)SAMPLE, o->bytes - at), h);
    return h;
}

static bool same_blocks(const gw_ckpt_own *o, const gw_ckpt_row *rows) {
    for (int64_t at = 0, i = 0; at < o->bytes; at += GW_CKPT_BLOCK, i++) {
        gw_ckpt_row is =
            gw_ckpt_row_of(o->data + at, GW_MIN((int64_t)GW_CKPT_BLOCK, o->bytes - at));
        if (memcmp(&is, &rows[i], sizeof is) != 0) return false;
    }
    return true;
}

/* Bytes that the entries take of each origin; what is not worth it is let go. */
static void weigh(const gw_ckpt_keep *k, const bool *there, gw_ckpt_own *own, int64_t n) {
    int64_t taken[GW_CKPT_ORIGINS] = {0};
    int used = 0, least = -1;
    for (int64_t i = 0; i < n; i++)
        if (own[i].origin >= 0) taken[own[i].origin] += own[i].bytes;
    for (int o = 0; o < k->norigins; o++) {
        if (!there[o] || 2 * taken[o] < k->origins[o].bytes) taken[o] = 0;
        used += taken[o] > 0;
        if (taken[o] > 0 && (least < 0 || taken[o] < taken[least])) least = o;
    }
    if (used == GW_CKPT_ORIGINS) taken[least] = 0; /* room for the file that is written now */
    for (int64_t i = 0; i < n; i++)
        if (own[i].origin >= 0 && taken[own[i].origin] == 0) own[i].origin = -1;
}

static void look_for(const gw_ckpt_keep *k, const gw_place *place, int64_t rank, bool *there) {
    gw_arena mem = {0};
    for (int o = 0; o < k->norigins; o++) {
        gw_place_entry e;
        const char *path =
            gw_arena_printf(&mem, "%s/step-%08lld/%s", k->home, (long long)k->origins[o].step,
                            gw_ckpt_file_name(rank, &mem));
        there[o] = gw_place_look(place, path, &e, NULL) == GW_OK && e.kind == GW_PLACE_FILE &&
                   e.bytes == k->origins[o].bytes;
    }
    gw_arena_release(&mem);
}

void gw_ckpt_keep_find(const gw_ckpt_keep *k, const gw_place *place, const char *home, int64_t rank,
                       gw_hash128 plan, bool references, gw_ckpt_own *own, int64_t n) {
    bool there[GW_CKPT_ORIGINS] = {false};
    bool fits = references && k->known && k->n == n && k->plan.lo == plan.lo &&
                k->plan.hi == plan.hi && strcmp(k->home, home) == 0;
    for (int64_t i = 0; i < n; i++) {
        gw_ckpt_own *o = &own[i];
        const kept *was = fits ? &k->entries[i] : NULL;
        o->origin = -1;
        if (references) o->sample = sample_of(o);
        if (was && was->origin >= 0 && was->sample == o->sample) o->origin = was->origin;
        if (o->origin >= 0) o->rows = was->rows;
    }
    if (!fits) return;
    look_for(k, place, rank, there);
    weigh(k, there, own, n);
    for (int64_t i = 0; i < n; i++)
        if (own[i].origin >= 0 && !own[i].tensor->frozen && !same_blocks(&own[i], own[i].rows))
            own[i].origin = -1;
    weigh(k, there, own, n);
}

void gw_ckpt_keep_take(gw_ckpt_keep *k, const char *home, gw_hash128 plan, const gw_ckpt_own *own,
                       int64_t n, const gw_ckpt_file *file, const gw_ckpt_writer *w) {
    gw_ckpt_keep next = {
        .buffer = k->buffer, .buffer_bytes = k->buffer_bytes, .known = true, .plan = plan, .n = n};
    int moved[GW_CKPT_ORIGINS], written = -1;
    for (int o = 0; o < GW_CKPT_ORIGINS; o++) moved[o] = -1;
    next.home = gw_arena_strdup(&next.mem, home);
    next.entries = gw_arena_new(&next.mem, kept, n + 1);
    if (file->bytes > 0) {
        written = next.norigins++;
        next.origins[written] = (gw_ckpt_origin){file->step, file->bytes, file->index};
    }
    for (int64_t i = 0; i < n; i++) {
        const gw_ckpt_own *o = &own[i];
        kept *e = &next.entries[i];
        *e = (kept){.sample = o->sample, .origin = -1};
        if (o->bytes < GW_CKPT_REFERENCE_LEAST) continue;
        if (o->origin >= 0 && moved[o->origin] < 0) {
            moved[o->origin] = next.norigins++;
            next.origins[moved[o->origin]] = k->origins[o->origin];
        }
        e->origin = o->origin >= 0 ? moved[o->origin] : written;
        const gw_ckpt_row *rows = o->origin >= 0 ? o->rows : gw_ckpt_writer_rows(w, o->entry);
        e->rows = gw_arena_dup(&next.mem, rows, gw_ckpt_blocks(o->bytes) * (int64_t)sizeof *rows);
    }
    gw_arena_release(&k->mem);
    *k = next;
}
