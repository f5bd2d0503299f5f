// SPDX-License-Identifier: Apache-2.0
// Files as whole things: read, map, write so that a crash leaves the old or the new, never a mix.
#ifndef GW_BASE_IO_H
#define GW_BASE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

bool gw_path_exists(const char *path);
bool gw_path_is_dir(const char *path);
/* Joins with one '/', into arena memory. */
char *gw_path_join(gw_arena *a, const char *dir, const char *name);

/* Appends a whole file to `out`. Refuses more than max_bytes (0 = no limit), and what is no regular
 * file (a named pipe would wait for a writer), unless the path names a descriptor that this process
 * was given: /dev/stdin, /dev/fd/N. */
GW_WARN_UNUSED gw_status gw_file_read(const char *path, int64_t max_bytes, gw_str *out,
                                      gw_diags *dg);
/* Writes to a temporary name beside, syncs, renames, syncs the directory. */
GW_WARN_UNUSED gw_status gw_file_write_atomic(const char *path, const void *bytes, int64_t n,
                                              gw_diags *dg);
/* "cannot VERB 'PATH': REASON" for an errno, with what a person can do about it; GW_ERR_IO. */
gw_status gw_io_fail(gw_diags *dg, const char *id, const char *verb, const char *path, int err);
/* Creates a file beside `path` that did not exist, open for writing; *name, in a, gets its name. -1
 * and errno on failure. */
int gw_io_create_beside(gw_arena *a, const char *path, char **name);
/* mkdir -p. */
GW_WARN_UNUSED gw_status gw_dir_make(const char *path, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_dir_sync(const char *path, gw_diags *dg);
/* Full writes and reads that retry on short counts and EINTR. `what` names the file in errors. */
GW_WARN_UNUSED gw_status gw_fd_write_all(int fd, const void *bytes, int64_t n, const char *what,
                                         gw_diags *dg);
GW_WARN_UNUSED gw_status gw_fd_pread_all(int fd, void *bytes, int64_t n, int64_t offset,
                                         const char *what, gw_diags *dg);

/* A read-only mapping of a whole regular file (size 0 gives data "" and size 0). */
typedef struct gw_mapping {
    const uint8_t *data;
    int64_t bytes;
} gw_mapping;
GW_WARN_UNUSED gw_status gw_map_open(gw_mapping *m, const char *path, gw_diags *dg);
void gw_map_release(gw_mapping *m);

#endif
