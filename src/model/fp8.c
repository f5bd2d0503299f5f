// SPDX-License-Identifier: Apache-2.0
// Linear layers in eight-bit floats.
//
// A model builder knows nothing of this. Its graph of one micro-batch's forward is copied op by op,
// and where a matmul multiplies an activation with a weight of a layer, three ops stand instead:
//
//   xv, xs = fp8_quant x {along=D}            a scale for every 128 along the contracted dimension
//   wv, ws = fp8_quant w {along=D across=F}   one for every 128 x 128
//   y      = fp8_matmul xv, xs, wv, ws, bias
//
// Products of one activation (q, k and v; gate and up) share its quantised form, and a weight that
// is used twice is quantised once. Weights are parameters as before, with their master copies and
// float32 gradients; what is quantised is the compute copy, in every micro-batch.
//
// What stays in the compute dtype is what DeepSeek-V3 leaves there (arXiv 2412.19437, section
// 3.3.1): embedding, head, router, norms, attention. The choice is by what the second operand is: a
// parameter named "layers.", and no router. Products of experts are ops of their own, which this
// rewrite leaves alone.
#include "model/fp8.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"   /* gw_arena_new */
#include "base/panic.h"   /* gw_panic */
#include "ir/opdef.h"     /* gw_builder, gw_build */
#include "ops/contract.h" /* gw_contract_find */
#include "ops/fp8.h"      /* gw_fp8_side_of */

typedef struct quantised {
    gw_vid of, values, scales; /* of: in src */
    int along, across;
} quantised;

typedef struct rewrite {
    const gw_graph *src;
    gw_graph *dst;
    gw_builder b;
    gw_vid *map; /* [src values] */
    quantised *made;
    int64_t nmade;
    const gw_fp8_opts *opts;
} rewrite;

static bool is_linear_layer(const gw_graph *g, const gw_op *o) {
    if (!gw_op_is(g, o, "matmul") || o->phase != GW_PHASE_F) return false;
    const gw_value *w = &g->values.items[gw_op_in(g, o, 1)];
    const char *name = gw_graph_str(g, w->name);
    return w->role == GW_ROLE_PARAM && w->def == GW_NONE && strncmp(name, "layers.", 7) == 0 &&
           !strstr(name, "router");
}

static gw_attr text(rewrite *r, const gw_type *t, int dim) {
    char name[sizeof t->dims->name + 1] = "";
    if (dim >= 0) memcpy(name, t->dims[dim].name, sizeof t->dims->name);
    return (gw_attr){.s = gw_graph_intern(r->dst, name)};
}

/* Value v of src, quantised along dims `along` and, unless -1, `across`. */
static quantised quantise(rewrite *r, gw_vid v, int along, int across) {
    for (int64_t i = r->nmade; i-- > 0;)
        if (r->made[i].of == v && r->made[i].along == along && r->made[i].across == across)
            return r->made[i];
    quantised q = {.of = v, .along = along, .across = across, .scales = GW_NONE};
    const gw_type *t = gw_type_of(r->src, v);
    const gw_optable *table = r->dst->table;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(table, "fp8_quant", a);
    gw_attrs_set(table, "fp8_quant", a, "along", text(r, t, along));
    gw_attrs_set(table, "fp8_quant", a, "across", text(r, t, across));
    gw_attrs_set(table, "fp8_quant", a, "pow2", (gw_attr){.i = r->opts->pow2});
    q.values = gw_build(&r->b, "fp8_quant", &r->map[v], 1, a, &q.scales);
    r->made[r->nmade++] = q;
    return q;
}

static void replace(rewrite *r, const gw_op *o) {
    const gw_graph *g = r->src;
    gw_vid x = gw_op_in(g, o, 0), w = gw_op_in(g, o, 1), y = gw_op_out(g, o, 0);
    gw_contract c;
    char why[400];
    if (!gw_contract_find(gw_type_of(g, x), gw_type_of(g, w), &c, why))
        gw_panic("a product passed inference, but %s", why);
    gw_fp8_side sx = gw_fp8_side_of(&c, false), sw = gw_fp8_side_of(&c, true);
    r->b.phase = (gw_phase)o->phase;
    r->b.rate = (gw_rate)o->rate;
    snprintf(r->b.scope, sizeof r->b.scope, "%s", gw_graph_str(g, o->scope));
    quantised qx = quantise(r, x, sx.along, -1), qw = quantise(r, w, sw.along, sw.across);
    bool bias = o->nin > 2 && gw_op_in(g, o, 2) != GW_NONE;
    gw_vid in[5] = {qx.values, qx.scales, qw.values, qw.scales,
                    bias ? r->map[gw_op_in(g, o, 2)] : GW_NONE};
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(r->dst->table, "fp8_matmul", a);
    gw_attrs_set(r->dst->table, "fp8_matmul", a, "dtype", (gw_attr){.i = gw_type_of(g, y)->dtype});
    gw_attrs_set(r->dst->table, "fp8_matmul", a, "pow2", (gw_attr){.i = r->opts->pow2});
    gw_vid made = gw_build(&r->b, "fp8_matmul", in, bias ? 5 : 4, a, NULL);
    r->map[y] = made;
    if (r->b.status != GW_OK || g->values.items[y].name == 0) return;
    r->dst->values.items[made].name =
        gw_graph_intern(r->dst, gw_graph_str(g, g->values.items[y].name));
}

static int copy_all(rewrite *r) {
    const gw_graph *g = r->src;
    int n = 0;
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].def == GW_NONE) r->map[v] = gw_graph_copy_leaf(r->dst, g, (gw_vid)v);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count && r->b.status == GW_OK; i++) {
        const gw_op *o = &g->ops.items[i];
        bool linear = is_linear_layer(g, o);
        n += linear;
        if (linear)
            replace(r, o);
        else
            gw_graph_copy_op(r->dst, g, i, r->map);
    }
    for (int64_t i = 0; i < g->states.count && r->b.status == GW_OK; i++)
        gw_graph_add_state(r->dst, r->map[g->states.items[i].start],
                           r->map[g->states.items[i].end]);
    return n;
}

gw_status gw_fp8_rewrite(gw_graph *g, const gw_fp8_opts *o, int *layers, gw_diags *dg) {
    gw_graph dst;
    gw_arena mem = {0};
    gw_graph_begin(&dst, g);
    rewrite r = {.src = g, .dst = &dst, .opts = o};
    gw_builder_init(&r.b, &dst, dg);
    r.map = gw_arena_new(&mem, gw_vid, g->values.count + 1);
    r.made = gw_arena_new(&mem, quantised, 2 * g->ops.count + 1);
    int n = copy_all(&r);
    gw_arena_release(&mem);
    if (r.b.status != GW_OK) {
        gw_diag_frame(dg, "putting linear layers into eight-bit floats");
        gw_graph_release(&dst);
        return r.b.status;
    }
    gw_graph_release(g);
    *g = dst;
    if (layers) *layers = n;
    return GW_OK;
}
