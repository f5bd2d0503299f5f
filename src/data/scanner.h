// SPDX-License-Identifier: Apache-2.0
// The pieces of a whole text, found 64 characters at a time.
#ifndef GW_DATA_SCANNER_H
#define GW_DATA_SCANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/scan.h" /* gw_scan, gw_uni_table */

/* How characters are told apart; all give the same pieces. */
typedef enum gw_scan_with {
    GW_SCAN_PLAIN,  /* C */
    GW_SCAN_AVX2,   /* with BMI2 */
    GW_SCAN_AVX512, /* BW, with BMI2 */
} gw_scan_with;
/* The best this machine has, and whether it has one. */
gw_scan_with gw_scan_best(void);
bool gw_scan_has(gw_scan_with with);
const char *gw_scan_with_name(gw_scan_with with);

/* Working memory of one thread: about 60 kB, with text that is not ASCII 130 kB, plus a copy of
 * the last piece of a text where that is long. */
typedef struct gw_scanner gw_scanner;
gw_scanner *gw_scanner_new(void);
void gw_scanner_free(gw_scanner *s);
int64_t gw_scanner_bytes(const gw_scanner *s);
/* For tests: from now on `with`, which this machine must have. */
void gw_scanner_use(gw_scanner *s, gw_scan_with with);

/* Begins a text of n < 2^31 bytes, borrowed until its last batch. */
void gw_scanner_begin(gw_scanner *s, gw_scan kind, int unicode_version, const uint8_t *text,
                      size_t n);
/* The next batch of pieces; 0 at the end of the text. Piece k is base[bounds[k] .. bounds[k + 1]);
 * base is readable for 16 bytes past the last bound. Both are valid until the next call. The pieces
 * are those of gw_scan_next. O(bytes) over a text. */
int64_t gw_scanner_next(gw_scanner *s, const uint8_t **base, const uint32_t **bounds);

#endif
