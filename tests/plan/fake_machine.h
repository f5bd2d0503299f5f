// SPDX-License-Identifier: Apache-2.0
// A machine of round numbers.
#ifndef GW_TESTS_FAKE_MACHINE_H
#define GW_TESTS_FAKE_MACHINE_H

#include "plan/machine.h" /* gw_machine_spec */

/* 100 TFLOP/s in every dtype, memory of 80 GB at 1 TB/s, groups of 8 at 200 GB/s and 2 us, beyond
 * at 25 GB/s and 10 us, host at 50 GB/s; ops follow the roofline, collectives have no base and
 * reach the whole link. `overlap`: by how much compute runs longer beside a collective (1 to 10;
 * 10: it stands). What it points at is in `a`. */
gw_machine_spec fake_machine(gw_arena *a, double overlap);

#endif
