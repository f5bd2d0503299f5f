// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the field, explained: topics of lines, each a formula with its inputs, its
// figure, and, where a program compiles, the same figure read from that program.
//
//     gw_explain e;
//     GW_TRY(gw_explain_init(&e, gw_explain_topic_find("zero"), NULL, compiler, dg));
//     GW_TRY(gw_explain_set(&e, "n=64", dg));
//     GW_TRY(gw_explain_run(&e, dg));
//     gw_explain_print(&e, stdout);
//     gw_explain_release(&e);
#ifndef GW_PLAN_EXPLAIN_H
#define GW_PLAN_EXPLAIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_COUNT */
#include "base/diag.h"     /* gw_status, gw_diags */
#include "model/model.h"   /* gw_model */
#include "plan/block.h"    /* gw_block, gw_block_layout */
#include "plan/ledger.h"   /* gw_ledger */

/* A number that the user may give as NAME=VALUE. */
typedef struct gw_explain_input {
    const char *name, *unit, *doc;
    double value;     /* the default */
    const char *from; /* where the default comes from; NULL: an example */
    bool whole;       /* fractions are refused */
    bool zero;        /* 0 is allowed; what is negative never is */
} gw_explain_input;

/* What is read from a program, and from which. Bytes of blocks are a micro-batch's of one
 * sequence. */
typedef enum gw_explain_read {
    GW_READ_NONE,
    GW_READ_PARAMS,      /* parameters of the model */
    GW_READ_STATIC,      /* bytes of weights, gradients and optimizer states on a rank */
    GW_READ_STATIC_EACH, /* the same a parameter */
    GW_READ_WEIGHTS,     /* of these the weights */
    GW_READ_WIRE_DP,     /* bytes that a rank sends over dp a step, but for the loss and norm */
    GW_READ_N6,          /* FLOPs a token by convention 6N, */
    GW_READ_N6_CAUSAL,   /* 6N + 6Lhs, */
    GW_READ_N6_FULL,     /* 6N + 12Lhs */
    GW_READ_TP_TOKEN,    /* a block's bytes over tp = t, plain, times L, a token */
    GW_READ_SP_TOKEN,    /* the same with sequence parallelism */
    GW_READ_FFN_COLUMNS, /* n of the gate or up product at tp = t */
    GW_READ_FFN_ROWS,    /* k of the down product at tp = t */
    GW_READ_KV_HEADS,    /* kv heads that a rank projects at tp = t */
    GW_READ_SAVED,       /* bytes a block keeps for backward at tp = t, sequence parallel */
    GW_READ_CP_FORWARD,  /* bytes a block sends around a ring of cp = C, forward */
    GW_READ_EP,          /* bytes a layer sends over ep = R in a step, rows of experts */
    GW_READ_RECOMPUTE,   /* FLOPs of a block with recompute.policy full / without */
    GW_READ_ATTENTION,   /* FLOPs of a block's attention / of the block's other work */
    GW_READ_BUBBLE,      /* idle / computing time by the schedule's clock: p, m, v */
    GW_READ_BUBBLE_STEP, /* idle share of the step */
    GW_READ_HELD_FIRST,  /* micro-batches that the first rank of 1f1b holds */
    GW_READ_HELD_LAST,   /* that the last one holds */
    GW_READ_HELD_GPIPE,  /* that the first rank of gpipe holds */
} gw_explain_read;

typedef struct gw_explain_line {
    const char *key;     /* its name in later formulas and in JSON */
    const char *what;    /* in words */
    const char *formula; /* of inputs and earlier keys (explain_expr.c) */
    const char *unit;
    const char *source;  /* paper, data sheet, NULL: arithmetic */
    const char *assumes; /* what the figure hangs on, or NULL */
    gw_explain_read read;
    const char *sets;    /* the program's run: "layout.dp={n} layout.zero=3" */
    double within;       /* relative difference that is agreement; 0: none */
    const char *differs; /* why it is not exact, where within is not 0 */
} gw_explain_line;

typedef struct gw_explain_topic {
    const char *name, *doc;
    const char *model; /* the preset it is about unless another is named; NULL: none */
    const gw_explain_input *inputs;
    int ninputs;
    const gw_explain_line *lines;
    int nlines;
    const char *const *claims; /* usual claims and what they hang on; NULL ends */
} gw_explain_topic;

/* Defines topic `id` of the tables id_inputs, id_lines and id_claims. */
#define GW_EXPLAIN_DEFINE(id, title, text, preset)                                                 \
    extern const gw_explain_topic gw_explain_##id;                                                 \
    const gw_explain_topic gw_explain_##id = {.name = title,                                       \
                                              .doc = text,                                         \
                                              .model = preset,                                     \
                                              .inputs = id##_inputs,                               \
                                              .ninputs = (int)GW_COUNT(id##_inputs),               \
                                              .lines = id##_lines,                                 \
                                              .nlines = (int)GW_COUNT(id##_lines),                 \
                                              .claims = id##_claims}

/* NULL past the end; NULL for an unknown name. */
const gw_explain_topic *gw_explain_topic_at(int i);
const gw_explain_topic *gw_explain_topic_find(const char *name);

/* Compiles: the house has that above. `sets` are "KEY=VALUE KEY=VALUE" over the run assumed of
 * `preset`; NULL pointers: nothing is read from programs. */
typedef struct gw_explain_compiler {
    void *user;
    gw_status (*ledger)(void *user, const char *preset, const char *sets, gw_ledger *out,
                        gw_diags *dg);
    gw_status (*block)(void *user, const char *preset, const char *sets, const gw_block_layout *l,
                       gw_block *out, gw_diags *dg);
} gw_explain_compiler;

typedef struct gw_explain_variable {
    const char *name, *unit, *doc, *from;
    double value;
    bool whole, zero;
    bool of_model, stated, used;
} gw_explain_variable;

typedef struct gw_explain_result {
    const gw_explain_line *line;
    const char *substituted;
    double value;
    bool compiled; /* `program` is a figure */
    double program;
    const char *from;    /* "gradwright plan llama3-70b --set ..." or the schedule */
    const char *missing; /* why there is none, where a line reads one */
    bool agrees;
} gw_explain_result;

enum { GW_EXPLAIN_VARIABLES = 96, GW_EXPLAIN_LINES = 48 };

typedef struct gw_explain {
    const gw_explain_topic *topic;
    const char *preset; /* NULL: none */
    gw_model model;
    gw_explain_compiler compiler;
    gw_explain_variable variables[GW_EXPLAIN_VARIABLES]; /* inputs, of the model, then lines */
    int nvariables;
    gw_explain_result results[GW_EXPLAIN_LINES];
    int nresults;
    const char *detached; /* a stated figure that no program has, or NULL */
    gw_arena mem;
} gw_explain;

/* `preset` NULL: the topic's. An unknown one is GW_ERR_CONFIG (id "model-preset"); one for a topic
 * about no model GW_ERR_USAGE (id "explain-input"). Not to be released after a failure. */
GW_WARN_UNUSED gw_status gw_explain_init(gw_explain *e, const gw_explain_topic *t,
                                         const char *preset, gw_explain_compiler c, gw_diags *dg);
void gw_explain_release(gw_explain *e);
/* "NAME=VALUE": a number with an optional k M G T P (powers of 1000) and unit, or "%". Layers L, kv
 * heads kv and vocabulary V change the model and all that follows from it. Unknown names and
 * values out of range are GW_ERR_USAGE (id "explain-input"), with the names there are. */
GW_WARN_UNUSED gw_status gw_explain_set(gw_explain *e, const char *text, gw_diags *dg);
/* Figures of all lines, and those of programs. GW_ERR_NUMERIC (id "explain-differs") if one of a
 * program is another; all lines are filled in nevertheless. */
GW_WARN_UNUSED gw_status gw_explain_run(gw_explain *e, gw_diags *dg);
/* Another default of an input, and where it comes from (both outlive e); unknown names are passed
 * over, and what is stated afterwards stands. */
void gw_explain_default(gw_explain *e, const char *name, double value, const char *from);
const gw_explain_result *gw_explain_result_find(const gw_explain *e, const char *key);

void gw_explain_print(const gw_explain *e, FILE *out);
json_t *gw_explain_json(const gw_explain *e); /* a new reference */
/* "141.11 GB = 141,107,412,992 B", "15.2 %": buf holds 96 bytes. Returns buf. */
char *gw_explain_format(char *buf, double value, const char *unit);

/* ---- expressions (explain_expr.c) ---- */
/* Value of a formula; names are looked up among the variables, which become `used`. NAN: a name or
 * a sign that is not understood, or a result that is no number. */
double gw_explain_eval(gw_explain *e, const char *formula);
/* The formula with numbers for names, in e->mem. */
const char *gw_explain_substitute(gw_explain *e, const char *formula);
gw_explain_variable *gw_explain_variable_find(gw_explain *e, const char *name, size_t n);

/* ---- programs (explain_program.c) ---- */
void gw_explain_read_program(gw_explain *e, gw_explain_result *r);

#endif
