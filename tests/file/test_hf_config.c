// SPDX-License-Identifier: Apache-2.0
// file/hf_config: published configurations, both spellings, refusals by name, writing, GGUF.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h" /* gw_path_exists */
#include "damage.h"
#include "file/hf_config.h"
#include "gguf_maker.h"
#include "harness.h"

static gw_diags dg;

static gw_hf_config parse(const char *text) {
    json_t *v = NULL;
    gw_hf_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_parse(text, strlen(text), "config.json", &v, &dg), &dg);
    CHECK_OK(gw_hf_config_parse(v, "config.json", &c, &dg), &dg);
    json_decref(v);
    gw_diags_release(&dg);
    return c;
}

static void refuse(const char *text, const char *expected) {
    json_t *v = NULL;
    gw_hf_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_parse(text, strlen(text), "config.json", &v, &dg), &dg);
    CHECK_FAILS(gw_hf_config_parse(v, "config.json", &c, &dg), &dg, expected);
    json_decref(v);
    gw_diags_release(&dg);
}

/* --- as published ------------------------------------------------------------------------------
 */

TEST(hf_gpt2_124m) {
    gw_hf_config c =
        parse("{\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1,"
              "\"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256,"
              "\"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024,"
              "\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024,"
              "\"resid_pdrop\": 0.1, \"vocab_size\": 50257}");
    CHECK_EQ(c.family, GW_HF_GPT2);
    CHECK_EQ(c.intermediate_size, 3072);
    CHECK_EQ(c.head_dim, 64);
    CHECK_EQ(c.kv_heads, 12);
    CHECK(c.tie_word_embeddings && c.qkv_bias && c.attention_out_bias && c.mlp_bias && !c.qk_norm);
    CHECK_EQ(c.act, GW_HF_GELU_TANH);
    CHECK_EQ(c.rope, GW_HF_ROPE_NONE);
    CHECK(c.neos == 1 && c.eos_token_id[0] == 50256);
    CHECK_NEAR(c.resid_dropout, 0.1, 0);
    CHECK_NEAR(c.norm_eps, 1e-5, 0);
}

#define LLAMA31                                                                                    \
    "\"model_type\": \"llama\", \"attention_bias\": false, \"bos_token_id\": 128000,"              \
    "\"eos_token_id\": [128001, 128008, 128009], \"hidden_act\": \"silu\", \"hidden_size\": 4096," \
    "\"intermediate_size\": 14336, \"max_position_embeddings\": 131072, \"mlp_bias\": false,"      \
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8,"          \
    "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": false,"              \
    "\"vocab_size\": 128256"
#define LLAMA31_ROPE                                                                               \
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"                        \
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\""

/* With both spellings in one file, rope_scaling counts and rope_parameters does not, in
 * transformers 4 (which knows no rope_parameters) and 5 (where the one replaces the other). */
TEST(hf_rope_scaling_replaces_rope_parameters) {
    gw_hf_config want = parse("{" LLAMA31 ", \"rope_theta\": 500000.0,"
                              "\"rope_scaling\": {" LLAMA31_ROPE "}}");
    gw_hf_config got = parse("{" LLAMA31 ", \"rope_theta\": 500000.0,"
                             "\"rope_scaling\": {" LLAMA31_ROPE "},"
                             "\"rope_parameters\": {\"rope_type\": \"default\"}}");
    CHECK(memcmp(&got, &want, sizeof got) == 0);
    got = parse("{" LLAMA31 ", \"rope_scaling\": {\"rope_theta\": 500000.0, " LLAMA31_ROPE "},"
                "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"linear\","
                "\"factor\": 2.0}}");
    CHECK(memcmp(&got, &want, sizeof got) == 0);
    /* Nothing in it replaces nothing. */
    const char *const empty[] = {"null", "{}"};
    for (int i = 0; i < 2; i++) {
        char text[1500];
        snprintf(text, sizeof text,
                 "{" LLAMA31 ", \"rope_scaling\": %s, \"rope_parameters\": {\"rope_theta\":"
                 "500000.0, " LLAMA31_ROPE "}}",
                 empty[i]);
        got = parse(text);
        CHECK(memcmp(&got, &want, sizeof got) == 0);
    }
    /* A base that only the replaced one gives would be lost. */
    refuse("{" LLAMA31 ", \"rope_scaling\": {" LLAMA31_ROPE "},"
           "\"rope_parameters\": {\"rope_theta\": 500000.0, " LLAMA31_ROPE "}}",
           "'rope_scaling' takes the place of 'rope_parameters'");
    refuse("{" LLAMA31 ", \"rope_scaling\": 3}", "rope_scaling");
}

/* The v4 and the v5 spelling of Llama 3.1 8B mean the same. */
TEST(hf_llama31_in_both_spellings) {
    gw_hf_config a = parse("{" LLAMA31 ", \"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\","
                           "\"rope_scaling\": {" LLAMA31_ROPE "}}");
    gw_hf_config b = parse("{" LLAMA31 ", \"head_dim\": null, \"dtype\": \"bfloat16\","
                           "\"rope_parameters\": {\"rope_theta\": 500000.0, " LLAMA31_ROPE "}}");
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    CHECK_EQ(a.head_dim, 128);
    CHECK_EQ(a.rope, GW_HF_ROPE_LLAMA3);
    CHECK_NEAR(a.rope_theta, 500000, 0);
    CHECK_NEAR(a.rope_factor, 8, 0);
    CHECK_NEAR(a.rope_high, 4, 0);
    CHECK_EQ(a.rope_original_max, 8192);
    CHECK(a.neos == 3 && a.eos_token_id[2] == 128009);
    CHECK_STR(a.dtype, "bfloat16");
    CHECK(!a.qkv_bias && !a.mlp_bias && !a.tie_word_embeddings);
}

#define QWEN25                                                                                     \
    "\"model_type\": \"qwen2\", \"attention_dropout\": 0.0, \"bos_token_id\": 151643,"             \
    "\"eos_token_id\": 151645, \"hidden_act\": \"silu\", \"hidden_size\": 896,"                    \
    "\"intermediate_size\": 4864, \"max_position_embeddings\": 32768, \"max_window_layers\": 21,"  \
    "\"num_attention_heads\": 14, \"num_hidden_layers\": 24, \"num_key_value_heads\": 2,"          \
    "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"sliding_window\": 32768,"               \
    "\"tie_word_embeddings\": true, \"vocab_size\": 151936"

TEST(hf_qwen25_05b) {
    gw_hf_config c = parse("{" QWEN25 ", \"use_sliding_window\": false}");
    CHECK(c.qkv_bias && !c.attention_out_bias && !c.mlp_bias);
    CHECK_EQ(c.head_dim, 64);
    CHECK_EQ(c.sliding_window, -1); /* use_sliding_window is off */
    CHECK_EQ(gw_hf_config_window(&c, 23), -1);
    CHECK(c.tie_word_embeddings);
}

/* With the window on, layers from max_window_layers on are windowed. */
TEST(hf_qwen2_windows) {
    gw_hf_config c = parse("{" QWEN25 ", \"use_sliding_window\": true}");
    CHECK_EQ(c.sliding_window, 32768);
    CHECK_EQ(gw_hf_config_window(&c, 20), -1);
    CHECK_EQ(gw_hf_config_window(&c, 21), 32768);
    CHECK_EQ(gw_hf_config_window(&c, 24), -1);
    CHECK_EQ(gw_hf_config_window(&c, -1), -1);
}

TEST(hf_qwen3_06b) {
    gw_hf_config c =
        parse("{\"model_type\": \"qwen3\", \"attention_bias\": false, \"head_dim\": 128,"
              "\"hidden_size\": 1024, \"intermediate_size\": 3072,"
              "\"max_position_embeddings\": 40960, \"max_window_layers\": 28,"
              "\"num_attention_heads\": 16, \"num_hidden_layers\": 2,"
              "\"num_key_value_heads\": 8, \"rope_scaling\": null, \"rope_theta\": 1000000,"
              "\"sliding_window\": null, \"tie_word_embeddings\": true,"
              "\"use_sliding_window\": false, \"vocab_size\": 151936,"
              "\"layer_types\": [\"full_attention\", \"full_attention\"]}");
    CHECK(c.qk_norm && !c.qkv_bias);
    CHECK_EQ(c.head_dim, 128);
    CHECK_EQ(c.heads * c.head_dim, 2 * c.hidden_size);
    CHECK_EQ(c.rope, GW_HF_ROPE_DEFAULT);
    CHECK_NEAR(c.norm_eps, 1e-6, 0);
}

#define MISTRAL                                                                                    \
    "\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336,"            \
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 32"

/* v0.1 has a window of 4096, later versions a null; an absent key is the class's 4096. */
TEST(hf_mistral_windows_and_class_defaults) {
    gw_hf_config c = parse("{" MISTRAL "}");
    CHECK_EQ(c.sliding_window, 4096);
    CHECK_EQ(gw_hf_config_window(&c, 0), 4096);
    CHECK_EQ(c.kv_heads, 8);
    CHECK_EQ(c.max_positions, 131072);
    CHECK_EQ(c.bos_token_id, 1);
    c = parse("{" MISTRAL ", \"sliding_window\": null, \"num_key_value_heads\": null}");
    CHECK_EQ(c.sliding_window, -1);
    CHECK_EQ(gw_hf_config_window(&c, 0), -1);
    CHECK_EQ(c.kv_heads, 32);
}

TEST(hf_class_defaults_of_absent_keys) {
    gw_hf_config c =
        parse("{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"intermediate_size\": 1,"
              "\"num_attention_heads\": 64, \"num_hidden_layers\": 1}");
    CHECK_EQ(c.head_dim, 128); /* not 4096 / 64 */
    CHECK_EQ(c.kv_heads, 32);
    c = parse("{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 1,"
              "\"num_attention_heads\": 4, \"num_hidden_layers\": 1}");
    CHECK_EQ(c.kv_heads, 4);
    CHECK_EQ(c.head_dim, 16);
    CHECK_EQ(c.max_positions, 2048);
    CHECK_NEAR(c.rope_theta, 10000, 0);
    CHECK_NEAR(c.norm_eps, 1e-6, 0);
    CHECK(c.neos == 1 && c.eos_token_id[0] == 2);
}

/* --- refusals ----------------------------------------------------------------------------------
 */

#define TINY                                                                                       \
    "\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128,"                  \
    "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 100"

TEST(hf_refuses_by_name) {
    refuse("{\"model_type\": \"mamba\"}", "'mamba' is not supported");
    refuse("{}", "'model_type' is missing");
    refuse("[1]", "must be a JSON object");
    refuse("{" TINY ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}}",
           "'dynamic'");
    refuse("{" TINY ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}}",
           "'original_max_position_embeddings'");
    refuse("{" TINY ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
           "\"original_max_position_embeddings\": 64, \"attention_factor\": 1.5}}",
           "'attention_factor'");
    refuse("{" TINY ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}}", "'dynamic'");
    refuse("{" TINY ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1.0}}}",
           "layer to layer");
    refuse("{" TINY ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}}",
           "'low_freq_factor' is missing");
    refuse("{" TINY ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0.5}}",
           "at least 1");
    refuse("{" TINY ", \"rope_scaling\": 3}", "'rope_scaling' must be an object");
    refuse("{" TINY ", \"hidden_act\": \"mish\"}", "'mish'");
    refuse("{" TINY ", \"num_local_experts\": 8}", "'num_local_experts'");
    refuse("{" TINY ", \"rope_interleaved\": true}", "'rope_interleaved'");
    refuse("{" TINY ", \"partial_rotary_factor\": 0.5}", "'partial_rotary_factor'");
    refuse("{" TINY ", \"quantization_config\": {\"bits\": 4}}", "'quantization_config'");
    refuse("{" TINY ", \"final_logit_softcapping\": 30.0}", "'final_logit_softcapping'");
    refuse("{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2,"
           "\"scale_attn_by_inverse_layer_idx\": true}",
           "'scale_attn_by_inverse_layer_idx' = true");
    refuse("{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2,"
           "\"scale_attn_weights\": false}",
           "'scale_attn_weights' = false");
    refuse("{" QWEN25 ", \"layer_types\": [\"full_attention\"]}", "'layer_types' lists 1");
    refuse("{" MISTRAL ", \"layer_types\": [\"chunked_attention\"], \"num_hidden_layers2\": 1}",
           "'layer_types'");
}

TEST(hf_refuses_impossible_sizes) {
    refuse("{" TINY ", \"num_key_value_heads\": 3}", "cannot share 3");
    refuse("{" TINY ", \"head_dim\": 7}", "must be even");
    refuse("{" TINY ", \"head_dim\": -2}", "head size");
    refuse("{" TINY ", \"rms_norm_eps\": 0}", "epsilon");
    refuse("{" TINY ", \"attention_dropout\": 1.0}", "dropout of 1");
    refuse("{" TINY ", \"rope_theta\": -1.0}", "theta");
    refuse("{" TINY ", \"num_key_value_heads\": \"4\"}",
           "'num_key_value_heads' must be an integer");
    refuse("{" TINY ", \"eos_token_id\": [1, \"x\"]}", "'eos_token_id'");
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 65, \"intermediate_size\": 128,"
           "\"num_attention_heads\": 4, \"num_hidden_layers\": 2}",
           "not a multiple of 4 heads");
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 9223372036854775807, "
           "\"intermediate_size\": 1,"
           "\"num_attention_heads\": 1, \"num_hidden_layers\": 100000}",
           "hidden size");
    refuse("{\"model_type\": \"gpt2\", \"n_embd\": 9223372036854775807, \"n_layer\": 1, "
           "\"n_head\": 0}",
           "number of heads");
}

/* All faults of a file are reported together. */
TEST(hf_reports_all_faults_at_once) {
    const char *text =
        "{\"model_type\": \"llama\", \"hidden_act\": \"mish\", \"rope_interleaved\": true,"
        "\"rope_scaling\": {\"rope_type\": \"dynamic\"}}";
    json_t *v = NULL;
    gw_hf_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_parse(text, strlen(text), "c", &v, &dg), &dg);
    CHECK(gw_hf_config_parse(v, "c", &c, &dg) != GW_OK);
    CHECK_EQ(dg.nerrors, 3 + 4); /* and four sizes that are missing */
    json_decref(v);
    gw_diags_release(&dg);
}

TEST(hf_unknown_keys_are_noted) {
    const char *text = "{" TINY ", \"frobnicate\": 1, \"use_cache\": true, \"another\": {}}";
    json_t *v = NULL;
    gw_hf_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_parse(text, strlen(text), "c", &v, &dg), &dg);
    CHECK_OK(gw_hf_config_parse(v, "c", &c, &dg), &dg);
    CHECK(dg.first && dg.first == dg.last && dg.first->severity == GW_NOTE);
    CHECK(strstr(dg.first->message, "frobnicate, another") != NULL);
    json_decref(v);
    gw_diags_release(&dg);
}

/* --- writing -----------------------------------------------------------------------------------
 */

/* What is written reads back as the same struct; the struct is compared whole. */
static void round_trip(const gw_hf_config *c) {
    gw_hf_config back;
    gw_diags_init(&dg);
    CHECK_OK(gw_hf_config_write(c, test_tmp_path("out"), &dg), &dg);
    CHECK_OK(gw_hf_config_read(test_tmp_path("out"), &back, &dg), &dg);
    CHECK_EQ(dg.nwarnings, 0);
    CHECK(dg.first == NULL); /* no key of ours is unknown to us */
    CHECK_MSG(memcmp(c, &back, sizeof back) == 0, "%s differs", c->model_type);
    gw_diags_release(&dg);
}

TEST(hf_writes_what_it_reads) {
    gw_hf_config c = parse("{" LLAMA31 ", \"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\","
                           "\"rope_scaling\": {" LLAMA31_ROPE "}}");
    round_trip(&c);
    c = parse("{" TINY ", \"attention_bias\": true, \"mlp_bias\": true, \"eos_token_id\": null,"
              "\"hidden_act\": \"gelu\", \"pad_token_id\": 0, \"rope_scaling\":"
              "{\"type\": \"linear\", \"factor\": 2.5}, \"head_dim\": 20}");
    CHECK(c.mlp_bias && c.qkv_bias && c.attention_out_bias && c.neos == 0);
    round_trip(&c);
    c = parse("{" QWEN25 ", \"use_sliding_window\": true}");
    round_trip(&c);
    c = parse("{" QWEN25 "}");
    round_trip(&c);
    c = parse("{" MISTRAL "}");
    round_trip(&c);
    c = parse("{" MISTRAL ", \"sliding_window\": null}");
    round_trip(&c);
    c = parse(
        "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"n_inner\": 12,"
        "\"activation_function\": \"relu\", \"tie_word_embeddings\": false}");
    round_trip(&c);
    /* Windows that alternate can only be said by layer_types. */
    gw_hf_config_defaults(&c, GW_HF_QWEN3);
    c.vocab_size = 10, c.hidden_size = 16, c.intermediate_size = 8, c.layers = 4, c.heads = 2;
    c.kv_heads = 1, c.head_dim = 4, c.sliding_window = 3;
    c.windowed[0] = c.windowed[2] = true;
    round_trip(&c);
}

TEST(hf_written_file_names_the_architecture) {
    gw_hf_config c = parse("{" QWEN25 "}");
    json_t *v = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_hf_config_to_json(&c, &v, &dg), &dg);
    CHECK_STR(json_string_value(json_array_get(json_object_get(v, "architectures"), 0)),
              "Qwen2ForCausalLM");
    CHECK(json_is_null(json_object_get(v, "rope_scaling")));
    CHECK_NEAR(json_real_value(json_object_get(v, "rope_theta")), 1e6, 0);
    json_decref(v);
    gw_diags_release(&dg);
}

TEST(hf_refuses_to_write_what_the_family_cannot_say) {
    gw_hf_config plain = parse("{" TINY "}"), c = plain;
    json_t *v = NULL;
    gw_diags_init(&dg);
    c.qkv_bias = true;
    CHECK_FAILS(gw_hf_config_to_json(&c, &v, &dg), &dg, "biases on only some");
    c.qkv_bias = false;
    c.sliding_window = 8;
    c.windowed[1] = true;
    CHECK_FAILS(gw_hf_config_to_json(&c, &v, &dg), &dg, "a sliding window");
    c.windowed[5] = true; /* there are two layers */
    CHECK_FAILS(gw_hf_config_to_json(&c, &v, &dg), &dg, "layer 5");
    c = plain;
    c.qk_norm = true;
    CHECK_FAILS(gw_hf_config_to_json(&c, &v, &dg), &dg, "norms on q and k");
    CHECK(v == NULL);
    gw_diags_release(&dg);
}

/* --- files of the reference library --------------------------------------------------------------
 */

TEST(hf_reads_and_rewrites_golden_configs) {
    static const struct {
        const char *name;
        gw_hf_family family;
        gw_hf_rope rope;
        bool tied, windowed;
    } cases[] = {
        {"gpt2", GW_HF_GPT2, GW_HF_ROPE_NONE, true, false},
        {"llama", GW_HF_LLAMA, GW_HF_ROPE_DEFAULT, false, false},
        {"llama_tied", GW_HF_LLAMA, GW_HF_ROPE_DEFAULT, true, false},
        {"llama31_rope", GW_HF_LLAMA, GW_HF_ROPE_LLAMA3, false, false},
        {"llama31_rope_v5", GW_HF_LLAMA, GW_HF_ROPE_LLAMA3, false, false},
        {"qwen2", GW_HF_QWEN2, GW_HF_ROPE_DEFAULT, true, false},
        {"qwen3", GW_HF_QWEN3, GW_HF_ROPE_DEFAULT, false, false},
        {"mistral", GW_HF_MISTRAL, GW_HF_ROPE_DEFAULT, false, true},
        {"smollm2", GW_HF_LLAMA, GW_HF_ROPE_DEFAULT, true, false},
    };
    int seen = 0;
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        char below[128];
        gw_hf_config c;
        snprintf(below, sizeof below, "golden/models/%s", cases[i].name);
        if (!gw_path_exists(test_source_path(below))) continue;
        seen++;
        gw_diags_init(&dg);
        CHECK_OK(gw_hf_config_read(test_source_path(below), &c, &dg), &dg);
        CHECK_MSG(dg.first == NULL, "%s: %s", below, dg.first->message); /* every key is known */
        gw_diags_release(&dg);
        CHECK_EQ(c.family, cases[i].family);
        CHECK_EQ(c.rope, cases[i].rope);
        CHECK_EQ(c.tie_word_embeddings, cases[i].tied);
        CHECK_EQ(gw_hf_config_window(&c, 0) > 0, cases[i].windowed);
        round_trip(&c);
    }
    if (seen == 0) SKIP("tests/golden/models is not there");
}

/* v5 and v4 spellings of one model agree in everything. */
TEST(hf_golden_spellings_agree) {
    gw_hf_config a, b;
    const char *v4 = test_source_path("golden/models/llama31_rope");
    const char *v5 = test_source_path("golden/models/llama31_rope_v5");
    if (!gw_path_exists(v4) || !gw_path_exists(v5)) SKIP("tests/golden/models is not there");
    gw_diags_init(&dg);
    CHECK_OK(gw_hf_config_read(v4, &a, &dg), &dg);
    CHECK_OK(gw_hf_config_read(v5, &b, &dg), &dg);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    gw_diags_release(&dg);
}

/* --- GGUF --------------------------------------------------------------------------------------
 */

static void start_llama(gguf_maker *m) {
    static const float x[64];
    maker_str(m, "general.architecture", "llama");
    maker_u32(m, "llama.embedding_length", 16);
    maker_u32(m, "llama.block_count", 2);
    maker_u32(m, "llama.attention.head_count", 4);
    maker_u32(m, "llama.attention.head_count_kv", 2);
    maker_u32(m, "llama.feed_forward_length", 24);
    maker_u32(m, "llama.context_length", 128);
    maker_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    maker_f32(m, "llama.rope.freq_base", 100000.0f);
    maker_u32(m, "llama.rope.dimension_count", 4);
    maker_u32(m, "tokenizer.ggml.eos_token_id", 2);
    maker_tensor(m, "token_embd.weight", GW_GGML_F32, 2, (int64_t[]){3, 16}, x, 192);
}

static gw_status from_gguf(gguf_maker *m, gw_hf_config *c) {
    gw_gguf *g = NULL;
    maker_finish(m, test_tmp_path("m.gguf"));
    gw_diags_init(&dg);
    CHECK_OK(gw_gguf_open(test_tmp_path("m.gguf"), &g, &dg), &dg);
    gw_status s = gw_hf_config_from_gguf(g, c, &dg);
    gw_gguf_free(g);
    return s;
}

TEST(hf_from_gguf_llama) {
    gguf_maker m = {0};
    gw_hf_config c;
    start_llama(&m);
    CHECK_OK(from_gguf(&m, &c), &dg);
    CHECK_EQ(c.family, GW_HF_LLAMA);
    CHECK_EQ(c.vocab_size, 3);
    CHECK_EQ(c.head_dim, 4);
    CHECK_EQ(c.kv_heads, 2);
    CHECK(c.tie_word_embeddings && !c.qkv_bias);
    CHECK_NEAR(c.rope_theta, 1e5, 0);
    CHECK_NEAR(c.norm_eps, 1e-5, 0); /* the decimal, not its float32 */
    CHECK(c.neos == 1 && c.eos_token_id[0] == 2 && c.bos_token_id == -1);
    gw_diags_release(&dg);
}

TEST(hf_from_gguf_refusals) {
    gguf_maker m = {0};
    gw_hf_config c;
    maker_str(&m, "general.architecture", "gemma2");
    CHECK_FAILS(from_gguf(&m, &c), &dg, "'gemma2'");
    gw_diags_release(&dg);
    maker_str(&m, "general.architecture", "llama");
    CHECK_FAILS(from_gguf(&m, &c), &dg, "'llama.embedding_length' is missing");
    gw_diags_release(&dg);
    start_llama(&m);
    maker_u32(&m, "llama.expert_count", 8);
    CHECK_FAILS(from_gguf(&m, &c), &dg, "8 experts");
    gw_diags_release(&dg);
    start_llama(&m);
    maker_str(&m, "llama.rope.scaling.type", "yarn");
    CHECK_FAILS(from_gguf(&m, &c), &dg, "'yarn'");
    gw_diags_release(&dg);
    start_llama(&m);
    maker_raw(&m, "llama.attention.value_length", GW_GGUF_U32, "\x05\0\0\0", 4);
    CHECK_FAILS(from_gguf(&m, &c), &dg, "different sizes");
    gw_diags_release(&dg);
}

/* The factors that Llama 3.1's scaling gives for head size 8 and theta 500000, by its definition:
 * the wave of pair i is 2 pi theta^(i/4) tokens long; up to 8192/4 tokens nothing changes, from
 * 8192 on frequencies are divided by 8, between them the two are mixed. */
TEST(hf_from_gguf_recognises_llama31_scaling) {
    for (int broken = 0; broken < 2; broken++) {
        gguf_maker m = {0};
        gw_hf_config c;
        static const float zeros[64];
        float f[4];
        for (int i = 0; i < 4; i++) {
            double wave = 2 * M_PI * pow(500000, i / 4.0);
            double mix = (8192 / wave - 1) / (4 - 1);
            f[i] = wave < 2048 ? 1 : wave > 8192 ? 8 : (float)(1 / ((1 - mix) / 8 + mix));
        }
        CHECK(f[0] == 1 && f[3] == 8);
        if (broken) f[1] *= 1.01f;
        maker_str(&m, "general.architecture", "llama");
        maker_u32(&m, "llama.embedding_length", 8);
        maker_u32(&m, "llama.block_count", 1);
        maker_u32(&m, "llama.attention.head_count", 1);
        maker_u32(&m, "llama.feed_forward_length", 8);
        maker_u32(&m, "llama.context_length", 131072);
        maker_f32(&m, "llama.rope.freq_base", 500000);
        maker_tensor(&m, "token_embd.weight", GW_GGML_F32, 2, (int64_t[]){2, 8}, zeros, 64);
        maker_tensor(&m, "rope_freqs.weight", GW_GGML_F32, 1, (int64_t[]){4}, f, 16);
        maker_tensor(&m, "output.weight", GW_GGML_F32, 2, (int64_t[]){2, 8}, zeros, 64);
        if (broken) {
            CHECK_FAILS(from_gguf(&m, &c), &dg, "not the scaling of Llama 3.1");
        } else {
            CHECK_OK(from_gguf(&m, &c), &dg);
            CHECK_EQ(c.rope, GW_HF_ROPE_LLAMA3);
            CHECK_NEAR(c.rope_factor, 8, 0);
            CHECK_EQ(c.rope_original_max, 8192);
            CHECK(!c.tie_word_embeddings);
        }
        gw_diags_release(&dg);
    }
}

/* SmolLM2-135M: 30 layers, 9 heads of 64 with 3 key-value heads, tied, theta 100000. */
TEST(hf_from_gguf_smollm2) {
    const char *path = getenv("GW_SMOLLM2_GGUF");
    if (!path || !*path) SKIP("GW_SMOLLM2_GGUF does not name SmolLM2-135M-Instruct.Q4_1.gguf");
    gw_gguf *g = NULL;
    gw_hf_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_gguf_open(path, &g, &dg), &dg);
    CHECK_OK(gw_hf_config_from_gguf(g, &c, &dg), &dg);
    CHECK_EQ(c.layers, 30);
    CHECK_EQ(c.hidden_size, 576);
    CHECK_EQ(c.intermediate_size, 1536);
    CHECK_EQ(c.heads, 9);
    CHECK_EQ(c.kv_heads, 3);
    CHECK_EQ(c.head_dim, 64);
    CHECK_EQ(c.vocab_size, 49152);
    CHECK(c.tie_word_embeddings);
    CHECK_NEAR(c.rope_theta, 100000, 0);
    gw_gguf_free(g);
    gw_diags_release(&dg);
}

/* --- damage --------------------------------------------------------------------------------------
 */

static gw_status use(const char *path, gw_diags *d) {
    gw_hf_config c;
    return gw_hf_config_read(path, &c, d);
}

TEST(hf_byte_flips_never_crash) {
    const char *text = "{" QWEN25 ", \"use_sliding_window\": true}";
    put_file(test_tmp_path("c.json"), text, strlen(text));
    damage_cut(test_tmp_path("c.json"), use);
    damage_flip(test_tmp_path("c.json"), use, 3000);
}
