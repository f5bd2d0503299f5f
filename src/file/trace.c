// SPDX-License-Identifier: Apache-2.0
// Timelines as Chrome trace JSON: one object with an array of events, streamed.
//
// An event is {"ph": kind, "pid", "tid", "ts", ...}: X is a complete event with a duration, M names
// a process or thread, C is a point of a counter. Viewers sort by time themselves, so events go out
// in the order given and memory does not grow with their number. Traces of long runs reach hundreds
// of megabytes; that is why this is written by hand and not through a JSON tree.
//
// Whatever a name holds, the file must stay valid JSON: quotes, backslashes and control characters
// are escaped, and a byte sequence that is not UTF-8 becomes U+FFFD, one for each byte that does
// not fit.
#include "file/trace.h" /* this module's contract */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/output.h" /* gw_output */
#include "base/str.h"    /* gw_str */

struct gw_trace {
    gw_arena arena;
    const char *path;
    gw_output *out;
    FILE *f; /* of it */
    bool any;
    gw_str line;
};

gw_status gw_trace_open_output(const char *path, FILE *standard, gw_trace **out, gw_diags *dg) {
    *out = NULL;
    gw_output *o;
    GW_TRY(gw_output_open(path, standard, &o, dg));
    gw_trace *t = gw_mem_zalloc(sizeof *t);
    gw_arena_init(&t->arena);
    t->path = gw_arena_strdup(&t->arena, path);
    t->out = o;
    t->f = gw_output_file(o);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->f);
    *out = t;
    return GW_OK;
}

gw_status gw_trace_open(const char *path, gw_trace **out, gw_diags *dg) {
    return gw_trace_open_output(path, NULL, out, dg);
}

/* Length of the UTF-8 sequence at p (shortest form, no surrogates, up to U+10FFFF), or 0. */
static int utf8_length(const unsigned char *p) {
    static const struct {
        unsigned char lo, hi, next_lo, next_hi;
        int length;
    } lead[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < GW_COUNT(lead); i++) {
        if (p[0] < lead[i].lo || p[0] > lead[i].hi) continue;
        if (lead[i].length == 1) return 1;
        if (p[1] < lead[i].next_lo || p[1] > lead[i].next_hi) return 0;
        for (int k = 2; k < lead[i].length; k++)
            if (p[k] < 0x80 || p[k] > 0xbf) return 0;
        return lead[i].length;
    }
    return 0;
}

static void add_string(gw_str *s, const char *text) {
    gw_str_add_char(s, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = utf8_length(p);
        if (n == 0) {
            gw_str_add(s, "\xef\xbf\xbd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            gw_str_printf(s, "\\%c", *p);
        } else if (*p < 0x20 || *p == 0x7f) {
            gw_str_printf(s, "\\u%04x", *p);
        } else {
            gw_str_add_n(s, p, (size_t)n);
        }
        p += n;
    }
    gw_str_add_char(s, '"');
}

static double or_zero(double x) { return isfinite(x) ? x : 0; }

static gw_status put_line(gw_trace *t, gw_diags *dg) {
    fputs(t->any ? ",\n" : "\n", t->f);
    t->any = true;
    fwrite(t->line.data, 1, t->line.len, t->f);
    if (!ferror(t->f)) return GW_OK;
    return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = t->path}, "cannot write: %s",
                      strerror(errno));
}

static gw_status put_name(gw_trace *t, const char *what, int pid, int tid, const char *name,
                          gw_diags *dg) {
    gw_str_clear(&t->line);
    gw_str_printf(&t->line,
                  "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what,
                  pid, tid);
    add_string(&t->line, name);
    gw_str_add(&t->line, "}}");
    return put_line(t, dg);
}

gw_status gw_trace_process(gw_trace *t, int pid, const char *name, gw_diags *dg) {
    return put_name(t, "process_name", pid, 0, name, dg);
}

gw_status gw_trace_stream(gw_trace *t, int pid, int tid, const char *name, gw_diags *dg) {
    return put_name(t, "thread_name", pid, tid, name, dg);
}

static void add_args(gw_str *s, const gw_trace_event *e) {
    const char *comma = "";
    gw_str_add(s, ",\"args\":{");
    if (e->bytes >= 0) {
        gw_str_printf(s, "\"bytes\":%lld", (long long)e->bytes);
        comma = ",";
    }
    if (e->flops >= 0) {
        gw_str_printf(s, "%s\"flops\":%lld", comma, (long long)e->flops);
        comma = ",";
    }
    if (e->note) {
        gw_str_printf(s, "%s\"note\":", comma);
        add_string(s, e->note);
    }
    gw_str_add_char(s, '}');
}

gw_status gw_trace_add(gw_trace *t, const gw_trace_event *e, gw_diags *dg) {
    gw_str *s = &t->line;
    double dur = or_zero(e->dur_us);
    gw_str_clear(s);
    gw_str_add(s, "{\"ph\":\"X\",\"name\":");
    add_string(s, e->name ? e->name : "");
    gw_str_add(s, ",\"cat\":");
    add_string(s, e->cat ? e->cat : "");
    gw_str_printf(s, ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f", e->pid, e->tid,
                  or_zero(e->ts_us), dur > 0 ? dur : 0);
    if (e->bytes >= 0 || e->flops >= 0 || e->note) add_args(s, e);
    gw_str_add_char(s, '}');
    return put_line(t, dg);
}

gw_status gw_trace_counter(gw_trace *t, int pid, const char *name, double ts_us, double value,
                           gw_diags *dg) {
    gw_str *s = &t->line;
    gw_str_clear(s);
    gw_str_add(s, "{\"ph\":\"C\",\"name\":");
    add_string(s, name);
    gw_str_printf(s, ",\"pid\":%d,\"ts\":%.3f,\"args\":{\"value\":%.17g}}", pid, or_zero(ts_us),
                  or_zero(value));
    return put_line(t, dg);
}

gw_status gw_trace_close(gw_trace *t, gw_diags *dg) {
    fputs("\n]}\n", t->f);
    gw_output *o = t->out;
    t->out = NULL;
    gw_trace_abandon(t);
    return gw_output_close(o, dg);
}

void gw_trace_abandon(gw_trace *t) {
    if (!t) return;
    gw_output_abandon(t->out);
    gw_str_release(&t->line);
    gw_arena_release(&t->arena);
    gw_mem_free(t);
}
