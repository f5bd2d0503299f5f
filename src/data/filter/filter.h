// SPDX-License-Identifier: Apache-2.0
// Quality filters: what a text is measured by, and which measures make a document go.
//
// A filter is a named variant of a project's rules ("gopher_quality/datatrove"), one descriptor in
// filters.def. It is in two halves: `measure` looks at the text and writes columns (numbers),
// `decide` looks at columns and parameters only. So columns are stored once, and thresholds can be
// changed afterwards without the text. Parameters that shape columns or text say so (`measured`).
#ifndef GW_DATA_FILTER_FILTER_H
#define GW_DATA_FILTER_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */
#include "base/yaml.h" /* gw_yaml_node */

enum { GW_FILTER_MAX_PARAMS = 24, GW_FILTER_MAX_COLUMNS = 40 };

typedef enum gw_param_type {
    GW_PARAM_NUMBER, /* or null: the rule is off (NaN) */
    GW_PARAM_FLAG,   /* true, false: 1, 0 */
    GW_PARAM_TEXT,   /* a word, or a list written with commas; a YAML list is joined */
    GW_PARAM_FILE,   /* the path of a list, one entry a line, "#" begins a comment */
} gw_param_type;

typedef struct gw_filter_param {
    const char *name;
    gw_param_type type;
    double number;    /* default of NUMBER and FLAG */
    const char *text; /* default of TEXT and FILE */
    bool measured;    /* columns or text depend on it: to change it the text is needed again */
    const char *help;
} gw_filter_param;

/* Values of a filter's parameters, in the order of its descriptor. */
typedef struct gw_filter_args {
    double number[GW_FILTER_MAX_PARAMS];
    const char *text[GW_FILTER_MAX_PARAMS];
} gw_filter_args;

/* What is known of a document beside its text; strings are "" where unknown. */
typedef struct gw_filter_facts {
    const char *url, *language;
    float language_score;
} gw_filter_facts;

struct gw_measure; /* measure.h: shared counting */

typedef struct gw_filter_desc {
    const char *name;  /* RULES/PROJECT */
    const char *about; /* one line */
    const gw_filter_param *params;
    const char *const *columns;
    const char *const *reasons; /* why a document goes */
    int nparams, ncolumns, nreasons;
    bool edits;     /* measure may change the text */
    bool needs_url; /* a document without one is kept, and counted in column 0 */
    /* Loads lists; *state is the filter's own. filter_open_none where there is nothing. */
    gw_status (*open)(const gw_filter_args *a, void **state, gw_diags *dg);
    void (*close)(void *state);
    void (*measure)(struct gw_measure *m, const gw_filter_args *a, void *state, double *columns);
    int (*decide)(const double *columns, const gw_filter_facts *f,
                  const gw_filter_args *a); /* index into reasons, or -1 to keep */
} gw_filter_desc;

/* All descriptors; *count of them. */
const gw_filter_desc *const *gw_filter_list(int *count);
const gw_filter_desc *gw_filter_find(const char *name); /* or NULL */

/* The first filter that removes a document, and why; filter = -1: kept. */
typedef struct gw_verdict {
    int filter, reason;
} gw_verdict;

/* The filters of a pipeline in their order, with the scratch of one thread. */
typedef struct gw_filters gw_filters;

/* list: a YAML list whose items are a name, or a map of one name to a map of parameters:
 *   - gopher_quality/datatrove
 *   - c4/datatrove: {min_num_sentences: 3, filter_curly_bracket: false}
 * NULL is the empty list. Unknown names and parameters are refused with their line, all at once;
 * lists of words are read. Nothing is borrowed from the tree. */
GW_WARN_UNUSED gw_status gw_filters_new(const gw_yaml_node *list, const char *file,
                                        gw_filters **out, gw_diags *dg);
void gw_filters_free(gw_filters *f);

/* From now on a document is measured only until a filter removes it; columns behind that are NaN.
 * Verdicts are the same, columns then depend on all parameters, and gw_filters_measured_text says
 * so. */
void gw_filters_until_removed(gw_filters *f);

int gw_filters_count(const gw_filters *f);
const gw_filter_desc *gw_filters_desc(const gw_filters *f, int filter);
/* Columns of all filters, in order; the name is FILTER.COLUMN ("c4/datatrove.sentences"),
 * borrowed. A filter that stands twice has its second columns named FILTER#2.COLUMN. */
int gw_filters_columns(const gw_filters *f);
const char *gw_filters_column_name(const gw_filters *f, int column);
/* A line for manifests that names filters and values of all parameters; borrowed. Two pipelines
 * whose `measured` lines are equal have equal columns and texts. */
const char *gw_filters_text(const gw_filters *f);
const char *gw_filters_measured_text(const gw_filters *f);

/* Measures and edits *text (valid UTF-8) by each filter in turn, also past the one that removes the
 * document (unless gw_filters_until_removed), writes all columns and returns the verdict. NaN in a
 * column: not defined for this text (its words are none, say). */
gw_verdict gw_filters_run(gw_filters *f, const gw_filter_facts *facts, gw_str *text,
                          double *columns);
/* The verdict from columns alone: pure. */
gw_verdict gw_filters_decide(const gw_filters *f, const gw_filter_facts *facts,
                             const double *columns);
/* "kept", or "gopher_quality/datatrove: gopher_short_doc". Returns buf. */
const char *gw_filters_verdict_text(const gw_filters *f, gw_verdict v, char *buf, int64_t size);

#endif
