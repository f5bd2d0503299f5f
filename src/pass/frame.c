// SPDX-License-Identifier: Apache-2.0
// The passes that one rank with one stage leaves as they are: shard, split, schedule, bucket.
//
// On a mesh without axes every placement is R, so no conversion is needed; one stage has nothing to
// cut; its micro-batches run one after another, which is what the loop of the program means; and
// there is no collective to merge or hoist. Each checks that this is so and copies. A mesh with
// axes is refused here before anything is allocated.
#include "pass/pass.h"

static gw_status copy_on_one_rank(gw_graph *dst, const gw_graph *src, const char *pass,
                                  gw_diags *dg) {
    if (src->mesh.naxes != 0)
        return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "one-rank",
                       "the layout has %lld ranks; this build compiles for one (pass %s)",
                       (long long)gw_mesh_ranks(&src->mesh), pass);
    gw_graph_dup(dst, src);
    return GW_OK;
}

gw_status gw_pass_shard(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    return copy_on_one_rank(dst, src, "shard", dg);
}

gw_status gw_pass_split(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    return copy_on_one_rank(dst, src, "split", dg);
}

gw_status gw_pass_schedule(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                           gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    return copy_on_one_rank(dst, src, "schedule", dg);
}

gw_status gw_pass_bucket(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                         gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    return copy_on_one_rank(dst, src, "bucket", dg);
}
