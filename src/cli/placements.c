// SPDX-License-Identifier: Apache-2.0
// Which parameters are cut, as people and programs read it.
//
// Layers are alike, so a line stands for one parameter of all of them. Sizes may be uneven: then
// the largest and the smallest part are given, and how many ranks hold nothing.
#include "cli/placements.h"

#include <stdio.h>

#include "base/term.h"       /* gw_table */
#include "model/placement.h" /* gw_placement_lines */
#include "train/setup.h"     /* gw_runfile_rules */

static void list(const gw_runfile *rf, const gw_model *m, gw_arena *a, gw_placement_line **lines,
                 int *n) {
    gw_param *params;
    int nparams, nrules;
    gw_model_params(m, a, &params, &nparams);
    const gw_placement_rule *rules = gw_runfile_rules(rf, a, &nrules);
    gw_placement_lines(params, nparams, rules, nrules, rf->layout.tp, a, lines, n);
}

static bool has_any(const gw_runfile *rf, const gw_model *m) {
    return rf->layout.tp > 1 && m->family != GW_FAMILY_RESNET;
}

static void describe_part(const gw_placement_line *l, char *text, size_t n) {
    if (!*l->cut)
        snprintf(text, n, "whole");
    else if (l->most == l->least)
        snprintf(text, n, "%lld", (long long)l->most);
    else if (l->empty > 0)
        snprintf(text, n, "%lld to %lld, none on %lld", (long long)l->most, (long long)l->least,
                 (long long)l->empty);
    else
        snprintf(text, n, "%lld to %lld", (long long)l->most, (long long)l->least);
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
        char part[64];
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
            all, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I}", "parameters", lines[i].names,
                           "dimensions", lines[i].dims, "cut",
                           *lines[i].cut ? json_string(lines[i].cut) : json_null(), "count",
                           (json_int_t)lines[i].count, "most", (json_int_t)lines[i].most, "least",
                           (json_int_t)lines[i].least, "empty_ranks", (json_int_t)lines[i].empty));
    gw_arena_release(&mem);
    return all;
}
