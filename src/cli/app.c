// SPDX-License-Identifier: Apache-2.0
// The program from argv to exit code: finds the command, runs it, prints its diagnostics once.
//
// Exit codes: 0 done, 1 failed while running, 2 usage or configuration, 3 interrupted
// and resumable. SIGPIPE is ignored, so that a reader that leaves (`| head`) cannot kill a training
// run; a result that could not be written in full is an error (exit 1), unless the reader has left,
// which is the reader's choice and no failure of ours.
#include <errno.h>  /* errno, EPIPE */
#include <signal.h> /* SIGPIPE */
#include <stdio.h>  /* fflush */
#include <string.h> /* strerror */

#include "base/log.h"    /* gw_log_set_level */
#include "base/str.h"    /* gw_str_eq */
#include "base/term.h"   /* gw_term_colour */
#include "cli/command.h" /* gw_cli */
#include "cli/options.h" /* gw_global_options */
#include "version.h"     /* GW_VERSION, GW_COMMIT */

static const gw_command *nearest_command(const char *name) {
    const gw_command *best = NULL;
    int limit = (int)strlen(name) / 3 + 2;
    for (const gw_command *const *c = gw_commands(); *c; c++) {
        int d = gw_str_distance((*c)->name, name);
        if ((*c)->hidden || d >= limit) continue;
        limit = d;
        best = *c;
    }
    return best;
}

static gw_status unknown_command(gw_diags *dg, const char *name) {
    bool option = name[0] == '-';
    gw_diag *g = gw_diag_add(
        dg, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0},
        option ? "gradwright has no option %s" : "gradwright has no command '%s'", name);
    const gw_command *near = option ? NULL : nearest_command(name);
    if (near)
        gw_diag_hint(dg, g, "did you mean `gradwright %s`?", near->name);
    else
        gw_diag_hint(dg, g, "`gradwright --help` lists the commands");
    return GW_ERR_USAGE;
}

/* Writes what is buffered; a result that is not all there is a failure. */
static gw_status finish_output(gw_diags *dg) {
    errno = 0;
    bool bad = fflush(stdout) != 0;
    if (!bad && !ferror(stdout)) return GW_OK;
    if (errno == EPIPE) return GW_OK;
    if (errno == 0) return GW_FAIL(dg, GW_ERR_IO, "file-write", "cannot write standard output");
    return GW_FAIL(dg, GW_ERR_IO, "file-write", "cannot write standard output: %s",
                   strerror(errno));
}

static gw_status run_command(gw_cli *cli, int nwords, const char *const *words) {
    bool help = false;
    GW_TRY(gw_cli_parse(cli, nwords, words, &help));
    if (help) {
        gw_command_print_help(cli->command, cli->out);
        return GW_OK;
    }
    gw_log_set_level(cli->quiet ? GW_LOG_QUIET : cli->verbose ? GW_LOG_DEBUG : GW_LOG_INFO);
    return cli->command->run(cli);
}

/* Words before the command's name: the global options. Returns how many were taken. */
static int leading_options(gw_cli *cli, int argc, const char *const *argv, bool *help,
                           bool *version) {
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *w = argv[i];
        if (gw_str_eq(w, "--quiet") || gw_str_eq(w, "-q"))
            cli->quiet = true;
        else if (gw_str_eq(w, "--verbose") || gw_str_eq(w, "-v"))
            cli->verbose = true;
        else if (gw_str_eq(w, "--no-color"))
            cli->colour = false;
        else if (gw_str_eq(w, "--help") || gw_str_eq(w, "-h"))
            *help = true;
        else if (gw_str_eq(w, "--version") || gw_str_eq(w, "-V"))
            *version = true;
        else
            break;
    }
    return i;
}

static gw_status dispatch(gw_cli *cli, int argc, const char *const *argv) {
    bool help = false, version = false;
    int i = leading_options(cli, argc, argv, &help, &version);
    if (version) {
        fprintf(cli->out, "gradwright %s (commit %s)\n", GW_VERSION, GW_COMMIT);
        return GW_OK;
    }
    bool word_help = i < argc && gw_str_eq(argv[i], "help");
    if (word_help) i++;
    help = help || word_help;
    if (i == argc) {
        gw_cli_print_help(help ? cli->out : stderr);
        return help ? GW_OK : GW_ERR_USAGE;
    }
    cli->command = gw_command_find(argv[i]);
    if (!cli->command) return unknown_command(cli->diags, argv[i]);
    if (help) {
        gw_command_print_help(cli->command, cli->out);
        return GW_OK;
    }
    return run_command(cli, argc - i - 1, argv + i + 1);
}

int gw_cli_main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    gw_arena arena;
    gw_diags diags;
    gw_arena_init(&arena);
    gw_diags_init(&diags);
    gw_cli cli = {
        .arena = &arena,
        .diags = &diags,
        .out = stdout,
        .colour = gw_term_colour(stdout),
        .argc = argc,
        .argv = (const char *const *)argv,
    };
    bool colour_before = cli.colour;
    gw_status s = dispatch(&cli, argc, cli.argv);
    gw_status written = finish_output(&diags);
    if (s == GW_OK) s = written;
    bool no_color = colour_before && !cli.colour;
    for (int i = 1; i < argc; i++) no_color = no_color || gw_str_eq(argv[i], "--no-color");
    if (diags.nerrors > 0 || !cli.quiet)
        gw_diags_print(&diags, stderr, gw_term_colour(stderr) && !no_color);
    gw_diags_release(&diags);
    gw_arena_release(&arena);
    return cli.exit_code ? cli.exit_code : gw_status_exit_code(s);
}
