// SPDX-License-Identifier: Apache-2.0
// The sums of a Megatron .bin, checked as its bytes are first used.
//
// `data build` writes PREFIX.bin.xxh3, a hash of each MiB. A MiB is hashed once a run, when the
// first byte of it is wanted, from the mapping out of which it is read anyway: at some 10 GB/s that
// is a small part of what filling rows from it takes. What is found stands in a byte for each MiB.
// Whole blocks are checked when they are taken in, documents when they are read out of order.
//
// Over the network a block is one range, whose ends lie within MiBs that it has not whole: those in
// between are checked, and the two at the ends are not.
//
// Other writers leave no sums, and then nothing is checked but ids.
#include "data/shards_sums.h" /* this module's contract */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"      /* gw_mem_alloc */
#include "base/io.h"         /* gw_map_open */
#include "data/build/sums.h" /* gw_sums_parse */

struct gw_shard_sums {
    char *path;
    gw_mapping map; /* of the .bin; over the network nothing */
    int64_t bytes, count;
    _Atomic int64_t bad; /* counted by the thread that reads; others ask */
    uint64_t *sums;
    uint8_t *state; /* [count] */
};

enum { UNKNOWN, GOOD, BAD };

static gw_status not_its_sums(const gw_shard_sums *s, const char *what, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-checksum",
                             (gw_where){.file = s->path}, "%s", what);
    gw_diag_hint(dg, g,
                 "if the tokens were written anew, remove %s" GW_SUMS_END
                 "; data.verify: false reads them unchecked",
                 s->path);
    return GW_ERR_FORMAT;
}

gw_status gw_shard_sums_open(const char *bin, const char *text, int64_t n, int64_t bytes,
                             gw_shard_sums **out, gw_diags *dg) {
    gw_shard_sums *s = gw_mem_zalloc(sizeof *s);
    int64_t room = n / 17 + 1;
    size_t len = strlen(bin) + 1;
    char what[160];
    *out = NULL;
    s->path = gw_mem_alloc(len);
    memcpy(s->path, bin, len);
    s->sums = gw_mem_alloc((size_t)room * sizeof *s->sums);
    gw_status st = GW_OK;
    if (!gw_sums_parse(text, n, &s->bytes, s->sums, room, &s->count))
        st = not_its_sums(s, "the file of checksums beside it is none", dg);
    if (st == GW_OK && s->bytes != bytes) {
        snprintf(what, sizeof what,
                 "the file has %" PRId64 " bytes, and the checksums beside it are of %" PRId64,
                 bytes, s->bytes);
        st = not_its_sums(s, what, dg);
    }
    s->state = gw_mem_zalloc((size_t)s->count + 1);
    if (st == GW_OK)
        *out = s;
    else
        gw_shard_sums_free(s);
    return st;
}

gw_status gw_shard_sums_open_near(const char *bin, gw_shard_sums **out, gw_diags *dg) {
    gw_arena a = {0};
    gw_str text = {0};
    gw_mapping m = {0};
    const char *path = gw_arena_printf(&a, "%s" GW_SUMS_END, bin);
    *out = NULL;
    gw_status st = GW_OK;
    if (gw_path_exists(path)) {
        st = gw_file_read(path, 0, &text, dg);
        if (st == GW_OK) st = gw_map_open(&m, bin, dg);
        if (st == GW_OK)
            st = gw_shard_sums_open(bin, gw_str_c(&text), (int64_t)text.len, m.bytes, out, dg);
        if (st == GW_OK)
            (*out)->map = m;
        else
            gw_map_release(&m);
    }
    gw_str_release(&text);
    gw_arena_release(&a);
    return st;
}

void gw_shard_sums_free(gw_shard_sums *s) {
    if (!s) return;
    gw_map_release(&s->map);
    gw_mem_free(s->path);
    gw_mem_free(s->sums);
    gw_mem_free(s->state);
    gw_mem_free(s);
}

int64_t gw_shard_sums_bad(const gw_shard_sums *s) { return s ? s->bad : 0; }
int64_t gw_shard_sums_bytes(const gw_shard_sums *s) { return s ? 9 * s->count : 0; }

/* MiB k, whose bytes are at p. */
static bool is_good(gw_shard_sums *s, int64_t k, const uint8_t *p) {
    if (s->state[k] == UNKNOWN) {
        int64_t n = GW_MIN(s->bytes - k * GW_SUMS_BLOCK, (int64_t)GW_SUMS_BLOCK);
        s->state[k] = gw_hash64(p, (size_t)n, 0) == s->sums[k] ? GOOD : BAD;
        s->bad += s->state[k] == BAD;
    }
    return s->state[k] == GOOD;
}

static gw_status damaged(const gw_shard_sums *s, int64_t k, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_FORMAT, "data-checksum", (gw_where){.file = s->path},
                      "the bytes from offset %" PRId64 " to %" PRId64
                      " are not those that were written",
                      k * GW_SUMS_BLOCK, GW_MIN(s->bytes, (k + 1) * GW_SUMS_BLOCK));
}

gw_status gw_shard_sums_check(gw_shard_sums *s, int64_t from, int64_t to, gw_diags *dg) {
    if (!s || from >= to) return GW_OK;
    for (int64_t k = from / GW_SUMS_BLOCK; k <= (to - 1) / GW_SUMS_BLOCK; k++)
        if (!is_good(s, k, s->map.data + k * GW_SUMS_BLOCK)) return damaged(s, k, dg);
    return GW_OK;
}

gw_status gw_shard_sums_check_range(gw_shard_sums *s, const uint8_t *bytes, int64_t from,
                                    int64_t to, gw_diags *dg) {
    if (!s) return GW_OK;
    for (int64_t k = (from + GW_SUMS_BLOCK - 1) / GW_SUMS_BLOCK; k < s->count; k++) {
        int64_t at = k * GW_SUMS_BLOCK, end = GW_MIN(s->bytes, at + GW_SUMS_BLOCK);
        if (end > to) break;
        s->bad -= s->state[k] == BAD;
        s->state[k] = UNKNOWN; /* these are other bytes than the last time */
        if (!is_good(s, k, bytes + (at - from))) return damaged(s, k, dg);
    }
    return GW_OK;
}
