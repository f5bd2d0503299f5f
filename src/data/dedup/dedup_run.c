// SPDX-License-Identifier: Apache-2.0
// Steps 2 and 3 by one process, by ranks that share a folder, or by ranks that do not.
//
// Whether DIR is one folder is found out by looking: rank 0 makes a file there and the others see
// it or not. Where it is, tasks are divided by their number and step 3 is rank 0's. Where it is
// not, the .keys files of the units are spread over the ranks; each task belongs to a rank, to
// which all others send what their units have for it; what the tasks find goes to rank 0, and the
// list of what goes from there to all. The merged order of a task's records depends on the records
// only, so the files are the same to the byte as those of one process.
//
// A rank that fails tells the others at the next meeting point, so that each ends with an error of
// its own and none waits.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_arena */
#include "base/clock.h"            /* gw_clock_ns */
#include "base/io.h"               /* gw_file_write_atomic */
#include "data/dedup/dedup_impl.h" /* gw_dedup_task_runs, gw_dedup_exchange */

/* How long the others may wait for one rank's share of the work. */
#define PATIENCE_S (7 * 24 * 3600.0)

// ------------------------------------------------------------------------------ together

/* All ranks call it: GW_OK everywhere, or an error everywhere. */
static gw_status agree(gw_comm *c, gw_status mine, const char *what, gw_diags *dg) {
    int64_t failed = mine != GW_OK;
    gw_comm_busy(c, NULL, 0);
    gw_status s = gw_comm_max_i64(c, &failed, 1, what, dg);
    if (mine != GW_OK) return mine;
    if (s != GW_OK) return s;
    if (!failed) return GW_OK;
    return GW_FAIL(dg, GW_ERR_PEER, "dedup-peer",
                   "another rank failed at %s; its own message says why", what);
}

static gw_status find_shared(const gw_dedup_options *o, gw_comm *c, bool *shared, gw_diags *dg) {
    gw_arena a = {0};
    int64_t number = gw_clock_ns() ^ (int64_t)getpid() << 40, missing;
    gw_status s = gw_dir_make(o->dir, dg);
    if (s == GW_OK) s = gw_comm_broadcast(c, &number, sizeof number, "dedup's folder", dg);
    char *path = gw_arena_printf(&a, "%s/shared-%016llx", o->dir, (unsigned long long)number);
    if (s == GW_OK && gw_comm_rank(c) == 0) s = gw_file_write_atomic(path, "", 0, dg);
    s = agree(c, s, "dedup's folder", dg);
    missing = !gw_path_exists(path);
    if (s == GW_OK) s = gw_comm_max_i64(c, &missing, 1, "dedup's folder", dg);
    if (gw_comm_rank(c) == 0) unlink(path);
    *shared = !missing;
    gw_arena_release(&a);
    return s;
}

static gw_status run_shared(const gw_dedup_options *o, gw_comm *c, gw_diags *dg) {
    int rank = gw_comm_rank(c), size = gw_comm_size(c);
    gw_status s = GW_OK;
    gw_comm_busy(c, "sorting bands", PATIENCE_S);
    for (int64_t t = rank; t < gw_dedup_tasks(o) && s == GW_OK; t += size)
        s = gw_dedup_task(o, t, dg);
    GW_TRY(agree(c, s, "dedup's bands", dg));
    gw_comm_busy(c, "joining clusters", PATIENCE_S);
    if (rank == 0) s = gw_dedup_cluster(o, dg);
    return agree(c, s, "dedup's clusters", dg);
}

// ------------------------------------------------------------------------------ apart

/* What goes to each rank, and what came: pieces of a header (task, records) and records. */
typedef struct post {
    const gw_dedup_options *o;
    gw_comm *comm;
    int rank, size;
    int *out, *in; /* [size] */
    int64_t *out_bytes, *in_bytes;
} post;

static gw_status post_open(post *p, gw_diags *dg) {
    size_t n = (size_t)p->size;
    p->out = gw_mem_alloc(n * sizeof *p->out);
    p->in = gw_mem_alloc(n * sizeof *p->in);
    p->out_bytes = gw_mem_zalloc(n * 8);
    p->in_bytes = gw_mem_zalloc(n * 8);
    gw_status s = GW_OK;
    for (int i = 0; i < p->size; i++) {
        p->out[i] = p->in[i] = -1;
        if (s == GW_OK) s = gw_recs_unnamed(p->o->dir, &p->out[i], dg);
    }
    return s;
}

static void post_close(post *p) {
    for (int i = 0; i < p->size; i++) {
        if (p->out[i] >= 0) close(p->out[i]);
        if (p->in[i] >= 0) close(p->in[i]);
    }
    gw_mem_free(p->out);
    gw_mem_free(p->in);
    gw_mem_free(p->out_bytes);
    gw_mem_free(p->in_bytes);
}

static gw_status post_add(post *p, int to, const void *bytes, int64_t n, gw_diags *dg) {
    p->out_bytes[to] += n;
    return gw_fd_write_all(p->out[to], bytes, n, "a file of keys", dg);
}

static gw_status post_send(post *p, gw_status s, const char *what, gw_diags *dg) {
    GW_TRY(agree(p->comm, s, what, dg));
    return gw_dedup_exchange(p->comm, p->out, p->out_bytes, p->in, p->in_bytes, p->o->dir, dg);
}

/* Everything that this rank's units have for task t, merged, for its owner. The header is written
 * again when the number of records is known: their sum is, so it comes first at once. */
static gw_status send_task(post *p, int64_t t, gw_diags *dg) {
    gw_arena a = {0};
    gw_run *runs;
    gw_merge *m = NULL;
    const uint64_t *r;
    int64_t n, words = gw_dedup_words(p->o), header[2] = {t, 0};
    int to = (int)(t % p->size);
    gw_str buffer = {0};
    gw_status s = gw_dedup_task_find(p->o, t, true, &a, &runs, &n, dg);
    for (int64_t i = 0; s == GW_OK && i < n; i++) header[1] += runs[i].count;
    if (s == GW_OK) s = post_add(p, to, header, sizeof header, dg);
    if (s == GW_OK)
        s = gw_merge_open(runs, n, (int)words, p->o->memory_bytes / 2, p->o->dir, &m, dg);
    while (s == GW_OK && (s = gw_merge_next(m, &r, dg)) == GW_OK && r) {
        gw_str_add_n(&buffer, r, (size_t)words * 8);
        if (buffer.len < 1 << 20) continue;
        s = post_add(p, to, buffer.data, (int64_t)buffer.len, dg);
        gw_str_clear(&buffer);
    }
    if (s == GW_OK) s = post_add(p, to, gw_str_c(&buffer), (int64_t)buffer.len, dg);
    gw_merge_free(m);
    gw_str_release(&buffer);
    gw_arena_release(&a);
    return s;
}

/* The runs of task t in what came: each sender's pieces are in the order of the tasks. at[i]: where
 * sender i's next piece begins. */
static gw_status find_pieces(const post *p, int64_t t, int64_t *at, gw_run *runs, gw_diags *dg) {
    int64_t header[2], record = 8 * gw_dedup_words(p->o);
    for (int i = 0; i < p->size; i++) {
        GW_TRY(gw_fd_pread_all(p->in[i], header, sizeof header, at[i], "a file of keys", dg));
        int64_t room = p->in_bytes[i] - at[i] - (int64_t)sizeof header;
        if (header[0] != t || header[1] < 0 || header[1] > room / record)
            return GW_FAIL(dg, GW_ERR_PEER, "dedup-peer",
                           "rank %d sent keys of task %lld where those of task %lld belong: do all "
                           "ranks have the same options?",
                           i, (long long)header[0], (long long)t);
        runs[i] =
            (gw_run){.fd = p->in[i], .offset = at[i] + (int64_t)sizeof header, .count = header[1]};
        at[i] += (int64_t)sizeof header + header[1] * record;
    }
    return GW_OK;
}

static gw_status own_tasks(const post *p, gw_diags *dg) {
    int64_t *at = gw_mem_zalloc((size_t)p->size * 8);
    gw_run *runs = gw_mem_zalloc((size_t)p->size * sizeof *runs);
    gw_status s = GW_OK;
    for (int64_t t = p->rank; t < gw_dedup_tasks(p->o) && s == GW_OK; t += p->size) {
        s = find_pieces(p, t, at, runs, dg);
        if (s == GW_OK) s = gw_dedup_task_runs(p->o, t, runs, p->size, dg);
    }
    gw_mem_free(at);
    gw_mem_free(runs);
    return s;
}

/* A whole file for one rank: (number, bytes) and its bytes. */
static gw_status send_file(post *p, int to, int64_t number, const char *path, gw_diags *dg) {
    gw_mapping m;
    GW_TRY(gw_map_open(&m, path, dg));
    int64_t header[2] = {number, m.bytes};
    gw_status s = post_add(p, to, header, sizeof header, dg);
    if (s == GW_OK) s = post_add(p, to, m.data, m.bytes, dg);
    gw_map_release(&m);
    return s;
}

static gw_status write_piece(int fd, int64_t offset, int64_t n, const char *path, gw_diags *dg) {
    char *buffer = gw_mem_alloc(1 << 20), *name = NULL;
    gw_arena a = {0};
    gw_status s = GW_OK;
    int to = gw_io_create_beside(&a, path, &name);
    if (to < 0) s = gw_io_fail(dg, "file-create", "create", path, errno);
    for (int64_t at = 0; at < n && s == GW_OK; at += 1 << 20) {
        int64_t k = GW_MIN(n - at, 1 << 20);
        s = gw_fd_pread_all(fd, buffer, k, offset + at, "a file of keys", dg);
        if (s == GW_OK) s = gw_fd_write_all(to, buffer, k, path, dg);
    }
    if (s == GW_OK && fsync(to) != 0) s = gw_io_fail(dg, "file-write", "sync", path, errno);
    if (to >= 0) close(to);
    if (s == GW_OK && rename(name, path) != 0)
        s = gw_io_fail(dg, "file-rename", "replace", path, errno);
    if (s != GW_OK && to >= 0) unlink(name);
    gw_mem_free(buffer);
    gw_arena_release(&a);
    return s;
}

/* Files that a sender's stream holds, to the paths of this DIR. */
static gw_status take_files(const post *p, int from, bool removed, gw_diags *dg) {
    gw_status s = GW_OK;
    int64_t header[2];
    for (int64_t at = 0; s == GW_OK && at < p->in_bytes[from];
         at += (int64_t)sizeof header + header[1]) {
        gw_arena a = {0};
        GW_TRY(gw_fd_pread_all(p->in[from], header, sizeof header, at, "a file of keys", dg));
        if (header[0] < 0 || header[0] >= gw_dedup_tasks(p->o) || header[1] < 0 ||
            header[1] > p->in_bytes[from] - at - (int64_t)sizeof header)
            return GW_FAIL(dg, GW_ERR_PEER, "dedup-peer", "rank %d sent what is no file", from);
        s = write_piece(p->in[from], at + (int64_t)sizeof header, header[1],
                        removed ? gw_dedup_removed_path(p->o, &a)
                                : gw_dedup_task_path(p->o, &a, header[0]),
                        dg);
        gw_arena_release(&a);
    }
    return s;
}

/* One exchange: `fill` says what goes to whom, `take` reads what came. */
typedef gw_status post_half(post *p, gw_diags *dg);

static gw_status post_round(const gw_dedup_options *o, gw_comm *c, post_half *fill, post_half *take,
                            const char *what, gw_diags *dg) {
    post p = {.o = o, .comm = c, .rank = gw_comm_rank(c), .size = gw_comm_size(c)};
    gw_status s = post_open(&p, dg);
    gw_comm_busy(c, what, PATIENCE_S);
    if (s == GW_OK) s = fill(&p, dg);
    s = post_send(&p, s, what, dg);
    gw_comm_busy(c, what, PATIENCE_S);
    if (s == GW_OK) s = take(&p, dg);
    post_close(&p);
    return s;
}

static gw_status fill_keys(post *p, gw_diags *dg) {
    for (int64_t t = 0; t < gw_dedup_tasks(p->o); t++) GW_TRY(send_task(p, t, dg));
    return GW_OK;
}

static gw_status take_keys(post *p, gw_diags *dg) { return own_tasks(p, dg); }

static gw_status fill_pairs(post *p, gw_diags *dg) {
    gw_status s = GW_OK;
    for (int64_t t = p->rank; p->rank && t < gw_dedup_tasks(p->o) && s == GW_OK; t += p->size) {
        gw_arena a = {0};
        s = send_file(p, 0, t, gw_dedup_task_path(p->o, &a, t), dg);
        gw_arena_release(&a);
    }
    return s;
}

static gw_status take_pairs(post *p, gw_diags *dg) {
    for (int i = 1; p->rank == 0 && i < p->size; i++) GW_TRY(take_files(p, i, false, dg));
    return p->rank == 0 ? gw_dedup_cluster(p->o, dg) : GW_OK;
}

static gw_status fill_removed(post *p, gw_diags *dg) {
    gw_arena a = {0};
    gw_status s = GW_OK;
    for (int i = 1; p->rank == 0 && i < p->size && s == GW_OK; i++)
        s = send_file(p, i, 0, gw_dedup_removed_path(p->o, &a), dg);
    gw_arena_release(&a);
    return s;
}

static gw_status take_removed(post *p, gw_diags *dg) {
    return p->rank ? take_files(p, 0, true, dg) : GW_OK;
}

/* Every unit has its keys in exactly one rank's folder; which lack them is said before anything. */
static gw_status check_units(const gw_dedup_options *o, gw_comm *c, gw_diags *dg) {
    for (int64_t first = 0; first < o->units; first += 64) {
        double have[64] = {0};
        int n = (int)GW_MIN(o->units - first, 64);
        for (int i = 0; i < n; i++) have[i] = gw_dedup_unit_done(o, (uint32_t)(first + i)) ? 1 : 0;
        GW_TRY(gw_comm_sum_f64(c, have, n, "dedup's units", dg));
        for (int i = 0; i < n; i++)
            if (have[i] < 0.5 || have[i] > 1.5)
                return GW_FAIL(dg, GW_ERR_IO, "dedup-peer",
                               "unit %lld has its keys on %.0f ranks instead of one",
                               (long long)(first + i), have[i]);
    }
    return GW_OK;
}

static gw_status run_apart(const gw_dedup_options *o, gw_comm *c, gw_diags *dg) {
    if (o->jaccard > 0)
        return GW_FAIL(
            dg, GW_ERR_UNSUPPORTED, "dedup-option",
            "true similarities between ranks that share no folder: '%s' is each one's own", o->dir);
    GW_TRY(check_units(o, c, dg));
    gw_status s = post_round(o, c, fill_keys, take_keys, "dedup's keys", dg);
    GW_TRY(agree(c, s, "dedup's bands", dg));
    s = post_round(o, c, fill_pairs, take_pairs, "dedup's pairs", dg);
    GW_TRY(agree(c, s, "dedup's clusters", dg));
    s = post_round(o, c, fill_removed, take_removed, "what dedup removes", dg);
    return agree(c, s, "what dedup removes", dg);
}

gw_status gw_dedup_run(const gw_dedup_options *o, gw_comm *comm, gw_diags *dg) {
    bool shared;
    GW_TRY(gw_dedup_check(o, dg));
    if (comm && gw_comm_size(comm) > 1) {
        GW_TRY(find_shared(o, comm, &shared, dg));
        return shared ? run_shared(o, comm, dg) : run_apart(o, comm, dg);
    }
    for (int64_t t = 0; t < gw_dedup_tasks(o); t++) GW_TRY(gw_dedup_task(o, t, dg));
    return gw_dedup_cluster(o, dg);
}
