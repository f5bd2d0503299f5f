// SPDX-License-Identifier: Apache-2.0
// Megatron's token files: PREFIX.bin (raw tokens) and PREFIX.idx (lengths, byte offsets,
// documents).
#ifndef GW_FILE_MEGATRON_IDX_H
#define GW_FILE_MEGATRON_IDX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* Element types with the numbers of the format. Tokens are whole numbers: F64 and F32 are refused.
 */
typedef enum gw_midx_dtype {
    GW_MIDX_U8 = 1,
    GW_MIDX_I8 = 2,
    GW_MIDX_I16 = 3,
    GW_MIDX_I32 = 4,
    GW_MIDX_I64 = 5,
    GW_MIDX_F64 = 6,
    GW_MIDX_F32 = 7,
    GW_MIDX_U16 = 8
} gw_midx_dtype;

typedef struct gw_midx gw_midx;

/* Opens prefix.idx and prefix.bin (a path that ends in .idx or .bin names the same pair). The index
 * is checked whole: every sequence lies inside the .bin, lengths are not negative, document indices
 * start at 0, never fall and end at the number of sequences. Both files are mapped; offsets are
 * 64-bit throughout. */
GW_WARN_UNUSED gw_status gw_midx_open(const char *prefix, gw_midx **out, gw_diags *dg);
void gw_midx_free(gw_midx *m);

/* The same from the bytes of an .idx, borrowed, whose .bin of `bin_bytes` is elsewhere: everything
 * but gw_midx_read can be asked of it. `name` stands for the .idx in errors. */
GW_WARN_UNUSED gw_status gw_midx_open_index(const void *idx, int64_t idx_bytes, int64_t bin_bytes,
                                            const char *name, gw_midx **out, gw_diags *dg);

gw_midx_dtype gw_midx_elem_type(const gw_midx *m);
int gw_midx_elem_bytes(const gw_midx *m);
int64_t gw_midx_nseqs(const gw_midx *m);
int64_t gw_midx_ndocs(const gw_midx *m);
int64_t gw_midx_ntokens(const gw_midx *m);               /* sum of all lengths */
int64_t gw_midx_seq_tokens(const gw_midx *m, int64_t i); /* i in [0, nseqs) */
int64_t gw_midx_seq_offset(const gw_midx *m, int64_t i); /* bytes into the .bin */
/* Sequences [*first, *first + *n) make document d. */
void gw_midx_doc(const gw_midx *m, int64_t d, int64_t *first, int64_t *n);
bool gw_midx_has_modes(const gw_midx *m);
int gw_midx_seq_mode(const gw_midx *m, int64_t i); /* 0 when the file has none */

/* Tokens [first, first + n) of sequence i, which must exist. A negative id, or one past 32 bits, is
 * an error (a damaged file). Safe from several threads. */
GW_WARN_UNUSED gw_status gw_midx_read(const gw_midx *m, int64_t i, int64_t first, int64_t n,
                                      uint32_t *out, gw_diags *dg);

/* The same where tokens [first, first + n) of sequence i are at `bytes`. */
GW_WARN_UNUSED gw_status gw_midx_decode(const gw_midx *m, int64_t i, int64_t first,
                                        const uint8_t *bytes, int64_t n, uint32_t *out,
                                        gw_diags *dg);

/* Streaming writer: add sequences, end each document, finish. Both files are written to temporary
 * names; finish syncs them and renames so that a reader finds the old pair, no .idx, or the new
 * pair, never a mix. Element type: u16 if vocab_size < 65500, else i32. */
typedef struct gw_midx_writer gw_midx_writer;

GW_WARN_UNUSED gw_status gw_midx_writer_new(const char *prefix, int64_t vocab_size,
                                            gw_midx_writer **out, gw_diags *dg);
/* Unless finished, removes the temporary files. */
void gw_midx_writer_free(gw_midx_writer *w);
/* Appends one sequence (n >= 0, at most 2^31 - 1 tokens) to the current document. An id that is not
 * below vocab_size is refused and nothing is written. */
GW_WARN_UNUSED gw_status gw_midx_writer_seq(gw_midx_writer *w, const uint32_t *tokens, int64_t n,
                                            gw_diags *dg);
void gw_midx_writer_end_doc(gw_midx_writer *w);
/* One document of one sequence. */
GW_WARN_UNUSED gw_status gw_midx_writer_doc(gw_midx_writer *w, const uint32_t *tokens, int64_t n,
                                            gw_diags *dg);
int64_t gw_midx_writer_ntokens(const gw_midx_writer *w);
/* Ends an open document, then commits. */
GW_WARN_UNUSED gw_status gw_midx_writer_finish(gw_midx_writer *w, gw_diags *dg);

#endif
