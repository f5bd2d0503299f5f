// SPDX-License-Identifier: Apache-2.0
// The tokenizer inside a GGUF file, told in the words of tokenizer.json.
//
// GGUF keeps a byte-level BPE as arrays: tokens (in the byte-level alphabet), their kinds, merges
// as "a b" strings, and the name of the split rule. From these the equivalent tokenizer.json is
// made in memory and opened by the one tokenizer there is. Split rules by name: gpt-2, llama-bpe,
// qwen2, smollm (digits one by one, then the GPT-2 rule), default. Sources: the GGUF specification;
// the split patterns as published with each model. Writing goes the other way: the split rule of a
// tokenizer.json gets the name whose rule is written alike.
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "file/gguf.h"     /* gw_gguf */
#include "file/json.h"     /* json_t */
#include "train/gguf_tokenizer.h"

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

/* ---- writing ---- */

static const char *text_of(const json_t *o, const char *key) {
    const char *t = json_string_value(json_object_get(o, key));
    return t ? t : "";
}

/* Do two pre-tokenizers cut alike? Members that say nothing of where are left out. */
static bool cuts_alike(const json_t *a, const json_t *b) {
    static const char *const of_cuts[] = {
        "type",      "pattern",           "behavior",        "invert",
        "use_regex", "individual_digits", "add_prefix_space"};
    const json_t *la = json_object_get(a, "pretokenizers");
    const json_t *lb = json_object_get(b, "pretokenizers");
    if (json_array_size(la) != json_array_size(lb)) return false;
    for (size_t i = 0; i < json_array_size(la); i++)
        if (!cuts_alike(json_array_get(la, i), json_array_get(lb, i))) return false;
    for (size_t i = 0; i < GW_COUNT(of_cuts); i++) {
        const json_t *x = json_object_get(a, of_cuts[i]), *y = json_object_get(b, of_cuts[i]);
        if (strcmp(of_cuts[i], "use_regex") == 0 && (!x || !y)) { /* it is on unless it is said */
            if ((x && json_is_false(x)) || (y && json_is_false(y))) return false;
        } else if ((x || y) && !json_equal(x, y))
            return false;
    }
    return true;
}

static const char *name_of_rule(const json_t *pre) {
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "smollm"};
    const char *found = NULL;
    for (size_t i = 0; i < GW_COUNT(names) && !found; i++) {
        json_t *rule = pre_tokenizer(names[i]);
        if (cuts_alike(pre, rule)) found = names[i];
        json_decref(rule);
    }
    return found;
}

static gw_status not_written(const char *path, const char *what, gw_diags *dg) {
    gw_status st = gw_fail_at(dg, GW_ERR_UNSUPPORTED, "gguf-tokenizer", (gw_where){.file = path},
                              "a GGUF file has no place for this tokenizer: %s", what);
    gw_diag_hint(dg, dg ? dg->last : NULL, "--to hf keeps the tokenizer as it is");
    return st;
}

typedef struct table {
    gw_arena a;
    gw_gguf_str *tokens;
    int32_t *kinds;
    gw_gguf_str *merges;
    int64_t vocab, nmerges;
} table;

enum { KIND_NORMAL = 1, KIND_UNUSED = 5 };

static bool put_token(table *t, const char *text, size_t n, int64_t id, int32_t kind) {
    if (id < 0 || id >= t->vocab) return false;
    t->tokens[id] = (gw_gguf_str){gw_arena_strndup(&t->a, text, n), (int64_t)n};
    t->kinds[id] = kind;
    return true;
}

static gw_status take_tokens(table *t, json_t *top, const char *path, gw_diags *dg) {
    json_t *vocab = json_object_get(json_object_get(top, "model"), "vocab"), *id;
    const char *name;
    size_t n, i;
    bool fits = true;
    t->tokens = gw_arena_new(&t->a, gw_gguf_str, t->vocab);
    t->kinds = gw_arena_new(&t->a, int32_t, t->vocab);
    json_object_keylen_foreach(vocab, name, n, id) fits &=
        put_token(t, name, n, json_integer_value(id), KIND_NORMAL);
    json_array_foreach(json_object_get(top, "added_tokens"), i, id) {
        const char *text = text_of(id, "content");
        fits &= put_token(t, text, strlen(text), json_integer_value(json_object_get(id, "id")),
                          json_is_true(json_object_get(id, "special")) ? KIND_CONTROL : KIND_USER);
    }
    if (!fits) return not_written(path, "it has more tokens than the model", dg);
    for (int64_t k = 0; k < t->vocab; k++) {
        if (t->kinds[k]) continue;
        const char *unused = gw_arena_printf(&t->a, "[PAD%lld]", (long long)k);
        (void)put_token(t, unused, strlen(unused), k, KIND_UNUSED);
    }
    return GW_OK;
}

/* "a b" or ["a", "b"]: the file has the former, so neither may hold a space. */
static gw_status take_merges(table *t, json_t *top, const char *path, gw_diags *dg) {
    json_t *list = json_object_get(json_object_get(top, "model"), "merges"), *m;
    size_t i;
    t->merges = gw_arena_new(&t->a, gw_gguf_str, json_array_size(list) + 1);
    json_array_foreach(list, i, m) {
        const char *a = json_string_value(json_array_get(m, 0));
        const char *b = json_string_value(json_array_get(m, 1)), *text = json_string_value(m);
        if (a && b) {
            if (strchr(a, ' ') || strchr(b, ' '))
                return not_written(path, "a merge of tokens that hold spaces", dg);
            text = gw_arena_printf(&t->a, "%s %s", a, b);
        } else if (text)
            text = gw_arena_strdup(&t->a, text);
        else
            return not_written(path, "a merge that is no pair", dg);
        t->merges[t->nmerges++] = (gw_gguf_str){text, (int64_t)strlen(text)};
    }
    return GW_OK;
}

/* Does its template begin every text with a special token? */
static bool begins_with_special(const json_t *top) {
    const json_t *post = json_object_get(top, "post_processor");
    const json_t *list = json_object_get(post, "processors"), *one;
    size_t i;
    json_array_foreach(list, i, one) if (strcmp(text_of(one, "type"), "TemplateProcessing") == 0)
        post = one;
    return json_object_get(json_array_get(json_object_get(post, "single"), 0), "SpecialToken");
}

static gw_status put_table(gw_gguf_writer *w, table *t, json_t *top, const char *path,
                           gw_diags *dg) {
    const char *rule = name_of_rule(json_object_get(top, "pre_tokenizer"));
    if (strcmp(text_of(json_object_get(top, "model"), "type"), "BPE") != 0)
        return not_written(path, "it is no byte-level BPE", dg);
    if (!rule) return not_written(path, "its rule of splitting text has no name there", dg);
    GW_TRY(take_tokens(t, top, path, dg));
    GW_TRY(take_merges(t, top, path, dg));
    gw_gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    gw_gguf_writer_str(w, "tokenizer.ggml.pre", rule);
    gw_gguf_writer_strs(w, "tokenizer.ggml.tokens", t->tokens, t->vocab);
    gw_gguf_writer_i32s(w, "tokenizer.ggml.token_type", t->kinds, t->vocab);
    gw_gguf_writer_strs(w, "tokenizer.ggml.merges", t->merges, t->nmerges);
    gw_gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", begins_with_special(top));
    return GW_OK;
}

gw_status gw_gguf_put_tokenizer(gw_gguf_writer *w, const char *path, int64_t vocab, gw_diags *dg) {
    json_t *top = NULL;
    table t = {.vocab = vocab};
    if (!path) {
        gw_gguf_writer_str(w, "tokenizer.ggml.model", "no_vocab");
        return GW_OK;
    }
    GW_TRY(gw_json_read_file(path, 0, &top, dg));
    gw_status st = put_table(w, &t, top, path, dg);
    json_decref(top);
    gw_arena_release(&t.a);
    return st;
}
