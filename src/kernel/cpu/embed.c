// SPDX-License-Identifier: Apache-2.0
// embed and embed_grad: rows of a table, and sums into rows of its gradient.
//
// embed copies bytes: y has the dtype of w. Ids are rows of the whole table; which of them are here
// follows from the type and the rank.
//
// embed_grad must add the rows of dy that share an id in one order, whatever the threads, and in
// float32 also where dw is narrower. So positions are first chained by id, in order: head[row] is
// the row's first position, next[t] the following one; both are int32 in workspace, 4 bytes a table
// row and 4 a position. Then each row of dw is one task: its chain is summed a block of columns at
// a time in a float32 buffer, added to the accumulator and rounded once. Rows that do not occur are
// zeroed, or left as they are when the accumulator is dw itself. Tasks are shared out as threads
// come free: who computes a row does not change it.
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH */
#include "ops/rows.h"            /* gw_rows_of, gw_rows_local */

/* Table rows that one task takes. */
#define TASK_ROWS 32

/* ---- embed ---- */

static bool embed_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x2);
}

static gw_status embed_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *ids = &k->in[0], *w = &k->in[1];
    int64_t bytes = w->dims[1] * gw_vec_size(w->dtype);
    const gw_runs held = gw_rows_of(k, gw_op_in(k->g, k->op, 1), 0);
    char *y = k->out[0].data;
    const char *rows = w->data;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (ids->elems * bytes > 65536)
    for (int64_t t = 0; t < ids->elems; t++) {
        int64_t row = gw_rows_local(&held, gw_vec_int(ids, t));
        if (row >= 0)
            memcpy(y + t * bytes, rows + row * bytes, (size_t)bytes);
        else
            memset(y + t * bytes, 0, (size_t)bytes);
    }
    return GW_OK;
}

/* ---- embed_grad ---- */

typedef struct chains {
    int32_t *head; /* [v] first position of a row, or -1 */
    int32_t *next; /* [positions] the next one of the same row, or -1 */
} chains;

typedef void add_fn(float *sum, const void *dy, int64_t first, int64_t n);

static GW_ALWAYS_INLINE void add_any(float *GW_RESTRICT sum, const void *GW_RESTRICT dy,
                                     int64_t first, int64_t n, gw_dtype t) {
    for (int64_t j = 0; j < n; j++) sum[j] += gw_vec_get(dy, t, first + j);
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void add_##suffix(float *sum, const void *dy, int64_t first, int64_t n) {     \
        add_any(sum, dy, first, n, T);                                                             \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(add_fn, add)

static bool grad_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    int64_t positions = gw_type_elems(gw_type_of(g, gw_op_in(g, o, 0)));
    return gw_vec_floats(g, o, 0x6) && positions <= INT32_MAX;
}

static int64_t grad_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    return (s.out[0].dims[0] + s.in[0].elems) * (int64_t)sizeof(int32_t);
}

/* From the last position to the first, so that each chain ascends. */
static chains chain(const gw_kargs *k) {
    const gw_tensor *ids = &k->in[0];
    int64_t v = k->out[0].dims[0];
    chains c = {.head = k->work, .next = (int32_t *)k->work + v};
    const gw_runs held = gw_rows_of(k, gw_op_out(k->g, k->op, 0), 0);
    memset(c.head, 0xff, (size_t)v * sizeof *c.head);
    for (int64_t t = ids->elems - 1; t >= 0; t--) {
        int64_t row = gw_rows_local(&held, gw_vec_int(ids, t));
        if (row < 0) continue;
        c.next[t] = c.head[row];
        c.head[row] = (int32_t)t;
    }
    return c;
}

static void grad_row(const gw_kargs *k, const chains *c, int64_t row) {
    const gw_tensor *dy = &k->in[1], *dw = &k->out[0];
    const gw_tensor *acc = k->nin > 2 && k->in[2].data ? &k->in[2] : NULL;
    int64_t d = dw->dims[1];
    if (c->head[row] < 0 && acc && acc->data == dw->data) return;
    for (int64_t j = 0; j < d; j += GW_VEC_BLOCK) {
        float sum[GW_VEC_BLOCK], old[GW_VEC_BLOCK];
        int64_t n = GW_MIN(GW_VEC_BLOCK, d - j);
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int32_t t = c->head[row]; t >= 0; t = c->next[t])
            add_of[dy->dtype](sum, dy->data, t * d + j, n);
        if (acc) {
            gw_vec_load(old, acc->data, acc->dtype, row * d + j, n);
            add_of[GW_F32](sum, old, 0, n);
        }
        gw_vec_store(dw->data, dw->dtype, row * d + j, sum, n);
    }
}

static gw_status grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const chains c = chain(k);
    int64_t v = k->out[0].dims[0];
#pragma omp parallel for num_threads(k->threads) schedule(dynamic) if (k->in[1].elems > 4096)
    for (int64_t r = 0; r < v; r += TASK_ROWS)
        for (int64_t i = r; i < GW_MIN(v, r + TASK_ROWS); i++) grad_row(k, &c, i);
    return GW_OK;
}

GW_VEC_KERNEL(embed, "embed", "copies of rows", embed_supports, gw_vec_no_workspace, embed_launch);
GW_VEC_KERNEL(embed_grad, "embed_grad", "positions chained by id, one table row a task",
              grad_supports, grad_workspace, grad_launch);
