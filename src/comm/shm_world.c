// SPDX-License-Identifier: Apache-2.0
// The segment that local ranks share, and how it comes and goes.
//
// It is a memfd that is mapped before the ranks are forked, so each has it at the same address, and
// nothing has a name: no file, nothing in /dev/shm, so nothing can be left behind, whoever is
// killed in whatever order. Ranks as threads use the same segment. It holds
//
//   the segment's head   timeout, whether anyone has stopped everyone
//   a block per rank     doorbell, sign of life, state, reason, flight recorder
//   a block per pair     signals and messages from one rank to another
//   slots per rank       bounce buffers for what does not lie in a shared region
//
// Pages exist only once touched, so that the N * N pairs of a large world cost what is used. For
// forked ranks there is a socket pair per rank besides, over which the others hand it the
// descriptors of their regions (shm_share.c).
//
// The launcher's view is here too: it says who has ended, which wakes all who sleep.
#include "comm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "comm/shm_impl.h"

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* An anonymous file of that size, mapped; says what stands in the way. */
static gw_status map_segment(int64_t bytes, void **out, gw_diags *dg) {
    struct rlimit fsize;
    if (getrlimit(RLIMIT_FSIZE, &fsize) == 0 && fsize.rlim_cur != RLIM_INFINITY &&
        (rlim_t)bytes > fsize.rlim_cur)
        return GW_FAIL(dg, GW_ERR_MEMORY, "shm-segment",
                       "local ranks need a shared segment of %lld bytes, but files may have %lld "
                       "(ulimit -f)",
                       (long long)bytes, (long long)fsize.rlim_cur);
    int fd = memfd_create("gradwright-ranks", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, bytes) != 0) {
        int e = errno;
        if (fd >= 0) close(fd);
        return GW_FAIL(dg, GW_ERR_MEMORY, "shm-segment", "cannot make shared memory (memfd): %s",
                       strerror(e));
    }
    *out = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    int e = errno;
    close(fd);
    if (*out == MAP_FAILED)
        return GW_FAIL(dg, GW_ERR_MEMORY, "shm-segment",
                       "cannot map %lld bytes of shared memory: %s", (long long)bytes, strerror(e));
    return GW_OK;
}

/* Two descriptors a rank, and some for everything else. */
static void raise_open_files(int ranks) {
    struct rlimit l;
    rlim_t need = (rlim_t)ranks * 3 + 256;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= need) return;
    l.rlim_cur = need < l.rlim_max ? need : l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static gw_status open_sockets(gw_shm_world *w, gw_diags *dg) {
    int n = w->seg->ranks;
    raise_open_files(n);
    w->inbox = gw_mem_alloc((size_t)n * sizeof *w->inbox);
    w->outbox = gw_mem_alloc((size_t)n * sizeof *w->outbox);
    for (int i = 0; i < n; i++) w->inbox[i] = w->outbox[i] = -1;
    for (int i = 0; i < n; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
            return GW_FAIL(dg, GW_ERR_MEMORY, "shm-segment",
                           "cannot open the sockets of %d local ranks (ulimit -n): %s", n,
                           strerror(errno));
        w->inbox[i] = ends[0];
        w->outbox[i] = ends[1];
    }
    return GW_OK;
}

gw_status gw_shm_world_new(const gw_shm_opts *o, gw_shm_world **out, gw_diags *dg) {
    *out = NULL;
    int64_t n = o->ranks;
    int64_t at_ranks = round_up((int64_t)sizeof(gw_shm_segment), 64);
    int64_t at_pairs = at_ranks + n * (int64_t)sizeof(gw_shm_rank);
    int64_t at_slots = round_up(at_pairs + n * n * (int64_t)sizeof(gw_shm_pair), 4096);
    int64_t bytes = at_slots + n * GW_SHM_SLOTS * GW_SHM_SLOT_BYTES;
    void *base = NULL;
    GW_TRY(map_segment(bytes, &base, dg));
    void *requests =
        mmap(NULL, sizeof(gw_requests), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (requests == MAP_FAILED) {
        int e = errno;
        munmap(base, (size_t)bytes);
        return GW_FAIL(dg, GW_ERR_MEMORY, "shm-segment", "cannot map shared memory: %s",
                       strerror(e));
    }
    gw_shm_world *w = gw_mem_zalloc(sizeof *w);
    w->requests = requests;
    w->bytes = bytes;
    w->seg = base;
    w->ranks = (gw_shm_rank *)(void *)((char *)base + at_ranks);
    w->pairs = (gw_shm_pair *)(void *)((char *)base + at_pairs);
    w->slots = (char *)base + at_slots;
    w->seg->ranks = o->ranks;
    w->seg->threads = o->threads;
    w->seg->spin = o->spin;
    w->seg->timeout_ns = (int64_t)(o->timeout_s * 1e9);
    for (int i = 0; i < o->ranks; i++) {
        atomic_store(&w->ranks[i].waiting_on, -1);
        atomic_store(&w->ranks[i].alive_ns, gw_clock_ns());
    }
    gw_status st = o->threads ? GW_OK : open_sockets(w, dg);
    if (st != GW_OK)
        gw_shm_world_free(w);
    else
        *out = w;
    return st;
}

void gw_shm_world_free(gw_shm_world *w) {
    if (!w) return;
    for (int i = 0; w->inbox && i < w->seg->ranks; i++) {
        if (w->inbox[i] >= 0) close(w->inbox[i]);
        if (w->outbox[i] >= 0) close(w->outbox[i]);
    }
    gw_mem_free(w->inbox);
    gw_mem_free(w->outbox);
    if (!w->requests_taken) munmap(w->requests, sizeof *w->requests);
    munmap(w->seg, (size_t)w->bytes);
    gw_mem_free(w);
}

/* ------------------------------------------------------------------------------ launcher */

gw_requests *gw_shm_world_requests(gw_shm_world *w) { return w->requests; }

void gw_shm_world_set_pid(gw_shm_world *w, int rank, pid_t pid) {
    atomic_store(&w->ranks[rank].pid, (int32_t)pid);
}

static void wake_all(gw_shm_world *w) {
    for (int i = 0; i < w->seg->ranks; i++) gw_shm_ring(&w->ranks[i]);
}

void gw_shm_world_open(gw_shm_world *w) {
    for (int i = 0; i < w->seg->ranks; i++) atomic_store(&w->ranks[i].alive_ns, gw_clock_ns());
    atomic_store(&w->seg->open, 1);
    syscall(SYS_futex, &w->seg->open, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool gw_shm_world_enter(gw_shm_world *w, pid_t parent) {
    struct timespec slice = {.tv_nsec = 100 * 1000 * 1000};
    while (!atomic_load(&w->seg->open)) {
        if (getppid() != parent) return false;
        syscall(SYS_futex, &w->seg->open, FUTEX_WAIT, 0, &slice, NULL, 0);
    }
    return true;
}

void gw_shm_world_ended(gw_shm_world *w, int rank, int signal, int exit_code) {
    gw_shm_rank *r = &w->ranks[rank];
    atomic_store(&r->signal, signal);
    atomic_store(&r->exit_code, exit_code);
    int32_t state = GW_SHM_RUNNING;
    atomic_compare_exchange_strong(&r->state, &state, GW_SHM_ENDED);
    wake_all(w);
}

int gw_shm_world_reporter(const gw_shm_world *w, const char **why) {
    int rank = atomic_load(&w->seg->reporter) - 1;
    *why = "";
    if (rank >= 0 && atomic_load(&w->ranks[rank].state) == GW_SHM_ABORTED)
        *why = w->ranks[rank].reason;
    return rank;
}

_Static_assert(8 * GW_SHM_DOING_WORDS == 96, "as the prototype has it");

const char *gw_shm_world_doing(const gw_shm_world *w, int rank, char buf[96]) {
    gw_words_load(w->ranks[rank].doing, GW_SHM_DOING_WORDS, buf);
    return buf;
}

char gw_process_state(pid_t pid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT || errno == ESRCH ? 0 : '?';
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *name_end = strrchr(line, ')'); /* the name may hold anything but this last one */
    if (!name_end || name_end[1] != ' ') return n ? '?' : 0;
    return name_end[2];
}

/* ------------------------------------------------------------------------------ giving up */

void gw_shm_give_up(gw_shm_world *w, int rank, const char *why) {
    gw_shm_rank *r = &w->ranks[rank];
    int32_t none = 0;
    atomic_compare_exchange_strong(&w->seg->reporter, &none, rank + 1);
    if (atomic_load(&r->state) == GW_SHM_RUNNING) {
        snprintf(r->reason, sizeof r->reason, "%s", why ? why : "");
        atomic_store(&r->state, GW_SHM_ABORTED);
    }
    atomic_store(&w->seg->stopped, 1);
    gw_requests_fail(w->requests);
    wake_all(w);
}
