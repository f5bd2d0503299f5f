// SPDX-License-Identifier: Apache-2.0
// dropout: the reference's mask, with the generator in vector lanes.
//
// Element j of a sample is kept if its uniform, m / 2^24 with m the upper 24 bits of word j of the
// sample's stream, is at least p: that is m >= ceil(2^24 p), a comparison of integers with no
// rounding. Words are drawn a block of GW_VEC_BLOCK at a time, so the mask exists nowhere as a
// whole; of a sample in parts, by the runs of it that are here. y may take the bytes of x.
#include <math.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, gw_vec_random_held */
#include "ops/rows.h"            /* gw_rows_sample */

typedef void mask_fn(void *y, const void *x, const uint32_t *words, uint32_t least, float scale,
                     int64_t n);

static GW_ALWAYS_INLINE void mask_any(void *y, const void *x, const uint32_t *words, uint32_t least,
                                      float scale, int64_t n, gw_dtype t) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = gw_vec_get(x, t, i) * scale;
        gw_vec_put(y, t, i, (int32_t)(words[i] >> 8) >= (int32_t)least ? v : 0.0f);
    }
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void mask_##suffix(void *y, const void *x, const uint32_t *words,             \
                                        uint32_t least, float scale, int64_t n) {                  \
        mask_any(y, x, words, least, scale, n, T);                                                 \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(mask_fn, mask)

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x1);
}

/* The op's key for this batch. */
static gw_rng_key batch_key(const gw_kargs *k) {
    uint64_t seed = (uint64_t)gw_op_attr_named(k->g, k->op, "seed").i;
    const char *name = gw_graph_str(k->g, gw_op_attr_named(k->g, k->op, "key").s);
    return gw_rng_key_fold(gw_rng_key_named(seed, name), (uint64_t)gw_vec_int(&k->in[2], 0));
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    double p = gw_op_attr_named(k->g, k->op, "p").f;
    float scale = (float)(1 / (1 - p));
    uint32_t least = (uint32_t)ceil(p * 0x1p24);
    gw_rng_key key = batch_key(k);
    int64_t n = x->dims[0] ? x->elems / x->dims[0] : 0;
    int64_t blocks = (n + GW_VEC_BLOCK - 1) / GW_VEC_BLOCK;
    const gw_type sample_type = gw_rows_sample(gw_type_of(k->g, gw_op_in(k->g, k->op, 0)));
    gw_held held;
    gw_held_begin(&held, &sample_type, &k->g->mesh, k->rank);
#pragma omp parallel for num_threads(k->threads) schedule(static) if (x->elems > 4096)
    for (int64_t task = 0; task < x->dims[0] * blocks; task++) {
        uint32_t words[GW_VEC_BLOCK + 4];
        int64_t sample = task / blocks, j = task % blocks * GW_VEC_BLOCK;
        int64_t m = GW_MIN(GW_VEC_BLOCK, n - j), at = sample * n + j;
        gw_rng_key own = gw_rng_key_fold(key, (uint64_t)gw_vec_int(&k->in[1], sample));
        gw_vec_random_held(words, own, &held, j, m);
        mask_of[x->dtype](gw_vec_out(y->data, y->dtype, at), gw_vec_at(x->data, x->dtype, at),
                          words, least, scale, m);
    }
    return GW_OK;
}

GW_VEC_KERNEL(dropout, "dropout", "Philox in vector lanes, mask never stored", supports,
              gw_vec_no_workspace, launch);
