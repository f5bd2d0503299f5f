// SPDX-License-Identifier: Apache-2.0
// A document on its way from a raw archive to tokens.
//
// One process takes documents one at a time through all stages: a source fills in where it comes
// from and its raw bytes, extraction its text, language id and filters what they say of it. The
// buffers stay for the next document, so that a stream of documents allocates nothing once the
// largest has been seen.
#ifndef GW_DATA_DOC_H
#define GW_DATA_DOC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

typedef enum gw_media {
    GW_MEDIA_HTML,
    GW_MEDIA_TEXT, /* text as it stands */
    GW_MEDIA_OTHER /* an image, a PDF: passed over, and counted */
} gw_media;

/* Which document: the number of its unit (an input file) in the pipeline's list, and of its record
 * in that unit, both from 0. The order of ids is the order of the input; it depends on nothing
 * else. */
typedef struct gw_doc_id {
    uint32_t unit, index;
} gw_doc_id;

typedef struct gw_doc {
    gw_doc_id id;
    const char *url;     /* "" where the source knows none; borrowed until the next document */
    const char *date;    /* as the source says it, ISO 8601; "" without */
    const char *charset; /* said by HTTP or by the source, lower case; "" where nobody says */
    gw_media media;
    const uint8_t *raw; /* [raw_bytes], borrowed from the source until the next document */
    int64_t raw_bytes;
    gw_str text;          /* UTF-8, valid always */
    char language[8];     /* ISO 639-1 or -3, lower case; "" undetermined */
    float language_score; /* 0..1 */
} gw_doc;

#endif
