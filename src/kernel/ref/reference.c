// SPDX-License-Identifier: Apache-2.0
// The kernel of last resort: the meaning of an op, as its own file states it.
//
// Each op's descriptor holds a reference function: plain loops, strict floating point, one thread,
// every dtype. This kernel only calls it. It supports everything, so a new op runs on the day its
// file is written, and a machine with `reference_only` runs whole models on it: that is what other
// kernels are compared with.
#include "kernel/kernel.h" /* gw_kernel */

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return true;
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return 0;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)k, (void)a, (void)dg;
    *state = NULL;
    return GW_OK;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_op_def(k->g, k->op)->reference(k);
    return GW_OK;
}

static void release(void *state) { (void)state; }

const gw_kernel gw_kernel_reference = {
    .name = "reference",
    .op = "*",
    .note = "the op's own plain loops, one thread",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .launch = launch,
    .release = release,
};
