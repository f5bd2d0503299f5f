// SPDX-License-Identifier: Apache-2.0
// The verifier's last part: no two values that are alive at once share bytes of an arena.
#ifndef GW_IR_VERIFY_MEMORY_H
#define GW_IR_VERIFY_MEMORY_H

#include "ir/opdef.h" /* gw_graph, gw_status */

/* Ties have their root's offset, everything placed lies inside its arena, and lifetimes that meet
 * have disjoint bytes (local bytes of rank 0). The graph has passed every other check. O(n log n).
 */
GW_WARN_UNUSED gw_status gw_verify_memory(const gw_graph *g, gw_diags *dg);

#endif
