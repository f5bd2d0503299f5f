// SPDX-License-Identifier: Apache-2.0
// JSON lines, reading only what is asked for.
//
// A data set's line holds one long string, the text, and a few short values; a parser that builds
// every value would spend its time on what nobody looks at. This one walks the line once, checks
// the whole grammar of RFC 8259, and decodes only the values whose path is asked for. Paths are
// followed as a set of bits: at each member name the keys that may still match go on into it.
//
// A bad line costs itself: its number and the byte are told, and the next line is read. Where the
// compressed stream breaks, the line that the break cuts is lost with it.
#include "file/jsonl.h" /* this module's contract */

#include <string.h>

#include "base/arena.h" /* gw_mem_* */

enum { DEPTH_MAX = 128, LINE_MAX_DEFAULT = 64 << 20, FIRST_LOOK = 1 << 16 };

/* --- one line --------------------------------------------------------------------------------- */

typedef struct parser {
    const uint8_t *p, *end, *start;
    const char *const *keys;
    int nkeys;
    gw_str *scratch; /* room for the whole line: nothing moves */
    gw_jsonl_value *values;
    const char *why;
} parser;

static bool fail(parser *j, const char *why) {
    if (!j->why) j->why = why;
    return false;
}

static void space(parser *j) {
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\r' || *j->p == '\n'))
        j->p++;
}

/* Steps over ordinary characters of a string. Eight at a time: a byte below 20, a quote and a
 * backslash each show in the top bit of one term. */
static const uint8_t *plain_run(const uint8_t *p, const uint8_t *end) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    while (end - p >= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
        uint64_t hit =
            ((x - ones * 32) & ~x) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash);
        if (hit & tops) break;
        p += 8;
    }
    while (p < end && *p >= 32 && *p != '"' && *p != '\\') p++;
    return p;
}

static int hex4(const uint8_t *p, const uint8_t *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static void add_utf8(gw_str *s, uint32_t c) {
    if (c < 0x80) {
        gw_str_add_char(s, (char)c);
    } else if (c < 0x800) {
        gw_str_add_char(s, (char)(0xc0 | c >> 6));
        gw_str_add_char(s, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        gw_str_add_char(s, (char)(0xe0 | c >> 12));
        gw_str_add_char(s, (char)(0x80 | (c >> 6 & 0x3f)));
        gw_str_add_char(s, (char)(0x80 | (c & 0x3f)));
    } else {
        gw_str_add_char(s, (char)(0xf0 | c >> 18));
        gw_str_add_char(s, (char)(0x80 | (c >> 12 & 0x3f)));
        gw_str_add_char(s, (char)(0x80 | (c >> 6 & 0x3f)));
        gw_str_add_char(s, (char)(0x80 | (c & 0x3f)));
    }
}

/* Behind "\u": a pair of surrogates is one character, a lone one U+FFFD. */
static bool unicode_escape(parser *j, gw_str *out) {
    int c = hex4(j->p, j->end);
    if (c < 0) return fail(j, "\\u without four hexadecimal digits");
    j->p += 4;
    uint32_t cp = (uint32_t)c;
    if (c >= 0xd800 && c < 0xdc00 && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u') {
        int low = hex4(j->p + 2, j->end);
        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
            j->p += 6;
        }
    }
    if (cp >= 0xd800 && cp < 0xe000) cp = 0xfffd;
    if (out) add_utf8(out, cp);
    return true;
}

static bool escape(parser *j, gw_str *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (++j->p == j->end) return fail(j, "the string does not end");
    uint8_t c = *j->p++;
    if (c == 'u') return unicode_escape(j, out);
    const char *at = c ? strchr(from, c) : NULL;
    if (!at) return fail(j, "an unknown escape in a string");
    if (out) gw_str_add_char(out, to[at - from]);
    return true;
}

/* At the opening quote. `out` NULL: only checked. */
static bool string(parser *j, gw_str *out) {
    j->p++;
    for (;;) {
        const uint8_t *run = plain_run(j->p, j->end);
        if (out) gw_str_add_n(out, j->p, (size_t)(run - j->p));
        j->p = run;
        if (run == j->end) return fail(j, "the string does not end");
        if (*run == '"') {
            j->p++;
            return true;
        }
        if (*run != '\\') return fail(j, "a control character in a string");
        if (!escape(j, out)) return false;
    }
}

static bool digits(parser *j) {
    const uint8_t *from = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9') j->p++;
    return j->p > from || fail(j, "a number without digits");
}

static bool number(parser *j) {
    if (*j->p == '-') j->p++;
    const uint8_t *from = j->p;
    if (!digits(j)) return false;
    if (*from == '0' && j->p - from > 1) return fail(j, "a number that begins with 0");
    if (j->p < j->end && *j->p == '.') {
        j->p++;
        if (!digits(j)) return false;
    }
    if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
        j->p++;
        if (j->p < j->end && (*j->p == '+' || *j->p == '-')) j->p++;
        if (!digits(j)) return false;
    }
    return true;
}

static bool word(parser *j, const char *w) {
    size_t n = strlen(w);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n) != 0) return fail(j, "no JSON value");
    j->p += n;
    return true;
}

typedef struct key_path {
    unsigned active;                /* keys that match so far */
    uint16_t at[GW_JSONL_KEYS_MAX]; /* where each key's next component begins */
} key_path;

/* The keys of `in` whose next component is the name; `ends` gets those it is the last of. */
static key_path step_into(const parser *j, const key_path *in, const char *name, size_t n,
                          unsigned *ends) {
    key_path out = {0};
    *ends = 0;
    for (int k = 0; k < j->nkeys; k++) {
        if (!(in->active >> k & 1)) continue;
        const char *key = j->keys[k] + in->at[k];
        size_t len = strcspn(key, ".");
        if (len != n || memcmp(key, name, n) != 0) continue;
        if (key[len] == 0) {
            *ends |= 1u << k;
        } else {
            out.active |= 1u << k;
            out.at[k] = (uint16_t)(in->at[k] + len + 1);
        }
    }
    return out;
}

static bool value(parser *j, int depth, const key_path *at, unsigned ends);

static bool member(parser *j, int depth, const key_path *at) {
    size_t mark = j->scratch->len;
    unsigned ends = 0;
    key_path inner = {0};
    if (j->p == j->end || *j->p != '"') return fail(j, "a member without a name in quotes");
    if (!string(j, at->active ? j->scratch : NULL)) return false;
    if (at->active) {
        size_t n = j->scratch->len - mark;
        inner = step_into(j, at, n ? j->scratch->data + mark : "", n, &ends);
        j->scratch->len = mark;
    }
    space(j);
    if (j->p == j->end || *j->p != ':') return fail(j, "no ':' after a name");
    j->p++;
    return value(j, depth + 1, &inner, ends);
}

/* An object (at not NULL) or array, at its opening bracket. */
static bool container(parser *j, int depth, const key_path *at, uint8_t close) {
    static const key_path none = {0};
    if (depth >= DEPTH_MAX) return fail(j, "nested too deeply");
    j->p++;
    space(j);
    if (j->p < j->end && *j->p == close) {
        j->p++;
        return true;
    }
    for (;;) {
        space(j);
        if (!(at ? member(j, depth, at) : value(j, depth + 1, &none, 0))) return false;
        space(j);
        if (j->p == j->end) return fail(j, "the line ends inside a value");
        uint8_t c = *j->p++;
        if (c == close) return true;
        if (c != ',') {
            j->p--;
            return fail(j, at ? "no ',' or '}' after a member" : "no ',' or ']' after an element");
        }
    }
}

static void keep(parser *j, unsigned ends, size_t mark) {
    size_t n = j->scratch->len - mark;
    gw_str_add_char(j->scratch, 0);
    for (int k = 0; k < j->nkeys; k++)
        if (ends >> k & 1)
            j->values[k] = (gw_jsonl_value){true, j->scratch->data + mark, (int64_t)n};
}

static bool value(parser *j, int depth, const key_path *at, unsigned ends) {
    space(j);
    if (j->p == j->end) return fail(j, "the line ends where a value must be");
    const uint8_t *from = j->p;
    size_t mark = j->scratch->len;
    uint8_t c = *j->p;
    if (c == '"') {
        if (!string(j, ends ? j->scratch : NULL)) return false;
        if (ends) keep(j, ends, mark);
        return true;
    }
    for (int k = 0; k < j->nkeys; k++)
        if (ends >> k & 1) j->values[k] = (gw_jsonl_value){false, "", 0};
    if (c == '{') return container(j, depth, at, '}');
    if (c == '[') return container(j, depth, NULL, ']');
    if (c == 'n') return word(j, "null");
    if (!(c == 't' ? word(j, "true") : c == 'f' ? word(j, "false") : number(j))) return false;
    if (ends) {
        gw_str_add_n(j->scratch, from, (size_t)(j->p - from));
        keep(j, ends, mark);
    }
    return true;
}

const char *gw_jsonl_parse(const char *line, int64_t n, const char *const *keys, int nkeys,
                           gw_str *scratch, gw_jsonl_value *values, int64_t *at) {
    parser j = {.p = (const uint8_t *)line, .keys = keys, .nkeys = nkeys, .scratch = scratch};
    key_path all = {.active = (1u << nkeys) - 1};
    j.start = j.p;
    j.end = j.p + n;
    j.values = values;
    gw_str_clear(scratch);
    /* Escapes only shrink; a value that several keys ask for is kept once; each has a NUL. */
    gw_str_reserve(scratch, (size_t)n + (size_t)n / 2 + 64);
    for (int k = 0; k < nkeys; k++) values[k] = (gw_jsonl_value){false, "", 0};
    space(&j);
    bool ok = j.p < j.end && *j.p == '{' ? container(&j, 0, &all, '}')
                                         : fail(&j, "the line is no JSON object");
    space(&j);
    if (ok && j.p != j.end) ok = fail(&j, "more follows after the object");
    if (at) *at = j.p - j.start;
    return ok ? NULL : j.why;
}

/* --- the file --------------------------------------------------------------------------------- */

struct gw_jsonl {
    gw_inflate *stream;
    const char *const *keys;
    int nkeys;
    int64_t max_line, number;
    int64_t pending; /* bytes of the last line */
    bool torn;       /* after a break: up to the next line end nothing counts */
    gw_str scratch;
};

static gw_jsonl *new_reader(gw_inflate *stream, const char *const *keys, int nkeys,
                            int64_t max_line) {
    gw_jsonl *r = gw_mem_zalloc(sizeof *r);
    r->stream = stream;
    r->keys = keys;
    r->nkeys = GW_MIN(nkeys, GW_JSONL_KEYS_MAX);
    r->max_line = max_line > 0 ? max_line : LINE_MAX_DEFAULT;
    return r;
}

gw_status gw_jsonl_open(const char *path, const char *const *keys, int nkeys,
                        int64_t max_line_bytes, int64_t max_ratio, gw_jsonl **out, gw_diags *dg) {
    gw_inflate *stream = NULL;
    GW_TRY(gw_inflate_open(path, max_ratio, &stream, dg));
    *out = new_reader(stream, keys, nkeys, max_line_bytes);
    return GW_OK;
}

gw_jsonl *gw_jsonl_open_bytes(const uint8_t *bytes, int64_t n, const char *const *keys, int nkeys,
                              int64_t max_line_bytes, int64_t max_ratio) {
    return new_reader(gw_inflate_open_bytes(bytes, n, max_ratio), keys, nkeys, max_line_bytes);
}

void gw_jsonl_free(gw_jsonl *r) {
    if (!r) return;
    gw_inflate_free(r->stream);
    gw_str_release(&r->scratch);
    gw_mem_free(r);
}

const gw_inflate *gw_jsonl_stream(const gw_jsonl *r) { return r->stream; }

/* Looks for the end of the line at the cursor. *n: its bytes without the line end; *ended: it has
 * one. False if it is longer than a line may be. */
static bool find_line(gw_jsonl *r, const uint8_t **p, int64_t *n, bool *ended) {
    int64_t seen = 0, want = 1;
    for (;;) {
        int64_t have = gw_inflate_peek(r->stream, want, p);
        const uint8_t *lf = have > seen ? memchr(*p + seen, '\n', (size_t)(have - seen)) : NULL;
        *ended = lf != NULL;
        *n = lf ? lf - *p : have;
        if (lf || have < want) return *n <= r->max_line;
        if (have > r->max_line) return false;
        seen = have;
        want = GW_MAX(have * 2, (int64_t)FIRST_LOOK);
    }
}

/* Steps to the line end after the cursor. */
static void drop_line(gw_jsonl *r) {
    for (;;) {
        const uint8_t *p;
        int64_t n = gw_inflate_peek(r->stream, 1, &p);
        const uint8_t *lf = n ? memchr(p, '\n', (size_t)n) : NULL;
        gw_inflate_skip(r->stream, lf ? lf - p + 1 : n);
        if (lf || n == 0) return;
    }
}

static gw_jsonl_step bad_line(gw_jsonl_line *line, int64_t offset, const char *why) {
    line->offset = offset;
    line->why = why;
    return GW_JSONL_BAD;
}

/* At a break: told once, and the torn line's rest dropped later. */
static gw_jsonl_step step_over_break(gw_jsonl *r, gw_jsonl_line *line) {
    int64_t offset = 0;
    const char *why = gw_inflate_break(r->stream, &offset);
    if (!why) return GW_JSONL_END;
    gw_inflate_resume(r->stream);
    r->torn = true;
    return bad_line(line, offset, why);
}

static bool is_blank(const uint8_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
    return true;
}

gw_jsonl_step gw_jsonl_next(gw_jsonl *r, gw_jsonl_line *line) {
    gw_inflate_skip(r->stream, r->pending);
    r->pending = 0;
    *line = (gw_jsonl_line){.why = ""};
    for (;;) {
        const uint8_t *p;
        int64_t n;
        bool ended;
        /* After a break a member may begin with a whole line or inside one: only what parses is
         * believed, and the first line that does not is dropped without a word. */
        if (gw_inflate_peek(r->stream, 1, &p) == 0) return step_over_break(r, line);
        line->offset = gw_inflate_offset(r->stream);
        line->number = ++r->number;
        if (!find_line(r, &p, &n, &ended)) {
            drop_line(r);
            line->too_long = true;
            return bad_line(line, line->offset, "the line is longer than allowed");
        }
        int64_t offset = line->offset;
        if (!ended && gw_inflate_break_ahead(r->stream, &offset)) {
            gw_inflate_skip(r->stream, n);
            return step_over_break(r, line);
        }
        if (n >= 3 && r->number == 1 && !memcmp(p, "\xef\xbb\xbf", 3))
            p += 3, n -= 3, r->pending = 3;
        r->pending += n + ended;
        if (!is_blank(p, n)) {
            int64_t at = 0;
            const char *why = gw_jsonl_parse((const char *)p, n, r->keys, r->nkeys, &r->scratch,
                                             line->values, &at);
            bool torn = r->torn;
            r->torn = false;
            if (!why) return GW_JSONL_LINE;
            if (!torn) return bad_line(line, line->offset, why);
        }
        gw_inflate_skip(r->stream, r->pending);
        r->pending = 0;
    }
}
