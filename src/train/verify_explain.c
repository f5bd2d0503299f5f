// SPDX-License-Identifier: Apache-2.0
// What the ranks and the micro-batches add to a gradient, one by one.
//
// A gradient is a sum over the rows of a step. The reference run with the labels of all but one
// rank's rows masked, and the same divisor, gives that rank's own term; likewise for a micro-batch.
// With these terms a gradient that is wrong by more than a factor is explained as a wrong sum of
// them: a rank that was left out, a reduction that did not happen, a mean of means.
//
// Terms are of the first step, from the initial weights, where both sides still stood on the same
// bits.
#include <math.h>
#include <string.h>

#include "train/verify_impl.h" /* this module's contract */

/* Terms of one kind: by rank, or by micro-batch. */
typedef struct terms {
    const char *of;
    int n;
    float **of_item; /* [n * nitems]; NULL for items that are not asked for */
} terms;

/* One step of the reference with everything but term t masked. */
static gw_status run_term(gw_verifier *r, bool by_rank, int64_t t) {
    gw_verify_side *ref = &r->reference;
    int64_t b = r->setup.rf->train.micro_batch;
    GW_TRY(gw_verify_side_reset(ref, r->o, r->dg));
    ref->only = by_rank ? (gw_verify_only){.first_row = t * b, .rows = b}
                        : (gw_verify_only){.micro = t, .micros = 1};
    gw_status st = gw_verify_side_step(ref, r->dg);
    ref->only = (gw_verify_only){0};
    return st;
}

static gw_status take_terms(gw_verifier *r, bool by_rank, terms *t, gw_arena *a) {
    int64_t n = by_rank ? r->setup.rf->layout.dp : r->setup.rf->train.accumulate;
    const char *rank = n == gw_runfile_ranks(r->setup.rf) ? "rank" : "data-parallel rank";
    *t = (terms){.of = by_rank ? rank : "micro-batch"};
    if (n < 2 || n > GW_VERIFY_MOST_PARTS) return GW_OK;
    t->n = (int)n;
    t->of_item = gw_arena_new(a, float *, n * r->nitems);
    for (int64_t k = 0; k < n; k++) {
        GW_TRY(run_term(r, by_rank, k));
        for (int64_t i = 0; i < r->nitems; i++) {
            if (!r->items[i].kept) continue;
            float *x = gw_arena_new(a, float, r->items[i].elems);
            t->of_item[i * n + k] = x;
            GW_TRY(gw_verify_side_read(&r->reference, r->items[i].in_reference, x, r->dg));
        }
    }
    return GW_OK;
}

/* Sharded gradients that nobody added up: each part is its rank's own. */
static bool own_pieces(const gw_verifier *r, int64_t i, const terms *t, double tolerance) {
    const gw_verify_item *it = &r->items[i];
    const gw_mesh *mesh = r->layout.table.mesh;
    const gw_type *type = &it->in_layout->type;
    int64_t each = gw_mesh_ranks(mesh) / r->layout.table.stages;
    int64_t rank = it->in_layout->home * each; /* the first of those that have it */
    if (!type->flat || gw_type_cut_axes(type) || each != t->n) return false;
    int64_t first[GW_VERIFY_MOST_PARTS], count[GW_VERIFY_MOST_PARTS];
    const float *parts[GW_VERIFY_MOST_PARTS];
    for (int k = 0; k < t->n; k++) {
        parts[k] = t->of_item[i * t->n + k];
        first[k] = gw_type_flat_first(type, mesh, rank + k);
        count[k] = gw_type_local_elems(type, mesh, rank + k);
        for (int q = 0; q < k; q++) /* a copy: the gathered one is the last rank's */
            if (first[q] == first[k]) count[q] = 0;
    }
    return gw_verify_own_pieces(it->kept, parts, t->n, first, count, tolerance);
}

static bool explain_item(gw_verifier *r, int64_t i, const terms *t, bool by_rank) {
    gw_verify_tensor *e = &r->entries[i];
    double w[GW_VERIFY_MOST_PARTS], tolerance = GW_MIN(GW_MAX(e->bound, 5e-3), 0.1);
    if (by_rank && own_pieces(r, i, t, tolerance)) {
        snprintf(e->why, sizeof e->why,
                 "missing reduction: the part on each rank is its own contribution");
        return true;
    }
    const float *parts[GW_VERIFY_MOST_PARTS];
    for (int k = 0; k < t->n; k++) parts[k] = t->of_item[i * t->n + k];
    if (gw_verify_mix(r->items[i].kept, parts, t->n, r->items[i].elems, w) > tolerance)
        return false;
    return gw_verify_mix_text(w, t->n, t->of, 10 * tolerance, e->why);
}

gw_status gw_verify_explain(gw_verifier *r) {
    if (r->kept_elems == 0) return GW_OK;
    for (int by_rank = 1; by_rank >= 0; by_rank--) {
        gw_arena mem = {0};
        terms t;
        gw_status st = take_terms(r, by_rank, &t, &mem);
        for (int64_t i = 0; st == GW_OK && t.n > 0 && i < r->nitems; i++)
            if (r->items[i].kept && !r->entries[i].why[0]) (void)explain_item(r, i, &t, by_rank);
        gw_arena_release(&mem);
        GW_TRY(st);
    }
    return GW_OK;
}

gw_status gw_verify_measure_spread(gw_verifier *r) {
    int64_t dp = r->setup.rf->layout.dp;
    double *sums = gw_arena_new(&r->mem, double, r->nitems);
    for (int64_t k = 0; k <= dp; k++) {
        if (k < dp) {
            GW_TRY(run_term(r, true, k));
        } else {
            GW_TRY(gw_verify_side_reset(&r->reference, r->o, r->dg));
            GW_TRY(gw_verify_side_step(&r->reference, r->dg));
        }
        for (int64_t i = 0; i < r->nitems; i++) {
            gw_verify_item *it = &r->items[i];
            if (it->kind != GW_VERIFY_GRADIENT) continue;
            GW_TRY(gw_verify_side_read(&r->reference, it->in_reference, r->y, r->dg));
            double norm = gw_verify_norm(r->y, it->elems);
            if (k < dp)
                sums[i] += norm;
            else
                it->spread = norm > 0 ? GW_MAX(1.0, sums[i] / norm) : 1;
        }
    }
    return gw_verify_side_reset(&r->reference, r->o, r->dg);
}
