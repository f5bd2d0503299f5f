// SPDX-License-Identifier: Apache-2.0
// From a word on the command line to a program that can be looked at.
//
// A run file says everything. A model alone (a preset, a directory, a GGUF file) says nothing of
// the run, so a run file is written for it: sequences as long as the model allows but no longer
// than 4,096 tokens, one of them in a micro-batch, bf16 with the usual float32 master, gradients
// and moments. It goes through the same parser as a file, so --set overrides any key and refusals
// read the same; the values are printed with the plan.
//
// What a word is: "-" and names that end in .yaml or .yml are run files; a directory is a model;
// .gguf is one; another file that exists is a run file; the rest is a preset's name.
#include "cli/planarg.h"

#include <string.h>

#include "base/io.h"      /* gw_path_exists */
#include "base/str.h"     /* gw_str */
#include "cli/ranks.h"    /* gw_cli_ranks */
#include "cli/runarg.h"   /* gw_cli_runfile */
#include "data/loader.h"  /* gw_loader_bytes_for */
#include "train/feed.h"   /* gw_feed_bytes */
#include "train/report.h" /* gw_report_rank_ledger */

enum { LONGEST = 4096 };

static gw_status unknown_name(gw_cli *cli, const char *spec) {
    const char *best = NULL, *name;
    int limit = GW_MAX(3, (int)strlen(spec) / 2);
    gw_str all = {0};
    for (int i = 0; (name = gw_model_preset_name(i)) != NULL; i++) {
        int d = gw_str_distance(name, spec);
        gw_str_printf(&all, "%s%s", i ? ", " : "presets: ", name);
        if (d >= limit) continue;
        limit = d;
        best = name;
    }
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_CONFIG, "model-preset", (gw_where){0},
                             "'%.80s' is no run file, no model directory and no preset", spec);
    for (int i = 0; (name = gw_model_net_name(i)) != NULL; i++) {
        int d = gw_str_distance(name, spec);
        gw_str_printf(&all, ", %s", name);
        if (d >= limit) continue;
        limit = d;
        best = name;
    }
    gw_diag_detail(cli->diags, g, "%s", gw_str_c(&all));
    if (best) gw_diag_hint(cli->diags, g, "did you mean %s?", best);
    gw_str_release(&all);
    return GW_ERR_CONFIG;
}

static void add_quoted(gw_str *out, const char *text) {
    gw_str_add_char(out, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            gw_str_printf(out, "\\%c", *p);
        else if (*p < 0x20)
            gw_str_printf(out, "\\x%02x", *p);
        else
            gw_str_add_char(out, (char)*p);
    }
    gw_str_add_char(out, '"');
}

/* The run that is assumed of a model alone; positions 0: it has no sequences. */
static gw_status assume(gw_cli *cli, const char *key, const char *spec, int64_t positions,
                        gw_runfile *rf) {
    gw_str text = {0};
    gw_str_printf(&text, "model:\n  %s: ", key);
    add_quoted(&text, spec);
    if (positions > 0)
        gw_str_printf(&text, "\ntrain:\n  seq_len: %lld", (long long)GW_MIN(positions, LONGEST));
    gw_str_add(&text, "\nprecision:\n  compute: bf16\n");
    const char *const *sets = NULL;
    int nsets = gw_cli_sets(cli, &sets);
    char *name = gw_arena_printf(cli->arena, "the run assumed of %s", spec);
    gw_status st = gw_runfile_parse_for(rf, name, gw_str_c(&text), (int64_t)text.len, sets, nsets,
                                        gw_cli_known_ranks(cli), cli->diags);
    gw_str_release(&text);
    return st;
}

/* Read for its positions only: whoever reads the model proper says what is notable about it. A
 * failure is found again, and said. */
static gw_status read_quietly(gw_cli *cli, const char *spec, gw_model *m) {
    gw_diags unsaid;
    gw_diags_init(&unsaid);
    gw_status st = gw_setup_read_model(spec, m, &unsaid);
    gw_diags_release(&unsaid);
    return st == GW_OK ? GW_OK : gw_setup_read_model(spec, m, cli->diags);
}

static gw_status load(gw_target *t, gw_cli *cli, const char *spec) {
    bool yaml = strcmp(spec, "-") == 0 || gw_str_ends(spec, ".yaml") || gw_str_ends(spec, ".yml");
    bool path = gw_path_is_dir(spec) || gw_str_ends(spec, ".gguf");
    gw_model m;
    if (!path && (yaml || gw_path_exists(spec))) return gw_cli_runfile(cli, spec, &t->rf);
    t->assumed = true;
    if (path) {
        GW_TRY(gw_cli_need_path(cli, spec));
        GW_TRY(read_quietly(cli, spec, &m));
        return assume(cli, "path", spec, m.max_positions, &t->rf);
    }
    if (!gw_model_preset(spec, &m)) return unknown_name(cli, spec);
    bool net = m.family == GW_FAMILY_RESNET;
    return assume(cli, "preset", spec, net ? 0 : m.max_positions, &t->rf);
}

static const char *name_of(const gw_target *t, const char *spec) {
    if (t->assumed) return spec;
    if (t->rf.model.source == GW_RF_PRESET) return t->rf.model.preset;
    return strcmp(spec, "-") == 0 ? "standard input" : spec;
}

gw_status gw_target_set_up(gw_target *t, int64_t layers, gw_diags *dg) {
    GW_TRY(gw_setup_init(&t->setup, &t->rf, false, dg));
    if (layers > 0) t->setup.model.layers = layers;
    gw_status st = gw_setup_ranks(&t->setup, NULL, dg);
    if (st != GW_OK) {
        gw_setup_release(&t->setup);
        return st;
    }
    gw_memo_init(&t->memo, &t->setup.machine);
    t->memo.comm = t->setup.facts.comm;
    t->setup.train.workspace = t->setup.forward.workspace = gw_memo_workspace;
    t->setup.train.workspace_user = t->setup.forward.workspace_user = &t->memo;
    return GW_OK;
}

gw_status gw_target_init(gw_target *t, gw_cli *cli, const char *spec) {
    int ranks = 0;
    memset(t, 0, sizeof *t);
    gw_status asked = gw_cli_ranks(cli, &ranks), st = load(t, cli, spec);
    if (st == GW_OK) st = asked; /* what the run file has to say is said too */
    if (st == GW_OK && ranks > 0) st = gw_runfile_set_ranks(&t->rf, ranks, cli->diags);
    if (st == GW_OK) st = gw_target_set_up(t, 0, cli->diags);
    if (st != GW_OK) {
        gw_runfile_release(&t->rf);
        return st;
    }
    t->name = name_of(t, spec);
    return GW_OK;
}

void gw_target_release(gw_target *t) {
    gw_memo_release(&t->memo);
    gw_setup_release(&t->setup);
    gw_runfile_release(&t->rf);
}

void gw_target_describe(const gw_target *t, gw_str *out) {
    const gw_runfile *rf = &t->rf;
    bool small = rf->precision.compute != GW_RF_FP32;
    if (!gw_runfile_has_images(rf))
        gw_str_printf(out, "train.seq_len %lld, ", (long long)rf->train.seq_len);
    gw_str_printf(out, "train.micro_batch %lld, train.accumulate %lld",
                  (long long)rf->train.micro_batch, (long long)rf->train.accumulate);
    gw_str_printf(out, ", precision.compute %s (", gw_runfile_word(rf, "precision.compute"));
    if (small) gw_str_printf(out, "master %s, ", gw_runfile_word(rf, "precision.master"));
    gw_str_printf(out, "gradients %s, moments %s)", gw_runfile_word(rf, "precision.gradients"),
                  gw_runfile_word(rf, "precision.moments"));
    if (gw_runfile_ranks(rf) > 1)
        gw_str_printf(out, ", layout.dp %lld, layout.zero %lld", (long long)rf->layout.dp,
                      (long long)rf->layout.zero);
    if (rf->layout.pp > 1)
        gw_str_printf(out, ", layout.pp %lld, layout.virtual_stages %lld, layout.schedule %s",
                      (long long)rf->layout.pp, (long long)rf->layout.virtual_stages,
                      rf->layout.schedule);
    if (rf->layout.tp > 1) gw_str_printf(out, ", layout.tp %lld", (long long)rf->layout.tp);
    if (rf->layout.cp > 1) gw_str_printf(out, ", layout.cp %lld", (long long)rf->layout.cp);
    if (rf->layout.ep > 1) gw_str_printf(out, ", layout.ep %lld", (long long)rf->layout.ep);
    gw_str_printf(out, ", optimizer.name %s, recompute.policy %s",
                  gw_runfile_word(rf, "optimizer.name"), gw_runfile_word(rf, "recompute.policy"));
}

/* Of the batches that are prepared ahead. */
static int64_t data_bytes(const gw_setup *s) {
    const gw_runfile *rf = s->rf;
    int64_t images = gw_feed_bytes(&s->model, rf->train.micro_batch, rf->data.valid != NULL);
    gw_loader_options ring = {.micro_batch = rf->train.micro_batch,
                              .accumulate = rf->train.accumulate,
                              .dp_size = rf->layout.dp,
                              .prefetch = rf->data.prefetch_steps};
    return images ? images : gw_loader_bytes_for(rf->train.seq_len, &ring);
}

static gw_status read_ranks(gw_planned *p, const gw_setup *s, gw_compile_report *report,
                            gw_diags *dg) {
    gw_setup one = *s;
    gw_report_shared whole;
    GW_TRY(gw_report_shared_init(&whole, s, dg));
    gw_status st = GW_OK;
    for (int r = 0; r < (s->schedule ? s->schedule->ranks : 1); r++) {
        one.stage_rank = r;
        st = gw_report_rank_ledger(&one, &whole, data_bytes(s), r ? &p->ranks[0] : NULL,
                                   &p->ranks[r], &p->programs[r], report, dg);
        if (st != GW_OK) break;
        p->n = r + 1;
        if (p->ranks[r].total_bytes > p->ranks[p->largest].total_bytes) p->largest = r;
    }
    gw_report_shared_release(&whole);
    return st;
}

gw_status gw_planned_init(gw_planned *p, const gw_setup *s, const gw_machine_spec *hw,
                          gw_diags *dg) {
    memset(p, 0, sizeof *p);
    gw_compile_report report = {0};
    int n = s->schedule ? s->schedule->ranks : 1;
    p->ranks = gw_arena_new(&p->mem, gw_ledger, n);
    p->programs = gw_arena_new(&p->mem, gw_graph, n);
    gw_setup keeps = *s; /* what compiling reports lives as long as the plan */
    keeps.train.report_mem = &p->mem;
    gw_status st = read_ranks(p, &keeps, &report, dg);
    if (st != GW_OK) {
        gw_planned_release(p);
        return st;
    }
    if (s->schedule)
        gw_pipeplan_init(&p->pipeline,
                         &(gw_pipeplan_input){.ranks = p->ranks,
                                              .n = p->n,
                                              .schedule = s->schedule,
                                              .stages = report.stages,
                                              .places = (int)s->rf->layout.message_places,
                                              .deferred_norm = s->train.optim.deferred_norm,
                                              .hardware = hw});
    return GW_OK;
}

void gw_planned_release(gw_planned *p) {
    if (p->pipeline.n) gw_pipeplan_release(&p->pipeline);
    for (int r = 0; r < p->n; r++) {
        gw_ledger_release(&p->ranks[r]);
        gw_graph_release(&p->programs[r]);
    }
    gw_arena_release(&p->mem);
    memset(p, 0, sizeof *p);
}

gw_status gw_target_ledger(const gw_setup *s, gw_ledger *l, gw_diags *dg) {
    gw_planned p;
    GW_TRY(gw_planned_init(&p, s, NULL, dg));
    gw_ledger kept = p.ranks[p.largest];
    kept.pipeline = NULL;
    memset(&p.ranks[p.largest], 0, sizeof kept); /* what it owns is *l's now */
    gw_planned_release(&p);
    *l = kept;
    return GW_OK;
}
