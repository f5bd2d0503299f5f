// SPDX-License-Identifier: Apache-2.0
// Ops on parts of tensors: what several ranks make is what one makes. Masks and random rounding are
// functions of places in the whole tensor, a bias is added once, gradients of gains are partial
// sums, matrices of Muon are stepped as wholes, and a rank may hold nothing at all.
#include <math.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_u32 */
#include "harness.h"
#include "kernel/cpu/vec_more.h" /* gw_vec_random_held */
#include "world.h"

static void cut(const world *w, gw_type *t, const char *dim, const char *group) {
    gw_dim_cut(&t->dims[gw_type_find(t, dim)], world_axes(w, group), &w->g.mesh);
}

/* s over cp in zigzag, then, if asked, over tp. */
static void cut_tokens(const world *w, gw_type *t, bool over_tp) {
    gw_dim *s = &t->dims[gw_type_find(t, "s")];
    cut(w, t, "s", "cp");
    s->outer = s->naxes;
    if (s->outer) s->shard = 1; /* zigzag */
    if (over_tp) cut(w, t, "s", "tp");
}

/* ---- dropout ---- */

enum { DB = 2, DS = 24, DH = 5, DK = 7, DN = DB * DS * DH * DK };

/* y[b s h k], h cut over tp or s cut over tp besides. */
static void run_dropout(int dp, int cp, int tp, bool heads, gw_dtype t, bool reference, double *y) {
    static double x[DN];
    world w;
    world_init(&w, dp, cp, tp, reference);
    for (int i = 0; i < DN; i++) x[i] = 1;
    gw_type type = world_type(&w, t, "b2 s24 h5 k7", "b", "dp");
    cut_tokens(&w, &type, !heads);
    if (heads) cut(&w, &type, "h", "tp");
    gw_vid in[3] = {world_leaf(&w, type, x),
                    world_leaf(&w, world_type(&w, GW_I64, "b2", "b", "dp"),
                               (double[]){1234567, 89}),
                    world_leaf(&w, gw_type_scalar(GW_I64), (double[]){17})},
           out[1];
    gw_attr a[3] = {{.f = 0.5}, {.s = gw_graph_intern(&w.g, "layer 0/mlp")}, {.i = 42}};
    world_op(&w, "dropout", in, 3, a, NULL, out);
    CHECK_EQ(world_count(&w, "slice"), 0);
    world_run(&w);
    world_get(&w, out[0], y);
    world_release(&w);
}

TEST(every_layout_drops_the_same_elements) {
    static const struct {
        int dp, cp, tp;
        bool heads;
    } layouts[] = {{2, 1, 1, false}, {1, 2, 1, false}, {1, 2, 2, false}, {1, 1, 3, true},
                   {2, 2, 2, true},  {1, 1, 8, true},  {1, 3, 2, false}};
    static double want[DN], y[DN];
    run_dropout(1, 1, 1, false, GW_F64, true, want);
    int kept = 0;
    for (int i = 0; i < DN; i++) kept += want[i] != 0;
    CHECK_NEAR((double)kept / DN, 0.5, 0.07);
    for (size_t i = 0; i < GW_COUNT(layouts); i++)
        for (int k = 0; k < 2; k++) {
            run_dropout(layouts[i].dp, layouts[i].cp, layouts[i].tp, layouts[i].heads,
                        k ? GW_F32 : GW_F64, !k, y);
            CHECK_MSG(memcmp(y, want, sizeof y) == 0, "layout %zu", i);
        }
}

/* Words by runs are the words of each element's own index, whatever the cut; 3001 is longer than a
 * block and no multiple of four. */
TEST(random_words_follow_the_whole_tensor) {
    world w;
    world_init(&w, 2, 3, 2, true);
    gw_type t = world_type(&w, GW_F32, "f7 d3001", "f", "tp");
    cut(&w, &t, "d", "cp");
    for (int flat = 0; flat < 2; flat++) {
        t.flat = (uint8_t)flat;
        t.flat_axes = flat ? world_axes(&w, "dp") : 0;
        gw_rng_key key = gw_rng_key_named(5, "w");
        for (int64_t r = 0; r < w.ranks; r++) {
            gw_held held, walk;
            int64_t global, local, count, n = gw_type_local_elems(&t, &w.g.mesh, r);
            gw_held_begin(&held, &t, &w.g.mesh, r);
            uint32_t *words = gw_arena_new(&w.a, uint32_t, n + 3);
            for (int64_t i = 0; i < n; i += 777)
                gw_vec_random_held(words + i, key, &held, i, GW_MIN(777, n - i));
            walk = held;
            while (gw_held_next(&walk, &global, &local, &count))
                for (int64_t i = 0; i < count; i++)
                    CHECK_EQ(words[local + i], gw_rng_u32(key, (uint64_t)(global + i)));
        }
    }
    world_release(&w);
}

/* ---- products ---- */

static void run_product(int tp, bool partial, bool reference, double *y) {
    enum { M = 6, H = 5, K = 3, N = 4 };
    static double x[M * H * K], wt[N * H * K], bias[N];
    world w;
    world_init(&w, 1, 1, tp, reference);
    world_normal(x, M * H * K, "x", 1);
    world_normal(wt, N * H * K, "w", 1);
    world_normal(bias, N, "bias", 1);
    gw_dtype t = reference ? GW_F64 : GW_F32;
    gw_type xt = world_type(&w, t, "s6 h5 k3", partial ? NULL : "h", "tp");
    if (partial) xt.psum = world_axes(&w, "tp");
    gw_vid in[3] = {world_leaf(&w, xt, x),
                    world_leaf(&w, world_type(&w, t, "d4 h5 k3", partial ? NULL : "h", "tp"), wt),
                    world_leaf(&w, world_type(&w, t, "d4", NULL, ""), bias)},
           out[1];
    world_op(&w, "matmul", in, 3, NULL, NULL, out);
    if (!partial) CHECK_EQ(gw_type_of(&w.g, out[0])->psum, world_axes(&w, "tp"));
    world_run(&w);
    world_get(&w, out[0], y);
    world_release(&w);
}

/* Five heads over 2, 3 and 8 ranks, some with none. */
TEST(a_bias_enters_partial_products_once) {
    double want[24], y[24];
    run_product(1, false, true, want);
    for (int tp = 2; tp <= 8; tp = tp == 3 ? 8 : tp + 1)
        for (int k = 0; k < 4; k++) {
            run_product(tp, k >= 2, k % 2, y);
            world_near(y, want, 24, k % 2 ? 1e-14 : 2e-6, "y");
        }
}

/* A product linear in what is partial stays partial, without a conversion. */
TEST(products_and_casts_pass_partial_sums) {
    world w;
    world_init(&w, 1, 1, 2, true);
    double x[6], wt[6], y[4], z[4], db[2];
    world_normal(x, 6, "x", 1);
    world_normal(wt, 6, "w", 1);
    gw_type xt = gw_type_make(GW_F64, "s2 d3");
    xt.psum = world_axes(&w, "tp");
    gw_vid in[2] = {world_leaf(&w, xt, x), world_leaf(&w, gw_type_make(GW_F64, "f2 d3"), wt)};
    gw_vid out[1], wide[1], sum[1];
    world_op(&w, "matmul", in, 2, NULL, NULL, out);
    world_op(&w, "cast", out, 1, (gw_attr[]){{.i = GW_F64}}, NULL, wide);
    world_op(&w, "bias_grad", wide, 1, (gw_attr[]){{.i = 1}, {.i = GW_F64}}, NULL, sum);
    CHECK_EQ(world_count(&w, "slice"), 0);
    CHECK_EQ(gw_type_of(&w.g, sum[0])->psum, xt.psum);
    world_run(&w);
    world_get(&w, out[0], y);
    world_get(&w, wide[0], z);
    world_get(&w, sum[0], db);
    for (int i = 0; i < 4; i++) {
        double dot = 0;
        for (int j = 0; j < 3; j++) dot += x[i / 2 * 3 + j] * wt[i % 2 * 3 + j];
        CHECK_NEAR(y[i], dot, 1e-14);
        CHECK_NEAR(z[i], dot, 1e-14);
    }
    for (int j = 0; j < 2; j++) CHECK_NEAR(db[j], y[j] + y[2 + j], 1e-14);
    world_release(&w);
}

/* m, n or k is 0 on the last of four ranks (5 in chunks of 2): results are those of one rank, zeros
 * where nothing is summed, and accumulators as they were. */
static void run_empty(const char *op, const char *ad, const char *bd, const char *dim, int tp,
                      gw_dtype t, bool adds, double *y) {
    static double x[64], acc[64];
    world w;
    world_init(&w, 1, 1, tp, false);
    world_normal(x, 64, "x", 1);
    world_normal(acc, 64, "acc", 1);
    gw_type a = gw_type_make(t, ad), b = gw_type_make(t, bd);
    if (gw_type_find(&a, dim) >= 0) cut(&w, &a, dim, "tp");
    if (gw_type_find(&b, dim) >= 0) cut(&w, &b, dim, "tp");
    gw_vid in[3] = {world_leaf(&w, a, x), world_leaf(&w, b, x), GW_NONE}, out[1];
    gw_attr attr = {.i = GW_F32};
    if (adds) { /* the type is what the op makes without one */
        world_op(&w, op, in, 2, &attr, NULL, out);
        in[2] = world_leaf(&w, *gw_type_of(&w.g, out[0]), acc);
    }
    world_op(&w, op, in, 3, &attr, NULL, out);
    world_run(&w);
    world_get(&w, out[0], y);
    world_release(&w);
}

TEST(products_of_nothing_are_zeros) {
    static const struct {
        const char *op, *a, *b, *cut;
        bool adds;
    } cases[] = {
        {"matmul", "s3 h5", "d2 h5", "h", false},   {"matmul", "s5 h3", "d2 h3", "s", false},
        {"matmul", "s2 d3", "h5 d3", "h", false},   {"matmul_dw", "s5 f3", "s5 d2", "s", true},
        {"matmul_dw", "s4 h5", "s4 d3", "h", true}, {"matmul_dw", "s4 d3", "s4 h5", "h", false}};
    static double want[64], y[64];
    for (size_t i = 0; i < GW_COUNT(cases); i++)
        for (gw_dtype t = GW_F32; t <= GW_BF16; t = t == GW_F32 ? GW_BF16 : t + 1) {
            memset(want, 0, sizeof want);
            memset(y, 0, sizeof y);
            run_empty(cases[i].op, cases[i].a, cases[i].b, cases[i].cut, 1, t, cases[i].adds, want);
            run_empty(cases[i].op, cases[i].a, cases[i].b, cases[i].cut, 4, t, cases[i].adds, y);
            world_near(y, want, 64, 1e-6, cases[i].op);
        }
}

/* ---- norms ---- */

/* Gradients with rows cut on everything that cuts rows, heads among them. */
static void run_norms(int dp, int cp, int tp, bool reference, double *dx, double *dg, double *db) {
    enum { N = 2 * 12 * 4 * 8 };
    static double x[N], dy[N];
    world w;
    world_init(&w, dp, cp, tp, reference);
    world_normal(x, N, "x", 1.5);
    world_normal(dy, N, "dy", 1);
    gw_dtype t = reference ? GW_F64 : GW_F32;
    gw_type heads = world_type(&w, t, "b2 s12 h4 k8", "b", "dp"), rows = heads;
    cut_tokens(&w, &heads, false);
    cut(&w, &heads, "h", "tp");
    cut_tokens(&w, &rows, true);
    double g[8] = {1, 0.5, 1.5, 2, -1, 0.25, 1, 1}, zero[8] = {0};
    gw_vid gain = world_leaf(&w, gw_type_make(t, "k8"), g), out[3], ln[3], grad[2], lgrad[3];
    gw_vid b = world_leaf(&w, gw_type_make(t, "k8"), zero);
    gw_vid xh = world_leaf(&w, heads, x), xr = world_leaf(&w, rows, x);
    world_op(&w, "rmsnorm", (gw_vid[]){xh, gain}, 2, NULL, NULL, out);
    world_op(&w, "rmsnorm_grad", (gw_vid[]){world_leaf(&w, heads, dy), xh, gain, out[1]}, 4,
             (gw_attr[]){{.i = t}}, NULL, grad);
    world_op(&w, "layernorm", (gw_vid[]){xr, gain, b}, 3, NULL, NULL, ln);
    world_op(&w, "layernorm_grad", (gw_vid[]){world_leaf(&w, rows, dy), xr, gain, ln[1], ln[2]}, 5,
             (gw_attr[]){{.i = t}}, NULL, lgrad);
    uint32_t all = world_axes(&w, "dp") | world_axes(&w, "cp") | world_axes(&w, "tp");
    CHECK_EQ(gw_type_of(&w.g, grad[1])->psum, all);
    CHECK_EQ(gw_type_of(&w.g, lgrad[1])->psum, all);
    CHECK_EQ(gw_type_of(&w.g, lgrad[2])->psum, all);
    world_run(&w);
    world_get(&w, grad[0], dx);
    world_get(&w, grad[1], dg);
    world_get(&w, lgrad[1], db);
    world_get(&w, lgrad[2], db + 8);
    world_release(&w);
}

TEST(gradients_of_gains_are_sums_over_all_rows) {
    static double want[768], dx[768];
    double want_g[8], dg[8], want_b[16], db[16];
    for (int k = 0; k < 2; k++) {
        run_norms(1, 1, 1, k, want, want_g, want_b);
        for (int i = 0; i < 3; i++) {
            run_norms(i == 0 ? 2 : 1, i == 1 ? 2 : 1, 2, k, dx, dg, db);
            world_near(dx, want, 768, k ? 1e-13 : 2e-6, "dx");
            world_near(dg, want_g, 8, k ? 1e-13 : 2e-5, "dg");
            world_near(db, want_b, 16, k ? 1e-13 : 2e-5, "of layernorm");
        }
    }
}

/* ---- optimizers ---- */

enum { PR = 7, PC = 33, PN = PR * PC };

/* One step of an optimizer on p[f7 d33] cut both ways and, if asked, in flat parts; p and states.
 */
static void run_step(const char *op, int nstates, int nscalars, const gw_attr *a, int dp, int cp,
                     int tp, bool flat, gw_dtype t, bool reference, double *p, double *m) {
    static double x[4][PN];
    world w;
    world_init(&w, dp, cp, tp, reference);
    gw_type type = world_type(&w, t, "f7 d33", "f", "tp"), stat;
    cut(&w, &type, "d", "cp");
    type.flat = flat;
    type.flat_axes = flat ? world_axes(&w, "dp") : 0;
    stat = type;
    stat.dtype = reference && t == GW_F64 ? GW_F64 : GW_F32;
    gw_vid in[9], out[3];
    int n = 0;
    for (; n < 2 + nstates; n++) {
        char key[8];
        snprintf(key, sizeof key, "%d", n);
        world_normal(x[n], PN, key, n ? 0.3 : 1);
        for (int i = 0; n == 3 && i < PN; i++) x[n][i] = fabs(x[n][i]);
        in[n] = world_leaf(&w, n ? stat : type, x[n]);
    }
    gw_type scalar = gw_type_scalar((gw_dtype)stat.dtype);
    static const double scalars[] = {0.5, 1, 0.01};
    for (int i = 0; i < 3; i++) in[n++] = world_leaf(&w, scalar, &scalars[i]);
    if (nscalars > 3) in[n++] = world_leaf(&w, gw_type_scalar(GW_I64), (double[]){12});
    gw_attr own[GW_MAX_ATTRS] = {0};
    memcpy(own, a, 7 * sizeof *a);
    if (strcmp(op, "adamw") == 0) own[6].s = gw_graph_intern(&w.g, "blocks.0.q");
    world_op(&w, op, in, n, own, NULL, out);
    world_run(&w);
    world_get(&w, out[0], p);
    if (nstates) world_get(&w, out[1], m);
    world_release(&w);
}

static void check_steps(const char *op, int nstates, int nscalars, const gw_attr *a, bool flat,
                        gw_dtype t, bool reference) {
    static const int layouts[][3] = {{1, 1, 2}, {1, 2, 4}, {2, 3, 1}, {2, 2, 2}, {1, 1, 8}};
    static double want[PN], want_m[PN], p[PN], m[PN];
    run_step(op, nstates, nscalars, a, 1, 1, 1, false, t, reference, want, want_m);
    for (size_t i = 0; i < GW_COUNT(layouts); i++)
        for (int f = 0; f <= flat; f++) {
            const int *l = layouts[i];
            run_step(op, nstates, nscalars, a, l[0], l[1], l[2], f, t, reference, p, m);
            CHECK_MSG(memcmp(p, want, sizeof p) == 0, "%s: p, layout %zu, flat %d", op, i, f);
            if (nstates) CHECK_MSG(memcmp(m, want_m, sizeof m) == 0, "%s: m, layout %zu", op, i);
        }
}

TEST(optimizers_on_parts_have_the_bits_of_the_whole) {
    gw_attr adamw[7] = {{.f = 0.9}, {.f = 0.95}, {.f = 1e-8}, {.f = 0.1}, {.i = 1}, {.i = 7}};
    gw_attr sgd[7] = {{.f = 0.1}}, sgdm[7] = {{.f = 0.9}, {.i = 1}, {.f = 0.1}};
    for (int reference = 0; reference < 2; reference++) {
        check_steps("adamw", 2, 4, adamw, true, GW_BF16, reference);
        check_steps("sgd", 0, 3, sgd, true, GW_F32, reference);
        check_steps("sgdm", 1, 4, sgdm, true, GW_F32, reference);
    }
}

/* Liu et al., 2025, algorithm 1: gathered, iterated, cut: the exact update. */
TEST(muon_steps_a_cut_matrix_as_a_whole) {
    gw_attr a[7] = {{.i = 1}, {.f = 0.95}, {.i = 1}, {.i = 5}, {.f = 0.1}};
    check_steps("muon", 1, 3, a, false, GW_F32, false);
    check_steps("muon", 1, 3, a, false, GW_F32, true);
    check_steps("muon", 1, 3, a, false, GW_BF16, false);
    check_steps("muon", 1, 3, a, false, GW_F64, true);
}

/* A norm counts each element once, however it is cut, and copies once. */
TEST(square_sums_of_parts_add_up) {
    double x[PN], want = 0, got;
    world_normal(x, PN, "x", 1);
    for (int i = 0; i < PN; i++) want += x[i] * x[i];
    for (int flat = 0; flat < 2; flat++) {
        world w;
        world_init(&w, 2, 2, 4, false);
        gw_type t = world_type(&w, GW_F32, "f7 d33", "f", "tp");
        t.flat = (uint8_t)flat;
        t.flat_axes = flat ? world_axes(&w, "dp") : 0;
        gw_vid in = world_leaf(&w, t, x), out[1];
        world_op(&w, "sqnorm", &in, 1, NULL, NULL, out);
        CHECK_EQ(gw_type_of(&w.g, out[0])->psum, world_axes(&w, "tp") | t.flat_axes);
        world_run(&w);
        world_get(&w, out[0], &got);
        CHECK_NEAR(got, want, 1e-5 * want);
        world_release(&w);
    }
}

/* ---- elementwise on nothing ---- */

/* Each op with `h` (or what stands for rows) cut so that the last ranks hold none. */
TEST(kernels_of_this_folder_take_empty_parts) {
    static const struct {
        const char *op, *in[3];
        int nin;
        gw_attr attrs[2];
    } cases[] = {{"add", {"h3 k4", "h3 k4"}, 2, {{0}}},
                 {"cast", {"h3 k4"}, 1, {{.i = GW_BF16}}},
                 {"zeros", {"h3 k4"}, 1, {{.i = GW_F32}}},
                 {"gelu", {"s2 h3"}, 1, {{.i = 1}}},
                 {"gelu_grad", {"s2 h3", "s2 h3"}, 2, {{.i = 1}}},
                 {"swiglu", {"s2 h3", "s2 h3"}, 2, {{0}}},
                 {"bias_grad", {"s2 h3 k2"}, 1, {{.i = 2}, {.i = GW_F32}}},
                 {"bias_grad", {"h3 k2"}, 1, {{.i = 1}, {.i = GW_F32}}},
                 {"rmsnorm", {"h3 k4", "k4"}, 2, {{.f = 1e-5}}},
                 {"layernorm", {"h3 k4", "k4", "k4"}, 3, {{.f = 1e-5}}},
                 {"sqnorm", {"h3 k4"}, 1, {{0}}}};
    double x[24], y[24], want[24];
    world_normal(x, 24, "x", 1);
    for (size_t i = 0; i < GW_COUNT(cases); i++)
        for (int tp = 1; tp <= 4; tp += 3) {
            world w;
            world_init(&w, 1, 1, tp, false);
            gw_vid in[3], out[GW_MAX_OUT];
            for (int k = 0; k < cases[i].nin; k++) {
                gw_type t = gw_type_make(GW_F32, cases[i].in[k]);
                if (gw_type_find(&t, "h") >= 0) cut(&w, &t, "h", "tp");
                in[k] = world_leaf(&w, t, x);
            }
            world_op(&w, cases[i].op, in, cases[i].nin, cases[i].attrs, NULL, out);
            world_run(&w);
            world_get(&w, out[0], tp == 1 ? want : y);
            if (tp > 1)
                world_near(y, want, gw_type_elems(gw_type_of(&w.g, out[0])), 1e-6, cases[i].op);
            world_release(&w);
        }
}

/* ---- placements that are not what an op says ---- */

/* A bias that is whole, added to each of two partial products, would be in the sum twice. */
TEST(a_whole_bias_on_partial_products_is_named) {
    world w;
    world_init(&w, 1, 1, 2, true);
    double x[8] = {0};
    gw_vid in[3] = {world_leaf(&w, world_type(&w, GW_F32, "s2 h4", "h", "tp"), x),
                    world_leaf(&w, world_type(&w, GW_F32, "d2 h4", "h", "tp"), x),
                    world_leaf(&w, gw_type_make(GW_F32, "d2"), x)};
    gw_vid y = gw_build(&w.b, "matmul", in, 3, NULL, NULL);
    w.g.values.items[y].type.psum = world_axes(&w, "tp");
    const gw_op *o = &w.g.ops.items[0];
    CHECK_FAILS(gw_op_def(&w.g, o)->verify(&w.g, o, &w.dg), &w.dg, "added to each part of a sum");
    w.g.values.items[in[2]].type.psum = world_axes(&w, "tp");
    gw_diags_release(&w.dg);
    gw_diags_init(&w.dg);
    CHECK_OK(gw_op_def(&w.g, o)->verify(&w.g, o, &w.dg), &w.dg);
    world_release(&w);
}

/* Statistics of a cut vocabulary that pass for those of the whole. */
TEST(statistics_of_a_part_do_not_pass_for_whole) {
    world w;
    world_init(&w, 1, 1, 2, true);
    double x[8] = {0};
    gw_vid in[3] = {world_leaf(&w, gw_type_make(GW_F32, "s2 d2"), x),
                    world_leaf(&w, world_type(&w, GW_F32, "v4 d2", "v", "tp"), x),
                    world_leaf(&w, gw_type_make(GW_I32, "s2"), x)},
           part;
    gw_vid max = gw_build(&w.b, "head_stats", in, 3, (gw_attr[]){{.i = 2}}, &part);
    const gw_op *o = &w.g.ops.items[0];
    CHECK_FAILS(gw_op_def(&w.g, o)->verify(&w.g, o, &w.dg), &w.dg, "the maximum is not partial");
    w.g.values.items[max].type.pmax = world_axes(&w, "tp");
    gw_diags_release(&w.dg);
    gw_diags_init(&w.dg);
    CHECK_FAILS(gw_op_def(&w.g, o)->verify(&w.g, o, &w.dg), &w.dg, "parts are not cut");
    cut(&w, &w.g.values.items[part].type, "part", "tp");
    gw_diags_release(&w.dg);
    gw_diags_init(&w.dg);
    CHECK_OK(gw_op_def(&w.g, o)->verify(&w.g, o, &w.dg), &w.dg);
    world_release(&w);
}
