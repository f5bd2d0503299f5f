// SPDX-License-Identifier: Apache-2.0
// Writes small GGUF files for tests: key-values, tensor descriptions, then data in the order
// declared.
#ifndef GW_TESTS_FILE_GGUF_MAKER_H
#define GW_TESTS_FILE_GGUF_MAKER_H

#include <stdint.h>

#include "base/str.h"  /* gw_str */
#include "file/gguf.h" /* gw_gguf_kind, gw_ggml_type */

typedef struct gguf_maker {
    gw_str values, infos, data;
    uint64_t nvalues, ntensors;
    uint32_t version;
    int64_t align; /* 0: 32, not written */
} gguf_maker;

void maker_u32(gguf_maker *m, const char *key, uint32_t x);
void maker_f32(gguf_maker *m, const char *key, float x);
void maker_str(gguf_maker *m, const char *key, const char *x);
/* Any value: `raw` is everything after the kind. */
void maker_raw(gguf_maker *m, const char *key, gw_gguf_kind kind, const void *raw, size_t n);
void maker_strs(gguf_maker *m, const char *key, const char *const *strs, int n);
/* dims outermost first. */
void maker_tensor(gguf_maker *m, const char *name, gw_ggml_type type, int ndim, const int64_t *dims,
                  const void *data, size_t bytes);
/* Writes the file and empties the maker. */
void maker_finish(gguf_maker *m, const char *path);

#endif
