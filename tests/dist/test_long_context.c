// SPDX-License-Identifier: Apache-2.0
// One long sequence over several ranks: the losses of one rank, in a part of its memory.
//
// The ranks are processes, started as a user starts them, and what is looked at is what the run
// reports of itself: losses and norms of metrics.jsonl, and of summary.json each rank's arena, Pss
// and bytes sent. The text is one document, so attention sees all of a sequence behind it. A short
// length runs always; 131,072 tokens (`make test-long`) are a step of 34 billion pairs of query and
// key in all, three minutes of one core.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h> /* WEXITSTATUS */

#include "base/io.h"  /* gw_path_exists, gw_file_read, gw_file_write_atomic */
#include "base/str.h" /* gw_str */
#include "harness.h"

enum { MOST_RANKS = 4, MOST_STEPS = 3 };

typedef struct model {
    int layers, hidden, heads, kv_heads;
} model;

typedef struct result {
    int steps;
    double loss[MOST_STEPS], norm[MOST_STEPS];
    int64_t planned_process, planned_arena[MOST_RANKS], arena[MOST_RANKS], process[MOST_RANKS];
    int64_t parameters;
} result;

/* ---- a run ---- */

static void command(const char *fmt, ...) GW_PRINTF(1, 2);
static void command(const char *fmt, ...) {
    const char *bin = getenv("GW_BIN");
    if (!bin || !gw_path_exists(bin)) SKIP("GW_BIN names no program");
    gw_str cmd = {0}, log = {0};
    gw_str_printf(&cmd, "'%s' ", bin);
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(&cmd, fmt, ap);
    va_end(ap);
    gw_str_printf(&cmd, " >'%s' 2>&1", test_tmp_path("log"));
    int rc = system(gw_str_c(&cmd));
    test_note("%s", gw_str_c(&cmd));
    bool well = WIFEXITED(rc) && WEXITSTATUS(rc) == 0;
    if (!well && gw_file_read(test_tmp_path("log"), 1 << 20, &log, NULL) == GW_OK)
        test_note("%.4000s", gw_str_c(&log));
    CHECK_MSG(well, "status %d", WIFEXITED(rc) ? WEXITSTATUS(rc) : -1);
    gw_str_release(&cmd);
    gw_str_release(&log);
}

static void write_text(const char *name, const gw_str *text) {
    CHECK_EQ(gw_file_write_atomic(test_tmp_path(name), gw_str_c(text), (int64_t)text->len, NULL),
             GW_OK);
}

/* One document of `tokens` bytes: words in an order that does not repeat within a sequence. */
static void prepare(const model *m, int64_t tokens) {
    static const char *const words[] = {"ring ", "long ", "key ", "query ", "block ", "sum ", "a "};
    gw_str text = {0};
    uint32_t x = 12345;
    while ((int64_t)text.len < tokens) {
        x = x * 1664525u + 1013904223u;
        gw_str_add(&text, words[(x >> 16) % 7]);
    }
    write_text("text", &text);
    command("tokenizer encode bytes '%s' --out '%s'", test_tmp_path("text"),
            test_tmp_path("tokens"));
    gw_str_clear(&text);
    gw_str_printf(&text,
                  "model: {family: llama, layers: %d, hidden: %d, heads: %d, kv_heads: %d, "
                  "ffn: %d}\n"
                  "data: {train: '%s', tokenizer: bytes}\n"
                  "train: {global_batch: 1, accumulate: 1, threads: 1}\n"
                  "optimizer: {name: sgd, lr: 0.1, warmup_steps: 0}\n"
                  "checkpoint: {every: 0}\n",
                  m->layers, m->hidden, m->heads, m->kv_heads, 2 * m->hidden,
                  test_tmp_path("tokens"));
    write_text("run.yaml", &text);
    gw_str_release(&text);
}

static void read_steps(result *r, const char *metrics) {
    gw_str text = {0};
    CHECK_EQ(gw_file_read(metrics, 1 << 20, &text, NULL), GW_OK);
    int n = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *j = json_loads(line, 0, NULL);
        CHECK_MSG(j, "%s", line);
        if (json_object_get(j, "step_s")) {
            CHECK(n < MOST_STEPS);
            r->loss[n] = json_number_value(json_object_get(j, "loss"));
            r->norm[n++] = json_number_value(json_object_get(j, "grad_norm"));
        }
        json_decref(j);
    }
    CHECK_EQ(n, r->steps);
    gw_str_release(&text);
}

static int64_t integer(const json_t *j, const char *key) {
    const json_t *x = json_object_get(j, key);
    CHECK_MSG(json_is_integer(x), "no integer '%s'", key);
    return json_integer_value(x);
}

static void read_summary(result *r, int ranks, const char *summary) {
    json_error_t e;
    json_t *j = json_load_file(summary, 0, &e);
    CHECK_MSG(j, "%s", e.text);
    const json_t *planned = json_object_get(j, "planned"), *all = json_object_get(j, "by_rank");
    r->planned_process = integer(planned, "process_bytes");
    r->parameters = integer(j, "parameters");
    if (ranks == 1) {
        const json_t *measured = json_object_get(j, "measured");
        r->planned_arena[0] = integer(planned, "arena_bytes");
        r->arena[0] = integer(measured, "arena_bytes");
        r->process[0] = integer(measured, "process_bytes");
    } else {
        CHECK(json_is_true(json_object_get(j, "wire_as_planned"))); /* every byte, on each rank */
        CHECK_EQ(json_array_size(all), ranks);
        for (int i = 0; i < ranks; i++) {
            const json_t *one = json_array_get(all, (size_t)i);
            r->planned_arena[i] = integer(one, "planned_arena_bytes");
            r->arena[i] = integer(one, "arena_bytes");
            r->process[i] = integer(one, "process_bytes");
        }
    }
    json_decref(j);
}

/* Pss beside the plan: stacks and what libraries keep are not in it, and pages not touched are. A
 * sanitizer's own memory is beside the point. */
static void check_process(int64_t planned, int64_t measured) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    test_note("process memory: planned %lld, measured %lld", (long long)planned,
              (long long)measured);
    CHECK(llabs(measured - planned) <= planned / 10 + 4 * 1000 * 1000);
#else
    (void)planned;
    (void)measured;
#endif
}

/* `steps` steps on a sequence of `length` tokens; `layout`: further --set words. Each of a test's
 * runs has a name of its own. */
static result train(const char *name, int64_t length, int steps, int ranks, const char *layout) {
    result r = {.steps = steps};
    char metrics[64], summary[64];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", name);
    snprintf(summary, sizeof summary, "%s/summary.json", name);
    command("train '%s' --out '%s' --ranks %d --set train.seq_len=%lld --set train.steps=%d %s",
            test_tmp_path("run.yaml"), test_tmp_path(name), ranks, (long long)length, steps,
            layout);
    read_steps(&r, test_tmp_path(metrics));
    read_summary(&r, ranks, test_tmp_path(summary));
    for (int i = 0; i < ranks; i++) {
        CHECK_EQ(r.arena[i], r.planned_arena[i]);
        check_process(r.planned_process, r.process[i]);
    }
    return r;
}

/* ---- what must hold ---- */

/* Sums are taken in another order: 1e-5, relative, is what float32 leaves of a mean over thousands
 * of tokens; norms are square roots of sums over fewer terms. */
static void same_function(const result *cut, const result *one) {
    CHECK_EQ(cut->parameters, one->parameters);
    for (int i = 0; i < one->steps; i++) {
        test_note("step %d: loss %.9g and %.9g, norm %.9g and %.9g", i + 1, cut->loss[i],
                  one->loss[i], cut->norm[i], one->norm[i]);
        CHECK_NEAR(cut->loss[i], one->loss[i], 1e-5 * fabs(one->loss[i]));
        CHECK_NEAR(cut->norm[i], one->norm[i], 1e-4 * one->norm[i]);
    }
}

/* What one rank's arena holds of the tokens, over what a cut one's does. Parameters with their
 * gradients (and no states of SGD without momentum) are whole on every rank. */
static double shrinks(const result *one, const result *cut) {
    double whole = 8 * (double)one->parameters;
    double ratio = ((double)one->arena[0] - whole) / ((double)cut->arena[0] - whole);
    test_note("arena of tokens: %.2f times smaller", ratio);
    return ratio;
}

#define CP4 "--set layout.cp=4 --set layout.cp_mode="

TEST(four_ranks_hold_a_sequence_and_its_loss_is_that_of_one) {
    static const char *const modes[][2] = {
        {"ring", CP4 "ring"},
        {"ulysses", CP4 "ulysses"},
        {"allgather", CP4 "allgather"},
        {"hybrid", CP4 "hybrid --set layout.cp_ulysses=2"},
    };
    const model m = {.layers = 1, .hidden = 32, .heads = 4, .kv_heads = 2};
    prepare(&m, 3 * 4096 + 1);
    result one = train("one", 4096, 2, 1, "");
    for (int i = 0; i < 4; i++) {
        result cut = train(modes[i][0], 4096, 2, 4, modes[i][1]);
        same_function(&cut, &one);
        if (strcmp(modes[i][0], "allgather") != 0) CHECK(shrinks(&one, &cut) > 2);
    }
}

/* Zigzag makes 2 C chunks: lengths that do not divide are padded, and the padding counts nowhere.
 */
TEST(an_odd_length_is_padded_and_counts_nothing) {
    const model m = {.layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1};
    prepare(&m, 3 * 1021 + 1);
    result one = train("one", 1021, 2, 1, ""), cut = train("ring", 1021, 2, 4, CP4 "ring");
    same_function(&cut, &one);
}

TEST_LONG(a_length_of_131072_runs_on_four_ranks_as_planned) {
    const model m = {.layers = 2, .hidden = 64, .heads = 2, .kv_heads = 1};
    prepare(&m, 3 * 131072 + 1);
    result one = train("one-8192", 8192, 2, 1, ""), cut = train("8192", 8192, 2, 4, CP4 "ring");
    same_function(&cut, &one);
    one = train("one-32768", 32768, 1, 1, "");
    result quarter = train("32768", 32768, 1, 4, CP4 "ring");
    same_function(&quarter, &one);
    CHECK(shrinks(&one, &quarter) > 3);
    cut = train("131072", 131072, 3, 4, CP4 "ring");
    for (int i = 0; i < cut.steps; i++) CHECK(isfinite(cut.loss[i]) && isfinite(cut.norm[i]));
    CHECK(cut.loss[2] < cut.loss[0]);           /* it learns */
    CHECK(cut.arena[0] < 4 * quarter.arena[0]); /* parameters do not grow with the length */
}
