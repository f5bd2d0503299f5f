// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules, number for number those of Hugging Face transformers (optimization.py:
// get_constant_schedule_with_warmup, get_linear_..., get_cosine_..., get_cosine_with_min_lr_...,
// get_wsd_schedule), so that a recipe written for that library means the same here.
//
// All are a factor on the peak rate as a function of the updates already done, so the first update
// of a run with warm-up has rate zero (wsd: the least rate, since that library raises its warm-up
// from there). `min_ratio` is a floor by mixing, f (1 - r) + r, applied after the warm-up; for wsd
// to the warm-up as well. The linear schedule has no floor there; here it is mixed in the same way,
// and r = 0 gives that library's numbers. The fall of wsd is half a cosine, that library's default.
//
// Past its end the cosine rises again, as the formula does: a run never goes there, since `total`
// is train.steps. Resuming with another train.steps moves the whole curve.
#include "train/lr.h"

#include <math.h>

#include "base/compiler.h" /* GW_MAX */

static const double pi = 3.14159265358979323846;

gw_lr gw_lr_of(const gw_runfile *rf) {
    static const gw_lr_kind kinds[] = {GW_LR_CONSTANT, GW_LR_LINEAR, GW_LR_COSINE, GW_LR_WSD};
    const gw_rf_optim *o = &rf->optimizer;
    return (gw_lr){.kind = kinds[o->schedule],
                   .warmup = o->warmup_steps,
                   .total = rf->train.steps,
                   .decay = o->decay_steps,
                   .shape = GW_LR_DECAY_COSINE,
                   .min_ratio = o->min_lr_ratio};
}

static double part(int64_t n, int64_t of) { return (double)n / (double)GW_MAX(1, of); }

static double floored(double f, double min_ratio) {
    return fmax(0.0, f * (1 - min_ratio) + min_ratio);
}

static double half_cosine(double progress) { return 0.5 * (1 + cos(pi * progress)); }

static double wsd_fall(gw_lr_decay shape, double progress) {
    switch (shape) {
    case GW_LR_DECAY_COSINE: return half_cosine(progress);
    case GW_LR_DECAY_LINEAR: return 1 - progress;
    case GW_LR_DECAY_SQRT: return 1 - sqrt(progress);
    }
    return 0;
}

static double wsd(const gw_lr *s, int64_t done) {
    int64_t fall_at = GW_MAX(s->warmup, s->total - s->decay);
    if (done < s->warmup) return floored(part(done, s->warmup), s->min_ratio);
    if (done < fall_at) return 1;
    if (done >= fall_at + s->decay) return s->min_ratio;
    return floored(wsd_fall(s->shape, part(done - fall_at, s->decay)), s->min_ratio);
}

double gw_lr_factor(const gw_lr *s, int64_t done) {
    if (s->kind == GW_LR_WSD) return wsd(s, done);
    if (done < s->warmup) return part(done, s->warmup);
    double left = fmax(0.0, part(s->total - done, s->total - s->warmup));
    double progress = part(done - s->warmup, s->total - s->warmup);
    switch (s->kind) {
    case GW_LR_CONSTANT: return 1;
    case GW_LR_LINEAR: return floored(left, s->min_ratio);
    case GW_LR_COSINE: return floored(half_cosine(progress), s->min_ratio);
    case GW_LR_WSD: break;
    }
    return 1;
}
