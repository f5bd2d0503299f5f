// SPDX-License-Identifier: Apache-2.0
// Labelled images (data/images.h holds the contract and the format).
//
// The files are mapped and stay as they are: a batch is made of bytes when it is asked for, each
// output value by one bilinear sum over at most four pixels. What is outside comes in checked: the
// header's sizes are multiplied with care and must give exactly the file's size, and labels are
// looked through once for the largest.
//
// Order: epoch e of a shuffled view is gw_rng_permute keyed by (seed, e), so no table of indices
// exists and any sample of any epoch can be asked for.
#include "data/images.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"    /* gw_mem_zalloc */
#include "base/compiler.h" /* GW_MIN, GW_MAX */
#include "base/io.h"       /* gw_mapping, gw_map_open */
#include "base/panic.h"    /* GW_ASSERT */
#include "base/rng.h"      /* gw_rng_permute */

struct gw_images {
    gw_mapping images, labels;
    const uint8_t *pixels, *classes;
    int64_t n, h, w, c, nclasses;
};

enum { HEADER = 4, MOST_DIMS = 4, BYTES = 8 };

static gw_status bad(const char *path, gw_diags *dg, const char *what) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "idx-format", (gw_where){.file = path}, "%s", what);
}

/* Dimensions of a mapped IDX file of bytes; its elements follow at *data. */
static gw_status read_header(const gw_mapping *m, const char *path, int64_t dims[MOST_DIMS],
                             int *ndim, const uint8_t **data, gw_diags *dg) {
    const uint8_t *p = m->data;
    if (m->bytes >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
        gw_status st = bad(path, dg, "the file is compressed");
        if (dg) gw_diag_hint(dg, dg->last, "gunzip it first");
        return st;
    }
    if (m->bytes < HEADER || p[0] != 0 || p[1] != 0)
        return bad(path, dg, "not an IDX file: it must begin with two zero bytes");
    if (p[2] != BYTES) return bad(path, dg, "the elements of the IDX file are not unsigned bytes");
    *ndim = p[3];
    if (*ndim < 1 || *ndim > MOST_DIMS || m->bytes < HEADER + 4 * (int64_t)*ndim)
        return bad(path, dg, "the IDX file has no dimensions, too many, or is cut short");
    int64_t elems = 1;
    for (int i = 0; i < *ndim; i++) {
        const uint8_t *d = p + HEADER + 4 * i;
        dims[i] = (int64_t)d[0] << 24 | (int64_t)d[1] << 16 | (int64_t)d[2] << 8 | d[3];
        if (__builtin_mul_overflow(elems, dims[i], &elems))
            return bad(path, dg, "the dimensions of the IDX file overflow");
    }
    *data = p + HEADER + 4 * *ndim;
    if (m->bytes - HEADER - 4 * (int64_t)*ndim != elems)
        return gw_fail_at(dg, GW_ERR_FORMAT, "idx-format", (gw_where){.file = path},
                          "the IDX file holds %lld bytes behind its header, where its dimensions "
                          "say %lld",
                          (long long)(m->bytes - HEADER - 4 * (int64_t)*ndim), (long long)elems);
    return GW_OK;
}

static gw_status read_images(gw_images *d, const char *path, gw_diags *dg) {
    int64_t dims[MOST_DIMS];
    int ndim = 0;
    GW_TRY(gw_map_open(&d->images, path, dg));
    GW_TRY(read_header(&d->images, path, dims, &ndim, &d->pixels, dg));
    if (ndim < 3) return bad(path, dg, "images have the dimensions n, height, width (, channels)");
    d->n = dims[0];
    d->h = dims[1];
    d->w = dims[2];
    d->c = ndim == 4 ? dims[3] : 1;
    if (d->n < 1 || d->h < 1 || d->w < 1) return bad(path, dg, "there are no images in the file");
    if (d->c < 1 || d->c > GW_IMAGE_CHANNELS) return bad(path, dg, "images have 1 to 4 channels");
    return GW_OK;
}

static gw_status read_labels(gw_images *d, const char *path, gw_diags *dg) {
    int64_t dims[MOST_DIMS];
    int ndim = 0;
    GW_TRY(gw_map_open(&d->labels, path, dg));
    GW_TRY(read_header(&d->labels, path, dims, &ndim, &d->classes, dg));
    if (ndim != 1) return bad(path, dg, "labels have one dimension");
    if (dims[0] != d->n)
        return gw_fail_at(dg, GW_ERR_FORMAT, "idx-format", (gw_where){.file = path},
                          "there are %lld labels for %lld images", (long long)dims[0],
                          (long long)d->n);
    for (int64_t i = 0; i < d->n; i++) d->nclasses = GW_MAX(d->nclasses, d->classes[i] + 1);
    return GW_OK;
}

gw_status gw_images_open(const char *images, const char *labels, gw_images **out, gw_diags *dg) {
    gw_images *d = gw_mem_zalloc(sizeof *d);
    gw_status st = read_images(d, images, dg);
    if (st == GW_OK) st = read_labels(d, labels, dg);
    if (st == GW_OK)
        *out = d;
    else
        gw_images_free(d);
    return st;
}

void gw_images_free(gw_images *d) {
    if (!d) return;
    gw_map_release(&d->images);
    gw_map_release(&d->labels);
    gw_mem_free(d);
}

int64_t gw_images_count(const gw_images *d) { return d->n; }
int64_t gw_images_height(const gw_images *d) { return d->h; }
int64_t gw_images_width(const gw_images *d) { return d->w; }
int64_t gw_images_channels(const gw_images *d) { return d->c; }
int64_t gw_images_classes(const gw_images *d) { return d->nclasses; }

int32_t gw_images_label(const gw_images *d, int64_t i) {
    GW_ASSERT(i >= 0 && i < d->n);
    return d->classes[i];
}

gw_image_scale gw_images_scale(const gw_images *d) {
    gw_image_scale s = {0};
    uint64_t sum[GW_IMAGE_CHANNELS] = {0}, squares[GW_IMAGE_CHANNELS] = {0};
    int64_t pixels = d->n * d->h * d->w;
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t c = 0; c < d->c; c++) {
            uint64_t v = d->pixels[i * d->c + c];
            sum[c] += v;
            squares[c] += v * v;
        }
    for (int64_t c = 0; c < GW_IMAGE_CHANNELS; c++) {
        int64_t from = d->c == 1 ? 0 : GW_MIN(c, d->c - 1);
        double mean = (double)sum[from] / (double)pixels;
        double var = (double)squares[from] / (double)pixels - mean * mean;
        s.mean[c] = mean / 255;
        s.std[c] = var > 0 ? sqrt(var) / 255 : 1;
    }
    return s;
}

int64_t gw_images_index(const gw_images *d, const gw_image_view *v, int64_t number) {
    GW_ASSERT(number >= 0);
    if (!v->shuffle) return number % d->n;
    gw_rng_key key =
        gw_rng_key_fold(gw_rng_key_named(v->seed, "images"), (uint64_t)(number / d->n));
    return (int64_t)gw_rng_permute(key, (uint64_t)d->n, (uint64_t)(number % d->n));
}

/* Where output position i of `size` lies in a side of n pixels: between *a and *b, at *t. */
static void source(int64_t i, int64_t size, int64_t n, int64_t *a, int64_t *b, float *t) {
    double at = ((double)i + 0.5) * (double)n / (double)size - 0.5;
    at = at < 0 ? 0 : at;
    *a = GW_MIN((int64_t)at, n - 1);
    *b = GW_MIN(*a + 1, n - 1);
    *t = (float)(at - (double)*a);
}

static void resize(const gw_images *d, const gw_image_view *v, int64_t index, float *out) {
    const uint8_t *p = d->pixels + index * d->h * d->w * d->c;
    for (int64_t y = 0; y < v->size; y++) {
        int64_t y0, y1, x0, x1;
        float ty, tx;
        source(y, v->size, d->h, &y0, &y1, &ty);
        for (int64_t x = 0; x < v->size; x++) {
            source(x, v->size, d->w, &x0, &x1, &tx);
            for (int64_t c = 0; c < v->channels; c++) {
                int64_t from = d->c == 1 ? 0 : c;
#define AT(i, j) (float)p[((i)*d->w + (j)) * d->c + from]
                float top = AT(y0, x0) * (1 - tx) + AT(y0, x1) * tx;
                float low = AT(y1, x0) * (1 - tx) + AT(y1, x1) * tx;
#undef AT
                float white = (top * (1 - ty) + low * ty) / 255;
                *out++ = (white - (float)v->scale.mean[c]) / (float)v->scale.std[c];
            }
        }
    }
}

gw_status gw_images_read(const gw_images *d, const gw_image_view *v, int64_t first, int64_t n,
                         float *out, int32_t *labels, gw_diags *dg) {
    if (v->size < 1 || v->channels < 1 || v->channels > GW_IMAGE_CHANNELS ||
        (d->c != 1 && v->channels != d->c))
        return GW_FAIL(dg, GW_ERR_CONFIG, "image-channels",
                       "images of %lld channels cannot be read as %lld channels of side %lld",
                       (long long)d->c, (long long)v->channels, (long long)v->size);
    int64_t each = v->size * v->size * v->channels;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = gw_images_index(d, v, first + i);
        labels[i] = d->classes[index];
        resize(d, v, index, out + i * each);
    }
    return GW_OK;
}
