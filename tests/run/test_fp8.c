// SPDX-License-Identifier: Apache-2.0
// Training with linear layers in eight-bit floats: what the rewrite does to a graph, what backward
// is made of, and how far the loss goes from that of bf16.
#include <string.h>

#include "../harness.h"
#include "model/fp8.h"       /* gw_fp8_rewrite */
#include "model/placement.h" /* gw_placement_default */
#include "ops/fp8.h"         /* gw_fp8_blocks_are_whole */
#include "ops/ops.h"         /* gw_ops_table */
#include "trainer.h"

/* A llama of two layers whose dims have whole blocks of 128 and remainders. */
static void fp8_program(program *p, gw_family f) {
    gw_model m = tiny_model(f, 2);
    m.hidden = 160;
    m.heads = 4;
    m.kv_heads = f == GW_FAMILY_GPT2 ? 4 : 2;
    m.head_dim = 40;
    m.ffn = 272;
    m.max_positions = 256;
    program_init(p, &m, 1, 144);
    p->machine = gw_machine_this(1);
    p->opts.verify = true;
    p->opts.compute = p->build.compute = GW_BF16;
}

static void make(program *p, const char *last, bool fp8, bool pow2, int *layers, gw_graph *g) {
    gw_fp8_opts o = {.pow2 = pow2};
    gw_graph_init(g, gw_ops_table());
    CHECK_OK(gw_model_build(g, &p->model, &p->build, &p->dg), &p->dg);
    if (fp8) CHECK_OK(gw_fp8_rewrite(g, &o, layers, &p->dg), &p->dg);
    if (last && strcmp(last, "build") == 0) return;
    CHECK_OK(gw_compile(g, &p->opts, last, NULL, &p->dg), &p->dg);
}

/* q, k, v, o, gate, up and down of each layer; the head, the embedding and attention are as before.
 */
TEST(fp8_rewrite_takes_the_linear_layers_of_layers) {
    program p;
    gw_graph g;
    int layers = 0;
    fp8_program(&p, GW_FAMILY_LLAMA);
    make(&p, "build", true, false, &layers, &g);
    CHECK_EQ(layers, 14);
    CHECK_EQ(count_ops(&g, "matmul", GW_PHASE_COUNT), 0);
    CHECK_EQ(count_ops(&g, "fp8_matmul", GW_PHASE_F), 14);
    /* seven weights, and x before q k v, before o, before gate up, before down */
    CHECK_EQ(count_ops(&g, "fp8_quant", GW_PHASE_F), 2 * (7 + 4));
    CHECK_EQ(count_ops(&g, "head", GW_PHASE_COUNT), 1);
    CHECK_EQ(count_ops(&g, "attention", GW_PHASE_COUNT), 2);
    gw_graph_release(&g);
    p.build.mode = GW_BUILD_LOGITS; /* whose head is a matmul: it stays one */
    make(&p, "build", true, false, &layers, &g);
    CHECK_EQ(layers, 14);
    CHECK_EQ(count_ops(&g, "matmul", GW_PHASE_COUNT), 1);
    gw_graph_release(&g);
    program_release(&p);
}

/* The parameters, in their order, are those of the graph that was not rewritten. */
TEST(fp8_rewrite_keeps_the_leaves) {
    program p;
    gw_graph a, b;
    fp8_program(&p, GW_FAMILY_GPT2);
    make(&p, "build", false, false, NULL, &a);
    make(&p, "build", true, true, NULL, &b);
    int64_t i = 0, j = 0, n = 0;
    for (;; i++, j++) {
        while (i < a.values.count && a.values.items[i].def != GW_NONE) i++;
        while (j < b.values.count && b.values.items[j].def != GW_NONE) j++;
        if (i == a.values.count || j == b.values.count) break;
        CHECK_STR(value_name(&a, (gw_vid)i), value_name(&b, (gw_vid)j));
        CHECK_EQ(a.values.items[i].role, b.values.items[j].role);
        CHECK_EQ(a.values.items[i].type.dtype, b.values.items[j].type.dtype);
        n++;
    }
    CHECK(i == a.values.count && j == b.values.count && n > 20);
    gw_graph_release(&a);
    gw_graph_release(&b);
    program_release(&p);
}

/* Both gradient products of every layer are of eight-bit floats too; biases' gradients are of dy.
 */
TEST(fp8_backward_is_in_eight_bits) {
    program p;
    gw_graph g;
    fp8_program(&p, GW_FAMILY_GPT2); /* q k v o fc proj, with biases */
    make(&p, "autodiff", true, false, NULL, &g);
    CHECK_EQ(count_ops(&g, "fp8_matmul", GW_PHASE_B), 12);
    CHECK_EQ(count_ops(&g, "fp8_matmul_dw", GW_PHASE_W), 12);
    CHECK_EQ(count_ops(&g, "bias_grad", GW_PHASE_W), 12);
    CHECK_EQ(count_ops(&g, "matmul_dw", GW_PHASE_COUNT), 0);
    CHECK_EQ(count_ops(&g, "fp8_dequant", GW_PHASE_W), 2 * 4); /* x of qkv, o, fc, proj */
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (is_op(&g, o, "fp8_matmul_dw"))
            CHECK_EQ(gw_type_of(&g, gw_op_out(&g, o, 0))->dtype, GW_F32);
    }
    gw_graph_release(&g);
    program_release(&p);
}

/* What forward keeps of a linear layer's input is a byte an element and a scale for 128. */
TEST(fp8_keeps_eight_bits_for_backward) {
    program p;
    gw_graph a, b;
    fp8_program(&p, GW_FAMILY_LLAMA);
    make(&p, "autodiff", false, false, NULL, &a);
    make(&p, "autodiff", true, false, NULL, &b);
    int64_t wide = 0, narrow = 0;
    for (int64_t i = 0; i < b.ops.count; i++) {
        const gw_op *o = &b.ops.items[i];
        if (!is_op(&b, o, "fp8_dequant")) continue;
        narrow += local_bytes(&b, gw_op_in(&b, o, 0)) + local_bytes(&b, gw_op_in(&b, o, 1));
        wide += 2 * gw_type_elems(gw_type_of(&b, gw_op_in(&b, o, 0)));
    }
    CHECK(narrow * 2 < wide * 11 / 10 && narrow * 2 > wide);
    gw_graph_release(&a);
    gw_graph_release(&b);
    program_release(&p);
}

/* Weights of standard deviation 0.035 instead of 0.17. */
static void calm_weights(program *p, gw_exec *x) {
    trainer_weights(p, x, 5);
    for (int i = 0; i < p->nparams; i++) {
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->params[i].name));
        if (p->params[i].init == GW_INIT_ONES) continue;
        for (int64_t k = 0; k < t.elems; k++) ((float *)t.data)[k] *= 0.2f;
    }
}

typedef struct curve {
    double first, mean, last; /* nats a token: of step 0, of all steps, of the last ten */
} curve;

/* A step at a learning rate that lets the loss fall evenly, after ten steps of warm-up. */
static double step_at(program *p, gw_exec *x, int s, double peak) {
    int k = p->opts.micro_batches;
    float labels = 115, seed = 1 / (labels * (float)k), one = 1, loss = 0;
    float lr = (float)(peak * fmin(1, (s + 1) / 10.0));
    int64_t number = s + 1;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &p->dg), &p->dg);
    for (int mb = 0; mb < k; mb++) {
        trainer_inputs(p, x, s, mb); /* 144 labels less every fifth: 115 */
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &p->dg), &p->dg);
    }
    CHECK(gw_exec_read(x, "loss", &loss, sizeof loss));
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, &p->dg), &p->dg);
    return (double)loss / ((double)labels * k);
}

static curve train(gw_dtype compute, bool fp8, bool pow2, int steps, int micro_batches) {
    program p;
    fp8_program(&p, GW_FAMILY_LLAMA);
    p.opts.compute = p.build.compute = compute;
    p.opts.micro_batches = micro_batches;
    gw_graph g;
    gw_exec *x = NULL;
    make(&p, NULL, fp8, pow2, NULL, &g);
    gw_exec_opts eo = {.machine = p.machine};
    CHECK_OK(gw_exec_new(&x, &g, &eo, &p.dg), &p.dg);
    gw_graph_release(&g);
    calm_weights(&p, x);
    curve c = {0};
    for (int s = 0; s < steps; s++) {
        double loss = step_at(&p, x, s, 2e-3);
        CHECK(isfinite(loss));
        if (s == 0) c.first = loss;
        c.mean += loss / steps;
        if (s >= steps - 10) c.last += loss / 10;
    }
    gw_exec_free(x);
    program_release(&p);
    return c;
}

/* The mean loss of a run is a smooth function of it, where the loss falls evenly. DeepSeek-V3
 * reports less than 0.25 % between its recipe and bf16 on two models of up to 230 B parameters; a
 * run this short, of 3,600 tokens, is given 1 %. */
TEST_WITHIN(fp8_trains_as_bf16_does, 120) {
    curve f32 = train(GW_F32, false, false, 50, 1), bf16 = train(GW_BF16, false, false, 50, 1);
    curve fp8 = train(GW_BF16, true, false, 50, 1), pow2 = train(GW_BF16, true, true, 50, 1);
    test_note("float32 %.4f %.4f %.4f, bf16 %.4f %.4f %.4f", f32.first, f32.mean, f32.last,
              bf16.first, bf16.mean, bf16.last);
    test_note("fp8 %.4f %.4f %.4f, powers of two %.4f %.4f %.4f", fp8.first, fp8.mean, fp8.last,
              pow2.first, pow2.mean, pow2.last);
    CHECK(bf16.last < 0.1 * bf16.first); /* it has learned something */
    CHECK(fp8.first != bf16.first && pow2.first != fp8.first);
    CHECK_NEAR(fp8.mean, bf16.mean, 0.01 * bf16.mean);
    CHECK_NEAR(pow2.mean, bf16.mean, 0.01 * bf16.mean);
}

TEST_WITHIN(fp8_accumulates_over_micro_batches, 60) {
    curve c = train(GW_BF16, true, true, 3, 3);
    CHECK(c.last > 0);
}

/* ---- placements ---- */

static void cut_over(program *p, int tp, bool sequence) {
    gw_param_info *infos = gw_arena_new(&p->mem, gw_param_info, p->nparams);
    memcpy(infos, p->opts.params, sizeof *infos * (size_t)p->nparams);
    for (int i = 0; i < p->nparams; i++)
        snprintf(infos[i].cut, sizeof infos[i].cut, "%s", gw_placement_default(&p->params[i]));
    p->opts.params = infos;
    p->opts.layout.sequence_parallel = sequence;
    gw_mesh_add(&p->mesh, "tp", tp);
}

/* Is the dimension of v that is called `name` cut? */
static bool is_cut(const gw_graph *g, gw_vid v, const char *name) {
    const gw_type *t = gw_type_of(g, v);
    int i = gw_type_find(t, name);
    return i >= 0 && t->dims[i].naxes > 0;
}

/* Every pair of values and scales that a product reads is cut alike, and through no block. */
static void check_cuts(const gw_graph *g) {
    int n = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!is_op(g, o, "fp8_matmul") && !is_op(g, o, "fp8_matmul_dw")) continue;
        for (int k = 0; k < 4; k += 2) {
            const gw_type *v = gw_type_of(g, gw_op_in(g, o, k)),
                          *s = gw_type_of(g, gw_op_in(g, o, k + 1));
            for (int d = 0; d < v->ndim; d++) {
                CHECK(gw_dim_same_cut(&v->dims[d], &s->dims[d]));
                if (s->dims[d].size != v->dims[d].size)
                    CHECK(gw_fp8_blocks_are_whole(v, d, &g->mesh));
            }
        }
        n++;
    }
    CHECK_EQ(n, 3 * 14);
}

/* The sharded graph of a llama of 4 heads of 64; the caller releases both. */
static void placed(program *p, int64_t ffn, int tp, bool sequence, gw_graph *g) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    m.hidden = 256;
    m.heads = m.kv_heads = 4;
    m.head_dim = 64;
    m.ffn = ffn;
    m.max_positions = 256;
    program_init(p, &m, 2, 256);
    p->opts.compute = p->build.compute = GW_BF16;
    cut_over(p, tp, sequence);
    gw_fp8_opts o = {0};
    gw_graph_init(g, gw_ops_table());
    CHECK_OK(gw_model_build(g, &p->model, &p->build, &p->dg), &p->dg);
    CHECK_OK(gw_fp8_rewrite(g, &o, NULL, &p->dg), &p->dg);
    g->mesh = p->mesh;
    CHECK_OK(gw_compile(g, &p->opts, "shard", NULL, &p->dg), &p->dg);
}

TEST(fp8_placements_cut_no_block) {
    static const struct {
        int64_t ffn;
        int tp;
        bool sequence, cut; /* cut: is the feed-forward's product shared out? */
    } all[] = {
        {512, 2, false, true}, {512, 2, true, true}, {512, 4, true, true}, {272, 2, true, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        program p;
        gw_graph g;
        placed(&p, all[i].ffn, all[i].tp, all[i].sequence, &g);
        check_cuts(&g);
        for (int64_t k = 0; k < g.ops.count; k++) {
            const gw_op *op = &g.ops.items[k];
            if (!is_op(&g, op, "fp8_matmul") || op->phase != GW_PHASE_F) continue;
            const gw_type *w = gw_type_of(&g, gw_op_in(&g, op, 2));
            if (gw_type_find(w, "f") >= 0)
                CHECK_EQ(is_cut(&g, gw_op_in(&g, op, 2), "f"), all[i].cut);
            if (gw_type_find(w, "h") >= 0) CHECK(is_cut(&g, gw_op_in(&g, op, 2), "h"));
        }
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* With sequence parallelism what is gathered for a column-parallel product are bytes and scales. */
TEST(fp8_travels_in_eight_bits) {
    program p;
    gw_graph g;
    placed(&p, 512, 2, true, &g);
    int bytes = 0;
    for (int64_t k = 0; k < g.ops.count; k++) {
        const gw_op *op = &g.ops.items[k];
        if (!is_op(&g, op, "all_gather") || op->phase != GW_PHASE_F) continue;
        bytes += gw_type_of(&g, gw_op_out(&g, op, 0))->dtype == GW_F8E4M3;
    }
    CHECK(bytes >= 2 * 2); /* before q k v and before gate up, in two layers */
    gw_graph_release(&g);
    program_release(&p);
}
