// SPDX-License-Identifier: Apache-2.0
// The member "local" of a calibration file: reading, checking and writing what calibrate.h
// describes, and whose it is.
//
// The file comes from outside, as comm/calibration.c has it: numbers must be in range and finite,
// arrays of the length that they should have; what is wrong is named with its place. A file says
// which machine it is of (host, processor, cores), since the times of one machine are wrong on
// another, and quietly so.
#include <jansson.h>
#include <math.h>
#include <sched.h> /* sched_getaffinity */
#include <stdio.h>
#include <stdlib.h> /* free */
#include <string.h>
#include <unistd.h> /* gethostname */

#include "base/io.h"  /* gw_file_read */
#include "base/str.h" /* gw_str */
#include "plan/calibrate.h"

enum { MOST_FILE = 64 << 20, MOST_RATES = 1 << 18, NUMBERS = GW_TIMING_DIMS + 3 };

typedef struct reader {
    const char *path;
    gw_arena *a;
    gw_diags *dg;
} reader;

static gw_status bad(const reader *r, const char *where, const char *wants) {
    gw_diag *d = gw_diag_add(r->dg, GW_ERROR, GW_ERR_FORMAT, "calibration-format",
                             (gw_where){.file = r->path}, "%s must be %s", where, wants);
    gw_diag_hint(r->dg, d, "write it again with `gradwright calibrate`");
    return GW_ERR_FORMAT;
}

static gw_status text_of(const reader *r, const json_t *o, const char *key, const char **out) {
    const char *s = json_string_value(json_object_get(o, key));
    if (!s) return bad(r, key, "a text");
    *out = gw_arena_strdup(r->a, s);
    return GW_OK;
}

/* A number from `least` to 1e18. */
static bool number_in(const json_t *v, double least, double *out) {
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out) && *out >= least && *out <= 1e18;
}

static gw_status number_of(const reader *r, const json_t *o, const char *key, double *out) {
    return number_in(json_object_get(o, key), 0, out) ? GW_OK
                                                      : bad(r, key, "a number, not below 0");
}

static gw_status rate_of(const reader *r, const json_t *o, const char *key, double *out) {
    return number_in(json_object_get(o, key), 1, out) ? GW_OK : bad(r, key, "a number, at least 1");
}

static gw_status count_of(const reader *r, const json_t *o, const char *key, int *out) {
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1 || n > 1 << 20) return bad(r, key, "a number above 0");
    *out = (int)n;
    return GW_OK;
}

static gw_status read_sides(const reader *r, const json_t *local, gw_timings *out) {
    const json_t *all = json_object_get(local, "sides");
    size_t n = json_array_size(all);
    if (n < 1 || n > GW_TIMING_SIDES) return bad(r, "local.sides", "an array of 1 to 16 objects");
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(all, i);
        gw_timing_side *s = &out->sides[i];
        GW_TRY(count_of(r, o, "ranks", &s->ranks));
        GW_TRY(count_of(r, o, "threads", &s->threads));
        GW_TRY(number_of(r, o, "step_s", &s->step_s));
        GW_TRY(number_of(r, o, "op_s", &s->op_s));
    }
    out->nsides = (int)n;
    return GW_OK;
}

/* [x.., work, seconds, runs] */
static gw_status read_time(const reader *r, const json_t *v, gw_timing *x) {
    double n[NUMBERS];
    bool ok = json_array_size(v) == NUMBERS;
    for (size_t i = 0; ok && i < NUMBERS; i++)
        ok = number_in(json_array_get(v, i), i == NUMBERS - 2 ? 1e-12 : 1, &n[i]);
    if (!ok)
        return bad(r, "an entry of local.shapes[].times",
                   "four extents, work, seconds above 0 and the number of runs");
    for (int i = 0; i < GW_TIMING_DIMS; i++) x->shape.x[i] = n[i];
    x->shape.work = n[GW_TIMING_DIMS];
    x->seconds = n[GW_TIMING_DIMS + 1];
    x->runs = (int)fmin(n[GW_TIMING_DIMS + 2], 1e9);
    return GW_OK;
}

static gw_status read_group(const reader *r, const json_t *o, gw_timings *out) {
    gw_timing like = {0};
    const char *types;
    const json_t *times = json_object_get(o, "times");
    GW_TRY(text_of(r, o, "op", &like.op));
    GW_TRY(text_of(r, o, "kernel", &like.kernel));
    GW_TRY(text_of(r, o, "types", &types));
    GW_TRY(count_of(r, o, "ranks", &like.ranks));
    snprintf(like.shape.types, sizeof like.shape.types, "%s", types);
    for (size_t i = 0; i < json_array_size(times); i++) {
        out->timings[out->n] = like;
        GW_TRY(read_time(r, json_array_get(times, i), &out->timings[out->n]));
        out->n++;
    }
    return GW_OK;
}

static gw_status read_shapes(const reader *r, const json_t *local, gw_timings *out) {
    const json_t *all = json_object_get(local, "shapes");
    size_t total = 0;
    if (!json_is_array(all)) return bad(r, "local.shapes", "an array");
    for (size_t i = 0; i < json_array_size(all); i++)
        total += json_array_size(json_object_get(json_array_get(all, i), "times"));
    if (total < 1 || total > MOST_RATES) return bad(r, "local.shapes", "1 to 262144 times");
    out->timings = gw_arena_new(r->a, gw_timing, (int64_t)total);
    for (size_t i = 0; i < json_array_size(all); i++)
        GW_TRY(read_group(r, json_array_get(all, i), out));
    gw_timings_sort(out);
    return GW_OK;
}

static gw_status read_data(const reader *r, const json_t *local, gw_timings *out) {
    const json_t *o = json_object_get(local, "data");
    if (!o) return GW_OK;
    GW_TRY(rate_of(r, o, "tokenize_bytes_per_s", &out->data.tokenize_bytes_per_s));
    GW_TRY(rate_of(r, o, "pipeline_bytes_per_s", &out->data.pipeline_bytes_per_s));
    GW_TRY(rate_of(r, o, "loader_tokens_per_s", &out->data.loader_tokens_per_s));
    out->data.source =
        gw_arena_printf(r->a, "measured on %s on %s (%s)", out->host, out->date, out->cpu);
    return GW_OK;
}

static gw_status read_local(const reader *r, const json_t *root, gw_timings *out) {
    const json_t *o = json_object_get(root, "local");
    if (!json_is_object(o))
        return bad(r, "'local'", "an object: this file has times of collectives alone");
    GW_TRY(text_of(r, o, "host", &out->host));
    GW_TRY(text_of(r, o, "cpu", &out->cpu));
    GW_TRY(text_of(r, o, "isa", &out->isa));
    GW_TRY(text_of(r, o, "date", &out->date));
    GW_TRY(text_of(r, o, "version", &out->version));
    GW_TRY(count_of(r, o, "cores", &out->cores));
    GW_TRY(number_of(r, o, "memory_bytes", &out->memory_bytes));
    GW_TRY(number_of(r, o, "memory_bytes_per_s", &out->memory_bytes_per_s));
    GW_TRY(number_of(r, o, "storage_read", &out->storage_read));
    GW_TRY(number_of(r, o, "storage_write", &out->storage_write));
    GW_TRY(read_data(r, o, out));
    GW_TRY(read_sides(r, o, out));
    return read_shapes(r, o, out);
}

static gw_status load(const char *path, json_t **out, gw_diags *dg) {
    gw_str text = {0};
    json_error_t e;
    *out = NULL;
    gw_status st = gw_file_read(path, MOST_FILE, &text, dg);
    if (st == GW_OK) *out = json_loadb(gw_str_c(&text), text.len, JSON_REJECT_DUPLICATES, &e);
    gw_str_release(&text);
    if (st != GW_OK || *out) return st;
    gw_where at = {.file = path, .line = e.line, .column = e.column};
    return gw_fail_at(dg, GW_ERR_FORMAT, "calibration-format", at, "not JSON: %s", e.text);
}

gw_status gw_timings_read(const char *path, gw_arena *a, gw_timings *out, gw_diags *dg) {
    json_t *root = NULL;
    reader r = {gw_arena_strdup(a, path), a, dg};
    memset(out, 0, sizeof *out);
    GW_TRY(gw_calibration_read(path, &out->comm, a, dg));
    GW_TRY(load(path, &root, dg));
    out->path = r.path;
    gw_status st = read_local(&r, root, out);
    json_decref(root);
    return st;
}

/* ---- writing ---- */

static json_t *time_json(const gw_timing *x) {
    json_t *v = json_array();
    for (int i = 0; i < GW_TIMING_DIMS; i++) json_array_append_new(v, json_real(x->shape.x[i]));
    json_array_append_new(v, json_real(x->shape.work));
    json_array_append_new(v, json_real(x->seconds));
    json_array_append_new(v, json_integer(x->runs));
    return v;
}

static bool same_group(const gw_timing *a, const gw_timing *b) {
    return a->ranks == b->ranks && strcmp(a->op, b->op) == 0 && strcmp(a->kernel, b->kernel) == 0 &&
           strcmp(a->shape.types, b->shape.types) == 0;
}

static json_t *shapes_json(const gw_timings *r) {
    json_t *all = json_array(), *times = NULL;
    for (int i = 0; i < r->n; i++) {
        const gw_timing *x = &r->timings[i];
        if (i == 0 || !same_group(x, x - 1)) {
            times = json_array();
            json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:i, s:o}", "op", x->op, "kernel",
                                                 x->kernel, "types", x->shape.types, "ranks",
                                                 x->ranks, "times", times));
        }
        json_array_append_new(times, time_json(x));
    }
    return all;
}

static json_t *sides_json(const gw_timings *r) {
    json_t *all = json_array();
    for (int i = 0; i < r->nsides; i++) {
        const gw_timing_side *s = &r->sides[i];
        json_array_append_new(all, json_pack("{s:i, s:i, s:f, s:f}", "ranks", s->ranks, "threads",
                                             s->threads, "step_s", s->step_s, "op_s", s->op_s));
    }
    return all;
}

static json_t *data_json(const gw_timings *r) {
    if (r->data.tokenize_bytes_per_s <= 0) return NULL;
    return json_pack("{s:f, s:f, s:f}", "tokenize_bytes_per_s", r->data.tokenize_bytes_per_s,
                     "pipeline_bytes_per_s", r->data.pipeline_bytes_per_s, "loader_tokens_per_s",
                     r->data.loader_tokens_per_s);
}

static json_t *local_json(const gw_timings *r) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:o*, s:o, s:o}", "host",
                     r->host, "cpu", r->cpu, "isa", r->isa, "date", r->date, "version", r->version,
                     "cores", r->cores, "memory_bytes", r->memory_bytes, "memory_bytes_per_s",
                     r->memory_bytes_per_s, "storage_read", r->storage_read, "storage_write",
                     r->storage_write, "data", data_json(r), "sides", sides_json(r), "shapes",
                     shapes_json(r));
}

gw_status gw_timings_write(const char *path, FILE *standard, const gw_timings *r, gw_diags *dg) {
    json_t *local = local_json(r);
    char *text = local ? json_dumps(local, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(local);
    if (!text)
        return GW_FAIL(dg, GW_ERR_FORMAT, "calibration-format",
                       "the calibration cannot be written as JSON: a name in it is not UTF-8, or a "
                       "time is not finite");
    gw_calibration whole = r->comm;
    whole.local = text;
    gw_status st = gw_calibration_write(path, standard, &whole, dg);
    free(text);
    return st;
}

/* ---- whose ---- */

/* "model name" of /proc/cpuinfo; "" where there is none. */
static void cpu_model(char *out, size_t n) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, n, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, n, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f) fclose(f);
}

void gw_timings_host(char host[128], char cpu[128]) {
    if (gethostname(host, 128) != 0) host[0] = 0;
    host[127] = 0;
    if (!host[0]) snprintf(host, 128, "unknown");
    cpu_model(cpu, 128);
}

bool gw_timings_fit_here(const gw_timings *r, char why[160]) {
    char host[128], cpu[128];
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : r->cores;
    gw_timings_host(host, cpu);
    why[0] = 0;
    if (strcmp(host, r->host) != 0)
        snprintf(why, 160, "it is of host %.50s, and this is %.50s", r->host, host);
    else if (strcmp(cpu, r->cpu) != 0)
        snprintf(why, 160, "it is of a processor %.50s, and this is a %.50s", r->cpu, cpu);
    else if (cores != r->cores)
        snprintf(why, 160, "it was measured on %d cores, and this process may use %d", r->cores,
                 cores);
    return !why[0];
}
