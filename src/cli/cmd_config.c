// SPDX-License-Identifier: Apache-2.0
// `gradwright config`: a run file as it is understood, every key with its unit and meaning.
//
// What it prints reads back as the same run, so it is also how a run file made of few keys and
// overrides is turned into one that says everything.
#include <stdio.h> /* fwrite */

#include "base/str.h"       /* gw_str */
#include "cli/command.h"    /* gw_command */
#include "cli/placements.h" /* gw_cli_print_placements */
#include "cli/runarg.h"     /* gw_cli_runfile */
#include "train/setup.h"    /* gw_setup_check_vocab */

static const gw_option options[] = {GW_OPTION_SET, GW_OPTION_JSON};

/* As comments, where the files that the run file names are there. */
static void print_placements(const gw_runfile *rf, FILE *out) {
    gw_runfile copy = *rf; /* `auto` values are settled in it */
    gw_setup *s = gw_mem_zalloc(sizeof *s);
    gw_diags quiet;
    gw_diags_init(&quiet);
    bool known = rf->layout.tp > 1 && gw_setup_init(s, &copy, false, &quiet) == GW_OK;
    if (known) {
        fputs("\n# What tensor parallelism cuts, layout.shard included:\n", out);
        gw_cli_print_placements(rf, &s->model, "# ", out);
        gw_setup_release(s);
    }
    gw_diags_release(&quiet);
    gw_mem_free(s);
}

static gw_status run(gw_cli *cli) {
    gw_runfile rf;
    gw_status s = gw_cli_runfile(cli, cli->args[0], &rf);
    if (s == GW_OK) s = gw_setup_check_vocab(&rf, cli->diags);
    if (s == GW_OK) {
        gw_str text = {0};
        if (gw_cli_flag(cli, "json"))
            gw_runfile_json(&rf, &text);
        else
            gw_runfile_yaml(&rf, !cli->quiet, &text);
        fwrite(gw_str_c(&text), 1, text.len, cli->out);
        gw_str_release(&text);
        if (!gw_cli_flag(cli, "json") && !cli->quiet) print_placements(&rf, cli->out);
    }
    gw_runfile_release(&rf);
    return s;
}

const gw_command gw_cmd_config = {
    .name = "config",
    .summary = "print a run file fully resolved, each key explained",
    .usage = {"RUN.yaml [--set KEY=VALUE]... [--json]"},
    .description =
        "Prints every key with its value, unit and meaning; keys without effect in this\n"
        "configuration appear as comments. The output is a run file itself. With\n"
        "--quiet there are no comments. RUN.yaml may be - for standard input.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright config examples/quickstart.yaml --set optimizer.name=muon",
    .run = run,
};
