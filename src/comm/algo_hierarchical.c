// SPDX-License-Identifier: Apache-2.0
// hierarchical: first among the ranks of a host, then between hosts.
//
// Links between hosts are slower than memory, and messages over them dearer. With L ranks on each
// of H hosts (coll->per_host = L, group rank = host * L + place):
//
//   all-reduce   reduce-scatter on the host, so that each place holds 1/L of the host's sum;
//                all-reduce of that piece between the ranks of one place on all hosts; all-gather
//                on the host. 2 (H-1)/H N/L bytes a rank leave the host, not 2 (n-1)/n N (Jia et
//                al., "Highly scalable deep learning training system", 2018, section 3.2.2).
//   all-to-all   what the place l of any host shall have goes to the place l of this host first,
//                which sends each host all of it in one message: H-1 messages between hosts
//                instead of (H-1) L, L times as long (DeepSpeed-MoE, Rajbhandari et al. 2022,
//                section 5.3).
//
// The three stages of the all-reduce are rings over sub-groups, on a packed float32 (float64) copy
// of the data: 16-bit data is rounded once, after the second. Cost: 2(L-1) local and 2(H-1) remote
// messages a chunk; the bytes of the rings. Moved: the sum of the three rings' formulas
// (algo_ring.c); for the all-to-all with shares S_i of v bytes, (l, h) this rank's: v [ sum over
// hosts g and places i != l of S_(g,i), + (H-1) L S_own' ] where S_own' is the share of the rank of
// this place on the host that is sent to.
#include "comm/algo.h"

#define MAX_HOSTS 1024

static int64_t hosts(const gw_coll *c) { return c->size / c->per_host; }

/* ---- all-reduce ---- */

/* The collectives of the three stages. parts[] must outlive them. */
typedef struct stages {
    gw_coll_part whole, piece, result;
    gw_coll scatter, reduce, gather;
} stages;

static gw_dtype result_dtype(const gw_coll *c) { return c->dtype; }

/* `place` is this rank's on its host; buffers may be NULL when only bytes are asked. */
static void plan_stages(stages *s, const gw_coll *c, int64_t place, char *acc, char *result) {
    int64_t total = gw_coll_elems(c);
    gw_dtype sum = gw_sum_dtype(c->dtype), out = result_dtype(c);
    gw_cut cut = gw_cut_flat(total, c->per_host, place);
    char *own = acc ? acc + cut.first * gw_dtype_size(sum) : NULL;
    char *own_result = result ? result + cut.first * gw_dtype_size(out) : NULL;
    s->whole = (gw_coll_part){.elems = total, .src = acc, .dst = own};
    s->piece = (gw_coll_part){.elems = cut.length, .src = own, .dst = own};
    s->result = (gw_coll_part){.elems = total, .src = own_result, .dst = result};
    gw_coll base = {.dtype = sum, .wire = c->wire, .max = c->max, .nparts = 1, .scope = c->scope};
    s->scatter = s->reduce = s->gather = base;
    s->scatter.kind = GW_COLL_REDUCE_SCATTER;
    s->scatter.size = c->per_host;
    s->scatter.parts = &s->whole;
    s->reduce.kind = GW_COLL_ALL_REDUCE;
    s->reduce.size = hosts(c);
    s->reduce.parts = &s->piece;
    s->gather.kind = GW_COLL_ALL_GATHER;
    s->gather.size = c->per_host;
    s->gather.parts = &s->result;
    s->gather.dtype = out;
}

static int64_t acc_bytes(const gw_coll *c) {
    return gw_align64(gw_coll_elems(c) * gw_dtype_size(gw_sum_dtype(c->dtype)));
}

static int64_t result_bytes(const gw_coll *c) {
    if (result_dtype(c) == gw_sum_dtype(c->dtype)) return 0; /* the accumulator holds it */
    return gw_align64(gw_coll_elems(c) * gw_dtype_size(result_dtype(c)));
}

static int64_t ring_scratch(const gw_coll *c, const gw_coll_machine *m) {
    stages s;
    plan_stages(&s, c, 0, NULL, NULL);
    int64_t a = gw_algo_ring.scratch(&s.scatter, m), b = gw_algo_ring.scratch(&s.reduce, m);
    int64_t d = gw_algo_ring.scratch(&s.gather, m);
    return GW_MAX(GW_MAX(a, b), d);
}

static gw_status run_stage(const gw_algorithm_call *k, const gw_coll *c, gw_group g, char *scratch,
                           int64_t *sent, gw_diags *dg) {
    gw_algorithm_call sub = {k->t, g, c, scratch, k->threads};
    return gw_algo_ring.run(&sub, sent, dg);
}

static gw_status all_reduce(const gw_algorithm_call *k, gw_group local, gw_group remote,
                            int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    gw_seq whole = {c, 1, 0, 1};
    int64_t total = gw_seq_elems(&whole);
    gw_dtype sum = gw_sum_dtype(c->dtype), out = result_dtype(c);
    char *acc = k->scratch, *result = result_bytes(c) ? acc + acc_bytes(c) : acc;
    char *scratch = acc + acc_bytes(c) + result_bytes(c);
    stages s;
    plan_stages(&s, c, local.me, acc, result);
    gw_seq_load(&whole, 0, total, acc, sum);
    GW_TRY(run_stage(k, &s.scatter, local, scratch, sent, dg));
    GW_TRY(run_stage(k, &s.reduce, remote, scratch, sent, dg));
    gw_cut cut = gw_cut_flat(total, c->per_host, local.me);
    gw_sum_convert(result + cut.first * gw_dtype_size(out), out,
                   acc + cut.first * gw_dtype_size(sum), sum, cut.length);
    GW_TRY(run_stage(k, &s.gather, local, scratch, sent, dg));
    gw_seq_store(&whole, 0, total, result, out);
    return GW_OK;
}

/* ---- all-to-all ---- */

/* Elements of what place `place` of every host shall have from one rank. */
static int64_t place_elems(const gw_coll *c, int64_t place) {
    int64_t sum = 0;
    for (int64_t h = 0; h < hosts(c); h++)
        sum += gw_share_elems(c, c->size, h * c->per_host + place);
    return sum;
}

/* Bytes of the two packing buffers: what goes to one place or one host, and what came from the
 * ranks of this host for this place. Share 0 is the longest. */
static int64_t message_bytes(const gw_coll *c) {
    int64_t longest = gw_share_elems(c, c->size, 0);
    int64_t blocks = GW_MAX(hosts(c), c->per_host);
    return gw_align64(longest * blocks * gw_dtype_size(c->dtype));
}

static int64_t collected_bytes(const gw_coll *c) {
    return gw_align64(place_elems(c, 0) * c->per_host * gw_dtype_size(c->dtype));
}

static int64_t pack_place(const gw_coll *c, int64_t place, char *out) {
    int64_t at = 0, size = gw_dtype_size(c->dtype);
    for (int64_t h = 0; h < hosts(c); h++) {
        int64_t r = h * c->per_host + place;
        gw_seq share = {c, c->size, r, r + 1};
        int64_t count = gw_seq_elems(&share);
        gw_seq_load(&share, 0, count, out + at * size, c->dtype);
        at += count;
    }
    return at * size;
}

/* First stage: afterwards row i of `rows` holds what the rank at place i of this host has for this
 * place of every host, host after host. */
static gw_status collect(const gw_algorithm_call *k, gw_group local, char *rows, char *out,
                         int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    int n = local.size, me = local.me;
    int64_t row = place_elems(c, me) * gw_dtype_size(c->dtype);
    gw_algorithm_call sub = {k->t, local, c, NULL, k->threads};
    pack_place(c, me, rows + me * row);
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        int64_t bytes = pack_place(c, to, out);
        GW_TRY(gw_swap(&sub, to, out, bytes, from, rows + from * row, row, sent, dg));
    }
    return GW_OK;
}

/* The share of this rank as it came from group rank `from`. */
static void unpack(const gw_coll *c, int64_t me, int64_t from, const char *in) {
    gw_seq own = {c, c->size, me, me + 1};
    int64_t size = gw_dtype_size(c->dtype);
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, &own, 0, INT64_MAX); gw_walk_next(&w, &p);) {
        int64_t length = gw_cut_flat(c->parts[p.part].elems, c->size, me).length;
        char *dst = (char *)c->parts[p.part].dst + (from * length + p.within) * size;
        gw_sum_copy(dst, in, p.count * size, false);
        in += p.count * size;
    }
}

/* Second stage: block `host` of every row goes to that host. */
static gw_status deliver(const gw_algorithm_call *k, gw_group local, gw_group remote,
                         const char *rows, char *out, char *in, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    int hs = remote.size, h = remote.me, l = local.me;
    int64_t size = gw_dtype_size(c->dtype), row = place_elems(c, l) * size;
    int64_t mine = gw_share_elems(c, c->size, k->group.me) * size;
    gw_algorithm_call sub = {k->t, remote, c, NULL, k->threads};
    for (int s = 0; s < hs; s++) {
        int to = (h + s) % hs, from = (h - s + hs) % hs;
        int64_t at = 0;
        for (int g = 0; g < to; g++) at += gw_share_elems(c, c->size, g * c->per_host + l) * size;
        int64_t block = gw_share_elems(c, c->size, to * c->per_host + l) * size;
        for (int i = 0; i < local.size; i++)
            gw_sum_copy(out + i * block, rows + i * row + at, block, false);
        const char *got = s == 0 ? out : in;
        if (s > 0)
            GW_TRY(
                gw_swap(&sub, to, out, block * local.size, from, in, mine * local.size, sent, dg));
        for (int i = 0; i < local.size; i++)
            unpack(c, k->group.me, from * c->per_host + i, got + i * mine);
    }
    return GW_OK;
}

/* ---- the descriptor ---- */

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    int per = (int)c->per_host, h = k->group.me / per, l = k->group.me % per;
    int across[MAX_HOSTS];
    for (int g = 0; g < (int)hosts(c); g++) across[g] = k->group.ranks[g * per + l];
    gw_group local = {per, l, k->group.ranks + h * per}, remote = {(int)hosts(c), h, across};
    if (c->kind == GW_COLL_ALL_REDUCE) return all_reduce(k, local, remote, sent, dg);
    char *out = k->scratch, *in = out + message_bytes(c), *rows = in + message_bytes(c);
    GW_TRY(collect(k, local, rows, out, sent, dg));
    return deliver(k, local, remote, rows, out, in, sent, dg);
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    if (c->per_host <= 0) return 0;
    int64_t h = rank / c->per_host, l = rank % c->per_host, sum = 0;
    if (c->kind == GW_COLL_ALL_REDUCE) {
        stages s;
        plan_stages(&s, c, l, NULL, NULL);
        return gw_algo_ring.moved(&s.scatter, l) + gw_algo_ring.moved(&s.reduce, h) +
               gw_algo_ring.moved(&s.gather, l);
    }
    for (int64_t i = 0; i < c->per_host; i++)
        if (i != l) sum += place_elems(c, i);
    for (int64_t g = 0; g < hosts(c); g++)
        if (g != h) sum += c->per_host * gw_share_elems(c, c->size, g * c->per_host + l);
    return sum * gw_dtype_size(c->dtype);
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    if (!gw_algo_can(c, false, why)) return false;
    if (c->per_host <= 0 || c->per_host >= c->size)
        *why = "all ranks are on one host";
    else if (c->size % c->per_host != 0)
        *why = "hosts have different numbers of ranks";
    else if (hosts(c) > MAX_HOSTS)
        *why = "more hosts than it has room for";
    return !*why;
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    if (c->kind == GW_COLL_ALL_REDUCE) return acc_bytes(c) + result_bytes(c) + ring_scratch(c, m);
    return 2 * message_bytes(c) + collected_bytes(c);
}

/* The local stages run at the rate of memory, the remote one at that of a message. */
static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double l = (double)c->per_host, h = (double)hosts(c), bytes = (double)gw_coll_bytes(c);
    double rate = m->copy_bytes_per_s;
    if (c->kind == GW_COLL_ALL_TO_ALL)
        return gw_algo_seconds(m, l - 1.0 + h - 1.0, bytes * (h - 1.0) / h, 0.0) +
               3.0 * bytes / rate;
    double chunks = (double)gw_chunks(gw_coll_elems(c) / c->per_host);
    double inside = 2.0 * bytes * (l - 1.0) / l / rate + 2.0 * bytes / rate;
    double messages = 2.0 * (l - 1.0 + h - 1.0) * chunks;
    return gw_algo_seconds(m, messages, 2.0 * bytes / l * (h - 1.0) / h, bytes) + inside;
}

const gw_algorithm gw_algo_hierarchical = {
    .name = "hierarchical",
    .doc = "on each host first, then between hosts (Jia 2018; DeepSpeed-MoE 2022)",
    .kinds = GW_KIND(ALL_REDUCE) | GW_KIND(ALL_TO_ALL),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};
