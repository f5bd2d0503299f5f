// SPDX-License-Identifier: Apache-2.0
// Timing collectives (collbench.h), as the public all-reduce benchmarks do.
//
// A sample is the mean over as many runs as fit its share of the time, measured on every rank from
// one barrier on; the slowest rank's counts. Medians of samples are reported, with the distance of
// the quartiles, so that a reader sees how much of a figure is the machine's mood. Buffers are one
// shared region per rank, touched before; they hold zeros while time is taken, so that an
// all-reduce in place does not run off to infinity.
//
// Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there): algorithm bandwidth is bytes over
// time, bus bandwidth is that times the share of the data which every link must carry, so it can be
// held against the rate of memory or wire whatever the number of ranks.
#include "cli/collbench.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"     /* gw_clock_ns */
#include "base/num.h"       /* gw_bf16_from_f32 */
#include "base/str.h"       /* gw_fmt_bytes */
#include "comm/algorithm.h" /* gw_algorithm_at */
#include "comm/parts.h"     /* gw_cut_flat, gw_dtype_size */
#include "run/exec_comm.h"  /* gw_exec_agree */
#include "run/memory.h"     /* gw_memory_available */

static int64_t align(int64_t n) {
    return n > INT64_MAX - 4095 ? INT64_MAX : (n + 4095) & ~(int64_t)4095;
}

/* From one buffer to the next: an odd number of MiB, so that the same places of both never differ
 * by a multiple of 2^28 bytes, which AMD's first-level caches cannot tell apart (comm/shm_share.c).
 */
static int64_t stride(int64_t bytes) {
    const int64_t mib = (int64_t)1 << 20;
    return bytes > INT64_MAX - 3 * mib ? INT64_MAX
                                       : ((bytes + mib - 1) / (2 * mib)) * 2 * mib + mib;
}

int64_t gw_collbench_scratch(const gw_comm *comm, int64_t bytes) {
    int64_t top = 0;
    gw_coll_part part = {.elems = bytes / 4};
    const gw_coll_machine *m = gw_comm_machine(comm);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        for (int i = 0; gw_algorithm_at(i); i++) {
            const gw_algorithm *a = gw_algorithm_at(i);
            const char *why;
            gw_coll c = {.kind = (gw_coll_kind)k,
                         .dtype = GW_F32,
                         .size = gw_comm_size(comm),
                         .nparts = 1,
                         .parts = &part};
            if ((a->kinds >> k & 1u) && a->supports(&c, m, &why))
                top = GW_MAX(top, a->scratch(&c, m));
        }
    return top;
}

/* Two buffers and the scratch on each rank of a host. */
static gw_status look_for_room(const gw_comm *comm, int64_t max_bytes, int64_t scratch,
                               int64_t *bytes, gw_diags *dg) {
    char limit[600] = "memory", need[32], have[32];
    int64_t left = gw_memory_available(limit, (int)sizeof limit), all = INT64_MAX;
    int64_t here = gw_comm_machine(comm)->per_host, size = gw_comm_size(comm);
    if (here <= 0 || here > size) here = size;
    bool counted = max_bytes >= 0 && !__builtin_mul_overflow(max_bytes, (int64_t)2, bytes) &&
                   !__builtin_add_overflow(*bytes, scratch, bytes) &&
                   !__builtin_mul_overflow(*bytes, here, &all);
    if (counted && all <= left) return GW_OK;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "memory-short", (gw_where){0},
                    "no room for the buffers of the benchmark: %lld ranks need %s, %s leaves %s",
                    (long long)here, counted ? gw_fmt_bytes(need, all) : "more than can be counted",
                    limit, gw_fmt_bytes(have, left));
    gw_diag_hint(dg, g,
                 "each holds the largest size twice, and scratch: smaller sizes (--sizes, "
                 "calibrate --max-size), or fewer ranks");
    return GW_ERR_MEMORY;
}

gw_status gw_collbench_open(gw_collbench *b, gw_comm *comm, int64_t max_bytes,
                            int64_t scratch_bytes, gw_diags *dg) {
    *b = (gw_collbench){.comm = comm, .max_bytes = stride(max_bytes)};
    b->threads = GW_MAX(gw_comm_machine(comm)->threads, 1);
    b->scratch_bytes = align(scratch_bytes);
    int64_t bytes = 0;
    /* All look before any of them takes; then what one finds all do, and one says. */
    gw_status st = look_for_room(comm, b->max_bytes, b->scratch_bytes, &bytes, dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "looking for room", dg));
    st = gw_region_reserve(&b->region, bytes, "the buffers of the benchmark", dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "taking the buffers", dg));
    GW_TRY(gw_comm_share(comm, b->region.data, bytes, b->region.fd, &b->handle, dg));
    b->shared = true;
    return GW_OK;
}

void gw_collbench_close(gw_collbench *b) {
    if (b->shared) gw_comm_unshare(b->comm, b->handle);
    if (b->region.data) gw_region_release(&b->region);
    *b = (gw_collbench){0};
}

bool gw_collbench_in_place(gw_coll_kind kind) {
    return kind != GW_COLL_ALL_TO_ALL && kind != GW_COLL_SHIFT;
}

gw_coll gw_collbench_coll(const gw_collbench *b, const gw_collbench_case *k, gw_coll_part *part) {
    int64_t n = gw_comm_size(b->comm), me = gw_comm_rank(b->comm), size = gw_dtype_size(k->dtype);
    int64_t elems = k->bytes / size;
    if (k->kind == GW_COLL_ALL_TO_ALL) elems -= elems % n;
    int64_t own = gw_cut_flat(elems, n, me).first * size;
    *part = (gw_coll_part){.elems = elems};
    char *src = b->region.data, *dst = src;
    if (src && !k->in_place) dst += b->max_bytes;
    if (!src) own = 0; /* not open yet: only costs are asked */
    part->src = k->kind == GW_COLL_ALL_GATHER ? src + own : src;
    part->dst = k->kind == GW_COLL_REDUCE_SCATTER ? dst + own : dst;
    return (gw_coll){.kind = k->kind,
                     .dtype = k->dtype,
                     .wire = k->wire,
                     .axes = UINT32_MAX,
                     .size = n,
                     .per_host = k->per_host,
                     .nparts = 1,
                     .parts = part,
                     .scope = "bench",
                     .algorithm = k->algorithm};
}

/* ---- time ---- */

/* What is repeated: a collective, or a copy. */
typedef struct work {
    gw_collbench *b;
    const gw_coll *coll; /* NULL: a copy of `bytes` */
    int64_t bytes;
} work;

static gw_status once(const work *w, gw_diags *dg) {
    char *base = w->b->region.data;
    if (w->coll)
        return gw_coll_run(w->b->comm, w->coll, base + 2 * w->b->max_bytes, w->b->threads, dg);
    memcpy(base + w->b->max_bytes, base, (size_t)w->bytes);
    return GW_OK;
}

static gw_status timed(const work *w, int64_t runs, int64_t *ns, gw_diags *dg) {
    GW_TRY(gw_comm_barrier(w->b->comm, "a sample", dg));
    int64_t start = gw_clock_ns();
    for (int64_t i = 0; i < runs; i++) GW_TRY(once(w, dg));
    *ns = gw_clock_ns() - start;
    return GW_OK;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void summarise(int64_t *ns, int n, int64_t runs, gw_collbench_time *out) {
    qsort(ns, (size_t)n, sizeof *ns, by_size);
    double unit = 1e-9 / (double)runs, median = (double)ns[n / 2] * unit;
    double quartiles = (double)(ns[n * 3 / 4] - ns[n / 4]) * unit;
    *out =
        (gw_collbench_time){n, median, (double)ns[0] * unit, median > 0 ? quartiles / median : 0};
}

static gw_status sample(const work *w, int samples, double seconds, gw_collbench_time *out,
                        gw_diags *dg) {
    int64_t ns[GW_COLLBENCH_SAMPLES], first = 0;
    samples = GW_MIN(GW_MAX(samples, 1), GW_COLLBENCH_SAMPLES);
    GW_TRY(timed(w, 2, &first, dg)); /* page tables, caches */
    GW_TRY(timed(w, 2, &first, dg));
    GW_TRY(gw_comm_max_i64(w->b->comm, &first, 1, "the runs of a sample", dg));
    double each = GW_MAX((double)first / 2.0, 1.0), budget = seconds * 1e9 / samples;
    int64_t runs = (int64_t)GW_MIN(GW_MAX(budget / each, 1.0), 5000.0);
    for (int i = 0; i < samples; i++) GW_TRY(timed(w, runs, &ns[i], dg));
    GW_TRY(gw_comm_max_i64(w->b->comm, ns, samples, "the samples", dg));
    summarise(ns, samples, runs, out);
    return GW_OK;
}

gw_status gw_collbench_run(gw_collbench *b, const gw_collbench_case *k, gw_collbench_time *out,
                           gw_diags *dg) {
    gw_coll_part part;
    gw_coll c = gw_collbench_coll(b, k, &part);
    memset(b->region.data, 0, (size_t)k->bytes);
    work w = {b, &c, k->bytes};
    return sample(&w, k->samples, k->seconds_s, out, dg);
}

gw_status gw_collbench_copies(gw_collbench *b, int64_t bytes, int samples, double seconds,
                              gw_collbench_time *out, gw_diags *dg) {
    work w = {b, NULL, bytes};
    return sample(&w, samples, seconds, out, dg);
}

double gw_collbench_bus_factor(gw_coll_kind kind, int64_t ranks) {
    double n = (double)ranks;
    switch (kind) {
    case GW_COLL_ALL_REDUCE: return 2.0 * (n - 1.0) / n;
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALL_GATHER:
    case GW_COLL_ALL_TO_ALL: return (n - 1.0) / n;
    case GW_COLL_BROADCAST:
    case GW_COLL_SHIFT: return 1.0;
    case GW_COLL_KIND_COUNT: break;
    }
    return 0.0;
}

/* ---- is it right? ---- */

/* Small whole numbers: every format here holds them and their sums exactly. */
static int value_at(int64_t rank, int64_t i) { return (int)((i + rank) % 3); }

static void put(void *base, gw_dtype t, int64_t i, int x) {
    switch (t) {
    case GW_F32: ((float *)base)[i] = (float)x; break;
    case GW_F64: ((double *)base)[i] = x; break;
    case GW_BF16: ((gw_bf16 *)base)[i] = gw_bf16_from_f32((float)x); break;
    case GW_F16: ((gw_fp16 *)base)[i] = gw_fp16_from_f32((float)x); break;
    case GW_I32: ((int32_t *)base)[i] = x; break;
    case GW_I64: ((int64_t *)base)[i] = x; break;
    case GW_U8: ((uint8_t *)base)[i] = (uint8_t)x; break;
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
}

static double get(const void *base, gw_dtype t, int64_t i) {
    switch (t) {
    case GW_F32: return (double)((const float *)base)[i];
    case GW_F64: return ((const double *)base)[i];
    case GW_BF16: return (double)gw_bf16_to_f32(((const gw_bf16 *)base)[i]);
    case GW_F16: return (double)gw_fp16_to_f32(((const gw_fp16 *)base)[i]);
    case GW_I32: return (double)((const int32_t *)base)[i];
    case GW_I64: return (double)((const int64_t *)base)[i];
    case GW_U8: return (double)((const uint8_t *)base)[i];
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
    return 0.0;
}

/* The right value of element i of dst, an index of the whole. */
static double wanted(const gw_coll *c, int64_t me, int64_t i) {
    int64_t n = c->size, elems = c->parts[0].elems;
    double sum = 0.0;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE:
    case GW_COLL_REDUCE_SCATTER:
        for (int64_t r = 0; r < n; r++) sum += value_at(r, i);
        return sum;
    case GW_COLL_ALL_GATHER:
        for (int64_t r = 0; r < n; r++) {
            gw_cut cut = gw_cut_flat(elems, n, r);
            if (i >= cut.first && i < cut.first + cut.length) return value_at(r, i);
        }
        return 0.0;
    case GW_COLL_BROADCAST: return value_at(0, i);
    case GW_COLL_ALL_TO_ALL: return value_at(i / (elems / n), me * (elems / n) + i % (elems / n));
    case GW_COLL_SHIFT: return value_at((me + n - 1) % n, i);
    case GW_COLL_KIND_COUNT: break;
    }
    return 0.0;
}

gw_status gw_collbench_check(gw_collbench *b, const gw_collbench_case *k, int64_t *wrong,
                             gw_diags *dg) {
    gw_collbench_case apart = *k;
    gw_coll_part part;
    apart.in_place = false;
    gw_coll c = gw_collbench_coll(b, &apart, &part);
    int64_t me = gw_comm_rank(b->comm), n = c.size, elems = part.elems;
    char *src = b->region.data, *dst = src + b->max_bytes;
    double bad = 0.0;
    for (int64_t i = 0; i < elems; i++) put(src, k->dtype, i, value_at(me, i));
    memset(dst, 0xff, (size_t)k->bytes);
    work w = {b, &c, k->bytes};
    GW_TRY(once(&w, dg));
    gw_cut own = gw_cut_flat(elems, n, me);
    int64_t lo = k->kind == GW_COLL_REDUCE_SCATTER ? own.first : 0;
    int64_t hi = k->kind == GW_COLL_REDUCE_SCATTER ? lo + own.length : elems;
    for (int64_t i = lo; i < hi; i++) bad += get(dst, k->dtype, i) != wanted(&c, me, i);
    GW_TRY(gw_comm_sum_f64(b->comm, &bad, 1, "wrong elements", dg));
    *wrong = k->wire == GW_WIRE_INT8 || k->wire == GW_WIRE_INT4 ? -1 : (int64_t)bad;
    return GW_OK;
}
