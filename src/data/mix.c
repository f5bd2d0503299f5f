// SPDX-License-Identifier: Apache-2.0
// Mixtures by exact proportions.
//
// Both rules are walks: which source is next hangs on how often each was taken so far. A walk has
// marks, the counts at every 4,096th position that was reached, so that going back, or on from a
// checkpoint, costs little; and where the rule works in whole numbers it has a period, after which
// every count is its share exactly and the walk begins anew. So any position can be asked for.
//
// Tijdeman's rule in whole numbers. Weights are w_k, their sum W; after n rows source k ought to
// have n w_k / W. At row n (from 1) those sources may be taken that have fallen behind far enough,
//
//     n w_k / W - x_k >= 1 / (2 s - 2)            (s sources, x_k rows taken of k)
//
// and of these the one whose deadline is first: the row at which it would be 1 - 1 / (2 s - 2)
// behind. Multiplied by c W, with c = 2 s - 2, nothing is a fraction: products stay below 2^63 as
// weights are at most 10^9 and a period is walked from its beginning.
//
// Each stage is a walk of its own that begins with counts of zero; what sources had before it is
// added. So a stage has its proportions whatever came before.
#include "data/mix.h" /* this module's contract */

#include <math.h>
#include <string.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_MIN */
#include "base/map.h"      /* GW_VEC */

enum { MARK = 4096, SCALE = 1000000000 };

__extension__ typedef __int128 wide;

typedef struct walk {
    int64_t first, rows;   /* of the stage, among all rows; the last: INT64_MAX */
    int64_t *before;       /* [sources] rows taken in earlier stages */
    int64_t *weights;      /* exact */
    double *shares;        /* megatron */
    int64_t period;        /* exact: the sum of weights */
    GW_VEC(int64_t) marks; /* [.][sources] counts at position i * MARK of the stage */
    int64_t at;            /* where the walk stands */
    int64_t *counts;       /* [sources] there */
} walk;

struct gw_mix {
    gw_arena mem;
    gw_mix_rule rule;
    int sources, nstages;
    walk *stages;
    int64_t *scratch; /* [sources] */
};

/* ---- the rules ---- */

static int pick_exact(const gw_mix *m, const walk *w) {
    wide c = m->sources > 1 ? 2 * (wide)m->sources - 2 : 1, n = w->at + 1;
    int best = -1, behind = 0;
    wide best_deadline = 0, best_weight = 1, most = 0;
    for (int k = 0; k < m->sources; k++) {
        wide weight = w->weights[k];
        if (weight == 0) continue;
        wide lag = c * (n * weight - (wide)w->counts[k] * w->period);
        if (behind < 0 || lag > most) most = lag, behind = k;
        if (m->sources > 1 && lag < w->period) continue;
        /* (c W - W - lag) / weight, compared as fractions */
        wide deadline = c * w->period - w->period - lag;
        if (best >= 0 && deadline * best_weight >= best_deadline * weight) continue;
        best = k;
        best_deadline = deadline;
        best_weight = weight;
    }
    return best >= 0 ? best : behind;
}

static int pick_megatron(const gw_mix *m, const walk *w) {
    double n = w->at > 1 ? (double)w->at : 1.0;
    int best = 0;
    double most = w->shares[0] * n - (double)w->counts[0];
    for (int k = 1; k < m->sources; k++) {
        double lag = w->shares[k] * n - (double)w->counts[k];
        if (lag > most) most = lag, best = k;
    }
    return best;
}

static int pick(const gw_mix *m, const walk *w) {
    switch (m->rule) {
    case GW_MIX_EXACT: return pick_exact(m, w);
    case GW_MIX_MEGATRON: return pick_megatron(m, w);
    }
    return 0;
}

/* ---- walking ---- */

static void add_mark(const gw_mix *m, walk *w) {
    if (w->at % MARK != 0 || w->marks.count / m->sources != w->at / MARK) return;
    for (int k = 0; k < m->sources; k++) gw_vec_push(&w->marks, w->counts[k]);
}

static void go_to(const gw_mix *m, walk *w, int64_t at) {
    if (at < w->at || at - w->at > MARK) {
        int64_t mark = GW_MIN(at / MARK, w->marks.count / m->sources - 1);
        if (at < w->at || mark * MARK > w->at) {
            memcpy(w->counts, w->marks.items + mark * m->sources,
                   (size_t)m->sources * sizeof *w->counts);
            w->at = mark * MARK;
        }
    }
    while (w->at < at) {
        w->counts[pick(m, w)]++;
        w->at++;
        add_mark(m, w);
    }
}

/* Counts of the stage at position `at` of it; the walk then stands there, whole periods apart. */
static void stage_counts(const gw_mix *m, walk *w, int64_t at, int64_t *counts) {
    int64_t rounds = w->period > 0 ? at / w->period : 0;
    go_to(m, w, at - rounds * w->period);
    for (int k = 0; k < m->sources; k++)
        counts[k] = w->counts[k] + (w->period > 0 ? rounds * w->weights[k] : 0);
}

/* ---- making one ---- */

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* To nine decimals of the sum, without a common divisor. A source with a weight keeps one. */
static void take_weights(const gw_mix *m, walk *w, const double *given, double sum) {
    int64_t g = 0;
    double largest = 0;
    bool whole = sum <= SCALE;
    for (int k = 0; k < m->sources; k++) {
        whole = whole && given[k] == floor(given[k]);
        largest = fmax(largest, given[k]);
    }
    /* Short decimals (0.7, 12.5) are meant as they are written; their sum need not be 1. */
    double scale = whole ? 1 : SCALE / fmax(1, ceil(sum));
    for (int k = 0; k < m->sources; k++) {
        w->shares[k] = given[k] / sum;
        w->weights[k] = llround(given[k] * scale);
        if (given[k] > 0 && w->weights[k] < 1) w->weights[k] = 1;
        g = gcd(g, w->weights[k]);
    }
    w->period = 0;
    for (int k = 0; k < m->sources && g > 0; k++) w->period += w->weights[k] /= g;
    if (m->rule != GW_MIX_EXACT) w->period = 0;
}

static gw_status add_stage(gw_mix *m, int i, const gw_mix_stage *s, gw_diags *dg) {
    walk *w = &m->stages[i];
    double sum = 0;
    bool last = i == m->nstages - 1, fits = true;
    for (int k = 0; k < m->sources; k++) {
        fits = fits && isfinite(s->weights[k]) && s->weights[k] >= 0;
        sum += s->weights[k];
    }
    if (!fits || !(sum > 0) || sum > 1e9)
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-mixture",
                       "the weights of stage %d are not numbers from 0 with a sum above 0, at most "
                       "10^9",
                       i + 1);
    if (!last && s->rows < 1)
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-mixture", "stage %d has no rows", i + 1);
    w->rows = last ? INT64_MAX : s->rows;
    w->weights = gw_arena_new(&m->mem, int64_t, m->sources);
    w->shares = gw_arena_new(&m->mem, double, m->sources);
    w->counts = gw_arena_new(&m->mem, int64_t, m->sources);
    w->before = gw_arena_new(&m->mem, int64_t, m->sources);
    take_weights(m, w, s->weights, sum);
    add_mark(m, w);
    if (i == 0) return GW_OK;
    walk *earlier = &m->stages[i - 1];
    w->first = earlier->first + earlier->rows;
    stage_counts(m, earlier, earlier->rows, w->before);
    for (int k = 0; k < m->sources; k++) w->before[k] += earlier->before[k];
    return GW_OK;
}

gw_status gw_mix_new(int sources, const gw_mix_stage *stages, int nstages, gw_mix_rule rule,
                     gw_mix **out, gw_diags *dg) {
    *out = NULL;
    if (sources < 1 || sources > GW_MIX_MOST || nstages < 1)
        return GW_FAIL(
            dg, GW_ERR_CONFIG, "data-mixture",
            "a mixture of %d sources in %d stages; at least 1 of each, at most %d sources", sources,
            nstages, (int)GW_MIX_MOST);
    gw_mix *m = gw_mem_zalloc(sizeof *m);
    m->sources = sources;
    m->nstages = nstages;
    m->rule = rule;
    m->stages = gw_arena_new(&m->mem, walk, nstages);
    m->scratch = gw_arena_new(&m->mem, int64_t, sources);
    gw_status st = GW_OK;
    for (int i = 0; i < nstages && st == GW_OK; i++) st = add_stage(m, i, &stages[i], dg);
    if (st == GW_OK)
        *out = m;
    else
        gw_mix_free(m);
    return st;
}

void gw_mix_free(gw_mix *m) {
    if (!m) return;
    for (int i = 0; i < m->nstages; i++) gw_vec_release(&m->stages[i].marks);
    gw_arena_release(&m->mem);
    gw_mem_free(m);
}

int gw_mix_stage_at(const gw_mix *m, int64_t n) {
    int i = 0;
    while (i < m->nstages - 1 && n - m->stages[i].first >= m->stages[i].rows) i++;
    return i;
}

void gw_mix_counts(gw_mix *m, int64_t n, int64_t *counts) {
    walk *w = &m->stages[gw_mix_stage_at(m, n)];
    stage_counts(m, w, n - w->first, counts);
    for (int k = 0; k < m->sources; k++) counts[k] += w->before[k];
}

gw_mix_place gw_mix_at(gw_mix *m, int64_t n) {
    walk *w = &m->stages[gw_mix_stage_at(m, n)];
    stage_counts(m, w, n - w->first, m->scratch);
    int k = pick(m, w);
    return (gw_mix_place){k, m->scratch[k] + w->before[k]};
}
