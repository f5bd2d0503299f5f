// SPDX-License-Identifier: Apache-2.0
// The text of schedules: printing and parsing, messages with their places, and any bytes.
#include <stdio.h>
#include <string.h>

#include "base/io.h"  /* gw_file_write_atomic */
#include "base/rng.h" /* gw_rng_u64 */
#include "base/str.h" /* gw_str */
#include "harness.h"
#include "sched/sched.h"

static gw_status parse(const char *text, gw_arena *a, gw_schedule *s, gw_diags *dg) {
    return gw_schedule_parse(text, (int64_t)strlen(text), "mine.txt", a, s, dg);
}

/* ---- actions ---- */

TEST(action_text_is_one_spelling) {
    static const char *const good[] = {"F0.0",  "B1.20", "I3.4",  "W32767.2147483647",
                                       "sF0.1", "rF1.1", "sB2.0", "rB0.7",
                                       "R5",    "S"};
    for (size_t i = 0; i < GW_COUNT(good); i++) {
        gw_action x;
        char buf[GW_ACTION_TEXT];
        CHECK(gw_action_parse(good[i], (int64_t)strlen(good[i]), &x));
        CHECK_STR(gw_action_print(x, buf), good[i]);
    }
    static const char *const bad[] = {
        "",      "F",        "F0",    "F0.",  "F.0",    "F0.0 ", " F0.0", "F00.0", "F0.00",
        "F-1.0", "F32768.0", "f0.0",  "R",    "R0.0",   "S0",    "sR0",   "sF",    "F0.2147483648",
        "sI0.0", "rW0.0",    "FF0.0", "F0,0", "F0.0.0", "s"};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        gw_action x;
        CHECK_MSG(!gw_action_parse(bad[i], (int64_t)strlen(bad[i]), &x), "%s", bad[i]);
    }
}

TEST(acts_and_parts_have_names) {
    CHECK_STR(gw_act_name(GW_ACT_SEND_B), "sB");
    CHECK_STR(gw_act_name(GW_ACT_STEP), "S");
    CHECK_STR(gw_part_name(GW_PART_ALL), "");
    CHECK_STR(gw_part_name(GW_PART_W), "W");
    CHECK(gw_act_has_micro(GW_ACT_RECV_F) && !gw_act_has_micro(GW_ACT_REDUCE));
    CHECK(!gw_act_has_micro(GW_ACT_STEP));
}

/* ---- printing and parsing ---- */

/* The example of docs/pipeline.md, worked by hand. */
static const char one_f_one_b[] =
    "schedule 1f1b\n"
    "ranks 2\n"
    "stages 0 1\n"
    "micro-batches 3\n"
    "rank 0: F0.0 sF0.0 F0.1 sF0.1 rB0.0 B0.0 F0.2 sF0.2 rB0.1 B0.1 rB0.2 B0.2 R0 S\n"
    "rank 1: rF1.0 F1.0 B1.0 sB1.0 rF1.1 F1.1 B1.1 sB1.1 rF1.2 F1.2 B1.2 sB1.2 R1 S\n";

TEST(text_of_a_small_schedule) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    gw_sched_request r = {.ranks = 2, .virtual_stages = 1, .micro_batches = 3};
    CHECK_OK(gw_schedule_make("1f1b", &r, &a, &s, &dg), &dg);
    gw_str out = {0};
    gw_schedule_print(&s, &out);
    CHECK_STR(gw_str_c(&out), one_f_one_b);
    gw_str_release(&out);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

TEST(text_may_leave_out_what_follows) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    CHECK_OK(parse("# computing actions only, lists in any order\n"
                   "schedule 1f1b ranks 2 stages 0 1 micro-batches 3\n"
                   "rank 1 : F1.0 B1.0 F1.1 B1.1\n F1.2 B1.2 # the end\n"
                   "rank 0:F0.0 F0.1\tB0.0 F0.2\r\nB0.1 B0.2",
                   &a, &s, &dg),
             &dg);
    gw_str out = {0};
    gw_schedule_print(&s, &out);
    CHECK_STR(gw_str_c(&out), one_f_one_b);
    gw_str_release(&out);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

TEST(printed_schedules_read_back_as_they_are) {
    gw_diags dg;
    gw_diags_init(&dg);
    int made = 0;
    const gw_sched_kind *k;
    for (int i = 0; (k = gw_sched_kind_at(i)); i++) {
        for (int p = 1; p <= 4; p++) {
            for (int32_t m = 1; m <= 9; m += 2) {
                gw_arena a = {0};
                gw_sched_request r = {.ranks = p, .micro_batches = m}, near;
                const char *why;
                gw_schedule s, back;
                if (gw_sched_admits(k, &r, &a, &why, &near)) {
                    gw_str one = {0}, two = {0};
                    CHECK_OK(gw_schedule_make(k->name, &r, &a, &s, &dg), &dg);
                    gw_schedule_print(&s, &one);
                    CHECK_OK(gw_schedule_parse(one.data, (int64_t)one.len, "x", &a, &back, &dg),
                             &dg);
                    gw_schedule_print(&back, &two);
                    CHECK_STR(gw_str_c(&two), gw_str_c(&one));
                    gw_str_release(&one);
                    gw_str_release(&two);
                    made++;
                }
                gw_arena_release(&a);
            }
        }
    }
    CHECK(made >= 3 * 4 * 4);
    gw_diags_release(&dg);
}

TEST(a_file_is_read) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    const char *path = test_tmp_path("schedule.txt");
    CHECK_OK(gw_file_write_atomic(path, one_f_one_b, (int64_t)strlen(one_f_one_b), &dg), &dg);
    CHECK_OK(gw_schedule_read(path, &a, &s, &dg), &dg);
    CHECK_EQ(s.lists[0].n, 14);
    CHECK_STR(s.name, "1f1b");
    CHECK_FAILS(gw_schedule_read(test_tmp_path("none"), &a, &s, &dg), &dg, "none");
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* examples/schedules holds what each kind makes of 4 ranks and 8 micro-batches, behind two lines of
 * comment; and docs/pipeline.md what 1f1b makes of the request above. */
TEST(examples_are_what_is_made) {
    const gw_sched_kind *k;
    for (int i = 0; (k = gw_sched_kind_at(i)); i++) {
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_schedule s, read;
        gw_sched_request r = {.ranks = 4, .micro_batches = 8};
        CHECK_OK(gw_schedule_make(k->name, &r, &a, &s, &dg), &dg);
        gw_str made = {0}, file = {0};
        gw_str_printf(&made, "# SPDX-License-Identifier: Apache-2.0\n# %s: %s\n", k->name, k->doc);
        gw_schedule_print(&s, &made);
        const char *path =
            test_source_path(gw_arena_printf(&a, "../examples/schedules/%s.txt", k->name));
        CHECK_OK(gw_file_read(path, 0, &file, &dg), &dg);
        if (!gw_str_eq(gw_str_c(&file), gw_str_c(&made)))
            test_note("%s should hold:\n%s", path, gw_str_c(&made));
        CHECK(gw_str_eq(gw_str_c(&file), gw_str_c(&made)));
        CHECK_OK(gw_schedule_read(path, &a, &read, &dg), &dg);
        gw_str_release(&made);
        gw_str_release(&file);
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
    gw_str page = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(test_source_path("../docs/pipeline.md"), 0, &page, &dg), &dg);
    CHECK(strstr(gw_str_c(&page), one_f_one_b));
    gw_str_release(&page);
    gw_diags_release(&dg);
}

/* ---- messages ---- */

TEST(what_is_wrong_is_said_with_its_place) {
    static const struct {
        const char *text, *says;
        int line, column;
    } cases[] = {
        {"", "expected 'schedule', not the end", 1, 1},
        {"plan x", "not 'plan'", 1, 1},
        {"schedule a/b", "a name of", 1, 10},
        {"schedule x\nranks 0", "from 1 to 1024, not '0'", 2, 7},
        {"schedule x\nranks 99999999999999999999", "from 1 to 1024", 2, 7},
        {"schedule x ranks 2\n stages 0 2", "the rank of a stage, a number from 0 to 1", 2, 11},
        {"schedule x ranks 2\n stages 0 0 micro-batches 1", "rank 1 holds no stage", 2, 2},
        {"schedule x ranks 1 stages 0\nmicro-batches many", "how many micro-batches", 2, 15},
        {"schedule x ranks 1 stages 0 micro-batches 1\nF0.0", "expected 'rank'", 2, 1},
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0 F0.0", "expected ':'", 2, 8},
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0: F0.0 G0.0", "'G0.0' is not an", 2,
         14},
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0: F0.0 B0.0\nrank 0: S", "already", 3,
         6},
        {"schedule x ranks 2 stages 0 1 micro-batches 1\nrank 0: F0.0 B0.0", "no list of rank 1", 2,
         18},
        {"schedule x ranks 2 stages 0 1 micro-batches 1\nrank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n"
         "rank 2: F2.0",
         "there is no rank 2: 'ranks' says 2", 4, 6},
        /* the checker's, with their places */
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0:\n F0.0 B0.0\n  B0.0",
         "stands in the list before", 4, 3},
        {"schedule x ranks 2 stages 0 1 micro-batches 1\nrank 0: F0.0\nF0.0 B0.0\n"
         "rank 1: F1.0 B1.0",
         "(F0.0): it stands in the list before", 3, 1},
        {"schedule x ranks 1 stages 0 micro-batches 1\n\n rank 0: F0.0", "B0.0 is missing", 3, 2},
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0: B0.0 F0.0", "action 1 (B0.0)", 2, 9},
        {"schedule x ranks 1 stages 0 micro-batches 1\nrank 0: F0.0 F9.0 B0.0", "1 stages", 2, 14},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_schedule s;
        CHECK_FAILS(parse(cases[i].text, &a, &s, &dg), &dg, cases[i].says);
        CHECK_STR(dg.first->where.file, "mine.txt");
        CHECK_MSG(dg.first->where.line == cases[i].line &&
                      dg.first->where.column == cases[i].column,
                  "case %zu: %d:%d, not %d:%d", i, dg.first->where.line, dg.first->where.column,
                  cases[i].line, cases[i].column);
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
}

/* Each is told once: what is added for an action that stands there twice is added once. */
TEST(an_action_that_stands_twice_is_one_problem) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    CHECK(parse("schedule x ranks 2 stages 0 1 micro-batches 1\nrank 0: F0.0 F0.0 B0.0\n"
                "rank 1: F1.0 B1.0 B1.0",
                &a, &s, &dg) == GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, 2);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* A mark of UTF-8 in front changes nothing, also not where problems are; a byte 0 is no text. */
TEST(a_mark_in_front_is_skipped_and_a_byte_0_is_told) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    gw_str t = {0};
    gw_str_printf(&t, "\xef\xbb\xbf%s", one_f_one_b);
    CHECK_OK(parse(gw_str_c(&t), &a, &s, &dg), &dg);
    CHECK_FAILS(parse("\xef\xbb\xbfplan", &a, &s, &dg), &dg, "not 'plan'");
    CHECK_EQ(dg.first->where.column, 1);
    gw_diags_clear(&dg);
    t.data[t.len - 5] = 0;
    CHECK_FAILS(gw_schedule_parse(t.data, (int64_t)t.len, "mine.txt", &a, &s, &dg), &dg,
                "a byte 0");
    CHECK_EQ(dg.first->where.line, 6);
    gw_str_release(&t);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* ---- any bytes ---- */

static const char *const words[] = {
    "schedule", "x",    "ranks", "stages", "micro-batches", "rank",  ":",       "0",
    "1",        "2",    "4096",  "65536",  "F0.0",          "F1.0",  "B0.0",    "B1.0",
    "I0.0",     "W0.0", "sF0.0", "rF1.0",  "sB1.0",         "rB0.0", "R0",      "R1",
    "S",        "\n",   "#",     "F0.1",   "B0.1",          "-1",    "F32767.9"};

/* Rounds of random bytes, random words, and a good text with words changed: parsed without harm,
 * and what is accepted prints and reads back. */
static void fuzz(uint64_t rounds) {
    gw_rng_key key = gw_rng_key_named(7, "schedule text");
    uint64_t at = 0;
    int accepted = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        gw_str t = {0};
        if (round % 3 == 0) {
            for (uint64_t n = gw_rng_u64(key, at++) % 200; n > 0; n--)
                gw_str_add_char(&t, (char)gw_rng_u64(key, at++));
        } else if (round % 3 == 1) {
            gw_str_add(&t, "schedule x ranks 2 stages 0 1 ");
            for (uint64_t n = gw_rng_u64(key, at++) % 60; n > 0; n--)
                gw_str_printf(&t, "%s ", words[gw_rng_u64(key, at++) % GW_COUNT(words)]);
        } else {
            gw_str_add(&t, one_f_one_b);
            for (uint64_t n = gw_rng_u64(key, at++) % 4; n > 0; n--) {
                const char *w = words[gw_rng_u64(key, at++) % GW_COUNT(words)];
                size_t len = strlen(w), to = (size_t)(gw_rng_u64(key, at++) % (t.len - 8));
                memcpy(t.data + to, w, GW_MIN(len, t.len - to));
            }
        }
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_schedule s;
        char *exact = gw_mem_alloc(t.len + 1); /* nothing readable behind it under asan */
        exact = gw_mem_realloc(exact, t.len ? t.len : 1);
        if (t.len) memcpy(exact, t.data, t.len);
        if (gw_schedule_parse(exact, (int64_t)t.len, "x", &a, &s, &dg) == GW_OK) {
            gw_str one = {0}, two = {0};
            gw_schedule_print(&s, &one);
            CHECK_OK(gw_schedule_parse(one.data, (int64_t)one.len, "x", &a, &s, &dg), &dg);
            gw_schedule_print(&s, &two);
            CHECK_STR(gw_str_c(&two), gw_str_c(&one));
            gw_str_release(&one);
            gw_str_release(&two);
            accepted++;
        } else {
            CHECK(dg.nerrors > 0);
        }
        gw_mem_free(exact);
        gw_str_release(&t);
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
    CHECK(accepted > (int)(rounds / 100));
}

TEST(any_bytes_are_safe) { fuzz(6000); }
TEST_LONG(any_bytes_are_safe_long) { fuzz(600000); }
