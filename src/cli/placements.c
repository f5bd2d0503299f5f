// SPDX-License-Identifier: Apache-2.0
// Which parameters are cut, as people and programs read it.
//
// Layers are alike, so a line stands for one parameter of all of them. Sizes may be uneven: then
// the largest and the smallest part are given, and how many ranks hold nothing. Kv heads may be
// fewer than ranks: over how many of them they are cut, and with that how many hold the same, is
// the shard pass's to say.
#include "cli/placements.h"

#include <stdio.h>

#include "base/term.h"       /* gw_table */
#include "ir/mesh.h"         /* gw_mesh */
#include "model/placement.h" /* gw_placement_lines */
#include "pass/pass.h"       /* gw_layout_kv_ranks, gw_layout_axes */
#include "train/setup.h"     /* gw_runfile_rules */

/* The size of a dimension of the parameters, 0 if none has it. */
static int64_t size_of(const gw_param *params, int n, const char *dim) {
    for (int i = 0; i < n; i++) {
        int k = gw_type_find(&params[i].type, dim);
        if (k >= 0) return params[i].type.dims[k].size;
    }
    return 0;
}

/* Experts that are cut over ranks of tp. While ranks are not known there may be no such cut. */
static void add_experts(const gw_runfile *rf, gw_placement_cuts *cuts) {
    const gw_rf_layout *l = &rf->layout;
    gw_layout_opts o = {.sequence_parallel = l->sequence_parallel, .ep = (int)l->ep};
    gw_mesh m = {0};
    gw_axes axes;
    gw_diags unsaid;
    gw_runfile_mesh(rf, &m);
    gw_diags_init(&unsaid);
    if (gw_layout_axes(&axes, &m, &o, &unsaid) == GW_OK && axes.ep & axes.tp) {
        cuts->experts = l->ep;
        cuts->experts_in_tp = gw_mesh_size(&m, axes.ep & axes.tp);
    }
    gw_diags_release(&unsaid);
}

static void list(const gw_runfile *rf, const gw_model *m, gw_arena *a, gw_placement_line **lines,
                 int *n) {
    gw_param *params;
    int nparams, nrules;
    gw_model_params(m, a, &params, &nparams);
    const gw_placement_rule *rules = gw_runfile_rules(rf, a, &nrules);
    gw_placement_cuts cuts = {.tp = rf->layout.tp};
    cuts.kv =
        gw_layout_kv_ranks(cuts.tp, size_of(params, nparams, "h"), size_of(params, nparams, "g"));
    if (rf->layout.ep > 1) add_experts(rf, &cuts);
    gw_placement_lines(params, nparams, rules, nrules, &cuts, a, lines, n);
}

static bool has_any(const gw_runfile *rf, const gw_model *m) {
    return rf->layout.tp > 1 && m->family != GW_FAMILY_RESNET;
}

static void describe_part(const gw_placement_line *l, char *text, size_t n) {
    char copies[48] = "";
    if (l->copies > 1)
        snprintf(copies, sizeof copies, ", each on %lld ranks", (long long)l->copies);
    if (!*l->cut)
        snprintf(text, n, "whole");
    else if (l->most == l->least)
        snprintf(text, n, "%lld%s", (long long)l->most, copies);
    else if (l->empty > 0)
        snprintf(text, n, "%lld to %lld%s, none on %lld", (long long)l->most, (long long)l->least,
                 copies, (long long)l->empty);
    else
        snprintf(text, n, "%lld to %lld%s", (long long)l->most, (long long)l->least, copies);
}

void gw_cli_print_placements(const gw_runfile *rf, const gw_model *m, const char *margin,
                             FILE *out) {
    gw_arena mem = {0};
    gw_placement_line *lines;
    int n;
    char each[64];
    if (!has_any(rf, m)) return;
    list(rf, m, &mem, &lines, &n);
    gw_table *t = gw_table_new("llll");
    snprintf(each, sizeof each, "each of %lld", (long long)rf->layout.tp);
    gw_table_row(t, "parameters", "dimensions", "cut over tp", each);
    for (int i = 0; i < n; i++) {
        char part[160];
        describe_part(&lines[i], part, sizeof part);
        gw_table_row(t, lines[i].names, lines[i].dims, *lines[i].cut ? lines[i].cut : "-", part);
    }
    gw_table_print(t, out, margin);
    gw_table_free(t);
    gw_arena_release(&mem);
}

json_t *gw_cli_placements_json(const gw_runfile *rf, const gw_model *m) {
    gw_arena mem = {0};
    gw_placement_line *lines;
    int n = 0;
    json_t *all = json_array();
    if (has_any(rf, m)) list(rf, m, &mem, &lines, &n);
    for (int i = 0; i < n; i++)
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I}", "parameters", lines[i].names,
                           "dimensions", lines[i].dims, "cut",
                           *lines[i].cut ? json_string(lines[i].cut) : json_null(), "count",
                           (json_int_t)lines[i].count, "most", (json_int_t)lines[i].most, "least",
                           (json_int_t)lines[i].least, "empty_ranks", (json_int_t)lines[i].empty,
                           "copies", (json_int_t)lines[i].copies));
    gw_arena_release(&mem);
    return all;
}
