// SPDX-License-Identifier: Apache-2.0
// What the host side does with tensors that lie in parts, for placements written by hand: initial
// weights, putting together, saving, loading, what a rank is fed. None of it needs a compiled step.
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/rng.h"    /* gw_rng_fill_normal */
#include "comm/launch.h" /* gw_launch_threads */
#include "data/tokens.h" /* GW_LABEL_MASKED */
#include "harness.h"
#include "ir/text.h"   /* gw_graph_parse */
#include "ops/ops.h"   /* gw_ops_table */
#include "pass/pass.h" /* gw_pass_place */
#include "ckpt/save.h"
#include "train/ranks.h"
#include "train/slices.h"
#include "train/weights.h"

/* A placement of the same five tensors; sizes that divide by nothing, and one with fewer rows than
 * ranks, so that some hold none of it. */
typedef struct layout {
    const char *name;
    int ranks;
    const char *mesh, *a, *b, *c, *d, *e;
} layout;

static const layout layouts[] = {
    {"one rank", 1, "", "h5 k4 d6", "d6 h5 k4", "f7 d6", "d6", "v2 d6"},
    {"tp 2", 2, "mesh tp.0=2\n", "h{tp}5 k4 d6", "d6 h{tp}5 k4", "f{tp}7 d6", "d6", "v{tp}2 d6"},
    {"tp 4", 4, "mesh tp.0=2 tp.1=2\n", "h{tp}5 k4 d6", "d6 h{tp}5 k4", "f{tp}7 d6", "d6",
     "v{tp}2 d6"},
    {"tp 2 of 4, flat over the rest", 4, "mesh dp.0=2 tp.0=2\n", "h{tp}5 k4 d6+flat{dp}",
     "d6 h{tp}5 k4+flat{dp}", "f{tp}7 d6", "d6+flat{dp}", "v{tp}2 d6+flat{dp}"},
    {"dp 2 x cp 2 x tp 2, flat over dp and cp", 8, "mesh dp.0=2 cp.0=2 tp.0=2\n",
     "h{tp}5 k4 d6+flat{dp.0,cp.0}", "d6 h5 k4+flat{dp.0,cp.0}", "f{dp,cp,tp}7 d6",
     "d6+flat{dp.0,cp.0}", "v{tp}2 d6"},
};

enum { TENSORS = 5 };
static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
static const int64_t sizes[TENSORS] = {120, 120, 42, 6, 12};

static const char *dims_of(const layout *l, int i) {
    const char *all[TENSORS] = {l->a, l->b, l->c, l->d, l->e};
    return all[i];
}

/* A program of parameters alone. */
static void program(const layout *l, gw_graph *out, gw_diags *dg) {
    char text[2000];
    int at = snprintf(text, sizeof text, "program mb 1 values %d\n%s", TENSORS, l->mesh);
    for (int i = 0; i < TENSORS; i++) {
        char dims[80], flat[40] = "";
        snprintf(dims, sizeof dims, "%s", dims_of(l, i));
        char *plus = strchr(dims, '+');
        if (plus) {
            snprintf(flat, sizeof flat, "%s", plus);
            *plus = 0;
        }
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "let %%%d : f32[%s]%s param weights step \"%s\"\n", i, dims, flat, names[i]);
    }
    gw_graph g;
    gw_compile_report report = {0};
    gw_compile_opts o = {.train = true, .micro_batches = 1};
    CHECK_OK(gw_graph_parse(&g, gw_ops_table(), text, (int64_t)strlen(text), "test", dg), dg);
    CHECK_OK(gw_pass_place(out, &g, &o, &report, dg), dg);
    gw_graph_release(&g);
}

static void params(gw_param out[TENSORS]) {
    for (int i = 0; i < TENSORS; i++)
        out[i] = (gw_param){.name = names[i],
                            .init = i == 1   ? GW_INIT_UNIFORM
                                    : i == 3 ? GW_INIT_ONES
                                             : GW_INIT_NORMAL,
                            .std = 0.5};
}

/* What tensor i is, by the generator alone. */
static void expected(int i, float *out) {
    gw_rng_key key = gw_rng_key_named(7, names[i]);
    for (int64_t j = 0; j < sizes[i]; j++) {
        if (i == 3) out[j] = 1;
        if (i == 1) out[j] = 0.5f * (2 * gw_rng_uniform(key, (uint64_t)j) - 1);
    }
    if (i != 1 && i != 3) gw_rng_fill_normal(key, 0, sizes[i], 0.5f, out);
}

typedef struct job {
    const layout *l;
    const char *dir;
    bool saves;
} job;

static void open_params(const job *j, gw_comm *c, gw_exec **x, gw_diags *dg) {
    gw_graph g;
    program(j->l, &g, dg);
    if (c) gw_comm_set_mesh(c, &g.mesh);
    gw_exec_opts o = {.machine = gw_machine_this(1), .comm = c, .rank = gw_ranks_me(c)};
    CHECK_OK(gw_exec_new(x, &g, &o, dg), dg);
    gw_graph_release(&g);
}

static gw_status whole(gw_comm *c, const gw_exec *x, int i, float *out, gw_diags *dg) {
    const gw_graph *g = gw_exec_graph(x);
    gw_vid v = gw_exec_find(x, names[i]);
    const gw_type *t = gw_type_of(g, v);
    if (gw_ranks_have_parts(t))
        return gw_ranks_gather(c, t, &g->mesh, gw_exec_ptr(x, v), out, names[i], dg);
    memcpy(out, gw_exec_ptr(x, v), (size_t)sizes[i] * sizeof *out);
    return GW_OK;
}

static void same(const float *a, const float *b, int64_t n, const char *what, const char *of) {
    CHECK_MSG(memcmp(a, b, (size_t)n * sizeof *a) == 0, "%s, %s", what, of);
}

static gw_status init_and_gather(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_exec *x = NULL;
    gw_param p[TENSORS];
    params(p);
    open_params(j, c, &x, dg);
    gw_weights_init(x, p, TENSORS, 7, 2);
    for (int i = 0; i < TENSORS; i++) {
        float got[120], want[120];
        memset(got, 0x7f, sizeof got);
        expected(i, want);
        GW_TRY(whole(c, x, i, got, dg));
        same(got, want, sizes[i], names[i], j->l->name);
    }
    gw_exec_free(x);
    return GW_OK;
}

static void on_ranks(job *j, gw_status (*body)(gw_comm *, void *, gw_diags *)) {
    gw_diags dg;
    gw_diags_init(&dg);
    if (j->l->ranks == 1)
        CHECK_OK(body(NULL, j, &dg), &dg);
    else
        CHECK_OK(gw_launch_threads(j->l->ranks, 20, body, j, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(initial_weights_know_the_global_index_alone) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        job j = {.l = &layouts[i]};
        on_ranks(&j, init_and_gather);
    }
}

/* ---- saving under one placement, loading under another ---- */

static void as_tensors(const gw_exec *x, gw_ckpt_tensor out[TENSORS]) {
    const gw_graph *g = gw_exec_graph(x);
    for (int i = 0; i < TENSORS; i++) {
        gw_vid v = gw_exec_find(x, names[i]);
        const gw_type *t = gw_type_of(g, v);
        out[i] = (gw_ckpt_tensor){.name = names[i],
                                  .dtype = GW_F32,
                                  .ndim = t->ndim,
                                  .type = t,
                                  .mesh = &g->mesh,
                                  .rank = gw_exec_rank(x),
                                  .data = gw_exec_ptr(x, v)};
        for (int k = 0; k < t->ndim; k++) out[i].dims[k] = t->dims[k].size;
        out[i].box = gw_box_whole(t->ndim, out[i].dims);
    }
}

static gw_status save(gw_comm *c, const gw_exec *x, const char *dir, gw_diags *dg) {
    gw_ckpt_tensor t[TENSORS];
    gw_ckpt_save *s;
    gw_ckpt_options o = {.run_dir = dir, .comm = c};
    gw_ckpt_meta m = {.step = 1, .batch = 1, .loss_scale = 1, .number = 1};
    as_tensors(x, t);
    GW_TRY(gw_checkpoint_begin(&s, &o, &m, t, TENSORS, dg));
    return gw_checkpoint_end(s, NULL, dg);
}

static gw_status save_or_load(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_exec *x = NULL;
    gw_param p[TENSORS];
    gw_arena mem = {0};
    params(p);
    open_params(j, c, &x, dg);
    gw_weights_init(x, p, TENSORS, j->saves ? 7 : 8, 1);
    if (j->saves) {
        GW_TRY(save(c, x, j->dir, dg));
    } else {
        gw_ckpt_tensor t[TENSORS];
        gw_ckpt_manifest *m = NULL;
        as_tensors(x, t);
        GW_TRY(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-00000001", j->dir),
                                  &mem, &m, dg));
        GW_TRY(gw_checkpoint_load(m, t, TENSORS, NULL, dg));
    }
    for (int i = 0; i < TENSORS; i++) {
        float got[120], want[120];
        expected(i, want);
        GW_TRY(whole(c, x, i, got, dg));
        same(got, want, sizes[i], names[i], j->l->name);
    }
    gw_exec_free(x);
    gw_arena_release(&mem);
    return GW_OK;
}

TEST(what_one_layout_saves_any_other_loads) {
    char dirs[GW_COUNT(layouts)][16];
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        snprintf(dirs[i], sizeof dirs[i], "run-%d", (int)i);
        char dir[300];
        snprintf(dir, sizeof dir, "%s", test_tmp_path(dirs[i]));
        job s = {.l = &layouts[i], .dir = dir, .saves = true};
        on_ranks(&s, save_or_load);
        for (size_t k = 0; k < GW_COUNT(layouts); k++) {
            job l = {.l = &layouts[k], .dir = dir};
            on_ranks(&l, save_or_load);
        }
    }
}

/* ---- who is believed ---- */

TEST(each_element_has_one_owner_and_copies_share_a_part) {
    for (size_t k = 0; k < GW_COUNT(layouts); k++) {
        gw_graph g;
        gw_diags dg;
        gw_diags_init(&dg);
        program(&layouts[k], &g, &dg);
        for (int64_t v = 0; v < TENSORS; v++) {
            const gw_type *t = gw_type_of(&g, (gw_vid)v);
            int seen[120] = {0};
            for (int64_t r = 0; r < layouts[k].ranks; r++) {
                gw_held w;
                int64_t global, local, count;
                gw_held_begin(&w, t, &g.mesh, r);
                while (gw_ranks_owns(t, &g.mesh, r) && gw_held_next(&w, &global, &local, &count))
                    for (int64_t i = 0; i < count; i++) seen[global + i]++;
                for (int64_t q = 0; q < r; q++) {
                    bool alike = gw_ranks_part(t, &g.mesh, q) == gw_ranks_part(t, &g.mesh, r);
                    gw_held a, b;
                    gw_held_begin(&a, t, &g.mesh, q);
                    gw_held_begin(&b, t, &g.mesh, r);
                    bool same_runs =
                        a.lo == b.lo && a.hi == b.hi && memcmp(a.cuts, b.cuts, sizeof a.cuts) == 0;
                    CHECK(!alike || same_runs);
                }
            }
            for (int64_t i = 0; i < sizes[v]; i++) CHECK_EQ(seen[i], 1);
        }
        gw_graph_release(&g);
        gw_diags_release(&dg);
    }
}

/* A sum that was not taken over cp is found by taking it; rank r holds r + 1 times 1, 2, 3 .. */
static gw_status add_up(gw_comm *c, void *user, gw_diags *dg) {
    gw_mesh m = {0};
    (void)user;
    (void)gw_mesh_add(&m, "dp", 2);
    uint32_t cp = gw_mesh_add(&m, "cp", 2), tp = gw_mesh_add(&m, "tp", 2);
    gw_comm_set_mesh(c, &m);
    gw_type t = gw_type_make(GW_F32, "h4 d3");
    t.dims[0].naxes = 1;
    t.dims[0].axes[0] = (uint8_t)gw_mesh_find(&m, "tp.0");
    float mine[6], sum[12];
    int rank = gw_comm_rank(c);
    for (int i = 0; i < 6; i++) mine[i] = (float)((rank + 1) * (i + 1));
    GW_TRY(gw_ranks_add_up(c, &t, &m, cp, mine, sum, "x", dg));
    for (int i = 0; i < 12; i++) { /* ranks 0 and 2 hold the first half, 1 and 3 the second */
        int times = i < 6 ? 1 + 3 : 2 + 4;
        CHECK_NEAR(sum[i], times * (i % 6 + 1), 0);
    }
    gw_type partial = gw_type_scalar(GW_F32);
    partial.psum = cp;
    double x = 1;
    GW_TRY(gw_ranks_sum_partial(c, &partial, &m, &x, "x", dg));
    CHECK_NEAR(x, 2, 0); /* of eight ranks, two have different terms */
    partial.psum = cp | tp;
    x = 1;
    GW_TRY(gw_ranks_sum_partial(c, &partial, &m, &x, "x", dg));
    CHECK_NEAR(x, 4, 0);
    return GW_OK;
}

TEST(sums_count_each_term_once) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(8, 20, add_up, NULL, &dg), &dg);
    gw_diags_release(&dg);
}

/* ---- what a rank is fed ---- */

enum { ROWS = 2, SEQ = 11, PADDED = 16 };

static const char feed_text[] =
    "program mb 1 values 4\n"
    "mesh dp.0=2 cp.0=2 cp.1=2 tp.0=2\n"
    "let %0 : i32[b{dp}4 s{cp.0/cp.1,tp:zigzag}16] input data mb \"tokens\"\n"
    "let %1 : i32[b{dp}4 s{cp.0/cp.1:zigzag}16] input data mb \"labels\"\n"
    "let %2 : i32[b{dp}4 s16] input data mb \"docs\"\n"
    "let %3 : i64[b{dp}4] input data mb \"samples\"\n";

/* The value of token (row of the global micro-batch, column). */
static int32_t token_of(int64_t row, int64_t column) {
    return column < SEQ ? (int32_t)(100 * row + column) : -1;
}

/* The zigzag by its definition: 4 chunks of 4, rank 0 has the first and the last. */
static int64_t column_of(int64_t ring, int64_t at) {
    return at < 4 ? 4 * ring + at : 4 * (3 - ring) + at - 4;
}

TEST(each_rank_is_fed_what_its_types_say) {
    gw_diags dg;
    gw_graph g, placed;
    gw_compile_report report = {0};
    gw_compile_opts co = {.train = true, .micro_batches = 1};
    gw_diags_init(&dg);
    CHECK_OK(gw_graph_parse(&g, gw_ops_table(), feed_text, (int64_t)strlen(feed_text), "t", &dg),
             &dg);
    CHECK_OK(gw_pass_place(&placed, &g, &co, &report, &dg), &dg);
    for (int64_t rank = 0; rank < 16; rank++) {
        int64_t dp = rank / 8, ring = rank / 4 % 2, ulysses = rank / 2 % 2, tp = rank % 2;
        int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ], docs[ROWS * SEQ];
        int64_t ids[ROWS];
        gw_arena mem = {0};
        gw_exec *x = NULL;
        gw_exec_opts o = {.machine = gw_machine_this(1), .rank = rank};
        CHECK_OK(gw_exec_new(&x, &placed, &o, &dg), &dg);
        for (int64_t r = 0; r < ROWS; r++) {
            ids[r] = 50 + dp * ROWS + r;
            for (int64_t i = 0; i < SEQ; i++) {
                tokens[r * SEQ + i] = token_of(dp * ROWS + r, i);
                labels[r * SEQ + i] = tokens[r * SEQ + i] + 1;
                docs[r * SEQ + i] = (int32_t)(i / 5);
            }
        }
        gw_micro_batch m = {tokens, labels, tokens, docs, ids, 0};
        gw_slices s;
        CHECK_EQ(gw_slices_part(&placed.mesh, rank), dp);
        gw_slices_init(&s, x, ROWS, SEQ, &mem);
        gw_slices_write(&s, x, &m);
        const int32_t *t = gw_exec_ptr(x, gw_exec_find(x, "tokens"));
        const int32_t *l = gw_exec_ptr(x, gw_exec_find(x, "labels"));
        const int32_t *d = gw_exec_ptr(x, gw_exec_find(x, "docs"));
        const int64_t *n = gw_exec_ptr(x, gw_exec_find(x, "samples"));
        for (int64_t r = 0; r < ROWS; r++) {
            int64_t row = dp * ROWS + r;
            CHECK_EQ(n[r], 50 + row);
            for (int64_t i = 0; i < 2; i++)
                CHECK_EQ(t[r * 2 + i], token_of(row, column_of(ring, 4 * ulysses + 2 * tp + i)));
            for (int64_t i = 0; i < 4; i++) {
                int64_t column = column_of(ring, 4 * ulysses + i);
                int32_t want = column < SEQ ? token_of(row, column) + 1 : (int32_t)GW_LABEL_MASKED;
                CHECK_EQ(l[r * 4 + i], want);
            }
            for (int64_t i = 0; i < PADDED; i++)
                CHECK_EQ(d[r * PADDED + i], i < SEQ ? i / 5 : (SEQ - 1) / 5 + 1);
        }
        gw_exec_free(x);
        gw_arena_release(&mem);
    }
    gw_graph_release(&placed);
    gw_graph_release(&g);
    gw_diags_release(&dg);
}
