// SPDX-License-Identifier: Apache-2.0
// The buffer between a rank and its writer.
//
// Blocks pass in an order that both sides know. The buffer is a ring of bytes in which a block
// never wraps: where the end is too short for it, it goes to the beginning and the rest of the end
// is counted with it. The mutex is held for counting only, never while bytes are copied or written.
//
// Where a core is free the thread helps to copy: what there is room for before it writes a block,
// so that everything is copied while the next step computes. What is left when the state is about
// to change the rank copies itself (take). Where none is free its help would be paid for in
// preempted steps, and more dearly: the thread then only writes. A block is claimed under the lock,
// in order, with its room; several are under way at once, and the thread writes the first when it
// is there. If everything fits, the rank never waits for the disk.
//
// A rank that only waits for its file needs no copy: the thread then reads where the bytes stand,
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
    bool there;          /* its bytes are */
} slot;

struct gw_ckpt_stage {
    gw_ckpt_writer *w;
    const gw_ckpt_block *blocks;
    gw_ckpt_stage_how how;
    slot *slots; /* [n] */
    char *ring;  /* the keep's */
    int64_t n, capacity;
    int64_t head, used;           /* next free byte; bytes taken, skipped ones included */
    int64_t claimed, there, went; /* blocks */
    int64_t waited_ns, write_ns, cpu_ns;
    int64_t copy_ns; /* of everyone that copied */
    enum { ALSO_WAITS, ALSO_RUNS, ALSO_DONE } also;
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    bool running, stop;
    atomic_bool done, hurry; /* the rank only waits: no rate holds any more */
    gw_status st;
    gw_ckpt_file file;
    gw_diags diags;
};

static int64_t cpu_ns(void) {
    struct timespec cpu = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return (int64_t)cpu.tv_sec * INT64_C(1000000000) + cpu.tv_nsec;
}

/* ---- copying ---- */

/* Finds room for a block; called with the lock. */
static bool find_room(gw_ckpt_stage *s, int64_t bytes, slot *at) {
    *at = (slot){.at = s->head};
    if (s->head + bytes > s->capacity) *at = (slot){.at = 0, .skipped = s->capacity - s->head};
    if (s->used == 0) *at = (slot){.at = 0}; /* empty: begin anew, skip nothing */
    return s->used + bytes + at->skipped <= s->capacity;
}

/* The next block that nobody copies yet, with its room, which is waited for or not; -1: none.
 * Called with the lock. */
static int64_t claim(gw_ckpt_stage *s, bool wait) {
    slot at;
    int64_t before = 0;
    for (;;) {
        if (s->stop || s->claimed == s->n) return -1;
        if (find_room(s, s->blocks[s->claimed].bytes, &at)) break;
        if (!wait) return -1;
        if (!before) before = gw_clock_ns();
        pthread_cond_wait(&s->change, &s->lock);
    }
    if (before) s->waited_ns += gw_clock_ns() - before;
    int64_t i = s->claimed++;
    at.bytes = s->ring + at.at;
    s->slots[i] = at;
    s->used += s->blocks[i].bytes + at.skipped;
    s->head = at.at + s->blocks[i].bytes;
    return i;
}

/* Copies blocks until none is left, or (not waiting) none has room. */
static void copy_blocks(gw_ckpt_stage *s, bool wait) {
    int64_t i;
    pthread_mutex_lock(&s->lock);
    while ((i = claim(s, wait)) >= 0) {
        pthread_mutex_unlock(&s->lock);
        int64_t from = gw_clock_ns();
        memcpy(s->ring + s->slots[i].at, s->how.from[i], (size_t)s->blocks[i].bytes);
        int64_t took = gw_clock_ns() - from;
        pthread_mutex_lock(&s->lock);
        s->slots[i].there = true;
        s->there++;
        s->copy_ns += took;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
}

/* What else needs the state as it is, by whoever comes to it first. */
static void run_also(gw_ckpt_stage *s) {
    pthread_mutex_lock(&s->lock);
    bool mine = s->also == ALSO_WAITS && !s->stop;
    if (mine) s->also = ALSO_RUNS;
    pthread_mutex_unlock(&s->lock);
    if (!mine) return;
    s->how.also(s->how.user);
    pthread_mutex_lock(&s->lock);
    s->also = ALSO_DONE;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

void gw_ckpt_stage_take(gw_ckpt_stage *s) {
    if (s->how.direct) return;
    copy_blocks(s, true);
    run_also(s);
    pthread_mutex_lock(&s->lock);
    while (s->there < s->claimed || s->also == ALSO_RUNS) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the thread ---- */

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
    while (!s->stop && !s->slots[s->went].there) pthread_cond_wait(&s->change, &s->lock);
    bool go = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return go;
}

static void release_block(gw_ckpt_stage *s) {
    pthread_mutex_lock(&s->lock);
    if (!s->how.direct) s->used -= s->blocks[s->went].bytes + s->slots[s->went].skipped;
    s->went++;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

/* What the thread does for the state before it writes, and how much of its time that was. */
static int64_t help(gw_ckpt_stage *s) {
    if (!s->how.helps) return 0;
    int64_t before = cpu_ns();
    copy_blocks(s, false);
    run_also(s);
    return cpu_ns() - before;
}

static gw_status write_blocks(gw_ckpt_stage *s, int64_t *helped) {
    int64_t start = 0, bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        *helped += help(s);
        if (!await_block(s)) return GW_ERR_INTERRUPTED;
        if (i == 0) start = gw_clock_ns();
        GW_TRY(gw_ckpt_writer_put(s->w, s->slots[i].bytes, &s->diags));
        bytes += s->blocks[i].bytes;
        release_block(s);
        if (s->how.bytes_per_s > 0)
            sleep_until(s, start + (int64_t)((double)bytes * 1e9 / (double)s->how.bytes_per_s));
    }
    gw_status st = gw_ckpt_writer_finish(s->w, &s->file, &s->diags);
    s->write_ns = start ? gw_clock_ns() - start : 0;
    return st;
}

static void *run(void *user) {
    gw_ckpt_stage *s = user;
    int64_t helped = 0;
    if (!s->how.direct) /* of this thread alone */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    gw_status st = write_blocks(s, &helped);
    s->cpu_ns = cpu_ns() - helped;
    pthread_mutex_lock(&s->lock);
    s->st = st;
    s->stop = s->stop || st != GW_OK;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

/* Every block is where it stands. */
static void borrow(gw_ckpt_stage *s) {
    for (int64_t i = 0; i < s->n; i++) s->slots[i] = (slot){.bytes = s->how.from[i], .there = true};
}

static gw_status start(gw_ckpt_stage *s, gw_diags *dg) {
    int64_t total = 0;
    for (int64_t i = 0; i < s->n; i++) total += s->blocks[i].bytes;
    s->also = s->how.also ? ALSO_WAITS : ALSO_DONE;
    if (s->how.direct) {
        borrow(s);
    } else {
        s->capacity = GW_MIN(total, GW_MAX(s->how.capacity, 2 * (int64_t)GW_CKPT_BLOCK));
        s->ring = gw_ckpt_keep_buffer(s->how.keep, s->capacity);
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
    s->how = *how;
    s->blocks = blocks;
    s->n = n;
    s->slots = gw_mem_zalloc(sizeof *s->slots * (size_t)(n + 1));
    gw_diags_init(&s->diags);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    gw_status st = start(s, dg);
    if (st != GW_OK) gw_ckpt_stage_free(s);
    *out = st == GW_OK ? s : NULL;
    return st;
}

void gw_ckpt_stage_hurry(gw_ckpt_stage *s) {
    atomic_store_explicit(&s->hurry, true, memory_order_relaxed);
}

double gw_ckpt_stage_waited(const gw_ckpt_stage *s) { return (double)s->waited_ns * 1e-9; }
int64_t gw_ckpt_stage_capacity(const gw_ckpt_stage *s) { return s->capacity; }

bool gw_ckpt_stage_done(const gw_ckpt_stage *s) {
    return atomic_load_explicit(&s->done, memory_order_acquire);
}

gw_status gw_ckpt_stage_join(gw_ckpt_stage *s, gw_ckpt_file *file, gw_ckpt_stage_times *times,
                             gw_diags *dg) {
    gw_ckpt_stage_hurry(s);
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
    gw_diags_take(dg, &s->diags);
    *file = s->file;
    times->write_s = (double)s->write_ns * 1e-9;
    times->cpu_s = (double)s->cpu_ns * 1e-9;
    times->copy_s = (double)s->copy_ns * 1e-9;
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
