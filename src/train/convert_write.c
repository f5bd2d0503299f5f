// SPDX-License-Identifier: Apache-2.0
// The converted run file as text, its checks, and the conversion as JSON.
//
// Each value has a comment that says where it comes from; refused keys stand at the head. What the
// file would say in vain (a key that nothing reads in this configuration) is taken out before, and
// then the text is parsed as any run file is.
#include <string.h> /* memchr, strncmp */

#include "train/convert_impl.h" /* gw_cv */

// ------------------------------------------------------------------ the run file

static void add_section(const char *path, const char *last, gw_str *out) {
    size_t n = gw_rf_group_length(path);
    if (last && gw_rf_group_length(last) == n && strncmp(last, path, n) == 0) return;
    const char *dot = memchr(path, '.', n);
    size_t top = dot ? (size_t)(dot - path) : n;
    if (!last || strncmp(last, path, top + 1) != 0)
        gw_str_printf(out, "%s%.*s:\n", last ? "\n" : "", (int)top, path);
    if (dot) gw_str_printf(out, "  %.*s:\n", (int)(n - top - 1), dot + 1);
}

/* Text into a comment: what would end its line, or is no text, becomes a blank. */
static void add_comment(gw_str *out, const char *text) {
    for (; *text; text++)
        gw_str_add_char(out, (unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text);
}

static void add_value(const gw_cv_value *v, const char *path, gw_str *out) {
    const char *leaf = gw_rf_leaf(path);
    bool deep = memchr(path, '.', gw_rf_group_length(path)) != NULL;
    size_t start = out->len;
    gw_str_printf(out, "%s%s: %s", deep ? "    " : "  ", leaf, v->text);
    do gw_str_add_char(out, ' ');
    while (out->len - start < 36);
    gw_str_add(out, "# ");
    add_comment(out, v->set ? "--set" : v->of ? v->of->name : v->why);
    if (v->of) gw_str_printf(out, ", line %d", v->of->line);
    gw_str_add_char(out, '\n');
}

static void add_refusals(const gw_cv *c, gw_str *out) {
    for (int64_t i = 0; i < c->keys.count; i++) {
        const gw_cv_key *k = c->keys.items[i];
        if (k->fate != GW_CV_REFUSED) continue;
        gw_str_add(out, "# refused: ");
        add_comment(out, k->name);
        if (k->line) gw_str_printf(out, ", line %d", k->line);
        gw_str_add(out, ": ");
        add_comment(out, k->why);
        gw_str_add_char(out, '\n');
    }
}

static char *yaml_of(const gw_cv *c) {
    gw_str s = {0};
    const char *last = NULL;
    gw_str_printf(&s, GW_CONVERTED_MARK "%s.\n", c->format->name);
    add_refusals(c, &s);
    for (int i = 0; i < gw_rf_nkeys; i++) {
        if (!c->values[i].text) continue;
        add_section(gw_rf_keys[i].path, last, &s);
        last = gw_rf_keys[i].path;
        add_value(&c->values[i], last, &s);
    }
    char *out = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    return out;
}

/* Takes out what nothing would read in this configuration. Returns whether anything was. */
static bool drop_idle(gw_cv *c) {
    gw_runfile rf;
    gw_diags quiet;
    gw_diags_init(&quiet);
    const char *text = yaml_of(c);
    gw_status st = gw_runfile_parse_for(&rf, c->request->name, text, (int64_t)strlen(text), NULL, 0,
                                        c->request->world, &quiet);
    bool dropped = false, stood = st == GW_OK || quiet.nerrors > 0;
    for (int i = 0; i < gw_rf_nkeys && stood; i++) {
        gw_cv_value *v = &c->values[i];
        if (!v->text || v->set || gw_rf_effective(&rf, i)) continue;
        for (int64_t j = 0; j < c->keys.count; j++) {
            gw_cv_key *k = c->keys.items[j];
            if (k->fate != GW_CV_MAPPED || !gw_str_eq(k->ours, gw_rf_keys[i].path)) continue;
            k->fate = GW_CV_IMPLIED;
            k->why = gw_arena_printf(c->a, "%s would not be read: it is only if %s", k->ours,
                                     gw_rf_keys[i].only);
            k->ours = k->wrote = NULL;
        }
        *v = (gw_cv_value){0};
        dropped = true;
    }
    gw_runfile_release(&rf);
    gw_diags_release(&quiet);
    return dropped;
}

gw_status gw_cv_check_model(gw_cv *c) {
    static const char *const sources[] = {"model.family", "model.preset", "model.path"};
    for (size_t i = 0; i < GW_COUNT(sources); i++)
        if (gw_cv_ours(c, sources[i])) return GW_OK;
    gw_diag *g =
        gw_cv_error_at(c, NULL, "convert-model", "the file does not say which model is trained");
    gw_diag_hint(c->dg, g,
                 "name it: --model llama3-8b, --model DIR (Hugging Face), --model FILE.gguf");
    return GW_ERR_CONFIG;
}

static const char *batch_line(gw_cv *c, const gw_runfile *rf) {
    const gw_rf_train *t = &rf->train;
    if (!rf->dp_auto || rf->ranks > 0)
        return gw_arena_printf(
            c->a, "%lld sequences a step = micro-batch %lld x accumulate %lld x dp %lld",
            (long long)t->global_batch, (long long)t->micro_batch, (long long)t->accumulate,
            (long long)rf->layout.dp);
    bool global = gw_cv_ours(c, "train.global_batch") != NULL;
    return gw_arena_printf(
        c->a, "%s; dp follows from the ranks at the start (--world N settles it here)",
        global ? gw_arena_printf(c->a, "%lld sequences a step = micro-batch %lld x accumulate x dp",
                                 (long long)t->global_batch, (long long)t->micro_batch)
               : gw_arena_printf(c->a, "micro-batch %lld x accumulate %lld x dp sequences a step",
                                 (long long)t->micro_batch, (long long)t->accumulate));
}

/* What a run hangs on and nothing has said. */
static const char *left_line(gw_cv *c, const gw_runfile *rf) {
    static const char *const keys[] = {"train.steps", "train.seq_len", "optimizer.lr"};
    gw_str s = {0};
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        if (gw_cv_ours(c, keys[i])) continue;
        gw_str_printf(&s, "%s%s ", s.len ? ", " : "", keys[i]);
        gw_rf_value_yaml(rf, &gw_rf_keys[gw_rf_key_find(keys[i])], &s);
    }
    if (!gw_cv_ours(c, "data.train")) gw_str_printf(&s, "%sno data.train", s.len ? ", " : "");
    const char *out = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    return out;
}

gw_status gw_cv_check_file(gw_cv *c, gw_conversion *out) {
    gw_runfile rf;
    for (int round = 0; round < 6 && drop_idle(c); round++) {}
    out->yaml = yaml_of(c);
    gw_status st =
        gw_runfile_parse_for(&rf, "the run file made of it", out->yaml, (int64_t)strlen(out->yaml),
                             NULL, 0, c->request->world, c->dg);
    if (st == GW_OK) out->batch = batch_line(c, &rf);
    if (st == GW_OK) out->left = left_line(c, &rf);
    if (st != GW_OK) gw_diag_frame(c->dg, "checking the run file made of %s", c->request->name);
    gw_runfile_release(&rf);
    return st;
}

// ------------------------------------------------------------------ JSON

static json_t *text_or_null(const char *s) { return s ? json_string(s) : json_null(); }

static json_t *key_json(const gw_cv_key *k) {
    json_t *j = json_object();
    json_object_set_new(j, "key", text_or_null(k->name));
    json_object_set_new(j, "value", text_or_null(k->text));
    json_object_set_new(j, "line", k->line ? json_integer(k->line) : json_null());
    json_object_set_new(j, "column", k->line ? json_integer(k->column) : json_null());
    json_object_set_new(j, "fate", json_string(gw_cv_fate_name(k->fate)));
    json_object_set_new(j, "ours", text_or_null(k->ours));
    json_object_set_new(j, "written", text_or_null(k->wrote));
    json_object_set_new(j, "why", text_or_null(k->why));
    json_object_set_new(j, "instead", text_or_null(k->instead));
    return j;
}

json_t *gw_conversion_json(const gw_conversion *c) {
    json_t *keys = json_array(), *extras = json_array();
    for (int i = 0; i < c->nkeys; i++) json_array_append_new(keys, key_json(&c->keys[i]));
    for (int i = 0; i < c->nextras; i++)
        json_array_append_new(extras,
                              json_pack("{s:s, s:s, s:s}", "ours", c->extras[i].ours, "written",
                                        c->extras[i].wrote, "why", c->extras[i].why));
    json_t *j = json_object();
    json_object_set_new(j, "format", text_or_null(c->format));
    json_object_set_new(j, "file", text_or_null(c->name));
    json_object_set_new(j, "mapped", json_integer(c->mapped));
    json_object_set_new(j, "implied", json_integer(c->implied));
    json_object_set_new(j, "refused", json_integer(c->refused));
    json_object_set_new(j, "keys", keys);
    json_object_set_new(j, "besides", extras);
    json_object_set_new(j, "batch", text_or_null(c->batch));
    json_object_set_new(j, "left", text_or_null(c->left));
    json_object_set_new(j, "run_file", text_or_null(c->yaml));
    return j;
}
