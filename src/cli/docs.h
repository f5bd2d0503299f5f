// SPDX-License-Identifier: Apache-2.0
// Texts made from the command and key tables: each appends one whole file.
#ifndef GW_CLI_DOCS_H
#define GW_CLI_DOCS_H

#include "base/str.h" /* gw_str */

void gw_docs_man(gw_str *out);      /* docs/gradwright.1 */
void gw_docs_commands(gw_str *out); /* docs/commands.md */
void gw_docs_errors(gw_str *out);   /* docs/errors.md */
void gw_docs_bash(gw_str *out);     /* completions/gradwright.bash */
void gw_docs_zsh(gw_str *out);      /* completions/_gradwright */
void gw_docs_fish(gw_str *out);     /* completions/gradwright.fish */

/* The diagnostic ids of errors.def, in order; false past the end. */
bool gw_docs_error_id(int i, const char **id);

#endif
