// SPDX-License-Identifier: Apache-2.0
// Laws of the ledger: sums do not know an order, a batch or a rank; two ledgers are compared where
// both stand at the same sample.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"     /* gw_file_write_atomic */
#include "base/rng.h"    /* gw_rng_u64 */
#include "data/ledger.h" /* gw_ledger */
#include "harness.h"     /* TEST, CHECK */

static gw_digest number(uint64_t i) {
    gw_rng_key key = gw_rng_key_named(9, "digests");
    return (gw_digest){gw_rng_u64(key, 2 * i), gw_rng_u64(key, 2 * i + 1)};
}

TEST(sums_over_ranks_are_exact) {
    enum { RANKS = 1000 };
    gw_digest all = {0}, back = {0};
    double sums[GW_DIGEST_PARTS] = {0};
    for (uint64_t r = 0; r < RANKS; r++) {
        gw_digest d = r % 7 ? number(r) : (gw_digest){UINT64_MAX, UINT64_MAX};
        double parts[GW_DIGEST_PARTS];
        gw_digest_add(&all, d);
        gw_digest_parts(d, parts);
        for (int i = 0; i < GW_DIGEST_PARTS; i++) sums[i] += parts[i];
        CHECK(gw_digest_same(gw_digest_of_sums(parts), d));
    }
    CHECK(gw_digest_same(gw_digest_of_sums(sums), all));
    for (uint64_t r = RANKS; r-- > 0;)
        gw_digest_add(&back, r % 7 ? number(r) : (gw_digest){UINT64_MAX, UINT64_MAX});
    CHECK(gw_digest_same(back, all));
}

TEST(a_row_is_its_content) {
    int32_t t[8] = {1, 2, 3, 4, 5, 6, 7, 8}, l[8] = {2, 3, 4, 5, 6, 7, 8, 9}, d[8] = {0};
    gw_hash128 was = gw_digest_row(t, l, d, 8);
    int32_t *all[] = {t, l, d};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 8; i++) {
            all[k][i] ^= 1;
            CHECK(!gw_digest_same(gw_digest_row(t, l, d, 8), was));
            all[k][i] ^= 1;
        }
    CHECK(gw_digest_same(gw_digest_row(t, l, d, 8), was));
}

/* Rows from..to in batches of `each`; sample `changed` (-1: none) has another digest. */
static void write_run(const char *dir, int64_t from, int64_t to, int64_t each, int64_t changed) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_ledger *l;
    CHECK_OK(gw_dir_make(dir, &dg), &dg);
    CHECK_OK(gw_ledger_open(dir, -1, &l, &dg), &dg);
    for (int64_t n = from, b = 0; n < to; n += each, b++) {
        gw_ledger_line line = {
            .batch = b, .step = b + 1, .first = n, .next = n + each, .tokens = 5};
        for (int64_t i = n; i < n + each; i++)
            gw_digest_add(&line.digest, number((uint64_t)(i == changed ? 1000 + i : i)));
        CHECK_OK(gw_ledger_add(l, &line, &dg), &dg);
    }
    CHECK_OK(gw_ledger_close(l, &dg), &dg);
    gw_diags_release(&dg);
}

static gw_ledger_verdict compare(const char *a, const char *b) {
    gw_diags dg;
    gw_arena mem = {0};
    gw_ledger_history h[2];
    gw_diags_init(&dg);
    CHECK_OK(gw_ledger_read(a, &mem, &h[0], &dg), &dg);
    CHECK_OK(gw_ledger_read(b, &mem, &h[1], &dg), &dg);
    CHECK_EQ(gw_ledger_gap(&h[0]), -1);
    CHECK_EQ(gw_ledger_gap(&h[1]), -1);
    gw_ledger_verdict v = gw_ledger_compare(&h[0], &h[1]);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
    return v;
}

static const char *dir_of(const char *name) {
    static char paths[4][512];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s", test_tmp_path(name));
    return p;
}

TEST(runs_are_compared_where_both_stand) {
    const char *a = dir_of("a"), *b = dir_of("b"), *c = dir_of("c"), *d = dir_of("d");
    write_run(a, 0, 96, 8, -1);
    write_run(b, 24, 120, 12, -1);
    write_run(c, 0, 96, 6, 50);
    write_run(d, 1, 91, 9, -1);
    gw_ledger_verdict v = compare(a, a);
    CHECK(v.same && v.comparable && v.first == 0 && v.next == 96);
    v = compare(a, b); /* boundaries in common: 24, 48, 72, 96 */
    CHECK(v.same && v.comparable && v.first == 24 && v.next == 96);
    CHECK(v.batches[0] == 9 && v.batches[1] == 6);
    v = compare(a, c); /* 50 is in the stretch 48 to 72 */
    CHECK(!v.same && v.first == 48 && v.next == 72);
    CHECK(v.line[0] == 8 && v.line[1] == 11);
    v = compare(c, b);
    CHECK(!v.same && v.first == 48 && v.next == 60);
    v = compare(a, d); /* 64 = 1 + 7 * 9 alone */
    CHECK(!v.comparable);
}

/* KempnerForge#57, accelerate#3938: what a resumed run takes again stands there once. */
TEST(a_resumed_run_has_each_batch_once) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_ledger *l;
    gw_ledger_history h;
    const char *a = dir_of("resumed"), *b = dir_of("straight");
    char path[600];
    write_run(a, 0, 64, 8, -1);
    write_run(b, 0, 96, 8, -1);
    snprintf(path, sizeof path, "%s/data.ledger", a);
    int fd = open(path, O_WRONLY | O_APPEND); /* a line that a crash cut short */
    CHECK(fd >= 0 && write(fd, "{\"batch\": 8, \"st", 16) == 16);
    close(fd);
    CHECK_OK(gw_ledger_open(a, 40, &l, &dg), &dg);
    for (int64_t n = 40; n < 96; n += 4) {
        gw_ledger_line line = {.batch = n / 4, .step = n / 4, .first = n, .next = n + 4};
        for (int64_t i = n; i < n + 4; i++) gw_digest_add(&line.digest, number((uint64_t)i));
        CHECK_OK(gw_ledger_add(l, &line, &dg), &dg);
    }
    CHECK_OK(gw_ledger_close(l, &dg), &dg);
    CHECK_OK(gw_ledger_read(a, &mem, &h, &dg), &dg);
    CHECK_EQ(h.n, 5 + 14);
    gw_ledger_verdict v = compare(a, b);
    CHECK(v.same && v.first == 0 && v.next == 96);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(gaps_and_damage_are_found) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    gw_ledger_history h;
    static const char LINE[] =
        "{\"batch\": %d, \"step\": 1, \"first\": %d, \"next\": %d, \"labels\": 1, "
        "\"tokens\": 1, \"quarantined\": 0, \"digest\": "
        "\"000102030405060708090a0b0c0d0e0f\"}\n";
    char text[1024];
    int n = snprintf(text, sizeof text, LINE, 0, 0, 4);
    n += snprintf(text + n, sizeof text - (size_t)n, LINE, 1, 8, 12);
    CHECK_OK(gw_ledger_parse(text, n, "x", &mem, &h, &dg), &dg);
    CHECK_EQ(gw_ledger_gap(&h), 1);
    CHECK_EQ(h.lines[0].digest.hi, 0x0001020304050607);
    CHECK_EQ(h.lines[0].digest.lo, 0x08090a0b0c0d0e0f);
    n = snprintf(text, sizeof text, "{\"batch\": 1}\n");
    CHECK_FAILS(gw_ledger_parse(text, n, "x", &mem, &h, &dg), &dg, "no line of a ledger");
    CHECK_EQ(dg.first->where.line, 1);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}
