// SPDX-License-Identifier: Apache-2.0
// HTML to a flat tree, in one pass.
//
// The packaged parsers build a tree of allocated nodes with every attribute copied, at 11 to 38
// MB/s of source where this one does 555 (docs/extraction.md), which is under what a pipeline of
// 100 MB/s can spend on parsing. This one writes nodes of 24 bytes into an array in document order;
// texts and attributes stay in the source. An element's descendants are the nodes up to its `end`,
// so that every later pass is a loop.
//
// Tokens follow the HTML Standard: comments, bogus comments, raw text with the escaped states of
// scripts, attributes without quotes, tags that the file's end cuts. Tree construction keeps the
// rules that decide which text belongs to which block: end tags that another tag implies (p, li,
// dd, dt, option, rows and cells), scopes, headings, misplaced end tags. What must hold: each tag
// costs at most max_depth steps, memory is max_nodes nodes, and any bytes give a tree.
#include "data/text/html.h" /* this module's contract */

#include <string.h>
#include <strings.h>

#include "base/arena.h" /* gw_mem_* */

#define VOID     GW_HTML_VOID
#define RAW      GW_HTML_RAW
#define RCDATA   GW_HTML_RCDATA
#define RAWTEXT  GW_HTML_RAWTEXT
#define BLOCK    GW_HTML_BLOCK
#define CLOSES_P GW_HTML_CLOSES_P
#define SPECIAL  GW_HTML_SPECIAL
#define SCOPE    GW_HTML_SCOPE
#define TABLE    GW_HTML_TABLE
#define HEADISH  GW_HTML_HEADISH
#define HEADING  GW_HTML_HEADING
#define PRE      GW_HTML_PRE
#define HIDDEN   GW_HTML_HIDDEN
#define FOREIGN  GW_HTML_FOREIGN
#define INLINE   GW_HTML_INLINE

#define TAG(name, flags) [GW_TAG_##name] = flags,
const uint16_t gw_html_flags[GW_TAG_COUNT] = {
#include "data/text/html_tags.def"
};
#undef TAG
#define TAG(name, flags) [GW_TAG_##name] = #name,
const char *const gw_html_names[GW_TAG_COUNT] = {
    "#text",
    "?",
#include "data/text/html_tags.def"
};
#undef TAG

/* --- names ------------------------------------------------------------------------------------ */

static bool is_alpha(uint8_t c) { return (uint8_t)((c | 32) - 'a') < 26; }

/* What ends a name: white space (1), '/' (2), '>' (4), '=' (8). */
static const uint8_t ends[256] = {
    [' '] = 1, ['\n'] = 1, ['\t'] = 1, ['\r'] = 1, ['\f'] = 1, ['/'] = 2, ['>'] = 4, ['='] = 8};

static bool is_space(uint8_t c) { return ends[c] & 1; }

/* The first eight letters of a name, lower case: no two of our names share them. */
static uint64_t packed(const uint8_t *name, size_t n) {
    uint64_t x = 0;
    for (size_t i = 0; i < GW_MIN(n, (size_t)8); i++) x |= (uint64_t)(name[i] | 32) << 8 * i;
    return x;
}

/* The same where eight bytes can be read, in a few instructions. `| 32` makes capitals small, and
 * letters of nothing else. */
static uint64_t packed_fast(const uint8_t *name, size_t n) {
    uint64_t x;
    memcpy(&x, name, 8);
    x |= 0x2020202020202020u;
    return n >= 8 ? x : x & ((UINT64_C(1) << 8 * n) - 1);
}

enum { SLOTS = 1024, LONGEST = 10 };
struct gw_html_names_table {
    uint64_t key[SLOTS];
    uint8_t tag[SLOTS], bytes[SLOTS];
};

static uint32_t slot_of(uint64_t key) { return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 54); }

static struct gw_html_names_table *new_names(void) {
    struct gw_html_names_table *t = gw_mem_zalloc(sizeof *t);
    for (int tag = GW_TAG_UNKNOWN + 1; tag < GW_TAG_COUNT; tag++) {
        uint64_t key = packed((const uint8_t *)gw_html_names[tag], strlen(gw_html_names[tag]));
        uint32_t s = slot_of(key);
        while (t->key[s]) s = (s + 1) % SLOTS;
        t->key[s] = key;
        t->tag[s] = (uint8_t)tag;
        t->bytes[s] = (uint8_t)strlen(gw_html_names[tag]);
    }
    return t;
}

static gw_tag tag_of(const gw_html *h, const uint8_t *name, size_t n, const uint8_t *end) {
    if (n > LONGEST) return GW_TAG_UNKNOWN;
    uint64_t key = end - name >= 8 ? packed_fast(name, n) : packed(name, n);
    for (uint32_t s = slot_of(key); h->names->key[s]; s = (s + 1) % SLOTS) {
        if (h->names->key[s] != key) continue;
        gw_tag tag = (gw_tag)h->names->tag[s];
        if (n != h->names->bytes[s]) return GW_TAG_UNKNOWN;
        bool same = n <= 8 || !strncasecmp(gw_html_names[tag], (const char *)name, n);
        return same ? tag : GW_TAG_UNKNOWN;
    }
    return GW_TAG_UNKNOWN;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static gw_tag top_tag(const gw_html *h) { return (gw_tag)h->nodes[h->open[h->depth]].tag; }
static gw_tag tag_at(const gw_html *h, int32_t level) {
    return (gw_tag)h->nodes[h->open[level]].tag;
}

/* Index of the new node; UINT32_MAX when the budget is spent. */
static uint32_t add_node(gw_html *h, gw_tag tag, const uint8_t *from, const uint8_t *to) {
    if (h->count == h->max_nodes) {
        h->cut = true;
        return UINT32_MAX;
    }
    if (h->count == h->cap) {
        h->cap = GW_MIN(h->cap * 2 + 1024, h->max_nodes);
        h->nodes = gw_mem_realloc(h->nodes, (size_t)h->cap * sizeof *h->nodes);
    }
    uint32_t i = h->count++;
    h->nodes[i] = (gw_html_node){.tag = (uint16_t)tag,
                                 .depth = (uint16_t)h->depth,
                                 .parent = h->depth >= 0 ? h->open[h->depth] : 0,
                                 .end = i + 1,
                                 .start = (uint32_t)(from - h->source),
                                 .bytes = (uint32_t)(to - from)};
    return i;
}

static void count_open(gw_html *h, gw_tag tag, int by) {
    if (tag == GW_TAG_head) h->heads += by;
    if (tag == GW_TAG_select) h->selects += by;
    if (gw_html_flags[tag] & FOREIGN) h->foreigns += by;
}

/* Closes open elements until `level` is the number of those left above the root. */
static void pop_to(gw_html *h, int32_t level) {
    while (h->depth > level) {
        uint32_t i = h->open[h->depth--];
        h->nodes[i].end = h->count;
        count_open(h, (gw_tag)h->nodes[i].tag, -1);
    }
}

static void push(gw_html *h, gw_tag tag, uint32_t node) {
    if (h->depth + 1 > h->max_depth) return; /* deeper ones lie beside each other */
    h->open[++h->depth] = node;
    count_open(h, tag, 1);
}

/* --- implied and explicit ends ---------------------------------------------------------------- */

/* The level of the nearest open element of that tag, without crossing one with a flag of `stop`; 0
 * if there is none (level 0 is the root). */
static int32_t find_open(const gw_html *h, gw_tag tag, unsigned stop) {
    for (int32_t i = h->depth; i > 0; i--) {
        gw_tag t = tag_at(h, i);
        if (t == tag) return i;
        if (gw_html_flags[t] & stop) return 0;
    }
    return 0;
}

static void close_p(gw_html *h) {
    int32_t at = find_open(h, GW_TAG_p, SCOPE);
    if (at) pop_to(h, at - 1);
}

/* li closes li; dd and dt close dd and dt: up to the next special element other than address, div
 * and p. */
static void close_item(gw_html *h, gw_tag a, gw_tag b) {
    for (int32_t i = h->depth; i > 0; i--) {
        gw_tag t = tag_at(h, i);
        if (t == a || t == b) {
            pop_to(h, i - 1);
            return;
        }
        if ((gw_html_flags[t] & SPECIAL) && t != GW_TAG_address && t != GW_TAG_div && t != GW_TAG_p)
            return;
    }
}

/* Closes what stands between a new part of a table and the part that may hold it. */
static void clear_table(gw_html *h, gw_tag tag) {
    for (int32_t i = h->depth; i > 0; i--) {
        gw_tag t = tag_at(h, i);
        bool holds = t == GW_TAG_table || t == GW_TAG_template;
        bool section = t == GW_TAG_tbody || t == GW_TAG_thead || t == GW_TAG_tfoot;
        if (tag == GW_TAG_tr) holds |= section;
        if (tag == GW_TAG_td || tag == GW_TAG_th) holds |= section || t == GW_TAG_tr;
        if (tag == GW_TAG_col) holds |= t == GW_TAG_colgroup;
        if (holds) {
            pop_to(h, i);
            return;
        }
    }
}

static void close_a(gw_html *h) {
    for (int32_t i = h->depth; i > 0; i--) {
        gw_tag t = tag_at(h, i);
        if (t == GW_TAG_a) {
            pop_to(h, i - 1);
            return;
        }
        if (gw_html_flags[t] & SPECIAL) return;
    }
}

/* What a start tag closes before it opens. */
static void implied_ends(gw_html *h, gw_tag tag, unsigned flags) {
    if (h->heads && !(flags & HEADISH) && tag != GW_TAG_UNKNOWN)
        pop_to(h, find_open(h, GW_TAG_head, 0) - 1);
    if (h->selects && !(flags & HEADISH) && tag != GW_TAG_option && tag != GW_TAG_optgroup &&
        ((flags & (BLOCK | TABLE)) || tag == GW_TAG_input || tag == GW_TAG_select))
        pop_to(h, find_open(h, GW_TAG_select, 0) - 1);
    if (tag == GW_TAG_li) close_item(h, GW_TAG_li, GW_TAG_li);
    if (tag == GW_TAG_dd || tag == GW_TAG_dt) close_item(h, GW_TAG_dd, GW_TAG_dt);
    if (flags & CLOSES_P) close_p(h);
    if ((flags & HEADING) && (gw_html_flags[top_tag(h)] & HEADING)) pop_to(h, h->depth - 1);
    if (flags & TABLE) clear_table(h, tag);
    if (tag == GW_TAG_a) close_a(h);
    if ((tag == GW_TAG_option || tag == GW_TAG_optgroup) && top_tag(h) == GW_TAG_option)
        pop_to(h, h->depth - 1);
    if (tag == GW_TAG_optgroup && top_tag(h) == GW_TAG_optgroup) pop_to(h, h->depth - 1);
}

static int32_t find_heading(const gw_html *h) {
    for (int32_t i = h->depth; i > 0; i--) {
        unsigned flags = gw_html_flags[tag_at(h, i)];
        if (flags & HEADING) return i;
        if (flags & SCOPE) return 0;
    }
    return 0;
}

static void end_tag(gw_html *h, gw_tag tag) {
    unsigned flags = gw_html_flags[tag];
    int32_t at;
    if (tag == GW_TAG_body || tag == GW_TAG_html) return; /* what follows belongs to body too */
    if (flags & HEADING)
        at = find_heading(h);
    else if ((flags & TABLE) || tag == GW_TAG_table)
        at = find_open(h, tag, 0);
    else if (flags & (SCOPE | HIDDEN | FOREIGN))
        at = find_open(h, tag, TABLE | SCOPE);
    else
        at = find_open(h, tag, flags & SPECIAL ? SCOPE : SPECIAL | SCOPE);
    /* A cell's end does not reach out of a table inside it. */
    if ((flags & TABLE) && at) {
        int32_t table = find_open(h, GW_TAG_table, 0);
        if (table > at) return;
    }
    if (at)
        pop_to(h, at - 1);
    else if (tag == GW_TAG_p) /* an empty paragraph, which still ends a line */
        add_node(h, tag, h->source, h->source);
}

/* --- attributes ------------------------------------------------------------------------------- */

const uint8_t *gw_html_next_attr(const uint8_t *p, const uint8_t *end, gw_html_attr *a) {
    while (p < end && (is_space(*p) || *p == '/')) p++;
    if (p >= end) return NULL;
    a->name = p++; /* a '=' here belongs to the name */
    while (p < end && !(ends[*p] & 11)) p++;
    a->name_bytes = (uint32_t)(p - a->name);
    a->value = p;
    a->value_bytes = 0;
    while (p < end && is_space(*p)) p++;
    if (p >= end || *p != '=') return p;
    for (p++; p < end && is_space(*p);) p++;
    if (p >= end) return p;
    a->value = p;
    if (*p == '"' || *p == '\'') {
        const uint8_t *close = memchr(p + 1, *p, (size_t)(end - p - 1));
        a->value = p + 1;
        p = close ? close : end;
        a->value_bytes = (uint32_t)(p - a->value);
        return close ? p + 1 : p;
    }
    while (p < end && !is_space(*p)) p++;
    a->value_bytes = (uint32_t)(p - a->value);
    return p;
}

/* The '>' that ends the tag whose attributes begin at p; NULL if the file ends first. A quote only
 * opens a value behind '='. */
static const uint8_t *tag_end(const uint8_t *p, const uint8_t *end) {
    bool value = false; /* '=' was the last thing seen */
    while (p < end) {
        uint8_t c = *p;
        if (c == '>') return p;
        if (value && (c == '"' || c == '\'')) {
            const uint8_t *close = memchr(p + 1, c, (size_t)(end - p - 1));
            if (!close) return NULL;
            p = close + 1;
            value = false;
        } else {
            value = c == '=' || (value && is_space(c));
            p++;
        }
    }
    return NULL;
}

/* --- content that is no markup ---------------------------------------------------------------- */

/* True if p begins "name" in any case and no letter of a longer name follows. */
static bool is_name(const uint8_t *p, const uint8_t *end, const char *name, size_t n) {
    if ((size_t)(end - p) <= n || strncasecmp((const char *)p, name, n) != 0) return false;
    return is_space(p[n]) || p[n] == '/' || p[n] == '>';
}

/* The "</name" that ends raw content; `end` without one. */
static const uint8_t *raw_end(const uint8_t *p, const uint8_t *end, const char *name) {
    size_t n = strlen(name);
    while ((p = memchr(p, '<', (size_t)(end - p))) != NULL) {
        if (end - p > 2 && p[1] == '/' && is_name(p + 2, end, name, n)) return p;
        p++;
    }
    return end;
}

/* The same for scripts: inside "<!--", a "<script" makes the next "</script" part of the code. If
 * such a comment never ends, the script ends at its first end tag. */
static const uint8_t *script_end(const uint8_t *p, const uint8_t *end) {
    const uint8_t *first = NULL;
    bool escaped = false, doubled = false;
    for (; p < end; p++) {
        const uint8_t *next = p;
        if (escaped)
            while (next < end && *next != '<' && *next != '-') next++;
        else
            next = memchr(p, '<', (size_t)(end - p));
        if (!next || next == end) break;
        p = next;
        if (*p == '-') {
            if (escaped && end - p >= 3 && p[1] == '-' && p[2] == '>') escaped = doubled = false;
        } else if (end - p > 3 && !memcmp(p, "<!--", 4)) {
            escaped = true;
            p += 1;
        } else if (end - p > 2 && p[1] == '/' && is_name(p + 2, end, "script", 6)) {
            if (!first) first = p;
            if (!doubled) return p;
            doubled = false;
        } else if (escaped && is_name(p + 1, end, "script", 6)) {
            doubled = true;
        }
    }
    return first ? first : end;
}

/* Behind a comment that begins at p ("<!--"). */
static const uint8_t *comment_end(const uint8_t *p, const uint8_t *end) {
    p += 4;
    if (p < end && *p == '>') return p + 1;
    if (end - p >= 2 && p[0] == '-' && p[1] == '>') return p + 2;
    while (end - p >= 3) {
        const uint8_t *dash = memchr(p, '-', (size_t)(end - p - 2));
        if (!dash) return end;
        if (dash[1] == '-' && dash[2] == '>') return dash + 3;
        if (dash[1] == '-' && dash[2] == '!' && end - dash > 3 && dash[3] == '>') return dash + 4;
        p = dash + 1;
    }
    return end;
}

static const uint8_t *find_byte(const uint8_t *p, const uint8_t *end, uint8_t c) {
    const uint8_t *hit = memchr(p, c, (size_t)(end - p));
    return hit ? hit + 1 : end;
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void add_text(gw_html *h, const uint8_t *from, const uint8_t *to) {
    if (from == to) return;
    if (h->heads && top_tag(h) == GW_TAG_head) {
        const uint8_t *p = from;
        while (p < to && is_space(*p)) p++;
        if (p == to) return;
        pop_to(h, find_open(h, GW_TAG_head, 0) - 1);
    }
    add_node(h, GW_TAG_TEXT, from, to);
}

/* "<!" or "<?" or "</" before no letter. */
static const uint8_t *markup(gw_html *h, const uint8_t *p, const uint8_t *end) {
    if (end - p >= 4 && !memcmp(p, "<!--", 4)) return comment_end(p, end);
    if (h->foreigns && end - p >= 9 && !memcmp(p, "<![CDATA[", 9)) {
        const uint8_t *close = memmem(p + 9, (size_t)(end - p - 9), "]]>", 3);
        add_text(h, p + 9, close ? close : end);
        return close ? close + 3 : end;
    }
    return find_byte(p, end, '>');
}

/* Content of an element that ends only with its own end tag. */
static const uint8_t *raw_content(gw_html *h, gw_tag tag, const uint8_t *p, const uint8_t *end) {
    const uint8_t *stop =
        tag == GW_TAG_script ? script_end(p, end) : raw_end(p, end, gw_html_names[tag]);
    if (!(gw_html_flags[tag] & RAW) && top_tag(h) == tag) add_text(h, p, stop);
    return stop == end ? end : find_byte(stop, end, '>');
}

static const uint8_t *start_tag(gw_html *h, const uint8_t *name, const uint8_t *end) {
    const uint8_t *p = name;
    while (p < end && !(ends[*p] & 7)) p++;
    gw_tag tag = tag_of(h, name, (size_t)(p - name), end);
    unsigned flags = gw_html_flags[tag];
    const uint8_t *close = tag_end(p, end);
    if (!close) return end;
    const uint8_t *after = close + 1;
    implied_ends(h, tag, flags);
    uint32_t node = add_node(h, tag, p, close);
    if (node == UINT32_MAX) return after;
    /* <a/> closes itself only in XHTML, whose pages are served as HTML: a whole page would be one
     * anchor otherwise. */
    bool self =
        close > p && close[-1] == '/' && (h->foreigns || tag == GW_TAG_a || tag == GW_TAG_UNKNOWN);
    if ((flags & VOID) || self) return after;
    int32_t depth = h->depth;
    push(h, tag, node);
    if (tag == GW_TAG_plaintext) {
        add_text(h, after, end);
        return end;
    }
    if (!(flags & (RAW | RCDATA | RAWTEXT)) || h->foreigns) return after;
    after = raw_content(h, tag, after, end);
    pop_to(h, depth);
    return after;
}

static const uint8_t *close_tag(gw_html *h, const uint8_t *name, const uint8_t *end) {
    const uint8_t *p = name;
    while (p < end && !(ends[*p] & 7)) p++;
    gw_tag tag = tag_of(h, name, (size_t)(p - name), end);
    const uint8_t *close = p < end && *p == '>' ? p : tag_end(p, end);
    if (!close) return end;
    if (tag == GW_TAG_br)
        add_node(h, tag, p, p);
    else if (tag != GW_TAG_UNKNOWN)
        end_tag(h, tag);
    return close + 1;
}

static void reset(gw_html *h, const uint8_t *source, int64_t max_nodes, int32_t max_depth) {
    h->source = source;
    h->max_nodes = (uint32_t)GW_MAX(GW_MIN(max_nodes, (int64_t)UINT32_MAX - 1), (int64_t)16);
    h->max_depth = GW_MAX(GW_MIN(max_depth, 4096), 8);
    if (h->open_cap < h->max_depth + 1) {
        h->open_cap = h->max_depth + 1;
        h->open = gw_mem_realloc(h->open, (size_t)h->open_cap * sizeof *h->open);
    }
    if (!h->names) h->names = new_names();
    h->count = 0;
    h->cut = false;
    h->heads = h->selects = h->foreigns = 0;
    h->depth = -1;
    uint32_t root = add_node(h, GW_TAG_UNKNOWN, source, source);
    h->depth = 0;
    h->open[0] = root;
}

void gw_html_parse(gw_html *h, const uint8_t *source, int64_t n, int64_t max_nodes,
                   int32_t max_depth) {
    reset(h, source, max_nodes, max_depth);
    const uint8_t *p = source, *end = source + GW_MIN(n, (int64_t)UINT32_MAX);
    while (p < end && !h->cut) {
        const uint8_t *lt = memchr(p, '<', (size_t)(end - p)), *from = p;
        /* A '<' before anything that begins no markup is text. */
        while (lt &&
               !(lt + 1 < end && (is_alpha(lt[1]) || lt[1] == '/' || lt[1] == '!' || lt[1] == '?')))
            lt = memchr(lt + 1, '<', (size_t)(end - lt - 1));
        add_text(h, from, lt ? lt : end);
        if (!lt) break;
        uint8_t c = lt[1];
        if (c == '/' && lt + 2 < end && is_alpha(lt[2]))
            p = close_tag(h, lt + 2, end);
        else if (c == '/' && lt + 2 >= end)
            p = end;
        else if (c == '/' || c == '!' || c == '?')
            p = markup(h, lt, end);
        else
            p = start_tag(h, lt + 1, end);
    }
    pop_to(h, -1);
}

void gw_html_release(gw_html *h) {
    gw_mem_free(h->nodes);
    gw_mem_free(h->open);
    gw_mem_free(h->names);
    *h = (gw_html){0};
}
