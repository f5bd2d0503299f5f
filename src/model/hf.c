// SPDX-License-Identifier: Apache-2.0
// Where a logical tensor stands in a Hugging Face file: which tensors, which rows of them.
//
// Three forms beside the plain one. A part of a tensor that holds n of equal size side by side
// (GPT-2's q, k, v: hf_part of hf_parts). Some rows of every head of a fused projection, the rows
// that rope turns in pairs (DeepSeek: hf_rows). One tensor for each expert (hf_each), each of which
// is one of the forms before. All of them are a map of rows, so readers and writers walk rows and
// know none of this; that a matrix may be stored turned ([in, out]) is theirs.
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "model/model.h"

int64_t gw_param_hf_tensors(const gw_param *p) { return p->hf_each ? p->type.dims[0].size : 1; }

int64_t gw_param_rows(const gw_param *p) {
    int rows = p->rows > 0 ? p->rows : p->type.ndim;
    int64_t n = 1;
    for (int i = p->hf_each ? 1 : 0; i < rows; i++) n *= p->type.dims[i].size;
    return n;
}

int64_t gw_param_hf_rows(const gw_param *p) {
    return p->hf_rows.whole ? p->hf_rows.whole : gw_param_rows(p) * p->hf_parts;
}

int64_t gw_param_hf_row(const gw_param *p, int64_t r) {
    const gw_hf_rows *f = &p->hf_rows;
    if (!f->whole) return p->hf_part * gw_param_rows(p) + r;
    int64_t block = r / f->block, i = r % f->block, turned = f->block - f->pairs;
    if (i >= turned) {
        int64_t j = i - turned, half = f->pairs / 2;
        i = turned + (j < half ? 2 * j : 2 * (j - half) + 1);
    }
    return block * f->stride + f->first + i;
}

const char *gw_param_hf_name(const gw_param *p, int64_t i, char buf[GW_HF_NAME]) {
    if (!p->hf_each) return p->hf;
    const char *star = strchr(p->hf, '*');
    GW_ASSERT(star);
    snprintf(buf, GW_HF_NAME, "%.*s%lld%s", (int)(star - p->hf), p->hf, (long long)i, star + 1);
    return buf;
}
