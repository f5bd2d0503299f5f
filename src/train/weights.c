// SPDX-License-Identifier: Apache-2.0
// Where parameters come from: a seed, or a public file.
//
// Initial weights depend on (seed, tensor name, global element index) only, so every layout starts
// from the same bits. A rank that holds a part of a tensor, flat or cut along dimensions, makes, or
// reads, that part alone: no rank ever holds a whole model that is sharded. Public files are read
// row by row through one small interface (find a tensor, read some of its rows as float32), so that
// Hugging Face and GGUF differ in one function each. What stands between a file and a logical
// tensor the parameter table says: which tensors, which rows of them (model/hf.c), a transposed
// matrix (Conv1D), and interleaved rope rows (GGUF of the llama architecture).
#include "train/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/num.h"         /* gw_bf16, gw_fp16 */
#include "base/panic.h"       /* gw_panic */
#include "base/rng.h"         /* gw_rng_fill_normal */
#include "base/str.h"         /* gw_str, gw_str_ends */
#include "file/gguf.h"        /* gw_gguf */
#include "file/pytorch.h"     /* gw_torch */
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

/* One that another stage of a pipeline has holds nothing here. */
static bool is_here(const gw_exec *x, const gw_param *p) {
    return gw_exec_find(x, p->name) != GW_NONE;
}

static gw_tensor tensor_of(const gw_exec *x, const gw_param *p) {
    gw_vid v = gw_exec_find(x, p->name);
    if (v == GW_NONE) gw_panic("the program has no parameter '%s'", p->name);
    return gw_exec_tensor(x, v);
}

/* What this rank holds of it. */
static gw_held held_of(const gw_exec *x, const gw_param *p) {
    const gw_graph *g = gw_exec_graph(x);
    gw_held w;
    gw_held_begin(&w, gw_type_of(g, gw_exec_find(x, p->name)), &g->mesh, gw_exec_rank(x));
    return w;
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
    return is_here(f->x, p) ? (tensor_of(f->x, p).elems + CHUNK - 1) / CHUNK : 0;
}

/* In [-bound, bound). */
static void fill_uniform(gw_rng_key key, uint64_t first, int64_t n, float bound, float *out) {
    for (int64_t j = 0; j < n; j++)
        out[j] = bound * (2 * gw_rng_uniform(key, first + (uint64_t)j) - 1);
}

/* Elements from index `first` of the whole tensor. */
static void fill_run(const filler *f, const gw_param *p, int64_t first, int64_t n, float *out) {
    gw_rng_key key = gw_rng_key_named(f->seed, p->name);
    switch (p->init) {
    case GW_INIT_NORMAL: gw_rng_fill_normal(key, (uint64_t)first, n, (float)p->std, out); return;
    case GW_INIT_UNIFORM: fill_uniform(key, (uint64_t)first, n, (float)p->std, out); return;
    case GW_INIT_ONES:
    case GW_INIT_ZEROS:
        for (int64_t j = 0; j < n; j++) out[j] = p->init == GW_INIT_ONES ? 1.0f : 0.0f;
        return;
    }
}

static void fill_chunk(const filler *f, const gw_param *p, int64_t chunk, float *buf) {
    gw_held w = held_of(f->x, p);
    gw_tensor t = tensor_of(f->x, p);
    int64_t at = chunk * CHUNK, m = GW_MIN((int64_t)CHUNK, t.elems - at), global, local, count;
    w.at = w.lo + at;
    w.hi = w.at + m;
    while (gw_held_next(&w, &global, &local, &count))
        fill_run(f, p, global, count, buf + (local - at));
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
    gw_torch *torch; /* names and shapes are those of safetensors */
    const char *path;
} source;

/* A found tensor, whichever the file. */
typedef struct found {
    const gw_st_tensor *st;
    const gw_gguf_tensor *gguf;
    int ndim;
    const int64_t *dims;
} found;

static const gw_st_tensor *find_name(const source *s, const char *name) {
    return s->torch ? gw_torch_find(s->torch, name) : gw_st_find(s->st, name);
}

/* Files of a model without its head lack the first part of the name. */
static const gw_st_tensor *find_st(const source *s, const char *name) {
    const gw_st_tensor *t = find_name(s, name);
    const char *dot = strchr(name, '.');
    return t || !dot ? t : find_name(s, dot + 1);
}

static int64_t count_of(const source *s) {
    return s->gguf    ? gw_gguf_ntensors(s->gguf)
           : s->torch ? gw_torch_count(s->torch)
                      : gw_st_count(s->st);
}

static const char *name_at(const source *s, int64_t i) {
    if (s->gguf) return gw_gguf_tensor_at(s->gguf, i)->name;
    return s->torch ? gw_torch_get(s->torch, i)->name : gw_st_get(s->st, i)->name;
}

/* Tensor i of those that hold p. */
static bool find(const source *s, const gw_param *p, int64_t i, found *f) {
    *f = (found){0};
    if (s->gguf) {
        f->gguf = gw_gguf_find_tensor(s->gguf, p->gguf);
        if (!f->gguf) return false;
        f->ndim = f->gguf->ndim;
        f->dims = f->gguf->dims;
        return true;
    }
    char buf[GW_HF_NAME];
    f->st = find_st(s, gw_param_hf_name(p, i, buf));
    if (!f->st) return false;
    f->ndim = f->st->ndim;
    f->dims = f->st->dims;
    return true;
}

/* Rows and columns of the logical matrix, or of the stack of matrices that it is. */
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
    out = s->gguf ? out * p->hf_parts : gw_param_hf_rows(p);
    bool vector = p->rows == 0, turned = !s->gguf && p->hf_transposed;
    dims[0] = turned && !vector ? in : out;
    dims[1] = turned ? out : in;
    return vector ? 1 : 2;
}

/* Filters, which a file keeps with all their dimensions: the same elements in the same order. */
static bool has_own_dims(const found *f, const gw_param *p) {
    bool same = f->ndim == p->type.ndim && f->ndim == 4 && p->hf_parts == 1 && !p->hf_transposed &&
                !p->hf_rows.whole;
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

/* Row r (output index) of the logical matrix as the file's tensor has it. */
static int64_t file_row(const source *s, const gw_param *p, int64_t r, int64_t out,
                        int64_t head_dim) {
    if (!s->gguf) return gw_param_hf_row(p, r);
    if (!p->rope_rows) return p->hf_part * out + r;
    int64_t h = r / head_dim, i = r % head_dim, half = head_dim / 2;
    return h * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

static bool read_row(const source *s, const found *f, const gw_param *p, int64_t r, int64_t out,
                     int64_t in, int64_t head_dim, float *row) {
    int64_t total = s->gguf ? out * p->hf_parts : gw_param_hf_rows(p);
    int64_t at = file_row(s, p, r, out, head_dim);
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

static gw_status missing(const source *s, const char *name, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "weights-missing", (gw_where){.file = s->path},
                      "the tensor '%s' is missing", name);
}

static gw_status not_a_float(const source *s, const found *f, const char *name, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "weights-dtype", (gw_where){.file = s->path},
                      "the tensor '%s' is stored as %s, which is not a float that can be read",
                      name,
                      s->gguf ? gw_ggml_type_name(f->gguf->type) : gw_st_dtype_name(f->st->dtype));
}

static const char *name_in(const source *s, const gw_param *p, int64_t i, char buf[GW_HF_NAME]) {
    return s->gguf ? p->gguf : gw_param_hf_name(p, i, buf);
}

/* Finds tensor i of p and checks its shape. */
static gw_status open_tensor(const source *s, const gw_param *p, int64_t i, found *f,
                             gw_diags *dg) {
    char buf[GW_HF_NAME];
    const char *name = name_in(s, p, i, buf);
    if (!find(s, p, i, f)) return missing(s, name, dg);
    return check_shape(s, f, p, name, dg);
}

/* A file's tensor at a time: most parameters are in one, experts in one each. */
static gw_status read_param(const source *s, gw_exec *x, const gw_model *m, const gw_param *p,
                            gw_diags *dg) {
    gw_tensor t = tensor_of(x, p);
    int64_t out, in, rows = s->gguf ? INT64_MAX : gw_param_rows(p);
    sides(p, &out, &in);
    float *row = gw_mem_alloc(sizeof(float) * (size_t)in);
    gw_held w = held_of(x, p);
    found f = {0};
    int64_t global, local, count, have = -1, open = -1;
    gw_status st = s->gguf || !p->hf_each ? open_tensor(s, p, open = 0, &f, dg) : GW_OK;
    while (st == GW_OK && gw_held_next(&w, &global, &local, &count)) {
        for (int64_t done = 0, n; st == GW_OK && done < count; done += n) {
            int64_t r = (global + done) / in, from = (global + done) % in;
            n = GW_MIN(count - done, in - from);
            if (r / rows != open) st = open_tensor(s, p, open = r / rows, &f, dg);
            char buf[GW_HF_NAME];
            if (st == GW_OK && r != have &&
                !read_row(s, &f, p, r % rows, s->gguf ? out : rows, in, m->head_dim, row))
                st = not_a_float(s, &f, name_in(s, p, open, buf), dg);
            have = r;
            if (st == GW_OK) gw_floats_to(t.dtype, row + from, n, element(&t, local + done));
        }
    }
    gw_mem_free(row);
    return st;
}

/* Buffers that a program has: routers' biases, whole on each rank. */
static gw_status read_buffer(const source *s, gw_exec *x, const gw_buffer *b, gw_diags *dg) {
    gw_vid v = gw_exec_find(x, b->name);
    if (s->gguf || !b->hf || v == GW_NONE || !gw_exec_ptr(x, v)) return GW_OK;
    gw_tensor t = gw_exec_tensor(x, v);
    found f = {.st = find_st(s, b->hf)};
    if (!f.st) return missing(s, b->hf, dg);
    if (f.st->ndim != 1 || f.st->dims[0] != t.elems)
        return gw_fail_at(dg, GW_ERR_FORMAT, "weights-shape", (gw_where){.file = s->path},
                          "the tensor '%s' must have the shape [%lld]", b->hf, (long long)t.elems);
    float *all = gw_mem_alloc(sizeof(float) * (size_t)t.elems);
    bool ok = st_floats(f.st, 0, t.elems, all);
    if (ok) gw_floats_to(t.dtype, all, t.elems, t.data);
    gw_mem_free(all);
    return ok ? GW_OK : not_a_float(s, &f, b->hf, dg);
}

static gw_status read_buffers(const source *s, gw_exec *x, const gw_model *m, gw_diags *dg) {
    gw_arena a = {0};
    gw_buffer *b;
    int n;
    gw_status st = GW_OK;
    gw_model_buffers(m, &a, &b, &n);
    for (int i = 0; i < n; i++) {
        gw_status one = read_buffer(s, x, &b[i], dg);
        if (one != GW_OK) st = one;
    }
    gw_arena_release(&a);
    return st;
}

/* Buffers that old files carry and nothing reads. */
static bool harmless(const char *name) {
    return gw_str_ends(name, ".attn.bias") || gw_str_ends(name, ".attn.masked_bias") ||
           gw_str_ends(name, "rotary_emb.inv_freq") || gw_str_ends(name, "rope_freqs.weight") ||
           gw_str_ends(name, ".e_score_correction_bias");
}

/* Is `name` this one, a star in it being a number? */
static bool is_name(const char *name, const char *want) {
    size_t n = strcspn(want, "*");
    if (strncmp(name, want, n) != 0) return false;
    if (!want[n]) return !name[n];
    size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, want + n + 1) == 0;
}

static bool is_read(const source *s, const char *name, const gw_param *params, int n) {
    for (int i = 0; i < n; i++) {
        const char *want = s->gguf ? params[i].gguf : params[i].hf;
        const char *dot = strchr(want, '.');
        if (is_name(name, want) || (!s->gguf && dot && is_name(name, dot + 1))) return true;
    }
    return false;
}

static bool equal_bytes(const void *a, int64_t na, const void *b, int64_t nb) {
    return na == nb && memcmp(a, b, (size_t)na) == 0;
}

/* Is it the head of a model whose head is its embedding, with the same bits as that? */
static bool is_tied_head(const source *s, const gw_model *m, const gw_param *embed,
                         const char *name) {
    if (!m->tie) return false;
    if (s->gguf) {
        const gw_gguf_tensor *a = gw_gguf_find_tensor(s->gguf, name);
        const gw_gguf_tensor *b = gw_gguf_find_tensor(s->gguf, embed->gguf);
        return strcmp(name, "output.weight") == 0 && b && a->type == b->type &&
               equal_bytes(a->data, a->bytes, b->data, b->bytes);
    }
    const gw_st_tensor *a = find_name(s, name), *b = find_st(s, embed->hf);
    return strcmp(name, "lm_head.weight") == 0 && b && a->dtype == b->dtype &&
           equal_bytes(a->data, a->bytes, b->data, b->bytes);
}

static void warn_unread(const source *s, const gw_model *m, const gw_param *params, int n,
                        gw_diags *dg) {
    enum { NAMED = 20 };
    int64_t count = count_of(s), unread = 0;
    const char *first = NULL;
    gw_str names = {0};
    for (int64_t i = 0; i < count; i++) {
        const char *name = name_at(s, i);
        if (harmless(name) || is_read(s, name, params, n)) continue;
        if (is_tied_head(s, m, &params[0], name)) continue;
        if (!first) first = name;
        if (unread++ < NAMED) gw_str_printf(&names, "%s%s", names.len ? ", " : "", name);
    }
    if (unread) {
        gw_diag *g = gw_diag_add(
            dg, GW_WARNING, GW_OK, "weights-unread", (gw_where){.file = s->path},
            "%lld tensors of the file belong to nothing in this model, the first is '%s'",
            (long long)unread, first);
        gw_diag_detail(dg, g, "%s%s", gw_str_c(&names), unread > NAMED ? ", ..." : "");
    }
    gw_str_release(&names);
}

gw_status gw_weights_load(gw_exec *x, const gw_model *m, const gw_param *params, int n,
                          const char *path, gw_diags *dg) {
    source s = {.path = path};
    if (gw_str_ends(path, ".gguf"))
        GW_TRY(gw_gguf_open(path, &s.gguf, dg));
    else if (gw_torch_is(path))
        GW_TRY(gw_torch_open(path, &s.torch, dg));
    else
        GW_TRY(gw_st_open(path, &s.st, dg));
    gw_status st = GW_OK;
    for (int i = 0; i < n; i++) {
        gw_status one = is_here(x, &params[i]) ? read_param(&s, x, m, &params[i], dg) : GW_OK;
        if (one != GW_OK) st = one;
    }
    if (st == GW_OK) st = read_buffers(&s, x, m, dg);
    if (st == GW_OK) warn_unread(&s, m, params, n, dg);
    gw_gguf_free(s.gguf);
    gw_st_free(s.st);
    gw_torch_free(s.torch);
    return st;
}
