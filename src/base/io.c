// SPDX-License-Identifier: Apache-2.0
// Whole files.
//
// A crash or a full disk must leave the old file or the new one, so a write goes to a temporary
// name in the same directory, is synced, renamed over the target, and the directory is synced too:
// without the last step the rename itself may be lost. On any failure the temporary file is removed
// and the target is as it was. The temporary name holds process id, time and a try number and is
// created with O_EXCL, so that ranks that share a directory do not meet.
//
// Reads and writes go on after short counts and EINTR. A file that ends early is a format error
// that says which bytes are missing, since the usual cause is a transfer that was cut.
//
// Messages quote the path and the system's reason; the hint names what a person can do.
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */

#define IO_STEP_BYTES ((int64_t)1 << 30) /* Linux moves at most 2 GiB a call */

bool gw_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool gw_path_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *gw_path_join(gw_arena *a, const char *dir, const char *name) {
    size_t n = strlen(dir);
    bool slash = n == 0 || dir[n - 1] == '/';
    return gw_arena_printf(a, "%s%s%s", dir, slash ? "" : "/", name);
}

/* ------------------------------------------------------------------------------ errors */

static const char *hint_for(int err) {
    if (err == ENOSPC || err == EDQUOT) return "free space there, or choose another directory";
    if (err == EACCES || err == EPERM) return "check the permissions of the file and its directory";
    if (err == EROFS) return "the file system is read-only; choose another directory";
    if (err == EMFILE || err == ENFILE) return "too many open files; raise 'ulimit -n'";
    return NULL;
}

gw_status gw_io_fail(gw_diags *dg, const char *id, const char *verb, const char *path, int err) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, id, (gw_where){0}, "cannot %s '%s': %s", verb,
                             path, strerror(err));
    if (hint_for(err)) gw_diag_hint(dg, g, "%s", hint_for(err));
    return GW_ERR_IO;
}

/* ------------------------------------------------------------------------------ descriptors */

gw_status gw_fd_write_all(int fd, const void *bytes, int64_t n, const char *what, gw_diags *dg) {
    const uint8_t *p = bytes;
    while (n > 0) {
        ssize_t k = write(fd, p, (size_t)GW_MIN(n, IO_STEP_BYTES));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return gw_io_fail(dg, "file-write", "write", what, k < 0 ? errno : ENOSPC);
        p += k;
        n -= k;
    }
    return GW_OK;
}

gw_status gw_fd_pread_all(int fd, void *bytes, int64_t n, int64_t offset, const char *what,
                          gw_diags *dg) {
    uint8_t *p = bytes;
    int64_t done = 0;
    while (done < n) {
        ssize_t k = pread(fd, p + done, (size_t)GW_MIN(n - done, IO_STEP_BYTES), offset + done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return gw_io_fail(dg, "file-read", "read", what, errno);
        if (k == 0) {
            struct stat info = {0};
            int64_t size = fstat(fd, &info) == 0 ? (int64_t)info.st_size : offset + done;
            gw_diag *g =
                gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "file-short", (gw_where){0},
                            "'%s' ends at byte %lld, but bytes %lld to %lld are needed", what,
                            (long long)size, (long long)offset, (long long)(offset + n));
            gw_diag_hint(dg, g, "the file was probably cut short; fetch or write it again");
            return GW_ERR_FORMAT;
        }
        done += k;
    }
    return GW_OK;
}

static int open_retry(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* ------------------------------------------------------------------------------ reading */

/* A descriptor that this process was given: `< file`, `<(command)`, a terminal. What stands there
 * is meant to be read, whatever it is. */
static bool is_own_descriptor(const char *path) {
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

/* Opens for reading, and says what it is. Never waits: opening a named pipe would, until someone
 * writes to it. */
static gw_status open_to_read(const char *path, int *fd, struct stat *st, gw_diags *dg) {
    *fd = open_retry(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (*fd < 0) return gw_io_fail(dg, "file-open", "open", path, errno);
    if (fstat(*fd, st) == 0) return GW_OK;
    gw_status s = gw_io_fail(dg, "file-read", "read", path, errno);
    close(*fd);
    return s;
}

/* Files, and descriptors that were given, which are then read as they come. */
static gw_status check_readable(const char *path, int fd, const struct stat *st, gw_diags *dg) {
    if (S_ISDIR(st->st_mode)) return gw_io_fail(dg, "file-read", "read", path, EISDIR);
    if (S_ISREG(st->st_mode)) return GW_OK;
    if (!is_own_descriptor(path))
        return GW_FAIL(dg, GW_ERR_IO, "file-read", "cannot read '%s': not a regular file", path);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return gw_io_fail(dg, "file-read", "read", path, errno);
    return GW_OK;
}

static gw_status too_large(const char *path, int64_t max_bytes, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "file-too-large",
                   "'%s' is larger than the %lld bytes that are read of such a file", path,
                   (long long)max_bytes);
}

/* Reads to the end, since what stat says may be 0 (a pipe, /proc) or stale. */
static gw_status read_to_end(int fd, const char *path, int64_t max_bytes, gw_str *out,
                             gw_diags *dg) {
    size_t before = out->len;
    for (;;) {
        gw_str_reserve(out, (size_t)1 << 16);
        size_t room = out->cap - out->len - 1;
        ssize_t k = read(fd, out->data + out->len, GW_MIN(room, (size_t)IO_STEP_BYTES));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return gw_io_fail(dg, "file-read", "read", path, errno);
        out->len += (size_t)k;
        out->data[out->len] = 0;
        if (k == 0) return GW_OK;
        if (max_bytes > 0 && (int64_t)(out->len - before) > max_bytes)
            return too_large(path, max_bytes, dg);
    }
}

gw_status gw_file_read(const char *path, int64_t max_bytes, gw_str *out, gw_diags *dg) {
    int fd;
    struct stat st;
    GW_TRY(open_to_read(path, &fd, &st, dg));
    size_t before = out->len;
    gw_status s = check_readable(path, fd, &st, dg);
    if (s == GW_OK && S_ISREG(st.st_mode) && max_bytes > 0 && st.st_size > max_bytes)
        s = too_large(path, max_bytes, dg);
    if (s == GW_OK) {
        if (S_ISREG(st.st_mode)) gw_str_reserve(out, (size_t)st.st_size + 1);
        s = read_to_end(fd, path, max_bytes, out, dg);
    }
    close(fd);
    if (s != GW_OK && out->data) {
        out->len = before;
        out->data[before] = 0;
    }
    return s;
}

gw_status gw_map_open(gw_mapping *m, const char *path, gw_diags *dg) {
    *m = (gw_mapping){(const uint8_t *)"", 0};
    int fd;
    struct stat st;
    GW_TRY(open_to_read(path, &fd, &st, dg));
    gw_status s = GW_OK;
    if (!S_ISREG(st.st_mode)) {
        s = GW_FAIL(dg, GW_ERR_IO, "file-map", "cannot map '%s': not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            s = gw_io_fail(dg, "file-map", "map", path, errno);
        else
            *m = (gw_mapping){p, st.st_size};
    }
    close(fd);
    return s;
}

void gw_map_release(gw_mapping *m) {
    union {
        const uint8_t *in;
        void *out;
    } p = {m->data}; /* munmap takes what mmap gave, without const */
    if (m->bytes > 0) munmap(p.out, (size_t)m->bytes);
    *m = (gw_mapping){0};
}

/* ------------------------------------------------------------------------------ writing */

/* The directory part of a path: "." where there is none. */
static char *dir_of(gw_arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return gw_arena_strdup(a, ".");
    return slash == path ? gw_arena_strdup(a, "/")
                         : gw_arena_strndup(a, path, (size_t)(slash - path));
}

int gw_io_create_beside(gw_arena *a, const char *path, char **name) {
    for (int attempt = 0; attempt < 100; attempt++) {
        *name = gw_arena_printf(a, "%s.tmp-%ld-%llx-%d", path, (long)getpid(),
                                (unsigned long long)gw_clock_ns(), attempt);
        int fd = open_retry(*name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* Writes, syncs and closes fd. */
static gw_status fill_and_close(int fd, const void *bytes, int64_t n, const char *path,
                                gw_diags *dg) {
    gw_status s = gw_fd_write_all(fd, bytes, n, path, dg);
    if (s == GW_OK && fsync(fd) != 0) s = gw_io_fail(dg, "file-write", "sync", path, errno);
    if (close(fd) != 0 && s == GW_OK) s = gw_io_fail(dg, "file-write", "write", path, errno);
    return s;
}

gw_status gw_file_write_atomic(const char *path, const void *bytes, int64_t n, gw_diags *dg) {
    gw_arena a = {0};
    char *tmp = NULL;
    gw_status s;
    int fd = gw_io_create_beside(&a, path, &tmp);
    if (fd < 0) {
        s = gw_io_fail(dg, "file-create", "create", path, errno);
        goto done;
    }
    s = fill_and_close(fd, bytes, n, path, dg);
    if (s == GW_OK && rename(tmp, path) != 0)
        s = gw_io_fail(dg, "file-rename", "replace", path, errno);
    if (s != GW_OK)
        unlink(tmp);
    else
        s = gw_dir_sync(dir_of(&a, path), dg);
done:
    gw_arena_release(&a);
    return s;
}

/* ------------------------------------------------------------------------------ directories */

static gw_status make_one(const char *path, gw_diags *dg) {
    if (mkdir(path, 0777) == 0) return GW_OK;
    int err = errno;
    if (gw_path_is_dir(path)) return GW_OK;
    return gw_io_fail(dg, "dir-make", "make directory", path, err == EEXIST ? ENOTDIR : err);
}

gw_status gw_dir_make(const char *path, gw_diags *dg) {
    gw_arena a = {0};
    gw_status s = GW_OK;
    char *p = gw_arena_strdup(&a, path);
    for (char *c = p; s == GW_OK && *c; c++) {
        if (*c != '/' || c == p) continue;
        *c = 0;
        s = make_one(p, dg);
        *c = '/';
    }
    if (s == GW_OK) s = make_one(path, dg);
    gw_arena_release(&a);
    return s;
}

gw_status gw_dir_sync(const char *path, gw_diags *dg) {
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return gw_io_fail(dg, "file-open", "open", path, errno);
    gw_status s = GW_OK;
    /* Some file systems cannot sync a directory and need not. */
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        s = gw_io_fail(dg, "file-write", "sync", path, errno);
    close(fd);
    return s;
}
