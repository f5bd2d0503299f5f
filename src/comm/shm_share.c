// SPDX-License-Identifier: Apache-2.0
// Regions: memory of one rank that the others read and write where it lies.
//
// A region is a stretch of memory backed by a descriptor (the arena of an executor, scratch). Ranks
// share theirs together, all with the same handle, and each maps those of all others; then the same
// place in a peer's region is base plus offset. Regions of one handle have different sizes where
// ranks have different programs (stages of a pipeline); a place that a peer's does not have is
// NULL, and one of no bytes is not mapped. As threads they have one address space, and only tell
// each other the addresses. As processes they hand round descriptors over the sockets that the
// launcher made (SCM_RIGHTS): this needs neither a name nor the right to look into another process.
//
// In round k each rank sends to the k-th after it and waits for the k-th before it, so few
// descriptors are under way at once (the kernel limits them by RLIMIT_NOFILE), and a socket that is
// full for a moment is tried again while our own is emptied.
//
// Where a process maps its peers matters. AMD's cores since Zen find the way of a first-level cache
// line by a hash of bits 12 to 27 of its virtual address (Lipp et al., "Take A Way", ASIA CCS
// 2020), so of two addresses that are alike in the low 28 bits one line only is found, and each
// access to the one throws out the other. A collective that walks the same place of all ranks would
// meet that at every element, as regions of round sizes tend to be mapped next to each other: sums
// in the caches then take five times as long. So peer k places further lies at our base
// plus k strides, modulo 2^28. The stride is an odd number of huge pages, which keeps those usable
// and also sets source and destination apart where both lie in one region.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "comm/shm_impl.h"

/* Addresses of peers: PERIOD apart they are alike to the caches, STRIDE apart never. */
#define PERIOD ((size_t)1 << 28)
#define STRIDE ((size_t)11 << 21)

/* What ranks tell each other of their regions. */
typedef struct offer {
    int64_t rank, handle, bytes;
    char *base; /* threads */
} offer;

static gw_shm *shm_of(gw_transport *t) { return (gw_shm *)(void *)t; }

int gw_shm_region_of(const gw_shm *s, const void *p, int64_t bytes) {
    const char *c = p;
    for (int i = 0; i < s->region_end; i++) {
        const gw_shm_region *r = &s->regions[i];
        if (r->used && r->bytes > 0 && c >= r->base && c + bytes <= r->base + r->bytes) return i;
    }
    return -1;
}

void *gw_shm_peer(gw_transport *t, const gw_group *g, int who, const void *mine) {
    gw_shm *s = shm_of(t);
    int i = gw_shm_region_of(s, mine, 1); /* its end may be the start of something else */
    if (i < 0) return NULL;
    return gw_shm_place(s, i, g->ranks[who], (const char *)mine - s->regions[i].base, 1);
}

char *gw_shm_place(const gw_shm *s, int handle, int rank, int64_t offset, int64_t bytes) {
    const gw_shm_region *r = &s->regions[handle];
    if (offset < 0 || bytes > r->peer_bytes[rank] - offset || !r->peers[rank]) return NULL;
    return r->peers[rank] + offset;
}

/* ------------------------------------------------------------------------------ descriptors */

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} control;

/* 1 sent, 0 not now, -1 error. */
static int send_fd(int sock, offer *o, int fd) {
    control c;
    memset(&c, 0, sizeof c);
    struct iovec v = {o, sizeof *o};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    if (sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 1;
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS ? 0 : -1;
}

static int receive_fd(int sock, offer *o, int *fd) {
    control c;
    memset(&c, 0, sizeof c);
    struct iovec v = {o, sizeof *o};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (n != (ssize_t)sizeof *o || !h || h->cmsg_type != SCM_RIGHTS) {
        errno = m.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO; /* no descriptor was free for it */
        return -1;
    }
    memcpy(fd, CMSG_DATA(h), sizeof *fd);
    return 1;
}

/* Maps so that the address differs from `own` by `k` strides, modulo PERIOD. Where there is no room
 * to choose (ulimit -v), the kernel does. */
static void *map_apart(const char *own, int64_t bytes, int fd, int k) {
    const int prot = PROT_READ | PROT_WRITE;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = ((size_t)bytes + page - 1) / page * page, room = n + PERIOD;
    char *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return mmap(NULL, (size_t)bytes, prot, MAP_SHARED, fd, 0);
    size_t want = (uintptr_t)own + (size_t)k * STRIDE;
    size_t skip = (want - (uintptr_t)all) % PERIOD; /* PERIOD divides 2^64 */
    char *p = mmap(all + skip, (size_t)bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0);
    int e = errno;
    if (p == MAP_FAILED) {
        munmap(all, room);
    } else {
        if (skip) munmap(all, skip);
        munmap(all + skip + n, PERIOD - skip);
    }
    errno = e;
    return p;
}

/* Maps the region of a peer whose descriptor has come. */
static gw_status take_fd(gw_shm *s, gw_shm_region *r, int handle, bool *any, gw_diags *dg) {
    offer o;
    int fd = -1, got = receive_fd(s->w->inbox[s->rank], &o, &fd);
    *any = got > 0;
    if (got == 0) return GW_OK;
    if (got < 0)
        return gw_shm_fail(s, dg, "shm-share", "rank %d cannot receive a shared region: %s",
                           s->rank, strerror(errno));
    void *p = MAP_FAILED;
    bool same = o.handle == handle && o.rank >= 0 && o.rank < s->ranks && o.bytes > 0 &&
                o.bytes == r->peer_bytes[o.rank];
    if (same) p = map_apart(r->base, o.bytes, fd, (int)(o.rank + s->ranks - s->rank) % s->ranks);
    int e = same ? errno : EPROTO;
    close(fd);
    if (p == MAP_FAILED)
        return gw_shm_fail(s, dg, "shm-share", "rank %d cannot map %lld bytes of rank %lld: %s",
                           s->rank, (long long)o.bytes, (long long)o.rank, strerror(e));
    r->peers[o.rank] = p;
    return GW_OK;
}

static bool has_come(const gw_shm_region *r, int from) {
    return r->peer_bytes[from] == 0 || r->peers[from];
}

/* Round k: ours to one rank, another's to us, where they have any bytes. */
static gw_status hand_round(gw_shm *s, gw_shm_region *r, int handle, int fd, int k, gw_diags *dg) {
    int to = (s->rank + k) % s->ranks, from = (s->rank + s->ranks - k) % s->ranks;
    gw_group world = {.size = s->ranks, .me = s->rank, .ranks = NULL};
    gw_shm_waiting w = {.g = &world};
    offer o = {.rank = s->rank, .handle = handle, .bytes = r->bytes, .base = r->base};
    int sent = r->bytes == 0;
    gw_status st = GW_OK;
    while (st == GW_OK && !(sent && has_come(r, from))) {
        bool any = false;
        if (!sent && (sent = send_fd(s->w->outbox[to], &o, fd)) > 0) gw_shm_ring(&s->w->ranks[to]);
        if (sent < 0) {
            st = gw_shm_fail(s, dg, "shm-share",
                             "rank %d cannot send a shared region to rank %d: %s", s->rank, to,
                             strerror(errno));
            break;
        }
        st = take_fd(s, r, handle, &any, dg);
        if (st == GW_OK && !any && !(sent && has_come(r, from)))
            st = gw_shm_wait(s, &w, has_come(r, from) ? to : from, dg);
    }
    gw_shm_wait_end(s, &w);
    return st;
}

/* ------------------------------------------------------------------------------ sharing */

/* Everyone's offer to everyone: the handle agrees, and each learns the others' sizes. */
static gw_status compare_offers(gw_shm *s, gw_shm_region *r, int handle, gw_diags *dg) {
    int *ranks = gw_mem_alloc((size_t)s->ranks * sizeof *ranks);
    for (int i = 0; i < s->ranks; i++) ranks[i] = i;
    gw_group world = {.size = s->ranks, .me = s->rank, .ranks = ranks};
    offer mine = {.rank = s->rank, .handle = handle, .bytes = r->bytes, .base = r->base};
    gw_status st = GW_OK;
    for (int k = 1; st == GW_OK && k < s->ranks; k++) {
        int to = (s->rank + k) % s->ranks, from = (s->rank + s->ranks - k) % s->ranks;
        offer o = {0};
        st = gw_shm_exchange(&s->t, &world, to, &mine, sizeof mine, from, &o, sizeof o, dg);
        if (st == GW_OK && o.handle != handle)
            st = gw_shm_fail(s, dg, "peer-mismatch",
                             "rank %d shares its region %lld while rank %d shares its region %d",
                             from, (long long)o.handle, s->rank, handle);
        r->peer_bytes[from] = o.bytes;
        if (s->seg->threads) r->peers[from] = o.base;
    }
    gw_mem_free(ranks);
    return st;
}

/* Is the region backed by all of its file? */
static gw_status check_fd(gw_shm *s, int64_t bytes, int fd, gw_diags *dg) {
    struct stat st;
    if (s->seg->threads || bytes == 0) return GW_OK;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= bytes) return GW_OK;
    return gw_shm_fail(s, dg, "shm-share",
                       "rank %d offers a region of %lld bytes that its descriptor does not back",
                       s->rank, (long long)bytes);
}

gw_status gw_shm_share(gw_transport *t, void *base, int64_t bytes, int fd, int *handle,
                       gw_diags *dg) {
    gw_shm *s = shm_of(t);
    *handle = -1;
    int i = 0;
    while (i < GW_SHM_REGIONS && s->regions[i].used) i++;
    if (i == GW_SHM_REGIONS)
        return gw_shm_fail(s, dg, "shm-share", "rank %d shares more than %d regions at once",
                           s->rank, GW_SHM_REGIONS);
    GW_TRY(check_fd(s, bytes, fd, dg));
    gw_shm_region r = {.used = true, .base = base, .bytes = bytes};
    r.peers = gw_mem_zalloc((size_t)s->ranks * sizeof *r.peers);
    r.peers[s->rank] = base;
    r.peer_bytes = gw_mem_zalloc((size_t)s->ranks * sizeof *r.peer_bytes);
    r.peer_bytes[s->rank] = bytes;
    gw_status st = compare_offers(s, &r, i, dg);
    for (int k = 1; st == GW_OK && !s->seg->threads && k < s->ranks; k++)
        st = hand_round(s, &r, i, fd, k, dg);
    s->regions[i] = r;
    if (i >= s->region_end) s->region_end = i + 1;
    if (st != GW_OK)
        gw_shm_unshare(t, i);
    else
        *handle = i;
    return st;
}

void gw_shm_unshare(gw_transport *t, int handle) {
    gw_shm *s = shm_of(t);
    if (handle < 0 || handle >= GW_SHM_REGIONS || !s->regions[handle].used) return;
    gw_shm_region *r = &s->regions[handle];
    for (int i = 0; !s->seg->threads && i < s->ranks; i++)
        if (i != s->rank && r->peers[i]) munmap(r->peers[i], (size_t)r->peer_bytes[i]);
    gw_mem_free(r->peers);
    gw_mem_free(r->peer_bytes);
    *r = (gw_shm_region){0};
}
