// SPDX-License-Identifier: Apache-2.0
// The program as a user meets it: exit codes, streams, pipes. GW_BIN names the executable.
#include <stdlib.h> /* getenv */
#include <string.h> /* strstr */

#include "base/io.h"       /* gw_file_read */
#include "base/str.h"      /* gw_str */
#include "command.h"       /* command_run */
#include "harness.h"       /* TEST, CHECK */
#include "train/runfile.h" /* gw_runfile_parse */

TEST(exit_codes) {
    static const struct {
        const char *args;
        int code;
        const char *says;
    } cases[] = {
        {"--version", 0, "gradwright 0."},
        {"--help", 0, "usage: gradwright COMMAND"},
        {"help config", 0, "gradwright config"},
        {"--help config", 0, "gradwright config"},
        {"config --help", 0, "gradwright config"},
        {"2>&1", 2, "usage: gradwright COMMAND"},
        {"confg 2>&1", 2, "gradwright config"},
        {"--frobnicate 2>&1", 2, "--frobnicate"},
        {"config 2>&1", 2, "missing"},
        {"config /nonexistent.yaml 2>&1", 2, "/nonexistent.yaml"},
        {"plan /nonexistent.yaml 2>&1", 2, "[source-missing]"},
        {"plan /nonexistent.gguf 2>&1", 2, "[source-missing]"},
        {"train /nonexistent.yaml 2>&1", 2, "[source-missing]"},
        {"generate /nonexistent 2>&1", 2, "[source-missing]"},
        {"export /nonexistent --out /tmp/x 2>&1", 2, "[source-missing]"},
        {"tokenizer info /nonexistent 2>&1", 2, "[source-missing]"},
        {"tokenizer encode bytes /nonexistent 2>&1", 2, "[source-missing]"},
        {"program --passes x.yaml 2>&1", 2, "--passes"},
        {"tokenizer info bytes --vocab-size 300 2>&1", 2, "--vocab-size"},
        {"tokenizer encode bytes --json-key text 2>&1", 2, "jsonl"},
        {"tokenizer train /dev/null --out x --vocab-size 3000000000 2>&1", 2, "2147483647"},
        {"export . --out x --max-shard 0 2>&1", 2, "--max-shard"},
        {"generate . --seed=-1 2>&1", 2, "--seed"},
        {"generate . -n 99999999999999 2>&1", 2, "--max-tokens"},
        {"init nonsense 2>&1", 2, "llama"},
        {"init > /dev/full 2>&1", 1, ""},
        {"init 2>&1 > /dev/full", 1, "standard output"},
        {"env", 0, "oneDNN"},
    };
    gw_str out = {0};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        int rc = command_run(&out, "%s", cases[i].args);
        test_note("gradwright %s\n%s", cases[i].args, gw_str_c(&out));
        CHECK_EQ(rc, cases[i].code);
        CHECK(strstr(gw_str_c(&out), cases[i].says) != NULL);
    }
    gw_str_release(&out);
}

TEST(diagnostics_are_on_stderr_and_printed_once) {
    gw_str out = {0};
    CHECK_EQ(command_run(&out, "config /nonexistent.yaml 2>/dev/null"), 2);
    CHECK_STR(gw_str_c(&out), "");
    command_run(&out, "config /nonexistent.yaml 2>&1");
    const char *first = strstr(gw_str_c(&out), "error:");
    CHECK(first && !strstr(first + 1, "error:"));
    CHECK(!strchr(gw_str_c(&out), '\033')); /* not a terminal */
    gw_str_release(&out);
}

TEST(decoded_text_is_what_was_asked_for) {
    gw_str out = {0}, args = {0};
    CHECK_EQ(command_run(&out, "tokenizer decode bytes 72 34 10 0 --json"), 0);
    json_t *j = json_loadb(gw_str_c(&out), out.len, JSON_ALLOW_NUL, NULL);
    CHECK(j && json_is_true(json_object_get(j, "exact")));
    const json_t *text = json_object_get(j, "text");
    CHECK_EQ(json_string_length(text), 4);
    CHECK(memcmp(json_string_value(text), "H\"\n", 4) == 0);
    json_decref(j);
    CHECK_EQ(command_run(&out, "tokenizer decode bytes 72 255 --json"),
             0); /* no UTF-8 begins with 255 */
    j = json_loadb(gw_str_c(&out), out.len, 0, NULL);
    CHECK(j && json_is_false(json_object_get(j, "exact")));
    CHECK_STR(json_string_value(json_object_get(j, "text")), "H\xef\xbf\xbd");
    json_decref(j);
    gw_str_printf(&args, "tokenizer decode bytes 72 255 --out '%s'", test_tmp_path("t"));
    CHECK_EQ(command_run(&out, "%s", gw_str_c(&args)), 0);
    CHECK_EQ(out.len, 0);
    CHECK_EQ(gw_file_read(test_tmp_path("t"), 0, &out, NULL), GW_OK);
    CHECK_STR(gw_str_c(&out), "H\xff");
    gw_str_release(&args);
    gw_str_release(&out);
}

TEST(a_reader_that_leaves_is_no_failure) {
    gw_str out = {0};
    const char *bin = getenv("GW_BIN");
    int rc = command_run(&out, "docs keys | head -c 10");
    CHECK_EQ(rc, 0);
    CHECK_EQ(out.len, 10);
    gw_str cmd = {0};
    gw_str_printf(&cmd, "docs keys | true; '%s' docs keys 2>&1 >/dev/null", bin);
    CHECK_EQ(command_run(&out, "%s", gw_str_c(&cmd)), 0);
    CHECK_STR(gw_str_c(&out), "");
    gw_str_release(&cmd);
    gw_str_release(&out);
}

TEST(init_prints_run_files_that_load) {
    static const char *const families[] = {"",        "llama",   "gpt2",      "qwen2",   "qwen3",
                                           "mistral", "mixtral", "qwen3_moe", "deepseek"};
    for (size_t i = 0; i < GW_COUNT(families); i++) {
        gw_str args = {0}, out = {0};
        gw_diags dg;
        gw_runfile rf;
        gw_diags_init(&dg);
        gw_str_printf(&args, "init %s", families[i]);
        CHECK_EQ(command_run(&out, "%s", gw_str_c(&args)), 0);
        CHECK_OK(gw_runfile_parse(&rf, "init", gw_str_c(&out), (int64_t)out.len, NULL, 0, &dg),
                 &dg);
        CHECK_STR(gw_runfile_word(&rf, "model.family"), *families[i] ? families[i] : "llama");
        CHECK_EQ(dg.nwarnings, 0);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&args);
        gw_str_release(&out);
    }
}

TEST(config_reads_what_it_prints) {
    gw_str a = {0}, b = {0}, args = {0};
    const char *bin = getenv("GW_BIN");
    gw_str_printf(&args, "init qwen3 | '%s' config - --set train.steps=70", bin);
    CHECK_EQ(command_run(&a, "%s", gw_str_c(&args)), 0);
    CHECK(strstr(gw_str_c(&a), "steps: 70 "));
    gw_str_printf(&args, " | '%s' config -", bin);
    CHECK_EQ(command_run(&b, "%s", gw_str_c(&args)), 0);
    CHECK_STR(gw_str_c(&a), gw_str_c(&b));
    gw_str_release(&a);
    gw_str_release(&b);
    gw_str_release(&args);
}

TEST(env_is_consistent) {
    json_t *all = command_json("env --json");
    const json_t *cpu = json_object_get(all, "cpu"), *memory = json_object_get(all, "memory");
    int64_t usable = json_integer_value(json_object_get(cpu, "cores_usable"));
    CHECK(usable >= 1);
    CHECK(usable <= json_integer_value(json_object_get(cpu, "cores_allowed")));
    int64_t total = json_integer_value(json_object_get(memory, "total_bytes"));
    CHECK(total > 0 && json_integer_value(json_object_get(memory, "usable_bytes")) <= total);
    const json_t *libraries = json_object_get(all, "libraries");
    CHECK(json_array_size(libraries) >= 10);
    for (size_t i = 0; i < json_array_size(libraries); i++) {
        const json_t *l = json_array_get(libraries, i);
        CHECK(json_is_true(json_object_get(l, "found")) !=
              json_is_null(json_object_get(l, "version")));
        CHECK(json_string_length(json_object_get(l, "package")) > 0);
        /* The program runs, so what it is linked with was found. */
        CHECK(json_is_true(json_object_get(l, "found")) ||
              json_is_true(json_object_get(l, "optional")) ||
              gw_str_eq(json_string_value(json_object_get(l, "name")), "OpenMP"));
    }
    json_decref(all);
}

TEST(examples_load) {
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK_OK(gw_runfile_load(&rf, test_source_path("../examples/quickstart.yaml"), NULL, 0, &dg),
             &dg);
    CHECK_EQ(dg.nwarnings, 0);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* What bash offers for a line, by the completion file of the tree: words sorted, space-separated.
 */
static void bash_offers(const char *words, gw_str *out) {
    gw_str cmd = {0};
    gw_str_printf(&cmd,
                  "bash -c '. \"%s\"; COMP_WORDS=(%s \"\"); "
                  "[[ \"%s\" == *\" \" ]] || unset \"COMP_WORDS[${#COMP_WORDS[@]}-1]\"; "
                  "COMP_CWORD=$((${#COMP_WORDS[@]}-1)); compopt() { :; }; _gradwright; "
                  "printf \"%%s \" \"${COMPREPLY[@]}\"'",
                  test_source_path("../completions/gradwright.bash"), words, words);
    CHECK_EQ(command_shell(out, gw_str_c(&cmd)), 0);
    gw_str_release(&cmd);
}

TEST(bash_completes) {
    static const struct {
        const char *line, *offers;
    } cases[] = {
        {"gradwright conf", "config "},
        {"gradwright config --js", "--json "},
        {"gradwright init mis", "mistral "},
        {"gradwright config x.yaml --set optimizer.nam", "optimizer.name= "},
        {"gradwright config x.yaml --set optimizer.name =", "adamw sgd muon "},
        {"gradwright config x.yaml --set optimizer.name = mu", "muon "},
        {"gradwright config x.yaml -s data.pack = ", "true false "},
    };
    gw_str out = {0};
    if (system("bash -c true") != 0) SKIP("no bash");
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        bash_offers(cases[i].line, &out);
        test_note("%s", cases[i].line);
        CHECK_STR(gw_str_c(&out), cases[i].offers);
    }
    gw_str_release(&out);
}
