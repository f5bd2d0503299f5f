// SPDX-License-Identifier: Apache-2.0
// The table between the program and its MPI plugin: the few MPI calls that the transport needs.
//
// The program is compiled without MPI; gradwright-mpi.so is compiled with it, and holds nothing but
// this table. Everything that can be wrong about ranks is decided in comm/mpi/transport.c, which
// needs no MPI to be compiled, sanitized or tested.
#ifndef GW_COMM_MPI_PLUGIN_H
#define GW_COMM_MPI_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

/* Changes with the table: a plugin of another number is refused. */
#define GW_MPI_ABI   2u
#define GW_MPI_ENTRY "gw_mpi_plugin"

/* Room for an MPI_Request of any MPI; all zero is none. */
typedef struct gw_mpi_request {
    uint64_t words[2];
} gw_mpi_request;

/* Three communicators of all ranks: what is sent on one is never received on another. */
typedef enum gw_mpi_channel { GW_MPI_DATA, GW_MPI_CONTROL, GW_MPI_MESSAGES } gw_mpi_channel;
enum { GW_MPI_CHANNELS = GW_MPI_MESSAGES + 1 };

#define GW_MPI_MAX_BYTES (1 << 30) /* of one message: MPI counts in int */

typedef struct gw_mpi_world {
    int rank, size;
    int on_host;       /* ranks on this rank's host */
    int per_host;      /* ranks on each host if all have as many, in blocks; otherwise 1 */
    int max_tag;       /* tags are 0 .. max_tag */
    bool finalized;    /* somebody finalized MPI in this process before */
    char library[128]; /* "Open MPI v4.1.4" */
} gw_mpi_world;

/* Functions return 0 or an MPI error code for `error_text`. All calls come from one thread. */
typedef struct gw_mpi_api {
    uint32_t abi; /* GW_MPI_ABI */
    int (*init)(gw_mpi_world *w);
    /* Bytes stay where they are until the request is done. 0 <= n <= GW_MPI_MAX_BYTES. */
    int (*isend)(gw_mpi_channel c, const void *bytes, int n, int to, int tag, gw_mpi_request *r);
    /* The same, but done only when the receiver has begun to receive it. */
    int (*issend)(gw_mpi_channel c, const void *bytes, int n, int to, int tag, gw_mpi_request *r);
    /* from = -1: from any rank. */
    int (*irecv)(gw_mpi_channel c, void *bytes, int n, int from, int tag, gw_mpi_request *r);
    /* A request that is none is done. *n, if not NULL: bytes received. */
    int (*test)(gw_mpi_request *r, bool *done, int *n);
    /* The tag of the first message from `from` that no receive has matched; of those with *tag if
     * that is >= 0. */
    int (*probe)(gw_mpi_channel c, int from, bool *found, int *tag);
    /* Withdraws a receive. */
    int (*cancel)(gw_mpi_request *r);
    /* The same number at all ranks: the smallest of theirs. Blocks; only right after init. */
    int (*min_int)(int *x);
    void (*error_text)(int code, char *buf, int n);
    int (*finalize)(void);
    bool (*is_open)(void); /* initialised and not finalized */
    /* Ends every rank's process; does not return. */
    void (*abort)(int code);
} gw_mpi_api;

/* What GW_MPI_ENTRY names. */
typedef const gw_mpi_api *gw_mpi_entry(void);

#endif
