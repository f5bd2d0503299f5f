// SPDX-License-Identifier: Apache-2.0
// Buffers: state that belongs to a model but that no optimizer makes (train/buffers.h holds the
// contract).
//
// A training program has all of a model's buffers, a forward program only those it reads; what a
// program lacks is passed over. On several ranks a statistic of groups is a part, cut along its
// first dimension, and every row has the same first value, so no rank is asked for.
#include "train/buffers.h"

#include <string.h>

#include "base/arena.h"       /* gw_arena */
#include "file/safetensors.h" /* gw_st_set */
#include "train/weights.h"    /* gw_floats_to */

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

static gw_status read_one(const gw_st_set *st, const gw_buffer *b, const gw_tensor *t,
                          const char *path, gw_diags *dg) {
    const gw_st_tensor *f = gw_st_find(st, b->name);
    bool counter = t->dtype == GW_I64;
    if (!f && counter) {
        fill(t, 0);
        return GW_OK;
    }
    if (!f)
        return gw_fail_at(dg, GW_ERR_FORMAT, "weights-missing", (gw_where){.file = path},
                          "the tensor '%s' is missing", b->name);
    int64_t n = counter ? 1 : b->type.dims[b->type.ndim - 1].size;
    if (f->elems != n || f->dtype != (counter ? GW_ST_I64 : GW_ST_F32))
        return gw_fail_at(dg, GW_ERR_FORMAT, "weights-shape", (gw_where){.file = path},
                          "the tensor '%s' holds %lld elements of %s where the model needs %lld "
                          "of %s",
                          b->name, (long long)f->elems, gw_st_dtype_name(f->dtype), (long long)n,
                          counter ? "I64" : "F32");
    if (counter) {
        memcpy(t->data, f->data, sizeof(int64_t));
        return GW_OK;
    }
    for (int64_t i = 0; i < t->elems; i += n) {
        float row;
        for (int64_t j = 0; j < n; j++) {
            memcpy(&row, (const char *)f->data + 4 * j, sizeof row);
            gw_floats_to(t->dtype, &row, 1, element(t, i + j));
        }
    }
    return GW_OK;
}

gw_status gw_buffers_load(gw_exec *x, const gw_model *m, const char *path, gw_diags *dg) {
    gw_arena a = {0};
    gw_buffer *b;
    int n;
    gw_model_buffers(m, &a, &b, &n);
    gw_st_set *set = NULL;
    gw_status st = n ? gw_st_open(path, &set, dg) : GW_OK;
    gw_tensor t;
    for (int i = 0; i < n && set; i++) {
        gw_status one = find(x, &b[i], &t) ? read_one(set, &b[i], &t, path, dg) : GW_OK;
        if (one != GW_OK) st = one;
    }
    gw_st_free(set);
    gw_arena_release(&a);
    return st;
}
