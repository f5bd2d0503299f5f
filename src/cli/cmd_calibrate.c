// SPDX-License-Identifier: Apache-2.0
// `gradwright calibrate`: measures this machine, collectives and ops, and writes the file that
// choices of algorithms are made by and that steps are planned by (`plan --hardware this`).
//
// For each number of ranks the ranks are started anew, and every algorithm that can do a kind of
// collective is timed over sizes from a kilobyte to some megabytes. Nothing is measured when a run
// starts: a plan reads this file, and the same file gives the same choices everywhere. Ranks are
// processes, so what rank 0 finds is put into memory that it shares with the process that writes
// the file. Then the same ranks, and at last this process alone, train small models, whose ops are
// timed (calibrate_ops.c). In the end one core tokenizes, builds and loads a small data set
// (calibrate_data.c).
#include <fcntl.h>    /* posix_fadvise */
#include <sched.h>    /* sched_getaffinity */
#include <stdlib.h>   /* mkdtemp */
#include <string.h>   /* strcspn */
#include <sys/mman.h> /* mmap */
#include <unistd.h>   /* fsync */

#include "base/clock.h"         /* gw_clock_ns */
#include "base/output.h"        /* gw_output_is_standard */
#include "base/str.h"           /* gw_parse_i64 */
#include "cli/calibrate_data.h" /* gw_calib_data_rates */
#include "cli/calibrate_ops.h"  /* gw_calib_run */
#include "cli/collbench.h"      /* gw_collbench_run */
#include "cli/command.h"        /* gw_command */
#include "cli/probe.h"          /* gw_probe_machine */
#include "cli/ranks.h"          /* gw_cli_on_ranks */
#include "comm/algorithm.h"     /* gw_algorithm_at */
#include "comm/calibration.h"   /* gw_calibration_write */
#include "comm/sum.h"           /* gw_sum_add */
#include "kernel/kernel.h"      /* gw_machine_this */
#include "version.h"            /* GW_VERSION */

enum { MAX_COUNTS = 16, MAX_POINTS = 8, MAX_CURVES = 1024 };

static const gw_option options[] = {
    {"ranks", 'n', "N,N", "numbers of ranks (default: 2, 4, ... and the cores)", GW_OPT_STRING,
     NULL},
    {"out", 'o', "FILE", "the file to write (default calibration.json)", GW_OPT_STRING, NULL},
    {"max-size", 0, "BYTES", "largest data of a collective (default 4MiB)", GW_OPT_BYTES, NULL},
    {"seconds", 0, "S", "time for each collective's figure, about (default 0.02)", GW_OPT_DOUBLE,
     NULL},
    {"ops-seconds", 0, "S", "for all ops, about (default 36); 0: collectives alone", GW_OPT_DOUBLE,
     NULL},
};

typedef struct curve {
    gw_coll_kind kind;
    int algorithm; /* of algorithms.def */
    int64_t ranks;
    int n;
    int64_t bytes[MAX_POINTS];
    double seconds[MAX_POINTS];
} curve;

/* In memory that parent and ranks share. */
typedef struct findings {
    double latency_s, bytes_per_s, copy_bytes_per_s, sum_bytes_per_s;
    int threads, ncurves;
    curve curves[MAX_CURVES];
    gw_calib_ops ops;
} findings;

typedef struct job {
    int64_t max_bytes;
    double seconds_s;
    double ops_s;            /* for the ops of one number of ranks; 0: none */
    char dir[64];            /* of the data that ops are measured on */
    int cores, fewest, most; /* ranks: of those that are asked for */
    findings *f;
    bool rank; /* this process is one of several ranks */
    int64_t me;
} job;

/* ---- on the ranks ---- */

static gw_status time_curve(const job *j, gw_collbench *cb, gw_coll_kind kind, int algorithm,
                            gw_diags *dg) {
    curve c = {.kind = kind, .algorithm = algorithm, .ranks = gw_comm_size(cb->comm)};
    for (int64_t bytes = 1024; bytes <= j->max_bytes && c.n < MAX_POINTS; bytes *= 8) {
        gw_collbench_case k = {.kind = kind,
                               .dtype = GW_F32,
                               .algorithm = gw_algorithm_at(algorithm)->name,
                               .bytes = bytes,
                               .in_place = gw_collbench_in_place(kind),
                               .samples = 7,
                               .seconds_s = j->seconds_s};
        gw_collbench_time t;
        GW_TRY(gw_collbench_run(cb, &k, &t, dg));
        c.bytes[c.n] = bytes;
        c.seconds[c.n++] = GW_MAX(t.seconds, 1e-9);
    }
    if (gw_comm_rank(cb->comm) == 0 && j->f->ncurves < MAX_CURVES)
        j->f->curves[j->f->ncurves++] = c;
    return GW_OK;
}

static bool can(const gw_collbench *cb, gw_coll_kind kind, const gw_algorithm *a) {
    gw_collbench_case k = {.kind = kind, .dtype = GW_F32, .bytes = 1024};
    gw_coll_part part;
    const char *why;
    gw_coll c = gw_collbench_coll(cb, &k, &part);
    return (a->kinds >> kind & 1u) && a->supports(&c, gw_comm_machine(cb->comm), &why);
}

/* A message's latency and rate: an all-to-all by pairs is n-1 messages one after another. */
static gw_status time_messages(const job *j, gw_collbench *cb, gw_diags *dg) {
    int64_t n = gw_comm_size(cb->comm), large = GW_MIN(j->max_bytes, (int64_t)4 << 20);
    gw_collbench_case k = {.kind = GW_COLL_ALL_TO_ALL,
                           .dtype = GW_F32,
                           .algorithm = "pairwise",
                           .bytes = 64 * n,
                           .samples = 15,
                           .seconds_s = j->seconds_s};
    gw_collbench_time small, big, copies;
    GW_TRY(gw_collbench_run(cb, &k, &small, dg));
    k.bytes = large;
    GW_TRY(gw_collbench_run(cb, &k, &big, dg));
    GW_TRY(gw_collbench_copies(cb, large, 15, j->seconds_s, &copies, dg));
    if (gw_comm_rank(cb->comm) != 0) return GW_OK;
    double steps = (double)(n - 1);
    j->f->latency_s = GW_MAX(small.seconds / steps, 1e-9);
    double moved = (double)large * steps / (double)n, time = big.seconds - small.seconds;
    j->f->bytes_per_s = moved / GW_MAX(time, 1e-9);
    j->f->copy_bytes_per_s = (double)large / GW_MAX(copies.seconds, 1e-9);
    return GW_OK;
}

/* Bytes a second that one thread adds to others, from and to memory, while all ranks do. */
static gw_status time_sums(const job *j, gw_collbench *cb, gw_diags *dg) {
    int64_t n = cb->max_bytes / 4, least = INT64_MAX;
    char *base = cb->region.data;
    memset(base, 0, (size_t)cb->max_bytes);
    for (int i = 0; i < 5; i++) {
        GW_TRY(gw_comm_barrier(cb->comm, "sums", dg));
        int64_t start = gw_clock_ns();
        gw_sum_add(base, base + cb->max_bytes, GW_F32, n, false);
        int64_t ns = gw_clock_ns() - start;
        GW_TRY(gw_comm_max_i64(cb->comm, &ns, 1, "sums", dg));
        least = GW_MIN(least, ns);
    }
    j->f->sum_bytes_per_s = (double)(n * 4) / (double)GW_MAX(least, 1) * 1e9;
    return GW_OK;
}

static gw_status measure(const job *j, gw_collbench *cb, gw_diags *dg) {
    memset((char *)cb->region.data + cb->max_bytes, 0, (size_t)cb->max_bytes);
    GW_TRY(time_messages(j, cb, dg));
    GW_TRY(time_sums(j, cb, dg));
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        for (int a = 0; gw_algorithm_at(a); a++)
            if (can(cb, (gw_coll_kind)k, gw_algorithm_at(a)))
                GW_TRY(time_curve(j, cb, (gw_coll_kind)k, a, dg));
    j->f->threads = cb->threads;
    return GW_OK;
}

/* Ops are measured with the fewest and the most ranks that have a core each: others lie between. */
static bool has_side(const job *j, int ranks) {
    return ranks <= j->cores && (ranks == j->fewest || ranks == j->most);
}

static gw_status body(gw_cli *cli, gw_comm *comm, void *user) {
    job *j = user;
    gw_collbench cb = {0};
    if (!comm) return gw_cli_usage_error(cli, "calibrate takes two ranks or more");
    j->rank = true;
    j->me = gw_comm_rank(comm);
    gw_status st = gw_collbench_open(&cb, comm, j->max_bytes,
                                     gw_collbench_scratch(comm, j->max_bytes), cli->diags);
    if (st == GW_OK) st = measure(j, &cb, cli->diags);
    gw_collbench_close(&cb);
    if (st == GW_OK && j->ops_s > 0 && has_side(j, gw_comm_size(comm)))
        st = gw_calib_run(cli, comm, j->dir, j->ops_s, &j->f->ops);
    return st;
}

/* ---- the file ---- */

/* Bytes a second of one file's way to the disk and back, beside `path`; 0 where it cannot be told.
 */
static void time_storage(const char *path, gw_arena *a, double *to, double *from) {
    enum { BYTES = 64 << 20, PIECE = 1 << 20 };
    char *name = gw_arena_printf(a, "%s.disk-XXXXXX", gw_output_is_standard(path) ? "gw" : path);
    char *piece = gw_arena_alloc(a, PIECE);
    int fd = mkostemp(name, O_CLOEXEC);
    bool ok = fd >= 0;
    if (!ok) return;
    memset(piece, 1, PIECE);
    int64_t start = gw_clock_ns();
    for (int i = 0; ok && i < BYTES / PIECE; i++) ok = write(fd, piece, PIECE) == PIECE;
    ok = ok && fsync(fd) == 0;
    if (ok) *to = BYTES / ((double)(gw_clock_ns() - start) * 1e-9);
    ok = ok && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    start = gw_clock_ns();
    for (int i = 0; ok && i < BYTES / PIECE; i++)
        ok = pread(fd, piece, PIECE, (off_t)i * PIECE) == PIECE;
    if (ok) *from = BYTES / ((double)(gw_clock_ns() - start) * 1e-9);
    close(fd);
    unlink(name);
}

/* The rate of the fastest op that passes more through memory than caches hold. */
static double memory_rate(const gw_timings *t) {
    double best = 0;
    for (int i = 0; i < t->n; i++) {
        const gw_timing *x = &t->timings[i];
        bool passes = strcmp(x->op, "adamw") == 0 || strcmp(x->op, "sqnorm") == 0;
        if (x->ranks == 1 && passes && x->shape.x[0] > 128e6)
            best = GW_MAX(best, x->shape.work / x->seconds);
    }
    return best;
}

static gw_calibration calibration_of(const findings *f, const gw_probe *p, gw_arena *a) {
    gw_calibration_curve *x = gw_arena_new(a, gw_calibration_curve, f->ncurves + 1);
    for (int i = 0; i < f->ncurves; i++) {
        const curve *c = &f->curves[i];
        x[i] = (gw_calibration_curve){c->kind,      gw_algorithm_at(c->algorithm)->name,
                                      GW_WIRE_SAME, GW_F32,
                                      c->ranks,     c->n,
                                      c->bytes,     c->seconds};
    }
    return (gw_calibration){.cpu = p->cpu_model ? p->cpu_model : "unknown",
                            .cores = (int)gw_probe_usable_cores(p),
                            .threads = GW_MAX(f->threads, 1),
                            .latency_s = f->latency_s,
                            .bytes_per_s = f->bytes_per_s,
                            .copy_bytes_per_s = f->copy_bytes_per_s,
                            .sum_bytes_per_s = f->sum_bytes_per_s,
                            .ncurves = f->ncurves,
                            .curves = x};
}

static gw_timings timings_of(gw_cli *cli, const findings *f, const gw_probe *p,
                             const gw_data_rates *data, const char *path) {
    char *host = gw_arena_alloc(cli->arena, 128), *cpu = gw_arena_alloc(cli->arena, 128);
    char *date = gw_arena_alloc(cli->arena, 32);
    gw_timings t = {.comm = calibration_of(f, p, cli->arena)};
    gw_calib_timings(&f->ops, cli->arena, &t);
    gw_timings_host(host, cpu);
    t.host = host;
    t.cpu = cpu;
    t.date = gw_clock_iso(date, gw_clock_wall());
    t.isa = gw_isa_name(gw_machine_this(0).isa);
    t.version = GW_VERSION;
    t.cores = (int)gw_probe_usable_cores(p);
    t.memory_bytes = (double)gw_probe_usable_memory(p);
    t.memory_bytes_per_s = memory_rate(&t);
    time_storage(path, cli->arena, &t.storage_write, &t.storage_read);
    t.data = *data;
    return t;
}

static void print_ops(gw_cli *cli, const gw_timings *t, int programs) {
    char si[4][32];
    fprintf(cli->out, "%s of %s: %d times of ops, from %d models; products up to %sFLOP/s in f32",
            t->cpu, t->host, t->n, programs, gw_fmt_si(si[0], gw_timings_peak(t, GW_F32)));
    fprintf(cli->out, ", %sFLOP/s in bf16; memory %sB/s; disk %sB/s to, %sB/s from\n",
            gw_fmt_si(si[0], gw_timings_peak(t, GW_BF16)), gw_fmt_si(si[1], t->memory_bytes_per_s),
            gw_fmt_si(si[2], t->storage_write), gw_fmt_si(si[3], t->storage_read));
    fprintf(cli->out, "a core tokenizes %sB/s of text, makes tokens of %sB/s of HTML, ",
            gw_fmt_si(si[0], t->data.tokenize_bytes_per_s),
            gw_fmt_si(si[1], t->data.pipeline_bytes_per_s));
    fprintf(cli->out, "loads %stokens/s\n", gw_fmt_si(si[2], t->data.loader_tokens_per_s));
}

static gw_status write_file(gw_cli *cli, const findings *f, const char *dir) {
    gw_probe p;
    gw_data_rates data = {0};
    const char *path = gw_cli_string(cli, "out", GW_CALIBRATION_FILE);
    gw_probe_machine(&p, cli->arena);
    gw_timings t = {.comm = calibration_of(f, &p, cli->arena)};
    if (f->ops.n > 0) GW_TRY(gw_calib_data_rates(dir, &data, cli->diags));
    if (f->ops.n > 0) t = timings_of(cli, f, &p, &data, path);
    if (f->ops.n > 0)
        GW_TRY(gw_timings_write(path, cli->out, &t, cli->diags));
    else
        GW_TRY(gw_calibration_write(path, cli->out, &t.comm, cli->diags));
    if (cli->quiet || gw_output_is_standard(path)) return GW_OK;
    fprintf(cli->out,
            "%s: %d curves; a message %.2f us and %.1f GB/s, copies %.1f GB/s, sums %.1f GB/s\n",
            path, f->ncurves, f->latency_s * 1e6, f->bytes_per_s / 1e9, f->copy_bytes_per_s / 1e9,
            f->sum_bytes_per_s / 1e9);
    if (f->ops.n > 0) print_ops(cli, &t, f->ops.programs);
    return GW_OK;
}

/* ---- the command line ---- */

/* Asked of the system alone: nothing that might start a thread comes before the ranks. */
static int64_t usable_cores(void) {
    cpu_set_t set;
    int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
    return GW_MIN(cores, INT64_C(1024));
}

static gw_status read_counts(gw_cli *cli, int *counts, int *n) {
    const char *text = gw_cli_string(cli, "ranks", NULL);
    *n = 0;
    for (const char *p = text; p && *p;) {
        size_t len = strcspn(p, ",");
        int64_t v;
        if (*n == MAX_COUNTS || !gw_parse_i64(gw_arena_strndup(cli->arena, p, len), &v) || v < 2 ||
            v > 1024)
            return gw_cli_usage_error(cli, "--ranks is '%s'; write 2 or 2,4 (from 2 to 1024)",
                                      text);
        counts[(*n)++] = (int)v;
        p += len + (p[len] == ',');
    }
    if (*n) return GW_OK;
    int64_t cores = usable_cores();
    for (int64_t v = 2; v < cores && *n < MAX_COUNTS - 1; v *= 2) counts[(*n)++] = (int)v;
    counts[(*n)++] = (int)GW_MAX(cores, 2);
    return GW_OK;
}

/* Each number of ranks whose ops are measured, one rank alone included, has a part of the time. */
static void share_time(job *j, const int *counts, int n) {
    int sides = 1;
    j->fewest = j->most = counts[0];
    for (int i = 0; i < n; i++) {
        j->fewest = GW_MIN(j->fewest, counts[i]);
        if (counts[i] <= j->cores) j->most = GW_MAX(j->most, counts[i]);
    }
    for (int i = 0; i < n; i++) sides += has_side(j, counts[i]);
    j->ops_s /= sides;
}

static gw_status run_counts(gw_cli *cli, job *j, const int *counts, int n) {
    share_time(j, counts, n);
    for (int i = 0; i < n; i++) {
        gw_status st = gw_cli_on_ranks(cli, counts[i], 60.0, GW_OK, body, j);
        if (st != GW_OK || j->rank) return st;
    }
    if (j->ops_s > 0) GW_TRY(gw_calib_run(cli, NULL, j->dir, j->ops_s, &j->f->ops));
    return write_file(cli, j->f, j->dir);
}

/* The data that ops are measured on, in a folder of its own. */
static gw_status make_data(gw_cli *cli, job *j) {
    snprintf(j->dir, sizeof j->dir, "/tmp/gradwright-calibrate-XXXXXX");
    if (!mkdtemp(j->dir)) {
        j->dir[0] = 0;
        return GW_FAIL(cli->diags, GW_ERR_IO, "file-write", "no folder can be made below /tmp");
    }
    return gw_calib_data(j->dir, cli->diags);
}

static void remove_data(const job *j) {
    static const char *const names[] = {"narrow.bin",
                                        "narrow.idx",
                                        "wide.bin",
                                        "wide.idx",
                                        "images-images-idx3-ubyte",
                                        "images-labels-idx1-ubyte"};
    char path[160];
    if (!j->dir[0] || j->rank) return;
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", j->dir, names[i]);
        unlink(path);
    }
    rmdir(j->dir);
}

static gw_status run(gw_cli *cli) {
    int counts[MAX_COUNTS], n;
    job j = {.max_bytes = gw_cli_int(cli, "max-size", (int64_t)4 << 20),
             .seconds_s = gw_cli_double(cli, "seconds", 0.02),
             .ops_s = gw_cli_double(cli, "ops-seconds", 36),
             .cores = (int)usable_cores()};
    if (j.max_bytes < 1024 || j.max_bytes > (int64_t)1 << 40)
        return gw_cli_usage_error(cli, "--max-size takes 1KiB to 1TiB");
    if (j.seconds_s <= 0.0 || j.seconds_s > 3600.0)
        return gw_cli_usage_error(cli, "--seconds takes a number above 0");
    if (j.ops_s < 0.0 || j.ops_s > 36000.0)
        return gw_cli_usage_error(cli, "--ops-seconds takes a number from 0");
    GW_TRY(read_counts(cli, counts, &n));
    void *shared =
        mmap(NULL, sizeof *j.f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return GW_FAIL(cli->diags, GW_ERR_MEMORY, "host-memory", "no memory for the figures");
    j.f = shared;
    gw_status st = j.ops_s > 0 ? make_data(cli, &j) : GW_OK;
    if (st == GW_OK) st = run_counts(cli, &j, counts, n);
    remove_data(&j);
    munmap(shared, sizeof *j.f);
    return st;
}

const gw_command gw_cmd_calibrate = {
    .name = "calibrate",
    .summary = "measure this machine: collectives, ops, data, for plans",
    .usage = {"[--ranks N,N] [--out FILE]"},
    .description = "Times collectives, ops and the making of data here, in under two minutes, for\n"
                   "choices of algorithms (layout.calibration) and plans (`plan --hardware this`).",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = 0,
    .completes = GW_COMPLETE_NONE,
    .example = "gradwright calibrate --ranks 2 --out calibration.json",
    .run = run,
};
