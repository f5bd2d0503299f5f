// SPDX-License-Identifier: Apache-2.0
// SyncBatchNorm's law: N ranks with batch B/N compute what one rank with batch B does.
//
// A narrow resnet18 takes two steps of SGD on 32 images, on one rank, on two and on four. Losses,
// parameters and running statistics agree to the rounding of sums in another order; a norm that saw
// its rank's images alone would be off in the first digit (docs/vision.md).
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h"    /* gw_rng_uniform */
#include "comm/launch.h" /* gw_launch_threads */
#include "model/model.h" /* gw_model_build */
#include "ops/ops.h"     /* gw_ops_table */
#include "pass/pass.h"   /* gw_compile */
#include "run/exec.h"    /* gw_exec */

enum { IMAGES = 32, SIDE = 32, STEPS = 2, MOST = 1 << 20 };

typedef struct job {
    int ranks;
    int64_t groups;
    bool broadcast;
    float *state; /* parameters and running statistics after the steps, of rank 0 */
    int64_t n;
    float loss;
} job;

static void uniform(const char *name, float low, float high, int64_t n, float *out) {
    gw_rng_key key = gw_rng_key_named(7, name);
    for (int64_t i = 0; i < n; i++) out[i] = low + (high - low) * gw_rng_uniform(key, (uint64_t)i);
}

static gw_model narrow(const job *j) {
    gw_model m;
    CHECK(gw_model_preset("resnet18", &m));
    m.resnet.width = 8;
    m.resnet.image = SIDE;
    m.resnet.classes = 10;
    m.resnet.groups = j->groups;
    m.resnet.broadcast_buffers = j->broadcast;
    return m;
}

static void set_state(gw_exec *x, const gw_param *p, int np, const gw_buffer *b, int nb) {
    for (int i = 0; i < np; i++) {
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p[i].name));
        bool gain = p[i].init == GW_INIT_ONES;
        uniform(p[i].name, gain ? 0.5f : -0.1f, gain ? 1.5f : 0.1f, t.elems, t.data);
        char name[160];
        snprintf(name, sizeof name, "%s.m", p[i].name);
        t = gw_exec_tensor(x, gw_exec_find(x, name));
        memset(t.data, 0, (size_t)t.elems * 4);
    }
    for (int i = 0; i < nb; i++) {
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, b[i].name));
        memset(t.data, 0, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
        for (int64_t k = 0; t.dtype == GW_F32 && k < t.elems; k++)
            ((float *)t.data)[k] = (float)b[i].init;
    }
}

static gw_status step(gw_exec *x, const job *j, int rank, int64_t number, gw_diags *dg) {
    int64_t each = SIDE * SIDE * 3, rows = IMAGES / j->ranks;
    float seed = 1.0f / IMAGES, one = 1, lr = 1e-3f;
    float *images = gw_mem_alloc(sizeof(float) * IMAGES * (size_t)each);
    int32_t labels[IMAGES];
    uniform(number % 2 ? "odd" : "even", -2, 2, IMAGES * each, images);
    for (int i = 0; i < IMAGES; i++) labels[i] = (i * 3 + 1) % 10;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    GW_TRY(gw_exec_run(x, GW_SEG_PRE, dg));
    gw_exec_write(x, "images", images + rank * rows * each, rows * each * 4);
    gw_exec_write(x, "labels", labels + rank * rows, rows * 4);
    gw_mem_free(images);
    GW_TRY(gw_exec_run(x, GW_SEG_LOOP, dg));
    return gw_exec_run(x, GW_SEG_POST, dg);
}

static void keep(job *j, gw_exec *x, const char *name) {
    gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, name));
    if (t.dtype != GW_F32 || (t.ndim == 2 && strstr(name, "running")))
        return; /* a counter; a part */
    CHECK(j->n + t.elems <= MOST);
    memcpy(j->state + j->n, t.data, (size_t)t.elems * 4);
    j->n += t.elems;
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    int rank = gw_comm_rank(c);
    gw_model m = narrow(j);
    gw_arena mem = {0};
    gw_param *p;
    gw_buffer *b;
    int np, nb;
    gw_model_params(&m, &mem, &p, &np);
    gw_model_buffers(&m, &mem, &b, &nb);
    gw_param_info *infos = gw_arena_new(&mem, gw_param_info, np);
    for (int i = 0; i < np; i++)
        infos[i] =
            (gw_param_info){.name = p[i].name, .decay = p[i].decay, .hidden = false, .rows = 1};
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = *gw_comm_machine(c)};
    gw_compile_opts o = {.train = true,
                         .micro_batches = 1,
                         .compute = GW_F32,
                         .gradients = GW_F32,
                         .master = GW_F32,
                         .moments = GW_F32,
                         .params = infos,
                         .nparams = np,
                         .workspace = gw_exec_workspace,
                         .workspace_user = &f,
                         .optim = {.kind = GW_OPTIM_SGD, .momentum = 0.9},
                         .verify = true};
    gw_build_opts bo = {
        .mode = GW_BUILD_LOSS, .batch = IMAGES, .compute = GW_F32, .training = true};
    gw_graph g;
    gw_exec *x = NULL;
    gw_graph_init(&g, gw_ops_table());
    gw_mesh_add(&g.mesh, "dp_replicate", 1);
    gw_mesh_add(&g.mesh, "dp", j->ranks);
    GW_TRY(gw_model_build(&g, &m, &bo, dg));
    GW_TRY(gw_compile(&g, &o, NULL, NULL, dg));
    gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts eo = {.machine = f.machine, .comm = c, .rank = rank, .poison = true};
    GW_TRY(gw_exec_new(&x, &g, &eo, dg));
    set_state(x, p, np, b, nb);
    for (int64_t s = 1; s <= STEPS; s++) GW_TRY(step(x, j, rank, s, dg));
    if (rank == 0) {
        CHECK(gw_exec_read(x, "loss", &j->loss, sizeof j->loss));
        for (int i = 0; i < np; i++) keep(j, x, p[i].name);
        for (int i = 0; i < nb; i++) keep(j, x, b[i].name);
    }
    gw_exec_free(x);
    gw_graph_release(&g);
    gw_arena_release(&mem);
    return GW_OK;
}

static void run_job(job *j, float *state) {
    gw_diags dg;
    gw_diags_init(&dg);
    j->state = state;
    CHECK_OK(gw_launch_threads(j->ranks, 60, body, j, &dg), &dg);
    gw_diags_release(&dg);
}

/* One rank, two and four, with batch statistics of `groups` parts. */
static void compare(int64_t groups, bool broadcast) {
    float *a = gw_mem_alloc(sizeof(float) * MOST), *b = gw_mem_alloc(sizeof(float) * MOST);
    job one = {.ranks = 1, .groups = groups, .broadcast = broadcast};
    run_job(&one, a);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        job many = {.ranks = ranks, .groups = groups, .broadcast = broadcast};
        run_job(&many, b);
        CHECK_EQ(many.n, one.n);
        CHECK_NEAR(many.loss, one.loss, 1e-4f * one.loss);
        double diff = 0, size = 0;
        for (int64_t i = 0; i < one.n; i++) {
            diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
            size += (double)a[i] * (double)a[i];
        }
        test_note("%d ranks: %.2g, loss %.6g and %.6g", ranks, sqrt(diff / size), (double)many.loss,
                  (double)one.loss);
        CHECK_MSG(sqrt(diff / size) < 1e-5, "%d ranks differ by %.3g", ranks, sqrt(diff / size));
    }
    gw_mem_free(a);
    gw_mem_free(b);
}

TEST_WITHIN(synchronised_norms_make_n_ranks_equal_one, 120) { compare(1, true); }

/* Groups belong to the model: whoever holds them, they are the same. */
TEST_WITHIN(local_norms_are_the_same_on_any_number_of_ranks, 120) {
    compare(4, true);
    compare(4, false);
}
