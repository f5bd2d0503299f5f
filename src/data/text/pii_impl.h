// SPDX-License-Identifier: Apache-2.0
// Detectors of one kind each, tried at a place of a text.
#ifndef GW_DATA_TEXT_PII_IMPL_H
#define GW_DATA_TEXT_PII_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "data/text/pii.h" /* gw_pii_span */

/* text[from..end) may be taken; bytes before `from` belong to an earlier find. */
typedef struct pii_text {
    const char *text;
    int64_t from, end;
} pii_text;

/* Bytes at which a secret is looked for. */
#define PII_SECRET_BYTES "KJxz_-=:"

/* pii_net.c. The first e-mail address at or after `from`. */
bool pii_email(const char *text, int64_t n, int64_t from, gw_pii_span *out);
/* An address whose first digits are the run that begins at i. *skip: where to go on if there is
 * none, past a match that is no public address. */
bool pii_ip(const pii_text *t, int64_t i, bool all, gw_pii_span *out, int64_t *skip);
/* pii_number.c */
bool pii_phone(const pii_text *t, int64_t i, gw_pii_span *out);
bool pii_card(const pii_text *t, int64_t i, gw_pii_span *out);
/* pii_secret.c */
bool pii_secret(const pii_text *t, int64_t i, gw_pii_span *out);

static inline bool pii_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool pii_is_alnum(char c) {
    return pii_is_digit(c) || (uint8_t)((c | 32) - 'a') < 26;
}
/* The byte at i, or 0 outside of what may be taken. */
static inline char pii_at(const pii_text *t, int64_t i) {
    return i >= t->from && i < t->end ? t->text[i] : 0;
}

#endif
