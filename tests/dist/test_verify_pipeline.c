// SPDX-License-Identifier: Apache-2.0
// A pipeline computes what one rank computes: under every schedule, with every number of ranks,
// stages a rank and micro-batches that it takes, beside every other cut of a step. And what is
// wrong between stages is called by its name.
//
// The enumeration: schedules x pp 2, 3, 4 x stages a rank 1 to 4 x micro-batches 1 to 9 x tp x cp x
// dp x what is sharded over it, up to eight ranks; families, optimizers, sequence and expert
// parallelism, recomputation, places of a channel and layers that do not divide go along by turns.
// `make test` runs a sample of it, `make test-long` all. What a schedule must refuse is worked out
// here once more, from its description, and must be what is refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "base/io.h"       /* gw_file_write_atomic */
#include "harness.h"
#include "ir/opdef.h" /* gw_op_is */
#include "verify_rig.h"

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                        "zb-2p", "zbv",  "dualpipev"};
static const char *const families[] = {"gpt2",  "llama",   "qwen3_moe", "qwen2",
                                       "qwen3", "mistral", "mixtral",   "deepseek"};
enum { SCHEDULES = 7, FAMILIES = 8, RANKS = 8, MICRO = 9, STAGES = 4 };
enum { COMBINATIONS = SCHEDULES * 3 * STAGES * MICRO * 4 * 4 * 4 * 2 };

typedef struct combination {
    int schedule, pp, v, m, dp, tp, cp, zero;
    int family, turn; /* turn: of everything that has no digit of its own */
} combination;

static int digit(int *i, int base) {
    int d = *i % base;
    *i /= base;
    return d;
}

/* What a schedule says of itself (docs/pipeline.md). */
static bool takes(const combination *c) {
    const char *s = schedules[c->schedule];
    int groups = c->m / c->pp > 1 ? c->m / c->pp : 1;
    if (strcmp(s, "interleaved") == 0) return c->v >= 2 && c->m % groups == 0;
    bool two = strcmp(s, "zbv") == 0 || strcmp(s, "dualpipev") == 0;
    return c->v == (two ? 2 : 1);
}

/* Combination number i; false where i is none, or says what another says too. */
static bool combination_of(int i, combination *c) {
    unsigned mixed = (unsigned)i * 2654435761u >> 8;
    *c = (combination){.schedule = digit(&i, SCHEDULES)};
    c->m = 1 + digit(&i, MICRO);
    c->pp = 2 + digit(&i, 3);
    c->v = 1 + digit(&i, STAGES);
    c->zero = digit(&i, 4);
    c->dp = 1 + digit(&i, 4);
    c->tp = 1 + digit(&i, 4);
    c->cp = 1 + digit(&i, 2);
    c->family = (int)(mixed % FAMILIES);
    c->turn = (int)(mixed / FAMILIES % 5040);
    bool plain = c->dp * c->tp * c->cp == 1;
    return c->pp * c->dp * c->tp * c->cp <= RANKS && (c->dp > 1 || c->zero == 0) &&
           (takes(c) || plain);
}

static bool has_experts(const combination *c) { return rig_has_experts(families[c->family]); }

static rig rig_of(const combination *c) {
    int stages = c->pp * c->v, least = stages > 2 ? stages - 2 : 1;
    rig r = rig_make(families[c->family], c->pp * c->dp * c->tp * c->cp);
    rig_set(&r, "layout.pp=%d", c->pp);
    rig_set(&r, "layout.schedule=%s", schedules[c->schedule]);
    rig_set(&r, "layout.virtual_stages=%d", c->v);
    rig_set(&r, "train.accumulate=%d", c->m);
    rig_set(&r, "model.layers=%d", least + c->turn % 4 + (c->family == 7)); /* one is dense */
    if (c->dp > 1) rig_set(&r, "layout.zero=%d", c->zero);
    if (c->tp > 1) rig_set(&r, "layout.tp=%d", c->tp);
    if (c->tp > 1) rig_set(&r, "layout.sequence_parallel=%s", c->turn % 2 ? "true" : "false");
    if (c->cp > 1) rig_set(&r, "layout.cp=%d", c->cp);
    if (c->family == 1 && c->turn % 3) rig_set(&r, "model.tie_embeddings=false");
    if (has_experts(c) && c->dp * c->cp % 2 == 0) rig_set(&r, "layout.ep=2");
    if (c->turn % 5 == 0) rig_set(&r, "layout.message_places=1");
    if (c->turn % 7 == 0) rig_set(&r, "recompute.policy=full");
    if (c->turn % 9 == 0) rig_set(&r, "optimizer.norm=deferred");
    r.opts.steps = 2;
    r.opts.run_optimizer = c->turn % 6 == 0;
    return r;
}

typedef struct tally {
    int admitted, refused, passed, failed;
    unsigned schedules, pps, vs, ms, dps, tps, cps, zeros, eps, families; /* bits */
} tally;

static void count(const combination *c, tally *t) {
    t->admitted++;
    t->schedules |= 1u << c->schedule;
    t->pps |= 1u << c->pp;
    t->vs |= 1u << c->v;
    t->ms |= 1u << c->m;
    t->dps |= 1u << c->dp;
    t->tps |= 1u << c->tp;
    t->cps |= 1u << c->cp;
    t->zeros |= 1u << c->zero;
    t->eps |= (unsigned)(has_experts(c) && c->dp * c->cp % 2 == 0) << 2;
    t->families |= 1u << c->family;
}

static void run_admitted(const combination *c, tally *t) {
    rig r = rig_of(c);
    count(c, t);
    if (rig_agrees(&r))
        t->passed++;
    else
        t->failed++;
    rig_release(&r);
}

/* Refused, with a reason and what is nearest; and the nearest is taken. */
static void check_refused(const combination *c, tally *t) {
    rig r = rig_of(c);
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = rig_parse(&r, &rf, &dg);
    CHECK_MSG(st == GW_ERR_CONFIG, "%s: pp %d, %d stages a rank, %d micro-batches: taken",
              schedules[c->schedule], c->pp, c->v, c->m);
    CHECK_EQ(dg.nerrors, 1);
    const gw_diag *d = dg.first;
    while (d->severity != GW_ERROR) d = d->next;
    CHECK_MSG(strstr(d->message, schedules[c->schedule]) && d->hint, "%s", d->message);
    combination near = *c;
    const char *v = strstr(d->hint, "virtual_stages: "), *m = strstr(d->hint, "accumulate: ");
    CHECK_MSG(v || m, "%s", d->hint);
    if (v) near.v = (int)strtol(v + strlen("virtual_stages: "), NULL, 10);
    if (m) near.m = (int)strtol(m + strlen("accumulate: "), NULL, 10);
    CHECK_MSG(takes(&near), "%s: %s", d->message, d->hint);
    t->refused++;
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
    rig_release(&r);
}

/* Every `step`-th of those that are admitted, of one schedule or of all (-1); and all that are
 * refused. */
static tally run_combinations(int schedule, int step) {
    tally t = {0};
    int n = 0;
    for (int i = 0; i < COMBINATIONS; i++) {
        combination c;
        if (!combination_of(i, &c) || (schedule >= 0 && c.schedule != schedule)) continue;
        if (!takes(&c))
            check_refused(&c, &t);
        else if (n++ % step == 0)
            run_admitted(&c, &t);
    }
    test_note("%s: %d combinations are admitted, %d are refused with the nearest that works; %d "
              "run: %d pass, %d fail",
              schedule < 0 ? "all schedules" : schedules[schedule], n, t.refused, t.admitted,
              t.passed, t.failed);
    CHECK_EQ(t.failed, 0);
    return t;
}

TEST_WITHIN(a_sample_of_all_pipelines_agrees, 300) {
    tally t = run_combinations(-1, 41);
    CHECK(t.admitted >= 60 && t.refused > 100);
    CHECK_EQ(t.schedules, (1u << SCHEDULES) - 1);
    CHECK_EQ(t.families, (1u << FAMILIES) - 1);
    CHECK_EQ(t.pps, 1u << 2 | 1u << 3 | 1u << 4);
    CHECK_EQ(t.ms, (1u << (MICRO + 1)) - 2);
    CHECK_EQ(t.vs & 0x1e, 0x1e);
    CHECK_EQ(t.zeros, 0xf);
    CHECK(t.dps >> 2 & t.tps >> 2 & t.cps >> 2 & t.eps >> 2 & 1);
}

#define EVERY_PIPELINE(name, index)                                                                \
    TEST_DEFINE_(every_pipeline_of_##name##_agrees, 7200, true) { run_combinations(index, 1); }
EVERY_PIPELINE(gpipe, 0)
EVERY_PIPELINE(one_f_one_b, 1)
EVERY_PIPELINE(interleaved, 2)
EVERY_PIPELINE(zb_h1, 3)
EVERY_PIPELINE(zb_2p, 4)
EVERY_PIPELINE(zbv, 5)
EVERY_PIPELINE(dualpipev, 6)

/* Activations that are rounded travel as they are: within what 16 bits do to one rank. */
TEST_WITHIN(in_sixteen_bits_a_pipeline_agrees_too, 120) {
    static const char *const of[] = {"gpt2", "llama", "qwen3_moe", "qwen2"};
    for (int i = 0; i < 4; i++) {
        rig r = rig_make(of[i], 2 + 2 * (i % 2));
        rig_set(&r, "layout.pp=2");
        rig_set(&r, "layout.schedule=%s", schedules[3 + i]);
        rig_set(&r, "model.layers=4");
        rig_set(&r, "train.accumulate=3");
        rig_set(&r, "precision.compute=bf16");
        r.opts.run_optimizer = i % 2 == 1;
        rig_passes(&r);
        CHECK_EQ(r.out.npasses, 2);
        rig_release(&r);
    }
}

/* A step of one micro-batch has no sums over them: what its only run of a piece makes waits for the
 * optimizer, while inputs are still written for later pieces. Sizes at which the loads of experts
 * lie where inputs of the other rank's layers do. */
TEST_WITHIN(a_step_of_one_micro_batch_agrees, 120) {
    static const char *const of[] = {"deepseek", "gpt2"};
    static const char *const sizes[] = {
        "model.hidden=32",     "model.heads=4",        "model.ffn=48",       "train.seq_len=16",
        "model.moe.experts=4", "model.moe.ffn=32",     "model.moe.groups=1", "model.moe.z_weight=0",
        "model.mla.q_rank=0",  "model.mla.kv_rank=16", "model.mla.nope=8",   "model.mla.rope=8",
        "model.mla.v=8"};
    for (int i = 0; i < 2; i++)
        for (int s = 2; s < SCHEDULES; s++) {
            rig r = rig_make(of[i], 2);
            for (size_t k = 0; i == 0 && k < GW_COUNT(sizes); k++) rig_set(&r, "%s", sizes[k]);
            rig_set(&r, "layout.pp=2");
            rig_set(&r, "layout.schedule=%s", schedules[s]);
            rig_set(&r, "layout.virtual_stages=%d", s == 3 || s == 4 ? 1 : 2);
            rig_set(&r, "model.layers=6");
            rig_set(&r, "train.accumulate=1");
            rig_set(&r, "train.micro_batch=1");
            r.opts.steps = 2;
            rig_passes(&r);
            rig_release(&r);
        }
}

/* Copies that wait for the norm belong to the rank that steps: no other has the state. */
TEST(a_norm_known_later_agrees) {
    for (int adam = 0; adam < 2; adam++) {
        rig r = rig_make("gpt2", 3);
        rig_set(&r, "layout.pp=3");
        rig_set(&r, "model.layers=3");
        rig_set(&r, "train.accumulate=2");
        rig_set(&r, "optimizer.norm=deferred");
        rig_set(&r, "optimizer.clip_norm=0.01");
        r.opts.run_optimizer = adam == 1;
        rig_passes(&r);
        rig_release(&r);
    }
}

/* Whatever rank has them: samples x tokens x choices of a token x layers x steps. */
TEST(expert_choices_of_all_stages_are_looked_at_once) {
    rig r = rig_make("qwen3_moe", 4);
    char of[48];
    rig_set(&r, "layout.pp=2");
    rig_set(&r, "train.accumulate=3");
    rig_passes(&r);
    snprintf(of, sizeof of, "of %d would differ", 2 * 7 * 3 * 2 * 3 * 3);
    CHECK_MSG(strstr(rig_check(&r, "expert choices")->text, of) != NULL, "'%s', not '%s'",
              rig_check(&r, "expert choices")->text, of);
    rig_release(&r);
}

/* ---- faults ---- */

static rig two_stages(const char *family, int m, const gw_verify_hooks *hooks) {
    rig r = rig_make(family, 2);
    rig_set(&r, "layout.pp=2");
    rig_set(&r, "model.layers=4");
    rig_set(&r, "train.accumulate=%d", m);
    rig_set(&r, "optimizer.clip_norm=0");
    rig_set(&r, "optimizer.weight_decay=0");
    r.opts.hooks = hooks;
    r.opts.steps = 1;
    return r;
}

static void check_why(const rig *r, gw_verify_kind kind, const char *name, const char *text) {
    const gw_verify_tensor *t = rig_wrong(r, kind, name);
    if (!t) gw_verify_print(&r->out, 0, stdout);
    CHECK_MSG(t != NULL, "%s agrees", name ? name : "everything");
    CHECK_MSG(strstr(t->why, text) != NULL, "'%s' is explained by '%s', not by '%s'", t->name,
              t->why, text);
}

/* The gradients of a rank as they were before a micro-batch. */
typedef struct kept {
    gw_vid v[64];
    void *bytes[64];
    int n;
} kept;

static void keep_or_restore(gw_exec *x, kept *k, bool restore) {
    for (int i = 0; i < k->n; i++) {
        gw_tensor t = gw_exec_tensor(x, k->v[i]);
        size_t bytes = sizeof(float) * (size_t)t.elems;
        if (restore)
            memcpy(t.data, k->bytes[i], bytes);
        else
            memcpy(k->bytes[i], t.data, bytes);
    }
}

static void find_gradients(gw_exec *x, kept *k) {
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t v = 0; v < g->values.count && k->n < 64; v++) {
        const gw_value *u = &g->values.items[v];
        if (u->def == GW_NONE || strncmp(gw_graph_str(g, u->name), "grad:", 5) != 0) continue;
        k->v[k->n] = (gw_vid)v;
        k->bytes[k->n++] =
            gw_mem_zalloc(sizeof(float) * (size_t)gw_exec_tensor(x, (gw_vid)v).elems);
    }
}

/* Rank 1 forgets what micro-batch 2 of 3 added. */
static void forget(gw_exec *x, int64_t micro, gw_oid first, gw_oid end, int64_t rank, void *user) {
    kept *k = user;
    (void)end;
    if (rank != 1) return;
    if (k->n == 0) find_gradients(x, k);
    bool backward = gw_exec_graph(x)->ops.items[first].part >= GW_PART_I;
    keep_or_restore(x, k, micro == 1 && backward);
}

TEST(a_micro_batch_that_a_stage_drops_is_named) {
    kept k = {0};
    gw_verify_hooks h = {.ran = forget, .user = &k};
    rig r = two_stages("qwen2", 3, &h);
    rig_verify(&r);
    CHECK(!r.out.ok && k.n > 10);
    check_why(&r, GW_VERIFY_GRADIENT, "layers.3.mlp.up.weight",
              "micro-batch 2's contribution is missing");
    CHECK(!rig_wrong(&r, GW_VERIFY_LOSS, NULL));
    CHECK(!rig_wrong(&r, GW_VERIFY_GRADIENT, "layers.0.mlp.up.weight"));
    CHECK_MSG(strstr(r.out.pass[0].where, "pipeline rank 1 disagree (stages 1)"), "'%s'",
              r.out.pass[0].where);
    rig_release(&r);
    for (int i = 0; i < k.n; i++) gw_mem_free(k.bytes[i]);
}

/* The sum of what stages have is what this rank has. */
static void leave_apart(gw_graph *g, gw_oid sum) {
    gw_op *o = &g->ops.items[sum];
    CHECK(gw_op_is(g, o, "addn") && o->nin == 2);
    for (int j = 0; j < 2; j++) {
        gw_vid v = gw_op_in(g, o, j);
        if (gw_op_is(g, &g->ops.items[g->values.items[v].def], "recv")) continue;
        g->edges.items[o->in] = v;
        o->nin = 1;
        return;
    }
    test_fail(__FILE__, __LINE__, "nothing of it is this rank's own");
}

static void keep_tied_apart(gw_graph *g, int64_t rank, void *user) {
    (void)rank;
    (void)user;
    leave_apart(g, rig_op_of(g, "grad:embed.weight"));
}

TEST(a_tied_gradient_that_is_not_exchanged_is_named) {
    gw_verify_hooks h = {.mutate = keep_tied_apart};
    rig r = two_stages("gpt2", 3, &h);
    rig_verify(&r);
    CHECK(!r.out.ok);
    check_why(&r, GW_VERIFY_GRADIENT, "embed.weight",
              "tied weight: its parts on pipeline ranks 0 and 1 were not added up");
    const gw_verify_check *c = rig_check(&r, "replicas");
    CHECK_MSG(!c->ok && strstr(c->text, "embed.weight on ranks 0 and 1 differ"), "'%s'", c->text);
    rig_release(&r);
}

static void keep_norm_apart(gw_graph *g, int64_t rank, void *user) {
    (void)user;
    for (gw_oid i = 0; rank == 0 && i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is(g, o, "addn") || strcmp(gw_graph_str(g, o->scope), "norm") != 0) continue;
        for (int j = 0; j < (int)o->nin; j++) {
            gw_oid d = g->values.items[gw_op_in(g, o, j)].def;
            if (d == GW_NONE || !gw_op_is(g, &g->ops.items[d], "recv")) continue;
            leave_apart(g, i);
            return;
        }
    }
    CHECK(rank != 0);
}

TEST(a_norm_of_one_stage_is_named) {
    gw_verify_hooks h = {.mutate = keep_norm_apart};
    rig r = two_stages("llama", 2, &h);
    rig_verify(&r);
    CHECK(!r.out.ok && !rig_wrong(&r, GW_VERIFY_GRADIENT, NULL));
    check_why(&r, GW_VERIFY_NORM, "norm", "norm of pipeline rank 0 alone");
    rig_release(&r);
}

/* ---- messages out of order ---- */

/* Two receives, one after the other, in the order of sending; three stages. */
static const char ahead[] =
    "schedule ahead\nranks 3\nstages 0 1 2\nmicro-batches 3\n"
    "rank 0: F0.0 sF0.0 F0.1 sF0.1 F0.2 sF0.2 rB0.0 rB0.1 B0.0 B0.1 rB0.2 B0.2 R0 S\n"
    "rank 1: rF1.0 F1.0 sF1.0 rF1.1 F1.1 sF1.1 rF1.2 F1.2 sF1.2 rB1.0 B1.0 sB1.0 rB1.1 B1.1 sB1.1 "
    "rB1.2 B1.2 sB1.2 R1 S\n"
    "rank 2: rF2.0 rF2.1 F2.0 B2.0 sB2.0 F2.1 B2.1 sB2.1 rF2.2 F2.2 B2.2 sB2.2 R2 S\n";

typedef struct swapped {
    int rank;
    gw_act act;
} swapped;

static void swap_receives(gw_graph *g, int64_t rank, void *user) {
    const swapped *s = user;
    for (int64_t i = 0; rank == s->rank && i + 1 < g->actions.count; i++) {
        gw_action *a = &g->actions.items[i], *b = a + 1;
        if (a->act != s->act || b->act != s->act) continue;
        int32_t micro = a->micro;
        a->micro = b->micro;
        b->micro = micro;
        return;
    }
    CHECK(rank != s->rank);
}

static void order_is_named(const char *family, swapped s, gw_verify_kind kind, const char *name,
                           const char *text) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("ahead.txt"), ahead, sizeof ahead - 1, &dg), &dg);
    gw_verify_hooks h = {.mutate = swap_receives, .user = &s};
    for (int right = 0; right < 2; right++) {
        rig r = rig_make(family, 3);
        rig_set(&r, "layout.pp=3");
        rig_set(&r, "layout.schedule=file:%s", test_tmp_path("ahead.txt"));
        rig_set(&r, "model.layers=4");
        rig_set(&r, "train.accumulate=3");
        r.opts.steps = 1;
        if (!right) r.opts.hooks = &h;
        rig_verify(&r);
        CHECK(r.out.ok == right);
        if (!right) check_why(&r, kind, name, text);
        rig_release(&r);
    }
    gw_diags_release(&dg);
}

TEST(activations_out_of_order_are_named) {
    static const char *const of[] = {"qwen2", "qwen3_moe"};
    for (int i = 0; i < 2; i++)
        order_is_named(of[i], (swapped){2, GW_ACT_RECV_F}, GW_VERIFY_LOSS, "loss",
                       "stage 2 takes micro-batch 2's activations for micro-batch 1's");
}

TEST(gradients_out_of_order_are_named) {
    order_is_named("qwen2", (swapped){0, GW_ACT_RECV_B}, GW_VERIFY_GRADIENT,
                   "layers.0.mlp.up.weight",
                   "stage 0 takes micro-batch 1's gradient for micro-batch 2's");
}

/* ---- wrong constants ---- */

static double times(double seed, const void *batch, int64_t rank, void *user) {
    (void)batch;
    (void)rank;
    return seed * *(const double *)user;
}

static void factor_is_named(double factor, const char *text) {
    gw_verify_hooks h = {.seed = times, .user = &factor};
    rig r = two_stages("qwen2", 8, &h);
    rig_set(&r, "layout.virtual_stages=2");
    rig_verify(&r);
    CHECK(!r.out.ok);
    check_why(&r, GW_VERIFY_NORM, "norm", text);
    check_why(&r, GW_VERIFY_GRADIENT, "layers.0.mlp.up.weight", text);
    rig_release(&r);
}

/* A loss seeded by every stage; a mean over micro-batches taken twice, or never. */
TEST(wrong_divisors_of_a_pipeline_are_named) {
    factor_is_named(2, "x pp (2)");
    factor_is_named(4, "x stages (4)");
    factor_is_named(1.0 / 4, "/ stages (4)");
    factor_is_named(1.0 / 8, "/ micro-batches (8)");
    factor_is_named(16, "x pp x micro-batches (16)");
}
