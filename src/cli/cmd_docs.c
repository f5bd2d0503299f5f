// SPDX-License-Identifier: Apache-2.0
// `gradwright docs`: the references that are made from the tables, for those who package or build.
//
// The files lie in docs/ and completions/ too; a test compares them with what this prints. With
// --write they are all written to their places below a folder.
#include <stdio.h> /* fwrite */

#include "base/io.h"             /* gw_file_write_atomic */
#include "base/str.h"            /* gw_str */
#include "cli/command.h"         /* gw_command */
#include "cli/docs.h"            /* gw_docs_man */
#include "data/build/pipeline.h" /* gw_pipeline_schema */
#include "train/runfile.h"       /* gw_runfile_schema */

typedef struct text {
    const char *name, *path;
    void (*make)(gw_str *out);
} text;

static const text texts[] = {
    {"man", "docs/gradwright.1", gw_docs_man},
    {"commands", "docs/commands.md", gw_docs_commands},
    {"keys", "docs/keys.md", gw_runfile_keys_md},
    {"errors", "docs/errors.md", gw_docs_errors},
    {"schema", "docs/run.schema.json", gw_runfile_schema},
    {"pipeline-schema", "docs/pipeline.schema.json", gw_pipeline_schema},
    {"bash", "completions/gradwright.bash", gw_docs_bash},
    {"zsh", "completions/_gradwright", gw_docs_zsh},
    {"fish", "completions/gradwright.fish", gw_docs_fish},
};

static const gw_option options[] = {
    {"write", 'w', "DIR", "write all of them below DIR (docs/, completions/)", GW_OPT_STRING, NULL},
};

static gw_status write_all(gw_cli *cli, const char *dir) {
    static const char *const folders[] = {"docs", "completions"};
    for (size_t i = 0; i < GW_COUNT(folders); i++)
        GW_TRY(gw_dir_make(gw_path_join(cli->arena, dir, folders[i]), cli->diags));
    for (size_t i = 0; i < GW_COUNT(texts); i++) {
        gw_str s = {0};
        texts[i].make(&s);
        gw_status st = gw_file_write_atomic(gw_path_join(cli->arena, dir, texts[i].path),
                                            gw_str_c(&s), (int64_t)s.len, cli->diags);
        gw_str_release(&s);
        GW_TRY(st);
    }
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    const char *dir = gw_cli_string(cli, "write", NULL);
    if (dir && cli->nargs == 0) return write_all(cli, dir);
    if (dir || cli->nargs == 0)
        return gw_cli_usage_error(cli, "give one of %s, or --write DIR", cli->command->words);
    for (size_t i = 0; i < GW_COUNT(texts); i++) {
        if (!gw_str_eq(texts[i].name, cli->args[0])) continue;
        gw_str s = {0};
        texts[i].make(&s);
        fwrite(gw_str_c(&s), 1, s.len, cli->out);
        gw_str_release(&s);
        return GW_OK;
    }
    return gw_cli_usage_error(cli, "there is no text '%s': %s", cli->args[0], cli->command->words);
}

const gw_command gw_cmd_docs = {
    .name = "docs",
    .summary = "print a reference made from the program's tables",
    .usage = {"man|commands|keys|errors|schema|pipeline-schema|bash|zsh|fish", "--write DIR"},
    .description =
        "Prints the manual page, docs/commands.md, docs/keys.md, docs/errors.md, the JSON\n"
        "Schema of run or pipeline files, or the completion script of a shell.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = 1,
    .completes = GW_COMPLETE_WORDS,
    .words = "man commands keys errors schema pipeline-schema bash zsh fish",
    .example = "gradwright docs bash > ~/.local/share/bash-completion/completions/gradwright",
    .hidden = true,
    .run = run,
};
