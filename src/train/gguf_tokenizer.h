// SPDX-License-Identifier: Apache-2.0
// The tokenizer that a GGUF file carries in its metadata, read and written.
#ifndef GW_TRAIN_GGUF_TOKENIZER_H
#define GW_TRAIN_GGUF_TOKENIZER_H

#include "data/tokenizer.h" /* gw_tokenizer */
#include "file/gguf.h"      /* gw_gguf_writer */

/* A tokenizer from the metadata of a GGUF file (byte-level BPE kinds). */
GW_WARN_UNUSED gw_status gw_gguf_tokenizer_open(const char *path, gw_tokenizer **out, gw_diags *dg);

/* Puts a tokenizer.json of a byte-level BPE into the metadata of a file that is being written:
 * tokens, their kinds, merges, the name of the split rule. Ids up to `vocab` that are no tokens
 * become unused ones. `path` NULL: the file says that it has no tokenizer. GW_ERR_UNSUPPORTED: it
 * is of another kind, or splits text by a rule that has no name there. */
GW_WARN_UNUSED gw_status gw_gguf_put_tokenizer(gw_gguf_writer *w, const char *path, int64_t vocab,
                                               gw_diags *dg);

#endif
