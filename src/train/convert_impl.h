// SPDX-License-Identifier: Apache-2.0
// What the converter's files share: rules, the conversion under way, and the verbs that decide.
//
// A format is a reader, a table of rules and a function. The reader turns text into keys. The table
// says of each key what becomes of it: TO another key as it stands, IS implied, NO (refused, but
// for the values that ask for nothing), or DO: the format's `settle` decides it, together with
// others.
#ifndef GW_TRAIN_CONVERT_IMPL_H
#define GW_TRAIN_CONVERT_IMPL_H

#include "base/compiler.h"     /* GW_PRINTF */
#include "base/map.h"          /* GW_VEC */
#include "model/model.h"       /* gw_model */
#include "train/convert.h"     /* gw_cv_key */
#include "train/runfile_key.h" /* gw_rf_keys */

typedef enum gw_cv_does { GW_CV_TO, GW_CV_DO, GW_CV_IS, GW_CV_NO } gw_cv_does;

typedef struct gw_cv_rule {
    const char *key; /* one name, or many with blanks between; of NO with '*' */
    gw_cv_does does;
    const char *ours; /* TO: the key here */
    const char *text; /* TO: their default where ours differs, or NULL; IS: why; NO: values that ask
                         for nothing, separated by '|', or NULL; DO: NULL, or "flag" in argument
                         lists for one that takes no value */
    const char *why, *instead; /* NO */
} gw_cv_rule;

/* Rows of the tables. */
#define TO(key, ours, fallback)                                                                    \
    { key, GW_CV_TO, ours, fallback, NULL, NULL }
#define DO(key)                                                                                    \
    { key, GW_CV_DO, NULL, NULL, NULL, NULL }
#define IS(key, why)                                                                               \
    { key, GW_CV_IS, NULL, why, NULL, NULL }
#define NO(key, neutral, why, instead)                                                             \
    { key, GW_CV_NO, NULL, neutral, why, instead }

/* An older spelling. A name ending in '*' renames whatever begins like it. */
typedef struct gw_cv_rename {
    const char *old, *now;
} gw_cv_rename;

typedef struct gw_cv gw_cv;

typedef struct gw_cv_format {
    const char *name, *doc;
    const gw_cv_rule *rules;
    int nrules;
    const gw_cv_rename *renames; /* ends with {NULL, NULL} */
    const gw_cv_rename *says;    /* {key there, key here} where no TO says it; ends likewise */
    bool words;                  /* values are words: "1" is a number, a flag alone is true */
    gw_status (*read)(gw_cv *c);
    void (*settle)(gw_cv *c);
} gw_cv_format;

extern const gw_cv_format gw_cv_torchtitan, gw_cv_megatron, gw_cv_deepspeed, gw_cv_accelerate;

/* A value that goes into the run file. */
typedef struct gw_cv_value {
    const char *text;    /* as YAML; NULL: nothing is written */
    const gw_cv_key *of; /* the key that says so, or NULL */
    const char *why;     /* otherwise why it is written */
    bool set;            /* by --set: nothing changes it */
} gw_cv_value;

struct gw_cv {
    const gw_cv_format *format;
    const gw_cv_request *request;
    gw_arena *a;
    gw_diags *dg;
    int errors;
    GW_VEC(gw_cv_key *) keys;
    gw_cv_value *values; /* one for each key of the run file */
    bool model_given;    /* by --model or --set */
};

/* ---- readers (convert_read.c, convert_shell.c) */
gw_cv_key *gw_cv_add(gw_cv *c, const char *name, gw_cv_type type, const char *text, int line,
                     int column);
gw_status gw_cv_read_toml(gw_cv *c);
gw_status gw_cv_read_json(gw_cv *c);
gw_status gw_cv_read_yaml(gw_cv *c);
gw_status gw_cv_read_shell(gw_cv *c);

/* ---- asking */
/* The key of this canonical name if it is there, is not null and is not decided yet. */
gw_cv_key *gw_cv_get(const gw_cv *c, const char *canon);
/* Is it in the file, decided or not, and not null? */
bool gw_cv_known(const gw_cv *c, const char *canon);
/* No count in a configuration is larger: products of two constants and one fit in 64 bits. */
#define GW_CV_MOST ((int64_t)1 << 40)

/* The value, or `fallback` where the key is absent. A wrong type is an error at the key's place, is
 * marked as refused, and gives the fallback. "auto" and values that are open are refused likewise.
 * Asking marks nothing else: the caller decides the key's fate. */
int64_t gw_cv_int(gw_cv *c, const char *canon, int64_t fallback);
double gw_cv_real(gw_cv *c, const char *canon, double fallback);
bool gw_cv_bool(gw_cv *c, const char *canon, bool fallback);
const char *gw_cv_text(gw_cv *c, const char *canon, const char *fallback);
/* The present value of one of our keys as text, or NULL; as an integer, or `fallback`. */
const char *gw_cv_ours(const gw_cv *c, const char *ours);
int64_t gw_cv_ours_int(const gw_cv *c, const char *ours, int64_t fallback);
/* Layers of the model, if they are known by now; otherwise 0. */
int64_t gw_cv_layers(const gw_cv *c);
/* The model's norms and activations as a value of recompute.ops; NULL if it has none of them. What
 * experts compute between their products is a part of their op. */
const char *gw_cv_cheap_ops(const gw_cv *c, bool norms, bool activations);
/* Is the key there, and left to the program that reads the file? Decided or not. */
bool gw_cv_is_auto(const gw_cv *c, const char *canon);

/* ---- deciding; all take the canonical name and do nothing where it is absent or decided */
void gw_cv_map(gw_cv *c, const char *canon, const char *ours, const char *fmt, ...) GW_PRINTF(4, 5);
void gw_cv_remark(gw_cv *c, const char *canon, const char *fmt, ...) GW_PRINTF(3, 4);
void gw_cv_imply(gw_cv *c, const char *canon, const char *fmt, ...) GW_PRINTF(3, 4);
void gw_cv_refuse(gw_cv *c, const char *canon, const char *instead, const char *fmt, ...)
    GW_PRINTF(4, 5);
/* An error: values that contradict one another, a value that means nothing. */
void gw_cv_conflict(gw_cv *c, const char *canon, const char *fmt, ...) GW_PRINTF(3, 4);
/* A value that no key says, and why; nothing where the key of ours has one. */
void gw_cv_put(gw_cv *c, const char *ours, const char *why, const char *fmt, ...) GW_PRINTF(4, 5);
/* A default of the other trainer that the run file cannot say. */
void gw_cv_refuse_default(gw_cv *c, const char *name, const char *text, const char *instead,
                          const char *fmt, ...) GW_PRINTF(5, 6);
/* What no key of the file says and the run file needs. */
void gw_cv_refuse_missing(gw_cv *c, const char *name, const char *text, const char *instead,
                          const char *why);
/* `text` in quotes, as YAML and JSON have them. */
const char *gw_cv_quote(gw_cv *c, const char *text);

/* A number as it stands, onto a key of ours. */
void gw_cv_map_int(gw_cv *c, const char *canon, const char *ours);
void gw_cv_map_real(gw_cv *c, const char *canon, const char *ours);
/* A flag that asks for what is so: implied, on or off; where it is not so, refused if it is on. */
void gw_cv_flag(gw_cv *c, const char *canon, bool is_so, const char *why);
/* Each of `names`, with blanks between them, that is not decided: implied for this reason. */
void gw_cv_imply_list(gw_cv *c, const char *names, const char *why);

/* a x b, or INT64_MAX where that is more. Of numbers of at least 0. */
int64_t gw_cv_times(int64_t a, int64_t b);

/* ---- beneath them */
gw_cv_value *gw_cv_value_of(const gw_cv *c, const char *ours);
void gw_cv_refuse_key(gw_cv_key *k, const char *why, const char *instead);
/* An error at the key's place, or at the file's. */
gw_diag *gw_cv_error_at(gw_cv *c, const gw_cv_key *k, const char *id, const char *what);
/* The key here that says the same, or NULL: for hints, and because --set of it wins. */
const char *gw_cv_says(const gw_cv *c, const char *canon);
/* Implied, with that reason, if --set says what the key says. */
bool gw_cv_is_set(gw_cv *c, gw_cv_key *k);
/* Its value is not known: implied where --set gives it, otherwise refused with the request for it.
 */
void gw_cv_refuse_open(gw_cv *c, gw_cv_key *k, const char *why, const char *instead);
/* Takes note that k says `ours`; nothing is changed where --set says it, or another key does. */
void gw_cv_map_key(gw_cv *c, gw_cv_key *k, const char *ours, const char *text);

/* The part of Megatron's flags that says the model. */
void gw_cv_megatron_model(gw_cv *c);
/* ... and the pipeline of `pp` ranks: schedule, stages, virtual stages. */
void gw_cv_megatron_pipeline(gw_cv *c, int64_t pp);

/* ---- the run file (convert_write.c) */
/* Does anything name the model? */
gw_status gw_cv_check_model(gw_cv *c);
/* Takes out what would not be read, sets out->yaml, batch and left, and parses it. */
gw_status gw_cv_check_file(gw_cv *c, gw_conversion *out);

/* ---- what several formats do */
/* What is known of a step's portions; 0: not known. A `key` is the canonical name of the key that
 * says so; NULL where it follows from something else, which `from` then says. */
typedef struct gw_cv_portion {
    int64_t n;
    const char *key, *from;
} gw_cv_portion;
typedef struct gw_cv_batch {
    gw_cv_portion micro, accumulate, global, dp;
} gw_cv_batch;
/* Writes train.micro_batch, train.accumulate, train.global_batch and layout.dp as far as they are
 * known or follow; what does not multiply is a conflict. */
void gw_cv_settle_batch(gw_cv *c, gw_cv_batch b);
/* A number of ranks, mapped onto `ours`; below 1 it is a conflict. Returns what `ours` says then,
 * or 1.
 */
int64_t gw_cv_degree(gw_cv *c, const char *canon, const char *ours);
/* dp = ranks / (pp x tp x cp), or 0 where ranks is 0; a remainder is a conflict at `canon`. */
int64_t gw_cv_dp_of(gw_cv *c, int64_t ranks, const char *canon);
/* none, cpu or nvme at `canon`, with its folder at `path`: what is offloaded, of states or of
 * parameters. `instead`: how the file says stage 3, without which parameters are not. */
void gw_cv_offload(gw_cv *c, const char *canon, const char *path, bool states, int64_t zero,
                   const char *instead);
/* Maps a key onto optimizer.min_lr_ratio as `value` / lr. */
void gw_cv_min_lr(gw_cv *c, const char *canon, double value, double lr);
/* Every key that `pattern` fits and that is not decided: implied for this reason. */
void gw_cv_imply_all(gw_cv *c, const char *pattern, const char *why);

#endif
