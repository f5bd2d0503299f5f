// SPDX-License-Identifier: Apache-2.0
// The test runner: each test in a process of its own, with a time limit, its output kept.
//
//   run_tests EXECUTABLE... SCRIPT...
//
// An executable lists its tests with --list ("name seconds" a line) and runs the one it is named; a
// script (*.sh) is one test, whose limit a line "# timeout: SECONDS" near its top may raise. A
// crash, a hang or a leak is therefore one red line, and no test can disturb another. Each test
// gets a process group, which is killed whole when time is up, and a temporary folder as TMPDIR,
// which is removed whatever the test did. Up to GW_TEST_JOBS (2) run at once.
//
// Exit status 0 passes, 77 skips with the last line of output as the reason, anything else fails
// and shows the output. Failures and skips are printed as they come (TAP's words, "not ok" and "#
// SKIP"), passes only with V=1; the last line, alone, is "N passed, N failed, N skipped".
// GW_TEST_FILTER selects: words separated by spaces or commas, each matched within "folder/name",
// or as a glob.
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, MAX_JOBS = 64, EXIT_SKIPPED = 77, SHOWN_BYTES = 1 << 16 };

typedef struct test {
    char *program; /* executable or script */
    char *name;    /* argument, or NULL for a script */
    char *label;   /* folder/name */
    int limit_s;
} test;

typedef struct job {
    const test *test; /* NULL = free */
    pid_t pid;
    int output; /* an unlinked file */
    double started;
    bool late;
    char tmp[64];
} job;

typedef struct runner {
    test *tests;
    size_t count, cap;
    job jobs[MAX_JOBS];
    int max_jobs;
    int passed, failed, skipped;
    bool verbose;
    double factor; /* on every limit: sanitizers are slow */
} runner;

static volatile sig_atomic_t stop_signal;
static void on_signal(int sig) { stop_signal = sig; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what, const char *arg) {
    fprintf(stderr, "run_tests: %s '%s': %s\n", what, arg, strerror(errno));
    exit(2);
}

static void *checked(void *p) {
    if (!p) die("out of memory", "");
    return p;
}

/* ------------------------------------------------------------------------------ collecting */

static bool selected(const char *label) {
    const char *filter = getenv("GW_TEST_FILTER");
    if (!filter || !filter[strspn(filter, " ,")]) return true;
    char *words = checked(strdup(filter)), *save = NULL;
    bool hit = false;
    for (char *w = strtok_r(words, " ,", &save); w && !hit; w = strtok_r(NULL, " ,", &save))
        hit = strstr(label, w) || fnmatch(w, label, 0) == 0;
    free(words);
    return hit;
}

static void add(runner *r, const char *program, const char *folder, const char *name, int limit_s,
                bool script) {
    char label[512];
    snprintf(label, sizeof label, "%s/%s", folder, name);
    if (!selected(label)) return;
    if (r->count == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 256;
        r->tests = checked(realloc(r->tests, r->cap * sizeof *r->tests));
    }
    r->tests[r->count++] = (test){
        .program = checked(strdup(program)),
        .name = script ? NULL : checked(strdup(name)),
        .label = checked(strdup(label)),
        .limit_s = limit_s > 0 ? limit_s : LIMIT_S,
    };
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_executable(runner *r, const char *path) {
    char command[1024], line[512];
    snprintf(command, sizeof command, "'%s' --list", path);
    FILE *f = popen(command, "r");
    if (!f) die("cannot list", path);
    while (fgets(line, sizeof line, f)) {
        char name[256];
        int limit = 0;
        if (sscanf(line, "%255s %d", name, &limit) >= 1)
            add(r, path, base_name(path), name, limit, false);
    }
    if (pclose(f) != 0) { /* it cannot even list: run it, so that the failure shows */
        add(r, path, base_name(path), "--list", LIMIT_S, false);
    }
}

static void add_script(runner *r, const char *path) {
    char folder[256], line[512];
    int limit = 0;
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", n, path);
    FILE *f = fopen(path, "r");
    if (!f) die("cannot open", path);
    for (int i = 0; i < 20 && fgets(line, sizeof line, f); i++)
        if (sscanf(line, "# timeout: %d", &limit) == 1) break;
    fclose(f);
    add(r, path, base_name(folder), base_name(path), limit, true);
}

/* ------------------------------------------------------------------------------ running */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)type;
    (void)ftw;
    if (S_ISDIR(st->st_mode)) chmod(path, 0700);
    return remove(path);
}

/* In the child: becomes the test. */
static void become(const job *j) {
    const test *t = j->test;
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(j->output, 1) < 0 || dup2(j->output, 2) < 0) _exit(2);
    setenv("TMPDIR", j->tmp, 1);
    if (t->name)
        execl(t->program, t->program, t->name, (char *)NULL);
    else
        execl("/bin/bash", "bash", t->program, (char *)NULL);
    fprintf(stderr, "cannot run '%s': %s\n", t->program, strerror(errno));
    _exit(2);
}

static void start(job *j, const test *t) {
    *j = (job){.test = t, .started = now()};
    snprintf(j->tmp, sizeof j->tmp, "/tmp/gw-run-XXXXXX");
    if (!mkdtemp(j->tmp)) die("cannot make a folder like", j->tmp);
    j->output = open(j->tmp, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (j->output < 0) { /* a file system without O_TMPFILE */
        char path[96];
        snprintf(path, sizeof path, "%s.out", j->tmp);
        j->output = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (j->output < 0) die("cannot open", path);
        unlink(path);
    }
    fflush(NULL);
    j->pid = fork();
    if (j->pid < 0) die("cannot fork for", t->label);
    if (j->pid == 0) become(j);
    setpgid(j->pid, j->pid);
}

/* ------------------------------------------------------------------------------ reporting */

/* The end of a test's output, at most SHOWN_BYTES. The caller frees. */
static char *output_tail(const job *j, bool *cut) {
    off_t end = lseek(j->output, 0, SEEK_END);
    off_t from = end > SHOWN_BYTES ? end - SHOWN_BYTES : 0;
    char *text = checked(malloc(SHOWN_BYTES + 1));
    ssize_t n = pread(j->output, text, SHOWN_BYTES, from);
    text[n > 0 ? n : 0] = 0;
    *cut = from > 0;
    return text;
}

static void print_indented(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static const char *last_line(char *text) {
    size_t n = strlen(text);
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = 0;
    const char *nl = strrchr(text, '\n');
    return nl ? nl + 1 : text;
}

static void explain(char *buf, size_t size, const runner *r, const job *j, int status) {
    if (j->late)
        snprintf(buf, size, "ran past its limit of %.0f s", r->factor * j->test->limit_s);
    else if (WIFSIGNALED(status))
        snprintf(buf, size, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(buf, size, "exit status %d", WEXITSTATUS(status));
}

static void finish(runner *r, job *j, int status) {
    double seconds = now() - j->started;
    bool cut, exited = WIFEXITED(status) && !j->late;
    char *text = output_tail(j, &cut);
    if (exited && WEXITSTATUS(status) == 0) {
        r->passed++;
        if (r->verbose) {
            printf("ok %s (%.2f s)\n", j->test->label, seconds);
            print_indented(text);
        }
    } else if (exited && WEXITSTATUS(status) == EXIT_SKIPPED) {
        r->skipped++;
        const char *reason = last_line(text);
        printf("ok %s # SKIP %s\n", j->test->label, *reason ? reason : "no reason given");
    } else {
        char why[128];
        explain(why, sizeof why, r, j, status);
        r->failed++;
        printf("not ok %s - %s (%.1f s)\n", j->test->label, why, seconds);
        if (cut) printf("    ... (the end of the output)\n");
        print_indented(text);
    }
    fflush(stdout);
    free(text);
    close(j->output);
    kill(-j->pid, SIGKILL); /* what the test left running */
    nftw(j->tmp, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    j->test = NULL;
}

/* ------------------------------------------------------------------------------ the loop */

static job *job_with(runner *r, pid_t pid) {
    for (int i = 0; i < r->max_jobs; i++)
        if (pid ? r->jobs[i].test && r->jobs[i].pid == pid : !r->jobs[i].test) return &r->jobs[i];
    return NULL;
}

static void kill_late(runner *r) {
    for (int i = 0; i < r->max_jobs; i++) {
        job *j = &r->jobs[i];
        if (!j->test || (now() - j->started < r->factor * j->test->limit_s && !stop_signal))
            continue;
        j->late = true;
        kill(-j->pid, SIGKILL);
    }
}

/* Reaps whatever has ended; sleeps a little where nothing has. Returns how many ended. */
static int reap(runner *r) {
    int ended = 0, status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        job *j = job_with(r, pid);
        if (!j) continue;
        finish(r, j, status);
        ended++;
    }
    if (!ended) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return ended;
}

static void run_all(runner *r) {
    size_t next = 0;
    int running = 0;
    while (running || (next < r->count && !stop_signal)) {
        while (running < r->max_jobs && next < r->count && !stop_signal) {
            start(job_with(r, 0), &r->tests[next++]);
            running++;
        }
        running -= reap(r);
        kill_late(r);
    }
}

static void release(runner *r) {
    for (size_t i = 0; i < r->count; i++) {
        free(r->tests[i].program);
        free(r->tests[i].name);
        free(r->tests[i].label);
    }
    free(r->tests);
}

static void configure(runner *r) {
    const char *jobs = getenv("GW_TEST_JOBS"), *v = getenv("V"), *mode = getenv("GW_MODE");
    long n = jobs ? strtol(jobs, NULL, 10) : 2;
    r->max_jobs = n < 1 ? 1 : n > MAX_JOBS ? MAX_JOBS : (int)n;
    r->verbose = v && strcmp(v, "1") == 0;
    bool slow = mode && (strcmp(mode, "asan") == 0 || strcmp(mode, "tsan") == 0);
    r->factor = slow ? 5 : 1;
    /* Tests run side by side: threads that wait must not spin, nor outnumber the cores by far. */
    setenv("OMP_NUM_THREADS", "2", 0);
    setenv("OMP_WAIT_POLICY", "passive", 0);
}

int main(int argc, char **argv) {
    runner r = {0};
    configure(&r);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    for (int i = 1; i < argc; i++) {
        size_t n = strlen(argv[i]);
        if (n > 3 && strcmp(argv[i] + n - 3, ".sh") == 0)
            add_script(&r, argv[i]);
        else
            add_executable(&r, argv[i]);
    }
    run_all(&r);
    if (stop_signal) printf("stopped by a signal\n");
    const char *filter = getenv("GW_TEST_FILTER");
    if (!r.count) printf("no test matches%s%s\n", filter ? " " : "", filter ? filter : "");
    printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped);
    int code = r.failed || stop_signal || !r.count ? 1 : 0;
    release(&r);
    return code;
}
