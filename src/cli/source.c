// SPDX-License-Identifier: Apache-2.0
// One argument, four kinds of model. Which it is follows from what stands there, never from a flag.
//
// A public directory or file becomes a run file in memory (model.path, weights kept in the dtype
// they are used in), so that everything after goes the way of any other run.
#include "cli/source.h"

#include <string.h>

#include "base/io.h" /* gw_path_join, gw_file_read */

static bool has(gw_cli *cli, const char *dir, const char *name) {
    return gw_path_exists(gw_path_join(cli->arena, dir, name));
}

/* A run directory's own settings; paths inside are as they were given to `train`. */
static gw_status open_run(gw_cli *cli, const char *dir, bool need_tokenizer, gw_runfile *rf,
                          gw_session *s) {
    GW_TRY(gw_runfile_load(rf, gw_path_join(cli->arena, dir, "config.yaml"), NULL, 0, cli->diags));
    return gw_session_open_params(s, rf, dir, need_tokenizer, cli->diags);
}

static gw_status open_public(gw_cli *cli, const char *path, const char *compute,
                             bool need_tokenizer, gw_runfile *rf, gw_session *s) {
    const char *tokenizer = need_tokenizer ? gw_cli_string(cli, "tokenizer", NULL) : NULL;
    const char *sets[3] = {gw_arena_printf(cli->arena, "model.path=%s", path),
                           gw_arena_printf(cli->arena, "precision.compute=%s", compute),
                           tokenizer ? gw_arena_printf(cli->arena, "data.tokenizer=%s", tokenizer)
                                     : NULL};
    const char *text =
        strcmp(compute, "fp32") == 0
            ? "model: {load_weights: true}\n"
            : "model: {load_weights: true}\nprecision: {master: none, gradients: compute, "
              "moments: compute}\n";
    GW_TRY(gw_runfile_parse(rf, path, text, (int64_t)strlen(text), sets, tokenizer ? 3 : 2,
                            cli->diags));
    return gw_session_open_params(s, rf, NULL, need_tokenizer, cli->diags);
}

gw_status gw_cli_open_source(gw_cli *cli, const char *path, const char *compute,
                             bool need_tokenizer, gw_runfile *rf, gw_session *s) {
    memset(rf, 0, sizeof *rf);
    memset(s, 0, sizeof *s);
    if (gw_path_is_dir(path)) {
        if (has(cli, path, "config.yaml")) return open_run(cli, path, need_tokenizer, rf, s);
        if (has(cli, path, "config.json"))
            return open_public(cli, path, compute, need_tokenizer, rf, s);
        return gw_fail_at(cli->diags, GW_ERR_USAGE, "source-kind", (gw_where){.file = path},
                          "the directory is neither a run (config.yaml) nor a Hugging Face model "
                          "(config.json)");
    }
    if (!gw_path_exists(path))
        return gw_fail_at(cli->diags, GW_ERR_USAGE, "source-missing", (gw_where){.file = path},
                          "there is no such file or directory");
    if (gw_str_ends(path, ".gguf")) return open_public(cli, path, compute, need_tokenizer, rf, s);
    GW_TRY(gw_runfile_load(rf, path, NULL, 0, cli->diags));
    return gw_session_open_params(s, rf, NULL, need_tokenizer, cli->diags);
}
