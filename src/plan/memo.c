// SPDX-License-Identifier: Apache-2.0
// Why a plan of 126 layers does not ask the matrix library 2,600 times.
//
// A kernel's `supports` and `workspace` look at dtypes, shapes and attributes only
// (kernel/kernel.h), and may ask the library for a primitive to learn its scratch: tenths of a
// millisecond each, seconds for a large model. The layers of a transformer are alike, so the
// question is hashed (op, which inputs there are, types of inputs and outputs, attributes) and the
// answer kept. String attributes are left out: they are names (the key of a dropout's random
// numbers), and no shape or choice hangs on a name.
//
// The mesh is not part of the question: a memo serves the programs of one layout and one machine.
#include "plan/memo.h"

#include <string.h>

#include "base/hash.h"        /* gw_hash64 */
#include "run/exec_channel.h" /* gw_op_is_channel, gw_exec_box_bytes */
#include "run/exec_comm.h"    /* gw_exec_scratch */
#include "run/exec_experts.h" /* gw_experts_ep_kernel */

void gw_memo_init(gw_memo *m, const gw_machine *machine) {
    memset(m, 0, sizeof *m);
    m->machine = *machine;
    m->comm = gw_coll_machine_local(machine->threads);
}

void gw_memo_release(gw_memo *m) {
    gw_imap_release(&m->index);
    gw_vec_release(&m->choices);
}

/* The question as a run of numbers, hashed as it is written. */
static uint64_t add(uint64_t h, int64_t x) { return gw_hash64(&x, sizeof x, h); }

static uint64_t add_type(uint64_t h, const gw_type *t) {
    h = add(h, t->dtype | t->ndim << 8 | t->flat << 16);
    h = add(h, t->flat_axes);
    h = add(h, t->psum);
    h = add(h, t->pmax);
    for (int i = 0; i < (int)t->ndim; i++) {
        const gw_dim *d = &t->dims[i];
        h = gw_hash64(d->name, sizeof d->name, h);
        h = add(h, d->size);
        h = gw_hash64(d->axes, d->naxes, h);
        h = add(h, d->shard | gw_dim_outer(d) << 8 | d->turn << 16);
    }
    return h;
}

static uint64_t question(const gw_graph *g, const gw_op *o) {
    const gw_opdef *def = gw_op_def(g, o);
    uint64_t h = add(o->code, o->nin);
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(g, o, k);
        h = v == GW_NONE ? add(h, -1) : add_type(h, gw_type_of(g, v));
    }
    for (int k = 0; k < (int)o->nout; k++) h = add_type(h, gw_type_of(g, gw_op_out(g, o, k)));
    for (int k = 0; k < def->nattrs; k++)
        if (def->attrs[k].kind != GW_ATTR_STR) h = add(h, gw_op_attr(g, o, k).i);
    return h;
}

gw_choice gw_memo_choose(gw_memo *m, const gw_graph *g, const gw_op *o) {
    uint64_t key = question(g, o);
    uint32_t at = 0;
    if (gw_imap_find(&m->index, key, &at)) return m->choices.items[at];
    gw_choice c = {0};
    if (gw_op_is_experts_ep(g, o)) {
        c.kernel = gw_experts_ep_kernel(&m->machine);
        c.workspace_bytes = gw_experts_ep_workspace(g, o, &m->comm);
    } else {
        c.kernel = gw_kernel_choose(g, o, &m->machine);
        c.workspace_bytes = c.kernel->workspace(g, o, &m->machine);
    }
    gw_imap_put(&m->index, key, (uint32_t)m->choices.count);
    gw_vec_push(&m->choices, c);
    return c;
}

int64_t gw_memo_workspace(const gw_graph *g, const gw_op *o, const void *memo) {
    union { /* the hook's type has const; what stands behind it is a memo that may grow */
        const void *in;
        gw_memo *out;
    } p = {memo};
    if (gw_op_is_collective(g, o)) {
        gw_exec_facts f = {.machine = p.out->machine, .comm = p.out->comm};
        return gw_exec_scratch(g, o, &f);
    }
    if (gw_op_is_channel(g, o)) return gw_exec_box_bytes(g, o);
    return gw_memo_choose(p.out, g, o).workspace_bytes;
}
