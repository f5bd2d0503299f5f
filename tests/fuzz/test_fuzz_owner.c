// SPDX-License-Identifier: Apache-2.0
// Two small files beside checkpoints, fed with damaged copies: the owner of a place in a store, and
// what stays whatever is saved. What is accepted is within the bounds that its header promises.
#include <string.h>

#include "ckpt/checkpoint.h" /* gw_checkpoint_step_of_name */
#include "ckpt/kept.h"       /* gw_ckpt_kept_parse */
#include "fuzz.h"
#include "harness.h"
#include "train/owner.h" /* gw_owner_parse */

static gw_status read_owner(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_owner_note note;
    gw_status st = gw_owner_parse(bytes, n, &a, &note, dg);
    CHECK(note.host && note.since && note.machine && note.mark);
    CHECK(note.lease_s >= 1 && note.lease_s <= 86400 && note.begun >= -1);
    CHECK(st == GW_OK ? note.pid >= 0 && note.pid <= INT32_MAX : note.pid == -1);
    gw_arena_release(&a);
    return st;
}

static gw_status read_kept(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_ckpt_kept k;
    gw_status st = gw_ckpt_kept_parse(bytes, n, "kept.json", &a, &k, dg);
    CHECK(k.commits >= 0 && (st == GW_OK || (k.commits == 0 && k.nfolders == 0)));
    for (int i = 0; i < k.nfolders; i++) {
        CHECK(gw_checkpoint_step_of_name(k.folders[i]) >= 0);
        CHECK(gw_ckpt_is_kept(&k, 0, k.folders[i]));
    }
    CHECK(!gw_ckpt_is_kept(&k, k.commits + 1, "step-99999999999"));
    gw_arena_release(&a);
    return st;
}

static void seed_text(fuzz *f, const char *text) { fuzz_seed(f, text, strlen(text)); }

static void run_owner(int64_t rounds) {
    static const char *const words[] = {
        "\"pid\": ",   "\"lease_s\": ", "\"begun\": ", "\"host\": ", "-1", "1e300",
        "99999999999", "null",          "\\u0000",     "{",          "}",  NULL};
    fuzz f = {.name = "owner", .target = read_owner, .words = words};
    seed_text(&f, "{\"pid\": 4711, \"host\": \"node7\", \"since\": \"2031-01-01T00:00:00Z\", "
                  "\"machine\": \"a b\", \"begun\": 12345, \"mark\": \"0123-a\", \"lease_s\": 120, "
                  "\"renewed\": \"2031-01-01T00:01:00Z\"}\n");
    seed_text(&f, "{\"pid\": 1}");
    fuzz_run(&f, rounds);
}

static void run_kept(int64_t rounds) {
    static const char *const words[] = {"\"commits_up_to\": ",
                                        "\"folders\": ",
                                        "\"step-00000001\"",
                                        "\"step-1\"",
                                        "-1",
                                        "1e300",
                                        "[",
                                        "]",
                                        "null",
                                        NULL};
    fuzz f = {.name = "kept", .target = read_kept, .words = words};
    seed_text(&f, "{\"why\": \"w\", \"time\": \"t\", \"commits_up_to\": 7, \"folders\": "
                  "[\"step-00000100\", \"step-00000200\"]}");
    seed_text(&f, "{\"commits_up_to\": 0}");
    fuzz_run(&f, rounds);
}

TEST(fuzz_owner) { run_owner(3000); }
TEST(fuzz_kept) { run_kept(3000); }
TEST_LONG(fuzz_owner_long) {
    run_owner(150000);
    run_kept(150000);
}
