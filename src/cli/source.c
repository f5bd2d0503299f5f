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
//
// A checkpoint, or a place of them, needs no run directory: its manifest has the run file as it was
// resolved. What that names besides (a tokenizer, the configuration of a public model) is not in
// the checkpoint. A tokenizer that is not here is done without, and that is said; for
// a model that began from a public one, its config.json must be where it was.
#include "cli/source.h"

#include <string.h>

#include "base/io.h"    /* gw_path_join, gw_path_exists */
#include "base/log.h"   /* gw_log_warn */
#include "cli/runarg.h" /* gw_cli_need_path */
#include "file/store.h" /* gw_store_is_url */

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

/* ---- checkpoints alone ---- */

/* "PLACE/checkpoints/step-00000040" -> PLACE; NULL for any other path. */
static const char *place_of_checkpoint(gw_cli *cli, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash || gw_checkpoint_step_of_name(slash + 1) < 0) return NULL;
    char *place = gw_arena_strndup(cli->arena, path, (size_t)(slash - path));
    if (gw_str_eq(place, "checkpoints")) return ".";
    if (!gw_str_ends(place, "/checkpoints")) return NULL;
    place[strlen(place) - strlen("/checkpoints")] = 0;
    return place;
}

/* The manifest of `path`, or of the newest complete checkpoint there. */
static gw_status manifest_at(gw_cli *cli, const char *path, gw_ckpt_manifest **m) {
    gw_ckpt_list list;
    if (place_of_checkpoint(cli, path)) return gw_checkpoint_read(path, cli->arena, m, cli->diags);
    GW_TRY(gw_checkpoint_list(path, cli->arena, &list, cli->diags));
    for (int i = 0; i < list.n; i++)
        if (list.items[i].state == GW_CKPT_COMPLETE)
            return gw_checkpoint_read(list.items[i].path, cli->arena, m, cli->diags);
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_IO, "checkpoint-none", (gw_where){0},
                             "'%s' has no complete checkpoint (%d in all)", path, list.n);
    gw_diag_hint(cli->diags, g, "see: gradwright checkpoint ls %s", path);
    return GW_ERR_IO;
}

/* What the run file names that is not here. */
static gw_status do_without(gw_cli *cli, const char *path, gw_runfile *rf) {
    const char *t = rf->data.tokenizer;
    if (rf->model.source == GW_RF_PATH && !gw_path_exists(rf->model.path)) {
        gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_IO, "file-open",
                                 (gw_where){.file = rf->model.path},
                                 "the run of this checkpoint began from the model there, whose "
                                 "config.json is not in the checkpoint");
        gw_diag_hint(cli->diags, g,
                     "bring that directory back, or name the run directory instead of %s", path);
        return GW_ERR_IO;
    }
    if (!t || gw_str_eq(t, "bytes") || gw_path_exists(t)) return GW_OK;
    gw_log_warn("the run's tokenizer %s is not here: going on without it (--tokenizer names one)",
                t);
    rf->data.tokenizer = NULL;
    return GW_OK;
}

static gw_status open_stored(gw_cli *cli, const char *path, const gw_source_options *o,
                             gw_runfile *rf, gw_session *s) {
    gw_ckpt_manifest *m = NULL;
    GW_TRY(refuse_compute(cli, o));
    GW_TRY(manifest_at(cli, path, &m));
    const char *set = tokenizer_set(cli, o), *text = m->meta.config;
    const char *name = gw_arena_printf(cli->arena, "%s/manifest.json (config)", m->path);
    GW_TRY(gw_runfile_parse(rf, name, text, (int64_t)strlen(text), &set, set ? 1 : 0, cli->diags));
    rf->checkpoint.dir = NULL; /* it is here, wherever it was written */
    GW_TRY(do_without(cli, path, rf));
    GW_TRY(check_tokenizer(cli, rf, o));
    return gw_session_open_params(s, rf, path, o->need_tokenizer, cli->diags);
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

/* "PLACE/checkpoints" -> PLACE, where checkpoints stand; else NULL. */
static const char *place_of_folder(gw_cli *cli, const char *path) {
    gw_ckpt_list list;
    const char *slash = strrchr(path, '/');
    const char *place = !slash ? "." : gw_arena_strndup(cli->arena, path, (size_t)(slash - path));
    if (!gw_str_eq(slash ? slash + 1 : path, "checkpoints") || !*place) return NULL;
    if (gw_checkpoint_list(place, cli->arena, &list, NULL) != GW_OK) return NULL;
    return list.n > 0 ? place : NULL;
}

static const char *without_slash(gw_cli *cli, const char *path) {
    size_t n = strlen(path);
    return n > 1 && path[n - 1] == '/' ? gw_arena_strndup(cli->arena, path, n - 1) : path;
}

gw_status gw_cli_open_source(gw_cli *cli, const char *path, const gw_source_options *o,
                             gw_runfile *rf, gw_session *s) {
    memset(rf, 0, sizeof *rf);
    memset(s, 0, sizeof *s);
    if (gw_store_is_url(path)) return open_stored(cli, without_slash(cli, path), o, rf, s);
    GW_TRY(gw_cli_need_path(cli, path));
    if (gw_path_is_dir(path)) {
        const char *checkpoint = without_slash(cli, path);
        const char *of = run_of_checkpoint(cli, checkpoint);
        if (of) return open_run(cli, of, checkpoint, o, rf, s);
        if (has(cli, path, "config.yaml")) return open_run(cli, path, path, o, rf, s);
        if (has(cli, path, "config.json")) return open_public(cli, path, o, rf, s);
        if (place_of_checkpoint(cli, checkpoint) ||
            gw_path_is_dir(gw_path_join(cli->arena, path, "checkpoints")))
            return open_stored(cli, checkpoint, o, rf, s);
        const char *place = place_of_folder(cli, checkpoint);
        if (place && has(cli, place, "config.yaml")) return open_run(cli, place, place, o, rf, s);
        if (place) return open_stored(cli, place, o, rf, s);
        return gw_fail_at(cli->diags, GW_ERR_USAGE, "source-kind", (gw_where){.file = path},
                          "the directory is neither a run (config.yaml) nor a Hugging Face model "
                          "(config.json)");
    }
    if (gw_str_ends(path, ".gguf")) return open_public(cli, path, o, rf, s);
    const char *run = run_of_config(cli, path);
    return run ? open_run(cli, run, run, o, rf, s) : open_runfile(cli, path, o, rf, s);
}
