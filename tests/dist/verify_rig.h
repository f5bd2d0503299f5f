// SPDX-License-Identifier: Apache-2.0
// `verify` on ranks that are threads of the test, over a model of a few thousand parameters with
// odd sizes.
#ifndef GW_TESTS_DIST_VERIFY_RIG_H
#define GW_TESTS_DIST_VERIFY_RIG_H

#include "ir/graph.h"     /* gw_graph */
#include "train/verify.h" /* gw_verify_opts, gw_verify_result */

typedef struct rig {
    const char *family;   /* "llama" */
    const char *sets[24]; /* as --set, NULL-ended; rig_set adds */
    int nsets;
    int ranks;
    gw_verify_opts opts;
    gw_verify_result out; /* rank 0's; released by rig_release */
} rig;

/* One rank, three steps, SGD. */
rig rig_make(const char *family, int ranks);
/* Adds a --set; the text is formatted and kept until rig_release. */
void rig_set(rig *r, const char *fmt, ...) GW_PRINTF(2, 3);
/* Is its feed-forward one of experts? Six of them, unless a --set says otherwise. */
bool rig_has_experts(const char *family);
/* The run file of this rig; the first fails where it is refused, the second the test. */
gw_status rig_parse(const rig *r, gw_runfile *rf, gw_diags *dg);
void rig_runfile(const rig *r, gw_runfile *rf);
/* Runs verify; fails the test unless it comes to a verdict. */
void rig_verify(rig *r);
/* Does verify pass? Prints the report where it does not. */
bool rig_agrees(rig *r);
/* Fails the test unless it does. */
void rig_passes(rig *r);
void rig_release(rig *r);

/* The first tensor of this kind and name (NULL: any) that disagrees in the first pass. */
const gw_verify_tensor *rig_wrong(const rig *r, gw_verify_kind kind, const char *name);
/* The check whose name begins so. */
const gw_verify_check *rig_check(const rig *r, const char *name);

/* ---- faults ---- */
/* The op that defines the value called `name`. */
gw_oid rig_op_of(const gw_graph *g, const char *name);
/* Turns a reduction into a look at what is here already. */
void rig_drop_reduction(gw_graph *g, const char *name);
/* Runs the in-place all-reduce that defines `name` twice. */
void rig_reduce_twice(gw_graph *g, const char *name);

#endif
