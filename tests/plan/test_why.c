// SPDX-License-Identifier: Apache-2.0
// The explanations of layouts, against closed forms by hand: bytes of Megatron's four all-reduces,
// of sequence parallelism, of rings and exchanges; activations of Korthikanti et al. 2022 (table
// 2); and the figures that the field quotes.
#include <string.h>

#include "harness.h"
#include "planned.h"
#include "plan/why.h"

static const gw_coll_machine local = {.shared = true,
                                      .threads = 1,
                                      .latency_s = 1e-6,
                                      .bytes_per_s = 1e9,
                                      .copy_bytes_per_s = 1e9,
                                      .sum_bytes_per_s = 1e9};

/* A run by way of a run file, as the command has it. */
typedef struct asked {
    gw_arena mem;
    gw_diags dg;
    gw_runfile rf;
    gw_setup setup;
    gw_block_input in;
} asked;

static void ask(asked *a, const char *model, int64_t micro_batch, int64_t seq) {
    memset(a, 0, sizeof *a);
    gw_diags_init(&a->dg);
    gw_str text = {0};
    gw_str_printf(&text,
                  "model: {%s}\ntrain: {seq_len: %lld, micro_batch: %lld}\n"
                  "precision: {compute: bf16}\n",
                  model, (long long)seq, (long long)micro_batch);
    CHECK_OK(
        gw_runfile_parse(&a->rf, "test.yaml", gw_str_c(&text), (int64_t)text.len, NULL, 0, &a->dg),
        &a->dg);
    CHECK_OK(gw_setup_init(&a->setup, &a->rf, false, &a->dg), &a->dg);
    CHECK_OK(gw_setup_ranks(&a->setup, NULL, &a->dg), &a->dg);
    a->in = (gw_block_input){.model = &a->setup.model,
                             .opts = &a->setup.train,
                             .micro_batch = micro_batch,
                             .seq = seq,
                             .comm = &local};
    gw_str_release(&text);
}

static void done(asked *a) {
    gw_setup_release(&a->setup);
    gw_runfile_release(&a->rf);
    gw_diags_release(&a->dg);
    gw_arena_release(&a->mem);
}

static gw_block read_block(asked *a, int64_t tp, int64_t cp, bool sequence, gw_cp_mode mode,
                           int u) {
    gw_block b;
    gw_block_layout l = {
        .tp = tp, .cp = cp, .sequence_parallel = sequence, .cp_mode = mode, .cp_ulysses = u};
    CHECK_OK(gw_block_read(&b, &a->in, &l, NULL, &a->dg), &a->dg);
    return b;
}

#define GPT2                                                                                       \
    "family: gpt2, layers: 5, hidden: 96, heads: 8, ffn: 384, vocab: 301, max_positions: 64"
#define LLAMA "family: llama, layers: 5, hidden: 96, heads: 8, kv_heads: 4, ffn: 160, vocab: 301"

/* ---- tensor parallelism ---- */

TEST(four_all_reduces_a_block_and_their_bytes) {
    static const char *const models[] = {GPT2, LLAMA, LLAMA ", tie_embeddings: true"};
    for (size_t i = 0; i < GW_COUNT(models); i++)
        for (int64_t t = 1; t <= 8; t *= 2) { /* 8: kv heads of LLAMA are copied */
            asked a;
            ask(&a, models[i], 3, 64);
            gw_block b = read_block(&a, t, 1, false, GW_CP_RING, 0);
            int64_t m = 3 * 64 * 96 * 2;
            for (int way = 0; way < 2; way++)
                for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
                    bool reduces = k == GW_COLL_ALL_REDUCE && t > 1;
                    CHECK_EQ(b.tp[way][k].count, reduces ? 2 : 0);
                    CHECK_EQ(b.tp[way][k].payload_bytes, reduces ? 2 * (2 * (t - 1) * m / t) : 0);
                }
            CHECK_EQ(gw_block_over_cp(&b).count, 0);
            done(&a);
        }
}

/* Each all-reduce becomes a reduce-scatter and an all-gather; backward gathers the inputs of q, k,
 * v and of the feed-forward again. */
TEST(sequence_parallelism_sends_as_much_and_two_gathers_more) {
    static const char *const models[] = {GPT2, LLAMA};
    for (size_t i = 0; i < GW_COUNT(models); i++)
        for (int64_t t = 2; t <= 4; t *= 2) {
            asked a;
            ask(&a, models[i], 3, 64);
            gw_block b = read_block(&a, t, 1, true, GW_CP_RING, 0);
            int64_t part = (t - 1) * (3 * 64 * 96 * 2) / t;
            CHECK_EQ(b.tp[0][GW_COLL_REDUCE_SCATTER].count, 2);
            CHECK_EQ(b.tp[0][GW_COLL_ALL_GATHER].count, 2);
            CHECK_EQ(b.tp[1][GW_COLL_REDUCE_SCATTER].count, 2);
            CHECK_EQ(b.tp[1][GW_COLL_ALL_GATHER].count, 4);
            CHECK_EQ(gw_block_over_tp(&b).count, 10);
            CHECK_EQ(gw_block_over_tp(&b).payload_bytes, 10 * part);
            done(&a);
        }
}

/* Table 2 has, in 16 bits, s b h (10 + 24/t + 5 a s / (h t)), and 34/t + 5 a s / (h t) under
 * sequence parallelism. Attention here keeps no matrix of scores (no 5 a s / h) but a float32 of
 * each query and head, 4 a / t; dropout draws its masks again (2 of the 10); each of two norms
 * keeps a mean and a deviation in float32: 16 bytes a token. */
TEST(K18_activations_of_a_block_are_the_published_formulas) {
    static const struct {
        const char *dropout;
        int64_t h, a, s, b;
    } runs[] = {{", dropout: 0.1", 96, 8, 64, 3}, {"", 160, 4, 32, 2}};
    for (size_t i = 0; i < GW_COUNT(runs); i++)
        for (int64_t t = 1; t <= 4; t *= 2) {
            int64_t h = runs[i].h, heads = runs[i].a, n = runs[i].s * runs[i].b;
            gw_str model = {0};
            gw_str_printf(
                &model,
                "family: gpt2, layers: 5, hidden: %lld, heads: %lld, ffn: %lld, vocab: 301, "
                "max_positions: 64%s",
                (long long)h, (long long)heads, (long long)(4 * h), runs[i].dropout);
            asked a;
            ask(&a, gw_str_c(&model), runs[i].b, runs[i].s);
            gw_block plain = read_block(&a, t, 1, false, GW_CP_RING, 0);
            gw_block sp = read_block(&a, t, 1, true, GW_CP_RING, 0);
            test_note("h %lld t %lld", (long long)h, (long long)t);
            int64_t published = n * h * 10 + n * h * 24 / t, masks = 2 * n * h;
            CHECK_EQ(plain.saved_bytes, published - masks + 16 * n + 4 * heads * n / t);
            CHECK_EQ(sp.saved_bytes, (n * h * 34 - masks + 16 * n + 4 * heads * n) / t);
            gw_str_release(&model);
            done(&a);
        }
}

/* 31.75 s h at the shape of Llama 3 405B: two norm inputs, two norm outputs, q, k, v, o, and three
 * of the feed-forward. What is in float32 comes on top: one of each norm, one of each head. */
TEST_WITHIN(K24_activations_of_a_llama_block, 120) {
    asked a;
    int64_t s = 131072, h = 16384;
    ask(&a, "preset: llama3-405b", 1, s);
    gw_block b = read_block(&a, 1, 1, false, GW_CP_RING, 0);
    CHECK_EQ(b.saved_bytes, s * h * 127 / 4 + s * (8 + 4 * 128));
    for (int64_t c = 2; c <= 16; c *= 8) {
        gw_block part = read_block(&a, 1, c, false, GW_CP_RING, 0);
        CHECK_EQ(part.saved_bytes, b.saved_bytes / c); /* memory a rank is in proportion to s/C */
    }
    done(&a);
}

/* Exposed communication of 70B at tp 8 against its 6N, at 40 % of 989 TF: 15.2 % at 450 GB/s, 7.6 %
 * at 900, 137 % over a NIC of 50 GB/s, 294 % at tp 16 over NICs. */
TEST_WITHIN(K18_share_of_communication, 120) {
    asked a;
    gw_machine_spec hw;
    gw_why_tp *w = gw_mem_zalloc(sizeof *w);
    ask(&a, "preset: llama3-70b", 1, 8192);
    CHECK_OK(gw_machine_read("h100,mfu=0.4", &a.mem, &hw, &a.dg), &a.dg);
    CHECK_OK(gw_why_tp_init(w, &a.in, &hw, 1, &a.dg), &a.dg);
    CHECK_EQ(w->n, 7);
    const gw_why_tp_row *r = &w->rows[3];
    CHECK_EQ(r->t, 8);
    CHECK_NEAR((double)(80 * gw_block_over_tp(&r->plain).payload_bytes) / 8192, 9.175e6, 0.001e6);
    CHECK_NEAR(gw_why_tp_to_6n(w, r), 0.152, 0.0015);
    w->hw.tiers[0].bytes_per_s = 900e9;
    CHECK_NEAR(gw_why_tp_to_6n(w, r), 0.076, 0.0008);
    w->hw.tiers[0].bytes_per_s = 50e9;
    CHECK_NEAR(gw_why_tp_to_6n(w, r), 1.37, 0.014);
    CHECK_NEAR(gw_why_tp_to_6n(w, r + 1), 2.94, 0.03); /* beyond 8 ranks: 50 GB/s */
    w->hw.tiers[1].bytes_per_s = 0;                    /* not stated: no figure */
    CHECK(gw_why_tp_to_6n(w, r + 1) < 0);
    /* K19: kv heads are copied from 16 on, the feed-forward of a rank is 448 wide at 64. */
    for (int i = 0; i < w->n; i++)
        CHECK_NEAR(gw_why_tp_copies(w, &w->rows[i]),
                   w->rows[i].t > 8 ? (double)w->rows[i].t / 8 : 1, 1e-12);
    const gw_block *last = &w->rows[6].plain;
    for (int p = 0; p < last->nproducts; p++) {
        if (strcmp(last->products[p].name, "mlp/down") == 0) CHECK_EQ(last->products[p].k, 448);
        if (strcmp(last->products[p].name, "attn/k") == 0) CHECK_EQ(last->products[p].n, 128);
    }
    CHECK_EQ(last->nproducts, 7);
    gw_mem_free(w);
    done(&a);
}

TEST(uneven_heads_and_roofline) {
    asked a;
    gw_machine_spec hw;
    gw_why_tp *w = gw_mem_zalloc(sizeof *w);
    ask(&a, "family: llama, layers: 3, hidden: 96, heads: 12, kv_heads: 2, ffn: 160, vocab: 301", 1,
        64);
    CHECK_OK(gw_machine_read("flops=1T,memory=100GB/s,link=1GB/s", &a.mem, &hw, &a.dg), &a.dg);
    CHECK_OK(gw_why_tp_init(w, &a.in, &hw, 5, &a.dg), &a.dg);
    static const int64_t t[] = {1, 2, 4, 5, 6, 8, 12, 16, 32, 64}, heads[] = {12, 6, 3, 3, 2, 2, 1};
    static const double copies[] = {1, 1, 2, 5, 3, 8, 6, 16, 32, 64};
    CHECK_EQ(w->n, GW_COUNT(t));
    for (int i = 0; i < w->n; i++) {
        const gw_why_tp_row *r = &w->rows[i];
        CHECK_EQ(r->t, t[i]);
        CHECK_EQ(r->plain.heads, i < (int)GW_COUNT(heads) ? heads[i] : 1);
        CHECK_EQ(r->head.n, (301 + t[i] - 1) / t[i]);
        /* 2 kv heads are cut in two where the query heads of either half of the ranks need one. */
        CHECK_NEAR(gw_why_tp_copies(w, r), copies[i], 0);
        CHECK_EQ(r->heads_empty, t[i] > 12 ? t[i] - 12 : t[i] == 5 ? 1 : t[i] == 8 ? 2 : 0);
    }
    /* 64 rows, 96 x 96 in bf16: 2 m n k FLOPs on (m k + k n + m n) x 2 bytes at 10 FLOP a byte. */
    double flops = 2.0 * 64 * 96 * 96, bytes = 2.0 * (64 * 96 + 96 * 96 + 64 * 96);
    CHECK_NEAR(gw_why_efficiency(&hw, &w->rows[0].plain.products[0]),
               GW_MIN(1.0, flops / bytes / 10), 1e-9);
    gw_mem_free(w);
    done(&a);
}

/* ---- context parallelism ---- */

/* Bytes of a rank. Document ids, 4 bytes a token, go with keys around a ring; the other modes
 * gather them once for all layers, and an inner block sends none. */
TEST(context_parallel_bytes_are_their_formulas) {
    int64_t s = 128, n = 3 * s, k = 12, h = 8, g = 4;
    for (int64_t c = 2; c <= 4; c *= 2) {
        asked a;
        ask(&a, LLAMA, 3, s);
        gw_block ring = read_block(&a, 1, c, false, GW_CP_RING, 0);
        int64_t hop = 2 * (n / c) * g * k * 2, docs = 4 * (n / c);
        CHECK_EQ(ring.cp[0][GW_COLL_SHIFT].payload_bytes, (c - 1) * (hop + docs));
        CHECK_EQ(gw_block_over_cp(&ring).count,
                 ring.cp[0][GW_COLL_SHIFT].count + ring.cp[1][GW_COLL_SHIFT].count);
        /* Backward: k and v again, and float32 sums of their gradients all the way round. */
        CHECK_EQ(ring.cp[1][GW_COLL_SHIFT].payload_bytes, (c - 1) * (hop + docs) + c * 2 * hop);
        gw_block gather = read_block(&a, 1, c, false, GW_CP_ALLGATHER, 0);
        CHECK_EQ(gather.cp[0][GW_COLL_ALL_GATHER].payload_bytes, (c - 1) * hop);
        gw_block ulysses = read_block(&a, 1, c, false, GW_CP_ULYSSES, 0);
        CHECK_EQ(ulysses.cp[0][GW_COLL_ALL_TO_ALL].payload_bytes,
                 (c - 1) * ((n / c) * (2 * h + 2 * g) * k * 2) / c);
        CHECK_EQ(ulysses.cp[0][GW_COLL_ALL_GATHER].count, 0);
        CHECK_EQ(ulysses.cp[0][GW_COLL_SHIFT].count, 0);
        done(&a);
    }
}

/* 405B at 128k, cp 16, 8 kv heads of 128: 33.55 MB a hop, 503.3 MB a layer forward; at half of 989
 * TF and 50 GB/s the ring hides from 1,237 tokens a rank. */
TEST_WITHIN(K25_when_the_ring_hides, 120) {
    asked a;
    gw_machine_spec hw;
    ask(&a, "preset: llama3-405b", 1, 131072);
    CHECK_OK(gw_machine_read("flops=989e12,mfu=0.5,link=50GB/s", &a.mem, &hw, &a.dg), &a.dg);
    gw_why_cp *w = gw_mem_zalloc(sizeof *w);
    gw_block_layout run = {.tp = 1, .cp = 1};
    CHECK_OK(gw_why_cp_init(w, &a.in, &hw, &run, &a.dg), &a.dg);
    const gw_why_cp_row *r = &w->rows[3];
    CHECK_EQ(r->c, 16);
    int64_t tokens = 131072 / 16, hop = 2 * tokens * 8 * 128 * 2;
    CHECK_EQ(hop, 33554432);
    CHECK_EQ(r->modes[GW_CP_RING].cp[0][GW_COLL_SHIFT].payload_bytes, 15 * (hop + 4 * tokens));
    CHECK_NEAR(gw_why_cp_hides_from(w, r), 1237, 1);
    /* The condition is what the program's own work and bytes say: a hop against a block. */
    double part = r->modes[GW_CP_RING].attention_flops[0] / 16 / (989e12 * 0.5);
    double from = (double)tokens * (double)hop / 50e9 / part;
    CHECK_NEAR(from, 1237, 0.01 * 1237);
    gw_mem_free(w);
    done(&a);
}
