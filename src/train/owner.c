// SPDX-License-Identifier: Apache-2.0
// The owner of a place of checkpoints in an object store.
//
// A store has no locks, but it has puts with a condition, of which one of several wins. So the
// owner is an object: put where there is none (If-None-Match), put over the version that was looked
// at (If-Match) to renew it or to take it over, and removed at the end. Each renewal makes another
// version, so a holder whose object is not the version that it put has lost the place, and finds
// that out with its next renewal at the latest; the run then ends before its next step, and before
// it commits what it has.
//
// Whether a holder lives is told by the age of its object: the store's date of it against the
// store's clock, so that clocks of hosts play no part. A process of this machine is asked for
// directly, which is how a run that was killed goes on at once. That two containers have one name
// and processes of one number is no mistake to make: the number counts where boot and namespace are
// the same, and the process began at the same tick.
//
// A store that ignores conditions replaces the object. Two runs that begin within the same moment
// then both take the place for theirs; the one whose object was replaced sees another's mark with
// its next renewal, and ends. Renewals look before they put, so they do not replace it back.
//
// A renewal may take as long as the store lets it. It has a thread of its own, so no step waits.
// While the store does not answer the run goes on; that its lease has run out meanwhile is said.
#include "train/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns, gw_clock_iso */
#include "base/log.h"   /* gw_log_info */
#include "base/str.h"   /* gw_str */
#include "file/json.h"  /* gw_json_parse */
#include "file/store.h" /* gw_store */

enum { ROUNDS = 8, MOST_LEASE_S = 86400 };

static const char KEY[] = "owner.json";

struct gw_owner {
    gw_store *store;
    gw_arena mem;
    const char *url;
    gw_owner_note note;
    double renew_s;
    char version[GW_STORE_ETAG]; /* that this process put; of the thread once it runs */
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends; /* under the lock */
    _Atomic bool lost;
    char by[160]; /* to whom; written before `lost` */
};

/* ---- what it says ---- */

gw_status gw_owner_parse(const char *text, size_t n, gw_arena *a, gw_owner_note *out,
                         gw_diags *dg) {
    json_t *o = NULL;
    *out = (gw_owner_note){.host = "",
                           .since = "",
                           .machine = "",
                           .mark = "",
                           .pid = -1,
                           .begun = -1,
                           .lease_s = GW_OWNER_LEASE_S};
    GW_TRY(gw_json_parse(text, n, KEY, &o, dg));
    const char **texts[] = {&out->host, &out->since, &out->machine, &out->mark};
    static const char *const names[] = {"host", "since", "machine", "mark"};
    bool fits = json_is_object(o) && gw_json_as_i64(json_object_get(o, "pid"), &out->pid) &&
                out->pid >= 0 && out->pid <= INT32_MAX;
    for (size_t i = 0; fits && i < GW_COUNT(names); i++) {
        const char *s = json_string_value(json_object_get(o, names[i]));
        if (s) *texts[i] = gw_arena_strdup(a, s);
    }
    if (fits && (!gw_json_as_i64(json_object_get(o, "begun"), &out->begun) || out->begun < 0))
        out->begun = -1;
    int64_t lease;
    if (fits && gw_json_as_i64(json_object_get(o, "lease_s"), &lease))
        out->lease_s = GW_MIN(GW_MAX(lease, INT64_C(1)), (int64_t)MOST_LEASE_S);
    json_decref(o);
    if (fits) return GW_OK;
    out->pid = -1;
    return GW_FAIL(dg, GW_ERR_FORMAT, "store-response", "%s does not say who it is", KEY);
}

static void print_note(const gw_owner_note *note, gw_str *out) {
    json_t *o = json_pack("{s:I, s:o, s:s, s:o, s:I, s:s, s:I}", "pid", (json_int_t)note->pid,
                          "host", gw_json_text(note->host), "since", note->since, "machine",
                          gw_json_text(note->machine), "begun", (json_int_t)note->begun, "mark",
                          note->mark, "lease_s", (json_int_t)note->lease_s);
    char now[32];
    json_object_set_new(o, "renewed", json_string(gw_clock_iso(now, gw_clock_wall())));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    gw_str_add(out, text ? text : "{}");
    gw_str_add_char(out, '\n');
    free(text);
    json_decref(o);
}

/* ---- processes of this machine ---- */

/* The tick at which a process began; -1: there is none that runs. */
static int64_t begun_of(int64_t pid) {
    char path[40], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    /* Its name, in parentheses, may hold anything; 19 fields follow, the first its state, then the
     * one. One that has ended and is not waited for yet is none. */
    const char *at = n > 0 ? strrchr(text, ')') : NULL;
    if (at && (gw_str_starts(at, ") Z") || gw_str_starts(at, ") X"))) return -1;
    for (int i = 0; at && i < 20; i++) {
        at = strchr(at + 1, ' ');
        if (!at) return -1;
    }
    return at ? strtoll(at + 1, NULL, 10) : -1;
}

/* Of the boot and of what process numbers mean; "" where that cannot be told. */
static const char *this_machine(gw_arena *a) {
    char boot[64] = "", space[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
    if (fd >= 0) close(fd);
    ssize_t k = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (n <= 0 || k <= 0) return "";
    boot[strcspn(boot, "\n")] = 0;
    return gw_arena_printf(a, "%s %s", boot, space);
}

/* Did a process of this machine hold it that is no more? */
static bool has_ended(const gw_owner_note *note, const char *machine) {
    if (!*machine || strcmp(note->machine, machine) != 0 || note->begun < 0) return false;
    return begun_of(note->pid) != note->begun;
}

/* ---- the object ---- */

typedef struct seen {
    bool there;
    char version[GW_STORE_ETAG];
    gw_owner_note note;
    double age_s; /* since it was put, by the store's clock */
} seen;

/* An object that changes while it is looked at is looked at again by the caller. */
static gw_status look(gw_store *store, gw_arena *a, seen *out, gw_diags *dg) {
    gw_store_entry e;
    char text[GW_OWNER_MOST_BYTES];
    *out = (seen){0};
    GW_TRY(gw_store_stat(store, KEY, a, &e, &out->there, dg));
    if (!out->there) return GW_OK;
    snprintf(out->version, sizeof out->version, "%s", e.etag);
    double now = e.now > 0 ? e.now : gw_clock_wall();
    out->age_s = e.modified > 0 ? GW_MAX(now - e.modified, 0.0) : 0;
    int64_t n = GW_MIN(e.bytes, (int64_t)sizeof text);
    gw_status st = gw_store_get(store, KEY, e.etag, 0, n, text, dg);
    /* What does not read is somebody's all the same, until its lease has run out. */
    if (st == GW_OK) (void)!gw_owner_parse(text, (size_t)n, a, &out->note, NULL);
    return st;
}

static const char *name_of(const gw_owner_note *n, gw_arena *a) {
    if (n->pid < 0) return "an unknown process";
    return gw_arena_printf(a, "process %" PRId64 "%s%s", n->pid, *n->host ? " on " : "", n->host);
}

static gw_status in_use(const char *url, const seen *s, gw_arena *a, gw_diags *dg) {
    const gw_owner_note *n = &s->note;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "run-in-use", (gw_where){.file = url},
                             "the place is in use by %s%s%s, seen %.0f s ago", name_of(n, a),
                             *n->since ? " since " : "", n->since, s->age_s);
    gw_diag_hint(dg, g,
                 "wait for that run, stop it, or give each run its own checkpoint.dir; if it is "
                 "gone, its %s may be taken over in %.0f s",
                 KEY, GW_MAX((double)n->lease_s - s->age_s, 0.0) + 1);
    return GW_ERR_USAGE;
}

/* May what was seen be taken over? Says why in words. */
static bool is_stale(const seen *s, const char *machine, const char **why) {
    *why = "it ended without releasing it";
    if (has_ended(&s->note, machine)) return true;
    *why = "its lease ran out";
    return s->age_s > (double)s->note.lease_s;
}

static gw_status put(gw_owner *o, const char *over, bool *won, gw_diags *dg) {
    gw_str text = {0};
    char version[GW_STORE_ETAG];
    print_note(&o->note, &text);
    gw_status st = gw_store_put_over(o->store, KEY, over, gw_str_c(&text), (int64_t)text.len, won,
                                     version, dg);
    if (st == GW_OK && *won) memcpy(o->version, version, sizeof version);
    gw_str_release(&text);
    return st;
}

/* One that is put anew, or removed, while it is looked at is no fault. */
static gw_status look_again(gw_owner *o, seen *s, gw_diags *dg) {
    if (look(o->store, &o->mem, s, NULL) == GW_OK) return GW_OK;
    return look(o->store, &o->mem, s, dg);
}

static gw_status acquire(gw_owner *o, gw_diags *dg) {
    for (int i = 0; i < ROUNDS; i++) {
        seen s;
        bool won = false;
        const char *why = NULL;
        GW_TRY(look_again(o, &s, dg));
        if (s.there && !is_stale(&s, o->note.machine, &why)) return in_use(o->url, &s, &o->mem, dg);
        GW_TRY(put(o, s.there ? s.version : "", &won, dg));
        if (won && s.there)
            gw_log_info("%s: the hold of %s is stale (%s) and taken over", o->url,
                        name_of(&s.note, &o->mem), why);
        if (won) return GW_OK;
    }
    return GW_FAIL(dg, GW_ERR_USAGE, "run-in-use", "'%s' is being taken by others at the same time",
                   o->url);
}

/* ---- keeping it ---- */

/* GW_OK also when it is lost: nothing more is to be done then. */
static gw_status renew(gw_owner *o, gw_arena *a, gw_diags *dg) {
    seen s;
    bool won = false;
    GW_TRY(look(o->store, a, &s, dg));
    if (s.there && strcmp(s.note.mark, o->note.mark) != 0) {
        snprintf(o->by, sizeof o->by, "%s", name_of(&s.note, a));
        atomic_store(&o->lost, true);
        return GW_OK;
    }
    /* Where it was removed by hand it is put again. */
    GW_TRY(put(o, s.there ? s.version : "", &won, dg));
    return won ? GW_OK : GW_ERR_IO; /* another came between: the next look tells who */
}

/* Until it is due, or the end. With the lock. */
static bool rest(gw_owner *o, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!o->ends && pthread_cond_timedwait(&o->changed, &o->lock, &until) != ETIMEDOUT) continue;
    return !o->ends;
}

static void *keep(void *owner) {
    gw_owner *o = owner;
    int64_t good = gw_clock_ns();
    bool said = false;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals are other threads' matter */
    pthread_mutex_lock(&o->lock);
    for (double wait = o->renew_s; !atomic_load(&o->lost) && rest(o, wait);) {
        gw_arena a = {0};
        gw_diags faults;
        pthread_mutex_unlock(&o->lock);
        gw_diags_init(&faults);
        int64_t asked = gw_clock_ns();
        gw_status st = renew(o, &a, &faults);
        if (st == GW_OK) {
            good = asked;
            said = false;
        }
        wait = st == GW_OK ? o->renew_s : o->renew_s / 8;
        double old = (double)(gw_clock_ns() - good) * 1e-9;
        if (st != GW_OK && !said && old > (double)o->note.lease_s) {
            gw_log_warn("%s: the hold of this run was not renewed for %.0f s, and another run may "
                        "take it over: %s",
                        o->url, old, gw_diags_first_error(&faults));
            said = true;
        }
        gw_diags_release(&faults);
        gw_arena_release(&a);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

gw_status gw_owner_check(const gw_owner *o, gw_diags *dg) {
    if (!o || !atomic_load(&o->lost)) return GW_OK;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "checkpoint-taken", (gw_where){.file = o->url},
                    "the place of checkpoints was taken over by %s", o->by);
    gw_diag_hint(dg, g,
                 "this run was not seen for a while, or two began at once; give each its own "
                 "checkpoint.dir");
    return GW_ERR_IO;
}

/* ---- begin and end ---- */

static void write_note(gw_owner *o, const gw_owner_options *options) {
    char host[96] = "", since[32];
    double lease = options && options->lease_s > 0 ? options->lease_s : GW_OWNER_LEASE_S;
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "?");
    int64_t pid = (int64_t)getpid(), begun = begun_of(pid);
    o->renew_s = options && options->renew_s > 0 ? options->renew_s : GW_OWNER_RENEW_S;
    o->note = (gw_owner_note){
        .pid = pid,
        .host = gw_arena_strdup(&o->mem, host),
        .since = gw_arena_strdup(&o->mem, gw_clock_iso(since, gw_clock_wall())),
        .machine = this_machine(&o->mem),
        .begun = begun,
        .mark = gw_arena_printf(&o->mem, "%016" PRIx64 "-%" PRIx64 "-%" PRIx64,
                                (uint64_t)gw_clock_ns() * UINT64_C(0x9e3779b97f4a7c15),
                                (uint64_t)begun, (uint64_t)(uintptr_t)o),
        .lease_s = (int64_t)GW_MAX(lease, 1.0)};
}

static gw_status start(gw_owner *o, gw_diags *dg) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    o->runs = pthread_create(&o->thread, NULL, keep, o) == 0;
    if (o->runs) return GW_OK;
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
    return GW_FAIL(dg, GW_ERR_MEMORY, "checkpoint-thread",
                   "cannot start the thread that holds '%s'", o->url);
}

static void leave(gw_owner *o) {
    seen s;
    if (!*o->version || atomic_load(&o->lost)) return;
    if (look(o->store, &o->mem, &s, NULL) != GW_OK || !s.there) return;
    if (strcmp(s.note.mark, o->note.mark) == 0) (void)!gw_store_delete(o->store, KEY, NULL);
}

void gw_owner_release(gw_owner *o) {
    if (!o) return;
    if (o->runs) {
        pthread_mutex_lock(&o->lock);
        o->ends = true;
        pthread_cond_signal(&o->changed);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
        pthread_mutex_destroy(&o->lock);
        pthread_cond_destroy(&o->changed);
    }
    if (o->store) leave(o);
    gw_store_free(o->store);
    gw_arena_release(&o->mem);
    gw_mem_free(o);
}

gw_status gw_owner_take(gw_owner **out, const char *url, const gw_owner_options *options,
                        gw_diags *dg) {
    gw_owner *o = gw_mem_zalloc(sizeof *o);
    *out = NULL;
    o->url = gw_arena_strdup(&o->mem, url);
    write_note(o, options);
    gw_status st = gw_store_open(url, NULL, &o->store, dg);
    if (st == GW_OK) st = acquire(o, dg);
    if (st == GW_OK) st = start(o, dg);
    if (st != GW_OK) {
        gw_diag_frame(dg, "taking hold of '%s'", url);
        gw_owner_release(o);
        return st;
    }
    *out = o;
    return GW_OK;
}
