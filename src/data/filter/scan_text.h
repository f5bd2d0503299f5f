// SPDX-License-Identifier: Apache-2.0
// Looking for bytes and phrases in a text, 16 bytes at a time.
#ifndef GW_DATA_FILTER_SCAN_TEXT_H
#define GW_DATA_FILTER_SCAN_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The first byte of p[0, end) that breaks lines for str.splitlines(), or begins a character that
 * may (U+0085, U+2028, U+2029): its class decides. `end` where there is none. */
const char *text_find_break(const char *p, const char *end);

/* Phrases looked for together, in a text with letters of either case. A phrase is small ASCII
 * letters and spaces, of 4 to 32 bytes; `pair` is where in it its two rarest neighbouring bytes
 * stand. */
typedef struct text_phrase {
    const char *text;
    uint8_t bytes, pair;
} text_phrase;
/* Which of the phrases stand in text[0, n): bit k for phrases[k], k < nphrases <= 32. */
unsigned text_find_phrases(const text_phrase *phrases, int nphrases, const char *text, int64_t n);

#endif
