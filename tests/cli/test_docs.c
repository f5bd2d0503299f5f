// SPDX-License-Identifier: Apache-2.0
// Generated references: equal to the files in the tree, complete, and a schema that validates.
#include <ftw.h>     /* nftw */
#include <jansson.h> /* json_t */
#include <math.h>    /* floor */
#include <regex.h>   /* regcomp */
#include <stdio.h>   /* snprintf */
#include <string.h>  /* strstr */

#include "base/io.h"             /* gw_file_read */
#include "base/str.h"            /* gw_str */
#include "cli/command.h"         /* gw_commands */
#include "cli/docs.h"            /* gw_docs_man */
#include "cli/options.h"         /* gw_global_options */
#include "harness.h"             /* TEST, CHECK */
#include "data/build/pipeline.h" /* gw_pipeline_schema */
#include "train/runfile_key.h"   /* gw_runfile_schema */

typedef void maker(gw_str *out);

static void read_tree_file(const char *below_root, gw_str *out) {
    gw_diags dg;
    char path[512];
    gw_diags_init(&dg);
    snprintf(path, sizeof path, "../%s", below_root);
    CHECK_OK(gw_file_read(test_source_path(path), 0, out, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(files_in_the_tree_are_what_the_program_prints) {
    static const struct {
        const char *path;
        maker *make;
    } files[] = {
        {"docs/gradwright.1", gw_docs_man},
        {"docs/commands.md", gw_docs_commands},
        {"docs/keys.md", gw_runfile_keys_md},
        {"docs/errors.md", gw_docs_errors},
        {"docs/run.schema.json", gw_runfile_schema},
        {"completions/gradwright.bash", gw_docs_bash},
        {"completions/_gradwright", gw_docs_zsh},
        {"completions/gradwright.fish", gw_docs_fish},
        {"docs/pipeline.schema.json", gw_pipeline_schema},
    };
    for (size_t i = 0; i < GW_COUNT(files); i++) {
        gw_str file = {0}, made = {0};
        read_tree_file(files[i].path, &file);
        files[i].make(&made);
        CHECK_MSG(gw_str_eq(gw_str_c(&file), gw_str_c(&made)),
                  "%s is stale: ./gradwright docs --write .", files[i].path);
        gw_str_release(&file);
        gw_str_release(&made);
    }
}

/* `name` as a whole word: not the beginning of a longer option. */
static bool mentions(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *s = text; (s = strstr(s, name)) != NULL; s += n) {
        bool starts = s == text || !strchr("abcdefghijklmnopqrstuvwxyz0123456789_", s[-1]);
        bool ends = !strchr("abcdefghijklmnopqrstuvwxyz0123456789_", s[n]) || s[n] == 0;
        if (starts && ends) return true;
    }
    return false;
}

/* How a text writes an option: --name, -l name in fish, \-\-na\-me in troff. */
static void spell(const char *format, const char *name, gw_str *out) {
    gw_str_clear(out);
    gw_str_add(out, format);
    for (; *name; name++)
        gw_str_printf(out, *name == '-' && *format == '\\' ? "\\%c" : "%c", *name);
}

TEST(every_command_and_option_is_documented_and_completed) {
    static const struct {
        const char *what, *format;
        maker *make;
    } texts[] = {{"man page", "\\-\\-", gw_docs_man},
                 {"commands.md", "--", gw_docs_commands},
                 {"bash completion", "--", gw_docs_bash},
                 {"zsh completion", "--", gw_docs_zsh},
                 {"fish completion", "-l ", gw_docs_fish}};
    for (size_t t = 0; t < GW_COUNT(texts); t++) {
        gw_str s = {0}, name = {0};
        texts[t].make(&s);
        for (const gw_command *const *c = gw_commands(); *c; c++) {
            if ((*c)->hidden) continue;
            CHECK_MSG(mentions(gw_str_c(&s), (*c)->name), "%s lacks %s", texts[t].what, (*c)->name);
            for (int i = 0; i < (*c)->noptions + GW_GLOBAL_COUNT; i++) {
                const gw_option *o =
                    i < (*c)->noptions ? &(*c)->options[i] : &gw_global_options[i - (*c)->noptions];
                spell(texts[t].format, o->name, &name);
                CHECK_MSG(mentions(gw_str_c(&s), gw_str_c(&name)), "%s lacks %s of %s",
                          texts[t].what, gw_str_c(&name), (*c)->name);
            }
        }
        gw_str_release(&s);
        gw_str_release(&name);
    }
}

TEST(every_key_is_documented) {
    gw_str md = {0}, bash = {0};
    gw_runfile_keys_md(&md);
    gw_docs_bash(&bash);
    for (int i = 0; i < gw_rf_nkeys; i++) {
        CHECK_MSG(mentions(gw_str_c(&md), gw_rf_keys[i].path), "keys.md lacks %s",
                  gw_rf_keys[i].path);
        CHECK_MSG(mentions(gw_str_c(&bash), gw_rf_keys[i].path), "bash lacks %s",
                  gw_rf_keys[i].path);
        CHECK(*gw_rf_keys[i].meaning && !gw_str_ends(gw_rf_keys[i].meaning, "."));
    }
    gw_str_release(&md);
    gw_str_release(&bash);
}

// ------------------------------------------------------------------ a validator

/* The keywords of JSON Schema that the schema uses, and a refusal of any other. */
static bool valid(const json_t *schema, const json_t *v);

static bool is_type(const char *type, const json_t *v) {
    if (gw_str_eq(type, "object")) return json_is_object(v);
    if (gw_str_eq(type, "array")) return json_is_array(v);
    if (gw_str_eq(type, "string")) return json_is_string(v);
    if (gw_str_eq(type, "boolean")) return json_is_boolean(v);
    if (gw_str_eq(type, "number")) return json_is_number(v);
    if (gw_str_eq(type, "integer"))
        return json_is_integer(v) ||
               (json_is_real(v) && floor(json_real_value(v)) == json_real_value(v));
    test_fail(__FILE__, __LINE__, "type %s", type);
}

static bool valid_object(const json_t *schema, const json_t *v) {
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    bool closed = json_is_false(json_object_get(schema, "additionalProperties"));
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)v, name, item) {
        const json_t *p = json_object_get(properties, name);
        if (!p && closed) return false;
        if (p && !valid(p, item)) return false;
    }
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    return true;
}

static int count_valid(const json_t *schemas, const json_t *v) {
    int n = 0;
    for (size_t i = 0; i < json_array_size(schemas); i++) n += valid(json_array_get(schemas, i), v);
    return n;
}

static bool in_enum(const json_t *values, const json_t *v) {
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_equal(json_array_get(values, i), v)) return true;
    return false;
}

static bool matches(const char *pattern, const char *text) {
    regex_t re;
    CHECK(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) == 0);
    bool ok = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return ok;
}

static bool keyword(const json_t *schema, const char *k, const json_t *arg, const json_t *v) {
    bool number = json_is_number(v);
    double x = number ? json_number_value(v) : 0, bound = json_number_value(arg);
    if (gw_str_eq(k, "type")) return is_type(json_string_value(arg), v);
    if (gw_str_eq(k, "properties")) return !json_is_object(v) || valid_object(schema, v);
    if (gw_str_eq(k, "required")) return !json_is_object(v) || valid_object(schema, v);
    if (gw_str_eq(k, "enum")) return in_enum(arg, v);
    if (gw_str_eq(k, "const")) return json_equal(arg, v);
    if (gw_str_eq(k, "anyOf")) return count_valid(arg, v) > 0;
    if (gw_str_eq(k, "oneOf")) return count_valid(arg, v) == 1;
    if (gw_str_eq(k, "minimum")) return !number || x >= bound;
    if (gw_str_eq(k, "maximum")) return !number || x <= bound;
    if (gw_str_eq(k, "exclusiveMinimum")) return !number || x > bound;
    if (gw_str_eq(k, "minItems")) return !json_is_array(v) || (double)json_array_size(v) >= bound;
    if (gw_str_eq(k, "maxItems")) return !json_is_array(v) || (double)json_array_size(v) <= bound;
    if (gw_str_eq(k, "minLength"))
        return !json_is_string(v) || (double)json_string_length(v) >= bound;
    if (gw_str_eq(k, "pattern"))
        return !json_is_string(v) || matches(json_string_value(arg), json_string_value(v));
    if (gw_str_eq(k, "items")) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!valid(arg, json_array_get(v, i))) return false;
        return true;
    }
    static const char *const notes[] = {"description", "default",  "title",
                                        "$schema",     "$comment", "additionalProperties"};
    for (size_t i = 0; i < GW_COUNT(notes); i++)
        if (gw_str_eq(k, notes[i])) return true;
    test_fail(__FILE__, __LINE__, "keyword %s", k);
}

static bool valid(const json_t *schema, const json_t *v) {
    const char *k;
    json_t *arg;
    CHECK(json_is_object(schema));
    json_object_foreach((json_t *)(uintptr_t)schema, k, arg) {
        if (!keyword(schema, k, arg, v)) return false;
    }
    return true;
}

static json_t *load(const char *text) {
    json_error_t e;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    CHECK_MSG(j != NULL, "%s at %d:%d", e.text, e.line, e.column);
    return j;
}

static json_t *schema_json(void) {
    gw_str s = {0};
    gw_runfile_schema(&s);
    json_t *j = load(gw_str_c(&s));
    gw_str_release(&s);
    return j;
}

static bool schema_takes(const json_t *schema, const char *text) {
    json_t *v = load(text);
    bool ok = valid(schema, v);
    json_decref(v);
    return ok;
}

TEST(resolved_run_files_are_valid_under_the_schema) {
    static const char *const runs[] = {
        "model: {family: llama, layers: 2, hidden: 64, heads: 4, rope_scaling: {type: llama3}}",
        "model: {family: gpt2, layers: 2, hidden: 64, heads: 4}\noptimizer: {name: muon}",
        ("model: {preset: qwen3-0.6b}\nprecision: {compute: fp16}\n"
         "recompute: {policy: budget, budget: 1GB}"),
        "model: {path: d}\nrecompute: {policy: ops, ops: [matmul]}\noptimizer: {name: sgd}",
    };
    json_t *schema = schema_json();
    for (size_t i = 0; i < GW_COUNT(runs); i++) {
        gw_diags dg;
        gw_runfile rf;
        gw_str json = {0};
        gw_diags_init(&dg);
        CHECK_OK(gw_runfile_parse(&rf, "r", runs[i], (int64_t)strlen(runs[i]), NULL, 0, &dg), &dg);
        gw_runfile_json(&rf, &json);
        CHECK_MSG(schema_takes(schema, gw_str_c(&json)), "%s", gw_str_c(&json));
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&json);
    }
    json_decref(schema);
}

TEST(the_schema_refuses_what_the_program_refuses) {
    json_t *schema = schema_json();
    CHECK(schema_takes(schema, "{\"model\": {\"preset\": \"gpt2\"}}"));
    CHECK(schema_takes(schema, "{\"model\": {\"preset\": \"gpt2\", \"vocab\": \"auto\"}, "
                               "\"recompute\": {\"policy\": \"budget\", \"budget\": \"2GiB\"}}"));
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"model\": {}}",
        "{\"model\": {\"preset\": \"gpt2\", \"path\": \"x\"}}",
        "{\"model\": {\"preset\": \"gpt2\", \"vocab\": \"all\"}}",
        "{\"model\": {\"preset\": \"gpt2\", \"layers\": 0}}",
        "{\"model\": {\"preset\": \"gpt2\", \"num_layers\": 2}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"training\": {}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"train\": {\"steps\": \"10\"}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"train\": {\"steps\": 1.5}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"optimizer\": {\"eps\": 0}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"optimizer\": {\"betas\": [0.9]}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"optimizer\": {\"name\": \"adam\"}}",
        "{\"model\": {\"preset\": \"gpt2\"}, \"recompute\": {\"budget\": \"10 cats\"}}",
    };
    for (size_t i = 0; i < GW_COUNT(bad); i++)
        CHECK_MSG(!schema_takes(schema, bad[i]), "%s", bad[i]);
    json_decref(schema);
}

TEST(the_schema_has_every_key) {
    json_t *schema = schema_json();
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const json_t *node = schema;
        char path[96];
        snprintf(path, sizeof path, "%s", gw_rf_keys[i].path);
        char *save = NULL;
        for (char *p = strtok_r(path, ".", &save); p; p = strtok_r(NULL, ".", &save))
            node = json_object_get(json_object_get(node, "properties"), p);
        CHECK_MSG(json_is_object(node), "%s", gw_rf_keys[i].path);
        const json_t *dflt = json_object_get(node, "default");
        CHECK_MSG(!dflt || valid(node, dflt), "default of %s", gw_rf_keys[i].path);
    }
    json_decref(schema);
}

// ------------------------------------------------------------------ error ids

static int missing_ids;

static bool listed(const char *id, size_t n) {
    const char *known;
    for (int i = 0; gw_docs_error_id(i, &known); i++)
        if (strlen(known) == n && memcmp(known, id, n) == 0) return true;
    return false;
}

/* An id as a string literal at t, after white space: complains when errors.def lacks it. */
static void look_at_id(const char *path, const char *t) {
    t += strspn(t, " \n\t");
    if (*t++ != '"') return;
    size_t n = strspn(t, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (t[n] != '"' || !memchr(t, '-', n) || listed(t, n)) return;
    test_note("%s: \"%.*s\" is not in src/cli/errors.def", path, (int)n, t);
    missing_ids++;
}

/* Where diagnostics are made: GW_ERR_SOMETHING, "an-id" (GW_OK for notes), and the calls whose code
 * is a variable or implied. */
static void scan_ids(const char *path, const char *text) {
    for (const char *s = text; (s = strstr(s, "GW_")) != NULL;) {
        bool code = gw_str_starts(s, "GW_ERR_") || gw_str_starts(s, "GW_OK,");
        s += strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        if (code && *s == ',') look_at_id(path, s + 1);
    }
    static const struct {
        const char *call;
        int commas; /* before the id */
    } makers[] = {{"gw_runfile_error(", 3}, {"GW_FAIL(", 2}, {"gw_fail_at(", 2}, {"io_fail(", 1}};
    for (size_t i = 0; i < GW_COUNT(makers); i++)
        for (const char *s = text; (s = strstr(s, makers[i].call)) != NULL; s++) {
            const char *t = s;
            for (int n = 0; n < makers[i].commas && t; n++) t = strchr(t + 1, ',');
            if (t) look_at_id(path, t + 1);
        }
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)ftw;
    if (kind != FTW_F || (!gw_str_ends(path, ".c") && !gw_str_ends(path, ".h"))) return 0;
    if (gw_str_ends(path, "base/diag.h")) return 0; /* its comment shows the form */
    gw_diags dg;
    gw_str text = {0};
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(path, 0, &text, &dg), &dg);
    scan_ids(path, gw_str_c(&text));
    gw_str_release(&text);
    gw_diags_release(&dg);
    return 0;
}

TEST(every_error_id_is_explained) {
    missing_ids = 0;
    CHECK(nftw(test_source_path("../src"), visit, 16, FTW_PHYS) == 0);
    CHECK_MSG(missing_ids == 0, "%d ids are not explained in docs/errors.md", missing_ids);
    const char *a, *b;
    for (int i = 0; gw_docs_error_id(i, &a); i++)
        for (int k = 0; k < i && gw_docs_error_id(k, &b); k++) CHECK(!gw_str_eq(a, b));
}
