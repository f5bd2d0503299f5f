// SPDX-License-Identifier: Apache-2.0
// Several ranks in the plan: the ZeRO table of Rajbhandari et al. 2020 (figure 1) for the shape of
// Llama 3 70B, what each stage puts on the wire, and that the parts of the page agree.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "planned.h"
#include "run/exec_comm.h"    /* gw_exec_workspace */
#include "run/exec_experts.h" /* gw_op_is_experts_ep */

/* bf16 weights and gradients, float32 master and moments: 2 + 2 + 12 bytes a parameter. */
#define LLAMA70B                                                                                   \
    "model: {preset: llama3-70b}\n"                                                                \
    "train: {seq_len: 128}\n"                                                                      \
    "precision: {compute: bf16, gradients: compute}\n"

static const double PARAMS = 70553706496.0;

/* A flat part of each of 723 tensors may have one element more than its n-th. */
static void near_gb(double bytes, double gb) { CHECK_NEAR(bytes / 1e9, gb, 0.005 + 1e-4); }

static void zero_row(int ranks, const double gb[3]) {
    for (int zero = 1; zero <= 3; zero++) {
        planned p;
        PLAN(&p, LLAMA70B "layout: {dp: %d, zero: %d}\n", ranks, zero);
        const gw_ledger *l = &p.ledger;
        test_note("zero %d on %d: %s, %lld bytes", zero, ranks, l->kinds[0].text,
                  (long long)l->static_bytes);
        CHECK_EQ(l->ranks, ranks);
        near_gb((double)l->static_bytes, gb[zero - 1]);
        double n = ranks, parts[3] = {4 + 12 / n, 2 + 14 / n, 16 / n};
        CHECK_NEAR((double)l->static_bytes, parts[zero - 1] * PARAMS, 16 * 1000);
        planned_release(&p);
    }
}

/* (4 + 12/n) N, (2 + 14/n) N, 16 N/n in GB. */
TEST_WITHIN(bytes_a_rank_are_the_zero_table, 240) {
    zero_row(8, (const double[]){388.05, 264.58, 141.11});
    zero_row(64, (const double[]){295.44, 156.54, 17.64});
}

/* Without a master copy the same arithmetic: 4 + 4 + 4 + 4 in float32. */
TEST(bytes_a_rank_in_float32) {
    static const double whole[] = {16, 8, 4, 0}, shared[] = {0, 8, 12, 16};
    for (int zero = 0; zero <= 3; zero++) {
        planned p;
        PLAN(&p,
             "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
             "layout: {dp: 4, zero: %d}\ntrain: {micro_batch: 1, seq_len: 32, accumulate: 2}\n",
             zero);
        double per = whole[zero] + shared[zero] / 4;
        CHECK_NEAR((double)p.ledger.static_bytes, per * (double)p.ledger.params, 16.0 * 40);
        planned_release(&p);
    }
}

static double payload(const gw_ledger *l, const char *collective) {
    double sum = 0;
    for (int i = 0; i < l->nwire; i++)
        if (strcmp(l->wire[i].collective, collective) == 0) sum += (double)l->wire[i].payload_bytes;
    return sum;
}

/* 2 (n-1)/n times the bytes of all gradients for stages 0 to 2, 3 (n-1)/n for stage 3, where the
 * theory gathers every parameter twice. Two tensors need it once here: backward does not read the
 * embedding, and the head's only op is forward and backward in one. */
static void wire_row(int ranks, double two, double three) {
    double once = 2 * 128256.0 * 8192 * 2 * (ranks - 1) / ranks; /* bytes of both */
    for (int zero = 0; zero <= 3; zero++) {
        planned p;
        PLAN(&p, LLAMA70B "layout: {dp: %d, zero: %d}\n", ranks, zero);
        test_note("zero %d on %d: %lld bytes", zero, ranks, (long long)p.ledger.wire_bytes);
        near_gb((double)p.ledger.wire_bytes + (zero == 3 ? once : 0), zero == 3 ? three : two);
        CHECK(p.ledger.wire_moved_bytes >= p.ledger.wire_bytes);
        double one = 2 * PARAMS * (ranks - 1) / ranks;
        if (zero > 0) {
            CHECK_NEAR(payload(&p.ledger, "reduce-scatter"), one, 1e6);
            CHECK_NEAR(payload(&p.ledger, "all-gather"), zero == 3 ? 2 * one - once : one, 2e6);
        } else {
            CHECK_NEAR(payload(&p.ledger, "all-reduce"), 2 * one, 1e6);
        }
        planned_release(&p);
    }
}

TEST_WITHIN(the_wire_carries_what_the_stage_says, 240) {
    wire_row(8, 246.94, 370.41);
    wire_row(64, 277.81, 416.71);
}

/* K micro-batches: stage 3 gathers K times; reduced in each, gradients K times. */
TEST(what_runs_in_each_micro_batch_counts_as_often) {
    static const char run[] = "model: {family: llama, layers: 3, hidden: 64, heads: 4}\n"
                              "train: {micro_batch: 1, seq_len: 32, accumulate: %d}\n"
                              "layout: {dp: 2, zero: 3, reduce: %s}\n";
    planned one, last, each;
    PLAN(&one, run, 1, "last");
    PLAN(&last, run, 4, "last");
    PLAN(&each, run, 4, "each");
    CHECK_NEAR(payload(&last.ledger, "all-gather"), 4 * payload(&one.ledger, "all-gather"), 0);
    CHECK_NEAR(payload(&last.ledger, "reduce-scatter"), payload(&one.ledger, "reduce-scatter"), 0);
    CHECK_NEAR(payload(&each.ledger, "reduce-scatter"), 4 * payload(&one.ledger, "reduce-scatter"),
               0);
    planned_release(&one);
    planned_release(&last);
    planned_release(&each);
}

/* Sizes are one rank's, tokens those of all; one rank sends nothing. */
TEST(sizes_are_one_ranks_and_tokens_are_all) {
    planned p, q;
    PLAN(&p, "model: {preset: gpt2}\ntrain: {micro_batch: 3, seq_len: 64}\nlayout: {dp: 6}\n");
    CHECK_EQ(p.ledger.micro_batch, 3);
    CHECK_EQ(p.ledger.tokens_per_step, 3 * 64 * 6);
    PLAN(&q, "model: {preset: gpt2}\ntrain: {micro_batch: 3, seq_len: 64}\n");
    CHECK_EQ(q.ledger.nwire, 0);
    CHECK_EQ(q.ledger.wire_bytes, 0);
    CHECK_NEAR(p.ledger.flops.model, q.ledger.flops.model, 1);
    planned r; /* ranks that share samples add none: each does its part of the work */
    PLAN(&r, "model: {preset: gpt2}\ntrain: {micro_batch: 3, seq_len: 64}\n"
             "layout: {dp: 2, tp: 2, cp: 2}\n");
    CHECK_EQ(r.ledger.ranks, 8);
    CHECK_EQ(r.ledger.dp, 2);
    CHECK_EQ(r.ledger.micro_batch, 3);
    CHECK_EQ(r.ledger.tokens_per_step, 3 * 64 * 2);
    CHECK_NEAR(4 * r.ledger.flops.model, q.ledger.flops.model, 1);
    planned_release(&r);
    planned_release(&p);
    planned_release(&q);
}

/* Every row names an algorithm that stands among its candidates as a possible one. */
TEST(algorithms_are_chosen_among_candidates) {
    planned p;
    PLAN(&p, "model: {preset: gpt2}\ntrain: {seq_len: 64}\n"
             "layout: {dp: 4, zero: 3, dp_replicate: 2}\n");
    CHECK(p.ledger.nwire > 0);
    for (int i = 0; i < p.ledger.nwire; i++) {
        const gw_ledger_wire *w = &p.ledger.wire[i];
        bool found = false;
        for (int k = 0; k < w->ncandidates; k++)
            found |= w->candidates[k].possible && strcmp(w->candidates[k].name, w->algorithm) == 0;
        CHECK_MSG(found, "%s by %s", w->collective, w->algorithm);
        CHECK(w->seconds > 0 && (w->ranks == 2 || w->ranks == 4));
    }
    planned_release(&p);
}

/* Rows of experts at even load: R (n-1)/n (5 d w + 40) + 16 experts (n-1) for each layer, of R
 * choices, with 4 layers, d 128, w 4 and 8 experts on 2 ranks. They are in the totals, and what the
 * plan reserves for them is what a run does. */
TEST(rows_of_experts_are_on_the_wire_at_even_load) {
    planned p;
    PLAN(&p, "model: {family: mixtral, layers: 4, hidden: 128, heads: 4, kv_heads: 2, ffn: 384,\n"
             "        vocab: 512, moe: {experts: 8, top: 2}}\n"
             "train: {seq_len: 128, global_batch: 8, accumulate: 1}\nprecision: {compute: fp32}\n"
             "layout: {dp: 2, ep: 2}\n");
    const gw_ledger_wire *rows = NULL;
    int64_t payload_bytes = 0;
    double seconds = 0;
    for (int i = 0; i < p.ledger.nwire; i++) {
        payload_bytes += p.ledger.wire[i].payload_bytes;
        seconds += p.ledger.wire[i].seconds;
        if (p.ledger.wire[i].at_even_load) rows = &p.ledger.wire[i];
    }
    CHECK(rows != NULL);
    CHECK_EQ(rows->payload_bytes, 4 * (512 * (5 * 128 * 4 + 40) + 16 * 8));
    CHECK_EQ(rows->count, 4 * 2 * 3); /* counts, there, back; forward and backward */
    CHECK_EQ(rows->ranks, 2);
    CHECK(rows->seconds > 0);
    CHECK_EQ(p.ledger.wire_bytes, payload_bytes);
    CHECK_NEAR(p.ledger.wire_seconds, seconds, 1e-12);
    gw_exec_facts facts = {.machine = p.setup.machine, .comm = p.setup.facts.comm};
    int exchanges = 0;
    for (gw_oid i = 0; i < (gw_oid)p.step.ops.count; i++) {
        const gw_op *o = &p.step.ops.items[i];
        if (!gw_op_is_experts_ep(&p.step, o)) continue;
        CHECK_EQ(gw_memo_workspace(&p.step, o, &p.memo), gw_exec_workspace(&p.step, o, &facts));
        exchanges++;
    }
    CHECK_EQ(exchanges, 8);
    const double *experts = p.ledger.flops.experts_by_phase;
    CHECK_NEAR(experts[GW_PHASE_F], 4 * 1024 * 3 * 2.0 * 128 * 384, 4e7); /* and the gates */
    CHECK(experts[GW_PHASE_BW] > 2.5 * experts[GW_PHASE_F]);
    planned_release(&p);
}

/* Of cp = 4 as a ring of 2 and Ulysses over 2, and both: groups of one name, each its own row. */
TEST(groups_of_one_name_and_other_sizes_have_rows_of_their_own) {
    planned p;
    PLAN(&p, "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
             "train: {micro_batch: 1, seq_len: 64}\n"
             "layout: {cp: 8, cp_mode: hybrid, cp_ulysses: 2}\n");
    bool seen[9] = {false};
    for (int i = 0; i < p.ledger.nwire; i++) {
        const gw_ledger_wire *w = &p.ledger.wire[i];
        CHECK(w->ranks == 2 || w->ranks == 4 || w->ranks == 8);
        CHECK_STR(w->axis, "cp");
        if (strcmp(w->collective, "all-to-all") == 0) CHECK_EQ(w->ranks, 2);
        if (strcmp(w->collective, "shift") == 0) CHECK_EQ(w->ranks, 4);
        seen[w->ranks] = true;
    }
    CHECK(seen[2] && seen[4] && seen[8]);
    planned_release(&p);
}

/* A ring's attention has outputs that no op makes again; the page says it. */
TEST(a_ring_says_that_selective_has_no_effect) {
    static const char run[] = "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
                              "train: {micro_batch: 1, seq_len: 64}\n"
                              "recompute: {policy: selective}\nlayout: {cp: 2, cp_mode: %s}\n";
    for (int k = 0; k < 2; k++) {
        planned p;
        PLAN(&p, run, k ? "ulysses" : "ring");
        CHECK_EQ(p.ledger.recomputed_ops > 0, k == 1);
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        CHECK(out != NULL);
        gw_plan_print(&p.ledger, "run", false, false, out);
        fclose(out);
        CHECK_EQ(strstr(text, "selective has no effect") != NULL, k == 0);
        free(text);
        planned_release(&p);
    }
}

/* A directory of a family that has no bias of the choice gets one when asked to, and its rate. */
TEST(a_directory_with_balance_by_bias_has_the_usual_rate) {
    static const char run[] = "model: {path: %s, moe: {balance: bias%s}}\n"
                              "train: {micro_batch: 1, seq_len: 16}\n";
    for (int k = 0; k < 2; k++) {
        planned p;
        const char *name = k ? "golden/models/qwen3_moe" : "golden/models/mixtral";
        PLAN(&p, run, test_source_path(name), k ? ", bias_rate: 0.5" : "");
        CHECK(p.setup.model.moe.choice_bias);
        CHECK_NEAR(p.setup.model.moe.bias_rate, k ? 0.5 : 0.001, 0);
        planned_release(&p);
    }
}
