// SPDX-License-Identifier: Apache-2.0
// Inside of the scanner: where pieces begin, as bit masks of 64 characters; not for other files.
#ifndef GW_DATA_SCAN_BLOCKS_H
#define GW_DATA_SCAN_BLOCKS_H

#include "data/scanner.h" /* gw_scan */

/* A block: up to 64 characters, one bit each, from the lowest. `heads` has a bit for each byte that
 * begins a character. */
typedef struct gw_block {
    uint64_t letter, number, space; /* o200k: marks count as letters */
    uint64_t blank, newline, quote; /* U+0020; CR LF; U+0027 */
    uint64_t upper, both, mark;     /* o200k only: Lu Lt; letters that are neither; M */
    uint64_t heads;
    int chars, bytes;
} gw_block;

/* What a block's pieces depend on in the block before: the classes of its last character (0 or 1
 * each), the numbers since the last start, and starts that its contractions set and take away here.
 * All zero where a piece is known to begin. */
typedef struct gw_carry {
    uint64_t letter, number, space, blank, newline, other, tail, start_other, lower, both;
    uint64_t set, clear;
    int digits;
} gw_carry;

typedef struct gw_scan_starts {
    uint32_t *items;
    int64_t count, cap;
} gw_scan_starts;

typedef struct gw_scan_job {
    gw_scan kind;
    const gw_uni_table *classes; /* of the version; made at the first character past ASCII */
    int version;
    gw_uni_table **made; /* where it is kept */
    const uint8_t *text;
    size_t n;
    size_t at;   /* the next byte to look at; begins a character */
    size_t last; /* where the last piece that was found begins */
    gw_carry carry;
    uint64_t known;         /* 1: a piece begins at `at`, which is among the starts already */
    gw_scan_starts *starts; /* found starts are appended */
    const uint64_t *places; /* [256]: the places of the bits of a byte, a byte each, lowest first */
} gw_scan_job;

/* Looks at blocks until at >= stop <= n. text is readable for 64 + 16 bytes past stop. Starts
 * before the last white space of a text are final; what is past it is the caller's. */
typedef void gw_scan_blocks(gw_scan_job *j, size_t stop);
gw_scan_blocks gw_scan_blocks_plain, gw_scan_blocks_avx2, gw_scan_blocks_avx512;

#endif
