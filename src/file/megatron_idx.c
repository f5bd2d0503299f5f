// SPDX-License-Identifier: Apache-2.0
// Megatron .bin/.idx: the reader.
//
// The .bin is tokens without any header. The .idx says how to cut them:
//
//    0  "MMIDIDX" and two NULs        9  u64 version 1       17  u8 element type
//   18  u64 S, sequences             26  u64 D, documents + 1
//   34  S x i32 lengths in tokens; S x i64 byte offsets into the .bin; D x i64 indices of
//   sequences, the
//       first 0, the last S: document d is sequences [index d, index d+1); perhaps S x i8 modes
//
// The header's 34 bytes put every i64 off its alignment, so numbers are copied out with memcpy, one
// at a time: that costs nothing beside the page they stand on. Offsets and sums are 64-bit
// everywhere: a .bin past 2^31 tokens or bytes is the ordinary case.
//
// The whole index is checked once at opening (S + D numbers, at memory speed), so look-ups later
// need no checks: a sequence that passed lies inside the .bin. Token ids themselves are checked as
// they are read, since their number is what makes such a file large.
#include "file/megatron_idx.h" /* this module's contract */

#include <string.h>

#include "base/io.h"    /* gw_mapping */
#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_str_ends */

enum { HEADER = 34 };

struct gw_midx {
    gw_arena arena;
    const char *idx_path, *bin_path;
    gw_mapping idx, bin;
    bool borrowed; /* idx is the caller's; there is no bin but its size */
    gw_midx_dtype dtype;
    int elem_bytes;
    int64_t nseqs, ndocs, ntokens;
    const uint8_t *lengths, *offsets, *docs, *modes; /* modes NULL when the file has none */
};

static int64_t i64_at(const uint8_t *base, int64_t i) {
    int64_t x;
    memcpy(&x, base + 8 * i, sizeof x);
    return x;
}

static int32_t i32_at(const uint8_t *base, int64_t i) {
    int32_t x;
    memcpy(&x, base + 4 * i, sizeof x);
    return x;
}

static gw_status bad(const gw_midx *m, gw_diags *dg, const char *what) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "megatron-format", (gw_where){.file = m->idx_path}, "%s",
                      what);
}

static int elem_bytes(uint8_t code) {
    static const int bytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
    return code < GW_COUNT(bytes) ? bytes[code] : 0;
}

static gw_status read_dtype(gw_midx *m, uint8_t code, gw_diags *dg) {
    m->elem_bytes = elem_bytes(code);
    if (m->elem_bytes == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "megatron-format", (gw_where){.file = m->idx_path},
                          "element type %d is not one of the format's", code);
    if (code == GW_MIDX_F32 || code == GW_MIDX_F64)
        return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "megatron-dtype", (gw_where){.file = m->idx_path},
                          "the elements are floating-point numbers, not tokens");
    m->dtype = (gw_midx_dtype)code;
    return GW_OK;
}

/* Header, counts and the place of each array; the file must hold them exactly. */
static gw_status read_header(gw_midx *m, gw_diags *dg) {
    const uint8_t *p = m->idx.data;
    if (m->idx.bytes < HEADER) return bad(m, dg, "the file is shorter than its header");
    if (memcmp(p, "MMIDIDX\0", 9) != 0) return bad(m, dg, "this is not a Megatron .idx file");
    if (i64_at(p + 9, 0) != 1) return bad(m, dg, "only version 1 of the format is known");
    GW_TRY(read_dtype(m, p[17], dg));
    int64_t s = i64_at(p + 18, 0), d = i64_at(p + 26, 0), rest = m->idx.bytes - HEADER;
    if (s < 0 || d < 1 || s > rest / 12 || d > (rest - 12 * s) / 8)
        return bad(m, dg, "it is too short for the sequences and documents it announces");
    m->nseqs = s;
    m->ndocs = d - 1;
    m->lengths = p + HEADER;
    m->offsets = m->lengths + 4 * s;
    m->docs = m->offsets + 8 * s;
    rest -= 12 * s + 8 * d;
    if (rest == s && s > 0) m->modes = m->docs + 8 * d;
    if (rest != 0 && !m->modes) return bad(m, dg, "it holds bytes after its last array");
    return GW_OK;
}

static gw_status check_sequences(gw_midx *m, gw_diags *dg) {
    for (int64_t i = 0; i < m->nseqs; i++) {
        int64_t len = i32_at(m->lengths, i), at = i64_at(m->offsets, i);
        if (len < 0 || at < 0 || at > m->bin.bytes || len > (m->bin.bytes - at) / m->elem_bytes)
            return gw_fail_at(
                dg, GW_ERR_FORMAT, "megatron-format", (gw_where){.file = m->idx_path},
                "sequence %lld (%lld tokens at byte %lld) does not lie inside '%s' of "
                "%lld bytes",
                (long long)i, (long long)len, (long long)at, m->bin_path, (long long)m->bin.bytes);
        if (__builtin_add_overflow(m->ntokens, len, &m->ntokens))
            return bad(m, dg, "its tokens exceed 64 bits in number");
    }
    return GW_OK;
}

static gw_status check_documents(const gw_midx *m, gw_diags *dg) {
    int64_t before = 0;
    if (i64_at(m->docs, 0) != 0)
        return bad(m, dg, "its first document does not start at sequence 0");
    for (int64_t d = 1; d <= m->ndocs; d++) {
        int64_t at = i64_at(m->docs, d);
        if (at < before || at > m->nseqs)
            return gw_fail_at(
                dg, GW_ERR_FORMAT, "megatron-format", (gw_where){.file = m->idx_path},
                "document %lld ends at sequence %lld, before it starts or past the end",
                (long long)(d - 1), (long long)at);
        before = at;
    }
    if (before != m->nseqs) return bad(m, dg, "its documents do not cover all sequences");
    return GW_OK;
}

static gw_status check_index(gw_midx *m, gw_diags *dg) {
    GW_TRY(read_header(m, dg));
    GW_TRY(check_sequences(m, dg));
    return check_documents(m, dg);
}

static gw_status open_pair(gw_midx *m, gw_diags *dg) {
    GW_TRY(gw_map_open(&m->idx, m->idx_path, dg));
    GW_TRY(gw_map_open(&m->bin, m->bin_path, dg));
    return check_index(m, dg);
}

gw_status gw_midx_open(const char *prefix, gw_midx **out, gw_diags *dg) {
    *out = NULL;
    gw_midx *m = gw_mem_zalloc(sizeof *m);
    gw_arena_init(&m->arena);
    size_t n = strlen(prefix);
    if (gw_str_ends(prefix, ".idx") || gw_str_ends(prefix, ".bin")) n -= 4;
    m->idx_path = gw_arena_printf(&m->arena, "%.*s.idx", (int)n, prefix);
    m->bin_path = gw_arena_printf(&m->arena, "%.*s.bin", (int)n, prefix);
    gw_status s = open_pair(m, dg);
    if (s != GW_OK) {
        gw_midx_free(m);
        return s;
    }
    *out = m;
    return GW_OK;
}

gw_status gw_midx_open_index(const void *idx, int64_t idx_bytes, int64_t bin_bytes,
                             const char *name, gw_midx **out, gw_diags *dg) {
    gw_midx *m = gw_mem_zalloc(sizeof *m);
    gw_arena_init(&m->arena);
    m->borrowed = true;
    m->idx_path = gw_arena_strdup(&m->arena, name);
    m->bin_path = "the .bin";
    m->idx = (gw_mapping){idx, idx_bytes};
    m->bin.bytes = bin_bytes;
    gw_status s = check_index(m, dg);
    *out = s == GW_OK ? m : NULL;
    if (s != GW_OK) gw_midx_free(m);
    return s;
}

void gw_midx_free(gw_midx *m) {
    if (!m) return;
    if (!m->borrowed) {
        gw_map_release(&m->idx);
        gw_map_release(&m->bin);
    }
    gw_arena_release(&m->arena);
    gw_mem_free(m);
}

gw_midx_dtype gw_midx_elem_type(const gw_midx *m) { return m->dtype; }
int gw_midx_elem_bytes(const gw_midx *m) { return m->elem_bytes; }
int64_t gw_midx_nseqs(const gw_midx *m) { return m->nseqs; }
int64_t gw_midx_ndocs(const gw_midx *m) { return m->ndocs; }
int64_t gw_midx_ntokens(const gw_midx *m) { return m->ntokens; }
bool gw_midx_has_modes(const gw_midx *m) { return m->modes != NULL; }

int64_t gw_midx_seq_tokens(const gw_midx *m, int64_t i) {
    GW_ASSERT(i >= 0 && i < m->nseqs);
    return i32_at(m->lengths, i);
}

int64_t gw_midx_seq_offset(const gw_midx *m, int64_t i) {
    GW_ASSERT(i >= 0 && i < m->nseqs);
    return i64_at(m->offsets, i);
}

void gw_midx_doc(const gw_midx *m, int64_t d, int64_t *first, int64_t *n) {
    GW_ASSERT(d >= 0 && d < m->ndocs);
    *first = i64_at(m->docs, d);
    *n = i64_at(m->docs, d + 1) - *first;
}

int gw_midx_seq_mode(const gw_midx *m, int64_t i) {
    GW_ASSERT(i >= 0 && i < m->nseqs);
    return m->modes ? (int8_t)m->modes[i] : 0;
}

/* One loop for each element type: copies n elements to `out` and remembers the first that is no
 * token id. */
#define WIDEN(type)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type x;                                                                                    \
        memcpy(&x, p + (int64_t)sizeof x * i, sizeof x);                                           \
        out[i] = (uint32_t)x;                                                                      \
        if ((int64_t)x != (int64_t)out[i] && failed < 0) failed = i;                               \
    }

/* The index of the first element that is negative or past 32 bits, or -1. */
static int64_t widen(gw_midx_dtype t, const uint8_t *p, int64_t n, uint32_t *out) {
    int64_t failed = -1;
    switch (t) {
    case GW_MIDX_U8: WIDEN(uint8_t) break;
    case GW_MIDX_I8: WIDEN(int8_t) break;
    case GW_MIDX_U16: WIDEN(uint16_t) break;
    case GW_MIDX_I16: WIDEN(int16_t) break;
    case GW_MIDX_I32: WIDEN(int32_t) break;
    case GW_MIDX_I64: WIDEN(int64_t) break;
    case GW_MIDX_F32:
    case GW_MIDX_F64: break; /* refused at opening */
    }
    return failed;
}

gw_status gw_midx_read(const gw_midx *m, int64_t i, int64_t first, int64_t n, uint32_t *out,
                       gw_diags *dg) {
    GW_ASSERT(i >= 0 && i < m->nseqs && !m->borrowed);
    int64_t len = i32_at(m->lengths, i);
    GW_ASSERT(first >= 0 && n >= 0 && first <= len && n <= len - first);
    const uint8_t *p = m->bin.data + i64_at(m->offsets, i) + first * m->elem_bytes;
    return gw_midx_decode(m, i, first, p, n, out, dg);
}

gw_status gw_midx_decode(const gw_midx *m, int64_t i, int64_t first, const uint8_t *p, int64_t n,
                         uint32_t *out, gw_diags *dg) {
    int64_t failed = widen(m->dtype, p, n, out);
    if (failed < 0) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "megatron-token", (gw_where){.file = m->bin_path},
                      "token %lld of sequence %lld is negative or past 32 bits",
                      (long long)(first + failed), (long long)i);
}
