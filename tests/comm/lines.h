// SPDX-License-Identifier: Apache-2.0
// Channels for tests: the specs of one rank, boxes in a region of its own size, and messages whose
// bytes can be foretold.
#ifndef GW_TESTS_COMM_LINES_H
#define GW_TESTS_COMM_LINES_H

#include <stdint.h>

#include "comm/channel.h" /* gw_channels */
#include "rig.h"          /* rig_memory */

enum { LINES_MOST = 64 };

typedef struct lines {
    gw_comm *c;
    gw_channel_spec specs[LINES_MOST];
    int n;
    rig_memory boxes;
    gw_channels *ch;
} lines;

/* Adds a channel if this rank is one of its sides: its number, or -1. */
int lines_add(lines *l, int from, int to, int tag, int64_t bytes, int places, const char *what);
/* Shares the boxes and opens; a rank that sends nothing shares no bytes. */
gw_status lines_open(lines *l, gw_diags *dg);
gw_status lines_close(lines *l, gw_diags *dg);
/* Message k of channel i, which both sides call `id`. buf: a byte more than the message. */
gw_status lines_send(lines *l, int i, int id, int k, uint8_t *buf, gw_diags *dg);
gw_status lines_recv(lines *l, int i, int id, int k, uint8_t *buf, gw_diags *dg);

#endif
