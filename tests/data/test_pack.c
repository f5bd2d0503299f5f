// SPDX-License-Identifier: Apache-2.0
// Laws of packing: every pair of input and label once, nothing cut that fits, rows as full as best
// fit makes them.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"  /* gw_rng_u32 */
#include "data/pack.h" /* gw_pack */
#include "harness.h"   /* TEST, CHECK */

enum { DOCS = 300 };

static int64_t make(int64_t *ends, int64_t docs, int64_t longest, bool empties, uint64_t seed) {
    gw_rng_key key = gw_rng_key_named(seed, "pack");
    int64_t sum = 0;
    for (int64_t d = 0; d < docs; d++) {
        int64_t n = 1 + gw_rng_u32(key, (uint64_t)d) % longest;
        ends[d] = sum += empties && d % 5 == 2 ? 0 : n;
    }
    return sum;
}

static int64_t doc_of(const int64_t *ends, int64_t at) {
    int64_t d = 0;
    while (ends[d] <= at) d++;
    return d;
}

static void check_best_fit(const int64_t *ends, int64_t docs, int64_t s) {
    gw_pack p;
    gw_pack_init(&p, GW_PACK_BEST_FIT, s, ends, docs);
    CHECK_EQ(p.rows, gw_pack_rows(GW_PACK_BEST_FIT, s, ends, docs));
    int64_t tokens = ends[docs - 1], pairs = 0, wanted = 0;
    unsigned char *used = calloc((size_t)tokens + 1, 1);
    for (int64_t d = 0; d < docs; d++) {
        int64_t n = ends[d] - (d ? ends[d - 1] : 0);
        wanted += n > 1 ? n - 1 : 0;
    }
    for (int64_t r = 0; r < p.rows; r++) {
        gw_stretch e;
        int64_t n = 0;
        for (gw_pack_cursor c = gw_pack_row(&p, r); gw_pack_next(&c, &e); n += e.n) {
            int64_t d = doc_of(ends, e.at), begin = d ? ends[d - 1] : 0, len = ends[d] - begin;
            CHECK(e.n > 0 && e.at + e.n < ends[d] && e.goes_on);
            CHECK_EQ((e.at - begin) % s,
                     0); /* cut only at multiples of s, so only where it must be */
            CHECK(e.n == s || e.at + e.n == begin + len - 1);
            for (int64_t i = 0; i < e.n; i++) CHECK_EQ(used[e.at + i]++, 0);
        }
        CHECK(n > 0 && n <= s);
        CHECK_EQ(gw_pack_inputs(&p, r), n);
        CHECK_EQ(gw_pack_valid(&p, r), n);
        pairs += n;
    }
    CHECK_EQ(pairs, wanted);
    /* Best fit never leaves two rows that are half empty. */
    int half = 0;
    for (int64_t r = 0; r < p.rows; r++) half += 2 * gw_pack_inputs(&p, r) <= s;
    CHECK(half <= 1);
    free(used);
    gw_pack_release(&p);
}

TEST(best_fit_has_every_pair_once) {
    static int64_t ends[DOCS];
    for (uint64_t t = 0; t < 40; t++) {
        int64_t docs = 1 + (int64_t)(t * 37 % DOCS);
        make(ends, docs, t % 2 ? 70 : 9, t % 3 == 0, t);
        for (int64_t s = 1; s <= 200; s = s * 3 + 1) check_best_fit(ends, docs, s);
    }
}

/* Sizes by hand: 7 6 5 4 3 3 2 in rows of 10: 7+3, 6+4, 5+3+2. */
TEST(best_fit_by_hand) {
    static const int64_t PAIRS[] = {3, 7, 4, 2, 6, 5, 3};
    int64_t ends[7], sum = 0;
    for (int i = 0; i < 7; i++) ends[i] = sum += PAIRS[i] + 1;
    gw_pack p;
    gw_pack_init(&p, GW_PACK_BEST_FIT, 10, ends, 7);
    CHECK_EQ(p.rows, 3);
    for (int64_t r = 0; r < 3; r++) CHECK_EQ(gw_pack_inputs(&p, r), 10);
    gw_pack_cursor c = gw_pack_row(&p, 0);
    gw_stretch e;
    CHECK(gw_pack_next(&c, &e) && e.n == 7);
    CHECK(gw_pack_next(&c, &e) && e.n == 3 && e.at == 0);
    CHECK(!gw_pack_next(&c, &e));
    gw_pack_release(&p);
}

TEST(contiguous_rows_cover_the_stream) {
    static int64_t ends[DOCS];
    for (uint64_t t = 0; t < 20; t++) {
        int64_t docs = 1 + (int64_t)(t * 53 % DOCS), tokens = make(ends, docs, 50, t % 3 == 1, t);
        if (tokens == 0) continue;
        for (int64_t s = 1; s <= 400; s = 2 * s + 1) {
            gw_pack p;
            gw_pack_init(&p, GW_PACK_CONTIGUOUS, s, ends, docs);
            CHECK_EQ(p.rows, gw_pack_rows_contiguous(tokens, s));
            CHECK_EQ(p.rows, tokens - 1 <= s ? 1 : (tokens - 1 + s - 1) / s);
            int64_t at = 0, firsts = 0, valid = 0;
            for (int64_t r = 0; r < p.rows; r++) {
                gw_stretch e;
                at = r * s;
                for (gw_pack_cursor c = gw_pack_row(&p, r); gw_pack_next(&c, &e); at += e.n) {
                    CHECK_EQ(e.at, at);
                    int64_t d = doc_of(ends, e.at);
                    CHECK(e.at + e.n <= ends[d]);
                    CHECK_EQ(e.goes_on, e.at + e.n < ends[d]);
                }
                CHECK_EQ(at - r * s, gw_pack_inputs(&p, r));
                valid += gw_pack_valid(&p, r);
            }
            for (int64_t d = 0; d < docs; d++) firsts += ends[d] > (d ? ends[d - 1] : 0);
            CHECK_EQ(valid, tokens - firsts); /* every token but each document's first */
            CHECK(at >= tokens - 1);
            gw_pack_release(&p);
        }
    }
}

TEST(one_document_a_row) {
    static const int64_t ENDS[] = {5, 5, 8, 30};
    gw_pack p;
    gw_pack_init(&p, GW_PACK_DOCUMENT, 10, ENDS, 4);
    CHECK_EQ(p.rows, 3);
    CHECK_EQ(gw_pack_rows(GW_PACK_DOCUMENT, 10, ENDS, 4), 3);
    static const int64_t INPUTS[] = {5, 3, 10}, VALID[] = {4, 2, 10};
    for (int64_t r = 0; r < 3; r++) {
        CHECK_EQ(gw_pack_inputs(&p, r), INPUTS[r]);
        CHECK_EQ(gw_pack_valid(&p, r), VALID[r]);
    }
    gw_pack_release(&p);
}
