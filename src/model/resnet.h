// SPDX-License-Identifier: Apache-2.0
// Residual nets inside src/model: what model.h's functions do for GW_FAMILY_RESNET.
#ifndef GW_MODEL_RESNET_H
#define GW_MODEL_RESNET_H

#include "model/model.h" /* gw_model, gw_param, gw_build_opts */

/* The net of `depth` layers: 18, 34, 50, 101 or 152; false for another. */
bool gw_resnet_of_depth(int depth, gw_model *out);
GW_WARN_UNUSED gw_status gw_resnet_check(const gw_model *m, gw_diags *dg);
void gw_resnet_params(const gw_model *m, gw_arena *a, gw_param **out, int *n);
void gw_resnet_buffers(const gw_model *m, gw_arena *a, gw_buffer **out, int *n);
/* FLOPs of a training step per image: 6 for each multiply-add of forward. */
double gw_resnet_flops(const gw_model *m);
GW_WARN_UNUSED gw_status gw_resnet_build(gw_graph *g, const gw_model *m, const gw_build_opts *o,
                                         gw_diags *dg);

#endif
