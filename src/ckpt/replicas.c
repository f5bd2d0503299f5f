// SPDX-License-Identifier: Apache-2.0
// Replicas compared.
//
// Ranks that differ only on sub-axes that do not cut a tensor hold the same elements of it, at the
// same places of their buffers, and the plan deals these to them in shares. Each share's writer has
// the hashes of its blocks anyway; whoever else holds it can make the same ones of its own copy.
//
//   check   each share is compared by one other of its holders, another one at every save (which is
//           a function of the step): a rank reads as many bytes more as it writes, whatever the
//           number of replicas. Of two replicas everything is compared each time. Of r a fault in
//           one element of one rank is met in two of r saves, one in all its elements in each.
//   all     by all others: a rank reads all that it holds.
//
// The hashes need not travel. A rank sums over what it wrote, each share as often as it is
// compared, and over what it compared; a term is a hash of tensor, share and hash. Over all ranks
// the two sums are equal modulo 2^64, or some copy is another. Only then are the hashes exchanged,
// to say where.
//
// Stages of a pipeline that share a weight are not compared: the first of them is the one that
// tells (plan.c).
#include "ckpt/replicas.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"     /* gw_hash64 */
#include "base/map.h"      /* GW_VEC */
#include "base/str.h"      /* gw_str */
#include "run/exec_comm.h" /* gw_exec_group_rank */

static uint64_t term(const gw_ckpt_copy *c) {
    _Static_assert(sizeof *c == 2 * sizeof(int32_t) + sizeof(uint64_t), "no padding is hashed");
    return gw_hash64(c, sizeof *c, 0);
}

/* The ranks that hold the same elements of a tensor as others do. */
typedef struct holders {
    const gw_mesh *mesh;
    uint32_t cut, pp, same; /* sub-axes: that cut it, of stages, of replicas */
    int64_t replicas;
} holders;

static holders holders_of(const gw_type *t, const gw_mesh *mesh) {
    holders h = {.mesh = mesh, .cut = gw_type_part_axes(t), .pp = gw_mesh_group(mesh, "pp")};
    h.same = ~(h.cut | h.pp);
    h.replicas = gw_mesh_size(mesh, h.same);
    return h;
}

/* Is `rank` to compare what `writer` writes? `turn`: a number of the save. */
static bool compares(const holders *h, int64_t rank, int64_t writer, uint64_t turn,
                     gw_ckpt_replicas how) {
    if (rank == writer || how == GW_CKPT_REPLICAS_TRUST) return false;
    if (h->pp &&
        gw_exec_group_rank(h->mesh, h->pp, rank) != gw_exec_group_rank(h->mesh, h->pp, writer))
        return false;
    if (gw_exec_group_rank(h->mesh, h->cut, rank) != gw_exec_group_rank(h->mesh, h->cut, writer))
        return false;
    if (how == GW_CKPT_REPLICAS_ALL) return true;
    int64_t from = gw_exec_group_rank(h->mesh, h->same, writer);
    int64_t next = 1 + (int64_t)(turn % (uint64_t)(h->replicas - 1));
    return gw_exec_group_rank(h->mesh, h->same, rank) == (from + next) % h->replicas;
}

uint64_t gw_ckpt_rows_hash(const gw_ckpt_row *rows, int64_t n) {
    return gw_hash128_of(rows, sizeof *rows * (size_t)n).lo;
}

/* As a writer's blocks are hashed, and their hashes. */
static uint64_t hash_of(const char *data, int64_t bytes) {
    int64_t n = gw_ckpt_blocks(bytes);
    gw_ckpt_row *rows = gw_mem_alloc(sizeof *rows * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        rows[i] = gw_ckpt_row_of(data + i * GW_CKPT_BLOCK,
                                 GW_MIN((int64_t)GW_CKPT_BLOCK, bytes - i * GW_CKPT_BLOCK));
    uint64_t sum = gw_ckpt_rows_hash(rows, n);
    gw_mem_free(rows);
    return sum;
}

void gw_ckpt_copies_take(gw_ckpt_plan *p, const gw_ckpt_tensor *tensors, int n, const gw_mesh *mesh,
                         int64_t rank, int64_t step, gw_ckpt_replicas how, gw_arena *a,
                         gw_ckpt_copies *out) {
    GW_VEC(gw_ckpt_copy) list = {0};
    *out = (gw_ckpt_copies){0};
    if (!mesh || how == GW_CKPT_REPLICAS_TRUST) return;
    uint64_t turn = gw_hash64(&step, sizeof step, 0);
    for (int i = 0; i < n; i++) {
        const gw_ckpt_tensor *t = &tensors[i];
        const gw_ckpt_shares *shares = gw_ckpt_plan_of(p, i);
        int64_t each = gw_dtype_bits(t->dtype) / 8;
        if (t->away || !t->type) continue;
        holders h = holders_of(t->type, mesh);
        for (int k = 0; h.replicas > 1 && k < shares->n; k++) {
            const gw_ckpt_share *s = &shares->items[k];
            if (!compares(&h, rank, s->rank, turn, how)) continue;
            int64_t bytes = s->piece.count * each;
            gw_ckpt_copy c = {i, k, hash_of((const char *)t->data + s->local * each, bytes)};
            out->bytes += bytes;
            gw_vec_push(&list, c);
        }
    }
    out->n = list.count;
    out->items = gw_arena_dup(a, list.items, list.count * (int64_t)sizeof *list.items);
    gw_vec_release(&list);
}

uint64_t gw_ckpt_copies_sum(const gw_ckpt_copies *c) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < c->n; i++) sum += term(&c->items[i]);
    return sum;
}

uint64_t gw_ckpt_copies_sum_own(const gw_ckpt_copies *own, const gw_ckpt_tensor *tensors,
                                const gw_mesh *mesh, gw_ckpt_replicas how) {
    uint64_t sum = 0;
    if (!mesh || how == GW_CKPT_REPLICAS_TRUST) return 0;
    for (int64_t i = 0; i < own->n; i++) {
        const gw_type *t = tensors[own->items[i].tensor].type;
        int64_t others = t ? holders_of(t, mesh).replicas - 1 : 0;
        if (how == GW_CKPT_REPLICAS_CHECK) others = GW_MIN(others, (int64_t)1);
        sum += (uint64_t)others * term(&own->items[i]);
    }
    return sum;
}

/* ---- which ---- */

/* A copy and whose it is. */
typedef struct held {
    gw_ckpt_copy copy;
    int64_t rank;
    bool wrote;
} held;

static int by_share(const void *a, const void *b) {
    const held *x = a, *y = b;
    if (x->copy.tensor != y->copy.tensor) return x->copy.tensor < y->copy.tensor ? -1 : 1;
    if (x->copy.share != y->copy.share) return x->copy.share < y->copy.share ? -1 : 1;
    if (x->wrote != y->wrote) return x->wrote ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Everybody's, by share: the writer's first. */
static gw_status gather(gw_comm *comm, const gw_ckpt_copies *compared, const gw_ckpt_copies *own,
                        gw_arena *a, held **out, int64_t *n, gw_diags *dg) {
    int ranks = gw_comm_size(comm), me = gw_comm_rank(comm);
    int64_t count = compared->n + own->n, most = count;
    GW_TRY(gw_comm_max_i64(comm, &most, 1, "copies that differ", dg));
    held *mine = gw_arena_new(a, held, most + 1), *all = gw_arena_new(a, held, ranks * most + 1);
    for (int64_t i = 0; i < most; i++) mine[i].copy.tensor = -1;
    for (int64_t i = 0; i < own->n; i++) mine[i] = (held){own->items[i], me, true};
    for (int64_t i = 0; i < compared->n; i++)
        mine[own->n + i] = (held){compared->items[i], me, false};
    GW_TRY(gw_comm_all_gather(comm, mine, most * (int64_t)sizeof *mine, all, "copies that differ",
                              dg));
    *n = 0;
    for (int64_t i = 0; i < ranks * most; i++)
        if (all[i].copy.tensor >= 0) all[(*n)++] = all[i];
    qsort(all, (size_t)*n, sizeof *all, by_share);
    *out = all;
    return GW_OK;
}

/* n copies of one share, the writer's first. Says which differ of the first share where any do;
 * counts such shares. */
static void look_at(const held *h, int64_t n, gw_ckpt_plan *p, const gw_ckpt_tensor *tensors,
                    int *faults, gw_str *text) {
    int64_t alike = 0;
    bool first = true;
    for (int64_t i = 1; i < n; i++) alike += h[i].copy.hash == h[0].copy.hash;
    if (alike == n - 1 || !h[0].wrote) return;
    if ((*faults)++ > 0) return;
    const gw_ckpt_tensor *t = &tensors[h[0].copy.tensor];
    gw_ckpt_entry_name(t->name, t->ndim, t->dims,
                       &gw_ckpt_plan_of(p, h[0].copy.tensor)->items[h[0].copy.share].piece, text);
    gw_str_add(text, " on rank");
    for (int64_t i = 1; i < n; i++) {
        if (h[i].copy.hash == h[0].copy.hash) continue;
        gw_str_printf(text, "%s %" PRId64, first ? "" : ",", h[i].rank);
        first = false;
    }
    gw_str_printf(text, " is not what it is on rank %" PRId64 ", which writes it", h[0].rank);
    if (alike > 0)
        gw_str_printf(text, " (%" PRId64 " other%s the writer's)", alike,
                      alike > 1 ? "s have" : " has");
}

gw_status gw_ckpt_copies_name(gw_comm *comm, const gw_ckpt_copies *compared,
                              const gw_ckpt_copies *own, gw_ckpt_plan *p,
                              const gw_ckpt_tensor *tensors, gw_diags *dg) {
    gw_arena mem = {0};
    gw_str text = {0};
    held *h = NULL;
    int64_t n = 0;
    int faults = 0;
    gw_status st = gather(comm, compared, own, &mem, &h, &n, dg);
    for (int64_t i = 0, end; st == GW_OK && i < n; i = end) {
        for (end = i + 1; end < n && h[end].copy.tensor == h[i].copy.tensor &&
                          h[end].copy.share == h[i].copy.share;)
            end++;
        look_at(h + i, end - i, p, tensors, &faults, &text);
    }
    if (st == GW_OK && gw_comm_rank(comm) == 0) {
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_PEER, "checkpoint-replicas", (gw_where){0},
                                 "replicas differ: %s; %d share%s differ%s in all", gw_str_c(&text),
                                 faults, faults == 1 ? "" : "s", faults == 1 ? "s" : "");
        gw_diag_hint(dg, g,
                     "one of these ranks computes or holds something wrong (its memory, its "
                     "device): take it out and go on from the checkpoint before; "
                     "checkpoint.replicas trust saves what the writers have");
    }
    gw_str_release(&text);
    gw_arena_release(&mem);
    return st == GW_OK ? GW_ERR_PEER : st;
}
