// SPDX-License-Identifier: Apache-2.0
// A run directory: who writes into it, and what it keeps of where it began.
//
// One process at a time writes into a run directory. Two would take turns at metrics.jsonl and
// prune each other's checkpoints. The lock is flock on DIR/.lock, which the system releases however
// the process ends, so a killed run never blocks its resumption. The file goes away with the run:
// whoever gets the lock looks whether the file it holds is still the one of that name, and begins
// again if not. A file system without locks gives a warning, and the run goes on without.
//
// Locks of a file system need not hold between hosts. So the file says who holds it (process, host,
// since when), and the holder touches it every few seconds; one that finds it touched a moment ago,
// by a process of another host, is refused. The moment is told by the clock of the file system,
// which both have in common. A lock that nobody holds any more is taken over, and that is said.
//
// Where checkpoints go elsewhere (checkpoint.dir, or a link named `checkpoints`), that place is
// held in the same way: two runs with directories of their own would remove each other's commits
// there. A lock is the file's, not the name's, so one that two names lead to is taken once. An
// object store has an owner instead (owner.c).
//
// A run that began from a public model needs that model's configuration and tokenizer whenever it
// is generated from, exported or continued. Both are small, and copied at the start:
//
//   DIR/model/      config.json, and the tokenizer's files, where the run uses the model's own
//   DIR/tokenizer/  the files of data.tokenizer, where that is a tokenizer.json or holds one
//
// so that a run directory can be read when the model has moved or the machine is another. A
// .tiktoken file is not copied, since its name tells how it splits text; nor is the tokenizer
// inside a GGUF file: these two must stay where they were.
//
// Files left by a write that was killed have names that only our writers give; they are removed
// when the next run holds the lock.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/io.h"       /* gw_path_join */
#include "base/log.h"      /* gw_log_warn */
#include "base/panic.h"    /* GW_ASSERT */
#include "base/str.h"      /* gw_str_eq */
#include "file/store.h"    /* gw_store_is_url */
#include "train/owner.h"   /* gw_owner_take */
#include "train/session.h" /* this module's contract */

/* ---- the lock ---- */

enum { BEAT_S = 10, STALE_S = 120 };

/* Who holds a lock, as its file says: "PID HOST TIME". */
typedef struct owner {
    char process[32], host[96], since[40];
} owner;

static bool read_owner(int fd, owner *o) {
    char text[256] = "";
    *o = (owner){0};
    (void)!pread(fd, text, sizeof text - 1, 0);
    int n = sscanf(text, "%31s %95s %39s", o->process, o->host, o->since);
    return n >= 1 && strspn(o->process, "0123456789") == strlen(o->process);
}

static void this_host(char out[96]) {
    memset(out, 0, 96);
    if (gethostname(out, 95) != 0 || !*out) snprintf(out, 96, "?");
}

static gw_status in_use(const char *dir, int fd, int64_t age_s, const char *hint, gw_diags *dg) {
    owner o;
    char beat[64] = "";
    bool known = read_owner(fd, &o);
    if (age_s >= 0) snprintf(beat, sizeof beat, ", seen %lld s ago", (long long)age_s);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "run-in-use", (gw_where){.file = dir},
                             "the directory is in use by process %s%s%s%s%s%s",
                             known ? o.process : "(unknown)", *o.host ? " on " : "", o.host,
                             *o.since ? " since " : "", o.since, beat);
    gw_diag_hint(dg, g, "wait for that run, stop it, or %s", hint);
    return GW_ERR_USAGE;
}

/* Is the file behind fd still the one at `path`? */
static bool is_at(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* Seconds since the file was touched, by the clock of its file system; -1: that cannot be told. */
static int64_t age_of(int fd, const char *path, gw_arena *mem) {
    struct stat then, now;
    char *look = NULL;
    int other = gw_io_create_beside(mem, path, &look);
    bool told = other >= 0 && fstat(fd, &then) == 0 && fstat(other, &now) == 0;
    if (other >= 0) {
        close(other);
        unlink(look);
    }
    return told ? GW_MAX((int64_t)(now.st_mtime - then.st_mtime), INT64_C(0)) : -1;
}

static void write_owner(int fd) {
    char text[256], host[96], since[32];
    this_host(host);
    int n = snprintf(text, sizeof text, "%ld %s %s\n", (long)getpid(), host,
                     gw_clock_iso(since, gw_clock_wall()));
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        gw_log_debug("the lock does not name its owner: %s", strerror(errno));
}

/* fd is ours as far as this host's locks tell. What is in it is of a holder that ended without
 * releasing it, or of one on another host whose lock does not reach here. */
static gw_status take_over(int fd, const char *dir, const char *path, bool locks, const char *hint,
                           gw_arena *mem, gw_diags *dg) {
    owner o;
    char host[96];
    this_host(host);
    if (!read_owner(fd, &o)) return GW_OK;
    bool here = strcmp(o.host, host) == 0 || !*o.host;
    int64_t age = age_of(fd, path, mem);
    bool alive = here ? !locks && kill((pid_t)strtol(o.process, NULL, 10), 0) == 0
                      : age >= 0 && age < STALE_S;
    if (alive) return in_use(dir, fd, age, hint, dg);
    gw_log_info("%s: the lock of process %s%s%s is stale (it ended without releasing it) and taken "
                "over",
                dir, o.process, *o.host ? " on " : "", o.host);
    return GW_OK;
}

void gw_run_beat(int lock, int64_t *last_ns) {
    int64_t now = gw_clock_ns();
    if (lock < 0 || (*last_ns != 0 && now - *last_ns < BEAT_S * INT64_C(1000000000))) return;
    *last_ns = now;
    (void)!futimens(lock, NULL); /* a sign that is missed is made up for by the next */
}

/* hint: what else than waiting there is to do for one that comes second. */
static gw_status lock_dir(const char *dir, const char *hint, int *lock, gw_diags *dg) {
    gw_arena mem = {0};
    const char *path = gw_path_join(&mem, dir, ".lock");
    gw_status st = GW_OK;
    *lock = -1;
    for (int fd = -1; st == GW_OK && fd < 0;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) {
            st = GW_FAIL(dg, GW_ERR_IO, "file-create", "cannot create '%s': %s", path,
                         strerror(errno));
        } else if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (is_at(fd, path)) st = take_over(fd, dir, path, true, hint, &mem, dg);
            if (st == GW_OK && is_at(fd, path)) write_owner(*lock = fd);
        } else if (errno == EWOULDBLOCK) {
            st = in_use(dir, fd, -1, hint, dg);
        } else {
            gw_log_warn("'%s' cannot be locked (%s): see that no other run writes there", dir,
                        strerror(errno));
            st = take_over(fd, dir, path, false, hint, &mem, dg);
            if (st == GW_OK) write_owner(*lock = fd);
        }
        if (fd >= 0 && *lock < 0) {
            close(fd);
            fd = -1;
        }
    }
    gw_arena_release(&mem);
    return st;
}

gw_status gw_run_lock(const char *dir, int *lock, gw_diags *dg) {
    return lock_dir(dir, "choose another directory with --out", lock, dg);
}

void gw_run_unlock(const char *dir, int lock) {
    if (lock < 0) return;
    gw_arena mem = {0};
    const char *path = gw_path_join(&mem, dir, ".lock");
    if (is_at(lock, path)) unlink(path);
    close(lock);
    gw_arena_release(&mem);
}

/* ---- the place of checkpoints ---- */

static bool same_dir(const char *x, const char *y) {
    struct stat a, b;
    return stat(x, &a) == 0 && stat(y, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static gw_status hold_one(gw_run_hold *h, const char *run_dir, const char *dir, gw_diags *dg) {
    if (!gw_path_is_dir(dir) || same_dir(dir, run_dir)) return GW_OK;
    for (int i = 0; i < h->n; i++)
        if (same_dir(dir, h->dir[i])) return GW_OK;
    GW_ASSERT(h->n < GW_RUN_PLACES);
    GW_TRY(lock_dir(dir, "give each run its own checkpoint.dir", &h->lock[h->n], dg));
    h->dir[h->n] = memcpy(gw_mem_alloc(strlen(dir) + 1), dir, strlen(dir) + 1);
    h->beat_ns[h->n++] = 0;
    return GW_OK;
}

gw_status gw_run_hold_checkpoints(gw_run_hold *h, const char *run_dir, const char *place,
                                  gw_diags *dg) {
    struct stat st;
    gw_arena mem = {0};
    gw_run_hold before = *h;
    if (gw_str_starts(place, "s3://"))
        return h->owner ? GW_OK : gw_owner_take(&h->owner, place, NULL, dg);
    if (gw_store_is_url(place)) return GW_OK; /* where nothing can be written */
    const char *folder = gw_path_join(&mem, place, "checkpoints");
    gw_status s = hold_one(h, run_dir, place, dg);
    if (s == GW_OK && lstat(folder, &st) == 0 && S_ISLNK(st.st_mode))
        s = hold_one(h, run_dir, folder, dg);
    while (s != GW_OK && h->n > before.n) {
        gw_run_unlock(h->dir[h->n - 1], h->lock[h->n - 1]);
        gw_mem_free(h->dir[--h->n]);
    }
    gw_arena_release(&mem);
    return s;
}

void gw_run_hold_beat(gw_run_hold *h) {
    for (int i = 0; i < h->n; i++) gw_run_beat(h->lock[i], &h->beat_ns[i]);
}

gw_status gw_run_hold_check(const gw_run_hold *h, gw_diags *dg) {
    return gw_owner_check(h->owner, dg);
}

void gw_run_release(gw_run_hold *h) {
    gw_owner_release(h->owner);
    for (int i = 0; i < h->n; i++) {
        gw_run_unlock(h->dir[i], h->lock[i]);
        gw_mem_free(h->dir[i]);
    }
    *h = (gw_run_hold){0};
}

const char *gw_session_checkpoints(const gw_runfile *rf, const char *run_dir) {
    return rf->checkpoint.dir && *rf->checkpoint.dir ? rf->checkpoint.dir : run_dir;
}

const char *gw_session_checkpoints_of(const char *run_dir, gw_arena *a) {
    gw_runfile rf;
    gw_diags faults;
    const char *config = gw_path_join(a, run_dir, "config.yaml"), *at = run_dir;
    if (!gw_path_exists(config)) return run_dir;
    gw_diags_init(&faults); /* whatever else is wrong with it is not asked here */
    if (gw_runfile_load(&rf, config, NULL, 0, &faults) == GW_OK)
        at = gw_arena_strdup(a, gw_session_checkpoints(&rf, run_dir));
    gw_runfile_release(&rf);
    gw_diags_release(&faults);
    return at;
}

/* ---- leftovers ---- */

void gw_run_clean(const char *dir) {
    static const char *const files[] = {"config.yaml",  "plan.json",  "metrics.jsonl",
                                        "summary.json", "trace.json", "report.html"};
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        for (size_t i = 0; i < GW_COUNT(files); i++) {
            size_t n = strlen(files[i]);
            if (gw_str_starts(e->d_name, files[i]) && gw_str_starts(e->d_name + n, ".tmp-"))
                unlinkat(dirfd(d), e->d_name, 0);
        }
    closedir(d);
}

/* ---- copies ---- */

static bool overridden(const gw_runfile *rf, const char *key) {
    const char *file = gw_runfile_where(rf, key).file;
    return file && gw_str_starts(file, "--set");
}

void gw_session_use_copies(gw_runfile *rf, const char *run_dir, bool always) {
    gw_arena *a = &rf->arena;
    const char *model = gw_path_join(a, run_dir, "model");
    const char *tokenizer = gw_path_join(a, run_dir, "tokenizer");
    if (rf->model.source == GW_RF_PATH && !overridden(rf, "model.path") &&
        gw_path_exists(gw_path_join(a, model, "config.json"))) {
        /* A GGUF file has its tokenizer inside, which the copy has not. */
        bool prefer = always && !gw_str_ends(rf->model.path, ".gguf");
        if (prefer || !gw_path_exists(rf->model.path)) rf->model.path = model;
    }
    if (rf->data.tokenizer && !gw_str_eq(rf->data.tokenizer, "bytes") &&
        !overridden(rf, "data.tokenizer") &&
        gw_path_exists(gw_path_join(a, tokenizer, "tokenizer.json")) &&
        (always || !gw_path_exists(rf->data.tokenizer)))
        rf->data.tokenizer = tokenizer;
}

/* Copies a file, unless the copy is there and equal. */
static gw_status copy(const char *from, const char *to, gw_diags *dg) {
    enum { MOST = 1 << 30 };
    gw_str is = {0}, was = {0};
    gw_status st = gw_file_read(from, MOST, &is, dg);
    bool same = st == GW_OK && gw_path_exists(to) && gw_file_read(to, MOST, &was, NULL) == GW_OK &&
                was.len == is.len && memcmp(gw_str_c(&was), gw_str_c(&is), is.len) == 0;
    if (st == GW_OK && !same) st = gw_file_write_atomic(to, gw_str_c(&is), (int64_t)is.len, dg);
    gw_str_release(&is);
    gw_str_release(&was);
    return st;
}

/* The files that stand beside a tokenizer.json, `first` being that one; absent ones are left out.
 */
static gw_status copy_tokenizer(const char *first, const char *dir, const char *to, gw_arena *mem,
                                gw_diags *dg) {
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "generation_config.json", "chat_template.jinja"};
    GW_TRY(gw_dir_make(to, dg));
    GW_TRY(copy(first, gw_path_join(mem, to, "tokenizer.json"), dg));
    for (size_t i = 0; i < GW_COUNT(beside); i++) {
        const char *from = gw_path_join(mem, dir, beside[i]);
        if (gw_path_exists(from)) GW_TRY(copy(from, gw_path_join(mem, to, beside[i]), dg));
    }
    return GW_OK;
}

static gw_status keep_tokenizer(const gw_runfile *rf, const char *run_dir, gw_arena *mem,
                                gw_diags *dg) {
    const char *t = rf->data.tokenizer, *to = gw_path_join(mem, run_dir, "tokenizer");
    if (!t || gw_str_eq(t, "bytes")) return GW_OK;
    if (gw_path_is_dir(t)) {
        const char *first = gw_path_join(mem, t, "tokenizer.json");
        return gw_path_exists(first) ? copy_tokenizer(first, t, to, mem, dg) : GW_OK;
    }
    if (!gw_str_ends(t, ".json")) return GW_OK;
    const char *slash = strrchr(t, '/');
    const char *dir = slash ? gw_arena_strndup(mem, t, (size_t)(slash - t) + 1) : ".";
    return copy_tokenizer(t, dir, to, mem, dg);
}

static gw_status keep_model(const gw_runfile *rf, const char *run_dir, gw_arena *mem,
                            gw_diags *dg) {
    const char *path = rf->model.path, *to = gw_path_join(mem, run_dir, "model");
    if (rf->model.source != GW_RF_PATH) return GW_OK;
    GW_TRY(gw_dir_make(to, dg));
    if (gw_str_ends(path, ".gguf")) {
        gw_hf_config *c = gw_mem_zalloc(sizeof *c);
        gw_status st = gw_setup_read_config(path, c, NULL);
        if (st == GW_OK) st = gw_hf_config_write(c, to, dg);
        gw_mem_free(c);
        return st;
    }
    GW_TRY(copy(gw_path_join(mem, path, "config.json"), gw_path_join(mem, to, "config.json"), dg));
    const char *first = gw_path_join(mem, path, "tokenizer.json");
    if (rf->data.tokenizer || !gw_path_exists(first)) return GW_OK;
    return copy_tokenizer(first, path, to, mem, dg);
}

gw_status gw_session_keep_copies(const gw_runfile *rf, const char *run_dir, gw_diags *dg) {
    gw_arena mem = {0};
    gw_status st = keep_model(rf, run_dir, &mem, dg);
    if (st == GW_OK) st = keep_tokenizer(rf, run_dir, &mem, dg);
    if (st != GW_OK) gw_diag_frame(dg, "keeping a copy of what the run begins from");
    gw_arena_release(&mem);
    return st;
}
