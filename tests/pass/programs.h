// SPDX-License-Identifier: Apache-2.0
// Programs for tests of passes: a model, its options, and the graph after any pass.
#ifndef GW_TESTS_PASS_PROGRAMS_H
#define GW_TESTS_PASS_PROGRAMS_H

#include "kernel/kernel.h" /* gw_machine */
#include "model/model.h"   /* gw_model, gw_build_opts */
#include "pass/pass.h"     /* gw_compile_opts */
#include "run/exec_comm.h" /* gw_exec_facts */

typedef struct program {
    gw_arena mem;
    gw_diags dg;
    gw_model model;
    gw_param *params;
    int nparams;
    union {                 /* a fixed one: nothing here depends on where the test runs */
        gw_machine machine; /* the first member of facts */
        gw_exec_facts facts;
    };
    gw_compile_opts opts;
    gw_build_opts build;
    gw_mesh mesh; /* none: one rank */
} program;

/* A model of `layers` layers with small odd sizes in the family's own style. */
gw_model tiny_model(gw_family f, int layers);
/* float32 training with AdamW, batch x seq, one micro-batch; change opts and build afterwards. */
void program_init(program *p, const gw_model *m, int64_t batch, int64_t seq);
void program_init_preset(program *p, const char *preset, int64_t batch, int64_t seq);
void program_release(program *p);
/* The graph after pass `last` (NULL = all); the caller releases it. Fails the test on an error. */
void program_make(program *p, const char *last, gw_graph *g, gw_compile_report *report);
/* The same, giving the status; g is released on an error. */
gw_status program_try(program *p, const char *last, gw_graph *g, gw_compile_report *report);

/* ---- reading graphs ---- */
int64_t local_bytes(const gw_graph *g, gw_vid v);
/* Bytes of weights, gradients and optimizer states on rank 0, each owner of memory once. */
typedef struct state_bytes {
    int64_t weights, gradients, optimizer;
} state_bytes;
state_bytes count_state_bytes(const gw_graph *g);
const char *op_name(const gw_graph *g, const gw_op *o);
bool is_op(const gw_graph *g, const gw_op *o, const char *name);
const char *value_name(const gw_graph *g, gw_vid v);
/* Ops called `name`, in phase `phase` (GW_PHASE_COUNT: any). */
int count_ops(const gw_graph *g, const char *name, gw_phase phase);
int count_recomputed(const gw_graph *g, const char *name); /* NULL: of any name */
/* FLOPs of the recomputed ops by their own cost hooks. */
double recomputed_flops(const gw_graph *g);
/* Bytes of the values that forward ops of layers define and backward ops read: saved activations,
 * by scope prefix ("layer 1", "" = all). Recomputed ops are backward ops. */
int64_t saved_bytes(const gw_graph *g, const char *scope);

#endif
