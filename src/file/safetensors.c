// SPDX-License-Identifier: Apache-2.0
// safetensors: the reader, and what reader and writer share.
//
// A file is eight bytes of header length N (little-endian), N bytes of JSON, and raw data. The JSON
// maps each tensor's name to {dtype, shape, data_offsets: [begin, end)}, offsets counted from the
// end of the header; "__metadata__" maps strings to strings. A Hugging Face directory holds one
// such file or several with an index that maps names to files.
//
// The file is mapped and never copied. Before a set is handed out everything that a later read
// relies on is proven: each tensor's bytes are exactly shape times dtype, the intervals tile the
// data area without hole or overlap, and the last ends with the file. So no reader of a tensor
// needs a bounds check, and a cut or padded file is caught at opening rather than in the middle of
// a load. All arithmetic on sizes from the file is checked for overflow.
//
// Formats of parts of a byte (F4, F6) count bits; a tensor of them must fill whole bytes. Tensors
// without elements are legal and may share an offset with a neighbour.
//
// Bytes are little-endian, as is every machine this program runs on. Writing lives in
// safetensors_write.c; converting and mapping names to a model's parameters, in model/.
#include "file/safetensors.h" /* this module's contract */

#include <stdlib.h>
#include <string.h>

#include "base/io.h"   /* gw_mapping, gw_path_join */
#include "base/map.h"  /* gw_smap, GW_VEC */
#include "base/str.h"  /* gw_str_ends */
#include "file/json.h" /* gw_json_parse, json_t */

enum { MAX_HEADER = 100000000, MAX_NDIM = 64 };

static const struct {
    const char *name;
    int bits;
} dtypes[GW_ST_NDTYPES] = {
    [GW_ST_BOOL] = {"BOOL", 8},
    [GW_ST_F4] = {"F4", 4},
    [GW_ST_F6_E2M3] = {"F6_E2M3", 6},
    [GW_ST_F6_E3M2] = {"F6_E3M2", 6},
    [GW_ST_U8] = {"U8", 8},
    [GW_ST_I8] = {"I8", 8},
    [GW_ST_F8_E5M2] = {"F8_E5M2", 8},
    [GW_ST_F8_E4M3] = {"F8_E4M3", 8},
    [GW_ST_F8_E8M0] = {"F8_E8M0", 8},
    [GW_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [GW_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [GW_ST_I16] = {"I16", 16},
    [GW_ST_U16] = {"U16", 16},
    [GW_ST_F16] = {"F16", 16},
    [GW_ST_BF16] = {"BF16", 16},
    [GW_ST_I32] = {"I32", 32},
    [GW_ST_U32] = {"U32", 32},
    [GW_ST_F32] = {"F32", 32},
    [GW_ST_C64] = {"C64", 64},
    [GW_ST_F64] = {"F64", 64},
    [GW_ST_I64] = {"I64", 64},
    [GW_ST_U64] = {"U64", 64},
};

const char *gw_st_dtype_name(gw_st_dtype t) { return dtypes[t].name; }
int gw_st_dtype_bits(gw_st_dtype t) { return dtypes[t].bits; }

bool gw_st_dtype_parse(const char *name, gw_st_dtype *out) {
    for (int t = 0; t < GW_ST_NDTYPES; t++) {
        if (strcmp(name, dtypes[t].name) != 0) continue;
        *out = (gw_st_dtype)t;
        return true;
    }
    return false;
}

typedef struct st_file {
    const char *path;
    gw_mapping map;      /* {0} where only the header is there */
    const uint8_t *head; /* the first bytes of it */
    int64_t head_bytes, bytes;
    int64_t first_tensor; /* in the set's order */
} st_file;

typedef struct st_pair {
    const char *key, *value;
} st_pair;

struct gw_st_set {
    gw_arena arena; /* names, shapes, paths, metadata */
    GW_VEC(st_file) files;
    GW_VEC(gw_st_tensor) tensors;
    GW_VEC(st_pair) metadata;
    gw_smap by_name;
    int64_t total_bytes;
};

static gw_status bad(const st_file *f, gw_diags *dg, const char *name, const char *why) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", (gw_where){.file = f->path},
                      "tensor '%s': %s", name, why);
}

/* --- one tensor's entry --------------------------------------------------------------------- */

static gw_status read_shape(const st_file *f, const json_t *entry, gw_arena *a, gw_st_tensor *t,
                            gw_diags *dg) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return bad(f, dg, t->name, "its shape is not an array");
    if (json_array_size(shape) > MAX_NDIM)
        return bad(f, dg, t->name, "it has more than 64 dimensions");
    t->ndim = (int)json_array_size(shape);
    int64_t *dims = gw_arena_new(a, int64_t, t->ndim);
    t->elems = 1;
    for (int i = 0; i < t->ndim; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad(f, dg, t->name, "a dimension is not a whole number >= 0");
        dims[i] = (int64_t)json_integer_value(d);
        if (__builtin_mul_overflow(t->elems, dims[i], &t->elems))
            return bad(f, dg, t->name, "its shape overflows 64 bits");
    }
    t->dims = dims;
    return GW_OK;
}

static gw_status read_offsets(const st_file *f, const json_t *entry, int64_t data_start,
                              gw_st_tensor *t, gw_diags *dg) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return bad(f, dg, t->name, "data_offsets is not a pair of whole numbers");
    int64_t begin = (int64_t)json_integer_value(b), end = (int64_t)json_integer_value(e), bits;
    if (begin < 0 || end < begin) return bad(f, dg, t->name, "data_offsets run backwards");
    if (end > f->bytes - data_start)
        return bad(f, dg, t->name,
                   "its data ends past the end of the file (is the file cut short?)");
    if (__builtin_mul_overflow(t->elems, (int64_t)gw_st_dtype_bits(t->dtype), &bits))
        return bad(f, dg, t->name, "its size overflows 64 bits");
    if (bits % 8 != 0) return bad(f, dg, t->name, "its elements do not fill whole bytes");
    if (bits / 8 != end - begin)
        return bad(f, dg, t->name, "shape and dtype do not match its bytes");
    t->bytes = end - begin;
    t->offset = data_start + begin;
    t->data = f->map.bytes > 0 ? f->map.data + t->offset : NULL;
    return GW_OK;
}

static gw_status read_tensor(const st_file *f, const char *name, const json_t *entry,
                             int64_t data_start, gw_arena *a, gw_st_tensor *t, gw_diags *dg) {
    t->name = gw_arena_strdup(a, name);
    if (!json_is_object(entry)) return bad(f, dg, name, "its header entry is not an object");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return bad(f, dg, name, "its dtype is not a string");
    if (!gw_st_dtype_parse(dtype, &t->dtype))
        return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "safetensors-dtype", (gw_where){.file = f->path},
                          "tensor '%s': dtype '%s' is not one that is known", name, dtype);
    GW_TRY(read_shape(f, entry, a, t, dg));
    return read_offsets(f, entry, data_start, t, dg);
}

/* --- one file -------------------------------------------------------------------------------- */

static int by_offset(const void *pa, const void *pb) {
    const gw_st_tensor *a = pa, *b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty ones come first */
    return strcmp(a->name, b->name);
}

/* The tensors of a file, in order of offset, must tile its data area. */
static gw_status check_tiling(const st_file *f, const gw_st_tensor *t, int64_t n, int64_t at,
                              gw_diags *dg) {
    for (int64_t i = 0; i < n; i++) {
        if (t[i].offset > at) return bad(f, dg, t[i].name, "there is a hole before its data");
        if (t[i].offset < at) return bad(f, dg, t[i].name, "its data overlaps another tensor's");
        at += t[i].bytes;
    }
    if (at == f->bytes) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", (gw_where){.file = f->path},
                      "the file holds %lld bytes after the last tensor",
                      (long long)(f->bytes - at));
}

static gw_status read_metadata(gw_st_set *s, const st_file *f, const json_t *meta, gw_diags *dg) {
    if (!json_is_object(meta))
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", (gw_where){.file = f->path},
                          "__metadata__ is not an object");
    for (void *it = json_object_iter((json_t *)(uintptr_t)meta); it;
         it = json_object_iter_next((json_t *)(uintptr_t)meta, it)) {
        const json_t *v = json_object_iter_value(it);
        if (!json_is_string(v))
            return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", (gw_where){.file = f->path},
                              "__metadata__ '%s' is not a string", json_object_iter_key(it));
        st_pair p = {gw_arena_strdup(&s->arena, json_object_iter_key(it)),
                     gw_arena_strdup(&s->arena, json_string_value(v))};
        gw_vec_push(&s->metadata, p);
    }
    return GW_OK;
}

static gw_status read_header(const st_file *f, json_t **header, int64_t *data_start, gw_diags *dg) {
    gw_where where = {.file = f->path};
    uint64_t n;
    if (f->bytes < 8 || f->head_bytes < 8)
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", where,
                          "a safetensors file has at least 8 bytes, this one %lld",
                          (long long)f->bytes);
    memcpy(&n, f->head, 8);
    if (n > MAX_HEADER)
        return gw_fail_at(
            dg, GW_ERR_FORMAT, "safetensors-format", where,
            "the header would be %llu bytes; at most 100,000,000 are allowed (is this "
            "a safetensors file?)",
            (unsigned long long)n);
    if ((int64_t)n > GW_MIN(f->bytes, f->head_bytes) - 8)
        return gw_fail_at(
            dg, GW_ERR_FORMAT, "safetensors-format", where,
            "the header of %llu bytes ends past the end of the file (is it cut short?)",
            (unsigned long long)n);
    const char *text = (const char *)f->head + 8;
    if (n == 0 || text[0] != '{')
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-format", where,
                          "the header does not begin with '{'");
    *data_start = 8 + (int64_t)n;
    gw_status s = gw_json_parse(text, (size_t)n, f->path, header, dg);
    if (s != GW_OK) gw_diag_frame(dg, "reading the header of '%s'", f->path);
    return s;
}

static gw_status read_entries(gw_st_set *s, int file, const json_t *header, int64_t data_start,
                              gw_diags *dg) {
    const st_file *f = &s->files.items[file];
    json_t *h = (json_t *)(uintptr_t)header;
    for (void *it = json_object_iter(h); it; it = json_object_iter_next(h, it)) {
        const char *name = json_object_iter_key(it);
        if (strcmp(name, "__metadata__") == 0) {
            GW_TRY(read_metadata(s, f, json_object_iter_value(it), dg));
            continue;
        }
        gw_st_tensor t = {.file = file};
        GW_TRY(read_tensor(f, name, json_object_iter_value(it), data_start, &s->arena, &t, dg));
        gw_vec_push(&s->tensors, t);
    }
    gw_st_tensor *mine = s->tensors.items + f->first_tensor;
    int64_t n = s->tensors.count - f->first_tensor;
    if (n > 0) qsort(mine, (size_t)n, sizeof *mine, by_offset);
    return check_tiling(f, mine, n, data_start, dg);
}

static gw_status read_file(gw_st_set *s, const st_file *f, gw_diags *dg) {
    json_t *header = NULL;
    int64_t data_start = 0;
    gw_status st = read_header(f, &header, &data_start, dg);
    if (st == GW_OK) st = read_entries(s, (int)s->files.count - 1, header, data_start, dg);
    json_decref(header);
    return st;
}

static gw_status add_file(gw_st_set *s, const char *path, gw_diags *dg) {
    st_file f = {.path = gw_arena_strdup(&s->arena, path), .first_tensor = s->tensors.count};
    GW_TRY(gw_map_open(&f.map, path, dg));
    f.head = f.map.data;
    f.head_bytes = f.bytes = f.map.bytes;
    gw_vec_push(&s->files, f); /* from here on the set releases the mapping */
    return read_file(s, &f, dg);
}

/* --- names over all files ----------------------------------------------------------------------
 */

static gw_status index_names(gw_st_set *s, gw_diags *dg) {
    for (int64_t i = 0; i < s->tensors.count; i++) {
        const gw_st_tensor *t = &s->tensors.items[i];
        uint32_t other;
        if (gw_smap_find_c(&s->by_name, t->name, &other))
            return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-duplicate",
                              (gw_where){.file = s->files.items[t->file].path},
                              "tensor '%s' is also in '%s'", t->name,
                              s->files.items[s->tensors.items[other].file].path);
        gw_smap_put_c(&s->by_name, t->name, (uint32_t)i);
        s->total_bytes += t->bytes;
    }
    return GW_OK;
}

/* A shard's name from an index: a file beside it, nothing that walks elsewhere. */
static bool plain_name(const char *name) {
    return name[0] != '\0' && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names of a weight_map, sorted, in arena memory. */
static gw_status shard_names(const json_t *map, const char *index, gw_arena *a, const char ***names,
                             int64_t *count, gw_diags *dg) {
    json_t *m = (json_t *)(uintptr_t)map;
    int64_t n = 0, unique = 0;
    const char **v = gw_arena_new(a, const char *, json_object_size(map) + 1);
    for (void *it = json_object_iter(m); it; it = json_object_iter_next(m, it)) {
        const char *file = json_string_value(json_object_iter_value(it));
        if (!file || !plain_name(file))
            return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-index", (gw_where){.file = index},
                              "weight_map '%s' does not name a file beside the index",
                              json_object_iter_key(it));
        v[n++] = file;
    }
    if (n > 0) qsort(v, (size_t)n, sizeof *v, by_text);
    for (int64_t i = 0; i < n; i++)
        if (unique == 0 || strcmp(v[unique - 1], v[i]) != 0) v[unique++] = v[i];
    *names = v;
    *count = unique;
    return GW_OK;
}

/* Every tensor the index lists is where it says; one that it does not list gets a warning. */
static gw_status check_index(const gw_st_set *s, const json_t *map, const char *index,
                             gw_diags *dg) {
    json_t *m = (json_t *)(uintptr_t)map;
    for (void *it = json_object_iter(m); it; it = json_object_iter_next(m, it)) {
        const char *name = json_object_iter_key(it);
        const char *file = json_string_value(json_object_iter_value(it));
        const gw_st_tensor *t = gw_st_find(s, name);
        const char *path = t ? s->files.items[t->file].path : "";
        const char *slash = strrchr(path, '/');
        if (!t || strcmp(slash ? slash + 1 : path, file) != 0)
            return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-index", (gw_where){.file = index},
                              "the index places tensor '%s' in '%s', which does not hold it", name,
                              file);
    }
    for (int64_t i = 0; i < s->tensors.count; i++) {
        const gw_st_tensor *t = &s->tensors.items[i];
        if (json_object_get(map, t->name)) continue;
        gw_diag_add(dg, GW_WARNING, GW_ERR_FORMAT, "safetensors-index", (gw_where){.file = index},
                    "tensor '%s' of '%s' is not in the index", t->name,
                    s->files.items[t->file].path);
    }
    return GW_OK;
}

static gw_status open_shards(gw_st_set *s, const json_t *root, const char *index, gw_diags *dg) {
    const json_t *map;
    GW_TRY(gw_json_get_object(root, "weight_map", &map, index, dg));
    if (!map || json_object_size(map) == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-index", (gw_where){.file = index},
                          "the index has no weight_map");
    const char **names = NULL;
    int64_t n = 0;
    GW_TRY(shard_names(map, index, &s->arena, &names, &n, dg));
    const char *slash = strrchr(index, '/');
    const char *dir = slash ? gw_arena_strndup(&s->arena, index, (size_t)(slash - index + 1)) : "";
    for (int64_t i = 0; i < n; i++) {
        gw_status st = add_file(s, gw_arena_printf(&s->arena, "%s%s", dir, names[i]), dg);
        if (st != GW_OK) {
            gw_diag_frame(dg, "opening the shards that '%s' lists", index);
            return st;
        }
    }
    GW_TRY(index_names(s, dg));
    return check_index(s, map, index, dg);
}

static gw_status open_index(gw_st_set *s, const char *index, gw_diags *dg) {
    json_t *root = NULL;
    GW_TRY(gw_json_read_file(index, MAX_HEADER, &root, dg));
    gw_status st = json_is_object(root)
                       ? open_shards(s, root, index, dg)
                       : gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-index",
                                    (gw_where){.file = index}, "the index is not a JSON object");
    json_decref(root);
    return st;
}

static gw_status open_any(gw_st_set *s, const char *path, gw_diags *dg) {
    if (!gw_path_is_dir(path)) {
        if (gw_str_ends(path, ".index.json")) return open_index(s, path, dg);
        GW_TRY(add_file(s, path, dg));
        return index_names(s, dg);
    }
    char *one = gw_path_join(&s->arena, path, "model.safetensors");
    char *index = gw_path_join(&s->arena, path, "model.safetensors.index.json");
    if (gw_path_exists(one)) {
        if (gw_path_exists(index))
            gw_diag_add(dg, GW_WARNING, GW_ERR_FORMAT, "safetensors-index",
                        (gw_where){.file = index},
                        "the index and its shards are not read: model.safetensors beside it is");
        GW_TRY(add_file(s, one, dg));
        return index_names(s, dg);
    }
    if (gw_path_exists(index)) return open_index(s, index, dg);
    return gw_fail_at(dg, GW_ERR_IO, "safetensors-none", (gw_where){.file = path},
                      "neither model.safetensors nor model.safetensors.index.json is here");
}

/* What was opened, if it was. */
static gw_status hand_out(gw_st_set *s, gw_status st, gw_st_set **out) {
    *out = st == GW_OK ? s : NULL;
    if (st != GW_OK) gw_st_free(s);
    return st;
}

gw_status gw_st_open(const char *path, gw_st_set **out, gw_diags *dg) {
    gw_st_set *s = gw_mem_zalloc(sizeof *s);
    gw_arena_init(&s->arena);
    return hand_out(s, open_any(s, path, dg), out);
}

gw_status gw_st_open_header(const char *path, const void *head, int64_t n, int64_t file_bytes,
                            gw_st_set **out, gw_diags *dg) {
    gw_st_set *s = gw_mem_zalloc(sizeof *s);
    gw_arena_init(&s->arena);
    st_file f = {.path = gw_arena_strdup(&s->arena, path),
                 .head = head,
                 .head_bytes = n,
                 .bytes = file_bytes};
    gw_vec_push(&s->files, f);
    gw_status st = read_file(s, &f, dg);
    if (st == GW_OK) st = index_names(s, dg);
    s->files.items[0].head = NULL; /* borrowed no longer */
    return hand_out(s, st, out);
}

void gw_st_free(gw_st_set *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->files.count; i++) gw_map_release(&s->files.items[i].map);
    gw_smap_release(&s->by_name);
    gw_vec_release(&s->files);
    gw_vec_release(&s->tensors);
    gw_vec_release(&s->metadata);
    gw_arena_release(&s->arena);
    gw_mem_free(s);
}

/* --- looking --------------------------------------------------------------------------------- */

int64_t gw_st_count(const gw_st_set *s) { return s->tensors.count; }

const gw_st_tensor *gw_st_get(const gw_st_set *s, int64_t i) { return &s->tensors.items[i]; }

const gw_st_tensor *gw_st_find(const gw_st_set *s, const char *name) {
    uint32_t i;
    return gw_smap_find_c(&s->by_name, name, &i) ? &s->tensors.items[i] : NULL;
}

int64_t gw_st_total_bytes(const gw_st_set *s) { return s->total_bytes; }
int gw_st_nfiles(const gw_st_set *s) { return (int)s->files.count; }
const char *gw_st_file_path(const gw_st_set *s, int file) { return s->files.items[file].path; }

const char *gw_st_metadata(const gw_st_set *s, const char *key) {
    for (int64_t i = 0; i < s->metadata.count; i++)
        if (strcmp(s->metadata.items[i].key, key) == 0) return s->metadata.items[i].value;
    return NULL;
}

bool gw_st_metadata_at(const gw_st_set *s, int64_t i, const char **key, const char **value) {
    if (i < 0 || i >= s->metadata.count) return false;
    *key = s->metadata.items[i].key;
    *value = s->metadata.items[i].value;
    return true;
}
