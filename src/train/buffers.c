// SPDX-License-Identifier: Apache-2.0
// Buffers: state that belongs to a model but that no optimizer makes (train/buffers.h holds the
// contract).
//
// A training program has all of a model's buffers, a forward program only those it reads; what a
// program lacks is passed over. On several ranks a statistic of groups is a part, cut along its
// first dimension, and every row has the same first value, so no rank is asked for.
#include "train/buffers.h"

#include "base/arena.h"    /* gw_arena */
#include "train/weights.h" /* gw_floats_to */

static char *element(const gw_tensor *t, int64_t i) {
    return (char *)t->data + i * gw_dtype_bits(t->dtype) / 8;
}

static bool find(const gw_exec *x, const gw_buffer *b, gw_tensor *out) {
    gw_vid v = gw_exec_find(x, b->name);
    if (v == GW_NONE || !gw_exec_ptr(x, v)) return false;
    *out = gw_exec_tensor(x, v);
    return true;
}

static void fill(const gw_tensor *t, double value) {
    float f = (float)value;
    for (int64_t i = 0; i < t->elems; i++) {
        if (t->dtype == GW_I64)
            ((int64_t *)t->data)[i] = (int64_t)value;
        else
            gw_floats_to(t->dtype, &f, 1, element(t, i));
    }
}

void gw_buffers_init(gw_exec *x, const gw_model *m) {
    gw_arena a = {0};
    gw_buffer *b;
    int n;
    gw_tensor t;
    gw_model_buffers(m, &a, &b, &n);
    for (int i = 0; i < n; i++)
        if (find(x, &b[i], &t)) fill(&t, b[i].init);
    gw_arena_release(&a);
}
