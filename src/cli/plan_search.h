// SPDX-License-Identifier: Apache-2.0
// `plan --search`: the best layout of a run on a machine, and the smallest fleet that holds it.
#ifndef GW_CLI_PLAN_SEARCH_H
#define GW_CLI_PLAN_SEARCH_H

#include "cli/planarg.h" /* gw_target, gw_cli */
#include "plan/search.h" /* gw_search_layout, gw_search_host */

/* For the command's table. */
#define GW_OPTION_SEARCH                                                                           \
    {"search", 0, NULL, "look for the best layout and memory levers", GW_OPT_FLAG, NULL},          \
        {"objective",   0,                                                                         \
         "WHAT",        "of --search: time, cost, memory, fleet",                                  \
         GW_OPT_STRING, "time cost memory fleet"},                                                 \
    {                                                                                              \
        "budget", 0, "SECONDS", "of --search (60)", GW_OPT_DOUBLE, NULL                            \
    }

/* Is --search given? */
bool gw_cli_searches(const gw_cli *cli);
/* Options that go with --search, and those that do not. */
GW_WARN_UNUSED gw_status gw_cli_check_search(gw_cli *cli);
/* Searches for `t` on `m` (NULL: memory levers alone, on this machine) and prints what was found.
 */
GW_WARN_UNUSED gw_status gw_cli_search(gw_cli *cli, const gw_target *t, const gw_machine_spec *m);

/* ---- from a layout to a run and back (plan_search_host.c) ---- */

/* The run that is searched, without the keys that the search turns. */
typedef struct gw_search_site {
    const gw_target *target;
    const gw_machine_spec *machine; /* NULL: none is stated */
    int64_t memory_bytes;
    gw_str head, tail; /* of the run file, before and after the batch */
    gw_str kept;       /* lines of `layout:` that hold everywhere */
    struct {
        gw_search_lever lever;
        int32_t least; /* the line holds where the lever is at least so much */
        const char *line;
    } when[16];
    int nwhen;
    gw_arena mem;
} gw_search_site;

void gw_search_site_init(gw_search_site *x, const gw_target *t, const gw_machine_spec *m,
                         int64_t memory_bytes);
void gw_search_site_release(gw_search_site *x);
/* The whole run file of a layout; with `part` only what the search chose. */
void gw_search_site_yaml(const gw_search_site *x, const gw_search_layout *l, bool part,
                         gw_str *out);
/* "layout.tp=8 train.micro_batch=2": the same as words for --set, to a run that says nothing of
 * them. */
void gw_search_site_words(const gw_search_site *x, const gw_search_layout *l, gw_str *out);
/* The host of gw_search_input: user is a gw_search_site. */
void gw_search_site_probe(void *site, const gw_search_layout *l, gw_search_block *out);
void gw_search_site_evaluate(void *site, const gw_search_layout *l, gw_search_outcome *out);
/* Sizes and levers that --set gives; what cannot be searched is refused. */
GW_WARN_UNUSED gw_status gw_search_site_space(const gw_search_site *x, gw_search_space *s,
                                              gw_diags *dg);
void gw_search_site_facts(const gw_search_site *x, gw_search_facts *f);

#endif
