// SPDX-License-Identifier: Apache-2.0
// From a point of the search to a run file, and from there the way that `plan` goes.
//
// The run that is searched is printed as a run file, and the lines that the search turns are taken
// out: micro-batch and accumulation, the sections layout, offload and recompute. A layout is that
// text with lines of its own. It goes through the run file's parser, so the rules that refuse a
// layout are the ones that everybody meets, and what the search proposes is the text that it
// compiled. What a user wrote of a layout beside the levers (wires, buckets, the mode of context
// parallelism) is kept where it has an effect.
//
// A block is the same run with few layers, one stage and as few replicas as its experts need,
// compiled twice: what the second has more is a layer.
#include "cli/plan_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/panic.h"    /* GW_ASSERT */
#include "data/loader.h"   /* gw_loader_bytes_for */
#include "plan/simplan.h"  /* gw_simplan_init */
#include "run/exec_comm.h" /* gw_buckets_of */
#include "sched/sched.h"   /* gw_sched_kind_at */

#define LL(x) ((long long)(x))

/* ---- the run without its levers ---- */

/* Layout keys that hold in every layout, and those that need a degree. */
static const struct {
    const char *leaf;
    gw_search_lever lever;
    int32_t least; /* 0: always */
} others[] = {
    {"reduce", GW_SEARCH_TP, 0},         {"bucket", GW_SEARCH_TP, 0},
    {"first_bucket", GW_SEARCH_TP, 0},   {"gradient_wire", GW_SEARCH_TP, 0},
    {"collectives", GW_SEARCH_TP, 0},    {"calibration", GW_SEARCH_TP, 0},
    {"timeout", GW_SEARCH_TP, 0},        {"sequence_parallel", GW_SEARCH_TP, 2},
    {"tp_chunks", GW_SEARCH_TP, 2},      {"shard", GW_SEARCH_TP, 2},
    {"cp_mode", GW_SEARCH_CP, 2},        {"cp_ulysses", GW_SEARCH_CP, 2},
    {"message_places", GW_SEARCH_PP, 2}, {"moe_buffer", GW_SEARCH_EP, 2},
    {"weight_wire", GW_SEARCH_ZERO, 1},  {"reshard_after_forward", GW_SEARCH_ZERO, 3},
    {"prefetch", GW_SEARCH_ZERO, 3},     {"secondary_shard", GW_SEARCH_ZERO, 3},
};

static const char *leaf_of(gw_search_site *x, const char *line, size_t n) {
    while (n > 0 && *line == ' ') line++, n--;
    size_t k = 0;
    while (k < n && line[k] != ':') k++;
    return gw_arena_strndup(&x->mem, line, k);
}

static void keep_layout_line(gw_search_site *x, const char *line, size_t n) {
    const char *leaf = leaf_of(x, line, n);
    const gw_runfile *rf = &x->target->rf;
    for (size_t i = 0; i < GW_COUNT(others); i++) {
        if (!gw_str_eq(others[i].leaf, leaf)) continue;
        if (!gw_runfile_is_set(rf, gw_arena_printf(&x->mem, "layout.%s", leaf))) return;
        if (others[i].least == 0) {
            gw_str_add_n(&x->kept, line, n);
            gw_str_add_char(&x->kept, '\n');
            return;
        }
        GW_ASSERT(x->nwhen < (int)GW_COUNT(x->when));
        x->when[x->nwhen].lever = others[i].lever;
        x->when[x->nwhen].least = others[i].least;
        x->when[x->nwhen++].line = gw_arena_strndup(&x->mem, line, n);
        return;
    }
}

static bool is_batch(const char *leaf) {
    return gw_str_eq(leaf, "micro_batch") || gw_str_eq(leaf, "accumulate") ||
           gw_str_eq(leaf, "global_batch");
}

/* Written down it would be held to the vocabulary, which a run that leaves it out is not. */
static bool is_assumed(const gw_search_site *x, const char *section, const char *leaf) {
    return gw_str_eq(section, "data") && gw_str_eq(leaf, "tokenizer") &&
           !gw_runfile_is_set(&x->target->rf, "data.tokenizer");
}

void gw_search_site_init(gw_search_site *x, const gw_target *t, const gw_machine_spec *m,
                         int64_t memory_bytes) {
    memset(x, 0, sizeof *x);
    x->target = t;
    x->machine = m;
    x->memory_bytes = memory_bytes;
    gw_str all = {0};
    gw_runfile_yaml(&t->rf, false, &all);
    const char *section = "";
    bool after = false;
    for (const char *line = gw_str_c(&all); *line;) {
        size_t n = strcspn(line, "\n");
        bool top = n > 0 && *line != ' ' && *line != '#';
        if (top) section = leaf_of(x, line, n);
        bool layout = gw_str_eq(section, "layout");
        bool chosen = layout || gw_str_eq(section, "offload") || gw_str_eq(section, "recompute");
        const char *leaf = leaf_of(x, line, n);
        bool batch = gw_str_eq(section, "train") && is_batch(leaf);
        if (layout && !top) keep_layout_line(x, line, n);
        if (!chosen && !batch && !is_assumed(x, section, leaf)) {
            gw_str *to = after ? &x->tail : &x->head;
            gw_str_add_n(to, line, n);
            gw_str_add_char(to, '\n');
        }
        after = after || gw_str_eq(section, "train");
        line += n + (line[n] == '\n');
    }
    gw_str_release(&all);
}

void gw_search_site_release(gw_search_site *x) {
    gw_str_release(&x->head);
    gw_str_release(&x->tail);
    gw_str_release(&x->kept);
    gw_arena_release(&x->mem);
}

/* ---- a layout's lines ---- */

/* Bytes of the arena where recomputation fills the memory: without the batches prepared ahead, and
 * a part for the program's own tables. */
static int64_t arena_room(const gw_search_site *x, const gw_search_layout *l) {
    const gw_runfile *rf = &x->target->rf;
    gw_loader_options ring = {.micro_batch = l->at[GW_SEARCH_MICRO],
                              .accumulate = l->accumulate,
                              .dp_size = l->dp,
                              .prefetch = rf->data.prefetch_steps};
    int64_t data = gw_runfile_has_images(rf) ? 0 : gw_loader_bytes_for(rf->train.seq_len, &ring);
    return GW_MAX(INT64_C(1), x->memory_bytes - data - x->memory_bytes / 100 - (INT64_C(32) << 20));
}

static bool kept_by_user(const gw_search_site *x, const char *leaf) {
    for (int i = 0; i < x->nwhen; i++)
        if (strncmp(x->when[i].line + 2, leaf, strlen(leaf)) == 0) return true;
    return false;
}

/* Each key that the layout sets, as `put` writes it. */
typedef void (*put_fn)(gw_str *out, const char *key, const char *value);

static void each_number(put_fn put, gw_str *out, const char *key, int64_t x) {
    char text[24];
    snprintf(text, sizeof text, "%lld", LL(x));
    put(out, key, text);
}

static void put_layout(const gw_search_site *x, const gw_search_layout *l, put_fn put,
                       gw_str *out) {
    const int32_t *at = l->at;
    char word[24];
    static const gw_search_lever degrees[] = {GW_SEARCH_TP, GW_SEARCH_CP, GW_SEARCH_PP,
                                              GW_SEARCH_EP};
    for (size_t i = 0; i < GW_COUNT(degrees); i++)
        if (at[degrees[i]] > 1)
            each_number(put, out, gw_search_lever_key(degrees[i]), at[degrees[i]]);
    if (at[GW_SEARCH_PP] > 1) {
        put(out, "layout.schedule",
            gw_search_value_name(GW_SEARCH_SCHEDULE, at[GW_SEARCH_SCHEDULE], word));
        if (at[GW_SEARCH_VIRTUAL] > 1)
            each_number(put, out, "layout.virtual_stages", at[GW_SEARCH_VIRTUAL]);
    }
    if (at[GW_SEARCH_ZERO] > 0) each_number(put, out, "layout.zero", at[GW_SEARCH_ZERO]);
    if (at[GW_SEARCH_ZERO] == 3 && x->machine && !kept_by_user(x, "prefetch"))
        put(out, "layout.prefetch", "1");
}

static void put_memory(const gw_search_site *x, const gw_search_layout *l, put_fn put,
                       gw_str *out) {
    const int32_t *at = l->at;
    char word[24];
    if (at[GW_SEARCH_OFFLOAD] >= GW_SEARCH_MOMENTS) put(out, "offload.optimizer", "host");
    bool has_master = x->target->setup.train.master != x->target->setup.train.compute;
    if (at[GW_SEARCH_OFFLOAD] >= GW_SEARCH_STATES && has_master) put(out, "offload.master", "host");
    if (at[GW_SEARCH_OFFLOAD] == GW_SEARCH_ALL) put(out, "offload.parameters", "host");
    if (at[GW_SEARCH_RECOMPUTE] == GW_SEARCH_NONE) return;
    put(out, "recompute.policy",
        gw_search_value_name(GW_SEARCH_RECOMPUTE, at[GW_SEARCH_RECOMPUTE], word));
    if (at[GW_SEARCH_RECOMPUTE] == GW_SEARCH_FILL)
        each_number(put, out, "recompute.budget", arena_room(x, l));
}

/* A line of its section: "layout.tp" is "  tp: 8". */
static void put_line(gw_str *out, const char *key, const char *value) {
    const char *dot = strchr(key, '.');
    char section[32];
    snprintf(section, sizeof section, "\n%.*s:\n", (int)(dot - key), key);
    if (!strstr(gw_str_c(out), section)) gw_str_add(out, section + 1);
    gw_str_printf(out, "  %s: %s\n", dot + 1, value);
}

static void put_word(gw_str *out, const char *key, const char *value) {
    gw_str_printf(out, "%s%s=%s", out->len ? " " : "", key, value);
}

void gw_search_site_words(const gw_search_site *x, const gw_search_layout *l, gw_str *out) {
    each_number(put_word, out, "train.micro_batch", l->at[GW_SEARCH_MICRO]);
    each_number(put_word, out, "train.accumulate", l->accumulate);
    put_layout(x, l, put_word, out);
    put_memory(x, l, put_word, out);
}

void gw_search_site_yaml(const gw_search_site *x, const gw_search_layout *l, bool part,
                         gw_str *out) {
    if (part)
        gw_str_add(out, "train:\n");
    else
        gw_str_add(out, gw_str_c(&x->head));
    gw_str_printf(out, "  micro_batch: %d\n  accumulate: %d\n", l->at[GW_SEARCH_MICRO],
                  l->accumulate);
    if (!part) gw_str_add(out, gw_str_c(&x->tail));
    gw_str_printf(out, "layout:\n  dp: %d\n%s", l->dp, gw_str_c(&x->kept));
    for (int i = 0; i < x->nwhen; i++)
        if (l->at[x->when[i].lever] >= x->when[i].least)
            gw_str_printf(out, "%s\n", x->when[i].line);
    put_layout(x, l, put_line, out);
    put_memory(x, l, put_line, out);
}

/* ---- the way of plan ---- */

/* A run as `plan` has it. */
typedef struct way {
    gw_diags dg;
    gw_target target;
    gw_planned planned;
    bool has_target, has_plan;
} way;

static void way_end(way *w) {
    if (w->has_plan) gw_planned_release(&w->planned);
    if (w->has_target) gw_target_release(&w->target);
    gw_diags_release(&w->dg);
}

/* layers 0: all. */
static gw_status way_go(way *w, const gw_search_site *x, const gw_search_layout *l, int64_t layers,
                        const gw_machine_spec *hw) {
    gw_str text = {0};
    memset(w, 0, sizeof *w);
    gw_diags_init(&w->dg);
    gw_search_site_yaml(x, l, false, &text);
    gw_runfile *rf = &w->target.rf;
    gw_status st = gw_runfile_parse_for(rf, "the layout searched", gw_str_c(&text),
                                        (int64_t)text.len, NULL, 0, l->world, &w->dg);
    gw_str_release(&text);
    if (st == GW_OK) st = gw_runfile_set_ranks(rf, l->world, &w->dg);
    if (st == GW_OK) st = gw_target_set_up(&w->target, layers, &w->dg);
    if (st != GW_OK) {
        gw_runfile_release(rf);
        return st;
    }
    w->has_target = true;
    GW_TRY(gw_planned_init(&w->planned, &w->target.setup, hw, &w->dg));
    w->has_plan = true;
    return GW_OK;
}

static void say_why(const way *w, char why[GW_SEARCH_WHY]) {
    snprintf(why, GW_SEARCH_WHY, "%s", gw_diags_first_error(&w->dg));
}

/* ---- a block ---- */

/* What a step of so many layers takes. */
typedef struct sample {
    double products, attention, memory, overlap, exposed, optimizer;
    double wire[GW_STREAM_COUNT];
    double certain; /* of a micro-batch, by ops inside layers */
    double bytes, forward, work, model_flops;
    int64_t tokens;
} sample;

/* Activations alive at once, at their most. */
static double activations_of(const gw_ledger *l) {
    int64_t most = 0;
    for (int64_t i = 0; i < l->nops; i++)
        most = GW_MAX(most, l->live[i * GW_CAUSE_COUNT + GW_CAUSE_ACTIVATIONS]);
    return (double)most;
}

/* Of a weight or its gradient: with more micro-batches once a step. */
static bool moves_weight(const gw_graph *g, const gw_op *o) {
    gw_cause cause = (gw_cause)g->values.items[gw_op_in(g, o, 0)].cause;
    return cause == GW_CAUSE_WEIGHTS || cause == GW_CAUSE_GRADIENTS;
}

/* Collectives of a micro-batch, by the machine's costs. */
static void read_wire(const way *w, const gw_machine_spec *m, sample *s) {
    gw_arena mem = {0};
    gw_buckets b;
    const gw_graph *g = &w->planned.programs[0];
    gw_buckets_of(&b, g, 0, &w->target.setup.facts.comm, &mem);
    for (int i = 0; i < b.n; i++) {
        const gw_op *o = &g->ops.items[b.items[i].launch];
        if (o->rate == GW_RATE_MB && o->stream < GW_STREAM_COUNT && !moves_weight(g, o))
            s->wire[o->stream] += gw_machine_coll_seconds(m, &b.items[i].coll, &g->mesh);
    }
    gw_arena_release(&mem);
}

/* What layers compute for a micro-batch, op by op. */
static double certain_of(const gw_graph *g, const gw_machine_spec *m) {
    double sum = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (o->rate != GW_RATE_MB || o->phase == GW_PHASE_O || o->stream != GW_STREAM_COMPUTE ||
            !gw_scope_layer(gw_graph_str(g, o->scope)))
            continue;
        sum += gw_machine_op_seconds(m, g, o, 0);
    }
    return sum;
}

static gw_status read_sample(const gw_search_site *x, const gw_search_layout *l, int64_t layers,
                             sample *s, char why[GW_SEARCH_WHY]) {
    way w;
    memset(s, 0, sizeof *s);
    gw_status st = way_go(&w, x, l, layers, NULL);
    if (st == GW_OK) {
        const gw_ledger *k = &w.planned.ranks[0];
        double all = 0;
        for (int p = 0; p < GW_PHASE_COUNT; p++) all += k->flops.by_phase[p];
        s->work = all - k->flops.by_phase[GW_PHASE_O];
        s->forward = k->flops.by_phase[GW_PHASE_F];
        s->bytes = activations_of(k);
        s->model_flops = k->flops.model * (double)k->ranks;
        s->tokens = k->tokens_per_step;
    }
    if (st == GW_OK && x->machine) {
        gw_arena mem = {0};
        gw_sim_result r;
        const gw_graph *program = &w.planned.programs[0];
        gw_simulate(&program, 1, x->machine, NULL, &mem, &r, NULL);
        s->products = r.products_s;
        s->attention = r.attention_s;
        s->memory = r.memory_s;
        s->overlap = r.overlap_s;
        s->exposed = r.exposed_s;
        s->optimizer = r.optimizer_s;
        s->certain = certain_of(program, x->machine);
        read_wire(&w, x->machine, s);
        gw_arena_release(&mem);
    }
    if (st != GW_OK) say_why(&w, why);
    way_end(&w);
    return st;
}

/* The value for all layers from those for n and n + 1. */
static double extend(double a, double b, int64_t n, int64_t layers) {
    return a + (b - a) * (double)(layers - n);
}

/* Layers of the smaller program: one beyond those that differ, which come first. */
static int64_t few_layers(const gw_search_site *x) {
    const gw_model *m = &x->target->setup.model;
    return GW_MIN(m->layers - 1, (m->moe.experts > 0 ? m->moe.dense_layers : 0) + 2);
}

static gw_search_layout one_stage(const gw_search_layout *l) {
    gw_search_layout one = *l;
    one.dp = gw_search_block_dp(l);
    one.accumulate = 1;
    one.at[GW_SEARCH_PP] = one.at[GW_SEARCH_VIRTUAL] = 1;
    one.at[GW_SEARCH_ZERO] = one.at[GW_SEARCH_RECOMPUTE] = one.at[GW_SEARCH_OFFLOAD] = 0;
    one.world = one.dp * one.at[GW_SEARCH_TP] * one.at[GW_SEARCH_CP];
    return one;
}

void gw_search_site_probe(void *site, const gw_search_layout *l, gw_search_block *out) {
    const gw_search_site *x = site;
    gw_search_layout one = one_stage(l);
    int64_t layers = x->target->setup.model.layers, n = few_layers(x);
    sample a, b;
    memset(out, 0, sizeof *out);
    out->refused = true;
    if (n < 1) return;
    if (read_sample(x, &one, n, &a, out->why) != GW_OK) return;
    if (read_sample(x, &one, n + 1, &b, out->why) != GW_OK) return;
    out->refused = false;
    double products = a.products + a.attention, more = b.products + b.attention;
    out->products_s = extend(products, more, n, layers);
    out->certain_s = extend(a.certain, b.certain, n, layers);
    out->layer_certain_s = b.certain - a.certain;
    out->attention_s = extend(a.attention, b.attention, n, layers);
    out->memory_s = extend(a.memory, b.memory, n, layers);
    out->overlap_s = extend(a.overlap, b.overlap, n, layers);
    out->exposed_s = extend(a.exposed, b.exposed, n, layers);
    out->optimizer_s = extend(a.optimizer, b.optimizer, n, layers);
    double all_a = products + a.memory + a.overlap + a.exposed;
    double all_b = more + b.memory + b.overlap + b.exposed;
    out->outside_s = fmax(0, all_a - (double)n * (all_b - all_a));
    for (int i = 0; i < GW_STREAM_COUNT; i++)
        out->wire_s[i] = (b.wire[i] - a.wire[i]) * (double)(layers - n) + a.wire[i];
    out->forward = b.work > a.work ? (b.forward - a.forward) / (b.work - a.work) : 1.0 / 3;
    out->layer_bytes = fmax(0, b.bytes - a.bytes);
    out->outside_bytes = fmax(0, a.bytes - (double)n * out->layer_bytes);
}

/* ---- a candidate ---- */

static void read_simulated(const gw_search_site *x, const way *w, gw_search_outcome *out) {
    gw_simplan p;
    gw_arena mem = {0};
    const gw_graph **programs = gw_arena_new(&mem, const gw_graph *, w->planned.n);
    for (int r = 0; r < w->planned.n; r++) programs[r] = &w->planned.programs[r];
    gw_simplan_init(&p, &(gw_simplan_input){.ranks = w->planned.ranks,
                                            .programs = programs,
                                            .n = w->planned.n,
                                            .largest = w->planned.largest,
                                            .machine = x->machine,
                                            .memory_bytes = (double)x->memory_bytes});
    out->step_s = p.sim.step_s;
    out->mfu = p.mfu[0].mfu;
    out->tokens_per_s_chip = p.tokens_per_s_chip;
    out->dollars_per_billion_tokens = p.dollars_per_billion_tokens;
    for (int i = 0; i < p.nparts && i < GW_SEARCH_PART_ROOM; i++) {
        snprintf(out->part[i].name, sizeof out->part[i].name, "%s", p.part[i].name);
        out->part[i].seconds = p.part[i].seconds;
        out->nparts = i + 1;
    }
    gw_simplan_release(&p);
    gw_arena_release(&mem);
}

/* FLOPs that a byte is worth that is copied between memories, where no machine says. */
static const double flops_a_copied_byte = 1000;

void gw_search_site_evaluate(void *site, const gw_search_layout *l, gw_search_outcome *out) {
    const gw_search_site *x = site;
    way w;
    memset(out, 0, sizeof *out);
    gw_status st = way_go(&w, x, l, 0, x->machine);
    if (st != GW_OK) {
        out->verdict = GW_SEARCH_REFUSED;
        say_why(&w, out->why);
    } else {
        const gw_ledger *k = &w.planned.ranks[w.planned.largest];
        out->total_bytes = k->total_bytes;
        double copied = 0;
        for (int i = 0; i < GW_MEM_COUNT; i++)
            copied += (double)(k->copies.fetched[i] + k->copies.stored[i]);
        out->effort = k->flops.hardware + flops_a_copied_byte * copied;
        if (x->machine) read_simulated(x, &w, out);
    }
    way_end(&w);
}

/* ---- space and facts ---- */

/* Given by --set, and so not turned. */
static bool is_pinned(const gw_runfile *rf, const char *key) {
    if (!gw_runfile_is_set(rf, key)) return false;
    gw_where w = gw_runfile_where(rf, key);
    return w.file && gw_str_starts(w.file, "--set");
}

static void pin(gw_search_space *s, const gw_runfile *rf, gw_search_lever l, const char *key,
                int64_t value) {
    if (!is_pinned(rf, key)) return;
    s->is_fixed[l] = true;
    s->fixed[l] = (int32_t)value;
}

static gw_status pin_words(const gw_runfile *rf, gw_search_space *s, gw_diags *dg) {
    int32_t schedule = gw_search_schedule(rf->layout.schedule);
    if (is_pinned(rf, "layout.schedule") && schedule < 0)
        return GW_FAIL(dg, GW_ERR_USAGE, "usage", "--search takes a schedule by name, not '%.60s'",
                       rf->layout.schedule);
    pin(s, rf, GW_SEARCH_SCHEDULE, "layout.schedule", schedule);
    static const int policies[] = {GW_SEARCH_NONE, GW_SEARCH_SELECTIVE, GW_SEARCH_FULL, -1,
                                   GW_SEARCH_FILL};
    int policy = policies[rf->recompute.policy];
    if (is_pinned(rf, "recompute.policy") && policy < 0)
        return GW_FAIL(dg, GW_ERR_USAGE, "usage",
                       "--search chooses among the policies none, selective, full and budget; "
                       "recompute.policy ops is not one of them");
    pin(s, rf, GW_SEARCH_RECOMPUTE, "recompute.policy", policy);
    const gw_rf_offload *o = &rf->offload;
    if (o->optimizer == GW_MEM_DISK || o->master == GW_MEM_DISK || o->parameters == GW_MEM_DISK)
        return GW_FAIL(dg, GW_ERR_USAGE, "usage",
                       "--search looks at offload to the host, and this run offloads to disk");
    int offload = o->parameters == GW_MEM_HOST  ? GW_SEARCH_ALL
                  : o->master == GW_MEM_HOST    ? GW_SEARCH_STATES
                  : o->optimizer == GW_MEM_HOST ? GW_SEARCH_MOMENTS
                                                : GW_SEARCH_DEVICE;
    static const char *const keys[] = {"offload.optimizer", "offload.master", "offload.parameters"};
    for (size_t i = 0; i < GW_COUNT(keys); i++) pin(s, rf, GW_SEARCH_OFFLOAD, keys[i], offload);
    return GW_OK;
}

/* The farthest that each degree is looked at: tp over two nodes, cp while a rank keeps a thousand
 * tokens, stages of a layer. */
static void limit(const gw_search_site *x, gw_search_space *s) {
    const gw_model *m = &x->target->setup.model;
    bool images = m->family == GW_FAMILY_RESNET;
    int64_t node = x->machine && x->machine->ntiers > 0 ? x->machine->tiers[0].ranks : 0;
    int64_t heads = images ? 1 : GW_MAX(m->heads, INT64_C(1));
    s->most[GW_SEARCH_TP] = node > 0 ? GW_MIN(2 * node, heads) : heads;
    s->most[GW_SEARCH_CP] = images ? 1 : GW_MIN(INT64_C(64), GW_MAX(INT64_C(1), s->seq / 1024));
    s->most[GW_SEARCH_PP] = images ? 1 : GW_MIN(m->layers + 2, INT64_C(64));
    s->most[GW_SEARCH_VIRTUAL] = 8;
    s->most[GW_SEARCH_EP] = GW_MAX(s->experts, INT64_C(1));
    s->most[GW_SEARCH_MICRO] = 64;
}

gw_status gw_search_site_space(const gw_search_site *x, gw_search_space *s, gw_diags *dg) {
    const gw_runfile *rf = &x->target->rf;
    const gw_setup *t = &x->target->setup;
    const gw_rf_layout *l = &rf->layout;
    *s = (gw_search_space){.global_batch = rf->train.global_batch,
                           .seq = rf->train.seq_len,
                           .layers = GW_MAX(t->model.layers, INT64_C(1)),
                           .experts = t->model.moe.experts,
                           .has_master = t->train.master != t->train.compute,
                           .has_states =
                               t->train.optim.kind != GW_OPTIM_SGD || t->train.optim.momentum > 0};
    s->may_offload = !x->machine || x->machine->host_bytes_per_s > 0;
    s->worlds[0] = gw_runfile_ranks(rf);
    s->nworlds = 1;
    limit(x, s);
    if (is_pinned(rf, "layout.dp") && !rf->dp_auto) s->dp = l->dp;
    if (is_pinned(rf, "train.accumulate")) s->accumulate = rf->train.accumulate;
    pin(s, rf, GW_SEARCH_TP, "layout.tp", l->tp);
    pin(s, rf, GW_SEARCH_CP, "layout.cp", l->cp);
    pin(s, rf, GW_SEARCH_PP, "layout.pp", l->pp);
    pin(s, rf, GW_SEARCH_VIRTUAL, "layout.virtual_stages", l->virtual_stages);
    pin(s, rf, GW_SEARCH_EP, "layout.ep", l->ep);
    pin(s, rf, GW_SEARCH_ZERO, "layout.zero", l->zero);
    pin(s, rf, GW_SEARCH_MICRO, "train.micro_batch", rf->train.micro_batch);
    return pin_words(rf, s, dg);
}

static int moments_of(const gw_setup *t) {
    switch (t->train.optim.kind) {
    case GW_OPTIM_ADAMW: return 2;
    case GW_OPTIM_SGD: return t->train.optim.momentum > 0;
    case GW_OPTIM_MUON: return 1; /* of the matrices it takes; others have two */
    }
    return 0;
}

/* Seconds of all chips at the peak of what is multiplied. */
static double peak_seconds(const gw_search_site *x, double flops) {
    bool eight = x->target->rf.precision.products != GW_RF_PRODUCTS_COMPUTE;
    double peak = gw_machine_flops(x->machine, eight ? GW_F8E4M3 : x->target->setup.train.compute);
    return peak > 0 ? flops / peak : 0;
}

void gw_search_site_facts(const gw_search_site *x, gw_search_facts *f) {
    const gw_setup *t = &x->target->setup;
    *f = (gw_search_facts){.weight = gw_dtype_bits(t->train.compute) / 8,
                           .gradient = gw_dtype_bits(t->train.gradients) / 8,
                           .memory_bytes = x->memory_bytes,
                           .images = gw_runfile_has_images(&x->target->rf)};
    f->master = t->train.master != t->train.compute ? gw_dtype_bits(t->train.master) / 8 : 0;
    f->moments = moments_of(t) * gw_dtype_bits(t->train.moments) / 8;
    f->hidden_bytes = (double)(t->model.hidden * f->weight);
    for (int i = 0; i < t->nparams; i++) {
        double n = (double)gw_type_elems(&t->params[i].type);
        bool expert = gw_type_find(&t->params[i].type, "e") >= 0;
        *(expert ? &f->expert_params : &f->dense_params) += n;
        if (!gw_str_starts(t->params[i].name, "layers.")) f->outside_params += n;
    }
    gw_search_layout one = {.world = 1, .dp = 1, .accumulate = 1};
    one.at[GW_SEARCH_TP] = one.at[GW_SEARCH_CP] = one.at[GW_SEARCH_PP] = 1;
    one.at[GW_SEARCH_VIRTUAL] = one.at[GW_SEARCH_EP] = one.at[GW_SEARCH_MICRO] = 1;
    char why[GW_SEARCH_WHY];
    sample a, b;
    int64_t n = few_layers(x);
    if (!x->machine || n < 1 || read_sample(x, &one, n, &a, why) != GW_OK ||
        read_sample(x, &one, n + 1, &b, why) != GW_OK)
        return;
    double tokens = (double)t->rf->train.global_batch * (double)t->rf->train.seq_len;
    double flops = extend(a.model_flops, b.model_flops, n, t->model.layers);
    f->peak_s = peak_seconds(x, flops / (double)a.tokens * tokens);
}
