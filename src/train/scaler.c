// SPDX-License-Identifier: Apache-2.0
// Loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2).
//
// The scale multiplies the seed of backward, and its inverse the gradients before they are clipped
// and used, so that it cancels except where a gradient would have been too small for float16. It
// starts high. A step whose gradient overflows is skipped by the program itself (the optimizer's
// ops leave state untouched) and halves the scale; after `window` good steps in a row it doubles.
// Halving and doubling are exact, so a step's result does not depend on the scale but through
// underflow.
//
// Scale and both counters are part of a checkpoint: without them a resumed run would differ.
#include "train/scaler.h"

#include "base/compiler.h" /* GW_MIN */

gw_scaler gw_scaler_of(const gw_runfile *rf) {
    const gw_rf_precision *p = &rf->precision;
    gw_scaler s = {.active = p->compute == GW_RF_FP16, .scale = 1};
    if (!s.active) return s;
    s.dynamic = !(p->loss_scale > 0);
    s.scale = s.dynamic ? p->loss_scale_init : p->loss_scale;
    s.window = p->loss_scale_window;
    return s;
}

static bool overflowed(gw_scaler *s) {
    s->good_steps = 0;
    s->bad_steps++;
    if (!s->dynamic) return s->bad_steps < GW_SCALE_FIXED_PATIENCE;
    if (s->scale / 2 < GW_SCALE_MIN) return false;
    s->scale /= 2;
    return true;
}

bool gw_scaler_update(gw_scaler *s, bool finite) {
    if (!s->active) return finite;
    if (!finite) return overflowed(s);
    s->bad_steps = 0;
    s->good_steps++;
    if (s->dynamic && s->good_steps >= s->window) {
        s->scale = GW_MIN(s->scale * 2, GW_SCALE_MAX);
        s->good_steps = 0;
    }
    return true;
}
