// SPDX-License-Identifier: Apache-2.0
// safetensors: the writers, of one file and of a sharded directory.
//
// The header stands before the data and holds every offset, so all tensors are declared first.
// `begin` then fixes the layout as the format's own writer does (widest dtype first, then name,
// header padded with spaces to 8 bytes, so every tensor is aligned to its element), sets the file
// to its full size, and from then on bytes may arrive in any order of tensors: each piece goes to
// its place by pwrite. Reserving the space first also means that a disk too small is noticed before
// anything is computed for it.
//
// Each tensor's bytes are hashed as they pass, so a manifest can vouch for what was handed over
// without reading the file again.
//
// Nothing is visible under the final name until finish has proven that every declared byte was
// written, synced the file and renamed it. A directory of several shards becomes visible through
// its index, which is written last; an index that was there before is removed first.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"          /* gw_dir_make, gw_dir_sync, gw_path_join */
#include "base/map.h"         /* gw_smap, GW_VEC */
#include "base/panic.h"       /* GW_ASSERT */
#include "file/json.h"        /* json_t, gw_json_write_file */
#include "file/safetensors.h" /* this module's contract */

typedef struct out_tensor {
    const char *name;
    gw_st_dtype dtype;
    int ndim;
    const int64_t *dims;
    int64_t bytes, offset, written;
    gw_hasher *hasher; /* while pieces are missing */
    gw_hash128 hash;   /* once complete */
} out_tensor;

struct gw_st_writer {
    gw_arena arena;
    const char *path, *tmp;
    GW_VEC(out_tensor) tensors;
    gw_smap by_name;
    json_t *metadata; /* object of strings */
    bool bad_metadata;
    int fd; /* -1 before begin and after finish */
    int64_t file_bytes;
};

static const int64_t max_tensor_bytes = INT64_C(1) << 62;

gw_st_writer *gw_st_writer_new(const char *path) {
    gw_st_writer *w = gw_mem_zalloc(sizeof *w);
    gw_arena_init(&w->arena);
    w->path = gw_arena_strdup(&w->arena, path);
    w->tmp = gw_arena_printf(&w->arena, "%s.tmp.%ld", path, (long)getpid());
    w->metadata = json_object();
    w->fd = -1;
    return w;
}

void gw_st_writer_free(gw_st_writer *w) {
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->tmp);
    }
    for (int64_t i = 0; i < w->tensors.count; i++) gw_hasher_free(w->tensors.items[i].hasher);
    json_decref(w->metadata);
    gw_vec_release(&w->tensors);
    gw_smap_release(&w->by_name);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

void gw_st_writer_metadata(gw_st_writer *w, const char *key, const char *value) {
    GW_ASSERT(w->fd < 0);
    if (json_object_set_new(w->metadata, key, json_string(value)) != 0) w->bad_metadata = true;
}

static gw_status refuse(const gw_st_writer *w, const char *name, const char *why, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->path},
                      "tensor '%s': %s", name, why);
}

static bool tensor_bytes(gw_st_dtype dtype, int ndim, const int64_t *dims, int64_t *out) {
    int64_t bits = gw_st_dtype_bits(dtype);
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(bits, dims[i], &bits)) return false;
    *out = bits / 8;
    return bits % 8 == 0 && *out <= max_tensor_bytes;
}

gw_status gw_st_writer_declare(gw_st_writer *w, const char *name, gw_st_dtype dtype, int ndim,
                               const int64_t *dims, gw_diags *dg) {
    GW_ASSERT(w->fd < 0 && ndim >= 0);
    uint32_t other;
    if (strcmp(name, "__metadata__") == 0) return refuse(w, name, "the name is reserved", dg);
    if (gw_smap_find_c(&w->by_name, name, &other)) return refuse(w, name, "declared twice", dg);
    out_tensor t = {.dtype = dtype, .ndim = ndim};
    if (!tensor_bytes(dtype, ndim, dims, &t.bytes))
        return refuse(w, name, "its size is negative, too large or not whole bytes", dg);
    t.name = gw_arena_strdup(&w->arena, name);
    t.dims = gw_arena_dup(&w->arena, dims, (int64_t)sizeof *dims * ndim);
    gw_smap_put_c(&w->by_name, t.name, (uint32_t)w->tensors.count);
    gw_vec_push(&w->tensors, t);
    return GW_OK;
}

/* --- layout and header -------------------------------------------------------------------------
 */

static int by_layout(const void *pa, const void *pb) {
    const out_tensor *a = pa, *b = pb;
    if (a->dtype != b->dtype) return a->dtype > b->dtype ? -1 : 1;
    return strcmp(a->name, b->name);
}

static json_t *header_entry(const out_tensor *t) {
    json_t *shape = json_array(), *offsets = json_array(), *e = json_object();
    for (int i = 0; i < t->ndim; i++) json_array_append_new(shape, json_integer(t->dims[i]));
    json_array_append_new(offsets, json_integer(t->offset));
    json_array_append_new(offsets, json_integer(t->offset + t->bytes));
    json_object_set_new(e, "dtype", json_string(gw_st_dtype_name(t->dtype)));
    json_object_set_new(e, "shape", shape);
    json_object_set_new(e, "data_offsets", offsets);
    return e;
}

/* Sorts the tensors, gives each its offset within the data area and returns that area's size. */
static gw_status lay_out(gw_st_writer *w, int64_t *data_bytes, gw_diags *dg) {
    int64_t at = 0;
    if (w->tensors.count > 0)
        qsort(w->tensors.items, (size_t)w->tensors.count, sizeof(out_tensor), by_layout);
    for (int64_t i = 0; i < w->tensors.count; i++) {
        out_tensor *t = &w->tensors.items[i];
        gw_smap_put_c(&w->by_name, t->name, (uint32_t)i);
        t->offset = at;
        if (__builtin_add_overflow(at, t->bytes, &at) || at > max_tensor_bytes)
            return refuse(w, t->name, "the file would be too large", dg);
    }
    *data_bytes = at;
    return GW_OK;
}

/* The header's text with its length before it and spaces after it. */
static gw_status make_header(gw_st_writer *w, gw_str *out, gw_diags *dg) {
    json_t *h = json_object();
    gw_status s = GW_OK;
    if (json_object_size(w->metadata) > 0) json_object_set(h, "__metadata__", w->metadata);
    for (int64_t i = 0; i < w->tensors.count && s == GW_OK; i++)
        if (json_object_set_new(h, w->tensors.items[i].name, header_entry(&w->tensors.items[i])) !=
            0)
            s = refuse(w, w->tensors.items[i].name, "its name is not UTF-8", dg);
    if (w->bad_metadata && s == GW_OK)
        s = gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->path},
                       "a metadata key or value is not UTF-8");
    char *text = s == GW_OK ? json_dumps(h, JSON_COMPACT) : NULL;
    json_decref(h);
    if (s != GW_OK) return s;
    uint64_t n = strlen(text), padded = (n + 7) / 8 * 8;
    if (padded <= 100000000) {
        gw_str_add_n(out, &padded, 8);
        gw_str_add_n(out, text, (size_t)n);
        while (out->len < 8 + padded) gw_str_add_char(out, ' ');
    } else {
        s = gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->path},
                       "the header would exceed 100,000,000 bytes; write more, smaller files");
    }
    free(text);
    return s;
}

static gw_status io_error(const gw_st_writer *w, const char *doing, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = w->path}, "cannot %s: %s",
                      doing, strerror(errno));
}

static gw_status pwrite_all(const gw_st_writer *w, const void *bytes, int64_t n, int64_t at,
                            gw_diags *dg) {
    const char *p = bytes;
    while (n > 0) {
        size_t want = n > (INT64_C(1) << 30) ? (size_t)1 << 30 : (size_t)n;
        ssize_t k = pwrite(w->fd, p, want, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return io_error(w, "write", dg);
        p += k;
        at += k;
        n -= k;
    }
    return GW_OK;
}

/* Gives the file its full size, with blocks behind it where the file system can. */
static gw_status reserve(const gw_st_writer *w, gw_diags *dg) {
    if (fallocate(w->fd, 0, 0, (off_t)w->file_bytes) == 0) return GW_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        if (ftruncate(w->fd, (off_t)w->file_bytes) == 0) return GW_OK;
    return io_error(w, "reserve space for the file", dg);
}

gw_status gw_st_writer_begin(gw_st_writer *w, gw_diags *dg) {
    GW_ASSERT(w->fd < 0);
    int64_t data_bytes = 0;
    gw_str header = {0};
    GW_TRY(lay_out(w, &data_bytes, dg));
    gw_status s = make_header(w, &header, dg);
    if (s == GW_OK) {
        for (int64_t i = 0; i < w->tensors.count; i++) {
            out_tensor *t = &w->tensors.items[i];
            t->offset += (int64_t)header.len;
            if (t->bytes == 0) t->hash = gw_hash128_of("", 0);
        }
        w->file_bytes = (int64_t)header.len + data_bytes;
        w->fd = open(w->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (w->fd < 0) s = io_error(w, "create the file", dg);
    }
    if (s == GW_OK) s = reserve(w, dg);
    if (s == GW_OK) s = pwrite_all(w, header.data, (int64_t)header.len, 0, dg);
    gw_str_release(&header);
    return s;
}

/* --- data --------------------------------------------------------------------------------------
 */

static out_tensor *find(const gw_st_writer *w, const char *name) {
    uint32_t i;
    return gw_smap_find_c(&w->by_name, name, &i) ? &w->tensors.items[i] : NULL;
}

gw_status gw_st_writer_put(gw_st_writer *w, const char *name, const void *bytes, int64_t n,
                           gw_diags *dg) {
    GW_ASSERT(w->fd >= 0 && n >= 0);
    out_tensor *t = find(w, name);
    if (!t) return refuse(w, name, "was not declared", dg);
    if (n > t->bytes - t->written) return refuse(w, name, "more bytes than declared", dg);
    GW_TRY(pwrite_all(w, bytes, n, t->offset + t->written, dg));
    if (n == 0) return GW_OK;
    if (n == t->bytes) {
        t->hash = gw_hash128_of(bytes, (size_t)n);
    } else {
        if (!t->hasher) t->hasher = gw_hasher_new();
        gw_hasher_add(t->hasher, bytes, (size_t)n);
    }
    t->written += n;
    if (t->written == t->bytes && t->hasher) {
        t->hash = gw_hasher_get(t->hasher);
        gw_hasher_free(t->hasher);
        t->hasher = NULL;
    }
    return GW_OK;
}

gw_hash128 gw_st_writer_hash(const gw_st_writer *w, const char *name) {
    const out_tensor *t = find(w, name);
    GW_ASSERT(t && t->written == t->bytes);
    return t->hash;
}

int64_t gw_st_writer_offset(const gw_st_writer *w, const char *name) {
    const out_tensor *t = find(w, name);
    GW_ASSERT(t && w->file_bytes > 0);
    return t->offset;
}

int64_t gw_st_writer_file_bytes(const gw_st_writer *w) { return w->file_bytes; }

/* Syncs the folder that holds `path`. */
static gw_status sync_parent(gw_arena *a, const char *path, gw_diags *dg) {
    const char *slash = strrchr(path, '/');
    if (!slash) return gw_dir_sync(".", dg);
    return gw_dir_sync(slash == path ? "/" : gw_arena_strndup(a, path, (size_t)(slash - path)), dg);
}

gw_status gw_st_writer_finish(gw_st_writer *w, gw_diags *dg) {
    GW_ASSERT(w->fd >= 0);
    for (int64_t i = 0; i < w->tensors.count; i++) {
        const out_tensor *t = &w->tensors.items[i];
        if (t->written < t->bytes) return refuse(w, t->name, "its bytes were not all written", dg);
    }
    if (fsync(w->fd) != 0) return io_error(w, "sync the file", dg);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 || rename(w->tmp, w->path) != 0) {
        gw_status s = io_error(w, "put the file in place", dg);
        unlink(w->tmp);
        return s;
    }
    return sync_parent(&w->arena, w->path, dg);
}

/* --- a directory of shards -----------------------------------------------------------------------
 */

typedef struct dir_tensor {
    const char *name;
    gw_st_dtype dtype;
    int ndim;
    const int64_t *dims;
    int64_t bytes;
    int shard;
} dir_tensor;

typedef struct dir_meta {
    const char *key, *value;
} dir_meta;

struct gw_st_dir_writer {
    gw_arena arena;
    const char *dir;
    int64_t max_bytes, total_bytes;
    GW_VEC(dir_tensor) tensors;
    GW_VEC(dir_meta) metadata;
    GW_VEC(gw_st_writer *) shards;
    gw_smap by_name;
};

gw_st_dir_writer *gw_st_dir_writer_new(const char *dir, int64_t max_shard_bytes) {
    gw_st_dir_writer *w = gw_mem_zalloc(sizeof *w);
    gw_arena_init(&w->arena);
    w->dir = gw_arena_strdup(&w->arena, dir);
    w->max_bytes = max_shard_bytes > 0 ? max_shard_bytes : INT64_MAX;
    return w;
}

void gw_st_dir_writer_free(gw_st_dir_writer *w) {
    if (!w) return;
    for (int64_t i = 0; i < w->shards.count; i++) gw_st_writer_free(w->shards.items[i]);
    gw_vec_release(&w->shards);
    gw_vec_release(&w->tensors);
    gw_vec_release(&w->metadata);
    gw_smap_release(&w->by_name);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

void gw_st_dir_writer_metadata(gw_st_dir_writer *w, const char *key, const char *value) {
    dir_meta m = {gw_arena_strdup(&w->arena, key), gw_arena_strdup(&w->arena, value)};
    gw_vec_push(&w->metadata, m);
}

gw_status gw_st_dir_writer_declare(gw_st_dir_writer *w, const char *name, gw_st_dtype dtype,
                                   int ndim, const int64_t *dims, gw_diags *dg) {
    GW_ASSERT(w->shards.count == 0 && ndim >= 0);
    gw_where where = {.file = w->dir};
    dir_tensor t = {.dtype = dtype, .ndim = ndim};
    uint32_t other;
    if (gw_smap_find_c(&w->by_name, name, &other))
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", where,
                          "tensor '%s': declared twice", name);
    if (!tensor_bytes(dtype, ndim, dims, &t.bytes) ||
        __builtin_add_overflow(w->total_bytes, t.bytes, &w->total_bytes))
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", where,
                          "tensor '%s': its size is negative, too large or not whole bytes", name);
    t.name = gw_arena_strdup(&w->arena, name);
    t.dims = gw_arena_dup(&w->arena, dims, (int64_t)sizeof *dims * ndim);
    gw_smap_put_c(&w->by_name, t.name, (uint32_t)w->tensors.count);
    gw_vec_push(&w->tensors, t);
    return GW_OK;
}

static const char *shard_name(gw_arena *a, int i, int n) {
    if (n == 1) return "model.safetensors";
    return gw_arena_printf(a, "model-%05d-of-%05d.safetensors", i + 1, n);
}

/* Fills shards in order of declaration; returns how many there are. */
static int assign_shards(gw_st_dir_writer *w) {
    int shard = 0;
    int64_t held = 0;
    for (int64_t i = 0; i < w->tensors.count; i++) {
        dir_tensor *t = &w->tensors.items[i];
        if (held > 0 && t->bytes > w->max_bytes - held) {
            shard++;
            held = 0;
        }
        t->shard = shard;
        held += t->bytes;
    }
    return shard + 1;
}

static gw_status refuse_other_form(gw_st_dir_writer *w, int nshards, gw_diags *dg) {
    const char *other = nshards == 1 ? "model.safetensors.index.json" : "model.safetensors";
    if (!gw_path_exists(gw_path_join(&w->arena, w->dir, other))) return GW_OK;
    return gw_fail_at(
        dg, GW_ERR_IO, "safetensors-stale", (gw_where){.file = w->dir},
        "the directory already holds %s, which readers would mix up with what is to be "
        "written; remove it or choose another directory",
        other);
}

gw_status gw_st_dir_writer_begin(gw_st_dir_writer *w, gw_diags *dg) {
    int n = assign_shards(w);
    GW_TRY(gw_dir_make(w->dir, dg));
    GW_TRY(refuse_other_form(w, n, dg));
    for (int i = 0; i < n; i++) {
        gw_st_writer *s =
            gw_st_writer_new(gw_path_join(&w->arena, w->dir, shard_name(&w->arena, i, n)));
        gw_vec_push(&w->shards, s);
        for (int64_t k = 0; k < w->metadata.count; k++)
            gw_st_writer_metadata(s, w->metadata.items[k].key, w->metadata.items[k].value);
    }
    for (int64_t i = 0; i < w->tensors.count; i++) {
        const dir_tensor *t = &w->tensors.items[i];
        GW_TRY(gw_st_writer_declare(w->shards.items[t->shard], t->name, t->dtype, t->ndim, t->dims,
                                    dg));
    }
    for (int i = 0; i < n; i++) GW_TRY(gw_st_writer_begin(w->shards.items[i], dg));
    return GW_OK;
}

gw_status gw_st_dir_writer_put(gw_st_dir_writer *w, const char *name, const void *bytes, int64_t n,
                               gw_diags *dg) {
    uint32_t i;
    if (!gw_smap_find_c(&w->by_name, name, &i))
        return gw_fail_at(dg, GW_ERR_FORMAT, "safetensors-write", (gw_where){.file = w->dir},
                          "tensor '%s': was not declared", name);
    return gw_st_writer_put(w->shards.items[w->tensors.items[i].shard], name, bytes, n, dg);
}

static gw_status write_index(gw_st_dir_writer *w, gw_diags *dg) {
    json_t *root = json_object(), *meta = json_object(), *map = json_object();
    json_object_set_new(meta, "total_size", json_integer(w->total_bytes));
    json_object_set_new(root, "metadata", meta);
    json_object_set_new(root, "weight_map", map);
    for (int64_t i = 0; i < w->tensors.count; i++) {
        const dir_tensor *t = &w->tensors.items[i];
        const char *file = shard_name(&w->arena, t->shard, (int)w->shards.count);
        json_object_set_new(map, t->name, json_string(file));
    }
    gw_status s = gw_json_write_file(
        gw_path_join(&w->arena, w->dir, "model.safetensors.index.json"), root, 2, dg);
    json_decref(root);
    return s;
}

gw_status gw_st_dir_writer_finish(gw_st_dir_writer *w, gw_diags *dg) {
    /* An old index goes first: a crash between two renames must not leave old and new mixed. */
    if (w->shards.count > 1)
        unlink(gw_path_join(&w->arena, w->dir, "model.safetensors.index.json"));
    for (int64_t i = 0; i < w->shards.count; i++)
        GW_TRY(gw_st_writer_finish(w->shards.items[i], dg));
    return w->shards.count > 1 ? write_index(w, dg) : GW_OK;
}
