// SPDX-License-Identifier: Apache-2.0
// Outputs that a person names.
//
// A file should be there whole or be the old one, so it is written to a temporary name beside and
// renamed when it is complete (as in io.c). But a name may lead elsewhere: to standard output, to a
// pipe with a reader at its end, to /dev/null, through a symbolic link into another directory.
// Renaming over those would put a regular file in the place of something that the person meant to
// write *to*. So what the name leads to is looked at first: links are followed to their end, one
// after another, and the end is what is replaced, beside itself; pipes and character devices are
// opened and written; descriptors that this process was given are written as they stand (opening
// /dev/stdout again would start at the beginning of the file behind it).
//
// Block devices and sockets are refused: nobody who asks for a picture means a disk.
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h> /* PATH_MAX, INT_MAX */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"  /* gw_io_create_beside, gw_io_fail, gw_dir_sync */
#include "base/str.h" /* gw_parse_i64 */

enum { MOST_LINKS = 40 };

struct gw_output {
    gw_arena mem;
    const char *name;   /* as it was given */
    const char *target; /* a file that is replaced; NULL: written through */
    const char *tmp;
    FILE *f;
    bool borrowed; /* `standard`: it stays open */
};

bool gw_output_is_standard(const char *path) { return strcmp(path, "-") == 0; }

/* ---- where a name leads ---- */

/* The descriptor of this process that a path names; -1: none. */
static int own_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    int64_t fd;
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < GW_COUNT(folders); i++)
        if (gw_str_starts(path, folders[i]) && gw_parse_i64(path + strlen(folders[i]), &fd) &&
            fd >= 0 && fd <= INT_MAX)
            return (int)fd;
    return -1;
}

/* The folder of a path, with its last '/'; "" without one. */
static const char *folder_of(gw_arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? gw_arena_strndup(a, path, (size_t)(slash - path) + 1) : "";
}

/* Follows links to what is no link, or is not there. *st is zeroed where it is not there. */
static gw_status follow(gw_output *o, const char **path, struct stat *st, gw_diags *dg) {
    for (int i = 0; i < MOST_LINKS; i++) {
        if (own_descriptor(*path) >= 0) return GW_OK;
        if (lstat(*path, st) != 0) {
            memset(st, 0, sizeof *st);
            if (errno == ENOENT) return GW_OK;
            return gw_io_fail(dg, "file-create", "write to", o->name, errno);
        }
        if (!S_ISLNK(st->st_mode)) return GW_OK;
        char to[PATH_MAX];
        ssize_t n = readlink(*path, to, sizeof to - 1);
        if (n < 0) return gw_io_fail(dg, "file-create", "follow", *path, errno);
        to[n] = 0;
        *path = to[0] == '/' ? gw_arena_strdup(&o->mem, to)
                             : gw_arena_printf(&o->mem, "%s%s", folder_of(&o->mem, *path), to);
    }
    return gw_io_fail(dg, "file-create", "follow", o->name, ELOOP);
}

/* ---- opening ---- */

static gw_status use_descriptor(gw_output *o, int fd, gw_diags *dg) {
    const char *verb = o->target ? "create" : "write to";
    if (fd < 0) return gw_io_fail(dg, "file-create", verb, o->name, errno);
    o->f = fdopen(fd, "wb");
    if (o->f) return GW_OK;
    int err = errno;
    close(fd);
    return gw_io_fail(dg, "file-create", verb, o->name, err);
}

static gw_status create_beside(gw_output *o, const char *path, const struct stat *st,
                               gw_diags *dg) {
    char *tmp = NULL;
    int fd = gw_io_create_beside(&o->mem, path, &tmp);
    o->target = path;
    if (fd >= 0) o->tmp = tmp;
    /* Where the file system keeps no permissions, it has none to lose. */
    if (fd >= 0 && st->st_mode) (void)!fchmod(fd, st->st_mode & 07777);
    return use_descriptor(o, fd, dg);
}

static gw_status open_path(gw_output *o, gw_diags *dg) {
    const char *path = o->name;
    struct stat st = {0};
    GW_TRY(follow(o, &path, &st, dg));
    int own = own_descriptor(path);
    if (own >= 0) return use_descriptor(o, dup(own), dg);
    if (st.st_mode == 0 || S_ISREG(st.st_mode)) return create_beside(o, path, &st, dg);
    if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
        int fd;
        do fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        while (fd < 0 && errno == EINTR);
        return use_descriptor(o, fd, dg);
    }
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "file-create", (gw_where){0},
                             "cannot write to '%s': it is a %s", o->name,
                             S_ISDIR(st.st_mode)   ? "directory"
                             : S_ISBLK(st.st_mode) ? "disk"
                                                   : "socket");
    gw_diag_hint(dg, g, "name a file, or - for standard output");
    return GW_ERR_IO;
}

gw_status gw_output_open(const char *path, FILE *standard, gw_output **out, gw_diags *dg) {
    *out = NULL;
    gw_output *o = gw_mem_zalloc(sizeof *o);
    o->name = gw_arena_strdup(&o->mem, path);
    if (standard) fflush(standard); /* what was printed before comes before, wherever this goes */
    o->borrowed = standard && gw_output_is_standard(path);
    o->f = o->borrowed ? standard : NULL;
    gw_status st = o->borrowed ? GW_OK : open_path(o, dg);
    if (st == GW_OK)
        *out = o;
    else
        gw_output_abandon(o);
    return st;
}

FILE *gw_output_file(gw_output *o) { return o->f; }

/* ---- ending ---- */

void gw_output_abandon(gw_output *o) {
    if (!o) return;
    if (o->f && !o->borrowed) fclose(o->f);
    if (o->tmp) unlink(o->tmp);
    gw_arena_release(&o->mem);
    gw_mem_free(o);
}

/* All bytes on their way; of a file, on its disk. */
static gw_status finish(gw_output *o, gw_diags *dg) {
    errno = 0;
    bool bad = fflush(o->f) != 0 || ferror(o->f);
    if (!bad && o->target) bad = fsync(fileno(o->f)) != 0;
    int err = errno ? errno : EIO;
    if (!o->borrowed) {
        if (fclose(o->f) != 0 && !bad) {
            bad = true;
            err = errno;
        }
        o->f = NULL;
    }
    return bad ? gw_io_fail(dg, "file-write", "write", o->name, err) : GW_OK;
}

gw_status gw_output_close(gw_output *o, gw_diags *dg) {
    gw_status st = finish(o, dg);
    if (st == GW_OK && o->target) {
        if (rename(o->tmp, o->target) != 0) {
            st = gw_io_fail(dg, "file-rename", "replace", o->name, errno);
        } else {
            const char *folder = folder_of(&o->mem, o->target);
            o->tmp = NULL;
            st = gw_dir_sync(*folder ? folder : ".", dg);
        }
    }
    gw_output_abandon(o);
    return st;
}

gw_status gw_output_write(const char *path, FILE *standard, const void *bytes, int64_t n,
                          gw_diags *dg) {
    gw_output *o;
    GW_TRY(gw_output_open(path, standard, &o, dg));
    if (n > 0) (void)!fwrite(bytes, 1, (size_t)n, o->f); /* close says what went wrong */
    return gw_output_close(o, dg);
}
