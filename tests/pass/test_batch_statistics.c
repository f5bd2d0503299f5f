// SPDX-License-Identifier: Apache-2.0
// Batch statistics under data parallelism: what a residual net's step becomes on several ranks.
//
// SyncBatchNorm needs, for each norm, the sum of a channel, the sum of its squared distances, and
// in backward the two sums of its gradient (PyTorch's SyncBatchNorm sends the same numbers): four
// all-reduces of one number a channel, and nothing else that data parallelism would not send
// anyway.
#include <string.h>

#include "../harness.h"
#include "programs.h"

enum { NORMS = 20, CHANNELS = 4800 }; /* of resnet18: 5 x 64 + 5 x (128 + 256 + 512) */

static void net_init(program *p, int ranks, int micro_batches) {
    gw_model m;
    CHECK(gw_model_preset("resnet18", &m));
    m.resnet.image = 32;
    m.resnet.classes = 10;
    program_init(p, &m, 4, 1);
    p->build.training = true;
    p->opts.micro_batches = micro_batches;
    memset(&p->mesh, 0, sizeof p->mesh);
    gw_mesh_add(&p->mesh, "dp_replicate", 1);
    gw_mesh_add(&p->mesh, "dp", ranks);
}

/* All-reduces of phase `phase` at micro-batch rate, their elements, and whether all are sums. */
static int statistics(const gw_graph *g, gw_phase phase, int64_t *elems) {
    int n = 0;
    *elems = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, 0));
        bool stat = t->ndim == 2 && strcmp(t->dims[0].name, "group") == 0;
        if (!is_op(g, o, "all_reduce") || o->phase != phase || !stat) continue;
        CHECK_EQ(o->rate, GW_RATE_MB);
        CHECK_EQ(t->psum, 0);
        *elems += gw_type_elems(t);
        n++;
    }
    return n;
}

TEST(synchronised_norms_reduce_four_numbers_a_channel) {
    for (int zero = 0; zero <= 3; zero++)
        for (int k = 1; k <= 2; k++) {
            program p;
            gw_graph g;
            int64_t elems = 0;
            net_init(&p, 4, k);
            p.opts.layout.zero = zero;
            program_make(&p, "shard", &g, NULL);
            CHECK_EQ(statistics(&g, GW_PHASE_F, &elems), 2 * NORMS);
            CHECK_EQ(elems, 2 * CHANNELS);
            CHECK_EQ(statistics(&g, GW_PHASE_B, &elems), 2 * NORMS);
            CHECK_EQ(elems, 2 * CHANNELS);
            gw_graph_release(&g);
            program_release(&p);
        }
}

/* Gradients of gains and biases are partial like all others: were they made from the reduced sums,
 * reducing them again would multiply them by the ranks. */
TEST(gradients_of_gains_stay_partial_until_all_are_reduced) {
    program p;
    gw_graph g;
    net_init(&p, 2, 1);
    program_make(&p, "shard", &g, NULL);
    int n = 0;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (!is_op(&g, o, "sum_groups")) continue;
        CHECK(gw_type_of(&g, gw_op_out(&g, o, 0))->psum != 0);
        n++;
    }
    CHECK_EQ(n, 2 * NORMS);
    gw_graph_release(&g);
    program_release(&p);
}

TEST(the_whole_pipeline_places_a_net_on_ranks) {
    for (int zero = 0; zero <= 3; zero += 3) {
        program p;
        gw_graph g;
        net_init(&p, 2, 2);
        p.opts.layout.zero = zero;
        p.opts.layout.bucket_bytes = 1 << 20;
        program_make(&p, NULL, &g, NULL);
        CHECK(g.arena_bytes[GW_MEM_DEVICE] > 0);
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* State that the loop advances works on a copy, and is committed with the step. */
TEST(running_statistics_are_carried_and_committed) {
    program p;
    gw_graph g;
    net_init(&p, 1, 2);
    program_make(&p, "step", &g, NULL);
    CHECK_EQ(count_ops(&g, "carry", GW_PHASE_O), 3 * NORMS);
    CHECK_EQ(count_ops(&g, "commit", GW_PHASE_O), 3 * NORMS);
    for (int64_t i = 0; i < g.states.count; i++)
        CHECK(g.values.items[g.states.items[i].end].rate == GW_RATE_STEP);
    gw_graph_release(&g);
    program_release(&p);
}

/* What depends on the other samples of a batch says so: plan and verify go by it. */
TEST(batch_dependent_ops_are_marked) {
    program p;
    gw_graph g;
    net_init(&p, 1, 1);
    program_make(&p, "build", &g, NULL);
    int marked = 0;
    for (int64_t i = 0; i < g.ops.count; i++)
        marked += (gw_op_def(&g, &g.ops.items[i])->traits & GW_OP_BATCH_DEPENDENT) != 0;
    CHECK_EQ(marked, 5 * NORMS); /* mean, variance, norm, two running statistics */
    gw_graph_release(&g);
    program_release(&p);
}
