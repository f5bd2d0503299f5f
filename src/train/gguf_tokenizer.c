// SPDX-License-Identifier: Apache-2.0
// The tokenizer inside a GGUF file, told in the words of tokenizer.json.
//
// GGUF keeps a byte-level BPE as arrays: tokens (in the byte-level alphabet), their kinds, merges
// as "a b" strings, and the name of the split rule. From these the equivalent tokenizer.json is
// made in memory and opened by the one tokenizer there is. Split rules by name: gpt-2, llama-bpe,
// qwen2, smollm (digits one by one, then the GPT-2 rule), default. Sources: the GGUF specification;
// the split patterns as published with each model.
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "file/gguf.h"     /* gw_gguf */
#include "file/json.h"     /* json_t */
#include "train/generate.h"

#define LLAMA3_SPLIT                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                     \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2_SPLIT                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                          \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Kinds of tokens in `tokenizer.ggml.token_type`. */
enum { KIND_CONTROL = 3, KIND_USER = 4 };

static json_t *byte_level(bool use_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *split_then_bytes(const char *pattern) {
    json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                              pattern, "behavior", "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", split,
                     byte_level(false));
}

static json_t *digits_then_bytes(void) {
    json_t *digits = json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", digits,
                     byte_level(true));
}

static json_t *pre_tokenizer(const char *pre) {
    static const char *const gpt2[] = {"gpt-2", "default", ""};
    static const char *const llama3[] = {"llama-bpe", "llama3", "llama-v3"};
    for (size_t i = 0; i < GW_COUNT(gpt2); i++)
        if (strcmp(pre, gpt2[i]) == 0) return byte_level(true);
    for (size_t i = 0; i < GW_COUNT(llama3); i++)
        if (strcmp(pre, llama3[i]) == 0) return split_then_bytes(LLAMA3_SPLIT);
    if (strcmp(pre, "qwen2") == 0) return split_then_bytes(QWEN2_SPLIT);
    if (strcmp(pre, "smollm") == 0) return digits_then_bytes();
    return NULL;
}

static gw_status add_tokens(const gw_gguf_value *tokens, const gw_gguf_value *kinds, json_t *vocab,
                            json_t *added, const char *path, gw_diags *dg) {
    for (int64_t i = 0; i < tokens->count; i++) {
        const gw_gguf_str *t = &tokens->strs[i];
        json_t *text = json_stringn(t->data, (size_t)t->len);
        if (!text || memchr(t->data, 0, (size_t)t->len)) {
            json_decref(text);
            return gw_fail_at(dg, GW_ERR_FORMAT, "gguf-token", (gw_where){.file = path},
                              "token %lld is not UTF-8 text", (long long)i);
        }
        int64_t kind = 1;
        if (kinds && i < kinds->count) (void)gw_gguf_elem_i64(kinds, i, &kind);
        if (kind == KIND_CONTROL || kind == KIND_USER)
            json_array_append_new(added, json_pack("{s:I, s:O, s:b, s:b, s:b, s:b, s:b}", "id",
                                                   (json_int_t)i, "content", text, "single_word", 0,
                                                   "lstrip", 0, "rstrip", 0, "normalized", 0,
                                                   "special", kind == KIND_CONTROL));
        json_object_setn_new(vocab, t->data, (size_t)t->len, json_integer((json_int_t)i));
        json_decref(text);
    }
    return GW_OK;
}

/* The template that prepends BOS, when the file asks for it. */
static json_t *post_processor(const gw_gguf *g, const gw_gguf_value *tokens) {
    bool add = false;
    int64_t bos = -1;
    if (!gw_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &add) || !add) return json_null();
    if (!gw_gguf_get_i64(g, "tokenizer.ggml.bos_token_id", &bos)) return json_null();
    if (bos < 0 || bos >= tokens->count) return json_null();
    const char *text = tokens->strs[bos].data;
    json_t *special = json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", text, "type_id", 0);
    json_t *sequence = json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0);
    json_t *specials = json_object();
    json_object_set_new(
        specials, text,
        json_pack("{s:s, s:[I], s:[s]}", "id", text, "ids", (json_int_t)bos, "tokens", text));
    return json_pack("{s:s, s:[o, o], s:[], s:o}", "type", "TemplateProcessing", "single", special,
                     sequence, "pair", "special_tokens", specials);
}

static gw_status make_json(const gw_gguf *g, const char *path, json_t **out, gw_diags *dg) {
    const char *kind = "", *pre = "default";
    (void)gw_gguf_get_str(g, "tokenizer.ggml.model", &kind);
    (void)gw_gguf_get_str(g, "tokenizer.ggml.pre", &pre);
    const gw_gguf_value *tokens = gw_gguf_find_value(g, "tokenizer.ggml.tokens");
    const gw_gguf_value *merges = gw_gguf_find_value(g, "tokenizer.ggml.merges");
    if (strcmp(kind, "gpt2") != 0 || !tokens || !tokens->strs || !merges || !merges->strs)
        return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "gguf-tokenizer", (gw_where){.file = path},
                          "the file's tokenizer ('%s') is not a byte-level BPE; give one with "
                          "--tokenizer",
                          kind);
    json_t *splitter = pre_tokenizer(pre);
    if (!splitter)
        return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "gguf-tokenizer", (gw_where){.file = path},
                          "the split rule '%s' is not known; give a tokenizer with --tokenizer",
                          pre);
    json_t *vocab = json_object(), *added = json_array(), *list = json_array();
    gw_status st = add_tokens(tokens, gw_gguf_find_value(g, "tokenizer.ggml.token_type"), vocab,
                              added, path, dg);
    for (int64_t i = 0; i < merges->count; i++)
        json_array_append_new(list,
                              json_stringn(merges->strs[i].data, (size_t)merges->strs[i].len));
    json_t *nfc = strcmp(pre, "qwen2") == 0 ? json_pack("{s:s}", "type", "NFC") : json_null();
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", strcmp(pre, "llama-bpe") == 0, "vocab", vocab, "merges", list);
    *out = json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", nfc,
                     "pre_tokenizer", splitter, "post_processor", post_processor(g, tokens),
                     "decoder", byte_level(true), "model", model);
    if (st != GW_OK) json_decref(*out);
    return st;
}

gw_status gw_gguf_tokenizer_open(const char *path, gw_tokenizer **out, gw_diags *dg) {
    gw_gguf *g = NULL;
    GW_TRY(gw_gguf_open(path, &g, dg));
    json_t *j = NULL;
    gw_status st = make_json(g, path, &j, dg);
    gw_gguf_free(g);
    if (st != GW_OK) return st;
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    if (!text)
        return gw_fail_at(dg, GW_ERR_FORMAT, "gguf-tokenizer", (gw_where){.file = path},
                          "the file's tokenizer cannot be told as JSON");
    st = gw_tokenizer_open_json(path, text, strlen(text), NULL, out, dg);
    free(text);
    return st;
}
