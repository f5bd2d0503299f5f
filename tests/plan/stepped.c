// SPDX-License-Identifier: Apache-2.0
// See stepped.h.
#include "stepped.h"

#include <string.h>

#include "harness.h"

const char *const stepped_small =
    "model: {family: llama, layers: 8, hidden: 128, heads: 4, kv_heads: 4, ffn: 256, vocab: 512}\n"
    "precision: {compute: bf16}\n";

static gw_status read(step *x, const char *text, int64_t ranks) {
    GW_TRY(gw_runfile_parse_for(&x->rf, "test.yaml", text, (int64_t)strlen(text), NULL, 0, ranks,
                                &x->dg));
    if (ranks > 1) GW_TRY(gw_runfile_set_ranks(&x->rf, ranks, &x->dg));
    return gw_setup_init(&x->setup, &x->rf, false, &x->dg);
}

static gw_status compile(step *x) {
    gw_setup *s = &x->setup;
    GW_TRY(gw_setup_ranks(s, NULL, &x->dg));
    int n = s->schedule ? s->schedule->ranks : 1;
    CHECK(n <= STEPPED_MOST);
    for (int r = 0; r < n; r++) {
        s->stage_rank = r;
        GW_TRY(gw_setup_program(s, true, NULL, &x->program[r], &x->report[r], &x->dg));
        x->programs[r] = &x->program[r];
        x->n = r + 1;
    }
    x->ranks = gw_runfile_ranks(&x->rf);
    return GW_OK;
}

bool step_try(step *x, const char *text, int64_t ranks) {
    memset(x, 0, sizeof *x);
    gw_diags_init(&x->dg);
    if (read(x, text, ranks) != GW_OK) {
        gw_runfile_release(&x->rf);
        gw_diags_release(&x->dg);
        return false;
    }
    if (compile(x) == GW_OK) return true;
    step_release(x);
    return false;
}

void step_init(step *x, const char *model, int64_t ranks, int accumulate, const char *more) {
    gw_str text = {0};
    gw_str_printf(&text, "%strain: {seq_len: 64, micro_batch: 4, accumulate: %d}\n%s\n", model,
                  accumulate, more);
    memset(x, 0, sizeof *x);
    gw_diags_init(&x->dg);
    CHECK_OK(read(x, gw_str_c(&text), ranks), &x->dg);
    CHECK_OK(compile(x), &x->dg);
    gw_str_release(&text);
}

void step_release(step *x) {
    for (int r = 0; r < x->n; r++) gw_graph_release(&x->program[r]);
    gw_setup_release(&x->setup);
    gw_runfile_release(&x->rf);
    gw_diags_release(&x->dg);
    gw_arena_release(&x->mem);
}

gw_sim_result simulate(step *x, const gw_machine_spec *m, const gw_sim_faults *f) {
    gw_sim_result r;
    gw_simulate(x->programs, x->n, m, f, &x->mem, &r, NULL);
    double sum = r.products_s + r.attention_s + r.memory_s + r.optimizer_s + r.overlap_s +
                 r.exposed_s + r.bubble_s + r.stall_s;
    CHECK(r.step_s > 0);
    CHECK_NEAR(sum / r.step_s, 1, 1e-12);
    return r;
}

/* ---- at random ---- */

int step_draw(uint64_t *state, int n) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((*state >> 33) % (uint64_t)n);
}

static const char *pick(uint64_t *s, const char *const *words, int n) {
    return words[step_draw(s, n)];
}

static void add_model(uint64_t *s, gw_str *t) {
    static const char *const precisions[] = {"fp32", "bf16", "bf16, gradients: compute"};
    bool experts = step_draw(s, 4) == 0;
    gw_str_printf(t,
                  "model: {family: %s, layers: %d, hidden: %d, heads: 4, kv_heads: %d, ffn: %d, "
                  "vocab: %d, tie_embeddings: %s%s}\n",
                  experts ? "mixtral" : "llama", 2 + step_draw(s, 5), 32 * (1 + step_draw(s, 3)),
                  1 << step_draw(s, 3), 64 + 32 * step_draw(s, 3), 120 + step_draw(s, 20),
                  step_draw(s, 2) ? "true" : "false",
                  experts ? ", moe: {experts: 4, top: 2, ffn: 32}" : "");
    gw_str_printf(t, "precision: {compute: %s}\n", pick(s, precisions, experts ? 2 : 3));
}

void step_random(uint64_t seed, gw_str *t, int64_t *ranks) {
    static const char *const policies[] = {"none", "selective", "full"};
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved, virtual_stages: 2",
                                            "zb-h1", "zbv"};
    static const char *const reduces[] = {"each", "last"};
    uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 4; i++) (void)step_draw(&s, 2);
    add_model(&s, t);
    gw_str_printf(t, "train: {seq_len: %d, micro_batch: %d, accumulate: %d, threads: 1}\n",
                  8 * (2 + step_draw(&s, 4)), 1 << step_draw(&s, 2), 1 << step_draw(&s, 3));
    int tp = 1 << step_draw(&s, 2), cp = 1 << (step_draw(&s, 4) == 0), pp = 1 << step_draw(&s, 3);
    int dp = tp * cp * pp <= 4 ? 1 << step_draw(&s, 2) : 1, zero = dp > 1 ? step_draw(&s, 4) : 0;
    *ranks = tp * cp * pp * dp;
    gw_str_printf(t, "layout: {dp: %d, tp: %d, cp: %d, pp: %d", dp, tp, cp, pp);
    if (zero) gw_str_printf(t, ", zero: %d", zero);
    if (zero == 3) gw_str_printf(t, ", prefetch: %d", step_draw(&s, 2));
    if (dp > 1) gw_str_printf(t, ", reduce: %s", pick(&s, reduces, 2));
    if (pp > 1) gw_str_printf(t, ", schedule: %s", pick(&s, schedules, (int)GW_COUNT(schedules)));
    gw_str_printf(t, "}\nrecompute: {policy: %s}\n", pick(&s, policies, (int)GW_COUNT(policies)));
}
