// SPDX-License-Identifier: Apache-2.0
// One macro for each compiler extension that gradwright uses, so that the sources stay plain C17
// (and C++17 where a header is shared with CUDA) and a new compiler needs one file of care.
#ifndef GW_BASE_COMPILER_H
#define GW_BASE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define GW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define GW_WARN_UNUSED       __attribute__((warn_unused_result))
#define GW_NORETURN          __attribute__((noreturn))
#define GW_UNUSED            __attribute__((unused))
#define GW_LIKELY(x)         __builtin_expect(!!(x), 1)
#define GW_UNLIKELY(x)       __builtin_expect(!!(x), 0)
#define GW_RESTRICT          __restrict__
#define GW_ALWAYS_INLINE     inline __attribute__((always_inline))
#define GW_PREFETCH(p)       __builtin_prefetch(p)
#else
#define GW_PRINTF(fmt, args)
#define GW_WARN_UNUSED
#define GW_NORETURN
#define GW_UNUSED
#define GW_LIKELY(x)   (x)
#define GW_UNLIKELY(x) (x)
#define GW_RESTRICT
#define GW_ALWAYS_INLINE inline
#define GW_PREFETCH(p)   ((void)(p))
#endif

/* Function clones chosen at load time by CPU features: only for loops in kernel/cpu. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(GW_NO_CLONES)
#define GW_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define GW_CLONES
#endif

/* At the top of a file: a product and a sum are rounded one by one, whatever the command line says.
 */
#if defined(__clang__)
#define GW_NO_CONTRACT _Pragma("STDC FP_CONTRACT OFF")
#elif defined(__GNUC__)
#define GW_NO_CONTRACT _Pragma("GCC optimize(\"fp-contract=off\")")
#else
#define GW_NO_CONTRACT
#endif

/* At the top of a file whose loops are to be vectorised at every optimisation level above none. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define GW_VECTORIZE _Pragma("GCC optimize(\"O3\")")
#else
#define GW_VECTORIZE
#endif

/* Within a spin loop: tells the core that this thread only waits. */
#if defined(__x86_64__) || defined(__i386__)
#define GW_CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define GW_CPU_RELAX() __asm__ volatile("yield")
#else
#define GW_CPU_RELAX() ((void)0)
#endif

/* Before a loop whose iterations do not depend on each other, though its pointers may be equal. */
#if defined(__clang__)
#define GW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define GW_INDEPENDENT _Pragma("GCC ivdep")
#else
#define GW_INDEPENDENT
#endif

#define GW_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define GW_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define GW_MAX(a, b)    ((a) > (b) ? (a) : (b))

#endif
