// SPDX-License-Identifier: Apache-2.0
// Bytes a parameter: weights + gradients + optimizer states, from the values that belong to one.
//
// The op that updates a parameter reads all of them: the parameter itself, its gradient, its
// moments. The parameter is the weights when nothing casts it; otherwise it is the master copy, and
// the cast of it that products read is the weights. So the dtypes are read where the bytes are, and
// a new optimizer needs no line here.
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

/* Bytes of the copy of each master that products read: value id of the master -> bytes, 0 = no
 * copy. */
static int *find_copies(const gw_graph *g, gw_arena *mem) {
    int *copy = gw_arena_new(mem, int, g->values.count + 1);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (o->nin < 1 || o->nout != 1 || gw_op_in(g, o, 0) == GW_NONE) continue;
        gw_vid in = gw_op_in(g, o, 0), out = gw_op_out(g, o, 0);
        if (!is_leaf(g, in, GW_ROLE_PARAM)) continue;
        if (g->values.items[in].cause != GW_CAUSE_OPTIMIZER) continue;
        if (g->values.items[out].cause == GW_CAUSE_WEIGHTS) copy[in] = elem_bytes(g, out);
    }
    return copy;
}

static gw_ledger_kind kind_of(const gw_graph *g, const gw_op *o, const int *copy) {
    gw_ledger_kind k = {.tensors = 1};
    for (int i = 0; i < (int)o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        if (is_leaf(g, v, GW_ROLE_PARAM)) {
            bool master = g->values.items[v].cause == GW_CAUSE_OPTIMIZER;
            k.params = gw_type_elems(gw_type_of(g, v));
            k.master = master ? elem_bytes(g, v) : 0;
            k.weights = master ? copy[v] : elem_bytes(g, v);
        } else if (is_leaf(g, v, GW_ROLE_STATE)) {
            GW_ASSERT(k.nstates < GW_LEDGER_STATES);
            k.states[k.nstates++] = elem_bytes(g, v);
        } else if (g->values.items[v].cause == GW_CAUSE_GRADIENTS) {
            k.gradients = elem_bytes(g, v);
        }
    }
    k.optimizer = k.master;
    for (int i = 0; i < k.nstates; i++) k.optimizer += k.states[i];
    k.total = k.weights + k.gradients + k.optimizer;
    return k;
}

static bool same_kind(const gw_ledger_kind *a, const gw_ledger_kind *b) {
    return a->weights == b->weights && a->gradients == b->gradients && a->master == b->master &&
           a->nstates == b->nstates && memcmp(a->states, b->states, sizeof a->states) == 0;
}

static void spell(gw_ledger_kind *k) {
    gw_str s = {0};
    gw_str_printf(&s, "%d + %d", k->weights, k->gradients);
    if (k->master)
        gw_str_printf(&s, " + %d", k->optimizer);
    else
        for (int i = 0; i < k->nstates; i++) gw_str_printf(&s, " + %d", k->states[i]);
    gw_str_printf(&s, " = %d", k->total);
    snprintf(k->text, sizeof k->text, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

void gw_ledger_read_params(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    gw_arena mem = {0};
    const int *copy = find_copies(g, &mem);
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
        *row = k;
    }
    l->nkinds = (int)kinds.count;
    for (int i = 0; i < l->nkinds; i++) {
        gw_ledger_kind *k = &kinds.items[i];
        spell(k);
        l->static_weights += k->weights * k->params;
        l->static_gradients += k->gradients * k->params;
        l->static_optimizer += k->optimizer * k->params;
    }
    l->static_bytes = l->static_weights + l->static_gradients + l->static_optimizer;
    l->kinds = gw_arena_dup(&l->mem, kinds.items, kinds.count * (int64_t)sizeof *kinds.items);
    gw_vec_release(&kinds);
    gw_arena_release(&mem);
}
