// SPDX-License-Identifier: Apache-2.0
// The list of kernels, the choice of one, and the binding of its arguments.
//
// A kernel is one constant descriptor at the end of its file and one line in kernels.def. The
// choice walks that list and takes the first entry whose op matches and whose `supports` accepts
// the case; where none does, or where the machine asks for it, the op runs its own meaning
// (kernel/ref). The walk reads the graph, the op and the machine and nothing else, so a plan made
// elsewhere prints the same names.
//
// Binding turns graph values into what a kernel sees: local, dense, row-major tensors. Here alone
// is the rule that a flat home (a whole tensor cut into balanced runs) appears as one dimension,
// and that an absent optional input has no data and no elements. Memory and its lifetimes belong to
// the executor.
#include "kernel/kernel.h"

#include <string.h>

#include "base/compiler.h" /* GW_COUNT */

#define X(name) extern const gw_kernel gw_kernel_##name;
#include "kernel/kernels.def"
#undef X

static const gw_kernel *const all_kernels[] = {
#define X(name) &gw_kernel_##name,
#include "kernel/kernels.def"
#undef X
};

const gw_kernel *gw_kernel_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(all_kernels) ? all_kernels[i] : NULL;
}

const gw_kernel *gw_kernel_choose(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    if (m->reference_only) return &gw_kernel_reference;
    const char *op = gw_op_def(g, o)->name;
    for (int i = 0; i < (int)GW_COUNT(all_kernels); i++) {
        const gw_kernel *k = all_kernels[i];
        if (strcmp(k->op, op) == 0 && k->supports(g, o, m)) return k;
    }
    return &gw_kernel_reference;
}

gw_tensor gw_tensor_of(const gw_graph *g, gw_vid v, void *data, int64_t rank) {
    const gw_type *type = gw_type_of(g, v);
    gw_tensor t = {.data = data, .dtype = (gw_dtype)type->dtype, .ndim = type->ndim};
    t.elems = gw_type_local_elems(type, &g->mesh, rank);
    gw_held w;
    int64_t local, count;
    gw_held_begin(&w, type, &g->mesh, rank);
    if (!gw_held_next(&w, &t.first, &local, &count)) t.first = 0;
    if (type->flat) {
        t.ndim = 1;
        t.dims[0] = t.elems;
        return t;
    }
    for (int i = 0; i < t.ndim; i++) t.dims[i] = gw_type_local_dim(type, i, &g->mesh, rank);
    return t;
}

void gw_kargs_bind(gw_kargs *k, const gw_graph *g, const gw_op *o, gw_tensor *in, gw_tensor *out,
                   void *(*ptr)(void *user, gw_vid v), void *user, int64_t rank) {
    k->g = g;
    k->op = o;
    k->rank = rank;
    k->nin = o->nin;
    k->nout = o->nout;
    k->in = in;
    k->out = out;
    for (int i = 0; i < k->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        in[i] = v == GW_NONE ? (gw_tensor){0} : gw_tensor_of(g, v, ptr(user, v), rank);
    }
    for (int i = 0; i < k->nout; i++) {
        gw_vid v = gw_op_out(g, o, i);
        out[i] = gw_tensor_of(g, v, ptr(user, v), rank);
    }
}
