// SPDX-License-Identifier: Apache-2.0
// The plain text that RedPajama-V2 counts words of and compares documents by.
#ifndef GW_DATA_TEXT_PLAIN_H
#define GW_DATA_TEXT_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

typedef struct gw_plain gw_plain; /* scratch of one thread */
gw_plain *gw_plain_new(void);
void gw_plain_free(gw_plain *s); /* NULL: nothing */

/* Replaces *out by text[0..n), valid UTF-8, without ASCII punctuation, in lower case (Python's
 * str.lower) and in normal form D. White space stays as it is: its words are those of str.split().
 * Source: `normalize` of togethercomputer/RedPajama-Data, app/src/utilities/text. */
void gw_plain_text(gw_plain *s, const char *text, int64_t n, gw_str *out);

/* Whether a character belongs to a word for \w of Python's regex module: alphabetic characters,
 * marks, decimal digits, connectors (Unicode's annex 18). */
bool gw_plain_is_word(uint32_t cp);

#endif
