// SPDX-License-Identifier: Apache-2.0
// Waiting for another rank, and finding out why it does not come.
//
// A wait has three speeds. It first looks again and again for some microseconds, if each rank has a
// core of its own (a thread that spins on a core that another rank needs would cost more than it
// wins). Then it arms its doorbell and sleeps on it (a futex), in slices of at most 50 ms. After
// each slice it asks whether there is still something to wait for. A wait ends badly when
//
//   stopped    another rank has already found a fault: it told, this one only returns
//   ended      the rank waited for has died, or left, or aborted
//   mismatch   it is in the same collective by number, but calls something else
//   late       it has shown no sign of life for the timeout plus four times the longest silence
//              that either of the two has had between two ops (an op may take seconds and is not a
//              fault; ranks of a pipeline have different ops), or the kernel says that its process
//              is stopped; one that declared itself busy has until its own limit, but one that is
//              stopped is not busy, whatever it declared
//   circle     it waits for a rank that waits ... for this one, and nobody has moved for a timeout,
//              though no process among them is stopped: that one is late, and its waiter says so
//
// A rank that waits is alive, and says so in each slice; so in a chain of waiting ranks only the
// one who waits for the culprit finds it late. Time counts as long as this process can see it pass:
// a slice that took far longer than asked means that we were ourselves stopped (Ctrl-Z, a busy
// machine), and counts only as a slice.
//
// The first to find a fault is elected by a compare-and-swap and writes the one line; then all
// doors are rung. The bell is rung only for those who sleep: the sleeper stores `sleeping` and
// looks at its condition again, the ringer stores the condition and looks at `sleeping`, both
// sequentially consistent, so one of them sees the other.
#include <linux/futex.h>
#include <signal.h> /* SIGKILL */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/log.h"   /* gw_log_get_level */
#include "comm/shm_impl.h"

enum { SPIN_NS = 40 * 1000, SPINS_PER_LOOK = 32 };
static const int64_t MS = 1000 * 1000;

void gw_shm_ring(gw_shm_rank *r) {
    if (!atomic_load(&r->sleeping)) return;
    atomic_fetch_add(&r->bell, 1);
    syscall(SYS_futex, &r->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int64_t gw_shm_slice_ns(const gw_shm_segment *seg) {
    int64_t slice = seg->timeout_ns / 8;
    return slice < 2 * MS ? 2 * MS : slice > 50 * MS ? 50 * MS : slice;
}

/* ------------------------------------------------------------------------------ the one line */

gw_status gw_shm_stopped(gw_shm *s, gw_diags *dg) {
    s->failed = true;
    const char *why = "";
    int who = gw_shm_world_reporter(s->w, &why);
    if (who >= 0 && who != s->rank && gw_log_get_level() >= GW_LOG_DEBUG)
        gw_diag_add(dg, GW_NOTE, GW_ERR_PEER, "peer-stopped", (gw_where){0},
                    "rank %d stopped because rank %d reported: %s", s->rank, who, why);
    return GW_ERR_PEER;
}

gw_status gw_shm_fail(gw_shm *s, gw_diags *dg, const char *id, const char *fmt, ...) {
    int32_t none = 0;
    if (gw_requests_ending(s->w->requests) != 0 ||
        !atomic_compare_exchange_strong(&s->seg->reporter, &none, s->rank + 1))
        return gw_shm_stopped(s, dg);
    char text[sizeof s->mine->reason];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gw_diag_add(dg, GW_ERROR, GW_ERR_PEER, id, (gw_where){0}, "%s", text);
    s->failed = true;
    gw_shm_give_up(s->w, s->rank, text);
    return GW_ERR_PEER;
}

/* "collective 12, all-reduce f32 8 of x" or "message 3, activations of ...", of this rank. */
static const char *current(const gw_shm *s, char buf[160]) {
    const char *verb_end = strchr(s->text, ' ');
    if (s->message)
        snprintf(buf, 160, "message %llu, %s%s", (unsigned long long)s->seq,
                 verb_end ? verb_end + 1 : s->text, s->full ? " (no place is free)" : "");
    else if (s->text[0])
        snprintf(buf, 160, "collective %llu, %s", (unsigned long long)s->seq, s->text);
    else
        snprintf(buf, 160, "an exchange outside any collective");
    return buf;
}

/* What a rank last did, for people. */
static const char *last_of(const gw_shm *s, int who, char buf[200]) {
    const gw_flight *f = &s->w->ranks[who].flight, *g = &s->w->ranks[who].messages;
    gw_flight_mark m, n;
    bool call = gw_flight_read(f, gw_flight_count(f), &m);
    bool message = gw_flight_read(g, gw_flight_count(g), &n);
    if (message && (!call || n.start_ns > m.start_ns))
        m = n;
    else
        message = false;
    if (!call && !message)
        snprintf(buf, 200, "it has called no collective");
    else
        snprintf(buf, 200, "its last is %s%llu, %s (%s)", message ? "message " : "",
                 (unsigned long long)m.seq, m.text, m.end_ns ? "done" : "not done");
    return buf;
}

/* " in forward of micro-batch 3 ..." and what follows it, if the rank has said so. */
static const char *doing_of(const gw_shm *s, int who, const char *after, char buf[112]) {
    char text[8 * GW_SHM_DOING_WORDS];
    gw_words_load(s->w->ranks[who].doing, GW_SHM_DOING_WORDS, text);
    buf[0] = 0;
    if (text[0]) snprintf(buf, 112, " in %s%s", text, after);
    return buf;
}

/* Is `who` inside the collective, or at its side of the message, that we are in? */
static bool has_reached(const gw_shm *s, int who) {
    const gw_flight *f = s->message ? &s->w->ranks[who].messages : &s->w->ranks[who].flight;
    gw_flight_mark m;
    return gw_flight_read(f, gw_flight_count(f), &m) && m.group == s->group && m.seq == s->seq &&
           m.end_ns == 0;
}

/* "rank 1" or "ranks 1, 3": all of the group that have not signalled, if that is what we wait for.
 */
static const char *missing(const gw_shm *s, const gw_shm_waiting *w, char buf[96]) {
    int n = 0, at = 0;
    char list[80] = "";
    bool flat = w->sync && w->g->size <= GW_SHM_FLAT_SYNC;
    for (int i = 0; flat && i < w->g->size; i++) {
        int r = w->g->ranks[i];
        if (r == s->rank || (w->heard >> i & 1u) ||
            atomic_load(&gw_shm_pair_at(s, r, s->rank)->signals) > s->heard[r])
            continue;
        at += snprintf(list + at, sizeof list - (size_t)at, n ? ", %d" : "%d", r);
        n++;
    }
    if (n < 2) snprintf(list, sizeof list, "%d", w->who);
    snprintf(buf, 96, n < 2 ? "rank %s" : "ranks %s", list);
    return buf;
}

static gw_status fail_late(gw_shm *s, const gw_shm_waiting *w, bool stopped, gw_diags *dg) {
    char now[160], last[200], who[96], doing[112];
    const gw_shm_rank *r = &s->w->ranks[w->who];
    char what[8 * GW_SHM_TEXT_WORDS] = "", busy[80] = "";
    gw_words_load(r->busy, GW_SHM_TEXT_WORDS, what);
    if (atomic_load(&r->busy_until_ns)) snprintf(busy, sizeof busy, "busy with %.60s, ", what);
    double silent = 1e-9 * (double)(gw_clock_ns() - atomic_load(&r->alive_ns));
    gw_status st = gw_shm_fail(
        s, dg, "peer-late",
        "%s %s %s within %.1f s of rank %d%s; no sign of life of rank %d for %.1f s%s, %s%s",
        missing(s, w, who), has_reached(s, w->who) ? "did not go on in" : "did not reach",
        current(s, now), 1e-9 * (double)w->total_ns, s->rank,
        stopped ? ": its process is stopped by a signal" : "", w->who, silent,
        doing_of(s, w->who, "", doing), busy, last_of(s, w->who, last));
    if (dg && dg->last && strcmp(dg->last->id, "peer-late") == 0) /* this rank is the reporter */
        gw_diag_hint(dg, dg->last, "%s, raise the timeout (layout.timeout of a run file)",
                     stopped ? "stop and continue all ranks together; if one may pause for longer"
                             : "if the rank only works for long");
    return st;
}

static gw_status fail_ended(gw_shm *s, const gw_shm_waiting *w, gw_diags *dg) {
    const gw_shm_rank *r = &s->w->ranks[w->who];
    char now[160], last[200], how[64], doing[112];
    int sig = atomic_load(&r->signal);
    bool left = atomic_load(&r->state) == GW_SHM_LEFT;
    if (sig)
        snprintf(how, sizeof how, "was killed by signal %d (SIG%s%s)", sig,
                 sigabbrev_np(sig) ? sigabbrev_np(sig) : "?",
                 sig == SIGKILL ? "; out of memory?" : "");
    else if (left)
        snprintf(how, sizeof how, "has left");
    else
        snprintf(how, sizeof how, "ended with exit code %d", atomic_load(&r->exit_code));
    return gw_shm_fail(s, dg, left ? "peer-left" : "peer-dead",
                       "rank %d %s%s and is missing in %s, where rank %d waited for it; %s", w->who,
                       how, doing_of(s, w->who, ",", doing), current(s, now), s->rank,
                       last_of(s, w->who, last));
}

static gw_status fail_mismatch(gw_shm *s, int who, const gw_flight_mark *m, gw_diags *dg) {
    char theirs[112], ours[112];
    return gw_shm_fail(
        s, dg, "peer-mismatch",
        "the ranks do not call the same: rank %d calls %s (collective %llu)%s while rank "
        "%d calls %s (collective %llu)%s",
        who, m->text, (unsigned long long)m->seq, doing_of(s, who, "", theirs), s->rank,
        s->text[0] ? s->text : "nothing", (unsigned long long)s->seq,
        doing_of(s, s->rank, "", ours));
}

gw_status gw_shm_compare(gw_shm *s, int who, uint64_t check, uint64_t number, gw_diags *dg) {
    if (GW_LIKELY(check == s->check)) return GW_OK;
    gw_flight_mark m;
    if (!gw_flight_read(&s->w->ranks[who].flight, number, &m))
        m = (gw_flight_mark){.text = "something it no longer knows"};
    return fail_mismatch(s, who, &m, dg);
}

/* ------------------------------------------------------------------------------ looking around */

/* The latest collective of `who` has our number in our group, but is another. */
static gw_status look_at_mark(gw_shm *s, int who, gw_diags *dg) {
    const gw_flight *f = &s->w->ranks[who].flight;
    gw_flight_mark m;
    if (!s->text[0] || !gw_flight_read(f, gw_flight_count(f), &m)) return GW_OK;
    if (m.group != s->group || m.seq != s->seq || m.signature == s->check) return GW_OK;
    return fail_mismatch(s, who, &m, dg);
}

/* Follows who waits for whom. A circle that this rank is part of has a state (how often each of its
 * ranks went to sleep); 0 when there is none. */
static uint64_t circle_state(const gw_shm *s, int who) {
    uint64_t state = 1;
    for (int i = 0; i < s->ranks; i++) {
        const gw_shm_rank *r = &s->w->ranks[who];
        uint64_t part[2] = {atomic_load(&r->waits), (uint64_t)who};
        state = gw_hash64(part, sizeof part, state);
        if (who == s->rank) return state | 1;
        who = atomic_load(&r->waiting_on);
        if (who < 0) return 0;
    }
    return 0;
}

static char process_state(const gw_shm *s, int who) {
    return s->seg->threads ? 'R' : gw_process_state(atomic_load(&s->w->ranks[who].pid));
}

static bool is_stopped(char state) { return state == 'T' || state == 't'; }

/* Is a process in the circle of `who` stopped? */
static bool circle_is_stopped(const gw_shm *s, int who) {
    for (int i = 0; i < s->ranks && who >= 0 && who != s->rank; i++) {
        if (is_stopped(process_state(s, who))) return true;
        who = atomic_load(&s->w->ranks[who].waiting_on);
    }
    return false;
}

static gw_status look_for_circle(gw_shm *s, gw_shm_waiting *w, int64_t dt, gw_diags *dg) {
    uint64_t state = circle_state(s, w->who);
    if (state == 0 || state != w->cycle) {
        w->cycle = state;
        w->cycle_ns = 0;
        return GW_OK;
    }
    w->cycle_ns += dt;
    if (w->cycle_ns < s->seg->timeout_ns || circle_is_stopped(s, w->who)) return GW_OK;
    char now[160], last[200], theirs[112], ours[112];
    return gw_shm_fail(
        s, dg, "peer-mismatch",
        "the ranks wait for one another: rank %d%s waits for rank %d in %s; of rank %d%s, "
        "%s",
        s->rank, doing_of(s, s->rank, ",", ours), w->who, current(s, now), w->who,
        doing_of(s, w->who, "", theirs), last_of(s, w->who, last));
}

/* Ended: not before the condition has been looked at once more, as it may have ended after its
 * part. */
static gw_status look_at_state(gw_shm *s, gw_shm_waiting *w, gw_diags *dg) {
    if (atomic_load(&s->w->ranks[w->who].state) == GW_SHM_RUNNING) return GW_OK;
    if (w->doomed) return fail_ended(s, w, dg);
    w->doomed = true;
    return GW_OK;
}

static gw_status look_at_life(gw_shm *s, gw_shm_waiting *w, int64_t now, int64_t dt, gw_diags *dg) {
    gw_shm_rank *r = &s->w->ranks[w->who];
    int64_t timeout = s->seg->timeout_ns;
    int64_t alive = atomic_load(&r->alive_ns);
    bool busy = now < atomic_load(&r->busy_until_ns);
    if (alive != w->seen_alive_ns) {
        w->seen_alive_ns = alive;
        w->patience_ns = w->stopped_ns = 0;
        return GW_OK;
    }
    w->patience_ns += dt;
    if (w->patience_ns < (busy ? timeout / 8 : timeout / 2)) return GW_OK;
    char state = process_state(s, w->who);
    if (state == 0 || state == 'Z' || state == 'X') {
        gw_shm_world_ended(s->w, w->who, 0, 1); /* and nobody was there to say so */
        return GW_OK;
    }
    bool stopped = is_stopped(state);
    w->stopped_ns = stopped ? w->stopped_ns + dt : 0;
    if (busy) return w->stopped_ns < timeout ? GW_OK : fail_late(s, w, true, dg);
    int64_t gap = atomic_load_explicit(&r->longest_gap_ns, memory_order_relaxed);
    if (gap < s->longest_gap_ns) gap = s->longest_gap_ns;
    int64_t limit = timeout + (stopped ? 0 : 4 * gap);
    return w->patience_ns < limit ? GW_OK : fail_late(s, w, stopped, dg);
}

static gw_status look_around(gw_shm *s, gw_shm_waiting *w, gw_diags *dg) {
    int64_t now = gw_clock_ns(), dt = now - w->last_ns;
    int64_t most = 2 * gw_shm_slice_ns(s->seg);
    if (dt > most) dt = most;
    w->last_ns = now;
    w->total_ns += dt;
    atomic_store_explicit(&s->mine->alive_ns, now, memory_order_relaxed);
    if (atomic_load(&s->seg->stopped)) {
        if (w->doomed_all) return gw_shm_stopped(s, dg);
        w->doomed_all = true; /* what was waited for may have come before: one more look */
        return GW_OK;
    }
    GW_TRY(look_at_state(s, w, dg));
    GW_TRY(look_at_mark(s, w->who, dg));
    GW_TRY(look_at_life(s, w, now, dt, dg));
    return look_for_circle(s, w, dt, dg);
}

/* ------------------------------------------------------------------------------ waiting */

static void begin(gw_shm *s, gw_shm_waiting *w) {
    w->started = true;
    w->who = -1;
    w->start_ns = w->last_ns = gw_clock_ns();
    w->spins = s->seg->spin ? 0 : -1;
}

static void aim(gw_shm *s, gw_shm_waiting *w, int who) {
    w->who = who;
    w->doomed = false;
    w->patience_ns = w->stopped_ns = 0;
    w->seen_alive_ns = atomic_load(&s->w->ranks[who].alive_ns);
    atomic_store(&s->mine->waiting_on, who);
}

/* True while the spin goes on. */
static bool spin(gw_shm_waiting *w) {
    if (w->spins < 0) return false;
    GW_CPU_RELAX();
    if (++w->spins % SPINS_PER_LOOK == 0 && gw_clock_ns() - w->start_ns > SPIN_NS) w->spins = -1;
    return true;
}

static void sleep_slice(gw_shm *s, gw_shm_waiting *w) {
    struct timespec slice = {.tv_nsec = (long)gw_shm_slice_ns(s->seg)};
    syscall(SYS_futex, &s->mine->bell, FUTEX_WAIT, w->bell, &slice, NULL, 0);
    atomic_store(&s->mine->sleeping, 0);
    w->armed = false;
}

gw_status gw_shm_wait(gw_shm *s, gw_shm_waiting *w, int who, gw_diags *dg) {
    if (!w->started) begin(s, w);
    if (spin(w)) return GW_OK;
    if (w->armed) {
        sleep_slice(s, w);
        if (who != w->who) aim(s, w, who);
        return look_around(s, w, dg);
    }
    if (w->who < 0) atomic_fetch_add(&s->mine->waits, 1);
    if (who != w->who) aim(s, w, who);
    w->bell = atomic_load(&s->mine->bell);
    atomic_store(&s->mine->sleeping, 1);
    w->armed = true;
    if (atomic_load(&s->seg->stopped)) return look_around(s, w, dg);
    return GW_OK;
}

void gw_shm_wait_end(gw_shm *s, gw_shm_waiting *w) {
    if (!w->started) return;
    if (w->armed) atomic_store(&s->mine->sleeping, 0);
    if (w->who >= 0) {
        atomic_store(&s->mine->waiting_on, -1);
        atomic_fetch_add(&s->mine->waits, 1);
    }
    int64_t now = gw_clock_ns();
    s->waited_ns += now - w->start_ns;
    if (s->last_alive_ns) s->last_alive_ns += now - w->start_ns;
}
