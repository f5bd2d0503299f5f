// SPDX-License-Identifier: Apache-2.0
// The disk under a save.
//
// The executable has functions of its own in place of the C library's that change files; they make
// the system call themselves. So no thread of the code under test writes past them. (stdio does,
// and is used for nothing here.)
//
// What a power failure leaves is made from the list of calls by the rules that POSIX gives and no
// others. Bytes of a file are on the disk once it was synced; before, each write alone may be there
// or not. A name is there, or gone, once its directory was synced; before, each change of a name
// alone may have happened or not. A rename is one change. Syncing a file says nothing of its name.
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h" /* gw_arena */
#include "base/rng.h"   /* gw_rng_u64 */
#include "harness.h"

typedef enum kind { CREATE, WRITE, SIZE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, SYNC_DIR } kind;

typedef struct call {
    kind kind;
    char *path, *path2;
    int node; /* of a file */
    int64_t offset, bytes;
    char *data;
} call;

typedef struct disk {
    char root[PATH_MAX];
    bool on, dies, after;
    int64_t die_at, n, room;
    call *calls;
    int nodes;
    pthread_mutex_t lock;
} disk;
static disk d = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What is remembered lives until disk_end. */
static gw_arena kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void *keep(const void *bytes, size_t n) {
    pthread_mutex_lock(&kept_lock);
    void *p = gw_arena_dup(&kept, bytes, (int64_t)n);
    pthread_mutex_unlock(&kept_lock);
    return p;
}

static char *keep_text(const char *s) { return keep(s, strlen(s) + 1); }

// ------------------------------------------------------------------ the calls

static bool below(const char *path) {
    size_t n = strlen(d.root);
    return d.on && strncmp(path, d.root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static bool path_of(int fd, char out[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0 && below(out);
}

static void die(void) {
    (void)syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Before a call: its place in the list. */
static void before(void) {
    pthread_mutex_lock(&d.lock);
    if (d.dies && !d.after && d.n == d.die_at) die();
}

/* After it, if it did something: remembered. */
static void after(call c, bool done) {
    if (done) {
        if (d.n == d.room) {
            d.room = d.room ? 2 * d.room : 256;
            d.calls = realloc(d.calls, sizeof *d.calls * (size_t)d.room);
        }
        d.calls[d.n] = c;
        if (d.dies && d.after && d.n == d.die_at) die();
        d.n++;
    }
    pthread_mutex_unlock(&d.lock);
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    bool makes = (flags & O_CREAT) && below(path) && syscall(SYS_access, path, F_OK) != 0;
    if (!makes) return (int)syscall(SYS_openat, dir, path, flags, mode);
    before();
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode), e = errno;
    after((call){.kind = CREATE, .path = keep_text(path)}, fd >= 0);
    errno = e;
    return fd;
}

#define OPEN_LIKE(name)                                                                            \
    int name(const char *path, int flags, ...);                                                    \
    int name(const char *path, int flags, ...) {                                                   \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;                                    \
        va_end(ap);                                                                                \
        return opened(AT_FDCWD, path, flags, mode);                                                \
    }
OPEN_LIKE(open)
OPEN_LIKE(open64)

static ssize_t wrote(int fd, const void *bytes, size_t n, int64_t at) {
    char path[PATH_MAX];
    bool seen = path_of(fd, path);
    if (!seen && at < 0) return syscall(SYS_write, fd, bytes, n);
    if (!seen) return syscall(SYS_pwrite64, fd, bytes, n, at);
    before();
    int64_t offset = at < 0 ? (int64_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) : at;
    ssize_t k = at < 0 ? syscall(SYS_write, fd, bytes, n) : syscall(SYS_pwrite64, fd, bytes, n, at);
    int e = errno;
    call c = {.kind = WRITE, .path = keep_text(path), .offset = offset, .bytes = k};
    if (k > 0) {
        c.data = keep(bytes, (size_t)k);
    }
    after(c, k > 0);
    errno = e;
    return k;
}
ssize_t write(int fd, const void *bytes, size_t n) { return wrote(fd, bytes, n, -1); }
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return wrote(fd, bytes, n, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    return wrote(fd, bytes, n, at);
}

static int sized(int fd, int64_t bytes, long number) {
    char path[PATH_MAX];
    bool seen = path_of(fd, path);
    if (seen) before();
    int r = (int)(number == SYS_ftruncate ? syscall(number, fd, bytes)
                                          : syscall(number, fd, 0, (off_t)0, bytes));
    int e = errno;
    if (seen) after((call){.kind = SIZE, .path = keep_text(path), .bytes = bytes}, r == 0);
    errno = e;
    return r;
}
int ftruncate(int fd, off_t bytes) { return sized(fd, bytes, SYS_ftruncate); }
int ftruncate64(int fd, off64_t bytes) { return sized(fd, bytes, SYS_ftruncate); }
int fallocate(int fd, int mode, off_t at, off_t n) {
    CHECK(mode == 0 && at == 0);
    return sized(fd, n, SYS_fallocate);
}
int fallocate64(int fd, int mode, off64_t at, off64_t n) { return fallocate(fd, mode, at, n); }

static int synced(int fd, long number) {
    char path[PATH_MAX];
    struct stat st;
    bool seen = path_of(fd, path);
    if (seen) before();
    int r = (int)syscall(number, fd), e = errno;
    bool dir = seen && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    if (seen) after((call){.kind = dir ? SYNC_DIR : SYNC, .path = keep_text(path)}, r == 0);
    errno = e;
    return r;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

static int named(kind k, const char *path, const char *path2, mode_t mode) {
    bool seen = below(path);
    if (seen) before();
    int r = (int)(k == RENAME   ? syscall(SYS_rename, path, path2)
                  : k == UNLINK ? syscall(SYS_unlink, path)
                  : k == MKDIR  ? syscall(SYS_mkdir, path, mode)
                                : syscall(SYS_rmdir, path));
    int e = errno;
    if (seen)
        after((call){.kind = k, .path = keep_text(path), .path2 = path2 ? keep_text(path2) : NULL},
              r == 0);
    errno = e;
    return r;
}
int rename(const char *from, const char *to) { return named(RENAME, from, to, 0); }
int unlink(const char *path) { return named(UNLINK, path, NULL, 0); }
int mkdir(const char *path, mode_t mode) { return named(MKDIR, path, NULL, mode); }
int rmdir(const char *path) { return named(RMDIR, path, NULL, 0); }

void disk_watch(const char *root, int64_t die_at, bool die_after) {
    snprintf(d.root, sizeof d.root, "%s", root);
    d.dies = die_at >= 0;
    d.die_at = die_at;
    d.after = die_after;
    d.n = 0;
    d.on = true;
}

int64_t disk_calls(void) { return d.n; }

int64_t disk_unwatch(void) {
    d.on = false;
    return d.n;
}

// ------------------------------------------------------------------ what is left

enum { NAMES = 256, NODES = 512 };

typedef struct name {
    char *path; /* NULL: gone */
    int node;   /* of a file; -1 of a directory */
} name;

/* Names as they are for the program, and as they are on the disk; contents likewise. */
typedef struct content {
    char *data;
    int64_t bytes, room;
} content;
typedef struct world {
    name now[NAMES], durable[NAMES];
    int nnow, ndurable;
    content synced[NODES];
    int nodes;
} world;

static world start; /* of disk_begin */

static int find(const name *names, int n, const char *path) {
    for (int i = 0; i < n; i++)
        if (names[i].path && strcmp(names[i].path, path) == 0) return i;
    return -1;
}

static void add(name *names, int *n, const char *path, int node) {
    int i = find(names, *n, path);
    if (i < 0) {
        CHECK(*n < NAMES);
        i = (*n)++;
    }
    names[i] = (name){keep_text(path), node};
}

static void drop(name *names, int n, const char *path) {
    int i = find(names, n, path);
    if (i >= 0) names[i].path = NULL;
}

static void put(content *c, int64_t at, const char *data, int64_t n) {
    if (at + n > c->room) {
        c->data = realloc(c->data, (size_t)(at + n));
        memset(c->data + c->room, 0, (size_t)(at + n - c->room));
        c->room = at + n;
    }
    if (data) memcpy(c->data + at, data, (size_t)n);
    c->bytes = GW_MAX(c->bytes, at + n);
}

static void resize(content *c, int64_t bytes) {
    if (bytes > c->bytes)
        put(c, c->bytes, NULL, bytes - c->bytes);
    else
        c->bytes = bytes;
}

/* A change of names, on one of the two lists. What a moved directory holds moves with it. */
static void change(name *names, int *n, const call *c, int node) {
    switch (c->kind) {
    case CREATE: add(names, n, c->path, node); break;
    case MKDIR: add(names, n, c->path, -1); break;
    case UNLINK:
    case RMDIR: drop(names, *n, c->path); break;
    case RENAME: {
        size_t from = strlen(c->path);
        drop(names, *n, c->path2);
        for (int i = 0; i < *n; i++) {
            const char *p = names[i].path;
            if (!p || strncmp(p, c->path, from) != 0 || (p[from] && p[from] != '/')) continue;
            char to[PATH_MAX];
            snprintf(to, sizeof to, "%s%s", c->path2, p + from);
            names[i].path = keep_text(to);
        }
        break;
    }
    case WRITE:
    case SIZE:
    case SYNC:
    case SYNC_DIR: break;
    }
}

static bool changes_names(kind k) {
    return k == CREATE || k == MKDIR || k == UNLINK || k == RMDIR || k == RENAME;
}

static bool lies_in(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

static void read_tree(world *w, const char *dir) {
    DIR *dp = opendir(dir);
    if (!dp) return;
    for (struct dirent *e; (e = readdir(dp)) != NULL;) {
        char path[PATH_MAX + 300];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        CHECK(lstat(path, &st) == 0);
        if (S_ISDIR(st.st_mode)) {
            add(w->durable, &w->ndurable, path, -1);
            read_tree(w, path);
            continue;
        }
        int node = w->nodes++, fd = opened(AT_FDCWD, path, O_RDONLY, 0);
        char *data = malloc((size_t)st.st_size + 1);
        CHECK(node < NODES && fd >= 0 && read(fd, data, (size_t)st.st_size) == st.st_size);
        put(&w->synced[node], 0, data, st.st_size);
        free(data);
        add(w->durable, &w->ndurable, path, node);
        close(fd);
    }
    closedir(dp);
}

void disk_begin(const char *root) {
    memset(&start, 0, sizeof start);
    read_tree(&start, root);
    memcpy(start.now, start.durable, sizeof start.now);
    start.nnow = start.ndurable;
    disk_watch(root, -1, false);
}

static void remove_tree(const char *dir) {
    char line[PATH_MAX + 40];
    snprintf(line, sizeof line, "rm -rf '%s' && mkdir -p '%s'", dir, dir);
    CHECK(system(line) == 0);
}

/* Writes the names that are there below `to` instead of the root. */
static void lay_out(const world *w, const content *contents, const char *to) {
    size_t root = strlen(d.root);
    for (int dirs = 1; dirs >= 0; dirs--)
        for (size_t depth = root; depth < PATH_MAX; depth++) /* parents first */
            for (int i = 0; i < w->ndurable; i++) {
                const name *m = &w->durable[i];
                char path[2 * PATH_MAX];
                if (!m->path || (m->node < 0) != (dirs == 1) || strlen(m->path) != depth) continue;
                snprintf(path, sizeof path, "%s%s", to, m->path + root);
                if (m->node < 0) {
                    (void)mkdir(path, 0777);
                    continue;
                }
                int fd = opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
                if (fd < 0) continue; /* its directory is not there: it cannot be reached */
                const content *c = &contents[m->node];
                CHECK(wrote(fd, c->data ? c->data : "", (size_t)c->bytes, -1) == c->bytes);
                close(fd);
            }
}

typedef struct pending {
    int64_t call;
    int node;
} pending;

void disk_after_failure(const char *to, int64_t calls, uint64_t seed) {
    world *w = malloc(sizeof *w);
    pending *names = calloc((size_t)calls + 1, sizeof *names);
    pending *bytes = calloc((size_t)calls + 1, sizeof *bytes);
    int64_t nnames = 0, nbytes = 0;
    gw_rng_key key = gw_rng_key_named(seed, "power");
    *w = start;
    for (int i = 0; i < start.nodes; i++) {
        w->synced[i] = (content){0};
        put(&w->synced[i], 0, start.synced[i].data, start.synced[i].bytes);
    }
    for (int64_t k = 0; k < calls; k++) {
        const call *c = &d.calls[k];
        int node = -1;
        if (changes_names(c->kind)) {
            if (c->kind == CREATE) node = w->nodes++;
            CHECK(w->nodes < NODES);
            if (c->kind == CREATE) w->synced[node] = (content){0};
            change(w->now, &w->nnow, c, node);
            names[nnames++] = (pending){k, node};
        } else if (c->kind == WRITE || c->kind == SIZE) {
            int at = find(w->now, w->nnow, c->path);
            if (at >= 0) bytes[nbytes++] = (pending){k, w->now[at].node};
        } else if (c->kind == SYNC) {
            int at = find(w->now, w->nnow, c->path), left = 0;
            for (int64_t i = 0; i < nbytes; i++) {
                const call *b = &d.calls[bytes[i].call];
                if (at < 0 || bytes[i].node != w->now[at].node)
                    bytes[left++] = bytes[i];
                else if (b->kind == WRITE)
                    put(&w->synced[bytes[i].node], b->offset, b->data, b->bytes);
                else
                    resize(&w->synced[bytes[i].node], b->bytes);
            }
            nbytes = left;
        } else {
            int64_t left = 0;
            for (int64_t i = 0; i < nnames; i++) {
                const call *b = &d.calls[names[i].call];
                if (lies_in(b->path, c->path))
                    change(w->durable, &w->ndurable, b, names[i].node);
                else
                    names[left++] = names[i];
            }
            nnames = left;
        }
    }
    /* Each of the rest alone: there or not. Some seeds keep all, some none. */
    uint64_t odds = seed % 5 == 0 ? 0 : seed % 5 == 1 ? 100 : 50;
    for (int64_t i = 0; i < nnames; i++)
        if (gw_rng_u64(key, (uint64_t)i) % 100 < odds)
            change(w->durable, &w->ndurable, &d.calls[names[i].call], names[i].node);
    for (int64_t i = 0; i < nbytes; i++) {
        const call *b = &d.calls[bytes[i].call];
        if (gw_rng_u64(key, (uint64_t)(1000000 + i)) % 100 >= odds) continue;
        if (b->kind == WRITE)
            put(&w->synced[bytes[i].node], b->offset, b->data, b->bytes);
        else
            resize(&w->synced[bytes[i].node], b->bytes);
    }
    remove_tree(to);
    lay_out(w, w->synced, to);
    for (int i = 0; i < w->nodes; i++) free(w->synced[i].data);
    free(names);
    free(bytes);
    free(w);
}

void disk_end(void) {
    d.on = false;
    for (int i = 0; i < start.nodes; i++) free(start.synced[i].data);
    memset(&start, 0, sizeof start);
    free(d.calls);
    d.calls = NULL;
    d.n = d.room = 0;
    gw_arena_release(&kept);
}
