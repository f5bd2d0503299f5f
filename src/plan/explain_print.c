// SPDX-License-Identifier: Apache-2.0
// Explanations for people and for scripts.
//
// Inputs that no formula of the topic reads are left out. A figure has the field's unit (GB is 1e9
// bytes) and, of bytes, the exact count beside it; a share is printed in percent.
#include <math.h>
#include <string.h>

#include "base/str.h"  /* gw_fmt_count */
#include "base/term.h" /* gw_table */
#include "plan/explain.h"

static bool is_scaled(const char *unit) {
    return strncmp(unit, "B", 1) == 0 || strncmp(unit, "FLOP", 4) == 0 ||
           strncmp(unit, "bit/s", 5) == 0;
}

static void format_scaled(char *buf, double x, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
    int p = 0;
    double y = x;
    for (; fabs(y) >= 999.995 && p + 1 < (int)GW_COUNT(prefixes); p++) y /= 1000;
    int n = snprintf(buf, 96, p || y != floor(y) ? "%.2f %s%s" : "%.0f %s%s", y, prefixes[p], unit);
    if (strcmp(unit, "B") == 0 && p > 0 && x < 9e15 && x == floor(x))
        snprintf(buf + n, (size_t)(96 - n), " = %s B", gw_fmt_count((char[40]){0}, (int64_t)x));
}

char *gw_explain_format(char *buf, double x, const char *unit) {
    const char *space = *unit ? " " : "";
    if (!isfinite(x))
        snprintf(buf, 96, isinf(x) ? "inf" : "-");
    else if (strcmp(unit, "%") == 0)
        snprintf(buf, 96, fabs(x) < 0.01 ? "%.4f %%" : "%.2f %%", x * 100);
    else if (is_scaled(unit))
        format_scaled(buf, x, unit);
    else if (strcmp(unit, "s") == 0)
        snprintf(buf, 96,
                 fabs(x) < 1e-3 ? "%.4g us"
                 : fabs(x) < 1  ? "%.4g ms"
                                : "%.4g s",
                 fabs(x) < 1e-3 ? x * 1e6
                 : fabs(x) < 1  ? x * 1e3
                                : x);
    else if (x == floor(x) && fabs(x) < 9e15)
        snprintf(buf, 96, "%s%s%s", gw_fmt_count((char[40]){0}, (int64_t)x), space, unit);
    else
        snprintf(buf, 96, "%.5g%s%s", x, space, unit);
    return buf;
}

#define FORMAT(x, unit) gw_explain_format((char[96]){0}, (x), (unit))

static bool shown(const gw_explain_variable *v) {
    if (strcmp(v->from, "computed") == 0) return false;
    return v->used || !v->of_model || v->stated;
}

static void print_inputs(const gw_explain *e, FILE *out) {
    gw_table *t = gw_table_new("lrll");
    gw_table_row(t, "input", "value", "what", "from");
    for (int i = 0; i < e->nvariables; i++) {
        const gw_explain_variable *v = &e->variables[i];
        if (shown(v)) gw_table_row(t, v->name, FORMAT(v->value, v->unit), v->doc, v->from);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

static void print_program(const gw_explain_result *r, FILE *out) {
    const gw_explain_line *l = r->line;
    if (l->read == GW_READ_NONE) return;
    if (!r->compiled) {
        fprintf(out, "    from the program: none, %s\n", r->missing);
        return;
    }
    fprintf(out, "    from the program: %s, %s\n", FORMAT(r->program, l->unit),
            !r->agrees                            ? "DIFFERS"
            : r->program == r->value              ? "the same"
            : l->within > 0 && l->differs != NULL ? l->differs
                                                  : "the same but for rounding");
    fprintf(out, "      %s\n", r->from);
}

static void print_result(const gw_explain_result *r, FILE *out) {
    const gw_explain_line *l = r->line;
    fprintf(out, "\n  %s\n    %s = %s\n", l->what, l->key, l->formula);
    if (strcmp(l->formula, r->substituted) != 0) fprintf(out, "    = %s\n", r->substituted);
    fprintf(out, "    = %s\n", FORMAT(r->value, l->unit));
    print_program(r, out);
    if (l->assumes) fprintf(out, "    holds if: %s\n", l->assumes);
    if (l->source) fprintf(out, "    source: %s\n", l->source);
}

void gw_explain_print(const gw_explain *e, FILE *out) {
    fprintf(out, "%s: %s", e->topic->name, e->topic->doc);
    if (e->preset) fprintf(out, " (%s)", e->preset);
    fputs("\n\n", out);
    print_inputs(e, out);
    for (int i = 0; i < e->nresults; i++) print_result(&e->results[i], out);
    if (e->topic->claims && e->topic->claims[0]) fprintf(out, "\n  what is usually said\n");
    for (int i = 0; e->topic->claims && e->topic->claims[i]; i++)
        fprintf(out, "    - %s\n", e->topic->claims[i]);
}

static json_t *text_or_null(const char *s) { return s ? json_string(s) : json_null(); }

static json_t *number_or_null(bool known, double x) {
    return !known || !isfinite(x)            ? json_null()
           : x == floor(x) && fabs(x) < 9e15 ? json_integer((json_int_t)x)
                                             : json_real(x);
}

static json_t *result_json(const gw_explain_result *r) {
    const gw_explain_line *l = r->line;
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s}", "key", l->key, "what", l->what, "formula",
                          l->formula, "substituted", r->substituted, "unit", l->unit);
    json_object_set_new(j, "value", number_or_null(true, r->value));
    json_object_set_new(j, "source", text_or_null(l->source));
    json_object_set_new(j, "holds_if", text_or_null(l->assumes));
    if (l->read == GW_READ_NONE) return j;
    json_object_set_new(j, "from_the_program", number_or_null(r->compiled, r->program));
    json_object_set_new(j, "program", text_or_null(r->from));
    json_object_set_new(j, "why_none", text_or_null(r->missing));
    json_object_set_new(j, "agrees", r->compiled ? json_boolean(r->agrees) : json_null());
    json_object_set_new(j, "within", json_real(l->within));
    return j;
}

json_t *gw_explain_json(const gw_explain *e) {
    json_t *inputs = json_array(), *lines = json_array(), *claims = json_array();
    for (int i = 0; i < e->nvariables; i++) {
        const gw_explain_variable *v = &e->variables[i];
        if (!shown(v)) continue;
        json_t *j = json_pack("{s:s, s:s, s:s, s:s}", "name", v->name, "unit", v->unit, "doc",
                              v->doc, "from", v->from);
        json_object_set_new(j, "value", number_or_null(true, v->value));
        json_array_append_new(inputs, j);
    }
    for (int i = 0; i < e->nresults; i++) json_array_append_new(lines, result_json(&e->results[i]));
    for (int i = 0; e->topic->claims && e->topic->claims[i]; i++)
        json_array_append_new(claims, json_string(e->topic->claims[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "topic", e->topic->name, "doc",
                     e->topic->doc, "model", text_or_null(e->preset), "inputs", inputs, "lines",
                     lines, "claims", claims);
}
