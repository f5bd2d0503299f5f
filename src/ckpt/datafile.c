// SPDX-License-Identifier: Apache-2.0
// One rank's file of a checkpoint.
//
// The file is written from its beginning to its end, block by block, so that a plain disk sees one
// sequential stream. Each block is hashed when it is handed over, once; the table of hashes is the
// last of the entries to be complete. Nothing has the file's name before every byte is synced.
//
// A reader trusts nothing but the index that the manifest names: the file's size, then the bytes of
// header and table together against that hash. From there on each block has its hash. What the
// header says is validated by the safetensors reader as any such file is.
#include "ckpt/datafile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"          /* gw_fd_pread_all, gw_path_join */
#include "base/map.h"         /* GW_VEC */
#include "base/panic.h"       /* gw_panic */
#include "file/safetensors.h" /* gw_st_writer */

static const char table_name[] = "gradwright.xxh128";

typedef struct row {
    uint8_t hash[16]; /* hi, lo, most significant byte first, as in hex */
} row;

static row row_of(gw_hash128 h) {
    row r;
    for (int i = 0; i < 8; i++) {
        r.hash[i] = (uint8_t)(h.hi >> (56 - 8 * i));
        r.hash[8 + i] = (uint8_t)(h.lo >> (56 - 8 * i));
    }
    return r;
}

static int64_t blocks_of(int64_t bytes) { return (bytes + GW_CKPT_BLOCK - 1) / GW_CKPT_BLOCK; }

const char *gw_ckpt_file_name(int64_t rank, gw_arena *a) {
    return gw_arena_printf(a, "rank-%05" PRId64 ".safetensors", rank);
}

void gw_ckpt_entry_name(const char *tensor, int ndim, const int64_t *dims, const gw_piece *p,
                        gw_str *out) {
    gw_box whole = gw_box_whole(ndim, dims);
    bool stretch = p->count != gw_box_elems(&p->box);
    gw_str_add(out, tensor);
    if (!stretch && gw_box_equal(&p->box, &whole)) return;
    gw_str_add(out, "[");
    for (int i = 0; i < ndim; i++)
        gw_str_printf(out, "%s%" PRId64 ":%" PRId64, i ? "," : "", p->box.start[i],
                      p->box.start[i] + p->box.size[i]);
    gw_str_add(out, "]");
    if (stretch) gw_str_printf(out, "#%" PRId64 "+%" PRId64, p->first, p->count);
}

/* Of header and table. `header`: length of the header and the header. */
static gw_hash128 index_of(const void *header, int64_t n, const void *table, int64_t bytes) {
    gw_hasher *h = gw_hasher_new();
    gw_hasher_add(h, header, (size_t)n);
    gw_hasher_add(h, table, (size_t)bytes);
    gw_hash128 out = gw_hasher_get(h);
    gw_hasher_free(h);
    return out;
}

/* The first bytes of a file, up to its data. */
static gw_status read_header(int fd, int64_t file_bytes, const char *path, char **out, int64_t *n,
                             gw_diags *dg) {
    uint8_t head[8];
    uint64_t length = 0;
    *out = NULL;
    GW_TRY(gw_fd_pread_all(fd, head, 8, 0, path, dg));
    for (int i = 8; i-- > 0;) length = length << 8 | head[i];
    if (length > 100000000 || (int64_t)length > file_bytes - 8)
        return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-damaged",
                       "%s is damaged: its header is longer than the file", path);
    *n = 8 + (int64_t)length;
    *out = gw_mem_alloc((size_t)*n);
    return gw_fd_pread_all(fd, *out, *n, 0, path, dg);
}

// ------------------------------------------------------------------ writing

typedef struct entry {
    const char *name;
    gw_dtype dtype;
    int64_t bytes;
} entry;

struct gw_ckpt_writer {
    gw_arena mem;
    gw_st_writer *file;
    const char *path;
    GW_VEC(entry) entries;
    gw_ckpt_block *blocks;
    row *rows;
    int64_t nblocks, next;
    int *order; /* entries in file order */
};

static gw_st_dtype file_dtype(gw_dtype t) {
    switch (t) {
    case GW_F32: return GW_ST_F32;
    case GW_BF16: return GW_ST_BF16;
    case GW_F16: return GW_ST_F16;
    case GW_F64: return GW_ST_F64;
    case GW_I32: return GW_ST_I32;
    case GW_I64: return GW_ST_I64;
    case GW_U8: return GW_ST_U8;
    case GW_F8E4M3: return GW_ST_F8_E4M3;
    case GW_F8E5M2: return GW_ST_F8_E5M2;
    case GW_DTYPE_COUNT: break;
    }
    gw_panic("dtype %d cannot be stored", (int)t);
}

static bool own_dtype(gw_st_dtype t, gw_dtype *out) {
    for (int i = 0; i < GW_DTYPE_COUNT; i++)
        if (file_dtype((gw_dtype)i) == t) {
            *out = (gw_dtype)i;
            return true;
        }
    return false;
}

gw_ckpt_writer *gw_ckpt_writer_new(const char *path, int64_t step) {
    char text[32];
    gw_ckpt_writer *w = gw_mem_zalloc(sizeof *w);
    w->file = gw_st_writer_new(path);
    w->path = gw_arena_strdup(&w->mem, path);
    snprintf(text, sizeof text, "%" PRId64, step);
    gw_st_writer_metadata(w->file, "format", "pt");
    gw_st_writer_metadata(w->file, "gradwright.step", text);
    return w;
}

void gw_ckpt_writer_free(gw_ckpt_writer *w) {
    if (!w) return;
    gw_st_writer_free(w->file);
    gw_vec_release(&w->entries);
    gw_arena_release(&w->mem);
    gw_mem_free(w);
}

gw_status gw_ckpt_writer_add(gw_ckpt_writer *w, const char *tensor, gw_dtype dtype, int ndim,
                             const int64_t *dims, const gw_piece *p, gw_diags *dg) {
    gw_str name = {0};
    bool stretch = p->count != gw_box_elems(&p->box);
    gw_ckpt_entry_name(tensor, ndim, dims, p, &name);
    entry e = {.name = gw_arena_strdup(&w->mem, gw_str_c(&name)),
               .dtype = dtype,
               .bytes = p->count * gw_dtype_bits(dtype) / 8};
    gw_str_release(&name);
    gw_vec_push(&w->entries, e);
    if (strcmp(e.name, table_name) == 0)
        return GW_FAIL(dg, GW_ERR_FORMAT, "safetensors-write", "a tensor is called %s", table_name);
    return gw_st_writer_declare(w->file, e.name, file_dtype(dtype), stretch ? 1 : ndim,
                                stretch ? &p->count : p->box.size, dg);
}

static int by_offset(const void *a, const void *b, void *user) {
    const gw_ckpt_writer *w = user;
    int64_t x = gw_st_writer_offset(w->file, w->entries.items[*(const int *)a].name);
    int64_t y = gw_st_writer_offset(w->file, w->entries.items[*(const int *)b].name);
    return x < y ? -1 : x > y;
}

static void list_blocks(gw_ckpt_writer *w) {
    int64_t n = w->entries.count, at = 0;
    w->blocks = gw_arena_new(&w->mem, gw_ckpt_block, w->nblocks + 1);
    w->order = gw_arena_new(&w->mem, int, n + 1);
    for (int i = 0; i < n; i++) w->order[i] = i;
    qsort_r(w->order, (size_t)n, sizeof *w->order, by_offset, w);
    for (int64_t i = 0; i < n; i++) {
        const entry *e = &w->entries.items[w->order[i]];
        for (int64_t o = 0; o < e->bytes; o += GW_CKPT_BLOCK)
            w->blocks[at++] =
                (gw_ckpt_block){.entry = w->order[i],
                                .offset = o,
                                .bytes = GW_MIN((int64_t)GW_CKPT_BLOCK, e->bytes - o)};
    }
}

gw_status gw_ckpt_writer_begin(gw_ckpt_writer *w, const gw_ckpt_block **blocks, int64_t *n,
                               gw_diags *dg) {
    w->nblocks = 0;
    for (int64_t i = 0; i < w->entries.count; i++)
        w->nblocks += blocks_of(w->entries.items[i].bytes);
    w->rows = gw_arena_new(&w->mem, row, w->nblocks + 1);
    int64_t dims[2] = {w->nblocks, 16};
    GW_TRY(gw_st_writer_declare(w->file, table_name, GW_ST_U8, 2, dims, dg));
    GW_TRY(gw_st_writer_begin(w->file, dg));
    list_blocks(w);
    *blocks = w->blocks;
    *n = w->nblocks;
    return GW_OK;
}

gw_status gw_ckpt_writer_put(gw_ckpt_writer *w, const void *bytes, gw_diags *dg) {
    const gw_ckpt_block *b = &w->blocks[w->next];
    w->rows[w->next++] = row_of(gw_hash128_of(bytes, (size_t)b->bytes));
    return gw_st_writer_put(w->file, w->entries.items[b->entry].name, bytes, b->bytes, dg);
}

gw_status gw_ckpt_writer_finish(gw_ckpt_writer *w, gw_ckpt_file *out, gw_diags *dg) {
    char *header = NULL;
    int64_t n = 0, table = w->nblocks * (int64_t)sizeof *w->rows;
    out->bytes = gw_st_writer_file_bytes(w->file);
    GW_TRY(gw_st_writer_put(w->file, table_name, w->rows, table, dg));
    GW_TRY(gw_st_writer_finish(w->file, dg));
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", w->path,
                       strerror(errno));
    gw_status st = read_header(fd, out->bytes, w->path, &header, &n, dg);
    if (st == GW_OK) out->index = index_of(header, n, w->rows, table);
    gw_mem_free(header);
    close(fd);
    return st;
}

// ------------------------------------------------------------------ reading

typedef struct place {
    const gw_st_tensor *t;
    int64_t first; /* row of its first block */
} place;

struct gw_ckpt_reader {
    gw_arena mem;
    gw_st_set *set;
    const char *path;
    int fd;
    place *places; /* [count], in file order, without the table */
    int64_t count;
    const row *rows;
};

const char *gw_ckpt_reader_path(const gw_ckpt_reader *r) { return r->path; }
int64_t gw_ckpt_reader_count(const gw_ckpt_reader *r) { return r->count; }
const char *gw_ckpt_reader_name(const gw_ckpt_reader *r, int64_t e) { return r->places[e].t->name; }
int64_t gw_ckpt_reader_blocks(const gw_ckpt_reader *r, int64_t e) {
    return blocks_of(r->places[e].t->bytes);
}

void gw_ckpt_reader_free(gw_ckpt_reader *r) {
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    gw_st_free(r->set);
    gw_arena_release(&r->mem);
    gw_mem_free(r);
}

static gw_status damaged(const gw_ckpt_reader *r, const char *why, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-damaged", (gw_where){0},
                             "%s is damaged: %s", r->path, why);
    gw_diag_hint(dg, g, "an earlier checkpoint of the run may be whole; look at the disk");
    return GW_ERR_FORMAT;
}

static int file_order(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->t->offset < y->t->offset ? -1 : x->t->offset > y->t->offset;
}

static gw_status list_places(gw_ckpt_reader *r, const gw_st_tensor *table, gw_diags *dg) {
    int64_t rows = 0;
    r->places = gw_arena_new(&r->mem, place, gw_st_count(r->set) + 1);
    for (int64_t i = 0; i < gw_st_count(r->set); i++)
        if (gw_st_get(r->set, i) != table) r->places[r->count++].t = gw_st_get(r->set, i);
    qsort(r->places, (size_t)r->count, sizeof *r->places, file_order);
    for (int64_t i = 0; i < r->count; i++) {
        r->places[i].first = rows;
        rows += blocks_of(r->places[i].t->bytes);
    }
    if (rows * (int64_t)sizeof *r->rows == table->bytes) return GW_OK;
    return damaged(r, "its table of hashes is not of its data", dg);
}

static gw_status prove(gw_ckpt_reader *r, const gw_ckpt_file *f, int64_t step, gw_diags *dg) {
    struct stat st;
    char *header = NULL;
    int64_t n = 0;
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode)) return damaged(r, "it is no file", dg);
    if (st.st_size != f->bytes) {
        char why[100];
        snprintf(why, sizeof why, "it has %" PRId64 " bytes, it was saved with %" PRId64,
                 (int64_t)st.st_size, f->bytes);
        return damaged(r, why, dg);
    }
    GW_TRY(gw_st_open(r->path, &r->set, dg));
    const gw_st_tensor *t = gw_st_find(r->set, table_name);
    if (!t) return damaged(r, "it has no table of hashes", dg);
    const char *text = gw_st_metadata(r->set, "gradwright.step");
    int64_t said = -1;
    if (!text || !gw_parse_i64(text, &said) || said != step)
        return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-damaged",
                       "'%s' holds data of step %" PRId64 ", its manifest is of step %" PRId64,
                       r->path, said, step);
    row *rows = gw_arena_alloc(&r->mem, t->bytes + 1);
    GW_TRY(gw_fd_pread_all(r->fd, rows, t->bytes, t->offset, r->path, dg));
    r->rows = rows;
    gw_status s = read_header(r->fd, f->bytes, r->path, &header, &n, dg);
    gw_hash128 is = s == GW_OK ? index_of(header, n, rows, t->bytes) : (gw_hash128){0};
    gw_mem_free(header);
    GW_TRY(s);
    if (is.lo != f->index.lo || is.hi != f->index.hi)
        return damaged(r, "its header or its table of hashes was changed", dg);
    return list_places(r, t, dg);
}

gw_status gw_ckpt_reader_open(gw_ckpt_reader **out, const char *dir, const gw_ckpt_file *f,
                              int64_t step, gw_diags *dg) {
    gw_ckpt_reader *r = gw_mem_zalloc(sizeof *r);
    r->path = gw_path_join(&r->mem, dir, f->name);
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe has no writer to wait for */
    gw_status st = r->fd >= 0 ? prove(r, f, step, dg)
                              : GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", r->path,
                                        strerror(errno));
    if (st != GW_OK) gw_ckpt_reader_free(r);
    *out = st == GW_OK ? r : NULL;
    return st;
}

int64_t gw_ckpt_reader_find(const gw_ckpt_reader *r, const char *name, gw_dtype *dtype,
                            int64_t *bytes) {
    const gw_st_tensor *t = gw_st_find(r->set, name);
    if (!t || !own_dtype(t->dtype, dtype)) return -1;
    int64_t lo = 0, hi = r->count;
    while (lo < hi) { /* empty ones share an offset; they are never looked for */
        int64_t mid = (lo + hi) / 2;
        if (r->places[mid].t->offset < t->offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    while (lo < r->count && r->places[lo].t != t) lo++;
    if (lo == r->count) return -1;
    *bytes = t->bytes;
    return lo;
}

gw_status gw_ckpt_reader_block(gw_ckpt_reader *r, int64_t e, int64_t k, void *dst, gw_diags *dg) {
    const place *p = &r->places[e];
    int64_t at = k * GW_CKPT_BLOCK, n = GW_MIN((int64_t)GW_CKPT_BLOCK, p->t->bytes - at);
    gw_status st = gw_fd_pread_all(r->fd, dst, n, p->t->offset + at, r->path, dg);
    if (st != GW_OK) {
        gw_diag_frame(dg, "reading '%s'", p->t->name);
        return st;
    }
    row is = row_of(gw_hash128_of(dst, (size_t)n));
    if (memcmp(&is, &r->rows[p->first + k], sizeof is) == 0) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-damaged", (gw_where){0},
                             "%s is damaged: tensor '%s', bytes %" PRId64 " to %" PRId64
                             ", are not those that were saved",
                             r->path, p->t->name, p->t->offset + at, p->t->offset + at + n);
    gw_diag_hint(dg, g, "an earlier checkpoint of the run may be whole; look at the disk");
    return GW_ERR_FORMAT;
}
