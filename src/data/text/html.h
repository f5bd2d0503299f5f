// SPDX-License-Identifier: Apache-2.0
// HTML read in one pass into a flat tree: elements and texts in document order.
//
// Source: the HTML Standard, sections 13.2.5 (tokenization) and 13.2.6 (tree construction). The
// tokens are the standard's; the tree is lighter where the text does not depend on it: no implied
// html, head, body and tbody, no foster parents, and a formatting element that a block interrupts
// is not opened again.
#ifndef GW_DATA_TEXT_HTML_H
#define GW_DATA_TEXT_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

typedef enum gw_tag {
    GW_TAG_TEXT, /* a text node */
    GW_TAG_UNKNOWN,
#define TAG(name, flags) GW_TAG_##name,
#include "data/text/html_tags.def"
#undef TAG
    GW_TAG_COUNT
} gw_tag;

enum {
    GW_HTML_VOID = 1 << 0,
    GW_HTML_RAW = 1 << 1,     /* content is code: passed over */
    GW_HTML_RCDATA = 1 << 2,  /* content is text with character references, without tags */
    GW_HTML_RAWTEXT = 1 << 3, /* content is text without either */
    GW_HTML_BLOCK = 1 << 4,   /* lines of its own */
    GW_HTML_CLOSES_P = 1 << 5,
    GW_HTML_SPECIAL = 1 << 6, /* end tags of inline elements do not reach over it */
    GW_HTML_SCOPE = 1 << 7,   /* no end tag but its own reaches over it */
    GW_HTML_TABLE = 1 << 8,   /* part of a table */
    GW_HTML_HEADISH = 1 << 9, /* may stand in head */
    GW_HTML_HEADING = 1 << 10,
    GW_HTML_PRE = 1 << 11,
    GW_HTML_HIDDEN = 1 << 12, /* no text that a reader sees */
    GW_HTML_FOREIGN = 1 << 13,
    GW_HTML_INLINE = 1 << 14
};
extern const uint16_t gw_html_flags[GW_TAG_COUNT];
extern const char *const gw_html_names[GW_TAG_COUNT];

typedef struct gw_html_node {
    uint16_t tag;          /* gw_tag */
    uint16_t depth;        /* of open elements above it */
    uint32_t parent;       /* index; the root is node 0, a nameless element */
    uint32_t end;          /* index behind its last descendant */
    uint32_t start, bytes; /* text: its bytes in the source. Element: its attributes there */
} gw_html_node;

typedef struct gw_html {
    const uint8_t *source;
    gw_html_node *nodes;
    uint32_t count;
    bool cut; /* the budget of nodes ran out */
    /* inside */
    uint32_t cap, max_nodes;
    uint32_t *open; /* [max_depth + 1] indices of open elements */
    int32_t depth, max_depth, open_cap;
    int32_t heads, selects, foreigns; /* of such elements that are open */
    struct gw_html_names_table *names;
} gw_html;

/* Parses n bytes of valid UTF-8 (n < 4 GiB; more is not read). Zero-initialised is ready; memory is
 * kept for the next page. Linear in n: at most max_depth steps for a tag. */
void gw_html_parse(gw_html *h, const uint8_t *source, int64_t n, int64_t max_nodes,
                   int32_t max_depth);
void gw_html_release(gw_html *h);

/* The next attribute in p[0, end): its name and value in the source (without quotes, references not
 * decoded). Returns where to go on, NULL at the end of the tag. */
typedef struct gw_html_attr {
    const uint8_t *name, *value;
    uint32_t name_bytes, value_bytes;
} gw_html_attr;
const uint8_t *gw_html_next_attr(const uint8_t *p, const uint8_t *end, gw_html_attr *a);

/* One character reference at p (which holds '&'): its characters into out (1 or 2) and the bytes it
 * takes; 0 if there is none there. `attribute` applies the rule for attribute values. */
int gw_html_reference(const uint8_t *p, const uint8_t *end, bool attribute, uint32_t out[2],
                      int *ncp);
/* Appends source text with references decoded, NUL as U+FFFD. */
void gw_html_decode(const uint8_t *p, size_t n, bool attribute, gw_str *out);

#endif
