// SPDX-License-Identifier: Apache-2.0
// The inside of extraction: what each step knows of a node.
#ifndef GW_DATA_TEXT_EXTRACT_IMPL_H
#define GW_DATA_TEXT_EXTRACT_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"           /* gw_str */
#include "data/text/encoding.h" /* gw_decoder */
#include "data/text/extract.h"  /* gw_extract_options */
#include "data/text/html.h"     /* gw_html */

/* What names and attributes say. NAV to HIDE are what extract_words.def calls them. */
enum {
    MARK_NAV = 1 << 0,
    MARK_SIDE = 1 << 1,
    MARK_FOOT = 1 << 2,
    MARK_SHARE = 1 << 3,
    MARK_RELATED = 1 << 4,
    MARK_COMMENT = 1 << 5,
    MARK_AD = 1 << 6,
    MARK_POPUP = 1 << 7,
    MARK_META = 1 << 8,
    MARK_HIDE = 1 << 9,
    MARK_TOC = 1 << 10,
    MARK_CANCEL = 1 << 11,
    MARK_MAIN = 1 << 12,
    MARK_CONTENT = 1 << 13,
    MARK_ARTICLE = 1 << 14,
    MARK_BODY = 1 << 15, /* names the very text of a page */
    MARK_ROLE_MAIN = 1 << 16,
    MARK_HREF = 1 << 17,   /* a link to somewhere */
    MARK_UNSEEN = 1 << 18, /* no reader sees it: hidden, scripts, forms' insides */
    MARK_LINKED = 1 << 19, /* inside a link */
    MARK_GONE = 1 << 20,   /* taken out as boilerplate */
    MARK_INNER = 1 << 21,  /* inside article or main */
    MARK_LAYOUT = 1 << 22, /* a table that lays out the page */
    MARK_PRE = 1 << 23,    /* line breaks count */
    MARK_BYLINE = 1 << 24,
    MARK_CLAIM = 1 << 25, /* says of itself that it is the main text */
    MARK_CHROME =
        MARK_NAV | MARK_SIDE | MARK_FOOT | MARK_SHARE | MARK_RELATED | MARK_AD | MARK_POPUP
};

typedef struct node_info {
    uint32_t marks;
    uint32_t block;  /* the nearest element with lines of its own, itself included */
    uint32_t text;   /* bytes that are no white space, of texts seen below it */
    uint32_t linked; /* those of them in links */
    uint32_t links;  /* number of links */
    uint32_t own;    /* blocks: bytes of text whose nearest block this is */
    uint32_t good;   /* bytes below it in blocks that read like paragraphs */
    uint32_t items;  /* blocks with text below it */
} node_info;

typedef struct word_table word_table;

typedef struct seen_value {
    uint64_t page;
    uint32_t at, bytes; /* in the page's source */
    uint32_t marks;
} seen_value;

struct gw_extract {
    gw_decoder decoder;
    gw_html html;
    node_info *info;
    uint32_t info_cap;
    word_table *words;
    seen_value seen[256];
    uint64_t page; /* number of the page, from 1 */
    gw_str utf8, title, language, date, scratch;
};

word_table *gw_extract_words_new(void);

/* Fills info[].marks, block, text, linked, links for the whole tree, and title, language, date. */
void gw_extract_mark(gw_extract *e);
/* Takes out boilerplate (MARK_GONE) and finds the root of the main text. */
uint32_t gw_extract_choose(gw_extract *e, const gw_extract_options *o);
/* Appends what is left below `root`. */
void gw_extract_emit(gw_extract *e, uint32_t root, const gw_extract_options *o, gw_str *out);

#endif
