// SPDX-License-Identifier: Apache-2.0
// Letters over channels: one up from each rank to rank 0, one down to each.
//
// Every rank but the first has a box of two places for its records, the first one for each answer;
// they lie in a shared region of their own. With n ranks rank 0 takes n - 1 small messages a step,
// which is some microseconds each: nothing beside a step.
#include "train/mail.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"   /* gw_mem_zalloc */
#include "comm/channel.h" /* gw_channels_open */
#include "run/memory.h"   /* gw_region_reserve */

enum { PLACES = 2 };

struct gw_mail {
    gw_comm *c;
    gw_channels *open;
    gw_channel_spec *specs; /* of rank 0: up then down, of each other rank; of another: both */
    int n;
    gw_region boxes;
    int handle;
    int64_t up;
    char *own; /* rank 0's record */
};

static int64_t box_bytes(const gw_mail *m) {
    int64_t bytes = 0;
    for (int i = 0; i < m->n; i++)
        if (m->specs[i].sends) bytes += gw_channel_box_bytes(m->specs[i].bytes, m->specs[i].places);
    return bytes;
}

static void write_specs(gw_mail *m, int64_t up, int64_t down) {
    bool first = gw_comm_rank(m->c) == 0;
    int others = gw_comm_size(m->c) - 1, count = first ? others : 1;
    m->specs = gw_mem_zalloc(sizeof *m->specs * 2 * ((size_t)count + 1));
    for (int i = 0; i < count; i++) {
        int peer = first ? i + 1 : 0;
        m->specs[m->n++] = (gw_channel_spec){.tag = 0,
                                             .peer = peer,
                                             .sends = !first,
                                             .bytes = up,
                                             .places = PLACES,
                                             .what = "a step's results"};
        m->specs[m->n++] = (gw_channel_spec){.tag = 1,
                                             .peer = peer,
                                             .sends = first,
                                             .bytes = down,
                                             .places = PLACES,
                                             .what = "the verdict on a step"};
    }
}

static void place_boxes(gw_mail *m) {
    char *at = m->boxes.data;
    for (int i = 0; i < m->n; i++) {
        if (!m->specs[i].sends) continue;
        m->specs[i].box = at;
        at += gw_channel_box_bytes(m->specs[i].bytes, m->specs[i].places);
    }
}

static gw_status open_mail(gw_mail *m, gw_diags *dg) {
    GW_TRY(gw_region_reserve(&m->boxes, box_bytes(m), "boxes of letters", dg));
    GW_TRY(gw_comm_share(m->c, m->boxes.data, m->boxes.bytes, m->boxes.fd, &m->handle, dg));
    place_boxes(m);
    return gw_channels_open(&m->open, m->c, m->specs, m->n, dg);
}

gw_status gw_mail_open(gw_mail **out, gw_comm *c, int64_t up, int64_t down, gw_diags *dg) {
    gw_mail *m = gw_mem_zalloc(sizeof *m);
    *m = (gw_mail){.c = c, .up = up, .handle = -1, .boxes = {.fd = -1}};
    m->own = gw_mem_zalloc((size_t)up);
    write_specs(m, up, down);
    *out = NULL;
    gw_status st = open_mail(m, dg);
    if (st == GW_OK)
        *out = m;
    else
        gw_mail_close(m);
    return st;
}

void gw_mail_close(gw_mail *m) {
    if (!m) return;
    gw_channels_close(m->open);
    if (m->handle >= 0) gw_comm_unshare(m->c, m->handle);
    gw_region_release(&m->boxes);
    gw_mem_free(m->specs);
    gw_mem_free(m->own);
    gw_mem_free(m);
}

gw_status gw_mail_send(gw_mail *m, const void *record, const char *scope, gw_diags *dg) {
    if (gw_comm_rank(m->c) > 0) return gw_channel_send(m->open, 0, record, scope, dg);
    memcpy(m->own, record, (size_t)m->up);
    return GW_OK;
}

gw_status gw_mail_collect(gw_mail *m, void *all, const char *scope, gw_diags *dg) {
    char *at = all;
    memcpy(at, m->own, (size_t)m->up);
    for (int i = 0; i < m->n; i += 2)
        GW_TRY(gw_channel_recv(m->open, i, at + m->specs[i].peer * m->up, scope, dg));
    return GW_OK;
}

gw_status gw_mail_answer(gw_mail *m, void *answer, const char *scope, gw_diags *dg) {
    if (gw_comm_rank(m->c) > 0) return gw_channel_recv(m->open, 1, answer, scope, dg);
    for (int i = 1; i < m->n; i += 2) GW_TRY(gw_channel_send(m->open, i, answer, scope, dg));
    return GW_OK;
}
