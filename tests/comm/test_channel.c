// SPDX-License-Identifier: Apache-2.0
// Channels: messages arrive whole and in order whatever the sizes, places and orders of use; a
// sender is held back by its places and by nothing else; both sides' specs are compared; whoever
// is killed, stopped or late is named with what it was doing. As threads, as processes, and (by
// test_channel_mpi.sh, which runs this executable under mpirun) over MPI.
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/clock.h" /* gw_clock_ns */
#include "comm/channel.h"
#include "comm/launch.h"
#include "harness.h"
#include "lines.h" /* lines */
#include "rig.h"

static void wait_s(double s) {
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++) n++;
    return n;
}

/* ------------------------------------------------------------------------------ values, order */

/* Around a cache line, a slot, a piece, and several pieces. */
static const int64_t message_sizes[] = {0,     1,      63,     64,      65,     4096,
                                        65537, 524288, 524289, 1048583, 2621440};
enum { SIZES = (int)(sizeof message_sizes / sizeof *message_sizes), LARGEST = 2621440 };

static gw_status all_sizes(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    lines l = {.c = c};
    uint8_t *buf = gw_mem_alloc(LARGEST + 1);
    int me = gw_comm_rank(c), n = gw_comm_size(c);
    for (int i = 0; i < SIZES; i++)
        lines_add(&l, i % 2, 1 - i % 2, i / 2, message_sizes[i], 1 + i % 3, "activations");
    GW_TRY(lines_open(&l, dg));
    for (int k = 0; k < 7; k++) /* both directions at once */
        for (int i = 0; me < 2 && i < SIZES; i++) {
            if (l.specs[i].sends)
                GW_TRY(lines_send(&l, i, i, k, buf, dg));
            else
                GW_TRY(lines_recv(&l, i, i, k, buf, dg));
        }
    gw_mem_free(buf);
    RANK_CHECK(dg, n >= 2, "two ranks");
    return lines_close(&l, dg);
}
TEST(channel_sizes) {
    rig_threads(2, all_sizes, NULL);
    rig_threads(3, all_sizes, NULL); /* one of which has no channel */
    rig_processes(2, all_sizes, NULL);
    rig_processes(4, all_sizes, NULL);
}

/* Three channels, which the two sides use in different orders: each order that the places allow. */
static gw_status other_order(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    static const int give[] = {0, 0, 1, 2, 1, 0, 2, 2, 1}, take[] = {2, 1, 0, 2, 2, 1, 1, 0, 0};
    lines l = {.c = c};
    uint8_t buf[2048];
    int sent[3] = {0}, got[3] = {0};
    for (int i = 0; i < 3; i++) lines_add(&l, 0, 1, 10 - i, 100 * (i + 1), 3, "x");
    GW_TRY(lines_open(&l, dg));
    for (int round = 0; round < 50; round++)
        for (int k = 0; k < 9; k++) {
            int i = gw_comm_rank(c) == 0 ? give[k] : take[k];
            if (gw_comm_rank(c) == 0)
                GW_TRY(lines_send(&l, i, i, sent[i]++, buf, dg));
            else
                GW_TRY(lines_recv(&l, i, i, got[i]++, buf, dg));
        }
    return lines_close(&l, dg);
}
TEST(channel_orders) {
    rig_threads(2, other_order, NULL);
    rig_processes(2, other_order, NULL);
}

/* Four ranks in a ring, one place each: all send before they receive. */
static gw_status ring(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c), n = gw_comm_size(c);
    lines l = {.c = c};
    int64_t hops[32] = {0};
    int in = -1, out = -1;
    for (int r = 0; r < n; r++) {
        int i = lines_add(&l, r, (r + 1) % n, 0, sizeof hops, 1, "a token");
        if (r == me) out = i;
        if ((r + 1) % n == me) in = i;
    }
    GW_TRY(lines_open(&l, dg));
    for (int k = 0; k < 400; k++) {
        hops[k % 32] += me;
        GW_TRY(gw_channel_send(l.ch, out, hops, "turn", dg));
        GW_TRY(gw_channel_recv(l.ch, in, hops, "turn", dg));
    }
    int64_t sum = 0;
    for (int i = 0; i < 32; i++) sum += hops[i];
    RANK_CHECK(dg, sum == 400 / n * (n * (n - 1) / 2), "%lld", (long long)sum);
    return lines_close(&l, dg);
}
TEST(channel_ring) {
    rig_threads(4, ring, NULL);
    rig_processes(4, ring, NULL);
}

/* 1F1B by hand: activations go down, gradients come up, with collectives in between. */
static gw_status pipeline(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    enum { M = 12, N = 70000 };
    int me = gw_comm_rank(c), p = gw_comm_size(c), down[2] = {-1, -1}, up[2] = {-1, -1};
    uint8_t *buf = gw_mem_alloc(N + 1);
    lines l = {.c = c};
    for (int r = 0; r + 1 < p; r++) {
        int d = lines_add(&l, r, r + 1, 0, N, p, "activations"),
            u = lines_add(&l, r + 1, r, 0, N, 1, "grads");
        if (r == me) down[1] = d, up[0] = u;
        if (r + 1 == me) down[0] = d, up[1] = u;
    }
    GW_TRY(lines_open(&l, dg));
    int warm = p - me, f = 0, b = 0;
    while (b < M) {
        bool forward = f < M && f - b < warm;
        if (forward) {
            if (down[0] >= 0) GW_TRY(lines_recv(&l, down[0], me - 1, f, buf, dg));
            if (down[1] >= 0) GW_TRY(lines_send(&l, down[1], me, f, buf, dg));
            f++;
            continue;
        }
        if (up[0] >= 0) GW_TRY(lines_recv(&l, up[0], 100 + me, b, buf, dg));
        if (up[1] >= 0) GW_TRY(lines_send(&l, up[1], 100 + me - 1, b, buf, dg));
        b++;
    }
    double x = 1.0;
    GW_TRY(gw_comm_sum_f64(c, &x, 1, "loss", dg));
    RANK_CHECK(dg, x == (double)p, "%g", x);
    gw_mem_free(buf);
    return lines_close(&l, dg);
}
TEST(channel_pipeline) {
    for (int p = 2; p <= 4; p++) {
        rig_threads(p, pipeline, NULL);
        rig_processes(p, pipeline, NULL);
    }
}

/* ------------------------------------------------------------------------------ places */

/* In memory that all ranks see. */
typedef struct turns {
    _Atomic int sent, taking;
} turns;

static gw_status bounded(gw_comm *c, void *user, gw_diags *dg) {
    turns *t = user;
    uint8_t buf[256];
    for (int places = 1; places <= 5; places += 2) {
        lines l = {.c = c};
        lines_add(&l, 0, 1, 0, 200, places, "x");
        GW_TRY(lines_open(&l, dg));
        if (gw_comm_rank(c) == 0) {
            for (int k = 0; k < places; k++) GW_TRY(lines_send(&l, 0, 0, k, buf, dg));
            RANK_CHECK(dg, t->taking == 0, "the receiver was waited for");
            t->sent = 1; /* from here on it may take */
            GW_TRY(lines_send(&l, 0, 0, places, buf, dg));
            RANK_CHECK(dg, t->taking >= 1, "message %d of %d places did not wait", places, places);
            GW_TRY(gw_channels_drain(l.ch, dg));
            RANK_CHECK(dg, t->taking == 2, "drained before the last was taken");
        } else {
            while (!t->sent) wait_s(0.001); /* would last for ever if the places were fewer */
            RANK_CHECK(dg, gw_channel_ready(l.ch, 0), "a message that was sent is not ready");
            wait_s(0.05);
            t->taking = 1;
            for (int k = 0; k <= places; k++) {
                if (k == places) wait_s(0.02);
                if (k == places) t->taking = 2;
                GW_TRY(lines_recv(&l, 0, 0, k, buf, dg));
            }
            RANK_CHECK(dg, !gw_channel_ready(l.ch, 0), "ready, and nothing was sent");
        }
        GW_TRY(gw_comm_barrier(c, "places", dg));
        if (gw_comm_rank(c) == 0) t->sent = t->taking = 0;
        GW_TRY(lines_close(&l, dg));
    }
    return GW_OK;
}
TEST(channel_places) {
    turns *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(t != MAP_FAILED);
    rig_threads(2, bounded, t);
    rig_processes(2, bounded, t);
    munmap(t, sizeof *t);
}

/* A drained box is ordinary memory; two sets with the same tags are apart; counts; no allocation.
 */
static gw_status drained(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c);
    uint8_t buf[1001];
    lines a = {.c = c}, b = {.c = c};
    lines_add(&a, 0, 1, 0, 1000, 2, "a");
    lines_add(&b, 0, 1, 0, 1000, 2, "b");
    GW_TRY(lines_open(&a, dg));
    GW_TRY(lines_open(&b, dg));
    gw_comm_counts_reset(c);
    int64_t before = 0;
    for (int k = 0; k < 20; k++) {
        if (me == 0) {
            GW_TRY(lines_send(&a, 0, 1, k, buf, dg));
            GW_TRY(lines_send(&b, 0, 2, k, buf, dg));
            GW_TRY(gw_channels_drain(a.ch, dg));
            memset(a.specs[0].box, 0x55, (size_t)gw_channel_box_bytes(1000, 2));
            if (k == 0) before = gw_mem_count();
        } else {
            GW_TRY(lines_recv(&b, 0, 2, k, buf, dg));
            GW_TRY(lines_recv(&a, 0, 1, k, buf, dg));
        }
    }
    RANK_CHECK(dg, me != 0 || !c || user || gw_mem_count() == before, "allocations");
    gw_comm_counts n = gw_channels_counted(c);
    int64_t calls = me == 0 ? 40 : 0;
    RANK_CHECK(dg, n.calls == calls && n.payload == 1000 * calls && n.moved == 1000 * calls,
               "%lld calls, %lld bytes", (long long)n.calls, (long long)n.moved);
    RANK_CHECK(dg, n.ns > 0 && n.wait_ns >= 0 && n.wait_ns <= n.ns, "times");
    GW_TRY(lines_close(&b, dg));
    return lines_close(&a, dg);
}
TEST(channel_drained_box) {
    rig_threads(2, drained, &(int){1}); /* the other thread's allocations count too */
    rig_processes(2, drained, NULL);
}

TEST(channel_box_bytes) {
    CHECK_EQ(gw_channel_box_bytes(0, 3), 0);
    CHECK_EQ(gw_channel_box_bytes(1, 3), 192);
    CHECK_EQ(gw_channel_box_bytes(64, 1), 64);
    CHECK_EQ(gw_channel_box_bytes(65, 2), 256);
}

/* ------------------------------------------------------------------------------ specs */

typedef enum misfit { BYTES, PLACES, NOT_OPENED, TWICE, TWICE_RECEIVED, NO_RANK, ITSELF } misfit;
static const char *const misfit_texts[] = {
    "the sides of channel 'grads of stage 1', tag 3, differ: rank 2 sends messages of 512 bytes in "
    "2 places, rank 1 receives messages of 500 bytes in 2 places",
    "rank 1 receives messages of 512 bytes in 4 places",
    "rank 2 opens the channel 'grads of stage 1' to rank 1, tag 3, of which rank 1 does not open "
    "its side",
    "rank 2 opens two channels to rank 1 with tag 3: 'grads of stage 1' and 'grads of stage 1'",
    "rank 1 opens two channels from rank 2 with tag 3",
    "rank 1 opens the channel 'grads of stage 1' from rank 7, tag 3, with a rank that there is not",
    "rank 1 opens the channel 'grads of stage 1' from rank 1, tag 3, with itself",
};

static gw_status misfits(gw_comm *c, void *user, gw_diags *dg) {
    misfit m = *(const misfit *)user;
    lines l = {.c = c};
    lines_add(&l, 0, 1, 3, 100, 1, "activations");
    int i = lines_add(&l, 2, 1, 3, 512, 2, "grads of stage 1");
    if (gw_comm_rank(c) == 2 && m == TWICE) lines_add(&l, 2, 1, 3, 512, 2, "grads of stage 1");
    if (gw_comm_rank(c) == 1) {
        if (m == BYTES) l.specs[i].bytes = 500;
        if (m == PLACES) l.specs[i].places = 4;
        if (m == NOT_OPENED) l.n--;
        if (m == TWICE_RECEIVED) lines_add(&l, 2, 1, 3, 512, 2, "grads of stage 1");
        if (m == NO_RANK) l.specs[i].peer = 7;
        if (m == ITSELF) l.specs[i].peer = 1;
    }
    return lines_open(&l, dg);
}
TEST(channel_misfits_are_named) {
    for (misfit m = BYTES; m <= ITSELF; m++) {
        static rig_result r;
        rig_forked(4, 5.0, misfits, &m, &r);
        CHECK_EQ(r.exit_code, 1);
        CHECK_MSG(strstr(r.text, misfit_texts[m]), "no '%s' in\n%s", misfit_texts[m], r.text);
        CHECK_MSG(count_of(r.text, "[peer-mismatch]") == 1 && count_of(r.text, "error:") == 1,
                  "not one line:\n%s", r.text);
    }
}

/* ------------------------------------------------------------------------------ faults */

typedef enum fault { KILLED, STOPPED, SLEPT, LEFT, FAULTS } fault;

typedef struct scene {
    fault fault;
    int victim;
} scene;

static const char doing[] = "forward of micro-batch 3 of stage 1 (action 17 of 40)";

/* Activations go down; the victim goes wrong in its fourth, so that rank 0 runs out of places and
 * what follows the victim of messages. */
static gw_status suffer(gw_comm *c, void *user, gw_diags *dg) {
    const scene *s = user;
    int me = gw_comm_rank(c), p = gw_comm_size(c), in = -1, out = -1;
    uint8_t buf[4097];
    lines l = {.c = c};
    for (int r = 0; r + 1 < p; r++) {
        int i = lines_add(&l, r, r + 1, 0, 4096, 2, "activations");
        if (r == me) out = i;
        if (r + 1 == me) in = i;
    }
    GW_TRY(lines_open(&l, dg));
    for (int k = 0; k < 12; k++) {
        char text[96];
        snprintf(text, sizeof text, "forward of micro-batch %d of stage %d (action %d of 40)", k,
                 me, 14 + k);
        gw_comm_doing(c, text);
        gw_comm_alive(c, (uint64_t)k);
        if (in >= 0) GW_TRY(lines_recv(&l, in, me - 1, k, buf, dg));
        if (me == s->victim && k == 3) {
            gw_comm_doing(c, doing);
            if (s->fault == KILLED) raise(SIGKILL);
            if (s->fault == STOPPED) raise(SIGSTOP);
            if (s->fault == SLEPT) wait_s(3.0);
            if (s->fault == LEFT) return GW_OK;
        }
        if (out >= 0) GW_TRY(lines_send(&l, out, me, k, buf, dg));
    }
    return lines_close(&l, dg);
}

static void play(fault f, int victim) {
    static const char *const ids[] = {"[peer-dead]", "[peer-late]", "[peer-late]", "[peer-left]"};
    scene s = {f, victim};
    static rig_result r;
    rig_forked(3, 0.5, suffer, &s, &r);
    test_note("fault %d of rank %d: exit %d after %.2f s\n%s", (int)f, victim, r.exit_code,
              r.seconds, r.text);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 20.0, "%.2f s", r.seconds);
    CHECK_MSG(count_of(r.text, "[peer-") == 1, "not one line:\n%s", r.text);
    const char *line = strstr(r.text, ids[f]);
    CHECK_MSG(line, "no %s in\n%s", ids[f], r.text);
    while (line > r.text && line[-1] != '\n') line--;
    char who[16], all[160];
    snprintf(who, sizeof who, "rank %d", victim);
    snprintf(all, sizeof all, "%.*s", (int)strcspn(line, "\n"), line);
    CHECK_MSG(strstr(all, who), "no %s in\n%s", who, line);
    const char *at = strstr(line, doing);
    CHECK_MSG(at && at < line + strcspn(line, "\n"), "no '%s' in\n%s", doing, r.text);
    CHECK_MSG(strstr(line, "activations, rank "), "no message in\n%s", line);
    CHECK_MSG(count_of(r.text, "error:") == 1, "not one line:\n%s", r.text);
}
TEST(channel_killed_is_named) {
    for (int victim = 0; victim < 3; victim++) play(KILLED, victim);
}
TEST(channel_stopped_is_named) {
    for (int victim = 0; victim < 3; victim++) play(STOPPED, victim);
}
TEST(channel_late_is_named) {
    for (int victim = 0; victim < 3; victim++) play(SLEPT, victim);
}
TEST(channel_left_is_named) {
    for (int victim = 0; victim < 2; victim++) play(LEFT, victim);
}

/* A stage that computes for longer than the timeout, op by op, is not late. */
static gw_status slow_stage(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    uint8_t buf[65];
    lines l = {.c = c};
    lines_add(&l, 0, 1, 0, 64, 1, "activations");
    GW_TRY(lines_open(&l, dg));
    for (int k = 0; k < 2; k++) {
        if (gw_comm_rank(c) == 0) {
            for (int op = 0; op < 12; op++) {
                gw_comm_alive(c, (uint64_t)op);
                wait_s(0.1);
            }
            GW_TRY(lines_send(&l, 0, 0, k, buf, dg));
        } else {
            GW_TRY(lines_recv(&l, 0, 0, k, buf, dg));
        }
    }
    return lines_close(&l, dg);
}
TEST(channel_slow_is_not_late) {
    static rig_result r;
    rig_forked(2, 0.5, slow_stage, NULL, &r);
    CHECK_MSG(r.exit_code == 0, "%s", r.text);
}

/* Each receives first: nobody is late, and both are named with what they do. */
static gw_status circle(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c);
    uint8_t buf[65];
    lines l = {.c = c};
    lines_add(&l, 0, 1, 0, 64, 1, "activations");
    lines_add(&l, 1, 0, 0, 64, 1, "grads");
    GW_TRY(lines_open(&l, dg));
    gw_comm_doing(c, me ? "forward of micro-batch 0 of stage 1" : "backward of micro-batch 0");
    return lines_recv(&l, me ? 0 : 1, 0, 0, buf, dg);
}
TEST(channel_circle_is_named) {
    static rig_result r;
    rig_forked(2, 0.5, circle, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 15.0, "%.2f s", r.seconds);
    CHECK_MSG(count_of(r.text, "wait for one another") == 1, "%s", r.text);
    CHECK_MSG(strstr(r.text, "stage 1") && strstr(r.text, "in backward of micro-batch 0"), "%s",
              r.text);
}

/* Places that are too few for the order: rank 0 sends twice into one place before it receives. */
static gw_status too_few(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    int me = gw_comm_rank(c);
    uint8_t buf[65];
    lines l = {.c = c};
    lines_add(&l, 0, 1, 0, 64, 1, "activations");
    lines_add(&l, 1, 0, 0, 64, 1, "grads");
    GW_TRY(lines_open(&l, dg));
    GW_TRY(lines_send(&l, me ? 1 : 0, 0, 0, buf, dg));
    return lines_send(&l, me ? 1 : 0, 0, 1, buf, dg);
}
TEST(channel_too_few_places_are_named) {
    static rig_result r;
    rig_forked(2, 0.5, too_few, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(strstr(r.text, "wait for one another") && strstr(r.text, "no place is free"), "%s",
              r.text);
}

/* What a rank is doing stands in the lines of collectives too. */
static gw_status doing_in_collective(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    GW_TRY(gw_comm_barrier(c, "start", dg));
    gw_comm_doing(c, gw_comm_rank(c) == 1 ? doing : "something else");
    if (gw_comm_rank(c) == 1) raise(SIGSTOP);
    return gw_comm_barrier(c, "layer 3", dg);
}
TEST(comm_doing_is_named) {
    static rig_result r;
    rig_forked(3, 0.5, doing_in_collective, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(count_of(r.text, doing) == 1 && strstr(r.text, "rank 1 did not reach"), "%s", r.text);
}

/* ------------------------------------------------------------------------------ flight table */

static gw_status table(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    uint8_t buf[65];
    lines l = {.c = c};
    lines_add(&l, 0, 1, 0, 64, 1, "activations of stage 1");
    GW_TRY(lines_open(&l, dg));
    gw_comm_doing(c, "evaluation");
    for (int k = 0; k < 3; k++)
        GW_TRY(gw_comm_rank(c) == 0 ? lines_send(&l, 0, 0, k, buf, dg)
                                    : lines_recv(&l, 0, 0, k, buf, dg));
    GW_TRY(gw_comm_barrier(c, "the end", dg));
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    gw_comm_print_flight(c, out);
    fclose(out);
    const char *two = strstr(text, "receive activations of stage 1, rank 0 to 1, micro-batch");
    RANK_CHECK(dg, strstr(text, "send activations of stage 1, rank 0 to 1, micro-batch 2"), "%s",
               text);
    RANK_CHECK(dg, two && strstr(two, "barrier the end"), "not in order of time: %s", text);
    RANK_CHECK(dg, count_of(text, ", 3 messages") == 2, "%s", text);
    RANK_CHECK(dg, strstr(text, "rank 1 is in evaluation"), "%s", text);
    free(text);
    return lines_close(&l, dg);
}
TEST(channel_flight) {
    rig_threads(2, table, NULL);
    rig_processes(2, table, NULL);
}

/* ------------------------------------------------------------------------------ under mpirun */

/* For people: microseconds of 1 KiB there and back, halved; GB/s of 16 MiB one way. */
static gw_status speed(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    enum { SMALL = 1024, LARGE = 16 << 20, TURNS = 4000, MANY = 40 };
    int me = gw_comm_rank(c);
    uint8_t *buf = gw_mem_zalloc(LARGE);
    lines l = {.c = c};
    int there = lines_add(&l, 0, 1, 0, SMALL, 2, "x"), back = lines_add(&l, 1, 0, 0, SMALL, 2, "y");
    int bulk = lines_add(&l, 0, 1, 1, LARGE, 2, "z");
    GW_TRY(lines_open(&l, dg));
    int64_t start = 0, t0 = gw_clock_ns();
    for (int i = 0; i < 1000000; i++) gw_comm_doing(c, doing);
    double doing_ns = 1e-6 * (double)(gw_clock_ns() - t0);
    for (int k = -100; k < TURNS; k++) {
        if (k == 0) start = gw_clock_ns();
        if (me == 0) GW_TRY(gw_channel_send(l.ch, there, buf, "turn", dg));
        GW_TRY(gw_channel_recv(l.ch, me ? there : back, buf, "turn", dg));
        if (me == 1) GW_TRY(gw_channel_send(l.ch, back, buf, "turn", dg));
    }
    double us = 1e-3 * (double)(gw_clock_ns() - start) / (2 * TURNS);
    for (int k = -4; k < MANY; k++) {
        if (k == 0) start = gw_clock_ns();
        if (me == 0) GW_TRY(gw_channel_send(l.ch, bulk, buf, "bulk", dg));
        if (me == 1) GW_TRY(gw_channel_recv(l.ch, bulk, buf, "bulk", dg));
    }
    GW_TRY(gw_channels_drain(l.ch, dg));
    double s = 1e-9 * (double)(gw_clock_ns() - start);
    if (me == 0)
        printf("doing %.1f ns; 1 KiB one way %.2f us; 16 MiB %.2f GB/s\n", doing_ns, us,
               (double)LARGE * MANY / s * 1e-9);
    gw_mem_free(buf);
    return lines_close(&l, dg);
}

static gw_status stopped(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    scene s = {STOPPED, (int)strtol(getenv("GW_CHANNELS_RANK"), NULL, 10)};
    return suffer(c, &s, dg);
}
static gw_status slept(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    scene s = {SLEPT, (int)strtol(getenv("GW_CHANNELS_RANK"), NULL, 10)};
    return suffer(c, &s, dg);
}
static gw_status misfit_bytes(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    misfit m = BYTES;
    return misfits(c, &m, dg);
}
/* Without memory that both see, by time: the receiver comes late, the last send waits for it. */
static gw_status bounded_by_time(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    enum { HOLDS = 3 };
    uint8_t buf[201];
    for (int size = 8; size <= 200; size += 192) {
        lines l = {.c = c};
        lines_add(&l, 0, 1, 0, size, HOLDS, "x");
        GW_TRY(lines_open(&l, dg));
        int64_t start = gw_clock_ns();
        if (gw_comm_rank(c) == 1) wait_s(0.6);
        for (int k = 0; k <= HOLDS; k++) {
            int64_t ms = (gw_clock_ns() - start) / 1000000;
            RANK_CHECK(dg, gw_comm_rank(c) != 0 || ms < 500, "message %d waited: %lld ms", k,
                       (long long)ms);
            GW_TRY(gw_comm_rank(c) == 0 ? lines_send(&l, 0, 0, k, buf, dg)
                                        : lines_recv(&l, 0, 0, k, buf, dg));
        }
        int64_t ms = (gw_clock_ns() - start) / 1000000;
        RANK_CHECK(dg, ms > 400, "no message waited: %lld ms", (long long)ms);
        GW_TRY(lines_close(&l, dg));
    }
    return GW_OK;
}

/* Neighbours with channels both ways take one message ahead: a large one is with its receiver
 * before that asks for it, which it does after 4 s, long enough for a machine that is busy. A
 * sender is ahead by its places all the same, and values stay right. */
static gw_status taken_ahead(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    enum { SIZE = 4 << 20, HOLDS = 3 };
    int me = gw_comm_rank(c);
    uint8_t *buf = gw_mem_zalloc(SIZE + 1);
    lines l = {.c = c};
    lines_add(&l, 0, 1, 0, SIZE, HOLDS, "activations");
    lines_add(&l, 1, 0, 0, SIZE, HOLDS, "grads");
    GW_TRY(lines_open(&l, dg));
    GW_TRY(gw_comm_barrier(c, "start", dg));
    int64_t start = gw_clock_ns();
    if (me == 0) {
        GW_TRY(lines_send(&l, 0, 0, 0, buf, dg));
        GW_TRY(gw_channels_drain(l.ch, dg));
        int64_t ms = (gw_clock_ns() - start) / 1000000;
        RANK_CHECK(dg, ms < 3000, "taken after %lld ms", (long long)ms);
        for (int k = 1; k < HOLDS; k++) GW_TRY(lines_send(&l, 0, 0, k, buf, dg));
        ms = (gw_clock_ns() - start) / 1000000;
        RANK_CHECK(dg, ms < 3400, "a place is missing: %lld ms", (long long)ms);
        GW_TRY(lines_send(&l, 0, 0, HOLDS, buf, dg));
        ms = (gw_clock_ns() - start) / 1000000;
        RANK_CHECK(dg, ms > 3600, "no message waited: %lld ms", (long long)ms);
    }
    for (int op = 0; me == 1 && gw_clock_ns() - start < INT64_C(4000000000); op++) {
        gw_comm_alive(c, (uint64_t)op);
        wait_s(0.002);
    }
    for (int k = 0; me == 1 && k <= HOLDS; k++) GW_TRY(lines_recv(&l, 0, 0, k, buf, dg));
    for (int k = 0; k < 20; k++) {
        GW_TRY(lines_send(&l, me, me, k + 10, buf, dg));
        GW_TRY(lines_recv(&l, 1 - me, 1 - me, k + 10, buf, dg));
    }
    RANK_CHECK(dg, !gw_channel_ready(l.ch, 1 - me), "ready, and nothing was sent");
    gw_mem_free(buf);
    return lines_close(&l, dg);
}

static const struct {
    const char *name;
    rig_body *run;
} scenarios[] = {
    {"sizes", all_sizes},         {"orders", other_order}, {"ring", ring},
    {"pipeline", pipeline},       {"drained", drained},    {"speed", speed},
    {"stopped", stopped},         {"slept", slept},        {"misfit", misfit_bytes},
    {"bounded", bounded_by_time}, {"circle", circle},      {"slow", slow_stage},
    {"ahead", taken_ahead},
};

/* GW_CHANNELS=SCENARIO: this process is a rank, or becomes GW_CHANNELS_RANKS of them. */
static void channel_rank(void) {
    const char *scenario = getenv("GW_CHANNELS"), *ranks = getenv("GW_CHANNELS_RANKS");
    setvbuf(stderr, NULL, _IOLBF, 4096);
    gw_launch_opts o = {.ranks = ranks ? (int)strtol(ranks, NULL, 10) : 0, .timeout_s = 1};
    gw_launch_role role;
    gw_comm *c = NULL;
    int code = 0;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = gw_launch(&o, &role, &c, &code, &dg);
    if (st == GW_OK && role == GW_LAUNCH_RANK) {
        int me = gw_comm_rank(c);
        st = GW_ERR_USAGE;
        for (size_t i = 0; i < GW_COUNT(scenarios); i++)
            if (strcmp(scenarios[i].name, scenario) == 0) st = scenarios[i].run(c, NULL, &dg);
        const char *late = getenv("GW_CHANNELS_LATE"); /* s, of the rank that has a line to say */
        if (late && gw_diags_first_error(&dg)[0]) wait_s(strtod(late, NULL));
        gw_launch_leave(c, st == GW_OK, gw_diags_first_error(&dg));
        if (st == GW_OK) printf("rank %d: ok\n", me);
    }
    gw_diags_print(&dg, stderr, false);
    gw_diags_release(&dg);
    fflush(NULL);
    if (st != GW_OK) code = gw_status_exit_code(st);
    if (code) exit(code);
}

__attribute__((constructor)) static void register_rank(void) {
    static test_case rank = {"channel_rank", channel_rank, 600, false, NULL};
    if (getenv("GW_CHANNELS")) test_register(&rank);
}
