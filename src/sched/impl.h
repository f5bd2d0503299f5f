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

/* Micro-batches of one stage that wait for something, in the order of a list: now and at most. Of a
 * whole backward what F leaves is one kind (to_input). */
typedef struct gw_sched_places {
    bool halves;
    /* F to I, F to W, I to W; a message on from its receive to I; one back to I, and to W */
    int32_t now[6], most[6];
} gw_sched_places;
static inline void gw_sched_take(gw_sched_places *p, int kind) {
    if (++p->now[kind] > p->most[kind]) p->most[kind] = p->now[kind];
}
static inline void gw_sched_place(gw_sched_places *p, gw_act act) {
    bool i = act == GW_ACT_I || act == GW_ACT_B, w = act == GW_ACT_W || act == GW_ACT_B;
    if (act == GW_ACT_F) {
        gw_sched_take(p, 0);
        if (p->halves) gw_sched_take(p, 1);
    }
    if (i && p->halves) gw_sched_take(p, 2);
    if (act == GW_ACT_RECV_F) gw_sched_take(p, 3);
    if (act == GW_ACT_RECV_B) gw_sched_take(p, 4);
    if (act == GW_ACT_RECV_B) gw_sched_take(p, 5);
    if (i) p->now[0]--;
    if (i) p->now[3]--;
    if (i) p->now[4]--;
    if (w) p->now[5]--;
    if (!w || !p->halves) return;
    p->now[1]--;
    p->now[2]--;
}
/* Messages that are received before they are needed take places beyond those of `placed`. */
static inline int32_t gw_sched_early(const gw_sched_places *p) {
    int32_t on = p->most[3] - p->most[0], back = p->most[4] - 1;
    if (p->halves && p->most[5] - p->most[2] > back) back = p->most[5] - p->most[2];
    return (on > 0 ? on : 0) + (back > 0 ? back : 0);
}
/* What they take, with `held`, `held_weight` and `made` of gw_sched_costs. */
static inline double gw_sched_placed(const gw_sched_places *p, double held, double held_weight,
                                     double made) {
    double kept = held_weight - made; /* from F on */
    if (!p->halves) return p->most[0] * held;
    return p->most[0] * (held - kept) + p->most[1] * kept + p->most[2] * made;
}

/* The same of what is there now: what one pool for all kinds would need. */
static inline double gw_sched_there(const gw_sched_places *p, double held, double held_weight,
                                    double made) {
    double kept = held_weight - made;
    if (!p->halves) return p->now[0] * held;
    return p->now[0] * (held - kept) + p->now[1] * kept + p->now[2] * made;
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
