// SPDX-License-Identifier: Apache-2.0
// The vocabulary cut over ranks: embedding, head and cross-entropy are those of one rank.
//
// Tolerances. In float64 by references: rounding of the sums, 1e-12. By kernels in float32, sums
// are regrouped: 2e-5 of an element and the rms. In bf16 each rank rounds its own part of dx, 2^-9
// of its size, and the sum of n parts again: 2^-6.
#include <math.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_uniform */
#include "harness.h"
#include "world.h"

enum { B = 2, S = 12, D = 24, MAX_V = 517 };

typedef struct layout {
    int dp, cp, tp;
    bool sequence_parallel;
} layout;

static const layout one = {1, 1, 1, false};
static const layout layouts[] = {{1, 1, 2, false}, {1, 1, 4, false}, {1, 1, 4, true},
                                 {2, 1, 3, true},  {1, 2, 2, true},  {2, 1, 2, false}};

/* Numbers of the whole tensors, and what a layout made of them. */
typedef struct result {
    double loss, dx[B * S * D], dw[MAX_V * D];
} result;

/* dims as rows are cut: b on dp, s on cp (zigzag) and, in sequence parallelism, tp. */
static gw_type rows_type(const world *w, gw_dtype t, const char *dims, bool over_tp) {
    gw_type r = world_type(w, t, dims, "b", "dp");
    gw_dim *s = &r.dims[1];
    gw_dim_cut(s, world_axes(w, "cp"), &w->g.mesh);
    s->outer = s->naxes;
    if (s->outer) s->shard = 1; /* zigzag */
    if (over_tp) gw_dim_cut(s, world_axes(w, "tp"), &w->g.mesh);
    return r;
}

static void fill(double *x, double *wt, double *labels, int v) {
    world_normal(x, B * S * D, "x", 1);
    world_normal(wt, v * D, "w", 0.5);
    for (int i = 0; i < B * S; i++) {
        double u = (double)gw_rng_uniform(gw_rng_key_named(3, "labels"), (uint64_t)i);
        labels[i] = i % 5 == 2 ? -100 : floor(u * v);
    }
}

/* Loss and gradients of the head, accumulated onto 3.5 and onto dw0 if `adds`. */
static void run_head(const layout *l, gw_dtype t, bool reference, int v, bool adds, result *r) {
    static double x[B * S * D], wt[MAX_V * D], labels[B * S], dw0[MAX_V * D];
    world w;
    world_init(&w, l->dp, l->cp, l->tp, reference);
    fill(x, wt, labels, v);
    world_normal(dw0, v * D, "dw0", 1);
    char wd[32], xd[32];
    snprintf(wd, sizeof wd, "v%d d%d", v, D);
    snprintf(xd, sizeof xd, "b%d s%d d%d", B, S, D);
    gw_dtype stat = t == GW_F64 ? GW_F64 : GW_F32;
    gw_vid in[6] = {world_leaf(&w, rows_type(&w, t, xd, l->sequence_parallel), x),
                    world_leaf(&w, world_type(&w, t, wd, "v", "tp"), wt),
                    world_leaf(&w, rows_type(&w, GW_I32, "b2 s12", false), labels),
                    world_leaf(&w, gw_type_scalar(stat), (double[]){0.25}),
                    GW_NONE,
                    GW_NONE},
           out[3], alone[1];
    if (adds) {
        gw_type acc = world_type(&w, stat, wd, "v", "tp"), scalar = gw_type_scalar(stat);
        acc.psum = scalar.psum = world_axes(&w, "dp") | world_axes(&w, "cp");
        in[4] = world_leaf(&w, acc, dw0);
        in[5] = world_leaf(&w, scalar, (double[]){3.5});
    }
    world_op(&w, "head_grad", in, 6, (gw_attr[]){{.i = stat}}, NULL, out);
    world_op(&w, "head", in, 4, NULL, NULL, alone);
    world_run(&w);
    double loss;
    world_get(&w, out[0], r->dx);
    world_get(&w, out[1], r->dw);
    world_get(&w, out[2], &r->loss);
    world_get(&w, alone[0], &loss);
    CHECK_NEAR(loss, r->loss - (adds ? 3.5 : 0), 1e-5 * fabs(loss));
    CHECK_EQ(world_count(&w, "head_stats"), l->tp > 1 ? 2 : 0);
    world_release(&w);
}

static void compare(gw_dtype t, bool reference, double tol) {
    static const int vocabularies[] = {7, 13, 517};
    static result want, got;
    for (size_t i = 0; i < GW_COUNT(vocabularies); i++)
        for (size_t j = 0; j < GW_COUNT(layouts) * 2; j++) {
            int v = vocabularies[i];
            bool adds = j >= GW_COUNT(layouts);
            if (reference && v > 100) continue;
            run_head(&one, t, reference, v, adds, &want);
            run_head(&layouts[j % GW_COUNT(layouts)], t, reference, v, adds, &got);
            CHECK_NEAR(got.loss, want.loss, 1e-6 * want.loss);
            world_near(got.dx, want.dx, B * S * D, tol, "dx");
            world_near(got.dw, want.dw, v * D, tol, "dw");
        }
}

TEST(head_of_a_cut_vocabulary_is_the_head_in_float64) { compare(GW_F64, true, 1e-12); }
TEST(head_of_a_cut_vocabulary_is_the_head_in_float32) { compare(GW_F32, false, 2e-5); }
TEST(head_of_a_cut_vocabulary_is_the_head_in_bf16) { compare(GW_BF16, false, 0x1p-6); }

/* NVIDIA Megatron-LM issue 7452: logits 0, 1, 2, 3 over two ranks, label 3. A loss that each rank
 * takes of its own logits is 1.1333; the true one is log(1 + e^-1 + e^-2 + e^-3) = 0.4402. */
TEST(loss_of_a_cut_vocabulary_is_not_of_one_rank_alone) {
    world w;
    world_init(&w, 1, 1, 2, false);
    gw_vid in[4] = {world_leaf(&w, gw_type_make(GW_F32, "s1 d1"), (double[]){1}),
                    world_leaf(&w, world_type(&w, GW_F32, "v4 d1", "v", "tp"),
                               (double[]){0, 1, 2, 3}),
                    world_leaf(&w, gw_type_make(GW_I32, "s1"), (double[]){3}),
                    world_leaf(&w, gw_type_scalar(GW_F32), (double[]){1})},
           out[3];
    world_op(&w, "head_grad", in, 4, NULL, NULL, out);
    world_run(&w);
    double loss, dx, dw[4], all = 1 + exp(-1) + exp(-2) + exp(-3);
    world_get(&w, out[2], &loss);
    world_get(&w, out[0], &dx);
    world_get(&w, out[1], dw);
    CHECK_NEAR(loss, 0.4402, 5e-5);
    CHECK_NEAR(dx, (3 + 2 * exp(-1) + exp(-2)) / all - 3, 1e-6);
    for (int i = 0; i < 4; i++) CHECK_NEAR(dw[i], exp(i - 3) / all - (i == 3), 1e-6);
    world_release(&w);
}

/* Logits of 1e4 on one rank and -1e4 on another overflow nothing. */
TEST(ranks_with_small_logits_add_nothing) {
    world w;
    world_init(&w, 1, 1, 4, false);
    gw_vid in[4] = {world_leaf(&w, gw_type_make(GW_F32, "s2 d1"), (double[]){1e4, -1e4}),
                    world_leaf(&w, world_type(&w, GW_F32, "v3 d1", "v", "tp"),
                               (double[]){-1, 0, 1}),
                    world_leaf(&w, gw_type_make(GW_I32, "s2"), (double[]){2, 1}),
                    world_leaf(&w, gw_type_scalar(GW_F32), (double[]){1})},
           out[3];
    world_op(&w, "head_grad", in, 4, NULL, NULL, out);
    world_run(&w);
    double loss, dx[2];
    world_get(&w, out[2], &loss);
    world_get(&w, out[0], dx);
    CHECK_NEAR(loss, 1e4, 1e-2);
    CHECK_NEAR(dx[0], 0, 1e-6);
    CHECK_NEAR(dx[1], -1, 1e-6);
    world_release(&w);
}

/* ---- embedding ---- */

/* Ids outside every rank's rows (-1 and v) give zeros and take no gradient. */
static void run_embed(const layout *l, gw_dtype t, bool reference, double *y, double *dw) {
    enum { V = 7 };
    static double table[V * D], ids[B * S], dy[B * S * D];
    world w;
    world_init(&w, l->dp, l->cp, l->tp, reference);
    world_normal(table, V * D, "w", 1);
    world_normal(dy, B * S * D, "dy", 1);
    for (int i = 0; i < B * S; i++) ids[i] = (i * 5) % (V + 2) - 1;
    gw_type home = world_type(&w, GW_F32, "v7 d24", "v", "tp");
    gw_vid in[2] = {world_leaf(&w, rows_type(&w, GW_I32, "b2 s12", l->sequence_parallel), ids),
                    world_leaf(&w, world_type(&w, t, "v7 d24", "v", "tp"), table)},
           out[1], din[2], dout[1];
    world_op(&w, "embed", in, 2, NULL, NULL, out);
    din[0] = in[0];
    din[1] = world_leaf(&w, rows_type(&w, t, "b2 s12 d24", l->sequence_parallel), dy);
    gw_attr a[3] = {{.i = V}, {.i = GW_F32}, {.s = gw_graph_intern(&w.g, "v")}};
    world_op(&w, "embed_grad", din, 2, a, (const gw_type *const[]){&home}, dout);
    CHECK(gw_dim_same_cut(&gw_type_of(&w.g, dout[0])->dims[0], &home.dims[0]));
    CHECK_EQ(gw_type_of(&w.g, out[0])->psum, world_axes(&w, "tp"));
    world_run(&w);
    world_get(&w, out[0], y);
    world_get(&w, dout[0], dw);
    world_release(&w);
}

TEST(embedding_of_a_cut_vocabulary_is_the_embedding) {
    static double y[B * S * D], want_y[B * S * D], dw[7 * D], want_dw[7 * D];
    for (int i = 0; i < 3; i++) {
        gw_dtype t = i == 0 ? GW_F64 : i == 1 ? GW_F32 : GW_BF16;
        run_embed(&one, t, i == 0, want_y, want_dw);
        for (size_t j = 0; j < GW_COUNT(layouts); j++) {
            run_embed(&layouts[j], t, i == 0, y, dw);
            CHECK(memcmp(y, want_y, sizeof y) == 0); /* one rank has each row */
            world_near(dw, want_dw, 7 * D, 1e-6, "dw");
        }
    }
}
