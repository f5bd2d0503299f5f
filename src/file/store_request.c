// SPDX-License-Identifier: Apache-2.0
// One request over HTTP: what is sent, and what comes back.
//
// libcurl moves the bytes; everything that decides is here. A request is set up from a call
// (method, key, query, headers, body) anew for each try, because its signature holds the time. The
// URL is made from the same escaped text that is signed, and curl is told to leave it as it is.
//
// Answers: headers that matter are picked out as they come. A body is either the bytes that were
// asked for, which go to their place at once, or an answer in words (errors, lists), which is kept
// up to a bound. Which of the two it is depends on status and headers alone:
//   206 whose Content-Range begins where it was asked for and ends no later    the bytes
//   200                                                 the whole object: what precedes is skipped
//   206 with another range                              wrong; never stored
//   an ETag other than the one expected                 changed; never stored
// So bytes of two versions, or of a wrong place, cannot be put together, whatever a server does.
//
// Limits of time are on progress. A watch compares the bytes of a window of time with the least
// that must move; a try that falls behind is ended by the progress callback (or by fetch.c's loop).
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <libxml/parser.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "base/panic.h"      /* gw_panic_memory */
#include "file/store_impl.h" /* gw_store_call, gw_store_reply, gw_store_body */

#define MAX_ANSWER_BYTES (16 << 20)

/* --- once in a process ------------------------------------------------------------------------ */

static void start_libraries(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    xmlInitParser();
}

void gw_store_global(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_libraries);
}

/* --- replies ---------------------------------------------------------------------------------- */

void gw_store_reply_init(gw_store_reply *r) {
    *r = (gw_store_reply){.length = -1, .first = -1, .last = -1, .total = -1};
}

void gw_store_reply_release(gw_store_reply *r) {
    gw_str_release(&r->body);
    gw_store_reply_init(r);
}

static bool is_name(const char *line, size_t n, const char *name) {
    size_t k = strlen(name);
    return n > k && strncasecmp(line, name, k) == 0 && line[k] == ':';
}

static void copy_value(char *out, size_t cap, const char *line, size_t n) {
    const char *colon = memchr(line, ':', n), *end = line + n;
    const char *p = colon + 1;
    while (p < end && isspace((unsigned char)*p)) p++;
    while (end > p && isspace((unsigned char)end[-1])) end--;
    size_t k = GW_MIN((size_t)(end - p), cap - 1);
    memcpy(out, p, k);
    out[k] = 0;
}

static int64_t number(const char *text, const char **end) {
    int64_t v = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v)) return -1;
    *end = p;
    return p == text ? -1 : v;
}

/* "bytes 0-9/100", "bytes 0-9/ *", "bytes * /100" */
static void read_content_range(gw_store_reply *r, const char *text) {
    const char *p = text;
    r->first = r->last = r->total = -1;
    if (strncasecmp(p, "bytes", 5) != 0) return;
    for (p += 5; isspace((unsigned char)*p); p++) continue;
    if (*p == '*') {
        p++;
    } else {
        int64_t first = number(p, &p), last = first >= 0 && *p == '-' ? number(p + 1, &p) : -1;
        if (last < first) return;
        r->first = first;
        r->last = last;
    }
    if (*p == '/' && p[1] != '*') r->total = number(p + 1, &p);
}

static void start_afresh(gw_store_reply *r) {
    char saved[CURL_ERROR_SIZE];
    gw_str body = r->body;
    memcpy(saved, r->curl_error, sizeof saved);
    gw_store_reply_init(r);
    memcpy(r->curl_error, saved, sizeof saved);
    gw_str_clear(&body);
    r->body = body;
}

void gw_store_reply_header(gw_store_reply *r, const char *line, size_t n) {
    char text[200];
    const char *end;
    if (n > 9 && strncmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', n);
        start_afresh(r);
        if (space) {
            size_t left = n - (size_t)(space - line) - 1;
            char digits[8] = {0};
            memcpy(digits, space + 1, GW_MIN(left, (size_t)3));
            r->status = (long)GW_MAX(number(digits, &end), 0);
        }
        return;
    }
    if (is_name(line, n, "etag")) copy_value(r->etag, sizeof r->etag, line, n);
    if (is_name(line, n, "x-amz-request-id"))
        copy_value(r->request_id, sizeof r->request_id, line, n);
    if (is_name(line, n, "x-amz-bucket-region")) copy_value(r->region, sizeof r->region, line, n);
    if (is_name(line, n, "x-amz-checksum-sha256"))
        copy_value(r->checksum, sizeof r->checksum, line, n);
    if (is_name(line, n, GW_STORE_WRITER_HEADER)) copy_value(r->writer, sizeof r->writer, line, n);
    if (is_name(line, n, "date")) copy_value(r->date, sizeof r->date, line, n);
    if (is_name(line, n, "last-modified")) copy_value(r->modified, sizeof r->modified, line, n);
    if (is_name(line, n, "content-length")) {
        copy_value(text, sizeof text, line, n);
        r->length = number(text, &end);
    }
    if (is_name(line, n, "content-range")) {
        copy_value(text, sizeof text, line, n);
        read_content_range(r, text);
    }
}

/* --- bodies ----------------------------------------------------------------------------------- */

static gw_body_kind kind_of(gw_store_body *b) {
    const gw_store_reply *r = b->reply;
    if (r->status != 200 && r->status != 206) return GW_BODY_ANSWER;
    if (*b->etag && *r->etag && strcmp(b->etag, r->etag) != 0) return GW_BODY_CHANGED;
    if (r->status == 200) {
        b->skip = b->offset;
        return GW_BODY_TAKEN;
    }
    if (r->first != b->offset || (b->want >= 0 && r->last >= b->offset + b->want))
        return GW_BODY_WRONG;
    return GW_BODY_TAKEN;
}

void gw_store_body_begin(gw_store_body *b) {
    b->kind = kind_of(b);
    int64_t n = b->reply->length;
    if (b->kind == GW_BODY_TAKEN && b->grow && n > 0 && n < (INT64_C(1) << 40)) {
        int64_t whole = b->reply->status == 200 ? n : b->offset + n;
        if (b->max_bytes > 0 && whole > b->max_bytes)
            b->kind = GW_BODY_TOO_LONG;
        else
            gw_str_reserve(b->grow, (size_t)GW_MAX(n - b->skip, 0) + 1);
    }
}

static bool take_bytes(gw_store_body *b, const char *p, int64_t n) {
    int64_t skipped = GW_MIN(b->skip, n);
    b->skip -= skipped;
    p += skipped;
    n -= skipped;
    if (!b->grow) {
        int64_t k = GW_MIN(n, b->want - b->got);
        if (k > 0) memcpy(b->to + b->got, p, (size_t)k);
        b->got += k;
        return k == n; /* a whole object that goes on: enough */
    }
    if (b->max_bytes > 0 && b->offset + b->got + n > b->max_bytes) {
        b->kind = GW_BODY_TOO_LONG;
        return false;
    }
    gw_str_add_n(b->grow, p, (size_t)n);
    b->got += n;
    return true;
}

bool gw_store_body_take(gw_store_body *b, const void *bytes, size_t n) {
    switch (b->kind) {
    case GW_BODY_TAKEN: return take_bytes(b, bytes, (int64_t)n);
    case GW_BODY_ANSWER:
        if (b->reply->body.len + n > MAX_ANSWER_BYTES) return false;
        gw_str_add_n(&b->reply->body, bytes, n);
        return true;
    case GW_BODY_NOT_BEGUN:
    case GW_BODY_WRONG:
    case GW_BODY_CHANGED:
    case GW_BODY_TOO_LONG: return false;
    }
    return false;
}

bool gw_store_body_is_whole(const gw_store_body *b) {
    if (b->kind != GW_BODY_TAKEN) return false;
    if (b->want >= 0) return b->got == b->want;
    const gw_store_reply *r = b->reply;
    if (r->status == 206) return r->total < 0 || b->offset + b->got == r->total;
    return r->length < 0 || b->offset + b->got == r->length;
}

/* --- progress --------------------------------------------------------------------------------- */

void gw_store_watch_start(gw_store_watch *w, double window_s, int64_t least_bytes) {
    *w = (gw_store_watch){.window_ns = (int64_t)(window_s * 1e9),
                          .least_bytes = least_bytes,
                          .began_ns = gw_clock_ns()};
}

bool gw_store_watch_look(gw_store_watch *w, int64_t bytes) {
    int64_t now = gw_clock_ns();
    if (w->stalled || now - w->began_ns < w->window_ns) return w->stalled;
    w->stalled = bytes - w->bytes < w->least_bytes;
    w->began_ns = now;
    w->bytes = bytes;
    return w->stalled;
}

/* --- handles ---------------------------------------------------------------------------------- */

CURL *gw_store_handle_take(gw_store *s) {
    CURL *h = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->idle.count > 0) h = s->idle.items[--s->idle.count];
    pthread_mutex_unlock(&s->lock);
    if (!h) h = curl_easy_init();
    if (!h) gw_panic_memory(sizeof(void *));
    return h;
}

void gw_store_handle_give(gw_store *s, CURL *h) {
    curl_easy_reset(h); /* connections stay */
    pthread_mutex_lock(&s->lock);
    gw_vec_push(&s->idle, h);
    pthread_mutex_unlock(&s->lock);
}

static CURLM *multi_take(gw_store *s) {
    CURLM *m = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->idle_multis.count > 0) m = s->idle_multis.items[--s->idle_multis.count];
    pthread_mutex_unlock(&s->lock);
    if (!m) m = curl_multi_init();
    if (!m) gw_panic_memory(sizeof(void *));
    return m;
}

static void multi_give(gw_store *s, CURLM *m) {
    pthread_mutex_lock(&s->lock);
    gw_vec_push(&s->idle_multis, m);
    pthread_mutex_unlock(&s->lock);
}

static int64_t bytes_moved(CURL *h) {
    curl_off_t down = 0, up = 0;
    curl_easy_getinfo(h, CURLINFO_SIZE_DOWNLOAD_T, &down);
    curl_easy_getinfo(h, CURLINFO_SIZE_UPLOAD_T, &up);
    return down + up;
}

static CURLcode move_bytes(gw_store *s, CURLM *m, gw_store_watch *w, CURL *h, bool *stalled) {
    int running = 1, left, ms = (int)(s->options.stall_s * 250) + 1;
    for (;;) {
        if (curl_multi_perform(m, &running) != CURLM_OK) return CURLE_FAILED_INIT;
        for (CURLMsg *msg; (msg = curl_multi_info_read(m, &left)) != NULL;)
            if (msg->msg == CURLMSG_DONE) return msg->data.result;
        if (gw_store_watch_look(w, bytes_moved(h))) {
            *stalled = true;
            return CURLE_OPERATION_TIMEDOUT;
        }
        curl_multi_poll(m, NULL, 0, GW_MIN(ms, 1000), NULL);
    }
}

/* A write to a connection that was closed raises SIGPIPE within OpenSSL; it is kept from the
 * process without touching its handlers. */
CURLcode gw_store_handle_perform(gw_store *s, CURL *h, gw_store_watch *w, bool *stalled) {
    sigset_t pipe, old, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    CURLM *m = multi_take(s);
    curl_multi_add_handle(m, h);
    CURLcode c = move_bytes(s, m, w, h, stalled);
    curl_multi_remove_handle(m, h);
    multi_give(s, m);
    if (!was_pending) {
        struct timespec none = {0, 0};
        while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR) continue;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return c;
}

/* --- requests --------------------------------------------------------------------------------- */

void gw_store_range(char text[64], int64_t offset, int64_t n) {
    if (n < 0)
        snprintf(text, 64, "bytes=%lld-", (long long)offset);
    else
        snprintf(text, 64, "bytes=%lld-%lld", (long long)offset, (long long)(offset + n - 1));
}

static void add_header(struct curl_slist **list, const char *name, const char *value) {
    gw_str line = {0};
    /* An empty value is "Name;" to curl. */
    gw_str_printf(&line, *value ? "%s: %s" : "%s;", name, value);
    struct curl_slist *more = curl_slist_append(*list, line.data);
    if (!more) gw_panic_memory(line.len);
    *list = more;
    gw_str_release(&line);
}

static void amz_date(char text[20]) {
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(text, 20, "%Y%m%dT%H%M%SZ", &tm);
}

static void prepare_s3(gw_store *s, const gw_store_call *c, gw_str *url, struct curl_slist **list) {
    static const char empty_sha256[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    gw_arena a = {0};
    gw_s3_pair headers[GW_COUNT(c->headers) + 5];
    int n = 0;
    char date[20], region[sizeof s->region];
    pthread_mutex_lock(&s->lock);
    const char *base = s->base, *host = s->host;
    snprintf(region, sizeof region, "%s", s->region);
    pthread_mutex_unlock(&s->lock);
    const char *key = c->key ? gw_arena_printf(&a, "/%s%s", s->prefix, c->key) : "";
    const char *path = gw_arena_printf(&a, "%s%s", s->path, key);
    if (!*path) path = "/";
    const char *sha = c->body_sha256 ? c->body_sha256 : empty_sha256;
    amz_date(date);
    for (int i = 0; i < c->nheaders; i++) headers[n++] = c->headers[i];
    headers[n++] = (gw_s3_pair){"x-amz-content-sha256", sha};
    headers[n++] = (gw_s3_pair){"x-amz-date", date};
    if (s->config.session_token)
        headers[n++] = (gw_s3_pair){"x-amz-security-token", s->config.session_token};
    gw_str_add(url, base);
    gw_s3_escape(url, path, strlen(path), true);
    if (c->nquery > 0) gw_str_add(url, "?");
    gw_s3_query(url, c->query, c->nquery);
    for (int i = 0; i < n; i++) add_header(list, headers[i].name, headers[i].value);
    if (s->config.access_key) {
        gw_str auth = {0};
        headers[n++] = (gw_s3_pair){"host", host};
        gw_s3_scope scope = {s->config.access_key, s->config.secret_key, region, "s3", date};
        gw_s3_request r = {c->method, path, c->query, c->nquery, headers, n, sha};
        gw_s3_authorization(&auth, &scope, &r);
        add_header(list, "Authorization", auth.data);
        gw_str_release(&auth);
    }
    gw_arena_release(&a);
}

static void prepare_http(const gw_store *s, const gw_store_call *c, gw_str *url, CURL *h,
                         struct curl_slist **list) {
    gw_str_printf(url, "%s/", s->base);
    gw_s3_escape(url, c->key, strlen(c->key), true);
    if (s->query) gw_str_printf(url, "?%s", s->query);
    for (int i = 0; i < c->nheaders; i++) add_header(list, c->headers[i].name, c->headers[i].value);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    if (s->user) curl_easy_setopt(h, CURLOPT_USERNAME, s->user);
    if (s->password) curl_easy_setopt(h, CURLOPT_PASSWORD, s->password);
}

static void prepare_method(const gw_store_call *c, CURL *h, struct curl_slist **list) {
    if (strcmp(c->method, "HEAD") == 0) curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    if (strcmp(c->method, "PUT") == 0 || strcmp(c->method, "POST") == 0) {
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->body_bytes);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, c->body ? (const char *)c->body : "");
        add_header(list, "Content-Type", "application/octet-stream");
        /* No pause of a second for a "100 Continue" that few send. */
        struct curl_slist *more = curl_slist_append(*list, "Expect:");
        if (more) *list = more;
    }
    if (strcmp(c->method, "GET") != 0 && strcmp(c->method, "HEAD") != 0)
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
}

void gw_store_prepare(gw_store *s, const gw_store_call *c, CURL *h, struct curl_slist **headers) {
    gw_str url = {0};
    *headers = NULL;
    if (s->kind == GW_STORE_S3)
        prepare_s3(s, c, &url, headers);
    else
        prepare_http(s, c, &url, h, headers);
    prepare_method(c, h, headers);
    curl_easy_setopt(h, CURLOPT_URL, url.data);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)(s->options.connect_s * 1000));
    curl_easy_setopt(h, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "gradwright");
    if (s->config.ca_bundle) curl_easy_setopt(h, CURLOPT_CAINFO, s->config.ca_bundle);
    gw_str_release(&url);
}
