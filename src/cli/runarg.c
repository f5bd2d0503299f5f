// SPDX-License-Identifier: Apache-2.0
// A run file named on the command line, with --set applied; or a model by its name or place.
//
// A model alone is put into a run file of one line and goes through the same parser, so that
// overrides, defaults and checks are the same ones.
#include "cli/runarg.h" /* gw_cli_runfile */

#include <string.h> /* strlen */

#include "base/io.h"     /* gw_path_is_dir */
#include "base/str.h"    /* gw_str */
#include "model/model.h" /* gw_model_preset */

gw_status gw_cli_runfile(gw_cli *cli, const char *path, gw_runfile *rf) {
    const char *const *sets = NULL;
    int nsets = gw_cli_list(cli, "set", &sets);
    return gw_runfile_load(rf, path, sets, nsets, cli->diags);
}

/* `text` in single quotes, as YAML has them: a quote inside is doubled. */
static void add_quoted(gw_str *out, const char *text) {
    gw_str_add_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'') gw_str_add_char(out, '\'');
        gw_str_add_char(out, *text);
    }
    gw_str_add_char(out, '\'');
}

static gw_status parse_model(gw_cli *cli, const char *key, const char *what, gw_runfile *rf) {
    const char *const *sets = NULL;
    int nsets = gw_cli_list(cli, "set", &sets);
    gw_str text = {0};
    gw_str_printf(&text, "model: {%s: ", key);
    add_quoted(&text, what);
    gw_str_add(&text, "}\n");
    gw_status s =
        gw_runfile_parse(rf, what, gw_str_c(&text), (int64_t)text.len, sets, nsets, cli->diags);
    gw_str_release(&text);
    return s;
}

gw_status gw_cli_runfile_or_model(gw_cli *cli, const char *what, gw_runfile *rf) {
    gw_model m;
    if (gw_path_is_dir(what) || gw_str_ends(what, ".gguf"))
        return parse_model(cli, "path", what, rf);
    if (gw_str_eq(what, "-") || gw_path_exists(what)) return gw_cli_runfile(cli, what, rf);
    bool like_a_file = strchr(what, '/') || gw_str_ends(what, ".yaml") || gw_str_ends(what, ".yml");
    if (gw_model_preset(what, &m) || !like_a_file) return parse_model(cli, "preset", what, rf);
    return gw_cli_runfile(cli, what, rf);
}
