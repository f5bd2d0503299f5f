// SPDX-License-Identifier: Apache-2.0
// `gradwright convert`: another trainer's configuration as a run file, and what became of each key.
//
// The list follows the lines of the input. The run file goes to --out; without it, it is printed
// after the list. Refused keys do not stop it: they stand in the list and at the head of the run
// file; --strict makes one of them a failure. Wrong types and contradictions are failures anyway.
#include <inttypes.h> /* PRId64 */
#include <stdio.h>    /* fprintf */
#include <string.h>   /* strlen */

#include "base/io.h"       /* gw_file_read */
#include "base/output.h"   /* gw_output_write */
#include "base/term.h"     /* gw_table */
#include "cli/command.h"   /* gw_command */
#include "cli/runarg.h"    /* gw_cli_need_path */
#include "train/convert.h" /* gw_convert */

enum { MAX_BYTES = 1 << 20, MAX_WORLD = 1 << 20 };

static const gw_option options[] = {
    {"model", 'm', "MODEL", "preset, directory or .gguf, whatever the file says", GW_OPT_STRING,
     NULL},
    {"world", 'w', "N", "ranks in all, where the file does not say it", GW_OPT_INT, NULL},
    {"out", 'o', "RUN.yaml", "write the run file there", GW_OPT_STRING, NULL},
    {"strict", 0, NULL, "fail, and write nothing, where a key is refused", GW_OPT_FLAG, NULL},
    GW_OPTION_SET,
    GW_OPTION_JSON,
};

/* Text without what a terminal would act on. */
static char *clean(gw_cli *cli, const char *text) {
    char *s = gw_arena_strdup(cli->arena, text ? text : "");
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    return s;
}

/* At most 28 characters of it. */
static const char *shortened(gw_cli *cli, const char *text) {
    enum { MOST = 28 };
    char *s = clean(cli, text);
    size_t n = strlen(s) > MOST ? MOST - 3 : strlen(s);
    while (n < strlen(s) && n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
    return s[n] ? gw_arena_printf(cli->arena, "%.*s...", (int)n, s) : s;
}

static void print_keys(gw_cli *cli, const gw_conversion *v) {
    gw_table *t = gw_table_new("rlll");
    gw_table_row(t, "line", v->format, "", "here");
    for (int i = 0; i < v->nkeys; i++) {
        const gw_cv_key *k = &v->keys[i];
        const char *line = k->line ? gw_arena_printf(cli->arena, "%d", k->line) : "-";
        const char *what =
            gw_arena_printf(cli->arena, "%s = %s", clean(cli, k->name), shortened(cli, k->text));
        const char *text =
            k->fate == GW_CV_MAPPED
                ? gw_arena_printf(cli->arena, "%s: %s%s%s%s", k->ours, k->wrote, k->why ? " (" : "",
                                  k->why ? k->why : "", k->why ? ")" : "")
                : gw_arena_printf(cli->arena, "%s%s%s", k->why, k->instead ? "; instead: " : "",
                                  k->instead ? k->instead : "");
        gw_table_row(t, line, what, gw_cv_fate_name(k->fate), clean(cli, text));
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
}

static void print_extras(gw_cli *cli, const gw_conversion *v) {
    if (v->nextras == 0) return;
    fprintf(cli->out, "\nwritten besides:\n");
    gw_table *t = gw_table_new("ll");
    gw_table_row(t, "here", "why");
    for (int i = 0; i < v->nextras; i++)
        gw_table_row(t,
                     gw_arena_printf(cli->arena, "%s: %s", v->extras[i].ours, v->extras[i].wrote),
                     v->extras[i].why);
    gw_table_print(t, cli->out, "  ");
    gw_table_free(t);
}

static void print_list(gw_cli *cli, const gw_conversion *v, const char *out) {
    print_keys(cli, v);
    print_extras(cli, v);
    fprintf(cli->out, "\nbatch: %s\n", v->batch);
    if (*v->left)
        fprintf(cli->out, "not said, at the run file's own defaults: %s; --set says it\n", v->left);
    fprintf(cli->out, "%d keys: %d mapped, %d implied, %d refused\n", v->nkeys, v->mapped,
            v->implied, v->refused);
    if (out)
        fprintf(cli->out, "%s\n", out);
    else
        fprintf(cli->out, "\n%s", v->yaml);
}

static void print_json(gw_cli *cli, const gw_conversion *v) {
    json_t *j = gw_conversion_json(v);
    json_dumpf(j, cli->out, JSON_INDENT(2));
    fputc('\n', cli->out);
    json_decref(j);
}

/* A file that is there is written over only if a conversion made it: run files are edited by hand.
 */
static gw_status check_out(gw_cli *cli, const char *out) {
    gw_str text = {0};
    if (!out || !gw_path_exists(out)) return GW_OK;
    gw_status st = gw_file_read(out, MAX_BYTES, &text, cli->diags);
    bool ours = gw_str_starts(gw_str_c(&text), GW_CONVERTED_MARK);
    gw_str_release(&text);
    if (st != GW_OK || ours) return st;
    st = gw_fail_at(cli->diags, GW_ERR_USAGE, "convert-exists", (gw_where){.file = out},
                    "it is there, and no conversion made it");
    gw_diag_hint(cli->diags, cli->diags->last, "name another file by --out, or remove this one");
    return st;
}

static gw_status convert(gw_cli *cli, const gw_cv_request *r) {
    const char *out = gw_cli_string(cli, "out", NULL);
    bool json = gw_cli_flag(cli, "json"), strict = gw_cli_flag(cli, "strict");
    bool standard = out && gw_output_is_standard(out);
    if (json && standard)
        return gw_cli_usage_error(cli, "--json and --out - both write to standard output");
    gw_conversion v;
    gw_status st = gw_convert_config(r, cli->arena, &v, cli->diags);
    if (st != GW_OK) return st;
    bool stop = strict && v.refused > 0;
    if (!stop) GW_TRY(check_out(cli, out));
    if (out && !stop)
        GW_TRY(gw_output_write(out, cli->out, v.yaml, (int64_t)strlen(v.yaml), cli->diags));
    if (json)
        print_json(cli, &v);
    else if (!cli->quiet && !standard)
        print_list(cli, &v, out && !stop ? out : NULL);
    if (!stop) return GW_OK;
    return GW_FAIL(cli->diags, GW_ERR_CONFIG, "convert-strict", "%d keys of %s are refused",
                   v.refused, r->name);
}

static gw_status need_format(gw_cli *cli, const char *name) {
    const char *is;
    for (int i = 0; (is = gw_convert_format(i, NULL)); i++)
        if (gw_str_eq(is, name)) return GW_OK;
    return gw_cli_usage_error(
        cli, "'%.40s' is no format: torchtitan, megatron, deepspeed and accelerate are", name);
}

static gw_status run(gw_cli *cli) {
    int64_t world = gw_cli_int(cli, "world", 0);
    if (gw_cli_given(cli, "world") && (world < 1 || world > MAX_WORLD))
        return gw_cli_usage_error(cli, "--world takes a number from 1 to %d", MAX_WORLD);
    const char *const *sets = NULL;
    int nsets = gw_cli_list(cli, "set", &sets);
    const char *path = cli->args[1];
    gw_str text = {0};
    bool given = gw_str_eq(path, "-"); /* on standard input */
    GW_TRY(need_format(cli, cli->args[0]));
    if (!given) GW_TRY(gw_cli_need_path(cli, path));
    gw_status st = gw_file_read(given ? "/dev/stdin" : path, MAX_BYTES, &text, cli->diags);
    gw_cv_request r = {.format = cli->args[0],
                       .name = given ? "stdin" : path,
                       .text = gw_str_c(&text),
                       .len = (int64_t)text.len,
                       .model = gw_cli_string(cli, "model", NULL),
                       .world = world,
                       .sets = sets,
                       .nsets = nsets};
    if (st == GW_OK) st = convert(cli, &r);
    gw_str_release(&text);
    return st;
}

const gw_command gw_cmd_convert = {
    .name = "convert",
    .summary = "another trainer's configuration as a run file",
    .usage = {"torchtitan|megatron|deepspeed|accelerate FILE [--out YAML]"},
    .description = "Lists every key of FILE (- is standard input) as mapped, implied or refused,\n"
                   "with the reason; what is written loads. FILE is TOML, a script or YAML, JSON,\n"
                   "YAML, in this order.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 2,
    .max_args = 2,
    .completes = GW_COMPLETE_WORDS,
    .words = "torchtitan megatron deepspeed accelerate",
    .example = "gradwright convert deepspeed ds_config.json --model gpt2 --world 8",
    .run = run,
};
