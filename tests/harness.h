// SPDX-License-Identifier: Apache-2.0
// The test harness: a test is a function that registers itself; a failed check prints where and
// ends the test.
//
//   TEST(split_keeps_all) {
//       CHECK_EQ(count(split("a b")), 2);
//   }
//
// The executable of a folder lists its tests with --list, runs the one it is named, and with no
// argument runs all, each in a child process. tests/run_tests.c is what `make test` uses.
#ifndef GW_TESTS_HARNESS_H
#define GW_TESTS_HARNESS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h" /* GW_PRINTF, GW_NORETURN */
#include "base/diag.h"     /* gw_status, gw_diags */

typedef struct test_case {
    const char *name;
    void (*run)(void);
    int limit_s; /* the runner kills it after this time */
    bool is_long;
    struct test_case *next;
} test_case;

void test_register(test_case *t);

#define TEST_DEFINE_(ident, limit, long_)                                                          \
    static void test_body_##ident(void);                                                           \
    static test_case test_case_##ident = {#ident, test_body_##ident, (limit), (long_), NULL};      \
    __attribute__((constructor)) static void test_register_##ident(void) {                         \
        test_register(&test_case_##ident);                                                         \
    }                                                                                              \
    static void test_body_##ident(void)

/* A test of at most 60 s, of at most `seconds`, and one that runs only with GW_TEST_LONG=1 (limit
 * of 20 minutes). The name must be unique within the folder. */
#define TEST(ident)                 TEST_DEFINE_(ident, 60, false)
#define TEST_WITHIN(ident, seconds) TEST_DEFINE_(ident, seconds, false)
#define TEST_LONG(ident)            TEST_DEFINE_(ident, 1200, true)

/* Ends the test: failed with a message, or skipped with a reason. */
GW_NORETURN void test_fail(const char *file, int line, const char *fmt, ...) GW_PRINTF(3, 4);
GW_NORETURN void test_skip(const char *fmt, ...) GW_PRINTF(1, 2);
#define SKIP(...) test_skip(__VA_ARGS__)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) test_fail(__FILE__, __LINE__, "CHECK(%s)", #cond);                            \
    } while (0)
/* With the figures that explain the failure: CHECK_MSG(a < b, "a=%d b=%d", a, b). */
#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_note("CHECK(%s)", #cond);                                                         \
            test_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
        }                                                                                          \
    } while (0)
/* Signed 64-bit integers are equal. */
#define CHECK_EQ(a, b) test_check_eq(__FILE__, __LINE__, #a " == " #b, (int64_t)(a), (int64_t)(b))
/* Strings are equal; NULL equals only NULL. */
#define CHECK_STR(a, b) test_check_str(__FILE__, __LINE__, #a " == " #b, (a), (b))
/* |a - b| <= tol; a NaN fails. */
#define CHECK_NEAR(a, b, tol)                                                                      \
    test_check_near(__FILE__, __LINE__, #a " ~ " #b, (double)(a), (double)(b), (double)(tol))
/* The status is GW_OK; otherwise prints the diagnostics gathered in `dg` (a gw_diags *). */
#define CHECK_OK(expr, dg) test_check_ok(__FILE__, __LINE__, #expr, (expr), (dg))
/* The status is an error and some diagnostic's message, detail, hint or id contains `text`. */
#define CHECK_FAILS(expr, dg, text)                                                                \
    test_check_fails(__FILE__, __LINE__, #expr, (expr), (dg), (text))

/* A line of output, shown only when the test fails (or V=1). */
void test_note(const char *fmt, ...) GW_PRINTF(1, 2);
void test_check_eq(const char *file, int line, const char *what, int64_t a, int64_t b);
void test_check_str(const char *file, int line, const char *what, const char *a, const char *b);
void test_check_near(const char *file, int line, const char *what, double a, double b, double tol);
void test_check_ok(const char *file, int line, const char *what, gw_status s, const gw_diags *dg);
void test_check_fails(const char *file, int line, const char *what, gw_status s, const gw_diags *dg,
                      const char *text);

/* A folder of this test's own, removed when it ends. */
const char *test_tmpdir(void);
/* Path of a name inside the temporary folder; one of 16 rotating buffers of the thread. */
const char *test_tmp_path(const char *name);
/* Path of a file below tests/, e.g. "golden/x.json"; one of the same. */
const char *test_source_path(const char *below);

#endif
