// SPDX-License-Identifier: Apache-2.0
// The stream `copy`: arenas on host and disk, and a thread that moves bytes between them and the
// device in program order.
#ifndef GW_RUN_EXEC_COPY_H
#define GW_RUN_EXEC_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"     /* gw_status, gw_diags */
#include "ir/graph.h"      /* gw_graph, gw_oid, GW_MEM_COUNT */
#include "kernel/kernel.h" /* gw_kernel */

typedef struct gw_copier gw_copier;

/* Bytes that copies carry, by the kind of memory at the other end. */
typedef struct gw_copy_bytes {
    int64_t fetched[GW_MEM_COUNT], stored[GW_MEM_COUNT]; /* to the device, from it */
} gw_copy_bytes;

/* What `rank` copies in one step of a program (one run of the loop of a forward program). Pure: the
 * plan's figure. */
gw_copy_bytes gw_copy_traffic(const gw_graph *g, int64_t rank);
/* An op of stream `copy`. */
bool gw_op_is_copy(const gw_graph *g, const gw_op *o);

/* For a program with copies or with an arena on host or disk; otherwise *out = NULL and GW_OK.
 * Reserves host memory (touched, as gw_region_reserve does) and a file of the disk arena's size in
 * `dir`, which no name leads to: it is gone with the process. `here`: processes of this host that
 * do the same; there must be room for all. `g` must live as long. GW_ERR_MEMORY, GW_ERR_IO (no
 * room, no such folder), GW_ERR_CONFIG (a disk arena and no dir). */
GW_WARN_UNUSED gw_status gw_copier_new(gw_copier **out, const gw_graph *g, int64_t rank,
                                       const char *dir, int here, gw_diags *dg);
void gw_copier_free(gw_copier *c);

/* First byte of the arena on host, or of a mapping of the one on disk (for weights and checkpoints,
 * outside steps); NULL if there is none. */
void *gw_copier_base(const gw_copier *c, gw_mem m);

/* Tells copy op o its two ends: bytes of the device, and bytes that gw_copier_base leads to, or
 * those of another executor. Again where they have moved, while nothing is under way. */
void gw_copier_bind(gw_copier *c, gw_oid o, void *device, void *away, int64_t bytes);

/* Before a step: what was written through the mapping is in the file. */
GW_WARN_UNUSED gw_status gw_copier_begin(gw_copier *c, gw_diags *dg);
/* Before op i: waits for the fetches that it reads, and for what gw_graph_copy_end promises. The
 * first fault of the thread is reported here. */
GW_WARN_UNUSED gw_status gw_copier_before(gw_copier *c, gw_oid i, gw_diags *dg);
/* Hands copy op o to the thread. */
void gw_copier_issue(gw_copier *c, gw_oid o);
/* Waits for all that was issued. */
GW_WARN_UNUSED gw_status gw_copier_drain(gw_copier *c, gw_diags *dg);

/* What was carried since the copier was made. */
gw_copy_bytes gw_copier_moved(const gw_copier *c);
/* The latest run of copy op o: gw_clock_ns at its start, and how long it took. After a drain. */
void gw_copier_times(const gw_copier *c, gw_oid o, int64_t *start, int64_t *ns);
/* Does the file go past the page cache? */
bool gw_copier_is_direct(const gw_copier *c);

/* Stands for the kernel of a copy where a name is asked for. */
extern const gw_kernel gw_kernel_copy;

#endif
