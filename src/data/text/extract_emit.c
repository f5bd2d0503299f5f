// SPDX-License-Identifier: Apache-2.0
// The text of what is left of a tree.
//
// White space collapses as a browser shows it: runs become one space, none stands at a line's ends,
// blocks begin and end lines, br ends one. Inside pre line breaks and spaces stay. Cells of a table
// stand in one line a row, divided by " | ", unless the table only lays out the page: one that
// holds other blocks. Spans are of no interest: a cell is written once, whatever it claims to
// cover.
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "data/text/extract_impl.h" /* this module's contract */
#include "data/unicode.h"           /* gw_utf8_encode */

typedef struct writer {
    gw_str *out;
    size_t line;  /* where the line begins */
    bool space;   /* white space is due before the next text */
    bool newline; /* a line end is due before the next text */
    bool bar;     /* a cell's end is due */
} writer;

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}

static void strip_line(writer *w) {
    gw_str *s = w->out;
    while (s->len > w->line && (s->data[s->len - 1] == ' ' || s->data[s->len - 1] == '\t'))
        s->len--;
}

/* What is due before text. */
static void due(writer *w) {
    gw_str *s = w->out;
    if (w->newline && s->len > w->line) {
        strip_line(w);
        if (s->len > w->line) gw_str_add_char(s, '\n');
        w->line = s->len;
        w->bar = w->space = false;
    }
    if (w->bar && s->len > w->line)
        gw_str_add_n(s, " | ", 3);
    else if (w->space && s->len > w->line)
        gw_str_add_char(s, ' ');
    w->newline = w->bar = w->space = false;
}

static void put(writer *w, const uint8_t *p, size_t n) {
    if (n == 0) return;
    due(w);
    gw_str_add_n(w->out, p, n);
}

/* U+00A0 is shown as a space and collapses with others here: it is layout nearly always. */
static void put_cp(writer *w, uint32_t cp) {
    uint8_t bytes[4];
    if (cp == 0xa0 || (cp < 128 && is_space((uint8_t)cp))) {
        w->space = true;
        return;
    }
    if (cp == 0xad || cp == 0x200b || cp == 0xfeff || (cp < 32)) return;
    put(w, bytes, (size_t)gw_utf8_encode(cp, bytes));
}

/* Bytes that are not copied as they stand: white space and C0, '&', and the leads of U+00A0 and
 * U+00AD (C2), U+200B (E2) and U+FEFF (EF). */
static bool is_plain(uint8_t c) {
    return c > ' ' && c != '&' && c != 0xc2 && c != 0xe2 && c != 0xef;
}

/* Copies sixteen bytes behind a plain one if all are plain or single spaces and the last is none.
 */
static bool copy_block(const uint8_t *p, char *to) {
#if defined(__SSE2__)
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p), space = _mm_set1_epi8(' ');
    __m128i other = _mm_cmpeq_epi8(_mm_max_epu8(x, space), space); /* <= ' ', spaces too */
    unsigned spaces = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, space));
    unsigned low = (unsigned)_mm_movemask_epi8(other) ^ spaces;
    __m128i odd = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('&')),
                               _mm_cmpeq_epi8(x, _mm_set1_epi8((char)0xc2)));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(x, _mm_set1_epi8((char)0xe2)));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(x, _mm_set1_epi8((char)0xef)));
    if (low | (unsigned)_mm_movemask_epi8(odd) | (spaces & (spaces << 1)) | (spaces >> 15))
        return false;
    _mm_storeu_si128((__m128i *)(void *)to, x);
    return true;
#else
    (void)p, (void)to;
    return false;
#endif
}

/* Copies words with single spaces between them while nothing else comes; *to has room. */
static const uint8_t *copy_words(const uint8_t *p, const uint8_t *end, char **to) {
    char *t = *to;
    while (p < end) {
        while (end - p >= 16 && copy_block(p, t)) p += 16, t += 16;
        if (p == end) break;
        if (is_plain(*p)) {
            *t++ = (char)*p++;
        } else if (*p == ' ' && p + 1 < end && is_plain(p[1])) {
            *t++ = ' ';
            *t++ = (char)p[1];
            p += 2;
        } else {
            break;
        }
    }
    *to = t;
    return p;
}

static void flow_text(writer *w, const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    while (p < end) {
        if (is_plain(*p)) {
            due(w);
            gw_str_reserve(w->out, (size_t)(end - p) + 16);
            char *to = w->out->data + w->out->len;
            p = copy_words(p, end, &to);
            w->out->len = (size_t)(to - w->out->data);
        } else if (is_space(*p)) {
            w->space = true;
            p++;
        } else if (*p == '&') {
            uint32_t cps[2];
            int ncp, taken = gw_html_reference(p, end, false, cps, &ncp);
            if (!taken) put(w, p, 1);
            for (int i = 0; taken && i < ncp; i++) put_cp(w, cps[i]);
            p += taken ? taken : 1;
        } else {
            int len;
            uint32_t cp = gw_utf8_decode(p, end, &len);
            put_cp(w, cp);
            p += len;
        }
    }
}

static void pre_text(writer *w, const uint8_t *p, size_t n, gw_str *scratch, bool first) {
    const char *s = (const char *)p, *end = s + n;
    if (memchr(p, '&', n)) {
        gw_str_clear(scratch);
        gw_html_decode(p, n, false, scratch);
        s = gw_str_c(scratch);
        end = s + scratch->len;
    }
    if (first && s < end && *s == '\r') s++;
    if (first && s < end && *s == '\n') s++;
    if (s < end) due(w);
    gw_str_reserve(w->out, (size_t)(end - s));
    for (; s < end; s++) {
        if (*s == '\r') continue;
        if (*s == '\n') strip_line(w);
        if (*s == '\n' || (uint8_t)*s >= ' ' || *s == '\t') w->out->data[w->out->len++] = *s;
        if (*s == '\n') w->line = w->out->len;
    }
}

/* --- tables ----------------------------------------------------------------------------------- */

/* A table that holds blocks other than its own parts is a grid for the page. */
static bool lays_out(const gw_extract *e, uint32_t table) {
    const gw_html_node *nodes = e->html.nodes;
    if (e->info[table].marks & MARK_LAYOUT) return true;
    uint32_t cells = 0;
    for (uint32_t k = table + 1; k < nodes[table].end; k++) {
        gw_tag t = (gw_tag)nodes[k].tag;
        unsigned flags = gw_html_flags[t];
        if (t == GW_TAG_table || t == GW_TAG_div || (flags & (GW_HTML_HEADING))) return true;
        cells += t == GW_TAG_td || t == GW_TAG_th;
    }
    return cells < 2;
}

/* --- the walk --------------------------------------------------------------------------------- */

static void open_node(gw_extract *e, writer *w, uint32_t i, const gw_extract_options *o) {
    const gw_html_node *n = &e->html.nodes[i];
    unsigned flags = gw_html_flags[n->tag];
    node_info *info = &e->info[i];
    if (n->tag == GW_TAG_table && lays_out(e, i)) info->marks |= MARK_LAYOUT;
    bool cell = n->tag == GW_TAG_td || n->tag == GW_TAG_th;
    if (flags & GW_HTML_TABLE && n->tag != GW_TAG_table)
        info->marks |= e->info[n->parent].marks & MARK_LAYOUT;
    if (cell && !(info->marks & MARK_LAYOUT)) {
        w->bar = w->out->len > w->line && !w->newline;
        return;
    }
    /* Paragraphs in a cell of data stay in its row. */
    if (flags & GW_HTML_BLOCK || n->tag == GW_TAG_br) w->newline = true;
    if (n->tag == GW_TAG_li && o->list_marks) {
        due(w);
        gw_str_add_n(w->out, "- ", 2);
    }
}

static void close_node(const gw_extract *e, writer *w, uint32_t i) {
    const gw_html_node *n = &e->html.nodes[i];
    bool cell = n->tag == GW_TAG_td || n->tag == GW_TAG_th;
    if (cell && !(e->info[i].marks & MARK_LAYOUT))
        w->newline = false, w->bar = w->out->len > w->line;
    else if (gw_html_flags[n->tag] & GW_HTML_BLOCK)
        w->newline = true;
}

static void text_node(gw_extract *e, writer *w, uint32_t i) {
    const gw_html_node *n = &e->html.nodes[i];
    const uint8_t *p = e->html.source + n->start;
    if (e->info[i].marks & MARK_PRE) {
        pre_text(w, p, n->bytes, &e->scratch, i == n->parent + 1);
    } else if (e->info[i].text == 0) {
        w->space = true;
    } else {
        flow_text(w, p, n->bytes);
    }
}

static bool skips(const gw_extract *e, uint32_t i, const gw_extract_options *o) {
    gw_tag tag = (gw_tag)e->html.nodes[i].tag;
    return (e->info[i].marks & (MARK_GONE | MARK_UNSEEN)) ||
           (tag == GW_TAG_table && !o->tables && !lays_out(e, i));
}

void gw_extract_emit(gw_extract *e, uint32_t root, const gw_extract_options *o, gw_str *out) {
    const gw_html_node *nodes = e->html.nodes;
    writer w = {.out = out, .line = out->len};
    /* Elements that are open, by the depth that the tree clamps: closed when the walk passes their
     * end. */
    uint32_t i = root, last = nodes[root].end, *open = e->html.open;
    int32_t depth = -1, most = e->html.max_depth;
    while (i < last) {
        while (depth >= 0 && nodes[open[depth]].end <= i) close_node(e, &w, open[depth--]);
        if (i != root && skips(e, i, o)) {
            if (gw_html_flags[nodes[i].tag] & GW_HTML_BLOCK) w.newline = true;
            i = nodes[i].end;
            continue;
        }
        if (nodes[i].tag == GW_TAG_TEXT) {
            text_node(e, &w, i);
        } else {
            open_node(e, &w, i, o);
            if (nodes[i].end > i + 1 && depth < most) open[++depth] = i;
        }
        i++;
    }
    strip_line(&w);
    if (out->len > w.line) gw_str_add_char(out, '\n');
    gw_str_reserve(out, 0);
    out->data[out->len] = 0;
}
