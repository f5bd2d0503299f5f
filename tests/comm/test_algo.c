// SPDX-License-Identifier: Apache-2.0
// The laws of every collective algorithm, on every kind, dtype, wire and number of ranks:
//   the result is the sum (maximum, concatenation) as float64 arithmetic has it, within the error
//   that the
//     formats allow; copies are exact
//   all-reduce and all-gather leave the same bits everywhere, and the same bits in every run
//   bytes sent are exactly those that `moved` says; nothing is written outside dst and scratch
//   in place is the same as out of place
// Ranks are threads over the test transport (mini.h).
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"     /* gw_mem_zalloc */
#include "base/num.h"       /* gw_bf16_from_f32 */
#include "comm/algorithm.h" /* gw_algorithm_at */
#include "comm/parts.h"     /* gw_cut_flat, gw_dtype_size */
#include "comm/wire.h"      /* GW_WIRE_BLOCK */
#include "harness.h"        /* TEST, CHECK */
#include "mini.h"           /* mini_run */

#define MAX_PARTS 5
#define MAX_RANKS 12
#define GUARD     64

/* One run: layout of a rank's region, the same on all ranks. */
typedef struct trial {
    const gw_algorithm *a;
    gw_coll coll;
    gw_coll_machine m;
    int64_t elems[MAX_PARTS];
    int64_t src_at[MAX_PARTS], dst_at[MAX_PARTS]; /* of whole buffers */
    int64_t scratch_at, scratch_bytes, region_bytes;
    bool in_place, one_sided, outside;
    int threads;
    char *regions[MAX_RANKS];
    gw_coll_part parts[MAX_RANKS][MAX_PARTS];
    gw_coll colls[MAX_RANKS];
    int64_t sent[MAX_RANKS];
    gw_status status[MAX_RANKS];
    char *whole; /* [ranks, region]: contents before the run */
} trial;

/* ---- values ---- */

/* A value that depends on place only: about one, with a few outliers. */
static double value_of(int rank, int part, int64_t i, gw_dtype t) {
    uint64_t h = (uint64_t)i * (uint64_t)0x9e3779b97f4a7c15ull +
                 (uint64_t)(rank * 131 + part + 1) * (uint64_t)0xff51afd7ed558ccdull;
    h ^= h >> 29, h *= 0xbf58476d1ce4e5b9ull, h ^= h >> 32;
    if (!gw_dtype_is_float(t)) return (double)(h % 200);
    double x = (double)(h >> 11) / 9007199254740992.0 * 2.0 - 1.0;
    return h % 97 == 0 ? 8.0 * x : x;
}

static void put(char *base, gw_dtype t, int64_t i, double x) {
    switch (t) {
    case GW_F32: ((float *)(void *)base)[i] = (float)x; break;
    case GW_F64: ((double *)(void *)base)[i] = x; break;
    case GW_BF16: ((gw_bf16 *)(void *)base)[i] = gw_bf16_from_f32((float)x); break;
    case GW_F16: ((gw_fp16 *)(void *)base)[i] = gw_fp16_from_f32((float)x); break;
    case GW_I32: ((int32_t *)(void *)base)[i] = (int32_t)x; break;
    case GW_I64: ((int64_t *)(void *)base)[i] = (int64_t)x; break;
    case GW_U8: ((uint8_t *)(void *)base)[i] = (uint8_t)x; break;
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
}

static double get(const char *base, gw_dtype t, int64_t i) {
    switch (t) {
    case GW_F32: return (double)((const float *)(const void *)base)[i];
    case GW_F64: return ((const double *)(const void *)base)[i];
    case GW_BF16: return (double)gw_bf16_to_f32(((const gw_bf16 *)(const void *)base)[i]);
    case GW_F16: return (double)gw_fp16_to_f32(((const gw_fp16 *)(const void *)base)[i]);
    case GW_I32: return (double)((const int32_t *)(const void *)base)[i];
    case GW_I64: return (double)((const int64_t *)(const void *)base)[i];
    case GW_U8: return (double)((const uint8_t *)(const void *)base)[i];
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
    return 0.0;
}

/* What rank r has of a part before the run, as its dtype holds it. */
static double input(const trial *x, int r, int part, int64_t i) {
    char one[8];
    put(one, x->coll.dtype, 0, value_of(r, part, i, x->coll.dtype));
    return get(one, x->coll.dtype, 0);
}

/* ---- laying out ---- */

static bool own_src(const trial *x) { return x->coll.kind == GW_COLL_ALL_GATHER; }
static bool own_dst(const trial *x) { return x->coll.kind == GW_COLL_REDUCE_SCATTER; }

static void lay_out(trial *x) {
    int64_t at = GUARD, size = gw_dtype_size(x->coll.dtype), n = x->coll.size;
    for (int p = 0; p < x->coll.nparts; p++) {
        x->src_at[p] = at;
        at += ((x->elems[p] * size + 63) & ~(int64_t)63) + GUARD;
        x->dst_at[p] = x->in_place ? x->src_at[p] : at;
        /* An all-to-all's dst may hold up to n elements more. */
        if (!x->in_place) at += (((x->elems[p] + n) * size + 63) & ~(int64_t)63) + GUARD;
    }
    x->scratch_at = at;
    x->scratch_bytes = x->a->scratch(&x->coll, &x->m);
    x->region_bytes = at + ((x->scratch_bytes + 63) & ~(int64_t)63) + GUARD;
}

static void fill(trial *x) {
    int n = (int)x->coll.size;
    int64_t size = gw_dtype_size(x->coll.dtype);
    for (int r = 0; r < n; r++) {
        x->regions[r] = aligned_alloc(64, (size_t)((x->region_bytes + 63) & ~(int64_t)63));
        memset(x->regions[r], 0xa5, (size_t)x->region_bytes);
        for (int p = 0; p < x->coll.nparts; p++) {
            gw_cut own = gw_cut_flat(x->elems[p], n, r);
            char *src = x->regions[r] + x->src_at[p], *dst = x->regions[r] + x->dst_at[p];
            int64_t lo = own_src(x) ? own.first : 0,
                    hi = own_src(x) ? lo + own.length : x->elems[p];
            for (int64_t i = lo; i < hi; i++)
                put(src, x->coll.dtype, i, value_of(r, p, i, x->coll.dtype));
            x->parts[r][p] = (gw_coll_part){
                .elems = x->elems[p],
                .src = src + (own_src(x) ? own.first * size : 0),
                .dst = dst + (own_dst(x) ? own.first * size : 0),
            };
        }
        x->colls[r] = x->coll;
        x->colls[r].parts = x->parts[r];
    }
}

static void body(gw_transport *t, int rank, void *user) {
    trial *x = user;
    int ranks[MAX_RANKS];
    for (int i = 0; i < MAX_RANKS; i++) ranks[i] = i;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_algorithm_call call = {t,
                              {(int)x->coll.size, rank, ranks},
                              &x->colls[rank],
                              x->regions[rank] + x->scratch_at,
                              x->threads};
    x->status[rank] = x->a->run(&call, &x->sent[rank], &dg);
    if (x->status[rank] != GW_OK) test_note("rank %d: %s", rank, gw_diags_first_error(&dg));
    gw_diags_release(&dg);
}

/* ---- what must hold ---- */

/* Half a step of the format behind the last rounding, relative to the value. */
static double rounding(gw_dtype t) {
    switch (t) {
    case GW_BF16: return 1.0 / 256.0;
    case GW_F16: return 1.0 / 2048.0;
    case GW_F64: return 1e-15;
    case GW_F32: return 6e-8;
    case GW_I32:
    case GW_I64:
    case GW_U8:
    case GW_F8E4M3:
    case GW_F8E5M2:
    case GW_DTYPE_COUNT: break;
    }
    return 0.0;
}

/* Largest possible error of one element whose addends have magnitudes that sum to `mass` and whose
 * blocks hold nothing above 8 (n * 8 for a sum). */
static double tolerance(const trial *x, double mass, double result) {
    double n = (double)x->coll.size, hops = n - 1.0, tol = 1e-12;
    double sums = x->coll.dtype == GW_F64 ? 1e-15 : 1.2e-7;
    bool adds = x->coll.kind == GW_COLL_ALL_REDUCE || own_dst(x);
    if (adds) tol += n * sums * mass;
    tol += rounding(x->coll.dtype) * 1.01 * (fabs(result) + 1e-7) * (adds ? 1.0 : 0.0);
    if (x->coll.wire == GW_WIRE_BF16) tol += (hops + 2.0) * (mass + fabs(result)) / 256.0;
    double steps = x->coll.wire == GW_WIRE_INT8 ? 254.0 : x->coll.wire == GW_WIRE_INT4 ? 14.0 : 0.0;
    if (steps > 0.0) {
        if (adds) tol += 8.0 * hops / steps * 1.001;
        /* In two levels partial sums of a host are encoded too. */
        if (adds && x->coll.per_host) tol += 8.0 * n / steps;
        if (!own_dst(x)) tol += (adds ? 8.5 * n : 8.0) / steps * 1.001;
        tol += rounding(x->coll.dtype) * 1.01 * (fabs(result) + mass + 8.0 / steps);
    }
    return tol;
}

static void expect(const trial *x, int r, int part, int64_t i, double got, double want,
                   double mass) {
    double tol = tolerance(x, mass, want);
    if (fabs(got - want) <= tol) return;
    test_fail(
        __FILE__, __LINE__,
        "%s %s %s wire %s, %d ranks, %d parts%s: rank %d part %d element %lld is %.9g, not %.9g "
        "(tolerance %.3g)",
        x->a->name, gw_coll_kind_name(x->coll.kind), gw_dtype_name(x->coll.dtype),
        gw_wire_name(x->coll.wire), (int)x->coll.size, x->coll.nparts,
        x->in_place ? ", in place" : "", r, part, (long long)i, got, want, tol);
}

static void check_reduced(const trial *x, int r) {
    for (int p = 0; p < x->coll.nparts; p++) {
        gw_cut own = gw_cut_flat(x->elems[p], x->coll.size, r);
        int64_t lo = own_dst(x) ? own.first : 0, hi = own_dst(x) ? lo + own.length : x->elems[p];
        const char *dst = x->regions[r] + x->dst_at[p];
        for (int64_t i = lo; i < hi; i++) {
            double sum = 0.0, mass = 0.0, top = -1e300;
            for (int k = 0; k < x->coll.size; k++) {
                double v = input(x, k, p, i);
                sum += v, mass += fabs(v), top = fmax(top, v);
            }
            expect(x, r, p, i, get(dst, x->coll.dtype, i), x->coll.max ? top : sum, mass);
        }
    }
}

static void check_copied(const trial *x, int r) {
    int64_t n = x->coll.size;
    for (int p = 0; p < x->coll.nparts; p++) {
        const char *dst = x->regions[r] + x->dst_at[p];
        int64_t length = gw_cut_flat(x->elems[p], n, r).length;
        int64_t first = gw_cut_flat(x->elems[p], n, r).first;
        int64_t count = x->coll.kind == GW_COLL_ALL_TO_ALL ? n * length : x->elems[p];
        for (int64_t i = 0; i < count; i++) {
            double want;
            if (x->coll.kind == GW_COLL_ALL_TO_ALL) {
                want = input(x, (int)(i / length), p, first + i % length);
            } else if (x->coll.kind == GW_COLL_BROADCAST) {
                want = input(x, 0, p, i);
            } else if (x->coll.kind == GW_COLL_SHIFT) {
                want = input(x, (int)((r + n - 1) % n), p, i);
            } else {
                int owner = 0;
                while (gw_cut_flat(x->elems[p], n, owner).first +
                           gw_cut_flat(x->elems[p], n, owner).length <=
                       i)
                    owner++;
                want = input(x, owner, p, i);
            }
            double mass =
                x->coll.wire == GW_WIRE_SAME || x->coll.wire == GW_WIRE_F32 ? 0.0 : fabs(want);
            expect(x, r, p, i, get(dst, x->coll.dtype, i), want, mass);
        }
    }
}

/* Bytes that may differ from before: dst and scratch. */
static void check_outside(const trial *x, int r) {
    int64_t size = gw_dtype_size(x->coll.dtype), n = x->coll.size;
    char *seen = gw_mem_zalloc((size_t)x->region_bytes);
    for (int p = 0; p < x->coll.nparts; p++) {
        gw_cut own = gw_cut_flat(x->elems[p], n, r);
        int64_t lo = own_dst(x) ? own.first : 0, count = own_dst(x) ? own.length : x->elems[p];
        if (x->coll.kind == GW_COLL_ALL_TO_ALL) count = n * own.length;
        memset(seen + x->dst_at[p] + lo * size, 1, (size_t)(count * size));
    }
    memset(seen + x->scratch_at, 1, (size_t)x->scratch_bytes);
    for (int64_t i = 0; i < x->region_bytes; i++)
        if (!seen[i] && x->regions[r][i] != x->whole[r * x->region_bytes + i])
            test_fail(__FILE__, __LINE__, "%s %s: rank %d wrote byte %lld of its region",
                      x->a->name, gw_coll_kind_name(x->coll.kind), r, (long long)i);
    gw_mem_free(seen);
}

static void check_same_bits(const trial *x) {
    bool all = x->coll.kind == GW_COLL_ALL_REDUCE || x->coll.kind == GW_COLL_ALL_GATHER;
    for (int p = 0; all && p < x->coll.nparts; p++)
        for (int r = 1; r < x->coll.size; r++)
            CHECK_MSG(memcmp(x->regions[0] + x->dst_at[p], x->regions[r] + x->dst_at[p],
                             (size_t)(x->elems[p] * gw_dtype_size(x->coll.dtype))) == 0,
                      "%s %s: ranks 0 and %d differ in bits", x->a->name,
                      gw_coll_kind_name(x->coll.kind), r);
}

/* Runs and checks one; `bits`, if not NULL, receives a hash of all results. */
static void run_trial(trial *x) {
    int n = (int)x->coll.size;
    lay_out(x);
    fill(x);
    x->whole = gw_mem_alloc((size_t)(n * x->region_bytes));
    for (int r = 0; r < n; r++)
        memcpy(x->whole + r * x->region_bytes, x->regions[r], (size_t)x->region_bytes);
    mini_world *w = mini_new(n, x->one_sided, x->regions, x->outside ? 0 : x->region_bytes);
    mini_run(w, body, x);
    for (int r = 0; r < n; r++) {
        CHECK_MSG(x->status[r] == GW_OK, "%s %s %s wire %s with %d ranks failed on rank %d",
                  x->a->name, gw_coll_kind_name(x->coll.kind), gw_dtype_name(x->coll.dtype),
                  gw_wire_name(x->coll.wire), n, r);
        CHECK_MSG(x->sent[r] == x->a->moved(&x->coll, r),
                  "%s %s %s wire %s, %d ranks: rank %d moved %lld bytes, the formula says %lld",
                  x->a->name, gw_coll_kind_name(x->coll.kind), gw_dtype_name(x->coll.dtype),
                  gw_wire_name(x->coll.wire), n, r, (long long)x->sent[r],
                  (long long)x->a->moved(&x->coll, r));
        /* What it says it sent is what went through the transport. */
        bool reads = strcmp(x->a->name, "direct") == 0 || strcmp(x->a->name, "neighbour") == 0;
        if (x->outside || !reads) CHECK_EQ(mini_sent(mini_transport(w, r)), x->sent[r]);
        if (x->coll.kind == GW_COLL_ALL_REDUCE || own_dst(x))
            check_reduced(x, r);
        else
            check_copied(x, r);
        check_outside(x, r);
    }
    check_same_bits(x);
    mini_free(w);
}

static void free_trial(trial *x) {
    for (int r = 0; r < x->coll.size; r++) free(x->regions[r]);
    gw_mem_free(x->whole);
}

/* ---- the matrix ---- */

/* Sizes: none, one, fewer than ranks, odd ones, beyond a block of the wire, and several parts. */
static const int64_t sizes[][MAX_PARTS] = {
    {0}, {1}, {3}, {61}, {1000}, {4099}, {1, 0, 700, 2, 257}, {5, 3, 1, 7, 2}, {513, 256, 64},
};
static const int parts_of[] = {1, 1, 1, 1, 1, 1, 5, 5, 3};

static void one(const gw_algorithm *a, gw_coll_kind kind, gw_dtype t, gw_wire w, int n, int size,
                int per_host, bool in_place, bool max, bool outside) {
    trial x = {.a = a, .in_place = in_place, .one_sided = true, .outside = outside, .threads = 1};
    x.coll = (gw_coll){.kind = kind,
                       .dtype = t,
                       .wire = w,
                       .max = max,
                       .size = n,
                       .per_host = per_host,
                       .nparts = parts_of[size],
                       .parts = x.parts[0],
                       .algorithm = a->name};
    x.m = gw_coll_machine_local(1);
    memcpy(x.elems, sizes[size], sizeof x.elems);
    for (int p = 0; p < x.coll.nparts; p++) x.parts[0][p].elems = x.elems[p];
    const char *why;
    if (!(a->kinds & 1u << kind) || !a->supports(&x.coll, &x.m, &why)) return;
    run_trial(&x);
    free_trial(&x);
}

/* Those that have a test of their own below: all. */
static const char *const tested[] = {"direct",    "ring",     "halving_doubling",
                                     "tree",      "pairwise", "hierarchical",
                                     "quantised", "central",  "neighbour"};

TEST(every_algorithm_has_its_matrix) {
    for (int i = 0; gw_algorithm_at(i); i++) {
        bool found = false;
        for (int k = 0; k < (int)GW_COUNT(tested); k++)
            found |= strcmp(tested[k], gw_algorithm_at(i)->name) == 0;
        CHECK_MSG(found, "%s has no line here", gw_algorithm_at(i)->name);
    }
}

static void matrix(const char *name, const int *ranks, int nranks) {
    const gw_algorithm *a = gw_algorithm_find(name);
    CHECK(a != NULL);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        for (int i = 0; i < nranks; i++)
            for (int s = 0; s < (int)GW_COUNT(sizes); s++)
                for (int w = 0; w < GW_WIRE_COUNT; w++)
                    for (int t = 0; t < GW_DTYPE_COUNT; t++) {
                        /* The corners of the matrix by turns: all of it would take minutes. */
                        int turn = s * 7 + w * 3 + t + k;
                        if (t > GW_BF16 && (turn + i) % 4 != 0) continue;
                        if (t <= GW_BF16 && w == GW_WIRE_F32 && (turn + i) % 3 != 0) continue;
                        bool place = turn % 2 && k != GW_COLL_ALL_TO_ALL && k != GW_COLL_SHIFT;
                        int per = ranks[i] > 3 && ranks[i] % 2 == 0 && turn % 3 ? 2 : 0;
                        if (strcmp(name, "hierarchical") == 0) per = ranks[i] % 3 ? 2 : 3;
                        one(a, (gw_coll_kind)k, (gw_dtype)t, (gw_wire)w, ranks[i], s, per, place,
                            turn % 5 == 0 && k == GW_COLL_ALL_REDUCE, false);
                    }
}

TEST_WITHIN(direct_keeps_the_laws, 120) { matrix("direct", (int[]){1, 2, 3, 4, 7}, 5); }
TEST_WITHIN(ring_keeps_the_laws, 120) { matrix("ring", (int[]){1, 2, 3, 4, 7}, 5); }
TEST_WITHIN(halving_doubling_keeps_the_laws, 120) {
    matrix("halving_doubling", (int[]){1, 2, 3, 4, 6, 7, 8}, 7);
}
TEST_WITHIN(tree_keeps_the_laws, 120) { matrix("tree", (int[]){1, 2, 3, 4, 5, 8, 9}, 7); }
TEST_WITHIN(pairwise_keeps_the_laws, 120) { matrix("pairwise", (int[]){1, 2, 3, 4, 7}, 5); }
TEST_WITHIN(hierarchical_keeps_the_laws, 120) { matrix("hierarchical", (int[]){4, 6, 8, 9}, 4); }
TEST_WITHIN(quantised_keeps_the_laws, 120) { matrix("quantised", (int[]){1, 2, 3, 4, 6}, 5); }
TEST_WITHIN(central_keeps_the_laws, 120) { matrix("central", (int[]){1, 2, 3, 5}, 4); }

TEST_WITHIN(neighbour_keeps_the_laws, 120) { matrix("neighbour", (int[]){1, 2, 3, 4, 7}, 5); }

TEST(neighbour_without_shared_memory) {
    const gw_algorithm *a = gw_algorithm_find("neighbour");
    for (int n = 2; n < 6; n++)
        for (int s = 0; s < (int)GW_COUNT(sizes); s++)
            one(a, GW_COLL_SHIFT, s % 2 ? GW_F32 : GW_I32, GW_WIRE_SAME, n, s, 0, false, false,
                true);
}

/* Two parts are the halves of a sequence in zigzag: rank i holds chunk i of the first and,
 * reversed, chunk n-1-i of the second. Every algorithm gathers the sequence, and scatters its sum.
 */
static void zigzag(const gw_algorithm *a, gw_coll_kind kind, int n, int64_t each) {
    trial x = {.a = a, .one_sided = true, .threads = 1};
    x.coll = (gw_coll){.kind = kind,
                       .dtype = GW_F32,
                       .size = n,
                       .nparts = 2,
                       .parts = x.parts[0],
                       .algorithm = a->name};
    x.m = gw_coll_machine_local(1);
    for (int p = 0; p < 2; p++) x.elems[p] = x.parts[0][p].elems = n * each;
    const char *why;
    if (!(a->kinds & 1u << kind) || !a->supports(&x.coll, &x.m, &why)) return;
    lay_out(&x);
    fill(&x);
    for (int r = 0; r < n; r++) { /* the second half lies where the other end's does */
        gw_coll_part *p = &x.parts[r][1];
        int64_t at = gw_cut_flat(p->elems, n, n - 1 - r).first - gw_cut_flat(p->elems, n, r).first;
        p->reversed = true;
        if (own_src(&x)) {
            p->src = (const float *)p->src + at;
            char *base = x.regions[r] + x.src_at[1];
            int64_t first = gw_cut_flat(p->elems, n, n - 1 - r).first;
            for (int64_t i = first; i < first + each; i++)
                put(base, GW_F32, i, value_of(0, 1, i, GW_F32));
        } else {
            p->dst = (float *)p->dst + at;
        }
    }
    mini_world *w = mini_new(n, true, x.regions, x.region_bytes);
    mini_run(w, body, &x);
    mini_free(w);
    for (int r = 0; r < n; r++) {
        CHECK_EQ(x.status[r], GW_OK);
        CHECK_EQ(x.sent[r], a->moved(&x.coll, r));
        int64_t own = gw_cut_flat(x.elems[1], n, n - 1 - r).first;
        int64_t lo = own_dst(&x) ? own : 0, hi = own_dst(&x) ? own + each : x.elems[1];
        for (int64_t i = lo; i < hi; i++) {
            double want = own_dst(&x) ? 0.0 : (double)(float)value_of(0, 1, i, GW_F32), mass = 0.0;
            for (int k = 0; own_dst(&x) && k < n; k++) {
                want += input(&x, k, 1, i);
                mass += fabs(input(&x, k, 1, i));
            }
            expect(&x, r, 1, i, get(x.regions[r] + x.dst_at[1], GW_F32, i), want, mass);
        }
    }
    free_trial(&x);
}

TEST(reversed_parts_lie_from_the_other_end) {
    for (int i = 0; gw_algorithm_at(i); i++)
        for (int n = 1; n <= 4; n++)
            for (int64_t each = 1; each < 400; each += 199) {
                zigzag(gw_algorithm_at(i), GW_COLL_ALL_GATHER, n, each);
                zigzag(gw_algorithm_at(i), GW_COLL_REDUCE_SCATTER, n, each);
            }
}

/* Buffers that lie in no shared region: direct goes by messages, with the same bytes. */
TEST_WITHIN(direct_without_shared_memory, 120) {
    const gw_algorithm *a = gw_algorithm_find("direct");
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        for (int n = 2; n < 6; n++)
            for (int s = 0; s < (int)GW_COUNT(sizes); s++) {
                bool place = s % 2 && k != GW_COLL_ALL_TO_ALL;
                one(a, (gw_coll_kind)k, GW_F32, GW_WIRE_SAME, n, s, 0, place, false, true);
                one(a, (gw_coll_kind)k, GW_BF16, GW_WIRE_SAME, n, s, 0,
                    !place && k != GW_COLL_ALL_TO_ALL, false, true);
            }
}

/* Many chunks: sizes beyond those of every pipeline, shares that end at different chunks. */
TEST_WITHIN(chunks_of_large_data, 120) {
    for (int i = 0; gw_algorithm_at(i); i++)
        for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
            for (int w = 0; w < GW_WIRE_COUNT; w++) {
                const gw_algorithm *a = gw_algorithm_at(i);
                trial x = {.a = a, .one_sided = true, .threads = 2};
                x.coll = (gw_coll){.kind = (gw_coll_kind)k,
                                   .dtype = w == GW_WIRE_SAME ? GW_BF16 : GW_F32,
                                   .wire = (gw_wire)w,
                                   .size = 4,
                                   .per_host = 2,
                                   .nparts = 2,
                                   .parts = x.parts[0],
                                   .algorithm = a->name};
                x.m = gw_coll_machine_local(1);
                x.elems[0] = 65536 * 4 + 1, x.elems[1] = 200003;
                for (int p = 0; p < 2; p++) x.parts[0][p].elems = x.elems[p];
                const char *why;
                if (!(a->kinds & 1u << k) || !a->supports(&x.coll, &x.m, &why)) continue;
                run_trial(&x);
                free_trial(&x);
            }
}

/* A NaN or an infinity anywhere reaches every rank through any wire. */
TEST(not_finite_survives_every_wire) {
    for (int i = 0; gw_algorithm_at(i); i++)
        for (int w = 0; w < GW_WIRE_COUNT; w++)
            for (int bad = 0; bad < 2; bad++) {
                const gw_algorithm *a = gw_algorithm_at(i);
                trial x = {.a = a, .one_sided = true, .threads = 1};
                x.coll = (gw_coll){.kind = GW_COLL_ALL_REDUCE,
                                   .dtype = GW_F32,
                                   .wire = (gw_wire)w,
                                   .size = 3,
                                   .nparts = 1,
                                   .parts = x.parts[0],
                                   .algorithm = a->name};
                x.m = gw_coll_machine_local(1);
                x.elems[0] = x.parts[0][0].elems = 1000;
                const char *why;
                if (!(a->kinds & 1u) || !a->supports(&x.coll, &x.m, &why)) continue;
                lay_out(&x);
                fill(&x);
                float poison = bad ? NAN : INFINITY;
                memcpy(x.regions[1] + x.src_at[0] + 4 * 777, &poison, 4);
                mini_world *world = mini_new(3, true, x.regions, x.region_bytes);
                mini_run(world, body, &x);
                for (int r = 0; r < 3; r++)
                    CHECK_MSG(!isfinite(get(x.regions[r] + x.dst_at[0], GW_F32, 777)),
                              "%s over %s: rank %d has a finite sum", a->name,
                              gw_wire_name((gw_wire)w), r);
                mini_free(world);
                free_trial(&x);
            }
}

/* Bits do not depend on how tensors are bucketed, nor on all-reduce or reduce-scatter. */
TEST(direct_sums_in_rank_order_whoever_owns) {
    enum { N = 3, E = 1000 };
    float bits[2][E];
    for (int turn = 0; turn < 2; turn++) {
        trial x = {.a = gw_algorithm_find("direct"), .one_sided = true, .threads = 1};
        x.coll = (gw_coll){.kind = turn ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALL_REDUCE,
                           .dtype = GW_F32,
                           .size = N,
                           .nparts = 1,
                           .parts = x.parts[0]};
        x.m = gw_coll_machine_local(1);
        x.elems[0] = x.parts[0][0].elems = E;
        run_trial(&x);
        for (int64_t i = 0; i < E; i++) {
            int owner = i < 334 ? 0 : i < 667 ? 1 : 2; /* 1000 = 334 + 333 + 333 */
            bits[turn][i] = (float)get(x.regions[turn ? owner : 0] + x.dst_at[0], GW_F32, i);
            float sum = (float)input(&x, 0, 0, i);
            for (int r = 1; r < N; r++) sum += (float)input(&x, r, 0, i);
            CHECK(bits[turn][i] == sum);
        }
        free_trial(&x);
    }
    CHECK(memcmp(bits[0], bits[1], sizeof bits[0]) == 0);
}
