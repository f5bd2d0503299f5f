// SPDX-License-Identifier: Apache-2.0
// Images for a run (train/feed.h holds the contract).
//
// A sample is a function of the set, the seed and one global number (data/images.h), so a batch
// needs no state but the number at which it begins, and any rank can read any part of it. Batches
// are made when they are asked for, by the thread that trains: an image is a few sums a pixel,
// thousands of times less than what the net then does with it.
//
// Held-out images are normalised by the training set's figures: a net must not see another scale
// when it is judged than when it learned.
#include "train/feed.h"

#include <string.h>

#include "base/io.h"     /* gw_path_exists, gw_map_open */
#include "base/rng.h"    /* gw_rng_key_named */
#include "base/str.h"    /* gw_str_eq */
#include "data/tokens.h" /* GW_LABEL_MASKED */

/* ---- files ---- */

static const char *prefix_of(const gw_runfile *rf, const char *key) {
    if (gw_str_eq(key, "data.valid")) return rf->data.valid;
    return rf->data.train.count > 0 ? rf->data.train.items[0].path : NULL;
}

/* The first of the usual names that is there; NULL when none is. */
static const char *find(gw_arena *a, const char *prefix, const char *const *ends, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *path = gw_arena_printf(a, "%s%s", prefix, ends[i]);
        if (gw_path_exists(path)) return path;
    }
    return NULL;
}

static gw_status find_files(const gw_runfile *rf, const char *key, gw_arena *a, const char **images,
                            const char **labels, gw_diags *dg) {
    static const char *const of_images[] = {"-images-idx3-ubyte", "-images-idx4-ubyte",
                                            "-images.idx3-ubyte", "-images.idx4-ubyte"};
    static const char *const of_labels[] = {"-labels-idx1-ubyte", "-labels.idx1-ubyte"};
    const char *prefix = prefix_of(rf, key);
    if (rf->data.train.count > 1) {
        gw_diag *g = gw_runfile_error(rf, dg, "data.train", "config-value",
                                      "data.train is a list, and images are of one set");
        gw_diag_hint(dg, g, "name one prefix");
        return GW_ERR_CONFIG;
    }
    *images = find(a, prefix, of_images, GW_COUNT(of_images));
    *labels = find(a, prefix, of_labels, GW_COUNT(of_labels));
    if (*images && *labels) return GW_OK;
    gw_diag *g = gw_runfile_error(rf, dg, key, "file-open", "there is no %s%s", prefix,
                                  *images ? of_labels[0] : of_images[0]);
    gw_diag_detail(dg, g,
                   "%s is the prefix of two IDX files, as MNIST has them: "
                   "PREFIX-images-idx3-ubyte (idx4 with channels) and PREFIX-labels-idx1-ubyte",
                   key);
    gw_diag_hint(dg, g, "unpacked, not .gz; docs/vision.md shows the format");
    return GW_ERR_CONFIG;
}

static gw_status check_set(const gw_runfile *rf, const char *key, const gw_images *d,
                           const gw_model *m, gw_diags *dg) {
    int64_t classes = gw_images_classes(d), channels = gw_images_channels(d);
    if (classes > m->resnet.classes) {
        gw_diag *g = gw_runfile_error(rf, dg, "model.classes", "config-value",
                                      "model.classes is %lld, and %s has labels up to %lld",
                                      (long long)m->resnet.classes, key, (long long)(classes - 1));
        gw_diag_hint(dg, g, "write model.classes: %lld or more", (long long)classes);
        return GW_ERR_CONFIG;
    }
    if (channels == 1 || channels == m->resnet.channels) return GW_OK;
    gw_diag *g = gw_runfile_error(rf, dg, "model.channels", "image-channels",
                                  "model.channels is %lld, and the images of %s have %lld",
                                  (long long)m->resnet.channels, key, (long long)channels);
    gw_diag_hint(dg, g, "write model.channels: %lld", (long long)channels);
    return GW_ERR_CONFIG;
}

/* ---- opening ---- */

static void make_room(gw_feed *f, const gw_model *m, int64_t rows) {
    f->rows = rows;
    f->classes = m->resnet.classes;
    f->row_elems = m->resnet.image * m->resnet.image * m->resnet.channels;
    f->pixels = gw_arena_new(&f->mem, float, rows * f->row_elems);
    f->labels = gw_arena_new(&f->mem, int32_t, rows);
}

gw_status gw_feed_open(gw_feed *f, const gw_runfile *rf, const char *key, const gw_model *m,
                       const gw_image_scale *scale, int64_t rows, gw_diags *dg) {
    const char *images = NULL, *labels = NULL;
    memset(f, 0, sizeof *f);
    gw_status st = find_files(rf, key, &f->mem, &images, &labels, dg);
    if (st == GW_OK) st = gw_images_open(images, labels, &f->images, dg);
    if (st == GW_OK) st = check_set(rf, key, f->images, m, dg);
    if (st != GW_OK) {
        gw_feed_close(f);
        return st;
    }
    f->count = gw_images_count(f->images);
    f->view = (gw_image_view){.size = m->resnet.image,
                              .channels = m->resnet.channels,
                              .scale = scale ? *scale : gw_images_scale(f->images),
                              .seed = (uint64_t)rf->train.seed,
                              .shuffle = gw_str_eq(key, "data.train")};
    make_room(f, m, rows);
    return GW_OK;
}

void gw_feed_make_up(gw_feed *f, const gw_model *m, uint64_t seed, int64_t rows) {
    memset(f, 0, sizeof *f);
    f->view = (gw_image_view){.seed = seed, .shuffle = true};
    make_room(f, m, rows);
}

void gw_feed_close(gw_feed *f) {
    gw_images_free(f->images);
    gw_arena_release(&f->mem);
    memset(f, 0, sizeof *f);
}

int64_t gw_feed_bytes(const gw_model *m, int64_t rows, bool validates) {
    const gw_resnet *r = &m->resnet;
    if (m->family != GW_FAMILY_RESNET) return 0;
    int64_t row =
        r->image * r->image * r->channels * (int64_t)sizeof(float) + (int64_t)sizeof(int32_t);
    return rows * row * (validates ? 2 : 1);
}

/* ---- identity ---- */

/* Bytes of a file: all of a small one, else stretches spread evenly from the first to the last. */
static gw_status add_file(gw_hasher *h, const char *path, bool whole, gw_diags *dg) {
    enum { STRETCH = 1024, STRETCHES = 4096 };
    gw_mapping m = {0};
    GW_TRY(gw_map_open(&m, path, dg));
    const uint8_t *bytes = m.data;
    gw_hasher_add(h, &m.bytes, sizeof m.bytes);
    if (whole || m.bytes <= (int64_t)STRETCH * STRETCHES) {
        gw_hasher_add(h, bytes, (size_t)m.bytes);
    } else {
        int64_t room = m.bytes - STRETCH;
        for (int64_t i = 0; i < STRETCHES; i++)
            gw_hasher_add(h, bytes + (int64_t)((double)room * (double)i / (STRETCHES - 1)),
                          STRETCH);
    }
    gw_map_release(&m);
    return GW_OK;
}

gw_status gw_feed_hash(const gw_runfile *rf, const char *key, gw_hash128 *out, gw_diags *dg) {
    gw_arena mem = {0};
    const char *images = NULL, *labels = NULL;
    gw_hasher *h = gw_hasher_new();
    gw_status st = find_files(rf, key, &mem, &images, &labels, dg);
    if (st == GW_OK) st = add_file(h, images, false, dg);
    if (st == GW_OK) st = add_file(h, labels, true, dg);
    *out = gw_hasher_get(h);
    gw_hasher_free(h);
    gw_arena_release(&mem);
    return st;
}

/* ---- reading ---- */

static void read_noise(gw_feed *f, int64_t first) {
    gw_rng_key key = gw_rng_key_named(f->view.seed, "made-up images");
    for (int64_t r = 0; r < f->rows; r++) {
        uint64_t at = (uint64_t)((first + r) * (f->row_elems + 1));
        f->labels[r] = (int32_t)(gw_rng_u32(key, at) % (uint32_t)f->classes);
        for (int64_t i = 0; i < f->row_elems; i++)
            f->pixels[r * f->row_elems + i] = 4 * gw_rng_uniform(key, at + 1 + (uint64_t)i) - 2;
    }
}

gw_status gw_feed_read(gw_feed *f, int64_t first, gw_diags *dg) {
    int64_t n = f->rows;
    if (!f->images) {
        read_noise(f, first);
        return GW_OK;
    }
    if (!f->view.shuffle) n = GW_MAX(INT64_C(0), GW_MIN(n, f->count - first));
    GW_TRY(gw_images_read(f->images, &f->view, first, n, f->pixels, f->labels, dg));
    memset(f->pixels + n * f->row_elems, 0, (size_t)((f->rows - n) * f->row_elems) * sizeof(float));
    for (int64_t r = n; r < f->rows; r++) f->labels[r] = GW_LABEL_MASKED;
    return GW_OK;
}

void gw_feed_write(const gw_feed *f, gw_exec *x) {
    (void)gw_exec_write(x, "images", f->pixels, f->rows * f->row_elems * (int64_t)sizeof(float));
    (void)gw_exec_write(x, "labels", f->labels, f->rows * (int64_t)sizeof(int32_t));
}
