// SPDX-License-Identifier: Apache-2.0
// Sums over the units of a build, and the report as text. Not for use outside src/data/build.
#ifndef GW_DATA_BUILD_REPORT_IMPL_H
#define GW_DATA_BUILD_REPORT_IMPL_H

#include <jansson.h> /* json_t */
#include <stdint.h>

#include "base/str.h"               /* gw_str */
#include "data/build/stages.h"      /* GW_STAGE_COUNT */
#include "data/build/token_width.h" /* gw_token_width */
#include "data/text/pii.h"          /* GW_PII_KINDS */

typedef struct gw_build_sums {
    int64_t bytes_in, records, documents, html, raw_bytes, texts, text_bytes;
    int64_t not_page, other_type, too_long, undecoded, digests_bad;
    int64_t bad_bytes, cut_pages, damages;
    int64_t kept, kept_bytes, empty;
    int64_t *removed; /* [filters][GW_MOST_REASONS] */
    int64_t out_documents, out_bytes, tokens, duplicates, cut_bytes;
    int64_t specials; /* texts of special tokens in what was tokenized */
    int64_t pii[GW_PII_KINDS];
    int width; /* of a token, bytes */
    double cpu, stage[GW_STAGE_COUNT];
    json_t *damaged; /* files with damage */
} gw_build_sums;

/* Markdown for people, from report.json. */
void gw_build_report_text(const json_t *report, gw_str *out);

#endif
