// SPDX-License-Identifier: Apache-2.0
// Reading, writing and using a calibration file (calibration.h).
//
// A choice of algorithm must be the same on every rank and in every plan, so it is not measured at
// start-up: it is read from a file that was. The file holds curves of seconds over bytes, one for
// each kind, algorithm, wire, dtype and number of ranks. Times between two measured sizes are
// interpolated on logarithmic axes, where a latency followed by a bandwidth is nearly two straight
// lines. What was not measured is estimated by the algorithm's own formula, which the file's rates
// feed.
//
// The file comes from outside: every number is checked to be in range, curves to rise, names to be
// known, and duplicates are refused, with the key that is wrong.
#include "comm/calibration.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h> /* free */
#include <string.h>

#include "base/io.h"        /* gw_file_read */
#include "base/output.h"    /* gw_output_write */
#include "comm/algorithm.h" /* gw_algorithm_find */

#define VERSION    1
#define MAX_POINTS 256
#define MAX_CURVES 4096
#define MAX_BYTES  ((int64_t)16 << 20) /* of a file */

/* ---- reading ---- */

typedef struct reader {
    const char *path;
    gw_arena *a;
    gw_diags *dg;
} reader;

static gw_status bad(const reader *r, const char *what) {
    gw_where at = {.file = r->path};
    gw_fail_at(r->dg, GW_ERR_FORMAT, "calibration-format", at, "%s", what);
    return GW_ERR_FORMAT;
}

static gw_status bad_key(const reader *r, const char *where, const char *key, const char *wants) {
    gw_where at = {.file = r->path};
    gw_fail_at(r->dg, GW_ERR_FORMAT, "calibration-format", at, "%s.%s must be %s", where, key,
               wants);
    return GW_ERR_FORMAT;
}

/* Every key of `o` is one of `known` (space-separated, with spaces around). */
static gw_status only_keys(const reader *r, const json_t *o, const char *where, const char *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        char *want = gw_arena_printf(r->a, " %s ", key);
        if (!strstr(known, want)) return bad_key(r, where, key, "absent: there is no such key");
    }
    return GW_OK;
}

static gw_status need_integer(const reader *r, const json_t *o, const char *where, const char *key,
                              int64_t least, int64_t most, int64_t *out) {
    const json_t *v = json_object_get(o, key);
    *out = json_integer_value(v);
    if (json_is_integer(v) && *out >= least && *out <= most) return GW_OK;
    return bad_key(r, where, key,
                   gw_arena_printf(r->a, "a whole number from %lld to %lld", (long long)least,
                                   (long long)most));
}

static gw_status need_text(const reader *r, const json_t *o, const char *where, const char *key,
                           const char **out) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_string(v)) return bad_key(r, where, key, "a text");
    *out = gw_arena_strdup(r->a, json_string_value(v));
    return GW_OK;
}

/* Seconds, or bytes a second, that no machine exceeds: what is made of them stays finite. */
#define LARGEST 1e15

static bool positive(const json_t *v, double *out) {
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out) && *out > 0.0 && *out <= LARGEST;
}

static gw_status need_rate(const reader *r, const json_t *o, const char *key, double *out) {
    if (positive(json_object_get(o, key), out)) return GW_OK;
    return bad_key(r, "rates", key, "a number above 0, at most 1e15");
}

static gw_status read_rates(const reader *r, const json_t *root, gw_calibration *c) {
    const json_t *o = json_object_get(root, "rates");
    if (!json_is_object(o)) return bad(r, "'rates' is not there, or is no object");
    GW_TRY(only_keys(r, o, "rates", " latency_s bytes_per_s copy_bytes_per_s sum_bytes_per_s "));
    GW_TRY(need_rate(r, o, "latency_s", &c->latency_s));
    GW_TRY(need_rate(r, o, "bytes_per_s", &c->bytes_per_s));
    GW_TRY(need_rate(r, o, "copy_bytes_per_s", &c->copy_bytes_per_s));
    return need_rate(r, o, "sum_bytes_per_s", &c->sum_bytes_per_s);
}

static gw_status read_machine(const reader *r, const json_t *root, gw_calibration *c) {
    const json_t *o = json_object_get(root, "machine");
    int64_t cores, threads;
    if (!json_is_object(o)) return bad(r, "'machine' is not there, or is no object");
    GW_TRY(only_keys(r, o, "machine", " cpu cores threads "));
    GW_TRY(need_text(r, o, "machine", "cpu", &c->cpu));
    GW_TRY(need_integer(r, o, "machine", "cores", 1, 1 << 20, &cores));
    GW_TRY(need_integer(r, o, "machine", "threads", 1, 1 << 20, &threads));
    c->cores = (int)cores, c->threads = (int)threads;
    return GW_OK;
}

static gw_status read_points(const reader *r, const json_t *o, const char *where,
                             gw_calibration_curve *x) {
    const json_t *bytes = json_object_get(o, "bytes"), *seconds = json_object_get(o, "seconds");
    size_t n = json_array_size(bytes);
    if (n < 1 || n > MAX_POINTS) return bad_key(r, where, "bytes", "an array of 1 to 256 sizes");
    if (json_array_size(seconds) != n)
        return bad_key(r, where, "seconds", "an array as long as bytes");
    int64_t *b = gw_arena_new(r->a, int64_t, n);
    double *s = gw_arena_new(r->a, double, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(bytes, i);
        b[i] = json_integer_value(v);
        if (!json_is_integer(v) || b[i] <= (i ? b[i - 1] : 0))
            return bad_key(r, where, "bytes", "whole numbers above 0, each above the last");
        if (!positive(json_array_get(seconds, i), &s[i]))
            return bad_key(r, where, "seconds", "numbers above 0, at most 1e15");
    }
    x->npoints = (int)n, x->bytes = b, x->seconds = s;
    return GW_OK;
}

static bool find_kind(const char *text, gw_coll_kind *out) {
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        *out = (gw_coll_kind)k;
        if (strcmp(gw_coll_kind_name(*out), text) == 0) return true;
    }
    return false;
}

static bool find_wire(const char *text, gw_wire *out) {
    for (int k = 0; k < GW_WIRE_COUNT; k++) {
        *out = (gw_wire)k;
        if (strcmp(gw_wire_name(*out), text) == 0) return true;
    }
    return false;
}

static gw_status read_curve(const reader *r, const json_t *o, const char *where,
                            gw_calibration_curve *x) {
    const char *kind, *wire, *dtype;
    if (!json_is_object(o)) return bad(r, gw_arena_printf(r->a, "%s is no object", where));
    GW_TRY(only_keys(r, o, where, " kind algorithm wire dtype ranks bytes seconds "));
    GW_TRY(need_text(r, o, where, "kind", &kind));
    GW_TRY(need_text(r, o, where, "algorithm", &x->algorithm));
    GW_TRY(need_text(r, o, where, "wire", &wire));
    GW_TRY(need_text(r, o, where, "dtype", &dtype));
    GW_TRY(need_integer(r, o, where, "ranks", 1, 1 << 24, &x->ranks));
    if (!find_kind(kind, &x->kind)) return bad_key(r, where, "kind", "a kind of collective");
    if (!gw_algorithm_find(x->algorithm))
        return bad_key(r, where, "algorithm", "the name of an algorithm");
    if (!find_wire(wire, &x->wire)) return bad_key(r, where, "wire", "a wire format");
    if (!gw_dtype_parse(dtype, &x->dtype)) return bad_key(r, where, "dtype", "an element type");
    return read_points(r, o, where, x);
}

static bool same_curve(const gw_calibration_curve *a, const gw_calibration_curve *b) {
    return a->kind == b->kind && a->wire == b->wire && a->dtype == b->dtype &&
           a->ranks == b->ranks && strcmp(a->algorithm, b->algorithm) == 0;
}

static gw_status read_curves(const reader *r, const json_t *root, gw_calibration *c) {
    const json_t *all = json_object_get(root, "times");
    size_t n = json_array_size(all);
    if (!json_is_array(all) || n > MAX_CURVES) return bad(r, "'times' must be an array");
    gw_calibration_curve *x = gw_arena_new(r->a, gw_calibration_curve, n + 1);
    for (size_t i = 0; i < n; i++) {
        const char *where = gw_arena_printf(r->a, "times[%zu]", i);
        GW_TRY(read_curve(r, json_array_get(all, i), where, &x[i]));
        for (size_t j = 0; j < i; j++)
            if (same_curve(&x[i], &x[j]))
                return bad(r, gw_arena_printf(r->a, "times[%zu] repeats times[%zu]", i, j));
    }
    c->ncurves = (int)n, c->curves = x;
    return GW_OK;
}

static gw_status read_root(const reader *r, const json_t *root, gw_calibration *c) {
    int64_t version;
    if (!json_is_object(root)) return bad(r, "a calibration file is one object");
    GW_TRY(only_keys(r, root, "file", " version machine rates times local "));
    GW_TRY(need_integer(r, root, "file", "version", VERSION, VERSION, &version));
    GW_TRY(read_machine(r, root, c));
    GW_TRY(read_rates(r, root, c));
    return read_curves(r, root, c);
}

gw_status gw_calibration_read(const char *path, gw_calibration *out, gw_arena *a, gw_diags *dg) {
    gw_str text = {0};
    json_error_t e;
    *out = (gw_calibration){0};
    gw_status s = gw_file_read(path, MAX_BYTES, &text, dg);
    if (s != GW_OK) {
        gw_str_release(&text);
        return s;
    }
    json_t *root = json_loadb(gw_str_c(&text), text.len, JSON_REJECT_DUPLICATES, &e);
    gw_str_release(&text);
    if (!root) {
        gw_where at = {.file = path, .line = e.line, .column = e.column};
        return gw_fail_at(dg, GW_ERR_FORMAT, "calibration-format", at, "not JSON: %s", e.text);
    }
    reader r = {gw_arena_strdup(a, path), a, dg};
    s = read_root(&r, root, out);
    json_decref(root);
    return s;
}

/* ---- writing ---- */

static json_t *curve_json(const gw_calibration_curve *x) {
    json_t *bytes = json_array(), *seconds = json_array();
    for (int i = 0; i < x->npoints; i++) {
        json_array_append_new(bytes, json_integer(x->bytes[i]));
        json_array_append_new(seconds, json_real(x->seconds[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "kind", gw_coll_kind_name(x->kind),
                     "algorithm", x->algorithm, "wire", gw_wire_name(x->wire), "dtype",
                     gw_dtype_name(x->dtype), "ranks", (json_int_t)x->ranks, "bytes", bytes,
                     "seconds", seconds);
}

gw_status gw_calibration_write(const char *path, FILE *standard, const gw_calibration *c,
                               gw_diags *dg) {
    json_t *times = json_array();
    for (int i = 0; i < c->ncurves; i++) json_array_append_new(times, curve_json(&c->curves[i]));
    json_t *root =
        json_pack("{s:i, s:{s:s, s:i, s:i}, s:{s:f, s:f, s:f, s:f}, s:o}", "version", VERSION,
                  "machine", "cpu", c->cpu, "cores", c->cores, "threads", c->threads, "rates",
                  "latency_s", c->latency_s, "bytes_per_s", c->bytes_per_s, "copy_bytes_per_s",
                  c->copy_bytes_per_s, "sum_bytes_per_s", c->sum_bytes_per_s, "times", times);
    if (root && c->local) (void)json_object_set_new(root, "local", json_loads(c->local, 0, NULL));
    size_t indent = c->local ? JSON_COMPACT : JSON_INDENT(1); /* thousands of numbers */
    char *text = root ? json_dumps(root, indent | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!text)
        return GW_FAIL(dg, GW_ERR_FORMAT, "calibration-format",
                       "the calibration cannot be written as JSON: the processor's name is not "
                       "UTF-8, or a time is not finite");
    gw_status s = gw_output_write(path, standard, text, (int64_t)strlen(text), dg);
    free(text);
    return s;
}

/* ---- using ---- */

void gw_calibration_apply(const gw_calibration *c, gw_coll_machine *m) {
    m->latency_s = c->latency_s;
    m->bytes_per_s = c->bytes_per_s;
    m->copy_bytes_per_s = c->copy_bytes_per_s;
    m->sum_bytes_per_s = c->sum_bytes_per_s;
    m->calibration = c;
}

static double on_curve(const gw_calibration_curve *x, int64_t bytes) {
    int last = x->npoints - 1, i = 0;
    if (bytes <= x->bytes[0]) return x->seconds[0];
    if (bytes >= x->bytes[last]) return x->seconds[last] * (double)bytes / (double)x->bytes[last];
    while (x->bytes[i + 1] < bytes) i++;
    double t = log((double)bytes / (double)x->bytes[i]) /
               log((double)x->bytes[i + 1] / (double)x->bytes[i]);
    return exp(log(x->seconds[i]) * (1.0 - t) + log(x->seconds[i + 1]) * t);
}

double gw_calibration_seconds(const gw_calibration *c, const gw_coll *coll, const char *algorithm) {
    gw_calibration_curve want = {.kind = coll->kind,
                                 .algorithm = algorithm,
                                 .wire = coll->wire,
                                 .dtype = coll->dtype,
                                 .ranks = coll->size};
    for (int i = 0; i < c->ncurves; i++)
        if (same_curve(&c->curves[i], &want)) return on_curve(&c->curves[i], gw_coll_bytes(coll));
    return -1.0;
}
