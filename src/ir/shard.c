// SPDX-License-Identifier: Apache-2.0
// Shards: one function from local index to global index, for each way of cutting a dimension.
//
// All kinds but `layer` are made of at most two segments of consecutive global indices, so they are
// told by segments(): where each begins and how long it is. Length, the two directions of the map
// and the runs all follow from that one function. `layer` deals indices out like cards and has a
// closed form.
//
// What must hold (tests/ir/test_shard.c): over all parts, local -> global is a bijection onto [0,
// size); owner inverts global; the runs of a part, in order, list its global indices in local
// order; a run is never followed by one that continues it. Parts may be empty when size < parts.
//
// Sources of the kinds: ceil-divided chunks as torch.chunk cuts; zigzag as in context-parallel
// attention, where part i holds chunks i and 2n-1-i so that each part sees equal causal work.
#include "ir/shard.h"

#include <stdbool.h>

#include "base/compiler.h" /* GW_MIN */
#include "base/panic.h"    /* GW_ASSERT, gw_panic */

typedef struct segments {
    int64_t first[2], count[2];
} segments;

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Chunk number `c` of chunks of `each` elements: [first, first + count). */
static void cut(int64_t size, int64_t each, int64_t c, int64_t *first, int64_t *count) {
    int64_t lo = each > 0 && c > size / each ? size : GW_MIN(c * each, size);
    *first = lo;
    *count = GW_MIN(each, size - lo);
}

static segments ragged_segments(const gw_shard *s) {
    segments g = {{0, 0}, {0, 0}};
    for (int64_t p = 0; p < s->part; p++) g.first[0] += s->counts[p];
    g.count[0] = s->counts[s->part];
    return g;
}

/* Not for `layer`. The second segment is empty unless the kind is zigzag. */
static segments segments_of(const gw_shard *s) {
    segments g = {{0, 0}, {0, 0}};
    switch (s->kind) {
    case GW_SHARD_CHUNK:
        cut(s->size, ceil_div(s->size, s->parts), s->part, &g.first[0], &g.count[0]);
        return g;
    case GW_SHARD_ZIGZAG: {
        int64_t each = ceil_div(s->size, 2 * s->parts);
        cut(s->size, each, s->part, &g.first[0], &g.count[0]);
        cut(s->size, each, 2 * s->parts - 1 - s->part, &g.first[1], &g.count[1]);
        return g;
    }
    case GW_SHARD_FLAT: {
        int64_t each = s->size / s->parts, longer = s->size % s->parts;
        g.first[0] = s->part * each + GW_MIN(s->part, longer);
        g.count[0] = each + (s->part < longer);
        return g;
    }
    case GW_SHARD_RAGGED: return ragged_segments(s);
    case GW_SHARD_LAYER:
    case GW_SHARD_KIND_COUNT: break;
    }
    gw_panic("shard: kind %d has no segments", (int)s->kind);
}

static void check(const gw_shard *s) {
    GW_ASSERT(s->size >= 0 && s->parts >= 1 && s->part >= 0 && s->part < s->parts);
}

int64_t gw_shard_length(const gw_shard *s) {
    check(s);
    if (s->kind == GW_SHARD_LAYER) return s->size / s->parts + (s->part < s->size % s->parts);
    segments g = segments_of(s);
    return g.count[0] + g.count[1];
}

int64_t gw_shard_global(const gw_shard *s, int64_t i) {
    check(s);
    if (s->kind == GW_SHARD_LAYER) return i * s->parts + s->part;
    segments g = segments_of(s);
    return i < g.count[0] ? g.first[0] + i : g.first[1] + (i - g.count[0]);
}

static int64_t zigzag_part(const gw_shard *s, int64_t g) {
    int64_t c = g / ceil_div(s->size, 2 * s->parts);
    return c < s->parts ? c : 2 * s->parts - 1 - c;
}

static int64_t flat_part(const gw_shard *s, int64_t g) {
    int64_t each = s->size / s->parts, longer = s->size % s->parts;
    int64_t in_longer = longer * (each + 1);
    return g < in_longer ? g / (each + 1) : longer + (g - in_longer) / each;
}

static int64_t ragged_part(const gw_shard *s, int64_t g) {
    int64_t p = 0;
    for (; p < s->parts - 1 && g >= s->counts[p]; p++) g -= s->counts[p];
    return p;
}

static int64_t part_of(const gw_shard *s, int64_t g) {
    switch (s->kind) {
    case GW_SHARD_CHUNK: return g / ceil_div(s->size, s->parts);
    case GW_SHARD_ZIGZAG: return zigzag_part(s, g);
    case GW_SHARD_FLAT: return flat_part(s, g);
    case GW_SHARD_RAGGED: return ragged_part(s, g);
    case GW_SHARD_LAYER: return g % s->parts;
    case GW_SHARD_KIND_COUNT: break;
    }
    gw_panic("shard: no kind %d", (int)s->kind);
}

int64_t gw_shard_owner(const gw_shard *s, int64_t g, int64_t *local) {
    check(s);
    GW_ASSERT(g >= 0 && g < s->size);
    gw_shard t = *s;
    t.part = part_of(s, g);
    if (local) {
        if (t.kind == GW_SHARD_LAYER) {
            *local = g / t.parts;
        } else {
            segments m = segments_of(&t);
            bool second = g < m.first[0] || g >= m.first[0] + m.count[0];
            *local = second ? m.count[0] + g - m.first[1] : g - m.first[0];
        }
    }
    return t.part;
}

/* Segments with empty ones dropped and adjacent ones joined; returns how many remain. */
static int joined(const gw_shard *s, segments *out) {
    *out = segments_of(s);
    if (out->count[0] == 0) {
        out->first[0] = out->first[1];
        out->count[0] = out->count[1];
        out->count[1] = 0;
    }
    if (out->count[1] > 0 && out->first[0] + out->count[0] == out->first[1]) {
        out->count[0] += out->count[1];
        out->count[1] = 0;
    }
    return (out->count[0] > 0) + (out->count[1] > 0);
}

int64_t gw_shard_runs(const gw_shard *s) {
    check(s);
    if (s->kind == GW_SHARD_LAYER && s->parts > 1) return gw_shard_length(s);
    if (s->kind == GW_SHARD_LAYER) return s->size > 0;
    segments g;
    return joined(s, &g);
}

void gw_shard_run(const gw_shard *s, int64_t r, int64_t *global_first, int64_t *count) {
    GW_ASSERT(r >= 0 && r < gw_shard_runs(s));
    if (s->kind == GW_SHARD_LAYER) {
        *global_first = r * s->parts + s->part;
        *count = s->parts > 1 ? 1 : s->size;
        return;
    }
    segments g;
    joined(s, &g);
    *global_first = g.first[r];
    *count = g.count[r];
}

const char *gw_shard_kind_name(gw_shard_kind k) {
    static const char *const names[] = {"chunk", "zigzag", "flat", "ragged", "layer"};
    return (unsigned)k < GW_SHARD_KIND_COUNT ? names[k] : "?";
}
