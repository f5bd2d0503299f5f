// SPDX-License-Identifier: Apache-2.0
// What optimizer ops share. Their operands stand in one order:
//   p, g, states..., factor[], ok[], lr[], step[]?  ->  p', states'...   (tied: same bytes)
#ifndef GW_OPS_OPTIM_H
#define GW_OPS_OPTIM_H

#include "ops/cases.h" /* gw_cases, gw_case */

/* p, g and `nstates` states are floats of one shape, then scalars; a step counter if with_step.
 * Outputs are the types of p and of the states. */
gw_status gw_optim_infer(gw_infer *f, int nstates, bool with_step);

/* Scalars of a step as an optimizer reads them. */
typedef struct gw_optim_scalars {
    double factor, lr;
    bool ok;      /* false: leave every byte as it is */
    int64_t step; /* from 1; 0 where the op takes none */
} gw_optim_scalars;
gw_optim_scalars gw_optim_read(const gw_kargs *k, int nstates);

/* One case of an optimizer op. */
typedef struct gw_optim_case {
    const char *name, *op, *dims;
    int nstates;
    bool with_step, float_states; /* states and gradients in float32 whatever p is */
    double ok, factor, lr;
    int64_t step;
} gw_optim_case;
/* Leaves in order; the second state is not negative. Returns the case; in[] holds 9 ids. */
gw_case *gw_optim_case_begin(gw_cases *cs, const gw_optim_case *o, gw_vid *in, int *nin);

#endif
