// SPDX-License-Identifier: Apache-2.0
// The units of a build.
//
// A unit is what one worker does at a time and what is done again when its inputs change, so it
// must depend on the inputs alone: files are sorted by path, and cut into units by their sizes in
// that order. A large archive is a unit by itself; thousands of small pages are not thousands of
// files of results.
//
// Whether a file is still what a unit was made from is judged by path, size and time of change, as
// make does it: reading terabytes to find out would cost as much as doing the work.
#include "data/build/units.h" /* this module's contract */

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"           /* gw_io_fail, gw_path_join */
#include "base/log.h"          /* gw_log_warn */
#include "base/map.h"          /* GW_VEC */
#include "data/build/remote.h" /* gw_remote_find */
#include "data/source.h"       /* gw_source_kind_of_name */
#include "file/store.h"        /* gw_store_is_url */

enum { MOST_DEPTH = 64, MOST_FILES = 1 << 26 };

typedef struct finder {
    const gw_pipeline *p;
    gw_arena *a;
    GW_VEC(gw_unit_file) files;
    gw_where where;
    bool has_output;
    struct stat output; /* the folder of output.dir, where it is there */
    gw_diags *dg;
} finder;

static gw_status add_path(finder *f, const char *path, int depth, bool named);

static gw_status at_fault(finder *f, const char *path, int err) {
    return gw_fail_at(f->dg, GW_ERR_IO, "data-input", f->where, "cannot read '%s': %s", path,
                      strerror(err));
}

static gw_status own_output(finder *f, const char *path) {
    gw_diag *d = gw_diag_add(f->dg, GW_ERROR, GW_ERR_CONFIG, "data-input", f->where,
                             "'%s' is output.dir: a build would read what it wrote", path);
    gw_diag_hint(f->dg, d, "write to another folder, which may lie below an input");
    return GW_ERR_CONFIG;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static gw_status add_folder(finder *f, const char *path, int depth) {
    DIR *d = opendir(path);
    if (!d) return at_fault(f, path, errno);
    GW_VEC(const char *) names = {0};
    const struct dirent *e;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') gw_vec_push(&names, gw_path_join(f->a, path, e->d_name));
    closedir(d);
    if (names.count > 1) qsort(names.items, (size_t)names.count, sizeof *names.items, by_bytes);
    gw_status st = GW_OK;
    for (int64_t i = 0; i < names.count; i++) {
        gw_status one = add_path(f, names.items[i], depth + 1, false);
        if (st == GW_OK) st = one;
    }
    gw_vec_release(&names);
    return st;
}

/* In a folder only what the sources know by name is taken; what is named is taken in any case. */
static bool is_input(const char *path) { return gw_source_kind_of_name(path) != GW_SOURCE_AUTO; }

static gw_status add_path(finder *f, const char *path, int depth, bool named) {
    struct stat st;
    if (stat(path, &st) != 0) return named || errno != ENOENT ? at_fault(f, path, errno) : GW_OK;
    if (S_ISDIR(st.st_mode)) {
        if (f->has_output && st.st_dev == f->output.st_dev && st.st_ino == f->output.st_ino)
            return named ? own_output(f, path) : GW_OK;
        if (depth > MOST_DEPTH)
            return gw_fail_at(f->dg, GW_ERR_IO, "data-input", f->where,
                              "folders below '%s' are nested deeper than %d", path, MOST_DEPTH);
        return add_folder(f, path, depth);
    }
    if (!named && (!S_ISREG(st.st_mode) || !is_input(path))) return GW_OK;
    if (!S_ISREG(st.st_mode))
        return gw_fail_at(f->dg, GW_ERR_IO, "data-input", f->where,
                          "'%s' is neither a file nor a folder", path);
    if (f->files.count >= MOST_FILES)
        return gw_fail_at(f->dg, GW_ERR_IO, "data-input", f->where, "more than %d input files",
                          MOST_FILES);
    gw_unit_file file = {gw_arena_strdup(f->a, path), (int64_t)st.st_size,
                         (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                         (uint64_t)st.st_dev, (uint64_t)st.st_ino};
    gw_vec_push(&f->files, file);
    return GW_OK;
}

static gw_status add_glob(finder *f, const char *pattern) {
    glob_t g;
    int rc = glob(pattern, GLOB_BRACE, NULL, &g);
    gw_status st = GW_OK;
    if (rc != 0)
        st = gw_fail_at(f->dg, GW_ERR_IO, "data-input", f->where, "nothing matches '%s'", pattern);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++) {
        gw_status one = add_path(f, g.gl_pathv[i], 0, true);
        if (st == GW_OK) st = one;
    }
    globfree(&g);
    return st;
}

static gw_status add_url(finder *f, const char *url) {
    gw_remote_objects list;
    gw_status st = gw_remote_find(url, f->a, &list, f->dg);
    if (st != GW_OK) {
        gw_diag_frame(f->dg, "looking for '%s' of input.paths", url);
        return st;
    }
    for (int64_t i = 0; i < list.count; i++) {
        gw_unit_file file = {list.items[i].url, list.items[i].bytes,
                             (int64_t)(list.items[i].version >> 1), 0, 0};
        gw_vec_push(&f->files, file);
    }
    return GW_OK;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const gw_unit_file *)a)->path, ((const gw_unit_file *)b)->path);
}

/* Names of one file beside one another, the first by its bytes in front. */
static int by_file(const void *a, const void *b) {
    const gw_unit_file *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return strcmp(x->path, y->path);
}

static bool same_file(const gw_unit_file *x, const gw_unit_file *y) {
    if (strcmp(x->path, y->path) == 0) return true;
    return x->inode && x->inode == y->inode && x->device == y->device;
}

static int64_t sort_unique(gw_unit_file *files, int64_t n) {
    int64_t kept = 0, again = 0;
    const char *one = NULL, *other = NULL;
    if (n > 1) qsort(files, (size_t)n, sizeof *files, by_file);
    for (int64_t i = 0; i < n; i++) {
        if (kept == 0 || !same_file(&files[i], &files[kept - 1])) {
            files[kept++] = files[i];
        } else if (strcmp(files[i].path, files[kept - 1].path) != 0 && again++ == 0) {
            one = files[kept - 1].path;
            other = files[i].path;
        }
    }
    if (again)
        gw_log_warn("%lld names of input.paths are files that come by another name too, and are "
                    "read once: '%s' is '%s'",
                    (long long)again, other, one);
    if (kept > 1) qsort(files, (size_t)kept, sizeof *files, by_path);
    return kept;
}

static void cut(finder *f, int64_t n, gw_units *out) {
    gw_unit_file *files = gw_arena_dup(f->a, f->files.items, n * (int64_t)sizeof *files);
    gw_unit *units = gw_arena_new(f->a, gw_unit, n);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        gw_unit *u = count ? &units[count - 1] : NULL;
        if (!u || u->bytes + files[i].bytes > f->p->input.unit_bytes || u->nfiles >= 65535) {
            u = &units[count++];
            u->files = &files[i];
        }
        u->nfiles++;
        u->bytes += files[i].bytes;
        out->bytes += files[i].bytes;
    }
    out->items = units;
    out->count = count;
    out->nfiles = n;
}

gw_status gw_units_find(const gw_pipeline *p, gw_arena *a, gw_units *out, gw_diags *dg) {
    finder f = {.p = p, .a = a, .where = gw_pipeline_where(p, "input.paths"), .dg = dg};
    gw_status st = GW_OK;
    f.has_output =
        p->output.dir && !gw_store_is_url(p->output.dir) && stat(p->output.dir, &f.output) == 0;
    *out = (gw_units){0};
    for (int64_t i = 0; i < p->input.paths.count; i++) {
        const char *path = p->input.paths.items[i];
        bool url = gw_store_is_url(path);
        bool glob_like = strpbrk(path, "*?[{") && !gw_path_exists(path);
        gw_status one = url         ? add_url(&f, path)
                        : glob_like ? add_glob(&f, path)
                                    : add_path(&f, path, 0, true);
        if (st == GW_OK) st = one;
    }
    int64_t n = sort_unique(f.files.items, f.files.count);
    if (st == GW_OK && n == 0)
        st = gw_fail_at(dg, GW_ERR_IO, "data-input", f.where,
                        "the inputs hold no file that can be read (WARC, JSONL, HTML, text)");
    if (st == GW_OK) cut(&f, n, out);
    gw_vec_release(&f.files);
    return st;
}

gw_hash128 gw_unit_hash(const gw_unit *u) {
    gw_hasher *h = gw_hasher_new();
    for (int64_t i = 0; i < u->nfiles; i++) {
        gw_hasher_add(h, u->files[i].path, strlen(u->files[i].path) + 1);
        gw_hasher_add(h, &u->files[i].bytes, sizeof u->files[i].bytes);
        gw_hasher_add(h, &u->files[i].mtime_ns, sizeof u->files[i].mtime_ns);
    }
    gw_hash128 hash = gw_hasher_get(h);
    gw_hasher_free(h);
    return hash;
}
