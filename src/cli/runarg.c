// SPDX-License-Identifier: Apache-2.0
// Paths on the command line: a run file with --set applied, and the question whether there is
// anything at a path at all.
//
// A path that was typed and names nothing is a fault of the command line (exit 2), in every
// command. A path that a run file or a model names is a fault of that file and is left to those who
// read it.
#include "cli/runarg.h" /* gw_cli_runfile */

#include "base/io.h"   /* gw_path_exists */
#include "base/str.h"  /* gw_str_eq */
#include "base/yaml.h" /* GW_YAML_MAX_BYTES */
#include "cli/ranks.h" /* gw_cli_ranks_option */
#include "comm/mpi.h"  /* gw_mpi_launched */

gw_status gw_cli_nothing_at(gw_cli *cli, const char *path) {
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_USAGE, "source-missing",
                             (gw_where){.file = path}, "there is no such file or directory");
    gw_diag_hint(cli->diags, g, "see: gradwright %s --help", cli->command->name);
    return GW_ERR_USAGE;
}

gw_status gw_cli_need_path(gw_cli *cli, const char *path) {
    return gw_path_exists(path) ? GW_OK : gw_cli_nothing_at(cli, path);
}

int64_t gw_cli_known_ranks(const gw_cli *cli) {
    bool takes = false;
    for (int i = 0; i < cli->command->noptions; i++)
        takes = takes || gw_str_eq(cli->command->options[i].name, "ranks");
    if (!takes) return 0;
    const char *option = gw_cli_ranks_option(cli);
    int64_t n = gw_cli_given(cli, option) ? gw_cli_int(cli, option, 0) : gw_mpi_launched();
    return n >= 1 && n <= GW_CLI_MOST_RANKS ? n : 0;
}

int gw_cli_sets(const gw_cli *cli, const char *const **sets) {
    const char *const *given = NULL;
    int n = gw_cli_list(cli, "set", &given);
    *sets = given;
    if (!gw_str_eq(gw_cli_ranks_option(cli), "world")) return n;
    const char **all = gw_arena_new(cli->arena, const char *, n + 1);
    all[0] = "layout.dp=auto";
    for (int i = 0; i < n; i++) all[i + 1] = given[i];
    *sets = all;
    return n + 1;
}

void gw_cli_print_sets(const char *words, FILE *out) {
    fputs("--set ", out);
    for (; *words; words++)
        if (*words == ' ')
            fputs(" --set ", out);
        else
            fputc(*words, out);
}

gw_status gw_cli_runfile(gw_cli *cli, const char *path, gw_runfile *rf) {
    const char *const *sets = NULL;
    int nsets = gw_cli_sets(cli, &sets);
    *rf = (gw_runfile){0};
    if (!gw_str_eq(path, "-")) GW_TRY(gw_cli_need_path(cli, path));
    return gw_runfile_load_for(rf, path, sets, nsets, gw_cli_known_ranks(cli), cli->diags);
}

gw_status gw_cli_source(gw_cli *cli, const char *path, gw_elastic_source *out) {
    bool piped = gw_str_eq(path, "-");
    gw_str text = {0};
    *out = (gw_elastic_source){.name = piped ? "standard input" : path};
    out->nsets = gw_cli_sets(cli, &out->sets);
    if (!piped) GW_TRY(gw_cli_need_path(cli, path));
    gw_status st = gw_file_read(piped ? "/dev/stdin" : path, GW_YAML_MAX_BYTES, &text, cli->diags);
    if (st == GW_OK) {
        out->text = gw_arena_strndup(cli->arena, gw_str_c(&text), text.len);
        out->len = (int64_t)text.len;
    }
    gw_str_release(&text);
    return st;
}
