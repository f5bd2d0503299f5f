// SPDX-License-Identifier: Apache-2.0
// The machine's peak, for MFU.
//
// Model FLOPs utilisation needs a denominator. On a GPU it is the data sheet's; on a CPU it follows
// from three facts the system gives: cores in use, their highest frequency, and what one core does
// in a cycle. The last is two fused multiply-adds of the vector's width, which holds for the server
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

enum { MAX_CORES = 4096 };

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

/* Physical cores, by the pairs of package and core in /proc/cpuinfo; 0 when it does not tell. */
static int physical_cores(void) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    long seen[MAX_CORES];
    long package = -1;
    int n = 0;
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon) continue;
        if (strncmp(line, "physical id", 11) == 0) package = strtol(colon + 1, NULL, 10);
        if (strncmp(line, "core id", 7) != 0) continue;
        long id = package * 100000 + strtol(colon + 1, NULL, 10);
        int i = 0;
        while (i < n && seen[i] != id) i++;
        if (i == n && n < MAX_CORES) seen[n++] = id;
    }
    if (f) fclose(f);
    return n;
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

double gw_report_peak_flops(const gw_machine *m, gw_dtype compute, gw_arena *a,
                            const char **source) {
    const char *how = "", *what = "";
    double hz = max_frequency(&how), each = per_cycle(m->isa, compute, &what);
    int cores = physical_cores();
    cores = cores > 0 ? GW_MIN(cores, m->threads) : m->threads;
    *source = gw_arena_printf(a, "%d core%s x %.2f GHz (%s) x %g FLOPs a cycle (%s)", cores,
                              cores == 1 ? "" : "s", hz * 1e-9, how, each, what);
    return (double)cores * hz * each;
}
