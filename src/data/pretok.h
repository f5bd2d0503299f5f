// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisers: cutting a text into the pieces that BPE works on.
#ifndef GW_DATA_PRETOK_H
#define GW_DATA_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */
#include "data/regex.h" /* gw_regex */
#include "data/scan.h"  /* gw_scan */

typedef enum gw_pre_kind {
    GW_PRE_SCAN,         /* a hand-written scanner; every character is in a match */
    GW_PRE_REGEX,        /* matches of a regex */
    GW_PRE_STRING,       /* occurrences of a string */
    GW_PRE_NUMBERS,      /* each character of category N */
    GW_PRE_WHITESPACE,   /* each white space character */
    GW_PRE_PREFIX_SPACE, /* a space before each piece that has none */
    GW_PRE_METASPACE,    /* spaces become a mark, which also begins pieces */
} gw_pre_kind;

/* What becomes of matches; the names are those of tokenizer.json. */
typedef enum gw_pre_behavior {
    GW_PRE_ISOLATED,
    GW_PRE_REMOVED,
    GW_PRE_MERGED_WITH_PREVIOUS,
    GW_PRE_MERGED_WITH_NEXT,
    GW_PRE_CONTIGUOUS,
} gw_pre_behavior;

typedef enum gw_pre_prepend { GW_PRE_ALWAYS, GW_PRE_FIRST, GW_PRE_NEVER } gw_pre_prepend;

typedef struct gw_pre_step {
    gw_pre_kind kind;
    gw_pre_behavior behavior;
    bool invert; /* matches and gaps change places */
    gw_scan scan;
    gw_regex *regex;  /* owned by the tokenizer */
    const char *text; /* STRING: what to find; METASPACE: the mark. Borrowed */
    size_t text_len;
    gw_pre_prepend prepend; /* METASPACE */
    bool split;             /* METASPACE */
} gw_pre_step;

typedef struct gw_piece {
    uint32_t start, len;
} gw_piece;

typedef struct gw_pre_scratch {
    gw_str text[2];
    struct {
        gw_piece *items;
        int64_t count, cap;
    } pieces[2];
    gw_str stand_in;         /* a run with newer characters replaced for the regex library */
    gw_regex_scratch *regex; /* borrowed */
} gw_pre_scratch;
void gw_pre_scratch_release(gw_pre_scratch *s);

/* Cuts text[0..n), n < 2^31. *out is the text that pieces index (the input, or a rewritten one in
 * the scratch). at_start: the text begins the whole input. Pieces may be empty. */
GW_WARN_UNUSED gw_status gw_pre_run(const gw_pre_step *steps, int nsteps, int unicode_version,
                                    gw_pre_scratch *s, const uint8_t *text, size_t n, bool at_start,
                                    const uint8_t **out, const gw_piece **pieces, int64_t *npieces,
                                    gw_diags *dg);

#endif
