// SPDX-License-Identifier: Apache-2.0
// GGUF: parsing of the container.
//
// The file is a stream without an index: magic, version, counts, then key-values and tensor
// descriptions of variable length, padding, data. So it is parsed once, front to back, by a cursor
// that checks every length against what is left of the file before using it; numbers are copied out
// (nothing is aligned), strings are copied into the arena with a NUL after them, arrays of numbers
// stay in the mapping.
//
// A count in the file is hostile until proven: each key-value and each tensor takes a known least
// number of bytes, so a count that cannot fit in the rest of the file is refused before it sizes
// anything. Tensor sizes are computed with overflow checks and lie inside the file, aligned,
// without overlap. A gap between tensors is legal (padding to the alignment).
//
// Dimensions stand innermost first in the file and are reversed here, so that a weight [out, in] is
// [out, in] whatever file it came from. Turning blocks into floats is in gguf_dequant.c.
#include "file/gguf.h" /* this module's contract */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"  /* gw_mapping */
#include "base/map.h" /* gw_smap, GW_VEC */
#include "base/num.h" /* gw_f32_from_bits */

enum { MAX_KEY = 65535, MAX_ALIGN = 1 << 20 };

struct gw_gguf {
    gw_arena arena;
    gw_mapping map;
    const char *path;
    gw_gguf_value *values;
    int64_t nvalues;
    gw_gguf_tensor *tensors;
    int64_t ntensors;
    gw_smap value_by_key, tensor_by_name;
};

typedef struct cursor {
    gw_gguf *g;
    const uint8_t *p, *end;
    gw_diags *dg;
} cursor;

static gw_status bad(const cursor *c, const char *what) {
    return gw_fail_at(c->dg, GW_ERR_FORMAT, "gguf-format", (gw_where){.file = c->g->path},
                      "%s (at byte %lld)", what, (long long)(c->p - c->g->map.data));
}

static gw_status bad_named(const cursor *c, const char *kind, const char *name, const char *what) {
    return gw_fail_at(c->dg, GW_ERR_FORMAT, "gguf-format", (gw_where){.file = c->g->path},
                      "%s '%s': %s", kind, name, what);
}

static gw_status take(cursor *c, void *out, size_t n) {
    if ((size_t)(c->end - c->p) < n) return bad(c, "the file ends in the middle of its header");
    memcpy(out, c->p, n);
    c->p += n;
    return GW_OK;
}

static gw_status take_str(cursor *c, gw_gguf_str *out) {
    uint64_t n = 0;
    GW_TRY(take(c, &n, sizeof n));
    if (n > (uint64_t)(c->end - c->p))
        return bad(c, "a string is longer than the rest of the file");
    char *copy = gw_arena_alloc(&c->g->arena, (int64_t)n + 1);
    memcpy(copy, c->p, (size_t)n);
    out->data = copy;
    out->len = (int64_t)n;
    c->p += n;
    return GW_OK;
}

/* --- key-values --------------------------------------------------------------------------------
 */

/* Bytes of a number of a kind; 0 for strings, arrays and unknown kinds. */
static int64_t kind_bytes(uint32_t kind) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < GW_COUNT(bytes) ? bytes[kind] : 0;
}

static gw_status take_strings(cursor *c, gw_gguf_value *v) {
    if (v->count > (c->end - c->p) / 8)
        return bad(c, "an array is longer than the rest of the file");
    gw_gguf_str *strs = gw_arena_new(&c->g->arena, gw_gguf_str, v->count);
    for (int64_t i = 0; i < v->count; i++) GW_TRY(take_str(c, &strs[i]));
    v->strs = strs;
    return GW_OK;
}

static gw_status take_numbers(cursor *c, gw_gguf_value *v, uint32_t kind) {
    int64_t each = kind_bytes(kind);
    if (each == 0) return bad_named(c, "key", v->key, "its value is of a kind that is not known");
    if (v->count > (c->end - c->p) / each)
        return bad_named(c, "key", v->key, "its value is longer than the rest of the file");
    v->raw = c->p;
    c->p += v->count * each;
    return GW_OK;
}

static gw_status take_value(cursor *c, gw_gguf_value *v) {
    gw_gguf_str key;
    uint32_t kind = 0, elem = 0;
    uint64_t count = 1;
    GW_TRY(take_str(c, &key));
    if (key.len == 0 || key.len > MAX_KEY || strlen(key.data) != (size_t)key.len)
        return bad(c, "a key is empty, too long or holds a NUL");
    v->key = key.data;
    GW_TRY(take(c, &kind, sizeof kind));
    elem = kind;
    if (kind == GW_GGUF_ARRAY) {
        GW_TRY(take(c, &elem, sizeof elem));
        GW_TRY(take(c, &count, sizeof count));
        if (elem == GW_GGUF_ARRAY)
            return bad_named(c, "key", v->key, "arrays of arrays are not supported");
        if (count > INT64_MAX) return bad_named(c, "key", v->key, "its array is impossibly long");
    }
    v->count = (int64_t)count;
    if (elem == GW_GGUF_STRING) {
        GW_TRY(take_strings(c, v));
    } else {
        GW_TRY(take_numbers(c, v, elem));
    }
    v->kind = (gw_gguf_kind)kind;
    v->elem = (gw_gguf_kind)elem;
    return GW_OK;
}

static gw_status take_values(cursor *c, uint64_t n) {
    gw_gguf *g = c->g;
    if (n > (uint64_t)(c->end - c->p) / 13)
        return bad(c, "more key-values than the file has room for");
    g->nvalues = (int64_t)n;
    g->values = gw_arena_new(&g->arena, gw_gguf_value, n);
    for (int64_t i = 0; i < g->nvalues; i++) {
        GW_TRY(take_value(c, &g->values[i]));
        if (!gw_smap_put_c(&g->value_by_key, g->values[i].key, (uint32_t)i))
            return bad_named(c, "key", g->values[i].key, "it stands twice");
    }
    return GW_OK;
}

/* --- tensors -----------------------------------------------------------------------------------
 */

/* Name, rank, dimensions, type, offset within the data area (kept in t->offset). */
static gw_status take_tensor(cursor *c, gw_gguf_tensor *t) {
    gw_gguf_str name;
    uint32_t ndim = 0, type = 0;
    uint64_t dims[4] = {0}, offset = 0;
    GW_TRY(take_str(c, &name));
    if (name.len == 0 || strlen(name.data) != (size_t)name.len)
        return bad(c, "a tensor's name is empty or holds a NUL");
    t->name = name.data;
    GW_TRY(take(c, &ndim, sizeof ndim));
    if (ndim < 1 || ndim > 4) return bad_named(c, "tensor", t->name, "its rank is not 1 to 4");
    GW_TRY(take(c, dims, ndim * sizeof *dims));
    GW_TRY(take(c, &type, sizeof type));
    GW_TRY(take(c, &offset, sizeof offset));
    t->ndim = (int)ndim;
    t->elems = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        if (dims[i] > INT64_MAX || __builtin_mul_overflow(t->elems, (int64_t)dims[i], &t->elems))
            return bad_named(c, "tensor", t->name, "its shape overflows 64 bits");
        t->dims[ndim - 1 - i] = (int64_t)dims[i];
    }
    t->type = (gw_ggml_type)type;
    if (type > INT_MAX || gw_ggml_block_elems(t->type) == 0)
        return gw_fail_at(c->dg, GW_ERR_UNSUPPORTED, "gguf-type", (gw_where){.file = c->g->path},
                          "tensor '%s': storage type %u is not supported", t->name, type);
    if (offset > INT64_MAX) return bad_named(c, "tensor", t->name, "its offset overflows");
    t->offset = (int64_t)offset;
    return GW_OK;
}

/* Turns the relative offset into an absolute one once the start of the data is known. */
static gw_status place_tensor(cursor *c, gw_gguf_tensor *t, int64_t data_start, int64_t align) {
    int64_t block = gw_ggml_block_elems(t->type), area = c->g->map.bytes - data_start;
    if (t->dims[t->ndim - 1] % block != 0)
        return bad_named(c, "tensor", t->name, "its rows are not whole blocks of its type");
    if (__builtin_mul_overflow(t->elems / block, gw_ggml_block_bytes(t->type), &t->bytes))
        return bad_named(c, "tensor", t->name, "its size overflows 64 bits");
    if (t->offset % align != 0)
        return bad_named(c, "tensor", t->name, "its offset is not aligned as the file says");
    if (t->offset > area || t->bytes > area - t->offset)
        return bad_named(c, "tensor", t->name,
                         "its data ends past the end of the file (is it cut short?)");
    t->offset += data_start;
    t->data = c->g->map.data + t->offset;
    return GW_OK;
}

static int by_offset(const void *pa, const void *pb) {
    const gw_gguf_tensor *a = *(const gw_gguf_tensor *const *)pa;
    const gw_gguf_tensor *b = *(const gw_gguf_tensor *const *)pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static gw_status check_overlap(cursor *c) {
    gw_gguf *g = c->g;
    const gw_gguf_tensor **order = gw_arena_new(&g->arena, const gw_gguf_tensor *, g->ntensors + 1);
    for (int64_t i = 0; i < g->ntensors; i++) order[i] = &g->tensors[i];
    if (g->ntensors > 0) qsort(order, (size_t)g->ntensors, sizeof *order, by_offset);
    for (int64_t i = 1; i < g->ntensors; i++)
        if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
            return bad_named(c, "tensor", order[i]->name, "its data overlaps another tensor's");
    return GW_OK;
}

static gw_status take_tensors(cursor *c, uint64_t n) {
    gw_gguf *g = c->g;
    if (n > (uint64_t)(c->end - c->p) / 32)
        return bad(c, "more tensors than the file has room for");
    g->tensors = gw_arena_new(&g->arena, gw_gguf_tensor, n);
    g->ntensors = (int64_t)n;
    for (int64_t i = 0; i < g->ntensors; i++) {
        GW_TRY(take_tensor(c, &g->tensors[i]));
        if (!gw_smap_put_c(&g->tensor_by_name, g->tensors[i].name, (uint32_t)i))
            return bad_named(c, "tensor", g->tensors[i].name, "it stands twice");
    }
    int64_t align = 32;
    if (gw_gguf_find_value(g, "general.alignment") &&
        (!gw_gguf_get_i64(g, "general.alignment", &align) || align < 1 || align > MAX_ALIGN ||
         (align & (align - 1)) != 0))
        return bad(c, "general.alignment is not a power of two up to 1 MiB");
    int64_t data_start = (c->p - g->map.data + align - 1) / align * align;
    if (g->ntensors > 0 && data_start > g->map.bytes)
        return bad(c, "the file ends before its tensor data (is it cut short?)");
    for (int64_t i = 0; i < g->ntensors; i++)
        GW_TRY(place_tensor(c, &g->tensors[i], data_start, align));
    return check_overlap(c);
}

static gw_status parse(cursor *c) {
    char magic[4] = {0};
    uint32_t version = 0;
    uint64_t ntensors = 0, nvalues = 0;
    GW_TRY(take(c, magic, sizeof magic));
    if (memcmp(magic, "GGUF", 4) != 0) return bad(c, "this is not a GGUF file");
    GW_TRY(take(c, &version, sizeof version));
    if (version != 2 && version != 3) {
        bool swapped = version == 0x02000000u || version == 0x03000000u;
        return gw_fail_at(c->dg, GW_ERR_UNSUPPORTED, "gguf-version", (gw_where){.file = c->g->path},
                          swapped ? "the file is big-endian, which is not supported"
                                  : "only versions 2 and 3 of GGUF are supported");
    }
    GW_TRY(take(c, &ntensors, sizeof ntensors));
    GW_TRY(take(c, &nvalues, sizeof nvalues));
    GW_TRY(take_values(c, nvalues));
    return take_tensors(c, ntensors);
}

gw_status gw_gguf_open(const char *path, gw_gguf **out, gw_diags *dg) {
    *out = NULL;
    gw_gguf *g = gw_mem_zalloc(sizeof *g);
    gw_arena_init(&g->arena);
    g->path = gw_arena_strdup(&g->arena, path);
    gw_status s = gw_map_open(&g->map, path, dg);
    if (s == GW_OK) {
        cursor c = {g, g->map.data, g->map.data + g->map.bytes, dg};
        s = parse(&c);
        if (s == GW_OK) {
            *out = g;
            return GW_OK;
        }
    }
    gw_gguf_free(g);
    return s;
}

void gw_gguf_free(gw_gguf *g) {
    if (!g) return;
    gw_smap_release(&g->value_by_key);
    gw_smap_release(&g->tensor_by_name);
    gw_map_release(&g->map);
    gw_arena_release(&g->arena);
    gw_mem_free(g);
}

/* --- looking -----------------------------------------------------------------------------------
 */

const char *gw_gguf_path(const gw_gguf *g) { return g->path; }
int64_t gw_gguf_nvalues(const gw_gguf *g) { return g->nvalues; }
const gw_gguf_value *gw_gguf_value_at(const gw_gguf *g, int64_t i) { return &g->values[i]; }
int64_t gw_gguf_ntensors(const gw_gguf *g) { return g->ntensors; }
const gw_gguf_tensor *gw_gguf_tensor_at(const gw_gguf *g, int64_t i) { return &g->tensors[i]; }

const gw_gguf_value *gw_gguf_find_value(const gw_gguf *g, const char *key) {
    uint32_t i;
    return gw_smap_find_c(&g->value_by_key, key, &i) ? &g->values[i] : NULL;
}

const gw_gguf_tensor *gw_gguf_find_tensor(const gw_gguf *g, const char *name) {
    uint32_t i;
    return gw_smap_find_c(&g->tensor_by_name, name, &i) ? &g->tensors[i] : NULL;
}

/* One number, widened: *is_int says which of the two results holds. False when it is neither, or an
 * integer past the range of int64_t. */
static bool element(const gw_gguf_value *v, int64_t i, bool *is_int, int64_t *n, double *x) {
    int64_t each = kind_bytes(v->elem);
    if (i < 0 || i >= v->count || each == 0) return false;
    uint64_t u = 0;
    memcpy(&u, (const uint8_t *)v->raw + i * each, (size_t)each);
    *is_int = true;
    switch (v->elem) {
    case GW_GGUF_U8:
    case GW_GGUF_U16:
    case GW_GGUF_U32: *n = (int64_t)u; return true;
    case GW_GGUF_BOOL: *n = u != 0; return true;
    case GW_GGUF_I8: *n = (int8_t)u; return true;
    case GW_GGUF_I16: *n = (int16_t)u; return true;
    case GW_GGUF_I32: *n = (int32_t)u; return true;
    case GW_GGUF_I64: *n = (int64_t)u; return true;
    case GW_GGUF_U64: *n = (int64_t)u; return u <= INT64_MAX;
    case GW_GGUF_F32:
        *is_int = false;
        *x = (double)gw_f32_from_bits((uint32_t)u);
        return true;
    case GW_GGUF_F64:
        *is_int = false;
        memcpy(x, &u, sizeof u);
        return true;
    case GW_GGUF_STRING:
    case GW_GGUF_ARRAY: return false;
    }
    return false;
}

bool gw_gguf_elem_i64(const gw_gguf_value *v, int64_t i, int64_t *out) {
    bool is_int;
    int64_t n = 0;
    double x = 0;
    if (!element(v, i, &is_int, &n, &x) || !is_int) return false;
    *out = n;
    return true;
}

bool gw_gguf_elem_f64(const gw_gguf_value *v, int64_t i, double *out) {
    bool is_int;
    int64_t n = 0;
    double x = 0;
    if (!element(v, i, &is_int, &n, &x)) return false;
    *out = is_int ? (double)n : x;
    return true;
}

static const gw_gguf_value *scalar(const gw_gguf *g, const char *key) {
    const gw_gguf_value *v = gw_gguf_find_value(g, key);
    return v && v->kind != GW_GGUF_ARRAY ? v : NULL;
}

bool gw_gguf_get_i64(const gw_gguf *g, const char *key, int64_t *out) {
    const gw_gguf_value *v = scalar(g, key);
    return v && gw_gguf_elem_i64(v, 0, out);
}

bool gw_gguf_get_f64(const gw_gguf *g, const char *key, double *out) {
    const gw_gguf_value *v = scalar(g, key);
    return v && gw_gguf_elem_f64(v, 0, out);
}

bool gw_gguf_get_bool(const gw_gguf *g, const char *key, bool *out) {
    const gw_gguf_value *v = scalar(g, key);
    int64_t n;
    if (!v || v->kind != GW_GGUF_BOOL || !gw_gguf_elem_i64(v, 0, &n)) return false;
    *out = n != 0;
    return true;
}

bool gw_gguf_get_str(const gw_gguf *g, const char *key, const char **out) {
    const gw_gguf_value *v = scalar(g, key);
    if (!v || v->kind != GW_GGUF_STRING || strlen(v->strs[0].data) != (size_t)v->strs[0].len)
        return false;
    *out = v->strs[0].data;
    return true;
}
