// SPDX-License-Identifier: Apache-2.0
// What the probe's files share: the program that computes logits on fixed tokens, and their digest.
#ifndef GW_TRAIN_SESSION_PROBE_H
#define GW_TRAIN_SESSION_PROBE_H

#include "train/session.h" /* gw_session, gw_ckpt_probe */

struct gw_session_probe {
    gw_exec *x; /* NULL: no logits */
    gw_ranks_table results;
    const gw_ranks_entry *logits;
    gw_slices slices;
    int64_t seq;
    int32_t *tokens, *labels, *positions, *docs; /* [seq] */
    int64_t id;
    double *columns; /* [local v]: sums over tokens */
    char bits[33];
};

/* Makes the program in the training temporaries, for sequences of as many tokens as they have room
 * for; where that is none there are no logits, and it is said. All ranks call it. */
GW_WARN_UNUSED gw_status gw_probe_logits_open(gw_session *s, gw_diags *dg);
void gw_probe_logits_close(gw_session *s);
/* Sets sums, spread, bits, tokens and half. All ranks call it. */
GW_WARN_UNUSED gw_status gw_probe_logits_take(gw_session *s, gw_ckpt_probe *out, gw_diags *dg);

#endif
