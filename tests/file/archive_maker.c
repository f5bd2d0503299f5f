// SPDX-License-Identifier: Apache-2.0
// Compressed members and WARC records for tests, by the libraries' own encoders.
#include "archive_maker.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "harness.h"

static void make_zlib(gw_str *out, const void *p, size_t n, int window) {
    z_stream z = {0};
    CHECK_EQ(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    gw_str_reserve(out, deflateBound(&z, n) + 64);
    z.next_in = (z_const Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out->data + out->len;
    z.avail_out = (uInt)(out->cap - out->len);
    CHECK_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

void make_gzip(gw_str *out, const void *p, size_t n) { make_zlib(out, p, n, 31); }
void make_deflate(gw_str *out, const void *p, size_t n) { make_zlib(out, p, n, -15); }

void make_zstd(gw_str *out, const void *p, size_t n, const void *dictionary, size_t dictionary_n) {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    if (dictionary) ZSTD_CCtx_loadDictionary(c, dictionary, dictionary_n);
    gw_str_reserve(out, ZSTD_compressBound(n));
    size_t got = ZSTD_compress2(c, out->data + out->len, out->cap - out->len, p, n);
    CHECK(!ZSTD_isError(got));
    out->len += got;
    ZSTD_freeCCtx(c);
}

void make_record(gw_str *out, const char *type, const char *uri, const char *headers,
                 const void *block, size_t n) {
    gw_str_printf(out, "WARC/1.0\r\nWARC-Type: %s\r\n", type);
    if (*uri) gw_str_printf(out, "WARC-Target-URI: %s\r\n", uri);
    gw_str_printf(out, "WARC-Date: 2024-03-01T00:00:00Z\r\n%sContent-Length: %zu\r\n\r\n", headers,
                  n);
    gw_str_add_n(out, block, n);
    gw_str_add(out, "\r\n\r\n");
}

void make_response(gw_str *out, const char *uri, const char *http_headers, const char *body) {
    gw_str block = {0};
    gw_str_printf(&block, "HTTP/1.1 200 OK\r\n%s\r\n%s", http_headers, body);
    make_record(out, "response", uri, "Content-Type: application/http; msgtype=response\r\n",
                block.data, block.len);
    gw_str_release(&block);
}
