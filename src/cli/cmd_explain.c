// SPDX-License-Identifier: Apache-2.0
// `gradwright explain`: the arithmetic of a topic, or what a message's id means.
//
// Topics are tables in src/plan; what they read from programs is compiled here, from the run that
// `plan` assumes of a model alone (planarg.c): bf16 with float32 master, gradients and moments,
// one sequence of at most 4,096 tokens in a micro-batch. Words of a line override it. Each program
// is compiled for its one figure and forgotten; the largest take a second or two.
#include <stdio.h>
#include <string.h>

#include "base/io.h"        /* gw_path_exists */
#include "base/str.h"       /* gw_str, gw_str_distance */
#include "base/term.h"      /* gw_table */
#include "cli/command.h"    /* gw_command */
#include "cli/planarg.h"    /* gw_target */
#include "plan/calibrate.h" /* gw_timings */
#include "plan/explain.h"   /* gw_explain */

enum { LONGEST = 4096, WORDS = 16 };

static const gw_option options[] = {
    {"model", 0, "PRESET", "the model instead of the topic's own", GW_OPT_STRING, NULL},
    GW_OPTION_JSON,
};

typedef struct error_row {
    const char *id;
    int exit;
    const char *meaning, *remedy;
} error_row;

static const error_row rows[] = {
#define GW_ERROR(id, exit, meaning, remedy) {id, exit, meaning, remedy},
#include "cli/errors.def"
#undef GW_ERROR
};

/* ---- compiling ---- */

static int split(char *text, const char *words[WORDS]) {
    int n = 0;
    for (char *save, *w = strtok_r(text, " ", &save); w && n < WORDS;
         w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    return n;
}

/* The run assumed of a preset, changed by `sets`. Stays where it is. */
static gw_status open_run(gw_target *t, gw_arena *a, const char *preset, const char *sets,
                          gw_diags *dg) {
    const char *words[WORDS];
    int n = split(gw_arena_strdup(a, sets), words);
    gw_model m;
    memset(t, 0, sizeof *t);
    if (!gw_model_preset(preset, &m)) return GW_ERR_CONFIG;
    const char *text = gw_arena_printf(
        a, "model:\n  preset: %s\ntrain:\n  seq_len: %lld\nprecision:\n  compute: bf16\n", preset,
        (long long)GW_MIN(m.max_positions, LONGEST));
    gw_status st = gw_runfile_parse_for(&t->rf, "the run assumed", text, (int64_t)strlen(text),
                                        words, n, 0, dg);
    if (st == GW_OK) st = gw_target_set_up(t, 0, dg);
    if (st != GW_OK) gw_runfile_release(&t->rf);
    t->name = preset;
    return st;
}

static gw_status read_ledger(void *user, const char *preset, const char *sets, gw_ledger *out,
                             gw_diags *dg) {
    gw_target t;
    GW_TRY(open_run(&t, user, preset, sets, dg));
    gw_status st = gw_target_ledger(&t.setup, out, dg);
    gw_target_release(&t);
    return st;
}

static gw_status read_block(void *user, const char *preset, const char *sets,
                            const gw_block_layout *l, gw_block *out, gw_diags *dg) {
    gw_target t;
    GW_TRY(open_run(&t, user, preset, sets, dg));
    gw_block_input in = {.model = &t.setup.model,
                         .opts = &t.setup.train,
                         .micro_batch = t.rf.train.micro_batch,
                         .seq = t.rf.train.seq_len,
                         .comm = &t.setup.facts.comm};
    gw_status st = gw_block_read(out, &in, l, NULL, dg);
    gw_target_release(&t);
    return st;
}

/* ---- the command ---- */

static gw_status list(gw_cli *cli) {
    const gw_explain_topic *t;
    if (gw_cli_flag(cli, "json")) {
        json_t *all = json_array();
        for (int i = 0; (t = gw_explain_topic_at(i)) != NULL; i++)
            json_array_append_new(all, json_pack("{s:s, s:s}", "topic", t->name, "doc", t->doc));
        json_dumpf(all, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(all);
        return GW_OK;
    }
    gw_table *table = gw_table_new("lll");
    gw_table_row(table, "topic", "about", "model");
    for (int i = 0; (t = gw_explain_topic_at(i)) != NULL; i++)
        gw_table_row(table, t->name, t->doc, t->model ? t->model : "");
    gw_table_print(table, cli->out, "");
    gw_table_free(table);
    fprintf(cli->out, "\nor the id that a message ends with, such as config-range\n");
    return GW_OK;
}

static const error_row *find_error(const char *id) {
    for (size_t i = 0; i < GW_COUNT(rows); i++)
        if (strcmp(rows[i].id, id) == 0) return &rows[i];
    return NULL;
}

static const char *exit_text(int status) {
    return status == 0   ? "0: a note or a warning, the command goes on"
           : status == 2 ? "2: wrong usage or configuration; nothing has run"
           : status == 3 ? "3: interrupted, and can be resumed"
                         : "1: failed while running";
}

static gw_status print_error(gw_cli *cli, const error_row *r) {
    if (gw_cli_given(cli, "model") || cli->nargs > 1)
        return gw_cli_usage_error(cli, "%s is a message's id, it has no model and no inputs",
                                  r->id);
    if (gw_cli_flag(cli, "json")) {
        json_t *j = json_pack("{s:s, s:i, s:s, s:s}", "id", r->id, "exit", r->exit, "means",
                              r->meaning, "what_to_do", r->remedy);
        json_dumpf(j, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(j);
        return GW_OK;
    }
    fprintf(cli->out, "%s\n  means:       %s\n  exit status: %s\n  what to do:  %s\n", r->id,
            r->meaning, exit_text(r->exit), r->remedy);
    return GW_OK;
}

static gw_status unknown(gw_cli *cli, const char *word) {
    const gw_explain_topic *t;
    const char *best = NULL;
    int limit = GW_MAX(3, (int)strlen(word) / 2);
    gw_str all = {0};
    for (int i = 0; (t = gw_explain_topic_at(i)) != NULL; i++) {
        int d = gw_str_distance(t->name, word);
        gw_str_printf(&all, "%s%s", i ? ", " : "topics: ", t->name);
        if (d < limit) limit = d, best = t->name;
    }
    for (size_t i = 0; i < GW_COUNT(rows); i++) {
        int d = gw_str_distance(rows[i].id, word);
        if (d < limit) limit = d, best = rows[i].id;
    }
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_USAGE, "explain-topic", (gw_where){0},
                             "'%.80s' is no topic and no message's id", word);
    gw_diag_detail(cli->diags, g, "%s", gw_str_c(&all));
    if (best) gw_diag_hint(cli->diags, g, "did you mean %s?", best);
    gw_str_release(&all);
    return GW_ERR_USAGE;
}

static void show(gw_cli *cli, const gw_explain *e) {
    if (!gw_cli_flag(cli, "json")) {
        gw_explain_print(e, cli->out);
        return;
    }
    json_t *j = gw_explain_json(e);
    json_dumpf(j, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', cli->out);
    json_decref(j);
}

/* Rates that were measured of this machine stand in place of the stated ones. */
static void measured(gw_cli *cli, gw_explain *e) {
    gw_timings *t = gw_arena_new(cli->arena, gw_timings, 1);
    char why[160];
    const char *topic = e->topic->name;
    bool data =
        gw_str_eq(topic, "loader") || gw_str_eq(topic, "tokenizing") || gw_str_eq(topic, "storage");
    if (!data || !gw_path_exists(GW_CALIBRATION_FILE) ||
        gw_timings_read(GW_CALIBRATION_FILE, cli->arena, t, NULL) != GW_OK ||
        !gw_timings_fit_here(t, why) || t->data.tokenize_bytes_per_s <= 0)
        return;
    if (gw_str_eq(topic, "loader"))
        gw_explain_default(e, "core", t->data.loader_tokens_per_s, t->data.source);
    gw_explain_default(e, "own", t->data.tokenize_bytes_per_s, t->data.source);
    gw_explain_default(e, "pipe", t->data.pipeline_bytes_per_s, t->data.source);
    gw_explain_default(e, "node", t->storage_read, t->data.source);
}

/* All wrong inputs are said at once. */
static gw_status explain(gw_cli *cli, const gw_explain_topic *t) {
    gw_explain *e = gw_arena_new(cli->arena, gw_explain, 1);
    gw_explain_compiler c = {.user = cli->arena, .ledger = read_ledger, .block = read_block};
    GW_TRY(gw_explain_init(e, t, gw_cli_string(cli, "model", NULL), c, cli->diags));
    gw_status st = GW_OK;
    measured(cli, e);
    for (int i = 1; i < cli->nargs; i++) {
        gw_status one = gw_explain_set(e, cli->args[i], cli->diags);
        if (st == GW_OK) st = one;
    }
    if (st == GW_OK) {
        st = gw_explain_run(e, cli->diags);
        show(cli, e);
    }
    gw_explain_release(e);
    return st;
}

static gw_status run(gw_cli *cli) {
    if (cli->nargs == 0) {
        if (gw_cli_given(cli, "model")) return gw_cli_usage_error(cli, "--model goes with a topic");
        return list(cli);
    }
    const gw_explain_topic *t = gw_explain_topic_find(cli->args[0]);
    if (t) return explain(cli, t);
    const error_row *r = find_error(cli->args[0]);
    return r ? print_error(cli, r) : unknown(cli, cli->args[0]);
}

const gw_command gw_cmd_explain = {
    .name = "explain",
    .summary = "the arithmetic of a topic, or what a message means",
    .usage = {"", "TOPIC [--model PRESET] [NAME=VALUE ...] [--json]", "MESSAGE-ID [--json]"},
    .description =
        "Inputs, formula, numbers, result and source; where a program compiles, the same\n"
        "figure read from it. Inputs may be stated: n=64, gpu=80GB, mfu=40%.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = -1,
    .completes = GW_COMPLETE_WORDS,
    .words =
        "memory zero ring collectives tp sp cp moe pipeline recompute precision lora mfu fleet "
        "loader tokenizing storage object-store checkpoint",
    .example = "gradwright explain zero --model llama3-8b n=64",
    .run = run,
};
