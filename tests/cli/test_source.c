// SPDX-License-Identifier: Apache-2.0
// What generate and export take for a model, and what an export leaves behind.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"  /* gw_path_exists, gw_dir_make */
#include "base/str.h" /* gw_str */
#include "command.h"  /* command_run */
#include "harness.h"

static json_t *get(const char *name) {
    json_t *j = json_load_file(test_tmp_path(name), 0, NULL);
    CHECK_MSG(j, "%s", name);
    return j;
}

static const char *const tiny = "model: {family: llama, layers: 1, hidden: 32, heads: 2}\n";

/* A run file describes a run: there are no weights to use, and random ones are not an answer. */
TEST(a_run_file_is_no_model) {
    gw_str out = {0};
    const char *file = command_file("run.yaml", tiny);
    CHECK_EQ(command_run_both(&out, "generate '%s' --prompt a", file), 2);
    CHECK(command_says(&out, "run directory"));
    CHECK_EQ(command_run_both(&out, "export '%s' --out '%s'", file, test_tmp_path("out")), 2);
    CHECK(command_says(&out, "run directory"));
    CHECK(!gw_path_exists(test_tmp_path("out")));
    CHECK_EQ(command_run_both(
                 &out, "generate '%s' --prompt a",
                 command_file("path.yaml", "model: {path: nowhere, load_weights: false}\n")),
             2);
    CHECK(command_says(&out, "run directory"));
    gw_str_release(&out);
}

/* The config.yaml inside a run directory stands for the directory. */
TEST(a_runs_config_is_the_run) {
    gw_str out = {0};
    CHECK_EQ(gw_dir_make(test_tmp_path("run/checkpoints"), NULL), GW_OK);
    const char *file = command_file("run/config.yaml", tiny);
    CHECK_EQ(command_run_both(&out, "generate '%s' --prompt a", file), 1);
    CHECK(command_says(&out, "[checkpoint-none]")); /* looked for, not made up */
    CHECK_EQ(command_run_both(&out, "generate '%s' --compute bf16", test_tmp_path("run")), 2);
    CHECK(command_says(&out, "--compute"));
    gw_str_release(&out);
}

/* A public model of the golden set, with what its publisher would put beside it. */
static void make_model(const char *eos) {
    gw_str cmd = {0};
    gw_str_printf(&cmd, "cp -r '%s' '%s' && chmod -R u+w '%s'",
                  test_source_path("golden/models/llama"), test_tmp_path("m"), test_tmp_path("m"));
    CHECK_EQ(system(gw_str_c(&cmd)), 0);
    json_t *c = get("m/config.json"), *ids = json_loads(eos, JSON_DECODE_ANY, NULL);
    json_object_set_new(c, "bos_token_id", json_integer(3));
    json_object_set_new(c, "pad_token_id", json_integer(5));
    json_object_set_new(c, "eos_token_id", ids);
    CHECK_EQ(json_dump_file(c, test_tmp_path("m/config.json"), 0), 0);
    json_decref(c);
    command_file("m/tokenizer_config.json",
                 "{\"eos_token\": \"<end>\", \"chat_template\": \"{{ x }}\"}");
    command_file("m/generation_config.json", "{\"eos_token_id\": [7, 8], \"temperature\": 0.5}");
    command_file("m/special_tokens_map.json", "{\"eos_token\": \"<end>\"}");
    command_file("m/chat_template.jinja", "{{ y }}");
    gw_str_release(&cmd);
}

TEST(an_export_keeps_special_tokens) {
    gw_str out = {0};
    make_model("[7, 8]");
    CHECK_EQ(
        command_run_both(&out, "export '%s' --out '%s'", test_tmp_path("m"), test_tmp_path("x")),
        0);
    json_t *was = get("m/config.json"), *is = get("x/config.json");
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        CHECK_MSG(json_equal(json_object_get(was, keys[i]), json_object_get(is, keys[i])), "%s",
                  keys[i]);
    static const char *const files[] = {"tokenizer_config.json", "generation_config.json",
                                        "special_tokens_map.json"};
    for (size_t i = 0; i < GW_COUNT(files); i++) {
        char a[64], b[64];
        snprintf(a, sizeof a, "m/%s", files[i]);
        snprintf(b, sizeof b, "x/%s", files[i]);
        json_t *from = get(a), *to = get(b);
        CHECK_MSG(json_equal(from, to), "%s", files[i]);
        json_decref(from);
        json_decref(to);
    }
    CHECK(gw_path_exists(test_tmp_path("x/chat_template.jinja")));
    json_decref(was);
    json_decref(is);
    gw_str_release(&out);
}

TEST(an_export_that_fails_leaves_no_directory) {
    gw_str out = {0};
    make_model("7");
    /* the last file to be copied cannot be read: those before it are there already */
    CHECK_EQ(remove(test_tmp_path("m/chat_template.jinja")), 0);
    CHECK_EQ(mkdir(test_tmp_path("m/chat_template.jinja"), 0777), 0);
    CHECK_EQ(
        command_run_both(&out, "export '%s' --out '%s'", test_tmp_path("m"), test_tmp_path("y")),
        1);
    CHECK(!gw_path_exists(test_tmp_path("y")));
    gw_str_release(&out);
}

TEST(a_missing_tokenizer_is_asked_for_by_its_option) {
    gw_str out = {0};
    make_model("7");
    (void)remove(test_tmp_path("m/tokenizer.json"));
    CHECK_EQ(command_run_both(&out, "generate '%s' --prompt a", test_tmp_path("m")), 2);
    CHECK(command_says(&out, "--tokenizer"));
    CHECK(!command_says(&out, "this command"));
    gw_str_release(&out);
}

/* The golden model was made for 64 positions. Said once, and only of a text that passes them. */
TEST(a_text_beyond_the_trained_positions_is_noted) {
    gw_str out = {0};
    const char *model = test_source_path("golden/models/llama");
    CHECK_EQ(command_run_both(&out, "generate '%s' --tokenizer bytes --prompt A -n 80", model), 0);
    const char *first = strstr(gw_str_c(&out), "64 positions");
    CHECK(first && !strstr(first + 1, "64 positions"));
    CHECK_EQ(command_run_both(&out, "generate '%s' --tokenizer bytes --prompt A -n 60", model), 0);
    CHECK(!command_says(&out, "64 positions"));
    CHECK_EQ(command_run_both(&out, "generate '%s' --tokenizer bytes --prompt zz -n 5", model), 2);
    CHECK(command_says(&out, "do not belong together")); /* z is byte 122, the vocabulary 97 */
    gw_str_release(&out);
}
