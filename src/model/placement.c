// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism, as far as a model has a say in it.
//
// Dimensions have names, and the names say it all: heads, feed-forward columns and vocabulary rows
// are independent of one another, so a weight that has one of these dimensions is cut along it, and
// the two products of a block (Shoeybi et al. 2019, "Megatron-LM", section 3) come out as the usual
// pair: the first cut along its output, the second along what it sums over. What has none of them
// is small (gains, biases of the residual stream, routers) or is read by all heads at once
// (low-rank projections of latent attention), and every rank has it whole. So one line serves all
// families.
//
// A run file may except parameters by name. Any dimension may be cut that way but two: `k`, the
// inside of a head, over which attention's scores and rotary positions run, and `e`, experts, which
// are dealt out by expert parallelism and stay whole within one.
#include "model/placement.h"

#include <string.h>

#include "base/str.h" /* gw_str_glob, gw_str_eq */

const char *gw_placement_default(const gw_param *p) {
    static const char *const order[] = {"h", "g", "f", "v"};
    for (size_t i = 0; i < GW_COUNT(order); i++)
        if (gw_type_find(&p->type, order[i]) >= 0) return order[i];
    return "";
}

const char *gw_placement_of(const gw_param *p, const gw_placement_rule *rules, int nrules) {
    for (int i = nrules; i-- > 0;)
        if (gw_str_glob(rules[i].pattern, p->name))
            return gw_str_eq(rules[i].dim, "none") ? "" : rules[i].dim;
    return gw_placement_default(p);
}

static gw_placement_fault look_at(const gw_placement_rule *rule, const gw_param *p) {
    if (gw_str_eq(rule->dim, "none")) return GW_PLACEMENT_FINE;
    if (strlen(rule->dim) >= sizeof p->type.dims[0].name || gw_type_find(&p->type, rule->dim) < 0)
        return GW_PLACEMENT_NO_DIM;
    if (gw_str_eq(rule->dim, "k")) return GW_PLACEMENT_HEAD;
    if (gw_str_eq(rule->dim, "e")) return GW_PLACEMENT_EXPERTS;
    return GW_PLACEMENT_FINE;
}

gw_placement_fault gw_placement_check(const gw_placement_rule *rule, const gw_param *params, int n,
                                      const gw_param **at) {
    gw_placement_fault fault = GW_PLACEMENT_NOTHING;
    *at = NULL;
    for (int i = 0; i < n; i++) {
        if (!gw_str_glob(rule->pattern, params[i].name)) continue;
        *at = &params[i];
        fault = look_at(rule, *at);
        if (fault != GW_PLACEMENT_FINE) break;
    }
    return fault;
}

/* ---- for people ---- */

/* "layers.12.mlp" -> "layers.*.mlp" */
static const char *without_numbers(const char *name, gw_arena *a) {
    char *out = gw_arena_strdup(a, name), *to = out;
    for (const char *c = name; *c;) {
        size_t digits = strspn(c, "0123456789");
        bool part = digits > 0 && (c == name || c[-1] == '.') && (c[digits] == '.' || !c[digits]);
        if (part) {
            *to++ = '*';
            c += digits;
        } else {
            *to++ = *c++;
        }
    }
    *to = 0;
    return out;
}

static const char *dims_text(const gw_type *t, gw_arena *a) {
    gw_str s = {0};
    for (int i = 0; i < t->ndim; i++)
        gw_str_printf(&s, "%s%.8s%lld", i ? " " : "", t->dims[i].name, (long long)t->dims[i].size);
    const char *text = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static void add_sizes(gw_placement_line *l, const gw_param *p, const gw_placement_cuts *cuts) {
    bool kv = gw_str_eq(l->cut, "g");
    if (cuts->experts > 0 && gw_type_find(&p->type, "e") >= 0) l->cut = "e";
    int64_t parts = kv ? cuts->kv : cuts->tp, in_tp = parts;
    if (gw_str_eq(l->cut, "e")) parts = cuts->experts, in_tp = cuts->experts_in_tp;
    int i = *l->cut && parts > 1 ? gw_type_find(&p->type, l->cut) : -1;
    l->copies = i < 0 ? cuts->tp : cuts->tp / in_tp;
    if (i < 0) {
        l->cut = "";
        return;
    }
    int64_t size = p->type.dims[i].size, each = (size + parts - 1) / parts;
    int64_t full = each > 0 ? size / each : 0, rest = size - full * each;
    l->most = each;
    l->least = full == parts ? each : rest;
    l->empty = (parts - full - (rest > 0)) * l->copies;
}

void gw_placement_lines(const gw_param *params, int n, const gw_placement_rule *rules, int nrules,
                        const gw_placement_cuts *cuts, gw_arena *a, gw_placement_line **out,
                        int *nlines) {
    gw_placement_line *all = gw_arena_new(a, gw_placement_line, n + 1);
    int count = 0;
    for (int i = 0; i < n; i++) {
        gw_placement_line l = {.names = without_numbers(params[i].name, a),
                               .dims = dims_text(&params[i].type, a),
                               .cut = gw_placement_of(&params[i], rules, nrules)};
        add_sizes(&l, &params[i], cuts);
        int k = count;
        while (k-- > 0)
            if (gw_str_eq(all[k].names, l.names) && gw_str_eq(all[k].dims, l.dims) &&
                gw_str_eq(all[k].cut, l.cut))
                break;
        if (k < 0) all[k = count++] = l;
        all[k].count++;
    }
    *out = all;
    *nlines = count;
}
