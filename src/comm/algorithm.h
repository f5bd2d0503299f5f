// SPDX-License-Identifier: Apache-2.0
// What a collective algorithm is: one file, one constant descriptor, one line in algorithms.def.
#ifndef GW_COMM_ALGORITHM_H
#define GW_COMM_ALGORITHM_H

#include "comm/comm.h"      /* gw_coll */
#include "comm/transport.h" /* gw_transport, gw_group */

typedef struct gw_algorithm_call {
    gw_transport *t;
    gw_group group;
    const gw_coll *coll;
    char *scratch; /* [gw_coll_scratch_bytes] */
    int threads;
} gw_algorithm_call;

typedef struct gw_algorithm {
    const char *name; /* "ring" */
    const char *doc;  /* one line, with source */
    uint32_t kinds;   /* 1u << gw_coll_kind of those it can do */
    /* Can it do this one on such a machine? `why` receives a constant text when not. */
    bool (*supports)(const gw_coll *c, const gw_coll_machine *m, const char **why);
    /* Bytes that group rank `rank` sends, exactly: what a run counts must equal it. */
    int64_t (*moved)(const gw_coll *c, int64_t rank);
    int64_t (*scratch)(const gw_coll *c, const gw_coll_machine *m);
    double (*seconds)(const gw_coll *c, const gw_coll_machine *m);
    /* Adds what it sends to *sent as it goes. */
    gw_status (*run)(const gw_algorithm_call *call, int64_t *sent, gw_diags *dg);
} gw_algorithm;

const gw_algorithm *gw_algorithm_at(int i);              /* NULL past the end */
const gw_algorithm *gw_algorithm_find(const char *name); /* NULL when there is none */

#endif
