// SPDX-License-Identifier: Apache-2.0
// A transport for tests of algorithms: ranks are threads, and every message is a rendezvous (a send
// ends when the receiver has it), the strictest behaviour a transport may have. A rank that waits
// for 20 s fails.
#ifndef GW_TESTS_COMM_MINI_H
#define GW_TESTS_COMM_MINI_H

#include "comm/transport.h" /* gw_transport */

typedef struct mini_world mini_world;

/* With one_sided, ranks see each other's regions: place o of region[i] is place o of region[j]. */
mini_world *mini_new(int ranks, bool one_sided, char *const *regions, int64_t region_bytes);
void mini_free(mini_world *w);
gw_transport *mini_transport(mini_world *w, int rank);
/* Runs body(rank, user) on a thread for each rank and waits for all. */
void mini_run(mini_world *w, void (*body)(gw_transport *t, int rank, void *user), void *user);
/* Bytes that this rank has given to exchange. */
int64_t mini_sent(const gw_transport *t);

#endif
