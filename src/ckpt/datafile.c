// SPDX-License-Identifier: Apache-2.0
// One rank's file of a checkpoint.
//
// The file is written from its beginning to its end, block by block, so that a plain disk sees one
// sequential stream and an object store one upload. The header is known before any byte of data
// is: it holds names, shapes and places. The widest dtype comes first, so each entry is aligned to
// its element. Each block is hashed when it is handed over, once, while it is warm; the table of
// hashes comes last. Nothing has the file's name before every byte is safe.
//
// A reader trusts nothing but the index that the manifest names: the file's size, then the bytes of
// header and table together against that hash. From there on each block has its hash. What the
// header says is validated by the safetensors reader as any such file is.
#include "ckpt/datafile.h"

#include <inttypes.h>
#include <jansson.h> /* json_dumps */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"         /* GW_VEC */
#include "base/panic.h"       /* gw_panic */
#include "file/safetensors.h" /* gw_st_open_header */

enum { MOST_HEADER = 100000000 };

static const char table_name[] = "gradwright.xxh128";

gw_ckpt_row gw_ckpt_row_of(const void *bytes, int64_t n) {
    gw_hash128 h = gw_hash128_of(bytes, (size_t)n);
    gw_ckpt_row r;
    for (int i = 0; i < 8; i++) {
        r.hash[i] = (uint8_t)(h.hi >> (56 - 8 * i));
        r.hash[8 + i] = (uint8_t)(h.lo >> (56 - 8 * i));
    }
    return r;
}

int64_t gw_ckpt_blocks(int64_t bytes) { return (bytes + GW_CKPT_BLOCK - 1) / GW_CKPT_BLOCK; }

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

// ------------------------------------------------------------------ writing

typedef struct entry {
    const char *name;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS];
    int64_t bytes, offset; /* of the data */
    int64_t first;         /* row of its first block */
} entry;

struct gw_ckpt_writer {
    gw_arena mem;
    const gw_place *place;
    gw_place_out file;
    const char *path;
    int64_t step;
    GW_VEC(entry) entries;
    gw_ckpt_block *blocks;
    gw_ckpt_row *rows;
    gw_str header; /* with its length before it */
    int64_t nblocks, next, data_bytes, file_bytes;
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

gw_ckpt_writer *gw_ckpt_writer_new(const gw_place *place, const char *path, int64_t step) {
    gw_ckpt_writer *w = gw_mem_zalloc(sizeof *w);
    w->place = place;
    w->path = gw_arena_strdup(&w->mem, path);
    w->step = step;
    return w;
}

void gw_ckpt_writer_free(gw_ckpt_writer *w) {
    if (!w) return;
    gw_place_drop(&w->file);
    gw_vec_release(&w->entries);
    gw_str_release(&w->header);
    gw_arena_release(&w->mem);
    gw_mem_free(w);
}

static gw_status refuse(const gw_ckpt_writer *w, const char *name, const char *why, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->path},
                      "tensor '%s': %s", name, why);
}

gw_status gw_ckpt_writer_add(gw_ckpt_writer *w, const char *tensor, gw_dtype dtype, int ndim,
                             const int64_t *dims, const gw_piece *p, gw_diags *dg) {
    gw_str name = {0};
    bool stretch = p->count != gw_box_elems(&p->box);
    gw_ckpt_entry_name(tensor, ndim, dims, p, &name);
    entry e = {.name = gw_arena_strdup(&w->mem, gw_str_c(&name)),
               .dtype = dtype,
               .ndim = stretch ? 1 : ndim,
               .bytes = p->count * gw_dtype_bits(dtype) / 8};
    memcpy(e.dims, stretch ? &p->count : p->box.size, sizeof *e.dims * (size_t)e.ndim);
    gw_str_release(&name);
    gw_vec_push(&w->entries, e);
    if (strcmp(e.name, table_name) == 0 || strcmp(e.name, "__metadata__") == 0)
        return refuse(w, e.name, "the name is reserved", dg);
    return GW_OK;
}

static int by_layout(const void *pa, const void *pb, void *user) {
    const gw_ckpt_writer *w = user;
    const entry *a = &w->entries.items[*(const int *)pa], *b = &w->entries.items[*(const int *)pb];
    gw_st_dtype x = file_dtype(a->dtype), y = file_dtype(b->dtype);
    return x != y ? (x > y ? -1 : 1) : strcmp(a->name, b->name);
}

/* Which entries come where, and their blocks. */
static void lay_out(gw_ckpt_writer *w) {
    int64_t n = w->entries.count, at = 0;
    w->order = gw_arena_new(&w->mem, int, n + 1);
    for (int i = 0; i < n; i++) w->order[i] = i;
    qsort_r(w->order, (size_t)n, sizeof *w->order, by_layout, w);
    for (int64_t i = 0; i < n; i++) {
        entry *e = &w->entries.items[w->order[i]];
        e->offset = w->data_bytes;
        e->first = w->nblocks;
        w->data_bytes += e->bytes;
        w->nblocks += gw_ckpt_blocks(e->bytes);
    }
    w->rows = gw_arena_new(&w->mem, gw_ckpt_row, w->nblocks + 1);
    w->blocks = gw_arena_new(&w->mem, gw_ckpt_block, w->nblocks + 1);
    for (int64_t i = 0; i < n; i++) {
        const entry *e = &w->entries.items[w->order[i]];
        for (int64_t o = 0; o < e->bytes; o += GW_CKPT_BLOCK)
            w->blocks[at++] =
                (gw_ckpt_block){.entry = w->order[i],
                                .offset = o,
                                .bytes = GW_MIN((int64_t)GW_CKPT_BLOCK, e->bytes - o)};
    }
}

static gw_status add_row(const gw_ckpt_writer *w, json_t *h, const entry *e, gw_diags *dg) {
    json_t *shape = json_array();
    for (int i = 0; i < e->ndim; i++) json_array_append_new(shape, json_integer(e->dims[i]));
    json_t *row =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", gw_st_dtype_name(file_dtype(e->dtype)), "shape",
                  shape, "data_offsets", (json_int_t)e->offset, (json_int_t)(e->offset + e->bytes));
    bool twice = json_object_get(h, e->name) != NULL;
    if (json_object_set_new(h, e->name, row) != 0)
        return refuse(w, e->name, "its name is not UTF-8", dg);
    return twice ? refuse(w, e->name, "declared twice", dg) : GW_OK;
}

static gw_status make_header(gw_ckpt_writer *w, gw_diags *dg) {
    char step[32];
    gw_status st = GW_OK;
    json_t *h = json_object();
    entry table = {.name = table_name,
                   .dtype = GW_U8,
                   .ndim = 2,
                   .dims = {w->nblocks, (int64_t)sizeof *w->rows},
                   .offset = w->data_bytes,
                   .bytes = w->nblocks * (int64_t)sizeof *w->rows};
    snprintf(step, sizeof step, "%" PRId64, w->step);
    json_object_set_new(h, "__metadata__",
                        json_pack("{s:s, s:s}", "format", "pt", "gradwright.step", step));
    for (int64_t i = 0; i < w->entries.count && st == GW_OK; i++)
        st = add_row(w, h, &w->entries.items[w->order[i]], dg);
    if (st == GW_OK) st = add_row(w, h, &table, dg);
    char *text = st == GW_OK ? json_dumps(h, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(h);
    GW_TRY(st);
    uint64_t n = strlen(text), padded = (n + 7) / 8 * 8;
    gw_str_add_n(&w->header, (const char *)&padded, sizeof padded);
    gw_str_add_n(&w->header, text, (size_t)n);
    free(text);
    while (w->header.len < 8 + padded) gw_str_add_char(&w->header, ' ');
    w->file_bytes = (int64_t)w->header.len + table.offset + table.bytes;
    if (padded <= MOST_HEADER) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->path},
                      "the header would exceed 100,000,000 bytes; use more ranks");
}

gw_status gw_ckpt_writer_begin(gw_ckpt_writer *w, const gw_ckpt_block **blocks, int64_t *n,
                               gw_diags *dg) {
    lay_out(w);
    GW_TRY(make_header(w, dg));
    GW_TRY(gw_place_create(w->place, w->path, w->file_bytes, &w->file, dg));
    GW_TRY(gw_place_append(&w->file, w->header.data, (int64_t)w->header.len, dg));
    *blocks = w->blocks;
    *n = w->nblocks;
    return GW_OK;
}

gw_status gw_ckpt_writer_put(gw_ckpt_writer *w, const void *bytes, gw_diags *dg) {
    const gw_ckpt_block *b = &w->blocks[w->next];
    w->rows[w->next++] = gw_ckpt_row_of(bytes, b->bytes);
    return gw_place_append(&w->file, bytes, b->bytes, dg);
}

gw_status gw_ckpt_writer_finish(gw_ckpt_writer *w, gw_ckpt_file *out, gw_diags *dg) {
    int64_t table = w->nblocks * (int64_t)sizeof *w->rows;
    GW_ASSERT(w->next == w->nblocks);
    GW_TRY(gw_place_append(&w->file, w->rows, table, dg));
    GW_TRY(gw_place_finish(&w->file, dg));
    out->bytes = w->file_bytes;
    out->step = w->step;
    out->index = index_of(w->header.data, (int64_t)w->header.len, w->rows, table);
    return GW_OK;
}

const gw_ckpt_row *gw_ckpt_writer_rows(const gw_ckpt_writer *w, int e) {
    return w->rows + w->entries.items[e].first;
}

// ------------------------------------------------------------------ reading

typedef struct stand {
    const gw_st_tensor *t;
    int64_t first; /* row of its first block */
} stand;

struct gw_ckpt_reader {
    gw_arena mem;
    gw_st_set *set;
    const char *path;
    gw_place_in in;
    stand *stands; /* [count], in file order, without the table */
    int64_t count;
    const gw_ckpt_row *rows;
};

const char *gw_ckpt_reader_path(const gw_ckpt_reader *r) { return r->path; }
int64_t gw_ckpt_reader_count(const gw_ckpt_reader *r) { return r->count; }
const char *gw_ckpt_reader_name(const gw_ckpt_reader *r, int64_t e) { return r->stands[e].t->name; }
int64_t gw_ckpt_reader_blocks(const gw_ckpt_reader *r, int64_t e) {
    return gw_ckpt_blocks(r->stands[e].t->bytes);
}

void gw_ckpt_reader_free(gw_ckpt_reader *r) {
    if (!r) return;
    gw_place_close_file(&r->in);
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
    const stand *x = a, *y = b;
    return x->t->offset < y->t->offset ? -1 : x->t->offset > y->t->offset;
}

static gw_status list_stands(gw_ckpt_reader *r, const gw_st_tensor *table, gw_diags *dg) {
    int64_t rows = 0;
    r->stands = gw_arena_new(&r->mem, stand, gw_st_count(r->set) + 1);
    for (int64_t i = 0; i < gw_st_count(r->set); i++)
        if (gw_st_get(r->set, i) != table) r->stands[r->count++].t = gw_st_get(r->set, i);
    qsort(r->stands, (size_t)r->count, sizeof *r->stands, file_order);
    for (int64_t i = 0; i < r->count; i++) {
        r->stands[i].first = rows;
        rows += gw_ckpt_blocks(r->stands[i].t->bytes);
    }
    if (rows * (int64_t)sizeof *r->rows == table->bytes) return GW_OK;
    return damaged(r, "its table of hashes is not of its data", dg);
}

/* The first bytes of a file, up to its data. */
static gw_status read_header(gw_ckpt_reader *r, char **out, int64_t *n, gw_diags *dg) {
    uint8_t head[8];
    uint64_t length = 0;
    GW_TRY(gw_place_read(&r->in, head, 8, 0, dg));
    for (int i = 8; i-- > 0;) length = length << 8 | head[i];
    if (length > MOST_HEADER || (int64_t)length > r->in.bytes - 8)
        return damaged(r, "its header is longer than the file", dg);
    *n = 8 + (int64_t)length;
    *out = gw_mem_alloc((size_t)*n);
    return gw_place_read(&r->in, *out, *n, 0, dg);
}

static gw_status check_step(const gw_ckpt_reader *r, const gw_ckpt_file *f, gw_diags *dg) {
    const char *text = gw_st_metadata(r->set, "gradwright.step");
    int64_t said = -1;
    if (text && gw_parse_i64(text, &said) && said == f->step) return GW_OK;
    return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-damaged",
                   "'%s' holds data of step %" PRId64 ", its manifest is of step %" PRId64, r->path,
                   said, f->step);
}

/* Header and table are those that the manifest means. */
static gw_status prove(gw_ckpt_reader *r, const gw_ckpt_file *f, const char *header, int64_t n,
                       gw_diags *dg) {
    GW_TRY(gw_st_open_header(r->path, header, n, r->in.bytes, &r->set, dg));
    const gw_st_tensor *t = gw_st_find(r->set, table_name);
    if (!t) return damaged(r, "it has no table of hashes", dg);
    GW_TRY(check_step(r, f, dg));
    gw_ckpt_row *rows = gw_arena_alloc(&r->mem, t->bytes + 1);
    GW_TRY(gw_place_read(&r->in, rows, t->bytes, t->offset, dg));
    r->rows = rows;
    gw_hash128 is = index_of(header, n, rows, t->bytes);
    if (is.lo != f->index.lo || is.hi != f->index.hi)
        return damaged(r, "its header or its table of hashes was changed", dg);
    return list_stands(r, t, dg);
}

static gw_status open_all(gw_ckpt_reader *r, const gw_place *place, const gw_ckpt_file *f,
                          gw_diags *dg) {
    char *header = NULL;
    int64_t n = 0;
    GW_TRY(gw_place_open_file(place, r->path, &r->in, dg));
    if (r->in.bytes != f->bytes) {
        char why[100];
        snprintf(why, sizeof why, "it has %" PRId64 " bytes, it was saved with %" PRId64,
                 r->in.bytes, f->bytes);
        return damaged(r, why, dg);
    }
    gw_status st = read_header(r, &header, &n, dg);
    if (st == GW_OK) st = prove(r, f, header, n, dg);
    gw_mem_free(header);
    return st;
}

gw_status gw_ckpt_reader_open(gw_ckpt_reader **out, const gw_place *place, const char *path,
                              const gw_ckpt_file *f, gw_diags *dg) {
    gw_ckpt_reader *r = gw_mem_zalloc(sizeof *r);
    r->path = gw_arena_strdup(&r->mem, path);
    gw_status st = open_all(r, place, f, dg);
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
        if (r->stands[mid].t->offset < t->offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    while (lo < r->count && r->stands[lo].t != t) lo++;
    if (lo == r->count) return -1;
    *bytes = t->bytes;
    return lo;
}

/* Its header, and its table, which stands last: a row for each block, and one more for each entry.
 * What does not fit into these is read when it is asked for. */
void gw_ckpt_reader_expect_open(const gw_place *place, const char *path, const gw_ckpt_file *f) {
    enum { HEAD = 128 << 10, ROOM = 32 << 10, SMALL = 512 << 10 };
    int64_t rows = f->bytes / GW_CKPT_BLOCK * (int64_t)sizeof(gw_ckpt_row) + ROOM;
    gw_place_expect_open(place, path, f->bytes, f->bytes <= SMALL ? f->bytes : HEAD, rows);
}

void gw_ckpt_reader_expect(const gw_ckpt_reader *r, int64_t e, int64_t k) {
    const stand *p = &r->stands[e];
    int64_t at = k * GW_CKPT_BLOCK, n = GW_MIN((int64_t)GW_CKPT_BLOCK, p->t->bytes - at);
    gw_place_expect(&r->in, p->t->offset + at, n);
}

gw_status gw_ckpt_reader_block(gw_ckpt_reader *r, int64_t e, int64_t k, void *dst, gw_diags *dg) {
    const stand *p = &r->stands[e];
    int64_t at = k * GW_CKPT_BLOCK, n = GW_MIN((int64_t)GW_CKPT_BLOCK, p->t->bytes - at);
    gw_status st = gw_place_read(&r->in, dst, n, p->t->offset + at, dg);
    if (st != GW_OK) {
        gw_diag_frame(dg, "reading '%s'", p->t->name);
        return st;
    }
    gw_ckpt_row is = gw_ckpt_row_of(dst, n);
    if (memcmp(&is, &r->rows[p->first + k], sizeof is) == 0) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-damaged", (gw_where){0},
                             "%s is damaged: tensor '%s', bytes %" PRId64 " to %" PRId64
                             ", are not those that were saved",
                             r->path, p->t->name, p->t->offset + at, p->t->offset + at + n);
    gw_diag_hint(dg, g, "an earlier checkpoint of the run may be whole; look at the disk");
    return GW_ERR_FORMAT;
}
