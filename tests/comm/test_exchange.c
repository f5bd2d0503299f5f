// SPDX-License-Identifier: Apache-2.0
// Rows by counts: every row arrives where the matrix says, whatever the counts, pairwise and in two
// levels; bytes are counted as predicted; ranks that disagree about the matrix are named.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"     /* gw_mem_alloc */
#include "comm/comm_impl.h" /* gw_comm_group_of */
#include "comm/exchange.h"
#include "harness.h"
#include "rig.h"

enum { RANKS = 12, WIDTH = 3 };

typedef struct plan {
    int per_host; /* 0: as it is */
    int pattern;
    int wrong_rank; /* -1: none */
} plan;

/* Rows from i to j. */
static int64_t rows_of(int pattern, int n, int i, int j) {
    switch (pattern) {
    case 0: return 1 + (i * 5 + j * 3) % 4;
    case 1: return j == 0 ? 40 + i : 0;         /* everything to one */
    case 2: return i == 1 % n ? 7 * j % 11 : 0; /* everything from one */
    case 3: return (i * n + j) % 3 == 0 ? 900 : 0;
    default: return 0; /* nobody sends */
    }
}

static int64_t value_of(int from, int to, int64_t row, int column) {
    return ((from * 100LL + to) * 10000 + row) * 10 + column;
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    const plan *p = user;
    int n = gw_comm_size(c), me = gw_comm_rank(c);
    int64_t rows[RANKS * RANKS], send_at[RANKS], recv_at[RANKS], out = 0, in = 0;
    gw_comm_set_mesh(c, NULL);
    gw_comm_group *g = gw_comm_group_of(c, UINT32_MAX, n);
    if (p->per_host) g->per_host = p->per_host;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) rows[i * n + j] = rows_of(p->pattern, n, i, j);
    if (me == p->wrong_rank) rows[0]++;
    for (int i = n - 1; i >= 0; i--) { /* places in another order than the ranks */
        send_at[i] = out;
        out += rows[me * n + i];
    }
    for (int i = 0; i < n; i++) {
        recv_at[i] = in;
        in += rows[i * n + me];
    }
    int64_t row_bytes = WIDTH * 8, most = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0, a = 0, b = 0; j < n; j++) {
            a += (int)rows[i * n + j];
            b += (int)rows[j * n + i];
            most = GW_MAX(most, (int64_t)GW_MAX(a, b));
        }
    int64_t bytes = gw_exchange_scratch_bytes(n, g->per_host, most, row_bytes);
    int64_t *src = gw_mem_alloc((size_t)(out * row_bytes) + 8);
    int64_t *dst = gw_mem_zalloc((size_t)(in * row_bytes) + 8);
    char *scratch = aligned_alloc(64, (size_t)bytes + 64);
    for (int j = 0; j < n; j++)
        for (int64_t r = 0; r < rows[me * n + j]; r++)
            for (int k = 0; k < WIDTH; k++)
                src[(send_at[j] + r) * WIDTH + k] = value_of(me, j, r, k);
    gw_exchange_part part = {(const char *)src, (char *)dst, row_bytes};
    gw_exchange x = {UINT32_MAX, n, rows, send_at, recv_at, 1, &part, "layer 0/moe"};
    gw_comm_counts_reset(c);
    gw_status st = gw_comm_exchange(c, &x, scratch, dg);
    if (st == GW_OK) {
        for (int i = 0; i < n; i++)
            for (int64_t r = 0; r < rows[i * n + me]; r++)
                for (int k = 0; k < WIDTH; k++)
                    RANK_CHECK(dg, dst[(recv_at[i] + r) * WIDTH + k] == value_of(i, me, r, k),
                               "row %lld from %d", (long long)r, i);
        gw_coll_traffic t = gw_exchange_traffic(&x, g->per_host, me);
        gw_comm_counts seen = gw_comm_counted(c, GW_COLL_ALL_TO_ALL);
        RANK_CHECK(dg, seen.payload == t.payload && seen.moved == t.moved,
                   "moved %lld, planned %lld", (long long)seen.moved, (long long)t.moved);
    }
    gw_mem_free(src);
    gw_mem_free(dst);
    free(scratch);
    return st;
}

TEST(rows_arrive_pairwise) {
    for (int n = 1; n <= 5; n += 2)
        for (int pattern = 0; pattern < 5; pattern++) {
            plan p = {0, pattern, -1};
            rig_threads(n, body, &p);
        }
    plan p = {0, 3, -1};
    rig_processes(4, body, &p);
}

TEST(rows_arrive_in_two_levels) {
    static const int shapes[][2] = {{4, 2}, {6, 2}, {6, 3}, {12, 4}, {6, 4 /* divides nothing */}};
    for (size_t i = 0; i < GW_COUNT(shapes); i++)
        for (int pattern = 0; pattern < 5; pattern++) {
            plan p = {shapes[i][1], pattern, -1};
            rig_threads(shapes[i][0], body, &p);
        }
}

/* In two levels a row crosses between hosts once if it has to, and moves within the sender's host
 * once if sender and receiver do not stand alike: all ranks together send that and no more. */
TEST(rows_cross_hosts_once) {
    enum { N = 8, P = 4 };
    int64_t rows[N * N], hops = 0, moved = 0, payload = 0, leave = 0;
    gw_exchange_part part = {NULL, NULL, 1};
    gw_exchange x = {1, N, rows, NULL, NULL, 1, &part, ""};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            rows[i * N + j] = 1 + (i + 2 * j) % 5;
            hops += rows[i * N + j] * ((i % P != j % P) + (i / P != j / P));
            leave += i == j ? 0 : rows[i * N + j];
        }
    for (int r = 0; r < N; r++) {
        payload += gw_exchange_traffic(&x, P, r).payload;
        moved += gw_exchange_traffic(&x, P, r).moved;
    }
    CHECK_EQ(moved, hops);
    CHECK_EQ(payload, leave);
}

TEST(ranks_that_disagree_about_counts_are_named) {
    plan p = {0, 0, 1};
    rig_result r;
    rig_forked(3, 3, body, &p, &r);
    CHECK(r.exit_code != 0 && r.seconds < 20);
    CHECK_MSG(strstr(r.text, "exchange of rows") && strstr(r.text, "layer 0/moe"), "%s", r.text);
}

/* ---- counts ---- */

static gw_status counts(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int n = gw_comm_size(c), me = gw_comm_rank(c);
    int64_t mine[5], all[5 * RANKS];
    for (int i = 0; i < 5; i++) mine[i] = 1000 * me + i;
    gw_comm_set_mesh(c, NULL);
    GW_TRY(gw_comm_exchange_counts(c, UINT32_MAX, n, mine, 5, all, "x", dg));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 5; i++)
            RANK_CHECK(dg, all[5 * r + i] == 1000 * r + i, "count %d of rank %d", i, r);
    return GW_OK;
}

TEST(counts_reach_everyone) {
    for (int n = 1; n <= 9; n += 4) rig_threads(n, counts, NULL);
}
