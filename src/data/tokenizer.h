// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, exactly as the public implementations do it.
//
// A tokenizer is immutable once open: any number of threads may encode and decode with one, each
// with its own scratch. Input is bytes, not text: valid UTF-8 is treated as the model's own library
// treats it; each byte that is not part of a valid UTF-8 sequence counts as one character that is
// neither letter, number nor space, is never changed by a normaliser, and comes back from decoding
// as it was. So for a byte-level tokenizer without a normaliser decode(encode(x)) == x for every x.
#ifndef GW_DATA_TOKENIZER_H
#define GW_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */
#include "base/str.h"  /* gw_str */

typedef struct gw_tokenizer gw_tokenizer;
typedef struct gw_tok_scratch gw_tok_scratch;

/* A growing list of ids. Zero-initialised is empty; gw_vec_push and gw_vec_release work on it. */
typedef struct gw_ids {
    int32_t *items;
    int64_t count, cap;
} gw_ids;
void gw_ids_release(gw_ids *ids);

/* A special token of a .tiktoken file, which holds none itself. id -1: the next free one. */
typedef struct gw_tok_special {
    const char *content;
    int32_t id;
} gw_tok_special;

/* Zero-initialised options are the defaults. */
typedef struct gw_tokenizer_options {
    /* How a .tiktoken file splits text: "gpt2", "cl100k", "o200k", "llama3" or "qwen2". NULL: known
     * from the number of ranks of the published files or from the file's name, else refused. */
    const char *pattern;
    /* Specials of a .tiktoken file. NULL: those of the published file with that many ranks, if it
     * is one, else none. */
    const gw_tok_special *specials;
    int nspecials;
    /* Unicode tables by which text is split: 13 to 17 (15.1 counts as 16). 0: 16, which current
     * releases of Hugging Face tokenizers and tiktoken have; models of 2022 to 2024 were trained
     * with 14. */
    int unicode_version;
} gw_tokenizer_options;

/* Opens `spec`: a tokenizer.json, a .tiktoken file, a directory that holds a tokenizer.json (its
 * tokenizer_config.json, if any, names bos and eos), or "bytes": ids 0..255 are the bytes, 256 is
 * <|endoftext|>. `options` may be NULL. Anything in a file that is not understood is refused with
 * the file and the JSON path. *out is NULL on failure. */
GW_WARN_UNUSED gw_status gw_tokenizer_open(const char *spec, const gw_tokenizer_options *options,
                                           gw_tokenizer **out, gw_diags *dg);
/* The same from bytes already in memory; `name` stands in messages. */
GW_WARN_UNUSED gw_status gw_tokenizer_open_json(const char *name, const void *bytes, size_t n,
                                                const gw_tokenizer_options *options,
                                                gw_tokenizer **out, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_tokenizer_open_tiktoken(const char *name, const void *bytes, size_t n,
                                                    const gw_tokenizer_options *options,
                                                    gw_tokenizer **out, gw_diags *dg);
void gw_tokenizer_free(gw_tokenizer *t);

/* One past the largest id, added tokens included. May hold ids with no token. */
int32_t gw_tokenizer_vocab_size(const gw_tokenizer *t);
/* The version of the Unicode tables by which text is split. It is part of the hash. */
int gw_tokenizer_unicode(const gw_tokenizer *t);
/* -1 if the tokenizer has none. eos ends a document. */
int32_t gw_tokenizer_bos(const gw_tokenizer *t);
int32_t gw_tokenizer_eos(const gw_tokenizer *t);
/* The id of an added token (special or not) by its content, or -1. */
int32_t gw_tokenizer_special_id(const gw_tokenizer *t, const char *content);
/* The id of any token by its content as the file spells it (a byte-level space is U+0120), or -1.
 */
int32_t gw_tokenizer_token_id(const gw_tokenizer *t, const char *content, size_t n);
bool gw_tokenizer_is_special(const gw_tokenizer *t, int32_t id);
/* The bytes that `id` decodes to in the middle of a text; NULL and 0 for an id without a token. */
const uint8_t *gw_tokenizer_token_bytes(const gw_tokenizer *t, int32_t id, size_t *n);
/* Identifies what the tokenizer does: equal hashes give equal ids for every input. */
gw_hash128 gw_tokenizer_hash(const gw_tokenizer *t);
/* "tokenizer.json BPE, 128256 tokens, llama3 splitter, Unicode 16" for people. Borrowed. */
const char *gw_tokenizer_describe(const gw_tokenizer *t);
/* Bytes held, tables included. */
int64_t gw_tokenizer_bytes(const gw_tokenizer *t);

/* Working memory of one thread: buffers that grow to the largest text seen, and caches of recent
 * words, which grow with the number of words to 90 MB. Past that, memory does not grow with the
 * number of texts. */
gw_tok_scratch *gw_tok_scratch_new(void);
void gw_tok_scratch_free(gw_tok_scratch *s);
/* Elementary merge operations (pair look-ups and heap moves) counted since new: the measure by
 * which tests hold encoding to n log n. */
int64_t gw_tok_scratch_ops(const gw_tok_scratch *s);
/* Bytes held. */
int64_t gw_tok_scratch_bytes(const gw_tok_scratch *s);
/* Texts of special tokens met since new, whether they became ids or stayed text. */
int64_t gw_tok_scratch_specials(const gw_tok_scratch *s);

enum {
    /* The text of a special token becomes its id. Without it, such text is ordinary text: what a
     * data builder needs, since web text quotes "<|endoftext|>". */
    GW_ENCODE_SPECIALS = 1u,
    /* Adds what the post-processor's template adds (bos, eos). */
    GW_ENCODE_TEMPLATE = 2u,
};

/* Appends the ids of text[0..n) to `out`. O(n log n) for every input. Errors: a text over 2^31-2
 * bytes, a user regex that exceeds its matching limit, text normalised past that size. On error
 * `out` may hold a part of the ids. */
GW_WARN_UNUSED gw_status gw_tokenizer_encode(const gw_tokenizer *t, gw_tok_scratch *s,
                                             const void *text, size_t n, unsigned flags,
                                             gw_ids *out, gw_diags *dg);

/* One text of a batch, borrowed. */
typedef struct gw_tok_text {
    const void *bytes;
    size_t n;
} gw_tok_text;

typedef struct gw_tok_report {
    int64_t bytes, tokens;
    int64_t specials; /* texts of special tokens met */
    int threads;      /* that worked */
} gw_tok_report;

/* The ids of many texts, one text after the other, over `threads` threads (0: one for each core
 * this process may use). ends[i] becomes where the ids of text i end in `out`, from its count at
 * the call on. The result is that of gw_tokenizer_encode on each, whatever `threads` is: long texts
 * are shared between threads where that is sure to change nothing. Errors name the text's index.
 * `report` may be NULL. Memory: the ids twice, and a scratch a thread. */
GW_WARN_UNUSED gw_status gw_tokenizer_encode_batch(const gw_tokenizer *t, const gw_tok_text *texts,
                                                   int64_t ntexts, unsigned flags, int threads,
                                                   gw_ids *out, int64_t *ends,
                                                   gw_tok_report *report, gw_diags *dg);

/* Appends the bytes of ids[0..n) to `out`, exactly, whether or not they are valid UTF-8.
 * skip_special leaves special tokens out. An id outside [0, vocab_size) is an error naming its
 * index; an id in range without a token gives nothing. */
GW_WARN_UNUSED gw_status gw_tokenizer_decode(const gw_tokenizer *t, const int32_t *ids, int64_t n,
                                             bool skip_special, gw_str *out, gw_diags *dg);

/* Decoding one id at a time for display. Zero-initialise; what is appended is always valid UTF-8:
 * an incomplete sequence is held back until it is complete, bytes that can never be valid become
 * U+FFFD. */
typedef struct gw_tok_stream {
    uint8_t held[4];
    uint8_t nheld;
    bool started;
} gw_tok_stream;
void gw_tok_stream_add(const gw_tokenizer *t, gw_tok_stream *st, int32_t id, bool skip_special,
                       gw_str *out);
/* Flushes what is held back, as U+FFFD if incomplete. */
void gw_tok_stream_end(gw_tok_stream *st, gw_str *out);

#endif
