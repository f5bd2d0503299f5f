// SPDX-License-Identifier: Apache-2.0
// Characters of a byte string and the classes that pre-tokenisers tell apart.
#ifndef GW_DATA_UNICODE_H
#define GW_DATA_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#define GW_CP_INVALID 0xffffffffu

/* Decodes the character at p < end. A byte that begins no valid sequence (overlong forms,
 * surrogates and values past 10FFFF included) gives GW_CP_INVALID and *len = 1. */
uint32_t gw_utf8_decode(const uint8_t *p, const uint8_t *end, int *len);
/* Returns the number of bytes written, 1 to 4. cp must be a valid scalar value. */
int gw_utf8_encode(uint32_t cp, uint8_t out[4]);
/* Length of the longest valid prefix. */
size_t gw_utf8_valid_prefix(const uint8_t *p, size_t n);
/* True if p[0..n), 1 <= n, is a strict beginning of some valid character. */
int gw_utf8_may_complete(const uint8_t *p, size_t n);
/* The length of the maximal subpart at p, which begins no valid character: what one U+FFFD stands
 * for (Unicode chapter 3.9, "substitution of maximal subparts"). At least 1. */
size_t gw_utf8_bad_part(const uint8_t *p, size_t n);
/* Writes valid UTF-8 of the same text: each maximal subpart that is not valid becomes U+FFFD. `out`
 * holds 3 * n bytes. Returns the bytes written. */
size_t gw_utf8_repair(const uint8_t *p, size_t n, uint8_t *out);

/* Class bits of a character. Lt counts as upper, Lm and Lo as upper and lower, M as all but letter,
 * which is how the o200k pattern sees words. GW_CP_INVALID has none. */
enum {
    GW_CLASS_LETTER = 1u, /* L */
    GW_CLASS_NUMBER = 2u, /* N */
    GW_CLASS_SPACE = 4u,  /* White_Space */
    GW_CLASS_CRLF = 8u,   /* CR or LF; a space too */
    GW_CLASS_UPPER = 16u, /* Lu Lt Lm Lo M */
    GW_CLASS_LOWER = 32u, /* Ll Lm Lo M */
};
/* version: of the tables, 13 to 17. A character that a later version added has no class. */
extern const uint8_t gw_uni_ascii[128]; /* classes of 00..7F, alike in every version */
unsigned gw_uni_class(uint32_t cp, int version);
/* White_Space. */
int gw_uni_is_space(uint32_t cp);
/* The version of the tables of the linked utf8proc (normal forms and lower case depend on it), e.g.
 * "15.0.0". */
const char *gw_uni_tables_version(void);

#endif
