// SPDX-License-Identifier: Apache-2.0
// Bytes a parameter: weights + gradients + optimizer states, from the values that belong to one.
//
// The op that updates a parameter reads all of them: the parameter itself, its gradient, its
// moments. The parameter is the weights when nothing casts it; otherwise it is the master copy, and
// the cast of it that products read is the weights. So the dtypes are read where the bytes are, and
// a new optimizer needs no line here.
//
// On several ranks a value's home may be a flat part. Whole or part is read off the root of its
// chain of ties, which owns the bytes: a gradient that is reduced in place to a part of its
// accumulator is still held whole. So the stages of ZeRO show as what they are, "2 + 2 + 12/8"
// being the first over eight ranks.
//
// "2 + 2 + 12 = 16" is a sum of bytes that exist, not of bytes that exist at once: with one
// micro-batch the backward pass frees a weight's copy as it makes its gradient, and the peak
// (live.c) is lower.
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "plan/ledger.h"

static int elem_bytes(const gw_graph *g, gw_vid v) {
    return gw_dtype_bits((gw_dtype)gw_type_of(g, v)->dtype) / 8;
}

static bool is_leaf(const gw_graph *g, gw_vid v, gw_role role) {
    const gw_value *x = &g->values.items[v];
    return x->def == GW_NONE && x->role == (uint8_t)role;
}

/* The owner of v's bytes; of what was fetched from host or disk, its home there. */
static gw_vid root_of(const gw_graph *g, gw_vid v) {
    gw_vid root = gw_value_root(g, v);
    gw_oid d = g->values.items[root].def;
    if (d == GW_NONE || g->ops.items[d].stream != GW_STREAM_COPY) return root;
    return gw_value_root(g, gw_op_in(g, &g->ops.items[d], 0));
}

/* The copy of a master that products read, and where it lives. */
typedef struct weight_copy {
    int bytes;   /* of one element; 0 = no copy */
    gw_vid home; /* what is kept through the step */
} weight_copy;

static weight_copy *find_copies(const gw_graph *g, gw_arena *mem) {
    weight_copy *copy = gw_arena_new(mem, weight_copy, g->values.count + 1);
    gw_vid *of = gw_arena_new(mem, gw_vid, g->values.count + 1); /* copy -> its master */
    for (int64_t v = 0; v < g->values.count; v++) of[v] = GW_NONE;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (o->nin < 1 || o->nout != 1 || gw_op_in(g, o, 0) == GW_NONE) continue;
        gw_vid in = gw_op_in(g, o, 0), out = gw_op_out(g, o, 0);
        if (gw_op_is(g, o, "cast")) in = root_of(g, in);
        bool gathered_once =
            gw_op_is(g, o, "all_gather") && o->rate == GW_RATE_STEP && of[in] != GW_NONE;
        bool cast = is_leaf(g, in, GW_ROLE_PARAM) && copy[in].bytes == 0 &&
                    g->values.items[in].cause == GW_CAUSE_OPTIMIZER && gw_op_is(g, o, "cast");
        if (!gathered_once && !cast) continue;
        of[out] = cast ? in : of[in];
        copy[of[out]] = (weight_copy){elem_bytes(g, out), out};
    }
    return copy;
}

/* Ranks that share one copy of what owns v's bytes, and the bytes that rank 0 holds. */
static int64_t home_of(const gw_graph *g, gw_vid v, int64_t *bytes) {
    const gw_type *t = gw_type_of(g, gw_value_root(g, v));
    *bytes += gw_type_local_bytes(t, &g->mesh, 0);
    return t->flat ? gw_mesh_size(&g->mesh, t->flat_axes) : 1;
}

static void add_param(gw_ledger_kind *k, const gw_graph *g, gw_vid leaf, const weight_copy *copy) {
    bool master = g->values.items[leaf].cause == GW_CAUSE_OPTIMIZER;
    k->params = gw_type_elems(gw_type_of(g, leaf));
    k->axes = gw_type_cut_axes(gw_type_of(g, leaf));
    k->master = master ? elem_bytes(g, leaf) : 0;
    k->weights = master ? copy[leaf].bytes : elem_bytes(g, leaf);
    if (!master)
        k->weights_over = home_of(g, leaf, &k->weights_bytes);
    else if (copy[leaf].bytes > 0)
        k->weights_over = home_of(g, copy[leaf].home, &k->weights_bytes);
    if (master) k->optimizer_over = home_of(g, leaf, &k->optimizer_bytes);
}

static gw_ledger_kind kind_of(const gw_graph *g, const gw_op *o, const weight_copy *copy) {
    gw_ledger_kind k = {.tensors = 1, .weights_over = 1, .gradients_over = 1, .optimizer_over = 1};
    for (int i = 0; i < (int)o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        gw_vid root = root_of(g, v);
        if (is_leaf(g, root, GW_ROLE_PARAM)) {
            add_param(&k, g, root, copy);
        } else if (is_leaf(g, root, GW_ROLE_STATE)) {
            GW_ASSERT(k.nstates < GW_LEDGER_STATES);
            k.states[k.nstates++] = elem_bytes(g, v);
            k.optimizer_over = home_of(g, root, &k.optimizer_bytes);
        } else if (g->values.items[v].cause == GW_CAUSE_GRADIENTS) {
            k.gradients = elem_bytes(g, v);
            k.gradients_over = home_of(g, v, &k.gradients_bytes);
        }
    }
    k.optimizer = k.master;
    for (int i = 0; i < k.nstates; i++) k.optimizer += k.states[i];
    k.total = k.weights + k.gradients + k.optimizer;
    return k;
}

static bool same_kind(const gw_ledger_kind *a, const gw_ledger_kind *b) {
    return a->weights == b->weights && a->gradients == b->gradients && a->master == b->master &&
           a->weights_over == b->weights_over && a->gradients_over == b->gradients_over &&
           a->optimizer_over == b->optimizer_over && a->axes == b->axes &&
           a->nstates == b->nstates && memcmp(a->states, b->states, sizeof a->states) == 0;
}

/* "tp 4", or of experts over several groups "dp 8 x tp 2". */
static void spell_cut(gw_ledger_kind *k, const gw_mesh *mesh) {
    static const char *const groups[] = {"dp_replicate", "dp", "cp", "tp"};
    gw_str s = {0};
    k->cut = gw_mesh_size(mesh, k->axes);
    for (size_t i = 0; i < GW_COUNT(groups); i++) {
        int64_t n = gw_mesh_size(mesh, k->axes & gw_mesh_group(mesh, groups[i]));
        if (n > 1) gw_str_printf(&s, "%s%s %lld", s.len ? " × " : "", groups[i], (long long)n);
    }
    snprintf(k->cut_text, sizeof k->cut_text, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

/* "12", or "12/8" where eight ranks share it. */
static void spell_part(gw_str *s, const char *sep, int bytes, int64_t over) {
    gw_str_printf(s, "%s%d", sep, bytes);
    if (over > 1) gw_str_printf(s, "/%lld", (long long)over);
}

static void spell(gw_ledger_kind *k) {
    gw_str s = {0};
    spell_part(&s, "", k->weights, k->weights_over);
    spell_part(&s, " + ", k->gradients, k->gradients_over);
    if (k->master)
        spell_part(&s, " + ", k->optimizer, k->optimizer_over);
    else
        for (int i = 0; i < k->nstates; i++) spell_part(&s, " + ", k->states[i], k->optimizer_over);
    double total = (double)k->weights / (double)k->weights_over +
                   (double)k->gradients / (double)k->gradients_over +
                   (double)k->optimizer / (double)k->optimizer_over;
    gw_str_printf(&s, " = %.6g", total);
    snprintf(k->text, sizeof k->text, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

void gw_ledger_read_params(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    gw_arena mem = {0};
    const weight_copy *copy = find_copies(g, &mem);
    GW_VEC(gw_ledger_kind) kinds = {0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_OPTIMIZER)) continue;
        gw_ledger_kind k = kind_of(g, o, copy);
        if (k.params == 0) continue; /* part of the optimizer, but of no one parameter: the clip */
        int64_t at = 0;
        while (at < kinds.count && !same_kind(&kinds.items[at], &k)) at++;
        if (at == kinds.count) gw_vec_push(&kinds, ((gw_ledger_kind){0}));
        gw_ledger_kind *row = &kinds.items[at];
        k.tensors += row->tensors;
        k.params += row->params;
        k.weights_bytes += row->weights_bytes;
        k.gradients_bytes += row->gradients_bytes;
        k.optimizer_bytes += row->optimizer_bytes;
        *row = k;
    }
    l->nkinds = (int)kinds.count;
    for (int i = 0; i < l->nkinds; i++) {
        gw_ledger_kind *k = &kinds.items[i];
        spell(k);
        spell_cut(k, &g->mesh);
        l->static_weights += k->weights_bytes;
        l->static_gradients += k->gradients_bytes;
        l->static_optimizer += k->optimizer_bytes;
    }
    l->static_bytes = l->static_weights + l->static_gradients + l->static_optimizer;
    l->kinds = gw_arena_dup(&l->mem, kinds.items, kinds.count * (int64_t)sizeof *kinds.items);
    gw_vec_release(&kinds);
    gw_arena_release(&mem);
}
