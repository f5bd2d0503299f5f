// SPDX-License-Identifier: Apache-2.0
// The search: enumerate, leave out what cannot be, read blocks, compile the rest best guess first.
//
// Every point of the space is looked at. One whose states alone exceed the memory is counted and
// forgotten; the others stand in a list. Then a block is read for each (tp, cp, ep, micro-batch)
// that occurs there, which gives each candidate a bound that holds and a guess that is near.
// Candidates are compiled and simulated in the order of their guesses, corrected by how far guesses
// of their kind were off so far; those that are expected not to fit come last. Whoever's bound is
// no better than the best found so far is left out when its turn comes: so if the list comes to its
// end the answer is the best of the whole space, however wrong the guesses were.
//
// A simulated step is monotone, so a layout that recomputes or offloads more is no faster than the
// same one that does less: what one was found to take is a bound for the other.
//
// Where time runs out first, what was not seen is counted, with the least bound among it: nothing
// unseen can be better than that. From the best found, its neighbours are compiled too; they
// explain it, and where one is better the search goes on from there.
#include "plan/search.h"

#include <math.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */

/* Parts of the time: reading blocks, the same where by then most of them are read, and the search
 * before neighbours are looked at. What is left unread has no bound but the chips' peak. */
static const double probing_part = 0.25, probing_most = 0.4, search_part = 0.6;
/* Beyond this part of the memory a guess is expected not to fit. */
static const double hopeful = 1.03;

/* How far guesses of a kind of layouts were off: sums of logarithms. */
typedef struct errors {
    double seconds, bytes, n;
} errors;

typedef struct place {
    int64_t at;
    int class;
    double guess;
} place;

typedef struct run {
    gw_search *s;
    gw_search_pool *pool;
    int64_t begin, end; /* nanoseconds */
    bool *asked;        /* [candidates]: with a worker, or done */
    bool *read;         /* [candidates]: its block has been read */
    gw_imap groups;
    GW_VEC(errors) errors;
    GW_VEC(place) order; /* of those not asked when it was made, best first */
    int64_t next;
    int64_t sorted_at; /* evaluations when it was made; -1: not yet */
} run;

static uint64_t key_of(const gw_search_layout *l) { return gw_hash64(l, sizeof *l, 1); }

int64_t gw_search_find(const gw_search *s, const gw_search_layout *l) {
    uint32_t at;
    if (!gw_imap_find(&s->index, key_of(l), &at)) return -1;
    return memcmp(&s->candidates.items[at].layout, l, sizeof *l) == 0 ? (int64_t)at : -1;
}

static int64_t at_part(const run *r, double part) {
    if (r->s->in.budget_s <= 0) return INT64_MAX;
    return r->begin + (int64_t)((double)(r->end - r->begin) * part);
}

static double seconds_since(int64_t begin) { return (double)(gw_clock_ns() - begin) / 1e9; }

/* ---- the list ---- */

static bool by_memory(const gw_search *s) {
    return s->in.facts.memory_bytes > 0 && s->in.objective != GW_SEARCH_MEMORY && !s->in.all;
}

static bool list(void *user, const gw_search_layout *l) {
    gw_search *s = user;
    s->counts.enumerated++;
    if (by_memory(s) && gw_search_bound_bytes(&s->in.facts, l) > s->in.facts.memory_bytes) {
        s->counts.by_memory++;
        return true;
    }
    gw_search_candidate c = {.layout = *l, .outcome = -1};
    gw_imap_put(&s->index, key_of(l), (uint32_t)s->candidates.count);
    gw_vec_push(&s->candidates, c);
    return s->candidates.count < UINT32_MAX;
}

/* ---- blocks ---- */

typedef struct probe {
    gw_search_layout layout;
    double first; /* smaller: read earlier */
} probe;

/* Few cuts first, and small micro-batches, with all cuts of experts: what is read last may not be
 * read at all. */
static int compare_probes(const void *a, const void *b) {
    double x = ((const probe *)a)->first, y = ((const probe *)b)->first;
    return (x > y) - (x < y);
}

static int64_t list_probes(gw_search *s, probe **out) {
    GW_VEC(probe) all = {0};
    for (int64_t i = 0; i < s->candidates.count; i++) {
        const gw_search_layout *l = &s->candidates.items[i].layout;
        uint64_t key = gw_search_block_key(l);
        uint32_t at;
        if (gw_imap_find(&s->block_index, key, &at)) continue;
        gw_imap_put(&s->block_index, key, (uint32_t)all.count);
        probe p = {.layout = *l};
        for (int x = 0; x < GW_SEARCH_LEVERS; x++)
            if (x == GW_SEARCH_TP || x == GW_SEARCH_CP || x == GW_SEARCH_EP || x == GW_SEARCH_MICRO)
                p.first += log2((double)l->at[x]) * (x == GW_SEARCH_CP   ? 2
                                                     : x == GW_SEARCH_EP ? 0.05
                                                                         : 1);
        gw_vec_push(&all, p);
    }
    *out = all.items;
    return all.count;
}

/* Reads blocks until a part of the time is over; what is left unread stays refused without a word.
 */
static void read_blocks(run *r) {
    gw_search *s = r->s;
    probe *probes;
    int64_t n = list_probes(s, &probes), deadline = at_part(r, probing_part), sent = 0;
    int64_t later = at_part(r, probing_most);
    for (int64_t i = 0; i < n; i++) {
        gw_search_block none = {.refused = true};
        gw_vec_push(&s->blocks, none);
    }
    if (n > 0) qsort(probes, (size_t)n, sizeof *probes, compare_probes);
    while (sent < n || gw_search_pool_busy(r->pool) > 0) {
        while (sent < n && gw_search_pool_idle(r->pool) > 0 && gw_clock_ns() < deadline)
            gw_search_pool_send(r->pool, sent, true, &probes[sent].layout), sent++;
        gw_search_answer a;
        gw_search_pool_wait(r->pool, GW_MAX(deadline, gw_clock_ns() + 1000000000), &a);
        if (a.id < 0) break;
        uint32_t at = 0;
        (void)gw_imap_find(&s->block_index, gw_search_block_key(&probes[a.id].layout), &at);
        s->blocks.items[at] = a.block;
        s->counts.probes++;
        if (s->counts.probes > n / 2) deadline = later;
        if (gw_clock_ns() >= deadline && gw_search_pool_busy(r->pool) == 0) break;
    }
    gw_vec_free_(probes);
}

static void bound_all(run *r) {
    gw_search *s = r->s;
    gw_search_wires w = {0};
    for (int64_t i = 0; i < s->candidates.count; i++) {
        gw_search_candidate *c = &s->candidates.items[i];
        uint32_t at = 0;
        bool has = gw_imap_find(&s->block_index, gw_search_block_key(&c->layout), &at);
        const gw_search_block *b = has && s->blocks.count > at ? &s->blocks.items[at] : NULL;
        gw_search_bound(&s->in, b, &w, c);
        r->read[i] = c->known;
    }
}

/* ---- order ---- */

static double score_of(const gw_search_input *in, const gw_search_layout *l, double seconds,
                       int64_t bytes) {
    switch (in->objective) {
    case GW_SEARCH_TIME: return seconds;
    case GW_SEARCH_COST: return seconds * l->world;
    case GW_SEARCH_MEMORY: return (double)bytes;
    }
    return seconds;
}

double gw_search_score(const gw_search_input *in, const gw_search_layout *l,
                       const gw_search_outcome *o) {
    return score_of(in, l, in->machine ? o->step_s : o->effort, o->total_bytes);
}

bool gw_search_fits(const gw_search_input *in, const gw_search_outcome *o) {
    if (o->verdict != GW_SEARCH_RUNS) return false;
    return in->facts.memory_bytes <= 0 || o->total_bytes <= in->facts.memory_bytes;
}

static double bound_score(const gw_search_input *in, const gw_search_candidate *c) {
    return score_of(in, &c->layout, c->bound_s, c->bound_bytes);
}

/* Layouts that are alike in what guesses are wrong about: a pipeline with this schedule and zero,
 * and closer, with these degrees of tp and pp. */
static uint64_t kind_of(const gw_search_layout *l, bool close) {
    int32_t kind[5] = {l->at[GW_SEARCH_PP] > 1, l->at[GW_SEARCH_SCHEDULE], l->at[GW_SEARCH_ZERO],
                       close ? l->at[GW_SEARCH_TP] : 0, close ? l->at[GW_SEARCH_PP] : 0};
    return gw_hash64(kind, sizeof kind, close);
}

static errors errors_of(const run *r, const gw_search_layout *l, bool close) {
    uint32_t at;
    if (!gw_imap_find(&r->groups, kind_of(l, close), &at)) return (errors){0};
    return r->errors.items[at];
}

/* The mean over those near, with the mean of those alike as one of them. */
static errors expected(const run *r, const gw_search_layout *l) {
    errors far = errors_of(r, l, false), near = errors_of(r, l, true);
    double seconds = far.seconds / (far.n + 1), bytes = far.bytes / (far.n + 1);
    return (errors){.seconds = (near.seconds + seconds) / (near.n + 1),
                    .bytes = (near.bytes + bytes) / (near.n + 1)};
}

static void learn(run *r, const gw_search_candidate *c, const gw_search_outcome *o) {
    if (!(c->guess_s > 0) || c->guess_bytes <= 0 || !r->s->in.machine) return;
    for (int close = 0; close < 2; close++) {
        uint32_t at = (uint32_t)r->errors.count;
        uint64_t key = kind_of(&c->layout, close);
        if (!gw_imap_find(&r->groups, key, &at)) {
            errors none = {0};
            gw_imap_put(&r->groups, key, at);
            gw_vec_push(&r->errors, none);
        }
        errors *e = &r->errors.items[at];
        e->seconds += log(o->step_s / c->guess_s);
        e->bytes += log((double)o->total_bytes / (double)c->guess_bytes);
        e->n += 1;
    }
}

/* Expected to fit; the same with a budget, which is found by compiling many times, so that
 * neighbours of the best are asked first; perhaps not fitting; of which nothing is known. */
static int class_of(const run *r, int64_t at, double bytes) {
    const gw_search_layout *l = &r->s->candidates.items[at].layout;
    double room = (double)r->s->in.facts.memory_bytes * hopeful;
    if (!r->read[at]) return 3;
    if (room > 0 && bytes > room) return 2;
    return l->at[GW_SEARCH_RECOMPUTE] == GW_SEARCH_FILL ? 1 : 0;
}

static place place_of(const run *r, int64_t at) {
    const gw_search_candidate *c = &r->s->candidates.items[at];
    errors e = expected(r, &c->layout);
    double bytes = (double)c->guess_bytes * exp(e.bytes);
    place p = {.at = at, .class = class_of(r, at, bytes)};
    p.guess = score_of(&r->s->in, &c->layout, c->guess_s * exp(e.seconds), (int64_t)bytes);
    if (r->s->in.first_fit) p.guess = bytes;
    return p;
}

static int compare_places(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->class != y->class) return x->class - y->class;
    if (x->guess < y->guess || x->guess > y->guess) return x->guess < y->guess ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* ---- evaluating ---- */

/* Recomputes and offloads at least as much as `less`, and is equal otherwise. */
static bool does_more(const gw_search_layout *less, const gw_search_layout *more) {
    int32_t p = less->at[GW_SEARCH_RECOMPUTE], q = more->at[GW_SEARCH_RECOMPUTE];
    gw_search_layout same = *more;
    same.at[GW_SEARCH_RECOMPUTE] = p;
    same.at[GW_SEARCH_OFFLOAD] = less->at[GW_SEARCH_OFFLOAD];
    bool repeats =
        p == q || p == GW_SEARCH_NONE || (p == GW_SEARCH_SELECTIVE && q == GW_SEARCH_FULL);
    return memcmp(less, &same, sizeof same) == 0 && repeats &&
           less->at[GW_SEARCH_OFFLOAD] <= more->at[GW_SEARCH_OFFLOAD];
}

static void raise_bounds(gw_search *s, const gw_search_layout *l, double seconds) {
    for (int32_t p = 0; p < GW_SEARCH_POLICIES; p++)
        for (int32_t o = 0; o < GW_SEARCH_OFFLOADS; o++) {
            gw_search_layout more = *l;
            more.at[GW_SEARCH_RECOMPUTE] = p;
            more.at[GW_SEARCH_OFFLOAD] = o;
            if (!does_more(l, &more)) continue;
            int64_t at = gw_search_find(s, &more);
            if (at < 0) continue;
            gw_search_candidate *c = &s->candidates.items[at];
            c->bound_s = fmax(c->bound_s, seconds * (1 - 1e-9));
        }
}

static double best_score(const gw_search *s) {
    if (s->best < 0) return (double)INFINITY;
    const gw_search_candidate *c = &s->candidates.items[s->best];
    return gw_search_score(&s->in, &c->layout, &s->outcomes.items[c->outcome]);
}

static bool beats(const gw_search *s, int64_t a, int64_t b) {
    const gw_search_candidate *x = &s->candidates.items[a], *y = &s->candidates.items[b];
    const gw_search_outcome *o = &s->outcomes.items[x->outcome],
                            *q = &s->outcomes.items[y->outcome];
    double p = gw_search_score(&s->in, &x->layout, o), t = gw_search_score(&s->in, &y->layout, q);
    if (p < t || p > t) return p < t;
    if (o->step_s < q->step_s || o->step_s > q->step_s) return o->step_s < q->step_s;
    if (o->total_bytes != q->total_bytes) return o->total_bytes < q->total_bytes;
    return a < b;
}

static void note(run *r, int64_t at, const gw_search_outcome *o) {
    gw_search *s = r->s;
    gw_search_candidate *c = &s->candidates.items[at];
    c->outcome = (int32_t)s->outcomes.count;
    gw_vec_push(&s->outcomes, *o);
    if (o->verdict == GW_SEARCH_REFUSED) s->counts.refused++;
    if (o->verdict == GW_SEARCH_BROKE) s->counts.broke++;
    if (o->verdict != GW_SEARCH_RUNS) return;
    s->counts.evaluated++;
    learn(r, c, o);
    if (s->in.machine) raise_bounds(s, &c->layout, o->step_s);
    bool counts = s->in.objective == GW_SEARCH_MEMORY || gw_search_fits(&s->in, o);
    if (!counts) return;
    if (s->best < 0) {
        s->counts.first_at = s->counts.evaluated;
        s->counts.first_score = gw_search_score(&s->in, &c->layout, o);
    }
    if (s->best >= 0 && !beats(s, at, s->best)) return;
    s->best = at;
    s->counts.best_at = s->counts.evaluated;
}

static bool worth_it(const run *r, int64_t at) {
    const gw_search *s = r->s;
    const gw_search_candidate *c = &s->candidates.items[at];
    if (by_memory(s) && c->bound_bytes > s->in.facts.memory_bytes) return false;
    return s->in.all || bound_score(&s->in, c) < best_score(s);
}

static bool enough(const run *r) {
    const gw_search *s = r->s;
    if (s->in.first_fit && s->best >= 0 &&
        gw_search_fits(&s->in, &s->outcomes.items[s->candidates.items[s->best].outcome]))
        return true;
    return s->in.most_evaluations > 0 &&
           s->counts.evaluated + gw_search_pool_busy(r->pool) >= s->in.most_evaluations;
}

static void send(run *r, int64_t at) {
    r->asked[at] = true;
    gw_search_pool_send(r->pool, at, false, &r->s->candidates.items[at].layout);
}

/* Waits for one answer. False: there was none until `deadline`. */
static bool take(run *r, int64_t deadline) {
    gw_search_answer a;
    gw_search_pool_wait(r->pool, deadline, &a);
    if (a.id < 0) return false;
    if (a.probe) return true; /* of a block that was not waited for any longer */
    note(r, a.id, &a.outcome);
    gw_search *s = r->s;
    s->counts.seconds = seconds_since(r->begin);
    if (s->in.progress) s->in.progress(s->in.progress_user, &s->counts, best_score(s));
    return true;
}

/* So many are put in order anew when guesses are corrected; whoever was behind them stays there. */
enum { REORDERED = 1 << 17 };

static void put_again_in_order(run *r) {
    int64_t n = GW_MIN(r->order.count - r->next, (int64_t)REORDERED);
    place *p = r->order.items + r->next;
    for (int64_t i = 0; i < n; i++) p[i] = place_of(r, p[i].at);
    if (n > 0) qsort(p, (size_t)n, sizeof *p, compare_places);
    r->sorted_at = r->s->counts.evaluated;
}

/* Puts what is still worth it in order. */
static void put_in_order(run *r, const int64_t *some, int64_t n) {
    r->order.count = r->next = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = some ? some[i] : i;
        if (r->asked[at] || !worth_it(r, at)) continue;
        place p = place_of(r, at);
        gw_vec_push(&r->order, p);
    }
    if (r->order.count > 0)
        qsort(r->order.items, (size_t)r->order.count, sizeof(place), compare_places);
    r->sorted_at = r->s->counts.evaluated;
}

/* The next to be asked; -1: none is worth it. The order is made anew while guesses are corrected.
 */
static int64_t pick(run *r, const int64_t *some, int64_t n) {
    int64_t since = r->s->counts.evaluated - r->sorted_at;
    if (r->sorted_at < 0)
        put_in_order(r, some, n);
    else if (since > 2 + r->sorted_at / 8)
        put_again_in_order(r);
    while (r->next < r->order.count) {
        int64_t at = r->order.items[r->next++].at;
        if (!r->asked[at] && worth_it(r, at)) return at;
    }
    return -1;
}

/* Asks until nothing is worth it or `deadline`. */
static void ask(run *r, const int64_t *some, int64_t n, int64_t deadline) {
    r->sorted_at = -1;
    for (;;) {
        while (gw_search_pool_idle(r->pool) > 0 && gw_clock_ns() < deadline && !enough(r)) {
            int64_t at = pick(r, some, n);
            if (at < 0) break;
            send(r, at);
        }
        if (gw_search_pool_busy(r->pool) == 0 || !take(r, deadline)) return;
    }
}

/* Neighbours of the best that may be better. Says whether one was. */
static bool ask_neighbours(run *r) {
    gw_search_near near[GW_SEARCH_NEAR];
    int64_t some[GW_SEARCH_NEAR], best = r->s->best, count = 0;
    int n = gw_search_neighbours(r->s, near);
    for (int i = 0; i < n; i++)
        if (near[i].candidate >= 0) some[count++] = near[i].candidate;
    ask(r, some, count, at_part(r, 0.9));
    return r->s->best != best;
}

/* One that time did not suffice for: what is certain of it, and what is expected. */
static void leave(run *r, int64_t at, double bound, double best) {
    gw_search *s = r->s;
    s->counts.unseen++;
    s->floor_score = fmin(s->floor_score, bound);
    if (!r->read[at]) {
        s->counts.unread++;
        return;
    }
    s->floor_read = fmin(s->floor_read, bound);
    if (!s->in.machine && s->in.objective != GW_SEARCH_MEMORY) return; /* no guess of effort */
    place p = place_of(r, at);
    if (p.class > 1 || !(p.guess < best)) return;
    s->counts.promising++;
    if (s->promising >= 0 && p.guess >= s->expected) return;
    s->promising = at;
    s->expected = p.guess;
}

static void conclude(run *r) {
    gw_search *s = r->s;
    double best = best_score(s);
    s->floor_score = s->floor_read = (double)INFINITY;
    s->promising = -1;
    for (int64_t i = 0; i < s->candidates.count; i++) {
        const gw_search_candidate *c = &s->candidates.items[i];
        if (c->outcome >= 0) continue;
        double b = bound_score(&s->in, c);
        if (by_memory(s) && c->bound_bytes > s->in.facts.memory_bytes) {
            s->counts.by_memory++;
            continue;
        }
        if (b >= best) {
            s->counts.by_time++;
            continue;
        }
        leave(r, i, b, best);
    }
    s->exact = s->counts.unseen == 0 && s->counts.broke == 0;
    s->counts.seconds = seconds_since(r->begin);
}

void gw_search_run(gw_search *s, const gw_search_input *in) {
    memset(s, 0, sizeof *s);
    s->in = *in;
    s->best = -1;
    run r = {.s = s, .begin = gw_clock_ns()};
    r.end = in->budget_s > 0 ? r.begin + (int64_t)(in->budget_s * 1e9) : INT64_MAX;
    gw_search_enumerate(&in->space, list, s);
    size_t n = (size_t)GW_MAX(s->candidates.count, INT64_C(1));
    r.asked = gw_mem_zalloc(n * sizeof *r.asked);
    r.read = gw_mem_zalloc(n * sizeof *r.read);
    r.pool = gw_search_pool_new(&in->host, in->workers);
    int64_t begun = gw_clock_ns();
    read_blocks(&r);
    s->counts.probing_s = seconds_since(begun);
    bound_all(&r);
    bool explains = in->explains && !in->all && !in->first_fit;
    ask(&r, NULL, s->candidates.count, at_part(&r, explains ? search_part : 1));
    for (int i = 0; explains && i < 16 && s->best >= 0 && ask_neighbours(&r); i++) {}
    if (explains) ask(&r, NULL, s->candidates.count, at_part(&r, 1));
    gw_search_pool_free(r.pool);
    conclude(&r);
    gw_imap_release(&r.groups);
    gw_vec_release(&r.errors);
    gw_vec_release(&r.order);
    gw_mem_free(r.asked);
    gw_mem_free(r.read);
}

void gw_search_release(gw_search *s) {
    gw_vec_release(&s->candidates);
    gw_vec_release(&s->outcomes);
    gw_vec_release(&s->blocks);
    gw_imap_release(&s->index);
    gw_imap_release(&s->block_index);
    memset(s, 0, sizeof *s);
}
