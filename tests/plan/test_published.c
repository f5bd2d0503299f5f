// SPDX-License-Identifier: Apache-2.0
// A few steps that others have published, against what the simulator says of them: a short form of
// bench/published, which has all rows, and whose bounds (8, 12 and 15 %) are of the medians of
// their groups. A single row has more room than a median: a run repeats within 3 %, and releases of
// one trainer differ by more.
#include "harness.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "plan/machine.h"  /* gw_machine_read */
#include "plan/simulate.h" /* gw_simulate */
#include "planned.h"

/* The run file of a row; JSON is YAML. As run_file of bench/published.py. */
static char *run_of(const json_t *row) {
    json_t *layout = json_deep_copy(json_object_get(row, "layout"));
    json_int_t tp = json_integer_value(json_object_get(layout, "tp"));
    json_int_t cp = json_integer_value(json_object_get(layout, "cp"));
    json_int_t dp = json_integer_value(json_object_get(row, "world")) / (tp ? tp : 1);
    if (tp <= 1) (void)json_object_del(layout, "sequence_parallel");
    json_object_set_new(layout, "dp", json_integer(dp / (cp ? cp : 1)));
    json_t *model = json_deep_copy(json_object_get(row, "model"));
    if (json_object_get(model, "family") && !json_object_get(model, "max_positions"))
        json_object_set(model, "max_positions", json_object_get(row, "seq"));
    json_t *precision = json_pack("{s:s}", "compute", "bf16");
    if (strcmp(json_string_value(json_object_get(row, "precision")), "fp8") == 0)
        json_object_set_new(precision, "products", json_string("fp8"));
    json_t *run =
        json_pack("{s:o, s:{s:O, s:O, s:O}, s:o, s:o, s:{s:O}}", "model", model, "train", "seq_len",
                  json_object_get(row, "seq"), "global_batch", json_object_get(row, "global_batch"),
                  "micro_batch", json_object_get(row, "micro_batch"), "precision", precision,
                  "layout", layout, "recompute", "policy", json_object_get(row, "recompute"));
    char *text = json_dumps(run, JSON_COMPACT);
    json_decref(run);
    return text;
}

/* Seconds of a step, where the source gives these or tokens a second. */
static double published_seconds(const json_t *row) {
    const json_t *x = json_object_get(row, "published");
    double value = json_number_value(json_object_get(x, "value"));
    if (strcmp(json_string_value(json_object_get(x, "unit")), "seconds") == 0) return value;
    double tokens = json_number_value(json_object_get(row, "seq")) *
                    json_number_value(json_object_get(row, "global_batch"));
    return tokens / json_number_value(json_object_get(row, "world")) / value;
}

static void check_row(const json_t *row, double percent) {
    planned p;
    gw_arena mem = {0};
    gw_machine_spec m;
    gw_sim_result sim;
    char *text = run_of(row);
    PLAN(&p, "%s", text);
    const char *chip = json_string_value(json_object_get(row, "chip"));
    CHECK_OK(gw_machine_read(chip, &mem, &m, &p.dg), &p.dg);
    const gw_graph *programs[] = {&p.step};
    gw_simulate(programs, 1, &m, NULL, &mem, &sim, NULL);
    double error = 100 * (sim.step_s / published_seconds(row) - 1);
    CHECK_MSG(fabs(error) <= percent, "%s: %+.1f %%, bound %.0f %%",
              json_string_value(json_object_get(row, "id")), error, percent);
    gw_arena_release(&mem);
    planned_release(&p);
    free(text);
}

TEST(published_steps_are_met) {
    static const struct {
        const char *id;
        double percent;
    } rows[] = {
        {"foundry-a100-80g-1b-2048-8-14x4", 10},
        {"foundry-a100-80g-125m-2048-8-32x2", 15},
        {"foundry-a100-80g-1b-16384-8-2x4", 15},
        {"foundry-a100-40g-760m-32768-8-1x4", 15},
        {"foundry-h100-sxm-1b-2048-8-14x1", 10},
        {"foundry-h100-sxm-760m-4096-8-12x2", 15},
        {"recompute-22b-full", 10},
        {"nemo-2407-llama2-7b", 10},
        {"nemo-cp-32k", 15},
        {"bridge-25.11-pre-llama3_8b-b200-fp8-cs", 15},
        {"bridge-26.04-pre-qwen3-30b-a3b-h100", 20},
        {"bridge-26.06-pre-qwen3-30b-a3b-gb200", 20},
    };
    json_error_t error;
    json_t *all = json_load_file(GW_TESTS_DIR "/plan/published.json", 0, &error), *row;
    CHECK_MSG(all != NULL, "published.json: %s, line %d", error.text, error.line);
    size_t at, found = 0;
    json_array_foreach(json_object_get(all, "rows"), at, row) {
        const char *id = json_string_value(json_object_get(row, "id"));
        for (size_t i = 0; i < GW_COUNT(rows); i++) {
            if (strcmp(rows[i].id, id) != 0) continue;
            check_row(row, rows[i].percent);
            found++;
        }
    }
    CHECK_EQ(found, GW_COUNT(rows));
    json_decref(all);
}
