// SPDX-License-Identifier: Apache-2.0
// References made from the key table: JSON Schema, docs/keys.md, words for completion.
//
// The schema says what a file alone can say: names, types, ranges, which sections there are. What
// hangs on other keys is in the descriptions, and refused by the program itself; a schema that
// tried to say it would be unreadable and still incomplete. Editors that know JSON Schema complete
// and check a run file with it (`# yaml-language-server: $schema=...`).
#include <string.h> /* strlen, memcmp */

#include "model/model.h"       /* gw_model_preset_name */
#include "train/runfile_key.h" /* gw_rf_keys */

static bool in_group(const char *path, const char *group) {
    size_t n = gw_rf_group_length(path);
    return n == strlen(group) && memcmp(path, group, n) == 0;
}

// ------------------------------------------------------------------ schema

static void add_bounds(const gw_rf_check *c, gw_str *out) {
    if (!c->bounded) return;
    gw_str_add(out, c->lo_open ? ", \"exclusiveMinimum\": " : ", \"minimum\": ");
    gw_rf_add_real(out, c->lo);
    gw_str_add(out, ", \"maximum\": ");
    gw_rf_add_real(out, c->hi);
}

static void add_enum(const gw_rf_name *names, gw_str *out) {
    gw_str_add(out, "\"enum\": [");
    for (const gw_rf_name *n = names; n->name; n++) {
        if (n != names) gw_str_add(out, ", ");
        gw_rf_add_json_string(out, n->name);
    }
    gw_str_add(out, "]");
}

static void add_number_type(const gw_rf_key *k, const char *type, gw_str *out) {
    if (k->check.word) gw_str_printf(out, "\"anyOf\": [{\"const\": \"%s\"}, {", k->check.word);
    gw_str_printf(out, "\"type\": \"%s\"", type);
    add_bounds(&k->check, out);
    if (k->check.word) gw_str_add(out, "}]");
}

static void add_schema_type(const gw_rf_key *k, gw_str *out) {
    switch (k->type) {
    case GW_RF_T_BOOL: gw_str_add(out, "\"type\": \"boolean\""); return;
    case GW_RF_T_INT: add_number_type(k, "integer", out); return;
    case GW_RF_T_REAL: add_number_type(k, "number", out); return;
    case GW_RF_T_TEXT: gw_str_add(out, "\"type\": \"string\", \"minLength\": 1"); return;
    case GW_RF_T_ENUM: add_enum(k->check.names, out); return;
    case GW_RF_T_BYTES:
        gw_str_add(out, "\"anyOf\": [{\"type\": \"integer\"");
        add_bounds(&k->check, out);
        gw_str_add(out, "}, {\"type\": \"string\", \"pattern\": "
                        "\"^[0-9]+(\\\\.[0-9]+)? ?([kKMGT]i?)?B?$\"}]");
        return;
    case GW_RF_T_LIST:
        gw_str_add(out, "\"type\": \"array\", \"items\": {\"type\": \"string\"}");
        return;
    case GW_RF_T_COUNTS:
        gw_str_printf(out,
                      "\"anyOf\": [{\"const\": \"%s\"}, {\"type\": \"array\", \"items\": "
                      "{\"type\": \"integer\"",
                      k->check.word);
        add_bounds(&k->check, out);
        gw_str_add(out, "}}]");
        return;
    case GW_RF_T_MIXTURE:
        gw_str_add(out, "\"anyOf\": [{\"type\": \"string\", \"minLength\": 1}, {\"type\": "
                        "\"array\", \"minItems\": 1, \"items\": {\"anyOf\": [{\"type\": "
                        "\"string\", \"minLength\": 1}, {\"type\": \"object\", "
                        "\"additionalProperties\": false, \"required\": [\"path\"], "
                        "\"properties\": {\"path\": {\"type\": \"string\", \"minLength\": 1}, "
                        "\"weight\": {\"type\": \"number\", \"minimum\": 0}, \"epochs\": "
                        "{\"type\": \"integer\", \"minimum\": 0}}}]}}]");
        return;
    case GW_RF_T_STAGES:
        gw_str_add(out, "\"type\": \"array\", \"items\": {\"type\": \"object\", "
                        "\"additionalProperties\": false, \"required\": [\"weights\"], "
                        "\"properties\": {\"tokens\": {\"type\": \"number\", \"minimum\": 1}, "
                        "\"weights\": {\"type\": \"array\", \"items\": {\"type\": \"number\", "
                        "\"minimum\": 0}}}}");
        return;
    case GW_RF_T_MAP:
        gw_str_add(out, "\"type\": \"object\", \"additionalProperties\": {\"type\": \"string\"}");
        return;
    case GW_RF_T_PAIR:
        gw_str_add(out, "\"type\": \"array\", \"minItems\": 2, \"maxItems\": 2, "
                        "\"items\": {\"type\": \"number\"");
        add_bounds(&k->check, out);
        gw_str_add_char(out, '}');
        return;
    }
}

static void add_description(const gw_rf_key *k, gw_str *out) {
    gw_str text = {0};
    gw_str_add(&text, k->meaning);
    if (*k->unit) gw_str_printf(&text, " [%s]", k->unit);
    if (gw_rf_is_derived(k)) gw_str_printf(&text, "; default %s", k->fallback + 2);
    if (*k->only) gw_str_printf(&text, "; read only if %s", k->only);
    gw_str_add(out, "\"description\": ");
    gw_rf_add_json_string(out, gw_str_c(&text));
    gw_str_release(&text);
}

/* A literal default is YAML; bare words become JSON strings, the rest is JSON already. */
static void add_default(const gw_rf_key *k, gw_str *out) {
    if (!*k->fallback || gw_rf_is_derived(k)) return;
    bool word = k->type == GW_RF_T_ENUM || k->type == GW_RF_T_TEXT || k->type == GW_RF_T_BYTES ||
                gw_str_eq(k->fallback, k->check.word);
    gw_str_add(out, ", \"default\": ");
    if (word)
        gw_rf_add_json_string(out, k->fallback);
    else
        gw_str_add(out, k->fallback);
}

static void schema_group(const char *group, int indent, gw_str *out) {
    const char *sep = "";
    gw_str_printf(out, "\"type\": \"object\",\n%*s\"additionalProperties\": false,\n%*s", indent,
                  "", indent, "");
    gw_str_add(out, "\"properties\": {");
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const gw_rf_key *k = &gw_rf_keys[i];
        if (!in_group(k->path, group)) continue;
        gw_str_printf(out, "%s\n%*s\"%s\": {", sep, indent + 2, "", gw_rf_leaf(k->path));
        add_schema_type(k, out);
        add_default(k, out);
        gw_str_add(out, ", ");
        add_description(k, out);
        gw_str_add_char(out, '}');
        sep = ",";
    }
    for (int g = 0; g < gw_rf_ngroups; g++) {
        const gw_rf_group *inner = &gw_rf_groups[g];
        if (!in_group(inner->path, group)) continue;
        gw_str_printf(out, "%s\n%*s\"%s\": {\n%*s\"description\": ", sep, indent + 2, "",
                      gw_rf_leaf(inner->path), indent + 4, "");
        gw_rf_add_json_string(out, inner->meaning);
        gw_str_printf(out, ",\n%*s", indent + 4, "");
        schema_group(inner->path, indent + 4, out);
        gw_str_printf(out, "\n%*s}", indent + 2, "");
        sep = ",";
    }
    gw_str_printf(out, "\n%*s}", indent, "");
    if (gw_str_eq(group, "model"))
        gw_str_printf(
            out,
            ",\n%*s\"oneOf\": [{\"required\": [\"family\"]}, {\"required\": [\"preset\"]}, "
            "{\"required\": [\"path\"]}]",
            indent, "");
}

void gw_runfile_schema(gw_str *out) {
    gw_str_add(out, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                    "  \"title\": \"gradwright run file\",\n"
                    "  \"$comment\": \"Generated by `gradwright docs schema`.\",\n"
                    "  \"required\": [\"model\"],\n  ");
    schema_group("", 2, out);
    gw_str_add(out, "\n}\n");
}

// ------------------------------------------------------------------ keys.md

/* A cell of a Markdown table: '|' would end it. */
static void add_cell(gw_str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') gw_str_add_char(out, '\\');
        gw_str_add_char(out, *text);
    }
}

static void md_default(const gw_rf_key *k, gw_str *out) {
    if (!*k->fallback)
        gw_str_add(out, "none");
    else if (gw_rf_is_derived(k))
        add_cell(out, k->fallback + 2);
    else
        gw_str_printf(out, "`%s`", k->fallback);
}

static void md_key(const gw_rf_key *k, gw_str *out) {
    gw_str_printf(out, "| `%s` | ", k->path);
    gw_str value = {0};
    gw_rf_describe(k, &value);
    add_cell(out, gw_str_c(&value));
    gw_str_release(&value);
    if (*k->unit) gw_str_printf(out, " [%s]", k->unit);
    gw_str_add(out, " | ");
    md_default(k, out);
    gw_str_add(out, " | ");
    add_cell(out, k->meaning);
    if (*k->only) {
        gw_str_add(out, "; read only if ");
        add_cell(out, k->only);
    }
    gw_str_add(out, " |\n");
}

void gw_runfile_keys_md(gw_str *out) {
    gw_str_add(
        out, "<!-- Generated by `gradwright docs keys`. -->\n"
             "# Keys of a run file\n\n"
             "A run file is YAML 1.2: sections, and keys below them. `gradwright init` prints one "
             "that works, `gradwright config RUN.yaml` prints one as resolved, and `--set "
             "SECTION.KEY=VALUE` overrides a key on the command line. A key that is unknown, has a "
             "wrong type or an impossible value, or would have no effect in the configuration at "
             "hand, is refused with its line and column.\n");
    for (int g = 0; g < gw_rf_ngroups; g++) {
        gw_str_printf(out, "\n## %s\n\n%s\n\n", gw_rf_groups[g].path, gw_rf_groups[g].meaning);
        gw_str_add(out, "| key | value | default | meaning |\n|---|---|---|---|\n");
        for (int i = 0; i < gw_rf_nkeys; i++)
            if (in_group(gw_rf_keys[i].path, gw_rf_groups[g].path)) md_key(&gw_rf_keys[i], out);
    }
    gw_str_add(out, "\n## Names that other trainers use\n\n"
                    "These are refused with a hint at the key that means the same.\n\n"
                    "| there | here | note |\n|---|---|---|\n");
    for (int i = 0; i < gw_rf_naliases; i++)
        gw_str_printf(out,
                      *gw_rf_aliases[i].key ? "| `%s` | `%s` | %s |\n" : "| `%s` | %s- | %s |\n",
                      gw_rf_aliases[i].name, gw_rf_aliases[i].key, gw_rf_aliases[i].note);
}

// ------------------------------------------------------------------ words

void gw_runfile_key_words(const char *key, gw_str *out) {
    int i = gw_rf_key_find(key);
    if (i < 0) return;
    const gw_rf_key *k = &gw_rf_keys[i];
    if (k->type == GW_RF_T_BOOL) gw_str_add(out, "true false");
    if (k->check.word) gw_str_add(out, k->check.word);
    const char *preset;
    for (int j = 0; gw_str_eq(key, "model.preset") && (preset = gw_model_preset_name(j)); j++)
        gw_str_printf(out, "%s%s", j ? " " : "", preset);
    for (int j = 0; gw_str_eq(key, "model.preset") && (preset = gw_model_net_name(j)); j++)
        gw_str_printf(out, " %s", preset);
    for (const gw_rf_name *n = k->check.names; n && n->name; n++)
        gw_str_printf(out, "%s%s", n == k->check.names ? "" : " ", n->name);
}

bool gw_runfile_alias(int i, const char **name, const char **key) {
    if (i < 0 || i >= gw_rf_naliases) return false;
    *name = gw_rf_aliases[i].name;
    *key = gw_rf_aliases[i].key;
    return true;
}
