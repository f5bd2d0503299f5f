// SPDX-License-Identifier: Apache-2.0
// Steps on machines that are only described, many in one process.
//
//   build/release/bench/steps < REQUESTS
//
// A request is one line of JSON, and so is the answer. What takes long is compiling a run, so that
// is done once, and each run is then simulated on as many machines as are asked about:
//
//   {"run": TEXT, "world": N}          compiles a run file; {"number": 0}, 1, 2 .. in order, or
//                                      {"error": WHY}
//   {"number": 0, "machine": "h100"}   simulates it; the keys of `plan --hardware --json` that
//                                      speak of the simulated step, or {"error": WHY}
//
// bench/published.py compares what others have published this way, and scripts/fit_machine.py, for
// which a machine is the path of a hardware file with other parameters.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/planarg.h"  /* gw_target, gw_planned */
#include "plan/machine.h" /* gw_machine_read */
#include "plan/simplan.h" /* gw_simplan_json */

enum { MOST = 4096 };

/* A compiled run; stays where it is. */
typedef struct compiled {
    gw_target target;
    gw_planned planned;
    const gw_graph **programs;
} compiled;

typedef struct bench {
    compiled *runs[MOST];
    int nruns;
    gw_arena mem;
} bench;

static json_t *failed(const gw_diags *dg) {
    return json_pack("{s:s}", "error", gw_diags_first_error(dg));
}

static gw_status compile(compiled *c, const char *text, int64_t world, gw_arena *a, gw_diags *dg) {
    int64_t len = (int64_t)strlen(text);
    GW_TRY(gw_runfile_parse_for(&c->target.rf, "request", text, len, NULL, 0, world, dg));
    if (world > 0) GW_TRY(gw_runfile_set_ranks(&c->target.rf, world, dg));
    GW_TRY(gw_target_set_up(&c->target, 0, dg));
    GW_TRY(gw_planned_init(&c->planned, &c->target.setup, NULL, dg));
    c->programs = gw_arena_new(a, const gw_graph *, c->planned.n);
    for (int r = 0; r < c->planned.n; r++) c->programs[r] = &c->planned.programs[r];
    return GW_OK;
}

/* A run that fails is not released: the process has a few, and ends. */
static json_t *add_run(bench *b, const json_t *request) {
    gw_diags dg;
    gw_diags_init(&dg);
    compiled *c = gw_arena_new(&b->mem, compiled, 1);
    const char *text = json_string_value(json_object_get(request, "run"));
    int64_t world = json_integer_value(json_object_get(request, "world"));
    json_t *answer;
    if (b->nruns == MOST) {
        answer = json_pack("{s:s}", "error", "too many runs");
    } else if (compile(c, text, world, &b->mem, &dg) != GW_OK) {
        answer = failed(&dg);
    } else {
        b->runs[b->nruns] = c;
        answer = json_pack("{s:i}", "number", b->nruns++);
    }
    gw_diags_release(&dg);
    return answer;
}

static json_t *simulate(const compiled *c, const char *machine, gw_diags *dg) {
    gw_arena mem = {0};
    gw_machine_spec m;
    gw_simplan sim;
    if (gw_machine_read(machine, &mem, &m, dg) != GW_OK) {
        gw_arena_release(&mem);
        return failed(dg);
    }
    gw_simplan_init(&sim, &(gw_simplan_input){.ranks = c->planned.ranks,
                                              .programs = c->programs,
                                              .n = c->planned.n,
                                              .largest = c->planned.largest,
                                              .machine = &m});
    json_t *answer = json_object();
    gw_simplan_json(&sim, answer);
    gw_simplan_release(&sim);
    gw_arena_release(&mem);
    return answer;
}

static json_t *answer_to(bench *b, const char *line) {
    json_t *request = json_loads(line, 0, NULL), *answer = NULL;
    const char *machine = json_string_value(json_object_get(request, "machine"));
    if (json_is_string(json_object_get(request, "run"))) {
        answer = add_run(b, request);
    } else if (machine) {
        json_int_t i = json_integer_value(json_object_get(request, "number"));
        gw_diags dg;
        gw_diags_init(&dg);
        if (i >= 0 && i < b->nruns) answer = simulate(b->runs[i], machine, &dg);
        gw_diags_release(&dg);
    }
    json_decref(request);
    return answer ? answer : json_pack("{s:s}", "error", "neither a run nor a number and machine");
}

static void release(bench *b) {
    for (int i = 0; i < b->nruns; i++) {
        compiled *c = b->runs[i];
        gw_planned_release(&c->planned);
        gw_target_release(&c->target);
    }
    gw_arena_release(&b->mem);
}

int main(void) {
    static bench b;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *answer = answer_to(&b, line);
        json_dumpf(answer, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
    }
    free(line);
    release(&b);
    return 0;
}
