// SPDX-License-Identifier: Apache-2.0
// Records of a web archive.
//
// A record is a version line, header lines, a blank line, Content-Length bytes of block and two
// line ends. Archives in the wild break every part of that: lines that end in LF alone, no length
// on a warcinfo, lengths that lie, extra blank lines, members cut off by a full disk. The reader
// takes what can be read with certainty and tells the place of what cannot:
//
//   - the stream breaks (file/inflate.h), or ends inside a record: that record is lost, and told;
//   - no record begins where one must, or its length does not lead to the end of a record: lost,
//     and told; the search goes on from its block at the next line "WARC/", so that records a lying
//     length would have swallowed are found.
//
// A record whose length is right but whose digest is not is delivered with a mark: digests in
// archives are often those of another form of the payload, and the caller decides.
#include "file/warc.h" /* this module's contract */

#include <ctype.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h" /* gw_mem_* */

enum { HEAD_MAX = 1 << 20, HEADERS = 16, RECORD_MAX_DEFAULT = 64 << 20, SCAN = 1 << 16 };

/* Headers that are kept, in the order of names[]. */
enum {
    H_TYPE,
    H_LENGTH,
    H_ID,
    H_URI,
    H_DATE,
    H_CONTENT_TYPE,
    H_IDENTIFIED,
    H_TRUNCATED,
    H_BLOCK_DIGEST,
    H_PAYLOAD_DIGEST,
    H_COUNT
};
static const char *const names[H_COUNT] = {"WARC-Type",
                                           "Content-Length",
                                           "WARC-Record-ID",
                                           "WARC-Target-URI",
                                           "WARC-Date",
                                           "Content-Type",
                                           "WARC-Identified-Payload-Type",
                                           "WARC-Truncated",
                                           "WARC-Block-Digest",
                                           "WARC-Payload-Digest"};
static const char *const types[] = {"warcinfo", "response",   "resource",     "request", "metadata",
                                    "revisit",  "conversion", "continuation", "unknown"};

struct gw_warc {
    gw_inflate *stream;
    gw_warc_options options;
    gw_str head;                 /* the record's header lines, unfolded, each ended by NUL */
    const char *values[H_COUNT]; /* into head; "" where absent */
    bool lost;                   /* a record must be searched for first */
    bool after_break;            /* the cursor stands where the stream was taken up again */
    int64_t told;                /* offset of the damage told last, so that none is told twice */
    int64_t pending;             /* bytes of the last record's block to step over */
};

const char *gw_warc_type_name(gw_warc_type t) { return types[t]; }

/* --- opening ---------------------------------------------------------------------------------- */

static gw_warc *new_reader(const gw_warc_options *options, gw_inflate *stream) {
    gw_warc *w = gw_mem_zalloc(sizeof *w);
    w->stream = stream;
    if (options) w->options = *options;
    if (w->options.max_record_bytes <= 0) w->options.max_record_bytes = RECORD_MAX_DEFAULT;
    w->told = -1;
    return w;
}

gw_status gw_warc_open(const gw_warc_options *options, const char *path, gw_warc **out,
                       gw_diags *dg) {
    gw_inflate *stream = NULL;
    GW_TRY(gw_inflate_open(path, options ? options->max_ratio : 0, &stream, dg));
    *out = new_reader(options, stream);
    return GW_OK;
}

gw_warc *gw_warc_open_bytes(const gw_warc_options *options, const uint8_t *bytes, int64_t n) {
    return new_reader(options, gw_inflate_open_bytes(bytes, n, options ? options->max_ratio : 0));
}

void gw_warc_free(gw_warc *w) {
    if (!w) return;
    gw_inflate_free(w->stream);
    gw_str_release(&w->head);
    gw_mem_free(w);
}

const gw_inflate *gw_warc_stream(const gw_warc *w) { return w->stream; }

/* --- searching -------------------------------------------------------------------------------- */

/* The first line "WARC/<digit>" in p[0, n) where line_start says whether p[0] begins a line; -1 if
 * none. Lines that begin in the last bytes are left to the next window. */
static int64_t find_record(const uint8_t *p, int64_t n, bool line_start) {
    int64_t i = 0;
    while (i + 6 <= n) {
        const uint8_t *hit = memmem(p + i, (size_t)(n - i), "WARC/", 5);
        if (!hit || hit - p + 6 > n) return -1;
        i = hit - p;
        if ((i == 0 ? line_start : p[i - 1] == '\n') && isdigit(p[i + 5])) return i;
        i += 5;
    }
    return -1;
}

/* Steps to the next line that begins a record. False at the end or a break. */
static bool seek_record(gw_warc *w) {
    bool line_start = w->after_break || gw_inflate_at_member(w->stream);
    for (;;) {
        const uint8_t *p;
        int64_t n = gw_inflate_peek(w->stream, SCAN, &p);
        int64_t at = find_record(p, n, line_start);
        if (at >= 0) {
            gw_inflate_skip(w->stream, at);
            return true;
        }
        if (n < SCAN) {
            gw_inflate_skip(w->stream, n);
            return false;
        }
        gw_inflate_skip(w->stream, n - 6); /* keeps the byte before a line that begins here */
        line_start = false;
    }
}

static gw_warc_step damage_at(gw_warc *w, gw_warc_damage *damage, int64_t offset, const char *why) {
    w->lost = true;
    w->told = offset;
    *damage = (gw_warc_damage){offset, why};
    return GW_WARC_DAMAGE;
}

/* --- the head --------------------------------------------------------------------------------- */

/* Bytes up to and with the blank line that ends a head; 0 if it is not in p[0, n). */
static int64_t head_bytes(const uint8_t *p, int64_t n) {
    int64_t at = 0;
    while (at < n) {
        const uint8_t *lf = memchr(p + at, '\n', (size_t)(n - at));
        if (!lf) return 0;
        at = lf - p + 1;
        if (at < n && p[at] == '\n') return at + 1;
        if (at + 1 < n && p[at] == '\r' && p[at + 1] == '\n') return at + 2;
    }
    return 0;
}

/* Copies the lines, each ended by NUL; a line that begins with white space continues the one
 * before. */
static void copy_lines(const uint8_t *p, int64_t n, gw_str *out) {
    gw_str_clear(out);
    for (int64_t at = 0; at < n;) {
        const uint8_t *lf = memchr(p + at, '\n', (size_t)(n - at));
        int64_t end = lf ? lf - p : n, next = lf ? end + 1 : n;
        while (end > at && (p[end - 1] == '\r' || p[end - 1] == ' ' || p[end - 1] == '\t')) end--;
        bool folded = (p[at] == ' ' || p[at] == '\t') && out->len > 0;
        if (folded) {
            out->data[out->len - 1] = ' ';
            while (at < end && (p[at] == ' ' || p[at] == '\t')) at++;
        }
        for (; at < end; at++) gw_str_add_char(out, p[at] ? (char)p[at] : ' ');
        gw_str_add_char(out, 0);
        at = next;
    }
}

/* The value if the line is "name: value", else NULL. */
static char *header_value(char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0) return NULL;
    char *v = line + n;
    while (*v == ' ' || *v == '\t') v++;
    if (*v++ != ':') return NULL;
    while (*v == ' ' || *v == '\t') v++;
    return v;
}

/* <uri> and <uri to uri without brackets. */
static void strip_brackets(char *v) {
    size_t n = strlen(v);
    if (n && v[0] == '<') memmove(v, v + 1, n--);
    if (n && v[n - 1] == '>') v[n - 1] = 0;
}

static void parse_head(gw_warc *w, const uint8_t *p, int64_t n) {
    copy_lines(p, n, &w->head);
    for (int h = 0; h < H_COUNT; h++) w->values[h] = "";
    char *line = w->head.data, *end = w->head.data + w->head.len;
    for (; line < end; line += strlen(line) + 1) {
        for (int h = 0; h < H_COUNT; h++) {
            char *v = header_value(line, names[h]);
            if (!v || *w->values[h]) continue; /* the first of two counts */
            if (h == H_URI) strip_brackets(v);
            w->values[h] = v;
        }
    }
}

static gw_warc_type type_of(const char *name) {
    for (int t = 0; t < GW_WARC_UNKNOWN; t++)
        if (!strcasecmp(name, types[t])) return (gw_warc_type)t;
    return GW_WARC_UNKNOWN;
}

/* Content-Length: -1 if it is absent or no number. */
static int64_t length_of(const char *text) {
    int64_t n;
    return gw_parse_i64(text, &n) && n >= 0 ? n : -1;
}

/* --- digests ---------------------------------------------------------------------------------- */

static const EVP_MD *algorithm_of(const char *name, size_t n) {
    static const struct {
        const char *name;
        const EVP_MD *(*get)(void);
    } known[] = {{"sha1", EVP_sha1},      {"sha-1", EVP_sha1},    {"sha256", EVP_sha256},
                 {"sha-256", EVP_sha256}, {"sha512", EVP_sha512}, {"sha-512", EVP_sha512},
                 {"md5", EVP_md5}};
    for (size_t i = 0; i < GW_COUNT(known); i++)
        if (strlen(known[i].name) == n && !strncasecmp(name, known[i].name, n))
            return known[i].get();
    return NULL;
}

static int digit_value(char c, int base) {
    if (base == 16) {
        if (isdigit((unsigned char)c)) return c - '0';
        c = (char)tolower((unsigned char)c);
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    }
    if (c >= '2' && c <= '7') return c - '2' + 26;
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'z' ? c - 'a' : -1;
}

/* Hexadecimal or base32, by its length; false if it is neither. */
static bool digest_bytes(const char *text, size_t want, uint8_t *out) {
    size_t n = strlen(text);
    while (n && text[n - 1] == '=') n--;
    int base = n == want * 2 ? 16 : 32, bits = base == 16 ? 4 : 5, have = 0;
    if (base == 32 && n != (want * 8 + 4) / 5) return false;
    uint32_t acc = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int v = digit_value(text[i], base);
        if (v < 0) return false;
        acc = (acc << bits | (uint32_t)v) & 0xffff;
        have += bits;
        if (have >= 8 && at < want) out[at++] = (uint8_t)(acc >> (have -= 8));
    }
    return at == want;
}

static gw_digest_state check_digest(const char *said, const uint8_t *p, int64_t n) {
    const char *colon = strchr(said, ':');
    const EVP_MD *md = colon ? algorithm_of(said, (size_t)(colon - said)) : NULL;
    uint8_t want[EVP_MAX_MD_SIZE], have[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    if (!md || !digest_bytes(colon + 1, (size_t)EVP_MD_get_size(md), want)) return GW_DIGEST_NONE;
    if (!EVP_Digest(p, (size_t)n, have, &bytes, md, NULL)) return GW_DIGEST_NONE;
    return memcmp(want, have, bytes) == 0 ? GW_DIGEST_GOOD : GW_DIGEST_BAD;
}

/* The block's digest, or that of the payload where only it is said. Tools disagree on what a
 * payload under a transfer coding is: then a difference says nothing. */
static gw_digest_state record_digest(const gw_warc_record *rec) {
    if (*rec->block_digest) return check_digest(rec->block_digest, rec->block, rec->block_bytes);
    if (!*rec->payload_digest || rec->type == GW_WARC_REVISIT) return GW_DIGEST_NONE;
    const uint8_t *body = rec->block;
    int64_t n = rec->block_bytes;
    bool coded = false;
    if (n >= 5 && !memcmp(body, "HTTP/", 5)) {
        int64_t head = head_bytes(body, n);
        coded = memmem(body, (size_t)head, "ransfer-", 8) != NULL;
        body += head;
        n -= head;
    }
    gw_digest_state s = check_digest(rec->payload_digest, body, n);
    return s == GW_DIGEST_BAD && coded ? GW_DIGEST_NONE : s;
}

/* --- records ---------------------------------------------------------------------------------- */

/* The end, or a break, which is told once and stepped over. */
static gw_warc_step end_or_break(gw_warc *w, gw_warc_damage *damage, bool *again) {
    int64_t offset = 0;
    const char *why = gw_inflate_break(w->stream, &offset);
    *again = false;
    if (!why) return GW_WARC_END;
    gw_inflate_resume(w->stream);
    w->after_break = true;
    w->lost = true;
    if (offset != w->told) return damage_at(w, damage, offset, why);
    *again = true;
    return GW_WARC_DAMAGE;
}

/* Skips line ends before a record. False at the end or a break. */
static bool skip_blank(gw_inflate *r) {
    for (;;) {
        const uint8_t *p;
        int64_t n = gw_inflate_peek(r, 1, &p), i = 0;
        if (n == 0) return false;
        while (i < n && (p[i] == '\r' || p[i] == '\n')) i++;
        gw_inflate_skip(r, i);
        if (i < n) return true;
    }
}

/* A warcinfo without a length ends where a record begins after a blank line, or with its member. */
static int64_t open_ended(gw_warc *w) {
    const uint8_t *p;
    int64_t n = 0, before = -1, limit = w->options.max_record_bytes;
    for (int64_t want = SCAN; n != before && want <= limit * 2; want *= 2) {
        before = n;
        n = gw_inflate_peek(w->stream, want, &p);
        int64_t at = find_record(p, n, false);
        if (at >= 0) n = at;
        if (at >= 0 || n < want) {
            while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r')) n--;
            return n;
        }
    }
    return -1;
}

/* What is wrong with the place where a block of `length` ends, of which `have` bytes are there. */
static const char *bad_end(const uint8_t *p, int64_t have, int64_t length) {
    if (have < length) return "the file ends inside this record";
    if (have == length || p[length] == '\n' || p[length] == '\r') return NULL;
    if (find_record(p, length, false) < 0) return NULL;
    return "Content-Length leads past the end of this record";
}

/* The cursor stands at the block. */
static gw_warc_step read_block(gw_warc *w, int64_t length, gw_warc_record *rec,
                               gw_warc_damage *damage) {
    gw_inflate *r = w->stream;
    if (length > w->options.max_record_bytes) {
        if (gw_inflate_skip(r, length) == length) {
            rec->block_bytes = length;
            return GW_WARC_RECORD;
        }
        int64_t at = rec->offset;
        const char *why = gw_inflate_break(r, &at);
        return damage_at(w, damage, at, why ? why : "the file ends inside this record");
    }
    const uint8_t *p;
    int64_t have = gw_inflate_peek(r, length + 4, &p);
    const char *why = bad_end(p, have, length);
    if (why && have < length) {
        /* A break behind these bytes is the cause, and has the better words. */
        const char *cause = gw_inflate_break_ahead(r, &rec->offset);
        return damage_at(w, damage, rec->offset, cause ? cause : why);
    }
    if (why) return damage_at(w, damage, rec->offset, why);
    /* The record's bytes are all there, but its member was found damaged at their very end: any of
     * them may be wrong. A file that merely ends there says nothing against them. */
    int64_t at = rec->offset;
    const char *cause = have - length <= 4 ? gw_inflate_break_ahead(r, &at) : NULL;
    if (cause && !gw_str_starts(cause, "the file ends")) return damage_at(w, damage, at, cause);
    rec->block = p;
    rec->block_bytes = length;
    w->pending = length;
    if (w->options.check_digests) rec->digest = record_digest(rec);
    return GW_WARC_RECORD;
}

/* The cursor stands at the head. */
static gw_warc_step read_record(gw_warc *w, gw_warc_record *rec, gw_warc_damage *damage) {
    gw_inflate *r = w->stream;
    const uint8_t *p;
    int64_t n = gw_inflate_peek(r, 1, &p), offset = gw_inflate_offset(r), head = 0, want = 4096;
    if (n < 6) n = gw_inflate_peek(r, 6, &p);
    if (n < 6 || memcmp(p, "WARC/", 5) != 0) {
        const char *cause = n < 6 ? gw_inflate_break_ahead(r, &offset) : NULL;
        return damage_at(w, damage, offset, cause ? cause : "no WARC record begins here");
    }
    while (!(head = head_bytes(p, n)) && n < HEAD_MAX) {
        int64_t before = n;
        n = gw_inflate_peek(r, want = GW_MAX(want * 2, n + 1), &p);
        if (n == before) break;
    }
    if (!head) {
        const char *cause = gw_inflate_break_ahead(r, &offset);
        gw_inflate_skip(r, 5);
        return damage_at(w, damage, offset,
                         cause           ? cause
                         : n >= HEAD_MAX ? "the record's header is longer than 1 MiB"
                                         : "the file ends inside a record's header");
    }
    parse_head(w, p, head);
    gw_inflate_skip(r, head);
    *rec = (gw_warc_record){.type = type_of(w->values[H_TYPE]),
                            .offset = offset,
                            .id = w->values[H_ID],
                            .uri = w->values[H_URI],
                            .date = w->values[H_DATE],
                            .content_type = w->values[H_CONTENT_TYPE],
                            .identified_type = w->values[H_IDENTIFIED],
                            .truncated = w->values[H_TRUNCATED],
                            .block_digest = w->values[H_BLOCK_DIGEST],
                            .payload_digest = w->values[H_PAYLOAD_DIGEST]};
    int64_t length = length_of(w->values[H_LENGTH]);
    if (length < 0 && rec->type == GW_WARC_WARCINFO) length = open_ended(w);
    if (length < 0) return damage_at(w, damage, offset, "the record has no valid Content-Length");
    return read_block(w, length, rec, damage);
}

gw_warc_step gw_warc_next(gw_warc *w, gw_warc_record *record, gw_warc_damage *damage) {
    gw_inflate_skip(w->stream, w->pending);
    w->pending = 0;
    for (;;) {
        bool there = w->lost ? seek_record(w) : skip_blank(w->stream);
        if (there) break;
        bool again;
        gw_warc_step s = end_or_break(w, damage, &again);
        if (!again) return s;
    }
    w->lost = false;
    w->after_break = false;
    return read_record(w, record, damage);
}
