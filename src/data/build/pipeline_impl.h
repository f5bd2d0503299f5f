// SPDX-License-Identifier: Apache-2.0
// The table of keys, for pipeline*.c alone.
#ifndef GW_DATA_BUILD_PIPELINE_IMPL_H
#define GW_DATA_BUILD_PIPELINE_IMPL_H

#include "data/build/pipeline.h" /* gw_pipeline */

typedef enum gw_pl_type {
    GW_PL_TEXT,
    GW_PL_INT,
    GW_PL_REAL,
    GW_PL_BOOL,
    GW_PL_BYTES,
    GW_PL_ENUM,
    GW_PL_FLAGS, /* a set of names: bit `value` of an int; -1 is the empty set */
    GW_PL_LIST,
    GW_PL_NODE
} gw_pl_type;

typedef struct gw_pl_name {
    const char *name; /* NULL ends */
    int value;
} gw_pl_name;

typedef struct gw_pl_key {
    const char *path;
    size_t offset; /* in gw_pipeline */
    gw_pl_type type;
    const char *fallback; /* YAML text; "": none */
    double lo, hi;
    const gw_pl_name *names; /* or NULL */
    const char *meaning;
} gw_pl_key;

/* Groups, and marks (path NULL) of keys, as they follow one another. */
typedef struct gw_pl_group {
    const char *path, *meaning;
} gw_pl_group;

extern const gw_pl_key gw_pl_keys[];
extern const int gw_pl_nkeys;
extern const gw_pl_group gw_pl_rows[];
extern const int gw_pl_nrows;

int gw_pl_find(const char *path); /* -1: no key */
/* What a value may be, in words; returns s as text. */
const char *gw_pl_wanted(const gw_pl_key *k, gw_str *s);
/* Appends a key's value. */
void gw_pl_value(const gw_pipeline *p, const gw_pl_key *k, gw_str *out);
/* A name of another project for what a key here does; NULL: none is known. */
const char *gw_pl_other_name(const char *leaf);

/* What contradicts, or has no effect, each with its place: GW_ERR_CONFIG. `plain` has all defaults.
 */
GW_WARN_UNUSED gw_status gw_pl_check(const gw_pipeline *p, const gw_pipeline *plain, gw_diags *dg);

#endif
