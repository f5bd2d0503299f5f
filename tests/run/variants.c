// SPDX-License-Identifier: Apache-2.0
// See variants.h.
#include "variants.h"

#include <string.h>

#include "../harness.h"
#include "base/rng.h"    /* gw_rng_u32 */
#include "comm/launch.h" /* gw_launch_threads */
#include "trainer.h"

typedef struct job {
    const variant *v;
    variant_trace *out;
} job;

static void configure(program *p, const variant *v) {
    gw_compile_opts *o = &p->opts;
    gw_mesh_add(&p->mesh, "dp", v->ranks);
    p->build.batch = v->ranks; /* a sample a rank */
    o->verify = true;
    o->micro_batches = GW_MAX(1, v->micro_batches);
    o->compute = v->compute;
    o->gradients = GW_F32;
    o->master = v->compute == GW_F32 ? GW_F32 : v->master;
    o->moments = v->moments;
    o->stochastic = v->stochastic;
    o->seed = 5;
    o->optim.kind = v->optim;
    o->optim.momentum = v->plain_sgd ? 0 : 0.9;
    o->optim.clip_norm = v->clip;
    o->optim.deferred_norm = v->deferred;
    o->recompute.kind = v->recompute;
    o->layout.zero = v->zero;
    o->layout.secondary = v->secondary;
    o->layout.prefetch = v->prefetch;
    o->layout.reduce_each = v->reduce_each;
    o->layout.bucket_bytes = 1 << 14;
    o->layout.first_bucket_bytes = 1 << 10;
    o->layout.optimizer_mem = v->optimizer_mem;
    o->layout.master_mem = v->master_mem;
    o->layout.parameter_mem = v->parameter_mem;
    p->machine.reference_only = v->reference;
}

/* The row of this rank in the global batch. */
static void write_row(program *p, gw_exec *x, int step, int mb, int64_t rank) {
    enum { SEQ = 12 };
    int32_t tokens[SEQ], labels[SEQ], positions[SEQ], docs[SEQ];
    gw_rng_key key = gw_rng_key_named((uint64_t)(step * 64 + mb * 8 + (int)rank), "row");
    CHECK_EQ(p->build.seq, SEQ);
    for (int i = 0; i < SEQ; i++) {
        tokens[i] = (int32_t)(gw_rng_u32(key, (uint64_t)i) % (uint32_t)p->model.vocab);
        docs[i] = i >= 5;
        positions[i] = i >= 5 ? i - 5 : i;
        labels[i] = i % 5 == 0 ? -100 : (int32_t)((tokens[i] * 7 + 3) % p->model.vocab);
    }
    int64_t sample = step * 1000 + mb * 8 + rank;
    gw_exec_write(x, "tokens", tokens, sizeof tokens);
    gw_exec_write(x, "labels", labels, sizeof labels);
    gw_exec_write(x, "positions", positions, sizeof positions);
    gw_exec_write(x, "docs", docs, sizeof docs);
    gw_exec_write(x, "samples", &sample, sizeof sample);
}

static gw_hash128 hash_state(const gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    gw_hash128 h = {0};
    for (int64_t i = 0; i < g->states.count; i++) {
        gw_vid v = g->states.items[i].start;
        size_t n = (size_t)gw_type_local_bytes(gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
        gw_hash128 part[2] = {h, gw_hash128_of(gw_exec_ptr(x, v), n)};
        h = gw_hash128_of(part, sizeof part);
    }
    return h;
}

static gw_status run_step(program *p, gw_exec *x, const variant *v, int step, variant_trace *t,
                          gw_diags *dg) {
    int k = p->opts.micro_batches;
    bool bad = v->bad_step && step == VARIANT_BAD_STEP;
    float seed = bad ? INFINITY : 1.0f / (float)(8 * k * v->ranks), one = 1, lr = 1e-2f;
    int64_t number = step + 1, batch = step;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "muon_lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    GW_TRY(gw_exec_run(x, GW_SEG_PRE, dg));
    for (int mb = 0; mb < k; mb++) {
        write_row(p, x, step, mb, gw_exec_rank(x));
        GW_TRY(gw_exec_run(x, GW_SEG_LOOP, dg));
    }
    GW_TRY(gw_exec_run(x, GW_SEG_POST, dg));
    CHECK(gw_exec_read(x, "loss", &t->loss[step], sizeof t->loss[step]));
    CHECK(gw_exec_read(x, "norm", &t->norm[step], sizeof t->norm[step]));
    t->state[step] = hash_state(x);
    return GW_OK;
}

static gw_status run_rank(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    program p;
    gw_graph g;
    gw_exec *x = NULL;
    trainer_init(&p, GW_FAMILY_QWEN3);
    configure(&p, j->v);
    if (c) {
        gw_comm_set_mesh(c, &p.mesh);
        p.facts.comm = *gw_comm_machine(c);
        p.machine.threads = 1;
    }
    gw_exec_opts eo = {.machine = p.machine, .comm = c, .rank = c ? gw_comm_rank(c) : 0};
    eo.offload_dir = j->v->dir;
    program_make(&p, NULL, &g, NULL);
    variant_trace *t = &j->out[eo.rank];
    memset(t, 0, sizeof *t);
    memcpy(t->arena, g.arena_bytes, sizeof t->arena);
    t->planned = gw_copy_traffic(&g, eo.rank);
    gw_status st = gw_exec_new(&x, &g, &eo, dg);
    gw_graph_release(&g);
    if (st == GW_OK) trainer_weights(&p, x, 11);
    for (int s = 0; s < VARIANT_STEPS && st == GW_OK; s++) st = run_step(&p, x, j->v, s, t, dg);
    if (st == GW_OK) {
        t->moved = gw_copier_moved(gw_exec_copier(x));
        t->direct = gw_copier_is_direct(gw_exec_copier(x));
    }
    gw_exec_free(x);
    program_release(&p);
    return st;
}

void variant_run(const variant *v, variant_trace out[VARIANT_RANKS]) {
    job j = {v, out};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st =
        v->ranks > 1 ? gw_launch_threads(v->ranks, 20, run_rank, &j, &dg) : run_rank(NULL, &j, &dg);
    CHECK_OK(st, &dg);
    gw_diags_release(&dg);
}

void variant_check_same(const variant *v, const variant_trace *a, const variant_trace *b,
                        const char *what) {
    for (int r = 0; r < v->ranks; r++)
        for (int s = 0; s < VARIANT_STEPS; s++) {
            bool bad = v->bad_step && s == VARIANT_BAD_STEP;
            bool same = bad || (a[r].loss[s] == b[r].loss[s] && a[r].norm[s] == b[r].norm[s]);
            same &= memcmp(&a[r].state[s], &b[r].state[s], sizeof a[r].state[s]) == 0;
            if (same) continue;
            test_note("ranks %d zero %d secondary %d x%d optim %d clip %g deferred %d compute %d "
                      "master %d mem %d %d %d",
                      v->ranks, v->zero, v->secondary, v->micro_batches, (int)v->optim, v->clip,
                      v->deferred, (int)v->compute, (int)v->master, (int)v->optimizer_mem,
                      (int)v->master_mem, (int)v->parameter_mem);
            test_fail(__FILE__, __LINE__,
                      "%s: rank %d step %d differs: loss %.9g %.9g norm %.9g %.9g", what, r, s,
                      (double)a[r].loss[s], (double)b[r].loss[s], (double)a[r].norm[s],
                      (double)b[r].norm[s]);
        }
}
