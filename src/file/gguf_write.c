// SPDX-License-Identifier: Apache-2.0
// Writing GGUF, version 3, little-endian.
//
// The file is a head (counts, key-value pairs, a line for each tensor) and the tensors, each from a
// multiple of 32 bytes on. The head is gathered in memory; offsets follow from the declared shapes,
// so that data can be streamed. Source: the GGUF specification of ggml; Q8_0 as ggml's reference
// quantises it: 32 values share d = max|x| / 127 as float16, a value is round(x / d).
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"    /* gw_io_create_beside, gw_fd_write_all */
#include "base/map.h"   /* GW_VEC */
#include "base/num.h"   /* gw_fp16_from_f32 */
#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_str */
#include "file/gguf.h"

enum { ALIGNMENT = 32, BUFFER = 1 << 20 };

struct gw_gguf_writer {
    gw_arena a;
    const char *path;
    char *temporary;
    int fd;
    gw_str values, infos, pending;
    int64_t nvalues, ntensors;
    int64_t end;          /* of the data declared so far */
    GW_VEC(int64_t) ends; /* of each tensor, without padding */
    int64_t at;           /* bytes of data put, padding included */
    int64_t current;      /* the tensor being put */
};

static void number(gw_str *s, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) gw_str_add_char(s, (char)(uint8_t)(x >> (8 * i)));
}

static void text(gw_str *s, const char *t, int64_t n) {
    number(s, (uint64_t)n, 8);
    gw_str_add_n(s, t, (size_t)n);
}

static gw_str *value(gw_gguf_writer *w, const char *key, gw_gguf_kind kind) {
    text(&w->values, key, (int64_t)strlen(key));
    number(&w->values, kind, 4);
    w->nvalues++;
    return &w->values;
}

gw_gguf_writer *gw_gguf_writer_new(const char *path) {
    gw_gguf_writer *w = gw_mem_zalloc(sizeof *w);
    w->path = gw_arena_strdup(&w->a, path);
    w->fd = -1;
    return w;
}

void gw_gguf_writer_free(gw_gguf_writer *w) {
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        (void)unlink(w->temporary);
    }
    gw_str_release(&w->values);
    gw_str_release(&w->infos);
    gw_str_release(&w->pending);
    gw_vec_release(&w->ends);
    gw_arena_release(&w->a);
    gw_mem_free(w);
}

void gw_gguf_writer_str(gw_gguf_writer *w, const char *key, const char *v) {
    text(value(w, key, GW_GGUF_STRING), v, (int64_t)strlen(v));
}

void gw_gguf_writer_u32(gw_gguf_writer *w, const char *key, int64_t v) {
    number(value(w, key, GW_GGUF_U32), (uint64_t)v, 4);
}

static void real(gw_str *s, double v) {
    float x = (float)v;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    number(s, bits, 4);
}

void gw_gguf_writer_f32(gw_gguf_writer *w, const char *key, double v) {
    real(value(w, key, GW_GGUF_F32), v);
}

void gw_gguf_writer_bool(gw_gguf_writer *w, const char *key, bool v) {
    number(value(w, key, GW_GGUF_BOOL), v, 1);
}

static gw_str *array(gw_gguf_writer *w, const char *key, gw_gguf_kind elem, int64_t n) {
    gw_str *s = value(w, key, GW_GGUF_ARRAY);
    number(s, elem, 4);
    number(s, (uint64_t)n, 8);
    return s;
}

void gw_gguf_writer_strs(gw_gguf_writer *w, const char *key, const gw_gguf_str *v, int64_t n) {
    gw_str *s = array(w, key, GW_GGUF_STRING, n);
    for (int64_t i = 0; i < n; i++) text(s, v[i].data, v[i].len);
}

void gw_gguf_writer_i32s(gw_gguf_writer *w, const char *key, const int32_t *v, int64_t n) {
    gw_str *s = array(w, key, GW_GGUF_I32, n);
    for (int64_t i = 0; i < n; i++) number(s, (uint64_t)(uint32_t)v[i], 4);
}

static int64_t aligned(int64_t x) { return (x + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void gw_gguf_writer_declare(gw_gguf_writer *w, const char *name, gw_ggml_type type, int ndim,
                            const int64_t *dims) {
    int64_t elems = 1, block = gw_ggml_block_elems(type);
    GW_ASSERT(ndim >= 1 && ndim <= 4 && dims[ndim - 1] % block == 0);
    text(&w->infos, name, (int64_t)strlen(name));
    number(&w->infos, (uint64_t)ndim, 4);
    for (int i = ndim - 1; i >= 0; i--) {
        number(&w->infos, (uint64_t)dims[i], 8);
        elems *= dims[i];
    }
    number(&w->infos, type, 4);
    number(&w->infos, (uint64_t)w->end, 8);
    int64_t bytes = elems / block * gw_ggml_block_bytes(type);
    gw_vec_push(&w->ends, w->end + bytes);
    w->end = aligned(w->end + bytes);
    w->ntensors++;
}

static gw_status flush(gw_gguf_writer *w, gw_diags *dg) {
    gw_status st = gw_fd_write_all(w->fd, w->pending.data, (int64_t)w->pending.len, w->path, dg);
    gw_str_clear(&w->pending);
    return st;
}

gw_status gw_gguf_writer_begin(gw_gguf_writer *w, gw_diags *dg) {
    w->fd = gw_io_create_beside(&w->a, w->path, &w->temporary);
    if (w->fd < 0) return gw_io_fail(dg, "file-create", "create", w->path, errno);
    gw_str *s = &w->pending;
    gw_str_add_n(s, "GGUF", 4);
    number(s, 3, 4);
    number(s, (uint64_t)w->ntensors, 8);
    number(s, (uint64_t)w->nvalues, 8);
    gw_str_add_n(s, w->values.data, w->values.len);
    gw_str_add_n(s, w->infos.data, w->infos.len);
    while (s->len % ALIGNMENT) gw_str_add_char(s, 0);
    return flush(w, dg);
}

gw_status gw_gguf_writer_put(gw_gguf_writer *w, const void *bytes, int64_t n, gw_diags *dg) {
    GW_ASSERT(w->current < w->ntensors && w->at + n <= w->ends.items[w->current]);
    gw_str_add_n(&w->pending, bytes, (size_t)n);
    w->at += n;
    if (w->at == w->ends.items[w->current]) {
        for (w->current++; w->at % ALIGNMENT; w->at++) gw_str_add_char(&w->pending, 0);
    }
    return w->pending.len < BUFFER ? GW_OK : flush(w, dg);
}

static const char *folder_of(gw_gguf_writer *w) {
    const char *slash = strrchr(w->path, '/');
    if (!slash) return ".";
    return slash == w->path ? "/" : gw_arena_strndup(&w->a, w->path, (size_t)(slash - w->path));
}

gw_status gw_gguf_writer_finish(gw_gguf_writer *w, gw_diags *dg) {
    GW_ASSERT(w->current == w->ntensors);
    GW_TRY(flush(w, dg));
    if (fsync(w->fd) != 0) return gw_io_fail(dg, "file-write", "write", w->path, errno);
    if (rename(w->temporary, w->path) != 0)
        return gw_io_fail(dg, "file-write", "rename the new", w->path, errno);
    close(w->fd);
    w->fd = -1;
    return gw_dir_sync(folder_of(w), dg);
}

/* ---- storage types ---- */

static void to_q8(const float *x, uint8_t *out) {
    float most = 0;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0;
    gw_fp16 half = gw_fp16_from_f32(d);
    memcpy(out, &half, 2);
    for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

void gw_ggml_quantise(gw_ggml_type t, const float *src, int64_t n, void *dst) {
    GW_ASSERT(t == GW_GGML_F32 || t == GW_GGML_F16 || t == GW_GGML_BF16 || t == GW_GGML_Q8_0);
    if (t == GW_GGML_F32) memcpy(dst, src, (size_t)n * sizeof *src);
    if (t == GW_GGML_F16)
        for (int64_t i = 0; i < n; i++) ((gw_fp16 *)dst)[i] = gw_fp16_from_f32(src[i]);
    if (t == GW_GGML_BF16)
        for (int64_t i = 0; i < n; i++) ((gw_bf16 *)dst)[i] = gw_bf16_from_f32(src[i]);
    if (t == GW_GGML_Q8_0)
        for (int64_t i = 0; i < n / 32; i++) to_q8(src + 32 * i, (uint8_t *)dst + 34 * i);
}
