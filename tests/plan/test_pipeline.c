// SPDX-License-Identifier: Apache-2.0
// The plan of a pipeline: each rank's ledger against its program, and all of them against the model
// on one rank. Figures named K are arithmetic of the field.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h" /* gw_file_write_atomic */
#include "harness.h"
#include "plan/pipeplan.h"
#include "planned.h"
#include "run/exec_channel.h" /* gw_exec_sends_traffic */

enum { MOST = 16 };

typedef struct piped {
    planned p; /* of rank 0 */
    gw_graph program[MOST];
    gw_compile_report report[MOST];
    gw_ledger ranks[MOST];
    int n;
    gw_pipeplan pipe;
    gw_arena mem;
} piped;

static const char *const tied =
    "model: {family: llama, layers: 6, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320, "
    "tie_embeddings: true}\nprecision: {compute: fp32}\n";
static const char *const untied =
    "model: {family: llama, layers: 6, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320, "
    "tie_embeddings: false}\nprecision: {compute: fp32}\n";

static void pipe_init(piped *x, const char *model, int m, const char *layout) {
    memset(x, 0, sizeof *x);
    PLAN(&x->p, "%strain: {seq_len: 32, micro_batch: 2, accumulate: %d}\nlayout: {%s}\n", model, m,
         layout);
    gw_setup *s = &x->p.setup;
    CHECK(s->schedule != NULL);
    x->n = s->schedule->ranks;
    s->train.report_mem = &x->mem;
    for (int r = 0; r < x->n; r++) {
        s->stage_rank = r;
        CHECK_OK(gw_setup_program(s, true, NULL, &x->program[r], &x->report[r], &x->p.dg),
                 &x->p.dg);
        gw_ledger_init(&x->ranks[r], &(gw_ledger_input){.program = &x->program[r],
                                                        .report = &x->report[r],
                                                        .model = &s->model,
                                                        .machine = &s->machine,
                                                        .comm = &s->facts.comm,
                                                        .first = r ? &x->ranks[0] : NULL});
    }
    gw_pipeplan_init(&x->pipe, &(gw_pipeplan_input){.ranks = x->ranks,
                                                    .n = x->n,
                                                    .schedule = s->schedule,
                                                    .stages = x->report[0].stages,
                                                    .places = 2});
}

static void pipe_release(piped *x) {
    gw_pipeplan_release(&x->pipe);
    for (int r = 0; r < x->n; r++) {
        gw_ledger_release(&x->ranks[r]);
        gw_graph_release(&x->program[r]);
    }
    planned_release(&x->p);
    gw_arena_release(&x->mem);
}

static const struct {
    int m;
    const char *layout;
} layouts[] = {{4, "pp: 2, schedule: gpipe"}, {4, "pp: 2, schedule: 1f1b"},
               {8, "pp: 4, schedule: 1f1b"},  {4, "pp: 2, virtual_stages: 3"},
               {4, "pp: 2, schedule: zb-h1"}, {4, "pp: 2, schedule: zb-2p"},
               {4, "pp: 2, schedule: zbv"},   {4, "pp: 2, schedule: dualpipev"},
               {4, "pp: 2, dp: 2, zero: 1"},  {4, "pp: 3, tp: 2, sequence_parallel: true"}};

/* What all ranks are compiled from is compiled once; from it each has the program that it has when
 * it is compiled for itself. */
TEST(ranks_compiled_from_what_they_share_are_the_same) {
    static const char *const kinds[] = {"pp: 3, virtual_stages: 2, schedule: interleaved",
                                        "pp: 2, tp: 2, dp: 2, zero: 1", "pp: 2, schedule: zb-h1"};
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        piped x;
        gw_graph whole;
        pipe_init(&x, tied, 6, kinds[i]);
        CHECK_OK(gw_setup_shared(&x.p.setup, true, &whole, &x.p.dg), &x.p.dg);
        for (int r = 0; r < x.n; r++) {
            gw_graph g;
            char why[256] = "";
            gw_compile_report report;
            x.p.setup.stage_rank = r;
            CHECK_OK(gw_setup_rank(&x.p.setup, true, &whole, NULL, &g, &report, &x.p.dg), &x.p.dg);
            CHECK_MSG(gw_graph_equal(&g, &x.program[r], why, sizeof why), "rank %d: %s", r, why);
            CHECK_EQ(report.place.arena_bytes[0], x.report[r].place.arena_bytes[0]);
            gw_graph_release(&g);
        }
        gw_graph_release(&whole);
        pipe_release(&x);
    }
}

TEST(each_ranks_ledger_is_its_programs) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        piped x;
        test_note("%s", layouts[i].layout);
        pipe_init(&x, tied, layouts[i].m, layouts[i].layout);
        for (int r = 0; r < x.n; r++) {
            const gw_ledger *l = &x.ranks[r];
            int64_t causes = 0, params = 0;
            for (int c = 0; c < GW_CAUSE_COUNT; c++) causes += l->by_cause[c];
            CHECK_EQ(l->arena_bytes, x.program[r].arena_bytes[GW_MEM_DEVICE]);
            CHECK_EQ(causes, l->total_bytes);
            for (int64_t v = 0; v < x.program[r].values.count; v++) {
                const gw_value *y = &x.program[r].values.items[v];
                if (y->def == GW_NONE && y->role == GW_ROLE_PARAM)
                    params += gw_type_elems(&y->type);
            }
            CHECK_EQ(l->rank_params, params);
            CHECK_EQ(l->micro_batches, layouts[i].m);
            CHECK_EQ(l->tokens_per_step, x.ranks[0].tokens_per_step);
            CHECK(l->total_bytes <= x.ranks[x.pipe.largest].total_bytes);
        }
        pipe_release(&x);
    }
}

/* Every parameter is on one rank, but the tied one, which is on two where they differ. */
TEST(parameters_are_counted_once) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        piped x;
        test_note("%s", layouts[i].layout);
        pipe_init(&x, tied, layouts[i].m, layouts[i].layout);
        int64_t sum = 0, table = 320 * 64;
        for (int r = 0; r < x.n; r++) sum += x.ranks[r].rank_params;
        bool apart = x.pipe.stage[0].rank != x.pipe.stage[x.pipe.stages - 1].rank;
        CHECK_EQ(sum, gw_model_count(&x.p.setup.model) + (apart ? table : 0));
        CHECK_EQ(x.ranks[0].params, gw_model_count(&x.p.setup.model));
        pipe_release(&x);
    }
}

/* Rows of sends sum to what the executor's count must equal; per boundary and micro-batch they are
 * what the split reports. */
TEST(what_stages_send_is_what_programs_send) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        piped x;
        test_note("%s", layouts[i].layout);
        pipe_init(&x, tied, layouts[i].m, layouts[i].layout);
        int64_t all = 0, forward = 0, back = 0, said[2] = {0};
        for (int r = 0; r < x.n; r++) {
            int64_t sent = 0;
            for (int k = 0; k < x.ranks[r].nwire; k++) {
                const gw_ledger_wire *w = &x.ranks[r].wire[k];
                if (strcmp(w->axis, "pp") != 0) continue;
                CHECK_EQ(w->payload_bytes, w->moved_bytes);
                sent += w->payload_bytes;
                forward += strcmp(w->collective, GW_WIRE_SEND_FORWARD) ? 0 : w->payload_bytes;
                back += strcmp(w->collective, GW_WIRE_SEND_BACK) ? 0 : w->payload_bytes;
            }
            CHECK_EQ(sent, gw_exec_sends_traffic(&x.program[r], 0).payload);
            all += sent;
        }
        CHECK_EQ(all, x.pipe.sent_bytes);
        for (int s = 0; s < x.pipe.stages; s++) {
            bool on = s + 1 < x.pipe.stages && x.pipe.stage[s].rank != x.pipe.stage[s + 1].rank;
            bool off = s > 0 && x.pipe.stage[s].rank != x.pipe.stage[s - 1].rank;
            if (on) said[0] += x.pipe.stage[s].sent_forward;
            if (off) said[1] += x.pipe.stage[s].sent_backward;
        }
        CHECK_EQ(forward, said[0] * layouts[i].m);
        CHECK_EQ(back, said[1] * layouts[i].m);
        CHECK(forward > 0 && back > 0);
        pipe_release(&x);
    }
}

/* ---- memory that is promised ---- */

/* m forward, then m backward, whole, and once more: a rank holds m micro-batches of all its stages.
 */
static void write_all_at_once(const char *path, int p, bool v_shape, int m) {
    gw_str t = {0};
    int stages = v_shape ? 2 * p : p;
    gw_str_printf(&t, "schedule reference\nranks %d\nstages", p);
    for (int s = 0; s < stages; s++) gw_str_printf(&t, " %d", s < p ? s : 2 * p - 1 - s);
    gw_str_printf(&t, "\nmicro-batches %d", 2 * m);
    for (int r = 0; r < p; r++) {
        gw_str_printf(&t, "\nrank %d:", r);
        for (int k = 0; k < 2; k++) {
            for (int s = r; s < stages; s = s == r ? 2 * p - 1 - r : stages)
                for (int i = 0; i < m; i++) gw_str_printf(&t, " F%d.%d", s, i + k * m);
            for (int s = v_shape ? 2 * p - 1 - r : r; s >= 0; s = s > r ? r : -1)
                for (int i = 0; i < m; i++) gw_str_printf(&t, " B%d.%d", s, i + k * m);
        }
    }
    gw_diags dg = {0};
    CHECK_OK(gw_file_write_atomic(path, gw_str_c(&t), (int64_t)t.len, &dg), &dg);
    gw_str_release(&t);
    gw_diags_release(&dg);
}

static const struct {
    const char *model, *layout;
    int p;
} promised[] = {
    {"model: {family: llama, layers: 8, hidden: 64, heads: 4, kv_heads: 2, ffn: 176, vocab: 128}\n",
     "", 4},
    {"model: {family: gpt2, layers: 4, hidden: 64, heads: 4, vocab: 320}\n", "", 2},
    {"model: {family: llama, layers: 6, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320, "
     "tie_embeddings: true}\nprecision: {compute: bf16}\n",
     "dp: 2, zero: 1, ", 3},
    {"model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 4, ffn: 128, vocab: 128}\n",
     "tp: 2, sequence_parallel: true, ", 2},
    {"model: {family: llama, layers: 6, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 128}\n"
     "recompute: {policy: full}\n",
     "", 3},
    {"model: {family: mixtral, layers: 4, hidden: 32, heads: 4, kv_heads: 2, vocab: 128, moe: "
     "{experts: 4, top: 2, ffn: 64}}\n",
     "", 2},
    {"model: {family: qwen3, layers: 8, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 128, "
     "vocab: 512}\nrecompute: {policy: selective}\n",
     "dp: 2, zero: 2, ", 4}};

static const struct {
    const char *schedule;
    int memory; /* 0: p; -1: 2 p; else schedule_memory */
    bool v;
} keepers[] = {{"zb-h1", 0, false}, {"zb-2p", -1, false}, {"zb-2p", 3, false},
               {"zb-2p", 1, false}, {"zbv", 0, true},     {"zbv", 2, true}};

/* layout.schedule_memory X: no rank's arena is larger than with X micro-batches of all its stages
 * under way and a whole backward, as its own program has it. */
TEST_WITHIN(searched_schedules_keep_their_memory_in_bytes, 300) {
    const char *path = test_tmp_path("all.txt");
    for (size_t i = 0; i < GW_COUNT(promised); i++)
        for (size_t k = 0; k < GW_COUNT(keepers); k++) {
            piped x, y;
            char layout[400], key[64] = "";
            int p = promised[i].p, given = keepers[k].memory;
            int memory = given > 0 ? given : given < 0 ? 2 * p : p;
            if (given > 0) snprintf(key, sizeof key, ", schedule_memory: %d", given);
            write_all_at_once(path, p, keepers[k].v, memory);
            snprintf(layout, sizeof layout, "%spp: %d, schedule: 'file:%s'", promised[i].layout, p,
                     path);
            pipe_init(&y, promised[i].model, 2 * memory, layout);
            snprintf(layout, sizeof layout, "%spp: %d, schedule: %s%s", promised[i].layout, p,
                     keepers[k].schedule, key);
            test_note("%s%s", promised[i].model, layout);
            pipe_init(&x, promised[i].model, 2 * p + 1, layout);
            for (int r = 0; r < p; r++)
                CHECK_MSG(x.ranks[r].arena_bytes <= y.ranks[r].arena_bytes,
                          "rank %d: %lld bytes, and %lld with %d micro-batches under way", r,
                          (long long)x.ranks[r].arena_bytes, (long long)y.ranks[r].arena_bytes,
                          memory);
            pipe_release(&x);
            pipe_release(&y);
        }
}

/* A pipeline does the model's work, spread: up to the step's frame and what each rank repeats. */
TEST(ranks_together_do_the_models_work) {
    planned one;
    PLAN(&one, "%strain: {seq_len: 32, micro_batch: 2, accumulate: 4}\n", tied);
    double loop = 0;
    for (int ph = 0; ph < GW_PHASE_O; ph++) loop += one.ledger.flops.by_phase[ph];
    for (int k = 0; k < 2; k++) {
        piped x;
        pipe_init(&x, tied, 4, k ? "pp: 2, schedule: zb-h1" : "pp: 3, schedule: 1f1b");
        double sum = 0, model = 0;
        for (int r = 0; r < x.n; r++) {
            for (int ph = 0; ph < GW_PHASE_O; ph++) sum += x.ranks[r].flops.by_phase[ph];
            model += x.ranks[r].flops.model;
        }
        CHECK_NEAR(sum / loop, 1, 0.01); /* tables of positions and masks are made on each rank */
        CHECK_NEAR(model / one.ledger.flops.model, 1, 1e-12);
        pipe_release(&x);
    }
    planned_release(&one);
}

/* K21: stage i of 1F1B holds min(m, p - i) micro-batches, GPipe m on each: in the clock and as
 * places in the programs' arenas. */
TEST(K21_1f1b_caps_what_stages_hold) {
    for (int m = 1; m <= 8; m += 3) {
        piped f, g;
        pipe_init(&f, tied, m, "pp: 4, schedule: 1f1b");
        pipe_init(&g, tied, m, "pp: 4, schedule: gpipe");
        for (int r = 0; r < 4; r++) {
            CHECK_EQ(f.ranks[r].most_places, GW_MIN(m, 4 - r));
            CHECK_EQ(f.pipe.times.micro_held[r], GW_MIN(m, 4 - r));
            CHECK_EQ(g.ranks[r].most_places, m);
            CHECK_EQ(g.pipe.times.micro_held[r], m);
        }
        pipe_release(&f);
        pipe_release(&g);
    }
}

/* What is carried has exactly its places: GPipe's of m micro-batches is m times that of one, less
 * what needs one place whatever m. */
TEST(carried_bytes_grow_by_one_micro_batch_a_place) {
    int64_t carried[5] = {0};
    for (int m = 1; m < 5; m++) {
        piped x;
        pipe_init(&x, tied, m, "pp: 2, schedule: gpipe");
        carried[m] = x.ranks[0].carried_bytes;
        pipe_release(&x);
    }
    CHECK(carried[2] > carried[1]);
    CHECK_EQ(carried[3] - carried[2], carried[4] - carried[3]);
    CHECK_EQ(carried[2] - carried[1], carried[3] - carried[2]);
}

static double bubble_of(const char *name, int p, int v, int m, gw_sched_times *t, gw_arena *a) {
    gw_diags dg;
    gw_schedule s;
    gw_diags_init(&dg);
    gw_sched_request r = {.ranks = p, .virtual_stages = v, .micro_batches = m};
    CHECK_OK(gw_schedule_make(name, &r, a, &s, &dg), &dg);
    double *one = gw_arena_new(a, double, s.stages);
    for (int i = 0; i < s.stages; i++) one[i] = 1;
    gw_sched_time(&s, &(gw_sched_costs){.forward = one, .input = one, .weight = one}, 2, a, t);
    gw_diags_release(&dg);
    return gw_sched_formula(name, &r, 1, 1, 1);
}

/* Percent, to 0.1: (p - 1) / (v m) of the computing, (p - 1) / (v m + p - 1) of the step. */
TEST(K20_bubbles_of_16_ranks) {
    static const struct {
        int m, v;
        double compute, step;
    } rows[] = {{16, 1, 93.8, 48.4}, {32, 1, 46.9, 31.9}, {64, 1, 23.4, 19.0}, {128, 1, 11.7, 10.5},
                {16, 8, 11.7, 10.5}, {32, 8, 5.9, 5.5},   {64, 8, 2.9, 2.8},   {128, 8, 1.5, 1.4}};
    for (size_t i = 0; i < GW_COUNT(rows); i++)
        for (int g = 0; g < (rows[i].v == 1 ? 2 : 1); g++) {
            gw_arena mem = {0};
            gw_sched_times t;
            const char *name = rows[i].v > 1 ? "interleaved" : g ? "gpipe" : "1f1b";
            double formula = bubble_of(name, 16, rows[i].v, rows[i].m, &t, &mem);
            CHECK_NEAR(100 * t.bubble_compute, rows[i].compute, 0.051);
            CHECK_NEAR(100 * t.bubble_step, rows[i].step, 0.051);
            CHECK_NEAR(t.bubble_compute, formula, 1e-9);
            for (int r = 0; r < 16 && rows[i].v == 1; r++)
                CHECK_EQ(t.micro_held[r], g ? rows[i].m : GW_MIN(rows[i].m, 16 - r));
            gw_arena_release(&mem);
        }
}

/* The same in a plan, where stages alike stand beside the formula. */
TEST_WITHIN(K20_in_the_plan_of_a_model, 120) {
    piped x;
    static const char *const deep =
        "model: {family: llama, layers: 16, hidden: 32, heads: 2, kv_heads: 2, ffn: 64, vocab: "
        "64}\nprecision: {compute: fp32}\n";
    pipe_init(&x, deep, 16, "pp: 16, schedule: 1f1b");
    CHECK_NEAR(100 * x.pipe.alike.bubble_compute, 93.75, 1e-6);
    CHECK_NEAR(x.pipe.formula, 15.0 / 16, 1e-12);
    CHECK_NEAR(x.pipe.alike.bubble_step, 15.0 / 31, 1e-9);
    CHECK(x.pipe.times.bubble_compute >= x.pipe.alike.bubble_compute); /* stages are not alike */
    for (int r = 0; r < 16; r++) CHECK_EQ(x.ranks[r].most_places, 16 - r);
    pipe_release(&x);
}

/* K29: 8192 tokens x 16384 x 2 bytes / 8 over each boundary, for each micro-batch and GPU. */
TEST_WITHIN(K29_what_405b_sends_between_stages, 120) {
    planned p;
    memset(&p, 0, sizeof p);
    gw_diags_init(&p.dg);
    static const char text[] = "model: {preset: llama3-405b}\n"
                               "train: {seq_len: 8192, micro_batch: 1, accumulate: 16}\n"
                               "layout: {pp: 16, tp: 8, dp: 128, zero: 1}\n"
                               "precision: {compute: bf16}\n";
    CHECK_OK(gw_runfile_parse(&p.rf, "k29.yaml", text, (int64_t)sizeof text - 1, NULL, 0, &p.dg),
             &p.dg);
    CHECK_OK(gw_setup_init(&p.setup, &p.rf, false, &p.dg), &p.dg);
    CHECK_OK(gw_setup_ranks(&p.setup, NULL, &p.dg), &p.dg);
    CHECK_EQ(gw_runfile_ranks(&p.rf), 16384);
    gw_arena mem = {0};
    p.setup.train.report_mem = &mem;
    CHECK_OK(gw_setup_program(&p.setup, true, "split", &p.step, &p.report, &p.dg), &p.dg);
    CHECK_EQ(p.report.nstages, 16);
    int layers = 0;
    for (int s = 0; s < 16; s++) {
        const gw_stage_report *x = &p.report.stages[s];
        CHECK_EQ(x->sent_forward, s < 15 ? 33554432 : 0);
        CHECK_EQ(x->sent_backward, s > 0 ? 33554432 : 0);
        layers += x->layers;
    }
    CHECK_EQ(layers, 126);
    gw_arena_release(&mem);
    gw_graph_release(&p.step);
    gw_setup_release(&p.setup);
    gw_runfile_release(&p.rf);
    gw_diags_release(&p.dg);
}

/* The written zb-2p on stages alike, which it is good for. */
static void plan_alike(piped *x, const char *model, double flops, gw_pipeplan *out) {
    pipe_init(x, model, 8,
              "pp: 4, schedule: 'file:" GW_TESTS_DIR "/../examples/schedules/zb-2p.txt'");
    gw_stage_report even[4];
    for (int i = 0; i < 4; i++) {
        even[i] = x->report[0].stages[i];
        even[i].forward = even[i].input = even[i].weight = 1e9;
    }
    gw_machine_spec hw = {.peak[GW_BF16] = flops};
    gw_pipeplan_init(out, &(gw_pipeplan_input){.ranks = x->ranks,
                                               .n = 4,
                                               .schedule = x->p.setup.schedule,
                                               .stages = even,
                                               .places = 2,
                                               .hardware = &hw});
}

/* A machine twice as fast halves the time and leaves the bubble. */
TEST(times_follow_the_machine) {
    piped x, y;
    gw_pipeplan a, b;
    plan_alike(&x, untied, 1e9, &a);
    plan_alike(&y, untied, 2e9, &b);
    CHECK_NEAR(a.times.step / b.times.step, 2, 1e-9);
    CHECK_NEAR(a.times.bubble_compute, b.times.bubble_compute, 1e-9);
    gw_pipeplan_release(&a);
    gw_pipeplan_release(&b);
    pipe_release(&x);
    pipe_release(&y);
}

/* Ranks begin and end one behind the other: with a deferred norm a step among many takes the time
 * of one rank. But a tied embedding is on the first and on the last, and the first begins. */
TEST(a_tied_embedding_is_waited_for) {
    for (int ties = 0; ties < 2; ties++) {
        piped x;
        gw_pipeplan p;
        plan_alike(&x, ties ? tied : untied, 1e9, &p);
        double exact = gw_pipeplan_period(&p, false), deferred = gw_pipeplan_period(&p, true);
        CHECK_NEAR(exact, 3 * 8 + 3, 1e-9);
        CHECK_NEAR(deferred, ties ? 3 * 8 + 3 : 3 * 8, 1e-9);
        gw_pipeplan_release(&p);
        pipe_release(&x);
    }
}

TEST(the_page_and_the_json_name_both_conventions) {
    piped x;
    pipe_init(&x, tied, 4, "pp: 2, schedule: 1f1b");
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    CHECK(out != NULL);
    gw_plan_print(&x.ranks[x.pipe.largest], "run", false, false, out);
    fclose(out);
    CHECK(strstr(text, "bubble/compute") && strstr(text, "bubble/step"));
    CHECK(strstr(text, "20,480 parameters stand on two ranks") != NULL);
    CHECK(strstr(text, "send forward") != NULL);
    free(text);
    json_t *j = gw_plan_json(&x.ranks[x.pipe.largest]);
    const json_t *p = json_object_get(j, "pipeline");
    CHECK_EQ(json_array_size(json_object_get(p, "ranks")), 2);
    CHECK_EQ(json_array_size(json_object_get(p, "stages")), 2);
    const json_t *idle = json_object_get(p, "idle");
    CHECK_NEAR(json_real_value(json_object_get(json_object_get(idle, "bubble_compute"), "formula")),
               0.25, 1e-12);
    CHECK_NEAR(json_real_value(json_object_get(json_object_get(idle, "bubble_step"), "formula")),
               0.2, 1e-12);
    json_decref(j);
    pipe_release(&x);
}
