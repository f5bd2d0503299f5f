// SPDX-License-Identifier: Apache-2.0
// Writing a Hugging Face directory from an executor's parameters.
//
// Logical tensors are put back into their public form, row by row (model/hf.c): GPT-2's q, k and v
// are fused side by side and its matrices stored [in, out]; DeepSeek's projections are fused head
// by head; each expert is a tensor of its own. Everything else is stored as it stands, with the
// dims of an output or input side multiplied into one. Tied heads are not written; config.json says
// that they are tied. Routers' choice biases stay float32.
#include <string.h>

#include "base/panic.h"       /* gw_panic */
#include "base/str.h"         /* gw_str */
#include "file/hf_config.h"   /* gw_hf_config_write */
#include "file/safetensors.h" /* gw_st_dir_writer */
#include "train/hf_model.h"   /* gw_model_to_hf */
#include "train/weights.h"

/* Columns: the input side. */
static int64_t columns_of(const gw_param *p) {
    int64_t n = 1;
    for (int i = p->rows > 0 ? p->rows : p->type.ndim; i < p->type.ndim; i++)
        n *= p->type.dims[i].size;
    return n;
}

static gw_st_dtype st_dtype(gw_dtype t) {
    if (t == GW_F32) return GW_ST_F32;
    if (t == GW_BF16) return GW_ST_BF16;
    if (t == GW_F16) return GW_ST_F16;
    gw_panic("export to %s", gw_dtype_name(t));
}

/* Is it the first of the parameters that its public tensors hold? */
static bool is_first(const gw_param *params, int i) {
    for (int j = 0; j < i; j++)
        if (strcmp(params[j].hf, params[i].hf) == 0) return false;
    return true;
}

static gw_status declare(gw_st_dir_writer *w, const gw_param *p, gw_dtype dtype, gw_diags *dg) {
    int64_t out = gw_param_hf_rows(p), in = columns_of(p);
    int64_t dims[2] = {p->hf_transposed ? in : out, p->hf_transposed ? out : in};
    char buf[GW_HF_NAME];
    if (p->rows == 0) return gw_st_dir_writer_declare(w, p->hf, st_dtype(dtype), 1, &out, dg);
    for (int64_t i = 0; i < gw_param_hf_tensors(p); i++)
        GW_TRY(
            gw_st_dir_writer_declare(w, gw_param_hf_name(p, i, buf), st_dtype(dtype), 2, dims, dg));
    return GW_OK;
}

/* What p has of public tensor i into its place in `all` (float32, the public layout). */
static void lay(const gw_exec *x, const gw_param *p, int64_t i, float *all, float *row) {
    gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->name));
    int64_t rows = gw_param_rows(p), in = columns_of(p), total = gw_param_hf_rows(p);
    int64_t bytes = gw_dtype_bits(t.dtype) / 8;
    for (int64_t r = 0; r < rows; r++) {
        const char *src = (const char *)t.data + (i * rows + r) * in * bytes;
        int64_t at = gw_param_hf_row(p, r);
        if (!p->hf_transposed || p->rows == 0) {
            gw_floats_from(t.dtype, src, in, all + at * in);
            continue;
        }
        gw_floats_from(t.dtype, src, in, row);
        for (int64_t c = 0; c < in; c++) all[c * total + at] = row[c];
    }
}

static gw_status put_tensor(gw_st_dir_writer *w, const char *name, const float *all, int64_t n,
                            gw_dtype dtype, gw_diags *dg) {
    if (dtype == GW_F32) return gw_st_dir_writer_put(w, name, all, n * 4, dg);
    int64_t bytes = n * gw_dtype_bits(dtype) / 8;
    void *narrow = gw_mem_alloc((size_t)bytes);
    gw_floats_to(dtype, all, n, narrow);
    gw_status st = gw_st_dir_writer_put(w, name, narrow, bytes, dg);
    gw_mem_free(narrow);
    return st;
}

static gw_status put(gw_st_dir_writer *w, const gw_exec *x, const gw_param *params, int n,
                     int first, gw_dtype dtype, gw_diags *dg) {
    const gw_param *p = &params[first];
    int64_t in = columns_of(p), total = gw_param_hf_rows(p) * in;
    float *all = gw_mem_alloc(sizeof(float) * (size_t)total);
    float *row = gw_mem_alloc(sizeof(float) * (size_t)in);
    gw_status st = GW_OK;
    char buf[GW_HF_NAME];
    for (int64_t k = 0; k < gw_param_hf_tensors(p) && st == GW_OK; k++) {
        for (int i = first; i < n; i++)
            if (strcmp(params[i].hf, p->hf) == 0) lay(x, &params[i], k, all, row);
        st = put_tensor(w, gw_param_hf_name(p, k, buf), all, total, dtype, dg);
    }
    gw_mem_free(all);
    gw_mem_free(row);
    return st;
}

/* Buffers with public names that the program has. */
static gw_status put_buffers(gw_st_dir_writer *w, const gw_exec *x, const gw_model *m,
                             bool declares, gw_diags *dg) {
    gw_arena a = {0};
    gw_buffer *b;
    int n;
    gw_status st = GW_OK;
    gw_model_buffers(m, &a, &b, &n);
    for (int i = 0; i < n && st == GW_OK; i++) {
        gw_vid v = gw_exec_find(x, b[i].name);
        if (!b[i].hf) continue;
        if (v == GW_NONE) gw_panic("the program has no buffer '%s'", b[i].name);
        gw_tensor t = gw_exec_tensor(x, v);
        float *all = gw_arena_new(&a, float, t.elems);
        gw_floats_from(t.dtype, t.data, t.elems, all);
        st = declares ? gw_st_dir_writer_declare(w, b[i].hf, GW_ST_F32, 1, &t.elems, dg)
                      : gw_st_dir_writer_put(w, b[i].hf, all, t.elems * 4, dg);
    }
    gw_arena_release(&a);
    return st;
}

static const char *hf_dtype(gw_dtype t) {
    return t == GW_BF16 ? "bfloat16" : t == GW_F16 ? "float16" : "float32";
}

static gw_status write_tensors(gw_st_dir_writer *w, const gw_exec *x, const gw_model *m,
                               const gw_param *params, int n, gw_dtype dtype, gw_diags *dg) {
    gw_st_dir_writer_metadata(w, "format", "pt");
    for (int i = 0; i < n; i++)
        if (is_first(params, i)) GW_TRY(declare(w, &params[i], dtype, dg));
    GW_TRY(put_buffers(w, x, m, true, dg));
    GW_TRY(gw_st_dir_writer_begin(w, dg));
    for (int i = 0; i < n; i++)
        if (is_first(params, i)) GW_TRY(put(w, x, params, n, i, dtype, dg));
    GW_TRY(put_buffers(w, x, m, false, dg));
    return gw_st_dir_writer_finish(w, dg);
}

static void set_ids(const gw_token_ids *ids, gw_hf_config *c) {
    _Static_assert((int)GW_TOKEN_IDS_EOS <= (int)GW_HF_MAX_EOS, "every end-of-text id has a place");
    c->bos_token_id = ids->bos;
    c->pad_token_id = ids->pad;
    c->neos = ids->neos;
    for (int i = 0; i < ids->neos; i++) c->eos_token_id[i] = ids->eos[i];
}

/* A bias that steers the choice and would be lost. */
static gw_status check_buffers(const gw_model *m, const gw_hf_config *c, gw_diags *dg) {
    gw_arena a = {0};
    gw_buffer *b;
    int n;
    gw_model_buffers(m, &a, &b, &n);
    bool lost = n > 0 && !b[0].hf;
    gw_arena_release(&a);
    if (!lost) return GW_OK;
    return GW_FAIL(
        dg, GW_ERR_UNSUPPORTED, "model-config",
        "a model of model_type '%s' has no place for the bias of a router's choice, which "
        "this one was trained with (model.moe.balance: bias)",
        c->model_type);
}

/* What config.json cannot say is found out before gigabytes are written. */
static gw_status check_config(const gw_hf_config *c, gw_diags *dg) {
    json_t *j = NULL;
    gw_status st = gw_hf_config_to_json(c, &j, dg);
    json_decref(j);
    return st;
}

gw_status gw_weights_export(const gw_exec *x, const gw_model *m, const gw_param *params, int n,
                            const char *dir, gw_dtype dtype, int64_t max_shard_bytes,
                            const gw_token_ids *ids, gw_diags *dg) {
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    gw_model_to_hf(m, -1, -1, hf_dtype(dtype), c);
    set_ids(ids, c);
    gw_status st = check_config(c, dg);
    if (st == GW_OK) st = check_buffers(m, c, dg);
    if (st == GW_OK) {
        gw_st_dir_writer *w = gw_st_dir_writer_new(dir, max_shard_bytes);
        st = write_tensors(w, x, m, params, n, dtype, dg);
        gw_st_dir_writer_free(w);
    }
    if (st == GW_OK) st = gw_hf_config_write(c, dir, dg);
    gw_mem_free(c);
    return st;
}
