// SPDX-License-Identifier: Apache-2.0
// What muon and its pieces for matrices in parts share: checks, and the arithmetic of references.
#ifndef GW_OPS_MUON_H
#define GW_OPS_MUON_H

#include "base/arena.h" /* gw_arena */
#include "ir/opdef.h"   /* gw_infer, gw_kargs, gw_sharding */

/* Attributes of op muon, by index. */
enum { GW_MUON_ROWS, GW_MUON_MOMENTUM, GW_MUON_NESTEROV, GW_MUON_NS_STEPS, GW_MUON_DECAY };

/* Input 0 is a matrix whose first `rows` dims are its rows; ns_steps is in range. */
gw_status gw_muon_matrix(gw_infer *f, int64_t rows);
gw_status gw_muon_steps(gw_infer *f, int64_t steps);
/* Every factor is whole. */
void gw_muon_sign_whole(const gw_graph *g, const gw_op *o, gw_signature *s);
/* Rows and columns of the whole matrix v, whose first `rows` dims are its rows. */
void gw_muon_sizes(const gw_graph *g, gw_vid v, int64_t rows, int64_t *r, int64_t *c);
/* Flops of ns_steps rounds on r x c. */
double gw_muon_flops(int64_t r, int64_t c, int64_t steps);

/* One element: from gradient g (times factor) and momentum m, the new momentum; returns the
 * direction. `f64`: in float64, else rounded to float32 an operation. */
double gw_muon_ahead(bool f64, double g, double *m, double momentum, bool nesterov);
/* u[rows cols] to its orthogonalized direction, in place. */
void gw_muon_orthogonalize(bool f64, double *u, int64_t rows, int64_t cols, int64_t steps,
                           gw_arena *a);
/* One element of the parameter after a step along x; rows and cols are those of the whole matrix.
 */
double gw_muon_stepped(bool f64, double p, double x, double lr, double decay, int64_t rows,
                       int64_t cols);

/* The shard rule of muon where its matrix is cut (ops/muon_parts.c). */
gw_status gw_muon_shard(gw_sharding *s, gw_diags *dg);

#endif
