// SPDX-License-Identifier: Apache-2.0
// The run file as text again, and the references made from its table: JSON, JSON Schema, keys.md.
//
// `gradwright config` must print a file that is the same run when it is read again. So every key
// that has an effect is printed with its present value, derived ones included, and a key without
// effect (it would be refused) only as a comment that says what it hangs on.
#include <string.h> /* strlen, strchr */

#include "file/json.h"         /* gw_json_text_n */
#include "train/runfile_key.h" /* gw_rf_keys */

enum { VALUE_COLUMN = 34 };

// ------------------------------------------------------------------ YAML

/* A key that is printed with a value: it has an effect, and it has a value. */
static bool has_value(const gw_runfile *rf, int key) {
    const gw_rf_key *k = &gw_rf_keys[key];
    if (!gw_rf_effective(rf, key)) return false;
    if (k->type == GW_RF_T_TEXT) {
        const char *text;
        memcpy(&text, gw_rf_field_const(rf, k), sizeof text);
        return text != NULL;
    }
    if (k->type == GW_RF_T_MIXTURE) return rf->data.train.count > 0;
    if (k->type == GW_RF_T_STAGES) return rf->data.stages.count > 0;
    bool own = rf->model.source == GW_RF_PATH && gw_str_starts(k->path, "model.moe.");
    if (own || gw_str_eq(k->path, "model.family")) return rf->marks[key].set;
    return true;
}

static void add_comment(const gw_rf_key *k, gw_str *out) {
    gw_str_add(out, " # ");
    if (*k->unit) gw_str_printf(out, "[%s] ", k->unit);
    gw_str_add(out, k->meaning);
}

static void pad_to(gw_str *out, size_t line_start, size_t column) {
    while (out->len - line_start < column) gw_str_add_char(out, ' ');
}

/* What hangs on the number of ranks while that is open: printed, it would bind another number. */
static bool is_open(const gw_runfile *rf, int key) {
    static const char *const batch[] = {"train.micro_batch", "train.accumulate"};
    const char *path = gw_rf_keys[key].path;
    bool batch_given = rf->marks[gw_rf_key_find("train.global_batch")].set;
    if (!rf->dp_auto || rf->ranks > 0 || rf->marks[key].set) return false;
    for (size_t i = 0; i < GW_COUNT(batch); i++)
        if (gw_str_eq(path, batch[i])) return batch_given;
    return gw_str_eq(path, "train.global_batch");
}

static void yaml_value(const gw_runfile *rf, const gw_rf_key *k, gw_str *out) {
    if (gw_str_eq(k->path, "layout.dp") && rf->dp_auto && rf->ranks == 0)
        gw_str_add(out, "auto");
    else
        gw_rf_value_yaml(rf, k, out);
}

static void yaml_key(const gw_runfile *rf, int key, int depth, bool comments, gw_str *out) {
    const gw_rf_key *k = &gw_rf_keys[key];
    bool present = has_value(rf, key) && !is_open(rf, key);
    if (!present && !comments) return;
    size_t start = out->len;
    gw_str_printf(out, "%*s%s%s:", depth * 2, "", present ? "" : "# ", gw_rf_leaf(k->path));
    if (present) {
        gw_str_add_char(out, ' ');
        yaml_value(rf, k, out);
    }
    if (comments) {
        pad_to(out, start, VALUE_COLUMN);
        add_comment(k, out);
        if (!gw_rf_effective(rf, key)) gw_str_printf(out, " (only if %s)", k->only);
    }
    gw_str_add_char(out, '\n');
}

static int depth_of(const char *path) {
    int depth = 0;
    for (; *path; path++) depth += *path == '.';
    return depth;
}

static bool in_group(const char *key, const char *group) {
    size_t n = gw_rf_group_length(key);
    return n == strlen(group) && memcmp(key, group, n) == 0;
}

/* Has the group a key to print (not as a comment)? An empty map would not read back the same. */
static bool group_has_value(const gw_runfile *rf, const char *group) {
    for (int i = 0; i < gw_rf_nkeys; i++)
        if (gw_str_starts(gw_rf_keys[i].path, group) && gw_rf_keys[i].path[strlen(group)] == '.' &&
            has_value(rf, i))
            return true;
    return false;
}

/* Keys keep the table's order; a group inside a section opens where its first key stands and closes
 * where the section goes on. */
void gw_runfile_yaml(const gw_runfile *rf, bool comments, gw_str *out) {
    const char *open = "";
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const char *path = gw_rf_keys[i].path;
        for (int g = 0; g < gw_rf_ngroups; g++) {
            const gw_rf_group *group = &gw_rf_groups[g];
            if (!in_group(path, group->path) || gw_str_eq(open, group->path)) continue;
            bool reopened = strchr(open, '.') != NULL && !strchr(group->path, '.') &&
                            gw_str_starts(open, group->path);
            open = group->path;
            if (reopened) continue;
            bool any = group_has_value(rf, group->path);
            if (!any && !comments) continue;
            if (comments && !strchr(group->path, '.'))
                gw_str_printf(out, "%s# %s\n", i ? "\n" : "", group->meaning);
            gw_str_printf(out, "%*s%s%s:\n", depth_of(group->path) * 2, "", any ? "" : "# ",
                          gw_rf_leaf(group->path));
        }
        yaml_key(rf, i, depth_of(path), comments, out);
    }
}

// ------------------------------------------------------------------ JSON

typedef struct json_writer {
    const gw_runfile *rf;
    gw_str *out;
} json_writer;

static void newline(const json_writer *w, int indent) {
    gw_str_printf(w->out, "\n%*s", indent * 2, "");
}

static void json_name(const json_writer *w, const char *sep, const char *name, int indent) {
    gw_str_add(w->out, sep);
    newline(w, indent);
    gw_str_printf(w->out, "\"%s\": ", name);
}

/* The group's own keys in order, then the groups inside it. */
static void json_group(const json_writer *w, const char *group, int indent) {
    const char *sep = "";
    gw_str_add_char(w->out, '{');
    for (int i = 0; i < gw_rf_nkeys; i++) {
        if (!in_group(gw_rf_keys[i].path, group) || !has_value(w->rf, i)) continue;
        json_name(w, sep, gw_rf_leaf(gw_rf_keys[i].path), indent + 1);
        gw_rf_value_json(w->rf, &gw_rf_keys[i], w->out);
        sep = ",";
    }
    for (int g = 0; g < gw_rf_ngroups; g++) {
        const char *inner = gw_rf_groups[g].path;
        if (!in_group(inner, group) || !group_has_value(w->rf, inner)) continue;
        json_name(w, sep, gw_rf_leaf(inner), indent + 1);
        json_group(w, inner, indent + 1);
        sep = ",";
    }
    if (*sep) newline(w, indent);
    gw_str_add_char(w->out, '}');
}

void gw_runfile_json(const gw_runfile *rf, gw_str *out) {
    gw_str text = {0};
    const json_writer w = {rf, &text};
    json_group(&w, "", 0);
    gw_str_add_char(&text, '\n');
    /* A path is bytes, JSON is UTF-8. */
    json_t *clean = gw_json_text_n(gw_str_c(&text), text.len);
    gw_str_add(out, clean ? json_string_value(clean) : gw_str_c(&text));
    json_decref(clean);
    gw_str_release(&text);
}
