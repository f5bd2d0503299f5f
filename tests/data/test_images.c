// SPDX-License-Identifier: Apache-2.0
// IDX images: the format byte by byte, resizing, order, damaged files.
#include <string.h>

#include "base/io.h"     /* gw_file_write_atomic */
#include "data/images.h" /* gw_images */
#include "harness.h"

static void put(const char *name, const void *bytes, int64_t n) {
    CHECK_OK(gw_file_write_atomic(test_tmp_path(name), bytes, n, NULL), NULL);
}

/* Two grey images of 2 x 2 and their labels, written out by hand. */
static const uint8_t two[] = {0, 0, 8, 3, 0, 0,  0,   2,   0,   0,   0, 2,
                              0, 0, 0, 2, 0, 51, 102, 153, 255, 204, 0, 0};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};

static gw_status open_as(const void *i, int64_t ni, const void *l, int64_t nl, gw_images **d,
                         gw_diags *dg) {
    put("i", i, ni);
    put("l", l, nl);
    return gw_images_open(test_tmp_path("i"), test_tmp_path("l"), d, dg);
}

TEST(idx_files_are_read) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_images *d = NULL;
    CHECK_OK(open_as(two, sizeof two, labels, sizeof labels, &d, &dg), &dg);
    CHECK_EQ(gw_images_count(d), 2);
    CHECK_EQ(gw_images_height(d), 2);
    CHECK_EQ(gw_images_width(d), 2);
    CHECK_EQ(gw_images_channels(d), 1);
    CHECK_EQ(gw_images_classes(d), 8);
    CHECK_EQ(gw_images_label(d, 1), 3);
    gw_image_view v = {.size = 2, .channels = 3, .scale = {{0.1, 0.2, 0}, {0.5, 1, 1}}};
    float x[24];
    int32_t y[2];
    CHECK_OK(gw_images_read(d, &v, 0, 2, x, y, &dg), &dg);
    CHECK_EQ(y[0], 7);
    CHECK_NEAR(x[3], (0.2 - 0.1) / 0.5, 1e-6); /* pixel 1: 51 of 255, in three channels */
    CHECK_NEAR(x[4], 0.2 - 0.2, 1e-6);
    CHECK_NEAR(x[5], 0.2, 1e-6);
    CHECK_NEAR(x[12], (1 - 0.1) / 0.5, 1e-6);
    /* fractions 0 .2 .4 .6 1 .8 0 0: mean 0.375, mean square 0.275 */
    gw_image_scale s = gw_images_scale(d);
    CHECK_NEAR(s.mean[0], 0.375, 1e-12);
    CHECK_NEAR(s.std[0], sqrt(0.275 - 0.375 * 0.375), 1e-12);
    gw_images_free(d);
    gw_diags_release(&dg);
}

/* torch.nn.functional.interpolate(torch.tensor([[[[0., 51.], [102., 153.]]]]) / 255, size=(4, 4),
 * mode="bilinear", align_corners=False): rows begin 0, .05, .15, .2 and go up by .1, .2, .1. */
TEST(resizing_is_torchs_bilinear) {
    static const double want[16] = {0,  .05, .15, .2, .1, .15, .25, .3,
                                    .3, .35, .45, .5, .4, .45, .55, .6};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_images *d = NULL;
    CHECK_OK(open_as(two, sizeof two, labels, sizeof labels, &d, &dg), &dg);
    gw_image_view v = {.size = 4, .channels = 1, .scale = {{0}, {1, 1, 1, 1}}};
    float x[16];
    int32_t y;
    CHECK_OK(gw_images_read(d, &v, 0, 1, x, &y, &dg), &dg);
    for (int i = 0; i < 16; i++) CHECK_NEAR(x[i], want[i], 1e-6);
    gw_images_free(d);
    gw_diags_release(&dg);
}

TEST(each_epoch_has_each_image_once) {
    enum { N = 37 };
    uint8_t i[16 + N] = {0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, 1, 0, 0, 0, 1}, l[8 + N] = {0, 0, 8, 1};
    l[7] = N;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_images *d = NULL;
    CHECK_OK(open_as(i, sizeof i, l, sizeof l, &d, &dg), &dg);
    gw_image_view v = {.size = 1, .channels = 1, .seed = 3, .shuffle = true};
    int moved = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[N] = {false};
        for (int k = 0; k < N; k++) {
            int64_t at = gw_images_index(d, &v, epoch * N + k);
            CHECK(at >= 0 && at < N && !seen[at]);
            seen[at] = true;
            moved += at != gw_images_index(d, &v, k);
        }
    }
    CHECK(moved > N); /* epochs differ */
    v.shuffle = false;
    CHECK_EQ(gw_images_index(d, &v, N + 5), 5);
    gw_images_free(d);
    gw_diags_release(&dg);
}

static void refused(const void *i, int64_t ni, const void *l, int64_t nl, const char *why) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_images *d = NULL;
    CHECK_FAILS(open_as(i, ni, l, nl, &d, &dg), &dg, why);
    CHECK(d == NULL);
    gw_diags_release(&dg);
}

TEST(damaged_idx_files_are_refused) {
    for (int64_t n = 0; n < (int64_t)sizeof two; n++)
        refused(two, n, labels, sizeof labels, "IDX file");
    for (int64_t n = 0; n < (int64_t)sizeof labels; n++)
        refused(two, sizeof two, labels, n, "IDX file");
    uint8_t bad[sizeof two];
    memcpy(bad, two, sizeof two);
    bad[2] = 13;
    refused(bad, sizeof bad, labels, sizeof labels, "not unsigned bytes");
    memcpy(bad, two, sizeof two);
    memset(bad + 4, 0xff, 12); /* 2^96 pixels */
    refused(bad, sizeof bad, labels, sizeof labels, "overflow");
    static const uint8_t gz[] = {0x1f, 0x8b, 8, 0, 0};
    refused(gz, sizeof gz, labels, sizeof labels, "gunzip");
    static const uint8_t three[] = {0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3};
    refused(two, sizeof two, three, sizeof three, "3 labels for 2 images");
    refused(labels, sizeof labels, labels, sizeof labels, "height, width");
}

TEST(channels_must_fit) {
    static const uint8_t rgb[] = {0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 1,
                                  0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3};
    static const uint8_t one[] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_images *d = NULL;
    CHECK_OK(open_as(rgb, sizeof rgb, one, sizeof one, &d, &dg), &dg);
    gw_image_view v = {.size = 1, .channels = 1, .scale = {{0}, {1, 1, 1, 1}}};
    float x[3];
    int32_t y;
    CHECK_FAILS(gw_images_read(d, &v, 0, 1, x, &y, &dg), &dg, "3 channels cannot be read as 1");
    v.channels = 3;
    CHECK_OK(gw_images_read(d, &v, 0, 1, x, &y, &dg), &dg);
    CHECK_NEAR(x[2], 3.0 / 255, 1e-7);
    gw_images_free(d);
    gw_diags_release(&dg);
}
