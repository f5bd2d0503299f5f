// SPDX-License-Identifier: Apache-2.0
// Sets of every kind: the same documents give the same rows from Megatron files, MDS shards and
// memory; mixtures, damage, and what is refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"        /* gw_mem_alloc */
#include "base/io.h"           /* gw_file_read */
#include "base/rng.h"          /* gw_rng_u32 */
#include "data/loader.h"       /* gw_loader */
#include "data/tokens.h"       /* gw_tokens */
#include "file/mds.h"          /* gw_mds_writer */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "harness.h"           /* TEST, CHECK */

enum { SEQ = 16 };

typedef struct set {
    int32_t *tokens;
    int64_t *ends;
    int64_t ndocs, ntokens;
} set;

static set make_set(int64_t ndocs, int64_t longest, int32_t base) {
    set s = {.ndocs = ndocs};
    gw_rng_key key = gw_rng_key_named((uint64_t)base + 1, "set");
    s.ends = gw_mem_alloc((size_t)ndocs * sizeof *s.ends);
    for (int64_t d = 0; d < ndocs; d++)
        s.ends[d] = s.ntokens += 1 + gw_rng_u32(key, (uint64_t)d) % longest;
    s.tokens = gw_mem_alloc((size_t)s.ntokens * sizeof *s.tokens);
    for (int64_t i = 0; i < s.ntokens; i++) s.tokens[i] = base + (int32_t)i;
    return s;
}

static void free_set(set *s) {
    gw_mem_free(s->tokens);
    gw_mem_free(s->ends);
}

static const char *path_of(const char *name) {
    static char paths[8][512];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s", test_tmp_path(name));
    return p;
}

static void write_megatron(const set *s, const char *prefix) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_midx_writer *w;
    CHECK_OK(gw_midx_writer_new(prefix, 70000, &w, &dg), &dg);
    for (int64_t d = 0; d < s->ndocs; d++) {
        int64_t from = d ? s->ends[d - 1] : 0;
        CHECK_OK(gw_midx_writer_doc(w, (const uint32_t *)s->tokens + from, s->ends[d] - from, &dg),
                 &dg);
    }
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
}

/* One column of tokens, as `encoding`; shards of `limit` bytes. Without `counted` the index does
 * not say how many tokens there are. */
static void write_mds(const set *s, const char *dir, const char *encoding, const char *zip,
                      int64_t limit, bool counted) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mds_writer *w;
    gw_str value = {0};
    bool wide = !strcmp(encoding, "bytes");
    static const char *const hashes[] = {"xxh3_64"}, *const names[] = {"tokens", "n"};
    const char *encodings[] = {encoding, "int"};
    gw_mds_writer_options o = {.dir = dir,
                               .names = names,
                               .encodings = encodings,
                               .ncolumns = 2,
                               .compression = zip,
                               .hashes = hashes,
                               .nhashes = 1,
                               .size_limit = limit};
    CHECK_OK(gw_mds_writer_new(&o, &w, &dg), &dg);
    for (int64_t d = 0; d < s->ndocs; d++) {
        int64_t from = d ? s->ends[d - 1] : 0, n = s->ends[d] - from;
        gw_str_clear(&value);
        for (int64_t i = 0; i < n && wide; i++) {
            int64_t x = s->tokens[from + i];
            gw_str_add_n(&value, &x, sizeof x);
        }
        if (!wide)
            gw_mds_array_write(gw_mds_writer_column(w, 0), GW_MDS_I32, s->tokens + from, n, &value);
        gw_mds_value v[] = {{value.data, (int64_t)value.len}, {&d, 8}};
        CHECK_OK(gw_mds_writer_add(w, v, n, &dg), &dg);
    }
    CHECK_OK(gw_mds_writer_finish(w, &dg), &dg);
    gw_mds_writer_free(w);
    gw_str_release(&value);
    if (!counted) {
        char path[600];
        gw_str text = {0};
        snprintf(path, sizeof path, "%s/index.json", dir);
        CHECK_OK(gw_file_read(path, 0, &text, &dg), &dg);
        memcpy(strstr(gw_str_c(&text), "gradwright"), "otherwrite", 10);
        CHECK_OK(gw_file_write_atomic(path, text.data, (int64_t)text.len, &dg), &dg);
        gw_str_release(&text);
    }
    gw_diags_release(&dg);
}

typedef struct row {
    int32_t ints[4][SEQ];
    gw_sample s;
} row;

static row *read_row(gw_tokens *ds, int64_t n, row *r) {
    gw_diags dg;
    gw_diags_init(&dg);
    int64_t valid, inputs;
    r->s = (gw_sample){
        .tokens = r->ints[0], .labels = r->ints[1], .positions = r->ints[2], .docs = r->ints[3]};
    CHECK_OK(gw_tokens_measure(ds, n, &valid, &inputs, &dg), &dg);
    CHECK_OK(gw_tokens_sample(ds, n, &r->s, &dg), &dg);
    CHECK_EQ(r->s.id, n);
    CHECK_EQ(r->s.valid, valid);
    CHECK_EQ(SEQ - r->s.padded, inputs);
    gw_diags_release(&dg);
    return r;
}

/* Every token but each document's first is a label once an epoch; nothing crosses documents. */
static void check_epoch(const set *s, gw_tokens *ds, int64_t epoch, int32_t base) {
    int64_t per = gw_tokens_samples(ds);
    int *labels = calloc((size_t)s->ntokens + 1, sizeof *labels);
    row r;
    for (int64_t j = 0; j < per; j++) {
        read_row(ds, epoch * per + j, &r);
        for (int i = 0; i < SEQ - (int)r.s.padded; i++) {
            if (i > 0 && r.s.docs[i] == r.s.docs[i - 1]) {
                CHECK_EQ(r.s.tokens[i], r.s.tokens[i - 1] + 1);
                CHECK_EQ(r.s.positions[i], r.s.positions[i - 1] + 1);
            } else {
                CHECK_EQ(r.s.positions[i], 0);
            }
            if (r.s.labels[i] == GW_LABEL_MASKED) continue;
            CHECK_EQ(r.s.labels[i], r.s.tokens[i] + 1);
            labels[r.s.labels[i] - base]++;
        }
    }
    for (int64_t d = 0, at = 0; d < s->ndocs; at = s->ends[d++])
        for (int64_t i = at; i < s->ends[d]; i++) CHECK_EQ(labels[i], i > at);
    free(labels);
}

static gw_tokens *open_set(const char *path, const gw_tokens_options *o) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens *ds;
    CHECK_OK(gw_tokens_open(path, o, &ds, &dg), &dg);
    gw_diags_release(&dg);
    return ds;
}

TEST(blocks_of_every_kind_have_each_label_once) {
    set s = make_set(300, 60, 0);
    write_megatron(&s, path_of("m"));
    write_mds(&s, path_of("raw"), "ndarray:int32", NULL, 3000, true);
    write_mds(&s, path_of("zip"), "ndarray", "zstd:3", 3000, false);
    write_mds(&s, path_of("wide"), "bytes", NULL, 3000, false);
    static const char *const sets[] = {"m", "raw", "zip", "wide"};
    for (int k = 0; k < 4; k++)
        for (int fit = 0; fit < 2; fit++) {
            gw_tokens_options o = gw_tokens_options_default(SEQ, 3);
            o.order = GW_ORDER_BLOCKS;
            o.block_tokens = 700;
            o.window = 3;
            o.best_fit = fit;
            gw_tokens *ds = open_set(path_of(sets[k]), &o);
            CHECK_EQ(gw_tokens_count(ds), s.ntokens);
            CHECK_EQ(gw_tokens_documents(ds), s.ndocs);
            for (int64_t e = 0; e < 3; e++) check_epoch(&s, ds, e, 0);
            gw_tokens_close(ds);
        }
    free_set(&s);
}

/* Blocks are shards here and there: the same cuts give the same rows, whatever the files are, and
 * asking in any order changes nothing. */
TEST(rows_do_not_depend_on_the_format) {
    set s = make_set(200, 40, 0);
    write_mds(&s, path_of("a"), "ndarray:int32", "zstd:1", 2000, true);
    write_mds(&s, path_of("b"), "ndarray", "zstd:1", 0, true);
    write_mds(&s, path_of("c"), "ndarray:int32", "zstd:9", 2000, false);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 8);
    o.window = 2;
    gw_tokens *a = open_set(path_of("a"), &o), *c = open_set(path_of("c"), &o);
    gw_rng_key key = gw_rng_key_named(4, "order");
    row x, y;
    int64_t per = gw_tokens_samples(a);
    CHECK_EQ(gw_tokens_samples(c), per);
    for (uint64_t t = 0; t < 600; t++) {
        int64_t n = gw_rng_u32(key, t) % (3 * per);
        CHECK(!memcmp(read_row(a, n, &x)->ints, read_row(c, n, &y)->ints, sizeof x.ints));
        if (t % 50 == 0) gw_tokens_pass(c, n);
    }
    gw_tokens_close(a);
    gw_tokens_close(c);
    /* One shard, and one block of a Megatron file and of memory: one shuffle over all rows. */
    write_megatron(&s, path_of("one"));
    o.order = GW_ORDER_BLOCKS;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens *b = open_set(path_of("b"), &o), *m = open_set(path_of("one"), &o), *mem;
    CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &mem, &dg), &dg);
    for (int64_t n = 0; n < 2 * gw_tokens_samples(b); n++) {
        CHECK(!memcmp(read_row(b, n, &x)->ints, read_row(m, n, &y)->ints, sizeof x.ints));
        CHECK(!memcmp(x.ints, read_row(mem, n, &y)->ints, sizeof x.ints));
    }
    gw_tokens_close(b);
    gw_tokens_close(m);
    gw_tokens_close(mem);
    gw_diags_release(&dg);
    free_set(&s);
}

/* Rows of fixed length, as sets made for other trainers have them: a sample is a row. */
TEST(a_sample_a_row) {
    set s = {.ndocs = 50, .ntokens = 50 * (SEQ + 1)};
    s.tokens = gw_mem_alloc((size_t)s.ntokens * sizeof *s.tokens);
    s.ends = gw_mem_alloc((size_t)s.ndocs * sizeof *s.ends);
    for (int64_t i = 0; i < s.ntokens; i++) s.tokens[i] = (int32_t)i;
    for (int64_t d = 0; d < s.ndocs; d++) s.ends[d] = (d + 1) * (SEQ + 1);
    write_mds(&s, path_of("rows"), "ndarray:int32:17", NULL, 1000, false);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 1);
    o.pack = false;
    gw_tokens *ds = open_set(path_of("rows"), &o);
    CHECK_EQ(gw_tokens_samples(ds), 50);
    bool seen[50] = {0};
    row r;
    for (int64_t n = 0; n < 50; n++) {
        read_row(ds, n, &r);
        CHECK(r.s.padded == 0 && r.s.valid == SEQ && r.s.tokens[0] % (SEQ + 1) == 0);
        CHECK(!seen[r.s.tokens[0] / (SEQ + 1)]);
        seen[r.s.tokens[0] / (SEQ + 1)] = true;
    }
    gw_tokens_close(ds);
    free_set(&s);
}

/* The order of a mixture is that of its sources, each going on where it stood. */
TEST(a_mixture_reads_each_source_in_order) {
    gw_diags dg;
    gw_diags_init(&dg);
    set a = make_set(120, 30, 0), b = make_set(80, 50, 30000);
    write_megatron(&a, path_of("web"));
    write_mds(&b, path_of("code"), "ndarray:int32", NULL, 1500, true);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 5);
    o.window = 2;
    gw_tokens_source sources[] = {{path_of("web"), 3, 0}, {path_of("code"), 1, 0}};
    gw_tokens *mix, *one[2] = {open_set(path_of("web"), &o), open_set(path_of("code"), &o)};
    CHECK_OK(gw_tokens_open_mix(sources, 2, NULL, 0, &o, &mix, &dg), &dg);
    int64_t next[2] = {0}, counts[2];
    row x, y;
    for (int64_t n = 0; n < 1000; n++) {
        int k = read_row(mix, n, &x)->s.tokens[0] >= 30000;
        CHECK(!memcmp(x.ints, read_row(one[k], next[k]++, &y)->ints, sizeof x.ints));
        CHECK(labs((long)(next[1] - (n + 1) / 4)) <= 1);
    }
    gw_tokens_counts(mix, 1000, counts);
    CHECK(counts[0] == next[0] && counts[1] == next[1]);
    gw_tokens_close(mix);
    sources[1].epochs = 1;
    CHECK_OK(gw_tokens_open_mix(sources, 2, NULL, 0, &o, &mix, &dg), &dg);
    int64_t rows = gw_tokens_source_at(mix, 1).rows;
    CHECK_OK(gw_tokens_check_epochs(mix, 4 * rows, &dg), &dg);
    CHECK_FAILS(gw_tokens_check_epochs(mix, 4 * rows + 8, &dg), &dg, "in 1 epochs it has");
    gw_tokens_close(mix);
    gw_tokens_close(one[0]);
    gw_tokens_close(one[1]);
    free_set(&a);
    free_set(&b);
    gw_diags_release(&dg);
}

static void flip(const char *dir, const char *shard, long at) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, shard);
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, at, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 1, f) != EOF && fclose(f) == 0);
}

/* A shard that is damaged where it lies is left out, and another stands in: the same for everyone
 * who reads the set, in whatever order; a run over it ends, and its ledger differs. */
TEST(a_damaged_shard_is_quarantined) {
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(200, 40, 0);
    write_mds(&s, path_of("bad"), "ndarray:int32", NULL, 2000, true);
    write_mds(&s, path_of("good"), "ndarray:int32", NULL, 2000, true);
    flip(path_of("bad"), "shard.00003.mds", 900);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 8);
    o.window = 2;
    gw_tokens *bad = open_set(path_of("bad"), &o), *good = open_set(path_of("good"), &o);
    int64_t per = gw_tokens_samples(good), differ = 0;
    CHECK_EQ(gw_tokens_samples(bad), per);
    row x, y;
    static int32_t rows[4096][SEQ];
    CHECK(per < 4096);
    for (int64_t n = 0; n < per; n++) {
        memcpy(rows[n], read_row(bad, n, &x)->ints[0], sizeof rows[n]);
        differ += memcmp(x.ints, read_row(good, n, &y)->ints, sizeof x.ints) != 0;
    }
    CHECK_EQ(gw_tokens_quarantined(bad), 1);
    CHECK_EQ(gw_tokens_quarantined(good), 0);
    CHECK(differ > 0 && differ < per / 3);
    gw_tokens_close(bad);
    bad = open_set(path_of("bad"), &o);
    for (int64_t n = per; n-- > 0;)
        CHECK(!memcmp(rows[n], read_row(bad, n, &x)->ints[0], sizeof rows[n]));
    gw_tokens_close(bad);
    o.no_verify = true; /* then nobody looks */
    bad = open_set(path_of("bad"), &o);
    for (int64_t n = 0; n < per; n++) read_row(bad, n, &x);
    CHECK_EQ(gw_tokens_quarantined(bad), 0);
    gw_tokens_close(bad);
    gw_tokens_close(good);
    free_set(&s);
    gw_diags_release(&dg);
}

/* The loader over blocks: any layout and any prefetch give the same rows, and its waits are told.
 */
TEST(the_loader_reads_blocks) {
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(200, 40, 0);
    write_mds(&s, path_of("set"), "ndarray:int32", "zstd:3", 2000, false);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 8);
    o.window = 2;
    gw_tokens *truth = open_set(path_of("set"), &o);
    for (int64_t dp = 1; dp <= 3; dp++)
        for (int64_t ahead = 0; ahead <= 3; ahead += 3) {
            gw_tokens *ds = open_set(path_of("set"), &o);
            gw_loader_options lo = {2, 3, dp, dp - 1, 5 * dp, ahead};
            gw_loader *l;
            const gw_step_batch *b;
            row r;
            CHECK_OK(gw_loader_open(ds, &lo, &l, &dg), &dg);
            for (int step = 0; step < 40; step++) {
                int64_t ns[GW_LOAD_CAUSES];
                if (step == 20) gw_loader_seek(l, 17);
                CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
                gw_loader_waits(l, ns);
                for (int i = 0; i < GW_LOAD_CAUSES; i++) CHECK(ns[i] >= 0);
                for (int64_t k = 0; k < 3; k++)
                    for (int64_t i = 0; i < 2; i++) {
                        read_row(truth, b->micro[k].sample_ids[i], &r);
                        CHECK(!memcmp(b->micro[k].tokens + i * SEQ, r.ints[0], sizeof r.ints[0]));
                        CHECK(!memcmp(b->micro[k].labels + i * SEQ, r.ints[1], sizeof r.ints[1]));
                    }
            }
            gw_loader_close(l);
            gw_tokens_close(ds);
        }
    gw_tokens_close(truth);
    free_set(&s);
    gw_diags_release(&dg);
}

TEST(what_cannot_be_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(20, 40, 0);
    gw_tokens *ds;
    write_mds(&s, path_of("set"), "ndarray:int32", NULL, 0, true);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 8);
    o.order = GW_ORDER_DOCUMENTS;
    CHECK_FAILS(gw_tokens_open(path_of("set"), &o, &ds, &dg), &dg, "data.shuffle");
    gw_diags_clear(&dg);
    o.best_fit = true;
    CHECK_FAILS(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &ds, &dg), &dg, "best-fit");
    gw_diags_clear(&dg);
    o = gw_tokens_options_default(SEQ, 8);
    o.column = "text";
    CHECK_FAILS(gw_tokens_open(path_of("set"), &o, &ds, &dg), &dg, "it has n (int), tokens");
    gw_diags_clear(&dg);
    o.column = NULL;
    o.vocab_size = 100;
    CHECK_OK(gw_tokens_open(path_of("set"), &o, &ds, &dg), &dg);
    gw_status st = GW_OK;
    row r = {.s = {0}};
    r.s = (gw_sample){
        .tokens = r.ints[0], .labels = r.ints[1], .positions = r.ints[2], .docs = r.ints[3]};
    for (int64_t n = 0; n < gw_tokens_samples(ds) && st == GW_OK; n++)
        st = gw_tokens_sample(ds, n, &r.s, &dg);
    CHECK_FAILS(st, &dg, "outside the vocabulary of 100");
    gw_tokens_close(ds);
    free_set(&s);
    gw_diags_release(&dg);
}
