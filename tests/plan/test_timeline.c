// SPDX-License-Identifier: Apache-2.0
// Timelines: figures against the clock's, drawings against the figures, files from any hands.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h" /* gw_file_write_atomic */
#include "harness.h"
#include "plan/timeline.h"

typedef struct drawn {
    gw_arena mem;
    gw_diags dg;
    gw_schedule s;
    gw_sched_times times;
    gw_timeline t;
    gw_timeline_figures f;
} drawn;

/* A schedule by name; forward, input gradients, weight gradients of every stage take f, i, w. */
static void draw(drawn *d, const char *name, int ranks, int v, int m, double f, double i,
                 double w) {
    memset(d, 0, sizeof *d);
    gw_diags_init(&d->dg);
    int stages = 64;
    double *cost[3];
    for (int k = 0; k < 3; k++) {
        cost[k] = gw_arena_new(&d->mem, double, stages);
        for (int s = 0; s < stages; s++) cost[k][s] = k == 0 ? f : k == 1 ? i : w;
    }
    gw_sched_costs c = {.forward = cost[0], .input = cost[1], .weight = cost[2]};
    gw_sched_request r = {.ranks = ranks, .virtual_stages = v, .micro_batches = m, .costs = &c};
    CHECK_OK(gw_schedule_make(name, &r, &d->mem, &d->s, &d->dg), &d->dg);
    gw_sched_time(&d->s, &c, 2, &d->mem, &d->times);
    gw_timeline_of_schedule(&d->t, &d->s, &d->times, "", &d->mem);
    gw_timeline_measure(&d->t, &d->mem, &d->f);
}

static void release(drawn *d) {
    gw_diags_release(&d->dg);
    gw_arena_release(&d->mem);
}

static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                    "zb-2p", "zbv",  "dualpipev"};

TEST(figures_of_a_timeline_are_the_clocks) {
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        drawn d;
        draw(&d, names[i], 4, 0, 8, 1, 1.25, 0.75);
        test_note("%s", names[i]);
        CHECK_NEAR(d.f.step, d.times.step, 1e-9);
        CHECK_NEAR(d.f.bubble_step, d.times.bubble_step, 1e-12);
        CHECK_NEAR(d.f.bubble_compute, d.times.bubble_compute, 1e-12);
        CHECK_NEAR(d.f.idle_step, d.times.idle_step, 1e-12);
        CHECK_NEAR(d.f.longest_span, d.times.longest_span, 1e-9);
        CHECK_NEAR(d.f.idle_longest, d.times.idle_longest, 1e-9);
        for (int r = 0; r < 4; r++) CHECK_NEAR(d.f.busy[r], d.times.busy[r], 1e-9);
        CHECK_EQ(d.f.stages, d.s.stages);
        CHECK_EQ(d.f.micro_batches, 8);
        release(&d);
    }
}

/* Clocks begin when they like. */
TEST(figures_do_not_hang_on_the_origin_of_time) {
    drawn d;
    draw(&d, "zb-h1", 3, 0, 6, 1, 1, 1);
    gw_timeline t;
    gw_timeline_begin(&t, "zb-h1", 3, "s", &d.mem);
    for (int64_t i = d.t.n - 1; i >= 0; i--) { /* ranks in any order, too */
        const gw_timeline_box *b = &d.t.boxes[i];
        gw_timeline_add(&t, b->rank, b->action, b->start * 1e-3 + 77, b->end * 1e-3 + 77);
    }
    gw_timeline_figures f;
    gw_timeline_measure(&t, &d.mem, &f);
    CHECK_NEAR(f.first, 77, 1e-12);
    CHECK_NEAR(f.step, d.f.step * 1e-3, 1e-12);
    CHECK_NEAR(f.bubble_compute, d.f.bubble_compute, 1e-9);
    CHECK_NEAR(f.idle_longest, d.f.idle_longest, 1e-9);
    release(&d);
}

/* ---- the file ---- */

TEST(a_timeline_comes_back_from_its_file) {
    drawn d;
    draw(&d, "interleaved", 4, 2, 8, 1, 1, 1);
    const char *path = test_tmp_path("timeline.json");
    CHECK_OK(gw_timeline_write(&d.t, path, &d.dg), &d.dg);
    gw_timeline t;
    CHECK_OK(gw_timeline_read(&t, path, &d.mem, &d.dg), &d.dg);
    CHECK_STR(t.name, "interleaved");
    CHECK_STR(t.unit, "");
    CHECK_EQ(t.ranks, 4);
    CHECK_EQ(t.n, d.t.n);
    for (int64_t i = 0; i < t.n; i++) {
        CHECK_EQ(t.boxes[i].rank, d.t.boxes[i].rank);
        CHECK_EQ(t.boxes[i].action.act, d.t.boxes[i].action.act);
        CHECK_EQ(t.boxes[i].action.stage, d.t.boxes[i].action.stage);
        CHECK_EQ(t.boxes[i].action.micro, d.t.boxes[i].action.micro);
        CHECK_NEAR(t.boxes[i].start, d.t.boxes[i].start, 1e-9);
        CHECK_NEAR(t.boxes[i].end, d.t.boxes[i].end, 1e-9);
    }
    release(&d);
}

TEST(files_that_say_nonsense_are_refused_by_entry) {
    static const char *const cases[][2] = {
        {"[1]", "no JSON object"},
        {"{\"ranks\": 1", "timeline.json:1"},
        {"{\"actions\": []}", "'ranks'"},
        {"{\"ranks\": 0, \"actions\": []}", "'ranks'"},
        {"{\"ranks\": 2000, \"actions\": []}", "1 to 1024"},
        {"{\"ranks\": 1, \"actions\": 3}", "not a list"},
        {"{\"ranks\": 1, \"actions\": []}", "no actions"},
        {"{\"ranks\": 1, \"actions\": [[0, \"F0.0\", 0, 1], [0, \"F0.1\", 1]]}", "entry 1"},
        {"{\"ranks\": 1, \"actions\": [[0, \"Q0.0\", 0, 1]]}", "'Q0.0' is no action"},
        {"{\"ranks\": 1, \"actions\": [[0, \"F9000.0\", 0, 1]]}", "F9000.0"},
        {"{\"ranks\": 1, \"actions\": [[1, \"F0.0\", 0, 1]]}", "rank 1; there are 1"},
        {"{\"ranks\": 1, \"actions\": [[-1, \"F0.0\", 0, 1]]}", "rank -1"},
        {"{\"ranks\": 1, \"actions\": [[0, \"F0.0\", 2, 1]]}", "ends before it starts"},
        {"{\"ranks\": 1, \"actions\": [[0, \"F0.0\", -1e300, 1e300]]}", "beyond 1e+15"},
        {"{\"ranks\": 1, \"ranks\": 1, \"actions\": []}", "duplicate"},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_diags dg;
        gw_arena mem = {0};
        gw_timeline t;
        gw_diags_init(&dg);
        const char *path = test_tmp_path("timeline.json");
        test_note("%s", cases[i][0]);
        CHECK_OK(gw_file_write_atomic(path, cases[i][0], (int64_t)strlen(cases[i][0]), &dg), &dg);
        CHECK_FAILS(gw_timeline_read(&t, path, &mem, &dg), &dg, cases[i][1]);
        gw_diags_release(&dg);
        gw_arena_release(&mem);
    }
}

/* ---- drawings ---- */

static void print(const gw_timeline *t, int width, bool colour, char **text) {
    size_t n = 0;
    FILE *out = open_memstream(text, &n);
    CHECK(out != NULL);
    gw_timeline_print(t, width, colour, out);
    fclose(out);
}

/* Removes colours, in place. */
static void strip(char *text) {
    char *to = text;
    for (const char *p = text; *p; p++) {
        if (*p != '\x1b') {
            *to++ = *p;
            continue;
        }
        while (*p && *p != 'm') p++;
        if (!*p) break;
    }
    *to = 0;
}

/* The cells of rank r's row, NUL-terminated; of a picture whose labels have `label` columns. */
static char *row_of(const char *text, int r, int label) {
    char name[32];
    snprintf(name, sizeof name, "\nrank %d ", r);
    const char *p = strstr(text, name);
    CHECK_MSG(p, "no row of rank %d", r);
    p += 1 + label;
    const char *end = strchr(p, '\n'); /* " 27.3 %" stands at the end */
    CHECK(end && end - p > 8);
    char *row = malloc((size_t)(end - p) + 1);
    CHECK(row != NULL);
    memcpy(row, p, (size_t)(end - p));
    row[end - p - 8] = 0;
    return row;
}

static int count(const char *row, const char *of) {
    int n = 0;
    for (; *row; row++) n += strchr(of, *row) != NULL;
    return n;
}

/* Every box is whole columns wide here, so the picture is exact: its dots are the idle time. */
TEST(dots_of_the_drawing_are_the_idle_time) {
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        drawn d;
        draw(&d, names[i], 4, 0, 8, 1, 1, 1);
        char *text = NULL;
        print(&d.t, 100, false, &text);
        test_note("%s\n%s", names[i], text);
        int forward = 0, whole = 0, halves[2] = {0};
        for (int r = 0; r < 4; r++) {
            char *row = row_of(text, r, 8);
            double columns = (double)strlen(row);
            CHECK_NEAR(count(row, ".") / columns, d.f.idle[r], 1e-9);
            forward += count(row, "Ff");
            whole += count(row, "Bb");
            halves[0] += count(row, "Ii");
            halves[1] += count(row, "Ww");
            free(row);
        }
        int pairs = d.s.stages * 8; /* each letter stands once a box */
        CHECK_EQ(forward, pairs);
        CHECK_EQ(whole + halves[0], pairs);
        CHECK_EQ(halves[0], halves[1]);
        free(text);
        release(&d);
    }
}

TEST(colour_changes_nothing_but_colour) {
    drawn d;
    draw(&d, "zbv", 3, 0, 7, 1, 1, 1);
    char *plain = NULL, *colour = NULL;
    print(&d.t, 90, false, &plain);
    print(&d.t, 90, true, &colour);
    CHECK(strchr(plain, '\x1b') == NULL && strchr(colour, '\x1b') != NULL);
    strip(colour);
    for (int r = 0; r < 3; r++) {
        char *a = row_of(plain, r, 8), *b = row_of(colour, r, 8);
        CHECK_EQ(strlen(a), strlen(b));
        for (size_t i = 0; a[i]; i++) CHECK_EQ(a[i] == '.', b[i] == '.');
        free(a);
        free(b);
    }
    free(plain);
    free(colour);
    release(&d);
}

TEST(no_line_is_wider_than_the_terminal) {
    static const int widths[] = {40, 80, 100, 237};
    for (size_t i = 0; i < GW_COUNT(names); i++)
        for (size_t w = 0; w < GW_COUNT(widths); w++) {
            drawn d;
            draw(&d, names[i], 4, 0, 24, 1, 1.3, 0.7);
            char *text = NULL;
            print(&d.t, widths[w], false, &text);
            const char *rows = strstr(text, "\nrank 0");
            CHECK(rows != NULL);
            const char *legend = strstr(rows, "\n\n"); /* words, which may wrap */
            CHECK(legend != NULL);
            for (const char *p = rows + 1; p < legend;) {
                size_t n = strcspn(p, "\n");
                CHECK_MSG(n <= (size_t)widths[w], "%s, %d columns: %.*s", names[i], widths[w],
                          (int)n, p);
                p += n + 1;
            }
            free(text);
            release(&d);
        }
}

/* Counts elements; fails where tags do not close in order. */
static int elements(const char *svg, const char *name) {
    char open[64][16];
    int depth = 0, found = 0;
    for (const char *p = strchr(svg, '<'); p; p = strchr(p + 1, '<')) {
        const char *end = strchr(p, '>');
        CHECK(end != NULL);
        size_t n = strcspn(p + 1 + (p[1] == '/'), " >/");
        char tag[16] = "";
        CHECK(n < sizeof tag);
        memcpy(tag, p + 1 + (p[1] == '/'), n);
        if (p[1] == '/') {
            CHECK(depth > 0);
            CHECK_STR(open[--depth], tag);
            continue;
        }
        found += strcmp(tag, name) == 0;
        if (end[-1] == '/') continue;
        CHECK(depth < 64);
        snprintf(open[depth++], sizeof open[0], "%s", tag);
    }
    CHECK_EQ(depth, 0);
    return found;
}

static int occurs(const char *text, const char *what) {
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) n++;
    return n;
}

TEST(the_picture_has_every_box_and_needs_nothing) {
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        drawn d;
        gw_str svg = {0};
        draw(&d, names[i], 4, 0, 8, 1, 1, 1);
        gw_timeline_svg(&d.t, &svg);
        const char *text = gw_str_c(&svg);
        int computing = 0;
        for (int64_t b = 0; b < d.t.n; b++) computing += gw_timeline_computes(d.t.boxes[b].action);
        int said = occurs(text, "forward, stage") + occurs(text, "backward, stage") +
                   occurs(text, "backward to inputs, stage") +
                   occurs(text, "backward to weights, stage");
        CHECK_EQ(said, computing);
        CHECK(elements(text, "rect") > computing);
        CHECK_EQ(elements(text, "script"), 0);
        CHECK_EQ(occurs(text, "http"), 1); /* the name space */
        CHECK_EQ(occurs(text, "url("), 0);
        CHECK(occurs(text, "prefers-color-scheme:dark") == 1);
        gw_str_release(&svg);
        release(&d);
    }
}

TEST(names_cannot_break_the_picture) {
    gw_arena mem = {0};
    gw_timeline t;
    gw_str svg = {0};
    gw_timeline_begin(&t, "<script>&\"\x01", 1, "<s>", &mem);
    gw_timeline_add(&t, 0, (gw_action){.act = GW_ACT_F, .stage = 0, .micro = 0}, 3, 4);
    gw_timeline_svg(&t, &svg);
    CHECK_EQ(elements(gw_str_c(&svg), "script"), 0);
    CHECK(occurs(gw_str_c(&svg), "&lt;script&gt;&amp;&quot; ") > 0);
    gw_str_release(&svg);
    gw_arena_release(&mem);
}

/* Actions that take no time, as a clock may say of an empty stage. */
TEST(a_step_without_time_can_be_drawn) {
    gw_arena mem = {0};
    gw_timeline t;
    gw_str svg = {0};
    gw_timeline_begin(&t, "gpipe", 2, "s", &mem);
    gw_timeline_add(&t, 0, (gw_action){.act = GW_ACT_F, .stage = 0, .micro = 0}, 3, 3);
    gw_timeline_svg(&t, &svg);
    CHECK(elements(gw_str_c(&svg), "rect") > 0);
    char *text = NULL;
    print(&t, 80, false, &text);
    CHECK(strstr(text, "2 ranks, 1 stage, 1 micro-batch") != NULL);
    free(text);
    gw_str_release(&svg);
    gw_arena_release(&mem);
}
