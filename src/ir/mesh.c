// SPDX-License-Identifier: Apache-2.0
// The mesh: ranks as mixed-radix numbers over prime-grained sub-axes.
//
// A group (dp, tp, ...) of size n is kept as the prime factors of n, one sub-axis each, so that
// "part of an axis" (replicate over hosts, shard within one) is a subset of sub-axes and never a
// new kind of axis. Placements hold indices into this list, and sets of sub-axes are bit masks of
// them; hence GW_MAX_AXES is 32. The first sub-axis is the most major digit of a rank, the last the
// most minor: ranks that differ only in the last are neighbours.
//
// What must hold: sizes are primes (>= 2), names are unique. Which group goes where in the order is
// the layout's choice, not this file's.
#include "ir/mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */

/* Largest prime factor of n >= 2. */
static int32_t largest_prime(int32_t n) {
    int32_t best = 1;
    for (int32_t p = 2; (int64_t)p * p <= n; p++)
        while (n % p == 0) {
            best = p;
            n /= p;
        }
    return n > 1 ? n : best;
}

static int count_bits(uint32_t mask) {
    int n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

uint32_t gw_mesh_add(gw_mesh *m, const char *group, int32_t size) {
    GW_ASSERT(size >= 1);
    uint32_t mask = 0;
    int next = count_bits(gw_mesh_group(m, group));
    while (size > 1) {
        if (m->naxes >= GW_MAX_AXES) gw_panic("mesh: more than %d sub-axes", GW_MAX_AXES);
        gw_axis *a = &m->axes[m->naxes];
        memset(a, 0, sizeof *a);
        int n = snprintf(a->name, sizeof a->name, "%s.%d", group, next++);
        if (n < 0 || n >= (int)sizeof a->name) gw_panic("mesh: group name '%s' is too long", group);
        a->size = largest_prime(size);
        size /= a->size;
        mask |= 1u << m->naxes++;
    }
    return mask;
}

uint32_t gw_mesh_group(const gw_mesh *m, const char *group) {
    size_t n = strlen(group);
    uint32_t mask = 0;
    for (int i = 0; i < m->naxes; i++) {
        const char *name = m->axes[i].name;
        if (strncmp(name, group, n) == 0 && (name[n] == 0 || name[n] == '.')) mask |= 1u << i;
    }
    return mask;
}

int64_t gw_mesh_size(const gw_mesh *m, uint32_t mask) {
    int64_t n = 1;
    for (int i = 0; i < m->naxes; i++)
        if (mask >> i & 1u) n *= m->axes[i].size;
    return n;
}

int64_t gw_mesh_ranks(const gw_mesh *m) { return gw_mesh_size(m, UINT32_MAX); }

int32_t gw_mesh_coord(const gw_mesh *m, int64_t rank, int axis) {
    GW_ASSERT(axis >= 0 && axis < m->naxes && rank >= 0);
    for (int i = m->naxes - 1; i > axis; i--) rank /= m->axes[i].size;
    return (int32_t)(rank % m->axes[axis].size);
}

int gw_mesh_find(const gw_mesh *m, const char *name) {
    for (int i = 0; i < m->naxes; i++)
        if (strcmp(m->axes[i].name, name) == 0) return i;
    return -1;
}
