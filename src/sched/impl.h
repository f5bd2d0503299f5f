// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share; not for others.
#ifndef GW_SCHED_IMPL_H
#define GW_SCHED_IMPL_H

#include "sched/sched.h"

#define X(id) extern const gw_sched_kind gw_sched_kind_##id;
#include "sched/schedules.def"
#undef X

/* gw_sched_kind.admits of kinds with one stage a rank and any number of micro-batches. */
bool gw_sched_one_stage(const gw_sched_request *r, gw_arena *a, const char **why,
                        gw_sched_request *near);

/* Does something travel between stages s and s + 1? Both must be stages. */
static inline bool gw_sched_crosses(const gw_schedule *s, int stage) {
    return s->rank_of[stage] != s->rank_of[stage + 1];
}

/* Channels are numbered by the stage that sends: 2 s from stage s on to s + 1, 2 s + 1 from stage s
 * back to s - 1. The channel of a message's sending or receiving; -1 where there is none: another
 * kind of action, no such stage, both ends on one rank. The stage is one of the schedule's. */
static inline int gw_sched_channel(const gw_schedule *s, gw_action a) {
    int st = a.stage;
    switch ((gw_act)a.act) {
    case GW_ACT_SEND_F: return st + 1 < s->stages && gw_sched_crosses(s, st) ? 2 * st : -1;
    case GW_ACT_RECV_F: return st > 0 && gw_sched_crosses(s, st - 1) ? 2 * (st - 1) : -1;
    case GW_ACT_SEND_B: return st > 0 && gw_sched_crosses(s, st - 1) ? 2 * st + 1 : -1;
    case GW_ACT_RECV_B: return st + 1 < s->stages && gw_sched_crosses(s, st) ? 2 * st + 3 : -1;
    case GW_ACT_F:
    case GW_ACT_B:
    case GW_ACT_I:
    case GW_ACT_W:
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return -1;
}
static inline int gw_sched_sender(const gw_schedule *s, int channel) {
    return s->rank_of[channel / 2];
}
static inline int gw_sched_receiver(const gw_schedule *s, int channel) {
    return s->rank_of[channel / 2 + (channel % 2 ? -1 : 1)];
}

/* Where a schedule was written, for messages about it. */
typedef struct gw_sched_token {
    gw_action action;
    int rank, line, column;
} gw_sched_token;
typedef struct gw_sched_source {
    const char *file;
    const gw_sched_token *tokens; /* in the order of the text */
    int64_t n;
    const gw_where *ranks; /* [ranks]: where each list begins; line 0: it has none */
} gw_sched_source;
/* gw_schedule_check, with places in the text where `src` is not NULL. */
gw_status gw_schedule_check_at(const gw_schedule *s, const gw_sched_checks *c,
                               const gw_sched_source *src, gw_diags *dg);

#endif
