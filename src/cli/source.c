// SPDX-License-Identifier: Apache-2.0
// One argument, four kinds of model. Which it is follows from what stands there, never from a flag.
//
// A public directory or file becomes a run file in memory (model.path, weights kept in the dtype
// they are used in), so that everything after goes the way of any other run.
//
// A source without trained weights is an error. A run file describes a run, it does not hold one:
// only where it starts from the weights of model.path is there a model to speak of. The config.yaml
// of a run directory is the exception that people mean when they name it: it stands for its
// directory.
#include "cli/source.h"

#include <string.h>

#include "base/io.h"    /* gw_path_join, gw_path_exists */
#include "cli/runarg.h" /* gw_cli_need_path */

static bool has(gw_cli *cli, const char *dir, const char *name) {
    return gw_path_exists(gw_path_join(cli->arena, dir, name));
}

/* --compute says how a public model is read; a run has its own precision. */
static gw_status refuse_compute(gw_cli *cli, const gw_source_options *o) {
    if (!o->compute) return GW_OK;
    return gw_cli_usage_error(cli,
                              "--compute is for a public model: a run is read in the precision it "
                              "was trained in");
}

static const char *tokenizer_set(gw_cli *cli, const gw_source_options *o) {
    return o->tokenizer ? gw_arena_printf(cli->arena, "data.tokenizer=%s", o->tokenizer) : NULL;
}

/* Has a run's own model.path, if it needs one, a tokenizer? Said here, where the option is known
 * that gives one. */
static gw_status check_tokenizer(gw_cli *cli, const gw_runfile *rf, const gw_source_options *o) {
    if (!o->need_tokenizer || rf->data.tokenizer || rf->model.source != GW_RF_PATH) return GW_OK;
    const char *path = rf->model.path;
    if (gw_str_ends(path, ".gguf") || (gw_path_is_dir(path) && has(cli, path, "tokenizer.json")))
        return GW_OK;
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_CONFIG, "config-missing",
                             (gw_where){.file = path}, "the model comes without a tokenizer");
    gw_diag_hint(cli->diags, g,
                 "name one with --tokenizer: a tokenizer.json, a directory that holds one, a "
                 ".tiktoken file, or bytes");
    return GW_ERR_CONFIG;
}

/* A run directory's own settings, and its copies of the model's configuration and tokenizer. */
static gw_status open_run(gw_cli *cli, const char *dir, const char *checkpoint,
                          const gw_source_options *o, gw_runfile *rf, gw_session *s) {
    GW_TRY(refuse_compute(cli, o));
    const char *set = tokenizer_set(cli, o);
    GW_TRY(gw_runfile_load(rf, gw_path_join(cli->arena, dir, "config.yaml"), &set, set ? 1 : 0,
                           cli->diags));
    gw_session_use_copies(rf, dir, true);
    GW_TRY(check_tokenizer(cli, rf, o));
    return gw_session_open_params(s, rf, checkpoint, o->need_tokenizer, cli->diags);
}

static gw_status open_public(gw_cli *cli, const char *path, const gw_source_options *o,
                             gw_runfile *rf, gw_session *s) {
    const char *compute = o->compute ? o->compute : "fp32";
    const char *sets[3] = {gw_arena_printf(cli->arena, "model.path=%s", path),
                           gw_arena_printf(cli->arena, "precision.compute=%s", compute),
                           tokenizer_set(cli, o)};
    const char *text =
        strcmp(compute, "fp32") == 0
            ? "model: {load_weights: true}\n"
            : "model: {load_weights: true}\nprecision: {master: none, gradients: compute, "
              "moments: compute}\n";
    GW_TRY(
        gw_runfile_parse(rf, path, text, (int64_t)strlen(text), sets, sets[2] ? 3 : 2, cli->diags));
    GW_TRY(check_tokenizer(cli, rf, o));
    return gw_session_open_params(s, rf, NULL, o->need_tokenizer, cli->diags);
}

static gw_status open_runfile(gw_cli *cli, const char *path, const gw_source_options *o,
                              gw_runfile *rf, gw_session *s) {
    GW_TRY(refuse_compute(cli, o));
    const char *set = tokenizer_set(cli, o);
    GW_TRY(gw_runfile_load(rf, path, &set, set ? 1 : 0, cli->diags));
    if (rf->model.source != GW_RF_PATH || !rf->model.load_weights) {
        gw_diag *g =
            gw_diag_add(cli->diags, GW_ERROR, GW_ERR_USAGE, "source-kind", (gw_where){.file = path},
                        "a run file holds no weights, and this one starts from none");
        gw_diag_hint(cli->diags, g,
                     "give the run directory, where `gradwright train --out` writes checkpoints");
        return GW_ERR_USAGE;
    }
    GW_TRY(check_tokenizer(cli, rf, o));
    return gw_session_open_params(s, rf, NULL, o->need_tokenizer, cli->diags);
}

/* The run directory whose config.yaml `path` is, or NULL. */
static const char *run_of_config(gw_cli *cli, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(name, "config.yaml") != 0) return NULL;
    const char *dir = !slash          ? "."
                      : slash == path ? "/"
                                      : gw_arena_strndup(cli->arena, path, (size_t)(slash - path));
    return gw_path_is_dir(gw_path_join(cli->arena, dir, "checkpoints")) ? dir : NULL;
}

/* The run directory whose checkpoint `path` is, or NULL. */
static const char *run_of_checkpoint(gw_cli *cli, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash || gw_checkpoint_step_of_name(slash + 1) < 0) return NULL;
    char *run = gw_arena_strndup(cli->arena, path, (size_t)(slash - path));
    char *last = strrchr(run, '/');
    if (!last) return gw_str_eq(run, "checkpoints") ? "." : NULL;
    *last = 0;
    return has(cli, run, "config.yaml") ? run : NULL;
}

static const char *without_slash(gw_cli *cli, const char *path) {
    size_t n = strlen(path);
    return n > 1 && path[n - 1] == '/' ? gw_arena_strndup(cli->arena, path, n - 1) : path;
}

gw_status gw_cli_open_source(gw_cli *cli, const char *path, const gw_source_options *o,
                             gw_runfile *rf, gw_session *s) {
    memset(rf, 0, sizeof *rf);
    memset(s, 0, sizeof *s);
    GW_TRY(gw_cli_need_path(cli, path));
    if (gw_path_is_dir(path)) {
        const char *checkpoint = without_slash(cli, path);
        const char *of = run_of_checkpoint(cli, checkpoint);
        if (of) return open_run(cli, of, checkpoint, o, rf, s);
        if (has(cli, path, "config.yaml")) return open_run(cli, path, path, o, rf, s);
        if (has(cli, path, "config.json")) return open_public(cli, path, o, rf, s);
        return gw_fail_at(cli->diags, GW_ERR_USAGE, "source-kind", (gw_where){.file = path},
                          "the directory is neither a run (config.yaml) nor a Hugging Face model "
                          "(config.json)");
    }
    if (gw_str_ends(path, ".gguf")) return open_public(cli, path, o, rf, s);
    const char *run = run_of_config(cli, path);
    return run ? open_run(cli, run, run, o, rf, s) : open_runfile(cli, path, o, rf, s);
}
