// SPDX-License-Identifier: Apache-2.0
// A model cut into stages by the compiler and run by as many ranks: loss, norm and every gradient
// are those of one rank, up to the order of sums, under every kind of schedule.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h"    /* gw_rng_u32 */
#include "comm/launch.h" /* gw_launch_threads */
#include "sched/sched.h" /* gw_schedule_make */
#include "trainer.h"

enum { MICRO = 4, LAYERS = 4, MOST_PARAMS = 128 };

/* What one rank computes in one step. */
typedef struct truth {
    gw_family family;
    double loss, norm;
    double seen[2]; /* losses of two batches, forward alone */
    int n;
    char names[MOST_PARAMS][64];
    float *gradients[MOST_PARAMS];
} truth;

static void init(program *p, gw_family family) {
    gw_model m = tiny_model(family, LAYERS);
    program_init(p, &m, 2, 12);
    p->machine = gw_machine_this(1);
    p->opts.micro_batches = MICRO;
    p->opts.keep_gradients = true;
    p->opts.verify = true;
}

static void write_param(gw_exec *x, const gw_param *param) {
    gw_vid v = gw_exec_find(x, param->name);
    gw_tensor t = {0};
    if (v != GW_NONE) t = gw_exec_tensor(x, v);
    gw_rng_key key = gw_rng_key_named(11, param->name);
    for (int64_t k = 0; t.data && k < t.elems; k++) {
        float u = (float)(gw_rng_u32(key, (uint64_t)k) >> 8) / 8388608.0f - 1;
        ((float *)t.data)[k] = param->init == GW_INIT_ONES ? 1 : 0.3f * u;
    }
}

static void write_weights(const program *p, gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    for (int i = 0; i < p->nparams; i++) write_param(x, &p->params[i]);
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].role == GW_ROLE_STATE && g->values.items[v].def == GW_NONE)
            memset(gw_exec_ptr(x, (gw_vid)v), 0, (size_t)local_bytes(g, (gw_vid)v));
}

static gw_status feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    (void)dg;
    trainer_inputs(user, x, 0, (int)micro);
    return GW_OK;
}

static void step(program *p, gw_exec *x, gw_diags *dg) {
    float seed = 1.0f / (20 * MICRO), one = 1, lr = 1e-2f;
    int64_t number = 1, batch = 0;
    gw_exec_loop l = {.feed = feed, .user = p};
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    CHECK_OK(gw_exec_run_all(x, MICRO, &l, dg), dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
}

static double read_scalar(const gw_exec *x, const char *name, double absent) {
    float f = 0;
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return absent;
    memcpy(&f, gw_exec_ptr(x, v), sizeof f);
    return (double)f;
}

/* The loss of what has run; a rank without a head has none. */
static void ran(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end) {
    double *seen = user;
    (void)first, (void)end;
    if (micro >= 0) seen[micro] = read_scalar(x, "loss", 0);
}

typedef struct looker {
    program *p;
    double seen[2];
} looker;

static gw_status feed_looker(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    return feed(((looker *)user)->p, x, micro, dg);
}
static void ran_looker(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end) {
    ran(((looker *)user)->seen, x, micro, first, end);
}

/* Two batches through a forward program that has the weights of `from` and works in its
 * temporaries; then the first again, by hand. */
static void look(program *p, gw_exec *from, gw_exec_opts o, double seen[2], gw_diags *dg) {
    gw_graph g;
    gw_exec *x = NULL;
    looker k = {.p = p};
    p->opts.train = false;
    program_make(p, NULL, &g, NULL);
    p->opts.train = true;
    o.params_from = from;
    o.overlay = gw_exec_temporaries(from, &o.overlay_bytes);
    CHECK_OK(gw_exec_new(&x, &g, &o, dg), dg);
    gw_exec_loop l = {.feed = feed_looker, .ran = ran_looker, .user = &k};
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    CHECK_OK(gw_exec_run_all(x, 2, &l, dg), dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
    memcpy(seen, k.seen, sizeof k.seen);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    trainer_inputs(p, x, 0, 0);
    CHECK_OK(gw_exec_run_loop(x, true, dg), dg);
    CHECK_NEAR(read_scalar(x, "loss", 0), seen[0], 0);
    gw_exec_free(x);
    gw_graph_release(&g);
}

static void learn(truth *t, gw_family family) {
    program p;
    gw_graph g;
    gw_exec *x = NULL;
    *t = (truth){.family = family};
    init(&p, family);
    program_make(&p, NULL, &g, NULL);
    gw_exec_opts o = {.machine = p.machine};
    CHECK_OK(gw_exec_new(&x, &g, &o, &p.dg), &p.dg);
    write_weights(&p, x);
    look(&p, x, o, t->seen, &p.dg);
    step(&p, x, &p.dg);
    t->loss = read_scalar(x, "loss", 0);
    t->norm = read_scalar(x, "norm", 0);
    CHECK(p.nparams <= MOST_PARAMS);
    for (int i = 0; i < p.nparams; i++) {
        char name[96];
        snprintf(name, sizeof name, "grad:%s", p.params[i].name);
        if (gw_exec_find(x, name) == GW_NONE) continue;
        gw_tensor v = gw_exec_tensor(x, gw_exec_find(x, name));
        t->gradients[t->n] = malloc((size_t)v.elems * sizeof(float));
        memcpy(t->gradients[t->n], v.data, (size_t)v.elems * sizeof(float));
        snprintf(t->names[t->n++], sizeof t->names[0], "%s", p.params[i].name);
    }
    CHECK(t->n == p.nparams);
    gw_exec_free(x);
    gw_graph_release(&g);
    program_release(&p);
}

static void forget(truth *t) {
    for (int i = 0; i < t->n; i++) free(t->gradients[i]);
}

typedef struct job {
    const truth *t;
    const char *schedule;
    int pp, v;
} job;

/* Gradients of this rank's stages; how many there are. */
static int check_gradients(const job *j, const gw_exec *x) {
    int n = 0;
    for (int i = 0; i < j->t->n; i++) {
        char name[96];
        snprintf(name, sizeof name, "grad:%s", j->t->names[i]);
        if (gw_exec_find(x, name) == GW_NONE) continue;
        gw_tensor v = gw_exec_tensor(x, gw_exec_find(x, name));
        double off = 0, all = 0;
        for (int64_t k = 0; k < v.elems; k++) {
            double want = (double)j->t->gradients[i][k];
            double d = (double)((float *)v.data)[k] - want;
            off += d * d;
            all += want * want;
        }
        /* Some true gradients are zero (key biases): the floor is a part of the norm. */
        CHECK_MSG(sqrt(off) <= 1e-5 * fmax(sqrt(all), 1e-2 * j->t->norm), "%s: off by %g of %g",
                  j->t->names[i], sqrt(off), sqrt(all));
        n++;
    }
    return n;
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    program p;
    gw_graph g;
    gw_exec *x = NULL;
    gw_schedule s;
    gw_sched_request r = {.ranks = j->pp, .virtual_stages = j->v, .micro_batches = MICRO};
    init(&p, j->t->family);
    p.facts.comm = *gw_comm_machine(c);
    gw_mesh_add(&p.mesh, "pp", j->pp);
    CHECK_OK(gw_schedule_make(j->schedule, &r, &p.mem, &s, dg), dg);
    p.opts.layout.schedule = &s;
    p.opts.layout.stage_rank = gw_comm_rank(c);
    program_make(&p, NULL, &g, NULL);
    gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts o = {.machine = p.machine, .comm = c, .rank = gw_comm_rank(c), .poison = true};
    CHECK_OK(gw_exec_new(&x, &g, &o, dg), dg);
    CHECK_EQ(gw_exec_arena_bytes(x), g.arena_bytes[GW_MEM_DEVICE]);
    write_weights(&p, x);
    double seen[2];
    look(&p, x, o, seen, dg);
    CHECK_OK(gw_comm_sum_f64(c, seen, 2, "losses", dg), dg);
    for (int i = 0; i < 2; i++) CHECK_NEAR(seen[i], j->t->seen[i], 1e-5 * j->t->seen[i]);
    step(&p, x, dg);
    double sum[2] = {read_scalar(x, "loss", 0), (double)check_gradients(j, x)};
    double norm = read_scalar(x, "norm", -1);
    CHECK_NEAR(norm, j->t->norm, 1e-5 * j->t->norm);
    CHECK_OK(gw_comm_sum_f64(c, sum, 2, "the loss", dg), dg);
    CHECK_NEAR(sum[0], j->t->loss, 1e-5 * fabs(j->t->loss));
    CHECK((int)sum[1] >= j->t->n); /* tied ones stand on two ranks */
    gw_exec_free(x);
    gw_graph_release(&g);
    program_release(&p);
    return GW_OK;
}

static void run_job(job j) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(j.pp, 30, body, &j, &dg), &dg);
    gw_diags_release(&dg);
}

static void run_schedules(gw_family family) {
    static const struct {
        const char *name;
        int pp, v;
    } kinds[] = {{"gpipe", 2, 1},       {"1f1b", 2, 1},  {"1f1b", 4, 1},
                 {"interleaved", 2, 2}, {"zb-h1", 2, 1}, {"zbv", 2, 2}};
    truth t;
    learn(&t, family);
    for (size_t k = 0; k < GW_COUNT(kinds); k++) {
        if (!gw_sched_kind_find(kinds[k].name)) continue;
        test_note("%s on %d ranks", kinds[k].name, kinds[k].pp);
        run_job((job){.t = &t, .schedule = kinds[k].name, .pp = kinds[k].pp, .v = kinds[k].v});
    }
    forget(&t);
}

TEST(a_pipeline_trains_gpt2_as_one_rank_does) { run_schedules(GW_FAMILY_GPT2); } /* tied */
TEST(a_pipeline_trains_llama_as_one_rank_does) { run_schedules(GW_FAMILY_LLAMA); }
