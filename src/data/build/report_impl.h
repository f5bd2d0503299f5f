// SPDX-License-Identifier: Apache-2.0
// Sums over the units of a build, and the report as text. Not for use outside src/data/build.
#ifndef GW_DATA_BUILD_REPORT_IMPL_H
#define GW_DATA_BUILD_REPORT_IMPL_H

#include <jansson.h> /* json_t */
#include <stdint.h>

#include "base/str.h"               /* gw_str */
#include "data/build/build_impl.h"  /* gw_databuild, GW_CUTS */
#include "data/build/stages.h"      /* GW_STAGE_COUNT */
#include "data/build/token_width.h" /* gw_token_width */
#include "data/text/pii.h"          /* GW_PII_KINDS */

typedef struct gw_build_sums {
    int64_t bytes_in, records, documents, html, raw_bytes, texts, text_bytes;
    int64_t not_page, other_type, too_long, undecoded, digests_bad;
    int64_t bad_bytes, cut_pages, damages;
    int64_t kept, kept_bytes, empty;
    int64_t *removed; /* [filters][GW_MOST_REASONS] */
    int64_t out_documents, out_bytes, tokens, cut_bytes, emptied;
    int64_t gone[GW_DEDUP_SEEN + 1];              /* documents, by gw_dedup_why */
    int64_t cut_ranges[GW_CUTS], cut_by[GW_CUTS]; /* what is cut twice counts in both */
    int64_t specials; /* texts of special tokens in what was tokenized */
    int64_t pii[GW_PII_KINDS];
    int width; /* of a token, bytes */
    double cpu, stage[GW_STAGE_COUNT];
    json_t *damaged; /* files with damage */
} gw_build_sums;

/* Rows of extracted units, and the block that the latest was in: samples of a small build lie in
 * few blocks, of megabytes each. {.b = b} before the first row. */
typedef struct gw_row_view {
    const gw_databuild *b;
    gw_columns *docs; /* NULL: no block is held */
    int64_t unit, block, first;
    gw_column_data url, text;
} gw_row_view;

/* Adds "unit", "row", "url" and the beginning of the text of a row to o. */
GW_WARN_UNUSED gw_status gw_build_show_row(gw_row_view *v, int64_t unit, int64_t row, json_t *o,
                                           gw_diags *dg);
void gw_row_view_release(gw_row_view *v);
/* How large clusters of equal and alike documents are, the largest of them, and pairs of a document
 * that went and the one that stayed, chosen by a hash of their ids and the seed; a new reference.
 * *out is NULL where nothing was compared. */
GW_WARN_UNUSED gw_status gw_build_clusters(gw_databuild *b, gw_row_view *v, json_t **out,
                                           gw_diags *dg);

/* Markdown for people, from report.json. */
void gw_build_report_text(const json_t *report, gw_str *out);
/* The same as one page of HTML that needs nothing else. */
void gw_build_report_html(const json_t *report, const char *dir, gw_str *out);

#endif
