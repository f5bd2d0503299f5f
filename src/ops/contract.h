// SPDX-License-Identifier: Apache-2.0
// Contraction of two tensors over the dimensions they share by name, seen as a product of matrices.
#ifndef GW_OPS_CONTRACT_H
#define GW_OPS_CONTRACT_H

#include "ir/opdef.h" /* gw_infer, gw_type, gw_kargs */

/* a and b share n dims, one leading or trailing group in each, in one order. In memory (row-major)
 * a is a matrix [m][k], or [k][m] when a_leading; b is [n][k], or [k][n] when b_leading; the result
 * is [m][n]: the free dims of a, then those of b. A group that is the whole tensor counts as
 * trailing. */
typedef struct gw_contract {
    int shared;
    bool a_leading, b_leading;
    int a_free, b_free;   /* index of the first free dim of each */
    int na_free, nb_free; /* how many */
} gw_contract;

/* Finds the groups. On failure says why in text that fits "<op>: <why>" and returns false: no
 * shared dim, a group that is neither leading nor trailing, another order, sizes that differ (names
 * both shapes and the dimension). */
bool gw_contract_find(const gw_type *a, const gw_type *b, gw_contract *c, char why[400]);

/* The same for inputs 0 and 1 of an infer hook, with a diagnostic; gives the result's type. */
gw_status gw_contract_infer(gw_infer *f, gw_dtype dtype, gw_contract *c, gw_type *out);

/* Local sizes for a kernel: out[m][n], contracted length k, strides of a and b along each. */
typedef struct gw_contract_sizes {
    int64_t m, n, k;
    int64_t a_m, a_k, b_n, b_k; /* element strides */
} gw_contract_sizes;
gw_contract_sizes gw_contract_local(const gw_kargs *k);

#endif
