// SPDX-License-Identifier: Apache-2.0
// What the scanners share that move bits with BMI2 (scan_avx2.c, scan_avx512.c).
//
// Included once by each, behind the lines that choose its instructions; the includer defines
// classify, which fills the masks of 64 bytes and leaves characters past ASCII to widen.
#ifndef GW_DATA_SCAN_BMI2_H
#define GW_DATA_SCAN_BMI2_H

static inline uint64_t scatter(uint64_t m, uint64_t to) { return _pdep_u64(m, to); }

/* Writes up to 64 positions; in steps of eight, so that the number of steps is foreseen. */
static inline void emit(uint32_t *to, uint32_t base, uint64_t starts) {
    do {
        for (int k = 0; k < 8; k++) {
            to[k] = base + (uint32_t)_tzcnt_u64(starts);
            starts = _blsr_u64(starts);
        }
        to += 8;
    } while (starts);
}

static inline void classify(gw_scan_job *j, gw_block *b, bool cased);

#include "data/scan_rules.h" /* run_kind */

/* Makes a bit a character of masks with a bit a byte. `past`: bytes past ASCII. */
static void widen(gw_scan_job *j, gw_block *b, uint64_t past, bool cased) {
    const uint8_t *p = j->text + j->at;
    uint64_t heads = ~(uint64_t)0;
    int bytes = 64;
    while (past) {
        int i = lowest(past), len;
        unsigned c = gw_uni_table_class(classes_of(j), decode(p + i, &len));
        if (i + len > 64) {
            bytes = i;
            break;
        }
        uint64_t body = low_bits(len) << i;
        heads &= ~body | (uint64_t)1 << i;
        past &= ~body;
        add_class(b, c, i, cased);
    }
    heads &= low_bits(bytes);
    b->heads = heads;
    b->bytes = bytes;
    b->chars = __builtin_popcountll(heads);
    b->letter = _pext_u64(b->letter, heads);
    b->number = _pext_u64(b->number, heads);
    b->space = _pext_u64(b->space, heads);
    b->blank = _pext_u64(b->blank, heads);
    b->newline = _pext_u64(b->newline, heads);
    b->quote = _pext_u64(b->quote, heads);
    if (cased) {
        b->upper = _pext_u64(b->upper, heads);
        b->both = _pext_u64(b->both, heads);
        b->mark = _pext_u64(b->mark, heads);
    }
}

#endif
