// SPDX-License-Identifier: Apache-2.0
// Arenas, the counted heap, and panics.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/panic.h"
#include "harness.h"

/* Blocks of many sizes and alignments: zeroed, aligned, apart from one another, unmoved. */
TEST(arena_blocks_are_zero_aligned_and_apart) {
    enum { N = 3000 };
    static uint8_t *block[N];
    static int64_t size[N];
    gw_arena a = {0};
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        int64_t align = INT64_C(1) << (x >> 29);
        size[i] = (int64_t)((x >> 8) % (i % 100 == 0 ? 300000u : 200u));
        block[i] = gw_arena_alloc_aligned(&a, size[i], align);
        CHECK_EQ((uintptr_t)block[i] % (uintptr_t)align, 0);
        for (int64_t k = 0; k < size[i]; k++) CHECK(block[i][k] == 0);
        memset(block[i], i & 255, (size_t)size[i]);
    }
    int64_t sum = 0;
    for (int i = 0; i < N; i++) {
        for (int64_t k = 0; k < size[i]; k++) CHECK(block[i][k] == (i & 255));
        sum += size[i];
    }
    CHECK(a.total_bytes >= sum);
    gw_arena_release(&a);
    CHECK_EQ(a.total_bytes, 0);
    CHECK(gw_arena_alloc(&a, 0) != NULL);
    gw_arena_release(&a);
}

TEST(arena_alloc_aligns_to_16_and_beyond) {
    gw_arena a;
    gw_arena_init(&a);
    for (int i = 1; i < 50; i++) CHECK_EQ((uintptr_t)gw_arena_alloc(&a, i) % 16, 0);
    CHECK_EQ((uintptr_t)gw_arena_alloc_aligned(&a, 10, 4096) % 4096, 0);
    CHECK_EQ((uintptr_t)gw_arena_alloc_aligned(&a, 100000, 65536) % 65536, 0);
    gw_arena_release(&a);
}

/* Chunks double up to 1 MiB: 16 MiB in small blocks take about log2(256) + 16 chunks. */
TEST(arena_makes_few_chunks) {
#ifdef GW_HOSTILE
    SKIP("this build gives every block a chunk of its own");
#else
    gw_arena a = {0};
    int64_t before = gw_mem_count();
    for (int i = 0; i < (16 << 20) / 64; i++) gw_arena_alloc(&a, 64);
    CHECK_MSG(gw_mem_count() - before <= 26, "%lld chunks", (long long)(gw_mem_count() - before));
    gw_arena_release(&a);
#endif
}

TEST(arena_strings) {
    gw_arena a = {0};
    CHECK_STR(gw_arena_strdup(&a, "abc"), "abc");
    CHECK_STR(gw_arena_strndup(&a, "abcdef", 3), "abc");
    CHECK_STR(gw_arena_strndup(&a, "ab", 9), "ab");
    CHECK_STR(gw_arena_printf(&a, "%05d|%s", 42, "x"), "00042|x");
    char *wide = gw_arena_printf(&a, "%*d", 9000, 7);
    CHECK_EQ(strlen(wide), 9000);
    CHECK(wide[8999] == '7');
    const int three[] = {1, 2, 3};
    int *copy = gw_arena_dup(&a, three, sizeof three);
    CHECK(copy != three && memcmp(copy, three, sizeof three) == 0);
    gw_arena_release(&a);
}

TEST(heap_counts_calls_and_keeps_bytes) {
    int64_t before = gw_mem_count();
    uint8_t *p = gw_mem_alloc(100);
    for (int i = 0; i < 100; i++) p[i] = (uint8_t)i;
    p = gw_mem_realloc(p, 100000);
    for (int i = 0; i < 100; i++) CHECK_EQ(p[i], i);
    p = gw_mem_realloc(p, 50);
    for (int i = 0; i < 50; i++) CHECK_EQ(p[i], i);
    gw_mem_free(p);
    CHECK_EQ(gw_mem_count() - before, 3);
    p = gw_mem_zalloc(64);
    for (int i = 0; i < 64; i++) CHECK_EQ(p[i], 0);
    gw_mem_free(p);
    gw_mem_free(NULL);
    gw_mem_free(gw_mem_alloc(0));
    CHECK_EQ(gw_mem_count() - before, 5);
}

/* ------------------------------------------------------------------------------ panics */

static void leave_a_mark(void *user) {
    const char *text = user;
    ssize_t n = write(2, text, strlen(text));
    if (n < 0) _exit(9);
}

static void panic_again(void *user) {
    (void)user;
    gw_panic("from the hook");
}

/* Runs fn in a child and returns what it wrote to stderr; the child must die by that signal, or
 * for 0 exit 1. */
static const char *stderr_of_end(void (*fn)(void), int signo) {
    static char text[4096];
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        fn();
        _exit(0);
    }
    close(fds[1]);
    size_t n = 0;
    for (ssize_t k; n + 1 < sizeof text && (k = read(fds[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(fds[0]);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    bool as_meant = signo ? WIFSIGNALED(status) && WTERMSIG(status) == signo
                          : WIFEXITED(status) && WEXITSTATUS(status) == 1;
    CHECK_MSG(as_meant, "status %d, said: %s", status, text);
    return text;
}

static void fail_third(void) {
    gw_arena a = {0};
    gw_mem_fail_after(3);
    gw_mem_free(gw_mem_alloc(1));
    gw_arena_alloc(&a, 1);
    if (write(2, "two passed\n", 11) < 0) _exit(9);
    gw_mem_free(gw_mem_alloc(12345));
}

TEST(heap_fails_at_the_nth_call) {
    const char *said = stderr_of_end(fail_third, 0);
    const char *line = strstr(said, "two passed\n");
    CHECK_MSG(line && strstr(line, "out of memory for metadata") && strstr(line, "12345") &&
                  !strstr(said, "internal error"),
              "%s", said);
    gw_mem_fail_after(1);
    gw_mem_fail_after(0);
    gw_mem_free(gw_mem_alloc(1));
}

static void assert_with_hook(void) {
    gw_panic_set_hook(leave_a_mark, (char[]){"dumped\n"});
    GW_ASSERT(1 + 1 == 3);
}

static void panic_within_hook(void) {
    gw_panic_set_hook(panic_again, NULL);
    gw_panic("first %d", 1);
}

TEST(panic_prints_runs_the_hook_once_and_aborts) {
    const char *said = stderr_of_end(assert_with_hook, SIGABRT);
    CHECK_MSG(strstr(said, "gradwright: internal error: ") && strstr(said, "test_memory.c:") &&
                  strstr(said, "1 + 1 == 3") && strstr(said, "dumped"),
              "%s", said);
    said = stderr_of_end(panic_within_hook, SIGABRT);
    CHECK_MSG(strstr(said, "first 1") && strstr(said, "from the hook"), "%s", said);
}
