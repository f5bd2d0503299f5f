// SPDX-License-Identifier: Apache-2.0
// What a command of gradwright is, and what it is given when it runs.
//
// One file per command, ending in one constant descriptor; one line in commands.def:
//
//     static const gw_option options[] = {
//         GW_OPTION_SET,
//         {"out", 'o', "DIR", "write checkpoints and reports to DIR", GW_OPT_STRING, NULL},
//         GW_OPTION_JSON,
//     };
//     static gw_status run(gw_cli *cli) { ... gw_cli_string(cli, "out", "runs/last") ... }
//     const gw_command gw_cmd_train = {
//         .name = "train", .summary = "train a model as a run file says",
//         .usage = {"RUN.yaml [--out DIR] [--resume] [--set KEY=VALUE]"},
//         .description = "One or two short lines, at most 80 columns each.",
//         .options = options, .noptions = GW_COUNT(options),
//         .min_args = 1, .max_args = 1, .completes = GW_COMPLETE_FILE,
//         .example = "gradwright train examples/quickstart.yaml --out runs/first",
//         .run = run,
//     };
//
// The parser, --help, the man page and the shell completions are all driven by this. `--help` of a
// command must fit 24 lines of 80 columns (a test looks).
#ifndef GW_CLI_COMMAND_H
#define GW_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_COUNT, for the descriptors */
#include "base/diag.h"     /* gw_status, gw_diags */

typedef enum gw_opt_kind {
    GW_OPT_FLAG,   /* --json                     read with gw_cli_flag */
    GW_OPT_STRING, /* --out DIR, --out=DIR       gw_cli_string; the last one given counts */
    GW_OPT_INT,    /* a decimal int64            gw_cli_int */
    GW_OPT_DOUBLE, /* a finite number            gw_cli_double */
    GW_OPT_BYTES,  /* 64MB, 2GiB                 gw_cli_int, in bytes */
    GW_OPT_LIST,   /* repeatable string          gw_cli_list, in the order given */
} gw_opt_kind;

typedef struct gw_option {
    const char *name; /* long form without "--" */
    char short_name;  /* or 0 */
    const char *arg;  /* placeholder (FILE, DIR, N, KEY=VALUE ...); NULL for a flag. FILE and DIR
                         are completed by the shell as such */
    const char *help; /* one short line, lower case, no final stop */
    gw_opt_kind kind;
    const char *choices; /* space-separated legal values, or NULL when any value is: the parser
                            refuses others, completions offer them */
} gw_option;

/* Rows that several commands share. */
#define GW_OPTION_SET                                                                              \
    { "set", 's', "KEY=VALUE", "override one key of the run file; repeatable", GW_OPT_LIST, NULL }
#define GW_OPTION_JSON                                                                             \
    { "json", 0, NULL, "print JSON for machines", GW_OPT_FLAG, NULL }

/* What the shell offers for positional arguments. */
typedef enum gw_complete {
    GW_COMPLETE_NONE,
    GW_COMPLETE_FILE,
    GW_COMPLETE_WORDS, /* the descriptor's `words` */
} gw_complete;

typedef struct gw_cli gw_cli;

typedef struct gw_command {
    const char *name;
    const char *summary;     /* for the list in `gradwright --help`; lower case, <= 60 columns */
    const char *usage[4];    /* what follows "gradwright NAME ", one form a line; NULL ends */
    const char *description; /* may hold newlines; each line <= 80 columns */
    const gw_option *options;
    int noptions;
    int named; /* so many of them, the last, are only named by --help; the manual says what they do
                */
    int min_args, max_args; /* positional arguments; max_args < 0: any number */
    gw_complete completes;
    const char *words;   /* space-separated, for GW_COMPLETE_WORDS; else NULL */
    const char *example; /* a command line that works as it stands; may hold several lines */
    bool hidden;         /* not listed by --help, man page, completions */
    gw_status (*run)(gw_cli *cli);
} gw_command;

/* What a running command holds. All pointers live until the command returns. */
struct gw_cli {
    const gw_command *command;
    int nargs;
    const char *const *args; /* positional arguments, in order */
    gw_arena *arena;         /* for the command's metadata */
    gw_diags *diags;         /* printed once, by main, after run() returns */
    FILE *out;               /* results; tables, JSON */
    bool colour;             /* ANSI allowed on `out` (terminal, NO_COLOR unset, no --no-color) */
    bool quiet, verbose;     /* gw_log level is already set */
    const char *const *argv; /* the whole command line, for records; argv[0] is the program */
    int argc;
    struct gw_cli_values *values;
    int exit_code; /* not 0: the program's, whatever the status says (that of ranks it watched) */
};

/* Options as given. Asking for a name the command's table lacks is our own bug: it panics. */
bool gw_cli_flag(const gw_cli *cli, const char *name);
bool gw_cli_given(const gw_cli *cli, const char *name);
const char *gw_cli_string(const gw_cli *cli, const char *name, const char *fallback);
int64_t gw_cli_int(const gw_cli *cli, const char *name, int64_t fallback);
double gw_cli_double(const gw_cli *cli, const char *name, double fallback);
/* Returns the count; *items borrows (NULL when 0). */
int gw_cli_list(const gw_cli *cli, const char *name, const char *const **items);

/* Records "usage" error text with the command's own --help named in the hint; returns
 * GW_ERR_USAGE. For what a table cannot say (two options that exclude each other). */
gw_status gw_cli_usage_error(gw_cli *cli, const char *fmt, ...) GW_PRINTF(2, 3);

/* All commands, in the order of commands.def, NULL-terminated. */
const gw_command *const *gw_commands(void);
const gw_command *gw_command_find(const char *name); /* NULL when unknown */

/* Fills values from the words after the command's name. On GW_OK with *help set, the user asked for
 * --help. Global options (--quiet --verbose --no-color) are accepted anywhere and set in `cli`.
 * All faults of the line are reported, not just the first. */
GW_WARN_UNUSED gw_status gw_cli_parse(gw_cli *cli, int nwords, const char *const *words,
                                      bool *help);

/* The help texts; also what the test measures. */
void gw_cli_print_help(FILE *out);
void gw_command_print_help(const gw_command *c, FILE *out);

/* The program: parses argv, runs one command, prints diagnostics once, returns the exit code. */
int gw_cli_main(int argc, char **argv);

#endif
