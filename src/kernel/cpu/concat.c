// SPDX-License-Identifier: Apache-2.0
// concat and split: rows of bytes, at the speed of memory.
//
// A position's heads are one task. Parts are copied as bytes; a gradient that heads share is summed
// over them in float32, in order, and rounded once, a block of GW_VEC_BLOCK components at a time.
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_load, GW_VEC_KERNEL */

/* Bytes of the parts of one head, and of a position of the whole. */
typedef struct widths {
    int64_t heads, a, b, y;
} widths;

static widths widths_of(const gw_tensor *a, const gw_tensor *b) {
    int64_t bytes = gw_dtype_bits(a->dtype) / 8;
    return (widths){a->dims[2], a->dims[3] * bytes, b->dims[3] * bytes,
                    (a->dims[3] + b->dims[3]) * bytes};
}

static bool floats_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, UINT32_MAX);
}

static gw_status concat_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    widths w = widths_of(a, b);
    bool shared = gw_type_of(k->g, gw_op_in(k->g, k->op, 1))->dims[2].name[0] == 'c';
    int64_t rows = a->dims[0] * a->dims[1];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (y->elems > GW_VEC_TASK)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = r * w.heads; h < (r + 1) * w.heads; h++) {
            char *to = (char *)y->data + h * w.y;
            memcpy(to, (const char *)a->data + h * w.a, (size_t)w.a);
            memcpy(to + w.a, (const char *)b->data + (shared ? r : h) * w.b, (size_t)w.b);
        }
    return GW_OK;
}

/* The second part of position r, summed over heads. */
static void sum_heads(const gw_tensor *y, const gw_tensor *b, int64_t r, int64_t heads,
                      int64_t first) {
    int64_t n = b->dims[3], width = y->dims[3];
    for (int64_t i = 0; i < n; i += GW_VEC_BLOCK) {
        float sum[GW_VEC_BLOCK] = {0}, part[GW_VEC_BLOCK];
        int64_t m = GW_MIN((int64_t)GW_VEC_BLOCK, n - i);
        for (int64_t h = 0; h < heads; h++) {
            gw_vec_load(part, y->data, y->dtype, (r * heads + h) * width + first + i, m);
            for (int64_t j = 0; j < m; j++) sum[j] += part[j];
        }
        gw_vec_store(b->data, b->dtype, r * n + i, sum, m);
    }
}

static gw_status split_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *y = &k->in[0], *a = &k->out[0], *b = &k->out[1];
    widths w = widths_of(a, b);
    bool shared = gw_op_attr_named(k->g, k->op, "shared").i != 0;
    int64_t rows = a->dims[0] * a->dims[1];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (y->elems > GW_VEC_TASK)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = r * w.heads; h < (r + 1) * w.heads; h++) {
            const char *from = (const char *)y->data + h * w.y;
            memcpy((char *)a->data + h * w.a, from, (size_t)w.a);
            if (!shared) memcpy((char *)b->data + h * w.b, from + w.a, (size_t)w.b);
        }
        if (shared) sum_heads(y, b, r, w.heads, a->dims[3]);
    }
    return GW_OK;
}

GW_VEC_KERNEL(concat, "concat", "copies of rows", floats_supports, gw_vec_no_workspace,
              concat_launch);
GW_VEC_KERNEL(split, "split", "copies of rows, float32 sums over heads", floats_supports,
              gw_vec_no_workspace, split_launch);
