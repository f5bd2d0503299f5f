// SPDX-License-Identifier: Apache-2.0
// An op's own test cases: small graphs that every kernel of the op is checked on.
//
// An op's `cases` hook calls gw_case_begin for each case, adds leaves (gw_case_value, gw_case_fixed
// ...) and builds the op. The suite then runs each case (a) in float64 with reference kernels,
// gradients against central differences; (b) in f32 and bf16 on each backend kernel that supports
// it, against the reference.
#ifndef GW_OPS_CASES_H
#define GW_OPS_CASES_H

#include "ir/opdef.h" /* gw_builder, gw_graph */

typedef enum gw_case_fill {
    GW_FILL_NORMAL,   /* standard normal times a */
    GW_FILL_UNIFORM,  /* uniform in [a, b) */
    GW_FILL_INTS,     /* whole numbers uniform in [a, b) */
    GW_FILL_IOTA,     /* a, a+1, ... along the last dim, restarting each row */
    GW_FILL_SEGMENTS, /* nondecreasing document ids along the last dim, about b tokens each */
    GW_FILL_CONST,    /* a */
    GW_FILL_LABELS,   /* ints in [0, b), about a fifth of them -100 */
} gw_case_fill;

typedef struct gw_case_leaf {
    gw_vid v;
    gw_case_fill fill;
    double a, b;
    bool fixed; /* never differentiated */
} gw_case_leaf;

typedef struct gw_case {
    char name[64]; /* "op: case" */
    const struct gw_opdef
        *def;       /* the op under test: the last one of g; those before it prepare its inputs */
    gw_graph g;     /* leaves and the op(s); mb rate */
    gw_builder b;   /* builds into g */
    gw_dtype dtype; /* of the float leaves: f64 for differences, f32 or bf16 for kernels */
    int nleaves;
    gw_case_leaf leaves[16];
    bool differentiate; /* preset true unless the op is NODIFF */
} gw_case;

typedef struct gw_cases {
    GW_VEC(gw_case *) items;
    gw_dtype dtype;             /* what the suite asks for */
    const struct gw_opdef *def; /* whose cases are being added */
    const gw_optable *table;
    gw_diags *dg;
} gw_cases;

/* Starts a case; the returned pointer is valid until the suite releases it. */
gw_case *gw_case_begin(gw_cases *cs, const char *name);
/* A float leaf of the suite's dtype: role param when `param`, else input. dims as in gw_type_make.
 */
gw_vid gw_case_value(gw_case *c, const char *dims, bool param, gw_case_fill fill, double a,
                     double b);
/* A leaf of a fixed dtype (ids, labels, positions, f32 scalars). Never differentiated. */
gw_vid gw_case_fixed(gw_case *c, gw_dtype t, const char *dims, gw_case_fill fill, double a,
                     double b);

/* All cases of one op, or of the whole table (def NULL), in a dtype. */
void gw_cases_init(gw_cases *cs, const gw_optable *t, const gw_opdef *def, gw_dtype dtype,
                   gw_diags *dg);
void gw_cases_release(gw_cases *cs);

/* Writes the values of leaf i of a case into data (dense, of the leaf's dtype). They depend on the
 * case's name and on i only, so that every dtype and every run sees the same numbers, up to their
 * rounding. */
void gw_case_fill_leaf(const gw_case *c, int i, void *data);

#endif
