// SPDX-License-Identifier: Apache-2.0
// The passes that one stage leaves as they are: split and schedule.
//
// One stage has nothing to cut; its micro-batches run one after another, which is what the loop of
// the program means.
#include "pass/pass.h"

gw_status gw_pass_split(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    (void)dg;
    gw_graph_dup(dst, src);
    return GW_OK;
}

gw_status gw_pass_schedule(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                           gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    (void)dg;
    gw_graph_dup(dst, src);
    return GW_OK;
}
