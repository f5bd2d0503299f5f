// SPDX-License-Identifier: Apache-2.0
// Calibration files, and choices: what is written is read back, what is wrong is refused with its
// key, and the choice follows measured times, possibility and force.
#include <stdio.h>
#include <string.h>

#include "base/io.h"          /* gw_file_write_atomic */
#include "comm/algorithm.h"   /* gw_algorithm_at */
#include "comm/calibration.h" /* gw_calibration_read */
#include "harness.h"          /* TEST, CHECK */

static gw_coll all_reduce(const gw_coll_part *part, int64_t ranks) {
    return (gw_coll){
        .kind = GW_COLL_ALL_REDUCE, .dtype = GW_F32, .size = ranks, .nparts = 1, .parts = part};
}

static const int64_t bytes[] = {1000, 10000, 100000};
static const double ring_seconds[] = {1e-6, 1e-5, 1e-3};
static const double direct_seconds[] = {1e-5, 2e-5, 1e-4};
static const gw_calibration_curve curves[] = {
    {GW_COLL_ALL_REDUCE, "ring", GW_WIRE_SAME, GW_F32, 2, 3, bytes, ring_seconds},
    {GW_COLL_ALL_REDUCE, "direct", GW_WIRE_SAME, GW_F32, 2, 3, bytes, direct_seconds},
};
static const gw_calibration sample = {"a \"cpu\"", 2, 1, 1e-6, 2e9, 3e9, 4e9, 2, curves, NULL};

TEST(calibration_is_read_as_written) {
    gw_diags dg;
    gw_arena a = {0};
    gw_calibration c;
    gw_diags_init(&dg);
    const char *path = test_tmp_path("c.json");
    CHECK_OK(gw_calibration_write(path, NULL, &sample, &dg), &dg);
    CHECK_OK(gw_calibration_read(path, &c, &a, &dg), &dg);
    CHECK_STR(c.cpu, "a \"cpu\"");
    CHECK_EQ(c.cores, 2);
    CHECK_NEAR(c.bytes_per_s, 2e9, 1.0);
    CHECK_EQ(c.ncurves, 2);
    CHECK_STR(c.curves[1].algorithm, "direct");
    CHECK_EQ(c.curves[1].npoints, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(c.curves[0].bytes[i], bytes[i]);
        CHECK_NEAR(c.curves[0].seconds[i], ring_seconds[i], 1e-12);
    }
    gw_coll_machine m = gw_coll_machine_local(1);
    gw_calibration_apply(&c, &m);
    CHECK_NEAR(m.sum_bytes_per_s, 4e9, 1.0);
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

/* Between 1e3 and 1e4 bytes the time is proportional: 1e-6 (x / 1e3). */
TEST(times_between_sizes_lie_on_logarithmic_lines) {
    gw_coll_part part = {.elems = 1000};
    gw_coll c = all_reduce(&part, 2);
    CHECK_NEAR(gw_calibration_seconds(&sample, &c, "ring"), 4e-6, 1e-12);
    part.elems = 10; /* below: as the smallest */
    CHECK_NEAR(gw_calibration_seconds(&sample, &c, "ring"), 1e-6, 1e-15);
    part.elems = 250000; /* above: by the bytes */
    CHECK_NEAR(gw_calibration_seconds(&sample, &c, "ring"), 1e-2, 1e-9);
    CHECK(gw_calibration_seconds(&sample, &c, "tree") < 0.0);
    c.size = 3;
    CHECK(gw_calibration_seconds(&sample, &c, "ring") < 0.0);
}

TEST(the_choice_follows_measured_times) {
    gw_coll_part part = {.elems = 300};
    gw_coll c = all_reduce(&part, 2);
    gw_coll_candidate all[16];
    gw_coll_machine m = gw_coll_machine_local(1);
    int count;
    CHECK_STR(gw_coll_choose(&c, &m, NULL, 0, NULL), "direct"); /* by formula */
    m.calibration = &sample;
    m.latency_s = 1.0; /* what is not measured cannot win */
    CHECK_STR(gw_coll_choose(&c, &m, all, 16, &count), "ring");
    for (int i = 0; i < count; i++) {
        CHECK_STR(all[i].name, gw_algorithm_at(i)->name);
        CHECK(all[i].why != NULL);
        if (!strcmp(all[i].name, "pairwise")) CHECK(!all[i].possible);
    }
    part.elems = 25000;
    CHECK_STR(gw_coll_choose(&c, &m, NULL, 0, NULL), "direct");
    c.algorithm = "tree";
    CHECK_STR(gw_coll_choose(&c, &m, NULL, 0, NULL), "tree");
    c.algorithm = "pairwise";
    CHECK(gw_coll_choose(&c, &m, NULL, 0, NULL) == NULL);
    c.algorithm = NULL;
    m.shared = false;
    CHECK_STR(gw_coll_choose(&c, &m, NULL, 0, NULL), "ring");
}

/* Every collective that a plan may ask for has an algorithm, between hosts too. */
TEST(there_is_always_an_algorithm) {
    gw_coll_part part = {.elems = 12345};
    for (int shared = 0; shared < 2; shared++)
        for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
            for (int w = 0; w < GW_WIRE_COUNT; w++)
                for (int64_t n = 1; n < 20; n++) {
                    bool narrow = w >= GW_WIRE_BF16;
                    bool adds = k == GW_COLL_ALL_REDUCE || k == GW_COLL_REDUCE_SCATTER;
                    if (narrow && !adds && k != GW_COLL_ALL_GATHER) continue;
                    gw_coll_machine m = gw_coll_machine_local(1);
                    m.shared = shared;
                    gw_coll c = {.kind = (gw_coll_kind)k,
                                 .dtype = GW_F32,
                                 .wire = (gw_wire)w,
                                 .size = n,
                                 .nparts = 1,
                                 .parts = &part};
                    CHECK(gw_coll_choose(&c, &m, NULL, 0, NULL) != NULL);
                    CHECK(gw_coll_seconds(&c, &m) >= 0.0);
                }
}

/* arithmetic by hand: 1000 float32 on 4 ranks. */
TEST(payload_is_the_theory) {
    gw_coll_part part = {.elems = 1000};
    gw_coll c = all_reduce(&part, 4);
    CHECK_EQ(gw_coll_traffic_of(&c, 1).payload, 6000); /* 2 * 3/4 * 4000 */
    c.algorithm = "ring";
    CHECK_EQ(gw_coll_traffic_of(&c, 1).moved, 6000);
    c.algorithm = "central";
    CHECK_EQ(gw_coll_traffic_of(&c, 0).moved, 12000);
    CHECK_EQ(gw_coll_traffic_of(&c, 2).moved, 4000);
    c.algorithm = "ring";
    c.dtype = GW_BF16; /* partial sums travel as float32: 3/4 * 4000 and 3/4 * 2000 */
    CHECK_EQ(gw_coll_traffic_of(&c, 3).payload, 3000);
    CHECK_EQ(gw_coll_traffic_of(&c, 3).moved, 4500);
    c.kind = GW_COLL_ALL_GATHER;
    CHECK_EQ(gw_coll_traffic_of(&c, 0).payload, 1500);
    CHECK_EQ(gw_coll_traffic_of(&c, 0).moved, 1500);
    c.algorithm = "quantised";
    c.wire = GW_WIRE_INT8; /* 250 codes and a scale to each of three */
    CHECK_EQ(gw_coll_traffic_of(&c, 0).payload, 750);
    CHECK_EQ(gw_coll_traffic_of(&c, 0).moved, 762);
}

static void refuse(const char *text, const char *with) {
    gw_diags dg;
    gw_arena a = {0};
    gw_calibration c;
    gw_diags_init(&dg);
    const char *path = test_tmp_path("bad.json");
    CHECK_OK(gw_file_write_atomic(path, text, (int64_t)strlen(text), &dg), &dg);
    CHECK_FAILS(gw_calibration_read(path, &c, &a, &dg), &dg, with);
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

#define HEAD                                                                                       \
    "{\"version\":1,\"machine\":{\"cpu\":\"x\",\"cores\":2,\"threads\":1},\"rates\":{"             \
    "\"latency_s\":1e-6,\"bytes_per_s\":1,\"copy_bytes_per_s\":1,\"sum_bytes_per_s\":1},"          \
    "\"times\":["
#define CURVE(points)                                                                              \
    "{\"kind\":\"all-reduce\",\"algorithm\":\"ring\",\"wire\":\"same\",\"dtype\":\"f32\","         \
    "\"ranks\":2," points "}"

TEST(what_is_wrong_is_refused_by_key) {
    refuse("", "not JSON");
    refuse("[]", "one object");
    refuse("{\"version\":1,\"version\":1}", "not JSON"); /* duplicate key */
    refuse("{\"version\":2}", "file.version");
    refuse("{\"version\":1,\"machine\":{\"cpu\":3}}", "machine.cpu");
    refuse("{\"version\":1,\"wings\":2}", "file.wings");
    refuse(HEAD "3]}", "times[0]");
    refuse(HEAD CURVE("\"bytes\":[],\"seconds\":[]") "]}", "times[0].bytes");
    refuse(HEAD CURVE("\"bytes\":[4,4],\"seconds\":[1,1]") "]}", "times[0].bytes");
    refuse(HEAD CURVE("\"bytes\":[4,8],\"seconds\":[1]") "]}", "times[0].seconds");
    refuse(HEAD CURVE("\"bytes\":[4],\"seconds\":[0]") "]}", "times[0].seconds");
    refuse(HEAD CURVE("\"bytes\":[4.5],\"seconds\":[1]") "]}", "times[0].bytes");
    refuse(
        HEAD CURVE("\"bytes\":[4],\"seconds\":[1]") "," CURVE("\"bytes\":[8],\"seconds\":[1]") "]}",
        "repeats");
    refuse(HEAD
           "{\"kind\":\"all-reduce\",\"algorithm\":\"rong\",\"wire\":\"same\",\"dtype\":\"f32\","
           "\"ranks\":2}]}",
           "times[0].algorithm");
}
