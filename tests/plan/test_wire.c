// SPDX-License-Identifier: Apache-2.0
// Several ranks in the plan: the ZeRO table of Rajbhandari et al. 2020 (figure 1) for the shape of
// Llama 3 70B, what each stage puts on the wire, and that the parts of the page agree.
#include <math.h>
#include <string.h>

#include "harness.h"
#include "planned.h"

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
