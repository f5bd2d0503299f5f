// SPDX-License-Identifier: Apache-2.0
// timeline.json, fed with damaged inputs: what is accepted can be measured and drawn both ways, and
// written again reads back.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h" /* gw_file_write_atomic */
#include "fuzz.h"
#include "harness.h"
#include "plan/timeline.h" /* gw_timeline_read */

static const char *const words[] = {
    "schedule", "ranks", "unit",  "actions", "\"F0.0\"", "\"sB3.1\"", "\"W1.65535\"",
    "\"R0\"",   "\"S\"", "[",     "]",       ",",        "0",         "-1",
    "1024",     "1e15",  "-1e15", "1e-320",  "0.5",      "null",      "9223372036854775807",
    NULL};

static void draw(const gw_timeline *t, gw_arena *a) {
    gw_timeline_figures f;
    gw_str svg = {0};
    char *text = NULL;
    size_t n = 0;
    gw_timeline_measure(t, a, &f);
    CHECK(f.idle_step <= 1 + 1e-9);
    FILE *out = open_memstream(&text, &n);
    CHECK(out != NULL);
    gw_timeline_print(t, 80, false, out);
    gw_timeline_print(t, 80, true, out);
    fclose(out);
    free(text);
    gw_timeline_svg(t, &svg);
    gw_str_release(&svg);
}

static gw_status read_timeline(const void *bytes, size_t n, gw_diags *dg) {
    const char *path = test_tmp_path("timeline.json");
    gw_arena mem = {0};
    gw_timeline t, again;
    CHECK_OK(gw_file_write_atomic(path, bytes, (int64_t)n, dg), dg);
    gw_status st = gw_timeline_read(&t, path, &mem, dg);
    if (st == GW_OK) {
        draw(&t, &mem);
        CHECK_OK(gw_timeline_write(&t, path, dg), dg);
        CHECK_OK(gw_timeline_read(&again, path, &mem, dg), dg);
        CHECK_EQ(again.n, t.n);
        CHECK_STR(again.name, t.name);
    }
    gw_arena_release(&mem);
    return st;
}

static void run_timeline(int64_t rounds) {
    static const char *const seeds[] = {
        "{\"schedule\": \"1f1b\", \"ranks\": 2, \"unit\": \"s\",\n"
        " \"actions\": [\n  [0,\"F0.0\",0.0,0.001],\n  [0,\"sF0.0\",0.001,0.0011],\n"
        "  [1,\"rF1.0\",0.0,0.0012],\n  [1,\"F1.0\",0.0012,0.0022],\n"
        "  [1,\"I1.0\",0.0022,0.0032],\n  [1,\"W1.0\",0.0032,0.0042],\n"
        "  [0,\"B0.0\",0.005,0.007],\n  [0,\"R0\",0.007,0.008],\n  [0,\"S\",0.008,0.009]]}\n",
        "{\"ranks\": 1, \"actions\": [[0, \"F0.0\", 3, 3]]}",
        "{\"ranks\": 3, \"unit\": \"\", \"actions\": [[2, \"F7.9\", -1e15, 1e15]]}"};
    fuzz f = {.name = "timeline", .target = read_timeline, .words = words};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_timeline) { run_timeline(600); }
TEST_LONG(fuzz_timeline_long) { run_timeline(30000); }
