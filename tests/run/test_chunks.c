// SPDX-License-Identifier: Apache-2.0
// Products in pieces beside their gathers and scatters (layout.tp_chunks): two steps of training,
// by threads as ranks, end in the bits that they end in without pieces. Rows of a product and
// elements of a sum do not depend on their neighbours, so nothing less will do.
#include <string.h>

#include "../harness.h"
#include "base/rng.h"    /* gw_rng_u32 */
#include "comm/launch.h" /* gw_launch_threads */
#include "trainer.h"

enum { RANKS = 4, STEPS = 2 };

typedef struct bits {
    float loss, norm;
    gw_hash128 gradients, weights; /* after the step */
} bits;

typedef struct job {
    gw_family family;
    int tp, pieces, micro_batches, zero;
    bool reference, bf16;
    gw_recompute_kind recompute;
    const char *algorithm; /* of collectives; NULL: each by its size */
    bits out[RANKS][STEPS];
    gw_coll_traffic traffic[GW_COLL_KIND_COUNT]; /* of rank 0 */
    int woven;
} job;

static const char *one_algorithm(const gw_graph *g, const gw_oid *ops, int n, const void *user) {
    const job *j = user;
    (void)g, (void)ops, (void)n;
    return j->algorithm;
}

static void configure(program *p, const job *j, gw_comm *c) {
    static const char *const dims[] = {"h", "g", "f", "v"};
    gw_model m = tiny_model(j->family, 2);
    program_init(p, &m, 2, 32);
    p->machine = gw_machine_this(1);
    p->machine.reference_only = j->reference;
    p->opts.verify = true;
    p->opts.keep_gradients = true;
    p->opts.optim.clip_norm = 0;
    p->opts.micro_batches = j->micro_batches;
    p->opts.recompute.kind = j->recompute;
    p->opts.layout.sequence_parallel = true;
    p->opts.layout.tp_chunks = j->pieces;
    p->opts.layout.zero = j->zero;
    if (j->bf16) p->opts.compute = GW_BF16;
    if (j->algorithm) p->opts.layout.algorithm = one_algorithm;
    p->opts.layout.algorithm_user = j;
    gw_param_info *infos = gw_arena_new(&p->mem, gw_param_info, p->nparams);
    for (int i = 0; i < p->nparams; i++) {
        infos[i] = p->opts.params[i];
        for (size_t d = GW_COUNT(dims); d-- > 0;)
            if (gw_type_find(&p->params[i].type, dims[d]) >= 0)
                snprintf(infos[i].cut, sizeof infos[i].cut, "%s", dims[d]);
    }
    p->opts.params = infos;
    if (j->zero) gw_mesh_add(&p->mesh, "dp", 2);
    gw_mesh_add(&p->mesh, "tp", j->tp);
    gw_comm_set_mesh(c, &p->mesh);
    p->facts.comm = *gw_comm_machine(c);
}

static float uniform(gw_rng_key key, uint64_t i) {
    return (float)(gw_rng_u32(key, i) >> 8) / 8388608.0f - 1; /* [-1, 1) */
}

/* Element i of input `name`, whatever part of it the rank has. */
static int64_t datum(const program *p, const char *name, int step, int64_t i) {
    int64_t at = i % p->build.seq, token = ((i + 97 * step) * 2654435761 >> 8) % p->model.vocab;
    if (strcmp(name, "tokens") == 0) return token;
    if (strcmp(name, "labels") == 0) return i % 5 == 0 ? -100 : (token * 7 + 3) % p->model.vocab;
    if (strcmp(name, "docs") == 0) return at >= 11;
    if (strcmp(name, "positions") == 0) return at >= 11 ? at - 11 : at;
    return 1000 * step + i;
}

/* Weights (by the order of a rank's elements: layouts of one cut are compared), zero states. */
static void begin(program *p, gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].role == GW_ROLE_STATE && g->values.items[v].def == GW_NONE)
            memset(
                gw_exec_ptr(x, (gw_vid)v), 0,
                (size_t)gw_type_local_bytes(gw_type_of(g, (gw_vid)v), &g->mesh, gw_exec_rank(x)));
    for (int i = 0; i < p->nparams; i++) {
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->params[i].name));
        gw_rng_key key = gw_rng_key_named(7, p->params[i].name);
        bool ones = p->params[i].init == GW_INIT_ONES;
        for (int64_t k = 0; k < t.elems; k++)
            ((float *)t.data)[k] = ones ? 1 : 0.3f * uniform(key, (uint64_t)k);
    }
}

static void feed(const program *p, gw_exec *x, int step, int mb) {
    static const char *const inputs[] = {"tokens", "labels", "positions", "docs", "samples"};
    for (size_t n = 0; n < GW_COUNT(inputs); n++) {
        gw_vid v = gw_exec_find(x, inputs[n]);
        if (v == GW_NONE) continue;
        gw_tensor t = gw_exec_tensor(x, v);
        for (int64_t i = 0; t.data && i < t.elems; i++) {
            int64_t datum_at = datum(p, inputs[n], 8 * step + mb, i);
            if (t.dtype == GW_I32)
                ((int32_t *)t.data)[i] = (int32_t)datum_at;
            else
                ((int64_t *)t.data)[i] = datum_at;
        }
    }
}

static void add_hash(gw_hash128 *h, const gw_exec *x, gw_vid v) {
    const gw_graph *g = gw_exec_graph(x);
    int64_t bytes = gw_type_local_bytes(gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
    gw_hash128 both[2] = {*h, gw_hash128_of(gw_exec_ptr(x, v), (size_t)bytes)};
    *h = gw_hash128_of(both, sizeof both);
}

static bits step(program *p, gw_exec *x, int s, gw_diags *dg) {
    bits b = {0};
    float seed = 1.0f / 40, one = 1, lr = 1e-2f;
    int64_t number = s + 1, batch = s;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, dg), dg);
    for (int mb = 0; mb < p->opts.micro_batches; mb++) {
        feed(p, x, s, mb);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, dg), dg);
    }
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, dg), dg);
    CHECK(gw_exec_read(x, "loss", &b.loss, sizeof b.loss));
    CHECK(gw_exec_read(x, "norm", &b.norm, sizeof b.norm));
    char name[96];
    for (int i = 0; i < p->nparams; i++) {
        snprintf(name, sizeof name, "grad:%s", p->params[i].name);
        add_hash(&b.gradients, x, gw_exec_find(x, name));
        add_hash(&b.weights, x, gw_exec_find(x, p->params[i].name));
    }
    return b;
}

static gw_status run_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    program p;
    int64_t rank = gw_comm_rank(c);
    configure(&p, j, c);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){.comm = c, .rank = rank});
    begin(&p, x);
    for (int s = 0; s < STEPS; s++) j->out[rank][s] = step(&p, x, s, dg);
    if (rank == 0) {
        gw_exec_traffic(gw_exec_graph(x), 0, gw_comm_machine(c), j->traffic);
        j->woven = count_ops(gw_exec_graph(x), "weave", GW_PHASE_COUNT);
    }
    gw_exec_free(x);
    program_release(&p);
    return GW_OK;
}

static void run(job *j) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(j->tp * (j->zero ? 2 : 1), 50, run_rank, j, &dg), &dg);
    gw_diags_release(&dg);
}

static void check_traffic(const job *cut, const job *whole) {
    CHECK_EQ(whole->woven, 0);
    CHECK(cut->woven > 0);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        CHECK_EQ(cut->traffic[k].payload, whole->traffic[k].payload);
}

/* The job in `pieces` against the job whole: every bit, or (another matrix library) up to rounding.
 */
static void compare(job j, int pieces) {
    job *whole = gw_mem_zalloc(sizeof *whole), *cut = gw_mem_zalloc(sizeof *cut);
    *whole = *cut = j;
    cut->pieces = pieces;
    run(whole);
    run(cut);
    check_traffic(cut, whole);
    for (int r = 0; r < j.tp * (j.zero ? 2 : 1); r++)
        for (int s = 0; s < STEPS; s++) {
            const bits *a = &cut->out[r][s], *b = &whole->out[r][s];
            CHECK_NEAR(a->loss / b->loss, 1, 1e-5);
            CHECK_NEAR(a->norm / b->norm, 1, 1e-4);
            if (!j.reference) continue;
            CHECK(a->loss == b->loss && a->norm == b->norm);
            CHECK(memcmp(&a->gradients, &b->gradients, sizeof a->gradients) == 0);
            CHECK(memcmp(&a->weights, &b->weights, sizeof a->weights) == 0);
        }
    gw_mem_free(whole);
    gw_mem_free(cut);
}

TEST(pieces_give_the_bits_of_the_whole) {
    static const struct {
        gw_family family;
        int tp, pieces;
    } of[] = {{GW_FAMILY_LLAMA, 2, 2},
              {GW_FAMILY_LLAMA, 4, 4},
              {GW_FAMILY_QWEN2, 2, 4},
              {GW_FAMILY_QWEN3, 4, 8},
              {GW_FAMILY_MISTRAL, 4, 2}};
    for (size_t i = 0; i < GW_COUNT(of); i++) {
        job j = {.family = of[i].family, .tp = of[i].tp, .micro_batches = 1, .reference = true};
        compare(j, of[i].pieces);
    }
}

TEST(in_sixteen_bits_with_micro_batches_and_sharded_weights_too) {
    job j = {.tp = 2, .micro_batches = 2, .reference = true};
    j.family = GW_FAMILY_LLAMA, j.bf16 = true;
    compare(j, 4);
    j.family = GW_FAMILY_MISTRAL, j.bf16 = false, j.zero = 3;
    compare(j, 2);
    j.family = GW_FAMILY_QWEN2, j.zero = 2, j.micro_batches = 1;
    compare(j, 4);
}

TEST(what_is_computed_again_has_the_same_bits) {
    job j = {.family = GW_FAMILY_LLAMA, .tp = 2, .micro_batches = 1, .reference = true};
    j.recompute = GW_RECOMPUTE_FULL;
    compare(j, 2);
    j.recompute = GW_RECOMPUTE_SELECTIVE;
    compare(j, 4);
}

/* A matrix library sums the last rows of a product in an order of their own. */
TEST(fast_kernels_agree_up_to_rounding) {
    static const gw_family families[] = {GW_FAMILY_LLAMA, GW_FAMILY_GPT2, GW_FAMILY_MIXTRAL,
                                         GW_FAMILY_DEEPSEEK};
    for (size_t f = 0; f < GW_COUNT(families); f++)
        compare((job){.family = families[f], .tp = f % 2 ? 4 : 2, .micro_batches = 1}, 4);
}
