// SPDX-License-Identifier: Apache-2.0
// Laws of every op of the table, on the op's own cases. No op is named here: a new one is covered
// when its line stands in ops.def.
//
// Gradients: in float64, the gradient of sum(r * y), r fixed random numbers and y output 0 of the
// case's last op, or of seed * loss for a loss, is compared with central differences in every
// element of every float leaf. With step h the difference is wrong by about h^2/6 of the third
// derivative and by 1e-16/h of the value: for h = 1e-5 and numbers of order 1 that is some 1e-10.
// The bound, 1e-7 of the largest gradient, leaves room for third derivatives of 1000. A wrong
// formula is wrong in the first digits.
#include <string.h>

#include "base/str.h"  /* gw_str */
#include "eval.h"      /* eval */
#include "harness.h"   /* TEST, CHECK */
#include "ir/text.h"   /* gw_graph_print, gw_graph_parse */
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/ops.h"   /* gw_ops_table */

#include "base/rng.h" /* gw_rng_normal */

static bool is_float(const gw_graph *g, gw_vid v) {
    return gw_dtype_is_float((gw_dtype)gw_type_of(g, v)->dtype);
}

/* ---- reverse mode over a case's graph, by the ops' own vjp hooks ---- */

#define MAX_VALUES 512

typedef struct tape {
    gw_case *c;
    int64_t nforward;
    gw_vid last;            /* output 0 of the last op */
    gw_vid dout;            /* leaf with the gradient of `last`; GW_NONE for a loss */
    gw_vid loss;            /* what replaced the loss, or GW_NONE */
    bool needs[MAX_VALUES]; /* a gradient flows to this value */
    gw_vid grad[MAX_VALUES];
} tape;

static void mark_needs(tape *t) {
    const gw_graph *g = &t->c->g;
    for (int i = 0; i < t->c->nleaves; i++)
        t->needs[t->c->leaves[i].v] = !t->c->leaves[i].fixed && is_float(g, t->c->leaves[i].v);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        bool any = false;
        for (int k = 0; k < o->nin; k++)
            any |= gw_op_in(g, o, k) != GW_NONE && t->needs[gw_op_in(g, o, k)];
        if (gw_op_def(g, o)->traits & GW_OP_NODIFF) continue;
        t->needs[gw_op_out(g, o, 0)] = any;
    }
}

/* Backward reads only what the descriptor says it does: lifetimes and recomputation rely on it. */
static void check_reads(const tape *t, const gw_vjp *v, const gw_opdef *def, int64_t first_op) {
    const gw_graph *g = &t->c->g;
    for (int64_t i = first_op; i < g->ops.count; i++)
        for (int k = 0; k < g->ops.items[i].nin; k++) {
            gw_vid x = gw_op_in(g, &g->ops.items[i], k);
            bool forward = false, said = false;
            for (int j = 0; j < v->nin; j++)
                if (v->in[j] == x && x != GW_NONE) {
                    forward = true;
                    said |= j >= 16 || (def->reads_in >> j & 1);
                }
            for (int j = 0; j < v->nout; j++) {
                if (v->out[j] == x) {
                    forward = true;
                    said |= (def->reads_out >> j & 1) != 0;
                }
                said |= v->dout[j] == x;
            }
            CHECK_MSG(!forward || said,
                      "%s: backward reads a value that reads_in and reads_out leave out",
                      t->c->name);
        }
}

static void add_grad(tape *t, gw_vid v, gw_vid d) {
    if (v == GW_NONE || d == GW_NONE) return;
    const gw_graph *g = &t->c->g;
    CHECK_MSG(gw_type_same_dims(gw_type_of(g, v), gw_type_of(g, d)),
              "%s: a gradient has other dimensions than its input", t->c->name);
    CHECK_EQ(gw_type_of(g, d)->dtype, gw_type_of(g, v)->dtype);
    t->grad[v] = t->grad[v] == GW_NONE ? d : gw_build1(&t->c->b, "add", t->grad[v], d);
}

static void op_backward(tape *t, gw_oid id, bool want_any) {
    gw_graph *g = &t->c->g;
    gw_op o = g->ops.items[id];
    const gw_opdef *def = gw_op_def(g, &o);
    gw_vid in[64], out[GW_MAX_OUT], dout[GW_MAX_OUT], din[64], replace[GW_MAX_OUT];
    gw_attr attrs[GW_MAX_ATTRS];
    bool want[64], flows = (def->traits & GW_OP_LOSS) != 0, wanted = false;
    for (int i = 0; i < o.nin; i++) {
        in[i] = gw_op_in(g, &o, i);
        din[i] = GW_NONE;
        want[i] = want_any && in[i] != GW_NONE && t->needs[in[i]];
        wanted |= want[i];
    }
    for (int i = 0; i < o.nout; i++) {
        out[i] = gw_op_out(g, &o, i);
        replace[i] = GW_NONE;
        dout[i] = t->grad[out[i]];
        flows |= dout[i] != GW_NONE;
    }
    for (int i = 0; i < def->nattrs; i++) attrs[i] = gw_op_attr(g, &o, i);
    if (!flows || (def->traits & GW_OP_NODIFF)) return;
    gw_vjp v = {&t->c->b, g, id, in, out, o.nin, o.nout, attrs, dout, want, din, replace, GW_F64};
    int64_t before = g->ops.count;
    gw_phase phase = t->c->b.phase;
    def->vjp(&v);
    CHECK_OK(t->c->b.status, t->c->b.dg);
    CHECK_EQ(t->c->b.phase, phase);
    if (!wanted) CHECK_MSG(g->ops.count == before, "%s: builds gradients nobody wants", t->c->name);
    check_reads(t, &v, def, before);
    for (int i = 0; i < o.nin; i++) {
        CHECK_MSG(want[i] || din[i] == GW_NONE, "%s: gives a gradient nobody wants", t->c->name);
        add_grad(t, in[i], din[i]);
    }
    if (want_any && (def->traits & GW_OP_LOSS)) t->loss = replace[0];
}

/* Appends backward to the case's graph. */
static void tape_build(tape *t, gw_case *c) {
    memset(t, 0, sizeof *t);
    memset(t->grad, 0xff, sizeof t->grad);
    t->c = c;
    t->nforward = c->g.ops.count;
    t->loss = t->dout = GW_NONE;
    const gw_op *last = &c->g.ops.items[c->g.ops.count - 1];
    CHECK(gw_op_def(&c->g, last) == c->def);
    t->last = gw_op_out(&c->g, last, 0);
    mark_needs(t);
    CHECK_MSG(t->needs[t->last], "%s: no gradient flows", c->name);
    if (!(c->def->traits & GW_OP_LOSS)) {
        gw_type type = *gw_type_of(&c->g, t->last);
        t->dout =
            gw_graph_leaf(&c->g, GW_ROLE_INPUT, GW_CAUSE_ACTIVATIONS, GW_RATE_MB, type, "dout");
        t->grad[t->last] = t->dout;
    }
    op_backward(t, (gw_oid)(t->nforward - 1), false);
    for (int64_t i = t->nforward - 1; i >= 0; i--) op_backward(t, (gw_oid)i, true);
    CHECK(c->g.values.count <= MAX_VALUES);
}

/* ---- differences ---- */

static double functional(tape *t, eval *e) {
    eval_run(e, 0, t->nforward);
    const gw_op *last = &t->c->g.ops.items[t->nforward - 1];
    if (t->dout == GW_NONE) { /* the seed is a loss's last input before its accumulator */
        int seed = t->c->def->nin - t->c->def->nacc - 1;
        return eval_get(e, gw_op_in(&t->c->g, last, seed), 0) * eval_get(e, t->last, 0);
    }
    double sum = 0;
    for (int64_t i = 0; i < gw_type_elems(gw_type_of(&t->c->g, t->last)); i++)
        sum += eval_get(e, t->dout, i) * eval_get(e, t->last, i);
    return sum;
}

static double difference(tape *t, eval *e, gw_vid v, int64_t i) {
    double x = eval_get(e, v, i), h = 1e-5;
    eval_set(e, v, i, x + h);
    double up = functional(t, e);
    eval_set(e, v, i, x - h);
    double down = functional(t, e);
    eval_set(e, v, i, x);
    return (up - down) / (2 * h);
}

static double largest(eval *e, gw_vid v) {
    double most = 1;
    for (int64_t i = 0; v != GW_NONE && i < gw_type_elems(gw_type_of(e->g, v)); i++)
        most = fmax(most, fabs(eval_get(e, v, i)));
    return most;
}

static int64_t compare_leaf(tape *t, eval *e, gw_vid v) {
    double bound = 1e-7 * largest(e, t->grad[v]);
    int64_t n = gw_type_elems(gw_type_of(&t->c->g, v));
    for (int64_t i = 0; i < n; i++) {
        double want = difference(t, e, v, i);
        double got = t->grad[v] == GW_NONE ? 0 : eval_get(e, t->grad[v], i);
        CHECK_MSG(fabs(got - want) <= bound,
                  "%s: value %u element %lld: gradient %.12g, difference %.12g", t->c->name, v,
                  (long long)i, got, want);
    }
    return n;
}

static int64_t check_gradients(gw_case *c, gw_diags *dg) {
    tape t;
    eval e;
    tape_build(&t, c);
    CHECK_OK(gw_graph_verify(&c->g, dg), dg);
    eval_init(&e, &c->g);
    eval_leaves(&e, c);
    gw_rng_key key = gw_rng_key_named(2, c->name);
    for (int64_t i = 0; t.dout != GW_NONE && i < gw_type_elems(gw_type_of(&c->g, t.dout)); i++)
        eval_set(&e, t.dout, i, gw_rng_normal(key, (uint64_t)i));
    eval_run(&e, 0, c->g.ops.count);
    if (c->def->traits & GW_OP_LOSS) {
        CHECK_MSG(t.loss != GW_NONE, "%s: the loss is not replaced", c->name);
        CHECK_NEAR(eval_get(&e, t.loss, 0), eval_get(&e, t.last, 0), 1e-12);
    }
    int64_t n = 0;
    for (int i = 0; i < c->nleaves; i++)
        if (t.needs[c->leaves[i].v]) n += compare_leaf(&t, &e, c->leaves[i].v);
    eval_release(&e);
    return n;
}

TEST_WITHIN(every_vjp_agrees_with_central_differences, 120) {
    gw_diags dg;
    gw_diags_init(&dg);
    const gw_optable *table = gw_ops_table();
    for (int i = 0; i < table->count; i++) {
        const gw_opdef *def = table->ops[i];
        if (def->traits & GW_OP_NODIFF) continue;
        if (strncmp(def->name, "fp8_", 4) == 0) continue; /* straight through: test_fp8.c */
        gw_cases cs;
        int64_t elements = 0;
        gw_cases_init(&cs, table, def, GW_F64, &dg);
        for (int64_t k = 0; k < cs.items.count; k++)
            if (cs.items.items[k]->differentiate)
                elements += check_gradients(cs.items.items[k], &dg);
        test_note("%s: %lld elements", def->name, (long long)elements);
        CHECK_MSG(elements > 0, "%s is differentiable, but has no case to prove it", def->name);
        gw_cases_release(&cs);
    }
    gw_diags_release(&dg);
}

/* ---- descriptors ---- */

TEST(descriptors_are_whole) {
    const gw_optable *table = gw_ops_table();
    for (int i = 0; i < table->count; i++) {
        const gw_opdef *d = table->ops[i];
        CHECK_EQ(gw_optable_find(table, d->name), i);
        CHECK_MSG(d->doc && d->doc[0] && d->signature && d->infer && d->verify && d->sign &&
                      d->cost && d->vjp && d->reference && d->cases,
                  "%s has an empty slot", d->name);
        bool leaves = strcmp(d->name, "send") == 0; /* its value is another program's */
        CHECK_MSG(d->nout >= !leaves && d->nout <= GW_MAX_OUT && d->nin <= GW_MAX_IN, "%s",
                  d->name);
        CHECK_MSG(d->nattrs <= GW_MAX_ATTRS && (d->nattrs == 0 || d->attrs), "%s", d->name);
        CHECK_MSG(d->nacc <= d->noptional && d->noptional <= d->nin && d->nacc <= d->nout, "%s",
                  d->name);
        CHECK_MSG((d->vjp == gw_vjp_none) == ((d->traits & GW_OP_NODIFF) != 0),
                  "%s: no vjp and NODIFF go together", d->name);
        for (int k = 0; k < d->nout; k++)
            CHECK_MSG(d->ties[k] >= -1 && d->ties[k] < d->nin, "%s: ties", d->name);
    }
}

/* ---- text ---- */

static void check_text(gw_case *c, gw_diags *dg) {
    gw_str text = {0}, again = {0};
    gw_graph g;
    char why[256] = "";
    CHECK_OK(gw_graph_verify(&c->g, dg), dg);
    gw_graph_print(&c->g, &text, true);
    CHECK_OK(gw_graph_parse(&g, c->g.table, gw_str_c(&text), (int64_t)text.len, c->name, dg), dg);
    CHECK_MSG(gw_graph_equal(&c->g, &g, why, sizeof why), "%s: %s", c->name, why);
    gw_graph_print(&g, &again, true);
    CHECK_STR(gw_str_c(&again), gw_str_c(&text));
    gw_graph_release(&g);
    gw_str_release(&text);
    gw_str_release(&again);
}

TEST(every_case_survives_its_text) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const gw_dtype dtypes[] = {GW_F64, GW_F32, GW_BF16, GW_F16};
    for (size_t d = 0; d < GW_COUNT(dtypes); d++) {
        gw_cases cs;
        gw_cases_init(&cs, gw_ops_table(), NULL, dtypes[d], &dg);
        for (int64_t i = 0; i < cs.items.count; i++) check_text(cs.items.items[i], &dg);
        gw_cases_release(&cs);
    }
    gw_diags_release(&dg);
}

/* ---- rounding: the narrow op is the float64 op, rounded ---- */

/* Half a unit in the last place, relative to the value's binade at worst. */
static double half_ulp(gw_dtype t) {
    if (t == GW_BF16) return 0x1p-8;
    if (t == GW_F16) return 0x1p-11;
    return t == GW_F32 ? 0x1p-24 : 0x1p-53;
}

static void check_rounding(gw_case *narrow, gw_case *wide) {
    eval a, b;
    eval_init(&a, &narrow->g);
    eval_init(&b, &wide->g);
    eval_leaves(&a, narrow);
    CHECK_EQ(narrow->nleaves, wide->nleaves);
    for (int i = 0; i < narrow->nleaves; i++)
        for (int64_t k = 0; k < gw_type_elems(gw_type_of(&narrow->g, narrow->leaves[i].v)); k++)
            eval_set(&b, wide->leaves[i].v, k, eval_get(&a, narrow->leaves[i].v, k));
    eval_run(&a, 0, 1);
    eval_run(&b, 0, 1);
    const gw_op *oa = &narrow->g.ops.items[0], *ob = &wide->g.ops.items[0];
    for (int k = 0; k < oa->nout; k++) {
        gw_vid va = gw_op_out(&narrow->g, oa, k), vb = gw_op_out(&wide->g, ob, k);
        if (!is_float(&narrow->g, va)) continue;
        /* float32 inside is allowed to any op: a few units of it, at the scale of the tensor */
        double scale = largest(&b, vb) * 4e-7,
               ulp = half_ulp((gw_dtype)gw_type_of(&narrow->g, va)->dtype);
        for (int64_t i = 0; i < gw_type_elems(gw_type_of(&narrow->g, va)); i++) {
            double x = eval_get(&a, va, i), y = eval_get(&b, vb, i);
            CHECK_MSG(x == y || fabs(x - y) <= ulp * fabs(y) + scale,
                      "%s: output %d element %lld is %.9g, exactly %.9g", narrow->name, k,
                      (long long)i, x, y);
        }
    }
    eval_release(&a);
    eval_release(&b);
}

static gw_case *case_named(const gw_cases *cs, const char *name) {
    for (int64_t i = 0; i < cs->items.count; i++)
        if (strcmp(cs->items.items[i]->name, name) == 0) return cs->items.items[i];
    return NULL;
}

TEST(narrow_results_are_wide_ones_rounded) {
    static const gw_dtype dtypes[] = {GW_F32, GW_BF16, GW_F16};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases wide;
    gw_cases_init(&wide, gw_ops_table(), NULL, GW_F64, &dg);
    for (size_t d = 0; d < GW_COUNT(dtypes); d++) {
        gw_cases cs;
        int64_t checked = 0;
        gw_cases_init(&cs, gw_ops_table(), NULL, dtypes[d], &dg);
        for (int64_t i = 0; i < cs.items.count; i++) {
            gw_case *c = cs.items.items[i], *w = case_named(&wide, c->name);
            if (!w || c->g.ops.count != 1 || (c->def->traits & GW_OP_OPTIMIZER)) continue;
            if (strcmp(c->def->name, "rope_table") == 0)
                continue; /* float32 angles by definition */
            check_rounding(c, w);
            checked++;
        }
        CHECK(checked > 20);
        gw_cases_release(&cs);
    }
    gw_cases_release(&wide);
    gw_diags_release(&dg);
}

/* ---- accumulators: out = acc + result, in the accumulator's own bytes ---- */

static void check_accumulator(gw_case *c) {
    int64_t last = c->g.ops.count - 1;
    gw_op *o = &c->g.ops.items[last];
    int nacc = c->def->nacc;
    eval separate, in_place, without;
    eval_init(&separate, &c->g);
    eval_init(&in_place, &c->g);
    eval_leaves(&separate, c);
    eval_leaves(&in_place, c);
    eval_run(&separate, 0, last + 1);
    eval_run(&in_place, 0, last);
    eval_in_place(&in_place, (gw_oid)last);
    gw_vid acc[GW_MAX_OUT], out[GW_MAX_OUT];
    for (int i = 0; i < nacc; i++) {
        acc[i] = gw_op_in(&c->g, o, o->nin - nacc + i);
        out[i] = gw_op_out(&c->g, o, o->nout - nacc + i);
        c->g.edges.items[o->in + (uint32_t)(o->nin - nacc + i)] = GW_NONE;
        c->g.values.items[out[i]].tie = GW_NONE;
    }
    eval_init(&without, &c->g);
    eval_leaves(&without, c);
    eval_run(&without, 0, last + 1);
    for (int i = 0; i < nacc; i++) {
        if (acc[i] == GW_NONE) continue;
        gw_dtype t = (gw_dtype)gw_type_of(&c->g, out[i])->dtype;
        for (int64_t k = 0; k < gw_type_elems(gw_type_of(&c->g, out[i])); k++) {
            double a = eval_get(&separate, acc[i], k), r = eval_get(&without, out[i], k);
            double sum = eval_get(&separate, out[i], k);
            CHECK_MSG(fabs(sum - (a + r)) <= 2 * half_ulp(t) * (fabs(a) + fabs(r) + fabs(sum)),
                      "%s: %g + %g gave %g", c->name, a, r, sum);
            CHECK_MSG(sum == eval_get(&in_place, acc[i], k), "%s: in place differs", c->name);
        }
    }
    eval_release(&separate);
    eval_release(&in_place);
    eval_release(&without);
}

TEST(accumulators_add_in_place) {
    gw_diags dg;
    gw_diags_init(&dg);
    const gw_optable *table = gw_ops_table();
    for (int i = 0; i < table->count; i++) {
        const gw_opdef *def = table->ops[i];
        if (!def->nacc) continue;
        gw_cases cs;
        int checked = 0;
        gw_cases_init(&cs, table, def, GW_F32, &dg);
        for (int64_t k = 0; k < cs.items.count; k++) {
            gw_case *c = cs.items.items[k];
            const gw_op *o = &c->g.ops.items[c->g.ops.count - 1];
            if (gw_op_in(&c->g, o, o->nin - 1) == GW_NONE) continue;
            check_accumulator(c);
            checked++;
        }
        CHECK_MSG(checked > 0, "%s has no case with an accumulator", def->name);
        gw_cases_release(&cs);
    }
    gw_diags_release(&dg);
}

/* ---- in place: the trait is kept ---- */

static void check_in_place(gw_case *c, int input) {
    gw_op *o = &c->g.ops.items[c->g.ops.count - 1];
    gw_vid in = gw_op_in(&c->g, o, input), out = gw_op_out(&c->g, o, 0);
    eval a, b;
    eval_init(&a, &c->g);
    eval_init(&b, &c->g);
    eval_leaves(&a, c);
    eval_leaves(&b, c);
    eval_run(&a, 0, c->g.ops.count);
    eval_run(&b, 0, c->g.ops.count - 1);
    void *bytes = eval_data(&b, in);
    eval_data(&b, out);
    b.data[out] = bytes;
    eval_run(&b, c->g.ops.count - 1, c->g.ops.count);
    for (int k = 0; k < o->nout; k++)
        for (int64_t i = 0; i < gw_type_elems(gw_type_of(&c->g, gw_op_out(&c->g, o, k))); i++)
            CHECK_MSG(eval_get(&a, gw_op_out(&c->g, o, k), i) ==
                          eval_get(&b, gw_op_out(&c->g, o, k), i),
                      "%s: differs when output 0 takes the bytes of input %d", c->name, input);
    eval_release(&a);
    eval_release(&b);
}

TEST(in_place_ops_may_write_over_an_input) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    gw_cases_init(&cs, gw_ops_table(), NULL, GW_F32, &dg);
    int checked = 0;
    for (int64_t i = 0; i < cs.items.count; i++) {
        gw_case *c = cs.items.items[i];
        const gw_op *o = &c->g.ops.items[c->g.ops.count - 1];
        const gw_type *out = gw_type_of(&c->g, gw_op_out(&c->g, o, 0));
        if (!(c->def->traits & GW_OP_INPLACE)) continue;
        for (int k = 0; k < o->nin; k++) {
            gw_vid v = gw_op_in(&c->g, o, k);
            if (v == GW_NONE || gw_type_of(&c->g, v)->dtype != out->dtype ||
                gw_type_elems(gw_type_of(&c->g, v)) != gw_type_elems(out))
                continue;
            check_in_place(c, k);
            checked++;
        }
    }
    CHECK(checked > 5);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}
