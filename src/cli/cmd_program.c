// SPDX-License-Identifier: Apache-2.0
// `gradwright program`: the compiled step as text, after any pass.
//
// What is printed parses back (ir/text.h); figures behind `#` are derived. --quiet leaves them out,
// which makes two programs easy to compare.
#include <stdio.h>
#include <string.h>

#include "base/str.h"    /* gw_str */
#include "base/term.h"   /* gw_table */
#include "cli/command.h" /* gw_command */
#include "cli/planarg.h" /* gw_target */
#include "ir/text.h"     /* gw_graph_print */

static const gw_option options[] = {
    {"after", 'a', "PASS", "stop after this pass (--passes lists them)", GW_OPT_STRING, NULL},
    {"rank", 'r', "R", "the program of this rank: all ranks run the same one", GW_OPT_INT, NULL},
    {"ranks", 'n', "N", "compile for N ranks: layout.dp auto becomes N", GW_OPT_INT, NULL},
    {"forward", 0, NULL, "the program of validation, not the training step", GW_OPT_FLAG, NULL},
    {"summary", 0, NULL, "print how many ops of each kind, not the ops", GW_OPT_FLAG, NULL},
    {"passes", 0, NULL, "list the passes in order", GW_OPT_FLAG, NULL},
    GW_OPTION_SET,
};

static const char *const build_doc = "the model's forward graph of one micro-batch";

static void list_passes(gw_str *out, const char *indent) {
    gw_str_printf(out, "%s%-10s %s", indent, "build", build_doc);
    for (int i = 0; gw_pass_name(i); i++)
        gw_str_printf(out, "\n%s%-10s %s", indent, gw_pass_name(i), gw_pass_doc(i));
}

static gw_status check_pass(gw_cli *cli, const char *pass) {
    if (!pass || strcmp(pass, "build") == 0) return GW_OK;
    for (int i = 0; gw_pass_name(i); i++)
        if (strcmp(gw_pass_name(i), pass) == 0) return GW_OK;
    gw_str all = {0};
    list_passes(&all, "    ");
    gw_status st = gw_cli_usage_error(cli, "there is no pass '%.60s'", pass);
    gw_diag_detail(cli->diags, cli->diags->last, "the passes are\n%s", gw_str_c(&all));
    gw_str_release(&all);
    return st;
}

/* The text has global sizes, so it is that of every rank of a stage; what differs are the parts
 * that a rank holds. */
static gw_status check_rank(gw_cli *cli, const gw_target *t) {
    int64_t rank = gw_cli_int(cli, "rank", 0), ranks = gw_runfile_ranks(&t->rf);
    if (rank >= 0 && rank < ranks) return GW_OK;
    return gw_cli_usage_error(cli, "--rank %lld: the layout has %lld rank%s, numbered from 0",
                              (long long)rank, (long long)ranks, ranks == 1 ? "" : "s");
}

/* Ops of one kind: by phase, and those that recompute. */
typedef struct tally {
    int64_t phase[GW_PHASE_COUNT], recomputed, all;
} tally;

static const char *figure(char buf[24], int64_t n) {
    buf[0] = 0;
    if (n) snprintf(buf, 24, "%lld", (long long)n);
    return buf;
}

static void tally_row(gw_table *t, const char *name, const tally *x, const char *doc) {
    char b[7][24];
    gw_table_row(t, name, figure(b[0], x->phase[GW_PHASE_F]), figure(b[1], x->phase[GW_PHASE_B]),
                 figure(b[2], x->phase[GW_PHASE_W]), figure(b[3], x->phase[GW_PHASE_BW]),
                 figure(b[4], x->phase[GW_PHASE_O]), figure(b[5], x->recomputed),
                 figure(b[6], x->all), doc);
}

static void count_op(tally *x, const gw_op *o) {
    x->phase[o->phase]++;
    x->recomputed += (o->flags & GW_OP_RECOMPUTED) != 0;
    x->all++;
}

static void print_summary(const gw_graph *g, FILE *out) {
    tally *kinds = gw_mem_zalloc(sizeof(tally) * (size_t)g->table->count), sum = {0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        count_op(&kinds[g->ops.items[i].code], &g->ops.items[i]);
        count_op(&sum, &g->ops.items[i]);
    }
    gw_table *t = gw_table_new("lrrrrrrrl");
    gw_table_row(t, "op", "F", "B", "W", "BW", "O", "again", "all", "");
    for (int k = 0; k < g->table->count; k++)
        if (kinds[k].all) tally_row(t, g->table->ops[k]->name, &kinds[k], g->table->ops[k]->doc);
    gw_table_rule(t);
    tally_row(t, "all", &sum, "");
    gw_table_print(t, out, "");
    gw_table_free(t);
    gw_mem_free(kinds);
    char bytes[32], exact[40];
    fprintf(out, "\n%lld values, %lld states carried from step to step, %d micro-batch%s\n",
            (long long)g->values.count, (long long)g->states.count, (int)g->micro_batches,
            g->micro_batches == 1 ? "" : "es");
    if (g->arena_bytes[GW_MEM_DEVICE])
        fprintf(out, "arena %s = %s B\n", gw_fmt_bytes(bytes, g->arena_bytes[GW_MEM_DEVICE]),
                gw_fmt_count(exact, g->arena_bytes[GW_MEM_DEVICE]));
    fprintf(out, "F forward, B backward to activations, W to weights, BW both, O optimizer and "
                 "frame\n");
}

static gw_status print_program(gw_cli *cli, const gw_target *t) {
    gw_graph g;
    gw_setup one = t->setup;
    one.stage_rank = (int)(gw_cli_int(cli, "rank", 0) / gw_runfile_stage_ranks(&t->rf));
    GW_TRY(gw_setup_program(&one, !gw_cli_flag(cli, "forward"), gw_cli_string(cli, "after", NULL),
                            &g, NULL, cli->diags));
    if (gw_cli_flag(cli, "summary")) {
        print_summary(&g, cli->out);
    } else {
        gw_str text = {0};
        gw_graph_print(&g, &text, !cli->quiet);
        fwrite(gw_str_c(&text), 1, text.len, cli->out);
        gw_str_release(&text);
    }
    gw_graph_release(&g);
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    if (gw_cli_flag(cli, "passes")) {
        bool more = cli->nargs > 0 || gw_cli_given(cli, "after") || gw_cli_given(cli, "rank") ||
                    gw_cli_given(cli, "ranks") || gw_cli_given(cli, "forward") ||
                    gw_cli_given(cli, "summary") || gw_cli_given(cli, "set");
        if (more)
            return gw_cli_usage_error(cli, "--passes stands alone: the passes are the same for "
                                           "every program");
        gw_str all = {0};
        list_passes(&all, "");
        fprintf(cli->out, "%s\n", gw_str_c(&all));
        gw_str_release(&all);
        return GW_OK;
    }
    if (cli->nargs == 0) return gw_cli_usage_error(cli, "a run file or a model is missing");
    GW_TRY(check_pass(cli, gw_cli_string(cli, "after", NULL)));
    gw_target t;
    GW_TRY(gw_target_init(&t, cli, cli->args[0]));
    gw_status st = check_rank(cli, &t);
    if (st == GW_OK) st = print_program(cli, &t);
    gw_target_release(&t);
    return st;
}

const gw_command gw_cmd_program = {
    .name = "program",
    .summary = "print the compiled step as text, after any pass",
    .usage = {"RUN.yaml|PRESET|MODEL_DIR [--after PASS] [--set KEY=VALUE]", "--passes"},
    .description = "One op a line, as the executor runs them; figures behind # are derived, and\n"
                   "--quiet leaves them out. The text parses back into the same program.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright program examples/quickstart.yaml --after autodiff",
    .run = run,
};
