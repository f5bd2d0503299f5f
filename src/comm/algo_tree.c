// SPDX-License-Identifier: Apache-2.0
// tree: two binary trees, each for half of the data, pipelined in chunks.
//
// In one binary tree half of the ranks are leaves, which send but never forward, so half of the
// links idle. Two trees over the same ranks, the leaves of one being inner nodes of the other, use
// them all (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", 2009; in NCCL since 2.4). Chunks of the first half go up the first tree, those of the
// second half up the second, in turn: a rank adds its children's partial sums to its own values and
// passes the sum on; the root rounds, and the result goes down. Chunk i goes down while chunk i +
// lag goes up. Latency grows with log2(n) and bandwidth stays, which wins for small data on many
// ranks.
//
// A broadcast is the way down only: the trees stand over ranks 1 to n-1, and rank 0 feeds both
// roots.
//
// Tree 1 is the in-order tree: the parent of r is r with its lowest bit b cleared and 2b set (b
// only cleared, where that is out of range). Tree 2 is tree 1 mirrored for even n, shifted by one
// for odd. Every rank goes through the steps (chunk, tree, up or down) in one order, and within a
// step messages follow an acyclic tree: no deadlock, with or without buffers.
//
// Order of sums: own + first child + second. Partial sums travel as float32 (float64), or bf16 when
// the wire says so. Cost: (2 log2(n) + chunks) messages, 2 N beta, 1.5 N gamma. Moved: for each
// tree with H elements: H w up if there is a parent, H v down for each child.
#include "comm/algo.h"

#define TREE_CHUNK 16384 /* elements: 64 KiB of float32 */

/* This rank's place in one tree; group ranks, -1 = none. */
typedef struct node {
    int parent, child[2], children;
} node;

typedef struct tree {
    const gw_algorithm_call *k;
    node at[2];
    int64_t total, half;
    gw_dtype sum, partial, value;
    char *acc, *out, *in;
    int64_t *sent;
    gw_diags *dg;
} tree;

static int64_t parent_in_order(int64_t n, int64_t r) {
    if (r == 0) return -1;
    int64_t bit = r & -r, up = (r ^ bit) | bit << 1;
    return up < n ? up : r ^ bit;
}

/* Place in the in-order tree of rank r in tree t, and the rank at a place. */
static int64_t place_of(int64_t n, int t, int64_t r) {
    if (t == 0) return r;
    return n % 2 == 0 ? n - 1 - r : (r + n - 1) % n;
}

static int64_t rank_at(int64_t n, int t, int64_t place) {
    if (t == 0) return place;
    return n % 2 == 0 ? n - 1 - place : (place + 1) % n;
}

/* Ranks [first, first + n) form the trees; `above` stands above their roots (-1: nobody). */
static node node_of(int64_t n, int t, int64_t rank, int64_t first, int above) {
    int64_t place = place_of(n, t, rank - first), up = parent_in_order(n, place);
    node x = {up < 0 ? above : (int)(rank_at(n, t, up) + first), {-1, -1}, 0};
    for (int64_t r = 0; r < n; r++)
        if (parent_in_order(n, r) == place) x.child[x.children++] = (int)(rank_at(n, t, r) + first);
    return x;
}

static node node_in(const gw_coll *c, int t, int64_t rank) {
    if (c->kind != GW_COLL_BROADCAST) return node_of(c->size, t, rank, 0, -1);
    if (rank > 0) return node_of(c->size - 1, t, rank, 1, 0);
    return (node){-1, {(int)rank_at(c->size - 1, t, 0) + 1, -1}, 1};
}

/* Step i works on chunk i/2 of tree i%2: where it begins, and its elements (0: none). */
static int64_t step_chunk(const tree *x, int64_t i, int64_t *from) {
    int64_t begin = i % 2 ? x->half : 0, end = i % 2 ? x->total : x->half;
    *from = begin + i / 2 * TREE_CHUNK;
    return *from >= end ? 0 : GW_MIN(TREE_CHUNK, end - *from);
}

static gw_status up(const tree *x, int64_t i) {
    const gw_coll *c = x->k->coll;
    gw_seq whole = {c, 1, 0, 1};
    const node *at = &x->at[i % 2];
    int64_t from, count = step_chunk(x, i, &from), bytes = count * gw_dtype_size(x->partial);
    gw_seq_load(&whole, from, count, x->acc, x->sum);
    for (int k = 0; k < at->children; k++) {
        GW_TRY(gw_swap(x->k, -1, NULL, 0, at->child[k], x->in, bytes, x->sent, x->dg));
        gw_sum_add(x->acc, x->in, x->partial, count, c->max);
    }
    gw_dtype to = at->parent < 0 ? x->value : x->partial;
    const char *out = x->acc;
    if (to != x->sum) {
        gw_sum_convert(x->out, to, x->acc, x->sum, count);
        out = x->out;
    }
    if (at->parent >= 0) return gw_swap(x->k, at->parent, out, bytes, -1, NULL, 0, x->sent, x->dg);
    gw_seq_store(&whole, from, count, out, to);
    return GW_OK;
}

static gw_status down(const tree *x, int64_t i) {
    const gw_coll *c = x->k->coll;
    gw_seq whole = {c, 1, 0, 1};
    const node *at = &x->at[i % 2];
    int64_t from, count = step_chunk(x, i, &from), bytes = count * gw_dtype_size(x->value);
    if (at->parent >= 0) {
        GW_TRY(gw_swap(x->k, -1, NULL, 0, at->parent, x->out, bytes, x->sent, x->dg));
        gw_seq_store(&whole, from, count, x->out, x->value);
    } else if (c->kind == GW_COLL_BROADCAST) {
        gw_seq_load(&whole, from, count, x->out, x->value);
        gw_seq_keep(&whole, from, count);
    } else {
        gw_seq_fetch(&whole, from, count, x->out, x->value); /* rounded on the way up */
    }
    for (int k = 0; k < at->children; k++)
        GW_TRY(gw_swap(x->k, at->child[k], x->out, bytes, -1, NULL, 0, x->sent, x->dg));
    return GW_OK;
}

static int64_t buffer_bytes(void) { return TREE_CHUNK * 8; }

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    int64_t total = gw_coll_elems(c), half = (total + 1) / 2, b = buffer_bytes();
    tree x = {k,
              {node_in(c, 0, k->group.me), node_in(c, 1, k->group.me)},
              total,
              half,
              gw_sum_dtype(c->dtype),
              gw_partial_dtype(c),
              gw_value_dtype(c),
              k->scratch,
              k->scratch + b,
              k->scratch + 2 * b,
              sent,
              dg};
    int64_t steps = 2 * ((half + TREE_CHUNK - 1) / TREE_CHUNK);
    int64_t lag = c->kind == GW_COLL_BROADCAST ? 0 : 4 * gw_log2_ceil(c->size);
    for (int64_t i = 0; i < steps + lag; i++) {
        if (gw_coll_adds(c) && i < steps) GW_TRY(up(&x, i));
        if (i >= lag) GW_TRY(down(&x, i - lag));
    }
    return GW_OK;
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t total = gw_coll_elems(c), sum = 0;
    int64_t w = gw_dtype_size(gw_partial_dtype(c)), v = gw_dtype_size(gw_value_dtype(c));
    if (c->size == 1) return 0;
    for (int t = 0; t < 2; t++) {
        node at = node_in(c, t, rank);
        int64_t elems = t == 0 ? (total + 1) / 2 : total / 2;
        if (gw_coll_adds(c) && at.parent >= 0) sum += elems * w;
        sum += at.children * elems * v;
    }
    return sum;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    return gw_algo_can(c, false, why);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return c->size == 1 ? 0 : 3 * buffer_bytes();
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double ways = c->kind == GW_COLL_ALL_REDUCE ? 2.0 : 1.0, bytes = (double)gw_coll_bytes(c);
    double chunks = (double)((gw_coll_elems(c) + TREE_CHUNK - 1) / TREE_CHUNK);
    double messages = ways * ((double)gw_log2_ceil(c->size) + 1.5 * chunks);
    /* An inner node takes part in three messages of half of the data each way. */
    return gw_algo_seconds(m, messages, ways * 1.5 * bytes, gw_coll_adds(c) ? 1.5 * bytes : 0.0);
}

const gw_algorithm gw_algo_tree = {
    .name = "tree",
    .doc = "two binary trees, each for half of the data, pipelined (Sanders 2009)",
    .kinds = GW_KIND(ALL_REDUCE) | GW_KIND(BROADCAST),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};
