// SPDX-License-Identifier: Apache-2.0
// What the files of single filters share: descriptors' short forms, lists read from files.
#ifndef GW_DATA_FILTER_FILTER_IMPL_H
#define GW_DATA_FILTER_FILTER_IMPL_H

#include <math.h>

#include "base/arena.h"          /* gw_arena */
#include "base/map.h"            /* gw_smap */
#include "data/filter/filter.h"  /* gw_filter_desc */
#include "data/filter/measure.h" /* gw_measure */

#define GW_FILTER(desc) extern const gw_filter_desc desc;
#include "data/filter/filters.def"
#undef GW_FILTER

/* Parameters: a threshold, one that shapes columns, a flag of each sort. */
#define FILTER_LIMIT(name, value, help)                                                            \
    { name, GW_PARAM_NUMBER, value, NULL, false, help }
#define FILTER_MEASURE(name, value, help)                                                          \
    { name, GW_PARAM_NUMBER, value, NULL, true, help }
#define FILTER_FLAG(name, value, help)                                                             \
    { name, GW_PARAM_FLAG, value, NULL, false, help }
#define FILTER_SHAPE(name, value, help)                                                            \
    { name, GW_PARAM_FLAG, value, NULL, true, help }
#define FILTER_TEXT(name, value, help)                                                             \
    { name, GW_PARAM_TEXT, 0, value, true, help }
#define FILTER_FILE(name, help)                                                                    \
    { name, GW_PARAM_FILE, 0, "", true, help }
#define FILTER_COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* Comparisons that are false where a limit is off (NaN) or a column undefined. */
static inline bool filter_over(double x, double limit) { return x > limit; }
static inline bool filter_under(double x, double limit) { return x < limit; }
/* a / b, or NaN. */
static inline double filter_ratio(double a, double b) { return b != 0 ? a / b : (double)NAN; }
/* To eight places, as RedPajama-V2's signals are. */
static inline double filter_round8(double x) { return nearbyint(x * 1e8) / 1e8; }
static inline bool filter_is_on(const gw_filter_args *a, int param) {
    return a->number[param] != 0 && !isnan(a->number[param]);
}

/* *state: a gw_splitter, what datatrove cuts the language by (or a splitter's name); refused where
 * it is not here. filter_close_memory frees it. */
gw_status filter_open_splitter(const char *language, void **state, gw_diags *dg);
void filter_close_memory(void *state);
gw_status filter_open_none(const gw_filter_args *a, void **state, gw_diags *dg);
void filter_close_none(void *state);
/* A filter that measures nothing of the text. */
void filter_measure_none(struct gw_measure *m, const gw_filter_args *a, void *state,
                         double *columns);

/* A set of byte strings. */
typedef struct filter_set {
    gw_arena arena;
    gw_smap map;
    GW_VEC(gw_line) items;
    int64_t longest, bytes; /* of one, of all */
} filter_set;
void filter_set_release(filter_set *s);
void filter_set_add(filter_set *s, const char *p, int64_t n);
bool filter_set_has(const filter_set *s, const char *p, int64_t n);
/* Adds each item of a list with commas. */
void filter_set_add_list(filter_set *s, const char *list);
/* Adds each line of a file, without what surrounds it; "#" begins a comment line, "" is no file.
 * change: applied to the line in place, or NULL; returns its new length. */
gw_status filter_set_add_file(filter_set *s, const char *path, int64_t (*change)(char *, int64_t),
                              gw_diags *dg);

/* Substrings by Aho-Corasick: finds whether any of them stands in a text, one step a byte. */
typedef struct filter_automaton filter_automaton;
filter_automaton *filter_automaton_new(const filter_set *words);
void filter_automaton_free(filter_automaton *a);
bool filter_automaton_finds(const filter_automaton *a, const char *p, int64_t n);
/* Whether `accept` takes any occurrence text[from..to) of any word. */
bool filter_automaton_any(const filter_automaton *a, const char *p, int64_t n,
                          bool (*accept)(const char *text, int64_t n, int64_t from, int64_t to));

/* One of the eight words that Gopher's rule looks for (Rae et al. 2021, A1.1): the, be, to, of,
 * and, that, have, with; `any_case`: of ASCII. */
bool filter_is_stop_word(bool any_case, const char *p, int64_t n);

/* gopher_dclm.c: words of a page as DCLM counts them. */
int64_t gw_dclm_page_words(const char *p, int64_t n);

#endif
