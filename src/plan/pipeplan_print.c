// SPDX-License-Identifier: Apache-2.0
// The pipeline's part of the page: its ranks, its stages, what the schedule leaves idle.
//
// It stands in front of the ledger of one rank, the largest, because it says which one that is and
// how the others compare. Bubbles have three columns: the known formula, the same lists with all
// stages alike (equal to it where there is one), and with this model's stages.
#include <math.h>

#include "base/str.h"  /* gw_fmt_bytes, gw_fmt_count, gw_fmt_si */
#include "base/term.h" /* gw_table */
#include "plan/pipeplan.h"

#define BYTES(x)  gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)  gw_fmt_count((char[40]){0}, (x))
#define FLOPS(x)  gw_fmt_si((char[32]){0}, (x))
#define TEXT(...) gw_arena_printf(&mem, __VA_ARGS__)
#define S(n)      ((n) == 1 ? "" : "s")

/* "3" or "3-5"; "-" where a stage has no layer. */
static const char *layers_text(const gw_pipeplan_stage *s, gw_arena *a) {
    if (s->layers == 0) return "-";
    if (s->layers == 1) return gw_arena_printf(a, "%d", s->first_layer);
    return gw_arena_printf(a, "%d-%d", s->first_layer, s->first_layer + s->layers - 1);
}

/* Of all stages of a rank, their numbers or their layers. */
static const char *of_rank(const gw_pipeplan *p, int rank, bool layers, gw_arena *a) {
    gw_str s = {0};
    for (int i = 0; i < p->stages; i++) {
        if (p->stage[i].rank != rank) continue;
        gw_str_add(&s, s.len ? ", " : "");
        if (layers)
            gw_str_add(&s, layers_text(&p->stage[i], a));
        else
            gw_str_printf(&s, "%d", i);
    }
    const char *text = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static void print_ranks(const gw_pipeplan *p, FILE *out) {
    gw_arena mem = {0};
    fprintf(out, "\nranks of the pipeline: bytes at each one's peak\n");
    gw_table *t = gw_table_new("rllrrrrrrrrr");
    gw_table_row(t, "rank", "stages", "layers", "params", "weights", "gradients", "optimizer",
                 "held", "activations", "boxes", "arena", "total");
    for (int r = 0; r < p->n; r++) {
        const gw_ledger *l = &p->ranks[r];
        gw_table_row(t, TEXT("%s%d", r == p->largest ? "> " : "", r), of_rank(p, r, false, &mem),
                     of_rank(p, r, true, &mem), COUNT(l->rank_params),
                     BYTES(l->by_cause[GW_CAUSE_WEIGHTS]), BYTES(l->by_cause[GW_CAUSE_GRADIENTS]),
                     BYTES(l->by_cause[GW_CAUSE_OPTIMIZER]),
                     TEXT("%lld", (long long)p->times.micro_held[r]),
                     BYTES(l->by_cause[GW_CAUSE_ACTIVATIONS]), BYTES(l->box_bytes),
                     BYTES(l->arena_bytes), BYTES(l->total_bytes));
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    int64_t sum = 0;
    for (int r = 0; r < p->n; r++) sum += p->ranks[r].rank_params;
    if (sum > p->parameters)
        fprintf(out, "  %s parameters stand on two ranks, which step them alike\n",
                COUNT(sum - p->parameters));
    fprintf(out, "  " GW_SCHED_HELD "\n");
    gw_arena_release(&mem);
}

static void print_stages(const gw_pipeplan *p, FILE *out) {
    gw_arena mem = {0};
    double mean = 0;
    for (int r = 0; r < p->n; r++) mean += p->work[r] / p->stages;
    fprintf(out, "\nstages: work of a micro-batch on one rank, and what it sends\n");
    gw_table *t = gw_table_new("rrlrrrrrr");
    gw_table_row(t, "stage", "rank", "layers", "forward", "to inputs", "to weights", "of the mean",
                 "sent on", "sent back");
    for (int i = 0; i < p->stages; i++) {
        const gw_pipeplan_stage *s = &p->stage[i];
        double share = mean > 0 ? 100 * (s->forward + s->input + s->weight) / mean : 0;
        gw_table_row(t, TEXT("%d", i), TEXT("%d", s->rank), layers_text(s, &mem), FLOPS(s->forward),
                     FLOPS(s->input), FLOPS(s->weight), TEXT("%.1f %%", share),
                     BYTES(s->sent_forward), BYTES(s->sent_backward));
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    fprintf(out,
            "  in FLOP, memory traffic counted in; the rank with most of it has %.1f %% more "
            "than the mean\n",
            100 * p->uneven);
    fprintf(
        out,
        "  a step sends %s between stages, by one rank of each: %d micro-batches, norm and tied "
        "gradients\n",
        BYTES(p->sent_bytes), p->micro_batches);
}

static const char *percent(double x, gw_arena *a) {
    return isnan(x) ? "" : gw_arena_printf(a, "%.1f %%", 100 * fmax(x, 0));
}

static const char *time_text(const gw_pipeplan *p, double x, gw_arena *a) {
    if (!p->in_seconds) return gw_arena_printf(a, "%.4g", x);
    return gw_arena_strdup(a, gw_fmt_seconds((char[32]){0}, x));
}

static void print_bubble(const gw_pipeplan *p, FILE *out) {
    gw_arena mem = {0};
    const gw_sched_times *t = &p->times, *a = &p->alike;
    double step = p->formula_of_span ? (double)NAN : p->formula;
    double span = p->formula_of_span ? p->formula : (double)NAN;
    fprintf(out, "\nwhat the schedule leaves idle: %s, m = %d, v = %d\n", p->name, p->micro_batches,
            p->virtual_stages);
    gw_table *table = gw_table_new("lrrrl");
    gw_table_row(table, "", "these stages", "stages alike", "formula", "");
    gw_table_row(table, "bubble/compute", percent(t->bubble_compute, &mem),
                 percent(a->bubble_compute, &mem), percent(step, &mem),
                 "idle time over computing time");
    gw_table_row(table, "bubble/step", percent(t->bubble_step, &mem), percent(a->bubble_step, &mem),
                 percent(step / (1 + step), &mem), "idle time over the step");
    gw_table_row(table, "idle of the step", percent(t->idle_step, &mem),
                 percent(a->idle_step, &mem), "", "of the rank that computes least");
    gw_table_row(table, "idle of the longest span", percent(t->idle_longest, &mem),
                 percent(a->idle_longest, &mem), percent(span / (1 + span), &mem),
                 "of the rank with the longest, first action to last");
    gw_table_row(table, "step", time_text(p, t->step, &mem), time_text(p, a->step, &mem), "",
                 p->in_seconds ? "without the optimizer"
                               : "in units of an average rank's work on a micro-batch");
    gw_table_row(table, "longest span", time_text(p, t->longest_span, &mem),
                 time_text(p, a->longest_span, &mem), "", "");
    gw_table_print(table, out, "  ");
    gw_table_free(table);
    double exact = gw_pipeplan_period(p, false), deferred = gw_pipeplan_period(p, true);
    fprintf(out,
            "  of many steps one takes %s with optimizer.norm exact, %s with deferred: exact costs "
            "%.1f %%; this run: %s\n",
            time_text(p, exact, &mem), time_text(p, deferred, &mem),
            deferred > 0 ? 100 * (exact / deferred - 1) : 0,
            p->deferred_norm ? "deferred" : "exact");
    if (p->in_seconds)
        fprintf(out, "  all work at the machine's peak%s; without reductions and the optimizer\n",
                p->links_stated ? ", messages over its link"
                                : "; no link is stated: messages take no time");
    if (p->simulated_step > 0)
        fprintf(out,
                "  simulated with those, and each op at its own rate (below): a step of %s, "
                "bubble/step %.1f %%\n",
                gw_fmt_seconds((char[32]){0}, p->simulated_step), 100 * p->simulated_bubble);
    if (!p->in_seconds)
        fprintf(out, "  messages take no time in these figures (--hardware gives them a link)\n");
    gw_arena_release(&mem);
}

void gw_pipeplan_print(const gw_pipeplan *p, FILE *out) {
    fprintf(out, "pipeline          %s: %d ranks, %d stage%s each, %d micro-batch%s\n", p->name,
            p->n, p->virtual_stages, S(p->virtual_stages), p->micro_batches,
            p->micro_batches == 1 ? "" : "es");
    print_ranks(p, out);
    print_stages(p, out);
    print_bubble(p, out);
    fprintf(out, "\nwhat follows is pipeline rank %d's, which holds the most\n", p->largest);
}
