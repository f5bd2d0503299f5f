// SPDX-License-Identifier: Apache-2.0
// The list of commands, made from commands.def.
#include <stddef.h> /* NULL */

#include "base/str.h"    /* gw_str_eq */
#include "cli/command.h" /* gw_command */

#define GW_COMMAND(name) extern const gw_command gw_cmd_##name;
#include "cli/commands.def"
#undef GW_COMMAND

static const gw_command *const all[] = {
#define GW_COMMAND(name) &gw_cmd_##name,
#include "cli/commands.def"
#undef GW_COMMAND
    NULL};

const gw_command *const *gw_commands(void) { return all; }

const gw_command *gw_command_find(const char *name) {
    for (int i = 0; all[i]; i++)
        if (gw_str_eq(all[i]->name, name)) return all[i];
    return NULL;
}
