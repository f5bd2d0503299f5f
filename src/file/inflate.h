// SPDX-License-Identifier: Apache-2.0
// A file as a stream of decoded bytes: plain, gzip (any number of members), zstd (any number of
// frames), with the place of each member, and with damage as a break that can be stepped over.
#ifndef GW_FILE_INFLATE_H
#define GW_FILE_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

typedef enum gw_codec { GW_CODEC_PLAIN, GW_CODEC_GZIP, GW_CODEC_ZSTD } gw_codec;
/* By the first bytes. */
gw_codec gw_codec_of(const uint8_t *p, int64_t n);

typedef struct gw_inflate gw_inflate;

/* Maps a regular file. max_ratio: a member that has given more than 16 MiB and more than so many
 * times the bytes it took is a bomb, and damage; 0 = no such limit. */
GW_WARN_UNUSED gw_status gw_inflate_open(const char *path, int64_t max_ratio, gw_inflate **out,
                                         gw_diags *dg);
/* The same over bytes that outlive the reader. */
gw_inflate *gw_inflate_open_bytes(const uint8_t *bytes, int64_t n, int64_t max_ratio);
void gw_inflate_free(gw_inflate *r);
gw_codec gw_inflate_codec(const gw_inflate *r);

/* Makes `want` decoded bytes visible at *p if the stream has them before its end or the next break;
 * returns how many there are (it may be more). Valid until the next call with this reader. */
int64_t gw_inflate_peek(gw_inflate *r, int64_t want, const uint8_t **p);
/* Steps over n bytes or to the break or the end; returns how many it stepped over. Bytes not yet
 * decoded are decoded and dropped, in constant memory. */
int64_t gw_inflate_skip(gw_inflate *r, int64_t n);
/* Steps to the start of the next member or frame, or to the break or the end. False at those. */
bool gw_inflate_skip_member(gw_inflate *r);

/* Where the cursor stands in the file: the offset of its member or frame; in plain files of the
 * byte itself. */
int64_t gw_inflate_offset(gw_inflate *r);
/* True if the cursor stands at the first byte of a member (plain files: never). */
bool gw_inflate_at_member(gw_inflate *r);

/* The break that the cursor stands at: NULL if there are bytes left or the file ended well. Else
 * words for a person, and *offset in the file of the damaged member. */
const char *gw_inflate_break(gw_inflate *r, int64_t *offset);
/* The same for the break that ends the bytes visible now, before the cursor is there. */
const char *gw_inflate_break_ahead(const gw_inflate *r, int64_t *offset);
/* Goes on after the break, at the next member that decodes (or the end of the file). */
void gw_inflate_resume(gw_inflate *r);

int64_t gw_inflate_bytes_in(const gw_inflate *r);  /* of the file, taken so far */
int64_t gw_inflate_bytes_out(const gw_inflate *r); /* decoded so far */

/* One compressed body in memory, e.g. of HTTP: "gzip", "x-gzip", "deflate" (zlib or raw), "zstd",
 * "br". Appends at most `limit` bytes; false if the coding is unknown, broken or over the limit
 * (what could be decoded is there). */
bool gw_inflate_body(const char *coding, const uint8_t *p, int64_t n, int64_t limit, gw_str *out);

#endif
