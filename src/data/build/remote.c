// SPDX-License-Identifier: Apache-2.0
// Inputs behind URLs.
//
// A parser wants a file, and an archive that is fetched while it is parsed could not be told apart
// from a damaged one when the network fails. So a worker copies the object that it is about to read
// into the work folder, parses the copy, and removes it. The disk holds as many copies as there are
// workers. Retries, credentials and the refusal of an object that changed meanwhile are the store's
// matter.
#include "data/build/remote.h" /* this module's contract */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"   /* gw_hash64 */
#include "base/io.h"     /* gw_fd_write_all */
#include "base/map.h"    /* GW_VEC */
#include "base/str.h"    /* gw_str_glob */
#include "data/source.h" /* gw_source_kind_of_name */
#include "file/store.h"  /* gw_store */

enum { PIECE = 8 << 20 };

/* The store that holds an object (its folder's URL), and the object's key in it. */
static const char *split(gw_arena *a, const char *url, const char **key) {
    const char *slash = strrchr(url, '/');
    *key = slash + 1;
    return gw_arena_strndup(a, url, (size_t)(slash - url));
}

static gw_remote_object object_of(gw_arena *a, const char *url, const gw_store_entry *e) {
    const char *etag = e->etag ? e->etag : "";
    return (gw_remote_object){gw_arena_strdup(a, url), e->bytes, gw_hash64(etag, strlen(etag), 0)};
}

static gw_status find_one(const char *url, gw_arena *a, gw_remote_objects *out, gw_diags *dg) {
    const char *key;
    gw_store *s = NULL;
    gw_store_entry e = {0};
    bool found = false;
    GW_TRY(gw_store_open(split(a, url, &key), NULL, &s, dg));
    gw_status st = gw_store_stat(s, key, a, &e, &found, dg);
    gw_store_free(s);
    if (st == GW_OK && !found)
        st = GW_FAIL(dg, GW_ERR_IO, "data-input", "there is no object '%s'", url);
    if (st != GW_OK) return st;
    gw_remote_object *o = gw_arena_new(a, gw_remote_object, 1);
    *o = object_of(a, url, &e);
    *out = (gw_remote_objects){o, 1};
    return GW_OK;
}

/* s3://BUCKET/PATTERN: the list of what begins as the pattern does, and of that what matches. */
static gw_status find_many(const char *url, gw_arena *a, gw_remote_objects *out, gw_diags *dg) {
    const char *rest = url + strlen("s3://");
    size_t bucket = strcspn(rest, "/");
    const char *root = gw_arena_strndup(a, url, strlen("s3://") + bucket);
    const char *pattern = rest[bucket] ? rest + bucket + 1 : "";
    const char *prefix = gw_arena_strndup(a, pattern, strcspn(pattern, "*?"));
    bool glob = strpbrk(pattern, "*?") != NULL;
    gw_store *s = NULL;
    gw_store_list list = {0};
    GW_VEC(gw_remote_object) found = {0};
    GW_TRY(gw_store_open(root, NULL, &s, dg));
    gw_status st = gw_store_list_all(s, prefix, false, a, &list, dg);
    gw_store_free(s);
    for (int64_t i = 0; i < list.count && st == GW_OK; i++) {
        const gw_store_entry *e = &list.entries[i];
        bool takes =
            glob ? gw_str_glob(pattern, e->key) : gw_source_kind_of_name(e->key) != GW_SOURCE_AUTO;
        if (takes && !gw_str_ends(e->key, "/"))
            gw_vec_push(&found, object_of(a, gw_arena_printf(a, "%s/%s", root, e->key), e));
    }
    if (st == GW_OK && found.count == 0)
        st = GW_FAIL(dg, GW_ERR_IO, "data-input", "no object matches '%s'", url);
    *out = (gw_remote_objects){
        gw_arena_dup(a, found.items, found.count * (int64_t)sizeof *found.items), found.count};
    gw_vec_release(&found);
    return st;
}

gw_status gw_remote_find(const char *url, gw_arena *a, gw_remote_objects *out, gw_diags *dg) {
    bool many = gw_str_starts(url, "s3://") && (gw_str_ends(url, "/") || strpbrk(url, "*?"));
    *out = (gw_remote_objects){0};
    return many ? find_many(url, a, out, dg) : find_one(url, a, out, dg);
}

static gw_status copy(gw_store *s, const char *key, int64_t bytes, int fd, const char *path,
                      gw_diags *dg) {
    uint8_t *piece = gw_mem_alloc(PIECE);
    gw_status st = GW_OK;
    for (int64_t at = 0; at < bytes && st == GW_OK; at += PIECE) {
        int64_t n = GW_MIN(bytes - at, (int64_t)PIECE);
        st = gw_store_get(s, key, NULL, at, n, piece, dg);
        if (st == GW_OK) st = gw_fd_write_all(fd, piece, n, path, dg);
    }
    gw_mem_free(piece);
    return st;
}

gw_status gw_remote_fetch(const char *url, int64_t bytes, const char *path, gw_diags *dg) {
    gw_arena a;
    const char *key;
    gw_store *s = NULL;
    gw_arena_init(&a);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    gw_status st = fd < 0 ? gw_io_fail(dg, "file-create", "create", path, errno) : GW_OK;
    if (st == GW_OK) st = gw_store_open(split(&a, url, &key), NULL, &s, dg);
    if (st == GW_OK) st = copy(s, key, bytes, fd, path, dg);
    if (fd >= 0) close(fd);
    if (st != GW_OK && fd >= 0) unlink(path);
    gw_store_free(s);
    gw_arena_release(&a);
    return st;
}
