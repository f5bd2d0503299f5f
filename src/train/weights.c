// SPDX-License-Identifier: Apache-2.0
// Where parameters come from: a seed, or a public file.
//
// Initial weights depend on (seed, tensor name, global element index) only, so every layout starts
// from the same bits. A rank that holds a flat part of a tensor makes, or reads, that part alone:
// no rank ever holds a whole model that is sharded. Public files are read row by row through one
// small interface (find a tensor, read some of its rows as float32), so that Hugging Face and GGUF
// differ in one function each. Three transformations stand between a file and a logical tensor, and
// the parameter table says which apply: a slice of a fused tensor, a transposed matrix (Conv1D),
// and interleaved rope rows (GGUF of the llama architecture).
#include "train/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/num.h"         /* gw_bf16, gw_fp16 */
#include "base/panic.h"       /* gw_panic */
#include "base/rng.h"         /* gw_rng_fill_normal */
#include "base/str.h"         /* gw_str, gw_str_ends */
#include "file/gguf.h"        /* gw_gguf */
#include "file/safetensors.h" /* gw_st_set */

enum { CHUNK = 1 << 18 }; /* elements made at a time */

void gw_floats_to(gw_dtype t, const float *src, int64_t n, void *dst) {
    if (t == GW_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (t == GW_BF16)
        for (int64_t i = 0; i < n; i++) ((gw_bf16 *)dst)[i] = gw_bf16_from_f32(src[i]);
    else if (t == GW_F16)
        for (int64_t i = 0; i < n; i++) ((gw_fp16 *)dst)[i] = gw_fp16_from_f32(src[i]);
    else if (t == GW_F64)
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = (double)src[i];
    else
        gw_panic("%s is no float dtype", gw_dtype_name(t));
}

void gw_floats_from(gw_dtype t, const void *src, int64_t n, float *dst) {
    if (t == GW_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else if (t == GW_BF16)
        for (int64_t i = 0; i < n; i++) dst[i] = gw_bf16_to_f32(((const gw_bf16 *)src)[i]);
    else if (t == GW_F16)
        for (int64_t i = 0; i < n; i++) dst[i] = gw_fp16_to_f32(((const gw_fp16 *)src)[i]);
    else if (t == GW_F64)
        for (int64_t i = 0; i < n; i++) dst[i] = (float)((const double *)src)[i];
    else
        gw_panic("%s is no float dtype", gw_dtype_name(t));
}

static gw_tensor tensor_of(const gw_exec *x, const gw_param *p) {
    gw_vid v = gw_exec_find(x, p->name);
    if (v == GW_NONE) gw_panic("the program has no parameter '%s'", p->name);
    return gw_exec_tensor(x, v);
}

static char *element(const gw_tensor *t, int64_t i) {
    return (char *)t->data + i * gw_dtype_bits(t->dtype) / 8;
}

/* ---- from a seed ---- */

/* Chunks of all parameters, taken by threads in turn: any cut gives the same bits. */
typedef struct filler {
    const gw_exec *x;
    const gw_param *params;
    int n;
    uint64_t seed;
    atomic_llong next; /* number of the next chunk, over all parameters */
} filler;

static int64_t chunks_of(const filler *f, const gw_param *p) {
    return (tensor_of(f->x, p).elems + CHUNK - 1) / CHUNK;
}

/* In [-bound, bound). */
static void fill_uniform(gw_rng_key key, uint64_t first, int64_t n, float bound, float *out) {
    for (int64_t j = 0; j < n; j++)
        out[j] = bound * (2 * gw_rng_uniform(key, first + (uint64_t)j) - 1);
}

static void fill_chunk(const filler *f, const gw_param *p, int64_t chunk, float *buf) {
    gw_tensor t = tensor_of(f->x, p);
    int64_t at = chunk * CHUNK, m = GW_MIN((int64_t)CHUNK, t.elems - at);
    if (p->init == GW_INIT_NORMAL)
        gw_rng_fill_normal(gw_rng_key_named(f->seed, p->name), (uint64_t)(t.first + at), m,
                           (float)p->std, buf);
    if (p->init == GW_INIT_UNIFORM)
        fill_uniform(gw_rng_key_named(f->seed, p->name), (uint64_t)(t.first + at), m, (float)p->std,
                     buf);
    for (int64_t j = 0; j < m && (p->init == GW_INIT_ONES || p->init == GW_INIT_ZEROS); j++)
        buf[j] = p->init == GW_INIT_ONES ? 1.0f : 0.0f;
    gw_floats_to(t.dtype, buf, m, element(&t, at));
}

static void *fill_chunks(void *user) {
    filler *f = user;
    float *buf = gw_mem_alloc(sizeof(float) * CHUNK);
    int64_t first = 0; /* number of parameter i's first chunk */
    int i = 0;
    for (;;) {
        int64_t c = atomic_fetch_add(&f->next, 1);
        while (i < f->n && c >= first + chunks_of(f, &f->params[i]))
            first += chunks_of(f, &f->params[i++]);
        if (i == f->n) break;
        fill_chunk(f, &f->params[i], c - first, buf);
    }
    gw_mem_free(buf);
    return NULL;
}

void gw_weights_init(gw_exec *x, const gw_param *params, int n, uint64_t seed, int threads) {
    filler f = {.x = x, .params = params, .n = n, .seed = seed};
    enum { MOST = 64 };
    pthread_t others[MOST];
    int started = 0;
    while (started < GW_MIN(threads, (int)MOST) - 1 &&
           pthread_create(&others[started], NULL, fill_chunks, &f) == 0)
        started++;
    (void)fill_chunks(&f);
    for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
}

/* ---- from a file ---- */

typedef struct source {
    gw_st_set *st;
    gw_gguf *gguf;
    const char *path;
} source;

/* A found tensor, whichever the file. */
typedef struct found {
    const gw_st_tensor *st;
    const gw_gguf_tensor *gguf;
    int ndim;
    const int64_t *dims;
} found;

static bool find(const source *s, const gw_param *p, found *f) {
    *f = (found){0};
    if (s->gguf) {
        f->gguf = gw_gguf_find_tensor(s->gguf, p->gguf);
        if (!f->gguf) return false;
        f->ndim = f->gguf->ndim;
        f->dims = f->gguf->dims;
        return true;
    }
    f->st = gw_st_find(s->st, p->hf);
    const char *dot = strchr(p->hf, '.');
    if (!f->st && dot) f->st = gw_st_find(s->st, dot + 1);
    if (!f->st) return false;
    f->ndim = f->st->ndim;
    f->dims = f->st->dims;
    return true;
}

static void sides(const gw_param *p, int64_t *out, int64_t *in) {
    *out = 1;
    *in = 1;
    int rows = p->rows > 0 ? p->rows : p->type.ndim;
    for (int i = 0; i < p->type.ndim; i++) *(i < rows ? out : in) *= p->type.dims[i].size;
}

/* The shape a file must give a parameter: [out, in], or [in, out] of a Conv1D, out over all parts
 * of a fused tensor; [out] of a vector. A square matrix apart, a transposed one is told by this. */
static int shape_in_file(const source *s, const gw_param *p, int64_t dims[2]) {
    int64_t out, in;
    sides(p, &out, &in);
    out *= p->hf_parts;
    bool vector = p->rows == 0, turned = !s->gguf && p->hf_transposed;
    dims[0] = turned && !vector ? in : out;
    dims[1] = turned ? out : in;
    return vector ? 1 : 2;
}

/* Filters, which a file keeps with all their dimensions: the same elements in the same order. */
static bool has_own_dims(const found *f, const gw_param *p) {
    bool same = f->ndim == p->type.ndim && f->ndim == 4 && p->hf_parts == 1 && !p->hf_transposed;
    for (int i = 0; same && i < f->ndim; i++) same = f->dims[i] == p->type.dims[i].size;
    return same;
}

static gw_status check_shape(const source *s, const found *f, const gw_param *p, const char *name,
                             gw_diags *dg) {
    int64_t want[2];
    int n = shape_in_file(s, p, want);
    bool ok = f->ndim == n;
    for (int i = 0; ok && i < n; i++) ok = f->dims[i] == want[i];
    if (ok || (!s->gguf && has_own_dims(f, p))) return GW_OK;
    gw_str have = {0}, need = {0};
    for (int i = 0; i < f->ndim; i++)
        gw_str_printf(&have, "%s%lld", i ? ", " : "", (long long)f->dims[i]);
    for (int i = 0; i < n; i++) gw_str_printf(&need, "%s%lld", i ? ", " : "", (long long)want[i]);
    gw_status st = gw_fail_at(dg, GW_ERR_FORMAT, "weights-shape", (gw_where){.file = s->path},
                              "the tensor '%s' has the shape [%s] where the model needs [%s]", name,
                              gw_str_c(&have), gw_str_c(&need));
    gw_str_release(&have);
    gw_str_release(&need);
    return st;
}

static bool st_floats(const gw_st_tensor *t, int64_t first, int64_t n, float *out) {
    const char *bytes = (const char *)t->data + first * gw_st_dtype_bits(t->dtype) / 8;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        double d;
        if (t->dtype == GW_ST_F32)
            memcpy(&out[i], bytes + 4 * i, 4);
        else if (t->dtype == GW_ST_BF16) {
            memcpy(&h, bytes + 2 * i, 2);
            out[i] = gw_bf16_to_f32((gw_bf16){h});
        } else if (t->dtype == GW_ST_F16) {
            memcpy(&h, bytes + 2 * i, 2);
            out[i] = gw_fp16_to_f32((gw_fp16){h});
        } else if (t->dtype == GW_ST_F64) {
            memcpy(&d, bytes + 8 * i, 8);
            out[i] = (float)d;
        } else
            return false;
    }
    return true;
}

/* Row r (output index) of the logical matrix as the file has it. */
static int64_t file_row(const source *s, const gw_param *p, int64_t r, int64_t head_dim) {
    if (!s->gguf || !p->rope_rows) return r;
    int64_t h = r / head_dim, i = r % head_dim, half = head_dim / 2;
    return h * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

static bool read_row(const source *s, const found *f, const gw_param *p, int64_t r, int64_t out,
                     int64_t in, int64_t head_dim, float *row) {
    int64_t total = out * p->hf_parts;
    int64_t at = p->hf_part * out + file_row(s, p, r, head_dim);
    if (s->gguf) {
        if (in > 1) return gw_gguf_row_f32(f->gguf, at, row);
        return f->gguf->type == GW_GGML_F32
                   ? (memcpy(row, (const char *)f->gguf->data + 4 * at, 4), true)
                   : gw_ggml_block_elems(f->gguf->type) == 1 &&
                         gw_ggml_dequantise(f->gguf->type,
                                            (const char *)f->gguf->data +
                                                at * gw_ggml_block_bytes(f->gguf->type),
                                            1, row);
    }
    if (!p->hf_transposed || in == 1) return st_floats(f->st, at * in, in, row);
    for (int64_t i = 0; i < in; i++)
        if (!st_floats(f->st, i * total + at, 1, row + i)) return false;
    return true;
}

static gw_status read_param(const source *s, gw_exec *x, const gw_model *m, const gw_param *p,
                            gw_diags *dg) {
    found f;
    const char *name = s->gguf ? p->gguf : p->hf;
    if (!find(s, p, &f))
        return gw_fail_at(dg, GW_ERR_FORMAT, "weights-missing", (gw_where){.file = s->path},
                          "the tensor '%s' is missing", name);
    gw_tensor t = tensor_of(x, p);
    GW_TRY(check_shape(s, &f, p, name, dg));
    int64_t out, in;
    sides(p, &out, &in);
    float *row = gw_mem_alloc(sizeof(float) * (size_t)in);
    bool ok = true;
    for (int64_t r = 0; r < out && ok; r++) {
        int64_t from = GW_MAX(r * in, t.first), end = GW_MIN((r + 1) * in, t.first + t.elems);
        if (from >= end) continue; /* another rank's */
        ok = read_row(s, &f, p, r, out, in, m->head_dim, row);
        if (ok)
            gw_floats_to(t.dtype, row + (from - r * in), end - from, element(&t, from - t.first));
    }
    gw_mem_free(row);
    if (!ok)
        return gw_fail_at(
            dg, GW_ERR_UNSUPPORTED, "weights-dtype", (gw_where){.file = s->path},
            "the tensor '%s' is stored as %s, which is not a float that can be read", name,
            s->gguf ? gw_ggml_type_name(f.gguf->type) : gw_st_dtype_name(f.st->dtype));
    return GW_OK;
}

/* Buffers that old files carry and nothing reads. */
static bool harmless(const char *name) {
    return gw_str_ends(name, ".attn.bias") || gw_str_ends(name, ".attn.masked_bias") ||
           gw_str_ends(name, "rotary_emb.inv_freq") || gw_str_ends(name, "rope_freqs.weight");
}

static bool is_read(const source *s, const char *name, const gw_param *params, int n) {
    for (int i = 0; i < n; i++) {
        const char *want = s->gguf ? params[i].gguf : params[i].hf;
        const char *dot = strchr(want, '.');
        if (strcmp(name, want) == 0 || (!s->gguf && dot && strcmp(name, dot + 1) == 0)) return true;
    }
    return false;
}

static void warn_unread(const source *s, const gw_model *m, const gw_param *params, int n,
                        gw_diags *dg) {
    int64_t count = s->gguf ? gw_gguf_ntensors(s->gguf) : gw_st_count(s->st), unread = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < count; i++) {
        const char *name =
            s->gguf ? gw_gguf_tensor_at(s->gguf, i)->name : gw_st_get(s->st, i)->name;
        bool tied_head =
            m->tie && (strcmp(name, "lm_head.weight") == 0 || strcmp(name, "output.weight") == 0);
        if (tied_head || harmless(name) || is_read(s, name, params, n)) continue;
        if (!first) first = name;
        unread++;
    }
    if (unread)
        gw_diag_add(dg, GW_WARNING, GW_OK, "weights-unread", (gw_where){.file = s->path},
                    "%lld tensors of the file belong to nothing in this model, the first is '%s'",
                    (long long)unread, first);
}

gw_status gw_weights_load(gw_exec *x, const gw_model *m, const gw_param *params, int n,
                          const char *path, gw_diags *dg) {
    source s = {.path = path};
    if (gw_str_ends(path, ".gguf"))
        GW_TRY(gw_gguf_open(path, &s.gguf, dg));
    else
        GW_TRY(gw_st_open(path, &s.st, dg));
    gw_status st = GW_OK;
    for (int i = 0; i < n; i++) {
        gw_status one = read_param(&s, x, m, &params[i], dg);
        if (one != GW_OK) st = one;
    }
    if (st == GW_OK) warn_unread(&s, m, params, n, dg);
    gw_gguf_free(s.gguf);
    gw_st_free(s.st);
    return st;
}
