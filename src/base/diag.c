// SPDX-License-Identifier: Apache-2.0
// Diagnostics: a list of what went wrong, each with a place, a reason and a way out.
//
// Whoever first meets a fault knows most about it, so it writes the diagnostic there and then, and
// statuses only say which class it belongs to. A list, and not one message, because a run file with
// five mistakes should be mended in one go. All text lives in the list's own arena: a caller may
// format from buffers that are gone by the time the command prints.
//
// A NULL list is legal everywhere and drops everything, for callers that only want to know whether
// something works. Printing is left to the command at the top. Messages quote names and values from
// files that may come from anywhere, so text is printed with everything that would steer a terminal
// made visible; only the line breaks of detail, frames and hint, and the colours, are ours.
#include "base/diag.h"

#include <stdarg.h>
#include <string.h>

void gw_diags_init(gw_diags *d) { *d = (gw_diags){0}; }

void gw_diags_release(gw_diags *d) {
    gw_arena_release(&d->arena);
    *d = (gw_diags){0};
}

void gw_diags_clear(gw_diags *d) { gw_diags_release(d); }

/* ------------------------------------------------------------------------------ adding */

/* One line, without what a C library or a caller left at its end. */
static const char *message_text(gw_arena *a, const char *fmt, va_list ap) GW_PRINTF(2, 0);
static const char *message_text(gw_arena *a, const char *fmt, va_list ap) {
    char *s = gw_arena_vprintf(a, fmt, ap);
    size_t n = strlen(s);
    while (n && (s[n - 1] == '\n' || s[n - 1] == ' ')) s[--n] = 0;
    return s;
}

static gw_diag *add(gw_diags *d, gw_severity sev, gw_code code, const char *id, gw_where where,
                    const char *fmt, va_list ap) GW_PRINTF(6, 0);
static gw_diag *add(gw_diags *d, gw_severity sev, gw_code code, const char *id, gw_where where,
                    const char *fmt, va_list ap) {
    gw_diag *g = gw_arena_new(&d->arena, gw_diag, 1);
    *g = (gw_diag){.severity = sev, .code = code, .where = where};
    g->id = id ? gw_arena_strdup(&d->arena, id) : NULL;
    g->where.file = where.file ? gw_arena_strdup(&d->arena, where.file) : NULL;
    g->message = message_text(&d->arena, fmt, ap);
    if (d->last)
        d->last->next = g;
    else
        d->first = g;
    d->last = g;
    d->nerrors += sev == GW_ERROR;
    d->nwarnings += sev == GW_WARNING;
    return g;
}

gw_diag *gw_diag_add(gw_diags *d, gw_severity sev, gw_code code, const char *id, gw_where where,
                     const char *fmt, ...) {
    if (!d) return NULL;
    va_list ap;
    va_start(ap, fmt);
    gw_diag *g = add(d, sev, code, id, where, fmt, ap);
    va_end(ap);
    return g;
}

gw_status gw_fail_at(gw_diags *d, gw_code code, const char *id, gw_where where, const char *fmt,
                     ...) {
    if (!d) return code;
    va_list ap;
    va_start(ap, fmt);
    add(d, GW_ERROR, code, id, where, fmt, ap);
    va_end(ap);
    return code;
}

void gw_diag_detail(gw_diags *d, gw_diag *g, const char *fmt, ...) {
    if (!d || !g) return;
    va_list ap;
    va_start(ap, fmt);
    g->detail = message_text(&d->arena, fmt, ap);
    va_end(ap);
}

void gw_diag_hint(gw_diags *d, gw_diag *g, const char *fmt, ...) {
    if (!d || !g) return;
    va_list ap;
    va_start(ap, fmt);
    g->hint = message_text(&d->arena, fmt, ap);
    va_end(ap);
}

void gw_diag_frame(gw_diags *d, const char *fmt, ...) {
    gw_diag *latest = NULL;
    for (gw_diag *g = d ? d->first : NULL; g; g = g->next)
        if (g->severity == GW_ERROR) latest = g;
    if (!latest) return;
    va_list ap;
    va_start(ap, fmt);
    const char *text = message_text(&d->arena, fmt, ap);
    va_end(ap);
    latest->frames = latest->frames
                         ? gw_arena_printf(&d->arena, "%s\nwhile %s", latest->frames, text)
                         : gw_arena_printf(&d->arena, "while %s", text);
}

static const char *copy_of(gw_diags *d, const char *s) {
    return s ? gw_arena_strdup(&d->arena, s) : NULL;
}

void gw_diags_take(gw_diags *d, gw_diags *from) {
    for (const gw_diag *g = d ? from->first : NULL; g; g = g->next) {
        gw_diag *c = gw_diag_add(d, g->severity, g->code, g->id, g->where, "%s", g->message);
        c->detail = copy_of(d, g->detail);
        c->hint = copy_of(d, g->hint);
        c->frames = copy_of(d, g->frames);
    }
    gw_diags_clear(from);
}

/* ------------------------------------------------------------------------------ printing */

static const char *severity_name(gw_severity s) {
    switch (s) {
    case GW_NOTE: return "note";
    case GW_WARNING: return "warning";
    case GW_ERROR: return "error";
    }
    return "error";
}

static const char *severity_colour(gw_severity s) {
    switch (s) {
    case GW_NOTE: return "\x1b[36m";
    case GW_WARNING: return "\x1b[35m";
    case GW_ERROR: return "\x1b[1;31m";
    }
    return "";
}

/* Bytes of the well-formed UTF-8 character at s (n > 0 bytes left), 0 where there is none. */
static size_t utf8_char(const char *s, size_t n, uint32_t *code) {
    uint8_t c = (uint8_t)s[0];
    size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    *code = len == 1 ? c : c & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if (((uint8_t)s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | ((uint8_t)s[i] & 0x3fu);
    }
    bool overlong = (len == 3 && *code < 0x800) || (len == 4 && *code < 0x10000);
    return overlong || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : len;
}

/* Characters that steer a terminal or reorder the text around them. */
static bool is_steering(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* One line of text, in which names and values that a user or a file gave may stand: what would
 * steer the terminal, and bytes that are not UTF-8, are shown as escapes. */
static void print_plain(FILE *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = utf8_char(text + i, n - i, &c);
        if (len && !is_steering(c))
            fwrite(text + i, 1, len, out);
        else if (len == 1 && strchr("\n\t\r", (int)c))
            fprintf(out, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else if (len > 2)
            fprintf(out, "\\u%04x", (unsigned)c);
        else
            for (size_t k = 0; k == 0 || k < len; k++)
                fprintf(out, "\\x%02x", (unsigned)(uint8_t)text[i + k]);
        i += len ? len : 1;
    }
}

/* Each line of the text on a line of its own, indented; `label` stands before the first. */
static void print_block(FILE *out, const char *label, const char *text) {
    while (text) {
        const char *end = strchr(text, '\n');
        fprintf(out, "  %s", label);
        print_plain(out, text, end ? (size_t)(end - text) : strlen(text));
        fputc('\n', out);
        text = end ? end + 1 : NULL;
        label = "";
    }
}

static void print_one(const gw_diag *g, FILE *out, bool colour) {
    if (g->where.file) {
        print_plain(out, g->where.file, strlen(g->where.file));
        if (g->where.line > 0) fprintf(out, ":%d", g->where.line);
        if (g->where.line > 0 && g->where.column > 0) fprintf(out, ":%d", g->where.column);
        fputs(": ", out);
    }
    fprintf(out, "%s%s:%s ", colour ? severity_colour(g->severity) : "", severity_name(g->severity),
            colour ? "\x1b[0m" : "");
    print_plain(out, g->message, strlen(g->message));
    if (g->id) fprintf(out, " [%s]", g->id);
    fputc('\n', out);
    print_block(out, "", g->detail);
    print_block(out, "", g->frames);
    print_block(out, "hint: ", g->hint);
}

void gw_diags_print(const gw_diags *d, FILE *out, bool colour) {
    for (const gw_diag *g = d->first; g; g = g->next)
        if (g->severity != GW_ERROR) print_one(g, out, colour);
    for (const gw_diag *g = d->first; g; g = g->next)
        if (g->severity == GW_ERROR) print_one(g, out, colour);
    fflush(out);
}

const char *gw_diags_first_error(const gw_diags *d) {
    for (const gw_diag *g = d ? d->first : NULL; g; g = g->next)
        if (g->severity == GW_ERROR) return g->message;
    return "";
}

int gw_status_exit_code(gw_status s) {
    switch (s) {
    case GW_OK: return 0;
    case GW_ERR_USAGE:
    case GW_ERR_CONFIG: return 2;
    case GW_ERR_INTERRUPTED: return 3;
    case GW_ERR_IO:
    case GW_ERR_FORMAT:
    case GW_ERR_UNSUPPORTED:
    case GW_ERR_MEMORY:
    case GW_ERR_PEER:
    case GW_ERR_NUMERIC:
    case GW_ERR_DEVICE: return 1;
    }
    return 1;
}
