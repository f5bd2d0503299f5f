// SPDX-License-Identifier: Apache-2.0
// One token's way through a router: what the reference and the kernels share, to the bit.
#ifndef GW_OPS_ROUTE_H
#define GW_OPS_ROUTE_H

#include "ir/opdef.h" /* gw_graph, gw_op */

enum {
    GW_ROUTE_EXPERTS = 2048, /* at most */
    GW_ROUTE_TOP = 64,
};

typedef struct gw_route {
    int64_t n, top, groups, group_limit;
    bool sigmoid, normalize, group_max;
    double scale;
} gw_route;

/* What an op route or route_grad (whose attributes are the same) says. */
gw_route gw_route_of(const gw_graph *g, const gw_op *o);
/* logits[n]; bias[n] of the choice, or NULL; choices[top], or NULL for the own ones -> ids[top] in
 * the order of choice, gates[top], probs[n]. False, and nothing written, where `choices` has what
 * is no expert: that token goes nowhere. */
bool gw_route_token(const gw_route *r, const double *logits, const double *bias,
                    const int32_t *choices, int32_t *ids, double *gates, double *probs);
/* The gradient: dgates[top] and dprobs[n] (NULL: none) -> dlogits[n]. */
void gw_route_token_grad(const gw_route *r, const double *logits, const int32_t *ids,
                         const double *dgates, const double *dprobs, double *dlogits);

/* What experts are chosen by: scores of logits[n], with the bias where it is not NULL -> pick[n].
 */
void gw_route_picks(const gw_route *r, const double *logits, const double *bias, double *pick);
/* choices[top], made by another run, beside picks of this one. *differ: how many of them this one
 * would not have made. Returns by how much picks would have to move apart for the choices to be
 * right: 0 where they are; the difference between the best that was left out and the worst that was
 * taken; where groups are limited, or half the difference between two groups' sums, whatever is
 * larger. Infinite where `choices` cannot be a choice. */
double gw_route_margin(const gw_route *r, const double *pick, const int32_t *choices,
                       int64_t *differ);

#endif
