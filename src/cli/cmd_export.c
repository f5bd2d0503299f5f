// SPDX-License-Identifier: Apache-2.0
// gradwright export: the weights of a run as a Hugging Face directory, or as a GGUF file.
//
// Written: config.json, model.safetensors (sharded past --max-shard) and, when the run has a
// tokenizer.json, that with the files that stand beside it (its configuration, chat template, what
// generation ends with), as they are: readers take special tokens from there. A tokenizer.json that
// stands alone gets a tokenizer_config.json that names the class readers need. The directory must
// not hold a model yet; one that was made for an export that failed is taken away again. With --to
// gguf everything, tokenizer included, is one file, which is there when it is whole.
#include <string.h>
#include <unistd.h>

#include "base/io.h" /* gw_path_join, gw_file_read */
#include "cli/command.h"
#include "cli/source.h"     /* gw_cli_open_source */
#include "file/hf_config.h" /* gw_hf_config */
#include "file/json.h"      /* json_t */
#include "train/weights.h"  /* gw_weights_export */

static const gw_option options[] = {
    {"out", 'o', "DIR", "directory, or file, to write (required)", GW_OPT_STRING, NULL},
    {"to", 0, "FORMAT", "hf: a directory; gguf: one file (default hf)", GW_OPT_STRING, "hf gguf"},
    {"dtype", 0, "DTYPE", "of the tensors (default: as kept); q8_0: with --to gguf", GW_OPT_STRING,
     "fp32 bf16 fp16 q8_0"},
    {"tokenizer", 0, "PATH", "a tokenizer.json, or its directory, instead of its own",
     GW_OPT_STRING, NULL},
    {"max-shard", 0, "BYTES", "largest file before sharding (default 5GB)", GW_OPT_BYTES, NULL},
    GW_OPTION_JSON,
};

static bool to_gguf(gw_cli *cli) { return strcmp(gw_cli_string(cli, "to", "hf"), "gguf") == 0; }

static gw_dtype chosen_dtype(gw_cli *cli, const gw_session *s) {
    const char *name = gw_cli_string(cli, "dtype", NULL);
    if (!name) return s->setup.train.master;
    return strcmp(name, "bf16") == 0 ? GW_BF16 : strcmp(name, "fp16") == 0 ? GW_F16 : GW_F32;
}

/* ---- the tokenizer's files ---- */

/* What readers of the directory look for beside the weights, tokenizer.json first. */
static const char *const companions[] = {"tokenizer.json", "tokenizer_config.json",
                                         "special_tokens_map.json", "generation_config.json",
                                         "chat_template.jinja"};

/* The folder of the run's tokenizer, or that of the model it began from; NULL without one. */
static const char *companion_dir(gw_cli *cli, const gw_runfile *rf) {
    const char *t = rf->data.tokenizer;
    if (!t) return rf->model.source == GW_RF_PATH ? rf->model.path : NULL;
    if (gw_path_is_dir(t)) return t;
    const char *slash = strrchr(t, '/');
    if (!gw_str_ends(t, ".json")) return NULL;
    return slash ? gw_arena_strndup(cli->arena, t, (size_t)(slash - t) + 1) : ".";
}

/* The file to copy as companions[i]; NULL when there is none. */
static const char *companion(gw_cli *cli, const gw_runfile *rf, size_t i) {
    const char *dir = companion_dir(cli, rf), *t = rf->data.tokenizer;
    if (!dir || !gw_path_is_dir(dir)) return NULL;
    const char *path = i == 0 && t && gw_str_ends(t, ".json") && !gw_path_is_dir(t)
                           ? t
                           : gw_path_join(cli->arena, dir, companions[i]);
    return gw_path_exists(path) ? path : NULL;
}

static gw_status copy(gw_cli *cli, const char *from, const char *to) {
    gw_str text = {0};
    gw_status st = gw_file_read(from, INT64_C(1) << 30, &text, cli->diags);
    if (st == GW_OK) st = gw_file_write_atomic(to, text.data, (int64_t)text.len, cli->diags);
    gw_str_release(&text);
    return st;
}

static void set_token(json_t *j, const char *key, const gw_tokenizer *t, int32_t id) {
    size_t n = 0;
    const uint8_t *b = t && id >= 0 ? gw_tokenizer_token_bytes(t, id, &n) : NULL;
    json_t *text = b ? json_stringn((const char *)b, n) : NULL;
    if (text) json_object_set_new(j, key, text);
}

/* For a tokenizer.json that stands alone: the class that readers need, and what ends a text. */
static gw_status describe_tokenizer(gw_cli *cli, const gw_session *s, const char *to) {
    const gw_tokenizer *t = s->setup.tokenizer;
    json_t *j = json_pack("{s:s, s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
                          "model_max_length", (json_int_t)s->setup.model.max_positions);
    if (t) set_token(j, "bos_token", t, gw_tokenizer_bos(t));
    if (t) set_token(j, "eos_token", t, gw_tokenizer_eos(t));
    gw_status st = gw_json_write_file(to, j, 2, cli->diags);
    json_decref(j);
    return st;
}

static gw_status copy_companions(gw_cli *cli, const gw_runfile *rf, const gw_session *s,
                                 const char *dir, bool *tokenizer) {
    bool described = false;
    for (size_t i = 0; i < GW_COUNT(companions); i++) {
        const char *from = companion(cli, rf, i);
        if (!from) continue;
        GW_TRY(copy(cli, from, gw_path_join(cli->arena, dir, companions[i])));
        if (i == 0) *tokenizer = true;
        if (i == 1) described = true;
    }
    if (!*tokenizer || described) return GW_OK;
    return describe_tokenizer(cli, s, gw_path_join(cli->arena, dir, companions[1]));
}

/* ---- special tokens ---- */

static bool among(const int64_t *ids, int n, int64_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The ids of the model that the run began from, unless its tokenizer is another one: what ends a
 * text is then the tokenizer's own. */
static gw_status special_ids(gw_cli *cli, const gw_runfile *rf, const gw_session *s,
                             gw_token_ids *ids) {
    const gw_tokenizer *t = s->setup.tokenizer;
    int64_t bos = t ? gw_tokenizer_bos(t) : -1, eos = t ? gw_tokenizer_eos(t) : -1;
    *ids = (gw_token_ids){.bos = bos, .pad = -1, .eos = {eos}, .neos = eos >= 0};
    if (rf->model.source != GW_RF_PATH) return GW_OK;
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    gw_diags unsaid; /* it has been read before: notes are not said again */
    gw_diags_init(&unsaid);
    gw_status st = gw_setup_read_config(rf->model.path, c, &unsaid);
    gw_diags_release(&unsaid);
    bool another =
        rf->data.tokenizer && eos >= 0 && c->neos > 0 && !among(c->eos_token_id, c->neos, eos);
    if (st == GW_OK && !another) {
        if (c->bos_token_id >= 0) ids->bos = c->bos_token_id;
        ids->pad = c->pad_token_id;
        if (c->neos > 0) ids->neos = GW_MIN(c->neos, (int)GW_TOKEN_IDS_EOS);
        for (int i = 0; c->neos > 0 && i < ids->neos; i++) ids->eos[i] = c->eos_token_id[i];
    }
    gw_mem_free(c);
    return st == GW_OK ? GW_OK
                       : gw_fail_at(cli->diags, st, "file-read", (gw_where){.file = rf->model.path},
                                    "the configuration of the model cannot be read again");
}

/* ---- the directory ---- */

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

/* A directory that this export has made, and could not fill, goes again. What is not ours stays. */
static void take_back(gw_cli *cli, const char *dir) {
    for (size_t i = 0; i < GW_COUNT(companions); i++)
        (void)unlink(gw_path_join(cli->arena, dir, companions[i]));
    (void)rmdir(dir);
}

static gw_status write_all(gw_cli *cli, const gw_runfile *rf, gw_session *s, const char *dir,
                           gw_dtype dtype, bool *tokenizer) {
    gw_token_ids ids;
    if (gw_session_has_images(s))
        return gw_weights_export_net(s->x, &s->setup.model, s->setup.params, s->setup.nparams, dir,
                                     dtype, gw_cli_int(cli, "max-shard", GW_WEIGHTS_SHARD_BYTES),
                                     cli->diags);
    GW_TRY(special_ids(cli, rf, s, &ids));
    GW_TRY(copy_companions(cli, rf, s, dir, tokenizer));
    return gw_weights_export(s->x, &s->setup.model, s->setup.params, s->setup.nparams, dir, dtype,
                             gw_cli_int(cli, "max-shard", GW_WEIGHTS_SHARD_BYTES), &ids,
                             cli->diags);
}

static void report(gw_cli *cli, const gw_model *m, const char *dir, const char *dtype,
                   bool tokenizer) {
    int64_t n = gw_model_count(m);
    if (gw_cli_flag(cli, "json")) {
        json_t *j = json_pack("{s:o, s:I, s:s}", "directory", gw_json_text(dir), "parameters",
                              (json_int_t)n, "dtype", dtype);
        json_dumpf(j, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(j);
    } else {
        fprintf(cli->out, "%s: %s, %lld parameters in %s%s\n", dir, gw_family_name(m->family),
                (long long)n, dtype, tokenizer ? ", with its tokenizer" : "");
    }
}

static gw_status export(gw_cli *cli, const gw_runfile *rf, gw_session *s, const char *dir) {
    bool existed = gw_path_exists(dir), tokenizer = false;
    GW_TRY(check_target(cli, dir));
    gw_dtype dtype = chosen_dtype(cli, s);
    gw_status st = write_all(cli, rf, s, dir, dtype, &tokenizer);
    if (st == GW_OK) report(cli, &s->setup.model, dir, gw_dtype_name(dtype), tokenizer);
    if (st != GW_OK && !existed) take_back(cli, dir);
    return st;
}

/* ---- one file ---- */

static gw_ggml_type chosen_type(gw_cli *cli, const gw_session *s) {
    if (strcmp(gw_cli_string(cli, "dtype", ""), "q8_0") == 0) return GW_GGML_Q8_0;
    gw_dtype t = chosen_dtype(cli, s);
    return t == GW_BF16 ? GW_GGML_BF16 : t == GW_F16 ? GW_GGML_F16 : GW_GGML_F32;
}

/* The run's own tokenizer.json; NULL where it has none. */
static const char *tokenizer_file(gw_cli *cli, const gw_runfile *rf) {
    const char *dir = companion_dir(cli, rf), *t = rf->data.tokenizer;
    if (t && gw_str_eq(t, "bytes")) return NULL;
    return dir && gw_path_is_dir(dir) ? companion(cli, rf, 0) : NULL;
}

static gw_status export_file(gw_cli *cli, const gw_runfile *rf, gw_session *s, const char *path) {
    gw_token_ids ids;
    const char *tokenizer = tokenizer_file(cli, rf);
    gw_ggml_type type = chosen_type(cli, s);
    if (gw_path_is_dir(path)) path = gw_path_join(cli->arena, path, "model.gguf");
    if (gw_path_exists(path))
        return gw_fail_at(cli->diags, GW_ERR_USAGE, "export-exists", (gw_where){.file = path},
                          "the file is there already; choose another with --out");
    if (gw_session_has_images(s))
        return gw_cli_usage_error(cli,
                                  "--to gguf is for language models, this is a net for images");
    GW_TRY(special_ids(cli, rf, s, &ids));
    GW_TRY(gw_weights_export_gguf(s->x, &s->setup.model, s->setup.params, s->setup.nparams, path,
                                  type, tokenizer, &ids, cli->diags));
    report(cli, &s->setup.model, path, gw_ggml_type_name(type), tokenizer != NULL);
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    const char *dir = gw_cli_string(cli, "out", NULL);
    if (!dir) return gw_cli_usage_error(cli, "--out DIR says where to write");
    if (!to_gguf(cli) && strcmp(gw_cli_string(cli, "dtype", ""), "q8_0") == 0)
        return gw_cli_usage_error(cli, "--dtype q8_0 is for --to gguf");
    if (gw_cli_given(cli, "max-shard") && gw_cli_int(cli, "max-shard", 0) < 1)
        return gw_cli_usage_error(cli, "--max-shard must be at least 1 byte");
    gw_runfile rf;
    gw_session s;
    gw_source_options o = {.tokenizer = gw_cli_string(cli, "tokenizer", NULL)};
    gw_status st = gw_cli_open_source(cli, cli->args[0], &o, &rf, &s);
    if (st == GW_OK) st = to_gguf(cli) ? export_file(cli, &rf, &s, dir) : export(cli, &rf, &s, dir);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

const gw_command gw_cmd_export = {
    .name = "export",
    .summary = "write the weights of a run for other programs",
    .usage = {"RUN_DIR|CKPT|HF_DIR|FILE.gguf [--to hf|gguf] --out DIR"},
    .description =
        "hf: a directory for transformers (of a net for images, weights for torchvision).\n"
        "gguf: one file for llama.cpp, with the tokenizer in it.\n"
        "CKPT: a checkpoint, or a place of them (s3:// too); no run directory is needed.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright export runs/quickstart --out build/exported",
    .run = run,
};
