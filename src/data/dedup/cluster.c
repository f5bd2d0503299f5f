// SPDX-License-Identifier: Apache-2.0
// Clusters: from pairs of documents to the smallest document of each connected set.
//
// While the nodes fit in memory it is a union-find whose roots are always the smaller node, in a
// hash table: some 30 bytes for each document that has a near copy (documents without one never
// come here). The answer is the smallest node of each component, which no order of joining changes.
//
// Beyond the cap it is done by sorting alone, in rounds (Kiveris, Lattanzi et al., "Connected
// components in MapReduce and beyond", SoCC 2014). Large star: each node tells its larger
// neighbours of the smallest node that it knows. Small star: each node links itself and its smaller
// neighbours to the smallest of them. Both keep the components; when neither changes a link, each
// component is a star around its smallest node. The number of rounds is logarithmic in practice,
// each is two sorts of the links, and memory stays where it is put.
#include <string.h>

#include "base/arena.h"            /* gw_mem_alloc */
#include "base/hash.h"             /* gw_hash64 */
#include "data/dedup/dedup_impl.h" /* gw_clusters */

#define EMPTY UINT64_MAX

typedef struct slot {
    uint64_t node, parent;
} slot;

struct gw_clusters {
    char *dir;
    int64_t memory;
    bool on_disk;
    slot *slots; /* [cap], cap a power of two */
    int64_t cap, count;
    gw_sorter *links;  /* on disk: pairs (a, b), a < b */
    gw_sorter *result; /* (node, root) */
};

gw_clusters *gw_clusters_new(const char *dir, int64_t memory_bytes, bool on_disk) {
    gw_clusters *c = gw_mem_zalloc(sizeof *c);
    size_t n = strlen(dir) + 1;
    c->dir = gw_mem_alloc(n);
    memcpy(c->dir, dir, n);
    c->memory = memory_bytes;
    c->on_disk = on_disk;
    return c;
}

void gw_clusters_free(gw_clusters *c) {
    if (!c) return;
    gw_mem_free(c->slots);
    gw_sorter_free(c->links);
    gw_sorter_free(c->result);
    gw_mem_free(c->dir);
    gw_mem_free(c);
}

// ------------------------------------------------------------------------------ in memory

static slot *place(const gw_clusters *c, uint64_t node) {
    uint64_t mask = (uint64_t)c->cap - 1, i = (node * 0x9e3779b97f4a7c15ull) >> 20 & mask;
    while (c->slots[i].node != EMPTY && c->slots[i].node != node) i = (i + 1) & mask;
    return &c->slots[i];
}

/* Room for two more nodes; false where that would pass the memory. */
static bool make_room(gw_clusters *c) {
    if ((c->count + 2) * 5 <= c->cap * 3) return true;
    int64_t cap = c->cap ? 2 * c->cap : 1024;
    if ((cap + c->cap) * (int64_t)sizeof(slot) > c->memory) return false;
    slot *old = c->slots;
    int64_t n = c->cap;
    c->slots = gw_mem_alloc((size_t)cap * sizeof *c->slots);
    c->cap = cap;
    for (int64_t i = 0; i < cap; i++) c->slots[i].node = EMPTY;
    for (int64_t i = 0; i < n; i++)
        if (old[i].node != EMPTY) *place(c, old[i].node) = old[i];
    gw_mem_free(old);
    return true;
}

static uint64_t root_of(gw_clusters *c, uint64_t node) {
    slot *s = place(c, node);
    if (s->node == EMPTY) {
        *s = (slot){node, node};
        c->count++;
        return node;
    }
    while (s->parent != s->node) {
        slot *up = place(c, s->parent);
        s->parent = up->parent;
        s = place(c, s->parent);
    }
    return s->node;
}

static void unite(gw_clusters *c, uint64_t a, uint64_t b) {
    a = root_of(c, a);
    b = root_of(c, b);
    if (a < b) place(c, b)->parent = a;
    if (b < a) place(c, a)->parent = b;
}

/* From memory to disk: each node with its parent is a link. */
static gw_status move_to_disk(gw_clusters *c, gw_diags *dg) {
    slot *slots = c->slots;
    int64_t cap = c->cap;
    c->slots = NULL;
    c->cap = c->count = 0;
    c->on_disk = true;
    gw_status s = GW_OK;
    for (int64_t i = 0; i < cap && s == GW_OK; i++)
        if (slots[i].node != EMPTY && slots[i].parent != slots[i].node)
            s = gw_clusters_join(c, slots[i].parent, slots[i].node, dg);
    gw_mem_free(slots);
    return s;
}

gw_status gw_clusters_join(gw_clusters *c, uint64_t a, uint64_t b, gw_diags *dg) {
    if (a == b) return GW_OK;
    if (!c->on_disk) {
        if (make_room(c)) {
            unite(c, a, b);
            return GW_OK;
        }
        GW_TRY(move_to_disk(c, dg));
    }
    if (!c->links) c->links = gw_sorter_new(c->dir, 2, c->memory / 2);
    uint64_t link[2] = {GW_MIN(a, b), GW_MAX(a, b)};
    return gw_sorter_add(c->links, link, dg);
}

static gw_status solve_in_memory(gw_clusters *c, gw_diags *dg) {
    for (int64_t i = 0; i < c->cap; i++) {
        if (c->slots[i].node == EMPTY) continue;
        uint64_t r[2] = {c->slots[i].node, root_of(c, c->slots[i].node)};
        if (r[0] != r[1]) GW_TRY(gw_sorter_add(c->result, r, dg));
    }
    gw_mem_free(c->slots);
    c->slots = NULL;
    c->cap = 0;
    return GW_OK;
}

// ------------------------------------------------------------------------------ on disk

/* A set of links: their number, and the sum of their hashes, which tells whether a round changed
 * anything. */
typedef struct link_set {
    int64_t count;
    uint64_t sum;
} link_set;

static gw_status add_link(gw_sorter *s, uint64_t u, uint64_t v, gw_diags *dg) {
    uint64_t r[2] = {u, v};
    return gw_sorter_add(s, r, dg);
}

/* The next link that differs from the last one; false at the end. */
static gw_status next_distinct(gw_sorter *s, uint64_t last[2], bool *begun, bool *more,
                               gw_diags *dg) {
    const uint64_t *r;
    do {
        GW_TRY(gw_sorter_next(s, &r, dg));
        *more = r != NULL;
    } while (r && *begun && r[0] == last[0] && r[1] == last[1]);
    if (r) memcpy(last, r, 16);
    *begun = true;
    return GW_OK;
}

/* Of links (a, b), a < b: both directions. Counts the set. */
static gw_status both_ways(gw_sorter *in, gw_sorter *out, link_set *set, gw_diags *dg) {
    uint64_t e[2];
    bool begun = false, more;
    *set = (link_set){0};
    GW_TRY(gw_sorter_sort(in, dg));
    for (;;) {
        GW_TRY(next_distinct(in, e, &begun, &more, dg));
        if (!more) return GW_OK;
        set->count++;
        set->sum += gw_hash64(e, sizeof e, 0);
        GW_TRY(add_link(out, e[0], e[1], dg));
        GW_TRY(add_link(out, e[1], e[0], dg));
    }
}

/* Neighbours of u come together, ascending, so the first one tells the smallest node. Gives
 * (larger, smaller), which is the order that the small star sorts by. */
static gw_status large_star(gw_sorter *in, gw_sorter *out, gw_diags *dg) {
    uint64_t e[2], u = EMPTY, least = 0;
    bool begun = false, more;
    GW_TRY(gw_sorter_sort(in, dg));
    for (;;) {
        GW_TRY(next_distinct(in, e, &begun, &more, dg));
        if (!more) return GW_OK;
        if (e[0] != u) {
            u = e[0];
            least = GW_MIN(u, e[1]);
        }
        if (e[1] > u) GW_TRY(add_link(out, e[1], least, dg));
    }
}

/* Of each node its smaller neighbours, ascending. Gives (smaller, larger). */
static gw_status small_star(gw_sorter *in, gw_sorter *out, gw_diags *dg) {
    uint64_t e[2], u = EMPTY, least = 0;
    bool begun = false, more;
    GW_TRY(gw_sorter_sort(in, dg));
    for (;;) {
        GW_TRY(next_distinct(in, e, &begun, &more, dg));
        if (!more) return GW_OK;
        if (e[0] != u) {
            u = e[0];
            least = e[1];
            GW_TRY(add_link(out, least, u, dg));
        } else {
            GW_TRY(add_link(out, least, e[1], dg));
        }
    }
}

/* One round: replaces c->links. */
static gw_status contract(gw_clusters *c, link_set *before, gw_diags *dg) {
    gw_sorter *two = gw_sorter_new(c->dir, 2, c->memory / 2), *large = NULL;
    gw_status s = both_ways(c->links, two, before, dg);
    gw_sorter_free(c->links);
    c->links = NULL;
    if (s == GW_OK) {
        large = gw_sorter_new(c->dir, 2, c->memory / 2);
        s = large_star(two, large, dg);
    }
    gw_sorter_free(two);
    if (s == GW_OK) {
        c->links = gw_sorter_new(c->dir, 2, c->memory / 2);
        s = small_star(large, c->links, dg);
    }
    gw_sorter_free(large);
    return s;
}

/* Reads the links, which are stars by now. */
static gw_status take_stars(gw_clusters *c, gw_sorter *links, gw_diags *dg) {
    uint64_t e[2];
    bool begun = false, more;
    for (;;) {
        GW_TRY(next_distinct(links, e, &begun, &more, dg));
        if (!more) return GW_OK;
        GW_TRY(add_link(c->result, e[1], e[0], dg));
    }
}

/* A set that a round leaves as it was has been reached one round before it is seen. */
static gw_status solve_on_disk(gw_clusters *c, gw_diags *dg) {
    link_set last = {-1, 0}, set;
    if (!c->links) return GW_OK;
    for (;;) {
        GW_TRY(contract(c, &set, dg));
        if (set.count == last.count && set.sum == last.sum) break;
        last = set;
    }
    GW_TRY(gw_sorter_sort(c->links, dg));
    gw_status s = take_stars(c, c->links, dg);
    gw_sorter_free(c->links);
    c->links = NULL;
    return s;
}

// ------------------------------------------------------------------------------ result

gw_status gw_clusters_solve(gw_clusters *c, gw_diags *dg) {
    c->result = gw_sorter_new(c->dir, 2, c->memory / 2);
    GW_TRY(c->on_disk ? solve_on_disk(c, dg) : solve_in_memory(c, dg));
    return gw_sorter_sort(c->result, dg);
}

gw_status gw_clusters_next(gw_clusters *c, uint64_t *node, uint64_t *root, bool *more,
                           gw_diags *dg) {
    const uint64_t *r;
    GW_TRY(gw_sorter_next(c->result, &r, dg));
    *more = r != NULL;
    if (r) {
        *node = r[0];
        *root = r[1];
    }
    return GW_OK;
}
