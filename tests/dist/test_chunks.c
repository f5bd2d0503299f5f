// SPDX-License-Identifier: Apache-2.0
// verify with products in pieces (layout.tp_chunks): whatever the pieces, and whatever stands
// beside them, the layout computes what one rank computes. A number that does not divide is
// refused.
#include "base/compiler.h" /* GW_COUNT */
#include "harness.h"
#include "verify_rig.h"

static const struct {
    const char *family;
    int ranks;
    const char *sets[4];
} layouts[] = {
    {"llama", 2, {"layout.tp=2", "layout.tp_chunks=2"}},
    {"gpt2", 2, {"layout.tp=2", "layout.tp_chunks=4", "recompute.policy=full"}},
    {"qwen3", 4, {"layout.tp=4", "layout.tp_chunks=2"}},
    {"mistral", 4, {"layout.tp=4", "layout.tp_chunks=4", "precision.compute=bf16"}},
    {"qwen2", 4, {"layout.tp=2", "layout.tp_chunks=2", "layout.zero=3", "train.accumulate=2"}},
    {"llama",
     4,
     {"layout.tp=2", "layout.tp_chunks=2", "layout.cp=2", "recompute.policy=selective"}},
};

TEST_WITHIN(pieces_agree_with_one_rank, 240) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        rig r = rig_make(layouts[i].family, layouts[i].ranks);
        rig_set(&r, "train.seq_len=16");
        for (int k = 0; k < 4 && layouts[i].sets[k]; k++) rig_set(&r, "%s", layouts[i].sets[k]);
        rig_passes(&r);
        rig_release(&r);
    }
}
