// SPDX-License-Identifier: Apache-2.0
// Extraction of a page's main text, from bytes to lines.
//
// Four steps: decide what encoding the bytes have and, where that is not UTF-8 without fault,
// convert them (encoding.h); parse (html.h); count and mark (extract_mark.c); choose the part that
// is the main text (extract_choose.c); write its lines (extract_emit.c). Pages in valid UTF-8 are
// never copied: the tree points into the caller's bytes.
//
// What must hold: the result is valid UTF-8 and depends on bytes and options alone; there is no
// clock, for the budget is nodes; the scratch is kept, so that the millionth page allocates
// nothing.
#include "data/text/extract.h" /* this module's contract */

#include <string.h>

#include "base/arena.h"              /* gw_mem_* */
#include "data/text/encoding_impl.h" /* gw_encoding_choose_knowing */
#include "data/text/extract_impl.h"  /* gw_extract */

gw_extract_options gw_extract_options_default(void) {
    return (gw_extract_options){
        .main_text = true, .tables = true, .max_depth = 256, .max_nodes = 2000000};
}

gw_extract *gw_extract_new(void) {
    gw_extract *e = gw_mem_zalloc(sizeof *e);
    e->words = gw_extract_words_new();
    return e;
}

void gw_extract_free(gw_extract *e) {
    if (!e) return;
    gw_decoder_release(&e->decoder);
    gw_html_release(&e->html);
    gw_mem_free(e->info);
    gw_mem_free(e->words);
    gw_str_release(&e->utf8);
    gw_str_release(&e->title);
    gw_str_release(&e->language);
    gw_str_release(&e->date);
    gw_str_release(&e->scratch);
    gw_mem_free(e);
}

/* Makes *raw valid UTF-8, in place if it is that already. Returns the encoding; *bad counts. */
static gw_encoding to_utf8(gw_extract *e, const uint8_t **raw, int64_t *n, const char *charset,
                           bool html, int64_t *bad) {
    bool valid = gw_utf8_is_valid(*raw, (size_t)*n);
    gw_encoding enc = gw_encoding_choose_knowing(*raw, (size_t)*n, charset, html, valid);
    *bad = 0;
    if (enc == GW_ENC_UTF8 && valid) {
        bool mark = *n >= 3 && !memcmp(*raw, "\xef\xbb\xbf", 3);
        *raw += mark ? 3 : 0;
        *n -= mark ? 3 : 0;
        return enc;
    }
    gw_str_clear(&e->utf8);
    *bad = gw_decoder_add(&e->decoder, enc, *raw, (size_t)*n, &e->utf8);
    *raw = (const uint8_t *)e->utf8.data;
    *n = (int64_t)e->utf8.len;
    return enc;
}

void gw_extract_text(gw_extract *e, const uint8_t *raw, int64_t n, const char *charset,
                     const gw_extract_options *options, gw_str *text, gw_extract_info *info) {
    gw_extract_options o = options ? *options : gw_extract_options_default();
    if (o.max_depth <= 0) o.max_depth = 256;
    if (o.max_nodes <= 0) o.max_nodes = 2000000;
    int64_t bad;
    gw_encoding enc = to_utf8(e, &raw, &n, charset, true, &bad);
    gw_str_clear(text);
    gw_html_parse(&e->html, raw, n, o.max_nodes, o.max_depth);
    gw_extract_mark(e);
    uint32_t root = o.main_text ? gw_extract_choose(e, &o) : 0;
    gw_extract_emit(e, root, &o, text);
    if (info)
        *info = (gw_extract_info){.title = gw_str_c(&e->title),
                                  .language = gw_str_c(&e->language),
                                  .date = gw_str_c(&e->date),
                                  .encoding = gw_encoding_name(enc),
                                  .bad_bytes = bad,
                                  .nodes = e->html.count,
                                  .cut = e->html.cut};
}

void gw_extract_plain(gw_extract *e, const uint8_t *raw, int64_t n, const char *charset,
                      gw_str *text, gw_extract_info *info) {
    int64_t bad;
    gw_encoding enc = to_utf8(e, &raw, &n, charset, false, &bad);
    gw_str_clear(text);
    gw_str_reserve(text, (size_t)n);
    const uint8_t *end = raw + n;
    while (raw < end) {
        const uint8_t *cr = memchr(raw, '\r', (size_t)(end - raw));
        gw_str_add_n(text, raw, (size_t)((cr ? cr : end) - raw));
        if (!cr) break;
        gw_str_add_char(text, '\n');
        raw = cr + 1 + (cr + 1 < end && cr[1] == '\n');
    }
    if (info)
        *info = (gw_extract_info){.title = "",
                                  .language = "",
                                  .date = "",
                                  .encoding = gw_encoding_name(enc),
                                  .bad_bytes = bad};
}

void gw_extract_doc(gw_extract *e, const gw_extract_options *options, gw_doc *doc,
                    gw_extract_info *info) {
    switch (doc->media) {
    case GW_MEDIA_HTML:
        gw_extract_text(e, doc->raw, doc->raw_bytes, doc->charset, options, &doc->text, info);
        return;
    case GW_MEDIA_TEXT:
        gw_extract_plain(e, doc->raw, doc->raw_bytes, doc->charset, &doc->text, info);
        return;
    case GW_MEDIA_OTHER: break;
    }
    gw_str_clear(&doc->text);
    if (info) *info = (gw_extract_info){.title = "", .language = "", .date = "", .encoding = ""};
}
