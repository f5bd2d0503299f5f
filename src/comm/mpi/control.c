// SPDX-License-Identifier: Apache-2.0
// Control messages of the MPI transport: who is where, who is busy, who gives up.
//
// A rank that waits long asks. The question names the collective it stands in; the answer says
// whether the asked rank has reached that collective and what it called there, what it does now,
// and for whom it waits itself. So three things are told apart without a thread or a server:
// another call at the same place (the two signatures differ: both ranks say so, with both texts), a
// rank that is behind but gets on (its progress changes, and waiting goes on), and one that is
// stopped or dead (it does not answer). Who waits for a rank that itself waits asks on along the
// chain, so that in a ring all ranks name the one that hangs, not their neighbours.
//
// A rank that is stopped answers no more. So what a rank does (`doing`) it also tells by itself to
// those who share a channel with it, several times at once and then some times a second: enough
// for actions that take long, and little beside those that do not. Who waits for it passes that on.
//
// A message of a channel is asked after like a collective; there the answer comes from the count of
// the channel's other side, as both sides were compared when it was opened.
//
// Answers are given wherever a rank comes by: in its own waits, at the beginning of a collective,
// and between ops (`alive`, at most ten times a second). What takes longer than the timeout without
// coming by has to be announced first (`busy`); since such a rank cannot answer, the announcement
// goes to all.
//
// One receive from anybody is always posted. Messages are small and go out eagerly from a fixed set
// of slots; when all are under way, a question or an answer is dropped, and the next round asks
// again.
#include <stdarg.h> /* va_list */
#include <stdio.h>  /* vsnprintf */
#include <string.h> /* memcpy */
#include <time.h>   /* nanosleep */

#include "base/clock.h"         /* gw_clock_ns */
#include "comm/mpi/transport.h" /* gw_mpi_transport, gw_mpi_note */

enum { MAX_HOPS = 64, MAX_NOTES = 256, TELL_NS = 300 * 1000 * 1000 };
/* Of what it does a rank tells so much at once, and then so often. */
enum { TELLS = 8, TELL_AGAIN_NS = 50 * 1000 * 1000 };

/* The beginning of a text, as much as fits. */
static void copy_text(char *to, size_t size, const char *from) {
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

void gw_mpi_failed(gw_mpi_transport *t, const char *id, const char *fmt, ...) {
    if (t->failed) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    t->fail_id = id;
    t->failed = true;
    if (t->told) return;
    t->told = true;
    gw_mpi_note n = {.kind = GW_MPI_FAIL};
    copy_text(n.text, sizeof n.text, t->why);
    gw_mpi_control_send_all(t, &n, TELL_NS);
}

bool gw_mpi_ok(gw_mpi_transport *t, int code, const char *what) {
    if (code == 0) return true;
    char text[256];
    t->api->error_text(code, text, (int)sizeof text);
    gw_mpi_failed(t, "mpi-failed", "%s failed in the MPI library: %s", what, text);
    return false;
}

static void post_receive(gw_mpi_transport *t) {
    gw_mpi_ok(t, t->api->irecv(GW_MPI_CONTROL, &t->in, (int)sizeof t->in, -1, 0, &t->in_request),
              "receiving a control message");
}

void gw_mpi_control_open(gw_mpi_transport *t) { post_receive(t); }

void gw_mpi_control_close(gw_mpi_transport *t) {
    gw_mpi_ok(t, t->api->cancel(&t->in_request), "withdrawing a receive");
}

// ------------------------------------------------------------------ sending

/* A slot whose message has left, or -1. */
static int free_slot(gw_mpi_transport *t) {
    for (int i = 0; i < GW_MPI_SLOTS; i++) {
        bool done = false;
        if (t->api->test(&t->out[i].request, &done, NULL) == 0 && done) return i;
    }
    return -1;
}

bool gw_mpi_control_send(gw_mpi_transport *t, int to, const gw_mpi_note *n) {
    int i = free_slot(t);
    if (i < 0) return false;
    t->out[i].note = *n;
    t->out[i].note.from = t->base.rank;
    return gw_mpi_ok(
        t,
        t->api->isend(GW_MPI_CONTROL, &t->out[i].note, (int)sizeof *n, to, 0, &t->out[i].request),
        "sending a control message");
}

static bool all_left(gw_mpi_transport *t) {
    bool all = true;
    for (int i = 0; i < GW_MPI_SLOTS; i++) {
        bool done = true;
        if (t->api->test(&t->out[i].request, &done, NULL) != 0) return true;
        all = all && done;
    }
    return all;
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

void gw_mpi_control_send_all(gw_mpi_transport *t, const gw_mpi_note *n, int64_t limit_ns) {
    int64_t end = gw_clock_ns() + limit_ns;
    for (int i = 1; i < t->base.size; i++) {
        int to = (t->base.rank + i) % t->base.size; /* not all at the same one first */
        while (!gw_mpi_control_send(t, to, n)) {
            if (gw_clock_ns() > end) return;
            nap();
        }
    }
    while (!all_left(t) && gw_clock_ns() < end) nap();
}

// ------------------------------------------------------------------ asking

/* What this rank called at place `seq` of a group, among what the recorder keeps. */
static gw_mpi_reached find_flown(const gw_mpi_transport *t, uint64_t group, uint64_t seq,
                                 gw_flight_mark *f) {
    uint64_t n = gw_flight_count(&t->flight);
    gw_mpi_reached reached = GW_MPI_NOT_YET;
    for (uint64_t i = 0; i < GW_FLIGHT_ENTRIES && i < n; i++) {
        if (!gw_flight_read(&t->flight, n - i, f) || f->group != group) continue;
        if (f->seq == seq) return GW_MPI_THERE;
        if (f->seq > seq) reached = GW_MPI_LONG_PAST;
    }
    return reached;
}

static double busy_left(const gw_mpi_transport *t) {
    int64_t left = t->busy_until_ns - gw_clock_ns();
    return t->busy_until_ns && left > 0 ? 1e-9 * (double)left : 0;
}

static void ask(gw_mpi_transport *t, int whom) {
    gw_mpi_note n = {.kind = GW_MPI_ASK,
                     .ticket = t->watch.ticket,
                     .group = t->latest.group,
                     .seq = t->latest.seq,
                     .signature = t->latest.signature};
    copy_text(n.text, sizeof n.text, t->latest.text);
    t->watch.asked = whom;
    t->watch.answered = false;
    gw_mpi_control_send(t, whom, &n);
}

void gw_mpi_control_tell(gw_mpi_transport *t) {
    int64_t now = gw_clock_ns(), more = (now - t->tells_ns) / TELL_AGAIN_NS;
    if (!t->channels || t->failed || t->doing_told) return;
    if (more > 0) {
        t->tells_left = t->tells_left + more < TELLS ? t->tells_left + (int)more : TELLS;
        t->tells_ns = now;
    }
    if (t->tells_left == 0) return;
    t->tells_left--;
    t->doing_told = true;
    gw_mpi_note n = {.kind = GW_MPI_TELL};
    copy_text(n.doing, sizeof n.doing, t->doing);
    gw_mpi_channels_tell(t, &n);
}

void gw_mpi_control_ask(gw_mpi_transport *t) {
    t->watch.ticket++;
    t->watch.hops = 0;
    ask(t, t->watch.peer);
}

static void mismatch(gw_mpi_transport *t, const gw_mpi_note *a, const gw_flight_mark *mine) {
    char their_doing[144], my_doing[144];
    gw_mpi_failed(t, "peer-mismatch",
                  "ranks %d and %d call different collectives: rank %d '%s', rank %d '%s' (number "
                  "%llu of their group)%s%s",
                  t->base.rank, a->from, a->from, a->text, t->base.rank, mine->text,
                  (unsigned long long)mine->seq, gw_mpi_doing_of(a->from, a->doing, their_doing),
                  gw_mpi_doing_of(t->base.rank, t->doing, my_doing));
}

static void answer(gw_mpi_transport *t, const gw_mpi_note *q) {
    gw_flight_mark f = {0};
    gw_mpi_reached reached;
    bool message = gw_mpi_channels_find(t, q->group, q->seq, &reached);
    if (!message) reached = find_flown(t, q->group, q->seq, &f);
    bool there = reached == GW_MPI_THERE && !message;
    gw_mpi_note a = {
        .kind = GW_MPI_ANSWER,
        .ticket = q->ticket,
        .waits_for = t->watch.on ? t->watch.peer : -1,
        .reached = (int32_t)reached,
        .group = q->group,
        .seq = q->seq,
        .signature = there     ? f.signature
                     : message ? q->signature
                               : 0,
        .in_message = t->in_message,
        .progress = t->op + t->begun,
        .busy_s = busy_left(t),
        .gap_s = 1e-9 * (double)t->longest_gap_ns,
    };
    copy_text(a.doing, sizeof a.doing, t->doing);
    if (a.waits_for >= 0) copy_text(a.awaited, sizeof a.awaited, t->peers[a.waits_for].doing);
    copy_text(a.text, sizeof a.text, there ? f.text : "");
    copy_text(a.now, sizeof a.now, t->latest.text[0] ? t->latest.text : "its start");
    gw_mpi_control_send(t, q->from, &a);
}

/* The asked rank has not come to where this rank stands, and waits for this rank: if what it sent
 * last belongs to another collective, the two call them in different orders. */
static void look_for_order(gw_mpi_transport *t, const gw_mpi_note *a) {
    bool found = false;
    int tag = -1;
    char doing[144];
    if (t->in_message || a->in_message) return; /* messages have no order with collectives */
    if (a->from != t->watch.peer || a->waits_for != t->base.rank) return;
    if (a->reached != GW_MPI_NOT_YET) return;
    if (!gw_mpi_ok(t, t->api->probe(GW_MPI_DATA, a->from, &found, &tag), "probing")) return;
    if (!found || tag == t->tag) return;
    gw_mpi_failed(t, "peer-mismatch",
                  "ranks %d and %d call their collectives in different orders: rank %d is in '%s', "
                  "rank %d in '%s'%s",
                  t->base.rank, a->from, a->from, a->now, t->base.rank, t->latest.text,
                  gw_mpi_doing_of(a->from, a->doing, doing));
}

static void take_answer(gw_mpi_transport *t, const gw_mpi_note *a) {
    gw_mpi_watch *w = &t->watch;
    if (!w->on || a->ticket != w->ticket || a->from != w->asked) return;
    /* What was asked of a wait that is over says nothing of this one. */
    if (a->seq != t->latest.seq || a->group != t->latest.group) return;
    gw_mpi_peer *p = &t->peers[a->from];
    int64_t now = gw_clock_ns();
    if (p->progress != a->progress) w->life_ns = now;
    p->progress = a->progress;
    p->gap_ns = (int64_t)(1e9 * a->gap_s);
    if (a->busy_s > 0) p->busy_until_ns = now + (int64_t)(1e9 * a->busy_s);
    copy_text(p->what, sizeof p->what, a->now);
    copy_text(p->doing, sizeof p->doing, a->doing);
    w->answered = true;
    w->answer = *a;
    if (a->reached == GW_MPI_THERE && a->signature != t->latest.signature) {
        mismatch(t, a, &t->latest);
        return;
    }
    look_for_order(t, a);
    int next = a->waits_for;
    if (next < 0 || next >= t->base.size || next == t->base.rank || next == a->from) return;
    if (a->awaited[0]) copy_text(t->peers[next].doing, sizeof t->peers[next].doing, a->awaited);
    if (w->hops++ < MAX_HOPS) ask(t, next);
}

// ------------------------------------------------------------------ receiving

static void handle(gw_mpi_transport *t, gw_mpi_note *n) {
    if (n->from < 0 || n->from >= t->base.size) return;
    n->text[sizeof n->text - 1] = n->now[sizeof n->now - 1] = n->doing[sizeof n->doing - 1] =
        n->awaited[sizeof n->awaited - 1] = 0;
    gw_mpi_peer *p = &t->peers[n->from];
    switch ((gw_mpi_note_kind)n->kind) {
    case GW_MPI_ASK: answer(t, n); break;
    case GW_MPI_ANSWER: take_answer(t, n); break;
    case GW_MPI_BUSY:
        p->busy_until_ns = n->busy_s > 0 ? gw_clock_ns() + (int64_t)(1e9 * n->busy_s) : 0;
        copy_text(p->what, sizeof p->what, n->text);
        break;
    case GW_MPI_TELL: copy_text(p->doing, sizeof p->doing, n->doing); break;
    case GW_MPI_FAIL:
        if (t->failed) break;
        t->told = t->silent = true; /* who gave up has told everybody, and says why */
        gw_mpi_failed(t, "peer-stopped", "rank %d stopped because rank %d reported: %s",
                      t->base.rank, n->from, n->text);
        break;
    }
}

void gw_mpi_control_serve(gw_mpi_transport *t) {
    t->serviced_ns = gw_clock_ns();
    for (int i = 0; i < MAX_NOTES; i++) {
        bool done = false;
        int bytes = 0;
        if (!gw_mpi_ok(t, t->api->test(&t->in_request, &done, &bytes), "a control message") ||
            !done)
            return;
        gw_mpi_note n = t->in;
        post_receive(t);
        if (bytes == (int)sizeof n) handle(t, &n);
    }
}
