// SPDX-License-Identifier: Apache-2.0
// One stream of bytes out of a plain, gzip or zstd file.
//
// Archives are cut into members (gzip) or frames (zstd), usually one a record, so that a reader can
// start at any of them and a damaged one costs only itself. The file is mapped; what is decoded
// lies in one buffer, [pos, end) of which the caller has not taken yet. A gzip member is decoded
// whole by libdeflate, which is two to three times as fast as a streaming decoder; one that gives
// more than WHOLE_MAX bytes is streamed by zlib. zstd streams always.
//
// Each member's first byte leaves a mark (position in the stream, offset in the file): that is how
// a record knows its offset. Damage ends the stream at a break; bytes before it are delivered,
// since they were decoded without complaint, unless the member was whole and only its checksum is
// wrong: then nothing says which of them are right, and none is delivered. gw_inflate_resume
// searches for the next header whose data decodes.
//
// What must hold: memory is bounded by what the caller asks to see at once plus WHOLE_MAX; time is
// linear in the file and in what it decodes to, since the search tries only so many candidates; a
// member that grows beyond the ratio is given up.
#include "file/inflate.h" /* this module's contract */

#include <brotli/decode.h>
#include <libdeflate.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/arena.h" /* gw_mem_* */
#include "base/io.h"    /* gw_map_open */
#include "base/map.h"   /* GW_VEC */

enum {
    STEP = 1 << 18,      /* output of one streaming step */
    WHOLE_MAX = 4 << 20, /* a member of more is streamed */
    PROBE = 1 << 15,     /* output that makes a candidate believed */
    RATIO_FROM = 16 << 20,
    DICTIONARY_MAX = 16 << 20
};

typedef struct member_mark {
    int64_t position, offset;
} member_mark;

struct gw_inflate {
    gw_mapping map;
    const uint8_t *in;
    int64_t n, at; /* the file; at: the next byte to decode */
    gw_codec codec;
    int64_t max_ratio;

    uint8_t *buf;
    int64_t cap, pos, end;
    int64_t base; /* position in the stream of buf[0] */
    GW_VEC(member_mark) marks;
    int64_t first_mark; /* the mark at or before the cursor */

    bool streaming, finished, broken;
    int64_t member_start, member_out;
    int64_t break_offset;
    const char *why;
    int64_t probe_budget; /* output that searches may still decode */
    int64_t room;         /* given to a whole member */

    struct libdeflate_decompressor *whole;
    z_stream z;
    bool z_ready;
    ZSTD_DCtx *zstd;
};

gw_codec gw_codec_of(const uint8_t *p, int64_t n) {
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) return GW_CODEC_GZIP;
    if (n >= 4 && p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd)
        return GW_CODEC_ZSTD;
    if (n >= 4 && (p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18)
        return GW_CODEC_ZSTD;
    return GW_CODEC_PLAIN;
}

static uint32_t read_u32(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* --- breaks and marks ------------------------------------------------------------------------- */

static void break_at(gw_inflate *r, int64_t offset, const char *why) {
    r->broken = true;
    r->streaming = false;
    r->break_offset = offset;
    r->why = why;
}

static void begin_member(gw_inflate *r) {
    r->member_start = r->at;
    r->member_out = 0;
    gw_vec_push(&r->marks, ((member_mark){r->base + r->end, r->at}));
}

/* Makes marks[first_mark] the one at or before the cursor, and forgets those before it. */
static void advance_marks(gw_inflate *r) {
    int64_t cursor = r->base + r->pos;
    while (r->first_mark + 1 < r->marks.count &&
           r->marks.items[r->first_mark + 1].position <= cursor)
        r->first_mark++;
    if (r->first_mark > 1024) {
        r->marks.count -= r->first_mark;
        memmove(r->marks.items, r->marks.items + r->first_mark,
                (size_t)r->marks.count * sizeof *r->marks.items);
        r->first_mark = 0;
    }
}

/* Room for n more bytes behind `end`. */
static void make_room(gw_inflate *r, int64_t n) {
    if (r->pos == r->end || r->pos > r->cap / 2) {
        if (r->end > r->pos) memmove(r->buf, r->buf + r->pos, (size_t)(r->end - r->pos));
        r->base += r->pos;
        r->end -= r->pos;
        r->pos = 0;
    }
    if (r->cap - r->end >= n) return;
    r->cap = GW_MAX(r->end + n, r->cap + r->cap / 2);
    r->buf = gw_mem_realloc(r->buf, (size_t)r->cap);
}

static bool is_bomb(const gw_inflate *r) {
    return r->max_ratio > 0 && r->member_out > RATIO_FROM &&
           r->member_out / r->max_ratio > r->at - r->member_start;
}

static const char bomb_words[] = "the member grows beyond the ratio that is allowed";

/* --- gzip ------------------------------------------------------------------------------------- */

static bool is_gzip_header(const uint8_t *p, int64_t n) {
    return n >= 18 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8 && (p[3] & 0xe0) == 0;
}

static bool start_zlib(z_stream *z, bool *ready, int window) {
    if (*ready) return inflateReset2(z, window) == Z_OK;
    memset(z, 0, sizeof *z);
    *ready = inflateInit2(z, window) == Z_OK;
    return *ready;
}

/* What is wrong with a gzip member that inflate refused. */
static const char *zlib_words(int code, const z_stream *z, bool at_end) {
    if (code == Z_BUF_ERROR || (code == Z_OK && at_end)) return "the file ends inside this member";
    if (code == Z_NEED_DICT) return "the member needs a dictionary";
    if (code == Z_MEM_ERROR) return "no memory for the decoder";
    if (z->msg && strstr(z->msg, "data check")) return "the member's checksum is wrong";
    if (z->msg && strstr(z->msg, "length check")) return "the member's length is wrong";
    return "the member's compressed data is damaged";
}

static void gzip_step(gw_inflate *r) {
    make_room(r, STEP);
    int64_t left = r->n - r->at;
    r->z.next_in = (z_const Bytef *)(uintptr_t)(r->in + r->at);
    r->z.avail_in = (uInt)GW_MIN(left, (int64_t)1 << 30);
    r->z.next_out = r->buf + r->end;
    r->z.avail_out = STEP;
    uInt had = r->z.avail_in;
    int code = inflate(&r->z, Z_NO_FLUSH);
    int64_t out = STEP - (int64_t)r->z.avail_out;
    r->at += had - r->z.avail_in;
    r->end += out;
    r->member_out += out;
    if (code == Z_STREAM_END) {
        r->streaming = false;
    } else if ((code != Z_OK && code != Z_BUF_ERROR) || (r->at == r->n && r->z.avail_out > 0)) {
        break_at(r, r->member_start, zlib_words(code, &r->z, r->at == r->n));
    } else if (is_bomb(r)) {
        break_at(r, r->member_start, bomb_words);
    }
}

/* Streams the member at `at`; what a whole member gave is forgotten if its checksum is wrong. */
static void gzip_stream(gw_inflate *r, bool small) {
    if (!start_zlib(&r->z, &r->z_ready, 31)) {
        break_at(r, r->at, "no memory for the decoder");
        return;
    }
    r->streaming = true;
    if (!small) {
        gzip_step(r);
        return;
    }
    while (r->streaming && r->member_out <= WHOLE_MAX) gzip_step(r);
    if (r->broken && strstr(r->why, "is wrong")) r->end -= GW_MIN(r->member_out, r->end - r->pos);
}

/* True if what is left of the file is padding. */
static bool only_zeros(const uint8_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void gzip_member(gw_inflate *r) {
    const uint8_t *p = r->in + r->at;
    int64_t left = r->n - r->at;
    if (!is_gzip_header(p, left)) {
        if (only_zeros(p, left))
            r->finished = true;
        else
            break_at(r, r->at,
                     left >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8
                         ? "the file ends inside this member"
                         : "no gzip member begins here");
        return;
    }
    make_room(r, r->room);
    begin_member(r);
    for (;;) {
        size_t used = 0, out = 0;
        make_room(r, r->room);
        enum libdeflate_result result =
            r->whole ? libdeflate_gzip_decompress_ex(r->whole, p, (size_t)left, r->buf + r->end,
                                                     (size_t)(r->cap - r->end), &used, &out)
                     : LIBDEFLATE_BAD_DATA;
        if (result == LIBDEFLATE_SUCCESS) {
            r->end += (int64_t)out;
            r->at += (int64_t)used;
            return;
        }
        bool large = result == LIBDEFLATE_INSUFFICIENT_SPACE;
        if (large && r->room < WHOLE_MAX) {
            r->room = WHOLE_MAX;
            continue;
        }
        gzip_stream(r, !large);
        return;
    }
}

/* --- zstd ------------------------------------------------------------------------------------- */

/* The dictionary of a WARC: a skippable frame at the start of the file holds it, plain or as a
 * frame of its own. */
static void load_dictionary(gw_inflate *r, const uint8_t *p, size_t n) {
    uint8_t *plain = NULL;
    if (gw_codec_of(p, (int64_t)n) == GW_CODEC_ZSTD) {
        unsigned long long size = ZSTD_getFrameContentSize(p, n);
        if (size == ZSTD_CONTENTSIZE_ERROR) return;
        size_t cap = size == ZSTD_CONTENTSIZE_UNKNOWN || size > DICTIONARY_MAX ? DICTIONARY_MAX
                                                                               : (size_t)size;
        plain = gw_mem_alloc(cap + 1);
        size_t got = ZSTD_decompress(plain, cap, p, n);
        if (ZSTD_isError(got)) {
            gw_mem_free(plain);
            return;
        }
        p = plain;
        n = got;
    }
    (void)ZSTD_DCtx_loadDictionary(r->zstd, p, n); /* copied; a bad one makes frames fail */
    gw_mem_free(plain);
}

/* Steps over the skippable frames at `at`. False if the file ended or broke. */
static bool skip_skippable(gw_inflate *r) {
    while (r->n - r->at >= 4 && (read_u32(r->in + r->at) & 0xfffffff0u) == 0x184d2a50u) {
        int64_t left = r->n - r->at - 8;
        int64_t size = left < 0 ? 0 : (int64_t)read_u32(r->in + r->at + 4);
        if (left < size) {
            break_at(r, r->at, "the file ends inside this frame");
            r->at = r->n;
            return false;
        }
        if (r->at == 0 && r->in[0] == 0x5d) load_dictionary(r, r->in + 8, (size_t)size);
        r->at += 8 + size;
    }
    if (r->at == r->n) r->finished = true;
    return !r->finished;
}

static void zstd_step(gw_inflate *r) {
    make_room(r, STEP);
    ZSTD_inBuffer in = {r->in + r->at, (size_t)(r->n - r->at), 0};
    ZSTD_outBuffer out = {r->buf + r->end, STEP, 0};
    size_t code = ZSTD_decompressStream(r->zstd, &out, &in);
    r->at += (int64_t)in.pos;
    r->end += (int64_t)out.pos;
    r->member_out += (int64_t)out.pos;
    if (ZSTD_isError(code)) {
        ZSTD_ErrorCode e = ZSTD_getErrorCode(code);
        break_at(r, r->member_start,
                 e == ZSTD_error_checksum_wrong     ? "the frame's checksum is wrong"
                 : e == ZSTD_error_dictionary_wrong ? "the frame needs another dictionary"
                 : e == ZSTD_error_frameParameter_windowTooLarge
                     ? "the frame needs a window of more than 128 MiB"
                     : "the frame's compressed data is damaged");
    } else if (code == 0) {
        r->streaming = false;
    } else if (r->at == r->n && out.pos < out.size) {
        break_at(r, r->member_start, "the file ends inside this frame");
    } else if (is_bomb(r)) {
        break_at(r, r->member_start, bomb_words);
    }
}

static void zstd_frame(gw_inflate *r) {
    if (!skip_skippable(r)) return;
    if (gw_codec_of(r->in + r->at, r->n - r->at) != GW_CODEC_ZSTD) {
        break_at(r, r->at, "no zstd frame begins here");
        return;
    }
    make_room(r, STEP);
    begin_member(r);
    ZSTD_DCtx_reset(r->zstd, ZSTD_reset_session_only);
    r->streaming = true;
    zstd_step(r);
}

/* --- the search after damage ------------------------------------------------------------------ */

static bool probe_gzip(gw_inflate *r, const uint8_t *p, int64_t n, uint8_t *out) {
    if (!is_gzip_header(p, n) || !start_zlib(&r->z, &r->z_ready, 31)) return false;
    r->z.next_in = (z_const Bytef *)(uintptr_t)p;
    r->z.avail_in = (uInt)GW_MIN(n, (int64_t)1 << 30);
    r->z.next_out = out;
    r->z.avail_out = PROBE;
    int code = inflate(&r->z, Z_NO_FLUSH);
    int64_t got = PROBE - (int64_t)r->z.avail_out;
    r->probe_budget -= got + 64;
    return code == Z_STREAM_END || ((code == Z_OK || code == Z_BUF_ERROR) && got >= 256);
}

static bool probe_zstd(gw_inflate *r, const uint8_t *p, int64_t n, uint8_t *out) {
    if (gw_codec_of(p, n) != GW_CODEC_ZSTD) return false;
    if (p[0] != 0x28) return n >= 8 && (int64_t)read_u32(p + 4) <= n - 8;
    ZSTD_inBuffer in = {p, (size_t)n, 0};
    ZSTD_outBuffer to = {out, PROBE, 0};
    ZSTD_DCtx_reset(r->zstd, ZSTD_reset_session_only);
    size_t code = ZSTD_decompressStream(r->zstd, &to, &in);
    r->probe_budget -= (int64_t)to.pos + 64;
    return !ZSTD_isError(code) && (code == 0 || to.pos > 0);
}

void gw_inflate_resume(gw_inflate *r) {
    if (!r->broken || r->pos < r->end) return;
    bool gzip = r->codec == GW_CODEC_GZIP;
    uint8_t *out = gw_mem_alloc(PROBE);
    int64_t at = r->break_offset + 1;
    r->broken = false;
    r->why = NULL;
    while (at < r->n && r->probe_budget > 0) {
        /* zstd's two magic numbers share no first byte; the second byte of each is looked for. */
        const uint8_t *hit = gzip ? memchr(r->in + at, 0x1f, (size_t)(r->n - at)) : NULL;
        if (!gzip)
            for (int64_t i = at; i + 4 <= r->n && !hit; i++)
                if (gw_codec_of(r->in + i, r->n - i) == GW_CODEC_ZSTD) hit = r->in + i;
        at = hit ? hit - r->in : r->n;
        if (hit && (gzip ? probe_gzip : probe_zstd)(r, hit, r->n - at, out)) break;
        at += hit != NULL;
    }
    gw_mem_free(out);
    if (r->probe_budget <= 0) at = r->n;
    r->at = GW_MIN(at, r->n);
    r->finished = r->at == r->n;
}

/* --- opening and reading ---------------------------------------------------------------------- */

gw_inflate *gw_inflate_open_bytes(const uint8_t *bytes, int64_t n, int64_t max_ratio) {
    gw_inflate *r = gw_mem_zalloc(sizeof *r);
    r->in = bytes;
    r->n = n;
    r->codec = gw_codec_of(bytes, n);
    r->max_ratio = max_ratio;
    r->room = STEP;
    r->probe_budget = (int64_t)GW_MIN(n, (int64_t)1 << 40) * 16 + (64 << 20);
    if (r->codec == GW_CODEC_GZIP) r->whole = libdeflate_alloc_decompressor();
    if (r->codec == GW_CODEC_ZSTD) r->zstd = ZSTD_createDCtx();
    if (r->codec == GW_CODEC_ZSTD && !r->zstd) break_at(r, 0, "no memory for the decoder");
    return r;
}

/* A file that is called .gz and does not begin like one is gzip still, with its start damaged,
 * unless it begins with text. */
static void codec_by_name(gw_inflate *r, const char *path) {
    bool gz = gw_str_ends(path, ".gz"),
         zst = gw_str_ends(path, ".zst") || gw_str_ends(path, ".zstd");
    if (r->codec != GW_CODEC_PLAIN || r->n == 0 || !(gz || zst)) return;
    for (int64_t i = 0; i < GW_MIN(r->n, (int64_t)16); i++) {
        uint8_t c = r->in[i];
        if (c >= 32 || c == '\n' || c == '\r' || c == '\t') continue;
        r->codec = gz ? GW_CODEC_GZIP : GW_CODEC_ZSTD;
        if (gz) r->whole = libdeflate_alloc_decompressor();
        if (zst) r->zstd = ZSTD_createDCtx();
        return;
    }
}

gw_status gw_inflate_open(const char *path, int64_t max_ratio, gw_inflate **out, gw_diags *dg) {
    gw_mapping map;
    GW_TRY(gw_map_open(&map, path, dg));
    gw_inflate *r = gw_inflate_open_bytes(map.data, map.bytes, max_ratio);
    r->map = map;
    codec_by_name(r, path);
    *out = r;
    return GW_OK;
}

void gw_inflate_free(gw_inflate *r) {
    if (!r) return;
    if (r->whole) libdeflate_free_decompressor(r->whole);
    if (r->z_ready) inflateEnd(&r->z);
    ZSTD_freeDCtx(r->zstd);
    gw_vec_release(&r->marks);
    gw_mem_free(r->buf);
    if (r->map.data) gw_map_release(&r->map);
    gw_mem_free(r);
}

gw_codec gw_inflate_codec(const gw_inflate *r) { return r->codec; }

static void fill(gw_inflate *r) {
    if (r->streaming)
        (r->codec == GW_CODEC_GZIP ? gzip_step : zstd_step)(r);
    else if (r->at >= r->n)
        r->finished = true;
    else
        (r->codec == GW_CODEC_GZIP ? gzip_member : zstd_frame)(r);
}

int64_t gw_inflate_peek(gw_inflate *r, int64_t want, const uint8_t **p) {
    if (r->codec == GW_CODEC_PLAIN) {
        *p = r->in + r->at;
        return r->n - r->at;
    }
    while (r->end - r->pos < want && !r->broken && !r->finished) fill(r);
    *p = r->buf + r->pos;
    return r->end - r->pos;
}

int64_t gw_inflate_skip(gw_inflate *r, int64_t n) {
    if (r->codec == GW_CODEC_PLAIN) {
        n = GW_MIN(n, r->n - r->at);
        r->at += n;
        return n;
    }
    int64_t done = 0;
    while (done < n) {
        int64_t step = GW_MIN(n - done, r->end - r->pos);
        r->pos += step;
        done += step;
        if (done == n || r->broken || r->finished) break;
        fill(r);
    }
    return done;
}

/* The mark after the cursor: -1 if none is known yet. */
static int64_t next_mark(gw_inflate *r) {
    advance_marks(r);
    return r->first_mark + 1 < r->marks.count ? r->marks.items[r->first_mark + 1].position : -1;
}

bool gw_inflate_skip_member(gw_inflate *r) {
    if (r->codec == GW_CODEC_PLAIN) {
        r->at = r->n;
        return false;
    }
    for (;;) {
        int64_t mark = next_mark(r);
        if (mark >= 0) {
            gw_inflate_skip(r, mark - r->base - r->pos);
            advance_marks(r);
            return true;
        }
        r->pos = r->end;
        if (r->broken || r->finished) return false;
        fill(r);
    }
}

int64_t gw_inflate_offset(gw_inflate *r) {
    if (r->codec == GW_CODEC_PLAIN) return r->at;
    if (r->pos == r->end && !r->broken && !r->finished) fill(r);
    advance_marks(r);
    return r->marks.count ? r->marks.items[r->first_mark].offset : 0;
}

bool gw_inflate_at_member(gw_inflate *r) {
    if (r->codec == GW_CODEC_PLAIN) return false;
    if (r->pos == r->end && !r->broken && !r->finished) fill(r);
    advance_marks(r);
    return r->marks.count && r->marks.items[r->first_mark].position == r->base + r->pos;
}

const char *gw_inflate_break(gw_inflate *r, int64_t *offset) {
    if (!r->broken || r->pos < r->end) return NULL;
    if (offset) *offset = r->break_offset;
    return r->why;
}

const char *gw_inflate_break_ahead(const gw_inflate *r, int64_t *offset) {
    if (!r->broken) return NULL;
    if (offset) *offset = r->break_offset;
    return r->why;
}

int64_t gw_inflate_bytes_in(const gw_inflate *r) { return r->at; }
int64_t gw_inflate_bytes_out(const gw_inflate *r) {
    return r->codec == GW_CODEC_PLAIN ? r->at : r->base + r->end;
}

/* --- bodies in memory ------------------------------------------------------------------------- */

static int64_t next_room(int64_t have, int64_t limit) {
    return GW_MIN(GW_MAX(have, (int64_t)STEP), limit - have);
}

static bool body_zlib(int window, const uint8_t *p, int64_t n, int64_t limit, gw_str *out) {
    z_stream z;
    bool ready = false;
    size_t start = out->len;
    if (n > INT32_MAX || !start_zlib(&z, &ready, window)) return false;
    int code = Z_OK;
    z.next_in = (z_const Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)n;
    while (code == Z_OK) {
        int64_t room = next_room((int64_t)(out->len - start), limit);
        if (room <= 0) break;
        gw_str_reserve(out, (size_t)room);
        z.next_out = (Bytef *)out->data + out->len;
        z.avail_out = (uInt)room;
        code = inflate(&z, Z_NO_FLUSH);
        out->len += (size_t)(room - (int64_t)z.avail_out);
        if (code == Z_BUF_ERROR || (code == Z_OK && z.avail_in == 0 && z.avail_out > 0)) break;
    }
    inflateEnd(&z);
    return code == Z_STREAM_END;
}

static bool body_zstd(const uint8_t *p, int64_t n, int64_t limit, gw_str *out) {
    ZSTD_DCtx *d = ZSTD_createDCtx();
    ZSTD_inBuffer in = {p, (size_t)n, 0};
    size_t start = out->len, code = 1;
    while (d && code != 0 && !ZSTD_isError(code)) {
        int64_t room = next_room((int64_t)(out->len - start), limit);
        if (room <= 0) break;
        gw_str_reserve(out, (size_t)room);
        ZSTD_outBuffer to = {out->data + out->len, (size_t)room, 0};
        code = ZSTD_decompressStream(d, &to, &in);
        out->len += to.pos;
        if (in.pos == in.size && to.pos < to.size) break;
    }
    ZSTD_freeDCtx(d);
    return code == 0;
}

static bool body_brotli(const uint8_t *p, int64_t n, int64_t limit, gw_str *out) {
    BrotliDecoderState *d = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    size_t start = out->len, left = (size_t)n;
    BrotliDecoderResult result = BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
    while (d && result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) {
        int64_t room = next_room((int64_t)(out->len - start), limit);
        if (room <= 0) break;
        gw_str_reserve(out, (size_t)room);
        uint8_t *to = (uint8_t *)out->data + out->len;
        size_t space = (size_t)room;
        result = BrotliDecoderDecompressStream(d, &left, &p, &space, &to, NULL);
        out->len += (size_t)room - space;
    }
    BrotliDecoderDestroyInstance(d);
    return result == BROTLI_DECODER_RESULT_SUCCESS;
}

static bool decode_body(const char *coding, const uint8_t *p, int64_t n, int64_t limit,
                        gw_str *out) {
    if (!strcasecmp(coding, "gzip") || !strcasecmp(coding, "x-gzip"))
        return body_zlib(31, p, n, limit, out);
    if (!strcasecmp(coding, "deflate")) {
        size_t start = out->len;
        bool ok = body_zlib(15, p, n, limit, out);
        if (!ok && out->len == start) ok = body_zlib(-15, p, n, limit, out);
        return ok;
    }
    if (!strcasecmp(coding, "zstd")) return body_zstd(p, n, limit, out);
    if (!strcasecmp(coding, "br")) return body_brotli(p, n, limit, out);
    return false;
}

bool gw_inflate_body(const char *coding, const uint8_t *p, int64_t n, int64_t limit, gw_str *out) {
    gw_str_reserve(out, 0);
    bool ok = decode_body(coding, p, n, limit, out);
    out->data[out->len] = 0;
    return ok;
}
