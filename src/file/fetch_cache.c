// SPDX-License-Identifier: Apache-2.0
// Local copies of what was fetched: a directory of files that several processes share.
//
// A file holds the bytes of one item and behind them a trailer with their length, their hash and
// the identity of the item (store, key, range and expected hash, as one hash, which is the file's
// name too). A file is written under a temporary name and renamed when whole, so a reader sees all
// or nothing; should a crash leave a file with holes, the hash tells: whoever takes bytes from the
// cache compares it first. Nothing is synced, since losing a copy costs a fetch.
//
// The limit holds for the directory, not for a process: each keeps a running sum of what it saw and
// added, and when that passes the limit looks at the directory anew and removes the files that were
// used longest ago, until nine tenths remain, while it holds a lock file. A use sets the file's
// time. A file that is removed while another process has it mapped stays readable there until it is
// done.
//
// Objects are taken not to change under one name, as shards do not; where the caller gives a hash
// it is part of the identity, so a shard written anew is fetched anew.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"      /* gw_clock_wall */
#include "file/fetch_impl.h" /* the contract */

#define SUFFIX       ".gwcache"
#define TRAILER_MARK "GWCACHE1"

typedef struct trailer {
    char mark[8];
    int64_t bytes;
    gw_hash128 hash, identity;
} trailer;

struct fetch_cache {
    gw_arena arena;
    const char *dir;
    int64_t limit; /* 0: none */
    pthread_mutex_t lock;
    int64_t bytes; /* in the directory, as far as we know */
};

/* --- names ------------------------------------------------------------------------------------ */

static gw_hash128 identity_of(const gw_store *s, const gw_fetch_item *w) {
    gw_str text = {0};
    char hex[65];
    gw_hex(hex, w->digest, 32);
    gw_str_printf(&text, "%s\n%s\n%lld %lld %d %s", gw_store_get_url(s), w->key,
                  (long long)w->offset, (long long)w->bytes, (int)w->check, hex);
    gw_hash128 h = gw_hash128_of(text.data, text.len);
    gw_str_release(&text);
    return h;
}

static char *path_of(const fetch_cache *c, gw_hash128 id, gw_arena *a) {
    char hex[33];
    return gw_arena_printf(a, "%s/%s" SUFFIX, c->dir, gw_hash128_hex(hex, id));
}

/* --- what is there ---------------------------------------------------------------------------- */

typedef struct cached_file {
    const char *path;
    int64_t bytes;
    struct timespec used;
} cached_file;

typedef GW_VEC(cached_file) file_list;

static void look_at(fetch_cache *c, const char *name, gw_arena *a, file_list *out) {
    struct stat st;
    const char *path = gw_path_join(a, c->dir, name);
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if (gw_str_ends(name, SUFFIX)) {
        gw_vec_push(out, ((cached_file){path, st.st_size, st.st_mtim}));
    } else if (strstr(name, SUFFIX ".tmp-") && gw_clock_wall() - (double)st.st_mtim.tv_sec > 3600) {
        unlink(path); /* of a process that was killed */
    }
}

static int64_t list_files(fetch_cache *c, gw_arena *a, file_list *out) {
    int64_t sum = 0;
    DIR *d = opendir(c->dir);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) look_at(c, e->d_name, a, out);
    closedir(d);
    for (int64_t i = 0; i < out->count; i++) sum += out->items[i].bytes;
    return sum;
}

gw_status gw_fetch_cache_open(const char *dir, int64_t limit, fetch_cache **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(gw_dir_make(dir, dg));
    fetch_cache *c = gw_mem_zalloc(sizeof *c);
    file_list files = {0};
    gw_arena a = {0};
    c->dir = gw_arena_strdup(&c->arena, dir);
    c->limit = limit;
    pthread_mutex_init(&c->lock, NULL);
    c->bytes = list_files(c, &a, &files);
    gw_vec_release(&files);
    gw_arena_release(&a);
    *out = c;
    return GW_OK;
}

void gw_fetch_cache_close(fetch_cache *c) {
    if (!c) return;
    pthread_mutex_destroy(&c->lock);
    gw_arena_release(&c->arena);
    gw_mem_free(c);
}

/* --- finding ---------------------------------------------------------------------------------- */

static bool read_trailer(const gw_mapping *m, gw_hash128 id, trailer *t) {
    if (m->bytes < (int64_t)sizeof *t) return false;
    memcpy(t, m->data + m->bytes - (int64_t)sizeof *t, sizeof *t);
    return memcmp(t->mark, TRAILER_MARK, 8) == 0 && t->bytes == m->bytes - (int64_t)sizeof *t &&
           t->identity.lo == id.lo && t->identity.hi == id.hi;
}

bool gw_fetch_cache_find(fetch_cache *c, const gw_store *s, const gw_fetch_item *want,
                         gw_mapping *m, int64_t *bytes, gw_hash128 *hash) {
    gw_arena a = {0};
    gw_hash128 id = identity_of(s, want);
    const char *path = path_of(c, id, &a);
    trailer t;
    bool found = gw_path_exists(path) && gw_map_open(m, path, NULL) == GW_OK;
    if (found && (!read_trailer(m, id, &t) || (want->bytes >= 0 && t.bytes != want->bytes))) {
        if (m->bytes > 0) gw_map_release(m);
        unlink(path);
        found = false;
    }
    if (found) {
        *bytes = t.bytes;
        *hash = t.hash;
        utimensat(AT_FDCWD, path, NULL, 0);
    }
    gw_arena_release(&a);
    return found;
}

/* --- keeping ---------------------------------------------------------------------------------- */

static bool write_whole(int fd, const void *bytes, int64_t n) {
    return gw_fd_write_all(fd, bytes, n, "cache", NULL) == GW_OK;
}

static int by_use(const void *pa, const void *pb) {
    const cached_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->path, b->path);
}

/* Removes what was used longest ago. With the lock. */
static int64_t shrink(fetch_cache *c) {
    gw_arena a = {0};
    file_list files = {0};
    int64_t removed = 0;
    int fd = open(gw_path_join(&a, c->dir, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0) {
        c->bytes = list_files(c, &a, &files);
        if (files.count > 1) qsort(files.items, (size_t)files.count, sizeof *files.items, by_use);
        for (int64_t i = 0; i < files.count && c->bytes > c->limit; i++) {
            /* down to nine tenths, so that this is rare */
            for (; i < files.count && c->bytes > c->limit / 10 * 9; i++) {
                if (unlink(files.items[i].path) != 0) continue;
                c->bytes -= files.items[i].bytes;
                removed++;
            }
        }
    }
    if (fd >= 0) close(fd);
    gw_vec_release(&files);
    gw_arena_release(&a);
    return removed;
}

int64_t gw_fetch_cache_keep(fetch_cache *c, const gw_store *s, const gw_fetch_item *want,
                            const void *bytes, int64_t n) {
    gw_arena a = {0};
    gw_hash128 id = identity_of(s, want);
    char *tmp = NULL;
    int64_t whole = n + (int64_t)sizeof(trailer), removed = 0;
    const char *path = path_of(c, id, &a);
    trailer t = {.bytes = n, .hash = gw_hash128_of(bytes, (size_t)n), .identity = id};
    memcpy(t.mark, TRAILER_MARK, 8);
    int fd = c->limit > 0 && whole > c->limit ? -1 : gw_io_create_beside(&a, path, &tmp);
    if (fd >= 0) {
        bool ok = write_whole(fd, bytes, n) && write_whole(fd, &t, (int64_t)sizeof t);
        ok = close(fd) == 0 && ok;
        if (!ok || rename(tmp, path) != 0) {
            unlink(tmp);
            whole = 0;
        }
        pthread_mutex_lock(&c->lock);
        c->bytes += whole;
        if (c->limit > 0 && c->bytes > c->limit) removed = shrink(c);
        pthread_mutex_unlock(&c->lock);
    }
    gw_arena_release(&a);
    return removed;
}

void gw_fetch_cache_drop(fetch_cache *c, const gw_store *s, const gw_fetch_item *want) {
    gw_arena a = {0};
    unlink(path_of(c, identity_of(s, want), &a));
    gw_arena_release(&a);
}
