// SPDX-License-Identifier: Apache-2.0
// Reading weights: a tensor counts only in the very shape its format gives it. As many elements in
// another order of dimensions are another matrix, and a model loaded from it runs and is wrong.
#include <stdio.h>
#include <string.h>

#include "../file/gguf_maker.h"
#include "../harness.h"
#include "golden.h"

/* The golden weights written again, with tensor `victim` (NULL: none) in shape `dims`. */
static gw_status load_reshaped(golden *g, gw_exec *x, const char *victim, int ndim,
                               const int64_t *dims) {
    gw_st_set *s = NULL;
    CHECK_OK(gw_st_open(g->dir, &s, &g->dg), &g->dg);
    const char *path = test_tmp_path("model.safetensors");
    gw_st_writer *w = gw_st_writer_new(path);
    for (int64_t i = 0; i < gw_st_count(s); i++) {
        const gw_st_tensor *t = gw_st_get(s, i);
        bool hit = victim && strcmp(t->name, victim) == 0;
        CHECK_OK(gw_st_writer_declare(w, t->name, t->dtype, hit ? ndim : t->ndim,
                                      hit ? dims : t->dims, &g->dg),
                 &g->dg);
    }
    CHECK_OK(gw_st_writer_begin(w, &g->dg), &g->dg);
    for (int64_t i = 0; i < gw_st_count(s); i++) {
        const gw_st_tensor *t = gw_st_get(s, i);
        CHECK_OK(gw_st_writer_put(w, t->name, t->data, t->bytes, &g->dg), &g->dg);
    }
    CHECK_OK(gw_st_writer_finish(w, &g->dg), &g->dg);
    gw_st_writer_free(w);
    gw_st_free(s);
    return gw_weights_load(x, &g->model, g->params, g->nparams, path, &g->dg);
}

typedef struct reshaped {
    const char *name;
    int ndim;
    int64_t dims[3];
    const char *has, *needs;
} reshaped;

static void refuse_shapes(const char *model, const reshaped *cases, int n) {
    golden g;
    golden_open(&g, model, NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOGITS, false, 1);
    CHECK_OK(load_reshaped(&g, x, NULL, 0, NULL), &g.dg);
    for (int i = 0; i < n; i++) {
        gw_diags_clear(&g.dg);
        gw_status st = load_reshaped(&g, x, cases[i].name, cases[i].ndim, cases[i].dims);
        CHECK_FAILS(st, &g.dg, cases[i].name);
        CHECK_FAILS(st, &g.dg, cases[i].has);
        CHECK_FAILS(st, &g.dg, cases[i].needs);
    }
    gw_exec_free(x);
    golden_close(&g);
}

/* Llama: hidden 32, 4 heads of 8, 2 key-value heads, so k is [16, 32]. */
TEST(weights_of_another_shape_are_refused_llama) {
    static const reshaped cases[] = {
        {"model.layers.0.self_attn.k_proj.weight", 2, {32, 16}, "[32, 16]", "[16, 32]"},
        {"model.layers.0.self_attn.k_proj.weight", 1, {512}, "[512]", "[16, 32]"},
        {"model.layers.0.self_attn.k_proj.weight", 3, {2, 8, 32}, "[2, 8, 32]", "[16, 32]"},
        {"model.embed_tokens.weight", 2, {32, 97}, "[32, 97]", "[97, 32]"},
        {"lm_head.weight", 2, {32, 97}, "[32, 97]", "[97, 32]"},
        {"model.norm.weight", 2, {1, 32}, "[1, 32]", "[32]"},
        {"model.norm.weight", 2, {32, 1}, "[32, 1]", "[32]"},
    };
    refuse_shapes("llama", cases, (int)GW_COUNT(cases));
}

/* GPT-2's Conv1D keeps matrices [in, out], the fused one as well; its tables are [rows, hidden]. */
TEST(weights_of_another_shape_are_refused_gpt2) {
    golden g;
    golden_open(&g, "gpt2", NULL, false);
    int64_t d = g.model.hidden, f = g.model.ffn, v = g.model.vocab;
    golden_close(&g);
    char has[4][48], needs[4][48];
    reshaped cases[] = {
        {"transformer.h.0.attn.c_attn.weight", 2, {3 * d, d}, has[0], needs[0]},
        {"transformer.h.0.attn.c_attn.bias", 2, {3, d}, has[1], needs[1]},
        {"transformer.h.1.mlp.c_fc.weight", 2, {f, d}, has[2], needs[2]},
        {"transformer.wte.weight", 2, {d, v}, has[3], needs[3]},
    };
    const int64_t want[4][2] = {{d, 3 * d}, {3 * d, 0}, {d, f}, {v, d}};
    for (int i = 0; i < 4; i++) {
        snprintf(has[i], sizeof has[i], "[%lld, %lld]", (long long)cases[i].dims[0],
                 (long long)cases[i].dims[1]);
        snprintf(needs[i], sizeof needs[i], want[i][1] ? "[%lld, %lld]" : "[%lld]",
                 (long long)want[i][0], (long long)want[i][1]);
    }
    refuse_shapes("gpt2", cases, (int)GW_COUNT(cases));
}

/* A GGUF file of the model's shapes and zeros, with tensor `victim` turned. */
static gw_status load_gguf(golden *g, gw_exec *x, const char *victim) {
    gguf_maker m = {.version = 3};
    maker_str(&m, "general.architecture", "llama");
    for (int i = 0; i < g->nparams; i++) {
        const gw_param *p = &g->params[i];
        int64_t n = gw_type_elems(&p->type), out = 1, in = 1;
        for (int k = 0; k < p->type.ndim; k++)
            *(k < p->rows || p->rows == 0 ? &out : &in) *= p->type.dims[k].size;
        bool turn = victim && strcmp(victim, p->gguf) == 0;
        int64_t dims[2] = {turn ? in : out, turn ? out : in};
        void *zeros = gw_mem_zalloc((size_t)n * 4);
        maker_tensor(&m, p->gguf, GW_GGML_F32, p->rows == 0 && !turn ? 1 : 2, dims, zeros,
                     (size_t)n * 4);
        gw_mem_free(zeros);
    }
    const char *path = test_tmp_path("model.gguf");
    maker_finish(&m, path);
    return gw_weights_load(x, &g->model, g->params, g->nparams, path, &g->dg);
}

TEST(weights_of_another_shape_are_refused_gguf) {
    golden g;
    golden_open(&g, "llama", NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOGITS, false, 1);
    CHECK_OK(load_gguf(&g, x, NULL), &g.dg);
    CHECK_FAILS(load_gguf(&g, x, "blk.0.attn_k.weight"), &g.dg, "[32, 16]");
    gw_diags_clear(&g.dg);
    CHECK_FAILS(load_gguf(&g, x, "output_norm.weight"), &g.dg, "[1, 32]");
    gw_exec_free(x);
    golden_close(&g);
}
