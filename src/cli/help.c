// SPDX-License-Identifier: Apache-2.0
// The help texts: of the program, and of each command from its descriptor.
//
// A help text is read on a terminal of 24 lines and 80 columns without scrolling; that it fits is a
// test, so a command whose options do not fit must say less of each, or only name the last of them
// and leave what they do to the manual.
#include <string.h> /* strlen */

#include "cli/command.h" /* gw_command */
#include "cli/options.h" /* gw_global_options */

int gw_option_spell(const gw_option *o, char *buf, size_t size) {
    char short_form[8] = "    "; /* as wide as "-o, " */
    if (o->short_name) snprintf(short_form, sizeof short_form, "-%c, ", o->short_name);
    int n = snprintf(buf, size, "  %s--%s%s%s", short_form, o->name, o->arg ? " " : "",
                     o->arg ? o->arg : "");
    return n < (int)size ? n : (int)size - 1;
}

static void print_option(FILE *out, const gw_option *o, int width) {
    char left[80];
    gw_option_spell(o, left, sizeof left);
    fprintf(out, "%-*s  %s\n", width, left, o->help);
}

/* "also: -n, --ranks N; --faults KEY=X[,..]; ..", as many lines as it takes. */
static void print_named(FILE *out, const gw_command *c) {
    enum { WIDTH = 80 };
    int column = 0;
    for (int i = c->noptions - c->named; i < c->noptions; i++) {
        char left[80];
        bool last = i + 1 == c->noptions;
        gw_option_spell(&c->options[i], left, sizeof left);
        const char *text = left + strspn(left, " ");
        int n = (int)strlen(text) + (last ? 18 : 1);
        if (column > 0 && column + 1 + n > WIDTH) {
            fprintf(out, "\n");
            column = 0;
        }
        if (column == 0) column = fprintf(out, i == c->noptions - c->named ? "  also:" : "       ");
        column += fprintf(out, " %s%s", text, last ? " (man gradwright)" : ";");
    }
    fprintf(out, "\n");
}

static int option_width(const gw_command *c) {
    int width = 0;
    for (int i = 0; i < c->noptions - c->named; i++) {
        char left[80];
        int n = gw_option_spell(&c->options[i], left, sizeof left);
        width = n > width ? n : width;
    }
    return width < 14 ? 14 : width;
}

/* Prints text with each line indented and ended. */
static void print_indented(FILE *out, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

void gw_command_print_help(const gw_command *c, FILE *out) {
    fprintf(out, "gradwright %s: %s\n\nusage:\n", c->name, c->summary);
    for (int i = 0; i < (int)GW_COUNT(c->usage) && c->usage[i]; i++)
        fprintf(out, "  gradwright %s %s\n", c->name, c->usage[i]);
    if (*c->description) fprintf(out, "\n%s\n", c->description);
    fprintf(out, "\noptions:\n");
    int width = option_width(c);
    for (int i = 0; i < c->noptions - c->named; i++) print_option(out, &c->options[i], width);
    if (c->named > 0) print_named(out, c);
    fprintf(out, "%-*s  this text; also --quiet, --verbose, --no-color\n", width, "  -h, --help");
    fprintf(out, "\nexample:\n");
    print_indented(out, c->example);
}

static void print_names(FILE *out, const gw_option *o) {
    if (o->short_name) fprintf(out, " -%c", o->short_name);
    fprintf(out, " --%s", o->name);
}

void gw_cli_print_help(FILE *out) {
    fprintf(out, "gradwright trains, ships and runs transformer language models.\n"
                 "usage: gradwright COMMAND [ARGUMENTS] [OPTIONS]\n\n");
    for (const gw_command *const *c = gw_commands(); *c; c++)
        if (!(*c)->hidden) fprintf(out, "  %-10s  %s\n", (*c)->name, (*c)->summary);
    fprintf(out, "\noptions of all:");
    for (int i = 0; i < GW_GLOBAL_COUNT; i++) print_names(out, &gw_global_options[i]);
    fprintf(out, "; and");
    print_names(out, &gw_version_option);
    fprintf(out, "\n");
    fprintf(out, "`gradwright COMMAND --help` says more of each.\n");
}
