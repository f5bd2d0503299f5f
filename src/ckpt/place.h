// SPDX-License-Identifier: Apache-2.0
// Where checkpoints stand: the few things that a save, a load and a prune ask of it.
//
// A place is known by the beginning of its paths: "s3://bucket/runs/a" stands in one kind of place,
// "runs/a" in a directory. A kind is one constant table of functions; place.c lists them. Whatever
// opens a checkpoint's data, lists its folders, commits or removes goes through here, so that a new
// kind is one file and one line.
//
// Paths are whole ones, as people write them, joined with '/'. A folder is what stands before the
// last '/' of some file; where a place has no folders of its own, make, sync and remove_folder do
// nothing and an empty folder is absent.
//
// A place is used by one thread at a time. Files made or opened by it may each be used by a thread
// of their own, at the same time, and are closed before it; where ranges of any were told ahead
// (gw_place_expect) all are read on the place's thread. Errors have a diagnostic that names the
// path; GW_ERR_IO is what the place refuses, GW_ERR_FORMAT what stands there and is not of the kind
// that it must be.
#ifndef GW_CKPT_PLACE_H
#define GW_CKPT_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */

typedef enum gw_place_kind {
    GW_PLACE_ABSENT,
    GW_PLACE_FILE,
    GW_PLACE_FOLDER,
    GW_PLACE_OTHER, /* neither: a pipe, a device */
} gw_place_kind;

typedef struct gw_place_entry {
    const char *name; /* of a listing; in its arena */
    gw_place_kind kind;
    bool link; /* what is there was put there as a link to it */
    int64_t bytes;
} gw_place_entry;

typedef struct gw_place_list {
    gw_place_entry *items; /* in no order */
    int64_t n;
} gw_place_list;

typedef struct gw_place_type {
    const char *name; /* "directory" */
    /* Does a path stand in a place of this kind? The last of the kinds takes every path. */
    bool (*takes)(const char *path);
    /* `path`: any path in it. *state is what all below gets; NULL is fine. */
    gw_status (*open)(const char *path, void **state, gw_diags *dg);
    void (*close)(void *state);

    /* What is at a path. ABSENT is no error. */
    gw_status (*look)(void *state, const char *path, gw_place_entry *out, gw_diags *dg);
    /* What is in a folder, without what is in folders of it. GW_OK and nothing where it is absent.
     */
    gw_status (*list)(void *state, const char *folder, gw_arena *a, gw_place_list *out,
                      gw_diags *dg);
    gw_status (*make)(void *state, const char *folder, gw_diags *dg); /* with those above it */
    gw_status (*sync)(void *state, const char *folder, gw_diags *dg); /* its names last */

    /* A file of exactly `bytes`, written from its beginning to its end. Nothing has its name before
     * finish, which makes it last; a place too small is refused as early as it can be told. What is
     * there by that name is replaced. drop ends it (after finish too) and removes what is not
     * finished; NULL is fine. */
    gw_status (*create)(void *state, const char *path, int64_t bytes, void **file, gw_diags *dg);
    gw_status (*append)(void *file, const void *bytes, int64_t n, gw_diags *dg);
    gw_status (*finish)(void *file, gw_diags *dg);
    void (*drop)(void *file);

    /* Reading: any range, as often as needed. An absent file is GW_ERR_IO. */
    gw_status (*open_file)(void *state, const char *path, void **in, int64_t *bytes, gw_diags *dg);
    gw_status (*read)(void *in, void *dst, int64_t n, int64_t offset, gw_diags *dg);
    void (*close_file)(void *in);
    /* What is read comes from far: whoever knows what he will read says so first, in the order of
     * reading. expect_open: that a file will be opened, of which `head` bytes at its beginning and
     * `tail` at its end are needed then. expect: a range of a file that is open. Both are hints. */
    bool far;
    void (*expect_open)(void *state, const char *path, int64_t bytes, int64_t head, int64_t tail);
    void (*expect)(void *in, int64_t offset, int64_t n);

    /* A small file at once: after a crash it is there whole, or what was there before is. Where
     * the place can tell, one that is there already is not replaced (GW_ERR_IO): of two writers
     * one commits. */
    gw_status (*commit)(void *state, const char *path, const void *bytes, int64_t n, gw_diags *dg);

    /* Absent is fine for both. remove_folder: an empty one; one that is not stays, without error.
     */
    gw_status (*remove)(void *state, const char *path, gw_diags *dg);
    gw_status (*remove_folder)(void *state, const char *path, gw_diags *dg);
    /* A folder with all in it under another name, which is free. */
    gw_status (*move)(void *state, const char *from, const char *to, gw_diags *dg);
} gw_place_type;

typedef struct gw_place {
    const gw_place_type *type;
    void *state;
} gw_place;

/* Every kind, the directory last. */
extern const gw_place_type gw_place_s3, gw_place_dir;

/* *p is to be closed also after an error. */
GW_WARN_UNUSED gw_status gw_place_open(gw_place *p, const char *path, gw_diags *dg);
void gw_place_close(gw_place *p);

GW_WARN_UNUSED gw_status gw_place_look(const gw_place *p, const char *path, gw_place_entry *out,
                                       gw_diags *dg);
/* Is a regular file there? False also where that cannot be told. */
bool gw_place_has(const gw_place *p, const char *path);
GW_WARN_UNUSED gw_status gw_place_list_of(const gw_place *p, const char *folder, gw_arena *a,
                                          gw_place_list *out, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_make(const gw_place *p, const char *folder, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_sync(const gw_place *p, const char *folder, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_commit(const gw_place *p, const char *path, const void *bytes,
                                         int64_t n, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_remove(const gw_place *p, const char *path, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_remove_folder(const gw_place *p, const char *path, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_move(const gw_place *p, const char *from, const char *to,
                                       gw_diags *dg);
/* A file whole, appended to `out`; more than max_bytes is refused. */
GW_WARN_UNUSED gw_status gw_place_read_file(const gw_place *p, const char *path, int64_t max_bytes,
                                            gw_str *out, gw_diags *dg);

/* ---- a file that is written ---- */
typedef struct gw_place_out {
    const gw_place_type *type;
    void *file;
} gw_place_out;
GW_WARN_UNUSED gw_status gw_place_create(const gw_place *p, const char *path, int64_t bytes,
                                         gw_place_out *out, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_append(gw_place_out *f, const void *bytes, int64_t n,
                                         gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_finish(gw_place_out *f, gw_diags *dg);
void gw_place_drop(gw_place_out *f); /* {0} is fine */

/* ---- a file that is read ---- */
typedef struct gw_place_in {
    const gw_place_type *type;
    void *file;
    int64_t bytes;
} gw_place_in;
GW_WARN_UNUSED gw_status gw_place_open_file(const gw_place *p, const char *path, gw_place_in *in,
                                            gw_diags *dg);
GW_WARN_UNUSED gw_status gw_place_read(const gw_place_in *in, void *dst, int64_t n, int64_t offset,
                                       gw_diags *dg);
void gw_place_close_file(gw_place_in *in); /* {0} is fine */
/* Do the two below help here? */
bool gw_place_is_far(const gw_place *p);
void gw_place_expect_open(const gw_place *p, const char *path, int64_t bytes, int64_t head,
                          int64_t tail);
void gw_place_expect(const gw_place_in *in, int64_t offset, int64_t n);

#endif
