// SPDX-License-Identifier: Apache-2.0
// What can be wrong between the stages of a pipeline, by name.
//
// Three things hold a pipeline's ranks together besides the order of the actions, which is proven
// before anything runs: parts of a tied weight's gradient are added up, squares of gradients are
// added up, and a message is for one micro-batch. After the first step each is looked at, where
// something disagrees that it would explain.
//
//   tied      the ranks that have the weight hold a part each; is their sum the right gradient?
//   norm      every gradient is right, the norm is not: is it made of the squares of some ranks
//             only, or of a tied weight's more than once?
//   messages  the step's forward and backward are run again, over and over, with the labels of one
//             micro-batch k alone. Then nothing may hang on the tokens of any other. If the loss
//             hangs on those of j, a stage takes j's activations for k's; it is the first whose
//             weight gradients do not feel it when the tokens of k itself are changed. If only
//             gradients do, a stage applies to j what came back for k; it is the last that feels
//             it.
//
// Micro-batches are numbered from 1 here, as wherever verify names them; stages and ranks from 0.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/verify_impl.h" /* this module's contract */

enum { MOST_MICRO_BATCHES = 32, MOST_RANKS = 16, MOST_TIED = 32 };

static int places(const gw_verifier *r) { return r->layout.table.stages; }

static bool has(const gw_verify_item *it, int k) { return k < 64 && (it->holders >> k & 1); }

static int holders_of(const gw_verify_item *it) { return __builtin_popcountll(it->holders); }

static bool is_wrong(const gw_verifier *r, int64_t i, gw_verify_kind kind) {
    return r->items[i].kind == kind && !r->entries[i].agrees;
}

gw_status gw_verify_find_holders(gw_verifier *r) {
    int64_t n = r->nitems, size = gw_ranks_count(r->comm);
    for (int64_t i = 0; i < n; i++) r->items[i].holders = 1;
    if (places(r) == 1) return GW_OK;
    char *mine = gw_mem_zalloc((size_t)n), *all = gw_mem_zalloc((size_t)(n * size));
    for (int64_t i = 0; i < n; i++)
        mine[i] = r->items[i].in_layout && r->items[i].in_layout->value != GW_NONE;
    gw_status st = gw_comm_all_gather(r->comm, mine, n, all, "which stages have what", r->dg);
    int64_t each = size / places(r); /* pp is the most major */
    for (int64_t i = 0; st == GW_OK && i < n; i++) {
        r->items[i].holders = 0;
        for (int k = 0; k < GW_MIN(places(r), 64); k++)
            r->items[i].holders |= (uint64_t)(all[k * each * n + i] != 0) << k;
    }
    gw_mem_free(mine);
    gw_mem_free(all);
    return st;
}

/* "0 and 2" */
static void list_ranks(uint64_t ranks, char text[64]) {
    int n = __builtin_popcountll(ranks), said = 0;
    size_t at = 0;
    text[0] = 0;
    for (int k = 0; k < 64 && at < 52; k++) {
        if (!(ranks >> k & 1)) continue;
        const char *before = said == 0 ? "" : said + 1 == n ? " and " : ", ";
        at += (size_t)snprintf(text + at, 64 - at, "%s%d", before, k);
        said++;
    }
}

/* ---- tied weights ---- */

/* Is the sum of what its holders have the right gradient? */
static gw_status try_tied(gw_verifier *r, int64_t i) {
    gw_verify_item *it = &r->items[i];
    gw_verify_tensor *e = &r->entries[i];
    const gw_ranks_entry *l = it->in_layout;
    bool root = gw_verify_is_root(r);
    const void *here = l->value == GW_NONE ? NULL : gw_exec_tensor(r->layout.x, l->value).data;
    if (root) memset(r->z, 0, sizeof(float) * (size_t)it->elems);
    for (int k = 0; k < places(r); k++) {
        if (!has(it, k)) continue;
        GW_TRY(gw_ranks_add_up_from(r->comm, &l->type, r->layout.table.mesh, 0, k, here,
                                    root ? r->x : NULL, it->name, r->dg));
        for (int64_t j = 0; root && j < it->elems; j++) r->z[j] += r->x[j];
    }
    if (!root) return GW_OK;
    GW_TRY(gw_verify_side_read(&r->reference, it->in_reference, r->y, r->dg));
    double tolerance = GW_MIN(GW_MAX(e->bound, 2e-3), 0.1);
    double floor = r->floor[it->kind] * sqrt((double)it->elems);
    if (gw_verify_difference(r->z, r->y, it->elems, floor) > tolerance) return GW_OK;
    char ranks[64];
    list_ranks(it->holders, ranks);
    snprintf(e->why, sizeof e->why,
             "tied weight: its parts on pipeline ranks %.40s were not added up", ranks);
    return GW_OK;
}

static gw_status explain_tied(gw_verifier *r) {
    int64_t items[MOST_TIED], n = 0;
    for (int64_t i = 0; i < MOST_TIED; i++) items[i] = -1;
    for (int64_t i = 0; gw_verify_is_root(r) && i < r->nitems && n < MOST_TIED; i++)
        if (is_wrong(r, i, GW_VERIFY_GRADIENT) && holders_of(&r->items[i]) > 1) items[n++] = i;
    GW_TRY(gw_comm_broadcast(r->comm, items, sizeof items, "tied weights to look at", r->dg));
    for (int64_t i = 0; i < MOST_TIED && items[i] >= 0; i++) GW_TRY(try_tied(r, items[i]));
    return GW_OK;
}

/* ---- the norm ---- */

/* Squares of the right gradients, by the rank that counts them; of tied weights, once more for each
 * further holder. */
static gw_status add_squares(gw_verifier *r, double by_rank[MOST_RANKS], double *again) {
    for (int k = 0; k < MOST_RANKS; k++) by_rank[k] = 0;
    *again = 0;
    for (int64_t i = 0; i < r->nitems; i++) {
        gw_verify_item *it = &r->items[i];
        if (it->kind != GW_VERIFY_GRADIENT) continue;
        GW_TRY(gw_verify_side_read(&r->reference, it->in_reference, r->y, r->dg));
        double norm = gw_verify_norm(r->y, it->elems);
        by_rank[it->in_layout->home] += norm * norm;
        *again += (holders_of(it) - 1) * norm * norm;
    }
    return GW_OK;
}

static bool is_root_of(double norm, double squares) {
    return fabs(norm - sqrt(squares)) <= 1e-4 * norm;
}

static void name_norm(gw_verify_tensor *e, double norm, const double *by_rank, double again,
                      int p) {
    double all = 0;
    char ranks[64];
    for (int k = 0; k < p; k++) all += by_rank[k];
    for (uint64_t some = 1; some + 1 < UINT64_C(1) << p; some++) {
        double squares = 0;
        for (int k = 0; k < p; k++) squares += some >> k & 1 ? by_rank[k] : 0;
        if (!is_root_of(norm, squares)) continue;
        list_ranks(some, ranks);
        snprintf(e->why, sizeof e->why, "norm of pipeline rank%s %.50s alone",
                 some & (some - 1) ? "s" : "", ranks);
        return;
    }
    if (again > 0 && is_root_of(norm, all + again))
        snprintf(e->why, sizeof e->why, "tied weights count on every pipeline rank that has them");
}

/* Rank 0. */
static gw_status explain_norm(gw_verifier *r) {
    double by_rank[MOST_RANKS], again;
    int64_t norm = -1;
    for (int64_t i = 0; i < r->nitems; i++) {
        if (is_wrong(r, i, GW_VERIFY_GRADIENT)) return GW_OK;
        if (is_wrong(r, i, GW_VERIFY_NORM)) norm = i;
    }
    if (norm < 0 || places(r) > MOST_RANKS) return GW_OK;
    GW_TRY(add_squares(r, by_rank, &again));
    name_norm(&r->entries[norm], r->layout.norm, by_rank, again, places(r));
    return GW_OK;
}

/* ---- messages ---- */

/* What a run shows: the square of the loss, and of each gradient that stands before the end of the
 * loop. */

static bool in_loop(const gw_graph *g, gw_vid v) {
    gw_oid first, end, o = g->values.items[v].def;
    gw_graph_loop(g, &first, &end);
    return o != GW_NONE && o >= first && o < end;
}

static double square_here(const gw_verifier *r, const gw_verify_item *it) {
    const gw_exec *x = r->layout.x;
    const gw_ranks_entry *e = it->kind == GW_VERIFY_LOSS ? r->layout.loss_entry : it->in_layout;
    if (!e || e->value == GW_NONE || !in_loop(gw_exec_graph(x), e->value)) return 0;
    if (it->kind != GW_VERIFY_LOSS && it->kind != GW_VERIFY_GRADIENT) return 0;
    gw_tensor t = gw_exec_tensor(x, e->value);
    double s = 0;
    for (int64_t i = 0; t.dtype == GW_F32 && i < t.elems; i++)
        s += (double)((const float *)t.data)[i] * (double)((const float *)t.data)[i];
    return s;
}

static gw_status run_probe(gw_verifier *r, int64_t labels, gw_verify_altered_how how, int64_t micro,
                           double *square) {
    gw_verify_side *v = &r->layout;
    v->only = (gw_verify_only){.micro = labels, .micros = 1};
    v->altered = (gw_verify_altered){.how = how, .micro = micro};
    gw_status st = gw_verify_side_probe(v, r->dg);
    v->only = (gw_verify_only){0};
    v->altered = (gw_verify_altered){0};
    GW_TRY(gw_exec_agree(r->comm, st, NULL, "looking at one micro-batch", r->dg));
    for (int64_t i = 0; i < r->nitems; i++) square[i] = square_here(r, &r->items[i]);
    return gw_ranks_add_f64(r->comm, square, r->nitems, "looking at one micro-batch", r->dg);
}

/* The rest is exactly zero: what changes, changes by more than rounding. */
static bool differs(double a, double b) { return fabs(a - b) > 1e-9 * (fabs(a) + fabs(b)); }

static bool any_differs(const gw_verifier *r, const double *a, const double *b) {
    for (int64_t i = 0; i < r->nitems; i++)
        if (differs(a[i], b[i])) return true;
    return false;
}

/* The stage of an item's gradient, where this rank has it in its loop; else -1. */
static int64_t stage_here(const gw_verifier *r, const gw_verify_item *it) {
    const gw_graph *g = gw_exec_graph(r->layout.x);
    if (it->kind != GW_VERIFY_GRADIENT || it->in_layout->value == GW_NONE ||
        !in_loop(g, it->in_layout->value) || holders_of(it) > 1)
        return -1;
    return g->ops.items[g->values.items[it->in_layout->value].def].stage;
}

/* The lowest or highest stage among gradients that do, or do not, differ; -1: none. */
static gw_status find_stage(gw_verifier *r, const double *a, const double *b, bool differ,
                            bool lowest, int64_t *stage) {
    *stage = INT64_MIN;
    for (int64_t i = 0; i < r->nitems; i++) {
        int64_t s = stage_here(r, &r->items[i]);
        if (s < 0 || (a[i] == 0 && b[i] == 0) || differs(a[i], b[i]) != differ) continue;
        *stage = GW_MAX(*stage, lowest ? -s : s);
    }
    GW_TRY(gw_comm_max_i64(r->comm, stage, 1, "which stage", r->dg));
    *stage = *stage == INT64_MIN ? -1 : lowest ? -*stage : *stage;
    return GW_OK;
}

static void say(gw_verifier *r, const char *text) {
    for (int64_t i = 0; i < r->nitems; i++) {
        gw_verify_tensor *e = &r->entries[i];
        bool of_step =
            e->kind == GW_VERIFY_LOSS || e->kind == GW_VERIFY_NORM || e->kind == GW_VERIFY_GRADIENT;
        if (e->agrees || !of_step || (e->why[0] && strncmp(e->why, "x ", 2) != 0)) continue;
        snprintf(e->why, sizeof e->why, "%s", text);
    }
}

/* Micro-batch k's labels feel the tokens of others: of which, in which direction, from where? */
static gw_status name_micro(gw_verifier *r, int64_t k, const double *base, double *other) {
    int64_t n = r->setup.rf->train.accumulate, j = 0, stage = -1;
    char where[32] = "a stage", text[GW_VERIFY_TEXT];
    for (; j < n; j++) {
        if (j == k) continue;
        GW_TRY(run_probe(r, k, GW_VERIFY_ALTER_ONE, j, other));
        if (any_differs(r, base, other)) break;
    }
    if (j == n) return GW_OK;
    bool forward = differs(base[0], other[0]); /* item 0 is the loss */
    if (!forward) GW_TRY(find_stage(r, base, other, true, false, &stage));
    if (forward) {
        GW_TRY(run_probe(r, k, GW_VERIFY_ALTER_ONE, k, other));
        GW_TRY(find_stage(r, base, other, false, true, &stage));
    }
    if (stage >= 0) snprintf(where, sizeof where, "stage %d", (int)stage);
    if (forward)
        snprintf(text, sizeof text, "%s takes micro-batch %d's activations for micro-batch %d's",
                 where, (int)j + 1, (int)k + 1);
    else
        snprintf(text, sizeof text, "%s takes micro-batch %d's gradient for micro-batch %d's",
                 where, (int)k + 1, (int)j + 1);
    say(r, text);
    return GW_OK;
}

static gw_status explain_messages(gw_verifier *r) {
    int64_t n = r->setup.rf->train.accumulate, wants = 0;
    for (int64_t i = 0; gw_verify_is_root(r) && i < r->nitems; i++) {
        bool unsaid = r->entries[i].why[0] == 0;
        wants |= is_wrong(r, i, GW_VERIFY_LOSS) || (is_wrong(r, i, GW_VERIFY_GRADIENT) && unsaid);
    }
    GW_TRY(gw_comm_max_i64(r->comm, &wants, 1, "whether to look at micro-batches", r->dg));
    if (!wants || n < 2 || n > MOST_MICRO_BATCHES || r->own) return GW_OK;
    double *base = gw_mem_zalloc(sizeof *base * 2 * (size_t)r->nitems), *other = base + r->nitems;
    gw_status st = GW_OK;
    bool found = false;
    for (int64_t k = 0; st == GW_OK && k < n && !found; k++) {
        st = run_probe(r, k, GW_VERIFY_ALTER_NONE, 0, base);
        if (st == GW_OK) st = run_probe(r, k, GW_VERIFY_ALTER_REST, k, other);
        found = st == GW_OK && any_differs(r, base, other);
        if (found) st = name_micro(r, k, base, other);
    }
    gw_mem_free(base);
    return st;
}

/* ---- all of them ---- */

gw_status gw_verify_explain_stages(gw_verifier *r) {
    if (places(r) == 1) return GW_OK;
    GW_TRY(explain_tied(r));
    gw_status st = gw_verify_is_root(r) ? explain_norm(r) : GW_OK;
    GW_TRY(gw_exec_agree(r->comm, st, NULL, "looking at the norm", r->dg));
    return explain_messages(r);
}

void gw_verify_locate(const gw_verifier *r, char text[GW_VERIFY_TEXT]) {
    uint64_t bad = 0, all = 0;
    char ranks[64], stages[64] = "";
    const gw_schedule *s = r->setup.schedule;
    text[0] = 0;
    if (!s || places(r) > 64) return;
    for (int64_t i = 0; i < r->nitems; i++) {
        const gw_verify_item *it = &r->items[i];
        if (it->kind != GW_VERIFY_GRADIENT) continue;
        all |= it->holders;
        if (!r->entries[i].agrees && r->entries[i].step == 1) bad |= it->holders;
    }
    if (bad == 0 || bad == all) return;
    list_ranks(bad, ranks);
    size_t at = 0;
    for (int i = 0; i < s->stages && at < 40; i++)
        if (bad >> s->rank_of[i] & 1)
            at += (size_t)snprintf(stages + at, sizeof stages - at, "%s%d", at ? ", " : "", i);
    snprintf(text, GW_VERIFY_TEXT,
             "in step 1 only gradients of pipeline rank%s %.28s disagree (stages %.28s)",
             bad & (bad - 1) ? "s" : "", ranks, stages);
}
