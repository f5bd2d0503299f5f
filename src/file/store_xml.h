// SPDX-License-Identifier: Apache-2.0
// The XML answers of S3. Parsers of outside bytes: anything may be given to them; they give false,
// and *why, for what is not such an answer. All text goes into `a`.
#ifndef GW_FILE_STORE_XML_H
#define GW_FILE_STORE_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */

typedef struct gw_s3_object {
    const char *key; /* unescaped */
    bool is_folder;
    int64_t bytes;
    const char *etag;
    double modified; /* seconds since 1970, or 0 */
} gw_s3_object;

typedef struct gw_s3_page {
    gw_s3_object *objects; /* in the order of their keys */
    int64_t count;
    bool truncated;
    const char *token; /* of the next page; NULL on the last */
} gw_s3_page;

/* ListObjectsV2 with encoding-type=url. A truncated page without a token is refused. */
bool gw_s3_xml_list(const char *text, size_t n, gw_arena *a, gw_s3_page *out, const char **why);

typedef struct gw_s3_upload {
    const char *key, *id;
    double begun;
} gw_s3_upload;

typedef struct gw_s3_uploads {
    gw_s3_upload *uploads;
    int64_t count;
    bool truncated;
    const char *key_marker, *id_marker;
} gw_s3_uploads;

/* ListMultipartUploads with encoding-type=url. */
bool gw_s3_xml_uploads(const char *text, size_t n, gw_arena *a, gw_s3_uploads *out,
                       const char **why);

/* The text of a child of the root, whose name must be `root` (NULL: any). NULL if not so. */
const char *gw_s3_xml_field(const char *text, size_t n, const char *root, const char *child,
                            gw_arena *a);
/* Is the root of that name? */
bool gw_s3_xml_is(const char *text, size_t n, const char *root);

/* "2026-11-30T12:49:03.000Z" and "Mon, 30 Nov 2026 12:49:03 GMT" as seconds since 1970; 0 if not.
 */
double gw_s3_time(const char *text);

#endif
