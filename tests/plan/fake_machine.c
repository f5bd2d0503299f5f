// SPDX-License-Identifier: Apache-2.0
// A machine of round numbers for tests of the simulator, as the text of a hardware file: the real
// reader and the real cost functions take it, so that a test can do their sums by hand. `mfu` of 1
// makes every op follow the roofline; the parameters left are those of links and of overlap.
#include "fake_machine.h"

#include <string.h>

#include "base/diag.h" /* gw_diags */
#include "harness.h"

static const char text[] =
    "name: fake\n"
    "sources: {here: \"round numbers\"}\n"
    "peak:\n"
    "  f64: {is: 100e12, from: here}\n"
    "  f32: {is: 100e12, from: here}\n"
    "  bf16: {is: 100e12, from: here}\n"
    "  f16: {is: 100e12, from: here}\n"
    "  f8: {is: 100e12, from: here}\n"
    "memory: {bytes: {is: 80e9, from: here}, bytes_per_s: {is: 1e12, from: here}}\n"
    "host: {bytes_per_s: {is: 50e9, from: here}}\n"
    "links:\n"
    "  - name: fast\n"
    "    ranks: {is: 8, from: here}\n"
    "    bytes_per_s: {is: 200e9, from: here}\n"
    "    latency_s: {is: 2e-6, from: here}\n"
    "  - name: slow\n"
    "    bytes_per_s: {is: 25e9, from: here}\n"
    "    latency_s: {is: 10e-6, from: here}\n"
    "model: {inherits: a100-80g, near_efficiency: 1, far_efficiency: 1, collective_s: 0,\n"
    "        launch_s: 0, memory_efficiency: 1, overlap: %g}\n";

gw_machine_spec fake_machine(gw_arena *a, double overlap) {
    gw_machine_spec m;
    gw_diags dg;
    gw_diags_init(&dg);
    const char *file = gw_arena_printf(a, text, overlap);
    CHECK_OK(gw_machine_parse("fake", file, (int64_t)strlen(file), a, &m, &dg), &dg);
    m.mfu = 1;
    gw_diags_release(&dg);
    return m;
}
