// SPDX-License-Identifier: Apache-2.0
// Offload at work: one thread, a queue of copies, and two rules about when to wait.
//
// The program says what is copied and where it stands; the pass has put fetches one tensor ahead of
// their use. Here each copy op is handed to one thread in program order and the ops that follow go
// on. The main thread waits in three places: an op that reads what a fetch brings waits for that
// fetch; the first op of a run of copies waits for the stores of the runs before it, since from
// there on their bytes may serve others (gw_graph_copy_end); and the end of a segment waits for
// all. One thread in order means that a fetch never overtakes the store of the same tensor.
//
// Host memory is a region like the arena, reserved and touched beforehand. The disk's is a file
// that is unlinked as soon as it is open, its blocks allocated beforehand, so that a full disk is
// found before the first step. Its bytes pass the page cache by (O_DIRECT): a cache of states that
// are read once a step would push out everything else, and memory is what was to be saved. O_DIRECT
// wants addresses and lengths of whole pages, values on the device are aligned to 64 bytes, so
// bytes go through a buffer of 4 MiB. File systems that refuse O_DIRECT (tmpfs) are used through
// the cache, and said so once.
//
// Weights are written, and checkpoints read, through a shared mapping of the file, outside steps or
// (a save that copies late) before a step's first store: the kernel keeps a mapping and direct
// reads and writes of the same file in agreement as long as a write does not run beside others, and
// gw_copier_begin writes back what the mapping has changed.
//
// Nothing here allocates after gw_copier_new.
#include "run/exec_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/log.h"   /* gw_log_warn */
#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_fmt_bytes */
#include "ir/opdef.h"   /* gw_op_def */
#include "run/memory.h" /* gw_region */

enum { PAGE = 4096, BOUNCE = 4 << 20 };

/* A copy op, bound. */
typedef struct copy {
    char *device, *away;
    int64_t bytes;
    int64_t at; /* in the file; -1: away is memory */
    gw_mem mem; /* of the far end */
    bool to_device;
    int64_t ticket; /* of its latest issue; 0: never */
    int64_t start, ns;
} copy;

struct gw_copier {
    const gw_graph *g;
    gw_arena mem;
    gw_region host;
    int fd;
    bool direct;
    char *map;
    int64_t disk_bytes;
    char dir[256];
    char *bounce;
    copy *copies;   /* [ops] */
    gw_oid *need;   /* [ops]: the latest copy whose result it reads; GW_NONE */
    gw_oid *settle; /* [ops]: of the first of a run of copies, the latest one before the run that
                       reads the device; GW_NONE */

    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    gw_oid *queue; /* a ring */
    int64_t room, issued, finished;
    bool stop;
    gw_copy_bytes moved;
    int fault; /* errno of the first copy that failed, and which */
    gw_oid faulty;
    int64_t fault_at;
};

bool gw_op_is_copy(const gw_graph *g, const gw_op *o) {
    (void)g;
    return o->stream == GW_STREAM_COPY;
}

/* ---- what ops say ---- */

static bool goes_to_device(const gw_graph *g, const gw_op *o) {
    return g->values.items[gw_op_out(g, o, 0)].mem == GW_MEM_DEVICE;
}

static gw_vid far_end(const gw_graph *g, const gw_op *o) {
    return goes_to_device(g, o) ? gw_op_in(g, o, 0) : gw_op_out(g, o, 0);
}

static int64_t bytes_of(const gw_graph *g, const gw_op *o, int64_t rank) {
    return gw_type_local_bytes(gw_type_of(g, gw_op_in(g, o, 0)), &g->mesh, rank);
}

gw_copy_bytes gw_copy_traffic(const gw_graph *g, int64_t rank) {
    gw_copy_bytes b = {0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is_copy(g, o)) continue;
        int64_t times = o->rate == GW_RATE_MB ? GW_MAX(1, g->micro_batches) : 1;
        int mem = g->values.items[far_end(g, o)].mem;
        *(goes_to_device(g, o) ? &b.fetched[mem] : &b.stored[mem]) += times * bytes_of(g, o, rank);
    }
    return b;
}

/* ---- the thread ---- */

static bool move_file(int fd, bool write, char *buffer, int64_t n, int64_t at) {
    for (int64_t done = 0; done < n;) {
        ssize_t got = write ? pwrite(fd, buffer + done, (size_t)(n - done), at + done)
                            : pread(fd, buffer + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO; /* the file ends */
        if (got <= 0) return false;
        done += got;
    }
    return true;
}

/* Whole pages through the buffer; the last page's rest is zero. */
static bool move_disk(gw_copier *c, copy *k, int64_t *at) {
    for (int64_t done = 0; done < k->bytes; done += BOUNCE) {
        int64_t n = GW_MIN(BOUNCE, k->bytes - done), whole = (n + PAGE - 1) / PAGE * PAGE;
        *at = k->at + done;
        if (k->to_device) {
            if (!move_file(c->fd, false, c->bounce, whole, *at)) return false;
            memcpy(k->device + done, c->bounce, (size_t)n);
        } else {
            memcpy(c->bounce, k->device + done, (size_t)n);
            memset(c->bounce + n, 0, (size_t)(whole - n));
            if (!move_file(c->fd, true, c->bounce, whole, *at)) return false;
        }
    }
    return true;
}

static void run_copy(gw_copier *c, gw_oid o) {
    copy *k = &c->copies[o];
    int64_t at = 0;
    bool ok = true;
    k->start = gw_clock_ns();
    if (k->at >= 0)
        ok = move_disk(c, k, &at);
    else if (k->to_device)
        memcpy(k->device, k->away, (size_t)k->bytes);
    else
        memcpy(k->away, k->device, (size_t)k->bytes);
    k->ns = gw_clock_ns() - k->start;
    if (ok || c->fault) return;
    c->fault_at = at;
    c->faulty = o;
    c->fault = errno;
}

/* After a fault the rest is passed over, so that nothing waits for ever. */
static void *run_thread(void *user) {
    gw_copier *c = user;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->finished == c->issued && !c->stop) pthread_cond_wait(&c->work, &c->lock);
        if (c->finished == c->issued) break;
        gw_oid o = c->queue[c->finished % c->room];
        bool bad = c->fault != 0;
        pthread_mutex_unlock(&c->lock);
        if (!bad) run_copy(c, o);
        pthread_mutex_lock(&c->lock);
        const copy *k = &c->copies[o];
        *(k->to_device ? &c->moved.fetched[k->mem] : &c->moved.stored[k->mem]) += k->bytes;
        c->finished++;
        pthread_cond_signal(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static gw_status report(const gw_copier *c, gw_diags *dg) {
    const copy *k = &c->copies[c->faulty];
    const gw_op *o = &c->g->ops.items[c->faulty];
    gw_vid v = gw_value_root(c->g, far_end(c->g, o));
    const char *name = gw_graph_str(c->g, c->g->values.items[v].name);
    return GW_FAIL(dg, GW_ERR_IO, "offload-io",
                   "cannot %s the offload file in %s at byte %lld (tensor %s of %lld bytes): %s",
                   k->to_device ? "read" : "write", c->dir, (long long)c->fault_at,
                   *name ? name : gw_graph_str(c->g, o->scope), (long long)k->bytes,
                   strerror(c->fault));
}

static gw_status wait_for(gw_copier *c, int64_t ticket, gw_diags *dg) {
    pthread_mutex_lock(&c->lock);
    while (c->finished < ticket) pthread_cond_wait(&c->done, &c->lock);
    bool bad = c->fault != 0;
    pthread_mutex_unlock(&c->lock);
    return bad ? report(c, dg) : GW_OK;
}

/* ---- what the executor calls ---- */

gw_status gw_copier_begin(gw_copier *c, gw_diags *dg) {
    if (!c || !c->map || msync(c->map, (size_t)c->disk_bytes, MS_SYNC) == 0) return GW_OK;
    return GW_FAIL(dg, GW_ERR_IO, "offload-io", "cannot write the offload file in %s: %s", c->dir,
                   strerror(errno));
}

gw_status gw_copier_before(gw_copier *c, gw_oid i, gw_diags *dg) {
    if (!c) return GW_OK;
    int64_t ticket = 0;
    if (c->need[i] != GW_NONE) ticket = c->copies[c->need[i]].ticket;
    if (c->settle[i] != GW_NONE) ticket = GW_MAX(ticket, c->copies[c->settle[i]].ticket);
    return ticket ? wait_for(c, ticket, dg) : GW_OK;
}

void gw_copier_issue(gw_copier *c, gw_oid o) {
    pthread_mutex_lock(&c->lock);
    GW_ASSERT(c->issued - c->finished < c->room);
    c->queue[c->issued % c->room] = o;
    c->copies[o].ticket = ++c->issued;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

gw_status gw_copier_drain(gw_copier *c, gw_diags *dg) {
    return c && c->issued ? wait_for(c, c->issued, dg) : GW_OK;
}

gw_copy_bytes gw_copier_moved(const gw_copier *c) { return c ? c->moved : (gw_copy_bytes){0}; }
bool gw_copier_is_direct(const gw_copier *c) { return c && c->direct; }

void gw_copier_times(const gw_copier *c, gw_oid o, int64_t *start, int64_t *ns) {
    *start = c->copies[o].start;
    *ns = c->copies[o].ns;
}

void *gw_copier_base(const gw_copier *c, gw_mem m) {
    if (!c || m == GW_MEM_DEVICE) return NULL;
    return m == GW_MEM_HOST ? c->host.data : c->map;
}

void gw_copier_bind(gw_copier *c, gw_oid o, void *device, void *away, int64_t bytes) {
    const gw_op *op = &c->g->ops.items[o];
    copy *k = &c->copies[o];
    k->device = device;
    k->away = away;
    k->bytes = bytes;
    k->at = -1;
    k->to_device = goes_to_device(c->g, op);
    k->mem = (gw_mem)c->g->values.items[far_end(c->g, op)].mem;
    bool ours = c->map && k->away >= c->map && k->away < c->map + c->disk_bytes;
    if (k->mem == GW_MEM_DISK && ours) k->at = k->away - c->map;
}

/* ---- making one ---- */

static gw_status io_failed(const gw_copier *c, const char *what, int err, gw_diags *dg) {
    char text[32];
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "offload-file", (gw_where){0},
                             "%s for %s of offloaded values in %s: %s", what,
                             gw_fmt_bytes(text, c->disk_bytes), c->dir, strerror(err));
    gw_diag_hint(dg, d, "set offload.dir to a folder on a local disk with room");
    return GW_ERR_IO;
}

static gw_status look_for_space(const gw_copier *c, int here, gw_diags *dg) {
    struct statvfs s;
    if (fstatvfs(c->fd, &s) != 0) return io_failed(c, "cannot see the free space", errno, dg);
    int64_t left = 0, all = 0;
    if (__builtin_mul_overflow((int64_t)s.f_bavail, (int64_t)s.f_frsize, &left)) left = INT64_MAX;
    if (__builtin_mul_overflow(c->disk_bytes, (int64_t)GW_MAX(here, 1), &all)) all = INT64_MAX;
    if (all <= left) return GW_OK;
    char need[32], have[32];
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "offload-space", (gw_where){0},
                             "no room for offloaded values in %s: %s needed, %s free", c->dir,
                             gw_fmt_bytes(need, all), gw_fmt_bytes(have, left));
    gw_diag_hint(dg, d, "free space there, or set offload.dir to another disk");
    return GW_ERR_IO;
}

/* A file without a name. O_DIRECT may be refused when the file is opened, or, by some file systems,
 * only when it is read: so a page is tried. */
static gw_status open_file(gw_copier *c, gw_diags *dg) {
    char path[300];
    snprintf(path, sizeof path, "%s/gradwright-offload-XXXXXX", c->dir);
    c->fd = mkostemp(path, O_CLOEXEC);
    if (c->fd < 0) return io_failed(c, "cannot create the file", errno, dg);
    unlink(path);
    int flags = fcntl(c->fd, F_GETFL);
    memset(c->bounce, 0, PAGE);
    c->direct = flags >= 0 && fcntl(c->fd, F_SETFL, flags | O_DIRECT) == 0;
    if (c->direct && !(move_file(c->fd, true, c->bounce, PAGE, 0) &&
                       move_file(c->fd, false, c->bounce, PAGE, 0)))
        c->direct = fcntl(c->fd, F_SETFL, flags) != 0;
    return GW_OK;
}

static gw_status make_file(gw_copier *c, int64_t rank, int here, gw_diags *dg) {
    GW_TRY(open_file(c, dg));
    if (!c->direct && rank == 0)
        gw_log_warn("the file system of %s knows no O_DIRECT: offloaded values pass through the "
                    "page cache",
                    c->dir);
    GW_TRY(look_for_space(c, here, dg));
    int err = posix_fallocate(c->fd, 0, c->disk_bytes);
    if (err) return io_failed(c, "cannot allocate the blocks", err, dg);
    void *map = mmap(NULL, (size_t)c->disk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (map == MAP_FAILED) return io_failed(c, "cannot map the file", errno, dg);
    c->map = map;
    return GW_OK;
}

/* What each op waits for. */
static void find_waits(gw_copier *c) {
    const gw_graph *g = c->g;
    gw_oid outgoing = GW_NONE;
    bool in_run = false;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        c->need[i] = c->settle[i] = GW_NONE;
        bool is_copy = gw_op_is_copy(g, o);
        if (is_copy && !in_run) c->settle[i] = outgoing;
        in_run = is_copy;
        if (is_copy && !goes_to_device(g, o)) outgoing = i;
        for (int k = 0; !is_copy && k < (int)o->nin; k++) {
            gw_vid v = gw_op_in(g, o, k);
            gw_oid d = v == GW_NONE ? GW_NONE : g->values.items[v].def;
            bool fetched = d != GW_NONE && gw_op_is_copy(g, &g->ops.items[d]);
            if (fetched && (c->need[i] == GW_NONE || d > c->need[i])) c->need[i] = d;
        }
    }
}

static gw_status start(gw_copier *c, gw_diags *dg) {
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    int err = pthread_create(&c->thread, NULL, run_thread, c);
    c->running = err == 0;
    if (c->running) return GW_OK;
    return GW_FAIL(dg, GW_ERR_MEMORY, "offload-thread", "cannot start the thread that copies: %s",
                   strerror(err));
}

static gw_status make(gw_copier *c, int64_t rank, int here, gw_diags *dg) {
    const gw_graph *g = c->g;
    int64_t n = g->ops.count + 1, host = g->arena_bytes[GW_MEM_HOST];
    c->copies = gw_arena_new(&c->mem, copy, n);
    c->need = gw_arena_new(&c->mem, gw_oid, n);
    c->settle = gw_arena_new(&c->mem, gw_oid, n);
    c->queue = gw_arena_new(&c->mem, gw_oid, n);
    c->room = n;
    find_waits(c);
    GW_TRY(gw_memory_check(host, here, "offloaded values", dg));
    if (host > 0) GW_TRY(gw_region_reserve(&c->host, host, "offloaded values", dg));
    if (c->disk_bytes > 0 && !c->dir[0])
        return GW_FAIL(dg, GW_ERR_CONFIG, "offload-dir",
                       "values are offloaded to disk and offload.dir names no folder");
    if (c->disk_bytes > 0) {
        c->bounce = aligned_alloc(PAGE, BOUNCE);
        if (!c->bounce) return GW_FAIL(dg, GW_ERR_MEMORY, "memory", "no memory for a buffer");
        GW_TRY(make_file(c, rank, here, dg));
    }
    return start(c, dg);
}

gw_status gw_copier_new(gw_copier **out, const gw_graph *g, int64_t rank, const char *dir, int here,
                        gw_diags *dg) {
    *out = NULL;
    bool any = g->arena_bytes[GW_MEM_HOST] > 0 || g->arena_bytes[GW_MEM_DISK] > 0;
    for (int64_t i = 0; i < g->ops.count; i++) any |= gw_op_is_copy(g, &g->ops.items[i]);
    if (!any) return GW_OK;
    gw_copier *c = gw_mem_zalloc(sizeof *c);
    c->g = g;
    c->fd = c->host.fd = -1;
    c->disk_bytes = g->arena_bytes[GW_MEM_DISK];
    snprintf(c->dir, sizeof c->dir, "%s", dir ? dir : "");
    gw_status st = make(c, rank, here, dg);
    if (st != GW_OK) {
        gw_copier_free(c);
        return st;
    }
    *out = c;
    return GW_OK;
}

void gw_copier_free(gw_copier *c) {
    if (!c) return;
    if (c->running) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_cond_signal(&c->work);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        pthread_mutex_destroy(&c->lock);
        pthread_cond_destroy(&c->work);
        pthread_cond_destroy(&c->done);
    }
    if (c->map) munmap(c->map, (size_t)c->disk_bytes);
    if (c->fd >= 0) close(c->fd);
    free(c->bounce);
    gw_region_release(&c->host);
    gw_arena_release(&c->mem);
    gw_mem_free(c);
}

/* ---- a name for what the thread does ---- */

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_op_is_copy(g, o);
}

static int64_t no_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return 0;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)k, (void)a, (void)dg;
    *state = NULL;
    return GW_OK;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_panic("%s is run by the copy thread, not by a kernel", gw_op_def(k->g, k->op)->name);
}

static void release(void *state) { (void)state; }

const gw_kernel gw_kernel_copy = {.name = "copy",
                                  .op = "",
                                  .note = "between the device and host or disk, beside other ops",
                                  .supports = supports,
                                  .workspace = no_workspace,
                                  .prepare = prepare,
                                  .launch = launch,
                                  .release = release};
