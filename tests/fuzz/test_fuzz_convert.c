// SPDX-License-Identifier: Apache-2.0
// Damaged configurations of other trainers. What is accepted is decided whole and loads.
#include <string.h>

#include "file/toml.h" /* gw_toml_parse */
#include "fuzz.h"
#include "harness.h"
#include "train/convert.h" /* gw_convert_config */
#include "train/runfile.h" /* gw_runfile_parse */

static gw_status convert(const char *format, const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_conversion v;
    gw_cv_request r = {.format = format,
                       .name = "fuzz",
                       .text = bytes,
                       .len = (int64_t)n,
                       .model = "smollm2-135m",
                       .world = 8};
    gw_status st = gw_convert_config(&r, &a, &v, dg);
    if (st == GW_OK) {
        gw_runfile rf;
        for (int i = 0; i < v.nkeys; i++) CHECK(v.keys[i].fate != GW_CV_OPEN);
        CHECK_OK(gw_runfile_parse_for(&rf, "made", v.yaml, (int64_t)strlen(v.yaml), NULL, 0, 8, dg),
                 dg);
        gw_runfile_release(&rf);
    }
    gw_arena_release(&a);
    return st;
}

static gw_status read_torchtitan(const void *b, size_t n, gw_diags *dg) {
    return convert("torchtitan", b, n, dg);
}
static gw_status read_megatron(const void *b, size_t n, gw_diags *dg) {
    return convert("megatron", b, n, dg);
}
static gw_status read_deepspeed(const void *b, size_t n, gw_diags *dg) {
    return convert("deepspeed", b, n, dg);
}
static gw_status read_accelerate(const void *b, size_t n, gw_diags *dg) {
    return convert("accelerate", b, n, dg);
}

/* Numbers and truth values of an accepted document, written as TOML again, are the same values. */
static gw_status read_toml(const void *b, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_toml t, again;
    gw_str s = {0};
    gw_status st = gw_toml_parse(&a, "fuzz", b, (int64_t)n, &t, dg);
    for (int64_t i = 0; st == GW_OK && i < t.count; i++) {
        if (t.values[i].type == GW_TOML_TEXT || t.values[i].type == GW_TOML_LIST) continue;
        gw_str_printf(&s, "k%lld = %s\n", (long long)i, t.values[i].text);
    }
    if (st == GW_OK) {
        CHECK_OK(gw_toml_parse(&a, "again", gw_str_c(&s), (int64_t)s.len, &again, dg), dg);
        const gw_toml_value *v = t.values;
        for (int64_t i = 0; i < again.count; i++, v++) {
            while (v->type == GW_TOML_TEXT || v->type == GW_TOML_LIST) v++;
            CHECK_EQ(again.values[i].type, v->type);
            CHECK_STR(again.values[i].text, v->text);
        }
    }
    gw_str_release(&s);
    gw_arena_release(&a);
    return st;
}

static const char toml_seed[] =
    "a = 1\n[job]\nx.y = 'q' # c\n\"q k\" = \"\\u00e9\\n\"\n[training]\nsteps = 1_000\nlr = "
    "-3.5e-4\non = true\nlist = [1, 2,\n 3, # c\n]\nlists = [[1], ['a', [true]]]\n"
    "[parallelism]\ntensor_parallel_degree = 2\n[model]\nflavor = \"8B\"\nconverters = "
    "[\"float8\"]\n[activation_checkpoint]\nmode = \"full\"\n";
static const char shell_seed[] =
    "#!/bin/bash\nG=8\nN=$((G*2))\nA=(\n --num-layers 4 # x\n --seq-length "
    "${S:-128}\n)\nA+=(--bf16)\nif [ -n \"$X\" ]; then A+=(\"--fp8-format hybrid\"); fi\n"
    "B=\"--micro-batch-size 1 \\\n --global-batch-size 16\"\ncat <<E > f\nx\nE\ntorchrun "
    "--nproc_per_node $G train.py ${A[@]} $B --lr 1e-3 'a b' \"$1\" `x` $(y z) && echo 1\n"
    "S=7b\nif [[ $S == 7* && -z \"\" ]] || ! [ $G -gt 8 ]; then L=2\nelif [ $N = 3 ]; then L=3; "
    "else "
    "L=4; fi\ncase $S in 1b|(2b) L=5;; *) L=${L:+6} ;; esac\nC=\"cd x; python t.py --num-layers $L "
    "$B | tee\"\neval $C\nbash <<EOF\npython u.py --pipeline-model-parallel-size 2 "
    "--pipeline-model-parallel-layout Et*2|(t|)*2L\nEOF\n";
static const char json_seed[] =
    "{\"train_batch_size\": 16, \"fp16\": {\"enabled\": true, \"loss_scale\": 0}, "
    "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8, \"offload_optimizer\": "
    "{\"device\": \"cpu\"}},\n"
    "\"optimizer\": {\"type\": \"AdamW\", // c\n \"params\": {\"lr\": 1e-4, \"betas\": [0.9, "
    "0.95],}}, /* "
    "d */ "
    "\"x\": [{\"a\": null}, \"auto\"]}";
static const char yaml_seed[] =
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  "
    "fsdp_offload_params: false\nmixed_precision: bf16\nnum_processes: 8\nparallelism_config:\n  "
    "parallelism_config_tp_size: 2\ntpu_env: []\n";

static const char *const words[] = {"--tensor-model-parallel-size",
                                    "--recompute-granularity",
                                    "--",
                                    "$",
                                    "${",
                                    "}",
                                    "$((",
                                    "))",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    "\"",
                                    "'",
                                    "\\",
                                    "<<",
                                    "&&",
                                    "if ",
                                    "fi",
                                    "case ",
                                    " in ",
                                    "esac",
                                    ";;",
                                    "[[ ",
                                    " ]]",
                                    "||",
                                    "then ",
                                    "else ",
                                    "EOF",
                                    "//",
                                    "/*",
                                    "=",
                                    "+=",
                                    "auto",
                                    "null",
                                    "true",
                                    "false",
                                    "0",
                                    "-1",
                                    "1e400",
                                    "9223372036854775807",
                                    "full",
                                    "selective",
                                    "stage",
                                    "lr",
                                    "#",
                                    "\n",
                                    ":",
                                    ".",
                                    ",",
                                    NULL};

static void run(const char *name, fuzz_target *target, const char *seed, int64_t rounds) {
    fuzz f = {.name = name, .target = target, .words = words};
    fuzz_seed(&f, seed, strlen(seed));
    fuzz_run(&f, rounds);
}

#define FUZZ(ident, target, seed, scale)                                                           \
    TEST(fuzz_##ident) { run(#ident, target, seed, 1200 / scale); }                                \
    TEST_LONG(fuzz_##ident##_long) { run(#ident, target, seed, 60000 / scale); }

FUZZ(toml, read_toml, toml_seed, 1)
FUZZ(convert_torchtitan, read_torchtitan, toml_seed, 4)
FUZZ(convert_megatron, read_megatron, shell_seed, 4)
FUZZ(convert_deepspeed, read_deepspeed, json_seed, 4)
FUZZ(convert_accelerate, read_accelerate, yaml_seed, 4)
