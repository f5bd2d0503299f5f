// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4.
//
// A request is put into one canonical text: method, escaped path, sorted query, sorted lower-case
// headers, their names, and the hash of the body. The text's hash, with date and scope, is signed
// by a key that is derived from the secret in four steps of HMAC. The store does the same with what
// it received, so both must agree on every byte of the text.
//
// Where clients go wrong, and what holds here:
//   - '=' '+' ' ' '~' and bytes beyond ASCII in keys: the path is escaped from raw bytes, once, and
//     the URL that is sent is made from the same text, so there is no second opinion to differ.
//   - queries: parameters without value have a bare "name="; names are sorted after escaping (which
//     differs from sorting before where '%' meets '-'), equal names by value, and repeated names
//     stay.
//   - header values: white space at the ends goes, runs of it become one space (also within
//   quotes),
//     values of a repeated name are joined by commas in the order given.
// The signer signs exactly the headers that it is given; which those are is the caller's matter.
//
// HMAC and SHA-256 are OpenSSL's. Nothing here is kept between calls.
#include "file/s3_sign.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_arena, for sorted copies */

/* --- hashes and text -------------------------------------------------------------------------- */

void gw_hex(char *hex, const uint8_t *bytes, size_t n) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * n] = 0;
}

void gw_sha256(uint8_t digest[32], const void *bytes, size_t n) {
    SHA256(n ? bytes : (const void *)"", n, digest);
}

void gw_sha256_hex(char hex[65], const void *bytes, size_t n) {
    uint8_t digest[32];
    gw_sha256(digest, bytes, n);
    gw_hex(hex, digest, 32);
}

void gw_sha256_base64(char text[45], const uint8_t digest[32]) {
    EVP_EncodeBlock((unsigned char *)text, digest, 32);
}

static bool is_unreserved(unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void gw_s3_escape(gw_str *out, const char *bytes, size_t n, bool keep_slash) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (is_unreserved(c) || (c == '/' && keep_slash)) {
            gw_str_add_char(out, (char)c);
        } else {
            gw_str_add_char(out, '%');
            gw_str_add_char(out, digits[c >> 4]);
            gw_str_add_char(out, digits[c & 15]);
        }
    }
}

/* --- query ------------------------------------------------------------------------------------ */

static int by_name_and_value(const void *pa, const void *pb) {
    const gw_s3_pair *a = pa, *b = pb;
    int c = strcmp(a->name, b->name);
    return c ? c : strcmp(a->value, b->value);
}

static const char *escaped(gw_arena *a, const char *text) {
    gw_str s = {0};
    gw_s3_escape(&s, text, strlen(text), false);
    const char *copy = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return copy;
}

void gw_s3_query(gw_str *out, const gw_s3_pair *query, int n) {
    if (n == 0) return;
    gw_arena a = {0};
    gw_s3_pair *sorted = gw_arena_new(&a, gw_s3_pair, n);
    for (int i = 0; i < n; i++)
        sorted[i] = (gw_s3_pair){escaped(&a, query[i].name),
                                 escaped(&a, query[i].value ? query[i].value : "")};
    qsort(sorted, (size_t)n, sizeof *sorted, by_name_and_value);
    for (int i = 0; i < n; i++)
        gw_str_printf(out, "%s%s=%s", i ? "&" : "", sorted[i].name, sorted[i].value);
    gw_arena_release(&a);
}

/* --- headers ---------------------------------------------------------------------------------- */

typedef struct signed_header {
    const char *name; /* lower case */
    const char *value;
    int order; /* as given: repeated names keep it */
} signed_header;

static int by_header(const void *pa, const void *pb) {
    const signed_header *a = pa, *b = pb;
    int c = strcmp(a->name, b->name);
    return c ? c : a->order - b->order;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static const char *folded(gw_arena *a, const char *value) {
    char *out = gw_arena_strdup(a, value);
    size_t n = 0;
    for (const char *p = value; *p; p++) {
        if (!is_blank(*p))
            out[n++] = *p;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = 0;
    return out;
}

static signed_header *sort_headers(gw_arena *a, const gw_s3_request *r) {
    signed_header *h = gw_arena_new(a, signed_header, r->nheaders);
    for (int i = 0; i < r->nheaders; i++) {
        char *name = gw_arena_strdup(a, r->headers[i].name);
        for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
        h[i] = (signed_header){name, folded(a, r->headers[i].value), i};
    }
    if (r->nheaders > 1) qsort(h, (size_t)r->nheaders, sizeof *h, by_header);
    return h;
}

static bool repeats(const signed_header *h, int i) {
    return i > 0 && strcmp(h[i].name, h[i - 1].name) == 0;
}

static void add_names(gw_str *out, const signed_header *h, int n) {
    for (int i = 0; i < n; i++)
        if (!repeats(h, i)) gw_str_printf(out, "%s%s", i ? ";" : "", h[i].name);
}

static void add_canonical(gw_str *out, const gw_s3_request *r, const signed_header *h) {
    gw_str_printf(out, "%s\n", r->method);
    gw_s3_escape(out, r->path, strlen(r->path), true);
    gw_str_add(out, "\n");
    gw_s3_query(out, r->query, r->nquery);
    for (int i = 0; i < r->nheaders; i++) {
        if (repeats(h, i))
            gw_str_printf(out, ",%s", h[i].value);
        else
            gw_str_printf(out, "\n%s:%s", h[i].name, h[i].value);
    }
    gw_str_add(out, "\n\n");
    add_names(out, h, r->nheaders);
    gw_str_printf(out, "\n%s", r->payload_sha256);
}

void gw_s3_canonical(gw_str *out, const gw_s3_request *r) {
    gw_arena a = {0};
    add_canonical(out, r, sort_headers(&a, r));
    gw_arena_release(&a);
}

/* --- signature -------------------------------------------------------------------------------- */

static void hmac(uint8_t out[32], const void *key, size_t nkey, const char *text) {
    unsigned int n = 32;
    HMAC(EVP_sha256(), key, (int)nkey, (const unsigned char *)text, strlen(text), out, &n);
}

static void signing_key(uint8_t key[32], const gw_s3_scope *s) {
    char day[9] = {0};
    memcpy(day, s->amz_date, strnlen(s->amz_date, 8));
    gw_str first = {0};
    gw_str_printf(&first, "AWS4%s", s->secret_key);
    hmac(key, first.data, first.len, day);
    OPENSSL_cleanse(first.data, first.len);
    gw_str_release(&first);
    hmac(key, key, 32, s->region);
    hmac(key, key, 32, s->service);
    hmac(key, key, 32, "aws4_request");
}

void gw_s3_authorization(gw_str *out, const gw_s3_scope *s, const gw_s3_request *r) {
    gw_arena a = {0};
    gw_str canonical = {0}, text = {0}, scope = {0};
    signed_header *h = sort_headers(&a, r);
    char hex[65];
    uint8_t key[32], signature[32];
    add_canonical(&canonical, r, h);
    gw_sha256_hex(hex, canonical.data, canonical.len);
    gw_str_printf(&scope, "%.8s/%s/%s/aws4_request", s->amz_date, s->region, s->service);
    gw_str_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", s->amz_date, scope.data, hex);
    signing_key(key, s);
    hmac(signature, key, 32, text.data);
    OPENSSL_cleanse(key, sizeof key);
    gw_hex(hex, signature, 32);
    gw_str_printf(out, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", s->access_key,
                  scope.data);
    add_names(out, h, r->nheaders);
    gw_str_printf(out, ", Signature=%s", hex);
    gw_str_release(&scope);
    gw_str_release(&text);
    gw_str_release(&canonical);
    gw_arena_release(&a);
}
