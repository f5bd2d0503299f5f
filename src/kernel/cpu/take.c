// SPDX-License-Identifier: Apache-2.0
// take and weave: copies of runs of rows, at the speed of memory.
//
// A piece is outer x groups runs, each of consecutive bytes in the piece and in the whole. A run is
// cut into blocks of BLOCK bytes, so that a few long ones keep all threads busy as well as many
// short ones; blocks are shared out statically. Bits are copied, so that any number of threads and
// any dtype of whole bytes gives the same.
#include <string.h>

#include "kernel/cpu/vec_more.h" /* GW_VEC_KERNEL */

enum { BLOCK = 1 << 17 };

static bool whole_bytes(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_dtype_bits((gw_dtype)gw_type_of(g, gw_op_out(g, o, 0))->dtype) % 8 == 0;
}

/* Where the runs of a piece lie, in bytes. */
typedef struct runs {
    int64_t outer, groups, parts;
    int64_t bytes; /* of one run */
} runs;

static runs runs_of(const gw_kargs *k, const gw_tensor *piece, int64_t parts) {
    int s = gw_type_find(gw_type_of(k->g, gw_op_in(k->g, k->op, 0)), "s");
    runs r = {.outer = 1, .parts = parts};
    r.groups = gw_op_attr_named(k->g, k->op, "groups").i;
    for (int i = 0; i < s; i++) r.outer *= piece->dims[i];
    r.bytes = gw_dtype_bits(piece->dtype) / 8;
    for (int i = s; i < piece->ndim; i++) r.bytes *= piece->dims[i];
    r.bytes /= r.groups;
    return r;
}

static void copy_runs(const runs *r, char *whole, char *piece, int64_t part, bool out,
                      int threads) {
    if (r->bytes == 0) return;
    int64_t n = r->outer * r->groups, blocks = (r->bytes + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static) if (n * r->bytes > BLOCK)
    for (int64_t i = 0; i < n * blocks; i++) {
        int64_t run = i / blocks, at = i % blocks * BLOCK;
        size_t bytes = (size_t)GW_MIN((int64_t)BLOCK, r->bytes - at);
        char *w = whole + (run * r->parts + part) * r->bytes + at;
        char *p = piece + run * r->bytes + at;
        memcpy(out ? p : w, out ? w : p, bytes);
    }
}

static gw_status take_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    runs r = runs_of(k, &k->out[0], gw_op_attr_named(k->g, k->op, "parts").i);
    int64_t part = gw_op_attr_named(k->g, k->op, "part").i;
    copy_runs(&r, k->in[0].data, k->out[0].data, part, true, k->threads);
    return GW_OK;
}

static gw_status weave_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    runs r = runs_of(k, &k->in[0], k->nin);
    for (int j = 0; j < k->nin; j++)
        copy_runs(&r, k->out[0].data, k->in[j].data, j, false, k->threads);
    return GW_OK;
}

GW_VEC_KERNEL(take, "take", "copies of runs of rows", whole_bytes, gw_vec_no_workspace,
              take_launch);
GW_VEC_KERNEL(weave, "weave", "copies of runs of rows", whole_bytes, gw_vec_no_workspace,
              weave_launch);
