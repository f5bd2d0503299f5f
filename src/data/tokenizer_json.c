// SPDX-License-Identifier: Apache-2.0
// Reading tokenizer.json (Hugging Face tokenizers, BPE models).
//
// The file is a tree of components, each an object with a "type". A reader here turns each known
// type into steps (normaliser, pre-tokeniser, decoder) or fields, knows every member that type may
// have, and refuses anything else by file and JSON path: a component that were skipped would give
// wrong ids in silence. Sizes and ids come from outside, so each is checked before it is used as an
// index.
//
// A ByteLevel pre-tokeniser makes the model byte-level: it must be the last step, since after it
// text is letters of the byte alphabet. Its own regex is GPT-2's. Vocabulary and merges are read
// before added tokens, as merges may name only tokens of the model.
#include <jansson.h>
#include <stdarg.h>
#include <string.h>

#include "base/io.h"             /* gw_path_exists */
#include "data/tokenizer_impl.h" /* gw_tokenizer */
#include "file/json.h"           /* gw_json_parse, gw_json_as_i64, gw_json_type_name */

enum { MAX_ID = 1 << 24 };

typedef struct reader {
    const char *file;
    gw_tokenizer *t;
    gw_diags *dg;
} reader;

static gw_status bad(const reader *r, gw_code code, const char *path, const char *fmt, ...)
    GW_PRINTF(4, 5);
static gw_status bad(const reader *r, gw_code code, const char *path, const char *fmt, ...) {
    gw_str s = {0};
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(&s, fmt, ap);
    va_end(ap);
    const char *id = code == GW_ERR_UNSUPPORTED ? "tokenizer-unsupported" : "tokenizer-json";
    gw_status st =
        gw_fail_at(r->dg, code, id, (gw_where){.file = r->file}, "%s: %s", path, gw_str_c(&s));
    gw_str_release(&s);
    return st;
}

static const char *below(const reader *r, const char *path, const char *key) {
    return gw_arena_printf(&r->t->arena, "%s.%s", path, key);
}

/* Every member of obj is in `known`, names separated by spaces. */
static gw_status check_members(const reader *r, const json_t *obj, const char *path,
                               const char *known) {
    if (!json_is_object(obj))
        return bad(r, GW_ERR_FORMAT, path, "expected an object, found %s", gw_json_type_name(obj));
    for (void *it = json_object_iter((json_t *)(uintptr_t)obj); it;
         it = json_object_iter_next((json_t *)(uintptr_t)obj, it)) {
        const char *key = json_object_iter_key(it), *at = known;
        size_t n = strlen(key);
        while (at && (strncmp(at, key, n) || (at[n] != ' ' && at[n] != 0))) {
            at = strchr(at, ' ');
            if (at) at++;
        }
        if (!at || n == 0)
            return bad(r, GW_ERR_UNSUPPORTED, path, "member '%.60s' is not known here", key);
    }
    return GW_OK;
}

static gw_status get_text(const reader *r, const json_t *obj, const char *path, const char *key,
                          const char **out, size_t *n) {
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v))
        return bad(r, GW_ERR_FORMAT, below(r, path, key), "expected a string, found %s",
                   gw_json_type_name(v));
    *n = json_string_length(v);
    *out = gw_arena_dup(&r->t->arena, json_string_value(v), (int64_t)*n + 1); /* NULs are text */
    return GW_OK;
}

/* Absent or null gives def. */
static gw_status get_bool(const reader *r, const json_t *obj, const char *path, const char *key,
                          bool def, bool *out) {
    const json_t *v = json_object_get(obj, key);
    *out = def;
    if (!v || json_is_null(v)) return GW_OK;
    if (!json_is_boolean(v))
        return bad(r, GW_ERR_FORMAT, below(r, path, key), "expected true or false, found %s",
                   gw_json_type_name(v));
    *out = json_is_true(v);
    return GW_OK;
}

static gw_status get_id(const reader *r, const json_t *v, const char *path, int64_t limit,
                        int32_t *out) {
    int64_t id;
    if (!v || !gw_json_as_i64(v, &id))
        return bad(r, GW_ERR_FORMAT, path, "expected a whole number, found %s",
                   gw_json_type_name(v));
    if (id < 0 || id >= limit)
        return bad(r, GW_ERR_FORMAT, path, "%lld is outside [0, %lld)", (long long)id,
                   (long long)limit);
    *out = (int32_t)id;
    return GW_OK;
}

static gw_status get_type(const reader *r, const json_t *obj, const char *path, const char **type) {
    size_t n;
    if (!json_is_object(obj))
        return bad(r, GW_ERR_FORMAT, path, "expected an object, found %s", gw_json_type_name(obj));
    return get_text(r, obj, path, "type", type, &n);
}

static gw_status unknown_type(const reader *r, const char *path, const char *type) {
    return bad(r, GW_ERR_UNSUPPORTED, path, "type '%.60s' is not supported", type);
}

static gw_status new_regex(const reader *r, const char *path, const char *pattern, size_t n,
                           gw_regex **out) {
    gw_tokenizer *t = r->t;
    if (t->nregex == GW_TOK_MAX_REGEX)
        return bad(r, GW_ERR_UNSUPPORTED, path, "more than %d regexes", GW_TOK_MAX_REGEX);
    const char *where = gw_arena_printf(&t->arena, "%s: %s", r->file, path);
    GW_TRY(gw_regex_new(pattern, n, where, out, r->dg));
    t->regex[t->nregex++] = *out;
    return GW_OK;
}

/* {"String": s} or {"Regex": s} under "pattern". */
static gw_status get_pattern(const reader *r, const json_t *obj, const char *path,
                             const char **text, size_t *n, bool *is_regex) {
    const json_t *p = json_object_get(obj, "pattern");
    const char *at = below(r, path, "pattern");
    GW_TRY(check_members(r, p, at, "String Regex"));
    if (json_object_size(p) != 1)
        return bad(r, GW_ERR_FORMAT, at, "expected exactly one of String, Regex");
    *is_regex = json_object_get(p, "Regex") != NULL;
    return get_text(r, p, at, *is_regex ? "Regex" : "String", text, n);
}

/* A step of an array of `most`; nested sequences are flattened. */
#define NEW_STEP(r, path, array, count, step)                                                      \
    do {                                                                                           \
        if ((count) == GW_TOK_MAX_STEPS)                                                           \
            return bad((r), GW_ERR_UNSUPPORTED, (path), "more than %d steps", GW_TOK_MAX_STEPS);   \
        (step) = &(array)[(count)++];                                                              \
        memset((step), 0, sizeof *(step));                                                         \
    } while (0)

typedef gw_status read_step(const reader *r, const json_t *v, const char *path, int depth);

static gw_status read_sequence(const reader *r, const json_t *v, const char *path, const char *list,
                               int depth, read_step *step) {
    GW_TRY(check_members(r, v, path, gw_arena_printf(&r->t->arena, "type %s", list)));
    const json_t *a = json_object_get(v, list);
    if (!json_is_array(a))
        return bad(r, GW_ERR_FORMAT, below(r, path, list), "expected an array, found %s",
                   gw_json_type_name(a));
    if (depth > 8) return bad(r, GW_ERR_FORMAT, path, "sequences nested too deep");
    for (size_t i = 0; i < json_array_size(a); i++)
        GW_TRY(step(r, json_array_get(a, i),
                    gw_arena_printf(&r->t->arena, "%s.%s[%zu]", path, list, i), depth + 1));
    return GW_OK;
}

/* ---- normalizer ---------------------------------------------------------------------------------
 */

static gw_status read_replace(const reader *r, const json_t *v, const char *path, gw_norm_step *s) {
    bool is_regex;
    GW_TRY(check_members(r, v, path, "type pattern content"));
    GW_TRY(get_pattern(r, v, path, &s->pattern, &s->pattern_len, &is_regex));
    GW_TRY(get_text(r, v, path, "content", &s->content, &s->content_len));
    s->kind = is_regex ? GW_NORM_REPLACE_REGEX : GW_NORM_REPLACE;
    return is_regex ? new_regex(r, path, s->pattern, s->pattern_len, &s->regex) : GW_OK;
}

static gw_status read_normalizer(const reader *r, const json_t *v, const char *path, int depth) {
    static const struct {
        const char *name;
        gw_norm_kind kind;
    } PLAIN[] = {{"NFC", GW_NORM_NFC},
                 {"NFD", GW_NORM_NFD},
                 {"NFKC", GW_NORM_NFKC},
                 {"NFKD", GW_NORM_NFKD},
                 {"Lowercase", GW_NORM_LOWERCASE}};
    const char *type;
    GW_TRY(get_type(r, v, path, &type));
    if (!strcmp(type, "Sequence"))
        return read_sequence(r, v, path, "normalizers", depth, read_normalizer);
    gw_norm_step *s;
    NEW_STEP(r, path, r->t->norm, r->t->nnorm, s);
    for (size_t i = 0; i < GW_COUNT(PLAIN); i++)
        if (!strcmp(type, PLAIN[i].name)) {
            s->kind = PLAIN[i].kind;
            return check_members(r, v, path, "type");
        }
    if (!strcmp(type, "Replace")) return read_replace(r, v, path, s);
    if (!strcmp(type, "Prepend")) {
        s->kind = GW_NORM_PREPEND;
        GW_TRY(check_members(r, v, path, "type prepend"));
        return get_text(r, v, path, "prepend", &s->content, &s->content_len);
    }
    if (!strcmp(type, "Strip")) {
        s->kind = GW_NORM_STRIP;
        GW_TRY(check_members(r, v, path, "type strip_left strip_right"));
        GW_TRY(get_bool(r, v, path, "strip_left", false, &s->left));
        return get_bool(r, v, path, "strip_right", false, &s->right);
    }
    return unknown_type(r, path, type);
}

/* ---- pre_tokenizer ------------------------------------------------------------------------------
 */

static gw_status get_behavior(const reader *r, const json_t *v, const char *path,
                              gw_pre_behavior *out) {
    static const struct {
        const char *name;
        gw_pre_behavior behavior;
    } NAMES[] = {{"Isolated", GW_PRE_ISOLATED},
                 {"Removed", GW_PRE_REMOVED},
                 {"MergedWithPrevious", GW_PRE_MERGED_WITH_PREVIOUS},
                 {"MergedWithNext", GW_PRE_MERGED_WITH_NEXT},
                 {"Contiguous", GW_PRE_CONTIGUOUS}};
    const char *name;
    size_t n;
    GW_TRY(get_text(r, v, path, "behavior", &name, &n));
    for (size_t i = 0; i < GW_COUNT(NAMES); i++)
        if (!strcmp(name, NAMES[i].name)) {
            *out = NAMES[i].behavior;
            return GW_OK;
        }
    return bad(r, GW_ERR_UNSUPPORTED, below(r, path, "behavior"), "'%.60s' is not supported", name);
}

static gw_status read_split(const reader *r, const json_t *v, const char *path, gw_pre_step *s) {
    const char *text;
    size_t n;
    bool is_regex;
    GW_TRY(check_members(r, v, path, "type pattern behavior invert"));
    GW_TRY(get_behavior(r, v, path, &s->behavior));
    GW_TRY(get_bool(r, v, path, "invert", false, &s->invert));
    GW_TRY(get_pattern(r, v, path, &text, &n, &is_regex));
    if (!is_regex) {
        s->kind = GW_PRE_STRING;
        s->text = text;
        s->text_len = n;
        return GW_OK;
    }
    /* The scanners match every character: keeping matches alone keeps all. */
    bool keeps = (s->behavior == GW_PRE_ISOLATED && !s->invert) ||
                 (s->behavior == GW_PRE_REMOVED && s->invert);
    if (keeps && strlen(text) == n && gw_scan_from_pattern(text, &s->scan)) {
        *s = (gw_pre_step){.kind = GW_PRE_SCAN, .scan = s->scan};
        return GW_OK;
    }
    s->kind = GW_PRE_REGEX;
    return new_regex(r, path, text, n, &s->regex);
}

static gw_status read_byte_level_pre(const reader *r, const json_t *v, const char *path,
                                     gw_pre_step *s) {
    bool prefix, regex;
    GW_TRY(check_members(r, v, path, "type add_prefix_space trim_offsets use_regex"));
    GW_TRY(get_bool(r, v, path, "add_prefix_space", true, &prefix));
    GW_TRY(get_bool(r, v, path, "use_regex", true, &regex));
    r->t->bpe.byte_level = true;
    if (prefix) s->kind = GW_PRE_PREFIX_SPACE;
    if (prefix && regex) NEW_STEP(r, path, r->t->pre, r->t->npre, s);
    if (regex) {
        s->kind = GW_PRE_SCAN;
        s->scan = GW_SCAN_GPT2;
    }
    if (!prefix && !regex) r->t->npre--;
    return GW_OK;
}

static gw_status read_metaspace_pre(const reader *r, const json_t *v, const char *path,
                                    gw_pre_step *s) {
    bool prefix;
    GW_TRY(check_members(r, v, path,
                         "type replacement str_rep prepend_scheme add_prefix_space split"));
    s->kind = GW_PRE_METASPACE;
    s->behavior = GW_PRE_MERGED_WITH_NEXT;
    GW_TRY(get_text(r, v, path, "replacement", &s->text, &s->text_len));
    if (!s->text_len) return bad(r, GW_ERR_FORMAT, path, "an empty replacement");
    GW_TRY(get_bool(r, v, path, "split", true, &s->split));
    GW_TRY(get_bool(r, v, path, "add_prefix_space", true, &prefix));
    s->prepend = prefix ? GW_PRE_ALWAYS : GW_PRE_NEVER;
    const json_t *scheme = json_object_get(v, "prepend_scheme");
    if (!scheme || json_is_null(scheme)) return GW_OK;
    const char *name = json_is_string(scheme) ? json_string_value(scheme) : "";
    if (!strcmp(name, "always"))
        s->prepend = GW_PRE_ALWAYS;
    else if (!strcmp(name, "first"))
        s->prepend = GW_PRE_FIRST;
    else if (!strcmp(name, "never"))
        s->prepend = GW_PRE_NEVER;
    else
        return bad(r, GW_ERR_UNSUPPORTED, below(r, path, "prepend_scheme"), "not supported");
    return GW_OK;
}

static gw_status read_digits(const reader *r, const json_t *v, const char *path, gw_pre_step *s) {
    bool each;
    GW_TRY(check_members(r, v, path, "type individual_digits"));
    GW_TRY(get_bool(r, v, path, "individual_digits", false, &each));
    s->kind = GW_PRE_NUMBERS;
    s->behavior = each ? GW_PRE_ISOLATED : GW_PRE_CONTIGUOUS;
    return GW_OK;
}

static gw_status read_pre_tokenizer(const reader *r, const json_t *v, const char *path, int depth) {
    const char *type;
    GW_TRY(get_type(r, v, path, &type));
    if (r->t->bpe.byte_level)
        return bad(r, GW_ERR_UNSUPPORTED, path, "'%.60s' after ByteLevel is not supported", type);
    if (!strcmp(type, "Sequence"))
        return read_sequence(r, v, path, "pretokenizers", depth, read_pre_tokenizer);
    gw_pre_step *s;
    NEW_STEP(r, path, r->t->pre, r->t->npre, s);
    if (!strcmp(type, "Split")) return read_split(r, v, path, s);
    if (!strcmp(type, "ByteLevel")) return read_byte_level_pre(r, v, path, s);
    if (!strcmp(type, "Metaspace")) return read_metaspace_pre(r, v, path, s);
    if (!strcmp(type, "Digits")) return read_digits(r, v, path, s);
    if (!strcmp(type, "WhitespaceSplit")) {
        s->kind = GW_PRE_WHITESPACE;
        s->behavior = GW_PRE_REMOVED;
        return check_members(r, v, path, "type");
    }
    if (!strcmp(type, "Whitespace")) {
        static const char WORDS[] = "\\w+|[^\\w\\s]+";
        s->kind = GW_PRE_REGEX;
        s->behavior = GW_PRE_REMOVED;
        s->invert = true;
        GW_TRY(check_members(r, v, path, "type"));
        return new_regex(r, path, WORDS, sizeof WORDS - 1, &s->regex);
    }
    return unknown_type(r, path, type);
}

/* ---- decoder ------------------------------------------------------------------------------------
 */

static gw_status read_strip_decoder(const reader *r, const json_t *v, const char *path,
                                    gw_dec_step *s) {
    s->kind = GW_DEC_STRIP;
    GW_TRY(check_members(r, v, path, "type content start stop"));
    GW_TRY(get_text(r, v, path, "content", &s->text, &s->text_len));
    int32_t start, stop;
    GW_TRY(get_id(r, json_object_get(v, "start"), below(r, path, "start"), INT32_MAX, &start));
    GW_TRY(get_id(r, json_object_get(v, "stop"), below(r, path, "stop"), INT32_MAX, &stop));
    if (!s->text_len) return bad(r, GW_ERR_FORMAT, path, "an empty content");
    s->start = start;
    s->stop = stop;
    return GW_OK;
}

static gw_status read_metaspace_decoder(const reader *r, const json_t *v, const char *path,
                                        gw_dec_step *s) {
    gw_pre_step p = {0};
    GW_TRY(read_metaspace_pre(r, v, path, &p));
    s->kind = GW_DEC_METASPACE;
    s->text = p.text;
    s->text_len = p.text_len;
    s->keep_first = p.prepend == GW_PRE_NEVER;
    return GW_OK;
}

static bool fused(const gw_tokenizer *t) {
    for (int i = 0; i < t->ndec; i++)
        if (t->dec[i].kind == GW_DEC_FUSE) return true;
    return false;
}

static gw_status read_decoder(const reader *r, const json_t *v, const char *path, int depth) {
    const char *type;
    GW_TRY(get_type(r, v, path, &type));
    if (!strcmp(type, "Sequence"))
        return read_sequence(r, v, path, "decoders", depth, read_decoder);
    bool after_fuse = fused(r->t);
    if (after_fuse && strcmp(type, "Strip") && strcmp(type, "Fuse"))
        return bad(r, GW_ERR_UNSUPPORTED, path, "'%.60s' after Fuse is not supported", type);
    gw_dec_step *s;
    NEW_STEP(r, path, r->t->dec, r->t->ndec, s);
    if (!strcmp(type, "ByteLevel")) {
        s->kind = GW_DEC_BYTE_LEVEL;
        return check_members(r, v, path, "type add_prefix_space trim_offsets use_regex");
    }
    if (!strcmp(type, "ByteFallback")) {
        s->kind = GW_DEC_BYTE_FALLBACK;
        return check_members(r, v, path, "type");
    }
    if (!strcmp(type, "Fuse")) {
        s->kind = GW_DEC_FUSE;
        return check_members(r, v, path, "type");
    }
    if (!strcmp(type, "Replace")) {
        s->kind = GW_DEC_REPLACE;
        return read_replace(r, v, path, &s->replace);
    }
    if (!strcmp(type, "Strip")) return read_strip_decoder(r, v, path, s);
    if (!strcmp(type, "Metaspace")) return read_metaspace_decoder(r, v, path, s);
    if (!strcmp(type, "BPEDecoder")) {
        s->kind = GW_DEC_BPE;
        GW_TRY(check_members(r, v, path, "type suffix"));
        return get_text(r, v, path, "suffix", &s->text, &s->text_len);
    }
    return unknown_type(r, path, type);
}

/* ---- model --------------------------------------------------------------------------------------
 */

static gw_status read_vocab(const reader *r, const json_t *vocab, const char *path) {
    gw_tokenizer *t = r->t;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return bad(r, GW_ERR_FORMAT, path, "expected an object of tokens, found %s",
                   json_is_object(vocab) ? "an empty one" : gw_json_type_name(vocab));
    /* Ids may have gaps, but a vocabulary that is mostly gaps is damage. */
    int64_t limit = GW_MIN((int64_t)MAX_ID, 2 * (int64_t)json_object_size(vocab) + 65536);
    json_t *walk = (json_t *)(uintptr_t)vocab;
    for (void *it = json_object_iter(walk); it; it = json_object_iter_next(walk, it)) {
        const char *key = json_object_iter_key(it);
        size_t n = strlen(key);
        int32_t id;
        int64_t raw;
        const json_t *v = json_object_iter_value(it);
        if (!gw_json_as_i64(v, &raw) || raw < 0 || raw >= limit) {
            const char *at = gw_arena_printf(&t->arena, "%s['%.60s']", path, key);
            GW_TRY(get_id(r, v, at, limit, &id));
        }
        id = (int32_t)raw;
        if (id >= t->vocab_size)
            gw_tok_grow(t, GW_MAX(id + 1, (int32_t)GW_MIN(limit, (int64_t)t->vocab_size * 2)));
        gw_tok_entry *e = &t->entries[id];
        if (e->present)
            return bad(r, GW_ERR_FORMAT, path, "id %d is given to '%.60s' and to '%.60s'", (int)id,
                       e->content, key);
        *e = (gw_tok_entry){.content = gw_arena_dup(&t->arena, key, (int64_t)n + 1),
                            .content_len = (uint32_t)n,
                            .present = true,
                            .in_model = true};
        gw_smap_put(&t->by_content, e->content, n, (uint32_t)id);
    }
    while (t->vocab_size > 0 && !t->entries[t->vocab_size - 1].present) t->vocab_size--;
    return GW_OK;
}

/* The two sides of a merge: ["a", "b"] or "a b". */
static bool merge_sides(const json_t *v, const char **a, size_t *na, const char **b, size_t *nb) {
    if (json_is_array(v) && json_array_size(v) == 2) {
        const json_t *x = json_array_get(v, 0), *y = json_array_get(v, 1);
        if (!json_is_string(x) || !json_is_string(y)) return false;
        *a = json_string_value(x);
        *na = json_string_length(x);
        *b = json_string_value(y);
        *nb = json_string_length(y);
        return true;
    }
    if (!json_is_string(v)) return false;
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    const char *sp = memchr(s, ' ', n);
    if (!sp || memchr(sp + 1, ' ', n - (size_t)(sp - s) - 1)) return false;
    *a = s;
    *na = (size_t)(sp - s);
    *b = sp + 1;
    *nb = n - *na - 1;
    return true;
}

static gw_status read_merge(const reader *r, const json_t *v, size_t rank, gw_str *joined) {
    gw_tokenizer *t = r->t;
    const char *a, *b;
    size_t na, nb, cut = strlen(t->bpe.prefix);
    if (!merge_sides(v, &a, &na, &b, &nb))
        return bad(r, GW_ERR_FORMAT, gw_arena_printf(&t->arena, "model.merges[%zu]", rank),
                   "expected \"a b\" or [\"a\", \"b\"]");
    uint32_t left, right, made;
    bool has_left = gw_smap_find(&t->by_content, a, na, &left);
    bool has_right = gw_smap_find(&t->by_content, b, nb, &right);
    gw_str_clear(joined);
    gw_str_add_n(joined, a, na);
    if (nb >= cut) gw_str_add_n(joined, b + cut, nb - cut);
    bool has_made = nb >= cut && gw_smap_find(&t->by_content, gw_str_c(joined), joined->len, &made);
    if (!has_left || !has_right || !has_made)
        return bad(r, GW_ERR_FORMAT, gw_arena_printf(&t->arena, "model.merges[%zu]", rank),
                   "'%.60s' is not in the vocabulary",
                   !has_left    ? a
                   : !has_right ? b
                                : gw_str_c(joined));
    gw_bpe_add_merge(&t->bpe, (int32_t)left, (int32_t)right, (uint32_t)rank, (int32_t)made);
    return GW_OK;
}

static gw_status read_merges(const reader *r, const json_t *merges) {
    if (!json_is_array(merges) || json_array_size(merges) > MAX_ID)
        return bad(r, GW_ERR_FORMAT, "model.merges",
                   "expected an array of at most %d merges, found %s", MAX_ID,
                   gw_json_type_name(merges));
    gw_str joined = {0};
    gw_status st = GW_OK;
    for (size_t i = 0; i < json_array_size(merges) && st == GW_OK; i++)
        st = read_merge(r, json_array_get(merges, i), i, &joined);
    gw_str_release(&joined);
    return st;
}

/* A string member that may be null; *out is "" then. */
static gw_status optional_text(const reader *r, const json_t *m, const char *key,
                               const char **out) {
    size_t n = 0;
    const json_t *v = json_object_get(m, key);
    if (!v || json_is_null(v)) return GW_OK;
    return get_text(r, m, "model", key, out, &n);
}

static gw_status read_model(const reader *r, const json_t *m) {
    gw_bpe *b = &r->t->bpe;
    const char *type = "BPE", *unk = "";
    if (json_is_object(m) && json_object_get(m, "type")) GW_TRY(get_type(r, m, "model", &type));
    if (strcmp(type, "BPE"))
        return bad(r, GW_ERR_UNSUPPORTED, "model.type", "'%.60s' is not supported, only BPE", type);
    GW_TRY(check_members(r, m, "model",
                         "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                         "fuse_unk byte_fallback ignore_merges vocab merges"));
    const json_t *dropout = json_object_get(m, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0.0)
        return bad(r, GW_ERR_UNSUPPORTED, "model.dropout", "random merges are not supported");
    GW_TRY(get_bool(r, m, "model", "fuse_unk", false, &b->fuse_unk));
    GW_TRY(get_bool(r, m, "model", "byte_fallback", false, &b->byte_fallback));
    GW_TRY(get_bool(r, m, "model", "ignore_merges", false, &b->ignore_merges));
    GW_TRY(optional_text(r, m, "continuing_subword_prefix", &b->prefix));
    GW_TRY(optional_text(r, m, "end_of_word_suffix", &b->suffix));
    GW_TRY(optional_text(r, m, "unk_token", &unk));
    GW_TRY(read_vocab(r, json_object_get(m, "vocab"), "model.vocab"));
    if (*unk) {
        b->unk = gw_tokenizer_token_id(r->t, unk, strlen(unk));
        if (b->unk < 0)
            return bad(r, GW_ERR_FORMAT, "model.unk_token", "'%.60s' is not in the vocabulary",
                       unk);
    }
    return read_merges(r, json_object_get(m, "merges"));
}

/* ---- added tokens and the template --------------------------------------------------------------
 */

static gw_status read_added(const reader *r, const json_t *v, const char *path) {
    gw_tokenizer *t = r->t;
    gw_tok_entry e = {.present = true, .added = true};
    const char *content;
    size_t n;
    int32_t id;
    GW_TRY(check_members(r, v, path, "id content single_word lstrip rstrip normalized special"));
    int64_t limit = GW_MIN((int64_t)MAX_ID, 2 * (int64_t)t->vocab_size + 65536);
    GW_TRY(get_id(r, json_object_get(v, "id"), below(r, path, "id"), limit, &id));
    GW_TRY(get_text(r, v, path, "content", &content, &n));
    GW_TRY(get_bool(r, v, path, "special", false, &e.special));
    GW_TRY(get_bool(r, v, path, "single_word", false, &e.single_word));
    GW_TRY(get_bool(r, v, path, "lstrip", false, &e.lstrip));
    GW_TRY(get_bool(r, v, path, "rstrip", false, &e.rstrip));
    GW_TRY(get_bool(r, v, path, "normalized", !e.special, &e.normalized));
    if (n == 0) return GW_OK;
    uint32_t known;
    if (gw_smap_find(&t->by_content, content, n, &known) && (int32_t)known != id)
        return bad(r, GW_ERR_FORMAT, path, "'%.60s' has id %d here and %u elsewhere", content,
                   (int)id, known);
    gw_tok_grow(t, id < t->vocab_size ? t->vocab_size : id + 1);
    gw_tok_entry *old = &t->entries[id];
    if (old->present && (old->content_len != n || memcmp(old->content, content, n)))
        return bad(r, GW_ERR_FORMAT, path, "id %d is '%.60s' already", (int)id, old->content);
    e.content = content;
    e.content_len = (uint32_t)n;
    e.in_model = old->in_model;
    *old = e;
    gw_smap_put(&t->by_content, content, n, (uint32_t)id);
    return GW_OK;
}

static gw_status read_all_added(const reader *r, const json_t *a) {
    if (!a || json_is_null(a)) return GW_OK;
    if (!json_is_array(a))
        return bad(r, GW_ERR_FORMAT, "added_tokens", "expected an array, found %s",
                   gw_json_type_name(a));
    for (size_t i = 0; i < json_array_size(a); i++)
        GW_TRY(read_added(r, json_array_get(a, i),
                          gw_arena_printf(&r->t->arena, "added_tokens[%zu]", i)));
    return GW_OK;
}

static gw_status template_special(const reader *r, const json_t *piece, const json_t *specials,
                                  const char *path, bool after) {
    gw_tokenizer *t = r->t;
    const char *name;
    size_t n;
    GW_TRY(check_members(r, piece, path, "id type_id"));
    GW_TRY(get_text(r, piece, path, "id", &name, &n));
    const json_t *entry = json_object_get(specials, name);
    const json_t *ids = json_object_get(entry, "ids");
    if (!json_is_array(ids))
        return bad(r, GW_ERR_FORMAT, path, "'%.60s' is not among special_tokens", name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int *count = after ? &t->nafter : &t->nbefore;
        if (*count == GW_TOK_MAX_TEMPLATE)
            return bad(r, GW_ERR_UNSUPPORTED, path, "a template of more than %d tokens",
                       GW_TOK_MAX_TEMPLATE);
        GW_TRY(get_id(r, json_array_get(ids, i), path, t->vocab_size,
                      &(after ? t->after : t->before)[*count]));
        ++*count;
    }
    return GW_OK;
}

static gw_status read_template(const reader *r, const json_t *v, const char *path) {
    GW_TRY(check_members(r, v, path, "type single pair special_tokens"));
    const json_t *single = json_object_get(v, "single");
    const char *at = below(r, path, "single");
    if (!json_is_array(single) || json_array_size(single) == 0)
        return bad(r, GW_ERR_FORMAT, at, "expected an array, found %s", gw_json_type_name(single));
    bool after = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *p = json_array_get(single, i);
        const char *here = gw_arena_printf(&r->t->arena, "%s[%zu]", at, i);
        GW_TRY(check_members(r, p, here, "SpecialToken Sequence"));
        const json_t *sp = json_object_get(p, "SpecialToken");
        if (sp)
            GW_TRY(template_special(r, sp, json_object_get(v, "special_tokens"), here, after));
        else if (after || !json_object_get(p, "Sequence"))
            return bad(r, GW_ERR_UNSUPPORTED, here, "expected the sequence once");
        else
            after = true;
    }
    return after ? GW_OK : bad(r, GW_ERR_FORMAT, at, "a template without the sequence");
}

static gw_status read_post_processor(const reader *r, const json_t *v, const char *path,
                                     int depth) {
    const char *type;
    GW_TRY(get_type(r, v, path, &type));
    if (!strcmp(type, "Sequence"))
        return read_sequence(r, v, path, "processors", depth, read_post_processor);
    /* It moves offsets, not ids. */
    if (!strcmp(type, "ByteLevel"))
        return check_members(r, v, path, "type add_prefix_space trim_offsets use_regex");
    if (!strcmp(type, "TemplateProcessing")) {
        if (r->t->nbefore + r->t->nafter)
            return bad(r, GW_ERR_UNSUPPORTED, path, "more than one template");
        return read_template(r, v, path);
    }
    return unknown_type(r, path, type);
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static void warn_ignored(const reader *r, const json_t *root, const char *key) {
    const json_t *v = json_object_get(root, key);
    if (!v || json_is_null(v)) return;
    gw_diag *g = gw_diag_add(r->dg, GW_WARNING, GW_OK, "tokenizer-ignored",
                             (gw_where){.file = r->file}, "'%s' is ignored", key);
    gw_diag_detail(r->dg, g, "texts are encoded whole; rows are cut and padded by the data set");
}

static gw_status read_optional(const reader *r, const json_t *root, const char *key,
                               read_step *step) {
    const json_t *v = json_object_get(root, key);
    return !v || json_is_null(v) ? GW_OK : step(r, v, key, 0);
}

static gw_status read_root(const reader *r, const json_t *root) {
    gw_tokenizer *t = r->t;
    GW_TRY(check_members(r, root, "top level",
                         "version truncation padding added_tokens normalizer pre_tokenizer "
                         "post_processor decoder model"));
    const json_t *version = json_object_get(root, "version");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0")))
        return bad(r, GW_ERR_UNSUPPORTED, "version", "only \"1.0\" is supported");
    warn_ignored(r, root, "truncation");
    warn_ignored(r, root, "padding");
    GW_TRY(read_model(r, json_object_get(root, "model")));
    GW_TRY(read_all_added(r, json_object_get(root, "added_tokens")));
    GW_TRY(read_optional(r, root, "normalizer", read_normalizer));
    GW_TRY(read_optional(r, root, "pre_tokenizer", read_pre_tokenizer));
    GW_TRY(read_optional(r, root, "post_processor", read_post_processor));
    GW_TRY(read_optional(r, root, "decoder", read_decoder));
    t->dec_none = t->ndec == 0;
    return gw_tok_finish(t, r->file, r->dg);
}

/* bos and eos: what tokenizer_config.json beside the file says, else the template, else usual
 * names. */
static int32_t special_of(const gw_tokenizer *t, const json_t *config, const char *key) {
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? gw_tokenizer_special_id(t, json_string_value(v)) : -1;
}

static int32_t first_present(const gw_tokenizer *t, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = gw_tokenizer_special_id(t, names[i]);
        if (id >= 0) return id;
    }
    return -1;
}

/* U+FF5C and U+2581, which DeepSeek's names are written with. */
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
static const char DEEPSEEK_BOS[] = "<" BAR "begin" LOW "of" LOW "sentence" BAR ">";
static const char DEEPSEEK_EOS[] = "<" BAR "end" LOW "of" LOW "sentence" BAR ">";

static void find_ends(gw_tokenizer *t, const char *file) {
    static const char *const BOS[] = {"<|begin_of_text|>", "<s>", "<bos>", DEEPSEEK_BOS};
    static const char *const EOS[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                      "<eos>",         "<|im_end|>",      DEEPSEEK_EOS};
    gw_arena a;
    gw_arena_init(&a);
    const char *slash = strrchr(file, '/');
    const char *dir = slash ? gw_arena_strndup(&a, file, (size_t)(slash - file)) : ".";
    const char *path = gw_path_join(&a, dir, "tokenizer_config.json");
    json_t *config = NULL;
    /* Without the file, or with a damaged one, the usual names decide. */
    if (gw_path_exists(path) && gw_json_read_file(path, 64 << 20, &config, NULL) != GW_OK)
        config = NULL;
    t->bos = special_of(t, config, "bos_token");
    t->eos = special_of(t, config, "eos_token");
    json_decref(config);
    if (t->bos < 0 && t->nbefore == 1) t->bos = t->before[0];
    if (t->bos < 0) t->bos = first_present(t, BOS, GW_COUNT(BOS));
    if (t->eos < 0 && t->nafter == 1) t->eos = t->after[0];
    if (t->eos < 0) t->eos = first_present(t, EOS, GW_COUNT(EOS));
    gw_arena_release(&a);
}

static void describe(gw_tokenizer *t) {
    const char *split = t->npre == 0 ? "no"
                        : t->pre[t->npre - 1].kind == GW_PRE_SCAN
                            ? gw_scan_name(t->pre[t->npre - 1].scan)
                        : t->nregex ? "regex"
                                    : "own";
    t->description =
        gw_arena_printf(&t->arena, "tokenizer.json BPE, %d tokens, %s splitter, Unicode %d",
                        (int)t->vocab_size, split, t->unicode_version);
}

gw_status gw_tokenizer_open_json(const char *name, const void *bytes, size_t n,
                                 const gw_tokenizer_options *options, gw_tokenizer **out,
                                 gw_diags *dg) {
    *out = NULL;
    json_t *root;
    GW_TRY(gw_json_parse(bytes, n, name, &root, dg));
    gw_tokenizer *t = gw_tok_new(options);
    reader r = {name, t, dg};
    gw_status st = read_root(&r, root);
    json_decref(root);
    if (st != GW_OK) {
        gw_tokenizer_free(t);
        return st;
    }
    find_ends(t, name);
    describe(t);
    t->hash = gw_hash128_of(bytes, n);
    t->hash.lo ^= (uint64_t)t->unicode_version;
    *out = t;
    return GW_OK;
}
