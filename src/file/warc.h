// SPDX-License-Identifier: Apache-2.0
// WARC 1.0 and 1.1: records of a web archive, plain, gzip by member or zstd.
//
// Sources: ISO 28500:2017 (WARC 1.1); the IIPC's "Zstandard compression for WARC files 1.0".
#ifndef GW_FILE_WARC_H
#define GW_FILE_WARC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"    /* gw_status, gw_diags */
#include "base/str.h"     /* gw_str */
#include "file/inflate.h" /* gw_inflate */

typedef enum gw_warc_type {
    GW_WARC_WARCINFO,
    GW_WARC_RESPONSE,
    GW_WARC_RESOURCE,
    GW_WARC_REQUEST,
    GW_WARC_METADATA,
    GW_WARC_REVISIT,
    GW_WARC_CONVERSION,
    GW_WARC_CONTINUATION,
    GW_WARC_UNKNOWN
} gw_warc_type;
const char *gw_warc_type_name(gw_warc_type t);

typedef enum gw_digest_state {
    GW_DIGEST_NONE, /* absent, or of an algorithm that is not checked */
    GW_DIGEST_GOOD,
    GW_DIGEST_BAD
} gw_digest_state;

/* A record. Strings are "" where the header is absent; all pointers live until the next call. */
typedef struct gw_warc_record {
    gw_warc_type type;
    int64_t offset; /* in the file: of the member that the record begins in; plain: of the record */
    const char *id, *uri, *date, *content_type, *identified_type, *truncated;
    const char *block_digest, *payload_digest;
    const uint8_t *block; /* NULL if too long to be read */
    int64_t block_bytes;
    gw_digest_state digest; /* of the block, or else of the payload */
} gw_warc_record;

typedef struct gw_warc_options {
    int64_t max_record_bytes; /* 0 = 64 MiB; longer blocks are stepped over */
    int64_t max_ratio;        /* see gw_inflate_open */
    bool check_digests;
} gw_warc_options;

/* Told once for each damaged place, while reading. */
typedef struct gw_warc_damage {
    int64_t offset;
    const char *why; /* static or owned by the reader until the next call */
} gw_warc_damage;

typedef struct gw_warc gw_warc;
GW_WARN_UNUSED gw_status gw_warc_open(const gw_warc_options *options, const char *path,
                                      gw_warc **out, gw_diags *dg);
gw_warc *gw_warc_open_bytes(const gw_warc_options *options, const uint8_t *bytes, int64_t n);
void gw_warc_free(gw_warc *w);

typedef enum gw_warc_step { GW_WARC_RECORD, GW_WARC_DAMAGE, GW_WARC_END } gw_warc_step;
/* The next whole record, or a damaged place (told in *damage; the next call goes on after it), or
 * the end. Accepts LF-only lines, extra blank lines, continued header lines, <> around URIs, and a
 * warcinfo without Content-Length (it ends where a line "WARC/1." follows a blank line). */
gw_warc_step gw_warc_next(gw_warc *w, gw_warc_record *record, gw_warc_damage *damage);
const gw_inflate *gw_warc_stream(const gw_warc *w);

/* The HTTP message in a response's block. Strings are borrowed from `scratch`. */
typedef struct gw_http {
    int status;               /* 0: no HTTP head, the block is the body */
    const char *content_type; /* lower case, without parameters */
    const char *charset;      /* lower case; "" if not said */
    const uint8_t *body;      /* decoded: neither chunked nor compressed */
    int64_t body_bytes;
    bool undecoded; /* unknown or broken coding: the body is what could be decoded */
} gw_http;
/* Scratch of one thread; zero-initialised is ready. */
typedef struct gw_http_scratch {
    gw_str head, chunks, body, other;
} gw_http_scratch;
void gw_http_scratch_release(gw_http_scratch *s);
/* Reads the head and undoes Transfer-Encoding: chunked and Content-Encoding, of at most `limit`
 * bytes. HTTP's Content-Length is not believed: where the block ends, the body ends. A body that
 * says it is coded and begins otherwise is taken as it is: crawlers store decoded bodies under the
 * old headers. */
void gw_http_read(const uint8_t *block, int64_t n, int64_t limit, gw_http_scratch *s, gw_http *out);
/* Splits a Content-Type value: media type and charset, lower case, cut to fit. */
void gw_http_content_type(const char *value, char type[64], char charset[64]);

#endif
