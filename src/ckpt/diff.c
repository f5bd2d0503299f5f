// SPDX-License-Identifier: Apache-2.0
// Two checkpoints compared.
//
// Tensors are read in slices of their first dimension, as a load of one rank that holds just that
// box, so it does not matter how many ranks wrote either side, and memory stays small. Slices that
// are equal as bytes need no look at their elements. Eight-bit floats mean something together with
// their scales only: of those only the number of differing elements is said.
//
// A run may go on in other numbers, so a tensor may be float32 on one side and bfloat16 on the
// other. Its values are compared all the same. Whether one is the other rounded, as a resume makes
// it, is seen in the narrower dtype.
#include "ckpt/diff.h"

#include <math.h>
#include <string.h>

#include "base/map.h"       /* gw_smap */
#include "ckpt/precision.h" /* gw_ckpt_convert */
#include "ops/ref.h"        /* gw_ref_get */

enum { SLICE = 64 << 20 };

static double value_at(const void *data, gw_dtype dtype, int64_t i) {
    const gw_tensor t = {.data = (void *)(uintptr_t)data, .dtype = dtype};
    if (dtype == GW_U8) return ((const uint8_t *)data)[i];
    return dtype == GW_I32 || dtype == GW_I64 ? (double)gw_ref_int(&t, i) : gw_ref_get(&t, i);
}

/* Of a pair: which differ, by how much, and where most. */
static void note_gap(gw_ckpt_difference *d, double gap, int64_t at, bool first) {
    bool more = gap > d->largest && !isnan(d->largest);
    if (!first && !more && !(isnan(gap) && !isnan(d->largest))) return;
    d->largest = gap;
    d->at = at;
}

/* Elements [at, at + n) of both. */
static void compare(gw_ckpt_difference *d, const char *a, const char *b, int64_t at, int64_t n) {
    gw_dtype t = d->a->dtype;
    int64_t each = gw_dtype_bits(t) / 8;
    bool same = memcmp(a, b, (size_t)(n * each)) == 0;
    for (int64_t i = 0; i < n; i++) {
        double x = value_at(a, t, i);
        if (fabs(x) > d->scale) d->scale = fabs(x);
        if (same || memcmp(a + i * each, b + i * each, (size_t)each) == 0) continue;
        double gap = fabs(x - value_at(b, t, i));
        note_gap(d, gap, at + i, d->differing++ == 0);
    }
}

/* The same of two floats: `differing` are those that are not each other's rounding. */
static void compare_floats(gw_ckpt_difference *d, const char *a, const char *b, int64_t at,
                           int64_t n) {
    gw_dtype ta = d->a->dtype, tb = d->b->dtype;
    bool from_a = gw_ckpt_widens(tb, ta); /* a is the wider one, or neither */
    gw_dtype wide = from_a ? ta : tb, narrow = from_a ? tb : ta;
    const char *w = from_a ? a : b, *v = from_a ? b : a;
    int64_t each = gw_dtype_bits(wide) / 8, less = gw_dtype_bits(narrow) / 8;
    for (int64_t i = 0; i < n; i++) {
        char one[8];
        gw_ckpt_rounding r = {0};
        double x = value_at(a, ta, i), gap = fabs(x - value_at(b, tb, i));
        gw_ckpt_convert(wide, w + i * each, narrow, one, 1, &r);
        d->differing += memcmp(one, v + i * less, (size_t)less) != 0;
        if (fabs(x) > d->scale) d->scale = fabs(x);
        note_gap(d, gap, at + i, at + i == 0);
    }
}

static gw_status load_slice(gw_ckpt_loader *l, const gw_ckpt_entry_tensor *e, const gw_box *box,
                            void *data, gw_diags *dg) {
    gw_ckpt_tensor t = {
        .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .box = *box, .data = data};
    memcpy(t.dims, e->dims, sizeof t.dims);
    return gw_ckpt_loader_load(l, &t, 1, dg);
}

static gw_status diff_values(gw_ckpt_difference *d, gw_ckpt_loader *a, gw_ckpt_loader *b,
                             gw_diags *dg) {
    gw_box box = gw_box_whole(d->a->ndim, d->a->dims);
    d->elems = gw_box_elems(&box);
    if (d->elems == 0) return GW_OK;
    int64_t rows = d->a->ndim ? d->a->dims[0] : 1, row = d->elems / rows;
    bool floats = d->a->dtype != d->b->dtype;
    int64_t of_a = gw_dtype_bits(d->a->dtype) / 8, of_b = gw_dtype_bits(d->b->dtype) / 8;
    int64_t most = GW_MAX(1, GW_MIN(rows, SLICE / (row * GW_MAX(of_a, of_b))));
    char *x = gw_mem_alloc((size_t)(most * row * of_a)),
         *y = gw_mem_alloc((size_t)(most * row * of_b));
    gw_status st = GW_OK;
    for (int64_t r = 0; r < rows && st == GW_OK; r += most) {
        int64_t n = GW_MIN(most, rows - r);
        if (d->a->ndim) {
            box.start[0] = r;
            box.size[0] = n;
        }
        st = load_slice(a, d->a, &box, x, dg);
        if (st == GW_OK) st = load_slice(b, d->b, &box, y, dg);
        if (st == GW_OK) (floats ? compare_floats : compare)(d, x, y, r * row, n * row);
    }
    gw_mem_free(x);
    gw_mem_free(y);
    d->how = d->differing ? GW_CKPT_VALUES : floats ? GW_CKPT_ROUNDED : GW_CKPT_SAME;
    return st;
}

static bool alike(const gw_ckpt_entry_tensor *a, const gw_ckpt_entry_tensor *b) {
    return (a->dtype == b->dtype || gw_ckpt_converts(a->dtype, b->dtype)) && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->ndim) == 0;
}

gw_status gw_checkpoint_diff(const gw_ckpt_manifest *a, const gw_ckpt_manifest *b, gw_arena *mem,
                             gw_ckpt_difference **out, int *n, gw_diags *dg) {
    gw_smap in_a = {0}, in_b = {0};
    gw_ckpt_loader *of_a = NULL, *of_b = NULL;
    gw_status st = gw_ckpt_loader_open(&of_a, a, dg);
    if (st == GW_OK) st = gw_ckpt_loader_open(&of_b, b, dg);
    uint32_t k;
    *n = 0;
    *out = gw_arena_new(mem, gw_ckpt_difference, a->ntensors + b->ntensors + 1);
    for (int i = 0; i < a->ntensors; i++) gw_smap_put_c(&in_a, a->tensors[i].name, (uint32_t)i);
    for (int i = 0; i < b->ntensors; i++) gw_smap_put_c(&in_b, b->tensors[i].name, (uint32_t)i);
    for (int i = 0; i < a->ntensors && st == GW_OK; i++) {
        gw_ckpt_difference *d = &(*out)[(*n)++];
        *d = (gw_ckpt_difference){.name = a->tensors[i].name, .a = &a->tensors[i]};
        d->how = GW_CKPT_ONLY_A;
        if (!gw_smap_find_c(&in_b, d->name, &k)) continue;
        d->b = &b->tensors[k];
        d->how = GW_CKPT_KIND;
        if (alike(d->a, d->b)) st = diff_values(d, of_a, of_b, dg);
    }
    for (int i = 0; i < b->ntensors && st == GW_OK; i++)
        if (!gw_smap_find_c(&in_a, b->tensors[i].name, &k))
            (*out)[(*n)++] = (gw_ckpt_difference){
                .name = b->tensors[i].name, .b = &b->tensors[i], .how = GW_CKPT_ONLY_B};
    gw_ckpt_loader_close(of_a);
    gw_ckpt_loader_close(of_b);
    gw_smap_release(&in_a);
    gw_smap_release(&in_b);
    return st;
}
