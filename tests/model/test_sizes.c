// SPDX-License-Identifier: Apache-2.0
// Any sizes at all give an error or a program: no number that a configuration can hold reaches an
// overflow further down.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "base/rng.h" /* gw_rng_u64 */
#include "ops/ops.h"  /* gw_ops_table */
#include "pass/pass.h"
#include "run/exec.h"       /* gw_exec_workspace, gw_machine_this */
#include "train/hf_model.h" /* gw_model_from_hf */

static gw_model small(gw_family f) {
    gw_model m = gw_model_defaults(f);
    m.layers = 2;
    m.hidden = 64;
    m.heads = m.kv_heads = 4;
    m.head_dim = 16;
    m.ffn = 128;
    m.vocab = 100;
    if (m.moe.experts > 0) m.moe.ffn = 24;
    if (f == GW_FAMILY_DEEPSEEK)
        m.mla = (gw_mla){.q_rank = 12, .kv_rank = 8, .nope = 12, .rope = 4, .v = 6};
    return m;
}

/* Builds and compiles a training step (or a cached program); its bytes are counted without a panic.
 */
static gw_status compiled(const gw_model *m, const gw_build_opts *b, int64_t *bytes, gw_diags *dg) {
    gw_graph g;
    gw_arena a = {0};
    gw_graph_init(&g, gw_ops_table());
    gw_status st = gw_model_build(&g, m, b, dg);
    if (st == GW_OK) {
        gw_param *p;
        int n;
        gw_model_params(m, &a, &p, &n);
        gw_param_info *infos = gw_arena_new(&a, gw_param_info, n);
        for (int i = 0; i < n; i++)
            infos[i] = (gw_param_info){
                .name = p[i].name, .decay = p[i].decay, .hidden = p[i].hidden, .rows = p[i].rows};
        gw_machine machine = gw_machine_this(2);
        gw_compile_opts o = {.train = b->mode == GW_BUILD_LOSS,
                             .compute = GW_F32,
                             .gradients = GW_F32,
                             .master = GW_F32,
                             .moments = GW_F32,
                             .micro_batches = 3,
                             .params = infos,
                             .nparams = n,
                             .workspace = gw_exec_workspace,
                             .workspace_user = &machine};
        o.optim = (gw_optim_opts){.kind = GW_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
        st = gw_compile(&g, &o, NULL, NULL, dg);
        *bytes = g.arena_bytes[GW_MEM_DEVICE];
        CHECK(st != GW_OK || *bytes > 0);
    }
    gw_graph_release(&g);
    gw_arena_release(&a);
    return st;
}

static gw_build_opts step_of(int64_t batch, int64_t seq) {
    return (gw_build_opts){
        .mode = GW_BUILD_LOSS, .batch = batch, .seq = seq, .compute = GW_F32, .training = true};
}

TEST(a_step_too_large_to_count_is_refused_by_its_keys) {
    static const int64_t sizes[][2] = {
        {1000000000, 16777216},
        {INT32_MAX, INT32_MAX},
        {INT64_MAX, INT64_MAX},
        {INT64_MAX, 1},
        {1, INT64_MAX},
        {0, 8},
        {8, 0},
        {-1, 8},
        {8, INT64_MIN},
    };
    gw_model m = small(GW_FAMILY_LLAMA);
    for (size_t i = 0; i < GW_COUNT(sizes); i++) {
        gw_diags dg = {0};
        int64_t bytes = 0;
        gw_build_opts b = step_of(sizes[i][0], sizes[i][1]);
        gw_status st = compiled(&m, &b, &bytes, &dg);
        CHECK_EQ(st, GW_ERR_CONFIG);
        CHECK_FAILS(st, &dg, "train.micro_batch");
        CHECK_FAILS(st, &dg, "train.seq_len");
        gw_diags_clear(&dg);
        b.mode = GW_BUILD_CACHED;
        b.seq = 1;
        b.cache = sizes[i][0];
        b.batch = sizes[i][1];
        CHECK_FAILS(gw_model_build(&(gw_graph){0}, &m, &b, &dg), &dg, "cache");
        gw_diags_release(&dg);
    }
}

TEST(a_model_too_large_to_count_is_refused_by_its_keys) {
    gw_diags dg = {0};
    gw_model m = small(GW_FAMILY_LLAMA);
    m.layers = 1024;
    m.hidden = 1048576;
    m.heads = m.kv_heads = 4096;
    m.head_dim = 256;
    m.ffn = 4194304;
    CHECK_FAILS(gw_model_check(&m, &dg), &dg, "model.layers, hidden, ffn");
    gw_diags_clear(&dg);
    m = small(GW_FAMILY_QWEN3);
    m.hidden = m.vocab = m.ffn = m.heads = m.kv_heads = INT32_MAX;
    m.head_dim = 1024;
    CHECK_FAILS(gw_model_check(&m, &dg), &dg, "too large");
    gw_diags_clear(&dg);
    m = small(GW_FAMILY_GPT2);
    m.max_positions = INT64_MAX;
    CHECK_FAILS(gw_model_check(&m, &dg), &dg, "model.max_positions");
    gw_diags_release(&dg);
}

/* The largest published sizes and long contexts are far inside. */
TEST(every_preset_and_a_long_context_are_accepted) {
    gw_diags dg = {0};
    for (int i = 0; gw_model_preset_name(i); i++) {
        gw_model m;
        CHECK(gw_model_preset(gw_model_preset_name(i), &m));
        gw_build_opts b = step_of(64, 131072);
        if (m.family == GW_FAMILY_GPT2) b.seq = m.max_positions;
        gw_graph g;
        gw_graph_init(&g, gw_ops_table());
        CHECK_OK(gw_model_build(&g, &m, &b, &dg), &dg);
        gw_graph_release(&g);
    }
    gw_diags_release(&dg);
}

typedef struct dice {
    gw_rng_key key;
    uint64_t at;
} dice;

static uint64_t below(dice *d, uint64_t n) { return gw_rng_u64(d->key, d->at++) % n; }

/* Mostly small, at times next to a power of two of any size, zero or negative. */
static int64_t some_size(dice *r, int64_t usual) {
    uint64_t kind = below(r, 8);
    if (kind < 4) return usual;
    if (kind == 4) return (int64_t)below(r, 3) - 1;
    return (INT64_C(1) << below(r, kind == 5 ? 63 : 32)) - (int64_t)below(r, 2);
}

TEST(any_sizes_give_an_error_or_a_program) {
    dice r = {gw_rng_key_named(7, "sizes"), 0};
    int made = 0, refused = 0;
    for (int i = 0; i < 1500; i++) {
        gw_model m = small((gw_family)(i % GW_FAMILY_COUNT));
        bool gpt2 = m.family == GW_FAMILY_GPT2;
        m.heads = some_size(&r, m.heads);
        m.kv_heads = gpt2 ? m.heads : some_size(&r, m.heads);
        m.head_dim = some_size(&r, m.head_dim);
        m.hidden = some_size(&r, m.hidden);
        if (gpt2 && m.heads > 0 && m.heads < INT32_MAX && m.head_dim > 0 && m.head_dim < 2000)
            m.hidden = m.heads * m.head_dim;
        m.ffn = some_size(&r, m.ffn);
        m.vocab = some_size(&r, m.vocab);
        m.window = i % 3 ? 0 : some_size(&r, 8);
        m.max_positions = some_size(&r, 1024);
        gw_build_opts b = step_of(some_size(&r, 2), some_size(&r, 16));
        if (i % 4 == 0) {
            b.mode = GW_BUILD_CACHED;
            b.training = false;
            b.cache = some_size(&r, 32);
        }
        gw_diags dg = {0};
        int64_t bytes = 0;
        gw_status st = compiled(&m, &b, &bytes, &dg);
        CHECK(st == GW_OK || dg.nerrors > 0);
        *(st == GW_OK ? &made : &refused) += 1;
        gw_diags_release(&dg);
    }
    CHECK_MSG(made > 50 && refused > 50, "%d made, %d refused", made, refused);
}

/* A public configuration gets as far as its parameters with sizes that fit 31 bits each. */
TEST(a_public_configuration_too_large_to_count_is_refused) {
    gw_diags dg = {0};
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    gw_hf_config_defaults(c, GW_HF_LLAMA);
    c->layers = 1024;
    c->vocab_size = c->hidden_size = c->intermediate_size = INT32_MAX;
    c->heads = c->kv_heads = INT32_MAX;
    c->head_dim = 1024;
    CHECK_OK(gw_hf_config_check(c, "config.json", &dg), &dg);
    gw_model m;
    CHECK_FAILS(gw_model_from_hf(c, "config.json", &m, &dg), &dg, "too large");
    gw_mem_free(c);
    gw_diags_release(&dg);
}
