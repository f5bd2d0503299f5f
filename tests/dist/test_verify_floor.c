// SPDX-License-Identifier: Apache-2.0
// The bound of verify's first pass where sums cancel: with few keys and normed queries, gradients
// of q and k are what remains of larger numbers. Rounding there is no fault, and a thousandth still
// is.
#include "harness.h"
#include "verify_rig.h"

static rig few_tokens(int tokens, int seed) {
    rig r = rig_make("qwen3", 2);
    rig_set(&r, "layout.tp=2");
    rig_set(&r, "model.heads=4");
    rig_set(&r, "model.hidden=32");
    rig_set(&r, "model.kv_heads=2");
    rig_set(&r, "train.seq_len=%d", tokens);
    rig_set(&r, "train.seed=%d", seed);
    return r;
}

TEST(rounding_of_few_tokens_is_no_fault) {
    static const int tokens[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < GW_COUNT(tokens); i++)
        for (int seed = 1; seed <= 4; seed++) {
            rig r = few_tokens(tokens[i], seed);
            rig_passes(&r);
            rig_release(&r);
        }
}

static double a_thousandth_more(double seed, const void *batch, int64_t rank, void *user) {
    (void)batch, (void)rank, (void)user;
    return seed * 1.001;
}

TEST(a_thousandth_of_few_tokens_is_a_fault) {
    static const int tokens[] = {2, 4, 8};
    for (size_t i = 0; i < GW_COUNT(tokens); i++)
        for (int seed = 1; seed <= 4; seed++) {
            gw_verify_hooks h = {.seed = a_thousandth_more};
            rig r = few_tokens(tokens[i], seed);
            r.opts.hooks = &h;
            rig_verify(&r);
            CHECK_MSG(!r.out.ok && rig_wrong(&r, GW_VERIFY_NORM, NULL), "%d tokens, seed %d",
                      tokens[i], seed);
            rig_release(&r);
        }
}
