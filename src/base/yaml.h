// SPDX-License-Identifier: Apache-2.0
// YAML 1.2 as a small tree in an arena, each node with its line and column.
#ifndef GW_BASE_YAML_H
#define GW_BASE_YAML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */

/* Bounds: a run file is written by a person. */
enum { GW_YAML_MAX_BYTES = 1 << 20, GW_YAML_MAX_NODES = 20000, GW_YAML_MAX_DEPTH = 32 };

typedef enum gw_yaml_kind { GW_YAML_SCALAR, GW_YAML_LIST, GW_YAML_MAP } gw_yaml_kind;

typedef struct gw_yaml_node {
    gw_yaml_kind kind;
    bool quoted;      /* a scalar in quotes or block style: always a string */
    bool reads;       /* internal: the node is complete (an alias may name it) */
    const char *text; /* scalars, NUL-terminated and without NULs inside */
    int line, column; /* from 1: where the value stands (of an alias: where its anchor stands) */
    int64_t count;    /* children */
    struct gw_yaml_child *first, *last;
} gw_yaml_node;

/* An item of a list (key NULL), or a key and its value. Keys of a map are scalars and distinct. */
typedef struct gw_yaml_child {
    const char *key;
    int line, column; /* of the key; of the item in a list; an alias's own place */
    gw_yaml_node *value;
    struct gw_yaml_child *next;
} gw_yaml_child;

/* Parses exactly one document. An empty one gives *out = NULL. Aliases give the anchored node
 * itself (nothing is copied, a node cannot contain itself). Tags, merge keys, duplicate keys, a
 * second document and whatever exceeds the bounds are refused with GW_ERR_CONFIG, with line and
 * column unless `positions` is false (text that is part of a command line). When duplicate keys are
 * the only fault, *out is set all the same, so that the caller can report what else is wrong. Text
 * need not be NUL-terminated. */
GW_WARN_UNUSED gw_status gw_yaml_parse(gw_arena *a, const char *name, const char *text, int64_t len,
                                       bool positions, gw_yaml_node **out, gw_diags *dg);

/* What a plain scalar is under the core schema of YAML 1.2 (section 10.3.2): there yes, no, on, off
 * are strings, 010 is ten, 0o10 is eight. */
typedef enum gw_yaml_type {
    GW_YAML_NULL,
    GW_YAML_BOOL,
    GW_YAML_INT,
    GW_YAML_REAL,
    GW_YAML_TEXT,
} gw_yaml_type;
gw_yaml_type gw_yaml_scalar_type(const gw_yaml_node *n);
/* The value of an INT scalar; false beyond int64. */
bool gw_yaml_int(const char *text, int64_t *out);
/* The value of an INT or REAL scalar; .inf and .nan give such values. */
double gw_yaml_real(const char *text);
/* The value of a BOOL scalar. */
bool gw_yaml_bool(const char *text);

#endif
