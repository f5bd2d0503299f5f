// SPDX-License-Identifier: Apache-2.0
// Small things between all ranks, for the host side: barrier, sums, a text from rank 0 to all.
//
// They stand on a transport's exchange and sync alone, so they are the same over shared memory and
// over MPI, and count as no collective of the program. Each one is marked like a collective, so a
// rank that does something else at that point is named. Values are gathered on every rank and
// summed there in the order of ranks: same bits everywhere, whatever came first.
//
// The gather doubles what each rank holds in every round (Bruck et al. 1997): ceil(log2 n) rounds.
// Blocks stay at their final place, so what is sent may wrap round the end; each round therefore is
// two exchanges, the second of which is mostly absent. A broadcast goes down a binomial tree.
#include <stdio.h>
#include <string.h>

#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/comm_impl.h"

static gw_status begin(gw_comm *c, const char *kind, int64_t n, const char *what, gw_diags *dg) {
    gw_comm_group *g = &c->groups[0];
    gw_coll_mark m = {.seq = ++g->seq};
    m.signature = gw_hash64(kind, strlen(kind), (uint64_t)n);
    m.signature = gw_hash64(what, strlen(what), m.signature);
    if (n)
        snprintf(m.text, sizeof m.text, "%s %lld of %.60s, over all ranks", kind, (long long)n,
                 what);
    else
        snprintf(m.text, sizeof m.text, "%s %.60s, over all ranks", kind, what);
    return c->t->ops->begin(c->t, &g->g, &m, dg);
}

gw_status gw_comm_barrier(gw_comm *c, const char *what, gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    GW_TRY(begin(c, "barrier", 0, what, dg));
    GW_TRY(c->t->ops->sync(c->t, g, dg));
    c->t->ops->end(c->t, g);
    return GW_OK;
}

/* ------------------------------------------------------------------------------ gather */

/* Blocks [first, first + count) modulo size; the part before (0) or after (1) the wrap. */
typedef struct run {
    int64_t first, count;
} run;

static run part_of(int first, int count, int size, int which) {
    int before = first + count > size ? size - first : count;
    return which == 0 ? (run){first, before} : (run){0, count - before};
}

static gw_status gather(gw_comm *c, char *out, int64_t n, gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    for (int have = 1; have < g->size; have *= 2) {
        int count = GW_MIN(have, g->size - have);
        int to = (g->me + g->size - have) % g->size, from = (g->me + have) % g->size;
        for (int which = 0; which < 2; which++) {
            run give = part_of(g->me, count, g->size, which);
            run take = part_of(from, count, g->size, which);
            if (give.count + take.count == 0) continue;
            GW_TRY(c->t->ops->exchange(c->t, g, give.count ? to : -1, out + give.first * n,
                                       give.count * n, take.count ? from : -1, out + take.first * n,
                                       take.count * n, dg));
        }
    }
    return GW_OK;
}

gw_status gw_comm_all_gather(gw_comm *c, const void *mine, int64_t n, void *out, const char *what,
                             gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    GW_TRY(begin(c, "host all-gather", n, what, dg));
    char *o = out;
    if (n && o + g->me * n != mine) memcpy(o + g->me * n, mine, (size_t)n);
    GW_TRY(gather(c, o, n, dg));
    c->t->ops->end(c->t, g);
    return GW_OK;
}

/* n values of every rank into c->host, rank by rank. */
static gw_status gather_values(gw_comm *c, const char *kind, const void *x, int n, const char *what,
                               gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    GW_ASSERT(n >= 0 && n <= GW_COMM_HOST_VALUES);
    GW_TRY(begin(c, kind, n, what, dg));
    if (n) memcpy(c->host + (int64_t)g->me * n, x, (size_t)n * 8);
    GW_TRY(gather(c, (char *)c->host, 8 * (int64_t)n, dg));
    c->t->ops->end(c->t, g);
    return GW_OK;
}

gw_status gw_comm_sum_f64(gw_comm *c, double *x, int n, const char *what, gw_diags *dg) {
    GW_TRY(gather_values(c, "host sum", x, n, what, dg));
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int r = 0; r < c->t->size; r++) {
            double v;
            memcpy(&v, &c->host[(int64_t)r * n + i], sizeof v);
            sum = r ? sum + v : v;
        }
        x[i] = sum;
    }
    return GW_OK;
}

gw_status gw_comm_max_i64(gw_comm *c, int64_t *x, int n, const char *what, gw_diags *dg) {
    GW_TRY(gather_values(c, "host maximum", x, n, what, dg));
    for (int i = 0; i < n; i++)
        for (int r = 0; r < c->t->size; r++) {
            int64_t v = (int64_t)c->host[(int64_t)r * n + i];
            if (v > x[i]) x[i] = v;
        }
    return GW_OK;
}

/* ------------------------------------------------------------------------------ broadcast */

gw_status gw_comm_broadcast(gw_comm *c, void *bytes, int64_t n, const char *what, gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    GW_TRY(begin(c, "host broadcast", n, what, dg));
    int low = 1; /* lowest set bit of me; for rank 0 the first power of two not below size */
    while (low < g->size && !(g->me & low)) low *= 2;
    if (g->me) GW_TRY(c->t->ops->exchange(c->t, g, -1, NULL, 0, g->me - low, bytes, n, dg));
    for (int d = low / 2; d >= 1; d /= 2)
        if (g->me + d < g->size)
            GW_TRY(c->t->ops->exchange(c->t, g, g->me + d, bytes, n, -1, NULL, 0, dg));
    c->t->ops->end(c->t, g);
    return GW_OK;
}

/* ------------------------------------------------------------------------------ sharing */

gw_status gw_comm_share(gw_comm *c, void *base, int64_t bytes, int fd, int *handle, gw_diags *dg) {
    const gw_group *g = &c->groups[0].g;
    *handle = -1;
    if (!c->t->one_sided) return GW_OK;
    GW_TRY(begin(c, "share region", 0, "memory", dg)); /* sizes may differ */
    GW_TRY(c->t->ops->share(c->t, base, bytes, fd, handle, dg));
    GW_TRY(c->t->ops->sync(c->t, g, dg));
    c->t->ops->end(c->t, g);
    return GW_OK;
}
