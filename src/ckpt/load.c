// SPDX-License-Identifier: Apache-2.0
// Loading: any layout takes what it holds from whatever layout wrote.
//
// A target (what this rank holds of a tensor) is one or more pieces, a chunk is a piece; what they
// have in common is walked in the chunk's order, so its blocks are read one after another, each
// once, and only those that are needed. A block that lands whole in one place of the target is read
// there; any other is read aside, into the one buffer there is. Either way it is believed only with
// its hash.
//
// Elements of another float than the target's go through that buffer too, and are converted on the
// way (precision.c): so a resume in other numbers needs no more memory than any other.
//
// A target must be filled whole. Chunks of a manifest are disjoint (manifest.c), so counting the
// elements proves it.
//
// A file of an older checkpoint is opened where that one's folder is or, where it was moved aside
// when its step was saved again, where it was moved to: its index says which is meant.
//
// Files stay open until the end of a load, at most MAX_OPEN of them.
//
// In a place that is far (a store) the same walk is made three times: it says which files it will
// open, then which blocks it will read, each in its order, and then reads them. The place has as
// much under way as the link carries meanwhile (place_ahead.c).
#include <inttypes.h>
#include <string.h>

#include "base/io.h"  /* gw_path_join */
#include "base/map.h" /* gw_smap */
#include "base/str.h" /* gw_str */
#include "ckpt/checkpoint.h"
#include "ckpt/datafile.h" /* gw_ckpt_reader */
#include "ckpt/place.h"
#include "ckpt/plan.h"      /* gw_ckpt_held */
#include "ckpt/precision.h" /* gw_ckpt_convert */

enum { MAX_OPEN = 256 };

/* What a walk does. The first two read no data. */
typedef enum walk { READS, TELLS_FILES, TELLS_BLOCKS } walk;

typedef struct load {
    const gw_ckpt_manifest *m;
    gw_place place;
    walk walk;
    bool *told;                       /* [nfiles]: that it will be opened */
    gw_ckpt_reader **readers;         /* [nfiles] */
    int open[MAX_OPEN], nopen, next;  /* files that are open, in turn */
    char *aside;                      /* a block of */
    int64_t aside_entry, aside_block; /* this entry of file aside_file */
    int aside_file;
    gw_str name;
    gw_ckpt_loaded sums;
    gw_arena mem;
    gw_diags *dg;
} load;

/* The same file in a folder that was moved aside: NAME.replaced-K. */
static bool open_replaced(load *l, const gw_ckpt_file *f, const char *path, gw_ckpt_reader **out) {
    gw_place_list in;
    const char *folder = gw_arena_strndup(&l->mem, path, (size_t)(strrchr(path, '/') - path));
    const char *slash = strrchr(folder, '/');
    const char *home = slash ? gw_arena_strndup(&l->mem, folder, (size_t)(slash - folder)) : ".";
    const char *prefix = gw_arena_printf(&l->mem, "%s.replaced-", f->folder);
    if (gw_place_list_of(&l->place, home, &l->mem, &in, NULL) != GW_OK) return false;
    for (int64_t i = 0; i < in.n; i++) {
        if (!gw_str_starts(in.items[i].name, prefix)) continue;
        const char *at = gw_arena_printf(&l->mem, "%s/%s/%s", home, in.items[i].name, f->name);
        if (gw_place_has(&l->place, at) &&
            gw_ckpt_reader_open(out, &l->place, at, f, NULL) == GW_OK)
            return true;
    }
    return false;
}

static gw_status open_reader(load *l, int file, gw_ckpt_reader **out) {
    const gw_ckpt_file *f = &l->m->files[file];
    const char *path = gw_checkpoint_file_path(l->m, file, &l->mem);
    gw_diags faults;
    if (!f->folder) return gw_ckpt_reader_open(out, &l->place, path, f, l->dg);
    gw_diags_init(&faults);
    gw_status st = gw_ckpt_reader_open(out, &l->place, path, f, &faults);
    if (st != GW_OK && open_replaced(l, f, path, out)) st = GW_OK;
    if (st != GW_OK) {
        gw_diag *g = gw_diag_add(
            l->dg, GW_ERROR, st, "checkpoint-reference", (gw_where){0},
            "%s/manifest.json refers to '%s', which was written with %s/manifest.json of step "
            "%" PRId64 ": %s",
            l->m->path, path, gw_arena_strndup(&l->mem, path, (size_t)(strrchr(path, '/') - path)),
            f->step, gw_diags_first_error(&faults));
        gw_diag_hint(l->dg, g,
                     "bring the file back; a checkpoint is copied together with the folders that "
                     "`gradwright checkpoint show` names");
    }
    gw_diags_release(&faults);
    return st;
}

static gw_status reader_of(load *l, int file, gw_ckpt_reader **out) {
    if (!l->readers[file]) {
        GW_TRY(open_reader(l, file, &l->readers[file]));
        l->sums.files++;
        if (gw_place_is_far(&l->place)) { /* holds no descriptor */
            *out = l->readers[file];
            return GW_OK;
        }
        if (l->nopen == MAX_OPEN) {
            int old = l->open[l->next];
            gw_ckpt_reader_free(l->readers[old]);
            l->readers[old] = NULL;
            if (l->aside_file == old) l->aside_file = -1;
        } else {
            l->nopen++;
        }
        l->open[l->next] = file;
        l->next = (l->next + 1) % MAX_OPEN;
    }
    *out = l->readers[file];
    return GW_OK;
}

/* Tells the place that a file will be opened, once. */
static void tell_file(load *l, int file) {
    if (l->told[file]) return;
    l->told[file] = true;
    gw_ckpt_reader_expect_open(&l->place, gw_checkpoint_file_path(l->m, file, &l->mem),
                               &l->m->files[file]);
}

/* Block k of an entry at dst, or told that it will be wanted. */
static gw_status block_at(load *l, gw_ckpt_reader *r, int64_t entry, int64_t k, int64_t bytes,
                          char *dst) {
    if (l->walk == TELLS_BLOCKS) {
        gw_ckpt_reader_expect(r, entry, k);
        return GW_OK;
    }
    l->sums.bytes_read += bytes;
    return gw_ckpt_reader_block(r, entry, k, dst, l->dg);
}

/* Where elements go that are of another float there: the `into`-th of a piece of t, and on. */
typedef struct turn {
    const gw_ckpt_tensor *t;
    const gw_piece *piece;
    int64_t into;
} turn;

/* n bytes of the checkpoint's float become the target's at dst; returns how many they are there. */
static int64_t convert(turn *c, const char *src, int64_t n, char *dst) {
    const gw_ckpt_tensor *t = c->t;
    gw_ckpt_rounding r = {0};
    int64_t elems = n / (gw_dtype_bits(t->as->from) / 8);
    gw_ckpt_convert(t->as->from, src, t->dtype, dst, elems, &r);
    t->as->overflowed += r.overflowed;
    t->as->vanished += r.vanished;
    t->as->digest += gw_ckpt_digest_part(t, c->piece, c->into, t->as->from, src, elems);
    c->into += elems;
    return elems * gw_dtype_bits(t->dtype) / 8;
}

/* Copies `n` bytes at `at` of an entry to dst, through its blocks; with `c` converted. */
static gw_status take(load *l, int file, gw_ckpt_reader *r, int64_t entry, int64_t entry_bytes,
                      int64_t at, int64_t n, char *dst, turn *c) {
    while (n > 0) {
        int64_t k = at / GW_CKPT_BLOCK, in = at % GW_CKPT_BLOCK;
        int64_t block = GW_MIN((int64_t)GW_CKPT_BLOCK, entry_bytes - k * GW_CKPT_BLOCK);
        int64_t part = GW_MIN(n, block - in);
        bool held = l->aside_file == file && l->aside_entry == entry && l->aside_block == k;
        int64_t put = part;
        if (part == block && !held && !c) {
            GW_TRY(block_at(l, r, entry, k, block, dst));
        } else {
            if (!held) {
                l->aside_file = -1;
                GW_TRY(block_at(l, r, entry, k, block, l->aside));
                l->aside_file = file;
                l->aside_entry = entry;
                l->aside_block = k;
            }
            if (l->walk != READS)
                put = 0; /* dst is not looked at */
            else if (c)
                put = convert(c, l->aside + in, part, dst);
            else
                memcpy(dst, l->aside + in, (size_t)part);
        }
        at += part;
        dst += put;
        n -= part;
    }
    return GW_OK;
}

static gw_status wrong(load *l, const char *name, const char *why) {
    gw_diag *g = gw_diag_add(l->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-tensor", (gw_where){0},
                             "%s: tensor '%s' %s", l->m->path, name, why);
    gw_diag_hint(l->dg, g, "the checkpoint is of another model, optimizer or precision");
    return GW_ERR_FORMAT;
}

/* The chunk as its file has it. */
static gw_status find_entry(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                            gw_ckpt_reader **r, int64_t *entry, int64_t *bytes) {
    gw_dtype dtype = GW_DTYPE_COUNT;
    GW_TRY(reader_of(l, c->file, r));
    gw_str_clear(&l->name);
    gw_ckpt_entry_name(t->name, t->ndim, t->dims, &c->piece, &l->name);
    *entry = gw_ckpt_reader_find(*r, gw_str_c(&l->name), &dtype, bytes);
    if (*entry >= 0 && dtype == t->dtype && *bytes == c->piece.count * gw_dtype_bits(t->dtype) / 8)
        return GW_OK;
    return GW_FAIL(l->dg, GW_ERR_FORMAT, "checkpoint-damaged",
                   "%s is damaged: it should hold '%s' as %s", gw_ckpt_reader_path(*r),
                   gw_str_c(&l->name), gw_dtype_name(t->dtype));
}

/* What a chunk has of a target's piece, whose first element stands at `data`. */
static gw_status take_chunk(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                            const gw_ckpt_tensor *target, const gw_piece *to, char *data,
                            int64_t *filled) {
    int64_t each = gw_dtype_bits(t->dtype) / 8, wide = gw_dtype_bits(target->dtype) / 8;
    int64_t from, into, count, entry = -1, bytes = 0;
    gw_ckpt_reader *r = NULL;
    gw_common both;
    gw_common_begin(&both, &c->piece, to);
    while (gw_common_next(&both, &from, &into, &count)) {
        if (l->walk == TELLS_FILES) {
            tell_file(l, c->file);
            return GW_OK;
        }
        if (entry < 0) GW_TRY(find_entry(l, t, c, &r, &entry, &bytes));
        turn one = {target, to, into};
        GW_TRY(take(l, c->file, r, entry, bytes, from * each, count * each, data + into * wide,
                    t->dtype != target->dtype ? &one : NULL));
        *filled += count;
        if (l->walk == READS) l->sums.bytes_taken += count * each;
    }
    return GW_OK;
}

static gw_status load_one(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_tensor *to) {
    bool turns = to->as && gw_ckpt_converts(t->dtype, to->dtype);
    if (t->dtype != to->dtype && !turns) return wrong(l, to->name, "has another dtype there");
    if (to->as) *to->as = (gw_ckpt_conversion){.done = turns, .from = t->dtype};
    if (t->ndim != to->ndim || memcmp(t->dims, to->dims, sizeof t->dims[0] * (size_t)t->ndim) != 0)
        return wrong(l, to->name, "has another shape there");
    int64_t each = gw_dtype_bits(to->dtype) / 8, at = 0, filled = 0;
    gw_arena mem = {0};
    gw_piece whole = gw_piece_of_box(&to->box), *pieces = &whole;
    int n = to->type ? gw_ckpt_held(to->type, to->mesh, to->rank, &mem, &pieces) : 1;
    gw_status st = GW_OK;
    for (int i = 0; i < n && st == GW_OK; i++) {
        for (int k = 0; k < t->chunks->n && st == GW_OK; k++)
            st = take_chunk(l, t, &t->chunks->items[k], to, &pieces[i],
                            (char *)to->data + at * each, &filled);
        at += pieces[i].count;
    }
    gw_arena_release(&mem);
    if (st == GW_OK && l->walk == READS && filled != at)
        st = wrong(l, to->name, "is not there in full");
    return st;
}

/* All that are missing, and what is there instead. */
static gw_status missing(load *l, const gw_ckpt_tensor *tensors, int n, const gw_smap *by_name) {
    gw_str text = {0};
    int count = 0, more = 0;
    uint32_t k;
    for (int i = 0; i < n; i++) {
        if (tensors[i].away || gw_smap_find_c(by_name, tensors[i].name, &k)) continue;
        if (count++ < 8) gw_str_printf(&text, "%s'%s'", count > 1 ? ", " : "", tensors[i].name);
    }
    if (count > 8) gw_str_printf(&text, " and %d more", count - 8);
    gw_smap wanted = {0};
    for (int i = 0; i < n; i++) gw_smap_put_c(&wanted, tensors[i].name, (uint32_t)i);
    gw_str besides = {0};
    for (int i = 0; i < l->m->ntensors; i++) {
        if (gw_smap_find_c(&wanted, l->m->tensors[i].name, &k)) continue;
        if (more++ < 8)
            gw_str_printf(&besides, "%s'%s'", more > 1 ? ", " : "", l->m->tensors[i].name);
    }
    if (more > 8) gw_str_printf(&besides, " and %d more", more - 8);
    gw_diag *g = gw_diag_add(l->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-tensor", (gw_where){0},
                             "%s: tensor%s %s %s not there%s%s", l->m->path, count > 1 ? "s" : "",
                             gw_str_c(&text), count > 1 ? "are" : "is",
                             more ? "; it has besides " : "", gw_str_c(&besides));
    gw_diag_hint(l->dg, g, "the checkpoint is of another model, optimizer or precision");
    gw_str_release(&besides);
    gw_str_release(&text);
    gw_smap_release(&wanted);
    return GW_ERR_FORMAT;
}

static void begin_walk(load *l, walk w) {
    l->walk = w;
    l->aside_file = -1;
}

static gw_status load_all(load *l, const gw_ckpt_tensor *tensors, int n) {
    gw_smap by_name = {0};
    gw_status st = GW_OK;
    uint32_t k;
    for (int i = 0; i < l->m->ntensors; i++)
        gw_smap_put_c(&by_name, l->m->tensors[i].name, (uint32_t)i);
    for (int i = 0; st == GW_OK && i < n; i++)
        if (!tensors[i].away && !gw_smap_find_c(&by_name, tensors[i].name, &k))
            st = missing(l, tensors, n, &by_name);
    static const walk walks[] = {TELLS_FILES, TELLS_BLOCKS, READS};
    for (size_t w = gw_place_is_far(&l->place) ? 0 : 2; w < GW_COUNT(walks); w++) {
        begin_walk(l, walks[w]);
        for (int i = 0; st == GW_OK && i < n; i++)
            if (!tensors[i].away && gw_smap_find_c(&by_name, tensors[i].name, &k))
                st = load_one(l, &l->m->tensors[k], &tensors[i]);
    }
    gw_smap_release(&by_name);
    return st;
}

static gw_status load_begin(load *l, const gw_ckpt_manifest *m, gw_diags *dg) {
    *l = (load){.m = m, .dg = dg, .aside_file = -1};
    l->readers = gw_arena_new(&l->mem, gw_ckpt_reader *, m->nfiles + 1);
    l->told = gw_arena_new(&l->mem, bool, m->nfiles + 1);
    l->aside = gw_mem_alloc(GW_CKPT_BLOCK);
    return gw_place_open(&l->place, m->path, dg);
}

static void load_end(load *l) {
    for (int i = 0; i < l->m->nfiles; i++) gw_ckpt_reader_free(l->readers[i]);
    gw_place_close(&l->place);
    gw_mem_free(l->aside);
    gw_str_release(&l->name);
    gw_arena_release(&l->mem);
}

gw_status gw_checkpoint_load(const gw_ckpt_manifest *m, const gw_ckpt_tensor *tensors, int n,
                             gw_ckpt_loaded *loaded, gw_diags *dg) {
    load l;
    gw_status st = load_begin(&l, m, dg);
    if (st == GW_OK) st = load_all(&l, tensors, n);
    if (loaded) *loaded = l.sums;
    load_end(&l);
    return st;
}

struct gw_ckpt_loader {
    load l;
};

gw_status gw_ckpt_loader_open(gw_ckpt_loader **out, const gw_ckpt_manifest *m, gw_diags *dg) {
    gw_ckpt_loader *o = gw_mem_zalloc(sizeof *o);
    gw_status st = load_begin(&o->l, m, dg);
    *out = o;
    if (st == GW_OK) return GW_OK;
    gw_ckpt_loader_close(o);
    *out = NULL;
    return st;
}

gw_status gw_ckpt_loader_load(gw_ckpt_loader *o, const gw_ckpt_tensor *tensors, int n,
                              gw_diags *dg) {
    o->l.dg = dg;
    return load_all(&o->l, tensors, n);
}

void gw_ckpt_loader_close(gw_ckpt_loader *o) {
    if (!o) return;
    load_end(&o->l);
    gw_mem_free(o);
}

// ------------------------------------------------------------------ verifying

/* Every block of an entry; faults are counted and said, and the rest is still looked at. */
static void verify_entry(load *l, gw_ckpt_reader *r, int64_t entry, int64_t *faults) {
    for (int64_t k = 0; k < gw_ckpt_reader_blocks(r, entry); k++)
        *faults += block_at(l, r, entry, k, 0, l->aside) != GW_OK;
}

/* Of its own files everything, of others what is referred to (verify_chunk). */
static void verify_file(load *l, int file, int64_t *faults) {
    gw_ckpt_reader *r = NULL;
    if (reader_of(l, file, &r) != GW_OK) {
        ++*faults;
        return;
    }
    if (l->m->files[file].folder) return;
    for (int64_t e = 0; e < gw_ckpt_reader_count(r); e++) verify_entry(l, r, e, faults);
}

/* Some files after one another: in a place that is far, told before they are read. */
static void verify_files(load *l, int from, int to, int64_t *faults) {
    gw_diags *dg = l->dg;
    int64_t later = 0; /* what cannot be opened is said when it is read */
    if (gw_place_is_far(&l->place)) {
        l->dg = NULL;
        begin_walk(l, TELLS_BLOCKS);
        for (int i = from; i < to; i++) tell_file(l, i);
        for (int i = from; i < to; i++) verify_file(l, i, &later);
        l->dg = dg;
    }
    begin_walk(l, READS);
    for (int i = from; i < to; i++) verify_file(l, i, faults);
}

static void verify_chunk(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                         int64_t *faults) {
    gw_ckpt_reader *r;
    int64_t entry, bytes;
    if (find_entry(l, t, c, &r, &entry, &bytes) != GW_OK)
        ++*faults;
    else if (l->m->files[c->file].folder)
        verify_entry(l, r, entry, faults);
}

/* The chunks of all tensors; `tells`: what they refer to is told, and faults wait. */
static void verify_chunks(load *l, bool tells, int64_t *faults) {
    gw_diags *dg = l->dg;
    begin_walk(l, tells ? TELLS_BLOCKS : READS);
    if (tells) l->dg = NULL;
    for (int i = 0; i < l->m->ntensors && *faults == 0; i++)
        for (int k = 0; k < l->m->tensors[i].chunks->n && *faults == 0; k++)
            verify_chunk(l, &l->m->tensors[i], &l->m->tensors[i].chunks->items[k], faults);
    l->dg = dg;
}

gw_status gw_checkpoint_verify(const gw_ckpt_manifest *m, int64_t *faults, gw_diags *dg) {
    enum { TOGETHER = 32 };
    load l;
    int64_t later = 0;
    *faults = 0;
    gw_status st = load_begin(&l, m, dg);
    if (st == GW_OK) {
        for (int i = 0; i < m->nfiles; i += TOGETHER)
            verify_files(&l, i, GW_MIN(i + TOGETHER, m->nfiles), faults);
        if (*faults == 0 && gw_place_is_far(&l.place)) verify_chunks(&l, true, &later);
        if (*faults == 0) verify_chunks(&l, false, faults);
    }
    load_end(&l);
    return *faults ? GW_ERR_FORMAT : st;
}
