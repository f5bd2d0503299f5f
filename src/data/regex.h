// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, by PCRE2.
#ifndef GW_DATA_REGEX_H
#define GW_DATA_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef struct gw_regex gw_regex;
typedef struct gw_regex_scratch gw_regex_scratch;

/* Compiles a pattern in Oniguruma's syntax (what Hugging Face files hold), with Unicode properties.
 * What the two engines read differently is translated (\s, \S, \w, \W, \h, \H) or refused (class
 * intersections, possessive intervals). `where` names file and JSON path in errors. */
GW_WARN_UNUSED gw_status gw_regex_new(const char *pattern, size_t n, const char *where,
                                      gw_regex **out, gw_diags *dg);
void gw_regex_free(gw_regex *re);

/* Working memory of one thread; may serve any number of expressions. */
gw_regex_scratch *gw_regex_scratch_new(void);
void gw_regex_scratch_free(gw_regex_scratch *s);

/* The first match in text[from..n): 1 and [*start, *end), or 0. Look-behind may see text[0..from).
 * The text must be valid UTF-8 (callers search each valid run on its own). -1: a matching limit was
 * hit. */
int gw_regex_find(const gw_regex *re, gw_regex_scratch *s, const uint8_t *text, size_t n,
                  size_t from, size_t *start, size_t *end);
/* The error that belongs to -1. */
gw_status gw_regex_limit_error(gw_diags *dg);

#endif
