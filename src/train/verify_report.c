// SPDX-License-Identifier: Apache-2.0
// What verify found, for people and for machines.
//
// People get a line for each oracle, then for each pass its verdict and the worst tensors: those
// that disagree, worst first, with what explains them. Machines get everything.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/term.h"    /* gw_table */
#include "train/verify.h" /* this module's contract */

const char *gw_verify_kind_name(gw_verify_kind k) {
    switch (k) {
    case GW_VERIFY_LOSS: return "loss";
    case GW_VERIFY_NORM: return "norm";
    case GW_VERIFY_GRADIENT: return "gradient";
    case GW_VERIFY_MOMENT: return "moment";
    case GW_VERIFY_STATE: return "state";
    case GW_VERIFY_PARAMETER: return "parameter";
    case GW_VERIFY_KIND_COUNT: break;
    }
    return "?";
}

/* One rank has no layout to be wrong. */
static const char one_rank[] =
    "one rank: there is no layout to compare; shown is only that two runs of it agree "
    "(--ranks N compares N)";

/* ---- order ---- */

static double excess(const gw_verify_tensor *t) {
    if (!isfinite(t->difference)) return (double)INFINITY;
    return t->bound > 0 ? t->difference / t->bound : t->difference;
}

static int worst_first(const void *a, const void *b) {
    const gw_verify_tensor *x = *(const gw_verify_tensor *const *)a,
                           *y = *(const gw_verify_tensor *const *)b;
    double p = excess(x), q = excess(y);
    if (p != q) return p < q ? 1 : -1;
    return (int)x->kind != (int)y->kind ? (int)x->kind - (int)y->kind : strcmp(x->name, y->name);
}

static const gw_verify_tensor **sorted(const gw_verify_pass *p) {
    const gw_verify_tensor **all = gw_mem_alloc(sizeof *all * (size_t)(p->ntensors + 1));
    for (int64_t i = 0; i < p->ntensors; i++) all[i] = &p->tensors[i];
    qsort(all, (size_t)p->ntensors, sizeof *all, worst_first);
    return all;
}

/* ---- for people ---- */

static void print_rows(const gw_verify_tensor *const *all, int64_t n, FILE *out) {
    gw_table *t = gw_table_new("llrrrl");
    gw_table_row(t, "kind", "tensor", "step", "difference", "bound", "explained by");
    for (int64_t i = 0; i < n; i++) {
        char step[24], difference[24], bound[24];
        snprintf(step, sizeof step, "%lld", (long long)all[i]->step);
        snprintf(difference, sizeof difference, "%.3g", all[i]->difference);
        snprintf(bound, sizeof bound, "%.3g", all[i]->bound);
        gw_table_row(t, gw_verify_kind_name(all[i]->kind), all[i]->name, step, difference, bound,
                     all[i]->why[0] ? all[i]->why : "-");
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

/* "gradient wte.weight", "loss". */
static void print_what(const gw_verify_tensor *t, FILE *out) {
    bool alone = t->kind == GW_VERIFY_LOSS || t->kind == GW_VERIFY_NORM;
    fputs(gw_verify_kind_name(t->kind), out);
    if (!alone) fprintf(out, " %s", t->name);
}

static void print_agreement(const gw_verify_pass *p, const gw_verify_tensor *const *all,
                            FILE *out) {
    int64_t judged = p->ntensors - p->coarse, worst = 0;
    if (judged == 0) return;
    fprintf(out, "%s: all %lld tensors agree", p->precision, (long long)judged);
    while (worst < p->ntensors && all[worst]->coarse) worst++;
    if (p->max_difference == 0) {
        fputs(" exactly", out);
    } else if (judged > 0) {
        fputs("; the worst is ", out);
        print_what(all[worst], out);
        fprintf(out, ": %.2g of %.2g allowed", all[worst]->difference, all[worst]->bound);
    }
    fputc('\n', out);
}

static void print_coarse(const gw_verify_pass *p, FILE *out) {
    if (p->coarse == 0) return;
    fprintf(
        out,
        "%s: %lld of %lld tensors not judged: rounding and wires alone may change half of them\n",
        p->precision, (long long)p->coarse, (long long)p->ntensors);
}

static void print_pass(const gw_verify_pass *p, int64_t most, FILE *out) {
    const gw_verify_tensor **all = sorted(p);
    int64_t bad = 0;
    while (bad < p->ntensors && !all[bad]->agrees) bad++;
    if (bad == 0) {
        print_agreement(p, all, out);
    } else {
        int64_t n = most > 0 && most < bad ? most : bad;
        fprintf(out, "%s: %lld of %lld tensors DISAGREE\n", p->precision, (long long)bad,
                (long long)p->ntensors);
        print_rows(all, n, out);
        if (n < bad) fprintf(out, "  and %lld more; --json has all\n", (long long)(bad - n));
        if (p->where[0]) fprintf(out, "  %s\n", p->where);
    }
    print_coarse(p, out);
    gw_mem_free(all);
}

void gw_verify_print(const gw_verify_result *r, int64_t most, FILE *out) {
    fprintf(out, "%s against %s, %lld steps, %s%s\n", r->layout,
            r->ranks > 1 ? "one rank" : "itself", (long long)r->steps, r->optimizer,
            r->made_up_data ? ", made-up data" : "");
    if (r->ranks == 1) fprintf(out, "%s\n", one_rank);
    for (int i = 0; i < r->nchecks; i++)
        fprintf(out, "%s: %s%s\n", r->checks[i].name,
                r->checks[i].ok ? "" : "FAILS: ", r->checks[i].text);
    for (int i = 0; i < r->npasses; i++) print_pass(&r->pass[i], most, out);
    if (r->nexpected > 0)
        fprintf(out, "expected: %d ops depend on the batch, first %s: %s\n", r->nexpected,
                r->expected[0][0], r->expected[0][1]);
    if (isfinite(r->batch_loss[1]))
        fprintf(
            out,
            "          in the first step loss %.4f and gradient norm %.4g; over the whole batch "
            "at once %.4f and %.4g\n",
            r->batch_loss[0], r->batch_norm[0], r->batch_loss[1], r->batch_norm[1]);
    fprintf(out, "%s\n", r->ok ? "pass" : "FAIL");
}

/* ---- for machines ---- */

/* JSON has no infinities. */
static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *tensor_json(const gw_verify_pass *p, const gw_verify_tensor *t) {
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(t->name));
    json_object_set_new(j, "kind", json_string(gw_verify_kind_name(t->kind)));
    json_object_set_new(j, "precision", json_string(p->precision));
    json_object_set_new(j, "step", json_integer(t->step));
    json_object_set_new(j, "relative_difference", real(t->difference));
    json_object_set_new(j, "bound", real(t->bound));
    json_object_set_new(j, "factor", t->why[0] ? json_string(t->why) : json_null());
    json_object_set_new(j, "factor_value", real(t->factor));
    json_object_set_new(j, "agrees", json_boolean(t->agrees));
    json_object_set_new(j, "judged", json_boolean(!t->coarse));
    return j;
}

static json_t *tensors_json(const gw_verify_result *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->npasses; i++) {
        const gw_verify_tensor **all = sorted(&r->pass[i]);
        for (int64_t k = 0; k < r->pass[i].ntensors; k++)
            json_array_append_new(list, tensor_json(&r->pass[i], all[k]));
        gw_mem_free(all);
    }
    return list;
}

static json_t *passes_json(const gw_verify_result *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->npasses; i++) {
        json_t *j = json_object();
        json_object_set_new(j, "precision", json_string(r->pass[i].precision));
        json_object_set_new(j, "pass", json_boolean(r->pass[i].ok));
        json_object_set_new(j, "max_relative_difference", real(r->pass[i].max_difference));
        json_object_set_new(j, "not_judged", json_integer(r->pass[i].coarse));
        const char *where = r->pass[i].where;
        json_object_set_new(j, "where", where[0] ? json_string(where) : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *pairs_json(const gw_verify_result *r, bool checks) {
    json_t *list = json_array();
    for (int i = 0; i < (checks ? r->nchecks : r->nexpected); i++) {
        json_t *j = json_object();
        json_object_set_new(j, checks ? "name" : "op",
                            json_string(checks ? r->checks[i].name : r->expected[i][0]));
        json_object_set_new(j, checks ? "text" : "why",
                            json_string(checks ? r->checks[i].text : r->expected[i][1]));
        if (checks) json_object_set_new(j, "pass", json_boolean(r->checks[i].ok));
        json_array_append_new(list, j);
    }
    return list;
}

json_t *gw_verify_json(const gw_verify_result *r) {
    json_t *j = json_object();
    double most = 0;
    for (int i = 0; i < r->npasses; i++) most = GW_MAX(most, r->pass[i].max_difference);
    json_object_set_new(j, "pass", json_boolean(r->ok));
    json_object_set_new(j, "max_relative_difference", real(most));
    json_object_set_new(j, "layout", json_string(r->layout));
    json_object_set_new(j, "ranks", json_integer(r->ranks));
    json_object_set_new(j, "note", r->ranks == 1 ? json_string(one_rank) : json_null());
    json_object_set_new(j, "steps", json_integer(r->steps));
    json_object_set_new(j, "optimizer", json_string(r->optimizer));
    json_object_set_new(j, "made_up_data", json_boolean(r->made_up_data));
    json_object_set_new(j, "passes", passes_json(r));
    json_object_set_new(j, "checks", pairs_json(r, true));
    json_object_set_new(j, "expected", pairs_json(r, false));
    if (isfinite(r->batch_loss[1]))
        json_object_set_new(j, "whole_batch",
                            json_pack("{s:f, s:f, s:f, s:f}", "loss", r->batch_loss[0],
                                      "loss_over_all", r->batch_loss[1], "grad_norm",
                                      r->batch_norm[0], "grad_norm_over_all", r->batch_norm[1]));
    json_object_set_new(j, "tensors", tensors_json(r));
    return j;
}
