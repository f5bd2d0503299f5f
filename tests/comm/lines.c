// SPDX-License-Identifier: Apache-2.0
// Channels for tests (lines.h). The bytes of a message follow from its channel and number, so that
// one that comes out of order, twice or in part is seen.
#include "lines.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */

int lines_add(lines *l, int from, int to, int tag, int64_t bytes, int places, const char *what) {
    int me = gw_comm_rank(l->c);
    if (me != from && me != to) return -1;
    l->specs[l->n] = (gw_channel_spec){.tag = tag,
                                       .peer = me == from ? to : from,
                                       .sends = me == from,
                                       .bytes = bytes,
                                       .places = places,
                                       .what = what};
    return l->n++;
}

gw_status lines_open(lines *l, gw_diags *dg) {
    int64_t total = 0;
    for (int i = 0; i < l->n; i++)
        if (l->specs[i].sends) total += gw_channel_box_bytes(l->specs[i].bytes, l->specs[i].places);
    l->boxes = (rig_memory){.fd = -1, .handle = -1};
    if (total > 0)
        GW_TRY(rig_memory_share(l->c, total, &l->boxes, dg));
    else
        GW_TRY(gw_comm_share(l->c, NULL, 0, -1, &l->boxes.handle, dg));
    char *at = l->boxes.base;
    for (int i = 0; i < l->n; i++) {
        if (!l->specs[i].sends) continue;
        int64_t bytes = gw_channel_box_bytes(l->specs[i].bytes, l->specs[i].places);
        l->specs[i].box = bytes ? at : NULL;
        if (bytes) at += bytes;
    }
    return gw_channels_open(&l->ch, l->c, l->specs, l->n, dg);
}

gw_status lines_close(lines *l, gw_diags *dg) {
    GW_TRY(gw_comm_barrier(l->c, "all is taken", dg));
    gw_channels_close(l->ch);
    if (l->boxes.base)
        rig_memory_release(l->c, &l->boxes);
    else
        gw_comm_unshare(l->c, l->boxes.handle);
    return GW_OK;
}

/* Bytes of message k of channel `id`. */
static void fill(uint8_t *p, int64_t n, int id, int k) {
    uint32_t x = (uint32_t)(id * 7919 + k * 104729 + 1);
    for (int64_t i = 0; i < n; i++) {
        if (i % 61 == 0) x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)((x >> 16) + (uint32_t)i);
    }
}

gw_status lines_send(lines *l, int i, int id, int k, uint8_t *buf, gw_diags *dg) {
    char scope[40];
    snprintf(scope, sizeof scope, "micro-batch %d", k);
    fill(buf, l->specs[i].bytes, id, k);
    GW_TRY(gw_channel_send(l->ch, i, buf, scope, dg));
    if (l->specs[i].bytes) memset(buf, 0xaa, (size_t)l->specs[i].bytes); /* may be overwritten */
    return GW_OK;
}

gw_status lines_recv(lines *l, int i, int id, int k, uint8_t *buf, gw_diags *dg) {
    int64_t n = l->specs[i].bytes;
    uint8_t *want = gw_mem_alloc((size_t)n + 1);
    memset(buf, 0xee, (size_t)n + 1);
    gw_status st = gw_channel_recv(l->ch, i, buf, "micro-batch", dg);
    fill(want, n, id, k);
    bool same = memcmp(want, buf, (size_t)n) == 0 && buf[n] == 0xee;
    gw_mem_free(want);
    GW_TRY(st);
    RANK_CHECK(dg, same, "channel %d, message %d of %lld bytes", id, k, (long long)n);
    return GW_OK;
}
