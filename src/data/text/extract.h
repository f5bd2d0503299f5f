// SPDX-License-Identifier: Apache-2.0
// The main text of a page: what its author wrote, without the site around it.
#ifndef GW_DATA_TEXT_EXTRACT_H
#define GW_DATA_TEXT_EXTRACT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */
#include "data/doc.h" /* gw_doc */

typedef enum gw_favour { GW_FAVOUR_BALANCED, GW_FAVOUR_PRECISION, GW_FAVOUR_RECALL } gw_favour;

typedef struct gw_extract_options {
    gw_favour favour;
    bool main_text;    /* false: all text that a browser would show */
    bool comments;     /* keep readers' comments */
    bool tables;       /* keep tables: cells are divided by " | " */
    bool list_marks;   /* "- " before items of lists */
    int32_t max_depth; /* elements nested deeper lie beside each other */
    int64_t max_nodes; /* the step budget: a page's nodes beyond it are not read */
} gw_extract_options;

/* Balanced, main text, no comments, tables, no marks, depth 256, 2 million nodes. */
gw_extract_options gw_extract_options_default(void);

/* What else the page says. Strings are UTF-8, "" where it says nothing, and live until the next
 * call with the same gw_extract. */
typedef struct gw_extract_info {
    const char *title;    /* of <title>, one line */
    const char *language; /* of <html lang>, as written */
    const char *date;     /* published, as the page's metadata says it: 2026-11-30... */
    const char *encoding; /* WHATWG name of what the bytes were read as */
    int64_t bad_bytes;    /* sequences that became U+FFFD */
    int64_t nodes;        /* of the tree */
    bool cut;             /* the step budget ended the page */
} gw_extract_info;

/* One thread's scratch. It grows to the largest page and allocates nothing after that. */
typedef struct gw_extract gw_extract;
gw_extract *gw_extract_new(void);
void gw_extract_free(gw_extract *e);

/* Replaces *text by the main text of the HTML page raw[0, n): valid UTF-8, paragraphs on lines of
 * their own, blocks of code with their line breaks, no empty lines but in those, a final newline
 * unless empty. `charset` is what HTTP said ("" or NULL: nothing). `options` and `info` may be
 * NULL. Never fails: any bytes are a page. Time is linear in n; the result depends on the arguments
 * alone. */
void gw_extract_text(gw_extract *e, const uint8_t *raw, int64_t n, const char *charset,
                     const gw_extract_options *options, gw_str *text, gw_extract_info *info);
/* The same for bytes that are text already: decoded to UTF-8, line ends as LF. */
void gw_extract_plain(gw_extract *e, const uint8_t *raw, int64_t n, const char *charset,
                      gw_str *text, gw_extract_info *info);
/* Fills doc->text from doc->raw by its media; GW_MEDIA_OTHER gives an empty text. */
void gw_extract_doc(gw_extract *e, const gw_extract_options *options, gw_doc *doc,
                    gw_extract_info *info);

#endif
