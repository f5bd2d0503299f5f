// SPDX-License-Identifier: Apache-2.0
// Boxes: the parts of a tensor that ranks hold and files store.
//
// A loader that intersects boxes does not care how many ranks wrote a checkpoint or read it: each
// target takes from every chunk what the two have in common. Arrays are dense and row-major within
// their own box, so a copy walks the common part row by row, a row being its last dimension. What a
// placement leaves a rank is no box, but runs of the flattened tensor: of each run the rows that
// meet a box are copied.
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

/* Does element `index` of the flattened tensor lie in the box? *at: where in its dense array. */
static bool locate(const gw_box *b, const int64_t *dims, int64_t index, int64_t *at) {
    int64_t i[GW_MAX_DIMS];
    bool inside = true;
    for (int k = b->ndim; k-- > 0;) {
        i[k] = index % dims[k];
        index /= dims[k];
        inside = inside && i[k] >= b->start[k] && i[k] < b->start[k] + b->size[k];
    }
    if (inside) *at = position(b, i);
    return inside;
}

/* The part of a run that lies in one row: [first, first + count). */
static int64_t copy_of_row(char *dst, int64_t first, int64_t count, const int64_t *dims,
                           const char *src, const gw_box *from, int64_t elem_bytes) {
    int last = from->ndim - 1;
    int64_t at, column = first % dims[last], row = first - column;
    int64_t lo = GW_MAX(column, from->start[last]);
    int64_t hi = GW_MIN(column + count, from->start[last] + from->size[last]);
    if (lo >= hi || !locate(from, dims, row + lo, &at)) return 0;
    memcpy(dst + (lo - column) * elem_bytes, src + at * elem_bytes,
           (size_t)((hi - lo) * elem_bytes));
    return hi - lo;
}

int64_t gw_box_copy_run(void *dst, int64_t first, int64_t count, const int64_t *dims,
                        const void *src, const gw_box *from, int64_t elem_bytes) {
    const gw_box whole = gw_box_whole(from->ndim, dims);
    int64_t copied = 0;
    if (gw_box_elems(from) == 0) return 0;
    if (gw_box_equal(from, &whole)) {
        memcpy(dst, (const char *)src + first * elem_bytes, (size_t)(count * elem_bytes));
        return count;
    }
    int64_t length = dims[from->ndim - 1];
    for (int64_t done = 0, n; done < count; done += n) {
        n = GW_MIN(count - done, length - (first + done) % length);
        copied += copy_of_row((char *)dst + done * elem_bytes, first + done, n, dims, src, from,
                              elem_bytes);
    }
    return copied;
}
