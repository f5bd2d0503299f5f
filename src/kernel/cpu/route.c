// SPDX-License-Identifier: Apache-2.0
// The router and what counts its choices, on all threads.
//
// route and route_grad share the arithmetic of one token with the reference (ops/route.h, float64),
// so no kernel chooses another expert than the meaning of the op says; what is left to do here is
// to share out tokens. cap and loads read integers: cap takes one pass over a sequence where the
// last tokens are dropped, and a sort by gate of each expert's choices where the least ones are.
#include <math.h>
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, gw_vec_int */
#include "ops/route.h"           /* gw_route_token */

static bool floats(const gw_graph *g, const gw_op *o, int i) {
    return !gw_vec_given(g, o, i) || gw_vec_is_float(gw_vec_in_type(g, o, i));
}

static void load(const gw_tensor *t, int64_t row, int64_t n, double *out) {
    for (int64_t j = 0; j < n; j++) out[j] = (double)gw_vec_get(t->data, t->dtype, row * n + j);
}

static void store(const gw_tensor *t, int64_t row, int64_t n, const double *x) {
    for (int64_t j = 0; j < n; j++)
        gw_vec_put(t->data, t->dtype, row * n + j, x ? (float)x[j] : 0.0f);
}

/* ---- route ---- */

static void route_token(const gw_kargs *k, const gw_route *r, int64_t i) {
    double z[GW_ROUTE_EXPERTS], bias[GW_ROUTE_EXPERTS], probs[GW_ROUTE_EXPERTS];
    double gates[GW_ROUTE_TOP];
    bool padding = gw_vec_int(&k->in[1], i)<0, biased = k->nin> 2 && k->in[2].data;
    bool given = k->nin > 3 && k->in[3].data;
    const int32_t *choices = given ? (const int32_t *)k->in[3].data + i * r->top : NULL;
    int32_t *ids = (int32_t *)k->out[1].data + i * r->top;
    if (!padding) {
        load(&k->in[0], i, r->n, z);
        if (biased) load(&k->in[2], 0, r->n, bias);
        padding = !gw_route_token(r, z, biased ? bias : NULL, choices, ids, gates, probs);
    }
    for (int64_t j = 0; padding && j < r->top; j++) ids[j] = -1;
    store(&k->out[0], i, r->top, padding ? NULL : gates);
    store(&k->out[2], i, r->n, padding ? NULL : probs);
}

static gw_status route_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_route r = gw_route_of(k->g, k->op);
    int64_t n = k->in[1].elems;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) route_token(k, &r, i);
    return GW_OK;
}

static bool route_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    bool ints = !gw_vec_given(g, o, 3) || gw_vec_in_type(g, o, 3) == GW_I32;
    return ints && floats(g, o, 0) && floats(g, o, 2) && gw_vec_is_float(gw_vec_out_type(g, o, 0));
}

static void grad_token(const gw_kargs *k, const gw_route *r, int64_t i) {
    double z[GW_ROUTE_EXPERTS], dprobs[GW_ROUTE_EXPERTS], dz[GW_ROUTE_EXPERTS];
    double dgates[GW_ROUTE_TOP];
    const int32_t *ids = (const int32_t *)k->in[1].data + i * r->top;
    bool has_gates = k->nin > 2 && k->in[2].data, has_probs = k->nin > 3 && k->in[3].data;
    if (ids[0] < 0) {
        store(&k->out[0], i, r->n, NULL);
        return;
    }
    load(&k->in[0], i, r->n, z);
    if (has_gates) load(&k->in[2], i, r->top, dgates);
    if (has_probs) load(&k->in[3], i, r->n, dprobs);
    gw_route_token_grad(r, z, ids, has_gates ? dgates : NULL, has_probs ? dprobs : NULL, dz);
    store(&k->out[0], i, r->n, dz);
}

static gw_status grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_route r = gw_route_of(k->g, k->op);
    int64_t n = k->in[1].elems / r.top;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) grad_token(k, &r, i);
    return GW_OK;
}

static bool grad_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats(g, o, 0) && floats(g, o, 2) && floats(g, o, 3);
}

/* ---- cap ---- */

/* Room of an expert in a sequence, as ops/cap.c defines it. */
static int64_t room_of(const gw_kargs *k, int64_t first, int64_t count) {
    const int32_t *ids = k->in[0].data;
    int64_t t = gw_vec_last(&k->in[0]), tokens = 0;
    for (int64_t i = first; i < first + count; i += t) {
        bool any = false;
        for (int64_t j = 0; j < t; j++) any |= ids[i + j] >= 0;
        tokens += any;
    }
    double mean = (double)(t * tokens) / (double)gw_op_attr_named(k->g, k->op, "experts").i;
    return (int64_t)ceil(gw_op_attr_named(k->g, k->op, "capacity").f * mean - 1e-9);
}

/* Choice a goes before choice b. */
static bool goes_before(const float *gates, int32_t a, int32_t b) {
    return gates[a] != gates[b] ? gates[a] > gates[b] : a < b;
}

static void sift(int32_t *x, int64_t at, int64_t n, const float *gates) {
    for (int64_t kid; (kid = 2 * at + 1) < n; at = kid) {
        if (kid + 1 < n && goes_before(gates, x[kid], x[kid + 1])) kid++;
        if (!goes_before(gates, x[at], x[kid])) return;
        int32_t keep = x[at];
        x[at] = x[kid];
        x[kid] = keep;
    }
}

/* Heap sort: those that go first come first. */
static void sort_by_gate(int32_t *x, int64_t n, const float *gates) {
    for (int64_t i = n / 2; i-- > 0;) sift(x, i, n, gates);
    for (int64_t end = n - 1; end > 0; end--) {
        int32_t keep = x[0];
        x[0] = x[end];
        x[end] = keep;
        sift(x, 0, end, gates);
    }
}

/* One sequence, choices [first, first + count); `count_of` [experts + 1], `list` [count]. */
static void cap_sequence(const gw_kargs *k, int64_t first, int64_t count, int64_t experts,
                         bool by_score, int64_t *count_of, int32_t *list) {
    const int32_t *ids = k->in[0].data;
    int32_t *kept = k->out[0].data;
    int64_t room = room_of(k, first, count);
    memset(count_of, 0, (size_t)(experts + 2) * sizeof *count_of);
    for (int64_t i = first; i < first + count; i++) {
        bool in = ids[i] >= 0 && (by_score || count_of[ids[i]]++ < room);
        kept[i] = in ? ids[i] : -1;
        if (by_score && ids[i] >= 0) count_of[ids[i] + 2]++;
    }
    if (!by_score) return;
    for (int64_t e = 2; e <= experts + 1; e++) count_of[e] += count_of[e - 1];
    for (int64_t i = first; i < first + count; i++)
        if (ids[i] >= 0) list[count_of[ids[i] + 1]++] = (int32_t)i;
    for (int64_t e = 0; e < experts; e++) {
        int64_t n = count_of[e + 1] - count_of[e];
        if (n <= room) continue;
        sort_by_gate(list + count_of[e], n, k->in[1].data);
        for (int64_t i = room; i < n; i++) kept[list[count_of[e] + i]] = -1;
    }
}

static int64_t experts_of(const gw_graph *g, const gw_op *o) {
    return gw_op_attr_named(g, o, "experts").i;
}

static gw_status cap_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t experts = experts_of(k->g, k->op);
    int64_t count = k->in[0].dims[1] * k->in[0].dims[2];
    bool by_score = gw_op_attr_named(k->g, k->op, "by_score").i != 0;
    int64_t *count_of = k->work;
    int32_t *list = (int32_t *)(void *)(count_of + experts + 2);
    for (int64_t b = 0; b < k->in[0].dims[0]; b++)
        cap_sequence(k, b * count, count, experts, by_score, count_of, list);
    return GW_OK;
}

static int64_t cap_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    const gw_type *t = gw_type_of(g, gw_op_in(g, o, 0));
    return (experts_of(g, o) + 2) * 8 + t->dims[1].size * t->dims[2].size * 4;
}

static bool cap_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_in_type(g, o, 0) == GW_I32 && gw_vec_in_type(g, o, 1) == GW_F32;
}

/* ---- loads ---- */

static gw_status loads_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const int32_t *ids = k->in[0].data;
    float *to = k->out[0].data;
    int64_t n = gw_vec_last(&k->out[0]), inner = k->in[0].dims[1] * k->in[0].dims[2];
    bool samples = gw_op_attr_named(k->g, k->op, "samples").i != 0;
    size_t bytes = (size_t)k->out[0].elems * sizeof *to;
    const void *acc = k->nin > 1 ? k->in[1].data : NULL;
    if (!acc)
        memset(to, 0, bytes);
    else if (acc != to)
        memcpy(to, acc, bytes);
    for (int64_t b = 0; b < k->in[0].dims[0]; b++)
        for (int64_t i = b * inner; i < (b + 1) * inner; i++)
            if (ids[i] >= 0 && ids[i] < n) to[(samples ? 0 : b * n) + ids[i]] += 1.0f;
    return GW_OK;
}

static bool loads_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_in_type(g, o, 0) == GW_I32;
}

GW_VEC_KERNEL(route, "route", "tokens shared out, each in float64", route_supports,
              gw_vec_no_workspace, route_launch);
GW_VEC_KERNEL(route_grad, "route_grad", "tokens shared out, each in float64", grad_supports,
              gw_vec_no_workspace, grad_launch);
GW_VEC_KERNEL(cap, "cap", "one pass, or a sort of each expert's choices by gate", cap_supports,
              cap_workspace, cap_launch);
GW_VEC_KERNEL(loads, "loads", "one pass", loads_supports, gw_vec_no_workspace, loads_launch);
