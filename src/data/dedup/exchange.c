// SPDX-License-Identifier: Apache-2.0
// Bytes from every rank to every rank, of any size, from files to files.
//
// The keys of a corpus do not fit in memory, so they travel in rounds: in each, a rank reads up to
// ROUND bytes for each other from that one's file, one exchange with counts moves them, and what
// arrives is appended to a file for each sender. All ranks know all sizes from the start, so they
// agree on the number of rounds. A hash of each stream goes ahead and is compared at its end: a
// disk or a wire that changed a byte is named, not clustered.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/hash.h"             /* gw_hasher */
#include "base/io.h"               /* gw_fd_pread_all */
#include "comm/exchange.h"         /* gw_comm_exchange */
#include "data/dedup/dedup_impl.h" /* gw_dedup_exchange */
#include "ir/mesh.h"               /* gw_mesh_add */

enum { ROUND = 1 << 20, ROUND_ALL = 64 << 20 };

typedef struct stream {
    int64_t bytes;
    gw_hash128 hash;
} stream;

typedef struct swap {
    gw_comm *comm;
    int rank, size;
    uint32_t axes;
    int64_t round; /* bytes between a pair in one exchange */
    const int *out;
    int *in;
    const stream *all;   /* [size * size], sender major */
    int64_t *rows, *at;  /* [size * size], [size] */
    char *send, *recv;   /* [size * round] */
    gw_hasher **hashers; /* [size] of what arrives */
    void *scratch;
} swap;

/* Hash of the first n bytes of a file. */
static gw_status hash_file(int fd, int64_t n, gw_hash128 *hash, gw_diags *dg) {
    char *buffer = gw_mem_alloc(ROUND);
    gw_hasher *h = gw_hasher_new();
    gw_status s = GW_OK;
    for (int64_t at = 0; at < n && s == GW_OK; at += ROUND) {
        int64_t k = GW_MIN(n - at, ROUND);
        s = gw_fd_pread_all(fd, buffer, k, at, "a file of keys", dg);
        if (s == GW_OK) gw_hasher_add(h, buffer, (size_t)k);
    }
    *hash = gw_hasher_get(h);
    gw_hasher_free(h);
    gw_mem_free(buffer);
    return s;
}

static int64_t in_round(const swap *x, int from, int to, int64_t number) {
    int64_t left = x->all[from * x->size + to].bytes - number * x->round;
    return GW_MAX(GW_MIN(left, x->round), 0);
}

static gw_status run_round(swap *x, int64_t number, gw_diags *dg) {
    for (int i = 0; i < x->size; i++) {
        x->at[i] = i * x->round;
        for (int j = 0; j < x->size; j++) x->rows[i * x->size + j] = in_round(x, i, j, number);
    }
    for (int j = 0; j < x->size; j++) {
        int64_t n = x->rows[x->rank * x->size + j];
        if (n)
            GW_TRY(gw_fd_pread_all(x->out[j], x->send + x->at[j], n, number * x->round,
                                   "a file of keys", dg));
    }
    gw_exchange_part part = {x->send, x->recv, 1};
    gw_exchange e = {.axes = x->axes,
                     .size = x->size,
                     .rows = x->rows,
                     .send_at = x->at,
                     .recv_at = x->at,
                     .nparts = 1,
                     .parts = &part,
                     .scope = "keys of dedup"};
    GW_TRY(gw_comm_exchange(x->comm, &e, x->scratch, dg));
    for (int i = 0; i < x->size; i++) {
        int64_t n = x->rows[i * x->size + x->rank];
        gw_hasher_add(x->hashers[i], x->recv + x->at[i], (size_t)n);
        GW_TRY(gw_fd_write_all(x->in[i], x->recv + x->at[i], n, "a file of keys", dg));
    }
    return GW_OK;
}

static gw_status all_rounds(swap *x, gw_diags *dg) {
    int64_t most = 0;
    for (int i = 0; i < x->size * x->size; i++) most = GW_MAX(most, x->all[i].bytes);
    for (int64_t r = 0; r * x->round < most; r++) GW_TRY(run_round(x, r, dg));
    for (int i = 0; i < x->size; i++) {
        gw_hash128 is = gw_hasher_get(x->hashers[i]), want = x->all[i * x->size + x->rank].hash;
        if (is.lo != want.lo || is.hi != want.hi)
            return GW_FAIL(dg, GW_ERR_PEER, "dedup-peer",
                           "what rank %d sent is not what arrived here: its hash differs", i);
    }
    return GW_OK;
}

/* Tells everybody all sizes and hashes. */
static gw_status tell(swap *x, const int64_t *out_bytes, stream *all, gw_diags *dg) {
    stream *mine = gw_mem_zalloc((size_t)x->size * sizeof *mine);
    gw_status s = GW_OK;
    for (int j = 0; j < x->size && s == GW_OK; j++) {
        mine[j].bytes = out_bytes[j];
        s = hash_file(x->out[j], out_bytes[j], &mine[j].hash, dg);
    }
    if (s == GW_OK)
        s = gw_comm_all_gather(x->comm, mine, x->size * (int64_t)sizeof *mine, all,
                               "sizes of dedup's keys", dg);
    gw_mem_free(mine);
    return s;
}

static void *scratch_for(const swap *x) {
    int64_t per_host = gw_comm_machine(x->comm)->per_host;
    int64_t n = gw_exchange_scratch_bytes(x->size, per_host, x->size * x->round, 1);
    return aligned_alloc(64, (size_t)(n / 64 + 1) * 64);
}

gw_status gw_dedup_exchange(gw_comm *comm, const int *out, const int64_t *out_bytes, int *in,
                            int64_t *in_bytes, const char *dir, gw_diags *dg) {
    gw_mesh mesh = {0};
    swap x = {
        .comm = comm, .rank = gw_comm_rank(comm), .size = gw_comm_size(comm), .out = out, .in = in};
    size_t n = (size_t)x.size;
    x.axes = gw_mesh_add(&mesh, "dp", x.size);
    gw_comm_set_mesh(comm, &mesh);
    x.round = GW_MAX(GW_MIN(ROUND, ROUND_ALL / x.size), 4096);
    stream *all = gw_mem_zalloc(n * n * sizeof *all);
    x.all = all;
    x.rows = gw_mem_zalloc(n * n * 8);
    x.at = gw_mem_zalloc(n * 8);
    x.send = gw_mem_alloc(n * (size_t)x.round);
    x.recv = gw_mem_alloc(n * (size_t)x.round);
    x.hashers = gw_mem_zalloc(n * sizeof *x.hashers);
    x.scratch = scratch_for(&x);
    gw_status s = GW_OK;
    for (int i = 0; i < x.size; i++) {
        x.hashers[i] = gw_hasher_new();
        in[i] = -1;
        if (s == GW_OK) s = gw_recs_unnamed(dir, &in[i], dg);
    }
    if (s == GW_OK && !x.scratch)
        s = GW_FAIL(dg, GW_ERR_MEMORY, "dedup-peer", "no memory for an exchange of keys");
    if (s == GW_OK) s = tell(&x, out_bytes, all, dg);
    if (s == GW_OK) s = all_rounds(&x, dg);
    for (int i = 0; i < x.size; i++) {
        in_bytes[i] = all[i * x.size + x.rank].bytes;
        gw_hasher_free(x.hashers[i]);
    }
    gw_mem_free(all);
    gw_mem_free(x.rows);
    gw_mem_free(x.at);
    gw_mem_free(x.send);
    gw_mem_free(x.recv);
    gw_mem_free(x.hashers);
    free(x.scratch);
    return s;
}
