// SPDX-License-Identifier: Apache-2.0
// The misbehaving object store.
//
// One thread a connection, requests one after another; a lock guards objects, faults and counters.
// A fault is looked up once for each request and then shapes the answer. The link that connections
// share is a clock: whoever sends n bytes moves it on by n / rate and sleeps until his turn, so the
// sum over all connections never exceeds the rate and is divided evenly among those that send.
//
// What it knows of S3: GET and HEAD with Range and If-Match, PUT with If-None-Match: * and
// If-Match, DELETE, multipart uploads, lists in pages. Signatures are not looked at.
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/clock.h"    /* gw_clock_ns */
#include "base/compiler.h" /* GW_MIN, GW_MAX */
#include "base/str.h"      /* gw_str */

#define NOISE_BYTES (1 << 20)
#define STEP_BYTES  (128 * 1024)
#define MAX_FAULTS  64
#define LATE_NS     20000000 /* a sender that a busy machine woke so late catches up */

typedef struct object {
    char *path;
    uint8_t *bytes;
    int64_t n;
    int version;
    double modified; /* by the server's clock */
    char writer[64];
    struct object *next;
} object;

typedef struct part {
    int number;
    uint8_t *bytes;
    int64_t n;
    struct part *next;
} part;

typedef struct upload {
    int id;
    char *path;
    char writer[64];
    part *parts;
    struct upload *next;
} upload;

typedef struct connection {
    store_server *server;
    int fd;
    bool used;
    pthread_t thread;
} connection;

#define MAX_CONNECTIONS 1024

struct store_server {
    store_server_options o;
    int fd, port;
    char url[64];
    pthread_t acceptor;
    pthread_mutex_t lock;
    bool stopping;
    object *objects;
    upload *uploads;
    int next_id, next_version, at_once;
    store_fault faults[MAX_FAULTS];
    int nfaults;
    double ahead_s;  /* of its clock */
    int64_t link_ns; /* when the link is free again */
    store_server_stats stats;
    connection connections[MAX_CONNECTIONS];
    uint8_t *noise; /* [2 * NOISE_BYTES], the second half like the first */
};

/* A request, and what is to be answered. */
typedef struct request {
    store_server *s;
    int fd;
    char method[8];
    char target[2100], path[2100], query[1024];
    char range[80], if_match[80], if_none_match[16], writer[64];
    bool close_after;
    int64_t number;
    gw_str body;
    bool has_fault;
    store_fault fault;
} request;

/* --- noise ------------------------------------------------------------------------------------ */

static uint8_t noise_at(uint64_t i) {
    uint64_t x = i / 8 + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (uint8_t)(x >> (8 * (i % 8)));
}

static uint64_t noise_place(uint64_t seed, int64_t i) {
    return (seed * 7919 + (uint64_t)i) % NOISE_BYTES;
}

uint8_t store_server_noise(uint64_t seed, int64_t i) { return noise_at(noise_place(seed, i)); }

/* --- sending ---------------------------------------------------------------------------------- */

static void sleep_until(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

uint8_t *store_server_noise_bytes(int64_t n, uint64_t seed) {
    uint8_t *p = gw_mem_alloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) p[i] = store_server_noise(seed, i);
    return p;
}

void store_server_use(const store_server *s) {
    setenv("AWS_ENDPOINT_URL_S3", store_server_url(s), 1);
    setenv("AWS_ACCESS_KEY_ID", "a", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "b", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
}

static bool is_stopping(store_server *s) { return __atomic_load_n(&s->stopping, __ATOMIC_RELAXED); }

/* Sleeps in slices, so that stopping does not wait. */
static void sleep_for(store_server *s, double seconds) {
    int64_t end = gw_clock_ns() + (int64_t)(seconds * 1e9);
    for (int64_t now = gw_clock_ns(); now < end && !is_stopping(s); now = gw_clock_ns())
        sleep_until(GW_MIN(end, now + 50000000));
}

static bool send_all(int fd, const void *bytes, int64_t n) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t k = send(fd, p, (size_t)n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= k;
    }
    return true;
}

static void reset_connection(int fd) {
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/* Waits for the link's turn of n bytes. */
static void take_turn(store_server *s, int64_t n) {
    if (s->o.bytes_per_s <= 0) return;
    pthread_mutex_lock(&s->lock);
    int64_t now = gw_clock_ns();
    if (s->link_ns < now - LATE_NS) s->link_ns = now - LATE_NS;
    int64_t turn = s->link_ns;
    s->link_ns += (int64_t)((double)n / s->o.bytes_per_s * 1e9);
    pthread_mutex_unlock(&s->lock);
    if (turn > now) sleep_until(turn);
}

static bool send_paced(request *r, const uint8_t *bytes, int64_t n) {
    store_server *s = r->s;
    while (n > 0) {
        int64_t k = GW_MIN(n, (int64_t)STEP_BYTES);
        int64_t begun = gw_clock_ns();
        take_turn(s, k);
        if (!send_all(r->fd, bytes, k)) return false;
        __atomic_add_fetch(&s->stats.bytes_sent, k, __ATOMIC_RELAXED);
        if (s->o.connection_bytes_per_s > 0)
            sleep_until(begun + (int64_t)((double)k / s->o.connection_bytes_per_s * 1e9));
        bytes += k;
        n -= k;
    }
    return true;
}

static bool send_head(request *r, int status, const char *more, int64_t length) {
    gw_str h = {0};
    gw_str_printf(&h,
                  "HTTP/1.1 %d X\r\nContent-Length: %lld\r\nx-amz-request-id: REQ-%lld\r\n%s\r\n",
                  status, (long long)length, (long long)r->number, more);
    bool ok = send_all(r->fd, h.data, (int64_t)h.len);
    gw_str_release(&h);
    return ok;
}

static bool answer(request *r, int status, const char *more, const char *body) {
    bool head = strcmp(r->method, "HEAD") == 0;
    if (!send_head(r, status, more, (int64_t)strlen(body))) return false;
    return head || send_all(r->fd, body, (int64_t)strlen(body));
}

static bool refuse(request *r, int status, const char *code, double retry_after) {
    char body[400], more[60] = "";
    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>as told</Message>"
             "<RequestId>REQ</RequestId></Error>",
             code);
    if (retry_after >= 1) snprintf(more, sizeof more, "Retry-After: %d\r\n", (int)retry_after);
    return answer(r, status, more, body);
}

/* --- objects ---------------------------------------------------------------------------------- */

static object *find_object(store_server *s, const char *path) {
    for (object *o = s->objects; o; o = o->next)
        if (strcmp(o->path, path) == 0) return o;
    return NULL;
}

/* Its clock. With the lock. */
static double server_now(const store_server *s) { return gw_clock_wall() + s->ahead_s; }

/* "Mon, 30 Nov 2026 12:00:00 GMT" */
static void http_time(char out[40], double t) {
    time_t whole = (time_t)t;
    struct tm tm;
    gmtime_r(&whole, &tm);
    strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* Takes the bytes. With the lock. */
static object *set_object(store_server *s, const char *path, uint8_t *bytes, int64_t n,
                          const char *writer) {
    object *o = find_object(s, path);
    if (!o) {
        o = calloc(1, sizeof *o);
        o->path = strdup(path);
        object **at = &s->objects; /* in the order of their paths, for lists */
        while (*at && strcmp((*at)->path, path) < 0) at = &(*at)->next;
        o->next = *at;
        *at = o;
    }
    free(o->bytes);
    o->bytes = bytes;
    o->n = n;
    o->version = ++s->next_version;
    o->modified = server_now(s);
    snprintf(o->writer, sizeof o->writer, "%s", writer);
    return o;
}

static uint8_t *copy_bytes(const void *bytes, int64_t n) {
    uint8_t *p = malloc((size_t)n + 1);
    if (n) memcpy(p, bytes, (size_t)n);
    return p;
}

void store_server_set(store_server *s, const char *path, const void *bytes, int64_t n) {
    pthread_mutex_lock(&s->lock);
    set_object(s, path, copy_bytes(bytes, n), n, "");
    pthread_mutex_unlock(&s->lock);
}

uint8_t *store_server_get(store_server *s, const char *path, int64_t *n) {
    pthread_mutex_lock(&s->lock);
    object *o = find_object(s, path);
    uint8_t *copy = o ? copy_bytes(o->bytes, o->n) : NULL;
    *n = o ? o->n : 0;
    pthread_mutex_unlock(&s->lock);
    return copy;
}

static void remove_object(store_server *s, const char *path) {
    object **at = &s->objects;
    while (*at && strcmp((*at)->path, path) != 0) at = &(*at)->next;
    object *o = *at;
    if (!o) return;
    *at = o->next;
    free(o->path);
    free(o->bytes);
    free(o);
}

/* --- reading objects -------------------------------------------------------------------------- */

/* What an answer is made of: a copy of an object, or noise. */
typedef struct content {
    bool found, is_noise;
    uint64_t seed;
    uint8_t *bytes; /* from the first that the answer may need on */
    int64_t n, first;
    double modified, now;
    char etag[40], writer[64];
} content;

static void read_range(const char *text, int64_t total, int64_t *from, int64_t *to) {
    long long a, b;
    *from = 0;
    *to = total;
    int k = sscanf(text, "bytes=%lld-%lld", &a, &b);
    if (k >= 1) *from = a;
    if (k == 2) *to = GW_MIN(b + 1, total);
}

static content content_of(request *r) {
    content c = {0};
    store_server *s = r->s;
    unsigned long long seed;
    long long n;
    char end;
    if (sscanf(r->path, "/noise/%llu/%lld%c", &seed, &n, &end) == 2) {
        c = (content){.found = true, .is_noise = true, .seed = seed, .n = n};
        snprintf(c.etag, sizeof c.etag, "\"noise-%llu-%lld\"", seed, n);
        return c;
    }
    pthread_mutex_lock(&s->lock);
    object *o = find_object(s, r->path);
    if (o && r->has_fault && r->fault.kind == FAULT_CHANGE) {
        for (int64_t i = 0; i < o->n; i++) o->bytes[i] ^= 0xff;
        o->version = ++s->next_version;
    }
    if (o) {
        int64_t from = 0, to = o->n;
        /* A fault may send other bytes than were asked for. */
        if (!r->has_fault) read_range(r->range, o->n, &from, &to);
        if (!r->has_fault && strcmp(r->method, "HEAD") == 0) to = from = 0;
        from = GW_MIN(from, o->n);
        c = (content){.found = true, .n = o->n, .first = from};
        c.bytes = copy_bytes(o->bytes + from, GW_MAX(to - from, 0));
        snprintf(c.etag, sizeof c.etag, "\"v%d\"", o->version);
        snprintf(c.writer, sizeof c.writer, "%s", o->writer);
        c.modified = o->modified;
        c.now = server_now(s);
    }
    pthread_mutex_unlock(&s->lock);
    return c;
}

static bool send_slice(request *r, const content *c, int64_t from, int64_t n) {
    if (!c->is_noise) return send_paced(r, c->bytes + (from - c->first), n);
    while (n > 0) {
        int64_t k = GW_MIN(n, (int64_t)NOISE_BYTES);
        if (!send_paced(r, r->s->noise + noise_place(c->seed, from), k)) return false;
        from += k;
        n -= k;
    }
    return true;
}

/* The body, with whatever is to happen within it. False: the connection is done with. */
static bool send_body(request *r, const content *c, int64_t from, int64_t n) {
    const store_fault *f = &r->fault;
    bool acts = r->has_fault && (f->kind == FAULT_STALL || f->kind == FAULT_DRIP ||
                                 f->kind == FAULT_RESET || f->kind == FAULT_CLOSE);
    if (!acts || f->at > n) return send_slice(r, c, from, n);
    if (!send_slice(r, c, from, f->at)) return false;
    if (f->kind == FAULT_STALL) sleep_for(r->s, f->seconds);
    if (f->kind == FAULT_RESET) {
        sleep_for(r->s, 0.02); /* or the bytes before would be lost with it */
        reset_connection(r->fd);
    }
    for (int64_t i = f->at; f->kind == FAULT_DRIP && i < n; i++) {
        sleep_for(r->s, f->seconds);
        if (is_stopping(r->s) || !send_slice(r, c, from + i, 1)) return false;
    }
    return f->kind == FAULT_DRIP;
}

static bool send_object(request *r, content *c) {
    char more[500], range[100] = "", modified[40], now[40];
    int64_t from, to;
    bool head = strcmp(r->method, "HEAD") == 0;
    const store_fault *f = &r->fault;
    if (!c->found) return refuse(r, 404, "NoSuchKey", 0);
    if (*r->if_match && strcmp(r->if_match, c->etag) != 0)
        return refuse(r, 412, "PreconditionFailed", 0);
    bool ranged = *r->range && !(r->has_fault && f->kind == FAULT_NO_RANGE);
    read_range(ranged ? r->range : "", c->n, &from, &to);
    if (ranged && from >= c->n) {
        snprintf(more, sizeof more, "Content-Range: bytes */%lld\r\n", (long long)c->n);
        return answer(r, 416, more, "");
    }
    if (ranged && r->has_fault && f->kind == FAULT_SHIFT_RANGE) {
        from = GW_MIN(from + f->at, c->n - 1);
        to = GW_MIN(to + f->at, c->n);
    }
    if (r->has_fault && f->kind == FAULT_FLIP && !c->is_noise && f->at < c->n) c->bytes[f->at] ^= 1;
    if (ranged)
        snprintf(range, sizeof range, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)from,
                 (long long)to - 1, (long long)c->n);
    http_time(modified, c->is_noise ? 1.6e9 : c->modified);
    http_time(now, c->is_noise ? 1.6e9 : c->now);
    snprintf(more, sizeof more,
             "ETag: %s\r\nDate: %s\r\nLast-Modified: %s\r\nAccept-Ranges: bytes\r\n"
             "%s%s%s%s",
             c->etag, now, modified, range, *c->writer ? "x-amz-meta-gradwright-writer: " : "",
             c->writer, *c->writer ? "\r\n" : "");
    if (!send_head(r, ranged ? 206 : 200, more, to - from)) return false;
    return head || send_body(r, c, from, to - from);
}

/* --- writing ---------------------------------------------------------------------------------- */

static const char *parameter(const request *r, const char *name, char *out, size_t cap) {
    size_t n = strlen(name);
    for (const char *p = r->query; *p;) {
        size_t len = strcspn(p, "&");
        if (strncmp(p, name, n) == 0 && (p[n] == '=' || p[n] == '&' || p[n] == 0)) {
            size_t k = p[n] == '=' ? len - n - 1 : 0;
            snprintf(out, cap, "%.*s", (int)k, p + n + (p[n] == '='));
            return out;
        }
        p += len + (p[len] == '&');
    }
    return NULL;
}

static upload *find_upload(store_server *s, int id) {
    for (upload *u = s->uploads; u; u = u->next)
        if (u->id == id) return u;
    return NULL;
}

static void free_upload(store_server *s, upload *u) {
    upload **at = &s->uploads;
    while (*at && *at != u) at = &(*at)->next;
    if (*at) *at = u->next;
    while (u->parts) {
        part *p = u->parts;
        u->parts = p->next;
        free(p->bytes);
        free(p);
    }
    free(u->path);
    free(u);
}

/* Each of these does the work with the lock, and says what to answer. */
typedef struct outcome {
    int status;
    char more[200], body[600];
} outcome;

static outcome put_object(request *r) {
    store_server *s = r->s;
    outcome out = {.status = 200};
    s->stats.puts++;
    if (*r->if_none_match && find_object(s, r->path)) {
        out.status = 412;
        snprintf(out.body, sizeof out.body, "<Error><Code>PreconditionFailed</Code></Error>");
        return out;
    }
    object *there = find_object(s, r->path);
    char is[32] = "";
    if (there) snprintf(is, sizeof is, "\"v%d\"", there->version);
    if (*r->if_match && strcmp(r->if_match, is) != 0) {
        out.status = there ? 412 : 404;
        snprintf(out.body, sizeof out.body, "<Error><Code>%s</Code></Error>",
                 there ? "PreconditionFailed" : "NoSuchKey");
        return out;
    }
    object *o = set_object(s, r->path, copy_bytes(r->body.data, (int64_t)r->body.len),
                           (int64_t)r->body.len, r->writer);
    snprintf(out.more, sizeof out.more, "ETag: \"v%d\"\r\n", o->version);
    return out;
}

static outcome no_upload(void) {
    outcome out = {.status = 404};
    snprintf(out.body, sizeof out.body, "<Error><Code>NoSuchUpload</Code></Error>");
    return out;
}

static outcome put_part(request *r, int id, int number) {
    store_server *s = r->s;
    upload *u = find_upload(s, id);
    outcome out = {.status = 200};
    if (!u) return no_upload();
    s->stats.puts++;
    part **at = &u->parts;
    while (*at && (*at)->number < number) at = &(*at)->next;
    if (!*at || (*at)->number != number) {
        part *p = calloc(1, sizeof *p);
        p->number = number;
        p->next = *at;
        *at = p;
    }
    free((*at)->bytes);
    (*at)->bytes = copy_bytes(r->body.data, (int64_t)r->body.len);
    (*at)->n = (int64_t)r->body.len;
    snprintf(out.more, sizeof out.more, "ETag: \"p%d\"\r\n", number);
    return out;
}

static outcome complete(request *r, int id) {
    store_server *s = r->s;
    upload *u = find_upload(s, id);
    outcome out = {.status = 200};
    gw_str all = {0};
    if (!u) return no_upload();
    for (part *p = u->parts; p; p = p->next) gw_str_add_n(&all, p->bytes, (size_t)p->n);
    object *o =
        set_object(s, u->path, copy_bytes(all.data, (int64_t)all.len), (int64_t)all.len, u->writer);
    snprintf(out.body, sizeof out.body,
             "<CompleteMultipartUploadResult><ETag>&quot;v%d&quot;</ETag>"
             "</CompleteMultipartUploadResult>",
             o->version);
    gw_str_release(&all);
    free_upload(s, u);
    return out;
}

static outcome begin_upload(request *r) {
    store_server *s = r->s;
    outcome out = {.status = 200};
    upload *u = calloc(1, sizeof *u);
    u->id = ++s->next_id;
    u->path = strdup(r->path);
    snprintf(u->writer, sizeof u->writer, "%s", r->writer);
    u->next = s->uploads;
    s->uploads = u;
    snprintf(out.body, sizeof out.body,
             "<InitiateMultipartUploadResult><UploadId>%d</UploadId>"
             "</InitiateMultipartUploadResult>",
             u->id);
    return out;
}

static outcome change(request *r) {
    char id[32], number[32], text[8];
    bool has_id = parameter(r, "uploadId", id, sizeof id) != NULL;
    bool is_put = strcmp(r->method, "PUT") == 0, is_post = strcmp(r->method, "POST") == 0;
    if (is_put && has_id && parameter(r, "partNumber", number, sizeof number))
        return put_part(r, (int)strtol(id, NULL, 10), (int)strtol(number, NULL, 10));
    if (is_put) return put_object(r);
    if (is_post && has_id) return complete(r, (int)strtol(id, NULL, 10));
    if (is_post && parameter(r, "uploads", text, sizeof text)) return begin_upload(r);
    outcome out = {.status = 204};
    if (has_id) {
        upload *u = find_upload(r->s, (int)strtol(id, NULL, 10));
        if (!u) return no_upload();
        free_upload(r->s, u);
    } else {
        remove_object(r->s, r->path);
    }
    return out;
}

/* --- lists ------------------------------------------------------------------------------------ */

static int hex_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void unescape(char *text) {
    char *out = text;
    for (const char *p = text; *p; p++) {
        int hi = *p == '%' ? hex_of(p[1]) : -1, lo = hi >= 0 ? hex_of(p[2]) : -1;
        *out++ = lo >= 0 ? (char)(hi * 16 + lo) : *p;
        if (lo >= 0) p += 2;
    }
    *out = 0;
}

typedef struct listing {
    const char *prefix, *after; /* after: keys up to this were on earlier pages */
    bool folders;
    int most, n;
    char last[600];
    bool more;
    gw_str xml;
} listing;

/* One object whose key within the bucket is `key`. */
static void list_one(listing *l, const object *o, const char *key) {
    char name[600];
    size_t n = strlen(l->prefix);
    if (strncmp(key, l->prefix, n) != 0) return;
    const char *slash = l->folders ? strchr(key + n, '/') : NULL;
    snprintf(name, sizeof name, "%.*s", slash ? (int)(slash - key) + 1 : (int)strlen(key), key);
    if (strcmp(name, l->last) == 0 || (*l->after && strcmp(name, l->after) <= 0)) return;
    if (l->n == l->most) {
        l->more = true;
        return;
    }
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", name);
    if (slash)
        gw_str_printf(&l->xml, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", name);
    else
        gw_str_printf(&l->xml,
                      "<Contents><Key>%s</Key><ETag>&quot;v%d&quot;</ETag><Size>%lld</Size>"
                      "</Contents>",
                      name, o->version, (long long)o->n);
}

/* Keys without what XML would escape. */
static bool send_list(request *r) {
    store_server *s = r->s;
    char prefix[600] = "", after[600] = "", delimiter[8] = "", most[16] = "1000";
    listing l = {.prefix = prefix, .after = after};
    size_t n = strlen(r->path);
    (void)parameter(r, "prefix", prefix, sizeof prefix);
    (void)parameter(r, "continuation-token", after, sizeof after);
    (void)parameter(r, "max-keys", most, sizeof most);
    l.folders = parameter(r, "delimiter", delimiter, sizeof delimiter) && *delimiter;
    l.most = (int)strtol(most, NULL, 10);
    unescape(prefix);
    unescape(after);
    if (n > 1 && r->path[n - 1] == '/') n--;
    pthread_mutex_lock(&s->lock);
    for (const object *o = s->objects; o && !l.more; o = o->next)
        if (strncmp(o->path, r->path, n) == 0 && o->path[n] == '/')
            list_one(&l, o, o->path + n + 1);
    pthread_mutex_unlock(&s->lock);
    gw_str out = {0};
    gw_str_printf(&out, "<ListBucketResult><IsTruncated>%s</IsTruncated>",
                  l.more ? "true" : "false");
    if (l.more) gw_str_printf(&out, "<NextContinuationToken>%s</NextContinuationToken>", l.last);
    gw_str_printf(&out, "%s</ListBucketResult>", gw_str_c(&l.xml));
    bool ok = answer(r, 200, "", gw_str_c(&out));
    gw_str_release(&out);
    gw_str_release(&l.xml);
    return ok;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool fits(const store_fault *f, const request *r) {
    return (!f->method || strcmp(f->method, r->method) == 0) &&
           (!f->path || strstr(r->target, f->path));
}

static void choose_fault(request *r) {
    store_server *s = r->s;
    pthread_mutex_lock(&s->lock);
    r->number = ++s->stats.requests;
    s->at_once++;
    s->stats.most_at_once = GW_MAX(s->stats.most_at_once, s->at_once);
    for (int i = 0; i < s->nfaults && !r->has_fault; i++) {
        store_fault *f = &s->faults[i];
        if (f->count < 0 || !fits(f, r)) continue;
        if (f->skip > 0) {
            f->skip--;
            continue;
        }
        r->has_fault = true;
        r->fault = *f;
        if (f->count > 0 && --f->count == 0) f->count = -1;
    }
    pthread_mutex_unlock(&s->lock);
}

/* True where the connection may go on. */
static bool serve(request *r) {
    store_server *s = r->s;
    const store_fault *f = &r->fault;
    bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;
    sleep_for(s, s->o.first_byte_s + (r->has_fault && f->kind == FAULT_DELAY ? f->seconds : 0));
    if (r->has_fault && f->kind == FAULT_STATUS) {
        __atomic_add_fetch(&s->stats.throttled, 1, __ATOMIC_RELAXED);
        return refuse(r, f->status, f->text ? f->text : "Told", f->seconds);
    }
    if (r->has_fault && f->kind == FAULT_ANSWER) return answer(r, f->status, "", f->text);
    if (r->has_fault && f->kind == FAULT_GARBAGE) {
        static const char text[] = "\x01\x02 no http at all\r\n\r\n";
        send_all(r->fd, text, (int64_t)sizeof text - 1);
        return false;
    }
    if (r->has_fault && f->kind == FAULT_STALL && !reads) {
        sleep_for(s, f->seconds);
        return false;
    }
    if (r->has_fault && f->kind == FAULT_RESET && !reads) {
        reset_connection(r->fd);
        return false;
    }
    char kind[8];
    if (reads && parameter(r, "list-type", kind, sizeof kind)) return send_list(r);
    if (reads) {
        content c = content_of(r);
        bool ok = send_object(r, &c);
        free(c.bytes);
        return ok;
    }
    pthread_mutex_lock(&s->lock);
    outcome out = change(r);
    pthread_mutex_unlock(&s->lock);
    if (r->has_fault && f->kind == FAULT_LOST) {
        reset_connection(r->fd);
        return false;
    }
    return answer(r, out.status, out.more, out.body);
}

static void split_target(request *r) {
    size_t n = strcspn(r->target, "?");
    memcpy(r->path, r->target, n);
    r->path[n] = 0;
    unescape(r->path);
    snprintf(r->query, sizeof r->query, "%s", r->target[n] == '?' ? r->target + n + 1 : "");
}

static void header_value(const char *line, const char *name, char *out, size_t cap) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0) return;
    while (line[n] == ' ') n++;
    snprintf(out, cap, "%.*s", (int)strcspn(line + n, "\r\n"), line + n);
}

/* Reads head and body of the next request; false at the end. */
static bool read_request(request *r, gw_str *in) {
    char length[32] = "0", connection_word[32] = "";
    char *end = NULL;
    while (!(end = strstr(gw_str_c(in), "\r\n\r\n"))) {
        char piece[65536];
        if (in->len > 65536) return false;
        ssize_t k = recv(r->fd, piece, sizeof piece, 0);
        if (k <= 0) return false;
        gw_str_add_n(in, piece, (size_t)k);
    }
    size_t head = (size_t)(end - in->data) + 4;
    if (sscanf(in->data, "%7s %2000s", r->method, r->target) != 2) return false;
    for (char *p = strstr(in->data, "\r\n"); p && p < end; p = strstr(p + 2, "\r\n")) {
        header_value(p + 2, "content-length:", length, sizeof length);
        header_value(p + 2, "range:", r->range, sizeof r->range);
        header_value(p + 2, "if-match:", r->if_match, sizeof r->if_match);
        header_value(p + 2, "if-none-match:", r->if_none_match, sizeof r->if_none_match);
        header_value(p + 2, "connection:", connection_word, sizeof connection_word);
        header_value(p + 2, "x-amz-meta-gradwright-writer:", r->writer, sizeof r->writer);
    }
    r->close_after = strcasecmp(connection_word, "close") == 0;
    size_t want = (size_t)strtoll(length, NULL, 10);
    size_t have = GW_MIN(in->len - head, want);
    gw_str_add_n(&r->body, in->data + head, have);
    gw_str rest = {0};
    gw_str_add_n(&rest, in->data + head + have, in->len - head - have);
    gw_str_release(in);
    *in = rest;
    while (r->body.len < want) {
        gw_str_reserve(&r->body, want - r->body.len);
        ssize_t k = recv(r->fd, r->body.data + r->body.len, want - r->body.len, 0);
        if (k <= 0) return false;
        r->body.len += (size_t)k;
        r->body.data[r->body.len] = 0;
    }
    split_target(r);
    return true;
}

static void *serve_connection(void *user) {
    connection *c = user;
    store_server *s = c->server;
    gw_str in = {0};
    for (bool more = true; more && !is_stopping(s);) {
        request *r = calloc(1, sizeof *r);
        r->s = s;
        r->fd = c->fd;
        more = read_request(r, &in);
        if (more) {
            choose_fault(r);
            more = serve(r) && !r->close_after;
            pthread_mutex_lock(&s->lock);
            s->at_once--;
            pthread_mutex_unlock(&s->lock);
        }
        gw_str_release(&r->body);
        free(r);
    }
    gw_str_release(&in);
    pthread_mutex_lock(&s->lock);
    close(c->fd);
    c->fd = -1;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- starting and stopping -------------------------------------------------------------------- */

static connection *free_connection(store_server *s) {
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->used && c->fd >= 0) continue;
        if (c->used) pthread_join(c->thread, NULL);
        *c = (connection){.server = s, .fd = -1};
        return c;
    }
    return NULL;
}

static void *accept_all(void *user) {
    store_server *s = user;
    for (;;) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&s->lock);
        bool stop = is_stopping(s);
        connection *c = fd >= 0 && !stop ? free_connection(s) : NULL;
        if (c) {
            int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            c->fd = fd;
            c->used = pthread_create(&c->thread, NULL, serve_connection, c) == 0;
            s->stats.connections++;
        }
        if (fd >= 0 && (!c || !c->used)) close(fd);
        pthread_mutex_unlock(&s->lock);
        if (stop) return NULL;
    }
}

static void give_up(const char *what) {
    perror(what);
    exit(1);
}

store_server *store_server_start(const store_server_options *o) {
    store_server *s = calloc(1, sizeof *s);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1;
    if (o) s->o = *o;
    at.sin_port = htons((uint16_t)s->o.port);
    pthread_mutex_init(&s->lock, NULL);
    s->noise = malloc(2 * NOISE_BYTES);
    for (size_t i = 0; i < 2 * NOISE_BYTES; i++) s->noise[i] = noise_at(i % NOISE_BYTES);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s->fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(s->fd, 512) != 0)
        give_up("store server: listen");
    getsockname(s->fd, (struct sockaddr *)&at, &len);
    s->port = ntohs(at.sin_port);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    if (pthread_create(&s->acceptor, NULL, accept_all, s) != 0) give_up("store server: thread");
    return s;
}

void store_server_stop(store_server *s) {
    pthread_mutex_lock(&s->lock);
    __atomic_store_n(&s->stopping, true, __ATOMIC_RELAXED);
    shutdown(s->fd, SHUT_RDWR); /* wakes accept */
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (s->connections[i].used && s->connections[i].fd >= 0)
            shutdown(s->connections[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->acceptor, NULL);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (s->connections[i].used) pthread_join(s->connections[i].thread, NULL);
    close(s->fd);
    while (s->objects) remove_object(s, s->objects->path);
    while (s->uploads) free_upload(s, s->uploads);
    pthread_mutex_destroy(&s->lock);
    free(s->noise);
    free(s);
}

const char *store_server_url(const store_server *s) { return s->url; }

void store_server_fault(store_server *s, const store_fault *f) {
    pthread_mutex_lock(&s->lock);
    if (s->nfaults < MAX_FAULTS) s->faults[s->nfaults++] = *f;
    pthread_mutex_unlock(&s->lock);
}

void store_server_set_clock(store_server *s, double ahead_s) {
    pthread_mutex_lock(&s->lock);
    s->ahead_s = ahead_s;
    pthread_mutex_unlock(&s->lock);
}

void store_server_no_faults(store_server *s) {
    pthread_mutex_lock(&s->lock);
    s->nfaults = 0;
    pthread_mutex_unlock(&s->lock);
}

void store_server_get_stats(store_server *s, store_server_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

int store_server_uploads(store_server *s) {
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (upload *u = s->uploads; u; u = u->next) n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}
