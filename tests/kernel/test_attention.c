// SPDX-License-Identifier: Apache-2.0
// Attention on sequences of several blocks; documents in any order; every instruction set; every
// thread count.
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kernel/cpu/attention.h" /* gw_attn, gw_attn_core_at */
#include "run.h"

typedef struct setting {
    const char *q, *k, *v, *o, *docs; /* docs NULL: none */
    int causal, window;
    double scale;
} setting;

static const setting settings[] = {
    {"b1 s301 h2 k64", "b1 s301 g1 k64", "b1 s301 g1 k64", "b1 s301 h2 k64", NULL, 1, 0, 0},
    {"b1 s200 h3 k40", "b1 s200 g3 k40", "b1 s200 g3 k40", "b1 s200 h3 k40", NULL, 1, 70, 0.2},
    {"b2 s150 h2 k16", "b2 s150 g1 k16", "b2 s150 g1 k16", "b2 s150 h2 k16", "b2 s150", 1, 0, 0},
    {"b1 s161 h4 k33", "b1 s161 g2 k33", "b1 s161 g2 k33", "b1 s161 h4 k33", "b1 s161", 1, 20, 0},
    {"b1 s130 h1 k80", "b1 s130 g1 k80", "b1 s130 g1 k80", "b1 s130 h1 k80", NULL, 0, 0, 0},
    {"b1 s180 h2 k8", "b1 s180 g1 k8", "b1 s180 g1 k8", "b1 s180 h2 k8", "b1 s180", 0, 50, 0},
    {"b1 s140 h2 k48", "b1 s140 g1 k48", "b1 s140 g1 u32", "b1 s140 h2 u32", "b1 s140", 1, 0, 0},
    {"b1 s110 h2 k24", "b1 s110 g2 k24", "b1 s110 g2 u71", "b1 s110 h2 u71", NULL, 1, 60, 0},
    {"b3 s17 h2 k128", "b3 s17 g2 k128", "b3 s17 g2 k128", "b3 s17 h2 k128", NULL, 1, 0, 0},
};

/* attention is op 0, attention_grad op 1; documents average 30 tokens. */
static gw_case *build(gw_cases *cs, const setting *t) {
    gw_case *c = gw_case_begin(cs, t->q);
    gw_vid q = gw_case_value(c, t->q, false, GW_FILL_NORMAL, 1.5, 0);
    gw_vid k = gw_case_value(c, t->k, false, GW_FILL_NORMAL, 1.5, 0);
    gw_vid v = gw_case_value(c, t->v, false, GW_FILL_NORMAL, 1, 0);
    gw_vid go = gw_case_value(c, t->o, false, GW_FILL_NORMAL, 1, 0);
    gw_vid docs = t->docs ? gw_case_fixed(c, GW_I32, t->docs, GW_FILL_SEGMENTS, 0, 30) : GW_NONE;
    gw_attr a[3] = {{.i = t->causal}, {.i = t->window}, {.f = t->scale}};
    gw_vid lse, o = gw_build(&c->b, "attention", (gw_vid[]){q, k, v, docs}, 4, a, &lse);
    gw_build(&c->b, "attention_grad", (gw_vid[]){go, q, k, v, o, lse, docs}, 7, a, NULL);
    CHECK_OK(c->b.status, cs->dg);
    return c;
}

static void run_setting(const setting *t, gw_dtype dtype, bool shuffled) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "attention", dtype, &dg);
    gw_case *c = build(&cs, t);
    values v;
    values_init(&v, c);
    if (shuffled) { /* ids that come back: 0 1 2 0 1 2 ... */
        int32_t *docs = v.data[c->leaves[4].v];
        int64_t n = gw_type_elems(gw_type_of(&c->g, c->leaves[4].v));
        for (int64_t i = 0; i < n; i++) docs[i] = (int32_t)(i / 7 % 3);
    }
    values_reference(&v, 0);
    values_reference(&v, 1);
    check_kernel(&v, 0, kernel_named("cpu-attention"), 2);
    check_kernel(&v, 1, kernel_named("cpu-attention-grad"), 3);
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

TEST(long_sequences_f32) {
    for (size_t i = 0; i < GW_COUNT(settings); i++) run_setting(&settings[i], GW_F32, false);
}
TEST(long_sequences_bf16) {
    for (size_t i = 1; i < 5; i++) run_setting(&settings[i], GW_BF16, false);
}
TEST(long_sequences_f16) { run_setting(&settings[3], GW_F16, false); }
TEST(documents_in_any_order) {
    run_setting(&settings[2], GW_F32, true);
    run_setting(&settings[3], GW_F32, true);
    run_setting(&settings[5], GW_F32, true);
}

/* Bits do not depend on the number of threads. */
TEST(threads_do_not_change_bits) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "attention", GW_F32, &dg);
    static const setting t = {
        "b2 s600 h4 k64", "b2 s600 g2 k64", "b2 s600 g2 k64", "b2 s600 h4 k64", "b2 s600", 1, 0, 0};
    gw_case *c = build(&cs, &t);
    values v;
    values_init(&v, c);
    void *one[GW_MAX_OUT], *many[GW_MAX_OUT];
    for (gw_oid o = 0; o < 2; o++) {
        const gw_kernel *k = kernel_named(o ? "cpu-attention-grad" : "cpu-attention");
        const gw_op *op = &c->g.ops.items[o];
        run_kernel(&v, o, k, 1, RUN_APART, one);
        for (int threads = 2; threads <= 16; threads *= 2) {
            run_kernel(&v, o, k, threads, RUN_APART, many);
            for (int i = 0; i < op->nout; i++)
                CHECK(memcmp(one[i], many[i],
                             (size_t)value_bytes(&c->g, gw_op_out(&c->g, op, i))) == 0);
            outputs_free(&v, o, many);
        }
        for (int i = 0; i < op->nout; i++) v.data[gw_op_out(&c->g, op, i)] = one[i];
    }
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

/* A NaN in a query is seen in its own outputs, and in no other query's. */
TEST(nan_is_not_hidden) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    own_cases(&cs, "attention", GW_F32, &dg);
    static const setting t = {
        "b1 s40 h1 k16", "b1 s40 g1 k16", "b1 s40 g1 k16", "b1 s40 h1 k16", NULL, 1, 0, 0};
    gw_case *c = build(&cs, &t);
    values v;
    values_init(&v, c);
    ((float *)v.data[c->leaves[0].v])[21 * 16 + 3] = NAN;
    void *out[GW_MAX_OUT];
    run_kernel(&v, 0, kernel_named("cpu-attention"), 1, RUN_APART, out);
    for (int i = 0; i < 40; i++) CHECK_EQ(isnan(((float *)out[0])[i * 16]), i == 21);
    outputs_free(&v, 0, out);
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
}

/* Every core that this processor runs, on the same problem: they agree within float32 sums. */
TEST(instruction_sets_agree) {
    enum { B = 2, S = 203, H = 4, G = 2, K = 40 };
    static float q[B * S * H * K], k[B * S * G * K], v[B * S * G * K], go[B * S * H * K];
    static float o[4][B * S * H * K], dq[4][B * S * H * K], dk[4][B * S * G * K];
    static float dv[4][B * S * G * K], lse[4][B * S * H];
    static int32_t lo[B * S], hi[B * S];
    static uint8_t exact[B] = {1, 1};
    float *all[] = {q, k, v, go};
    int64_t count[] = {B * S * H * K, B * S * G * K, B * S * G * K, B * S * H * K};
    for (int a = 0; a < 4; a++)
        for (int64_t i = 0; i < count[a]; i++) all[a][i] = sinf((float)(i * (7 + a)) * 0.37f);
    for (int i = 0; i < B * S; i++) lo[i] = i % S < 100 ? 0 : 90, hi[i] = i % S + 1;
    int64_t floats = gw_attn_forward_floats(K, K) + gw_attn_backward_floats(S, K, K);
    float *work = aligned_alloc(64, (size_t)(floats * 4 + 64) / 64 * 64);
    int n = 0;
    for (; gw_attn_core_at(n); n++) {
        gw_attn a = {.b = B,
                     .sq = S,
                     .sk = S,
                     .h = H,
                     .g = G,
                     .k = K,
                     .u = K,
                     .per = H / G,
                     .dtype = GW_F32,
                     .results = GW_F32,
                     .q = q,
                     .key = k,
                     .v = v,
                     .out_grad = go,
                     .o_in = o[n],
                     .o = o[n],
                     .dq = dq[n],
                     .dk = dk[n],
                     .dv = dv[n],
                     .lse = lse[n],
                     .scale = 0.3f,
                     .lo = lo,
                     .hi = hi,
                     .exact = exact};
        const gw_attn_core *core = gw_attn_core_at(n);
        for (int64_t b = 0; b < B; b++)
            for (int64_t h = 0; h < H; h++) core->forward(&a, b, h, 0, S, work);
        for (int64_t b = 0; b < B; b++)
            for (int64_t g = 0; g < G; g++) core->backward(&a, b, g, work);
        for (int64_t i = 0; i < count[0]; i++) {
            CHECK_NEAR(o[n][i], o[0][i], 1e-5);
            CHECK_NEAR(dq[n][i], dq[0][i], 1e-4);
        }
        for (int64_t i = 0; i < count[1]; i++) {
            CHECK_NEAR(dk[n][i], dk[0][i], 1e-4);
            CHECK_NEAR(dv[n][i], dv[0][i], 1e-4);
        }
        test_note("core %s", core->name);
    }
    free(work);
    CHECK(n >= 1);
}
