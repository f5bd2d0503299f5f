// SPDX-License-Identifier: Apache-2.0
// A Megatron .bin whose bytes are not those that were written: named with file and offset, its
// documents replaced by the same others for everyone, in both orders.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/build/sums.h"   /* gw_sums_write */
#include "data/shards.h"       /* gw_shards_doc_check */
#include "data/tokens.h"       /* gw_tokens */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "harness.h"

enum { DOCS = 6000, SEQ = 64, VOCAB = 70000 };

/* Documents of 50 to 249 tokens of 4 bytes: 3.6 MB, so four MiBs; token i of document d tells both.
 */
static int64_t length_of(int64_t d) { return 50 + d * 7 % 200; }
static uint32_t token_of(int64_t d, int64_t i) { return (uint32_t)((d * 13 + i) % VOCAB); }

static void write_set(const char *name, bool sums) {
    gw_diags dg;
    gw_midx_writer *w;
    static uint32_t ids[256];
    char bin[600];
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path(name), VOCAB, &w, &dg), &dg);
    for (int64_t d = 0; d < DOCS; d++) {
        for (int64_t i = 0; i < length_of(d); i++) ids[i] = token_of(d, i);
        CHECK_OK(gw_midx_writer_doc(w, ids, length_of(d), &dg), &dg);
    }
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    snprintf(bin, sizeof bin, "%s.bin", test_tmp_path(name));
    if (sums) CHECK_OK(gw_sums_write(bin, NULL, &dg), &dg);
    gw_diags_release(&dg);
}

static void flip(const char *name, long at) {
    char bin[600];
    snprintf(bin, sizeof bin, "%s.bin", test_tmp_path(name));
    FILE *f = fopen(bin, "r+b");
    CHECK(f && fseek(f, at, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 1, f) != EOF && fclose(f) == 0);
}

static gw_tokens *open_set(const char *name, gw_data_order order, bool verify) {
    gw_diags dg;
    gw_tokens *t;
    gw_diags_init(&dg);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 5);
    o.order = order;
    o.block_tokens = 40000;
    o.window = 2;
    o.no_verify = !verify;
    CHECK_OK(gw_tokens_open(test_tmp_path(name), &o, &t, &dg), &dg);
    gw_diags_release(&dg);
    return t;
}

typedef struct row {
    int32_t tokens[SEQ], labels[SEQ], positions[SEQ], docs[SEQ];
} row;

static void read_row(gw_tokens *t, int64_t n, row *r, int64_t *valid) {
    gw_diags dg;
    gw_diags_init(&dg);
    memset(r, 0, sizeof *r);
    gw_sample s = {r->tokens, r->labels, r->positions, r->docs, 0, 0, 0};
    CHECK_OK(gw_tokens_sample(t, n, &s, &dg), &dg);
    *valid = s.valid;
    gw_diags_release(&dg);
}

/* In either order: rows that differ from the whole set's are few, their counts are the planned
 * ones, the damage is counted, and whoever reads backwards reads the same. */
static void check_order(gw_data_order order, int64_t quarantined) {
    gw_tokens *good = open_set("good", order, true), *bad = open_set("bad", order, true);
    int64_t n = gw_tokens_samples(good), differ = 0, v, w;
    CHECK_EQ(gw_tokens_samples(bad), n);
    row *rows = malloc((size_t)n * sizeof *rows), x;
    for (int64_t j = 0; j < n; j++) {
        read_row(bad, j, &rows[j], &v);
        read_row(good, j, &x, &w);
        differ += memcmp(rows[j].tokens, x.tokens, sizeof x.tokens) != 0;
        if (order == GW_ORDER_DOCUMENTS) {
            CHECK_EQ(v, w);
            CHECK(!memcmp(rows[j].positions, x.positions, sizeof x.positions));
        }
    }
    CHECK_MSG(differ > 0 && differ < n / 2, "%lld of %lld rows differ", (long long)differ,
              (long long)n);
    CHECK_EQ(gw_tokens_quarantined(bad), quarantined);
    CHECK_EQ(gw_tokens_quarantined(good), 0);
    gw_tokens_close(bad);
    bad = open_set("bad", order, true);
    for (int64_t j = n; j-- > 0;) {
        read_row(bad, j, &x, &v);
        CHECK(!memcmp(&x, &rows[j], sizeof x));
    }
    gw_tokens_close(bad);
    gw_tokens_close(good);
    free(rows);
}

TEST(a_damaged_bin_is_quarantined) {
    write_set("good", true);
    write_set("bad", true);
    flip("bad", 2500000); /* in its third MiB */
    check_order(GW_ORDER_DOCUMENTS, 1);
    gw_tokens *t = open_set("bad", GW_ORDER_BLOCKS, true);
    int64_t n = gw_tokens_samples(t), v;
    row x;
    for (int64_t j = 0; j < n; j++) read_row(t, j, &x, &v);
    int64_t blocks = gw_tokens_quarantined(t); /* those that touch the MiB: 1 MiB of 160 kB each */
    CHECK_MSG(blocks >= 7 && blocks <= 9, "%lld blocks", (long long)blocks);
    gw_tokens_close(t);
    check_order(GW_ORDER_BLOCKS, blocks);
    t = open_set("bad", GW_ORDER_DOCUMENTS, false); /* then nobody looks */
    for (int64_t j = 0; j < n; j++) read_row(t, j, &x, &v);
    CHECK_EQ(gw_tokens_quarantined(t), 0);
    gw_tokens_close(t);
}

/* File and offset of the damage are named; documents elsewhere are whole. */
TEST(damage_of_a_bin_is_named) {
    gw_diags dg;
    gw_shards *s;
    gw_shards_options o = {0};
    gw_diags_init(&dg);
    write_set("bad", true);
    flip("bad", 1048576);
    CHECK_OK(gw_shards_open(test_tmp_path("bad"), &o, &s, &dg), &dg);
    int64_t bytes = 0, bad = 0;
    for (int64_t d = 0; d < DOCS; d++) {
        int64_t end = bytes + 4 * length_of(d);
        bool touches = end > 1048576 && bytes < 2 * 1048576;
        gw_status st = gw_shards_doc_check(s, d, &dg);
        CHECK_EQ(st, touches ? GW_ERR_FORMAT : GW_OK);
        bad += touches;
        bytes = end;
    }
    CHECK(bad > 1000 && gw_shards_damages(s) == 1);
    CHECK_STR(dg.first->id, "data-checksum");
    CHECK(strstr(dg.first->where.file, "bad.bin"));
    CHECK(strstr(dg.first->message, "from offset 1048576 to 2097152"));
    gw_shards_close(s);
    gw_diags_release(&dg);
}

/* Sums of another file are no licence to throw all of it away: the set is refused, with what to do.
 */
TEST(sums_of_another_file_are_refused) {
    gw_diags dg;
    gw_shards *s;
    gw_shards_options o = {0};
    char path[600];
    gw_diags_init(&dg);
    write_set("set", true);
    snprintf(path, sizeof path, "%s.bin", test_tmp_path("set"));
    FILE *f = fopen(path, "ab");
    CHECK(f && fputc(0, f) != EOF && fclose(f) == 0);
    CHECK_FAILS(gw_shards_open(test_tmp_path("set"), &o, &s, &dg), &dg, "data.verify: false");
    gw_diags_clear(&dg);
    o.no_verify = true;
    CHECK_OK(gw_shards_open(test_tmp_path("set"), &o, &s, &dg), &dg);
    gw_shards_close(s);
    snprintf(path, sizeof path, "%s.bin" GW_SUMS_END, test_tmp_path("set"));
    f = fopen(path, "wb");
    CHECK(f && fputs("xxh3-64 1048576 12\nnonsense\n", f) != EOF && fclose(f) == 0);
    o.no_verify = false;
    CHECK_FAILS(gw_shards_open(test_tmp_path("set"), &o, &s, &dg), &dg, "checksums");
    gw_diags_release(&dg);
}
