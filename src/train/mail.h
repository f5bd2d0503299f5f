// SPDX-License-Identifier: Apache-2.0
// Letters: small records from all ranks to rank 0, and its answer to all, without waiting.
//
// A collective makes its ranks wait for each other. A letter is sent when its rank is done and read
// when its reader comes by, so ranks that run one behind the other stay so. The reading waits only
// for what was not sent yet.
#ifndef GW_TRAIN_MAIL_H
#define GW_TRAIN_MAIL_H

#include <stdint.h>

#include "comm/comm.h" /* gw_comm */

typedef struct gw_mail gw_mail;

/* All ranks, at the same point; records of `up` bytes, answers of `down`. */
GW_WARN_UNUSED gw_status gw_mail_open(gw_mail **out, gw_comm *c, int64_t up, int64_t down,
                                      gw_diags *dg);
/* All ranks, at the same point, when every letter was read; NULL: nothing. */
void gw_mail_close(gw_mail *m);

/* This rank's record to rank 0; `scope` for people. At most two may be unread. */
GW_WARN_UNUSED gw_status gw_mail_send(gw_mail *m, const void *record, const char *scope,
                                      gw_diags *dg);
/* On rank 0: the next record of each, [ranks][up]. */
GW_WARN_UNUSED gw_status gw_mail_collect(gw_mail *m, void *all, const char *scope, gw_diags *dg);
/* Rank 0 gives its answer; the others get it in the same place. */
GW_WARN_UNUSED gw_status gw_mail_answer(gw_mail *m, void *answer, const char *scope, gw_diags *dg);

#endif
