// SPDX-License-Identifier: Apache-2.0
// Classes of all characters of one Unicode version as a table of pages: one load per question.
#ifndef GW_DATA_UNICODE_TABLE_H
#define GW_DATA_UNICODE_TABLE_H

#include <stdint.h>

#include "data/unicode.h" /* GW_CP_INVALID, GW_CLASS_... */

enum { GW_UNI_PAGES = 0x110000 >> 8 };

typedef struct gw_uni_table {
    int version;
    uint16_t page_of[GW_UNI_PAGES]; /* equal pages are held once */
    uint8_t (*pages)[256];
    int npages;
} gw_uni_table;

/* The table of gw_uni_class(., version), about 70 kB; takes a millisecond or two. */
gw_uni_table *gw_uni_table_new(int version);
void gw_uni_table_free(gw_uni_table *t);

/* As gw_uni_class; cp may be GW_CP_INVALID. */
static inline unsigned gw_uni_table_class(const gw_uni_table *t, uint32_t cp) {
    return cp == GW_CP_INVALID ? 0 : t->pages[t->page_of[cp >> 8]][cp & 255];
}

#endif
