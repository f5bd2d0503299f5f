// SPDX-License-Identifier: Apache-2.0
// Object stores: opening, and what is the same for all kinds.
//
// A store is a table of operations (directory, S3, HTTP) and what they need. This file takes URLs
// apart, fills in defaults, checks keys, and passes on. What is checked here holds below: keys are
// not empty, hold no control characters, no "." and ".." and do not begin with '/', so that the
// same key means the same thing on every kind of store and no key leaves the store's root.
//
// An S3 URL becomes the address of requests in one of two styles. Without an endpoint of the user's
// it is the bucket as a host name of AWS ("virtual host"), unless the bucket's name cannot be one
// (upper case, '_', or '.', which TLS certificates do not cover). With an endpoint it is the path
// style, as the AWS tools do; the profile's `addressing_style` decides otherwise.
#include "file/store.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "base/io.h"         /* gw_path_exists */
#include "base/rng.h"        /* gw_rng_u64 */
#include "file/store_impl.h" /* gw_store, gw_store_ops */

bool gw_store_is_url(const char *text) {
    return gw_str_starts(text, "s3://") || gw_str_starts(text, "http://") ||
           gw_str_starts(text, "https://");
}

/* --- opening ---------------------------------------------------------------------------------- */

static double or_default(double v, double def) { return v > 0 ? v : def; }

static const char *dup_or_null(gw_arena *a, const char *text) {
    return text ? gw_arena_strdup(a, text) : NULL;
}

static void fill_options(gw_store *s, const gw_store_options *given) {
    gw_store_options o = given ? *given : (gw_store_options){0};
    o.profile = dup_or_null(&s->arena, o.profile);
    o.region = dup_or_null(&s->arena, o.region);
    o.endpoint = dup_or_null(&s->arena, o.endpoint);
    o.tries = o.tries > 0 ? o.tries : 8;
    o.backoff_s = or_default(o.backoff_s, 0.1);
    o.backoff_max_s = or_default(o.backoff_max_s, 20);
    o.connect_s = or_default(o.connect_s, 10);
    o.stall_s = or_default(o.stall_s, 20);
    if (o.stall_bytes <= 0) o.stall_bytes = 1024;
    if (o.part_bytes <= 0) o.part_bytes = INT64_C(16) << 20;
    o.part_bytes = GW_MAX(o.part_bytes, INT64_C(5) << 20);
    o.part_bytes = GW_MIN(o.part_bytes, INT64_C(5) << 30);
    if (o.parallel_parts <= 0) o.parallel_parts = 4;
    o.parallel_parts = GW_MIN(o.parallel_parts, 64);
    o.page_keys = o.page_keys > 0 ? GW_MIN(o.page_keys, 1000) : 1000;
    s->options = o;
}

static gw_status bad_url(const char *url, const char *why, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "store-url", (gw_where){0},
                             "'%s' is no store's URL: %s", url, why);
    gw_diag_hint(dg, g, "s3://BUCKET/PREFIX, https://HOST/PATH, or a directory's path");
    return GW_ERR_CONFIG;
}

static char *without_slashes(gw_arena *a, const char *text, size_t n) {
    while (n > 0 && text[n - 1] == '/') n--;
    return gw_arena_strndup(a, text, n);
}

static bool has_control(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

static gw_status open_directory(gw_store *s, const char *path, gw_diags *dg) {
    if (!*path) return bad_url(path, "it is empty", dg);
    s->kind = GW_STORE_DIRECTORY;
    s->ops = &gw_store_directory_ops;
    s->root = strcmp(path, "/") == 0 ? "/" : without_slashes(&s->arena, path, strlen(path));
    if (!*s->root) s->root = "/";
    s->url = s->root;
    return GW_OK;
}

/* May the bucket stand in a host name below an endpoint that TLS certificates cover? */
static bool is_host_label(const char *bucket) {
    size_t n = strlen(bucket);
    if (n < 3 || n > 63) return false;
    for (const char *p = bucket; *p; p++)
        if (!(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '-')) return false;
    return bucket[0] != '-' && bucket[n - 1] != '-';
}

static gw_status check_bucket(const char *url, const char *bucket, gw_diags *dg) {
    size_t n = strlen(bucket);
    if (n == 0) return bad_url(url, "it names no bucket", dg);
    for (const char *p = bucket; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-._", *p))
            return bad_url(url, "a bucket's name has only letters, digits, '-', '.' and '_'", dg);
    return n > 255 ? bad_url(url, "the bucket's name is too long", dg) : GW_OK;
}

/* curl names no default port in the Host header, which is signed. */
static const char *without_default_port(gw_arena *a, const char *scheme, const char *host) {
    const char *port = strcmp(scheme, "https://") == 0 ? ":443" : ":80";
    if (!gw_str_ends(host, port)) return host;
    return gw_arena_strndup(a, host, strlen(host) - strlen(port));
}

/* base, host and path of requests; also when the region turns out to be another one. */
static void address_s3(gw_store *s) {
    gw_arena *a = &s->arena;
    bool virtual = s->config.force_virtual ||
                   (!s->endpoint && !s->config.force_path && is_host_label(s->bucket));
    const char *scheme = "https://";
    const char *host;
    if (s->endpoint) {
        const char *at = strstr(s->endpoint, "://") + 3;
        scheme = gw_arena_strndup(a, s->endpoint, (size_t)(at - s->endpoint));
        host = without_default_port(a, scheme, at);
    } else {
        host = gw_arena_printf(a, "s3.%s.amazonaws.com%s", s->region,
                               gw_str_starts(s->region, "cn-") ? ".cn" : "");
    }
    s->host = virtual ? gw_arena_printf(a, "%s.%s", s->bucket, host) : host;
    s->path = virtual ? "" : gw_arena_printf(a, "/%s", s->bucket);
    s->base = gw_arena_printf(a, "%s%s", scheme, s->host);
}

void gw_store_learn_region(gw_store *s, const char *region) {
    pthread_mutex_lock(&s->lock);
    snprintf(s->region, sizeof s->region, "%s", region);
    address_s3(s);
    pthread_mutex_unlock(&s->lock);
}

static gw_status open_s3(gw_store *s, const char *url, gw_diags *dg) {
    gw_arena *a = &s->arena;
    const char *rest = url + strlen("s3://"), *slash = strchr(rest, '/');
    s->kind = GW_STORE_S3;
    s->ops = &gw_store_s3_ops;
    s->bucket =
        slash ? gw_arena_strndup(a, rest, (size_t)(slash - rest)) : gw_arena_strdup(a, rest);
    GW_TRY(check_bucket(url, s->bucket, dg));
    const char *prefix = slash ? without_slashes(a, slash + 1, strlen(slash + 1)) : "";
    if (*prefix == '/') return bad_url(url, "two slashes follow the bucket", dg);
    s->prefix = *prefix ? gw_arena_printf(a, "%s/", prefix) : "";
    s->url = gw_arena_printf(a, "s3://%s%s%s", s->bucket, *prefix ? "/" : "", prefix);
    GW_TRY(gw_store_config_find(&s->options, a, &s->config, dg));
    snprintf(s->region, sizeof s->region, "%s", s->config.region);
    if (s->config.endpoint) {
        const char *e = without_slashes(a, s->config.endpoint, strlen(s->config.endpoint));
        if (!gw_str_starts(e, "http://") && !gw_str_starts(e, "https://"))
            return bad_url(e, "an endpoint begins with http:// or https://", dg);
        if (strchr(strstr(e, "://") + 3, '/'))
            return bad_url(e, "an endpoint has no path behind the host", dg);
        s->endpoint = e;
    }
    address_s3(s);
    return GW_OK;
}

static const char *unescaped(gw_arena *a, const char *text, size_t n) {
    int length = 0;
    char *plain = curl_easy_unescape(NULL, text, (int)n, &length);
    const char *copy = plain ? gw_arena_strndup(a, plain, (size_t)length) : "";
    curl_free(plain);
    return copy;
}

/* "name:password" of a URL, which no message shows. */
static void read_user(gw_store *s, const char *text, size_t n) {
    const char *colon = memchr(text, ':', n);
    size_t name = colon ? (size_t)(colon - text) : n;
    s->user = unescaped(&s->arena, text, name);
    if (colon) s->password = unescaped(&s->arena, colon + 1, n - name - 1);
}

static gw_status open_http(gw_store *s, const char *url, gw_diags *dg) {
    gw_arena *a = &s->arena;
    s->kind = GW_STORE_HTTP;
    s->ops = &gw_store_http_ops;
    const char *host = strstr(url, "://") + 3, *query = strchr(host, '?');
    size_t n = strcspn(url, "?#"), authority = strcspn(host, "/?#");
    if (query) s->query = gw_arena_strndup(a, query + 1, strcspn(query + 1, "#"));
    const char *at = memchr(host, '@', authority);
    const char *scheme = gw_arena_strndup(a, url, (size_t)(host - url));
    if (at) read_user(s, host, (size_t)(at - host));
    const char *rest = at ? at + 1 : host;
    if (authority == (size_t)(rest - host)) return bad_url(scheme, "it names no host", dg);
    s->base = without_slashes(a, gw_arena_printf(a, "%s%.*s", scheme, (int)(url + n - rest), rest),
                              strlen(scheme) + (size_t)(url + n - rest));
    s->url = s->base;
    return GW_OK;
}

gw_status gw_store_open(const char *url, const gw_store_options *options, gw_store **out,
                        gw_diags *dg) {
    *out = NULL;
    gw_store *s = gw_mem_zalloc(sizeof *s);
    gw_arena_init(&s->arena);
    pthread_mutex_init(&s->lock, NULL);
    fill_options(s, options);
    gw_status st;
    if (has_control(url))
        st = bad_url(url, "it holds control characters", dg);
    else if (gw_str_starts(url, "s3://"))
        st = open_s3(s, url, dg);
    else if (gw_store_is_url(url))
        st = open_http(s, url, dg);
    else if (strstr(url, "://") && !gw_path_exists(url))
        st = bad_url(url, "its scheme is not one of s3, http, https", dg);
    else
        st = open_directory(s, url, dg);
    if (st == GW_OK && s->kind != GW_STORE_DIRECTORY) gw_store_global();
    if (st != GW_OK) {
        gw_store_free(s);
        return st;
    }
    *out = s;
    return GW_OK;
}

void gw_store_free(gw_store *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->idle.count; i++) curl_easy_cleanup(s->idle.items[i]);
    gw_vec_release(&s->idle);
    for (int64_t i = 0; i < s->idle_multis.count; i++) curl_multi_cleanup(s->idle_multis.items[i]);
    gw_vec_release(&s->idle_multis);
    pthread_mutex_destroy(&s->lock);
    gw_arena_release(&s->arena);
    gw_mem_free(s);
}

gw_store_kind gw_store_get_kind(const gw_store *s) { return s->kind; }
const char *gw_store_get_url(const gw_store *s) { return s->url; }

char *gw_store_name(const gw_store *s, const char *key, gw_arena *a) {
    bool slash = strcmp(s->url, "/") == 0 || !key || !*key;
    return gw_arena_printf(a, "%s%s%s", s->url, slash ? "" : "/", key ? key : "");
}

uint64_t gw_store_draw(gw_store *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->draws++;
    pthread_mutex_unlock(&s->lock);
    gw_rng_key key = gw_rng_key_named((uint64_t)gw_clock_ns(), "store");
    key = gw_rng_key_fold(key, (uint64_t)getpid());
    return gw_rng_u64(gw_rng_key_fold(key, (uint64_t)(uintptr_t)s), n);
}

/* --- keys ------------------------------------------------------------------------------------- */

static const char *key_fault(const gw_store *s, const char *key) {
    size_t n = strlen(key);
    if (n == 0) return "it is empty";
    if (n > 1024) return "it is longer than 1024 bytes";
    if (key[0] == '/') return "it begins with '/'";
    if (has_control(key)) return "it holds control characters";
    for (const char *p = key; p;) {
        size_t part = strcspn(p, "/");
        if (part == 1 && p[0] == '.') return "'.' is no part of a key";
        if (part == 2 && p[0] == '.' && p[1] == '.') return "'..' is no part of a key";
        if (part == 0 && s->kind == GW_STORE_DIRECTORY) return "a part of it is empty";
        p = p[part] ? p + part + 1 : NULL;
    }
    return NULL;
}

static gw_status check_key(const gw_store *s, const char *key, gw_diags *dg) {
    const char *why = key_fault(s, key);
    if (!why) return GW_OK;
    return GW_FAIL(dg, GW_ERR_USAGE, "store-key", "'%s' cannot be a key in %s: %s", key, s->url,
                   why);
}

/* --- the operations --------------------------------------------------------------------------- */

gw_status gw_store_list_open(gw_store *s, const char *prefix, bool folders, gw_store_lister **out,
                             gw_diags *dg) {
    *out = NULL;
    if (*prefix) {
        size_t n = strlen(prefix);
        gw_arena a = {0};
        char *whole = gw_arena_strndup(&a, prefix, prefix[n - 1] == '/' ? n - 1 : n);
        gw_status st = check_key(s, whole, dg);
        gw_arena_release(&a);
        if (st != GW_OK) return st;
    }
    gw_store_lister *l = gw_mem_zalloc(sizeof *l);
    l->store = s;
    l->folders = folders;
    l->prefix = gw_arena_strdup(&l->fixed, prefix);
    gw_status st = s->ops->list_page(s, l, dg);
    if (st == GW_OK)
        *out = l;
    else
        gw_store_list_close(l);
    return st;
}

gw_status gw_store_list_next(gw_store_lister *l, gw_store_entry *e, bool *more, gw_diags *dg) {
    while (l->next == l->entries.count && !l->last_page) {
        gw_arena_release(&l->page);
        l->entries.count = l->next = 0;
        GW_TRY(l->store->ops->list_page(l->store, l, dg));
    }
    *more = l->next < l->entries.count;
    if (*more) *e = l->entries.items[l->next++];
    return GW_OK;
}

void gw_store_list_close(gw_store_lister *l) {
    if (!l) return;
    gw_vec_release(&l->entries);
    gw_arena_release(&l->page);
    gw_arena_release(&l->fixed);
    gw_mem_free(l);
}

static int by_key(const void *pa, const void *pb) {
    const gw_store_entry *a = pa, *b = pb;
    return strcmp(a->key, b->key);
}

gw_status gw_store_list_all(gw_store *s, const char *prefix, bool folders, gw_arena *a,
                            gw_store_list *out, gw_diags *dg) {
    gw_store_lister *l;
    GW_VEC(gw_store_entry) all = {0};
    bool more = true;
    *out = (gw_store_list){0};
    GW_TRY(gw_store_list_open(s, prefix, folders, &l, dg));
    gw_status st = GW_OK;
    while (st == GW_OK && more) {
        gw_store_entry e;
        st = gw_store_list_next(l, &e, &more, dg);
        if (st != GW_OK || !more) break;
        e.key = gw_arena_strdup(a, e.key);
        e.etag = gw_arena_strdup(a, e.etag);
        gw_vec_push(&all, e);
    }
    if (st == GW_OK && all.count > 0) {
        qsort(all.items, (size_t)all.count, sizeof *all.items, by_key);
        out->entries = gw_arena_dup(a, all.items, (int64_t)sizeof *all.items * all.count);
        out->count = all.count;
    }
    gw_vec_release(&all);
    gw_store_list_close(l);
    return st;
}

gw_status gw_store_stat(gw_store *s, const char *key, gw_arena *a, gw_store_entry *e, bool *found,
                        gw_diags *dg) {
    *found = false;
    GW_TRY(check_key(s, key, dg));
    return s->ops->stat(s, key, a, e, found, dg);
}

gw_status gw_store_get(gw_store *s, const char *key, const char *etag, int64_t offset, int64_t n,
                       void *to, gw_diags *dg) {
    GW_TRY(check_key(s, key, dg));
    if (offset < 0 || n < 0 || offset > INT64_MAX - n)
        return GW_FAIL(dg, GW_ERR_USAGE, "store-key", "%lld bytes at %lld of '%s' are no range",
                       (long long)n, (long long)offset, key);
    if (n == 0) return GW_OK;
    return s->ops->get(s, key, etag ? etag : "", offset, n, to, dg);
}

gw_status gw_store_read(gw_store *s, const char *key, int64_t max_bytes, gw_str *out,
                        gw_diags *dg) {
    GW_TRY(check_key(s, key, dg));
    return s->ops->read(s, key, max_bytes, out, dg);
}

gw_status gw_store_put(gw_store *s, const char *key, const void *bytes, int64_t n, gw_diags *dg) {
    GW_TRY(check_key(s, key, dg));
    return s->ops->put(s, key, bytes, n, NULL, dg);
}

gw_status gw_store_put_new(gw_store *s, const char *key, const void *bytes, int64_t n, bool *won,
                           gw_diags *dg) {
    *won = false;
    GW_TRY(check_key(s, key, dg));
    return s->ops->put(s, key, bytes, n, won, dg);
}

gw_status gw_store_put_over(gw_store *s, const char *key, const char *is, const void *bytes,
                            int64_t n, bool *won, char now[GW_STORE_ETAG], gw_diags *dg) {
    *won = false;
    *now = 0;
    GW_TRY(check_key(s, key, dg));
    return s->ops->put_over(s, key, is, bytes, n, won, now, dg);
}

gw_status gw_store_write_open(gw_store *s, const char *key, int64_t expected_bytes,
                              gw_store_writer **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(check_key(s, key, dg));
    return s->ops->write_open(s, key, expected_bytes, out, dg);
}

gw_status gw_store_write(gw_store_writer *w, const void *bytes, int64_t n, gw_diags *dg) {
    return n > 0 ? w->store->ops->write(w, bytes, n, dg) : GW_OK;
}

gw_status gw_store_write_finish(gw_store_writer *w, gw_diags *dg) {
    return w->store->ops->write_finish(w, dg);
}

void gw_store_write_abort(gw_store_writer *w) {
    if (w) w->store->ops->write_abort(w);
}

gw_status gw_store_delete(gw_store *s, const char *key, gw_diags *dg) {
    GW_TRY(check_key(s, key, dg));
    return s->ops->delete (s, key, dg);
}

gw_status gw_store_copy(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    GW_TRY(check_key(s, from, dg));
    GW_TRY(check_key(s, to, dg));
    return s->ops->copy(s, from, to, dg);
}

gw_status gw_store_rename(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    GW_TRY(check_key(s, from, dg));
    GW_TRY(check_key(s, to, dg));
    return s->ops->rename(s, from, to, dg);
}

gw_status gw_store_sweep(gw_store *s, const char *prefix, double older_than_s, int64_t *removed,
                         gw_diags *dg) {
    *removed = 0;
    return s->ops->sweep(s, prefix, older_than_s, removed, dg);
}
