// SPDX-License-Identifier: Apache-2.0
// Laws of the transport and of the host side: values, order of sums, every pattern of exchange at
// sizes around each limit, places in peers' memory, groups of a mesh; as threads and as processes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"    /* gw_mem_count */
#include "base/compiler.h" /* GW_COUNT */
#include "base/str.h"
#include "comm/comm_new.h" /* gw_coll_run_with */
#include "comm/flight.h"
#include "harness.h"
#include "ir/mesh.h" /* gw_mesh */
#include "rig.h"

static const int sizes_of_world[] = {2, 3, 5, 9};

static void everywhere(rig_body *body, void *user) {
    for (size_t i = 0; i < GW_COUNT(sizes_of_world); i++) {
        rig_threads(sizes_of_world[i], body, user);
        rig_processes(sizes_of_world[i], body, user);
    }
}

/* Bytes that differ by sender, receiver and pattern: a window of one table. */
enum { MOST = 300001 };
static uint8_t table[MOST + 1024];
static const uint8_t *window(int from, int to, int k) { return table + 17 * from + 5 * to + 3 * k; }
static void fill_table(void) {
    for (size_t i = 0; i < sizeof table; i++) table[i] = (uint8_t)(i * 31 + (i >> 8) + 1);
}

/* Around what is copied at once, a slot, and many of them. */
static const int64_t message_sizes[] = {0, 1, 3, 8192, 8193, 65535, 65536, 65537, 300001};

/* ------------------------------------------------------------------------------ host */

static gw_status host_ops(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c), n = gw_comm_size(c);
    double x[64], want[3] = {0, 0, 0};
    for (int i = 0; i < 64; i++) x[i] = 1.0 / (1 + me + i);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 3; i++) want[i] = r ? want[i] + 1.0 / (1 + r + i) : 1.0 / (1 + r + i);
    GW_TRY(gw_comm_sum_f64(c, x, 64, "x", dg));
    for (int i = 0; i < 3; i++) /* in the order of ranks, so to the bit */
        RANK_CHECK(dg, memcmp(&x[i], &want[i], 8) == 0, "sum %d: %.17g", i, x[i]);
    int64_t m[2] = {me == 1 ? INT64_MAX : -me, -1 - me};
    GW_TRY(gw_comm_max_i64(c, m, 2, "m", dg));
    RANK_CHECK(dg, m[0] == INT64_MAX && m[1] == -1, "max %lld %lld", (long long)m[0],
               (long long)m[1]);
    GW_TRY(gw_comm_barrier(c, "b", dg));
    for (size_t k = 0; k < GW_COUNT(message_sizes); k++) {
        size_t len = (size_t)message_sizes[k];
        uint8_t *bytes = gw_mem_alloc(len + 1), *all = gw_mem_alloc(len * (size_t)n + 1);
        memcpy(bytes, window(me, 0, 0), len);
        GW_TRY(gw_comm_all_gather(c, bytes, (int64_t)len, all, "g", dg));
        for (int r = 0; r < n; r++)
            RANK_CHECK(dg, memcmp(all + (size_t)r * len, window(r, 0, 0), len) == 0,
                       "gather of %zu: rank %d", len, r);
        GW_TRY(gw_comm_broadcast(c, bytes, (int64_t)len, "w", dg));
        RANK_CHECK(dg, memcmp(bytes, window(0, 0, 0), len) == 0, "broadcast of %zu", len);
        gw_mem_free(bytes);
        gw_mem_free(all);
    }
    return GW_OK;
}
TEST(comm_host_ops) {
    fill_table();
    everywhere(host_ops, NULL);
}

/* A barrier separates: what a rank wrote before is seen after, again and again. */
typedef struct shared_counts {
    _Atomic int arrived;
} shared_counts;
static gw_status barriers(gw_comm *c, void *user, gw_diags *dg) {
    shared_counts *s = user;
    for (int i = 1; i <= 300; i++) {
        s->arrived++;
        GW_TRY(gw_comm_barrier(c, "round", dg));
        int seen = s->arrived;
        RANK_CHECK(dg, seen == i * gw_comm_size(c), "round %d: %d have arrived", i, seen);
        GW_TRY(gw_comm_barrier(c, "read", dg));
    }
    return GW_OK;
}
TEST(comm_barrier_separates) {
    for (int n = 2; n <= 12; n += 5) {
        shared_counts s = {0};
        rig_threads(n, barriers, &s);
    }
}

/* ------------------------------------------------------------------------------ exchange */

typedef enum pattern { RING, PAIRWISE, TREE_UP, TREE_DOWN, SHIFT_BACK, SELF, PATTERNS } pattern;

/* Partners of rank `me` in step `k`, -1 for none; false when there is no such step. */
static bool partners(pattern p, int me, int n, int k, int *to, int *from) {
    *to = *from = -1;
    switch (p) {
    case RING:
        *to = (me + 1) % n;
        *from = (me + n - 1) % n;
        return k < n;
    case PAIRWISE:
        *to = (me + k) % n;
        *from = (me + n - k) % n;
        return k < n;
    case SHIFT_BACK:
        *to = (me + n - 1) % n;
        *from = (me + 1) % n;
        return k < 2;
    case SELF: *to = *from = me; return k < 1;
    case TREE_UP: /* children 2i+1, 2i+2 send to i */
        if (k < 2 && 2 * me + 1 + k < n) *from = 2 * me + 1 + k;
        if (k == 2 && me > 0) *to = (me - 1) / 2;
        return k < 3;
    case TREE_DOWN:
        if (k == 0 && me > 0) *from = (me - 1) / 2;
        if (k > 0 && 2 * me + k < n) *to = 2 * me + k;
        return k < 3;
    case PATTERNS: break;
    }
    return false;
}

static gw_status patterns_of(gw_comm *c, uint8_t *send, uint8_t *recv, int64_t bytes,
                             gw_diags *dg) {
    gw_transport *t = gw_comm_transport(c);
    int me = gw_comm_rank(c), n = gw_comm_size(c), ranks[16];
    for (int i = 0; i < n; i++) ranks[i] = i;
    gw_group g = {n, me, ranks};
    for (int p = 0; p < PATTERNS; p++) {
        int to, from;
        for (int k = 0; partners((pattern)p, me, n, k, &to, &from); k++) {
            if (to >= 0) memcpy(send, window(me, to, p), (size_t)bytes);
            memset(recv, 0xee, bytes < 0 ? 0 : (size_t)bytes);
            GW_TRY(t->ops->exchange(t, &g, to, send, to < 0 ? 0 : bytes, from, recv,
                                    from < 0 ? 0 : bytes, dg));
            RANK_CHECK(dg, from < 0 || memcmp(recv, window(from, me, p), (size_t)bytes) == 0,
                       "pattern %d step %d, %lld bytes", p, k, (long long)bytes);
        }
    }
    return GW_OK;
}

static gw_status exchanges(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    uint8_t *plain = gw_mem_alloc(MOST), *recv = gw_mem_alloc(MOST);
    rig_memory m;
    GW_TRY(rig_memory_share(c, MOST, &m, dg));
    for (size_t i = 0; i < GW_COUNT(message_sizes); i++) {
        GW_TRY(patterns_of(c, plain, recv, message_sizes[i], dg));
        GW_TRY(patterns_of(c, m.base, recv, message_sizes[i], dg)); /* read where it lies */
    }
    GW_TRY(gw_comm_barrier(c, "done", dg));
    rig_memory_release(c, &m);
    gw_mem_free(plain);
    gw_mem_free(recv);
    return GW_OK;
}
TEST(comm_exchange_patterns) {
    fill_table();
    everywhere(exchanges, NULL);
}

/* When exchange returns, src may be overwritten at once: the receiver never sees that. */
static gw_status one_way(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    enum { N = 50000 };
    rig_memory m;
    GW_TRY(rig_memory_share(c, N, &m, dg));
    uint8_t *b = m.base;
    gw_transport *t = gw_comm_transport(c);
    int ranks[2] = {0, 1}, me = gw_comm_rank(c);
    gw_group g = {2, me, ranks};
    for (int i = 0; i < 300; i++) {
        memset(b, me == 0 ? i : 0xee, N);
        if (me == 0) {
            GW_TRY(t->ops->exchange(t, &g, 1, b, N, -1, NULL, 0, dg));
            continue; /* and overwrites it at once */
        }
        GW_TRY(t->ops->exchange(t, &g, -1, NULL, 0, 0, b, N, dg));
        for (int k = 0; k < N; k += 97) RANK_CHECK(dg, b[k] == (uint8_t)i, "turn %d byte %d", i, k);
    }
    GW_TRY(gw_comm_barrier(c, "done", dg));
    rig_memory_release(c, &m);
    return GW_OK;
}
TEST(comm_exchange_returns_when_src_is_free) {
    rig_threads(2, one_way, NULL);
    rig_processes(2, one_way, NULL);
}

/* ------------------------------------------------------------------------------ peers' memory */

static gw_status peers(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c), n = gw_comm_size(c), ranks[16];
    for (int i = 0; i < n; i++) ranks[i] = n - 1 - i; /* group order is not rank order */
    gw_transport *t = gw_comm_transport(c);
    gw_group g = {n, n - 1 - me, ranks};
    int outside = 0;
    RANK_CHECK(dg, t->ops->peer(t, &g, 0, &outside) == NULL, "a peer's place of nothing shared");
    rig_memory m[3];
    for (int i = 0; i < 3; i++) {
        GW_TRY(rig_memory_share(c, 4096 * (i + 1), &m[i], dg));
        RANK_CHECK(dg, m[i].handle >= 0, "no handle");
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 3; i++) {
            int64_t *mine = m[i].base;
            mine[5 + round] = 1000 * i + me + round;
            GW_TRY(t->ops->sync(t, &g, dg));
            for (int r = 0; r < n; r++) {
                const int64_t *theirs = t->ops->peer(t, &g, r, &mine[5]);
                RANK_CHECK(dg, theirs && theirs[round] == 1000 * i + ranks[r] + round,
                           "region %d of rank %d", i, ranks[r]);
            }
            GW_TRY(t->ops->sync(t, &g, dg)); /* all have read */
        }
    GW_TRY(t->ops->sync(t, &g, dg));
    gw_comm_unshare(c, m[1].handle);
    RANK_CHECK(dg, t->ops->peer(t, &g, 0, m[1].base) == NULL, "unshared, and still there");
    m[1].handle = -1;
    for (int i = 0; i < 3; i++) rig_memory_release(c, &m[i]);
    return GW_OK;
}
TEST(comm_peer_memory) { everywhere(peers, NULL); }

/* Every rank has its own size, one none at all: what is there is seen, what is not is NULL. */
static gw_status own_sizes(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c), n = gw_comm_size(c), ranks[8];
    for (int i = 0; i < n; i++) ranks[i] = i;
    gw_group g = {n, me, ranks};
    gw_transport *t = gw_comm_transport(c);
    for (int round = 0; round < 3; round++) {
        rig_memory m = {.fd = -1, .handle = -1};
        int64_t bytes = 5000 * ((me + round) % n); /* of one rank: none */
        if (bytes)
            GW_TRY(rig_memory_share(c, bytes, &m, dg));
        else
            GW_TRY(gw_comm_share(c, NULL, 0, -1, &m.handle, dg));
        RANK_CHECK(dg, m.handle >= 0, "no handle");
        int64_t *mine = m.base;
        for (int64_t i = 0; i < bytes / 8; i++) mine[i] = 1000000 * me + i;
        GW_TRY(gw_comm_barrier(c, "written", dg));
        for (int r = 0; r < n; r++)
            for (int64_t at = 0; at < bytes / 8; at += 100) {
                int64_t theirs = 5000 * ((r + round) % n);
                const int64_t *p = t->ops->peer(t, &g, r, &mine[at]);
                RANK_CHECK(dg, (p != NULL) == (at * 8 < theirs), "place %lld of rank %d",
                           (long long)at, r);
                RANK_CHECK(dg, !p || *p == 1000000 * r + at, "value of rank %d", r);
            }
        GW_TRY(gw_comm_barrier(c, "read", dg));
        if (bytes)
            rig_memory_release(c, &m);
        else
            gw_comm_unshare(c, m.handle);
    }
    return GW_OK;
}
TEST(comm_regions_of_own_sizes) {
    for (int n = 2; n <= 5; n += 3) {
        rig_threads(n, own_sizes, NULL);
        rig_processes(n, own_sizes, NULL);
    }
}

/* ------------------------------------------------------------------------------ collectives */

static gw_status collectives_on(gw_comm *c, uint32_t axes, int64_t size, int first, int stride,
                                gw_diags *dg) {
    enum { N = 37 };
    float src[N], dst[N];
    char scratch[4096];
    int me = gw_comm_rank(c);
    float want = 0.0f;
    for (int64_t i = 0; i < size; i++) want += (float)(first + (int)i * stride);
    for (int i = 0; i < N; i++) src[i] = (float)me * (float)(i + 1);
    gw_coll_part part = {.elems = N, .src = src, .dst = dst};
    gw_coll k = {.kind = GW_COLL_ALL_REDUCE,
                 .dtype = GW_F32,
                 .axes = axes,
                 .size = size,
                 .nparts = 1,
                 .parts = &part,
                 .scope = "test"};
    GW_TRY(gw_coll_run_with(c, &k, &rig_algorithm, scratch, 1, dg));
    for (int i = 0; i < N; i++)
        RANK_CHECK(dg, dst[i] == want * (float)(i + 1), "axes %x: %g is not %g", axes,
                   (double)dst[i], (double)(want * (float)(i + 1)));
    return GW_OK;
}

/* Six ranks as dp 3 x tp 2 (dp major): groups by mask have the ranks of arithmetic by hand. */
static gw_status mesh_groups(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    gw_mesh m = {0};
    uint32_t dp = gw_mesh_add(&m, "dp", 3), tp = gw_mesh_add(&m, "tp", 2);
    gw_comm_set_mesh(c, &m);
    int me = gw_comm_rank(c);
    for (int round = 0; round < 5; round++) {
        GW_TRY(collectives_on(c, dp, 3, me % 2, 2, dg));
        GW_TRY(collectives_on(c, tp, 2, me / 2 * 2, 1, dg));
        GW_TRY(collectives_on(c, dp | tp, 6, 0, 1, dg));
        GW_TRY(gw_comm_barrier(c, "round", dg));
    }
    gw_comm_counts n = gw_comm_counted(c, GW_COLL_ALL_REDUCE);
    RANK_CHECK(dg, n.calls == 15, "%lld calls", (long long)n.calls);
    int64_t moved = 5 * (2 + 1 + 5) * 37 * 4; /* n - 1 copies of 37 floats each */
    RANK_CHECK(dg, n.moved == moved, "%lld bytes moved", (long long)n.moved);
    RANK_CHECK(dg, n.ns > 0 && n.wait_ns >= 0 && n.wait_ns <= n.ns, "times");
    gw_comm_counts_reset(c);
    RANK_CHECK(dg, gw_comm_counted(c, GW_COLL_ALL_REDUCE).calls == 0, "not reset");
    return GW_OK;
}
TEST(comm_mesh_groups) {
    rig_threads(6, mesh_groups, NULL);
    rig_processes(6, mesh_groups, NULL);
}

/* The second time nothing is allocated. */
static gw_status no_allocation(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int n = gw_comm_size(c);
    GW_TRY(collectives_on(c, 0, n, 0, 1, dg));
    int64_t before = gw_mem_count();
    for (int i = 0; i < 50; i++) {
        double x = 1.0;
        GW_TRY(collectives_on(c, 0, n, 0, 1, dg));
        GW_TRY(gw_comm_sum_f64(c, &x, 1, "x", dg));
        gw_comm_alive(c, 1);
    }
    RANK_CHECK(dg, gw_mem_count() == before, "%lld allocations",
               (long long)(gw_mem_count() - before));
    return GW_OK;
}
TEST(comm_allocates_nothing) { rig_processes(3, no_allocation, NULL); }

/* ------------------------------------------------------------------------------ flight recorder */

TEST(comm_flight_keeps_the_last) {
    static gw_flight f;
    gw_flight_mark m;
    CHECK(!gw_flight_read(&f, 0, &m) && !gw_flight_read(&f, 1, &m));
    for (int i = 1; i <= 100; i++) {
        gw_coll_mark k = {.seq = (uint64_t)i, .signature = 7};
        snprintf(k.text, sizeof k.text, "number %d", i);
        gw_flight_begin(&f, &k, 9, i * 1000);
        if (i < 100) gw_flight_end(&f, i * 1000 + 500);
    }
    CHECK_EQ(gw_flight_count(&f), 100);
    CHECK(!gw_flight_read(&f, 36, &m)); /* 64 are kept: 37 .. 100 */
    CHECK(gw_flight_read(&f, 37, &m));
    CHECK_STR(m.text, "number 37");
    CHECK_EQ(m.end_ns - m.start_ns, 500);
    CHECK(gw_flight_read(&f, 100, &m));
    CHECK_EQ(m.end_ns, 0);
    CHECK_EQ(m.group, 9);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    gw_flight_print(&f, NULL, 3, 200 * 1000, out);
    fclose(out);
    CHECK(strstr(text, "rank 3: 100 collectives") && strstr(text, "number 37") &&
          !strstr(text, "number 36\n") && strstr(text, "not ended"));
    free(text);
}

/* The table shows every rank's last collectives with size, dtype, algorithm and scope. */
static gw_status print_all(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    GW_TRY(collectives_on(c, 0, 3, 0, 1, dg));
    GW_TRY(gw_comm_barrier(c, "the end", dg));
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    gw_comm_print_flight(c, out);
    fclose(out);
    for (int r = 0; r < 3; r++) {
        char head[32]; /* it may be on its way to the next */
        snprintf(head, sizeof head, "rank %d: ", r);
        const char *at = strstr(text, head);
        RANK_CHECK(dg, at && strtol(at + strlen(head), NULL, 10) >= 2, "no '%s' in %s", head, text);
    }
    RANK_CHECK(dg, strstr(text, "all-reduce f32 37 of test, rig, over all ranks"), "%s", text);
    RANK_CHECK(dg, strstr(text, "barrier the end, over all ranks"), "%s", text);
    free(text);
    return gw_comm_barrier(c, "printed", dg);
}
TEST(comm_flight_of_all) {
    rig_threads(3, print_all, NULL);
    rig_processes(3, print_all, NULL);
}
