// SPDX-License-Identifier: Apache-2.0
// Expert parallelism: rows travel to the ranks that hold their experts, and back.
//
// A rank has its own tokens and some of the experts. One run:
//
//   sort     its choices by expert, tokens in order: each choice gets a slot. Experts of one rank
//            are neighbours, so what goes to a rank is a run of slots.
//   counts   how many rows each expert gets from each rank, exchanged; every rank then holds the
//            whole matrix and knows all that follows.
//   rounds   a rank has room for `buffer` mean loads of arriving rows. Its arriving rows, in the
//            order (expert, sender, slot), are cut into windows of that size, and round r carries
//            window r of every rank. The rank with most sets the number of rounds. Nothing is ever
//            dropped, and a load below `buffer` times the mean takes one round.
//   there    the rows of a round are exchanged (comm/exchange.h), with the number of their token.
//   compute  the rows of each expert, sorted by token whoever sent them, a tile at a time
//            (kernel/cpu/expert_tile.h); results take the rows' places.
//   back     the same exchange the other way round, into the slots they came from.
//   sum      each token adds its rows times their gates, in the order of experts.
//
// Backward is the same with dy beside x and the gate beside the token's number; dx and the gate's
// gradient come back, and weight gradients stay and are added to in the order of experts, then
// tokens. Hidden activations are made again.
//
// Since rows are sorted by token before every product and summed by expert after it, one round on
// any number of ranks gives the rows and the sums that one rank alone would have with all their
// tokens: the same bits. With more rounds weight gradients are summed by windows.
//
// Rows have the dtype of x on the wire in both directions, as experts on one rank rounds them.
// Memory: choices (tokens * top rows) and `buffer` times as many arriving rows, twice in backward;
// a tile; two numbers a row; the counts, ranks * experts.
#include "run/exec_experts.h"

#include <math.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/exchange.h"
#include "kernel/cpu/expert_tile.h" /* gw_expert_forward */
#include "ops/experts.h"            /* GW_EX_X, gw_experts_held_of */
#include "run/exec_comm.h"          /* gw_exec_group_machine, gw_exec_group_rank */

/* What travels beside a row; forward without the gate. */
typedef struct note {
    int64_t token; /* its number in the whole micro-batch */
    double gate;   /* there: the gate, back: its gradient */
} note;

/* Sizes, the same on every rank of the group. */
typedef struct sizes {
    bool backward;
    uint32_t axes;
    int64_t ranks, experts, each; /* group; of all; of a rank, at most */
    int64_t slots, room;          /* choices of a rank; rows that may arrive in a round */
    int64_t d, f, top;
    gw_dtype dtype, gradient;
    int64_t per_host;
    int64_t row_bytes, note_bytes;
} sizes;

typedef struct experts_ep {
    sizes z;
    const gw_kargs *k;
    int x; /* number of input x */
    gw_comm *comm;
    int64_t me; /* group rank */
    gw_experts_held held;
    gw_runs b, s;               /* of tokens */
    int64_t length, all_length; /* of a sequence: here; whole */
    gw_expert_shape shape;
    gw_expert_tile tile;
    gw_expert stack;
    /* by choice and by slot */
    int32_t *slot_of, *choice_of;
    char *rows, *dys, *notes;     /* [slots] */
    char *in, *in_dys, *in_notes; /* [room] */
    int32_t *order;               /* [room]: rows of an expert */
    int64_t *first;               /* [experts + 2]: slots of an expert */
    int64_t *mine, *counts;       /* [experts], [ranks][experts] */
    int64_t *there, *back;        /* [ranks][ranks]: rows of a round */
    int64_t *slot_at, *in_at;     /* [ranks]: where runs of a round begin */
    int64_t *cursor, *end;        /* [ranks]: of a merge */
    char *scratch;
    int64_t bytes; /* of all that */
    gw_experts_seen seen;
    bool plain;
} experts_ep;

bool gw_op_is_experts_ep(const gw_graph *g, const gw_op *o) {
    return gw_op_is(g, o, "experts_ep") || gw_op_is(g, o, "experts_ep_grad");
}

/* ---- sizes and memory ---- */

static sizes sizes_of(const gw_graph *g, const gw_op *o) {
    bool backward = gw_op_is(g, o, "experts_ep_grad");
    int x = backward ? GW_EXG_X : 0;
    const gw_type *t = gw_type_of(g, gw_op_in(g, o, x + GW_EX_X));
    const gw_type *w = gw_type_of(g, gw_op_in(g, o, x + GW_EX_GATE));
    sizes z = {.backward = backward, .axes = gw_dim_axes(&w->dims[0])};
    z.ranks = gw_mesh_size(&g->mesh, z.axes);
    z.experts = w->dims[0].size;
    z.each = (z.experts + z.ranks - 1) / z.ranks;
    z.top = gw_type_of(g, gw_op_in(g, o, x + GW_EX_IDS))->dims[2].size;
    z.slots = gw_type_local_dim(t, 0, &g->mesh, 0) * gw_type_local_dim(t, 1, &g->mesh, 0) * z.top;
    double room = gw_op_attr_named(g, o, "buffer").f * (double)z.slots;
    z.room = GW_MAX((int64_t)1, (int64_t)ceil(room));
    z.room = GW_MIN(z.room, GW_MAX((int64_t)1, z.ranks * z.slots));
    z.d = t->dims[2].size;
    z.f = gw_type_local_dim(w, 1, &g->mesh, 0);
    z.dtype = (gw_dtype)t->dtype;
    z.gradient = backward ? (gw_dtype)gw_type_of(g, gw_op_out(g, o, 2))->dtype : GW_F32;
    z.row_bytes = z.d * gw_dtype_bits(z.dtype) / 8;
    z.note_bytes = (int64_t)(backward ? sizeof(note) : sizeof(int64_t));
    return z;
}

static void *take(char **at, int64_t bytes) {
    void *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

/* Lays everything out from `at`. */
static void lay(experts_ep *e, char *at) {
    const sizes *z = &e->z;
    char *begin = at;
    int64_t n = z->ranks, row = z->row_bytes, wide = GW_MAX(row, z->note_bytes);
    e->rows = take(&at, z->slots * row);
    e->in = take(&at, z->room * row);
    e->dys = z->backward ? take(&at, z->slots * row) : NULL;
    e->in_dys = z->backward ? take(&at, z->room * row) : NULL;
    e->notes = take(&at, z->slots * z->note_bytes);
    e->in_notes = take(&at, z->room * z->note_bytes);
    e->slot_of = take(&at, z->slots * 4);
    e->choice_of = take(&at, z->slots * 4);
    e->order = take(&at, z->room * 4);
    e->first = take(&at, (z->experts + 2) * 8);
    e->mine = take(&at, z->experts * 8);
    e->counts = take(&at, n * z->experts * 8);
    e->there = take(&at, n * n * 8);
    e->back = take(&at, n * n * 8);
    int64_t **each[] = {&e->slot_at, &e->in_at, &e->cursor, &e->end};
    for (int i = 0; i < 4; i++) *each[i] = take(&at, n * 8);
    int64_t most = GW_MAX(z->room, z->slots);
    e->scratch = take(&at, gw_exchange_scratch_bytes(n, z->per_host, most, wide));
    e->shape = gw_expert_shape_of(z->d, z->f, z->room, z->dtype, z->gradient, z->backward, 1);
    gw_expert_tile_bind(&e->tile, &e->shape, take(&at, gw_expert_tile_bytes(&e->shape)));
    e->bytes = at - begin;
}

int64_t gw_experts_ep_workspace(const gw_graph *g, const gw_op *o, const gw_coll_machine *all) {
    _Alignas(64) char base[64];
    experts_ep e = {.z = sizes_of(g, o)};
    e.z.per_host = gw_exec_group_machine(all, &g->mesh, e.z.axes).per_host;
    lay(&e, base);
    return e.bytes;
}

/* Sent by a rank if each has one row of a byte for every rank. */
static gw_coll_traffic one_row_each(int64_t size, int64_t per_host) {
    gw_arena mem = {0};
    int64_t *rows = gw_arena_new(&mem, int64_t, size * size);
    for (int64_t i = 0; i < size * size; i++) rows[i] = 1;
    gw_exchange_part part = {.row_bytes = 1};
    gw_exchange x = {.size = size, .rows = rows, .nparts = 1, .parts = &part};
    gw_coll_traffic t = gw_exchange_traffic(&x, per_host, 0);
    gw_arena_release(&mem);
    return t;
}

gw_experts_even gw_experts_ep_even(const gw_graph *g, const gw_op *o, const gw_coll_machine *all) {
    sizes z = sizes_of(g, o);
    gw_experts_even e = {.axes = z.axes, .size = z.ranks};
    int64_t rows = z.backward ? 3 : 2, notes = z.backward ? 2 : 1; /* x and dy there, dx back */
    e.bytes[e.narrays++] = z.ranks * z.experts * 8;
    for (int64_t i = 0; i < rows; i++) e.bytes[e.narrays++] = z.slots * z.row_bytes;
    for (int64_t i = 0; i < notes; i++) e.bytes[e.narrays++] = z.slots * z.note_bytes;
    e.exchanges = 1 + 2 * ((z.slots + z.room - 1) / z.room);
    gw_coll_traffic t =
        one_row_each(z.ranks, gw_exec_group_machine(all, &g->mesh, z.axes).per_host);
    int64_t row = rows * z.row_bytes + notes * z.note_bytes;
    int64_t counts = (z.ranks - 1) * z.experts * 8;
    e.sent.payload = z.slots * t.payload / z.ranks * row + counts;
    e.sent.moved = z.slots * t.moved / z.ranks * row + counts;
    return e;
}

/* ---- sorting ---- */

static int64_t id_of(const experts_ep *e, int64_t choice) {
    return ((const int32_t *)e->k->in[e->x + GW_EX_IDS].data)[choice];
}

static int64_t choices_of(const experts_ep *e) { return e->k->in[e->x + GW_EX_IDS].elems; }

/* Slots of choices by expert, in the order of tokens; mine[] counts. */
static void sort_choices(experts_ep *e) {
    int64_t n = e->z.experts, choices = choices_of(e);
    memset(e->first, 0, (size_t)(n + 2) * sizeof *e->first);
    for (int64_t i = 0; i < choices; i++)
        if (id_of(e, i) >= 0) e->first[id_of(e, i) + 2]++;
    for (int64_t i = 0; i < n; i++) e->mine[i] = e->first[i + 2];
    for (int64_t i = 2; i <= n + 1; i++) e->first[i] += e->first[i - 1];
    for (int64_t i = 0; i < choices; i++) {
        e->slot_of[i] = -1;
        if (id_of(e, i) < 0) continue;
        e->slot_of[i] = (int32_t)e->first[id_of(e, i) + 1]++;
        e->choice_of[e->slot_of[i]] = (int32_t)i;
    }
}

static int64_t token_number(const experts_ep *e, int64_t token) {
    return gw_runs_global(&e->b, token / e->length) * e->all_length +
           gw_runs_global(&e->s, token % e->length);
}

static note *note_at(const experts_ep *e, char *notes, int64_t i) {
    return (note *)(void *)(notes + i * e->z.note_bytes);
}

static void pack(experts_ep *e) {
    const gw_tensor *x = &e->k->in[e->x + GW_EX_X], *dy = &e->k->in[GW_EXG_DY];
    const float *gates = e->k->in[e->x + GW_EX_GATES].data;
    int64_t slots = e->first[e->z.experts];
    gw_expert_rows to = {e->rows, e->z.dtype, e->z.d, e->k->threads};
    gw_expert_pack(&to, x->data, e->choice_of, e->z.top, slots);
    to.data = e->dys;
    if (e->z.backward) gw_expert_pack(&to, dy->data, e->choice_of, e->z.top, slots);
    for (int64_t i = 0; i < slots; i++) {
        int64_t choice = e->choice_of[i];
        note_at(e, e->notes, i)->token = token_number(e, choice / e->z.top);
        if (e->z.backward) note_at(e, e->notes, i)->gate = (double)gates[choice];
    }
}

/* ---- rounds ---- */

static int64_t count_of(const experts_ep *e, int64_t rank, int64_t expert) {
    return e->counts[rank * e->z.experts + expert];
}

/* Experts [lo, hi) stand on rank j. */
static int64_t expert_lo(const experts_ep *e, int64_t j) {
    return GW_MIN(j * e->z.each, e->z.experts);
}

static int64_t rows_arriving(const experts_ep *e, int64_t j) {
    int64_t rows = 0;
    for (int64_t x = expert_lo(e, j); x < expert_lo(e, j + 1); x++)
        for (int64_t i = 0; i < e->z.ranks; i++) rows += count_of(e, i, x);
    return rows;
}

/* Of `n` rows that begin at `pos`, how many lie in [lo, lo + room); *skip before them. */
static int64_t overlap(const experts_ep *e, int64_t pos, int64_t n, int64_t lo, int64_t *skip) {
    int64_t from = GW_MAX(pos, lo), to = GW_MIN(pos + n, lo + e->z.room);
    *skip = from - pos;
    return to > from ? to - from : 0;
}

/* Rows that go to rank j in the round that begins at its row `lo`. */
static void plan_receiver(experts_ep *e, int64_t j, int64_t lo) {
    int64_t pos = 0, skip = 0, n = e->z.ranks;
    for (int64_t x = expert_lo(e, j); x < expert_lo(e, j + 1); x++)
        for (int64_t i = 0; i < n; i++) {
            int64_t rows = overlap(e, pos, count_of(e, i, x), lo, &skip);
            if (rows > 0 && i == e->me && e->there[i * n + j] == 0)
                e->slot_at[j] = e->first[x] + skip;
            e->there[i * n + j] += rows;
            pos += count_of(e, i, x);
        }
}

static void plan_round(experts_ep *e, int64_t round) {
    int64_t n = e->z.ranks, at = 0;
    memset(e->there, 0, (size_t)(n * n) * sizeof *e->there);
    memset(e->slot_at, 0, (size_t)n * sizeof *e->slot_at);
    for (int64_t j = 0; j < n; j++) plan_receiver(e, j, round * e->z.room);
    for (int64_t i = 0; i < n; i++) {
        e->in_at[i] = at;
        at += e->there[i * n + e->me];
        for (int64_t j = 0; j < n; j++) e->back[j * n + i] = e->there[i * n + j];
    }
    GW_ASSERT(at <= e->z.room);
}

static gw_status exchange(experts_ep *e, const gw_exchange *x, gw_diags *dg) {
    if (e->comm) return gw_comm_exchange(e->comm, x, e->scratch, dg);
    for (int i = 0; i < x->nparts; i++) { /* one rank */
        const gw_exchange_part *p = &x->parts[i];
        memcpy(p->recv + x->recv_at[0] * p->row_bytes, p->send + x->send_at[0] * p->row_bytes,
               (size_t)(x->rows[0] * p->row_bytes));
    }
    return GW_OK;
}

static gw_status send_there(experts_ep *e, const char *scope, gw_diags *dg) {
    gw_exchange_part parts[3] = {{e->rows, e->in, e->z.row_bytes},
                                 {e->notes, e->in_notes, e->z.note_bytes},
                                 {e->dys, e->in_dys, e->z.row_bytes}};
    gw_exchange x = {.axes = e->z.axes,
                     .size = e->z.ranks,
                     .rows = e->there,
                     .send_at = e->slot_at,
                     .recv_at = e->in_at,
                     .nparts = e->z.backward ? 3 : 2,
                     .parts = parts,
                     .scope = scope};
    return exchange(e, &x, dg);
}

static gw_status send_back(experts_ep *e, const char *scope, gw_diags *dg) {
    gw_exchange_part parts[2] = {{e->in, e->rows, e->z.row_bytes},
                                 {e->in_notes, e->notes, e->z.note_bytes}};
    gw_exchange x = {.axes = e->z.axes,
                     .size = e->z.ranks,
                     .rows = e->back,
                     .send_at = e->in_at,
                     .recv_at = e->slot_at,
                     .nparts = e->z.backward ? 2 : 1,
                     .parts = parts,
                     .scope = scope};
    return exchange(e, &x, dg);
}

/* ---- compute ---- */

/* Merges the runs [cursor[i], end[i]) of arrived rows, each in the order of tokens, into order[]
 * and moves the cursors to their ends. */
static int64_t merge(experts_ep *e) {
    int64_t n = 0;
    for (;; n++) {
        int64_t best = -1, token = 0;
        for (int64_t i = 0; i < e->z.ranks; i++) {
            if (e->cursor[i] == e->end[i]) continue;
            int64_t t = note_at(e, e->in_notes, e->cursor[i])->token;
            if (best < 0 || t < token) best = i, token = t;
        }
        if (best < 0) return n;
        e->order[n] = (int32_t)e->cursor[best]++;
    }
}

/* A tile of rows through expert w; results take the rows' places. */
static gw_status run_tile(experts_ep *e, const gw_expert *w, const int32_t *order, int64_t m,
                          gw_diags *dg) {
    gw_expert_rows in = {e->in, e->z.dtype, e->z.d, e->k->threads};
    gw_expert_rows dys = {e->in_dys, e->z.dtype, e->z.d, e->k->threads};
    gw_expert_gather(&in, e->tile.x, order, 1, m);
    if (!e->z.backward) {
        GW_TRY(gw_expert_forward(&e->shape, &e->tile, w, m, dg));
        gw_expert_scatter(&in, e->tile.y, order, m);
        return GW_OK;
    }
    gw_expert_gather(&dys, e->tile.dy, order, 1, m);
    for (int64_t i = 0; i < m; i++)
        e->tile.gate[i] = (float)note_at(e, e->in_notes, order[i])->gate;
    GW_TRY(gw_expert_backward(&e->shape, &e->tile, w, m, dg));
    for (int64_t i = 0; i < m; i++)
        note_at(e, e->in_notes, order[i])->gate = (double)e->tile.dgate[i];
    gw_expert_scatter(&in, e->tile.y, order, m);
    return GW_OK;
}

static gw_status run_round(experts_ep *e, int64_t lo, gw_diags *dg) {
    int64_t pos = 0, skip = 0, start = gw_clock_ns();
    memcpy(e->cursor, e->in_at, (size_t)e->z.ranks * sizeof *e->cursor);
    for (int64_t x = 0; x < e->held.count; x++) {
        gw_expert w = gw_expert_at(&e->shape, &e->stack, x);
        for (int64_t i = 0; i < e->z.ranks; i++) {
            int64_t rows = count_of(e, i, e->held.first + x);
            e->end[i] = e->cursor[i] + overlap(e, pos, rows, lo, &skip);
            pos += rows;
        }
        int64_t n = merge(e);
        e->seen.rows += n;
        for (int64_t at = 0; at < n; at += e->shape.rows)
            GW_TRY(run_tile(e, &w, e->order + at, GW_MIN(e->shape.rows, n - at), dg));
    }
    e->seen.compute_ns += gw_clock_ns() - start;
    return GW_OK;
}

/* ---- sums ---- */

static void sum_all(const experts_ep *e) {
    const float *gates = e->k->in[e->x + GW_EX_GATES].data;
    int64_t choices = choices_of(e);
    gw_expert_rows from = {e->rows, e->z.dtype, e->z.d, e->k->threads};
    gw_expert_sum(&from, e->k->out[0].data, choices / e->z.top, e->z.top, e->slot_of,
                  e->z.backward ? NULL : gates);
    float *dgates = e->z.backward ? e->k->out[1].data : NULL;
    for (int64_t i = 0; dgates && i < choices; i++) {
        int32_t slot = e->slot_of[i];
        dgates[i] = slot < 0 ? 0.0f : (float)note_at(e, e->notes, slot)->gate;
    }
}

/* Weight gradients begin as the accumulator, or as zeros. */
static void seed_gradients(const gw_kargs *k) {
    for (int i = 0; i < 3; i++) {
        const gw_tensor *to = &k->out[2 + i];
        size_t bytes = (size_t)(to->elems * gw_dtype_bits(to->dtype) / 8);
        const void *acc = GW_EXG_ACC + i < k->nin ? k->in[GW_EXG_ACC + i].data : NULL;
        if (!acc)
            memset(to->data, 0, bytes);
        else if (acc != to->data)
            memcpy(to->data, acc, bytes);
    }
}

/* ---- one run ---- */

static int64_t note_loads(experts_ep *e) {
    int64_t most = 0;
    for (int64_t j = 0; j < e->z.ranks; j++) {
        int64_t rows = rows_arriving(e, j);
        most = GW_MAX(most, rows);
        e->seen.rows_all += rows;
    }
    e->seen.rows_most += most;
    int64_t rounds = (most + e->z.room - 1) / e->z.room;
    e->seen.rounds += rounds;
    e->seen.runs++;
    return rounds;
}

/* Weights and their gradients lie where `k` has them now. */
static void bind_stack(experts_ep *e, const gw_kargs *k) {
    e->stack = (gw_expert){.gate = k->in[e->x + GW_EX_GATE].data,
                           .up = k->in[e->x + GW_EX_UP].data,
                           .down = k->in[e->x + GW_EX_DOWN].data};
    if (!e->z.backward) return;
    e->stack.dgate = k->out[2].data;
    e->stack.dup = k->out[3].data;
    e->stack.ddown = k->out[4].data;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    experts_ep *e = state;
    bind_stack(e, k);
    const char *scope = gw_graph_str(k->g, k->op->scope);
    int64_t start = gw_clock_ns();
    if (!e->comm && e->z.ranks > 1)
        return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "exec-ranks",
                       "%s is cut over %lld ranks, and this process is alone", scope,
                       (long long)e->z.ranks);
    sort_choices(e);
    pack(e);
    if (e->z.backward) seed_gradients(k);
    if (e->comm)
        GW_TRY(gw_comm_exchange_counts(e->comm, e->z.axes, e->z.ranks, e->mine, e->z.experts,
                                       e->counts, scope, dg));
    else
        memcpy(e->counts, e->mine, (size_t)e->z.experts * sizeof *e->mine);
    int64_t rounds = note_loads(e);
    for (int64_t r = 0; r < rounds; r++) {
        plan_round(e, r);
        GW_TRY(send_there(e, scope, dg));
        GW_TRY(run_round(e, r * e->z.room, dg));
        GW_TRY(send_back(e, scope, dg));
    }
    sum_all(e);
    e->seen.ns += gw_clock_ns() - start;
    return GW_OK;
}

/* ---- the kernel ---- */

static gw_status check_dtypes(const gw_kargs *k, int x, gw_diags *dg) {
    gw_dtype t = k->in[x + GW_EX_X].dtype;
    if ((t == GW_F32 || t == GW_BF16 || t == GW_F16) && k->in[x + GW_EX_GATES].dtype == GW_F32 &&
        k->in[x + GW_EX_IDS].dtype == GW_I32)
        return GW_OK;
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "moe-ep-dtype",
                   "experts cut over ranks work in f32, bf16 and f16, not in %s", gw_dtype_name(t));
}

static gw_status prepare_as(const gw_kargs *k, gw_arena *a, void **state, bool plain,
                            gw_diags *dg) {
    experts_ep *e = gw_arena_new(a, experts_ep, 1);
    *e = (experts_ep){.z = sizes_of(k->g, k->op), .k = k, .plain = plain};
    e->x = e->z.backward ? GW_EXG_X : 0;
    GW_TRY(check_dtypes(k, e->x, dg));
    const gw_type *x = gw_type_of(k->g, gw_op_in(k->g, k->op, e->x + GW_EX_X));
    const gw_type *w = gw_type_of(k->g, gw_op_in(k->g, k->op, e->x + GW_EX_GATE));
    e->me = gw_exec_group_rank(&k->g->mesh, e->z.axes, k->rank);
    e->held = gw_experts_held_of(w, &k->g->mesh, k->rank);
    e->b = gw_type_runs(x, 0, &k->g->mesh, k->rank);
    e->s = gw_type_runs(x, 1, &k->g->mesh, k->rank);
    e->length = GW_MAX((int64_t)1, k->in[e->x + GW_EX_X].dims[1]);
    e->all_length = x->dims[1].size;
    e->z.f = k->in[e->x + GW_EX_GATE].dims[1];
    *state = e;
    return GW_OK;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    return prepare_as(k, a, state, false, dg);
}
static gw_status prepare_plain(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    return prepare_as(k, a, state, true, dg);
}

void gw_experts_ep_join(void *state, gw_comm *c) {
    experts_ep *e = state;
    e->comm = e->z.ranks > 1 ? c : NULL;
    if (c)
        e->z.per_host =
            gw_exec_group_machine(gw_comm_machine(c), &e->k->g->mesh, e->z.axes).per_host;
    lay(e, e->k->work);
    e->shape.threads = e->k->threads;
    e->shape.plain = e->plain;
    if (e->bytes > e->k->work_bytes)
        gw_panic("experts have %lld bytes of workspace, and need %lld", (long long)e->k->work_bytes,
                 (long long)e->bytes);
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_op_is_experts_ep(g, o);
}

/* Whoever plans asks gw_experts_ep_workspace, which knows the hosts. */
static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    gw_coll_machine one_host = gw_coll_machine_local(m->threads);
    return gw_experts_ep_workspace(g, o, &one_host);
}

static void release(void *state) { (void)state; }

static const gw_kernel by_onednn = {
    .name = "exchanged-experts",
    .op = "experts_ep",
    .note = "rows exchanged with the ranks that hold their experts, in rounds; oneDNN sgemm",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .launch = launch,
    .release = release,
};

static const gw_kernel by_loops = {
    .name = "exchanged-experts-plain",
    .op = "experts_ep",
    .note = "rows exchanged with the ranks that hold their experts, in rounds; plain loops",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare_plain,
    .launch = launch,
    .release = release,
};

const gw_kernel *gw_experts_ep_kernel(const gw_machine *m) {
    return m->reference_only ? &by_loops : &by_onednn;
}

gw_experts_seen gw_experts_ep_seen(const void *state) { return ((const experts_ep *)state)->seen; }
