// SPDX-License-Identifier: Apache-2.0
// Merging of long pieces in n log n, most often in n.
//
// The rule is: the pair of lowest rank first, of equal ranks the leftmost. A heap of all pairs does
// that, at a cache miss or two a level. Here pairs wait in one bucket for each rank, in the order
// in which they came up, and only ranks that some pair has stand in a heap. A bucket is opened when
// its rank is the lowest, and sorted by position then if it is not in order already. A merge makes
// pairs of other ranks: higher ones, nearly always, as a vocabulary learns a token before what the
// token is a part of; those go to their buckets. The few of the opened rank or below go to a heap
// of pairs ("late"), which is looked at before each step, so that the order is exact whatever the
// vocabulary is.
//
// Pieces that are a few runs of one unit each ("====", indentation, a megabyte of "x") are merged a
// run at a time: while no pair that comes of it has a rank as low, all pairs of a run are merged
// from the left in one step, which leaves half as many of the new unit, and one of the old if their
// number was odd. Should a vocabulary make a pair of lower rank, the piece is done the general way.
//
// A position holds the merge of its pair as it is now. What waits may be out of date: it counts if
// its position still has a pair of that rank.
#include "data/bpe.h" /* gw_bpe_queue */

#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_PREFETCH */

enum { AHEAD = 12 };

typedef struct place {
    int32_t id; /* -1 = merged away */
    int32_t prev, next;
    gw_bpe_merge merge; /* of this and the next */
} place;

typedef struct waiting {
    int32_t at, next; /* next of the bucket, -1 = last */
} waiting;

typedef struct bucket {
    int32_t first, last; /* first -1 = empty */
    bool mixed;          /* not in order of position */
} bucket;

struct gw_bpe_queue {
    place *places;
    int64_t places_cap;
    bucket *buckets;
    uint32_t nbuckets;
    GW_VEC(waiting) waiting;
    GW_VEC(uint32_t) ranks; /* heap of ranks whose bucket is not empty */
    GW_VEC(uint64_t) late;  /* heap of rank << 32 | position */
    GW_VEC(uint32_t) open, spare;
    uint32_t floor; /* the rank of the opened bucket */
    bool opened;
    int64_t ops;
};

gw_bpe_queue *gw_bpe_queue_new(void) { return gw_mem_zalloc(sizeof(gw_bpe_queue)); }

void gw_bpe_queue_free(gw_bpe_queue *q) {
    if (!q) return;
    gw_mem_free(q->places);
    gw_mem_free(q->buckets);
    gw_vec_release(&q->waiting);
    gw_vec_release(&q->ranks);
    gw_vec_release(&q->late);
    gw_vec_release(&q->open);
    gw_vec_release(&q->spare);
    gw_mem_free(q);
}

int64_t gw_bpe_queue_bytes(const gw_bpe_queue *q) {
    return (int64_t)sizeof *q + q->places_cap * (int64_t)sizeof *q->places +
           (int64_t)q->nbuckets * (int64_t)sizeof *q->buckets +
           q->waiting.cap * (int64_t)sizeof(waiting) + (q->ranks.cap + q->open.cap) * 4 +
           q->spare.cap * 4 + q->late.cap * 8;
}

/* ---- heaps --------------------------------------------------------------------------------------
 */

static void push_rank(gw_bpe_queue *q, uint32_t rank) {
    gw_vec_push(&q->ranks, rank);
    int64_t i = q->ranks.count - 1;
    for (; i > 0 && q->ranks.items[(i - 1) / 2] > rank; i = (i - 1) / 2, q->ops++)
        q->ranks.items[i] = q->ranks.items[(i - 1) / 2];
    q->ranks.items[i] = rank;
}

static uint32_t pop_rank(gw_bpe_queue *q) {
    uint32_t *h = q->ranks.items, top = h[0], last = h[--q->ranks.count];
    int64_t i = 0, c, n = q->ranks.count;
    for (; (c = 2 * i + 1) < n; i = c, q->ops++) {
        if (c + 1 < n && h[c + 1] < h[c]) c++;
        if (h[c] >= last) break;
        h[i] = h[c];
    }
    h[i] = last;
    return top;
}

static void push_late(gw_bpe_queue *q, uint64_t key) {
    gw_vec_push(&q->late, key);
    int64_t i = q->late.count - 1;
    for (; i > 0 && q->late.items[(i - 1) / 2] > key; i = (i - 1) / 2, q->ops++)
        q->late.items[i] = q->late.items[(i - 1) / 2];
    q->late.items[i] = key;
}

static uint64_t pop_late(gw_bpe_queue *q) {
    uint64_t *h = q->late.items, top = h[0], last = h[--q->late.count];
    int64_t i = 0, c, n = q->late.count;
    for (; (c = 2 * i + 1) < n; i = c, q->ops++) {
        if (c + 1 < n && h[c + 1] < h[c]) c++;
        if (h[c] >= last) break;
        h[i] = h[c];
    }
    h[i] = last;
    return top;
}

/* ---- buckets ------------------------------------------------------------------------------------
 */

static void wait_for(gw_bpe_queue *q, int32_t at, uint32_t rank) {
    if (q->opened && rank <= q->floor) {
        push_late(q, (uint64_t)rank << 32 | (uint32_t)at);
        return;
    }
    bucket *b = &q->buckets[rank];
    int32_t w = (int32_t)q->waiting.count;
    gw_vec_push(&q->waiting, ((waiting){at, -1}));
    if (b->first < 0) {
        *b = (bucket){w, w, false};
        push_rank(q, rank);
        return;
    }
    b->mixed |= q->waiting.items[b->last].at > at;
    q->waiting.items[b->last].next = w;
    b->last = w;
}

/* Sorts the opened positions: by eleven bits at a time, or by insertion where they are few. */
static void sort_open(gw_bpe_queue *q) {
    int64_t n = q->open.count;
    uint32_t *a = q->open.items;
    q->ops += n;
    if (n <= 48) {
        for (int64_t i = 1; i < n; i++) {
            uint32_t x = a[i];
            int64_t k = i;
            for (; k > 0 && a[k - 1] > x; k--) a[k] = a[k - 1];
            a[k] = x;
        }
        return;
    }
    while (q->spare.cap < n)
        q->spare.items = gw_vec_grow_(q->spare.items, &q->spare.cap, sizeof *q->spare.items);
    uint32_t *b = q->spare.items, *from = a, *to = b;
    for (int shift = 0; shift < 33; shift += 11) {
        uint32_t start[2049] = {0};
        for (int64_t i = 0; i < n; i++) start[(from[i] >> shift & 2047) + 1]++;
        for (int i = 0; i < 2048; i++) start[i + 1] += start[i];
        for (int64_t i = 0; i < n; i++) to[start[from[i] >> shift & 2047]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(a, b, (size_t)n * sizeof *a); /* three passes end in b */
}

static void open_bucket(gw_bpe_queue *q) {
    q->floor = pop_rank(q);
    q->opened = true;
    bucket *b = &q->buckets[q->floor];
    q->open.count = 0;
    for (int32_t w = b->first; w >= 0; w = q->waiting.items[w].next)
        gw_vec_push(&q->open, (uint32_t)q->waiting.items[w].at);
    if (b->mixed) sort_open(q);
    *b = (bucket){-1, -1, false};
}

/* ---- merging ------------------------------------------------------------------------------------
 */

static void look_at(const gw_bpe *m, gw_bpe_queue *q, int32_t i) {
    if (i < 0) return;
    place *p = &q->places[i];
    p->merge.rank = GW_BPE_NO_RANK;
    if (p->next < 0) return;
    p->merge = gw_bpe_find(m, p->id, q->places[p->next].id);
    q->ops++;
    if (p->merge.rank != GW_BPE_NO_RANK) wait_for(q, i, p->merge.rank);
}

static void merge_at(const gw_bpe *m, gw_bpe_queue *q, int32_t i, uint32_t rank) {
    place *y = q->places, *p = &y[i];
    q->ops++;
    if (p->id < 0 || p->merge.rank != rank) return;
    place *gone = &y[p->next];
    p->id = p->merge.id;
    p->next = gone->next;
    gone->id = -1;
    if (p->next >= 0) y[p->next].prev = i;
    look_at(m, q, p->prev);
    look_at(m, q, i);
}

static void prepare(const gw_bpe *m, gw_bpe_queue *q, const int32_t *units, int64_t n) {
    if (n > q->places_cap) {
        q->places_cap = n + n / 4;
        q->places = gw_mem_realloc(q->places, (size_t)q->places_cap * sizeof *q->places);
    }
    if (m->nranks > q->nbuckets) {
        q->buckets = gw_mem_realloc(q->buckets, m->nranks * sizeof *q->buckets);
        for (uint32_t r = q->nbuckets; r < m->nranks; r++) q->buckets[r] = (bucket){-1, -1, false};
        q->nbuckets = m->nranks;
    }
    q->waiting.count = q->ranks.count = q->late.count = 0;
    q->opened = false;
    for (int64_t i = 0; i < n; i++)
        q->places[i] = (place){
            .id = units[i], .prev = (int32_t)(i - 1), .next = i + 1 < n ? (int32_t)(i + 1) : -1};
    for (int64_t i = 0; i < n; i++) look_at(m, q, (int32_t)i);
}

/* ---- runs ---------------------------------------------------------------------------------------
 */

enum { FIRST_RUNS = 8, MOST_RUNS = 96 };

typedef struct run {
    int32_t id;
    int64_t count;
} run;

typedef struct runs {
    run items[MOST_RUNS];
    int n;
} runs;

static bool find_runs(const int32_t *units, int64_t n, runs *r) {
    r->n = 0;
    for (int64_t i = 0; i < n; i++) {
        if (r->n && r->items[r->n - 1].id == units[i]) {
            r->items[r->n - 1].count++;
            continue;
        }
        if (r->n == FIRST_RUNS) return false;
        r->items[r->n++] = (run){units[i], 1};
    }
    return true;
}

/* Puts `with` (k runs, empty ones left out) in place of runs [at, at + gone), and joins equal
 * neighbours. */
static bool replace_runs(runs *r, int at, int gone, const run *with, int k) {
    runs out = {.n = 0};
    for (int i = 0; i < r->n + k; i++) {
        run x = i < at ? r->items[i] : i < at + k ? with[i - at] : (run){0, 0};
        if (i >= at + k) {
            if (i - k + gone >= r->n) break;
            x = r->items[i - k + gone];
        }
        if (x.count == 0) continue;
        if (out.n && out.items[out.n - 1].id == x.id)
            out.items[out.n - 1].count += x.count;
        else if (out.n == MOST_RUNS)
            return false;
        else
            out.items[out.n++] = x;
    }
    *r = out;
    return true;
}

/* Merges the pairs within run i. False if a pair of rank as low would come up on the way. */
static bool merge_within(const gw_bpe *m, runs *r, int i, gw_bpe_merge x) {
    run a = r->items[i];
    if (gw_bpe_find(m, x.id, x.id).rank <= x.rank || gw_bpe_find(m, x.id, a.id).rank <= x.rank ||
        (i > 0 && gw_bpe_find(m, r->items[i - 1].id, x.id).rank <= x.rank) ||
        (i + 1 < r->n && gw_bpe_find(m, x.id, r->items[i + 1].id).rank <= x.rank))
        return false;
    run with[2] = {{x.id, a.count / 2}, {a.id, a.count % 2}};
    return replace_runs(r, i, 1, with, 2);
}

/* Merges the last unit of run i with the first of the next. */
static bool merge_between(runs *r, int i, gw_bpe_merge x) {
    run a = r->items[i], b = r->items[i + 1];
    run with[3] = {{a.id, a.count - 1}, {x.id, 1}, {b.id, b.count - 1}};
    return replace_runs(r, i, 2, with, 3);
}

int64_t gw_bpe_merge_runs(const gw_bpe *m, int32_t *units, int64_t n, int64_t *ops) {
    runs r;
    if (!find_runs(units, n, &r)) return -1;
    *ops += n;
    for (;;) {
        gw_bpe_merge best = {GW_BPE_NO_RANK, -1};
        int at = 0;
        bool within = false;
        for (int i = 0; i < r.n; i++, *ops += 2) {
            gw_bpe_merge x = {GW_BPE_NO_RANK, -1}, y = x;
            if (r.items[i].count > 1) x = gw_bpe_find(m, r.items[i].id, r.items[i].id);
            if (i + 1 < r.n) y = gw_bpe_find(m, r.items[i].id, r.items[i + 1].id);
            bool first = x.rank <= y.rank;
            gw_bpe_merge low = first ? x : y;
            if (low.rank >= best.rank) continue;
            best = low;
            at = i;
            within = first;
        }
        if (best.rank == GW_BPE_NO_RANK) break;
        if (!(within ? merge_within(m, &r, at, best) : merge_between(&r, at, best))) return -1;
    }
    int64_t left = 0;
    for (int i = 0; i < r.n; i++)
        for (int64_t k = 0; k < r.items[i].count; k++) units[left++] = r.items[i].id;
    return left;
}

int64_t gw_bpe_queue_merge(const gw_bpe *m, gw_bpe_queue *q, int32_t *units, int64_t n,
                           int64_t *ops) {
    q->ops = 0;
    prepare(m, q, units, n);
    while (q->ranks.count > 0 || q->late.count > 0) {
        if (q->late.count > 0) {
            uint64_t key = pop_late(q);
            merge_at(m, q, (int32_t)(uint32_t)key, (uint32_t)(key >> 32));
            continue;
        }
        open_bucket(q);
        for (int64_t k = 0; k < q->open.count; k++) {
            uint64_t key = (uint64_t)q->floor << 32 | q->open.items[k];
            while (q->late.count > 0 && q->late.items[0] < key) {
                uint64_t first = pop_late(q);
                merge_at(m, q, (int32_t)(uint32_t)first, (uint32_t)(first >> 32));
            }
            if (k + AHEAD < q->open.count) GW_PREFETCH(&q->places[q->open.items[k + AHEAD]]);
            merge_at(m, q, (int32_t)q->open.items[k], q->floor);
        }
    }
    int64_t left = 0;
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = q->places[i].next) units[left++] = q->places[i].id;
    *ops += q->ops;
    return left;
}
