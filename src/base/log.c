// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr.
//
// The log tells a person what happens; results go to stdout, faults travel as diagnostics, and
// figures for machines go to metrics.jsonl. So there are three levels, no categories and no time
// stamps. Of several ranks the first speaks for all, and the others only warn. Each line is written
// while stderr is locked, so that lines of several threads do not mix.
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic int log_level = GW_LOG_INFO;
static _Atomic int log_rank = 0;

void gw_log_set_level(gw_log_level level) { atomic_store(&log_level, (int)level); }
void gw_log_set_rank(int rank) { atomic_store(&log_rank, rank); }
gw_log_level gw_log_get_level(void) { return (gw_log_level)atomic_load(&log_level); }

static void GW_PRINTF(3, 0)
write_line(gw_log_level at, const char *prefix, const char *fmt, va_list ap) {
    if ((int)gw_log_get_level() < (int)at) return;
    int rank = atomic_load(&log_rank);
    flockfile(stderr);
    if (rank > 0) fprintf(stderr, "rank %d: ", rank);
    fputs(prefix, stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    fflush(stderr);
    funlockfile(stderr);
}

void gw_log_info(const char *fmt, ...) {
    if (atomic_load(&log_rank) > 0 && gw_log_get_level() < GW_LOG_DEBUG) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(GW_LOG_INFO, "", fmt, ap);
    va_end(ap);
}

void gw_log_debug(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    write_line(GW_LOG_DEBUG, "debug: ", fmt, ap);
    va_end(ap);
}

void gw_log_warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    write_line(GW_LOG_INFO, "warning: ", fmt, ap);
    va_end(ap);
}
