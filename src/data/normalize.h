// SPDX-License-Identifier: Apache-2.0
// Normalisers of tokenizer.json: text to text, before splitting.
#ifndef GW_DATA_NORMALIZE_H
#define GW_DATA_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */
#include "data/regex.h" /* gw_regex */

typedef enum gw_norm_kind {
    GW_NORM_NFC,
    GW_NORM_NFD,
    GW_NORM_NFKC,
    GW_NORM_NFKD,
    GW_NORM_LOWERCASE,
    GW_NORM_PREPEND,       /* content before a text that is not empty */
    GW_NORM_REPLACE,       /* each `pattern` by content */
    GW_NORM_REPLACE_REGEX, /* each match by content */
    GW_NORM_STRIP,         /* white space at the ends */
} gw_norm_kind;

typedef struct gw_norm_step {
    gw_norm_kind kind;
    const char *pattern, *content; /* borrowed */
    size_t pattern_len, content_len;
    gw_regex *regex; /* owned by the tokenizer */
    bool left, right;
} gw_norm_step;

typedef struct gw_norm_scratch {
    gw_str text[2];
    int32_t *cps; /* code points of one run */
    size_t cps_cap;
    gw_regex_scratch *regex; /* borrowed */
} gw_norm_scratch;
void gw_norm_scratch_release(gw_norm_scratch *s);

/* Applies the steps in order. *out points into `in` (no steps) or into the scratch, valid until the
 * next call. Bytes that are not valid UTF-8 pass unchanged and bound what composes. O(n) a step. */
GW_WARN_UNUSED gw_status gw_norm_run(const gw_norm_step *steps, int nsteps, gw_norm_scratch *s,
                                     const uint8_t *in, size_t n, const uint8_t **out, size_t *nout,
                                     gw_diags *dg);
/* One replacement over a text, appended to `out`; also what the Replace decoder does. */
GW_WARN_UNUSED gw_status gw_norm_replace(const gw_norm_step *step, gw_regex_scratch *regex,
                                         const uint8_t *in, size_t n, gw_str *out, gw_diags *dg);

#endif
