// SPDX-License-Identifier: Apache-2.0
// The parts of a text that are compared as wholes: lines, paragraphs, spans of sentences.
#ifndef GW_DATA_DEDUP_SPANS_H
#define GW_DATA_DEDUP_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"       /* gw_status, gw_diags */
#include "base/hash.h"       /* gw_hash128 */
#include "data/text/words.h" /* gw_splitter */

typedef enum gw_span_kind {
    GW_SPAN_LINES,      /* of '\n', which belongs to the line before it */
    GW_SPAN_PARAGRAPHS, /* divided by one or more empty lines, which belong to the one before */
    GW_SPAN_SENTENCES   /* each run of `sentences` consecutive sentences (C4: three) */
} gw_span_kind;

typedef struct gw_span_options {
    gw_span_kind kind;
    int sentences;        /* >= 1 */
    gw_splitter splitter; /* SENTENCES: one of the two SPACY kinds */
    int min_bytes;        /* shorter ones (white space at their ends aside) are left alone */
    bool normalise;       /* compare by datatrove's simplified text instead of by bytes */
} gw_span_options;

/* Three sentences, English, normalised as in C4 by datatrove; lines and paragraphs by bytes. */
gw_span_options gw_span_options_default(gw_span_kind kind);

typedef struct gw_span {
    uint32_t begin, end; /* bytes of the text; spans of SENTENCES overlap */
    gw_hash128 key;
} gw_span;

typedef struct gw_spans gw_spans; /* one thread's scratch */
gw_spans *gw_spans_new(const gw_span_options *o);
void gw_spans_free(gw_spans *s);
/* The spans of a text in order, without those that hold nothing but white space and marks;
 * borrowed until the next call. n < 2^32. */
const gw_span *gw_spans_cut(gw_spans *s, const char *text, int64_t n, int64_t *count);

#endif
