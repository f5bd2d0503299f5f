// SPDX-License-Identifier: Apache-2.0
// Tables, the progress line, the log, clocks.
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "harness.h"

TEST(table_aligns_by_display_width) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    gw_table *t = gw_table_new("lrl");
    gw_table_row(t, "cause", "bytes", "note");
    gw_table_row(t, "weights", "1,024", "");
    gw_table_row(t, "\u6743\u91cd", "7", "wide");     /* two cells a character */
    gw_table_row(t, "e\u0301tat", "12", "combining"); /* the accent takes none */
    gw_table_rule(t);
    gw_table_row(t, "total", NULL, "\xff bad byte");
    gw_table_print(t, f, "  ");
    gw_table_free(t);
    fclose(f);
    CHECK_STR(text, "  cause    bytes  note\n"
                    "  -------  -----  ----------\n"
                    "  weights  1,024\n"
                    "  \u6743\u91cd         7  wide\n"
                    "  e\u0301tat        12  combining\n"
                    "  -------  -----  ----------\n"
                    "  total           \xff bad byte\n");
    free(text);
}

TEST(progress_in_a_file_prints_seldom_and_whole_lines) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(test_tmp_path("log"), "w+");
    CHECK(f != NULL);
    gw_progress p;
    gw_progress_init(&p, f, 3600);
    for (int i = 0; i < 100; i++) gw_progress_show(&p, i == 99, "step %d", i);
    gw_progress_end(&p);
    CHECK(!gw_term_is_tty(f) && !gw_term_colour(f));
    rewind(f);
    CHECK(getdelim(&text, &n, 0, f) > 0);
    CHECK_STR(text, "step 0\nstep 99\n");
    free(text);
    fclose(f);
}

TEST(progress_allocates_nothing) {
    FILE *f = fopen("/dev/null", "w");
    CHECK(f != NULL);
    gw_progress p;
    gw_progress_init(&p, f, 0);
    int64_t before = gw_mem_count();
    for (int i = 0; i < 100; i++) gw_progress_show(&p, true, "step %d", i);
    CHECK_EQ(gw_mem_count() - before, 0);
    fclose(f);
}

/* A pseudo-terminal of 20 columns. */
TEST(progress_on_a_terminal_redraws_and_is_cut_to_its_width) {
    int master, slave;
    struct winsize w = {.ws_col = 20, .ws_row = 5};
    if (openpty(&master, &slave, NULL, NULL, &w) != 0) SKIP("no pseudo-terminal here");
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    FILE *f = fdopen(slave, "w");
    CHECK(gw_term_is_tty(f) && gw_term_colour(f));
    CHECK_EQ(gw_term_width(f), 20);
    gw_progress p;
    gw_progress_init(&p, f, 3600);
    gw_progress_show(&p, false, "one");
    gw_progress_show(&p, false, "too soon");
    gw_progress_show(&p, true, "0123456789012345678901234");
    gw_progress_end(&p);
    gw_progress_end(&p);
    static const char want[] = "\rone\x1b[K\r0123456789012345678\x1b[K\r\n";
    char got[256] = {0};
    size_t have = 0; /* a terminal may give what was written piece by piece */
    while (have < sizeof want - 1) {
        ssize_t n = read(master, got + have, sizeof got - 1 - have);
        CHECK(n > 0);
        have += (size_t)n;
    }
    CHECK_STR(got, want);
    setenv("NO_COLOR", "1", 1);
    CHECK(!gw_term_colour(f));
    setenv("NO_COLOR", "", 1); /* empty means unset, as no-color.org says */
    CHECK(gw_term_colour(f));
    setenv("TERM", "dumb", 1);
    CHECK(!gw_term_colour(f));
    fclose(f);
    close(master);
}

TEST(log_levels) {
    static const struct {
        gw_log_level level;
        const char *text;
    } cases[] = {{GW_LOG_QUIET, ""},
                 {GW_LOG_INFO, "i 1\nwarning: w 2\n"},
                 {GW_LOG_DEBUG, "i 1\nwarning: w 2\ndebug: d 3\n"}};
    CHECK_EQ(gw_log_get_level(), GW_LOG_INFO);
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        const char *path = test_tmp_path("log");
        int was = dup(2), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(dup2(fd, 2) == 2);
        gw_log_set_level(cases[i].level);
        gw_log_info("i %d", 1);
        gw_log_warn("w %d", 2);
        gw_log_debug("d %d", 3);
        CHECK(dup2(was, 2) == 2);
        char text[256] = {0};
        CHECK(pread(fd, text, sizeof text - 1, 0) >= 0);
        CHECK_STR(text, cases[i].text);
        close(fd);
        close(was);
    }
}

TEST(clock_monotonic_and_iso) {
    int64_t a = gw_clock_ns(), b = gw_clock_ns();
    CHECK(b >= a && a > 0);
    CHECK(gw_clock_wall() > 1.7e9); /* after 2023 */
    char buf[32];
    CHECK_STR(gw_clock_iso(buf, 0), "1970-01-01T00:00:00Z");
    CHECK_STR(gw_clock_iso(buf, 1000000000.9), "2001-09-09T01:46:40Z");
    CHECK_STR(gw_clock_iso(buf, -0.5), "1969-12-31T23:59:59Z");
    CHECK_STR(gw_clock_iso(buf, (double)NAN), "unknown-time");
}
