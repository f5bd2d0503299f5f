// SPDX-License-Identifier: Apache-2.0
// From a topic and what somebody states to figures.
//
// Variables are of three kinds and share one table: a topic's own inputs, figures of the model
// (counted from its list of parameters, never typed in), and lines that are already computed.
// Three figures of a model are dimensions that can be changed, L, kv and V: the model is counted
// again, and the programs compiled are those of the changed model. Any other figure that is stated
// instead of counted (N=7e9) belongs to no program, and then none is compiled.
#include "plan/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_str */

#define GW_EXPLAIN_TOPIC(name) extern const gw_explain_topic gw_explain_##name;
#include "plan/explain_topics.def"
#undef GW_EXPLAIN_TOPIC

static const gw_explain_topic *const topics[] = {
#define GW_EXPLAIN_TOPIC(name) &gw_explain_##name,
#include "plan/explain_topics.def"
#undef GW_EXPLAIN_TOPIC
};

const gw_explain_topic *gw_explain_topic_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(topics) ? topics[i] : NULL;
}

const gw_explain_topic *gw_explain_topic_find(const char *name) {
    for (size_t i = 0; i < GW_COUNT(topics); i++)
        if (strcmp(topics[i]->name, name) == 0) return topics[i];
    return NULL;
}

/* ---- figures of a model ---- */

/* Linear layers of blocks: elements, and sums of their sides. */
typedef struct linears {
    double elems, in_out, out, qv_in_out;
} linears;

static bool is_linear(const gw_param *p) {
    return p->rows > 0 && p->type.ndim > p->rows && strncmp(p->name, "layers.", 7) == 0;
}

static linears count_linears(const gw_param *params, int n) {
    linears l = {0};
    for (int i = 0; i < n; i++) {
        const gw_type *t = &params[i].type;
        double in = 1, out = 1;
        if (!is_linear(&params[i])) continue;
        for (int d = 0; d < t->ndim; d++)
            *(d < params[i].rows ? &out : &in) *= (double)t->dims[d].size;
        l.elems += in * out;
        l.in_out += in + out;
        l.out += out;
        if (strstr(params[i].name, ".attn.q.") || strstr(params[i].name, ".attn.v."))
            l.qv_in_out += in + out;
    }
    return l;
}

/* Buckets as PyTorch's DDP makes them: whole parameters in reverse order, closed once they hold the
 * cap, the first at 1 MiB (Li et al. 2020, section 3.2.3). Caps of 25 MiB, 2 bytes an element. */
static double count_buckets(const gw_param *params, int n, double *largest) {
    double held = 0, cap = 1 << 20, buckets = 0;
    *largest = 0;
    for (int i = n - 1; i >= 0; i--) {
        held += 2 * (double)gw_type_elems(&params[i].type);
        if (held < cap && i > 0) continue;
        *largest = fmax(*largest, held);
        buckets++;
        held = 0;
        cap = 25 << 20;
    }
    return buckets;
}

static void put(gw_explain *e, const char *name, const char *unit, const char *doc, double value) {
    gw_explain_variable *v = gw_explain_variable_find(e, name, strlen(name));
    if (!v) {
        GW_ASSERT(e->nvariables < GW_EXPLAIN_VARIABLES);
        v = &e->variables[e->nvariables++];
    } else if (!v->of_model || v->stated) {
        return; /* the topic's own input of that name, or what was stated, stands */
    }
    const char *from = v->from ? v->from : gw_arena_printf(&e->mem, "of %s", e->preset);
    *v = (gw_explain_variable){.name = name,
                               .unit = unit,
                               .doc = doc,
                               .from = from, /* of a dimension that was changed: stated */
                               .value = value,
                               .of_model = true};
}

static void put_model(gw_explain *e) {
    const gw_model *m = &e->model;
    gw_param *params;
    int n;
    double largest;
    gw_model_params(m, &e->mem, &params, &n);
    linears l = count_linears(params, n);
    double N = (double)gw_model_count(m), ends = (double)(m->vocab * m->hidden * (m->tie ? 1 : 2));
    put(e, "N", "params", "parameters, each once", N);
    put(e, "Nactive", "params", "of these, what one token goes through",
        (double)gw_model_count_active(m));
    put(e, "Nlookup", "params", "of these, tables that are only looked up",
        (double)gw_model_count_embedding(m));
    put(e, "ends", "params", "of these, embedding and head", ends);
    put(e, "L", "", "layers", (double)m->layers);
    put(e, "h", "", "hidden size", (double)m->hidden);
    put(e, "heads", "", "attention heads", (double)m->heads);
    put(e, "kv", "", "key and value heads", (double)m->kv_heads);
    put(e, "hd", "", "size of a head", (double)m->head_dim);
    put(e, "f", "", "feed-forward size", (double)m->ffn);
    put(e, "V", "", "vocabulary", (double)m->vocab);
    put(e, "top", "", "experts that a token goes to", (double)m->moe.top);
    put(e, "E", "", "experts of a layer", (double)m->moe.experts);
    put(e, "linear", "params", "of these, matrices of blocks", l.elems);
    put(e, "inout", "", "sum of in + out over the matrices of blocks", l.in_out);
    put(e, "out", "", "sum of out over them", l.out);
    put(e, "qv", "", "sum of in + out over q and v alone", l.qv_in_out);
    put(e, "buckets", "", "whole parameters in reverse order, bf16, 25 MiB a bucket, first 1 MiB",
        count_buckets(params, n, &largest));
    put(e, "bucket_most", "B", "the largest of them", largest);
}

/* ---- what is stated ---- */

static gw_status unknown_preset(const char *preset, gw_diags *dg) {
    gw_str all = {0};
    const char *name;
    for (int i = 0; (name = gw_model_preset_name(i)) != NULL; i++)
        gw_str_printf(&all, "%s%s", i ? ", " : "", name);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "model-preset", (gw_where){0},
                             "'%.80s' is no preset", preset);
    gw_diag_hint(dg, g, "presets: %s", gw_str_c(&all));
    gw_str_release(&all);
    return GW_ERR_CONFIG;
}

gw_status gw_explain_init(gw_explain *e, const gw_explain_topic *t, const char *preset,
                          gw_explain_compiler c, gw_diags *dg) {
    memset(e, 0, sizeof *e);
    e->topic = t;
    e->compiler = c;
    e->preset = preset ? preset : t->model;
    if (preset && !t->model)
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input", "%s is about no model: --model %.80s",
                       t->name, preset);
    if (e->preset && !gw_model_preset(e->preset, &e->model)) return unknown_preset(e->preset, dg);
    if (e->preset && e->model.family == GW_FAMILY_RESNET)
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input",
                       "%s is a net for images; topics are about language models", e->preset);
    for (int i = 0; i < t->ninputs; i++) {
        const gw_explain_input *in = &t->inputs[i];
        e->variables[e->nvariables++] =
            (gw_explain_variable){.name = in->name,
                                  .unit = in->unit,
                                  .doc = in->doc,
                                  .from = in->from ? in->from : "an example",
                                  .value = in->value,
                                  .whole = in->whole,
                                  .zero = in->zero};
    }
    if (e->preset) put_model(e);
    return GW_OK;
}

void gw_explain_release(gw_explain *e) { gw_arena_release(&e->mem); }

static bool read_number(const char *text, double *out) {
    static const char *const units[] = {"", "B", "B/s", "FLOP/s", "FLOP", "params", "tokens", "s"};
    static const char prefixes[] = "kMGTP";
    char *end;
    if (!strchr("0123456789.", *text) || !*text) return false;
    *out = strtod(text, &end);
    if (strcmp(end, "%") == 0) {
        *out /= 100;
        return isfinite(*out);
    }
    const char *p = *end ? strchr(prefixes, *end) : NULL;
    for (int i = 0; p && i <= (int)(p - prefixes); i++) *out *= 1000;
    if (p) end++;
    for (size_t i = 0; i < GW_COUNT(units); i++)
        if (strcmp(end, units[i]) == 0) return isfinite(*out);
    return false;
}

static gw_status unknown_input(const gw_explain *e, const char *text, gw_diags *dg) {
    gw_str all = {0};
    for (int i = 0; i < e->nvariables; i++)
        gw_str_printf(&all, "%s%s", i ? ", " : "", e->variables[i].name);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "explain-input", (gw_where){0},
                             "'%.80s' is no input of %s", text, e->topic->name);
    gw_diag_hint(dg, g, "inputs are NAME=VALUE: %s", gw_str_c(&all));
    gw_str_release(&all);
    return GW_ERR_USAGE;
}

static int64_t *dimension(gw_model *m, const char *name) {
    return strcmp(name, "L") == 0    ? &m->layers
           : strcmp(name, "kv") == 0 ? &m->kv_heads
           : strcmp(name, "V") == 0  ? &m->vocab
                                     : NULL;
}

static gw_status set_of_model(gw_explain *e, gw_explain_variable *v, double x, gw_diags *dg) {
    int64_t *d = dimension(&e->model, v->name);
    if (!d) {
        v->value = x;
        v->stated = true;
        v->from = "stated";
        e->detached = gw_arena_printf(&e->mem, "%s is stated, no program has it", v->name);
        return GW_OK;
    }
    if (x != floor(x) || x < 1 || x > 1 << 24)
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input", "%s takes an integer from 1 on, not %g",
                       v->name, x);
    *d = (int64_t)x;
    GW_TRY(gw_model_check(&e->model, dg));
    put_model(e);
    v->from = "stated";
    return GW_OK;
}

gw_status gw_explain_set(gw_explain *e, const char *text, gw_diags *dg) {
    const char *eq = strchr(text, '=');
    gw_explain_variable *v = eq ? gw_explain_variable_find(e, text, (size_t)(eq - text)) : NULL;
    double x;
    if (!v) return unknown_input(e, text, dg);
    if (!read_number(eq + 1, &x))
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input",
                       "%s takes a number such as 16, 7e9, 80GB or 40%%, not '%.80s'", v->name,
                       eq + 1);
    if (x == 0 && !v->zero)
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input", "%s is above 0", v->name);
    if (v->of_model) return set_of_model(e, v, x, dg);
    if (v->whole && (x != floor(x) || x > 9e15))
        return GW_FAIL(dg, GW_ERR_USAGE, "explain-input", "%s is a whole number, not %g", v->name,
                       x);
    v->value = x;
    v->stated = true;
    v->from = "stated";
    return GW_OK;
}

void gw_explain_default(gw_explain *e, const char *name, double value, const char *from) {
    gw_explain_variable *v = gw_explain_variable_find(e, name, strlen(name));
    if (!v || v->of_model || v->stated || !(value > 0)) return;
    v->value = value;
    v->from = from;
}

/* ---- figures ---- */

static void compute(gw_explain *e, const gw_explain_line *l) {
    GW_ASSERT(e->nresults < GW_EXPLAIN_LINES && e->nvariables < GW_EXPLAIN_VARIABLES);
    gw_explain_result *r = &e->results[e->nresults++];
    *r = (gw_explain_result){.line = l,
                             .substituted = gw_explain_substitute(e, l->formula),
                             .value = gw_explain_eval(e, l->formula),
                             .agrees = true};
    e->variables[e->nvariables++] = (gw_explain_variable){
        .name = l->key, .unit = l->unit, .doc = l->what, .from = "computed", .value = r->value};
    if (l->read == GW_READ_NONE) return;
    if (e->detached)
        r->missing = e->detached;
    else
        gw_explain_read_program(e, r);
    if (r->compiled)
        r->agrees = fabs(r->program - r->value) <= fmax(l->within, 1e-12) * fabs(r->value);
}

gw_status gw_explain_run(gw_explain *e, gw_diags *dg) {
    gw_status st = GW_OK;
    char a[96], b[96];
    for (int i = 0; i < e->topic->nlines; i++) compute(e, &e->topic->lines[i]);
    for (int i = 0; i < e->nresults; i++) {
        const gw_explain_result *r = &e->results[i];
        if (r->agrees) continue;
        st =
            GW_FAIL(dg, GW_ERR_NUMERIC, "explain-differs", "%s: %s by formula, %s from the program",
                    r->line->what, gw_explain_format(a, r->value, r->line->unit),
                    gw_explain_format(b, r->program, r->line->unit));
    }
    return st;
}

const gw_explain_result *gw_explain_result_find(const gw_explain *e, const char *key) {
    for (int i = 0; i < e->nresults; i++)
        if (strcmp(e->results[i].line->key, key) == 0) return &e->results[i];
    return NULL;
}
