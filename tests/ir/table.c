// SPDX-License-Identifier: Apache-2.0
// The op table of tests/ir/table.h. The ops compute nothing; only what the IR reads of them is
// real.
#include "table.h"

#include <string.h>

#include "harness.h"
#include "ir/text.h" /* gw_graph_parse */

static void no_kernel(const gw_kargs *k) { (void)k; }

static gw_status no_outputs(gw_infer *f) {
    *f->nout = 0;
    return GW_OK;
}

static const gw_attr_def mix_attrs[] = {
    {"n", GW_ATTR_INT, 3, 0},         {"flag", GW_ATTR_BOOL, 0, 0},
    {"scale", GW_ATTR_FLOAT, 0, 1.5}, {"label", GW_ATTR_STR, 0, 0},
    {"to", GW_ATTR_DTYPE, GW_F32, 0},
};

static void no_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    (void)g;
    (void)o;
    memset(c, 0, sizeof *c);
}

#define COMMON                                                                                     \
    .doc = "for tests", .verify = gw_verify_default, .sign = gw_sign_default, .vjp = gw_vjp_none,  \
    .reference = no_kernel, .cases = gw_cases_none
#define FRESH                                                                                      \
    { -1, -1, -1, -1, -1, -1 }

static const gw_opdef mix = {COMMON,
                             .name = "mix",
                             .signature = "*,*?->*",
                             .nin = 2,
                             .nout = 1,
                             .noptional = 1,
                             .ties = FRESH,
                             .nattrs = 5,
                             .attrs = mix_attrs,
                             .infer = gw_infer_default,
                             .cost = gw_cost_default};
static const gw_opdef gemm = {
    COMMON,    .name = "gemm", .signature = "bd,vd->bv",  .nin = 2,
    .nout = 1, .ties = FRESH,  .infer = gw_infer_default, .cost = gw_cost_default};
static const gw_opdef accum = {COMMON,
                               .name = "accum",
                               .signature = "*,*?->*",
                               .nin = 2,
                               .nout = 1,
                               .noptional = 1,
                               .nacc = 1,
                               .ties = FRESH,
                               .infer = gw_infer_default,
                               .cost = gw_cost_default};
static const gw_opdef update = {COMMON,
                                .name = "update",
                                .signature = "*,*->*",
                                .nin = 2,
                                .nout = 1,
                                .ties = {0, -1, -1, -1, -1, -1},
                                .infer = gw_infer_default,
                                .cost = gw_cost_default};
static const gw_opdef move = {COMMON,
                              .name = "move",
                              .signature = "*->*",
                              .nin = 1,
                              .nout = 1,
                              .traits = GW_OP_INPLACE,
                              .ties = FRESH,
                              .infer = gw_infer_default,
                              .cost = gw_cost_default};
static const gw_opdef split = {
    COMMON,    .name = "split", .signature = "*->*,*",     .nin = 1,
    .nout = 2, .ties = FRESH,   .infer = gw_infer_default, .cost = gw_cost_default};
static const gw_opdef join = {COMMON,
                              .name = "join",
                              .signature = "*->*",
                              .nin = 1,
                              .nout = 1,
                              .traits = GW_OP_VARIADIC,
                              .ties = FRESH,
                              .infer = gw_infer_default,
                              .cost = gw_cost_default};
static const gw_opdef signal_ = {COMMON,    .name = "signal", .signature = "",     .nin = 1,
                                 .nout = 0, .ties = FRESH,    .infer = no_outputs, .cost = no_cost};

static const gw_opdef *const all[] = {&mix, &gemm, &accum, &update, &move, &split, &join, &signal_};
static const gw_optable table = {(int)GW_COUNT(all), all};

const gw_optable *test_table(void) { return &table; }

gw_graph test_graph(const char *text) {
    gw_graph g;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_graph_parse(&g, test_table(), text, (int64_t)strlen(text), "test", &dg), &dg);
    gw_diags_release(&dg);
    return g;
}
