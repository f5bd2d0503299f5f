// SPDX-License-Identifier: Apache-2.0
// What the kinds of store share, and what fetch.c needs of them. Not for other folders.
#ifndef GW_FILE_STORE_IMPL_H
#define GW_FILE_STORE_IMPL_H

#include <curl/curl.h>
#include <pthread.h>

#include "base/map.h"          /* GW_VEC */
#include "file/s3_sign.h"      /* gw_s3_pair */
#include "file/store.h"        /* the contract */
#include "file/store_config.h" /* gw_store_config */

/* --- a kind of store -------------------------------------------------------------------------- */

struct gw_store_lister {
    gw_store *store;
    const char *prefix;
    bool folders;
    gw_arena fixed, page; /* page: of the entries of one page */
    GW_VEC(gw_store_entry) entries;
    int64_t next;
    bool last_page;
    const char *token; /* in fixed: of the next page */
};

/* One kind of store. Keys were checked. */
typedef struct gw_store_ops {
    gw_status (*list_page)(gw_store *, gw_store_lister *, gw_diags *);
    gw_status (*stat)(gw_store *, const char *key, gw_arena *, gw_store_entry *, bool *found,
                      gw_diags *);
    gw_status (*get)(gw_store *, const char *key, const char *etag, int64_t offset, int64_t n,
                     void *to, gw_diags *);
    gw_status (*read)(gw_store *, const char *key, int64_t max_bytes, gw_str *out, gw_diags *);
    /* won NULL: replaces */
    gw_status (*put)(gw_store *, const char *key, const void *bytes, int64_t n, bool *won,
                     gw_diags *);
    /* is "": there must be none */
    gw_status (*put_over)(gw_store *, const char *key, const char *is, const void *bytes, int64_t n,
                          bool *won, char *now, gw_diags *);
    gw_status (*write_open)(gw_store *, const char *key, int64_t expected, gw_store_writer **,
                            gw_diags *);
    gw_status (*write)(gw_store_writer *, const void *bytes, int64_t n, gw_diags *);
    gw_status (*write_finish)(gw_store_writer *, gw_diags *);
    void (*write_abort)(gw_store_writer *);
    gw_status (*delete)(gw_store *, const char *key, gw_diags *);
    gw_status (*copy)(gw_store *, const char *from, const char *to, gw_diags *);
    gw_status (*rename)(gw_store *, const char *from, const char *to, gw_diags *);
    gw_status (*sweep)(gw_store *, const char *prefix, double older_than_s, int64_t *removed,
                       gw_diags *);
} gw_store_ops;

struct gw_store {
    const gw_store_ops *ops;
    gw_store_kind kind;
    gw_arena arena;
    const char *url;
    gw_store_options options; /* with defaults filled in */

    const char *root; /* directory: its path */

    /* network */
    const char *base;     /* scheme://host[:port], and of http the path, escaped; no slash behind */
    const char *query;    /* of http: what stood behind '?', or NULL */
    const char *user;     /* of http, unescaped, or NULL */
    const char *password; /* the same */
    const char *host;     /* as it is signed */
    const char *path;     /* s3: "/bucket" with path style, else "" */
    const char *bucket;   /* s3 */
    const char *prefix;   /* s3: "" or "a/b/" */
    const char *endpoint; /* s3: scheme://host of the endpoint, or NULL for AWS */
    gw_store_config config;

    pthread_mutex_t lock;
    GW_VEC(CURL *) idle;         /* handles of requests */
    GW_VEC(CURLM *) idle_multis; /* of requests that are waited for, each with its connections */
    char region[40];             /* s3: may be corrected by the store's answer; under the lock */
    uint64_t draws;              /* numbers drawn for back-off and nonces; under the lock */
};

struct gw_store_writer {
    gw_store *store;
    void *impl;
};

extern const gw_store_ops gw_store_directory_ops, gw_store_s3_ops, gw_store_http_ops;

/* store_dir.c: the file of a key, in `a`. */
char *gw_store_dir_path(const gw_store *s, const char *key, gw_arena *a);

/* --- one request ------------------------------------------------------------------------------ */

/* What is sent; signed anew for each try. */
typedef struct gw_store_call {
    const char *method;
    const char *key; /* of the store; NULL: the bucket itself */
    gw_s3_pair query[6];
    int nquery;
    gw_s3_pair headers[8];
    int nheaders;
    const void *body;
    int64_t body_bytes;
    const char *body_sha256; /* hex; NULL: of an empty body */
    bool body_in_200;        /* complete and copy: an error may come with status 200 */
    bool conditional;        /* put_new, put_over: 409 and 412 have a meaning */
    bool upload_gone;        /* complete: 404 NoSuchUpload is MISSING */
} gw_store_call;

/* What came back. */
typedef struct gw_store_reply {
    CURLcode curl;
    long status; /* 0 before the first header */
    char curl_error[CURL_ERROR_SIZE];
    char etag[160], request_id[100], region[40], date[48], modified[48], checksum[64], writer[40];
    char code[80], message[300]; /* of an S3 error body */
    int64_t length;              /* Content-Length; -1 */
    int64_t first, last, total;  /* Content-Range; -1 */
    double retry_after_s;        /* 0 without */
    gw_str body;                 /* answers other than objects; at most 16 MiB */
} gw_store_reply;

void gw_store_reply_init(gw_store_reply *r);
void gw_store_reply_release(gw_store_reply *r);
/* One header line as it came, "Name: value\r\n"; a status line starts afresh. */
void gw_store_reply_header(gw_store_reply *r, const char *line, size_t n);

/* A body on its way into memory. */
typedef enum gw_body_kind {
    GW_BODY_NOT_BEGUN,
    GW_BODY_TAKEN,   /* the bytes that were asked for */
    GW_BODY_ANSWER,  /* something else: an error's text */
    GW_BODY_WRONG,   /* another range than was asked for */
    GW_BODY_CHANGED, /* another version of the object */
    GW_BODY_TOO_LONG /* more than there is room for */
} gw_body_kind;

typedef struct gw_store_body {
    gw_store_reply *reply;
    gw_body_kind kind;
    int64_t offset, want; /* what this try asks for; want -1: to the end */
    int64_t skip;         /* of a whole object that was sent instead */
    int64_t got;
    const char *etag;  /* the version it must be, or "" */
    uint8_t *to;       /* want >= 0 */
    gw_str *grow;      /* want < 0 */
    int64_t max_bytes; /* of grow in all; 0: no limit */
} gw_store_body;

/* Decides from status and headers what the body is. */
void gw_store_body_begin(gw_store_body *b);
/* Takes n bytes; false where the transfer must end. */
bool gw_store_body_take(gw_store_body *b, const void *bytes, size_t n);
/* After a transfer that curl calls complete: are all bytes there that this try asked for? */
bool gw_store_body_is_whole(const gw_store_body *b);

/* Progress within windows of time. */
typedef struct gw_store_watch {
    int64_t window_ns, least_bytes;
    int64_t began_ns, bytes; /* of this window */
    bool stalled;
} gw_store_watch;
void gw_store_watch_start(gw_store_watch *w, double window_s, int64_t least_bytes);
/* `bytes` moved since the start of the try. True once a window closed with too few. */
bool gw_store_watch_look(gw_store_watch *w, int64_t bytes);

/* A handle for one request; give it back after use. */
CURL *gw_store_handle_take(gw_store *s);
void gw_store_handle_give(gw_store *s, CURL *h);
/* Performs a request that is set up, looking at progress every quarter of a stall window. *stalled
 * where the watch ended it. */
CURLcode gw_store_handle_perform(gw_store *s, CURL *h, gw_store_watch *w, bool *stalled);
/* Sets a handle up for one try: URL, method, signed headers, limits. The list of headers is the
 * caller's to curl_slist_free_all after the transfer. */
void gw_store_prepare(gw_store *s, const gw_store_call *c, CURL *h, struct curl_slist **headers);
/* The path of a range request's header: "bytes=5-9" or "bytes=5-". */
void gw_store_range(char text[64], int64_t offset, int64_t n);

/* --- what an answer means --------------------------------------------------------------------- */

typedef enum gw_store_verdict {
    GW_STORE_DONE,
    GW_STORE_MISSING, /* 404 of an object */
    GW_STORE_TAKEN,   /* 412, or 409 of a conditional put */
    GW_STORE_AGAIN,   /* wait, then once more */
    GW_STORE_AT_ONCE, /* once more without waiting: the region was learned */
    GW_STORE_FAILED
} gw_store_verdict;

/* Reads the error body, if it is one, and judges. `stalled`: our own watch ended the try. */
gw_store_verdict gw_store_judge(gw_store *s, const gw_store_call *c, gw_store_reply *r,
                                bool stalled);
/* Seconds to wait before try number `try` (from 1: after the first one failed). */
double gw_store_backoff(gw_store *s, int try, const gw_store_reply *r);
/* A random number, different at each call. */
uint64_t gw_store_draw(gw_store *s);
/* The diagnostic of a call that failed after `tries`; always an error status. */
gw_status gw_store_fail(gw_store *s, const gw_store_call *c, const gw_store_reply *r,
                        const gw_store_body *b, bool stalled, int tries, gw_diags *dg);
gw_status gw_store_fail_changed(gw_store *s, const char *key, const char *was, const char *is,
                                gw_diags *dg);

/* Performs a call with retries; the answer's body is in r->body. *verdict is DONE, MISSING or TAKEN
 * with GW_OK. An earlier try may have had its effect though its answer was lost. */
GW_WARN_UNUSED gw_status gw_store_perform(gw_store *s, const gw_store_call *c, gw_store_reply *r,
                                          gw_store_verdict *verdict, gw_diags *dg);
/* GET of a range, or of all (want -1, into grow), with resuming. */
GW_WARN_UNUSED gw_status gw_store_get_body(gw_store *s, const char *key, const char *etag,
                                           int64_t offset, int64_t want, uint8_t *to, gw_str *grow,
                                           int64_t max_bytes, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_store_remote_stat(gw_store *s, const char *key, gw_arena *a,
                                              gw_store_entry *e, bool *found, gw_diags *dg);
/* store_s3.c: puts one object (or part) from memory. */
GW_WARN_UNUSED gw_status gw_store_put_body(gw_store *s, gw_store_call *c, const void *bytes,
                                           int64_t n, char checksum[45], gw_store_reply *r,
                                           gw_store_verdict *verdict, gw_diags *dg);

/* Who wrote an object: a number of the writer's, kept as metadata. */
#define GW_STORE_WRITER_HEADER "x-amz-meta-gradwright-writer"
void gw_store_nonce(gw_store *s, char nonce[33]);
GW_WARN_UNUSED gw_status gw_store_is_own(gw_store *s, const char *key, const char *nonce, bool *own,
                                         gw_diags *dg);
/* store_s3_write.c */
gw_status gw_store_s3_write_open(gw_store *s, const char *key, int64_t expected,
                                 gw_store_writer **out, gw_diags *dg);
gw_status gw_store_s3_write(gw_store_writer *w, const void *bytes, int64_t n, gw_diags *dg);
gw_status gw_store_s3_write_finish(gw_store_writer *w, gw_diags *dg);
void gw_store_s3_write_abort(gw_store_writer *w);

/* Sleeps, signals or not. */
void gw_store_sleep(double seconds);
/* store.c: the bucket lives in another region than we thought; requests go there from now on. */
void gw_store_learn_region(gw_store *s, const char *region);
/* Starts curl and libxml2, once in a process; safe from any thread. */
void gw_store_global(void);

#endif
