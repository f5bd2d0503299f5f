// SPDX-License-Identifier: Apache-2.0
// The machine's peak, for MFU.
//
// Model FLOPs utilisation needs a denominator. On a GPU it is the data sheet's; on a CPU it follows
// from three facts the system gives: cores in use (train/cores.h: distinct ones of all ranks, or
// what a cgroup's quota leaves of them), their highest frequency, and what one core does in a
// cycle. The last is two fused multiply-adds of the vector's width, which holds for the server
// cores of the last ten years; with AVX512-BF16 a product of bf16 pairs doubles it, with AMX one
// tile product a 16 cycles gives 1024. Nothing is measured, so that two runs on one machine have
// one denominator; where the kernel hides the frequency limit, /proc/cpuinfo's present value stands
// in, and a core that clocks higher shows a somewhat high MFU. The arithmetic is printed with the
// figure.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h" /* gw_log_debug */
#include "train/report.h"

static double max_frequency(const char **how) {
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "re");
    char line[256];
    double khz = 0, mhz = 0;
    if (f) {
        if (fgets(line, sizeof line, f)) khz = strtod(line, NULL);
        fclose(f);
    }
    *how = "cpuinfo_max_freq";
    if (khz > 0) return khz * 1e3;
    f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "cpu MHz", 7) == 0 && colon) mhz = GW_MAX(mhz, strtod(colon + 1, NULL));
    }
    if (f) fclose(f);
    *how = "/proc/cpuinfo";
    if (mhz > 0) return mhz * 1e6;
    *how = "assumed";
    return 2e9;
}

static double per_cycle(gw_isa isa, gw_dtype compute, const char **what) {
    bool bf16 = compute == GW_BF16;
    switch (isa) {
    case GW_ISA_AMX: *what = bf16 ? "AMX bf16" : "AVX-512 f32"; return bf16 ? 1024 : 64;
    case GW_ISA_AVX512_BF16: *what = bf16 ? "AVX512-BF16" : "AVX-512 f32"; return bf16 ? 128 : 64;
    case GW_ISA_AVX512: *what = "AVX-512 f32"; return 64;
    case GW_ISA_AVX2: *what = "AVX2 f32"; return 32;
    case GW_ISA_PLAIN: *what = "128-bit vectors, f32"; return 16;
    }
    *what = "unknown";
    return 16;
}

double gw_report_peak_flops(const gw_machine *m, gw_dtype compute, const gw_core_count *c,
                            int ranks, gw_arena *a, const char **source) {
    const char *how = "", *what = "", *limit = "", *of = "";
    double hz = max_frequency(&how), each = per_cycle(m->isa, compute, &what);
    if (c->usable < (double)c->cores - 1e-9)
        limit = gw_arena_printf(a, " (the time of %d that cgroup %s allows)", c->cores, c->cgroup);
    if (ranks > 1) of = gw_arena_printf(a, " for %d ranks", ranks);
    *source =
        gw_arena_printf(a, "%.4g core%s%s%s x %.2f GHz (%s) x %g FLOPs a cycle (%s)", c->usable,
                        c->usable == 1 ? "" : "s", of, limit, hz * 1e-9, how, each, what);
    return c->usable * hz * each;
}
