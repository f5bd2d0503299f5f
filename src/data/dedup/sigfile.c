// SPDX-License-Identifier: Apache-2.0
// datatrove's signature and removal files.
//
// Rows are compared there as tuples of unsigned numbers, values first and the document last, which
// is also what numpy's sort of the structured array gives; readers stop with "Hash order error"
// where a row is smaller than the one before, and with a struct error where a file was cut within a
// row. Both are checked here before a row is used, and files arrive whole, through rename.
#include "data/dedup/sigfile.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/io.h"    /* gw_file_write_atomic */

struct gw_sigfile {
    gw_arena arena;
    gw_minhash_recipe recipe;
    const char *folder;
    uint32_t rank;
    uint64_t *rows; /* per document: bands * rows values and its number */
    int64_t count, cap;
};

static int64_t row_bytes(const gw_minhash_recipe *r) { return (int64_t)r->rows * r->bits / 8 + 4; }

gw_status gw_sigfile_new(const char *folder, const gw_minhash_recipe *r, uint32_t rank,
                         gw_sigfile **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(gw_minhash_recipe_check(r, dg));
    gw_sigfile *s = gw_mem_zalloc(sizeof *s);
    s->recipe = *r;
    s->folder = gw_arena_strdup(&s->arena, folder);
    s->rank = rank;
    *out = s;
    return GW_OK;
}

void gw_sigfile_add(gw_sigfile *s, uint32_t document, const uint64_t *signature) {
    int64_t n = (int64_t)s->recipe.bands * s->recipe.rows;
    if (s->count == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->rows = gw_mem_realloc(s->rows, (size_t)(s->cap * (n + 1)) * 8);
    }
    uint64_t *row = s->rows + s->count++ * (n + 1);
    memcpy(row, signature, (size_t)n * 8);
    row[n] = document;
}

typedef struct order {
    const uint64_t *values;
    uint64_t document;
    int rows;
} order;

static int by_row(const void *a, const void *b) {
    const order *x = a, *y = b;
    for (int i = 0; i < x->rows; i++)
        if (x->values[i] != y->values[i]) return x->values[i] < y->values[i] ? -1 : 1;
    return x->document < y->document ? -1 : x->document > y->document;
}

static gw_status write_bucket(const gw_sigfile *s, int band, order *sorted, uint8_t *bytes,
                              gw_diags *dg) {
    const gw_minhash_recipe *r = &s->recipe;
    int64_t n = (int64_t)r->bands * r->rows, size = r->bits / 8;
    gw_arena a = {0};
    for (int64_t i = 0; i < s->count; i++) {
        const uint64_t *row = s->rows + i * (n + 1);
        sorted[i] = (order){row + (int64_t)band * r->rows, row[n], r->rows};
    }
    if (s->count) qsort(sorted, (size_t)s->count, sizeof *sorted, by_row);
    uint8_t *p = bytes;
    for (int64_t i = 0; i < s->count; i++) {
        for (int v = 0; v < r->rows; v++, p += size) memcpy(p, &sorted[i].values[v], (size_t)size);
        memcpy(p, &sorted[i].document, 4);
        p += 4;
    }
    const char *dir = gw_arena_printf(&a, "%s/bucket_%03d", s->folder, band);
    const char *path = gw_arena_printf(&a, "%s/%05u.minhash.sig", dir, s->rank);
    gw_status st = gw_dir_make(dir, dg);
    if (st == GW_OK) st = gw_file_write_atomic(path, bytes, p - bytes, dg);
    gw_arena_release(&a);
    return st;
}

void gw_sigfile_abandon(gw_sigfile *s) {
    if (!s) return;
    gw_mem_free(s->rows);
    gw_arena_release(&s->arena);
    gw_mem_free(s);
}

gw_status gw_sigfile_close(gw_sigfile *s, gw_diags *dg) {
    order *sorted = gw_mem_alloc((size_t)(s->count + 1) * sizeof *sorted);
    uint8_t *bytes = gw_mem_alloc((size_t)(s->count * row_bytes(&s->recipe) + 1));
    gw_status st = GW_OK;
    for (int b = 0; b < s->recipe.bands && st == GW_OK; b++)
        st = write_bucket(s, b, sorted, bytes, dg);
    gw_mem_free(sorted);
    gw_mem_free(bytes);
    gw_sigfile_abandon(s);
    return st;
}

// ------------------------------------------------------------------------------ reading

static void unpack(const gw_minhash_recipe *r, const uint8_t *p, uint64_t *values,
                   uint32_t *document) {
    int size = r->bits / 8;
    memset(values, 0, (size_t)r->rows * 8);
    for (int v = 0; v < r->rows; v++, p += size) memcpy(&values[v], p, (size_t)size);
    memcpy(document, p, 4);
}

static int compare_rows(const uint64_t *a, uint32_t x, const uint64_t *b, uint32_t y, int rows) {
    for (int i = 0; i < rows; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return x < y ? -1 : x > y;
}

static gw_status read_rows(const char *path, const gw_minhash_recipe *r, const gw_mapping *m,
                           gw_sigfile_row *rows, uint64_t *values, gw_diags *dg) {
    int64_t size = row_bytes(r);
    uint64_t *last = values + r->rows;
    uint32_t document, before = 0;
    for (int64_t i = 0; i < m->bytes / size; i++) {
        unpack(r, m->data + i * size, values, &document);
        if (i && compare_rows(last, before, values, document, r->rows) > 0)
            return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-signatures",
                           "'%s' is not sorted at byte %lld: row %lld is smaller than the one "
                           "before",
                           path, (long long)(i * size), (long long)i);
        rows[i].key = gw_hash128_of(values, (size_t)r->rows * 8);
        if (!rows[i].key.lo && !rows[i].key.hi) rows[i].key.lo = 1;
        rows[i].document = document;
        memcpy(last, values, (size_t)r->rows * 8);
        before = document;
    }
    return GW_OK;
}

gw_status gw_sigfile_read(const char *path, const gw_minhash_recipe *r, gw_sigfile_row **rows,
                          int64_t *count, gw_diags *dg) {
    gw_mapping m;
    *rows = NULL;
    *count = 0;
    GW_TRY(gw_minhash_recipe_check(r, dg));
    GW_TRY(gw_map_open(&m, path, dg));
    int64_t size = row_bytes(r);
    gw_status s = GW_OK;
    if (m.bytes % size) {
        s = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-signatures",
                    "'%s' ends within a row: it has %lld bytes, rows of this recipe have %lld",
                    path, (long long)m.bytes, (long long)size);
    } else {
        uint64_t *values = gw_mem_alloc((size_t)r->rows * 16);
        gw_sigfile_row *got = gw_mem_alloc((size_t)(m.bytes / size + 1) * sizeof *got);
        s = read_rows(path, r, &m, got, values, dg);
        gw_mem_free(values);
        if (s == GW_OK) {
            *rows = got;
            *count = m.bytes / size;
        } else {
            gw_mem_free(got);
        }
    }
    gw_map_release(&m);
    return s;
}

gw_status gw_sigfile_write_removed(const char *folder, uint32_t rank,
                                   const gw_dedup_removed *removed, int64_t count, gw_diags *dg) {
    gw_arena a = {0};
    uint32_t *numbers = gw_mem_alloc((size_t)(count + 1) * 4);
    for (int64_t i = 0; i < count; i++) numbers[i] = removed[i].index;
    gw_status s = gw_dir_make(folder, dg);
    if (s == GW_OK)
        s = gw_file_write_atomic(gw_arena_printf(&a, "%s/%06u.remove", folder, rank), numbers,
                                 count * 4, dg);
    gw_mem_free(numbers);
    gw_arena_release(&a);
    return s;
}
