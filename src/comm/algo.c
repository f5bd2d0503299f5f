// SPDX-License-Identifier: Apache-2.0
// What the algorithm files share (algo.h).
//
// Which dtype travels is decided here once. Partial sums of bf16 and f16 travel as float32, so that
// a sum is rounded once however many ranks it passes; finished values travel in their own dtype. A
// wire of BF16 rounds at every hop instead, and a wire of F32 changes nothing but float64, which it
// does not carry.
//
// The cost of a message is the usual alpha + beta n (Hockney 1994); additions cost gamma a byte.
#include "comm/algo.h"

gw_status gw_swap(const gw_algorithm_call *k, int to, const void *send, int64_t nsend, int from,
                  void *recv, int64_t nrecv, int64_t *sent, gw_diags *dg) {
    if (nsend == 0) to = -1;
    if (nrecv == 0) from = -1;
    if (to < 0 && from < 0) return GW_OK;
    if (to < 0) nsend = 0;
    if (from < 0) nrecv = 0;
    *sent += nsend;
    return k->t->ops->exchange(k->t, &k->group, to, send, nsend, from, recv, nrecv, dg);
}

bool gw_coll_adds(const gw_coll *c) {
    return c->kind == GW_COLL_ALL_REDUCE || c->kind == GW_COLL_REDUCE_SCATTER;
}

bool gw_wire_lossless(const gw_coll *c) {
    return c->wire == GW_WIRE_SAME || c->wire == GW_WIRE_F32 ||
           (c->wire == GW_WIRE_BF16 && c->dtype == GW_BF16 && !gw_coll_adds(c));
}

gw_dtype gw_partial_dtype(const gw_coll *c) {
    return c->wire == GW_WIRE_BF16 ? GW_BF16 : gw_sum_dtype(c->dtype);
}

gw_dtype gw_value_dtype(const gw_coll *c) { return c->wire == GW_WIRE_BF16 ? GW_BF16 : c->dtype; }

bool gw_algo_can(const gw_coll *c, bool int_wires, const char **why) {
    *why = NULL;
    bool narrow = c->wire == GW_WIRE_BF16 || c->wire == GW_WIRE_INT8 || c->wire == GW_WIRE_INT4;
    if (gw_coll_adds(c) && !gw_dtype_is_float(c->dtype))
        *why = "integers are not summed";
    else if (c->max && c->kind != GW_COLL_ALL_REDUCE)
        *why = "a maximum is taken by an all-reduce only";
    else if (c->wire != GW_WIRE_SAME && !gw_dtype_is_float(c->dtype))
        *why = "integers travel as they are";
    else if (c->wire != GW_WIRE_SAME && c->dtype == GW_F64)
        *why = "float64 travels as it is";
    else if (narrow && (c->kind == GW_COLL_BROADCAST || c->kind == GW_COLL_ALL_TO_ALL ||
                        c->kind == GW_COLL_SHIFT))
        *why = "broadcasts, all-to-alls and shifts travel as they are";
    else if (c->wire == GW_WIRE_BF16 && c->dtype == GW_F16)
        *why = "f16 does not travel as bf16";
    else if ((c->wire == GW_WIRE_INT8 || c->wire == GW_WIRE_INT4) && !int_wires)
        *why = "it does not quantise";
    return !*why;
}

int64_t gw_chunks(int64_t n) { return (n + GW_CHUNK_ELEMS - 1) / GW_CHUNK_ELEMS; }

int64_t gw_chunk_elems(int64_t n, int64_t k) {
    int64_t left = n - k * GW_CHUNK_ELEMS;
    return left < 0 ? 0 : GW_MIN(left, GW_CHUNK_ELEMS);
}

int64_t gw_align64(int64_t n) { return (n + 63) & ~(int64_t)63; }

int gw_log2_ceil(int64_t n) {
    int k = 0;
    while (k < 62 && ((int64_t)1 << k) < n) k++;
    return k;
}

double gw_algo_seconds(const gw_coll_machine *m, double messages, double bytes, double added) {
    int threads = GW_MAX(m->threads, 1);
    return messages * m->latency_s + bytes / m->bytes_per_s +
           added / (m->sum_bytes_per_s * (double)threads);
}
