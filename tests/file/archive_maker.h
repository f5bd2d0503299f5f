// SPDX-License-Identifier: Apache-2.0
// Compressed members and WARC records, made in memory for tests.
#ifndef GW_TESTS_FILE_ARCHIVE_MAKER_H
#define GW_TESTS_FILE_ARCHIVE_MAKER_H

#include <stddef.h>

#include "base/str.h" /* gw_str */

/* Appends p[0, n) as one gzip member, by zlib. */
void make_gzip(gw_str *out, const void *p, size_t n);
/* Appends it as a raw deflate stream. */
void make_deflate(gw_str *out, const void *p, size_t n);
/* Appends it as one zstd frame with a checksum; dictionary may be NULL. */
void make_zstd(gw_str *out, const void *p, size_t n, const void *dictionary, size_t dictionary_n);
/* Appends a record: type, URI ("" for none), a block, and further header lines (each ended by
 * CRLF). */
void make_record(gw_str *out, const char *type, const char *uri, const char *headers,
                 const void *block, size_t n);
/* The same for a response whose block is an HTTP message with the given header lines and body. */
void make_response(gw_str *out, const char *uri, const char *http_headers, const char *body);

#endif
