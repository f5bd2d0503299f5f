// SPDX-License-Identifier: Apache-2.0
// Which dimension of each parameter is cut over tensor-parallel ranks.
#ifndef GW_MODEL_PLACEMENT_H
#define GW_MODEL_PLACEMENT_H

#include "base/arena.h"  /* gw_arena */
#include "model/model.h" /* gw_param */

/* An exception: parameters whose names the pattern fits. In a pattern '*' stands for any text, '?'
 * for one character. */
typedef struct gw_placement_rule {
    const char *pattern;
    const char *dim; /* a dimension's name, or "none" */
} gw_placement_rule;

/* What is wrong with a rule. */
typedef enum gw_placement_fault {
    GW_PLACEMENT_FINE,
    GW_PLACEMENT_NOTHING, /* no parameter has such a name */
    GW_PLACEMENT_NO_DIM,  /* a parameter that it fits has no such dimension */
    GW_PLACEMENT_HEAD,    /* it cuts a head */
    GW_PLACEMENT_EXPERTS, /* it cuts the experts, which expert parallelism does */
} gw_placement_fault;

/* The dimension that is cut if no rule says otherwise: the first there is of h (query heads), g (kv
 * heads), f (feed-forward), v (vocabulary); "" for norms, routers, tables of positions and low-rank
 * projections, which each rank has whole. */
const char *gw_placement_default(const gw_param *p);

/* The same under rules; of those that fit the last is right. "" is whole. Only of rules without a
 * fault. */
const char *gw_placement_of(const gw_param *p, const gw_placement_rule *rules, int nrules);

/* Looks at one rule for a list of parameters; *at: the parameter that shows a fault, or NULL. */
gw_placement_fault gw_placement_check(const gw_placement_rule *rule, const gw_param *params, int n,
                                      const gw_param **at);

/* Parameters alike in all layers, as one line for people. */
typedef struct gw_placement_line {
    const char *names;          /* "layers.*.attn.q.weight" */
    const char *dims;           /* "h12 k64 d768" */
    const char *cut;            /* "h", or "" */
    int64_t count;              /* parameters */
    int64_t most, least, empty; /* of the dimension on a rank; ranks that hold none of it */
    int64_t copies;             /* tensor-parallel ranks that hold the same part; tp: whole */
} gw_placement_line;

/* Over how many ranks dimensions are cut. */
typedef struct gw_placement_cuts {
    int64_t tp;            /* ranks */
    int64_t kv;            /* of these, those that kv heads are cut over (gw_layout_kv_ranks) */
    int64_t experts;       /* expert-parallel ranks where they are ranks of tp too, else 0: then
                              experts are cut, and nothing within one */
    int64_t experts_in_tp; /* how many parts of them the ranks of tp have */
} gw_placement_cuts;
/* In the order of the parameters. */
void gw_placement_lines(const gw_param *params, int n, const gw_placement_rule *rules, int nrules,
                        const gw_placement_cuts *cuts, gw_arena *a, gw_placement_line **out,
                        int *nlines);

#endif
