// SPDX-License-Identifier: Apache-2.0
// How wide a token is on disk.
//
// Two bytes halve the bytes that a training job reads, and hold only vocabularies below 65,536. The
// width follows from the size of the vocabulary, never from the ids that happen to occur, so that
// all shards of a build have one. Builders that wrote 16-bit words for a vocabulary of 128,000
// produced data that looked well and was not; here every id is looked at before it is narrowed.
#include "data/build/token_width.h" /* this module's contract */

int gw_token_width(int64_t vocab_size) { return vocab_size < 65500 ? 2 : 4; }

static gw_status refuse(int32_t id, int64_t place, int width, int64_t vocab_size, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-token-width", (gw_where){0},
                             "token id %d at place %lld does not fit: the vocabulary has %lld ids, "
                             "a token on disk %d bytes",
                             (int)id, (long long)place, (long long)vocab_size, width);
    gw_diag_hint(dg, g, "the tokenizer gave an id that it does not have");
    return GW_ERR_FORMAT;
}

gw_status gw_tokens_store(const int32_t *ids, int64_t n, int width, int64_t vocab_size, gw_str *out,
                          gw_diags *dg) {
    int64_t most = width == 2 ? GW_MIN(vocab_size, 65536) : vocab_size;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= most) return refuse(ids[i], i, width, vocab_size, dg);
    gw_str_reserve(out, (size_t)(n * width));
    uint8_t *to = (uint8_t *)out->data + out->len;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < width; k++) *to++ = (uint8_t)((uint32_t)ids[i] >> (8 * k));
    out->len += (size_t)(n * width);
    if (out->data) out->data[out->len] = 0;
    return GW_OK;
}
