// SPDX-License-Identifier: Apache-2.0
// A tokenizer's life: opening by kind, deriving its tables, encoding.
//
// Readers of files (tokenizer_json.c, tiktoken.c) fill entries and steps; gw_tok_finish derives the
// rest, so that what is encoded and decoded depends on one set of tables whatever the file was.
// Encoding goes
//   added tokens as written | normaliser | normalised added tokens | pre-tokeniser | BPE
// each stage cutting the text further, and nothing crosses a cut. Byte-level models work on the
// bytes themselves: the alphabet of printable letters that their files use is undone once, here,
// for the keys of the vocabulary. The common case, one scanner and no text change, runs without a
// list of pieces.
//
// What must hold: a tokenizer is constant after gw_tok_finish; everything that an encoding writes
// to belongs to the scratch or to the caller.
#include "data/tokenizer.h" /* gw_tokenizer */

#include <string.h>

#include "base/io.h"             /* gw_file_read, gw_path_join */
#include "base/map.h"            /* gw_vec_push, gw_smap_put */
#include "data/tokenizer_impl.h" /* struct gw_tokenizer */
#include "data/unicode.h"        /* gw_utf8_decode */
#include "data/unicode_new.h"    /* GW_UNI_DEFAULT */

#define EOT "<|endoftext|>"

void gw_ids_release(gw_ids *ids) { gw_vec_release(ids); }

/* ---- the byte-level alphabet --------------------------------------------------------------------
 */

static bool prints(unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

/* Bytes that do not print are numbered in order: 00-20, 7F-A0, AD. */
static uint32_t letter_of(unsigned b) {
    if (prints(b)) return b;
    if (b <= 0x20) return 0x100 + b;
    if (b <= 0xa0) return 0x100 + 33 + (b - 0x7f);
    return 0x100 + 33 + 34;
}

static int byte_of(uint32_t cp) {
    if (cp < 0x100) return prints(cp) ? (int)cp : -1;
    uint32_t k = cp - 0x100;
    if (k <= 0x20) return (int)k;
    if (k < 33 + 34) return (int)(k - 33 + 0x7f);
    return k == 33 + 34 ? 0xad : -1;
}

bool gw_tok_from_alphabet(const char *content, size_t n, uint8_t *out, size_t *nout) {
    const uint8_t *p = (const uint8_t *)content, *end = p + n;
    size_t k = 0;
    int len;
    for (; p < end; p += len) {
        int b = byte_of(gw_utf8_decode(p, end, &len));
        if (b < 0) return false;
        out[k++] = (uint8_t)b;
    }
    *nout = k;
    return true;
}

void gw_tok_to_alphabet(gw_str *out, uint8_t byte) {
    uint8_t b[4];
    gw_str_add_n(out, b, (size_t)gw_utf8_encode(letter_of(byte), b));
}

/* ---- tables -------------------------------------------------------------------------------------
 */

gw_tokenizer *gw_tok_new(const gw_tokenizer_options *options) {
    gw_tokenizer *t = gw_mem_zalloc(sizeof *t);
    gw_arena_init(&t->arena);
    gw_bpe_init(&t->bpe);
    t->bos = t->eos = -1;
    t->unicode_version =
        options && options->unicode_version ? options->unicode_version : GW_UNI_DEFAULT;
    t->description = "";
    return t;
}

void gw_tokenizer_free(gw_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->nregex; i++) gw_regex_free(t->regex[i]);
    gw_trie_release(&t->plain_added);
    gw_trie_release(&t->normalized_added);
    gw_bpe_release(&t->bpe);
    gw_smap_release(&t->by_content);
    gw_mem_free(t->entries);
    gw_arena_release(&t->arena);
    gw_mem_free(t);
}

void gw_tok_grow(gw_tokenizer *t, int32_t size) {
    if (size <= t->vocab_size) return;
    t->entries = gw_mem_realloc(t->entries, (size_t)size * sizeof *t->entries);
    memset(t->entries + t->vocab_size, 0, (size_t)(size - t->vocab_size) * sizeof *t->entries);
    t->vocab_size = size;
}

static void index_byte_level(gw_tokenizer *t, int32_t id) {
    const gw_tok_entry *e = &t->entries[id];
    uint8_t *raw = gw_arena_alloc(&t->arena, e->content_len + 1);
    size_t n;
    if (!gw_tok_from_alphabet(e->content, e->content_len, raw, &n) || n == 0) return;
    gw_smap_put(&t->bpe.lookup, (const char *)raw, n, (uint32_t)id);
    if (n == 1) t->bpe.byte_id[raw[0]] = id;
}

static void index_model(gw_tokenizer *t) {
    for (int32_t id = 0; id < t->vocab_size; id++) {
        const gw_tok_entry *e = &t->entries[id];
        if (!e->in_model) continue;
        if (t->bpe.byte_level)
            index_byte_level(t, id);
        else
            gw_smap_put(&t->bpe.lookup, e->content, e->content_len, (uint32_t)id);
    }
    for (unsigned b = 0; t->bpe.byte_fallback && b < 256; b++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", b);
        uint32_t id;
        if (gw_smap_find(&t->by_content, name, (size_t)n, &id) && t->entries[id].in_model)
            t->bpe.fallback_id[b] = (int32_t)id;
    }
}

static gw_status index_added(gw_tokenizer *t, gw_diags *dg) {
    gw_norm_scratch s = {.regex = gw_regex_scratch_new()};
    gw_status st = GW_OK;
    for (int32_t id = 0; id < t->vocab_size && st == GW_OK; id++) {
        const gw_tok_entry *e = &t->entries[id];
        if (!e->added) continue;
        const uint8_t *text = (const uint8_t *)e->content;
        size_t n = e->content_len;
        if (!e->normalized)
            gw_trie_add(&t->plain_added, text, n, id);
        else if ((st = gw_norm_run(t->norm, t->nnorm, &s, text, n, &text, &n, dg)) == GW_OK)
            gw_trie_add(&t->normalized_added, text, n, id);
    }
    gw_regex_scratch_free(s.regex);
    gw_norm_scratch_release(&s);
    return st;
}

static gw_status render_tokens(gw_tokenizer *t, gw_diags *dg) {
    gw_str s = {0};
    gw_status st = GW_OK;
    gw_regex_scratch *regex = t->nregex ? gw_regex_scratch_new() : NULL;
    for (int32_t id = 0; id < t->vocab_size && st == GW_OK; id++) {
        gw_tok_entry *e = &t->entries[id];
        if (!e->present || e->bytes) continue;
        gw_str_clear(&s);
        st = gw_dec_token(t, e, false, false, regex, &s, dg);
        e->bytes_len = (uint32_t)s.len;
        e->bytes = gw_arena_dup(&t->arena, gw_str_c(&s), (int64_t)s.len + 1);
    }
    gw_regex_scratch_free(regex);
    gw_str_release(&s);
    return st;
}

static void warn_lost_bytes(const gw_tokenizer *t, const char *name, gw_diags *dg) {
    int lost = 0;
    for (int b = 0; b < 256; b++) lost += t->bpe.byte_id[b] < 0;
    if (!t->bpe.byte_level || !lost || t->bpe.unk >= 0 || *t->bpe.suffix) return;
    gw_diag *g = gw_diag_add(dg, GW_WARNING, GW_OK, "tokenizer-lost-bytes",
                             (gw_where){.file = name}, "%d of the 256 bytes have no token", lost);
    gw_diag_detail(dg, g, "text that holds them loses them, as in the library the file is for");
}

void gw_tok_find_stranded(gw_tokenizer *t) {
    enum { MOST = 64 }; /* bytes of a content whose text may be a short word */
    uint8_t raw[MOST + 1];
    size_t n;
    if (!t->bpe.ignore_merges || !t->bpe.all_bytes) return;
    t->bpe.stranded = false;
    for (int32_t id = 0; id < t->vocab_size && !t->bpe.stranded; id++) {
        const gw_tok_entry *e = &t->entries[id];
        if (e->in_model && e->content_len <= MOST &&
            gw_tok_from_alphabet(e->content, e->content_len, raw, &n) && n > 1)
            t->bpe.stranded = gw_bpe_unmerged(&t->bpe, raw, n);
    }
}

gw_status gw_tok_finish(gw_tokenizer *t, const char *name, gw_diags *dg) {
    t->fuse_at = t->ndec;
    for (int i = 0; i < t->ndec; i++) {
        gw_dec_kind k = t->dec[i].kind;
        if (k == GW_DEC_FUSE && t->fuse_at == t->ndec) t->fuse_at = i;
        t->first_differs |= k == GW_DEC_METASPACE && !t->dec[i].keep_first;
        t->last_differs |= k == GW_DEC_BPE;
    }
    index_model(t);
    warn_lost_bytes(t, name, dg);
    GW_TRY(index_added(t, dg));
    gw_bpe_seal(&t->bpe);
    gw_tok_find_stranded(t);
    return render_tokens(t, dg);
}

/* ---- opening ------------------------------------------------------------------------------------
 */

static gw_tokenizer *open_bytes(const gw_tokenizer_options *options) {
    gw_tokenizer *t = gw_tok_new(options);
    gw_tok_grow(t, 257);
    gw_str s = {0};
    for (int b = 0; b < 256; b++) {
        gw_tok_entry *e = &t->entries[b];
        gw_str_clear(&s);
        gw_tok_to_alphabet(&s, (uint8_t)b);
        uint8_t raw[2] = {(uint8_t)b, 0};
        *e = (gw_tok_entry){.content = gw_arena_strdup(&t->arena, gw_str_c(&s)),
                            .content_len = (uint32_t)s.len,
                            .present = true,
                            .in_model = true,
                            .bytes = gw_arena_dup(&t->arena, raw, 2),
                            .bytes_len = 1};
        gw_smap_put(&t->by_content, e->content, e->content_len, (uint32_t)b);
        t->bpe.byte_id[b] = b;
    }
    gw_str_release(&s);
    t->entries[256] = (gw_tok_entry){.content = EOT,
                                     .content_len = sizeof EOT - 1,
                                     .bytes = (const uint8_t *)EOT,
                                     .bytes_len = sizeof EOT - 1,
                                     .present = true,
                                     .added = true,
                                     .special = true};
    gw_smap_put_c(&t->by_content, EOT, 256);
    gw_trie_add(&t->plain_added, (const uint8_t *)EOT, sizeof EOT - 1, 256);
    t->bpe.byte_level = t->identity = true;
    t->eos = 256;
    t->hash = gw_hash128_of("gradwright bytes 1", 18);
    t->description = "bytes, 257 tokens";
    return t;
}

static gw_status open_file(const char *path, bool tiktoken, const gw_tokenizer_options *options,
                           gw_tokenizer **out, gw_diags *dg) {
    gw_str text = {0};
    gw_status st = gw_file_read(path, (int64_t)1 << 30, &text, dg);
    if (st == GW_OK)
        st = (tiktoken ? gw_tokenizer_open_tiktoken
                       : gw_tokenizer_open_json)(path, gw_str_c(&text), text.len, options, out, dg);
    gw_str_release(&text);
    return st;
}

gw_status gw_tokenizer_open(const char *spec, const gw_tokenizer_options *options,
                            gw_tokenizer **out, gw_diags *dg) {
    *out = NULL;
    int version = options ? options->unicode_version : 0;
    if (version && (version < GW_UNI_OLDEST || version > GW_UNI_NEWEST))
        return GW_FAIL(dg, GW_ERR_USAGE, "tokenizer-unicode",
                       "unicode version %d is not one of 13 to 17", version);
    if (!strcmp(spec, "bytes")) {
        *out = open_bytes(options);
        return GW_OK;
    }
    gw_arena a;
    gw_arena_init(&a);
    const char *path = gw_path_is_dir(spec) ? gw_path_join(&a, spec, "tokenizer.json") : spec;
    gw_status st;
    if (!gw_path_exists(path)) {
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "tokenizer-open",
                                 (gw_where){.file = spec}, "no tokenizer at '%s'", path);
        gw_diag_hint(dg, g,
                     "give a tokenizer.json, a .tiktoken file, a directory that holds a "
                     "tokenizer.json, or the name bytes");
        st = GW_ERR_IO;
    } else {
        st = open_file(path, !gw_str_ends(path, ".json"), options, out, dg);
    }
    gw_arena_release(&a);
    return st;
}

/* ---- asking -------------------------------------------------------------------------------------
 */

int32_t gw_tokenizer_vocab_size(const gw_tokenizer *t) { return t->vocab_size; }
int gw_tokenizer_unicode(const gw_tokenizer *t) { return t->unicode_version; }
int32_t gw_tokenizer_bos(const gw_tokenizer *t) { return t->bos; }
int32_t gw_tokenizer_eos(const gw_tokenizer *t) { return t->eos; }
gw_hash128 gw_tokenizer_hash(const gw_tokenizer *t) { return t->hash; }
const char *gw_tokenizer_describe(const gw_tokenizer *t) { return t->description; }

int32_t gw_tokenizer_token_id(const gw_tokenizer *t, const char *content, size_t n) {
    uint32_t id;
    return gw_smap_find(&t->by_content, content, n, &id) ? (int32_t)id : -1;
}

int32_t gw_tokenizer_special_id(const gw_tokenizer *t, const char *content) {
    int32_t id = gw_tokenizer_token_id(t, content, strlen(content));
    return id >= 0 && t->entries[id].added ? id : -1;
}

bool gw_tokenizer_is_special(const gw_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab_size && t->entries[id].special;
}

const uint8_t *gw_tokenizer_token_bytes(const gw_tokenizer *t, int32_t id, size_t *n) {
    bool has = id >= 0 && id < t->vocab_size && t->entries[id].present;
    *n = has ? t->entries[id].bytes_len : 0;
    return has ? t->entries[id].bytes : NULL;
}

int64_t gw_tokenizer_bytes(const gw_tokenizer *t) {
    int64_t slots = (int64_t)t->by_content.cap + t->bpe.lookup.cap;
    return (int64_t)sizeof *t + t->arena.total_bytes +
           (int64_t)t->vocab_size * (int64_t)sizeof *t->entries +
           (int64_t)t->bpe.pairs_cap * (int64_t)sizeof *t->bpe.pairs + slots * 24;
}

/* ---- encoding -----------------------------------------------------------------------------------
 */

gw_tok_scratch *gw_tok_scratch_new(void) {
    gw_tok_scratch *s = gw_mem_zalloc(sizeof *s);
    s->bpe = gw_bpe_scratch_new();
    s->scanner = gw_scanner_new();
    s->regex = gw_regex_scratch_new();
    s->norm.regex = s->pre.regex = s->regex;
    return s;
}

void gw_tok_scratch_free(gw_tok_scratch *s) {
    if (!s) return;
    gw_bpe_scratch_free(s->bpe);
    gw_scanner_free(s->scanner);
    gw_norm_scratch_release(&s->norm);
    gw_pre_scratch_release(&s->pre);
    gw_regex_scratch_free(s->regex);
    gw_mem_free(s);
}

int64_t gw_tok_scratch_ops(const gw_tok_scratch *s) { return gw_bpe_scratch_ops(s->bpe); }
int64_t gw_tok_scratch_bytes(const gw_tok_scratch *s) {
    int64_t texts = (int64_t)(s->norm.text[0].cap + s->norm.text[1].cap + s->norm.cps_cap * 4 +
                              s->pre.text[0].cap + s->pre.text[1].cap + s->pre.stand_in.cap);
    int64_t pieces = s->pre.pieces[0].cap + s->pre.pieces[1].cap;
    return (int64_t)sizeof *s + gw_bpe_scratch_bytes(s->bpe) + gw_scanner_bytes(s->scanner) +
           texts + pieces * (int64_t)sizeof(gw_piece);
}
int64_t gw_tok_scratch_specials(const gw_tok_scratch *s) { return s->specials; }

/* Text without added tokens. */
static gw_status encode_plain(const gw_tokenizer *t, gw_tok_scratch *s, const uint8_t *text,
                              size_t n, bool at_start, gw_ids *out, gw_diags *dg) {
    if (t->identity) {
        for (size_t i = 0; i < n; i++) gw_vec_push(out, text[i]);
        return GW_OK;
    }
    if (t->npre == 1 && t->pre[0].kind == GW_PRE_SCAN) {
        const uint8_t *base;
        const uint32_t *bounds;
        int64_t count;
        gw_scanner_begin(s->scanner, t->pre[0].scan, t->unicode_version, text, n);
        while ((count = gw_scanner_next(s->scanner, &base, &bounds)) > 0)
            gw_bpe_encode_pieces(&t->bpe, s->bpe, base, bounds, count, out);
        return GW_OK;
    }
    const uint8_t *cut;
    const gw_piece *pieces;
    int64_t npieces;
    GW_TRY(gw_pre_run(t->pre, t->npre, t->unicode_version, &s->pre, text, n, at_start, &cut,
                      &pieces, &npieces, dg));
    for (int64_t i = 0; i < npieces; i++)
        gw_bpe_encode(&t->bpe, s->bpe, cut + pieces[i].start, pieces[i].len, out);
    return GW_OK;
}

typedef gw_status encode_part(const gw_tokenizer *t, gw_tok_scratch *s, const uint8_t *text,
                              size_t n, bool at_start, bool plain, gw_ids *out, gw_diags *dg);

/* Cuts text at the added tokens of `trie`; what is between goes through `part`. */
static gw_status encode_around(const gw_tokenizer *t, gw_tok_scratch *s, const gw_trie *trie,
                               encode_part *part, const uint8_t *text, size_t n, bool at_start,
                               bool plain, gw_ids *out, gw_diags *dg) {
    size_t from = 0, pos = 0, a, b;
    int32_t id;
    while ((id = gw_added_next(t, trie, text, n, from, &pos, plain, &s->specials, &a, &b)) >= 0) {
        if (a > from)
            GW_TRY(part(t, s, text + from, a - from, at_start && from == 0, plain, out, dg));
        gw_vec_push(out, id);
        from = b;
    }
    return from < n ? part(t, s, text + from, n - from, at_start && from == 0, plain, out, dg)
                    : GW_OK;
}

static gw_status encode_last(const gw_tokenizer *t, gw_tok_scratch *s, const uint8_t *text,
                             size_t n, bool at_start, bool plain, gw_ids *out, gw_diags *dg) {
    (void)plain;
    return encode_plain(t, s, text, n, at_start, out, dg);
}

static gw_status encode_normalized(const gw_tokenizer *t, gw_tok_scratch *s, const uint8_t *text,
                                   size_t n, bool at_start, bool plain, gw_ids *out, gw_diags *dg) {
    GW_TRY(gw_norm_run(t->norm, t->nnorm, &s->norm, text, n, &text, &n, dg));
    return encode_around(t, s, &t->normalized_added, encode_last, text, n, at_start, plain, out,
                         dg);
}

gw_status gw_tokenizer_encode(const gw_tokenizer *t, gw_tok_scratch *s, const void *text, size_t n,
                              unsigned flags, gw_ids *out, gw_diags *dg) {
    if (n > INT32_MAX - 1)
        return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-text-too-long",
                       "a text of %zu bytes; the most is 2147483646: cut it into documents", n);
    if (s->owner.lo != t->hash.lo || s->owner.hi != t->hash.hi) gw_bpe_scratch_flush(s->bpe);
    s->owner = t->hash;
    bool template = (flags & GW_ENCODE_TEMPLATE) != 0;
    for (int i = 0; template && i < t->nbefore; i++) gw_vec_push(out, t->before[i]);
    GW_TRY(encode_around(t, s, &t->plain_added, encode_normalized, text, n, true,
                         !(flags & GW_ENCODE_SPECIALS), out, dg));
    for (int i = 0; template && i < t->nafter; i++) gw_vec_push(out, t->after[i]);
    return GW_OK;
}
