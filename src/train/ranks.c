// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run settle among themselves.
//
// All ranks compile the same program and read the same run file. Where they do not (another version
// of the program on one host, a file that was edited meanwhile, another instruction set) the first
// difference would show as wrong numbers hours later. So both texts are compared before the first
// step: by hash, and only on a difference by their lines.
//
// A flat tensor is gathered in pieces, so that no rank needs more memory than the tensor (where it
// is wanted) and a few hundred kilobytes.
#include "train/ranks.h"

#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/hash.h"  /* gw_hash128_of */
#include "base/panic.h" /* GW_ASSERT */

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

bool gw_ranks_have_parts(const gw_type *t) {
    return t->flat || (t->ndim > 0 && t->dims[0].naxes > 0);
}

int64_t gw_ranks_first(const gw_type *t, const gw_mesh *mesh, int64_t rank) {
    if (t->flat) return gw_type_flat_first(t, mesh, rank);
    int64_t each = gw_type_local_elems(t, mesh, rank);
    GW_ASSERT(each * gw_mesh_ranks(mesh) == gw_type_elems(t));
    return rank * each;
}

static void take_piece(const gw_type *t, const gw_mesh *mesh, int64_t rank, int64_t at,
                       int64_t piece, const char *from, char *whole) {
    int64_t bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8;
    int64_t n = GW_MIN(piece, gw_type_local_elems(t, mesh, rank) - at);
    if (n <= 0) return;
    int64_t first = gw_ranks_first(t, mesh, rank) + at;
    memcpy(whole + first * bytes, from, (size_t)(n * bytes));
}

gw_status gw_ranks_gather(gw_comm *c, const gw_type *t, const gw_mesh *mesh, const void *mine,
                          void *whole, const char *what, gw_diags *dg) {
    GW_ASSERT(gw_ranks_have_parts(t) && gw_mesh_ranks(mesh) == gw_comm_size(c));
    int64_t size = gw_comm_size(c), me = gw_comm_rank(c),
            bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8;
    int64_t piece_bytes =
        GW_MIN(GW_MAX((int64_t)PIECE_LEAST, PIECES_BYTES / size), (int64_t)PIECE_MOST);
    int64_t most = gw_type_local_elems(t, mesh, 0), have = gw_type_local_elems(t, mesh, me);
    int64_t piece = GW_MAX(INT64_C(1), GW_MIN(piece_bytes / bytes, most));
    char *out = gw_mem_alloc((size_t)(size * piece * bytes));
    char *one = gw_mem_zalloc((size_t)(piece * bytes));
    gw_status st = GW_OK;
    for (int64_t at = 0; st == GW_OK && at < most; at += piece) {
        int64_t n = GW_MIN(piece, have - at);
        if (n > 0) memcpy(one, (const char *)mine + at * bytes, (size_t)(n * bytes));
        st = gw_comm_all_gather(c, one, piece * bytes, out, what, dg);
        for (int64_t r = 0; st == GW_OK && whole && r < size; r++)
            take_piece(t, mesh, r, at, piece, out + r * piece * bytes, whole);
    }
    gw_mem_free(one);
    gw_mem_free(out);
    return st;
}
