// SPDX-License-Identifier: Apache-2.0
// The buffer between a rank and its writer.
//
// Blocks pass in an order that both sides know. The buffer is a ring of bytes in which a block
// never wraps: where the end is too short for it, it goes to the beginning and the rest of the end
// is counted with it. Two counters say how many blocks came and went; the mutex is held for
// counting only, never while bytes are copied or written. If everything fits, the rank never waits.
//
// The thread has a lower priority than those that compute and, if a rate is given, sleeps after
// each block until the rate allows the next. When it fails it says so and takes no more; the rank
// then copies nothing, and learns the reason when it joins.
#include "ckpt/stage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/panic.h" /* GW_ASSERT */

enum { NICE = 10 };

typedef struct slot {
    int64_t at, skipped; /* where it stands; bytes of the end before it that are not used */
} slot;

struct gw_ckpt_stage {
    gw_ckpt_writer *w;
    const gw_ckpt_block *blocks;
    slot *slots; /* [n] */
    char *ring;
    int64_t n, capacity, bytes_per_s;
    int64_t head, used; /* next free byte; bytes taken, skipped ones included */
    int64_t came, went; /* blocks */
    int64_t waited_ns, write_ns;
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    bool running, stop;
    atomic_bool done, hurry; /* the rank only waits: no rate holds any more */
    gw_status st;
    gw_ckpt_file file;
    gw_diags diags;
};

/* In short naps, so that who is in a hurry is heard. */
static void sleep_until(const gw_ckpt_stage *s, int64_t ns) {
    for (int64_t left = ns - gw_clock_ns();
         left > 0 && !atomic_load_explicit(&s->hurry, memory_order_relaxed);
         left = ns - gw_clock_ns()) {
        struct timespec t = {.tv_nsec = GW_MIN(left, INT64_C(20000000))};
        nanosleep(&t, NULL);
    }
}

/* Waits for block s->went; false when the save is to stop. */
static bool await_block(gw_ckpt_stage *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->stop && s->came == s->went) pthread_cond_wait(&s->change, &s->lock);
    bool go = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return go;
}

static void release_block(gw_ckpt_stage *s) {
    pthread_mutex_lock(&s->lock);
    s->used -= s->blocks[s->went].bytes + s->slots[s->went].skipped;
    s->went++;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

static gw_status write_blocks(gw_ckpt_stage *s) {
    int64_t start = 0, bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (!await_block(s)) return GW_ERR_INTERRUPTED;
        if (i == 0) start = gw_clock_ns();
        GW_TRY(gw_ckpt_writer_put(s->w, s->ring + s->slots[i].at, &s->diags));
        bytes += s->blocks[i].bytes;
        release_block(s);
        if (s->bytes_per_s > 0)
            sleep_until(s, start + (int64_t)((double)bytes * 1e9 / (double)s->bytes_per_s));
    }
    gw_status st = gw_ckpt_writer_finish(s->w, &s->file, &s->diags);
    s->write_ns = start ? gw_clock_ns() - start : 0;
    return st;
}

static void *run(void *user) {
    gw_ckpt_stage *s = user;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread alone */
    gw_status st = write_blocks(s);
    pthread_mutex_lock(&s->lock);
    s->st = st;
    s->stop = s->stop || st != GW_OK;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

gw_status gw_ckpt_stage_start(gw_ckpt_stage **out, gw_ckpt_writer *w, const gw_ckpt_block *blocks,
                              int64_t n, int64_t capacity, int64_t bytes_per_s, gw_diags *dg) {
    gw_ckpt_stage *s = gw_mem_zalloc(sizeof *s);
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += blocks[i].bytes;
    s->w = w;
    s->blocks = blocks;
    s->n = n;
    s->bytes_per_s = bytes_per_s;
    s->capacity = GW_MIN(total, GW_MAX(capacity, 2 * (int64_t)GW_CKPT_BLOCK));
    s->ring = gw_mem_alloc((size_t)s->capacity + 1);
    s->slots = gw_mem_zalloc(sizeof *s->slots * (size_t)(n + 1));
    gw_diags_init(&s->diags);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    *out = s;
    if (pthread_create(&s->thread, NULL, run, s) == 0) {
        s->running = true;
        return GW_OK;
    }
    gw_ckpt_stage_free(s);
    *out = NULL;
    return GW_FAIL(dg, GW_ERR_MEMORY, "checkpoint-thread",
                   "cannot start a thread to write a checkpoint");
}

/* Finds room for a block; called with the lock. */
static bool find_room(gw_ckpt_stage *s, int64_t bytes, slot *at) {
    *at = (slot){.at = s->head};
    if (s->head + bytes > s->capacity) *at = (slot){.at = 0, .skipped = s->capacity - s->head};
    if (s->used == 0) *at = (slot){.at = 0}; /* empty: begin anew, skip nothing */
    return s->used + bytes + at->skipped <= s->capacity;
}

void gw_ckpt_stage_put(gw_ckpt_stage *s, const void *bytes) {
    int64_t n = s->blocks[s->came].bytes, before = 0;
    slot at;
    GW_ASSERT(s->came < s->n);
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !find_room(s, n, &at)) {
        if (!before) before = gw_clock_ns();
        pthread_cond_wait(&s->change, &s->lock);
    }
    bool stopped = s->stop;
    if (!stopped) s->used += n + at.skipped;
    pthread_mutex_unlock(&s->lock);
    if (before) s->waited_ns += gw_clock_ns() - before;
    if (stopped) return;
    memcpy(s->ring + at.at, bytes, (size_t)n);
    pthread_mutex_lock(&s->lock);
    s->slots[s->came++] = at;
    s->head = at.at + n;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

double gw_ckpt_stage_waited(const gw_ckpt_stage *s) { return (double)s->waited_ns * 1e-9; }
int64_t gw_ckpt_stage_capacity(const gw_ckpt_stage *s) { return s->capacity; }

bool gw_ckpt_stage_done(const gw_ckpt_stage *s) {
    return atomic_load_explicit(&s->done, memory_order_acquire);
}

gw_status gw_ckpt_stage_join(gw_ckpt_stage *s, gw_ckpt_file *file, double *write_s, gw_diags *dg) {
    atomic_store_explicit(&s->hurry, true, memory_order_relaxed);
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
    gw_diags_take(dg, &s->diags);
    *file = s->file;
    *write_s = (double)s->write_ns * 1e-9;
    return s->st;
}

void gw_ckpt_stage_free(gw_ckpt_stage *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    if (s->running) pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->change);
    gw_diags_release(&s->diags);
    gw_mem_free(s->slots);
    gw_mem_free(s->ring);
    gw_mem_free(s);
}
