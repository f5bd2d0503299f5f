// SPDX-License-Identifier: Apache-2.0
// Checkpoints in an object store: s3://BUCKET/PREFIX.
//
// A store has no folders and no rename, and an object is there whole or not at all, so what a
// directory needs renames and syncs for comes for free: a file that is being written is a multipart
// upload that nobody sees before it is finished, and a commit is one put with the condition that
// nothing has the name (If-None-Match), which exactly one of several writers wins. A move copies,
// the manifest last, and then removes, the manifest first: at no time is a folder complete that is
// not whole.
//
// Each answer of a store is some tens of milliseconds away, so what will be read is told ahead
// (place_ahead.c). Of a file that will be opened its two ends are fetched, and stay with it while
// it is open: the first of their answers tells its size and version, so that opening waits for
// nobody.
//
// Keys are paths without "s3://BUCKET/".
#include <string.h>

#include "base/map.h" /* GW_VEC, gw_smap */
#include "ckpt/place.h"
#include "ckpt/place_ahead.h" /* gw_ahead */
#include "file/store.h"       /* gw_store */

enum { COPY_CHUNK = 16 << 20 };
#define COPY_LIMIT (INT64_C(5) << 30) /* the store copies larger objects only in parts */

static const char SCHEME[] = "s3://";

static bool takes(const char *path) { return gw_str_starts(path, SCHEME); }

/* "s3://bucket/a/b" -> "a/b"; "" for the bucket alone. */
static const char *key_of(const char *path) {
    const char *slash = strchr(path + strlen(SCHEME), '/');
    return slash ? slash + 1 : "";
}

typedef struct ends {
    int64_t head, tail; /* bytes that are told ahead of a file of so many */
    int64_t bytes;
} ends;

typedef struct bucket {
    gw_store *store;
    gw_ahead *ahead; /* NULL: nothing was told yet */
    gw_arena mem;
    gw_smap expected; /* keys of files that will be opened, in `ends` */
    GW_VEC(ends) ends;
} bucket;

static gw_store *store_of(void *state) { return ((bucket *)state)->store; }

static void close_bucket(void *state) {
    bucket *b = state;
    if (!b) return;
    gw_ahead_free(b->ahead);
    gw_store_free(b->store);
    gw_smap_release(&b->expected);
    gw_vec_release(&b->ends);
    gw_arena_release(&b->mem);
    gw_mem_free(b);
}

static gw_status open_bucket(const char *path, void **state, gw_diags *dg) {
    bucket *b = gw_mem_zalloc(sizeof *b);
    size_t n = strlen(SCHEME) + strcspn(path + strlen(SCHEME), "/");
    gw_status st = gw_store_open(gw_arena_strndup(&b->mem, path, n), NULL, &b->store, dg);
    if (st != GW_OK) {
        close_bucket(b);
        b = NULL;
    }
    *state = b;
    return st;
}

/* The prefix of what is in a folder: its key and a slash, nothing of the bucket itself. */
static const char *prefix_of(const char *folder, gw_arena *a) {
    const char *key = key_of(folder);
    size_t n = strlen(key);
    return n == 0 || key[n - 1] == '/' ? key : gw_arena_printf(a, "%s/", key);
}

static gw_status look(void *state, const char *path, gw_place_entry *out, gw_diags *dg) {
    gw_arena a = {0};
    gw_store_entry e;
    gw_store_lister *l = NULL;
    bool found = false;
    gw_status st =
        *key_of(path) ? gw_store_stat(store_of(state), key_of(path), &a, &e, &found, dg) : GW_OK;
    if (st == GW_OK && found) {
        out->kind = GW_PLACE_FILE;
        out->bytes = e.bytes;
    } else if (st == GW_OK) {
        st = gw_store_list_open(store_of(state), prefix_of(path, &a), true, &l, dg);
        if (st == GW_OK) st = gw_store_list_next(l, &e, &found, dg);
        if (st == GW_OK && found) out->kind = GW_PLACE_FOLDER;
        gw_store_list_close(l);
    }
    gw_arena_release(&a);
    return st;
}

/* "a/b/c" -> "c", "a/b/c/" -> "c". */
static const char *last_name(const char *key, gw_arena *a) {
    size_t n = strlen(key), end = n > 0 && key[n - 1] == '/' ? n - 1 : n, begin = end;
    while (begin > 0 && key[begin - 1] != '/') begin--;
    return gw_arena_strndup(a, key + begin, end - begin);
}

static gw_status list(void *state, const char *folder, gw_arena *a, gw_place_list *out,
                      gw_diags *dg) {
    gw_store_list l = {0};
    GW_TRY(gw_store_list_all(store_of(state), prefix_of(folder, a), true, a, &l, dg));
    out->items = gw_arena_new(a, gw_place_entry, l.count + 1);
    for (int64_t i = 0; i < l.count; i++) {
        const gw_store_entry *e = &l.entries[i];
        const char *name = last_name(e->key, a);
        if (!*name) continue; /* an object named like the folder, as some tools leave */
        out->items[out->n++] =
            (gw_place_entry){.name = name,
                             .kind = e->is_folder ? GW_PLACE_FOLDER : GW_PLACE_FILE,
                             .bytes = e->bytes};
    }
    return GW_OK;
}

static gw_status nothing(void *state, const char *folder, gw_diags *dg) {
    (void)state;
    (void)folder;
    (void)dg;
    return GW_OK;
}

/* ---- writing ---- */

typedef struct upload {
    gw_store_writer *w; /* NULL: finished, or given up */
} upload;

static gw_status create(void *state, const char *path, int64_t bytes, void **file, gw_diags *dg) {
    upload *u = gw_mem_zalloc(sizeof *u);
    gw_status st = gw_store_write_open(store_of(state), key_of(path), bytes, &u->w, dg);
    if (st != GW_OK) {
        gw_mem_free(u);
        u = NULL;
    }
    *file = u;
    return st;
}

static gw_status append(void *file, const void *bytes, int64_t n, gw_diags *dg) {
    upload *u = file;
    return gw_store_write(u->w, bytes, n, dg);
}

static gw_status finish(void *file, gw_diags *dg) {
    upload *u = file;
    gw_store_writer *w = u->w;
    u->w = NULL;
    return gw_store_write_finish(w, dg);
}

static void drop(void *file) {
    upload *u = file;
    if (!u) return;
    gw_store_write_abort(u->w);
    gw_mem_free(u);
}

/* ---- reading ---- */

typedef struct object {
    bucket *in;
    gw_arena a;
    const char *key, *etag; /* of the version that was there when it was opened */
    char *ends;             /* its first `head` bytes, then its last `tail`; NULL: not held */
    int64_t bytes, head, tail;
} object;

static void expect_open(void *state, const char *path, int64_t bytes, int64_t head, int64_t tail) {
    bucket *b = state;
    const char *key = gw_arena_strdup(&b->mem, key_of(path));
    head = GW_MIN(head, bytes);
    tail = GW_MIN(tail, bytes - head);
    if (head + tail == bytes) { /* all of it, at once */
        head = bytes;
        tail = 0;
    }
    if (head < 1 || head > GW_AHEAD_BYTES || tail > GW_AHEAD_BYTES) return;
    if (!b->ahead) b->ahead = gw_ahead_new(b->store);
    ends e = {.head = head, .tail = tail, .bytes = bytes};
    gw_smap_put_c(&b->expected, key, (uint32_t)b->ends.count);
    gw_vec_push(&b->ends, e);
    gw_ahead_tell(b->ahead, key, 0, head);
    gw_ahead_tell(b->ahead, key, bytes - tail, tail);
}

/* The ends of a file that was told ahead. False: it was not, or it is not as it was told. */
static bool take_ends(object *o) {
    uint32_t at;
    bool told = false;
    gw_ahead_object is = {.bytes = -1};
    bucket *b = o->in;
    if (!b->ahead || !gw_smap_find_c(&b->expected, o->key, &at)) return false;
    ends e = b->ends.items[at];
    char *bytes = gw_mem_alloc((size_t)(e.head + e.tail) + 1);
    gw_status st = gw_ahead_take(b->ahead, o->key, 0, e.head, bytes, &is, &told, NULL);
    bool here = st == GW_OK && told && is.bytes == e.bytes;
    if (here && e.tail > 0) {
        st = gw_ahead_take(b->ahead, o->key, e.bytes - e.tail, e.tail, bytes + e.head, NULL, &told,
                           NULL);
        here = st == GW_OK && told;
    }
    if (!here) {
        gw_mem_free(bytes);
        return false;
    }
    o->ends = bytes;
    o->bytes = e.bytes;
    o->head = e.head;
    o->tail = e.tail;
    o->etag = gw_arena_strdup(&o->a, is.etag);
    return true;
}

static void close_file(void *in) {
    object *o = in;
    gw_mem_free(o->ends);
    gw_arena_release(&o->a);
    gw_mem_free(o);
}

static gw_status open_file(void *state, const char *path, void **in, int64_t *bytes, gw_diags *dg) {
    object *o = gw_mem_zalloc(sizeof *o);
    gw_store_entry e;
    bool found = false;
    gw_status st = GW_OK;
    o->in = state;
    o->key = gw_arena_strdup(&o->a, key_of(path));
    if (!take_ends(o)) {
        st = gw_store_stat(o->in->store, o->key, &o->a, &e, &found, dg);
        if (st == GW_OK && !found)
            st = GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': there is no such object",
                         path);
        if (st == GW_OK) {
            o->etag = e.etag;
            o->bytes = e.bytes;
        }
    }
    if (st != GW_OK) {
        close_file(o);
        return st;
    }
    *bytes = o->bytes;
    *in = o;
    return GW_OK;
}

/* Where a range stands in what is held of the file; NULL: it is not held. */
static const char *held(const object *o, int64_t offset, int64_t n) {
    int64_t last = o->bytes - o->tail;
    if (!o->ends) return NULL;
    if (offset + n <= o->head) return o->ends + offset;
    return offset >= last && offset + n <= o->bytes ? o->ends + o->head + (offset - last) : NULL;
}

static gw_status read_range(void *in, void *dst, int64_t n, int64_t offset, gw_diags *dg) {
    const object *o = in;
    bool told = false;
    const char *here = held(o, offset, n);
    if (here) {
        memcpy(dst, here, (size_t)n);
        return GW_OK;
    }
    if (o->in->ahead) GW_TRY(gw_ahead_take(o->in->ahead, o->key, offset, n, dst, NULL, &told, dg));
    return told ? GW_OK : gw_store_get(o->in->store, o->key, o->etag, offset, n, dst, dg);
}

static void expect(void *in, int64_t offset, int64_t n) {
    object *o = in;
    if (o->tail > 0) { /* it was opened by them; the rest comes in ranges */
        gw_mem_free(o->ends);
        o->ends = NULL;
        o->head = o->tail = 0;
    }
    if (held(o, offset, n)) return;
    if (!o->in->ahead) o->in->ahead = gw_ahead_new(o->in->store);
    gw_ahead_tell(o->in->ahead, o->key, offset, n);
}

/* ---- what becomes true at once ---- */

static gw_status commit(void *state, const char *path, const void *bytes, int64_t n, gw_diags *dg) {
    bool won = false;
    GW_TRY(gw_store_put_new(store_of(state), key_of(path), bytes, n, &won, dg));
    if (won) return GW_OK;
    gw_status st = GW_FAIL(dg, GW_ERR_IO, "checkpoint-taken",
                           "'%s' is there already: another run has committed it", path);
    gw_diag_hint(dg, dg ? dg->last : NULL,
                 "two runs save into one place: give each its own checkpoint.dir");
    return st;
}

static gw_status remove_object(void *state, const char *path, gw_diags *dg) {
    return gw_store_delete(store_of(state), key_of(path), dg);
}

/* Larger objects go through this machine. */
static gw_status copy_through(gw_store *s, const gw_store_entry *e, const char *to, gw_diags *dg) {
    gw_store_writer *w = NULL;
    GW_TRY(gw_store_write_open(s, to, e->bytes, &w, dg));
    char *chunk = gw_mem_alloc(COPY_CHUNK);
    gw_status st = GW_OK;
    for (int64_t at = 0, n; st == GW_OK && at < e->bytes; at += n) {
        n = GW_MIN(e->bytes - at, (int64_t)COPY_CHUNK);
        st = gw_store_get(s, e->key, e->etag, at, n, chunk, dg);
        if (st == GW_OK) st = gw_store_write(w, chunk, n, dg);
    }
    gw_mem_free(chunk);
    if (st == GW_OK) return gw_store_write_finish(w, dg);
    gw_store_write_abort(w);
    return st;
}

static bool is_manifest(const char *key) { return gw_str_ends(key, "/manifest.json"); }

static gw_status move(void *state, const char *from, const char *to, gw_diags *dg) {
    gw_arena a = {0};
    gw_store_list l = {0};
    const char *old = prefix_of(from, &a), *new = prefix_of(to, &a);
    gw_status st = gw_store_list_all(store_of(state), old, false, &a, &l, dg);
    for (int manifests = 0; manifests < 2; manifests++)
        for (int64_t i = 0; i < l.count && st == GW_OK; i++) {
            const gw_store_entry *e = &l.entries[i];
            if (is_manifest(e->key) != (manifests == 1)) continue;
            const char *key = gw_arena_printf(&a, "%s%s", new, e->key + strlen(old));
            st = e->bytes < COPY_LIMIT ? gw_store_copy(store_of(state), e->key, key, dg)
                                       : copy_through(store_of(state), e, key, dg);
        }
    for (int others = 0; others < 2; others++)
        for (int64_t i = 0; i < l.count && st == GW_OK; i++)
            if (is_manifest(l.entries[i].key) != (others == 1))
                st = gw_store_delete(store_of(state), l.entries[i].key, dg);
    gw_arena_release(&a);
    return st;
}

const gw_place_type gw_place_s3 = {.name = "object store",
                                   .takes = takes,
                                   .open = open_bucket,
                                   .close = close_bucket,
                                   .look = look,
                                   .list = list,
                                   .make = nothing,
                                   .sync = nothing,
                                   .create = create,
                                   .append = append,
                                   .finish = finish,
                                   .drop = drop,
                                   .open_file = open_file,
                                   .read = read_range,
                                   .close_file = close_file,
                                   .far = true,
                                   .expect_open = expect_open,
                                   .expect = expect,
                                   .commit = commit,
                                   .remove = remove_object,
                                   .remove_folder = nothing,
                                   .move = move};
