// SPDX-License-Identifier: Apache-2.0
// Parsing a graph's text: the inverse of ir/text.c, whose head has the grammar.
//
// One pass over the bytes with a cursor; each parse_* function reads one piece and returns false
// after the first error, which is reported with line and column. Any bytes are safe: every list is
// bounded by what the graph's fields hold, ids are checked against the count in the first line
// (itself bounded by the length of the text), sizes are checked so that no later arithmetic on them
// can overflow, and strings are taken byte by byte. What parses is well-formed but not yet sound:
// defined before use, right operand counts and the like are the verifier's.
//
// Ids are those of the text. `mesh` and `arena` lines come before the values; otherwise lines may
// stand in any order in which ops are in program order.
#include "ir/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "ir/shard.h"   /* gw_shard_kind_name */

#define WORD_MAX  64
#define MAX_RANKS (INT64_C(1) << 40)

typedef struct parser {
    const char *p, *end, *line;
    int line_number;
    gw_graph *g;
    const char *file;
    gw_diags *dg;
    uint8_t *declared; /* by value id */
    gw_str scratch;
    GW_VEC(uint32_t) in, out, after;
} parser;

/* ---- errors and lexing ---- */

static bool fail(parser *s, const char *fmt, ...) GW_PRINTF(2, 3);
static bool fail(parser *s, const char *fmt, ...) {
    char message[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    gw_where w = {s->file, s->line_number, (int)(s->p - s->line) + 1};
    gw_diag_add(s->dg, GW_ERROR, GW_ERR_FORMAT, "program-syntax", w, "%s", message);
    return false;
}

/* Skips blanks and a comment, not the end of the line. */
static void blanks(parser *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')) s->p++;
    if (s->p < s->end && *s->p == '#')
        while (s->p < s->end && *s->p != '\n') s->p++;
}

/* The next character after blanks, 0 at the end of the line or text. */
static char peek(parser *s) {
    blanks(s);
    return s->p < s->end && *s->p != '\n' ? *s->p : 0;
}

static bool accept(parser *s, char c) {
    if (peek(s) != c || !c) return false;
    s->p++;
    return true;
}

static bool expect(parser *s, char c) { return accept(s, c) || fail(s, "'%c' is missing here", c); }

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A word of letters, digits, '_' and '.', starting with a letter; "" if there is none. */
static void word(parser *s, char out[WORD_MAX]) {
    int n = 0;
    if (is_letter(peek(s)))
        while (s->p < s->end && n < WORD_MAX - 1 &&
               (is_letter(*s->p) || is_digit(*s->p) || *s->p == '_' || *s->p == '.'))
            out[n++] = *s->p++;
    out[n] = 0;
}

/* Takes the word `w` if it stands here. */
static bool accept_word(parser *s, const char *w) {
    const char *at = (peek(s), s->p);
    char got[WORD_MAX];
    word(s, got);
    if (strcmp(got, w) == 0) return true;
    s->p = at;
    return false;
}

static bool parse_int(parser *s, int64_t lo, int64_t hi, int64_t *out) {
    char buf[32];
    int n = 0;
    const char *at = (peek(s), s->p);
    if (s->p < s->end && *s->p == '-') buf[n++] = *s->p++;
    while (s->p < s->end && is_digit(*s->p) && n < 30) buf[n++] = *s->p++;
    buf[n] = 0;
    if (gw_parse_i64(buf, out) && *out >= lo && *out <= hi) return true;
    s->p = at;
    return fail(s, "a whole number between %lld and %lld is missing here", (long long)lo,
                (long long)hi);
}

static bool parse_float(parser *s, double *out) {
    char buf[48];
    int n = 0;
    const char *at = (peek(s), s->p);
    while (s->p < s->end && n < 47 &&
           (is_letter(*s->p) || is_digit(*s->p) || strchr("+-.", *s->p)) && *s->p)
        buf[n++] = *s->p++;
    buf[n] = 0;
    if (strcmp(buf, "inf") == 0) return *out = (double)INFINITY, true;
    if (strcmp(buf, "-inf") == 0) return *out = (double)-INFINITY, true;
    if (strcmp(buf, "nan") == 0) return *out = (double)NAN, true;
    if (gw_parse_f64(buf, out)) return true;
    s->p = at;
    return fail(s, "a number is missing here");
}

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

static bool parse_escape(parser *s, char *c) {
    if (s->p >= s->end) return fail(s, "the string has no end");
    char e = *s->p++;
    if (e == 'n')
        *c = '\n';
    else if (e == 't')
        *c = '\t';
    else if (e == '"' || e == '\\')
        *c = e;
    else if (e == 'x' && s->end - s->p >= 2 && hex_digit(s->p[0]) >= 0 && hex_digit(s->p[1]) >= 0) {
        *c = (char)(hex_digit(s->p[0]) * 16 + hex_digit(s->p[1]));
        s->p += 2;
    } else
        return fail(s, "the escape after '\\' is none of n t x \" \\");
    return *c != 0 || fail(s, "a string cannot hold a NUL");
}

static bool parse_string(parser *s, gw_sid *out) {
    if (!expect(s, '"')) return false;
    gw_str_clear(&s->scratch);
    for (;;) {
        if (s->p >= s->end || *s->p == '\n' || *s->p == 0)
            return fail(s, "the string has no end on this line");
        char c = *s->p++;
        if (c == '"') break;
        if (c == '\\' && !parse_escape(s, &c)) return false;
        gw_str_add_char(&s->scratch, c);
    }
    *out = gw_graph_intern(s->g, gw_str_c(&s->scratch));
    return true;
}

/* %n, below the number of values; `_` is GW_NONE where allowed. */
static bool parse_value_id(parser *s, bool absent_allowed, gw_vid *out) {
    int64_t v = 0;
    if (absent_allowed && accept(s, '_')) return *out = GW_NONE, true;
    if (!expect(s, '%') || !parse_int(s, 0, UINT32_MAX - 1, &v)) return false;
    if (v >= s->g->values.count)
        return fail(s, "%%%lld is not below the number of values, %lld", (long long)v,
                    (long long)s->g->values.count);
    *out = (gw_vid)v;
    return true;
}

/* ---- types ---- */

/* Axis and group names up to one of `/:+}`; at most `cap` sub-axes. */
static bool parse_axes(parser *s, uint8_t *axes, int cap, int *n) {
    const gw_mesh *m = &s->g->mesh;
    *n = 0;
    while (!strchr("/:+}", peek(s)) || peek(s) == 0) {
        char name[WORD_MAX];
        if (*n && !expect(s, ',')) return false;
        word(s, name);
        int axis = gw_mesh_find(m, name);
        uint32_t mask = axis >= 0 ? 1u << axis : name[0] ? gw_mesh_group(m, name) : 0;
        if (!mask) return fail(s, "'%s' is no axis of the mesh", name);
        for (int a = 0; a < m->naxes; a++) {
            if (!(mask >> a & 1u)) continue;
            if (*n == cap) return fail(s, "more than %d sub-axes in one place", cap);
            axes[(*n)++] = (uint8_t)a;
        }
    }
    return true;
}

static bool parse_mask(parser *s, uint32_t *mask) {
    uint8_t axes[GW_MAX_AXES];
    int n = 0;
    if (!expect(s, '{') || !parse_axes(s, axes, GW_MAX_AXES, &n)) return false;
    for (int i = 0; i < n; i++) *mask |= 1u << axes[i];
    return expect(s, '}');
}

static bool parse_shard_kind(parser *s, uint8_t *out) {
    char name[WORD_MAX];
    word(s, name);
    for (int k = 0; k < GW_SHARD_KIND_COUNT; k++)
        if (strcmp(name, gw_shard_kind_name((gw_shard_kind)k)) == 0) return *out = (uint8_t)k, true;
    return fail(s, "'%s' is no kind of shard", name);
}

static bool parse_dim(parser *s, gw_type *t) {
    if (t->ndim == GW_MAX_DIMS) return fail(s, "more than %d dimensions", GW_MAX_DIMS);
    gw_dim *d = &t->dims[t->ndim++];
    size_t n = 0;
    while (s->p < s->end && is_letter(*s->p) && n < sizeof d->name - 1) d->name[n++] = *s->p++;
    if (n == 0) return fail(s, "a dimension's name is missing here");
    if (s->p < s->end && is_letter(*s->p)) return fail(s, "a dimension's name is too long");
    if (accept(s, '{')) {
        int naxes = 0, more = 0;
        if (!parse_axes(s, d->axes, GW_MAX_DIM_AXES, &naxes)) return false;
        if (accept(s, '/')) {
            d->outer = (uint8_t)naxes;
            if (!parse_axes(s, d->axes + naxes, GW_MAX_DIM_AXES - naxes, &more)) return false;
        }
        d->naxes = (uint8_t)(naxes + more);
        if (accept(s, ':') && !parse_shard_kind(s, &d->shard)) return false;
        int64_t turn = 0;
        if (accept(s, '+') && !parse_int(s, 0, UINT8_MAX, &turn)) return false;
        d->turn = (uint8_t)turn;
        if (!expect(s, '}')) return false;
    }
    return parse_int(s, 0, INT64_MAX, &d->size);
}

static bool parse_partial(parser *s, gw_type *t) {
    if (accept_word(s, "flat")) {
        t->flat = 1;
        return parse_mask(s, &t->flat_axes);
    }
    if (!accept_word(s, "P") || !expect(s, '('))
        return fail(s, "P(sum), P(max) or flat is missing");
    bool sum = accept_word(s, "sum");
    if (!sum && !accept_word(s, "max")) return fail(s, "sum or max is missing");
    return expect(s, ')') && parse_mask(s, sum ? &t->psum : &t->pmax);
}

/* No product of sizes overflows, in bits. */
static bool size_is_sane(const gw_type *t) {
    int64_t bits = gw_dtype_bits((gw_dtype)t->dtype);
    for (int i = 0; i < t->ndim; i++)
        if (t->dims[i].size > 0 && __builtin_mul_overflow(bits, t->dims[i].size, &bits))
            return false;
    return true;
}

static bool parse_type(parser *s, gw_type *t) {
    char name[WORD_MAX];
    gw_dtype d = GW_F32;
    memset(t, 0, sizeof *t);
    word(s, name);
    if (!gw_dtype_parse(name, &d)) return fail(s, "'%s' is no element type", name);
    t->dtype = (uint8_t)d;
    if (!expect(s, '[')) return false;
    while (peek(s) != ']')
        if (!parse_dim(s, t)) return false;
    s->p++;
    while (s->p < s->end && *s->p == '+') {
        s->p++;
        if (!parse_partial(s, t)) return false;
    }
    return size_is_sane(t) || fail(s, "the value's size overflows");
}

/* ---- values ---- */

static int role_named(const char *w) {
    for (int i = 0; i < GW_ROLE_COUNT; i++)
        if (strcmp(w, gw_role_name((gw_role)i)) == 0) return i;
    return -1;
}

static int cause_named(const char *w) {
    for (int i = 0; i < GW_CAUSE_COUNT; i++)
        if (strcmp(w, gw_cause_name((gw_cause)i)) == 0) return i;
    return -1;
}

static int phase_named(const char *w) {
    for (int i = 0; i < GW_PHASE_COUNT; i++)
        if (strcmp(w, gw_phase_name((gw_phase)i)) == 0) return i;
    return -1;
}

static int rate_named(const char *w) {
    if (strcmp(w, "step") == 0) return GW_RATE_STEP;
    return strcmp(w, "mb") == 0 ? GW_RATE_MB : -1;
}

static bool parse_mem(parser *s, uint8_t *out) {
    char w[WORD_MAX];
    word(s, w);
    for (int i = 0; i < GW_MEM_COUNT; i++)
        if (strcmp(w, gw_mem_name((gw_mem)i)) == 0) return *out = (uint8_t)i, true;
    return fail(s, "'%s' is no memory kind", w);
}

/* Role, cause, rate, name and memory, each optional, until something else stands there. */
static bool parse_facts(parser *s, gw_value *v, bool *has_rate) {
    *has_rate = false;
    for (;;) {
        if (peek(s) == '"') {
            if (!parse_string(s, &v->name)) return false;
            continue;
        }
        const char *at = s->p;
        char w[WORD_MAX];
        word(s, w);
        int role = role_named(w), cause = cause_named(w), rate = rate_named(w);
        if (role >= 0)
            v->role = (uint8_t)role;
        else if (cause >= 0)
            v->cause = (uint8_t)cause;
        else if (rate >= 0) {
            v->rate = (uint8_t)rate;
            *has_rate = true;
        } else if (strcmp(w, "in") == 0) {
            if (!parse_mem(s, &v->mem)) return false;
        } else {
            s->p = at;
            return true;
        }
    }
}

static bool parse_value(parser *s, gw_value *v, bool *has_rate) {
    if (!parse_type(s, &v->type)) return false;
    if (accept(s, '=') && !parse_value_id(s, false, &v->tie)) return false;
    return parse_facts(s, v, has_rate);
}

static bool parse_offset(parser *s, int64_t *out) { return parse_int(s, 0, INT64_MAX, out); }

static bool declare(parser *s, gw_vid v) {
    if (s->declared[v]) return fail(s, "%%%u is declared twice", v);
    s->declared[v] = 1;
    return true;
}

static gw_value blank_value(gw_role role, gw_cause cause, gw_oid def, int out) {
    return (gw_value){.role = (uint8_t)role,
                      .cause = (uint8_t)cause,
                      .mem = GW_MEM_DEVICE,
                      .def = def,
                      .out = (uint16_t)out,
                      .tie = GW_NONE,
                      .offset = -1};
}

static bool parse_let(parser *s) {
    gw_vid id = 0;
    bool has_rate = false;
    gw_value v = blank_value(GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS, GW_NONE, 0);
    if (!parse_value_id(s, false, &id) || !declare(s, id) || !expect(s, ':')) return false;
    if (!parse_value(s, &v, &has_rate)) return false;
    if (!has_rate) return fail(s, "a rate (step or mb) is missing here");
    if (accept(s, '@') && !parse_offset(s, &v.offset)) return false;
    s->g->values.items[id] = v;
    return true;
}

/* ---- ops ---- */

static bool parse_attr_value(parser *s, const gw_attr_def *d, gw_attr *a) {
    char w[WORD_MAX];
    gw_dtype t = GW_F32;
    *a = (gw_attr){0};
    switch (d->kind) {
    case GW_ATTR_STR: return parse_string(s, &a->s);
    case GW_ATTR_FLOAT: return parse_float(s, &a->f);
    case GW_ATTR_BOOL:
        if (accept_word(s, "true")) return a->i = 1, true;
        if (accept_word(s, "false")) return true;
        break;
    case GW_ATTR_DTYPE:
        if (!is_letter(peek(s))) break;
        word(s, w);
        if (!gw_dtype_parse(w, &t)) return fail(s, "'%s' is no element type", w);
        return a->i = t, true;
    case GW_ATTR_INT: break;
    }
    return parse_int(s, INT64_MIN, INT64_MAX, &a->i);
}

static bool parse_attrs(parser *s, const gw_opdef *def, gw_attr *attrs) {
    if (!accept(s, '{')) return true;
    while (!accept(s, '}')) {
        char w[WORD_MAX];
        int i = 0;
        word(s, w);
        while (i < def->nattrs && strcmp(def->attrs[i].name, w) != 0) i++;
        if (i == def->nattrs) return fail(s, "%s has no attribute '%s'", def->name, w);
        if (!accept(s, '=') && def->attrs[i].kind == GW_ATTR_BOOL)
            attrs[i].i = 1;
        else if (!parse_attr_value(s, &def->attrs[i], &attrs[i]))
            return false;
    }
    return true;
}

static void push_default_attrs(parser *s, const gw_opdef *def) {
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr a = {0};
        if (def->attrs[i].kind == GW_ATTR_FLOAT)
            a.f = def->attrs[i].def_f;
        else if (def->attrs[i].kind != GW_ATTR_STR)
            a.i = def->attrs[i].def_i;
        gw_vec_push(&s->g->attrs, a);
    }
}

#define MAX_OPERANDS UINT16_MAX

static bool parse_op_outputs(parser *s) {
    s->out.count = 0;
    if (peek(s) != '%') return true;
    do {
        gw_vid v = 0;
        if (!parse_value_id(s, false, &v) || !declare(s, v)) return false;
        if (s->out.count == MAX_OPERANDS) return fail(s, "too many outputs");
        gw_vec_push(&s->out, v);
    } while (accept(s, ','));
    return expect(s, '=');
}

static bool parse_op_inputs(parser *s) {
    s->in.count = 0;
    if (peek(s) != '%' && peek(s) != '_') return true;
    do {
        gw_vid v = 0;
        if (!parse_value_id(s, true, &v)) return false;
        if (s->in.count == MAX_OPERANDS) return fail(s, "too many inputs");
        gw_vec_push(&s->in, v);
    } while (accept(s, ','));
    return true;
}

/* Types and facts of the results; their rate may follow from the op, which is read later. */
static bool parse_results(parser *s, gw_oid id, bool *own_rate) {
    if (!expect(s, ':')) return false;
    for (int64_t i = 0; i < s->out.count; i++) {
        gw_value v = blank_value(GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS, id, (int)i);
        bool has_rate = false;
        if (i && !expect(s, ',')) return false;
        if (!parse_value(s, &v, &has_rate)) return false;
        if (has_rate) own_rate[i] = true;
        s->g->values.items[s->out.items[i]] = v;
    }
    return true;
}

static bool parse_phase_rate(parser *s, gw_op *o) {
    char w[WORD_MAX];
    word(s, w);
    int phase = phase_named(w);
    if (phase < 0) return fail(s, "a phase (F B W BW O) is missing before '%s'", w);
    word(s, w);
    int rate = rate_named(w);
    if (rate < 0) return fail(s, "a rate (step or mb) is missing before '%s'", w);
    o->phase = (uint8_t)phase;
    o->rate = (uint8_t)rate;
    return peek(s) != '"' || parse_string(s, &o->scope);
}

static bool parse_stream(parser *s, gw_op *o) {
    char w[WORD_MAX];
    word(s, w);
    for (int i = 0; i < GW_STREAM_COUNT; i++)
        if (strcmp(w, gw_stream_name((gw_stream)i)) == 0) return o->stream = (uint8_t)i, true;
    return fail(s, "'%s' is no stream", w);
}

/* An earlier op, by one of its outputs or by number. */
static bool parse_op_ref(parser *s, gw_oid *out) {
    int64_t n = 0;
    gw_vid v = 0;
    if (peek(s) == '%') {
        if (!parse_value_id(s, false, &v)) return false;
        *out = s->g->values.items[v].def;
        if (!s->declared[v] || *out == GW_NONE) return fail(s, "%%%u is no op's result", v);
        return true;
    }
    if (s->end - s->p < 2 || s->p[0] != 'o' || s->p[1] != 'p')
        return fail(s, "%%n or opN is missing");
    s->p += 2;
    if (!parse_int(s, 0, UINT32_MAX - 1, &n)) return false;
    *out = (gw_oid)n;
    return true;
}

static bool parse_after(parser *s) {
    do {
        gw_oid a = 0;
        if (!parse_op_ref(s, &a)) return false;
        if (s->after.count == MAX_OPERANDS) return fail(s, "too many ops to wait for");
        gw_vec_push(&s->after, a);
    } while (accept(s, ','));
    return true;
}

static bool parse_op_offsets(parser *s) {
    for (int64_t i = 0; i < s->out.count; i++) {
        gw_value *v = &s->g->values.items[s->out.items[i]];
        if (i && !expect(s, ',')) return false;
        if (!accept(s, '_') && !parse_offset(s, &v->offset)) return false;
    }
    return true;
}

static bool parse_work(parser *s, gw_op *o, gw_oid id) {
    int64_t out = 0;
    if (!parse_value_id(s, false, &o->work)) return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!parse_int(s, 0, UINT16_MAX, &out)) return false;
    }
    if (!is_letter(peek(s))) return true; /* declared by a let */
    bool has_rate = false;
    gw_value v = blank_value(GW_ROLE_WORK, GW_CAUSE_WORKSPACE, id, (int)out);
    v.rate = o->rate;
    if (!declare(s, o->work) || !parse_value(s, &v, &has_rate)) return false;
    if (accept(s, '@') && !parse_offset(s, &v.offset)) return false;
    s->g->values.items[o->work] = v;
    return true;
}

static bool parse_part(parser *s, gw_op *o) {
    char w[WORD_MAX];
    word(s, w);
    for (int p = GW_PART_ALL + 1; p < GW_PART_COUNT; p++)
        if (strcmp(w, gw_part_name((gw_part)p)) == 0) return o->part = (uint8_t)p, true;
    return fail(s, "'%s' is no part of a stage", w);
}

static bool parse_op_options(parser *s, gw_op *o, gw_oid id) {
    int64_t n = 0;
    s->after.count = 0;
    while (peek(s)) {
        if (accept(s, '@')) {
            if (!parse_op_offsets(s)) return false;
        } else if (accept_word(s, "on")) {
            if (!parse_stream(s, o)) return false;
        } else if (accept_word(s, "after")) {
            if (!parse_after(s)) return false;
        } else if (accept_word(s, "recompute")) {
            o->flags |= GW_OP_RECOMPUTED;
        } else if (accept_word(s, "flags")) {
            if (!parse_int(s, 0, UINT8_MAX, &n)) return false;
            o->flags = (uint8_t)(o->flags | n);
        } else if (accept_word(s, "stage")) {
            if (!parse_int(s, INT32_MIN, INT32_MAX, &n)) return false;
            o->stage = (int32_t)n;
        } else if (accept_word(s, "part")) {
            if (!parse_part(s, o)) return false;
        } else if (accept_word(s, "work")) {
            if (!parse_work(s, o, id)) return false;
        } else {
            return fail(s, "'%c' cannot stand here", *s->p);
        }
    }
    return true;
}

static uint32_t push_ids(gw_graph *g, const uint32_t *ids, int64_t n) {
    uint32_t first = (uint32_t)g->edges.count;
    for (int64_t i = 0; i < n; i++) gw_vec_push(&g->edges, ids[i]);
    return first;
}

static bool parse_op_tail(parser *s, gw_op *o, gw_oid id) {
    bool own_rate[GW_MAX_OUT] = {false};
    if (s->out.count > GW_MAX_OUT) return fail(s, "more than %d outputs", GW_MAX_OUT);
    if (!parse_results(s, id, own_rate) || !parse_phase_rate(s, o)) return false;
    for (int64_t i = 0; i < s->out.count; i++)
        if (!own_rate[i]) s->g->values.items[s->out.items[i]].rate = o->rate;
    return parse_op_options(s, o, id);
}

static bool parse_op(parser *s) {
    gw_graph *g = s->g;
    gw_oid id = (gw_oid)g->ops.count;
    char name[WORD_MAX];
    if (!parse_op_outputs(s)) return false;
    word(s, name);
    int code = gw_optable_find(g->table, name);
    if (code < 0) return fail(s, "there is no op '%s'", name);
    gw_op o = {.code = (uint16_t)code, .work = GW_NONE, .attr = (uint32_t)g->attrs.count};
    push_default_attrs(s, g->table->ops[code]);
    if (!parse_op_inputs(s)) return false;
    gw_attr *attrs = g->attrs.count ? g->attrs.items + o.attr : NULL;
    if (!parse_attrs(s, g->table->ops[code], attrs) || !parse_op_tail(s, &o, id)) return false;
    o.nin = (uint16_t)s->in.count;
    o.nout = (uint16_t)s->out.count;
    o.nafter = (uint16_t)s->after.count;
    o.in = push_ids(g, s->in.items, s->in.count);
    o.out = push_ids(g, s->out.items, s->out.count);
    o.after = push_ids(g, s->after.items, s->after.count);
    gw_vec_push(&g->ops, o);
    return true;
}

/* ---- the whole ---- */

static bool parse_header(parser *s) {
    int64_t mb = 0, values = 0;
    if (!accept_word(s, "program")) return fail(s, "a program begins with the word 'program'");
    if (!accept_word(s, "mb")) return fail(s, "'mb' is missing here");
    if (!parse_int(s, 0, INT32_MAX, &mb)) return false;
    if (!accept_word(s, "values")) return fail(s, "'values' is missing here");
    if (!parse_int(s, 0, UINT32_MAX - 1, &values)) return false;
    /* A declaration takes at least the eight characters of `%1,` and `u8[],`. */
    if (values > (s->end - s->line) / 8 + 1)
        return fail(s, "more values than the text can declare");
    s->g->micro_batches = (int32_t)mb;
    for (int64_t i = 0; i < values; i++)
        gw_vec_push(&s->g->values, blank_value(GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS, GW_NONE, 0));
    s->declared = gw_mem_zalloc((size_t)values + 1);
    return true;
}

static bool parse_mesh(parser *s) {
    gw_mesh *m = &s->g->mesh;
    int64_t ranks = 1;
    if (m->naxes) return fail(s, "there is a mesh already");
    while (peek(s)) {
        char name[WORD_MAX];
        int64_t size = 0;
        word(s, name);
        if (m->naxes == GW_MAX_AXES) return fail(s, "more than %d sub-axes", GW_MAX_AXES);
        gw_axis *a = &m->axes[m->naxes];
        if (!name[0] || strlen(name) >= sizeof a->name)
            return fail(s, "an axis name of at most %d letters is missing",
                        (int)sizeof a->name - 1);
        if (gw_mesh_find(m, name) >= 0) return fail(s, "axis '%s' stands there twice", name);
        if (!expect(s, '=') || !parse_int(s, 1, INT32_MAX, &size)) return false;
        if (size > MAX_RANKS / ranks) return fail(s, "too many ranks");
        ranks *= size;
        memcpy(a->name, name, strlen(name) + 1);
        a->size = (int32_t)size;
        m->naxes++;
    }
    return true;
}

static bool parse_arena(parser *s) {
    uint8_t mem = 0;
    return parse_mem(s, &mem) && parse_int(s, 0, INT64_MAX, &s->g->arena_bytes[mem]);
}

static bool parse_state(parser *s) {
    gw_vid start = 0, end = 0;
    if (!parse_value_id(s, false, &start) || !parse_value_id(s, false, &end)) return false;
    gw_graph_add_state(s->g, start, end);
    return true;
}

static bool parse_actions(parser *s) {
    while (peek(s)) {
        const char *from = s->p;
        while (s->p < s->end && *s->p != ' ' && *s->p != '\n' && *s->p != '#') s->p++;
        gw_action a;
        if (!gw_action_parse(from, s->p - from, &a)) {
            s->p = from;
            return fail(s, "an action such as F0.3 is missing");
        }
        gw_vec_push(&s->g->actions, a);
    }
    return true;
}

/* One line, `first` of which has been looked at. */
static bool parse_line(parser *s) {
    if (!s->declared) return parse_header(s);
    if (accept_word(s, "let")) return parse_let(s);
    if (accept_word(s, "state")) return parse_state(s);
    if (accept_word(s, "mesh")) return parse_mesh(s);
    if (accept_word(s, "arena")) return parse_arena(s);
    if (accept_word(s, "actions")) return parse_actions(s);
    return parse_op(s);
}

static bool parse_all(parser *s) {
    while (s->p < s->end) {
        if (peek(s) && !parse_line(s)) return false;
        if (peek(s)) return fail(s, "'%c' cannot stand here", *s->p);
        if (s->p < s->end && *s->p == 0) return fail(s, "a NUL cannot stand here");
        if (s->p < s->end) {
            s->p++;
            s->line = s->p;
            s->line_number++;
        }
    }
    if (!s->declared) return fail(s, "a program begins with the word 'program'");
    for (int64_t i = 0; i < s->g->values.count; i++)
        if (!s->declared[i]) return fail(s, "%%%lld is declared nowhere", (long long)i);
    return true;
}

gw_status gw_graph_parse(gw_graph *g, const gw_optable *table, const char *text, int64_t n,
                         const char *file, gw_diags *dg) {
    gw_graph_init(g, table);
    parser s = {
        .p = text, .end = text + n, .line = text, .line_number = 1, .g = g, .file = file, .dg = dg};
    bool ok = parse_all(&s);
    gw_mem_free(s.declared);
    gw_str_release(&s.scratch);
    gw_vec_release(&s.in);
    gw_vec_release(&s.out);
    gw_vec_release(&s.after);
    if (!ok) gw_graph_release(g);
    return ok ? GW_OK : GW_ERR_FORMAT;
}
