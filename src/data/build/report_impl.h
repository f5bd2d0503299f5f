// SPDX-License-Identifier: Apache-2.0
// Sums over the units of a build, and the report as text. Not for use outside src/data/build.
#ifndef GW_DATA_BUILD_REPORT_IMPL_H
#define GW_DATA_BUILD_REPORT_IMPL_H

#include <jansson.h> /* json_t */
#include <stdint.h>

#include "base/map.h"               /* GW_VEC */
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

/* Rows of extracted units that a report shows. Samples are chosen by hashes, so they lie all over
 * the units: rows are asked for in the report's order, and read in that of the files, so that each
 * block, of megabytes, is unpacked once. {.b = b} before the first row. */
typedef struct gw_shown_row {
    int64_t unit, row;
    json_t *o; /* borrowed */
} gw_shown_row;
typedef struct gw_row_view {
    const gw_databuild *b;
    GW_VEC(gw_shown_row) rows;
} gw_row_view;

/* Adds "unit", "row", "url" and "text" of a row to o, the last two empty until gw_row_view_read.
 * o must last until then. */
void gw_build_show_row(gw_row_view *v, int64_t unit, int64_t row, json_t *o);
/* Reads all rows that were asked for: the address, and the beginning of the text. */
GW_WARN_UNUSED gw_status gw_row_view_read(gw_row_view *v, gw_diags *dg);
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
