// SPDX-License-Identifier: Apache-2.0
// Every parser of outside bytes, fed with damaged inputs. Each target also holds what it accepted
// to a law: what is printed reads back, what was opened can be used whole.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../file/damage.h"     /* put_file */
#include "../file/gguf_maker.h" /* gguf_maker */
#include "../pass/programs.h"   /* program */
#include "base/io.h"            /* gw_dir_make */
#include "data/tokenizer.h"     /* gw_tokenizer_open_json */
#include "file/megatron_idx.h"  /* gw_midx_open */
#include "file/safetensors.h"   /* gw_st_open */
#include "fuzz.h"
#include "harness.h"
#include "ir/text.h"        /* gw_graph_parse */
#include "ir/verify.h"      /* gw_graph_verify */
#include "ops/ops.h"        /* gw_ops_table */
#include "ckpt/save.h"      /* gw_checkpoint_read, gw_checkpoint_save */
#include "train/hf_model.h" /* gw_model_from_hf */
#include "train/runfile.h"  /* gw_runfile_parse */
#include "train/setup.h"    /* gw_setup_read_model */

enum { SHORT = 1200, LONG = 60000 };

/* A test of the short form, and one of the long form with `LONG / scale` rounds. */
#define FUZZ(ident, scale)                                                                         \
    static void run_##ident(int64_t rounds);                                                       \
    TEST(fuzz_##ident) { run_##ident(SHORT / scale); }                                             \
    TEST_LONG(fuzz_##ident##_long) { run_##ident(LONG / scale); }                                  \
    static void run_##ident(int64_t rounds)

static void seed_str(fuzz *f, gw_str *s) {
    fuzz_seed(f, s->data, s->len);
    gw_str_release(s);
}

/* ---- program text ---- */

static const char *const program_words[] = {
    "program",     "let",       "mesh",      "arena",      "state",
    "f32",         "bf16",      "i32",       "u8",         "param",
    "input",       "step",      "mb",        "F",          "B",
    "W",           "BW",        "O",         "on",         "compute",
    "copy",        "after",     "work",      "matmul",     "attention",
    "adamw",       "add",       "head_grad", "embed",      "rmsnorm",
    "cast",        "zeros",     "%0",        "%1",         "%7",
    "%4294967295", "_",         "@0",        "@64",        "@-1",
    "0",           "-1",        "1",         "2147483648", "9223372036854775807",
    "1e999",       "nan",       "true",      "false",      "b2",
    "s8",          "d48",       "P(sum)",    "{dp}",       "dp.0=2",
    "device",      "recompute", "flags",     "stage",      "activations",
    "weights",     "values",    NULL};

static gw_status read_program(const void *bytes, size_t n, gw_diags *dg) {
    gw_graph g, again;
    GW_TRY(gw_graph_parse(&g, gw_ops_table(), bytes, (int64_t)n, "fuzz", dg));
    gw_str text = {0};
    char why[256] = "";
    gw_graph_print(&g, &text, false);
    CHECK_OK(
        gw_graph_parse(&again, gw_ops_table(), gw_str_c(&text), (int64_t)text.len, "printed", dg),
        dg);
    CHECK_MSG(gw_graph_equal(&g, &again, why, sizeof why), "%s", why);
    gw_str_release(&text);
    gw_status st = gw_graph_verify(&g, dg);
    if (st == GW_OK) {
        gw_graph_print(&g, &text, true); /* costs are taken of verified graphs only */
        gw_str_release(&text);
    }
    gw_graph_release(&again);
    gw_graph_release(&g);
    return st;
}

static void seed_program(fuzz *f, gw_family family, int micro_batches, const char *last,
                         gw_recompute_kind again) {
    gw_model m = tiny_model(family, 1);
    program p;
    program_init(&p, &m, 2, 8);
    p.opts.micro_batches = micro_batches;
    p.opts.recompute.kind = again;
    gw_graph g;
    gw_str text = {0};
    program_make(&p, last, &g, NULL);
    gw_graph_print(&g, &text, last == NULL);
    seed_str(f, &text);
    gw_graph_release(&g);
    program_release(&p);
}

FUZZ(program_text, 1) {
    fuzz f = {.name = "program text", .target = read_program, .words = program_words};
    seed_program(&f, GW_FAMILY_LLAMA, 1, "build", GW_RECOMPUTE_NONE);
    seed_program(&f, GW_FAMILY_GPT2, 2, "step", GW_RECOMPUTE_NONE);
    seed_program(&f, GW_FAMILY_QWEN3, 1, NULL, GW_RECOMPUTE_FULL);
    seed_program(&f, GW_FAMILY_MISTRAL, 3, NULL, GW_RECOMPUTE_NONE);
    fuzz_run(&f, rounds);
}

/* ---- run file ---- */

static const char *const yaml_words[] = {"model",
                                         "train",
                                         "data",
                                         "optimizer",
                                         "precision",
                                         "layout",
                                         "recompute",
                                         "checkpoint",
                                         "steps",
                                         "micro_batch",
                                         "accumulate",
                                         "global_batch",
                                         "seq_len",
                                         "preset",
                                         "family",
                                         "llama",
                                         "gpt2",
                                         "policy",
                                         "budget",
                                         "ops",
                                         "full",
                                         "zero_stage",
                                         "gradient_accumulation_steps",
                                         "true",
                                         "no",
                                         "null",
                                         "~",
                                         "0",
                                         "-1",
                                         "1e400",
                                         ".nan",
                                         ".inf",
                                         "0x10",
                                         "9223372036854775808",
                                         "[1, 2]",
                                         "{a: b}",
                                         "&a",
                                         "*a",
                                         "!!str",
                                         "<<",
                                         "|",
                                         ">-",
                                         "---",
                                         "...",
                                         "# x",
                                         "''",
                                         NULL};

static gw_status read_runfile(const void *bytes, size_t n, gw_diags *dg) {
    gw_runfile rf, again;
    gw_status st = gw_runfile_parse(&rf, "fuzz.yaml", bytes, (int64_t)n, NULL, 0, dg);
    if (st == GW_OK) st = gw_runfile_resolve(&rf, 1000, dg);
    if (st == GW_OK)
        for (int comments = 0; comments < 2; comments++) {
            gw_str text = {0};
            gw_runfile_yaml(&rf, comments, &text);
            gw_status back = gw_runfile_parse(&again, "printed", gw_str_c(&text), (int64_t)text.len,
                                              NULL, 0, dg);
            if (back != GW_OK) printf("%s\n", gw_str_c(&text));
            CHECK_OK(back, dg);
            gw_runfile_release(&again);
            gw_str_release(&text);
        }
    if (st == GW_OK) {
        gw_str text = {0};
        gw_runfile_json(&rf, &text);
        gw_str_release(&text);
    }
    gw_runfile_release(&rf);
    return st;
}

FUZZ(run_file, 1) {
    fuzz f = {.name = "run file", .target = read_runfile, .words = yaml_words};
    fuzz_seed_file(&f, "../examples/quickstart.yaml");
    static const char flow[] =
        "{model: {preset: gpt2}, data: {train: a, tokenizer: bytes},\n train: {steps: 3, "
        "micro_batch: 2, global_batch: 8},\n recompute: {policy: budget, budget: 3GB}}\n";
    static const char anchors[] =
        "model: &m {family: qwen3, layers: 2, hidden: 64, heads: 4, ffn: 128}\n"
        "train:\n  steps: 10\n  seq_len: &n 128\n  micro_batch: 4\n"
        "optimizer: {name: muon, lr: 1e-3}\nprecision:\n  compute: bf16\n";
    fuzz_seed(&f, flow, sizeof flow - 1);
    fuzz_seed(&f, anchors, sizeof anchors - 1);
    fuzz_run(&f, rounds);
}

/* ---- tokenizers ---- */

static const char *const json_words[] = {"true",
                                         "false",
                                         "null",
                                         "0",
                                         "-1",
                                         "1e999",
                                         "9223372036854775808",
                                         "4294967296",
                                         "-0",
                                         "\"\"",
                                         "[]",
                                         "{}",
                                         "type",
                                         "BPE",
                                         "ByteLevel",
                                         "Sequence",
                                         "Split",
                                         "Regex",
                                         "(?:a+)+b",
                                         "vocab",
                                         "merges",
                                         "model",
                                         "added_tokens",
                                         "id",
                                         "content",
                                         "special",
                                         "unk_token",
                                         "\\u0000",
                                         "\\ud800",
                                         "normalizer",
                                         "Metaspace",
                                         "Prepend",
                                         "Replace",
                                         NULL};

static gw_status use_tokenizer(gw_tokenizer *t, gw_diags *dg) {
    static const char text[] =
        "The model's <|eot_id|> 12345 \xf0\x9f\x98\x80\xff\n\n caf\xc3\xa9 aaaaaaaaaaaab";
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    gw_str back = {0};
    gw_status st = gw_tokenizer_encode(t, s, text, sizeof text - 1,
                                       GW_ENCODE_SPECIALS | GW_ENCODE_TEMPLATE, &ids, dg);
    for (int64_t i = 0; i < ids.count; i++)
        CHECK(ids.items[i] >= 0 && ids.items[i] < gw_tokenizer_vocab_size(t));
    if (st == GW_OK) st = gw_tokenizer_decode(t, ids.items, ids.count, false, &back, dg);
    (void)gw_tokenizer_hash(t);
    CHECK(gw_tokenizer_describe(t) != NULL);
    gw_str_release(&back);
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    return st;
}

static gw_status read_tokenizer_json(const void *bytes, size_t n, gw_diags *dg) {
    gw_tokenizer *t = NULL;
    GW_TRY(gw_tokenizer_open_json("fuzz", bytes, n, NULL, &t, dg));
    return use_tokenizer(t, dg);
}

static gw_status read_tiktoken(const void *bytes, size_t n, gw_diags *dg) {
    gw_tokenizer *t = NULL;
    gw_tokenizer_options o = {.pattern = "cl100k"};
    GW_TRY(gw_tokenizer_open_tiktoken("fuzz", bytes, n, &o, &t, dg));
    return use_tokenizer(t, dg);
}

FUZZ(tokenizer_json, 4) {
    fuzz f = {
        .name = "tokenizer json", .target = read_tokenizer_json, .words = json_words, .hot = 3000};
    static const char *const names[] = {"added_tokens", "gpt2", "llama2_legacy", "llama3", "qwen2"};
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        char below[100];
        snprintf(below, sizeof below, "golden/tokenizers/%s/tokenizer.json", names[i]);
        fuzz_seed_file(&f, below);
    }
    fuzz_run(&f, rounds);
}

/* A NUL inside a string of the file is a character like any other. */
TEST(a_nul_in_a_tokenizer_string_is_text) {
    static const char was[] = "\"prepend\":\"", nul[] = "\\u0000";
    gw_diags dg;
    gw_diags_init(&dg);
    gw_str file = get_file(test_source_path("golden/tokenizers/llama2_legacy/tokenizer.json")),
           text = {0};
    char *at = strstr(gw_str_c(&file), was);
    CHECK(at != NULL);
    size_t n = (size_t)(at - file.data) + sizeof was - 1;
    gw_str_add_n(&text, file.data, n);
    gw_str_add(&text, nul);
    gw_str_add_n(&text, file.data + n, file.len - n);
    gw_tokenizer *t = NULL;
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    gw_str back = {0};
    CHECK_OK(gw_tokenizer_open_json("nul", text.data, text.len, NULL, &t, &dg), &dg);
    CHECK_OK(gw_tokenizer_encode(t, s, "a", 1, 0, &ids, &dg), &dg);
    CHECK_OK(gw_tokenizer_decode(t, ids.items, ids.count, false, &back, &dg), &dg);
    CHECK_EQ(back.len, 3);
    CHECK(memcmp(back.data, "\0 a", 3) == 0);
    gw_str_release(&back);
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    gw_str_release(&text);
    gw_str_release(&file);
    gw_diags_release(&dg);
}

FUZZ(tiktoken, 4) {
    fuzz f = {.name = "tiktoken", .target = read_tiktoken, .words = json_words};
    fuzz_seed_file(&f, "golden/tokenizers/tiktoken_cl100k/vocab.tiktoken");
    fuzz_run(&f, rounds);
}

/* ---- config.json ---- */

static const char *const config_words[] = {"llama",
                                           "qwen2",
                                           "qwen3",
                                           "mistral",
                                           "gpt2",
                                           "true",
                                           "false",
                                           "null",
                                           "0",
                                           "-1",
                                           "1",
                                           "2147483648",
                                           "1e308",
                                           "1e-400",
                                           "9223372036854775807",
                                           "3.5",
                                           "\"x\"",
                                           "[]",
                                           "{}",
                                           "[0, 1]",
                                           "rope_scaling",
                                           "rope_parameters",
                                           "rope_theta",
                                           "default",
                                           "linear",
                                           "llama3",
                                           "yarn",
                                           "factor",
                                           "sliding_window",
                                           "layer_types",
                                           "num_hidden_layers",
                                           "hidden_size",
                                           "num_attention_heads",
                                           "num_key_value_heads",
                                           "head_dim",
                                           "vocab_size",
                                           "tie_word_embeddings",
                                           "eos_token_id",
                                           NULL};

static gw_status read_config(const void *bytes, size_t n, gw_diags *dg) {
    gw_model *m = gw_mem_zalloc(sizeof *m);
    gw_hf_config *c = gw_mem_zalloc(sizeof *c), *again = gw_mem_zalloc(sizeof *c);
    json_t *j = NULL, *back = NULL;
    gw_status st = gw_json_parse(bytes, n, "fuzz", &j, dg);
    if (st == GW_OK) st = gw_hf_config_parse(j, "fuzz", c, dg);
    if (st == GW_OK) st = gw_model_from_hf(c, "fuzz", m, dg);
    if (st == GW_OK) {
        (void)gw_model_count(m);
        (void)gw_model_flops_per_token(m, 1024, false);
        gw_hf_config_to_json(c, &back, dg) == GW_OK
            ? (void)0
            : gw_diags_clear(dg); /* a family may lack words */
        if (back) CHECK_OK(gw_hf_config_parse(back, "written", again, dg), dg);
    }
    json_decref(j);
    json_decref(back);
    gw_mem_free(c);
    gw_mem_free(again);
    gw_mem_free(m);
    return st;
}

FUZZ(config_json, 1) {
    fuzz f = {.name = "config json", .target = read_config, .words = config_words};
    static const char *const names[] = {"gpt2",    "llama", "llama31_rope", "llama31_rope_v5",
                                        "mistral", "qwen2", "qwen3",        "smollm2"};
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        char below[100];
        snprintf(below, sizeof below, "golden/models/%s/config.json", names[i]);
        fuzz_seed_file(&f, below);
    }
    fuzz_run(&f, rounds);
}

/* ---- files with data: read through a path ---- */

static const char *put_input(const char *name, const void *bytes, size_t n) {
    const char *path = test_tmp_path(name);
    put_file(path, bytes, n);
    return path;
}

static gw_status use_set(const char *path, gw_diags *dg) {
    gw_st_set *s = NULL;
    GW_TRY(gw_st_open(path, &s, dg));
    uint64_t sum = 0;
    for (int64_t i = 0; i < gw_st_count(s); i++) {
        const gw_st_tensor *t = gw_st_get(s, i);
        for (int64_t k = 0; k < t->bytes; k += GW_MAX(INT64_C(1), t->bytes / 7))
            sum += ((const uint8_t *)t->data)[k];
        if (t->bytes > 0) sum += ((const uint8_t *)t->data)[t->bytes - 1];
        CHECK(gw_st_find(s, t->name) == t);
    }
    const char *key, *value;
    for (int64_t i = 0; gw_st_metadata_at(s, i, &key, &value); i++)
        sum += strlen(key) + strlen(value);
    volatile uint64_t keep = sum;
    (void)keep;
    gw_st_free(s);
    return GW_OK;
}

static gw_status read_safetensors(const void *bytes, size_t n, gw_diags *dg) {
    return use_set(put_input("x.safetensors", bytes, n), dg);
}

static const char *const st_words[] = {"F32",
                                       "BF16",
                                       "F64",
                                       "I64",
                                       "BOOL",
                                       "F8_E4M3",
                                       "dtype",
                                       "shape",
                                       "data_offsets",
                                       "[]",
                                       "[0]",
                                       "[0,0]",
                                       "-1",
                                       "0",
                                       "9223372036854775807",
                                       "18446744073709551616",
                                       "1.5",
                                       "__metadata__",
                                       "weight_map",
                                       "null",
                                       "\"\"",
                                       NULL};

FUZZ(safetensors, 2) {
    fuzz f = {.name = "safetensors", .target = read_safetensors, .words = st_words, .hot = 2600};
    fuzz_seed_file(&f, "golden/models/qwen2/model.safetensors");
    fuzz_seed_file(&f, "golden/models/llama_sharded/model-00002-of-00004.safetensors");
    fuzz_run(&f, rounds);
}

/* The index of a sharded directory; the shards stand beside it. */
static gw_status read_shard_index(const void *bytes, size_t n, gw_diags *dg) {
    return use_set(put_input("model.safetensors.index.json", bytes, n), dg);
}

FUZZ(safetensors_index, 2) {
    fuzz f = {.name = "safetensors index", .target = read_shard_index, .words = st_words};
    for (int i = 1; i <= 4; i++) {
        char name[64], below[128];
        snprintf(name, sizeof name, "model-%05d-of-00004.safetensors", i);
        snprintf(below, sizeof below, "golden/models/llama_sharded/%s", name);
        gw_str s = get_file(test_source_path(below));
        put_file(test_tmp_path(name), s.data, s.len);
        gw_str_release(&s);
    }
    fuzz_seed_file(&f, "golden/models/llama_sharded/model.safetensors.index.json");
    fuzz_run(&f, rounds);
}

static gw_status read_gguf(const void *bytes, size_t n, gw_diags *dg) {
    const char *path = put_input("x.gguf", bytes, n);
    gw_gguf *g = NULL;
    GW_TRY(gw_gguf_open(path, &g, dg));
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    float row[4096];
    double sum = 0, x;
    for (int64_t i = 0; i < gw_gguf_nvalues(g); i++) {
        const gw_gguf_value *v = gw_gguf_value_at(g, i);
        for (int64_t k = 0; k < v->count; k++)
            if (gw_gguf_elem_f64(v, k, &x)) sum += x;
    }
    for (int64_t i = 0; i < gw_gguf_ntensors(g); i++) {
        const gw_gguf_tensor *t = gw_gguf_tensor_at(g, i);
        int64_t width = t->dims[t->ndim - 1];
        for (int64_t r = 0; width > 0 && width <= 4096 && r < t->elems / width; r++)
            if (gw_gguf_row_f32(t, r, row)) sum += (double)row[width - 1];
    }
    volatile double keep = sum;
    (void)keep;
    gw_status st = gw_hf_config_from_gguf(g, c, dg);
    gw_mem_free(c);
    gw_gguf_free(g);
    return st;
}

static void make_gguf(const char *path) {
    gguf_maker m = {0};
    static const char *const tokens[] = {"<s>", "a", "b", "ab"};
    uint8_t data[8 * 2 * 34] = {0}; /* 8 rows of 64 in Q8_0 */
    float gain[64] = {1};
    int64_t matrix[] = {8, 64}, vector[] = {64};
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 37);
    maker_str(&m, "general.architecture", "llama");
    maker_u32(&m, "llama.block_count", 1);
    maker_u32(&m, "llama.embedding_length", 64);
    maker_u32(&m, "llama.feed_forward_length", 128);
    maker_u32(&m, "llama.attention.head_count", 4);
    maker_u32(&m, "llama.attention.head_count_kv", 2);
    maker_u32(&m, "llama.context_length", 128);
    maker_u32(&m, "llama.vocab_size", 4);
    maker_f32(&m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    maker_f32(&m, "llama.rope.freq_base", 10000);
    maker_strs(&m, "tokenizer.ggml.tokens", tokens, 4);
    maker_tensor(&m, "token_embd.weight", GW_GGML_Q8_0, 2, matrix, data, sizeof data);
    maker_tensor(&m, "output_norm.weight", GW_GGML_F32, 1, vector, gain, sizeof gain);
    maker_tensor(&m, "blk.0.attn_norm.weight", GW_GGML_F32, 1, vector, gain, sizeof gain);
    maker_finish(&m, path);
}

FUZZ(gguf, 1) {
    fuzz f = {.name = "gguf", .target = read_gguf, .hot = 900};
    make_gguf(test_tmp_path("seed.gguf"));
    gw_str s = get_file(test_tmp_path("seed.gguf"));
    seed_str(&f, &s);
    fuzz_run(&f, rounds);
}

static gw_status read_index(const void *bytes, size_t n, gw_diags *dg) {
    (void)put_input("x.idx", bytes, n);
    gw_midx *m = NULL;
    uint32_t tokens[64];
    GW_TRY(gw_midx_open(test_tmp_path("x"), &m, dg));
    gw_status st = GW_OK;
    int64_t first = 0, count = 0;
    for (int64_t d = 0; d < gw_midx_ndocs(m); d++) gw_midx_doc(m, d, &first, &count);
    for (int64_t i = 0; i < gw_midx_nseqs(m) && st == GW_OK; i++) {
        (void)gw_midx_seq_mode(m, i);
        int64_t len = gw_midx_seq_tokens(m, i), k = GW_MIN(len, 64);
        st = gw_midx_read(m, i, len - k, k, tokens, dg);
    }
    gw_midx_free(m);
    return st;
}

FUZZ(megatron_index, 1) {
    fuzz f = {.name = "megatron index", .target = read_index};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_midx_writer *w = NULL;
    CHECK_OK(gw_midx_writer_new(test_tmp_path("x"), 500, &w, &dg), &dg);
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t tokens[40];
        for (uint32_t k = 0; k < 40; k++) tokens[k] = (i * 31 + k * 7) % 500;
        CHECK_OK(gw_midx_writer_seq(w, tokens, 3 + i * 4, &dg), &dg);
        if (i % 2) gw_midx_writer_end_doc(w);
    }
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
    gw_str s = get_file(test_tmp_path("x.idx"));
    seed_str(&f, &s);
    fuzz_run(&f, rounds);
}

/* ---- manifest of a checkpoint ---- */

static const char *const manifest_words[] = {"0",
                                             "-1",
                                             "1",
                                             "9223372036854775807",
                                             "18446744073709551615",
                                             "1.5",
                                             "null",
                                             "true",
                                             "\"\"",
                                             "[]",
                                             "{}",
                                             "f32",
                                             "bf16",
                                             "i64",
                                             "w",
                                             "m",
                                             "rank-00000.safetensors",
                                             "../rank-00000.safetensors",
                                             "/etc/passwd",
                                             "step",
                                             "files",
                                             "tensors",
                                             "chunks",
                                             "start",
                                             "size",
                                             "offset",
                                             "bytes",
                                             "hash",
                                             "version",
                                             "format",
                                             NULL};

enum { ROWS = 6, COLS = 10 };

static void checkpoint_tensors(float *w, float *m, gw_ckpt_tensor out[2]) {
    out[0] = (gw_ckpt_tensor){.name = "w",
                              .dtype = GW_F32,
                              .ndim = 2,
                              .dims = {ROWS, COLS},
                              .box = {2, {0, 0}, {ROWS, COLS}},
                              .data = w};
    out[1] = (gw_ckpt_tensor){.name = "m",
                              .dtype = GW_F32,
                              .ndim = 1,
                              .dims = {COLS},
                              .box = {1, {0}, {COLS}},
                              .data = m};
}

static const char *checkpoint_file(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000007%s%s", test_tmpdir(), name ? "/" : "",
             name ? name : "");
    return path;
}

static gw_status read_manifest(const void *bytes, size_t n, gw_diags *dg) {
    put_file(checkpoint_file("manifest.json"), bytes, n);
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    gw_status st = gw_checkpoint_read(checkpoint_file(NULL), &mem, &m, dg);
    if (st == GW_OK) {
        float *w = calloc(ROWS * COLS, sizeof *w), *v = calloc(COLS, sizeof *v);
        gw_ckpt_tensor t[2];
        checkpoint_tensors(w, v, t);
        st = gw_checkpoint_load(m, t, 2, NULL, dg);
        free(w);
        free(v);
    }
    gw_arena_release(&mem);
    return st;
}

FUZZ(manifest, 2) {
    fuzz f = {.name = "manifest", .target = read_manifest, .words = manifest_words};
    gw_diags dg;
    gw_diags_init(&dg);
    float w[ROWS * COLS] = {1, 2, 3}, v[COLS] = {4};
    gw_ckpt_tensor t[2];
    checkpoint_tensors(w, v, t);
    gw_ckpt_meta meta = {.step = 7,
                         .batch = 7,
                         .next_sample = 56,
                         .tokens = 1234,
                         .loss_scale = 1,
                         .seed = 1,
                         .tokenizer = "",
                         .data = "",
                         .model = "tiny",
                         .threads = 2,
                         .isa = "avx2",
                         .config = "train: {steps: 9}\n"};
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &meta, t, 2, &dg), &dg);
    gw_diags_release(&dg);
    gw_str s = get_file(checkpoint_file("manifest.json"));
    seed_str(&f, &s);
    fuzz_run(&f, rounds);
}
