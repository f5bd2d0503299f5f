// SPDX-License-Identifier: Apache-2.0
// From a plan's target to its explanations: what tensor and context parallelism cost, by degree.
//
// The explanations compile single blocks (src/plan). Only the question which cp is the first to fit
// needs the plan's own total, so the whole step is compiled for one degree after another, all other
// keys as they are, until one fits; a degree that the layout refuses is said to be refused.
#include "cli/plan_why.h"

#include "cli/plan_sim.h" /* gw_cli_machine */

#include <string.h>

#include "base/str.h"  /* gw_fmt_bytes */
#include "base/term.h" /* gw_table */
#include "plan/why.h"  /* gw_why_tp, gw_why_cp */

#define BYTES(x) gw_fmt_bytes((char[32]){0}, (x))

enum { MOST_CP = 64, TRIES = 8 };

static gw_block_input input_of(const gw_target *t, gw_arena *a) {
    const gw_runfile *rf = &t->rf;
    gw_block_input in = {.model = &t->setup.model,
                         .opts = &t->setup.train,
                         .micro_batch = rf->train.micro_batch,
                         .seq = rf->train.seq_len,
                         .comm = &t->setup.facts.comm};
    in.rules = gw_runfile_rules(rf, a, &in.nrules);
    return in;
}

static gw_block_layout layout_of(const gw_runfile *rf) {
    const gw_rf_layout *l = &rf->layout;
    return (gw_block_layout){.tp = l->tp,
                             .cp = l->cp,
                             .sequence_parallel = l->tp > 1 && l->sequence_parallel,
                             .cp_mode = (gw_cp_mode)l->cp_mode,
                             .cp_ulysses = (int)l->cp_ulysses};
}

static gw_status want_language(gw_cli *cli, const gw_target *t) {
    if (t->setup.model.family != GW_FAMILY_RESNET) return GW_OK;
    return gw_cli_usage_error(
        cli, "--why explains layouts of language models; %s is a net for images", t->name);
}

/* ---- the smallest cp that fits ---- */

typedef struct fit {
    int64_t cp, total_bytes; /* 0: refused */
    bool fits;
} fit;

static fit try_cp(const gw_target *t, int64_t cp, int64_t memory) {
    gw_setup changed = t->setup;
    gw_runfile rf = t->rf;
    gw_diags unsaid;
    gw_ledger l;
    changed.rf = &rf;
    bool ring = rf.layout.cp_mode == GW_RF_CP_HYBRID && rf.layout.cp != cp;
    rf.layout.cp = cp;
    gw_compile_opts *both[2] = {&changed.train, &changed.forward};
    for (int i = 0; i < 2 && ring; i++) {
        both[i]->layout.cp_mode = GW_CP_RING;
        both[i]->layout.cp_ulysses = 0;
    }
    gw_diags_init(&unsaid);
    fit f = {.cp = cp};
    if (gw_target_ledger(&changed, &l, &unsaid) == GW_OK) {
        f.total_bytes = l.total_bytes;
        f.fits = l.total_bytes <= memory;
        gw_ledger_release(&l);
    }
    gw_diags_release(&unsaid);
    return f;
}

static int find_fit(const gw_target *t, int64_t memory, fit tries[TRIES]) {
    int n = 0;
    for (int64_t cp = 1; cp <= MOST_CP && n < TRIES; cp *= 2) {
        tries[n] = try_cp(t, cp, memory);
        if (tries[n++].fits) break;
    }
    return n;
}

static void print_fit(const gw_target *t, int64_t memory, FILE *out) {
    fit tries[TRIES];
    gw_arena mem = {0};
    int n = find_fit(t, memory, tries);
    fprintf(out, "\n  the smallest cp that fits %s, by the plan of the whole step\n",
            BYTES(memory));
    gw_table *table = gw_table_new("rrl");
    gw_table_row(table, "cp", "total", "");
    for (int i = 0; i < n; i++)
        gw_table_row(table, gw_arena_printf(&mem, "%lld", (long long)tries[i].cp),
                     tries[i].total_bytes ? BYTES(tries[i].total_bytes) : "-",
                     !tries[i].total_bytes ? "refused"
                     : tries[i].fits       ? "fits"
                                           : gw_arena_printf(&mem, "short by %s",
                                                             BYTES(tries[i].total_bytes - memory)));
    gw_table_print(table, out, "  ");
    gw_table_free(table);
    gw_arena_release(&mem);
    if (n > 0 && tries[n - 1].fits)
        fprintf(out, "  --set layout.cp=%lld\n", (long long)tries[n - 1].cp);
    else
        fprintf(out, "  none up to %d: what is left does not shrink with the sequence\n",
                (int)MOST_CP);
}

static json_t *fit_json(const gw_target *t, int64_t memory) {
    fit tries[TRIES];
    int n = find_fit(t, memory, tries);
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_pack("{s:I, s:I, s:b}", "cp", (json_int_t)tries[i].cp,
                                           "total_bytes", (json_int_t)tries[i].total_bytes, "fits",
                                           tries[i].fits));
    return a;
}

/* ---- either ---- */

/* Prints, or, out not NULL, adds to the JSON object *out. */
static gw_status tensor(gw_cli *cli, const gw_target *t, const gw_block_input *in,
                        const gw_machine_spec *hw, json_t **out) {
    gw_why_tp *w = gw_arena_new(cli->arena, gw_why_tp, 1);
    GW_TRY(gw_why_tp_init(w, in, hw, t->rf.layout.tp, cli->diags));
    if (out)
        json_object_set_new(*out, "tp", gw_why_tp_json(w));
    else
        gw_why_tp_print(w, cli->out);
    return GW_OK;
}

static gw_status context(gw_cli *cli, const gw_target *t, const gw_block_input *in,
                         const gw_machine_spec *hw, json_t **out) {
    gw_why_cp *w = gw_arena_new(cli->arena, gw_why_cp, 1);
    gw_block_layout run = layout_of(&t->rf);
    int64_t memory = gw_cli_int(cli, "memory", 0);
    GW_TRY(gw_why_cp_init(w, in, hw, &run, cli->diags));
    if (out) {
        json_object_set_new(*out, "cp", gw_why_cp_json(w));
        if (memory > 0) json_object_set_new(*out, "fits", fit_json(t, memory));
        return GW_OK;
    }
    gw_why_cp_print(w, cli->out);
    if (memory > 0) print_fit(t, memory, cli->out);
    return GW_OK;
}

static gw_status explain(gw_cli *cli, const gw_target *t, const char *topic, json_t **out) {
    gw_machine_spec m = {0};
    bool given;
    GW_TRY(want_language(cli, t));
    GW_TRY(gw_cli_machine(cli, &m, &given));
    const gw_machine_spec *stated = given ? &m : NULL;
    gw_block_input in = input_of(t, cli->arena);
    return strcmp(topic, "tp") == 0 ? tensor(cli, t, &in, stated, out)
                                    : context(cli, t, &in, stated, out);
}

gw_status gw_cli_print_why(gw_cli *cli, const gw_target *t, const char *topic) {
    return explain(cli, t, topic, NULL);
}

gw_status gw_cli_why_json(gw_cli *cli, const gw_target *t, const char *topic, json_t **out) {
    if (!*out) *out = json_object();
    return explain(cli, t, topic, out);
}
