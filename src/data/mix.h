// SPDX-License-Identifier: Apache-2.0
// Mixtures: which source each row of a run comes from, by exact proportions.
//
// A mixture is a function of its weights and the position alone. Rule `exact` (the default) keeps
// the count of every source within 1 of its share at every prefix, which is as good as can be done
// (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980); rule `megatron` is
// the greedy one of Megatron-LM's build_blending_indices, equal to it element by element. Weights
// change from stage to stage (a curriculum), and each source goes on where it stood.
#ifndef GW_DATA_MIX_H
#define GW_DATA_MIX_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef enum gw_mix_rule { GW_MIX_EXACT, GW_MIX_MEGATRON } gw_mix_rule;

typedef struct gw_mix gw_mix;

/* One stage: `rows` rows (the last stage: no end), and a weight >= 0 of each source, not all 0. */
typedef struct gw_mix_stage {
    int64_t rows;
    const double *weights; /* [sources] */
} gw_mix_stage;

enum { GW_MIX_MOST = 4096 }; /* sources */

/* nstages >= 1; the weights are copied. Rule `exact` takes them to nine decimals of their sum.
 * GW_ERR_CONFIG for weights or sizes that make no mixture. */
GW_WARN_UNUSED gw_status gw_mix_new(int sources, const gw_mix_stage *stages, int nstages,
                                    gw_mix_rule rule, gw_mix **out, gw_diags *dg);
void gw_mix_free(gw_mix *m);

typedef struct gw_mix_place {
    int source;
    int64_t index; /* how many rows of that source come before it */
} gw_mix_place;

/* Position n >= 0. In order, a handful of operations a source; a jump costs at most as much as all
 * rows before it (in `exact`, as one period of the weights and 4,096 rows). One thread at a time.
 */
gw_mix_place gw_mix_at(gw_mix *m, int64_t n);
/* Rows of each source among the first n, into counts[sources]. */
void gw_mix_counts(gw_mix *m, int64_t n, int64_t *counts);
int gw_mix_stage_at(const gw_mix *m, int64_t n);

#endif
