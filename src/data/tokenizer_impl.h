// SPDX-License-Identifier: Apache-2.0
// Inside of a tokenizer: shared by its readers, encoder and decoder; not for other folders.
#ifndef GW_DATA_TOKENIZER_IMPL_H
#define GW_DATA_TOKENIZER_IMPL_H

#include "base/arena.h"     /* gw_arena */
#include "data/bpe.h"       /* gw_bpe */
#include "data/normalize.h" /* gw_norm_step */
#include "data/pretok.h"    /* gw_pre_step */
#include "data/scanner.h"   /* gw_scanner */
#include "data/tokenizer.h" /* gw_tokenizer */

enum { GW_TOK_MAX_STEPS = 32, GW_TOK_MAX_REGEX = 64, GW_TOK_MAX_TEMPLATE = 16 };

/* One id. content is what the file spells; bytes what it decodes to in the middle of a text. */
typedef struct gw_tok_entry {
    const char *content;
    const uint8_t *bytes;
    uint32_t content_len, bytes_len;
    bool present, in_model, added, special;
    bool single_word, lstrip, rstrip, normalized; /* added only */
} gw_tok_entry;

/* A trie of the contents of added tokens. Node 0 is the root; child and sibling 0 = none. */
typedef struct gw_trie_node {
    uint32_t child, sibling;
    int32_t id; /* -1 = no token ends here */
    uint8_t byte;
} gw_trie_node;
typedef struct gw_trie {
    gw_trie_node *nodes;
    uint32_t count, cap;
    bool first[256]; /* bytes that begin a token */
    uint8_t only;    /* the one byte that begins a token, if nfirst is 1 */
    int nfirst;
} gw_trie;

typedef enum gw_dec_kind {
    GW_DEC_BYTE_LEVEL,
    GW_DEC_REPLACE, /* by a gw_norm_step */
    GW_DEC_BYTE_FALLBACK,
    GW_DEC_FUSE,
    GW_DEC_STRIP,     /* up to `start` and `stop` characters `text` at the ends */
    GW_DEC_METASPACE, /* `text` becomes a space; dropped in the first token unless keep_first */
    GW_DEC_BPE,       /* the suffix `text` becomes a space, nothing in the last token */
} gw_dec_kind;

typedef struct gw_dec_step {
    gw_dec_kind kind;
    gw_norm_step replace;
    const char *text;
    size_t text_len;
    int64_t start, stop;
    bool keep_first;
} gw_dec_step;

struct gw_tokenizer {
    gw_arena arena;
    gw_tok_entry *entries; /* [vocab_size], malloc memory */
    int32_t vocab_size;
    gw_smap by_content;
    gw_bpe bpe;
    gw_trie plain_added, normalized_added;
    gw_norm_step norm[GW_TOK_MAX_STEPS];
    gw_pre_step pre[GW_TOK_MAX_STEPS];
    gw_dec_step dec[GW_TOK_MAX_STEPS];
    int nnorm, npre, ndec;
    bool dec_none;      /* no decoder: tokens are joined with spaces */
    bool first_differs; /* the first token of a text decodes in its own way */
    bool last_differs;
    int fuse_at; /* index of the Fuse step, ndec if none; only Strip may follow */
    gw_regex *regex[GW_TOK_MAX_REGEX];
    int nregex;
    int32_t before[GW_TOK_MAX_TEMPLATE], after[GW_TOK_MAX_TEMPLATE]; /* the template's ids */
    int nbefore, nafter;
    int32_t bos, eos;
    int unicode_version;
    bool identity; /* "bytes": ids are bytes */
    gw_hash128 hash;
    const char *description;
};

struct gw_tok_scratch {
    gw_bpe_scratch *bpe;
    gw_regex_scratch *regex;
    gw_norm_scratch norm;
    gw_pre_scratch pre;
    gw_scanner *scanner;
    gw_hash128 owner; /* whose words the cache holds */
    int64_t specials; /* texts of special tokens met */
};

/* tokenizer.c */
gw_tokenizer *gw_tok_new(const gw_tokenizer_options *options);
/* Makes room for ids below `size`. */
void gw_tok_grow(gw_tokenizer *t, int32_t size);
/* Derives what follows from the entries and steps: byte ids, lookups, tries, decoded bytes. `name`
 * stands in messages. */
GW_WARN_UNUSED gw_status gw_tok_finish(gw_tokenizer *t, const char *name, gw_diags *dg);
/* After gw_bpe_seal: settles bpe.stranded. */
void gw_tok_find_stranded(gw_tokenizer *t);
/* The bytes of a content in the byte-level alphabet; false if a character is not of it. */
bool gw_tok_from_alphabet(const char *content, size_t n, uint8_t *out, size_t *nout);
/* Appends a byte as its character of the alphabet. */
void gw_tok_to_alphabet(gw_str *out, uint8_t byte);

/* added.c */
void gw_trie_add(gw_trie *t, const uint8_t *text, size_t n, int32_t id);
/* The longest token that begins at text[0]; -1 and *len = 0 if none. */
int32_t gw_trie_longest(const gw_trie *t, const uint8_t *text, size_t n, size_t *len);
void gw_trie_release(gw_trie *t);
/* The next added token in text[from..n): its id, and the range that it takes, white space that it
 * strips included, or -1. `pos` is where searching goes on. plain: skip special tokens. Texts of
 * special tokens, skipped or not, are added to *specials. */
int32_t gw_added_next(const gw_tokenizer *t, const gw_trie *trie, const uint8_t *text, size_t n,
                      size_t from, size_t *pos, bool plain, int64_t *specials, size_t *start,
                      size_t *end);

/* decode.c */
/* Appends what `entry` decodes to as the first, last or an inner token. */
GW_WARN_UNUSED gw_status gw_dec_token(const gw_tokenizer *t, const gw_tok_entry *entry, bool first,
                                      bool last, gw_regex_scratch *regex, gw_str *out,
                                      gw_diags *dg);

#endif
