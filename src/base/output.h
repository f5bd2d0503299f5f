// SPDX-License-Identifier: Apache-2.0
// Outputs that a person names: --svg FILE, --out FILE, --trace FILE.
//
//     gw_output *o;                                          or, of what is whole already:
//     GW_TRY(gw_output_open(path, cli->out, &o, dg));        gw_output_write(path, cli->out, bytes,
//     fputs("...", gw_output_file(o));                                       n, dg);
//     GW_TRY(gw_output_close(o, dg));                        or gw_output_abandon(o)
#ifndef GW_BASE_OUTPUT_H
#define GW_BASE_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef struct gw_output gw_output;

/* Where a path leads decides what writing to it means:
 *   "-"                          `standard`, which stays open; with `standard` NULL a file's name
 *   /dev/stdout, /dev/fd/N       that descriptor of this process
 *   a pipe or character device   written through as it comes (a pipe waits for its reader)
 *   a file, or nothing yet       replaced whole when closed, with the permissions it had
 *   a symbolic link              what it points to, by these rules; the link stays
 *   a directory, anything else   refused
 * GW_ERR_IO, and *out NULL, where it cannot be opened. */
GW_WARN_UNUSED gw_status gw_output_open(const char *path, FILE *standard, gw_output **out,
                                        gw_diags *dg);
/* Where to write; nobody else closes it. */
FILE *gw_output_file(gw_output *o);
/* Ends it: what was written is all there, or an error says why not. Frees `o` in both cases. */
GW_WARN_UNUSED gw_status gw_output_close(gw_output *o, gw_diags *dg);
/* Ends it unfinished: a file stays as it was. NULL is nothing. */
void gw_output_abandon(gw_output *o);

/* Writes n bytes to a path, whole. */
GW_WARN_UNUSED gw_status gw_output_write(const char *path, FILE *standard, const void *bytes,
                                         int64_t n, gw_diags *dg);
/* Is it "-"? Then nothing else belongs on standard output. */
bool gw_output_is_standard(const char *path);

#endif
