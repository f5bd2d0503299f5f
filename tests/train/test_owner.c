// SPDX-License-Identifier: Apache-2.0
// The owner of a place in an object store: one at a time, known by name, renewed, and let go.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h" /* gw_log_set_level */
#include "harness.h"
#include "store_server/server.h" /* store_server_start */
#include "train/owner.h"         /* gw_owner_take */

static const char PLACE[] = "s3://bucket/runs/a";
static const char OBJECT[] = "/bucket/runs/a/owner.json";

static store_server *begin(void) {
    store_server_options o = {0};
    store_server *s = store_server_start(&o);
    store_server_use(s);
    gw_log_set_level(GW_LOG_QUIET);
    return s;
}

static bool is_there(store_server *s) {
    int64_t n;
    uint8_t *bytes = store_server_get(s, OBJECT, &n);
    free(bytes);
    return bytes != NULL;
}

/* Bounded by the harness; a renewal is due each twentieth of a second. */
static bool comes_to_be_lost(const gw_owner *o) {
    for (int i = 0; i < 600; i++) {
        if (gw_owner_check(o, NULL) != GW_OK) return true;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

/* Waits until `n` more puts were answered. */
static bool comes_to_put(store_server *s, int n) {
    store_server_stats stats;
    store_server_get_stats(s, &stats);
    int64_t puts = stats.puts + n;
    for (int i = 0; i < 600 && stats.puts < puts; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        store_server_get_stats(s, &stats);
    }
    return stats.puts >= puts;
}

static const gw_owner_options quick = {.renew_s = 0.05};

TEST(the_second_is_told_who_is_the_first) {
    gw_diags dg;
    gw_owner *one, *two;
    char want[64], host[96] = "";
    gw_diags_init(&dg);
    store_server *s = begin();
    CHECK_OK(gw_owner_take(&one, PLACE, NULL, &dg), &dg);
    snprintf(want, sizeof want, "in use by process %ld on ", (long)getpid());
    CHECK_FAILS(gw_owner_take(&two, PLACE, NULL, &dg), &dg, want);
    CHECK(two == NULL);
    CHECK(gethostname(host, sizeof host - 1) == 0 && strstr(gw_diags_first_error(&dg), host));
    gw_diags_clear(&dg);
    CHECK_OK(gw_owner_check(one, &dg), &dg);
    gw_owner_release(one);
    CHECK(!is_there(s));
    CHECK_OK(gw_owner_take(&two, PLACE, NULL, &dg), &dg);
    gw_owner_release(two);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* Its lease runs out by the store's clock; it is renewed as long as the holder lives. */
TEST(a_lease_that_ran_out_is_taken_over_and_the_first_finds_out) {
    gw_diags dg;
    gw_owner *one, *two, *three;
    gw_diags_init(&dg);
    store_server *s = begin();
    CHECK_OK(gw_owner_take(&one, PLACE, NULL, &dg), &dg); /* renewed after half a minute */
    store_server_set_clock(s, 115);
    CHECK_FAILS(gw_owner_take(&two, PLACE, NULL, &dg), &dg, "run-in-use");
    gw_diags_clear(&dg);
    store_server_set_clock(s, 125);
    CHECK_OK(gw_owner_take(&two, PLACE, &quick, &dg), &dg);
    CHECK(comes_to_put(s, 2)); /* renewals */
    store_server_set_clock(s, 200);
    CHECK(comes_to_put(s, 2)); /* the second began at this hour */
    store_server_set_clock(s, 310);
    CHECK_FAILS(gw_owner_take(&three, PLACE, NULL, &dg), &dg, "run-in-use");
    gw_diags_clear(&dg);
    CHECK_OK(gw_owner_check(two, &dg), &dg);
    /* The first's object is another's: what it lets go is not the second's. */
    gw_owner_release(one);
    CHECK(is_there(s));
    gw_owner_release(two);
    CHECK(!is_there(s));
    store_server_stop(s);
    gw_diags_release(&dg);
}

TEST(who_was_replaced_is_told_by_the_next_renewal) {
    gw_diags dg;
    gw_owner *one;
    static const char other[] = "{\"pid\": 9, \"host\": \"elsewhere\", \"mark\": \"m\"}";
    gw_diags_init(&dg);
    store_server *s = begin();
    CHECK_OK(gw_owner_take(&one, PLACE, &quick, &dg), &dg);
    store_server_set(s, OBJECT, other,
                     (int64_t)strlen(other)); /* as where conditions are ignored */
    CHECK(comes_to_be_lost(one));
    CHECK_FAILS(gw_owner_check(one, &dg), &dg, "process 9 on elsewhere");
    gw_owner_release(one);
    CHECK(is_there(s)); /* it is not ours to remove */
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* Errors of the store, even "not implemented" for the condition, cost nothing but time. */
TEST(a_renewal_survives_what_the_store_does) {
    gw_diags dg;
    gw_owner *one, *two;
    gw_diags_init(&dg);
    store_server *s = begin();
    store_fault busy = {
        .kind = FAULT_STATUS, .path = "owner.json", .count = 4, .status = 503, .text = "SlowDown"};
    store_fault lost = {.kind = FAULT_LOST, .method = "PUT", .path = "owner.json", .count = 1};
    store_fault unknown = {.kind = FAULT_STATUS,
                           .method = "PUT",
                           .path = "owner.json",
                           .skip = 1,
                           .count = 1,
                           .status = 501,
                           .text = "NotImplemented"};
    store_server_fault(s, &lost);
    CHECK_OK(gw_owner_take(&one, PLACE, &quick, &dg), &dg);
    store_server_no_faults(s);
    store_server_fault(s, &unknown);
    store_server_fault(s, &busy);
    CHECK(comes_to_put(s, 8));
    CHECK_OK(gw_owner_check(one, &dg), &dg);
    CHECK_FAILS(gw_owner_take(&two, PLACE, NULL, &dg), &dg, "run-in-use");
    gw_owner_release(one);
    CHECK(!is_there(s));
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* A process of this machine that was killed is known to be gone: nobody waits for its lease. */
TEST(a_killed_holder_of_this_machine_is_followed_at_once) {
    gw_diags dg;
    gw_owner *one;
    gw_diags_init(&dg);
    store_server *s = begin();
    fflush(NULL);
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) _exit(gw_owner_take(&one, PLACE, NULL, NULL) == GW_OK ? 0 : 1);
    siginfo_t ended;
    CHECK(waitid(P_PID, (id_t)p, &ended, WEXITED | WNOWAIT) == 0); /* it stays a zombie */
    CHECK(ended.si_code == CLD_EXITED && ended.si_status == 0);
    CHECK(is_there(s)); /* it released nothing */
    CHECK_OK(gw_owner_take(&one, PLACE, NULL, &dg), &dg);
    gw_owner_release(one);
    CHECK(waitpid(p, NULL, 0) == p);
    store_server_stop(s);
    gw_diags_release(&dg);
}

/* What nobody can read is somebody's until its lease has run out. */
TEST(an_object_that_does_not_read_is_respected) {
    static const char *const texts[] = {"", "{", "[1]", "{\"pid\": -4}", "{\"pid\": 1e300}"};
    gw_diags dg;
    gw_owner *one;
    gw_diags_init(&dg);
    store_server *s = begin();
    for (size_t i = 0; i < GW_COUNT(texts); i++) {
        store_server_set_clock(s, 0);
        store_server_set(s, OBJECT, texts[i], (int64_t)strlen(texts[i]));
        CHECK_FAILS(gw_owner_take(&one, PLACE, NULL, &dg), &dg, "an unknown process");
        gw_diags_clear(&dg);
        store_server_set_clock(s, GW_OWNER_LEASE_S + 3);
        CHECK_OK(gw_owner_take(&one, PLACE, NULL, &dg), &dg);
        gw_owner_release(one);
    }
    store_server_stop(s);
    gw_diags_release(&dg);
}
