// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: read as bytes that may be anything, and committed.
//
// A manifest is bytes from a disk like any other: each number is checked for its range, each chunk
// for lying inside its tensor, the chunks of a tensor for being disjoint and the whole of it,
// before anything is allocated or read by them; file names must be plain, so that none leads out of
// the folder. It carries a hash of itself, so that an edit of a counter is seen like any other
// damage, and its step must be that of the folder's name: a folder that was renamed or copied over
// another is no checkpoint of the step it is called after.
//
// Tensors of one kind (the same matrix of every layer of a stage) are cut alike, so lists of chunks
// stand once, in "chunks", and tensors name theirs by its place. A chunk is a row of integers:
// file, start and size in each dimension, first element and count within that box.
//
// A file of an older checkpoint is named with that one's folder, which must be a sibling by our
// pattern, and the step of what it holds. It stands beside the folder that the manifest was read
// from, whatever name (".", a link) led there.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h" /* gw_clock_iso */
#include "base/io.h"    /* gw_path_join, gw_path_exists */
#include "base/str.h"   /* gw_parse_i64 */
#include "ckpt/checkpoint.h"
#include "ckpt/place.h"
#include "file/json.h"  /* gw_json_parse */
#include "file/store.h" /* gw_store_is_url */
#include "version.h"    /* GW_VERSION, GW_COMMIT */

enum { MAX_BYTES = 1 << 30, MAX_LISTS = 1 << 20, MAX_CHUNKS = 1 << 24, MAX_FILES = 1 << 24 };

/* ---- reading a manifest ---- */

typedef struct reader {
    const char *file;
    gw_arena *a;
    gw_diags *dg;
    gw_ckpt_manifest *m;
    gw_ckpt_chunks *lists;
    int *proved; /* [nlists]: the tensor whose dimensions a list was proved for, + 1 */
    int nlists;
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

/* A row of "chunks". */
static gw_status read_chunk(const reader *r, const json_t *row, int ndim, gw_ckpt_chunk *c) {
    int64_t x[3 + 2 * GW_MAX_DIMS];
    if (!read_ints(row, 3 + 2 * ndim, x))
        return bad(r, NULL, "a chunk is not a row of a file, a box and a stretch of it");
    if (x[0] >= r->m->nfiles) return bad(r, NULL, "a chunk names a file that is not listed");
    c->file = (int)x[0];
    c->piece.box.ndim = ndim;
    memcpy(c->piece.box.start, x + 1, sizeof *x * (size_t)ndim);
    memcpy(c->piece.box.size, x + 1 + ndim, sizeof *x * (size_t)ndim);
    c->piece.first = x[1 + 2 * ndim];
    c->piece.count = x[2 + 2 * ndim];
    return GW_OK;
}

/* "chunks": lists of rows. How many dimensions a list is of follows from the length of its rows. */
static gw_status read_lists(reader *r, const json_t *o) {
    const json_t *lists = json_object_get(o, "chunks");
    int64_t total = 0;
    if (!json_is_array(lists) || json_array_size(lists) > MAX_LISTS)
        return bad(r, NULL, "'chunks' is not a list");
    r->nlists = (int)json_array_size(lists);
    r->lists = gw_arena_new(r->a, gw_ckpt_chunks, r->nlists + 1);
    for (int k = 0; k < r->nlists; k++) {
        const json_t *rows = json_array_get(lists, (size_t)k);
        size_t n = json_array_size(rows), length = json_array_size(json_array_get(rows, 0));
        total += (int64_t)n;
        if (!json_is_array(rows) || total > MAX_CHUNKS)
            return bad(r, NULL, "a member of 'chunks' is not a list");
        if (n == 0) continue;
        if (length < 3 || length % 2 == 0 || length > 3 + 2 * GW_MAX_DIMS)
            return bad(r, NULL, "a chunk is not a row of a file, a box and a stretch of it");
        r->lists[k].n = (int)n;
        r->lists[k].items = gw_arena_new(r->a, gw_ckpt_chunk, (int64_t)n);
        for (size_t i = 0; i < n; i++)
            GW_TRY(read_chunk(r, json_array_get(rows, i), (int)(length - 3) / 2,
                              &r->lists[k].items[i]));
    }
    return GW_OK;
}

static int by_box(const void *a, const void *b) {
    const gw_piece *x = &((const gw_ckpt_chunk *)a)->piece, *y = &((const gw_ckpt_chunk *)b)->piece;
    for (int i = 0; i < x->box.ndim; i++) {
        if (x->box.start[i] != y->box.start[i]) return x->box.start[i] < y->box.start[i] ? -1 : 1;
        if (x->box.size[i] != y->box.size[i]) return x->box.size[i] < y->box.size[i] ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorted by box, do stretches of one box or two boxes overlap? Lists have few boxes, each in many
 * stretches. */
static bool overlapping(const gw_ckpt_chunk *c, int n, gw_arena *a) {
    gw_box *seen = gw_arena_new(a, gw_box, n), meet;
    int boxes = 0;
    for (int i = 0; i < n; i++) {
        const gw_piece *p = &c[i].piece;
        if (i > 0 && gw_box_equal(&c[i - 1].piece.box, &p->box)) {
            if (c[i - 1].piece.first + c[i - 1].piece.count > p->first) return true;
            continue;
        }
        for (int k = 0; k < boxes; k++)
            if (gw_box_meet(&seen[k], &p->box, &meet)) return true;
        seen[boxes++] = p->box;
    }
    return false;
}

/* Are the chunks of a list disjoint pieces of a tensor of these dimensions, and all of it? */
static gw_status check_cover(const reader *r, const gw_ckpt_entry_tensor *t) {
    int64_t elems = 0, whole = 1;
    const gw_ckpt_chunks *l = t->chunks;
    for (int i = 0; i < t->ndim; i++) whole *= t->dims[i];
    for (int i = 0; i < l->n; i++) {
        const gw_piece *p = &l->items[i].piece;
        if (p->box.ndim != t->ndim) return bad(r, t->name, "its chunks have other dimensions");
        for (int d = 0; d < t->ndim; d++)
            if (p->box.size[d] > t->dims[d] || p->box.start[d] > t->dims[d] - p->box.size[d])
                return bad(r, t->name, "a chunk's box lies outside the tensor");
        int64_t in = gw_box_elems(&p->box);
        if (p->count < 1 || p->first > in || p->count > in - p->first)
            return bad(r, t->name, "a chunk's stretch lies outside its box");
        elems += p->count;
    }
    if (elems > whole) return bad(r, t->name, "its chunks overlap");
    if (elems < whole) return bad(r, t->name, "its chunks are not all of it");
    return GW_OK;
}

/* One check for a list and a shape. */
static gw_status check_chunks(const reader *r, const gw_ckpt_entry_tensor *t) {
    gw_arena mem = {0};
    GW_TRY(check_cover(r, t));
    gw_ckpt_chunk *sorted =
        gw_arena_dup(&mem, t->chunks->items, t->chunks->n * (int64_t)sizeof *sorted);
    if (t->chunks->n > 1) qsort(sorted, (size_t)t->chunks->n, sizeof *sorted, by_box);
    bool overlaps = t->chunks->n > 1 && overlapping(sorted, t->chunks->n, &mem);
    gw_arena_release(&mem);
    return overlaps ? bad(r, t->name, "its chunks overlap") : GW_OK;
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
    memset(t->dims, 0, sizeof t->dims);
    t->ndim = (int)json_array_size(shape);
    int64_t bytes;
    if (!read_ints(shape, t->ndim, t->dims)) return bad(r, name, "its shape has a size below 0");
    gw_box whole = gw_box_whole(t->ndim, t->dims);
    if (!box_bytes(&whole, t->dtype, &bytes)) return bad(r, name, "its shape is too large");
    int64_t k;
    if (!gw_json_as_i64(chunks, &k) || k < 0 || k >= r->nlists)
        return bad(r, name, "its 'chunks' is not the number of a list");
    t->chunks = &r->lists[k];
    const gw_ckpt_entry_tensor *like = r->proved[k] ? &r->m->tensors[r->proved[k] - 1] : NULL;
    if (like && like->ndim == t->ndim && memcmp(like->dims, t->dims, sizeof t->dims) == 0)
        return GW_OK;
    r->proved[k] = (int)(t - r->m->tensors) + 1;
    return check_chunks(r, t);
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

static bool read_hex64(const json_t *v, uint64_t *out) {
    const char *s = json_string_value(v);
    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16) return false;
    *out = strtoull(s, NULL, 16);
    return true;
}

static bool read_finite(const json_t *v, double *out) {
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out);
}

/* Sums of logits; absent, of another number (of another rule, then) or empty: none. */
static gw_status read_sums(const reader *r, const json_t *probe, gw_ckpt_probe *p) {
    const json_t *sums = json_object_get(probe, "logits");
    if (json_array_size(sums) != GW_CKPT_SUMS) return GW_OK;
    for (int i = 0; i < GW_CKPT_SUMS; i++)
        if (!read_finite(json_array_get(sums, (size_t)i), &p->sum[i]))
            return bad(r, NULL, "a sum of the probe is not a number");
    if (!read_finite(json_object_get(probe, "spread"), &p->spread) || p->spread < 0)
        return bad(r, NULL, "the probe's 'spread' is not a number from 0");
    p->sums = GW_CKPT_SUMS;
    return GW_OK;
}

static gw_status read_probe(const reader *r, const json_t *o, gw_ckpt_probe *p) {
    const json_t *probe = NULL;
    *p = (gw_ckpt_probe){.bits = ""};
    GW_TRY(gw_json_get_object(o, "probe", &probe, r->file, r->dg));
    if (!probe) return GW_OK;
    if (!read_hex64(json_object_get(probe, "weights"), &p->weights) ||
        !read_hex64(json_object_get(probe, "states"), &p->states))
        return bad(r, NULL, "a digest of the probe is not 16 hexadecimal digits");
    GW_TRY(read_sums(r, probe, p));
    GW_TRY(need_text(r, probe, "bits", &p->bits));
    GW_TRY(gw_json_need_i64(probe, "tokens", &p->tokens, r->file, r->dg));
    GW_TRY(gw_json_get_bool(probe, "half", false, &p->half, r->file, r->dg));
    p->taken = true;
    return GW_OK;
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
    GW_TRY(need_text(r, part, "time", &m->time));
    return read_probe(r, o, &m->probe);
}

static bool plain(const char *name) {
    return name && *name && !strchr(name, '/') && name[0] != '.';
}

/* Of a file that another checkpoint wrote: its folder and the step of what it holds. */
static gw_status read_origin(const reader *r, const json_t *f, gw_ckpt_file *to) {
    const char *folder = json_string_value(json_object_get(f, "folder"));
    to->step = r->m->meta.step;
    if (!json_object_get(f, "folder")) return GW_OK;
    if (!folder || gw_checkpoint_step_of_name(folder) < 0)
        return bad(r, NULL, "a file's folder is not that of a checkpoint");
    to->folder = gw_arena_strdup(r->a, folder);
    to->step = gw_checkpoint_step_of_name(folder);
    return GW_OK;
}

static gw_status read_files(const reader *r, const json_t *o) {
    const json_t *files = json_object_get(o, "files");
    if (!json_is_array(files) || json_array_size(files) > MAX_FILES)
        return bad(r, NULL, "'files' is not a list");
    r->m->nfiles = (int)json_array_size(files);
    r->m->files = gw_arena_new(r->a, gw_ckpt_file, r->m->nfiles + 1);
    for (int i = 0; i < r->m->nfiles; i++) {
        const json_t *f = json_array_get(files, (size_t)i);
        gw_ckpt_file *to = &r->m->files[i];
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!plain(name)) return bad(r, NULL, "a file's name is not a plain one");
        to->name = gw_arena_strdup(r->a, name);
        GW_TRY(read_origin(r, f, to));
        if (!gw_json_as_i64(json_object_get(f, "bytes"), &to->bytes) || to->bytes < 0)
            return bad(r, NULL, "a file's 'bytes' is not a size");
        if (!read_hash(json_object_get(f, "xxh128"), &to->index))
            return bad(r, NULL, "a file's xxh128 is not 32 hexadecimal digits");
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
    if (version >= GW_CHECKPOINT_OLDEST && version <= GW_CHECKPOINT_VERSION) return GW_OK;
    gw_diag *g = gw_diag_add(
        r->dg, GW_ERROR, GW_ERR_UNSUPPORTED, "checkpoint-version", (gw_where){.file = r->file},
        "the checkpoint has format version %" PRId64 "; this program reads %d to %d", version,
        GW_CHECKPOINT_OLDEST, GW_CHECKPOINT_VERSION);
    gw_diag_hint(r->dg, g, "continue with the version of the program that wrote it");
    return GW_ERR_UNSUPPORTED;
}

static gw_status read_all(reader *r, const json_t *o) {
    const char *format = NULL;
    GW_TRY(gw_json_need_str(o, "format", &format, r->file, r->dg));
    if (strcmp(format, "gradwright-checkpoint") != 0)
        return bad(r, NULL, "this is no manifest of a gradwright checkpoint");
    GW_TRY(check_version(r, o));
    GW_TRY(read_meta(r, o));
    GW_TRY(check_self(r, o));
    GW_TRY(need_text(r, o, "plan", &r->m->plan));
    GW_TRY(read_files(r, o));
    GW_TRY(read_lists(r, o));
    r->proved = gw_arena_new(r->a, int, r->nlists + 1);
    const json_t *list = json_object_get(o, "tensors");
    if (!json_is_array(list)) return bad(r, NULL, "'tensors' is not a list");
    r->m->ntensors = (int)json_array_size(list);
    r->m->tensors = gw_arena_new(r->a, gw_ckpt_entry_tensor, r->m->ntensors + 1);
    for (int i = 0; i < r->m->ntensors; i++)
        GW_TRY(read_tensor(r, json_array_get(list, (size_t)i), &r->m->tensors[i]));
    return GW_OK;
}

static gw_status read_text(const char *file, gw_str *text, gw_diags *dg) {
    gw_place p;
    gw_status st = gw_place_open(&p, file, dg);
    if (st == GW_OK) st = gw_place_read_file(&p, file, MAX_BYTES, text, dg);
    gw_place_close(&p);
    return st;
}

/* "." and a link do not tell what stands beside the folder that they lead to. */
static const char *real_home(const char *path, gw_arena *a) {
    struct stat st;
    const char *slash = strrchr(path, '/'), *home = NULL;
    if (gw_store_is_url(path)) return NULL;
    bool plain_one = gw_checkpoint_step_of_name(slash ? slash + 1 : path) >= 0;
    if (plain_one && lstat(path, &st) == 0 && !S_ISLNK(st.st_mode)) return NULL;
    char *real = realpath(path, NULL);
    slash = real ? strrchr(real, '/') : NULL;
    if (slash) home = gw_arena_strndup(a, real, (size_t)(slash - real));
    free(real);
    return home;
}

gw_status gw_checkpoint_read(const char *path, gw_arena *a, gw_ckpt_manifest **out, gw_diags *dg) {
    reader r = {.a = a, .dg = dg, .file = gw_path_join(a, path, "manifest.json")};
    gw_str text = {0};
    json_t *o = NULL;
    r.m = gw_arena_new(a, gw_ckpt_manifest, 1);
    r.m->path = gw_arena_strdup(a, path);
    r.m->beside = real_home(path, a);
    gw_status st = read_text(r.file, &text, dg);
    if (st == GW_OK) st = gw_json_parse(gw_str_c(&text), text.len, r.file, &o, dg);
    gw_str_release(&text);
    if (st == GW_OK)
        st = json_is_object(o) ? read_all(&r, o) : bad(&r, NULL, "it is not an object");
    json_decref(o);
    if (st == GW_OK) *out = r.m;
    return st;
}

const char *gw_checkpoint_file_path(const gw_ckpt_manifest *m, int file, gw_arena *a) {
    const gw_ckpt_file *f = &m->files[file];
    if (!f->folder) return gw_path_join(a, m->path, f->name);
    if (m->beside) {
        const char *real = gw_arena_printf(a, "%s/%s/%s", m->beside, f->folder, f->name);
        if (gw_path_exists(real)) return real;
    }
    const char *slash = strrchr(m->path, '/');
    const char *home = slash ? gw_arena_strndup(a, m->path, (size_t)(slash - m->path)) : ".";
    return gw_arena_printf(a, "%s/%s/%s", home, f->folder, f->name);
}

/* ---- committing ---- */

static json_t *ints(const int64_t *x, int n) {
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(x[i]));
    return a;
}

static json_t *files_json(const gw_ckpt_manifest *m) {
    json_t *list = json_array();
    for (int i = 0; i < m->nfiles; i++) {
        char hash[33];
        gw_hash128_hex(hash, m->files[i].index);
        json_t *f = json_pack("{s:s, s:I, s:s}", "name", m->files[i].name, "bytes",
                              (json_int_t)m->files[i].bytes, "xxh128", hash);
        if (m->files[i].folder) json_object_set_new(f, "folder", json_string(m->files[i].folder));
        json_array_append_new(list, f);
    }
    return list;
}

static json_t *probe_json(const gw_ckpt_probe *p) {
    char weights[17], states[17];
    json_t *sums = json_array();
    for (int i = 0; i < p->sums; i++) json_array_append_new(sums, json_real(p->sum[i]));
    snprintf(weights, sizeof weights, "%016" PRIx64, p->weights);
    snprintf(states, sizeof states, "%016" PRIx64, p->states);
    return json_pack("{s:s, s:s, s:o, s:f, s:s, s:I, s:b}", "weights", weights, "states", states,
                     "logits", sums, "spread", p->spread, "bits", p->bits ? p->bits : "", "tokens",
                     (json_int_t)p->tokens, "half", p->half);
}

static json_t *chunk_json(const gw_ckpt_chunk *c) {
    const gw_piece *p = &c->piece;
    json_t *row = json_array();
    json_array_append_new(row, json_integer(c->file));
    for (int i = 0; i < p->box.ndim; i++) json_array_append_new(row, json_integer(p->box.start[i]));
    for (int i = 0; i < p->box.ndim; i++) json_array_append_new(row, json_integer(p->box.size[i]));
    json_array_append_new(row, json_integer(p->first));
    json_array_append_new(row, json_integer(p->count));
    return row;
}

static json_t *list_json(const gw_ckpt_chunks *l) {
    json_t *rows = json_array();
    for (int i = 0; i < l->n; i++) json_array_append_new(rows, chunk_json(&l->items[i]));
    return rows;
}

/* Lists are told apart by where they are in memory. */
static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (const gw_ckpt_chunks *const *)a;
    uintptr_t y = (uintptr_t) * (const gw_ckpt_chunks *const *)b;
    return x < y ? -1 : x > y;
}

static void tensors_json(const gw_ckpt_manifest *m, json_t *o) {
    gw_arena mem = {0};
    json_t *lists = json_array(), *tensors = json_array();
    const gw_ckpt_chunks **all = gw_arena_new(&mem, const gw_ckpt_chunks *, m->ntensors + 1);
    int n = 0;
    for (int i = 0; i < m->ntensors; i++) all[i] = m->tensors[i].chunks;
    qsort(all, (size_t)m->ntensors, sizeof *all, by_address);
    for (int i = 0; i < m->ntensors; i++)
        if (i == 0 || all[i] != all[i - 1]) all[n++] = all[i];
    for (int i = 0; i < n; i++) json_array_append_new(lists, list_json(all[i]));
    for (int i = 0; i < m->ntensors; i++) {
        const gw_ckpt_entry_tensor *t = &m->tensors[i];
        const gw_ckpt_chunks **at = bsearch(&t->chunks, all, (size_t)n, sizeof *all, by_address);
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype",
                                        gw_dtype_name(t->dtype), "shape", ints(t->dims, t->ndim),
                                        "chunks", (json_int_t)(at - all)));
    }
    json_object_set_new(o, "chunks", lists);
    json_object_set_new(o, "tensors", tensors);
    gw_arena_release(&mem);
}

static json_t *manifest_json(const gw_ckpt_manifest *c) {
    const gw_ckpt_meta *m = &c->meta;
    char time[32];
    json_t *commit = json_pack("{s:I, s:s, s:s}", "number", (json_int_t)m->number, "time",
                               gw_clock_iso(time, gw_clock_wall()), "program",
                               "gradwright " GW_VERSION " (commit " GW_COMMIT ")");
    json_t *scale = json_pack("{s:f, s:I, s:I}", "scale", m->loss_scale, "good_steps",
                              (json_int_t)m->good_steps, "bad_steps", (json_int_t)m->bad_steps);
    json_t *rng = json_pack("{s:s, s:I, s:s, s:s, s:s}", "generator", "philox4x32-10", "seed",
                            (json_int_t)m->seed, "weights", "tensor name, element", "dropout",
                            "op name, sample, batch, element", "order", "epoch, document");
    json_t *bits = json_pack("{s:I, s:s}", "threads", (json_int_t)m->threads, "isa", m->isa);
    json_t *o = json_pack("{s:s, s:i, s:o, s:I, s:I, s:I, s:I}", "format", "gradwright-checkpoint",
                          "version", GW_CHECKPOINT_VERSION, "commit", commit, "step",
                          (json_int_t)m->step, "batch", (json_int_t)m->batch, "next_sample",
                          (json_int_t)m->next_sample, "tokens", (json_int_t)m->tokens);
    json_object_set_new(o, "loss_scale", scale);
    json_object_set_new(o, "rng", rng);
    json_object_set_new(o, "tokenizer", json_string(m->tokenizer));
    json_object_set_new(o, "data", json_string(m->data));
    json_object_set_new(o, "valid", json_string(m->valid ? m->valid : ""));
    json_object_set_new(o, "model", json_string(m->model));
    json_object_set_new(o, "bits", bits);
    json_object_set_new(o, "config", json_string(m->config));
    if (m->probe.taken) json_object_set_new(o, "probe", probe_json(&m->probe));
    json_object_set_new(o, "plan", json_string(c->plan));
    json_object_set_new(o, "files", files_json(c));
    tensors_json(c, o);
    char hash[33];
    gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o));
    json_object_set_new(o, "manifest_xxh128", json_string(hash));
    return o;
}

gw_status gw_checkpoint_check(const gw_ckpt_meta *m, gw_diags *dg) {
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"step", m->step},     {"batch", m->batch},           {"next_sample", m->next_sample},
        {"tokens", m->tokens}, {"good_steps", m->good_steps}, {"bad_steps", m->bad_steps},
        {"seed", m->seed},     {"threads", m->threads}};
    for (size_t i = 0; i < GW_COUNT(counts); i++)
        if (counts[i].value < 0 || counts[i].value >= INT64_C(1) << 53)
            return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-manifest",
                           "a checkpoint cannot hold '%s' %" PRId64
                           ": it is not from 0 to 2^53 - 1",
                           counts[i].name, counts[i].value);
    if (m->step > m->batch)
        return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-manifest",
                       "a checkpoint cannot hold a 'step' that is more than 'batch'");
    if (!(m->loss_scale > 0 && m->loss_scale <= 0x1p53))
        return GW_FAIL(
            dg, GW_ERR_FORMAT, "checkpoint-manifest",
            "a checkpoint cannot hold a loss scale of %g: it is not above 0, at most 2^53",
            m->loss_scale);
    bool finite = isfinite(m->probe.spread);
    for (int i = 0; i < m->probe.sums; i++) finite = finite && isfinite(m->probe.sum[i]);
    if (!finite)
        return GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-manifest",
                       "a checkpoint cannot hold a probe that is not finite");
    return GW_OK;
}

/* JSON as it stands in the file. */
static gw_status write_manifest(const gw_ckpt_manifest *m, const json_t *o, gw_diags *dg) {
    gw_arena mem = {0};
    gw_place p;
    gw_str text = {0};
    const char *path = gw_path_join(&mem, m->path, "manifest.json");
    char *dump = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    gw_str_printf(&text, "%s\n", dump ? dump : "");
    free(dump);
    gw_status st = gw_place_open(&p, path, dg);
    if (st == GW_OK) st = gw_place_commit(&p, path, gw_str_c(&text), (int64_t)text.len, dg);
    gw_place_close(&p);
    gw_str_release(&text);
    gw_arena_release(&mem);
    return st;
}

gw_status gw_checkpoint_commit(const gw_ckpt_manifest *m, gw_diags *dg) {
    GW_TRY(gw_checkpoint_check(&m->meta, dg));
    gw_status st;
    json_t *o = manifest_json(m);
    /* What is not UTF-8 has no place in JSON: without it the manifest would not read back. */
    if (!json_object_get(o, "config") || !json_object_get(o, "model") ||
        json_array_size(json_object_get(o, "tensors")) != (size_t)m->ntensors)
        st = GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-text",
                     "a name or the run file is not UTF-8 text and cannot be saved");
    else
        st = write_manifest(m, o, dg);
    json_decref(o);
    return st;
}
