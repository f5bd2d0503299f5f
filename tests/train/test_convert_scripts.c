// SPDX-License-Identifier: Apache-2.0
// What a configuration's text may look like: branches of scripts, strings that hold commands,
// layouts of pipelines, JSON with comments, marks and line ends of other systems, other formats.
#include <string.h>

#include "conversion.h"
#include "harness.h"

static void convert(conversion *r, const char *format, const char *name, const char *text,
                    int64_t len, int64_t world) {
    conversion_make(r, &(gw_cv_request){.format = format,
                                        .name = name,
                                        .text = text,
                                        .len = len,
                                        .model = "gpt2",
                                        .world = world});
}

/* Of a script: is --save-interval there, with which value, on which line, and is it under a
 * condition? */
static void check_flag(const char *script, const char *value, int line, bool under) {
    conversion r;
    gw_str s = {0};
    gw_str_printf(&s, "%s\npython pretrain_gpt.py --micro-batch-size 1 $A\n", script);
    convert(&r, "megatron", "script", gw_str_c(&s), (int64_t)s.len, 1);
    CHECK_OK(r.st, &r.dg);
    const gw_cv_key *k = conversion_key(&r, "--save-interval");
    CHECK_MSG((k != NULL) == (value != NULL), "%s", script);
    if (k) {
        CHECK_STR(k->text, value);
        CHECK_EQ(k->line, line);
        bool marked = k->fate == GW_CV_REFUSED && strstr(k->why, "under a condition");
        CHECK_MSG(marked == under, "%s: %s", script, k->why ? k->why : "");
    }
    gw_str_release(&s);
    conversion_release(&r);
}

TEST(convert_script_follows_what_it_decides) {
    check_flag("X=1\nif [ $X = 1 ]; then\nA=\"--save-interval 5\"\nfi", "5", 3, false);
    check_flag("X=2\nif [ $X = 1 ]; then\nA=\"--save-interval 5\"\nfi", NULL, 0, false);
    check_flag("X=2\nif [ $X = 1 ]; then A=\"\"\nelse A=\"--save-interval 5\"; fi", "5", 3, false);
    check_flag("X=2\nif [ $X -eq 1 ]; then A=\nelif [[ $X -ge 2 ]]; then\nA=\"--save-interval "
               "6\"\nelse A=\nfi",
               "6", 4, false);
    check_flag("X=${1:-mock}\nif [[ \"$X\" == mo* ]]; then\nA=\"--save-interval 7\"; fi", "7", 3,
               false);
    check_flag("if [ -n \"$X\" ]; then\nA=\"--save-interval 8\"\nfi", "8", 2, true);
    check_flag("X=1\nif [ -n \"$Y\" ] && [ $X = 2 ]; then\nA=\"--save-interval 8\"\nfi", NULL, 0,
               false);
    check_flag("X=1\nif [ -n \"$Y\" ] || [ $X = 1 ]; then\nA=\"--save-interval 8\"\nfi", "8", 3,
               false);
    check_flag("X=1\nif ! [ $X = 2 ]; then\nA=\"--save-interval 8\"\nfi", "8", 3, false);
    check_flag("X=1\nif [ -n \"$Y\" ]; then if [ $X = 2 ]; then\nA=\"--save-interval 8\"; fi; fi",
               NULL, 0, false);
    check_flag("X=1\n[ $X = 1 ] && A=\"--save-interval 9\"", "9", 2, false);
    check_flag("X=1\n[ $X = 2 ] && A=\"--save-interval 9\"", NULL, 0, false);
    check_flag("X=1\n[[ $X = 1 && -z \"\" ]] || A=\"--save-interval 9\"", NULL, 0, false);
}

TEST(convert_script_follows_cases) {
    check_flag("S=7b\ncase $S in\n1b) A=;;\n7b|8b)\nA=\"--save-interval 3\" ;;\n*) A= ;;\nesac",
               "3", 5, false);
    check_flag("S=70b\ncase \"$S\" in\n(1b) A=;;\n7*b) A=\"--save-interval 3\";;\nesac", "3", 4,
               false);
    check_flag("S=9\ncase $S in\n1) A=;;\n*)\nA=\"--save-interval 4\";;\nesac", "4", 5, false);
    check_flag("case $S in\n1) A=;;\n*)\nA=\"--save-interval 4\";;\nesac", "4", 4, true);
}

/* What a string held before a branch added to it stands under no condition, and keeps its lines. */
TEST(convert_script_marks_only_what_a_branch_adds) {
    static const char text[] =
        "A=\"--lr 1e-3\n --train-iters 10\"\nif [ -n \"$Y\" ]; then\n"
        "  A=\"$A --save-interval 8\"\nfi\npython x.py --micro-batch-size 1 $A\n";
    conversion r;
    convert(&r, "megatron", "script", text, (int64_t)strlen(text), 1);
    CHECK_OK(r.st, &r.dg);
    const gw_cv_key *iters = conversion_key(&r, "--train-iters"),
                    *save = conversion_key(&r, "--save-interval");
    CHECK(iters && iters->fate == GW_CV_MAPPED && iters->line == 2);
    CHECK(save && save->fate == GW_CV_REFUSED && save->line == 4);
    CHECK(strstr(save->instead, "--set checkpoint.every=VALUE"));
    conversion_release(&r);
}

/* A command in a string, run by eval or by another shell, or in a here-document. */
TEST(convert_script_finds_the_command) {
    static const char *const texts[] = {
        "A='--lr 1e-3'\nC=\"cd x; torchrun --nproc_per_node 2 y.py --micro-batch-size 1 $A | tee "
        "z\"\neval $C\n",
        "A='--lr 1e-3'\nbash -c \"torchrun --nproc_per_node 2 y.py --micro-batch-size 1 $A\"\n",
        "A=(--lr 1e-3)\nsbatch <<EOF\nsrun torchrun --nproc_per_node 2 y.py --micro-batch-size 1 "
        "${A[@]}\nEOF\n",
        "A=(--lr 1e-3)\nC=\"torchrun --nproc_per_node 2 y.py --micro-batch-size 1 ${A[@]}\"\n",
    };
    for (size_t i = 0; i < GW_COUNT(texts); i++) {
        conversion r;
        convert(&r, "megatron", "script", texts[i], (int64_t)strlen(texts[i]), 0);
        CHECK_OK(r.st, &r.dg);
        const gw_cv_key *lr = conversion_key(&r, "--lr");
        CHECK_MSG(lr && strcmp(lr->text, "1e-3") == 0 && lr->line == 1, "%s", texts[i]);
        CHECK(strstr(r.v.batch, "x dp 2"));
        conversion_release(&r);
    }
}

static void check_layout(const char *layout, const char *ours, const char *wrote) {
    conversion r;
    gw_str s = {0};
    gw_str_printf(&s,
                  "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout %s "
                  "--micro-batch-size 1 --global-batch-size 4\n",
                  layout);
    convert(&r, "megatron", "args", gw_str_c(&s), (int64_t)s.len, 2);
    CHECK_OK(r.st, &r.dg);
    const gw_cv_key *k = conversion_key(&r, "--pipeline-model-parallel-layout");
    CHECK(k != NULL);
    CHECK_MSG((k->fate == GW_CV_MAPPED) == (ours != NULL), "%s: %s", layout, k->why ? k->why : "");
    if (ours) CHECK_STR(k->ours, ours);
    if (ours) CHECK_STR(k->wrote, wrote);
    gw_str_release(&s);
    conversion_release(&r);
}

/* gpt2 has twelve layers. */
TEST(convert_megatron_layouts) {
    check_layout("'Et*5|t*7L'", "layout.stages", "[5, 7]");
    check_layout("'Ett|ttt|(tt|)*2tttL'", NULL, NULL); /* five stages for two ranks */
    check_layout("'Ett|(tttt|)*2ttL'", "layout.virtual_stages, layout.stages", "2, [2, 4, 4, 2]");
    check_layout("'E|(tt|)*6L'", "layout.virtual_stages, layout.stages",
                 "4, [0, 2, 2, 2, 2, 2, 2, 0]");
    check_layout("'Et*12|m|t*0|L'", "layout.virtual_stages", "2"); /* the two inside are empty */
    check_layout("'Et*5|t*8L'", NULL, NULL);                       /* thirteen layers */
    check_layout("'Et*5|(t*7L'", NULL, NULL);
    check_layout("'Ex*5|t*7L'", NULL, NULL);
    check_layout("'((((((((((t)*99)*99)*99)*99)*99)*99)*99)*99)*99)*99'", NULL, NULL);
}

TEST(convert_torchtitan_reads_parts_of_a_model) {
    static const char text[] =
        "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "
        "\"1F1B\"\nmodule_fqns_per_model_part = [\n  ['tok_embeddings', 'layers.0', 'layers.1', "
        "'layers.2', 'layers.3'],\n  ['layers.4', 'layers.5', 'layers.6', 'layers.7', 'layers.8', "
        "'layers.9', 'layers.10', 'layers.11', 'norm', 'output']]\n[training]\nseq_len = 64\n";
    conversion r;
    convert(&r, "torchtitan", "file", text, (int64_t)strlen(text), 2);
    CHECK_OK(r.st, &r.dg);
    CHECK_STR(conversion_key(&r, "parallelism.module_fqns_per_model_part")->wrote, "[4, 8]");
    conversion_release(&r);
}

/* DeepSpeed's own reader passes over comments and a comma too many. */
TEST(convert_deepspeed_reads_remarks) {
    static const char text[] =
        "{ // sizes\n  \"train_batch_size\": 8, # of all\n /* two\n lines */ "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, }, },\n"
        "  \"tensorboard\": {\"output_path\": \"a//b#c,]\"},\n}\n";
    conversion r;
    convert(&r, "deepspeed", "file", text, (int64_t)strlen(text), 4);
    CHECK_OK(r.st, &r.dg);
    CHECK_EQ(conversion_key(&r, "train_batch_size")->line, 2);
    CHECK_EQ(conversion_key(&r, "optimizer.params.lr")->line, 4);
    CHECK_STR(conversion_key(&r, "tensorboard.output_path")->text, "a//b#c,]");
    conversion_release(&r);
}

/* A mark of the byte order and line ends of another system change nothing. */
TEST(convert_reads_marks_and_line_ends) {
    static const char text[] = "\xef\xbb\xbf# x\r\nA=(\r\n  --lr 1e-3 \\\r\n  --train-iters "
                               "10\r\n)\r\npython x.py --micro-batch-size 1 \\\r\n  ${A[@]}\r\n";
    conversion r;
    convert(&r, "megatron", "script", text, (int64_t)strlen(text), 1);
    CHECK_OK(r.st, &r.dg);
    CHECK_STR(conversion_key(&r, "--lr")->text, "1e-3");
    CHECK_STR(conversion_key(&r, "--train-iters")->text, "10");
    CHECK_EQ(conversion_key(&r, "--train-iters")->line, 4);
    conversion_release(&r);
}

static void check_fails(const char *format, const char *name, const char *text, int64_t len,
                        const char *says, const char *hint) {
    conversion r;
    convert(&r, format, name, text, len, 1);
    CHECK_FAILS(r.st, &r.dg, says);
    if (hint) CHECK_MSG(r.dg.last->hint && strstr(r.dg.last->hint, hint), "%s", r.dg.last->hint);
    conversion_release(&r);
}
#define FAILS(format, name, text, says, hint)                                                      \
    check_fails(format, name, text, sizeof text - 1, says, hint)

TEST(convert_says_what_a_text_is_not) {
    static const char *const all[] = {"torchtitan", "megatron", "deepspeed", "accelerate"};
    for (size_t i = 0; i < GW_COUNT(all); i++) {
        FAILS(all[i], "f", "", "is empty", NULL);
        FAILS(all[i], "f", " \r\n\t\n", "is empty", NULL);
        FAILS(all[i], "f", "a\0b", "no text in UTF-8", "no archive");
        FAILS(all[i], "f", "\xff\xfe{\0", "no text in UTF-8", "UTF-16");
    }
    FAILS("torchtitan", "f.json", "{\"train_batch_size\": 8}", "key is missing",
          "deepspeed f.json");
    FAILS("deepspeed", "f.toml", "# x\n[training]\nsteps = 3\n", "not valid JSON", "torchtitan");
    FAILS("deepspeed", "f.sh", "python x.py --num-layers 3\n", "not valid JSON", "megatron f.sh");
    FAILS("accelerate", "f.yaml", "ARGS:\n  num_layers: 3\n", "none of its 1 keys", "megatron");
    FAILS("megatron", "f.yaml", "distributed_type: FSDP\nuse_cpu: false\n", "none of its 2 keys",
          "accelerate f.yaml");
    FAILS("torchtitan", "f.toml", "# nothing\n", "0 keys", NULL);
}
