// SPDX-License-Identifier: Apache-2.0
// Several ranks in a test, and a collective algorithm of its own that needs nothing of the
// product's.
#ifndef GW_TESTS_COMM_RIG_H
#define GW_TESTS_COMM_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/algorithm.h" /* gw_algorithm */
#include "comm/comm.h"      /* gw_comm */
#include "comm/transport.h" /* gw_transport */

typedef gw_status rig_body(gw_comm *c, void *user, gw_diags *dg);

/* Each collective as plainly as an exchange with every other rank allows; float32, sums in the
 * order of ranks. */
extern const gw_algorithm rig_algorithm;

/* Runs on threads; any failure fails the test. */
void rig_threads(int ranks, rig_body *body, void *user);

/* What came of forked ranks: exit code of the launch, all that was printed, seconds it took. */
typedef struct rig_result {
    int exit_code;
    double seconds;
    char text[16384];
    int pids[16];
} rig_result;
/* Forks a process that calls gw_launch and prints diagnostics as the program does; ranks exit with
 * the status of their body. The environment is that of nobody's launcher. */
void rig_forked(int ranks, double timeout_s, rig_body *body, void *user, rig_result *out);
/* The same; any failure fails the test. */
void rig_processes(int ranks, rig_body *body, void *user);

/* Memory that can be shared: a memfd, mapped. */
typedef struct rig_memory {
    void *base;
    int64_t bytes;
    int fd, handle;
} rig_memory;
gw_status rig_memory_share(gw_comm *c, int64_t bytes, rig_memory *m, gw_diags *dg);
void rig_memory_release(gw_comm *c, rig_memory *m);

/* In a body: a law that does not hold ends the rank with what it says. */
#define RANK_CHECK(dg, cond, ...)                                                                  \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return gw_fail_at((dg), GW_ERR_NUMERIC, "test", (gw_where){__FILE__, __LINE__, 0},     \
                              __VA_ARGS__);                                                        \
    } while (0)

#endif
