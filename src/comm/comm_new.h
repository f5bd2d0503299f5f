// SPDX-License-Identifier: Apache-2.0
// Making a gw_comm from a transport; for launchers and tests.
#ifndef GW_COMM_COMM_NEW_H
#define GW_COMM_COMM_NEW_H

#include "comm/algorithm.h" /* gw_algorithm */
#include "comm/comm.h"      /* gw_comm, gw_coll_machine */
#include "comm/transport.h" /* gw_transport */

/* Takes the transport. m.per_host is the number of ranks on each host; ranks of one host follow one
 * another. Its calibration is borrowed and must outlive the comm. */
gw_comm *gw_comm_new(gw_transport *t, gw_coll_machine m);
/* Closes the transport and frees. */
void gw_comm_free(gw_comm *c);
gw_transport *gw_comm_transport(gw_comm *c);

/* gw_coll_run with an algorithm that need not stand in algorithms.def. */
GW_WARN_UNUSED gw_status gw_coll_run_with(gw_comm *c, const gw_coll *coll, const gw_algorithm *a,
                                          void *scratch, int threads, gw_diags *dg);

#endif
