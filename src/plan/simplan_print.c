// SPDX-License-Identifier: Apache-2.0
// The simulated step for people: time and MFU, axes, where the step goes, its ops, what it costs.
//
// Every figure here is the stated machine's. Where a convention, a peak or an assumption decides
// what a figure means, the line says which.
#include <math.h>
#include <stdio.h>

#include "base/str.h"  /* gw_fmt_seconds, gw_fmt_bytes */
#include "base/term.h" /* gw_table */
#include "plan/simplan.h"

enum { SHORT_OPS = 12 };

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define SI(x)      gw_fmt_si((char[32]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))
#define TEXT(...)  gw_arena_printf(&mem, __VA_ARGS__)

/* What a step counts. */
static const char *items(const gw_simplan *p) {
    return p->ledger->model.family == GW_FAMILY_RESNET ? "images" : "tokens";
}

static void print_time(const gw_simplan *p, FILE *out) {
    const gw_machine_spec *m = p->machine;
    const char *name = *m->name ? m->name : "the machine stated";
    fprintf(out, "\nsimulated on %s", name);
    if (m->asked && *m->asked && !gw_str_eq(m->asked, m->name))
        fprintf(out, " (asked for: %s)", m->asked);
    fprintf(out, ", %s chip%s%s%s\n", COUNT(p->ranks), p->ranks == 1 ? "" : "s",
            *p->layout ? ": " : "", p->layout);
    fprintf(out, "  step %s: %s%s/s, %s%s/s a chip\n", SECONDS(p->sim.step_s), SI(p->tokens_per_s),
            items(p), SI(p->tokens_per_s_chip), items(p));
    if (p->faults_text && p->unharmed_s > 0)
        fprintf(out, "  with %s; without %s: %+.1f %%\n", p->faults_text, SECONDS(p->unharmed_s),
                100 * (p->sim.step_s / p->unharmed_s - 1));
    if (p->sim.ranks > 1) fprintf(out, "  bubble %.1f %% of the step\n", 100 * p->sim.bubble);
    if (p->peak > 0 && m->peak[p->product] <= 0)
        fprintf(out, "  it has no products of %s: they run at the rate of %s\n",
                gw_dtype_name(p->product), gw_dtype_name(p->peak_of));
}

static void print_mfu(const gw_simplan *p, FILE *out) {
    gw_arena mem = {0};
    gw_table *t = gw_table_new("lrrrl");
    gw_table_row(t, "convention", "FLOP a chip", "FLOP/s a chip", "MFU", "counts");
    for (int i = 0; i < p->nmfu; i++) {
        const gw_simplan_mfu *m = &p->mfu[i];
        double rate = p->sim.step_s > 0 ? m->flops / p->sim.step_s : 0;
        gw_table_row(t, m->name, SI(m->flops), SI(rate),
                     p->peak > 0 ? TEXT("%.1f %%", 100 * m->mfu) : "-", m->counts);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    if (p->peak > 0) {
        fprintf(out, "  of a peak of %sFLOP/s in %s", SI(p->peak), gw_dtype_name(p->peak_of));
        double bf16 = p->machine->peak[GW_BF16];
        if (p->peak_of != GW_BF16 && bf16 > 0)
            fprintf(out, ", %.2f times the %sFLOP/s in bf16", p->peak / bf16, SI(bf16));
        fputc('\n', out);
    }
    gw_arena_release(&mem);
}

void gw_simplan_print_axes(const gw_simplan *p, FILE *out) {
    if (p->naxes == 0) return;
    gw_arena mem = {0};
    bool timed = p->machine->ntiers > 0 || p->machine->host_bytes_per_s > 0;
    fprintf(out, "\naxes: what moves in a step%s%s\n",
            p->sim.ranks > 1 ? " (of the rank of the pipeline that sends most)" : "",
            timed ? ", and what of it compute waits for" : " (times: --hardware states a machine)");
    gw_table *t = gw_table_new("lrlrlrrl");
    gw_table_row(t, "axis", "size", "what moves", "bytes a step", "link", "time", "exposed",
                 "why it sits there");
    for (int i = 0; i < p->naxes; i++) {
        const gw_simplan_axis *x = &p->axis[i];
        bool known = x->figures->tier >= 0 || x->figures->seconds > 0;
        gw_table_row(t, x->name, COUNT(x->size), x->moves, BYTES(x->figures->bytes), x->link,
                     known ? SECONDS(x->figures->seconds) : "-",
                     known ? SECONDS(x->figures->exposed) : "-", x->why);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_parts(const gw_simplan *p, FILE *out) {
    gw_arena mem = {0};
    fprintf(out, "\nwhere the step goes%s\n", p->sim.ranks > 1 ? " (a mean rank)" : "");
    gw_table *t = gw_table_new("lrrll");
    gw_table_row(t, "part", "time", "share", "cause", "what would shorten it");
    for (int i = 0; i < p->nparts; i++) {
        const gw_simplan_part *x = &p->part[i];
        gw_table_row(t, x->name, SECONDS(x->seconds), TEXT("%.1f %%", x->percent), x->cause,
                     x->remedy);
    }
    gw_table_rule(t);
    gw_table_row(t, "step", SECONDS(p->sim.step_s), "100.0 %", "", "");
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_ops(const gw_simplan *p, FILE *out) {
    gw_arena mem = {0};
    double sum = 0, rest = 0;
    for (int i = 0; i < p->nops; i++) sum += p->op[i].seconds;
    if (sum <= 0) return;
    fprintf(out, "\nops that compute%s\n", p->sim.ranks > 1 ? " (a mean rank)" : "");
    gw_table *t = gw_table_new("lrrrrrr");
    gw_table_row(t, "op", "runs", "time", "share", "FLOP/s", "B/s", "FLOP a byte");
    for (int i = 0; i < p->nops; i++) {
        const gw_simplan_op *x = &p->op[i];
        if (i >= SHORT_OPS) {
            rest += x->seconds;
            continue;
        }
        gw_table_row(t, x->name, COUNT((int64_t)llround(x->count)), SECONDS(x->seconds),
                     TEXT("%.1f %%", 100 * x->seconds / sum), SI(x->flops / x->seconds),
                     SI(x->bytes / x->seconds),
                     x->bytes > 0 ? TEXT("%.3g", x->flops / x->bytes) : "-");
    }
    if (rest > 0)
        gw_table_row(t, TEXT("%d others", p->nops - SHORT_OPS), "", SECONDS(rest),
                     TEXT("%.1f %%", 100 * rest / sum), "", "", "");
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

/* ---- money and failures ---- */

/* With a price or a rate of failures alone, what follows for some times of a checkpoint. */
static void print_unstored(const gw_simplan *p, FILE *out) {
    static const double stops[] = {10, 60, 300};
    gw_arena mem = {0};
    gw_sim_fleet f = p->fleet;
    gw_table *t = gw_table_new("rrr");
    gw_table_row(t, "a checkpoint stops it for", "best interval", "steps that count");
    for (size_t i = 0; i < GW_COUNT(stops); i++) {
        f.write_s = stops[i];
        gw_sim_goodput g = gw_sim_goodput_of(&f);
        gw_table_row(t, SECONDS(stops[i]), SECONDS(g.best_interval_s),
                     TEXT("%.1f %%", 100 * g.goodput));
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    fprintf(out,
            "  (no storage is stated: --faults storage=2GB, a node and second, says how long)\n");
}

static void print_days(const gw_simplan *p, FILE *out) {
    const gw_sim_fleet *f = &p->fleet;
    const gw_sim_goodput *g = &p->goodput;
    if (f->failures_per_hour <= 0) return;
    double between = 3600 / (f->failures_per_hour * (double)f->chips);
    fprintf(out,
            "\nover days\n"
            "  a failure every %s: 1 / (%.3g an hour and chip × %s chip%s)\n"
            "  a checkpoint of %s, %s a chip\n",
            SECONDS(between), f->failures_per_hour, COUNT(f->chips), f->chips == 1 ? "" : "s",
            BYTES((int64_t)f->checkpoint_bytes),
            BYTES((int64_t)(f->checkpoint_bytes / (double)f->chips)));
    fprintf(out, "  a restart takes %s%s\n", SECONDS(f->restart_s),
            p->restart_assumed ? ", assumed (--faults restart=SECONDS)" : "");
    if (!p->fails) {
        print_unstored(p, out);
        return;
    }
    fprintf(out,
            "  it is written in %s at %sB/s; the best interval is sqrt(2 × %s × %s) = %s\n"
            "  %s%s: %.1f %% of the time in steps that count; lost to checkpoints %.1f %%, "
            "rework %.1f %%, restarts %.1f %%\n",
            SECONDS(g->write_s), SI(f->storage_bytes_per_s), SECONDS(g->write_s), SECONDS(between),
            SECONDS(g->best_interval_s), f->interval_s > 0 ? "with one every " : "with that",
            f->interval_s > 0 ? SECONDS(g->interval_s) : "", 100 * g->goodput,
            100 * g->lost_to_checkpoints, 100 * g->lost_to_rework, 100 * g->lost_to_restarts);
    if (p->dollars_per_billion_tokens > 0 && g->goodput > 0)
        fprintf(out, "  %.4g dollars a billion %s, failures counted in\n",
                p->dollars_per_billion_tokens / g->goodput, items(p));
}

static void print_costs(const gw_simplan *p, FILE *out) {
    const gw_machine_spec *m = p->machine;
    if (p->dollars_per_step > 0)
        fprintf(out, "\ncost at %.2f dollars an hour a chip: %.4g a step, %.4g a billion %s\n",
                m->dollars_per_hour, p->dollars_per_step, p->dollars_per_billion_tokens, items(p));
    print_days(p, out);
}

void gw_simplan_print(const gw_simplan *p, FILE *out) {
    print_time(p, out);
    print_mfu(p, out);
    gw_simplan_print_axes(p, out);
    print_parts(p, out);
    print_ops(p, out);
    print_costs(p, out);
}
