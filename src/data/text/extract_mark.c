// SPDX-License-Identifier: Apache-2.0
// What a page's markup says of each of its parts.
//
// One walk over the flat tree reads the attributes that matter: class and id by their words (a
// table hashed once for a handle), role, hidden and style, links. Texts are counted in bytes that
// are no white space, into the nearest block and, by a walk backwards, into all elements above,
// apart for text in links. Everything later is arithmetic on these counts.
#include <string.h>
#include <strings.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/arena.h"             /* gw_mem_* */
#include "data/text/extract_impl.h" /* this module's contract */

/* --- words of names --------------------------------------------------------------------------- */

enum { WORD_SLOTS = 1024, WORD_MAX = 24 };

struct word_table {
    uint64_t key[WORD_SLOTS];
    uint32_t marks[WORD_SLOTS];
};

static uint64_t word_hash(uint64_t h, uint8_t c) { return (h ^ c) * 0x100000001b3u; }
static const uint64_t hash_start = 0xcbf29ce484222325u;

#define WORD(word, kind) {#word, MARK_##kind},
static const struct {
    const char *word;
    uint32_t marks;
} word_list[] = {
#include "data/text/extract_words.def"
};
#undef WORD

word_table *gw_extract_words_new(void) {
    word_table *t = gw_mem_zalloc(sizeof *t);
    for (size_t i = 0; i < GW_COUNT(word_list); i++) {
        uint64_t h = hash_start;
        for (const char *c = word_list[i].word; *c; c++) h = word_hash(h, (uint8_t)*c);
        uint32_t s = (uint32_t)(h >> 54);
        while (t->key[s]) s = (s + 1) % WORD_SLOTS;
        t->key[s] = h;
        t->marks[s] = word_list[i].marks;
    }
    return t;
}

static uint32_t word_marks(const word_table *t, uint64_t h) {
    for (uint32_t s = (uint32_t)(h >> 54); t->key[s]; s = (s + 1) % WORD_SLOTS)
        if (t->key[s] == h) return t->marks[s];
    return 0;
}

static bool is_upper(uint8_t c) { return (uint8_t)(c - 'A') < 26; }
static bool is_alpha(uint8_t c) { return (uint8_t)((c | 32) - 'a') < 26; }
static bool is_space(uint8_t c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}

/* The marks of one name, e.g. "post-content": those of its words, and what two together mean. */
static uint32_t name_marks(const word_table *t, const uint8_t *p, const uint8_t *end) {
    uint32_t marks = 0;
    while (p < end) {
        while (p < end && !is_alpha(*p)) p++;
        uint64_t h = hash_start;
        const uint8_t *from = p;
        for (; p < end && is_alpha(*p); p++) {
            if (p > from && is_upper(*p) && !is_upper(p[-1])) break;
            h = word_hash(h, (uint8_t)(*p | 32));
        }
        if (p - from >= 2) marks |= word_marks(t, h);
    }
    if (marks & MARK_CANCEL) return 0;
    if ((marks & MARK_CONTENT) && (marks & (MARK_ARTICLE | MARK_MAIN))) marks |= MARK_BODY;
    return marks;
}

static uint32_t value_marks(const word_table *t, const uint8_t *value, uint32_t n) {
    const uint8_t *p = value, *end = value + n;
    uint32_t marks = 0;
    while (p < end) {
        while (p < end && is_space(*p)) p++;
        const uint8_t *from = p;
        while (p < end && !is_space(*p)) p++;
        marks |= name_marks(t, from, p);
    }
    return marks;
}

/* A page uses the same few values again and again: those of this page are remembered. */
static uint32_t words_marks(gw_extract *e, const gw_html_attr *a) {
    uint32_t n = a->value_bytes;
    uint64_t head = 0, tail = 0;
    if (n == 0) return 0;
    memcpy(&head, a->value, GW_MIN(n, 8u));
    if (n > 8) memcpy(&tail, a->value + n - 8, 8);
    uint64_t h = (head ^ tail * 31 ^ n) * 0x9e3779b97f4a7c15u;
    seen_value *s = &e->seen[h >> 56];
    if (s->page == e->page && s->bytes == n && !memcmp(e->html.source + s->at, a->value, n))
        return s->marks;
    *s = (seen_value){e->page, (uint32_t)(a->value - e->html.source), n,
                      value_marks(e->words, a->value, n)};
    return s->marks;
}

/* --- attributes ------------------------------------------------------------------------------- */

static bool named(const gw_html_attr *a, const char *name, uint32_t n) {
    if (a->name_bytes != n) return false;
    for (uint32_t i = 0; i < n; i++) /* `|` 32 maps no other character to these names' */
        if ((a->name[i] | 32) != (uint8_t)(name[i] | 32)) return false;
    return true;
}

static bool valued(const gw_html_attr *a, const char *value) {
    uint32_t n = (uint32_t)strlen(value);
    return a->value_bytes == n && !strncasecmp((const char *)a->value, value, n);
}

static uint32_t role_marks(const gw_html_attr *a) {
    static const struct {
        const char *role;
        uint32_t marks;
    } roles[] = {
        {"main", MARK_ROLE_MAIN},     {"article", MARK_ARTICLE},    {"navigation", MARK_NAV},
        {"menu", MARK_NAV},           {"menubar", MARK_NAV},        {"toolbar", MARK_NAV},
        {"tablist", MARK_NAV},        {"search", MARK_POPUP},       {"dialog", MARK_POPUP},
        {"alertdialog", MARK_POPUP},  {"banner", MARK_NAV},         {"contentinfo", MARK_FOOT},
        {"complementary", MARK_SIDE}, {"presentation", MARK_LAYOUT}};
    for (size_t i = 0; i < GW_COUNT(roles); i++)
        if (valued(a, roles[i].role)) return roles[i].marks;
    return 0;
}

/* "display: none" and its like, white space aside. */
static bool hides(const uint8_t *p, uint32_t n) {
    char flat[256];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n && m < sizeof flat - 1; i++)
        if (!is_space(p[i])) flat[m++] = (char)(is_upper(p[i]) ? p[i] | 32 : p[i]);
    flat[m] = 0;
    return strstr(flat, "display:none") || strstr(flat, "visibility:hidden");
}

/* Ids of sections are often made from their headings: longer ones name a subject, not a part of the
 * page. */
static uint32_t id_marks(gw_extract *e, const gw_html_attr *a) {
    int cuts = 0;
    for (uint32_t i = 0; i < a->value_bytes; i++)
        cuts += a->value[i] == '-' || a->value[i] == '_' || a->value[i] == '.';
    return cuts > 1 ? 0 : words_marks(e, a);
}

static uint32_t attr_marks(gw_extract *e, const gw_html_attr *a) {
    switch (a->name[0] | 32) {
    case 'c': return named(a, "class", 5) ? words_marks(e, a) : 0;
    case 'i':
        if (named(a, "id", 2)) return id_marks(e, a);
        return named(a, "itemprop", 8) && valued(a, "articleBody") ? MARK_BODY : 0;
    case 'h':
        if (named(a, "href", 4)) return MARK_HREF;
        return named(a, "hidden", 6) && !valued(a, "until-found") ? MARK_UNSEEN : 0;
    case 'r': return named(a, "role", 4) ? role_marks(a) : 0;
    case 's': return named(a, "style", 5) && hides(a->value, a->value_bytes) ? MARK_UNSEEN : 0;
    case 'a': return named(a, "aria-hidden", 11) && valued(a, "true") ? MARK_UNSEEN : 0;
    default: return 0;
    }
}

static void keep_value(const gw_html_attr *a, gw_str *out) {
    gw_str_clear(out);
    gw_html_decode(a->value, a->value_bytes, true, out);
}

/* <meta>: when the page was published. */
static void read_meta(gw_extract *e, const uint8_t *p, const uint8_t *end) {
    static const char *const keys[] = {
        "article:published_time", "datePublished", "date",        "dc.date",
        "dc.date.issued",         "pubdate",       "publishdate", "dcterms.created"};
    gw_html_attr a, content = {0};
    bool is_date = false;
    while ((p = gw_html_next_attr(p, end, &a)) != NULL) {
        if (named(&a, "content", 7)) content = a;
        if (named(&a, "property", 8) || named(&a, "name", 4) || named(&a, "itemprop", 8))
            for (size_t i = 0; i < GW_COUNT(keys); i++) is_date |= valued(&a, keys[i]);
    }
    if (is_date && content.value && e->date.len == 0) keep_value(&content, &e->date);
}

static void read_language(gw_extract *e, const uint8_t *p, const uint8_t *end) {
    gw_html_attr a;
    while ((p = gw_html_next_attr(p, end, &a)) != NULL)
        if (named(&a, "lang", 4) || (named(&a, "xml:lang", 8) && e->language.len == 0))
            keep_value(&a, &e->language);
}

/* --- the walk --------------------------------------------------------------------------------- */

static uint32_t count_visible(const uint8_t *p, uint32_t n) {
    uint32_t count = 0, i = 0;
#if defined(__SSE2__)
    const __m128i space = _mm_set1_epi8(' ');
    for (; i + 16 <= n; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i not_seen = _mm_cmpeq_epi8(_mm_max_epu8(x, space), space);
        __m128i ones = _mm_add_epi8(not_seen, _mm_set1_epi8(1)); /* 1 where seen */
        __m128i sums = _mm_sad_epu8(ones, _mm_setzero_si128());
        count += (uint32_t)_mm_cvtsi128_si32(sums) + (uint32_t)_mm_extract_epi16(sums, 4);
    }
#endif
    for (; i < n; i++) count += p[i] > ' ';
    return count;
}

static bool by_words(gw_tag tag) {
    return tag != GW_TAG_html && tag != GW_TAG_body && tag != GW_TAG_article && tag != GW_TAG_main;
}

/* The first <title> that is not in a drawing. */
static void read_title(gw_extract *e, const gw_html_node *n) {
    if (e->title.len || n->end <= (uint32_t)(n - e->html.nodes) + 1) return;
    const gw_html_node *text = n + 1;
    gw_str *s = &e->scratch;
    gw_str_clear(s);
    gw_html_decode(e->html.source + text->start, text->bytes, false, s);
    for (size_t i = 0; i < s->len; i++) {
        bool space = is_space((uint8_t)s->data[i]);
        if (space && (e->title.len == 0 || e->title.data[e->title.len - 1] == ' ')) continue;
        gw_str_add_char(&e->title, space ? ' ' : s->data[i]);
    }
    if (e->title.len && e->title.data[e->title.len - 1] == ' ') e->title.data[--e->title.len] = 0;
}

/* Marks of an element from its tag and attributes; those that its children share come from above.
 */
static uint32_t element_marks(gw_extract *e, const gw_html_node *n, uint32_t above) {
    gw_tag tag = (gw_tag)n->tag;
    unsigned flags = gw_html_flags[tag];
    uint32_t own = 0, shared = above & (MARK_UNSEEN | MARK_LINKED | MARK_INNER | MARK_PRE);
    const uint8_t *p = e->html.source + n->start, *end = p + n->bytes;
    if (tag == GW_TAG_meta) read_meta(e, p, end);
    if (tag == GW_TAG_html) read_language(e, p, end);
    if (tag == GW_TAG_title && !(above & MARK_UNSEEN)) read_title(e, n);
    gw_html_attr a;
    if (p < end)
        while ((p = gw_html_next_attr(p, end, &a)) != NULL) own |= attr_marks(e, &a);
    /* A page that scripts reveal hides its body; names of these say nothing of their kind. */
    if (!by_words(tag))
        own &= ~(uint32_t)(MARK_CHROME | MARK_COMMENT | MARK_META | MARK_BYLINE | MARK_HIDE |
                           MARK_TOC | MARK_UNSEEN);
    if (flags & (GW_HTML_HIDDEN | GW_HTML_RAW) || tag == GW_TAG_title) own |= MARK_UNSEEN;
    if (flags & GW_HTML_PRE) own |= MARK_PRE;
    if (tag != GW_TAG_a) own &= ~(uint32_t)MARK_HREF;
    if (own & MARK_HREF) own |= MARK_LINKED;
    if (tag == GW_TAG_article || tag == GW_TAG_main || (own & (MARK_ROLE_MAIN | MARK_BODY)))
        own |= MARK_INNER | MARK_CLAIM;
    return own | shared;
}

static void grow(gw_extract *e) {
    if (e->info_cap >= e->html.count) return;
    e->info_cap = e->html.cap;
    e->info = gw_mem_realloc(e->info, (size_t)e->info_cap * sizeof *e->info);
}

void gw_extract_mark(gw_extract *e) {
    grow(e);
    e->page++;
    const gw_html_node *nodes = e->html.nodes;
    node_info *info = e->info;
    info[0] = (node_info){0};
    gw_str_clear(&e->title);
    gw_str_clear(&e->language);
    gw_str_clear(&e->date);
    for (uint32_t i = 1; i < e->html.count; i++) {
        const gw_html_node *n = &nodes[i];
        const node_info *above = &info[n->parent];
        info[i] = (node_info){.block = above->block};
        if (n->tag == GW_TAG_TEXT) {
            info[i].marks = above->marks & (MARK_UNSEEN | MARK_LINKED | MARK_INNER | MARK_PRE);
            if (info[i].marks & MARK_UNSEEN) continue;
            uint32_t seen = count_visible(e->html.source + n->start, n->bytes);
            info[i].text = seen;
            if (info[i].marks & MARK_LINKED) info[i].linked = seen;
        } else {
            info[i].marks = element_marks(e, n, above->marks);
            if (gw_html_flags[n->tag] & GW_HTML_BLOCK) info[i].block = i;
            info[i].links = (info[i].marks & MARK_HREF) != 0;
        }
    }
    for (uint32_t i = e->html.count; i-- > 1;) {
        node_info *up = &info[nodes[i].parent];
        up->text += info[i].text;
        up->linked += info[i].linked;
        up->links += info[i].links;
    }
}
