// SPDX-License-Identifier: Apache-2.0
// `gradwright data`: from raw archives to shards of tokens, and looking into all of it.
//
// `build` runs a pipeline file; `refilter` the same, with the promise that nothing is extracted
// again: thresholds change, columns stay. What they find done they leave as it is, so either is
// also how a killed build goes on. The other verbs read: inspect says what a file is, verify
// whether it is whole, sample shows documents, stats the distribution of what filters measure.
#include <jansson.h> /* json_dumpf */
#include <signal.h>  /* sigaction */
#include <stdio.h>
#include <string.h>

#include "base/str.h"            /* gw_str, gw_fmt_bytes */
#include "base/term.h"           /* gw_table */
#include "cli/command.h"         /* gw_command */
#include "cli/data_prove.h"      /* gw_data_prove_run */
#include "cli/data_tools.h"      /* gw_data_inspect */
#include "cli/ranks.h"           /* gw_cli_on_ranks_until */
#include "cli/runarg.h"          /* gw_cli_need_path */
#include "comm/mpi.h"            /* gw_mpi_launched */
#include "data/build/build.h"    /* gw_data_build */
#include "data/build/pipeline.h" /* gw_pipeline */

static const gw_option options[] = {
    {"workers", 'w', "N", "build: processes (default: one a core)", GW_OPT_INT, NULL},
    {"set", 's', "KEY=VALUE", "build: override one key; repeatable", GW_OPT_LIST, NULL},
    {"dry-run", 0, NULL, "build: say what would be done", GW_OPT_FLAG, NULL},
    {"count", 0, "N", "sample: documents (default 3)", GW_OPT_INT, NULL},
    {"seed", 0, "N", "sample: which ones (default 1)", GW_OPT_INT, NULL},
    {"column", 'c', "NAME", "stats: this column; repeatable", GW_OPT_LIST, NULL},
    {"tokenizer", 0, "PATH", "sample: shows tokens as text", GW_OPT_STRING, NULL},
    GW_OPTION_JSON,
};

// ------------------------------------------------------------------ build

static void print_boundaries(const gw_cli *cli, const json_t *report) {
    const json_t *list = json_object_get(report, "boundaries");
    gw_table *t = gw_table_new("lrrrr");
    gw_table_row(t, "boundary", "documents", "bytes", "tokens", "of before");
    int64_t before = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *b = json_array_get(list, i), *tok = json_object_get(b, "tokens");
        char docs[32], bytes[24], tokens[32] = "", share[32] = "";
        int64_t n = json_integer_value(json_object_get(b, "bytes"));
        if (tok) gw_fmt_count(tokens, json_integer_value(tok));
        if (before) snprintf(share, sizeof share, "%.1f %%", 100.0 * (double)n / (double)before);
        gw_table_row(t, json_string_value(json_object_get(b, "name")),
                     gw_fmt_count(docs, json_integer_value(json_object_get(b, "documents"))),
                     gw_fmt_bytes(bytes, n), tokens, share);
        before = n;
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
}

static void print_removed(const gw_cli *cli, const json_t *report) {
    const json_t *list = json_object_get(report, "filters");
    char count[32];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        fprintf(cli->out, "%s removed %s\n", json_string_value(json_object_get(f, "filter")),
                gw_fmt_count(count, json_integer_value(json_object_get(f, "removed"))));
    }
    const json_t *d = json_object_get(report, "dedup"), *in = json_object_get(report, "input");
    fprintf(cli->out, "dedup removed %s\n",
            gw_fmt_count(count, json_integer_value(json_object_get(d, "removed"))));
    int64_t cut = json_integer_value(json_object_get(d, "cut_bytes"));
    if (cut) fprintf(cli->out, "dedup cut %s of repeated parts\n", gw_fmt_bytes(count, cut));
    int64_t damages = json_integer_value(json_object_get(in, "damages"));
    if (damages)
        fprintf(cli->out, "damage passed over at %s places: report.md names them\n",
                gw_fmt_count(count, damages));
    fprintf(cli->out, "%.1f MB of pages a second and core, %.2f CPU seconds\n",
            json_number_value(json_object_get(report, "page_MB_per_core_s")),
            json_number_value(json_object_get(report, "cpu_s")));
}

static void print_json(const gw_cli *cli, const json_t *v) {
    json_dumpf(v, cli->out, JSON_INDENT(1));
    fputc('\n', cli->out);
}

static volatile sig_atomic_t stop_signal;
static void on_signal(int number) { stop_signal = number; }

typedef struct job {
    const gw_pipeline *p;
    bool from_columns;
} job;

static gw_status build_part(gw_cli *cli, gw_comm *comm, void *user) {
    const job *j = user;
    json_t *report = NULL;
    gw_build_options o = {.workers = (int)gw_cli_int(cli, "workers", 0),
                          .from_columns = j->from_columns,
                          .progress = !cli->quiet && gw_term_is_tty(stderr),
                          .comm = comm,
                          .stop = &stop_signal};
    gw_status st = gw_data_build(j->p, &o, &report, cli->diags);
    bool speaks = st == GW_OK && (!comm || gw_comm_rank(comm) == 0);
    if (speaks && gw_cli_flag(cli, "json")) {
        print_json(cli, report);
    } else if (speaks && !cli->quiet) {
        print_boundaries(cli, report);
        print_removed(cli, report);
        fprintf(cli->out, "%s: manifest.json, report.html, report.md\n", j->p->output.dir);
    }
    json_decref(report);
    return st;
}

/* Workers are forks, which a thread that waits for signals would not survive; ranks of mpirun work
 * in their own process and have one. A second signal ends the program at once. */
static gw_status run_job(gw_cli *cli, job *j) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const double week = 7 * 86400.0; /* a rank may wait for another's units */
    if (gw_mpi_launched() > 1)
        return gw_cli_on_ranks_until(cli, 0, week, GW_OK, build_part, j, &stop_signal);
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < GW_COUNT(signals); i++) sigaction(signals[i], &a, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file past its limit is an error of write */
    return build_part(cli, NULL, j);
}

static gw_status dry_run(gw_cli *cli, const gw_pipeline *p) {
    json_t *v = NULL;
    char bytes[24];
    GW_TRY(gw_data_build_dry(p, &v, cli->diags));
    if (gw_cli_flag(cli, "json"))
        print_json(cli, v);
    else
        fprintf(cli->out, "%lld files in %lld units, %s; %lld units are extracted already\n",
                (long long)json_integer_value(json_object_get(v, "files")),
                (long long)json_integer_value(json_object_get(v, "units")),
                gw_fmt_bytes(bytes, json_integer_value(json_object_get(v, "bytes"))),
                (long long)json_integer_value(json_object_get(v, "extracted")));
    json_decref(v);
    return GW_OK;
}

static gw_status run_build(gw_cli *cli, bool from_columns) {
    const char *const *sets = NULL;
    int nsets = gw_cli_list(cli, "set", &sets);
    int64_t workers = gw_cli_int(cli, "workers", 1);
    gw_pipeline p;
    if (cli->nargs != 2) return gw_cli_usage_error(cli, "%s takes one pipeline file", cli->args[0]);
    if (workers < 1 || workers > 4096)
        return gw_cli_usage_error(cli, "--workers takes a number from 1 to 4096");
    GW_TRY(gw_cli_need_path(cli, cli->args[1]));
    gw_status st = gw_pipeline_load(&p, cli->args[1], sets, nsets, cli->diags);
    job j = {&p, from_columns};
    if (st == GW_OK) st = gw_cli_flag(cli, "dry-run") ? dry_run(cli, &p) : run_job(cli, &j);
    gw_pipeline_release(&p);
    return st;
}

static gw_status run_keys(gw_cli *cli) {
    gw_str text = {0};
    if (cli->nargs != 1) return gw_cli_usage_error(cli, "keys takes no path");
    gw_pipeline_keys(&text);
    fputs(gw_str_c(&text), cli->out);
    gw_str_release(&text);
    return GW_OK;
}

// ------------------------------------------------------------------ the command

/* An option that the verb does not read would be ignored, and a result be taken for another. */
static gw_status check_options(gw_cli *cli, const char *verb) {
    static const struct {
        const char *option, *verbs;
    } readers[] = {{"workers", "build refilter"}, {"set", "build refilter"}, {"dry-run", "build"},
                   {"count", "sample"},           {"seed", "sample"},        {"column", "stats"},
                   {"tokenizer", "sample"}};
    for (size_t i = 0; i < GW_COUNT(readers); i++)
        if (gw_cli_given(cli, readers[i].option) && !strstr(readers[i].verbs, verb))
            return gw_cli_usage_error(cli, "%s does not read --%s", verb, readers[i].option);
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    static const struct {
        const char *name;
        gw_status (*run)(gw_cli *cli, int n, const char *const *paths);
    } readers[] = {{"inspect", gw_data_inspect},
                   {"verify", gw_data_verify},
                   {"sample", gw_data_sample},
                   {"stats", gw_data_stats}};
    const char *verb = cli->args[0];
    GW_TRY(check_options(cli, verb));
    if (!strcmp(verb, "build") || !strcmp(verb, "refilter"))
        return run_build(cli, !strcmp(verb, "refilter"));
    if (!strcmp(verb, "keys")) return run_keys(cli);
    if (!strcmp(verb, "prove")) return gw_data_prove_run(cli);
    for (size_t i = 0; i < GW_COUNT(readers); i++) {
        if (strcmp(verb, readers[i].name) != 0) continue;
        if (cli->nargs < 2) return gw_cli_usage_error(cli, "%s needs a path", verb);
        return readers[i].run(cli, cli->nargs - 1, cli->args + 1);
    }
    return gw_cli_usage_error(cli,
                              "'%s' is not one of build, refilter, inspect, verify, sample, "
                              "stats, keys, prove",
                              verb);
}

const gw_command gw_cmd_data = {
    .name = "data",
    .summary = "build shards of tokens from raw archives; look into data",
    .usage = {"build|refilter PIPELINE.yaml [--workers N] [--set KEY=VALUE]",
              "inspect|verify|sample|stats PATH...", "prove RUN1 RUN2", "keys"},
    .description = "refilter changes thresholds without extracting again; keys prints a pipeline\n"
                   "file with every key; prove tells whether two runs consumed the same data.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = -1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright data build examples/pipeline.yaml",
    .run = run,
};
