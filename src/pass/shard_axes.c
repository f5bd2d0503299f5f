// SPDX-License-Identifier: Apache-2.0
// Which sub-axes of the mesh do what, and what they cut of leaves.
//
// Nothing is cut on pp: its ranks hold stages, not parts of values (pass/split.c).
//
// Samples are cut on dp_replicate and dp. Tokens are cut on cp: the sub-axes around which K and V
// travel, or over which they are gathered, are an outer cut in zigzag parts, so that causal work is
// even; within it those of Ulysses cut chunks. Experts are cut on `ep` sub-axes that tokens are cut
// on too: the most minor of dp first, then of cp, then of tp (under sequence parallelism).
//
// A parameter's dimension is cut over all of tp. Query heads come in runs, and each run must find
// its kv heads on its rank: kv heads are cut on the longest list of tp's sub-axes for which that
// holds, and these come first in the order of all. On the rest K and V are whole.
//
//   12 query heads, 2 kv heads, tp = 3 x 2: heads {2,3} are runs of 2, kv heads {2} are one each
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ir/shard.h"   /* GW_SHARD_ZIGZAG */
#include "pass/shard.h"

static gw_status wrong(gw_diags *dg, const char *key, const char *hint, int64_t asked,
                       const char *what) {
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "shard-axes", (gw_where){0},
                             "%s %lld: %s", key, (long long)asked, what);
    gw_diag_hint(dg, d, "%s", hint);
    return GW_ERR_CONFIG;
}

/* The subset of `from` with product `want` whose sub-axes are the most minor; false if none is. */
static bool take(const gw_mesh *m, uint32_t from, int64_t want, uint32_t *out) {
    uint32_t best = 0;
    bool found = want == 1;
    for (uint32_t sub = from; sub && !found; sub = (sub - 1) & from) { /* from the largest down */
        if (gw_mesh_size(m, sub) != want) continue;
        if (!best || __builtin_ctz(sub) > __builtin_ctz(best)) best = sub;
    }
    if (!best && !found) return false;
    *out = best;
    return true;
}

/* ep ranks from dp, then cp, then tp: the most that each gives, minor groups last. */
static gw_status find_experts(gw_axes *a, const gw_mesh *m, int64_t ep, gw_diags *dg) {
    uint32_t groups[3] = {gw_mesh_group(m, "dp"), a->cp, a->sequence_parallel ? a->tp : 0};
    if (ep <= 1) return GW_OK;
    uint32_t reach = 0;
    for (int g = 0; g < 3; g++) {
        reach |= groups[g];
        uint32_t best = 0;
        if (gw_mesh_size(m, reach) % ep == 0 && take(m, reach, ep, &best)) {
            a->ep = best;
            return GW_OK;
        }
    }
    return wrong(
        dg, "layout.ep",
        "experts are cut over a product of prime factors of dp / dp_replicate, cp and, with "
        "sequence_parallel, tp",
        ep, "no such product");
}

gw_status gw_layout_axes(gw_axes *a, const gw_mesh *m, const gw_layout_opts *l, gw_diags *dg) {
    *a = (gw_axes){.samples = gw_mesh_group(m, "dp_replicate") | gw_mesh_group(m, "dp"),
                   .tp = gw_mesh_group(m, "tp"),
                   .cp = gw_mesh_group(m, "cp"),
                   .moe_buffer = l->moe_buffer};
    a->sequence_parallel = l->sequence_parallel && a->tp;
    switch (l->cp_mode) {
    case GW_CP_RING: a->ring = a->cp; break;
    case GW_CP_ALLGATHER: a->gather = a->cp; break;
    case GW_CP_ULYSSES: a->ulysses = a->cp; break;
    case GW_CP_HYBRID:
        if (!take(m, a->cp, GW_MAX(l->cp_ulysses, 1), &a->ulysses))
            return wrong(dg, "layout.cp_ulysses", "give a product of prime factors of layout.cp",
                         l->cp_ulysses, "context-parallel ranks have no such part");
        a->ring = a->cp & ~a->ulysses;
        break;
    }
    return find_experts(a, m, l->ep, dg);
}

/* ---- heads ---- */

/* The size of dimension `name` of the parameters, 0 if none has it. */
static int64_t size_of(const gw_graph *g, const char *name) {
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        int i = x->role == GW_ROLE_PARAM && x->def == GW_NONE ? gw_type_find(&x->type, name) : -1;
        if (i >= 0) return x->type.dims[i].size;
    }
    return 0;
}

/* Do the `heads` in `parts` runs find their kv heads, of `groups`, in kv_parts runs of these? */
static bool covers(int64_t heads, int64_t groups, int64_t parts, int64_t kv_parts) {
    int64_t each = (heads + parts - 1) / parts, kv_each = (groups + kv_parts - 1) / kv_parts;
    for (int64_t i = 0; i < parts && i * each < heads; i++) {
        int64_t first = i * each, last = GW_MIN(first + each, heads) - 1,
                kv = i / (parts / kv_parts);
        if (first / (heads / groups) < kv * kv_each) return false;
        if (last / (heads / groups) >= (kv + 1) * kv_each) return false;
    }
    return true;
}

/* The sub-axes of `tp` that kv heads are cut on. */
static uint32_t kv_axes(const gw_mesh *m, uint32_t tp, int64_t heads, int64_t groups) {
    int64_t parts = gw_mesh_size(m, tp), most = 1;
    uint32_t kv = 0;
    for (uint32_t sub = tp; sub && groups > 0 && heads % groups == 0; sub = (sub - 1) & tp) {
        int64_t n = gw_mesh_size(m, sub);
        if (n > most && covers(heads, groups, parts, n)) most = n, kv = sub;
    }
    return kv;
}

int64_t gw_layout_kv_ranks(int64_t tp, int64_t heads, int64_t groups) {
    gw_mesh m = {0};
    (void)gw_mesh_add(&m, "tp", (int32_t)tp);
    return gw_mesh_size(&m, kv_axes(&m, gw_mesh_group(&m, "tp"), heads, groups));
}

static void order_tp(gw_sharder *s) {
    const gw_mesh *m = &s->src->mesh;
    uint32_t kv = kv_axes(m, s->axes.tp, size_of(s->src, "h"), size_of(s->src, "g"));
    gw_dim_cut(&s->tp, kv, m);
    s->kv = s->tp.naxes;
    gw_dim_cut(&s->tp, s->axes.tp & ~kv, m);
}

/* ---- leaves ---- */

static void cut_with(gw_dim *d, const gw_dim *by, int n) {
    for (int i = 0; i < n; i++) {
        GW_ASSERT(d->naxes < GW_MAX_DIM_AXES);
        d->axes[d->naxes++] = by->axes[i];
    }
}

void gw_shard_cut_param(const gw_sharder *s, gw_type *t, const gw_param_info *info) {
    int e = gw_type_find(t, "e");
    if (e >= 0) gw_dim_cut(&t->dims[e], s->axes.ep, &s->src->mesh);
    int i = info && info->cut[0] ? gw_type_find(t, info->cut) : -1;
    if (i < 0 || (e >= 0 && (s->axes.ep & s->axes.tp))) return;
    cut_with(&t->dims[i], &s->tp, strcmp(info->cut, "g") == 0 ? s->kv : s->tp.naxes);
}

void gw_shard_cut_input(const gw_sharder *s, gw_type *t) {
    const gw_mesh *m = &s->src->mesh;
    int i = gw_type_find(t, "b");
    if (i < 0) i = gw_type_find(t, "group"); /* of samples: as they are, unless it is one for all */
    if (i >= 0 && (t->dims[i].size > 1 || strcmp(t->dims[i].name, "group") != 0)) {
        gw_dim_cut(&t->dims[i], s->replicate, m);
        gw_dim_cut(&t->dims[i], s->axes.samples & ~s->replicate, m);
    }
    i = gw_type_find(t, "s");
    if (i < 0 || !s->axes.cp) return;
    gw_dim *d = &t->dims[i];
    gw_dim_cut(d, s->axes.ring | s->axes.gather, m);
    d->outer = d->naxes;
    if (d->outer) d->shard = GW_SHARD_ZIGZAG;
    gw_dim_cut(d, s->axes.ulysses, m);
}

/* ---- what the mesh must divide ---- */

static gw_status check_input(const gw_sharder *s, const gw_value *x, gw_diags *dg) {
    const gw_mesh *m = &s->src->mesh;
    int b = gw_type_find(&x->type, "b"), t = gw_type_find(&x->type, "s");
    int64_t n = gw_mesh_size(m, s->axes.samples);
    if (b >= 0 && x->type.dims[b].size % n)
        return GW_FAIL(
            dg, GW_ERR_CONFIG, "shard-batch",
            "a micro-batch of %lld samples does not divide over %lld data-parallel ranks",
            (long long)x->type.dims[b].size, (long long)n);
    int64_t k = gw_mesh_size(m, s->axes.cp) * (s->axes.ring | s->axes.gather ? 2 : 1);
    if (s->axes.sequence_parallel) k *= gw_mesh_size(m, s->axes.tp);
    if (t >= 0 && x->type.dims[t].size % k)
        return GW_FAIL(dg, GW_ERR_CONFIG, "shard-sequence",
                       "a sequence of %lld tokens does not divide into %lld equal parts, which "
                       "context and sequence parallelism ask for",
                       (long long)x->type.dims[t].size, (long long)k);
    return GW_OK;
}

gw_status gw_shard_find_axes(gw_sharder *s, gw_diags *dg) {
    const gw_mesh *m = &s->src->mesh;
    GW_TRY(gw_layout_axes(&s->axes, m, &s->opts->layout, dg));
    s->replicate = gw_mesh_group(m, "dp_replicate");
    s->shard = gw_mesh_group(m, "dp") | s->axes.cp;
    s->all = s->replicate | s->shard;
    for (int a = 0; a < m->naxes; a++)
        if (!((s->all | s->axes.tp | gw_mesh_group(m, "pp")) >> a & 1u))
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "shard-axis",
                           "the mesh has the sub-axis %s; this build lays a step over pp, "
                           "dp_replicate, dp, cp and tp",
                           m->axes[a].name);
    order_tp(s);
    for (int64_t v = 0; v < s->src->values.count; v++) {
        const gw_value *x = &s->src->values.items[v];
        if (x->def == GW_NONE && x->role == GW_ROLE_INPUT) GW_TRY(check_input(s, x, dg));
    }
    return GW_OK;
}
