// SPDX-License-Identifier: Apache-2.0
// The search on real programs: of tiny models every layout is compiled and simulated, and the
// pruned search must find no worse for any objective; bounds hold; no rule refuses what is
// proposed; the run file that is printed plans to the same step time. And the command's own words.
#include <math.h>
#include <string.h>

#include "base/str.h"        /* gw_str */
#include "cli/plan_search.h" /* gw_search_site */
#include "command.h"         /* command_run */
#include "harness.h"

typedef struct asked {
    gw_target t;
    gw_diags dg;
    gw_machine_spec m;
    gw_arena mem;
    gw_search_site site;
    gw_search_input in;
} asked;

/* Wires and memory by numbers of this machine's size: a step is milliseconds. */
static void ask(asked *q, int64_t world, const char *machine, int64_t memory, const char *text) {
    memset(q, 0, sizeof *q);
    gw_diags_init(&q->dg);
    CHECK_OK(gw_machine_read(machine, &q->mem, &q->m, &q->dg), &q->dg);
    CHECK_OK(gw_runfile_parse_for(&q->t.rf, "test.yaml", text, (int64_t)strlen(text), NULL, 0,
                                  world, &q->dg),
             &q->dg);
    CHECK_OK(gw_runfile_set_ranks(&q->t.rf, world, &q->dg), &q->dg);
    CHECK_OK(gw_setup_init(&q->t.setup, &q->t.rf, false, &q->dg), &q->dg);
    CHECK_OK(gw_setup_ranks(&q->t.setup, NULL, &q->dg), &q->dg);
    q->t.name = "test";
    gw_search_site_init(&q->site, &q->t, &q->m, memory);
    CHECK_OK(gw_search_site_space(&q->site, &q->in.space, &q->dg), &q->dg);
    gw_search_site_facts(&q->site, &q->in.facts);
    q->in.machine = &q->m;
    q->in.host = (gw_search_host){
        .user = &q->site, .probe = gw_search_site_probe, .evaluate = gw_search_site_evaluate};
}

static void done(asked *q) {
    gw_search_site_release(&q->site);
    gw_setup_release(&q->t.setup);
    gw_runfile_release(&q->t.rf);
    gw_diags_release(&q->dg);
    gw_arena_release(&q->mem);
}

static const char *const dense =
    "model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 256}\n"
    "train: {seq_len: 64, global_batch: 8}\n"
    "precision: {compute: bf16}\n";

static const char *const experts =
    "model: {family: mixtral, layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn: 64, vocab: 128,\n"
    "  moe: {experts: 4, top: 2}}\n"
    "train: {seq_len: 32, global_batch: 4}\n"
    "precision: {compute: bf16}\n";

/* Keeps the space small enough to compile all of it. */
static void narrow(gw_search_space *s) {
    s->most[GW_SEARCH_VIRTUAL] = 2;
    s->most[GW_SEARCH_MICRO] = 2;
    s->is_fixed[GW_SEARCH_OFFLOAD] = true;
}

static const gw_search_outcome *outcome_of(const gw_search *s, int64_t at) {
    int32_t x = s->candidates.items[at].outcome;
    return x < 0 ? NULL : &s->outcomes.items[x];
}

static double score_of_best(const gw_search *s) {
    if (s->best < 0) return (double)INFINITY;
    return gw_search_score(&s->in, &s->candidates.items[s->best].layout, outcome_of(s, s->best));
}

/* Bounds are below what the programs take, in bytes and seconds, of every layout. */
static void check_bounds(const gw_search *all) {
    int64_t runs = 0;
    test_note("%lld enumerated, %lld refused, %lld evaluated", (long long)all->counts.enumerated,
              (long long)all->counts.refused, (long long)all->counts.evaluated);
    for (int64_t i = 0; i < all->outcomes.count && i < 20; i++)
        if (all->outcomes.items[i].verdict != GW_SEARCH_RUNS)
            test_note("refused: %s", all->outcomes.items[i].why);
    for (int64_t i = 0; i < all->candidates.count; i++) {
        const gw_search_candidate *c = &all->candidates.items[i];
        const gw_search_outcome *o = outcome_of(all, i);
        if (!o || o->verdict != GW_SEARCH_RUNS) continue;
        gw_str d = {0};
        gw_search_describe(&c->layout, &d);
        CHECK_MSG(c->bound_bytes <= o->total_bytes, "%s: bound %lld B, takes %lld", gw_str_c(&d),
                  (long long)c->bound_bytes, (long long)o->total_bytes);
        CHECK_MSG(c->bound_s <= o->step_s * (1 + 1e-9), "%s: bound %.9g s, takes %.9g",
                  gw_str_c(&d), c->bound_s, o->step_s);
        gw_str_release(&d);
        runs++;
    }
    CHECK(runs > 20);
}

/* Of all that was compiled, the best under another memory and objective. */
static double best_of(const gw_search *all, const gw_search_input *in) {
    double best = (double)INFINITY;
    for (int64_t i = 0; i < all->candidates.count; i++) {
        const gw_search_outcome *o = outcome_of(all, i);
        bool counts = o && o->verdict == GW_SEARCH_RUNS &&
                      (in->objective == GW_SEARCH_MEMORY || gw_search_fits(in, o));
        if (counts) best = fmin(best, gw_search_score(in, &all->candidates.items[i].layout, o));
    }
    return best;
}

/* A host that has compiled everything before. */
typedef struct known {
    gw_search_site *site;
    const gw_search *all;
} known;

static void probe_site(void *user, const gw_search_layout *l, gw_search_block *out) {
    gw_search_site_probe(((known *)user)->site, l, out);
}

static void recall(void *user, const gw_search_layout *l, gw_search_outcome *out) {
    const known *k = user;
    int64_t at = gw_search_find(k->all, l);
    CHECK(at >= 0);
    *out = *outcome_of(k->all, at);
}

static void compare(const char *text, int64_t world, const char *machine) {
    asked q;
    gw_search all;
    ask(&q, world, machine, INT64_C(64) << 30, text);
    narrow(&q.in.space);
    q.in.space.is_fixed[GW_SEARCH_RECOMPUTE] = true; /* a budget hangs on the memory */
    gw_search_input in = q.in;
    in.all = true;
    gw_search_run(&all, &in);
    CHECK_EQ(all.counts.broke, 0);
    check_bounds(&all);
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < all.outcomes.count; i++)
        if (all.outcomes.items[i].verdict == GW_SEARCH_RUNS)
            least = GW_MIN(least, all.outcomes.items[i].total_bytes);
    static const char *const objectives[] = {"time", "cost", "memory"};
    for (int o = 0; o < 3; o++)
        for (int k = 0; k < 2; k++) {
            gw_search s;
            known host = {&q.site, &all};
            in = q.in;
            in.host = (gw_search_host){&host, probe_site, recall};
            in.objective = (gw_search_objective)o;
            in.facts.memory_bytes = k ? least + least / 4 : INT64_C(64) << 30;
            in.explains = k;
            gw_search_run(&s, &in);
            CHECK(s.exact);
            CHECK_NEAR(score_of_best(&s), best_of(&all, &in), 1e-12);
            test_note("%s: %lld of %lld evaluated", objectives[o], (long long)s.counts.evaluated,
                      (long long)s.counts.enumerated);
            gw_search_release(&s);
        }
    gw_search_release(&all);
    done(&q);
}

#define NEAR "flops=1e12,memory=1e11,link=1e10,reach=2,beyond=1e9"

TEST_WITHIN(plan_search_agrees_with_brute_force, 240) { compare(dense, 4, NEAR); }

TEST_WITHIN(plan_search_agrees_with_brute_force_of_experts, 240) { compare(experts, 4, NEAR); }

TEST_WITHIN(plan_search_agrees_where_wires_are_slow, 240) {
    compare(dense, 4, "flops=1e13,memory=1e12,link=1e8");
}

/* More recomputation never made a simulated step shorter: what search prunes by. */
TEST_WITHIN(plan_search_prunes_recomputation_rightly, 240) {
    asked q;
    gw_search s;
    ask(&q, 2, NEAR, INT64_C(64) << 30, dense);
    narrow(&q.in.space);
    q.in.space.is_fixed[GW_SEARCH_OFFLOAD] = false;
    q.in.space.is_fixed[GW_SEARCH_MICRO] = true;
    q.in.space.fixed[GW_SEARCH_MICRO] = 1;
    q.in.space.may_offload = true;
    q.m.host_bytes_per_s = 1e9;
    q.in.all = true;
    gw_search_run(&s, &q.in);
    int compared = 0;
    for (int64_t i = 0; i < s.candidates.count; i++) {
        gw_search_layout l = s.candidates.items[i].layout;
        const gw_search_outcome *more = outcome_of(&s, i);
        l.at[GW_SEARCH_RECOMPUTE] = l.at[GW_SEARCH_OFFLOAD] = 0;
        int64_t at = gw_search_find(&s, &l);
        if (at < 0 || at == i || more->verdict != GW_SEARCH_RUNS) continue;
        CHECK(outcome_of(&s, at)->step_s <= more->step_s * (1 + 1e-9));
        compared++;
    }
    CHECK(compared > 20);
    gw_search_release(&s);
    done(&q);
}

/* ---- the command ---- */

#define RUN_FILE                                                                                   \
    "model: {family: llama, layers: 6, hidden: 128, heads: 8, kv_heads: 4, ffn: 256, vocab: "      \
    "512}\n"                                                                                       \
    "train: {seq_len: 128, micro_batch: 4, global_batch: 64}\n"                                    \
    "precision: {compute: bf16}\n"                                                                 \
    "layout: {tp: 2, tp_chunks: 2, bucket: 4MiB}\n"

/* What the search proposes is a run file that plan takes, with the step time that was promised. */
TEST_WITHIN(plan_search_proposes_what_plan_confirms, 120) {
    const char *file = command_file("run.yaml", RUN_FILE);
    json_t *j = command_json("plan %s --hardware h100 --world 8 --search --budget 10 --json", file);
    const char *text = json_string_value(json_object_get(j, "run_file"));
    CHECK(text != NULL && strstr(text, "bucket: "));
    const char *best = command_file("best.yaml", text);
    json_t *p = command_json("plan %s --hardware h100 --world 8 --json", best);
    CHECK_NEAR(command_figure(p, "step_time_s"), command_figure(j, "search.best.step_time_s"),
               1e-15);
    CHECK_NEAR(command_figure(p, "memory.total_bytes"),
               command_figure(j, "search.best.total_bytes"), 0);
    CHECK(json_is_true(json_object_get(p, "fits")));
    CHECK_EQ((int64_t)command_figure(p, "tokens_per_step"), 64 * 128);
    json_decref(p);
    json_decref(j);
}

/* A lever that --set gives is held; one that the file gives is turned. */
TEST_WITHIN(plan_search_holds_what_set_gives, 120) {
    const char *file = command_file("run.yaml", RUN_FILE);
    json_t *j =
        command_json("plan %s --hardware h100 --world 8 --search --budget 4 --json "
                     "--set layout.pp=2 --set layout.schedule=gpipe --set recompute.policy=full",
                     file);
    const json_t *best = command_at(j, "search.best");
    CHECK_EQ(json_integer_value(json_object_get(best, "pp")), 2);
    CHECK_STR(json_string_value(json_object_get(best, "schedule")), "gpipe");
    CHECK_STR(json_string_value(json_object_get(best, "recompute")), "full");
    CHECK_EQ(json_integer_value(json_object_get(best, "dp")) *
                 json_integer_value(json_object_get(best, "tp")) *
                 json_integer_value(json_object_get(best, "cp")),
             4);
    json_decref(j);
}

/* Without a machine the memory levers of this one, and work is what is compared. */
TEST_WITHIN(plan_search_without_a_machine, 120) {
    static const char *const text =
        "model: {family: llama, layers: 4, hidden: 128, heads: 8, kv_heads: 4, ffn: 512, vocab: "
        "512}\n"
        "train: {seq_len: 256, micro_batch: 8}\n";
    const char *file = command_file("run.yaml", text);
    json_t *wide = command_json("plan %s --search --budget 20 --json --memory 4GB", file);
    double bytes = command_figure(wide, "search.best.total_bytes");
    json_t *tight =
        command_json("plan %s --search --budget 20 --json --memory %.0f", file, bytes * 0.7);
    CHECK(command_figure(tight, "search.best.total_bytes") <= bytes * 0.7);
    CHECK(command_figure(tight, "search.best.effort") >=
          command_figure(wide, "search.best.effort"));
    json_decref(tight);
    json_decref(wide);
}

/* 16 bytes a parameter of llama3-8b are 128 GB: one chip of 80 GB does not hold it, and what is
 * found holds it while its half does not. */
TEST_WITHIN(plan_search_smallest_fleet_is_minimal, 200) {
    json_t *j =
        command_json("plan llama3-8b --hardware h100 --search --objective fleet --budget 30 "
                     "--json --set precision.gradients=compute --set offload.optimizer=device");
    const json_t *fleet = json_object_get(j, "fleet");
    int64_t chips = json_integer_value(json_object_get(fleet, "chips"));
    CHECK(chips >= 2 && chips <= 8);
    bool half = false;
    size_t i;
    const json_t *x;
    json_array_foreach(json_object_get(fleet, "tried"), i, x) {
        int64_t n = json_integer_value(json_object_get(x, "chips"));
        CHECK_EQ(json_is_true(json_object_get(x, "holds")), n >= chips);
        half = half || (n == chips / 2 && json_string_length(json_object_get(x, "why")) > 0);
    }
    CHECK(half);
    CHECK_EQ(json_integer_value(json_object_get(j, "world")), chips);
    json_decref(j);
}

TEST(plan_search_refuses_what_it_cannot) {
    gw_str out = {0};
    CHECK_EQ(command_run(&out, "plan gpt2-124m --objective time 2>&1"), 2);
    CHECK(strstr(gw_str_c(&out), "--objective is of --search"));
    CHECK_EQ(command_run(&out, "plan gpt2-124m --search --objective cost 2>&1"), 2);
    CHECK(strstr(gw_str_c(&out), "price"));
    CHECK_EQ(command_run(&out, "plan gpt2-124m --search --hardware h100 --timeline 2>&1"), 2);
    CHECK_EQ(command_run(&out, "plan gpt2-124m --search --budget -1 2>&1"), 2);
    CHECK_EQ(command_run(&out, "plan gpt2-124m --search --hardware h100 --set recompute.policy=ops "
                               "--set 'recompute.ops=[rmsnorm]' 2>&1"),
             2);
    gw_str_release(&out);
}
