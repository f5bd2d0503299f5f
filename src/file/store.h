// SPDX-License-Identifier: Apache-2.0
// Object stores: one interface over a directory, s3://BUCKET/PREFIX and http(s)://HOST/PATH (read
// only). docs/object-stores.md says what a user can set.
//
// A store is opened at a URL; keys are relative to it ("a/b.bin", never a leading '/', "." or "..",
// bytes as they are: whatever must be escaped on the wire is escaped here). All functions but open
// and free may be called from several threads at once. After a fork only the parent uses a store.
//
// Every operation on the network is retried with exponential back-off and full jitter where it
// may succeed later (429, 500, 502, 503, 504, a connection lost, stalled or answering nonsense);
// other 4xx answers are not. Time limits are on progress (bytes a second over a window), never on
// the whole. Errors are GW_ERR_IO (GW_ERR_UNSUPPORTED where a kind of store cannot do it,
// GW_ERR_CONFIG for URLs, profiles and credentials) and name bucket, key, status, the store's
// own code and request id.
#ifndef GW_FILE_STORE_H
#define GW_FILE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

typedef struct gw_store gw_store;

typedef enum gw_store_kind { GW_STORE_DIRECTORY, GW_STORE_S3, GW_STORE_HTTP } gw_store_kind;

/* Zero in any field means the default; NULL stands for all defaults. Text is copied. */
typedef struct gw_store_options {
    const char *profile;  /* of ~/.aws/config; default AWS_PROFILE, then "default" */
    const char *region;   /* default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1 */
    const char *endpoint; /* default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, AWS */
    bool anonymous;       /* do not sign; also AWS_NO_SIGN_REQUEST=true */
    int tries;            /* of one request, the first included; default 8 */
    double backoff_s;     /* the first wait is random in [0, this), doubled each time; 0.1 */
    double backoff_max_s; /* and at most this; 20. Retry-After is obeyed up to five times this */
    double connect_s;     /* to connect, TLS included; 10 */
    double stall_s;       /* a window in which fewer than stall_bytes move ends a try; 20 */
    int64_t stall_bytes;  /* 1024 */
    int64_t part_bytes;   /* of multipart uploads, 5 MiB to 5 GiB; 16 MiB */
    int parallel_parts;   /* uploaded at the same time, each held in memory; 4 */
    int page_keys;        /* asked for by one request of a list; 1000, which is S3's most */
} gw_store_options;

/* Does the text name a store by scheme, s3:// http:// or https:// (rather than a path)? */
bool gw_store_is_url(const char *text);

/* Opens a URL or a directory's path. Nothing is sent: credentials are looked up, the rest shows at
 * first use. A directory need not be there; it is made by the first put. */
GW_WARN_UNUSED gw_status gw_store_open(const char *url, const gw_store_options *options,
                                       gw_store **out, gw_diags *dg);
void gw_store_free(gw_store *s); /* NULL is nothing; no writer or fetch may still use it */
gw_store_kind gw_store_get_kind(const gw_store *s);
/* Without a trailing slash; lives as long as the store. */
const char *gw_store_get_url(const gw_store *s);
/* URL and key as one name for messages and caches, in `a`. */
char *gw_store_name(const gw_store *s, const char *key, gw_arena *a);

/* --- what is there ---------------------------------------------------------------------------- */

typedef struct gw_store_entry {
    const char *key; /* relative to the store, in the arena that was given */
    bool is_folder;  /* with `folders`: a common prefix that ends in '/', without size */
    int64_t bytes;
    const char
        *etag; /* as the store gives it, quotes included; of a directory "SIZE-MTIME"; or "" */
    double modified; /* seconds since 1970, 0 where not said */
    double now;      /* of gw_store_stat: what the store's own clock said then; 0 where not said */
} gw_store_entry;

typedef struct gw_store_lister gw_store_lister;

/* All objects whose key starts with `prefix` ("" for all), in the byte order of keys, page by page;
 * with `folders`, what lies behind the next '/' is one entry. Temporary names of unfinished writes
 * to a directory are left out. A store that ends its pages early is an error, never a short list.
 * GW_ERR_UNSUPPORTED on http(s). */
GW_WARN_UNUSED gw_status gw_store_list_open(gw_store *s, const char *prefix, bool folders,
                                            gw_store_lister **out, gw_diags *dg);
/* The next entry, valid until the next call; *more is false behind the last. */
GW_WARN_UNUSED gw_status gw_store_list_next(gw_store_lister *l, gw_store_entry *e, bool *more,
                                            gw_diags *dg);
void gw_store_list_close(gw_store_lister *l); /* at any time; NULL is nothing */

/* The whole list at once. */
typedef struct gw_store_list {
    gw_store_entry *entries;
    int64_t count;
} gw_store_list;
GW_WARN_UNUSED gw_status gw_store_list_all(gw_store *s, const char *prefix, bool folders,
                                           gw_arena *a, gw_store_list *out, gw_diags *dg);

/* Size and ETag of one object; that there is none is no error but *found = false. */
GW_WARN_UNUSED gw_status gw_store_stat(gw_store *s, const char *key, gw_arena *a, gw_store_entry *e,
                                       bool *found, gw_diags *dg);

/* --- reading ---------------------------------------------------------------------------------- */

/* Bytes [offset, offset + n) into `to`: all of them, or an error. A body that breaks off is resumed
 * where it stopped, on condition that the object is the same (If-Match): one that changed meanwhile
 * is an error "store-changed". `etag`, unless NULL or "", is the version that must be read. One
 * request at a time: for many or large ranges use file/fetch.h. */
GW_WARN_UNUSED gw_status gw_store_get(gw_store *s, const char *key, const char *etag,
                                      int64_t offset, int64_t n, void *to, gw_diags *dg);
/* Appends a whole object of at most max_bytes (0: no limit) to `out`. One that is not there is an
 * error with the id "store-missing". */
GW_WARN_UNUSED gw_status gw_store_read(gw_store *s, const char *key, int64_t max_bytes, gw_str *out,
                                       gw_diags *dg);

/* --- writing ---------------------------------------------------------------------------------- */

/* One object from memory, whole or not at all, replacing what was there. The store checks SHA-256
 * of what it got. In a directory: temporary name, sync, rename, directory synced. */
GW_WARN_UNUSED gw_status gw_store_put(gw_store *s, const char *key, const void *bytes, int64_t n,
                                      gw_diags *dg);
/* The same, only if there is no object of that name (If-None-Match: *; link(2) in a directory):
 * of several writers, in several processes, exactly one sees *won = true. That the name is taken is
 * no error. A retry after an answer that was lost still tells truly who won. A store that ignores
 * the condition (an object is replaced) is not noticed here; docs/object-stores.md lists those that
 * honour it. */
GW_WARN_UNUSED gw_status gw_store_put_new(gw_store *s, const char *key, const void *bytes,
                                          int64_t n, bool *won, gw_diags *dg);

/* The same, only over the version that `is` names (If-Match): the version that stands there then is
 * in now[]; *won false: there is another, or none. With is "": only if there is none. S3 alone
 * (GW_ERR_UNSUPPORTED elsewhere). Where the store does not know the condition (status 501) the
 * object is replaced. */
enum { GW_STORE_ETAG = 160 };
GW_WARN_UNUSED gw_status gw_store_put_over(gw_store *s, const char *key, const char *is,
                                           const void *bytes, int64_t n, bool *won,
                                           char now[GW_STORE_ETAG], gw_diags *dg);

/* A stream of unknown length into one object, which appears when finished and not before. On S3:
 * a single put below one part, otherwise a multipart upload of parallel parts, each with its
 * SHA-256 checked by the store; memory is part_bytes × (parallel_parts + 1). `expected_bytes` (0:
 * unknown) chooses parts that suffice (10,000 at most); without it parts grow from the 5,000th on.
 * One thread at a time per writer. */
typedef struct gw_store_writer gw_store_writer;
GW_WARN_UNUSED gw_status gw_store_write_open(gw_store *s, const char *key, int64_t expected_bytes,
                                             gw_store_writer **out, gw_diags *dg);
/* Copies `bytes`; waits while all parts are under way. An error of an earlier part may come here.
 */
GW_WARN_UNUSED gw_status gw_store_write(gw_store_writer *w, const void *bytes, int64_t n,
                                        gw_diags *dg);
/* Makes the object visible. Frees the writer in any case; after an error nothing of it is left (the
 * upload is aborted). */
GW_WARN_UNUSED gw_status gw_store_write_finish(gw_store_writer *w, gw_diags *dg);
/* Gives up: nothing of it is left. Frees the writer; NULL is nothing. */
void gw_store_write_abort(gw_store_writer *w);

/* Removes an object; that there is none is no error. */
GW_WARN_UNUSED gw_status gw_store_delete(gw_store *s, const char *key, gw_diags *dg);
/* A second object with the same bytes, made by the store itself (5 GiB at most on S3). */
GW_WARN_UNUSED gw_status gw_store_copy(gw_store *s, const char *from, const char *to, gw_diags *dg);
/* Directories only (GW_ERR_UNSUPPORTED elsewhere): atomically, replacing `to`. */
GW_WARN_UNUSED gw_status gw_store_rename(gw_store *s, const char *from, const char *to,
                                         gw_diags *dg);

/* Multipart uploads below `prefix` that were begun and neither finished nor aborted (by a killed
 * process: they cost money and show in no list), older than `older_than_s`, are aborted. In a
 * directory: temporary files. *removed counts them. */
GW_WARN_UNUSED gw_status gw_store_sweep(gw_store *s, const char *prefix, double older_than_s,
                                        int64_t *removed, gw_diags *dg);

#endif
