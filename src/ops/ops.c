// SPDX-License-Identifier: Apache-2.0
// The table itself: ops.def expanded into an array of descriptors. Adding an op is a file and a
// line there.
#include "ops/ops.h" /* gw_optable, gw_opdef_* */

static const gw_opdef *const all_ops[] = {
#define X(name) &gw_opdef_##name,
#include "ops/ops.def"
#undef X
};

static const gw_optable table = {GW_OP_CODE_COUNT, all_ops};

const gw_optable *gw_ops_table(void) { return &table; }
