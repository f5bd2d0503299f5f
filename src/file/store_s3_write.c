// SPDX-License-Identifier: Apache-2.0
// A stream into one S3 object.
//
// Bytes are gathered into a part. As long as the stream fits into one part nothing is sent, and
// finish is a plain put. With the second part a multipart upload begins: full parts are handed to
// threads, which hash, send and retry them on their own, while the caller fills the next one. A
// part that fails is retried alone; what was sent of others stays. Finish waits for the parts and
// completes the upload, and that makes the object visible; before it nothing is.
//
//     caller   fill [part 3] ──full──▶ QUEUED ──▶ thread: SHA-256, PUT ?partNumber=3, ETag ──▶ FREE
//              waits only when no part is FREE (memory: parallel_parts + 1 parts)
//
// Complete may answer 200 and put an error into the body; that is retried. If an answer of Complete
// is lost and the retry says that there is no such upload, the object tells by its writer's number
// (see store_s3.c) whether it was completed.
//
// A failure, or abort, removes what was uploaded. If even that fails (no network), the upload stays
// on the store's side until gw_store_sweep or a lifecycle rule of the bucket removes it.
#include <stdlib.h>
#include <string.h>

#include "file/store_impl.h" /* gw_store_put_body, gw_store_perform */
#include "file/store_xml.h"  /* gw_s3_xml_field */

#define MAX_PARTS   10000
#define GROWS_AFTER 5000 /* parts of the first size; then twice as large every thousand */
#define GROWS_EVERY 1000

typedef enum part_state { PART_FREE, PART_FILLING, PART_QUEUED, PART_SENDING } part_state;

typedef struct part {
    part_state state;
    int number; /* from 1 */
    uint8_t *bytes;
    int64_t n, cap;
} part;

typedef struct sent_part {
    char etag[160], checksum[45];
} sent_part;

typedef struct s3_writer {
    gw_store_writer base;
    gw_store *store;
    const char *key, *upload; /* upload NULL: not begun */
    char nonce[33];
    gw_arena arena;
    int64_t part_bytes;
    bool known; /* the size was told: parts do not grow */
    part *parts;
    int nparts, filling, last_number;
    pthread_t *threads;
    int nthreads;

    pthread_mutex_t lock; /* of what follows, and of the parts' states */
    pthread_cond_t changed;
    GW_VEC(sent_part) sent; /* [number - 1] */
    bool closing, failed;
    gw_status status;
    gw_diags diags; /* of the first part that failed */
} s3_writer;

/* --- opening ---------------------------------------------------------------------------------- */

static int64_t part_bytes_for(const gw_store *s, int64_t expected) {
    int64_t n = s->options.part_bytes, least = expected / (MAX_PARTS - 1) + 1;
    return GW_MAX(n, (least + 4095) / 4096 * 4096);
}

gw_status gw_store_s3_write_open(gw_store *s, const char *key, int64_t expected,
                                 gw_store_writer **out, gw_diags *dg) {
    if (expected > INT64_C(5) << 40)
        return GW_FAIL(dg, GW_ERR_USAGE, "store-too-large",
                       "'%s' would be larger than the 5 TiB that S3 takes", key);
    s3_writer *w = gw_mem_zalloc(sizeof *w);
    w->base = (gw_store_writer){.store = s, .impl = w};
    w->store = s;
    w->key = gw_arena_strdup(&w->arena, key);
    w->part_bytes = part_bytes_for(s, expected);
    w->known = expected > 0;
    w->nparts = s->options.parallel_parts + 1;
    w->parts = gw_arena_new(&w->arena, part, w->nparts);
    w->threads = gw_arena_new(&w->arena, pthread_t, s->options.parallel_parts);
    w->filling = -1;
    gw_diags_init(&w->diags);
    gw_store_nonce(s, w->nonce);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    *out = &w->base;
    return GW_OK;
}

static void join_threads(s3_writer *w) {
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->nthreads; i++) pthread_join(w->threads[i], NULL);
    w->nthreads = 0;
}

static void writer_free(s3_writer *w) {
    join_threads(w);
    for (int i = 0; i < w->nparts; i++) gw_mem_free(w->parts[i].bytes);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    gw_vec_release(&w->sent);
    gw_diags_release(&w->diags);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

/* --- the upload ------------------------------------------------------------------------------- */

static gw_status begin_upload(s3_writer *w, gw_diags *dg) {
    gw_store *s = w->store;
    gw_store_call c = {.method = "POST", .key = w->key};
    gw_store_reply r;
    gw_store_verdict v;
    c.query[c.nquery++] = (gw_s3_pair){"uploads", ""};
    c.headers[c.nheaders++] = (gw_s3_pair){GW_STORE_WRITER_HEADER, w->nonce};
    if (!s->config.bare_checksums)
        c.headers[c.nheaders++] = (gw_s3_pair){"x-amz-checksum-algorithm", "SHA256"};
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    if (st == GW_OK && v == GW_STORE_DONE)
        w->upload = gw_s3_xml_field(gw_str_c(&r.body), r.body.len, "InitiateMultipartUploadResult",
                                    "UploadId", &w->arena);
    if (st == GW_OK && (!w->upload || !*w->upload)) {
        st = gw_store_fail(s, &c, &r, NULL, false, 1, dg);
        w->upload = NULL;
    }
    gw_store_reply_release(&r);
    return st;
}

static void abort_upload(s3_writer *w) {
    if (!w->upload) return;
    gw_store_call c = {.method = "DELETE", .key = w->key, .upload_gone = true};
    gw_store_reply r;
    gw_store_verdict v;
    c.query[c.nquery++] = (gw_s3_pair){"uploadId", w->upload};
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(w->store, &c, &r, &v, NULL);
    (void)st; /* gw_store_sweep finds it */
    gw_store_reply_release(&r);
    w->upload = NULL;
}

static gw_status send_part(s3_writer *w, const part *p, sent_part *sent, gw_diags *dg) {
    char number[16];
    gw_store_call c = {.method = "PUT", .key = w->key};
    gw_store_reply r;
    gw_store_verdict v;
    snprintf(number, sizeof number, "%d", p->number);
    c.query[c.nquery++] = (gw_s3_pair){"partNumber", number};
    c.query[c.nquery++] = (gw_s3_pair){"uploadId", w->upload};
    gw_store_reply_init(&r);
    gw_status st = gw_store_put_body(w->store, &c, p->bytes, p->n, sent->checksum, &r, &v, dg);
    if (st == GW_OK && !*r.etag)
        st = GW_FAIL(dg, GW_ERR_IO, "store-response", "part %d of '%s': the answer has no ETag",
                     p->number, w->key);
    snprintf(sent->etag, sizeof sent->etag, "%s", r.etag);
    gw_store_reply_release(&r);
    return st;
}

/* --- threads ---------------------------------------------------------------------------------- */

static part *next_queued(s3_writer *w) {
    part *first = NULL;
    for (int i = 0; i < w->nparts; i++) {
        part *p = &w->parts[i];
        if (p->state == PART_QUEUED && (!first || p->number < first->number)) first = p;
    }
    return first;
}

static void note_failure(s3_writer *w, gw_status st, gw_diags *dg) {
    if (w->failed) {
        gw_diags_release(dg);
        return;
    }
    w->failed = true;
    w->status = st;
    gw_diags_take(&w->diags, dg);
    gw_diags_release(dg);
}

static void *sender(void *user) {
    s3_writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        part *p = next_queued(w);
        if (!p && w->closing) break;
        if (!p) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        p->state = PART_SENDING;
        bool give_up = w->failed;
        pthread_mutex_unlock(&w->lock);
        sent_part sent = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_status st = give_up ? GW_OK : send_part(w, p, &sent, &dg);
        pthread_mutex_lock(&w->lock);
        if (st != GW_OK)
            note_failure(w, st, &dg);
        else
            gw_diags_release(&dg);
        w->sent.items[p->number - 1] = sent;
        p->state = PART_FREE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* One thread more, unless there are enough for what waits. Called with the lock. */
static void start_thread(s3_writer *w) {
    int waiting = 0;
    for (int i = 0; i < w->nparts; i++)
        waiting += w->parts[i].state == PART_QUEUED || w->parts[i].state == PART_SENDING;
    if (w->nthreads >= w->store->options.parallel_parts || w->nthreads >= waiting) return;
    if (pthread_create(&w->threads[w->nthreads], NULL, sender, w) == 0) w->nthreads++;
}

/* --- filling ---------------------------------------------------------------------------------- */

static gw_status passed_on(s3_writer *w, gw_diags *dg) {
    gw_status st = w->status;
    if (dg && w->diags.first)
        gw_diags_take(dg, &w->diags);
    else
        gw_diag_add(dg, GW_ERROR, st, "store-http", (gw_where){0}, "'%s' failed before", w->key);
    return st;
}

static int64_t size_of_part(const s3_writer *w, int number) {
    int64_t n = w->part_bytes;
    for (int k = number - GROWS_AFTER; k > 0 && !w->known && n < INT64_C(4) << 30; k -= GROWS_EVERY)
        n *= 2;
    return n;
}

/* Waits for a part to fill. */
static gw_status take_free(s3_writer *w, gw_diags *dg) {
    pthread_mutex_lock(&w->lock);
    gw_status st = GW_OK;
    while (w->filling < 0 && !w->failed) {
        for (int i = 0; i < w->nparts && w->filling < 0; i++)
            if (w->parts[i].state == PART_FREE) w->filling = i;
        if (w->filling < 0) pthread_cond_wait(&w->changed, &w->lock);
    }
    if (w->failed) {
        st = passed_on(w, dg);
    } else if (w->last_number == MAX_PARTS) {
        w->filling = -1;
        st = GW_FAIL(dg, GW_ERR_IO, "store-too-large",
                     "'%s' needs more than %d parts: tell its size beforehand", w->key, MAX_PARTS);
    } else {
        part *p = &w->parts[w->filling];
        p->state = PART_FILLING;
        p->number = ++w->last_number;
        p->n = 0;
    }
    pthread_mutex_unlock(&w->lock);
    if (st != GW_OK) return st;
    part *p = &w->parts[w->filling];
    int64_t cap = size_of_part(w, p->number);
    if (p->cap < cap) {
        gw_mem_free(p->bytes);
        p->bytes = gw_mem_alloc((size_t)cap);
        p->cap = cap;
    }
    return GW_OK;
}

/* Hands the part that is being filled to a thread. */
static gw_status queue_part(s3_writer *w, gw_diags *dg) {
    if (!w->upload) GW_TRY(begin_upload(w, dg));
    pthread_mutex_lock(&w->lock);
    while (w->sent.count < w->last_number) gw_vec_push(&w->sent, (sent_part){0});
    w->parts[w->filling].state = PART_QUEUED;
    w->filling = -1;
    start_thread(w);
    gw_status st = GW_OK;
    if (w->nthreads == 0)
        st = GW_FAIL(dg, GW_ERR_IO, "store-http", "cannot start a thread to send '%s'", w->key);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return st;
}

gw_status gw_store_s3_write(gw_store_writer *base, const void *bytes, int64_t n, gw_diags *dg) {
    s3_writer *w = base->impl;
    const uint8_t *p = bytes;
    while (n > 0) {
        /* A full part goes only when more follows: the last one may be any size. */
        if (w->filling >= 0 && w->parts[w->filling].n == size_of_part(w, w->last_number))
            GW_TRY(queue_part(w, dg));
        if (w->filling < 0) GW_TRY(take_free(w, dg));
        part *to = &w->parts[w->filling];
        int64_t k = GW_MIN(n, size_of_part(w, to->number) - to->n);
        memcpy(to->bytes + to->n, p, (size_t)k);
        to->n += k;
        p += k;
        n -= k;
    }
    return GW_OK;
}

/* --- finishing -------------------------------------------------------------------------------- */

static gw_status wait_parts(s3_writer *w, gw_diags *dg) {
    pthread_mutex_lock(&w->lock);
    for (bool busy = true; busy;) {
        busy = false;
        for (int i = 0; i < w->nparts; i++)
            busy |= w->parts[i].state == PART_QUEUED || w->parts[i].state == PART_SENDING;
        if (busy) pthread_cond_wait(&w->changed, &w->lock);
    }
    gw_status st = w->failed ? passed_on(w, dg) : GW_OK;
    pthread_mutex_unlock(&w->lock);
    return st;
}

static void add_parts(gw_str *out, const s3_writer *w) {
    gw_str_add(out, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (int64_t i = 0; i < w->sent.count; i++) {
        const sent_part *p = &w->sent.items[i];
        gw_str_printf(out, "<Part><PartNumber>%lld</PartNumber><ETag>", (long long)i + 1);
        for (const char *c = p->etag; *c; c++) {
            if (*c == '"')
                gw_str_add(out, "&quot;");
            else if (*c == '&')
                gw_str_add(out, "&amp;");
            else if (*c == '<')
                gw_str_add(out, "&lt;");
            else
                gw_str_add_char(out, *c);
        }
        gw_str_add(out, "</ETag>");
        if (!w->store->config.bare_checksums)
            gw_str_printf(out, "<ChecksumSHA256>%s</ChecksumSHA256>", p->checksum);
        gw_str_add(out, "</Part>");
    }
    gw_str_add(out, "</CompleteMultipartUpload>");
}

static gw_status complete(s3_writer *w, gw_diags *dg) {
    char hex[65];
    gw_str body = {0};
    gw_store_call c = {.method = "POST", .key = w->key, .body_in_200 = true, .upload_gone = true};
    gw_store_reply r;
    gw_store_verdict v;
    bool own = false;
    add_parts(&body, w);
    gw_sha256_hex(hex, body.data, body.len);
    c.query[c.nquery++] = (gw_s3_pair){"uploadId", w->upload};
    c.body = body.data;
    c.body_bytes = (int64_t)body.len;
    c.body_sha256 = hex;
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(w->store, &c, &r, &v, dg);
    if (st == GW_OK && v == GW_STORE_MISSING) {
        st = gw_store_is_own(w->store, w->key, w->nonce, &own, dg);
        if (st == GW_OK && !own) st = gw_store_fail(w->store, &c, &r, NULL, false, 1, dg);
    }
    if (st == GW_OK) w->upload = NULL;
    gw_store_reply_release(&r);
    gw_str_release(&body);
    return st;
}

gw_status gw_store_s3_write_finish(gw_store_writer *base, gw_diags *dg) {
    s3_writer *w = base->impl;
    gw_status st = GW_OK;
    if (!w->upload && !w->failed) {
        const part *p = w->filling >= 0 ? &w->parts[w->filling] : NULL;
        st = w->store->ops->put(w->store, w->key, p ? p->bytes : NULL, p ? p->n : 0, NULL, dg);
    } else {
        if (w->filling >= 0) st = queue_part(w, dg);
        gw_status parts = wait_parts(w, st == GW_OK ? dg : NULL);
        if (st == GW_OK) st = parts;
        if (st == GW_OK) st = complete(w, dg);
    }
    join_threads(w);
    if (st != GW_OK) abort_upload(w);
    writer_free(w);
    return st;
}

void gw_store_s3_write_abort(gw_store_writer *base) {
    s3_writer *w = base->impl;
    pthread_mutex_lock(&w->lock);
    w->failed = true; /* parts that wait are passed over */
    pthread_mutex_unlock(&w->lock);
    join_threads(w);
    abort_upload(w);
    writer_free(w);
}
