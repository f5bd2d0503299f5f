// SPDX-License-Identifier: Apache-2.0
// Writing a net for images as safetensors that torchvision's classes load.
//
// Names and shapes are torchvision's own already, so nothing is fused, turned or renamed. Running
// statistics are written as float32 beside weights of any dtype, and counters as int64, as a
// state_dict has them.
#include <string.h>

#include "base/panic.h"       /* GW_ASSERT */
#include "file/safetensors.h" /* gw_st_dir_writer */
#include "train/weights.h"    /* this module's contract */

static gw_st_dtype kind_of(gw_dtype t) {
    if (t == GW_I64) return GW_ST_I64;
    if (t == GW_BF16) return GW_ST_BF16;
    if (t == GW_F16) return GW_ST_F16;
    GW_ASSERT(t == GW_F32);
    return GW_ST_F32;
}

typedef struct entry {
    const char *name;
    gw_dtype dtype; /* in the file */
    int ndim;
    int64_t dims[GW_MAX_DIMS], elems;
    gw_tensor from;
} entry;

/* The last `ndim` dims of t: a statistic of groups is written by its first row. */
static entry entry_of(const gw_exec *x, const char *name, const gw_type *t, int ndim,
                      gw_dtype dtype) {
    entry e = {.name = name, .dtype = dtype, .ndim = ndim, .elems = 1};
    for (int i = 0; i < ndim; i++) {
        e.dims[i] = t->dims[t->ndim - ndim + i].size;
        e.elems *= e.dims[i];
    }
    e.from = gw_exec_tensor(x, gw_exec_find(x, name));
    return e;
}

static int list_entries(const gw_exec *x, const gw_model *m, const gw_param *params, int n,
                        gw_dtype dtype, gw_arena *a, entry **out) {
    gw_buffer *b;
    int nb, count = 0;
    gw_model_buffers(m, a, &b, &nb);
    *out = gw_arena_new(a, entry, n + nb + 1);
    for (int i = 0; i < n; i++)
        (*out)[count++] = entry_of(x, params[i].hf, &params[i].type, params[i].type.ndim, dtype);
    for (int i = 0; i < nb; i++) {
        bool counter = b[i].type.dtype == GW_I64;
        (*out)[count++] =
            entry_of(x, b[i].name, &b[i].type, counter ? 0 : 1, counter ? GW_I64 : GW_F32);
    }
    return count;
}

static gw_status put(gw_st_dir_writer *w, const entry *e, gw_diags *dg) {
    int64_t bytes = e->elems * gw_dtype_bits(e->dtype) / 8;
    if (e->from.dtype == e->dtype) return gw_st_dir_writer_put(w, e->name, e->from.data, bytes, dg);
    float *all = gw_mem_alloc(sizeof(float) * (size_t)e->elems);
    void *out = gw_mem_alloc((size_t)bytes);
    gw_floats_from(e->from.dtype, e->from.data, e->elems, all);
    gw_floats_to(e->dtype, all, e->elems, out);
    gw_status st = gw_st_dir_writer_put(w, e->name, out, bytes, dg);
    gw_mem_free(all);
    gw_mem_free(out);
    return st;
}

static gw_status write_entries(gw_st_dir_writer *w, const entry *e, int n, gw_diags *dg) {
    gw_st_dir_writer_metadata(w, "format", "pt");
    for (int i = 0; i < n; i++)
        GW_TRY(
            gw_st_dir_writer_declare(w, e[i].name, kind_of(e[i].dtype), e[i].ndim, e[i].dims, dg));
    GW_TRY(gw_st_dir_writer_begin(w, dg));
    for (int i = 0; i < n; i++) GW_TRY(put(w, &e[i], dg));
    return gw_st_dir_writer_finish(w, dg);
}

gw_status gw_weights_export_net(const gw_exec *x, const gw_model *m, const gw_param *params, int n,
                                const char *dir, gw_dtype dtype, int64_t max_shard_bytes,
                                gw_diags *dg) {
    gw_arena mem = {0};
    entry *e;
    int count = list_entries(x, m, params, n, dtype, &mem, &e);
    gw_st_dir_writer *w = gw_st_dir_writer_new(dir, max_shard_bytes);
    gw_status st = write_entries(w, e, count, dg);
    gw_st_dir_writer_free(w);
    gw_arena_release(&mem);
    return st;
}
