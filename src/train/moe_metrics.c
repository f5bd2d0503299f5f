// SPDX-License-Identifier: Apache-2.0
// The load of experts, from named results of the step and from what the exchanges counted.
//
// "moe.load.L" and its companions (model/moe.h) are sums over the step, whole on every rank that
// has the layer; ranks of a pipeline that have not are told. Rows and rounds are the executor's
// (run/exec_experts.h), and cumulative: a step is the difference to the step before. Each rank
// sends three numbers to all once a step.
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
    const gw_ranks_entry *load, *aux, *z, *dropped; /* NULL: there is none */
    double *loads;                                  /* [experts], this step's */
    int64_t experts;
    double sums[3]; /* aux, z, dropped */
} layer;

typedef struct exchanged {
    const void *state;
    int64_t ranks; /* of the group */
    gw_experts_seen before;
} exchanged;

/* What a rank tells the others. */
typedef struct told {
    int64_t rows, rounds, exchanges;
    double lost_ns; /* by its speed; below 0: it had no rows */
} told;

struct gw_moe_metrics {
    gw_arena mem;
    const gw_exec *x;
    gw_comm *comm;
    gw_ranks_table own;
    const gw_ranks_table *all;
    double units;
    int ranks;
    bool exchanges; /* some rank's experts are cut over ranks */
    layer *layers;
    int nlayers;
    exchanged *ops;
    int nops;
    told *all_told; /* [ranks] */
    gw_str text;
};

/* ---- finding them ---- */

static const gw_ranks_entry *companion(const gw_moe_metrics *m, const char *what, int number) {
    char name[48];
    snprintf(name, sizeof name, "moe.%s.%d", what, number);
    return gw_ranks_find(m->all, name);
}

static void add_layer(gw_moe_metrics *m, const gw_ranks_entry *load, int number) {
    layer *l = &m->layers[m->nlayers++];
    *l = (layer){.number = number, .load = load, .experts = gw_type_elems(&load->type)};
    l->loads = gw_arena_new(&m->mem, double, l->experts + 1);
    l->aux = companion(m, "aux", number);
    l->z = companion(m, "z", number);
    l->dropped = companion(m, "dropped", number);
}

static int by_number(const void *a, const void *b) {
    int x = ((const layer *)a)->number, y = ((const layer *)b)->number;
    return (x > y) - (x < y);
}

static void find_layers(gw_moe_metrics *m) {
    static const char prefix[] = "moe.load.";
    m->layers = gw_arena_new(&m->mem, layer, m->all->n + 1);
    for (int i = 0; i < m->all->n; i++) {
        const gw_ranks_entry *e = &m->all->items[i];
        if (strncmp(e->name, prefix, sizeof prefix - 1) == 0)
            add_layer(m, e, (int)strtol(e->name + sizeof prefix - 1, NULL, 10));
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

gw_moe_metrics *gw_moe_metrics_new(const gw_exec *x, gw_comm *comm, const gw_ranks_table *all,
                                   double units) {
    gw_moe_metrics *m = gw_mem_zalloc(sizeof *m);
    m->x = x;
    m->comm = comm;
    m->all = all ? all : &m->own;
    if (!all) /* of one program, which asks nobody */
        (void)!gw_ranks_list(NULL, gw_exec_graph(x), &m->mem, &m->own, NULL);
    m->units = units > 0 ? units : 1;
    m->ranks = comm ? gw_comm_size(comm) : 1;
    find_layers(m);
    if (m->nlayers == 0) {
        gw_moe_metrics_free(m);
        return NULL;
    }
    find_exchanges(m);
    m->all_told = gw_arena_new(&m->mem, told, m->ranks + 1);
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
    told t = {.exchanges = m->nops};
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

static double element(const gw_tensor *t, int64_t i) {
    return t->dtype == GW_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

/* Elements of a result here; of one that another stage has nothing, as a term of a sum. */
static void read_here(const gw_moe_metrics *m, const gw_ranks_entry *e, double *out) {
    if (!e) return;
    int64_t n = gw_type_elems(&e->type);
    bool has = e->value != GW_NONE &&
               (m->all->stages == 1 || !m->comm ||
                gw_ranks_counts_from(m->all->mesh, e->type.psum, e->home, gw_comm_rank(m->comm)));
    for (int64_t i = 0; i < n; i++) out[i] = 0;
    if (!has) return;
    gw_tensor t = gw_exec_tensor(m->x, e->value);
    for (int64_t i = 0; i < n; i++) out[i] = element(&t, i);
}

static gw_status read_layer(gw_moe_metrics *m, layer *l, gw_diags *dg) {
    read_here(m, l->load, l->loads);
    read_here(m, l->aux, &l->sums[0]);
    read_here(m, l->z, &l->sums[1]);
    read_here(m, l->dropped, &l->sums[2]);
    if (!m->comm || m->all->stages == 1) return GW_OK;
    GW_TRY(gw_ranks_add_f64(m->comm, l->loads, l->experts, "loads of experts", dg));
    return gw_ranks_add_f64(m->comm, l->sums, 3, "losses of experts", dg);
}

static void put_number(gw_str *s, const char *key, double x) {
    if (isfinite(x))
        gw_str_printf(s, ", \"%s\": %.6g", key, x);
    else
        gw_str_printf(s, ", \"%s\": null", key);
}

static void put_layer(gw_moe_metrics *m, const layer *l) {
    double sum = 0, most = 0;
    for (int64_t e = 0; e < l->experts; e++) {
        sum += l->loads[e];
        most = fmax(most, l->loads[e]);
    }
    gw_str_printf(&m->text, "%s{\"layer\": %d, \"share\": [", l == m->layers ? "" : ", ",
                  l->number);
    for (int64_t e = 0; e < l->experts; e++)
        gw_str_printf(&m->text, e ? ", %.4g" : "%.4g", sum > 0 ? l->loads[e] / sum : 0);
    gw_str_add(&m->text, "]");
    put_number(&m->text, "max_over_mean", sum > 0 ? most * (double)l->experts / sum : (double)NAN);
    if (l->dropped) put_number(&m->text, "dropped", l->sums[2]);
    if (l->aux) put_number(&m->text, "aux", l->sums[0] / m->units);
    if (l->z) put_number(&m->text, "z", l->sums[1] / m->units);
    gw_str_add(&m->text, "}");
}

static void put_ranks(gw_moe_metrics *m) {
    double lost = 0;
    int n = 0;
    gw_str_add(&m->text, ", \"rank_rows\": [");
    for (int r = 0; r < m->ranks; r++) {
        gw_str_printf(&m->text, r ? ", %" PRId64 : "%" PRId64, m->all_told[r].rows);
        if (m->all_told[r].lost_ns >= 0) lost += m->all_told[r].lost_ns, n++;
    }
    gw_str_add(&m->text, "], \"rank_rounds\": [");
    for (int r = 0; r < m->ranks; r++)
        gw_str_printf(&m->text, r ? ", %" PRId64 : "%" PRId64, m->all_told[r].rounds);
    gw_str_add(&m->text, "]");
    put_number(&m->text, "hottest_rank_s", n ? lost / n * 1e-9 : 0);
}

gw_status gw_moe_metrics_take(gw_moe_metrics *m, const char **more, gw_diags *dg) {
    *more = "";
    if (!m) return GW_OK;
    told mine = look(m);
    m->all_told[0] = mine;
    if (m->comm && (m->nops > 0 || m->all->stages > 1))
        GW_TRY(
            gw_comm_all_gather(m->comm, &mine, sizeof mine, m->all_told, "loads of experts", dg));
    m->exchanges = false;
    for (int r = 0; r < m->ranks; r++) m->exchanges = m->exchanges || m->all_told[r].exchanges > 0;
    for (int i = 0; i < m->nlayers; i++) GW_TRY(read_layer(m, &m->layers[i], dg));
    gw_str_clear(&m->text);
    gw_str_add(&m->text, ", \"moe\": {\"layers\": [");
    for (int i = 0; i < m->nlayers; i++) put_layer(m, &m->layers[i]);
    gw_str_add(&m->text, "]");
    if (m->exchanges) put_ranks(m);
    gw_str_add(&m->text, "}");
    *more = gw_str_c(&m->text);
    return GW_OK;
}
