// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules against the multipliers that Hugging Face transformers gives.
#include <string.h>

#include "file/json.h" /* gw_json_read_file */
#include "harness.h"
#include "train/scaler.h" /* gw_scaler */
#include "train/lr.h"     /* gw_lr_factor */

static int64_t argument(const json_t *args, const char *key) {
    return json_integer_value(json_object_get(args, key));
}

static gw_lr from_golden(const json_t *o) {
    const char *name = json_string_value(json_object_get(o, "schedule"));
    const json_t *args = json_object_get(o, "arguments");
    gw_lr s = {.warmup = argument(args, "num_warmup_steps"),
               .total = argument(args, "num_training_steps")};
    if (strcmp(name, "linear") == 0) s.kind = GW_LR_LINEAR;
    if (strncmp(name, "cosine", 6) == 0) s.kind = GW_LR_COSINE;
    s.min_ratio = json_number_value(json_object_get(args, "min_lr_rate"));
    if (strcmp(name, "wsd") != 0) return s;
    const char *shape = json_string_value(json_object_get(args, "decay_type"));
    s.kind = GW_LR_WSD;
    s.decay = argument(args, "num_decay_steps");
    s.total = s.warmup + argument(args, "num_stable_steps") + s.decay;
    s.shape = strcmp(shape, "linear") == 0   ? GW_LR_DECAY_LINEAR
              : strcmp(shape, "cosine") == 0 ? GW_LR_DECAY_COSINE
                                             : GW_LR_DECAY_SQRT;
    s.min_ratio = json_number_value(json_object_get(args, "min_lr_ratio"));
    return s;
}

TEST(schedules_are_those_of_transformers) {
    gw_diags dg;
    gw_diags_init(&dg);
    json_t *file = NULL;
    CHECK_OK(gw_json_read_file(test_source_path("golden/schedules.json"), 0, &file, &dg), &dg);
    const json_t *all = json_object_get(file, "schedules");
    CHECK(json_array_size(all) >= 10);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *o = json_array_get(all, i);
        gw_lr s = from_golden(o);
        const json_t *f = json_object_get(o, "multiplier");
        for (size_t n = 0; n < json_array_size(f); n++) {
            double is = gw_lr_factor(&s, (int64_t)n);
            double want = json_number_value(json_array_get(f, n));
            /* the same formula in double: a few roundings apart */
            CHECK_MSG(fabs(is - want) <= 1e-14, "case %zu step %zu: %.17g, not %.17g", i, n, is,
                      want);
        }
    }
    json_decref(file);
    gw_diags_release(&dg);
}

TEST(linear_and_cosine_end_at_the_floor) {
    gw_lr s = {.kind = GW_LR_LINEAR, .warmup = 3, .total = 20, .min_ratio = 0.25};
    CHECK_NEAR(gw_lr_factor(&s, 3), 1, 0);
    CHECK_NEAR(gw_lr_factor(&s, 20), 0.25, 1e-15);
    s.kind = GW_LR_COSINE;
    CHECK_NEAR(gw_lr_factor(&s, 20), 0.25, 1e-15);
    for (int64_t n = 4; n <= 20; n++) CHECK(gw_lr_factor(&s, n) < gw_lr_factor(&s, n - 1));
}

TEST(dynamic_scale_halves_on_overflow_and_doubles_after_a_window) {
    gw_scaler s = {.active = true, .dynamic = true, .scale = 1024, .window = 3};
    CHECK(gw_scaler_update(&s, false));
    CHECK_NEAR(s.scale, 512, 0);
    for (int i = 0; i < 2; i++) CHECK(gw_scaler_update(&s, true));
    CHECK(gw_scaler_update(&s, false)); /* an overflow begins the window anew */
    for (int i = 0; i < 2; i++) CHECK(gw_scaler_update(&s, true));
    CHECK_NEAR(s.scale, 256, 0);
    CHECK(gw_scaler_update(&s, true));
    CHECK_NEAR(s.scale, 512, 0);
    CHECK_EQ(s.good_steps, 0);
}

TEST(dynamic_scale_gives_up_at_its_floor_and_stops_at_its_ceiling) {
    gw_scaler s = {.active = true, .dynamic = true, .scale = 4, .window = 1};
    CHECK(gw_scaler_update(&s, false) && gw_scaler_update(&s, false));
    CHECK_NEAR(s.scale, GW_SCALE_MIN, 0);
    CHECK(!gw_scaler_update(&s, false));
    s.scale = GW_SCALE_MAX / 2;
    for (int i = 0; i < 5; i++) CHECK(gw_scaler_update(&s, true));
    CHECK_NEAR(s.scale, GW_SCALE_MAX, 0);
}

TEST(a_fixed_scale_is_patient_for_a_while) {
    gw_scaler s = {.active = true, .scale = 128};
    for (int i = 1; i < GW_SCALE_FIXED_PATIENCE; i++) CHECK(gw_scaler_update(&s, false));
    CHECK(gw_scaler_update(&s, true)); /* one good step forgives */
    for (int i = 1; i < GW_SCALE_FIXED_PATIENCE; i++) CHECK(gw_scaler_update(&s, false));
    CHECK(!gw_scaler_update(&s, false));
    CHECK_NEAR(s.scale, 128, 0);
    gw_scaler none = {.scale = 1};
    CHECK(gw_scaler_update(&none, true) && !gw_scaler_update(&none, false));
}
