// SPDX-License-Identifier: Apache-2.0
// Kernels: how an op runs on a machine. One file a kernel family, ending in constant descriptors;
// kernels.def lists them in order of preference. Choosing is pure (graph, op, machine), so the plan
// can print it.
#ifndef GW_KERNEL_KERNEL_H
#define GW_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "ir/opdef.h"   /* gw_graph, gw_op, gw_kargs, gw_status */

typedef enum gw_isa {
    GW_ISA_PLAIN,
    GW_ISA_AVX2,
    GW_ISA_AVX512,
    GW_ISA_AVX512_BF16,
    GW_ISA_AMX
} gw_isa;

/* What a choice may depend on. */
typedef struct gw_machine {
    gw_isa isa;
    int threads;         /* OpenMP threads a rank uses */
    bool reference_only; /* run the meaning of each op, plain loops */
    bool count_only; /* plan for a machine we are not on: no library is asked, workspace by formula
                      */
} gw_machine;

/* This machine with `threads` threads (0 = all cores of the affinity mask). */
gw_machine gw_machine_this(int threads);
const char *gw_isa_name(gw_isa isa);
/* Lets the libraries allocate what they keep for themselves (oneDNN's packing buffers of each
 * thread, generated code, thread stacks), by products of middle size: some 50 ms, once. What the
 * process then holds is the program's own size; what comes later is the plan's. */
void gw_kernel_warm(const gw_machine *m);

typedef struct gw_kernel {
    const char *name; /* "onednn-matmul" */
    const char *op;   /* op name */
    const char *note; /* one line for `plan` and docs */
    /* Looks at dtypes, shapes and attributes only. */
    bool (*supports)(const gw_graph *g, const gw_op *o, const gw_machine *m);
    /* Bytes of workspace this op needs, library scratch included. >= 0. */
    int64_t (*workspace)(const gw_graph *g, const gw_op *o, const gw_machine *m);
    /* Builds library objects and keeps what depends on shapes; state goes in `a` or is released by
     * `release`. `k` and its workspace stay where they are for the life of the state; the data of
     * k->in and k->out may be elsewhere at each launch. */
    gw_status (*prepare)(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg);
    /* Runs once, on the tensors that `k` (the one of prepare) has now: their data may have moved
     * since prepare or the last launch, aligned to 64 bytes as before; whatever else `k` says, its
     * workspace included, is what it was. No allocation of ours. */
    gw_status (*launch)(void *state, const gw_kargs *k, gw_diags *dg);
    void (*release)(void *state);
} gw_kernel;

/* The first kernel of the list that supports the op; the reference kernel (kernel/ref) always does.
 */
const gw_kernel *gw_kernel_choose(const gw_graph *g, const gw_op *o, const gw_machine *m);
/* Kernel i of the list (all backends), NULL past the end: for the suite and for printing. */
const gw_kernel *gw_kernel_at(int i);
/* Calls the op descriptor's reference function; workspace none. */
extern const gw_kernel gw_kernel_reference;

/* A value as a kernel of `rank` sees it: dense, local; a flat part as one dimension. */
gw_tensor gw_tensor_of(const gw_graph *g, gw_vid v, void *data, int64_t rank);
/* Fills nin/nout tensors of an op from bound pointers: ptr(v) gives the bytes of a value. Local
 * shapes of rank `rank`. The arrays hold at least op->nin / op->nout entries. */
void gw_kargs_bind(gw_kargs *k, const gw_graph *g, const gw_op *o, gw_tensor *in, gw_tensor *out,
                   void *(*ptr)(void *user, gw_vid v), void *user, int64_t rank);

#endif
