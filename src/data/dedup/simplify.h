// SPDX-License-Identifier: Apache-2.0
// datatrove's simplify_text: what texts are compared by when they need not be equal to the byte.
#ifndef GW_DATA_DEDUP_SIMPLIFY_H
#define GW_DATA_DEDUP_SIMPLIFY_H

#include <stdint.h>

#include "base/str.h" /* gw_str */

typedef struct gw_simplify gw_simplify; /* tables; may be shared by threads */
gw_simplify *gw_simplify_new(void);
void gw_simplify_free(gw_simplify *s);

/* Replaces *out by the simplified form of text[0..n), valid UTF-8 (bytes that are not pass as they
 * are): lower case (Python's str.lower), each number of decimal digits of any script, with one
 * fraction, as "0", punctuation as spaces, runs of white space as one, canonical decomposition
 * without non-spacing marks, nothing at the ends. Unicode 14 (Python 3.11). */
void gw_simplify_text(const gw_simplify *s, const char *text, int64_t n, gw_str *out);
/* Lower case alone, by the same rules. */
void gw_simplify_lower(const char *text, int64_t n, gw_str *out);

#endif
