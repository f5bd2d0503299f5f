// SPDX-License-Identifier: Apache-2.0
// Hand-written scanners for the public splitting patterns.
#ifndef GW_DATA_SCAN_H
#define GW_DATA_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/unicode_table.h" /* gw_uni_table */

typedef enum gw_scan {
    GW_SCAN_GPT2,
    GW_SCAN_LLAMA3,
    GW_SCAN_QWEN2,  /* llama3 with single digits */
    GW_SCAN_CL100K, /* llama3, but white space at the end of the text is one piece */
    GW_SCAN_O200K,
} gw_scan;

/* The end of the piece that begins at pos < n. Each piece has at least one byte; the pieces cover
 * the text. O(length) over a whole text. unicode_version: of the tables, 13 to 17. This is what the
 * patterns mean; scanner.h gives the same pieces faster. */
size_t gw_scan_next(gw_scan kind, int unicode_version, const uint8_t *text, size_t n, size_t pos);
/* The same with the classes of characters from a table. */
size_t gw_scan_next_by(gw_scan kind, const gw_uni_table *classes, const uint8_t *text, size_t n,
                       size_t pos);
/* The scanner of a regex as public files spell it; false for any other. */
bool gw_scan_from_pattern(const char *regex, gw_scan *out);
/* "gpt2", "llama3", "qwen2", "cl100k", "o200k"; false for any other. */
bool gw_scan_from_name(const char *name, gw_scan *out);
const char *gw_scan_name(gw_scan kind);
/* The pattern as Hugging Face files spell it, NULL for cl100k (its possessive form is not one). */
const char *gw_scan_pattern(gw_scan kind);

#endif
