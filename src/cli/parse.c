// SPDX-License-Identifier: Apache-2.0
// The command line: words to option values, driven by the command's table.
//
// Accepted: --name=value, --name value, -n value, -nvalue, flags in one word (-qv), "--"
// (everything after it is an argument), "-" (an argument: standard input). Options and arguments
// may be mixed. A value that follows as its own word may begin with one '-' (a negative number) but
// not with "--": that is far more often a forgotten value, and --name=--value says it without
// doubt.
//
// All faults of a line are reported together. Values are checked here against kind and choices, so
// that a command reads them without further tests.
#include <math.h>   /* isfinite */
#include <stdarg.h> /* va_list */
#include <string.h> /* strchr */

#include "base/panic.h"  /* gw_panic */
#include "base/str.h"    /* gw_parse_i64 */
#include "cli/command.h" /* gw_cli */
#include "cli/options.h" /* gw_global_options */

const gw_option gw_global_options[GW_GLOBAL_COUNT] = {
    {"help", 'h', NULL, "this text", GW_OPT_FLAG, NULL},
    {"quiet", 'q', NULL, "print only results and errors", GW_OPT_FLAG, NULL},
    {"verbose", 'v', NULL, "say more about what is done", GW_OPT_FLAG, NULL},
    {"no-color", 0, NULL, "no colour, also on a terminal (as NO_COLOR=1)", GW_OPT_FLAG, NULL},
};
const gw_option gw_version_option = {"version",   'V', NULL, "the version and its commit",
                                     GW_OPT_FLAG, NULL};

typedef struct value {
    int count;          /* times given */
    const char **items; /* of GW_OPT_LIST, all; of others, the last in items[0] */
    int64_t number;     /* INT and BYTES */
    double real;        /* DOUBLE */
} value;

struct gw_cli_values {
    value *of; /* one per row of the command's table */
};

typedef struct parser {
    gw_cli *cli;
    int nwords;
    const char *const *words;
    int next;
    const char **args;
    int nargs;
    bool help, failed;
} parser;

// ------------------------------------------------------------------ complaints

static gw_diag *complain(parser *p, const char *message) {
    p->failed = true;
    gw_diag *g =
        gw_diag_add(p->cli->diags, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0}, "%s", message);
    gw_diag_hint(p->cli->diags, g, "see: gradwright %s --help", p->cli->command->name);
    return g;
}

static void unknown_option(parser *p, const char *word) {
    size_t n = strcspn(word, "=");
    const gw_command *c = p->cli->command;
    char *given = gw_arena_strndup(p->cli->arena, word, n);
    gw_diag *g = complain(
        p, gw_arena_printf(p->cli->arena, "`gradwright %s` has no option %s", c->name, given));
    const char *name = given + strspn(given, "-"), *best = NULL;
    int limit = (int)strlen(name) / 3 + 2;
    for (int i = 0; i < c->noptions + GW_GLOBAL_COUNT; i++) {
        const gw_option *o = i < c->noptions ? &c->options[i] : &gw_global_options[i - c->noptions];
        int d = gw_str_starts(o->name, name) ? 1 : gw_str_distance(o->name, name);
        if (d >= limit) continue;
        limit = d;
        best = o->name;
    }
    if (best) gw_diag_hint(p->cli->diags, g, "did you mean --%s?", best);
}

// ------------------------------------------------------------------ values

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *s = choices; *s;) {
        size_t m = strcspn(s, " ");
        if (m == n && memcmp(s, text, n) == 0) return true;
        s += m + (s[m] == ' ');
    }
    return false;
}

static void bad_value(parser *p, const gw_option *o, const char *text, const char *want) {
    complain(p, gw_arena_printf(p->cli->arena, "--%s must be %s, not '%s'", o->name, want, text));
}

static void store(parser *p, int row, const char *text) {
    const gw_option *o = &p->cli->command->options[row];
    value *v = &p->cli->values->of[row];
    if (o->choices && !is_choice(o->choices, text)) {
        bad_value(p, o, text, gw_arena_printf(p->cli->arena, "one of: %s", o->choices));
        return;
    }
    switch (o->kind) {
    case GW_OPT_FLAG: break;
    case GW_OPT_STRING: v->items[0] = text; break;
    case GW_OPT_LIST: v->items[v->count] = text; break;
    case GW_OPT_INT:
        if (!gw_parse_i64(text, &v->number)) bad_value(p, o, text, "an integer");
        break;
    case GW_OPT_DOUBLE:
        if (!gw_parse_f64(text, &v->real) || !isfinite(v->real)) bad_value(p, o, text, "a number");
        break;
    case GW_OPT_BYTES:
        if (!gw_parse_bytes(text, &v->number))
            bad_value(p, o, text, "a size such as 512MB or 2GiB");
        break;
    }
    v->count++;
}

static bool take_global(parser *p, int which) {
    gw_cli *cli = p->cli;
    switch (which) {
    case GW_GLOBAL_HELP: p->help = true; return true;
    case GW_GLOBAL_QUIET: cli->quiet = true; return true;
    case GW_GLOBAL_VERBOSE: cli->verbose = true; return true;
    case GW_GLOBAL_NO_COLOR: cli->colour = false; return true;
    }
    return false;
}

static bool global_named(parser *p, const char *name, size_t n, char short_name) {
    for (int i = 0; i < GW_GLOBAL_COUNT; i++) {
        const gw_option *o = &gw_global_options[i];
        bool same = name ? strlen(o->name) == n && memcmp(o->name, name, n) == 0
                         : o->short_name && o->short_name == short_name;
        if (same) return take_global(p, i);
    }
    return false;
}

/* The row's value: what follows '=' or the letter (`inline_text`), or the next word. */
static void take_value(parser *p, int row, const char *inline_text) {
    const gw_option *o = &p->cli->command->options[row];
    if (inline_text) {
        store(p, row, inline_text);
    } else if (p->next < p->nwords && !gw_str_starts(p->words[p->next], "--")) {
        store(p, row, p->words[p->next++]);
    } else {
        gw_diag *g = complain(p, gw_arena_printf(p->cli->arena, "--%s needs a value: --%s %s",
                                                 o->name, o->name, o->arg));
        if (p->next < p->nwords)
            gw_diag_hint(p->cli->diags, g, "if '%s' is the value, write --%s=%s", p->words[p->next],
                         o->name, p->words[p->next]);
    }
}

static int find_long(const gw_command *c, const char *name, size_t n) {
    for (int i = 0; i < c->noptions; i++)
        if (strlen(c->options[i].name) == n && memcmp(c->options[i].name, name, n) == 0) return i;
    return -1;
}

static void take_long(parser *p, const char *word) {
    const gw_command *c = p->cli->command;
    const char *name = word + 2, *eq = strchr(name, '=');
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    int row = find_long(c, name, n);
    if (row < 0) {
        if (!eq && global_named(p, name, n, 0)) return;
        unknown_option(p, word);
    } else if (c->options[row].kind != GW_OPT_FLAG) {
        take_value(p, row, eq ? eq + 1 : NULL);
    } else if (eq) {
        complain(p, gw_arena_printf(p->cli->arena, "--%s takes no value", c->options[row].name));
    } else {
        store(p, row, "");
    }
}

static void take_short(parser *p, const char *word) {
    const gw_command *c = p->cli->command;
    for (const char *s = word + 1; *s; s++) {
        int row = 0;
        while (row < c->noptions && c->options[row].short_name != *s) row++;
        if (row == c->noptions) {
            if (global_named(p, NULL, 0, *s)) continue;
            unknown_option(p, word);
            return;
        }
        if (c->options[row].kind == GW_OPT_FLAG) {
            store(p, row, "");
            continue;
        }
        take_value(p, row, s[1] == '=' ? s + 2 : s[1] ? s + 1 : NULL);
        return;
    }
}

// ------------------------------------------------------------------ the line

static void check_count(parser *p) {
    const gw_command *c = p->cli->command;
    if (p->nargs < c->min_args)
        complain(p, gw_arena_printf(p->cli->arena, "an argument is missing: gradwright %s %s",
                                    c->name, c->usage[0] ? c->usage[0] : ""));
    else if (c->max_args >= 0 && p->nargs > c->max_args)
        complain(p, gw_arena_printf(p->cli->arena, "'%s' is one argument too many",
                                    p->args[c->max_args]));
}

gw_status gw_cli_parse(gw_cli *cli, int nwords, const char *const *words, bool *help) {
    const gw_command *c = cli->command;
    cli->values = gw_arena_new(cli->arena, struct gw_cli_values, 1);
    cli->values->of = gw_arena_new(cli->arena, value, c->noptions + 1);
    for (int i = 0; i < c->noptions; i++)
        cli->values->of[i].items = gw_arena_new(cli->arena, const char *, nwords + 1);
    parser p = {.cli = cli, .nwords = nwords, .words = words};
    p.args = gw_arena_new(cli->arena, const char *, nwords + 1);
    bool only_args = false;
    while (p.next < nwords) {
        const char *w = words[p.next++];
        if (only_args || w[0] != '-' || w[1] == 0)
            p.args[p.nargs++] = w;
        else if (gw_str_eq(w, "--"))
            only_args = true;
        else if (w[1] == '-')
            take_long(&p, w);
        else
            take_short(&p, w);
    }
    cli->args = p.args;
    cli->nargs = p.nargs;
    *help = p.help;
    if (!p.help) check_count(&p);
    return p.failed ? GW_ERR_USAGE : GW_OK;
}

// ------------------------------------------------------------------ reading

static const value *value_of(const gw_cli *cli, const char *name, gw_opt_kind a, gw_opt_kind b) {
    int row = find_long(cli->command, name, strlen(name));
    if (row < 0) gw_panic("command %s has no option --%s", cli->command->name, name);
    gw_opt_kind kind = cli->command->options[row].kind;
    if (kind != a && kind != b)
        gw_panic("option --%s of %s is read as another kind", name, cli->command->name);
    return &cli->values->of[row];
}

bool gw_cli_flag(const gw_cli *cli, const char *name) {
    return value_of(cli, name, GW_OPT_FLAG, GW_OPT_FLAG)->count > 0;
}

bool gw_cli_given(const gw_cli *cli, const char *name) {
    int row = find_long(cli->command, name, strlen(name));
    if (row < 0) gw_panic("command %s has no option --%s", cli->command->name, name);
    return cli->values->of[row].count > 0;
}

const char *gw_cli_string(const gw_cli *cli, const char *name, const char *fallback) {
    const value *v = value_of(cli, name, GW_OPT_STRING, GW_OPT_STRING);
    return v->count ? v->items[0] : fallback;
}

int64_t gw_cli_int(const gw_cli *cli, const char *name, int64_t fallback) {
    const value *v = value_of(cli, name, GW_OPT_INT, GW_OPT_BYTES);
    return v->count ? v->number : fallback;
}

double gw_cli_double(const gw_cli *cli, const char *name, double fallback) {
    const value *v = value_of(cli, name, GW_OPT_DOUBLE, GW_OPT_DOUBLE);
    return v->count ? v->real : fallback;
}

int gw_cli_list(const gw_cli *cli, const char *name, const char *const **items) {
    const value *v = value_of(cli, name, GW_OPT_LIST, GW_OPT_LIST);
    *items = v->count ? (const char *const *)v->items : NULL;
    return v->count;
}

gw_status gw_cli_usage_error(gw_cli *cli, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = gw_arena_vprintf(cli->arena, fmt, ap);
    va_end(ap);
    gw_diag *g =
        gw_diag_add(cli->diags, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0}, "%s", text);
    gw_diag_hint(cli->diags, g, "see: gradwright %s --help", cli->command->name);
    return GW_ERR_USAGE;
}
