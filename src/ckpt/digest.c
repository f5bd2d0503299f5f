// SPDX-License-Identifier: Apache-2.0
// One number for a state, whatever the layout.
//
// Each element of the sample adds a mix of (tensor's name, its index in the whole tensor, its
// bits) to a sum modulo 2^64. A sum does not know an order, so ranks add what they hold and their
// sums are added; an element that several ranks hold is told by the first of them. The sample is
// every GW_CKPT_STRIDE-th element, a prime, so that it meets every column of any matrix that does
// not have a multiple of it: the digest costs a sixtieth of reading the state. It is there to find
// tensors that were mixed, moved or left out; that no byte of a file changed is what hashes of
// blocks say.
#include <string.h>

#include "base/hash.h" /* gw_hash64 */
#include "ckpt/checkpoint.h"
#include "run/exec_comm.h" /* gw_exec_group_rank */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Elements [global, global + count), at `data`. */
static uint64_t sum_run(uint64_t key, const char *data, int64_t each, int64_t global,
                        int64_t count) {
    uint64_t sum = 0;
    int64_t first = (GW_CKPT_STRIDE - global % GW_CKPT_STRIDE) % GW_CKPT_STRIDE;
    for (int64_t i = first; i < count; i += GW_CKPT_STRIDE) {
        uint64_t bits = 0;
        memcpy(&bits, data + i * each, (size_t)each);
        sum += mix(mix(key + (uint64_t)(global + i)) ^ bits);
    }
    return sum;
}

/* The first of the ranks that hold the same elements. */
bool gw_ckpt_tells(const gw_ckpt_tensor *t) {
    if (!t->mesh || t->mesh->naxes == 0) return true;
    uint32_t pp = gw_mesh_group(t->mesh, "pp"), cut = gw_type_part_axes(t->type);
    if (pp && gw_exec_group_rank(t->mesh, pp, t->rank) != t->home) return false;
    return gw_exec_group_rank(t->mesh, ~(cut | pp), t->rank) == 0;
}

uint64_t gw_ckpt_digest(const gw_ckpt_tensor *t) {
    int64_t each = gw_dtype_bits(t->dtype) / 8, global, local, count;
    uint64_t key = gw_hash64(t->name, strlen(t->name), 0), sum = 0;
    const char *data = t->data;
    if (t->away) return 0;
    if (!t->type) {
        gw_box whole = gw_box_whole(t->ndim, t->dims);
        return sum_run(key, data, each, 0, gw_box_elems(&whole));
    }
    if (!gw_ckpt_tells(t)) return 0;
    gw_mesh none = {0};
    gw_held w;
    gw_held_begin(&w, t->type, t->mesh ? t->mesh : &none, t->rank);
    while (gw_held_next(&w, &global, &local, &count))
        sum += sum_run(key, data + local * each, each, global, count);
    return sum;
}

/* Element `at` of a dense array of box b, in the whole tensor; *run: it and those that follow it in
 * both. */
static int64_t global_of(const gw_box *b, const int64_t *dims, int64_t at, int64_t *run) {
    int64_t global = 0, stride = 1, row = 1, left = at;
    bool full = true;
    *run = 1;
    for (int i = b->ndim; i-- > 0;) {
        global += (b->start[i] + left % b->size[i]) * stride;
        left /= b->size[i];
        stride *= dims[i];
        if (!full) continue;
        row *= b->size[i];
        *run = row - at % row;
        full = b->size[i] == dims[i];
    }
    return global;
}

uint64_t gw_ckpt_digest_part(const gw_ckpt_tensor *t, const gw_piece *p, int64_t at, gw_dtype dtype,
                             const void *data, int64_t n) {
    uint64_t key = gw_hash64(t->name, strlen(t->name), 0), sum = 0;
    int64_t each = gw_dtype_bits(dtype) / 8, run;
    if (!gw_ckpt_tells(t)) return 0;
    for (int64_t i = 0; i < n; i += run) {
        int64_t global = global_of(&p->box, t->dims, p->first + at + i, &run);
        run = GW_MIN(run, n - i);
        sum += sum_run(key, (const char *)data + i * each, each, global, run);
    }
    return sum;
}
