// SPDX-License-Identifier: Apache-2.0
// gradwright import: public weights as a run that has not taken a step.
//
// RUN_DIR gets what `train --out` would write before its first step: config.yaml, copies of the
// model's configuration and tokenizer, and a checkpoint at step 0 of the weights and of optimizer
// states as they begin. From there on the public file is not needed, and any layout goes on:
// gradwright train RUN_DIR/config.yaml --out RUN_DIR --resume. Tensors that are missing and those
// that belong to nothing are both named; with either nothing is written.
#include <stdlib.h> /* free */
#include <string.h>
#include <unistd.h> /* getcwd */

#include "base/io.h"  /* gw_path_join */
#include "base/str.h" /* gw_fmt_si */
#include "cli/command.h"
#include "cli/runarg.h"     /* gw_cli_need_path */
#include "file/hf_config.h" /* gw_hf_config */
#include "file/json.h"      /* json_t */
#include "train/session.h"  /* gw_session_open_state */

static const gw_option options[] = {
    {"out", 'o', "DIR", "run directory to write (required)", GW_OPT_STRING, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

static const char *absolute(gw_cli *cli, const char *path) {
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    const char *full = here ? gw_path_join(cli->arena, here, path) : path;
    free(here);
    return full;
}

enum { DEFAULT_SEQ_LEN = 1024 };

/* Positions that the model was made for; 0 where that cannot be read (the run file says why). */
static int64_t positions_of(const char *source) {
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    int64_t n = gw_setup_read_config(source, c, NULL) == GW_OK ? c->max_positions : 0;
    gw_mem_free(c);
    return n;
}

/* A run of the model with what --set says; everything else has its default, but that sequences are
 * no longer than what the model was made for. */
static gw_status run_of(gw_cli *cli, const char *source, gw_runfile *rf) {
    const char *const *given;
    int n = gw_cli_list(cli, "set", &given);
    const char **sets = gw_arena_new(cli->arena, const char *, n + 1);
    sets[0] = gw_arena_printf(cli->arena, "model.path=%s", absolute(cli, source));
    for (int i = 0; i < n; i++) sets[i + 1] = given[i];
    const char *text = "model: {load_weights: true}\n";
    int64_t most = positions_of(source);
    if (most > 0 && most < DEFAULT_SEQ_LEN)
        text = gw_arena_printf(cli->arena, "%strain: {seq_len: %lld}\n", text, (long long)most);
    return gw_runfile_parse(rf, source, text, (int64_t)strlen(text), sets, n + 1, cli->diags);
}

static gw_status check_target(gw_cli *cli, const char *dir) {
    static const char *const taken[] = {"config.yaml", "checkpoints", "metrics.jsonl"};
    for (size_t i = 0; i < GW_COUNT(taken); i++)
        if (gw_path_exists(gw_path_join(cli->arena, dir, taken[i])))
            return gw_fail_at(cli->diags, GW_ERR_USAGE, "run-exists", (gw_where){.file = dir},
                              "the directory already holds a run (%s); choose another with --out",
                              taken[i]);
    return gw_dir_make(dir, cli->diags);
}

/* The weights of the file that nothing reads were a warning so far; a model without some of its
 * parts is none. */
static gw_status refuse_unread(gw_cli *cli) {
    for (const gw_diag *d = cli->diags->first; d; d = d->next) {
        if (d->severity != GW_WARNING || strcmp(d->id, "weights-unread") != 0) continue;
        gw_status st = gw_fail_at(cli->diags, GW_ERR_FORMAT, "import-unread",
                                  (gw_where){.file = d->where.file},
                                  "the model would lack tensors of the file: nothing is imported");
        gw_diag_hint(cli->diags, cli->diags->last, "see that config.json belongs to these weights");
        return st;
    }
    return GW_OK;
}

static gw_status write_run(gw_cli *cli, gw_runfile *rf, gw_session *s, const char *dir) {
    gw_str yaml = {0};
    gw_runfile_yaml(rf, true, &yaml);
    gw_status st = gw_session_keep_copies(rf, dir, cli->diags);
    if (st == GW_OK)
        st = gw_file_write_atomic(gw_path_join(cli->arena, dir, "config.yaml"), gw_str_c(&yaml),
                                  (int64_t)yaml.len, cli->diags);
    gw_str_release(&yaml);
    return st == GW_OK ? gw_session_save(s, dir, cli->diags) : st;
}

static void report(gw_cli *cli, const gw_session *s, const char *dir) {
    int64_t n = gw_model_count(&s->setup.model);
    char text[32];
    if (gw_cli_flag(cli, "json")) {
        json_t *j = json_pack("{s:s, s:s, s:I}", "directory", dir, "family",
                              gw_family_name(s->setup.model.family), "parameters", (json_int_t)n);
        json_dumpf(j, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(j);
        return;
    }
    fprintf(cli->out, "%s: %s, %sparameters, at step 0\n", dir,
            gw_family_name(s->setup.model.family), gw_fmt_si(text, (double)n));
    fprintf(cli->out, "to train: gradwright train %s/config.yaml --out %s --resume%s\n", dir, dir,
            s->rf->data.train.count > 0 ? "" : " --set data.train=PREFIX");
}

static gw_status import(gw_cli *cli, gw_runfile *rf, const char *dir) {
    gw_session s;
    GW_TRY(gw_session_open_state(&s, rf, cli->diags));
    gw_status st = refuse_unread(cli);
    if (st == GW_OK) st = check_target(cli, dir);
    if (st == GW_OK) st = write_run(cli, rf, &s, dir);
    if (st == GW_OK) report(cli, &s, dir);
    gw_session_close(&s);
    return st;
}

static gw_status run(gw_cli *cli) {
    const char *dir = gw_cli_string(cli, "out", NULL);
    if (!dir || !*dir) return gw_cli_usage_error(cli, "--out DIR says where to write the run");
    GW_TRY(gw_cli_need_path(cli, cli->args[0]));
    GW_TRY(check_target(cli, dir));
    gw_runfile rf;
    gw_status st = run_of(cli, cli->args[0], &rf);
    if (st == GW_OK) st = import(cli, &rf, dir);
    gw_runfile_release(&rf);
    return st;
}

const gw_command gw_cmd_import = {
    .name = "import",
    .summary = "make a run of public weights, at step 0",
    .usage = {"HF_DIR|FILE.gguf|PYTORCH_DIR --out DIR [--set KEY=VALUE]"},
    .description =
        "safetensors, GGUF, or pytorch_model.bin (a pickle, read without executing it),\n"
        "with the config.json beside it; train --resume goes on from it in any layout.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright import build/exported --out runs/imported",
    .run = run,
};
