// SPDX-License-Identifier: Apache-2.0
// Pages of character classes.
//
// gw_uni_class says what a character is and is the meaning; it asks utf8proc and searches the list
// of newer characters, which is too much for text that is not ASCII. This table holds its answers
// for one version: code points in pages of 256, of which most are equal (unassigned, all letters of
// one case, ideographs), so that the distinct ones fit the caches. Planes that hold nothing but
// private and unassigned characters are not asked about.
#include "data/unicode_table.h" /* gw_uni_table */

#include <stdbool.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */

enum { MOST_PAGES = 1024 };

static bool is_empty(uint32_t page) {
    uint32_t plane = page >> 8;
    return (plane > 3 && plane != 14) || plane > 14;
}

/* The index of a page with this content. Equal pages are nearly always neighbours. */
static uint16_t intern(gw_uni_table *t, const uint8_t content[256]) {
    for (int i = t->npages; i-- > 0;)
        if (!memcmp(t->pages[i], content, 256)) return (uint16_t)i;
    memcpy(t->pages[t->npages], content, 256);
    return (uint16_t)t->npages++;
}

gw_uni_table *gw_uni_table_new(int version) {
    gw_uni_table *t = gw_mem_zalloc(sizeof *t);
    t->version = version;
    t->pages = gw_mem_alloc(MOST_PAGES * sizeof *t->pages);
    uint8_t content[256] = {0};
    uint16_t empty = intern(t, content);
    for (uint32_t page = 0; page < GW_UNI_PAGES; page++) {
        t->page_of[page] = empty;
        if (is_empty(page)) continue;
        for (uint32_t i = 0; i < 256; i++)
            content[i] = (uint8_t)gw_uni_class(page << 8 | i, version);
        t->page_of[page] = intern(t, content);
    }
    t->pages = gw_mem_realloc(t->pages, (size_t)t->npages * sizeof *t->pages);
    return t;
}

void gw_uni_table_free(gw_uni_table *t) {
    if (!t) return;
    gw_mem_free(t->pages);
    gw_mem_free(t);
}
