// SPDX-License-Identifier: Apache-2.0
// Status codes and diagnostics: what a function that can meet the world returns.
//
// The first to notice a fault writes it (gw_diag_add or GW_FAIL) with a primary message, where it
// is, and how to mend it; a caller adds at most one "while ..." frame. Libraries never print or
// exit: the command at the top prints the whole list once with gw_diags_print. A list may gather
// several problems (all faults of a configuration are shown at once).
#ifndef GW_BASE_DIAG_H
#define GW_BASE_DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_PRINTF, GW_WARN_UNUSED */

typedef enum gw_code {
    GW_OK = 0,
    GW_ERR_USAGE,       /* command line                                   -> exit 2 */
    GW_ERR_CONFIG,      /* run file, model config, impossible sizes       -> exit 2 */
    GW_ERR_IO,          /* open, read, write, disk full                   -> exit 1 */
    GW_ERR_FORMAT,      /* a file's content is not what it must be        -> exit 1 */
    GW_ERR_UNSUPPORTED, /* well-formed, but not something we do           -> exit 1 */
    GW_ERR_MEMORY,      /* does not fit, or the limit forbids             -> exit 1 */
    GW_ERR_PEER,        /* another rank or host                           -> exit 1 */
    GW_ERR_NUMERIC,     /* a loss or gradient that is not finite          -> exit 1 */
    GW_ERR_DEVICE,      /* a library or device call failed                -> exit 1 */
    GW_ERR_INTERRUPTED, /* stopped by a signal, resumable                 -> exit 3 */
} gw_code;

typedef gw_code gw_status;

typedef enum gw_severity { GW_NOTE, GW_WARNING, GW_ERROR } gw_severity;

/* Where a diagnostic points. Any part may be absent (NULL or 0). */
typedef struct gw_where {
    const char *file;
    int line;   /* from 1; 0 = unknown */
    int column; /* from 1; 0 = unknown */
} gw_where;

typedef struct gw_diag {
    gw_severity severity;
    gw_code code;
    const char *id; /* stable, e.g. "config-unknown-key"; listed in docs/errors.md */
    gw_where where;
    const char *message; /* one line, no final stop */
    const char *detail;  /* or NULL */
    const char *hint;    /* what to do; or NULL */
    const char *frames;  /* "while ..." lines, newline-separated; or NULL */
    struct gw_diag *next;
} gw_diag;

typedef struct gw_diags {
    gw_arena arena; /* owns all strings */
    gw_diag *first, *last;
    int nerrors, nwarnings;
} gw_diags;

void gw_diags_init(gw_diags *d);
void gw_diags_release(gw_diags *d);
void gw_diags_clear(gw_diags *d);
/* Appends copies of all of `from` (another thread's list), which is cleared. */
void gw_diags_take(gw_diags *d, gw_diags *from);

/* Adds a diagnostic; id and where.file are copied. Returns it so that detail and hint can be set
 * with gw_diag_detail / gw_diag_hint. `d` may be NULL everywhere (the diagnostic is dropped). */
gw_diag *gw_diag_add(gw_diags *d, gw_severity sev, gw_code code, const char *id, gw_where where,
                     const char *fmt, ...) GW_PRINTF(6, 7);
void gw_diag_detail(gw_diags *d, gw_diag *g, const char *fmt, ...) GW_PRINTF(3, 4);
void gw_diag_hint(gw_diags *d, gw_diag *g, const char *fmt, ...) GW_PRINTF(3, 4);
/* Adds a frame "while <text>" to the latest error. */
void gw_diag_frame(gw_diags *d, const char *fmt, ...) GW_PRINTF(2, 3);

/* Prints all, errors last in the order of their adding:
 *   run.yaml:12:7: error: message [config-unknown-key]
 *     detail
 *     while reading ...
 *     hint: do this
 * Colour only if `colour`. Control characters, marks that reorder text and bytes that are not UTF-8
 * are printed as escapes (\\n, \\x1b, \\u202e), whatever the text quotes; line breaks stay in
 * detail, frames and hint. */
void gw_diags_print(const gw_diags *d, FILE *out, bool colour);
/* The message of the first error, or "" (for tests and one-line reports). */
const char *gw_diags_first_error(const gw_diags *d);
/* The process exit code that belongs to a status. */
int gw_status_exit_code(gw_status s);

/* return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", path, strerror(errno)); */
gw_status gw_fail_at(gw_diags *d, gw_code code, const char *id, gw_where where, const char *fmt,
                     ...) GW_PRINTF(5, 6);
#define GW_FAIL(d, code, id, ...) gw_fail_at((d), (code), (id), (gw_where){0}, __VA_ARGS__)

/* Passes a failure on. */
#define GW_TRY(expr)                                                                               \
    do {                                                                                           \
        gw_status gw_try_status_ = (expr);                                                         \
        if (gw_try_status_ != GW_OK) return gw_try_status_;                                        \
    } while (0)

#endif
