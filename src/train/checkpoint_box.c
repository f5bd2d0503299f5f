// SPDX-License-Identifier: Apache-2.0
// Boxes: the parts of a tensor that ranks hold and files store.
//
// A loader that intersects boxes does not care how many ranks wrote a checkpoint or read it: each
// target takes from every chunk what the two have in common. Arrays are dense and row-major within
// their own box, so a copy walks the common part row by row, a row being its last dimension. A flat
// part is no box: rows of a box that meet it are runs of the flattened tensor.
#include <string.h>

#include "train/checkpoint.h"

gw_box gw_box_whole(int ndim, const int64_t *dims) {
    gw_box b = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) b.size[i] = dims[i];
    return b;
}

int64_t gw_box_elems(const gw_box *b) {
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++) n *= b->size[i];
    return n;
}

bool gw_box_equal(const gw_box *a, const gw_box *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->start[i] != b->start[i] || a->size[i] != b->size[i]) return false;
    return true;
}

bool gw_box_meet(const gw_box *a, const gw_box *b, gw_box *out) {
    *out = (gw_box){.ndim = a->ndim};
    for (int i = 0; i < a->ndim; i++) {
        int64_t first = GW_MAX(a->start[i], b->start[i]);
        int64_t end = GW_MIN(a->start[i] + a->size[i], b->start[i] + b->size[i]);
        if (end <= first) return false;
        out->start[i] = first;
        out->size[i] = end - first;
    }
    return true;
}

/* Elements before index `at` in a dense array of box b. */
static int64_t position(const gw_box *b, const int64_t *at) {
    int64_t p = 0;
    for (int i = 0; i < b->ndim; i++) p = p * b->size[i] + (at[i] - b->start[i]);
    return p;
}

/* The next row of `part`: counts up in all dimensions but the last. */
static bool advance(const gw_box *part, int64_t *at) {
    for (int i = part->ndim - 2; i >= 0; i--) {
        if (++at[i] < part->start[i] + part->size[i]) return true;
        at[i] = part->start[i];
    }
    return false;
}

void gw_box_copy(void *dst, const gw_box *to, const void *src, const gw_box *from,
                 const gw_box *part, int64_t elem_bytes) {
    int64_t at[GW_MAX_DIMS] = {0};
    for (int i = 0; i < part->ndim; i++) at[i] = part->start[i];
    int64_t row = part->ndim > 0 ? part->size[part->ndim - 1] : 1;
    do
        memcpy((char *)dst + position(to, at) * elem_bytes,
               (const char *)src + position(from, at) * elem_bytes, (size_t)(row * elem_bytes));
    while (advance(part, at));
}

int64_t gw_box_copy_run(void *dst, int64_t first, int64_t count, const int64_t *dims,
                        const void *src, const gw_box *from, int64_t elem_bytes) {
    const gw_box whole = gw_box_whole(from->ndim, dims);
    int64_t at[GW_MAX_DIMS] = {0}, copied = 0;
    if (gw_box_elems(from) == 0) return 0;
    for (int i = 0; i < from->ndim; i++) at[i] = from->start[i];
    int64_t row = from->ndim > 0 ? from->size[from->ndim - 1] : 1;
    do {
        int64_t begin = position(&whole, at);
        int64_t lo = GW_MAX(begin, first), hi = GW_MIN(begin + row, first + count);
        if (lo >= hi) continue;
        memcpy((char *)dst + (lo - first) * elem_bytes,
               (const char *)src + (position(from, at) + lo - begin) * elem_bytes,
               (size_t)((hi - lo) * elem_bytes));
        copied += hi - lo;
    } while (advance(from, at));
    return copied;
}
