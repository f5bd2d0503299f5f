// SPDX-License-Identifier: Apache-2.0
// Sums that were not taken.
//
// Tensor, context and expert parallelism leave partial sums on groups of ranks: a replicated gain
// on cut tokens, a weight whose tokens lie on other ranks. What one rank then holds is neither a
// multiple of the right gradient nor what its own labels add to it, for each token's loss reaches
// the tokens before it, wherever they lie. But the right gradient is the sum of what the ranks of
// the group hold. So for a gradient that is wrong the ranks' own values are added up over each
// group of the mesh in turn, and over each sub-axis; the first sum that is right names the
// reduction that is missing.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/ranks.h"       /* gw_ranks_add_up */
#include "train/verify_impl.h" /* this module's contract */

enum { MOST_ITEMS = 32, MOST_GROUPS = 24 };

typedef struct group {
    char name[32];
    uint32_t axes;
} group;

static void add_group(group *all, int *n, const char *name, uint32_t axes) {
    for (int i = 0; i < *n; i++)
        if (all[i].axes == axes) return;
    if (axes == 0 || *n == MOST_GROUPS) return;
    snprintf(all[*n].name, sizeof all[*n].name, "%s", name);
    all[(*n)++].axes = axes;
}

/* Fewest axes first: a sum over more of them may be right too, where the others add zeros. */
static int list_groups(const gw_verifier *r, const gw_mesh *m, group *all) {
    gw_axes a = {0};
    gw_diags quiet;
    int n = 0;
    gw_diags_init(&quiet);
    (void)!gw_layout_axes(&a, m, &r->setup.train.layout, &quiet);
    gw_diags_release(&quiet);
    uint32_t replicate = gw_mesh_group(m, "dp_replicate"), dp = gw_mesh_group(m, "dp");
    add_group(all, &n, "tp", a.tp);
    add_group(all, &n, "cp", a.cp);
    add_group(all, &n, "dp", dp);
    add_group(all, &n, "dp_replicate", replicate);
    add_group(all, &n, "ep", a.ep);
    for (int i = 0; i < m->naxes; i++) add_group(all, &n, m->axes[i].name, 1u << i);
    add_group(all, &n, "dp with its replicas", dp | replicate);
    add_group(all, &n, "dp x cp", a.samples | a.cp);
    add_group(all, &n, "cp x tp", a.cp | a.tp);
    add_group(all, &n, "dp x tp", a.samples | a.tp);
    add_group(all, &n, "all ranks", a.samples | a.cp | a.tp);
    return n;
}

/* Items that want an explanation, the same list on all ranks; -1 ends it. */
static gw_status list_items(gw_verifier *r, int64_t items[MOST_ITEMS]) {
    int n = 0;
    for (int i = 0; i < MOST_ITEMS; i++) items[i] = -1;
    for (int64_t i = 0; gw_verify_is_root(r) && i < r->nitems && n < MOST_ITEMS; i++)
        if (r->items[i].kind == GW_VERIFY_GRADIENT && !r->entries[i].agrees &&
            !r->entries[i].why[0])
            items[n++] = i;
    return gw_comm_broadcast(r->comm, items, (int64_t)sizeof *items * MOST_ITEMS,
                             "what is to be explained", r->dg);
}

/* Is the sum over the group what the reference has? */
static gw_status try_group(gw_verifier *r, int64_t i, const group *o) {
    const gw_mesh *mesh = r->layout.table.mesh;
    gw_verify_item *it = &r->items[i];
    gw_verify_tensor *e = &r->entries[i];
    const gw_type *t = &it->in_layout->type;
    uint32_t cut = gw_type_part_axes(t);
    if (o->axes & cut) return GW_OK;
    bool has = it->in_layout->value != GW_NONE, root = gw_verify_is_root(r);
    const void *here = has ? gw_exec_tensor(r->layout.x, it->in_layout->value).data : NULL;
    GW_TRY(gw_ranks_add_up_from(r->comm, t, mesh, o->axes, it->in_layout->home, here,
                                root ? r->x : NULL, it->name, r->dg));
    if (!root || e->why[0]) return GW_OK;
    GW_TRY(gw_verify_side_read(&r->reference, it->in_reference, r->y, r->dg));
    double tolerance = GW_MIN(GW_MAX(e->bound, 2e-3), 0.1);
    double floor = r->floor[it->kind] * sqrt((double)it->elems);
    if (gw_verify_difference(r->x, r->y, it->elems, floor) > tolerance) return GW_OK;
    snprintf(e->why, sizeof e->why, "missing reduction over %.31s (%lld ranks): the sum is right",
             o->name, (long long)gw_mesh_size(mesh, o->axes));
    return GW_OK;
}

gw_status gw_verify_explain_axes(gw_verifier *r) {
    if (!r->comm) return GW_OK;
    int64_t items[MOST_ITEMS];
    group groups[MOST_GROUPS];
    const gw_mesh *m = &gw_exec_graph(r->layout.x)->mesh;
    if (gw_mesh_group(m, "tp") == 0 && gw_mesh_group(m, "cp") == 0) return GW_OK;
    int n = list_groups(r, m, groups);
    GW_TRY(list_items(r, items));
    for (int k = 0; k < MOST_ITEMS && items[k] >= 0; k++)
        for (int o = 0; o < n; o++) GW_TRY(try_group(r, items[k], &groups[o]));
    return GW_OK;
}
