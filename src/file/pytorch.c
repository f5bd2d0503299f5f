// SPDX-License-Identifier: Apache-2.0
// The zip around a pickle.
//
// torch.save writes a zip whose members are stored, not compressed: PREFIX/data.pkl, the pickle;
// PREFIX/data/KEY, the bytes of each storage, which the pickle names by KEY; PREFIX/byteorder. The
// directory at the end of a zip says where each member's header stands, and that header how far
// behind it the bytes begin (APPNOTE.TXT of PKWARE, 4.3; sizes past 32 bits in the extra field 1).
// Every offset is checked against the file before it is used.
#include "file/pytorch.h"

#include <string.h>

#include "base/io.h"     /* gw_map_open */
#include "base/map.h"    /* gw_smap */
#include "base/str.h"    /* gw_str_ends */
#include "file/json.h"   /* gw_json_read_file */
#include "file/pickle.h" /* gw_pickle_read */

typedef struct member {
    const uint8_t *data;
    int64_t bytes;
} member;

typedef struct part {
    const char *path;
    gw_mapping map;
    gw_smap members; /* name, and index of `list` */
    GW_VEC(member) list;
    const char *prefix; /* "archive/" */
} part;

struct gw_torch {
    gw_arena a;
    GW_VEC(part *) parts;
    GW_VEC(gw_st_tensor) tensors;
    gw_smap names;
};

static uint64_t get(const uint8_t *p, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static gw_status damaged(const part *p, const char *what, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", (gw_where){.file = p->path},
                      "no whole PyTorch file: %s", what);
}

/* ---- the zip ---- */

typedef struct directory {
    uint64_t at, bytes, entries;
} directory;

/* n bytes at `at`, or NULL. */
static const uint8_t *bytes_at(const part *p, uint64_t at, uint64_t n) {
    uint64_t size = (uint64_t)p->map.bytes;
    return at <= size && n <= size - at ? p->map.data + at : NULL;
}

static bool find_directory(const part *p, directory *d) {
    enum { END = 22, MOST_COMMENT = 65535, LOCATOR = 20, END64 = 56 };
    int64_t at = p->map.bytes - END, last = GW_MAX(at - MOST_COMMENT, (int64_t)0);
    for (; at >= last; at--)
        if (get(p->map.data + at, 4) == 0x06054b50) break;
    if (at < last) return false;
    const uint8_t *e = p->map.data + at;
    *d = (directory){get(e + 16, 4), get(e + 12, 4), get(e + 10, 2)};
    const uint8_t *locator = at >= LOCATOR ? e - LOCATOR : NULL;
    if (!locator || get(locator, 4) != 0x07064b50) return true;
    const uint8_t *e64 = bytes_at(p, get(locator + 8, 8), END64);
    if (!e64 || get(e64, 4) != 0x06064b50) return false;
    *d = (directory){get(e64 + 48, 8), get(e64 + 40, 8), get(e64 + 32, 8)};
    return true;
}

/* Sizes and offset of an entry; those that are all ones stand in the extra field. */
static bool wide(const uint8_t *extra, uint64_t n, uint64_t *raw, uint64_t *stored, uint64_t *at) {
    uint64_t *const fields[] = {raw, stored, at};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4 + get(extra + i + 2, 2)) {
        uint64_t size = get(extra + i + 2, 2), k = 4;
        if (get(extra + i, 2) != 1) continue;
        if (i + 4 + size > n) return false;
        for (int f = 0; f < 3; f++) {
            if (*fields[f] != 0xffffffff) continue;
            if (k + 8 > 4 + size) return false;
            *fields[f] = get(extra + i + k, 8);
            k += 8;
        }
    }
    return *raw != 0xffffffff && *stored != 0xffffffff && *at != 0xffffffff;
}

/* Reads the directory entry at *at and moves on; false where it is no whole one. */
static bool read_entry(part *p, uint64_t *at, gw_arena *a, const char **why) {
    enum { HEAD = 46, LOCAL = 30 };
    const uint8_t *e = bytes_at(p, *at, HEAD);
    if (!e || get(e, 4) != 0x02014b50) return false;
    uint64_t n = get(e + 28, 2), extra = get(e + 30, 2), comment = get(e + 32, 2);
    if (!bytes_at(p, *at + HEAD, n + extra + comment)) return false;
    uint64_t stored = get(e + 20, 4), raw = get(e + 24, 4), header = get(e + 42, 4);
    bool any_wide = stored == 0xffffffff || raw == 0xffffffff || header == 0xffffffff;
    if (any_wide && !wide(e + HEAD + n, extra, &raw, &stored, &header)) return false;
    const uint8_t *local = bytes_at(p, header, LOCAL);
    if (!local || get(local, 4) != 0x04034b50) return false;
    uint64_t data = header + LOCAL + get(local + 26, 2) + get(local + 28, 2);
    member m = {bytes_at(p, data, raw), (int64_t)raw};
    *why = get(e + 10, 2) ? "a member is compressed, which torch.save does not do" : NULL;
    if (*why || stored != raw || !m.data) return false;
    const char *name = gw_arena_strndup(a, (const char *)e + HEAD, (size_t)n);
    if (!gw_smap_put(&p->members, name, (size_t)n, (uint32_t)p->list.count)) {
        *why = "two members have one name";
        return false;
    }
    gw_vec_push(&p->list, m);
    if (gw_str_ends(name, "/data.pkl") && strlen(name) == n)
        p->prefix = gw_arena_strndup(a, name, (size_t)n - strlen("data.pkl"));
    *at += HEAD + n + extra + comment;
    return true;
}

static gw_status read_zip(part *p, gw_arena *a, gw_diags *dg) {
    directory d;
    const char *why = NULL;
    const uint8_t *b = p->map.data;
    if (p->map.bytes >= 2 && b[0] == 0x80 && b[1] <= 5) {
        gw_status st =
            gw_fail_at(dg, GW_ERR_UNSUPPORTED, "pytorch-old", (gw_where){.file = p->path},
                       "it has the form that PyTorch wrote before 1.6, a bare pickle");
        gw_diag_hint(dg, dg ? dg->last : NULL,
                     "save it again with a current PyTorch, best as safetensors");
        return st;
    }
    if (p->map.bytes < 22 || !find_directory(p, &d)) return damaged(p, "it is no zip", dg);
    if (!bytes_at(p, d.at, d.bytes) || d.entries > d.bytes / 46)
        return damaged(p, "its directory is cut", dg);
    for (uint64_t i = 0, at = d.at; i < d.entries; i++)
        if (!read_entry(p, &at, a, &why))
            return damaged(p, why ? why : "an entry of its directory is wrong", dg);
    return p->prefix ? GW_OK : damaged(p, "it has no data.pkl", dg);
}

static const member *find_member(const part *p, gw_arena *a, const char *name) {
    const char *full = gw_arena_printf(a, "%s%s", p->prefix, name);
    uint32_t i;
    return gw_smap_find_c(&p->members, full, &i) ? &p->list.items[i] : NULL;
}

/* ---- tensors ---- */

/* Row-major: each stride is the product of the sizes behind it, where it matters. */
static bool is_dense(const gw_pickle_tensor *t, int64_t *elems) {
    int64_t want = 1;
    *elems = -1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != want && want != 0) return false;
        if (__builtin_mul_overflow(want, t->dims[i], &want)) return false;
    }
    *elems = want;
    return true;
}

static gw_status add_tensor(gw_torch *f, const part *p, const char *name, const gw_pickle_tensor *t,
                            gw_diags *dg) {
    int64_t elems, width = gw_st_dtype_bits(t->storage->dtype) / 8, end;
    gw_where where = {.file = p->path};
    if (!is_dense(t, &elems))
        return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "pytorch-strides", where,
                          "the tensor '%s' is a view that is not row-major; save it contiguous",
                          name);
    const member *m = find_member(p, &f->a, gw_arena_printf(&f->a, "data/%s", t->storage->key));
    if (!m || __builtin_add_overflow(t->first, elems, &end) || end > t->storage->elems ||
        t->storage->elems > m->bytes / width)
        return gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", where,
                          "the tensor '%s' does not lie within the storage '%s' of the file", name,
                          t->storage->key);
    if (!gw_smap_put_c(&f->names, name, (uint32_t)f->tensors.count))
        return gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", where,
                          "the tensor '%s' is there twice", name);
    gw_st_tensor out = {.name = name,
                        .dtype = t->storage->dtype,
                        .ndim = t->ndim,
                        .dims = gw_arena_dup(&f->a, t->dims, (int64_t)sizeof t->dims),
                        .elems = elems,
                        .bytes = elems * width,
                        .data = m->data + t->first * width};
    out.offset = (const uint8_t *)out.data - p->map.data;
    gw_vec_push(&f->tensors, out);
    return GW_OK;
}

static bool has_tensors(const gw_pickle_value *d) {
    for (int64_t i = 1; d && d->kind == GW_PICKLE_DICT && i < d->as.list.count; i += 2)
        if (d->as.list.items[i]->kind == GW_PICKLE_TENSOR) return true;
    return false;
}

static const gw_pickle_value *state_dict(const gw_pickle_value *top) {
    static const char *const inside[] = {"state_dict", "model", "module", "weights"};
    for (size_t i = 0; !has_tensors(top) && i < GW_COUNT(inside); i++) {
        const gw_pickle_value *in = gw_pickle_get(top, inside[i]);
        if (has_tensors(in)) return in;
    }
    return has_tensors(top) ? top : NULL;
}

static gw_status read_part(gw_torch *f, const char *path, gw_diags *dg) {
    part *p = gw_arena_new(&f->a, part, 1);
    const gw_pickle_value *top, *dict;
    p->path = gw_arena_strdup(&f->a, path);
    gw_vec_push(&f->parts, p);
    GW_TRY(gw_map_open(&p->map, path, dg));
    GW_TRY(read_zip(p, &f->a, dg));
    const member *order = find_member(p, &f->a, "byteorder");
    if (order && (order->bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return damaged(p, "its bytes are not in little-endian order", dg);
    const member *pickle = find_member(p, &f->a, "data.pkl");
    GW_TRY(gw_pickle_read(p->path, pickle->data, pickle->bytes, &f->a, &top, dg));
    if (!(dict = state_dict(top))) return damaged(p, "it holds no dict of tensors", dg);
    for (int64_t i = 0; i + 1 < dict->as.list.count; i += 2) {
        const gw_pickle_value *k = dict->as.list.items[i], *v = dict->as.list.items[i + 1];
        if (k->kind != GW_PICKLE_STR || v->kind != GW_PICKLE_TENSOR) continue;
        GW_TRY(add_tensor(f, p, k->as.str.text, &v->as.tensor, dg));
    }
    return GW_OK;
}

/* ---- several parts ---- */

static const char *const SINGLE = "pytorch_model.bin", *const INDEX =
                                                           "pytorch_model.bin.index.json";

static gw_status read_index(gw_torch *f, const char *path, gw_diags *dg) {
    json_t *o = NULL;
    const char *slash = strrchr(path, '/'), *name;
    char *dir = slash ? gw_arena_strndup(&f->a, path, (size_t)(slash - path)) : NULL;
    gw_smap seen = {0};
    json_t *file;
    GW_TRY(gw_json_read_file(path, 0, &o, dg));
    json_t *map = json_object_get(o, "weight_map");
    gw_status st = json_is_object(map)
                       ? GW_OK
                       : gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", (gw_where){.file = path},
                                    "the index has no object weight_map");
    json_object_foreach(map, name, file) {
        const char *text = json_string_value(file);
        if (st != GW_OK) break;
        if (!text || strchr(text, '/') || !*text || *text == '.')
            st = gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", (gw_where){.file = path},
                            "the file of '%s' has no plain name", name);
        else if (gw_smap_put_c(&seen, text, 0))
            st = read_part(f, dir ? gw_path_join(&f->a, dir, text) : text, dg);
    }
    json_object_foreach(map, name, file) {
        if (st == GW_OK && !gw_torch_find(f, name))
            st = gw_fail_at(dg, GW_ERR_FORMAT, "pytorch-damaged", (gw_where){.file = path},
                            "the tensor '%s' is in none of the files", name);
    }
    gw_smap_release(&seen);
    json_decref(o);
    return st;
}

static gw_status open_path(gw_torch *f, const char *path, gw_diags *dg) {
    if (gw_path_is_dir(path)) {
        const char *one = gw_path_join(&f->a, path, SINGLE);
        return gw_path_exists(one) ? read_part(f, one, dg)
                                   : read_index(f, gw_path_join(&f->a, path, INDEX), dg);
    }
    return gw_str_ends(path, ".index.json") ? read_index(f, path, dg) : read_part(f, path, dg);
}

gw_status gw_torch_open(const char *path, gw_torch **out, gw_diags *dg) {
    gw_torch *f = gw_mem_zalloc(sizeof *f);
    gw_status st = open_path(f, path, dg);
    if (st != GW_OK) {
        gw_torch_free(f);
        f = NULL;
    }
    *out = f;
    return st;
}

void gw_torch_free(gw_torch *f) {
    if (!f) return;
    for (int64_t i = 0; i < f->parts.count; i++) {
        gw_map_release(&f->parts.items[i]->map);
        gw_smap_release(&f->parts.items[i]->members);
        gw_vec_release(&f->parts.items[i]->list);
    }
    gw_vec_release(&f->parts);
    gw_vec_release(&f->tensors);
    gw_smap_release(&f->names);
    gw_arena_release(&f->a);
    gw_mem_free(f);
}

int64_t gw_torch_count(const gw_torch *f) { return f->tensors.count; }
const gw_st_tensor *gw_torch_get(const gw_torch *f, int64_t i) { return &f->tensors.items[i]; }
const gw_st_tensor *gw_torch_find(const gw_torch *f, const char *name) {
    uint32_t i;
    return gw_smap_find_c(&f->names, name, &i) ? &f->tensors.items[i] : NULL;
}

bool gw_torch_is(const char *path) {
    gw_arena a = {0};
    bool is = gw_str_ends(path, ".bin") || gw_str_ends(path, ".pt") || gw_str_ends(path, ".pth") ||
              gw_str_ends(path, ".bin.index.json");
    if (gw_path_is_dir(path))
        is = !gw_path_exists(gw_path_join(&a, path, "model.safetensors")) &&
             !gw_path_exists(gw_path_join(&a, path, "model.safetensors.index.json")) &&
             (gw_path_exists(gw_path_join(&a, path, SINGLE)) ||
              gw_path_exists(gw_path_join(&a, path, INDEX)));
    gw_arena_release(&a);
    return is;
}
