// SPDX-License-Identifier: Apache-2.0
// Every layout computes what one rank computes: stages x ranks x replicas x accumulation x
// precision x family, with sizes that divide by nothing.
//
// The bound in float32 with lossless wires is 1e-5 (DESIGN, "Layouts agree"), that of bf16 is
// measured by verify itself.
#include <math.h>
#include <stdio.h>

#include "base/compiler.h" /* GW_COUNT */
#include "harness.h"
#include "verify_rig.h"

static const char *const families[] = {"gpt2", "llama", "qwen2", "qwen3", "mistral", "resnet18"};

typedef struct cell {
    int zero, dp, replicate, accumulate, bf16;
    size_t family;
} cell;

/* Cell number i of the matrix; false for numbers that are no cell (replicas that do not divide). */
static bool cell_of(int i, cell *c) {
    c->family = (size_t)i % GW_COUNT(families);
    i /= (int)GW_COUNT(families);
    c->bf16 = i % 2;
    i /= 2;
    c->accumulate = 1 + i % 3;
    i /= 3;
    c->replicate = 1 + i % 4;
    i /= 4;
    c->dp = 1 + i % 4;
    i /= 4;
    c->zero = i;
    return c->dp % c->replicate == 0 && (c->zero > 0 || c->replicate == 1);
}
enum { CELLS = 6 * 2 * 3 * 4 * 4 * 4 };

static void run_cell(const cell *c) {
    rig r = rig_make(families[c->family], c->dp);
    rig_set(&r, "layout.zero=%d", c->zero);
    if (c->zero > 0) rig_set(&r, "layout.dp_replicate=%d", c->replicate);
    rig_set(&r, "train.accumulate=%d", c->accumulate);
    if (c->bf16) rig_set(&r, "precision.compute=bf16");
    rig_passes(&r);
    for (int64_t i = 0; i < r.out.pass[0].ntensors; i++) {
        const gw_verify_tensor *t = &r.out.pass[0].tensors[i];
        double bound = 1e-5;
        /* A weight is rounded, which may be much of a small change; nets for images have the
         * corners of relu: what verify finds that these may do. */
        if (t->kind == GW_VERIFY_PARAMETER || c->family + 1 == GW_COUNT(families))
            bound = GW_MAX(bound, t->bound);
        CHECK_MSG(t->difference <= bound, "%s: %g", t->name, t->difference);
    }
    CHECK_EQ(r.out.npasses, 1 + c->bf16);
    rig_release(&r);
}

static int run_cells(int first, int step) {
    int n = 0;
    for (int i = first; i < CELLS; i += step) {
        cell c;
        if (!cell_of(i, &c)) continue;
        run_cell(&c);
        n++;
    }
    return n;
}

/* Strides that are prime to every axis pass through all values of each. */
TEST_WITHIN(a_sample_of_the_matrix_agrees, 120) { CHECK(run_cells(1, 37) >= 12); }

TEST_LONG(the_matrix_agrees) {
    int n = run_cells(0, 1);
    /* stage 0: 4 dp; stages 1 to 3: sum over dp of its divisors, 1 + 2 + 2 + 3 */
    CHECK_EQ(n, (4 + 3 * 8) * 3 * 2 * 6);
}

/* A net whose norms see one another's samples: synchronised it is one rank's function, whatever is
 * sharded; local it is that of one rank with as many groups, and what differs from a single batch
 * is named as expected. */
TEST_WITHIN(nets_for_images_agree, 120) {
    for (int zero = 0; zero <= 3; zero++) {
        cell c = {.zero = zero, .dp = 2 + zero % 2, .replicate = 1, .accumulate = 1 + zero % 2};
        c.family = GW_COUNT(families) - 1;
        run_cell(&c);
    }
    rig r = rig_make("resnet18", 2);
    rig_set(&r, "model.batchnorm=local");
    rig_passes(&r);
    CHECK_EQ(r.out.nexpected, 20); /* its norms */
    CHECK(fabs(r.out.batch_loss[0] - r.out.batch_loss[1]) > 1e-3 * r.out.batch_loss[1]);
    rig_release(&r);
}

/* What else changes how a step is laid out. */
TEST(other_choices_of_layout_agree) {
    static const char *const choices[][3] = {
        {"layout.zero=3", "layout.reshard_after_forward=false", NULL},
        {"layout.zero=3", "layout.prefetch=2", NULL},
        {"layout.zero=2", "layout.reduce=last", "train.accumulate=2"},
        {"layout.zero=1", "layout.reduce=each", "train.accumulate=2"},
        {"layout.zero=0", "layout.reduce=each", "train.accumulate=2"},
        {"layout.zero=0", "layout.first_bucket=0", "layout.bucket=0"},
        {"layout.zero=2", "recompute.policy=full", NULL},
        {"layout.zero=3", "recompute.policy=selective", NULL},
    };
    for (size_t i = 0; i < GW_COUNT(choices); i++) {
        rig r = rig_make(families[i % (GW_COUNT(families) - 1)], 2);
        for (int k = 0; k < 3 && choices[i][k]; k++) rig_set(&r, "%s", choices[i][k]);
        rig_passes(&r);
        rig_release(&r);
    }
}

/* With the run's own optimizer the moments and the updates agree too. */
TEST(adamw_and_muon_agree) {
    for (int zero = 0; zero <= 3; zero += 3) {
        rig r = rig_make("llama", 2);
        rig_set(&r, "layout.zero=%d", zero);
        rig_set(&r, "train.accumulate=2");
        if (zero == 0) rig_set(&r, "optimizer.name=muon");
        r.opts.run_optimizer = true;
        rig_passes(&r);
        rig_release(&r);
    }
}

/* Stored in bf16, summed in bf16, moments in bf16: within what that does to one rank. */
TEST(pure_bf16_agrees) {
    for (int zero = 0; zero <= 3; zero++) {
        rig r = rig_make("qwen3", 2);
        rig_set(&r, "layout.zero=%d", zero);
        rig_set(&r, "precision.compute=bf16");
        rig_set(&r, "precision.gradients=compute");
        rig_set(&r, "precision.moments=compute");
        rig_set(&r, "precision.master=none");
        rig_passes(&r);
        rig_release(&r);
    }
}

/* Wires that lose something: within the bound of a hop, and more than without it. */
TEST(lossy_wires_stay_within_a_hop) {
    static const char *const wires[] = {"bf16", "int8", "int4"};
    double last = 0;
    for (size_t w = 0; w < GW_COUNT(wires); w++) {
        rig r = rig_make("llama", 2);
        rig_set(&r, "layout.zero=2");
        rig_set(&r, "layout.gradient_wire=%s", wires[w]);
        rig_passes(&r);
        CHECK_EQ(r.out.npasses, 2);
        CHECK_MSG(r.out.pass[1].max_difference > last, "%s: %g", wires[w],
                  r.out.pass[1].max_difference);
        last = r.out.pass[1].max_difference;
        rig_release(&r);
    }
}
