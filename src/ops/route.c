// SPDX-License-Identifier: Apache-2.0
// route: which experts a token goes to, and how much each counts; and its gradient.
//
//   logits[b s n], tokens[b s], bias[n]?, choices i32[b s t]?
//       -> gates[b s t], ids i32[b s t], probs[b s n]
//
//   score   softmax of a row of logits (Switch, Mixtral), or sigmoid (DeepSeek-V3)
//   choice  the `top` largest of score + bias; the bias moves the choice and nothing else
//           (Wang et al. 2024, "Auxiliary-loss-free load balancing"). With groups > 1 the experts
//           stand in so many runs of equal length, and only those of the best `group_limit` groups
//           can be chosen; a group counts as its best two together (DeepSeek-V3, section 2.1.2) or
//           as its best one (DeepSeek-V2). Equal numbers: the lower index goes first, so the choice
//           is a function of the logits.
//   gates   scores of the chosen, over their sum where `normalize`, times `scale`
//   probs   scores over their sum: what balance losses average
//
// A negative token is padding: ids -1, gates 0, probs 0, and no gradient. ids stand in the order of
// choice. The choice itself has no gradient; those of gates and probs go through the scores.
//
// Given `choices`, those are the ids, whatever the scores say (another run's choices, replayed);
// gates and probs follow from the scores as ever. How far a choice that was made elsewhere is from
// the own one says gw_route_margin: by how much scores would have to move for it to be right.
//
// Everything about a token is computed in float64 by one function that kernels share, so that no
// kernel chooses another expert. n is whole on a rank. About 8 flops a logit.
#include "ops/route.h"

#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_route */
#include "ops/ref.h"   /* gw_ref_get */

enum { TOP, SIGMOID, NORMALIZE, SCALE, GROUPS, GROUP_LIMIT, GROUP_MAX, NATTRS };
static const gw_attr_def attrs[] = {
    {"top", GW_ATTR_INT, 2, 0},        {"sigmoid", GW_ATTR_BOOL, 0, 0},
    {"normalize", GW_ATTR_BOOL, 1, 0}, {"scale", GW_ATTR_FLOAT, 0, 1},
    {"groups", GW_ATTR_INT, 1, 0},     {"group_limit", GW_ATTR_INT, 1, 0},
    {"group_max", GW_ATTR_BOOL, 0, 0}, /* a group counts as its best expert, not its best two */
};

#define TINY 1e-20 /* in sums that may be zero, as DeepSeek-V3 has it */

/* ---- one token ---- */

gw_route gw_route_of(const gw_graph *g, const gw_op *o) {
    const gw_type *z = gw_type_of(g, gw_op_in(g, o, 0));
    return (gw_route){.n = z->dims[z->ndim - 1].size,
                      .top = gw_op_attr(g, o, TOP).i,
                      .groups = gw_op_attr(g, o, GROUPS).i,
                      .group_limit = gw_op_attr(g, o, GROUP_LIMIT).i,
                      .sigmoid = gw_op_attr(g, o, SIGMOID).i != 0,
                      .normalize = gw_op_attr(g, o, NORMALIZE).i != 0,
                      .group_max = gw_op_attr(g, o, GROUP_MAX).i != 0,
                      .scale = gw_op_attr(g, o, SCALE).f};
}

/* Fills score[n]; returns its sum. */
static double scores(const gw_route *r, const double *z, double *score) {
    double most = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; !r->sigmoid && j < r->n; j++) most = fmax(most, z[j]);
    for (int64_t j = 0; j < r->n; j++) {
        score[j] = r->sigmoid ? 1 / (1 + exp(-z[j])) : exp(z[j] - most);
        sum += score[j];
    }
    if (r->sigmoid) return sum;
    for (int64_t j = 0; j < r->n; j++) score[j] /= sum;
    return 1;
}

/* The largest of x[0..n) that is not taken, the lower index of equals; always one. */
static int64_t best_of(const double *x, const bool *taken, int64_t n) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
        if (!taken[j] && (best < 0 || x[j] > x[best])) best = j;
    return best;
}

static double group_score(const double *x, int64_t n, bool max) {
    double first = -HUGE_VAL, second = -HUGE_VAL;
    for (int64_t j = 0; j < n; j++) {
        double low = fmin(first, x[j]);
        first = fmax(first, x[j]);
        second = fmax(second, low);
    }
    return max || n == 1 ? first : first + second;
}

/* Marks the experts outside the best groups as taken. */
static void limit_groups(const gw_route *r, const double *pick, bool *taken) {
    double value[GW_ROUTE_EXPERTS];
    bool in[GW_ROUTE_EXPERTS] = {false};
    int64_t size = r->n / r->groups;
    for (int64_t i = 0; i < r->groups; i++)
        value[i] = group_score(pick + i * size, size, r->group_max);
    for (int64_t i = 0; i < r->group_limit; i++) in[best_of(value, in, r->groups)] = true;
    for (int64_t j = 0; j < r->n; j++) taken[j] = !in[j / size];
}

static void choose(const gw_route *r, const double *pick, int32_t *ids) {
    bool taken[GW_ROUTE_EXPERTS] = {false};
    if (r->groups > 1) limit_groups(r, pick, taken);
    for (int64_t k = 0; k < r->top; k++) {
        ids[k] = (int32_t)best_of(pick, taken, r->n);
        taken[ids[k]] = true;
    }
}

static bool all_experts(const gw_route *r, const int32_t *ids) {
    for (int64_t k = 0; k < r->top; k++)
        if (ids[k] < 0 || ids[k] >= r->n) return false;
    return true;
}

bool gw_route_token(const gw_route *r, const double *logits, const double *bias,
                    const int32_t *choices, int32_t *ids, double *gates, double *probs) {
    double score[GW_ROUTE_EXPERTS], pick[GW_ROUTE_EXPERTS], chosen = 0;
    if (choices && !all_experts(r, choices)) return false;
    double sum = scores(r, logits, score);
    for (int64_t j = 0; j < r->n; j++) {
        pick[j] = score[j] + (bias ? bias[j] : 0);
        probs[j] = r->sigmoid ? score[j] / (sum + TINY) : score[j];
    }
    if (!choices) choose(r, pick, ids);
    for (int64_t k = 0; k < r->top; k++) {
        if (choices) ids[k] = choices[k];
        chosen += gates[k] = score[ids[k]];
    }
    for (int64_t k = 0; k < r->top; k++)
        gates[k] *= r->normalize ? r->scale / (chosen + TINY) : r->scale;
    return true;
}

/* ---- choices that were made elsewhere ---- */

void gw_route_picks(const gw_route *r, const double *logits, const double *bias, double *pick) {
    (void)scores(r, logits, pick);
    for (int64_t j = 0; bias && j < r->n; j++) pick[j] += bias[j];
}

/* A group, as a choice leaves it. */
typedef struct group {
    double value; /* what it is judged by */
    double most;  /* the largest of its experts that is not chosen */
    bool in;      /* it holds a chosen one */
} group;

/* By how much a group outside is better than one inside, in units of one score: of `all`, those in
 * and the `room` best of the others whose `most` is at most `limit`. *most: the largest of what
 * these add. Infinite where there are not so many. */
static double groups_apart(const gw_route *r, const group *all, int64_t room, double limit,
                           double *most) {
    bool in[GW_ROUTE_EXPERTS];
    double worst_in = HUGE_VAL, best_out = -HUGE_VAL;
    for (int64_t i = 0; i < r->groups; i++) in[i] = all[i].in;
    *most = -HUGE_VAL;
    for (; room > 0; room--) {
        int64_t best = -1;
        for (int64_t i = 0; i < r->groups; i++)
            if (!in[i] && all[i].most <= limit && (best < 0 || all[i].value > all[best].value))
                best = i;
        if (best < 0) return HUGE_VAL;
        in[best] = true;
        *most = fmax(*most, all[best].most);
    }
    for (int64_t i = 0; i < r->groups; i++) {
        if (in[i]) worst_in = fmin(worst_in, all[i].value);
        if (!in[i]) best_out = fmax(best_out, all[i].value);
    }
    return fmax(0, best_out - worst_in) / (r->group_max || r->n == r->groups ? 1 : 2);
}

/* A choice names its experts, not the groups that were open to it: the least margin over all that
 * may have been. `low`: the least score of the chosen. */
static double margin_in_groups(const gw_route *r, const double *pick, const bool *chosen,
                               double low) {
    group all[GW_ROUTE_EXPERTS];
    int64_t size = r->n / r->groups, room = r->group_limit;
    double inside = 0, least = HUGE_VAL, most;
    for (int64_t i = 0; i < r->groups; i++) {
        all[i] = (group){group_score(pick + i * size, size, r->group_max), -HUGE_VAL, false};
        for (int64_t j = i * size; j < (i + 1) * size; j++) {
            if (chosen[j]) all[i].in = true;
            if (!chosen[j]) all[i].most = fmax(all[i].most, pick[j]);
        }
        room -= all[i].in;
        if (all[i].in) inside = fmax(inside, all[i].most - low);
    }
    if (room < 0) return HUGE_VAL;
    if (room == 0) return fmax(inside, groups_apart(r, all, 0, 0, &most));
    for (int64_t i = 0; i < r->groups; i++) {
        if (all[i].in) continue;
        double apart = groups_apart(r, all, room, all[i].most, &most);
        least = fmin(least, fmax(apart, most - low));
    }
    return fmax(inside, least);
}

double gw_route_margin(const gw_route *r, const double *pick, const int32_t *choices,
                       int64_t *differ) {
    bool chosen[GW_ROUTE_EXPERTS] = {false}, own[GW_ROUTE_EXPERTS] = {false};
    int32_t ids[GW_ROUTE_TOP];
    double low = HUGE_VAL, most = -HUGE_VAL;
    *differ = 0;
    if (!all_experts(r, choices)) return HUGE_VAL;
    choose(r, pick, ids);
    for (int64_t k = 0; k < r->top; k++) {
        own[ids[k]] = chosen[choices[k]] = true;
        low = fmin(low, pick[choices[k]]);
    }
    for (int64_t k = 0; k < r->top; k++) *differ += !own[choices[k]];
    if (*differ == 0) return 0;
    if (r->groups > 1) return margin_in_groups(r, pick, chosen, low);
    for (int64_t j = 0; j < r->n; j++)
        if (!chosen[j]) most = fmax(most, pick[j]);
    return fmax(0, most - low);
}

/* Adds the gradient of the scores that comes through the gates. */
static void gates_grad(const gw_route *r, const double *score, const int32_t *ids,
                       const double *dgates, double *dscore) {
    double chosen = TINY, dot = 0;
    for (int64_t k = 0; k < r->top; k++) {
        chosen += score[ids[k]];
        dot += dgates[k] * score[ids[k]];
    }
    for (int64_t k = 0; k < r->top; k++)
        dscore[ids[k]] += r->normalize ? r->scale * (dgates[k] / chosen - dot / (chosen * chosen))
                                       : r->scale * dgates[k];
}

/* The same through probs. */
static void probs_grad(const gw_route *r, const double *score, double sum, const double *dprobs,
                       double *dscore) {
    double dot = 0, whole = sum + TINY;
    for (int64_t j = 0; r->sigmoid && j < r->n; j++) dot += dprobs[j] * score[j];
    for (int64_t j = 0; j < r->n; j++)
        dscore[j] += r->sigmoid ? dprobs[j] / whole - dot / (whole * whole) : dprobs[j];
}

void gw_route_token_grad(const gw_route *r, const double *logits, const int32_t *ids,
                         const double *dgates, const double *dprobs, double *dlogits) {
    double score[GW_ROUTE_EXPERTS], dscore[GW_ROUTE_EXPERTS], dot = 0;
    double sum = scores(r, logits, score);
    for (int64_t j = 0; j < r->n; j++) dscore[j] = 0;
    if (dgates) gates_grad(r, score, ids, dgates, dscore);
    if (dprobs) probs_grad(r, score, sum, dprobs, dscore);
    for (int64_t j = 0; j < r->n; j++) dot += dscore[j] * score[j];
    for (int64_t j = 0; j < r->n; j++)
        dlogits[j] = score[j] * (r->sigmoid ? dscore[j] * (1 - score[j]) : dscore[j] - dot);
}

/* ---- hooks ---- */

static gw_status bad(gw_infer *f, const char *what, int64_t is, const char *must) {
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute", "%s: %s is %lld; %s", f->def->name, what,
                   (long long)is, must);
}

static gw_status check_attrs(gw_infer *f, int64_t n) {
    int64_t top = f->attrs[TOP].i, groups = f->attrs[GROUPS].i, limit = f->attrs[GROUP_LIMIT].i;
    if (n > GW_ROUTE_EXPERTS) return bad(f, "the number of experts", n, "at most 2048 are routed");
    if (groups < 1 || n % groups != 0)
        return bad(f, "groups", groups, "it must divide the number of experts");
    if (limit < 1 || limit > groups) return bad(f, "group_limit", limit, "1 to groups are allowed");
    if (top < 1 || top > GW_ROUTE_TOP || top > limit * (n / groups))
        return bad(f, "top", top, "1 to 64, and no more than the groups chosen hold, are allowed");
    return GW_OK;
}

static gw_status infer_logits(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 3, 3));
    return check_attrs(f, gw_infer_in(f, 0)->dims[2].size);
}

static gw_type choices(const gw_infer *f, gw_dtype dtype) {
    const gw_type *z = gw_infer_in(f, 0);
    gw_type t = gw_type_scalar(dtype);
    for (int i = 0; i < 2; i++) gw_type_add(&t, z->dims[i].name, z->dims[i].size);
    gw_type_add(&t, "t", f->attrs[TOP].i);
    return t;
}

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_logits(f));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 2, 2));
    GW_TRY(gw_infer_want_leading(f, 1, 0, 2));
    if (gw_infer_has(f, 2)) {
        GW_TRY(gw_infer_want_float(f, 2));
        GW_TRY(gw_infer_want_ndim(f, 2, 1, 1));
        GW_TRY(gw_infer_want_dim(f, 2, 0, 0, 2));
    }
    if (gw_infer_has(f, 3)) {
        GW_TRY(gw_infer_want_int(f, 3));
        GW_TRY(gw_infer_want_ndim(f, 3, 3, 3));
        GW_TRY(gw_infer_want_leading(f, 3, 0, 2));
        if (gw_infer_in(f, 3)->dims[2].size != f->attrs[TOP].i)
            return bad(f, "top", f->attrs[TOP].i, "the choices given are of another number");
    }
    gw_dtype stat = gw_dtype_stat((gw_dtype)gw_infer_in(f, 0)->dtype);
    f->out[0] = choices(f, stat);
    f->out[1] = choices(f, GW_I32);
    f->out[2] = gw_type_plain(gw_infer_in(f, 0), stat);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 8 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[4] = {v->in[0], v->out[1], v->dout[0], v->dout[2]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "route_grad", in, 4, v->attrs, NULL);
}

static void load_row(const gw_tensor *t, int64_t row, int64_t n, double *out) {
    for (int64_t j = 0; j < n; j++) out[j] = gw_ref_get(t, row * n + j);
}

static void reference(const gw_kargs *k) {
    gw_route r = gw_route_of(k->g, k->op);
    double z[GW_ROUTE_EXPERTS], bias[GW_ROUTE_EXPERTS], probs[GW_ROUTE_EXPERTS];
    double gates[GW_ROUTE_TOP];
    int32_t ids[GW_ROUTE_TOP], *to = k->out[1].data;
    if (gw_ref_has(k, 2)) load_row(&k->in[2], 0, r.n, bias);
    for (int64_t i = 0; i < k->in[1].elems; i++) {
        bool padding = gw_ref_int(&k->in[1], i) < 0;
        const int32_t *choices = gw_ref_has(k, 3) ? (int32_t *)k->in[3].data + i * r.top : NULL;
        load_row(&k->in[0], i, r.n, z);
        padding |=
            !gw_route_token(&r, z, gw_ref_has(k, 2) ? bias : NULL, choices, ids, gates, probs);
        for (int64_t j = 0; j < r.top; j++) {
            to[i * r.top + j] = padding ? -1 : ids[j];
            gw_ref_set(&k->out[0], i * r.top + j, padding ? 0 : gates[j]);
        }
        for (int64_t j = 0; j < r.n; j++)
            gw_ref_set(&k->out[2], i * r.n + j, padding ? 0 : probs[j]);
    }
}

/* ---- cases ---- */

typedef struct way {
    const char *name, *logits, *tokens, *bias;
    gw_attr a[NATTRS];
    const char *choices;
} way;

static const way ways[] = {
    {"softmax",
     "b2 s3 n7",
     "b2 s3",
     NULL,
     {{.i = 2}, {0}, {.i = 1}, {.f = 1}, {.i = 1}, {.i = 1}, {0}},
     NULL},
    {"not normalised",
     "b1 s4 n5",
     "b1 s4",
     NULL,
     {{.i = 3}, {0}, {0}, {.f = 2.5}, {.i = 1}, {.i = 1}, {0}},
     NULL},
    {"sigmoid, groups, bias",
     "b2 s5 n12",
     "b2 s5",
     "n12",
     {{.i = 3}, {.i = 1}, {.i = 1}, {.f = 2.5}, {.i = 4}, {.i = 2}, {0}},
     NULL},
    {"groups by their best",
     "b1 s6 n8",
     "b1 s6",
     NULL,
     {{.i = 1}, {0}, {0}, {.f = 1}, {.i = 4}, {.i = 1}, {.i = 1}},
     NULL},
    {"all",
     "b1 s3 n4",
     "b1 s3",
     NULL,
     {{.i = 4}, {.i = 1}, {.i = 1}, {.f = 1}, {.i = 1}, {.i = 1}, {0}},
     NULL},
    {"choices given",
     "b2 s3 n5",
     "b2 s3",
     "n5",
     {{.i = 1}, {.i = 1}, {.i = 1}, {.f = 2}, {.i = 1}, {.i = 1}, {0}},
     "b2 s3 t1"},
};

static void cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(ways); i++) {
        const way *w = &ways[i];
        gw_case *c = gw_case_begin(cs, w->name);
        gw_vid in[4] = {gw_case_value(c, w->logits, false, GW_FILL_NORMAL, 1.5, 0), 0, GW_NONE,
                        GW_NONE};
        in[1] = gw_case_fixed(c, GW_I32, w->tokens, GW_FILL_INTS, -1, 4);
        if (w->bias)
            in[2] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), w->bias, GW_FILL_NORMAL, 0.3, 0);
        if (w->choices) in[3] = gw_case_fixed(c, GW_I32, w->choices, GW_FILL_INTS, 0, 4);
        gw_build(&c->b, "route", in, 4, w->a, NULL);
    }
}

const gw_opdef gw_opdef_route = {
    .name = "route",
    .doc = "the experts of each token, their gates, and the scores of all",
    .signature = "bs!n,bs,!n?,bs!t?->bs!t,bs!t,bs!n",
    .traits = 0,
    .linear_in = 0,
    .nin = 4,
    .nout = 3,
    .noptional = 2,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x1,
    .reads_out = 0x2,
    .nattrs = NATTRS,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- route_grad: logits, ids, dgates?, dprobs? -> dlogits ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_logits(f));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 3, 3));
    GW_TRY(gw_infer_want_leading(f, 1, 0, 2));
    if (gw_infer_has(f, 2)) GW_TRY(gw_infer_want_same_dims(f, 2, 1));
    if (gw_infer_has(f, 3)) GW_TRY(gw_infer_want_same_dims(f, 3, 0));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void grad_reference(const gw_kargs *k) {
    gw_route r = gw_route_of(k->g, k->op);
    double z[GW_ROUTE_EXPERTS], dprobs[GW_ROUTE_EXPERTS], dz[GW_ROUTE_EXPERTS];
    double dgates[GW_ROUTE_TOP];
    const int32_t *ids = k->in[1].data;
    bool has_gates = gw_ref_has(k, 2), has_probs = gw_ref_has(k, 3);
    for (int64_t i = 0; i < k->in[1].elems / r.top; i++) {
        bool padding = ids[i * r.top] < 0;
        load_row(&k->in[0], i, r.n, z);
        if (has_gates) load_row(&k->in[2], i, r.top, dgates);
        if (has_probs) load_row(&k->in[3], i, r.n, dprobs);
        if (!padding)
            gw_route_token_grad(&r, z, ids + i * r.top, has_gates ? dgates : NULL,
                                has_probs ? dprobs : NULL, dz);
        for (int64_t j = 0; j < r.n; j++) gw_ref_set(&k->out[0], i * r.n + j, padding ? 0 : dz[j]);
    }
}

static void grad_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(ways); i++) {
        const way *w = &ways[i];
        gw_case *c = gw_case_begin(cs, w->name);
        gw_vid in[3] = {gw_case_value(c, w->logits, false, GW_FILL_NORMAL, 1.5, 0), 0, GW_NONE};
        in[1] = gw_case_fixed(c, GW_I32, w->tokens, GW_FILL_INTS, -1, 4);
        gw_vid more[2];
        gw_vid gates = gw_build(&c->b, "route", in, 3, w->a, more);
        gw_vid g[4] = {in[0], more[0], i == 1 ? GW_NONE : gates, i == 0 ? GW_NONE : more[1]};
        gw_build(&c->b, "route_grad", g, 4, w->a, NULL);
    }
}

const gw_opdef gw_opdef_route_grad = {
    .name = "route_grad",
    .doc = "gradient of route: of the logits, through gates and scores",
    .signature = "bs!n,bs!t,bs!t?,bs!n?->bs!n",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 4,
    .nout = 1,
    .noptional = 2,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = NATTRS,
    .attrs = attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};
