// SPDX-License-Identifier: Apache-2.0
// Reading .tiktoken files.
//
// A line is base64(token) and its rank; the rank is the id and the priority. Merging joins the
// adjacent pair whose concatenation has the lowest rank, and a piece that is a token as a whole is
// not merged at all. That is BPE with pairs: each way to cut a token in two tokens is a pair that
// becomes it at its rank, and ignore_merges. The file has no special tokens and no splitting rule:
// both come from the options, or from the number of ranks where that is one of the published
// files'.
#include <string.h>

#include "base/compiler.h"       /* GW_COUNT */
#include "base/io.h"             /* gw_str */
#include "data/tokenizer_impl.h" /* gw_tokenizer */

enum { MAX_TOKEN_BYTES = 1024, MAX_RANKS = 1 << 22 };

static const gw_tok_special GPT2_SPECIALS[] = {{"<|endoftext|>", 50256}};
static const gw_tok_special CL100K_SPECIALS[] = {{"<|endoftext|>", 100257},
                                                 {"<|fim_prefix|>", 100258},
                                                 {"<|fim_middle|>", 100259},
                                                 {"<|fim_suffix|>", 100260},
                                                 {"<|endofprompt|>", 100276}};
static const gw_tok_special O200K_SPECIALS[] = {{"<|endoftext|>", 199999},
                                                {"<|endofprompt|>", 200018}};
static const struct published {
    int32_t ranks;
    gw_scan scan;
    const gw_tok_special *specials;
    int nspecials;
} PUBLISHED[] = {{50256, GW_SCAN_GPT2, GPT2_SPECIALS, (int)GW_COUNT(GPT2_SPECIALS)},
                 {100256, GW_SCAN_CL100K, CL100K_SPECIALS, (int)GW_COUNT(CL100K_SPECIALS)},
                 {199998, GW_SCAN_O200K, O200K_SPECIALS, (int)GW_COUNT(O200K_SPECIALS)},
                 {128000, GW_SCAN_LLAMA3, NULL, 0}};

static int sextet(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes padded base64; returns the number of bytes or -1. out holds 3 * n / 4. */
static int64_t base64(const char *p, size_t n, uint8_t *out) {
    if (n == 0 || n % 4) return -1;
    int64_t k = 0;
    size_t pad = p[n - 1] != '=' ? 0 : p[n - 2] != '=' ? 1 : 2;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int v = i >= n - pad ? 0 : sextet(p[i]);
        if (v < 0) return -1;
        bits = bits << 6 | (uint32_t)v;
        if (i % 4 == 3) {
            out[k++] = (uint8_t)(bits >> 16);
            out[k++] = (uint8_t)(bits >> 8);
            out[k++] = (uint8_t)bits;
        }
    }
    return k - (int64_t)pad;
}

static gw_status bad_line(const char *name, int line, const char *what, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "tokenizer-tiktoken",
                      (gw_where){.file = name, .line = line}, "%s", what);
}

static gw_status add_token(gw_tokenizer *t, const char *name, int line, const uint8_t *raw,
                           size_t n, int64_t rank, gw_str *content, gw_diags *dg) {
    /* Ranks are dense, give or take: one of a billion is damage, not a vocabulary. */
    if (rank >= MAX_RANKS || rank > 2 * (int64_t)line + 65536)
        return bad_line(name, line, "rank out of range", dg);
    gw_tok_grow(t, rank < t->vocab_size ? t->vocab_size : (int32_t)rank + 1);
    gw_tok_entry *e = &t->entries[rank];
    if (e->present) return bad_line(name, line, "this rank was given before", dg);
    gw_str_clear(content);
    for (size_t i = 0; i < n; i++) gw_tok_to_alphabet(content, raw[i]);
    *e = (gw_tok_entry){.content =
                            gw_arena_dup(&t->arena, gw_str_c(content), (int64_t)content->len + 1),
                        .content_len = (uint32_t)content->len,
                        .bytes = gw_arena_dup(&t->arena, raw, (int64_t)n),
                        .bytes_len = (uint32_t)n,
                        .present = true,
                        .in_model = true};
    if (!gw_smap_put(&t->by_content, e->content, e->content_len, (uint32_t)rank))
        return bad_line(name, line, "this token was given before", dg);
    return GW_OK;
}

static gw_status read_line(gw_tokenizer *t, const char *name, int line, const char *p, size_t n,
                           gw_str *content, gw_diags *dg) {
    uint8_t raw[MAX_TOKEN_BYTES];
    const char *sp = memchr(p, ' ', n);
    if (!sp) return bad_line(name, line, "expected base64, a space and a rank", dg);
    size_t m = (size_t)(sp - p), digits = n - m - 1;
    if (m > sizeof raw / 3 * 4) return bad_line(name, line, "token longer than 1023 bytes", dg);
    int64_t k = base64(p, m, raw);
    if (k <= 0) return bad_line(name, line, "not base64", dg);
    if (digits == 0 || digits > 8) return bad_line(name, line, "not a rank", dg);
    int64_t rank = 0;
    for (size_t i = m + 1; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return bad_line(name, line, "not a rank", dg);
        rank = 10 * rank + (p[i] - '0');
    }
    return add_token(t, name, line, raw, (size_t)k, rank, content, dg);
}

static gw_status read_lines(gw_tokenizer *t, const char *name, const char *p, size_t n,
                            gw_diags *dg) {
    gw_str content = {0};
    gw_status st = GW_OK;
    int line = 0;
    for (size_t i = 0; i < n && st == GW_OK;) {
        const char *nl = memchr(p + i, '\n', n - i);
        size_t e = nl ? (size_t)(nl - p) : n, end = e;
        line++;
        if (end > i && p[end - 1] == '\r') end--;
        if (end > i) st = read_line(t, name, line, p + i, end - i, &content, dg);
        i = e + 1;
    }
    gw_str_release(&content);
    return st;
}

static void add_merges(gw_tokenizer *t) {
    const gw_bpe *m = &t->bpe;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        const gw_tok_entry *e = &t->entries[id];
        for (uint32_t k = 1; e->in_model && k < e->bytes_len; k++) {
            uint32_t a, b;
            if (gw_smap_find(&m->lookup, (const char *)e->bytes, k, &a) &&
                gw_smap_find(&m->lookup, (const char *)e->bytes + k, e->bytes_len - k, &b))
                gw_bpe_add_merge(&t->bpe, (int32_t)a, (int32_t)b, (uint32_t)id, id);
        }
    }
}

static gw_status choose_scan(const gw_tokenizer_options *o, const struct published *known,
                             const char *name, gw_scan *scan, gw_diags *dg) {
    static const struct {
        const char *part;
        gw_scan scan;
    } NAMES[] = {{"o200k", GW_SCAN_O200K},  {"cl100k", GW_SCAN_CL100K}, {"r50k", GW_SCAN_GPT2},
                 {"p50k", GW_SCAN_GPT2},    {"gpt2", GW_SCAN_GPT2},     {"qwen", GW_SCAN_QWEN2},
                 {"llama3", GW_SCAN_LLAMA3}};
    if (o && o->pattern) {
        if (gw_scan_from_name(o->pattern, scan)) return GW_OK;
        return gw_fail_at(dg, GW_ERR_USAGE, "tokenizer-pattern", (gw_where){.file = name},
                          "unknown splitting pattern '%s': gpt2, cl100k, o200k, llama3 or qwen2",
                          o->pattern);
    }
    if (known) {
        *scan = known->scan;
        return GW_OK;
    }
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    for (size_t i = 0; i < GW_COUNT(NAMES); i++)
        if (strstr(base, NAMES[i].part)) {
            *scan = NAMES[i].scan;
            return GW_OK;
        }
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "tokenizer-pattern", (gw_where){.file = name},
                    "a .tiktoken file does not say how it splits text");
    gw_diag_hint(dg, g, "name the pattern: gpt2, cl100k, o200k, llama3 or qwen2");
    return GW_ERR_USAGE;
}

static gw_status add_special(gw_tokenizer *t, const char *name, const gw_tok_special *sp,
                             gw_diags *dg) {
    int32_t id = sp->id < 0 ? t->vocab_size : sp->id;
    size_t n = strlen(sp->content);
    if (id >= MAX_RANKS || n == 0)
        return gw_fail_at(dg, GW_ERR_USAGE, "tokenizer-special", (gw_where){.file = name},
                          "special token '%s' with id %d", sp->content, (int)id);
    gw_tok_grow(t, id < t->vocab_size ? t->vocab_size : id + 1);
    gw_tok_entry *e = &t->entries[id];
    if (e->present)
        return gw_fail_at(dg, GW_ERR_USAGE, "tokenizer-special", (gw_where){.file = name},
                          "id %d of special token '%s' is taken", (int)id, sp->content);
    const char *content = gw_arena_strdup(&t->arena, sp->content);
    *e = (gw_tok_entry){.content = content,
                        .content_len = (uint32_t)n,
                        .present = true,
                        .added = true,
                        .special = true};
    if (!gw_smap_put(&t->by_content, content, n, (uint32_t)id))
        return gw_fail_at(dg, GW_ERR_USAGE, "tokenizer-special", (gw_where){.file = name},
                          "special token '%s' is a token already", sp->content);
    if (!strcmp(content, "<|endoftext|>") || !strcmp(content, "<|end_of_text|>")) t->eos = id;
    if (!strcmp(content, "<|begin_of_text|>")) t->bos = id;
    return GW_OK;
}

static gw_status build(gw_tokenizer *t, const char *name, const char *text, size_t n,
                       const gw_tokenizer_options *o, gw_diags *dg) {
    GW_TRY(read_lines(t, name, text, n, dg));
    const struct published *known = NULL;
    for (size_t i = 0; i < GW_COUNT(PUBLISHED); i++)
        if (PUBLISHED[i].ranks == t->vocab_size) known = &PUBLISHED[i];
    gw_scan scan;
    GW_TRY(choose_scan(o, known, name, &scan, dg));
    t->pre[t->npre++] = (gw_pre_step){.kind = GW_PRE_SCAN, .scan = scan};
    t->dec[t->ndec++] = (gw_dec_step){.kind = GW_DEC_BYTE_LEVEL};
    t->bpe.byte_level = t->bpe.ignore_merges = true;
    const gw_tok_special *sp = o && o->specials ? o->specials : known ? known->specials : NULL;
    int nsp = o && o->specials ? o->nspecials : known ? known->nspecials : 0;
    int32_t ranks = t->vocab_size;
    for (int i = 0; i < nsp; i++) GW_TRY(add_special(t, name, &sp[i], dg));
    GW_TRY(gw_tok_finish(t, name, dg));
    for (int b = 0; b < 256; b++)
        if (t->bpe.byte_id[b] < 0)
            return gw_fail_at(dg, GW_ERR_FORMAT, "tokenizer-tiktoken", (gw_where){.file = name},
                              "no token for byte 0x%02x", (unsigned)b);
    add_merges(t);
    gw_bpe_seal(&t->bpe);
    gw_tok_find_stranded(t);
    t->description =
        gw_arena_printf(&t->arena, ".tiktoken, %d ranks and %d specials, %s splitter, Unicode %d",
                        (int)ranks, nsp, gw_scan_name(scan), t->unicode_version);
    return GW_OK;
}

/* Covers what the options decide, too. */
static gw_hash128 identify(const gw_tokenizer *t, const void *bytes, size_t n) {
    gw_hasher *h = gw_hasher_new();
    gw_hasher_add(h, bytes, n);
    gw_hasher_add(h, t->description, strlen(t->description));
    gw_hasher_add(h, &t->unicode_version, sizeof t->unicode_version);
    for (int32_t id = 0; id < t->vocab_size; id++)
        if (t->entries[id].added) {
            gw_hasher_add(h, &id, sizeof id);
            gw_hasher_add(h, t->entries[id].content, t->entries[id].content_len);
        }
    gw_hash128 out = gw_hasher_get(h);
    gw_hasher_free(h);
    return out;
}

gw_status gw_tokenizer_open_tiktoken(const char *name, const void *bytes, size_t n,
                                     const gw_tokenizer_options *options, gw_tokenizer **out,
                                     gw_diags *dg) {
    gw_tokenizer *t = gw_tok_new(options);
    gw_status st = build(t, name, bytes, n, options, dg);
    if (st == GW_OK) {
        t->hash = identify(t, bytes, n);
        *out = t;
    } else {
        *out = NULL;
        gw_tokenizer_free(t);
    }
    return st;
}
