// SPDX-License-Identifier: Apache-2.0
// Reads the simulator's result as people ask about it.
//
// MFU has as many values as there are ways to count: the same step is 40 % or 50 % by whether a
// causal mask's hidden half of attention is counted, whether recomputation is, whether the
// embedding is a parameter. Each figure has its name here, and none is "the" MFU; `causal` is what
// the mathematics needs.
//
// The parts of a step sum to it, since the simulator accounts for every second of the compute
// stream. Percentages are rounded to a tenth by largest remainders, so that they sum to 100.0 too.
//
// An axis is a stream of the program: the groups that its collectives join, what they move, the
// slowest tier between their ranks, and how much of their time compute waits for. `why it sits
// there` follows from tiers: ranks are laid out innermost first, tp, cp, dp, pp.
#include "plan/simplan.h"

#include <math.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/str.h" /* gw_fmt_bytes */
#include "ir/opdef.h" /* gw_optable */

/* ---- MFU ---- */

static gw_dtype product_of(const gw_graph *g) {
    int64_t n[GW_DTYPE_COUNT] = {0};
    gw_dtype most = GW_F32;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        const char *name = gw_op_def(g, o)->name;
        bool eight = strncmp(name, "fp8_matmul", 10) == 0;
        if (!eight && strncmp(name, "matmul", 6) != 0 && strncmp(name, "conv2d", 6) != 0) continue;
        n[eight ? GW_F8E4M3 : gw_type_of(g, gw_op_in(g, o, 0))->dtype]++;
    }
    for (int t = 0; t < GW_DTYPE_COUNT; t++)
        if (n[t] > n[most]) most = (gw_dtype)t;
    return most;
}

static void add_mfu(gw_simplan *p, const char *name, const char *counts, double flops) {
    gw_simplan_mfu *m = &p->mfu[p->nmfu++];
    *m = (gw_simplan_mfu){.name = name, .counts = counts, .flops = flops};
    if (p->peak > 0 && p->sim.step_s > 0) m->mfu = flops / p->sim.step_s / p->peak;
}

static void read_mfu(gw_simplan *p, const gw_simplan_input *in) {
    const gw_ledger_flops *f = &p->ledger->flops;
    double hardware = 0, full = 0;
    for (int r = 0; r < in->n; r++) {
        hardware += in->ranks[r].flops.hardware / in->n;
        full += in->ranks[r].flops.hardware_full_attention / in->n;
    }
    p->product = product_of(in->programs[0]);
    p->peak_of = gw_machine_runs_as(p->machine, p->product);
    p->peak = p->machine->peak[p->peak_of];
    add_mfu(p, "causal", "model: 6 a matrix parameter and token, attention as masked", f->model);
    add_mfu(p, "full", "model: the same, attention over all keys", f->model_full_attention);
    add_mfu(p, "hardware",
            in->n > 1 ? "what the program computes, recomputation included; a mean rank"
                      : "what the program computes, recomputation included",
            hardware);
    add_mfu(p, "hardware_full", "the same, attention over all keys", full);
    add_mfu(p, "n6", "6 a parameter and token, embeddings included, no attention", f->n6);
    add_mfu(p, "n6_full", "the same, and attention over all keys", f->n6_full);
}

/* ---- parts ---- */

static void add_part(gw_simplan *p, const char *name, double s, const char *cause,
                     const char *remedy) {
    if (s <= 0) return;
    p->part[p->nparts++] =
        (gw_simplan_part){.name = name, .cause = cause, .remedy = remedy, .seconds = s};
}

static const struct {
    const char *name, *cause, *remedy;
} exposed_texts[GW_STREAM_COUNT] = {
    [GW_STREAM_COPY] = {"exposed copy", "compute waits for host or disk",
                        "offload less, or more work between uses"},
    [GW_STREAM_DP] = {"exposed dp", "gathers and reductions of parameters and gradients",
                      "a larger micro-batch, layout.prefetch, a lower layout.zero, dp_replicate"},
    [GW_STREAM_TP] = {"exposed tp", "each layer waits for its activations",
                      "a smaller tp, layout.tp_chunks, sequence parallelism"},
    [GW_STREAM_CP] = {"exposed cp", "attention waits for keys and values",
                      "a smaller cp, another layout.cp_mode"},
    [GW_STREAM_EP] = {"exposed ep", "experts wait for rows", "a smaller ep, inside a node"},
    [GW_STREAM_PP] = {"exposed pp", "messages under way between stages",
                      "fewer virtual stages, larger micro-batches"},
};

/* Tenths of a percent by largest remainders. */
static void round_parts(gw_simplan *p, double step) {
    int left = 1000;
    double rest[GW_SIMPLAN_PARTS];
    for (int i = 0; i < p->nparts; i++) {
        double x = step > 0 ? p->part[i].seconds / step * 1000 : 0;
        p->part[i].percent = floor(x);
        rest[i] = x - p->part[i].percent;
        left -= (int)p->part[i].percent;
    }
    for (; left > 0 && p->nparts > 0; left--) {
        int most = 0;
        for (int i = 1; i < p->nparts; i++)
            if (rest[i] > rest[most]) most = i;
        p->part[most].percent += 1;
        rest[most] -= 1;
    }
    for (int i = 0; i < p->nparts; i++) p->part[i].percent /= 10;
}

static void read_parts(gw_simplan *p) {
    const gw_sim_result *s = &p->sim;
    add_part(p, "products", s->products_s, "matrix products at this chip's rate for their shapes",
             "eight-bit products, larger micro-batches, less recomputation");
    add_part(p, "attention", s->attention_s, "its products and softmax", "a shorter sequence, cp");
    add_part(p, "memory-bound ops", s->memory_s, "norms, activations, casts: bytes, not FLOPs",
             "sequence parallelism, fewer bytes a number");
    add_part(p, "optimizer", s->optimizer_s, "reads and writes every state once a step",
             "layout.zero 1 or more, more micro-batches a step");
    add_part(p, "overlap", s->overlap_s, "compute beside collectives shares memory and units",
             "fewer bytes on the wire");
    for (int i = 0; i < GW_STREAM_COUNT; i++)
        if (i == GW_STREAM_EP && s->axis[i].count[GW_COLL_ALL_TO_ALL] == 0)
            add_part(p, "exposed sums", s->axis[i].exposed, "the norm of all gradients",
                     "optimizer.norm: deferred");
        else if (exposed_texts[i].name)
            add_part(p, exposed_texts[i].name, s->axis[i].exposed, exposed_texts[i].cause,
                     exposed_texts[i].remedy);
    add_part(p, "bubble", s->bubble_s, "a rank waits for other stages",
             "more micro-batches, virtual stages, a zero-bubble schedule");
    add_part(p, "data stall", s->stall_s, "the step waits for its batch", "more loader workers");
    round_parts(p, s->step_s);
}

/* ---- axes ---- */

/* Groups over several axes that exchange no rows: sums such as the norm of all gradients. */
static bool is_sum(const gw_sim_axis *x, gw_stream s) {
    return s == GW_STREAM_EP && x->count[GW_COLL_ALL_TO_ALL] == 0;
}

/* "tp", or of a sum over several: "dp x tp". */
static const char *name_of(gw_simplan *p, const gw_sim_axis *x, gw_stream s) {
    static const char *const groups[] = {"dp_replicate", "dp", "cp", "tp", "pp"};
    gw_str name = {0};
    if (!is_sum(x, s)) return gw_stream_name(s);
    for (size_t i = 0; i < GW_COUNT(groups); i++)
        if (x->axes & gw_mesh_group(&p->programs[0]->mesh, groups[i]))
            gw_str_printf(&name, "%s%s", name.len ? " x " : "", groups[i]);
    const char *text = gw_arena_strdup(&p->mem, gw_str_c(&name));
    gw_str_release(&name);
    return text;
}

static const char *moves_text(const gw_sim_axis *x, gw_stream stream, gw_arena *a) {
    gw_str s = {0};
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        if (x->count[k] > 0)
            gw_str_printf(&s, "%s%s %s%s", s.len ? ", " : "",
                          gw_fmt_count((char[40]){0}, x->count[k]),
                          gw_coll_kind_name((gw_coll_kind)k), x->count[k] == 1 ? "" : "s");
    const char *one = stream == GW_STREAM_COPY ? "copy" : "message";
    const char *many = stream == GW_STREAM_COPY ? "copies" : "messages";
    if (x->messages > 0)
        gw_str_printf(&s, "%s%s %s", s.len ? ", " : "", gw_fmt_count((char[40]){0}, x->messages),
                      x->messages == 1 ? one : many);
    const char *text = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static const char *link_text(const gw_machine_spec *m, gw_stream stream, int tier, gw_arena *a) {
    if (tier < 0 && (stream != GW_STREAM_COPY || m->host_bytes_per_s <= 0)) return "-";
    if (tier < 0)
        return gw_arena_printf(a, "host, %sB/s", gw_fmt_si((char[32]){0}, m->host_bytes_per_s));
    const gw_tier *t = &m->tiers[tier];
    return gw_arena_printf(a, "%s, %sB/s", t->name, gw_fmt_si((char[32]){0}, t->bytes_per_s));
}

static const char *habit_of(gw_stream s) {
    switch (s) {
    case GW_STREAM_TP: return "every layer waits for it, so its ranks are neighbours";
    case GW_STREAM_CP: return "every attention needs it, beside its compute";
    case GW_STREAM_EP: return "rows to experts and back, in every layer";
    case GW_STREAM_DP: return "runs beside compute, so it may cross slower links";
    case GW_STREAM_PP: return "few bytes between neighbours: outermost";
    case GW_STREAM_COPY: return "beside compute, one link a chip";
    case GW_STREAM_COMPUTE:
    case GW_STREAM_COUNT: break;
    }
    return "";
}

static const char *why_text(const gw_machine_spec *m, gw_stream s, const gw_sim_axis *x,
                            int64_t size, gw_arena *a) {
    if (x->tier < 0) return habit_of(s);
    const gw_tier *t = &m->tiers[x->tier];
    if (x->tier > 0)
        return gw_arena_printf(a, "%s; leaves %s (%lld ranks)", habit_of(s),
                               m->tiers[x->tier - 1].name, (long long)m->tiers[x->tier - 1].ranks);
    if (t->ranks == 0) return habit_of(s);
    return gw_arena_printf(a, "%s; %lld within %s (%lld)", habit_of(s), (long long)size, t->name,
                           (long long)t->ranks);
}

static void read_axes(gw_simplan *p) {
    static const gw_stream order[] = {GW_STREAM_TP, GW_STREAM_CP, GW_STREAM_EP,
                                      GW_STREAM_DP, GW_STREAM_PP, GW_STREAM_COPY};
    const gw_mesh *mesh = &p->programs[0]->mesh;
    for (size_t i = 0; i < GW_COUNT(order); i++) {
        const gw_sim_axis *x = &p->sim.axis[order[i]];
        if (x->axes == 0 && x->messages == 0) continue;
        int64_t size = gw_mesh_size(mesh, x->axes);
        p->axis[p->naxes++] = (gw_simplan_axis){
            .name = name_of(p, x, order[i]),
            .size = size,
            .moves = moves_text(x, order[i], &p->mem),
            .link = link_text(p->machine, order[i], x->tier, &p->mem),
            .why = is_sum(x, order[i]) ? "sums over several axes: the norm of all gradients"
                                       : why_text(p->machine, order[i], x, size, &p->mem),
            .figures = x,
        };
    }
}

/* ---- money and failures ---- */

/* Master copies (or the weights, where they are their own master) and moments, each once. */
static double checkpoint_of(const gw_simplan_input *in) {
    double sum = 0;
    for (int r = 0; r < in->n; r++)
        for (int i = 0; i < in->ranks[r].nkinds; i++) {
            const gw_ledger_kind *k = &in->ranks[r].kinds[i];
            sum += (double)k->params * (k->optimizer + (k->master ? 0 : k->weights));
        }
    return sum;
}

static void read_costs(gw_simplan *p, const gw_simplan_input *in) {
    const gw_machine_spec *m = p->machine;
    double step = p->sim.step_s, all = (double)p->ranks;
    p->tokens_per_s = step > 0 ? (double)p->tokens / step : 0;
    p->tokens_per_s_chip = p->tokens_per_s / all;
    p->dollars_per_step = m->dollars_per_hour * all * step / 3600;
    if (p->tokens > 0)
        p->dollars_per_billion_tokens = p->dollars_per_step / (double)p->tokens * 1e9;
    p->checkpoint_bytes = in->checkpoint_bytes > 0 ? in->checkpoint_bytes : checkpoint_of(in);
    p->fails = m->failures_per_hour > 0 && m->storage_write > 0;
    p->restart_assumed = in->restart_s < 0;
    double node = m->ntiers > 1 && m->tiers[0].ranks > 0 ? (double)m->tiers[0].ranks : 1;
    p->fleet = (gw_sim_fleet){.chips = p->ranks,
                              .failures_per_hour = m->failures_per_hour,
                              .checkpoint_bytes = p->checkpoint_bytes,
                              .storage_bytes_per_s = m->storage_write * fmax(1, floor(all / node)),
                              .restart_s = p->restart_assumed ? GW_SIMPLAN_RESTART : in->restart_s,
                              .interval_s = in->interval_s};
    if (p->fails) p->goodput = gw_sim_goodput_of(&p->fleet);
}

/* ---- ops ---- */

static int by_seconds(const void *a, const void *b) {
    const gw_simplan_op *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : strcmp(x->name, y->name);
}

static void read_ops(gw_simplan *p) {
    const gw_optable *table = p->programs[0]->table;
    gw_simplan_op *all = gw_arena_new(&p->mem, gw_simplan_op, table->count + 1);
    for (int r = 0; r < p->n; r++) {
        const gw_graph *g = p->programs[r];
        double micro = (double)GW_MAX(INT64_C(1), g->micro_batches);
        for (int64_t i = 0; i < g->ops.count; i++) {
            const gw_op *o = &g->ops.items[i];
            double runs = (o->rate == GW_RATE_MB ? micro : 1) / p->n;
            gw_simplan_op *x = &all[o->code];
            gw_cost c = {0};
            if (p->sim.op_seconds[r][i] <= 0) continue;
            gw_op_def(g, o)->cost(g, o, &c);
            x->name = gw_op_def(g, o)->name;
            x->count += runs;
            x->seconds += runs * p->sim.op_seconds[r][i];
            x->flops += runs * c.flops;
            x->bytes += runs * (c.bytes_read + c.bytes_written);
        }
    }
    p->op = all;
    for (int k = 0; k < table->count; k++)
        if (all[k].name) p->op[p->nops++] = all[k];
    qsort(p->op, (size_t)p->nops, sizeof *p->op, by_seconds);
}

static void read_layout(gw_simplan *p) {
    static const char *const groups[] = {"pp", "dp_replicate", "dp", "cp", "tp"};
    const gw_mesh *mesh = &p->programs[0]->mesh;
    gw_str s = {0};
    for (size_t i = 0; i < GW_COUNT(groups); i++) {
        int64_t n = gw_mesh_size(mesh, gw_mesh_group(mesh, groups[i]));
        if (n > 1) gw_str_printf(&s, "%s%s %lld", s.len ? " × " : "", groups[i], (long long)n);
    }
    p->layout = gw_arena_strdup(&p->mem, gw_str_c(&s));
    gw_str_release(&s);
}

void gw_simplan_init(gw_simplan *p, const gw_simplan_input *in) {
    *p = (gw_simplan){.machine = in->machine,
                      .ledger = &in->ranks[in->largest],
                      .ranks = in->ranks[0].ranks,
                      .tokens = in->ranks[0].tokens_per_step,
                      .programs = in->programs,
                      .n = in->n};
    if (in->timeline)
        gw_timeline_begin(&p->timeline, in->schedule ? in->schedule : "one stage", in->n, "s",
                          &p->mem);
    gw_simulate(in->programs, in->n, in->machine, in->faults, &p->mem, &p->sim,
                in->timeline ? &p->timeline : NULL);
    p->unharmed_s = p->sim.step_s;
    p->faults_text = in->faults_text;
    if (in->faults_text) {
        gw_sim_result unharmed;
        gw_simulate(in->programs, in->n, in->machine, NULL, &p->mem, &unharmed, NULL);
        p->unharmed_s = unharmed.step_s;
    }
    double memory = in->memory_bytes > 0 ? in->memory_bytes : in->machine->memory_bytes;
    p->memory_bytes = (int64_t)memory;
    p->fits = memory <= 0 || (double)p->ledger->total_bytes <= memory;
    read_mfu(p, in);
    read_parts(p);
    read_axes(p);
    read_costs(p, in);
    read_ops(p);
    read_layout(p);
}

void gw_simplan_release(gw_simplan *p) {
    gw_arena_release(&p->mem);
    memset(p, 0, sizeof *p);
}
