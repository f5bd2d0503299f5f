// SPDX-License-Identifier: Apache-2.0
// Facts that follow from an op's factor signature, and the builder that appends ops with inference.
//
// A signature text binds to the dimensions that stand in the operands: in "*!d,!d->*!d" the `*`
// takes the leading dims that no letter claims, the letters the trailing ones, position by
// position. Each distinct dimension name becomes a factor. From the factors follow the output dims,
// the mismatch message ("d is 768 here and 512 there"), which factors pass a sharding through, and
// the default cost.
//
// The builder keeps the first error and goes on with dummies, so that a model reads as straight
// lines and the user sees one message with the scope it happened in.
#include "ir/opdef.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */

bool gw_op_is(const gw_graph *g, const gw_op *o, const char *name) {
    return strcmp(gw_op_def(g, o)->name, name) == 0;
}

int gw_optable_find(const gw_optable *t, const char *name) {
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->ops[i]->name, name) == 0) return i;
    return -1;
}

int gw_op_accumulator(const gw_graph *g, const gw_op *o, int out) {
    const gw_opdef *def = gw_op_def(g, o);
    int from_end = (int)o->nout - out;
    return from_end <= def->nacc ? (int)o->nin - from_end : -1;
}

bool gw_op_accumulates(const gw_graph *g, const gw_op *o, int in) {
    for (int k = 0; k < (int)o->nout; k++)
        if (gw_op_accumulator(g, o, k) == in) return true;
    return false;
}

bool gw_factor_partners(const gw_factor *a, const gw_factor *b) {
    return (a->with[0] && strncmp(a->with, b->name, sizeof a->with) == 0) ||
           (b->with[0] && strncmp(b->with, a->name, sizeof a->name) == 0);
}

/* ---- attributes by name ---- */

static int attr_index(const gw_opdef *def, const char *name) {
    for (int i = 0; i < def->nattrs; i++)
        if (strcmp(def->attrs[i].name, name) == 0) return i;
    gw_panic("op %s has no attribute '%s'", def->name, name);
}

static const gw_opdef *def_named(const gw_optable *t, const char *op) {
    int code = gw_optable_find(t, op);
    if (code < 0) gw_panic("no op is called '%s'", op);
    return t->ops[code];
}

void gw_attrs_default(const gw_optable *t, const char *op, gw_attr *attrs) {
    const gw_opdef *def = def_named(t, op);
    memset(attrs, 0, sizeof(gw_attr) * GW_MAX_ATTRS);
    for (int i = 0; i < def->nattrs; i++) {
        if (def->attrs[i].kind == GW_ATTR_FLOAT)
            attrs[i].f = def->attrs[i].def_f;
        else
            attrs[i].i = def->attrs[i].def_i;
    }
}

void gw_attrs_set(const gw_optable *t, const char *op, gw_attr *attrs, const char *name,
                  gw_attr value) {
    attrs[attr_index(def_named(t, op), name)] = value;
}

gw_attr gw_op_attr_named(const gw_graph *g, const gw_op *o, const char *name) {
    return gw_op_attr(g, o, attr_index(gw_op_def(g, o), name));
}

/* ---- signatures ---- */

/* One operand of a signature text: a star or not, letters, which of them are whole. */
typedef struct operand {
    bool star, optional;
    int n;
    char letter[GW_MAX_DIMS];
    bool whole[GW_MAX_DIMS];
} operand;

typedef struct pattern {
    int nin, nout;
    operand in[GW_MAX_IN], out[GW_MAX_OUT];
} pattern;

static const char *parse_operand(const char *p, operand *o) {
    memset(o, 0, sizeof *o);
    bool whole = false;
    for (; *p && *p != ',' && !(p[0] == '-' && p[1] == '>'); p++) {
        if (*p == '*')
            o->star = true;
        else if (*p == '?')
            o->optional = true;
        else if (*p == '!')
            whole = true;
        else if (*p != ' ') {
            GW_ASSERT(o->n < GW_MAX_DIMS);
            o->letter[o->n] = *p;
            o->whole[o->n++] = whole;
            whole = false;
        }
    }
    return p;
}

static void parse_pattern(const char *text, pattern *pt) {
    memset(pt, 0, sizeof *pt);
    const char *p = text;
    for (;;) {
        GW_ASSERT(pt->nin < GW_MAX_IN);
        p = parse_operand(p, &pt->in[pt->nin++]);
        if (*p != ',') break;
        p++;
    }
    if (p[0] != '-' || p[1] != '>') gw_panic("signature '%s' has no ->", text);
    p += 2;
    for (;;) {
        GW_ASSERT(pt->nout < GW_MAX_OUT);
        p = parse_operand(p, &pt->out[pt->nout++]);
        if (*p != ',') break;
        p++;
    }
}

static gw_factor *factor_named(gw_signature *s, const char *name, int64_t size) {
    for (int i = 0; i < s->nfactors; i++)
        if (strncmp(s->factors[i].name, name, sizeof s->factors[i].name) == 0)
            return &s->factors[i];
    GW_ASSERT(s->nfactors < GW_MAX_FACTORS);
    gw_factor *f = &s->factors[s->nfactors++];
    memset(f, 0, sizeof *f);
    memcpy(f->name, name, sizeof f->name);
    f->size = size;
    memset(f->in_dim, -1, sizeof f->in_dim);
    memset(f->out_dim, -1, sizeof f->out_dim);
    return f;
}

void gw_sign_default(const gw_graph *g, const gw_op *o, gw_signature *s) {
    const gw_opdef *def = gw_op_def(g, o);
    memset(s, 0, sizeof *s);
    bool whole_of[GW_MAX_IN][GW_MAX_DIMS] = {{false}};
    if (def->signature[0]) {
        pattern pt;
        parse_pattern(def->signature, &pt);
        for (int i = 0; i < pt.nin && i < (int)o->nin; i++) {
            gw_vid v = gw_op_in(g, o, i);
            if (v == GW_NONE) continue;
            int ndim = g->values.items[v].type.ndim;
            for (int k = 0; k < pt.in[i].n && k < ndim; k++)
                whole_of[i][ndim - pt.in[i].n + k] = pt.in[i].whole[k];
        }
    }
    for (int i = 0; i < (int)o->nin && i < GW_MAX_IN; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        const gw_type *t = gw_type_of(g, v);
        for (int k = 0; k < t->ndim; k++) {
            gw_factor *f = factor_named(s, t->dims[k].name, t->dims[k].size);
            f->in_dim[i] = (int8_t)k;
            if (whole_of[i][k]) f->kind = GW_FACTOR_WHOLE;
        }
    }
    for (int i = 0; i < (int)o->nout; i++) {
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, i));
        for (int k = 0; k < t->ndim; k++)
            factor_named(s, t->dims[k].name, t->dims[k].size)->out_dim[i] = (int8_t)k;
    }
    for (int f = 0; f < s->nfactors; f++) {
        bool in_out = false;
        for (int i = 0; i < (int)o->nout; i++) in_out |= s->factors[f].out_dim[i] >= 0;
        if (!in_out && s->factors[f].kind != GW_FACTOR_WHOLE)
            s->factors[f].kind = GW_FACTOR_CONTRACT;
    }
}

/* ---- default inference ---- */

/* What letters and the star are bound to while inferring. */
typedef struct binding {
    gw_dim letters[128];
    bool bound[128];
    int letter_in[128]; /* which input bound it, for the message */
    gw_dim star[GW_MAX_DIMS];
    int nstar;
    bool star_bound;
} binding;

static gw_status mismatch(gw_infer *f, const char *what, int i, const gw_dim *a, const gw_dim *b) {
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "shape-mismatch",
                   "%s: input %d has %s%lld where %s needs %s%lld", f->def->name, i, a->name,
                   (long long)a->size, what, b->name, (long long)b->size);
}

static bool same_dim(const gw_dim *a, const gw_dim *b) {
    return a->size == b->size && memcmp(a->name, b->name, sizeof a->name) == 0;
}

static void bare(gw_dim *d, const gw_dim *from) { /* name and size, no placement */
    memset(d, 0, sizeof *d);
    memcpy(d->name, from->name, sizeof d->name);
    d->size = from->size;
}

static gw_status bind_operand(gw_infer *f, binding *bd, const operand *o, int i, const gw_type *t) {
    int nstar = t->ndim - o->n;
    if (nstar < 0 || (nstar > 0 && !o->star))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "shape-rank",
                       "%s: input %d has %d dimensions, its signature %s takes %d", f->def->name, i,
                       t->ndim, f->def->signature, o->n);
    if (o->star) {
        if (!bd->star_bound) {
            for (int k = 0; k < nstar; k++) bare(&bd->star[k], &t->dims[k]);
            bd->nstar = nstar;
            bd->star_bound = true;
        } else if (bd->nstar != nstar) {
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "shape-rank",
                           "%s: input %d has %d leading dimensions, others have %d", f->def->name,
                           i, nstar, bd->nstar);
        }
        for (int k = 0; k < nstar; k++)
            if (!same_dim(&bd->star[k], &t->dims[k]))
                return mismatch(f, "an earlier input", i, &t->dims[k], &bd->star[k]);
    }
    for (int k = 0; k < o->n; k++) {
        int c = o->letter[k];
        const gw_dim *d = &t->dims[nstar + k];
        if (!bd->bound[c]) {
            bare(&bd->letters[c], d);
            bd->bound[c] = true;
            bd->letter_in[c] = i;
        } else if (!same_dim(&bd->letters[c], d)) {
            return mismatch(f, "an earlier input", i, d, &bd->letters[c]);
        }
    }
    return GW_OK;
}

gw_status gw_infer_default(gw_infer *f) {
    if (!f->def->signature[0]) gw_panic("op %s has neither signature nor infer", f->def->name);
    pattern pt;
    parse_pattern(f->def->signature, &pt);
    binding bd;
    memset(&bd, 0, sizeof bd);
    for (int i = 0; i < pt.nin && i < f->nin; i++) {
        if (f->in[i] == GW_NONE) continue;
        GW_TRY(bind_operand(f, &bd, &pt.in[i], i, gw_type_of(f->g, f->in[i])));
    }
    for (int i = 0; i < *f->nout; i++) {
        const operand *o = &pt.out[GW_MIN(i, pt.nout - 1)];
        gw_type t = gw_type_scalar((gw_dtype)gw_type_of(f->g, f->in[0])->dtype);
        if (o->star)
            for (int k = 0; k < bd.nstar; k++) gw_type_add(&t, bd.star[k].name, bd.star[k].size);
        for (int k = 0; k < o->n; k++) {
            int c = o->letter[k];
            if (!bd.bound[c]) gw_panic("op %s: output letter %c is in no input", f->def->name, c);
            gw_type_add(&t, bd.letters[c].name, bd.letters[c].size);
        }
        f->out[i] = t;
    }
    return GW_OK;
}

gw_status gw_verify_default(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    const gw_opdef *def = gw_op_def(g, o);
    gw_type out[GW_MAX_OUT];
    memset(out, 0, sizeof out);
    int nout = def->nout;
    gw_infer f = {.g = g,
                  .def = def,
                  .in = g->edges.items + o->in,
                  .nin = o->nin,
                  .attrs = g->attrs.items + o->attr,
                  .out = out,
                  .nout = &nout,
                  .dg = dg};
    GW_TRY(def->infer(&f));
    if (nout != (int)o->nout)
        return GW_FAIL(dg, GW_ERR_FORMAT, "verify-outputs", "%s has %d outputs, not %d", def->name,
                       o->nout, nout);
    for (int i = 0; i < nout; i++) {
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, i));
        if (t->dtype != out[i].dtype || !gw_type_same_dims(t, &out[i]))
            return GW_FAIL(dg, GW_ERR_FORMAT, "verify-type",
                           "output %d of %s has another type than its inputs give", i, def->name);
    }
    return GW_OK;
}

/* Of a factor, what rank 0 has: in an operand that has it cut, otherwise in a result. */
static int64_t local_factor(const gw_graph *g, const gw_op *o, const gw_factor *f) {
    int64_t least = f->size;
    for (int i = 0; i < (int)o->nin; i++)
        if (gw_op_in(g, o, i) != GW_NONE && f->in_dim[i] >= 0)
            least = GW_MIN(least, gw_type_local_dim(gw_type_of(g, gw_op_in(g, o, i)), f->in_dim[i],
                                                    &g->mesh, 0));
    for (int i = 0; i < (int)o->nout; i++)
        if (f->out_dim[i] >= 0)
            least = GW_MIN(least, gw_type_local_dim(gw_type_of(g, gw_op_out(g, o, i)),
                                                    f->out_dim[i], &g->mesh, 0));
    return least;
}

void gw_cost_default(const gw_graph *g, const gw_op *o, gw_cost *c) {
    memset(c, 0, sizeof *c);
    gw_signature s;
    gw_op_def(g, o)->sign(g, o, &s);
    bool contracts = false;
    double all = 1;
    for (int i = 0; i < s.nfactors; i++) {
        all *= (double)local_factor(g, o, &s.factors[i]);
        contracts |= s.factors[i].kind == GW_FACTOR_CONTRACT;
    }
    for (int i = 0; i < (int)o->nin; i++)
        if (gw_op_in(g, o, i) != GW_NONE)
            c->bytes_read +=
                (double)gw_type_local_bytes(gw_type_of(g, gw_op_in(g, o, i)), &g->mesh, 0);
    for (int i = 0; i < (int)o->nout; i++)
        c->bytes_written +=
            (double)gw_type_local_bytes(gw_type_of(g, gw_op_out(g, o, i)), &g->mesh, 0);
    c->flops = contracts
                   ? 2 * all
                   : (double)gw_type_local_elems(gw_type_of(g, gw_op_out(g, o, 0)), &g->mesh, 0);
    c->flops_full = c->flops;
}

void gw_vjp_none(gw_vjp *v) {
    gw_panic("%s has no gradient", gw_op_def(v->g, &v->g->ops.items[v->op])->name);
}

void gw_cases_none(struct gw_cases *c) { (void)c; }

/* ---- builder ---- */

void gw_builder_init(gw_builder *b, gw_graph *g, gw_diags *dg) {
    memset(b, 0, sizeof *b);
    b->g = g;
    b->dg = dg;
    b->phase = GW_PHASE_F;
    b->rate = GW_RATE_MB;
}

void gw_builder_enter(gw_builder *b, const char *fmt, ...) {
    size_t n = strlen(b->scope);
    if (n && n + 1 < sizeof b->scope) b->scope[n++] = '/';
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->scope + n, sizeof b->scope - n, fmt, ap);
    va_end(ap);
}

void gw_builder_leave(gw_builder *b) {
    char *slash = strrchr(b->scope, '/');
    if (slash)
        *slash = 0;
    else
        b->scope[0] = 0;
}

/* After an error: one dummy scalar stands for every output. */
static gw_vid dummy(gw_builder *b, const gw_opdef *def, gw_vid *more) {
    gw_vid v = gw_graph_leaf(b->g, GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS, b->rate,
                             gw_type_scalar(GW_F32), "");
    for (int i = 1; more && i < def->nout; i++) more[i - 1] = v;
    return v;
}

gw_vid gw_build(gw_builder *b, const char *name, const gw_vid *in, int nin, const gw_attr *attrs,
                gw_vid *more) {
    int code = gw_optable_find(b->g->table, name);
    if (code < 0) gw_panic("no op is called '%s'", name);
    const gw_opdef *def = b->g->table->ops[code];
    if (b->status != GW_OK) return dummy(b, def, more);
    gw_vid all[GW_MAX_IN];
    const gw_vid *ins = in;
    if (!(def->traits & GW_OP_VARIADIC)) {
        GW_ASSERT(nin <= def->nin && nin >= def->nin - def->noptional);
        for (int i = 0; i < def->nin; i++) all[i] = i < nin ? in[i] : GW_NONE;
        ins = all;
        nin = def->nin;
    }
    gw_attr defaults[GW_MAX_ATTRS];
    if (!attrs) {
        gw_attrs_default(b->g->table, name, defaults);
        attrs = defaults;
    }
    gw_type out[GW_MAX_OUT];
    memset(out, 0, sizeof out);
    int nout = def->nout;
    gw_infer f = {b->g, def, ins, nin, attrs, out, &nout, b->dg};
    b->status = def->infer(&f);
    if (b->status != GW_OK) {
        gw_diag_frame(b->dg, "building %s", b->scope[0] ? b->scope : "the graph");
        return dummy(b, def, more);
    }
    gw_oid o = gw_graph_op(b->g, (uint16_t)code, ins, nin, attrs, out, nout, b->phase, b->rate,
                           gw_graph_intern(b->g, b->scope));
    const gw_op *op = &b->g->ops.items[o];
    for (int i = 1; more && i < nout; i++) more[i - 1] = gw_op_out(b->g, op, i);
    return gw_op_out(b->g, op, 0);
}
