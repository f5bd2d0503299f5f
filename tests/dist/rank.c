// SPDX-License-Identifier: Apache-2.0
// One rank of the scripts in this folder: what runs under mpirun and srun.
//
//   GW_DIST=SCENARIO mpirun -n 4 build/release/tests/dist rank
//
// It is a test of the executable only while GW_DIST is set, so that the runner does not see it.
// Every scenario ends in one of three ways, by which the scripts tell what happened: status 0 and
// "rank R of N: ok" on stdout; status 1 and the diagnostics of a failure on stderr; or what the
// scenario does to itself. GW_DIST_RANK names the rank that misbehaves (default 1), GW_DIST_KIND
// the kind of the collective at which it does, GW_DIST_TIMEOUT the seconds without a sign of life
// (default 2).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"     /* gw_mem_alloc */
#include "base/clock.h"     /* gw_clock_ns */
#include "comm/algorithm.h" /* gw_algorithm_at */
#include "comm/comm.h"      /* gw_coll_run */
#include "comm/comm_new.h"  /* gw_comm_transport */
#include "comm/launch.h"    /* gw_launch */
#include "harness.h"

typedef struct run {
    gw_comm *comm;
    int rank, size, odd_one;
    gw_coll_kind kind;
    double timeout_s;
    uint32_t axes; /* all of them: the group of everybody */
    gw_diags dg;
} run;

static double number_or(const char *variable, double otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtod(text, NULL) : otherwise;
}

static void sleep_s(double s) {
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - (double)(time_t)s))};
    nanosleep(&t, NULL);
}

// ------------------------------------------------------------------ collectives with known results

/* What rank r has at element i of a tensor: small integers, whose sums are exact in any order. */
static float given(int r, int64_t i) { return (float)((i * 7 + r * 3) % 13); }

static float summed(int n, int64_t i) {
    float sum = 0;
    for (int r = 0; r < n; r++) sum += given(r, i);
    return sum;
}

static int64_t own_first(int64_t n, int ranks,
                         int r) { /* balanced: the first n % ranks hold one more */
    return n / ranks * r + GW_MIN((int64_t)r, n % ranks);
}

typedef struct buffers {
    float *src, *dst;
    char *scratch;
} buffers;

static buffers buffers_new(const gw_comm *c, const gw_coll *k, int64_t elems) {
    int64_t scratch = gw_coll_scratch_bytes(k, gw_comm_machine(c));
    buffers b = {
        .src = gw_mem_zalloc((size_t)elems * sizeof(float) + 64),
        .dst = gw_mem_zalloc((size_t)elems * sizeof(float) + 64),
        .scratch = aligned_alloc(64, (size_t)(scratch / 64 + 1) * 64),
    };
    CHECK(b.scratch != NULL);
    return b;
}

static void buffers_free(buffers *b) {
    gw_mem_free(b->src);
    gw_mem_free(b->dst);
    free(b->scratch);
}

static void check_element(const gw_coll *k, int r, float is, float want, int64_t i) {
    CHECK_MSG(is == want, "%s by %s, element %lld at rank %d: %g, not %g",
              gw_coll_kind_name(k->kind), k->algorithm ? k->algorithm : "choice", (long long)i, r,
              (double)is, (double)want);
}

/* Whether dst is what the kind promises to rank r of n. */
static void check_result(const gw_coll *k, int r, int n, const float *dst, int64_t elems) {
    int64_t first = own_first(elems, n, r), length = own_first(elems, n, r + 1) - first;
    switch (k->kind) {
    case GW_COLL_ALL_REDUCE:
        for (int64_t i = 0; i < elems; i++) check_element(k, r, dst[i], summed(n, i), i);
        break;
    case GW_COLL_REDUCE_SCATTER:
        for (int64_t i = 0; i < length; i++) check_element(k, r, dst[i], summed(n, first + i), i);
        break;
    case GW_COLL_ALL_GATHER:
    case GW_COLL_BROADCAST:
        for (int64_t i = 0; i < elems; i++) check_element(k, r, dst[i], given(0, i), i);
        break;
    case GW_COLL_ALL_TO_ALL: /* from each rank the r-th part of what it had */
        for (int64_t i = 0; i < n * length; i++)
            check_element(k, r, dst[i], given((int)(i / length), first + i % length), i);
        break;
    case GW_COLL_SHIFT:
        for (int64_t i = 0; i < elems; i++)
            check_element(k, r, dst[i], given((r + n - 1) % n, i), i);
        break;
    case GW_COLL_KIND_COUNT: break;
    }
}

/* Runs one collective over everybody and checks its result. */
static gw_status collective(run *x, gw_coll_kind kind, const char *algorithm, int64_t elems) {
    gw_coll_part part = {.elems = elems};
    gw_coll k = {.kind = kind,
                 .dtype = GW_F32,
                 .axes = x->axes,
                 .size = x->size,
                 .nparts = 1,
                 .parts = &part,
                 .scope = "a test",
                 .algorithm = algorithm};
    buffers b = buffers_new(x->comm, &k, elems);
    bool gathers = kind == GW_COLL_ALL_GATHER;
    int64_t first = gathers ? own_first(elems, x->size, x->rank) : 0;
    for (int64_t i = first; i < elems; i++)
        b.src[i - first] = given(gathers || kind == GW_COLL_BROADCAST ? 0 : x->rank, i);
    part.src = b.src;
    part.dst = b.dst;
    gw_status s = gw_coll_run(x->comm, &k, b.scratch, 1, &x->dg);
    if (s == GW_OK) check_result(&k, x->rank, x->size, b.dst, elems);
    buffers_free(&b);
    return s;
}

// ------------------------------------------------------------------ scenarios: all is well

static gw_status all_values(run *x) {
    static const int64_t sizes[] = {1, 7, 1200, 100003};
    for (int i = 0; gw_algorithm_at(i); i++)
        for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
            for (size_t s = 0; s < GW_COUNT(sizes); s++) {
                const gw_algorithm *a = gw_algorithm_at(i);
                gw_coll_part part = {.elems = sizes[s]};
                gw_coll c = {.kind = (gw_coll_kind)k,
                             .dtype = GW_F32,
                             .axes = x->axes,
                             .size = x->size,
                             .nparts = 1,
                             .parts = &part,
                             .scope = "a test"};
                const char *why = "";
                if (!(a->kinds >> k & 1) || !a->supports(&c, gw_comm_machine(x->comm), &why))
                    continue;
                GW_TRY(collective(x, (gw_coll_kind)k, a->name, sizes[s]));
                if (x->rank == 0 && s == 0)
                    printf("%s by %s\n", gw_coll_kind_name(c.kind), a->name);
            }
    return gw_comm_barrier(x->comm, "the end", &x->dg);
}

/* Messages beyond what MPI can count in one piece. */
static gw_status big(run *x) {
    gw_transport *t = gw_comm_transport(x->comm);
    int64_t bytes = (1LL << 30) + (1 << 20) + 5;
    int pair[2] = {0, 1};
    gw_group g = {.size = 2, .me = x->rank, .ranks = pair};
    if (x->rank > 1) return GW_OK;
    char *out = malloc((size_t)bytes), *in = malloc((size_t)bytes);
    CHECK(out && in);
    for (int64_t i = 0; i < bytes; i++) out[i] = (char)(i * 31 + x->rank);
    int64_t start = gw_clock_ns();
    gw_status s = t->ops->exchange(t, &g, 1 - x->rank, out, bytes, 1 - x->rank, in, bytes, &x->dg);
    printf("%.2f GB/s each way\n", (double)bytes / (double)(gw_clock_ns() - start));
    for (int64_t i = 0; i < bytes && s == GW_OK; i++) CHECK_EQ(in[i], (char)(i * 31 + 1 - x->rank));
    free(out);
    free(in);
    return s;
}

/* A rank that computes for long, and says so op by op. */
static gw_status slow_but_alive(run *x) {
    if (x->rank == x->odd_one)
        for (uint64_t op = 0; op < 60; op++) {
            gw_comm_alive(x->comm, op);
            sleep_s(x->timeout_s / 20);
        }
    return collective(x, x->kind, NULL, 1200);
}

/* A rank that writes for long, and says so beforehand. */
static gw_status busy(run *x) {
    GW_TRY(collective(x, x->kind, NULL, 1200));
    if (x->rank == x->odd_one) {
        gw_comm_busy(x->comm, "writing a checkpoint", 10 * x->timeout_s);
        sleep_s(2.5 * x->timeout_s);
        gw_comm_busy(x->comm, NULL, 0);
    }
    return collective(x, x->kind, NULL, 1200);
}

/* Seconds of an all-reduce, by size: for people. */
static gw_status speed(run *x) {
    static const int64_t sizes[] = {1, 256, 4096, 65536, 262144, 16777216};
    for (size_t i = 0; i < GW_COUNT(sizes); i++) {
        int times = sizes[i] < 100000 ? 200 : 5;
        GW_TRY(collective(x, GW_COLL_ALL_REDUCE, NULL, sizes[i]));
        gw_comm_counts_reset(x->comm);
        for (int n = 0; n < times; n++) GW_TRY(collective(x, GW_COLL_ALL_REDUCE, NULL, sizes[i]));
        gw_comm_counts c = gw_comm_counted(x->comm, GW_COLL_ALL_REDUCE);
        double s = 1e-9 * (double)c.ns / times, wait = 1e-9 * (double)c.wait_ns / times;
        if (x->rank == 0)
            printf("%10lld bytes: %10.1f us, of these waiting %10.1f us, %.2f GB/s\n",
                   (long long)sizes[i] * 4, 1e6 * s, 1e6 * wait, 4e-9 * (double)sizes[i] / s);
    }
    return GW_OK;
}

static gw_status where(run *x) {
    char name[64] = "";
    gethostname(name, sizeof name - 1);
    printf("rank %d of %d on %s, %d on each host\n", x->rank, x->size, name,
           (int)gw_comm_machine(x->comm)->per_host);
    return gw_comm_barrier(x->comm, "the end", &x->dg);
}

// ------------------------------------------------------------------ scenarios: something is wrong

static gw_status after_some(run *x, void (*misbehave)(run *x)) {
    for (int i = 0; i < 5; i++) GW_TRY(collective(x, x->kind, NULL, 1200));
    if (x->rank == x->odd_one) misbehave(x);
    for (int i = 0; i < 5; i++) GW_TRY(collective(x, x->kind, NULL, 1200));
    return gw_comm_barrier(x->comm, "the end",
                           &x->dg); /* the root of a broadcast waits for nobody */
}

static void do_stop(run *x) { (void)x, raise(SIGSTOP); }
static void do_die(run *x) { (void)x, raise(SIGKILL); }
static void do_sleep(run *x) { sleep_s(20 * x->timeout_s); }
static void do_leave(run *x) {
    gw_launch_leave(x->comm, false, "this rank's disk is full");
    fprintf(stderr, "error: this rank's disk is full\n");
    exit(1);
}
static void do_exit(run *x) { (void)x, exit(5); }

static gw_status stop(run *x) { return after_some(x, do_stop); }
static gw_status die(run *x) { return after_some(x, do_die); }
static gw_status late(run *x) { return after_some(x, do_sleep); }
static gw_status give_up(run *x) { return after_some(x, do_leave); }
static gw_status leave_early(run *x) { return after_some(x, do_exit); }

/* Until something goes wrong from outside. */
static gw_status loop(run *x) {
    int64_t end = gw_clock_ns() + 60 * 1000000000LL;
    while (gw_clock_ns() < end) GW_TRY(collective(x, x->kind, NULL, 100000));
    return GW_OK;
}

/* One rank brings another size. */
static gw_status other_size(run *x) {
    for (int i = 0; i < 5; i++) GW_TRY(collective(x, x->kind, NULL, 1200));
    return collective(x, x->kind, NULL, x->rank == x->odd_one ? 1212 : 1200);
}

static gw_status other_kind(run *x) {
    for (int i = 0; i < 5; i++) GW_TRY(collective(x, x->kind, NULL, 1200));
    gw_coll_kind other = (gw_coll_kind)((x->kind + 1) % GW_COLL_KIND_COUNT);
    return collective(x, x->rank == x->odd_one ? other : x->kind, NULL, 1200);
}

/* ------------------------------------------------------------------ the rank */

static const struct {
    const char *name;
    gw_status (*run)(run *x);
} scenarios[] = {
    {"values", all_values}, {"big", big},         {"alive", slow_but_alive},
    {"busy", busy},         {"speed", speed},     {"stop", stop},
    {"die", die},           {"late", late},       {"give-up", give_up},
    {"exit", leave_early},  {"where", where},     {"loop", loop},
    {"size", other_size},   {"kind", other_kind},
};

static gw_coll_kind kind_named(const char *name) {
    for (int k = 0; name && k < GW_COLL_KIND_COUNT; k++)
        if (strcmp(gw_coll_kind_name((gw_coll_kind)k), name) == 0) return (gw_coll_kind)k;
    return GW_COLL_ALL_REDUCE;
}

static void finish(run *x, gw_status s) {
    if (s == GW_OK) printf("rank %d of %d: ok\n", x->rank, x->size);
    if (s != GW_OK) gw_diags_print(&x->dg, stderr, false);
    fflush(NULL);
    char why[400];
    snprintf(why, sizeof why, "%s", gw_diags_first_error(&x->dg));
    gw_diags_release(&x->dg);
    gw_launch_leave(x->comm, s == GW_OK, why);
    int code = s == GW_OK ? (int)number_or("GW_DIST_CODE", 0) : gw_status_exit_code(s);
    if (code) exit(code);
}

static void rank_main(void) {
    setvbuf(stderr, NULL, _IOLBF, 4096); /* lines of several ranks stay whole, as in the program */
    const char *scenario = getenv("GW_DIST");
    run x = {.odd_one = (int)number_or("GW_DIST_RANK", 1),
             .kind = kind_named(getenv("GW_DIST_KIND")),
             .timeout_s = number_or("GW_DIST_TIMEOUT", 2)};
    gw_launch_opts o = {.timeout_s = x.timeout_s};
    gw_launch_role role;
    int code = 0;
    gw_diags_init(&x.dg);
    gw_status s = gw_launch(&o, &role, &x.comm, &code, &x.dg);
    if (s != GW_OK) {
        gw_diags_print(&x.dg, stderr, false);
        gw_diags_release(&x.dg);
        exit(gw_status_exit_code(s));
    }
    CHECK_EQ(role, GW_LAUNCH_RANK);
    x.rank = gw_comm_rank(x.comm);
    x.size = gw_comm_size(x.comm);
    gw_mesh m = {0};
    x.axes = gw_mesh_add(&m, "dp", x.size);
    gw_comm_set_mesh(x.comm, &m);
    for (size_t i = 0; i < GW_COUNT(scenarios); i++)
        if (strcmp(scenarios[i].name, scenario) == 0) {
            finish(&x, scenarios[i].run(&x));
            return;
        }
    test_fail(__FILE__, __LINE__, "no scenario '%s'", scenario);
}

__attribute__((constructor)) static void register_rank(void) {
    static test_case rank = {"rank", rank_main, 600, false, NULL};
    if (getenv("GW_DIST")) test_register(&rank);
}
