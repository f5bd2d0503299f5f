// SPDX-License-Identifier: Apache-2.0
// Telling characters apart in C, for machines without the vector instructions of the other files.
//
// Characters are looked at one by one; each becomes a bit of its classes, so that the rules work on
// whole blocks here too. The rules and their order of evaluation are those of the vector variants
// (scan_rules.h), which are compared with this one and with scan.c.
#include <string.h>

#include "data/scan_blocks.h" /* gw_block */

/* The bits of m, lowest first, at the places of the bits of `to`. */
static inline uint64_t scatter(uint64_t m, uint64_t to) {
    uint64_t out = 0;
    for (; m; m >>= 1, to &= to - 1)
        if (m & 1) out |= to & -to;
    return out;
}

static inline uint32_t *emit(const uint64_t *places, uint32_t *to, uint32_t base, uint64_t starts) {
    (void)places;
    for (; starts; starts &= starts - 1) *to++ = base + (uint32_t)__builtin_ctzll(starts);
    return to;
}

static void classify(gw_scan_job *j, gw_block *b, gw_scan kind);

#include "data/scan_rules.h" /* run_kind */

static void classify(gw_scan_job *j, gw_block *b, gw_scan kind) {
    const uint8_t *p = j->text + j->at;
    int i = 0, at = 0, len;
    memset(b, 0, sizeof *b);
    for (; at < 64; at += len, i++) {
        unsigned c = class_of(j, p + at, &len);
        if (at + len > 64) break;
        uint64_t bit = (uint64_t)1 << i;
        b->heads |= (uint64_t)1 << at;
        add_class(b, c, i, kind == GW_SCAN_O200K);
        if (p[at] == ' ') b->blank |= bit;
        if (p[at] == '\'') b->quote |= bit;
        if (c & GW_CLASS_CRLF) b->newline |= bit;
    }
    b->chars = i;
    b->bytes = at;
}

void gw_scan_blocks_plain(gw_scan_job *j, size_t stop) { run_kind(j, stop); }
