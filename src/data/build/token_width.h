// SPDX-License-Identifier: Apache-2.0
// How wide a token is on disk.
#ifndef GW_DATA_BUILD_TOKEN_WIDTH_H
#define GW_DATA_BUILD_TOKEN_WIDTH_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

/* 2 bytes if the vocabulary has fewer than 65,500 ids (the rule of Megatron), else 4. */
int gw_token_width(int64_t vocab_size);
/* Appends ids in little-endian words of `width` bytes. An id that is negative, not below vocab_size
 * or wider than a word is GW_ERR_FORMAT (data-token-width), and nothing is appended: a wrapped id
 * could not be told from a real one later. */
GW_WARN_UNUSED gw_status gw_tokens_store(const int32_t *ids, int64_t n, int width,
                                         int64_t vocab_size, gw_str *out, gw_diags *dg);
/* Word i of stored tokens. */
static inline uint32_t gw_token_at(const uint8_t *stored, int width, int64_t i) {
    const uint8_t *p = stored + i * width;
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#endif
