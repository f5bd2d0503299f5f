// SPDX-License-Identifier: Apache-2.0
// Personal and secret things in a text: found, and marked or replaced.
#ifndef GW_DATA_TEXT_PII_H
#define GW_DATA_TEXT_PII_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

typedef enum gw_pii_kind {
    GW_PII_EMAIL,  /* as datatrove's PIIFormatter finds them */
    GW_PII_IP,     /* public IPv4 addresses, likewise */
    GW_PII_PHONE,  /* written internationally (+CC ...), or as North America writes it */
    GW_PII_CARD,   /* 13 to 19 digits of a known issuer whose Luhn sum is 0 */
    GW_PII_SECRET, /* keys of known shapes, private key blocks, JWT, assigned high-entropy text */
} gw_pii_kind;
#define GW_PII_KINDS 5

typedef enum gw_pii_how {
    GW_PII_OFF,
    GW_PII_REPLACE, /* by fixed fictitious ones, in turn: datatrove's for e-mail and IP */
    GW_PII_MARK,    /* by "<EMAIL>", "<IP>", "<PHONE>", "<CARD>", "<SECRET>" */
} gw_pii_how;

typedef struct gw_pii_options {
    gw_pii_how how[GW_PII_KINDS];
    bool all_ips; /* private and reserved addresses too */
} gw_pii_options;

typedef struct gw_pii_counts {
    int64_t found[GW_PII_KINDS];
} gw_pii_counts;

/* One find of a kind: text[offset..offset+bytes). */
typedef struct gw_pii_span {
    gw_pii_kind kind;
    int64_t offset, bytes;
} gw_pii_span;

/* Scratch of one thread. Which replacement comes next is counted from the start of each text, so
 * that a document's result depends on the document only (datatrove counts over all texts of a
 * worker; gw_pii_continue does the same). */
typedef struct gw_pii gw_pii;
gw_pii *gw_pii_new(void);
void gw_pii_free(gw_pii *p);
/* Do not start again with the first replacement at each text. */
void gw_pii_continue(gw_pii *p, bool on);

/* What FineWeb does: e-mail and public IP replaced, the rest off. */
gw_pii_options gw_pii_defaults(void);
/* Marks or replaces in place; adds to counts. Linear time. */
void gw_pii_mark(gw_pii *p, const gw_pii_options *o, gw_str *text, gw_pii_counts *counts);
/* Finds without changing: spans in the order of the text, at most `limit` written; returns how many
 * there are. Where kinds overlap the earlier in the enumeration wins. */
int64_t gw_pii_find(gw_pii *p, const gw_pii_options *o, const char *text, int64_t n,
                    gw_pii_span *spans, int64_t limit);

/* "email", "ip", "phone", "card", "secret". */
const char *gw_pii_kind_name(gw_pii_kind k);

#endif
