// SPDX-License-Identifier: Apache-2.0
// The buffer between a rank and its writer.
//
// Blocks pass in an order that both sides know. The buffer is a ring of bytes in which a block
// never wraps: where the end is too short for it, it goes to the beginning and the rest of the end
// is counted with it. Two counters say how many blocks came and went; the mutex is held for
// counting only, never while bytes are copied or written. If everything fits, the rank never waits.
//
// A rank that only waits for its file needs no copy: the thread is then told where the bytes stand,
// and nothing is reserved.
//
// The thread has a lower priority than those that compute (not where the rank only waits) and, if a
// rate is given, sleeps after each block until the rate allows the next. When it fails it says so
// and takes no more; the rank then copies nothing, and learns the reason when it joins.
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
    const char *bytes;   /* the same as an address */
} slot;

struct gw_ckpt_stage {
    gw_ckpt_writer *w;
    const gw_ckpt_block *blocks;
    slot *slots; /* [n] */
    char *ring;  /* the keep's */
    int64_t n, capacity, bytes_per_s;
    int64_t head, used; /* next free byte; bytes taken, skipped ones included */
    int64_t came, went; /* blocks */
    int64_t waited_ns, write_ns, cpu_ns;
    bool direct;
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
        GW_TRY(gw_ckpt_writer_put(s->w, s->slots[i].bytes, &s->diags));
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
    struct timespec cpu = {0};
    if (!s->direct) /* of this thread alone */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    gw_status st = write_blocks(s);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    s->cpu_ns = (int64_t)cpu.tv_sec * INT64_C(1000000000) + cpu.tv_nsec;
    pthread_mutex_lock(&s->lock);
    s->st = st;
    s->stop = s->stop || st != GW_OK;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

static gw_status start(gw_ckpt_stage *s, const gw_ckpt_stage_how *how, gw_diags *dg) {
    int64_t total = 0;
    for (int64_t i = 0; i < s->n; i++) total += s->blocks[i].bytes;
    s->bytes_per_s = how->bytes_per_s;
    s->direct = how->direct;
    if (!how->direct) {
        s->capacity = GW_MIN(total, GW_MAX(how->capacity, 2 * (int64_t)GW_CKPT_BLOCK));
        s->ring = gw_ckpt_keep_buffer(how->keep, s->capacity);
        if (!s->ring)
            return GW_FAIL(dg, GW_ERR_MEMORY, "checkpoint-buffer",
                           "there are no %lld bytes of memory for the buffer of a checkpoint",
                           (long long)s->capacity);
    }
    s->running = pthread_create(&s->thread, NULL, run, s) == 0;
    return s->running ? GW_OK
                      : GW_FAIL(dg, GW_ERR_MEMORY, "checkpoint-thread",
                                "cannot start a thread to write a checkpoint");
}

gw_status gw_ckpt_stage_start(gw_ckpt_stage **out, gw_ckpt_writer *w, const gw_ckpt_block *blocks,
                              int64_t n, const gw_ckpt_stage_how *how, gw_diags *dg) {
    gw_ckpt_stage *s = gw_mem_zalloc(sizeof *s);
    s->w = w;
    s->blocks = blocks;
    s->n = n;
    s->slots = gw_mem_zalloc(sizeof *s->slots * (size_t)(n + 1));
    gw_diags_init(&s->diags);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    gw_status st = start(s, how, dg);
    if (st != GW_OK) gw_ckpt_stage_free(s);
    *out = st == GW_OK ? s : NULL;
    return st;
}

/* Finds room for a block; called with the lock. */
static bool find_room(gw_ckpt_stage *s, int64_t bytes, slot *at) {
    *at = (slot){.at = s->head};
    if (s->direct) return true;
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
    at.bytes = s->direct ? bytes : s->ring + at.at;
    if (!s->direct) memcpy(s->ring + at.at, bytes, (size_t)n);
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

gw_status gw_ckpt_stage_join(gw_ckpt_stage *s, gw_ckpt_file *file, gw_ckpt_stage_times *times,
                             gw_diags *dg) {
    atomic_store_explicit(&s->hurry, true, memory_order_relaxed);
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
    gw_diags_take(dg, &s->diags);
    *file = s->file;
    times->write_s = (double)s->write_ns * 1e-9;
    times->cpu_s = (double)s->cpu_ns * 1e-9;
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
    gw_mem_free(s);
}
