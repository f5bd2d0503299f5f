// SPDX-License-Identifier: Apache-2.0
// The key table as data, for the four files that read it. Not for use outside src/train/runfile*.c.
#ifndef GW_TRAIN_RUNFILE_KEY_H
#define GW_TRAIN_RUNFILE_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"      /* gw_str */
#include "train/runfile.h" /* gw_runfile */
#include "base/yaml.h"     /* gw_yaml_node */

typedef enum gw_rf_type {
    GW_RF_T_BOOL,
    GW_RF_T_INT,     /* int64_t */
    GW_RF_T_REAL,    /* double */
    GW_RF_T_TEXT,    /* const char *, NULL when not given */
    GW_RF_T_ENUM,    /* a C enum, written as a name */
    GW_RF_T_BYTES,   /* int64_t; "64MB" or a number */
    GW_RF_T_LIST,    /* gw_rf_strings */
    GW_RF_T_PAIR,    /* gw_rf_pair */
    GW_RF_T_MAP,     /* gw_rf_map */
    GW_RF_T_COUNTS,  /* gw_rf_counts: the word, or a list of integers */
    GW_RF_T_MIXTURE, /* gw_rf_mixture: a text, or a list of {path, weight, epochs} */
    GW_RF_T_STAGES,  /* gw_rf_stages: a list of {tokens, weights} */
} gw_rf_type;

/* A value of an enumerated key. Several names may have one value: the first is printed. */
typedef struct gw_rf_name {
    const char *name; /* NULL ends a list */
    int value;
} gw_rf_name;

typedef struct gw_rf_check {
    bool bounded, lo_open;
    double lo, hi;
    const char *word; /* stands for 0 ("auto"), or NULL */
    const gw_rf_name *names;
} gw_rf_check;

typedef struct gw_rf_key {
    const char *path; /* "optimizer.lr" */
    size_t offset;    /* of the field in gw_runfile */
    gw_rf_type type;
    const char *fallback; /* the table's default column */
    gw_rf_check check;
    const char *unit, *only, *meaning;
} gw_rf_key;

typedef struct gw_rf_group {
    const char *path, *meaning;
} gw_rf_group;

/* What is known of one key of one run file. After the keys follow the groups' marks. */
typedef struct gw_rf_mark {
    bool set;        /* given, well-formed or not */
    bool bad;        /* given, and already complained about */
    bool left_to_us; /* given as "auto", which is also what it is when it is not given */
    const char *file;
    int line, column;
} gw_rf_mark;

extern const gw_rf_key gw_rf_keys[];
extern const int gw_rf_nkeys;
extern const gw_rf_group gw_rf_groups[];
extern const int gw_rf_ngroups;

/* Index of a key or group, or -1. */
int gw_rf_key_find(const char *path);
int gw_rf_group_find(const char *path);
/* The last part of a path ("lr"). */
const char *gw_rf_leaf(const char *path);
/* Length of the group's path in a key's path. */
size_t gw_rf_group_length(const char *path);
bool gw_rf_is_derived(const gw_rf_key *k);

static inline void *gw_rf_field(gw_runfile *rf, const gw_rf_key *k) {
    return (char *)rf + k->offset;
}
static inline const void *gw_rf_field_const(const gw_runfile *rf, const gw_rf_key *k) {
    return (const char *)rf + k->offset;
}

/* Has the key an effect in this configuration? (runfile_check.c) */
bool gw_rf_effective(const gw_runfile *rf, int key);
/* Derives what was not given and reports contradictions and keys without effect. */
void gw_rf_derive_and_check(gw_runfile *rf, gw_diags *dg);
/* The part of it that settles how many ranks do what (runfile_layout.c). Ranks: 0 = not known. */
void gw_rf_check_ranks(gw_runfile *rf, int64_t ranks, gw_diags *dg);
/* The stages of a pipeline: derives what was not given, reads a schedule that is a file, and
 * reports every contradiction (runfile_pipeline.c). */
void gw_rf_check_pipeline(gw_runfile *rf, gw_diags *dg);
/* What of it hangs on the model's number of layers. */
void gw_rf_check_stages(const gw_runfile *rf, int64_t layers, gw_diags *dg);
/* What of the layout the run file alone can tell, the model included where that is given by it. */
void gw_rf_check_layout(gw_runfile *rf, gw_diags *dg);

/* Mixtures: that stages fit the sources, and what else of the data keys must agree
 * (runfile_mixture.c). */
void gw_rf_check_data(const gw_runfile *rf, gw_diags *dg);
bool gw_rf_store_mixture(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                         gw_rf_mixture *field, gw_diags *dg);
bool gw_rf_store_stages(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                        gw_rf_stages *field, gw_diags *dg);
void gw_rf_add_mixture(gw_str *out, const gw_rf_mixture *m, bool json);
void gw_rf_add_stages(gw_str *out, const gw_rf_stages *s);
/* A text as YAML (plain where that is safe) or JSON. */
void gw_rf_add_text(gw_str *out, const char *s, bool json);

/* Stores a YAML value in the key's field, or complains at w. */
bool gw_rf_store_value(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                       gw_diags *dg);
/* Appends the field's value as YAML that reads back to the same value; "" when a text is NULL. */
void gw_rf_value_yaml(const gw_runfile *rf, const gw_rf_key *k, gw_str *out);
void gw_rf_value_json(const gw_runfile *rf, const gw_rf_key *k, gw_str *out);
/* The shortest decimal that reads back to the same double. */
void gw_rf_add_real(gw_str *out, double x);
void gw_rf_add_json_string(gw_str *out, const char *s);
/* "an integer from 1 to 1024", "auto or an integer above 0": for messages and docs. */
void gw_rf_describe(const gw_rf_key *k, gw_str *out);

/* The hint for a name that is no key: "here it is train.accumulate", "did you mean ...". `section`
 * is the group it stands in, or "" at the top. Returns false when nothing is near. */
bool gw_rf_hint(const char *section, const char *name, gw_str *out);

typedef struct gw_rf_alias {
    const char *name, *key, *note;
} gw_rf_alias;
extern const gw_rf_alias gw_rf_aliases[];
extern const int gw_rf_naliases;

#endif
