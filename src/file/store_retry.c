// SPDX-License-Identifier: Apache-2.0
// What an answer means, whether to try again, and what is said when it was the last try.
//
// Again, after a wait: 429, 500, 502, 503, 504; a connection that was refused, broken or too slow;
// a body that ends early or is not what the headers said; an error in the body of a 200 (the store
// began its answer before it knew); 409 of a conditional put (two at the same moment); and the 400
// named RequestTimeout, S3's word for a connection that stalled. No other 4xx is tried again: the
// request is wrong and stays so.
//
// The wait before try n is uniformly random in [0, min(max, first × 2^(n-1))) ("full jitter": of
// many clients that failed together, few come back together). A Retry-After goes before that.
//
// A region that was guessed wrong is no failure: the answer names the right one, and the request
// goes there at once. It is done once for each call.
//
// A try whose answer was lost may have had its effect. Reads and plain puts do not mind; the others
// look at what is there before they report a failure (store_s3.c).
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "base/log.h"        /* gw_log_debug */
#include "file/store_impl.h" /* the contract */
#include "file/store_xml.h"  /* gw_s3_xml_field */

#define LATEST_RETRY_AFTER 5 /* times backoff_max_s */

/* --- waiting ---------------------------------------------------------------------------------- */

void gw_store_sleep(double seconds) {
    if (seconds <= 0) return;
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

double gw_store_backoff(gw_store *s, int try, const gw_store_reply *r) {
    const gw_store_options *o = &s->options;
    if (r && r->retry_after_s > 0)
        return GW_MIN(r->retry_after_s, LATEST_RETRY_AFTER * o->backoff_max_s);
    double most = o->backoff_s;
    for (int i = 1; i < try && most < o->backoff_max_s; i++) most *= 2;
    most = GW_MIN(most, o->backoff_max_s);
    return most * (double)(gw_store_draw(s) >> 11) * 0x1p-53;
}

/* --- judging ---------------------------------------------------------------------------------- */

static void copy_field(char *out, size_t cap, const gw_store_reply *r, const char *name) {
    gw_arena a = {0};
    const char *v = gw_s3_xml_field(gw_str_c(&r->body), r->body.len, "Error", name, &a);
    if (v) snprintf(out, cap, "%.*s", (int)cap - 1, v);
    gw_arena_release(&a);
}

static void read_error(gw_store_reply *r) {
    if (r->body.len == 0) return;
    copy_field(r->code, sizeof r->code, r, "Code");
    copy_field(r->message, sizeof r->message, r, "Message");
    if (!*r->request_id) copy_field(r->request_id, sizeof r->request_id, r, "RequestId");
    if (!*r->region) copy_field(r->region, sizeof r->region, r, "Region");
}

static bool is_code(const gw_store_reply *r, const char *code) {
    return strcmp(r->code, code) == 0;
}

static bool is_later_status(long status) {
    return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

/* curl's failures that another try may mend: all but what is wrong with the request or the set-up.
 */
static bool is_lost(CURLcode c) {
    return c == CURLE_COULDNT_CONNECT || c == CURLE_OPERATION_TIMEDOUT || c == CURLE_GOT_NOTHING ||
           c == CURLE_SEND_ERROR || c == CURLE_RECV_ERROR || c == CURLE_PARTIAL_FILE ||
           c == CURLE_SSL_CONNECT_ERROR || c == CURLE_COULDNT_RESOLVE_HOST ||
           c == CURLE_WRITE_ERROR || c == CURLE_ABORTED_BY_CALLBACK || c == CURLE_HTTP2 ||
           c == CURLE_HTTP2_STREAM || c == CURLE_UNSUPPORTED_PROTOCOL ||
           c == CURLE_WEIRD_SERVER_REPLY || c == CURLE_SEND_FAIL_REWIND;
}

static bool is_elsewhere(gw_store *s, const gw_store_reply *r) {
    if (s->kind != GW_STORE_S3 || !*r->region) return false;
    pthread_mutex_lock(&s->lock);
    bool same = strcmp(r->region, s->region) == 0;
    pthread_mutex_unlock(&s->lock);
    if (same) return false;
    return r->status == 301 || r->status == 307 || is_code(r, "AuthorizationHeaderMalformed") ||
           is_code(r, "PermanentRedirect") || r->status == 400;
}

static gw_store_verdict judge_refusal(gw_store *s, const gw_store_call *c,
                                      const gw_store_reply *r) {
    if (is_elsewhere(s, r)) return GW_STORE_AT_ONCE;
    if (is_later_status(r->status) || is_code(r, "RequestTimeout")) return GW_STORE_AGAIN;
    if (c->conditional && r->status == 412) return GW_STORE_TAKEN;
    if (c->conditional && r->status == 409) return GW_STORE_AGAIN;
    if (r->status == 404 && c->upload_gone && is_code(r, "NoSuchUpload")) return GW_STORE_MISSING;
    if (r->status == 404 && c->key && !is_code(r, "NoSuchBucket") && !is_code(r, "NoSuchUpload"))
        return GW_STORE_MISSING;
    return GW_STORE_FAILED;
}

gw_store_verdict gw_store_judge(gw_store *s, const gw_store_call *c, gw_store_reply *r,
                                bool stalled) {
    bool refused = r->status >= 300 || (c->body_in_200 && r->status == 200);
    if (stalled) return GW_STORE_AGAIN;
    if (refused && r->curl == CURLE_OK) read_error(r);
    if (r->curl != CURLE_OK && is_lost(r->curl)) return GW_STORE_AGAIN;
    if (r->curl != CURLE_OK) return GW_STORE_FAILED;
    if (c->body_in_200 && r->status == 200) {
        /* No body, or half of one, is no success either. */
        if (*r->code ||
            !gw_s3_xml_is(gw_str_c(&r->body), r->body.len,
                          strcmp(c->method, "PUT") == 0 ? "CopyObjectResult"
                                                        : "CompleteMultipartUploadResult"))
            return GW_STORE_AGAIN;
    }
    return r->status >= 200 && r->status < 300 ? GW_STORE_DONE : judge_refusal(s, c, r);
}

/* --- words ------------------------------------------------------------------------------------ */

static const char *verb_of(const gw_store_call *c) {
    if (strcmp(c->method, "GET") == 0) return c->key ? "read" : "list";
    if (strcmp(c->method, "HEAD") == 0) return "look at";
    if (strcmp(c->method, "DELETE") == 0) return "remove";
    return "write";
}

static void add_reason(gw_str *out, const gw_store_reply *r, const gw_store_body *b, bool stalled) {
    if (stalled) {
        gw_str_add(out, "it stalled");
    } else if (b && b->kind == GW_BODY_WRONG) {
        gw_str_printf(out, "bytes from %lld were asked for, and bytes %lld-%lld came",
                      (long long)b->offset, (long long)r->first, (long long)r->last);
    } else if (r->curl == CURLE_WRITE_ERROR && r->status >= 200) {
        gw_str_printf(out, "more came than belongs to the answer (status %ld)", r->status);
    } else if (r->curl != CURLE_OK) {
        gw_str_add(out, *r->curl_error ? r->curl_error : curl_easy_strerror(r->curl));
    } else {
        gw_str_printf(out, "status %ld", r->status);
        if (*r->code) gw_str_printf(out, " %s", r->code);
        if (*r->message) gw_str_printf(out, ": %s", r->message);
        if (b && b->want >= 0 && r->status < 300)
            gw_str_printf(out, ", %lld bytes short", (long long)(b->want - b->got));
    }
}

typedef struct remedy {
    const char *code; /* or NULL */
    long status;      /* or 0 */
    const char *id, *hint;
} remedy;

static const remedy remedies[] = {
    {"RequestTimeTooSkewed", 0, "store-clock", "set this machine's clock (NTP), then run again"},
    {"ExpiredToken", 0, "store-denied", "the temporary credentials have run out: fetch new ones"},
    {"TokenRefreshRequired", 0, "store-denied",
     "the temporary credentials have run out: fetch new ones"},
    {"InvalidAccessKeyId", 0, "store-denied",
     "the store does not know this access key: look at AWS_ACCESS_KEY_ID, the profile and the "
     "endpoint"},
    {"SignatureDoesNotMatch", 0, "store-denied",
     "the secret key does not belong to the access key, or a proxy changed the request"},
    {"NoSuchBucket", 0, "store-missing", "look at the bucket's name and the endpoint"},
    {"NoSuchUpload", 0, "store-http",
     "the multipart upload was aborted meanwhile: by another process, or a rule of the bucket"},
    {"BadDigest", 0, "store-checksum", "the bytes changed on their way: try again, look at memory"},
    {"XAmzContentSHA256Mismatch", 0, "store-checksum",
     "the bytes changed on their way: try again, look at memory"},
    {"SlowDown", 0, "store-http", "fewer requests at the same time, or several prefixes"},
    {"EntityTooLarge", 0, "store-http", "raise the size of parts"},
    {NULL, 401, "store-denied", "look at user and password"},
    {NULL, 403, "store-denied",
     "look at the credentials, at the bucket's policy, and whether the name is right (without "
     "permission to list, a missing object is 'denied' too)"},
    {NULL, 404, "store-missing", "look at the name and the prefix"},
};

static const remedy *remedy_of(const gw_store_reply *r) {
    static const remedy other = {NULL, 0, "store-http", NULL};
    for (size_t i = 0; i < GW_COUNT(remedies); i++) {
        const remedy *m = &remedies[i];
        if (m->code ? is_code(r, m->code) : r->status == m->status) return m;
    }
    return &other;
}

gw_status gw_store_fail(gw_store *s, const gw_store_call *c, const gw_store_reply *r,
                        const gw_store_body *b, bool stalled, int tries, gw_diags *dg) {
    static const remedy network = {NULL, 0, "store-network",
                                   "look at the network, the endpoint and proxy settings"};
    static const remedy slow = {NULL, 0, "store-stalled",
                                "less than the least rate for a whole window: look at the network"};
    static const remedy wrong = {NULL, 0, "store-response",
                                 "the server, or a proxy before it, does not answer as it must"};
    const remedy *m = stalled                                 ? &slow
                      : (b && b->kind == GW_BODY_WRONG)       ? &wrong
                      : (r->curl != CURLE_OK && !r->status)   ? &network
                      : (r->curl == CURLE_WRITE_ERROR)        ? &wrong
                      : (r->curl != CURLE_OK)                 ? &network
                      : (r->status < 300 && r->status >= 200) ? &wrong
                                                              : remedy_of(r);
    gw_arena a = {0};
    gw_str why = {0};
    add_reason(&why, r, b, stalled);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, m->id, (gw_where){0}, "cannot %s '%s': %s",
                             verb_of(c), gw_store_name(s, c->key, &a), why.data);
    gw_str detail = {0};
    if (*r->request_id) gw_str_printf(&detail, "request id %s; ", r->request_id);
    if (strcmp(m->id, "store-clock") == 0)
        gw_str_printf(&detail, "the store's clock says %s; ",
                      *r->date ? r->date : "something else");
    if (tries > 1) gw_str_printf(&detail, "%d tries; ", tries);
    if (s->kind == GW_STORE_S3) gw_str_printf(&detail, "at %s; ", s->base);
    if (detail.len > 2) gw_diag_detail(dg, g, "%.*s", (int)detail.len - 2, detail.data);
    if (m->hint) gw_diag_hint(dg, g, "%s", m->hint);
    gw_str_release(&detail);
    gw_str_release(&why);
    gw_arena_release(&a);
    return GW_ERR_IO;
}

gw_status gw_store_fail_changed(gw_store *s, const char *key, const char *was, const char *is,
                                gw_diags *dg) {
    (void)s;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "store-changed", (gw_where){0},
                             "'%s' changed while it was read", key);
    gw_diag_detail(dg, g, "it was version %s%s%s", was, *is ? " and is now " : "", is);
    gw_diag_hint(dg, g, "something writes there; read again once it is done");
    return GW_ERR_IO;
}

static gw_status fail_missing(gw_store *s, const gw_store_call *c, const gw_store_reply *r,
                              gw_diags *dg) {
    return gw_store_fail(s, c, r, NULL, false, 1, dg);
}

/* --- a try ------------------------------------------------------------------------------------ */

typedef struct attempt {
    gw_store_reply *reply;
    gw_store_body *body; /* or NULL: everything is an answer */
    gw_store_watch watch;
} attempt;

static size_t on_header(char *line, size_t one, size_t n, void *user) {
    attempt *t = user;
    gw_store_reply_header(t->reply, line, one * n);
    return one * n;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *user) {
    attempt *t = user;
    gw_store_body answer = {.reply = t->reply, .kind = GW_BODY_ANSWER, .etag = ""};
    gw_store_body *b = t->body ? t->body : &answer;
    if (b->kind == GW_BODY_NOT_BEGUN) gw_store_body_begin(b);
    return gw_store_body_take(b, bytes, one * n) ? one * n : 0;
}

/* True if the try stalled. */
static bool try_once(gw_store *s, const gw_store_call *c, gw_store_reply *r, gw_store_body *b) {
    attempt t = {.reply = r, .body = b};
    struct curl_slist *headers;
    CURL *h = gw_store_handle_take(s);
    gw_store_reply_release(r);
    gw_store_prepare(s, c, h, &headers);
    gw_store_watch_start(&t.watch, s->options.stall_s, s->options.stall_bytes);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, r->curl_error);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, &t);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &t);
    bool stalled = false;
    r->curl = gw_store_handle_perform(s, h, &t.watch, &stalled);
    curl_off_t wait = 0;
    if (curl_easy_getinfo(h, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK)
        r->retry_after_s = (double)wait;
    gw_store_handle_give(s, h);
    curl_slist_free_all(headers);
    return stalled;
}

gw_status gw_store_perform(gw_store *s, const gw_store_call *c, gw_store_reply *r,
                           gw_store_verdict *verdict, gw_diags *dg) {
    bool moved = false;
    for (int try = 1;; try++) {
        bool stalled = try_once(s, c, r, NULL);
        gw_store_verdict v = gw_store_judge(s, c, r, stalled);
        if (v == GW_STORE_DONE || v == GW_STORE_MISSING || v == GW_STORE_TAKEN) {
            *verdict = v;
            return GW_OK;
        }
        if (v == GW_STORE_AT_ONCE && !moved) {
            gw_store_learn_region(s, r->region);
            moved = true;
            continue;
        }
        if (v != GW_STORE_AGAIN || try >= s->options.tries)
            return gw_store_fail(s, c, r, NULL, stalled, try, dg);
        double wait = gw_store_backoff(s, try, r);
        gw_log_debug("store: %s %s: status %ld %s%s; again in %.2f s", c->method,
                     c->key ? c->key : "", r->status, r->code, r->curl_error, wait);
        gw_store_sleep(wait);
    }
}

/* --- reading with resuming -------------------------------------------------------------------- */

typedef struct reading {
    const char *key;
    int64_t offset, want; /* what is still missing */
    uint8_t *to;
    gw_str *grow;
    int64_t max_bytes;
    char etag[160];
} reading;

static gw_store_call call_for(const reading *g, char range[64]) {
    gw_store_call c = {.method = "GET", .key = g->key};
    bool whole = g->offset == 0 && g->want < 0;
    if (!whole) {
        gw_store_range(range, g->offset, g->want);
        c.headers[c.nheaders++] = (gw_s3_pair){"Range", range};
    }
    if (*g->etag && strncmp(g->etag, "W/", 2) != 0)
        c.headers[c.nheaders++] = (gw_s3_pair){"If-Match", g->etag};
    return c;
}

static void move_on(reading *g, const gw_store_body *b) {
    if (b->kind != GW_BODY_TAKEN || b->got == 0) return;
    g->offset += b->got;
    if (g->to) g->to += b->got;
    if (g->want >= 0) g->want -= b->got;
    if (!*g->etag) snprintf(g->etag, sizeof g->etag, "%s", b->reply->etag);
}

static gw_status fail_range(gw_store *s, const reading *g, const gw_store_reply *r, gw_diags *dg) {
    gw_arena a = {0};
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "fetch-short", (gw_where){0},
                             "'%s' ends at byte %lld, but bytes from %lld are needed",
                             gw_store_name(s, g->key, &a), (long long)GW_MAX(r->total, 0),
                             (long long)g->offset);
    gw_diag_hint(dg, d, "the object was cut, or belongs to another version: write it again");
    gw_arena_release(&a);
    return GW_ERR_FORMAT;
}

static gw_status too_long(gw_store *s, const reading *g, gw_diags *dg) {
    gw_arena a = {0};
    gw_status st = GW_FAIL(dg, GW_ERR_FORMAT, "file-too-large",
                           "'%s' is larger than the %lld bytes that are read of such a file",
                           gw_store_name(s, g->key, &a), (long long)g->max_bytes);
    gw_arena_release(&a);
    return st;
}

static gw_status changed(gw_store *s, const reading *g, const gw_store_reply *r, gw_diags *dg) {
    gw_arena a = {0};
    gw_status st = gw_store_fail_changed(s, gw_store_name(s, g->key, &a), g->etag, r->etag, dg);
    gw_arena_release(&a);
    return st;
}

/* The object ends within the range: a 206 that says so itself. */
static bool ends_early(const reading *g, const gw_store_body *b) {
    const gw_store_reply *r = b->reply;
    int64_t total = r->status == 206 ? r->total : r->status == 200 ? r->length : -1;
    return b->kind == GW_BODY_TAKEN && g->want > 0 && total >= 0 && g->offset + g->want > total &&
           g->offset + b->got >= total;
}

gw_status gw_store_get_body(gw_store *s, const char *key, const char *etag, int64_t offset,
                            int64_t want, uint8_t *to, gw_str *grow, int64_t max_bytes,
                            gw_diags *dg) {
    reading g = {.key = key, .offset = offset, .want = want, .to = to, .grow = grow};
    gw_store_reply r;
    gw_status st = GW_OK;
    bool moved = false;
    size_t before = grow ? grow->len : 0;
    g.max_bytes = max_bytes;
    snprintf(g.etag, sizeof g.etag, "%s", etag);
    gw_store_reply_init(&r);
    for (int try = 1;; try++) {
        char range[64];
        gw_store_call c = call_for(&g, range);
        gw_store_body b = {.reply = &r, .offset = g.offset, .want = g.want, .etag = g.etag};
        b.to = g.to, b.grow = g.grow, b.max_bytes = max_bytes;
        bool stalled = try_once(s, &c, &r, &b);
        gw_store_verdict v = gw_store_judge(s, &c, &r, stalled);
        if (v == GW_STORE_DONE && b.kind == GW_BODY_NOT_BEGUN) gw_store_body_begin(&b);
        if (gw_store_body_is_whole(&b) && (v == GW_STORE_DONE || g.want >= 0)) break;
        if (b.kind == GW_BODY_CHANGED || r.status == 412)
            st = changed(s, &g, &r, dg);
        else if (b.kind == GW_BODY_TOO_LONG)
            st = too_long(s, &g, dg);
        else if (r.status == 416 && g.want < 0 && r.total == g.offset)
            break;
        else if (r.status == 416 || (v == GW_STORE_DONE && ends_early(&g, &b)))
            st = fail_range(s, &g, &r, dg);
        else if (v == GW_STORE_MISSING)
            st = fail_missing(s, &c, &r, dg);
        if (st != GW_OK) break;
        if (v == GW_STORE_AT_ONCE && !moved) {
            gw_store_learn_region(s, r.region);
            moved = true;
            continue;
        }
        if (b.kind == GW_BODY_TAKEN && b.got >= s->options.stall_bytes) try = GW_MIN(try, 1);
        move_on(&g, &b);
        if (v == GW_STORE_FAILED || v == GW_STORE_AT_ONCE || try >= s->options.tries) {
            st = gw_store_fail(s, &c, &r, &b, stalled, try, dg);
            break;
        }
        gw_store_sleep(gw_store_backoff(s, try, &r));
    }
    gw_store_reply_release(&r);
    if (st != GW_OK && grow && grow->data) {
        grow->len = before;
        grow->data[before] = 0;
    }
    return st;
}

gw_status gw_store_remote_stat(gw_store *s, const char *key, gw_arena *a, gw_store_entry *e,
                               bool *found, gw_diags *dg) {
    gw_store_call c = {.method = "HEAD", .key = key};
    gw_store_reply r;
    gw_store_verdict v;
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    *found = st == GW_OK && v == GW_STORE_DONE;
    if (*found && r.length < 0) {
        st = GW_FAIL(dg, GW_ERR_IO, "store-response",
                     "'%s': the server does not say how long it is", gw_store_name(s, key, a));
        *found = false;
    }
    if (*found)
        *e = (gw_store_entry){.key = gw_arena_strdup(a, key),
                              .bytes = r.length,
                              .etag = gw_arena_strdup(a, r.etag),
                              .modified = gw_s3_time(r.modified),
                              .now = gw_s3_time(r.date)};
    gw_store_reply_release(&r);
    return st;
}
