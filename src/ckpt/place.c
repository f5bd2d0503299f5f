// SPDX-License-Identifier: Apache-2.0
// Places: which kind a path stands in, and the calls passed on to it.
//
// The kinds are asked in turn whether a path is theirs; the last takes every path. That is all
// there is to choose: no caller knows what kind it speaks to. Another scheme than theirs is no
// directory.
#include "ckpt/place.h"

#include "base/panic.h" /* gw_panic */
#include "file/store.h" /* gw_store_is_url */

static const gw_place_type *const kinds[] = {&gw_place_s3, &gw_place_dir};

gw_status gw_place_open(gw_place *p, const char *path, gw_diags *dg) {
    *p = (gw_place){0};
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        if (!kinds[i]->takes(path)) continue;
        if (kinds[i] == &gw_place_dir && gw_store_is_url(path))
            return GW_FAIL(
                dg, GW_ERR_USAGE, "usage",
                "'%s' is no place for checkpoints: a directory is, or s3://BUCKET/PREFIX", path);
        gw_status st = kinds[i]->open(path, &p->state, dg);
        if (st == GW_OK) p->type = kinds[i];
        return st;
    }
    gw_panic("no kind of place takes '%s'", path);
}

void gw_place_close(gw_place *p) {
    if (p->type) p->type->close(p->state);
    *p = (gw_place){0};
}

gw_status gw_place_look(const gw_place *p, const char *path, gw_place_entry *out, gw_diags *dg) {
    *out = (gw_place_entry){0};
    return p->type->look(p->state, path, out, dg);
}

bool gw_place_has(const gw_place *p, const char *path) {
    gw_place_entry e;
    return gw_place_look(p, path, &e, NULL) == GW_OK && e.kind == GW_PLACE_FILE;
}

gw_status gw_place_list_of(const gw_place *p, const char *folder, gw_arena *a, gw_place_list *out,
                           gw_diags *dg) {
    *out = (gw_place_list){0};
    return p->type->list(p->state, folder, a, out, dg);
}

gw_status gw_place_make(const gw_place *p, const char *folder, gw_diags *dg) {
    return p->type->make(p->state, folder, dg);
}

gw_status gw_place_sync(const gw_place *p, const char *folder, gw_diags *dg) {
    return p->type->sync(p->state, folder, dg);
}

gw_status gw_place_commit(const gw_place *p, const char *path, const void *bytes, int64_t n,
                          gw_diags *dg) {
    return p->type->commit(p->state, path, bytes, n, dg);
}

gw_status gw_place_remove(const gw_place *p, const char *path, gw_diags *dg) {
    return p->type->remove(p->state, path, dg);
}

gw_status gw_place_remove_folder(const gw_place *p, const char *path, gw_diags *dg) {
    return p->type->remove_folder(p->state, path, dg);
}

gw_status gw_place_move(const gw_place *p, const char *from, const char *to, gw_diags *dg) {
    return p->type->move(p->state, from, to, dg);
}

/* ---- files ---- */

gw_status gw_place_create(const gw_place *p, const char *path, int64_t bytes, gw_place_out *out,
                          gw_diags *dg) {
    *out = (gw_place_out){.type = p->type};
    return p->type->create(p->state, path, bytes, &out->file, dg);
}

gw_status gw_place_append(gw_place_out *f, const void *bytes, int64_t n, gw_diags *dg) {
    return f->type->append(f->file, bytes, n, dg);
}

gw_status gw_place_finish(gw_place_out *f, gw_diags *dg) { return f->type->finish(f->file, dg); }

void gw_place_drop(gw_place_out *f) {
    if (f->type && f->file) f->type->drop(f->file);
    *f = (gw_place_out){0};
}

gw_status gw_place_open_file(const gw_place *p, const char *path, gw_place_in *in, gw_diags *dg) {
    *in = (gw_place_in){.type = p->type};
    return p->type->open_file(p->state, path, &in->file, &in->bytes, dg);
}

gw_status gw_place_read(const gw_place_in *in, void *dst, int64_t n, int64_t offset, gw_diags *dg) {
    return in->type->read(in->file, dst, n, offset, dg);
}

void gw_place_close_file(gw_place_in *in) {
    if (in->type && in->file) in->type->close_file(in->file);
    *in = (gw_place_in){0};
}

bool gw_place_is_far(const gw_place *p) { return p->type && p->type->far; }

void gw_place_expect_open(const gw_place *p, const char *path, int64_t bytes, int64_t head,
                          int64_t tail) {
    p->type->expect_open(p->state, path, bytes, head, tail);
}

void gw_place_expect(const gw_place_in *in, int64_t offset, int64_t n) {
    in->type->expect(in->file, offset, n);
}

gw_status gw_place_read_file(const gw_place *p, const char *path, int64_t max_bytes, gw_str *out,
                             gw_diags *dg) {
    gw_place_in in;
    GW_TRY(gw_place_open_file(p, path, &in, dg));
    gw_status st = GW_OK;
    if (in.bytes > max_bytes)
        st = GW_FAIL(dg, GW_ERR_FORMAT, "file-too-large",
                     "'%s' is larger than the %lld bytes that are read of such a file", path,
                     (long long)max_bytes);
    if (st == GW_OK) {
        gw_str_reserve(out, (size_t)in.bytes + 1);
        st = gw_place_read(&in, out->data + out->len, in.bytes, 0, dg);
        if (st == GW_OK) out->len += (size_t)in.bytes;
        out->data[out->len] = 0;
    }
    gw_place_close_file(&in);
    return st;
}
