// SPDX-License-Identifier: Apache-2.0
// A plan as one page of HTML that needs nothing else: `gradwright plan --html`.
//
//     gw_str page = {0};
//     gw_html_page(&(gw_html_input){.plan = j, .name = "llama3-70b", .timeline = &t}, &page);
//
// Figures are read from the plan's JSON object, the one that --json prints, and stand on the page
// as <data value="..." data-key="memory.total_bytes">: value is the JSON's number to the last
// digit, data-key where it stands there (items of lists by number), the text what the terminal
// prints.
#ifndef GW_PLAN_HTML_H
#define GW_PLAN_HTML_H

#include <jansson.h>
#include <stdbool.h>

#include "base/str.h"      /* gw_str */
#include "plan/simplan.h"  /* gw_simplan */
#include "plan/timeline.h" /* gw_timeline */

/* One layout of a search: what a rank needs, how long a step takes. */
typedef struct gw_html_point {
    double bytes, seconds;
    double dollars;    /* of a billion tokens or images; 0: not stated */
    const char *label; /* "tp 4, pp 2, zero 1" */
    bool best;         /* the one that is proposed; at most one */
    bool fits;
    bool frontier; /* no other takes both less time and fewer bytes */
} gw_html_point;

typedef struct gw_html_search {
    const gw_html_point *points;
    int n;
    const char *objective; /* "time", "cost", "memory" */
    bool images;           /* of a net for them: no tokens */
    double memory_bytes;   /* of a chip; 0: not stated */
    const char *summary;   /* one line: how many were looked at; or NULL */
    const char *found;     /* the proposed layout as a run file; or NULL */
} gw_html_search;

/* A run's steps as they were measured. */
typedef struct gw_html_run {
    const char *dir;
    const double *step, *seconds; /* [n]; seconds may be NaN */
    int64_t n;
    const gw_timeline *timeline; /* of its latest step; NULL: no pipeline */
} gw_html_run;

typedef struct gw_html_input {
    const json_t *plan;          /* what --json prints; of a run also "run": its summary.json; of a
                                    search alone an empty object */
    const char *name;            /* heads the page: any bytes */
    const char *layout;          /* the run's keys in words; NULL: none */
    const char *command;         /* the command line that made the page; NULL: not said */
    const gw_timeline *timeline; /* of the simulated step, or the schedule's clock; NULL: none */
    const gw_simplan *sim; /* made with timeline: its trace is drawn; NULL: no machine is stated */
    const gw_html_search *search; /* NULL: none */
    const gw_html_run *run;       /* NULL: a plan alone */
} gw_html_input;

/* Appends the page: UTF-8 as far as the names in it are, complete without script and network, the
 * same bytes for the same input. Whatever comes from outside is escaped. */
void gw_html_page(const gw_html_input *in, gw_str *out);

#endif
