// SPDX-License-Identifier: Apache-2.0
// `gradwright plan` and `gradwright program` as a user and a script meet them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h> /* qsort */
#include <string.h>
#include <sys/resource.h> /* getrusage */

#include "base/io.h" /* gw_dir_make */
#include "base/str.h"
#include "command.h" /* command_run */
#include "harness.h"
#include "ir/text.h" /* gw_graph_parse */
#include "ops/ops.h" /* gw_ops_table */

static const char *const tiny =
    "model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320}\n"
    "train: {seq_len: 64, micro_batch: 8}\n";

static json_t *plan_json(const char *args) { return command_json("plan %s --json", args); }

static json_t *at(const json_t *j, const char *path) {
    json_t *x = command_at(j, path);
    CHECK_MSG(x, "no key %s", path);
    return x;
}
static int64_t int_at(const json_t *j, const char *path) {
    CHECK_MSG(json_is_integer(at(j, path)), "%s is no integer", path);
    return json_integer_value(at(j, path));
}

TEST(json_has_the_keys_that_scripts_read) {
    json_t *j = plan_json(command_file("run.yaml", tiny));
    static const char *const causes[] = {
        "weights", "gradients", "optimizer_states", "activations",  "workspace", "communication",
        "staging", "data",      "runtime",          "fragmentation"};
    int64_t sum = 0;
    for (size_t i = 0; i < GW_COUNT(causes); i++)
        sum += int_at(at(j, "memory.by_cause"), causes[i]);
    CHECK_EQ(json_object_size(at(j, "memory.by_cause")), GW_COUNT(causes));
    CHECK_EQ(sum, int_at(j, "memory.total_bytes"));
    CHECK(int_at(j, "memory.arena_bytes") < sum);
    CHECK_EQ(int_at(j, "memory.bytes_per_param.weights"), 4);
    CHECK_EQ(int_at(j, "memory.bytes_per_param.gradients"), 4);
    CHECK_EQ(int_at(j, "memory.bytes_per_param.optimizer_states"), 8);
    CHECK_EQ(int_at(j, "memory.bytes_per_param.total"), 16);
    int64_t params = 2 * 320 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 128) + 64;
    CHECK_EQ(int_at(j, "params"), params);
    CHECK_EQ(int_at(j, "tokens_per_step"), 64 * 8);
    CHECK_EQ(int_at(j, "memory.static.total"), 16 * params);
    double model = json_real_value(at(j, "flops.model"));
    CHECK(model > 0 && json_real_value(at(j, "flops.hardware")) > model * 0.9);
    CHECK(json_real_value(at(j, "flops.model_full_attention")) > model);
    CHECK(json_array_size(at(j, "memory.waterfall")) > 10);
    CHECK(json_is_true(at(j, "verdict.fits")));
    CHECK(json_is_null(at(j, "assumed")));
    json_decref(j);
}

TEST(places_that_stages_share_are_said_to_be) {
    const char *path = command_file("run.yaml", tiny);
    for (int v = 1; v <= 2; v++) {
        gw_str out = {0};
        int code = command_run(&out,
                               "plan %s --ranks 2 --set layout.pp=2 --set layout.virtual_stages=%d "
                               "--set model.layers=4 --set train.accumulate=4",
                               path, v);
        CHECK_EQ(code, 0);
        CHECK_MSG(command_says(&out, "places that stages share") == (v == 2), "%s", gw_str_c(&out));
        gw_str_release(&out);
    }
}

TEST(a_change_that_is_said_to_fit_fits) {
    const char *path = command_file("run.yaml", tiny);
    json_t *j = plan_json(path);
    int64_t total = int_at(j, "memory.total_bytes");
    json_decref(j);
    /* from what the lightest of the ladder may reach up to just too little */
    for (int percent = 99; percent >= 30; percent -= 23) {
        gw_str args = {0};
        gw_str_printf(&args, "%s --memory %lld", path, (long long)(total * percent / 100));
        j = plan_json(gw_str_c(&args));
        CHECK(json_is_false(at(j, "verdict.fits")));
        CHECK_EQ(int_at(j, "verdict.short_bytes"), total - total * percent / 100);
        json_t *change = at(j, "verdict.change");
        if (json_is_object(change)) {
            int64_t promised = int_at(change, "total_bytes");
            CHECK(promised <= total * percent / 100);
            for (const char *s = json_string_value(at(change, "set")); s && *s;) {
                size_t n = strcspn(s, " ");
                gw_str_printf(&args, " --set %.*s", (int)n, s);
                s += n + (s[n] == ' ');
            }
            json_t *again = plan_json(gw_str_c(&args));
            CHECK_EQ(int_at(again, "memory.total_bytes"), promised);
            CHECK(json_is_true(at(again, "verdict.fits")));
            json_decref(again);
        } else {
            CHECK(percent < 99); /* recomputation alone saves more than a hundredth */
        }
        json_decref(j);
        gw_str_release(&args);
    }
}

static double number(const json_t *j, const char *key) {
    return json_number_value(json_object_get(j, key));
}

/* Of a trace's events, those of each track (pid, tid) in order of their begin. */
static int by_track(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    static const char *const keys[] = {"pid", "tid", "ts"};
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        double p = number(x, keys[i]), q = number(y, keys[i]);
        if (p < q || p > q) return p < q ? -1 : 1;
    }
    return 0;
}

/* Tensor-parallel gathers that run in pieces beside products, and messages of two directions, are
 * under way together: no two slices of one track are. */
TEST(slices_of_a_track_do_not_overlap) {
    const char *trace = test_tmp_path("trace.json");
    json_error_t e;
    json_t *j =
        command_json("plan %s --hardware h100 --world 16 --set layout.tp=4 --set layout.pp=2 "
                     "--set layout.virtual_stages=1 --set train.accumulate=4 --trace %s "
                     "--json",
                     command_file("run.yaml", tiny), trace);
    json_t *file = json_load_file(trace, 0, &e), *all = json_object_get(file, "traceEvents");
    size_t n = json_array_size(all), slices = 0;
    json_t **x = gw_mem_alloc(sizeof(json_t *) * (n + 1));
    int beside = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_array_get(all, i);
        const char *ph = json_string_value(json_object_get(o, "ph"));
        const char *name = json_string_value(json_object_get(json_object_get(o, "args"), "name"));
        if (name && strstr(name, "tp, beside")) beside++;
        if (ph && strcmp(ph, "X") == 0) x[slices++] = o;
    }
    CHECK(slices > 100 && beside > 0);
    qsort(x, slices, sizeof(json_t *), by_track);
    for (size_t i = 1; i < slices; i++) {
        bool same = number(x[i], "pid") >= number(x[i - 1], "pid") &&
                    number(x[i], "pid") <= number(x[i - 1], "pid") &&
                    number(x[i], "tid") <= number(x[i - 1], "tid");
        double end = number(x[i - 1], "ts") + number(x[i - 1], "dur");
        CHECK_MSG(!same || number(x[i], "ts") > end - 0.01, "at %g us: one ends at %g",
                  number(x[i], "ts"), end);
    }
    gw_mem_free(x);
    json_decref(file);
    json_decref(j);
}

/* With failures and a storage, the shares of a fleet's time are its whole; by K36 the best interval
 * is sqrt(2 C M). With every fault at once the parts still sum to the step. */
TEST(a_simulated_steps_json_has_days_and_parts) {
    gw_str args = {0};
    const char *path = command_file("run.yaml", tiny);
    gw_str_printf(
        &args,
        "%s --hardware h100 --world 8 --set layout.pp=2 --set train.accumulate=4 --faults "
        "straggler=1.5,straggler-rank=1,jitter=0.05,seed=3,slow-link=0.5,stall=0.001,"
        "failures=1e-4,storage=1GB,restart=60",
        path);
    json_t *j = plan_json(gw_str_c(&args));
    double between = 3600 / (8 * 1e-4), write = command_figure(j, "checkpoint_bytes") / 1e9;
    /* What a save writes by its own plan. */
    CHECK_NEAR(command_figure(j, "checkpoint_bytes"), command_figure(j, "checkpoint.bytes"), 0);
    CHECK(fabs(command_figure(j, "goodput.between_failures_s") / between - 1) < 1e-9);
    CHECK(fabs(command_figure(j, "goodput.checkpoint_write_s") / write - 1) < 1e-9);
    CHECK(fabs(command_figure(j, "goodput.best_interval_s") / sqrt(2 * write * between) - 1) <
          1e-9);
    double sum =
        command_figure(j, "goodput.goodput") + command_figure(j, "goodput.lost_to_checkpoints") +
        command_figure(j, "goodput.lost_to_rework") + command_figure(j, "goodput.lost_to_restarts");
    CHECK(fabs(sum - 1) < 1e-12);
    CHECK(json_is_false(at(j, "goodput.restart_assumed")));
    double parts = 0, percent = 0;
    for (size_t i = 0; i < json_array_size(at(j, "parts")); i++) {
        const json_t *x = json_array_get(at(j, "parts"), i);
        parts += command_figure(x, "seconds");
        percent += command_figure(x, "percent");
    }
    CHECK(fabs(parts / command_figure(j, "step_time_s") - 1) < 1e-12);
    CHECK(fabs(percent - 100) < 1e-9);
    CHECK(command_figure(j, "step_time_s") >
          command_figure(j, "faults.step_time_without_s") + 0.001);
    CHECK_STR(json_string_value(at(j, "layout")), "pp 2 × dp 4");
    CHECK(command_figure(j, "mfu.causal") > 0 && json_is_boolean(at(j, "fits")));
    CHECK(int_at(j, "wire.by_axis.dp") > 0 && int_at(j, "wire.by_axis.pp") > 0);
    json_decref(j);
    gw_str_release(&args);
}

/* Of several ranks state may be cut over them: what is promised is what the change then takes, and
 * the first words are the least. */
TEST(a_higher_zero_is_offered_and_fits) {
    const char *path = command_file("run.yaml", tiny);
    gw_str args = {0};
    gw_str_printf(&args, "%s --ranks 4 --set precision.compute=bf16 --set data.prefetch_steps=0",
                  path);
    json_t *j = plan_json(gw_str_c(&args));
    int64_t total = int_at(j, "memory.total_bytes");
    json_decref(j);
    gw_str_printf(&args, " --memory %lld", (long long)(total - 1));
    j = plan_json(gw_str_c(&args));
    CHECK_STR(json_string_value(at(j, "verdict.change.set")), "layout.zero=1");
    int64_t promised = int_at(j, "verdict.change.total_bytes");
    json_decref(j);
    gw_str_printf(&args, " --set layout.zero=1");
    j = plan_json(gw_str_c(&args));
    CHECK_EQ(int_at(j, "memory.total_bytes"), promised);
    CHECK(json_is_true(at(j, "verdict.fits")));
    CHECK_EQ(int_at(j, "wire.by_axis.dp") > 0, 1);
    json_decref(j);
    gw_str_release(&args);
}

static const char *const config =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    " \"intermediate_size\": 128, \"vocab_size\": 320, \"max_position_embeddings\": 512,"
    " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}\n";

/* With long steps of little models the batches prepared ahead are most of what can be given up. */
TEST(batches_prepared_ahead_are_the_first_to_go) {
    const char *path = command_file("run.yaml", tiny);
    gw_str args = {0};
    gw_str_printf(&args, "%s --set train.accumulate=1000", path);
    json_t *j = plan_json(gw_str_c(&args));
    int64_t total = int_at(j, "memory.total_bytes"), data = int_at(j, "memory.by_cause.data");
    json_decref(j);
    gw_str_printf(&args, " --memory %lld", (long long)(total - data / 2));
    j = plan_json(gw_str_c(&args));
    CHECK_STR(json_string_value(at(j, "verdict.change.set")), "data.prefetch_steps=0");
    int64_t promised = int_at(j, "verdict.change.total_bytes");
    json_decref(j);
    gw_str_printf(&args, " --set data.prefetch_steps=0");
    j = plan_json(gw_str_c(&args));
    CHECK_EQ(int_at(j, "memory.total_bytes"), promised);
    json_decref(j);
    gw_str_release(&args);
}

TEST(the_longest_step_is_answered_at_once) {
    gw_str args = {0};
    gw_str_printf(&args, "%s --set train.accumulate=100000000 --memory 1GB",
                  command_file("run.yaml", tiny));
    json_t *j = plan_json(gw_str_c(&args));
    CHECK(json_is_null(at(j, "verdict.change")));
    json_decref(j);
    gw_str_release(&args);
}

TEST(a_models_notes_are_said_once) {
    gw_str out = {0}, text = {0};
    gw_str_printf(&text, "{\"unheard_of\": 1, %s", config + 1);
    CHECK_EQ(gw_dir_make(test_tmp_path("noted"), NULL), GW_OK);
    command_file("noted/config.json", gw_str_c(&text));
    CHECK_EQ(command_run(&out, "plan '%s' 2>&1", test_tmp_path("noted")), 0);
    const char *first = strstr(gw_str_c(&out), "model-config-unknown");
    CHECK(first && !strstr(first + 1, "model-config-unknown"));
    gw_str_release(&text);
    gw_str_release(&out);
}

TEST(the_page_shows_the_arithmetic) {
    gw_str out = {0};
    CHECK_EQ(
        command_run(&out, "plan gpt2 --set train.seq_len=128 --set precision.gradients=compute"),
        0);
    static const char *const says[] = {
        "124,439,808",       "2 + 2 + 12 = 16", "16 B × 124,439,808 params = 2.0 GB",
        "train.seq_len 128", "verdict",         "optimizer_states"};
    for (size_t i = 0; i < GW_COUNT(says); i++)
        CHECK_MSG(strstr(gw_str_c(&out), says[i]), "nowhere '%s'", says[i]);
    CHECK(!strchr(gw_str_c(&out), '\033'));
    gw_str_release(&out);
}

TEST(K7_fifteen_memories_of_80_GB) {
    gw_str out = {0};
    CHECK_EQ(command_run(&out,
                         "plan llama3-70b --set precision.gradients=compute --set train.seq_len=64 "
                         "--memory 80GB"),
             0);
    CHECK(strstr(gw_str_c(&out), "1.1 TB / 80.0 GB: 15 such memories"));
    gw_str_release(&out);
}

TEST_WITHIN(the_largest_preset_is_planned_in_little_memory, 120) {
    json_t *j = plan_json("llama3-405b");
    CHECK_EQ(int_at(j, "params"), INT64_C(405853388800));
    CHECK_EQ(int_at(j, "memory.static.weights"), 2 * INT64_C(405853388800));
    CHECK(json_is_string(at(j, "assumed")));
    json_decref(j);
    struct rusage u;
    CHECK_EQ(getrusage(RUSAGE_CHILDREN, &u), 0);
    CHECK_MSG(u.ru_maxrss < 1000000, "%ld kB", u.ru_maxrss);
}

TEST(a_model_directory_is_planned) {
    CHECK_EQ(gw_dir_make(test_tmp_path("a \"model\""), NULL), GW_OK);
    command_file("a \"model\"/config.json", config);
    json_t *j = command_json("plan '%s' --json", test_tmp_path("a \"model\""));
    CHECK_EQ(int_at(j, "params"),
             2 * 320 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 128) + 64);
    CHECK_EQ(int_at(j, "seq_len"), 512); /* its own limit, below 4,096 */
    json_decref(j);
}

TEST(bad_input_is_refused_with_what_to_do) {
    static const struct {
        const char *args;
        int code;
        const char *says;
    } cases[] = {
        {"plan 2>&1", 2, "missing"},
        {"plan llama3-9b 2>&1", 2, "did you mean llama3-8b?"},
        {"plan zzz 2>&1", 2, "presets: gpt2"},
        {"plan /nonexistent.yaml 2>&1", 2, "/nonexistent.yaml"},
        {"plan /nonexistent.gguf 2>&1", 2, "/nonexistent.gguf"},
        {"plan '%s' --set train.steps=-1 2>&1", 2, "train.steps"},
        {"plan '%s' --set train.stepz=1 2>&1", 2, "train.steps"},
        {"plan '%s' --set recompute.policy=ops --set 'recompute.ops=[nonsense]' 2>&1", 2,
         "in a layer of this model: rmsnorm"},
        {"plan '%s' --hardware h1000 2>&1", 2, "no machine known"},
        {"plan '%s' --hardware link=1GB/s --json --ranks 2 2>&1", 2, "states no peak"},
        {"plan gpt2 --set train.seq_len=2048 2>&1", 2, "max_positions"},
        {"plan '%s' --set model.vocab=200 --set data.tokenizer=bytes 2>&1", 2, "257 tokens"},
        {"program '%s' --set model.vocab=200 --set data.tokenizer=bytes 2>&1", 2, "257 tokens"},
        {"config '%s' --set model.vocab=200 --set data.tokenizer=bytes 2>&1", 2, "257 tokens"},
        {"plan '%s' --memory lots 2>&1", 2, "--memory"},
        {"program 2>&1", 2, "missing"},
        {"program '%s' --after nope 2>&1", 2, "appends backward by each op's vjp"},
        {"program '%s' --rank 1 2>&1", 2, "numbered from 0"},
        {"program llama3-9b 2>&1", 2, "did you mean llama3-8b?"},
    };
    const char *path = command_file("run.yaml", tiny);
    gw_str out = {0};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        char args[512];
        const char *hole = strstr(cases[i].args, "%s");
        int before = hole ? (int)(hole - cases[i].args) : (int)strlen(cases[i].args);
        snprintf(args, sizeof args, "%.*s%s%s", before, cases[i].args, hole ? path : "",
                 hole ? hole + 2 : "");
        CHECK_EQ(command_run(&out, "%s", args), cases[i].code);
        CHECK_MSG(strstr(gw_str_c(&out), cases[i].says), "nowhere '%s'", cases[i].says);
    }
    command_file("bad.yaml", "model: {preset: gpt2}\ntrain: {seq_lem: 3}\n");
    CHECK_EQ(command_run(&out, "plan '%s' 2>&1", test_tmp_path("bad.yaml")), 2);
    CHECK(strstr(gw_str_c(&out), "bad.yaml:2:"));
    gw_str_release(&out);
}

TEST(a_printed_program_parses_back_after_every_pass) {
    const char *path = command_file("run.yaml", tiny);
    static const char *const after[] = {"build", "autodiff", "step", "recompute", "place", "check"};
    gw_str out = {0};
    for (size_t i = 0; i < GW_COUNT(after); i++)
        for (int derived = 0; derived < 2; derived++) {
            gw_diags dg;
            gw_diags_init(&dg);
            gw_graph g;
            CHECK_EQ(command_run(&out,
                                 "program '%s' --after %s --rank 0 --set recompute.policy=full%s",
                                 path, after[i], derived ? "" : " --quiet"),
                     0);
            CHECK_OK(
                gw_graph_parse(&g, gw_ops_table(), gw_str_c(&out), (int64_t)out.len, "stdout", &dg),
                &dg);
            gw_str again = {0};
            gw_graph_print(&g, &again, derived);
            CHECK_STR(gw_str_c(&again), gw_str_c(&out));
            bool backward = g.ops.count > 60;
            CHECK_EQ(backward, i > 0);
            gw_str_release(&again);
            gw_graph_release(&g);
            gw_diags_release(&dg);
        }
    gw_str_release(&out);
}

TEST(program_lists_passes_and_counts_ops) {
    gw_str out = {0};
    CHECK_EQ(command_run(&out, "program --passes"), 0);
    const char *order[] = {"build", "autodiff", "step", "shard", "recompute", "place", "check"};
    const char *from = gw_str_c(&out);
    for (size_t i = 0; i < GW_COUNT(order); i++) CHECK((from = strstr(from, order[i])) != NULL);
    const char *path = command_file("run.yaml", tiny);
    CHECK_EQ(command_run(&out, "program '%s' --summary", path), 0);
    /* 2 layers × 7 products forward; the same to activations; 2 attentions */
    const char *row = strstr(gw_str_c(&out), "\nmatmul ");
    int f = 0, b = 0;
    CHECK(row && sscanf(row + 8, "%d %d", &f, &b) == 2);
    CHECK_EQ(f, 14);
    CHECK_EQ(b, 14);
    CHECK_EQ(command_run(&out, "program '%s' --forward --summary", path), 0);
    CHECK(!strstr(gw_str_c(&out), "adamw"));
    gw_str_release(&out);
}

static json_t *with(json_t *list, const char *key, int64_t value) {
    size_t i;
    json_t *x;
    json_array_foreach(list, i,
                       x) if (json_integer_value(json_object_get(x, key)) == value) return x;
    CHECK_MSG(false, "no %s %lld", key, (long long)value);
    return NULL;
}

TEST(why_explains_a_layout_to_people_and_to_scripts) {
    gw_str out = {0};
    const char *path = command_file("why.yaml", tiny);
    CHECK_EQ(command_run(&out, "plan %s --why tp --hardware h100", path), 0);
    CHECK(strstr(gw_str_c(&out), "forward 2 all-reduces;\n    backward 2 all-reduces"));
    CHECK(strstr(gw_str_c(&out), "it stops paying at t"));
    CHECK(strstr(gw_str_c(&out), "heads, uneven at t 8"));
    for (const char *line = gw_str_c(&out); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        CHECK_MSG(strcspn(line, "\n") <= 104, "%.120s",
                  line); /* bytes: two columns fewer for a × */
    }
    CHECK_EQ(
        command_run(&out, "plan %s --why cp --memory 1GB --hardware flops=1T,link=1GB/s", path), 0);
    CHECK(strstr(gw_str_c(&out), "at this length the ring hides"));
    CHECK(strstr(gw_str_c(&out), "--set layout.cp=1"));
    CHECK_EQ(command_run(&out, "plan %s --why cp --hardware h1000 2>&1", path), 2);
    CHECK(strstr(gw_str_c(&out), "h1000"));
    CHECK_EQ(command_run(&out, "plan %s --why dp 2>&1", path), 2);

    gw_str args = {0};
    gw_str_printf(&args, "'%s' --why tp --hardware h100", path);
    json_t *j = plan_json(gw_str_c(&args)), *row = with(at(j, "why.tp"), "t", 4);
    /* 4 all-reduces of 8 x 64 tokens x 64 float32 over 4 ranks */
    int64_t sum = 0;
    size_t i;
    json_t *x;
    json_array_foreach(at(row, "plain.tp"), i, x) sum += json_integer_value(at(x, "payload_bytes"));
    CHECK_EQ(sum, 4 * 2 * 3 * (8 * 64 * 64 * 4) / 4);
    CHECK_NEAR(json_real_value(at(row, "exposed_seconds")), (double)sum / 450e9, 1e-12);
    CHECK_NEAR(json_real_value(at(row, "kv_copies")), 2, 0);
    json_decref(j);
    gw_str_release(&args);
    gw_str_release(&out);
}

TEST(several_explanations_are_all_given) {
    gw_str out = {0}, args = {0};
    const char *path = command_file("both.yaml", tiny);
    CHECK_EQ(command_run(&out, "plan %s --why tp --why cp", path), 0);
    CHECK(strstr(gw_str_c(&out), "why tensor parallelism stops"));
    CHECK(strstr(gw_str_c(&out), "ring"));
    gw_str_printf(&args, "'%s' --why tp --why cp", path);
    json_t *j = plan_json(gw_str_c(&args));
    CHECK(json_array_size(at(j, "why.tp")) > 0 && json_array_size(at(j, "why.cp")) > 0);
    json_decref(j);
    gw_str_release(&args);
    gw_str_release(&out);
}

/* Query heads, kv heads, ranks: kv heads of a rank, and how many ranks have the same. Each rank has
 * the kv heads that its query heads read. */
TEST(the_table_of_parameters_tells_how_kv_heads_lie) {
    static const struct {
        int heads, kv, tp, each, copies;
    } cases[] = {{8, 4, 8, 1, 2}, {4, 1, 4, 0, 4}, {12, 3, 4, 0, 4}, {12, 6, 2, 3, 1}};
    const char *path = command_file("kv.yaml", tiny);
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_str args = {0};
        gw_str_printf(&args,
                      "%s --ranks %d --set layout.tp=%d --set model.hidden=96 --set "
                      "model.heads=%d --set model.kv_heads=%d",
                      path, cases[i].tp, cases[i].tp, cases[i].heads, cases[i].kv);
        json_t *j = plan_json(gw_str_c(&args)), *line, *k = NULL;
        size_t n;
        json_array_foreach(at(j, "placement"), n, line) {
            if (strstr(json_string_value(at(line, "parameters")), "attn.k.")) k = line;
        }
        CHECK(k);
        CHECK_EQ(int_at(k, "most"), cases[i].each);
        CHECK_EQ(int_at(k, "copies"), cases[i].copies);
        CHECK_EQ(int_at(k, "empty_ranks"), 0);
        CHECK_EQ(json_is_null(json_object_get(k, "cut")), cases[i].each == 0);
        json_decref(j);
        gw_str_release(&args);
    }
}

/* The smallest cp is the first whose own plan is within the bound. */
TEST_WITHIN(the_smallest_cp_that_fits_is_what_its_plan_says, 120) {
    const char *path = command_file("fit.yaml", tiny);
    gw_str args = {0};
    int64_t total[3];
    for (int i = 0; i < 3; i++) {
        gw_str_clear(&args);
        gw_str_printf(&args, "'%s' --ranks %d --set layout.cp=%d --set layout.dp=1", path, 1 << i,
                      1 << i);
        json_t *j = plan_json(gw_str_c(&args));
        total[i] = json_integer_value(at(j, "memory.total_bytes"));
        json_decref(j);
    }
    CHECK(total[1] < total[0] && total[2] < total[1]);
    gw_str_clear(&args);
    gw_str_printf(&args, "'%s' --why cp --memory %lld", path, (long long)total[2]);
    json_t *j = plan_json(gw_str_c(&args));
    for (int i = 0; i < 3; i++) {
        json_t *row = with(at(j, "why.fits"), "cp", 1 << i);
        CHECK_EQ(json_integer_value(at(row, "total_bytes")), total[i]);
        CHECK_EQ(json_is_true(at(row, "fits")), i == 2);
    }
    CHECK_EQ(json_array_size(at(j, "why.fits")), 3);
    json_decref(j);
    gw_str_release(&args);
}
