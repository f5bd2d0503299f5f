// SPDX-License-Identifier: Apache-2.0
// Ids to bytes.
//
// The decoders of tokenizer.json are steps over a list of token strings. All that are read here
// work on one token at a time, except that Strip after Fuse works on the ends of the whole text,
// and Metaspace and BPEDecoder treat the first and the last token apart. So each token is rendered
// once, when the tokenizer opens, as an inner token; the first and last of a text are rendered anew
// where that differs.
//
// Output is exact bytes: where the reference library would put U+FFFD for bytes that are not UTF-8
// (a character cut at a token's edge), the bytes themselves come. Display goes through
// gw_tok_stream. Added tokens decode to their content, whatever its characters.
#include <string.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "data/tokenizer_impl.h" /* gw_tokenizer, gw_dec_step */
#include "data/unicode.h"        /* gw_utf8_valid_prefix */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte of a token "<0xNN>", or -1. */
static int fallback_byte(const gw_str *s) {
    if (s->len != 6 || memcmp(s->data, "<0x", 3) || s->data[5] != '>') return -1;
    int a = hex_digit(s->data[3]), b = hex_digit(s->data[4]);
    return a < 0 || b < 0 ? -1 : 16 * a + b;
}

static void strip_ends(gw_str *s, const gw_dec_step *st, bool start, bool stop) {
    size_t a = 0, m = st->text_len;
    for (int64_t k = 0; start && k < st->start && s->len - a >= m; k++) {
        if (memcmp(s->data + a, st->text, m)) break;
        a += m;
    }
    size_t b = s->len;
    for (int64_t k = 0; stop && k < st->stop && b - a >= m; k++) {
        if (memcmp(s->data + b - m, st->text, m)) break;
        b -= m;
    }
    if (a) memmove(s->data, s->data + a, b - a);
    s->len = b - a;
    if (s->data) s->data[s->len] = 0;
}

static void replace_text(gw_str *s, const char *pattern, size_t m, const char *by, gw_str *tmp) {
    gw_norm_step r = {.kind = GW_NORM_REPLACE,
                      .pattern = pattern,
                      .pattern_len = m,
                      .content = by,
                      .content_len = strlen(by)};
    gw_str_clear(tmp);
    /* A plain replacement cannot fail. */
    gw_status ok = gw_norm_replace(&r, NULL, (const uint8_t *)gw_str_c(s), s->len, tmp, NULL);
    (void)ok;
    gw_str_clear(s);
    gw_str_add_n(s, gw_str_c(tmp), tmp->len);
}

static void byte_level(gw_str *s, gw_str *tmp) {
    gw_str_clear(tmp);
    gw_str_reserve(tmp, s->len + 1);
    size_t n;
    if (!gw_tok_from_alphabet(gw_str_c(s), s->len, (uint8_t *)tmp->data, &n)) return;
    gw_str_clear(s);
    gw_str_add_n(s, tmp->data, n);
}

static gw_status apply(const gw_dec_step *st, bool first, bool last, gw_regex_scratch *regex,
                       gw_str *s, gw_str *tmp, gw_diags *dg) {
    switch (st->kind) {
    case GW_DEC_BYTE_LEVEL: byte_level(s, tmp); break;
    case GW_DEC_REPLACE:
        gw_str_clear(tmp);
        GW_TRY(gw_norm_replace(&st->replace, regex, (const uint8_t *)gw_str_c(s), s->len, tmp, dg));
        gw_str_clear(s);
        gw_str_add_n(s, gw_str_c(tmp), tmp->len);
        break;
    case GW_DEC_BYTE_FALLBACK: {
        int b = fallback_byte(s);
        if (b < 0) break;
        gw_str_clear(s);
        gw_str_add_char(s, (char)b);
        break;
    }
    case GW_DEC_FUSE: break;
    case GW_DEC_STRIP: strip_ends(s, st, true, true); break;
    case GW_DEC_METASPACE:
        replace_text(s, st->text, st->text_len, first && !st->keep_first ? "" : " ", tmp);
        break;
    case GW_DEC_BPE: replace_text(s, st->text, st->text_len, last ? "" : " ", tmp); break;
    }
    return GW_OK;
}

gw_status gw_dec_token(const gw_tokenizer *t, const gw_tok_entry *entry, bool first, bool last,
                       gw_regex_scratch *regex, gw_str *out, gw_diags *dg) {
    gw_str s = {0}, tmp = {0};
    gw_status st = GW_OK;
    gw_str_add_n(&s, entry->content, entry->content_len);
    int upto = entry->added ? 0 : t->fuse_at;
    for (int i = 0; i < upto && st == GW_OK; i++)
        st = apply(&t->dec[i], first, last, regex, &s, &tmp, dg);
    if (st == GW_OK) gw_str_add_n(out, gw_str_c(&s), s.len);
    gw_str_release(&s);
    gw_str_release(&tmp);
    return st;
}

/* Renders a first or last token; a scratch for regexes is made only where a decoder has one. */
static gw_status render_edge(const gw_tokenizer *t, const gw_tok_entry *e, bool first, bool last,
                             gw_str *out, gw_diags *dg) {
    gw_regex_scratch *regex = t->nregex ? gw_regex_scratch_new() : NULL;
    gw_status st = gw_dec_token(t, e, first, last, regex, out, dg);
    gw_regex_scratch_free(regex);
    return st;
}

static gw_status decode_one(const gw_tokenizer *t, const gw_tok_entry *e, bool first, bool last,
                            gw_str *out, gw_diags *dg) {
    if (t->dec_none && !first) gw_str_add_char(out, ' ');
    if ((first && t->first_differs) || (last && t->last_differs))
        return render_edge(t, e, first, last, out, dg);
    gw_str_add_n(out, e->bytes, e->bytes_len);
    return GW_OK;
}

static bool emits(const gw_tokenizer *t, int32_t id, bool skip_special) {
    const gw_tok_entry *e = &t->entries[id];
    return e->present && !(skip_special && e->special);
}

/* Strip steps after Fuse, on the text that begins at `base`. */
static void strip_whole(const gw_tokenizer *t, gw_str *out, size_t base) {
    gw_str whole = {0};
    if (t->fuse_at >= t->ndec) return;
    gw_str_add_n(&whole, gw_str_c(out) + base, out->len - base);
    for (int i = t->fuse_at; i < t->ndec; i++)
        if (t->dec[i].kind == GW_DEC_STRIP) strip_ends(&whole, &t->dec[i], true, true);
    out->len = base;
    gw_str_add_n(out, gw_str_c(&whole), whole.len);
    gw_str_release(&whole);
}

gw_status gw_tokenizer_decode(const gw_tokenizer *t, const int32_t *ids, int64_t n,
                              bool skip_special, gw_str *out, gw_diags *dg) {
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return GW_FAIL(dg, GW_ERR_FORMAT, "tokenizer-id",
                           "id %d at index %lld is outside the vocabulary of %d", (int)ids[i],
                           (long long)i, (int)t->vocab_size);
        if (emits(t, ids[i], skip_special)) last = i;
    }
    size_t base = out->len;
    bool first = true;
    for (int64_t i = 0; i <= last; i++) {
        if (!emits(t, ids[i], skip_special)) continue;
        GW_TRY(decode_one(t, &t->entries[ids[i]], first, i == last, out, dg));
        first = false;
    }
    strip_whole(t, out, base);
    return GW_OK;
}

/* ---- display ------------------------------------------------------------------------------------
 */

static void show_byte(gw_tok_stream *st, uint8_t b, gw_str *out) {
    st->held[st->nheld++] = b;
    while (st->nheld > 0) {
        size_t ok = gw_utf8_valid_prefix(st->held, st->nheld);
        if (ok == 0 && gw_utf8_may_complete(st->held, st->nheld)) return;
        size_t used = ok ? ok : gw_utf8_bad_part(st->held, st->nheld);
        if (ok)
            gw_str_add_n(out, st->held, ok);
        else
            gw_str_add(out, "\xef\xbf\xbd");
        memmove(st->held, st->held + used, st->nheld - used);
        st->nheld = (uint8_t)(st->nheld - used);
    }
}

void gw_tok_stream_add(const gw_tokenizer *t, gw_tok_stream *st, int32_t id, bool skip_special,
                       gw_str *out) {
    if (id < 0 || id >= t->vocab_size || !emits(t, id, skip_special)) return;
    gw_str bytes = {0};
    /* Rendering one token can fail only by a regex limit; then it shows nothing. */
    gw_status ok = decode_one(t, &t->entries[id], !st->started, false, &bytes, NULL);
    if (!st->started && ok == GW_OK)
        for (int i = t->fuse_at; i < t->ndec; i++)
            if (t->dec[i].kind == GW_DEC_STRIP) strip_ends(&bytes, &t->dec[i], true, false);
    st->started = true;
    for (size_t i = 0; i < bytes.len; i++) show_byte(st, (uint8_t)bytes.data[i], out);
    gw_str_release(&bytes);
}

void gw_tok_stream_end(gw_tok_stream *st, gw_str *out) {
    if (st->nheld) gw_str_add(out, "\xef\xbf\xbd");
    st->nheld = 0;
}
