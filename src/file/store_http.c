// SPDX-License-Identifier: Apache-2.0
// A web server as an object store that can only be read: keys are paths below the URL. What stood
// behind '?' in the URL (a shared access signature, a token) goes with every request.
//
// A server need not know ranges: where it answers a range with the whole, what was asked for is
// taken from it. It need not give ETags either; then a body that was cut is resumed on the strength
// of its length alone.
#include "file/store_impl.h" /* gw_store_ops */

static gw_status cannot(gw_store *s, const char *what, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_UNSUPPORTED, "store-read-only", (gw_where){0},
                             "cannot %s at '%s': a web server is only read from", what, s->url);
    gw_diag_hint(dg, g, "use a directory or s3://BUCKET/PREFIX");
    return GW_ERR_UNSUPPORTED;
}

static gw_status http_list_page(gw_store *s, gw_store_lister *l, gw_diags *dg) {
    (void)l;
    return cannot(s, "list what is there", dg);
}

static gw_status http_get(gw_store *s, const char *key, const char *etag, int64_t offset, int64_t n,
                          void *to, gw_diags *dg) {
    return gw_store_get_body(s, key, etag, offset, n, to, NULL, 0, dg);
}

static gw_status http_read(gw_store *s, const char *key, int64_t max_bytes, gw_str *out,
                           gw_diags *dg) {
    return gw_store_get_body(s, key, "", 0, -1, NULL, out, max_bytes, dg);
}

static gw_status http_put(gw_store *s, const char *key, const void *bytes, int64_t n, bool *won,
                          gw_diags *dg) {
    (void)key, (void)bytes, (void)n, (void)won;
    return cannot(s, "write", dg);
}

static gw_status http_put_over(gw_store *s, const char *key, const char *is, const void *bytes,
                               int64_t n, bool *won, char *now, gw_diags *dg) {
    (void)key, (void)is, (void)bytes, (void)n, (void)won, (void)now;
    return cannot(s, "write", dg);
}

static gw_status http_write_open(gw_store *s, const char *key, int64_t expected,
                                 gw_store_writer **out, gw_diags *dg) {
    (void)key, (void)expected, (void)out;
    return cannot(s, "write", dg);
}

static gw_status http_write(gw_store_writer *w, const void *bytes, int64_t n, gw_diags *dg) {
    (void)bytes, (void)n;
    return cannot(w->store, "write", dg);
}

static gw_status http_write_finish(gw_store_writer *w, gw_diags *dg) {
    return cannot(w->store, "write", dg);
}

static void http_write_abort(gw_store_writer *w) { (void)w; }

static gw_status http_delete(gw_store *s, const char *key, gw_diags *dg) {
    (void)key;
    return cannot(s, "remove", dg);
}

static gw_status http_copy(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    (void)from, (void)to;
    return cannot(s, "copy", dg);
}

static gw_status http_rename(gw_store *s, const char *from, const char *to, gw_diags *dg) {
    (void)from, (void)to;
    return cannot(s, "rename", dg);
}

static gw_status http_sweep(gw_store *s, const char *prefix, double older_than_s, int64_t *removed,
                            gw_diags *dg) {
    (void)prefix, (void)older_than_s, (void)removed;
    return cannot(s, "clean up", dg);
}

const gw_store_ops gw_store_http_ops = {
    .list_page = http_list_page,
    .stat = gw_store_remote_stat,
    .get = http_get,
    .read = http_read,
    .put = http_put,
    .put_over = http_put_over,
    .write_open = http_write_open,
    .write = http_write,
    .write_finish = http_write_finish,
    .write_abort = http_write_abort,
    .delete = http_delete,
    .copy = http_copy,
    .rename = http_rename,
    .sweep = http_sweep,
};
