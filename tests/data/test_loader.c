// SPDX-License-Identifier: Apache-2.0
// Laws of the loader: layout, timing and resuming change who holds a row, never which rows a step
// has.
#include <string.h>
#include <unistd.h>

#include "base/arena.h"  /* gw_mem_alloc, gw_mem_count */
#include "base/rng.h"    /* gw_rng_u32 */
#include "data/loader.h" /* gw_loader */
#include "harness.h"     /* TEST, CHECK */

enum { SEQ = 6 };

typedef struct set {
    int32_t tokens[4096];
    int64_t ends[64];
    int64_t ndocs;
} set;

static void make_set(set *s, int64_t ndocs, int64_t longest) {
    int64_t n = 0;
    gw_rng_key key = gw_rng_key_named(1, "loader set");
    s->ndocs = ndocs;
    for (int64_t d = 0; d < ndocs; d++) {
        int64_t len = 1 + gw_rng_u32(key, (uint64_t)d) % longest;
        for (int64_t i = 0; i < len; i++, n++) s->tokens[n] = (int32_t)n;
        s->ends[d] = n;
    }
}

static gw_tokens *open_set(const set *s, gw_diags *dg) {
    gw_tokens *ds;
    gw_tokens_options o = gw_tokens_options_default(SEQ, 3);
    CHECK_OK(gw_tokens_open_memory(s->tokens, s->ends, s->ndocs, &o, &ds, dg), dg);
    return ds;
}

/* What one rank is given is what the data set holds at those sample numbers. */
static void check_rank(const set *s, gw_loader_options o, int64_t steps) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens *ds = open_set(s, &dg), *truth = open_set(s, &dg);
    gw_loader *l;
    const gw_step_batch *b;
    int32_t rowbuf[4][SEQ];
    gw_sample row = {rowbuf[0], rowbuf[1], rowbuf[2], rowbuf[3], 0, 0, 0};
    CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
    int64_t global = o.micro_batch * o.accumulate * o.dp_size;
    CHECK_EQ(gw_loader_global_batch(l), global);
    for (int64_t g = 0; g < steps; g++) {
        int64_t first = o.first_sample + g * global, valid = 0, inputs = 0;
        CHECK_EQ(gw_loader_position(l), first);
        CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        CHECK_EQ(b->first_sample, first);
        CHECK_EQ(b->next_sample, first + global);
        CHECK_EQ(b->count, o.accumulate);
        for (int64_t i = 0; i < global; i++) {
            CHECK_OK(gw_tokens_sample(truth, first + i, &row, &dg), &dg);
            valid += row.valid;
            inputs += SEQ - row.padded;
            int64_t k = i / (o.micro_batch * o.dp_size), rank = i / o.micro_batch % o.dp_size;
            if (rank != o.dp_rank) continue;
            const gw_micro_batch *m = &b->micro[k];
            int64_t at = i % o.micro_batch;
            CHECK_EQ(m->sample_ids[at], first + i);
            CHECK(!memcmp(m->tokens + at * SEQ, row.tokens, sizeof rowbuf[0]));
            CHECK(!memcmp(m->labels + at * SEQ, row.labels, sizeof rowbuf[0]));
            CHECK(!memcmp(m->positions + at * SEQ, row.positions, sizeof rowbuf[0]));
            CHECK(!memcmp(m->docs + at * SEQ, row.docs, sizeof rowbuf[0]));
        }
        CHECK_EQ(b->step_labels, valid);
        CHECK_EQ(b->step_tokens, inputs);
    }
    gw_loader_close(l);
    gw_tokens_close(ds);
    gw_tokens_close(truth);
    gw_diags_release(&dg);
}

/* mosaicml/streaming#460, #380: tiny sets, odd sizes, more ranks than samples. All are legal. */
TEST(any_layout_sees_the_same_order) {
    static set s;
    static const int64_t DOCS[] = {1, 2, 50}, B[] = {1, 3}, K[] = {1, 4}, DP[] = {1, 2, 7};
    for (int a = 0; a < 3; a++) {
        make_set(&s, DOCS[a], a == 2 ? 40 : 3);
        for (int b = 0; b < 2; b++)
            for (int k = 0; k < 2; k++)
                for (int d = 0; d < 3; d++)
                    for (int64_t r = 0; r < DP[d]; r += 3)
                        for (int64_t p = 0; p < 3; p += 2)
                            check_rank(&s, (gw_loader_options){B[b], K[k], DP[d], r, 5 * r, p}, 6);
    }
}

/* KempnerForge#57, accelerate#3938, torchtitan#811: stop, resume at the saved sample with another
 * layout, twice in an epoch: the union of samples is each exactly once. */
TEST(resume_with_another_layout_continues) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 50, 40);
    int64_t at = 0, expect = 0;
    static const int64_t DP[] = {4, 2, 8, 1}, K[] = {1, 3, 2, 5}, STEPS[] = {30, 10, 7, 4};
    for (int leg = 0; leg < 4; leg++) {
        static int seen[4096];
        memset(seen, 0, sizeof seen);
        int64_t next = at;
        for (int64_t r = 0; r < DP[leg]; r++) {
            gw_tokens *ds = open_set(&s, &dg);
            gw_loader *l;
            gw_loader_options o = {2, K[leg], DP[leg], r, at, r % 3};
            const gw_step_batch *b = NULL;
            CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
            for (int64_t g = 0; g < STEPS[leg]; g++) {
                CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
                for (int64_t k = 0; k < K[leg]; k++)
                    for (int i = 0; i < 2; i++) seen[b->micro[k].sample_ids[i] - at]++;
            }
            CHECK_EQ(gw_loader_position(l), b->next_sample);
            next = gw_loader_position(l);
            gw_loader_close(l);
            gw_tokens_close(ds);
        }
        CHECK_EQ(at, expect);
        expect += STEPS[leg] * 2 * K[leg] * DP[leg];
        for (int64_t i = 0; i < next - at; i++) CHECK_EQ(seen[i], 1);
        CHECK_EQ(next, expect);
        at = next;
    }
    gw_diags_release(&dg);
}

/* meta-pytorch/data#1437: a state saved at the end of an epoch begins the next one. */
TEST(end_of_epoch_is_the_next_beginning) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 50, 40);
    gw_tokens *ds = open_set(&s, &dg);
    int64_t per = gw_tokens_samples(ds);
    gw_loader *l;
    const gw_step_batch *b;
    gw_loader_options o = {1, 1, 1, 0, per, 2};
    CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
    CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
    CHECK_EQ(b->micro[0].sample_ids[0], per);
    gw_loader_close(l);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}

TEST(seek_and_close_at_any_moment) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 50, 40);
    gw_tokens *ds = open_set(&s, &dg);
    for (int trial = 0; trial < 40; trial++) {
        gw_loader *l;
        const gw_step_batch *b;
        gw_loader_options o = {4, 8, 2, 1, trial, 1 + trial % 4};
        CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
        for (int k = 0; k < trial % 5; k++) CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        gw_loader_seek(l, 1000 + trial);
        CHECK_EQ(gw_loader_position(l), 1000 + trial);
        if (trial % 2) usleep(200);
        if (trial % 3) {
            CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
            CHECK_EQ(b->first_sample, 1000 + trial);
            CHECK_EQ(b->micro[0].sample_ids[0], 1000 + trial + 4);
        }
        gw_loader_close(l);
    }
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}

TEST(no_allocation_per_step) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 50, 40);
    gw_tokens *ds = open_set(&s, &dg);
    for (int64_t p = 0; p < 4; p += 3) {
        gw_loader *l;
        const gw_step_batch *b;
        gw_loader_options o = {4, 2, 1, 0, 0, p};
        int64_t before = gw_mem_count();
        CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
        CHECK_EQ(gw_loader_bytes(l), gw_loader_bytes_for(SEQ, &o));
        CHECK(gw_loader_bytes(l) >= (p + 1) * 4 * 2 * SEQ * 16);
        before = gw_mem_count();
        for (int k = 0; k < 200; k++) CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        CHECK_EQ(gw_mem_count(), before);
        gw_loader_close(l);
    }
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}

/* A bad token stops the loader at its own step, with its place, and again when asked again. */
TEST(data_errors_come_at_their_step) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 1, 1);
    for (int i = 0; i < 100; i++) s.tokens[i] = i;
    s.ends[0] = 100;
    s.tokens[50] = 99999;
    for (int64_t p = 0; p < 3; p++) {
        gw_tokens *ds;
        gw_tokens_options to = gw_tokens_options_default(SEQ, 3);
        to.vocab_size = 1000;
        CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, 1, &to, &ds, &dg), &dg);
        gw_loader *l;
        const gw_step_batch *b;
        gw_loader_options o = {1, 2, 1, 0, 0, p};
        CHECK_OK(gw_loader_open(ds, &o, &l, &dg), &dg);
        for (int k = 0; k < 4; k++) CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        for (int again = 0; again < 2; again++) {
            CHECK_FAILS(gw_loader_next(l, &b, &dg), &dg, "token 50 of document 0 is 99999");
            CHECK(strstr(dg.first->frames, "samples 8 to 9") != NULL);
            gw_diags_clear(&dg);
        }
        gw_loader_seek(l, 10);
        CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        gw_loader_close(l);
        gw_tokens_close(ds);
    }
    gw_diags_release(&dg);
}

TEST(impossible_layouts_are_refused) {
    static set s;
    gw_diags dg;
    gw_diags_init(&dg);
    make_set(&s, 3, 4);
    gw_tokens *ds = open_set(&s, &dg);
    gw_loader *l;
    static const gw_loader_options BAD[] = {{0, 1, 1, 0, 0, 0},  {1, 0, 1, 0, 0, 0},
                                            {1, 1, 2, 2, 0, 0},  {1, 1, 1, -1, 0, 0},
                                            {1, 1, 1, 0, -1, 0}, {INT64_MAX, 2, 1, 0, 0, 0}};
    for (int i = 0; i < 6; i++)
        CHECK_FAILS(gw_loader_open(ds, &BAD[i], &l, &dg), &dg, "data-loader");
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}
