// SPDX-License-Identifier: Apache-2.0
// gradwright export: the weights of a run as a Hugging Face directory.
//
// Written: config.json, model.safetensors (sharded past --max-shard) and, when the run names a
// tokenizer.json, a copy of it with a tokenizer_config.json that names the class readers need. The
// directory must not hold a model yet.
#include <string.h>
#include <unistd.h>

#include "base/io.h" /* gw_path_join, gw_file_read */
#include "cli/command.h"
#include "cli/source.h"    /* gw_cli_open_source */
#include "file/json.h"     /* json_t */
#include "train/weights.h" /* gw_weights_export */

static const gw_option options[] = {
    {"out", 'o', "DIR", "directory to write (required)", GW_OPT_STRING, NULL},
    {"dtype", 0, "DTYPE", "dtype of the tensors (default: as kept)", GW_OPT_STRING,
     "fp32 bf16 fp16"},
    {"max-shard", 0, "BYTES", "largest file before sharding (default 5GB)", GW_OPT_BYTES, NULL},
    GW_OPTION_JSON,
};

static gw_dtype chosen_dtype(gw_cli *cli, const gw_session *s) {
    const char *name = gw_cli_string(cli, "dtype", NULL);
    if (!name) return s->setup.train.master;
    return strcmp(name, "bf16") == 0 ? GW_BF16 : strcmp(name, "fp16") == 0 ? GW_F16 : GW_F32;
}

static const char *tokenizer_path(gw_cli *cli, const gw_runfile *rf) {
    const char *t = rf->data.tokenizer;
    if (!t && rf->model.source == GW_RF_PATH && gw_path_is_dir(rf->model.path))
        t = gw_path_join(cli->arena, rf->model.path, "tokenizer.json");
    if (t && gw_path_is_dir(t)) t = gw_path_join(cli->arena, t, "tokenizer.json");
    return t && gw_str_ends(t, ".json") && gw_path_exists(t) ? t : NULL;
}

static gw_status copy_tokenizer(gw_cli *cli, const char *from, const char *dir,
                                const gw_session *s) {
    gw_str text = {0};
    gw_status st = gw_file_read(from, INT64_C(1) << 30, &text, cli->diags);
    if (st == GW_OK)
        st = gw_file_write_atomic(gw_path_join(cli->arena, dir, "tokenizer.json"), text.data,
                                  (int64_t)text.len, cli->diags);
    gw_str_release(&text);
    GW_TRY(st);
    json_t *j = json_pack("{s:s, s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
                          "model_max_length", (json_int_t)s->setup.model.max_positions);
    st = gw_json_write_file(gw_path_join(cli->arena, dir, "tokenizer_config.json"), j, 2,
                            cli->diags);
    json_decref(j);
    return st;
}

static gw_status check_target(gw_cli *cli, const char *dir) {
    static const char *const taken[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < GW_COUNT(taken); i++)
        if (gw_path_exists(gw_path_join(cli->arena, dir, taken[i])))
            return gw_fail_at(cli->diags, GW_ERR_USAGE, "export-exists", (gw_where){.file = dir},
                              "the directory already holds %s; choose another with --out",
                              taken[i]);
    return gw_dir_make(dir, cli->diags);
}

static gw_status export(gw_cli *cli, const gw_runfile *rf, gw_session *s, const char *dir) {
    GW_TRY(check_target(cli, dir));
    int64_t bos = -1, eos = -1;
    if (s->setup.tokenizer) {
        bos = gw_tokenizer_bos(s->setup.tokenizer);
        eos = gw_tokenizer_eos(s->setup.tokenizer);
    }
    gw_dtype dtype = chosen_dtype(cli, s);
    const char *tokenizer = tokenizer_path(cli, rf);
    if (tokenizer) GW_TRY(copy_tokenizer(cli, tokenizer, dir, s));
    GW_TRY(gw_weights_export(s->x, &s->setup.model, s->setup.params, s->setup.nparams, dir, dtype,
                             gw_cli_int(cli, "max-shard", 0), bos, eos, cli->diags));
    int64_t n = gw_model_count(&s->setup.model);
    if (gw_cli_flag(cli, "json")) {
        json_t *j = json_pack("{s:s, s:I, s:s}", "directory", dir, "parameters", (json_int_t)n,
                              "dtype", gw_dtype_name(dtype));
        json_dumpf(j, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(j);
    } else {
        fprintf(cli->out, "%s: %s, %lld parameters in %s%s\n", dir,
                gw_family_name(s->setup.model.family), (long long)n, gw_dtype_name(dtype),
                tokenizer ? ", with its tokenizer" : "");
    }
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    const char *dir = gw_cli_string(cli, "out", NULL);
    if (!dir) return gw_cli_usage_error(cli, "--out DIR says where to write");
    gw_runfile rf;
    gw_session s;
    gw_status st = gw_cli_open_source(cli, cli->args[0], "fp32", false, &rf, &s);
    if (st == GW_OK) st = export(cli, &rf, &s, dir);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

const gw_command gw_cmd_export = {
    .name = "export",
    .summary = "write the weights of a run as a Hugging Face directory",
    .usage = {"RUN_DIR|HF_DIR|FILE.gguf --out DIR [--dtype DTYPE]"},
    .description = "config.json, model.safetensors and the tokenizer, for transformers to load.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright export runs/quickstart --out build/exported",
    .run = run,
};
