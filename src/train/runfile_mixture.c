// SPDX-License-Identifier: Apache-2.0
// Two values of a run file that are lists of maps: the sources of training data, and the stages of
// their mixture.
//
//     train: data/web                                  stages:
//     train:                                             - {tokens: 2e9, weights: [0.9, 0.1]}
//       - {path: data/web, weight: 0.8}                  - {weights: [0.5, 0.5]}
//       - {path: s3://bucket/code, weight: 0.2, epochs: 4}
//
// A text alone is a list of one. Weights are relative to each other; a source without one has 1.
// Of a stage the tokens say how long it lasts, and only the last has none. Everything wrong is told
// at its place.
#include <math.h>   /* isfinite */
#include <string.h> /* strcmp */

#include "train/runfile_key.h" /* gw_rf_key */

typedef struct place {
    const gw_rf_key *k;
    gw_where w;
    gw_diags *dg;
} place;

static place at(const place *p, int line, int column) {
    place q = *p;
    if (p->w.line > 0) q.w.line = line, q.w.column = column;
    return q;
}

static bool complain(const place *p, const char *id, const char *hint, const char *what) {
    gw_diag *g = gw_diag_add(p->dg, GW_ERROR, GW_ERR_CONFIG, id, p->w, "%s%s", p->k->path, what);
    if (hint) gw_diag_hint(p->dg, g, "%s", hint);
    return false;
}

static bool is_text(const gw_yaml_node *n) {
    return n->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(n) == GW_YAML_TEXT && *n->text;
}

static bool read_number(const gw_yaml_node *n, double *out) {
    gw_yaml_type t = n->kind == GW_YAML_SCALAR ? gw_yaml_scalar_type(n) : GW_YAML_NULL;
    if (t != GW_YAML_INT && t != GW_YAML_REAL) return false;
    *out = gw_yaml_real(n->text);
    return isfinite(*out) && *out >= 0;
}

/* A whole number, which may be written as 2e9. */
static bool read_whole(const gw_yaml_node *n, int64_t *out) {
    double x;
    if (n->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(n) == GW_YAML_INT)
        return gw_yaml_int(n->text, out) && *out >= 0;
    if (!read_number(n, &x) || x != floor(x) || x > 9e15) return false;
    *out = (int64_t)x;
    return true;
}

/* ---- sources ---- */

static bool read_member(const place *p, const gw_yaml_child *m, gw_rf_mixture_item *item) {
    place q = at(p, m->value->line, m->value->column);
    if (strcmp(m->key, "path") == 0) {
        item->path = m->value->text;
        return is_text(m->value) ||
               complain(&q, "config-type", NULL, ": path must be the name of a data set");
    }
    if (strcmp(m->key, "weight") == 0)
        return read_number(m->value, &item->weight) ||
               complain(&q, "config-type", NULL, ": weight must be a number from 0");
    if (strcmp(m->key, "epochs") == 0)
        return read_whole(m->value, &item->epochs) ||
               complain(&q, "config-type", NULL,
                        ": epochs must be an integer from 0 (0: as many as it takes)");
    q = at(p, m->line, m->column);
    gw_diag *g = gw_diag_add(q.dg, GW_ERROR, GW_ERR_CONFIG, "config-unknown-key", q.w,
                             "%s: a source has no '%.60s'", q.k->path, m->key);
    gw_diag_hint(q.dg, g, "a source has path, weight and epochs");
    return false;
}

static bool read_source(const place *p, const gw_yaml_node *n, gw_rf_mixture_item *item) {
    bool ok = true;
    *item = (gw_rf_mixture_item){.weight = 1};
    if (is_text(n)) {
        item->path = n->text;
        return true;
    }
    if (n->kind != GW_YAML_MAP)
        return complain(p, "config-type", "such as {path: data/web, weight: 0.7}",
                        ": a source is a name or a map");
    for (const gw_yaml_child *m = n->first; m; m = m->next) ok = read_member(p, m, item) && ok;
    if (ok && !item->path)
        return complain(p, "config-missing", "such as {path: data/web, weight: 0.7}",
                        ": a source has no path");
    return ok;
}

bool gw_rf_store_mixture(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                         gw_rf_mixture *field, gw_diags *dg) {
    place p = {k, w, dg};
    bool ok = true, list = n->kind == GW_YAML_LIST;
    int64_t count = 0;
    double sum = 0;
    if (n->kind == GW_YAML_SCALAR && n->quoted && !*n->text)
        return complain(&p, "config-value", "remove the line, or give a value",
                        " is an empty text");
    if (list && n->count == 0)
        return complain(&p, "config-value", "remove the line, or name a data set", " is empty");
    if (!list && !is_text(n) && n->kind != GW_YAML_MAP)
        return complain(&p, "config-type", "if it is a name, quote it",
                        " must be the name of a data set, or a list of sources");
    gw_rf_mixture_item *items =
        gw_arena_new(&rf->arena, gw_rf_mixture_item, list ? n->count : INT64_C(1));
    for (const gw_yaml_child *i = list ? n->first : NULL; i; i = i->next, count++) {
        place q = at(&p, i->value->line, i->value->column);
        ok = read_source(&q, i->value, &items[count]) && ok;
        sum += items[count].weight;
    }
    if (!list) ok = read_source(&p, n, &items[count]), sum = items[count++].weight;
    if (ok && sum <= 0)
        ok = complain(&p, "config-value", NULL, ": the weights of its sources are all 0");
    if (ok) *field = (gw_rf_mixture){items, count};
    return ok;
}

/* ---- stages ---- */

static bool read_weights(gw_runfile *rf, const place *p, const gw_yaml_node *n,
                         gw_rf_stage *stage) {
    double sum = 0;
    bool ok = n->kind == GW_YAML_LIST && n->count > 0;
    double *w = gw_arena_new(&rf->arena, double, n->count + 1);
    for (const gw_yaml_child *i = ok ? n->first : NULL; i; i = i->next) {
        ok = read_number(i->value, &w[stage->nweights]) && ok;
        sum += w[stage->nweights++];
    }
    stage->weights = w;
    return (ok && sum > 0) || complain(p, "config-type", "such as [0.7, 0.3]",
                                       ": weights must be a list of numbers from 0, not all 0");
}

static bool read_stage(gw_runfile *rf, const place *p, const gw_yaml_node *n, gw_rf_stage *s) {
    bool ok = true;
    *s = (gw_rf_stage){0};
    if (n->kind != GW_YAML_MAP)
        return complain(p, "config-type", "such as {tokens: 2e9, weights: [0.7, 0.3]}",
                        ": a stage is a map of tokens and weights");
    for (const gw_yaml_child *m = n->first; m; m = m->next) {
        place q = at(p, m->value->line, m->value->column);
        if (strcmp(m->key, "weights") == 0)
            ok = read_weights(rf, &q, m->value, s) && ok;
        else if (strcmp(m->key, "tokens") != 0)
            ok = complain(&q, "config-unknown-key", "a stage has tokens and weights",
                          ": a stage has another key");
        else if (!read_whole(m->value, &s->tokens) || s->tokens < 1)
            ok = complain(&q, "config-type", NULL, ": tokens must be an integer from 1");
    }
    if (ok && !s->weights) return complain(p, "config-missing", NULL, ": a stage has no weights");
    return ok;
}

bool gw_rf_store_stages(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                        gw_rf_stages *field, gw_diags *dg) {
    place p = {k, w, dg};
    bool ok = true;
    int64_t count = 0;
    if (n->kind != GW_YAML_LIST)
        return complain(&p, "config-type", "such as [{tokens: 2e9, weights: [0.7, 0.3]}, ...]",
                        " must be a list of stages");
    gw_rf_stage *items = gw_arena_new(&rf->arena, gw_rf_stage, n->count + 1);
    for (const gw_yaml_child *i = n->first; i; i = i->next, count++) {
        place q = at(&p, i->value->line, i->value->column);
        ok = read_stage(rf, &q, i->value, &items[count]) && ok;
        if (ok && i->next && items[count].tokens == 0)
            ok = complain(&q, "config-missing", NULL, ": every stage but the last needs tokens");
        if (ok && !i->next && items[count].tokens > 0)
            ok = complain(&q, "config-value", "leave its tokens out",
                          ": the last stage lasts to the end of the run");
    }
    if (ok) *field = (gw_rf_stages){items, count};
    return ok;
}

/* ---- and back ---- */

void gw_rf_add_mixture(gw_str *out, const gw_rf_mixture *m, bool json) {
    bool plain = m->count == 1 && m->items[0].weight == 1 && m->items[0].epochs == 0;
    if (plain || m->count == 0) {
        if (m->count == 0)
            gw_str_add(out, json ? "null" : "");
        else
            gw_rf_add_text(out, m->items[0].path, json);
        return;
    }
    for (int64_t i = 0; i < m->count; i++) {
        gw_str_add(out, i ? ", {\"path\": " : "[{\"path\": ");
        gw_rf_add_json_string(out, m->items[i].path);
        gw_str_add(out, ", \"weight\": ");
        gw_rf_add_real(out, m->items[i].weight);
        if (m->items[i].epochs > 0)
            gw_str_printf(out, ", \"epochs\": %lld", (long long)m->items[i].epochs);
        gw_str_add_char(out, '}');
    }
    gw_str_add_char(out, ']');
}

void gw_rf_add_stages(gw_str *out, const gw_rf_stages *s) {
    gw_str_add_char(out, '[');
    for (int64_t i = 0; i < s->count; i++) {
        gw_str_add(out, i ? ", {" : "{");
        if (s->items[i].tokens > 0)
            gw_str_printf(out, "\"tokens\": %lld, ", (long long)s->items[i].tokens);
        gw_str_add(out, "\"weights\": [");
        for (int64_t k = 0; k < s->items[i].nweights; k++) {
            if (k) gw_str_add(out, ", ");
            gw_rf_add_real(out, s->items[i].weights[k]);
        }
        gw_str_add(out, "]}");
    }
    gw_str_add_char(out, ']');
}

/* ---- what hangs together ---- */

void gw_rf_check_data(const gw_runfile *rf, gw_diags *dg) {
    const gw_rf_stages *s = &rf->data.stages;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->items[i].nweights == rf->data.train.count) continue;
        gw_diag *g = gw_runfile_error(rf, dg, "data.stages", "config-value",
                                      "data.stages: stage %lld has %lld weights; data.train has "
                                      "%lld sources",
                                      (long long)(i + 1), (long long)s->items[i].nweights,
                                      (long long)rf->data.train.count);
        gw_diag_hint(dg, g, "give each stage a weight for every source, in their order");
        return;
    }
    if (rf->data.packing == GW_RF_PACKING_BEST_FIT && rf->data.pack &&
        rf->data.shuffle == GW_RF_SHUFFLE_DOCUMENTS) {
        gw_diag *g = gw_runfile_error(
            rf, dg, "data.shuffle", "config-value",
            "data.shuffle is documents, and best-fit rows are made block by block");
        gw_diag_hint(dg, g, "set data.shuffle to blocks, or data.packing to contiguous");
    }
}
