// SPDX-License-Identifier: Apache-2.0
// What a run takes of data: tokens, where they come from, cores that make them, loaders that bring
// them, bytes that are kept.
//
// Speeds are measured ones: those that `gradwright calibrate` found on the machine that is asked
// about, or stated ones with whose they are. How many bytes a token has behind it hangs on the
// texts and is stated too.
#ifndef GW_PLAN_DATAPLAN_H
#define GW_PLAN_DATAPLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Of one core, by its CPU time. The defaults below are macros so that tables of constants
 * (explain_fleet.c) have them. The tokenizer's is the least of bench/tokenize on English prose with
 * GPT-2's vocabulary (237 to 252 MB/s; code 208), the pipeline's is bench/data's, the loader's
 * bench/loader's from local shards. */
#define GW_DATA_TOKENIZE_RATE 237e6 /* bytes of text a second */
#define GW_DATA_PIPELINE_RATE 31e6  /* bytes of HTML a second, WARC.gz to tokens, all stages */
#define GW_DATA_LOADER_RATE   167e6 /* tokens a second */
#define GW_DATA_RATES_SOURCE  "measured on AMD EPYC"
#define GW_DATA_TEXT_BYTES    4.0   /* of text, behind a token: English, vocabularies of 100 k */
#define GW_DATA_RAW_BYTES     200.0 /* of HTML: 3 PB for 15 T tokens */

typedef struct gw_data_rates {
    double tokenize_bytes_per_s; /* 0: none of them is measured */
    double pipeline_bytes_per_s;
    double loader_tokens_per_s;
    const char *source; /* whose they are */
} gw_data_rates;
gw_data_rates gw_data_rates_default(void);

typedef struct gw_dataplan_input {
    double tokens_per_step, steps;             /* of all ranks; of the run */
    double vocab;                              /* ids are two bytes below 65,500, otherwise four */
    double step_s;                             /* 0: not known */
    double checkpoint_bytes, checkpoint_every; /* bytes of one; steps, 0: at the end alone */
    double checkpoint_kept;                    /* 0: all */
    double storage_read;                       /* bytes/s of a node; 0: not stated */
    gw_data_rates rates;
} gw_dataplan_input;

enum { GW_DATAPLAN_DAYS = 14, GW_DATAPLAN_SHARD = 64000000 };

typedef struct gw_dataplan {
    gw_dataplan_input in;
    double tokens; /* that the run reads */
    int token_bytes;
    double shard_bytes, text_bytes, raw_bytes;
    double files;                              /* shards of 64 MB */
    double tokenize_core_days, tokenize_cores; /* cores: that finish in two weeks */
    double pipeline_core_days, pipeline_cores;
    /* with a step's time; otherwise 0 */
    double run_days;
    double tokens_per_s, read_bytes_per_s; /* that training takes */
    double loader_cores;                   /* that bring them */
    double checkpoints_per_day, checkpoint_bytes_per_day;
    double checkpoints, kept_bytes; /* of the run; on the disk at its end */
} gw_dataplan;

gw_dataplan gw_dataplan_of(const gw_dataplan_input *in);
/* The section for people. */
void gw_dataplan_print(const gw_dataplan *p, FILE *out);
/* {"tokens", "token_bytes", ...} of docs/plan.md; a new reference. What is not known is null. */
json_t *gw_dataplan_json(const gw_dataplan *p);

#endif
