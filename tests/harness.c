// SPDX-License-Identifier: Apache-2.0
// The test harness: registration, checks, and the main of every test executable.
//
// Tests register through constructors into one list, in the order of definition. A failed check
// ends the process at once, since state after a broken promise proves nothing; the runner gives
// each test a process of its own, so nothing is lost by that. Leaving goes through test_leave,
// which removes the temporary folder; a pass then returns from main, so that a leak checker has its
// say.
//
// Exit status: 0 passed, 1 failed, 77 skipped (the last line of output is the reason), 2 no such
// test. A crash needs no handling here: the parent sees the signal.
#include "harness.h"

#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef GW_TESTS_DIR
#define GW_TESTS_DIR "tests"
#endif

enum { EXIT_SKIPPED = 77, PATHS = 16, PATH_BYTES = 1024 };

static test_case *first_test, *last_test;
static char tmpdir[512];

void test_register(test_case *t) {
    if (last_test)
        last_test->next = t;
    else
        first_test = t;
    last_test = t;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tmpdir(void) {
    if (tmpdir[0]) nftw(tmpdir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    tmpdir[0] = 0;
}

GW_NORETURN static void test_leave(int code) {
    fflush(NULL);
    remove_tmpdir();
    _exit(code);
}

void test_fail(const char *file, int line, const char *fmt, ...) {
    fflush(stderr);
    printf("%s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    test_leave(1);
}

void test_skip(const char *fmt, ...) {
    fflush(stderr);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    test_leave(EXIT_SKIPPED);
}

void test_note(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void test_check_eq(const char *file, int line, const char *what, int64_t a, int64_t b) {
    if (a != b) test_fail(file, line, "%s: %lld is not %lld", what, (long long)a, (long long)b);
}

void test_check_str(const char *file, int line, const char *what, const char *a, const char *b) {
    if (a && b ? strcmp(a, b) == 0 : a == b) return;
    test_fail(file, line, "%s\n  is     \"%s\"\n  wanted \"%s\"", what, a ? a : "(null)",
              b ? b : "(null)");
}

void test_check_near(const char *file, int line, const char *what, double a, double b, double tol) {
    if (fabs(a - b) <= tol || a == b) return;
    test_fail(file, line, "%s: %.17g is %.3g from %.17g, allowed %.3g", what, a, fabs(a - b), b,
              tol);
}

void test_check_ok(const char *file, int line, const char *what, gw_status s, const gw_diags *dg) {
    if (s == GW_OK) return;
    if (dg) gw_diags_print(dg, stdout, false);
    test_fail(file, line, "%s: status %d", what, (int)s);
}

static bool diag_mentions(const gw_diag *g, const char *text) {
    return strstr(g->message, text) || (g->detail && strstr(g->detail, text)) ||
           (g->hint && strstr(g->hint, text)) || (g->id && strstr(g->id, text));
}

void test_check_fails(const char *file, int line, const char *what, gw_status s, const gw_diags *dg,
                      const char *text) {
    if (s == GW_OK) test_fail(file, line, "%s: succeeded, wanted an error with \"%s\"", what, text);
    for (const gw_diag *g = dg ? dg->first : NULL; g; g = g->next)
        if (diag_mentions(g, text)) return;
    if (dg) gw_diags_print(dg, stdout, false);
    test_fail(file, line, "%s: no diagnostic contains \"%s\"", what, text);
}

/* Ranks that are threads may all be the first to ask. */
const char *test_tmpdir(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!tmpdir[0]) {
        const char *env = getenv("TMPDIR"), *root = env && *env ? env : "/tmp";
        snprintf(tmpdir, sizeof tmpdir, "%s/gw-test-XXXXXX", root);
        if (!mkdtemp(tmpdir)) {
            tmpdir[0] = 0;
            test_fail(__FILE__, __LINE__, "cannot make a temporary folder below %s", root);
        }
    }
    pthread_mutex_unlock(&lock);
    return tmpdir;
}

static const char *joined(const char *dir, const char *name) {
    static _Thread_local char ring[PATHS][PATH_BYTES];
    static _Thread_local int turn;
    char *out = ring[turn++ % PATHS];
    if (snprintf(out, PATH_BYTES, "%s/%s", dir, name) >= PATH_BYTES)
        test_fail(__FILE__, __LINE__, "path too long: %s/%s", dir, name);
    return out;
}

const char *test_tmp_path(const char *name) { return joined(test_tmpdir(), name); }

const char *test_source_path(const char *below) {
    const char *dir = getenv("GW_TESTS_DIR");
    return joined(dir && *dir ? dir : GW_TESTS_DIR, below);
}

static void run_one(const test_case *t) {
    const char *want_long = getenv("GW_TEST_LONG");
    if (t->is_long && !(want_long && *want_long && strcmp(want_long, "0") != 0))
        test_skip("long; 'make test-long' runs it");
    t->run();
    fflush(NULL);
    remove_tmpdir();
}

static int run_all(void) {
    int failed = 0;
    for (const test_case *t = first_test; t; t = t->next) {
        printf("%-48s ", t->name);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm((unsigned)t->limit_s);
            run_one(t);
            exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED;
        if (ok) printf("ok\n");
        if (WIFSIGNALED(status)) printf("killed by %s\n", strsignal(WTERMSIG(status)));
        failed += !ok && !skipped;
    }
    return failed != 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return run_all();
    if (strcmp(argv[1], "--list") == 0) {
        for (const test_case *t = first_test; t; t = t->next)
            printf("%s %d\n", t->name, t->limit_s);
        return 0;
    }
    for (const test_case *t = first_test; t; t = t->next)
        if (strcmp(t->name, argv[1]) == 0) {
            run_one(t);
            return 0;
        }
    fprintf(stderr, "%s: no test '%s'; --list names them\n", argv[0], argv[1]);
    return 2;
}
