// SPDX-License-Identifier: Apache-2.0
// Printing a graph: one op a line, everything the IR holds before `#`, derived figures after it.
//
//   program mb 4 values 7                                  micro-batches a step, number of values
//   mesh dp.0=2 tp.0=2                                     absent on one rank
//   arena device 123456                                    one line for each memory kind in use
//   let %0 : TYPE [=%k] ROLE CAUSE RATE ["name"] [in MEM] [@offset]
//   %5, %6 = op %0, _ {attr=1} : OUT, OUT PHASE RATE ["scope"] on STREAM OPTIONS
//   state %0 %5
//
//   TYPE  f32[b4 s{tp}512 d{dp.0,dp.1:zigzag}768]+P(sum){tp}+P(max){cp}+flat{dp}
//   OUT   TYPE [=%tied] [ROLE] [CAUSE] [RATE] ["name"] [in MEM]
//   OPTIONS  [after %2, op7] [recompute] [flags n] [stage n] [part rF] [@offset, _] [WORK]
//   WORK  work %8[.out] OUT [@offset]
//
// Values that no op defines stand in `let` lines, those that an op defines at its left, and its
// workspace at its end, so each value is declared once and ids need not be dense in any order. What
// equals its default is left out: attributes at the descriptor's, results that are `temp
// activations` at their op's rate on the device, chunk shards, stage 0, offsets not yet placed. In
// `{}` a group name stands for all of its sub-axes in mesh order. `after` names an op by its first
// output, or by number if it has none.
//
// The printer must survive any graph, because it describes broken ones for the verifier: it checks
// every id before following it and prints `?` where it leads nowhere. Figures come only with a
// graph that verifies. Parsing is in ir/text_parse.c; the two must change together
// (tests/ir/test_text.c).
#include "ir/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h" /* GW_MIN */
#include "ir/shard.h"      /* gw_shard_kind_name */
#include "ir/verify.h"     /* gw_graph_verify */

/* ---- small pieces ---- */

static void print_quoted(gw_str *out, const char *s) {
    gw_str_add_char(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            gw_str_printf(out, "\\%c", c);
        else if (c == '\n')
            gw_str_add(out, "\\n");
        else if (c == '\t')
            gw_str_add(out, "\\t");
        else if (c < 0x20 || c == 0x7f)
            gw_str_printf(out, "\\x%02x", c);
        else
            gw_str_add_char(out, (char)c);
    }
    gw_str_add_char(out, '"');
}

/* The shortest decimal that reads back as x. */
static void print_float(gw_str *out, double x) {
    char buf[40];
    if (isnan(x)) {
        gw_str_add(out, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, x);
        double back = strtod(buf, NULL);
        if (memcmp(&back, &x, sizeof x) == 0) break;
    }
    gw_str_add(out, buf);
}

static void print_value_id(gw_str *out, gw_vid v) {
    if (v == GW_NONE)
        gw_str_add_char(out, '_');
    else
        gw_str_printf(out, "%%%u", v);
}

static const char *string_of(const gw_graph *g, gw_sid s) {
    return (int64_t)s < g->strings.count ? gw_graph_str(g, s) : "?";
}

static bool edges_exist(const gw_graph *g, uint32_t first, int n) {
    return (int64_t)first + n <= g->edges.count;
}

/* ---- types ---- */

/* The name of the group that starts at axes[0..n) and is there whole and in order; 0 if none. */
static int whole_group(const gw_mesh *m, const uint8_t *axes, int n, char name[12]) {
    memcpy(name, m->axes[axes[0]].name, 12);
    name[11] = 0;
    char *dot = strchr(name, '.');
    if (!dot) return 0;
    *dot = 0;
    if (gw_mesh_find(m, name) >= 0) return 0;
    uint32_t mask = gw_mesh_group(m, name);
    int k = 0;
    for (int a = 0; a < m->naxes; a++) {
        if (!(mask >> a & 1u)) continue;
        if (k >= n || axes[k] != a) return 0;
        k++;
    }
    return k;
}

static void print_axes(gw_str *out, const gw_mesh *m, const uint8_t *axes, int n) {
    for (int i = 0; i < n;) {
        char name[12];
        if (i) gw_str_add_char(out, ',');
        if (!m || axes[i] >= m->naxes) {
            gw_str_printf(out, "?%d", axes[i++]);
            continue;
        }
        int k = whole_group(m, axes + i, n - i, name);
        gw_str_add(out, k ? name : m->axes[axes[i]].name);
        i += k ? k : 1;
    }
}

static void print_mask(gw_str *out, const gw_mesh *m, const char *what, uint32_t mask) {
    uint8_t axes[GW_MAX_AXES];
    int n = 0;
    for (int a = 0; a < GW_MAX_AXES; a++)
        if (mask >> a & 1u) axes[n++] = (uint8_t)a;
    gw_str_printf(out, "+%s{", what);
    print_axes(out, m, axes, n);
    gw_str_add_char(out, '}');
}

static void print_dim(gw_str *out, const gw_dim *d, const gw_mesh *m) {
    gw_str_printf(out, "%.*s", (int)sizeof d->name, d->name);
    if (d->naxes || d->shard) {
        int n = GW_MIN(d->naxes, GW_MAX_DIM_AXES), outer = GW_MIN(d->outer, n);
        gw_str_add_char(out, '{');
        print_axes(out, m, d->axes, outer);
        if (outer) gw_str_add_char(out, '/');
        print_axes(out, m, d->axes + outer, n - outer);
        if (d->shard) gw_str_printf(out, ":%s", gw_shard_kind_name((gw_shard_kind)d->shard));
        if (d->turn) gw_str_printf(out, "+%d", d->turn);
        gw_str_add_char(out, '}');
    }
    gw_str_printf(out, "%lld", (long long)d->size);
}

void gw_type_print(const gw_type *t, const gw_mesh *m, gw_str *out) {
    gw_str_add(out, gw_dtype_name((gw_dtype)t->dtype));
    gw_str_add_char(out, '[');
    for (int i = 0; i < t->ndim && i < GW_MAX_DIMS; i++) {
        if (i) gw_str_add_char(out, ' ');
        print_dim(out, &t->dims[i], m);
    }
    gw_str_add_char(out, ']');
    if (t->psum) print_mask(out, m, "P(sum)", t->psum);
    if (t->pmax) print_mask(out, m, "P(max)", t->pmax);
    if (t->flat || t->flat_axes) print_mask(out, m, "flat", t->flat_axes);
}

/* ---- values ---- */

/* What is left out of a value's facts when it says no more than this. */
typedef struct value_defaults {
    int role, cause, rate; /* -1: always printed */
} value_defaults;

static void print_word(gw_str *out, const char *name) { gw_str_printf(out, " %s", name); }

/* Type, tie and facts; offsets are printed by the callers. */
static void print_value(const gw_graph *g, const gw_value *v, value_defaults d, gw_str *out) {
    gw_type_print(&v->type, &g->mesh, out);
    if (v->tie != GW_NONE) gw_str_printf(out, "=%%%u", v->tie);
    if (v->role != d.role)
        print_word(out, v->role < GW_ROLE_COUNT ? gw_role_name((gw_role)v->role) : "?");
    if (v->cause != d.cause)
        print_word(out, v->cause < GW_CAUSE_COUNT ? gw_cause_name((gw_cause)v->cause) : "?");
    if (v->rate != d.rate) print_word(out, v->rate == GW_RATE_STEP ? "step" : "mb");
    if (v->name) {
        gw_str_add_char(out, ' ');
        print_quoted(out, string_of(g, v->name));
    }
    if (v->mem != GW_MEM_DEVICE)
        gw_str_printf(out, " in %s", v->mem < GW_MEM_COUNT ? gw_mem_name((gw_mem)v->mem) : "?");
}

static void print_leaf(const gw_graph *g, int64_t id, gw_str *out) {
    const gw_value *v = &g->values.items[id];
    gw_str_printf(out, "let %%%lld : ", (long long)id);
    print_value(g, v, (value_defaults){-1, -1, -1}, out);
    if (v->offset != -1) gw_str_printf(out, " @%lld", (long long)v->offset);
}

/* ---- ops ---- */

static bool attr_is_default(const gw_graph *g, const gw_attr_def *d, gw_attr a) {
    switch (d->kind) {
    case GW_ATTR_INT:
    case GW_ATTR_BOOL:
    case GW_ATTR_DTYPE: return a.i == d->def_i;
    case GW_ATTR_FLOAT: return memcmp(&a.f, &d->def_f, sizeof a.f) == 0;
    case GW_ATTR_STR: return string_of(g, a.s)[0] == 0;
    }
    return false;
}

static void print_attr(const gw_graph *g, const gw_attr_def *d, gw_attr a, gw_str *out) {
    gw_str_printf(out, "%s=", d->name);
    switch (d->kind) {
    case GW_ATTR_BOOL:
        if (a.i == 0 || a.i == 1) {
            gw_str_add(out, a.i ? "true" : "false");
            return;
        }
        break;
    case GW_ATTR_DTYPE:
        if (a.i >= 0 && a.i < GW_DTYPE_COUNT) {
            gw_str_add(out, gw_dtype_name((gw_dtype)a.i));
            return;
        }
        break;
    case GW_ATTR_INT: break;
    case GW_ATTR_FLOAT: print_float(out, a.f); return;
    case GW_ATTR_STR: print_quoted(out, string_of(g, a.s)); return;
    }
    gw_str_printf(out, "%lld", (long long)a.i);
}

static void print_attrs(const gw_graph *g, const gw_op *o, const gw_opdef *def, gw_str *out) {
    if ((int64_t)o->attr + def->nattrs > g->attrs.count) return;
    int printed = 0;
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr a = gw_op_attr(g, o, i);
        if (attr_is_default(g, &def->attrs[i], a)) continue;
        gw_str_add(out, printed++ ? " " : " {");
        print_attr(g, &def->attrs[i], a, out);
    }
    if (printed) gw_str_add_char(out, '}');
}

static const gw_value *value_at(const gw_graph *g, gw_vid v) {
    return (int64_t)v < g->values.count ? &g->values.items[v] : NULL;
}

static void print_outputs(const gw_graph *g, const gw_op *o, gw_str *out) {
    value_defaults d = {GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS, o->rate};
    for (int i = 0; i < o->nout; i++) {
        const gw_value *v = value_at(g, gw_op_out(g, o, i));
        gw_str_add(out, i ? ", " : " ");
        if (v)
            print_value(g, v, d, out);
        else
            gw_str_add_char(out, '?');
    }
}

static void print_after(const gw_graph *g, const gw_op *o, gw_str *out) {
    if (!o->nafter || !edges_exist(g, o->after, o->nafter)) return;
    for (int i = 0; i < o->nafter; i++) {
        gw_oid a = g->edges.items[o->after + (uint32_t)i];
        const gw_op *w = (int64_t)a < g->ops.count ? &g->ops.items[a] : NULL;
        const gw_value *v = w && w->nout && edges_exist(g, w->out, w->nout)
                                ? value_at(g, gw_op_out(g, w, 0))
                                : NULL;
        gw_str_add(out, i ? ", " : " after ");
        if (v && v->def == a)
            gw_str_printf(out, "%%%u", gw_op_out(g, w, 0));
        else
            gw_str_printf(out, "op%u", a);
    }
}

static void print_offsets(const gw_graph *g, const gw_op *o, gw_str *out) {
    bool placed = false;
    for (int i = 0; i < o->nout; i++) {
        const gw_value *v = value_at(g, gw_op_out(g, o, i));
        placed |= v && v->offset != -1;
    }
    for (int i = 0; placed && i < o->nout; i++) {
        const gw_value *v = value_at(g, gw_op_out(g, o, i));
        gw_str_add(out, i ? ", " : " @");
        if (v && v->offset != -1)
            gw_str_printf(out, "%lld", (long long)v->offset);
        else
            gw_str_add_char(out, '_');
    }
}

static void print_work(const gw_graph *g, gw_oid id, const gw_op *o, gw_str *out) {
    if (o->work == GW_NONE) return;
    const gw_value *v = value_at(g, o->work);
    gw_str_printf(out, " work %%%u", o->work);
    if (!v || v->def != id) return; /* declared elsewhere */
    if (v->out) gw_str_printf(out, ".%d", v->out);
    gw_str_add_char(out, ' ');
    print_value(g, v, (value_defaults){GW_ROLE_WORK, GW_CAUSE_WORKSPACE, o->rate}, out);
    if (v->offset != -1) gw_str_printf(out, " @%lld", (long long)v->offset);
}

static void print_operands(const gw_graph *g, const gw_op *o, const char *name, gw_str *out) {
    for (int i = 0; i < o->nout; i++) {
        if (i) gw_str_add(out, ", ");
        print_value_id(out, gw_op_out(g, o, i));
    }
    gw_str_printf(out, "%s%s", o->nout ? " = " : "", name);
    for (int i = 0; i < o->nin; i++) {
        gw_str_add(out, i ? ", " : " ");
        print_value_id(out, gw_op_in(g, o, i));
    }
}

void gw_op_print(const gw_graph *g, gw_oid id, gw_str *out) {
    if ((int64_t)id >= g->ops.count) {
        gw_str_printf(out, "op%u ?", id);
        return;
    }
    const gw_op *o = &g->ops.items[id];
    const gw_opdef *def = o->code < g->table->count ? g->table->ops[o->code] : NULL;
    if (!def || !edges_exist(g, o->in, o->nin) || !edges_exist(g, o->out, o->nout)) {
        gw_str_printf(out, "op%u %s ?", id, def ? def->name : "?");
        return;
    }
    print_operands(g, o, def->name, out);
    print_attrs(g, o, def, out);
    gw_str_add(out, " :");
    print_outputs(g, o, out);
    print_word(out, o->phase < GW_PHASE_COUNT ? gw_phase_name((gw_phase)o->phase) : "?");
    print_word(out, o->rate == GW_RATE_STEP ? "step" : "mb");
    if (o->scope) {
        gw_str_add_char(out, ' ');
        print_quoted(out, string_of(g, o->scope));
    }
    gw_str_printf(out, " on %s",
                  o->stream < GW_STREAM_COUNT ? gw_stream_name((gw_stream)o->stream) : "?");
    print_after(g, o, out);
    if (o->flags & GW_OP_RECOMPUTED) gw_str_add(out, " recompute");
    if (o->flags & ~GW_OP_RECOMPUTED) gw_str_printf(out, " flags %u", o->flags & ~GW_OP_RECOMPUTED);
    if (o->stage) gw_str_printf(out, " stage %d", o->stage);
    if (o->part) gw_str_printf(out, " part %s", gw_part_name((gw_part)o->part));
    print_offsets(g, o, out);
    print_work(g, id, o, out);
}

/* ---- figures ---- */

/* What an op is measured by: FLOPs where each output element costs several, moved bytes of a
 * collective, else the bytes of its results. */
static void print_figure(const gw_graph *g, const gw_op *o, gw_str *out) {
    const gw_opdef *def = gw_op_def(g, o);
    char buf[32];
    gw_cost c = {0};
    def->cost(g, o, &c);
    double elems = 0, bytes = 0;
    for (int i = 0; i < o->nout; i++) {
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, i));
        elems += (double)gw_type_local_elems(t, &g->mesh, 0);
        bytes += (double)gw_type_local_bytes(t, &g->mesh, 0);
    }
    if (def->traits & GW_OP_COLLECTIVE)
        gw_str_printf(out, "   # %s moved", gw_fmt_bytes(buf, (int64_t)c.bytes_written));
    else if (c.flops > 1e5 && c.flops >= 16 * elems)
        gw_str_printf(out, "   # %sF", gw_fmt_si(buf, c.flops));
    else if (o->nout)
        gw_str_printf(out, "   # %s", gw_fmt_bytes(buf, (int64_t)bytes));
}

/* What a rank of a pipeline does, some actions a line. */
enum { ACTIONS_PER_LINE = 16 };
static void print_actions(const gw_graph *g, gw_str *out) {
    char buf[GW_ACTION_TEXT];
    for (int64_t i = 0; i < g->actions.count; i++) {
        if (i % ACTIONS_PER_LINE == 0) gw_str_add(out, i ? "\nactions" : "actions");
        gw_str_printf(out, " %s", gw_action_print(g->actions.items[i], buf));
    }
    if (g->actions.count) gw_str_add_char(out, '\n');
}

void gw_graph_print(const gw_graph *g, gw_str *out, bool derived) {
    bool figures = derived && gw_graph_verify(g, NULL) == GW_OK;
    gw_str_printf(out, "program mb %d values %lld\n", g->micro_batches, (long long)g->values.count);
    for (int a = 0; a < g->mesh.naxes && a < GW_MAX_AXES; a++)
        gw_str_printf(out, "%s%.*s=%d", a ? " " : "mesh ", (int)sizeof g->mesh.axes[a].name,
                      g->mesh.axes[a].name, g->mesh.axes[a].size);
    if (g->mesh.naxes) gw_str_add_char(out, '\n');
    for (int i = 0; i < GW_MEM_COUNT; i++)
        if (g->arena_bytes[i])
            gw_str_printf(out, "arena %s %lld\n", gw_mem_name((gw_mem)i),
                          (long long)g->arena_bytes[i]);
    print_actions(g, out);
    char buf[32];
    for (int64_t i = 0; i < g->values.count; i++) {
        if (g->values.items[i].def != GW_NONE) continue;
        print_leaf(g, i, out);
        if (figures)
            gw_str_printf(
                out, "   # %s",
                gw_fmt_bytes(buf, gw_type_local_bytes(&g->values.items[i].type, &g->mesh, 0)));
        gw_str_add_char(out, '\n');
    }
    for (int64_t i = 0; i < g->ops.count; i++) {
        gw_op_print(g, (gw_oid)i, out);
        if (figures) print_figure(g, &g->ops.items[i], out);
        gw_str_add_char(out, '\n');
    }
    for (int64_t i = 0; i < g->states.count; i++)
        gw_str_printf(out, "state %%%u %%%u\n", g->states.items[i].start, g->states.items[i].end);
}
