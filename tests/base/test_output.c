// SPDX-License-Identifier: Apache-2.0
// Outputs that a person names: what the name leads to is written to, and stays what it is.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"
#include "base/output.h"
#include "harness.h"

static mode_t kind_of(const char *path) {
    struct stat st;
    CHECK(lstat(path, &st) == 0);
    return st.st_mode;
}

static void check_holds(const char *path, const char *text) {
    gw_diags dg = {0};
    gw_str s = {0};
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    CHECK_STR(gw_str_c(&s), text);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(output_to_a_file_is_whole_and_keeps_permissions) {
    gw_diags dg = {0};
    const char *path = test_tmp_path("f");
    CHECK_OK(gw_output_write(path, stdout, "one", 3, &dg), &dg);
    check_holds(path, "one");
    CHECK(chmod(path, 0600) == 0);
    gw_output *o;
    CHECK_OK(gw_output_open(path, stdout, &o, &dg), &dg);
    fputs("two", gw_output_file(o));
    check_holds(path, "one"); /* until it is closed */
    gw_output_abandon(o);
    check_holds(path, "one");
    CHECK_OK(gw_output_write(path, stdout, "three", 5, &dg), &dg);
    check_holds(path, "three");
    CHECK_EQ(kind_of(path) & 0777, 0600);
    gw_diags_release(&dg);
}

TEST(output_dash_is_the_stream_that_was_given) {
    gw_diags dg = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    CHECK(f != NULL);
    fputs("before ", f);
    CHECK_OK(gw_output_write("-", f, "picture", 7, &dg), &dg);
    fputs(" after", f);
    fclose(f);
    CHECK_STR(text, "before picture after");
    CHECK(gw_output_is_standard("-") && !gw_output_is_standard("./-"));
    free(text);
    gw_diags_release(&dg);
}

/* A link stays a link, into another folder, over two steps, and to what is not there yet. */
TEST(output_follows_links) {
    gw_diags dg = {0};
    gw_arena a = {0};
    const char *folder = gw_arena_strdup(&a, test_tmp_path("real"));
    const char *first = gw_arena_strdup(&a, test_tmp_path("first"));
    const char *second = gw_arena_strdup(&a, test_tmp_path("second"));
    const char *file = gw_path_join(&a, folder, "f");
    CHECK(mkdir(folder, 0777) == 0);
    CHECK(symlink("real/f", second) == 0 && symlink("second", first) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gw_output_write(first, stdout, i ? "again" : "new", i ? 5 : 3, &dg), &dg);
        CHECK(S_ISLNK(kind_of(first)) && S_ISLNK(kind_of(second)) && S_ISREG(kind_of(file)));
        check_holds(file, i ? "again" : "new");
    }
    CHECK(unlink(second) == 0 && symlink("first", second) == 0);
    CHECK_FAILS(gw_output_write(first, stdout, "x", 1, &dg), &dg, "Too many levels");
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

static void *read_pipe(void *path) {
    static char got[16];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof got - 1);
    if (fd >= 0) close(fd);
    got[n > 0 ? n : 0] = 0;
    return got;
}

TEST(output_writes_through_pipes_devices_and_descriptors) {
    gw_diags dg = {0};
    char path[512];
    void *got;
    pthread_t reader;
    snprintf(path, sizeof path, "%s", test_tmp_path("pipe"));
    CHECK(mkfifo(path, 0666) == 0);
    CHECK(pthread_create(&reader, NULL, read_pipe, path) == 0);
    CHECK_OK(gw_output_write(path, stdout, "through", 7, &dg), &dg);
    CHECK(pthread_join(reader, &got) == 0);
    CHECK_STR(got, "through");
    CHECK(S_ISFIFO(kind_of(path)));
    CHECK_OK(gw_output_write("/dev/null", stdout, "gone", 4, &dg), &dg);
    CHECK(S_ISCHR(kind_of("/dev/null")));
    CHECK_FAILS(gw_output_write("/dev/full", stdout, "x", 1, &dg), &dg, "No space left");
    int fd = open(test_tmp_path("f"), O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, "head ", 5) == 5);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    CHECK_OK(gw_output_write(path, stdout, "tail", 4, &dg), &dg);
    close(fd);
    check_holds(test_tmp_path("f"), "head tail");
    gw_diags_release(&dg);
}

TEST(output_refuses_what_is_no_place_to_write_to) {
    gw_diags dg = {0};
    CHECK_FAILS(gw_output_write(test_tmpdir(), stdout, "x", 1, &dg), &dg, "it is a directory");
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int n = snprintf(where.sun_path, sizeof where.sun_path, "%s", test_tmp_path("socket"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (n < (int)sizeof where.sun_path) {
        CHECK(bind(s, (struct sockaddr *)&where, sizeof where) == 0);
        CHECK_FAILS(gw_output_write(where.sun_path, stdout, "x", 1, &dg), &dg, "it is a socket");
    }
    close(s);
    CHECK_FAILS(gw_output_write("/no/such/f", stdout, "x", 1, &dg), &dg,
                "cannot create '/no/such/f'");
    CHECK_OK(gw_output_write(test_tmp_path("f"), stdout, "", 0, &dg), &dg);
    CHECK_FAILS(gw_output_write(test_tmp_path("f/g"), stdout, "x", 1, &dg), &dg, "Not a directory");
    gw_diags_release(&dg);
}
