// SPDX-License-Identifier: Apache-2.0
// fetch, store and spill: copies between the device and memory of another kind, host or disk.
//
//   fetch  x -> y        from host or disk into fresh bytes of the device
//   store  y, x -> x'    from the device into the bytes of x on host or disk (tied)
//   spill  y -> x        from the device into fresh bytes on host or disk
//
// As functions all three are the identity: what differs is gw_value.mem of input and output. The
// shard pass inserts them where a home's memory kind is not that of the op that uses it, on stream
// `copy`; the executor hands ops of that stream to a thread of its own, in program order. A fetch
// is complete before the first op that reads it; what a store or a spill reads stays as it is up to
// gw_graph_copy_end.
//
// Every dim passes, and every dtype, whole or flat; nothing is computed, and the placement stays.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_fetch */
#include "ops/ref.h"   /* gw_tensor */

static gw_status infer(gw_infer *f) {
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    return GW_OK;
}

static gw_status store_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    return infer(f);
}

/* The same placement and two kinds of memory, one of them the device. */
static gw_status verify_copy(const gw_graph *g, const gw_op *o, bool to_device, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_value *x = &g->values.items[gw_op_in(g, o, 0)];
    const gw_value *y = &g->values.items[gw_op_out(g, o, 0)];
    bool same = x->type.flat == y->type.flat && x->type.flat_axes == y->type.flat_axes &&
                x->type.psum == y->type.psum;
    for (int i = 0; i < x->type.ndim; i++) same &= x->type.dims[i].naxes == y->type.dims[i].naxes;
    if (!same)
        return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement",
                       "%s: input and output are placed differently", gw_op_def(g, o)->name);
    if ((x->mem != GW_MEM_DEVICE) == to_device && (y->mem == GW_MEM_DEVICE) == to_device)
        return GW_OK;
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "%s: from %s memory to %s memory",
                   gw_op_def(g, o)->name, gw_mem_name((gw_mem)x->mem), gw_mem_name((gw_mem)y->mem));
}

static gw_status verify_fetch(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return verify_copy(g, o, true, dg);
}

static gw_status verify_store(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return verify_copy(g, o, false, dg);
}

static gw_status verify_spill(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return verify_copy(g, o, false, dg);
}

static void nothing(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    const gw_tensor *y = &k->out[0];
    size_t n = (size_t)(y->elems * gw_dtype_bits(y->dtype) / 8);
    if (n) memmove(y->data, k->in[0].data, n);
}

/* A case's values stand on the device; this says where the op expects them. */
static void fetch_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "from host");
    gw_vid x = gw_case_value(c, "h3 d17", false, GW_FILL_NORMAL, 1, 0);
    c->g.values.items[x].mem = GW_MEM_HOST;
    gw_build1(&c->b, "fetch", x);
}

static void store_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "to host");
    gw_vid y = gw_case_value(c, "h3 d17", false, GW_FILL_NORMAL, 1, 0);
    gw_vid x = gw_case_value(c, "h3 d17", false, GW_FILL_NORMAL, 1, 0);
    c->g.values.items[x].mem = GW_MEM_HOST;
    gw_build1(&c->b, "store", y, x);
}

static void spill_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "to host");
    gw_vid x = gw_build1(&c->b, "spill", gw_case_value(c, "d33", false, GW_FILL_NORMAL, 1, 0));
    if (c->b.status == GW_OK) c->g.values.items[x].mem = GW_MEM_HOST;
}

#define COPY(id, text, sig, inputs, tie0, infer_hook)                                              \
    const gw_opdef gw_opdef_##id = {                                                               \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .signature = sig,                                                                          \
        .traits = GW_OP_NODIFF | GW_OP_FLAT,                                                       \
        .linear_in = 0,                                                                            \
        .nin = inputs,                                                                             \
        .nout = 1,                                                                                 \
        .noptional = 0,                                                                            \
        .nacc = 0,                                                                                 \
        .ties = {tie0, -1, -1, -1, -1, -1},                                                        \
        .reads_in = 0,                                                                             \
        .reads_out = 0,                                                                            \
        .nattrs = 0,                                                                               \
        .attrs = NULL,                                                                             \
        .infer = infer_hook,                                                                       \
        .verify = verify_##id,                                                                     \
        .sign = gw_sign_default,                                                                   \
        .shard = gw_shard_default,                                                                 \
        .cost = nothing,                                                                           \
        .vjp = gw_vjp_none,                                                                        \
        .reference = reference,                                                                    \
        .cases = id##_cases,                                                                       \
    }

COPY(fetch, "a copy on the device of what lies on host or disk", "*->*", 1, -1, infer);
COPY(store, "what an op made on the device, back in its home on host or disk", "*,*->*", 2, 1,
     store_infer);
COPY(spill, "a copy on host or disk of what was made on the device", "*->*", 1, -1, infer);
