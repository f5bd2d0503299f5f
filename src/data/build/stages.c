// SPDX-License-Identifier: Apache-2.0
// Seconds by stage.
//
// A document passes a stage in microseconds, and asking the kernel for CPU time costs about as much
// as a small stage. So marks read the monotonic clock, which costs 25 ns, and CPU time is asked for
// once a unit: a stage gets the share of it that it has of the clock.
#include "data/build/stages.h" /* this module's contract */

#include <time.h>

#include "base/clock.h" /* gw_clock_ns */

const char *gw_stage_name(gw_stage s) {
    static const char *const names[GW_STAGE_COUNT] = {
        [GW_STAGE_SOURCE] = "source",     [GW_STAGE_EXTRACT] = "extract",
        [GW_STAGE_LANGUAGE] = "language", [GW_STAGE_FILTERS] = "filters",
        [GW_STAGE_MINHASH] = "minhash",   [GW_STAGE_STORE] = "store",
        [GW_STAGE_LOAD] = "load",         [GW_STAGE_SPANS] = "spans",
        [GW_STAGE_PII] = "pii",           [GW_STAGE_TOKENIZE] = "tokenize",
    };
    return names[s];
}

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void gw_stages_begin(gw_stages *s) {
    *s = (gw_stages){0};
    s->cpu_ns = cpu_ns();
    s->wall_ns = s->last_ns = gw_clock_ns();
}

void gw_stages_mark(gw_stages *s, gw_stage stage) {
    int64_t now = gw_clock_ns();
    s->ns[stage] += now - s->last_ns;
    s->last_ns = now;
}

void gw_stages_end(gw_stages *s) {
    s->cpu_ns = cpu_ns() - s->cpu_ns;
    s->wall_ns = gw_clock_ns() - s->wall_ns;
}

json_t *gw_stages_json(const gw_stages *s) {
    json_t *stages = json_object();
    double share = s->wall_ns > 0 ? (double)s->cpu_ns / (double)s->wall_ns : 0;
    for (int i = 0; i < GW_STAGE_COUNT; i++)
        if (s->ns[i])
            json_object_set_new(stages, gw_stage_name((gw_stage)i),
                                json_real((double)s->ns[i] * share * 1e-9));
    return json_pack("{s:f, s:f, s:o}", "cpu", (double)s->cpu_ns * 1e-9, "wall",
                     (double)s->wall_ns * 1e-9, "stages", stages);
}
