// SPDX-License-Identifier: Apache-2.0
// Our side of bench/checkpoint: ranks that hold a state and save or load it when they are told to.
//
//   build/release/bench/checkpoint RANKS TENSORS REQUESTS
//
// TENSORS is a file, [{"name": .., "dims": [..], "cut": true}, ..]: float32, cut by its first
// dimension over the ranks, or whole on each. Rank r reads its requests from REQUESTS.r, a pipe,
// one line of JSON each, so that a rank that has nothing to do sleeps and needs no other:
//
//   {"do": "save", "folder": PATH, "async": true}    a checkpoint of the state; async: as a run
//                                                    does that goes on with its steps
//   {"do": "load", "folder": PATH, "check": true}    what was saved there by any number of ranks
//   {"do": "steps", "n": 50, "step_s": 0.06,         steps of fixed work on one thread a rank, each
//    "folder": PATH or ""}                           ended by a barrier; with a folder, a save is
//                                                    begun after a fifth of them and committed
//                                                    between two later ones, as a run does it
//   {"do": "end"}
//
// Rank 0 says when all hold the state, and answers each request with a line of JSON. A time is the
// slowest rank's, from a barrier on:
//
//   held_s     what a step waits for: of a synchronous save all of it, of an asynchronous one the
//              copy (begin_s) and, later, the commit (end_s)
//   total_s    until the commit, or until every tensor is loaded
//   cpu_s      processor time of all ranks, of every thread; of steps, that of the writers alone
//   memory     the largest rank's peak beyond what it had before, free memory given back; at least
//              the save's buffer, which stays mapped from one save to the next
//
// Elements are a function of tensor and position, the same in torch_checkpoint.py; what was loaded
// is compared with it, and a wrong one ends the program.
#include <jansson.h>
#include <malloc.h> /* malloc_trim */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h" /* gw_clock_ns */
#include "ckpt/checkpoint.h"
#include "ckpt/save.h"
#include "comm/launch.h"   /* gw_launch */
#include "kernel/kernel.h" /* gw_machine_this */

/* The state changes in the last part of a step, one of so many. */
enum { PATIENCE_S = 3600, VALUES = 1 << 23, WORK = 1 << 16, OPTIMIZER = 10 };

typedef struct bench {
    gw_arena mem;
    gw_comm *comm; /* NULL: one rank */
    int rank, ranks;
    gw_mesh mesh;
    gw_ckpt_tensor *tensors;
    int n;
    gw_ckpt_keep *keep;
    float *work;   /* [WORK] */
    int64_t spins; /* of it, that make a step */
} bench;

/* What a rank measured; all doubles, so that ranks exchange it as it is. */
typedef struct figures {
    double begin_s, end_s, held_s, total_s, cpu_s, copy_s, memory, bytes;
} figures;

/* ---- the state ---- */

static int64_t elems_of(const gw_ckpt_tensor *t, int ranks) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->dims[i];
    return t->type->dims[0].naxes ? n / ranks : n;
}

/* The whole tensor's element at which this rank's begin. */
static int64_t first_of(const bench *b, const gw_ckpt_tensor *t) {
    return t->type->dims[0].naxes ? elems_of(t, b->ranks) * b->rank : 0;
}

static float value_of(int tensor, int64_t element) {
    return (float)((tensor * INT64_C(7919) + element) & (VALUES - 1));
}

static gw_type *type_of(bench *b, const gw_ckpt_tensor *t, bool cut) {
    gw_type *type = gw_arena_new(&b->mem, gw_type, 1);
    *type = gw_type_scalar(t->dtype);
    for (int i = 0; i < t->ndim; i++) gw_type_add(type, i == 0 ? "f" : "d", t->dims[i]);
    for (int i = 0; cut && i < b->mesh.naxes; i++)
        type->dims[0].axes[type->dims[0].naxes++] = (uint8_t)i;
    return type;
}

static gw_status add_tensor(bench *b, int i, const json_t *row, gw_diags *dg) {
    gw_ckpt_tensor *t = &b->tensors[i];
    const json_t *dims = json_object_get(row, "dims");
    bool cut = json_is_true(json_object_get(row, "cut"));
    *t = (gw_ckpt_tensor){.name = json_string_value(json_object_get(row, "name")),
                          .dtype = GW_F32,
                          .ndim = (int)json_array_size(dims),
                          .mesh = &b->mesh,
                          .rank = b->rank};
    if (!t->name || t->ndim < 1 || t->ndim > 2)
        return GW_FAIL(dg, GW_ERR_USAGE, "bench", "row %d of the tensors is none", i);
    for (int k = 0; k < t->ndim; k++)
        t->dims[k] = json_integer_value(json_array_get(dims, (size_t)k));
    if (cut && t->dims[0] % b->ranks)
        return GW_FAIL(dg, GW_ERR_USAGE, "bench", "%s cannot be cut in %d equal parts", t->name,
                       b->ranks);
    t->type = type_of(b, t, cut);
    int64_t n = elems_of(t, b->ranks), first = first_of(b, t);
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) return GW_FAIL(dg, GW_ERR_MEMORY, "bench", "no memory for %s", t->name);
    for (int64_t k = 0; k < n; k++) x[k] = value_of(i, first + k);
    t->data = x;
    return GW_OK;
}

/* `rows` stays: names are borrowed of it. */
static gw_status make_state(bench *b, const json_t *rows, gw_diags *dg) {
    b->n = (int)json_array_size(rows);
    b->tensors = gw_arena_new(&b->mem, gw_ckpt_tensor, b->n + 1);
    if (b->n == 0) return GW_FAIL(dg, GW_ERR_USAGE, "bench", "there are no tensors");
    for (int i = 0; i < b->n; i++) GW_TRY(add_tensor(b, i, json_array_get(rows, (size_t)i), dg));
    return GW_OK;
}

static void spoil(const bench *b) {
    for (int i = 0; i < b->n; i++)
        memset(b->tensors[i].data, 0xff,
               (size_t)elems_of(&b->tensors[i], b->ranks) * sizeof(float));
}

static gw_status compare(const bench *b, gw_diags *dg) {
    for (int i = 0; i < b->n; i++) {
        const float *x = b->tensors[i].data;
        int64_t n = elems_of(&b->tensors[i], b->ranks), first = first_of(b, &b->tensors[i]);
        for (int64_t k = 0; k < n; k++)
            if (!(x[k] == value_of(i, first + k)))
                return GW_FAIL(dg, GW_ERR_FORMAT, "bench", "rank %d: element %lld of %s is wrong",
                               b->rank, (long long)k, b->tensors[i].name);
    }
    return GW_OK;
}

/* ---- what a process has used ---- */

/* A line of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *key) {
    char line[256];
    int64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoll(line + strlen(key), NULL, 10);
    if (f) fclose(f);
    return kib * 1024;
}

/* Gives free memory back and sets the peak to what is held then; returns that. */
static int64_t forget_peak(void) {
    malloc_trim(0);
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
    return status_bytes("VmRSS:");
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static double since(int64_t ns) { return (double)(gw_clock_ns() - ns) * 1e-9; }

static gw_status together(const bench *b, gw_diags *dg) {
    return b->comm ? gw_comm_barrier(b->comm, "a turn of the bench", dg) : GW_OK;
}

/* ---- requests ---- */

/* A run looks between its steps whether all ranks' files are written; here nothing else runs. */
static gw_status until_written(const bench *b, const gw_ckpt_save *s, gw_diags *dg) {
    struct timespec step = {.tv_nsec = 1000000};
    int64_t from = gw_clock_ns();
    while (!gw_checkpoint_poll(s) && since(from) < PATIENCE_S) nanosleep(&step, NULL);
    return together(b, dg);
}

static gw_status save(const bench *b, const char *folder, bool async, figures *f, gw_diags *dg) {
    gw_ckpt_save *s;
    gw_ckpt_stats stats;
    gw_ckpt_options o = {
        .run_dir = folder, .comm = b->comm, .keep = async ? b->keep : NULL, .direct = !async};
    gw_ckpt_meta meta = {.step = 1, .batch = 1, .loss_scale = 1.0};
    int64_t from = gw_clock_ns();
    GW_TRY(gw_checkpoint_begin(&s, &o, &meta, b->tensors, b->n, dg));
    f->begin_s = since(from);
    if (async) GW_TRY(until_written(b, s, dg));
    int64_t written = gw_clock_ns();
    GW_TRY(gw_checkpoint_end(s, &stats, dg));
    f->end_s = since(written);
    f->held_s = f->begin_s + f->end_s;
    f->bytes = (double)stats.bytes;
    f->memory = (double)stats.buffer_bytes;
    return GW_OK;
}

/* ---- steps ---- */

/* Work in the caches, `spins` times over. */
__attribute__((noinline)) static void spin(const bench *b, int64_t spins) {
    for (int64_t k = 0; k < spins; k++)
        for (int i = 0; i < WORK; i++) b->work[i] = b->work[i] * 0.999f + 0.001f;
}

/* How much of it makes a step, for all ranks; once. */
static gw_status measure_step(bench *b, double step_s, gw_diags *dg) {
    double fastest = 1e9;
    if (b->spins > 0) return GW_OK;
    b->work = calloc(WORK, sizeof *b->work);
    if (!b->work) return GW_FAIL(dg, GW_ERR_MEMORY, "bench", "no memory for work");
    enum { TIMES = 7, SPINS = 2000 };
    for (int i = 0; i < TIMES; i++) {
        GW_TRY(together(b, dg)); /* all ranks spin at once, as they will */
        int64_t from = gw_clock_ns();
        spin(b, SPINS);
        fastest = GW_MIN(fastest, since(from) / SPINS);
    }
    b->spins = GW_MAX((int64_t)(step_s / fastest), INT64_C(1));
    return b->comm ? gw_comm_broadcast(b->comm, &b->spins, sizeof b->spins, "spins", dg) : GW_OK;
}

/* Is every rank's file written? Then it is committed. */
static gw_status try_commit(const bench *b, gw_ckpt_save **s, bool wait, figures *f, gw_diags *dg) {
    gw_ckpt_stats stats;
    int64_t unfinished = !gw_checkpoint_poll(*s), from = gw_clock_ns();
    if (b->comm) GW_TRY(gw_comm_max_i64(b->comm, &unfinished, 1, "written?", dg));
    if (unfinished && !wait) return GW_OK;
    gw_ckpt_save *done = *s;
    *s = NULL;
    GW_TRY(gw_checkpoint_end(done, &stats, dg));
    f->end_s = since(from);
    f->cpu_s = stats.cpu_s;
    f->copy_s = stats.copy_s;
    f->bytes = (double)stats.bytes;
    f->memory = (double)stats.buffer_bytes;
    return GW_OK;
}

static gw_status steps(bench *b, int64_t n, double step_s, const char *folder, figures *f,
                       gw_diags *dg) {
    gw_ckpt_save *s = NULL;
    gw_ckpt_options o = {.run_dir = folder, .comm = b->comm, .keep = b->keep};
    o.late = gw_machine_this(0).threads > 1; /* a rank computes on one */
    gw_ckpt_meta meta = {.step = 1, .batch = 1, .loss_scale = 1.0};
    GW_TRY(measure_step(b, step_s, dg));
    GW_TRY(together(b, dg));
    int64_t begun = gw_clock_ns();
    for (int64_t i = 0; i < n; i++) {
        spin(b, b->spins - b->spins / OPTIMIZER);
        int64_t changes = gw_clock_ns();
        if (s) gw_checkpoint_take(s);
        f->begin_s += since(changes);
        spin(b, b->spins / OPTIMIZER);
        GW_TRY(together(b, dg));
        if (s) GW_TRY(try_commit(b, &s, i + 1 == n, f, dg));
        if (!*folder || i != n / 5) continue;
        int64_t from = gw_clock_ns();
        GW_TRY(gw_checkpoint_begin(&s, &o, &meta, b->tensors, b->n, dg));
        f->begin_s += since(from);
    }
    f->total_s = since(begun);
    f->held_s = f->begin_s + f->end_s;
    return GW_OK;
}

static gw_status load(const bench *b, const char *folder, figures *f, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_list list;
    gw_ckpt_manifest *m;
    gw_ckpt_loaded loaded = {0};
    gw_status st = gw_checkpoint_list(folder, &mem, &list, dg);
    if (st == GW_OK && (list.n == 0 || list.items[0].state != GW_CKPT_COMPLETE))
        st = GW_FAIL(dg, GW_ERR_FORMAT, "bench", "%s has no checkpoint", folder);
    if (st == GW_OK) st = gw_checkpoint_read(list.items[0].path, &mem, &m, dg);
    if (st == GW_OK) st = gw_checkpoint_load(m, b->tensors, b->n, &loaded, dg);
    f->bytes = (double)loaded.bytes_read;
    gw_arena_release(&mem);
    return st;
}

static gw_status answer(const bench *b, const figures *mine, gw_diags *dg) {
    figures one = *mine, *all = &one;
    if (b->comm) {
        all = calloc((size_t)b->ranks, sizeof *all);
        gw_status st = all ? gw_comm_all_gather(b->comm, mine, sizeof *mine, all, "figures", dg)
                           : GW_FAIL(dg, GW_ERR_MEMORY, "bench", "no memory for figures");
        for (int r = 0; st == GW_OK && r < b->ranks; r++) {
            one.begin_s = GW_MAX(one.begin_s, all[r].begin_s);
            one.end_s = GW_MAX(one.end_s, all[r].end_s);
            one.held_s = GW_MAX(one.held_s, all[r].held_s);
            one.total_s = GW_MAX(one.total_s, all[r].total_s);
            one.copy_s = GW_MAX(one.copy_s, all[r].copy_s);
            one.memory = GW_MAX(one.memory, all[r].memory);
            one.cpu_s += r == b->rank ? 0.0 : all[r].cpu_s;
            one.bytes += r == b->rank ? 0.0 : all[r].bytes;
        }
        free(all);
        GW_TRY(st);
    }
    if (b->rank != 0) return GW_OK;
    printf("{\"begin_s\": %.6f, \"end_s\": %.6f, \"held_s\": %.6f, \"total_s\": %.6f, "
           "\"cpu_s\": %.6f, \"copy_s\": %.6f, \"memory\": %.0f, \"bytes\": %.0f}\n",
           one.begin_s, one.end_s, one.held_s, one.total_s, one.cpu_s, one.copy_s, one.memory,
           one.bytes);
    return fflush(stdout) == 0 ? GW_OK
                               : GW_FAIL(dg, GW_ERR_IO, "bench", "nobody reads the answers");
}

static gw_status serve(bench *b, const json_t *request, gw_diags *dg) {
    figures f = {0};
    const char *folder = json_string_value(json_object_get(request, "folder"));
    const char *what = json_string_value(json_object_get(request, "do"));
    bool saves = what && strcmp(what, "save") == 0, steps_on = what && strcmp(what, "steps") == 0;
    if (!folder || !what) return GW_FAIL(dg, GW_ERR_USAGE, "bench", "a request says nothing");
    if (!saves && !steps_on) spoil(b);
    int64_t memory = forget_peak();
    GW_TRY(together(b, dg));
    if (steps_on) {
        GW_TRY(steps(b, json_integer_value(json_object_get(request, "n")),
                     json_number_value(json_object_get(request, "step_s")), folder, &f, dg));
        f.memory = GW_MAX(f.memory, (double)(status_bytes("VmHWM:") - memory));
        return answer(b, &f, dg);
    }
    double cpu = cpu_s();
    int64_t from = gw_clock_ns();
    GW_TRY(saves ? save(b, folder, json_is_true(json_object_get(request, "async")), &f, dg)
                 : load(b, folder, &f, dg));
    f.total_s = since(from);
    f.cpu_s = cpu_s() - cpu;
    f.memory = GW_MAX(f.memory, (double)(status_bytes("VmHWM:") - memory));
    if (json_is_true(json_object_get(request, "check"))) GW_TRY(compare(b, dg));
    return answer(b, &f, dg);
}

static gw_status serve_all(bench *b, const char *requests, gw_diags *dg) {
    char *line = NULL;
    size_t room = 0;
    gw_status st = GW_OK;
    bool ended = false;
    FILE *f = fopen(gw_arena_printf(&b->mem, "%s.%d", requests, b->rank), "re");
    if (!f) return GW_FAIL(dg, GW_ERR_IO, "bench", "cannot open %s.%d", requests, b->rank);
    while (st == GW_OK && !ended && getline(&line, &room, f) > 0) {
        json_t *request = json_loads(line, 0, NULL);
        const char *what = json_string_value(json_object_get(request, "do"));
        ended = what && strcmp(what, "end") == 0;
        if (!ended) st = serve(b, request, dg);
        json_decref(request);
    }
    free(line);
    fclose(f);
    return st;
}

static gw_status run(bench *b, char **argv, gw_diags *dg) {
    json_error_t e;
    json_t *rows = json_load_file(argv[2], 0, &e);
    b->rank = b->comm ? gw_comm_rank(b->comm) : 0;
    (void)gw_mesh_add(&b->mesh, "dp", b->ranks);
    b->keep = gw_ckpt_keep_new();
    if (b->comm) gw_comm_set_mesh(b->comm, &b->mesh);
    gw_status st = rows ? make_state(b, rows, dg)
                        : GW_FAIL(dg, GW_ERR_FORMAT, "bench", "%s: %s", argv[2], e.text);
    if (st == GW_OK) st = together(b, dg);
    if (st == GW_OK && b->rank == 0 && (puts("{\"ready\": true}") < 0 || fflush(stdout) != 0))
        st = GW_FAIL(dg, GW_ERR_IO, "bench", "nobody reads the answers");
    if (st == GW_OK) st = serve_all(b, argv[3], dg);
    for (int i = 0; i < b->n; i++) free(b->tensors[i].data);
    gw_ckpt_keep_free(b->keep);
    free(b->work);
    json_decref(rows);
    return st;
}

int main(int argc, char **argv) {
    bench b = {0};
    gw_diags dg;
    gw_launch_role role;
    int code = 2;
    gw_diags_init(&dg);
    b.ranks = argc == 4 ? (int)strtol(argv[1], NULL, 10) : 0;
    if (b.ranks < 1) {
        fprintf(stderr, "usage: checkpoint RANKS TENSORS REQUESTS\n");
        return code;
    }
    gw_launch_opts o = {.ranks = b.ranks, .timeout_s = PATIENCE_S};
    gw_status st = gw_launch(&o, &role, &b.comm, &code, &dg);
    if (st == GW_OK && role == GW_LAUNCH_PARENT) return code;
    if (st == GW_OK) st = run(&b, argv, &dg);
    if (st != GW_OK) gw_diags_print(&dg, stderr, false);
    if (b.comm) gw_launch_leave(b.comm, st == GW_OK, gw_diags_first_error(&dg));
    gw_arena_release(&b.mem);
    gw_diags_release(&dg);
    return st == GW_OK ? 0 : 1;
}
