// SPDX-License-Identifier: Apache-2.0
// `gradwright data stats`: how what filters measure is distributed.
//
// Before a threshold is changed one wants to see where it would cut. Each numeric column of the
// .docs tables is read by itself, so this takes seconds where extraction took hours; quantiles are
// exact, and a histogram of sixteen equal steps between the first and the ninety-ninth percentile
// is drawn beside them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"           /* GW_VEC */
#include "base/str.h"           /* gw_fmt_count */
#include "base/term.h"          /* gw_table */
#include "cli/data_tools.h"     /* this module's contract */
#include "data/build/columns.h" /* gw_columns */

#include <jansson.h> /* json_t */

enum { STEPS = 16 };

typedef struct values {
    GW_VEC(double) v;
    int64_t undefined;
    double sum;
} values;

static double value_at(const gw_column *c, const uint8_t *p) {
    float f;
    double d;
    uint64_t u = 0;
    switch (c->type) {
    case GW_COLUMN_F32: memcpy(&f, p, 4); return (double)f;
    case GW_COLUMN_F64: memcpy(&d, p, 8); return d;
    case GW_COLUMN_U8:
    case GW_COLUMN_U16:
    case GW_COLUMN_U32:
    case GW_COLUMN_U64: memcpy(&u, p, (size_t)gw_column_elem_bytes(c->type)); return (double)u;
    case GW_COLUMN_BYTES:
    case GW_COLUMN_TYPES: break;
    }
    return 0;
}

static bool wanted(const gw_cli *cli, const gw_column *c) {
    const char *const *names = NULL;
    int n = gw_cli_list(cli, "column", &names);
    if (c->type == GW_COLUMN_BYTES || c->width != 1) return false;
    for (int i = 0; i < n; i++)
        if (gw_str_eq(names[i], c->name) || gw_str_glob(names[i], c->name)) return true;
    return n == 0;
}

static gw_status read_column(const gw_columns *c, int column, values *out, gw_diags *dg) {
    gw_column_data d = {0};
    const gw_column *col = gw_columns_column(c, column);
    gw_status st = GW_OK;
    for (int64_t b = 0; b < gw_columns_blocks(c) && st == GW_OK; b++) {
        st = gw_columns_read(c, column, b, &d, dg);
        for (int64_t i = 0; i < d.rows && st == GW_OK; i++) {
            double x = value_at(col, d.values + i * gw_column_elem_bytes(col->type));
            if (isnan(x)) {
                out->undefined++;
                continue;
            }
            gw_vec_push(&out->v, x);
            out->sum += x;
        }
    }
    gw_column_data_release(&d);
    return st;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const values *v, double q) {
    if (v->v.count == 0) return (double)NAN;
    return v->v.items[(int64_t)(q * (double)(v->v.count - 1) + 0.5)];
}

static json_t *histogram(const values *v, double lo, double hi) {
    int64_t n[STEPS] = {0};
    json_t *out = json_array();
    for (int64_t i = 0; i < v->v.count; i++) {
        double x = hi > lo ? (v->v.items[i] - lo) / (hi - lo) * STEPS : 0;
        n[x < 0 ? 0 : x >= STEPS ? STEPS - 1 : (int)x]++;
    }
    for (int i = 0; i < STEPS; i++) json_array_append_new(out, json_integer(n[i]));
    return out;
}

static json_t *summary(const char *name, values *v) {
    static const struct {
        const char *name;
        double q;
    } marks[] = {{"min", 0},  {"p1", .01},  {"p10", .1}, {"p50", .5},
                 {"p90", .9}, {"p99", .99}, {"max", 1}};
    json_t *o = json_pack("{s:s, s:I, s:I}", "column", name, "values", (json_int_t)v->v.count,
                          "undefined", (json_int_t)v->undefined);
    if (v->v.count == 0) return o;
    qsort(v->v.items, (size_t)v->v.count, sizeof *v->v.items, by_value);
    json_object_set_new(o, "mean", json_real(v->sum / (double)v->v.count));
    for (size_t i = 0; i < GW_COUNT(marks); i++)
        json_object_set_new(o, marks[i].name, json_real(quantile(v, marks[i].q)));
    json_object_set_new(o, "histogram", histogram(v, quantile(v, .01), quantile(v, .99)));
    return o;
}

static void bars(const json_t *h, char *out) {
    static const char *const marks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    json_int_t most = 1;
    *out = 0;
    for (size_t i = 0; i < json_array_size(h); i++)
        most = GW_MAX(most, json_integer_value(json_array_get(h, i)));
    for (size_t i = 0; i < json_array_size(h); i++) {
        json_int_t n = json_integer_value(json_array_get(h, i));
        size_t len = strlen(out), k = n == 0 ? 0 : 1 + (size_t)((n * 7) / most);
        memcpy(out + len, marks[k], strlen(marks[k]) + 1);
    }
}

static void print(const gw_cli *cli, const json_t *list) {
    static const char *const keys[] = {"min", "p10", "p50", "p90", "max", "mean"};
    gw_table *t = gw_table_new("lrrrrrrrl");
    gw_table_row(t, "column", "values", "min", "p10", "p50", "p90", "max", "mean", "p1 to p99");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        char cell[GW_COUNT(keys)][32], count[32], drawn[4 * STEPS + 1];
        for (size_t k = 0; k < GW_COUNT(keys); k++) {
            const json_t *x = json_object_get(o, keys[k]);
            snprintf(cell[k], sizeof cell[k], "%s", "");
            if (x) snprintf(cell[k], sizeof cell[k], "%.4g", json_number_value(x));
        }
        bars(json_object_get(o, "histogram"), drawn);
        gw_table_row(t, json_string_value(json_object_get(o, "column")),
                     gw_fmt_count(count, json_integer_value(json_object_get(o, "values"))), cell[0],
                     cell[1], cell[2], cell[3], cell[4], cell[5], drawn);
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
}

/* All tables of a build have the same columns. */
static gw_status stats_of(gw_cli *cli, const char *const *tables, int64_t n, json_t *out) {
    gw_columns *first = NULL;
    gw_status st = gw_columns_open(tables[0], &first, cli->diags);
    for (int i = 0; st == GW_OK && i < gw_columns_count(first); i++) {
        const gw_column *col = gw_columns_column(first, i);
        values v = {.v = {0}};
        if (!wanted(cli, col)) continue;
        for (int64_t k = 0; k < n && st == GW_OK; k++) {
            gw_columns *c = NULL;
            st = gw_columns_open(tables[k], &c, cli->diags);
            int at = st == GW_OK ? gw_columns_find(c, col->name) : -1;
            if (at >= 0) st = read_column(c, at, &v, cli->diags);
            gw_columns_close(c);
        }
        if (st == GW_OK) json_array_append_new(out, summary(col->name, &v));
        gw_vec_release(&v.v);
    }
    gw_columns_close(first);
    return st;
}

gw_status gw_data_stats(gw_cli *cli, int n, const char *const *paths) {
    json_t *list = json_array();
    gw_status st = GW_OK;
    for (int i = 0; i < n && st == GW_OK; i++) {
        int64_t count = 0;
        st = gw_data_need(cli, paths[i]);
        if (st != GW_OK) break;
        gw_data_kind kind = gw_data_kind_of(cli, paths[i]);
        if (kind != GW_DATA_BUILT && kind != GW_DATA_TABLE) {
            st = gw_cli_usage_error(cli,
                                    "stats reads the columns of a build's folder or of one of "
                                    "its tables; '%s' is neither",
                                    paths[i]);
            break;
        }
        const char **tables = gw_data_tables(cli, paths[i], ".docs", &count);
        if (count) st = stats_of(cli, tables, count, list);
    }
    if (st == GW_OK && json_array_size(list) == 0)
        st = gw_cli_usage_error(cli, "no numeric column of that name");
    if (st == GW_OK && gw_cli_flag(cli, "json")) {
        json_dumpf(list, cli->out, JSON_INDENT(1));
        fputc('\n', cli->out);
    } else if (st == GW_OK) {
        print(cli, list);
    }
    json_decref(list);
    return st;
}
