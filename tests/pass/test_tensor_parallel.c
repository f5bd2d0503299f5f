// SPDX-License-Identifier: Apache-2.0
// Tensor and sequence parallelism as placements. The counts of collectives a block are Megatron's:
// two all-reduces in forward and two in backward (Shoeybi et al. 2019, section 3), and with
// sequence parallelism reduce-scatters and all-gathers in their place (Korthikanti et al. 2022,
// section 4.2.2), the sequence gathered again in backward.
#include <string.h>

#include "../harness.h"
#include "programs.h"

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

static void lay_out(program *p, int dp, int cp, int tp, bool sp) {
    gw_mesh *m = &p->mesh;
    memset(m, 0, sizeof *m);
    gw_mesh_add(m, "dp", dp);
    gw_mesh_add(m, "cp", cp);
    gw_mesh_add(m, "tp", tp);
    p->build.batch *= dp;
    p->opts.layout.sequence_parallel = sp;
    cut_params(p);
}

/* Conversions called `name` of activations inside a layer's scope. */
static int in_layer(const gw_graph *g, const char *layer, const char *name, bool forward) {
    int n = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!is_op(g, o, name) || o->rate != GW_RATE_MB) continue;
        if (strncmp(gw_graph_str(g, o->scope), layer, strlen(layer)) != 0) continue;
        if (gw_type_find(gw_type_of(g, gw_op_out(g, o, 0)), "s") < 0) continue;
        n += (o->phase == GW_PHASE_F) == forward;
    }
    return n;
}

TEST(four_all_reduces_a_block) {
    static const gw_family families[] = {GW_FAMILY_GPT2, GW_FAMILY_LLAMA, GW_FAMILY_QWEN2,
                                         GW_FAMILY_QWEN3, GW_FAMILY_MISTRAL};
    for (size_t f = 0; f < GW_COUNT(families); f++) {
        gw_model m = tiny_model(families[f], 2);
        program p;
        program_init(&p, &m, 2, 12);
        lay_out(&p, 1, 1, 2, false);
        gw_graph g;
        program_make(&p, "shard", &g, NULL);
        CHECK_EQ(in_layer(&g, "layer 1", "all_reduce", true), 2);
        CHECK_EQ(in_layer(&g, "layer 1", "all_reduce", false), 2);
        CHECK_EQ(in_layer(&g, "layer 1", "all_gather", true), 0);
        CHECK_EQ(in_layer(&g, "layer 1", "reduce_scatter", true), 0);
        gw_graph_release(&g);
        program_release(&p);
    }
}

TEST(sequence_parallelism_splits_them) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    program p;
    program_init(&p, &m, 2, 12);
    lay_out(&p, 1, 1, 2, true);
    gw_graph g;
    program_make(&p, "shard", &g, NULL);
    CHECK_EQ(in_layer(&g, "layer 1", "all_reduce", true), 0);
    CHECK_EQ(in_layer(&g, "layer 1", "all_gather", true), 2);
    CHECK_EQ(in_layer(&g, "layer 1", "reduce_scatter", true), 2);
    CHECK_EQ(in_layer(&g, "layer 1", "all_reduce", false), 0);
    CHECK_EQ(in_layer(&g, "layer 1", "all_gather", false), 4); /* dz twice, y twice again */
    CHECK_EQ(in_layer(&g, "layer 1", "reduce_scatter", false), 2);
    gw_graph_release(&g);
    program_release(&p);
}

/* What a run file cuts by name: a gain along d under ZeRO, whose gradient its op makes whole. The
 * parts of gradient, moments and weight are parts of the same cut. */
TEST(homes_are_flat_parts_of_what_is_cut) {
    for (int zero = 0; zero <= 3; zero++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
        program p;
        program_init(&p, &m, 2, 12);
        lay_out(&p, 2, 1, 2, true);
        p.opts.layout.zero = zero;
        gw_param_info *infos = gw_arena_new(&p.mem, gw_param_info, p.nparams);
        for (int i = 0; i < p.nparams; i++) {
            infos[i] = p.opts.params[i];
            if (strstr(infos[i].name, "norm") || strcmp(infos[i].name, "head.weight") == 0)
                snprintf(infos[i].cut, sizeof infos[i].cut, "d");
        }
        p.opts.params = infos;
        gw_graph g;
        program_make(&p, NULL, &g, NULL);
        int judged = 0;
        for (int64_t i = 0; i < g.ops.count; i++) {
            const gw_op *o = &g.ops.items[i];
            if (!is_op(&g, o, "adamw")) continue;
            const gw_type *w = gw_type_of(&g, gw_op_in(&g, o, 0));
            for (int k = 1; k < 4; k++) {
                const gw_type *t = gw_type_of(&g, gw_op_in(&g, o, k));
                CHECK_EQ(t->flat_axes, w->flat_axes);
                for (int d = 0; d < w->ndim; d++) CHECK(gw_dim_same_cut(&t->dims[d], &w->dims[d]));
            }
            judged++;
        }
        CHECK_EQ(judged, p.nparams);
        gw_graph_release(&g);
        program_release(&p);
    }
}
