// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run settle among themselves.
//
// All ranks compile the same program and read the same run file. Where they do not (another version
// of the program on one host, a file that was edited meanwhile, another instruction set) the first
// difference would show as wrong numbers hours later. So both texts are compared before the first
// step: by hash, and only on a difference by their lines.
//
// A tensor that lies in parts is gathered in pieces, so that no rank needs more memory than the
// tensor (where it is wanted) and a few hundred kilobytes. Where each element belongs every rank
// knows by itself, from the type and the number of the rank that sent it. Of the ranks that hold
// the same elements the first is believed, the others' are dropped.
#include "train/ranks.h"

#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/hash.h"     /* gw_hash128_of */
#include "base/panic.h"    /* GW_ASSERT */
#include "run/exec_comm.h" /* gw_exec_group_rank */
#include "train/weights.h" /* gw_floats_from */

enum { LINE = 400, PIECES_BYTES = 16 << 20, PIECE_MOST = 1 << 20, PIECE_LEAST = 64 << 10 };

int gw_ranks_me(const gw_comm *c) { return c ? gw_comm_rank(c) : 0; }
int gw_ranks_count(const gw_comm *c) { return c ? gw_comm_size(c) : 1; }

/* ---- texts ---- */

typedef struct difference {
    int32_t line; /* from 1; 0 = the texts are equal */
    char mine[LINE], first[LINE];
} difference;

static size_t line_length(const char *s) { return strcspn(s, "\n"); }

static void copy_line(char out[LINE], const char *s) {
    size_t n = GW_MIN(line_length(s), (size_t)LINE - 1);
    memcpy(out, s, n);
    out[n] = 0;
}

static difference compare(const char *mine, const char *first) {
    difference d = {0};
    if (strcmp(mine, first) == 0) return d;
    d.line = 1;
    for (;;) {
        size_t n = line_length(mine), m = line_length(first);
        if (n != m || memcmp(mine, first, n) != 0 || !mine[n] || !first[m]) break;
        mine += n + 1;
        first += m + 1;
        d.line++;
    }
    copy_line(d.mine, mine);
    copy_line(d.first, first);
    return d;
}

static gw_status refuse(const gw_comm *c, const char *what, const difference *all, gw_diags *dg) {
    int other = 0, count = 0;
    for (int r = gw_comm_size(c) - 1; r >= 0; r--)
        if (all[r].line > 0) {
            other = r;
            count++;
        }
    if (gw_comm_rank(c) != 0) return GW_ERR_CONFIG;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "ranks-differ", (gw_where){0},
                             "rank %d has another %s than rank 0 (%d of %d ranks differ from it)",
                             other, what, count, gw_comm_size(c));
    gw_diag_detail(dg, g, "first in line %d:\n      rank 0: %s\n      rank %d: %s",
                   (int)all[other].line, all[other].first, other, all[other].mine);
    gw_diag_hint(dg, g,
                 "start every rank from one run file and one version of the program, on "
                 "machines of one kind");
    return GW_ERR_CONFIG;
}

static gw_status find_difference(gw_comm *c, const char *what, const char *text, gw_diags *dg) {
    int64_t n = (int64_t)strlen(text) + 1; /* rank 0's counts */
    GW_TRY(gw_comm_broadcast(c, &n, sizeof n, what, dg));
    char *first = gw_mem_zalloc((size_t)n + 1);
    difference *all = gw_mem_zalloc(sizeof *all * (size_t)gw_comm_size(c));
    if (gw_comm_rank(c) == 0) memcpy(first, text, (size_t)n);
    gw_status st = gw_comm_broadcast(c, first, n, what, dg);
    difference mine = compare(text, first);
    if (st == GW_OK) st = gw_comm_all_gather(c, &mine, sizeof mine, all, what, dg);
    if (st == GW_OK) st = refuse(c, what, all, dg);
    gw_mem_free(all);
    gw_mem_free(first);
    return st;
}

gw_status gw_ranks_same_text(gw_comm *c, const char *what, const char *text, gw_diags *dg) {
    if (!c) return GW_OK;
    gw_hash128 mine = gw_hash128_of(text, strlen(text)), first = mine;
    GW_TRY(gw_comm_broadcast(c, &first, sizeof first, what, dg));
    int64_t differs = first.lo != mine.lo || first.hi != mine.hi;
    GW_TRY(gw_comm_max_i64(c, &differs, 1, what, dg));
    return differs ? find_difference(c, what, text, dg) : GW_OK;
}

/* ---- tensors ---- */

/* Sub-axes that a tensor is cut over, in whatever way. */
static uint32_t cut_axes(const gw_type *t) {
    return gw_type_cut_axes(t) | (t->flat ? t->flat_axes : 0);
}

bool gw_ranks_have_parts(const gw_type *t) { return t->flat || gw_type_cut_axes(t) != 0; }

int64_t gw_ranks_part(const gw_type *t, const gw_mesh *mesh, int64_t rank) {
    return gw_exec_group_rank(mesh, cut_axes(t), rank);
}

/* Is the rank's coordinate 0 on all sub-axes but those of the mask? */
bool gw_ranks_counts(const gw_mesh *mesh, uint32_t over, int64_t rank) {
    return gw_exec_group_rank(mesh, ~over, rank) == 0;
}

bool gw_ranks_owns(const gw_type *t, const gw_mesh *mesh, int64_t rank) {
    return gw_ranks_counts(mesh, cut_axes(t), rank);
}

/* What becomes of the elements of one rank's piece: put in their places, or added there. */
typedef struct taker {
    const gw_type *t;
    const gw_mesh *mesh;
    char *whole;   /* or */
    float *sum;    /* ... */
    uint32_t from; /* ranks that are first on all but these sub-axes are asked */
    int64_t rank, bytes;
} taker;

static void take_run(const taker *k, int64_t global, int64_t count, const char *from) {
    if (k->whole) memcpy(k->whole + global * k->bytes, from, (size_t)(count * k->bytes));
    float some[256];
    for (int64_t at = 0, n; k->sum && at < count; at += n) {
        n = GW_MIN(count - at, (int64_t)GW_COUNT(some));
        gw_floats_from((gw_dtype)k->t->dtype, from + at * k->bytes, n, some);
        for (int64_t i = 0; i < n; i++) k->sum[global + at + i] += some[i];
    }
}

/* Elements at .. at + piece of what a rank holds. */
static void take_piece(const taker *k, int64_t at, int64_t piece, const char *from) {
    gw_held w;
    int64_t global, local, count;
    if (!gw_ranks_counts(k->mesh, k->from, k->rank)) return;
    gw_held_begin(&w, k->t, k->mesh, k->rank);
    w.at = w.lo + at;
    w.hi = GW_MIN(w.hi, w.at + piece);
    while (gw_held_next(&w, &global, &local, &count))
        take_run(k, global, count, from + (local - at) * k->bytes);
}

static int64_t most_elems(const gw_type *t, const gw_mesh *mesh, int64_t ranks) {
    int64_t most = 0;
    for (int64_t r = 0; r < ranks; r++) most = GW_MAX(most, gw_type_local_elems(t, mesh, r));
    return most;
}

static gw_status collect(gw_comm *c, taker *k, const void *mine, const char *what, gw_diags *dg) {
    GW_ASSERT(gw_mesh_ranks(k->mesh) == gw_comm_size(c));
    int64_t size = gw_comm_size(c);
    int64_t most = most_elems(k->t, k->mesh, size);
    int64_t have = gw_type_local_elems(k->t, k->mesh, gw_comm_rank(c));
    int64_t piece_bytes =
        GW_MIN(GW_MAX((int64_t)PIECE_LEAST, PIECES_BYTES / size), (int64_t)PIECE_MOST);
    int64_t piece = GW_MAX(INT64_C(1), GW_MIN(piece_bytes / k->bytes, most));
    char *out = gw_mem_alloc((size_t)(size * piece * k->bytes));
    char *one = gw_mem_zalloc((size_t)(piece * k->bytes));
    gw_status st = GW_OK;
    for (int64_t at = 0; st == GW_OK && at < most; at += piece) {
        int64_t n = GW_MIN(piece, have - at);
        if (n > 0) memcpy(one, (const char *)mine + at * k->bytes, (size_t)(n * k->bytes));
        st = gw_comm_all_gather(c, one, piece * k->bytes, out, what, dg);
        for (k->rank = 0; st == GW_OK && (k->whole || k->sum) && k->rank < size; k->rank++)
            take_piece(k, at, piece, out + k->rank * piece * k->bytes);
    }
    gw_mem_free(one);
    gw_mem_free(out);
    return st;
}

gw_status gw_ranks_gather(gw_comm *c, const gw_type *t, const gw_mesh *mesh, const void *mine,
                          void *whole, const char *what, gw_diags *dg) {
    taker k = {.t = t,
               .mesh = mesh,
               .whole = whole,
               .from = cut_axes(t),
               .bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8};
    return collect(c, &k, mine, what, dg);
}

gw_status gw_ranks_add_up(gw_comm *c, const gw_type *t, const gw_mesh *mesh, uint32_t over,
                          const void *mine, float *sum, const char *what, gw_diags *dg) {
    taker k = {.t = t,
               .mesh = mesh,
               .sum = sum,
               .from = cut_axes(t) | over,
               .bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8};
    if (sum) memset(sum, 0, (size_t)gw_type_elems(t) * sizeof *sum);
    return collect(c, &k, mine, what, dg);
}

/* ---- sums ---- */

gw_status gw_ranks_sum_partial(gw_comm *c, const gw_type *t, const gw_mesh *mesh, double *value,
                               const char *what, gw_diags *dg) {
    if (!c || t->psum == 0) return GW_OK;
    if (!gw_ranks_counts(mesh, t->psum, gw_comm_rank(c))) *value = 0;
    return gw_comm_sum_f64(c, value, 1, what, dg);
}
