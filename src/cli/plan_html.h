// SPDX-License-Identifier: Apache-2.0
// `plan --html FILE`: the plan as a page of its own, and of a run directory what was measured
// beside it.
#ifndef GW_CLI_PLAN_HTML_H
#define GW_CLI_PLAN_HTML_H

#include <jansson.h>

#include "cli/command.h"   /* gw_cli */
#include "cli/plan_view.h" /* gw_plan_view */
#include "plan/html.h"     /* gw_html_search */
#include "plan/search.h"   /* gw_search */

/* For the command's table. */
#define GW_OPTION_HTML                                                                             \
    { "html", 0, "FILE", "the plan, or a run beside it, as a page of HTML", GW_OPT_STRING, NULL }

/* What --html plans when the argument is a run's directory: its config.yaml; otherwise `spec`. */
const char *gw_cli_html_spec(gw_cli *cli, const char *spec);
/* Writes the page of --html and says where; without the option nothing happens. `plan` is what
 * --json prints. `search`: NULL, or what was found. */
GW_WARN_UNUSED gw_status gw_cli_plan_html(gw_cli *cli, const gw_plan_view *v, const json_t *plan,
                                          const gw_html_search *search);
/* Writes the frontier of a search on a stated machine as a page; `found`: the proposed layout as a
 * run file, or NULL. Without the option nothing happens. */
GW_WARN_UNUSED gw_status gw_cli_html_search(gw_cli *cli, const char *name, const gw_search *s,
                                            const char *found);
/* The roofline of a simulated step, as a key of the plan's object. */
void gw_cli_add_roofline(const gw_simplan *sim, json_t *plan);

#endif
