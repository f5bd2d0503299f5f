// SPDX-License-Identifier: Apache-2.0
// `gradwright bench collectives`: latency and bandwidth of collectives by size.
//
// The table is that of the public all-reduce benchmarks (nccl-tests): size, count, type, redop,
// then time, algorithm bandwidth, bus bandwidth and wrong elements, out of place and in place;
// beside it the rate at which all ranks copy as many bytes of their own memory at once, which a
// collective through shared memory can be held against.
#include <jansson.h> /* json_pack */
#include <string.h>  /* strcmp */

#include "base/str.h"         /* gw_parse_bytes */
#include "base/term.h"        /* gw_table */
#include "cli/collbench.h"    /* gw_collbench_run */
#include "cli/command.h"      /* gw_command */
#include "cli/ranks.h"        /* gw_cli_on_ranks */
#include "comm/algorithm.h"   /* gw_algorithm_find */
#include "comm/calibration.h" /* gw_calibration_read */
#include "run/exec_comm.h"    /* gw_exec_agree */

enum { MAX_SIZES = 64 };

static const gw_option options[] = {
    GW_OPTION_RANKS,
    {"kind", 'k', "KIND", "which collective (default all-reduce)", GW_OPT_STRING,
     "all-reduce reduce-scatter all-gather broadcast all-to-all shift"},
    {"sizes", 0, "SIZES", "1KiB,1MiB or 1KiB..64MiB (default; times 4)", GW_OPT_STRING, NULL},
    {"algorithm", 'a', "NAME", "force one (default: what is predicted fastest)", GW_OPT_STRING,
     NULL},
    {"dtype", 0, "TYPE", "element type (default f32)", GW_OPT_STRING, "f32 bf16 f16 f64"},
    {"wire", 0, "WIRE", "what travels (default same)", GW_OPT_STRING,
     "same float32 bf16 int8 int4"},
    {"per-host", 0, "N", "as if N ranks shared a host (hierarchical)", GW_OPT_INT, NULL},
    {"samples", 0, "N", "samples of each figure (default 20)", GW_OPT_INT, NULL},
    {"calibration", 0, "FILE", "choose by what calibrate measured", GW_OPT_STRING, NULL},
    GW_OPTION_JSON,
};

typedef struct row {
    int64_t bytes, elems, wrong;
    const char *algorithm;
    gw_collbench_time apart, in_place, copies;
} row;

typedef struct bench {
    gw_collbench_case k;
    int64_t sizes[MAX_SIZES];
    int nsizes;
    gw_calibration calibration;
    bool calibrated;
} bench;

/* ---- the command line ---- */

static gw_status bad_sizes(gw_cli *cli, const char *text) {
    return gw_cli_usage_error(cli, "--sizes is '%s'; write 1KiB,1MiB or 1KiB..64MiB, at most %d",
                              text, MAX_SIZES);
}

/* "A..B": from A, times 4, up to B, which is last. */
static gw_status read_span(gw_cli *cli, const char *text, const char *dots, bench *b) {
    int64_t lo, hi;
    char *first = gw_arena_strndup(cli->arena, text, (size_t)(dots - text));
    if (!gw_parse_bytes(first, &lo) || !gw_parse_bytes(dots + 2, &hi) || lo < 1 || hi < lo)
        return bad_sizes(cli, text);
    for (int64_t at = lo; b->nsizes < MAX_SIZES; at *= 4) {
        b->sizes[b->nsizes++] = GW_MIN(at, hi);
        if (at >= hi / 4) {
            if (at < hi && b->nsizes < MAX_SIZES) b->sizes[b->nsizes++] = hi;
            break;
        }
    }
    return GW_OK;
}

static gw_status read_sizes(gw_cli *cli, bench *b) {
    const char *text = gw_cli_string(cli, "sizes", "1KiB..64MiB"), *dots = strstr(text, "..");
    if (dots) return read_span(cli, text, dots, b);
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        char *one = gw_arena_strndup(cli->arena, p, n);
        if (b->nsizes == MAX_SIZES || !gw_parse_bytes(one, &b->sizes[b->nsizes]) ||
            b->sizes[b->nsizes] < 1)
            return bad_sizes(cli, text);
        b->nsizes++;
        p += n + (p[n] == ',');
    }
    return b->nsizes ? GW_OK : bad_sizes(cli, text);
}

static gw_coll_kind kind_of(const char *name) {
    int k = 0;
    while (k < GW_COLL_KIND_COUNT - 1 && strcmp(gw_coll_kind_name((gw_coll_kind)k), name) != 0) k++;
    return (gw_coll_kind)k;
}

static gw_wire wire_of(const char *name) {
    int w = 0;
    while (w < GW_WIRE_COUNT - 1 && strcmp(gw_wire_name((gw_wire)w), name) != 0) w++;
    return (gw_wire)w;
}

/* Every size must hold an element, and one for each rank where they exchange them. */
static gw_status check_sizes(gw_cli *cli, const bench *b, int64_t ranks) {
    int64_t each = gw_dtype_bits(b->k.dtype) / 8;
    if (b->k.kind == GW_COLL_ALL_TO_ALL) each *= ranks;
    for (int i = 0; i < b->nsizes; i++)
        if (b->sizes[i] < each)
            return gw_cli_usage_error(
                cli, "--sizes has %lld B, and %s of %s on %lld rank%s takes %lld B at least",
                (long long)b->sizes[i], gw_coll_kind_name(b->k.kind), gw_dtype_name(b->k.dtype),
                (long long)ranks, ranks == 1 ? "" : "s", (long long)each);
    return GW_OK;
}

/* What depends on the ranks. */
static gw_status check_ranks(gw_cli *cli, const bench *b, int64_t ranks) {
    if (b->k.per_host > ranks)
        return gw_cli_usage_error(cli, "--per-host is %lld, and there are %lld ranks",
                                  (long long)b->k.per_host, (long long)ranks);
    return check_sizes(cli, b, ranks);
}

static gw_status read_options(gw_cli *cli, bench *b) {
    if (strcmp(cli->args[0], "collectives") != 0)
        return gw_cli_usage_error(cli, "there is no benchmark '%s'; collectives is one",
                                  cli->args[0]);
    int64_t samples = gw_cli_int(cli, "samples", 20);
    if (samples < 1 || samples > GW_COLLBENCH_SAMPLES)
        return gw_cli_usage_error(cli, "--samples takes a number from 1 to %d",
                                  GW_COLLBENCH_SAMPLES);
    b->k = (gw_collbench_case){.kind = kind_of(gw_cli_string(cli, "kind", "all-reduce")),
                               .wire = wire_of(gw_cli_string(cli, "wire", "same")),
                               .algorithm = gw_cli_string(cli, "algorithm", NULL),
                               .per_host = gw_cli_int(cli, "per-host", 0),
                               .samples = (int)samples,
                               .seconds_s = 0.1};
    (void)gw_dtype_parse(gw_cli_string(cli, "dtype", "f32"), &b->k.dtype);
    if (gw_cli_given(cli, "per-host") && b->k.per_host < 1)
        return gw_cli_usage_error(cli, "--per-host takes a number from 1 to that of the ranks");
    if (b->k.algorithm && !gw_algorithm_find(b->k.algorithm))
        return gw_cli_usage_error(cli, "there is no algorithm '%s'", b->k.algorithm);
    GW_TRY(read_sizes(cli, b));
    GW_TRY(check_sizes(cli, b, 1));
    const char *path = gw_cli_string(cli, "calibration", NULL);
    b->calibrated = path != NULL;
    return path ? gw_calibration_read(path, &b->calibration, cli->arena, cli->diags) : GW_OK;
}

/* ---- measuring ---- */

/* The algorithm that this size takes, or why none does. */
static gw_status choose(gw_cli *cli, const bench *b, const gw_collbench *cb,
                        const gw_collbench_case *k, const char **name) {
    gw_coll_candidate all[16];
    gw_coll_part part;
    gw_coll c = gw_collbench_coll(cb, k, &part);
    gw_coll_machine m = *gw_comm_machine(cb->comm);
    int count = 0;
    if (b->calibrated) gw_calibration_apply(&b->calibration, &m);
    *name = gw_coll_choose(&c, &m, all, GW_COUNT(all), &count);
    if (*name) return GW_OK;
    const char *why = "no algorithm does it";
    for (int i = 0; i < count; i++)
        if (k->algorithm && strcmp(all[i].name, k->algorithm) == 0) why = all[i].why;
    return GW_FAIL(cli->diags, GW_ERR_USAGE, "coll-algorithm", "%s of %s over wire %s%s%s: %s",
                   gw_coll_kind_name(k->kind), gw_dtype_name(k->dtype), gw_wire_name(k->wire),
                   k->algorithm ? " by " : "", k->algorithm ? k->algorithm : "", why);
}

static gw_status measure(gw_cli *cli, const bench *b, gw_collbench *cb, int64_t bytes, row *r) {
    gw_collbench_case k = b->k;
    gw_coll_part part;
    k.bytes = bytes;
    GW_TRY(choose(cli, b, cb, &k, &r->algorithm));
    k.algorithm = r->algorithm;
    r->bytes = bytes;
    (void)gw_collbench_coll(cb, &k, &part);
    r->elems = part.elems;
    GW_TRY(gw_collbench_check(cb, &k, &r->wrong, cli->diags));
    GW_TRY(gw_collbench_run(cb, &k, &r->apart, cli->diags));
    GW_TRY(gw_collbench_copies(cb, bytes, k.samples, k.seconds_s, &r->copies, cli->diags));
    k.in_place = gw_collbench_in_place(k.kind);
    return gw_collbench_run(cb, &k, &r->in_place, cli->diags);
}

/* ---- printing ---- */

static double rate(int64_t bytes, const gw_collbench_time *t) {
    return t->seconds > 0.0 ? (double)bytes / t->seconds / 1e9 : 0.0;
}

static void print_table(gw_cli *cli, const bench *b, const row *rows, int64_t ranks) {
    gw_arena *a = cli->arena;
    double bus = gw_collbench_bus_factor(b->k.kind, ranks);
    bool adds = b->k.kind == GW_COLL_ALL_REDUCE || b->k.kind == GW_COLL_REDUCE_SCATTER;
    fprintf(cli->out, "%s on %d ranks, %d samples each; bandwidths in GB/s, time in us\n\n",
            gw_coll_kind_name(b->k.kind), (int)ranks, b->k.samples);
    gw_table *t = gw_table_new("rrlllrrrrrrrr");
    gw_table_row(t, "size (B)", "count", "type", "redop", "algorithm", "time", "algbw", "busbw",
                 "#wrong", "in place", "algbw", "busbw", "copies");
    for (int i = 0; i < b->nsizes; i++) {
        const row *r = &rows[i];
        double apart = rate(r->bytes, &r->apart), in_place = rate(r->bytes, &r->in_place);
        const char *wrong = r->wrong < 0 ? "-" : gw_arena_printf(a, "%lld", (long long)r->wrong);
        gw_table_row(
            t, gw_arena_printf(a, "%lld", (long long)r->bytes),
            gw_arena_printf(a, "%lld", (long long)r->elems), gw_dtype_name(b->k.dtype),
            adds ? "sum" : "none", r->algorithm, gw_arena_printf(a, "%.2f", r->apart.seconds * 1e6),
            gw_arena_printf(a, "%.2f", apart), gw_arena_printf(a, "%.2f", apart * bus), wrong,
            gw_arena_printf(a, "%.2f", r->in_place.seconds * 1e6),
            gw_arena_printf(a, "%.2f", in_place), gw_arena_printf(a, "%.2f", in_place * bus),
            gw_arena_printf(a, "%.2f", rate(r->bytes, &r->copies)));
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
    if (!gw_collbench_in_place(b->k.kind))
        fprintf(cli->out, "\nThis is not done in place (%s): both halves are out of place.\n",
                gw_coll_kind_name(b->k.kind));
    if (b->k.wire == GW_WIRE_INT8 || b->k.wire == GW_WIRE_INT4)
        fprintf(cli->out,
                "\n#wrong is left out: %s rounds, so no element need be exact; `gradwright verify` "
                "holds its errors to a bound.\n",
                gw_wire_name(b->k.wire));
}

static json_t *time_json(int64_t bytes, const gw_collbench_time *t, double bus) {
    double bw = t->seconds > 0.0 ? (double)bytes / t->seconds : 0.0;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", t->seconds, "least_seconds", t->least,
                     "spread", t->spread, "algorithm_bytes_per_s", bw, "bus_bytes_per_s", bw * bus);
}

static void print_json(gw_cli *cli, const bench *b, const row *rows, int64_t ranks) {
    json_t *all = json_array();
    double bus = gw_collbench_bus_factor(b->k.kind, ranks);
    for (int i = 0; i < b->nsizes; i++) {
        const row *r = &rows[i];
        json_array_append_new(all, json_pack("{s:I, s:I, s:s, s:o, s:o, s:o, s:o}", "bytes",
                                             (json_int_t)r->bytes, "elements", (json_int_t)r->elems,
                                             "algorithm", r->algorithm, "wrong",
                                             r->wrong < 0 ? json_null() : json_integer(r->wrong),
                                             "out_of_place", time_json(r->bytes, &r->apart, bus),
                                             "in_place", time_json(r->bytes, &r->in_place, bus),
                                             "copies", time_json(r->bytes, &r->copies, 1.0)));
    }
    json_t *root = json_pack("{s:s, s:I, s:s, s:s, s:i, s:o}", "kind", gw_coll_kind_name(b->k.kind),
                             "ranks", (json_int_t)ranks, "dtype", gw_dtype_name(b->k.dtype), "wire",
                             gw_wire_name(b->k.wire), "samples", b->k.samples, "sizes", all);
    json_dumpf(root, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', cli->out);
    json_decref(root);
}

/* The largest scratch of the sizes. */
static gw_status most_scratch(gw_cli *cli, const bench *b, const gw_collbench *cb, int64_t *out) {
    for (int i = 0; i < b->nsizes; i++) {
        gw_collbench_case k = b->k;
        gw_coll_part part;
        k.bytes = b->sizes[i];
        const char *name;
        GW_TRY(choose(cli, b, cb, &k, &name));
        k.algorithm = name;
        gw_coll c = gw_collbench_coll(cb, &k, &part);
        *out = GW_MAX(*out, gw_coll_scratch_bytes(&c, gw_comm_machine(cb->comm)));
    }
    return GW_OK;
}

static gw_status body(gw_cli *cli, gw_comm *comm, void *user) {
    bench *b = user;
    row rows[MAX_SIZES] = {0};
    gw_collbench cb = {0};
    int64_t most = 1, scratch = 0;
    if (!comm) return gw_cli_usage_error(cli, "a collective takes two ranks or more: --ranks N");
    for (int i = 0; i < b->nsizes; i++) most = GW_MAX(most, b->sizes[i]);
    cb.comm = comm;
    gw_status bad = check_ranks(cli, b, gw_comm_size(comm));
    GW_TRY(gw_exec_agree(comm, bad, NULL, "reading the options", cli->diags));
    /* What one finds wrong here all do, and one says. */
    gw_status st = gw_exec_agree(comm, most_scratch(cli, b, &cb, &scratch), NULL,
                                 "choosing an algorithm", cli->diags);
    if (st == GW_OK) st = gw_collbench_open(&cb, comm, most, scratch, cli->diags);
    for (int i = 0; i < b->nsizes && st == GW_OK; i++)
        st = measure(cli, b, &cb, b->sizes[i], &rows[i]);
    gw_collbench_close(&cb);
    if (st != GW_OK || gw_comm_rank(comm) != 0) return st;
    if (gw_cli_flag(cli, "json"))
        print_json(cli, b, rows, gw_comm_size(comm));
    else
        print_table(cli, b, rows, gw_comm_size(comm));
    int64_t wrong = 0;
    for (int i = 0; i < b->nsizes; i++) wrong += GW_MAX(rows[i].wrong, 0);
    if (wrong == 0) return GW_OK;
    return GW_FAIL(cli->diags, GW_ERR_NUMERIC, "bench-wrong", "%lld elements came out wrong",
                   (long long)wrong);
}

static gw_status run(gw_cli *cli) {
    bench b = {0};
    int ranks;
    GW_TRY(gw_cli_ranks(cli, &ranks));
    gw_status before = read_options(cli, &b);
    return gw_cli_on_ranks(cli, ranks, 30.0, before, body, &b);
}

const gw_command gw_cmd_bench = {
    .name = "bench",
    .summary = "latency and bandwidth of collectives by size",
    .usage = {"collectives --ranks N [--kind KIND] [--sizes SIZES] [--json]"},
    .description = "Times a collective on all ranks and prints the table of nccl-tests.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_WORDS,
    .words = "collectives",
    .example = "gradwright bench collectives --ranks 2",
    .run = run,
};
