// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4, and the escapes that belong to it. Pure functions of their arguments.
//
// Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference. A path is
// escaped once and not normalised, as S3 has it.
#ifndef GW_FILE_S3_SIGN_H
#define GW_FILE_S3_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

/* A header or a query parameter; values as they are, unescaped. */
typedef struct gw_s3_pair {
    const char *name, *value;
} gw_s3_pair;

typedef struct gw_s3_scope {
    const char *access_key, *secret_key;
    const char *region;
    const char *service;  /* "s3" */
    const char *amz_date; /* "20150830T123600Z" */
} gw_s3_scope;

typedef struct gw_s3_request {
    const char *method;
    const char *path; /* from '/', unescaped bytes */
    const gw_s3_pair *query;
    int nquery;
    const gw_s3_pair *headers;  /* all that are signed, host and x-amz-date among them; any order */
    int nheaders;               /* and case; repeated names allowed */
    const char *payload_sha256; /* lower-case hex, or "UNSIGNED-PAYLOAD" */
} gw_s3_request;

/* Appends the canonical request, the text whose hash is signed. */
void gw_s3_canonical(gw_str *out, const gw_s3_request *r);
/* Appends the value of the Authorization header. */
void gw_s3_authorization(gw_str *out, const gw_s3_scope *scope, const gw_s3_request *r);

/* Appends n bytes with everything but A-Z a-z 0-9 - . _ ~ as %XX; '/' stays with keep_slash. */
void gw_s3_escape(gw_str *out, const char *bytes, size_t n, bool keep_slash);
/* Appends parameters in canonical order and escapes, "a=1&b="; also right for a URL. */
void gw_s3_query(gw_str *out, const gw_s3_pair *query, int n);

/* Lower-case hex of SHA-256. */
void gw_sha256_hex(char hex[65], const void *bytes, size_t n);
/* The same hash, raw and as base64 with padding. */
void gw_sha256(uint8_t digest[32], const void *bytes, size_t n);
void gw_sha256_base64(char text[45], const uint8_t digest[32]);
void gw_hex(char *hex, const uint8_t *bytes, size_t n); /* 2n + 1 characters */

#endif
