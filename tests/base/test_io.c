// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, atomic writes, mappings, and what the errors say.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "harness.h"

static int entries(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

TEST(io_write_then_read) {
    gw_diags dg = {0};
    gw_str s = {0};
    const char *path = test_tmp_path("f");
    CHECK_OK(gw_file_write_atomic(path, "a\0b", 3, &dg), &dg);
    gw_str_add(&s, "before ");
    CHECK_OK(gw_file_read(path, 3, &s, &dg), &dg);
    CHECK_EQ(s.len, 10);
    CHECK(memcmp(s.data, "before a\0b", 11) == 0);
    CHECK_OK(gw_file_write_atomic(path, "", 0, &dg), &dg);
    gw_str_clear(&s);
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    CHECK_EQ(s.len, 0);
    CHECK_STR(gw_str_c(&s), "");
    CHECK_EQ(entries(test_tmpdir()), 1); /* no temporary file stays */
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(io_reads_large_and_unsized_files) {
    gw_diags dg = {0};
    gw_str s = {0};
    enum { N = 3000000 };
    char *big = malloc(N);
    CHECK(big != NULL);
    for (int i = 0; i < N; i++) big[i] = (char)(i * 7);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("big"), big, N, &dg), &dg);
    CHECK_OK(gw_file_read(test_tmp_path("big"), 0, &s, &dg), &dg);
    CHECK(s.len == N && memcmp(s.data, big, N) == 0);
    gw_str_clear(&s);
    CHECK_OK(gw_file_read("/proc/self/status", 0, &s, &dg), &dg); /* stat says 0 bytes */
    CHECK(strstr(s.data, "Name:"));
    free(big);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(io_errors_say_what_and_where) {
    gw_diags dg = {0};
    gw_str s = {0};
    gw_str_add(&s, "kept");
    CHECK_EQ(gw_file_read("/no/such/file", 0, &s, &dg), GW_ERR_IO);
    CHECK_STR(gw_diags_first_error(&dg), "cannot open '/no/such/file': No such file or directory");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_file_read(test_tmpdir(), 0, &s, &dg), &dg, "Is a directory");
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), "12345", 5, &dg), &dg);
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_file_read(test_tmp_path("f"), 4, &s, &dg), &dg, "larger than the 4 bytes");
    CHECK_FAILS(gw_file_read("/proc/self/status", 10, &s, &dg), &dg, "larger than the 10 bytes");
    CHECK_STR(s.data, "kept"); /* a failed read appends nothing */
    CHECK_FAILS(gw_file_write_atomic("/no/such/dir/f", "x", 1, &dg), &dg, "/no/such/dir/f");
    CHECK_EQ(gw_file_read("/no/such/file", 0, &s, NULL), GW_ERR_IO);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

/* A file-size limit stands in for a full disk: the write fails midway, the old file stays whole. */
TEST(io_failed_write_keeps_the_old_file) {
    gw_diags dg = {0};
    gw_str s = {0};
    const char *path = test_tmp_path("f");
    CHECK_OK(gw_file_write_atomic(path, "old", 3, &dg), &dg);
    char *big = calloc(1, 100000);
    CHECK(big != NULL);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit was, limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &was) == 0);
    limit = was;
    limit.rlim_cur = 5000;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    gw_status st = gw_file_write_atomic(path, big, 100000, &dg);
    CHECK(setrlimit(RLIMIT_FSIZE, &was) == 0);
    CHECK_FAILS(st, &dg, "cannot write");
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    CHECK_STR(s.data, "old");
    CHECK_EQ(entries(test_tmpdir()), 1);
    free(big);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

TEST(io_full_disk_has_a_hint) {
    gw_diags dg = {0};
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) SKIP("no /dev/full here");
    CHECK_FAILS(gw_fd_write_all(fd, "x", 1, "out.bin", &dg), &dg,
                "cannot write 'out.bin': No space left on device");
    CHECK_FAILS(GW_ERR_IO, &dg, "free space");
    close(fd);
    gw_diags_release(&dg);
}

/* A symlink race or a second rank must not truncate: the target is replaced, never opened. */
TEST(io_atomic_write_replaces_and_never_opens_the_target) {
    gw_diags dg = {0};
    const char *path = test_tmp_path("f");
    CHECK_OK(gw_file_write_atomic(path, "old", 3, &dg), &dg);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK_OK(gw_file_write_atomic(path, "newer", 5, &dg), &dg);
    char buf[8] = {0};
    CHECK_EQ(pread(fd, buf, sizeof buf, 0), 3); /* the reader of the old file still has it */
    CHECK_STR(buf, "old");
    close(fd);
    gw_diags_release(&dg);
}

TEST(io_pread_of_a_cut_file_is_a_format_error) {
    gw_diags dg = {0};
    const char *path = test_tmp_path("f");
    char buf[8];
    CHECK_OK(gw_file_write_atomic(path, "0123456789", 10, &dg), &dg);
    int fd = open(path, O_RDONLY);
    CHECK_OK(gw_fd_pread_all(fd, buf, 4, 6, path, &dg), &dg);
    CHECK(memcmp(buf, "6789", 4) == 0);
    CHECK_EQ(gw_fd_pread_all(fd, buf, 8, 6, "w.bin", &dg), GW_ERR_FORMAT);
    CHECK_STR(gw_diags_first_error(&dg), "'w.bin' ends at byte 10, but bytes 6 to 14 are needed");
    close(fd);
    gw_diags_release(&dg);
}

TEST(io_mapping) {
    gw_diags dg = {0};
    gw_mapping m;
    const char *path = test_tmp_path("f");
    CHECK_OK(gw_file_write_atomic(path, "mapped", 6, &dg), &dg);
    CHECK_OK(gw_map_open(&m, path, &dg), &dg);
    CHECK(m.bytes == 6 && memcmp(m.data, "mapped", 6) == 0);
    gw_map_release(&m);
    CHECK_OK(gw_file_write_atomic(path, "", 0, &dg), &dg);
    CHECK_OK(gw_map_open(&m, path, &dg), &dg);
    CHECK(m.bytes == 0 && m.data);
    gw_map_release(&m);
    gw_map_release(&m);
    CHECK_FAILS(gw_map_open(&m, test_tmpdir(), &dg), &dg, "not a regular file");
    CHECK_FAILS(gw_map_open(&m, "/no/such", &dg), &dg, "/no/such");
    gw_diags_release(&dg);
}

TEST(io_directories_and_paths) {
    gw_diags dg = {0};
    gw_arena a = {0};
    char *deep = gw_path_join(&a, test_tmpdir(), "x//y/z/");
    CHECK_OK(gw_dir_make(deep, &dg), &dg);
    CHECK_OK(gw_dir_make(deep, &dg), &dg);
    CHECK(gw_path_is_dir(deep) && gw_path_exists(deep));
    CHECK_OK(gw_dir_sync(deep, &dg), &dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), "x", 1, &dg), &dg);
    CHECK(gw_path_exists(test_tmp_path("f")) && !gw_path_is_dir(test_tmp_path("f")));
    CHECK_FAILS(gw_dir_make(test_tmp_path("f"), &dg), &dg, "Not a directory");
    CHECK_FAILS(gw_dir_make(test_tmp_path("f/g"), &dg), &dg, "Not a directory");
    CHECK(!gw_path_exists(test_tmp_path("nothing")));
    CHECK_STR(gw_path_join(&a, "a", "b"), "a/b");
    CHECK_STR(gw_path_join(&a, "a/", "b"), "a/b");
    CHECK_STR(gw_path_join(&a, "", "b"), "b");
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

/* New files have the permissions that any program's would: 0666 less the umask. */
TEST(io_permissions_follow_the_umask) {
    gw_diags dg = {0};
    struct stat st;
    umask(027);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("f"), "x", 1, &dg), &dg);
    CHECK(stat(test_tmp_path("f"), &st) == 0);
    CHECK_EQ(st.st_mode & 0777, 0640);
    gw_diags_release(&dg);
}

/* A named pipe without a writer, a device, a socket: an error at once, never a wait. */
TEST(io_reads_only_regular_files) {
    gw_diags dg = {0};
    gw_str s = {0};
    gw_mapping m;
    const char *pipe_path = test_tmp_path("pipe");
    CHECK(mkfifo(pipe_path, 0600) == 0);
    CHECK_FAILS(gw_file_read(pipe_path, 0, &s, &dg), &dg, "not a regular file");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_map_open(&m, pipe_path, &dg), &dg, "not a regular file");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_file_read("/dev/zero", 0, &s, &dg), &dg, "not a regular file");
    CHECK_EQ(s.len, 0);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

/* `<(command)` hands over a descriptor: it is read to its end, slow writers included. */
TEST(io_reads_descriptors_that_were_given) {
    gw_diags dg = {0};
    gw_str s = {0};
    int fds[2];
    char path[32];
    CHECK(pipe(fds) == 0);
    snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(fds[0]);
        for (int i = 0; i < 3; i++) {
            usleep(20000);
            if (write(fds[1], "part ", 5) != 5) _exit(1);
        }
        _exit(0);
    }
    close(fds[1]);
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    CHECK_STR(gw_str_c(&s), "part part part ");
    CHECK(waitpid(child, NULL, 0) == child);
    close(fds[0]);
    gw_str_release(&s);
    gw_diags_release(&dg);
}
