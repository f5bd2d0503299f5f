// SPDX-License-Identifier: Apache-2.0
// Where the time of a unit goes: seconds by stage.
#ifndef GW_DATA_BUILD_STAGES_H
#define GW_DATA_BUILD_STAGES_H

#include <jansson.h> /* json_t */
#include <stdint.h>

typedef enum gw_stage {
    GW_STAGE_SOURCE,
    GW_STAGE_EXTRACT,
    GW_STAGE_LANGUAGE,
    GW_STAGE_FILTERS,
    GW_STAGE_MINHASH,
    GW_STAGE_STORE,
    GW_STAGE_LOAD,
    GW_STAGE_SPANS,
    GW_STAGE_PII,
    GW_STAGE_TOKENIZE,
    GW_STAGE_COUNT
} gw_stage;
const char *gw_stage_name(gw_stage s); /* "tokenize" */

typedef struct gw_stages {
    int64_t ns[GW_STAGE_COUNT]; /* by the clock, while the stage ran */
    int64_t last_ns, wall_ns, cpu_ns;
} gw_stages;

void gw_stages_begin(gw_stages *s);
/* The time since begin, or since the last mark, belongs to `stage`. */
void gw_stages_mark(gw_stages *s, gw_stage stage);
void gw_stages_end(gw_stages *s);
/* {"cpu": seconds, "wall": seconds, "stages": {name: CPU seconds}}: the clock's shares of the
 * process's CPU time, so that waiting for a busy core counts for nobody. */
json_t *gw_stages_json(const gw_stages *s);

#endif
