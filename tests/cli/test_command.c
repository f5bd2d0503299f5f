// SPDX-License-Identifier: Apache-2.0
// The command line: how words become options, and that help fits a screen.
#include <stdio.h>  /* open_memstream */
#include <stdlib.h> /* free */
#include <string.h> /* strchr */

#include "base/str.h"    /* gw_str_eq */
#include "cli/command.h" /* gw_cli_parse */
#include "harness.h"     /* TEST, CHECK */

static gw_status run_nothing(gw_cli *cli) {
    (void)cli;
    return GW_OK;
}

static const gw_option options[] = {
    {"out", 'o', "DIR", "a folder", GW_OPT_STRING, NULL},
    {"steps", 'n', "N", "a count", GW_OPT_INT, NULL},
    {"rate", 0, "X", "a number", GW_OPT_DOUBLE, NULL},
    {"limit", 0, "SIZE", "bytes", GW_OPT_BYTES, NULL},
    {"after", 0, "PASS", "a pass", GW_OPT_STRING, "build autodiff place"},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};
static const gw_command command = {
    .name = "try",
    .summary = "try",
    .usage = {"FILE..."},
    .description = "",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 2,
    .example = "gradwright try x",
    .run = run_nothing,
};

typedef struct line {
    gw_arena arena;
    gw_diags diags;
    gw_cli cli;
    bool help;
    gw_status status;
} line;

/* Splits at spaces and parses. */
static void parse(line *l, const char *text) {
    static const char *words[64];
    memset(l, 0, sizeof *l);
    gw_diags_init(&l->diags);
    char *copy = gw_arena_strdup(&l->arena, text), *save = NULL;
    int n = 0;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) words[n++] = w;
    l->cli = (gw_cli){.command = &command, .arena = &l->arena, .diags = &l->diags, .colour = true};
    l->status = gw_cli_parse(&l->cli, n, words, &l->help);
}

static void release(line *l) {
    gw_diags_release(&l->diags);
    gw_arena_release(&l->arena);
}

TEST(every_spelling_of_an_option_is_the_same) {
    static const char *const spellings[] = {
        "f --out=a/b", "f --out a/b", "f -o a/b",           "f -oa/b",
        "f -o=a/b",    "--out a/b f", "--out x f --out a/b"};
    for (size_t i = 0; i < GW_COUNT(spellings); i++) {
        line l;
        parse(&l, spellings[i]);
        CHECK_OK(l.status, &l.diags);
        CHECK_STR(gw_cli_string(&l.cli, "out", NULL), "a/b");
        CHECK_EQ(l.cli.nargs, 1);
        CHECK_STR(l.cli.args[0], "f");
        release(&l);
    }
}

TEST(values_have_kinds) {
    line l;
    parse(&l, "f --steps -5 --rate=-1.5e-3 --limit 2GiB -s a.b=1 --set=c=d=e --json -q -- --json");
    CHECK_OK(l.status, &l.diags);
    CHECK_EQ(gw_cli_int(&l.cli, "steps", 0), -5);
    CHECK(gw_cli_double(&l.cli, "rate", 0) == -1.5e-3);
    CHECK_EQ(gw_cli_int(&l.cli, "limit", 0), INT64_C(2) << 30);
    const char *const *sets = NULL;
    CHECK_EQ(gw_cli_list(&l.cli, "set", &sets), 2);
    CHECK_STR(sets[0], "a.b=1");
    CHECK_STR(sets[1], "c=d=e");
    CHECK(gw_cli_flag(&l.cli, "json"));
    CHECK(l.cli.quiet && l.cli.colour && !l.cli.verbose);
    CHECK_EQ(l.cli.nargs, 2);
    CHECK_STR(l.cli.args[1], "--json"); /* after "--" it is an argument */
    CHECK(!gw_cli_given(&l.cli, "after"));
    CHECK_STR(gw_cli_string(&l.cli, "after", "place"), "place");
    release(&l);
}

TEST(a_lone_dash_is_an_argument) {
    line l;
    parse(&l, "- --no-color");
    CHECK_OK(l.status, &l.diags);
    CHECK_STR(l.cli.args[0], "-");
    CHECK(!l.cli.colour);
    release(&l);
}

TEST(faults_say_what_to_do) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"f --jsn", "--json"},
        {"f --ste=4", "--steps"},
        {"f -z", "-z"},
        {"f --out", "--out DIR"},
        {"f --out --json", "--out=--json"},
        {"f --json=1", "takes no value"},
        {"f --steps ten", "an integer"},
        {"f --steps 99999999999999999999", "an integer"},
        {"f --rate nan", "a number"},
        {"f --limit big", "a size"},
        {"f --after shard", "build autodiff place"},
        {"", "missing"},
        {"a b c", "'c'"},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        line l;
        parse(&l, cases[i].text);
        test_note("%s", cases[i].text);
        CHECK_FAILS(l.status, &l.diags, cases[i].says);
        CHECK_EQ(gw_status_exit_code(l.status), 2);
        release(&l);
    }
}

TEST(all_faults_of_a_line_are_reported) {
    line l;
    parse(&l, "--nonsense --steps x --after y");
    CHECK(l.status == GW_ERR_USAGE);
    CHECK_EQ(l.diags.nerrors, 4); /* and the missing argument */
    release(&l);
}

TEST(help_needs_no_arguments) {
    line l;
    parse(&l, "--help");
    CHECK_OK(l.status, &l.diags);
    CHECK(l.help);
    release(&l);
}

// ------------------------------------------------------------------ help

static void check_fits(const char *name, const char *text) {
    int lines = 0, column = 0;
    for (const char *s = text; *s; s++) {
        if (*s == '\n') {
            lines++;
            column = 0;
            continue;
        }
        column++;
        CHECK_MSG(column <= 80, "help of %s: line %d is wider than 80", name, lines + 1);
    }
    CHECK_MSG(lines <= 24, "help of %s has %d lines", name, lines);
}

TEST(help_fits_24_lines_of_80_columns) {
    for (const gw_command *const *c = gw_commands(); *c; c++) {
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        gw_command_print_help(*c, f);
        fclose(f);
        check_fits((*c)->name, text);
        CHECK_MSG(strstr(text, "example:") != NULL, "help of %s has no example", (*c)->name);
        for (int i = 0; i < (*c)->noptions; i++)
            CHECK_MSG(strstr(text, (*c)->options[i].name) != NULL, "help of %s hides --%s",
                      (*c)->name, (*c)->options[i].name);
        free(text);
    }
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    gw_cli_print_help(f);
    fclose(f);
    check_fits("gradwright", text);
    for (const gw_command *const *c = gw_commands(); *c; c++)
        CHECK_MSG((*c)->hidden == (strstr(text, (*c)->summary) == NULL), "%s", (*c)->name);
    free(text);
}

TEST(descriptors_are_whole) {
    for (const gw_command *const *c = gw_commands(); *c; c++) {
        CHECK(gw_command_find((*c)->name) == *c);
        CHECK((*c)->summary && strlen((*c)->summary) <= 66 && (*c)->description && (*c)->example);
        CHECK((*c)->run != NULL);
        CHECK(gw_str_starts((*c)->example, "gradwright ") || strstr((*c)->example, "gradwright "));
        CHECK(((*c)->completes == GW_COMPLETE_WORDS) == ((*c)->words != NULL));
        for (int i = 0; i < (*c)->noptions; i++) {
            const gw_option *o = &(*c)->options[i];
            test_note("%s --%s", (*c)->name, o->name);
            CHECK((o->kind == GW_OPT_FLAG) == (o->arg == NULL));
            CHECK(!strchr("hqv", o->short_name) || o->short_name == 0);
            for (int k = 0; k < i; k++) {
                CHECK(!gw_str_eq(o->name, (*c)->options[k].name));
                CHECK(!o->short_name || o->short_name != (*c)->options[k].short_name);
            }
        }
    }
}
