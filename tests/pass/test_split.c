// SPDX-License-Identifier: Apache-2.0
// Cutting a model into stages: each message has two ends, each parameter a home, nothing is
// computed twice, and what a stage holds between forward and backward is what its schedule says
// (1F1B: Narayanan et al. 2021, min(m, p - i) micro-batches on stage i, where GPipe holds all m).
#include <string.h>

#include "../harness.h"
#include "ir/flow.h"    /* gw_flow_of */
#include "pass/split.h" /* gw_split_balance */
#include "programs.h"
#include "sched/sched.h" /* gw_schedule_make */

enum { MOST_RANKS = 8 };

typedef struct pipeline {
    program p;
    gw_schedule s;
    gw_graph g[MOST_RANKS]; /* the program of each pp rank */
    gw_graph whole;         /* after pass chunk */
    gw_compile_report report;
} pipeline;

typedef struct layout {
    int pp, v, m, dp, cp, tp, zero;
    bool sp;
    const char *schedule;
} layout;

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

static void lay_out(program *p, const layout *l) {
    gw_mesh_add(&p->mesh, "pp", l->pp);
    gw_mesh_add(&p->mesh, "dp", l->dp);
    gw_mesh_add(&p->mesh, "cp", l->cp);
    gw_mesh_add(&p->mesh, "tp", l->tp);
    p->build.batch *= l->dp;
    p->opts.micro_batches = l->m;
    p->opts.verify = true;
    p->opts.report_mem = &p->mem;
    p->opts.layout = (gw_layout_opts){.zero = l->zero,
                                      .reduce_each = l->zero >= 2,
                                      .sequence_parallel = l->sp,
                                      .bucket_bytes = 4096,
                                      .message_places = 2,
                                      .prefetch = 1};
    if (l->tp > 1) cut_params(p);
}

static void make_with(pipeline *k, const gw_model *m, const layout *l,
                      void (*change)(gw_compile_opts *o)) {
    memset(k, 0, sizeof *k);
    program_init(&k->p, m, 2, 12);
    lay_out(&k->p, l);
    if (change) change(&k->p.opts);
    gw_sched_request r = {.ranks = l->pp, .virtual_stages = l->v, .micro_batches = l->m};
    CHECK_OK(gw_schedule_make(l->schedule, &r, &k->p.mem, &k->s, &k->p.dg), &k->p.dg);
    k->p.opts.layout.schedule = &k->s;
    program_make(&k->p, "chunk", &k->whole, NULL);
    for (int r2 = 0; r2 < l->pp; r2++) {
        k->p.opts.layout.stage_rank = r2;
        program_make(&k->p, NULL, &k->g[r2], &k->report);
    }
}

static void make(pipeline *k, const gw_model *m, const layout *l) { make_with(k, m, l, NULL); }

static void release(pipeline *k) {
    for (int r = 0; r < k->s.ranks; r++) gw_graph_release(&k->g[r]);
    gw_graph_release(&k->whole);
    program_release(&k->p);
}

/* ---- messages ---- */

/* The op of rank `r` at the other end of one of `rank`. */
static const gw_op *other_end(const pipeline *k, int rank, const gw_op *o, int *count) {
    const gw_graph *g = &k->g[rank];
    bool sends = is_op(g, o, "send");
    int64_t peer = gw_op_attr(g, o, 0).i, tag = gw_op_attr(g, o, 1).i;
    const gw_graph *h = &k->g[peer];
    const gw_op *found = NULL;
    *count = 0;
    for (int64_t i = 0; i < h->ops.count; i++) {
        const gw_op *q = &h->ops.items[i];
        if (!is_op(h, q, sends ? "recv" : "send") || gw_op_attr(h, q, 0).i != rank ||
            gw_op_attr(h, q, 1).i != tag)
            continue;
        found = q;
        ++*count;
    }
    return found;
}

static int check_messages(const pipeline *k) {
    int n = 0;
    for (int r = 0; r < k->s.ranks; r++) {
        const gw_graph *g = &k->g[r];
        for (int64_t i = 0; i < g->ops.count; i++) {
            const gw_op *o = &g->ops.items[i];
            bool sends = is_op(g, o, "send");
            if (!sends && !is_op(g, o, "recv")) continue;
            int count = 0;
            const gw_op *q = other_end(k, r, o, &count);
            CHECK_MSG(count == 1, "rank %d: %s of %s (tag %d) has %d other ends", r, op_name(g, o),
                      gw_graph_str(g, o->scope), (int)gw_op_attr(g, o, 1).i, count);
            const gw_graph *h = &k->g[gw_op_attr(g, o, 0).i];
            gw_vid a = sends ? gw_op_in(g, o, 0) : gw_op_out(g, o, 0);
            gw_vid b = sends ? gw_op_out(h, q, 0) : gw_op_in(h, q, 0);
            CHECK_EQ(local_bytes(g, a), local_bytes(h, b));
            CHECK_EQ(o->rate, q->rate);
            CHECK_EQ(gw_op_attr(g, o, 2).i, gw_op_attr(h, q, 2).i);
            n += sends;
        }
    }
    return n;
}

static gw_status check_pipeline(pipeline *k) {
    const gw_graph *all[MOST_RANKS];
    for (int r = 0; r < k->s.ranks; r++) all[r] = &k->g[r];
    return gw_check_pipeline(all, k->s.ranks, &k->p.dg);
}

/* ---- parameters ---- */

static int holders_of(const pipeline *k, const char *name) {
    int n = 0;
    for (int r = 0; r < k->s.ranks; r++)
        n += gw_graph_find(&k->g[r], GW_ROLE_PARAM, name) != GW_NONE;
    return n;
}

static void check_parameters(const pipeline *k, bool tied) {
    for (int i = 0; i < k->p.nparams; i++) {
        const char *name = k->p.params[i].name;
        int want = tied && i == 0 && k->s.rank_of[0] != k->s.rank_of[k->s.stages - 1] ? 2 : 1;
        CHECK_MSG(holders_of(k, name) == want, "%s has %d holders", name, holders_of(k, name));
    }
}

/* ---- work ---- */

static double flops_of(const gw_graph *g, gw_phase phase) {
    double sum = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        gw_cost c = {0};
        bool copied = is_op(g, o, "rope_table") || is_op(g, o, "accumulate"); /* of a tied weight */
        if (o->rate != GW_RATE_MB || o->phase != phase || copied) continue;
        gw_op_def(g, o)->cost(g, o, &c);
        sum += c.flops;
    }
    return sum;
}

static void check_work(const pipeline *k) {
    for (int phase = GW_PHASE_F; phase <= GW_PHASE_BW; phase++) {
        double sum = 0;
        for (int r = 0; r < k->s.ranks; r++) sum += flops_of(&k->g[r], (gw_phase)phase);
        CHECK_NEAR(sum, flops_of(&k->whole, (gw_phase)phase), 0.5);
    }
}

static void check_one(gw_family f, int layers, const layout *l) {
    gw_model m = tiny_model(f, layers);
    pipeline k;
    test_note("%s, %d layers, %s pp %d v %d m %d dp %d cp %d tp %d zero %d", gw_family_name(f),
              layers, l->schedule, l->pp, l->v, l->m, l->dp, l->cp, l->tp, l->zero);
    make(&k, &m, l);
    CHECK(check_messages(&k) > 0);
    CHECK_OK(check_pipeline(&k), &k.p.dg);
    check_parameters(&k, m.tie);
    check_work(&k);
    release(&k);
}

static const layout layouts[] = {
    {2, 1, 3, 2, 1, 1, 2, false, "1f1b"},        {2, 1, 1, 1, 1, 1, 0, false, "gpipe"},
    {2, 1, 3, 1, 1, 1, 0, false, "1f1b"},        {3, 1, 4, 1, 1, 1, 0, false, "1f1b"},
    {2, 2, 4, 1, 1, 1, 0, false, "interleaved"}, {2, 1, 3, 2, 1, 1, 0, false, "1f1b"},
    {2, 1, 2, 2, 1, 1, 3, false, "1f1b"},        {2, 1, 2, 2, 1, 1, 1, false, "zb-h1"},
    {2, 1, 4, 1, 1, 2, 0, false, "zb-h1"},       {2, 1, 2, 1, 1, 2, 0, true, "1f1b"},
    {2, 1, 2, 1, 2, 1, 0, false, "1f1b"},        {2, 2, 4, 2, 1, 1, 3, false, "interleaved"},
    {2, 2, 4, 1, 1, 1, 2, false, "zbv"},
};

static void every_layout(gw_family f) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) check_one(f, 5, &layouts[i]);
}

TEST(stages_of_gpt2) { every_layout(GW_FAMILY_GPT2); }
TEST(stages_of_llama) { every_layout(GW_FAMILY_LLAMA); }
TEST(stages_of_qwen3) { every_layout(GW_FAMILY_QWEN3); }
TEST(stages_of_mixtral) { every_layout(GW_FAMILY_MIXTRAL); }
TEST(stages_of_deepseek) { every_layout(GW_FAMILY_DEEPSEEK); }

/* ---- what is held ---- */

/* Most places of anything that forward leaves to backward. */
static int held(const gw_graph *g, gw_arena *a) {
    gw_flow f;
    int most = 0;
    gw_flow_of(&f, g, a);
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].cause == GW_CAUSE_ACTIVATIONS)
            most = GW_MAX(most, f.places[f.class_of[v]]);
    return most;
}

TEST(stage_i_of_1f1b_holds_min_m_p_minus_i) {
    for (int p = 2; p <= 4; p++)
        for (int m = 1; m <= 6; m++) {
            gw_model model = tiny_model(GW_FAMILY_LLAMA, 5);
            layout l = {p, 1, m, 1, 1, 1, 0, false, "1f1b"};
            pipeline k;
            make(&k, &model, &l);
            for (int i = 0; i < p; i++) {
                test_note("p %d m %d stage %d", p, m, i);
                CHECK_EQ(held(&k.g[i], &k.p.mem), GW_MIN(m, p - i));
            }
            release(&k);
            l.schedule = "gpipe";
            make(&k, &model, &l);
            for (int i = 0; i < p; i++) CHECK_EQ(held(&k.g[i], &k.p.mem), m);
            release(&k);
        }
}

/* Of a rank with v alike stages: the micro-batches of all its stages that are under way at once, as
 * Megatron counts them: 2 (p - r - 1) + (v - 1) p before the first backward, and one more. */
TEST(stages_of_a_rank_share_their_places) {
    static const int sizes[][3] = {{2, 2, 4}, {2, 3, 4}, {2, 2, 8}, {4, 2, 8}};
    for (size_t c = 0; c < GW_COUNT(sizes); c++) {
        int p = sizes[c][0], v = sizes[c][1], m = sizes[c][2];
        gw_model model = tiny_model(GW_FAMILY_LLAMA, p * v);
        layout l = {p, v, m, 1, 1, 1, 0, false, "interleaved"};
        pipeline k;
        make(&k, &model, &l);
        for (int r = 0; r < p; r++) {
            test_note("p %d v %d m %d rank %d", p, v, m, r);
            int most = GW_MIN(m * v, 2 * (p - r - 1) + (v - 1) * p + 1);
            CHECK_EQ(held(&k.g[r], &k.p.mem), most);
        }
        release(&k);
    }
}

TEST(weight_gradients_have_pieces_of_their_own) {
    gw_model model = tiny_model(GW_FAMILY_LLAMA, 4);
    layout l = {2, 1, 4, 1, 1, 1, 0, false, "zb-h1"};
    pipeline k;
    make(&k, &model, &l);
    for (int r = 0; r < 2; r++) {
        int products = 0;
        for (int64_t i = 0; i < k.g[r].ops.count; i++) {
            const gw_op *o = &k.g[r].ops.items[i];
            if (!is_op(&k.g[r], o, "matmul_dw")) continue;
            CHECK_EQ(o->part, GW_PART_W);
            products++;
        }
        CHECK_EQ(products, 2 * 7);
    }
    release(&k);
}

/* ---- balance ---- */

TEST(layers_are_cut_by_cost) {
    gw_arena mem = {0};
    double even[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int first[5];
    gw_split_balance(even, 8, 0, 0, 4, first, &mem);
    for (int i = 0; i <= 4; i++) CHECK_EQ(first[i], 2 * i);
    gw_split_balance(even, 8, 0, 2, 4, first, &mem); /* the head costs two layers */
    CHECK_EQ(8 - first[3], 1);
    gw_split_balance(even, 2, 5, 5, 4, first, &mem); /* ends without a layer */
    CHECK_EQ(first[1], 0);
    CHECK_EQ(first[3], 2);
    gw_arena_release(&mem);
}

TEST(too_few_layers_are_refused) {
    gw_model model = tiny_model(GW_FAMILY_LLAMA, 2);
    layout l = {6, 1, 6, 1, 1, 1, 0, false, "1f1b"};
    pipeline k = {0};
    gw_graph g;
    program_init(&k.p, &model, 2, 12);
    lay_out(&k.p, &l);
    gw_sched_request r = {.ranks = 6, .virtual_stages = 1, .micro_batches = 6};
    CHECK_OK(gw_schedule_make("1f1b", &r, &k.p.mem, &k.s, &k.p.dg), &k.p.dg);
    k.p.opts.layout.schedule = &k.s;
    CHECK_EQ(program_try(&k.p, NULL, &g, NULL), GW_ERR_CONFIG);
    CHECK(strstr(gw_diags_first_error(&k.p.dg), "2 layers do not make 6 stages"));
    program_release(&k.p);
}

/* ---- programs that do not fit together ---- */

static gw_op *find_op(gw_graph *g, const char *name, int64_t after) {
    for (int64_t i = after; i < g->ops.count; i++)
        if (is_op(g, &g->ops.items[i], name)) return &g->ops.items[i];
    return NULL;
}

static void set_attr(gw_graph *g, const gw_op *o, int i, int64_t x) {
    g->attrs.items[o->attr + (uint32_t)i].i = x;
}

static void expect_fault(pipeline *k, const char *says) {
    gw_diags_clear(&k->p.dg);
    CHECK_EQ(check_pipeline(k), GW_ERR_FORMAT);
    CHECK_MSG(strstr(gw_diags_first_error(&k->p.dg), says), "'%s' does not say '%s'",
              gw_diags_first_error(&k->p.dg), says);
    gw_diags_clear(&k->p.dg);
}

TEST(faults_between_programs_are_named) {
    gw_model model = tiny_model(GW_FAMILY_LLAMA, 4);
    layout l = {3, 1, 4, 1, 1, 1, 0, false, "1f1b"};
    pipeline k;
    make(&k, &model, &l);
    CHECK_OK(check_pipeline(&k), &k.p.dg);
    gw_op *o = find_op(&k.g[1], "recv", 0);
    int64_t tag = gw_op_attr(&k.g[1], o, 1).i;
    set_attr(&k.g[1], o, 1, 9999); /* nobody's tag */
    expect_fault(&k, "does not");
    set_attr(&k.g[1], o, 1, tag);
    set_attr(&k.g[1], o, 2, 5);
    expect_fault(&k, "places");
    set_attr(&k.g[1], o, 2, 2);
    set_attr(&k.g[1], o, 0, 1); /* from itself */
    expect_fault(&k, "names rank 1 of 3");
    set_attr(&k.g[1], o, 0, 0);
    CHECK_OK(check_pipeline(&k), &k.p.dg);
    gw_action *a = k.g[1].actions.items; /* the middle rank wants gradients before it has sent */
    int64_t sent = -1, got = -1;
    for (int64_t i = 0; i < k.g[1].actions.count; i++) {
        if (a[i].act == GW_ACT_RECV_B && got < 0) got = i;
        if (a[i].act == GW_ACT_SEND_F && sent < 0) sent = i;
    }
    CHECK(sent >= 0 && got > sent);
    gw_action first = a[got];
    memmove(a + 1, a, sizeof *a * (size_t)got);
    a[0] = first;
    expect_fault(&k, "wait for one another");
    release(&k);
}

/* ---- with everything else ---- */

static void selective(gw_compile_opts *o) { o->recompute.kind = GW_RECOMPUTE_SELECTIVE; }
static void full(gw_compile_opts *o) { o->recompute.kind = GW_RECOMPUTE_FULL; }
static void budget(gw_compile_opts *o) {
    o->recompute.kind = GW_RECOMPUTE_BUDGET;
    o->recompute.budget_bytes = 1500000;
}
static void deferred(gw_compile_opts *o) { o->optim.deferred_norm = true; }
static void muon(gw_compile_opts *o) { o->optim.kind = GW_OPTIM_MUON; }
static void gradients(gw_compile_opts *o) { o->keep_gradients = true; }
static void each(gw_compile_opts *o) { o->layout.reduce_each = true; }
static void last(gw_compile_opts *o) { o->layout.reduce_each = false; }
static void narrow(gw_compile_opts *o) {
    o->compute = GW_BF16;
    o->gradients = GW_F32;
}
static void offload(gw_compile_opts *o) {
    narrow(o);
    o->layout.optimizer_mem = o->layout.master_mem = GW_MEM_HOST;
}
static void forward(gw_compile_opts *o) { o->train = false; }

TEST(a_tied_weight_under_every_zero_and_reduction) {
    gw_model model = tiny_model(GW_FAMILY_GPT2, 5);
    for (int zero = 0; zero <= 3; zero++)
        for (int often = 0; often < 2; often++) {
            layout l = {2, 1, 3, 2, 1, 1, zero, false, "1f1b"};
            pipeline k;
            test_note("zero %d, %s", zero, often ? "each" : "last");
            make_with(&k, &model, &l, often ? each : last);
            CHECK_OK(check_pipeline(&k), &k.p.dg);
            check_parameters(&k, model.tie);
            release(&k);
        }
}

TEST(stages_with_every_other_option) {
    static const struct {
        const char *name;
        void (*change)(gw_compile_opts *o);
    } all[] = {{"selective", selective}, {"full", full},          {"budget", budget},
               {"deferred", deferred},   {"muon", muon},          {"keep gradients", gradients},
               {"reduce each", each},    {"bf16 master", narrow}, {"offload", offload},
               {"forward", forward}};
    static const layout some[] = {{2, 1, 3, 2, 1, 1, 0, false, "1f1b"},
                                  {2, 1, 3, 2, 1, 1, 2, false, "zb-h1"},
                                  {2, 2, 4, 1, 1, 2, 0, true, "interleaved"}};
    gw_model model = tiny_model(GW_FAMILY_LLAMA, 5);
    for (size_t i = 0; i < GW_COUNT(all); i++)
        for (size_t j = 0; j < GW_COUNT(some); j++) {
            if (all[i].change == muon && some[j].zero > 0) continue; /* not offered with ZeRO */
            pipeline k;
            test_note("%s, %s zero %d", all[i].name, some[j].schedule, some[j].zero);
            make_with(&k, &model, &some[j], all[i].change);
            CHECK(check_messages(&k) > 0);
            CHECK_OK(check_pipeline(&k), &k.p.dg);
            check_parameters(&k, model.tie);
            release(&k);
        }
}

/* ---- places that stages share ---- */

/* Is a value of a block that others share read or written beside the pieces of its micro-batches:
 * by an op of the step, or outside the loop? Then its place may be another stage's by then. */
static int check_shared(const gw_graph *g, gw_arena *a) {
    gw_flow f;
    gw_oid first, end;
    gw_flow_of(&f, g, a);
    gw_graph_loop(g, &first, &end);
    bool *shared = gw_arena_new(a, bool, g->values.count + 1);
    int n = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        gw_vid root = gw_value_root(g, (gw_vid)v);
        if (f.block_of[v] == root) continue;
        shared[f.block_of[v]] = shared[root] = true;
        n++;
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        bool in_piece = i >= first && i < end && o->rate == GW_RATE_MB;
        for (int k = 0; k < o->nin + o->nout; k++) {
            gw_vid v = k < o->nin ? gw_op_in(g, o, k) : gw_op_out(g, o, k - o->nin);
            if (v == GW_NONE || in_piece) continue;
            CHECK_MSG(!shared[gw_value_root(g, v)], "op %u (%s of %s) touches %%%u", i,
                      op_name(g, o), gw_graph_str(g, o->scope), v);
        }
    }
    return n;
}

TEST(what_shares_places_ends_with_its_micro_batch) {
    static void (*const changes[])(gw_compile_opts * o) = {
        NULL, selective, full, deferred, gradients, each, last, narrow, offload};
    static const layout some[] = {
        {2, 2, 1, 1, 1, 1, 0, false, "zbv"},         {2, 2, 1, 2, 1, 1, 1, false, "zbv"},
        {2, 2, 1, 1, 1, 1, 0, false, "dualpipev"},   {2, 2, 1, 2, 1, 1, 3, false, "interleaved"},
        {2, 2, 2, 2, 1, 1, 2, false, "interleaved"}, {2, 3, 4, 2, 1, 1, 3, false, "interleaved"},
        {2, 2, 4, 2, 1, 1, 3, false, "zbv"},         {2, 2, 4, 2, 1, 1, 1, false, "dualpipev"},
        {2, 2, 1, 1, 1, 2, 0, true, "zbv"},
    };
    static const gw_family families[] = {GW_FAMILY_LLAMA, GW_FAMILY_GPT2, GW_FAMILY_DEEPSEEK};
    int n = 0;
    for (size_t f = 0; f < GW_COUNT(families); f++)
        for (size_t i = 0; i < GW_COUNT(changes); i++)
            for (size_t j = 0; j < GW_COUNT(some); j++) {
                gw_model model = tiny_model(families[f], 6);
                pipeline k;
                test_note("%s, change %d, layout %d", gw_family_name(families[f]), (int)i, (int)j);
                make_with(&k, &model, &some[j], changes[i]);
                for (int r = 0; r < k.s.ranks; r++) n += check_shared(&k.g[r], &k.p.mem);
                release(&k);
            }
    CHECK(n > 1000);
}
