// SPDX-License-Identifier: Apache-2.0
// Cores of several ranks: what exists counts once.
#include "harness.h"
#include "train/cores.h" /* gw_cores_add_up */

/* A rank on cores first .. first + n. */
static gw_core_share share(int first, int n, int threads, double quota) {
    gw_core_share s = {.threads = threads, .quota = quota};
    CPU_ZERO(&s.cores);
    for (int i = first; i < first + n; i++) CPU_SET((size_t)i, &s.cores);
    return s;
}

static gw_core_count add_up(const gw_core_share *s, int n, int64_t per_host) {
    gw_core_count c = {0};
    gw_cores_add_up(s, n, per_host, &c);
    return c;
}

TEST(cores_that_ranks_share_count_once) {
    gw_core_share apart[] = {share(0, 2, 2, 0), share(2, 2, 2, 0)};
    gw_core_share crowded[] = {share(0, 1, 1, 0), share(1, 1, 1, 0), share(0, 1, 1, 0),
                               share(1, 1, 1, 0)};
    CHECK_EQ(add_up(apart, 2, 0).cores, 4);
    CHECK_EQ(add_up(crowded, 4, 0).cores, 2);
    CHECK(add_up(crowded, 4, 0).usable == 2.0);
}

TEST(no_more_cores_than_threads_compute) {
    gw_core_share s[] = {share(0, 8, 1, 0), share(0, 8, 1, 0)};
    CHECK_EQ(add_up(s, 1, 0).cores, 1);
    CHECK_EQ(add_up(s, 2, 0).cores, 2);
    gw_core_share unknown = share(0, 0, 3, 0);
    CHECK_EQ(add_up(&unknown, 1, 0).cores, 3);
}

TEST(hosts_have_cores_of_their_own) {
    gw_core_share s[] = {share(0, 1, 1, 0), share(1, 1, 1, 0), share(0, 1, 1, 0),
                         share(1, 1, 1, 0)};
    CHECK_EQ(add_up(s, 4, 2).cores, 4);
    CHECK_EQ(add_up(s, 4, 1).cores, 4);
    CHECK_EQ(add_up(s, 3, 2).cores, 3); /* the last host has fewer */
}

/* A quota of a fifth of a core is for all ranks of the host; one that is larger changes nothing. */
TEST(a_quota_is_what_the_host_may_use) {
    gw_core_share s[] = {share(0, 1, 1, 0.2), share(1, 1, 1, 0.2)};
    gw_core_count c = add_up(s, 2, 0);
    CHECK_EQ(c.cores, 2);
    CHECK(c.usable == 0.2);
    s[0].quota = s[1].quota = 16;
    CHECK(add_up(s, 2, 0).usable == 2.0);
    s[0].quota = s[1].quota = 0.5;
    CHECK(add_up(s, 2, 1).usable == 1.0);
}
