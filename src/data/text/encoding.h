// SPDX-License-Identifier: Apache-2.0
// From the bytes of a page to valid UTF-8: labels, detection and conversion.
#ifndef GW_DATA_TEXT_ENCODING_H
#define GW_DATA_TEXT_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h" /* gw_str */

/* The encodings of the WHATWG Encoding Standard, single-byte ones last. */
typedef enum gw_encoding {
    GW_ENC_UNKNOWN,
    GW_ENC_UTF8,
    GW_ENC_UTF16LE,
    GW_ENC_UTF16BE,
    GW_ENC_GB18030, /* GBK and GB2312 too */
    GW_ENC_BIG5,
    GW_ENC_EUC_JP,
    GW_ENC_ISO2022_JP,
    GW_ENC_SHIFT_JIS,
    GW_ENC_EUC_KR,
    GW_ENC_REPLACEMENT,
    GW_ENC_IBM866,
    GW_ENC_ISO8859_2,
    GW_ENC_ISO8859_3,
    GW_ENC_ISO8859_4,
    GW_ENC_ISO8859_5,
    GW_ENC_ISO8859_6,
    GW_ENC_ISO8859_7,
    GW_ENC_ISO8859_8,
    GW_ENC_ISO8859_10,
    GW_ENC_ISO8859_13,
    GW_ENC_ISO8859_14,
    GW_ENC_ISO8859_15,
    GW_ENC_ISO8859_16,
    GW_ENC_KOI8_R,
    GW_ENC_KOI8_U,
    GW_ENC_MACINTOSH,
    GW_ENC_WINDOWS_874,
    GW_ENC_WINDOWS_1250,
    GW_ENC_WINDOWS_1251,
    GW_ENC_WINDOWS_1252, /* ISO-8859-1 and ASCII too */
    GW_ENC_WINDOWS_1253,
    GW_ENC_WINDOWS_1254,
    GW_ENC_WINDOWS_1255,
    GW_ENC_WINDOWS_1256,
    GW_ENC_WINDOWS_1257,
    GW_ENC_WINDOWS_1258,
    GW_ENC_X_MAC_CYRILLIC,
    GW_ENC_COUNT
} gw_encoding;

/* The standard's name, lower case: "utf-8", "windows-1252"; "" for UNKNOWN. */
const char *gw_encoding_name(gw_encoding e);
/* "Get an encoding" of the standard: any of its labels, white space around, any case. */
gw_encoding gw_encoding_of_label(const char *label, size_t n);
/* The standard's prescan of the first 1024 bytes for <meta charset> and its http-equiv form. */
gw_encoding gw_encoding_prescan(const uint8_t *raw, size_t n);

/* What the bytes are: a byte order mark, `charset` (of HTTP), <meta> where `html`, then what the
 * bytes look like. A label is not believed where the bytes are valid UTF-8 with characters beyond
 * ASCII, or where they cannot be UTF-8 though it says so. */
gw_encoding gw_encoding_choose(const uint8_t *raw, size_t n, const char *charset, bool html);
/* By the bytes alone: UTF-8 if valid, else the likeliest of the multi-byte and single-byte ones;
 * windows-1252 where there is too little to tell. */
gw_encoding gw_encoding_guess(const uint8_t *raw, size_t n);

/* Converters, kept between documents; one thread's. Zero-initialised is ready. */
typedef struct gw_decoder {
    void *iconv[GW_ENC_COUNT];
} gw_decoder;
void gw_decoder_release(gw_decoder *d);
/* Appends raw as valid UTF-8 without a byte order mark; what is no character becomes U+FFFD and is
 * counted. Returns that count. */
int64_t gw_decoder_add(gw_decoder *d, gw_encoding e, const uint8_t *raw, size_t n, gw_str *out);

/* True if all of it is valid UTF-8. Several GB/s. */
bool gw_utf8_is_valid(const uint8_t *p, size_t n);

#endif
