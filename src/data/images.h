// SPDX-License-Identifier: Apache-2.0
// Data sets of labelled images in the IDX format of MNIST, as batches of floats.
//
// The format (Y. LeCun, C. Cortes, C. Burges, the MNIST database): two zero bytes, a type byte (8
// is unsigned bytes), the number of dimensions, each dimension as a big-endian 32-bit number, then
// the elements. Images are [n, height, width] (grey) or [n, height, width, channels]; labels are
// [n].
//
// A sample is a function of (data, seed, number): an epoch is a permutation of all images, so each
// comes once in it, and a position in the data is one global sample number, as for tokens.
#ifndef GW_DATA_IMAGES_H
#define GW_DATA_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

enum { GW_IMAGE_CHANNELS = 4 };

typedef struct gw_images gw_images;

/* Maps the two files and checks them against each other: sizes, numbers of images, at least one. */
GW_WARN_UNUSED gw_status gw_images_open(const char *images, const char *labels, gw_images **out,
                                        gw_diags *dg);
void gw_images_free(gw_images *d);

int64_t gw_images_count(const gw_images *d);
int64_t gw_images_height(const gw_images *d);
int64_t gw_images_width(const gw_images *d);
int64_t gw_images_channels(const gw_images *d); /* 1 for grey */
/* One more than the largest label. */
int64_t gw_images_classes(const gw_images *d);
int32_t gw_images_label(const gw_images *d, int64_t i);

/* Mean and standard deviation of each channel over all pixels, as fractions of white. A channel
 * that is the same everywhere has deviation 1. Goes through the data once. */
typedef struct gw_image_scale {
    double mean[GW_IMAGE_CHANNELS], std[GW_IMAGE_CHANNELS];
} gw_image_scale;
gw_image_scale gw_images_scale(const gw_images *d);

typedef struct gw_image_view {
    int64_t size;         /* side of what comes out: images are resized to size x size */
    int64_t channels;     /* grey images are repeated; otherwise the file's own number */
    gw_image_scale scale; /* (fraction of white - mean) / std; of the training set, always */
    uint64_t seed;        /* of the order */
    bool shuffle;         /* false: the order of the file (held-out data) */
} gw_image_view;

/* Which image sample `number` >= 0 is. */
int64_t gw_images_index(const gw_images *d, const gw_image_view *v, int64_t number);

/* Samples first .. first + n as out[n size size channels] (channels last) and labels[n]. Resizing
 * is bilinear with corners not aligned (torch.nn.functional.interpolate). GW_ERR_CONFIG when the
 * view's channels do not fit the file's. */
GW_WARN_UNUSED gw_status gw_images_read(const gw_images *d, const gw_image_view *v, int64_t first,
                                        int64_t n, float *out, int32_t *labels, gw_diags *dg);

#endif
