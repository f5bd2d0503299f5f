// SPDX-License-Identifier: Apache-2.0
// Finding, reading and trusting a checkpoint.
//
// A manifest is bytes from a disk like any other: each number is checked for its range, each chunk
// for lying inside its tensor and for having as many bytes as its box has elements, before anything
// is allocated or read by it; file names must be plain, so that none leads out of the folder.
//
// A manifest carries a hash of itself, so that an edit of a counter is seen like any other damage,
// and its step must be that of the folder's name: a folder that was renamed or copied over another
// is no checkpoint of the step it is called after. The data file has its step in its metadata too.
//
// Data is believed only with its hash. A chunk that is exactly what a target holds (the usual case:
// the same layout) is read into place and hashed there; otherwise it is read aside, checked, and
// the common box is copied. A target must be covered whole by chunks that do not overlap.
//
// Listing looks only at names and manifests: it does not read data, so a damaged data file shows at
// load, and the caller goes on to the checkpoint before.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"          /* gw_fd_pread_all, gw_path_join */
#include "base/map.h"         /* gw_smap */
#include "base/str.h"         /* gw_parse_i64 */
#include "file/json.h"        /* gw_json_read_file */
#include "file/safetensors.h" /* gw_st_open */
#include "train/checkpoint.h"

enum {
    PIECE = 4 << 20,    /* bytes read and hashed at a time */
    MAX_CHUNKS = 16384, /* of one tensor */
};

/* ---- listing ---- */

int64_t gw_checkpoint_step_of_name(const char *name) {
    int64_t step;
    if (!gw_str_starts(name, "step-") || strlen(name) < 13) return -1;
    for (const char *c = name + 5; *c; c++)
        if (*c < '0' || *c > '9') return -1;
    return gw_parse_i64(name + 5, &step) ? step : -1;
}

static int newest_first(const void *a, const void *b) {
    const gw_ckpt_found *x = a, *y = b;
    return x->step > y->step ? -1 : x->step < y->step;
}

static gw_ckpt_found look_at(const char *path, int64_t step, gw_arena *a) {
    gw_ckpt_found f = {.step = step, .path = path, .state = GW_CKPT_TORN};
    struct stat st;
    const char *manifest = gw_path_join(a, path, "manifest.json");
    if (lstat(manifest, &st) != 0 && errno == ENOENT) return f;
    gw_diags quiet;
    gw_diags_init(&quiet);
    gw_ckpt_manifest *m = NULL;
    f.state = GW_CKPT_COMPLETE;
    if (gw_checkpoint_read(path, a, &m, &quiet) != GW_OK) {
        f.state = GW_CKPT_DAMAGED;
        f.why = gw_arena_printf(a, "%s: %s", manifest, gw_diags_first_error(&quiet));
    }
    gw_diags_release(&quiet);
    return f;
}

gw_status gw_checkpoint_list(const char *run_dir, gw_arena *a, gw_ckpt_list *out, gw_diags *dg) {
    *out = (gw_ckpt_list){0};
    const char *all = gw_path_join(a, run_dir, "checkpoints");
    DIR *d = opendir(all);
    if (!d && errno == ENOENT) return GW_OK;
    if (!d)
        return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot read '%s': %s", all, strerror(errno));
    GW_VEC(gw_ckpt_found) found = {0};
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t step = gw_checkpoint_step_of_name(e->d_name);
        const char *path = gw_path_join(a, all, e->d_name);
        if (step >= 0 && gw_path_is_dir(path)) gw_vec_push(&found, look_at(path, step, a));
    }
    closedir(d);
    out->n = (int)found.count;
    if (out->n > 0) {
        qsort(found.items, (size_t)found.count, sizeof *found.items, newest_first);
        out->items = gw_arena_dup(a, found.items, found.count * (int64_t)sizeof *found.items);
    }
    gw_vec_release(&found);
    return GW_OK;
}

/* ---- reading a manifest ---- */

typedef struct reader {
    const char *file;
    gw_arena *a;
    gw_diags *dg;
    gw_ckpt_manifest *m;
} reader;

static gw_status bad(const reader *r, const char *tensor, const char *why) {
    if (!tensor)
        return gw_fail_at(r->dg, GW_ERR_FORMAT, "checkpoint-manifest", (gw_where){.file = r->file},
                          "%s", why);
    return gw_fail_at(r->dg, GW_ERR_FORMAT, "checkpoint-manifest", (gw_where){.file = r->file},
                      "tensor '%s': %s", tensor, why);
}

/* An array of n non-negative integers. */
static bool read_ints(const json_t *v, int n, int64_t *out) {
    if (!json_is_array(v) || json_array_size(v) != (size_t)n) return false;
    for (int i = 0; i < n; i++)
        if (!gw_json_as_i64(json_array_get(v, (size_t)i), &out[i]) || out[i] < 0) return false;
    return true;
}

static bool read_hash(const json_t *v, gw_hash128 *out) {
    const char *s = json_string_value(v);
    if (!s || strlen(s) != 32 || strspn(s, "0123456789abcdef") != 32) return false;
    char half[17] = {0};
    memcpy(half, s, 16);
    out->hi = strtoull(half, NULL, 16);
    out->lo = strtoull(s + 16, NULL, 16);
    return true;
}

static bool box_bytes(const gw_box *b, gw_dtype t, int64_t *bytes) {
    *bytes = gw_dtype_bits(t) / 8;
    for (int i = 0; i < b->ndim; i++)
        if (__builtin_mul_overflow(*bytes, b->size[i], bytes)) return false;
    return true;
}

static int file_index(const gw_ckpt_manifest *m, const char *name) {
    for (int i = 0; name && i < m->nfiles; i++)
        if (strcmp(m->files[i], name) == 0) return i;
    return -1;
}

static gw_status read_chunk(const reader *r, const json_t *o, const gw_ckpt_entry_tensor *t,
                            gw_ckpt_chunk *c) {
    const json_t *box = json_object_get(o, "box");
    int64_t bytes;
    c->box.ndim = t->ndim;
    if (!read_ints(json_object_get(box, "start"), t->ndim, c->box.start) ||
        !read_ints(json_object_get(box, "size"), t->ndim, c->box.size))
        return bad(r, t->name, "a chunk's box is not a start and a size in each dimension");
    for (int i = 0; i < t->ndim; i++)
        if (c->box.size[i] > t->dims[i] || c->box.start[i] > t->dims[i] - c->box.size[i])
            return bad(r, t->name, "a chunk's box lies outside the tensor");
    c->file = file_index(r->m, json_string_value(json_object_get(o, "file")));
    if (c->file < 0) return bad(r, t->name, "a chunk names a file that is not listed");
    if (!gw_json_as_i64(json_object_get(o, "offset"), &c->offset) || c->offset < 0 ||
        !gw_json_as_i64(json_object_get(o, "bytes"), &c->bytes) || c->bytes < 0 ||
        c->offset > INT64_MAX - c->bytes)
        return bad(r, t->name, "a chunk's byte range is not one");
    if (!box_bytes(&c->box, t->dtype, &bytes) || bytes != c->bytes)
        return bad(r, t->name, "a chunk's bytes are not those of its box");
    if (!read_hash(json_object_get(o, "xxh128"), &c->hash))
        return bad(r, t->name, "a chunk's xxh128 is not 32 hexadecimal digits");
    return GW_OK;
}

static gw_status read_tensor(const reader *r, const json_t *o, gw_ckpt_entry_tensor *t) {
    const char *name = NULL, *dtype = NULL;
    GW_TRY(gw_json_need_str(o, "name", &name, r->file, r->dg));
    GW_TRY(gw_json_need_str(o, "dtype", &dtype, r->file, r->dg));
    t->name = gw_arena_strdup(r->a, name);
    if (!gw_dtype_parse(dtype, &t->dtype)) return bad(r, name, "its dtype is not known");
    const json_t *shape = json_object_get(o, "shape"), *chunks = json_object_get(o, "chunks");
    if (!json_is_array(shape) || json_array_size(shape) > GW_MAX_DIMS)
        return bad(r, name, "its shape is not a list of at most 6 sizes");
    t->ndim = (int)json_array_size(shape);
    int64_t bytes;
    if (!read_ints(shape, t->ndim, t->dims)) return bad(r, name, "its shape has a size below 0");
    gw_box whole = gw_box_whole(t->ndim, t->dims);
    if (!box_bytes(&whole, t->dtype, &bytes)) return bad(r, name, "its shape is too large");
    if (!json_is_array(chunks) || json_array_size(chunks) > MAX_CHUNKS)
        return bad(r, name, "its chunks are not a list of at most 16384");
    t->nchunks = (int)json_array_size(chunks);
    t->chunks = gw_arena_new(r->a, gw_ckpt_chunk, t->nchunks);
    for (int i = 0; i < t->nchunks; i++)
        GW_TRY(read_chunk(r, json_array_get(chunks, (size_t)i), t, &t->chunks[i]));
    return GW_OK;
}

static gw_status need_text(const reader *r, const json_t *o, const char *key, const char **out) {
    const char *s = NULL;
    GW_TRY(gw_json_need_str(o, key, &s, r->file, r->dg));
    *out = gw_arena_strdup(r->a, s);
    return GW_OK;
}

/* Counters stay far from where sums of them overflow: 2^53 is also where JSON's readers end. */
static gw_status need_count(const reader *r, const json_t *o, const char *key, int64_t *out) {
    GW_TRY(gw_json_need_i64(o, key, out, r->file, r->dg));
    if (*out >= 0 && *out < (INT64_C(1) << 53)) return GW_OK;
    return gw_fail_at(r->dg, GW_ERR_FORMAT, "checkpoint-manifest", (gw_where){.file = r->file},
                      "'%s' is %" PRId64 ", not from 0 to 2^53 - 1", key, *out);
}

static gw_status need_object(const reader *r, const json_t *o, const char *key,
                             const json_t **out) {
    GW_TRY(gw_json_get_object(o, key, out, r->file, r->dg));
    if (*out) return GW_OK;
    return gw_fail_at(r->dg, GW_ERR_FORMAT, "checkpoint-manifest", (gw_where){.file = r->file},
                      "'%s' is missing", key);
}

static gw_status read_meta(const reader *r, const json_t *o) {
    gw_ckpt_meta *m = &r->m->meta;
    const json_t *part = NULL;
    GW_TRY(need_count(r, o, "step", &m->step));
    GW_TRY(need_count(r, o, "batch", &m->batch));
    GW_TRY(need_count(r, o, "next_sample", &m->next_sample));
    GW_TRY(need_count(r, o, "tokens", &m->tokens));
    GW_TRY(need_text(r, o, "tokenizer", &m->tokenizer));
    GW_TRY(need_text(r, o, "data", &m->data));
    GW_TRY(need_text(r, o, "valid", &m->valid));
    GW_TRY(need_text(r, o, "model", &m->model));
    GW_TRY(need_text(r, o, "config", &m->config));
    GW_TRY(need_object(r, o, "loss_scale", &part));
    GW_TRY(gw_json_need_f64(part, "scale", &m->loss_scale, r->file, r->dg));
    if (!(m->loss_scale > 0 && m->loss_scale <= 0x1p53))
        return bad(r, NULL, "the loss scale is not a number above 0, at most 2^53");
    if (m->step > m->batch) return bad(r, NULL, "'step' is more than 'batch'");
    GW_TRY(need_count(r, part, "good_steps", &m->good_steps));
    GW_TRY(need_count(r, part, "bad_steps", &m->bad_steps));
    GW_TRY(need_object(r, o, "rng", &part));
    GW_TRY(need_count(r, part, "seed", &m->seed));
    GW_TRY(need_object(r, o, "bits", &part));
    GW_TRY(need_count(r, part, "threads", &m->threads));
    GW_TRY(need_text(r, part, "isa", &m->isa));
    GW_TRY(need_object(r, o, "commit", &part));
    GW_TRY(need_count(r, part, "number", &m->number));
    return need_text(r, part, "time", &m->time);
}

static gw_status read_files(const reader *r, const json_t *o) {
    const json_t *files = json_object_get(o, "files");
    if (!json_is_array(files) || json_array_size(files) > 1000000)
        return bad(r, NULL, "'files' is not a list");
    r->m->nfiles = (int)json_array_size(files);
    r->m->files = gw_arena_new(r->a, const char *, r->m->nfiles);
    for (int i = 0; i < r->m->nfiles; i++) {
        const char *name = json_string_value(json_array_get(files, (size_t)i));
        if (!name || !*name || strchr(name, '/') || name[0] == '.')
            return bad(r, NULL, "a file's name is not a plain one");
        r->m->files[i] = gw_arena_strdup(r->a, name);
    }
    return GW_OK;
}

gw_hash128 gw_checkpoint_manifest_hash(const json_t *manifest) {
    json_t *rest = json_copy((json_t *)(uintptr_t)manifest); /* shallow: only its top changes */
    json_object_del(rest, "manifest_xxh128");
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    gw_hash128 h = gw_hash128_of(text ? text : "", text ? strlen(text) : 0);
    free(text);
    json_decref(rest);
    return h;
}

/* Is it as it was written, and under the name it was written to? */
static gw_status check_self(const reader *r, const json_t *o) {
    gw_hash128 said, is = gw_checkpoint_manifest_hash(o);
    if (!read_hash(json_object_get(o, "manifest_xxh128"), &said))
        return bad(r, NULL, "'manifest_xxh128' is not 32 hexadecimal digits");
    if (said.lo != is.lo || said.hi != is.hi)
        return bad(r, NULL, "it was changed: its hash is another than it says");
    const char *slash = strrchr(r->m->path, '/');
    int64_t named = gw_checkpoint_step_of_name(slash ? slash + 1 : r->m->path);
    if (named < 0 || named == r->m->meta.step) return GW_OK;
    return gw_fail_at(r->dg, GW_ERR_FORMAT, "checkpoint-manifest", (gw_where){.file = r->file},
                      "it is of step %" PRId64 ", its folder is named after step %" PRId64,
                      r->m->meta.step, named);
}

static gw_status check_version(const reader *r, const json_t *o) {
    int64_t version = 0;
    GW_TRY(gw_json_need_i64(o, "version", &version, r->file, r->dg));
    if (version == GW_CHECKPOINT_VERSION) return GW_OK;
    gw_diag *g = gw_diag_add(r->dg, GW_ERROR, GW_ERR_UNSUPPORTED, "checkpoint-version",
                             (gw_where){.file = r->file},
                             "the checkpoint has format version %" PRId64 "; this program reads %d",
                             version, GW_CHECKPOINT_VERSION);
    gw_diag_hint(r->dg, g, "continue with the version of the program that wrote it");
    return GW_ERR_UNSUPPORTED;
}

static gw_status read_all(const reader *r, const json_t *o) {
    const char *format = NULL;
    GW_TRY(gw_json_need_str(o, "format", &format, r->file, r->dg));
    if (strcmp(format, "gradwright-checkpoint") != 0)
        return bad(r, NULL, "this is no manifest of a gradwright checkpoint");
    GW_TRY(check_version(r, o));
    GW_TRY(read_meta(r, o));
    GW_TRY(check_self(r, o));
    GW_TRY(read_files(r, o));
    const json_t *list = json_object_get(o, "tensors");
    if (!json_is_array(list)) return bad(r, NULL, "'tensors' is not a list");
    r->m->ntensors = (int)json_array_size(list);
    r->m->tensors = gw_arena_new(r->a, gw_ckpt_entry_tensor, r->m->ntensors);
    for (int i = 0; i < r->m->ntensors; i++)
        GW_TRY(read_tensor(r, json_array_get(list, (size_t)i), &r->m->tensors[i]));
    return GW_OK;
}

gw_status gw_checkpoint_read(const char *path, gw_arena *a, gw_ckpt_manifest **out, gw_diags *dg) {
    reader r = {.a = a, .dg = dg, .file = gw_path_join(a, path, "manifest.json")};
    r.m = gw_arena_new(a, gw_ckpt_manifest, 1);
    r.m->path = gw_arena_strdup(a, path);
    json_t *o = NULL;
    GW_TRY(gw_json_read_file(r.file, 0, &o, dg));
    gw_status st = json_is_object(o) ? read_all(&r, o) : bad(&r, NULL, "it is not an object");
    json_decref(o);
    if (st == GW_OK) *out = r.m;
    return st;
}

/* ---- loading ---- */

typedef struct load {
    const gw_ckpt_manifest *m;
    int *fds; /* [nfiles], -1 = not open */
    gw_hasher *hasher;
    gw_arena mem;
    gw_diags *dg;
} load;

/* A data file tells its step too. */
static gw_status check_step(load *l, const char *path) {
    gw_st_set *set = NULL;
    GW_TRY(gw_st_open(path, &set, l->dg));
    const char *text = gw_st_metadata(set, "gradwright.step");
    int64_t step = -1;
    bool same = text && gw_parse_i64(text, &step) && step == l->m->meta.step;
    gw_st_free(set);
    if (same) return GW_OK;
    return GW_FAIL(l->dg, GW_ERR_FORMAT, "checkpoint-damaged",
                   "'%s' holds data of step %" PRId64 ", its manifest is of step %" PRId64, path,
                   step, l->m->meta.step);
}

static gw_status open_file(load *l, int i) {
    if (l->fds[i] >= 0) return GW_OK;
    const char *path = gw_path_join(&l->mem, l->m->path, l->m->files[i]);
    l->fds[i] = open(path, O_RDONLY | O_CLOEXEC);
    if (l->fds[i] < 0)
        return GW_FAIL(l->dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", path,
                       strerror(errno));
    return check_step(l, path);
}

/* Reads a chunk to dst and compares its hash. */
static gw_status read_verified(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                               char *dst) {
    GW_TRY(open_file(l, c->file));
    const char *file = gw_path_join(&l->mem, l->m->path, l->m->files[c->file]);
    gw_hasher_reset(l->hasher);
    for (int64_t at = 0; at < c->bytes; at += PIECE) {
        int64_t n = GW_MIN(c->bytes - at, (int64_t)PIECE);
        gw_status st = gw_fd_pread_all(l->fds[c->file], dst + at, n, c->offset + at, file, l->dg);
        if (st != GW_OK) {
            gw_diag_frame(l->dg, "reading tensor '%s' of %s", t->name, l->m->path);
            return st;
        }
        gw_hasher_add(l->hasher, dst + at, (size_t)n);
    }
    gw_hash128 h = gw_hasher_get(l->hasher);
    if (h.lo == c->hash.lo && h.hi == c->hash.hi) return GW_OK;
    gw_diag *g = gw_diag_add(l->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-damaged", (gw_where){0},
                             "%s is damaged: tensor '%s', bytes %" PRId64 " to %" PRId64
                             ", are not those that were saved",
                             file, t->name, c->offset, c->offset + c->bytes);
    gw_diag_hint(l->dg, g, "an earlier checkpoint of the run may be whole; look at the disk");
    return GW_ERR_FORMAT;
}

/* Elements that a target in parts holds. */
static int64_t held_elems(const gw_ckpt_tensor *to) {
    return gw_type_local_elems(to->parts, to->mesh, to->rank);
}

/* The elements of a chunk that a target in parts holds; the whole chunk is read, for its hash. */
static gw_status take_parts(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                            const gw_ckpt_tensor *to, int64_t *covered) {
    if (held_elems(to) == 0) return GW_OK;
    int64_t bytes = gw_dtype_bits(t->dtype) / 8, global, local, count;
    char *aside = gw_mem_alloc((size_t)c->bytes + 1);
    gw_status st = read_verified(l, t, c, aside);
    gw_held w;
    gw_held_begin(&w, to->parts, to->mesh, to->rank);
    while (st == GW_OK && gw_held_next(&w, &global, &local, &count))
        *covered += gw_box_copy_run((char *)to->data + local * bytes, global, count, t->dims, aside,
                                    &c->box, bytes);
    gw_mem_free(aside);
    return st;
}

static gw_status take_chunk(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_chunk *c,
                            const gw_ckpt_tensor *to, int64_t *covered) {
    gw_box part;
    if (to->parts) return take_parts(l, t, c, to, covered);
    if (!gw_box_meet(&c->box, &to->box, &part)) return GW_OK;
    *covered += gw_box_elems(&part);
    if (gw_box_equal(&c->box, &to->box)) return read_verified(l, t, c, to->data);
    char *aside = gw_mem_alloc((size_t)c->bytes + 1);
    gw_status st = read_verified(l, t, c, aside);
    if (st == GW_OK)
        gw_box_copy(to->data, &to->box, aside, &c->box, &part, gw_dtype_bits(t->dtype) / 8);
    gw_mem_free(aside);
    return st;
}

static bool overlapping(const gw_ckpt_entry_tensor *t) {
    gw_box part;
    for (int i = 0; i < t->nchunks; i++)
        for (int k = 0; k < i; k++)
            if (gw_box_meet(&t->chunks[i].box, &t->chunks[k].box, &part) && gw_box_elems(&part) > 0)
                return true;
    return false;
}

static gw_status mismatch(load *l, const char *name, const char *why) {
    gw_diag *g = gw_diag_add(l->dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-tensor", (gw_where){0},
                             "%s: tensor '%s' %s", l->m->path, name, why);
    gw_diag_hint(l->dg, g, "the checkpoint is of another model, optimizer or precision");
    return GW_ERR_FORMAT;
}

static gw_status load_one(load *l, const gw_ckpt_entry_tensor *t, const gw_ckpt_tensor *to) {
    if (t->dtype != to->dtype) return mismatch(l, to->name, "has another dtype there");
    if (t->ndim != to->ndim || memcmp(t->dims, to->dims, sizeof t->dims[0] * (size_t)t->ndim) != 0)
        return mismatch(l, to->name, "has another shape there");
    if (overlapping(t)) return mismatch(l, to->name, "has chunks that overlap");
    int64_t covered = 0;
    for (int i = 0; i < t->nchunks; i++) GW_TRY(take_chunk(l, t, &t->chunks[i], to, &covered));
    if (covered != (to->parts ? held_elems(to) : gw_box_elems(&to->box)))
        return mismatch(l, to->name, "is not there in full");
    return GW_OK;
}

static gw_status load_all(load *l, const gw_ckpt_tensor *tensors, int n) {
    gw_smap by_name = {0};
    for (int i = 0; i < l->m->ntensors; i++)
        gw_smap_put_c(&by_name, l->m->tensors[i].name, (uint32_t)i);
    gw_status st = GW_OK;
    for (int i = 0; st == GW_OK && i < n; i++) {
        uint32_t k;
        if (tensors[i].away) continue;
        if (!gw_smap_find_c(&by_name, tensors[i].name, &k))
            st = mismatch(l, tensors[i].name, "is not there");
        else
            st = load_one(l, &l->m->tensors[k], &tensors[i]);
    }
    gw_smap_release(&by_name);
    return st;
}

gw_status gw_checkpoint_load(const gw_ckpt_manifest *m, const gw_ckpt_tensor *tensors, int n,
                             gw_diags *dg) {
    load l = {.m = m, .dg = dg, .hasher = gw_hasher_new()};
    l.fds = gw_arena_new(&l.mem, int, m->nfiles + 1);
    for (int i = 0; i < m->nfiles; i++) l.fds[i] = -1;
    gw_status st = load_all(&l, tensors, n);
    for (int i = 0; i < m->nfiles; i++)
        if (l.fds[i] >= 0) close(l.fds[i]);
    gw_hasher_free(l.hasher);
    gw_arena_release(&l.mem);
    return st;
}
