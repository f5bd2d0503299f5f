// SPDX-License-Identifier: Apache-2.0
// Generating text: a prompt goes through a prefill program in chunks, then one token at a time
// through a decode program. Both share the parameters and one KV cache.
#ifndef GW_TRAIN_GENERATE_H
#define GW_TRAIN_GENERATE_H

#include "run/exec.h"    /* gw_exec */
#include "train/setup.h" /* gw_setup */

typedef struct gw_sampling {
    double temperature; /* 0 = the most likely token */
    int64_t top_k;      /* 0 = all */
    double top_p;       /* 1 = all */
    uint64_t seed;
} gw_sampling;

typedef struct gw_generator gw_generator;

/* `params` holds the parameters (gw_session_open_params). `context`: tokens the cache holds, prompt
 * included. GW_ERR_CONFIG when the model has fewer learned positions; GW_ERR_MEMORY when it does
 * not fit. */
GW_WARN_UNUSED gw_status gw_generator_open(gw_generator **out, const gw_setup *s, gw_exec *params,
                                           int64_t context, gw_diags *dg);
void gw_generator_free(gw_generator *g);

/* Appends tokens to the sequence (the prompt, or a chosen token). GW_ERR_CONFIG when the context is
 * full. An id outside the vocabulary is refused. */
GW_WARN_UNUSED gw_status gw_generator_feed(gw_generator *g, const int32_t *ids, int64_t n,
                                           gw_diags *dg);
/* Logits after the last token fed: vocab floats, valid until the next feed. NULL before the first.
 */
const float *gw_generator_logits(const gw_generator *g);
int64_t gw_generator_room(const gw_generator *g);     /* tokens that still fit */
int64_t gw_generator_position(const gw_generator *g); /* tokens fed */
/* Forgets the sequence; the next feed begins a new one. */
void gw_generator_reset(gw_generator *g);

/* A token id drawn from logits: a pure function of (logits, sampling, position). `scratch` holds
 * vocab entries of 8 bytes. */
int32_t gw_sampling_draw(const float *logits, int64_t vocab, const gw_sampling *s, int64_t position,
                         void *scratch);

#endif
