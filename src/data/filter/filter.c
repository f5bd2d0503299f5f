// SPDX-License-Identifier: Apache-2.0
// The list of filters, and a pipeline's own list of them: reading it, running it, deciding.
//
// A pipeline names filters and may change parameters. All faults of the list are reported at once
// with their lines. Values live in the handle; a text of all of them goes into manifests, and a
// second one of those that shape columns or text, so that a later run can tell whether stored
// columns still serve.
//
// Running measures by every filter, also behind the one that removes the document: thresholds may
// be moved later, and then the columns behind it are needed. Who will not move them can stop there.
// Deciding asks columns only, so deciding again from stored columns gives the same verdict as
// running did.
#include "data/filter/filter.h" /* gw_filters */

#include <stdio.h>
#include <string.h>

#include "base/arena.h"              /* gw_arena */
#include "data/filter/filter_impl.h" /* gw_filter_desc, filters.def */

static const gw_filter_desc *const all[] = {
#define GW_FILTER(desc) &desc,
#include "data/filter/filters.def"
#undef GW_FILTER
};

const gw_filter_desc *const *gw_filter_list(int *count) {
    *count = FILTER_COUNT(all);
    return all;
}

const gw_filter_desc *gw_filter_find(const char *name) {
    for (int i = 0; i < FILTER_COUNT(all); i++)
        if (!strcmp(all[i]->name, name)) return all[i];
    return NULL;
}

gw_status filter_open_none(const gw_filter_args *a, void **state, gw_diags *dg) {
    (void)a;
    (void)dg;
    *state = NULL;
    return GW_OK;
}
void filter_close_none(void *state) { (void)state; }

gw_status filter_open_splitter(const char *language, void **state, gw_diags *dg) {
    gw_splitter kind, *own;
    *state = NULL;
    GW_TRY(gw_splitter_for_language(language, &kind, dg));
    own = gw_mem_zalloc(sizeof *own);
    *own = kind;
    *state = own;
    return GW_OK;
}
void filter_close_memory(void *state) { gw_mem_free(state); }
void filter_measure_none(struct gw_measure *m, const gw_filter_args *a, void *state,
                         double *columns) {
    (void)m;
    (void)a;
    (void)state;
    (void)columns;
}

typedef struct entry {
    const gw_filter_desc *desc;
    gw_filter_args args;
    void *state;
    bool opened;
    int first_column;
} entry;

struct gw_filters {
    gw_arena arena;
    entry *entries;
    int count, columns;
    const char **names;
    gw_str text, measured;
    bool until_removed;
    gw_measure measure;
};

static gw_status refuse(gw_diags *dg, const char *id, const char *file, int line, int column,
                        const char *what, const char *hint) {
    gw_status s = gw_fail_at(dg, GW_ERR_CONFIG, id, (gw_where){file, line, column}, "%s", what);
    if (hint && dg && dg->last) gw_diag_hint(dg, dg->last, "%s", hint);
    return s;
}

/* The nearest name of a filter, for a hint. */
static const gw_filter_desc *nearest(const char *name) {
    const gw_filter_desc *best = NULL;
    int least = 8;
    for (int i = 0; i < FILTER_COUNT(all); i++) {
        int d = gw_str_distance(name, all[i]->name);
        if (d < least) {
            least = d;
            best = all[i];
        }
    }
    return best;
}

static gw_status set_number(const gw_filter_param *p, const gw_yaml_node *v, double *out) {
    if (v->kind != GW_YAML_SCALAR || v->quoted) return GW_ERR_CONFIG;
    bool yes = !strcmp(v->text, "true"), no = !strcmp(v->text, "false");
    if (p->type == GW_PARAM_FLAG) {
        *out = yes;
        return yes || no ? GW_OK : GW_ERR_CONFIG;
    }
    if (!strcmp(v->text, "null") || !strcmp(v->text, "~")) {
        *out = (double)NAN;
        return GW_OK;
    }
    return gw_parse_f64(v->text, out) ? GW_OK : GW_ERR_CONFIG;
}

/* A scalar, or a list of scalars joined with commas. */
static const char *text_of(gw_arena *a, const gw_yaml_node *v) {
    if (v->kind == GW_YAML_SCALAR) return gw_arena_strdup(a, v->text);
    if (v->kind != GW_YAML_LIST) return NULL;
    gw_str s = {0};
    bool good = true;
    for (const gw_yaml_child *c = v->first; c; c = c->next) {
        if (c->value->kind != GW_YAML_SCALAR) {
            good = false;
            break;
        }
        if (s.len) gw_str_add_char(&s, ',');
        gw_str_add(&s, c->value->text);
    }
    const char *text = good ? gw_arena_strdup(a, gw_str_c(&s)) : NULL;
    gw_str_release(&s);
    return text;
}

static gw_status set_param(gw_filters *f, entry *e, const gw_yaml_child *c, const char *file,
                           gw_diags *dg) {
    const gw_filter_desc *d = e->desc;
    for (int i = 0; i < d->nparams; i++) {
        const gw_filter_param *p = &d->params[i];
        if (strcmp(p->name, c->key) != 0) continue;
        bool number = p->type == GW_PARAM_NUMBER || p->type == GW_PARAM_FLAG;
        if (number && set_number(p, c->value, &e->args.number[i]) == GW_OK) return GW_OK;
        if (!number && (e->args.text[i] = text_of(&f->arena, c->value))) return GW_OK;
        e->args.text[i] = p->text;
        static const char *const takes[] = {"a number, or null for no limit", "true or false",
                                            "a text, or a list of texts", "the path of a file"};
        return refuse(
            dg, "data-filter-value", file, c->value->line, c->value->column,
            gw_arena_printf(&f->arena, "%s of %s takes %s", p->name, d->name, takes[p->type]),
            NULL);
    }
    gw_str names = {0};
    for (int i = 0; i < d->nparams; i++)
        gw_str_printf(&names, "%s%s", i ? ", " : "it has ", d->params[i].name);
    gw_status s = refuse(dg, "data-filter-parameter", file, c->line, c->column,
                         gw_arena_printf(&f->arena, "%s has no parameter '%s'", d->name, c->key),
                         gw_str_c(&names));
    gw_str_release(&names);
    return s;
}

static void set_defaults(entry *e) {
    for (int i = 0; i < e->desc->nparams; i++) {
        e->args.number[i] = e->desc->params[i].number;
        e->args.text[i] = e->desc->params[i].text;
    }
}

/* One item of the list: NAME, or {NAME: {PARAMETER: VALUE}}. */
static gw_status read_entry(gw_filters *f, const gw_yaml_child *item, const char *file,
                            gw_diags *dg) {
    const gw_yaml_node *v = item->value, *params = NULL;
    const char *name = v->kind == GW_YAML_SCALAR ? v->text : NULL;
    if (v->kind == GW_YAML_MAP && v->count == 1) {
        name = v->first->key;
        params = v->first->value;
    }
    if (!name || (params && params->kind != GW_YAML_MAP))
        return refuse(dg, "data-filter-value", file, item->line, item->column,
                      "a filter is a name, or one name with a map of parameters",
                      "- c4/datatrove: {min_num_sentences: 3}");
    const gw_filter_desc *d = gw_filter_find(name);
    if (!d) {
        const gw_filter_desc *near = nearest(name);
        return refuse(
            dg, "data-filter-unknown", file, item->line, item->column,
            gw_arena_printf(&f->arena, "there is no filter '%s'", name),
            near ? gw_arena_printf(&f->arena, "'%s' is one; docs/filters.md lists all", near->name)
                 : "docs/filters.md lists all");
    }
    entry *e = &f->entries[f->count++];
    *e = (entry){.desc = d, .first_column = f->columns};
    f->columns += d->ncolumns;
    set_defaults(e);
    gw_status status = GW_OK;
    for (const gw_yaml_child *c = params ? params->first : NULL; c; c = c->next)
        if (set_param(f, e, c, file, dg) != GW_OK) status = GW_ERR_CONFIG;
    return status;
}

static void name_columns(gw_filters *f) {
    f->names = gw_arena_new(&f->arena, const char *, f->columns + 1);
    for (int i = 0; i < f->count; i++) {
        const gw_filter_desc *d = f->entries[i].desc;
        int nth = 1;
        for (int k = 0; k < i; k++) nth += f->entries[k].desc == d;
        for (int c = 0; c < d->ncolumns; c++)
            f->names[f->entries[i].first_column + c] =
                nth == 1 ? gw_arena_printf(&f->arena, "%s.%s", d->name, d->columns[c])
                         : gw_arena_printf(&f->arena, "%s#%d.%s", d->name, nth, d->columns[c]);
    }
}

static void describe(const gw_filters *f, bool measured_only, gw_str *out) {
    for (int i = 0; i < f->count; i++) {
        const entry *e = &f->entries[i];
        gw_str_printf(out, "%s%s(", i ? " " : "", e->desc->name);
        bool any = false;
        for (int k = 0; k < e->desc->nparams; k++) {
            const gw_filter_param *p = &e->desc->params[k];
            if (measured_only && !p->measured) continue;
            gw_str_printf(out, "%s%s=", any ? " " : "", p->name);
            any = true;
            if (p->type == GW_PARAM_TEXT || p->type == GW_PARAM_FILE)
                gw_str_add(out, e->args.text[k]);
            else
                gw_str_printf(out, "%.17g", e->args.number[k]);
        }
        gw_str_add_char(out, ')');
    }
}

gw_status gw_filters_new(const gw_yaml_node *list, const char *file, gw_filters **out,
                         gw_diags *dg) {
    *out = NULL;
    if (list && list->kind != GW_YAML_LIST)
        return refuse(dg, "data-filter-value", file, list->line, list->column, "filters is a list",
                      "- gopher_quality/datatrove");
    gw_filters *f = gw_mem_zalloc(sizeof *f);
    f->entries = gw_arena_new(&f->arena, entry, list ? list->count : 0);
    gw_status status = GW_OK;
    for (const gw_yaml_child *c = list ? list->first : NULL; c; c = c->next)
        if (read_entry(f, c, file, dg) != GW_OK) status = GW_ERR_CONFIG;
    for (int i = 0; i < f->count && status == GW_OK; i++) {
        entry *e = &f->entries[i];
        e->opened = true; /* `open` may leave a state even when it fails */
        status = e->desc->open(&e->args, &e->state, dg);
    }
    if (status != GW_OK) {
        gw_filters_free(f);
        return status;
    }
    name_columns(f);
    describe(f, false, &f->text);
    describe(f, true, &f->measured);
    *out = f;
    return GW_OK;
}

void gw_filters_until_removed(gw_filters *f) {
    f->until_removed = true;
    gw_str_clear(&f->measured);
    gw_str_printf(&f->measured, "until removed by %s", gw_str_c(&f->text));
}

void gw_filters_free(gw_filters *f) {
    if (!f) return;
    for (int i = 0; i < f->count; i++)
        if (f->entries[i].opened) f->entries[i].desc->close(f->entries[i].state);
    gw_measure_release(&f->measure);
    gw_str_release(&f->text);
    gw_str_release(&f->measured);
    gw_arena_release(&f->arena);
    gw_mem_free(f);
}

int gw_filters_count(const gw_filters *f) { return f->count; }
const gw_filter_desc *gw_filters_desc(const gw_filters *f, int filter) {
    return f->entries[filter].desc;
}
int gw_filters_columns(const gw_filters *f) { return f->columns; }
const char *gw_filters_column_name(const gw_filters *f, int column) { return f->names[column]; }
const char *gw_filters_text(const gw_filters *f) { return gw_str_c(&f->text); }
const char *gw_filters_measured_text(const gw_filters *f) { return gw_str_c(&f->measured); }

gw_verdict gw_filters_decide(const gw_filters *f, const gw_filter_facts *facts,
                             const double *columns) {
    for (int i = 0; i < f->count; i++) {
        const entry *e = &f->entries[i];
        int reason = e->desc->decide(columns + e->first_column, facts, &e->args);
        if (reason >= 0) return (gw_verdict){i, reason};
    }
    return (gw_verdict){-1, -1};
}

gw_verdict gw_filters_run(gw_filters *f, const gw_filter_facts *facts, gw_str *text,
                          double *columns) {
    gw_measure_begin(&f->measure, facts, text);
    for (int i = 0; i < f->count; i++) {
        entry *e = &f->entries[i];
        double *own = columns + e->first_column;
        e->desc->measure(&f->measure, &e->args, e->state, own);
        int reason = f->until_removed ? e->desc->decide(own, facts, &e->args) : -1;
        if (reason < 0) continue;
        for (int k = e->first_column + e->desc->ncolumns; k < f->columns; k++)
            columns[k] = (double)NAN;
        return (gw_verdict){i, reason};
    }
    return gw_filters_decide(f, facts, columns);
}

const char *gw_filters_verdict_text(const gw_filters *f, gw_verdict v, char *buf, int64_t size) {
    if (v.filter < 0)
        snprintf(buf, (size_t)size, "kept");
    else
        snprintf(buf, (size_t)size, "%s: %s", f->entries[v.filter].desc->name,
                 f->entries[v.filter].desc->reasons[v.reason]);
    return buf;
}
