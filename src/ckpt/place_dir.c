// SPDX-License-Identifier: Apache-2.0
// Checkpoints in a directory.
//
// A file gets its full size first, so that a disk too small is told before anything is copied for
// it, and is then written as one sequential stream. Small pieces are gathered; large ones go as
// they come. Behind the writer the kernel is asked, every few megabytes, to begin writing what it
// has (sync_file_range): so the disk works while the next pieces are hashed, instead of waiting
// for the sync at the end to find everything still in memory. That call promises nothing and its
// failure is no error; what counts is the fsync.
//
// A name is made to last by syncing its directory. Temporary names carry the process id and are
// told from anybody else's by their form: NAME.tmp.PID.
//
// A file is opened for reading so that a pipe in its place is found to be one and not waited for.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"    /* gw_dir_make, gw_file_write_atomic */
#include "base/map.h"   /* GW_VEC */
#include "ckpt/place.h" /* this module's contract */

enum {
    GATHER = 1 << 20,      /* bytes that small pieces are gathered in */
    SMALL = GATHER / 4,    /* pieces below it are */
    BEHIND = 16 << 20,     /* bytes after which the kernel is asked to begin writing */
    STEP_BYTES = 256 << 20 /* of one call */
};

static bool takes(const char *path) {
    (void)path;
    return true;
}

static gw_status open_place(const char *path, void **state, gw_diags *dg) {
    (void)path;
    (void)dg;
    *state = NULL;
    return GW_OK;
}

static void close_place(void *state) { (void)state; }

/* ---- names ---- */

static gw_place_kind kind_of(const struct stat *st) {
    if (S_ISREG(st->st_mode)) return GW_PLACE_FILE;
    return S_ISDIR(st->st_mode) ? GW_PLACE_FOLDER : GW_PLACE_OTHER;
}

static gw_status look(void *state, const char *path, gw_place_entry *out, gw_diags *dg) {
    struct stat st;
    (void)state;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? GW_OK
                   : gw_io_fail(dg, "file-open", "look at", path, errno);
    out->link = S_ISLNK(st.st_mode);
    out->kind = GW_PLACE_OTHER; /* a link that leads nowhere */
    if (out->link && stat(path, &st) != 0) return GW_OK;
    out->kind = kind_of(&st);
    out->bytes = st.st_size;
    return GW_OK;
}

static gw_status list(void *state, const char *folder, gw_arena *a, gw_place_list *out,
                      gw_diags *dg) {
    GW_VEC(gw_place_entry) found = {0};
    gw_status st = GW_OK;
    gw_str path = {0};
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT) return GW_OK;
    if (!d)
        return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot read '%s': %s", folder, strerror(errno));
    for (struct dirent *e; st == GW_OK && (e = readdir(d)) != NULL;) {
        gw_place_entry one = {0};
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        gw_str_clear(&path);
        gw_str_printf(&path, "%s/%s", folder, e->d_name);
        st = look(state, gw_str_c(&path), &one, dg);
        one.name = gw_arena_strdup(a, e->d_name);
        if (one.kind != GW_PLACE_ABSENT) gw_vec_push(&found, one);
    }
    closedir(d);
    out->n = found.count;
    out->items = gw_arena_dup(a, found.items, found.count * (int64_t)sizeof *found.items);
    gw_vec_release(&found);
    gw_str_release(&path);
    return st;
}

static gw_status make(void *state, const char *folder, gw_diags *dg) {
    (void)state;
    return gw_dir_make(folder, dg);
}

static gw_status sync_names(void *state, const char *folder, gw_diags *dg) {
    (void)state;
    return gw_dir_sync(folder, dg);
}

static gw_status commit(void *state, const char *path, const void *bytes, int64_t n, gw_diags *dg) {
    (void)state;
    return gw_file_write_atomic(path, bytes, n, dg);
}

static gw_status remove_file(void *state, const char *path, gw_diags *dg) {
    (void)state;
    if (unlink(path) == 0 || errno == ENOENT) return GW_OK;
    return gw_io_fail(dg, "file-remove", "remove", path, errno);
}

static gw_status remove_folder(void *state, const char *path, gw_diags *dg) {
    (void)state;
    if (rmdir(path) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) return GW_OK;
    return gw_io_fail(dg, "file-remove", "remove", path, errno);
}

static gw_status move(void *state, const char *from, const char *to, gw_diags *dg) {
    (void)state;
    if (rename(from, to) == 0) return GW_OK;
    return GW_FAIL(dg, GW_ERR_IO, "file-rename", "cannot move '%s' to '%s': %s", from, to,
                   strerror(errno));
}

/* ---- a file that is written ---- */

typedef struct out_file {
    gw_arena mem;
    const char *path, *tmp;
    char *gather;
    int fd;                  /* -1 once it is closed */
    int64_t held, at, asked; /* gathered; written; of it, asked to be begun with */
} out_file;

static gw_status io_error(const out_file *f, const char *doing, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = f->path}, "cannot %s: %s",
                      doing, strerror(errno));
}

static void drop(void *file) {
    out_file *f = file;
    if (f->fd >= 0) {
        close(f->fd);
        unlink(f->tmp);
    }
    gw_mem_free(f->gather);
    gw_arena_release(&f->mem);
    gw_mem_free(f);
}

/* Its full size, with blocks behind it where the file system can. */
static gw_status reserve(const out_file *f, int64_t bytes, gw_diags *dg) {
    if (fallocate(f->fd, 0, 0, (off_t)bytes) == 0) return GW_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR || bytes == 0)
        if (ftruncate(f->fd, (off_t)bytes) == 0) return GW_OK;
    return io_error(f, "reserve space for the file", dg);
}

static gw_status create(void *state, const char *path, int64_t bytes, void **file, gw_diags *dg) {
    out_file *f = gw_mem_zalloc(sizeof *f);
    (void)state;
    f->path = gw_arena_strdup(&f->mem, path);
    f->tmp = gw_arena_printf(&f->mem, "%s.tmp.%ld", path, (long)getpid());
    f->gather = gw_mem_alloc(GATHER);
    f->fd = open(f->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    gw_status st = f->fd < 0 ? io_error(f, "create the file", dg) : reserve(f, bytes, dg);
    if (st != GW_OK)
        drop(f);
    else
        *file = f;
    return st;
}

static gw_status write_out(out_file *f, const void *bytes, int64_t n, gw_diags *dg) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t k = pwrite(f->fd, p, (size_t)GW_MIN(n, (int64_t)STEP_BYTES), (off_t)f->at);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = ENOSPC;
        if (k <= 0) return io_error(f, "write", dg);
        p += k;
        n -= k;
        f->at += k;
    }
    if (f->at - f->asked >= BEHIND) {
        (void)sync_file_range(f->fd, (off_t)f->asked, (off_t)(f->at - f->asked),
                              SYNC_FILE_RANGE_WRITE);
        f->asked = f->at;
    }
    return GW_OK;
}

static gw_status flush(out_file *f, gw_diags *dg) {
    int64_t n = f->held;
    f->held = 0;
    return write_out(f, f->gather, n, dg);
}

static gw_status append(void *file, const void *bytes, int64_t n, gw_diags *dg) {
    out_file *f = file;
    if (f->held + n > GATHER || n >= SMALL) GW_TRY(flush(f, dg));
    if (n >= SMALL) return write_out(f, bytes, n, dg);
    memcpy(f->gather + f->held, bytes, (size_t)n);
    f->held += n;
    return GW_OK;
}

static gw_status sync_parent(out_file *f, gw_diags *dg) {
    const char *slash = strrchr(f->path, '/');
    if (!slash) return gw_dir_sync(".", dg);
    if (slash == f->path) return gw_dir_sync("/", dg);
    return gw_dir_sync(gw_arena_strndup(&f->mem, f->path, (size_t)(slash - f->path)), dg);
}

static gw_status finish(void *file, gw_diags *dg) {
    out_file *f = file;
    GW_TRY(flush(f, dg));
    if (fsync(f->fd) != 0) return io_error(f, "sync the file", dg);
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0 || rename(f->tmp, f->path) != 0) {
        gw_status st = io_error(f, "put the file in place", dg);
        unlink(f->tmp);
        return st;
    }
    return sync_parent(f, dg);
}

/* ---- a file that is read ---- */

typedef struct in_file {
    gw_arena mem;
    const char *path;
    int fd;
} in_file;

static void close_file(void *in) {
    in_file *f = in;
    if (f->fd >= 0) close(f->fd);
    gw_arena_release(&f->mem);
    gw_mem_free(f);
}

static gw_status open_file(void *state, const char *path, void **in, int64_t *bytes, gw_diags *dg) {
    struct stat st;
    in_file *f = gw_mem_zalloc(sizeof *f);
    gw_status s = GW_OK;
    (void)state;
    f->path = gw_arena_strdup(&f->mem, path);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        s = gw_io_fail(dg, "file-open", "open", path, errno);
    else if (fstat(f->fd, &st) != 0)
        s = gw_io_fail(dg, "file-read", "read", path, errno);
    else if (!S_ISREG(st.st_mode))
        s = GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-damaged", "%s is damaged: it is no file", path);
    if (s != GW_OK) {
        close_file(f);
        return s;
    }
    *bytes = st.st_size;
    *in = f;
    return GW_OK;
}

static gw_status read_at(void *in, void *dst, int64_t n, int64_t offset, gw_diags *dg) {
    const in_file *f = in;
    return gw_fd_pread_all(f->fd, dst, n, offset, f->path, dg);
}

/* The kernel reads ahead by itself. */
static void expect_open(void *state, const char *path, int64_t bytes, int64_t head, int64_t tail) {
    (void)state, (void)path, (void)bytes, (void)head, (void)tail;
}

static void expect(void *in, int64_t offset, int64_t n) { (void)in, (void)offset, (void)n; }

const gw_place_type gw_place_dir = {
    .name = "directory",
    .takes = takes,
    .open = open_place,
    .close = close_place,
    .look = look,
    .list = list,
    .make = make,
    .sync = sync_names,
    .create = create,
    .append = append,
    .finish = finish,
    .drop = drop,
    .open_file = open_file,
    .read = read_at,
    .close_file = close_file,
    .far = false,
    .expect_open = expect_open,
    .expect = expect,
    .commit = commit,
    .remove = remove_file,
    .remove_folder = remove_folder,
    .move = move,
};
