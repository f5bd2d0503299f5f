// SPDX-License-Identifier: Apache-2.0
// A token whose two best experts score alike.
//
// Which of them it goes to is decided by the last bit of a score, and everything behind is another
// function of the weights. Two runs that add in another order, or round elsewhere, then differ by
// far more than rounding, and neither is wrong. So what is compared is the function with its
// choices given. In each step
//
//   1. the reference steps first and files its choices and router logits (ops/record.c)
//   2. its perturbed copies step with these choices; how far their scores are from the reference's
//      is what last bits do to a score in this layer
//   3. every rank of the layout gets the choices and steps with them. It has filed its own logits,
//      and looks for each of its tokens whether it would have chosen so. Where it would not, the
//      margin (ops/route.h) is by how much its scores prefer another choice. Were all scores as the
//      reference's, up to d each, no margin could exceed 2 d. A larger one is no near-tie: the
//      router, or what it reads, is wrong.
//
// What is allowed in a layer is the sum of
//
//   8 d       2 d, with the factor of 4 that every noise in verify has (verify_items.c); d is the
//             largest difference between the reference's scores and a perturbed copy's
//   1e-5      of the largest score: sums in another order, as everywhere
//   wires     where they round: what that may do to logits of typical size, 4 times, through the
//             steepest score (a quarter a logit), for two scores
//
// Where an expert's room is short and the least gates are dropped, the reference's gates order the
// drops too, and the layout's own must be as near.
//
// A sample is named by its number in the step, whatever micro-batch or rank it falls to.
#include "train/verify_replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/panic.h"        /* GW_ASSERT */
#include "ops/route.h"         /* gw_route_margin */
#include "run/exec_comm.h"     /* gw_exec_group_rank */
#include "train/ranks.h"       /* gw_ranks_counts_from */
#include "train/verify_impl.h" /* gw_verifier */

enum { NAME = 40 };

static const char *name_of(const gw_verify_choices *c, int64_t l, const char *what,
                           char text[NAME]) {
    snprintf(text, NAME, "moe.%s.%d", what, c->number[l]);
    return text;
}

static gw_vid find(const gw_verify_choices *c, const gw_exec *x, int64_t l, const char *what) {
    char text[NAME];
    return gw_exec_find(x, name_of(c, l, what, text));
}

/* ---- asking ---- */

void gw_verify_choices_ask(gw_setup *s, bool replay) {
    if (s->model.moe.experts == 0) return;
    s->model.moe.records = s->rf->train.accumulate;
    s->model.moe.replay = replay;
}

void gw_verify_choices_init(gw_verify_choices *c, const gw_setup *s, gw_arena *a) {
    const gw_model *m = &s->model;
    const gw_rf_train *t = &s->rf->train;
    *c = (gw_verify_choices){.rows = t->micro_batch * s->rf->layout.dp * t->accumulate,
                             .seq = t->seq_len,
                             .top = m->moe.top,
                             .n = m->moe.experts};
    if (m->moe.records == 0) return;
    c->number = gw_arena_new(a, int, m->layers);
    for (int64_t l = 0; l < m->layers; l++)
        if (gw_model_has_experts(m, l)) c->number[c->layers++] = (int)l;
    c->ids = gw_arena_new(a, int32_t, c->layers * c->rows * c->seq * c->top);
    if (m->moe.capacity > 0 && m->moe.drop_by_score)
        c->order = gw_arena_new(a, float, c->layers * c->rows * c->seq * c->top);
    c->bias = gw_arena_new(a, double, c->layers * c->n);
    c->allowed = gw_arena_new(a, double, c->layers);
}

/* ---- of the reference ---- */

static const int32_t *ids_at(const gw_verify_choices *c, int64_t l, int64_t row, int64_t token) {
    return c->ids + ((l * c->rows + row) * c->seq + token) * c->top;
}

/* Before its step: choices go by the bias as it is then. */
static void read_bias(gw_verify_choices *c, const gw_exec *x) {
    for (int64_t l = 0; l < c->layers; l++) {
        char text[NAME];
        snprintf(text, sizeof text, "layers.%d.moe.bias", c->number[l]);
        gw_vid v = gw_exec_find(x, text);
        const float *from = v == GW_NONE ? NULL : gw_exec_ptr(x, v);
        for (int64_t j = 0; from && j < c->n; j++) c->bias[l * c->n + j] = (double)from[j];
    }
}

static void take(gw_verify_choices *c, const gw_exec *x) {
    int64_t each = c->rows * c->seq * c->top;
    for (int64_t l = 0; l < c->layers; l++) {
        char text[NAME];
        bool there = gw_exec_read(x, name_of(c, l, "ids", text), c->ids + l * each,
                                  each * (int64_t)sizeof *c->ids);
        GW_ASSERT(there);
        if (!c->order) continue;
        there = gw_exec_read(x, name_of(c, l, "gates", text), c->order + l * each,
                             each * (int64_t)sizeof *c->order);
        GW_ASSERT(there);
    }
}

/* The router's rule, as a program has it; false for one without routers. */
static bool rule_of(const gw_graph *g, gw_route *r) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is(g, o, "route")) continue;
        *r = gw_route_of(g, o);
        return true;
    }
    return false;
}

static void load_picks(const gw_verify_choices *c, const gw_route *r, int64_t l,
                       const float *logits, double *pick) {
    double z[GW_ROUTE_EXPERTS];
    for (int64_t j = 0; j < c->n; j++) z[j] = (double)logits[j];
    gw_route_picks(r, z, c->bias + l * c->n, pick);
}

/* Where side p has a sample of the step. */
static int64_t place_of(const gw_verify_side *p, int64_t row) {
    return p->reversed ? row / p->rows * p->rows + p->rows - 1 - row % p->rows : row;
}

static double largest_difference(const gw_verify_choices *c, const gw_route *r,
                                 const gw_verify_side *ref, const gw_verify_side *p, int64_t l,
                                 double *most) {
    const float *a = gw_exec_ptr(ref->x, find(c, ref->x, l, "logits"));
    const float *b = gw_exec_ptr(p->x, find(c, p->x, l, "logits"));
    double x[GW_ROUTE_EXPERTS], y[GW_ROUTE_EXPERTS], apart = 0;
    for (int64_t i = 0; i < c->rows * c->seq; i++) {
        int64_t row = i / c->seq, token = i % c->seq;
        if (ids_at(c, l, row, token)[0] < 0) continue;
        load_picks(c, r, l, a + i * c->n, x);
        load_picks(c, r, l, b + (place_of(p, row) * c->seq + token) * c->n, y);
        for (int64_t j = 0; j < c->n; j++) {
            apart = fmax(apart, fabs(x[j] - y[j]));
            *most = fmax(*most, fabs(x[j]));
        }
    }
    return apart;
}

static double typical_logit(const gw_verify_choices *c, const gw_verify_side *ref, int64_t l) {
    int64_t n = c->rows * c->seq * c->n;
    const float *z = gw_exec_ptr(ref->x, find(c, ref->x, l, "logits"));
    return gw_verify_norm(z, n) / sqrt((double)n);
}

static void find_allowed(gw_verifier *r) {
    gw_verify_choices *c = &r->choices;
    gw_route rule;
    bool has = rule_of(gw_exec_graph(r->reference.x), &rule);
    GW_ASSERT(has);
    double wires = gw_verify_wires_of_step(r);
    for (int64_t l = 0; l < c->layers; l++) {
        double apart = 0, most = 0;
        for (int p = 0; p < r->nperturbed; p++)
            apart = fmax(apart,
                         largest_difference(c, &rule, &r->reference, &r->perturbed[p], l, &most));
        c->allowed[l] = 8 * apart + GW_VERIFY_BOUND * most +
                        4 * wires * typical_logit(c, &r->reference, l) * 2 / 4;
    }
}

gw_status gw_verify_step_references(gw_verifier *r) {
    gw_verify_choices *c = &r->choices;
    if (c->layers) read_bias(c, r->reference.x);
    GW_TRY(gw_verify_side_step(&r->reference, r->dg));
    if (c->layers) take(c, r->reference.x);
    for (int p = 0; p < r->nperturbed; p++) GW_TRY(gw_verify_side_step(&r->perturbed[p], r->dg));
    if (c->layers) find_allowed(r);
    return GW_OK;
}

gw_status gw_verify_share_choices(gw_verifier *r) {
    gw_verify_choices *c = &r->choices;
    if (c->layers == 0 || !r->comm) return GW_OK;
    int64_t ids = c->layers * c->rows * c->seq * c->top;
    GW_TRY(gw_comm_broadcast(r->comm, c->ids, ids * (int64_t)sizeof *c->ids,
                             "expert choices of the reference", r->dg));
    if (c->order)
        GW_TRY(gw_comm_broadcast(r->comm, c->order, ids * (int64_t)sizeof *c->order,
                                 "gates that drops go by", r->dg));
    GW_TRY(gw_comm_broadcast(r->comm, c->bias, c->layers * c->n * (int64_t)sizeof *c->bias,
                             "biases of the choice", r->dg));
    return gw_comm_broadcast(r->comm, c->allowed, c->layers * (int64_t)sizeof *c->allowed,
                             "margins of the choice", r->dg);
}

/* ---- given to a side ---- */

/* The numbers in the whole of what a rank holds of a dimension, one by one. */
static int64_t *numbers(const gw_exec *x, const gw_type *t, int dim, int64_t *n) {
    const gw_mesh *m = &gw_exec_graph(x)->mesh;
    gw_runs runs = gw_type_runs(t, dim, m, gw_exec_rank(x));
    *n = 0;
    for (int k = 0; k < runs.n; k++) *n += runs.count[k];
    int64_t *all = gw_mem_alloc(sizeof *all * (size_t)(*n + 1)), at = 0;
    for (int k = 0; k < runs.n; k++)
        for (int64_t i = 0; i < runs.count[k]; i++) all[at++] = runs.first[k] + i;
    return all;
}

/* What a rank holds of an input [b s t], from `all` [samples of the step, tokens, t]: 32 bits each,
 * all of them set for tokens that the layout added. */
static void write_input(const gw_verify_choices *c, gw_exec *x, gw_vid v, const void *all,
                        int64_t first, int64_t rows, bool reversed, int32_t *to) {
    const gw_graph *g = gw_exec_graph(x);
    const char *from = all;
    size_t bytes = (size_t)c->top * sizeof *to;
    int64_t nb, ns, at = 0;
    int64_t *b = numbers(x, gw_type_of(g, v), 0, &nb), *s = numbers(x, gw_type_of(g, v), 1, &ns);
    for (int64_t i = 0; i < nb * ns; i++, at += c->top) {
        int64_t row = reversed ? rows - 1 - b[i / ns] : b[i / ns], token = s[i % ns];
        if (token < c->seq)
            memcpy(to + at, from + (size_t)((first + row) * c->seq + token) * bytes, bytes);
        else
            memset(to + at, 0xff, bytes);
    }
    gw_mem_free(b);
    gw_mem_free(s);
    (void)gw_exec_write(x, gw_graph_str(g, g->values.items[v].name), to, at * (int64_t)sizeof *to);
}

void gw_verify_choices_write(const gw_verify_choices *c, gw_exec *x, int64_t k, int64_t rows,
                             bool reversed, gw_arena *a, int32_t **scratch, int64_t *room) {
    const gw_graph *g = gw_exec_graph(x);
    (void)gw_exec_write(x, "micro", &k, sizeof k);
    for (int64_t l = 0; c && l < c->layers; l++) {
        gw_vid v = find(c, x, l, "choices"), order = find(c, x, l, "order");
        if (v == GW_NONE) continue;
        int64_t need = gw_type_local_elems(gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
        int64_t at = l * c->rows * c->seq * c->top;
        if (need > *room) {
            *scratch = gw_arena_new(a, int32_t, need);
            *room = need;
        }
        write_input(c, x, v, c->ids + at, k * rows, rows, reversed, *scratch);
        if (order != GW_NONE && c->order)
            write_input(c, x, order, c->order + at, k * rows, rows, reversed, *scratch);
    }
}

/* ---- judging ---- */

/* How far the gates that drops go by are from the own ones, as a difference of scores. */
static double order_apart(const gw_verify_choices *c, const gw_route *rule, int64_t l, int64_t row,
                          int64_t token, const float *logits) {
    double score[GW_ROUTE_EXPERTS], z[GW_ROUTE_EXPERTS], chosen = 0, apart = 0;
    const int32_t *ids = ids_at(c, l, row, token);
    const float *given = c->order + (ids - c->ids);
    for (int64_t j = 0; j < c->n; j++) z[j] = (double)logits[j];
    gw_route_picks(rule, z, NULL, score);
    for (int64_t k = 0; k < c->top; k++) chosen += score[ids[k]];
    double unit = rule->normalize ? chosen / rule->scale : 1 / rule->scale;
    for (int64_t k = 0; k < c->top; k++)
        apart = fmax(apart, fabs(score[ids[k]] - (double)given[k] * unit));
    return apart;
}

/* One token: its logits here beside the choices that were given. */
static void judge_token(const gw_verify_choices *c, const gw_route *rule, int64_t l, int64_t row,
                        int64_t token, const float *logits, bool owned, gw_verify_replayed *j) {
    double pick[GW_ROUTE_EXPERTS];
    const int32_t *ids = ids_at(c, l, row, token);
    int64_t differ = 0;
    if (ids[0] < 0) return;
    load_picks(c, rule, l, logits, pick);
    double margin = gw_route_margin(rule, pick, ids, &differ);
    if (owned) {
        j->total += c->top;
        j->differ += differ;
    }
    bool near = margin <= c->allowed[l];
    if (near && c->order) {
        margin = fmax(margin, order_apart(c, rule, l, row, token, logits));
        near = margin <= c->allowed[l];
    }
    if (near && differ > 0 && margin >= j->largest) {
        j->largest = margin;
        j->largest_allowed = c->allowed[l];
    } else if (!near && j->faults++ == 0) {
        j->layer = c->number[l];
        j->row = row;
        j->token = token;
        j->margin = margin;
        j->allowed = c->allowed[l];
    }
}

static void judge_layer(const gw_verifier *r, const gw_route *rule, int64_t l,
                        gw_verify_replayed *j) {
    const gw_verify_choices *c = &r->choices;
    const gw_exec *x = r->layout.x;
    gw_vid v = find(c, x, l, "logits");
    if (v == GW_NONE) return;
    const gw_type *t = gw_type_of(gw_exec_graph(x), v);
    const float *logits = gw_exec_ptr(x, v);
    const gw_mesh *mesh = &gw_exec_graph(x)->mesh;
    int64_t rank = gw_exec_rank(x);
    int64_t home = gw_exec_group_rank(mesh, gw_mesh_group(mesh, "pp"), rank); /* a layer's only */
    bool owned = gw_ranks_counts_from(mesh, gw_type_cut_axes(t), (int)home, rank);
    int64_t nb, ns, rows = r->layout.rows * r->layout.parts;
    int64_t *b = numbers(x, t, 1, &nb), *s = numbers(x, t, 2, &ns);
    for (int64_t i = 0; i < t->dims[0].size * nb * ns; i++) {
        int64_t row = i / (nb * ns) * rows + b[i / ns % nb], token = s[i % ns];
        if (token < c->seq) judge_token(c, rule, l, row, token, logits + i * c->n, owned, j);
    }
    gw_mem_free(b);
    gw_mem_free(s);
}

static void merge(gw_verify_replayed *all, const gw_verify_replayed *j, int64_t step) {
    if (all->faults == 0 && j->faults > 0) {
        gw_verify_replayed was = *all;
        *all = *j;
        all->total = was.total;
        all->differ = was.differ;
        all->faults = 0;
        all->largest = was.largest;
        all->largest_allowed = was.largest_allowed;
        all->step = step;
    }
    all->total += j->total;
    all->differ += j->differ;
    all->faults += j->faults;
    if (j->largest < all->largest) return;
    all->largest = j->largest;
    all->largest_allowed = j->largest_allowed;
}

gw_status gw_verify_judge_choices(gw_verifier *r) {
    gw_verify_choices *c = &r->choices;
    if (c->layers == 0) return GW_OK;
    gw_verify_replayed mine = {0};
    gw_route rule;
    if (rule_of(gw_exec_graph(r->layout.x), &rule))
        for (int64_t l = 0; l < c->layers; l++) judge_layer(r, &rule, l, &mine);
    if (!r->comm) {
        merge(&c->all, &mine, r->layout.step);
        return GW_OK;
    }
    int64_t n = gw_ranks_count(r->comm);
    gw_verify_replayed *all = gw_mem_zalloc(sizeof *all * (size_t)n);
    gw_status st =
        gw_comm_all_gather(r->comm, &mine, (int64_t)sizeof mine, all, "expert choices", r->dg);
    for (int64_t k = 0; st == GW_OK && k < n; k++) merge(&c->all, &all[k], r->layout.step);
    gw_mem_free(all);
    return st;
}

void gw_verify_check_choices(gw_verifier *r, const char *precision) {
    const gw_verify_choices *c = &r->choices;
    const gw_verify_replayed *j = &c->all;
    char name[96];
    if (c->layers == 0) return;
    snprintf(name, sizeof name, "expert choices, %s", precision);
    if (j->faults > 0)
        gw_verify_add_check(r, false, name,
                            "%lld of %lld would differ, and not by a near-tie: layer %lld, sample "
                            "%lld, token %lld in step %lld by %.2g of %.2g allowed",
                            (long long)j->differ, (long long)j->total, (long long)j->layer,
                            (long long)j->row, (long long)j->token, (long long)j->step, j->margin,
                            j->allowed);
    else if (j->differ > 0)
        gw_verify_add_check(r, true, name,
                            "%lld of %lld would differ, all near-ties (largest margin %.2g of %.2g "
                            "allowed)",
                            (long long)j->differ, (long long)j->total, j->largest,
                            j->largest_allowed);
    else
        gw_verify_add_check(r, true, name, "none of %lld would differ", (long long)j->total);
}
