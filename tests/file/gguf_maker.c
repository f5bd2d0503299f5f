// SPDX-License-Identifier: Apache-2.0
// A minimal GGUF writer, after the format's description: strings are a 64-bit length and bytes, a
// tensor is name, rank, dimensions innermost first, type and offset, data is aligned.
#include "gguf_maker.h"

#include <string.h>

#include "damage.h" /* put_file */

static void add_u32(gw_str *s, uint32_t x) { gw_str_add_n(s, &x, sizeof x); }
static void add_u64(gw_str *s, uint64_t x) { gw_str_add_n(s, &x, sizeof x); }

static void add_string(gw_str *s, const char *text) {
    add_u64(s, strlen(text));
    gw_str_add(s, text);
}

static void pad(gw_str *s, int64_t align) {
    while ((int64_t)s->len % align != 0) gw_str_add_char(s, '\0');
}

void maker_raw(gguf_maker *m, const char *key, gw_gguf_kind kind, const void *raw, size_t n) {
    add_string(&m->values, key);
    add_u32(&m->values, (uint32_t)kind);
    gw_str_add_n(&m->values, raw, n);
    m->nvalues++;
}

void maker_u32(gguf_maker *m, const char *key, uint32_t x) {
    maker_raw(m, key, GW_GGUF_U32, &x, sizeof x);
}

void maker_f32(gguf_maker *m, const char *key, float x) {
    maker_raw(m, key, GW_GGUF_F32, &x, sizeof x);
}

void maker_str(gguf_maker *m, const char *key, const char *x) {
    gw_str s = {0};
    add_string(&s, x);
    maker_raw(m, key, GW_GGUF_STRING, s.data, s.len);
    gw_str_release(&s);
}

void maker_strs(gguf_maker *m, const char *key, const char *const *strs, int n) {
    gw_str s = {0};
    add_u32(&s, GW_GGUF_STRING);
    add_u64(&s, (uint64_t)n);
    for (int i = 0; i < n; i++) add_string(&s, strs[i]);
    maker_raw(m, key, GW_GGUF_ARRAY, s.data, s.len);
    gw_str_release(&s);
}

void maker_tensor(gguf_maker *m, const char *name, gw_ggml_type type, int ndim, const int64_t *dims,
                  const void *data, size_t bytes) {
    pad(&m->data, m->align ? m->align : 32);
    add_string(&m->infos, name);
    add_u32(&m->infos, (uint32_t)ndim);
    for (int i = ndim - 1; i >= 0; i--) add_u64(&m->infos, (uint64_t)dims[i]);
    add_u32(&m->infos, (uint32_t)type);
    add_u64(&m->infos, m->data.len);
    gw_str_add_n(&m->data, data, bytes);
    m->ntensors++;
}

void maker_finish(gguf_maker *m, const char *path) {
    gw_str s = {0};
    gw_str_add(&s, "GGUF");
    add_u32(&s, m->version ? m->version : 3);
    add_u64(&s, m->ntensors);
    add_u64(&s, m->nvalues);
    gw_str_add_n(&s, m->values.data ? m->values.data : "", m->values.len);
    gw_str_add_n(&s, m->infos.data ? m->infos.data : "", m->infos.len);
    if (m->ntensors > 0) pad(&s, m->align ? m->align : 32);
    gw_str_add_n(&s, m->data.data ? m->data.data : "", m->data.len);
    put_file(path, s.data, s.len);
    gw_str_release(&s);
    gw_str_release(&m->values);
    gw_str_release(&m->infos);
    gw_str_release(&m->data);
    *m = (gguf_maker){0};
}
