// SPDX-License-Identifier: Apache-2.0
// Writing a Hugging Face directory from an executor's parameters.
//
// Logical tensors are put back into their public form: GPT-2's q, k and v are fused side by side
// and its matrices stored [in, out]; everything else is stored as it stands, with the dims of an
// output or input side multiplied into one. Tied heads are not written; config.json says that they
// are tied.
#include <string.h>

#include "base/panic.h"       /* gw_panic */
#include "base/str.h"         /* gw_str */
#include "file/hf_config.h"   /* gw_hf_config_write */
#include "file/safetensors.h" /* gw_st_dir_writer */
#include "train/hf_model.h"   /* gw_model_to_hf */
#include "train/weights.h"

typedef struct side {
    int64_t out, in;
} side;

static side sides_of(const gw_param *p) {
    side s = {1, 1};
    int rows = p->rows > 0 ? p->rows : p->type.ndim;
    for (int i = 0; i < p->type.ndim; i++) {
        if (i < rows)
            s.out *= p->type.dims[i].size;
        else
            s.in *= p->type.dims[i].size;
    }
    return s;
}

static gw_st_dtype st_dtype(gw_dtype t) {
    if (t == GW_F32) return GW_ST_F32;
    if (t == GW_BF16) return GW_ST_BF16;
    if (t == GW_F16) return GW_ST_F16;
    gw_panic("export to %s", gw_dtype_name(t));
}

static gw_status declare(gw_st_dir_writer *w, const gw_param *p, gw_dtype dtype, gw_diags *dg) {
    side s = sides_of(p);
    int64_t out = s.out * p->hf_parts;
    int64_t dims[2] = {p->hf_transposed ? s.in : out, p->hf_transposed ? out : s.in};
    if (p->rows == 0) return gw_st_dir_writer_declare(w, p->hf, st_dtype(dtype), 1, &out, dg);
    return gw_st_dir_writer_declare(w, p->hf, st_dtype(dtype), 2, dims, dg);
}

/* Part `k` of a public tensor into its place in `all` (float32, the public layout). */
static void lay(const gw_exec *x, const gw_param *p, int k, float *all, float *row) {
    gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->name));
    side s = sides_of(p);
    int64_t total = s.out * p->hf_parts, bytes = gw_dtype_bits(t.dtype) / 8;
    for (int64_t r = 0; r < s.out; r++) {
        const char *src = (const char *)t.data + r * s.in * bytes;
        int64_t at = k * s.out + r;
        if (!p->hf_transposed || p->rows == 0) {
            gw_floats_from(t.dtype, src, s.in, all + at * s.in);
            continue;
        }
        gw_floats_from(t.dtype, src, s.in, row);
        for (int64_t i = 0; i < s.in; i++) all[i * total + at] = row[i];
    }
}

static gw_status put(gw_st_dir_writer *w, const gw_exec *x, const gw_param *params, int n,
                     int first, gw_dtype dtype, gw_diags *dg) {
    const gw_param *p = &params[first];
    side s = sides_of(p);
    int64_t total = s.out * s.in * p->hf_parts;
    float *all = gw_mem_alloc(sizeof(float) * (size_t)total);
    float *row = gw_mem_alloc(sizeof(float) * (size_t)s.in);
    for (int i = first; i < n; i++)
        if (strcmp(params[i].hf, p->hf) == 0) lay(x, &params[i], params[i].hf_part, all, row);
    void *bytes = all;
    if (dtype != GW_F32) {
        bytes = gw_mem_alloc((size_t)(total * gw_dtype_bits(dtype) / 8));
        gw_floats_to(dtype, all, total, bytes);
    }
    gw_status st = gw_st_dir_writer_put(w, p->hf, bytes, total * gw_dtype_bits(dtype) / 8, dg);
    if (bytes != all) gw_mem_free(bytes);
    gw_mem_free(all);
    gw_mem_free(row);
    return st;
}

static const char *hf_dtype(gw_dtype t) {
    return t == GW_BF16 ? "bfloat16" : t == GW_F16 ? "float16" : "float32";
}

static gw_status write_tensors(gw_st_dir_writer *w, const gw_exec *x, const gw_param *params, int n,
                               gw_dtype dtype, gw_diags *dg) {
    gw_st_dir_writer_metadata(w, "format", "pt");
    for (int i = 0; i < n; i++)
        if (params[i].hf_part == 0) GW_TRY(declare(w, &params[i], dtype, dg));
    GW_TRY(gw_st_dir_writer_begin(w, dg));
    for (int i = 0; i < n; i++)
        if (params[i].hf_part == 0) GW_TRY(put(w, x, params, n, i, dtype, dg));
    return gw_st_dir_writer_finish(w, dg);
}

static void set_ids(const gw_token_ids *ids, gw_hf_config *c) {
    _Static_assert((int)GW_TOKEN_IDS_EOS <= (int)GW_HF_MAX_EOS, "every end-of-text id has a place");
    c->bos_token_id = ids->bos;
    c->pad_token_id = ids->pad;
    c->neos = ids->neos;
    for (int i = 0; i < ids->neos; i++) c->eos_token_id[i] = ids->eos[i];
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
    if (st == GW_OK) {
        gw_st_dir_writer *w = gw_st_dir_writer_new(dir, max_shard_bytes);
        st = write_tensors(w, x, params, n, dtype, dg);
        gw_st_dir_writer_free(w);
    }
    if (st == GW_OK) st = gw_hf_config_write(c, dir, dg);
    gw_mem_free(c);
    return st;
}
