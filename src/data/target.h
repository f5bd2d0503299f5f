// SPDX-License-Identifier: Apache-2.0
// Functions for instructions that not every x86-64 has: those between GW_TARGET_BEGIN(features) and
// GW_TARGET_END are compiled for them. Brings the intrinsics too. Whoever calls such a function
// asks gw_scan_has first.
#ifndef GW_DATA_TARGET_H
#define GW_DATA_TARGET_H

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define GW_HAS_TARGETS  1
#define GW_TARGET_AVX2  "avx2,bmi,bmi2,lzcnt,popcnt"
#define GW_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define GW_TARGET_BEGIN(features)                                                                  \
    GW_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define GW_TARGET_END GW_PRAGMA(clang attribute pop)
#else
#define GW_TARGET_BEGIN(features) GW_PRAGMA(GCC push_options) GW_PRAGMA(GCC target(features))
#define GW_TARGET_END             GW_PRAGMA(GCC pop_options)
#endif
#else
#define GW_HAS_TARGETS 0
#endif

#endif
