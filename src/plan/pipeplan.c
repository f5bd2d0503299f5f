// SPDX-License-Identifier: Apache-2.0
// What a pipeline adds to the plan of its ranks.
//
// Each rank of a pipeline has a program and a ledger of its own; nothing of theirs is computed
// again here. What is new is between them: how the work is spread over stages (the costs by which
// the model was cut), and what the schedule makes of it, by the clock that the searching schedules
// use (sched/clock.c), on this model's stages. Three figures stand beside each other: the known
// formula, which takes all stages alike; the clock on stages alike, which must equal it; and the
// clock on the stages as they are, which is what a run can reach.
//
// Times are shares of an average rank's micro-batch, since nobody knows how fast a rank is. Where a
// machine is stated they are seconds: products at its speed, messages over its link.
//
// A norm of all gradients is a barrier: no rank steps before the last one is done. Deferred it is
// none, and a rank goes on with the next step at once. In a run of many steps the first costs the
// whole step each time, the second the longest span of a rank: the difference is the price of
// `optimizer.norm: exact`.
#include "plan/pipeplan.h"

#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */

static const char *const send_rows[] = {GW_WIRE_SEND_FORWARD, GW_WIRE_SEND_BACK, GW_WIRE_SEND_ONCE};

static void copy_schedule(gw_pipeplan *p, const gw_schedule *s) {
    p->schedule = *s;
    p->schedule.name = p->name = gw_arena_strdup(&p->mem, s->name);
    p->schedule.rank_of =
        gw_arena_dup(&p->mem, s->rank_of, s->stages * (int64_t)sizeof *s->rank_of);
    gw_actions *lists = gw_arena_new(&p->mem, gw_actions, s->ranks);
    for (int r = 0; r < s->ranks; r++) {
        lists[r].n = s->lists[r].n;
        lists[r].items = gw_arena_dup(&p->mem, s->lists[r].items,
                                      s->lists[r].n * (int64_t)sizeof *s->lists[r].items);
        for (int64_t i = 0; i < s->lists[r].n; i++)
            p->halves |= s->lists[r].items[i].act == GW_ACT_I;
    }
    p->schedule.lists = lists;
}

static void read_stages(gw_pipeplan *p, const gw_stage_report *stages) {
    p->stage = gw_arena_new(&p->mem, gw_pipeplan_stage, p->stages);
    p->work = gw_arena_new(&p->mem, double, p->n);
    double sum = 0, most = 0;
    for (int s = 0; s < p->stages; s++) {
        const gw_stage_report *x = &stages[s];
        int rank = p->schedule.rank_of[s];
        p->stage[s] = (gw_pipeplan_stage){.rank = rank,
                                          .first_layer = x->first_layer,
                                          .layers = x->layers,
                                          .forward = x->forward,
                                          .input = x->input,
                                          .weight = x->weight,
                                          .sent_forward = x->sent_forward,
                                          .sent_backward = x->sent_backward};
        p->work[rank] += x->forward + x->input + x->weight;
        sum += x->forward + x->input + x->weight;
    }
    for (int r = 0; r < p->n; r++) most = fmax(most, p->work[r]);
    p->uneven = sum > 0 ? most * p->n / sum - 1 : 0;
}

/* How many FLOP equivalents make one unit of time. */
static double unit_of(const gw_pipeplan *p, const gw_machine_spec *hw) {
    if (hw && gw_machine_flops(hw, GW_BF16) > 0) return gw_machine_flops(hw, GW_BF16);
    double sum = 0;
    for (int r = 0; r < p->n; r++) sum += p->work[r];
    return sum > 0 ? sum / p->n : 1;
}

static void read_costs(gw_pipeplan *p, const gw_machine_spec *hw) {
    int n = p->stages;
    double unit = unit_of(p, hw);
    double link = hw && p->in_seconds ? gw_machine_link(hw, p->ranks[0].ranks) : 0;
    double *x[4];
    for (int k = 0; k < 4; k++) x[k] = gw_arena_new(&p->mem, double, n);
    for (int s = 0; s < n; s++) {
        const gw_pipeplan_stage *g = &p->stage[s];
        x[0][s] = g->forward / unit;
        x[1][s] = g->input / unit;
        x[2][s] = g->weight / unit;
        if (link > 0) x[3][s] = (double)GW_MAX(g->sent_forward, g->sent_backward) / link;
    }
    p->links_stated = link > 0;
    p->costs = (gw_sched_costs){.forward = x[0],
                                .input = x[1],
                                .weight = x[2],
                                .send = link > 0 ? x[3] : NULL,
                                .barrier = !p->deferred_norm};
}

typedef struct computing {
    const gw_actions *l;
    int64_t at;
    bool rest; /* the W of a whole backward comes next */
} computing;

/* The next of F, I, W in a list, B taken for I and W; false at its end. */
static bool next_computing(computing *c, gw_action *out) {
    for (; c->at < c->l->n; c->at++) {
        *out = c->l->items[c->at];
        bool whole = out->act == GW_ACT_B;
        if (!whole && out->act != GW_ACT_F && out->act != GW_ACT_I && out->act != GW_ACT_W)
            continue;
        if (whole) out->act = c->rest ? GW_ACT_W : GW_ACT_I;
        c->rest = whole && !c->rest;
        c->at += !c->rest;
        return true;
    }
    return false;
}

static bool same_order(const gw_actions *a, const gw_actions *b) {
    computing x = {.l = a}, y = {.l = b};
    gw_action m, n;
    for (bool more = true; more;) {
        more = next_computing(&x, &m);
        if (more != next_computing(&y, &n)) return false;
        if (more && (m.act != n.act || m.stage != n.stage || m.micro != n.micro)) return false;
    }
    return true;
}

/* Is it the order that the formula is of? Where memory is short, fewer weight gradients wait. */
static bool has_formula(const gw_pipeplan *p, const gw_sched_kind *kind,
                        const gw_sched_request *r) {
    if (!kind || !kind->weighs || kind->searches) return kind != NULL;
    gw_arena tmp = {0};
    gw_schedule s;
    bool same = gw_schedule_make(kind->name, r, &tmp, &s, NULL) == GW_OK && s.ranks == p->n;
    for (int k = 0; same && k < p->n; k++) same = same_order(&s.lists[k], &p->schedule.lists[k]);
    gw_arena_release(&tmp);
    return same;
}

/* The same lists where all stages have the mean of what these have. */
static void time_alike(gw_pipeplan *p, int places) {
    double mean[3] = {0};
    const double *from[3] = {p->costs.forward, p->costs.input, p->costs.weight};
    double *x[3];
    for (int k = 0; k < 3; k++) {
        x[k] = gw_arena_new(&p->mem, double, p->stages);
        for (int s = 0; s < p->stages; s++) mean[k] += from[k][s] / p->stages;
        for (int s = 0; s < p->stages; s++) x[k][s] = mean[k];
    }
    gw_sched_costs c = {.forward = x[0], .input = x[1], .weight = x[2], .barrier = true};
    gw_sched_time(&p->schedule, &c, places, &p->mem, &p->alike);
    const gw_sched_kind *kind = gw_sched_kind_find(p->name);
    gw_sched_request r = {
        .ranks = p->n, .virtual_stages = p->virtual_stages, .micro_batches = p->micro_batches};
    p->formula_of_span = kind && kind->halves;
    p->formula = has_formula(p, kind, &r) ? gw_sched_formula(p->name, &r, mean[0], mean[1], mean[2])
                                          : (double)NAN;
}

static void sum_sends(gw_pipeplan *p) {
    for (int r = 0; r < p->n; r++)
        for (int i = 0; i < p->ranks[r].nwire; i++)
            for (size_t k = 0; k < GW_COUNT(send_rows); k++)
                if (strcmp(p->ranks[r].wire[i].collective, send_rows[k]) == 0)
                    p->sent_bytes += p->ranks[r].wire[i].payload_bytes;
}

void gw_pipeplan_init(gw_pipeplan *p, const gw_pipeplan_input *in) {
    const gw_schedule *s = in->schedule;
    GW_ASSERT(in->n == s->ranks && in->n > 0 && in->places > 0);
    *p = (gw_pipeplan){.ranks = in->ranks,
                       .n = in->n,
                       .stages = s->stages,
                       .virtual_stages = s->stages / s->ranks,
                       .micro_batches = s->micro_batches,
                       .in_seconds = in->hardware && gw_machine_flops(in->hardware, GW_BF16) > 0,
                       .deferred_norm = in->deferred_norm,
                       .parameters = in->ranks[0].params};
    copy_schedule(p, s);
    read_stages(p, in->stages);
    read_costs(p, in->hardware);
    gw_sched_time(&p->schedule, &p->costs, in->places, &p->mem, &p->times);
    time_alike(p, in->places);
    sum_sends(p);
    for (int r = 0; r < p->n; r++) {
        if (p->ranks[r].total_bytes > p->ranks[p->largest].total_bytes) p->largest = r;
        p->ranks[r].pipeline = p;
    }
}

void gw_pipeplan_release(gw_pipeplan *p) {
    for (int r = 0; r < p->n; r++) p->ranks[r].pipeline = NULL;
    gw_arena_release(&p->mem);
    memset(p, 0, sizeof *p);
}

double gw_pipeplan_period(const gw_pipeplan *p, bool deferred) {
    if (!deferred) return p->times.step;
    double period = p->times.longest_span;
    int64_t held = 0;
    for (int r = 0; r < p->n; r++) held += p->ranks[r].rank_params;
    if (held == p->parameters) return period;
    /* An embedding on the first and the last rank: the first, which begins the step, cannot begin
     * the next one before both have the sum of its gradients. */
    for (int r = 0; r < p->n; r += GW_MAX(p->n - 1, 1))
        for (int64_t i = 0; i < p->schedule.lists[r].n; i++)
            if (p->schedule.lists[r].items[i].act != GW_ACT_STEP)
                period = fmax(period, p->times.spans[r][i].end);
    return period;
}

void gw_pipeplan_timeline(const gw_pipeplan *p, gw_timeline *t, gw_arena *a) {
    gw_timeline_of_schedule(t, &p->schedule, &p->times, p->in_seconds ? "s" : "", a);
}
