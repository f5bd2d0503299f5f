// SPDX-License-Identifier: Apache-2.0
// The load of experts, from named results of the step and from what the exchanges counted.
//
// "moe.load.L" and its companions (model/moe.h) are sums over the step, whole on every rank. Rows
// and rounds are the executor's (run/exec_experts.h), and cumulative: a step is the difference to
// the step before. Each rank sends three numbers to all once a step.
//
// Time lost to the hottest rank. In a run of an exchange the ranks compute on as many rows as
// reached them and then wait for the one with most. It has rows_most - rows_all / ranks more than
// the mean, and a row takes what rows take here; summed over layers and micro-batches, averaged
// over the ranks that had rows. A measured wait would count slow machines and late ranks as well.
#include "train/moe_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"       /* gw_mem_zalloc */
#include "base/str.h"         /* gw_str */
#include "run/exec_experts.h" /* gw_experts_ep_seen */

typedef struct layer {
    int number;
    gw_vid load, aux, z, dropped;
} layer;

typedef struct exchanged {
    const void *state;
    int64_t ranks; /* of the group */
    gw_experts_seen before;
} exchanged;

/* What a rank tells the others. */
typedef struct told {
    int64_t rows, rounds;
    double lost_ns; /* by its speed; below 0: it had no rows */
} told;

struct gw_moe_metrics {
    gw_arena mem;
    const gw_exec *x;
    gw_comm *comm;
    double units;
    int ranks;
    layer *layers;
    int nlayers;
    exchanged *ops;
    int nops;
    told *all; /* [ranks] */
    gw_str text;
};

/* ---- finding them ---- */

static gw_vid companion(const gw_exec *x, const char *what, int number) {
    char name[48];
    snprintf(name, sizeof name, "moe.%s.%d", what, number);
    return gw_exec_find(x, name);
}

static void add_layer(gw_moe_metrics *m, gw_vid load, int number) {
    layer *l = &m->layers[m->nlayers++];
    *l = (layer){.number = number, .load = load};
    l->aux = companion(m->x, "aux", number);
    l->z = companion(m->x, "z", number);
    l->dropped = companion(m->x, "dropped", number);
}

static int by_number(const void *a, const void *b) {
    int x = ((const layer *)a)->number, y = ((const layer *)b)->number;
    return (x > y) - (x < y);
}

static void find_layers(gw_moe_metrics *m) {
    static const char prefix[] = "moe.load.";
    const gw_graph *g = gw_exec_graph(m->x);
    int64_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) m->layers = gw_arena_new(&m->mem, layer, count + 1);
        for (int64_t v = 0; v < g->values.count; v++) {
            const char *name = gw_graph_str(g, g->values.items[v].name);
            if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
            if (pass == 1) add_layer(m, (gw_vid)v, (int)strtol(name + sizeof prefix - 1, NULL, 10));
            count++;
        }
    }
    if (m->nlayers > 1) qsort(m->layers, (size_t)m->nlayers, sizeof *m->layers, by_number);
}

static void find_exchanges(gw_moe_metrics *m) {
    const gw_graph *g = gw_exec_graph(m->x);
    m->ops = gw_arena_new(&m->mem, exchanged, g->ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is_experts_ep(g, o)) continue;
        gw_vid weights = gw_op_in(g, o, gw_op_is(g, o, "experts_ep") ? 3 : 4);
        uint32_t axes = gw_dim_axes(&gw_type_of(g, weights)->dims[0]);
        m->ops[m->nops++] =
            (exchanged){.state = gw_exec_op_state(m->x, i), .ranks = gw_mesh_size(&g->mesh, axes)};
    }
}

gw_moe_metrics *gw_moe_metrics_new(const gw_exec *x, gw_comm *comm, double units) {
    gw_moe_metrics *m = gw_mem_zalloc(sizeof *m);
    m->x = x;
    m->comm = comm;
    m->units = units > 0 ? units : 1;
    m->ranks = comm ? gw_comm_size(comm) : 1;
    find_layers(m);
    if (m->nlayers == 0) {
        gw_moe_metrics_free(m);
        return NULL;
    }
    find_exchanges(m);
    m->all = gw_arena_new(&m->mem, told, m->ranks + 1);
    return m;
}

void gw_moe_metrics_free(gw_moe_metrics *m) {
    if (!m) return;
    gw_str_release(&m->text);
    gw_arena_release(&m->mem);
    gw_mem_free(m);
}

/* ---- a step ---- */

static told look(gw_moe_metrics *m) {
    told t = {0};
    int64_t with_rows = 0;
    for (int i = 0; i < m->nops; i++) {
        exchanged *e = &m->ops[i];
        gw_experts_seen now = gw_experts_ep_seen(e->state);
        int64_t rows = now.rows - e->before.rows;
        double all = (double)(now.rows_all - e->before.rows_all);
        double over = (double)(now.rows_most - e->before.rows_most) - all / (double)e->ranks;
        t.rows += rows;
        t.rounds += now.rounds - e->before.rounds;
        if (rows > 0)
            t.lost_ns += over * (double)(now.compute_ns - e->before.compute_ns) / (double)rows;
        with_rows += rows;
        e->before = now;
    }
    if (with_rows == 0) t.lost_ns = -1;
    return t;
}

static double scalar(const gw_moe_metrics *m, gw_vid v) {
    gw_tensor t = gw_exec_tensor(m->x, v);
    return t.dtype == GW_F64 ? *(const double *)t.data : (double)*(const float *)t.data;
}

static void put_number(gw_str *s, const char *key, double x) {
    if (isfinite(x))
        gw_str_printf(s, ", \"%s\": %.6g", key, x);
    else
        gw_str_printf(s, ", \"%s\": null", key);
}

static void put_layer(gw_moe_metrics *m, const layer *l) {
    gw_tensor t = gw_exec_tensor(m->x, l->load);
    const float *load = t.data;
    double sum = 0, most = 0;
    for (int64_t e = 0; e < t.elems; e++) {
        sum += (double)load[e];
        most = fmax(most, (double)load[e]);
    }
    gw_str_printf(&m->text, "%s{\"layer\": %d, \"share\": [", l == m->layers ? "" : ", ",
                  l->number);
    for (int64_t e = 0; e < t.elems; e++)
        gw_str_printf(&m->text, e ? ", %.4g" : "%.4g", sum > 0 ? (double)load[e] / sum : 0);
    gw_str_add(&m->text, "]");
    put_number(&m->text, "max_over_mean", sum > 0 ? most * (double)t.elems / sum : (double)NAN);
    if (l->dropped != GW_NONE) put_number(&m->text, "dropped", scalar(m, l->dropped));
    if (l->aux != GW_NONE) put_number(&m->text, "aux", scalar(m, l->aux) / m->units);
    if (l->z != GW_NONE) put_number(&m->text, "z", scalar(m, l->z) / m->units);
    gw_str_add(&m->text, "}");
}

static void put_ranks(gw_moe_metrics *m) {
    double lost = 0;
    int n = 0;
    gw_str_add(&m->text, ", \"rank_rows\": [");
    for (int r = 0; r < m->ranks; r++) {
        gw_str_printf(&m->text, r ? ", %" PRId64 : "%" PRId64, m->all[r].rows);
        if (m->all[r].lost_ns >= 0) lost += m->all[r].lost_ns, n++;
    }
    gw_str_add(&m->text, "], \"rank_rounds\": [");
    for (int r = 0; r < m->ranks; r++)
        gw_str_printf(&m->text, r ? ", %" PRId64 : "%" PRId64, m->all[r].rounds);
    gw_str_add(&m->text, "]");
    put_number(&m->text, "hottest_rank_s", n ? lost / n * 1e-9 : 0);
}

gw_status gw_moe_metrics_take(gw_moe_metrics *m, const char **more, gw_diags *dg) {
    *more = "";
    if (!m) return GW_OK;
    told mine = look(m);
    m->all[0] = mine;
    if (m->comm && m->nops > 0)
        GW_TRY(gw_comm_all_gather(m->comm, &mine, sizeof mine, m->all, "loads of experts", dg));
    gw_str_clear(&m->text);
    gw_str_add(&m->text, ", \"moe\": {\"layers\": [");
    for (int i = 0; i < m->nlayers; i++) put_layer(m, &m->layers[i]);
    gw_str_add(&m->text, "]");
    if (m->nops > 0) put_ranks(m);
    gw_str_add(&m->text, "}");
    *more = gw_str_c(&m->text);
    return GW_OK;
}
