// SPDX-License-Identifier: Apache-2.0
// Which algorithm, and what it costs: the pure half of collectives, read by the plan.
//
// A choice is a function of the collective and the machine alone, so that plan, simulator and every
// rank of a run agree on it. Each algorithm that can do the collective gets a time: measured, where
// a calibration file has this kind, algorithm and number of ranks (comm/calibration.h), otherwise
// by the formula in its file. The least time wins, and of equals the first in algorithms.def. A
// name in coll->algorithm is taken without comparing, if it can.
//
// Payload is the theory's figure, whatever the algorithm: what must leave a rank when nothing is
// wasted, in elements of the wire without scales:
//   reduce-scatter, all-gather, all-to-all   N - S, S the own share: (n-1)/n of the data
//   all-reduce                               twice that
//   broadcast                                N for all but the last rank, as in a chain
//   shift                                    N
#include <string.h>

#include "base/compiler.h"    /* GW_COUNT */
#include "comm/algo.h"        /* algorithms.def's descriptors */
#include "comm/calibration.h" /* gw_calibration_seconds */
#include "comm/wire.h"        /* gw_wire */

static const gw_algorithm *const algorithms[] = {
#define GW_ALGORITHM(name) &gw_algo_##name,
#include "comm/algorithms.def"
#undef GW_ALGORITHM
};

const gw_algorithm *gw_algorithm_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(algorithms) ? algorithms[i] : NULL;
}

const gw_algorithm *gw_algorithm_find(const char *name) {
    if (!name) return NULL;
    for (int i = 0; i < (int)GW_COUNT(algorithms); i++)
        if (strcmp(algorithms[i]->name, name) == 0) return algorithms[i];
    return NULL;
}

const char *gw_coll_kind_name(gw_coll_kind k) {
    switch (k) {
    case GW_COLL_ALL_REDUCE: return "all-reduce";
    case GW_COLL_REDUCE_SCATTER: return "reduce-scatter";
    case GW_COLL_ALL_GATHER: return "all-gather";
    case GW_COLL_BROADCAST: return "broadcast";
    case GW_COLL_ALL_TO_ALL: return "all-to-all";
    case GW_COLL_SHIFT: return "shift";
    case GW_COLL_KIND_COUNT: break;
    }
    return "?";
}

const char *gw_wire_name(gw_wire w) {
    static const char *const names[] = {
#define X(id, text) text,
        GW_WIRES(X)
#undef X
    };
    return (unsigned)w < GW_WIRE_COUNT ? names[w] : "?";
}

int64_t gw_coll_elems(const gw_coll *c) {
    int64_t sum = 0;
    for (int p = 0; p < c->nparts; p++) sum += c->parts[p].elems;
    return sum;
}

int64_t gw_coll_bytes(const gw_coll *c) { return gw_coll_elems(c) * gw_dtype_size(c->dtype); }

/* Rates of a middling server of 2020: what a plan assumes where nothing was measured. */
gw_coll_machine gw_coll_machine_local(int threads) {
    return (gw_coll_machine){
        .shared = true,
        .per_host = 0,
        .threads = threads,
        .latency_s = 0.5e-6,
        .bytes_per_s = 4e9,
        .copy_bytes_per_s = 8e9,
        .sum_bytes_per_s = 6e9,
    };
}

/* ---- choice ---- */

static bool forced(const gw_coll *c) { return c->algorithm && c->algorithm[0]; }

static gw_coll_candidate candidate(const gw_algorithm *a, const gw_coll *c,
                                   const gw_coll_machine *m) {
    gw_coll_candidate x = {.name = a->name};
    if (!(a->kinds & 1u << c->kind)) {
        x.why = "it does not do this kind of collective";
        return x;
    }
    if (!a->supports(c, m, &x.why)) return x;
    x.possible = true;
    x.moved = a->moved(c, 0);
    x.why = "by its formula";
    x.seconds = a->seconds(c, m);
    double measured = m->calibration ? gw_calibration_seconds(m->calibration, c, a->name) : -1.0;
    if (measured >= 0.0) {
        x.why = "as measured";
        x.seconds = measured;
    }
    if (forced(c) && strcmp(a->name, c->algorithm) == 0) x.why = "asked for by name";
    return x;
}

const char *gw_coll_choose(const gw_coll *c, const gw_coll_machine *m, gw_coll_candidate *all,
                           int n, int *count) {
    const char *best = NULL;
    double least = 0.0;
    int kept = 0;
    for (int i = 0; i < (int)GW_COUNT(algorithms); i++) {
        gw_coll_candidate x = candidate(algorithms[i], c, m);
        if (all && kept < n) all[kept++] = x;
        if (!x.possible || (forced(c) && strcmp(x.name, c->algorithm) != 0)) continue;
        if (!best || x.seconds < least) best = x.name, least = x.seconds;
    }
    if (count) *count = kept;
    return best;
}

static const gw_algorithm *chosen(const gw_coll *c, const gw_coll_machine *m) {
    const char *name = gw_coll_choose(c, m, NULL, 0, NULL);
    return name ? gw_algorithm_find(name) : NULL;
}

/* ---- cost ---- */

static int64_t payload(const gw_coll *c, int64_t rank) {
    int64_t n = c->size, total = gw_coll_elems(c), elems = 0;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE: elems = 2 * (total - gw_share_elems(c, n, rank)); break;
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALL_GATHER:
    case GW_COLL_ALL_TO_ALL: elems = total - gw_share_elems(c, n, rank); break;
    case GW_COLL_BROADCAST: elems = rank < n - 1 ? total : 0; break;
    case GW_COLL_SHIFT: elems = n > 1 ? total : 0; break;
    case GW_COLL_KIND_COUNT: break;
    }
    if (c->wire == GW_WIRE_INT8) return elems;
    if (c->wire == GW_WIRE_INT4) return (elems + 1) / 2;
    return gw_wire_bytes(c->wire, c->dtype, elems);
}

gw_coll_traffic gw_coll_traffic_of(const gw_coll *c, int64_t rank) {
    gw_coll_traffic t = {.payload = payload(c, rank)};
    gw_coll_machine local = gw_coll_machine_local(1);
    const gw_algorithm *a = forced(c) ? gw_algorithm_find(c->algorithm) : chosen(c, &local);
    if (a && a->kinds & 1u << c->kind) t.moved = a->moved(c, rank);
    return t;
}

int64_t gw_coll_scratch_bytes(const gw_coll *c, const gw_coll_machine *m) {
    const gw_algorithm *a = chosen(c, m);
    return a ? a->scratch(c, m) : 0;
}

double gw_coll_seconds(const gw_coll *c, const gw_coll_machine *m) {
    const gw_algorithm *a = chosen(c, m);
    return a ? candidate(a, c, m).seconds : 0.0;
}
