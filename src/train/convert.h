// SPDX-License-Identifier: Apache-2.0
// Run files made of other trainers' configurations.
//
// Every key of the input has one of three fates, with the reason: it is *mapped* onto a key of the
// run file, *implied* (nothing is written because nothing need be said), or *refused* (what it asks
// for is not in the run file, and what to do instead). A key that no rule knows is refused by name.
// A value of a wrong type, and values that contradict one another, are errors: no run file is made.
#ifndef GW_TRAIN_CONVERT_H
#define GW_TRAIN_CONVERT_H

#include <jansson.h> /* json_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */

typedef enum gw_cv_type {
    GW_CV_NULL,
    GW_CV_BOOL,
    GW_CV_INT,
    GW_CV_REAL,
    GW_CV_TEXT, /* in shells and argument lists every value is one */
    GW_CV_LIST, /* of scalars */
} gw_cv_type;

typedef enum gw_cv_fate { GW_CV_OPEN, GW_CV_MAPPED, GW_CV_IMPLIED, GW_CV_REFUSED } gw_cv_fate;

/* One key of the input. */
typedef struct gw_cv_key {
    const char *name;  /* as the file spells it, sections before it: "training.seq_len", "--bf16" */
    const char *canon; /* as the rules spell it: renamed keys by their present name */
    gw_cv_type type;
    const char *text;         /* as printed; of a scalar its text */
    const char *const *items; /* of a list, and of a flag the words that follow it */
    int nitems;
    int line, column; /* 0: not in the file, the trainer's own default, which no key here can say */
    const char *open; /* why the value is not known ("depends on $1"), or NULL */
    bool under;       /* stands under a condition of a shell script */
    gw_cv_fate fate;  /* never OPEN in a finished conversion */
    const char *ours; /* mapped: the keys here, "train.steps" */
    const char *wrote;   /* mapped: their values, as the run file has them */
    const char *why;     /* implied, refused: the reason; mapped: a remark or NULL */
    const char *instead; /* refused: what to do; or NULL */
} gw_cv_key;

/* A value of the run file that no key of the input says: a default of the other trainer that
 * differs from ours, or a sum. */
typedef struct gw_cv_extra {
    const char *ours, *wrote, *why;
} gw_cv_extra;

typedef struct gw_conversion {
    const char *format, *name;
    gw_cv_key *keys; /* by line, then column */
    int nkeys;
    gw_cv_extra *extras; /* in the order of the run file */
    int nextras;
    int mapped, implied, refused; /* counts of keys */
    const char *batch;            /* the batch's arithmetic as one line */
    const char *left; /* "train.steps 1000, ...": what neither the file nor --set says, at
                         the run file's own defaults; "" if there is none */
    const char *yaml; /* the run file, commented */
} gw_conversion;

typedef struct gw_cv_request {
    const char *format; /* one of gw_convert_formats */
    const char *name;   /* of the file, for messages */
    const char *text;
    int64_t len;
    const char *model; /* a preset, a Hugging Face directory or a .gguf file, in place of what the
                          file says of the model; or NULL */
    int64_t world;     /* ranks in all, if known; otherwise 0 */
    const char *const *sets; /* KEY=VALUE of our keys: they win over what the file says */
    int nsets;
} gw_cv_request;

/* How every run file that a conversion makes begins. */
#define GW_CONVERTED_MARK "# Converted from a configuration of "

/* The formats' names in order, and one line on each; NULL past the end. */
const char *gw_convert_format(int i, const char **doc);

/* Reads the text, decides every key, and makes a run file that gw_runfile_parse accepts. Everything
 * handed out lives in `a`. Errors: GW_ERR_USAGE for an unknown format, GW_ERR_FORMAT for text that
 * is not of the format, GW_ERR_CONFIG for wrong types, contradictions, a model that nothing names,
 * and sizes that the run file's own checks refuse; all at once. */
GW_WARN_UNUSED gw_status gw_convert_config(const gw_cv_request *r, gw_arena *a, gw_conversion *out,
                                           gw_diags *dg);

/* Is this spelling of a key (as gw_cv_key.canon) decided by a rule of the format? */
bool gw_convert_knows(const char *format, const char *canon);

/* The whole conversion as one object; a new reference. */
json_t *gw_conversion_json(const gw_conversion *c);
/* "mapped", "implied", "refused". */
const char *gw_cv_fate_name(gw_cv_fate fate);

#endif
