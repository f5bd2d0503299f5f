// SPDX-License-Identifier: Apache-2.0
// A directory as an object store: keys are paths below it.
//
// Objects appear whole or not at all: each is written to a temporary name beside, synced, and then
// renamed, after which the directory is synced too, and so are directories that were made on the
// way. A put that must not replace anything ends in link(2) instead of rename(2), since link fails
// where the name is taken, on network file systems too; where a file system has no links,
// renameat2(RENAME_NOREPLACE) does the same.
//
// Listing follows the rules of an object store: a prefix is a piece of text, not a directory; keys
// come in the order of their bytes; directories as such are not listed (with `folders` they are the
// common prefixes). Names of unfinished writes, as base/io.c makes them, stay out.
//
// The ETag of a file is its size, time of change and inode: it tells a replaced file from the one
// that was there before.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"      /* gw_clock_wall */
#include "base/io.h"         /* gw_io_create_beside, gw_fd_pread_all */
#include "file/store_impl.h" /* gw_store_ops */

#define MAX_DEPTH 64

/* --- paths ------------------------------------------------------------------------------------ */

char *gw_store_dir_path(const gw_store *s, const char *key, gw_arena *a) {
    return gw_path_join(a, s->root, key);
}

static char *parent_of(gw_arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return gw_arena_strdup(a, ".");
    return slash == path ? gw_arena_strdup(a, "/")
                         : gw_arena_strndup(a, path, (size_t)(slash - path));
}

/* "x.tmp-123-9f-0", as gw_io_create_beside names them. */
static bool is_temporary(const char *name) {
    const char *t = NULL;
    for (const char *p = strstr(name, ".tmp-"); p; p = strstr(p + 1, ".tmp-")) t = p;
    if (!t) return false;
    t += strlen(".tmp-");
    size_t pid = strspn(t, "0123456789");
    if (pid == 0 || t[pid] != '-') return false;
    t += pid + 1;
    size_t clock = strspn(t, "0123456789abcdef");
    if (clock == 0 || t[clock] != '-') return false;
    t += clock + 1;
    size_t attempt = strspn(t, "0123456789");
    return attempt > 0 && t[attempt] == 0;
}

/* The directory of a key, made and synced where it is not there. */
static gw_status make_parents(const char *path, gw_arena *a, gw_diags *dg) {
    char *dir = parent_of(a, path);
    if (gw_path_is_dir(dir)) return GW_OK;
    GW_VEC(char *) made = {0};
    for (char *d = dir; !gw_path_is_dir(d); d = parent_of(a, d)) {
        gw_vec_push(&made, parent_of(a, d));
        if (strcmp(d, "/") == 0 || strcmp(d, ".") == 0) break;
    }
    gw_status st = gw_dir_make(dir, dg);
    for (int64_t i = made.count - 1; i >= 0 && st == GW_OK; i--)
        st = gw_dir_sync(made.items[i], dg);
    gw_vec_release(&made);
    return st;
}

static gw_status missing(const char *path, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "store-missing", (gw_where){0},
                             "there is no '%s'", path);
    gw_diag_hint(dg, g, "look at the directory and the name");
    return GW_ERR_IO;
}

static const char *etag_of(const struct stat *st, gw_arena *a) {
    return gw_arena_printf(a, "%lld-%lld.%09ld-%llx", (long long)st->st_size,
                           (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                           (unsigned long long)st->st_ino);
}

static gw_store_entry entry_of(const char *key, const struct stat *st, gw_arena *a) {
    return (gw_store_entry){.key = key,
                            .bytes = st->st_size,
                            .etag = etag_of(st, a),
                            .modified =
                                (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec * 1e-9};
}

/* --- listing ---------------------------------------------------------------------------------- */

/* What one name in a directory is, through links; false where it went meanwhile. */
static bool look(const char *path, struct stat *st) {
    return stat(path, st) == 0 && (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode));
}

static gw_status walk(gw_store_lister *l, const char *dir, const char *below, int depth,
                      gw_diags *dg);

static gw_status walk_name(gw_store_lister *l, const char *dir, const char *below, const char *name,
                           int depth, gw_diags *dg) {
    gw_arena *a = &l->page;
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || is_temporary(name)) return GW_OK;
    char *key = gw_arena_printf(a, "%s%s", below, name);
    size_t n = GW_MIN(strlen(key), strlen(l->prefix));
    if (strncmp(key, l->prefix, n) != 0) return GW_OK;
    char *path = gw_path_join(a, dir, name);
    if (!look(path, &st)) return GW_OK;
    bool inside = strlen(key) >= strlen(l->prefix);
    if (S_ISREG(st.st_mode)) {
        if (inside) gw_vec_push(&l->entries, entry_of(key, &st, a));
        return GW_OK;
    }
    key = gw_arena_printf(a, "%s/", key);
    if (l->folders && inside && strcmp(key, l->prefix) != 0) {
        gw_vec_push(&l->entries, ((gw_store_entry){.key = key, .is_folder = true, .etag = ""}));
        return GW_OK;
    }
    return walk(l, path, key, depth + 1, dg);
}

static gw_status walk(gw_store_lister *l, const char *dir, const char *below, int depth,
                      gw_diags *dg) {
    if (depth > MAX_DEPTH)
        return GW_FAIL(dg, GW_ERR_IO, "store-list",
                       "'%s' is nested deeper than %d directories: a link that leads back?", dir,
                       MAX_DEPTH);
    DIR *d = opendir(dir);
    if (!d && (errno == ENOENT || errno == ENOTDIR)) return GW_OK;
    if (!d) return gw_io_fail(dg, "file-open", "list", dir, errno);
    gw_status st = GW_OK;
    for (struct dirent *e; st == GW_OK && (errno = 0, e = readdir(d)) != NULL;)
        st = walk_name(l, dir, below, e->d_name, depth, dg);
    if (st == GW_OK && errno != 0) st = gw_io_fail(dg, "file-read", "list", dir, errno);
    closedir(d);
    return st;
}

static int by_key(const void *pa, const void *pb) {
    const gw_store_entry *a = pa, *b = pb;
    return strcmp(a->key, b->key);
}

static gw_status dir_list_page(gw_store *s, gw_store_lister *l, gw_diags *dg) {
    l->last_page = true;
    GW_TRY(walk(l, s->root, "", 0, dg));
    if (l->entries.count > 1)
        qsort(l->entries.items, (size_t)l->entries.count, sizeof *l->entries.items, by_key);
    return GW_OK;
}

static gw_status dir_stat(gw_store *s, const char *key, gw_arena *a, gw_store_entry *e, bool *found,
                          gw_diags *dg) {
    struct stat st;
    const char *path = gw_store_dir_path(s, key, a);
    *found = false;
    if (stat(path, &st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return GW_OK;
        return gw_io_fail(dg, "file-open", "look at", path, errno);
    }
    if (!S_ISREG(st.st_mode)) return GW_OK;
    *e = entry_of(gw_arena_strdup(a, key), &st, a);
    *found = true;
    return GW_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

static gw_status get_from(gw_store *s, int fd, const char *path, const char *etag, int64_t offset,
                          int64_t n, void *to, gw_arena *a, gw_diags *dg) {
    struct stat st;
    if (fstat(fd, &st) != 0) return gw_io_fail(dg, "file-read", "read", path, errno);
    if (*etag && strcmp(etag, etag_of(&st, a)) != 0)
        return gw_store_fail_changed(s, path, etag, etag_of(&st, a), dg);
    return gw_fd_pread_all(fd, to, n, offset, path, dg);
}

static gw_status dir_get(gw_store *s, const char *key, const char *etag, int64_t offset, int64_t n,
                         void *to, gw_diags *dg) {
    gw_arena a = {0};
    const char *path = gw_store_dir_path(s, key, &a);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    gw_status st;
    if (fd >= 0)
        st = get_from(s, fd, path, etag, offset, n, to, &a, dg);
    else if (errno == ENOENT || errno == ENOTDIR)
        st = missing(path, dg);
    else
        st = gw_io_fail(dg, "file-open", "open", path, errno);
    if (fd >= 0) close(fd);
    gw_arena_release(&a);
    return st;
}

static gw_status dir_read(gw_store *s, const char *key, int64_t max_bytes, gw_str *out,
                          gw_diags *dg) {
    gw_arena a = {0};
    const char *path = gw_store_dir_path(s, key, &a);
    gw_status st =
        gw_path_exists(path) ? gw_file_read(path, max_bytes, out, dg) : missing(path, dg);
    gw_arena_release(&a);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct dir_writer {
    gw_store_writer base;
    gw_arena arena;
    char *path, *tmp;
    int fd;
} dir_writer;

static gw_status writer_open(gw_store *s, const char *key, dir_writer **out, gw_diags *dg) {
    dir_writer *w = gw_mem_zalloc(sizeof *w);
    w->base.store = s;
    w->path = gw_store_dir_path(s, key, &w->arena);
    gw_status st = make_parents(w->path, &w->arena, dg);
    w->fd = st == GW_OK ? gw_io_create_beside(&w->arena, w->path, &w->tmp) : -1;
    if (st == GW_OK && w->fd < 0) st = gw_io_fail(dg, "file-create", "create", w->path, errno);
    if (st == GW_OK) {
        *out = w;
    } else {
        gw_arena_release(&w->arena);
        gw_mem_free(w);
    }
    return st;
}

static void writer_free(dir_writer *w) {
    if (w->fd >= 0) close(w->fd);
    if (w->tmp) unlink(w->tmp);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

static gw_status sync_file(dir_writer *w, gw_diags *dg) {
    if (fsync(w->fd) != 0) return gw_io_fail(dg, "file-write", "sync", w->path, errno);
    int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 ? GW_OK : gw_io_fail(dg, "file-write", "write", w->path, errno);
}

static gw_status show_new(dir_writer *w, bool *won, gw_diags *dg) {
    *won = false;
    if (link(w->tmp, w->path) == 0) {
        *won = true;
        return GW_OK;
    }
    if (errno == EEXIST) return GW_OK;
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        return gw_io_fail(dg, "file-rename", "create", w->path, errno);
    if (renameat2(AT_FDCWD, w->tmp, AT_FDCWD, w->path, RENAME_NOREPLACE) == 0)
        *won = true;
    else if (errno != EEXIST)
        return gw_io_fail(dg, "file-rename", "create", w->path, errno);
    return GW_OK;
}

/* Syncs and shows under the final name. */
static gw_status writer_show(dir_writer *w, bool *won, gw_diags *dg) {
    GW_TRY(sync_file(w, dg));
    if (won) {
        GW_TRY(show_new(w, won, dg));
    } else {
        if (rename(w->tmp, w->path) != 0)
            return gw_io_fail(dg, "file-rename", "replace", w->path, errno);
        w->tmp = NULL;
    }
    return gw_dir_sync(parent_of(&w->arena, w->path), dg);
}

static gw_status dir_put(gw_store *s, const char *key, const void *bytes, int64_t n, bool *won,
                         gw_diags *dg) {
    dir_writer *w;
    GW_TRY(writer_open(s, key, &w, dg));
    gw_status st = gw_fd_write_all(w->fd, bytes, n, w->path, dg);
    if (st == GW_OK) st = writer_show(w, won, dg);
    writer_free(w);
    return st;
}

/* A directory has no versions that a file system would compare; its locks are flock's. */
static gw_status dir_put_over(gw_store *s, const char *key, const char *is, const void *bytes,
                              int64_t n, bool *won, char *now, gw_diags *dg) {
    (void)is, (void)bytes, (void)n, (void)won, (void)now;
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "store-read-only",
                   "cannot replace one version of '%s' in a directory",
                   gw_store_name(s, key, &s->arena));
}

static gw_status dir_write_open(gw_store *s, const char *key, int64_t expected,
                                gw_store_writer **out, gw_diags *dg) {
    dir_writer *w;
    (void)expected;
    GW_TRY(writer_open(s, key, &w, dg));
    w->base.impl = w;
    *out = &w->base;
    return GW_OK;
}

static gw_status dir_write(gw_store_writer *base, const void *bytes, int64_t n, gw_diags *dg) {
    dir_writer *w = base->impl;
    return gw_fd_write_all(w->fd, bytes, n, w->path, dg);
}

static gw_status dir_write_finish(gw_store_writer *base, gw_diags *dg) {
    dir_writer *w = base->impl;
    gw_status st = writer_show(w, NULL, dg);
    writer_free(w);
    return st;
}

static void dir_write_abort(gw_store_writer *base) { writer_free(base->impl); }

/* --- the rest --------------------------------------------------------------------------------- */

static gw_status dir_delete(gw_store *s, const char *key, gw_diags *dg) {
    gw_arena a = {0};
    const char *path = gw_store_dir_path(s, key, &a);
    gw_status st = GW_OK;
    if (unlink(path) == 0)
        st = gw_dir_sync(parent_of(&a, path), dg);
    else if (errno != ENOENT && errno != ENOTDIR)
        st = gw_io_fail(dg, "file-remove", "remove", path, errno);
    gw_arena_release(&a);
    return st;
}

static gw_status pump(int from, const char *from_path, dir_writer *w, gw_diags *dg) {
    enum { STEP = 1 << 20 };
    char *buffer = gw_mem_alloc(STEP);
    gw_status st = GW_OK;
    for (;;) {
        ssize_t k = read(from, buffer, STEP);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) st = gw_io_fail(dg, "file-read", "read", from_path, errno);
        if (k <= 0) break;
        st = gw_fd_write_all(w->fd, buffer, k, w->path, dg);
        if (st != GW_OK) break;
    }
    gw_mem_free(buffer);
    return st;
}

static gw_status dir_copy(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    gw_arena a = {0};
    dir_writer *w = NULL;
    const char *path = gw_store_dir_path(s, from, &a);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gw_status st = fd >= 0           ? writer_open(s, to, &w, dg)
                   : errno == ENOENT ? missing(path, dg)
                                     : gw_io_fail(dg, "file-open", "open", path, errno);
    if (st == GW_OK) st = pump(fd, path, w, dg);
    if (st == GW_OK) st = writer_show(w, NULL, dg);
    if (w) writer_free(w);
    if (fd >= 0) close(fd);
    gw_arena_release(&a);
    return st;
}

static gw_status dir_rename(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    gw_arena a = {0};
    const char *old = gw_store_dir_path(s, from, &a), *new = gw_store_dir_path(s, to, &a);
    gw_status st = make_parents(new, &a, dg);
    if (st == GW_OK && rename(old, new) != 0)
        st = errno == ENOENT ? missing(old, dg)
                             : gw_io_fail(dg, "file-rename", "rename", old, errno);
    if (st == GW_OK) st = gw_dir_sync(parent_of(&a, new), dg);
    if (st == GW_OK) st = gw_dir_sync(parent_of(&a, old), dg);
    gw_arena_release(&a);
    return st;
}

static void sweep_name(const char *dir, const char *name, const char *below, const char *prefix,
                       double before, int64_t *removed, gw_arena *a) {
    struct stat st;
    const char *path = gw_path_join(a, dir, name), *key = gw_arena_printf(a, "%s%s", below, name);
    if (!gw_str_starts(key, prefix) || lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if ((double)st.st_mtim.tv_sec <= before && unlink(path) == 0) ++*removed;
}

static gw_status sweep_dir(const char *dir, const char *below, const char *prefix, double before,
                           int depth, int64_t *removed, gw_arena *a, gw_diags *dg) {
    DIR *d = depth <= MAX_DEPTH ? opendir(dir) : NULL;
    if (!d) return GW_OK;
    gw_status st = GW_OK;
    for (struct dirent *e; st == GW_OK && (e = readdir(d)) != NULL;) {
        struct stat info;
        const char *path = gw_path_join(a, dir, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (is_temporary(e->d_name))
            sweep_name(dir, e->d_name, below, prefix, before, removed, a);
        else if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            st = sweep_dir(path, gw_arena_printf(a, "%s%s/", below, e->d_name), prefix, before,
                           depth + 1, removed, a, dg);
    }
    closedir(d);
    return st;
}

static gw_status dir_sweep(gw_store *s, const char *prefix, double older_than_s, int64_t *removed,
                           gw_diags *dg) {
    gw_arena a = {0};
    gw_status st =
        sweep_dir(s->root, "", prefix, gw_clock_wall() - older_than_s, 0, removed, &a, dg);
    gw_arena_release(&a);
    return st;
}

const gw_store_ops gw_store_directory_ops = {
    .list_page = dir_list_page,
    .stat = dir_stat,
    .get = dir_get,
    .read = dir_read,
    .put = dir_put,
    .put_over = dir_put_over,
    .write_open = dir_write_open,
    .write = dir_write,
    .write_finish = dir_write_finish,
    .write_abort = dir_write_abort,
    .delete = dir_delete,
    .copy = dir_copy,
    .rename = dir_rename,
    .sweep = dir_sweep,
};
