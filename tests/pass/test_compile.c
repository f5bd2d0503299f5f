// SPDX-License-Identifier: Apache-2.0
// The pipeline as a whole: after every pass the graph verifies, prints, parses and is the same
// again; two compilations give one program; large models compile in seconds.
#include <string.h>
#include <time.h>

#include "../harness.h"
#include "base/str.h"  /* gw_str */
#include "ir/text.h"   /* gw_graph_print, gw_graph_parse */
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/ops.h"   /* gw_ops_table */
#include "programs.h"

static void check_text(program *p, const gw_graph *g, const char *pass) {
    gw_str text = {0}, plain = {0}, back = {0};
    gw_graph again;
    char why[256] = "";
    CHECK_OK(gw_graph_verify(g, &p->dg), &p->dg);
    gw_graph_print(g, &text, true);
    gw_graph_print(g, &plain, false);
    CHECK_OK(gw_graph_parse(&again, g->table, gw_str_c(&text), (int64_t)text.len, pass, &p->dg),
             &p->dg);
    CHECK_MSG(gw_graph_equal(g, &again, why, sizeof why), "after %s: %s", pass, why);
    gw_hash128 a = gw_graph_hash(g), b = gw_graph_hash(&again);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    gw_graph_print(&again, &back, false);
    CHECK_STR(gw_str_c(&plain), gw_str_c(&back));
    gw_graph_release(&again);
    gw_str_release(&text);
    gw_str_release(&plain);
    gw_str_release(&back);
}

typedef struct mode {
    const char *name;
    gw_build_mode build;
    bool train;
    int micro_batches;
    gw_dtype compute, master;
    gw_recompute_kind recompute;
    gw_optim_kind optim;
} mode;

static const mode modes[] = {
    {"train", GW_BUILD_LOSS, true, 1, GW_F32, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
    {"train x3 bf16 selective", GW_BUILD_LOSS, true, 3, GW_BF16, GW_F32, GW_RECOMPUTE_SELECTIVE,
     GW_OPTIM_MUON},
    {"train bf16 full", GW_BUILD_LOSS, true, 1, GW_BF16, GW_BF16, GW_RECOMPUTE_FULL, GW_OPTIM_SGD},
    {"train x2 fp16", GW_BUILD_LOSS, true, 2, GW_F16, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
    {"loss", GW_BUILD_LOSS, false, 1, GW_F32, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
    {"logits bf16", GW_BUILD_LOGITS, false, 1, GW_BF16, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
    {"cached", GW_BUILD_CACHED, false, 1, GW_F32, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
    {"cached bf16", GW_BUILD_CACHED, false, 1, GW_BF16, GW_BF16, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW},
};

static void apply_mode(program *p, const mode *m) {
    p->build.mode = m->build;
    p->build.training = m->train;
    p->build.packed = m->build == GW_BUILD_LOSS;
    p->build.cache = m->build == GW_BUILD_CACHED ? 32 : 0;
    p->opts.train = m->train;
    p->opts.micro_batches = m->micro_batches;
    p->opts.compute = m->compute;
    p->opts.gradients = m->compute;
    p->opts.master = p->opts.moments = m->master;
    p->opts.recompute.kind = m->recompute;
    p->opts.optim.kind = m->optim;
}

static void every_pass(gw_family f, const mode *m) {
    gw_model model = tiny_model(f, 2);
    program p;
    program_init(&p, &model, 2, 8);
    apply_mode(&p, m);
    gw_graph g;
    program_make(&p, "build", &g, NULL);
    check_text(&p, &g, "build");
    gw_graph_release(&g);
    for (int i = 0; gw_pass_name(i); i++) {
        program_make(&p, gw_pass_name(i), &g, NULL);
        check_text(&p, &g, gw_pass_name(i));
        gw_graph_release(&g);
    }
    program_release(&p);
}

static void every_pass_of(gw_family f) {
    for (size_t i = 0; i < GW_COUNT(modes); i++) {
        test_note("%s", modes[i].name);
        every_pass(f, &modes[i]);
    }
}

TEST(every_pass_prints_parses_verifies_gpt2) { every_pass_of(GW_FAMILY_GPT2); }
TEST(every_pass_prints_parses_verifies_llama) { every_pass_of(GW_FAMILY_LLAMA); }
TEST(every_pass_prints_parses_verifies_qwen2) { every_pass_of(GW_FAMILY_QWEN2); }
TEST(every_pass_prints_parses_verifies_qwen3) { every_pass_of(GW_FAMILY_QWEN3); }
TEST(every_pass_prints_parses_verifies_mistral) { every_pass_of(GW_FAMILY_MISTRAL); }

TEST(two_compilations_give_one_program) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (size_t i = 0; i < GW_COUNT(modes); i++) {
            gw_hash128 h[2];
            for (int k = 0; k < 2; k++) {
                gw_model model = tiny_model((gw_family)f, 3);
                program p;
                program_init(&p, &model, 2, 8);
                apply_mode(&p, &modes[i]);
                gw_graph g;
                program_make(&p, NULL, &g, NULL);
                h[k] = gw_graph_hash(&g);
                gw_graph_release(&g);
                program_release(&p);
            }
            CHECK(memcmp(&h[0], &h[1], sizeof h[0]) == 0);
        }
}

static void check_offset_is_caught(program *p, gw_graph *g, gw_vid v, int64_t offset,
                                   const char *says) {
    int64_t kept = g->values.items[v].offset;
    gw_graph out;
    g->values.items[v].offset = offset;
    CHECK_FAILS(gw_pass_check(&out, g, &p->opts, NULL, &p->dg), &p->dg, says);
    g->values.items[v].offset = kept;
    CHECK_OK(gw_pass_check(&out, g, &p->opts, NULL, &p->dg), &p->dg);
    gw_graph_release(&out);
}

TEST(check_refuses_a_program_with_bad_offsets) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    program p;
    program_init(&p, &m, 2, 8);
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    gw_vid a = gw_graph_find(&g, GW_ROLE_PARAM, "layers.0.attn.q.weight");
    gw_vid b = gw_graph_find(&g, GW_ROLE_PARAM, "layers.0.attn.o.weight");
    gw_vid tokens = gw_graph_find(&g, GW_ROLE_INPUT, "tokens");
    CHECK(a != GW_NONE && b != GW_NONE && tokens != GW_NONE);
    check_offset_is_caught(&p, &g, tokens, g.values.items[a].offset, "overlap");
    check_offset_is_caught(&p, &g, tokens, g.arena_bytes[GW_MEM_DEVICE] - 4, "outside");
    check_offset_is_caught(&p, &g, tokens, -1, "no bytes");
    check_offset_is_caught(&p, &g, a, g.values.items[b].offset, "tied");
    gw_graph_release(&g);
    program_release(&p);
}

/* A micro-batch that does not divide over its ranks is refused before anything is allocated. */
TEST(a_micro_batch_that_does_not_divide_is_refused) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
    program p;
    program_init(&p, &m, 1, 8);
    gw_graph g;
    program_make(&p, "build", &g, NULL);
    (void)gw_mesh_add(&g.mesh, "dp", 4);
    CHECK_FAILS(gw_compile(&g, &p.opts, NULL, NULL, &p.dg), &p.dg, "4 data-parallel ranks");
    gw_graph_release(&g);
    program_release(&p);
}

static double cpu_seconds(const char *preset, gw_recompute_opts policy) {
    program p;
    program_init_preset(&p, preset, 1, 4096);
    p.opts.compute = GW_BF16;
    p.opts.micro_batches = 8;
    p.opts.recompute = policy;
    gw_graph g;
    gw_compile_report r;
    clock_t t0 = clock();
    program_make(&p, NULL, &g, &r);
    double s = (double)(clock() - t0) / CLOCKS_PER_SEC;
    test_note("%s: %lld ops, %lld values, %.2f s", preset, (long long)g.ops.count,
              (long long)g.values.count, s);
    CHECK(g.arena_bytes[GW_MEM_DEVICE] >= r.place.lower_bound_bytes);
    gw_graph_release(&g);
    program_release(&p);
    return s;
}

/* Seconds of one core in release mode; sanitizers and debug builds check after every pass and are
 * slower. */
TEST(large_models_compile_in_seconds) {
    double s = cpu_seconds("llama3-405b", (gw_recompute_opts){.kind = GW_RECOMPUTE_NONE});
    s = fmax(s, cpu_seconds("llama3-405b", (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL}));
#if !defined(GW_DEBUG) && !defined(__SANITIZE_THREAD__)
    CHECK_MSG(s < 5, "%.1f s", s); /* ten times what it takes: a bound on order, not on luck */
#endif
}
