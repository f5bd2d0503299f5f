// SPDX-License-Identifier: Apache-2.0
// What this machine can do: instruction set and threads.
//
// The instruction set is the one oneDNN will use, because matrix products depend on it most and
// because a user can lower it with oneDNN's own ONEDNN_MAX_CPU_ISA; asking anyone else could plan
// for products that the library then refuses. Our own loops choose their clone by CPU features and
// need no plan. On a processor that oneDNN has no names for (Arm) the answer is GW_ISA_PLAIN:
// float32 products, no direct bf16.
//
// Threads default to the cores that the affinity mask leaves us, which is what taskset, numactl,
// Slurm and mpirun's binding set.
#include <dnnl.h>
#include <sched.h>

#include "kernel/kernel.h" /* gw_machine, gw_isa */

static gw_isa this_isa(void) {
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    const struct {
        unsigned bits;
        gw_isa isa;
    } order[] = {
        {(unsigned)dnnl_cpu_isa_avx512_core_amx, GW_ISA_AMX},
        {(unsigned)dnnl_cpu_isa_avx512_core_bf16, GW_ISA_AVX512_BF16},
        {(unsigned)dnnl_cpu_isa_avx512_core, GW_ISA_AVX512},
        {(unsigned)dnnl_cpu_isa_avx2, GW_ISA_AVX2},
    };
    for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++)
        if (order[i].bits && (isa & order[i].bits) == order[i].bits) return order[i].isa;
    return GW_ISA_PLAIN;
}

static int cores_of_mask(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

gw_machine gw_machine_this(int threads) {
    return (gw_machine){.isa = this_isa(), .threads = threads > 0 ? threads : cores_of_mask()};
}

const char *gw_isa_name(gw_isa isa) {
    switch (isa) {
    case GW_ISA_PLAIN: return "plain";
    case GW_ISA_AVX2: return "avx2";
    case GW_ISA_AVX512: return "avx512";
    case GW_ISA_AVX512_BF16: return "avx512-bf16";
    case GW_ISA_AMX: return "amx";
    }
    return "unknown";
}
