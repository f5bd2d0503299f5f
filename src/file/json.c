// SPDX-License-Identifier: Apache-2.0
// JSON: a thin layer over jansson.
//
// Most public formats here carry JSON (safetensors headers, config.json, tokenizer.json, index
// files). jansson parses it; this file adds what every caller would otherwise repeat: duplicate
// keys refused, the position of a syntax error as file, line and column, getters that say which key
// of which file has the wrong type, and writing through a temporary name.
//
// Numbers need one decision. jansson keeps 64-bit integers and fails on larger ones, but real files
// hold such numbers where nobody uses them (tokenizer_config.json writes model_max_length as
// 10^30). So a parse that fails only for that reason is repeated with every number as a double, and
// the integer getters accept doubles that are exact integers below 2^53. Nothing is rounded
// silently.
//
// jansson counts a column in characters (not bytes) from the start of the line.
#include "file/json.h" /* this module's contract */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"  /* gw_file_read, gw_file_write_atomic */
#include "base/str.h" /* gw_str */

static const int64_t default_max_bytes = INT64_C(1) << 30;

static gw_status report_syntax(const json_error_t *e, const char *name, gw_diags *dg) {
    gw_where where = {name, e->line > 0 ? e->line : 0, e->column > 0 ? e->column : 0};
    if (json_error_code(e) == json_error_duplicate_key)
        return gw_fail_at(dg, GW_ERR_FORMAT, "json-duplicate-key", where,
                          "the key ending here stands twice in its object: %s", e->text);
    return gw_fail_at(dg, GW_ERR_FORMAT, "json-syntax", where, "not valid JSON: %s", e->text);
}

gw_status gw_json_parse(const char *text, size_t n, const char *name, json_t **out, gw_diags *dg) {
    *out = NULL;
    json_error_t e;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_t *v = json_loadb(text, n, flags, &e);
    if (!v && json_error_code(&e) == json_error_numeric_overflow)
        v = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &e);
    if (!v) return report_syntax(&e, name, dg);
    *out = v;
    return GW_OK;
}

gw_status gw_json_read_file(const char *path, int64_t max_bytes, json_t **out, gw_diags *dg) {
    *out = NULL;
    gw_str text = {0};
    gw_status s = gw_file_read(path, max_bytes > 0 ? max_bytes : default_max_bytes, &text, dg);
    if (s == GW_OK) s = gw_json_parse(gw_str_c(&text), text.len, path, out, dg);
    gw_str_release(&text);
    return s;
}

static int add_to_str(const char *bytes, size_t n, void *user) {
    gw_str_add_n(user, bytes, n);
    return 0;
}

/* The fewest digits, from 15 to 17, with which every real in `v` reads back as it is: 0.1 is
 * written as 0.1 unless a neighbour needs all 17. */
static size_t digits_needed(const json_t *v) {
    size_t most = 15;
    if (json_is_real(v)) {
        char text[40];
        for (; most < 17; most++) {
            snprintf(text, sizeof text, "%.*g", (int)most, json_real_value(v));
            if (strtod(text, NULL) == json_real_value(v)) break;
        }
        return most;
    }
    json_t *o = (json_t *)(uintptr_t)v;
    for (size_t i = 0; i < json_array_size(v); i++)
        most = GW_MAX(most, digits_needed(json_array_get(v, i)));
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        most = GW_MAX(most, digits_needed(json_object_iter_value(it)));
    return most;
}

gw_status gw_json_write_file(const char *path, const json_t *value, int indent, gw_diags *dg) {
    gw_str text = {0};
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_needed(value));
    flags |= indent > 0 ? JSON_INDENT((size_t)(indent > 31 ? 31 : indent)) : JSON_COMPACT;
    gw_status s;
    if (json_dump_callback(value, add_to_str, &text, flags) != 0) {
        s = GW_FAIL(dg, GW_ERR_FORMAT, "json-write", "cannot express the content of '%s' as JSON",
                    path);
    } else {
        gw_str_add_char(&text, '\n');
        s = gw_file_write_atomic(path, text.data, (int64_t)text.len, dg);
    }
    gw_str_release(&text);
    return s;
}

/* Bytes at the beginning of `text` that are one character; 0: they are none. */
static size_t character(const char *text, size_t left) {
    for (size_t n = 1; n <= 4 && n <= left; n++) {
        json_t *v = json_stringn(text, n);
        json_decref(v);
        if (v) return n;
    }
    return 0;
}

json_t *gw_json_text_n(const char *text, size_t n) {
    json_t *whole = json_stringn(text, n);
    if (whole) return whole;
    gw_str s = {0};
    while (n > 0) {
        size_t k = character(text, n), step = GW_MAX(k, (size_t)1);
        gw_str_add_n(&s, k > 0 ? text : "\xef\xbf\xbd", k > 0 ? k : 3);
        text += step;
        n -= step;
    }
    whole = json_stringn(gw_str_c(&s), s.len);
    gw_str_release(&s);
    return whole;
}

json_t *gw_json_text(const char *text) { return gw_json_text_n(text, strlen(text)); }

const char *gw_json_type_name(const json_t *v) {
    if (!v) return "absent";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL: return "number";
    case JSON_TRUE:
    case JSON_FALSE: return "boolean";
    case JSON_NULL: return "null";
    }
    return "unknown";
}

bool gw_json_as_i64(const json_t *v, int64_t *out) {
    if (json_is_integer(v)) {
        *out = (int64_t)json_integer_value(v);
        return true;
    }
    if (!json_is_real(v)) return false;
    double x = json_real_value(v);
    if (!(fabs(x) < 9007199254740992.0) || x != floor(x)) return false;
    *out = (int64_t)x;
    return true;
}

static gw_status wrong_type(const json_t *v, const char *key, const char *want, const char *file,
                            gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "json-type", (gw_where){.file = file},
                      "'%s' must be %s, not %s", key, want, gw_json_type_name(v));
}

/* The value under key, or NULL when it is absent or null. */
static const json_t *present(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

gw_status gw_json_get_i64(const json_t *obj, const char *key, int64_t def, int64_t *out,
                          const char *file, gw_diags *dg) {
    const json_t *v = present(obj, key);
    *out = def;
    if (v && !gw_json_as_i64(v, out)) return wrong_type(v, key, "an integer", file, dg);
    return GW_OK;
}

gw_status gw_json_get_f64(const json_t *obj, const char *key, double def, double *out,
                          const char *file, gw_diags *dg) {
    const json_t *v = present(obj, key);
    *out = def;
    if (!v) return GW_OK;
    if (!json_is_number(v)) return wrong_type(v, key, "a number", file, dg);
    *out = json_number_value(v);
    return GW_OK;
}

gw_status gw_json_get_bool(const json_t *obj, const char *key, bool def, bool *out,
                           const char *file, gw_diags *dg) {
    const json_t *v = present(obj, key);
    *out = def;
    if (!v) return GW_OK;
    if (!json_is_boolean(v)) return wrong_type(v, key, "true or false", file, dg);
    *out = json_is_true(v);
    return GW_OK;
}

gw_status gw_json_get_str(const json_t *obj, const char *key, const char *def, const char **out,
                          const char *file, gw_diags *dg) {
    const json_t *v = present(obj, key);
    *out = def;
    if (!v) return GW_OK;
    if (!json_is_string(v)) return wrong_type(v, key, "a string", file, dg);
    const char *text = json_string_value(v);
    if (strlen(text) != json_string_length(v))
        return gw_fail_at(dg, GW_ERR_FORMAT, "json-type", (gw_where){.file = file},
                          "'%s' must not hold a NUL character", key);
    *out = text;
    return GW_OK;
}

static gw_status need(const json_t *obj, const char *key, const char *file, gw_diags *dg) {
    if (present(obj, key)) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "json-missing", (gw_where){.file = file},
                      "'%s' is missing%s", key, json_object_get(obj, key) ? " (it is null)" : "");
}

gw_status gw_json_need_i64(const json_t *obj, const char *key, int64_t *out, const char *file,
                           gw_diags *dg) {
    *out = 0;
    GW_TRY(need(obj, key, file, dg));
    return gw_json_get_i64(obj, key, 0, out, file, dg);
}

gw_status gw_json_need_f64(const json_t *obj, const char *key, double *out, const char *file,
                           gw_diags *dg) {
    *out = 0;
    GW_TRY(need(obj, key, file, dg));
    return gw_json_get_f64(obj, key, 0, out, file, dg);
}

gw_status gw_json_need_str(const json_t *obj, const char *key, const char **out, const char *file,
                           gw_diags *dg) {
    *out = NULL;
    GW_TRY(need(obj, key, file, dg));
    return gw_json_get_str(obj, key, NULL, out, file, dg);
}

gw_status gw_json_get_object(const json_t *obj, const char *key, const json_t **out,
                             const char *file, gw_diags *dg) {
    *out = present(obj, key);
    if (!*out || json_is_object(*out)) return GW_OK;
    const json_t *v = *out;
    *out = NULL;
    return wrong_type(v, key, "an object", file, dg);
}

gw_status gw_json_get_array(const json_t *obj, const char *key, const json_t **out,
                            const char *file, gw_diags *dg) {
    *out = present(obj, key);
    if (!*out || json_is_array(*out)) return GW_OK;
    const json_t *v = *out;
    *out = NULL;
    return wrong_type(v, key, "an array", file, dg);
}
