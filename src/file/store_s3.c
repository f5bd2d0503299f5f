// SPDX-License-Identifier: Apache-2.0
// S3: lists, single puts, conditional puts, copies.
//
// Every put carries the SHA-256 of its bytes twice: as the signed hash of the body, which every
// store checks, and as x-amz-checksum-sha256, which AWS keeps with the object (left out where
// AWS_REQUEST_CHECKSUM_CALCULATION=when_required says that the store does not know it). Where the
// answer repeats the checksum it must be the same.
//
// A conditional put (If-None-Match: *) is how a checkpoint commits, so who won must be known
// exactly, even when an answer was lost and the put repeated (libcurl does so by itself on a
// connection that was closed meanwhile). Each such put carries a random number as metadata. If it
// is told that the name is taken, it looks at the object: its own number means that an earlier try
// was the one that won. The same holds for a put over a known version (If-Match), by which the
// owner of a place of checkpoints says that it lives.
#include <string.h>

#include "base/clock.h"      /* gw_clock_wall */
#include "file/store_impl.h" /* gw_store_call, gw_store_perform */
#include "file/store_xml.h"  /* gw_s3_xml_list */

static gw_status bad_answer(gw_store *s, const char *what, const char *why, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "store-response", (gw_where){0},
                             "cannot %s '%s': the answer cannot be read: %s", what, s->url, why);
    gw_diag_hint(dg, g,
                 "the server, or a proxy before it, does not speak S3: look at the endpoint");
    return GW_ERR_IO;
}

/* --- lists ------------------------------------------------------------------------------------ */

static gw_status take_page(gw_store *s, gw_store_lister *l, const gw_str *text, gw_diags *dg) {
    gw_s3_page page;
    const char *why;
    size_t root = strlen(s->prefix);
    if (!gw_s3_xml_list(gw_str_c(text), text->len, &l->page, &page, &why))
        return bad_answer(s, "list", why, dg);
    if (page.truncated && l->token && strcmp(l->token, page.token) == 0)
        return bad_answer(s, "list", "the next page is the same page", dg);
    for (int64_t i = 0; i < page.count; i++) {
        const gw_s3_object *o = &page.objects[i];
        if (strncmp(o->key, s->prefix, root) != 0)
            return bad_answer(s, "list", "a key outside of the prefix", dg);
        if (o->key[root] == 0) continue; /* a marker that stands for the folder itself */
        gw_store_entry e = {.key = o->key + root,
                            .is_folder = o->is_folder,
                            .bytes = o->bytes,
                            .etag = o->etag,
                            .modified = o->modified};
        gw_vec_push(&l->entries, e);
    }
    l->last_page = !page.truncated;
    l->token = page.truncated ? gw_arena_strdup(&l->fixed, page.token) : NULL;
    return GW_OK;
}

static gw_status s3_list_page(gw_store *s, gw_store_lister *l, gw_diags *dg) {
    gw_arena a = {0};
    gw_store_call c = {.method = "GET"};
    gw_store_reply r;
    gw_store_verdict v;
    c.query[c.nquery++] = (gw_s3_pair){"list-type", "2"};
    c.query[c.nquery++] = (gw_s3_pair){"encoding-type", "url"};
    c.query[c.nquery++] = (gw_s3_pair){"max-keys", gw_arena_printf(&a, "%d", s->options.page_keys)};
    c.query[c.nquery++] = (gw_s3_pair){"prefix", gw_arena_printf(&a, "%s%s", s->prefix, l->prefix)};
    if (l->folders) c.query[c.nquery++] = (gw_s3_pair){"delimiter", "/"};
    if (l->token) c.query[c.nquery++] = (gw_s3_pair){"continuation-token", l->token};
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    if (st == GW_OK) st = take_page(s, l, &r.body, dg);
    gw_store_reply_release(&r);
    gw_arena_release(&a);
    return st;
}

/* --- reading ---------------------------------------------------------------------------------- */

static gw_status s3_get(gw_store *s, const char *key, const char *etag, int64_t offset, int64_t n,
                        void *to, gw_diags *dg) {
    return gw_store_get_body(s, key, etag, offset, n, to, NULL, 0, dg);
}

static gw_status s3_read(gw_store *s, const char *key, int64_t max_bytes, gw_str *out,
                         gw_diags *dg) {
    return gw_store_get_body(s, key, "", 0, -1, NULL, out, max_bytes, dg);
}

/* --- puts ------------------------------------------------------------------------------------- */

static gw_status compare_checksum(gw_store *s, const gw_store_call *c, const gw_store_reply *r,
                                  const char *sum, gw_diags *dg) {
    /* That of a multipart object is a hash of hashes, "...-N". */
    if (!*r->checksum || strchr(r->checksum, '-') || strcmp(r->checksum, sum) == 0) return GW_OK;
    gw_arena a = {0};
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "store-checksum", (gw_where){0},
                             "'%s' was stored with other bytes than were sent",
                             gw_store_name(s, c->key, &a));
    gw_diag_detail(dg, g, "SHA-256 sent %s, stored %s", sum, r->checksum);
    gw_diag_hint(dg, g, "write it again; if it happens again, look at memory and proxies");
    gw_arena_release(&a);
    return GW_ERR_IO;
}

gw_status gw_store_put_body(gw_store *s, gw_store_call *c, const void *bytes, int64_t n,
                            char checksum[45], gw_store_reply *r, gw_store_verdict *verdict,
                            gw_diags *dg) {
    uint8_t digest[32];
    char hex[65];
    gw_sha256(digest, bytes, (size_t)n);
    gw_hex(hex, digest, sizeof digest);
    gw_sha256_base64(checksum, digest);
    c->body = bytes;
    c->body_bytes = n;
    c->body_sha256 = hex;
    if (!s->config.bare_checksums)
        c->headers[c->nheaders++] = (gw_s3_pair){"x-amz-checksum-sha256", checksum};
    GW_TRY(gw_store_perform(s, c, r, verdict, dg));
    if (*verdict == GW_STORE_MISSING) return gw_store_fail(s, c, r, NULL, false, 1, dg);
    return *verdict == GW_STORE_DONE ? compare_checksum(s, c, r, checksum, dg) : GW_OK;
}

/* --- who wrote it ----------------------------------------------------------------------------- */

void gw_store_nonce(gw_store *s, char nonce[33]) {
    unsigned long long a = gw_store_draw(s), b = gw_store_draw(s);
    snprintf(nonce, 33, "%016llx%016llx", a, b);
}

/* Does the object carry our number? */
static gw_status look_own(gw_store *s, const char *key, const char *nonce, bool *own,
                          gw_store_reply *r, gw_diags *dg) {
    gw_store_call c = {.method = "HEAD", .key = key};
    gw_store_verdict v;
    gw_status st = gw_store_perform(s, &c, r, &v, dg);
    *own = st == GW_OK && v == GW_STORE_DONE && strcmp(r->writer, nonce) == 0;
    return st;
}

gw_status gw_store_is_own(gw_store *s, const char *key, const char *nonce, bool *own,
                          gw_diags *dg) {
    gw_store_reply r;
    gw_store_reply_init(&r);
    gw_status st = look_own(s, key, nonce, own, &r, dg);
    gw_store_reply_release(&r);
    return st;
}

/* is NULL: whatever is there is replaced; "": there must be none; else the version that must be.
 * An answer that was lost is made up for: r then is of another look at the object. */
static gw_status put_if(gw_store *s, const char *key, const char *is, const void *bytes, int64_t n,
                        bool *won, gw_store_reply *r, gw_diags *dg) {
    char nonce[33], sum[45];
    gw_store_call c = {.method = "PUT", .key = key, .conditional = is != NULL};
    gw_store_verdict v;
    gw_store_nonce(s, nonce);
    if (is && !*is) c.headers[c.nheaders++] = (gw_s3_pair){"If-None-Match", "*"};
    if (is && *is) c.headers[c.nheaders++] = (gw_s3_pair){"If-Match", is};
    c.headers[c.nheaders++] = (gw_s3_pair){GW_STORE_WRITER_HEADER, nonce};
    GW_TRY(gw_store_put_body(s, &c, bytes, n, sum, r, &v, dg));
    *won = v == GW_STORE_DONE;
    return v == GW_STORE_TAKEN ? look_own(s, key, nonce, won, r, dg) : GW_OK;
}

static gw_status put_new(gw_store *s, const char *key, const void *bytes, int64_t n, bool *won,
                         gw_diags *dg) {
    gw_store_reply r;
    gw_store_reply_init(&r);
    gw_status st = put_if(s, key, "", bytes, n, won, &r, dg);
    gw_store_reply_release(&r);
    return st;
}

static gw_status s3_put_over(gw_store *s, const char *key, const char *is, const void *bytes,
                             int64_t n, bool *won, char *now, gw_diags *dg) {
    gw_store_reply r;
    gw_diags first;
    gw_diags_init(&first);
    gw_store_reply_init(&r);
    gw_status st = put_if(s, key, is, bytes, n, won, &r, &first);
    bool gone = r.status == 404 && strcmp(r.code, "NoSuchBucket") != 0;
    if (st != GW_OK && *is && gone) { /* it was removed: nothing was put */
        st = GW_OK;
        *won = false;
    } else if (st != GW_OK && r.status == 501) { /* the condition is not known there */
        gw_diags_clear(&first);
        gw_store_reply_release(&r);
        st = put_if(s, key, NULL, bytes, n, won, &r, &first);
    }
    if (st == GW_OK && *won) snprintf(now, GW_STORE_ETAG, "%s", r.etag);
    if (st != GW_OK && dg) gw_diags_take(dg, &first);
    gw_diags_release(&first);
    gw_store_reply_release(&r);
    return st;
}

static gw_status s3_put(gw_store *s, const char *key, const void *bytes, int64_t n, bool *won,
                        gw_diags *dg) {
    if (won) return put_new(s, key, bytes, n, won, dg);
    char sum[45];
    gw_store_call c = {.method = "PUT", .key = key};
    gw_store_reply r;
    gw_store_verdict v;
    gw_store_reply_init(&r);
    gw_status st = gw_store_put_body(s, &c, bytes, n, sum, &r, &v, dg);
    gw_store_reply_release(&r);
    return st;
}

/* --- the rest --------------------------------------------------------------------------------- */

static gw_status s3_delete(gw_store *s, const char *key, gw_diags *dg) {
    gw_store_call c = {.method = "DELETE", .key = key};
    gw_store_reply r;
    gw_store_verdict v;
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    gw_store_reply_release(&r);
    return st;
}

static gw_status s3_copy(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    gw_str source = {0}, path = {0};
    gw_store_call c = {.method = "PUT", .key = to, .body_in_200 = true};
    gw_store_reply r;
    gw_store_verdict v;
    gw_str_printf(&path, "/%s/%s%s", s->bucket, s->prefix, from);
    gw_s3_escape(&source, path.data, path.len, true);
    c.headers[c.nheaders++] = (gw_s3_pair){"x-amz-copy-source", source.data};
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    if (st == GW_OK && v == GW_STORE_MISSING) {
        gw_store_call read = {.method = "GET", .key = from};
        st = gw_store_fail(s, &read, &r, NULL, false, 1, dg);
    }
    gw_store_reply_release(&r);
    gw_str_release(&path);
    gw_str_release(&source);
    return st;
}

static gw_status s3_rename(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    (void)from, (void)to;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_UNSUPPORTED, "store-no-rename", (gw_where){0},
                             "cannot rename in '%s': S3 has no such thing", s->url);
    gw_diag_hint(dg, g, "copy, then delete; or write under the final name from the start");
    return GW_ERR_UNSUPPORTED;
}

/* --- unfinished uploads ----------------------------------------------------------------------- */

static gw_status abort_upload(gw_store *s, const gw_s3_upload *u, gw_diags *dg) {
    gw_store_call c = {.method = "DELETE", .key = u->key + strlen(s->prefix)};
    gw_store_reply r;
    gw_store_verdict v;
    c.query[c.nquery++] = (gw_s3_pair){"uploadId", u->id};
    c.upload_gone = true;
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    gw_store_reply_release(&r);
    return st;
}

static gw_status sweep_page(gw_store *s, const char *prefix, double before, gw_s3_uploads *page,
                            gw_arena *a, int64_t *removed, gw_diags *dg) {
    gw_store_call c = {.method = "GET"};
    gw_store_reply r;
    gw_store_verdict v;
    const char *why;
    const char *whole = gw_arena_printf(a, "%s%s", s->prefix, prefix);
    c.query[c.nquery++] = (gw_s3_pair){"uploads", ""};
    c.query[c.nquery++] = (gw_s3_pair){"encoding-type", "url"};
    c.query[c.nquery++] = (gw_s3_pair){"prefix", whole};
    if (page->truncated) {
        c.query[c.nquery++] = (gw_s3_pair){"key-marker", page->key_marker};
        c.query[c.nquery++] = (gw_s3_pair){"upload-id-marker", page->id_marker};
    }
    gw_store_reply_init(&r);
    gw_status st = gw_store_perform(s, &c, &r, &v, dg);
    if (st == GW_OK && !gw_s3_xml_uploads(gw_str_c(&r.body), r.body.len, a, page, &why))
        st = bad_answer(s, "list the uploads of", why, dg);
    for (int64_t i = 0; st == GW_OK && i < page->count; i++) {
        const gw_s3_upload *u = &page->uploads[i];
        /* Some stores do not filter. */
        if (!gw_str_starts(u->key, whole) || u->begun > before) continue;
        st = abort_upload(s, u, dg);
        if (st == GW_OK) ++*removed;
    }
    gw_store_reply_release(&r);
    return st;
}

static gw_status s3_sweep(gw_store *s, const char *prefix, double older_than_s, int64_t *removed,
                          gw_diags *dg) {
    gw_arena a = {0};
    gw_s3_uploads page = {0};
    double before = gw_clock_wall() - older_than_s;
    gw_status st;
    do {
        const char *last = page.key_marker, *last_id = page.id_marker;
        st = sweep_page(s, prefix, before, &page, &a, removed, dg);
        if (st == GW_OK && page.truncated && last && strcmp(last, page.key_marker) == 0 &&
            strcmp(last_id, page.id_marker) == 0)
            st = bad_answer(s, "list the uploads of", "the next page is the same page", dg);
    } while (st == GW_OK && page.truncated);
    gw_arena_release(&a);
    return st;
}

const gw_store_ops gw_store_s3_ops = {
    .list_page = s3_list_page,
    .stat = gw_store_remote_stat,
    .get = s3_get,
    .read = s3_read,
    .put = s3_put,
    .put_over = s3_put_over,
    .write_open = gw_store_s3_write_open,
    .write = gw_store_s3_write,
    .write_finish = gw_store_s3_write_finish,
    .write_abort = gw_store_s3_write_abort,
    .delete = s3_delete,
    .copy = s3_copy,
    .rename = s3_rename,
    .sweep = s3_sweep,
};
