// SPDX-License-Identifier: Apache-2.0
// Differences and their explanations.
//
// The relative difference has a floor under its divisor: some true gradients are zero (of a key's
// bias, which softmax does not see), and what rounding leaves of them is no measure of anything.
// The floor is a thousandth of the model's typical gradient, so that such a tensor counts by what
// it could do to a step.
//
// A tensor that disagrees mostly does so for a reason that has a shape. Three shapes are tried:
//
//   a factor     x = a y. The best a is <x,y> / <y,y>; if what remains of x is small, a is the
//                explanation, and the degrees of the layout tell its name. dp and the number of
//                micro-batches may be equal: then both names are given.
//   a mixture    x = sum of w_r g_r, with g_r what rank r alone (or micro-batch r alone) adds to
//                the gradient. All weights 1 is the right answer; a 0 is a contribution that was
//                lost, a single 1 a reduction that did not happen, and weights that follow the
//                ranks' label counts are a mean of means.
//   own pieces   a sharded gradient whose part on each rank is that rank's own contribution: what
//                remains of a reduce-scatter that did not add.
//
// All sums are in double, so that this file adds no error of its own to what it measures.
#include "train/verify_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_MAX, GW_COUNT */
#include "comm/parts.h"    /* gw_cut_flat */
#include "comm/wire.h"     /* GW_WIRE_BLOCK */

static double dot(const float *x, const float *y, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)y[i];
    return s;
}

double gw_verify_norm(const float *x, int64_t n) { return sqrt(dot(x, x, n)); }

/* One difference; equal infinities and two NaNs are none. */
static double apart(float a, float b) {
    if (isfinite(a) && isfinite(b)) return (double)a - (double)b;
    return (isnan(a) && isnan(b)) || a == b ? 0 : (double)INFINITY;
}

double gw_verify_difference(const float *a, const float *b, int64_t n, double floor) {
    double s = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = apart(a[i], b[i]);
        s += d * d;
        if (isfinite(b[i])) norm += (double)b[i] * (double)b[i];
    }
    double by = GW_MAX(sqrt(norm), floor);
    if (s == 0) return 0;
    return by > 0 ? sqrt(s) / by : (double)INFINITY;
}

/* ---- one factor ---- */

static double residual(const float *x, const float *y, int64_t n, double a) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - a * (double)y[i];
        s += d * d;
    }
    return sqrt(s);
}

static bool close_to(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * fabs(b);
}

/* Appends "x WORD (n)" or "/ WORD (n)" if a is that. */
static void name_degree(char *text, double a, const char *word, int64_t n, double tolerance) {
    if (n <= 1) return;
    const char *sign = close_to(a, (double)n, tolerance)       ? "x"
                       : close_to(a, 1 / (double)n, tolerance) ? "/"
                                                               : NULL;
    if (!sign) return;
    size_t at = strlen(text);
    snprintf(text + at, GW_VERIFY_TEXT - at, "%s%s %s (%lld)", at ? " or " : "", sign, word,
             (long long)n);
}

static void name_factor(char *text, double a, const gw_verify_degrees *d, double tolerance) {
    int64_t shard = d->dp_replicate > 0 ? d->dp / d->dp_replicate : d->dp;
    text[0] = 0;
    name_degree(text, a, "dp", d->dp, tolerance);
    name_degree(text, a, "tp", d->tp, tolerance);
    name_degree(text, a, "cp", d->cp, tolerance);
    name_degree(text, a, "ep", d->ep, tolerance);
    name_degree(text, a, "pp", d->pp, tolerance);
    name_degree(text, a, "virtual stages", d->virtual_stages, tolerance);
    if (d->pp > 1 && d->virtual_stages > 1)
        name_degree(text, a, "stages", d->pp * d->virtual_stages, tolerance);
    name_degree(text, a, "micro-batches", d->micro_batches, tolerance);
    if (d->dp > 1 && d->cp > 1) name_degree(text, a, "dp x cp", d->dp * d->cp, tolerance);
    if (d->cp > 1 && d->tp > 1) name_degree(text, a, "cp x tp", d->cp * d->tp, tolerance);
    if (d->dp > 1 && d->tp > 1) name_degree(text, a, "dp x tp", d->dp * d->tp, tolerance);
    if (d->dp_replicate > 1 && d->dp_replicate < d->dp) {
        name_degree(text, a, "dp_replicate", d->dp_replicate, tolerance);
        name_degree(text, a, "dp / dp_replicate", shard, tolerance);
    }
    if (d->dp > 1 && d->micro_batches > 1)
        name_degree(text, a, "dp x micro-batches", d->dp * d->micro_batches, tolerance);
    if (d->pp > 1 && d->micro_batches > 1)
        name_degree(text, a, "pp x micro-batches", d->pp * d->micro_batches, tolerance);
    if (d->pp > 1 && d->dp > 1) name_degree(text, a, "dp x pp", d->dp * d->pp, tolerance);
    if (!text[0]) snprintf(text, GW_VERIFY_TEXT, "x %.4g", a);
}

bool gw_verify_factor(const float *x, const float *y, int64_t n, const gw_verify_degrees *d,
                      double tolerance, double *factor, char text[GW_VERIFY_TEXT]) {
    double xx = gw_verify_norm(x, n), yy = gw_verify_norm(y, n);
    if (!isfinite(xx) || !isfinite(yy) || yy == 0) return false;
    if (xx <= 1e-6 * yy) {
        *factor = 0;
        snprintf(text, GW_VERIFY_TEXT, "zero");
        return true;
    }
    double a = dot(x, y, n) / (yy * yy);
    if (residual(x, y, n, a) > tolerance * xx || close_to(a, 1, tolerance)) return false;
    *factor = a;
    name_factor(text, a, d, tolerance);
    return true;
}

/* ---- a mixture ---- */

typedef struct normal {
    double a[GW_VERIFY_MOST_PARTS][GW_VERIFY_MOST_PARTS + 1];
    bool lost[GW_VERIFY_MOST_PARTS]; /* a part that is zero, or a sum of earlier ones */
} normal;

/* Gauss with the diagonal as pivots: the matrix is one of scalar products. */
static void solve(normal *m, int np, double *w) {
    for (int i = 0; i < np; i++) {
        double whole = m->a[i][i];
        for (int k = 0; k < i; k++) {
            if (m->lost[k]) continue;
            double f = m->a[i][k] / m->a[k][k];
            for (int j = k; j <= np; j++) m->a[i][j] -= f * m->a[k][j];
        }
        m->lost[i] = !(m->a[i][i] > 1e-10 * whole) || whole == 0;
    }
    for (int i = np; i-- > 0;) {
        w[i] = (double)NAN;
        if (m->lost[i]) continue;
        double s = m->a[i][np];
        for (int j = i + 1; j < np; j++)
            if (!m->lost[j]) s -= m->a[i][j] * w[j];
        w[i] = s / m->a[i][i];
    }
}

double gw_verify_mix(const float *x, const float *const *parts, int np, int64_t n, double *w) {
    normal m;
    memset(&m, 0, sizeof m);
    for (int i = 0; i < np; i++) {
        for (int j = 0; j < np; j++) m.a[i][j] = dot(parts[i], parts[j], n);
        m.a[i][np] = dot(parts[i], x, n);
    }
    solve(&m, np, w);
    double s = 0, xx = gw_verify_norm(x, n);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i];
        for (int k = 0; k < np; k++)
            if (!m.lost[k]) d -= w[k] * (double)parts[k][i];
        s += d * d;
    }
    return xx > 0 ? sqrt(s) / xx : (double)INFINITY;
}

static bool is_about(double w, double v, double tolerance) { return fabs(w - v) <= tolerance; }

static void list_weights(const double *w, int np, const char *of, char text[GW_VERIFY_TEXT]) {
    int at = snprintf(text, GW_VERIFY_TEXT, "contributions by %s:", of);
    for (int i = 0; i < np && at < GW_VERIFY_TEXT - 16; i++)
        at +=
            isnan(w[i])
                ? snprintf(text + at, GW_VERIFY_TEXT - (size_t)at, "%s none", i ? "," : "")
                : snprintf(text + at, GW_VERIFY_TEXT - (size_t)at, "%s x %.3g", i ? "," : "", w[i]);
}

bool gw_verify_mix_text(const double *w, int np, const char *of, double tolerance,
                        char text[GW_VERIFY_TEXT]) {
    int ones = 0, zeros = 0, known = 0, one = -1, zero = -1;
    int base = strstr(of, "rank") ? 0 : 1;
    for (int i = 0; i < np; i++) {
        if (isnan(w[i])) continue;
        known++;
        if (is_about(w[i], 1, tolerance)) {
            ones++;
            one = i;
        } else if (is_about(w[i], 0, tolerance)) {
            zeros++;
            zero = i;
        }
    }
    if (known == 0 || ones == known) return false;
    if (ones == 1 && zeros == known - 1 && known > 2)
        snprintf(text, GW_VERIFY_TEXT, "missing reduction: only %s %d's contribution", of,
                 one + base);
    else if (ones == 1 && zeros == 1 && known == 2)
        snprintf(text, GW_VERIFY_TEXT,
                 "missing reduction: equals %s %d's own contribution, %s %d's is missing", of,
                 one + base, of, zero + base);
    else if (zeros == 1 && ones == known - 1)
        snprintf(text, GW_VERIFY_TEXT, "%s %d's contribution is missing", of, zero + base);
    else
        list_weights(w, np, of, text);
    return true;
}

bool gw_verify_own_pieces(const float *x, const float *const *parts, int np, const int64_t *first,
                          const int64_t *count, double tolerance) {
    double off = 0, all = 0;
    for (int r = 0; r < np; r++)
        for (int64_t i = first[r]; i < first[r] + count[r]; i++) {
            double d = (double)x[i] - (double)parts[r][i];
            off += d * d;
            all += (double)x[i] * (double)x[i];
        }
    return all > 0 && sqrt(off) <= tolerance * sqrt(all);
}

/* ---- wires ---- */

static double codes(gw_wire w) {
    switch (w) {
    case GW_WIRE_INT8: return 254;
    case GW_WIRE_INT4: return 14;
    case GW_WIRE_SAME:
    case GW_WIRE_F32:
    case GW_WIRE_BF16:
    case GW_WIRE_COUNT: return 0;
    }
    return 0;
}

/* Sum over elements of the square of their block's largest. */
static double blocks(const float *x, int64_t n) {
    double s = 0;
    for (int64_t at = 0; at < n; at += GW_WIRE_BLOCK) {
        double most = 0;
        int64_t end = GW_MIN(n, at + GW_WIRE_BLOCK);
        for (int64_t i = at; i < end; i++) most = GW_MAX(most, fabs((double)x[i]));
        s += (double)(end - at) * most * most;
    }
    return s;
}

double gw_verify_hop(gw_wire w, const float *x, int64_t n, int64_t shares) {
    double steps = codes(w), s = 0, norm = gw_verify_norm(x, n);
    if (norm == 0) return 0;
    if (w == GW_WIRE_BF16) return 1.0 / 256;
    if (steps == 0) return 0;
    for (int64_t r = 0; r < shares; r++) {
        gw_cut cut = gw_cut_flat(n, shares, r);
        s += blocks(x + cut.first, cut.length);
    }
    return sqrt(s) / steps / norm;
}
