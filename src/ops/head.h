// SPDX-License-Identifier: Apache-2.0
// What the fused head and its vocabulary-parallel pieces share: operands x[* d], w[v d], labels[*]
// at inputs 0, 1, 2, logits by rows, and the gradient given each row's log-sum-exp.
#ifndef GW_OPS_HEAD_H
#define GW_OPS_HEAD_H

#include "ir/opdef.h" /* gw_infer, gw_kargs, gw_sharding */

/* Checks x, w and labels. */
gw_status gw_head_infer(gw_infer *f);
/* A statistic beside values of input 0, one for each element of input `in`; a scalar for in < 0. */
gw_type gw_head_stat(const gw_infer *f, int in);

/* Reference kernels: the logit of local row r of x and local row c of w. */
double gw_head_logit(const gw_kargs *k, int64_t r, int64_t c);
/* Label of local row r: a row of the whole w, or negative. One past the vocabulary is a bug of the
 * caller. */
int64_t gw_head_label(const gw_kargs *k, int64_t r);
/* dx and dw (outputs 0, 1) of seed times the loss; `row_stat` gives a valid row's log-sum-exp over
 * the whole vocabulary, `seed` and `acc` are inputs by number. Rows of w that are elsewhere add
 * nothing. */
void gw_head_gradient(const gw_kargs *k, int seed, int acc,
                      double (*row_stat)(const gw_kargs *k, int64_t r));

/* The shard rule of both ops where w's vocabulary is cut (ops/head_parts.c). */
gw_status gw_head_shard(gw_sharding *s, gw_diags *dg);

#endif
