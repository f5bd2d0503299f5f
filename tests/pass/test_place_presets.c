// SPDX-License-Identifier: Apache-2.0
// On public models the packed arena stays within 5 % of the largest sum of live bytes.
#include <string.h>

#include "../harness.h"
#include "base/clock.h" /* gw_clock_ns */
#include "programs.h"

static double worst;

static double over_percent(const gw_place_report *r, bool temporaries) {
    int64_t base = temporaries ? r->persistent_bytes : 0;
    double bound = (double)(r->lower_bound_bytes - base);
    return 100.0 * ((double)(r->arena_bytes[GW_MEM_DEVICE] - base) / bound - 1);
}

static void place(const char *preset, int64_t batch, int64_t seq, int accumulate, bool full,
                  gw_dtype compute) {
    program p;
    program_init_preset(&p, preset, batch, seq);
    p.opts.compute = compute;
    p.opts.micro_batches = accumulate;
    if (full) p.opts.recompute.kind = GW_RECOMPUTE_FULL;
    gw_graph g;
    gw_compile_report r;
    int64_t t0 = gw_clock_ns();
    program_make(&p, NULL, &g, &r);
    double s = (double)(gw_clock_ns() - t0) * 1e-9;
    double over = over_percent(&r.place, false), temps = over_percent(&r.place, true);
    test_note("%-14s b%lld s%-5lld x%d %-4s %-4s  bound %8.2f MiB  arena +%5.2f %%  temporaries "
              "+%5.2f %%  %5lld ops %.2f s",
              preset, (long long)batch, (long long)seq, accumulate, full ? "full" : "none",
              gw_dtype_name(compute), (double)r.place.lower_bound_bytes / 1048576.0, over, temps,
              (long long)g.ops.count, s);
    CHECK(r.place.arena_bytes[GW_MEM_DEVICE] >= r.place.lower_bound_bytes);
    if (over > worst) worst = over;
    gw_graph_release(&g);
    program_release(&p);
}

static void place_all(const char *preset) {
    bool gpt2 = strncmp(preset, "gpt2", 4) == 0; /* ends at 1024 positions */
#ifdef GW_DEBUG
    int64_t first_batch = 4,
            last_seq = 1024; /* every pass is checked, which takes longer than it */
    (void)gpt2;
#else
    int64_t first_batch = 1, last_seq = gpt2 ? 1024 : 2048;
#endif
    for (int64_t seq = 1024; seq <= last_seq; seq *= 2)
        for (int64_t batch = first_batch; batch <= 4; batch += 3)
            for (int k = 1; k <= 4; k += 3)
                for (int full = 0; full <= 1; full++)
                    place(preset, batch, seq, k, full, k == 1 ? GW_F32 : GW_BF16);
    CHECK_MSG(worst <= 5, "%.2f %%", worst);
}

TEST(place_gpt2) { place_all("gpt2"); }
TEST(place_gpt2_medium) { place_all("gpt2-medium"); }
TEST(place_smollm2_135m) { place_all("smollm2-135m"); }
TEST(place_smollm2_360m) { place_all("smollm2-360m"); }
TEST(place_llama3_8b) { place_all("llama3-8b"); }
TEST(place_qwen3_0_6b) { place_all("qwen3-0.6b"); }
TEST(place_qwen2_5_0_5b) { place_all("qwen2.5-0.5b"); }
TEST(place_mistral_7b) { place_all("mistral-7b"); }
