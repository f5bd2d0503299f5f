// SPDX-License-Identifier: Apache-2.0
// Attention's arithmetic, compiled for each instruction set, and the choice of one at run time.
//
// Function clones share one body, but a register block has a shape per instruction set: 16
// registers of 8 floats want 6 x 2 accumulators, 32 registers of 16 want 8 x 2. So attention_core.h
// is included once for each set under `#pragma GCC target`, with its vector width. Everywhere, Arm
// included, there is the 16-byte form that the compiler maps to what the target has (SSE2, NEON).
//
// Why not a library sgemm per block: on one Zen 3 core these blocks run at 80-99 GFLOP/s and
// oneDNN's sgemm on blocks of 64 to 256 queries at 73-97, so nothing is gained, while its calls
// allocate packing buffers in parallel regions and large blocks compute more of what a mask hides.
#include "kernel/cpu/attention.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h> /* _mm*_max_ps */
#endif

#include "base/compiler.h"  /* GW_MIN, GW_MAX */
#include "kernel/cpu/vec.h" /* gw_vec_load, gw_vec_store */

/* Four floats anywhere in memory. */
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

#define INLINE inline __attribute__((always_inline))

#define VF_BYTES  16
#define ROWS      6
#define NAME(x)   x##_plain
#define CORE_NAME "plain"
#include "kernel/cpu/attention_core.h"
#undef VF_BYTES
#undef ROWS
#undef NAME
#undef CORE_NAME

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(GW_NO_CLONES)
#define HAVE_WIDE 1
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define VF_BYTES  32
#define ROWS      6
#define NAME(x)   x##_avx2
#define CORE_NAME "avx2"
#include "kernel/cpu/attention_core.h"
#undef VF_BYTES
#undef ROWS
#undef NAME
#undef CORE_NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define VF_BYTES  64
#define ROWS      8
#define NAME(x)   x##_avx512
#define CORE_NAME "avx512"
#include "kernel/cpu/attention_core.h"
#undef VF_BYTES
#undef ROWS
#undef NAME
#undef CORE_NAME
#pragma GCC pop_options
#else
#define HAVE_WIDE 0
#endif

const gw_attn_core *gw_attn_core_at(int i) {
    if (i == 0) return &core_plain;
#if HAVE_WIDE
    if (i == 1 && __builtin_cpu_supports("x86-64-v3")) return &core_avx2;
    if (i == 2 && __builtin_cpu_supports("x86-64-v4")) return &core_avx512;
#endif
    return NULL;
}

const gw_attn_core *gw_attn_core_get(void) {
    const gw_attn_core *best = gw_attn_core_at(0);
    for (int i = 1; gw_attn_core_at(i); i++) best = gw_attn_core_at(i);
    return best;
}

static int64_t padded(int64_t k) { return (k + GW_ATTN_LANES - 1) / GW_ATTN_LANES * GW_ATTN_LANES; }

int64_t gw_attn_forward_floats(int64_t k, int64_t u) {
    /* Rows of a panel, coming and going, borrow the key block, which is larger. */
    return GW_ATTN_KEYS * GW_ATTN_LANES + GW_ATTN_CHUNK * (k + u) +
           GW_ATTN_KEYS * (GW_MAX(k, u) + u);
}

int64_t gw_attn_backward_floats(int64_t sk, int64_t k, int64_t u) {
    int64_t kp = padded(k), up = padded(u), q = GW_ATTN_GRAD_QUERIES;
    return 2 * sk * (kp + up) + q * (3 * kp + 2 * up) + 2 * q * GW_ATTN_GRAD_KEYS + GW_MAX(kp, up);
}
