// SPDX-License-Identifier: Apache-2.0
// A step with the sequence cut over context-parallel ranks, in each way, with and without tensor
// parallelism: whole programs, from the model builder through all passes, run by threads as ranks
// over the shared-memory transport. Loss and every gradient are those of one rank, up to the order
// of float32 sums.
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h"    /* gw_rng_u32 */
#include "comm/launch.h" /* gw_launch_threads */
#include "trainer.h"

enum { RANKS = 8, BATCH = 2, SEQ = 32, PARAMS = 64 };

typedef struct layout {
    const char *name;
    gw_family family;
    int dp, cp, tp, ulysses; /* ulysses: of hybrid */
    gw_cp_mode mode;
    bool sequence_parallel, window;
} layout;

typedef struct job {
    const layout *l; /* NULL: one rank */
    gw_family family;
    bool window;
    float loss[RANKS];
    float *grad[RANKS][PARAMS]; /* [global elements], NaN where the rank has none */
    int64_t elems[PARAMS];
    char names[PARAMS][64];
    int nparams, ring_ops;
} job;

/* ---- one rank ---- */

static void cut_params(program *p) {
    static const char *const dims[] = {"h", "g", "f", "v"};
    gw_param_info *infos = gw_arena_new(&p->mem, gw_param_info, p->nparams);
    for (int i = 0; i < p->nparams; i++) {
        infos[i] = p->opts.params[i];
        for (size_t d = GW_COUNT(dims); d-- > 0;)
            if (gw_type_find(&p->params[i].type, dims[d]) >= 0)
                snprintf(infos[i].cut, sizeof infos[i].cut, "%s", dims[d]);
    }
    p->opts.params = infos;
}

static void configure(program *p, const job *j) {
    const layout *l = j->l;
    gw_model m = tiny_model(j->family, 2);
    m.window = j->window ? 9 : 0;
    program_init(p, &m, BATCH, SEQ);
    p->machine = gw_machine_this(1);
    p->opts.verify = true;
    p->opts.keep_gradients = true;
    p->opts.optim.clip_norm = 0;
    if (!l) return;
    gw_mesh_add(&p->mesh, "dp", l->dp);
    gw_mesh_add(&p->mesh, "cp", l->cp);
    gw_mesh_add(&p->mesh, "tp", l->tp);
    p->opts.layout.cp_mode = l->mode;
    p->opts.layout.cp_ulysses = l->ulysses;
    p->opts.layout.sequence_parallel = l->sequence_parallel;
    cut_params(p);
}

static float uniform(gw_rng_key key, uint64_t i) {
    return (float)(gw_rng_u32(key, i) >> 8) / 8388608.0f - 1; /* [-1, 1) */
}

/* Element `at` of a row of input `name`. */
static int64_t datum(const program *p, const char *name, int64_t at) {
    int64_t i = at % SEQ, cut = 11 + at / SEQ * 6; /* two documents a row */
    int64_t token = (at * 2654435761 >> 8) % p->model.vocab;
    if (strcmp(name, "tokens") == 0) return token;
    if (strcmp(name, "labels") == 0) return at % 5 == 0 ? -100 : (token * 7 + 3) % p->model.vocab;
    if (strcmp(name, "docs") == 0) return i >= cut;
    if (strcmp(name, "positions") == 0) return i >= cut ? i - cut : i;
    return 1000 + at;
}

/* Leaf v of this rank: a weight, or an input of ids. */
static void fill(const program *p, gw_exec *x, gw_vid v, const char *name, bool ones) {
    const gw_graph *g = gw_exec_graph(x);
    gw_tensor t = gw_exec_tensor(x, v);
    gw_rng_key key = gw_rng_key_named(7, name);
    gw_held h;
    int64_t global, local, n;
    if (!t.data) return;
    gw_held_begin(&h, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    while (gw_held_next(&h, &global, &local, &n))
        for (int64_t i = 0; i < n; i++) {
            float w = ones ? 1 : 0.3f * uniform(key, (uint64_t)(global + i));
            if (t.dtype == GW_F32) ((float *)t.data)[local + i] = w;
            if (t.dtype == GW_I32)
                ((int32_t *)t.data)[local + i] = (int32_t)datum(p, name, global + i);
            if (t.dtype == GW_I64) ((int64_t *)t.data)[local + i] = datum(p, name, global + i);
        }
}

static void keep_gradient(job *j, gw_exec *x, int64_t rank, int param, const char *name) {
    const gw_graph *g = gw_exec_graph(x);
    char full[96];
    snprintf(full, sizeof full, "grad:%s", name);
    snprintf(j->names[param], sizeof j->names[param], "%.63s", name);
    gw_vid v = gw_exec_find(x, full);
    CHECK_MSG(v != GW_NONE, "no %s", full);
    gw_tensor t = gw_exec_tensor(x, v);
    CHECK_EQ(gw_type_of(g, v)->psum, 0);
    int64_t elems = gw_type_elems(gw_type_of(g, v)), global, local, n;
    float *all = malloc((size_t)elems * sizeof *all);
    for (int64_t i = 0; i < elems; i++) all[i] = NAN;
    gw_held h;
    gw_held_begin(&h, gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    while (gw_held_next(&h, &global, &local, &n))
        memcpy(all + global, (float *)t.data + local, (size_t)n * sizeof *all);
    j->grad[rank][param] = all;
    j->elems[param] = elems;
}

static void write_scalars(gw_exec *x) {
    float seed = 1.0f / 40, one = 1, lr = 1e-2f;
    int64_t number = 1, batch = 0;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
}

static gw_status run_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    program p;
    gw_graph g;
    gw_exec *x = NULL;
    int64_t rank = c ? gw_comm_rank(c) : 0;
    configure(&p, j);
    if (c) {
        gw_comm_set_mesh(c, &p.mesh);
        p.facts.comm = *gw_comm_machine(c);
    }
    program_make(&p, NULL, &g, NULL);
    CHECK(p.nparams <= PARAMS);
    if (rank == 0)
        j->nparams = p.nparams, j->ring_ops = count_ops(&g, "attention_part", GW_PHASE_COUNT);
    GW_TRY(gw_exec_new(&x, &g, &(gw_exec_opts){.machine = p.machine, .comm = c, .rank = rank}, dg));
    for (int64_t v = 0; v < g.values.count; v++) {
        const gw_value *y = &g.values.items[v];
        if (y->role == GW_ROLE_STATE && y->def == GW_NONE && gw_exec_ptr(x, (gw_vid)v))
            memset(gw_exec_ptr(x, (gw_vid)v), 0,
                   (size_t)gw_type_local_bytes(&y->type, &g.mesh, rank));
    }
    for (int i = 0; i < p.nparams; i++)
        fill(&p, x, gw_exec_find(x, p.params[i].name), p.params[i].name,
             p.params[i].init == GW_INIT_ONES);
    write_scalars(x);
    GW_TRY(gw_exec_run(x, GW_SEG_PRE, dg));
    static const char *const inputs[] = {"tokens", "labels", "positions", "docs", "samples"};
    for (size_t i = 0; i < GW_COUNT(inputs); i++) {
        gw_vid v = gw_exec_find(x, inputs[i]);
        if (v != GW_NONE) fill(&p, x, v, inputs[i], false);
    }
    GW_TRY(gw_exec_run(x, GW_SEG_LOOP, dg));
    GW_TRY(gw_exec_run(x, GW_SEG_POST, dg));
    CHECK(gw_exec_read(x, "loss", &j->loss[rank], sizeof j->loss[rank]));
    for (int i = 0; i < p.nparams; i++) keep_gradient(j, x, rank, i, p.params[i].name);
    gw_exec_free(x);
    gw_graph_release(&g);
    program_release(&p);
    return GW_OK;
}

/* ---- all ranks ---- */

static void job_release(job *j) {
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < PARAMS; i++) free(j->grad[r][i]);
}

/* ‖a - b‖ against ‖b‖, or a tenth of a typical gradient: a key's bias has no true gradient, and
 * what is left of it are rounding errors of numbers that cancel. */
static void compare(const job *a, const job *whole, int ranks, double typical) {
    for (int i = 0; i < whole->nparams; i++) {
        double diff = 0, norm = 0;
        for (int64_t e = 0; e < whole->elems[i]; e++) {
            double want = (double)whole->grad[0][i][e];
            bool held = false;
            norm += want * want;
            for (int r = 0; r < ranks; r++) {
                float got = a->grad[r][i][e];
                if (isnan(got)) continue;
                if (!held) diff += ((double)got - want) * ((double)got - want);
                held = true;
            }
            CHECK_MSG(held, "%s: no rank has element %lld of the gradient of %s", a->l->name,
                      (long long)e, whole->names[i]);
        }
        double floor = 0.1 * typical * sqrt((double)whole->elems[i]);
        CHECK_MSG(sqrt(diff) <= 2e-5 * fmax(sqrt(norm), floor),
                  "%s: gradient of %s is %g off, of norm %g", a->l->name, whole->names[i],
                  sqrt(diff), sqrt(norm));
    }
}

static double typical_of(const job *j) {
    double sum = 0, n = 0;
    for (int i = 0; i < j->nparams; i++)
        for (int64_t e = 0; e < j->elems[i]; e++) {
            sum += (double)j->grad[0][i][e] * (double)j->grad[0][i][e];
            n++;
        }
    return sqrt(sum / n);
}

static void check_layout(const layout *l) {
    gw_diags dg;
    gw_diags_init(&dg);
    job *cut = gw_mem_zalloc(sizeof *cut), *whole = gw_mem_zalloc(sizeof *whole);
    *cut = (job){.l = l, .family = l->family, .window = l->window};
    *whole = (job){.family = l->family, .window = l->window};
    int ranks = l->dp * l->cp * l->tp;
    CHECK_OK(run_rank(NULL, whole, &dg), &dg);
    CHECK_OK(gw_launch_threads(ranks, 60, run_rank, cut, &dg), &dg);
    bool rings = l->mode == GW_CP_RING || l->mode == GW_CP_HYBRID;
    int steps = rings ? l->cp / GW_MAX(1, l->ulysses) : 0;
    CHECK_EQ(cut->ring_ops, l->cp > 1 && steps > 1 ? 2 * steps : 0); /* 2 layers */
    for (int r = 0; r < ranks; r++) CHECK_NEAR(cut->loss[r] / whole->loss[0], 1, 2e-6);
    compare(cut, whole, ranks, typical_of(whole));
    job_release(cut);
    job_release(whole);
    gw_mem_free(cut);
    gw_mem_free(whole);
    gw_diags_release(&dg);
}

TEST(a_ring_is_one_rank) {
    static const layout layouts[] = {
        {"ring 2", GW_FAMILY_LLAMA, 1, 2, 1, 1, GW_CP_RING, false, false},
        {"ring 4, window", GW_FAMILY_MISTRAL, 1, 4, 1, 1, GW_CP_RING, false, true},
        {"dp 2, ring 2", GW_FAMILY_GPT2, 2, 2, 1, 1, GW_CP_RING, false, false},
    };
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_layout(&layouts[i]);
}

TEST(ulysses_is_one_rank) {
    static const layout layouts[] = {
        {"ulysses 2", GW_FAMILY_QWEN3, 1, 2, 1, 1, GW_CP_ULYSSES, false, false},
        {"ulysses 2, window", GW_FAMILY_MISTRAL, 1, 2, 1, 1, GW_CP_ULYSSES, false, true},
        {"ulysses 4", GW_FAMILY_LLAMA, 1, 4, 1, 1, GW_CP_ULYSSES, false, false},
    };
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_layout(&layouts[i]);
}

TEST(gathered_keys_are_one_rank) {
    static const layout layouts[] = {
        {"allgather 2", GW_FAMILY_QWEN2, 1, 2, 1, 1, GW_CP_ALLGATHER, false, false},
        {"dp 2, allgather 2, window", GW_FAMILY_MISTRAL, 2, 2, 1, 1, GW_CP_ALLGATHER, false, true},
    };
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_layout(&layouts[i]);
}

TEST(hybrids_are_one_rank) {
    static const layout layouts[] = {
        {"hybrid 2 x 2", GW_FAMILY_LLAMA, 1, 4, 1, 2, GW_CP_HYBRID, false, false},
    };
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_layout(&layouts[i]);
}

TEST(context_and_tensor_parallel_are_one_rank) {
    static const layout layouts[] = {
        {"tp 2", GW_FAMILY_LLAMA, 1, 1, 2, 1, GW_CP_RING, false, false},
        {"ring 2, tp 2", GW_FAMILY_LLAMA, 1, 2, 2, 1, GW_CP_RING, false, false},
        {"ring 2, tp 2, sequence parallel", GW_FAMILY_QWEN3, 1, 2, 2, 1, GW_CP_RING, true, false},
        {"ulysses 2, tp 2", GW_FAMILY_GPT2, 1, 2, 2, 1, GW_CP_ULYSSES, false, false},
        {"allgather 2, tp 2", GW_FAMILY_LLAMA, 1, 2, 2, 1, GW_CP_ALLGATHER, true, false},
    };
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_layout(&layouts[i]);
}
