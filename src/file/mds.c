// SPDX-License-Identifier: Apache-2.0
// MDS: indexes, encodings and the bytes of shards.
//
// index.json lists shards, each with the names, encodings and sizes of its columns and, of its
// file, length and hashes. All numbers are little-endian. A shard is
//
//    u32 N, samples          u32 offsets[N + 1], from the file's beginning
//    the columns again, as JSON                  N samples, one after another
//
// and a sample one u32 length for each column without a fixed size, in the order of columns, then
// the bytes of all columns. Offsets have 32 bits, so a shard ends below 4 GiB.
//
// The JSON inside a shard is not read: the index says the same, and is what other readers go by. A
// fixed size of 0 counts as none, as those readers take it. What a shard's header says is checked
// once (a number of samples as in the index, offsets that rise and stay inside), what a sample says
// of itself each time it is read.
//
// Column names come sorted by whoever writes; here any order is taken as it stands. The directory
// is not trusted: a name with "..", or from the root, is refused, since it is joined to a path.
#include "file/mds.h" /* this module's contract */

#include <string.h>
#include <zstd.h>

#include "base/compiler.h" /* GW_COUNT */
#include "file/json.h"     /* gw_json_parse */

enum { HEAD = 4, MOST_COLUMNS = 4096, MOST_HASHES = 64 };

static uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static gw_status bad(gw_diags *dg, const char *file, const char *what) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = file}, "%s", what);
}

/* ---- encodings ---- */

static const struct {
    gw_mds_element element;
    const char *name;
    int bytes;
} elements[] = {{GW_MDS_U8, "uint8", 1},  {GW_MDS_I8, "int8", 1},     {GW_MDS_U16, "uint16", 2},
                {GW_MDS_I16, "int16", 2}, {GW_MDS_F16, "float16", 2}, {GW_MDS_U32, "uint32", 4},
                {GW_MDS_I32, "int32", 4}, {GW_MDS_F32, "float32", 4}, {GW_MDS_U64, "uint64", 8},
                {GW_MDS_I64, "int64", 8}, {GW_MDS_F64, "float64", 8}};

static const struct {
    const char *name;
    gw_mds_kind kind;
} words[] = {{"bytes", GW_MDS_BYTES},     {"str", GW_MDS_STR},         {"str_int", GW_MDS_STR},
             {"str_float", GW_MDS_STR},   {"str_decimal", GW_MDS_STR}, {"json", GW_MDS_JSON},
             {"pil", GW_MDS_IMAGE},       {"jpeg", GW_MDS_IMAGE},      {"png", GW_MDS_IMAGE},
             {"list[pil]", GW_MDS_LIST},  {"list[jpeg]", GW_MDS_LIST}, {"list[png]", GW_MDS_LIST},
             {"jpegarray", GW_MDS_IMAGE}, {"pngarray", GW_MDS_IMAGE}};

int gw_mds_element_bytes(gw_mds_element e) {
    for (size_t i = 0; i < GW_COUNT(elements); i++)
        if (elements[i].element == e) return elements[i].bytes;
    return 0;
}

const char *gw_mds_element_name(gw_mds_element e) {
    for (size_t i = 0; i < GW_COUNT(elements); i++)
        if (elements[i].element == e) return elements[i].name;
    return "?";
}

static gw_mds_element element_named(const char *name, size_t n) {
    for (size_t i = 0; i < GW_COUNT(elements); i++)
        if (strlen(elements[i].name) == n && memcmp(elements[i].name, name, n) == 0)
            return elements[i].element;
    return GW_MDS_ANY;
}

/* "3,224": each at least 1. */
static bool parse_shape(const char *s, gw_mds_column *c) {
    for (const char *end; *s; s = *end ? end + 1 : end) {
        char part[24];
        end = s + strcspn(s, ",");
        size_t n = (size_t)(end - s);
        if (n == 0 || n >= sizeof part || c->ndim == (int)GW_COUNT(c->dims)) return false;
        memcpy(part, s, n);
        part[n] = 0;
        int64_t d;
        if (!gw_parse_i64(part, &d) || d < 1 || d > INT64_C(1) << 32) return false;
        c->dims[c->ndim++] = d;
        if (*end == ',' && !end[1]) return false;
    }
    return c->ndim > 0;
}

/* What follows "ndarray": nothing, ":TYPE", ":TYPE:SHAPE". */
static bool parse_ndarray(const char *s, gw_mds_column *c) {
    c->kind = GW_MDS_NDARRAY;
    if (!*s) return true;
    size_t n = strcspn(++s, ":");
    c->element = element_named(s, n);
    if (n > 0 && c->element == GW_MDS_ANY) return false;
    if (s[n] == 0) return n > 0;
    if (c->element == GW_MDS_ANY || !parse_shape(s + n + 1, c)) return false;
    c->bytes = gw_mds_element_bytes(c->element);
    for (int i = 0; i < c->ndim; i++)
        if (__builtin_mul_overflow(c->bytes, c->dims[i], &c->bytes) || c->bytes > UINT32_MAX)
            return false;
    return true;
}

static bool parse_encoding(const char *e, gw_mds_column *c) {
    size_t n = strcspn(e, ":");
    if (n == 7 && memcmp(e, "ndarray", 7) == 0) return parse_ndarray(e + 7, c);
    if (n == 3 && memcmp(e, "int", 3) == 0 && !e[n]) {
        *c = (gw_mds_column){.kind = GW_MDS_INT, .element = GW_MDS_I64, .bytes = 8};
        return true;
    }
    for (size_t i = 0; i < GW_COUNT(words); i++) {
        bool same = strlen(words[i].name) == n && memcmp(words[i].name, e, n) == 0;
        if (!same || (e[n] && words[i].kind != GW_MDS_IMAGE)) continue;
        c->kind = words[i].kind;
        return true;
    }
    c->kind = GW_MDS_SCALAR;
    c->element = e[n] ? GW_MDS_ANY : element_named(e, n);
    c->bytes = gw_mds_element_bytes(c->element);
    return c->element != GW_MDS_ANY;
}

gw_status gw_mds_column_parse(gw_arena *a, const char *name, const char *encoding, const char *file,
                              gw_mds_column *c, gw_diags *dg) {
    *c = (gw_mds_column){0};
    bool known = parse_encoding(encoding, c);
    c->name = gw_arena_strdup(a, name);
    c->encoding = gw_arena_strdup(a, encoding);
    if (known) return GW_OK;
    gw_where w = {.file = file};
    if (strcmp(encoding, "pkl") == 0) {
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_UNSUPPORTED, "mds-pickle", w,
                                 "column '%s' holds pickles: reading one runs code", name);
        gw_diag_hint(dg, g, "write the data set again with json, ndarray or bytes instead of pkl");
        return GW_ERR_UNSUPPORTED;
    }
    return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "mds-encoding", w,
                      "column '%s' has the encoding '%.80s', which is none of the format's", name,
                      encoding);
}

/* One dimension of `width` bytes. */
static int64_t dim_at(const uint8_t *p, int width) {
    uint64_t v = 0;
    for (int i = 0; i < width; i++) v |= (uint64_t)p[i] << (8 * i);
    return v > INT64_MAX ? -1 : (int64_t)v;
}

static bool read_shape(const uint8_t **value, int64_t *n, gw_mds_array *out) {
    if (*n < 1) return false;
    int ndim = **value >> 2, width = 1 << (**value & 3);
    (*value)++, (*n)--;
    if (ndim < 1 || *n < (int64_t)ndim * width) return false;
    out->ndim = ndim;
    for (int i = 0; i < ndim; i++, *value += width, *n -= width)
        out->dims[i] = dim_at(*value, width);
    return true;
}

bool gw_mds_array_read(const gw_mds_column *c, const uint8_t *value, int64_t n, gw_mds_array *out) {
    out->element = c->element;
    if (c->element == GW_MDS_ANY) {
        if (n < 1) return false;
        out->element = (gw_mds_element)value[0];
        value++, n--;
    }
    int size = gw_mds_element_bytes(out->element);
    if (size == 0) return false;
    out->ndim = c->ndim;
    for (int i = 0; i < c->ndim; i++) out->dims[i] = c->dims[i];
    if (c->ndim == 0 && !read_shape(&value, &n, out)) return false;
    int64_t bytes = size;
    for (int i = 0; i < out->ndim; i++)
        if (out->dims[i] < 0 || __builtin_mul_overflow(bytes, out->dims[i], &bytes)) return false;
    out->count = bytes / size;
    out->data = value;
    return bytes == n;
}

void gw_mds_array_write(const gw_mds_column *c, gw_mds_element e, const void *items, int64_t count,
                        gw_str *out) {
    int width = count < 1 << 8 ? 0 : count < 1 << 16 ? 1 : count <= UINT32_MAX ? 2 : 3;
    if (c->element == GW_MDS_ANY) gw_str_add_char(out, (char)e);
    if (c->ndim == 0) {
        gw_str_add_char(out, (char)(1 << 2 | width));
        for (int i = 0; i < 1 << width; i++)
            gw_str_add_char(out, (char)((uint64_t)count >> (8 * i)));
    }
    gw_str_add_n(out, items, (size_t)(count * gw_mds_element_bytes(e)));
}

/* ---- the index ---- */

typedef struct reading {
    gw_arena *a;
    const char *name;
    gw_diags *dg;
} reading;

static bool stays_inside(const char *s) {
    if (!*s || *s == '/') return false;
    for (const char *p = s; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n + (p[n] == '/');
        if (!*p && p[-1] == '/') return false;
    }
    return true;
}

static gw_status read_hashes(const reading *r, const json_t *o, gw_mds_file *f) {
    const json_t *hashes;
    GW_TRY(gw_json_get_object(o, "hashes", &hashes, r->name, r->dg));
    size_t n = hashes ? json_object_size(hashes) : 0;
    if (n == 0) return GW_OK;
    if (n > MOST_HASHES) return bad(r->dg, r->name, "a file has more hashes than the format knows");
    gw_mds_hash *items = gw_arena_new(r->a, gw_mds_hash, n);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)hashes, key, v) {
        if (!json_is_string(v)) return bad(r->dg, r->name, "a hash is not text");
        items[f->nhashes++] =
            (gw_mds_hash){gw_arena_strdup(r->a, key), gw_arena_strdup(r->a, json_string_value(v))};
    }
    f->hashes = items;
    return GW_OK;
}

static gw_status read_file_info(const reading *r, const json_t *shard, const char *key, bool needed,
                                gw_mds_file *f) {
    const json_t *o;
    const char *name;
    GW_TRY(gw_json_get_object(shard, key, &o, r->name, r->dg));
    if (!o && needed) return bad(r->dg, r->name, "a shard has no raw_data");
    if (!o) return GW_OK;
    GW_TRY(gw_json_need_str(o, "basename", &name, r->name, r->dg));
    GW_TRY(gw_json_need_i64(o, "bytes", &f->bytes, r->name, r->dg));
    if (!stays_inside(name))
        return gw_fail_at(r->dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = r->name},
                          "the file name '%.80s' leads out of the directory", name);
    if (f->bytes < 0 || f->bytes > UINT32_MAX)
        return gw_fail_at(r->dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = r->name},
                          "'%.80s' is said to have %lld bytes, beyond what a shard can have", name,
                          (long long)f->bytes);
    f->name = gw_arena_strdup(r->a, name);
    return read_hashes(r, o, f);
}

static gw_status check_size(const reading *r, const json_t *size, gw_mds_column *c) {
    int64_t n = 0;
    if (!json_is_null(size) && !gw_json_as_i64(size, &n))
        return bad(r->dg, r->name, "a column's size is neither a number nor null");
    if (n == c->bytes) return GW_OK;
    return gw_fail_at(r->dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = r->name},
                      "column '%s' has the size %lld; its encoding %s has %lld (0: none)", c->name,
                      (long long)n, c->encoding, (long long)c->bytes);
}

static gw_status read_columns(const reading *r, const json_t *shard, gw_mds_shard *s) {
    const json_t *names, *encodings, *sizes;
    GW_TRY(gw_json_get_array(shard, "column_names", &names, r->name, r->dg));
    GW_TRY(gw_json_get_array(shard, "column_encodings", &encodings, r->name, r->dg));
    GW_TRY(gw_json_get_array(shard, "column_sizes", &sizes, r->name, r->dg));
    size_t n = json_array_size(names);
    if (n == 0 || n > MOST_COLUMNS || json_array_size(encodings) != n ||
        json_array_size(sizes) != n)
        return bad(r->dg, r->name, "column_names, column_encodings and column_sizes do not match");
    gw_mds_column *c = gw_arena_new(r->a, gw_mds_column, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const char *encoding = json_string_value(json_array_get(encodings, i));
        if (!name || !encoding) return bad(r->dg, r->name, "a column's name is not text");
        GW_TRY(gw_mds_column_parse(r->a, name, encoding, r->name, &c[i], r->dg));
        GW_TRY(check_size(r, json_array_get(sizes, i), &c[i]));
    }
    s->columns = c;
    s->ncolumns = (int)n;
    return GW_OK;
}

/* Shards of one index have the same columns: those of the first stand for all that are equal. */
static bool same_columns(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"column_names", "column_encodings", "column_sizes"};
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) return false;
    return true;
}

static gw_status read_shard(const reading *r, const json_t *o, const json_t *first,
                            const gw_mds_shard *before, gw_mds_shard *s) {
    int64_t version;
    const char *format, *compression;
    if (!json_is_object(o)) return bad(r->dg, r->name, "a shard is not an object");
    GW_TRY(gw_json_get_i64(o, "version", 2, &version, r->name, r->dg));
    GW_TRY(gw_json_need_str(o, "format", &format, r->name, r->dg));
    if (version != 2 || strcmp(format, "mds") != 0)
        return gw_fail_at(r->dg, GW_ERR_UNSUPPORTED, "mds-version", (gw_where){.file = r->name},
                          "a shard has format '%.40s', version %lld; read here is mds, version 2",
                          format, (long long)version);
    GW_TRY(gw_json_get_str(o, "compression", NULL, &compression, r->name, r->dg));
    GW_TRY(gw_json_need_i64(o, "samples", &s->samples, r->name, r->dg));
    if (s->samples < 0 || s->samples > UINT32_MAX / 4)
        return bad(r->dg, r->name, "a shard's number of samples cannot be");
    GW_TRY(read_file_info(r, o, "raw_data", true, &s->raw));
    GW_TRY(read_file_info(r, o, "zip_data", false, &s->zip));
    if (s->zip.name && (!compression || (strncmp(compression, "zstd", 4) != 0)))
        return gw_fail_at(r->dg, GW_ERR_UNSUPPORTED, "mds-compression", (gw_where){.file = r->name},
                          "shards are compressed by '%.40s'; read here is zstd",
                          compression ? compression : "null");
    s->compression = compression ? gw_arena_strdup(r->a, compression) : NULL;
    s->tokens = -1;
    if (before && same_columns(o, first)) {
        s->columns = before->columns;
        s->ncolumns = before->ncolumns;
        return GW_OK;
    }
    return read_columns(r, o, s);
}

/* {"gradwright": {"tokens": [of each shard]}}: left out where it does not fit the shards. */
static void read_tokens(const json_t *top, gw_mds_shard *shards, gw_mds_index *out) {
    const json_t *t = json_object_get(json_object_get(top, "gradwright"), "tokens");
    out->tokens = -1;
    if (!json_is_array(t) || (int64_t)json_array_size(t) != out->nshards) return;
    int64_t sum = 0;
    for (int64_t i = 0; i < out->nshards; i++) {
        int64_t n;
        if (!gw_json_as_i64(json_array_get(t, (size_t)i), &n) || n < 0 || n > UINT32_MAX) return;
        sum += n;
    }
    for (int64_t i = 0; i < out->nshards; i++)
        (void)gw_json_as_i64(json_array_get(t, (size_t)i), &shards[i].tokens);
    out->tokens = sum;
}

static gw_status read_index(const reading *r, const json_t *top, gw_mds_index *out) {
    const json_t *list;
    int64_t version;
    GW_TRY(gw_json_need_i64(top, "version", &version, r->name, r->dg));
    if (version != 2)
        return gw_fail_at(r->dg, GW_ERR_UNSUPPORTED, "mds-version", (gw_where){.file = r->name},
                          "the index is of version %lld; read here is 2", (long long)version);
    GW_TRY(gw_json_get_array(top, "shards", &list, r->name, r->dg));
    if (!list) return bad(r->dg, r->name, "the index has no list of shards");
    out->nshards = (int64_t)json_array_size(list);
    gw_mds_shard *shards = gw_arena_new(r->a, gw_mds_shard, out->nshards + 1);
    for (int64_t i = 0; i < out->nshards; i++) {
        GW_TRY(read_shard(r, json_array_get(list, (size_t)i), json_array_get(list, 0),
                          i ? &shards[0] : NULL, &shards[i]));
        out->samples += shards[i].samples;
    }
    out->shards = shards;
    read_tokens(top, shards, out);
    return GW_OK;
}

gw_status gw_mds_index_parse(gw_arena *a, const char *text, int64_t len, const char *name,
                             gw_mds_index *out, gw_diags *dg) {
    json_t *top;
    reading r = {a, name, dg};
    *out = (gw_mds_index){0};
    GW_TRY(gw_json_parse(text, (size_t)len, name, &top, dg));
    gw_status st = json_is_object(top) ? read_index(&r, top, out)
                                       : bad(dg, name, "the index is not an object");
    json_decref(top);
    return st;
}

gw_status gw_mds_index_read(gw_arena *a, const char *dir, gw_mds_index *out, gw_diags *dg) {
    gw_str text = {0};
    const char *path = gw_path_join(a, dir, "index.json");
    gw_status st = gw_file_read(path, INT64_C(1) << 32, &text, dg);
    if (st == GW_OK) st = gw_mds_index_parse(a, gw_str_c(&text), (int64_t)text.len, path, out, dg);
    gw_str_release(&text);
    return st;
}

int gw_mds_column_find(const gw_mds_shard *s, const char *name) {
    for (int i = 0; i < s->ncolumns; i++)
        if (strcmp(s->columns[i].name, name) == 0) return i;
    return -1;
}

/* ---- the bytes of a shard ---- */

gw_status gw_mds_file_check(const gw_mds_file *f, const void *bytes, int64_t n, const char *path,
                            gw_diags *dg) {
    gw_str is = {0};
    gw_status st = GW_OK;
    if (n != f->bytes)
        return gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = path},
                          "the file has %lld bytes; the index says %lld", (long long)n,
                          (long long)f->bytes);
    for (int i = 0; i < f->nhashes && st == GW_OK; i++) {
        const gw_mds_hash *h = &f->hashes[i];
        if (!gw_mds_hash_hex(h->algorithm, bytes, n, &is)) continue;
        if (strcmp(gw_str_c(&is), h->hex) == 0) continue;
        st = gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = path},
                        "the %s of its bytes is %s; the index says %.160s", h->algorithm,
                        gw_str_c(&is), h->hex);
    }
    gw_str_release(&is);
    return st;
}

gw_status gw_mds_unzip(const gw_mds_shard *s, const void *zip, int64_t n, void *raw,
                       const char *path, gw_diags *dg) {
    size_t got = ZSTD_decompress(raw, (size_t)s->raw.bytes, zip, (size_t)n);
    if (ZSTD_isError(got))
        return gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = path},
                          "it cannot be decompressed: %s", ZSTD_getErrorName(got));
    if ((int64_t)got != s->raw.bytes)
        return gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = path},
                          "it decompresses to %lld bytes; the index says %lld", (long long)got,
                          (long long)s->raw.bytes);
    return GW_OK;
}

gw_status gw_mds_view_open(gw_mds_view *v, const gw_mds_shard *s, const uint8_t *bytes, int64_t n,
                           const char *path, gw_diags *dg) {
    *v = (gw_mds_view){s, bytes, n, path};
    int64_t table = HEAD + 4 * (s->samples + 1);
    if (n < table || u32_at(bytes) != s->samples)
        return gw_fail_at(dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = path},
                          "its header does not have the %lld samples that the index says",
                          (long long)s->samples);
    int64_t before = table;
    for (int64_t i = 0; i <= s->samples; i++) {
        int64_t at = u32_at(bytes + HEAD + 4 * i);
        if (at < before || at > n)
            return gw_fail_at(dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = path},
                              "sample %lld begins at byte %lld, outside the file's %lld or before "
                              "the sample ahead of it",
                              (long long)i, (long long)at, (long long)n);
        before = at;
    }
    return GW_OK;
}

gw_status gw_mds_view_value(const gw_mds_view *v, int64_t i, int c, const uint8_t **value,
                            int64_t *bytes, gw_diags *dg) {
    const gw_mds_shard *s = v->shard;
    int64_t begin = u32_at(v->bytes + HEAD + 4 * i), end = u32_at(v->bytes + HEAD + 4 * i + 4);
    int64_t sizes = begin, at = begin;
    for (int k = 0; k < s->ncolumns; k++) at += s->columns[k].bytes > 0 ? 0 : 4;
    for (int k = 0; k <= c && at <= end; k++) {
        *bytes = s->columns[k].bytes;
        if (*bytes == 0) {
            *bytes = u32_at(v->bytes + sizes);
            sizes += 4;
        }
        *value = v->bytes + at;
        at += *bytes;
    }
    if (at <= end) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "mds-format", (gw_where){.file = v->path},
                      "column '%s' of sample %lld (bytes %lld to %lld) ends beyond the sample",
                      s->columns[c].name, (long long)i, (long long)begin, (long long)end);
}
