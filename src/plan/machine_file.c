// SPDX-License-Identifier: Apache-2.0
// Hardware files: from YAML to a machine.
//
// A file has two halves. Facts are written {is: VALUE, from: KEY}: KEY names a line of `sources`,
// and a fact without one is refused, so nothing in a file is somebody's guess. What nobody states
// is left out and stays 0. The half under `model` has the parameters of the cost model, plain
// numbers; `inherits` takes those that are not given from another built-in machine.
//
// Everything is strict: unknown keys, numbers out of range, tiers that do not grow, a parameter
// that neither the file nor an ancestor gives. All faults of a file are reported at once, each with
// line and column.
//
// Built-in files are byte arrays that make writes from hardware/*.yaml (hardware_files.h).
#include <math.h>
#include <stddef.h> /* offsetof */
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "base/yaml.h"     /* gw_yaml_node */
#include "plan/machine_impl.h"

#include "hardware_files.h" /* hardware_files: written by make */

const gw_machine_param gw_machine_params[] = {
#define X(name, least, most, doc) {#name, doc, least, most, offsetof(gw_chip_model, name)},
    GW_MACHINE_PARAMS(X)
#undef X
};
int gw_machine_nparams(void) { return (int)GW_COUNT(gw_machine_params); }

const gw_machine_file *gw_machine_builtin_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(hardware_files) ? &hardware_files[i] : NULL;
}

const gw_machine_file *gw_machine_builtin(const char *name) {
    for (size_t i = 0; i < GW_COUNT(hardware_files); i++)
        if (strcmp(hardware_files[i].name, name) == 0) return &hardware_files[i];
    return NULL;
}

typedef struct reader {
    const char *name;
    gw_arena *a;
    gw_diags *dg;
    gw_machine_spec *m;
    const gw_yaml_node *sources;
    gw_str said; /* lines of m->sources */
    bool wrong;
} reader;

static void fault(reader *r, const char *id, int line, int column, const char *what,
                  const char *word) {
    gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, id, (gw_where){r->name, line, column}, "%s: %s",
                word, what);
    r->wrong = true;
}

static void fault_at(reader *r, const char *id, const gw_yaml_node *n, const char *what,
                     const char *word) {
    fault(r, id, n->line, n->column, what, word);
}

static const gw_yaml_child *find(const gw_yaml_node *map, const char *key) {
    if (!map || map->kind != GW_YAML_MAP) return NULL;
    const gw_yaml_child *c = map->first;
    while (c && strcmp(c->key, key) != 0) c = c->next;
    return c;
}

static const gw_yaml_node *get(const gw_yaml_node *map, const char *key) {
    const gw_yaml_child *c = find(map, key);
    return c ? c->value : NULL;
}

/* Keys of `map` that are not in `known` (words apart by blanks) are refused. */
static void only(reader *r, const gw_yaml_node *map, const char *known, const char *where) {
    if (!map) return;
    if (map->kind != GW_YAML_MAP) {
        fault_at(r, "config-type", map, "is a section of keys", where);
        return;
    }
    for (const gw_yaml_child *c = map->first; c; c = c->next) {
        size_t n = strlen(c->key);
        const char *p = known;
        while ((p = strstr(p, c->key)) != NULL &&
               !((p == known || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)))
            p += n;
        if (p && n > 0) continue;
        fault(r, "config-unknown-key", c->line, c->column,
              gw_arena_printf(r->a, "is no key of %s; these are: %s", where, known), c->key);
    }
}

/* ---- facts ---- */

/* The value of {is: .., from: ..} under `key`, with its source noted; NULL: not there or wrong. */
static const gw_yaml_node *fact(reader *r, const gw_yaml_node *map, const char *key,
                                const char *where) {
    const gw_yaml_node *f = get(map, key);
    if (!f) return NULL;
    const gw_yaml_node *is = get(f, "is"), *from = get(f, "from");
    const char *word = gw_arena_printf(r->a, "%s%s%s", where, *where ? "." : "", key);
    only(r, f, "is from", word);
    if (f->kind != GW_YAML_MAP) return NULL;
    if (!is || is->kind != GW_YAML_SCALAR || !from || from->kind != GW_YAML_SCALAR) {
        fault_at(r, "config-missing", f, "a fact is written {is: VALUE, from: SOURCE}", word);
        return NULL;
    }
    const gw_yaml_node *source = get(r->sources, from->text);
    if (!source || source->kind != GW_YAML_SCALAR || source->text[0] == 0) {
        fault_at(r, "config-missing", from, "names no line of `sources`", from->text);
        return NULL;
    }
    gw_str_printf(&r->said, "%s %s: %s\n", word, is->text, source->text);
    return is;
}

static bool number(reader *r, const gw_yaml_node *n, double least, double most, const char *word,
                   double *out) {
    gw_yaml_type t = gw_yaml_scalar_type(n);
    if (n->kind != GW_YAML_SCALAR || (t != GW_YAML_INT && t != GW_YAML_REAL)) {
        fault_at(r, "config-type", n, "is a number", word);
        return false;
    }
    double x = gw_yaml_real(n->text);
    if (!(x >= least && x <= most)) {
        fault_at(r, "config-range", n,
                 gw_arena_printf(r->a, "%s is not between %g and %g", n->text, least, most), word);
        return false;
    }
    *out = x;
    return true;
}

static void read_fact(reader *r, const gw_yaml_node *map, const char *key, const char *where,
                      double least, double most, double *out) {
    const gw_yaml_node *n = fact(r, map, key, where);
    if (n) (void)number(r, n, least, most, key, out);
}

static void read_peaks(reader *r, const gw_yaml_node *map) {
    static const struct {
        const char *key;
        gw_dtype t;
    } keys[] = {
        {"f64", GW_F64}, {"f32", GW_F32}, {"bf16", GW_BF16}, {"f16", GW_F16}, {"f8", GW_F8E4M3}};
    only(r, map, "f64 f32 bf16 f16 f8", "peak");
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        read_fact(r, map, keys[i].key, "peak", 1, 1e20, &r->m->peak[keys[i].t]);
    r->m->peak[GW_F8E5M2] = r->m->peak[GW_F8E4M3];
}

static void read_tier(reader *r, const gw_yaml_child *c) {
    const gw_yaml_node *n = c->value, *name = get(n, "name"), *in;
    only(r, n, "name ranks bytes_per_s pair_bytes_per_s latency_s oversubscription in_network",
         "links");
    if (n->kind != GW_YAML_MAP) return;
    if (!name || name->kind != GW_YAML_SCALAR) {
        fault_at(r, "config-missing", n, "a tier has a name", "links");
        return;
    }
    if (r->m->ntiers == GW_MACHINE_TIERS) {
        fault_at(r, "config-range", n, "there are more tiers than six", name->text);
        return;
    }
    gw_tier *t = &r->m->tiers[r->m->ntiers];
    int64_t before = r->m->ntiers ? t[-1].ranks : 1;
    r->m->ntiers++;
    double ranks = 0;
    *t = (gw_tier){.name = gw_arena_strdup(r->a, name->text)};
    const char *where = gw_arena_printf(r->a, "links.%s", t->name);
    read_fact(r, n, "ranks", where, 2, 1e9, &ranks);
    read_fact(r, n, "bytes_per_s", where, 1, 1e16, &t->bytes_per_s);
    read_fact(r, n, "pair_bytes_per_s", where, 1, 1e16, &t->pair_bytes_per_s);
    read_fact(r, n, "latency_s", where, 0, 1, &t->latency_s);
    read_fact(r, n, "oversubscription", where, 1, 1000, &t->oversubscription);
    if ((in = fact(r, n, "in_network", where)) != NULL) {
        if (gw_yaml_scalar_type(in) == GW_YAML_BOOL)
            t->in_network = gw_yaml_bool(in->text);
        else
            fault_at(r, "config-type", in, "is true or false", "in_network");
    }
    t->ranks = (int64_t)ranks;
    if (floor(ranks) < ranks) fault_at(r, "config-type", n, "ranks is a whole number", t->name);
    if (before == 0 || (t->ranks && t->ranks <= before))
        fault_at(r, "config-value", n, "a tier has more ranks than the one before", t->name);
    if (t->bytes_per_s <= 0 && !r->wrong)
        fault_at(r, "config-missing", n, "a tier without bytes_per_s says nothing: leave it out",
                 t->name);
}

static void read_links(reader *r, const gw_yaml_node *n) {
    if (!n) return;
    if (n->kind != GW_YAML_LIST) {
        fault_at(r, "config-type", n, "is a list of tiers, nearest first", "links");
        return;
    }
    for (const gw_yaml_child *c = n->first; c; c = c->next) read_tier(r, c);
}

static void read_facts(reader *r, const gw_yaml_node *top) {
    static const double LEAST = 1, MOST = 1e18;
    gw_machine_spec *m = r->m;
    const gw_yaml_node *memory = get(top, "memory"), *host = get(top, "host");
    const gw_yaml_node *storage = get(top, "storage"), *price = get(top, "price");
    const gw_yaml_node *failures = get(top, "failures"), *power = get(top, "power");
    read_peaks(r, get(top, "peak"));
    read_fact(r, top, "units", "", 1, 1e6, &m->units);
    only(r, memory, "bytes bytes_per_s", "memory");
    read_fact(r, memory, "bytes", "memory", LEAST, MOST, &m->memory_bytes);
    read_fact(r, memory, "bytes_per_s", "memory", LEAST, MOST, &m->memory_bytes_per_s);
    only(r, host, "bytes_per_s", "host");
    read_fact(r, host, "bytes_per_s", "host", LEAST, MOST, &m->host_bytes_per_s);
    read_links(r, get(top, "links"));
    only(r, storage, "read_bytes_per_s write_bytes_per_s", "storage");
    read_fact(r, storage, "read_bytes_per_s", "storage", LEAST, MOST, &m->storage_read);
    read_fact(r, storage, "write_bytes_per_s", "storage", LEAST, MOST, &m->storage_write);
    only(r, price, "dollars_per_hour", "price");
    read_fact(r, price, "dollars_per_hour", "price", 0, 1e6, &m->dollars_per_hour);
    only(r, power, "watts", "power");
    read_fact(r, power, "watts", "power", 1, 1e6, &m->watts);
    only(r, failures, "per_hour", "failures");
    read_fact(r, failures, "per_hour", "failures", 0, 1, &m->failures_per_hour);
}

/* ---- parameters ---- */

enum { GENERATIONS = 8 };

static gw_yaml_node *tree_of(reader *r, const gw_machine_file *f) {
    gw_yaml_node *n = NULL;
    gw_status st = gw_yaml_parse(r->a, f->name, (const char *)f->text, f->len, true, &n, r->dg);
    return st == GW_OK ? n : NULL;
}

/* `given` marks the parameters that have a value; nearer files win. */
static void read_params(reader *r, const gw_yaml_node *model, gw_chip_model *out, bool *given) {
    for (int depth = 0; model && depth < GENERATIONS; depth++) {
        const gw_yaml_node *from = NULL;
        if (model->kind != GW_YAML_MAP) {
            fault_at(r, "config-type", model, "is a section of keys", "model");
            return;
        }
        for (const gw_yaml_child *c = model->first; c; c = c->next) {
            int i = 0, n = gw_machine_nparams();
            if (strcmp(c->key, "inherits") == 0) {
                from = c->value;
                continue;
            }
            while (i < n && strcmp(gw_machine_params[i].name, c->key) != 0) i++;
            const gw_machine_param *p = &gw_machine_params[i < n ? i : 0];
            if (i == n)
                fault(r, "config-unknown-key", c->line, c->column,
                      "is no parameter of the cost model; docs/hardware.md has them", c->key);
            else if (!given[i])
                given[i] = number(r, c->value, p->least, p->most, p->name,
                                  (double *)(void *)((char *)out + p->at));
        }
        const gw_machine_file *f =
            from && from->kind == GW_YAML_SCALAR ? gw_machine_builtin(from->text) : NULL;
        if (from && !f)
            fault_at(r, "config-value", from, "is no built-in machine",
                     from->kind == GW_YAML_SCALAR ? from->text : "inherits");
        model = f ? get(tree_of(r, f), "model") : NULL;
    }
}

static void read_model(reader *r, const gw_yaml_node *top) {
    const gw_yaml_node *model = get(top, "model");
    bool *given = gw_arena_new(r->a, bool, gw_machine_nparams());
    gw_chip_model *out = gw_arena_new(r->a, gw_chip_model, 1);
    if (!model) {
        fault_at(r, "config-missing", top, "give parameters, or {inherits: NAME}", "model");
        return;
    }
    read_params(r, model, out, given);
    for (int i = 0; i < gw_machine_nparams() && !r->wrong; i++)
        if (!given[i])
            fault_at(r, "config-missing", model, "neither the file nor what it inherits gives it",
                     gw_machine_params[i].name);
    r->m->model = out;
}

/* ---- a file ---- */

gw_status gw_machine_parse(const char *name, const char *text, int64_t len, gw_arena *a,
                           gw_machine_spec *out, gw_diags *dg) {
    gw_yaml_node *top = NULL;
    *out = (gw_machine_spec){.name = name, .asked = name};
    reader r = {.name = name, .a = a, .dg = dg, .m = out};
    GW_TRY(gw_yaml_parse(a, name, text, len, true, &top, dg));
    if (!top || top->kind != GW_YAML_MAP)
        return gw_fail_at(dg, GW_ERR_CONFIG, "config-type", (gw_where){name, 1, 1},
                          "a hardware file is a map of keys");
    const gw_yaml_node *own = get(top, "name");
    only(&r, top,
         "name aliases sources peak units memory host links storage price power failures model",
         "a hardware file");
    r.sources = get(top, "sources");
    if (own && own->kind == GW_YAML_SCALAR)
        out->name = gw_arena_strdup(a, own->text);
    else
        fault_at(&r, "config-missing", top, "a machine has a name", "name");
    read_facts(&r, top);
    read_model(&r, top);
    out->sources = gw_arena_strdup(a, gw_str_c(&r.said));
    gw_str_release(&r.said);
    return r.wrong ? GW_ERR_CONFIG : GW_OK;
}

bool gw_machine_has_alias(const gw_machine_file *f, const char *alias, gw_arena *a) {
    gw_diags dg;
    gw_diags_init(&dg);
    reader r = {.name = f->name, .a = a, .dg = &dg};
    const gw_yaml_node *list = get(tree_of(&r, f), "aliases");
    bool found = false;
    for (const gw_yaml_child *c = list && list->kind == GW_YAML_LIST ? list->first : NULL; c;
         c = c->next)
        found |= c->value->kind == GW_YAML_SCALAR && strcmp(c->value->text, alias) == 0;
    gw_diags_release(&dg);
    return found;
}
