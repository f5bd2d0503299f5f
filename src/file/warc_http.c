// SPDX-License-Identifier: Apache-2.0
// The HTTP message inside a response record.
//
// The block of a response holds what the server sent: status line, headers, body, the body perhaps
// in chunks and perhaps compressed. What the headers say is often untrue, for crawlers undo codings
// and keep the headers, so each is believed only as far as the bytes agree: chunks where the first
// line is a chunk's size, gzip where its magic stands, and so on. A body that is neither as said
// nor text is handed out as far as it could be decoded and marked.
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "file/warc.h" /* gw_http */

enum { CODINGS = 4 };

void gw_http_scratch_release(gw_http_scratch *s) {
    gw_str_release(&s->head);
    gw_str_release(&s->chunks);
    gw_str_release(&s->body);
    gw_str_release(&s->other);
}

/* Lower-cases [p, p + n) into out[cap]; cuts what does not fit. */
static void lower_into(char *out, size_t cap, const char *p, size_t n) {
    n = GW_MIN(n, cap - 1);
    for (size_t i = 0; i < n; i++) out[i] = (char)tolower((unsigned char)p[i]);
    out[n] = 0;
}

void gw_http_content_type(const char *value, char type[64], char charset[64]) {
    const char *p = value + strspn(value, " \t");
    lower_into(type, 64, p, strcspn(p, "; \t,"));
    charset[0] = 0;
    while ((p = strchr(p, ';')) != NULL) {
        p += 1 + strspn(p + 1, " \t;");
        if (strncasecmp(p, "charset", 7) != 0) continue;
        p += 7 + strspn(p + 7, " \t");
        if (*p != '=') continue;
        p += 1 + strspn(p + 1, " \t\"'");
        lower_into(charset, 64, p, strcspn(p, "\"'; \t,"));
        return;
    }
}

/* The head's lines, each ended by NUL, with white space around values kept. Returns its bytes, or 0
 * if the block has no head. */
static int64_t read_head(const uint8_t *p, int64_t n, gw_str *out) {
    gw_str_clear(out);
    if (n < 5 || memcmp(p, "HTTP/", 5) != 0) return 0;
    for (int64_t at = 0; at < n;) {
        const uint8_t *lf = memchr(p + at, '\n', (size_t)(n - at));
        int64_t end = lf ? lf - p : n, next = lf ? end + 1 : n;
        if (end > at && p[end - 1] == '\r') end--;
        if (end == at) return next;
        if (p[at] == '<') return at; /* HTML without a blank line before it */
        for (int64_t i = at; i < end; i++) gw_str_add_char(out, p[i] ? (char)p[i] : ' ');
        gw_str_add_char(out, 0);
        at = next;
    }
    return n;
}

/* The value of the last line of that name; NULL without. */
static const char *find_header(const gw_str *head, const char *name) {
    const char *found = NULL, *line = head->data;
    size_t n = strlen(name);
    for (; line < head->data + head->len; line += strlen(line) + 1)
        if (!strncasecmp(line, name, n) && line[n] == ':')
            found = line + n + 1 + strspn(line + n + 1, " \t");
    return found;
}

/* The size line of a chunk at p[*at]: its value, with *at behind the line; -1 if it is none. */
static int64_t chunk_size(const uint8_t *p, int64_t n, int64_t *at) {
    int64_t i = *at, size = 0;
    for (; i < n && isxdigit(p[i]); i++) {
        int digit = isdigit(p[i]) ? p[i] - '0' : tolower(p[i]) - 'a' + 10;
        if (size > INT64_MAX / 32) return -1;
        size = size * 16 + digit;
    }
    if (i == *at) return -1;
    while (i < n && (p[i] == ' ' || p[i] == '\t')) i++;
    if (i < n && p[i] != '\r' && p[i] != '\n' && p[i] != ';') return -1;
    const uint8_t *lf = i < n ? memchr(p + i, '\n', (size_t)(n - i)) : NULL;
    if (!lf || lf - p - i > 4096) return -1;
    *at = lf - p + 1;
    return size;
}

/* Joins chunks. False if the body breaks off inside one; then what is there is there. */
static bool join_chunks(const uint8_t *p, int64_t n, int64_t limit, gw_str *out) {
    gw_str_clear(out);
    gw_str_reserve(out, 0);
    for (int64_t at = 0;;) {
        int64_t size = chunk_size(p, n, &at);
        if (size == 0) return true;
        if (size < 0) return false;
        int64_t have = GW_MIN(GW_MIN(size, n - at), limit - (int64_t)out->len);
        gw_str_add_n(out, p + at, (size_t)have);
        if (have < size) return false;
        at += size;
        if (at < n && p[at] == '\r') at++;
        if (at < n && p[at] == '\n') at++;
        if (at >= n) return false;
    }
}

/* True if the bytes look like text: what a coding that was undone already leaves. */
static bool looks_like_text(const uint8_t *p, int64_t n) {
    n = GW_MIN(n, (int64_t)256);
    for (int64_t i = 0; i < n; i++)
        if (p[i] < 9 || (p[i] > 13 && p[i] < 32 && p[i] != 27)) return false;
    return true;
}

/* The comma-separated codings of a header, in order; at most CODINGS. */
static int split_codings(const char *value, char out[CODINGS][16]) {
    int n = 0;
    while (value && *value && n < CODINGS) {
        value += strspn(value, " \t,");
        size_t len = strcspn(value, " \t,");
        if (len) lower_into(out[n++], 16, value, len);
        value += len;
    }
    return n;
}

/* Undoes one coding from *p into `to`. */
static void undo(const char *coding, int64_t limit, gw_str *to, gw_http *h) {
    if (!*coding || !strcmp(coding, "identity") || !strcmp(coding, "none") ||
        !strcmp(coding, "chunked") || h->body_bytes == 0)
        return;
    bool text = looks_like_text(h->body, h->body_bytes);
    gw_str_clear(to);
    bool ok = gw_inflate_body(coding, h->body, h->body_bytes, limit, to);
    if (!ok && text && to->len == 0) return;
    if (!ok) h->undecoded = true;
    h->body = (const uint8_t *)to->data;
    h->body_bytes = (int64_t)to->len;
}

void gw_http_read(const uint8_t *block, int64_t n, int64_t limit, gw_http_scratch *s,
                  gw_http *out) {
    int64_t head = read_head(block, n, &s->head);
    *out = (gw_http){.content_type = "", .charset = "", .body = block, .body_bytes = n};
    if (head == 0) return;
    out->body += head;
    out->body_bytes -= head;
    const char *space = strchr(s->head.data, ' ');
    int64_t code = 0;
    for (int i = 1; space && i <= 3 && isdigit((unsigned char)space[i]); i++)
        code = code * 10 + (space[i] - '0');
    out->status = code >= 100 ? (int)code : 200;

    char codings[CODINGS][16], type[64] = "", charset[64] = "";
    int ncodings = split_codings(find_header(&s->head, "Content-Encoding"), codings);
    const char *transfer = find_header(&s->head, "Transfer-Encoding");
    const char *content_type = find_header(&s->head, "Content-Type");
    if (content_type) gw_http_content_type(content_type, type, charset);
    bool chunked = transfer && strcasestr(transfer, "chunked");
    int64_t at = 0;
    if (chunked && chunk_size(out->body, out->body_bytes, &at) >= 0) {
        out->undecoded = !join_chunks(out->body, out->body_bytes, limit, &s->chunks);
        out->body = (const uint8_t *)s->chunks.data;
        out->body_bytes = (int64_t)s->chunks.len;
    }
    for (int i = ncodings - 1; i >= 0; i--)
        undo(codings[i], limit, out->body == (const uint8_t *)s->body.data ? &s->other : &s->body,
             out);

    /* The strings go behind the head, which nothing reads any more. */
    gw_str_clear(&s->head);
    gw_str_add_n(&s->head, type, strlen(type) + 1);
    gw_str_add_n(&s->head, charset, strlen(charset) + 1);
    out->content_type = s->head.data;
    out->charset = s->head.data + strlen(type) + 1;
}
