// SPDX-License-Identifier: Apache-2.0
// The loader: a ring of prepared steps and one thread that fills it.
//
// A slot holds one step's micro-batches of this rank. The caller holds one slot, the thread fills
// the others in order; with prefetch 0 there is no thread and the one slot is filled on demand.
// What a slot holds is a function of the step's first sample alone, so timing cannot change a
// batch. All memory is one block from open; steps are counted, not copied.
//
// Valid labels are counted for every row of the global batch, also those of other ranks, without
// reading them: the divisor of the loss is known before the step begins.
//
// Time is kept by cause: the thread says what it is at (fetching, decompressing, filling rows,
// nothing), on a stopwatch that the caller can read. While the caller waits for a step, what the
// hands of that stopwatch move is what it waited for.
//
// One mutex guards the counters; the flag `interrupt` is atomic so that the thread can look at it
// between two rows without the mutex. A data error ends the thread; the step it belongs to reports
// it.
#include "data/loader.h" /* gw_loader */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */

typedef struct slot {
    gw_step_batch batch;
    gw_micro_batch *micro; /* [K] */
    int32_t *ints;         /* [K, 4, b, s] tokens, labels, positions, docs */
    int64_t *ids;          /* [K, b] */
    gw_status status;
} slot;

struct gw_loader {
    gw_tokens *ds;
    gw_loader_options opt;
    int64_t seq_len, global_batch;
    slot *slots;
    int64_t nslots;
    void *block; /* ints and ids of all slots */
    gw_diags errors;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_bool interrupt; /* leave the step that is being filled */
    bool stop, busy;
    int64_t origin; /* sample at which step 0 of the ring begins */
    int64_t filled; /* steps filled since origin */
    int64_t given;  /* steps handed out since origin */
    gw_load_clock clock;
    int64_t waits[GW_LOAD_CAUSES]; /* of the latest gw_loader_next */
};

/* ---- filling ------------------------------------------------------------------------------------
 */

static gw_status count_step(gw_loader *l, slot *s, int64_t first) {
    gw_step_batch *b = &s->batch;
    b->count = l->opt.accumulate;
    b->micro = s->micro;
    b->step_labels = b->step_tokens = 0;
    for (int64_t n = first; n < b->next_sample && !atomic_load(&l->interrupt); n++) {
        int64_t valid, inputs;
        GW_TRY(gw_tokens_measure(l->ds, n, &valid, &inputs, &l->errors));
        b->step_labels += valid;
        b->step_tokens += inputs;
    }
    return GW_OK;
}

static gw_status fill_micro(gw_loader *l, slot *s, int64_t k, int64_t first) {
    int64_t b = l->opt.micro_batch, n = l->seq_len, plane = b * n;
    int32_t *ints = s->ints + k * 4 * plane;
    int64_t *ids = s->ids + k * b;
    s->micro[k].valid = 0;
    int64_t row0 = first + (k * l->opt.dp_size + l->opt.dp_rank) * b;
    for (int64_t i = 0; i < b && !atomic_load(&l->interrupt); i++) {
        gw_sample row = {.tokens = ints + i * n,
                         .labels = ints + plane + i * n,
                         .positions = ints + 2 * plane + i * n,
                         .docs = ints + 3 * plane + i * n};
        GW_TRY(gw_tokens_sample(l->ds, row0 + i, &row, &l->errors));
        ids[i] = row.id;
        s->micro[k].valid += row.valid;
    }
    return GW_OK;
}

static void fill(gw_loader *l, slot *s, int64_t first) {
    gw_load_cause before = gw_load_clock_enter(&l->clock, GW_LOAD_DECODE);
    s->status = gw_tokens_check(l->ds, &l->errors);
    s->batch.first_sample = first;
    s->batch.next_sample = first + l->global_batch;
    if (s->status == GW_OK) gw_tokens_pass(l->ds, first);
    if (s->status == GW_OK) s->status = count_step(l, s, first);
    for (int64_t k = 0; k < l->opt.accumulate && s->status == GW_OK; k++)
        s->status = fill_micro(l, s, k, first);
    (void)gw_load_clock_enter(&l->clock, before);
}

/* ---- the thread ---------------------------------------------------------------------------------
 */

/* The caller may hold the step given last, so that slot is not free. */
static bool has_room(const gw_loader *l) {
    int64_t released = l->given > 0 ? l->given - 1 : 0;
    return l->filled < released + l->nslots;
}

static void *run(void *arg) {
    gw_loader *l = arg;
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        bool failed = l->filled > 0 && l->slots[(l->filled - 1) % l->nslots].status != GW_OK;
        if (failed || !has_room(l) || atomic_load(&l->interrupt)) {
            pthread_cond_wait(&l->changed, &l->mutex);
            continue;
        }
        slot *s = &l->slots[l->filled % l->nslots];
        int64_t first = l->origin + l->filled * l->global_batch;
        l->busy = true;
        pthread_mutex_unlock(&l->mutex);
        fill(l, s, first);
        pthread_mutex_lock(&l->mutex);
        l->busy = false;
        if (!atomic_load(&l->interrupt)) l->filled++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------------
 */

static gw_status check_options(const gw_loader_options *o, int64_t seq_len, gw_diags *dg) {
    if (o->micro_batch < 1 || o->accumulate < 1 || o->dp_size < 1 || o->dp_rank < 0 ||
        o->dp_rank >= o->dp_size || o->first_sample < 0 || o->prefetch < 0)
        return GW_FAIL(
            dg, GW_ERR_CONFIG, "data-loader",
            "micro-batch %lld, accumulate %lld, dp rank %lld of %lld, first sample %lld, "
            "prefetch %lld are not all in range",
            (long long)o->micro_batch, (long long)o->accumulate, (long long)o->dp_rank,
            (long long)o->dp_size, (long long)o->first_sample, (long long)o->prefetch);
    int64_t rows, cells;
    if (__builtin_mul_overflow(o->micro_batch, o->accumulate, &rows) ||
        __builtin_mul_overflow(rows, seq_len, &cells) || cells > ((int64_t)1 << 40) ||
        o->prefetch > 1000 || __builtin_mul_overflow(rows, o->dp_size, &cells))
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-loader",
                       "a step of %lld x %lld rows of %lld tokens", (long long)o->micro_batch,
                       (long long)o->accumulate, (long long)seq_len);
    return GW_OK;
}

static int64_t slot_bytes(int64_t seq_len, const gw_loader_options *o) {
    int64_t rows = o->micro_batch * o->accumulate;
    int64_t ints = (rows * seq_len * 4 * (int64_t)sizeof(int32_t) + 63) / 64 * 64;
    int64_t ids = (rows * (int64_t)sizeof(int64_t) + 63) / 64 * 64;
    return ints + ids;
}

int64_t gw_loader_bytes_for(int64_t seq_len, const gw_loader_options *o) {
    int64_t n = o->prefetch + 1;
    int64_t tables = (int64_t)sizeof(slot) + o->accumulate * (int64_t)sizeof(gw_micro_batch);
    return (int64_t)sizeof(gw_loader) + n * (tables + slot_bytes(seq_len, o));
}

static void lay_out(gw_loader *l) {
    int64_t b = l->opt.micro_batch, k = l->opt.accumulate, plane = b * l->seq_len;
    int64_t each = slot_bytes(l->seq_len, &l->opt);
    l->slots = gw_mem_zalloc((size_t)l->nslots * sizeof *l->slots);
    l->block = gw_mem_zalloc((size_t)(l->nslots * each));
    for (int64_t i = 0; i < l->nslots; i++) {
        slot *s = &l->slots[i];
        char *at = (char *)l->block + i * each;
        int64_t ids = (k * b * (int64_t)sizeof(int64_t) + 63) / 64 * 64;
        s->ids = (int64_t *)(void *)at;
        s->ints = (int32_t *)(void *)(at + ids);
        s->micro = gw_mem_zalloc((size_t)k * sizeof *s->micro);
        for (int64_t m = 0; m < k; m++) {
            const int32_t *p = s->ints + m * 4 * plane;
            s->micro[m] = (gw_micro_batch){.tokens = p,
                                           .labels = p + plane,
                                           .positions = p + 2 * plane,
                                           .docs = p + 3 * plane,
                                           .sample_ids = s->ids + m * b};
        }
    }
}

gw_status gw_loader_open(gw_tokens *ds, const gw_loader_options *options, gw_loader **out,
                         gw_diags *dg) {
    *out = NULL;
    GW_TRY(check_options(options, gw_tokens_seq_len(ds), dg));
    gw_loader *l = gw_mem_zalloc(sizeof *l);
    l->ds = ds;
    l->opt = *options;
    l->seq_len = gw_tokens_seq_len(ds);
    l->global_batch = options->micro_batch * options->accumulate * options->dp_size;
    l->nslots = options->prefetch + 1;
    l->origin = options->first_sample;
    gw_diags_init(&l->errors);
    gw_load_clock_init(&l->clock);
    gw_tokens_set_clock(ds, &l->clock);
    lay_out(l);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->changed, NULL);
    atomic_init(&l->interrupt, false);
    int rc = options->prefetch ? pthread_create(&l->thread, NULL, run, l) : 0;
    l->has_thread = options->prefetch && rc == 0;
    if (rc) {
        gw_loader_close(l);
        gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "data-thread", (gw_where){0},
                                 "cannot start the loader's thread: %s", strerror(rc));
        gw_diag_hint(dg, d,
                     "raise ulimit -u, ulimit -v or the cgroup's pids.max, or set "
                     "data.prefetch_steps to 0");
        return GW_ERR_MEMORY;
    }
    *out = l;
    return GW_OK;
}

void gw_loader_close(gw_loader *l) {
    if (!l) return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->mutex);
        l->stop = true;
        atomic_store(&l->interrupt, true);
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
    }
    gw_tokens_set_clock(l->ds, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    for (int64_t i = 0; i < l->nslots; i++) gw_mem_free(l->slots[i].micro);
    gw_mem_free(l->slots);
    gw_mem_free(l->block);
    gw_diags_release(&l->errors);
    gw_mem_free(l);
}

/* ---- use ----------------------------------------------------------------------------------------
 */

/* Passes on the error that the thread met. */
static gw_status report(const gw_loader *l, const slot *s, gw_diags *dg) {
    for (const gw_diag *g = l->errors.first; g; g = g->next)
        if (g->severity == GW_ERROR) {
            gw_diag *copy = gw_diag_add(dg, GW_ERROR, g->code, g->id, g->where, "%s", g->message);
            if (g->hint) gw_diag_hint(dg, copy, "%s", g->hint);
        }
    gw_diag_frame(dg, "loading samples %lld to %lld", (long long)s->batch.first_sample,
                  (long long)s->batch.next_sample - 1);
    return s->status;
}

/* What the stopwatch's hands moved since `from`; the rest of the wait is QUEUE. */
static void take_waits(gw_loader *l, const int64_t from[GW_LOAD_CAUSES], int64_t wait) {
    int64_t to[GW_LOAD_CAUSES], left = wait;
    gw_load_clock_read(&l->clock, to);
    for (int i = GW_LOAD_CAUSES - 1; i > GW_LOAD_QUEUE; i--) {
        l->waits[i] = GW_MAX((int64_t)0, GW_MIN(to[i] - from[i], left));
        left -= l->waits[i];
    }
    l->waits[GW_LOAD_QUEUE] = left;
}

gw_status gw_loader_next(gw_loader *l, const gw_step_batch **out, gw_diags *dg) {
    int64_t from[GW_LOAD_CAUSES], begun = gw_clock_ns();
    *out = NULL;
    gw_load_clock_read(&l->clock, from);
    pthread_mutex_lock(&l->mutex);
    int64_t step = l->given;
    slot *s = &l->slots[step % l->nslots];
    bool failed = step > 0 && l->slots[(step - 1) % l->nslots].status != GW_OK;
    if (failed) {
        s = &l->slots[(step - 1) % l->nslots];
    } else {
        l->given++; /* releases the slot held before */
        if (l->has_thread) {
            pthread_cond_broadcast(&l->changed);
            while (l->filled <= step) pthread_cond_wait(&l->changed, &l->mutex);
        } else {
            fill(l, s, l->origin + step * l->global_batch);
            l->filled = l->given;
        }
    }
    pthread_mutex_unlock(&l->mutex);
    take_waits(l, from, gw_clock_ns() - begun);
    if (s->status != GW_OK) return report(l, s, dg);
    *out = &s->batch;
    return GW_OK;
}

void gw_loader_waits(const gw_loader *l, int64_t ns[GW_LOAD_CAUSES]) {
    memcpy(ns, l->waits, sizeof l->waits);
}

void gw_loader_times(gw_loader *l, int64_t ns[GW_LOAD_CAUSES]) {
    gw_load_clock_read(&l->clock, ns);
}

int64_t gw_loader_position(const gw_loader *l) { return l->origin + l->given * l->global_batch; }
int64_t gw_loader_global_batch(const gw_loader *l) { return l->global_batch; }
int64_t gw_loader_bytes(const gw_loader *l) { return gw_loader_bytes_for(l->seq_len, &l->opt); }

void gw_loader_seek(gw_loader *l, int64_t sample) {
    pthread_mutex_lock(&l->mutex);
    atomic_store(&l->interrupt, true);
    while (l->busy) pthread_cond_wait(&l->changed, &l->mutex);
    l->origin = sample;
    l->filled = l->given = 0;
    for (int64_t i = 0; i < l->nslots; i++) l->slots[i].status = GW_OK;
    gw_diags_clear(&l->errors);
    atomic_store(&l->interrupt, false);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}
