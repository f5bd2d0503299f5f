// SPDX-License-Identifier: Apache-2.0
// Timelines in Chrome's trace event format, which Perfetto opens.
#ifndef GW_FILE_TRACE_H
#define GW_FILE_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef struct gw_trace gw_trace;

typedef struct gw_trace_event {
    const char *name, *cat;
    int pid, tid;     /* rank and stream */
    double ts_us;     /* start, microseconds from any fixed origin */
    double dur_us;    /* >= 0 */
    int64_t bytes;    /* shown as an argument; -1 = leave out */
    int64_t flops;    /* likewise */
    const char *note; /* likewise; NULL = leave out */
} gw_trace_event;

/* Streams events to a temporary name beside `path`; close ends the JSON, syncs and renames. Names
 * may be any bytes: control characters are escaped and what is not UTF-8 becomes U+FFFD. Times that
 * are not finite are written as 0. */
GW_WARN_UNUSED gw_status gw_trace_open(const char *path, gw_trace **out, gw_diags *dg);
/* The same to an output that a person names (base/output.h): "-" is `standard`. */
GW_WARN_UNUSED gw_status gw_trace_open_output(const char *path, FILE *standard, gw_trace **out,
                                              gw_diags *dg);
GW_WARN_UNUSED gw_status gw_trace_process(gw_trace *t, int pid, const char *name, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_trace_stream(gw_trace *t, int pid, int tid, const char *name,
                                         gw_diags *dg);
GW_WARN_UNUSED gw_status gw_trace_add(gw_trace *t, const gw_trace_event *e, gw_diags *dg);
/* One point of a counter track (memory in use, for instance). */
GW_WARN_UNUSED gw_status gw_trace_counter(gw_trace *t, int pid, const char *name, double ts_us,
                                          double value, gw_diags *dg);
/* Commits and frees. */
GW_WARN_UNUSED gw_status gw_trace_close(gw_trace *t, gw_diags *dg);
/* Frees without committing; the temporary file is removed. NULL is allowed. */
void gw_trace_abandon(gw_trace *t);

#endif
