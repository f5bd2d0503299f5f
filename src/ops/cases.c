// SPDX-License-Identifier: Apache-2.0
// The suite's builder (ops/cases.h holds the contract).
//
// An op's cases hook describes graphs; here they are collected, and their leaves get numbers from
// the counter-based generator, keyed by case and leaf. A case that does not build is a fault of its
// op's file, and a panic.
#include "ops/cases.h"

#include <math.h>
#include <stdio.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */
#include "base/rng.h"   /* gw_rng_key_named, gw_rng_normal */
#include "ops/ref.h"    /* gw_ref_set */

gw_case *gw_case_begin(gw_cases *cs, const char *name) {
    gw_case *c = gw_mem_zalloc(sizeof *c);
    snprintf(c->name, sizeof c->name, "%s: %s", cs->def->name, name);
    c->def = cs->def;
    c->dtype = cs->dtype;
    c->differentiate = !(cs->def->traits & GW_OP_NODIFF);
    gw_graph_init(&c->g, cs->table);
    c->g.micro_batches = 1;
    gw_builder_init(&c->b, &c->g, cs->dg);
    gw_builder_enter(&c->b, "%s", c->name);
    gw_vec_push(&cs->items, c);
    return c;
}

static gw_vid add_leaf(gw_case *c, gw_type type, bool param, gw_case_leaf leaf) {
    GW_ASSERT(c->nleaves < (int)GW_COUNT(c->leaves));
    char name[24];
    snprintf(name, sizeof name, "leaf %d", c->nleaves);
    leaf.v = gw_graph_leaf(&c->g, param ? GW_ROLE_PARAM : GW_ROLE_INPUT,
                           param ? GW_CAUSE_WEIGHTS : GW_CAUSE_DATA, c->b.rate, type, name);
    c->leaves[c->nleaves++] = leaf;
    return leaf.v;
}

gw_vid gw_case_value(gw_case *c, const char *dims, bool param, gw_case_fill fill, double a,
                     double b) {
    return add_leaf(c, gw_type_make(c->dtype, dims), param,
                    (gw_case_leaf){.fill = fill, .a = a, .b = b});
}

gw_vid gw_case_fixed(gw_case *c, gw_dtype t, const char *dims, gw_case_fill fill, double a,
                     double b) {
    return add_leaf(c, gw_type_make(t, dims), false,
                    (gw_case_leaf){.fill = fill, .a = a, .b = b, .fixed = true});
}

static void build_cases(gw_cases *cs, const gw_opdef *def) {
    int64_t first = cs->items.count;
    cs->def = def;
    def->cases(cs);
    for (int64_t i = first; i < cs->items.count; i++)
        if (cs->items.items[i]->b.status != GW_OK)
            gw_panic("case \"%s\" does not build: %s", cs->items.items[i]->name,
                     gw_diags_first_error(cs->dg));
}

void gw_cases_init(gw_cases *cs, const gw_optable *t, const gw_opdef *def, gw_dtype dtype,
                   gw_diags *dg) {
    *cs = (gw_cases){.dtype = dtype, .table = t, .dg = dg};
    for (int i = 0; i < t->count; i++)
        if (!def || def == t->ops[i]) build_cases(cs, t->ops[i]);
}

void gw_cases_release(gw_cases *cs) {
    for (int64_t i = 0; i < cs->items.count; i++) {
        gw_graph_release(&cs->items.items[i]->g);
        gw_mem_free(cs->items.items[i]);
    }
    gw_vec_release(&cs->items);
}

/* ---- numbers ---- */

/* Element e of a leaf whose last dim has `last` elements. */
static double element(const gw_case_leaf *l, gw_rng_key key, int64_t e, int64_t last) {
    double u = (double)gw_rng_uniform(key, (uint64_t)e);
    switch (l->fill) {
    case GW_FILL_NORMAL: return l->a * gw_rng_normal(key, (uint64_t)e);
    case GW_FILL_UNIFORM: return l->a + (l->b - l->a) * u;
    case GW_FILL_INTS: return floor(l->a + (l->b - l->a) * u);
    case GW_FILL_IOTA: return l->a + (double)(e % last);
    case GW_FILL_CONST: return l->a;
    case GW_FILL_LABELS:
        return u < 0.2 ? -100 : floor(l->b * (double)gw_rng_uniform(key, (uint64_t)e + (1u << 30)));
    case GW_FILL_SEGMENTS: {
        double id = l->a;
        for (int64_t i = e - e % last + 1; i <= e; i++)
            id += (double)gw_rng_uniform(key, (uint64_t)i) * l->b < 1;
        return id;
    }
    }
    gw_panic("a leaf with fill %d", (int)l->fill);
}

static void store(const gw_tensor *t, int64_t i, double x) {
    switch (t->dtype) {
    case GW_F32:
    case GW_BF16:
    case GW_F16:
    case GW_F64: gw_ref_set(t, i, x); return;
    case GW_I32: ((int32_t *)t->data)[i] = (int32_t)x; return;
    case GW_I64: ((int64_t *)t->data)[i] = (int64_t)x; return;
    case GW_U8: ((uint8_t *)t->data)[i] = (uint8_t)x; return;
    case GW_F8E4M3:
    case GW_F8E5M2: gw_ref_set(t, i, x); return;
    case GW_DTYPE_COUNT: break;
    }
    gw_panic("a leaf with dtype %d", (int)t->dtype);
}

void gw_case_fill_leaf(const gw_case *c, int i, void *data) {
    const gw_case_leaf *l = &c->leaves[i];
    const gw_type *type = gw_type_of(&c->g, l->v);
    gw_tensor t = {.data = data, .dtype = (gw_dtype)type->dtype, .elems = gw_type_elems(type)};
    gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(1, c->name), (uint64_t)i);
    int64_t last = type->ndim ? type->dims[type->ndim - 1].size : 1;
    for (int64_t e = 0; e < t.elems; e++) store(&t, e, element(l, key, e, last));
}
